/* tflite_nodes.c - the operators of a .tflite file as those of ONNX; see tflite_read.h. */
#include "program/tflite/tflite_reader.h"

#ifdef FL_HAVE_TFLITE
#include "core/base/fail.h"
#include "core/base/text.h"
#include <limits.h>
#include <string.h>

/* An operator while it is translated. */
struct operation {
    struct fl_tflite_reader *r;
    struct fl_network *n;
    uint32_t index;
    struct fl_tflite_operator op;
    const struct rule *rule;
    const char *name; /* of its nodes: that of its result */
};
typedef tensor_status translate_fn(struct operation *o);

struct rule {
    const char *name;    /* in the file */
    const char *options; /* the table that it must have, or, after "?", may have; NULL: any or none, not read */
    translate_fn *translate;
    const char *op;  /* in the network */
    int least, most; /* operands; most < 0: any number */
};

static tensor_status fail(const struct operation *o, tensor_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static tensor_status fail(const struct operation *o, tensor_status status, const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    fl_format(text, sizeof text, format, arguments);
    va_end(arguments);
    return fl_fail(status, "operator %u, %s (%s): %s", o->index, o->op.name, o->name, text);
}

/* --- operands, constants and nodes -------------------------------------------------------------------------------- */

/* -1: not given. */
static int operand(const struct operation *o, uint32_t i) {
    return i < o->op.inputs.count ? o->op.inputs.at[i] : -1;
}

static struct fl_net_value *value(const struct operation *o, int i) {
    return &o->n->values[i];
}

static int result(const struct operation *o) {
    return o->op.outputs.at[0];
}

static bool is_float(const struct fl_net_value *v) {
    return v->type == TENSOR_TYPE_F32 || v->type == TENSOR_TYPE_F16 || v->type == TENSOR_TYPE_F64 ||
           v->type == TENSOR_TYPE_BF16;
}

static const char *joined(struct fl_network *n, const char *base, const char *ending) {
    const size_t head = strlen(base), tail = strlen(ending);
    char *const text = fl_net_memory(n, head + tail + 1);
    if (text) {
        memcpy(text, base, head);
        memcpy(text + head, ending, tail);
    }
    return text;
}

int fl_tflite_add_constant(struct fl_network *n, const char *base, const char *ending, tensor_type type, int ndim,
                           const int64_t *dim, const void *data) {
    const char *const name = joined(n, base, ending);
    struct fl_array *a = NULL;
    const int i = name && !fl_net_array(n, &a, type, ndim, dim) ? fl_net_add_value(n, name) : -1;
    if (i < 0)
        return -1;
    struct fl_net_value *const v = &n->values[i];
    v->type = type;
    v->ndim = ndim;
    if (ndim)
        memcpy(v->dim, dim, (size_t)ndim * sizeof *dim);
    if (a->count && data)
        memcpy(a->data, data, (size_t)a->count * fl_type_bytes(type));
    v->constant = a;
    return i;
}

int fl_tflite_add_ints(struct fl_network *n, const char *base, const char *ending, int count, const int64_t *values) {
    const int64_t dim = count;
    return fl_tflite_add_constant(n, base, ending, TENSOR_TYPE_I64, 1, &dim, values);
}

static int add_float(struct operation *o, const char *ending, float number) {
    return fl_tflite_add_constant(o->n, o->name, ending, TENSOR_TYPE_F32, 0, NULL, &number);
}

/* A value between the nodes of one operator, with the type of another value. */
static int add_between(struct operation *o, const char *ending, int like, int ndim, const int64_t *dim) {
    const char *const name = joined(o->n, o->name, ending);
    const int i = name ? fl_net_add_value(o->n, name) : -1;
    if (i < 0)
        return -1;
    struct fl_net_value *const v = value(o, i), *const other = value(o, like);
    v->type = other->type;
    v->quantisation = other->quantisation;
    v->ndim = ndim;
    memcpy(v->dim, dim, (size_t)ndim * sizeof *dim);
    return i;
}

/* A node with up to three operands, of which those at the end may be -1, and one result. */
static tensor_status add_node(struct operation *o, const char *op, int a, int b, int c, int to,
                              struct fl_net_node **node) {
    const int in[] = {a, b, c}, count = c >= 0 ? 3 : b >= 0 ? 2 : 1;
    *node = fl_net_add_node(o->n, &o->n->graph, op, o->name, count, 1, 0);
    if (!*node)
        return TENSOR_E_MEMORY;
    for (int i = 0; i < count; i++)
        (*node)->inputs[i] = in[i];
    (*node)->outputs[0] = to;
    return TENSOR_OK;
}

/* The integers of an operand, which must be a constant with one dimension, or none. */
static tensor_status integers(const struct operation *o, uint32_t i, const char *what, int most, int64_t *list,
                              int *count) {
    const struct fl_net_value *const v = operand(o, i) < 0 ? NULL : value(o, operand(o, i));
    const struct fl_array *const a = v ? v->constant : NULL;
    if (!a)
        return fail(o, TENSOR_E_UNSUPPORTED, "%s is %s, expected a constant", what,
                    v ? "computed while the network runs" : "not given");
    if ((a->type != TENSOR_TYPE_I32 && a->type != TENSOR_TYPE_I64) || a->ndim > 2 || a->count > most)
        return fail(o, TENSOR_E_DATA, "%s has %lld numbers of type %s in %d dimensions, expected up to %d integers",
                    what, (long long)a->count, fl_type_name(a->type), a->ndim, most);
    for (int64_t k = 0; k < a->count; k++)
        list[k] = a->type == TENSOR_TYPE_I32 ? ((const int32_t *)a->data)[k] : ((const int64_t *)a->data)[k];
    *count = (int)a->count;
    return TENSOR_OK;
}

/* An axis as 0 ... ndim - 1. */
static tensor_status axis_of(const struct operation *o, int64_t given, int ndim, int64_t *axis) {
    if (given < -ndim || given >= ndim)
        return fail(o, TENSOR_E_DATA, "axis %lld, expected %d to %d", (long long)given, -ndim, ndim - 1);
    *axis = given < 0 ? given + ndim : given;
    return TENSOR_OK;
}

static tensor_status axes_of(const struct operation *o, int ndim, int count, int64_t *axes) {
    unsigned seen = 0;
    for (int i = 0; i < count; i++) {
        TRY(axis_of(o, axes[i], ndim, &axes[i]));
        if (seen >> axes[i] & 1)
            return fail(o, TENSOR_E_DATA, "axis %lld twice", (long long)axes[i]);
        seen |= 1u << axes[i];
    }
    return TENSOR_OK;
}

static tensor_status need_dims(const struct operation *o, int i, int ndim, const char *what) {
    if (value(o, i)->ndim != ndim)
        return fail(o, TENSOR_E_DATA, "%s has %d dimensions, expected %d", what, value(o, i)->ndim, ndim);
    return TENSOR_OK;
}

/* The names of the activations that are fused, by their numbers in the format; "": none. */
static const char *activation_of(int number) {
    static const char *const names[] = {"", "Relu", "Clip:-1:1", "Clip:0:6"};
    return number < 0 || number >= (int)(sizeof names / sizeof names[0]) ? NULL : names[number];
}

static tensor_status set_activation(struct operation *o, struct fl_net_node *node) {
    const char *const activation = activation_of(o->op.options.activation); /* fl_tflite_survey knows it */
    return o->rule->options && *activation ? fl_net_set_string(o->n, node, "flexlab_activation", activation)
                                           : TENSOR_OK;
}

/* --- images ------------------------------------------------------------------------------------------------------- */

static tensor_status set_pair(struct operation *o, struct fl_net_node *node, const char *name, int h, int w) {
    if (h < 1 || w < 1)
        return fail(o, TENSOR_E_DATA, "%s %d x %d, expected at least 1", name, h, w);
    return fl_net_set_ints(o->n, node, name, 2, (const int64_t[]){h, w});
}

static tensor_status set_windows(struct operation *o, struct fl_net_node *node) {
    const struct fl_tflite_options *const t = &o->op.options;
    if (t->padding != 0 && t->padding != 1)
        return fail(o, TENSOR_E_DATA, "padding %d, expected 0 (SAME) or 1 (VALID)", t->padding);
    node->channels_last = true;
    TRY(fl_net_set_string(o->n, node, "auto_pad", t->padding ? "VALID" : "SAME_UPPER"));
    TRY(set_pair(o, node, "strides", t->stride_h, t->stride_w));
    return set_activation(o, node);
}

static tensor_status check_bias(struct operation *o, int bias, int64_t outputs) {
    if (bias < 0)
        return TENSOR_OK;
    const struct fl_net_value *const b = value(o, bias);
    int64_t count = 1;
    for (int i = 0; i < b->ndim; i++)
        count *= b->dim[i];
    if (b->ndim < 1 || b->dim[b->ndim - 1] != count || count != outputs)
        return fail(o, TENSOR_E_DATA, "the bias %s has %lld elements, expected %lld as there are outputs", b->name,
                    (long long)count, (long long)outputs);
    return TENSOR_OK;
}

static tensor_status add_convolution(struct operation *o, int filter, int64_t groups, bool depthwise) {
    const int x = operand(o, 0), bias = operand(o, 2);
    const struct fl_net_value *const w = value(o, filter);
    const int64_t size[] = {w->dim[1], w->dim[2]};
    struct fl_net_node *node;
    TRY(check_bias(o, bias, w->dim[0]));
    TRY(add_node(o, "Conv", x, filter, bias, result(o), &node));
    TRY(fl_net_set_ints(o->n, node, "kernel_shape", 2, size));
    TRY(set_pair(o, node, "dilations", o->op.options.dilation_h, o->op.options.dilation_w));
    TRY(fl_net_set_int(o->n, node, "group", groups));
    if (depthwise) /* kernels of integers round these in their own way */
        TRY(fl_net_set_int(o->n, node, "flexlab_depthwise", 1));
    return set_windows(o, node);
}

static tensor_status translate_conv(struct operation *o) {
    TRY(need_dims(o, operand(o, 0), 4, "the image"));
    TRY(need_dims(o, operand(o, 1), 4, "the filter"));
    const int64_t channels = value(o, operand(o, 0))->dim[3];
    const int64_t *const w = value(o, operand(o, 1))->dim;
    if (w[0] < 1 || w[1] < 1 || w[2] < 1 || w[3] < 1 || channels % w[3] || channels < 1 || w[0] % (channels / w[3]))
        return fail(o, TENSOR_E_DATA,
                    "a filter of %lld x %lld x %lld x %lld for %lld channels, expected groups of equal size",
                    (long long)w[0], (long long)w[1], (long long)w[2], (long long)w[3], (long long)channels);
    return add_convolution(o, operand(o, 1), channels / w[3], false);
}

/* A filter [1, R, S, K] as one [K, R, S, 1]: group k of Conv has the channels that the runtime gives output k. */
static tensor_status turn_filter(struct operation *o, int *turned) {
    int *const known = &o->r->depthwise[operand(o, 1)];
    struct fl_net_value *w = value(o, operand(o, 1));
    const int64_t rows = w->dim[1] * w->dim[2], outputs = w->dim[3], dim[] = {outputs, w->dim[1], w->dim[2], 1};
    const size_t bytes = fl_type_bytes(w->type);
    *turned = *known - 1;
    if (*known)
        return TENSOR_OK;
    if (!w->constant)
        return fail(o, TENSOR_E_UNSUPPORTED, "the filter %s is computed while the network runs", w->name);
    TRY(fl_tflite_take(o->r, (uint64_t)w->constant->count * bytes));
    *turned = fl_tflite_add_constant(o->n, w->name, ".turned", w->type, 4, dim, NULL);
    if (*turned < 0)
        return TENSOR_E_MEMORY;
    w = value(o, operand(o, 1)); /* the list of values may have moved */
    struct fl_net_value *const v = value(o, *turned);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < outputs; k++)
            memcpy((char *)v->constant->data + (size_t)(k * rows + i) * bytes,
                   (const char *)w->constant->data + (size_t)(i * outputs + k) * bytes, bytes);
    if (w->quantisation) {
        v->quantisation = fl_net_memory(o->n, sizeof *v->quantisation);
        if (!v->quantisation)
            return TENSOR_E_MEMORY;
        *v->quantisation = *w->quantisation;
        if (w->quantisation->count > 1 && w->quantisation->axis != 3)
            return fail(o, TENSOR_E_UNSUPPORTED, "the scales of the filter are along dimension %d, expected 3",
                        w->quantisation->axis);
        v->quantisation->axis = 0;
    }
    *known = *turned + 1;
    return TENSOR_OK;
}

