/* orders.c - the same elements in other shapes and orders: mostly names, sometimes a copy. */
#include "program/lower/lower.h"
#include "core/base/fail.h"
#include <string.h>

/* Reshape, Flatten, Squeeze, Unsqueeze, Identity: the elements in row-major order, in another shape. */
tensor_status fl_lower_reshape(struct fl_planner *p, const struct fl_net_node *node, bool *done) {
    const struct fl_known *const k = fl_plan_in(p, node, 0);
    const struct fl_array *const out = fl_plan_out(p, node, 0);
    if (!fl_plan_is_float(p, node, 0) || out->ndim > TENSOR_MAX_DIMS)
        return TENSOR_OK;
    *done = true;
    if (k->array.ndim == out->ndim && !memcmp(k->array.dim, out->dim, (size_t)out->ndim * sizeof *out->dim) &&
        k->slot >= 0)
        return fl_plan_result_is(p, node, 0, k->slot, k->layout);
    SLOT(x, fl_plan_operand(p, node, 0, NULL));
    return fl_plan_result_is(p, node, 0, x, NULL);
}

/* A transposition names the dimensions anew: nothing is copied. */
tensor_status fl_lower_transpose(struct fl_planner *p, const struct fl_net_node *node, bool *done) {
    const struct fl_known *const k = fl_plan_in(p, node, 0);
    const struct fl_net_attribute *const perm = fl_net_find(node, "perm");
    int layout[TENSOR_MAX_DIMS] = {0};
    if (k->slot < 0 || k->array.ndim > TENSOR_MAX_DIMS)
        return TENSOR_OK;
    for (int d = 0; d < k->array.ndim; d++) /* dimension d of the result is dimension perm[d] of the operand */
        for (int s = 0; s < k->array.ndim; s++)
            if (k->layout[s] == (perm ? (int)perm->ints[d] : k->array.ndim - 1 - d))
                layout[s] = d;
    *done = true;
    return fl_plan_result_is(p, node, 0, k->slot, layout);
}

struct joined {
    int dim;
};

static tensor_status run_concat(tensor *const *t, const void *with) {
    return tensor_concat(t[0], t[1], t[2], t[3], ((const struct joined *)with)->dim);
}

/* Joins operands in the layout of the first tensor among them, three at a time; each result but the last is a tensor of
 * the node. */
tensor_status fl_lower_concat(struct fl_planner *p, const struct fl_net_node *node, bool *done) {
    const struct fl_array *const out = fl_plan_out(p, node, 0);
    const int *layout = NULL;
    struct joined with;
    int axis;
    if (node->input_count < 2 || (node->input_count - 2) / 2 > FL_NODE_TEMPORARIES || out->ndim > TENSOR_MAX_DIMS)
        return TENSOR_OK;
    for (int i = 0; i < node->input_count; i++) {
        const struct fl_known *const k = fl_plan_in(p, node, i);
        if (!k || !fl_plan_is_float(p, node, i) || !k->array.count)
            return TENSOR_OK;
        if (!layout && k->slot >= 0)
            layout = k->layout;
    }
    TRY(fl_axis(&axis, fl_net_int(node, "axis", 0), out->ndim));
    with.dim = axis;
    for (int d = 0; layout && d < out->ndim; d++)
        if (layout[d] == axis)
            with.dim = d;
    SLOT(first, fl_plan_operand(p, node, 0, layout));
    int joined = first;
    *done = true;
    for (int i = 1; i < node->input_count; i += 2) {
        const bool pair = i + 1 == node->input_count, last = i + 2 >= node->input_count;
        SLOT(second, fl_plan_operand(p, node, i, layout));
        int third = -1;
        if (!pair) {
            third = fl_plan_operand(p, node, i + 1, layout);
            if (third < 0)
                return tensor_error_status();
        }
        int64_t dim[TENSOR_MAX_DIMS], more[TENSOR_MAX_DIMS];
        const int ndim = fl_plan_shape(p, joined, dim);
        fl_plan_shape(p, second, more);
        dim[with.dim] += more[with.dim];
        if (!pair) {
            fl_plan_shape(p, third, more);
            dim[with.dim] += more[with.dim];
        }
        SLOT(y, last ? fl_plan_result(p, node, 0, layout) : fl_plan_temporary(p, node, ndim, dim));
        const int slots[] = {y, joined, second, third};
        TRY(fl_plan_step(p, node, run_concat, 1, 4, slots, &with, sizeof with));
        joined = y;
    }
    return TENSOR_OK;
}
