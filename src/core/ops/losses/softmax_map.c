/* softmax_map.c - softmax and its logarithm over the last dimension, with their gradients: reference kernels, kernels
 * of rows in threads for every format, the operations.
 *
 * Exponentials are those of elementary.h, in double, summed in the order of the row. The gradient of softmax is an
 * exact sum in integer formats, and in double in float formats. */
#include "core/base/fail.h"
#include "core/ops/operation.h"
#include "core/queue/queue.h"
#include "core/arithmetic/elementary.h"
#include "core/rows/rows.h"
#include "core/ops/losses/softmax.h"
#include "core/ops/losses/softmax_map_rules.h"
#include "flexlab/blocks_losses.h"
#include <math.h>
#include <stddef.h>
#include <string.h>

static void exponentials(double *x, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        x[i] = fl_exp(x[i]);
}

/* --- the definition: one row -------------------------------------------------------------------------------------- */

/* The first `visible` of n numbers become scale x - the largest of them; what that was is gone. */
static void from_largest(double *z, int64_t visible, double scale) {
    for (int64_t c = 0; c < visible; c++)
        z[c] *= scale;
    double top = z[0];
    for (int64_t c = 1; c < visible; c++)
        top = z[c] > top ? z[c] : top;
    for (int64_t c = 0; c < visible; c++)
        z[c] -= top;
}

static double sum_in_order(const double *x, int64_t n) {
    double sum = 0;
    for (int64_t c = 0; c < n; c++)
        sum += x[c];
    return sum;
}

/* In place; elements that take no part become 0. */
static void softmax_row(double *z, int64_t n, int64_t visible, double scale) {
    if (visible) {
        from_largest(z, visible, scale);
        exponentials(z, visible);
        const double sum = sum_in_order(z, visible);
        for (int64_t c = 0; c < visible; c++)
            z[c] /= sum;
    }
    for (int64_t c = visible; c < n; c++)
        z[c] = 0;
}

/* scratch: n numbers. */
static void log_softmax_row(double *z, int64_t n, double scale, double *scratch) {
    from_largest(z, n, scale);
    memcpy(scratch, z, (size_t)n * sizeof *z);
    exponentials(scratch, n);
    const double log_sum = fl_log(sum_in_order(scratch, n));
    for (int64_t c = 0; c < n; c++)
        z[c] -= log_sum;
}

/* Slopes of float formats, stored in p: scale p (dp - sum of p dp). */
static void softmax_slopes(double *p, const double *dp, int64_t n, int64_t visible, double scale) {
    double dot = 0;
    for (int64_t c = 0; c < visible; c++)
        dot += p[c] * dp[c];
    for (int64_t c = 0; c < visible; c++)
        p[c] = scale * (p[c] * (dp[c] - dot));
    for (int64_t c = visible; c < n; c++)
        p[c] = 0;
}

/* Slopes of all formats, stored in y: scale (dy - exp(y) sum of dy). */
static void log_softmax_slopes(double *y, const double *dy, int64_t n, double scale) {
    const double sum = sum_in_order(dy, n);
    exponentials(y, n);
    for (int64_t c = 0; c < n; c++)
        y[c] = scale * (dy[c] - y[c] * sum);
}

static int64_t visible_of(const struct fl_args *args, int64_t row) {
    return fl_softmax_visible(row, args->p.softmax.n, args->p.softmax.causal);
}

/* --- the definition: as kernels ----------------------------------------------------------------------------------- */

/* y <- x */
static tensor_status fl_ref_softmax_map(const struct fl_args *args) {
    struct ref_work w;
    const tensor_status status = fl_ref_begin(&w, args);
    if (status)
        return status;
    const int64_t n = args->p.softmax.n;
    memcpy(w.value, w.in[0], (size_t)w.count * sizeof *w.value);
    for (int64_t row = 0; row < args->p.softmax.m; row++) {
        if (args->op == FL_OP_SOFTMAX)
            softmax_row(w.value + row * n, n, visible_of(args, row), args->p.softmax.scale);
        else
            log_softmax_row(w.value + row * n, n, args->p.softmax.scale, w.near + row * n);
    }
    memcpy(w.near, w.value, (size_t)w.count * sizeof *w.value);
    fl_ref_end(&w);
    return TENSOR_OK;
}

