/* network_parts.h - networks put together in memory, and programs of them as they are, without a pass. */
#ifndef FL_TEST_NETWORK_PARTS_H
#define FL_TEST_NETWORK_PARTS_H

#include "check.h"
#include "core/base/memory.h"
#include "program/network/network.h"
#include "program/operators.h"
#include "program/plan/program_object.h"
#include <string.h>

/* A program whose network is to be freed with it. */
static inline struct fl_program *program_of(struct fl_network *n) {
    struct fl_program *const p = fl_alloc_zero(sizeof *p);
    p->network = n;
    p->find = fl_operator_find;
    p->device = tensor_device_at(0);
    return p;
}

static inline int part_value(struct fl_network *n, int ndim, const int64_t *dim) {
    char name[20];
    snprintf(name, sizeof name, "v%d", n->value_count);
    const int value = fl_net_add_value(n, name);
    n->values[value].type = TENSOR_TYPE_F32;
    n->values[value].ndim = ndim;
    if (ndim > 0)
        memcpy(n->values[value].dim, dim, (size_t)ndim * sizeof *dim);
    return value;
}

/* Numbers in steps of 1/8 from -1 to 1. */
static inline int part_constant(struct fl_network *n, int ndim, const int64_t *dim, uint64_t *random) {
    const int value = part_value(n, ndim, dim);
    CHECK(!fl_net_array(n, &n->values[value].constant, TENSOR_TYPE_F32, ndim, dim), "%s", tensor_error());
    for (int64_t i = 0; i < n->values[value].constant->count; i++)
        ((float *)n->values[value].constant->data)[i] = (float)(check_random(random) % 17) / 8 - 1;
    return value;
}

/* The result of a node on up to five values. */
static inline int part_node(struct fl_network *n, const char *op, int count, const int *inputs) {
    char name[20];
    snprintf(name, sizeof name, "n%d", n->graph.node_count);
    const int value = part_value(n, -1, NULL);
    struct fl_net_node *const node = fl_net_add_node(n, &n->graph, op, name, count, 1, 0);
    memcpy(node->inputs, inputs, (size_t)count * sizeof *inputs);
    node->outputs[0] = value;
    return value;
}

static inline void part_ports(struct fl_network *n, int in_count, const int *in, int out_count, const int *out) {
    n->graph.input_count = in_count;
    n->graph.output_count = out_count;
    n->graph.inputs = fl_net_memory(n, (size_t)in_count * sizeof(int));
    n->graph.outputs = fl_net_memory(n, (size_t)out_count * sizeof(int));
    memcpy(n->graph.inputs, in, (size_t)in_count * sizeof *in);
    memcpy(n->graph.outputs, out, (size_t)out_count * sizeof *out);
}

#endif
