/* axes_rules.h - sums, means, norms and extremes over dimensions, their gradients, and what broadcast operations make
 * of two elements. The text that a processor and a device run alike.
 *
 * Of an output the terms come in row-major order of the dimensions summed over, in chunks of FL_ROWS_CHUNK. Integer
 * formats: exact sums of mantissas. Float formats: a chain of binary32 a chunk (of squares a chain of doubles), chunks
 * added in order in double. */
#ifndef FL_AXES_RULES_H
#define FL_AXES_RULES_H

#include "core/arithmetic/exact_rules.h"
#include "core/table/kernel.h"

/* --- walks -------------------------------------------------------------------------------------------------------- */

/* Elements of up to three operands in the order of an output, and of what each of its elements is a sum of: the last
 * `inner` dimensions, whose elements follow each other in row-major order. A stride of 0: one element for all. */
struct fl_walk {
    int32_t ndim, inner;
    int64_t outer, terms; /* elements of the output; elements of each of its sums */
    int64_t shape[TENSOR_MAX_DIMS], stride[3][TENSOR_MAX_DIMS], offset[3];
};

/* Adds dimension d of the shape behind what the walk has, or makes it part of the last one where all operands lie in
 * line and both are of one kind (`first`: the least dimension of that kind). */
FL_BOTH void fl_walk_add(struct fl_walk *w, const struct fl_axes *x, int d, int first) {
    if (x->shape[d] == 1)
        return;
    bool in_line = w->ndim > first;
    for (int k = 0; k < 3 && in_line; k++)
        in_line = w->stride[k][w->ndim - 1] == x->stride[k][d] * x->shape[d];
    const int to = in_line ? w->ndim - 1 : w->ndim++;
    w->shape[to] = in_line ? w->shape[to] * x->shape[d] : x->shape[d];
    for (int k = 0; k < 3; k++)
        w->stride[k][to] = x->stride[k][d];
}

/* Dimensions of one element are left out, neighbours that lie in one line are made one. */
FL_BOTH struct fl_walk fl_walk_of(const struct fl_axes *x) {
    struct fl_walk w = {0, 0, 1, 1, {0}, {{0}}, {x->offset[0], x->offset[1], x->offset[2]}};
    for (int d = 0; d < x->ndim; d++)
        if (!(x->inner >> d & 1)) {
            w.outer *= x->shape[d];
            fl_walk_add(&w, x, d, 0);
        }
    const int kept = w.ndim;
    for (int d = 0; d < x->ndim; d++)
        if (x->inner >> d & 1) {
            w.terms *= x->shape[d];
            fl_walk_add(&w, x, d, kept);
        }
    w.inner = w.ndim - kept;
    return w;
}

/* The operand whose groups an operation folds: gradients of extremes and norms ask x first. */
FL_BOTH int fl_axes_folded(enum fl_op op) {
    return op == FL_OP_REDUCE_MAX_GRAD || op == FL_OP_REDUCE_MIN_GRAD || op == FL_OP_REDUCE_L2_GRAD;
}

/* Over each sum of an operation that folds. */
FL_BOTH struct fl_walk fl_walk_of_groups(const struct fl_args *args) {
    struct fl_axes x = args->p.axes;
    if (!fl_axes_folded(args->op))
        return fl_walk_of(&x);
    for (int d = 0; d < x.ndim; d++) {
        x.stride[0][d] = x.stride[1][d];
        x.stride[1][d] = x.stride[2][d] = 0;
    }
    x.offset[0] = x.offset[1];
    x.offset[1] = x.offset[2] = 0;
    return fl_walk_of(&x);
}

/* Over the elements of what is written. */
FL_BOTH struct fl_walk fl_walk_of_elements(const struct fl_args *args) {
    struct fl_axes x = args->p.axes;
    x.inner = 0;
    return fl_walk_of(&x);
}

/* The number that an element needs beside its operands: where_grad: which mark counts, gradients: the terms of its
 * group. */
FL_BOTH int64_t fl_axes_parameter(const struct fl_args *args) {
    const struct fl_axes *x = &args->p.axes;
    int64_t terms = 1;
    for (int d = 0; d < x->ndim; d++)
        terms *= x->inner >> d & 1 ? x->shape[d] : 1;
    return args->op == FL_OP_WHERE_GRAD ? x->marked : terms;
}

