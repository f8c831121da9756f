/* Random quantised networks, in both orders of dimensions, of int8 and uint8, against sums and roundings written down
 * naively: all scales are powers of two, so that real numbers are exact in double, and ties are frequent. Operators
 * without a kernel of integers are among them. The bits are the same in every batch, by any number of threads and by
 * every kernel set.
 * usage: test_program_quantised [cuda] [first seed [number of networks]] */
#include "network_parts.h"
#include "../int8/int8_witness.h"
#include "flexlab/program.h"
#include "program/lower/quantised.h"
#include "program/passes/passes.h"
#include <math.h>

enum { IMAGES = 3, MOST_VALUES = 24, MOST_FILTERS = 64, MOST_WEIGHTS = 4096 };

/* A value of the network and what it is to be: integers, and the real numbers from which they were rounded. */
struct known {
    const char *op;           /* whose result it is */
    int value, ndim, zero, e; /* the scale is 2^e */
    int64_t dim[4], count;
    bool is_unsigned;
    int *q;
};

struct networks {
    struct fl_network *n;
    uint64_t random;
    bool last, exact; /* N, H, W, C; rounding exact, else onnx */
    int count;
    struct known values[MOST_VALUES];
};

static int64_t draw(struct networks *t, int64_t least, int64_t most) {
    return least + (int64_t)(check_random(&t->random) % (uint64_t)(most - least + 1));
}

static double real_at(const struct known *v, int64_t i) {
    return ldexp(v->q[i] - v->zero, v->e);
}

/* The dimensions of images: N, C, H, W. */
static int place(const struct networks *t, int d) {
    static const int last[] = {0, 3, 1, 2};
    return t->last ? last[d] : d;
}

static int64_t size_of(const struct networks *t, const struct known *v, int d) {
    return v->dim[place(t, d)];
}

static int64_t at(const struct networks *t, const struct known *v, int64_t n, int64_t c, int64_t h, int64_t w) {
    const int64_t index[] = {n, c, h, w};
    int64_t in_order[4], i = 0;
    for (int d = 0; d < 4; d++)
        in_order[place(t, d)] = index[d];
    for (int d = 0; d < 4; d++)
        i = i * v->dim[d] + in_order[d];
    return i;
}

/* --- values and nodes --------------------------------------------------------------------------------------------- */

static void set_quantisation(struct networks *t, int value, tensor_type type, int count, int axis, const int *e,
                             int zero) {
    struct fl_quantisation *const q = fl_net_memory(t->n, sizeof *q);
    *q = (struct fl_quantisation){.count = count, .axis = axis};
    q->scale = fl_net_memory(t->n, (size_t)count * sizeof *q->scale);
    q->zero = fl_net_memory(t->n, (size_t)count * sizeof *q->zero);
    for (int i = 0; i < count; i++) {
        q->scale[i] = ldexpf(1, e[i]);
        q->zero[i] = zero;
    }
    t->n->values[value].type = type;
    t->n->values[value].quantisation = q;
}

/* A value of random type: one that covers numbers of that magnitude, or nearly. */
static struct known *new_value(struct networks *t, int ndim, const int64_t *dim, double magnitude) {
    struct known *const v = &t->values[t->count++];
    int e;
    frexp(magnitude > 0x1p-10 ? magnitude : 1, &e);
    *v = (struct known){
        .ndim = ndim, .e = e - (int)draw(t, 6, 9), .count = 1, .is_unsigned = draw(t, 0, 1), .op = "input"};
    v->zero = (int)draw(t, 0, 2) ? (int)draw(t, 0, 255) - 128 * !v->is_unsigned : 128 * v->is_unsigned;
    for (int d = 0; d < ndim; d++)
        v->count *= v->dim[d] = dim[d];
    v->q = fl_net_memory(t->n, (size_t)v->count * sizeof *v->q);
    v->value = part_value(t->n, -1, NULL);
    set_quantisation(t, v->value, v->is_unsigned ? TENSOR_TYPE_U8 : TENSOR_TYPE_I8, 1, 0, &v->e, v->zero);
    return v;
}

static int clamped(const struct known *v, double q) {
    const double low = v->is_unsigned ? 0 : -128, high = low + 255;
    return (int)fmin(high, fmax(low, q + v->zero));
}