static tensor_status translate_depthwise(struct operation *o) {
    int filter;
    TRY(need_dims(o, operand(o, 0), 4, "the image"));
    TRY(need_dims(o, operand(o, 1), 4, "the filter"));
    const int64_t channels = value(o, operand(o, 0))->dim[3];
    const int64_t *const w = value(o, operand(o, 1))->dim;
    if (w[0] != 1 || w[1] < 1 || w[2] < 1 || w[3] < 1 || channels < 1 || w[3] % channels)
        return fail(
            o, TENSOR_E_DATA,
            "a filter of %lld x %lld x %lld x %lld for %lld channels, expected 1 and a multiple of the channels",
            (long long)w[0], (long long)w[1], (long long)w[2], (long long)w[3], (long long)channels);
    TRY(turn_filter(o, &filter));
    return add_convolution(o, filter, channels, true);
}

static tensor_status translate_pool(struct operation *o) {
    struct fl_net_node *node;
    TRY(need_dims(o, operand(o, 0), 4, "the image"));
    TRY(add_node(o, o->rule->op, operand(o, 0), -1, -1, result(o), &node));
    TRY(set_pair(o, node, "kernel_shape", o->op.options.filter_h, o->op.options.filter_w));
    if (!strcmp(o->rule->op, "AveragePool"))
        TRY(fl_net_set_int(o->n, node, "count_include_pad", 0)); /* means are those of real pixels */
    return set_windows(o, node);
}

