/* tensor_calls.h - one call of tensor.h as data: its kind, its operands and numbers read from the input, shapes that
 * fit it, and the call itself. */
#ifndef FL_FUZZ_TENSOR_CALLS_H
#define FL_FUZZ_TENSOR_CALLS_H

#include "host_numbers.h"
#include "flexlab/tensor.h"
#include "flexlab/tensor_blocks.h"
#include "fuzz.h"
#include "square.h"
#include "tensor_pool.h"
#include "flexlab/tensor_blocks.h"
#include <math.h>

/* Append new kinds at the end, because stored inputs would change their meaning. Results are the first operands. */
enum kind {
    MAP,              /* y, a, b, c: an entry of ops.def */
    BIAS,             /* y, x, b */
    BIAS_RELU,        /* y, x, b */
    MATMUL,           /* y, a, b */
    MATMUL_NT,        /* y, a, b */
    MATMUL_TN,        /* y, a, b */
    MATMUL_FUSED,     /* y, a, b, bias, residual */
    MATMUL_NT_FUSED,  /* y, a, b, bias, residual */
    CONV2D,           /* y, x, w */
    CONV2D_FUSED,     /* y, x, w, bias, residual */
    CONV_INPUT_GRAD,  /* dx, dy, w */
    CONV_WEIGHT_GRAD, /* dw, dy, x */
    MAXPOOL,          /* y, x */
    MAXPOOL_GRAD,     /* dx, dy, x */
    AVGPOOL,          /* y, x */
    AVGPOOL_GRAD,     /* dx, dy */
    SHORTCUT,         /* y, x */
    SHORTCUT_GRAD,    /* dx, dy */
    SUM_ROWS,         /* y, x */
    SUM,              /* x, and so on: no tensor is written */
    MAX_ABS,
    MOMENTS,
    BATCHNORM,      /* y, x, gamma, beta */
    BATCHNORM_ADD,  /* y, x, gamma, beta, r */
    BATCHNORM_GRAD, /* dx, dgamma, dbeta, dy, x, y, gamma */
    SOFTMAX,        /* dx, x */
    SGD_MOMENTUM,   /* v, g, w */
    SGD_UPDATE,     /* w, v */
    LOAD_F32,
    LOAD_F64,
    STORE_F32,
    STORE_F64,
    STORE_WIDE,
    CONVERT,    /* y, x */
    CONVERT_AT, /* y, x */
    COPY,       /* y, x */
    SET_EXPONENT,
    DECLARE_EXPONENT,
    SET_PREDICTOR,
    SET_ROUNDING,
    KEEP_WIDE,
    RESET_STATISTICS,
    LOSS,        /* dx, x, targets: one of losses.c */
    CLIP_WEIGHT, /* w */
    AROUND,      /* out, a, b, bias, residual: one of windows.c, see around_calls */
    KINDS
};

enum { OPERANDS = 7 };

struct call {
    enum kind kind;
    int map; /* row of maps */
    tensor *t[OPERANDS];
    struct square how;
    tensor_window around; /* of AROUND, and which of its calls */
    int which;
    float alpha, beta;
    double real;
    int whole;
    int64_t count;
    bool relu;
    const char *name;
};

/* Numbers that a call reads or writes beside tensors. */
static double host_mean[MOST_ELEMENTS], host_variance[MOST_ELEMENTS], host_doubles[MOST_ELEMENTS];
static float host_floats[MOST_ELEMENTS];
static int32_t host_labels[MOST_ELEMENTS];

struct results {
    double number, doubles[2][MOST_ELEMENTS];
    float floats[MOST_ELEMENTS];
    int32_t wholes[MOST_ELEMENTS];
};
enum { CLEAR = 0xE5 };

static inline void results_clear(struct results *r) {
    memset(r, CLEAR, sizeof *r);
}

static inline bool results_are_clear(const struct results *r) {
    const unsigned char *bytes = (const unsigned char *)r;
    return bytes[0] == CLEAR && !memcmp(bytes, bytes + 1, sizeof *r - 1);
}

static inline void results_must_equal(const struct results *a, const struct results *b, const char *what) {
    if (!memcmp(a, b, sizeof *a))
        return;
    MUST(same_double(a->number, b->number), "%s: %a and %a", what, a->number, b->number);
    MUST(!memcmp(a->wholes, b->wholes, sizeof a->wholes), "%s: whole numbers differ", what);
    for (int i = 0; i < MOST_ELEMENTS; i++) {
        MUST(same_double(a->doubles[0][i], b->doubles[0][i]) && same_double(a->doubles[1][i], b->doubles[1][i]),
             "%s: number %d: %a, %a and %a, %a", what, i, a->doubles[0][i], a->doubles[1][i], b->doubles[0][i],
             b->doubles[1][i]);
        MUST(same_double(a->floats[i], b->floats[i]), "%s: number %d: %a and %a", what, i, (double)a->floats[i],
             (double)b->floats[i]);
    }
}