/* The integers of real numbers: one rounding, to nearest even. */
static void store(struct known *v, const double *real, double low, double high) {
    for (int64_t i = 0; i < v->count; i++) {
        const int q = clamped(v, nearbyint(ldexp(real[i], -v->e)));
        const int least = clamped(v, round(ldexp(low, -v->e))), most = clamped(v, round(ldexp(high, -v->e)));
        v->q[i] = q < least ? least : q > most ? most : q;
    }
}

static struct fl_net_node *add_node(struct networks *t, const char *op, int count, const int *inputs, struct known *y) {
    y->op = op;
    char name[20];
    snprintf(name, sizeof name, "n%d", t->n->graph.node_count);
    struct fl_net_node *const node = fl_net_add_node(t->n, &t->n->graph, op, name, count, 1, 0);
    memcpy(node->inputs, inputs, (size_t)count * sizeof *inputs);
    node->outputs[0] = y->value;
    node->channels_last = t->last;
    return node;
}

static int add_bytes(struct networks *t, int ndim, const int64_t *dim, tensor_type type, int *q, int zero) {
    const int value = part_value(t->n, ndim, dim);
    struct fl_array *a = NULL;
    CHECK(!fl_net_array(t->n, &a, type, ndim, dim), "%s", tensor_error());
    for (int64_t i = 0; i < a->count; i++) {
        q[i] = (int)draw(t, -127, 127) + (type == TENSOR_TYPE_U8 ? 128 : 0);
        ((uint8_t *)a->data)[i] = (uint8_t)q[i];
        q[i] -= zero;
    }
    t->n->values[value].constant = a;
    t->n->values[value].type = type;
    return value;
}

static int add_number(struct networks *t, float number) {
    uint64_t random = 1;
    const int made = part_constant(t->n, 0, NULL, &random);
    *(float *)t->n->values[made].constant->data = number;
    return made;
}

static int add_integers(struct networks *t, int count, const int64_t *list) {
    const int64_t dim = count;
    const int value = part_value(t->n, 1, &dim);
    CHECK(!fl_net_array(t->n, &t->n->values[value].constant, TENSOR_TYPE_I64, 1, &dim), "%s", tensor_error());
    t->n->values[value].type = TENSOR_TYPE_I64;
    memcpy(t->n->values[value].constant->data, list, (size_t)count * sizeof *list);
    return value;
}

static double largest(const double *x, int64_t count) {
    double most = 0;
    for (int64_t i = 0; i < count; i++)
        most = fmax(most, fabs(x[i]));
    return most;
}

static struct known *some_image(struct networks *t) {
    for (;;) {
        struct known *const v = &t->values[draw(t, 0, t->count - 1)];
        if (v->ndim == 4)
            return v;
    }
}

static bool same_shape(const struct known *a, const struct known *b) {
    return a->ndim == b->ndim && !memcmp(a->dim, b->dim, (size_t)a->ndim * sizeof *a->dim);
}

/* None, Relu or a clip from 0 to 6. */
static void activate(struct networks *t, struct fl_net_node *node, double *low, double *high) {
    const int kind = (int)draw(t, 0, 2);
    *low = kind ? 0 : -INFINITY;
    *high = kind == 2 ? 6 : INFINITY;
    if (kind)
        CHECK(!fl_net_set_string(t->n, node, "flexlab_activation", kind == 1 ? "Relu" : "Clip:0:6"), "memory");
}

/* --- convolution, products ---------------------------------------------------------------------------------------- */

struct geometry {
    int64_t window, stride, dilation, begin, end, size, result;
};

static bool draw_geometry(struct networks *t, struct geometry *g, int64_t size) {
    *g = (struct geometry){.window = draw(t, 1, 3), .stride = draw(t, 1, 2), .dilation = draw(t, 1, 2), .size = size};
    g->begin = draw(t, 0, g->window - 1);
    g->end = draw(t, 0, g->window - 1);
    const int64_t room = size + g->begin + g->end - (g->window - 1) * g->dilation - 1;
    g->result = room < 0 ? 0 : room / g->stride + 1;
    return g->result > 0;
}

static void set_geometry(struct networks *t, struct fl_net_node *node, const struct geometry *h,
                         const struct geometry *w) {
    struct fl_network *const n = t->n;
    CHECK(!fl_net_set_ints(n, node, "kernel_shape", 2, (const int64_t[]){h->window, w->window}) &&
              !fl_net_set_ints(n, node, "strides", 2, (const int64_t[]){h->stride, w->stride}) &&
              !fl_net_set_ints(n, node, "dilations", 2, (const int64_t[]){h->dilation, w->dilation}) &&
              !fl_net_set_ints(n, node, "pads", 4, (const int64_t[]){h->begin, w->begin, h->end, w->end}),
          "%s", tensor_error());
}

