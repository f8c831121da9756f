/* int8_elements.c - sums, limits, softmax and changes of scale of quantised values; from floats, and back. */
#include "program/lower/quantised.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include <math.h>
#include <string.h>

tensor_status fl_int8_types_of(struct fl_planner *p, const struct fl_net_node *node, struct fl_int8_types *types) {
    const struct fl_network *const n = fl_plan_network(p);
    struct fl_activation_of a;
    TRY(fl_activation_read(node, &a));
    *types =
        (struct fl_int8_types){.x = fl_net_int8_type(n, node->inputs[0]), .y = fl_net_int8_type(n, node->outputs[0])};
    if (a.kind != FL_NO_ACTIVATION)
        types->range =
            fl_int8_activation(&types->y, a.kind == FL_CLIP ? a.low : 0, a.kind == FL_CLIP ? a.high : INFINITY);
    return TENSOR_OK;
}

int fl_int8_repeated(struct fl_planner *p, const struct fl_net_node *node, int operand, const int *layout) {
    const struct fl_array *const out = fl_plan_out(p, node, 0);
    struct fl_byte_strides s = {.ndim = out->ndim};
    int64_t own[TENSOR_MAX_DIMS], step = 1;
    bool same;
    const int slot = fl_repeated(p, node, operand, layout, &same);
    if (slot < 0 || same)
        return slot;
    fl_plan_shape(p, slot, own);
    for (int d = s.ndim - 1; d >= 0; step *= own[d--]) {
        s.dim[d] = out->dim[layout ? layout[d] : d];
        s.stride[d] = own[d] == 1 ? 0 : step;
    }
    const int made = fl_plan_temporary_numbers(p, node, FMT_U8, s.ndim, s.dim);
    const int slots[] = {made, slot};
    return made < 0 || fl_plan_step(p, node, fl_plan_run_bytes, 1, 2, slots, &s, sizeof s) ? -1 : made;
}

/* --- sums --------------------------------------------------------------------------------------------------------- */

struct sum {
    enum fl_int8_rounding rounding;
    int64_t count;
    struct fl_int8_types types;
    struct fl_int8_type b;
};

static tensor_status run_sum(tensor *const *t, const void *with) {
    const struct sum *const s = with;
    return fl_int8_add(s->rounding, s->count, &s->types.x, fl_plan_data(t[1]), &s->b, fl_plan_data(t[2]), &s->types.y,
                       s->types.range, fl_plan_data(t[0]));
}

tensor_status fl_lower_int8_add(struct fl_planner *p, const struct fl_net_node *node, bool *done) {
    const struct fl_network *const n = fl_plan_network(p);
    struct sum with = {.rounding = n->rounding, .count = fl_plan_out(p, node, 0)->count};
    const int from = fl_leader(p, node);
    const int *const layout = from < 0 ? NULL : fl_own_layout(p, node, from);
    with.b = fl_net_int8_type(n, node->inputs[1]);
    TRY(fl_int8_types_of(p, node, &with.types));
    SLOT(a, fl_int8_repeated(p, node, 0, layout));
    SLOT(b, fl_int8_repeated(p, node, 1, layout));
    SLOT(y, fl_plan_result(p, node, 0, layout));
    const int slots[] = {y, a, b};
    *done = true;
    return fl_plan_step(p, node, run_sum, 1, 3, slots, &with, sizeof with);
}

/* --- Relu, Clip, QuantizeLinear of a quantised value: an element by itself ---------------------------------------- */

struct rescaling {
    enum fl_int8_rounding rounding;
    int64_t count;
    struct fl_int8_types types;
};

static tensor_status run_rescaling(tensor *const *t, const void *with) {
    const struct rescaling *const r = with;
    const struct fl_int8_type *const x = &r->types.x, *const y = &r->types.y;
    if (x->scale == y->scale && x->zero == y->zero && x->is_unsigned == y->is_unsigned)
        return fl_int8_clamp(r->count, x, fl_plan_data(t[1]), r->types.range, fl_plan_data(t[0]));
    return fl_int8_requantise(r->rounding, r->count, x, fl_plan_data(t[1]), y, r->types.range, fl_plan_data(t[0]));
}