static tensor_status translate_resize(struct operation *o) {
    const bool nearest = !strcmp(o->rule->op, "nearest"), corners = o->op.options.align_corners,
               half = o->op.options.half_pixel;
    int64_t size[2];
    int count = 0;
    struct fl_net_node *node;
    TRY(need_dims(o, operand(o, 0), 4, "the image"));
    TRY(integers(o, 1, "the size", 2, size, &count));
    if (count != 2 || size[0] < 1 || size[1] < 1)
        return fail(o, TENSOR_E_DATA, "a size of %d numbers, expected two of at least 1", count);
    const int sizes = fl_tflite_add_ints(o->n, o->name, ".sizes", 2, size);
    node = sizes < 0 ? NULL : fl_net_add_node(o->n, &o->n->graph, "Resize", o->name, 4, 1, 0);
    if (!node)
        return TENSOR_E_MEMORY;
    node->inputs[0] = operand(o, 0); /* no region and no scales: 1 and 2 stay -1 */
    node->inputs[3] = sizes;
    node->outputs[0] = result(o);
    node->channels_last = true;
    TRY(fl_net_set_ints(o->n, node, "axes", 2, (const int64_t[]){1, 2}));
    TRY(fl_net_set_string(o->n, node, "mode", o->rule->op));
    TRY(fl_net_set_string(o->n, node, "coordinate_transformation_mode",
                          corners ? "align_corners"
                          : half  ? "half_pixel"
                                  : "asymmetric"));
    return nearest ? fl_net_set_string(o->n, node, "nearest_mode", corners || half ? "round_prefer_ceil" : "floor")
                   : TENSOR_OK;
}

/* --- products ----------------------------------------------------------------------------------------------------- */