/* --- entries of ops.def --- */

static const struct map {
    const char *name;
    int inputs;
    bool scalar;
    tensor_status (*one)(tensor *, const tensor *);
    tensor_status (*one_scalar)(tensor *, const tensor *, float);
    tensor_status (*two)(tensor *, const tensor *, const tensor *);
    tensor_status (*two_scalar)(tensor *, const tensor *, const tensor *, float);
    tensor_status (*one_scalars)(tensor *, const tensor *, float, float);
    tensor_status (*two_scalars)(tensor *, const tensor *, const tensor *, float, float);
    tensor_status (*three)(tensor *, const tensor *, const tensor *, const tensor *);
} maps[] = {
#define FL_MAP1(id, CONSTANT, name, expr) {#name, 1, false, .one = tensor_##name},
#define FL_MAP1_SCALAR(id, CONSTANT, name, expr) {#name, 1, true, .one_scalar = tensor_##name},
#define FL_MAP2(id, CONSTANT, name, expr) {#name, 2, false, .two = tensor_##name},
#define FL_MAP2_SCALAR(id, CONSTANT, name, expr) {#name, 2, true, .two_scalar = tensor_##name},
#define FL_MAP3(id, CONSTANT, name, expr) {#name, 3, false, .three = tensor_##name},
#define FL_MAP1_SCALARS(id, CONSTANT, name, expr) {#name, 1, true, .one_scalars = tensor_##name},
#define FL_MAP2_SCALARS(id, CONSTANT, name, expr) {#name, 2, true, .two_scalars = tensor_##name},
#include "flexlab/ops.def"
};
enum { MAPS = sizeof maps / sizeof maps[0] };

static inline const char *call_name(const struct call *c) {
    static const char *const names[KINDS] = {
        [BIAS] = "bias",
        [BIAS_RELU] = "bias_relu",
        [MATMUL] = "matmul",
        [MATMUL_NT] = "matmul_nt",
        [MATMUL_TN] = "matmul_tn",
        [MATMUL_FUSED] = "matmul_fused",
        [MATMUL_NT_FUSED] = "matmul_nt_fused",
        [CONV2D] = "conv2d",
        [CONV2D_FUSED] = "conv2d_fused",
        [CONV_INPUT_GRAD] = "conv2d_input_grad",
        [CONV_WEIGHT_GRAD] = "conv2d_weight_grad",
        [MAXPOOL] = "maxpool2d",
        [MAXPOOL_GRAD] = "maxpool2d_grad",
        [AVGPOOL] = "avgpool_global",
        [AVGPOOL_GRAD] = "avgpool_global_grad",
        [SHORTCUT] = "shortcut_a",
        [SHORTCUT_GRAD] = "shortcut_a_grad",
        [SUM_ROWS] = "sum_rows",
        [SUM] = "sum",
        [MAX_ABS] = "max_abs",
        [MOMENTS] = "channel_moments",
        [BATCHNORM] = "batchnorm",
        [BATCHNORM_ADD] = "batchnorm_add",
        [BATCHNORM_GRAD] = "batchnorm_grad",
        [SOFTMAX] = "softmax_cross_entropy",
        [SGD_MOMENTUM] = "sgd_momentum",
        [SGD_UPDATE] = "sgd_update",
        [LOAD_F32] = "load_f32",
        [LOAD_F64] = "load_f64",
        [STORE_F32] = "store_f32",
        [STORE_F64] = "store_f64",
        [STORE_WIDE] = "store_wide_f64",
        [CONVERT] = "convert",
        [CONVERT_AT] = "convert_at",
        [COPY] = "copy",
        [SET_EXPONENT] = "set_exponent",
        [DECLARE_EXPONENT] = "declare_exponent",
        [SET_PREDICTOR] = "set_predictor",
        [SET_ROUNDING] = "set_rounding",
        [KEEP_WIDE] = "keep_wide",
        [RESET_STATISTICS] = "reset_statistics",
        [LOSS] = "loss",
        [CLIP_WEIGHT] = "clip_weight",
        [AROUND] = "windows of any shape",
    };
    return c->kind == MAP ? maps[c->map].name : names[c->kind];
}