static void image_shape(const struct networks *t, int64_t *dim, int64_t n, int64_t c, int64_t h, int64_t w) {
    dim[0] = n;
    dim[place(t, 1)] = c;
    dim[place(t, 2)] = h;
    dim[place(t, 3)] = w;
}

/* Weights of K filters of `length` elements, and a bias: their exponents for each filter, or one. */
struct weights {
    int value, bias, count;
    int e[MOST_FILTERS], q[MOST_WEIGHTS];
    int32_t b[MOST_FILTERS];
};

static void draw_weights(struct networks *t, struct weights *w, int ndim, const int64_t *dim, int axis, int x_e) {
    const bool is_unsigned = draw(t, 0, 3) == 0;
    const int zero = is_unsigned ? 128 : 0, filters = (int)dim[axis];
    const int64_t count = filters;
    w->count = draw(t, 0, 1) ? filters : 1;
    for (int k = 0; k < filters; k++)
        w->e[k] = w->count > 1 || !k ? (int)draw(t, -8, -6) : w->e[0];
    w->value = add_bytes(t, ndim, dim, is_unsigned ? TENSOR_TYPE_U8 : TENSOR_TYPE_I8, w->q, zero);
    set_quantisation(t, w->value, t->n->values[w->value].type, w->count, w->count > 1 ? axis : 0, w->e, zero);
    w->bias = draw(t, 0, 3) ? part_value(t->n, 1, &count) : -1;
    for (int k = 0; k < filters; k++)
        w->b[k] = w->bias < 0 ? 0 : (int32_t)draw(t, -30000, 30000);
    if (w->bias < 0)
        return;
    CHECK(!fl_net_array(t->n, &t->n->values[w->bias].constant, TENSOR_TYPE_I32, 1, &count), "%s", tensor_error());
    memcpy(t->n->values[w->bias].constant->data, w->b, (size_t)filters * sizeof *w->b);
    int e[MOST_FILTERS];
    for (int k = 0; k < filters; k++)
        e[k] = x_e + w->e[k];
    set_quantisation(t, w->bias, TENSOR_TYPE_I32, w->count, 0, e, 0);
}

static void add_convolution(struct networks *t) {
    static struct weights w;
    const struct known *const x = some_image(t);
    const int64_t c = size_of(t, x, 1), group = draw(t, 0, 2) ? 1 : draw(t, 0, 1) ? c : c % 2 ? 1 : 2;
    const int64_t filters = group * draw(t, 1, group == c ? 2 : 5), of_group = c / group;
    struct geometry g[2];
    int64_t dim[4], shape[4];
    if (!draw_geometry(t, &g[0], size_of(t, x, 2)) || !draw_geometry(t, &g[1], size_of(t, x, 3)) ||
        filters > MOST_FILTERS || filters * of_group * g[0].window * g[1].window > MOST_WEIGHTS)
        return;
    image_shape(t, dim, filters, of_group, g[0].window, g[1].window);
    draw_weights(t, &w, 4, dim, 0, x->e);
    const struct known filter = {.ndim = 4, .dim = {dim[0], dim[1], dim[2], dim[3]}};
    image_shape(t, shape, IMAGES, filters, g[0].result, g[1].result);
    struct known y = {.ndim = 4, .dim = {shape[0], shape[1], shape[2], shape[3]}};
    const int64_t count = shape[0] * shape[1] * shape[2] * shape[3];
    double *const real = fl_net_memory(t->n, (size_t)count * sizeof *real);
    for (int64_t n = 0; n < IMAGES; n++)
        for (int64_t k = 0; k < filters; k++)
            for (int64_t i = 0; i < g[0].result; i++)
                for (int64_t j = 0; j < g[1].result; j++) {
                    int64_t sum = w.b[k];
                    for (int64_t q = 0; q < of_group; q++)
                        for (int64_t r = 0; r < g[0].window; r++)
                            for (int64_t s = 0; s < g[1].window; s++) {
                                const int64_t h = i * g[0].stride + r * g[0].dilation - g[0].begin,
                                              v = j * g[1].stride + s * g[1].dilation - g[1].begin;
                                if (h < 0 || v < 0 || h >= g[0].size || v >= g[1].size)
                                    continue;
                                const int64_t channel = k / (filters / group) * of_group + q;
                                sum += (int64_t)(x->q[at(t, x, n, channel, h, v)] - x->zero) *
                                       w.q[at(t, &filter, k, q, r, s)];
                            }
                    real[at(t, &y, n, k, i, j)] = ldexp((double)sum, x->e + w.e[k]);
                }
    const struct known *residual = NULL;
    for (int i = 0; i < t->count && t->exact && draw(t, 0, 1); i++)
        residual = same_shape(&t->values[i], &y) ? &t->values[i] : residual;
    for (int64_t i = 0; i < count && residual; i++)
        real[i] += real_at(residual, i);
    const int inputs[] = {x->value, w.value, w.bias, residual ? residual->value : -1};
    struct known *const made = new_value(t, 4, shape, largest(real, count));
    struct fl_net_node *const node = add_node(t, "Conv", residual ? 4 : 3, inputs, made);
    double low, high;
    CHECK(!fl_net_set_int(t->n, node, "group", group), "memory");
    set_geometry(t, node, &g[0], &g[1]);
    activate(t, node, &low, &high);
    store(made, real, low, high);
}

