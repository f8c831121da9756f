/* nn_types.h - which formats the parts of a network have. */
#ifndef FL_NN_TYPES_H
#define FL_NN_TYPES_H

#include "nn/graph/nn_graph.h"

/* Sets the formats of every node and parameter by the policy, after the last layer was added. */
tensor_status fl_resolve_types(nn_graph *g);
/* Nodes that convert, where a node reads another format than the one before it writes; the logits as the loss reads
 * them. */
tensor_status fl_insert_conversions(nn_graph *g, nn_node *logits);
bool fl_is_conversion(const struct fl_node *node);

#endif
