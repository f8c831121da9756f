/* ref_matmul.c - reference kernels: matmul and convolution as sums of products in their defined order. */
#include "core/arithmetic/exact.h"
#include "core/reference/ref.h"
#include <math.h>

/* A running sum of products. Shared-exponent formats: products of 16-bit mantissas under one exponent, an exact sum in
 * two doubles, the second of which holds the bits that do not fit the first beyond 2^23 terms. Float formats: fused
 * multiply-add chains of FL_K_CHUNK terms, chunks added in order. */
struct dot {
    bool exact;
    double sum, rest;
    float chain, total;
    int64_t terms;
};

static inline void dot_add(struct dot *d, double a, double b) {
    if (d->exact) { /* the error of a sum is a double (Knuth, TAOCP 2, 4.2.2) */
        const double product = a * b, sum = d->sum + product, of_product = sum - d->sum;
        d->rest += (d->sum - (sum - of_product)) + (product - of_product);
        d->sum = sum;
        return;
    }
    if (d->terms && d->terms % FL_K_CHUNK == 0) {
        d->total = d->terms == FL_K_CHUNK ? d->chain : d->total + d->chain;
        d->chain = 0;
    }
    d->chain = fmaf((float)a, (float)b, d->chain);
    d->terms++;
}

/* Stores the sum as result i; `near` holds the second double of an exact sum until end_sums. */
static inline void dot_end(const struct dot *d, struct ref_work *w, int64_t i) {
    w->value[i] = d->exact ? d->sum : d->terms > FL_K_CHUNK ? d->total + d->chain : d->chain;
    w->near[i] = d->exact ? d->rest : 0;
}

/* --- bias, residual and ReLU -------------------------------------------------------------------------------------- */

static double element_of(const struct fl_format *format, const struct fl_view *view, int64_t i) {
    double x = 0;
    if (view->data)
        format->decode(format, view, i, 1, &x);
    return x;
}

/* A finite element. */
static struct fl_term term_of(const struct fl_format *format, const struct fl_view *view, double x) {
    if (format->arithmetic != FL_ARITHMETIC_SHARED)
        return fl_term_of((float)x);
    const int e = fl_exponent(view);
    return (struct fl_term){(int64_t)ldexp(x, e), e};
}

static void exact_epilogue(struct ref_work *w, int64_t i, double bias, double residual) {
    const struct fl_args *args = w->args;
    const struct fl_epilogue *how = &args->p.product.epilogue;
    const int e = fl_exponent(&args->in[0]) + fl_exponent(&args->in[1]);
    const int64_t whole = (int64_t)ldexp(w->value[i], e) + (int64_t)ldexp(w->near[i], e);
    if (!isfinite(bias) || !isfinite(residual)) { /* floats added to exact sums */
        const double x = w->value[i] + bias + residual;
        w->value[i] = w->near[i] = !how->relu || x > 0 || x != x ? x : 0;
        return;
    }
    const struct fl_term terms[] = {{whole, e},
                                    term_of(fl_bias_format(args), &how->bias, bias),
                                    term_of(fl_residual_format(args), &how->residual, residual)};
    struct fl_wide_sum sum = fl_sum_terms(terms, 3);
    if (how->relu && sum.m < 0)
        sum.m = 0;
    w->value[i] = fl_wide_odd(sum);
    w->near[i] = fl_wide_abs(sum);
}

static void float_epilogue(struct ref_work *w, int64_t i, double bias, double residual) {
    const struct fl_epilogue *how = &w->args->p.product.epilogue;
    float x = (float)w->value[i];
    if (how->bias.data)
        x += (float)bias;
    if (how->residual.data)
        x += (float)residual;
    w->value[i] = w->near[i] = !how->relu || x > 0 || x != x ? x : 0.0f;
}

/* Computes the results from the sums of products in value. */
static tensor_status end_sums(struct ref_work *w) {
    const struct fl_epilogue *how = &w->args->p.product.epilogue;
    const bool plain = !how->bias.data && !how->residual.data && !how->relu;
    for (int64_t i = 0; i < w->count; i++) {
        if (plain && w->near[i] == 0) {
            w->near[i] = w->value[i];
            continue;
        }
        const double bias = how->bias.data ? element_of(fl_bias_format(w->args), &how->bias, i % how->bias.count) : 0,
                     residual = element_of(fl_residual_format(w->args), &how->residual, i);
        if (fl_sums_exactly(w->args))
            exact_epilogue(w, i, bias, residual);
        else
            float_epilogue(w, i, bias, residual);
    }
    fl_ref_end(w);
    return TENSOR_OK;
}

tensor_status fl_ref_matmul(const struct fl_args *args) {
    struct ref_work w;
    tensor_status status = fl_ref_begin(&w, args);
    if (status)
        return status;
    const struct fl_matrices *g = &args->p.product.matrices;
    const int64_t batch = g->batch ? g->batch : 1, m = g->m, n = g->n, k = g->k;
    const bool tn = args->op == FL_OP_MATMUL_TN || args->op == FL_OP_MATMUL_BATCHED_TN,
               nt = args->op == FL_OP_MATMUL_NT || args->op == FL_OP_MATMUL_BATCHED_NT;
    for (int64_t row = 0; row < batch * m; row++)
        for (int64_t j = 0; j < n; j++) {
            const int64_t i = row % m;
            const double *a = w.in[0] + row / m * m * k, *b = w.in[1] + row / m * k * n;
            struct dot d = {.exact = fl_sums_exactly(args)};
            for (int64_t l = 0; l < k; l++)
                dot_add(&d, a[tn ? l * m + i : i * k + l], b[nt ? j * k + l : l * n + j]);
            dot_end(&d, &w, row * n + j);
        }
    return end_sums(&w);
}

