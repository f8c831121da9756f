/* nn_weight_names.c - names, shapes and layouts of a network's weights, and how the tensors of a file go with them. */
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "nn/checkpoints/nn_checkpoint.h"
#include "nn/checkpoints/nn_weights.h"
#include <stdio.h>
#include <string.h>

/* --- what a network has ------------------------------------------------------------------------------------------- */

void fl_targets_clear(struct fl_targets *all) {
    for (int i = 0; i < all->count; i++) {
        fl_free(all->list[i].name);
        fl_free(all->list[i].values);
    }
    fl_free(all->list);
    *all = (struct fl_targets){0};
}

static tensor_status add(struct fl_targets *all, struct fl_target target) {
    all->list[all->count++] = target;
    return target.name ? TENSOR_OK : fl_fail(TENSOR_E_MEMORY, "weights: no memory for a name");
}

static tensor_status list_node(struct fl_targets *all, const struct fl_node *node) {
    for (int k = 0; k < node->parameters; k++) {
        const struct fl_parameter *p = &node->parameter[k];
        TRY(add(all, (struct fl_target){.parameter = p,
                                        .name = fl_format_name("%s.%s", node->owner, p->suffix),
                                        .shape = &p->shape,
                                        .layout = p->layout}));
    }
    for (int k = 0; k < node->states; k++)
        if (node->state[k].lasts)
            TRY(add(all, (struct fl_target){.kept = node->state[k].t,
                                            .name = fl_format_name("%s.%s", node->owner, node->state[k].suffix),
                                            .shape = &node->state[k].shape,
                                            .variance = node->state[k].variance}));
    return TENSOR_OK;
}

tensor_status fl_targets_list(struct fl_targets *all, const nn_graph *g) {
    size_t most = 1;
    for (int i = 0; i < g->count; i++)
        most += (size_t)(g->nodes[i].parameters + g->nodes[i].states);
    *all = (struct fl_targets){.list = fl_alloc_zero(most * sizeof *all->list)};
    tensor_status status = all->list ? TENSOR_OK : fl_fail(TENSOR_E_MEMORY, "weights: no memory for their names");
    for (int i = 0; i < g->count && !status; i++)
        status = list_node(all, &g->nodes[i]);
    if (status)
        fl_targets_clear(all);
    return status;
}

/* What the dimensions are, and from which one on all of them must have one size for another program's layout to have
 * the same shape: [out, in] for our [in, out], [out, in, height, width] for our [out, height, width, in]; -1: none
 * other is in use. */
static const struct {
    const char *text;
    int alike_from;
} layouts[FL_LAYOUTS] = {
    [FL_LAYOUT_CHANNELS] = {"channels", -1},         [FL_LAYOUT_MATRIX] = {"in, out", 0},
    [FL_LAYOUT_GATES] = {"in, gates x out", 0},      [FL_LAYOUT_TOKENS] = {"tokens, width", -1},
    [FL_LAYOUT_PLACES] = {"places, width", -1},      [FL_LAYOUT_FILTERS] = {"out, height, width, in", 1},
    [FL_LAYOUT_LINES] = {"out, width, in", 1},       [FL_LAYOUT_TURNED_FILTERS] = {"in, height, width, out", 1},
    [FL_LAYOUT_TURNED_LINES] = {"in, width, out", 1}};

static bool fits_both_ways(const struct fl_target *t) {
    const int first = layouts[t->layout].alike_from;
    const int64_t *dim = t->shape->dim;
    bool alike = first >= 0 && dim[first] > 1; /* of one element there is one order */
    for (int d = first + 1; alike && d < t->shape->ndim; d++)
        alike = dim[d] == dim[first];
    return alike;
}

static nn_weight_info info_of(const char *name, enum fl_layout layout, const struct fl_shape *shape) {
    nn_weight_info info = {.name = name, .layout = layouts[layout].text, .ndim = shape->ndim};
    memcpy(info.dim, shape->dim, (size_t)shape->ndim * sizeof *shape->dim);
    return info;
}

nn_weight_info nn_weight_at(const nn_graph *g, int i) {
    static _Thread_local char name[3 * FL_NAME_LIMIT];
    for (int n = 0; g && i >= 0 && n < g->count; n++) {
        const struct fl_node *node = &g->nodes[n];
        if (i < node->parameters) {
            snprintf(name, sizeof name, "%s.%s", node->owner, node->parameter[i].suffix);
            return info_of(name, node->parameter[i].layout, &node->parameter[i].shape);
        }
        i -= node->parameters;
        for (int k = 0; k < node->states; k++)
            if (node->state[k].lasts && i-- == 0) {
                snprintf(name, sizeof name, "%s.%s", node->owner, node->state[k].suffix);
                return info_of(name, FL_LAYOUT_CHANNELS, &node->state[k].shape);
            }
    }
    return (nn_weight_info){.name = NULL};
}

int nn_weight_count(const nn_graph *g) {
    int count = 0;
    while (nn_weight_at(g, count).name)
        count++;
    return count;
}

/* --- a file beside it --------------------------------------------------------------------------------------------- */

/* One weight in several forms, the most exact first. */
static const char *const suffixes[] = {".master", ".wide", ""};
enum { SUFFIXES = sizeof suffixes / sizeof *suffixes };

