/* network.h - the network of an experiment, for checks before the runs. */
#ifndef FLEXLAB_NETWORK_H
#define FLEXLAB_NETWORK_H

#include "results/experiment.h"

/* The layers of the model for batches of one image or sequence, in these formats, to be compiled with *logits, which is
 * below 0 if a layer failed; NULL: there is no network. */
nn_graph *network_layers(const struct experiment *x, nn_config config, nn_node *logits);
/* The network of a format on the processor, compiled; NULL with tensor_error(). */
nn_graph *network_of(const struct experiment *x, const struct series *s);

#endif
