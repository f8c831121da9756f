/* onnx_export.c - see onnx_export.h. A second network is made, in which every node is one of ONNX, and written. */
#include "program/onnx/onnx_export.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "flexlab/autoflex.h"
#include "flexlab/tensor.h"
#include "program/arrays/operators.h"
#include "program/network/network.h"
#include "program/onnx/onnx_floats.h"
#include "program/network/onnx_types.h"
#include "program/onnx/onnx_names.h"
#include "program/onnx/onnx_write.h"
#include "program/operators.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* The forms in which a node reads a value: as it is (float32, and all that is no float), rounded to 16-bit floats,
 * through QuantizeLinear and DequantizeLinear of int16, or dequantised. */
enum form { PLAIN, HALF, BFLOAT, LEVELS, REAL, FORMS };

/* A value in a form, while the graph that has it is open. */
struct made {
    int value, graph;
};

struct exporter {
    const struct fl_network *from;
    struct fl_network *to;
    struct fl_onnx_names names, node_names;
    bool *is_float, *is_known, *is_output; /* of each value of `from`; known: it follows from constants */
    const struct fl_net_node **maker;      /* NULL: an input or constant */
    int *same;                             /* its value in `to`; -1: a constant */
    struct made (*made)[FORMS];            /* graph 0: not made */
    int graph_count;
    bool *is_open; /* of each graph, by its number from 1 on */
};

/* A graph in the making. */
struct place {
    struct exporter *e;
    struct fl_net_graph *graph;
    int number;
};

static bool is(const struct fl_net_node *node, const char *op) {
    return !*node->domain && !strcmp(node->op, op);
}

static bool is_one_of(const struct fl_net_node *node, const char *const *ops) {
    for (; *ops; ops++)
        if (is(node, *ops))
            return true;
    return false;
}

/* --- values --------------------------------------------------------------------------------------------------------
 */

/* A new value whose name nobody has: `like`, or that with an ending. -1 without memory. */
static int new_value(struct exporter *e, const char *like, const char *ending) {
    char name[600];
    snprintf(name, sizeof name, "%.400s%s%s", *like ? like : "value", *ending ? "." : "", ending);
    const size_t length = strlen(name);
    for (int i = 2; fl_onnx_names_find(&e->names, name) >= 0; i++)
        snprintf(name + length, sizeof name - length, ".%d", i);
    const int value = fl_net_add_value(e->to, name);
    return value < 0 || fl_onnx_names_add(&e->names, e->to->values[value].name, value) ? -1 : value;
}

static int new_constant(struct exporter *e, const char *like, const char *ending, struct fl_array *array) {
    const int value = new_value(e, like, ending);
    if (value < 0)
        return -1;
    struct fl_net_value *const v = &e->to->values[value];
    v->constant = array;
    v->type = array->type;
    v->ndim = array->ndim;
    memcpy(v->dim, array->dim, sizeof v->dim);
    return value;
}

static int new_number(struct exporter *e, const char *like, const char *ending, tensor_type type, double number) {
    struct fl_array *a;
    if (fl_net_array(e->to, &a, type, 0, NULL))
        return -1;
    fl_array_put_number(a, 0, number);
    return new_constant(e, like, ending, a);
}

/* The value under the name and with the shape that it has in `from`. */
static int same_value(struct exporter *e, int value) {
    const struct fl_net_value *const v = &e->from->values[value];
    const int made = new_value(e, v->name, "");
    if (made < 0)
        return -1;
    struct fl_net_value *const to = &e->to->values[made];
    to->type = v->type;
    to->ndim = v->ndim;
    memcpy(to->dim, v->dim, sizeof to->dim);
    memcpy(to->dim_name, v->dim_name, sizeof to->dim_name);
    return made;
}

static int find_made(const struct exporter *e, int value, enum form form) {
    const struct made *const m = &e->made[value][form];
    return m->graph && e->is_open[m->graph] ? m->value : -1;
}

static int note_made(const struct place *p, int value, enum form form, int made) {
    p->e->made[value][form] = (struct made){made, p->number};
    return made;
}

/* --- nodes ---------------------------------------------------------------------------------------------------------
 */

/* A node without a name, of up to three operands, with one result, which is `to` or a new value; -1 without memory. */
static int put_node(struct place *p, const char *op, const char *part, const char *like, int count, const int *inputs,
                    int to) {
    const int result = to >= 0 ? to : new_value(p->e, like, op);
    struct fl_net_node *const node = result < 0 ? NULL : fl_net_add_node(p->e->to, p->graph, op, "", count, 1, 0);
    if (!node || (part && fl_net_set_string(p->e->to, node, "flexlab.part", part)))
        return -1;
    memcpy(node->inputs, inputs, (size_t)count * sizeof *inputs);
    return node->outputs[0] = result;
}

static struct fl_net_node *last_node(const struct place *p) {
    return &p->graph->nodes[p->graph->node_count - 1];
}

static int put_cast(struct place *p, const char *part, const char *like, int from, tensor_type type, int to) {
    const int result = put_node(p, "Cast", part, like, 1, &from, to);
    return result < 0 || fl_net_set_int(p->e->to, last_node(p), "to", fl_onnx_type_number(type)) ? -1 : result;
}

