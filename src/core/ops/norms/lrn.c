/* lrn.c - local response normalisation across channels and its gradient: reference kernels, kernels of pixels in
 * threads for every format, the operations. Only x is needed from forward to backward. */
#include "core/ops/operation.h"
#include "core/ops/norms/lrn_rules.h"
#include "core/rows/rows.h"
#include "flexlab/blocks_norms.h"
#include <float.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

static struct fl_lrn_rule how_of(const struct fl_args *args) {
    return fl_lrn_of(args->p.lrn.size, args->p.lrn.n, args->p.lrn.alpha, args->p.lrn.beta, args->p.lrn.k);
}

/* --- the definition ----------------------------------------------------------------------------------------------- */

/* d of channel c of a pixel: an exact sum of mantissas, or one in double in the order of the channels. */
static double base_of(const struct fl_args *args, const struct fl_lrn_rule *how, const double *x, int64_t c, int e) {
    const double unit = fl_scale2(1, e);
    int64_t exact = 0;
    double sum = 0;
    for (int64_t i = c - how->below; i <= c + how->above; i++) {
        if (i < 0 || i >= args->p.lrn.n)
            continue;
        const int64_t m = fl_ref_shared(args) ? (int64_t)(x[i] * unit) : 0;
        exact += m * m;
        sum += x[i] * x[i];
    }
    return fl_lrn_base(how, fl_ref_shared(args) ? fl_scale2((double)exact, -2 * e) : sum);
}

static tensor_status fl_ref_lrn(const struct fl_args *args) {
    struct ref_work w;
    const tensor_status status = fl_ref_begin(&w, args);
    if (status)
        return status;
    const struct fl_lrn_rule how = how_of(args);
    const bool gradient = args->op == FL_OP_LRN_GRAD;
    const int e = fl_exponent(&args->in[gradient ? 1 : 0]);
    const int64_t n = args->p.lrn.n;
    for (int64_t i = 0; i < w.count; i++) {
        const int64_t first = i / n * n, c = i % n;
        const double *x = w.in[gradient ? 1 : 0] + first, *dy = w.in[0] + first;
        const double power = fl_lrn_power(&how, base_of(args, &how, x, c, e));
        if (!gradient) {
            w.value[i] = x[c] / power;
        } else {
            double parts = 0;
            for (int64_t j = c - how.above; j <= c + how.below; j++) {
                if (j < 0 || j >= n)
                    continue;
                const double d = base_of(args, &how, x, j, e);
                parts += fl_lrn_part(dy[j], x[j], fl_lrn_power(&how, d), d);
            }
            w.value[i] = fl_lrn_gradient(&how, dy[c], x[c], power, parts);
        }
        w.near[i] = w.value[i];
    }
    fl_ref_end(&w);
    return TENSOR_OK;
}

/* --- pixels in threads -------------------------------------------------------------------------------------------- */

/* sum[c] = numbers c - below ... c + above of n; further ones, which are not there, add nothing. Sum by sum in the
 * order of the channels. */
static void sums_around(const double *number, int64_t n, int64_t below, int64_t above, double *sum) {
    memset(sum, 0, (size_t)n * sizeof *sum);
    for (int64_t j = -below; j <= above; j++) {
        const int64_t from = j < 0 ? -j : 0, to = j > 0 ? n - j : n;
        for (int64_t c = from; c < to; c++)
            sum[c] += number[c + j];
    }
}

/* Sums of squares of mantissas, below 2^30 each, are exact in doubles up to 2^23 of them. */
_Static_assert(TENSOR_WINDOW_LIMIT <= 1 << 23, "sums of squares are exact in doubles");

/* base[c] and power[c] of a pixel; square: memory for n numbers. */
static void powers_of(const struct fl_args *args, const struct fl_lrn_rule *how, const double *x, double *square,
                      double *base, double *power) {
    const int64_t n = args->p.lrn.n;
    const double unit = fl_ref_shared(args) ? fl_scale2(1, -2 * fl_exponent(&args->in[args->op == FL_OP_LRN_GRAD])) : 1;
    for (int64_t c = 0; c < n; c++)
        square[c] = x[c] * x[c];
    sums_around(square, n, how->below, how->above, base);
    for (int64_t c = 0; c < n; c++)
        base[c] = fl_lrn_base(how, base[c] * unit);
    if (how->beta == 0.75)
        for (int64_t c = 0; c < n; c++) {
            const double root = sqrt(base[c]);
            power[c] = root * sqrt(root);
        }
    else
        for (int64_t c = 0; c < n; c++)
            power[c] = fl_lrn_power(how, base[c]);
}

/* The values of a pixel: fl_rows_read gives mantissas. */
static void to_values(const struct fl_args *args, int in, double *x) {
    if (!fl_ref_shared(args))
        return;
    const double unit = fl_scale2(1, -fl_exponent(&args->in[in]));
    for (int64_t c = 0; c < args->p.lrn.n; c++)
        x[c] *= unit;
}

static void forward_pixel(const struct fl_rows *rows, int64_t row, double *own, struct fl_stats *stats) {
    const struct fl_args *args = rows->args;
    const struct fl_lrn_rule *how = rows->plan;
    const int64_t n = args->p.lrn.n;
    const int64_t room = fl_row_room(n);
    double *x = own, *value = own + room, *base = own + 2 * room, *power = own + 3 * room;
    fl_rows_read(rows, 0, row * n, n, x);
    powers_of(args, how, x, value, base, power);
    to_values(args, 0, x);
    for (int64_t c = 0; c < n; c++)
        value[c] = x[c] / power[c];
    fl_rows_write(rows, row * n, n, value, NULL, stats);
}

