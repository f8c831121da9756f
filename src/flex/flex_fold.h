/* flex_fold.h - sums over the rows of a matrix [m, n], exact, and the largest mantissa.
 *
 * A part of the rows is summed in accumulators of a block of columns (of several rows if channels are few), which are
 * added to 64-bit sums of the channels of this part; the sums of the parts are added at the end. If there is a
 * multiply-add of pairs of mantissas, two rows are added at once.
 *
 * Gives: channel_sums, sum_rows, max_abs. */
#ifndef FL_FLEX_FOLD_H
#define FL_FLEX_FOLD_H

#include "flex/flex_pairs.h"
#include "flex/flex_parts.h"
#include "flex/flex_store.h"

enum {
    FOLD_PARTS = 32,    /* most parts: each has its own sums */
    FOLD_FLUSH = 32768, /* rows whose plain sum fits 32 bits */
    FOLD_TILE =
        16384 /* elements of the rows of a tile, which remain in the cache while the vectors of a period are computed */
};

struct fold {
    const struct fl_args *args;
    int64_t period, per_part; /* elements */
    int64_t *sums;            /* of each part: n sums of x, then n sums of products if wanted */
    bool products;
};

/* first[i] += d[i], and product[i] += d[i] * x[i], over `rows` lines of n elements, `stride` elements apart. d counts
 * only if mask is above zero (NULL: always). */
static void fold_plain(int32_t *first, int64_t n, int64_t rows, int64_t stride, const int16_t *x) {
    for (int64_t r = 0; r < rows; r++, x += stride)
        for (int64_t i = 0; i < n; i++)
            first[i] += x[i];
}

static void fold_square(int32_t *first, int64_t *product, int64_t n, int64_t rows, int64_t stride, const int16_t *x) {
    int64_t r = 0;
    for (; r + 2 <= rows; r += 2, x += 2 * stride) {
        const int16_t *y = x + stride;
        for (int64_t i = 0; i < n; i++) {
            first[i] += x[i] + y[i];
            product[i] += (uint32_t)((int32_t)x[i] * x[i]) + (uint32_t)((int32_t)y[i] * y[i]); /* at most 2^31 */
        }
    }
    for (; r < rows; r++, x += stride)
        for (int64_t i = 0; i < n; i++) {
            first[i] += x[i];
            product[i] += (int32_t)x[i] * x[i];
        }
}

static void fold_product(int32_t *first, int64_t *product, int64_t n, int64_t rows, int64_t stride, const int16_t *d,
                         const int16_t *x) {
    for (int64_t r = 0; r < rows; r++, d += stride, x += stride)
        for (int64_t i = 0; i < n; i++) {
            first[i] += d[i];
            product[i] += (int32_t)d[i] * x[i];
        }
}

static void fold_masked(int32_t *first, int64_t *product, int64_t n, int64_t rows, int64_t stride, const int16_t *d,
                        const int16_t *x, const int16_t *mask) {
    for (int64_t r = 0; r < rows; r++, d += stride, x += stride, mask += stride)
        for (int64_t i = 0; i < n; i++) {
            const int16_t v = d[i] & -(mask[i] > 0); /* no conditional load */
            first[i] += v;
            product[i] += (int32_t)v * x[i];
        }
}

static void fold_lines(const struct fl_args *args, int32_t *first, int64_t *product, int64_t at, int64_t n,
                       int64_t rows, int64_t stride) {
    const int16_t *d = element(&args->in[0], at);
    if (args->op == FL_OP_SUM_ROWS)
        fold_plain(first, n, rows, stride, d);
    else if (args->op == FL_OP_CHANNEL_SUMS)
        fold_square(first, product, n, rows, stride, d);
    else if (!args->in[2].data)
        fold_product(first, product, n, rows, stride, d, element(&args->in[1], at));
    else
        fold_masked(first, product, n, rows, stride, d, element(&args->in[1], at), element(&args->in[2], at));
}

#ifdef FLEX_PAIRS

enum fold_kind { FOLD_PLAIN, FOLD_SQUARE, FOLD_PRODUCT, FOLD_MASKED };

static int64_t fold_period(int64_t channels) {
    int64_t period = channels;
    while (period % GROUP)
        period *= 2;
    return period;
}

/* Sums one vector of columns, the first of channel `column`, over the rows from element `at` on.
 *
 * A sum of products of two rows is at most 2^31 in size, and only 2^31 itself wraps: less one, it never does. `low` has
 * the last 32 bits of their sum, and `high` sums all but the last 16 bits of each. Together they determine it: sum -
 * 2^16 high is from 0 to below 2^16 for each pair of rows. */