static void ref_slopes(const struct ref_work *w, int64_t row) {
    const struct fl_args *args = w->args;
    const int64_t n = args->p.softmax.n, visible = visible_of(args, row), first = row * n;
    const int edp = fl_exponent(&args->in[0]), ep = fl_exponent(&args->in[1]);
    const double *dp = w->in[0] + first, *p = w->in[1] + first;
    if (args->op == FL_OP_LOG_SOFTMAX_GRAD || !fl_ref_shared(args)) {
        memcpy(w->value + first, p, (size_t)n * sizeof *p);
        if (args->op == FL_OP_SOFTMAX_GRAD)
            softmax_slopes(w->value + first, dp, n, visible, args->p.softmax.scale);
        else
            log_softmax_slopes(w->value + first, dp, n, args->p.softmax.scale);
        memcpy(w->near + first, w->value + first, (size_t)n * sizeof *p);
        return;
    }
    int64_t dot = 0;
    for (int64_t c = 0; c < visible; c++)
        dot += (int64_t)ldexp(p[c], ep) * (int64_t)ldexp(dp[c], edp);
    for (int64_t c = 0; c < n; c++) {
        const bool counts = c < visible;
        const struct fl_wide_sum sum =
            fl_softmax_slope(fl_term_of(args->p.softmax.scale), counts ? (int64_t)ldexp(p[c], ep) : 0,
                             counts ? (int64_t)ldexp(dp[c], edp) : 0, dot, ep, edp);
        w->value[first + c] = fl_wide_odd(sum);
        w->near[first + c] = fl_wide_abs(sum);
    }
}

/* dx <- dy, y */
static tensor_status fl_ref_softmax_map_grad(const struct fl_args *args) {
    struct ref_work w;
    const tensor_status status = fl_ref_begin(&w, args);
    if (status)
        return status;
    for (int64_t row = 0; row < args->p.softmax.m; row++)
        ref_slopes(&w, row);
    fl_ref_end(&w);
    return TENSOR_OK;
}

/* --- rows in threads ----------------------------------------------------------------------------------------------
 *
 * Sums of a row keep its order: those of several rows run side by side. */

enum { SIDE = 8, TOGETHER = 8192 /* elements, about, of the rows that run side by side */ };

static int64_t side_of(const struct fl_args *args) {
    const int64_t fit = TOGETHER / args->p.softmax.n;
    return fit < 1 ? 1 : fit > SIDE ? SIDE : fit;
}

/* Rows side by side: how many, and how many elements of each take part. */
struct group {
    int64_t first, rows, room, visible[SIDE];
};

static struct group group_of(const struct fl_args *args, int64_t part) {
    const int64_t side = side_of(args);
    struct group g = {.first = part * side, .room = fl_row_room(args->p.softmax.n)};
    g.rows = args->p.softmax.m - g.first < side ? args->p.softmax.m - g.first : side;
    for (int64_t k = 0; k < g.rows; k++)
        g.visible[k] = visible_of(args, g.first + k);
    return g;
}

