/* nn_compile.h - from a graph to a network that can be trained: the plan of its values, its tensors, their memory. */
#ifndef FL_NN_COMPILE_H
#define FL_NN_COMPILE_H

#include "nn/graph/nn_graph.h"

/* nn_make_parameter.c */
/* Makes the tensors of a parameter, with initial values. */
tensor_status fl_make_parameter(nn_graph *g, const struct fl_node *node, struct fl_parameter *p);
/* Makes what a parameter has for the shard in place. */
tensor_status fl_make_gradient(nn_graph *g, const struct fl_node *node, struct fl_parameter *p);

/* nn_plan.c: values and their lives. The logits are an output of the last node. */
tensor_status fl_plan(nn_graph *g);

/* nn_layout.c */
/* A hash of the names and shapes of everything, and of how the network is trained. */
uint64_t fl_graph_layout(const nn_graph *g);

/* nn_arena.c */
/* Lists which values begin and end at each position. */
tensor_status fl_list_positions(nn_graph *g);
/* TENSOR_E_MEMORY if the values of a step, labels and predictions take more bytes than the graph may take. */
tensor_status fl_check_values(const nn_graph *g);
/* Plans and allocates the arena, and gives values and calls their memory in it. */
tensor_status fl_make_arena(nn_graph *g);
/* A block of memory that is in use from position first to last, both included. */
struct fl_block {
    size_t bytes;
    int first, last;
    size_t offset; /* result, a multiple of FL_ALIGNMENT */
};
/* Places blocks so that no two in use at one position overlap; *total is the size of the arena. */
tensor_status fl_pack(struct fl_block *blocks, int count, size_t *total);

#endif