/* The runtime sees rows of as many numbers as the matrix has columns, whatever the shape of the operand. */
static tensor_status translate_full(struct operation *o) {
    int x = operand(o, 0), to = result(o);
    const int w = operand(o, 1), bias = operand(o, 2);
    struct fl_net_node *node;
    TRY(need_dims(o, w, 2, "the matrix"));
    const int64_t outputs = value(o, w)->dim[0], inputs = value(o, w)->dim[1];
    int64_t count = 1, shape[FL_ARRAY_DIMS];
    const int ndim = value(o, x)->ndim;
    const bool keep = o->op.options.keep_dims && ndim != 2;
    for (int i = 0; i < ndim; i++)
        count *= shape[i] = value(o, x)->dim[i];
    if (inputs < 1 || outputs < 1 || ndim < 1 || count % inputs || (keep && shape[ndim - 1] != inputs))
        return fail(o, TENSOR_E_DATA, "an operand of %lld numbers for a matrix of %lld x %lld", (long long)count,
                    (long long)outputs, (long long)inputs);
    if (o->op.options.weights_format)
        return fail(o, TENSOR_E_UNSUPPORTED, "its matrix is stored in an order of its own (%d), expected rows",
                    o->op.options.weights_format);
    TRY(check_bias(o, bias, outputs));
    const int64_t rows = count / inputs;
    if (ndim != 2 || shape[1] != inputs) {
        const int flat = add_between(o, ".rows", x, 2, (const int64_t[]){rows, inputs});
        const int told =
            flat < 0 ? -1 : fl_tflite_add_ints(o->n, o->name, ".rows_shape", 2, (const int64_t[]){-1, inputs});
        if (told < 0)
            return TENSOR_E_MEMORY;
        TRY(add_node(o, "Reshape", x, told, -1, flat, &node));
        x = flat;
    }
    if (keep && (to = add_between(o, ".flat", result(o), 2, (const int64_t[]){rows, outputs})) < 0)
        return TENSOR_E_MEMORY;
    TRY(add_node(o, "Gemm", x, w, bias, to, &node));
    TRY(fl_net_set_int(o->n, node, "transB", 1));
    if (o->op.options.asymmetric)
        TRY(fl_net_set_int(o->n, node, "flexlab_asymmetric", 1));
    TRY(set_activation(o, node));
    if (!keep)
        return TENSOR_OK;
    shape[0] = ndim == 1 ? outputs : -1;
    shape[ndim - 1] = outputs;
    const int told = fl_tflite_add_ints(o->n, o->name, ".shape", ndim, shape);
    return told < 0 ? TENSOR_E_MEMORY : add_node(o, "Reshape", to, told, -1, result(o), &node);
}

/* --- elementwise -------------------------------------------------------------------------------------------------- */

static tensor_status translate_plain(struct operation *o) {
    struct fl_net_node *node;
    TRY(add_node(o, o->rule->op, operand(o, 0), operand(o, 1), -1, result(o), &node));
    if (!strcmp(o->rule->op, "LeakyRelu"))
        TRY(fl_net_set_float(o->n, node, "alpha", o->op.options.alpha));
    return set_activation(o, node);
}

/* rule->op: "LOW:HIGH" of one digit each, or "-1:1". */
static tensor_status translate_clip(struct operation *o) {
    const char *const colon = strchr(o->rule->op, ':');
    const float low = o->rule->op[0] == '-' ? -1.0f : 0.0f, high = (float)(colon[1] - '0');
    struct fl_net_node *node;
    const int least = add_float(o, ".least", low), most = least < 0 ? -1 : add_float(o, ".most", high);
    return most < 0 ? TENSOR_E_MEMORY : add_node(o, "Clip", operand(o, 0), least, most, result(o), &node);
}

static tensor_status translate_softmax(struct operation *o) {
    const float beta = o->op.options.beta;
    int x = operand(o, 0);
    const struct fl_net_value *const v = value(o, x);
    struct fl_net_node *node;
    if (!(beta > 0 && beta <= 1e30f))
        return fail(o, TENSOR_E_DATA, "beta is %g, expected a positive number", (double)beta);
    const bool scaled = beta != 1 && is_float(v);
    if (scaled) {
        const int factor = add_float(o, ".beta", beta);
        const int product = factor < 0 ? -1 : add_between(o, ".scaled", x, value(o, x)->ndim, value(o, x)->dim);
        if (product < 0)
            return TENSOR_E_MEMORY;
        TRY(add_node(o, "Mul", x, factor, -1, product, &node));
        x = product;
    }
    TRY(add_node(o, "Softmax", x, -1, -1, result(o), &node));
    TRY(fl_net_set_int(o->n, node, "axis", -1));
    return beta != 1 && !scaled ? fl_net_set_float(o->n, node, "flexlab_beta", beta) : TENSOR_OK;
}

/* --- numbers of other types --------------------------------------------------------------------------------------- */

