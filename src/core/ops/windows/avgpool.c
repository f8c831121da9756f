/* avgpool.c - average pooling by windows of one size and by as many windows as the output has places, and the
 * gradients: reference kernels, kernels of image lines in threads for every format. */
#include "core/ops/windows/pool_rules.h"
#include "core/rows/rows.h"

static bool is_gradient(enum fl_op op) {
    return op == FL_OP_AVGPOOL2D_GRAD || op == FL_OP_AVGPOOL_ADAPTIVE_GRAD;
}

/* --- the definition ----------------------------------------------------------------------------------------------- */

static void keep(const struct ref_work *w, int64_t i, struct fl_wide_sum sum) {
    w->value[i] = fl_wide_odd(sum);
    w->near[i] = fl_wide_abs(sum);
}

static int64_t mantissa(double x, double unit) {
    return (int64_t)(x * unit);
}

/* Computes output i, the mean of window p, q. */
static void mean_of_window(const struct ref_work *w, int64_t i, int64_t n, int64_t p, int64_t q, int64_t c) {
    const struct fl_windows *g = &w->args->p.pooling.windows;
    const struct fl_pool_side down = fl_pool_down(&w->args->p.pooling), across = fl_pool_across(&w->args->p.pooling);
    const struct fl_span y = fl_pool_inside(&down, p), z = fl_pool_inside(&across, q);
    const int64_t count = fl_pool_count(&down, p) * fl_pool_count(&across, q);
    const int e = fl_exponent(&w->args->in[0]);
    const double unit = fl_scale2(1, e);
    fl_int128 sum = 0;
    double total = 0;
    float chain = 0;
    int64_t taken = 0;
    for (int64_t a = y.from; a < y.to; a++)
        for (int64_t b = z.from; b < z.to; b++, taken++) {
            const double x = w->in[0][((n * g->h + a) * g->w + b) * g->c + c];
            if (fl_ref_shared(w->args)) {
                sum += mantissa(x, unit);
                continue;
            }
            if (taken && taken % FL_ROWS_CHUNK == 0) {
                total += chain;
                chain = 0;
            }
            chain += (float)x;
        }
    if (fl_ref_shared(w->args))
        keep(w, i, fl_pool_mean(sum, count, e));
    else
        w->value[i] = (total + chain) / (double)count;
}

/* Computes element i of the gradient, at pixel a, b. */
static void share_of_pixel(const struct ref_work *w, int64_t i, int64_t n, int64_t a, int64_t b, int64_t c) {
    const struct fl_windows *g = &w->args->p.pooling.windows;
    const struct fl_pool_side down = fl_pool_down(&w->args->p.pooling), across = fl_pool_across(&w->args->p.pooling);
    const struct fl_span p = fl_pool_windows(&down, a), q = fl_pool_windows(&across, b);
    const int e = fl_exponent(&w->args->in[0]);
    const double unit = fl_scale2(1, e);
    fl_int128 sum = 0;
    double total = 0;
    for (int64_t j = p.from; j < p.to; j++)
        for (int64_t k = q.from; k < q.to; k++) {
            const double dy = w->in[0][((n * g->p + j) * g->q + k) * g->c + c];
            const int64_t high = fl_pool_count(&down, j), wide = fl_pool_count(&across, k);
            if (fl_ref_shared(w->args))
                sum += (fl_int128)mantissa(dy, unit) * (down.common / high * (across.common / wide));
            else
                total += dy / (double)(high * wide);
        }
    if (fl_ref_shared(w->args))
        keep(w, i, fl_pool_mean(sum, down.common * across.common, e));
    else
        w->value[i] = total;
}

