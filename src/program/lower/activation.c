/* activation.c - activations that an operator applies to its own result. */
#include "program/lower/lower.h"
#include "core/base/fail.h"

static tensor_status run_activation(tensor *const *t, const void *with) {
    const struct fl_activation_of *const a = with;
    return a->kind == FL_CLIP ? tensor_clamp(t[0], t[1], a->low, a->high) : tensor_relu(t[0], t[1]);
}

int fl_activation_begin(struct fl_planner *p, const struct fl_net_node *node, const struct fl_activation_of *a,
                        const int *layout) {
    const struct fl_array *const out = fl_plan_out(p, node, 0);
    int64_t dim[TENSOR_MAX_DIMS];
    if (a->kind != FL_CLIP && a->kind != FL_RELU_AFTER)
        return fl_plan_result(p, node, 0, layout);
    for (int d = 0; d < out->ndim; d++)
        dim[d] = out->dim[layout ? layout[d] : d];
    return fl_plan_temporary(p, node, out->ndim, dim);
}

tensor_status fl_activation_end(struct fl_planner *p, const struct fl_net_node *node, const struct fl_activation_of *a,
                                int slot, const int *layout) {
    if (a->kind != FL_CLIP && a->kind != FL_RELU_AFTER)
        return TENSOR_OK;
    SLOT(y, fl_plan_result(p, node, 0, layout));
    const int slots[] = {y, slot};
    return fl_plan_step(p, node, run_activation, 1, 2, slots, a, sizeof *a);
}
