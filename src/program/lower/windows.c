/* windows.c - convolution and pooling: images of the network in the library's order of dimensions, their padding as
 * ONNX and TensorFlow Lite state it. */
#include "program/lower/lower.h"
#include "core/base/fail.h"
#include <string.h>

enum { SPATIAL = 2 }; /* dimensions of an image; a sequence is an image of height 1 */

/* The geometry of a node's windows on operands of given shapes. */
struct geometry {
    int spatial; /* 1 or 2 */
    int64_t batch, channels, size[SPATIAL], result[SPATIAL];
    int64_t window[SPATIAL], stride[SPATIAL], dilation[SPATIAL], begin[SPATIAL], end[SPATIAL], output_padding[SPATIAL];
    int64_t group, filters;
};

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
static tensor_status read_image(struct geometry *g, const struct fl_net_node *node, const struct fl_array *x) {
    *g = (struct geometry){.group = 1};
    if (x->ndim < 3 || x->ndim > 2 + SPATIAL)
        return fl_fail(TENSOR_E_UNSUPPORTED, "an image of %d dimensions, expected 3 or 4", x->ndim);
    const int first = node->channels_last ? 1 : 2;
    g->spatial = x->ndim - 2;
    g->batch = x->dim[0];
    g->channels = x->dim[node->channels_last ? x->ndim - 1 : 1];
    for (int i = 0; i < g->spatial; i++)
        g->size[i] = x->dim[first + i];
    return TENSOR_OK;
}

static tensor_status read_steps(struct geometry *g, const struct fl_net_node *node) {
    TRY(read_list(node, "strides", g->spatial, g->stride, 1, 1));
    TRY(read_list(node, "dilations", g->spatial, g->dilation, 1, 1));
    TRY(read_list(node, "output_padding", g->spatial, g->output_padding, 0, 0));
    int64_t pads[2 * SPATIAL];
    TRY(read_list(node, "pads", 2 * g->spatial, pads, 0, 0));
    for (int i = 0; i < g->spatial; i++) {
        g->begin[i] = pads[i];
        g->end[i] = pads[g->spatial + i];
    }
    return TENSOR_OK;
}

static int64_t extent(const struct geometry *g, int i) {
    return (g->window[i] - 1) * g->dilation[i] + 1;
}

/* Padding by rule, and the number of windows. */
static tensor_status count_windows(struct geometry *g, const struct fl_net_node *node) {
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
            g->end[i] += g->stride[i] - room % g->stride[i];
            g->result[i]++;
        }
    }
    return TENSOR_OK;
}

static tensor_status set_image(const struct fl_arrays *a, const struct geometry *g, int64_t channels) {
    int64_t dim[2 + SPATIAL];
    const bool last = a->node->channels_last;
    dim[0] = g->batch;
    dim[last ? 1 + g->spatial : 1] = channels;
    for (int i = 0; i < g->spatial; i++)
        dim[(last ? 1 : 2) + i] = g->result[i];
    return fl_shape_set(a->out[0], a->in[0]->type, 2 + g->spatial, dim);
}

/* --- convolution -------------------------------------------------------------------------------------------------- */

/* Filters [K, C / groups, ...], or [K, ..., C / groups] where channels come last; transposed [C, K / groups, ...]. */
static tensor_status read_filters(struct geometry *g, const struct fl_net_node *node, const struct fl_array *w,
                                  bool transposed) {
    if (w->ndim != 2 + g->spatial)
        return fl_fail(TENSOR_E_SHAPE, "filters of %d dimensions, expected %d", w->ndim, 2 + g->spatial);
    const bool last = node->channels_last && !transposed;
    const int64_t inner = w->dim[last ? w->ndim - 1 : 1];
    g->group = fl_net_int(node, "group", 1);
    if (g->group < 1 || g->channels % g->group || w->dim[0] % g->group)
        return fl_fail(TENSOR_E_DATA, "group is %lld, expected a divisor of %lld channels and of %lld filters",
                       (long long)g->group, (long long)g->channels, (long long)w->dim[0]);
    for (int i = 0; i < g->spatial; i++)
        g->window[i] = w->dim[(last ? 1 : 2) + i];
    g->filters = transposed ? inner * g->group : w->dim[0];
    if (transposed ? w->dim[0] != g->channels : inner * g->group != g->channels)
        return fl_fail(TENSOR_E_SHAPE, "filters for %lld channels, expected %lld",
                       (long long)(transposed ? w->dim[0] : inner * g->group), (long long)g->channels);
    int64_t stated[SPATIAL];
    TRY(read_list(node, "kernel_shape", g->spatial, stated, 0, 1));
    for (int i = 0; i < g->spatial; i++)
        if (stated[i] && stated[i] != g->window[i])
            return fl_fail(TENSOR_E_DATA, "kernel_shape says %lld, but the filters have %lld", (long long)stated[i],
                           (long long)g->window[i]);
    return TENSOR_OK;
}