/* QuantizeLinear and DequantizeLinear with the scale 2^-exponent. */
static int put_levels(struct place *p, const char *part, const char *like, int from, int exponent, int to) {
    const int scale = new_number(p->e, like, "scale", TENSOR_TYPE_F32, ldexp(1, -exponent));
    const int zero = scale < 0 ? -1 : new_number(p->e, like, "zero_point", TENSOR_TYPE_I16, 0);
    if (zero < 0)
        return -1;
    const int q = put_node(p, "QuantizeLinear", part, like, 3, (const int[]){from, scale, zero}, -1);
    return q < 0 ? -1 : put_node(p, "DequantizeLinear", part, like, 3, (const int[]){q, scale, zero}, to);
}

/* Images [N, H, W, C] as [N, C, H, W], or back. */
static int put_turn(struct place *p, const char *part, const char *like, int from, int ndim, bool back, int to) {
    int64_t perm[FL_ARRAY_DIMS] = {0};
    for (int d = 1; d < ndim; d++)
        perm[d] = back ? d == ndim - 1 ? 1 : d + 1 : d == 1 ? ndim - 1 : d - 1;
    const int result = put_node(p, "Transpose", part, like, 1, &from, to);
    return result < 0 || fl_net_set_ints(p->e->to, last_node(p), "perm", ndim, perm) ? -1 : result;
}

/* --- constants -----------------------------------------------------------------------------------------------------
 */

/* Filters [K, R, S, C] as [K, C, R, S]. */
static tensor_status turned(struct exporter *e, const struct fl_array *w, struct fl_array **result) {
    int64_t dim[FL_ARRAY_DIMS], area = 1;
    const int ndim = w->ndim;
    const size_t size = fl_type_bytes(w->type);
    dim[0] = w->dim[0];
    dim[1] = w->dim[ndim - 1];
    for (int d = 2; d < ndim; d++) {
        dim[d] = w->dim[d - 1];
        area *= dim[d];
    }
    TRY(fl_net_array(e->to, result, w->type, ndim, dim));
    for (int64_t k = 0; k < dim[0] && w->count; k++)
        for (int64_t c = 0; c < dim[1]; c++)
            for (int64_t i = 0; i < area; i++)
                memcpy((char *)(*result)->data + (size_t)((k * dim[1] + c) * area + i) * size,
                       (const char *)w->data + (size_t)((k * area + i) * dim[1] + c) * size, size);
    return TENSOR_OK;
}

/* The numbers of a constant in a format, as the program's own tensors have them; the exponent of a shared one. */
static tensor_status rounded(struct exporter *e, const struct fl_array *a, tensor_format format,
                             struct fl_array **result, int *exponent) {
    const tensor_type type = format == FMT_FP16   ? TENSOR_TYPE_F16
                             : format == FMT_BF16 ? TENSOR_TYPE_BF16
                                                  : TENSOR_TYPE_I16;
    TRY(fl_net_array(e->to, result, type, a->ndim, a->dim));
    *exponent = 0;
    if (!a->count)
        return TENSOR_OK;
    double *const numbers = fl_alloc((size_t)a->count * sizeof *numbers);
    tensor *const t = tensor_new(format, 1, &a->count);
    tensor_status status = numbers && t ? TENSOR_OK : fl_fail(TENSOR_E_MEMORY, "no memory for a constant");
    for (int64_t i = 0; !status && i < a->count; i++)
        numbers[i] = fl_array_number(a, i);
    if (!status)
        status = tensor_load_f64(t, numbers, a->count);
    if (!status)
        status = tensor_store_f64(t, numbers, a->count);
    if (!status && tensor_format_is_shared(format))
        *exponent = tensor_exponent(t);
    for (int64_t i = 0; !status && i < a->count; i++)
        fl_array_put_number(*result, i, ldexp(numbers[i], *exponent));
    tensor_free(t);
    fl_free(numbers);
    return status;
}

/* Scale and zero points of a quantised value as constants. Biases of int32 have no zero points. */
static bool put_quantisation(struct exporter *e, int value, int *scale, int *zero) {
    const struct fl_net_value *const v = &e->from->values[value];
    const struct fl_quantisation *const q = v->quantisation;
    const int64_t count = q->count;
    const tensor_type type = v->constant ? v->constant->type : v->type;
    struct fl_array *s, *z;
    *zero = -1;
    if (fl_net_array(e->to, &s, TENSOR_TYPE_F32, count > 1, &count))
        return false;
    memcpy(s->data, q->scale, (size_t)count * sizeof *q->scale);
    *scale = new_constant(e, v->name, "scale", s);
    if (type == TENSOR_TYPE_I32 || *scale < 0)
        return *scale >= 0;
    if (fl_net_array(e->to, &z, type, count > 1, &count))
        return false;
    for (int i = 0; i < count; i++)
        fl_array_put_integer(z, i, q->zero[i]);
    *zero = new_constant(e, v->name, "zero_point", z);
    return *zero >= 0;
}

/* --- operands -------------------------------------------------------------------------------------------------------
 */

/* Operators whose result is a view of their operand's tensor, with its exponent. */
static const char *const views[] = {"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Transpose", NULL};

/* The exponent at which nodes of a shared-exponent format read a value: where it has none of its own, that of the
 * tensor which it is, such as the operand of a Pad that adds nothing. */
