/* rows.c - rows in threads: memory, parts, statistics, the write of a row. */
#include "core/rows.h"
#include "autoflex/autoflex_rules.h"
#include "core/memory.h"
#include "core/parallel.h"

enum { PART = 4096 /* elements, about, of the rows that a thread takes at a time */ };

static int workers_of(const struct fl_args *args) {
    return args->workers ? args->workers : fl_threads();
}

/* Statistics of a worker, then its numbers. */
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
    args->format->encode(&args->out, first, n, value, true, &args->rounding, &mine);
    if (fl_ref_shared(args))
        mine.maximum = largest;
    fl_stats_merge(stats, &mine);
}

double fl_rows_largest(const double *value, int64_t n) {
    double largest = 0;
    for (int64_t i = 0; i < n; i++)
        largest = fabs(value[i]) > largest ? fabs(value[i]) : largest;
    return largest;
}

void fl_rows_fetch(const struct fl_args *args, int in, int64_t first, int64_t n, double *to) {
    args->format->decode(&args->in[in], first, n, to);
    if (!fl_ref_shared(args))
        return;
    const double unit = fl_scale2(1, fl_exponent(&args->in[in]));
    for (int64_t i = 0; i < n; i++)
        to[i] *= unit;
}

void fl_rows_store_sums(const struct fl_args *args, int64_t first, int64_t n, const struct fl_row_out *out, int e,
                        struct fl_stats *stats) {
    const double most = out->most ? fl_scale2(fl_double_of_128((fl_int128)out->most), -e) : 0;
    fl_rows_store(args, first, n, out->value, most > out->largest ? most : out->largest, stats);
}
