/* nn_weights.c - weights from elsewhere: by name, from a program's own numbers or a safetensors file of any variant,
 * into a network of any. Each number is rounded once to what updates work on, and copies in other formats follow from
 * that, as initial weights do. */
#include "nn/checkpoints/nn_checkpoint.h"
#include "nn/checkpoints/nn_weights.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/values/tensor_state.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static tensor_status check_network(const nn_graph *g) {
    if (!g)
        return fl_fail(TENSOR_E_ARGUMENT, "weights: the network is NULL");
    return g->compiled ? TENSOR_OK : fl_fail(TENSOR_E_ARGUMENT, "weights: the network is not compiled (nn_compile)");
}

static tensor_status check_range(tensor_status how, const char *where, const struct fl_target *t, const double *values,
                                 int64_t count) {
    for (int64_t i = 0; i < count; i++)
        if (!isfinite(values[i]) || (t->variance && values[i] < 0))
            return fl_fail(how, "weights: %s%selement %lld of '%.150s' is %g, expected a finite number%s", where,
                           *where ? ": " : "", (long long)i, t->name, values[i],
                           t->variance ? " from 0: it is a variance" : "");
    return TENSOR_OK;
}

/* Converts as a first write would: exponents by the largest element, empty histories. */
static tensor_status convert(tensor *y, const tensor *x) {
    return y ? tensor_convert(y, x) : TENSOR_OK;
}

static tensor_status put(const struct fl_target *t, const double *values) {
    const int64_t count = fl_shape_count(t->shape);
    const struct fl_parameter *p = t->parameter;
    if (!p)
        return tensor_load_f64(t->kept, values, count);
    TRY(tensor_load_f64(fl_updated(p), values, count));
    TRY(p->master ? convert(p->w, p->master) : TENSOR_OK);
    TRY(convert(p->w_forward, p->w));
    return p->w_backward == p->w_forward ? TENSOR_OK : convert(p->w_backward, p->w);
}

/* --- by name ------------------------------------------------------------------------------------------------------ */

static tensor_status set_one(const struct fl_targets *all, const char *name, const double *values, int64_t count) {
    const struct fl_target *t = NULL;
    for (int i = 0; i < all->count && !t; i++)
        t = !strcmp(all->list[i].name, name) ? &all->list[i] : NULL;
    if (!t)
        return fl_fail(TENSOR_E_ARGUMENT, "weights: the network has no weight '%.150s'; the first is '%.150s'", name,
                       all->count ? all->list[0].name : "none");
    if (count != fl_shape_count(t->shape))
        return fl_fail(TENSOR_E_SHAPE, "weights: %lld values, '%.150s' has %lld", (long long)count, name,
                       (long long)fl_shape_count(t->shape));
    TRY(check_range(TENSOR_E_ARGUMENT, "", t, values, count));
    return put(t, values);
}

tensor_status nn_weight_set(nn_graph *g, const char *name, const double *values, int64_t count) {
    struct fl_targets all;
    TRY(check_network(g));
    if (!name || !values)
        return fl_fail(TENSOR_E_ARGUMENT, "weights: %s is NULL", name ? "the list of values" : "the name");
    TRY(fl_targets_list(&all, g));
    const tensor_status status = set_one(&all, name, values, count);
    fl_targets_clear(&all);
    return status;
}

/* --- a file ------------------------------------------------------------------------------------------------------- */

/* The number of mismatches, and the first one. */
struct misfits {
    int missing, shapes, superfluous;
    char first[320];
};

static void count_misfit(const nn_weight_match *match, void *context) {
    struct misfits *m = context;
    char found[FL_SHAPE_TEXT], expected[FL_SHAPE_TEXT];
    const nn_weight_info *w = &match->weight;
    m->missing += match->fit == NN_WEIGHT_MISSING;
    m->shapes += match->fit == NN_WEIGHT_SHAPE;
    m->superfluous += match->fit == NN_WEIGHT_SUPERFLUOUS;
    if (*m->first)
        return;
    if (match->fit == NN_WEIGHT_MISSING)
        snprintf(m->first, sizeof m->first, "no tensor '%.150s', expected one of shape %s (%s)", w->name,
                 fl_checkpoint_shape_text(expected, w->ndim, w->dim), w->layout);
    else if (match->fit == NN_WEIGHT_SHAPE)
        snprintf(m->first, sizeof m->first, "tensor '%.100s' has the shape %s, that of the network %s (%s)",
                 match->found, fl_checkpoint_shape_text(found, match->found_ndim, match->found_dim),
                 fl_checkpoint_shape_text(expected, w->ndim, w->dim), w->layout);
}

/* Names and shapes of all, before anything is read. */
static tensor_status check_names(const struct fl_safetensors *s, const struct fl_targets *all) {
    struct misfits m = {0};
    TRY(fl_weights_match(all, s, count_misfit, &m));
    if (!*m.first)
        return TENSOR_OK;
    return fl_fail(TENSOR_E_DATA,
                   "weights: %.120s: %s; of the network's %d tensors %d %s missing and %d %s another shape, %d of the "
                   "file's %s superfluous (nn_weights_match lists them)",
                   s->path, m.first, all->count, m.missing, m.missing == 1 ? "is" : "are", m.shapes,
                   m.shapes == 1 ? "has" : "have", m.superfluous, m.superfluous == 1 ? "is" : "are");
}

static tensor_status read_values(const struct fl_safetensors *s, struct fl_target *to) {
    char *name;
    const int64_t count = fl_shape_count(to->shape);
    tensor_status status = TENSOR_OK;
    fl_weight_find(s, to->name, &name);
    if (!name)
        status = fl_fail(TENSOR_E_MEMORY, "weights: no memory for a name");
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
static tensor_status load(const struct fl_safetensors *s, struct fl_targets *all) {
    TRY(fl_safetensors_verify(s));
    TRY(check_names(s, all));
    for (int i = 0; i < all->count; i++)
        TRY(read_values(s, &all->list[i]));
    for (int i = 0; i < all->count; i++)
        TRY(put(&all->list[i], all->list[i].values));
    return TENSOR_OK;
}

tensor_status nn_weights_load(nn_graph *g, const char *path) {
    struct fl_targets all;
    struct fl_safetensors s;
    TRY(check_network(g));
    if (!path)
        return fl_fail(TENSOR_E_ARGUMENT, "weights: the path is NULL");
    TRY(fl_safetensors_open(&s, path));
    tensor_status status = fl_targets_list(&all, g);
    if (!status) {
        status = load(&s, &all);
        fl_targets_clear(&all);
    }
    fl_safetensors_close(&s);
    return status;
}
