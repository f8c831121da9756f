/* windows.c - the geometry of convolutions and poolings, with padding as ONNX and TensorFlow Lite state it. */
#include "program/arrays/windows.h"
#include "core/base/fail.h"
#include <string.h>

static tensor_status read_list(const struct fl_net_node *node, const char *name, int count, int64_t *to,
                               int64_t otherwise, int64_t least) {
    const struct fl_net_attribute *const a = fl_net_find(node, name);
    for (int i = 0; i < count; i++)
        to[i] = otherwise;
    if (!a)
        return TENSOR_OK;
    if (a->kind != FL_NET_INTS || a->count != count)
        return fl_fail(TENSOR_E_DATA, "%s has %d numbers, expected %d", name, a->count, count);
    for (int i = 0; i < count; i++) {
        to[i] = a->ints[i];
        if (to[i] < least || to[i] > 1 << 20)
            return fl_fail(TENSOR_E_DATA, "%s: %lld, expected %lld to %d", name, (long long)to[i], (long long)least,
                           1 << 20);
    }
    return TENSOR_OK;
}

/* Batch, channels and sizes of an image [N, C, ...] or [N, ..., C]. */
tensor_status fl_windows_image(struct fl_windows *g, const struct fl_net_node *node, const struct fl_array *x) {
    *g = (struct fl_windows){.group = 1};
    if (x->ndim < 3 || x->ndim > 2 + FL_SPATIAL)
        return fl_fail(TENSOR_E_UNSUPPORTED, "an image of %d dimensions, expected 3 to %d", x->ndim, 2 + FL_SPATIAL);
    const int first = node->channels_last ? 1 : 2;
    g->spatial = x->ndim - 2;
    g->batch = x->dim[0];
    g->channels = x->dim[node->channels_last ? x->ndim - 1 : 1];
    for (int i = 0; i < g->spatial; i++) {
        g->size[i] = x->dim[first + i];
        if (g->size[i] > INT32_MAX) /* of an image without elements */
            return fl_fail(TENSOR_E_UNSUPPORTED, "an image of size %lld, expected less than 2^31",
                           (long long)g->size[i]);
    }
    return TENSOR_OK;
}

tensor_status fl_windows_steps(struct fl_windows *g, const struct fl_net_node *node) {
    TRY(read_list(node, "strides", g->spatial, g->stride, 1, 1));
    TRY(read_list(node, "dilations", g->spatial, g->dilation, 1, 1));
    TRY(read_list(node, "output_padding", g->spatial, g->output_padding, 0, 0));
    int64_t pads[2 * FL_SPATIAL];
    TRY(read_list(node, "pads", 2 * g->spatial, pads, 0, 0));
    for (int i = 0; i < g->spatial; i++) {
        g->begin[i] = pads[i];
        g->end[i] = pads[g->spatial + i];
    }
    return TENSOR_OK;
}

static int64_t extent(const struct fl_windows *g, int i) {
    return (g->window[i] - 1) * g->dilation[i] + 1;
}

/* Padding by rule, and the number of windows. */
tensor_status fl_windows_count(struct fl_windows *g, const struct fl_net_node *node) {
    const char *const rule = fl_net_string(node, "auto_pad", "NOTSET");
    const bool upper = !strcmp(rule, "SAME_UPPER"), lower = !strcmp(rule, "SAME_LOWER");
    const bool valid = !strcmp(rule, "VALID"), ceiling = fl_net_int(node, "ceil_mode", 0) != 0;
    if (!upper && !lower && !valid && strcmp(rule, "NOTSET"))
        return fl_fail(TENSOR_E_DATA, "auto_pad \"%s\", expected NOTSET, SAME_UPPER, SAME_LOWER or VALID", rule);
    for (int i = 0; i < g->spatial; i++) {
        if (valid)
            g->begin[i] = g->end[i] = 0;
        if (upper || lower) {
            g->result[i] = (g->size[i] + g->stride[i] - 1) / g->stride[i];
            int64_t all = (g->result[i] - 1) * g->stride[i] + extent(g, i) - g->size[i];
            all = all > 0 ? all : 0;
            g->begin[i] = lower ? (all + 1) / 2 : all / 2;
            g->end[i] = all - g->begin[i];
            continue;
        }
        const int64_t room = g->size[i] + g->begin[i] + g->end[i] - extent(g, i);
        if (room < 0)
            return fl_fail(TENSOR_E_SHAPE, "a window of %lld on %lld pixels with padding %lld and %lld",
                           (long long)extent(g, i), (long long)g->size[i], (long long)g->begin[i],
                           (long long)g->end[i]);
        g->result[i] = room / g->stride[i] + 1;
        if (ceiling && room % g->stride[i] && g->result[i] * g->stride[i] < g->size[i] + g->begin[i]) {
            /* One more window, which begins within the image or its left padding; what lies beyond is padding. */
            g->beyond[i] = g->stride[i] - room % g->stride[i];
            g->end[i] += g->beyond[i];
            g->result[i]++;
        }
    }
    return TENSOR_OK;
}

