/* real_map.c - kernels of the real entries of ops.def: by a table if there are enough elements of 16 bits to justify
 * one, else in vectors of doubles, whose errors leave few roundings open, else element by element. */
#include "core/real/real_map.h"
#include "core/base/parallel.h"
#include "core/real/real_pair.h"
#include "core/reference/ref.h"
#include <math.h>

enum {
    BLOCK = 512,         /* elements computed at a time */
    PART = 8 * BLOCK,    /* elements of a part, enough for a thread */
    LOOKED_UP = 1 << 16, /* elements of a part of a lookup */
    WORTH_A_TABLE = 1 << 16,
    WORTH_A_LOOK = 1 << 10, /* elements that justify the use of an existing table */
    WORTH_SLOPES = 1 << 16,
    WORTH_PAIRS = 1 << 18 /* the same for slopes without vectors: the exponent may differ at the next task */
};

/* The functions of an instruction set. */
struct way {
    enum fl_backend backend;
    fl_real_lookup lookup;
    const struct fl_real_lanes *lanes;
};

struct job {
    const struct fl_args *args;
    struct fl_map_functions functions;
    const struct fl_real_table *table;
    const struct fl_real_slopes *slopes;
    const struct way *way;
    const struct fl_kernels *set;          /* the conversions of the format */
    struct fl_stats stats[FL_MAX_THREADS]; /* by worker */
};

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static bool is_shared(const struct fl_args *args) {
    return args->format->arithmetic == FL_ARITHMETIC_SHARED;
}

bool fl_real_has_table(const struct fl_args *args) {
    return args->format->bytes == 2 && !args->format->element && !args->in[1].data &&
           args->rounding.mode != TENSOR_ROUND_STOCHASTIC;
}

/* --- one by one --------------------------------------------------------------------------------------------------- */

/* Computes n numbers before their rounding, with the accuracy that it requires. */
static void evaluate(const struct job *job, int64_t first, int64_t n, double *values) {
    const struct fl_args *args = job->args;
    const double alpha = (double)args->p.map.alpha, beta = (double)args->p.map.beta;
    const bool all = args->rounding.mode == TENSOR_ROUND_STOCHASTIC;
    double (*const function)(double, double, double, double) = all ? job->functions.odd : job->functions.near;
    double b[BLOCK] = {0};
    args->format->decode(args->format, &args->in[0], first, n, values);
    if (args->in[1].data)
        args->format->decode(args->format, &args->in[1], first, n, b);
    for (int64_t i = 0; i < n; i++)
        values[i] = function(values[i], b[i], beta, alpha);
}

/* The maximum of a block, as defined in ref_map.c. */
static void observe(bool exponent, int64_t n, const double *values, struct fl_stats *stats) {
    stats->maximum = 0;
    for (int64_t i = 0; i < n; i++) {
        const double size = fabs(values[i]);
        if (size > stats->maximum && !(exponent && isinf(size)))
            stats->maximum = size;
    }
    stats->maximum = fl_coarse(stats->maximum);
}

static void compute_part(void *context, int part, int worker) {
    struct job *job = context;
    const struct fl_args *args = job->args;
    double values[BLOCK];
    const int64_t end = smaller(args->out.count, (part + (int64_t)1) * PART);
    for (int64_t i = (int64_t)part * PART; i < end; i += BLOCK) {
        const int64_t n = smaller(BLOCK, end - i);
        struct fl_stats stats = {0};
        evaluate(job, i, n, values);
        args->format->encode(args->format, &args->out, i, n, values, false, &args->rounding, &stats);
        observe(fl_has_exponent(args->format), n, values, &stats);
        fl_stats_merge(&job->stats[worker], &stats);
    }
}

/* --- in vectors --------------------------------------------------------------------------------------------------- */

/* At these exponents mantissas, and halves of a unit, are normal numbers of binary32. Floats under an exponent e go
 * down to 2^(unit - e); the vectors serve them down to 2^-133, the least number of bf16 (to_odd). */
