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
/* The gradients of all parameters from that number on are written on the host, in the order of nodes. Waits for nobody.
 */
tensor_status fl_exchange_written(struct fl_exchange *x, int from);
/* All gradients are written, those of another device on their way: waits until all are added. */
tensor_status fl_exchange_finish(struct fl_exchange *x);
/* Gives up what a step that failed has left under way; nothing, after one that did not. */
void fl_exchange_restart(struct fl_exchange *x);

#endif
