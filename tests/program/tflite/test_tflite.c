/* The reader of .tflite files on files of this test's own: what it makes of each operator, and what it says of bad
 * ones. "write FOLDER" writes the good files into a folder instead: the seeds of the fuzz target. */
#include "data_files.h"

#include "program/tflite/tflite_read.h"
#include "tflite_file.h"
#include <math.h>

enum { ROOM = 1 << 17 };
static uint8_t bytes[ROOM];

/* --- models ------------------------------------------------------------------------------------------------------- */

static float numbers[64];
static const int8_t small[64];
static const int32_t sums[8];

static struct file_tensor *add_tensor(struct file_model *m, const char *name, int type, int ndim, const int *shape,
                                      const void *data) {
    struct file_tensor *const t = &m->tensor[m->tensors++];
    *t = (struct file_tensor){.name = name, .type = type, .ndim = ndim, .data = data};
    t->bytes = type == FLOAT32 || type == INT32 ? 4 : type == FLOAT16 ? 2 : 1;
    for (int i = 0; i < ndim; i++) {
        t->shape[i] = shape[i];
        t->bytes *= (uint32_t)shape[i];
    }
    return t;
}
#define SHAPE(...)                                                                                                     \
    (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)), (const int[]) {                                                 \
        __VA_ARGS__                                                                                                    \
    }

static struct file_operator *add_operator(struct file_model *m, int code, int ins, int a, int b, int c, int out) {
    struct file_operator *const o = &m->op[m->operators++];
    *o = (struct file_operator){.code = code, .ins = ins, .in = {a, b, c}, .outs = 1, .out = {out}};
    return o;
}

static void add_options(struct file_operator *o, int table, int count, const struct file_field *fields) {
    o->options = table;
    o->fields = count;
    memcpy(o->field, fields, (size_t)count * sizeof *fields);
}
#define OPTIONS(o, table, ...)                                                                                         \
    add_options(o, table, (int)(sizeof((struct file_field[]){__VA_ARGS__}) / sizeof(struct file_field)),               \
                (const struct file_field[]){__VA_ARGS__})

static int64_t bits(float value) {
    int32_t word;
    memcpy(&word, &value, sizeof word);
    return word;
}

/* Image, Conv (SAME, 2 x 2, Relu), depthwise (VALID, multiplier 2, Relu6), mean pool, Reshape, product, Softmax. */
static struct file_model images(void) {
    struct file_model m = {.ins = 1, .in = {0}, .outs = 1, .out = {13}};
    static const int32_t shape[] = {1, 6};
    add_tensor(&m, "image", FLOAT32, SHAPE(1, 4, 4, 2), NULL);
    add_tensor(&m, "filter", FLOAT32, SHAPE(3, 3, 3, 2), numbers);
    add_tensor(&m, "bias", FLOAT32, SHAPE(3), numbers);
    add_tensor(&m, "conv", FLOAT32, SHAPE(1, 2, 2, 3), NULL);
    add_tensor(&m, "deep", FLOAT32, SHAPE(1, 2, 2, 6), numbers);
    add_tensor(&m, "deep_bias", FLOAT32, SHAPE(6), numbers);
    add_tensor(&m, "depthwise", FLOAT32, SHAPE(1, 1, 1, 6), NULL);
    add_tensor(&m, "pool", FLOAT32, SHAPE(1, 1, 1, 6), NULL);
    add_tensor(&m, "shape", INT32, SHAPE(2), shape);
    add_tensor(&m, "flat", FLOAT32, SHAPE(1, 6), NULL);
    add_tensor(&m, "matrix", FLOAT32, SHAPE(2, 6), numbers);
    add_tensor(&m, "matrix_bias", FLOAT32, SHAPE(2), numbers);
    add_tensor(&m, "logits", FLOAT32, SHAPE(1, 2), NULL);
    add_tensor(&m, "answer", FLOAT32, SHAPE(1, 2), NULL);
    OPTIONS(add_operator(&m, CONV_2D, 3, 0, 1, 2, 3), 1, {0, 1, 0}, {1, 4, 2}, {2, 4, 2}, {3, 1, 1});
    OPTIONS(add_operator(&m, DEPTHWISE_CONV_2D, 3, 3, 4, 5, 6), 2, {0, 1, 1}, {1, 4, 1}, {2, 4, 1}, {3, 4, 2},
            {4, 1, 3});
    OPTIONS(add_operator(&m, AVERAGE_POOL_2D, 1, 6, 0, 0, 7), 5, {0, 1, 1}, {1, 4, 1}, {2, 4, 1}, {3, 4, 1}, {4, 4, 1});
    add_operator(&m, RESHAPE, 2, 7, 8, 0, 9);
    OPTIONS(add_operator(&m, FULLY_CONNECTED, 3, 9, 10, 11, 12), 8, {0, 1, 2});
    OPTIONS(add_operator(&m, SOFTMAX, 1, 12, 0, 0, 13), 9, {0, 4, bits(1)});
    return m;
}

static void set_scales(struct file_tensor *t, int count, float scale, int zero, int axis) {
    t->scales = count;
    t->axis = axis;
    for (int i = 0; i < count; i++) {
        t->scale[i] = scale * (float)(i + 1);
        t->zero[i] = zero;
    }
}