bool fl_real_floats_hold(const struct fl_args *args) {
    enum { LEAST = -110, MOST = 112, LAST = 133 };
    const struct fl_element *element = args->format->element;
    const int most = element && LAST + element->unit < MOST ? LAST + element->unit : MOST;
    const struct fl_view *views[] = {&args->out, &args->in[0], &args->in[1]};
    bool hold = true;
    for (int i = 0; i < 3; i++)
        hold &= !views[i]->e || (*views[i]->e >= LEAST && *views[i]->e <= most);
    return hold;
}

/* The number of one element, before rounding. */
static double near_of(const struct job *job, int64_t i) {
    const struct fl_args *args = job->args;
    double a, b = 0;
    args->format->decode(args->format, &args->in[0], i, 1, &a);
    if (args->in[1].data)
        args->format->decode(args->format, &args->in[1], i, 1, &b);
    return job->functions.near(a, b, (double)args->p.map.beta, (double)args->p.map.alpha);
}

/* x rounded to odd as binary32: never to the even one of its two neighbours. */
static float odd_float(double x) {
    float f = (float)x;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if (x == x && (double)f != x && !(bits & 1u)) {
        bits += fabs((double)f) < fabs(x) ? 1u : -1u;
        memcpy(&f, &bits, sizeof f);
    }
    return f;
}

/* Computes the elements whose rounding is open, one by one, and removes them from the block. */
static void settle(const struct job *job, int64_t first, int open, struct fl_real_block *block,
                   struct fl_stats *stats) {
    const bool exponent = fl_has_exponent(job->args->format), narrow = job->args->format->bytes < 4;
    for (int k = 0; k < open; k++) {
        const int i = block->open[k];
        const double near = near_of(job, first + i), size = fabs(near);
        block->y[i] = narrow ? odd_float(near) : (float)near;
        if (!narrow) {
            stats->flushed += near != 0 && block->y[i] == 0;
            stats->saturated += isfinite(near) && isinf(block->y[i]);
        }
        if (fl_coarse(size) > stats->maximum && !(exponent && isinf(size)))
            stats->maximum = fl_coarse(size);
        block->v[i] = block->e[i] = 0;
    }
}

static bool same_operands(const struct fl_args *args, int64_t i, int64_t j) {
    const size_t bytes = (size_t)args->format->bytes;
    bool same = true;
    for (int k = 0; k < 2; k++) {
        const char *data = args->in[k].data;
        same &= !data || !memcmp(data + (size_t)i * bytes, data + (size_t)j * bytes, bytes);
    }
    return same;
}

/* The maximum of the others: those that may exceed it are known to 32 bits, or are computed. Equal operands, which may
 * be many, are computed once. */
static void find_maximum(const struct job *job, int64_t first, int64_t n, const struct fl_real_block *block,
                         struct fl_stats *stats) {
    int64_t last = -1;
    if (!(fl_coarse(block->top) > stats->maximum))
        return;
    for (int64_t i = 0; i < n; i++) {
        const double size = fabs(block->v[i]), low = size - block->e[i], high = size + block->e[i];
        if (!(fl_coarse(high) > stats->maximum))
            continue;
        double most = fl_coarse(high);
        if (block->e[i] != 0 && (fl_coarse(low) != most || size < 0x1p-150 || size > 0x1p800)) {
            if (last >= 0 && same_operands(job->args, last, first + i))
                continue;
            last = first + i;
            most = fl_coarse(fabs(near_of(job, last)));
        }
        stats->maximum = most > stats->maximum ? most : stats->maximum;
    }
}

/* Writes a block: rounded to odd at 24 bits, then by the conversion of the format; binary32 is rounded and counted
 * here. */
static void write_block(const struct job *job, int64_t first, int64_t n, struct fl_real_block *block,
                        struct fl_stats *stats) {
    const struct fl_args *args = job->args;
    const struct fl_real_lanes *lanes = job->way->lanes;
    const bool narrow = args->format->bytes < 4;
    struct fl_stats written = {0};
    const int open = narrow ? lanes->to_odd((int)n, block) : lanes->to_nearest((int)n, block);
    settle(job, first, open, block, stats);
    find_maximum(job, first, n, block, stats);
    if (!narrow) {
        stats->flushed += block->flushed;
        stats->saturated += block->saturated;
    }
    if (args->out.data || !narrow)
        job->set->from_floats(args->format, &args->out, first, n, block->y, &args->rounding, &written);
    stats->gamma = written.gamma > stats->gamma ? written.gamma : stats->gamma;
    stats->flushed += written.flushed;
    stats->saturated += written.saturated;
    stats->nonfinite += written.nonfinite;
}