const struct fl_stored_tensor *fl_weight_find(const struct fl_safetensors *s, const char *name, char **found) {
    const struct fl_stored_tensor *t = NULL;
    *found = NULL;
    for (int i = 0; i < SUFFIXES && !t; i++) {
        fl_free(*found);
        *found = fl_format_name("%s%s", name, suffixes[i]);
        t = *found ? fl_safetensors_find(s, *found) : NULL;
    }
    return t;
}

static bool is_ours(const struct fl_safetensors *s) {
    return fl_safetensors_note(s, FL_CHECKPOINT_KEY);
}

/* Whether the file says that its layouts are ours: a checkpoint does, and so may any program. */
static bool tells_layouts(const struct fl_safetensors *s) {
    const char *recorded = fl_safetensors_note(s, "flexlab.layouts");
    return is_ours(s) || (recorded && !strcmp(recorded, "1"));
}

static bool ends_in(const char *name, const char *end) {
    const size_t length = strlen(name), last = strlen(end);
    return length >= last && !strcmp(name + length - last, end);
}

/* What a checkpoint has beside weights: numbers about tensors, what the optimiser keeps of them, their other forms,
 * what a training keeps. */
static tensor_status is_beside(const struct fl_safetensors *s, const char *name, bool *beside) {
    char *owner = fl_strdup(name);
    if (!owner)
        return fl_fail(TENSOR_E_MEMORY, "weights: no memory for a name");
    *beside = ends_in(name, ".slot") || ends_in(name, ".history") || !strcmp(name, "optimiser.step") ||
              !strncmp(name, FL_TRAINING, sizeof FL_TRAINING - 1);
    for (char *dot; !*beside && (dot = strrchr(owner, '.'));) {
        *dot = 0;
        *beside = fl_safetensors_find(s, owner);
    }
    fl_free(owner);
    return TENSOR_OK;
}

static void take_shape(nn_weight_match *match, const struct fl_stored_tensor *t) {
    match->found_ndim = t->ndim;
    memcpy(match->found_dim, t->dim, (size_t)t->ndim * sizeof *t->dim);
}

/* In each of its forms: one is taken, the others are no news. */
static tensor_status mark_used(const struct fl_safetensors *s, const char *name, bool *used) {
    for (int i = 0; i < SUFFIXES; i++) {
        char *form = fl_format_name("%s%s", name, suffixes[i]);
        if (!form)
            return fl_fail(TENSOR_E_MEMORY, "weights: no memory for a name");
        const struct fl_stored_tensor *t = fl_safetensors_find(s, form);
        fl_free(form);
        if (t)
            used[t - s->tensors] = true;
    }
    return TENSOR_OK;
}

static tensor_status match_one(const struct fl_safetensors *s, const struct fl_target *to, bool *used,
                               nn_weight_match_fn report, void *context) {
    char *name;
    const struct fl_stored_tensor *t = fl_weight_find(s, to->name, &name);
    if (!name)
        return fl_fail(TENSOR_E_MEMORY, "weights: no memory for a name");
    nn_weight_match match = {.fit = NN_WEIGHT_MISSING, .weight = info_of(to->name, to->layout, to->shape)};
    if (t) {
        match.found = name;
        take_shape(&match, t);
        match.fit = t->ndim != to->shape->ndim || memcmp(t->dim, to->shape->dim, (size_t)t->ndim * sizeof *t->dim) != 0
                        ? NN_WEIGHT_SHAPE
                    : fits_both_ways(to) && !tells_layouts(s) ? NN_WEIGHT_BOTH_WAYS
                                                              : NN_WEIGHT_FITS;
    }
    report(&match, context);
    fl_free(name);
    return mark_used(s, to->name, used);
}

static tensor_status match_all(const struct fl_targets *all, const struct fl_safetensors *s, bool *used,
                               nn_weight_match_fn report, void *context) {
    for (int i = 0; i < all->count; i++)
        TRY(match_one(s, &all->list[i], used, report, context));
    for (int i = 0; i < s->count; i++) {
        bool beside = used[i];
        if (is_ours(s) && !beside)
            TRY(is_beside(s, s->tensors[i].name, &beside));
        nn_weight_match match = {.fit = NN_WEIGHT_SUPERFLUOUS, .found = s->tensors[i].name};
        take_shape(&match, &s->tensors[i]);
        if (!beside)
            report(&match, context);
    }
    return TENSOR_OK;
}

tensor_status fl_weights_match(const struct fl_targets *all, const struct fl_safetensors *s, nn_weight_match_fn report,
                               void *context) {
    bool *used = fl_alloc_zero((size_t)s->count + 1);
    if (!used)
        return fl_fail(TENSOR_E_MEMORY, "weights: no memory for %d tensors of %s", s->count, s->path);
    const tensor_status status = match_all(all, s, used, report, context);
    fl_free(used);
    return status;
}

tensor_status nn_weights_match(const nn_graph *g, const char *path, nn_weight_match_fn report, void *context) {
    struct fl_targets all;
    struct fl_safetensors s;
    if (!g || !path || !report)
        return fl_fail(TENSOR_E_ARGUMENT, "weights: %s is NULL",
                       !g      ? "the network"
                       : !path ? "the path"
                               : "the callback");
    TRY(fl_safetensors_open(&s, path));
    tensor_status status = fl_targets_list(&all, g);
    if (!status) {
        status = fl_weights_match(&all, &s, report, context);
        fl_targets_clear(&all);
    }
    fl_safetensors_close(&s);
    return status;
}