static double image_at(const double *image, int64_t h, int64_t w, int64_t c, int64_t n, int64_t y, int64_t x,
                       int64_t k) {
    return y < 0 || y >= h || x < 0 || x >= w ? 0 : image[((n * h + y) * w + x) * c + k];
}

/* dy at the output position that an input pixel reaches through a filter position, from the places y, x that the two
 * have on the padded image; 0 where the stride skips it. */
static double output_at(const double *dy, const struct fl_windows *g, int64_t n, int64_t y, int64_t x, int64_t k) {
    if (y < 0 || x < 0 || y % g->stride[0] || x % g->stride[1])
        return 0;
    return image_at(dy, g->p, g->q, g->filters, n, y / g->stride[0], x / g->stride[1], k);
}

/* The element of x that output position (p, q) reads at filter position (r, s). */
static double input_at(const double *x, const struct fl_windows *g, int64_t n, int64_t p, int64_t q, int64_t r,
                       int64_t s, int64_t c) {
    return image_at(x, g->h, g->w, g->c, n, p * g->stride[0] + r * g->dilation[0] - g->padding[0],
                    q * g->stride[1] + s * g->dilation[1] - g->padding[1], c);
}

static void forward(struct ref_work *w, const struct fl_windows *g, bool exact) {
    const int64_t depth = g->c / g->groups, per_group = g->filters / g->groups;
    int64_t out = 0;
    for (int64_t n = 0; n < g->batch; n++)
        for (int64_t p = 0; p < g->p; p++)
            for (int64_t q = 0; q < g->q; q++)
                for (int64_t k = 0; k < g->filters; k++) {
                    struct dot d = {.exact = exact};
                    const double *filter = w->in[1] + k * g->r * g->s * depth;
                    for (int64_t r = 0; r < g->r; r++)
                        for (int64_t s = 0; s < g->s; s++)
                            for (int64_t c = 0; c < depth; c++)
                                dot_add(&d, input_at(w->in[0], g, n, p, q, r, s, k / per_group * depth + c),
                                        filter[(r * g->s + s) * depth + c]);
                    dot_end(&d, w, out++);
                }
}

static void input_gradient(struct ref_work *w, const struct fl_windows *g, bool exact) {
    const int64_t depth = g->c / g->groups, per_group = g->filters / g->groups;
    int64_t out = 0;
    for (int64_t n = 0; n < g->batch; n++)
        for (int64_t y = 0; y < g->h; y++)
            for (int64_t x = 0; x < g->w; x++)
                for (int64_t c = 0; c < g->c; c++) {
                    struct dot d = {.exact = exact};
                    const int64_t first = c / depth * per_group;
                    for (int64_t r = 0; r < g->r; r++)
                        for (int64_t s = 0; s < g->s; s++)
                            for (int64_t k = first; k < first + per_group; k++)
                                dot_add(&d,
                                        output_at(w->in[0], g, n, y + g->padding[0] - r * g->dilation[0],
                                                  x + g->padding[1] - s * g->dilation[1], k),
                                        w->in[1][((k * g->r + r) * g->s + s) * depth + c % depth]);
                    dot_end(&d, w, out++);
                }
}

static void weight_gradient(struct ref_work *w, const struct fl_windows *g, bool exact) {
    const int64_t depth = g->c / g->groups, per_group = g->filters / g->groups;
    int64_t out = 0;
    for (int64_t k = 0; k < g->filters; k++)
        for (int64_t r = 0; r < g->r; r++)
            for (int64_t s = 0; s < g->s; s++)
                for (int64_t c = 0; c < depth; c++) {
                    struct dot d = {.exact = exact};
                    for (int64_t n = 0; n < g->batch; n++)
                        for (int64_t p = 0; p < g->p; p++)
                            for (int64_t q = 0; q < g->q; q++)
                                dot_add(&d, w->in[0][((n * g->p + p) * g->q + q) * g->filters + k],
                                        input_at(w->in[1], g, n, p, q, r, s, k / per_group * depth + c));
                    dot_end(&d, w, out++);
                }
}

tensor_status fl_ref_conv(const struct fl_args *args) {
    struct ref_work w;
    tensor_status status = fl_ref_begin(&w, args);
    if (status)
        return status;
    const bool exact = fl_sums_exactly(args);
    if (args->op == FL_OP_CONV2D)
        forward(&w, &args->p.product.windows, exact);
    else if (args->op == FL_OP_CONV2D_INPUT_GRAD)
        input_gradient(&w, &args->p.product.windows, exact);
    else
        weight_gradient(&w, &args->p.product.windows, exact);
    return end_sums(&w);
}