/* Sums of a in order, or, where b is not NULL, of a b. */
static void sums_in_order(const struct group *g, const double *a, const double *b, double *sums) {
    double sum[SIDE] = {0};
    int64_t common = g->visible[0];
    for (int64_t k = 1; k < g->rows; k++)
        common = g->visible[k] < common ? g->visible[k] : common;
    if (g->rows < SIDE)
        common = 0;
    if (b)
        for (int64_t c = 0; c < common; c++)
            for (int64_t k = 0; k < SIDE; k++)
                sum[k] += a[k * g->room + c] * b[k * g->room + c];
    else
        for (int64_t c = 0; c < common; c++)
            for (int64_t k = 0; k < SIDE; k++)
                sum[k] += a[k * g->room + c];
    for (int64_t k = 0; k < g->rows; k++)
        for (int64_t c = common; c < g->visible[k]; c++)
            sum[k] += b ? a[k * g->room + c] * b[k * g->room + c] : a[k * g->room + c];
    memcpy(sums, sum, sizeof sum);
}

/* Writes the visible elements of row k; the others become zero. */
static void write_visible(const struct fl_rows *rows, const struct group *g, int64_t k, const double *value,
                          struct fl_stats *stats) {
    const int64_t n = rows->args->p.softmax.n, at = (g->first + k) * n;
    if (g->visible[k])
        fl_rows_write(rows, at, g->visible[k], value, NULL, stats);
    fl_rows_write_zeros(rows, at + g->visible[k], n - g->visible[k]);
}

/* The row of n numbers next to their largest in double, as it is defined. */
static void exact_softmax(const struct fl_rows *rows, const struct group *g, int64_t k, double *z,
                          struct fl_stats *stats) {
    const int64_t visible = g->visible[k];
    rows->vectors->exponentials(z, visible);
    rows->vectors->divide(z, visible, sum_in_order(z, visible));
    write_visible(rows, g, k, z, stats);
}

/* --- estimates: powers, sums and quotients that differ from the defined ones in their last places, where the rounding
 * proves to be the same.
 *
 * With u = 2^-53: defined powers are off by less than 8u of e^x, and estimated ones by less than 16u. Sums of n of them
 * in order are off by less than n u more, in vectors too; quotient, reciprocal and product by 3u. A defined result and
 * an estimate differ by less than (2 8 + 2 16 + 2 n + 4) u of either. */

enum { ESTIMATED = 2048 /* elements of a row; more would prove little */ };

static bool takes_estimates(const struct fl_rows *rows) {
    const struct fl_args *args = rows->args;
    return args->p.softmax.n <= ESTIMATED && args->rounding.mode != TENSOR_ROUND_STOCHASTIC &&
           (fl_ref_shared(args) || fl_rows_convert(rows));
}

static double share_of(int64_t n) {
    return (double)(n + 32) * 0x1p-52;
}

static bool store_floats(const struct fl_rows *rows, int64_t first, int64_t n, const double *power, double sum,
                         struct fl_stats *stats) {
    _Alignas(64) float block[ESTIMATED];
    if (!rows->vectors->narrow_estimates(block, n, power, 1 / sum, share_of(n)))
        return false;
    fl_rows_write_floats(rows, first, n, block, stats);
    return true;
}

/* Nothing defined is above 1, so that a maximum of 1 is the last to be found. */
static bool store_integers(const struct fl_rows *rows, int64_t first, int64_t n, double *power, double sum,
                           struct fl_stats *stats) {
    const struct fl_view *out = &rows->args->out;
    const double unit = fl_power_of_two(fl_exponent(out));
    const struct fl_row_estimates estimates = {power, power + fl_row_room(n)};
    struct fl_row_rounded rounded;
    rows->vectors->estimates(n, power, unit / sum, share_of(n), &estimates);
    if (!rows->vectors->round(out->data ? (int16_t *)out->data + first : NULL, n, &estimates, &rounded))
        return false;
    if (fmin(rounded.most / unit, 1) > stats->maximum)
        return false;
    const struct fl_stats mine = {.gamma = rounded.gamma, .saturated = rounded.saturated, .flushed = rounded.flushed};
    fl_stats_merge(stats, &mine);
    return true;
}

