/* norms.c - normalisation, softmax. */
#include "program/lower/lower.h"
#include "core/base/fail.h"
#include <string.h>

struct batchnorm {
    double epsilon;
};

static tensor_status run_batchnorm(tensor *const *t, const void *with) {
    return tensor_batchnorm(t[0], t[1], NULL, t[2], t[3], t[4], t[5], ((const struct batchnorm *)with)->epsilon, false);
}

/* The channels last; statistics are constants in float64. */
tensor_status fl_lower_batch_normalization(struct fl_planner *p, const struct fl_net_node *node, bool *done) {
    const struct fl_array *const x = &fl_plan_in(p, node, 0)->array;
    int layout[TENSOR_MAX_DIMS], slots[6];
    if (!fl_plan_is_float(p, node, 0) || x->ndim < 2 || x->ndim > TENSOR_MAX_DIMS)
        return TENSOR_OK;
    if (fl_net_int(node, "training_mode", 0))
        return fl_fail(TENSOR_E_UNSUPPORTED, "training_mode 1");
    const int channel = node->channels_last ? x->ndim - 1 : 1;
    for (int d = 0; d < x->ndim; d++)
        layout[d] = d == x->ndim - 1 ? channel : d < channel ? d : d + 1;
    for (int i = 1; i < 5; i++) {
        const struct fl_array *const a = fl_plan_numbers(p, node, i);
        if (!a)
            return fl_fail(TENSOR_E_UNSUPPORTED, "operand %d is no constant", i);
        if (a->ndim != 1 || a->count != x->dim[channel])
            return fl_fail(TENSOR_E_SHAPE, "operand %d has %lld numbers, expected one for each of %lld channels", i,
                           (long long)a->count, (long long)x->dim[channel]);
        if (i < 3) {
            slots[i + 1] = fl_plan_operand(p, node, i, NULL);
        } else {
            double *const numbers = fl_plan_doubles(p, a);
            slots[i + 1] = numbers ? fl_plan_numbers_constant(p, node, i, FMT_F64, 1, a->dim, numbers) : -1;
        }
        if (slots[i + 1] < 0)
            return tensor_error_status();
    }
    slots[1] = fl_plan_operand(p, node, 0, layout);
    slots[0] = slots[1] < 0 ? -1 : fl_plan_result(p, node, 0, layout);
    if (slots[0] < 0)
        return tensor_error_status();
    const struct batchnorm with = {fl_net_float(node, "epsilon", 1e-5f)};
    *done = true;
    return fl_plan_step(p, node, run_batchnorm, 1, 6, slots, &with, sizeof with);
}

struct softmax {
    float scale;
    bool causal; /* position i of a row sees those up to i */
};

static tensor_status run_softmax(tensor *const *t, const void *with) {
    const struct softmax *const s = with;
    return tensor_softmax(t[0], t[1], s->scale, s->causal);
}

/* Over one dimension, which lies last. */
tensor_status fl_lower_softmax(struct fl_planner *p, const struct fl_net_node *node, bool *done) {
    const struct fl_array *const x = &fl_plan_in(p, node, 0)->array;
    int layout[TENSOR_MAX_DIMS], axis;
    if (!fl_plan_is_float(p, node, 0) || !x->ndim || x->ndim > TENSOR_MAX_DIMS ||
        fl_net_int(node, "flexlab_flatten", 0))
        return TENSOR_OK;
    TRY(fl_axis(&axis, fl_net_int(node, "axis", -1), x->ndim));
    for (int d = 0; d < x->ndim; d++)
        layout[d] = d == x->ndim - 1 ? axis : d < axis ? d : d + 1;
    SLOT(in, fl_plan_operand(p, node, 0, layout));
    SLOT(y, fl_plan_result(p, node, 0, layout));
    const int slots[] = {y, in};
    const struct softmax with = {fl_net_float(node, "flexlab_beta", 1), fl_net_int(node, "flexlab_causal", 0) != 0};
    *done = true;
    return fl_plan_step(p, node, run_softmax, 1, 2, slots, &with, sizeof with);
}

struct layernorm {
    double epsilon;
};

static tensor_status run_layernorm(tensor *const *t, const void *with) {
    return tensor_layernorm(t[0], t[1], t[2], t[3], ((const struct layernorm *)with)->epsilon);
}

/* Over the last dimension, with gamma of its size; others are left to compute(). */
tensor_status fl_lower_layer_normalization(struct fl_planner *p, const struct fl_net_node *node, bool *done) {
    const struct fl_array *const x = &fl_plan_in(p, node, 0)->array, *const gamma = &fl_plan_in(p, node, 1)->array;
    const struct layernorm with = {fl_net_float(node, "epsilon", 1e-5f)};
    int axis, beta = -1;
    if (!fl_plan_is_float(p, node, 0) || !x->ndim || x->ndim > TENSOR_MAX_DIMS || x->dim[x->ndim - 1] < 1 ||
        (node->output_count > 1 && node->outputs[1] != -1) || (node->output_count > 2 && node->outputs[2] != -1))
        return TENSOR_OK;
    TRY(fl_axis(&axis, fl_net_int(node, "axis", -1), x->ndim));
    if (axis != x->ndim - 1 || gamma->ndim != 1 || gamma->count != x->dim[axis])
        return TENSOR_OK;
    SLOT(in, fl_plan_operand(p, node, 0, NULL));
    SLOT(scale, fl_plan_operand(p, node, 1, NULL));
    if (fl_plan_in(p, node, 2)) {
        beta = fl_plan_operand(p, node, 2, NULL);
        if (beta < 0)
            return tensor_error_status();
    }
    SLOT(y, fl_plan_result(p, node, 0, NULL));
    const int slots[] = {y, in, scale, beta};
    *done = true;
    return fl_plan_step(p, node, run_layernorm, 1, 4, slots, &with, sizeof with);
}