/* Flatten, and Gemm or MatMul. */
static void add_product(struct networks *t) {
    static struct weights w;
    const struct known *const x = some_image(t);
    const int64_t rows = x->dim[0], inner = x->count / rows, columns = draw(t, 1, 20);
    const bool turned = draw(t, 0, 1), matmul = draw(t, 0, 2) == 0;
    const int64_t shape[] = {rows, columns}, flat[] = {rows, inner};
    const int64_t dim[] = {turned && !matmul ? columns : inner, turned && !matmul ? inner : columns};
    double real[IMAGES * 20];
    if (inner * columns > MOST_WEIGHTS)
        return;
    struct known *const f = new_value(t, 2, flat, 1);
    f->e = x->e + (int)draw(t, 0, 1); /* another scale now and then */
    f->zero = x->zero;
    f->is_unsigned = x->is_unsigned;
    set_quantisation(t, f->value, f->is_unsigned ? TENSOR_TYPE_U8 : TENSOR_TYPE_I8, 1, 0, &f->e, f->zero);
    for (int64_t i = 0; i < f->count; i++)
        f->q[i] = clamped(f, nearbyint(ldexp(real_at(x, i), -f->e)));
    if (draw(t, 0, 1))
        add_node(t, "Flatten", 1, &x->value, f);
    else
        add_node(t, "Reshape", 2, (const int[]){x->value, add_integers(t, 2, (const int64_t[]){0, -1})}, f);
    draw_weights(t, &w, 2, dim, turned && !matmul ? 0 : 1, f->e);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < columns; k++) {
            int64_t sum = matmul ? 0 : w.b[k];
            for (int64_t j = 0; j < inner; j++)
                sum +=
                    (int64_t)(f->q[i * inner + j] - f->zero) * w.q[turned && !matmul ? k * inner + j : j * columns + k];
            real[i * columns + k] = ldexp((double)sum, f->e + w.e[k]);
        }
    struct known *const made = new_value(t, 2, shape, largest(real, rows * columns));
    const int inputs[] = {f->value, w.value, w.bias};
    struct fl_net_node *const node =
        add_node(t, matmul ? "MatMul" : "Gemm", matmul || w.bias < 0 ? 2 : 3, inputs, made);
    double low = -INFINITY, high = INFINITY;
    if (!matmul && turned)
        CHECK(!fl_net_set_int(t->n, node, "transB", 1), "memory");
    if (!matmul)
        activate(t, node, &low, &high);
    store(made, real, low, high);
}

/* --- pooling ------------------------------------------------------------------------------------------------------ */

