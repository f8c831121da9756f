/* quantised.c - the ways in which ONNX files say that a network computes with integers of 8 bits, brought into one
 * (network.h): a plain operator between quantised values.
 *
 *   DequantizeLinear -> operator -> QuantizeLinear   becomes the operator;
 *   QLinearConv, QLinearMatMul                       become Conv and MatMul;
 *   com.microsoft's QLinearAdd, QGemm, ...           become the first form, and then as that does.
 *
 * What has scales that are no constants, or weights that are none, stays as it is: operators on arrays of the host
 * compute it. Integers that some operator takes as plain numbers (ConvInteger, a sum of integers), or of which two
 * nodes say different things, have no quantisation anywhere.
 *
 * Source: onnxruntime, docs/ContribOperators.md and core/optimizer/qdq_transformer. */
#include "program/passes/index.h"
#include "program/passes/passes.h"
#include "program/arrays/operators.h"
#include "core/base/fail.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static bool is(const struct fl_net_node *node, const char *op) {
    return !*node->domain && !strcmp(node->op, op);
}

static bool is_one_of(const struct fl_net_node *node, const char *const *ops) {
    for (; *ops; ops++)
        if (is(node, *ops))
            return true;
    return false;
}

static bool is_byte(tensor_type type) {
    return type == TENSOR_TYPE_I8 || type == TENSOR_TYPE_U8;
}

static bool is_given(const struct fl_net_node *node, int operand) {
    return operand < node->input_count && node->inputs[operand] != -1;
}

/* --- onnxruntime's own operators, spelt out ------------------------------------------------------------------------
 */

static const struct spelling {
    const char *op, *plain;
    int operands, first, y_scale, y_zero; /* operands: value, scale, zero point, from `first` on; 0: as many as given */
} spellings[] = {
    {"QLinearAdd", "Add", 2, 0, 6, 7},
    {"QLinearMul", "Mul", 2, 0, 6, 7},
    {"QLinearAveragePool", "AveragePool", 1, 0, 3, 4},
    {"QLinearGlobalAveragePool", "GlobalAveragePool", 1, 0, 3, 4},
    {"QLinearSigmoid", "Sigmoid", 1, 0, 3, 4},
    {"QLinearLeakyRelu", "LeakyRelu", 1, 0, 3, 4},
    {"QLinearSoftmax", "Softmax", 1, 0, 3, 4},
    {"QLinearConcat", "Concat", 0, 2, 0, 1},
    {"QGemm", "Gemm", 2, 0, 7, 8},
};

static const struct fl_array *constant(const struct fl_network *n, const struct fl_net_node *node, int operand) {
    return is_given(node, operand) ? n->values[node->inputs[operand]].constant : NULL;
}

static int named_value(struct fl_network *n, const char *like, const char *ending) {
    char name[400];
    snprintf(name, sizeof name, "%.300s.%.80s", like, ending);
    return fl_net_add_value(n, name);
}

/* DequantizeLinear or QuantizeLinear at the end of the graph; the result is a new value, or `to`. -1 without memory. */
static int add_border(struct fl_network *n, const char *op, const char *like, int from, int scale, int zero, int axis,
                      int to) {
    char name[400];
    snprintf(name, sizeof name, "%.300s.%.80s%d", like, op, n->graph.node_count);
    const int result = to >= 0 ? to : named_value(n, name, "result");
    struct fl_net_node *const node =
        result < 0 ? NULL : fl_net_add_node(n, &n->graph, op, name, zero < 0 ? 2 : 3, 1, 0);
    if (!node || fl_net_set_int(n, node, "axis", axis))
        return -1;
    node->inputs[0] = from;
    node->inputs[1] = scale;
    if (zero >= 0)
        node->inputs[2] = zero;
    return node->outputs[0] = result;
}