/* Writes a block of mantissas, if all its roundings are known. They are stored last, since operands may lie there. */
static bool write_mantissas(const struct job *job, int64_t first, int64_t n, struct fl_real_block *block,
                            struct fl_stats *stats) {
    const struct fl_args *args = job->args;
    int16_t m[FL_REAL_BLOCK];
    if (!is_shared(args) || args->rounding.mode != TENSOR_ROUND_NEAREST ||
        !job->way->lanes->to_mantissas((int)n, fl_power_of_two(fl_exponent(&args->out)), m, block))
        return false;
    find_maximum(job, first, n, block, stats);
    if (!args->out.data)
        return true;
    stats->gamma = block->gamma > stats->gamma ? block->gamma : stats->gamma;
    stats->flushed += block->flushed;
    stats->saturated += block->saturated;
    memcpy((int16_t *)args->out.data + first, m, (size_t)n * sizeof *m);
    return true;
}

static void load_floats(const struct job *job, int operand, int64_t first, int64_t n, float *x) {
    job->set->to_floats(job->args->format, &job->args->in[operand], first, n, x, false);
    for (; n < FL_REAL_BLOCK; n++)
        x[n] = 0;
}

static void vector_part(void *context, int part, int worker) {
    struct job *job = context;
    const struct fl_args *args = job->args;
    const struct fl_real_lanes *lanes = job->way->lanes;
    const bool gradient = args->in[1].data != NULL;
    struct fl_real_block block;
    const int64_t end = smaller(args->out.count, (part + (int64_t)1) * PART);
    for (int64_t i = (int64_t)part * PART; i < end; i += FL_REAL_BLOCK) {
        const int64_t n = smaller(FL_REAL_BLOCK, end - i);
        if (gradient)
            load_floats(job, 0, i, n, block.a);
        if (job->slopes) {
            const uint16_t *x = (const uint16_t *)args->in[1].data + i;
            lanes->look_up(job->slopes->at, FL_REAL_SLOPE_ERROR, x, (int)n, &block);
        } else {
            load_floats(job, gradient, i, n, block.b);
            lanes->evaluate(args->op, (double)args->p.map.alpha, (double)args->p.map.beta, (int)n, &block);
            if (gradient)
                lanes->multiply((int)n, args->op == FL_OP_HARDTANH_GRAD, &block);
        }
        if (!write_mantissas(job, i, n, &block, &job->stats[worker]))
            write_block(job, i, n, &block, &job->stats[worker]);
    }
}

/* Whether the vectors have the function of the task. */
static bool vectors_have(const struct fl_args *args, const struct way *way) {
    struct fl_real_block none;
    return args->rounding.mode != TENSOR_ROUND_STOCHASTIC && fl_real_floats_hold(args) &&
           way->lanes->evaluate(args->op, 0, 0, 0, &none);
}

void fl_real_near(const struct fl_args *args, const struct fl_real_lanes *lanes, int n, const double *x, double *near) {
    const struct fl_map_functions functions = fl_map_functions_of(args->op);
    const double alpha = (double)args->p.map.alpha, beta = (double)args->p.map.beta;
    struct fl_real_block block;
    for (int first = 0; first < n; first += FL_REAL_BLOCK) {
        const int length = (int)smaller(n - first, FL_REAL_BLOCK);
        memset(block.b, 0, sizeof block.b);
        for (int i = 0; i < length; i++)
            block.b[i] = (float)x[first + i];
        const bool vectors = fl_real_floats_hold(args) && lanes->evaluate(args->op, alpha, beta, length, &block);
        for (int i = 0; i < length; i++) {
            const double v = block.v[i], e = vectors ? block.e[i] : 0, size = fabs(v);
            const bool known = vectors && size - size == 0 &&
                               (e == 0 || (size > 0x1p-500 && size < 0x1p800 && fl_coarse(v - e) == fl_coarse(v + e)));
            near[first + i] = known ? fl_coarse(v) : functions.near(x[first + i], 0, beta, alpha);
        }
    }
}

/* --- by table ----------------------------------------------------------------------------------------------------- */