static void add_pool(struct networks *t) {
    const struct known *const x = some_image(t);
    const int64_t c = size_of(t, x, 1);
    const bool mean = t->exact && draw(t, 0, 1), global = mean && draw(t, 0, 1), counts = draw(t, 0, 1);
    struct geometry g[2];
    int64_t shape[4];
    for (int i = 0; i < 2; i++)
        if (global)
            g[i] = (struct geometry){
                .window = size_of(t, x, 2 + i), .stride = 1, .dilation = 1, .size = size_of(t, x, 2 + i), .result = 1};
        else if (!draw_geometry(t, &g[i], size_of(t, x, 2 + i)) || g[i].dilation > 1)
            return;
    image_shape(t, shape, IMAGES, c, g[0].result, g[1].result);
    struct known *const y = new_value(t, 4, shape, ldexp(255, x->e));
    if (!mean) {
        y->e = x->e;
        y->zero = x->zero;
        y->is_unsigned = x->is_unsigned;
        set_quantisation(t, y->value, y->is_unsigned ? TENSOR_TYPE_U8 : TENSOR_TYPE_I8, 1, 0, &y->e, y->zero);
    }
    for (int64_t n = 0; n < IMAGES; n++)
        for (int64_t k = 0; k < c; k++)
            for (int64_t i = 0; i < g[0].result; i++)
                for (int64_t j = 0; j < g[1].result; j++) {
                    int64_t sum = 0, count = 0, most = -1000;
                    for (int64_t r = 0; r < g[0].window; r++)
                        for (int64_t s = 0; s < g[1].window; s++) {
                            const int64_t h = i * g[0].stride + r - g[0].begin, v = j * g[1].stride + s - g[1].begin;
                            if (h < 0 || v < 0 || h >= g[0].size || v >= g[1].size)
                                continue;
                            const int q = x->q[at(t, x, n, k, h, v)];
                            sum += q - x->zero;
                            count++;
                            most = q > most ? q : most;
                        }
                    const int shift = x->e - y->e;
                    const __int128 above = (__int128)sum * (shift > 0 ? (int64_t)1 << shift : 1);
                    const __int128 below =
                        (__int128)(counts ? g[0].window * g[1].window : count) * (shift < 0 ? (int64_t)1 << -shift : 1);
                    y->q[at(t, y, n, k, i, j)] =
                        mean ? clamped(y, (double)witness_divide(above, below, TIES_EVEN)) : (int)most;
                }
    struct fl_net_node *const node = add_node(t,
                                              global ? "GlobalAveragePool"
                                              : mean ? "AveragePool"
                                                     : "MaxPool",
                                              1, &x->value, y);
    if (!global) {
        set_geometry(t, node, &g[0], &g[1]);
        if (mean)
            CHECK(!fl_net_set_int(t->n, node, "count_include_pad", counts), "memory");
    }
}

/* --- elementwise -------------------------------------------------------------------------------------------------- */

/* Of two values of one shape, or of one and a constant for each channel. Only Add has a kernel of integers. */
static void add_binary(struct networks *t) {
    static const char *const ops[] = {"Add", "Add", "Add", "Mul", "Sub", "Max"};
    const char *const op = ops[draw(t, 0, 5)];
    const struct known *const a = some_image(t), *b = NULL;
    double *const real = fl_net_memory(t->n, (size_t)a->count * sizeof *real);
    for (int i = 0; i < t->count && draw(t, 0, 5); i++)
        b = same_shape(&t->values[i], a) ? &t->values[i] : b;
    int64_t dim[4];
    image_shape(t, dim, 1, size_of(t, a, 1), 1, 1);
    struct known other = {.ndim = 4, .zero = (int)draw(t, -5, 5), .e = (int)draw(t, -8, -3)};
    int q[MOST_FILTERS];
    if (!b) {
        other.value = add_bytes(t, 4, dim, TENSOR_TYPE_I8, q, other.zero);
        set_quantisation(t, other.value, TENSOR_TYPE_I8, 1, 0, &other.e, other.zero);
    }
    for (int64_t n = 0; n < IMAGES; n++)
        for (int64_t c = 0; c < size_of(t, a, 1); c++)
            for (int64_t h = 0; h < size_of(t, a, 2); h++)
                for (int64_t w = 0; w < size_of(t, a, 3); w++) {
                    const int64_t i = at(t, a, n, c, h, w);
                    const double left = real_at(a, i), right = b ? real_at(b, i) : ldexp(q[c], other.e);
                    real[i] = *op == 'A'     ? left + right
                              : *op == 'S'   ? left - right
                              : op[1] == 'u' ? left * right
                                             : fmax(left, right);
                }
    struct known *const made = new_value(t, 4, a->dim, largest(real, a->count));
    struct fl_net_node *const node = add_node(t, op, 2, (const int[]){a->value, b ? b->value : other.value}, made);
    double low = -INFINITY, high = INFINITY;
    if (*op == 'A')
        activate(t, node, &low, &high);
    if (*op == 'A' && !t->exact) /* onnxruntime adds the zero point before it rounds: ties go to even integers */
        for (int64_t i = 0; i < made->count; i++)
            real[i] = ldexp(nearbyint(ldexp(real[i], -made->e) + made->zero) - made->zero, made->e);
    store(made, real, low, high);
}