/* Whether a second call on the same tensors does the same: true of all but those that give a tensor memory. */
static inline bool is_repeatable(const struct call *c) {
    return c->kind != KEEP_WIDE;
}

/* --- numbers from the input --------------------------------------------------------------------------------------- */

/* Draws one of several distributions at some scale. */
static inline void make_values(struct input *in, double *values, int64_t count) {
    const int style = take_below(in, 8), scale = (int8_t)take_byte(in) / 2;
    uint64_t seed = take_byte(in);
    for (int64_t i = 0; i < count; i++) {
        const uint64_t pick = next_random(&seed);
        double v = ldexp((double)(int64_t)next_random(&seed), scale - 63);
        if (style == 1)
            v = ldexp(v, -(int)(pick % 40));
        else if (style == 2)
            v = pick % 3 ? 0 : v;
        else if (style == 3)
            v = ldexp(pick & 1 ? 1 : -1, scale);
        else if (style == 4)
            v = pick % 11 == 0 ? NAN : pick % 13 == 0 ? INFINITY : pick % 17 == 0 ? -INFINITY : v;
        else if (style == 5)
            v = 0;
        else if (style == 6)
            v = ldexp(v, (int)(pick % 200) - 100);
        else if (style == 7)
            v = ldexp(32766.5 + (double)(pick % 5) / 4, scale); /* near the end of a mantissa */
        values[i] = v;
    }
}

static inline float take_float(struct input *in) {
    static const float special[] = {0,      -0.0f,   1,        -1,  0.5f,        0.9f,     0.1f,      1e-4f,
                                    1e-40f, 3.4e38f, INFINITY, NAN, -3.4028e38f, 0x1p-30f, 32767.75f, 0x1.000002p0f};
    enum { SPECIAL = sizeof special / sizeof special[0] };
    const uint8_t byte = take_byte(in);
    if (byte < 200)
        return special[byte % SPECIAL];
    const uint32_t word = (uint32_t)take_bytes(in, 4);
    float value;
    memcpy(&value, &word, 4);
    return value;
}

static inline void take_window(struct input *in, struct square *how) {
    how->window = take_int(in);
    how->stride = take_int(in);
    how->padding = take_int(in);
    how->dilation = take_int(in);
    how->groups = take_int(in);
}

static inline int *around_number(tensor_window *how, int i) {
    return (int *[]){&how->window[0],        &how->window[1],   &how->stride[0],  &how->stride[1],
                     &how->padding[0],       &how->padding[1],  &how->padding[2], &how->padding[3],
                     &how->dilation[0],      &how->dilation[1], &how->groups,     &how->output_padding[0],
                     &how->output_padding[1]}[i % 13];
}

static inline void take_call(struct input *in, struct call *c) {
    c->kind = (enum kind)take_below(in, KINDS);
    if (c->kind == AROUND)
        c->which = take_below(in, 16);
    c->map = c->kind == MAP ? take_below(in, MAPS) : 0;
}

/* Reads the scalars, and sometimes replaces two tensors by one. */
static inline void take_scalars(struct input *in, struct call *c) {
    static const char *const predictors[] = {"paper", "ngraph", "current", "fixed", "repeat", "", "papers", NULL};
    const uint8_t alias = take_byte(in), twist = take_byte(in);
    if (alias >= 192)
        c->t[alias & 3] = c->t[(alias >> 2 & 15) % OPERANDS];
    if (twist >= 240)
        *(int *[]){&c->how.window, &c->how.stride, &c->how.padding, &c->how.dilation, &c->how.groups}[twist % 5] =
            take_int(in);
    if (twist >= 232 && twist < 240 && c->kind == AROUND)
        *around_number(&c->around, take_byte(in)) = take_int(in);
    c->alpha = take_float(in);
    c->beta = take_float(in);
    c->real = (double)take_float(in);
    c->relu = take_byte(in) & 1;
    c->whole = c->kind == CONVERT_AT || c->kind == SET_EXPONENT || c->kind == DECLARE_EXPONENT ? (int8_t)take_byte(in)
                                                                                               : take_int(in);
    if (c->kind == SHORTCUT || c->kind == SHORTCUT_GRAD)
        c->whole = c->how.stride;
    c->name = predictors[take_below(in, 8)];
    const int64_t wrong = take_byte(in) >= 240 ? take_whole(in) : 0;
    c->count = tensor_count(c->t[0]);
    if (wrong && wrong != c->count)
        c->count = wrong;
    if (c->kind == LOAD_F32 || c->kind == LOAD_F64 || c->kind == LOSS || (c->kind >= BATCHNORM && c->kind <= SOFTMAX)) {
        const int64_t first = tensor_count(c->t[0]), second = tensor_count(c->t[1]),
                      n = first > second ? first : second;
        make_values(in, host_mean, n);
        make_values(in, host_variance, n);
        const bool measured = take_byte(in) & 1;
        const tensor *x = c->kind == BATCHNORM_GRAD ? c->t[4] : c->t[1];
        if (measured && x && c->kind != LOAD_F32 && c->kind != LOAD_F64)
            host_moments(host_mean, host_variance, x);
        uint64_t seed = take_byte(in);
        const int64_t classes = tensor_dim(c->t[1], 1);
        for (int64_t i = 0; i < n; i++) {
            host_doubles[i] = host_mean[i];
            host_floats[i] = (float)host_mean[i];
            host_labels[i] = (int32_t)(next_random(&seed) % (uint64_t)(classes > 0 ? classes : 1));
        }
        if (!(seed & 7))
            host_labels[0] = take_int(in);
    }
}