/* The position of element i of the walk in an operand; elements of one sum are consecutive. */
FL_BOTH int64_t fl_walk_at(const struct fl_walk *w, int operand, int64_t i) {
    int64_t at = w->offset[operand];
    for (int d = w->ndim - 1; d >= 0; d--) {
        at += i % w->shape[d] * w->stride[operand][d];
        i /= w->shape[d];
    }
    return at;
}

/* --- sums --------------------------------------------------------------------------------------------------------- */

/* The quantity that is folded from each term. */
enum fl_fold_kind { FL_FOLD_SUM, FL_FOLD_SIZES, FL_FOLD_SQUARES, FL_FOLD_PRODUCTS, FL_FOLD_LARGEST, FL_FOLD_LEAST };

FL_BOTH enum fl_fold_kind fl_fold_kind_of(enum fl_op op) {
    switch ((int)op) {
    case FL_OP_REDUCE_L1:
        return FL_FOLD_SIZES;
    case FL_OP_REDUCE_L2:
    case FL_OP_REDUCE_L2_GRAD:
        return FL_FOLD_SQUARES;
    case FL_OP_BROADCAST_MUL_GRAD:
        return FL_FOLD_PRODUCTS;
    case FL_OP_REDUCE_MAX:
    case FL_OP_REDUCE_MAX_GRAD:
    case FL_OP_ARGMAX:
        return FL_FOLD_LARGEST;
    case FL_OP_REDUCE_MIN:
    case FL_OP_REDUCE_MIN_GRAD:
        return FL_FOLD_LEAST;
    default:
        return FL_FOLD_SUM;
    }
}

FL_BOTH bool fl_fold_picks(enum fl_fold_kind kind) {
    return kind == FL_FOLD_LARGEST || kind == FL_FOLD_LEAST;
}

/* Whether x replaces the best term so far: of equal terms the first remains. A NaN counts as larger (less)
 * than anything. */
FL_BOTH bool fl_fold_better(enum fl_fold_kind kind, double x, double best) {
    return (kind == FL_FOLD_LARGEST ? x > best : x < best) || (x != x && best == best);
}

/* A term of an exact sum; x, z: mantissas. */
FL_BOTH int64_t fl_fold_exact_term(enum fl_fold_kind kind, int64_t x, int64_t z) {
    switch (kind) {
    case FL_FOLD_SIZES:
        return x < 0 ? -x : x;
    case FL_FOLD_SQUARES:
        return x * x;
    case FL_FOLD_PRODUCTS:
        return x * z;
    default:
        return x;
    }
}

/* The exponent of such a sum. */
FL_BOTH int fl_fold_exponent(enum fl_fold_kind kind, int e, int ez) {
    return kind == FL_FOLD_SQUARES ? 2 * e : kind == FL_FOLD_PRODUCTS ? e + ez : e;
}

/* The next value of a chain of float formats. */
FL_BOTH double fl_fold_chain(enum fl_fold_kind kind, double chain, double x, double z) {
    switch (kind) {
    case FL_FOLD_SIZES:
        return (double)((float)chain + (float)(x < 0 ? -x : x));
    case FL_FOLD_SQUARES:
        return chain + x * x;
    case FL_FOLD_PRODUCTS:
        return (double)fmaf((float)x, (float)z, (float)chain);
    default:
        return (double)((float)chain + (float)x);
    }
}

/* sum / count at exponent e, |sum| < 2^62 and 0 < count < 2^41: at least 65 bits, the last one set where something
 * follows. Divisions of 64 bits alone. */
FL_BOTH struct fl_wide_sum fl_quotient(int64_t sum, int64_t count, int e) {
    struct fl_wide_sum q = {0, 0};
    if (!sum)
        return q;
    const uint64_t size = sum < 0 ? -(uint64_t)sum : (uint64_t)sum, divisor = (uint64_t)count;
    const int up = __builtin_clzll(size) - 1;
    const uint64_t high = size << up;
    uint64_t rest = high % divisor;
    q.m = (fl_int128)(high / divisor);
    for (int i = 0; i < 2; i++) {
        rest <<= 22;
        q.m = q.m * ((fl_int128)1 << 22) + (fl_int128)(rest / divisor);
        rest %= divisor;
    }
    q.m = 2 * q.m + (rest != 0);
    q.m = sum < 0 ? -q.m : q.m;
    q.e = e + up + 45;
    return q;
}