static inline __attribute__((always_inline)) void fold_columns(const struct fl_args *args, int64_t *sums,
                                                               int64_t *products, int64_t column, int64_t at,
                                                               int64_t rows, int64_t stride, enum fold_kind kind) {
    const int16_t *d = element(&args->in[0], at), *x = element(&args->in[1], at), *mask = element(&args->in[2], at);
    const mantissas ones = mantissas_all(1), zeros = mantissas_all(0);
    pairs first[2] = {{0}}, high[2] = {{0}};
    upairs low[2] = {{0}};
    const int64_t ahead = rows * stride;
    for (int64_t row = 0; row < rows; row += 2) {
        const int64_t here = row * stride, next = here + stride;
        for (int64_t next_tile = here + ahead; next_tile <= next + ahead; next_tile += stride) {
            __builtin_prefetch(d + next_tile, 0, 2);
            if (kind >= FOLD_PRODUCT)
                __builtin_prefetch(x + next_tile, 0, 2);
            if (kind == FOLD_MASKED)
                __builtin_prefetch(mask + next_tile, 0, 2);
        }
        mantissas d0 = kind == FOLD_MASKED ? mantissas_gated(d + here, mask + here) : mantissas_at(d + here),
                  d1 = zeros;
        mantissas x0 = zeros, x1 = zeros;
        if (kind >= FOLD_PRODUCT)
            x0 = mantissas_at(x + here);
        if (row + 1 < rows) {
            d1 = kind == FOLD_MASKED ? mantissas_gated(d + next, mask + next) : mantissas_at(d + next);
            if (kind >= FOLD_PRODUCT)
                x1 = mantissas_at(x + next);
        }
        for (int k = 0; k < 2; k++) {
            const mantissas both = k ? pairs_high(d0, d1) : pairs_low(d0, d1);
            first[k] += pairs_product(both, ones);
            if (kind == FOLD_PLAIN)
                continue;
            const mantissas other = kind == FOLD_SQUARE ? both : k ? pairs_high(x0, x1) : pairs_low(x0, x1);
            const upairs product = (upairs)pairs_product(both, other) - 1;
            low[k] += product;
            high[k] += (pairs)product >> 16;
        }
    }
    int32_t kept[3][2][PAIRS];
    for (int k = 0; k < 2; k++) {
        pairs_keep(kept[0][k], first[k]);
        pairs_keep(kept[1][k], (pairs)low[k]);
        pairs_keep(kept[2][k], high[k]);
    }
    const int64_t channels = args->p.rows.n, count = (rows + 1) / 2;
    for (int64_t i = 0, c = column; i < GROUP; i++, c = c + 1 < channels ? c + 1 : 0) {
        const int64_t k = i / 4 % 2, l = i / 8 * 4 + i % 4;
        sums[c] += kept[0][k][l];
        if (kind != FOLD_PLAIN) {
            const uint32_t above = (uint32_t)kept[1][k][l] - ((uint32_t)kept[2][k][l] << 16);
            products[c] += kept[2][k][l] * (int64_t)65536 + above + count;
        }
    }
}

/* Sums whole periods from element `at` on; returns the beginning of the rest. */
static int64_t fold_tiles(const struct fl_args *args, int64_t *sums, int64_t *products, int64_t at, int64_t end,
                          int64_t period) {
    const int64_t channels = args->p.rows.n;
    const enum fold_kind kind = args->op == FL_OP_SUM_ROWS       ? FOLD_PLAIN
                                : args->op == FL_OP_CHANNEL_SUMS ? FOLD_SQUARE
                                : !args->in[2].data              ? FOLD_PRODUCT
                                                                 : FOLD_MASKED;
    const int64_t most = period < FOLD_TILE / 64 ? FOLD_TILE / period : 64; /* rows of a tile */
    while (end - at >= period) {
        const int64_t rows = minimum((end - at) / period, most);
        for (int64_t j = 0; j < period; j += GROUP) {
            const int64_t column = j % channels;
            if (kind == FOLD_PLAIN)
                fold_columns(args, sums, products, column, at + j, rows, period, FOLD_PLAIN);
            else if (kind == FOLD_SQUARE)
                fold_columns(args, sums, products, column, at + j, rows, period, FOLD_SQUARE);
            else if (kind == FOLD_PRODUCT)
                fold_columns(args, sums, products, column, at + j, rows, period, FOLD_PRODUCT);
            else
                fold_columns(args, sums, products, column, at + j, rows, period, FOLD_MASKED);
        }
        at += rows * period;
    }
    return at;
}

#else

static int64_t fold_period(int64_t channels) {
    return period_of(channels);
}

static int64_t fold_tiles(const struct fl_args *args, int64_t *sums, int64_t *products, int64_t at, int64_t end,
                          int64_t period) {
    (void)args, (void)sums, (void)products, (void)end, (void)period;
    return at;
}

#endif

