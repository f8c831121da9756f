/* rows.c - threads over rows: memory, parts, statistics, the write of a row. */
#include "core/rows/rows.h"
#include "autoflex/autoflex_rules.h"
#include "core/base/memory.h"
#include "core/base/parallel.h"
#include <string.h>

enum { PART = 4096 /* the approximate number of elements that a thread takes at a time */ };

static int workers_of(const struct fl_args *args) {
    return args->workers ? args->workers : fl_threads();
}

/* Bytes of a worker: its statistics, then its numbers. */
static size_t own_bytes(const struct fl_rows *rows) {
    return fl_line_bytes(sizeof(struct fl_stats)) + fl_line_bytes((size_t)rows->doubles * sizeof(double));
}

static size_t bytes_of(const struct fl_rows *rows, int workers) {
    return fl_line_bytes(rows->common) + own_bytes(rows) * (size_t)workers;
}

size_t fl_rows_need(const struct fl_rows *rows) {
    return bytes_of(rows, workers_of(rows->args));
}

char *fl_rows_begin(struct fl_rows *rows) {
    rows->workers = workers_of(rows->args);
    return fl_workspace(rows->args, bytes_of(rows, rows->workers));
}

struct job {
    const struct fl_rows *rows;
    char *own;
    size_t bytes;
    int64_t per_part;
};

static void run_part(void *context, int part, int worker) {
    const struct job *job = context;
    char *own = job->own + job->bytes * (size_t)worker;
    double *numbers = (double *)(void *)(own + fl_line_bytes(sizeof(struct fl_stats)));
    const int64_t first = part * job->per_part, all = job->rows->rows;
    const int64_t end = first + job->per_part < all ? first + job->per_part : all;
    for (int64_t row = first; row < end; row++)
        job->rows->run(job->rows, row, numbers, (struct fl_stats *)(void *)own);
}

void fl_rows_run(const struct fl_rows *rows, char *memory) {
    struct job job = {.rows = rows, .own = memory + fl_line_bytes(rows->common), .bytes = own_bytes(rows)};
    const int workers = rows->workers;
    const int64_t least = PART / (rows->width ? rows->width : 1), share = (rows->rows + (1 << 20) - 1) >> 20;
    job.per_part = least > share ? least : share;
    job.per_part = job.per_part > 1 ? job.per_part : 1;
    for (int i = 0; i < workers; i++)
        *(struct fl_stats *)(void *)(job.own + job.bytes * (size_t)i) = (struct fl_stats){0};
    fl_parallel_within(workers, (int)((rows->rows + job.per_part - 1) / job.per_part), run_part, &job);
    for (int i = 0; i < workers; i++)
        fl_stats_merge(rows->args->stats, (struct fl_stats *)(void *)(job.own + job.bytes * (size_t)i));
}

void fl_rows_store(const struct fl_args *args, int64_t first, int64_t n, const double *value, double largest,
                   struct fl_stats *stats) {
    struct fl_stats mine = {0};
    args->format->encode(args->format, &args->out, first, n, value, true, &args->rounding, &mine);
    if (fl_ref_shared(args))
        mine.maximum = largest;
    fl_stats_merge(stats, &mine);
}

double fl_rows_largest(const double *value, int64_t n) {
    double largest = 0;
    for (int64_t i = 0; i < n; i++)
        largest = fabs(value[i]) > largest && fl_is_finite(value[i]) ? fabs(value[i]) : largest;
    return largest;
}

void fl_rows_store_sums(const struct fl_args *args, int64_t first, int64_t n, const struct fl_row_out *out, int e,
                        struct fl_stats *stats) {
    const double most = out->most ? fl_scale2(fl_double_of_128((fl_int128)out->most), -e) : 0;
    fl_rows_store(args, first, n, out->value, most > out->largest ? most : out->largest, stats);
}

#ifdef FL_HAVE_AVX2
#define VECTORS_AVX2 &fl_row_vectors_avx2
#else
#define VECTORS_AVX2 NULL
#endif
#ifdef FL_HAVE_AVX512
#define VECTORS_AVX512BW &fl_row_vectors_avx512bw
#else
#define VECTORS_AVX512BW NULL
#endif

