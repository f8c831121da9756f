/* join.c - relu, clips and residuals become a part of what is before them: the library adds and clips sums before it
 * rounds them. Quantised nodes stay as they are: each rounds its own result. */
#include "program/passes/index.h"
#include "program/passes/passes.h"
#include "core/base/fail.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static bool takes_activation(const struct fl_index *x, const struct fl_net_node *node) {
    static const char *const ops[] = {"Conv", "ConvTranspose", "Gemm", "Add"};
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++)
        if (!*node->domain && !strcmp(node->op, ops[i]) && !x->gone[node - x->n->graph.nodes])
            return !fl_net_find(node, "flexlab_activation");
    return false;
}

/* The node's result becomes that of the one reader, which is gone. */
static void replace(struct fl_index *x, struct fl_net_node *node, const struct fl_net_node *next) {
    node->outputs[0] = next->outputs[0];
    x->maker[next->outputs[0]] = (int)(node - x->n->graph.nodes);
    x->gone[next - x->n->graph.nodes] = true;
}

static tensor_status join_activation(struct fl_index *x, struct fl_net_node *node) {
    int operand;
    double low = -INFINITY, high = INFINITY;
    char text[80];
    const struct fl_net_node *const next =
        node->output_count == 1 ? fl_index_reader(x, node->outputs[0], &operand) : NULL;
    if (!next || operand || fl_net_is_quantised(x->n, node) || !takes_activation(x, node))
        return TENSOR_OK;
    if (fl_index_is(x, next, "Relu", 1)) {
        TRY(fl_net_set_string(x->n, node, "flexlab_activation", "Relu"));
    } else if (fl_index_is(x, next, "Clip", 3) && fl_index_number(x, next, 1, &low) &&
               fl_index_number(x, next, 2, &high) && low <= high) {
        snprintf(text, sizeof text, "Clip:%.9g:%.9g", low, high);
        TRY(fl_net_set_string(x->n, node, "flexlab_activation", text));
    } else {
        return TENSOR_OK;
    }
    TRY(fl_pass_note(x->n, PROGRAM_JOINED, next, node));
    replace(x, node, next);
    return TENSOR_OK;
}

/* Nobody but the sum reads the convolution, which takes the place of it: both operands are there before it. */
static tensor_status join_residual(struct fl_index *x, struct fl_net_node *conv) {
    int operand;
    struct fl_net_node *const next = fl_index_reader(x, conv->outputs[0], &operand);
    const struct fl_array *const w = fl_index_constant(x, conv, 1);
    if (!w || w->ndim > 4 || fl_net_is_quantised(x->n, conv) || !fl_index_is(x, conv, "Conv", 3) || !next ||
        !fl_index_is(x, next, "Add", 2) || fl_net_find(conv, "flexlab_activation") ||
        fl_net_find(next, "flexlab_activation"))
        return TENSOR_OK;
    const int other = next->inputs[1 - operand];
    const struct fl_net_node *const maker = fl_index_maker(x, next, 1 - operand);
    int *const inputs = fl_net_memory(x->n, 4 * sizeof *inputs);
    if (x->n->values[other].constant || other == conv->outputs[0] || !maker)
        return inputs ? TENSOR_OK : TENSOR_E_MEMORY;
    if (!inputs)
        return TENSOR_E_MEMORY;
    TRY(fl_pass_note(x->n, PROGRAM_JOINED, next, conv));
    memcpy(inputs, conv->inputs, 3 * sizeof *inputs);
    inputs[3] = other;
    conv->inputs = inputs;
    conv->input_count = 4;
    conv->outputs[0] = next->outputs[0];
    *next = *conv;
    x->gone[conv - x->n->graph.nodes] = true;
    return TENSOR_OK;
}

tensor_status fl_pass_join(struct fl_network *n) {
    struct fl_index x;
    TRY(fl_index_make(&x, n));
    for (int k = n->graph.node_count - 1; k >= 0; k--) /* of two convolutions that are added, the later one adds */
        if (!x.gone[k])
            TRY(join_residual(&x, &n->graph.nodes[k]));
    for (int k = 0; k < n->graph.node_count; k++)
        if (!x.gone[k])
            TRY(join_activation(&x, &n->graph.nodes[k]));
    fl_index_end(&x);
    return TENSOR_OK;
}
