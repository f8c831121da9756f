/* restore.c - networks that this library exported (onnx/onnx_export.c). Nodes that the export put around another one
 * say so in "flexlab.part":
 *
 *   operand     Cast, Transpose, QuantizeLinear, DequantizeLinear, Mul, Where: who reads its result reads its operand
 *               again, of a Where the second one
 *   mask        makes the condition of such a Where, or the second operand of a Mul that "flexlab.operator" calls Swish
 *   result      the same behind a node, whose result becomes that of the part
 *   constant    DequantizeLinear of 16-bit weights, which become floats
 *   residual    Add: the fourth operand of the Conv before it
 *   activation  Relu or Clip: flexlab_activation of the node before it
 *
 * and other nodes have "flexlab.format", "flexlab.layout" (nhwc), "flexlab.exponents" ("o0=12 i1=9": of results and
 * inner tensors) and "flexlab.attributes". A part that does not fit any more, because another tool rewrote the file,
 * stays an ordinary node. */
#include "program/passes/passes.h"
#include "program/arrays/operators.h"
#include "core/base/fail.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct restorer {
    struct fl_network *n;
    int count;   /* values when the pass began */
    int *as;     /* of each value, the one that takes its place */
    int *floats; /* of a constant of 16-bit floats, the same as float32; -1: not made yet */
    int *readers;
    struct fl_net_node **maker; /* of each value; NULL: an input or constant */
    struct fl_net_graph **in;   /* its maker's graph */
};

static bool is(const struct fl_net_node *node, const char *op) {
    return !*node->domain && !strcmp(node->op, op);
}

static bool is_part(const struct fl_net_node *node, const char *part) {
    return !strcmp(fl_net_string(node, "flexlab.part", ""), part);
}

static bool is_gone(const struct fl_net_node *node) {
    return !*node->op;
}

static bool is_marked(const struct fl_net_graph *graph) {
    for (int k = 0; k < graph->node_count; k++)
        for (int a = 0; a < graph->nodes[k].attribute_count; a++) {
            const struct fl_net_attribute *const at = &graph->nodes[k].attributes[a];
            if (!strncmp(at->name, "flexlab.", 8) || (at->graph && is_marked(at->graph)))
                return true;
        }
    return false;
}

/* --- values in place of others -------------------------------------------------------------------------------------
 */

static int in_place_of(const struct restorer *r, int value) {
    while (value >= 0 && value < r->count && r->as[value] != value)
        value = r->as[value];
    return value;
}

static void note(struct restorer *r, struct fl_net_graph *graph) {
    for (int k = 0; k < graph->node_count; k++) {
        struct fl_net_node *const node = &graph->nodes[k];
        if (is_gone(node))
            continue;
        for (int i = 0; i < node->input_count; i++)
            if (node->inputs[i] >= 0 && node->inputs[i] < r->count)
                r->readers[node->inputs[i]]++;
        for (int i = 0; i < node->output_count; i++)
            if (node->outputs[i] >= 0 && node->outputs[i] < r->count) {
                r->maker[node->outputs[i]] = node;
                r->in[node->outputs[i]] = graph;
            }
        for (int a = 0; a < node->attribute_count; a++)
            if (node->attributes[a].graph)
                note(r, node->attributes[a].graph);
    }
    for (int i = 0; i < graph->output_count; i++)
        r->readers[graph->outputs[i]] += 2;
}

static void note_all(struct restorer *r) {
    memset(r->readers, 0, (size_t)r->count * sizeof *r->readers);
    memset(r->maker, 0, (size_t)r->count * sizeof *r->maker);
    note(r, &r->n->graph);
}

static void rename_all(const struct restorer *r, struct fl_net_graph *graph) {
    for (int k = 0; k < graph->node_count; k++) {
        struct fl_net_node *const node = &graph->nodes[k];
        if (is_gone(node))
            continue;
        for (int i = 0; i < node->input_count; i++)
            node->inputs[i] = in_place_of(r, node->inputs[i]);
        for (int i = 0; i < node->output_count; i++)
            node->outputs[i] = in_place_of(r, node->outputs[i]);
        for (int a = 0; a < node->attribute_count; a++)
            if (node->attributes[a].graph)
                rename_all(r, node->attributes[a].graph);
    }
    for (int i = 0; i < graph->output_count; i++)
        graph->outputs[i] = in_place_of(r, graph->outputs[i]);
}