/* A bias of QGemm has the product of the scales of its operands; -1: these are no constants. */
static int scale_of_bias(struct fl_network *n, const struct fl_net_node *node) {
    const struct fl_array *const left = constant(n, node, 1), *const right = constant(n, node, 4);
    struct fl_array *scale;
    if (!left || !right || left->type != TENSOR_TYPE_F32 || right->type != TENSOR_TYPE_F32 || left->count != 1 ||
        fl_net_array(n, &scale, TENSOR_TYPE_F32, right->count > 1, &right->count))
        return -1;
    for (int64_t i = 0; i < right->count; i++)
        ((float *)scale->data)[i] = *(const float *)left->data * ((const float *)right->data)[i];
    return fl_net_add_constant(n, n->values[node->inputs[6]].name, scale);
}

static bool may_spell(struct fl_network *n, const struct fl_net_node *node, const struct spelling *s) {
    const bool softmax = !strcmp(s->plain, "Softmax");
    if (!is_given(node, s->y_scale) || !is_given(node, s->y_zero) || node->output_count != 1 || node->outputs[0] == -1)
        return false;
    if (softmax && fl_net_int(node, "opset", 13) < 13 && fl_net_int(node, "axis", 1) != -1)
        return false;
    if (!s->operands)
        return node->input_count >= 5 && (node->input_count - 2) % 3 == 0;
    for (int i = 0; i < s->operands; i++)
        if (!is_given(node, s->first + 3 * i) || !is_given(node, s->first + 3 * i + 1))
            return false;
    return strcmp(s->op, "QGemm") != 0 || !is_given(node, 6) ||
           (constant(n, node, 1) && constant(n, node, 4) && constant(n, node, 1)->count == 1);
}

static tensor_status spell(struct fl_network *n, int k, const struct spelling *s) {
    const struct fl_net_node old = n->graph.nodes[k];
    const bool gemm = !strcmp(s->op, "QGemm"), bias = gemm && is_given(&old, 6);
    const int operands = s->operands ? s->operands : (old.input_count - s->first) / 3, count = operands + bias;
    int *const inputs = fl_net_memory(n, (size_t)count * sizeof *inputs);
    int *const output = fl_net_memory(n, sizeof *output);
    if (!inputs || !output)
        return TENSOR_E_MEMORY;
    for (int i = 0; i < operands; i++) {
        const int at = s->first + 3 * i, axis = gemm && fl_net_int(&old, "transB", 0) ? 0 : 1;
        const int zero = is_given(&old, at + 2) ? old.inputs[at + 2] : -1;
        inputs[i] = add_border(n, "DequantizeLinear", old.name, old.inputs[at], old.inputs[at + 1], zero, axis, -1);
        if (inputs[i] < 0)
            return TENSOR_E_MEMORY;
    }
    if (bias) {
        const int scale = scale_of_bias(n, &old);
        inputs[operands] =
            scale < 0 ? -1 : add_border(n, "DequantizeLinear", old.name, old.inputs[6], scale, -1, 0, -1);
        if (inputs[operands] < 0)
            return TENSOR_E_MEMORY;
    }
    *output = named_value(n, old.name, "result");
    if (*output < 0 || add_border(n, "QuantizeLinear", old.name, *output, old.inputs[s->y_scale], old.inputs[s->y_zero],
                                  1, old.outputs[0]) < 0)
        return TENSOR_E_MEMORY;
    struct fl_net_node *const node = &n->graph.nodes[k];
    node->op = s->plain;
    node->domain = "";
    node->inputs = inputs;
    node->input_count = count;
    node->outputs = output;
    node->channels_last = fl_net_int(node, "channels_last", 0) != 0;
    fl_net_drop(node, "channels_last");
    fl_net_drop(node, "opset");
    return TENSOR_OK;
}

static tensor_status spell_all(struct fl_network *n) {
    const int count = n->graph.node_count;
    for (int k = 0; k < count; k++)
        for (size_t i = 0; i < sizeof spellings / sizeof spellings[0]; i++) {
            const struct fl_net_node *const node = &n->graph.nodes[k];
            if (!strcmp(node->domain, "com.microsoft") && !strcmp(node->op, spellings[i].op) &&
                may_spell(n, node, &spellings[i])) {
                TRY(spell(n, k, &spellings[i]));
                break;
            }
        }
    return n->graph.node_count > count ? fl_net_check(n) : TENSOR_OK;
}

/* --- which values are quantised ------------------------------------------------------------------------------------
 */

