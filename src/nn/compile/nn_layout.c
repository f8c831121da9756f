/* nn_layout.c - one number for all that defines what a network computes: a checkpoint has it, and ranks compare theirs.
 */
#include "nn/compile/nn_compile.h"
#include "core/base/hash.h"
#include "nn/shards/nn_shards.h"
#include "nn/step/nn_step.h"
#include <string.h>

static uint64_t mix_shape(uint64_t hash, const struct fl_shape *shape) {
    return fl_hash(hash, shape->dim, (size_t)shape->ndim * sizeof shape->dim[0]);
}

static bool is_square(const tensor_window2d *w) {
    const int *p = w->padding;
    return w->stride[1] && w->window[0] == w->window[1] && w->stride[0] == w->stride[1] && p[0] == p[1] &&
           p[0] == p[2] && p[0] == p[3] && w->dilation[0] == w->dilation[1] && !w->output_padding[0] &&
           !w->output_padding[1];
}

/* Kind, options, inputs, outputs and states of a node; its parameters are in the list of tensors. */
static uint64_t mix_node(uint64_t hash, const struct fl_node *node) {
    const struct fl_options *how = &node->how;
    const tensor_window2d *around = &how->around;
    const bool square = is_square(around);
    const int32_t numbers[] = {how->outputs,
                               square ? around->window[0] : how->window,
                               square ? around->stride[0] : how->stride,
                               square ? around->padding[0] : how->padding,
                               square ? around->dilation[0] : how->dilation,
                               square ? around->groups : how->groups,
                               node->layer->relu,
                               node->inputs,
                               node->outputs,
                               node->states};
    hash = fl_hash(hash, node->layer->kind, strlen(node->layer->kind) + 1);
    hash = fl_hash(hash, numbers, sizeof numbers);
    /* default settings preserve the hash of older versions */
    if (how->padding_counts || how->real[0] != 0 || how->real[1] != 0 || how->real[2] != 0) {
        const double settings[] = {how->real[0] + 0.0, how->real[1] + 0.0, how->real[2] + 0.0, how->padding_counts};
        hash = fl_hash(hash, settings, sizeof settings);
    }
    if (around->stride[1] && !square) /* other nodes have the hash of older versions */
        hash = fl_hash(hash, around, sizeof *around);
    if (how->axes || how->low != 0 || how->high != 0) { /* of kinds that have them */
        const int32_t axes[] = {(int32_t)how->axes, how->keeps};
        const float bounds[] = {how->low, how->high};
        hash = fl_hash(fl_hash(hash, axes, sizeof axes), bounds, sizeof bounds);
    }
    for (int k = 0; k < node->inputs; k++)
        hash = fl_hash(hash, &node->input[k].x, sizeof node->input[k].x);
    for (int k = 0; k < node->outputs; k++)
        hash = mix_shape(hash, &node->output[k].shape);
    for (int k = 0; k < node->states; k++) {
        const struct fl_state *s = &node->state[k];
        const int32_t kind[] = {(int32_t)s->format, s->lasts};
        hash = fl_hash(hash, s->suffix, strlen(s->suffix) + 1);
        hash = fl_hash(hash, kind, sizeof kind);
        hash = mix_shape(hash, &s->shape);
    }
    return hash;
}

/* Plain gradient descent has the hash of older versions. */
static uint64_t mix_optimiser(uint64_t hash, const struct fl_optimiser *o) {
    const struct {
        float beta1, beta2, epsilon, clip_value, clip_norm;
        int32_t kind, nesterov, narrow, decays_all;
    } how = {o->how.beta1,         o->how.beta2, o->how.epsilon, o->clip_value, o->how.clip_norm,
             (int32_t)o->how.kind, o->nesterov,  o->narrow,      o->decays_all};
    return o->plain && !(o->clip_value > 0) && o->decays_all ? hash : fl_hash(hash, &how, sizeof how);
}

/* So has plain cross-entropy. */
static uint64_t mix_objective(uint64_t hash, const struct fl_objective *o) {
    const struct {
        float smoothing, delta;
        int32_t kind, ignored, ignores, input_gradient;
    } how = {o->smoothing, o->delta, (int32_t)o->kind, o->ignored, o->ignores, o->input_gradient};
    const bool plain = o->kind == FL_LOSS_CROSS_ENTROPY && !(o->smoothing > 0) && !o->ignores && !o->input_gradient;
    return plain ? hash : fl_hash(hash, &how, sizeof how);
}

static uint64_t mix_scaling(uint64_t hash, const nn_graph *g) {
    char text[FL_SCALE_TEXT];
    if (g->scaling.kind == FL_SCALE_NONE) /* the hash of older versions */
        return hash;
    fl_loss_scale_text(g, text);
    return fl_hash(hash, text, strlen(text));
}

uint64_t fl_graph_layout(const nn_graph *g) {
    uint64_t hash = FL_HASH;
    for (int i = 0; i < g->info_count; i++) {
        const nn_tensor_info *info = &g->infos[i];
        hash = fl_hash(hash, info->name, strlen(info->name) + 1);
        for (int d = 0; d < tensor_ndim(info->t); d++) {
            const int64_t size = tensor_dim(info->t, d);
            hash = fl_hash(hash, &size, sizeof size);
        }
    }
    for (int i = 0; i < g->count; i++)
        hash = mix_node(hash, &g->nodes[i]);
    const char *predictor = g->predictor ? g->predictor : "";
    hash = fl_hash(hash, predictor, strlen(predictor) + 1);
    const struct {
        uint64_t seed;
        float momentum, weight_decay;
        int32_t batch, wide;
    } how = {g->seed, g->optimiser.how.momentum, g->optimiser.how.weight_decay, fl_whole_batch(g), g->wide};
    hash = mix_objective(mix_optimiser(fl_hash(hash, &how, sizeof how), &g->optimiser), &g->objective);
    const char *policy = nn_graph_policy(g); /* a network of one variant has the hash of older versions */
    return mix_scaling(policy ? fl_hash(hash, policy, strlen(policy)) : hash, g);
}