/* int8 of uint8, with a convolution per channel, a depthwise one, a sum, and a Softmax with beta. */
static struct file_model integers(void) {
    struct file_model m = {.ins = 1, .in = {0}, .outs = 1, .out = {8}};
    add_tensor(&m, "x", UINT8, SHAPE(1, 2, 2, 2), NULL);
    add_tensor(&m, "q", INT8, SHAPE(1, 2, 2, 2), NULL);
    add_tensor(&m, "w", INT8, SHAPE(2, 1, 1, 2), small);
    add_tensor(&m, "b", INT32, SHAPE(2), sums);
    add_tensor(&m, "y", INT8, SHAPE(1, 2, 2, 2), NULL);
    add_tensor(&m, "d", INT8, SHAPE(1, 1, 2, 2), small);
    add_tensor(&m, "z", INT8, SHAPE(1, 2, 2, 2), NULL);
    add_tensor(&m, "s", INT8, SHAPE(1, 2, 2, 2), NULL);
    add_tensor(&m, "p", INT8, SHAPE(1, 2, 2, 2), NULL);
    set_scales(&m.tensor[0], 1, 0.5f, 128, 0);
    set_scales(&m.tensor[1], 1, 0.5f, 0, 0);
    set_scales(&m.tensor[2], 2, 0.25f, 0, 0);
    set_scales(&m.tensor[3], 2, 0.125f, 0, 0);
    set_scales(&m.tensor[4], 1, 0.75f, -3, 0);
    set_scales(&m.tensor[5], 2, 0.25f, 0, 3);
    set_scales(&m.tensor[6], 1, 1, 1, 0);
    set_scales(&m.tensor[7], 1, 2, 2, 0);
    set_scales(&m.tensor[8], 1, 1.0f / 256, -128, 0);
    add_operator(&m, QUANTIZE, 1, 0, 0, 0, 1);
    OPTIONS(add_operator(&m, CONV_2D, 3, 1, 2, 3, 4), 1, {0, 1, 1}, {1, 4, 1}, {2, 4, 1}, {3, 1, 0});
    OPTIONS(add_operator(&m, DEPTHWISE_CONV_2D, 2, 4, 5, 0, 6), 2, {0, 1, 0}, {1, 4, 1}, {2, 4, 1}, {3, 4, 1});
    OPTIONS(add_operator(&m, ADD, 2, 6, 4, 0, 7), 11, {0, 1, 3});
    OPTIONS(add_operator(&m, SOFTMAX, 1, 7, 0, 0, 8), 9, {0, 4, bits(0.5f)});
    return m;
}

/* One operator on an image of 1 x 2 x 3 x 4, with up to two constants of int32. */
static struct file_model one(int code, int ins, int count, const int32_t *list, int ndim, const int *shape) {
    struct file_model m = {.ins = 1, .in = {0}, .outs = 1, .out = {1}};
    add_tensor(&m, "x", FLOAT32, SHAPE(1, 2, 3, 4), NULL);
    add_tensor(&m, "y", FLOAT32, ndim, shape, NULL);
    for (int i = 1; i < ins; i++)
        add_tensor(&m, "list", INT32, SHAPE(count), list + (i - 1) * count);
    add_operator(&m, code, ins, 0, 2, 3, 1)->in[3] = 4;
    return m;
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

static tensor_status last_status;

static struct fl_network *read_bytes(const void *data, size_t size) {
    struct fl_network *n = NULL;
    file_write("model.tflite", data, size);
    last_status = fl_tflite_read(&n, folder_path("model.tflite"));
    CHECK(!n == (last_status != TENSOR_OK), "a network and %s", tensor_status_name(last_status));
    return n;
}

static struct fl_network *read_model(const struct file_model *m) {
    return read_bytes(bytes, file_write_model(m, bytes));
}

static struct fl_network *must_read(int line, const struct file_model *m) {
    struct fl_network *const n = read_model(m);
    CHECK(n, "line %d: %s", line, tensor_error());
    if (!n)
        exit(check_summary());
    return n;
}
#define READ(m) must_read(__LINE__, m)

/* Every word of the list, which ends with NULL, stands in the message. */
static void must_fail(int line, const struct file_model *m, tensor_status status, const char *const *words) {
    struct fl_network *const n = read_model(m);
    CHECK(!n && last_status == status, "line %d: %s, expected %s: %s", line, tensor_status_name(last_status),
          tensor_status_name(status), tensor_error());
    CHECK(n || strstr(tensor_error(), folder_path("model.tflite")), "line %d: no file in: %s", line, tensor_error());
    for (; !n && *words; words++)
        CHECK(strstr(tensor_error(), *words), "line %d: no '%s' in: %s", line, *words, tensor_error());
    fl_network_free(n);
}
#define FAILS(m, status, ...) must_fail(__LINE__, m, status, (const char *const[]){__VA_ARGS__, NULL})

static void is_list(int line, const char *what, int64_t count, const int64_t *list, int expected_count,
                    const int64_t *expected) {
    CHECK(count == expected_count, "line %d: %s has %lld numbers, expected %d", line, what, (long long)count,
          expected_count);
    for (int i = 0; i < expected_count && i < count; i++)
        CHECK(list[i] == expected[i], "line %d: %s[%d] is %lld, expected %lld", line, what, i, (long long)list[i],
              (long long)expected[i]);
}
#define COUNT(...) (int)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t))
#define IS_LIST(what, count, list, ...)                                                                                \
    is_list(__LINE__, what, count, list, COUNT(__VA_ARGS__), (const int64_t[]){__VA_ARGS__})

static void is_ints(int line, const struct fl_net_node *node, const char *name, int count, const int64_t *expected) {
    const struct fl_net_attribute *const a = fl_net_find(node, name);
    CHECK(a && a->kind == FL_NET_INTS, "line %d: no %s", line, name);
    if (a && a->kind == FL_NET_INTS)
        is_list(line, name, a->count, a->ints, count, expected);
}
#define IS_INTS(node, name, ...) is_ints(__LINE__, node, name, COUNT(__VA_ARGS__), (const int64_t[]){__VA_ARGS__})
#define IS_SHAPE(n, value, ...)                                                                                        \
    IS_LIST((n)->values[value].name, (n)->values[value].ndim, (n)->values[value].dim, __VA_ARGS__)

/* An operand of a node that is a constant of int64. */
static void is_told(int line, const struct fl_network *n, const struct fl_net_node *node, int i, int count,
                    const int64_t *expected) {
    const struct fl_array *const a = i < node->input_count ? n->values[node->inputs[i]].constant : NULL;
    CHECK(a && a->type == TENSOR_TYPE_I64 && a->ndim == 1, "line %d: operand %d of %s is no list", line, i, node->op);
    if (a && a->type == TENSOR_TYPE_I64)
        is_list(line, node->op, a->count, a->data, count, expected);
}
#define IS_TOLD(n, node, i, ...) is_told(__LINE__, n, node, i, COUNT(__VA_ARGS__), (const int64_t[]){__VA_ARGS__})

static void is_text(int line, const struct fl_net_node *node, const char *name, const char *expected) {
    const char *const text = fl_net_string(node, name, "");
    CHECK(!strcmp(text, expected), "line %d: %s of %s is '%s', expected '%s'", line, name, node->op, text, expected);
}
#define IS_TEXT(node, name, expected) is_text(__LINE__, node, name, expected)

static void has_nodes(int line, const struct fl_network *n, int count, const char *const *ops) {
    CHECK(n->graph.node_count == count, "line %d: %d nodes, expected %d", line, n->graph.node_count, count);
    for (int i = 0; i < count && i < n->graph.node_count; i++)
        CHECK(!strcmp(n->graph.nodes[i].op, ops[i]), "line %d: node %d is %s, expected %s", line, i,
              n->graph.nodes[i].op, ops[i]);
    if (n->graph.node_count < count)
        exit(check_summary());
}
#define NODES(n, ...)                                                                                                  \
    has_nodes(__LINE__, n, (int)(sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *)),                         \
              (const char *const[]){__VA_ARGS__})