/* own: room for three rows. */
static void estimated_softmax(const struct fl_rows *rows, const struct group *g, int64_t k, double *own,
                              struct fl_stats *stats) {
    const int64_t n = rows->args->p.softmax.n, visible = g->visible[k], first = (g->first + k) * n;
    double *z = own, *power = own + g->room;
    if (visible) {
        fl_rows_read_values(rows, 0, first, visible, z);
        rows->vectors->from_largest(z, visible, rows->args->p.softmax.scale);
        const double sum = rows->vectors->powers(power, z, visible);
        const bool shared = fl_ref_shared(rows->args), usual = sum >= 1 && sum <= 2 * ESTIMATED;
        if (!usual || !(shared ? store_integers(rows, first, visible, power, sum, stats)
                               : store_floats(rows, first, visible, power, sum, stats))) {
            exact_softmax(rows, g, k, z, stats);
            return;
        }
    }
    fl_rows_write_zeros(rows, first + visible, n - visible);
}

static void softmax_rows(const struct fl_rows *rows, int64_t part, double *own, struct fl_stats *stats) {
    const struct fl_args *args = rows->args;
    const struct group g = group_of(args, part);
    double sum[SIDE];
    if (takes_estimates(rows)) {
        for (int64_t k = 0; k < g.rows; k++)
            estimated_softmax(rows, &g, k, own, stats);
        return;
    }
    for (int64_t k = 0; k < g.rows; k++) {
        double *z = own + k * g.room;
        if (!g.visible[k])
            continue;
        fl_rows_read_values(rows, 0, (g.first + k) * args->p.softmax.n, g.visible[k], z);
        rows->vectors->from_largest(z, g.visible[k], args->p.softmax.scale);
        rows->vectors->exponentials(z, g.visible[k]);
    }
    sums_in_order(&g, own, NULL, sum);
    for (int64_t k = 0; k < g.rows; k++) {
        rows->vectors->divide(own + k * g.room, g.visible[k], sum[k]);
        write_visible(rows, &g, k, own + k * g.room, stats);
    }
}

static void log_softmax_rows(const struct fl_rows *rows, int64_t part, double *own, struct fl_stats *stats) {
    const struct fl_args *args = rows->args;
    const struct group g = group_of(args, part);
    const int64_t n = args->p.softmax.n;
    double sum[SIDE], *powers = own + side_of(args) * g.room;
    for (int64_t k = 0; k < g.rows; k++) {
        double *z = own + k * g.room;
        fl_rows_read_values(rows, 0, (g.first + k) * n, n, z);
        rows->vectors->from_largest(z, n, args->p.softmax.scale);
        memcpy(powers + k * g.room, z, (size_t)n * sizeof *z);
        rows->vectors->exponentials(powers + k * g.room, n);
    }
    sums_in_order(&g, powers, NULL, sum);
    for (int64_t k = 0; k < g.rows; k++) {
        double *z = own + k * g.room;
        const double log_sum = fl_log(sum[k]);
        for (int64_t c = 0; c < n; c++)
            z[c] -= log_sum;
        fl_rows_write(rows, (g.first + k) * n, n, z, NULL, stats);
    }
}

/* One row of the gradient in integer formats. */
struct slope_row {
    struct fl_term scale;
    const double *p, *dp;
    int64_t dot;
    int ep, edp;
};

static struct fl_wide_sum slope_of(const void *of, int64_t c) {
    const struct slope_row *r = of;
    return fl_softmax_slope(r->scale, (int64_t)r->p[c], (int64_t)r->dp[c], r->dot, r->ep, r->edp);
}

/* False where doubles do not hold the numbers well, or do not prove the rounding. */
static bool estimate_slopes(const struct fl_rows *rows, int64_t first, int64_t visible, const struct slope_row *r,
                            double *value, struct fl_stats *stats) {
    const struct fl_row_estimates estimates = {value, value + fl_row_room(visible)};
    const double unit = fl_row_unit(fl_exponent(&rows->args->out) - (r->scale.e + 2 * r->ep + r->edp));
    const int64_t most = (int64_t)1 << 53;
    if (!fl_rows_take_estimates(rows) || unit == 0 || r->dot > most || r->dot < -most)
        return false;
    rows->vectors->slopes(visible, r->p, r->dp, fl_power_of_two(r->ep), (double)r->dot, (double)r->scale.m * unit,
                          &estimates);
    return fl_rows_write_estimates(rows, first, visible, &estimates, slope_of, r, stats);
}