/* Values between which integers only move are of one class: the last of a chain of `same` has what is known of it.
 * Those that have a quantisation already stay as they are. */
struct quantiser {
    struct fl_index x;
    int *same;
    struct class {
        struct fl_quantisation *quantisation; /* NULL: none yet */
        tensor_type type;
        bool plain; /* an operator computes with them as plain numbers */
    } * classes;
};

/* Operators that move integers, or choose among them. */
static const char *const movers[] = {"Reshape",  "Flatten", "Transpose", "Squeeze", "Unsqueeze",
                                     "Identity", "MaxPool", "Slice",     "Concat",  NULL};

static int class_of(const struct quantiser *q, int value) {
    while (q->same[value] != value)
        value = q->same[value] = q->same[q->same[value]];
    return value;
}

static bool is_linear(const struct fl_net_node *node) {
    return is(node, "QLinearConv") || is(node, "QLinearMatMul");
}

/* Whether a node's scales and zero points are constants, and the weights of QLinearConv and QLinearMatMul. */
static bool is_fixed(const struct fl_network *n, const struct fl_net_node *node) {
    const bool linear = is_linear(node);
    for (int i = 1; i < node->input_count; i++)
        if (node->inputs[i] != -1 && !constant(n, node, i))
            return false;
    return node->input_count >= (linear ? 8 : 2) && !fl_net_int(node, "block_size", 0);
}

static void note_plain(struct quantiser *q, const struct fl_net_graph *graph, bool nested) {
    static const char *const harmless[] = {"QuantizeLinear", "DequantizeLinear", "QLinearConv", "QLinearMatMul", NULL};
    for (int k = 0; k < graph->node_count; k++) {
        const struct fl_net_node *const node = &graph->nodes[k];
        const bool moves = is_one_of(node, movers), asks = is(node, "Shape") || is(node, "Size");
        const bool plain = nested || (!moves && !asks && !(is_one_of(node, harmless) && is_fixed(q->x.n, node)));
        for (int i = 0; i < node->input_count && plain; i++)
            if (node->inputs[i] != -1)
                q->classes[class_of(q, node->inputs[i])].plain = true;
        for (int i = 0; i < node->output_count; i++)
            if (node->outputs[i] != -1 && (plain || (moves && i)))
                q->classes[class_of(q, node->outputs[i])].plain = true;
        for (int a = 0; a < node->attribute_count; a++)
            if (node->attributes[a].graph)
                note_plain(q, node->attributes[a].graph, true);
    }
}

static tensor_status make(struct quantiser *q, struct fl_network *n) {
    TRY(fl_index_make(&q->x, n));
    q->same = fl_net_memory(n, (size_t)n->value_count * sizeof *q->same);
    q->classes = fl_net_memory(n, (size_t)n->value_count * sizeof *q->classes);
    if (!q->same || !q->classes)
        return TENSOR_E_MEMORY;
    for (int v = 0; v < n->value_count; v++)
        q->same[v] = v;
    for (int k = 0; k < n->graph.node_count; k++) {
        const struct fl_net_node *const node = &n->graph.nodes[k];
        const int moved = is(node, "Concat") ? node->input_count : 1;
        for (int i = 0; is_one_of(node, movers) && i < moved && i < node->input_count; i++)
            if (node->inputs[i] != -1 && node->output_count && node->outputs[0] != -1 &&
                !n->values[node->inputs[i]].constant && !n->values[node->inputs[i]].quantisation &&
                !n->values[node->outputs[0]].quantisation)
                q->same[class_of(q, node->inputs[i])] = class_of(q, node->outputs[0]);
    }
    note_plain(q, &n->graph, false);
    return TENSOR_OK;
}

static bool is_same(const struct fl_quantisation *a, const struct fl_quantisation *b) {
    return a->count == 1 && b->count == 1 && a->scale[0] == b->scale[0] && a->zero[0] == b->zero[0];
}