/* --- good files --------------------------------------------------------------------------------------------------- */

static void test_images(void) {
    const struct file_model m = images();
    struct fl_network *const n = READ(&m);
    const struct fl_net_node *const node = n->graph.nodes;
    NODES(n, "Conv", "Conv", "AveragePool", "Reshape", "Gemm", "Softmax");
    CHECK(n->source == FL_NET_TFLITE && !strcmp(n->producer, "a test"), "producer '%s'", n->producer);
    CHECK(n->graph.input_count == 1 && n->graph.inputs[0] == 0 && n->graph.output_count == 1 &&
              n->graph.outputs[0] == 13,
          "inputs and outputs");
    IS_SHAPE(n, 0, -1, 4, 4, 2);
    CHECK(n->values[0].dim_name[0] && !strcmp(n->values[0].dim_name[0], "batch"), "no name of the batch");
    IS_SHAPE(n, 3, -1, 2, 2, 3);
    IS_SHAPE(n, 13, -1, 2);
    IS_SHAPE(n, 1, 3, 3, 3, 2);
    CHECK(node[0].input_count == 3 && node[0].inputs[0] == 0 && node[0].inputs[1] == 1 && node[0].inputs[2] == 2,
          "operands of Conv");
    CHECK(node[0].channels_last && !strcmp(node[0].name, "conv") && fl_net_int(&node[0], "group", 0) == 1, "Conv");
    IS_INTS(&node[0], "strides", 2, 2);
    IS_INTS(&node[0], "dilations", 1, 1);
    IS_INTS(&node[0], "kernel_shape", 3, 3);
    IS_TEXT(&node[0], "auto_pad", "SAME_UPPER");
    IS_TEXT(&node[0], "flexlab_activation", "Relu");
    IS_TEXT(&node[1], "auto_pad", "VALID");
    IS_TEXT(&node[1], "flexlab_activation", "Clip:0:6");
    CHECK(fl_net_int(&node[1], "group", 0) == 3, "group %lld", (long long)fl_net_int(&node[1], "group", 0));
    IS_SHAPE(n, node[1].inputs[1], 6, 2, 2, 1);
    const float *const turned = n->values[node[1].inputs[1]].constant->data;
    for (int k = 0; k < 6; k++)
        for (int i = 0; i < 4; i++)
            CHECK(turned[k * 4 + i] == numbers[i * 6 + k], "filter [%d, %d] is %g", k, i, (double)turned[k * 4 + i]);
    IS_INTS(&node[2], "kernel_shape", 1, 1);
    CHECK(fl_net_int(&node[2], "count_include_pad", 1) == 0 && node[2].channels_last, "AveragePool");
    IS_TOLD(n, &node[3], 1, 0, 6);
    CHECK(fl_net_int(&node[4], "transB", 0) == 1, "transB");
    IS_TEXT(&node[4], "flexlab_activation", "Clip:-1:1");
    CHECK(fl_net_int(&node[5], "axis", 0) == -1 && !fl_net_find(&node[5], "flexlab_beta"), "Softmax");
    CHECK(!memcmp(n->values[1].constant->data, numbers, 54 * sizeof *numbers), "the filter's numbers");
    fl_network_free(n);
}

static void test_integers(void) {
    const struct file_model m = integers();
    struct fl_network *const n = READ(&m);
    const struct fl_net_node *const node = n->graph.nodes;
    NODES(n, "QuantizeLinear", "Conv", "Conv", "Add", "Softmax");
    for (int i = 0; i < 9; i++) {
        const struct fl_quantisation *const q = n->values[i].quantisation;
        const struct file_tensor *const t = &m.tensor[i];
        CHECK(q && q->count == t->scales && q->axis == (t->scales > 1 ? t->axis : 0), "quantisation of %s", t->name);
        for (int k = 0; q && k < q->count; k++)
            CHECK(q->scale[k] == t->scale[k] && q->zero[k] == t->zero[k], "scale %d of %s", k, t->name);
    }
    const struct fl_net_value *const turned = &n->values[node[2].inputs[1]];
    CHECK(turned->type == TENSOR_TYPE_I8 && turned->quantisation && turned->quantisation->axis == 0 &&
              turned->quantisation->count == 2,
          "the scales of the depthwise filter");
    CHECK(n->values[0].type == TENSOR_TYPE_U8 && n->values[3].type == TENSOR_TYPE_I32, "types");
    IS_TEXT(&node[3], "flexlab_activation", "Clip:0:6");
    CHECK(fl_net_float(&node[4], "flexlab_beta", 0) == 0.5f, "beta");
    const struct fl_array *const scale = n->values[node[0].inputs[1]].constant;
    const struct fl_array *const zero = n->values[node[0].inputs[2]].constant;
    CHECK(scale->ndim == 0 && *(float *)scale->data == 0.5f && zero->type == TENSOR_TYPE_I8 &&
              *(int8_t *)zero->data == 0,
          "the operands of QuantizeLinear");
    fl_network_free(n);
}