static void add_map(struct networks *t) {
    static const char *const ops[] = {"Relu", "Clip", "QuantizeLinear", "Neg", "Abs"};
    const char *const op = ops[draw(t, 0, 4)];
    const struct known *const x = some_image(t);
    double *const real = fl_net_memory(t->n, (size_t)x->count * sizeof *real);
    for (int64_t i = 0; i < x->count; i++) {
        const double r = real_at(x, i);
        real[i] = *op == 'N' ? -r : *op == 'A' ? fabs(r) : r;
    }
    struct known *const y = new_value(t, 4, x->dim, ldexp(100, x->e));
    const double low = *op == 'R' ? 0 : *op == 'C' ? -0.25 : -INFINITY, high = *op == 'C' ? 0.75 : INFINITY;
    int inputs[] = {x->value, -1, -1};
    if (*op == 'C') {
        inputs[1] = add_number(t, -0.25f);
        inputs[2] = add_number(t, 0.75f);
    }
    if (*op == 'Q') {
        const int64_t none = 1;
        int q[1];
        inputs[1] = add_number(t, ldexpf(1, y->e));
        inputs[2] = add_bytes(t, 0, &none, t->n->values[y->value].type, q, 0);
        *(uint8_t *)t->n->values[inputs[2]].constant->data = (uint8_t)y->zero;
    }
    add_node(t, op, *op == 'C' || *op == 'Q' ? 3 : 1, inputs, y);
    store(y, real, low, high);
}

/* --- orders ------------------------------------------------------------------------------------------------------- */

/* Up to ten values along the channels, of which some may be the same. */
static void add_concat(struct networks *t) {
    const struct known *const first = some_image(t);
    const int axis = place(t, 1), wanted = draw(t, 0, 4) ? (int)draw(t, 2, 4) : 10;
    const struct known *parts[10];
    int inputs[10], count = 0;
    int64_t dim[4], channels = 0;
    for (int k = 0; k < 40 && count < wanted; k++) {
        const struct known *const v = count ? some_image(t) : first;
        if (size_of(t, v, 2) != size_of(t, first, 2) || size_of(t, v, 3) != size_of(t, first, 3) ||
            channels + size_of(t, v, 1) > MOST_FILTERS / 2)
            continue;
        inputs[count] = v->value;
        channels += size_of(t, v, 1);
        parts[count++] = v;
    }
    if (!count)
        return;
    memcpy(dim, first->dim, sizeof dim);
    dim[axis] = channels;
    struct known *const y = new_value(t, 4, dim, ldexp(200, first->e));
    for (int64_t n = 0; n < IMAGES; n++)
        for (int64_t h = 0; h < size_of(t, y, 2); h++)
            for (int64_t w = 0; w < size_of(t, y, 3); w++)
                for (int64_t k = 0, c = 0; k < count; k++)
                    for (int64_t i = 0; i < size_of(t, parts[k], 1); i++, c++)
                        y->q[at(t, y, n, c, h, w)] =
                            clamped(y, nearbyint(ldexp(real_at(parts[k], at(t, parts[k], n, i, h, w)), -y->e)));
    struct fl_net_node *const node = add_node(t, "Concat", count, inputs, y);
    CHECK(!fl_net_set_int(t->n, node, "axis", draw(t, 0, 1) ? axis : axis - 4), "memory");
}