tensor_status fl_ref_avgpool_window(const struct fl_args *args) {
    struct ref_work w;
    const tensor_status status = fl_ref_begin(&w, args);
    if (status)
        return status;
    const struct fl_windows *g = &args->p.pooling.windows;
    const bool gradient = is_gradient(args->op);
    const int64_t lines = gradient ? g->h : g->p, columns = gradient ? g->w : g->q;
    int64_t i = 0;
    for (int64_t n = 0; n < g->batch; n++)
        for (int64_t line = 0; line < lines; line++)
            for (int64_t column = 0; column < columns; column++)
                for (int64_t c = 0; c < g->c; c++, i++) {
                    if (gradient)
                        share_of_pixel(&w, i, n, line, column, c);
                    else
                        mean_of_window(&w, i, n, line, column, c);
                }
    fl_ref_end(&w);
    return TENSOR_OK;
}

/* --- lines of images in threads ----------------------------------------------------------------------------------- */

/* Replaces the integers in `value` by value / count at exponent e; returns the largest magnitude. */
static double divide(const struct fl_rows *rows, double *value, int64_t n, double count, int e) {
    const double unit = fl_scale2(1, -e);
    return rows->vectors->divide_odd(value, n, count, unit) * unit;
}

/* Sums of float formats, in chains of FL_ROWS_CHUNK. */
static void add_to_chain(double *total, double *chain, const double *x, int64_t channels, int64_t taken) {
    if (taken && taken % FL_ROWS_CHUNK == 0)
        for (int64_t c = 0; c < channels; c++) {
            total[c] += chain[c];
            chain[c] = 0;
        }
    for (int64_t c = 0; c < channels; c++)
        chain[c] = (float)chain[c] + (float)x[c];
}

/* The means of a line of windows. own: a line of x, sums, chains. */
static void forward_line(const struct fl_rows *rows, int64_t row, double *own, struct fl_stats *stats) {
    const struct fl_args *args = rows->args;
    const struct fl_windows *g = &args->p.pooling.windows;
    const struct fl_pool_side down = fl_pool_down(&args->p.pooling), across = fl_pool_across(&args->p.pooling);
    const int64_t p = row % g->p, line = g->w * g->c, outputs = g->q * g->c;
    const bool shared = fl_ref_shared(args);
    const struct fl_span y = fl_pool_inside(&down, p);
    double *x = own, *total = x + fl_row_room(line), *chain = total + fl_row_room(outputs), largest = 0;
    memset(total, 0, (size_t)(2 * fl_row_room(outputs)) * sizeof *total);
    for (int64_t a = y.from; a < y.to; a++) {
        fl_rows_read(rows, 0, (row / g->p * g->h + a) * line, line, x);
        for (int64_t q = 0; q < g->q; q++) {
            const struct fl_span z = fl_pool_inside(&across, q);
            int64_t taken = (a - y.from) * (z.to - z.from);
            for (int64_t b = z.from; b < z.to; b++, taken++) {
                const double *pixel = x + b * g->c;
                double *sum = total + q * g->c;
                if (!shared)
                    add_to_chain(sum, chain + q * g->c, pixel, g->c, taken);
                for (int64_t c = 0; shared && c < g->c; c++)
                    sum[c] += pixel[c];
            }
        }
    }
    for (int64_t q = 0; q < g->q; q++) {
        const double count = (double)(fl_pool_count(&down, p) * fl_pool_count(&across, q));
        double *sum = total + q * g->c;
        if (shared) {
            const double most = divide(rows, sum, g->c, count, fl_exponent(&args->in[0]));
            largest = most > largest ? most : largest;
        }
        for (int64_t c = 0; !shared && c < g->c; c++)
            sum[c] = (sum[c] + chain[q * g->c + c]) / count;
    }
    fl_rows_write(rows, row * outputs, outputs, total, &largest, stats);
}