/* --- shapes that fit ---------------------------------------------------------------------------------------------- */

struct want {
    int ndim; /* 0: no tensor */
    int64_t dim[TENSOR_MAX_DIMS];
};

static inline int64_t places(int64_t length, int64_t window, int dilation, int padding, int stride) {
    return (length + 2 * (int64_t)padding - ((window - 1) * dilation + 1)) / stride + 1;
}

#define WANT(...) ((struct want){sizeof((int64_t[]){__VA_ARGS__}) / 8, {__VA_ARGS__}})

static inline int fitting_matmul(struct input *in, const struct call *c, struct want want[OPERANDS]) {
    static const int sides[] = {1, 2, 3, 5, 8, 12, 13, 17, 24, 31, 32, 33}, depths[] = {1, 2, 3, 7, 16, 33, 64, 100};
    int64_t m = sides[take_below(in, 12)], n = sides[take_below(in, 12)], k = depths[take_below(in, 8)];
    const uint8_t more = take_byte(in);
    if (more >= 224) { /* several chunks of k */
        m = m % 3 + 1;
        n = n % 3 + 1;
        k = (more & 3) == 0 ? 513 : (more & 3) == 1 ? 1025 : 600;
    }
    const bool tn = c->kind == MATMUL_TN, nt = c->kind == MATMUL_NT || c->kind == MATMUL_NT_FUSED;
    want[0] = WANT(m, n);
    want[1] = tn ? WANT(k, m) : WANT(m, k);
    want[2] = nt ? WANT(n, k) : WANT(k, n);
    if (c->kind == MATMUL || tn || c->kind == MATMUL_NT)
        return 3;
    if (more & 4)
        want[3] = WANT(n);
    if (more & 8)
        want[4] = WANT(m, n);
    return 5;
}

static inline int fitting_convolution(struct input *in, struct call *c, struct want want[OPERANDS]) {
    static const int channels[] = {1, 2, 3, 4, 8, 16, 17, 18}, strides[] = {1, 1, 2, 3, 254, 255},
                     paddings[] = {0, 1, 2, 255};
    const int64_t n = 1 + take_below(in, 2), r = 1 + take_below(in, 3), s = 1 + take_below(in, 3);
    int64_t h = 1 + take_below(in, 6), w = 1 + take_below(in, 6), channel = channels[take_below(in, 8)],
            filters = channels[take_below(in, 8)];
    const int part = take_below(in, 4);
    const uint8_t more = take_byte(in);
    if (part == 2) {
        channel += channel % 2;
        filters += filters % 2;
    } else if (part == 3) {
        filters = channel;
    }
    c->how.window = take_int(in); /* does not matter */
    c->how.stride = strides[take_below(in, 6)];
    c->how.padding = paddings[take_below(in, 4)];
    c->how.dilation = take_below(in, 16) == 15 ? 255 : more % 3;
    c->how.groups = part == 3 ? (int)channel : part;
    const int dilation = c->how.dilation ? c->how.dilation : 1;
    if (dilation == 255)
        c->how.padding = 255;
    const int64_t down = (r - 1) * dilation + 1, across = (s - 1) * dilation + 1;
    h = h + 2 * c->how.padding < down ? down - 2 * c->how.padding : h;
    w = w + 2 * c->how.padding < across ? across - 2 * c->how.padding : w;
    if (n * filters * places(h, r, dilation, c->how.padding, c->how.stride) *
            places(w, s, dilation, c->how.padding, c->how.stride) >
        MOST_ELEMENTS)
        c->how.stride = 255;
    const int64_t p = places(h, r, dilation, c->how.padding, c->how.stride),
                  q = places(w, s, dilation, c->how.padding, c->how.stride);
    const struct want x = WANT(n, h, w, channel), y = WANT(n, p, q, filters),
                      f = WANT(filters, r, s, channel / (c->how.groups ? c->how.groups : 1));
    want[0] = c->kind == CONV_INPUT_GRAD ? x : c->kind == CONV_WEIGHT_GRAD ? f : y;
    want[1] = c->kind == CONV_INPUT_GRAD || c->kind == CONV_WEIGHT_GRAD ? y : x;
    want[2] = c->kind == CONV_WEIGHT_GRAD ? x : f;
    if (c->kind != CONV2D_FUSED)
        return 3;
    if (more & 8)
        want[3] = WANT(filters);
    if (more & 16)
        want[4] = y;
    return 5;
}

