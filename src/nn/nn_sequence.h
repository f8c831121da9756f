/* nn_sequence.h - nodes of sequences that other files add. */
#ifndef FL_NN_SEQUENCE_H
#define FL_NN_SEQUENCE_H

#include "nn/nn_graph.h"

/* A sequence as the matrix of its rows, called NAME.rows. */
nn_node fl_add_rows(nn_graph *g, const char *name, nn_node x);
/* nn_linear and nn_linear_relu of a sequence. */
nn_node fl_add_sequence_linear(nn_graph *g, const char *name, nn_node x, int outputs, bool relu);

#endif