/* The gradient of a line of pixels. own: a line of dy, sums. */
static void backward_line(const struct fl_rows *rows, int64_t row, double *own, struct fl_stats *stats) {
    const struct fl_args *args = rows->args;
    const struct fl_windows *g = &args->p.pooling.windows;
    const struct fl_pool_side down = fl_pool_down(&args->p.pooling), across = fl_pool_across(&args->p.pooling);
    const int64_t line = g->w * g->c, outputs = g->q * g->c;
    const bool shared = fl_ref_shared(args);
    const struct fl_span p = fl_pool_windows(&down, row % g->h);
    double *dy = own, *sum = own + fl_row_room(outputs), largest = 0;
    memset(sum, 0, (size_t)line * sizeof *sum);
    for (int64_t j = p.from; j < p.to; j++) {
        const int64_t high = fl_pool_count(&down, j);
        fl_rows_read(rows, 0, (row / g->h * g->p + j) * outputs, outputs, dy);
        for (int64_t b = 0; b < g->w; b++) {
            const struct fl_span q = fl_pool_windows(&across, b);
            double *pixel = sum + b * g->c;
            for (int64_t k = q.from; k < q.to; k++) {
                const int64_t wide = fl_pool_count(&across, k);
                const double *window = dy + k * g->c,
                             weight = shared ? (double)(down.common / high * (across.common / wide)) : 0,
                             count = (double)(high * wide);
                for (int64_t c = 0; c < g->c; c++)
                    pixel[c] += shared ? window[c] * weight : window[c] / count;
            }
        }
    }
    if (shared)
        largest = divide(rows, sum, line, (double)(down.common * across.common), fl_exponent(&args->in[0]));
    fl_rows_write(rows, row * line, line, sum, &largest, stats);
}

/* The largest number of windows that contain a position. */
static double most_windows(const struct fl_pool_side *side) {
    return side->window ? (double)((side->window - 1) / side->stride + 1) : (double)(side->windows / side->length + 2);
}

/* Whether every sum of mantissas, of a gradient times its weights, is an integer below 2^53. */
static bool fits_doubles(const struct fl_args *args) {
    const struct fl_pool_side down = fl_pool_down(&args->p.pooling), across = fl_pool_across(&args->p.pooling);
    if (!fl_ref_shared(args))
        return true;
    if (!is_gradient(args->op))
        return (double)down.length * (double)across.length < 0x1p37;
    return (double)(down.common * across.common) * most_windows(&down) * most_windows(&across) < 0x1p37;
}

static struct fl_rows lines_of(const struct fl_args *args) {
    const struct fl_windows *g = &args->p.pooling.windows;
    const bool gradient = is_gradient(args->op);
    return (struct fl_rows){.args = args,
                            .rows = g->batch * (gradient ? g->h : g->p),
                            .width = gradient ? g->w * g->c : g->q * g->c,
                            .doubles = fl_row_room(g->w * g->c) + (gradient ? 1 : 2) * fl_row_room(g->q * g->c),
                            .run = gradient ? backward_line : forward_line};
}

static size_t need(const struct fl_args *args) {
    const struct fl_rows rows = lines_of(args);
    return fits_doubles(args) ? fl_rows_need(&rows) : fl_ref_bytes(args);
}

static tensor_status avgpool(const struct fl_args *args, const struct fl_row_vectors *vectors) {
    struct fl_rows rows = lines_of(args);
    rows.vectors = vectors;
    if (!fits_doubles(args))
        return fl_ref_avgpool_window(args);
    char *memory = fl_rows_begin(&rows);
    if (!memory)
        return TENSOR_E_MEMORY;
    fl_rows_run(&rows, memory);
    return TENSOR_OK;
}

FL_ROWS_TABLE(, fl_avgpool_kernels, avgpool, need)

/* --- divisors of gradients ---------------------------------------------------------------------------------------- */

static int64_t greatest_divisor(int64_t a, int64_t b) {
    while (b) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

int64_t fl_pool_common(const struct fl_pool_side *side) {
    int64_t common = 1;
    for (int64_t i = 0; i < side->windows && common <= FL_POOL_DENOMINATOR_LIMIT; i++) {
        const int64_t count = fl_pool_count(side, i), factor = count / greatest_divisor(common, count);
        common = factor <= FL_POOL_DENOMINATOR_LIMIT / common ? common * factor : FL_POOL_DENOMINATOR_LIMIT + 1;
        if (side->padding_counts && side->window)
            break; /* all have the same divisor */
    }
    return common;
}