static const struct fl_range *range_of(const struct exporter *e, int value) {
    const struct fl_range *own = &e->from->values[value].range;
    for (int steps = 0; steps < e->from->value_count; steps++) {
        const struct fl_net_node *const maker = e->maker[value];
        const bool own_tensor = e->from->values[value].range.frozen && maker && !is_one_of(maker, views);
        if (!maker || own_tensor || maker->inputs[0] == -1)
            break;
        value = maker->inputs[0];
    }
    const struct fl_range *const first = &e->from->values[value].range;
    return first->frozen ? first : own;
}

/* An exponent within those of a format, as a plan sets it. */
static int within(tensor_format format, int exponent) {
    tensor *const t = tensor_new(format, 1, (const int64_t[]){1});
    const struct autoflex *const a = t ? tensor_autoflex(t) : NULL;
    if (a)
        exponent = exponent < a->e_min ? a->e_min : exponent > a->e_max ? a->e_max : exponent;
    tensor_free(t);
    return exponent;
}

/* A value as `from` has it. */
static int plain(struct place *p, int value) {
    struct exporter *const e = p->e;
    int made = find_made(e, value, PLAIN);
    if (made >= 0)
        return made;
    struct fl_array *const constant = e->from->values[value].constant;
    if (constant) { /* in every graph: the writer finds its place */
        made = new_constant(e, e->from->values[value].name, "", constant);
        e->made[value][PLAIN] = (struct made){made, 1};
        return made;
    }
    fl_fail(TENSOR_E_DATA, "value %s is read before it is computed", e->from->values[value].name);
    return -1;
}

static enum form home_of(const struct exporter *e, int value) {
    return find_made(e, value, PLAIN) >= 0 || e->from->values[value].constant ? PLAIN
           : find_made(e, value, HALF) >= 0                                   ? HALF
           : find_made(e, value, BFLOAT) >= 0                                 ? BFLOAT
                                                                              : PLAIN;
}

/* A float in another form than the one in which it is computed. */
static int in_form(struct place *p, const struct fl_net_node *node, int value, enum form form) {
    struct exporter *const e = p->e;
    const char *const name = e->from->values[value].name;
    int made = find_made(e, value, form);
    if (made >= 0)
        return made;
    const enum form home = home_of(e, value);
    if (form == PLAIN)
        return home == PLAIN ? plain(p, value)
                             : note_made(p, value, PLAIN,
                                         put_cast(p, "operand", name, find_made(e, value, home), TENSOR_TYPE_F32, -1));
    const int from = in_form(p, node, value, PLAIN);
    if (from < 0)
        return -1;
    if (form == LEVELS) {
        const struct fl_range *const range = range_of(e, value);
        if (!range->frozen) {
            fl_fail(TENSOR_E_UNSUPPORTED,
                    "node %s (%s) reads %s in %s, whose exponent is not fixed: calibrate the program and freeze it",
                    node->name, node->op, name, tensor_format_name(node->format));
            return -1;
        }
        made = put_levels(p, "operand", name, from, within(node->format, range->exponent), -1);
    } else {
        made = put_cast(p, "operand", name, from, form == HALF ? TENSOR_TYPE_F16 : TENSOR_TYPE_BF16, -1);
    }
    return made < 0 ? -1 : note_made(p, value, form, made);
}

/* Operators that read constants as tensors of their own format; all others read the numbers, and so does Sub unless the
 * constant has the shape of the result, when rounding is as well left to whoever reads the file. */
static bool rounds_constant(const struct fl_net_node *node, const struct fl_array *a) {
    static const char *const ops[] = {"Conv",   "ConvTranspose",      "Gemm", "MatMul", "Add", "Mul",
                                      "Concat", "LayerNormalization", NULL};
    return a->count > 1 && a->ndim <= 4 && is_one_of(node, ops);
}

/* Whether a node computes in float64, as ONNX sees it. */
static bool reads_doubles(const struct exporter *e, const struct fl_net_node *node) {
    for (int i = 0; i < node->input_count; i++) {
        const struct fl_net_value *const v = node->inputs[i] < 0 ? NULL : &e->from->values[node->inputs[i]];
        if (v && !v->constant && v->type == TENSOR_TYPE_F64)
            return true;
    }
    return false;
}

/* Operand i of a node that computes floats. filters: turn them to [K, C, R, S]. */
static int float_operand(struct place *p, const struct fl_net_node *node, int i, enum form form) {
    struct exporter *const e = p->e;
    const int value = node->inputs[i];
    const struct fl_array *a = e->from->values[value].constant;
    const char *const name = e->from->values[value].name;
    const bool filters = a && node->channels_last && i == 1 && is(node, "Conv");
    struct fl_array *made;
    int exponent;
    if (!a && form == LEVELS && e->is_known[value])
        return in_form(p, node, value, PLAIN);
    if (!a)
        return in_form(p, node, value, form);
    if (filters) {
        if (turned(e, a, &made))
            return -1;
        a = made;
    }
    if (form == PLAIN || !rounds_constant(node, a)) {
        const int same = filters ? new_constant(e, name, "", (struct fl_array *)a) : plain(p, value);
        const bool wide = a->type == TENSOR_TYPE_F64 && !reads_doubles(e, node),
                   as_is = form == PLAIN || form == LEVELS;
        const tensor_type type = as_is ? TENSOR_TYPE_F32 : form == HALF ? TENSOR_TYPE_F16 : TENSOR_TYPE_BF16;
        return same < 0 || (as_is && !wide) ? same : put_cast(p, "operand", name, same, type, -1);
    }
    if (rounded(e, a, node->format, &made, &exponent))
        return -1;
    const int constant = new_constant(e, name, "", made);
    if (form != LEVELS || constant < 0)
        return constant;
    const int scale = new_number(e, name, "scale", TENSOR_TYPE_F32, ldexp(1, -exponent));
    return scale < 0 ? -1 : put_node(p, "DequantizeLinear", "constant", name, 2, (const int[]){constant, scale}, -1);
}