/* QUANTIZE and DEQUANTIZE: scales and zero points, which the file has beside the tensor, are operands in ONNX. */
static tensor_status translate_scales(struct operation *o) {
    const bool to_integers = !strcmp(o->rule->op, "QuantizeLinear");
    const struct fl_net_value *const v = value(o, to_integers ? result(o) : operand(o, 0));
    const struct fl_quantisation *const q = v->quantisation;
    const tensor_type type = v->type;
    unsigned char zeros[4];
    struct fl_net_node *node;
    if (!to_integers && is_float(v)) { /* of binary16 */
        TRY(add_node(o, "Cast", operand(o, 0), -1, -1, result(o), &node));
        return fl_net_set_int(o->n, node, "to", 1); /* FLOAT of ONNX */
    }
    if (!q)
        return fail(o, TENSOR_E_DATA, "%s has no scale", v->name);
    TRY(fl_tflite_take(o->r, 12 * (uint64_t)q->count)); /* many operators may read one tensor */
    const int64_t dim = q->count;
    const int ndim = q->count > 1, axis = q->axis;
    const int scale = fl_tflite_add_constant(o->n, o->name, ".scale", TENSOR_TYPE_F32, ndim, &dim, q->scale);
    const int zero = scale < 0 ? -1 : fl_tflite_add_constant(o->n, o->name, ".zero", type, ndim, &dim, NULL);
    if (zero < 0)
        return TENSOR_E_MEMORY;
    const size_t bytes = fl_type_bytes(type);
    for (int i = 0; i < q->count && bytes <= sizeof zeros; i++) {
        memcpy(zeros, &q->zero[i], sizeof zeros); /* its low bytes come first */
        memcpy((unsigned char *)value(o, zero)->constant->data + (size_t)i * bytes, zeros, bytes);
    }
    TRY(add_node(o, o->rule->op, operand(o, 0), scale, zero, result(o), &node));
    return ndim ? fl_net_set_int(o->n, node, "axis", axis) : TENSOR_OK;
}

/* --- shapes ------------------------------------------------------------------------------------------------------- */

static tensor_status translate_reshape(struct operation *o) {
    int64_t shape[FL_ARRAY_DIMS];
    int count = 0;
    struct fl_net_node *node;
    if (operand(o, 1) >= 0) {
        TRY(integers(o, 1, "the shape", FL_ARRAY_DIMS, shape, &count));
    } else {
        if (o->op.options.list.count > FL_ARRAY_DIMS)
            return fail(o, TENSOR_E_DATA, "a shape of %u dimensions, expected at most %d", o->op.options.list.count,
                        FL_ARRAY_DIMS);
        count = (int)o->op.options.list.count;
        for (int i = 0; i < count; i++)
            shape[i] = o->op.options.list.at[i];
    }
    for (int i = 0, open = 0; i < count; i++) {
        open += shape[i] == -1;
        if (shape[i] < -1 || shape[i] == 0 || open > 1)
            return fail(o, TENSOR_E_DATA, "dimension %d of its shape is %lld, expected at least 1, or -1 once", i,
                        (long long)shape[i]);
    }
    const int told = fl_tflite_add_ints(o->n, o->name, ".shape", count, shape);
    return told < 0 ? TENSOR_E_MEMORY : add_node(o, "Reshape", operand(o, 0), told, -1, result(o), &node);
}

static tensor_status translate_transpose(struct operation *o) {
    int64_t perm[FL_ARRAY_DIMS];
    int count = 0;
    struct fl_net_node *node;
    TRY(integers(o, 1, "the permutation", FL_ARRAY_DIMS, perm, &count));
    if (count != value(o, operand(o, 0))->ndim)
        return fail(o, TENSOR_E_DATA, "a permutation of %d dimensions, expected %d", count,
                    value(o, operand(o, 0))->ndim);
    TRY(axes_of(o, count, count, perm));
    TRY(add_node(o, "Transpose", operand(o, 0), -1, -1, result(o), &node));
    return fl_net_set_ints(o->n, node, "perm", count, perm);
}

/* MEAN, SUM, REDUCE_MAX, REDUCE_MIN; SQUEEZE and EXPAND_DIMS, whose axes are in another place. */
static tensor_status translate_axes(struct operation *o) {
    const bool squeeze = !strcmp(o->rule->op, "Squeeze"), expand = !strcmp(o->rule->op, "Unsqueeze");
    const struct fl_net_value *const x = value(o, operand(o, 0));
    const int ndim = x->ndim + expand;
    int64_t axes[FL_ARRAY_DIMS];
    int count = 0;
    struct fl_net_node *node;
    if (squeeze) {
        const struct fl_tflite_ints *const list = &o->op.options.list;
        if (list->count > (uint32_t)ndim)
            return fail(o, TENSOR_E_DATA, "%u axes, expected at most %d", list->count, ndim);
        for (; count < (int)list->count; count++)
            axes[count] = list->at[count];
        for (int i = 0; !list->count && i < ndim; i++)
            if (x->dim[i] == 1)
                axes[count++] = i;
    } else {
        TRY(integers(o, 1, "the list of axes", FL_ARRAY_DIMS, axes, &count));
    }
    if (ndim > FL_ARRAY_DIMS || (expand && count != 1))
        return fail(o, TENSOR_E_DATA, "%d new axes for %d dimensions, expected 1 and at most %d dimensions", count,
                    x->ndim, FL_ARRAY_DIMS - 1);
    TRY(axes_of(o, ndim, count, axes));
    const int told = fl_tflite_add_ints(o->n, o->name, ".axes", count, axes);
    if (told < 0)
        return TENSOR_E_MEMORY;
    TRY(add_node(o, o->rule->op, operand(o, 0), told, -1, result(o), &node));
    if (squeeze || expand)
        return TENSOR_OK;
    if (!count) /* no axis: the numbers as they are, which is not what ONNX does */
        TRY(fl_net_set_int(o->n, node, "noop_with_empty_axes", 1));
    return fl_net_set_int(o->n, node, "keepdims", o->op.options.keep_dims);
}