static tensor_status plan_rescaling(struct fl_planner *p, const struct fl_net_node *node,
                                    enum fl_int8_rounding rounding, float low, float high, bool *done) {
    struct rescaling with = {.rounding = rounding, .count = fl_plan_out(p, node, 0)->count};
    const int *const layout = fl_own_layout(p, node, 0);
    TRY(fl_int8_types_of(p, node, &with.types));
    if (low > -INFINITY || high < INFINITY)
        with.types.range = fl_int8_activation(&with.types.y, low, high);
    SLOT(x, fl_plan_operand(p, node, 0, layout));
    SLOT(y, fl_plan_result(p, node, 0, layout));
    const int slots[] = {y, x};
    *done = true;
    return fl_plan_step(p, node, run_rescaling, 1, 2, slots, &with, sizeof with);
}

static float bound(const struct fl_planner *p, const struct fl_net_node *node, int operand, float otherwise) {
    const struct fl_array *const a = fl_plan_numbers(p, node, operand);
    return a ? (float)fl_array_number(a, 0) : otherwise;
}

/* XNNPACK has clamps at one scale alone: where it changes, its runtime takes the optimised kernel. */
tensor_status fl_lower_int8_clip(struct fl_planner *p, const struct fl_net_node *node, bool *done) {
    const enum fl_int8_rounding given = fl_plan_network(p)->rounding,
                                rounding = given == FL_INT8_TFLITE_XNNPACK ? FL_INT8_TFLITE_RUY : given;
    const bool relu = !strcmp(node->op, "Relu");
    return plan_rescaling(p, node, rounding, relu ? 0 : bound(p, node, 1, -INFINITY), bound(p, node, 2, INFINITY),
                          done);
}

/* --- softmax ------------------------------------------------------------------------------------------------------ */

struct softmax {
    enum fl_int8_rounding rounding;
    int64_t rows, length;
    float beta;
    struct fl_int8_types types;
};

static tensor_status run_softmax(tensor *const *t, const void *with) {
    const struct softmax *const s = with;
    return fl_int8_softmax(s->rounding, s->rows, s->length, s->beta, &s->types.x, fl_plan_data(t[1]), &s->types.y,
                           fl_plan_data(t[0]));
}

/* Over one dimension, which lies last. */
tensor_status fl_lower_int8_softmax(struct fl_planner *p, const struct fl_net_node *node, bool *done) {
    const struct fl_array *const x = &fl_plan_in(p, node, 0)->array;
    struct softmax with = {.rounding = fl_plan_network(p)->rounding, .beta = fl_net_float(node, "flexlab_beta", 1)};
    int layout[TENSOR_MAX_DIMS], axis;
    TRY(fl_axis(&axis, fl_net_int(node, "axis", -1), x->ndim));
    TRY(fl_int8_types_of(p, node, &with.types));
    for (int d = 0; d < x->ndim; d++)
        layout[d] = d == x->ndim - 1 ? axis : d < axis ? d : d + 1;
    with.length = x->dim[axis];
    with.rows = x->count / with.length;
    SLOT(from, fl_plan_operand(p, node, 0, layout));
    SLOT(y, fl_plan_result(p, node, 0, layout));
    const int slots[] = {y, from};
    *done = true;
    return fl_plan_step(p, node, run_softmax, 1, 2, slots, &with, sizeof with);
}

/* --- borders ------------------------------------------------------------------------------------------------------ */

struct border {
    enum fl_int8_rounding rounding;
    int64_t count;
    struct fl_int8_type type;
};

/* Memory for floats that a device has: NULL where they are on the host. */
static tensor_status find_floats(const tensor *t, int64_t count, float **floats, float **memory) {
    *memory = fl_plan_on_host(t) ? NULL : fl_alloc((size_t)count * sizeof **memory);
    *floats = *memory ? *memory : fl_plan_data(t);
    return *memory || fl_plan_on_host(t) ? TENSOR_OK
                                         : fl_fail(TENSOR_E_MEMORY, "no memory for %lld floats", (long long)count);
}

