/* float_map.h - elementwise operations: the binary32 operation of each entry of ops.def.
 *
 * With stochastic rounding, results are the exact ones of ops.def instead, in double.
 *
 * Expects: a codec (float_block.h).
 * Gives: map_elements, store_map_run. */
#ifndef FL_FLOAT_MAP_H
#define FL_FLOAT_MAP_H

#include "core/arithmetic/exact.h"
#include "float/float_parts.h"
#include "float/float_store.h"
#include <math.h>

typedef void (*map_block)(int64_t n, const float *a, const float *b, const float *c, float alpha, float *y);

/* x is the one operand of a map of one; y may be a or b. */
#define MAP(name, expr)                                                                                                \
    static void name##_block(int64_t n, const float *pa, const float *pb, const float *pc, float alpha, float *y) {    \
        (void)alpha;                                                                                                   \
        FL_INDEPENDENT                                                                                                 \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const float a = pa[i], b = pb[i], c = pc[i], x = a;                                                        \
            (void)b, (void)c, (void)x;                                                                                 \
            y[i] = (expr);                                                                                             \
        }                                                                                                              \
    }
MAP(add, a + b)
MAP(sub, a - b)
MAP(mul, a *b)
MAP(scale, alpha *x)
MAP(add_scaled, fmaf(alpha, b, a))
MAP(relu, relu(x))
MAP(relu_grad, b > 0 ? a : 0.0f)
MAP(add_relu, relu(a + b))
MAP(neg, -x)
MAP(abs, x < 0 ? -x : x == 0 ? 0.0f : x)
MAP(square, x *x)
MAP(add_relu_grad, c > 0 ? a + b : 0.0f)
MAP(clip, x > alpha ? alpha : x < -alpha ? -alpha : x)
#undef MAP

static const map_block map_blocks[FL_OP_LIMIT] = {
    [FL_OP_ADD] = add_block,
    [FL_OP_SUB] = sub_block,
    [FL_OP_MUL] = mul_block,
    [FL_OP_SCALE] = scale_block,
    [FL_OP_ADD_SCALED] = add_scaled_block,
    [FL_OP_RELU] = relu_block,
    [FL_OP_RELU_GRAD] = relu_grad_block,
    [FL_OP_ADD_RELU] = add_relu_block,
    [FL_OP_NEG] = neg_block,
    [FL_OP_ABS] = abs_block,
    [FL_OP_SQUARE] = square_block,
    [FL_OP_ADD_RELU_GRAD] = add_relu_grad_block,
    [FL_OP_CLIP] = clip_block,
};

static void map_range(const struct fl_args *args, const void *context, int64_t first, int64_t end,
                      struct fl_stats *stats) {
    (void)context;
    const map_block block = map_blocks[args->op];
    const fl_element *a = args->in[0].data, *b = args->in[1].data, *c = args->in[2].data;
    float buffer_a[FLOAT_BLOCK], buffer_b[FLOAT_BLOCK], buffer_c[FLOAT_BLOCK], buffer_y[FLOAT_BLOCK];
    for (int64_t i = first; i < end; i += FLOAT_BLOCK) {
        const int64_t n = float_min(FLOAT_BLOCK, end - i);
        fl_element *out = element_at(args->out.data, i);
        const float *fa = floats_of(a + i, n, buffer_a), *fb = b ? floats_of(b + i, n, buffer_b) : fa;
        const float *fc = c ? floats_of(c + i, n, buffer_c) : fa;
        float *y = room_for(out, buffer_y);
        block(n, fa, fb, fc, args->p.map.alpha, y);
        store_elements(args, i, n, y, stats);
    }
}

/* --- rounded stochastically --------------------------------------------------------------------------------------- */

#ifdef FL_DIGITS
#define MAP_NAME(name) exact_##name
#define FL_SUM(p, q) fl_sum_odd(p, q)
#include "core/table/no_real_rows.inc"
#include "core/reference/ref_map_expr.inc"

typedef void (*exact_block)(int64_t n, const float *a, const float *b, const float *c, double alpha, double *v);

/* Defines the function of an operation that computes a block of results. */
#define LOOP(name)                                                                                                     \
    static void exact_block_##name(int64_t n, const float *a, const float *b, const float *c, double alpha,            \
                                   double *restrict v) {                                                               \
        for (int64_t i = 0; i < n; i++)                                                                                \
            v[i] = exact_##name(a[i], b[i], c[i], alpha);                                                              \
    }
#define FL_MAP1(id, CONSTANT, name, expr) LOOP(name)
#define FL_MAP1_SCALAR(id, CONSTANT, name, expr) LOOP(name)
#define FL_MAP2(id, CONSTANT, name, expr) LOOP(name)
#define FL_MAP2_SCALAR(id, CONSTANT, name, expr) LOOP(name)
#define FL_MAP3(id, CONSTANT, name, expr) LOOP(name)
#include "core/table/no_real_rows.inc"
#include "flexlab/ops.def"
#undef LOOP

