/* onnx_floats.c - types of results by operator. What a value or a constant states comes first; most operators give the
 * type of their first operand. */
#include "program/onnx/onnx_floats.h"
#include "program/arrays/operators.h"
#include <string.h>

enum kind {
    LIKE,    /* operand `of` */
    INTEGER, /* also bool */
    FLOAT,
    LIKE_FIRST,   /* the first result as operand 0, the others integers */
    FLOAT_SECOND, /* the second result alone */
    BY_NUMBER,    /* an attribute with ONNX's number of a type; without it as operand 0 */
    BY_ARRAY,     /* the attribute "value", an array; without it float */
    BY_GRAPH      /* the outputs of a branch */
};
static const struct rule {
    const char *op;
    enum kind kind;
    int of;
    const char *attribute;
} rules[] = {
    {"Shape", INTEGER, 0, NULL},
    {"Size", INTEGER, 0, NULL},
    {"NonZero", INTEGER, 0, NULL},
    {"ArgMax", INTEGER, 0, NULL},
    {"ArgMin", INTEGER, 0, NULL},
    {"Equal", INTEGER, 0, NULL},
    {"Greater", INTEGER, 0, NULL},
    {"GreaterOrEqual", INTEGER, 0, NULL},
    {"Less", INTEGER, 0, NULL},
    {"LessOrEqual", INTEGER, 0, NULL},
    {"And", INTEGER, 0, NULL},
    {"Or", INTEGER, 0, NULL},
    {"Xor", INTEGER, 0, NULL},
    {"Not", INTEGER, 0, NULL},
    {"IsNaN", INTEGER, 0, NULL},
    {"IsInf", INTEGER, 0, NULL},
    {"NonMaxSuppression", INTEGER, 0, NULL},
    {"QuantizeLinear", INTEGER, 0, NULL},
    {"QLinearConv", INTEGER, 0, NULL},
    {"QLinearMatMul", INTEGER, 0, NULL},
    {"ConvInteger", INTEGER, 0, NULL},
    {"MatMulInteger", INTEGER, 0, NULL},
    {"DequantizeLinear", FLOAT, 0, NULL},
    {"DynamicQuantizeLinear", FLOAT_SECOND, 0, NULL},
    {"MaxPool", LIKE_FIRST, 0, NULL},
    {"TopK", LIKE_FIRST, 0, NULL},
    {"Unique", LIKE_FIRST, 0, NULL},
    {"Dropout", LIKE_FIRST, 0, NULL},
    {"Cast", BY_NUMBER, 0, "to"},
    {"EyeLike", BY_NUMBER, 0, "dtype"},
    {"CastLike", LIKE, 1, NULL},
    {"Where", LIKE, 1, NULL},
    {"OneHot", LIKE, 2, NULL},
    {"ConstantOfShape", BY_ARRAY, 0, NULL},
    {"Constant", BY_ARRAY, 0, NULL},
    {"If", BY_GRAPH, 0, NULL},
};

static bool of_number(int64_t number) {
    return number == 1 || number == 10 || number == 11 || number == 16;
}

static bool result(const struct fl_network *n, const struct fl_net_node *node, int i, const bool *is_float) {
    const struct fl_net_attribute *a;
    const struct rule *rule = NULL;
    int of = 0;
    for (size_t k = 0; k < sizeof rules / sizeof rules[0] && !rule; k++)
        if (!strcmp(node->op, rules[k].op))
            rule = &rules[k];
    switch (rule ? rule->kind : LIKE) {
    case INTEGER:
        return false;
    case FLOAT:
        return true;
    case FLOAT_SECOND:
        return i == 1;
    case LIKE_FIRST:
        if (i)
            return false;
        break;
    case BY_NUMBER:
        a = fl_net_find(node, rule->attribute);
        if (a && a->kind == FL_NET_INT)
            return of_number(a->i);
        break;
    case BY_ARRAY:
        a = fl_net_find(node, "value");
        return !a || a->kind != FL_NET_ARRAY || fl_type_is_float(a->array->type);
    case BY_GRAPH:
        a = fl_net_find(node, "then_branch");
        return a && a->graph && i < a->graph->output_count && is_float[a->graph->outputs[i]];
    case LIKE:
        of = rule ? rule->of : 0;
        break;
    }
    if (of >= node->input_count || node->inputs[of] == -1)
        return true;
    const struct fl_net_value *const v = &n->values[node->inputs[of]];
    return v->type ? fl_type_is_float(v->type) : is_float[node->inputs[of]];
}

static void see_graph(const struct fl_network *n, const struct fl_net_graph *graph, bool *is_float) {
    for (int k = 0; k < graph->node_count; k++) {
        const struct fl_net_node *const node = &graph->nodes[k];
        for (int a = 0; a < node->attribute_count; a++)
            if (node->attributes[a].graph)
                see_graph(n, node->attributes[a].graph, is_float);
        for (int i = 0; i < node->output_count; i++)
            if (node->outputs[i] != -1 && !n->values[node->outputs[i]].type)
                is_float[node->outputs[i]] = result(n, node, i, is_float);
    }
}

void fl_onnx_floats(const struct fl_network *n, bool *is_float) {
    for (int v = 0; v < n->value_count; v++) {
        const struct fl_array *const constant = n->values[v].constant;
        const tensor_type type = constant ? constant->type : n->values[v].type;
        is_float[v] = !type || fl_type_is_float(type);
    }
    see_graph(n, &n->graph, is_float);
}