static tensor_status translate_concat(struct operation *o) {
    const int count = (int)o->op.inputs.count;
    int64_t axis = 0;
    for (int i = 0; i < count; i++)
        if (operand(o, (uint32_t)i) < 0)
            return fail(o, TENSOR_E_DATA, "operand %d is not given", i);
    TRY(axis_of(o, o->op.options.axis, value(o, operand(o, 0))->ndim, &axis));
    struct fl_net_node *const node = fl_net_add_node(o->n, &o->n->graph, "Concat", o->name, count, 1, 0);
    if (!node)
        return TENSOR_E_MEMORY;
    for (int i = 0; i < count; i++)
        node->inputs[i] = operand(o, (uint32_t)i);
    node->outputs[0] = result(o);
    TRY(fl_net_set_int(o->n, node, "axis", axis));
    return set_activation(o, node);
}

static tensor_status translate_pad(struct operation *o) {
    const int ndim = value(o, operand(o, 0))->ndim;
    int64_t pairs[2 * FL_ARRAY_DIMS], pads[2 * FL_ARRAY_DIMS];
    int count = 0;
    struct fl_net_node *node;
    TRY(integers(o, 1, "the padding", 2 * FL_ARRAY_DIMS, pairs, &count));
    if (count != 2 * ndim)
        return fail(o, TENSOR_E_DATA, "a padding of %d numbers, expected two for each of %d dimensions", count, ndim);
    for (int i = 0; i < count; i++) {
        if (pairs[i] < 0)
            return fail(o, TENSOR_E_DATA, "a padding of %lld, expected at least 0", (long long)pairs[i]);
        pads[i % 2 * ndim + i / 2] = pairs[i]; /* all beginnings, then all ends */
    }
    const int told = fl_tflite_add_ints(o->n, o->name, ".pads", count, pads);
    if (told < 0)
        return TENSOR_E_MEMORY;
    TRY(add_node(o, "Pad", operand(o, 0), told, operand(o, 2), result(o), &node));
    return fl_net_set_string(o->n, node, "mode", "constant");
}

/* Slice along the axes of which not all is taken, and Squeeze of those that are to go. */
static tensor_status add_slice(struct operation *o, int ndim, const int64_t *begin, const int64_t *end,
                               const int64_t *step, unsigned shrink) {
    const int x = operand(o, 0);
    const int64_t *const dim = value(o, x)->dim;
    int64_t list[4][FL_ARRAY_DIMS], gone[FL_ARRAY_DIMS], between[FL_ARRAY_DIMS];
    int count = 0, shrunk = 0, told[4];
    static const char *const endings[] = {".starts", ".ends", ".axes", ".steps"};
    struct fl_net_node *node;
    for (int i = 0; i < ndim; i++) {
        between[i] = shrink >> i & 1 ? 1 : -1;
        if (shrink >> i & 1)
            gone[shrunk++] = i;
        if (step[i] == 1 && (begin[i] == 0 || begin[i] <= -dim[i]) && end[i] >= dim[i] && !(shrink >> i & 1)) {
            between[i] = dim[i];
            continue;
        }
        list[0][count] = begin[i];
        list[1][count] = end[i];
        list[2][count] = i;
        list[3][count++] = step[i];
    }
    for (int k = 0; k < 4; k++)
        if ((told[k] = fl_tflite_add_ints(o->n, o->name, endings[k], count, list[k])) < 0)
            return TENSOR_E_MEMORY;
    const int to = shrunk ? add_between(o, ".slice", x, ndim, between) : result(o);
    node = to < 0 ? NULL : fl_net_add_node(o->n, &o->n->graph, "Slice", o->name, 5, 1, 0);
    if (!node)
        return TENSOR_E_MEMORY;
    node->inputs[0] = x;
    memcpy(node->inputs + 1, told, sizeof told);
    node->outputs[0] = to;
    if (!shrunk)
        return TENSOR_OK;
    const int axes = fl_tflite_add_ints(o->n, o->name, ".gone", shrunk, gone);
    return axes < 0 ? TENSOR_E_MEMORY : add_node(o, "Squeeze", to, axes, -1, result(o), &node);
}

