/* nn_sequence.h - nodes of sequences that other files add. */
#ifndef FL_NN_SEQUENCE_H
#define FL_NN_SEQUENCE_H

#include "nn/graph/nn_graph.h"

/* A sequence as the matrix of its rows, called NAME.rows. */
nn_node fl_add_rows(nn_graph *g, const char *name, nn_node x);
/* Layers of a sequence with normal weights of that deviation: x w + b + residual, rounded once (residual -1: none); x
 * w. */
nn_node fl_add_normal_linear(nn_graph *g, const char *name, nn_node x, nn_node residual, int outputs, double deviation);
nn_node fl_add_normal_product(nn_graph *g, const char *name, nn_node x, int outputs, double deviation);
/* nn_linear of a sequence. */
nn_node fl_add_sequence_linear(nn_graph *g, const char *name, nn_node x, int outputs, bool relu);

#endif