/* A quantised value as a float. rank: of an image to be turned; 0: none. */
static int real_operand(struct place *p, const struct fl_net_node *node, int i, int rank) {
    struct exporter *const e = p->e;
    const int value = node->inputs[i];
    const struct fl_net_value *const v = &e->from->values[value];
    const bool filters = v->constant && node->channels_last && i == 1 && is(node, "Conv"), turn = rank > 0;
    int from, scale, zero;
    if (!turn && !filters && find_made(e, value, REAL) >= 0)
        return find_made(e, value, REAL);
    if (filters) {
        struct fl_array *array;
        from = turned(e, v->constant, &array) ? -1 : new_constant(e, v->name, "", array);
    } else {
        from = plain(p, value);
    }
    if (from >= 0 && turn)
        from = put_turn(p, "operand", v->name, from, rank, false, -1);
    if (from < 0 || !put_quantisation(e, value, &scale, &zero))
        return -1;
    const int result =
        put_node(p, "DequantizeLinear", NULL, v->name, zero < 0 ? 2 : 3, (const int[]){from, scale, zero}, -1);
    if (result < 0 ||
        (v->quantisation->count > 1 && fl_net_set_int(e->to, last_node(p), "axis", v->quantisation->axis)))
        return -1;
    return turn || filters ? result : note_made(p, value, REAL, result);
}

/* --- one node -------------------------------------------------------------------------------------------------------
 */

static tensor_status put_graph(struct exporter *e, const struct fl_net_graph *from, struct fl_net_graph *to);

/* Attributes, less those that ONNX does not have. */
static tensor_status copy_attributes(struct exporter *e, const struct fl_net_node *node, struct fl_net_attribute *to,
                                     int *count) {
    *count = 0;
    for (int i = 0; i < node->attribute_count; i++) {
        const struct fl_net_attribute *const a = &node->attributes[i];
        if (!strncmp(a->name, "flexlab", 7)) {
            if (!strcmp(a->name, "flexlab_flatten") && a->i)
                return fl_fail(TENSOR_E_UNSUPPORTED, "node %s (%s): ONNX has no attribute %s", node->name, node->op,
                               a->name);
            continue;
        }
        to[*count] = *a;
        if (a->graph) {
            to[*count].graph = fl_net_memory(e->to, sizeof *a->graph);
            if (!to[*count].graph)
                return TENSOR_E_MEMORY;
            TRY(put_graph(e, a->graph, to[*count].graph));
        }
        ++*count;
    }
    return TENSOR_OK;
}

static tensor_status put_activation(struct place *p, const struct fl_net_node *node, int *value, enum form form,
                                    int to) {
    struct fl_activation_of a;
    const tensor_type type = form == HALF ? TENSOR_TYPE_F16 : form == BFLOAT ? TENSOR_TYPE_BF16 : TENSOR_TYPE_F32;
    TRY(fl_activation_read(node, &a));
    if (a.kind == FL_CLIP) {
        int inputs[] = {*value, -1, -1};
        if (!isinf(a.low) && (inputs[1] = new_number(p->e, node->name, "min", type, (double)a.low)) < 0)
            return TENSOR_E_MEMORY;
        if (!isinf(a.high) && (inputs[2] = new_number(p->e, node->name, "max", type, (double)a.high)) < 0)
            return TENSOR_E_MEMORY;
        *value = put_node(p, "Clip", "activation", node->name, 3, inputs, to);
    } else {
        *value = put_node(p, "Relu", "activation", node->name, 1, value, to);
    }
    return *value < 0 ? TENSOR_E_MEMORY : TENSOR_OK;
}

static const char *const windows[] = {"Conv",
                                      "ConvTranspose",
                                      "AveragePool",
                                      "MaxPool",
                                      "GlobalAveragePool",
                                      "GlobalMaxPool",
                                      "LpPool",
                                      "GlobalLpPool",
                                      "BatchNormalization",
                                      "InstanceNormalization",
                                      NULL};

/* Dimensions of the images of such a node. */
static int rank_of(const struct exporter *e, const struct fl_net_node *node) {
    const struct fl_net_attribute *const window = fl_net_find(node, "kernel_shape");
    const struct fl_array *const w = node->input_count > 1 && node->inputs[1] != -1 && strstr(node->op, "Conv")
                                         ? e->from->values[node->inputs[1]].constant
                                         : NULL;
    const int stated = e->from->values[node->inputs[0]].ndim;
    return w ? w->ndim : window && window->kind == FL_NET_INTS ? window->count + 2 : stated > 2 ? stated : 4;
}

