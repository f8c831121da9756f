/* index.h - who makes and who reads each value of a network, for passes; nodes that a pass took into others. */
#ifndef FL_PROGRAM_INDEX_H
#define FL_PROGRAM_INDEX_H

#include "program/network/network.h"

struct fl_index {
    struct fl_network *n;
    int value_count; /* values that a pass adds later have no entry: they have no maker and no reader */
    int *maker;      /* the node of the outer graph that computes a value; -1: none */
    int *reader;     /* a node that reads it */
    int *readers;    /* how many do; at least two for outputs, and where a nested graph reads it */
    bool *gone;      /* of each node */
};

/* In memory of the network. */
tensor_status fl_index_make(struct fl_index *index, struct fl_network *n);
/* Removes the nodes that are gone. */
void fl_index_end(struct fl_index *index);
/* The node that computes operand i; NULL: an input, a constant, or not given. */
struct fl_net_node *fl_index_maker(const struct fl_index *index, const struct fl_net_node *node, int operand);
/* The one node that reads a value, and as which operand; NULL if there are others, or if the value is an output. */
struct fl_net_node *fl_index_reader(const struct fl_index *index, int value, int *operand);
/* The constant of an operand; NULL: it is none. */
const struct fl_array *fl_index_constant(const struct fl_index *index, const struct fl_net_node *node, int operand);
/* Whether an operand is a constant of one float, and that float. */
bool fl_index_number(const struct fl_index *index, const struct fl_net_node *node, int operand, double *number);
/* Whether a node is ONNX's operator of that name, of that many operands, and not gone. */
bool fl_index_is(const struct fl_index *index, const struct fl_net_node *node, const char *op, int operands);

#endif