static void exact_slopes(const struct fl_rows *rows, int64_t first, int64_t visible, const struct slope_row *r,
                         double *value, struct fl_stats *stats) {
    struct fl_row_out out = {.value = value};
    const int e = r->scale.e + 2 * r->ep + r->edp;
    if (r->ep >= 0 && r->ep <= 40 && fl_rows_has_unit(e)) { /* |sum| <= 2^15 2^24 2^62 */
        const double unit = fl_power_of_two(-e);
        for (int64_t c = 0; c < visible; c++)
            fl_rows_keep_aligned(&out, c,
                                 (fl_int128)((int64_t)r->p[c] * r->scale.m) *
                                     ((int64_t)r->dp[c] * ((int64_t)1 << r->ep) - r->dot),
                                 unit);
    } else {
        for (int64_t c = 0; c < visible; c++)
            fl_rows_keep_wide(&out, c, slope_of(r, c));
    }
    fl_rows_store_sums(rows->args, first, visible, &out, e, stats);
}

static void integer_slope_row(const struct fl_rows *rows, int64_t row, double *own, struct fl_stats *stats) {
    const struct fl_args *args = rows->args;
    const int64_t n = args->p.softmax.n, visible = visible_of(args, row), room = fl_row_room(n);
    double *dp = own, *p = own + room, *value = own + 2 * room;
    fl_rows_write_zeros(rows, row * n + visible, n - visible);
    if (!visible)
        return;
    fl_rows_read(rows, 0, row * n, visible, dp);
    fl_rows_read(rows, 1, row * n, visible, p);
    const struct slope_row r = {
        fl_term_of(args->p.softmax.scale), p, dp, rows->vectors->dot(visible, p, dp), fl_exponent(&args->in[1]),
        fl_exponent(&args->in[0])};
    if (!estimate_slopes(rows, row * n, visible, &r, value, stats))
        exact_slopes(rows, row * n, visible, &r, value, stats);
}

static void slope_rows(const struct fl_rows *rows, int64_t part, double *own, struct fl_stats *stats) {
    const struct fl_args *args = rows->args;
    const struct group g = group_of(args, part);
    double dot[SIDE], *p = own, *dp = own + side_of(args) * g.room;
    for (int64_t k = 0; k < g.rows; k++) {
        const int64_t at = (g.first + k) * args->p.softmax.n;
        if (!g.visible[k])
            continue;
        fl_rows_read(rows, 0, at, g.visible[k], dp + k * g.room);
        fl_rows_read(rows, 1, at, g.visible[k], p + k * g.room);
    }
    sums_in_order(&g, p, dp, dot);
    for (int64_t k = 0; k < g.rows; k++) {
        rows->vectors->float_slopes(g.visible[k], p + k * g.room, dp + k * g.room, dot[k], args->p.softmax.scale);
        write_visible(rows, &g, k, p + k * g.room, stats);
    }
}

static void log_slope_rows(const struct fl_rows *rows, int64_t part, double *own, struct fl_stats *stats) {
    const struct fl_args *args = rows->args;
    const struct group g = group_of(args, part);
    const int64_t n = args->p.softmax.n;
    double sum[SIDE], *dy = own, *y = own + side_of(args) * g.room;
    for (int64_t k = 0; k < g.rows; k++)
        fl_rows_read_values(rows, 0, (g.first + k) * n, n, dy + k * g.room);
    sums_in_order(&g, dy, NULL, sum);
    for (int64_t k = 0; k < g.rows; k++) {
        double *row = y + k * g.room;
        bool positive = false; /* never among logarithms of probabilities, unless they were written by hand */
        fl_rows_read_values(rows, 1, (g.first + k) * n, n, row);
        for (int64_t c = 0; c < n; c++)
            positive = positive || row[c] > 0;
        if (positive)
            exponentials(row, n);
        else
            rows->vectors->exponentials(row, n);
        for (int64_t c = 0; c < n; c++)
            row[c] = args->p.softmax.scale * (dy[k * g.room + c] - row[c] * sum[k]);
        fl_rows_write(rows, (g.first + k) * n, n, row, NULL, stats);
    }
}