/* Formats, exponents, and attributes that ONNX does not have, for whoever reads the file with this library. */
static tensor_status put_notes(struct exporter *e, const struct fl_net_node *node, struct fl_net_node *to) {
    char text[400] = "";
    size_t used = 0;
    if (node->format && node->format != FMT_FP32)
        TRY(fl_net_set_string(e->to, to, "flexlab.format", tensor_format_name(node->format)));
    if (node->channels_last)
        TRY(fl_net_set_string(e->to, to, "flexlab.layout", "nhwc"));
    for (int i = 0; i < node->output_count && used < sizeof text - 40; i++) {
        const struct fl_range *range = node->outputs[i] == -1 ? NULL : &e->from->values[node->outputs[i]].range;
        if (range && !range->frozen && tensor_format_is_shared(node->format))
            range = range_of(e, node->outputs[i]);
        if (range && range->frozen)
            used += (size_t)snprintf(text + used, sizeof text - used, "%so%d=%d", used ? " " : "", i,
                                     within(node->format, range->exponent));
    }
    for (int i = 0; node->inner && i < FL_NODE_TEMPORARIES && used < sizeof text - 40; i++)
        if (node->inner[i].frozen)
            used += (size_t)snprintf(text + used, sizeof text - used, "%si%d=%d", used ? " " : "", i,
                                     within(node->format, node->inner[i].exponent));
    if (used)
        TRY(fl_net_set_string(e->to, to, "flexlab.exponents", text));
    used = 0;
    for (int i = 0; i < node->attribute_count && used < sizeof text / 2; i++) {
        const struct fl_net_attribute *const at = &node->attributes[i];
        if (!strncmp(at->name, "flexlab_", 8) && at->kind == FL_NET_INT)
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%.40s=%lld", used ? " " : "", at->name,
                                     (long long)at->i);
        if ((!strncmp(at->name, "flexlab_", 8) || is(node, "Swish")) && at->kind == FL_NET_FLOAT)
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%.40s=%a", used ? " " : "", at->name,
                                     (double)at->f);
    }
    return used ? fl_net_set_string(e->to, to, "flexlab.attributes", text) : TENSOR_OK;
}

static bool is_quantised(const struct exporter *e, int value) {
    return value != -1 && e->from->values[value].quantisation;
}

/* A node of the canonical form of integers (network.h). */
static bool computes_integers(const struct exporter *e, const struct fl_net_node *node) {
    return !*node->domain && node->input_count && node->output_count && is_quantised(e, node->inputs[0]) &&
           is_quantised(e, node->outputs[0]) && strncmp(node->op, "QLinear", 7) != 0;
}

/* The form in which a node computes. */
static tensor_status form_of(const struct exporter *e, const struct fl_net_node *node, enum form *form) {
    /* They give one type whatever they read. */
    static const char *const fixed[] = {"Cast",
                                        "CastLike",
                                        "ConstantOfShape",
                                        "EyeLike",
                                        "QuantizeLinear",
                                        "DequantizeLinear",
                                        "DynamicQuantizeLinear",
                                        "If",
                                        "Constant",
                                        "NonMaxSuppression",
                                        NULL};
    bool floats = false, known = true;
    for (int i = 0; i < node->output_count; i++)
        floats |= node->outputs[i] != -1 && e->is_float[node->outputs[i]];
    for (int i = 0; i < node->input_count; i++) {
        floats |= node->inputs[i] != -1 && e->is_float[node->inputs[i]] && !e->from->values[node->inputs[i]].constant;
        known &= node->inputs[i] == -1 || e->is_known[node->inputs[i]];
    }
    *form = PLAIN;
    if (!floats || known || !node->format || node->format == FMT_FP32 || is_one_of(node, fixed))
        return TENSOR_OK;
    const char *const name = tensor_format_name(node->format);
    if (node->format == FMT_FP16)
        *form = HALF;
    else if (node->format == FMT_BF16)
        *form = BFLOAT;
    else if (name && tensor_format_is_shared(node->format) && tensor_format_bytes(node->format) == 2)
        *form = LEVELS;
    else
        return fl_fail(TENSOR_E_UNSUPPORTED,
                       "node %s (%s) computes in %s, expected a format that ONNX has: fp32, fp16, bf16, flex16+5, "
                       "dfp16, or integers of 8 bits",
                       node->name, node->op, name ? name : "a format that the program does not have yet");
    return TENSOR_OK;
}

static int operand(struct place *p, const struct fl_net_node *node, int i, enum form form, bool integers) {
    const struct exporter *const e = p->e;
    const int value = node->inputs[i];
    const bool windowed = node->channels_last && is_one_of(node, windows);
    const bool image = windowed && (!i || (i == 3 && is(node, "Conv")));
    if (value == -1)
        return -1;
    if (integers && is_quantised(e, value))
        return real_operand(p, node, i, image ? rank_of(e, node) : 0);
    if (!e->is_float[value])
        return plain(p, value);
    /* Scales of a Resize are float32 whatever its image is. */
    int made = float_operand(p, node, i, is(node, "Resize") && i ? PLAIN : form);
    if (made >= 0 && image)
        made = put_turn(p, "operand", e->from->values[value].name, made, rank_of(e, node), false, -1);
    return made;
}

