/* sampled_rules.h - elements of a matmul or convolution computed again without rounding. Products of two elements are
 * exact in binary64, and so are their sums as pairs of doubles: of mantissas, whose products lie on one grid and whose
 * sums are below 2^61 units of it, to the last bit; of floats to 2^-100 of the largest sum on the way. C and CUDA.
 *
 * Expects: fl_sampled_decoded. */
#ifndef FL_SAMPLED_RULES_H
#define FL_SAMPLED_RULES_H

#include "autoflex/autoflex_rules.h"
#include "core/arithmetic/philox.h"
#include "core/table/kernel.h"
#include "core/tensor/described.h"

/* A sum. */
struct fl_sampled_pair {
    double high, low;
    int64_t whole; /* sums of mantissas, below 2^61, begin here */
};

/* An operand; 16-bit elements with a shared exponent count as mantissas. */
enum fl_sampled_kind { FL_SAMPLED_MANTISSA, FL_SAMPLED_BINARY32, FL_SAMPLED_DECODED };
struct fl_sampled_operand {
    enum fl_sampled_kind kind;
    struct fl_view view;
    const void *format; /* of fl_sampled_decoded */
};
/* Operands, bias, residual and the result of a product. */
enum { FL_SAMPLED_IN, FL_SAMPLED_BIAS = 2, FL_SAMPLED_RESIDUAL, FL_SAMPLED_OUT, FL_SAMPLED_OPERANDS };

/* An element of another kind. */
FL_EITHER double fl_sampled_decoded(const struct fl_sampled_operand *x, int64_t i);

FL_BOTH void fl_sampled_add(struct fl_sampled_pair *sum, double x) {
    const double s = sum->high + x, part = s - sum->high; /* Knuth's two-sum: exact */
    sum->low += (sum->high - (s - part)) + (x - part);
    sum->high = s;
}

/* A number, of mantissas in units of the exponent. */
FL_BOTH double fl_sampled_element(const struct fl_sampled_operand *x, int64_t i) {
    return x->kind == FL_SAMPLED_MANTISSA   ? (double)((const int16_t *)x->view.data)[i]
           : x->kind == FL_SAMPLED_BINARY32 ? (double)((const float *)x->view.data)[i]
                                            : fl_sampled_decoded(x, i);
}

FL_BOTH int fl_sampled_exponent(const struct fl_sampled_operand *x) {
    return x->kind == FL_SAMPLED_MANTISSA ? *x->view.e : 0;
}

FL_BOTH double fl_sampled_value(const struct fl_sampled_operand *x, int64_t i) {
    return fl_scale2(fl_sampled_element(x, i), -fl_sampled_exponent(x));
}

/* Adds n products of elements: those at i, i + i_step, ... of in[0] times those at j, j + j_step, ... of in[1]. */
FL_BOTH void fl_sampled_add_products(struct fl_sampled_pair *sum, const struct fl_sampled_operand *in, int64_t i,
                                     int64_t i_step, int64_t j, int64_t j_step, int64_t n) {
    if (in[0].kind == FL_SAMPLED_MANTISSA && in[1].kind == FL_SAMPLED_MANTISSA) {
        const int16_t *p = (const int16_t *)in[0].view.data + i, *q = (const int16_t *)in[1].view.data + j;
        int64_t whole = 0;
        for (int64_t l = 0; l < n; l++)
            whole += (int32_t)p[l * i_step] * q[l * j_step];
        sum->whole += whole;
        return;
    }
    if (in[0].kind == FL_SAMPLED_BINARY32 && in[1].kind == FL_SAMPLED_BINARY32) {
        const float *p = (const float *)in[0].view.data + i, *q = (const float *)in[1].view.data + j;
        for (int64_t l = 0; l < n; l++)
            fl_sampled_add(sum, (double)p[l * i_step] * q[l * j_step]);
        return;
    }
    for (int64_t l = 0; l < n; l++)
        fl_sampled_add(sum, fl_sampled_element(&in[0], i + l * i_step) * fl_sampled_element(&in[1], j + l * j_step));
}

/* --- products of one element -------------------------------------------------------------------------------------- */

FL_BOTH void fl_sampled_matmul(const struct fl_args *args, const struct fl_sampled_operand *in, int64_t i,
                               struct fl_sampled_pair *sum) {
    const struct fl_matrices *g = &args->p.product.matrices;
    const int64_t m = g->m, n = g->n, k = g->k, matrix = i / n / m, row = i / n % m, j = i % n;
    const bool tn = args->op == FL_OP_MATMUL_TN || args->op == FL_OP_MATMUL_BATCHED_TN,
               nt = args->op == FL_OP_MATMUL_NT || args->op == FL_OP_MATMUL_BATCHED_NT;
    fl_sampled_add_products(sum, in, matrix * m * k + (tn ? row : row * k), tn ? m : 1,
                            matrix * k * n + (nt ? j * k : j), nt ? 1 : n, k);
}

