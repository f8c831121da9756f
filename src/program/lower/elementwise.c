/* elementwise.c - sums, products and functions of elements. */
#include "program/lower/lower.h"
#include "core/base/fail.h"
#include <float.h>
#include <math.h>
#include <string.h>

/* --- functions of one operand ------------------------------------------------------------------------------------- */

typedef tensor_status map_function(tensor *y, const tensor *x);
static const struct {
    const char *op;
    map_function *function;
} maps[] = {{"Abs", tensor_abs},           {"Acos", tensor_acos},   {"Acosh", tensor_acosh},
            {"Asin", tensor_asin},         {"Asinh", tensor_asinh}, {"Atan", tensor_atan},
            {"Atanh", tensor_atanh},       {"Ceil", tensor_ceil},   {"Cos", tensor_cos},
            {"Cosh", tensor_cosh},         {"Exp", tensor_exp},     {"Floor", tensor_floor},
            {"Log", tensor_log},           {"Neg", tensor_neg},     {"Reciprocal", tensor_reciprocal},
            {"Relu", tensor_relu},         {"Round", tensor_round}, {"Sigmoid", tensor_sigmoid},
            {"Sin", tensor_sin},           {"Sinh", tensor_sinh},   {"Softplus", tensor_softplus},
            {"Softsign", tensor_softsign}, {"Sqrt", tensor_sqrt},   {"Tan", tensor_tan},
            {"Tanh", tensor_tanh}};

struct map {
    map_function *function;
};

static tensor_status run_map(tensor *const *t, const void *with) {
    return ((const struct map *)with)->function(t[0], t[1]);
}

/* The layout in which an operand lies already: maps do not care for the order of dimensions. */
const int *fl_own_layout(const struct fl_planner *p, const struct fl_net_node *node, int operand) {
    const struct fl_known *const k = fl_plan_in(p, node, operand);
    return k->slot >= 0 ? k->layout : NULL;
}

tensor_status fl_lower_map(struct fl_planner *p, const struct fl_net_node *node, bool *done) {
    if (!fl_plan_is_float(p, node, 0))
        return TENSOR_OK;
    for (size_t i = 0; i < sizeof maps / sizeof maps[0]; i++) {
        if (strcmp(maps[i].op, node->op))
            continue;
        const int *const layout = fl_own_layout(p, node, 0);
        const struct map with = {maps[i].function};
        SLOT(x, fl_plan_operand(p, node, 0, layout));
        SLOT(y, fl_plan_result(p, node, 0, layout));
        const int slots[] = {y, x};
        *done = true;
        return fl_plan_step(p, node, run_map, 1, 2, slots, &with, sizeof with);
    }
    return TENSOR_OK;
}

struct scalars {
    float a, b;
};

static tensor_status run_leaky_relu(tensor *const *t, const void *with) {
    return tensor_leaky_relu(t[0], t[1], ((const struct scalars *)with)->a);
}

static tensor_status run_clamp(tensor *const *t, const void *with) {
    const struct scalars *const s = with;
    return tensor_clamp(t[0], t[1], s->a, s->b);
}

static tensor_status plan_scalars(struct fl_planner *p, const struct fl_net_node *node, fl_step_run *run,
                                  struct scalars with) {
    const int *const layout = fl_own_layout(p, node, 0);
    SLOT(x, fl_plan_operand(p, node, 0, layout));
    SLOT(y, fl_plan_result(p, node, 0, layout));
    const int slots[] = {y, x};
    return fl_plan_step(p, node, run, 1, 2, slots, &with, sizeof with);
}

tensor_status fl_lower_leaky_relu(struct fl_planner *p, const struct fl_net_node *node, bool *done) {
    *done = fl_plan_is_float(p, node, 0);
    return *done ? plan_scalars(p, node, run_leaky_relu, (struct scalars){fl_net_float(node, "alpha", 0.01f), 0})
                 : TENSOR_OK;
}

/* A bound of a clip that is not given, or that is infinite, is the largest float. */
static bool bound(const struct fl_planner *p, const struct fl_net_node *node, int operand, float *number) {
    const struct fl_array *const a = fl_plan_numbers(p, node, operand);
    if (a)
        *number = (float)fmax(-FLT_MAX, fmin(FLT_MAX, fl_array_number(a, 0)));
    return a ? a->count == 1 : !fl_plan_in(p, node, operand);
}

tensor_status fl_lower_clip(struct fl_planner *p, const struct fl_net_node *node, bool *done) {
    struct scalars with = {-FLT_MAX, FLT_MAX};
    if (!fl_plan_is_float(p, node, 0) || !bound(p, node, 1, &with.a) || !bound(p, node, 2, &with.b) ||
        !(with.a <= with.b))
        return TENSOR_OK;
    *done = true;
    return plan_scalars(p, node, run_clamp, with);
}

/* --- two operands ------------------------------------------------------------------------------------------------- */

typedef tensor_status binary_function(tensor *y, const tensor *a, const tensor *b);
struct binary {
    binary_function *function;
};

static tensor_status run_binary(tensor *const *t, const void *with) {
    return ((const struct binary *)with)->function(t[0], t[1], t[2]);
}

struct scale {
    float alpha;
};