/* --- parts that change nothing but a format or an order -------------------------------------------------------------
 */

/* The exponent e of a scale 2^-e. */
static bool exponent_of(const struct fl_network *n, const struct fl_net_node *node, int *exponent) {
    const struct fl_array *const s =
        node->input_count > 1 && node->inputs[1] >= 0 ? n->values[node->inputs[1]].constant : NULL;
    int e;
    if (!s || s->count != 1 || s->type != TENSOR_TYPE_F32 || !(*(const float *)s->data > 0) ||
        frexpf(*(const float *)s->data, &e) != 0.5f)
        return false;
    *exponent = 1 - e;
    return true;
}

/* Operators whose result is a view of their operand, with its exponent (plan.h). */
static bool is_view(const struct fl_net_node *node) {
    static const char *const views[] = {"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Transpose"};
    for (size_t i = 0; i < sizeof views / sizeof views[0]; i++)
        if (is(node, views[i]))
            return true;
    return false;
}

static void freeze(struct restorer *r, int value, int exponent) {
    r->n->values[value].range.frozen = true;
    r->n->values[value].range.exponent = exponent;
}

enum { STEPS = 1000 }; /* a bound against chains of views in hostile files */

/* The value that has the tensor which an operand is, behind views and parts. */
static int first_of(const struct restorer *r, int value) {
    for (int steps = 0; steps < STEPS; steps++) {
        const struct fl_net_node *node = r->maker[value];
        while (node && node->input_count && node->inputs[0] >= 0 && steps++ < STEPS &&
               (is_part(node, "result") || is_part(node, "residual") || is_part(node, "activation")))
            node = r->maker[node->inputs[0]];
        if (!node || !node->input_count || node->inputs[0] < 0 || (!is_part(node, "operand") && !is_view(node)))
            break;
        value = node->inputs[0];
    }
    return value;
}

static bool is_float_cast(const struct fl_net_node *node) {
    const int64_t to = fl_net_int(node, "to", 0);
    return is(node, "Cast") && (to == 1 || to == 10 || to == 16);
}

/* Takes out one part. */
static tensor_status take_out(struct restorer *r, struct fl_net_graph *graph, struct fl_net_node *node) {
    struct fl_network *const n = r->n;
    const bool operand = is_part(node, "operand"), result = is_part(node, "result"), from = is_part(node, "constant");
    const bool levels = is(node, "QuantizeLinear") || is(node, "DequantizeLinear");
    const bool where = operand && is(node, "Where");
    int exponent = 0;
    if ((!operand && !result && !from) || node->input_count < 1 || node->output_count != 1 || node->inputs[0] < 0 ||
        node->outputs[0] < 0 || (levels && !exponent_of(n, node, &exponent)) ||
        (!levels && !is_float_cast(node) && !is(node, "Transpose") && !(operand && is(node, "Mul")) && !where) ||
        (where && (node->input_count != 3 || node->inputs[1] < 0)))
        return TENSOR_OK;
    const int in = node->inputs[where], out = node->outputs[0];
    if (from) {
        const struct fl_array *const q = n->values[in].constant;
        struct fl_array *f;
        if (!levels || !q || q->type != TENSOR_TYPE_I16)
            return TENSOR_OK;
        TRY(fl_net_array(n, &f, TENSOR_TYPE_F32, q->ndim, q->dim));
        for (int64_t i = 0; i < q->count; i++)
            ((float *)f->data)[i] = (float)ldexp(((const int16_t *)q->data)[i], -exponent);
        const int made = fl_net_add_constant(n, n->values[in].name, f);
        if (made < 0)
            return TENSOR_E_MEMORY;
        r->as[out] = made;
    } else if (operand) {
        for (int i = 0; i < graph->output_count; i++)
            if (graph->outputs[i] == out)
                return TENSOR_OK;
        if (in_place_of(r, in) == out)
            return TENSOR_OK;
        if (levels)
            freeze(r, first_of(r, in), exponent);
        r->as[out] = in;
    } else {
        if (!r->maker[in] || r->in[in] != graph || in_place_of(r, out) == in)
            return TENSOR_OK;
        for (int i = 0; i < graph->output_count; i++)
            if (graph->outputs[i] == in)
                return TENSOR_OK;
        if (levels)
            freeze(r, out, exponent);
        r->as[in] = out;
    }
    node->op = "";
    return TENSOR_OK;
}