static inline int fitting_image(struct input *in, struct call *c, struct want want[OPERANDS]) {
    static const int channels[] = {1, 2, 3, 8, 16, 17, 33, 40};
    const int64_t n = 1 + take_below(in, 2), h = 1 + take_below(in, 7), w = 1 + take_below(in, 7),
                  channel = channels[take_below(in, 8)];
    const int stride = 1 + take_below(in, 3), window = 1 + take_below(in, (int)(h < w ? h : w)),
              padding = take_below(in, window), more = take_below(in, 8);
    const struct want x = WANT(n, h, w, channel);
    c->how = (struct square){.window = window, .stride = stride, .padding = padding};
    const int64_t p = places(h, window, 1, padding, stride), q = places(w, window, 1, padding, stride);
    switch (c->kind) {
    case MAXPOOL:
        want[0] = n * p * q * channel > MOST_ELEMENTS ? x : WANT(n, p, q, channel);
        want[1] = x;
        return 2;
    case MAXPOOL_GRAD:
        want[0] = want[2] = x;
        want[1] = n * p * q * channel > MOST_ELEMENTS ? x : WANT(n, p, q, channel);
        return 3;
    case AVGPOOL:
    case AVGPOOL_GRAD:
        want[c->kind == AVGPOOL_GRAD] = WANT(n, channel);
        want[c->kind == AVGPOOL] = x;
        return 2;
    default: /* SHORTCUT and its gradient */
        want[c->kind == SHORTCUT] = x;
        want[c->kind != SHORTCUT] =
            WANT(n, (h + stride - 1) / stride, (w + stride - 1) / stride, channel > 16 ? channel : channel + more);
        return 2;
    }
}

/* AROUND: a convolution, its input and weight gradient; the same of a transposed one; max pooling and its gradient.
 * Those from AROUND_LINES on are for sequences. */
enum { AROUND_TRANSPOSED = 3, AROUND_POOL = 6, AROUND_LINES = 8 };

/* An operand; sequences have no height. */
static inline struct want around_want(bool line, int64_t n, int64_t h, int64_t w, int64_t c) {
    return line ? WANT(n, w, c) : WANT(n, h, w, c);
}