tensor_status fl_windows_set(struct fl_array *y, tensor_type type, const struct fl_net_node *node,
                             const struct fl_windows *g, int64_t channels) {
    int64_t dim[2 + FL_SPATIAL];
    const bool last = node->channels_last;
    if (channels && g->batch > INT32_MAX / channels)
        return fl_fail(TENSOR_E_UNSUPPORTED, "%lld images of %lld channels, expected less than 2^31 planes",
                       (long long)g->batch, (long long)channels);
    dim[0] = g->batch;
    dim[last ? 1 + g->spatial : 1] = channels;
    for (int i = 0; i < g->spatial; i++)
        dim[(last ? 1 : 2) + i] = g->result[i];
    return fl_shape_set(y, type, 2 + g->spatial, dim);
}

/* --- convolution -------------------------------------------------------------------------------------------------- */

/* Filters [K, C / groups, ...], or [K, ..., C / groups] where channels come last; transposed [C, K / groups, ...]. */
static tensor_status read_filters(struct fl_windows *g, const struct fl_net_node *node, const struct fl_array *w,
                                  bool transposed) {
    if (w->ndim != 2 + g->spatial)
        return fl_fail(TENSOR_E_SHAPE, "filters of %d dimensions, expected %d", w->ndim, 2 + g->spatial);
    const bool last = node->channels_last && !transposed;
    const int64_t inner = w->dim[last ? w->ndim - 1 : 1];
    g->group = fl_net_int(node, "group", 1);
    if (g->group < 1 || g->group > INT32_MAX || g->channels % g->group || w->dim[0] % g->group)
        return fl_fail(TENSOR_E_DATA, "group is %lld, expected a divisor of %lld channels and of %lld filters",
                       (long long)g->group, (long long)g->channels, (long long)w->dim[0]);
    for (int i = 0; i < w->ndim; i++)
        if (w->dim[i] > INT32_MAX) /* of filters without elements */
            return fl_fail(TENSOR_E_UNSUPPORTED, "filters of size %lld, expected less than 2^31", (long long)w->dim[i]);
    for (int i = 0; i < g->spatial; i++)
        g->window[i] = w->dim[(last ? 1 : 2) + i];
    g->filters = transposed ? inner * g->group : w->dim[0];
    if (transposed ? w->dim[0] != g->channels : inner * g->group != g->channels)
        return fl_fail(TENSOR_E_SHAPE, "filters for %lld channels, expected %lld",
                       (long long)(transposed ? w->dim[0] : inner * g->group), (long long)g->channels);
    int64_t stated[FL_SPATIAL];
    TRY(read_list(node, "kernel_shape", g->spatial, stated, 0, 1));
    for (int i = 0; i < g->spatial; i++)
        if (stated[i] && stated[i] != g->window[i])
            return fl_fail(TENSOR_E_DATA, "kernel_shape says %lld, but the filters have %lld", (long long)stated[i],
                           (long long)g->window[i]);
    return TENSOR_OK;
}

tensor_status fl_windows_convolution(struct fl_windows *g, const struct fl_net_node *node, const struct fl_array *x,
                                     const struct fl_array *w, const struct fl_array *b) {
    TRY(fl_windows_image(g, node, x));
    TRY(fl_windows_steps(g, node));
    TRY(read_filters(g, node, w, false));
    if (b && (b->ndim != 1 || b->dim[0] != g->filters))
        return fl_fail(TENSOR_E_SHAPE, "a bias of %lld numbers, expected %lld", (long long)b->count,
                       (long long)g->filters);
    return fl_windows_count(g, node);
}