static tensor_status read_convolution(struct geometry *g, const struct fl_net_node *node, const struct fl_array *x,
                                      const struct fl_array *w, const struct fl_array *b) {
    TRY(read_image(g, node, x));
    TRY(read_steps(g, node));
    TRY(read_filters(g, node, w, false));
    if (b && (b->ndim != 1 || b->dim[0] != g->filters))
        return fl_fail(TENSOR_E_SHAPE, "a bias of %lld numbers, expected %lld", (long long)b->count,
                       (long long)g->filters);
    return count_windows(g, node);
}

static const struct fl_array *given(const struct fl_arrays *a, int operand) {
    return operand < a->in_count ? a->in[operand] : NULL;
}

/* With a fourth operand, to which the sums are added (passes/join.c), the result is repeated as in Add. */
tensor_status fl_shape_conv(const struct fl_arrays *a) {
    struct geometry g;
    int64_t dim[FL_ARRAY_DIMS];
    int ndim;
    TRY(read_convolution(&g, a->node, a->in[0], a->in[1], given(a, 2)));
    TRY(set_image(a, &g, g.filters));
    if (!given(a, 3) || !a->out[0])
        return TENSOR_OK;
    TRY(fl_broadcast_shape(&ndim, dim, a->out[0], a->in[3]));
    return fl_shape_set(a->out[0], a->in[0]->type, ndim, dim);
}

/* The library's window of this geometry. */
static tensor_status to_window(const struct geometry *g, tensor_window *how) {
    *how = (tensor_window){.groups = (int)g->group};
    for (int i = 0; i < SPATIAL; i++) {
        const int from = i - (SPATIAL - g->spatial); /* a sequence is across */
        if (from < 0) {
            how->window[i] = 1;
            continue;
        }
        if (g->stride[from] > TENSOR_WINDOW_STEP_LIMIT || g->dilation[from] > TENSOR_WINDOW_STEP_LIMIT ||
            g->begin[from] > TENSOR_WINDOW_STEP_LIMIT || g->end[from] > TENSOR_WINDOW_STEP_LIMIT)
            return fl_fail(TENSOR_E_UNSUPPORTED, "strides, padding or dilation above %d", TENSOR_WINDOW_STEP_LIMIT);
        how->window[i] = (int)g->window[from];
        how->stride[i] = (int)g->stride[from];
        how->dilation[i] = (int)g->dilation[from];
        how->padding[2 * i] = (int)g->begin[from];
        how->padding[2 * i + 1] = (int)g->end[from];
        how->output_padding[i] = (int)g->output_padding[from];
    }
    return TENSOR_OK;
}

/* The dimensions of an image in the order N, H, W, C of the library. */
static void image_layout(const struct fl_net_node *node, int ndim, int *layout) {
    for (int d = 0; d < ndim; d++)
        layout[d] = node->channels_last || !d ? d : d == ndim - 1 ? 1 : d + 1;
}

/* A slot of an image or of filters of 3 dimensions as one of 4. */
static int as_image(struct fl_planner *p, int slot) {
    int64_t dim[TENSOR_MAX_DIMS], four[4];
    if (slot < 0 || fl_plan_shape(p, slot, dim) == 4)
        return slot;
    four[0] = dim[0];
    four[1] = 1;
    four[2] = dim[1];
    four[3] = dim[2];
    return fl_plan_view(p, slot, 4, four);
}

struct convolution {
    tensor_window how;
    bool relu;
};

static tensor_status run_convolution(tensor *const *t, const void *with) {
    const struct convolution *const c = with;
    const tensor_epilogue epilogue = {.bias = t[3], .residual = t[4], .relu = c->relu};
    return tensor_conv2d_fused(t[0], t[1], t[2], &c->how, &epilogue);
}

static tensor_status run_transposed(tensor *const *t, const void *with) {
    const struct convolution *const c = with;
    const tensor_epilogue epilogue = {.bias = t[3], .relu = c->relu};
    return tensor_conv_transpose2d_fused(t[0], t[1], t[2], &c->how, &epilogue);
}