/* The index of element (n, y, x, k) of images [h, w, c]; -1 outside the image. */
FL_BOTH int64_t fl_sampled_place(int64_t h, int64_t w, int64_t c, int64_t n, int64_t y, int64_t x, int64_t k) {
    return y < 0 || y >= h || x < 0 || x >= w ? -1 : ((n * h + y) * w + x) * c + k;
}

/* The input pixel that output (p, q) sees through filter position (r, s). */
FL_BOTH int64_t fl_sampled_input(const struct fl_windows *g, int64_t n, int64_t p, int64_t q, int64_t r, int64_t s,
                                 int64_t c) {
    return fl_sampled_place(g->h, g->w, g->c, n, p * g->stride[0] + r * g->dilation[0] - g->padding[0],
                            q * g->stride[1] + s * g->dilation[1] - g->padding[1], c);
}

/* in: x, w */
FL_BOTH void fl_sampled_forward(const struct fl_args *args, const struct fl_sampled_operand *in, int64_t i,
                                struct fl_sampled_pair *sum) {
    const struct fl_windows *g = &args->p.product.windows;
    const int64_t depth = g->c / g->groups, per_group = g->filters / g->groups, f = i % g->filters;
    const int64_t q = i / g->filters % g->q, p = i / g->filters / g->q % g->p, n = i / g->filters / g->q / g->p;
    for (int64_t r = 0; r < g->r; r++)
        for (int64_t s = 0; s < g->s; s++) {
            const int64_t from = fl_sampled_input(g, n, p, q, r, s, f / per_group * depth);
            if (from >= 0)
                fl_sampled_add_products(sum, in, from, 1, ((f * g->r + r) * g->s + s) * depth, 1, depth);
        }
}

/* in: dy, w */
FL_BOTH void fl_sampled_input_gradient(const struct fl_args *args, const struct fl_sampled_operand *in, int64_t i,
                                       struct fl_sampled_pair *sum) {
    const struct fl_windows *g = &args->p.product.windows;
    const int64_t depth = g->c / g->groups, per_group = g->filters / g->groups, c = i % g->c;
    const int64_t x = i / g->c % g->w, y = i / g->c / g->w % g->h, n = i / g->c / g->w / g->h;
    for (int64_t r = 0; r < g->r; r++)
        for (int64_t s = 0; s < g->s; s++) {
            const int64_t down = y + g->padding[0] - r * g->dilation[0],
                          across = x + g->padding[1] - s * g->dilation[1];
            if (down < 0 || across < 0 || down % g->stride[0] || across % g->stride[1])
                continue;
            const int64_t first = c / depth * per_group,
                          from = fl_sampled_place(g->p, g->q, g->filters, n, down / g->stride[0], across / g->stride[1],
                                                  first);
            if (from >= 0)
                fl_sampled_add_products(sum, in, from, 1, ((first * g->r + r) * g->s + s) * depth + c % depth,
                                        g->r * g->s * depth, per_group);
        }
}

/* in: dy, x */
FL_BOTH void fl_sampled_weight_gradient(const struct fl_args *args, const struct fl_sampled_operand *in, int64_t i,
                                        struct fl_sampled_pair *sum) {
    const struct fl_windows *g = &args->p.product.windows;
    const int64_t depth = g->c / g->groups, s = i / depth % g->s, r = i / depth / g->s % g->r,
                  f = i / depth / g->s / g->r, c = f / (g->filters / g->groups) * depth + i % depth;
    /* The columns whose pixel is on the image are consecutive. */
    int64_t q = 0, end = g->q;
    while (q < end && q * g->stride[1] + s * g->dilation[1] - g->padding[1] < 0)
        q++;
    while (end > q && (end - 1) * g->stride[1] + s * g->dilation[1] - g->padding[1] >= g->w)
        end--;
    for (int64_t n = 0; n < g->batch; n++)
        for (int64_t p = 0; p < g->p; p++) {
            const int64_t from = q < end ? fl_sampled_input(g, n, p, q, r, s, c) : -1;
            if (from >= 0)
                fl_sampled_add_products(sum, in, ((n * g->p + p) * g->q + q) * g->filters + f, g->filters, from,
                                        g->stride[1] * g->c, end - q);
        }
}

