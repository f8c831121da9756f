/* nn_weights.c - weights from elsewhere: by name, from a program's own numbers or a safetensors file of any variant,
 * into a network of any. Each number is rounded once to what updates work on, and copies in other formats follow from
 * that, as initial weights do. */
#include "nn/checkpoints/nn_checkpoint.h"
#include "nn/graph/nn_graph.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/tensor/tensor_state.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- what a network has by name ----------------------------------------------------------------------------------- */

/* A parameter, or numbers that a layer keeps from step to step, such as running means. */
struct target {
    const struct fl_parameter *parameter; /* NULL: of `kept` */
    tensor *kept;
    char *name;
    const struct fl_shape *shape;
    bool variance; /* never below 0 */
    double *values;
};

struct targets {
    struct target *list;
    int count;
};

static void clear(struct targets *all) {
    for (int i = 0; i < all->count; i++) {
        fl_free(all->list[i].name);
        fl_free(all->list[i].values);
    }
    fl_free(all->list);
    *all = (struct targets){0};
}

static tensor_status add(struct targets *all, struct target target) {
    all->list[all->count++] = target;
    return target.name ? TENSOR_OK : fl_fail(TENSOR_E_MEMORY, "weights: no memory for a name");
}

static tensor_status list_node(struct targets *all, const struct fl_node *node) {
    for (int k = 0; k < node->parameters; k++) {
        const struct fl_parameter *p = &node->parameter[k];
        FL_TRY(add(all, (struct target){.parameter = p,
                                        .name = fl_format_name("%s.%s", node->owner, p->suffix),
                                        .shape = &p->shape}));
    }
    for (int k = 0; k < node->states; k++)
        if (node->state[k].lasts)
            FL_TRY(add(all, (struct target){.kept = node->state[k].t,
                                            .name = fl_format_name("%s.%s", node->owner, node->state[k].suffix),
                                            .shape = &node->state[k].shape,
                                            .variance = node->state[k].variance}));
    return TENSOR_OK;
}

/* Cleared on failure. */
static tensor_status list_targets(struct targets *all, const nn_graph *g) {
    size_t most = 1;
    for (int i = 0; i < g->count; i++)
        most += (size_t)(g->nodes[i].parameters + g->nodes[i].states);
    *all = (struct targets){.list = fl_alloc_zero(most * sizeof *all->list)};
    tensor_status status = all->list ? TENSOR_OK : fl_fail(TENSOR_E_MEMORY, "weights: no memory for their names");
    for (int i = 0; i < g->count && !status; i++)
        status = list_node(all, &g->nodes[i]);
    if (status)
        clear(all);
    return status;
}

static tensor_status check_network(const nn_graph *g) {
    if (!g)
        return fl_fail(TENSOR_E_ARGUMENT, "weights: the network is NULL");
    return g->compiled ? TENSOR_OK : fl_fail(TENSOR_E_ARGUMENT, "weights: the network is not compiled (nn_compile)");
}

static tensor_status check_range(tensor_status how, const char *where, const struct target *t, const double *values,
                                 int64_t count) {
    for (int64_t i = 0; i < count; i++)
        if (!isfinite(values[i]) || (t->variance && values[i] < 0))
            return fl_fail(how, "weights: %s%selement %lld of '%.150s' is %g, expected a finite number%s", where,
                           *where ? ": " : "", (long long)i, t->name, values[i],
                           t->variance ? " from 0: it is a variance" : "");
    return TENSOR_OK;
}

/* As they would be written first: exponents by the largest element, histories anew. */
static tensor_status convert(tensor *y, const tensor *x) {
    return y ? tensor_convert(y, x) : TENSOR_OK;
}

static tensor_status put(const struct target *t, const double *values) {
    const int64_t count = fl_shape_count(t->shape);
    const struct fl_parameter *p = t->parameter;
    if (!p)
        return tensor_load_f64(t->kept, values, count);
    FL_TRY(tensor_load_f64(fl_updated(p), values, count));
    FL_TRY(p->master ? convert(p->w, p->master) : TENSOR_OK);
    FL_TRY(convert(p->w_forward, p->w));
    return p->w_backward == p->w_forward ? TENSOR_OK : convert(p->w_backward, p->w);
}

/* --- by name ------------------------------------------------------------------------------------------------------ */