/* What stands behind a node before its result is the value of the network. */
struct behind {
    bool residual, activation, turn, levels, cast;
};

/* Result i of the last node of a graph, and what stands behind it; `left` counts what is still to come. */
static tensor_status put_result(struct place *p, const struct fl_net_node *node, int i, int at, enum form form,
                                bool integers, int added, struct behind b) {
    struct exporter *const e = p->e;
    const int value = node->outputs[i], final = e->same[value];
    const char *const name = e->from->values[value].name;
    const bool half = (form == HALF || form == BFLOAT) && e->is_float[value];
    int left = b.residual + b.activation + b.turn + b.levels + b.cast;
    int now = left ? new_value(e, name, "result") : final, scale, zero;
    if (now < 0)
        return TENSOR_E_MEMORY;
    if (half && !b.cast && e->to->values[final].type)
        e->to->values[final].type = form == HALF ? TENSOR_TYPE_F16 : TENSOR_TYPE_BF16;
    p->graph->nodes[at].outputs[i] = now;
    if (b.residual)
        now = put_node(p, "Add", "residual", node->name, 2, (const int[]){now, added}, --left ? -1 : final);
    if (now >= 0 && b.activation)
        TRY(put_activation(p, node, &now, form, --left ? -1 : final));
    if (now >= 0 && b.turn && !integers)
        now = put_turn(p, "result", name, now, rank_of(e, node), true, --left ? -1 : final);
    if (now >= 0 && b.levels && integers)
        now = put_quantisation(e, value, &scale, &zero)
                  ? put_node(p, "QuantizeLinear", NULL, name, 3, (const int[]){now, scale, zero}, --left ? -1 : final)
                  : -1;
    if (now >= 0 && b.levels && !integers) {
        const struct fl_range *const range = range_of(e, value);
        if (!range->frozen)
            return fl_fail(TENSOR_E_UNSUPPORTED,
                           "node %s (%s) computes %s in %s, whose exponent is not fixed: calibrate the program and "
                           "freeze it",
                           node->name, node->op, name, tensor_format_name(node->format));
        now = put_levels(p, "result", name, now, within(node->format, range->exponent), --left ? -1 : final);
    }
    if (now >= 0 && b.turn && integers)
        now = put_turn(p, "result", name, now, rank_of(e, node), true, --left ? -1 : final);
    if (now >= 0 && b.cast) {
        note_made(p, value, form, now);
        now = put_cast(p, "result", name, now, TENSOR_TYPE_F32, final);
    }
    note_made(p, value, half && !b.cast ? form : PLAIN, final);
    return now < 0 ? TENSOR_E_MEMORY : TENSOR_OK;
}

/* The operand of a Softmax whose rows are multiplied by a number (flexlab_beta), and end at their own index
 * (flexlab_causal). */
static tensor_status put_softmax(struct place *p, const struct fl_net_node *node, enum form form, int *x) {
    struct exporter *const e = p->e;
    const tensor_type type = form == HALF ? TENSOR_TYPE_F16 : form == BFLOAT ? TENSOR_TYPE_BF16 : TENSOR_TYPE_F32;
    const float beta = fl_net_float(node, "flexlab_beta", 1);
    struct fl_array *one;
    if (beta != 1) {
        const int factor = new_number(e, node->name, "beta", type, (double)beta);
        *x = factor < 0 ? -1 : put_node(p, "Mul", "operand", node->name, 2, (const int[]){*x, factor}, -1);
    }
    if (*x < 0 || !fl_net_int(node, "flexlab_causal", 0))
        return *x < 0 ? TENSOR_E_MEMORY : TENSOR_OK;
    const int lowest = new_number(e, node->name, "lowest", type, -INFINITY);
    const int shape = put_node(p, "Shape", "mask", node->name, 1, x, -1);
    const int ones = shape < 0 ? -1 : put_node(p, "ConstantOfShape", "mask", node->name, 1, &shape, -1);
    struct fl_net_node *const made = ones < 0 ? NULL : last_node(p);
    struct fl_net_attribute *const value = made ? fl_net_memory(e->to, 2 * sizeof *value) : NULL;
    if (lowest < 0 || !value || fl_net_array(e->to, &one, TENSOR_TYPE_F32, 1, (const int64_t[]){1}))
        return TENSOR_E_MEMORY;
    fl_array_put_number(one, 0, 1);
    value[0] = (struct fl_net_attribute){.name = "value", .kind = FL_NET_ARRAY, .array = one};
    value[1] = made->attributes[0]; /* its part */
    made->attributes = value;
    made->attribute_count = 2;
    int mask = put_node(p, "Trilu", "mask", node->name, 1, &ones, -1);
    if (mask < 0 || fl_net_set_int(e->to, last_node(p), "upper", 0))
        return TENSOR_E_MEMORY;
    mask = put_cast(p, "mask", node->name, mask, TENSOR_TYPE_BOOL, -1);
    *x = mask < 0 ? -1 : put_node(p, "Where", "operand", node->name, 3, (const int[]){mask, *x, lowest}, -1);
    return *x < 0 ? TENSOR_E_MEMORY : TENSOR_OK;
}