static tensor_status translate_strided_slice(struct operation *o) {
    const struct fl_tflite_options *const t = &o->op.options;
    const int ndim = value(o, operand(o, 0))->ndim;
    int64_t begin[FL_ARRAY_DIMS], end[FL_ARRAY_DIMS], step[FL_ARRAY_DIMS];
    int counts[3] = {0};
    TRY(integers(o, 1, "the list of beginnings", FL_ARRAY_DIMS, begin, &counts[0]));
    TRY(integers(o, 2, "the list of ends", FL_ARRAY_DIMS, end, &counts[1]));
    TRY(integers(o, 3, "the list of strides", FL_ARRAY_DIMS, step, &counts[2]));
    if (counts[0] != counts[1] || counts[0] != counts[2] || counts[0] > ndim)
        return fail(o, TENSOR_E_DATA, "%d beginnings, %d ends, %d strides, expected as many, and at most %d", counts[0],
                    counts[1], counts[2], ndim);
    if (t->ellipsis_mask || t->new_axis_mask || t->offset)
        return fail(o, TENSOR_E_UNSUPPORTED, "ellipsis mask %d, mask of new axes %d, offset %d, expected 0",
                    t->ellipsis_mask, t->new_axis_mask, t->offset);
    for (int i = 0; i < ndim; i++) {
        const bool given = i < counts[0];
        if (given && (step[i] == 0 || step[i] == INT64_MIN || begin[i] == INT64_MAX))
            return fail(o, TENSOR_E_DATA, "stride %lld from %lld along dimension %d", (long long)step[i],
                        (long long)begin[i], i);
        if (given && t->shrink_axis_mask >> i & 1) {
            end[i] = begin[i] == -1 ? INT64_MAX : begin[i] + 1;
            step[i] = 1;
            continue;
        }
        if (!given)
            step[i] = 1;
        if (!given || t->begin_mask >> i & 1)
            begin[i] = step[i] > 0 ? 0 : INT64_MAX;
        if (!given || t->end_mask >> i & 1)
            end[i] = step[i] > 0 ? INT64_MAX : INT64_MIN;
    }
    return add_slice(o, ndim, begin, end, step, (unsigned)t->shrink_axis_mask & ((1u << counts[0]) - 1));
}