static void backward_pixel(const struct fl_rows *rows, int64_t row, double *own, struct fl_stats *stats) {
    const struct fl_args *args = rows->args;
    const struct fl_lrn_rule *how = rows->plan;
    const int64_t n = args->p.lrn.n;
    const int64_t room = fl_row_room(n);
    double *x = own, *value = own + room, *base = own + 2 * room, *power = own + 3 * room, *dy = own + 4 * room;
    fl_rows_read(rows, 0, row * n, n, dy);
    fl_rows_read(rows, 1, row * n, n, x);
    powers_of(args, how, x, value, base, power);
    to_values(args, 0, dy);
    to_values(args, 1, x);
    for (int64_t c = 0; c < n; c++)
        base[c] = fl_lrn_part(dy[c], x[c], power[c], base[c]);
    sums_around(base, n, how->above, how->below, value);
    for (int64_t c = 0; c < n; c++)
        value[c] = fl_lrn_gradient(how, dy[c], x[c], power[c], value[c]);
    fl_rows_write(rows, row * n, n, value, NULL, stats);
}

static struct fl_rows pixels_of(const struct fl_args *args, const struct fl_lrn_rule *how) {
    const bool gradient = args->op == FL_OP_LRN_GRAD;
    return (struct fl_rows){.args = args,
                            .plan = how,
                            .rows = args->p.lrn.m,
                            .width = args->p.lrn.n,
                            .doubles = (gradient ? 5 : 4) * fl_row_room(args->p.lrn.n),
                            .run = gradient ? backward_pixel : forward_pixel};
}

static size_t need(const struct fl_args *args) {
    const struct fl_rows rows = pixels_of(args, NULL);
    return fl_rows_need(&rows);
}

static tensor_status lrn(const struct fl_args *args, const struct fl_row_vectors *vectors) {
    const struct fl_lrn_rule how = how_of(args);
    struct fl_rows rows = pixels_of(args, &how);
    rows.vectors = vectors;
    char *memory = fl_rows_begin(&rows);
    if (!memory)
        return TENSOR_E_MEMORY;
    fl_rows_run(&rows, memory);
    return TENSOR_OK;
}

FL_ROWS_TABLE(static, kernels, lrn, need)

/* --- the operations ----------------------------------------------------------------------------------------------- */

static void prepare(struct fl_args *args, const struct fl_sizes *sizes, const union fl_value *scalars) {
    (void)scalars;
    args->p.lrn.m = FL_SIZE(sizes, 'm');
    args->p.lrn.n = FL_SIZE(sizes, 'C');
}

static const struct fl_operand forward_operands[] = {{"y", "m*C"}, {"x", "m*C", .at = FL_AT(in[0])}};
static const struct fl_operand backward_operands[] = {
    {"dx", "m*C"}, {"dy", "m*C", .at = FL_AT(in[0])}, {"x", "m*C", .at = FL_AT(in[1])}};
static const struct fl_scalar_rule scalars[] = {{"size", FL_INT64, 1, TENSOR_WINDOW_LIMIT, .at = FL_AT(p.lrn.size)},
                                                {"alpha", FL_REAL32, 0, FLT_MAX, .at = FL_AT(p.lrn.alpha)},
                                                {"beta", FL_REAL32, 0, 4, .above = true, .at = FL_AT(p.lrn.beta)},
                                                {"k", FL_REAL64, .above = true, .at = FL_AT(p.lrn.k)}};

const struct fl_operation fl_operation_lrn = {
    .op = FL_OP_LRN, .promise = FL_PROMISE_DOUBLE, .reference = {fl_ref_lrn, fl_ref_bytes}, .any = kernels};
const struct fl_operation fl_operation_lrn_grad = {
    .op = FL_OP_LRN_GRAD, .promise = FL_PROMISE_DOUBLE, .reference = {fl_ref_lrn, fl_ref_bytes}, .any = kernels};

const struct fl_function fl_function_lrn = {.name = "lrn",
                                            .op = FL_OP_LRN,
                                            .outputs = 1,
                                            FL_OPERANDS_OF(forward_operands),
                                            FL_SCALARS_OF(scalars),
                                            .prepare = prepare};
const struct fl_function fl_function_lrn_grad = {.name = "lrn_grad",
                                                 .op = FL_OP_LRN_GRAD,
                                                 .outputs = 1,
                                                 FL_OPERANDS_OF(backward_operands),
                                                 FL_SCALARS_OF(scalars),
                                                 .prepare = prepare};

tensor_status tensor_lrn(tensor *y, const tensor *x, int size, float alpha, float beta, float k) {
    return FL_INVOKE(lrn, FL_GIVEN(y, x), FL_INTEGER(size), FL_REAL(alpha), FL_REAL(beta), FL_REAL(k));
}
tensor_status tensor_lrn_grad(tensor *dx, const tensor *dy, const tensor *x, int size, float alpha, float beta,
                              float k) {
    return FL_INVOKE(lrn_grad, FL_GIVEN(dx, dy, x), FL_INTEGER(size), FL_REAL(alpha), FL_REAL(beta), FL_REAL(k));
}
