/* real_map.c - kernels of the real rows of ops.def: element by element through the codec, or by a table where the
 * elements have 16 bits and there are enough of them to make one. */
#include "core/real_map.h"
#include "core/parallel.h"
#include "core/real_pair.h"
#include "core/ref.h"
#include <math.h>

enum {
    BLOCK = 512,         /* elements computed at a time */
    PART = 8 * BLOCK,    /* elements of a part, which is worth a thread */
    LOOKED_UP = 1 << 16, /* elements of a part of a lookup */
    WORTH_A_TABLE = 1 << 16,
    WORTH_A_LOOK = 1 << 10, /* for a table that is there */
    WORTH_SLOPES = 1 << 16,
    WORTH_SLOPES_OF_AN_EXPONENT = 1 << 18 /* which may be another at the next call */
};

struct job {
    const struct fl_args *args;
    struct fl_map_functions functions;
    const struct fl_real_table *table;
    fl_real_lookup lookup;
    const struct fl_real_slopes *slopes;
    fl_real_multiply multiply;
    struct fl_stats stats[FL_MAX_THREADS]; /* by worker */
};

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static bool is_shared(const struct fl_args *args) {
    return args->format->arithmetic == FL_ARITHMETIC_SHARED;
}

double fl_real_near(const struct fl_args *args, double x) {
    return fl_map_functions_of(args->op).near(x, 0, (double)args->beta, (double)args->alpha);
}

bool fl_real_has_table(const struct fl_args *args) {
    return args->format->bytes == 2 && !args->in[1].data && args->rounding.mode != TENSOR_ROUND_STOCHASTIC;
}

/* --- one by one --------------------------------------------------------------------------------------------------- */

/* n numbers before their rounding, at the accuracy that it needs. */
static void evaluate(const struct job *job, int64_t first, int64_t n, double *values) {
    const struct fl_args *args = job->args;
    const double alpha = (double)args->alpha, beta = (double)args->beta;
    const bool all = args->rounding.mode == TENSOR_ROUND_STOCHASTIC;
    double (*const function)(double, double, double, double) = all ? job->functions.odd : job->functions.near;
    double b[BLOCK] = {0};
    args->format->decode(&args->in[0], first, n, values);
    if (args->in[1].data)
        args->format->decode(&args->in[1], first, n, b);
    for (int64_t i = 0; i < n; i++)
        values[i] = function(values[i], b[i], beta, alpha);
}

/* The maximum and the infinite of a block, as the definition has them (ref_map.c). */
static void observe(bool shared, int64_t n, const double *values, struct fl_stats *stats) {
    stats->maximum = 0;
    for (int64_t i = 0; i < n; i++) {
        const double size = fabs(values[i]);
        if (shared && isinf(size))
            stats->nonfinite++;
        else if (size > stats->maximum)
            stats->maximum = size;
    }
    stats->maximum = fl_coarse(stats->maximum);
}

/* The same of a gradient, by its slopes. */
static void evaluate_by_slopes(const struct job *job, int64_t first, int64_t n, double *values) {
    const struct fl_args *args = job->args;
    const struct fl_pair *at = job->slopes->at;
    const uint16_t *x = (const uint16_t *)args->in[1].data + first;
    double dy[BLOCK];
    args->format->decode(&args->in[0], first, n, dy);
    job->multiply(at, x, dy, values, n);
    for (int64_t i = 0; i < n; i++)
        if (values[i] != values[i] && at[x[i]].h != at[x[i]].h) {
            double special;
            args->format->decode(&args->in[1], first + i, 1, &special);
            values[i] = job->functions.odd(dy[i], special, 0, 0);
        }
}

static void compute_part(void *context, int part, int worker) {
    struct job *job = context;
    const struct fl_args *args = job->args;
    double values[BLOCK];
    const int64_t end = smaller(args->out.count, (part + (int64_t)1) * PART);
    for (int64_t i = (int64_t)part * PART; i < end; i += BLOCK) {
        const int64_t n = smaller(BLOCK, end - i);
        struct fl_stats stats = {0};
        if (job->slopes)
            evaluate_by_slopes(job, i, n, values);
        else
            evaluate(job, i, n, values);
        args->format->encode(&args->out, i, n, values, false, &args->rounding, &stats);
        observe(is_shared(args), n, values, &stats);
        fl_stats_merge(&job->stats[worker], &stats);
    }
}

/* --- by table ----------------------------------------------------------------------------------------------------- */

/* What is below all entries from that rank on, and not below the others. */
static int32_t limit_of(int32_t rank) {
    return rank > 0 ? (int32_t)(((int64_t)rank - 32768) * 65536 - 1) : INT32_MIN;
}

/* Of entries, how many have that rank or more. */
static int64_t count_from(const struct job *job, int64_t first, int64_t n, int32_t rank) {
    const uint16_t *x = (const uint16_t *)job->args->in[0].data + first;
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++)
        count += (job->table->entries[x[i]] >> 16) + 32768 >= rank;
    return count;
}

