/* int8_orders.c - the same quantised elements in other shapes and orders, and joined. */
#include "program/lower/quantised.h"
#include "core/base/fail.h"
#include <string.h>

static bool same_type(const struct fl_int8_types *t) {
    return t->x.scale == t->y.scale && t->x.zero == t->y.zero && t->x.is_unsigned == t->y.is_unsigned;
}

struct rescaling {
    enum fl_int8_rounding rounding;
    int64_t count;
    struct fl_int8_types types;
};

static tensor_status run_rescaling(tensor *const *t, const void *with) {
    const struct rescaling *const r = with;
    return fl_int8_requantise(r->rounding, r->count, &r->types.x, fl_plan_data(t[1]), &r->types.y,
                              (struct fl_int8_range){0, 0}, fl_plan_data(t[0]));
}

/* The result is the elements of a slot in a layout: without a copy, unless its scale is another one. */
static tensor_status result_is(struct fl_planner *p, const struct fl_net_node *node, int slot, const int *layout) {
    struct rescaling with = {.rounding = fl_plan_network(p)->rounding, .count = fl_plan_out(p, node, 0)->count};
    TRY(fl_int8_types_of(p, node, &with.types));
    if (same_type(&with.types))
        return fl_plan_result_is(p, node, 0, slot, layout);
    SLOT(y, fl_plan_result(p, node, 0, layout));
    const int slots[] = {y, slot};
    return fl_plan_step(p, node, run_rescaling, 1, 2, slots, &with, sizeof with);
}

tensor_status fl_lower_int8_reshape(struct fl_planner *p, const struct fl_net_node *node, bool *done) {
    const struct fl_known *const k = fl_plan_in(p, node, 0);
    const struct fl_array *const out = fl_plan_out(p, node, 0);
    const bool same = k->slot >= 0 && k->array.ndim == out->ndim &&
                      !memcmp(k->array.dim, out->dim, (size_t)out->ndim * sizeof *out->dim);
    const int *const layout = same ? k->layout : NULL;
    SLOT(x, fl_plan_operand(p, node, 0, layout));
    *done = true;
    return result_is(p, node, x, layout);
}

/* A transposition names the dimensions anew. */
tensor_status fl_lower_int8_transpose(struct fl_planner *p, const struct fl_net_node *node, bool *done) {
    const struct fl_net_attribute *const perm = fl_net_find(node, "perm");
    const int *const own = fl_own_layout(p, node, 0);
    const int ndim = fl_plan_out(p, node, 0)->ndim;
    int layout[TENSOR_MAX_DIMS] = {0};
    SLOT(x, fl_plan_operand(p, node, 0, own));
    for (int d = 0; d < ndim; d++) /* dimension d of the result is dimension perm[d] of the operand */
        for (int s = 0; s < ndim; s++)
            if ((own ? own[s] : s) == (perm ? (int)perm->ints[d] : ndim - 1 - d))
                layout[s] = d;
    *done = true;
    return result_is(p, node, x, layout);
}

/* --- Concat ------------------------------------------------------------------------------------------------------- */

enum { AT_ONCE = FL_STEP_SLOTS - 1 };

struct joined {
    enum fl_int8_rounding rounding;
    int count;
    int64_t outer, inner[AT_ONCE];
    struct fl_int8_type x[AT_ONCE], y;
};

static tensor_status run_concat(tensor *const *t, const void *with) {
    const struct joined *const j = with;
    const void *x[AT_ONCE];
    for (int i = 0; i < j->count; i++)
        x[i] = fl_plan_data(t[1 + i]);
    return fl_int8_concatenate(j->rounding, j->outer, j->count, j->inner, j->x, x, &j->y, fl_plan_data(t[0]));
}

/* In the layout of the first tensor among the operands, several at a time: what was joined so far is the first operand
 * of the next step, at the scale of the result. */
tensor_status fl_lower_int8_concat(struct fl_planner *p, const struct fl_net_node *node, bool *done) {
    const struct fl_network *const n = fl_plan_network(p);
    const struct fl_array *const out = fl_plan_out(p, node, 0);
    const int *layout = NULL;
    int axis, where = 0, joined = -1;
    int64_t dim[TENSOR_MAX_DIMS], so_far = 0, behind = 1;
    for (int i = 0; i < node->input_count && !layout; i++)
        layout = fl_own_layout(p, node, i);
    TRY(fl_axis(&axis, fl_net_int(node, "axis", 0), out->ndim));
    for (int d = 0; d < out->ndim; d++) {
        dim[d] = out->dim[layout ? layout[d] : d];
        if ((layout ? layout[d] : d) == axis)
            where = d;
    }
    for (int d = where + 1; d < out->ndim; d++)
        behind *= dim[d];
    struct joined with = {.rounding = n->rounding, .y = fl_net_int8_type(n, node->outputs[0])};
    with.outer = out->count / (out->dim[axis] * behind);
    *done = true;
    for (int next = 0; next < node->input_count;) {
        int slots[FL_STEP_SLOTS];
        with.count = 0;
        if (joined >= 0) {
            with.x[0] = with.y;
            with.inner[0] = so_far * behind;
            slots[++with.count] = joined;
        }
        for (; with.count < AT_ONCE && next < node->input_count; next++) {
            const int64_t size = fl_plan_in(p, node, next)->array.dim[axis];
            if (!size)
                continue;
            SLOT(x, fl_plan_operand(p, node, next, layout));
            with.x[with.count] = fl_net_int8_type(n, node->inputs[next]);
            with.inner[with.count] = size * behind;
            slots[++with.count] = x;
            so_far += size;
        }
        dim[where] = so_far;
        joined = next == node->input_count ? fl_plan_result(p, node, 0, layout)
                                           : fl_plan_temporary_numbers(p, node, FMT_U8, out->ndim, dim);
        if (joined < 0)
            return tensor_error_status();
        slots[0] = joined;
        TRY(fl_plan_step(p, node, run_concat, 1, 1 + with.count, slots, &with, sizeof with));
    }
    return TENSOR_OK;
}