/* A limit that is below exactly the entries of that rank or more. */
static int32_t limit_of(int32_t rank) {
    return rank > 0 ? (int32_t)(((int64_t)rank - 32768) * 65536 - 1) : INT32_MIN;
}

/* The number of entries of that rank or more. */
static int64_t count_from(const struct job *job, int64_t first, int64_t n, int32_t rank) {
    const uint16_t *x = (const uint16_t *)job->args->in[0].data + first;
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++)
        count += (job->table->entries[x[i]] >> 16) + 32768 >= rank;
    return count;
}

/* The largest entry below that rank; INT32_MIN if there is none. */
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
    job->args->format->decode(job->args->format, &one, 0, 1, &x);
    const double size = fabs(job->functions.near(x, 0, (double)job->args->p.map.beta, (double)job->args->p.map.alpha));
    return size == size ? size : 0;
}

static int32_t mantissa_of(int32_t entry) {
    const int16_t m = (int16_t)(uint16_t)entry;
    return m < 0 ? -m : m;
}

/* In place, the lookup overwrites the inputs, so a stretch that must be counted is counted first, while it is in the
 * cache. */
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
        job->way->lookup(job->table->entries, x, x == y ? copy : y, n, limits, &found);
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
        if (shared && most != INT32_MIN && mantissa_of(most) > stats.gamma)
            stats.gamma = mantissa_of(most);
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

static const struct fl_real_slopes *slopes_of(const struct fl_args *args, const struct way *way, bool vectors) {
    const int64_t n = args->out.count;
    const bool stochastic = args->rounding.mode == TENSOR_ROUND_STOCHASTIC;
    if (!fl_real_has_slopes(args) || n < WORTH_A_LOOK || stochastic || !fl_real_floats_hold(args))
        return NULL;
    return fl_real_slopes_of(args, way->lanes, n >= (is_shared(args) && !vectors ? WORTH_PAIRS : WORTH_SLOPES));
}

static tensor_status run(const struct fl_args *args, const struct way *way) {
    const int workers = args->workers ? args->workers : fl_threads();
    const int64_t n = args->out.count;
    struct job job;
    job.args = args;
    job.functions = fl_map_functions_of(args->op);
    job.way = way;
    job.set = args->format->sets[way->backend];
    job.table =
        fl_real_has_table(args) && n >= WORTH_A_LOOK ? fl_real_table_of(args, way->lanes, n >= WORTH_A_TABLE) : NULL;
    const bool vectors = vectors_have(args, way);
    job.slopes = slopes_of(args, way, vectors);
    memset(job.stats, 0, (size_t)workers * sizeof job.stats[0]);
    const int64_t part = job.table ? LOOKED_UP : PART;
    const fl_part work = job.table ? look_up_part : vectors || job.slopes ? vector_part : compute_part;
    fl_parallel_within(workers, (int)((n + part - 1) / part), work, &job);
    for (int worker = 0; worker < workers; worker++)
        fl_stats_merge(args->stats, &job.stats[worker]);
    if (job.table)
        fl_real_table_leave(job.table);
    if (job.slopes)
        fl_real_slopes_leave(job.slopes);
    return TENSOR_OK;
}

static const struct way ways[FL_BACKENDS] = {
    [FL_PORTABLE] = {FL_PORTABLE, fl_real_lookup_portable, &fl_real_lanes_portable},
#ifdef FL_HAVE_AVX2
    [FL_AVX2] = {FL_AVX2, fl_real_lookup_avx2, &fl_real_lanes_avx2},
#endif
#ifdef FL_HAVE_AVX512
    [FL_AVX512BW] = {FL_AVX512BW, fl_real_lookup_avx512bw, &fl_real_lanes_avx512bw},
#endif
};

const struct fl_real_lanes *fl_real_lanes_of(enum fl_backend backend) {
    return ways[backend].lanes;
}

tensor_status fl_real_map_portable(const struct fl_args *args) {
    return run(args, &ways[FL_PORTABLE]);
}
tensor_status fl_real_map_avx2(const struct fl_args *args) {
    return run(args, &ways[FL_AVX2]);
}
tensor_status fl_real_map_avx512bw(const struct fl_args *args) {
    return run(args, &ways[FL_AVX512BW]);
}
