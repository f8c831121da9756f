/* Quantised operators of ONNX files as quantised networks: what the nodes become; and results of onnxruntime
 * (qdq.txt, by qdq.py), bit for bit, of QLinear operators, of the same between DequantizeLinear and
 * QuantizeLinear, and of what computes them without that pass on arrays of the host. */
#include "network_parts.h"
#include "program/passes/passes.h"
#include <ctype.h>
#include <stdlib.h>

enum { MOST = 4096, FILTERS = 64 };

/* A line of qdq.txt. */
struct recorded {
    char op[40];
    tensor_type x_type, w_type;
    float x_scale, y_scale, w_scales[FILTERS];
    int x_zero, y_zero, w_zero, group, bias, w_scale_count, x_ndim, w_ndim, y_count;
    int64_t x_shape[8], w_shape[8], pads[8], strides[8];
    uint64_t seed;
    uint8_t y[MOST];
};

static int read_list(const char *text, int64_t *list) {
    int count = 0;
    for (const char *p = text; isdigit((unsigned char)*p) && count < 8; p += *p == ',') {
        char *end;
        list[count++] = strtoll(p, &end, 10);
        p = end;
    }
    return count;
}

static bool read_line(FILE *f, struct recorded *r) {
    static char line[20000];
    char *word[17];
    do
        if (!fgets(line, sizeof line, f))
            return false;
    while (*line == '#');
    int words = 0;
    for (char *p = strtok(line, " \n"); p && words < 17; p = strtok(NULL, " \n"))
        word[words++] = p;
    CHECK(words == 17, "%d words in a line, expected 17", words);
    if (words < 17)
        return false;
    *r = (struct recorded){.x_type = word[1][0] == 'u' ? TENSOR_TYPE_U8 : TENSOR_TYPE_I8,
                           .w_type = word[2][0] == 'u' ? TENSOR_TYPE_U8 : TENSOR_TYPE_I8};
    snprintf(r->op, sizeof r->op, "%s", word[0]);
    r->x_scale = strtof(word[3], NULL);
    r->x_zero = atoi(word[4]);
    r->y_scale = strtof(word[5], NULL);
    r->y_zero = atoi(word[6]);
    r->x_ndim = read_list(word[7], r->x_shape);
    r->w_ndim = read_list(word[8], r->w_shape);
    r->group = atoi(word[9]);
    read_list(word[10], r->pads);
    read_list(word[11], r->strides);
    r->bias = atoi(word[12]);
    for (char *p = word[13]; *p && r->w_scale_count < FILTERS; p += *p == ',')
        r->w_scales[r->w_scale_count++] = strtof(p, &p);
    r->w_zero = atoi(word[14]);
    r->seed = strtoull(word[15], NULL, 10);
    for (const char *p = word[16]; p[0] && p[1] && r->y_count < MOST; p += 2) {
        const char hex[3] = {p[0], p[1], 0};
        r->y[r->y_count++] = (uint8_t)strtol(hex, NULL, 16);
    }
    return true;
}

/* --- networks ------------------------------------------------------------------------------------------------------
 */

static int constant(struct fl_network *n, tensor_type type, int ndim, const int64_t *dim, struct fl_array **a) {
    char name[20];
    CHECK(!fl_net_array(n, a, type, ndim, dim), "%s", tensor_error());
    snprintf(name, sizeof name, "c%d", n->value_count);
    return fl_net_add_constant(n, name, *a);
}

static int number(struct fl_network *n, tensor_type type, double value) {
    struct fl_array *a;
    const int made = constant(n, type, 0, NULL, &a);
    fl_array_put_number(a, 0, value);
    return made;
}

static int value_of(struct fl_network *n, tensor_type type) {
    const int value = part_value(n, -1, NULL);
    n->values[value].type = type;
    return value;
}

static int node_of(struct fl_network *n, const char *op, tensor_type type, int count, const int *inputs) {
    const int value = part_node(n, op, count, inputs);
    n->values[value].type = type;
    return value;
}

static struct fl_net_node *last(struct fl_network *n) {
    return &n->graph.nodes[n->graph.node_count - 1];
}

static void ints_of(struct fl_network *n, const char *name, int count, const int64_t *values) {
    CHECK(!fl_net_set_ints(n, last(n), name, count, values), "%s", tensor_error());
}

/* What every form of a case has. */
struct operands {
    int x, w, b, xs, xz, ws, wz, ys, yz, bs; /* w: a constant of a product, an input of a sum */
};

static int64_t filters_of(const struct recorded *r) {
    return !strcmp(r->op, "QLinearConv") ? r->w_shape[0] : r->w_shape[1];
}

static bool is_product(const struct recorded *r) {
    return !strcmp(r->op, "QLinearConv") || !strcmp(r->op, "QLinearMatMul");
}

