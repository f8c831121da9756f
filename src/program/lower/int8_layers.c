/* int8_layers.c - convolutions and products with constant weights as layers of 8-bit integers. */
#include "program/arrays/product_shapes.h"
#include "program/arrays/windows.h"
#include "program/lower/quantised.h"
#include "core/base/fail.h"
#include <string.h>

struct layer_call {
    struct fl_program_layer *layer;
    int64_t n, h, w;
};

/* y, x, residual */
static tensor_status run_layer(tensor *const *t, const void *with) {
    const struct layer_call *const c = with;
    const struct fl_int8_layer *layer;
    TRY(fl_program_layer_get(c->layer, &layer));
    return fl_int8_conv(layer, c->n, c->h, c->w, fl_plan_data(t[1]), t[2] ? fl_plan_data(t[2]) : NULL,
                        fl_plan_data(t[0]));
}

/* What every layer has: types, weights, bias (operand 2) and activation. */
static tensor_status describe(struct fl_planner *p, const struct fl_net_node *node, struct fl_int8_layer_spec *s) {
    const struct fl_network *const n = fl_plan_network(p);
    const struct fl_net_value *const w = &n->values[node->inputs[1]];
    const struct fl_array *const bias = fl_plan_numbers(p, node, 2);
    struct fl_int8_types types;
    TRY(fl_int8_types_of(p, node, &types));
    *s = (struct fl_int8_layer_spec){.rounding = n->rounding,
                                     .window = {.height = 1, .width = 1},
                                     .weights = w->constant->data,
                                     .weights_unsigned = w->type == TENSOR_TYPE_U8,
                                     .weights_zero = w->quantisation->zero[0],
                                     .weights_scale = w->quantisation->scale,
                                     .per_channel = w->quantisation->count > 1,
                                     .bias = bias ? bias->data : NULL,
                                     .x = types.x,
                                     .y = types.y,
                                     .range = types.range};
    return TENSOR_OK;
}

/* Filters [K, C / groups, R, S] as [K, R, S, C / groups], and images as [N, H, W, C]. */
tensor_status fl_lower_int8_conv(struct fl_planner *p, const struct fl_net_node *node, bool *done) {
    const struct fl_known *const bias = fl_plan_in(p, node, 2);
    const struct fl_array *const w = fl_plan_numbers(p, node, 1), *const out = fl_plan_out(p, node, 0);
    struct fl_windows g;
    struct fl_int8_layer_spec s;
    struct layer_call call;
    int layout[TENSOR_MAX_DIMS], residual = -1;
    struct fl_int8_type residual_type;
    TRY(fl_windows_convolution(&g, node, &fl_plan_in(p, node, 0)->array, w, bias ? &bias->array : NULL));
    TRY(describe(p, node, &s));
    const int across = g.spatial - 1; /* a sequence is an image of height 1 */
    s.channels = g.channels;
    s.filters = g.filters;
    s.groups = g.group;
    s.depthwise = fl_net_int(node, "flexlab_depthwise", g.group > 1 && g.group == g.channels) != 0;
    s.window.width = g.window[across];
    s.window.stride_w = g.stride[across];
    s.window.dilation_w = g.dilation[across];
    s.window.left = g.begin[across];
    s.window.right = g.end[across];
    if (across) {
        s.window.height = g.window[0];
        s.window.stride_h = g.stride[0];
        s.window.dilation_h = g.dilation[0];
        s.window.top = g.begin[0];
        s.window.bottom = g.end[0];
    }
    call.n = g.batch;
    call.h = across ? g.size[0] : 1;
    call.w = g.size[across];
    fl_image_layout(node, out->ndim, layout);
    if (fl_plan_in(p, node, 3)) {
        residual_type = fl_net_int8_type(fl_plan_network(p), node->inputs[3]);
        s.residual = &residual_type;
        residual = fl_int8_repeated(p, node, 3, layout);
        if (residual < 0)
            return tensor_error_status();
        int64_t count = g.batch * g.filters;
        for (int i = 0; i < g.spatial; i++)
            count *= g.result[i];
        if (count != out->count)
            return fl_fail(TENSOR_E_UNSUPPORTED, "a sum with an operand that is larger than the convolution's result");
    }
    TRY(fl_plan_layer(p, node, &s, w, node->channels_last ? NULL : layout, &call.layer));
    SLOT(x, fl_plan_operand(p, node, 0, layout));
    SLOT(y, fl_plan_result(p, node, 0, layout));
    const int slots[] = {y, x, residual};
    *done = true;
    return fl_plan_step(p, node, run_layer, 1, 3, slots, &call, sizeof call);
}

/* Rows of operand 0 times a constant matrix. */
static tensor_status plan_product(struct fl_planner *p, const struct fl_net_node *node, struct fl_int8_layer_spec *s,
                                  int64_t rows, bool *done) {
    struct layer_call call = {.n = 1, .h = rows, .w = 1};
    s->fully_connected = true;
    TRY(fl_plan_layer(p, node, s, NULL, NULL, &call.layer));
    SLOT(x, fl_plan_operand(p, node, 0, NULL));
    SLOT(y, fl_plan_result(p, node, 0, NULL));
    const int slots[] = {y, x, -1};
    *done = true;
    return fl_plan_step(p, node, run_layer, 1, 3, slots, &call, sizeof call);
}

tensor_status fl_lower_int8_gemm(struct fl_planner *p, const struct fl_net_node *node, bool *done) {
    struct fl_gemm g;
    struct fl_int8_layer_spec s;
    TRY(fl_gemm_read(&g, node, &fl_plan_in(p, node, 0)->array, fl_plan_numbers(p, node, 1), NULL));
    TRY(describe(p, node, &s));
    s.channels = g.inner;
    s.filters = g.columns;
    s.order = g.turn_b ? FL_INT8_KRSC : FL_INT8_RSCK;
    return plan_product(p, node, &s, g.rows, done);
}

tensor_status fl_lower_int8_matmul(struct fl_planner *p, const struct fl_net_node *node, bool *done) {
    struct fl_product m;
    struct fl_int8_layer_spec s;
    TRY(fl_product_read(&m, &fl_plan_in(p, node, 0)->array, fl_plan_numbers(p, node, 1)));
    TRY(describe(p, node, &s));
    s.channels = m.inner;
    s.filters = m.columns;
    s.order = FL_INT8_RSCK;
    return plan_product(p, node, &s, fl_plan_in(p, node, 0)->array.count / m.inner, done);
}
