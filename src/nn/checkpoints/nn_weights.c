/* nn_weights.c - weights from elsewhere: by name, from a program's own numbers or a safetensors file of any variant,
 * into a network of any. Each number is rounded once to the tensor that updates work on, from which copies in other
 * formats follow, as for initial weights. */
#include "nn/checkpoints/nn_checkpoint.h"
#include "nn/checkpoints/nn_torch.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/values/tensor_state.h"
#include <math.h>
#include <stdarg.h>
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

/* The mismatches, and how many. */
struct misfits {
    int missing, shapes, superfluous, both_ways;
    bool all; /* they are listed, and superfluous tensors are mismatches; else the first is shown */
    size_t used;
    char text[12000];
};

static void tell(struct misfits *m, const char *format, ...) {
    va_list arguments;
    if (m->used && !m->all)
        return;
    va_start(arguments, format);
    const size_t room = sizeof m->text - m->used;
    if (m->used)
        m->used += (size_t)snprintf(m->text + m->used, room, "; ");
    if (m->used < sizeof m->text)
        m->used += (size_t)vsnprintf(m->text + m->used, sizeof m->text - m->used, format, arguments);
    if (m->used >= sizeof m->text)
        m->used = sizeof m->text - 1;
    va_end(arguments);
}

static void count_misfit(const nn_weight_match *match, void *context) {
    struct misfits *m = context;
    char found[FL_SHAPE_TEXT], expected[FL_SHAPE_TEXT];
    const nn_weight_info *w = &match->weight;
    m->missing += match->fit == NN_WEIGHT_MISSING;
    m->shapes += match->fit == NN_WEIGHT_SHAPE;
    m->superfluous += match->fit == NN_WEIGHT_SUPERFLUOUS;
    m->both_ways += match->fit == NN_WEIGHT_BOTH_WAYS;
    if (match->fit == NN_WEIGHT_MISSING)
        tell(m, "no tensor '%.150s', expected one of shape %s (%s)", w->name,
             fl_checkpoint_shape_text(expected, w->ndim, w->dim), w->layout);
    else if (match->fit == NN_WEIGHT_SHAPE)
        tell(m, "tensor '%.100s' has the shape %s, that of the network %s (%s)", match->found,
             fl_checkpoint_shape_text(found, match->found_ndim, match->found_dim),
             fl_checkpoint_shape_text(expected, w->ndim, w->dim), w->layout);
    else if (match->fit == NN_WEIGHT_SUPERFLUOUS && m->all)
        tell(m, "superfluous '%.150s' %s", match->found,
             fl_checkpoint_shape_text(found, match->found_ndim, match->found_dim));
}

static void list_both_ways(const nn_weight_match *match, void *context) {
    char shape[FL_SHAPE_TEXT];
    if (match->fit == NN_WEIGHT_BOTH_WAYS)
        tell(context, "'%.150s' %s", match->found,
             fl_checkpoint_shape_text(shape, match->found_ndim, match->found_dim));
}

/* Checks the names and shapes of all tensors before any is read. */
static tensor_status check_names(const struct fl_naming *naming, const struct fl_targets *all, bool strict) {
    struct misfits *const m = fl_alloc_zero(sizeof *m);
    if (!m)
        return fl_fail(TENSOR_E_MEMORY, "weights: no memory for a message");
    m->all = strict;
    tensor_status status = fl_weights_match(all, naming, count_misfit, m);
    if (!status && (m->missing || m->shapes || (strict && m->superfluous))) {
        status = fl_fail(TENSOR_E_DATA,
                         "weights: %.120s: %s%sof the network's %d tensors %d %s missing and %d %s another shape, %d "
                         "of the file's %s superfluous%s%s",
                         naming->s->path, strict ? "" : m->text, strict ? "" : "; ", all->count, m->missing,
                         m->missing == 1 ? "is" : "are", m->shapes, m->shapes == 1 ? "has" : "have", m->superfluous,
                         m->superfluous == 1 ? "is" : "are", strict ? ": " : " (nn_weights_match lists them)",
                         strict ? m->text : "");
    } else if (!status && strict && m->both_ways) {
        m->used = 0;
        status = fl_weights_match(all, naming, list_both_ways, m);
        if (!status)
            status =
                fl_fail(TENSOR_E_DATA,
                        "weights: %.120s: neither names nor metadata say whether it has the layouts of PyTorch "
                        "([out, in, height, width]) or of this library ([out, height, width, in]), and both fit: "
                        "%s; expected a statement: --weight-layout oihw or ohwi, program_weight_file.layout, or in the "
                        "metadata flexlab.layouts = oihw or 1",
                        naming->s->path, m->text);
    }
    fl_free(m);
    return status;
}