/* Notes what a node says of a value. Who says something else makes the integers plain numbers. */
static void claim(struct quantiser *q, int value, struct fl_quantisation *as, tensor_type type) {
    struct class *const c = &q->classes[class_of(q, value)];
    const tensor_type stated = q->x.n->values[value].type;
    if (q->x.n->values[value].constant)
        return;
    c->plain |= !as || !is_byte(type) || (stated && stated != type) || (c->type && c->type != type) ||
                (c->quantisation && !is_same(c->quantisation, as));
    c->quantisation = as;
    c->type = type;
}

static const struct fl_quantisation *quantisation_of(const struct quantiser *q, int value) {
    return value < q->x.value_count && !q->x.n->values[value].constant ? q->classes[class_of(q, value)].quantisation
                                                                       : NULL;
}

/* Scale and zero point of a node as constants: one, or `count` if that is more than 1. type: of the zero points, if
 * they are given. NULL: they are not so. */
static struct fl_quantisation *levels(const struct quantiser *q, const struct fl_net_node *node, int scale, int zero,
                                      int64_t count, tensor_type *type) {
    struct fl_network *const n = q->x.n;
    const struct fl_array *const s = constant(n, node, scale), *const z = constant(n, node, zero);
    if (!s || s->type != TENSOR_TYPE_F32 || (s->count != 1 && (s->count != count || s->ndim != 1)) ||
        (is_given(node, zero) && (!z || (z->count != 1 && z->count != s->count))))
        return NULL;
    struct fl_quantisation *const made = fl_net_memory(n, sizeof *made);
    float *const scales = made ? fl_net_memory(n, (size_t)s->count * sizeof *scales) : NULL;
    int32_t *const zeros = scales ? fl_net_memory(n, (size_t)s->count * sizeof *zeros) : NULL;
    if (!zeros)
        return NULL;
    *made = (struct fl_quantisation){.count = (int)s->count, .scale = scales, .zero = zeros};
    for (int64_t i = 0; i < s->count; i++) {
        scales[i] = ((const float *)s->data)[i];
        zeros[i] = z ? (int32_t)fl_array_integer(z, z->count > 1 ? i : 0) : 0;
        if (!(scales[i] > 0) || !isfinite(scales[i]))
            return NULL;
    }
    if (z)
        *type = z->type;
    return made;
}

static void claim_levels(struct quantiser *q, const struct fl_net_node *node, int value, int scale, int zero,
                         tensor_type type) {
    if (value == -1)
        return;
    struct fl_quantisation *const as = levels(q, node, scale, zero, 1, &type);
    claim(q, value, as, type);
}

/* Notes what nodes say of the integers that they read and give. */
static void note_levels(struct quantiser *q) {
    for (int k = 0; k < q->x.n->graph.node_count; k++) {
        const struct fl_net_node *const node = &q->x.n->graph.nodes[k];
        if (node->output_count != 1 || !node->input_count || !is_fixed(q->x.n, node))
            continue;
        const int64_t stated = fl_net_int(node, "output_dtype", 0);
        const tensor_type type = !stated || stated == 2 ? TENSOR_TYPE_U8 : stated == 3 ? TENSOR_TYPE_I8 : 0;
        if (is(node, "QuantizeLinear")) {
            claim_levels(q, node, node->outputs[0], 1, 2, type);
        } else if (is(node, "DequantizeLinear")) {
            claim_levels(q, node, node->inputs[0], 1, 2, TENSOR_TYPE_U8);
        } else if (is_linear(node)) {
            claim_levels(q, node, node->inputs[0], 1, 2, 0);
            claim_levels(q, node, node->outputs[0], 6, 7, 0);
        }
    }
}

/* --- constants -----------------------------------------------------------------------------------------------------
 */

static bool has_one_zero(const struct fl_quantisation *a) {
    for (int i = 1; i < a->count; i++)
        if (a->zero[i] != a->zero[0])
            return false;
    return true;
}

/* Quantised weights: a new value of the numbers of a constant. -1: they are not of the kind that kernels have. */
static int weights(const struct quantiser *q, int value, struct fl_quantisation *as, int axis) {
    struct fl_network *const n = q->x.n;
    struct fl_array *const w = n->values[value].constant;
    if (!w || !is_byte(w->type) || !as || !has_one_zero(as) || (as->count > 1 && as->count != w->dim[axis]))
        return -1;
    as->axis = axis;
    const int made = fl_net_add_constant(n, n->values[value].name, w);
    if (made >= 0)
        n->values[made].quantisation = as;
    return made;
}