static tensor_status take_out_all(struct restorer *r, struct fl_net_graph *graph) {
    for (int k = 0; k < graph->node_count; k++) {
        struct fl_net_node *const node = &graph->nodes[k];
        TRY(take_out(r, graph, node));
        for (int a = 0; a < node->attribute_count; a++)
            if (node->attributes[a].graph)
                TRY(take_out_all(r, node->attributes[a].graph));
    }
    return TENSOR_OK;
}

static void rename_operators(struct fl_net_graph *graph) {
    for (int k = 0; k < graph->node_count; k++) {
        struct fl_net_node *const node = &graph->nodes[k];
        for (int a = 0; a < node->attribute_count; a++)
            if (node->attributes[a].graph)
                rename_operators(node->attributes[a].graph);
        if (strcmp(fl_net_string(node, "flexlab.operator", ""), "Swish") || !is(node, "Mul") || node->input_count != 2)
            continue;
        node->op = "Swish";
        node->input_count = 1;
    }
}

/* Nodes of masks that nobody reads any more, the last one first. */
static void drop_masks(struct restorer *r, struct fl_net_graph *graph) {
    for (int k = graph->node_count - 1; k >= 0; k--) {
        struct fl_net_node *const node = &graph->nodes[k];
        for (int a = 0; a < node->attribute_count; a++)
            if (node->attributes[a].graph)
                drop_masks(r, node->attributes[a].graph);
        if (is_gone(node) || !is_part(node, "mask") || node->output_count != 1 || node->outputs[0] < 0 ||
            node->outputs[0] >= r->count || r->readers[node->outputs[0]])
            continue;
        for (int i = 0; i < node->input_count; i++)
            if (node->inputs[i] >= 0 && node->inputs[i] < r->count)
                r->readers[node->inputs[i]]--;
        node->op = "";
    }
}

/* --- parts that belong to the node before them ----------------------------------------------------------------------
 */

/* The node of the same graph whose result the operand is, if nobody else reads that. */
static struct fl_net_node *before(const struct restorer *r, const struct fl_net_graph *graph,
                                  const struct fl_net_node *node) {
    const int value = node->input_count ? node->inputs[0] : -1;
    return value >= 0 && value < r->count && r->in[value] == graph && r->maker[value] && r->readers[value] == 1 &&
                   r->maker[value]->output_count == 1 && !is_gone(r->maker[value])
               ? r->maker[value]
               : NULL;
}

static bool bound(const struct fl_network *n, const struct fl_net_node *node, int operand, double *number) {
    if (operand >= node->input_count || node->inputs[operand] < 0)
        return true;
    const struct fl_array *const a = n->values[node->inputs[operand]].constant;
    if (!a || a->count != 1 || !fl_type_is_float(a->type))
        return false;
    *number = fl_array_number(a, 0);
    return *number == *number;
}

static tensor_status join_parts(struct restorer *r, struct fl_net_graph *graph) {
    struct fl_network *const n = r->n;
    for (int k = 0; k < graph->node_count; k++) {
        struct fl_net_node *const node = &graph->nodes[k], *const to = before(r, graph, node);
        for (int a = 0; a < node->attribute_count; a++)
            if (node->attributes[a].graph)
                TRY(join_parts(r, node->attributes[a].graph));
        if (!to || is_gone(node) || node->output_count != 1 || node->outputs[0] < 0 || node->outputs[0] >= r->count)
            continue;
        if (is_part(node, "residual") && is(node, "Add") && is(to, "Conv") && node->input_count == 2 &&
            to->input_count >= 2 && to->input_count <= 3 && !fl_net_find(to, "flexlab_activation")) {
            int *const inputs = fl_net_memory(n, 4 * sizeof *inputs);
            if (!inputs)
                return TENSOR_E_MEMORY;
            inputs[0] = to->inputs[0];
            inputs[1] = to->inputs[1];
            inputs[2] = to->input_count > 2 ? to->inputs[2] : -1;
            inputs[3] = node->inputs[1];
            to->inputs = inputs;
            to->input_count = 4;
        } else if (is_part(node, "activation") && is(node, "Relu") && !fl_net_find(to, "flexlab_activation")) {
            TRY(fl_net_set_string(n, to, "flexlab_activation", "Relu"));
        } else if (is_part(node, "activation") && is(node, "Clip") && !fl_net_find(to, "flexlab_activation")) {
            double low = -INFINITY, high = INFINITY;
            char text[80];
            if (!bound(n, node, 1, &low) || !bound(n, node, 2, &high))
                continue;
            snprintf(text, sizeof text, "Clip:%.9g:%.9g", low, high);
            TRY(fl_net_set_string(n, to, "flexlab_activation", text));
        } else {
            continue;
        }
        to->outputs[0] = node->outputs[0];
        r->maker[node->outputs[0]] = to;
        node->op = "";
    }
    return TENSOR_OK;
}