/* x sigmoid(alpha x), which ONNX has from opset 24 on: a product. */
static tensor_status put_swish(struct place *p, const struct fl_net_node *node, enum form form, int *inputs) {
    const tensor_type type = form == HALF ? TENSOR_TYPE_F16 : form == BFLOAT ? TENSOR_TYPE_BF16 : TENSOR_TYPE_F32;
    const float alpha = fl_net_float(node, "alpha", 1);
    int x = inputs[0];
    if (alpha != 1) {
        const int factor = new_number(p->e, node->name, "alpha", type, (double)alpha);
        x = factor < 0 ? -1 : put_node(p, "Mul", "mask", node->name, 2, (const int[]){x, factor}, -1);
    }
    inputs[1] = x < 0 ? -1 : put_node(p, "Sigmoid", "mask", node->name, 1, &x, -1);
    return inputs[1] < 0 ? TENSOR_E_MEMORY : TENSOR_OK;
}

/* The name of a node, which no other has. */
static const char *node_name(struct exporter *e, const struct fl_net_node *node) {
    const size_t length = strlen(node->name);
    char *const name = fl_net_memory(e->to, length + 16);
    if (!name)
        return NULL;
    strcpy(name, node->name);
    for (int i = 2; *name && fl_onnx_names_find(&e->node_names, name) >= 0; i++)
        snprintf(name + length, 16, ".%d", i);
    return !*name || !fl_onnx_names_add(&e->node_names, name, 0) ? name : NULL;
}

static tensor_status put_operator(struct place *p, const struct fl_net_node *node) {
    struct exporter *const e = p->e;
    const bool integers = computes_integers(e, node), turn = node->channels_last && is_one_of(node, windows);
    const bool residual = is(node, "Conv") && node->input_count > 3 && node->inputs[3] != -1;
    int *const inputs = fl_net_memory(e->to, ((size_t)node->input_count + 2) * sizeof *inputs);
    struct fl_net_attribute *const attributes =
        fl_net_memory(e->to, ((size_t)node->attribute_count + 1) * sizeof *attributes);
    struct fl_activation_of activation;
    enum form form;
    int attribute_count, given = 0;
    if (!inputs || !attributes)
        return TENSOR_E_MEMORY;
    TRY(form_of(e, node, &form));
    TRY(fl_activation_read(node, &activation));
    for (int i = 0; i < node->input_count; i++) {
        inputs[i] = operand(p, node, i, form, integers);
        if (inputs[i] < 0 && node->inputs[i] != -1)
            return tensor_error_status();
        if (inputs[i] >= 0 && !(residual && i == 3))
            given = i + 1;
    }
    if (is(node, "Softmax"))
        TRY(put_softmax(p, node, form, &inputs[0]));
    const bool swish = is(node, "Swish");
    if (swish) {
        TRY(put_swish(p, node, form, inputs));
        given = 2;
    }
    TRY(copy_attributes(e, node, attributes, &attribute_count));
    struct fl_net_node *const made =
        fl_net_add_node(e->to, p->graph, swish ? "Mul" : node->op, "", given, node->output_count, 0);
    if (!made || !(made->name = node_name(e, node)))
        return TENSOR_E_MEMORY;
    made->domain = node->domain;
    memcpy(made->inputs, inputs, (size_t)given * sizeof *inputs);
    made->attributes = attributes;
    made->attribute_count = attribute_count;
    if (swish) {
        made->attribute_count = 0;
        TRY(fl_net_set_string(e->to, made, "flexlab.operator", "Swish"));
    }
    TRY(put_notes(e, node, made));
    const int at = p->graph->node_count - 1;
    for (int i = node->output_count - 1; i >= 0; i--) {
        const int value = node->outputs[i];
        if (value == -1)
            continue;
        const bool floats = e->is_float[value], half = form == HALF || form == BFLOAT;
        const struct behind b = {.residual = !i && residual,
                                 .activation = !i && activation.kind != FL_NO_ACTIVATION,
                                 .turn = !i && turn,
                                 .levels = integers ? !is(node, "QuantizeLinear")
                                                    : form == LEVELS && floats && !is_one_of(node, views),
                                 .cast = half && floats && e->is_output[value]};
        TRY(put_result(p, node, i, at, form, integers, residual ? inputs[3] : -1, b));
    }
    return TENSOR_OK;
}

/* --- the whole ------------------------------------------------------------------------------------------------------
 */

static tensor_status put_graph(struct exporter *e, const struct fl_net_graph *from, struct fl_net_graph *to) {
    struct place p = {e, to, ++e->graph_count};
    e->is_open[p.number] = true;
    to->inputs = fl_net_memory(e->to, (size_t)from->input_count * sizeof *to->inputs);
    to->outputs = fl_net_memory(e->to, (size_t)from->output_count * sizeof *to->outputs);
    if (!to->inputs || !to->outputs)
        return TENSOR_E_MEMORY;
    for (int i = 0; i < from->input_count; i++) {
        const int value = from->inputs[i], made = e->same[value];
        if (!e->to->values[made].type)
            e->to->values[made].type = TENSOR_TYPE_F32;
        to->inputs[to->input_count++] = note_made(&p, value, PLAIN, made);
    }
    for (int k = 0; k < from->node_count; k++)
        TRY(put_operator(&p, &from->nodes[k]));
    const struct fl_net_node end = {.name = "of the network", .op = "output", .domain = ""};
    for (int i = 0; i < from->output_count; i++) {
        const int made = in_form(&p, &end, from->outputs[i], PLAIN);
        if (made < 0)
            return tensor_error_status();
        if (!e->to->values[made].type)
            e->to->values[made].type = e->is_float[from->outputs[i]] ? TENSOR_TYPE_F32 : 0;
        to->outputs[to->output_count++] = made;
    }
    e->is_open[p.number] = p.number == 1;
    return TENSOR_OK;
}

