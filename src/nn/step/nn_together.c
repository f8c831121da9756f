/* nn_together.c - a step in stretches between normalisations of the batch, and the sums that all shards share. */
#include "nn/step/nn_together.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/ops/norms/part_norm.h"
#include "group/group.h"
#include "nn/shards/nn_shards.h"
#include "nn/step/nn_ranks.h"
#include "nn/step/nn_step.h"
#include <stdio.h>

tensor_status fl_together_make(nn_graph *g, struct fl_node *node) {
    if (!g->together || !node->layer->sum_forward)
        return TENSOR_OK;
    const struct fl_shape *shape = &node->output[0].shape;
    const int64_t channels = shape->dim[shape->ndim - 1], rows = fl_shape_count(shape) / channels * g->shards;
    if (rows > FL_PART_NORM_ROWS)
        return fl_fail(TENSOR_E_ARGUMENT, "batchnorm: %lld rows in %d shards, expected at most %lld if it is global",
                       (long long)rows, g->shards, (long long)FL_PART_NORM_ROWS);
    struct fl_together *t = node->together = fl_alloc_zero(sizeof *t);
    const size_t numbers = (size_t)channels * (size_t)(3 * g->shards + 4 + FL_PART_TERMS);
    const int own = fl_ranks_own(g);
    if (!t || !(t->all = fl_alloc_zero(numbers * sizeof *t->all)) ||
        !(t->of_shard = fl_alloc_zero((size_t)own * sizeof *t->of_shard)))
        return fl_fail(TENSOR_E_MEMORY, "graph: no memory for the sums of %d shards", g->shards);
    t->mean = t->all + 3 * channels * g->shards;
    t->variance = t->mean + channels;
    t->dy = t->variance + channels;
    t->about = t->dy + channels;
    t->sum_of_x = t->about + channels;
    t->channels = channels;
    t->rows = rows;
    for (int s = 0; s < own; s++)
        if (!(t->of_shard[s] = tensor_new_in(g->device, FMT_F64, TENSOR_SHAPE(3 * channels))))
            return tensor_error_status();
    t->sums = t->of_shard[0];
    t->sum_of_dy = tensor_new_in(g->device, FMT_F64, TENSOR_SHAPE(channels));
    t->about_mean = tensor_new_in(g->device, FMT_F64, TENSOR_SHAPE(channels));
    return t->sum_of_dy && t->about_mean ? TENSOR_OK : tensor_error_status();
}

void fl_together_free(const nn_graph *g, struct fl_node *node) {
    struct fl_together *t = node->together;
    if (!t)
        return;
    for (int s = 0; t->of_shard && s < fl_ranks_own(g); s++)
        tensor_free(t->of_shard[s]);
    fl_free(t->of_shard);
    tensor_free(t->sum_of_dy);
    tensor_free(t->about_mean);
    fl_group_free_memory(g->group, t->all);
    fl_free(t);
    node->together = NULL;
}

/* --- sums --------------------------------------------------------------------------------------------------------- */

/* Brings the sums of all shards to the host of each rank. */
static tensor_status share_sums(const nn_graph *g, struct fl_node *node) {
    struct fl_together *t = node->together;
    const int64_t numbers = 3 * t->channels;
    const int own = fl_ranks_own(g), first = fl_ranks_first(g);
    char what[FL_GROUP_WHAT];
    for (int s = 0; s < own; s++)
        TRY(tensor_store_f64(t->of_shard[s], t->all + (first + s) * numbers, numbers));
    snprintf(what, sizeof what, "sums of '%.30s' in step %llu", node->name, (unsigned long long)g->steps + 1);
    return g->ranks ? fl_group_share(g->group, what, t->all, own * numbers * (int64_t)sizeof *t->all) : TENSOR_OK;
}

static struct fl_parts parts_of(const nn_graph *g, const struct fl_node *node, const tensor *x) {
    const struct fl_together *t = node->together;
    return (struct fl_parts){t->all, g->shards, t->channels, t->rows, tensor_format_is_shared(tensor_format_of(x))};
}