/* A bias of int32 at the product of two scales. */
static int bias(const struct quantiser *q, int value, const struct fl_quantisation *x, const struct fl_quantisation *w,
                struct fl_quantisation *as) {
    struct fl_network *const n = q->x.n;
    struct fl_array *const b = n->values[value].constant;
    if (!b || b->type != TENSOR_TYPE_I32 || b->ndim != 1)
        return -1;
    if (!as) { /* as QLinearConv has it */
        as = fl_net_memory(n, sizeof *as);
        float *const scale = fl_net_memory(n, (size_t)w->count * sizeof *scale);
        int32_t *const zero = fl_net_memory(n, (size_t)w->count * sizeof *zero);
        if (!as || !scale || !zero)
            return -1;
        for (int i = 0; i < w->count; i++)
            scale[i] = x->scale[0] * w->scale[i];
        *as = (struct fl_quantisation){.count = w->count, .scale = scale, .zero = zero};
    }
    for (int i = 0; i < as->count || i < w->count; i++) {
        const double product = (double)x->scale[0] * (double)w->scale[w->count > 1 ? i : 0];
        const double scale = (double)as->scale[as->count > 1 ? i : 0];
        if (as->zero[as->count > 1 ? i : 0] || fabs(scale - product) > 0x1p-10 * product)
            return -1;
    }
    as->axis = 0;
    const int made = fl_net_add_constant(n, n->values[value].name, b);
    if (made >= 0)
        n->values[made].quantisation = as;
    return made;
}

static tensor_status set_inputs(struct quantiser *q, struct fl_net_node *node, int count, const int *inputs) {
    int *const list = fl_net_memory(q->x.n, (size_t)count * sizeof *list);
    if (!list)
        return TENSOR_E_MEMORY;
    memcpy(list, inputs, (size_t)count * sizeof *list);
    node->inputs = list;
    node->input_count = count;
    return TENSOR_OK;
}

/* --- QLinearConv, QLinearMatMul ------------------------------------------------------------------------------------
 */

/* The operands of such a node as Conv or MatMul; those of one that cannot be either are plain numbers. */
static tensor_status linear_operands(struct quantiser *q, const struct fl_net_node *node, int **inputs) {
    struct fl_network *const n = q->x.n;
    const bool conv = is(node, "QLinearConv"), biased = is_given(node, 8);
    const struct fl_array *const w = constant(n, node, 3);
    const int axis = conv ? 0 : 1;
    tensor_type w_type = 0;
    *inputs = NULL;
    if (!is_linear(node) || node->output_count != 1 || node->outputs[0] == -1 || !is_fixed(n, node) ||
        node->inputs[0] == -1 || !quantisation_of(q, node->inputs[0]) || !quantisation_of(q, node->outputs[0]))
        return TENSOR_OK;
    int *const list = fl_net_memory(n, 3 * sizeof *list);
    if (!list)
        return TENSOR_E_MEMORY;
    list[0] = node->inputs[0];
    list[1] = list[2] = -1;
    if (w && (conv ? w->ndim == 3 || w->ndim == 4 : w->ndim == 2)) {
        struct fl_quantisation *const s = levels(q, node, 4, 5, w->dim[axis], &w_type);
        if (s && w_type == w->type)
            list[1] = weights(q, node->inputs[3], s, axis);
        if (list[1] >= 0 && biased)
            list[2] = bias(q, node->inputs[8], quantisation_of(q, node->inputs[0]), s, NULL);
    }
    if (list[1] < 0 || (biased && list[2] < 0)) {
        q->classes[class_of(q, node->inputs[0])].plain = true;
        q->classes[class_of(q, node->outputs[0])].plain = true;
    } else {
        *inputs = list;
    }
    return TENSOR_OK;
}

