/* reductions.c - sums, means, extremes and norms over dimensions. */
#include "program/lower/lower.h"
#include "core/base/fail.h"
#include <string.h>

typedef tensor_status reduction(tensor *y, const tensor *x, unsigned axes);
static const struct {
    const char *op;
    reduction *function;
} reductions[] = {{"ReduceL1", tensor_reduce_l1},   {"ReduceL2", tensor_reduce_l2},
                  {"ReduceMax", tensor_reduce_max}, {"ReduceMean", tensor_reduce_mean},
                  {"ReduceMin", tensor_reduce_min}, {"ReduceSum", tensor_reduce_sum}};

struct reduce {
    reduction *function;
    unsigned axes; /* of the tensor */
};

static tensor_status run_reduce(tensor *const *t, const void *with) {
    const struct reduce *const r = with;
    return r->function(t[0], t[1], r->axes);
}

/* The dimensions that a node names: bit d for dimension d of its operand. Without any it takes all, or none. */
static tensor_status read_axes(const struct fl_planner *p, const struct fl_net_node *node, int ndim, unsigned *axes) {
    const struct fl_array *const given = fl_plan_numbers(p, node, 1);
    *axes = 0;
    for (int64_t i = 0; given && i < given->count; i++) {
        int axis;
        TRY(fl_axis(&axis, fl_array_integer(given, i), ndim));
        *axes |= 1u << axis;
    }
    if (!*axes && !fl_net_int(node, "noop_with_empty_axes", 0))
        *axes = (1u << ndim) - 1;
    return TENSOR_OK;
}

/* The result has the operand's layout, without the dimensions that it loses. */
tensor_status fl_lower_reduce(struct fl_planner *p, const struct fl_net_node *node, bool *done) {
    const struct fl_known *const k = fl_plan_in(p, node, 0);
    const struct fl_array *const out = fl_plan_out(p, node, 0);
    int layout[TENSOR_MAX_DIMS] = {0}, rest = 0;
    struct reduce how = {.function = NULL};
    unsigned axes;
    for (size_t i = 0; i < sizeof reductions / sizeof reductions[0]; i++)
        if (!strcmp(reductions[i].op, node->op))
            how.function = reductions[i].function;
    if (!how.function || k->slot < 0 || !k->array.ndim || (fl_plan_in(p, node, 1) && !fl_plan_numbers(p, node, 1)))
        return TENSOR_OK;
    TRY(read_axes(p, node, k->array.ndim, &axes));
    if (!axes)
        return TENSOR_OK;
    const bool keep = out->ndim == k->array.ndim;
    for (int s = 0; s < k->array.ndim; s++) {
        const int of = k->layout[s];
        if (axes >> of & 1)
            how.axes |= 1u << s;
        int before = 0; /* dimensions of the operand before this one that the result lacks */
        for (int d = 0; d < of && !keep; d++)
            before += axes >> d & 1;
        if (keep || !(axes >> of & 1))
            layout[rest++] = of - before;
    }
    SLOT(x, fl_plan_operand(p, node, 0, k->layout));
    SLOT(y, fl_plan_result(p, node, 0, layout));
    const int slots[] = {y, x};
    *done = true;
    return fl_plan_step(p, node, run_reduce, 1, 2, slots, &how, sizeof how);
}
