/* nn_together.h - shards that go through normalisations of the batch together. Before each such node, forward and
 * backward, every shard of the rank has computed what precedes it and the sums of its part; the sums of all shards of
 * all ranks are joined, and every shard goes on with those of the batch. What lies between two such nodes is a stretch,
 * which the shards compute one after the other. */
#ifndef FL_NN_TOGETHER_H
#define FL_NN_TOGETHER_H

#include "nn/graph/nn_graph.h"

/* While a graph is compiled: what a normalisation has of the batch. */
tensor_status fl_together_make(nn_graph *g, struct fl_node *node);
void fl_together_free(const nn_graph *g, struct fl_node *node);

/* Loads what the shard in place reads beside its values; first: in its first stretch, which also reads images. */
typedef tensor_status (*fl_load_part)(nn_graph *g, const void *context, bool first, const float **images);
tensor_status fl_together_forward(nn_graph *g, fl_load_part load, const void *context);
tensor_status fl_together_backward(nn_graph *g, fl_load_part load, const void *context);

#endif