static tensor_status join_linear(struct quantiser *q) {
    struct fl_net_graph *const graph = &q->x.n->graph;
    int **const inputs = fl_net_memory(q->x.n, (size_t)graph->node_count * sizeof *inputs);
    if (!inputs)
        return TENSOR_E_MEMORY;
    for (int k = 0; k < graph->node_count; k++)
        TRY(linear_operands(q, &graph->nodes[k], &inputs[k]));
    for (int k = 0; k < graph->node_count; k++) {
        struct fl_net_node *const node = &graph->nodes[k];
        if (!inputs[k] || !quantisation_of(q, node->inputs[0]) || !quantisation_of(q, node->outputs[0]))
            continue;
        struct fl_net_node as = *node;
        as.op = is(node, "QLinearConv") ? "Conv" : "MatMul";
        TRY(fl_pass_note(q->x.n, PROGRAM_QUANTISED, node, &as));
        node->op = as.op;
        node->inputs = inputs[k];
        node->input_count = inputs[k][2] < 0 ? 2 : 3;
    }
    return TENSOR_OK;
}

/* --- DequantizeLinear -> operator -> QuantizeLinear ----------------------------------------------------------------
 */

/* Operators that become quantised ones, with the operands that are activations; weights and a bias follow where
 * weighted. same: both sides must have the same quantisation. */
static const struct fused {
    const char *op;
    int activations; /* 0: all */
    bool weighted, same;
} fused[] = {
    {"Conv", 1, true, false},      {"Gemm", 1, true, false},         {"MatMul", 1, true, false},
    {"Add", 2, false, false},      {"AveragePool", 1, false, false}, {"GlobalAveragePool", 1, false, false},
    {"Softmax", 1, false, false},  {"Concat", 0, false, false},      {"MaxPool", 1, false, true},
    {"Relu", 1, false, true},      {"Clip", 1, false, true},         {"Reshape", 1, false, true},
    {"Flatten", 1, false, true},   {"Transpose", 1, false, true},    {"Squeeze", 1, false, true},
    {"Unsqueeze", 1, false, true}, {"Identity", 1, false, true},
};

static const struct fused *find_fused(const struct quantiser *q, const struct fl_net_node *node) {
    for (size_t i = 0; i < sizeof fused / sizeof fused[0]; i++)
        if (is(node, fused[i].op) && !q->x.gone[node - q->x.n->graph.nodes])
            return &fused[i];
    return NULL;
}

static const struct fl_net_node *dequantiser(const struct quantiser *q, const struct fl_net_node *node, int operand) {
    const struct fl_net_node *const maker = fl_index_maker(&q->x, node, operand);
    return maker && is(maker, "DequantizeLinear") && maker->input_count >= 2 && maker->inputs[0] != -1 &&
                   !fl_net_int(maker, "block_size", 0)
               ? maker
               : NULL;
}

/* The quantised value behind an operand; -1: there is none. */
static int activation(const struct quantiser *q, const struct fl_net_node *node, int operand) {
    const struct fl_net_node *const maker = dequantiser(q, node, operand);
    tensor_type type = 0;
    if (!maker || !quantisation_of(q, maker->inputs[0]))
        return -1;
    const struct fl_quantisation *const as = levels(q, maker, 1, 2, 1, &type);
    return as && is_same(as, quantisation_of(q, maker->inputs[0])) ? maker->inputs[0] : -1;
}

/* A constant of quantised numbers as a further operand; -1: it is none. */
static int constant_activation(const struct quantiser *q, const struct fl_net_node *node, int operand) {
    struct fl_network *const n = q->x.n;
    const struct fl_net_node *const maker = dequantiser(q, node, operand);
    struct fl_array *const a = maker ? n->values[maker->inputs[0]].constant : NULL;
    tensor_type type = a ? a->type : 0;
    struct fl_quantisation *const as = a && is_byte(type) ? levels(q, maker, 1, 2, 1, &type) : NULL;
    const int made = as && type == a->type ? fl_net_add_constant(n, n->values[maker->inputs[0]].name, a) : -1;
    if (made >= 0)
        n->values[made].quantisation = as;
    return made;
}