static struct operands make_operands(struct fl_network *n, const struct recorded *r, uint8_t *x, uint8_t *w) {
    uint64_t random = r->seed;
    struct operands o = {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1};
    struct fl_array *a;
    const int64_t filters = r->w_ndim ? filters_of(r) : 1, many = r->w_scale_count;
    int64_t count = 1;
    for (int d = 0; d < r->x_ndim; d++)
        count *= r->x_shape[d];
    for (int64_t i = 0; i < count; i++)
        x[i] = (uint8_t)check_random(&random);
    o.x = part_value(n, r->x_ndim, r->x_shape);
    n->values[o.x].type = r->x_type;
    o.xs = number(n, TENSOR_TYPE_F32, (double)r->x_scale);
    o.xz = number(n, r->x_type, r->x_zero);
    o.ys = number(n, TENSOR_TYPE_F32, (double)r->y_scale);
    o.yz = number(n, r->x_type, r->y_zero);
    if (!r->w_ndim)
        return o;
    count = 1;
    for (int d = 0; d < r->w_ndim; d++)
        count *= r->w_shape[d];
    for (int64_t i = 0; i < count; i++)
        w[i] = (uint8_t)check_random(&random);
    if (is_product(r)) {
        o.w = constant(n, r->w_type, r->w_ndim, r->w_shape, &a);
        memcpy(a->data, w, (size_t)count);
    } else {
        o.w = part_value(n, r->w_ndim, r->w_shape);
        n->values[o.w].type = r->w_type;
    }
    o.ws = constant(n, TENSOR_TYPE_F32, many > 1, &many, &a);
    memcpy(a->data, r->w_scales, (size_t)many * sizeof(float));
    o.wz = constant(n, r->w_type, many > 1, &many, &a);
    for (int64_t i = 0; i < many; i++)
        fl_array_put_integer(a, i, r->w_zero);
    if (r->bias) {
        o.b = constant(n, TENSOR_TYPE_I32, 1, &filters, &a);
        for (int64_t i = 0; i < filters; i++)
            ((int32_t *)a->data)[i] = (int32_t)(check_random(&random) % 20001) - 10000;
        o.bs = constant(n, TENSOR_TYPE_F32, many > 1, &many, &a);
        for (int64_t i = 0; i < many; i++)
            ((float *)a->data)[i] = r->x_scale * r->w_scales[i];
    }
    return o;
}

static void set_window(struct fl_network *n, const struct recorded *r) {
    if (strstr(r->op, "Conv")) {
        ints_of(n, "pads", 4, r->pads);
        ints_of(n, "strides", 2, r->strides);
        CHECK(!fl_net_set_int(n, last(n), "group", r->group), "%s", tensor_error());
    }
    if (!strcmp(r->op, "QLinearConcat"))
        CHECK(!fl_net_set_int(n, last(n), "axis", 1), "%s", tensor_error());
}

/* The operator as the file has it. */
static int linear_form(struct fl_network *n, const struct recorded *r, const struct operands *o) {
    const int product[] = {o->x, o->xs, o->xz, o->w, o->ws, o->wz, o->ys, o->yz, o->b},
              pool[] = {o->x, o->xs, o->xz, o->ys, o->yz},
              concat[] = {o->ys, o->yz, o->x, o->xs, o->xz, o->w, o->ws, o->wz};
    const bool joins = !strcmp(r->op, "QLinearConcat");
    const int y = node_of(n, r->op, r->x_type,
                          !r->w_ndim ? 5
                          : r->bias  ? 9
                                     : 8,
                          !r->w_ndim ? pool
                          : joins    ? concat
                                     : product);
    if (!is_product(r))
        last(n)->domain = "com.microsoft";
    set_window(n, r);
    return y;
}

static int dequantised(struct fl_network *n, int x, int scale, int zero, int64_t axis) {
    const int y = node_of(n, "DequantizeLinear", TENSOR_TYPE_F32, zero < 0 ? 2 : 3, (const int[]){x, scale, zero});
    CHECK(!fl_net_set_int(n, last(n), "axis", axis), "%s", tensor_error());
    return y;
}

/* The same between DequantizeLinear and QuantizeLinear. */
static int border_form(struct fl_network *n, const struct recorded *r, const struct operands *o) {
    int inputs[3] = {dequantised(n, o->x, o->xs, o->xz, 1)}, count = 1;
    if (r->w_ndim)
        inputs[count++] = dequantised(n, o->w, o->ws, o->wz, strstr(r->op, "Conv") ? 0 : 1);
    if (r->bias)
        inputs[count++] = dequantised(n, o->b, o->bs, -1, 0);
    const int y = node_of(n, r->op + strlen("QLinear"), TENSOR_TYPE_F32, count, inputs);
    set_window(n, r);
    return node_of(n, "QuantizeLinear", r->x_type, 3, (const int[]){y, o->ys, o->yz});
}