tensor_status fl_shape_conv(const struct fl_arrays *a) {
    struct fl_windows g;
    TRY(fl_windows_convolution(&g, a->node, a->in[0], a->in[1], fl_operand(a, 2)));
    TRY(fl_windows_set(a->out[0], a->in[0]->type, a->node, &g, g.filters));
    const struct fl_array *const added = fl_operand(a, 3); /* passes/join.c has made it an operand */
    int64_t dim[FL_ARRAY_DIMS];
    int ndim;
    if (!added || !a->out[0])
        return TENSOR_OK;
    TRY(fl_broadcast_shape(&ndim, dim, a->out[0], added));
    if (ndim != a->out[0]->ndim)
        return fl_fail(TENSOR_E_UNSUPPORTED, "a convolution of %d dimensions plus an operand of %d", a->out[0]->ndim,
                       added->ndim);
    return fl_shape_set(a->out[0], a->out[0]->type, ndim, dim);
}

/* ONNX: the padding may follow from a stated output_shape, or from auto_pad; the larger part of an odd one is at the
 * beginning, but for SAME_UPPER. (The equations of opset 1 say the reverse of their own auto_pad, which opset 11 mends;
 * onnxruntime computes all opsets so.) */
tensor_status fl_windows_transposed(struct fl_windows *g, const struct fl_net_node *node, const struct fl_array *x,
                                    const struct fl_array *w) {
    int64_t wanted[FL_SPATIAL];
    TRY(fl_windows_image(g, node, x));
    TRY(fl_windows_steps(g, node));
    TRY(read_filters(g, node, w, true));
    TRY(read_list(node, "output_shape", g->spatial, wanted, 0, 1));
    const char *const rule = fl_net_string(node, "auto_pad", "NOTSET");
    const bool same = !strncmp(rule, "SAME_", 5), upper = !strcmp(rule, "SAME_UPPER");
    for (int i = 0; i < g->spatial; i++) {
        const int64_t whole = g->stride[i] * (g->size[i] - 1) + g->output_padding[i] + extent(g, i);
        if (!wanted[i] && same)
            wanted[i] = g->size[i] * g->stride[i];
        if (wanted[i]) {
            const int64_t all = whole - wanted[i];
            if (all < 0)
                g->output_padding[i] -= all;
            g->begin[i] = all < 0 ? 0 : upper ? all / 2 : (all + 1) / 2;
            g->end[i] = all < 0 ? 0 : all - g->begin[i];
        } else if (!strcmp(rule, "VALID")) {
            g->begin[i] = g->end[i] = 0;
        }
        g->result[i] = wanted[i] ? wanted[i] : whole - g->begin[i] - g->end[i];
        if (g->result[i] < 1)
            return fl_fail(TENSOR_E_SHAPE, "padding leaves %lld pixels", (long long)g->result[i]);
    }
    return TENSOR_OK;
}

tensor_status fl_shape_conv_transpose(const struct fl_arrays *a) {
    struct fl_windows g;
    TRY(fl_windows_transposed(&g, a->node, a->in[0], a->in[1]));
    return fl_windows_set(a->out[0], a->in[0]->type, a->node, &g, g.filters);
}

/* --- pooling ------------------------------------------------------------------------------------------------------ */

tensor_status fl_windows_pool_steps(struct fl_windows *g, const struct fl_net_node *node, const struct fl_array *x) {
    TRY(fl_windows_image(g, node, x));
    TRY(fl_windows_steps(g, node));
    TRY(read_list(node, "kernel_shape", g->spatial, g->window, 0, 1));
    for (int i = 0; i < g->spatial; i++)
        if (!g->window[i])
            return fl_fail(TENSOR_E_DATA, "kernel_shape is missing");
    return TENSOR_OK;
}

tensor_status fl_windows_pool(struct fl_windows *g, const struct fl_net_node *node, const struct fl_array *x) {
    TRY(fl_windows_pool_steps(g, node, x));
    return fl_windows_count(g, node);
}

tensor_status fl_shape_pool(const struct fl_arrays *a) {
    struct fl_windows g;
    TRY(fl_windows_pool(&g, a->node, a->in[0]));
    TRY(fl_windows_set(fl_result(a, 1), TENSOR_TYPE_I64, a->node, &g, g.channels));
    return fl_windows_set(a->out[0], a->in[0]->type, a->node, &g, g.channels);
}

tensor_status fl_shape_global_pool(const struct fl_arrays *a) {
    struct fl_windows g;
    TRY(fl_windows_image(&g, a->node, a->in[0]));
    for (int i = 0; i < g.spatial; i++)
        g.result[i] = 1;
    return fl_windows_set(a->out[0], a->in[0]->type, a->node, &g, g.channels);
}