/* --- what nodes say of themselves -----------------------------------------------------------------------------------
 */

static bool is_half(tensor_type type) {
    return type == TENSOR_TYPE_F16 || type == TENSOR_TYPE_BF16;
}

/* Constants of 16-bit floats become float32, which the program rounds to the node's format again. */
static tensor_status widen(struct restorer *r, int *value) {
    const struct fl_array *const a = *value >= 0 && *value < r->count ? r->n->values[*value].constant : NULL;
    struct fl_array *f;
    if (!a || !is_half(a->type))
        return TENSOR_OK;
    if (r->floats[*value] < 0) {
        TRY(fl_net_array(r->n, &f, TENSOR_TYPE_F32, a->ndim, a->dim));
        for (int64_t i = 0; i < a->count; i++)
            ((float *)f->data)[i] = (float)fl_array_number(a, i);
        r->floats[*value] = fl_net_add_constant(r->n, r->n->values[*value].name, f);
    }
    *value = r->floats[*value];
    return *value < 0 ? TENSOR_E_MEMORY : TENSOR_OK;
}

/* Filters [K, C, R, S] as [K, R, S, C]; behind DequantizeLinear too. */
static tensor_status turn_filters(struct restorer *r, struct fl_net_node *node) {
    struct fl_network *const n = r->n;
    int *at = node->input_count > 1 ? &node->inputs[1] : NULL;
    if (at && *at >= 0 && *at < r->count && r->maker[*at] && is(r->maker[*at], "DequantizeLinear") &&
        r->maker[*at]->input_count)
        at = &r->maker[*at]->inputs[0];
    const struct fl_array *const w = at && *at >= 0 ? n->values[*at].constant : NULL;
    struct fl_array *turned;
    if (!w || w->ndim < 3)
        return fl_fail(TENSOR_E_DATA, "node %s (%s): flexlab.layout is nhwc, and its filters are no constant",
                       node->name, node->op);
    const int ndim = w->ndim;
    int64_t dim[FL_ARRAY_DIMS], area = 1;
    dim[0] = w->dim[0];
    for (int d = 2; d < ndim; d++) {
        dim[d - 1] = w->dim[d];
        area *= w->dim[d];
    }
    dim[ndim - 1] = w->dim[1];
    TRY(fl_net_array(n, &turned, w->type, ndim, dim));
    const size_t size = fl_type_bytes(w->type);
    for (int64_t k = 0; k < w->dim[0] && w->count; k++)
        for (int64_t c = 0; c < w->dim[1]; c++)
            for (int64_t p = 0; p < area; p++)
                memcpy((char *)turned->data + (size_t)((k * area + p) * w->dim[1] + c) * size,
                       (const char *)w->data + (size_t)((k * w->dim[1] + c) * area + p) * size, size);
    const int made = fl_net_add_constant(n, n->values[*at].name, turned);
    if (made < 0)
        return TENSOR_E_MEMORY;
    *at = made;
    return TENSOR_OK;
}

static tensor_status set_exponents(struct restorer *r, struct fl_net_node *node) {
    const char *text = fl_net_string(node, "flexlab.exponents", "");
    char kind;
    int at, exponent, used;
    while (sscanf(text, " %c%d=%d%n", &kind, &at, &exponent, &used) == 3 && exponent > -10000 && exponent < 10000) {
        struct fl_range *range = NULL;
        if (kind == 'o' && at >= 0 && at < node->output_count && node->outputs[at] >= 0)
            range = &r->n->values[node->outputs[at]].range;
        if (kind == 'i' && at >= 0 && at < FL_NODE_TEMPORARIES) {
            if (!node->inner && !(node->inner = fl_net_memory(r->n, FL_NODE_TEMPORARIES * sizeof *node->inner)))
                return TENSOR_E_MEMORY;
            range = &node->inner[at];
        }
        if (!range)
            break;
        if (!range->frozen) {
            range->frozen = true;
            range->exponent = exponent;
        }
        text += used;
    }
    if (text[strspn(text, " ")])
        return fl_fail(TENSOR_E_DATA, "node %s (%s): flexlab.exponents has '%.40s', expected such as o0=12 or i1=9",
                       node->name, node->op, text);
    return TENSOR_OK;
}

