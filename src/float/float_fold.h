/* float_fold.h - sums over the rows of [m, n], and the largest magnitude.
 *
 * A sum is a binary32 chain over each chunk of FL_ROWS_CHUNK rows, row ascending from 0, and the chunk sums are added
 * in order in double. Chunks are the units of parallel work.
 *
 * Expects: a codec (float_block.h).
 * Gives: fold, fold_rows, sum_rows, channel_sums, max_abs. */
#ifndef FL_FLOAT_FOLD_H
#define FL_FLOAT_FOLD_H

#include "float/float_channel.h"

/* s1[c] += x[row][c], s2[c] = fma(x, z, s2[c]) over consecutive rows of n channels; s2 NULL: only the first sum. Eight
 * rows at once leave the running sums in registers; the order along a channel is unchanged. */
static inline __attribute__((always_inline)) void add_rows(const float *x, const float *z, int64_t rows, int64_t n,
                                                           float *restrict s1, float *restrict s2) {
    enum { ROWS = 8 };
    int64_t row = 0;
    for (; row + ROWS <= rows; row += ROWS, x += ROWS * n, z += ROWS * n)
        FL_INDEPENDENT
    for (int64_t c = 0; c < n; c++) {
        float sum = s1[c], products = s2 ? s2[c] : 0;
        for (int r = 0; r < ROWS; r++) {
            sum += x[r * n + c];
            if (s2)
                products = fmaf(x[r * n + c], z[r * n + c], products);
        }
        s1[c] = sum;
        if (s2)
            s2[c] = products;
    }
    for (; row < rows; row++, x += n, z += n)
        for (int64_t c = 0; c < n; c++) {
            s1[c] += x[c];
            if (s2)
                s2[c] = fmaf(x[c], z[c], s2[c]);
        }
}

static void add_sums(const float *x, int64_t rows, int64_t n, float *s1) {
    add_rows(x, x, rows, n, s1, NULL);
}

static void add_sums_and_products(const float *x, const float *z, int64_t rows, int64_t n, float *s1, float *s2) {
    add_rows(x, z, rows, n, s1, s2);
}

/* The operands of a fold over rows of n channels: sum of x for which mask (if any) is positive; sum of that times z (if
 * any; z may be x). */
struct fold {
    const fl_element *x, *z, *mask;
    int64_t n;
};

/* Adds rows first ... first+rows-1, channels c0 ... c0+channels-1, to s1 and s2 (NULL without z). channels is n, or at
 * most FLOAT_BLOCK. */
static void fold_rows(const struct fold *f, int64_t first, int64_t rows, int64_t c0, int64_t channels, float *s1,
                      float *s2) {
    float buffer_x[FLOAT_BLOCK], buffer_z[FLOAT_BLOCK];
    const int64_t step = channels == f->n ? FLOAT_BLOCK / channels : 1; /* contiguous rows */
    for (int64_t row = first; row < first + rows; row += step) {
        const int64_t k = float_min(step, first + rows - row), at = row * f->n + c0, n = k * channels;
        const float *x = floats_of(f->x + at, n, buffer_x);
        if (f->mask)
            x = masked_block(n, x, floats_of(f->mask + at, n, buffer_z), buffer_x);
        if (!f->z)
            add_sums(x, k, channels, s1);
        else
            add_sums_and_products(x, f->z == f->x && !f->mask ? x : floats_of(f->z + at, n, buffer_z), k, channels, s1,
                                  s2);
    }
}

/* The sums of every chunk: chunk k's first sums at sums + k * count * n, its second ones n floats further. */
struct chunk_sums {
    struct fold fold;
    float *sums;
    int64_t rows;
    int count; /* 1, or 2 with products */
};