/* The largest entry below that rank; INT32_MIN where there is none. */
static int32_t most_below(const struct job *job, int64_t first, int64_t n, int32_t rank) {
    const uint16_t *x = (const uint16_t *)job->args->in[0].data + first;
    int32_t most = INT32_MIN;
    for (int64_t i = 0; i < n; i++) {
        const int32_t entry = job->table->entries[x[i]];
        if ((entry >> 16) + 32768 < rank && entry > most)
            most = entry;
    }
    return most;
}

static double size_of(const struct job *job, int32_t entry) {
    double x;
    uint16_t word = job->table->example[(entry >> 16) + 32768];
    const struct fl_view one = {.data = &word, .e = job->args->in[0].e, .count = 1};
    job->args->format->decode(&one, 0, 1, &x);
    const double size = fabs(fl_real_near(job->args, x));
    return size == size ? size : 0;
}

static int32_t mantissa_of(int32_t entry) {
    const int16_t m = (int16_t)(uint16_t)entry;
    return m < 0 ? -m : m;
}

/* In place the inputs are gone after the lookup: a stretch that is to be counted is counted first, in cache. */
static void look_up_part(void *context, int part, int worker) {
    struct job *job = context;
    const struct fl_args *args = job->args;
    const struct fl_real_ranks *ranks = &job->table->ranks;
    const int32_t limits[2] = {limit_of(ranks->nonzero), limit_of(ranks->kept)};
    const int64_t first = (int64_t)part * LOOKED_UP, end = smaller(args->out.count, first + LOOKED_UP);
    const bool shared = is_shared(args);
    struct fl_stats stats = {0};
    for (int64_t i = first; i < end; i += PART) {
        const int64_t n = smaller(PART, end - i);
        const uint16_t *x = (const uint16_t *)args->in[0].data + i;
        uint16_t *y = args->out.data ? (uint16_t *)args->out.data + i : NULL, copy[PART];
        struct fl_real_found found = {INT32_MAX, INT32_MIN, {0, 0}};
        job->lookup(job->table->entries, x, x == y ? copy : y, n, limits, &found);
        const int64_t nonzero = ranks->nonzero > 0 ? found.above[0] : n, kept = ranks->kept > 0 ? found.above[1] : n;
        stats.flushed += nonzero - kept;
        int32_t most = found.most;
        if ((found.least >> 16) + 32768 < ranks->zero)
            stats.nonfinite += n - count_from(job, i, n, ranks->zero);
        if ((found.most >> 16) + 32768 >= ranks->saturated) {
            const int64_t saturated = count_from(job, i, n, ranks->saturated),
                          infinite = count_from(job, i, n, ranks->infinite);
            stats.saturated += shared ? saturated : saturated - infinite;
            stats.nonfinite += shared ? infinite : saturated;
            if (shared && infinite)
                most = most_below(job, i, n, ranks->infinite);
        }
        if (shared && mantissa_of(found.most) > stats.gamma)
            stats.gamma = mantissa_of(found.most);
        if (most != INT32_MIN || found.most == INT32_MIN) {
            const double size = size_of(job, most);
            stats.maximum = size > stats.maximum ? size : stats.maximum;
        }
        if (x == y)
            memcpy(y, copy, (size_t)n * sizeof *y);
    }
    fl_stats_merge(&job->stats[worker], &stats);
}

/* ------------------------------------------------------------------------------------------------------------------ */

static bool worth_slopes(const struct fl_args *args) {
    return args->out.count >= (is_shared(args) ? WORTH_SLOPES_OF_AN_EXPONENT : WORTH_SLOPES);
}

static tensor_status run(const struct fl_args *args, fl_real_lookup lookup, fl_real_multiply multiply) {
    const int workers = args->workers ? args->workers : fl_threads();
    const int64_t n = args->out.count;
    struct job job;
    job.args = args;
    job.functions = fl_map_functions_of(args->op);
    job.lookup = lookup;
    job.multiply = multiply;
    job.table = fl_real_has_table(args) && n >= WORTH_A_LOOK ? fl_real_table_of(args, n >= WORTH_A_TABLE) : NULL;
    job.slopes = fl_real_has_slopes(args) && n >= WORTH_A_LOOK ? fl_real_slopes_of(args, worth_slopes(args)) : NULL;
    memset(job.stats, 0, (size_t)workers * sizeof job.stats[0]);
    const int64_t part = job.table ? LOOKED_UP : PART;
    fl_parallel_within(workers, (int)((n + part - 1) / part), job.table ? look_up_part : compute_part, &job);
    for (int worker = 0; worker < workers; worker++)
        fl_stats_merge(args->stats, &job.stats[worker]);
    if (job.table)
        fl_real_table_leave(job.table);
    if (job.slopes)
        fl_real_slopes_leave(job.slopes);
    return TENSOR_OK;
}

tensor_status fl_real_map_portable(const struct fl_args *args) {
    return run(args, fl_real_lookup_portable, fl_real_multiply_portable);
}
#ifdef FL_HAVE_AVX2
tensor_status fl_real_map_avx2(const struct fl_args *args) {
    return run(args, fl_real_lookup_avx2, fl_real_multiply_avx2);
}
#endif
#ifdef FL_HAVE_AVX512
tensor_status fl_real_map_avx512bw(const struct fl_args *args) {
    return run(args, fl_real_lookup_avx512bw, fl_real_multiply_avx512bw);
}
#endif