/* Height and width change places. */
static void add_transpose(struct networks *t) {
    const struct known *const x = some_image(t);
    const int h = place(t, 2), w = place(t, 3);
    int64_t dim[4], perm[] = {0, 1, 2, 3};
    memcpy(dim, x->dim, sizeof dim);
    dim[h] = x->dim[w];
    dim[w] = x->dim[h];
    perm[h] = w;
    perm[w] = h;
    struct known *const y = new_value(t, 4, dim, ldexp(100, x->e));
    if (draw(t, 0, 1)) {
        y->e = x->e;
        y->zero = x->zero;
        y->is_unsigned = x->is_unsigned;
        set_quantisation(t, y->value, y->is_unsigned ? TENSOR_TYPE_U8 : TENSOR_TYPE_I8, 1, 0, &y->e, y->zero);
    }
    for (int64_t n = 0; n < IMAGES; n++)
        for (int64_t c = 0; c < size_of(t, x, 1); c++)
            for (int64_t i = 0; i < size_of(t, x, 2); i++)
                for (int64_t j = 0; j < size_of(t, x, 3); j++)
                    y->q[at(t, y, n, c, j, i)] = clamped(y, nearbyint(ldexp(real_at(x, at(t, x, n, c, i, j)), -y->e)));
    struct fl_net_node *const node = add_node(t, "Transpose", 1, &x->value, y);
    CHECK(!fl_net_set_ints(t->n, node, "perm", 4, perm), "memory");
}

/* Along the channels. The kernel has tests of its own; here rows of channels are brought to it by hand. */
static void add_softmax(struct networks *t) {
    const struct known *const x = some_image(t);
    const int64_t c = size_of(t, x, 1);
    struct known *const y = new_value(t, 4, x->dim, 1);
    const struct fl_int8_type x_type = fl_net_int8_type(t->n, x->value), y_type = fl_net_int8_type(t->n, y->value);
    for (int64_t n = 0; n < IMAGES; n++)
        for (int64_t h = 0; h < size_of(t, x, 2); h++)
            for (int64_t w = 0; w < size_of(t, x, 3); w++) {
                uint8_t from[MOST_FILTERS], to[MOST_FILTERS];
                for (int64_t i = 0; i < c; i++)
                    from[i] = (uint8_t)x->q[at(t, x, n, i, h, w)];
                CHECK(!fl_int8_softmax(t->exact ? FL_INT8_EXACT : FL_INT8_ONNX, 1, c, 1, &x_type, from, &y_type, to),
                      "%s", tensor_error());
                for (int64_t i = 0; i < c; i++)
                    y->q[at(t, y, n, i, h, w)] = witness_element(to, y->is_unsigned, i);
            }
    struct fl_net_node *const node = add_node(t, "Softmax", 1, &x->value, y);
    CHECK(!fl_net_set_int(t->n, node, "axis", place(t, 1)), "memory");
}

/* --- the whole ---------------------------------------------------------------------------------------------------- */

static void check_bytes(const struct known *v, const program_array *out, int64_t first, const char *what) {
    const int64_t of_image = v->count / IMAGES, count = out->shape[0] * of_image;
    int64_t i = 0;
    CHECK(out->type == (v->is_unsigned ? TENSOR_TYPE_U8 : TENSOR_TYPE_I8) && out->ndim == v->ndim, "%s: type %d", what,
          out->type);
    while (i < count && witness_element(out->data, v->is_unsigned, i) == v->q[first * of_image + i])
        i++;
    CHECK(i == count, "%s, %s: image %lld, number %lld is %d, expected %d", what, v->op,
          (long long)(first + i / of_image), (long long)(i % of_image), witness_element(out->data, v->is_unsigned, i),
          v->q[first * of_image + i]);
}

static void run_all(program *p, const struct networks *t, const int *outputs, int64_t batch, const char *what) {
    const struct known *const x = &t->values[0];
    static uint8_t bytes[1 << 16];
    program_array out[3];
    for (int64_t first = 0; first < IMAGES; first += batch) {
        program_array in = {x->is_unsigned ? TENSOR_TYPE_U8 : TENSOR_TYPE_I8, 4, {0}, bytes};
        memcpy(in.shape, x->dim, sizeof x->dim);
        in.shape[0] = batch < IMAGES - first ? batch : IMAGES - first;
        for (int64_t i = 0; i < in.shape[0] * x->count / IMAGES; i++)
            bytes[i] = (uint8_t)x->q[first * (x->count / IMAGES) + i];
        const bool good = !program_run(p, out, &in);
        CHECK(good, "%s: %s", what, tensor_error());
        for (int k = 0; k < 3 && good; k++)
            check_bytes(&t->values[outputs[k]], &out[k], first, what);
    }
}

static tensor_device *device; /* on which networks run too */