enum form { LINEAR, BORDERS, HOST };

static void check_case(const struct recorded *r, int line, enum form form) {
    static const char *const names[] = {"its own form", "its form between borders", "arrays of the host"};
    static uint8_t x[1 << 16], w[1 << 16];
    struct fl_network *const n = fl_network_new(FL_NET_ONNX);
    const struct operands o = make_operands(n, r, x, w);
    const int y = form == BORDERS ? border_form(n, r, &o) : linear_form(n, r, &o);
    const bool two = r->w_ndim && !is_product(r);
    part_ports(n, two ? 2 : 1, (const int[]){o.x, o.w}, 1, &y);
    program *const p = program_of(n);
    tensor_status status = fl_net_check(n);
    if (!status && form != HOST)
        status = fl_pass_quantised(n);
    CHECK(!status, "line %d: %s", line, tensor_error());
    if (form != HOST)
        CHECK(n->graph.node_count == 1 && !strcmp(n->graph.nodes[0].op, r->op + strlen("QLinear")) &&
                  !*n->graph.nodes[0].domain && fl_net_is_quantised(n, &n->graph.nodes[0]),
              "line %d in %s: %d nodes, the first is %s", line, names[form], n->graph.node_count, n->graph.nodes[0].op);
    program_array in[2] = {{.type = r->x_type, .ndim = r->x_ndim, .data = x},
                           {.type = r->w_type, .ndim = r->w_ndim, .data = w}},
                  out;
    memcpy(in[0].shape, r->x_shape, sizeof in[0].shape);
    memcpy(in[1].shape, r->w_shape, sizeof in[1].shape);
    if (!status)
        status = program_run(p, &out, in);
    CHECK(!status, "line %d in %s: %s", line, names[form], tensor_error());
    int64_t count = 1;
    for (int d = 0; !status && d < out.ndim; d++)
        count *= out.shape[d];
    CHECK(status || count == r->y_count, "line %d: %lld results, expected %d", line, (long long)count, r->y_count);
    for (int i = 0; !status && count == r->y_count && i < r->y_count; i++) {
        const uint8_t got = ((const uint8_t *)out.data)[i];
        CHECK(got == r->y[i], "line %d (%s) in %s, number %d: %02x, expected %02x", line, r->op, names[form], i, got,
              r->y[i]);
    }
    program_free(p);
}

static void check_recorded(void) {
    FILE *const f = fopen(QDQ_FILE, "r");
    static struct recorded r;
    int line = 0;
    CHECK(f, "no file %s", QDQ_FILE);
    while (f && read_line(f, &r)) {
        line++;
        check_case(&r, line, LINEAR);
        check_case(&r, line, BORDERS);
        if (is_product(&r))
            check_case(&r, line, HOST);
    }
    CHECK(line == 400, "%d cases, expected 400", line);
    if (f)
        fclose(f);
}

/* --- what stays as it is -------------------------------------------------------------------------------------------
 */

enum change {
    NOTHING,
    RELU,          /* a relu behind the convolution that the type's least number is the zero of */
    RELU_BELOW,    /* a relu that changes something, and has not been joined */
    TWO_READERS,   /* somebody reads the float before QuantizeLinear */
    SCALE_INPUT,   /* the scale of the result is an input */
    WEIGHTS_INPUT, /* the weights are one */
    OTHER_LEVELS,  /* a second reader says another scale of the same integers */
    PLAIN_NUMBERS, /* they are added as plain numbers, too */
    BIAS_SCALE,    /* of another size than the product of the scales */
    RESIDUAL,      /* behind the convolution, before it is rounded */
    EXACT_RESIDUAL /* the same where that is one sum */
};