/* Weights of 4 bits are int8 with the same scales; nothing else has 4 bits. */
static void test_four_bits(void) {
    static const uint8_t halves[] = {0x8f, 0x71, 0};
    static const int8_t expected[] = {-1, -8, 1, 7};
    struct file_model m = integers();
    m.tensor[2].type = INT4;
    m.tensor[2].data = halves;
    m.tensor[2].bytes = 2;
    struct fl_network *const n = READ(&m);
    const struct fl_net_value *const w = &n->values[2];
    CHECK(w->type == TENSOR_TYPE_I8 && w->four_bits && w->quantisation->count == 2 && w->constant->count == 4 &&
              !memcmp(w->constant->data, expected, sizeof expected),
          "weights of 4 bits");
    fl_network_free(n);
    m.tensor[2].bytes = 3;
    FAILS(&m, TENSOR_E_DATA, "tensor 2 (w)", "expected 2");
    m = integers();
    m.tensor[4].type = INT4;
    FAILS(&m, TENSOR_E_UNSUPPORTED, "tensor y has a type that is not supported");
}

static void test_operators(void) {
    struct fl_network *n;
    struct file_model m = one(PAD, 2, 8, (const int32_t[]){0, 0, 1, 2, 3, 4, 0, 0}, SHAPE(1, 5, 10, 4));
    m.tensor[2].ndim = 2;
    m.tensor[2].shape[0] = 4;
    m.tensor[2].shape[1] = 2;
    n = READ(&m);
    NODES(n, "Pad");
    IS_TOLD(n, &n->graph.nodes[0], 1, 0, 1, 3, 0, 0, 2, 4, 0);
    IS_SHAPE(n, 0, -1, 2, 3, 4);
    fl_network_free(n);

    m = one(MEAN, 2, 2, (const int32_t[]){1, -2}, SHAPE(1, 4));
    n = READ(&m);
    NODES(n, "ReduceMean");
    IS_TOLD(n, &n->graph.nodes[0], 1, 1, 2);
    CHECK(fl_net_int(&n->graph.nodes[0], "keepdims", 1) == 0, "keepdims");
    IS_SHAPE(n, 1, -1, 4);
    fl_network_free(n);

    m = one(TRANSPOSE, 2, 4, (const int32_t[]){0, 3, 1, 2}, SHAPE(1, 4, 2, 3));
    n = READ(&m);
    IS_INTS(&n->graph.nodes[0], "perm", 0, 3, 1, 2);
    IS_SHAPE(n, 1, -1, 4, 2, 3);
    fl_network_free(n);

    m = one(RESIZE_BILINEAR, 2, 2, (const int32_t[]){4, 6}, SHAPE(1, 4, 6, 4));
    OPTIONS(&m.op[0], 15, {3, 1, 1});
    n = READ(&m);
    NODES(n, "Resize");
    IS_TEXT(&n->graph.nodes[0], "mode", "linear");
    IS_TEXT(&n->graph.nodes[0], "coordinate_transformation_mode", "half_pixel");
    IS_INTS(&n->graph.nodes[0], "axes", 1, 2);
    IS_TOLD(n, &n->graph.nodes[0], 3, 4, 6);
    CHECK(n->graph.nodes[0].inputs[1] == -1 && n->graph.nodes[0].inputs[2] == -1, "region and scales");
    fl_network_free(n);

    m = one(SQUEEZE, 1, 0, NULL, SHAPE(2, 3, 4));
    n = READ(&m);
    IS_TOLD(n, &n->graph.nodes[0], 1, 0);
    IS_SHAPE(n, 0, 1, 2, 3, 4); /* the batch goes: it stays 1 */
    CHECK(!n->values[0].dim_name[0], "a name of a batch that is fixed");
    fl_network_free(n);

    /* x[:, 1, ::-1, 1:3] */
    m = one(STRIDED_SLICE, 4, 4, (const int32_t[]){0, 1, 7, 1, 5, 0, 0, 3, 1, 1, -1, 1}, SHAPE(1, 3, 2));
    OPTIONS(&m.op[0], 32, {0, 4, 4}, {1, 4, 4}, {4, 4, 2});
    n = READ(&m);
    NODES(n, "Slice", "Squeeze");
    IS_TOLD(n, &n->graph.nodes[0], 1, 1, INT64_MAX, 1);
    IS_TOLD(n, &n->graph.nodes[0], 2, 2, INT64_MIN, 3);
    IS_TOLD(n, &n->graph.nodes[0], 3, 1, 2, 3);
    IS_TOLD(n, &n->graph.nodes[0], 4, 1, -1, 1);
    IS_TOLD(n, &n->graph.nodes[1], 1, 1);
    IS_SHAPE(n, 1, -1, 3, 2);
    fl_network_free(n);

    m = one(RELU6, 1, 0, NULL, SHAPE(1, 2, 3, 4));
    n = READ(&m);
    NODES(n, "Clip");
    CHECK(*(float *)n->values[n->graph.nodes[0].inputs[1]].constant->data == 0 &&
              *(float *)n->values[n->graph.nodes[0].inputs[2]].constant->data == 6,
          "limits");
    fl_network_free(n);

    m = one(LEAKY_RELU, 1, 0, NULL, SHAPE(1, 2, 3, 4));
    OPTIONS(&m.op[0], 75, {0, 4, bits(0.25f)});
    n = READ(&m);
    NODES(n, "LeakyRelu");
    CHECK(fl_net_float(&n->graph.nodes[0], "alpha", 0) == 0.25f, "alpha");
    fl_network_free(n);

    m = one(SOFTMAX, 1, 0, NULL, SHAPE(1, 2, 3, 4));
    OPTIONS(&m.op[0], 9, {0, 4, bits(2)});
    n = READ(&m);
    NODES(n, "Mul", "Softmax");
    CHECK(*(float *)n->values[n->graph.nodes[0].inputs[1]].constant->data == 2, "beta");
    fl_network_free(n);

    m = one(MAX_POOL_2D, 1, 0, NULL, SHAPE(1, 1, 1, 4));
    OPTIONS(&m.op[0], 5, {0, 1, 1}, {1, 4, 2}, {2, 4, 1}, {3, 4, 3}, {4, 4, 2});
    n = READ(&m);
    NODES(n, "MaxPool");
    IS_INTS(&n->graph.nodes[0], "kernel_shape", 2, 3);
    IS_INTS(&n->graph.nodes[0], "strides", 1, 2);
    fl_network_free(n);

    m = one(DEQUANTIZE, 1, 0, NULL, SHAPE(1, 2, 3, 4));
    m.tensor[0].type = FLOAT16;
    n = READ(&m);
    NODES(n, "Cast");
    CHECK(fl_net_int(&n->graph.nodes[0], "to", 0) == 1, "to");
    fl_network_free(n);

    /* The matrix has the columns of an image. */
    m = one(FULLY_CONNECTED, 2, 2, (const int32_t[]){0, 0}, SHAPE(1, 2));
    m.tensor[2] = (struct file_tensor){.name = "w", .ndim = 2, .shape = {2, 24}, .data = numbers, .bytes = 192};
    n = READ(&m);
    NODES(n, "Reshape", "Gemm");
    IS_TOLD(n, &n->graph.nodes[0], 1, -1, 24);
    IS_SHAPE(n, 1, -1, 2);
    fl_network_free(n);
    m.tensor[2].shape[1] = 4;
    m.tensor[2].bytes = 32;
    m.tensor[1] = (struct file_tensor){.name = "y", .ndim = 4, .shape = {1, 2, 3, 2}};
    OPTIONS(&m.op[0], 8, {2, 1, 1});
    n = READ(&m);
    NODES(n, "Reshape", "Gemm", "Reshape");
    IS_TOLD(n, &n->graph.nodes[2], 1, -1, 2, 3, 2);
    fl_network_free(n);
}

