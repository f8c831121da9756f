/* onnx_translate.c - operators of opset 7 to 21 in the words of opset 22.
 *
 * Most of what changed moved from an attribute to an input; its constant gets a name that begins with the node's.
 * Bounds of Clip and the value of Pad, which attributes have in float32 for every type of operand, stay float32. Where
 * the meaning changed and today's operator cannot say the old one, the node is refused. What only got more types, or an
 * attribute whose default is the old behaviour, stays as it is.
 *
 * Source: github.com/onnx/onnx, docs/Changelog.md. */
#include "program/onnx/onnx_internal.h"
#ifdef FL_HAVE_ONNX
#include "core/base/fail.h"
#include <string.h>

static tensor_status refuse(const struct fl_net_node *node, const char *why) {
    return fl_fail(TENSOR_E_DATA, "node %s (%s): %s", node->name, node->op, why);
}

static bool is(const struct fl_net_node *node, const char *op) {
    return !strcmp(node->op, op);
}

/* --- from attribute to input ---------------------------------------------------------------------------------------
 */

enum form { NUMBER, WHOLE, NUMBERS, WHOLES }; /* a scalar, or a list */
static const struct moved {
    const char *op, *attribute;
    int until, input; /* the first opset with the input, which has that index */
    enum form form;
    bool required;
} moved[] = {
    {"Clip", "min", 11, 1, NUMBER, false},          {"Clip", "max", 11, 2, NUMBER, false},
    {"DFT", "axis", 20, 2, WHOLE, false},           {"Dropout", "ratio", 12, 1, NUMBER, false},
    {"Pad", "pads", 11, 1, WHOLES, true},           {"Pad", "value", 11, 2, NUMBER, false},
    {"ReduceL1", "axes", 18, 1, WHOLES, false},     {"ReduceL2", "axes", 18, 1, WHOLES, false},
    {"ReduceLogSum", "axes", 18, 1, WHOLES, false}, {"ReduceLogSumExp", "axes", 18, 1, WHOLES, false},
    {"ReduceMax", "axes", 18, 1, WHOLES, false},    {"ReduceMean", "axes", 18, 1, WHOLES, false},
    {"ReduceMin", "axes", 18, 1, WHOLES, false},    {"ReduceProd", "axes", 18, 1, WHOLES, false},
    {"ReduceSum", "axes", 13, 1, WHOLES, false},    {"ReduceSumSquare", "axes", 18, 1, WHOLES, false},
    {"Slice", "starts", 10, 1, WHOLES, true},       {"Slice", "ends", 10, 2, WHOLES, true},
    {"Slice", "axes", 10, 3, WHOLES, false},        {"Split", "split", 13, 1, WHOLES, false},
    {"Squeeze", "axes", 13, 1, WHOLES, false},      {"TopK", "k", 10, 1, WHOLES, true}, /* a list of one */
    {"Unsqueeze", "axes", 13, 1, WHOLES, true},     {"Upsample", "scales", 9, 1, NUMBERS, true},
};

static tensor_status set_input(struct fl_network *n, struct fl_net_node *node, int input, int value) {
    if (input >= node->input_count) {
        int *const more = fl_net_memory(n, (size_t)(input + 1) * sizeof *more);
        if (!more)
            return TENSOR_E_MEMORY;
        for (int i = 0; i <= input; i++)
            more[i] = i < node->input_count ? node->inputs[i] : -1;
        node->inputs = more;
        node->input_count = input + 1;
    }
    node->inputs[input] = value;
    return TENSOR_OK;
}

static tensor_status make_constant(struct fl_onnx_reader *r, const struct fl_net_node *node, const struct moved *m,
                                   const struct fl_net_attribute *a, int *value) {
    const bool real = m->form == NUMBER || m->form == NUMBERS, list = m->form == NUMBERS || m->form == WHOLES;
    const bool single = a->kind == (real ? FL_NET_FLOAT : FL_NET_INT);
    if (!single && !(list && a->kind == (real ? FL_NET_FLOATS : FL_NET_INTS)))
        return fl_fail(TENSOR_E_DATA, "node %s (%s): attribute %s is of another kind than %s", node->name, node->op,
                       a->name, real ? "numbers" : "whole numbers");
    const int64_t count = single ? 1 : a->count;
    struct fl_array *array;
    TRY(fl_net_array(r->n, &array, real ? TENSOR_TYPE_F32 : TENSOR_TYPE_I64, list, &count));
    if (count)
        memcpy(array->data,
               real     ? single ? (const void *)&a->f : a->floats
               : single ? (const void *)&a->i
                        : a->ints,
               (size_t)count * fl_type_bytes(array->type));
    *value = fl_onnx_fresh_value(r, node->name, m->attribute);
    if (*value < 0)
        return TENSOR_E_MEMORY;
    fl_onnx_set_constant(r->n, *value, array);
    return TENSOR_OK;
}

