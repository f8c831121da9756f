/* nn_state.h - the state on which later steps depend, tensor by tensor. */
#ifndef FL_NN_STATE_H
#define FL_NN_STATE_H

#include "nn/graph/nn_graph.h"

/* Every tensor of the state in one order; elements: with its elements and wide part, else only its slot. */
typedef tensor_status (*fl_visit_fn)(tensor *t, bool elements, void *context);
tensor_status fl_visit_state(const nn_graph *g, fl_visit_fn visit, void *context);
/* TENSOR_E_DATA where elements of these bytes, checked otherwise, are below 0 and t, of that state, has none such:
 * running variances, roots of mean squares. */
tensor_status fl_state_check_range(const nn_graph *g, const tensor *t, const void *bytes);
/* Checks the states of all tensors, in that order, and makes them those of the network. */
tensor_status fl_put_state(nn_graph *g, const char *states, uint64_t steps, const nn_loss_scale *scaling);

#endif