/* Whether an activation before QuantizeLinear changes nothing that the type does not cut off anyway. */
static bool is_within_type(const struct quantiser *q, const struct fl_net_node *node, int result) {
    const struct class *const c = &q->classes[class_of(q, result)];
    const double least = c->type == TENSOR_TYPE_I8 ? -128 : 0, scale = (double)c->quantisation->scale[0],
                 zero = c->quantisation->zero[0];
    double low = 0, high = INFINITY;
    if (is(node, "Clip")) {
        low = -INFINITY;
        if ((is_given(node, 1) && !fl_index_number(&q->x, node, 1, &low)) ||
            (is_given(node, 2) && !fl_index_number(&q->x, node, 2, &high)))
            return false;
    } else if (!is(node, "Relu")) {
        return false;
    }
    return low <= (least - zero) * scale && high >= (least + 255 - zero) * scale;
}

/* The QuantizeLinear that alone reads the result of a node; in between there may be activations that change nothing,
 * which are gone if `take`. */
static const struct fl_net_node *quantiser_of(struct quantiser *q, const struct fl_net_node *node, bool take) {
    int operand;
    const struct fl_net_node *between[4], *last = node;
    for (int i = 0; i < 4; i++) {
        const struct fl_net_node *const next = fl_index_reader(&q->x, last->outputs[0], &operand);
        if (!next || operand || next->output_count != 1 || next->outputs[0] == -1)
            return NULL;
        if (is(next, "QuantizeLinear")) {
            if (!quantisation_of(q, next->outputs[0]))
                return NULL;
            for (int k = 0; k < i; k++)
                if (!is_within_type(q, between[k], next->outputs[0]))
                    return NULL;
            for (int k = 0; k < i && take; k++)
                q->x.gone[between[k] - q->x.n->graph.nodes] = true;
            return next;
        }
        between[i] = last = next;
    }
    return NULL;
}

/* Weights and bias of a node: 1 if they fit, 0 if not. */
static bool weights_and_bias(const struct quantiser *q, const struct fl_net_node *node, const struct fl_quantisation *x,
                             int *inputs) {
    const struct fl_network *const n = q->x.n;
    const struct fl_net_node *const filters = dequantiser(q, node, 1), *const added = dequantiser(q, node, 2);
    const struct fl_array *const w = filters ? constant(n, filters, 0) : NULL;
    const bool conv = is(node, "Conv"), gemm = is(node, "Gemm");
    tensor_type type = w ? w->type : 0;
    if (!w || (conv ? w->ndim != 3 && w->ndim != 4 : w->ndim != 2) ||
        (gemm &&
         (fl_net_float(node, "alpha", 1) != 1 || fl_net_float(node, "beta", 1) != 1 || fl_net_int(node, "transA", 0))))
        return false;
    const int axis = conv || (gemm && fl_net_int(node, "transB", 0)) ? 0 : 1;
    struct fl_quantisation *const s = levels(q, filters, 1, 2, w->dim[axis], &type);
    const int64_t stated = fl_net_int(filters, "axis", 1);
    if (!s || type != w->type || (s->count > 1 && stated != axis && stated + w->ndim != axis))
        return false;
    inputs[1] = weights(q, filters->inputs[0], s, axis);
    inputs[2] = -1;
    if (inputs[1] < 0 || !is_given(node, 2))
        return inputs[1] >= 0;
    tensor_type bias_type = 0;
    struct fl_quantisation *const as = added ? levels(q, added, 1, 2, w->dim[axis], &bias_type) : NULL;
    inputs[2] = as ? bias(q, added->inputs[0], x, s, as) : -1;
    return inputs[2] >= 0;
}

/* A change of scales: QuantizeLinear of integers. */
static tensor_status join_scales(struct quantiser *q, struct fl_net_node *node) {
    if (!is(node, "QuantizeLinear") || node->output_count != 1 || node->outputs[0] == -1 ||
        !quantisation_of(q, node->outputs[0]))
        return TENSOR_OK;
    const int value = activation(q, node, 0);
    if (value >= 0)
        node->inputs[0] = value;
    return TENSOR_OK;
}

