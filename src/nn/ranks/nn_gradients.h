/* nn_gradients.h - the gradients that a rank adds and sends, on the host: those of the network, or copies of those of a
 * network on another device. */
#ifndef FL_NN_GRADIENTS_H
#define FL_NN_GRADIENTS_H

#include "core/values/host_copies.h"
#include "nn/graph/nn_graph.h"

struct fl_gradients {
    nn_graph *g;
    struct fl_host_copies *copies; /* for each parameter of this rank's shards and the sum; NULL: on the host */
};

/* Of a compiled graph; what was made is freed by fl_gradients_free, also after a failure. */
tensor_status fl_gradients_make(struct fl_gradients *of, nn_graph *g);
void fl_gradients_free(struct fl_gradients *of);
/* The gradient of a parameter that one of this rank's shards has written, and the sum of those of all shards. */
tensor *fl_gradients_shard(const struct fl_gradients *of, int shard, int parameter);
tensor *fl_gradients_sum(const struct fl_gradients *of, int parameter);
/* Whether they are brought from a device: those of `count` parameters from number `first` on, once the tasks that write
 * them are queued; later tasks do not wait for it. */
bool fl_gradients_are_elsewhere(const struct fl_gradients *of);
tensor_status fl_gradients_begin(const struct fl_gradients *of, int first, int count, struct fl_fetch *fetch);
tensor_status fl_gradients_end(const struct fl_gradients *of, int first, int count, struct fl_fetch *fetch);
/* Brings the sums back; nothing on the host. */
tensor_status fl_gradients_return(const struct fl_gradients *of);

#endif