static struct fl_rows rows_of_call(const struct fl_args *args) {
    const int64_t n = args->p.softmax.n, side = side_of(args);
    struct fl_rows rows = {.args = args,
                           .rows = (args->p.softmax.m + side - 1) / side,
                           .width = 4 * side * n,
                           .doubles = (side > 1 ? 2 * side : 3) * fl_row_room(n)};
    switch ((int)args->op) {
    case FL_OP_SOFTMAX:
        rows.run = softmax_rows;
        break;
    case FL_OP_LOG_SOFTMAX:
        rows.run = log_softmax_rows;
        break;
    case FL_OP_LOG_SOFTMAX_GRAD:
        rows.run = log_slope_rows;
        break;
    default:
        rows.run = slope_rows;
        if (fl_ref_shared(args)) {
            rows.rows = args->p.softmax.m;
            rows.width = 4 * n;
            rows.doubles = 4 * fl_row_room(n);
            rows.run = integer_slope_row;
        }
    }
    return rows;
}

static size_t need(const struct fl_args *args) {
    const struct fl_rows rows = rows_of_call(args);
    return fl_rows_need(&rows);
}

static tensor_status run(const struct fl_args *args, const struct fl_row_vectors *vectors) {
    struct fl_rows rows = rows_of_call(args);
    char *memory = fl_rows_begin(&rows);
    if (!memory)
        return TENSOR_E_MEMORY;
    rows.vectors = vectors;
    fl_rows_run(&rows, memory);
    return TENSOR_OK;
}

FL_ROWS_TABLE(static, fl_softmax_map_any, run, need)

/* --- the operations ----------------------------------------------------------------------------------------------- */

static bool derive(struct fl_sizes *sizes, const union fl_value *scalars, const char *name, bool quiet) {
    (void)scalars;
    if (FL_SIZE(sizes, 'n') > INT32_MAX && !quiet)
        fl_fail(TENSOR_E_SHAPE, "%s: a row has %lld elements, expected fewer than 2^31", name,
                (long long)FL_SIZE(sizes, 'n'));
    return FL_SIZE(sizes, 'n') <= INT32_MAX;
}

static void prepare(struct fl_args *args, const struct fl_sizes *sizes, const union fl_value *scalars) {
    (void)scalars;
    args->p.softmax.m = FL_SIZE(sizes, 'm');
    args->p.softmax.n = FL_SIZE(sizes, 'n');
}

/* The second scalar of softmax: causal. */
static tensor_status check(const struct fl_invocation *call) {
    char text[TENSOR_TEXT];
    return !call->scalars[1].integer || call->tensors[0]->ndim >= 2
               ? TENSOR_OK
               : fl_fail(TENSOR_E_SHAPE, "%s: %s is %s, expected at least two dimensions for a causal mask",
                         call->function->name, call->function->operands[0].name, fl_shape_text(call->tensors[0], text));
}

static tensor_status run_masked(const struct fl_invocation *call, struct fl_args *args) {
    const tensor *y = call->tensors[0];
    args->p.softmax.causal = call->scalars[1].integer ? y->shape[y->ndim - 2] : 0;
    return fl_write((tensor *)y, args);
}