const struct fl_row_vectors *fl_row_vectors_of(enum fl_backend backend) {
    static const struct fl_row_vectors *const all[FL_BACKENDS] = {
        [FL_PORTABLE] = &fl_row_vectors_portable, [FL_AVX2] = VECTORS_AVX2, [FL_AVX512BW] = VECTORS_AVX512BW};
    return all[backend];
}

/* --- with vectors ------------------------------------------------------------------------------------------------- */

enum { FLOATS = 1024 };

/* Conversions for the same instruction set; NULL if the format has none. */
static const struct fl_kernels *conversions(const struct fl_rows *rows) {
    const struct fl_kernels *k = rows->args->format->sets[rows->vectors->backend];
    return k && k->from_floats && k->to_floats ? k : NULL;
}

static void read_floats(const struct fl_rows *rows, const struct fl_view *view, int64_t first, int64_t n, double *to) {
    const struct fl_kernels *k = conversions(rows);
    if (rows->args->format->id == FMT_FP32) {
        rows->vectors->widen_floats(to, (const float *)view->data + first, n);
        return;
    }
    if (!k) {
        rows->args->format->decode(rows->args->format, view, first, n, to);
        for (int64_t i = n; i < fl_row_room(n); i++)
            to[i] = 0;
        return;
    }
    _Alignas(64) float block[FLOATS];
    for (int64_t i = 0; i < n; i += FLOATS) {
        const int64_t length = n - i < FLOATS ? n - i : FLOATS;
        k->to_floats(rows->args->format, view, first + i, length, block, false);
        rows->vectors->widen_floats(to + i, block, length);
    }
}

static void read(const struct fl_rows *rows, int in, int64_t first, int64_t n, double unit, double *to) {
    const struct fl_view *view = &rows->args->in[in];
    if (fl_ref_shared(rows->args))
        rows->vectors->widen_mantissas(to, (const int16_t *)view->data + first, n, unit);
    else
        read_floats(rows, view, first, n, to);
}

void fl_rows_read(const struct fl_rows *rows, int in, int64_t first, int64_t n, double *to) {
    read(rows, in, first, n, 1, to);
}

void fl_rows_read_values(const struct fl_rows *rows, int in, int64_t first, int64_t n, double *to) {
    read(rows, in, first, n, fl_power_of_two(-fl_exponent(&rows->args->in[in])), to);
}

bool fl_rows_convert(const struct fl_rows *rows) {
    return !fl_ref_shared(rows->args) && conversions(rows);
}

void fl_rows_write_floats(const struct fl_rows *rows, int64_t first, int64_t n, const float *value,
                          struct fl_stats *stats) {
    struct fl_stats mine = {0};
    conversions(rows)->from_floats(rows->args->format, &rows->args->out, first, n, value, &rows->args->rounding, &mine);
    fl_stats_merge(stats, &mine);
}

static void write_doubles(const struct fl_rows *rows, int64_t first, int64_t n, const double *value,
                          struct fl_stats *stats) {
    _Alignas(64) float block[FLOATS];
    for (int64_t i = 0; i < n; i += FLOATS) {
        const int64_t length = n - i < FLOATS ? n - i : FLOATS;
        rows->vectors->narrow(block, value + i, length);
        fl_rows_write_floats(rows, first + i, length, block, stats);
    }
}

void fl_rows_write(const struct fl_rows *rows, int64_t first, int64_t n, const double *value, const double *largest,
                   struct fl_stats *stats) {
    const struct fl_args *args = rows->args;
    const bool shared = fl_ref_shared(args);
    if (args->rounding.mode == TENSOR_ROUND_STOCHASTIC || (!shared && !fl_rows_convert(rows))) {
        fl_rows_store(args, first, n, value, largest ? *largest : fl_rows_largest(value, n), stats);
        return;
    }
    if (!shared) {
        write_doubles(rows, first, n, value, stats);
        return;
    }
    struct fl_stats mine = {0};
    int16_t *dst = args->out.data ? (int16_t *)args->out.data + first : NULL;
    rows->vectors->store(dst, n, value, fl_power_of_two(fl_exponent(&args->out)), &mine);
    mine.maximum = largest ? *largest : mine.maximum;
    fl_stats_merge(stats, &mine);
}

