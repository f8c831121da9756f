/* nn_shards.h - the shards of a step. A batch of B samples is cut into S shards of B / S, in order; each shard passes
 * forward and backward in the memory of one, and the gradients of all are added once. What a step computes is defined
 * by B and S alone.
 *
 * Values, passes, states between forward and backward, and the gradients that backward writes exist once for each
 * shard, so that every exponent has a history of its own; their memory in the arena is the same. The graph has those of
 * one shard in place, where all code reads them, and fl_shard_select exchanges them. Weights, states that last, and the
 * optimiser's tensors exist once. With one shard there is nothing to exchange. */
#ifndef FL_NN_SHARDS_H
#define FL_NN_SHARDS_H

#include "nn/graph/nn_graph.h"

enum { FL_MOST_SHARDS = 1024 };

/* nn_shards.c */
/* Whether the settings can be computed in that many shards. */
tensor_status fl_shards_check(const nn_config *config);
/* The name of a tensor of the present shard: NAME, or NAME.shardI of several. */
char *fl_shard_name(const nn_graph *g, const char *name);
/* While a graph is compiled: allocates the list; keeps what is in place as shard g->shard, and begins the next one. */
tensor_status fl_shards_begin(nn_graph *g);
tensor_status fl_shard_keep(nn_graph *g);
/* Brings the tensors of a shard into place. The values of the shard before it are hidden. */
void fl_shard_select(nn_graph *g, int shard);
/* Calls a function for each shard in place. */
tensor_status fl_each_shard(nn_graph *g, tensor_status (*call)(nn_graph *g, void *context), void *context);
/* The gradient of a parameter, and a state that does not last, of a shard: by their numbers in the order of nodes. */
int fl_shard_gradients(const nn_graph *g); /* of a shard: the number of parameters */
tensor *fl_shard_gradient(const nn_graph *g, int shard, int parameter);
tensor *fl_shard_state(const nn_graph *g, int shard, int state);
/* The tensor of a value and its place in nn_tensor_at, of a shard; also of the only one. That of a gradient. */
tensor *fl_shard_value(const nn_graph *g, int shard, int value);
int fl_shard_info(const nn_graph *g, int shard, int value);
int fl_shard_gradient_info(const nn_graph *g, int shard, int parameter);
/* Frees all that exists for each shard. */
void fl_shards_free(nn_graph *g);

/* Begins the pass of the shard in place. share: its part of the loss, the labels that count in it of those of the whole
 * batch. */
tensor_status fl_shard_begin_pass(nn_graph *g, double share);
/* What is known of the loss of a shard: the tensors that its pass has written, and its share; or, of a shard of another
 * rank, the numbers that it has told: its part of the loss and its correct predictions. */
struct fl_told {
    const tensor *loss, *correct; /* NULL: told */
    double share, told_loss;
    int told_correct;
};
struct fl_told fl_shard_told(const nn_graph *g, int shard);
void fl_shard_tell(nn_graph *g, int shard, double loss, int correct);

/* The first shard of this rank, and how many it has: all, of one rank. */
static inline int fl_ranks_own(const nn_graph *g) {
    return g->shards / nn_group_size(g->group);
}
static inline int fl_ranks_first(const nn_graph *g) {
    return nn_group_rank(g->group) * fl_ranks_own(g);
}
static inline bool fl_is_own_shard(const nn_graph *g, int shard) {
    return shard >= fl_ranks_first(g) && shard < fl_ranks_first(g) + fl_ranks_own(g);
}

#endif
