/* windows.c - convolution and pooling of sequences and images in the library's order of dimensions; volumes are left to
 * compute(). */
#include "program/arrays/windows.h"
#include "program/lower/lower.h"
#include "core/base/fail.h"
#include <string.h>

enum { SPATIAL = 2 }; /* dimensions of an image of the library; a sequence is an image of height 1 */

/* The library's window of this geometry. */
static tensor_status to_window(const struct fl_windows *g, tensor_window *how) {
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
void fl_image_layout(const struct fl_net_node *node, int ndim, int *layout) {
    for (int d = 0; d < ndim; d++)
        layout[d] = node->channels_last || !d ? d : d == ndim - 1 ? 1 : d + 1;
}

/* A slot of an image or of filters of 3 dimensions as one of 4. */
int fl_as_image(struct fl_planner *p, int slot) {
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

static tensor_status run_sum(tensor *const *t, const void *with) {
    (void)with;
    return tensor_broadcast_add(t[0], t[1], t[2]);
}

/* Whether an operand can be added to the sums before they are rounded: it has the shape of the convolution. */
static bool joins_sums(const struct fl_planner *p, const struct fl_net_node *node, const struct fl_windows *g) {
    const struct fl_array *const added = &fl_plan_in(p, node, 3)->array;
    int64_t count = g->batch * g->filters;
    for (int i = 0; i < g->spatial; i++)
        count *= g->result[i];
    return added->count == count && added->ndim == 2 + g->spatial && fl_plan_out(p, node, 0)->count == count;
}

/* y, x, filters, bias, residual. A residual that is repeated is added in a step after the convolution, whose result is
 * then a tensor of the node. */
static tensor_status plan_convolution(struct fl_planner *p, const struct fl_net_node *node, const struct fl_windows *g,
                                      const int *filter_layout, fl_step_run *run, bool residual) {
    struct convolution c;
    struct fl_activation_of activation;
    int layout[TENSOR_MAX_DIMS];
    const int ndim = 2 + g->spatial;
    const bool apart = residual && !joins_sums(p, node, g);
    TRY(to_window(g, &c.how));
    c.how.window[0] = c.how.window[1] = 0;
    TRY(fl_activation_read(node, &activation));
    if (apart && activation.kind == FL_RELU)
        activation.kind = FL_RELU_AFTER;
    c.relu = activation.kind == FL_RELU;
    fl_image_layout(node, ndim, layout);
    SLOT(x, fl_as_image(p, fl_plan_operand(p, node, 0, layout)));
    SLOT(w, fl_as_image(p, fl_plan_operand(p, node, 1, filter_layout)));
    int bias = -1, added = -1, sums = -1;
    if (fl_plan_in(p, node, 2)) {
        bias = fl_plan_operand(p, node, 2, NULL);
        if (bias < 0)
            return tensor_error_status();
    }
    if (residual) {
        bool same;
        added = apart ? fl_repeated(p, node, 3, layout, &same) : fl_as_image(p, fl_plan_operand(p, node, 3, layout));
        if (added < 0)
            return tensor_error_status();
    }
    if (apart) {
        int64_t dim[2 + SPATIAL];
        dim[0] = g->batch;
        dim[ndim - 1] = g->filters;
        for (int i = 0; i < g->spatial; i++)
            dim[1 + i] = g->result[i];
        sums = fl_plan_temporary(p, node, ndim, dim);
        if (sums < 0)
            return tensor_error_status();
    }
    SLOT(y, fl_activation_begin(p, node, &activation, layout));
    SLOT(image, fl_as_image(p, apart ? sums : y));
    const int slots[] = {image, x, w, bias, apart ? -1 : added};
    TRY(fl_plan_step(p, node, run, 1, 5, slots, &c, sizeof c));
    if (apart) {
        const int sum[] = {y, sums, added};
        TRY(fl_plan_step(p, node, run_sum, 1, 3, sum, NULL, 0));
    }
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
    struct fl_windows g;
    int layout[TENSOR_MAX_DIMS];
    if (!all_floats(p, node))
        return TENSOR_OK;
    TRY(fl_windows_convolution(&g, node, &fl_plan_in(p, node, 0)->array, &fl_plan_in(p, node, 1)->array,
                               b ? &b->array : NULL));
    if (g.spatial > SPATIAL)
        return TENSOR_OK;
    fl_image_layout(node, 2 + g.spatial, layout); /* [K, C, R, S] as [K, R, S, C] */
    *done = true;
    return plan_convolution(p, node, &g, layout, run_convolution, added != NULL);
}

tensor_status fl_lower_conv_transpose(struct fl_planner *p, const struct fl_net_node *node, bool *done) {
    struct fl_windows g;
    int layout[TENSOR_MAX_DIMS];
    if (!all_floats(p, node))
        return TENSOR_OK;
    TRY(fl_windows_transposed(&g, node, &fl_plan_in(p, node, 0)->array, &fl_plan_in(p, node, 1)->array));
    if (g.spatial > SPATIAL)
        return TENSOR_OK;
    for (int d = 0; d < 2 + g.spatial; d++) /* [C, K, R, S] as [C, R, S, K] */
        layout[d] = !d ? 0 : d == 1 + g.spatial ? 1 : d + 1;
    *done = true;
    return plan_convolution(p, node, &g, layout, run_transposed, false);
}

/* --- pooling ------------------------------------------------------------------------------------------------------ */

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

static tensor_status plan_pool(struct fl_planner *p, const struct fl_net_node *node, const struct fl_windows *g,
                               struct pool pool, fl_step_run *run) {
    struct fl_activation_of activation;
    int layout[TENSOR_MAX_DIMS];
    TRY(to_window(g, &pool.how));
    TRY(fl_activation_read(node, &activation));
    fl_image_layout(node, 2 + g->spatial, layout);
    SLOT(x, fl_as_image(p, fl_plan_operand(p, node, 0, layout)));
    SLOT(y, fl_activation_begin(p, node, &activation, layout));
    SLOT(image, fl_as_image(p, y));
    const int slots[] = {image, x};
    TRY(fl_plan_step(p, node, run, 1, 2, slots, &pool, sizeof pool));
    return fl_activation_end(p, node, &activation, y, layout);
}

tensor_status fl_lower_max_pool(struct fl_planner *p, const struct fl_net_node *node, bool *done) {
    struct fl_windows g;
    if (!fl_plan_is_float(p, node, 0))
        return TENSOR_OK;
    TRY(fl_windows_pool(&g, node, &fl_plan_in(p, node, 0)->array));
    if (g.spatial > SPATIAL || (node->output_count > 1 && node->outputs[1] >= 0)) /* indices are asked for */
        return TENSOR_OK;
    *done = true;
    return plan_pool(p, node, &g, (struct pool){.padding_counts = false}, run_largest);
}

/* Windows beyond the padding that the network states are those of ceil_mode: what lies there never counts. The library
 * has one rule for all padding, so that such a node, and one with dilation, is left to compute(). */
tensor_status fl_lower_average_pool(struct fl_planner *p, const struct fl_net_node *node, bool *done) {
    const bool counts = fl_net_int(node, "count_include_pad", 0) != 0;
    struct fl_windows g;
    if (!fl_plan_is_float(p, node, 0))
        return TENSOR_OK;
    TRY(fl_windows_pool(&g, node, &fl_plan_in(p, node, 0)->array));
    for (int i = 0; i < g.spatial; i++)
        if (g.dilation[i] != 1 || (counts && g.beyond[i]) || g.spatial > SPATIAL)
            return TENSOR_OK;
    *done = true;
    return plan_pool(p, node, &g, (struct pool){.padding_counts = counts}, run_average);
}

/* --- global pooling ----------------------------------------------------------------------------------------------- */

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
    if (!fl_plan_is_float(p, node, 0) || k->array.ndim > 2 + SPATIAL)
        return TENSOR_OK;
    fl_image_layout(node, k->array.ndim, layout);
    SLOT(x, fl_as_image(p, fl_plan_operand(p, node, 0, layout)));
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