static void test_batch(void) {
    struct fl_network *n;
    /* The batch joins other dimensions, and comes out of them. */
    struct file_model m = one(RESHAPE, 2, 2, (const int32_t[]){6, 4}, SHAPE(6, 4));
    static const int32_t back[] = {1, 3, 8};
    add_tensor(&m, "z", FLOAT32, SHAPE(1, 3, 8), NULL);
    add_tensor(&m, "back", INT32, SHAPE(3), back);
    add_operator(&m, RESHAPE, 2, 1, 4, 0, 3);
    m.out[0] = 3;
    n = READ(&m);
    IS_TOLD(n, &n->graph.nodes[0], 1, -1, 4);
    IS_TOLD(n, &n->graph.nodes[1], 1, -1, 3, 8);
    IS_SHAPE(n, 1, -1, 4);
    IS_SHAPE(n, 3, -1, 3, 8);
    fl_network_free(n);
    /* A batch of 2 stays; one that is open in the signature is -1 whatever follows. */
    m = one(TRANSPOSE, 2, 4, (const int32_t[]){1, 0, 2, 3}, SHAPE(2, 1, 3, 4));
    n = READ(&m);
    IS_SHAPE(n, 0, 1, 2, 3, 4);
    fl_network_free(n);
    m.tensor[0].has_signature = true;
    memcpy(m.tensor[0].signature, (const int32_t[]){-1, -1, 3, 4}, 16);
    n = READ(&m);
    IS_SHAPE(n, 0, -1, -1, 3, 4);
    IS_SHAPE(n, 1, 2, 1, 3, 4);
    fl_network_free(n);
    m = one(MEAN, 2, 2, (const int32_t[]){1, 2}, SHAPE(2, 4));
    m.tensor[0].shape[0] = 2;
    n = READ(&m);
    IS_SHAPE(n, 0, 2, 2, 3, 4);
    fl_network_free(n);
    /* A sum with a constant of that size fixes the batch; with one of 1 it does not. */
    m = one(ADD, 2, 24, (const int32_t[24]){0}, SHAPE(1, 2, 3, 4));
    m.tensor[2].type = FLOAT32;
    n = READ(&m);
    IS_SHAPE(n, 1, -1, 2, 3, 4);
    fl_network_free(n);
    memcpy(m.tensor[2].shape, (const int32_t[]){4, 2, 1, 1}, 16);
    m.tensor[2].ndim = 4;
    m.tensor[2].bytes = 32;
    m.tensor[1].shape[0] = 4;
    n = READ(&m);
    IS_SHAPE(n, 0, 1, 2, 3, 4);
    fl_network_free(n);
}

/* Two constants of one buffer; nodes in another order than that in which they are computed. */
static void test_sharing(void) {
    struct file_model m = images();
    m.tensor[11].buffer = 2; /* the bias of Conv */
    m.tensor[2].bytes = 8;
    m.tensor[2].shape[0] = 2;
    m.tensor[1].shape[0] = m.tensor[3].shape[3] = 2;
    m.tensor[1].bytes = 144;
    m.tensor[4].shape[3] = m.tensor[5].shape[0] = 6;
    const struct file_operator first = m.op[0];
    m.op[0] = m.op[5];
    m.op[5] = first;
    struct fl_network *const n = READ(&m);
    CHECK(n->values[2].constant->data == n->values[11].constant->data, "two copies of a buffer");
    NODES(n, "Conv", "Conv", "AveragePool", "Reshape", "Gemm", "Softmax");
    fl_network_free(n);
}

/* --- bad files ---------------------------------------------------------------------------------------------------- */