/* Elements of a tensor, of which a place takes all or a third. */
static tensor_status read_stored(const struct fl_safetensors *s, const struct fl_stored_tensor *t, int third,
                                 double *values, int64_t count) {
    if (!third)
        return fl_checkpoint_values(s, t->name, values, count);
    double *const whole = fl_alloc((size_t)(3 * count) * sizeof *whole);
    if (!whole)
        return fl_fail(TENSOR_E_MEMORY, "weights: no memory for %lld values of '%.150s'", (long long)(3 * count),
                       t->name);
    const tensor_status status = fl_checkpoint_values(s, t->name, whole, 3 * count);
    if (!status)
        memcpy(values, whole + (third - 1) * count, (size_t)count * sizeof *values);
    fl_free(whole);
    return status;
}

/* What is added or subtracted has as many elements. */
static tensor_status combine(const struct fl_safetensors *s, const struct fl_stored_tensor *t, double sign,
                             double *values, double *other, int64_t count) {
    if (!t)
        return TENSOR_OK;
    TRY(fl_checkpoint_values(s, t->name, other, count));
    for (int64_t i = 0; i < count; i++)
        values[i] += sign * other[i];
    return TENSOR_OK;
}

static tensor_status read_values(const struct fl_naming *naming, const struct fl_targets *all, struct fl_target *to) {
    struct fl_place place;
    const int64_t count = fl_shape_count(to->shape);
    fl_place_of(&place, naming, all, to);
    double *const read = fl_alloc(((size_t)count + 1) * sizeof *read);
    to->values = read ? fl_alloc(((size_t)count + 1) * sizeof *to->values) : NULL;
    tensor_status status = to->values ? TENSOR_OK
                                      : fl_fail(TENSOR_E_MEMORY, "weights: no memory for %lld values of '%.150s'",
                                                (long long)count, place.name);
    if (!status)
        status = read_stored(naming->s, place.t, place.third, read, count);
    if (!status)
        status = combine(naming->s, place.plus, 1, read, to->values, count);
    if (!status)
        status = combine(naming->s, place.minus, -1, read, to->values, count);
    if (!status && naming->torch_layout)
        fl_torch_order(to->values, read, to);
    else if (!status)
        memcpy(to->values, read, (size_t)count * sizeof *read);
    if (!status)
        status = check_range(TENSOR_E_DATA, naming->s->path, to, to->values, count);
    fl_free(read);
    return status;
}

/* Reads all tensors before it sets the first. */
static tensor_status load(const struct fl_safetensors *s, struct fl_targets *all, const char *layout, bool strict) {
    struct fl_naming naming;
    TRY(fl_safetensors_verify(s));
    TRY(fl_naming_of(&naming, all, s, layout));
    TRY(check_names(&naming, all, strict));
    for (int i = 0; i < all->count; i++)
        TRY(read_values(&naming, all, &all->list[i]));
    for (int i = 0; i < all->count; i++)
        TRY(put(&all->list[i], all->list[i].values));
    return TENSOR_OK;
}

tensor_status fl_weights_check(const nn_graph *g, const char *path, const char *layout) {
    struct fl_targets all;
    struct fl_safetensors s;
    struct fl_naming naming;
    TRY(fl_safetensors_open(&s, path));
    tensor_status status = fl_targets_list(&all, g);
    if (!status) {
        status = fl_naming_of(&naming, &all, &s, layout);
        if (!status)
            status = check_names(&naming, &all, true);
        fl_targets_clear(&all);
    }
    fl_safetensors_close(&s);
    return status;
}

tensor_status fl_weights_load(nn_graph *g, const char *path, const char *layout, bool strict) {
    struct fl_targets all;
    struct fl_safetensors s;
    TRY(check_network(g));
    if (!path)
        return fl_fail(TENSOR_E_ARGUMENT, "weights: the path is NULL");
    TRY(fl_safetensors_open(&s, path));
    tensor_status status = fl_targets_list(&all, g);
    if (!status) {
        status = load(&s, &all, layout, strict);
        fl_targets_clear(&all);
    }
    fl_safetensors_close(&s);
    return status;
}

tensor_status nn_weights_load(nn_graph *g, const char *path) {
    return fl_weights_load(g, path, NULL, false);
}
