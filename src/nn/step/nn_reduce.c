/* nn_reduce.c - what follows the last pass of a step of several shards: their gradients are added, and the moments of
 * normalisations averaged. */
#include "core/base/fail.h"
#include "core/queue/part_write.h"
#include "nn/step/nn_ranks.h"
#include "nn/shards/nn_shards.h"
#include "nn/step/nn_step.h"

/* --- gradients ---------------------------------------------------------------------------------------------------- */

static tensor_status reduce_parameter(const nn_graph *g, struct fl_parameter *p, int number) {
    const tensor *terms[FL_MOST_SHARDS];
    for (int s = 0; s < g->shards; s++)
        terms[s] = fl_shard_gradient(g, s, number);
    return fl_write_sum(p->g, terms, g->shards);
}

static tensor_status reduce_gradients(nn_graph *g) {
    int number = 0;
    for (int i = 0; i < g->count; i++)
        for (int k = 0; k < g->nodes[i].parameters; k++) {
            struct fl_parameter *p = &g->nodes[i].parameter[k];
            const tensor_status status = g->ranks ? TENSOR_OK : reduce_parameter(g, p, number++);
            if (status)
                return fl_node_failed(&g->nodes[i], status);
            if (g->watch)
                g->watch(&g->infos[p->info + 1], g->watch_context);
        }
    return TENSOR_OK;
}

/* --- moments ------------------------------------------------------------------------------------------------------ */

/* The mean of a state over the shards becomes that of the shard in place, whose passes are over. */
static tensor_status average(const nn_graph *g, const struct fl_state *state, int number) {
    const tensor *terms[FL_MOST_SHARDS];
    for (int s = 0; s < g->shards; s++)
        terms[s] = fl_shard_state(g, s, number);
    return fl_store_mean(state->t, terms, g->shards);
}

static tensor_status settle(nn_graph *g) {
    int number = 0;
    for (int i = 0; i < g->count; i++) {
        struct fl_node *node = &g->nodes[i];
        for (int k = 0; k < node->states; k++) {
            if (node->state[k].lasts)
                continue;
            if (node->state[k].averaged && g->compiled)
                TRY(average(g, &node->state[k], number));
            number++;
        }
        if (node->layer->settle)
            TRY(node->layer->settle(node, &node->train));
    }
    return TENSOR_OK;
}

tensor_status fl_reduce(nn_graph *g) {
    TRY(reduce_gradients(g));
    return settle(g);
}