static inline int fitting_around(struct input *in, struct call *c, struct want want[OPERANDS]) {
    static const int channels[] = {1, 2, 3, 4, 8, 16, 17, 18};
    const bool line = c->which >= AROUND_LINES;
    const int which = c->which % AROUND_LINES;
    tensor_window *how = &c->around;
    int64_t image[2], result[2], filter[2];
    how->groups = take_below(in, 3);
    for (int way = 0; way < 2; way++) {
        const bool trivial = line && way == 0;
        filter[way] = trivial ? 1 : 1 + take_below(in, 4);
        how->stride[way] = trivial ? 1 : 1 + take_below(in, 3);
        how->dilation[way] = trivial ? 1 : 1 + take_below(in, 3);
        const int64_t reach = (filter[way] - 1) * how->dilation[way] + 1;
        for (int side = 2 * way; side < 2 * way + 2; side++)
            how->padding[side] = trivial ? 0 : take_below(in, which >= AROUND_POOL ? (int)reach : 5);
        const int64_t size = trivial ? 1 : 1 + take_below(in, 7),
                      around = how->padding[2 * way] + how->padding[2 * way + 1];
        if (which >= AROUND_TRANSPOSED && which < AROUND_POOL) {
            how->output_padding[way] = take_below(in, how->stride[way]);
            result[way] = size;
            image[way] = (size - 1) * how->stride[way] + reach + how->output_padding[way] - around;
            image[way] = image[way] < 1 ? 1 : image[way];
        } else {
            image[way] = size + around < reach ? reach - around : size;
            result[way] = (image[way] + around - reach) / how->stride[way] + 1;
        }
    }
    int64_t n = 1 + take_below(in, 2), groups = how->groups ? how->groups : 1,
            depth = channels[take_below(in, 8)] / groups + 1,
            filters = which >= AROUND_POOL ? depth * groups : (channels[take_below(in, 8)] / groups + 1) * groups;
    if (n * image[0] * image[1] * depth * groups > MOST_ELEMENTS ||
        n * result[0] * result[1] * filters > MOST_ELEMENTS ||
        filters * filter[0] * filter[1] * depth > MOST_ELEMENTS) {
        n = groups = depth = filters = 1;
        how->groups = 0;
    }
    const struct want x = around_want(line, n, image[0], image[1], depth * groups),
                      y = around_want(line, n, result[0], result[1], filters),
                      f = line ? WANT(filters, filter[1], depth) : WANT(filters, filter[0], filter[1], depth);
    const uint8_t more = take_byte(in);
    for (int way = 0; which >= AROUND_POOL && way < 2; way++)
        how->window[way] = (int)filter[way];
    if (which >= AROUND_POOL) {
        how->groups = 0;
        want[0] = which == AROUND_POOL ? y : x;
        want[1] = which == AROUND_POOL ? x : y;
        want[2] = x;
        return which == AROUND_POOL ? 2 : 3;
    }
    const struct want outs[] = {y, x, f, x, y, f}, firsts[] = {x, y, y, y, x, x}, seconds[] = {f, f, x, f, f, y};
    want[0] = outs[which];
    want[1] = firsts[which];
    want[2] = seconds[which];
    if (which % AROUND_TRANSPOSED)
        return 3;
    if (more & 1)
        want[3] = WANT(want[0].dim[want[0].ndim - 1]);
    if (more & 2)
        want[4] = want[0];
    return 5;
}

/* Sets c->how and the shapes of all operands; returns their number. */
static inline int fitting_shapes(struct input *in, struct call *c, struct want want[OPERANDS]) {
    static const int widths[] = {1, 2, 3, 7, 8, 10, 16, 17, 31, 33, 64, 65}, rows[] = {1, 2, 3, 4, 5, 9, 16, 33};
    if (c->kind >= MATMUL && c->kind <= MATMUL_NT_FUSED)
        return fitting_matmul(in, c, want);
    if (c->kind >= CONV2D && c->kind <= CONV_WEIGHT_GRAD)
        return fitting_convolution(in, c, want);
    if (c->kind >= MAXPOOL && c->kind <= SHORTCUT_GRAD)
        return fitting_image(in, c, want);
    if (c->kind == AROUND)
        return fitting_around(in, c, want);
    const int64_t width = widths[take_below(in, 12)], row = rows[take_below(in, 8)];
    const struct want all = WANT(row, width), channels = WANT(width);
    for (int i = 0; i < OPERANDS; i++)
        want[i] = all;
    switch (c->kind) {
    case BIAS:
    case BIAS_RELU:
        want[2] = channels;
        return 3;
    case SUM_ROWS:
        want[0] = channels;
        return 2;
    case BATCHNORM:
    case BATCHNORM_ADD:
        want[2] = want[3] = channels;
        return c->kind == BATCHNORM ? 4 : 5;
    case BATCHNORM_GRAD:
        want[1] = want[2] = want[6] = channels;
        if (take_byte(in) & 1)
            want[5].ndim = 0;
        return 7;
    case SOFTMAX:
    case LOSS:
        if (take_byte(in) & 1)
            want[0].ndim = 0;
        return c->kind == LOSS ? 3 : 2;
    case MAP:
        return 1 + maps[c->map].inputs;
    case SGD_MOMENTUM:
        return 3;
    default:
        return 2;
    }
}

/* --- the call ----------------------------------------------------------------------------------------------------- */

static inline tensor_status perform_map(const struct call *c) {
    const struct map *m = &maps[c->map];
    tensor *const *t = c->t;
    return m->one           ? m->one(t[0], t[1])
           : m->one_scalar  ? m->one_scalar(t[0], t[1], c->alpha)
           : m->one_scalars ? m->one_scalars(t[0], t[1], c->alpha, c->beta)
           : m->two_scalars ? m->two_scalars(t[0], t[1], t[2], c->alpha, c->beta)
           : m->two         ? m->two(t[0], t[1], t[2])
           : m->two_scalar  ? m->two_scalar(t[0], t[1], t[2], c->alpha)
                            : m->three(t[0], t[1], t[2], t[3]);
}