static const exact_block exact_blocks[FL_OP_LIMIT] = {
#define FL_MAP1(id, CONSTANT, name, expr) [id] = exact_block_##name,
#define FL_MAP1_SCALAR(id, CONSTANT, name, expr) [id] = exact_block_##name,
#define FL_MAP2(id, CONSTANT, name, expr) [id] = exact_block_##name,
#define FL_MAP2_SCALAR(id, CONSTANT, name, expr) [id] = exact_block_##name,
#define FL_MAP3(id, CONSTANT, name, expr) [id] = exact_block_##name,
#include "core/table/no_real_rows.inc"
#include "flexlab/ops.def"
};

/* Computes the most common results as a binary32 and its error, which is a binary32 too: for a sum (Knuth's two-sum)
 * always, for a product if it is not too small. An unknown error is NaN. */
typedef void (*pair_block)(int64_t n, const float *a, const float *b, float alpha, float *x, float *error);

static inline float sum_error(float a, float b, float sum) {
    const float part = sum - a;
    return (a - (sum - part)) + (b - part);
}

#ifdef __FMA__
static inline float product_error(float a, float b, float product) {
    const bool known = __builtin_fabsf(product) > 0x1p-90f || a == 0 || b == 0; /* errors are 2^-24 of it, or less */
    return known ? fmaf(a, b, -product) : NAN;
}
#endif

#define PAIR(name, result, its_error)                                                                                  \
    static void pair_block_##name(int64_t n, const float *pa, const float *pb, float alpha, float *restrict px,        \
                                  float *restrict error) {                                                             \
        (void)alpha;                                                                                                   \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            const float a = pa[i], b = pb[i], x = (result);                                                            \
            (void)b;                                                                                                   \
            px[i] = x;                                                                                                 \
            error[i] = (its_error);                                                                                    \
        }                                                                                                              \
    }
PAIR(add, a + b, sum_error(a, b, x))
PAIR(sub, a - b, sum_error(a, -b, x))
PAIR(add_relu, relu(a + b), a + b <= 0 ? 0.0f : sum_error(a, b, x))
#ifdef __FMA__
PAIR(mul, a *b, product_error(a, b, x))
PAIR(square, a *a, product_error(a, a, x))
PAIR(scale, alpha *a, product_error(alpha, a, x))
#endif
#undef PAIR

static const pair_block pair_blocks[FL_OP_LIMIT] = {
    [FL_OP_ADD] = pair_block_add, [FL_OP_SUB] = pair_block_sub,       [FL_OP_ADD_RELU] = pair_block_add_relu,
#ifdef __FMA__
    [FL_OP_MUL] = pair_block_mul, [FL_OP_SQUARE] = pair_block_square, [FL_OP_SCALE] = pair_block_scale,
#endif
};

/* Stores a run by pairs of floats if the operation has them and they suffice, otherwise in double; op: a map. */
static void store_map_run(const struct fl_args *args, enum fl_op op, int64_t first, int64_t n, const float *a,
                          const float *b, const float *c, struct fl_stats *stats) {
    float x[DRAWN_RUN], error[DRAWN_RUN];
    double v[DRAWN_RUN];
    if (pair_blocks[op]) {
        pair_blocks[op](n, a, b, args->p.map.alpha, x, error);
        if (draw_pairs(args, first, n, x, error, stats))
            return;
    }
    exact_blocks[op](n, a, b, c, args->p.map.alpha, v);
    store_doubles(args, first, n, v, stats);
}

/* Whether the results of an operation are already numbers of the format. */
static bool gives_elements(enum fl_op op) {
    return op == FL_OP_RELU || op == FL_OP_RELU_GRAD || op == FL_OP_NEG || op == FL_OP_ABS;
}

static void drawn_map_range(const struct fl_args *args, const void *context, int64_t first, int64_t end,
                            struct fl_stats *stats) {
    (void)context;
    const fl_element *a = args->in[0].data, *b = args->in[1].data, *c = args->in[2].data;
    float fa[DRAWN_RUN], fb[DRAWN_RUN], fc[DRAWN_RUN];
    for (int64_t i = first; i < end; i += DRAWN_RUN) {
        const int64_t n = float_min(DRAWN_RUN, end - i);
        load_block(a + i, n, fa);
        if (b)
            load_block(b + i, n, fb);
        if (c)
            load_block(c + i, n, fc);
        store_map_run(args, args->op, i, n, fa, b ? fb : fa, c ? fc : fa, stats);
    }
}
#endif

static tensor_status map_elements(const struct fl_args *args) {
#ifdef FL_DIGITS
    if (is_drawn(args) && !gives_elements(args->op))
        return run_parts(args, args->out.count, 1, drawn_map_range, NULL);
#endif
    return run_parts(args, args->out.count, 1, map_range, NULL);
}

#endif
