/* index.c - see index.h. */
#include "program/passes/index.h"
#include "program/arrays/operators.h"
#include <string.h>

static void see(struct fl_index *index, const struct fl_net_graph *graph, int outer) {
    for (int k = 0; k < graph->node_count; k++) {
        const struct fl_net_node *const node = &graph->nodes[k];
        const int at = outer < 0 ? k : outer;
        for (int i = 0; i < node->output_count && outer < 0; i++)
            if (node->outputs[i] != -1)
                index->maker[node->outputs[i]] = k;
        for (int i = 0; i < node->input_count; i++)
            if (node->inputs[i] != -1) {
                index->readers[node->inputs[i]] += 1 + (outer >= 0);
                index->reader[node->inputs[i]] = at;
            }
        for (int a = 0; a < node->attribute_count; a++)
            if (node->attributes[a].graph)
                see(index, node->attributes[a].graph, at);
    }
    for (int i = 0; i < graph->output_count; i++)
        index->readers[graph->outputs[i]] += 2;
}

tensor_status fl_index_make(struct fl_index *index, struct fl_network *n) {
    const size_t values = (size_t)n->value_count;
    *index = (struct fl_index){.n = n,
                               .value_count = n->value_count,
                               .maker = fl_net_memory(n, values * sizeof *index->maker),
                               .reader = fl_net_memory(n, values * sizeof *index->reader),
                               .readers = fl_net_memory(n, values * sizeof *index->readers),
                               .gone = fl_net_memory(n, (size_t)n->graph.node_count * sizeof *index->gone)};
    if (!index->maker || !index->reader || !index->readers || !index->gone)
        return TENSOR_E_MEMORY;
    for (int v = 0; v < n->value_count; v++)
        index->maker[v] = index->reader[v] = -1;
    see(index, &n->graph, -1);
    return TENSOR_OK;
}

void fl_index_end(struct fl_index *index) {
    struct fl_net_graph *const graph = &index->n->graph;
    int left = 0;
    for (int k = 0; k < graph->node_count; k++)
        if (!index->gone[k])
            graph->nodes[left++] = graph->nodes[k];
    graph->node_count = left;
}

struct fl_net_node *fl_index_maker(const struct fl_index *index, const struct fl_net_node *node, int operand) {
    const int value = operand < node->input_count ? node->inputs[operand] : -1;
    return value < 0 || value >= index->value_count || index->maker[value] < 0
               ? NULL
               : &index->n->graph.nodes[index->maker[value]];
}

struct fl_net_node *fl_index_reader(const struct fl_index *index, int value, int *operand) {
    if (value >= index->value_count || index->readers[value] != 1)
        return NULL;
    struct fl_net_node *const node = &index->n->graph.nodes[index->reader[value]];
    for (int i = 0; i < node->input_count; i++)
        if (node->inputs[i] == value) {
            *operand = i;
            return node;
        }
    return NULL;
}

const struct fl_array *fl_index_constant(const struct fl_index *index, const struct fl_net_node *node, int operand) {
    return operand < node->input_count && node->inputs[operand] != -1 ? index->n->values[node->inputs[operand]].constant
                                                                      : NULL;
}

bool fl_index_number(const struct fl_index *index, const struct fl_net_node *node, int operand, double *number) {
    const struct fl_array *const a = fl_index_constant(index, node, operand);
    if (!a || a->count != 1 || !fl_type_is_float(a->type))
        return false;
    *number = fl_array_number(a, 0);
    return true;
}

bool fl_index_is(const struct fl_index *index, const struct fl_net_node *node, const char *op, int operands) {
    return node && !*node->domain && !strcmp(node->op, op) && node->input_count == operands &&
           !index->gone[node - index->n->graph.nodes];
}