static tensor_status run_quantise(tensor *const *t, const void *with) {
    const struct border *const b = with;
    float *x, *memory;
    TRY(find_floats(t[1], b->count, &x, &memory));
    tensor_status status = memory ? tensor_store_f32(t[1], memory, b->count) : TENSOR_OK;
    if (!status)
        status = fl_int8_quantise(b->rounding, b->count, x, &b->type, fl_plan_data(t[0]));
    fl_free(memory);
    return status;
}

static tensor_status run_dequantise(tensor *const *t, const void *with) {
    const struct border *const b = with;
    float *y, *memory;
    TRY(find_floats(t[0], b->count, &y, &memory));
    tensor_status status = fl_int8_dequantise(b->count, &b->type, fl_plan_data(t[1]), y);
    if (!status && memory)
        status = tensor_load_f32(t[0], memory, b->count);
    fl_free(memory);
    return status;
}

/* Whether the node has one known scale and zero point between floats and integers of 8 bits. */
static bool is_simple(const struct fl_planner *p, const struct fl_net_node *node, const struct fl_array *bytes,
                      struct border *b) {
    const struct fl_array *const scale = fl_plan_numbers(p, node, 1), *const zero = fl_plan_numbers(p, node, 2);
    if ((bytes->type != TENSOR_TYPE_I8 && bytes->type != TENSOR_TYPE_U8) || !scale || scale->count != 1 ||
        scale->ndim > 1 || (!zero && fl_plan_in(p, node, 2)) || fl_net_int(node, "block_size", 0))
        return false;
    *b = (struct border){.rounding = fl_plan_network(p)->rounding,
                         .count = bytes->count,
                         .type = {.scale = (float)fl_array_number(scale, 0),
                                  .zero = zero ? (int32_t)fl_array_integer(zero, 0) : 0,
                                  .is_unsigned = bytes->type == TENSOR_TYPE_U8}};
    return b->type.scale > 0 && isfinite(b->type.scale);
}

tensor_status fl_lower_int8_quantise(struct fl_planner *p, const struct fl_net_node *node, bool *done) {
    struct border with;
    if (fl_net_is_quantised(fl_plan_network(p), node))
        return plan_rescaling(p, node, fl_plan_network(p)->rounding, -INFINITY, INFINITY, done);
    if (!fl_plan_is_float(p, node, 0) || !is_simple(p, node, fl_plan_out(p, node, 0), &with))
        return TENSOR_OK;
    const struct fl_net_node *const fp32 = fl_plan_in_format(p, node, FMT_FP32);
    const int *const layout = fl_own_layout(p, node, 0);
    if (!fp32)
        return TENSOR_E_MEMORY;
    SLOT(x, fl_plan_operand(p, fp32, 0, layout));
    SLOT(y, fl_plan_result(p, node, 0, layout));
    const int slots[] = {y, x};
    *done = true;
    return fl_plan_step(p, node, run_quantise, 1, 2, slots, &with, sizeof with);
}

tensor_status fl_lower_int8_dequantise(struct fl_planner *p, const struct fl_net_node *node, bool *done) {
    struct border with;
    if (!is_simple(p, node, &fl_plan_in(p, node, 0)->array, &with))
        return TENSOR_OK;
    const struct fl_net_node *const fp32 = fl_plan_in_format(p, node, FMT_FP32);
    const int *const layout = fl_own_layout(p, node, 0);
    if (!fp32)
        return TENSOR_E_MEMORY;
    SLOT(x, fl_plan_operand(p, node, 0, layout));
    SLOT(y, fl_plan_result(p, fp32, 0, layout));
    const int slots[] = {y, x};
    *done = true;
    return fl_plan_step(p, node, run_dequantise, 1, 2, slots, &with, sizeof with);
}