static void test_bad_models(void) {
    const struct file_model good = images(), whole = integers();
    struct file_model m;
    m = good, m.version = 2, FAILS(&m, TENSOR_E_UNSUPPORTED, "version 2", "expected 3");
    m = good, m.graphs = 2, FAILS(&m, TENSOR_E_UNSUPPORTED, "2 sub-graphs");
    m = good, m.graphs = -1, FAILS(&m, TENSOR_E_DATA, "0 sub-graphs");
    m = good, m.tensors = 0, FAILS(&m, TENSOR_E_DATA, "0 tensors");
    m = good, m.outs = 0, FAILS(&m, TENSOR_E_DATA, "no output");
    m = good, m.in[0] = 14, FAILS(&m, TENSOR_E_DATA, "input 0 is tensor 14", "0 to 13");
    m = good, m.out[0] = -1, FAILS(&m, TENSOR_E_DATA, "output 0 is tensor -1");
    m = good, m.in[1] = 0, m.ins = 2, FAILS(&m, TENSOR_E_DATA, "two inputs", "image");
    m = good, m.ins = 0, FAILS(&m, TENSOR_E_DATA, "image", "no input");
    m = good, m.op[0].no_code = true, FAILS(&m, TENSOR_E_DATA, "operator 0", "code");
    m = good, m.op[1].in[1] = 14, FAILS(&m, TENSOR_E_DATA, "DEPTHWISE_CONV_2D", "operand 1 is tensor 14");
    m = good, m.op[1].in[1] = -2, FAILS(&m, TENSOR_E_DATA, "operand 1 is tensor -2");
    m = good, m.op[1].in[1] = -1, FAILS(&m, TENSOR_E_DATA, "operand 1 is not given");
    m = good, m.op[2].out[0] = 99, FAILS(&m, TENSOR_E_DATA, "result 0 is tensor 99");
    m = good, m.op[2].out[0] = 3, FAILS(&m, TENSOR_E_DATA, "AVERAGE_POOL_2D", "computes tensor 3");
    m = good, m.op[2].outs = 0, FAILS(&m, TENSOR_E_DATA, "no result");
    m = good, m.op[2].in[0] = 7, FAILS(&m, TENSOR_E_DATA, "cycle");
    m = good, m.op[0].in[0] = 6, FAILS(&m, TENSOR_E_DATA, "cycle");
    m = good, m.op[2].ins = 0, FAILS(&m, TENSOR_E_DATA, "0 operands");
    m = good, m.op[0].options = 0, FAILS(&m, TENSOR_E_DATA, "options", "NONE", "Convolution");
    m = good, m.op[0].options = 5, FAILS(&m, TENSOR_E_DATA, "options", "Pool", "Convolution");
    /* tensors */
    m = good, m.tensor[0].shape[1] = -4, FAILS(&m, TENSOR_E_DATA, "tensor 0 (image)", "dimension 1 is -4");
    m = good, m.tensor[0].shape[1] = m.tensor[0].shape[2] = INT32_MAX, FAILS(&m, TENSOR_E_DATA, "2147483647", "2^40");
    m = good, m.tensor[1].shape[0] = 1 << 28, FAILS(&m, TENSOR_E_DATA, "filter", "has 216 bytes");
    m = good, m.tensor[0].ndim = 9, FAILS(&m, TENSOR_E_DATA, "9 dimensions");
    m = good, m.tensor[1].bytes--, FAILS(&m, TENSOR_E_DATA, "tensor 1 (filter)", "has 215 bytes, expected 216");
    m = good, m.tensor[1].bytes++, FAILS(&m, TENSOR_E_DATA, "has 217 bytes, expected 216");
    m = good, m.tensor[1].buffer = 77, FAILS(&m, TENSOR_E_DATA, "buffer 77");
    m = good, m.tensor[1].data = NULL, FAILS(&m, TENSOR_E_DATA, "filter", "no node computes");
    m = good, m.tensor[0].has_signature = true, FAILS(&m, TENSOR_E_DATA, "signature");
    m = good, m.tensor[0].variable = true, FAILS(&m, TENSOR_E_UNSUPPORTED, "variable");
    m = good, m.tensor[3].type = STRING, FAILS(&m, TENSOR_E_UNSUPPORTED, "type", "conv");
    m = good, m.tensor[3].type = 99, FAILS(&m, TENSOR_E_UNSUPPORTED, "type", "conv");
    /* quantisation */
    m = whole, m.tensor[2].axis = 4, FAILS(&m, TENSOR_E_DATA, "tensor 2 (w)", "dimension 4");
    m = whole, m.tensor[2].axis = -1, FAILS(&m, TENSOR_E_DATA, "dimension -1");
    m = whole, m.tensor[2].scales = 3, FAILS(&m, TENSOR_E_DATA, "3 scales");
    m = whole, m.tensor[2].zeros = 1, FAILS(&m, TENSOR_E_DATA, "1 zero points, expected 2");
    m = whole, m.tensor[4].zero[0] = 128, FAILS(&m, TENSOR_E_DATA, "zero point 0 is 128", "-128 to 127");
    m = whole, m.tensor[4].scale[0] = 0, FAILS(&m, TENSOR_E_DATA, "scale 0 is 0");
    m = whole, m.tensor[4].scale[0] = -1, FAILS(&m, TENSOR_E_DATA, "scale 0 is -1");
    m = whole, m.tensor[4].scale[0] = INFINITY, FAILS(&m, TENSOR_E_DATA, "scale 0 is inf");
    m = whole, m.tensor[1].scales = 0, FAILS(&m, TENSOR_E_DATA, "QUANTIZE", "has no scale");
    m = whole, m.tensor[5].axis = 2, FAILS(&m, TENSOR_E_UNSUPPORTED, "along dimension 2, expected 3");
}