static tensor_status set_one(const struct targets *all, const char *name, const double *values, int64_t count) {
    const struct target *t = NULL;
    for (int i = 0; i < all->count && !t; i++)
        t = !strcmp(all->list[i].name, name) ? &all->list[i] : NULL;
    if (!t)
        return fl_fail(TENSOR_E_ARGUMENT, "weights: the network has no weight '%.150s'; the first is '%.150s'", name,
                       all->count ? all->list[0].name : "none");
    if (count != fl_shape_count(t->shape))
        return fl_fail(TENSOR_E_SHAPE, "weights: %lld values, '%.150s' has %lld", (long long)count, name,
                       (long long)fl_shape_count(t->shape));
    FL_TRY(check_range(TENSOR_E_ARGUMENT, "", t, values, count));
    return put(t, values);
}

tensor_status nn_weight_set(nn_graph *g, const char *name, const double *values, int64_t count) {
    struct targets all;
    FL_TRY(check_network(g));
    if (!name || !values)
        return fl_fail(TENSOR_E_ARGUMENT, "weights: %s is NULL", name ? "the list of values" : "the name");
    FL_TRY(list_targets(&all, g));
    const tensor_status status = set_one(&all, name, values, count);
    clear(&all);
    return status;
}

/* --- a file ------------------------------------------------------------------------------------------------------- */

/* The most exact that the file has: of our own checkpoints what the updates work on. */
static const struct fl_stored_tensor *find(const struct fl_safetensors *s, const char *name, char **found) {
    static const char *const suffixes[] = {".master", ".wide", ""};
    const struct fl_stored_tensor *t = NULL;
    *found = NULL;
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes && !t; i++) {
        fl_free(*found);
        *found = fl_format_name("%s%s", name, suffixes[i]);
        t = *found ? fl_safetensors_find(s, *found) : NULL;
    }
    return t;
}

static tensor_status read_values(const struct fl_safetensors *s, struct target *to) {
    char *name, found[FL_SHAPE_TEXT], expected[FL_SHAPE_TEXT];
    const struct fl_stored_tensor *t = find(s, to->name, &name);
    const struct fl_shape *shape = to->shape;
    const int64_t count = fl_shape_count(shape);
    tensor_status status = TENSOR_OK;
    if (!name)
        status = fl_fail(TENSOR_E_MEMORY, "weights: no memory for a name");
    else if (!t)
        status = fl_fail(TENSOR_E_DATA, "weights: %s has no tensor '%.150s', expected one of shape %s", s->path,
                         to->name, fl_checkpoint_shape_text(expected, shape->ndim, shape->dim));
    else if (t->ndim != shape->ndim || memcmp(t->dim, shape->dim, (size_t)t->ndim * sizeof *t->dim) != 0)
        status = fl_fail(TENSOR_E_DATA, "weights: %s: tensor '%.150s' has the shape %s, that of the network %s",
                         s->path, name, fl_checkpoint_shape_text(found, t->ndim, t->dim),
                         fl_checkpoint_shape_text(expected, shape->ndim, shape->dim));
    else if (!(to->values = fl_alloc(((size_t)count + 1) * sizeof *to->values)))
        status = fl_fail(TENSOR_E_MEMORY, "weights: no memory for %lld values of '%.150s'", (long long)count, name);
    if (!status)
        status = fl_checkpoint_values(s, name, to->values, count);
    if (!status)
        status = check_range(TENSOR_E_DATA, s->path, to, to->values, count);
    fl_free(name);
    return status;
}

/* All of them are read before the first is put. */
static tensor_status load(const struct fl_safetensors *s, struct targets *all) {
    FL_TRY(fl_safetensors_verify(s));
    for (int i = 0; i < all->count; i++)
        FL_TRY(read_values(s, &all->list[i]));
    for (int i = 0; i < all->count; i++)
        FL_TRY(put(&all->list[i], all->list[i].values));
    return TENSOR_OK;
}

tensor_status nn_weights_load(nn_graph *g, const char *path) {
    struct targets all;
    struct fl_safetensors s;
    FL_TRY(check_network(g));
    if (!path)
        return fl_fail(TENSOR_E_ARGUMENT, "weights: the path is NULL");
    FL_TRY(fl_safetensors_open(&s, path));
    tensor_status status = list_targets(&all, g);
    if (!status) {
        status = load(&s, &all);
        clear(&all);
    }
    fl_safetensors_close(&s);
    return status;
}