/* y, x, filters, bias, residual; activation after that. */
static tensor_status plan_convolution(struct fl_planner *p, const struct fl_net_node *node, const struct geometry *g,
                                      const int *filter_layout, fl_step_run *run, bool residual) {
    struct convolution c;
    struct fl_activation_of activation;
    int layout[TENSOR_MAX_DIMS];
    const int ndim = 2 + g->spatial;
    TRY(to_window(g, &c.how));
    c.how.window[0] = c.how.window[1] = 0;
    TRY(fl_activation_read(node, &activation));
    c.relu = activation.kind == FL_RELU;
    image_layout(node, ndim, layout);
    SLOT(x, as_image(p, fl_plan_operand(p, node, 0, layout)));
    SLOT(w, as_image(p, fl_plan_operand(p, node, 1, filter_layout)));
    int bias = -1, added = -1;
    if (fl_plan_in(p, node, 2)) {
        bias = fl_plan_operand(p, node, 2, NULL);
        if (bias < 0)
            return tensor_error_status();
    }
    if (residual) {
        added = as_image(p, fl_plan_operand(p, node, 3, layout));
        if (added < 0)
            return tensor_error_status();
    }
    SLOT(y, fl_activation_begin(p, node, &activation, layout));
    SLOT(image, as_image(p, y));
    const int slots[] = {image, x, w, bias, added};
    TRY(fl_plan_step(p, node, run, 1, 5, slots, &c, sizeof c));
    return fl_activation_end(p, node, &activation, y, layout);
}

static bool all_floats(const struct fl_planner *p, const struct fl_net_node *node) {
    for (int i = 0; i < node->input_count; i++)
        if (node->inputs[i] != -1 && !fl_plan_is_float(p, node, i))
            return false;
    return true;
}

tensor_status fl_lower_conv(struct fl_planner *p, const struct fl_net_node *node, bool *done) {
    const struct fl_known *const b = fl_plan_in(p, node, 2), *const added = fl_plan_in(p, node, 3);
    struct geometry g;
    int layout[TENSOR_MAX_DIMS];
    if (!all_floats(p, node))
        return TENSOR_OK;
    TRY(read_convolution(&g, node, &fl_plan_in(p, node, 0)->array, &fl_plan_in(p, node, 1)->array,
                         b ? &b->array : NULL));
    image_layout(node, 2 + g.spatial, layout); /* [K, C, R, S] as [K, R, S, C] */
    *done = true;
    if (added && (added->array.count != g.batch * g.filters * g.result[0] * (g.spatial > 1 ? g.result[1] : 1) ||
                  added->array.count != fl_plan_out(p, node, 0)->count || added->array.ndim != 2 + g.spatial))
        return fl_fail(TENSOR_E_UNSUPPORTED, "a sum of a convolution and an image of another shape");
    return plan_convolution(p, node, &g, layout, run_convolution, added != NULL);
}

