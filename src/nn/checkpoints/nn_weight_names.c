/* nn_weight_names.c - names, shapes and layouts of a network's weights, compared with the tensors of a file. */
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/base/text.h"
#include "nn/checkpoints/nn_checkpoint.h"
#include "nn/checkpoints/nn_torch.h"
#include "nn/checkpoints/nn_weights.h"
#include <stdio.h>
#include <string.h>

/* --- the weights of a network ------------------------------------------------------------------------------------- */

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

/* The image that a matrix reads, if its input is one that was flattened. */
static void take_image(int64_t image[3], const nn_graph *g, const struct fl_node *node) {
    const struct fl_node *from = node;
    do
        from = fl_node_of(g, from->input[0].x);
    while (!strncmp(from->layer->kind, "convert", 7));
    if (!strcmp(from->layer->kind, "flatten"))
        memcpy(image, fl_output_of(g, from->input[0].x)->shape.dim + 1, 3 * sizeof *image);
}

/* Parameter k of a node, or from there on the numbers that it preserves; false: it has no more. Without a name. */
static bool target_at(struct fl_target *t, const char **suffix, const nn_graph *g, const struct fl_node *node, int k) {
    *t = (struct fl_target){.parameter = NULL};
    if (k < node->parameters) {
        const struct fl_parameter *p = &node->parameter[k];
        *t = (struct fl_target){.parameter = p, .shape = &p->shape, .layout = p->layout};
        if (p->layout == FL_LAYOUT_MATRIX)
            take_image(t->image, g, node);
        *suffix = p->suffix;
        return true;
    }
    k -= node->parameters;
    for (int i = 0; i < node->states; i++)
        if (node->state[i].lasts && k-- == 0) {
            *t = (struct fl_target){
                .kept = node->state[i].t, .shape = &node->state[i].shape, .variance = node->state[i].variance};
            *suffix = node->state[i].suffix;
            return true;
        }
    return false;
}

tensor_status fl_targets_list(struct fl_targets *all, const nn_graph *g) {
    size_t most = 1;
    for (int i = 0; i < g->count; i++)
        most += (size_t)(g->nodes[i].parameters + g->nodes[i].states);
    *all = (struct fl_targets){.list = fl_alloc_zero(most * sizeof *all->list), .model = g->model};
    tensor_status status = all->list ? TENSOR_OK : fl_fail(TENSOR_E_MEMORY, "weights: no memory for their names");
    for (int i = 0; i < g->count && !status; i++) {
        struct fl_target t;
        const char *suffix;
        for (int k = 0; !status && target_at(&t, &suffix, g, &g->nodes[i], k); k++) {
            t.name = fl_format_name("%s.%s", g->nodes[i].owner, suffix);
            status = add(all, t);
        }
    }
    if (status)
        fl_targets_clear(all);
    return status;
}

/* The names of the dimensions, and the first of those that must have one size for the layout of another program to have
 * the same shape: [out, in] for our [in, out], [out, in, height, width] for our [out, height, width, in]; -1: no other
 * layout is in use. */
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
    bool alike = first >= 0 && dim[first] > 1; /* one element has only one order */
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
    static _Thread_local struct fl_torch_name torch;
    struct fl_target t;
    const char *suffix;
    for (int n = 0; g && i >= 0 && n < g->count; n++)
        for (int k = 0; target_at(&t, &suffix, g, &g->nodes[n], k); k++)
            if (i-- == 0) {
                struct fl_shape shape;
                snprintf(name, sizeof name, "%s.%s", g->nodes[n].owner, suffix);
                fl_torch_name(&torch, g->model, name);
                nn_weight_info info = info_of(name, t.layout, t.shape);
                info.torch_name = torch.name[0];
                info.torch_layout = fl_torch_shape(&shape, &t, torch.third);
                memcpy(info.torch_dim, shape.dim, sizeof shape.dim);
                return info;
            }
    return (nn_weight_info){.name = NULL};
}

int nn_weight_count(const nn_graph *g) {
    int count = 0;
    while (nn_weight_at(g, count).name)
        count++;
    return count;
}

/* --- comparison with a file --------------------------------------------------------------------------------------- */

/* One weight in several forms, the most exact first. */
static const char *const suffixes[] = {".master", ".wide", ""};
enum { SUFFIXES = sizeof suffixes / sizeof *suffixes };

static const struct fl_stored_tensor *find_form(const struct fl_safetensors *s, const char *name, int form) {
    char text[3 * FL_NAME_LIMIT + 16];
    snprintf(text, sizeof text, "%s%s", name, suffixes[form]);
    return fl_safetensors_find(s, text);
}

/* In our own checkpoints the form that updates work on. */
static const struct fl_stored_tensor *find_ours(const struct fl_safetensors *s, const char *name) {
    const struct fl_stored_tensor *t = NULL;
    for (int i = 0; i < SUFFIXES && !t; i++)
        t = find_form(s, name, i);
    return t;
}