static tensor_status translate_slice(struct operation *o) {
    const int ndim = value(o, operand(o, 0))->ndim;
    int64_t begin[FL_ARRAY_DIMS], end[FL_ARRAY_DIMS], step[FL_ARRAY_DIMS];
    int counts[2] = {0};
    TRY(integers(o, 1, "the list of beginnings", FL_ARRAY_DIMS, begin, &counts[0]));
    TRY(integers(o, 2, "the list of sizes", FL_ARRAY_DIMS, end, &counts[1]));
    if (counts[0] != ndim || counts[1] != ndim)
        return fail(o, TENSOR_E_DATA, "%d beginnings, %d sizes, expected %d", counts[0], counts[1], ndim);
    for (int i = 0; i < ndim; i++) {
        const int64_t dim = value(o, operand(o, 0))->dim[i];
        if (begin[i] < 0 || begin[i] > dim || end[i] < -1 || end[i] > dim - begin[i])
            return fail(o, TENSOR_E_DATA, "size %lld from %lld along dimension %d, which has %lld", (long long)end[i],
                        (long long)begin[i], i, (long long)dim);
        end[i] = end[i] == -1 ? INT64_MAX : begin[i] + end[i];
        step[i] = 1;
    }
    return add_slice(o, ndim, begin, end, step, 0);
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

static const struct rule rules[] = {
    {"ADD", "?Add", translate_plain, "Add", 2, 2},
    {"AVERAGE_POOL_2D", "Pool", translate_pool, "AveragePool", 1, 1},
    {"CONCATENATION", "Concatenation", translate_concat, "Concat", 1, -1},
    {"CONV_2D", "Convolution", translate_conv, "Conv", 2, 3},
    {"DEPTHWISE_CONV_2D", "Depthwise", translate_depthwise, "Conv", 2, 3},
    {"DEQUANTIZE", NULL, translate_scales, "DequantizeLinear", 1, 1},
    {"DIV", "?Divide", translate_plain, "Div", 2, 2},
    {"EXP", NULL, translate_plain, "Exp", 1, 1},
    {"EXPAND_DIMS", NULL, translate_axes, "Unsqueeze", 2, 2},
    {"FULLY_CONNECTED", "?FullyConnected", translate_full, "Gemm", 2, 3},
    {"HARD_SWISH", NULL, translate_plain, "HardSwish", 1, 1},
    {"LEAKY_RELU", "LeakyRelu", translate_plain, "LeakyRelu", 1, 1},
    {"LOG", NULL, translate_plain, "Log", 1, 1},
    {"LOGISTIC", NULL, translate_plain, "Sigmoid", 1, 1},
    {"MAXIMUM", NULL, translate_plain, "Max", 2, 2},
    {"MAX_POOL_2D", "Pool", translate_pool, "MaxPool", 1, 1},
    {"MEAN", "?Reduce", translate_axes, "ReduceMean", 2, 2},
    {"MINIMUM", NULL, translate_plain, "Min", 2, 2},
    {"MUL", "?Multiply", translate_plain, "Mul", 2, 2},
    {"NEG", NULL, translate_plain, "Neg", 1, 1},
    {"PAD", NULL, translate_pad, "Pad", 2, 2},
    {"PADV2", NULL, translate_pad, "Pad", 3, 3},
    {"POW", NULL, translate_plain, "Pow", 2, 2},
    {"PRELU", NULL, translate_plain, "PRelu", 2, 2},
    {"QUANTIZE", NULL, translate_scales, "QuantizeLinear", 1, 1},
    {"REDUCE_MAX", "?Reduce", translate_axes, "ReduceMax", 2, 2},
    {"REDUCE_MIN", "?Reduce", translate_axes, "ReduceMin", 2, 2},
    {"RELU", NULL, translate_plain, "Relu", 1, 1},
    {"RELU6", NULL, translate_clip, "0:6", 1, 1},
    {"RELU_0_TO_1", NULL, translate_clip, "0:1", 1, 1},
    {"RELU_N1_TO_1", NULL, translate_clip, "-1:1", 1, 1},
    {"RESHAPE", "?Reshape", translate_reshape, "Reshape", 1, 2},
    {"RESIZE_BILINEAR", "?Bilinear", translate_resize, "linear", 2, 2},
    {"RESIZE_NEAREST_NEIGHBOR", "?Nearest", translate_resize, "nearest", 2, 2},
    {"SLICE", NULL, translate_slice, "Slice", 3, 3},
    {"SOFTMAX", "Softmax", translate_softmax, "Softmax", 1, 1},
    {"SQRT", NULL, translate_plain, "Sqrt", 1, 1},
    {"SQUEEZE", "?Squeeze", translate_axes, "Squeeze", 1, 1},
    {"STRIDED_SLICE", "StridedSlice", translate_strided_slice, "Slice", 4, 4},
    {"SUB", "?Subtract", translate_plain, "Sub", 2, 2},
    {"SUM", "?Reduce", translate_axes, "ReduceSum", 2, 2},
    {"TANH", NULL, translate_plain, "Tanh", 1, 1},
    {"TRANSPOSE", NULL, translate_transpose, "Transpose", 2, 2},
};

static const struct rule *rule_of(const char *name) {
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (!strcmp(rules[i].name, name))
            return &rules[i];
    return NULL;
}

enum { LIST = 12000 }; /* bytes of the list of what is not known: a message has a few more */

struct list {
    char *text;
    size_t used;
    unsigned more; /* entries that no longer fit */
};

static void list_add(struct list *l, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void list_add(struct list *l, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const int length = fl_format(l->text + l->used, LIST - l->used, format, arguments);
    va_end(arguments);
    if (length < 0 || (size_t)length >= LIST - l->used || l->more) {
        l->text[l->used] = 0;
        l->more++;
    } else {
        l->used += (size_t)length;
    }
}

tensor_status fl_tflite_survey(struct fl_tflite_reader *r) {
    struct list l = {0};
    for (uint32_t i = 0; i < r->model.operators; i++) {
        struct fl_tflite_operator op;
        fl_tflite_get_operator(&r->model, i, &op);
        const struct rule *const rule = rule_of(op.name);
        if (rule && (!rule->options || activation_of(op.options.activation)))
            continue;
        if (!l.text && !(l.text = fl_net_memory(r->n, LIST)))
            return TENSOR_E_MEMORY;
        const char *const name = r->n->values[op.outputs.at[0]].name, *const comma = l.used ? ", " : "";
        if (rule)
            list_add(&l, "%s%s (%s) with the fused activation %d", comma, op.name, name, op.options.activation);
        else if (op.custom.length)
            list_add(&l, "%s%s %s (%s)", comma, *op.name ? op.name : "CUSTOM", op.custom.at, name);
        else if (*op.name)
            list_add(&l, "%s%s (%s)", comma, op.name, name);
        else
            list_add(&l, "%soperator code %lld (%s)", comma, (long long)op.code, name);
    }
    if (!l.text)
        return TENSOR_OK;
    if (l.more)
        return fl_fail(TENSOR_E_UNSUPPORTED, "operators that are not supported: %s, and %u more", l.text, l.more);
    return fl_fail(TENSOR_E_UNSUPPORTED, "operators that are not supported: %s", l.text);
}

/* Counts and types of operands and results, and which options are there. */
static tensor_status check_operation(const struct operation *o) {
    const struct fl_tflite_operator *const op = &o->op;
    const char *const kind = op->options.kind, *wanted = o->rule->options;
    const bool may_lack = wanted && *wanted == '?';
    if (may_lack)
        wanted++;
    if (op->inputs.count < (uint32_t)o->rule->least ||
        (o->rule->most >= 0 && op->inputs.count > (uint32_t)o->rule->most))
        return fail(o, TENSOR_E_DATA, "%u operands, expected %d to %d", op->inputs.count, o->rule->least,
                    o->rule->most < 0 ? INT_MAX : o->rule->most);
    if (op->outputs.count != 1)
        return fail(o, TENSOR_E_DATA, "%u results, expected 1", op->outputs.count);
    for (int i = 0; i < o->rule->least; i++)
        if (operand(o, (uint32_t)i) < 0)
            return fail(o, TENSOR_E_DATA, "operand %d is not given", i);
    for (uint32_t i = 0; i <= op->inputs.count; i++) {
        const int t = i < op->inputs.count ? operand(o, i) : result(o);
        if (t >= 0 && !value(o, t)->type)
            return fail(o, TENSOR_E_UNSUPPORTED, "tensor %s has a type that is not supported", value(o, t)->name);
    }
    if (wanted && strcmp(kind, wanted) && !(may_lack && !strcmp(kind, "NONE")))
        return fail(o, TENSOR_E_DATA, "its options are those of %s, expected those of %s", *kind ? kind : "another",
                    wanted);
    return TENSOR_OK;
}

tensor_status fl_tflite_add_node(struct fl_tflite_reader *r, uint32_t i) {
    struct operation o = {.r = r, .n = r->n, .index = i};
    fl_tflite_get_operator(&r->model, i, &o.op);
    o.rule = rule_of(o.op.name); /* fl_tflite_survey has seen it */
    o.name = r->n->values[o.op.outputs.at[0]].name;
    TRY(check_operation(&o));
    return o.rule->translate(&o);
}
#endif