static void chunk_range(const struct fl_args *args, const void *context, int64_t first, int64_t end,
                        struct fl_stats *stats) {
    (void)args, (void)stats;
    const struct chunk_sums *c = context;
    const int64_t n = c->fold.n;
    memset(c->sums + first * c->count * n, 0, (size_t)((end - first) * c->count * n) * sizeof *c->sums);
    for (int64_t chunk = first; chunk < end; chunk++) {
        const int64_t row = chunk * FL_ROWS_CHUNK, rows = float_min(FL_ROWS_CHUNK, c->rows - row);
        float *s1 = c->sums + chunk * c->count * n, *s2 = c->count == 2 ? s1 + n : NULL;
        for (int64_t c0 = 0; c0 < n; c0 += FLOAT_BLOCK)
            fold_rows(&c->fold, row, rows, c0, float_min(FLOAT_BLOCK, n - c0), s1 + c0, s2 ? s2 + c0 : NULL);
    }
}

/* Workspace of sum_rows, channel_sums and channel_grad_sums: the sums of all chunks. */
static size_t chunk_need(const struct fl_args *args) {
    const int64_t chunks = (args->p.rows.m + FL_ROWS_CHUNK - 1) / FL_ROWS_CHUNK;
    return (size_t)(chunks * (args->op == FL_OP_SUM_ROWS ? 1 : 2) * args->p.rows.n) * sizeof(float);
}

/* Fills c->sums, in the workspace. */
static tensor_status sum_chunks(const struct fl_args *args, struct chunk_sums *c) {
    const int64_t n = c->fold.n, chunks = (c->rows + FL_ROWS_CHUNK - 1) / FL_ROWS_CHUNK;
    c->sums = fl_workspace(args, chunk_need(args));
    if (!c->sums)
        return TENSOR_E_MEMORY;
    return run_parts(args, chunks, FL_ROWS_CHUNK * n, chunk_range, c);
}

/* The sum of one channel: its chunk sums in order. */
static double chunk_total(const struct chunk_sums *c, int which, int64_t channel) {
    const int64_t chunks = (c->rows + FL_ROWS_CHUNK - 1) / FL_ROWS_CHUNK;
    double total = 0;
    for (int64_t k = 0; k < chunks; k++)
        total += (double)c->sums[(k * c->count + which) * c->fold.n + channel];
    return total;
}

static tensor_status sum_rows(const struct fl_args *args) {
    struct chunk_sums c = {.fold = {.x = args->in[0].data, .n = args->p.rows.n}, .rows = args->p.rows.m, .count = 1};
    tensor_status status = sum_chunks(args, &c);
    double sums[FLOAT_BLOCK];
    for (int64_t first = 0; !status && first < c.fold.n; first += FLOAT_BLOCK) {
        const int64_t n = float_min(FLOAT_BLOCK, c.fold.n - first);
        for (int64_t i = 0; i < n; i++)
            sums[i] = chunk_total(&c, 0, first + i);
        store_doubles(args, first, n, sums, args->stats);
    }
    return status;
}

static tensor_status channel_sums(const struct fl_args *args) {
    struct chunk_sums c = {.rows = args->p.rows.m, .count = 2};
    if (args->op == FL_OP_CHANNEL_GRAD_SUMS)
        c.fold = (struct fold){args->in[0].data, args->in[1].data, args->in[2].data, args->p.rows.n};
    else
        c.fold = (struct fold){args->in[0].data, args->in[0].data, NULL, args->p.rows.n};
    tensor_status status = sum_chunks(args, &c);
    for (int which = 0; !status && which < 2; which++)
        for (int64_t channel = 0; channel < c.fold.n; channel++)
            args->p.batch_norm.sums.f[which][channel] = chunk_total(&c, which, channel);
    return status;
}

static void max_abs_range(const struct fl_args *args, const void *context, int64_t first, int64_t end,
                          struct fl_stats *stats) {
    (void)context;
    const fl_element *x = args->in[0].data;
    float buffer[FLOAT_BLOCK];
    for (int64_t i = first; i < end; i += FLOAT_BLOCK) {
        const int64_t n = float_min(FLOAT_BLOCK, end - i);
        count_block(floats_of(x + i, n, buffer), n, UINT32_MAX, 0, stats); /* no limits: only the maximum */
    }
}

static tensor_status max_abs(const struct fl_args *args) {
    return run_parts(args, args->in[0].count, 1, max_abs_range, NULL);
}

#endif