static void check_network(uint64_t seed) {
    static const char *const kernels[] = {"ref", "portable", "avx2", "avx2_vnni", "avx512bw", "avx512", "avx512_amx"};
    static void (*const adders[])(struct networks *) = {add_convolution, add_convolution, add_convolution, add_product,
                                                        add_pool,        add_binary,      add_binary,      add_map,
                                                        add_concat,      add_transpose,   add_softmax};
    struct networks t = {.n = fl_network_new(FL_NET_ONNX), .random = seed};
    char what[100];
    t.last = draw(&t, 0, 1);
    t.exact = draw(&t, 0, 2) > 0;
    t.n->rounding = t.exact ? FL_INT8_EXACT : FL_INT8_ONNX;
    int64_t dim[4];
    image_shape(&t, dim, IMAGES, draw(&t, 1, 9), draw(&t, 1, 9), draw(&t, 1, 9));
    struct known *const x = new_value(&t, 4, dim, 1);
    for (int64_t i = 0; i < x->count; i++)
        x->q[i] = (int)draw(&t, 0, 255) - 128 * !x->is_unsigned;
    t.n->values[x->value].ndim = 4;
    memcpy(t.n->values[x->value].dim, dim, sizeof dim);
    t.n->values[x->value].dim[0] = -1;
    for (int k = 0; k < 10; k++)
        adders[draw(&t, 0, 10)](&t);
    const int outputs[] = {t.count - 1, t.count / 2, (int)draw(&t, 0, t.count - 1)};
    part_ports(t.n, 1, &x->value, 3,
               (const int[]){t.values[outputs[0]].value, t.values[outputs[1]].value, t.values[outputs[2]].value});
    const bool good = !fl_net_check(t.n) && !fl_passes(t.n);
    CHECK(good, "seed %llu: %s", (unsigned long long)seed, tensor_error());
    for (int k = 0; k < t.n->graph.node_count; k++) {
        const struct fl_net_node *const node = &t.n->graph.nodes[k];
        CHECK(fl_int8_takes(t.n, node) || !fl_net_is_quantised(t.n, node), "seed %llu: %s has no kernel",
              (unsigned long long)seed, node->op);
    }
    program *const p = program_of(t.n);
    for (int64_t batch = IMAGES; batch > 0 && good; batch--) {
        tensor_set_threads((int)batch);
        snprintf(what, sizeof what, "seed %llu, batch %lld", (unsigned long long)seed, (long long)batch);
        run_all(p, &t, outputs, batch, what);
    }
    tensor_set_threads(1);
    for (size_t k = 0; k < sizeof kernels / sizeof kernels[0] && good;
         k++) { /* the plan stays, layers are packed anew */
        tensor_set_backend(kernels[k]);
        snprintf(what, sizeof what, "seed %llu, kernels %s", (unsigned long long)seed, kernels[k]);
        run_all(p, &t, outputs, 1, what);
    }
    tensor_set_backend(NULL);
    tensor_set_threads(0);
    if (device && good) {
        CHECK(!program_set_device(p, device), "%s", tensor_error());
        snprintf(what, sizeof what, "seed %llu, device", (unsigned long long)seed);
        run_all(p, &t, outputs, IMAGES, what);
        CHECK(!program_set_device(p, NULL), "%s", tensor_error());
    }
    if (t.exact && good) { /* a sum that only exact has is refused by name */
        bool adds = false;
        for (int k = 0; k < t.n->graph.node_count; k++)
            adds |= !strcmp(t.n->graph.nodes[k].op, "Conv") && t.n->graph.nodes[k].input_count == 4;
        const tensor_status status = program_set_rounding(p, "onnx");
        CHECK(status == (adds ? TENSOR_E_UNSUPPORTED : TENSOR_OK), "seed %llu: %s", (unsigned long long)seed,
              tensor_error());
        CHECK(!strcmp(program_rounding(p), adds ? "exact" : "onnx"), "rounding %s", program_rounding(p));
    }
    program_free(p);
}

int main(int argc, char **argv) {
    if (argc > 1 && !strncmp(argv[1], "cuda", 4)) {
        device = tensor_device_find(argv[1]);
        CHECK(device, "%s", tensor_error());
        argc--;
        argv++;
    }
    const uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    const uint64_t count = argc > 2 ? strtoull(argv[2], NULL, 10) : 2000;
    for (uint64_t seed = first; seed < first + count; seed++)
        check_network(seed);
    if (argc == 1)
        check_network(4334); /* a clip that leaves 0 alone */
    return check_summary();
}
