/* nn_exchange.h - the gradients of all ranks, added while backward goes on: the exchange of a bucket of parameters
 * begins when the rank's last shard has written their gradients, and goes on between the layers. The numbers do not
 * depend on when it does. */
#ifndef FL_NN_EXCHANGE_H
#define FL_NN_EXCHANGE_H

#include "nn/graph/nn_graph.h"

struct fl_exchange;

/* Of a compiled graph whose group has several ranks. NULL: tensor_error() says why. */
struct fl_exchange *fl_exchange_new(nn_graph *g);
/* Gives up what is under way. NULL is allowed. */
void fl_exchange_free(struct fl_exchange *x);
/* The gradients of all parameters from that number on are written, or on another device the tasks that write them are
 * queued, in the order of nodes. Waits for nobody. */
tensor_status fl_exchange_written(struct fl_exchange *x, int from);
/* All tasks are queued: exchanges what comes from the device while it computes, and returns when it has written all
 * gradients. Nothing on the host. */
tensor_status fl_exchange_accompany(struct fl_exchange *x);
/* All gradients are written: waits until all are added. */
tensor_status fl_exchange_finish(struct fl_exchange *x);
/* The first parameter of a bucket, counted in the order in which backward writes them; 0 beyond the last. */
int fl_exchange_bucket(const struct fl_exchange *x, int number);
/* Gives up what a step that failed has left under way; nothing, after one that did not. */
void fl_exchange_restart(struct fl_exchange *x);

#endif