/* Attributes that ONNX does not have: "flexlab_depthwise=1 flexlab_beta=0x1p-3". */
static tensor_status set_attributes(struct restorer *r, struct fl_net_node *node) {
    const char *text = fl_net_string(node, "flexlab.attributes", "");
    char name[48], number[48];
    int used;
    while (sscanf(text, " %47[a-z_]=%47[0-9a-fxp.+-]%n", name, number, &used) == 2 &&
           (!strncmp(name, "flexlab_", 8) || !strcmp(name, "alpha"))) {
        if (strpbrk(number, "x."))
            TRY(fl_net_set_float(r->n, node, name, strtof(number, NULL)));
        else
            TRY(fl_net_set_int(r->n, node, name, strtoll(number, NULL, 10)));
        text += used;
    }
    return TENSOR_OK;
}

static tensor_status restore_nodes(struct restorer *r, struct fl_net_graph *graph) {
    static const char *const names[] = {"flexlab.format",    "flexlab.part",       "flexlab.layout",
                                        "flexlab.exponents", "flexlab.attributes", "flexlab.operator"};
    for (int k = 0; k < graph->node_count; k++) {
        struct fl_net_node *const node = &graph->nodes[k];
        const char *const format = fl_net_string(node, "flexlab.format", "");
        if (is_gone(node))
            continue;
        if (*format && tensor_format_find(&node->format, format))
            return fl_fail(TENSOR_E_DATA, "node %s (%s): flexlab.format is '%.40s', which is no format", node->name,
                           node->op, format);
        for (int i = 0; i < node->input_count && (node->format == FMT_FP16 || node->format == FMT_BF16); i++)
            TRY(widen(r, &node->inputs[i]));
        for (int i = 0; i < node->output_count && (node->format == FMT_FP16 || node->format == FMT_BF16); i++)
            if (node->outputs[i] >= 0 && is_half(r->n->values[node->outputs[i]].type))
                r->n->values[node->outputs[i]].type = TENSOR_TYPE_F32;
        if (!strcmp(fl_net_string(node, "flexlab.layout", ""), "nhwc")) {
            node->channels_last = true;
            if (is(node, "Conv"))
                TRY(turn_filters(r, node));
        }
        TRY(set_exponents(r, node));
        TRY(set_attributes(r, node));
        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
            fl_net_drop(node, names[i]);
        for (int a = 0; a < node->attribute_count; a++)
            if (node->attributes[a].graph)
                TRY(restore_nodes(r, node->attributes[a].graph));
    }
    return TENSOR_OK;
}

static void drop_gone(struct fl_net_graph *graph) {
    int left = 0;
    for (int k = 0; k < graph->node_count; k++) {
        if (is_gone(&graph->nodes[k]))
            continue;
        graph->nodes[left++] = graph->nodes[k];
        for (int a = 0; a < graph->nodes[k].attribute_count; a++)
            if (graph->nodes[k].attributes[a].graph)
                drop_gone(graph->nodes[k].attributes[a].graph);
    }
    graph->node_count = left;
}

tensor_status fl_pass_restore(struct fl_network *n) {
    const size_t values = (size_t)n->value_count;
    struct restorer r = {.n = n, .count = n->value_count};
    if (!is_marked(&n->graph))
        return TENSOR_OK;
    r.as = fl_net_memory(n, values * sizeof *r.as);
    r.floats = fl_net_memory(n, values * sizeof *r.floats);
    r.readers = fl_net_memory(n, values * sizeof *r.readers);
    r.maker = fl_net_memory(n, values * sizeof *r.maker);
    r.in = fl_net_memory(n, values * sizeof *r.in);
    if (!r.as || !r.floats || !r.readers || !r.maker || !r.in)
        return TENSOR_E_MEMORY;
    for (int v = 0; v < r.count; v++) {
        r.as[v] = v;
        r.floats[v] = -1;
    }
    note_all(&r);
    TRY(take_out_all(&r, &n->graph));
    rename_operators(&n->graph);
    rename_all(&r, &n->graph);
    note_all(&r);
    drop_masks(&r, &n->graph);
    TRY(join_parts(&r, &n->graph));
    TRY(restore_nodes(&r, &n->graph));
    drop_gone(&n->graph);
    return fl_net_check(n);
}