static void test_bad_operators(void) {
    const struct file_model good = images();
    struct file_model m;
    m = good, m.op[0].field[0].value = 2, FAILS(&m, TENSOR_E_DATA, "CONV_2D (conv)", "padding 2");
    m = good, m.op[0].field[1].value = 0, FAILS(&m, TENSOR_E_DATA, "strides 2 x 0");
    m = good, m.op[2].field[3].value = -1, FAILS(&m, TENSOR_E_DATA, "kernel_shape 1 x -1");
    m = good, m.tensor[0].shape[3] = 3, FAILS(&m, TENSOR_E_DATA, "for 3 channels");
    m = good, m.tensor[2].shape[0] = 2, m.tensor[2].bytes = 8, FAILS(&m, TENSOR_E_DATA, "bias has 2 elements");
    m = good, m.tensor[3].shape[3] = 4, FAILS(&m, TENSOR_E_DATA, "DEPTHWISE_CONV_2D", "for 4 channels");
    m = good, m.op[1].in[1] = 0, FAILS(&m, TENSOR_E_DATA, "DEPTHWISE_CONV_2D", "filter of 1 x 4 x 4 x 2");
    m = good, m.tensor[0].ndim = 3, FAILS(&m, TENSOR_E_DATA, "3 dimensions, expected 4");
    m = good, m.tensor[9].shape[1] = 5, FAILS(&m, TENSOR_E_DATA, "FULLY_CONNECTED", "5 numbers");
    m = good, m.op[4].field[0] = (struct file_field){1, 1, 1}, FAILS(&m, TENSOR_E_UNSUPPORTED, "order of its own");
    m = good, m.op[3].in[1] = 12, FAILS(&m, TENSOR_E_UNSUPPORTED, "the shape is computed");
    m = good, m.op[5].field[0].value = bits(-1), FAILS(&m, TENSOR_E_DATA, "beta is -1");
    m = good, m.op[5].field[0].value = bits(NAN), FAILS(&m, TENSOR_E_DATA, "beta is nan");
    m = one(RESHAPE, 2, 2, (const int32_t[]){-1, -1}, SHAPE(6, 4)), FAILS(&m, TENSOR_E_DATA, "-1 once");
    m = one(RESHAPE, 2, 2, (const int32_t[]){0, 4}, SHAPE(6, 4)), FAILS(&m, TENSOR_E_DATA, "dimension 0", "is 0");
    m = one(RESHAPE, 2, 9, (const int32_t[9]){1}, SHAPE(6, 4)), FAILS(&m, TENSOR_E_DATA, "9 numbers");
    m = one(MEAN, 2, 2, (const int32_t[]){1, 4}, SHAPE(1, 4)), FAILS(&m, TENSOR_E_DATA, "axis 4, expected -4 to 3");
    m = one(MEAN, 2, 2, (const int32_t[]){1, -3}, SHAPE(1, 4)), FAILS(&m, TENSOR_E_DATA, "axis 1 twice");
    m = one(TRANSPOSE, 2, 3, (const int32_t[]){0, 1, 2}, SHAPE(1)), FAILS(&m, TENSOR_E_DATA, "of 3 dimensions");
    m = one(TRANSPOSE, 2, 4, (const int32_t[]){0, 1, 2, 2}, SHAPE(1)), FAILS(&m, TENSOR_E_DATA, "axis 2 twice");
    m = one(PAD, 2, 6, (const int32_t[6]){0}, SHAPE(1)), FAILS(&m, TENSOR_E_DATA, "a padding of 6 numbers");
    m = one(PAD, 2, 8, (const int32_t[8]){0, -1}, SHAPE(1)), FAILS(&m, TENSOR_E_DATA, "a padding of -1");
    m = one(RESIZE_BILINEAR, 2, 2, (const int32_t[]){0, 4}, SHAPE(1)), FAILS(&m, TENSOR_E_DATA, "a size");
    m = one(STRIDED_SLICE, 4, 4, (const int32_t[12]){0}, SHAPE(1));
    OPTIONS(&m.op[0], 32, {0, 4, 0});
    FAILS(&m, TENSOR_E_DATA, "stride 0");
    m = one(CONCATENATION, 1, 0, NULL, SHAPE(1));
    OPTIONS(&m.op[0], 10, {0, 4, 4});
    FAILS(&m, TENSOR_E_DATA, "axis 4");
}

/* One message with all operators that are not supported, longer than messages once could be. */
static void test_unsupported(void) {
    struct file_model m = {.ins = 1, .outs = 1, .out = {12}};
    static char names[13][80];
    for (int i = 0; i < 13; i++) {
        snprintf(names[i], sizeof names[i], "a value that has a rather long name, as those of real networks have (%d)",
                 i);
        add_tensor(&m, names[i], FLOAT32, SHAPE(1, 4), NULL);
    }
    for (int i = 0; i < 12; i++)
        add_operator(&m,
                     i % 3 == 0   ? DEPTH_TO_SPACE
                     : i % 3 == 1 ? CUSTOM
                                  : CUMSUM,
                     1, i, 0, 0, i + 1)
            ->custom = i % 3 == 1 ? "MyOperator" : NULL;
    m.op[5].code = 5000;
    FAILS(&m, TENSOR_E_UNSUPPORTED,
          "DEPTH_TO_SPACE (a value that has a rather long name, as those of real networks "
          "have (1))",
          "CUSTOM MyOperator (", "CUMSUM (", "operator code 5000 (", "(12))", names[1], names[2], names[3], names[4],
          names[5], names[6], names[7], names[8], names[9], names[10], names[11]);
    m.operators = 1;
    m.out[0] = 1;
    m.op[0] = (struct file_operator){.code = ADD, .ins = 2, .outs = 1, .out = {1}};
    OPTIONS(&m.op[0], 11, {0, 1, 4});
    FAILS(&m, TENSOR_E_UNSUPPORTED, "ADD", "fused activation 4");
}

static void test_bad_bytes(void) {
    const struct file_model m = images(), whole = integers();
    static uint8_t copy[ROOM];
    const size_t size = file_write_model(&m, bytes);
    for (size_t cut = 0; cut < size; cut++) {
        struct fl_network *const n = read_bytes(bytes, cut);
        /* what the end is not needed for may be missing: padding behind the last list */
        CHECK(!n || cut + 8 > size, "the first %zu of %zu bytes are read", cut, size);
        CHECK(n || last_status == TENSOR_E_DATA, "%zu bytes: %s", cut, tensor_error());
        fl_network_free(n);
    }
    for (int which = 0; which < 2; which++) {
        const size_t all = file_write_model(which ? &whole : &m, copy);
        for (size_t at = 0; at < all; at++) {
            const uint8_t old = copy[at];
            copy[at] = at % 3 == 0 ? 0xff : at % 3 == 1 ? 0x7f : (uint8_t)(old + 1);
            fl_network_free(read_bytes(copy, all));
            CHECK(last_status == TENSOR_OK || last_status == TENSOR_E_DATA || last_status == TENSOR_E_UNSUPPORTED,
                  "byte %zu: %s", at, tensor_error());
            copy[at] = old;
        }
    }
    memcpy(copy, bytes, size);
    memcpy(copy + 4, "TFL2", 4);
    CHECK(!read_bytes(copy, size) && strstr(tensor_error(), "TFL3"), "%s", tensor_error());
}