static int count_graphs(const struct fl_net_graph *graph) {
    int count = 1;
    for (int k = 0; k < graph->node_count; k++)
        for (int a = 0; a < graph->nodes[k].attribute_count; a++)
            if (graph->nodes[k].attributes[a].graph)
                count += count_graphs(graph->nodes[k].attributes[a].graph);
    return count;
}

/* Values of the names and shapes that those in `from` have. */
static tensor_status reserve(struct exporter *e, const struct fl_net_graph *graph) {
    for (int i = 0; i < graph->input_count; i++)
        if ((e->same[graph->inputs[i]] = same_value(e, graph->inputs[i])) < 0)
            return TENSOR_E_MEMORY;
    for (int k = 0; k < graph->node_count; k++) {
        const struct fl_net_node *const node = &graph->nodes[k];
        for (int i = 0; i < node->output_count; i++)
            if (node->outputs[i] != -1 && (e->same[node->outputs[i]] = same_value(e, node->outputs[i])) < 0)
                return TENSOR_E_MEMORY;
        for (int a = 0; a < node->attribute_count; a++)
            if (node->attributes[a].graph)
                TRY(reserve(e, node->attributes[a].graph));
    }
    return TENSOR_OK;
}

static void note_makers(struct exporter *e, const struct fl_net_graph *graph) {
    for (int k = 0; k < graph->node_count; k++) {
        const struct fl_net_node *const node = &graph->nodes[k];
        bool known = node->input_count > 0;
        for (int i = 0; i < node->input_count; i++)
            known &= node->inputs[i] == -1 || e->is_known[node->inputs[i]];
        for (int i = 0; i < node->output_count; i++)
            if (node->outputs[i] != -1) {
                e->maker[node->outputs[i]] = node;
                e->is_known[node->outputs[i]] = known;
            }
        for (int a = 0; a < node->attribute_count; a++)
            if (node->attributes[a].graph)
                note_makers(e, node->attributes[a].graph);
    }
    for (int i = 0; i < graph->output_count; i++)
        e->is_output[graph->outputs[i]] = true;
}

static tensor_status build(struct exporter *e) {
    const size_t values = (size_t)e->from->value_count + 1;
    e->to->producer = e->from->producer;
    e->to->rounding = e->from->rounding;
    e->is_float = fl_net_memory(e->to, values * sizeof *e->is_float);
    e->is_known = fl_net_memory(e->to, values * sizeof *e->is_known);
    e->is_output = fl_net_memory(e->to, values * sizeof *e->is_output);
    e->to->opset = 22; /* which the writer says where there is bfloat16 */
    e->same = fl_net_memory(e->to, values * sizeof *e->same);
    e->maker = fl_net_memory(e->to, values * sizeof *e->maker);
    e->made = fl_net_memory(e->to, values * sizeof *e->made);
    e->is_open = fl_net_memory(e->to, ((size_t)count_graphs(&e->from->graph) + 1) * sizeof *e->is_open);
    if (!e->is_float || !e->is_known || !e->is_output || !e->same || !e->maker || !e->made || !e->is_open)
        return TENSOR_E_MEMORY;
    for (int v = 0; v < e->from->value_count; v++)
        e->is_known[v] = e->from->values[v].constant;
    TRY(reserve(e, &e->from->graph)); /* constants that have the name of another value give way */
    fl_onnx_floats(e->from, e->is_float);
    note_makers(e, &e->from->graph);
    return put_graph(e, &e->from->graph, &e->to->graph);
}

/* Sizes of such outputs stay open. */
static void state_ndim(const struct exporter *e, const int *ndim) {
    for (int i = 0; i < e->to->graph.output_count; i++) {
        struct fl_net_value *const v = &e->to->values[e->to->graph.outputs[i]];
        if (v->ndim >= 0)
            continue;
        v->ndim = ndim[i];
        for (int d = 0; d < ndim[i]; d++)
            v->dim[d] = -1;
    }
}

tensor_status fl_onnx_export(const struct fl_network *n, const int *ndim, const char *path) {
    struct exporter e = {.from = n, .to = fl_network_new(FL_NET_ONNX)};
    tensor_status status = e.to ? build(&e) : TENSOR_E_MEMORY;
    if (!status) {
        state_ndim(&e, ndim);
        status = fl_net_check(e.to);
    }
    fl_onnx_names_free(&e.names);
    fl_onnx_names_free(&e.node_names);
    if (status)
        status = fl_fail(status, "%s: %s", path, tensor_error());
    else
        status = fl_onnx_write(e.to, path);
    fl_network_free(e.to);
    return status;
}