static bool is_ours(const struct fl_safetensors *s) {
    return fl_safetensors_note(s, FL_CHECKPOINT_KEY);
}

static bool ends_in(const char *name, const char *end) {
    const size_t length = strlen(name), last = strlen(end);
    return length >= last && !strcmp(name + length - last, end);
}

/* Whether a tensor of a checkpoint is no weight: numbers about tensors, state of the optimiser, other forms of weights,
 * data of a training. */
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

/* --- names and layout of a file ----------------------------------------------------------------------------------- */

/* The prefix that every name of the file has, as torch.nn.DataParallel gives. */
static const char *prefix_of(const struct fl_safetensors *s) {
    static const char *const prefixes[] = {"module.", "model."};
    for (size_t k = 0; k < sizeof prefixes / sizeof prefixes[0]; k++) {
        int with = 0;
        for (int i = 0; i < s->count; i++)
            with += !strncmp(s->tensors[i].name, prefixes[k], strlen(prefixes[k]));
        if (with && with == s->count)
            return prefixes[k];
    }
    return "";
}

static const struct fl_stored_tensor *find_torch(const struct fl_naming *naming, const char *name) {
    char text[FL_TORCH_NAME + 16];
    snprintf(text, sizeof text, "%s%s", naming->prefix, name);
    return *name ? fl_safetensors_find(naming->s, text) : NULL;
}

/* Layers that compute one sum for each filter may have it as a matrix of all their inputs. */
static bool is_matrix_of(const struct fl_stored_tensor *t, const struct fl_place *place) {
    return t && t->ndim == 2 && place->shape.ndim == 4 && t->dim[0] == place->shape.dim[0] &&
           t->dim[1] == place->shape.dim[1] * place->shape.dim[2] * place->shape.dim[3];
}

void fl_place_of(struct fl_place *place, const struct fl_naming *naming, const struct fl_targets *all,
                 const struct fl_target *t) {
    struct fl_torch_name torch = {.third = 0};
    *place = (struct fl_place){.shape = *t->shape, .layout = layouts[t->layout].text};
    if (naming->torch_names) {
        fl_torch_name(&torch, all->model, t->name);
        for (int k = 0; k < torch.count && !place->t; k++)
            place->t = find_torch(naming, torch.name[k]);
        snprintf(place->name, sizeof place->name, "%.40s%.250s", naming->prefix, torch.name[0]);
        place->plus = find_torch(naming, torch.plus);
        place->minus = find_torch(naming, torch.minus);
        place->third = torch.third;
    } else {
        place->t = find_ours(naming->s, t->name);
        snprintf(place->name, sizeof place->name, "%s", t->name);
    }
    if (naming->torch_layout)
        place->layout = fl_torch_shape(&place->shape, t, torch.third);
    if (naming->torch_names && naming->torch_layout && is_matrix_of(place->t, place))
        place->shape = (struct fl_shape){2, {place->t->dim[0], place->t->dim[1]}};
    if (place->t)
        snprintf(place->name, sizeof place->name, "%s", place->t->name);
}

static bool fits(const struct fl_place *place) {
    return place->t && place->t->ndim == place->shape.ndim &&
           !memcmp(place->t->dim, place->shape.dim, (size_t)place->t->ndim * sizeof *place->t->dim);
}

/* Names that only one of the two has. */
static void count_names(const struct fl_naming *naming, const struct fl_targets *all, int *ours, int *theirs) {
    *ours = *theirs = 0;
    for (int i = 0; i < all->count; i++) {
        struct fl_torch_name torch;
        bool same = false, found = false;
        fl_torch_name(&torch, all->model, all->list[i].name);
        for (int k = 0; k < torch.count; k++) {
            same |= !strcmp(torch.name[k], all->list[i].name);
            found |= find_torch(naming, torch.name[k]) != NULL;
        }
        *theirs += !same && found;
        *ours += !same && find_ours(naming->s, all->list[i].name);
    }
    for (int i = 0; i < naming->s->count; i++)
        *theirs += ends_in(naming->s->tensors[i].name, ".num_batches_tracked");
}

/* Without a word about layouts: PyTorch's if some shapes fit only that, and none only ours. */
static bool shapes_are_torch(struct fl_naming naming, const struct fl_targets *all) {
    int only[2] = {0, 0};
    for (int i = 0; i < all->count; i++) {
        bool fit[2];
        for (int torch = 0; torch < 2; torch++) {
            struct fl_place place;
            naming.torch_layout = torch;
            fl_place_of(&place, &naming, all, &all->list[i]);
            fit[torch] = fits(&place);
        }
        only[0] += fit[0] && !fit[1];
        only[1] += fit[1] && !fit[0];
    }
    return only[1] && !only[0];
}