/* The number of products of an element; -1 if the operation is no such sum. */
FL_BOTH int64_t fl_sampled_products(const struct fl_args *args) {
    const struct fl_windows *g = &args->p.product.windows;
    switch ((int)args->op) {
    case FL_OP_MATMUL:
    case FL_OP_MATMUL_NT:
    case FL_OP_MATMUL_TN:
    case FL_OP_MATMUL_BATCHED:
    case FL_OP_MATMUL_BATCHED_NT:
    case FL_OP_MATMUL_BATCHED_TN:
        return args->p.product.matrices.k;
    case FL_OP_CONV2D:
        return g->r * g->s * (g->c / g->groups);
    case FL_OP_CONV2D_INPUT_GRAD:
        return g->r * g->s * (g->filters / g->groups);
    case FL_OP_CONV2D_WEIGHT_GRAD:
        return g->batch * g->p * g->q;
    default:
        return -1;
    }
}

/* --- elements ----------------------------------------------------------------------------------------------------- */

/* Operands of a product that was written to `out`, on the host or as a device reads them (format: a struct fl_format).
 */
struct fl_storage;
void fl_sampled_operands(const struct fl_args *args, const struct fl_storage *out,
                         struct fl_sampled_operand in[FL_SAMPLED_OPERANDS]);

/* Sum, bias, residual and ReLU of element i. */
FL_BOTH struct fl_sampled_pair fl_sampled_exact(const struct fl_args *args, const struct fl_sampled_operand *in,
                                                int64_t i) {
    const struct fl_epilogue *how = &args->p.product.epilogue;
    const int e = fl_sampled_exponent(&in[0]) + fl_sampled_exponent(&in[1]);
    struct fl_sampled_pair sum = {0, 0, 0};
    switch ((int)args->op) {
    case FL_OP_CONV2D:
        fl_sampled_forward(args, in, i, &sum);
        break;
    case FL_OP_CONV2D_INPUT_GRAD:
        fl_sampled_input_gradient(args, in, i, &sum);
        break;
    case FL_OP_CONV2D_WEIGHT_GRAD:
        fl_sampled_weight_gradient(args, in, i, &sum);
        break;
    default:
        fl_sampled_matmul(args, in, i, &sum);
    }
    if (sum.whole) {
        sum.high = (double)sum.whole;
        sum.low = (double)(sum.whole - (int64_t)sum.high);
    }
    sum.high = fl_scale2(sum.high, -e);
    sum.low = fl_scale2(sum.low, -e);
    if (how->bias.data)
        fl_sampled_add(&sum, fl_sampled_value(&in[FL_SAMPLED_BIAS], i % how->bias.count));
    if (how->residual.data)
        fl_sampled_add(&sum, fl_sampled_value(&in[FL_SAMPLED_RESIDUAL], i));
    /* The low part of an infinity is NaN. */
    if (how->relu && (sum.high + sum.low < 0 || (sum.high < 0 && !fl_is_finite(sum.high)))) {
        const struct fl_sampled_pair zero = {0, 0, 0};
        return zero;
    }
    return sum;
}

/* An element: its exact value, and its error as it is stored. */
struct fl_sampled_one {
    double size, error;
    bool is_finite, is_stored; /* is_stored: as a finite number */
};

/* Element number `n` of `all`, drawn from the n-th of `all` equal shares of the elements. */
FL_BOTH struct fl_sampled_one fl_sampled_one(const struct fl_args *args, const struct fl_sampled_operand *in, int64_t n,
                                             int64_t all, uint64_t number) {
    const int64_t count = in[FL_SAMPLED_OUT].view.count, first = n * count / all, room = (n + 1) * count / all - first,
                  i = first + (int64_t)(fl_philox_draw(0, number, n) % (uint64_t)room);
    const struct fl_sampled_pair want = fl_sampled_exact(args, in, i);
    const double have = fl_sampled_value(&in[FL_SAMPLED_OUT], i), size = want.high + want.low;
    const struct fl_sampled_one one = {size, (have - want.high) - want.low, fl_is_finite(size), fl_is_finite(have)};
    return one;
}

FL_BOTH void fl_sampled_count(struct fl_sampled_sums *sums, const struct fl_sampled_one *one) {
    if (!one->is_finite)
        return;
    if (!one->is_stored) {
        sums->infinite++;
        return;
    }
    sums->errors += one->error * one->error;
    sums->sizes += one->size * one->size;
    sums->finite++;
}

#endif
