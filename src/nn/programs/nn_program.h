/* nn_program.h - a graph on its way to a network of programs: what the kinds of nodes (nn_program_layers.c) add to it.
 */
#ifndef FL_NN_PROGRAM_H
#define FL_NN_PROGRAM_H

#include "nn/graph/nn_graph.h"
#include "program/network/network.h"

struct fl_translation {
    const nn_graph *g;
    struct fl_network *n;
    int *value;               /* of each handle of the graph; -1: none yet */
    bool *done;               /* of each node of the graph */
    const struct fl_node *at; /* the node at hand: its formats are those of the nodes that are added */
};

/* A kind of node as ONNX's operators; the values of its inputs exist. */
typedef tensor_status fl_translate(struct fl_translation *t, const struct fl_node *node);
/* NULL: programs have no such kind. */
fl_translate *fl_translate_find(const struct fl_node *node);

/* The value of an input. */
static inline int fl_value_in(const struct fl_translation *t, const struct fl_node *node, int input) {
    return t->value[node->input[input].x];
}
/* The node that computes an input, with conversions between formats passed over. */
const struct fl_node *fl_source_of(const struct fl_translation *t, const struct fl_node *node, int input);
/* A new value NAME, or NAME:PART, for what a node computes on its way; -1 without memory. */
int fl_value_new(struct fl_translation *t, const struct fl_node *node, const char *part);
/* The value of output 0, under the output's name, with the training's exponent. */
int fl_value_out(struct fl_translation *t, const struct fl_node *node);

/* Constants: numbers of a parameter with dimensions moved (order[d]: the dimension of the parameter that is dimension
 * d; NULL: as they are), a state, integers, one number. -1 on failure. */
int fl_value_parameter(struct fl_translation *t, const struct fl_node *node, int parameter, const int *order);
int fl_value_state(struct fl_translation *t, const struct fl_node *node, const char *suffix);
int fl_value_floats(struct fl_translation *t, const char *name, int ndim, const int64_t *dim, const double *numbers);
int fl_value_integers(struct fl_translation *t, const struct fl_node *node, const char *part, int count,
                      const int64_t *numbers);
/* The numbers of a parameter, the most exact ones that it has, to be freed; NULL on failure. */
double *fl_parameter_numbers(const struct fl_node *node, int parameter);

/* Adds a node of the network; inputs that are -1 are optional ones that are not given, at the end they are left out.
 * NULL on failure, also if a value that was just made is -2. */
struct fl_net_node *fl_emit(struct fl_translation *t, const char *op, const char *name, int y, int count,
                            const int *inputs);

/* In a function that returns a status: a value, or the failure of the call that was to give it. */
#define VALUE(name, call)                                                                                              \
    const int name = (call);                                                                                           \
    if (name < 0)                                                                                                      \
        return tensor_error_status();
#define EMIT(node, ...)                                                                                                \
    struct fl_net_node *const node = fl_emit(__VA_ARGS__);                                                             \
    if (!node)                                                                                                         \
        return tensor_error_status();
#define INPUTS(...)                                                                                                    \
    (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)), (const int[]) {                                                 \
        __VA_ARGS__                                                                                                    \
    }

#endif