static tensor_status join_borders(struct quantiser *q, struct fl_net_node *node) {
    struct fl_network *const n = q->x.n;
    const struct fused *const f = find_fused(q, node);
    if (!f || !node->input_count || node->output_count < 1 || node->outputs[0] == -1 ||
        node->outputs[0] >= q->x.value_count)
        return TENSOR_OK;
    for (int i = 1; i < node->output_count; i++)
        if (node->outputs[i] != -1)
            return TENSOR_OK;
    const bool residual = f->weighted && is_given(node, 3); /* in the sum, before it is rounded */
    const struct fl_net_node *const end = quantiser_of(q, node, false);
    int *const inputs = fl_net_memory(n, (size_t)(node->input_count + 3) * sizeof *inputs);
    if (!inputs)
        return TENSOR_E_MEMORY;
    if (!end || (residual && n->rounding != FL_INT8_EXACT))
        return TENSOR_OK;
    memcpy(inputs, node->inputs, (size_t)node->input_count * sizeof *inputs);
    const int activations = f->activations ? f->activations : node->input_count;
    for (int i = 0; i < activations; i++)
        if (i >= node->input_count || ((inputs[i] = activation(q, node, i)) < 0 &&
                                       (!i || !is(node, "Add") || (inputs[i] = constant_activation(q, node, i)) < 0)))
            return TENSOR_OK;
    const struct fl_quantisation *const x = quantisation_of(q, inputs[0]), *const y =
                                                                               quantisation_of(q, end->outputs[0]);
    const tensor_type x_type = q->classes[class_of(q, inputs[0])].type,
                      y_type = q->classes[class_of(q, end->outputs[0])].type;
    if (x_type != y_type || (f->same && !is_same(x, y)) || (residual && (inputs[3] = activation(q, node, 3)) < 0) ||
        (f->weighted && !weights_and_bias(q, node, x, inputs)))
        return TENSOR_OK;
    TRY(set_inputs(q, node, node->input_count, inputs));
    TRY(fl_pass_note(n, PROGRAM_QUANTISED, node, node));
    quantiser_of(q, node, true);
    node->outputs[0] = end->outputs[0];
    q->x.maker[end->outputs[0]] = (int)(node - n->graph.nodes);
    q->x.gone[end - n->graph.nodes] = true;
    return TENSOR_OK;
}

/* --- the whole -----------------------------------------------------------------------------------------------------
 */

static void set_values(const struct quantiser *q) {
    struct fl_network *const n = q->x.n;
    for (int v = 0; v < q->x.value_count; v++) {
        const struct class *const c = &q->classes[class_of(q, v)];
        if (!c->quantisation || c->plain || n->values[v].constant || n->values[v].quantisation)
            continue;
        n->values[v].quantisation = c->quantisation;
        n->values[v].type = c->type;
    }
}

/* Removes DequantizeLinear nodes that nobody reads any more. */
static tensor_status drop_unread(struct fl_network *n) {
    struct fl_index x;
    TRY(fl_index_make(&x, n));
    for (int k = 0; k < n->graph.node_count; k++) {
        const struct fl_net_node *const node = &n->graph.nodes[k];
        x.gone[k] = is(node, "DequantizeLinear") && node->output_count == 1 && node->outputs[0] != -1 &&
                    !x.readers[node->outputs[0]];
    }
    fl_index_end(&x);
    return TENSOR_OK;
}

static bool has_integers(const struct fl_network *n) {
    for (int k = 0; k < n->graph.node_count; k++) {
        const struct fl_net_node *const node = &n->graph.nodes[k];
        if (is(node, "QuantizeLinear") || is(node, "DequantizeLinear") || node->op[0] == 'Q')
            return true;
    }
    return false;
}

tensor_status fl_pass_quantised(struct fl_network *n) {
    struct quantiser q;
    if (n->source != FL_NET_ONNX || !has_integers(n))
        return TENSOR_OK;
    TRY(spell_all(n));
    TRY(make(&q, n));
    note_levels(&q);
    TRY(join_linear(&q));
    for (int k = 0; k < n->graph.node_count; k++)
        TRY(join_borders(&q, &n->graph.nodes[k]));
    for (int k = 0; k < n->graph.node_count; k++)
        if (!q.x.gone[k])
            TRY(join_scales(&q, &n->graph.nodes[k]));
    set_values(&q);
    fl_index_end(&q.x);
    return drop_unread(n);
}