/* Calls a loss with options, both chosen by bits of `whole`. */
static inline tensor_status perform_loss(const struct call *c, struct results *r) {
    tensor *const *t = c->t;
    const int64_t rows = tensor_dim(t[1], 0), classes = tensor_dim(t[1], 1);
    tensor *loss = tensor_new(FMT_F64, TENSOR_SHAPE(1)), *labels = tensor_new(FMT_I32, TENSOR_SHAPE(rows)),
           *weights = tensor_new(FMT_F64, TENSOR_SHAPE(classes > 0 ? classes : 1));
    tensor_loss_options how = {.ignores = c->whole & 8, .ignored_label = host_labels[0], .gradient_scale = c->real};
    const bool there = loss && labels && weights && !tensor_load_i32(labels, host_labels, rows) &&
                       !tensor_load_f64(weights, host_mean, tensor_count(weights));
    const int which = there ? c->whole & 7 : -1;
    tensor_status status = tensor_error_status();
    if (which <= 1) {
        how.label_smoothing = c->alpha;
        how.class_weights = c->whole & 16 ? weights : NULL;
    }
    if (which == 0 || which == 5)
        status = tensor_cross_entropy(loss, t[0], NULL, NULL, t[1], labels, &how);
    else if (which == 1 || which == 6)
        status = tensor_cross_entropy_targets(loss, t[0], NULL, t[1], t[2], &how);
    else if (which == 2)
        status = tensor_squared_error(loss, t[0], t[1], t[2], &how);
    else if (which == 3 || which == 7)
        status = tensor_huber(loss, t[0], t[1], t[2], c->beta, &how);
    else if (which == 4)
        status = tensor_wasserstein(loss, t[0], t[1], labels, &how);
    if (!status)
        status = tensor_store_f64(loss, &r->number, 1);
    tensor_free(loss);
    tensor_free(labels);
    tensor_free(weights);
    return status;
}

static inline tensor_status perform_around(const struct call *c, tensor_epilogue with) {
    tensor *const *t = c->t;
    const tensor_window how = c->around;
    const tensor_window line = {.window = {0, how.window[1]},
                                .stride = {0, how.stride[1]},
                                .padding = {0, 0, how.padding[2], how.padding[3]},
                                .dilation = {0, how.dilation[1]},
                                .groups = how.groups,
                                .output_padding = {0, how.output_padding[1]}};
    switch (c->which) {
    case 0:
        return tensor_conv2d_fused(t[0], t[1], t[2], &how, &with);
    case 1:
        return tensor_conv2d_input_grad(t[0], t[1], t[2], &how);
    case 2:
        return tensor_conv2d_weight_grad(t[0], t[1], t[2], &how);
    case AROUND_TRANSPOSED:
        return tensor_conv_transpose2d_fused(t[0], t[1], t[2], &how, &with);
    case AROUND_TRANSPOSED + 1:
        return tensor_conv_transpose2d_input_grad(t[0], t[1], t[2], &how);
    case AROUND_TRANSPOSED + 2:
        return tensor_conv_transpose2d_weight_grad(t[0], t[1], t[2], &how);
    case AROUND_POOL:
        return tensor_maxpool2d(t[0], t[1], &how);
    case AROUND_POOL + 1:
        return tensor_maxpool2d_grad(t[0], t[1], t[2], &how);
    case AROUND_LINES:
        return tensor_conv1d_fused(t[0], t[1], t[2], &line, &with);
    case AROUND_LINES + 1:
        return tensor_conv1d_input_grad(t[0], t[1], t[2], &line);
    case AROUND_LINES + 2:
        return tensor_conv1d_weight_grad(t[0], t[1], t[2], &line);
    case AROUND_LINES + AROUND_TRANSPOSED:
        return tensor_conv_transpose1d_fused(t[0], t[1], t[2], &line, &with);
    case AROUND_LINES + AROUND_TRANSPOSED + 1:
        return tensor_conv_transpose1d_input_grad(t[0], t[1], t[2], &line);
    case AROUND_LINES + AROUND_TRANSPOSED + 2:
        return tensor_conv_transpose1d_weight_grad(t[0], t[1], t[2], &line);
    case AROUND_LINES + AROUND_POOL:
        return tensor_maxpool1d(t[0], t[1], &line);
    default:
        return tensor_maxpool1d_grad(t[0], t[1], t[2], &line);
    }
}

