/* nn_ranks.h - the shards of a step on several ranks (nn_group.h). Rank r of R computes shards r S / R ... (r + 1) S /
 * R - 1 one after the other; then the ranks exchange what a step needs of the shards of others, and make the same
 * update. What a rank has of the shards of others beside that (exponents, histories, statistics) it receives when
 * somebody reads it: fl_ranks_bring. */
#ifndef FL_NN_RANKS_H
#define FL_NN_RANKS_H

#include "nn/graph/nn_graph.h"

/* Whether the settings can be computed by the ranks of the group. */
tensor_status fl_ranks_check(const nn_config *config);
/* At the end of compilation: all ranks have the same network, of which `layout` is a hash, and room for what they
 * exchange. */
tensor_status fl_ranks_begin(nn_graph *g, uint64_t layout);
void fl_ranks_free(nn_graph *g);
/* Before the first pass of a step: gives up what one that failed has left under way. */
void fl_ranks_restart(nn_graph *g);
/* Backward of a node is over, and of all nodes after it: after this rank's last shard, their gradients are on their
 * way. Waits for nobody. */
tensor_status fl_ranks_written(const nn_graph *g, int node);
/* The same on a device, where the tasks of backward are queued. There the last shard's backward goes in pieces: the
 * node at which that from node `from` on ends, since a bucket of gradients is complete there, and its recording instead
 * of the one given. 0: the rest is one piece. */
tensor_status fl_ranks_queued(const nn_graph *g, int node);
int fl_ranks_piece(nn_graph *g, int from, struct fl_recording **recording);
/* After the last pass of this rank: tells losses and moments of its shards, and waits until all gradients are added,
 * each rank a part, and all have them. */
tensor_status fl_ranks_reduce(nn_graph *g);
/* Brings the slots of all shards to all ranks, which all call it; nothing to do for one rank. */
tensor_status fl_ranks_bring(const nn_graph *g);
/* The state was set: slots of other ranks are those of the file. */
void fl_ranks_forget(nn_graph *g);

#endif