/* The square root of s at exponent 2 e, s < 2^126: 64 bits, the last one set where something follows. */
FL_BOTH struct fl_wide_sum fl_root(fl_uint128 s, int e) {
    struct fl_wide_sum result = {0, 0};
    if (!s)
        return result;
    const int up = (126 - fl_bits_of_128(s)) / 2;
    fl_uint128 rest = s << (2 * up), root = 0; /* digit by digit: root^2 + what is left of rest is s 4^up */
    for (fl_uint128 bit = (fl_uint128)1 << 124; bit; bit >>= 2) {
        if (rest >= root + bit) {
            rest -= root + bit;
            root = (root >> 1) + bit;
        } else {
            root >>= 1;
        }
    }
    result.m = (fl_int128)(2 * root + (rest != 0));
    result.e = e + up + 1;
    return result;
}

/* The value of an output: exact or rounded to odd, and the same rounded to nearest. */
struct fl_axes_value {
    double odd, near;
};

FL_BOTH struct fl_axes_value fl_axes_plain(double x) {
    const struct fl_axes_value value = {x, x};
    return value;
}

FL_BOTH struct fl_axes_value fl_axes_wide(struct fl_wide_sum sum) {
    const struct fl_axes_value value = {fl_terms_odd(sum), fl_terms_abs(sum)};
    return value;
}

/* The value of an output from the sum of its terms, at the exponent of fl_fold_exponent. */
FL_BOTH struct fl_axes_value fl_axes_exact(enum fl_op op, fl_int128 sum, int e, int ez, int64_t count) {
    if (op == FL_OP_REDUCE_MEAN)
        return fl_axes_wide(fl_quotient((int64_t)sum, count, e));
    if (op == FL_OP_REDUCE_L2)
        return fl_axes_wide(fl_root((fl_uint128)sum, e));
    const struct fl_wide_sum all = {sum, fl_fold_exponent(fl_fold_kind_of(op), e, ez)};
    return fl_axes_wide(all);
}

FL_BOTH double fl_axes_float(enum fl_op op, double total, int64_t count) {
    return op == FL_OP_REDUCE_MEAN ? total / (double)count : op == FL_OP_REDUCE_L2 ? sqrt(total) : total;
}

/* The norm that an element of reduce_l2_grad is divided by: in integer formats that of the mantissas. */
FL_BOTH double fl_axes_norm(fl_int128 exact, double total, bool shared) {
    return sqrt(shared ? fl_double_of_128(exact) : total);
}

/* dy x / norm, in double. */
FL_BOTH double fl_axes_l2_slope(double dy, double x, double norm) {
    return norm == 0 ? 0 : dy * x / norm;
}

/* dy times the sign of x. */
FL_BOTH double fl_axes_l1_slope(double dy, double x) {
    return x > 0 ? dy : x < 0 ? -dy : x == 0 ? 0 : x;
}

/* Element i of an operation over two elements that a walk brings together. mark: of where; e: the exponent of a;
 * count: k of the geometry. */
FL_BOTH struct fl_axes_value fl_axes_element(enum fl_op op, double a, double b, bool mark, int64_t count, int e,
                                             bool shared) {
    struct fl_axes_value value = {a, a};
    switch ((int)op) {
    case FL_OP_BROADCAST_ADD:
        value.odd = fl_sum_odd(a, b);
        value.near = a + b;
        return value;
    case FL_OP_BROADCAST_MUL:
        return fl_axes_plain(a * b);
    case FL_OP_REDUCE_MEAN_GRAD:
        return shared ? fl_axes_wide(fl_quotient((int64_t)fl_scale2(a, e), count, e))
                      : fl_axes_plain(a / (double)count);
    case FL_OP_REDUCE_L1_GRAD:
        return fl_axes_plain(fl_axes_l1_slope(a, b));
    case FL_OP_WHERE:
        return mark ? value : fl_axes_plain(b);
    case FL_OP_WHERE_GRAD:
        return mark == (count != 0) ? value : fl_axes_plain(0);
    default: /* reduce_sum_grad */
        return value;
    }
}

#endif