/* ONNX: the padding may follow from a stated output_shape, or from auto_pad. */
static tensor_status read_transposed(struct geometry *g, const struct fl_net_node *node, const struct fl_array *x,
                                     const struct fl_array *w) {
    int64_t wanted[SPATIAL];
    TRY(read_image(g, node, x));
    TRY(read_steps(g, node));
    TRY(read_filters(g, node, w, true));
    TRY(read_list(node, "output_shape", g->spatial, wanted, 0, 1));
    const char *const rule = fl_net_string(node, "auto_pad", "NOTSET");
    const bool same = !strncmp(rule, "SAME_", 5), lower = !strcmp(rule, "SAME_LOWER");
    for (int i = 0; i < g->spatial; i++) {
        const int64_t whole = g->stride[i] * (g->size[i] - 1) + g->output_padding[i] + extent(g, i);
        if (!wanted[i] && same)
            wanted[i] = g->size[i] * g->stride[i];
        if (wanted[i]) {
            const int64_t all = whole - wanted[i];
            if (all < 0)
                g->output_padding[i] -= all;
            g->begin[i] = all < 0 ? 0 : lower ? (all + 1) / 2 : all / 2;
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
    struct geometry g;
    TRY(read_transposed(&g, a->node, a->in[0], a->in[1]));
    return set_image(a, &g, g.filters);
}

tensor_status fl_lower_conv_transpose(struct fl_planner *p, const struct fl_net_node *node, bool *done) {
    struct geometry g;
    int layout[TENSOR_MAX_DIMS];
    if (!all_floats(p, node))
        return TENSOR_OK;
    TRY(read_transposed(&g, node, &fl_plan_in(p, node, 0)->array, &fl_plan_in(p, node, 1)->array));
    for (int d = 0; d < 2 + g.spatial; d++) /* [C, K, R, S] as [C, R, S, K] */
        layout[d] = !d ? 0 : d == 1 + g.spatial ? 1 : d + 1;
    *done = true;
    return plan_convolution(p, node, &g, layout, run_transposed, false);
}

/* --- pooling ------------------------------------------------------------------------------------------------------ */

static tensor_status read_pool(struct geometry *g, const struct fl_net_node *node, const struct fl_array *x) {
    TRY(read_image(g, node, x));
    TRY(read_steps(g, node));
    TRY(read_list(node, "kernel_shape", g->spatial, g->window, 0, 1));
    for (int i = 0; i < g->spatial; i++)
        if (!g->window[i])
            return fl_fail(TENSOR_E_DATA, "kernel_shape is missing");
    return count_windows(g, node);
}

tensor_status fl_shape_pool(const struct fl_arrays *a) {
    struct geometry g;
    TRY(read_pool(&g, a->node, a->in[0]));
    return set_image(a, &g, g.channels);
}

struct pool {
    tensor_window how;
    bool padding_counts;
};

static tensor_status run_average(tensor *const *t, const void *with) {
    const struct pool *const pool = with;
    return tensor_avgpool2d(t[0], t[1], &pool->how, pool->padding_counts);
}

static tensor_status run_largest(tensor *const *t, const void *with) {
    return tensor_maxpool2d(t[0], t[1], &((const struct pool *)with)->how);
}

static tensor_status plan_pool(struct fl_planner *p, const struct fl_net_node *node, const struct geometry *g,
                               struct pool pool, fl_step_run *run) {
    struct fl_activation_of activation;
    int layout[TENSOR_MAX_DIMS];
    TRY(to_window(g, &pool.how));
    TRY(fl_activation_read(node, &activation));
    image_layout(node, 2 + g->spatial, layout);
    SLOT(x, as_image(p, fl_plan_operand(p, node, 0, layout)));
    SLOT(y, fl_activation_begin(p, node, &activation, layout));
    SLOT(image, as_image(p, y));
    const int slots[] = {image, x};
    TRY(fl_plan_step(p, node, run, 1, 2, slots, &pool, sizeof pool));
    return fl_activation_end(p, node, &activation, y, layout);
}

tensor_status fl_lower_max_pool(struct fl_planner *p, const struct fl_net_node *node, bool *done) {
    struct geometry g;
    if (!fl_plan_is_float(p, node, 0))
        return TENSOR_OK;
    TRY(read_pool(&g, node, &fl_plan_in(p, node, 0)->array));
    *done = true;
    return plan_pool(p, node, &g, (struct pool){.padding_counts = false}, run_largest);
}

/* Windows beyond the padding that the network states are those of ceil_mode: what lies there never counts. The library
 * has one rule for all padding, so that such a node, and one with dilation, is left to compute(). */
tensor_status fl_lower_average_pool(struct fl_planner *p, const struct fl_net_node *node, bool *done) {
    const bool counts = fl_net_int(node, "count_include_pad", 0) != 0;
    struct geometry g;
    if (!fl_plan_is_float(p, node, 0))
        return TENSOR_OK;
    TRY(read_pool(&g, node, &fl_plan_in(p, node, 0)->array));
    for (int i = 0; i < g.spatial; i++)
        if (g.dilation[i] != 1 || (counts && fl_net_int(node, "ceil_mode", 0)))
            return TENSOR_OK;
    *done = true;
    return plan_pool(p, node, &g, (struct pool){.padding_counts = counts}, run_average);
}

/* --- global pooling ----------------------------------------------------------------------------------------------- */

tensor_status fl_shape_global_pool(const struct fl_arrays *a) {
    struct geometry g;
    TRY(read_image(&g, a->node, a->in[0]));
    for (int i = 0; i < g.spatial; i++)
        g.result[i] = 1;
    return set_image(a, &g, g.channels);
}

static tensor_status run_global_average(tensor *const *t, const void *with) {
    (void)with;
    return tensor_avgpool_global(t[0], t[1]);
}

static tensor_status run_global_max(tensor *const *t, const void *with) {
    (void)with;
    return tensor_reduce_max(t[0], t[1], 1u << 1 | 1u << 2);
}

static tensor_status plan_global(struct fl_planner *p, const struct fl_net_node *node, fl_step_run *run, bool *done) {
    const struct fl_known *const k = fl_plan_in(p, node, 0);
    int layout[TENSOR_MAX_DIMS];
    if (!fl_plan_is_float(p, node, 0))
        return TENSOR_OK;
    image_layout(node, k->array.ndim, layout);
    SLOT(x, as_image(p, fl_plan_operand(p, node, 0, layout)));
    SLOT(y, fl_plan_result(p, node, 0, layout));
    int64_t dim[TENSOR_MAX_DIMS];
    fl_plan_shape(p, x, dim);
    SLOT(means, fl_plan_view(p, y, 2, (const int64_t[]){dim[0], dim[3]}));
    const int slots[] = {means, x};
    *done = true;
    return fl_plan_step(p, node, run, 1, 2, slots, NULL, 0);
}

tensor_status fl_lower_global_average_pool(struct fl_planner *p, const struct fl_net_node *node, bool *done) {
    return plan_global(p, node, run_global_average, done);
}

tensor_status fl_lower_global_max_pool(struct fl_planner *p, const struct fl_net_node *node, bool *done) {
    return plan_global(p, node, run_global_max, done);
}