static inline tensor_status perform(const struct call *c, struct results *r) {
    tensor *const *t = c->t;
    const tensor_epilogue with = {t[3], t[4], c->relu};
    switch (c->kind) {
    case MAP:
        return perform_map(c);
    case BIAS:
        return tensor_bias(t[0], t[1], t[2]);
    case BIAS_RELU:
        return tensor_bias_relu(t[0], t[1], t[2]);
    case MATMUL:
        return tensor_matmul(t[0], t[1], t[2]);
    case MATMUL_NT:
        return tensor_matmul_nt(t[0], t[1], t[2]);
    case MATMUL_TN:
        return tensor_matmul_tn(t[0], t[1], t[2]);
    case MATMUL_FUSED:
        return tensor_matmul_fused(t[0], t[1], t[2], &with);
    case MATMUL_NT_FUSED:
        return tensor_matmul_nt_fused(t[0], t[1], t[2], &with);
    case CONV2D:
        return tensor_conv2d(t[0], t[1], t[2], STEPS(c->how));
    case CONV2D_FUSED:
        return tensor_conv2d_fused(t[0], t[1], t[2], STEPS(c->how), &with);
    case CONV_INPUT_GRAD:
        return tensor_conv2d_input_grad(t[0], t[1], t[2], STEPS(c->how));
    case CONV_WEIGHT_GRAD:
        return tensor_conv2d_weight_grad(t[0], t[1], t[2], STEPS(c->how));
    case MAXPOOL:
        return tensor_maxpool2d(t[0], t[1], SQUARE(c->how));
    case MAXPOOL_GRAD:
        return tensor_maxpool2d_grad(t[0], t[1], t[2], SQUARE(c->how));
    case AVGPOOL:
        return tensor_avgpool_global(t[0], t[1]);
    case AVGPOOL_GRAD:
        return tensor_avgpool_global_grad(t[0], t[1]);
    case SHORTCUT:
        return tensor_shortcut_a(t[0], t[1], c->whole);
    case SHORTCUT_GRAD:
        return tensor_shortcut_a_grad(t[0], t[1], c->whole);
    case SUM_ROWS:
        return tensor_sum_rows(t[0], t[1]);
    case SUM:
        return tensor_sum(&r->number, t[0]);
    case MAX_ABS:
        return tensor_max_abs(&r->number, t[0]);
    case MOMENTS:
        return host_moments(r->doubles[0], r->doubles[1], t[0]);
    case BATCHNORM:
        return host_batchnorm(t[0], t[1], NULL, t[2], t[3], host_mean, host_variance, c->real, c->relu);
    case BATCHNORM_ADD:
        return host_batchnorm(t[0], t[1], t[4], t[2], t[3], host_mean, host_variance, c->real, c->relu);
    case BATCHNORM_GRAD:
        return host_batchnorm_grad(t[0], t[1], t[2], t[3], t[4], t[5], t[6], host_mean, host_variance, c->real);
    case SOFTMAX:
        return host_cross_entropy(&r->number, t[0], r->wholes, t[1], host_labels, c->real);
    case SGD_MOMENTUM:
        return tensor_sgd_momentum(t[0], t[1], t[2], c->alpha, c->beta);
    case SGD_UPDATE:
        return tensor_sgd_update(t[0], t[1], c->alpha);
    case LOAD_F32:
        return tensor_load_f32(t[0], host_floats, c->count);
    case LOAD_F64:
        return tensor_load_f64(t[0], host_doubles, c->count);
    case STORE_F32:
        return tensor_store_f32(t[0], r->floats, c->count);
    case STORE_F64:
        return tensor_store_f64(t[0], r->doubles[0], c->count);
    case STORE_WIDE:
        return tensor_store_wide_f64(t[0], r->doubles[0], c->count);
    case CONVERT:
        return tensor_convert(t[0], t[1]);
    case CONVERT_AT:
        return tensor_convert_at(t[0], t[1], c->whole);
    case COPY:
        return tensor_copy(t[0], t[1]);
    case SET_EXPONENT:
        return tensor_set_exponent(t[0], c->whole);
    case DECLARE_EXPONENT:
        return tensor_declare_exponent(t[0], c->whole);
    case SET_PREDICTOR:
        return tensor_set_predictor(t[0], c->name);
    case SET_ROUNDING:
        return tensor_set_rounding(t[0], (tensor_rounding)c->whole, (uint64_t)c->count);
    case KEEP_WIDE:
        return tensor_keep_wide(t[0]);
    case LOSS:
        return perform_loss(c, r);
    case CLIP_WEIGHT:
        return tensor_clip_weight(t[0], c->alpha);
    case AROUND:
        return perform_around(c, with);
    case RESET_STATISTICS:
        tensor_reset_statistics(t[0]);
        return TENSOR_OK;
    case KINDS:
        break;
    }
    abort();
}

#endif