tensor_status fl_naming_of(struct fl_naming *naming, const struct fl_targets *all, const struct fl_safetensors *s,
                           const char *layout) {
    if (layout && strcmp(layout, "oihw") != 0 && strcmp(layout, "ohwi") != 0)
        return fl_fail(TENSOR_E_ARGUMENT, "weights: layout %s, expected oihw (PyTorch's) or ohwi (this library's)",
                       fl_quote(layout).text);
    const char *const note = fl_safetensors_note(s, "flexlab.layouts"), *const format =
                                                                            fl_safetensors_note(s, "format");
    const bool note_ours = is_ours(s) || (note && !strcmp(note, "1")), note_torch = note && !strcmp(note, "oihw");
    int ours, theirs;
    *naming = (struct fl_naming){.s = s, .prefix = prefix_of(s)};
    count_names(naming, all, &ours, &theirs);
    naming->torch_names = !is_ours(s) && (theirs > ours || (*naming->prefix && !ours));
    const bool names_torch = theirs > ours || (format && !strcmp(format, "pt") && !ours);
    naming->stated = layout || note_ours || note_torch || names_torch;
    naming->torch_layout = layout       ? !strcmp(layout, "oihw")
                           : note_ours  ? false
                           : note_torch ? true
                                        : names_torch || shapes_are_torch(*naming, all);
    return TENSOR_OK;
}

/* --- comparison --------------------------------------------------------------------------------------------------- */

static void take_shape(nn_weight_match *match, const struct fl_stored_tensor *t) {
    match->found_ndim = t->ndim;
    memcpy(match->found_dim, t->dim, (size_t)t->ndim * sizeof *t->dim);
}

/* Marks every form of a weight: one is loaded, the others are not superfluous. */
static void mark_used(const struct fl_safetensors *s, const char *name, const struct fl_place *place, bool *used) {
    for (int i = 0; i < SUFFIXES; i++) {
        const struct fl_stored_tensor *const t = find_form(s, name, i);
        if (t && (t == place->t || i < SUFFIXES - 1 || find_ours(s, name) == place->t))
            used[t - s->tensors] = true;
    }
    const struct fl_stored_tensor *const others[] = {place->t, place->plus, place->minus};
    for (int i = 0; i < 3; i++)
        if (others[i])
            used[others[i] - s->tensors] = true;
}

static void match_one(const struct fl_targets *all, const struct fl_naming *naming, const struct fl_target *to,
                      bool *used, nn_weight_match_fn report, void *context) {
    struct fl_place place;
    fl_place_of(&place, naming, all, to);
    nn_weight_match match = {.fit = NN_WEIGHT_MISSING,
                             .weight = {.name = place.name, .layout = place.layout, .ndim = place.shape.ndim}};
    memcpy(match.weight.dim, place.shape.dim, (size_t)place.shape.ndim * sizeof *place.shape.dim);
    if (place.t) {
        match.found = place.name;
        take_shape(&match, place.t);
        match.fit = !fits(&place)                           ? NN_WEIGHT_SHAPE
                    : fits_both_ways(to) && !naming->stated ? NN_WEIGHT_BOTH_WAYS
                                                            : NN_WEIGHT_FITS;
    }
    report(&match, context);
    mark_used(naming->s, to->name, &place, used);
}

static tensor_status match_all(const struct fl_targets *all, const struct fl_naming *naming, bool *used,
                               nn_weight_match_fn report, void *context) {
    const struct fl_safetensors *const s = naming->s;
    for (int i = 0; i < all->count; i++)
        match_one(all, naming, &all->list[i], used, report, context);
    for (int i = 0; i < s->count; i++) {
        bool beside = used[i] || (naming->torch_names && ends_in(s->tensors[i].name, ".num_batches_tracked"));
        if (is_ours(s) && !beside)
            TRY(is_beside(s, s->tensors[i].name, &beside));
        nn_weight_match match = {.fit = NN_WEIGHT_SUPERFLUOUS, .found = s->tensors[i].name};
        take_shape(&match, &s->tensors[i]);
        if (!beside)
            report(&match, context);
    }
    return TENSOR_OK;
}

tensor_status fl_weights_match(const struct fl_targets *all, const struct fl_naming *naming, nn_weight_match_fn report,
                               void *context) {
    bool *used = fl_alloc_zero((size_t)naming->s->count + 1);
    if (!used)
        return fl_fail(TENSOR_E_MEMORY, "weights: no memory for %d tensors of %s", naming->s->count, naming->s->path);
    const tensor_status status = match_all(all, naming, used, report, context);
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
        struct fl_naming naming;
        status = fl_naming_of(&naming, &all, &s, NULL);
        if (!status)
            status = fl_weights_match(&all, &naming, report, context);
        fl_targets_clear(&all);
    }
    fl_safetensors_close(&s);
    return status;
}