static void check_structure(enum change change, bool becomes) {
    struct fl_network *const n = fl_network_new(FL_NET_ONNX);
    struct recorded r = {.op = "QLinearConv",
                         .x_type = TENSOR_TYPE_U8,
                         .w_type = TENSOR_TYPE_I8,
                         .x_scale = 0.5f,
                         .y_scale = 2,
                         .w_scales = {0.25f},
                         .w_scale_count = 1,
                         .group = 1,
                         .bias = 1,
                         .x_ndim = 4,
                         .w_ndim = 4,
                         .x_shape = {1, 2, 3, 3},
                         .w_shape = {2, 2, 1, 1},
                         .strides = {1, 1},
                         .y_zero = change == RELU_BELOW ? 3 : 0};
    uint8_t x[32], w[32];
    struct operands o = make_operands(n, &r, x, w);
    int inputs[3] = {o.x}, outputs[3], in = 1, out = 0;
    n->rounding = change == EXACT_RESIDUAL ? FL_INT8_EXACT : FL_INT8_ONNX;
    if (change == SCALE_INPUT)
        inputs[in++] = o.ys = value_of(n, TENSOR_TYPE_F32);
    if (change == WEIGHTS_INPUT)
        inputs[in++] = o.w = value_of(n, TENSOR_TYPE_I8);
    if (change == BIAS_SCALE)
        o.bs = number(n, TENSOR_TYPE_F32, 0.25);
    const int image = dequantised(n, o.x, o.xs, o.xz, 1);
    const int sums[] = {image, dequantised(n, o.w, o.ws, o.wz, 0), dequantised(n, o.b, o.bs, -1, 0)};
    int y = node_of(n, "Conv", TENSOR_TYPE_F32, 3, sums);
    if (change == TWO_READERS)
        outputs[out++] = y;
    if (change == RELU || change == RELU_BELOW)
        y = node_of(n, "Relu", TENSOR_TYPE_F32, 1, &y);
    if (change == RESIDUAL || change == EXACT_RESIDUAL) {
        struct fl_net_node *const conv = last(n);
        int *const four = fl_net_memory(n, 4 * sizeof *four);
        memcpy(four, conv->inputs, 3 * sizeof *four);
        four[3] = image;
        conv->inputs = four;
        conv->input_count = 4;
    }
    outputs[out++] = node_of(n, "QuantizeLinear", TENSOR_TYPE_U8, 3, (const int[]){y, o.ys, o.yz});
    if (change == OTHER_LEVELS)
        outputs[out++] = dequantised(n, outputs[0], o.xs, o.yz, 1);
    if (change == PLAIN_NUMBERS)
        outputs[out++] = node_of(n, "Add", TENSOR_TYPE_U8, 2, (const int[]){outputs[0], outputs[0]});
    part_ports(n, in, inputs, out, outputs);
    CHECK(!fl_net_check(n) && !fl_pass_quantised(n) && !fl_net_check(n), "%s", tensor_error());
    const struct fl_net_node *conv = NULL;
    for (int k = 0; k < n->graph.node_count; k++)
        if (!strcmp(n->graph.nodes[k].op, "Conv"))
            conv = &n->graph.nodes[k];
    CHECK(conv && fl_net_is_quantised(n, conv) == becomes, "change %d: it is %s", (int)change,
          becomes ? "not quantised" : "quantised");
    CHECK(!becomes || n->graph.node_count == 1, "change %d: %d nodes, expected 1", (int)change, n->graph.node_count);
    fl_network_free(n);
}

/* A max pooling between two layers hands the quantisation on, so that integers of files with QLinear operators alone
 * have one everywhere. */
static void check_movers(void) {
    struct fl_network *const n = fl_network_new(FL_NET_ONNX);
    static const int64_t two[] = {2, 2};
    struct recorded r = {.op = "QLinearConv",
                         .x_type = TENSOR_TYPE_I8,
                         .w_type = TENSOR_TYPE_I8,
                         .x_scale = 0.5f,
                         .y_scale = 0.5f,
                         .w_scales = {0.25f},
                         .w_scale_count = 1,
                         .group = 1,
                         .x_ndim = 4,
                         .w_ndim = 4,
                         .x_shape = {1, 2, 4, 4},
                         .w_shape = {2, 2, 1, 1},
                         .strides = {1, 1}};
    uint8_t x[32], w[32];
    struct operands o = make_operands(n, &r, x, w);
    const int first = linear_form(n, &r, &o), pooled = node_of(n, "MaxPool", 0, 1, &first), input = o.x;
    ints_of(n, "kernel_shape", 2, two);
    o.x = pooled;
    const int y = linear_form(n, &r, &o);
    part_ports(n, 1, &input, 1, &y);
    CHECK(!fl_net_check(n) && !fl_pass_quantised(n), "%s", tensor_error());
    for (int k = 0; k < n->graph.node_count; k++)
        CHECK(fl_net_is_quantised(n, &n->graph.nodes[k]), "node %d (%s) is not quantised", k, n->graph.nodes[k].op);
    fl_network_free(n);
}

int main(void) {
    check_recorded();
    check_structure(NOTHING, true);
    check_structure(RELU, true);
    check_structure(RELU_BELOW, false);
    check_structure(TWO_READERS, false);
    check_structure(SCALE_INPUT, false);
    check_structure(WEIGHTS_INPUT, false);
    check_structure(OTHER_LEVELS, false);
    check_structure(PLAIN_NUMBERS, false);
    check_structure(BIAS_SCALE, false);
    check_structure(RESIDUAL, false);
    check_structure(EXACT_RESIDUAL, true);
    check_movers();
    return check_summary();
}