static tensor_status join_forward(nn_graph *g, struct fl_node *node) {
    struct fl_together *t = node->together;
    TRY(share_sums(g, node));
    const struct fl_parts parts = parts_of(g, node, node->train.x[0]);
    fl_parts_moments(&parts, t->mean, t->variance, t->sum_of_x);
    return TENSOR_OK;
}

static tensor_status join_backward(nn_graph *g, struct fl_node *node) {
    struct fl_together *t = node->together;
    TRY(share_sums(g, node));
    const struct fl_parts parts = parts_of(g, node, node->back.x[0]);
    fl_parts_gradients(&parts, t->mean, t->sum_of_x, t->dy, t->about);
    TRY(tensor_load_f64(t->sum_of_dy, t->dy, t->channels));
    return tensor_load_f64(t->about_mean, t->about, t->channels);
}

/* The moments of the batch become those of the shard in place. */
static tensor_status take_moments(struct fl_node *node) {
    const struct fl_together *t = node->together;
    const struct fl_state *moments = &node->state[node->layer->moments];
    TRY(tensor_load_f64(moments[0].t, t->mean, t->channels));
    return tensor_load_f64(moments[1].t, t->variance, t->channels);
}

/* --- stretches ---------------------------------------------------------------------------------------------------- */

/* Each shard of the rank in turn: what lies from `first` to before `end`, and the sums of `end` or, at the end, the
 * loss. */
static tensor_status forward_stretch(nn_graph *g, fl_load_part load, const void *context, int first, int end) {
    g->stretch++;
    for (int s = 0; s < fl_ranks_own(g); s++) {
        const float *images = NULL;
        fl_shard_select(g, fl_ranks_first(g) + s);
        if (first == 0 || end == g->count)
            TRY(load(g, context, first == 0, &images));
        TRY(fl_load_step(g));
        if (g->nodes[first].together)
            TRY(take_moments(&g->nodes[first]));
        TRY(fl_forward_part(g, images, true, first, end));
        if (end == g->count) {
            TRY(fl_pass_loss(g));
        } else {
            g->nodes[end].together->sums = g->nodes[end].together->of_shard[s];
            TRY(fl_forward_sums(g, end));
        }
    }
    return TENSOR_OK;
}

tensor_status fl_together_forward(nn_graph *g, fl_load_part load, const void *context) {
    for (int first = 0, end; first < g->count; first = end) {
        for (end = first + 1; end < g->count && !g->nodes[end].together; end++)
            continue;
        TRY(forward_stretch(g, load, context, first, end));
        if (end < g->count)
            TRY(join_forward(g, &g->nodes[end]));
    }
    return TENSOR_OK;
}

static bool is_joined_backward(const nn_graph *g, int i) {
    return i >= 0 && g->nodes[i].together && g->nodes[i].learns;
}

/* The same from `first` down to after `end`, and the sums of `end` unless it is -1. entered: those of `first` are
 * known. */
static tensor_status backward_stretch(nn_graph *g, fl_load_part load, const void *context, int first, int end,
                                      bool entered) {
    g->stretch++;
    for (int s = 0; s < fl_ranks_own(g); s++) {
        const float *images = NULL;
        fl_shard_select(g, fl_ranks_first(g) + s);
        g->passed = s; /* gradients are sent while the last one writes them */
        if (g->tokens)
            TRY(load(g, context, false, &images));
        TRY(fl_load_step(g));
        TRY(fl_backward_part(g, first, end + 1, entered));
        if (end >= 0) {
            g->nodes[end].together->sums = g->nodes[end].together->of_shard[s];
            TRY(fl_backward_sums(g, end));
        }
    }
    return fl_ranks_queued(g, end + 1);
}

tensor_status fl_together_backward(nn_graph *g, fl_load_part load, const void *context) {
    bool entered = false;
    for (int first = g->count - 1, end; first >= 0; first = end, entered = true) {
        for (end = entered ? first - 1 : first; end >= 0 && !is_joined_backward(g, end); end--)
            continue;
        TRY(backward_stretch(g, load, context, first, end, entered));
        if (end >= 0)
            TRY(join_backward(g, &g->nodes[end]));
    }
    return TENSOR_OK;
}
