/* extents.c - parts of a tensor, and a tensor with zeros around it or repeated. */
#include "program/arrays/extents.h"
#include "program/lower/lower.h"
#include "core/base/fail.h"
#include "flexlab/blocks_copies.h"
#include <string.h>

enum { OPERANDS = 5 /* of Slice, at most */ };

/* A node as arrays, for the functions that read its operands. Numbers that only a run computes are absent. */
static void describe(const struct fl_planner *p, const struct fl_net_node *node, const struct fl_array **in,
                     struct fl_arrays *a) {
    *a = (struct fl_arrays){.node = node, .in_count = node->input_count, .in = in};
    for (int i = 0; i < node->input_count; i++) {
        const struct fl_known *const k = fl_plan_in(p, node, i);
        in[i] = k ? &k->array : NULL;
    }
}

/* Whether the first operand is floats of a tensor, and the numbers of the others are known. */
static bool suits(const struct fl_planner *p, const struct fl_net_node *node) {
    const struct fl_known *const x = fl_plan_in(p, node, 0);
    bool all = node->input_count <= OPERANDS && x->slot >= 0 && fl_plan_is_float(p, node, 0);
    for (int i = 1; i < node->input_count && all; i++)
        all = node->inputs[i] == -1 || fl_plan_numbers(p, node, i);
    return all;
}

static tensor_status run_contiguous(tensor *const *t, const void *with) {
    (void)with;
    return tensor_contiguous(t[0], t[1]);
}

/* Result i: the elements of a tensor from `offset` on, at strides. */
static tensor_status copy_strided(struct fl_planner *p, const struct fl_net_node *node, int result, const int *layout,
                                  int from, const int64_t *stride, int64_t offset) {
    int64_t dim[TENSOR_MAX_DIMS];
    SLOT(y, fl_plan_result(p, node, result, layout));
    const int ndim = fl_plan_shape(p, y, dim);
    SLOT(part, fl_plan_strided(p, from, ndim, dim, stride, offset));
    const int slots[] = {y, part};
    return fl_plan_step(p, node, run_contiguous, 1, 2, slots, NULL, 0);
}

/* Elements from one index of each dimension of a slot to the next. */
static int strides_of(const struct fl_planner *p, int slot, int64_t *stride) {
    int64_t dim[TENSOR_MAX_DIMS], step = 1;
    const int ndim = fl_plan_shape(p, slot, dim);
    for (int d = ndim - 1; d >= 0; d--) {
        stride[d] = step;
        step *= dim[d];
    }
    return ndim;
}

tensor_status fl_lower_slice(struct fl_planner *p, const struct fl_net_node *node, bool *done) {
    const struct fl_array *in[OPERANDS];
    struct fl_arrays a;
    struct fl_slices s;
    int64_t stride[TENSOR_MAX_DIMS], offset = 0;
    if (!suits(p, node))
        return TENSOR_OK;
    describe(p, node, in, &a);
    TRY(fl_slice_read(&s, &a));
    for (int d = 0; d < in[0]->ndim; d++)
        if (s.step[d] < 0)
            return TENSOR_OK;
    const int *const layout = fl_plan_in(p, node, 0)->layout;
    SLOT(x, fl_plan_operand(p, node, 0, layout));
    const int ndim = strides_of(p, x, stride);
    for (int d = 0; d < ndim && in[0]->ndim; d++) {
        offset += s.start[layout[d]] * stride[d];
        stride[d] *= s.count[layout[d]] == 1 ? 1 : s.step[layout[d]]; /* a step past the end counts nowhere */
    }
    *done = true;
    return copy_strided(p, node, 0, layout, x, stride, offset);
}