void fl_rows_write_zeros(const struct fl_rows *rows, int64_t first, int64_t n) {
    const size_t bytes = (size_t)rows->args->format->bytes;
    if (rows->args->out.data)
        memset((char *)rows->args->out.data + (size_t)first * bytes, 0, (size_t)n * bytes);
}

/* --- estimates ---------------------------------------------------------------------------------------------------- */

bool fl_rows_take_estimates(const struct fl_rows *rows) {
    return fl_ref_shared(rows->args) && rows->args->rounding.mode == TENSOR_ROUND_NEAREST;
}

/* The largest |result|, rounded to nearest: it computes the exact results of all that may be the largest. */
static double exact_maximum(int64_t n, const struct fl_row_estimates *row, fl_exact_result exact, const void *of) {
    double least = 0, largest = 0;
    for (int64_t c = 0; c < n; c++) {
        const double size = fabs(row->value[c]) - row->size[c] * 0x1p-50;
        least = size > least ? size : least;
    }
    for (int64_t c = 0; c < n; c++) {
        if (fabs(row->value[c]) + row->size[c] * 0x1p-50 < least)
            continue;
        const double size = fl_wide_abs(exact(of, c));
        largest = size > largest ? size : largest;
    }
    return largest;
}

bool fl_rows_write_estimates(const struct fl_rows *rows, int64_t first, int64_t n, const struct fl_row_estimates *row,
                             fl_exact_result exact, const void *of, struct fl_stats *stats) {
    const struct fl_view *out = &rows->args->out;
    struct fl_row_rounded rounded;
    if (!rows->vectors->round(out->data ? (int16_t *)out->data + first : NULL, n, row, &rounded))
        return false;
    stats->gamma = rounded.gamma > stats->gamma ? rounded.gamma : stats->gamma;
    stats->saturated += rounded.saturated;
    stats->flushed += rounded.flushed;
    if (rounded.most * fl_power_of_two(-fl_exponent(out)) > stats->maximum) {
        const double largest = exact_maximum(n, row, exact, of);
        stats->maximum = largest > stats->maximum ? largest : stats->maximum;
    }
    return true;
}

/* --- copied elements ---------------------------------------------------------------------------------------------- */

/* Stores the copy through the codec. */
static void place_decoded(const struct fl_rows *rows, int in, int64_t first, int64_t n, const void *raw, double *own,
                          struct fl_stats *stats) {
    const struct fl_view copy = {.data = (void *)(uintptr_t)raw, .e = rows->args->in[in].e, .count = n};
    rows->args->format->decode(rows->args->format, &copy, 0, n, own);
    fl_rows_store(rows->args, first, n, own, fl_rows_largest(own, n), stats);
}

/* Updates the statistics of copied floats. False, with nothing changed, for a NaN or Inf, which must be quieted and
 * counted. */
static bool place_floats(const struct fl_rows *rows, int64_t n, const void *raw, struct fl_stats *stats) {
    const struct fl_format *f = rows->args->format;
    if (f->element || (f->bytes != 2 && f->bytes != 4))
        return false;
    uint32_t word = f->bytes == 4 ? rows->vectors->largest_word32(raw, n) : rows->vectors->largest_word16(raw, n);
    uint16_t half = (uint16_t)word;
    const struct fl_view view = {.data = f->bytes == 4 ? (void *)&word : (void *)&half, .count = 1};
    double largest;
    f->decode(f, &view, 0, 1, &largest);
    if (!fl_is_finite(largest))
        return false;
    stats->maximum = largest > stats->maximum ? largest : stats->maximum;
    return true;
}

void fl_rows_place(const struct fl_rows *rows, int in, int64_t first, int64_t n, void *raw, double *own,
                   struct fl_stats *stats) {
    const struct fl_args *args = rows->args;
    if (!fl_ref_shared(args)) {
        if (!place_floats(rows, n, raw, stats))
            place_decoded(rows, in, first, n, raw, own, stats);
        return;
    }
    const int e = fl_exponent(&args->in[in]), finer = fl_exponent(&args->out) - e;
    if (finer < 0 && args->rounding.mode == TENSOR_ROUND_STOCHASTIC) {
        place_decoded(rows, in, first, n, raw, own, stats);
        return;
    }
    const double largest = fl_scale2(rows->vectors->rescale(raw, n, finer, stats), -e);
    stats->maximum = largest > stats->maximum ? largest : stats->maximum;
}