static tensor_status move_attributes(struct fl_onnx_reader *r, struct fl_net_node *node) {
    for (size_t i = 0; i < sizeof moved / sizeof moved[0]; i++) {
        const struct moved *const m = &moved[i];
        if (!is(node, m->op))
            continue;
        const struct fl_net_attribute *const a = fl_net_find(node, m->attribute);
        if (!a && m->required && r->opset < m->until)
            return fl_fail(TENSOR_E_DATA, "node %s (%s) has no attribute %s, which opset %d wants", node->name,
                           node->op, m->attribute, r->opset);
        if (!a)
            continue;
        if (r->opset >= m->until)
            return fl_fail(TENSOR_E_DATA,
                           "node %s (%s) has the attribute %s of opsets before %d, the model has opset %d", node->name,
                           node->op, m->attribute, m->until, r->opset);
        if (m->input < node->input_count)
            return fl_fail(TENSOR_E_DATA, "node %s (%s) has %d inputs, opset %d wants at most %d", node->name, node->op,
                           node->input_count, r->opset, m->input);
        int value = -1;
        TRY(make_constant(r, node, m, a, &value));
        TRY(set_input(r->n, node, m->input, value));
        fl_net_drop(node, m->attribute);
    }
    return TENSOR_OK;
}

/* --- operators of their own ----------------------------------------------------------------------------------------
 */

static const struct fl_array *constant_input(const struct fl_network *n, const struct fl_net_node *node, int input) {
    return input < node->input_count && node->inputs[input] >= 0 ? n->values[node->inputs[input]].constant : NULL;
}

static bool is_given(const struct fl_net_node *node, int input) {
    return input < node->input_count && node->inputs[input] >= 0;
}

/* A node at the end of a graph between two values. */
static struct fl_net_node *add_node(struct fl_onnx_reader *r, struct fl_net_graph *graph, const char *op,
                                    const char *name, int from, int to) {
    char text[512];
    const size_t length = strlen(name), fits = sizeof text - strlen(op) - 2;
    memcpy(text, name, length < fits ? length : fits);
    strcpy(text + (length < fits ? length : fits), ".");
    strcat(text, op);
    struct fl_net_node *const node = fl_net_add_node(r->n, graph, op, text, 1, 1, 0);
    if (node) {
        node->inputs[0] = from;
        node->outputs[0] = to;
    }
    return node;
}

/* Before opset 13 the operand was a matrix: dimensions before the axis are its rows, those from it on the columns.
 * Where the axis is the last one, that is today's meaning; else, or where the rank is not known, Shape, Flatten and
 * Reshape say the same. */
static tensor_status as_matrix(struct fl_onnx_reader *r, struct fl_net_graph *graph) {
    const struct fl_net_node node = graph->nodes[graph->node_count - 1];
    if (node.input_count != 1 || node.output_count != 1 || node.inputs[0] < 0 || node.outputs[0] < 0)
        return refuse(&node, "expected one input and one output");
    const int64_t axis = fl_net_int(&node, "axis", 1);
    const int rank = r->n->values[node.inputs[0]].ndim;
    if (axis == -1 || (rank >= 0 && axis == rank - 1))
        return fl_net_set_int(r->n, &graph->nodes[graph->node_count - 1], "axis", -1);
    const int shape = fl_onnx_fresh_value(r, node.name, "shape"), flat = fl_onnx_fresh_value(r, node.name, "flat"),
              result = fl_onnx_fresh_value(r, node.name, "result");
    if (shape < 0 || flat < 0 || result < 0)
        return TENSOR_E_MEMORY;
    graph->node_count--;
    struct fl_net_node *made = add_node(r, graph, "Shape", node.name, node.inputs[0], shape);
    if (!made || !(made = add_node(r, graph, "Flatten", node.name, node.inputs[0], flat)))
        return TENSOR_E_MEMORY;
    TRY(fl_net_set_int(r->n, made, "axis", axis));
    if (!(made = fl_net_add_node(r->n, graph, node.op, node.name, 1, 1, 0)))
        return TENSOR_E_MEMORY;
    made->inputs[0] = flat;
    made->outputs[0] = result;
    TRY(fl_net_set_int(r->n, made, "axis", -1));
    if (!(made = add_node(r, graph, "Reshape", node.name, result, node.outputs[0])))
        return TENSOR_E_MEMORY;
    return set_input(r->n, made, 1, shape);
}

/* Inputs that were given as empty arrays before they could be left out. */
static void drop_empty_inputs(const struct fl_network *n, struct fl_net_node *node) {
    for (int i = 1; i < node->input_count; i++) {
        const struct fl_array *const a = constant_input(n, node, i);
        if (a && !a->count)
            node->inputs[i] = -1;
    }
    while (node->input_count > 1 && node->inputs[node->input_count - 1] < 0)
        node->input_count--;
}