static tensor_status run_scale(tensor *const *t, const void *with) {
    return tensor_scale(t[0], t[1], ((const struct scale *)with)->alpha);
}

/* The operand from which the result takes its layout: the first of the result's shape whose tensor exists; else the
 * first tensor of as many dimensions. -1: none. */
int fl_leader(const struct fl_planner *p, const struct fl_net_node *node) {
    const struct fl_array *const out = fl_plan_out(p, node, 0);
    for (int whole = 1; whole >= 0; whole--)
        for (int i = 0; i < 2; i++) {
            const struct fl_known *const k = fl_plan_in(p, node, i);
            if (k->slot >= 0 && k->array.ndim == out->ndim && (!whole || k->array.count == out->count))
                return i;
        }
    return -1;
}

int fl_repeated(struct fl_planner *p, const struct fl_net_node *node, int operand, const int *layout, bool *same) {
    const struct fl_known *const k = fl_plan_in(p, node, operand);
    const struct fl_array *const out = fl_plan_out(p, node, 0);
    const int missing = out->ndim - k->array.ndim;
    int64_t dim[TENSOR_MAX_DIMS];
    int own[TENSOR_MAX_DIMS], count = 0;
    for (int d = 0; d < out->ndim; d++) { /* the result's order, without the dimensions that the operand lacks */
        const int of = (layout ? layout[d] : d) - missing;
        dim[d] = of < 0 ? 1 : k->array.dim[of];
        if (of >= 0)
            own[count++] = of;
    }
    *same = k->array.count == out->count;
    const int slot = fl_plan_operand(p, node, operand, own);
    return slot < 0 ? -1 : fl_plan_view(p, slot, out->ndim ? out->ndim : 1, out->ndim ? dim : (const int64_t[]){1});
}

static tensor_status plan_binary(struct fl_planner *p, const struct fl_net_node *node, binary_function *plain,
                                 binary_function *broadcast, bool *done) {
    const struct fl_array *const out = fl_plan_out(p, node, 0);
    struct fl_activation_of activation;
    if (!fl_plan_is_float(p, node, 0) || !fl_plan_is_float(p, node, 1) || out->ndim > TENSOR_MAX_DIMS)
        return TENSOR_OK;
    TRY(fl_activation_read(node, &activation));
    const int from = fl_leader(p, node);
    const int *const layout = from < 0 ? NULL : fl_own_layout(p, node, from);
    bool same_a, same_b;
    SLOT(a, fl_repeated(p, node, 0, layout, &same_a));
    SLOT(b, fl_repeated(p, node, 1, layout, &same_b));
    const bool fused = plain == tensor_add && same_a && same_b && activation.kind == FL_RELU;
    if (activation.kind == FL_RELU && !fused)
        activation.kind = FL_RELU_AFTER;
    SLOT(y, fl_activation_begin(p, node, &activation, layout));
    const struct binary with = {fused ? tensor_add_relu : same_a && same_b ? plain : broadcast};
    const int slots[] = {y, a, b};
    *done = true;
    TRY(fl_plan_step(p, node, run_binary, 1, 3, slots, &with, sizeof with));
    return fl_activation_end(p, node, &activation, y, layout);
}

tensor_status fl_lower_add(struct fl_planner *p, const struct fl_net_node *node, bool *done) {
    return plan_binary(p, node, tensor_add, tensor_broadcast_add, done);
}

/* Whether an operand is one known number that is a float exactly. */
static bool is_number(const struct fl_planner *p, const struct fl_net_node *node, int operand, float *number) {
    const struct fl_array *const a = fl_plan_numbers(p, node, operand);
    if (!a || a->count != 1)
        return false;
    *number = (float)fl_array_number(a, 0);
    return isfinite(*number) && (double)*number == fl_array_number(a, 0);
}

tensor_status fl_lower_mul(struct fl_planner *p, const struct fl_net_node *node, bool *done) {
    const struct fl_array *const out = fl_plan_out(p, node, 0);
    struct scale with;
    for (int i = 0; i < 2; i++) {
        const struct fl_known *const other = fl_plan_in(p, node, 1 - i);
        if (!is_number(p, node, i, &with.alpha) || other->array.ndim != out->ndim ||
            *fl_net_string(node, "flexlab_activation", ""))
            continue;
        const int *const layout = fl_own_layout(p, node, 1 - i);
        SLOT(x, fl_plan_operand(p, node, 1 - i, layout));
        SLOT(y, fl_plan_result(p, node, 0, layout));
        const int slots[] = {y, x};
        *done = true;
        return fl_plan_step(p, node, run_scale, 1, 2, slots, &with, sizeof with);
    }
    return plan_binary(p, node, tensor_mul, tensor_broadcast_mul, done);
}

/* Subtraction of operands of one shape; others are left to compute(). */
tensor_status fl_lower_sub(struct fl_planner *p, const struct fl_net_node *node, bool *done) {
    const struct fl_known *const a = fl_plan_in(p, node, 0), *const b = fl_plan_in(p, node, 1);
    if (a->array.count != b->array.count || a->array.ndim != b->array.ndim)
        return TENSOR_OK;
    return plan_binary(p, node, tensor_sub, NULL, done);
}