static const struct fl_operand forward_operands[] = {{"y", "m*n"}, {"x", "m*n", FL_IN_PLACE, .at = FL_AT(in[0])}};
static const struct fl_operand backward_operands[] = {
    {"dx", "m*n"}, {"dy", "m*n", FL_IN_PLACE, .at = FL_AT(in[0])}, {"y", "m*n", FL_IN_PLACE, .at = FL_AT(in[1])}};
static const struct fl_scalar_rule scalars[] = {{"scale", FL_REAL32, .at = FL_AT(p.softmax.scale)},
                                                {"causal", FL_BOOL}};

#define OPERATION(OP, name, of_promise, kernel)                                                                        \
    const struct fl_operation fl_operation_##name = {.op = FL_OP_##OP,                                                 \
                                                     .promise = of_promise,                                            \
                                                     .reference = {kernel, fl_ref_bytes},                              \
                                                     .any = fl_softmax_map_any,                                        \
                                                     .shared16 = true}
OPERATION(SOFTMAX, softmax, FL_PROMISE_DOUBLE, fl_ref_softmax_map);
OPERATION(SOFTMAX_GRAD, softmax_grad, FL_PROMISE_EXACT, fl_ref_softmax_map_grad);
OPERATION(LOG_SOFTMAX, log_softmax, FL_PROMISE_DOUBLE, fl_ref_softmax_map);
OPERATION(LOG_SOFTMAX_GRAD, log_softmax_grad, FL_PROMISE_DOUBLE, fl_ref_softmax_map_grad);

const struct fl_function fl_function_softmax = {.name = "softmax",
                                                .op = FL_OP_SOFTMAX,
                                                .outputs = 1,
                                                FL_OPERANDS_OF(forward_operands),
                                                FL_SCALARS_OF(scalars),
                                                .derive = derive,
                                                .check = check,
                                                .prepare = prepare,
                                                .run = run_masked};
const struct fl_function fl_function_softmax_grad = {.name = "softmax_grad",
                                                     .op = FL_OP_SOFTMAX_GRAD,
                                                     .outputs = 1,
                                                     FL_OPERANDS_OF(backward_operands),
                                                     FL_SCALARS_OF(scalars),
                                                     .derive = derive,
                                                     .check = check,
                                                     .prepare = prepare,
                                                     .run = run_masked};
const struct fl_function fl_function_log_softmax = {.name = "log_softmax",
                                                    .op = FL_OP_LOG_SOFTMAX,
                                                    .outputs = 1,
                                                    FL_OPERANDS_OF(forward_operands),
                                                    .scalar_count = 1, /* without a mask */
                                                    .scalars = scalars,
                                                    .derive = derive,
                                                    .prepare = prepare};
const struct fl_function fl_function_log_softmax_grad = {.name = "log_softmax_grad",
                                                         .op = FL_OP_LOG_SOFTMAX_GRAD,
                                                         .outputs = 1,
                                                         FL_OPERANDS_OF(backward_operands),
                                                         .scalar_count = 1,
                                                         .scalars = scalars,
                                                         .derive = derive,
                                                         .prepare = prepare};

tensor_status tensor_softmax(tensor *y, const tensor *x, float scale, bool causal) {
    return FL_INVOKE(softmax, FL_GIVEN(y, x), FL_REAL(scale), FL_INTEGER(causal));
}
tensor_status tensor_softmax_grad(tensor *dx, const tensor *dy, const tensor *y, float scale, bool causal) {
    return FL_INVOKE(softmax_grad, FL_GIVEN(dx, dy, y), FL_REAL(scale), FL_INTEGER(causal));
}
tensor_status tensor_log_softmax(tensor *y, const tensor *x, float scale) {
    return FL_INVOKE(log_softmax, FL_GIVEN(y, x), FL_REAL(scale));
}
tensor_status tensor_log_softmax_grad(tensor *dx, const tensor *dy, const tensor *y, float scale) {
    return FL_INVOKE(log_softmax_grad, FL_GIVEN(dx, dy, y), FL_REAL(scale));
}