static void fold_part(void *context, int part, int worker) {
    (void)worker;
    const struct fold *f = context;
    const int64_t channels = f->args->p.rows.n, count = f->args->in[0].count;
    int64_t *sums = f->sums + part * channels * (f->products ? 2 : 1), *products = sums + channels;
    memset(sums, 0, (size_t)channels * (f->products ? 2 : 1) * sizeof *sums);
    const int64_t end = minimum((part + 1) * f->per_part, count);
    int64_t at = part * f->per_part;
    at = fold_tiles(f->args, sums, products, at, end, f->period);
    while (at < end) {
        int64_t lines = minimum((end - at) / f->period, FOLD_FLUSH);
        const int64_t line = lines ? f->period : end - at; /* the last one may have fewer rows */
        lines = lines ? lines : 1;
        for (int64_t column = 0; column < line; column += FLEX_BLOCK) {
            int32_t first[FLEX_BLOCK] = {0};
            int64_t product[FLEX_BLOCK] = {0};
            const int64_t n = minimum(line - column, FLEX_BLOCK);
            fold_lines(f->args, first, product, at + column, n, lines, f->period);
            for (int64_t i = 0, c = column % channels; i < n; i++, c = c + 1 < channels ? c + 1 : 0) {
                sums[c] += first[i];
                if (f->products)
                    products[c] += product[i];
            }
        }
        at += lines * line;
    }
}

/* Divides the reduction into parts, and returns their number. */
static int plan_fold(struct fold *f, const struct fl_args *args, bool products) {
    const int64_t count = args->in[0].count;
    *f = (struct fold){.args = args, .period = fold_period(args->p.rows.n), .products = products};
    f->per_part = part_size(count, f->period, FOLD_PARTS);
    return (int)((count + f->per_part - 1) / f->per_part);
}

/* The bytes of the sums of all parts. */
static size_t fold_bytes(const struct fl_args *args, bool products) {
    struct fold f;
    const int parts = plan_fold(&f, args, products);
    return (size_t)(parts * args->p.rows.n) * (products ? 2 : 1) * sizeof *f.sums;
}

/* Sums over all rows into sums (and products, unless NULL), n entries each. memory: fold_bytes. */
static void fold(const struct fl_args *args, int64_t *sums, int64_t *products, void *memory) {
    const int64_t channels = args->p.rows.n;
    struct fold f;
    const int parts = plan_fold(&f, args, products != NULL);
    f.sums = memory;
    fl_parallel(parts, fold_part, &f);
    memset(sums, 0, (size_t)channels * sizeof *sums);
    if (products)
        memset(products, 0, (size_t)channels * sizeof *products);
    for (int part = 0; part < parts; part++) {
        const int64_t *from = f.sums + part * channels * (products ? 2 : 1);
        for (int64_t c = 0; c < channels; c++) {
            sums[c] += from[c];
            if (products)
                products[c] += from[channels + c];
        }
    }
}

/* channel_sums, channel_grad_sums */
static size_t channel_sums_need(const struct fl_args *args) {
    return fold_bytes(args, true);
}

static tensor_status channel_sums(const struct fl_args *args) {
    void *memory = fl_workspace(args, channel_sums_need(args));
    if (!memory)
        return TENSOR_E_MEMORY;
    fold(args, args->p.batch_norm.sums.i[0], args->p.batch_norm.sums.i[1], memory);
    return TENSOR_OK;
}

static size_t sum_rows_need(const struct fl_args *args) {
    return fl_line_bytes((size_t)args->p.rows.n * sizeof(int64_t)) + fold_bytes(args, false);
}

static tensor_status sum_rows(const struct fl_args *args) {
    int64_t *sums = fl_workspace(args, sum_rows_need(args));
    if (!sums)
        return TENSOR_E_MEMORY;
    fold(args, sums, NULL, (char *)sums + fl_line_bytes((size_t)args->p.rows.n * sizeof *sums));
    struct flex_stats stats = {0};
    store_block(args->out.data, 0, args->p.rows.n, sums, fl_exponent(&args->in[0]) - fl_exponent(&args->out),
                &args->rounding, &stats);
    flex_stats_finish(&stats, fl_exponent(&args->in[0]), args->stats);
    return TENSOR_OK;
}

static void max_abs_run(const struct fl_args *args, const void *plan, int64_t first, int64_t end,
                        struct fl_stats *stats) {
    (void)plan;
    const int16_t *x = args->in[0].data;
    int16_t low = 0, high = 0;
    for (int64_t i = first; i < end; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
    }
    const int32_t size = -low > high ? -low : high;
    stats->maximum = ldexp(size, -fl_exponent(&args->in[0]));
}

static tensor_status max_abs(const struct fl_args *args) {
    run_parts(args, NULL, max_abs_run, args->in[0].count, FLEX_BLOCK);
    return TENSOR_OK;
}

#endif