tensor_status fl_lower_split(struct fl_planner *p, const struct fl_net_node *node, bool *done) {
    int64_t stride[TENSOR_MAX_DIMS], at = 0;
    int axis;
    if (!suits(p, node))
        return TENSOR_OK;
    for (int i = 0; i < node->output_count; i++) /* one that nobody reads has no size here */
        if (node->outputs[i] == -1)
            return TENSOR_OK;
    const int *const layout = fl_plan_in(p, node, 0)->layout;
    TRY(fl_axis(&axis, fl_net_int(node, "axis", 0), fl_plan_in(p, node, 0)->array.ndim));
    SLOT(x, fl_plan_operand(p, node, 0, layout));
    const int ndim = strides_of(p, x, stride);
    int of = 0;
    for (int d = 0; d < ndim; d++)
        of = layout[d] == axis ? d : of;
    for (int i = 0; i < node->output_count; i++) {
        TRY(copy_strided(p, node, i, layout, x, stride, at * stride[of]));
        at += fl_plan_out(p, node, i)->dim[axis];
    }
    *done = true;
    return TENSOR_OK;
}

/* Each element of the operand stands in a tensor once, and is read as often as it is repeated. */
tensor_status fl_lower_expand(struct fl_planner *p, const struct fl_net_node *node, bool *done) {
    const struct fl_array *const y = fl_plan_out(p, node, 0);
    int64_t own[TENSOR_MAX_DIMS], stride[TENSOR_MAX_DIMS] = {0};
    if (!suits(p, node) || y->ndim > TENSOR_MAX_DIMS || !y->ndim)
        return TENSOR_OK;
    const struct fl_array *const x = &fl_plan_in(p, node, 0)->array;
    SLOT(from, fl_plan_operand(p, node, 0, NULL));
    strides_of(p, from, own);
    for (int d = 0; d < x->ndim; d++)
        stride[y->ndim - x->ndim + d] = x->dim[d] == 1 ? 0 : own[d];
    *done = true;
    return copy_strided(p, node, 0, NULL, from, stride, 0);
}

struct zeros {
    int dim;
    int64_t first;
};

/* The gradient of a slice is what is sliced with zeros around it. */
static tensor_status run_zeros(tensor *const *t, const void *with) {
    const struct zeros *const z = with;
    return tensor_slice_grad(t[0], t[1], z->dim, z->first);
}

/* Zeros along one dimension after the other. */
tensor_status fl_lower_pad(struct fl_planner *p, const struct fl_net_node *node, bool *done) {
    const struct fl_array *in[OPERANDS];
    struct fl_arrays a;
    struct fl_pads pads;
    int64_t dim[TENSOR_MAX_DIMS];
    int left = 0;
    if (!suits(p, node) || strcmp(fl_net_string(node, "mode", "constant"), "constant"))
        return TENSOR_OK;
    describe(p, node, in, &a);
    TRY(fl_pads_read(&pads, &a));
    if (node->input_count > 2 && in[2] && fl_array_number(in[2], 0) != 0)
        return TENSOR_OK;
    for (int d = 0; d < in[0]->ndim; d++) {
        left += pads.begin[d] || pads.end[d];
        if (pads.begin[d] < 0 || pads.end[d] < 0)
            return TENSOR_OK;
    }
    const int *const layout = fl_plan_in(p, node, 0)->layout;
    SLOT(x, fl_plan_operand(p, node, 0, layout));
    *done = true;
    if (!left)
        return fl_plan_result_is(p, node, 0, x, layout);
    const int ndim = fl_plan_shape(p, x, dim);
    int inner = x;
    for (int d = ndim - 1; d >= 0; d--) {
        const struct zeros with = {d, pads.begin[layout[d]]};
        if (!pads.begin[layout[d]] && !pads.end[layout[d]])
            continue;
        dim[d] += pads.begin[layout[d]] + pads.end[layout[d]];
        SLOT(y, --left ? fl_plan_temporary(p, node, ndim, dim) : fl_plan_result(p, node, 0, layout));
        const int slots[] = {y, inner};
        TRY(fl_plan_step(p, node, run_zeros, 1, 2, slots, &with, sizeof with));
        inner = y;
    }
    return TENSOR_OK;
}