/* Many tensors that are one table with a long name: memory follows the file's size, not what it would come to. */
static void test_memory(void) {
    static char name[5001];
    struct file_model m = {.ins = 1, .outs = 1};
    memset(name, 'n', sizeof name - 1);
    add_tensor(&m, name, FLOAT32, SHAPE(1, 4), NULL);
    for (int i = 1; i < 24; i++)
        add_tensor(&m, "", FLOAT32, SHAPE(1, 4), NULL);
    m.same_tensors = true;
    FAILS(&m, TENSOR_E_DATA, "over and over");
}

static bool read_again(void) {
    struct fl_network *n = NULL;
    const bool good = !fl_tflite_read(&n, folder_path("good.tflite"));
    fl_network_free(n);
    return good;
}

static void test_no_memory(void) {
    const struct file_model m = images();
    bool worked = false;
    file_write("good.tflite", bytes, file_write_model(&m, bytes));
    tensor_set_allocator(failing_allocate, counting_release);
    for (long k = 1; k < 100 && !worked; k++) {
        allocator_calls = allocator_held = 0;
        allocator_fail_at = k;
        worked = read_again();
        CHECK(allocator_held == 0, "allocation %ld fails: %ld blocks stay", k, (long)allocator_held);
        CHECK(worked || tensor_error_status() == TENSOR_E_MEMORY, "allocation %ld: %s", k, tensor_error());
    }
    CHECK(worked, "never worked");
    allocator_fail_at = 0;
    tensor_set_allocator(NULL, NULL);
}

static void test_files(void) {
    struct fl_network *n = NULL;
    CHECK(fl_tflite_read(&n, folder_path("none.tflite")) == TENSOR_E_IO && strstr(tensor_error(), "none.tflite"), "%s",
          tensor_error());
    CHECK(fl_tflite_read(&n, folder) == TENSOR_E_IO && strstr(tensor_error(), "a folder"), "%s", tensor_error());
    CHECK(!n, "a network");
    file_remove("good.tflite");
    file_remove("model.tflite");
}

/* --- seeds of the fuzz target ------------------------------------------------------------------------------------- */

static void write_seed(const char *name, const struct file_model *m) {
    file_write(name, bytes, file_write_model(m, bytes));
}

static int write_seeds(const char *where) {
    snprintf(folder, sizeof folder, "%s", where);
    struct file_model m = images();
    write_seed("images", &m);
    m.graphs = 2;
    write_seed("two-graphs", &m);
    m = integers();
    write_seed("integers", &m);
    m.tensor[2].axis = 9;
    write_seed("wrong-axis", &m);
    m = one(STRIDED_SLICE, 4, 4, (const int32_t[]){0, 1, 7, 1, 5, 0, 0, 3, 1, 1, -1, 1}, SHAPE(1, 3, 2));
    OPTIONS(&m.op[0], 32, {0, 4, 4}, {1, 4, 4}, {4, 4, 2});
    write_seed("slice", &m);
    m = one(PAD, 2, 8, (const int32_t[]){0, 0, 1, 2, 3, 4, 0, 0}, SHAPE(1, 5, 10, 4));
    write_seed("pad", &m);
    m = one(RESIZE_BILINEAR, 2, 2, (const int32_t[]){4, 6}, SHAPE(1, 4, 6, 4));
    OPTIONS(&m.op[0], 15, {3, 1, 1});
    write_seed("resize", &m);
    m = one(RESHAPE, 2, 2, (const int32_t[]){6, 4}, SHAPE(6, 4));
    write_seed("reshape", &m);
    m = one(RESHAPE, 1, 0, NULL, SHAPE(6, 4));
    m.op[0].options = 17;
    m.op[0].list = 2;
    m.op[0].numbers[0] = 6;
    m.op[0].numbers[1] = -1;
    write_seed("reshape-by-options", &m);
    m = one(TRANSPOSE, 2, 4, (const int32_t[]){1, 0, 2, 3}, SHAPE(2, 1, 3, 4));
    m.tensor[0].has_signature = true;
    memcpy(m.tensor[0].signature, (const int32_t[]){-1, -1, 3, 4}, 16);
    write_seed("signature", &m);
    m = one(MEAN, 2, 2, (const int32_t[]){1, -2}, SHAPE(1, 4));
    write_seed("mean", &m);
    m = one(CUSTOM, 1, 0, NULL, SHAPE(1, 4));
    m.op[0].custom = "MyOperator";
    write_seed("custom", &m);
    return check_failures != 0;
}

int main(int argc, char **argv) {
    for (int i = 0; i < 64; i++)
        numbers[i] = (float)i + 0.5f;
    if (argc == 3 && !strcmp(argv[1], "write"))
        return write_seeds(argv[2]);
    CHECK(folder_make(), "cannot make a folder");
    const struct file_model m = images();
    struct fl_network *const first = read_model(&m);
    if (!first && last_status == TENSOR_E_UNSUPPORTED) {
        CHECK(strstr(tensor_error(), "libflatbuffers-dev"), "%s", tensor_error());
        file_remove("model.tflite");
        rmdir(folder);
        return check_failures ? check_summary() : check_skip("the library was built without FlatBuffers");
    }
    fl_network_free(first);
    test_images();
    test_integers();
    test_four_bits();
    test_operators();
    test_batch();
    test_sharing();
    test_bad_models();
    test_bad_operators();
    test_unsupported();
    test_bad_bytes();
    test_memory();
    test_no_memory();
    test_files();
    CHECK(!rmdir(folder), "files are left in %s", folder);
    return check_summary();
}