/* Upsample, and Resize of opset 10: corners of the images lie upon each other, an index is that of the operand times
 * the scale. The nearest is the one below or, where an image shrinks, the one above. */
static tensor_status resize_by_scales(struct fl_onnx_reader *r, struct fl_net_node *node) {
    if (node->input_count != 2 || !is_given(node, 0) || !is_given(node, 1))
        return refuse(node, "expected the inputs X and scales");
    const struct fl_array *const scales = constant_input(r->n, node, 1);
    bool grows = false, shrinks = false;
    for (int64_t i = 0; scales && scales->type == TENSOR_TYPE_F32 && i < scales->count; i++) {
        grows |= ((const float *)scales->data)[i] > 1;
        shrinks |= ((const float *)scales->data)[i] < 1;
    }
    const bool nearest = !strcmp(fl_net_string(node, "mode", "nearest"), "nearest");
    if (nearest && grows && shrinks)
        return refuse(node, "one dimension grows and another shrinks, which no rounding of today's Resize computes as "
                            "opset 10 does");
    TRY(set_input(r->n, node, 2, node->inputs[1]));
    node->inputs[1] = -1;
    node->op = "Resize";
    drop_empty_inputs(r->n, node);
    TRY(fl_net_set_string(r->n, node, "coordinate_transformation_mode", "asymmetric"));
    return nearest ? fl_net_set_string(r->n, node, "nearest_mode", shrinks ? "ceil" : "floor") : TENSOR_OK;
}

/* Before opset 14 the outputs said whether statistics are computed. */
static tensor_status old_batch_norm(struct fl_net_node *node) {
    for (int i = 1; i < node->output_count; i++)
        if (node->outputs[i] >= 0)
            return refuse(node, "its outputs from the second on are statistics of training, expected inference");
    if (fl_net_int(node, "spatial", 1) != 1)
        return refuse(node, "attribute spatial is 0, expected 1");
    fl_net_drop(node, "spatial");
    if (node->output_count > 1)
        node->output_count = 1;
    return TENSOR_OK;
}

/* In inference it changes nothing. Who asks for the mask or for training gets the operator itself. */
static void dropout(const struct fl_network *n, struct fl_net_node *node) {
    const struct fl_array *const training = constant_input(n, node, 2);
    const bool trains = is_given(node, 2) && (!training || training->count != 1 || training->type != TENSOR_TYPE_BOOL ||
                                              *(const unsigned char *)training->data);
    if (trains || !is_given(node, 0) || (node->output_count > 1 && node->outputs[1] >= 0) || !node->output_count)
        return;
    node->op = "Identity";
    node->input_count = node->output_count = 1;
    node->attribute_count = 0;
}

static tensor_status grid_sample(struct fl_network *n, struct fl_net_node *node) {
    const char *const mode = fl_net_string(node, "mode", "bilinear");
    return fl_net_set_string(n, node, "mode",
                             !strcmp(mode, "bilinear")  ? "linear"
                             : !strcmp(mode, "bicubic") ? "cubic"
                                                        : mode);
}

tensor_status fl_onnx_translate(struct fl_onnx_reader *r, struct fl_net_graph *graph) {
    struct fl_network *const n = r->n;
    struct fl_net_node *const node = &graph->nodes[graph->node_count - 1];
    const int opset = r->opset;
    if (*node->domain)
        return TENSOR_OK;
    TRY(move_attributes(r, node));
    if (is(node, "Dropout"))
        dropout(n, node);
    else if (is(node, "BatchNormalization") && opset < 14)
        return old_batch_norm(node);
    else if ((is(node, "Softmax") || is(node, "LogSoftmax") || is(node, "Hardmax")) && opset < 13)
        return as_matrix(r, graph);
    else if (opset < 11 && ((is(node, "Upsample") && opset < 10) || is(node, "Resize")))
        return resize_by_scales(r, node);
    else if (is(node, "Resize"))
        drop_empty_inputs(n, node);
    else if (is(node, "Split") && opset < 18 && !is_given(node, 1))
        return fl_net_set_int(n, node, "num_outputs", node->output_count);
    else if (is(node, "RoiAlign") && opset < 16)
        return fl_net_set_string(n, node, "coordinate_transformation_mode", "output_half_pixel");
    else if (is(node, "GridSample") && opset < 20)
        return grid_sample(n, node);
    else if (is(node, "Scatter") && opset < 11)
        node->op = "ScatterElements";
    else if (is(node, "Scan") && opset < 9)
        return refuse(node, "Scan of opset 8 runs over a batch of sequences, expected opset 9 or later");
    else if (is(node, "GroupNormalization") && opset < 21)
        return refuse(node, "before opset 21 its scales belong to groups, expected opset 21 or later");
    return TENSOR_OK;
}
#endif
