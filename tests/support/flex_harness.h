/* flex_harness.h - runs one operation of a shared-exponent format on every kernel set and compares bytes and statistics
 * with results computed by hand (exact_number.h). */
#ifndef FL_FLEX_HARNESS_H
#define FL_FLEX_HARNESS_H

#include "check.h"
#include "core/table/format.h"
#include "exponents.h"
#include "exact_number.h"
#include "philox_witness.h"
#include <inttypes.h>

enum { CANARY = 32 };

/* The exact result i of the operation, in real units. */
typedef struct number (*exact_fn)(const struct fl_args *args, int64_t i);

static uint64_t seed;

static int64_t random_below(int64_t n) {
    return (int64_t)(check_random(&seed) % (uint64_t)n);
}

static int random_between(int low, int high) {
    return (int)(low + random_below((int64_t)high - low + 1));
}

/* Memory of one case. */
static void *pool[256];
static int pool_used;

static void *allocate(size_t bytes) {
    void *block = malloc(bytes ? bytes : 1);
    if (!block || pool_used == 256) {
        printf("no memory for the test\n");
        exit(1);
    }
    pool[pool_used++] = block;
    return block;
}

static void release_from(int mark) {
    while (pool_used > mark)
        free(pool[--pool_used]);
}

/* --- inputs --- */

enum fill { FILL_RANDOM, FILL_SMALL, FILL_EXTREME, FILL_TOP, FILL_ZERO, FILL_RAW, FILL_KINDS };

static int16_t random_mantissa(enum fill kind) {
    switch (kind) {
    case FILL_RANDOM:
        return (int16_t)random_between(-32767, 32767);
    case FILL_SMALL:
        return (int16_t)random_between(-9, 9);
    case FILL_EXTREME:
        return (int16_t)(random_below(2) ? 32767 : -32767);
    case FILL_TOP:
        return 32767;
    case FILL_ZERO:
        return 0;
    default: /* whatever a user may write into the tensor */
        return (int16_t)random_between(-32768, random_below(4) ? 32767 : -32760);
    }
}

/* Half of all views are not aligned. */
static struct fl_view random_view(int64_t count, int e, enum fill kind) {
    const int64_t offset = random_below(2) * random_below(CANARY);
    int16_t *block = allocate((size_t)(count + offset) * sizeof *block);
    for (int64_t i = 0; i < count; i++)
        block[offset + i] = random_mantissa(kind);
    return (struct fl_view){.data = block + offset, .e = exponent_at(e), .count = count};
}

static enum fill random_fill(void) {
    return random_below(2) ? FILL_RANDOM : (enum fill)random_below(FILL_KINDS);
}

/* An exponent near another (most often), or any of the format. */
static inline int random_exponent(const struct fl_format *format, int near) {
    int e = random_below(4) ? random_between(near - 12, near + 12) : random_between(format->e_min, format->e_max);
    return e < format->e_min ? format->e_min : e > format->e_max ? format->e_max : e;
}

static int16_t mantissa_of(const struct fl_view *view, int64_t i) {
    return ((const int16_t *)view->data)[i];
}

static struct number value_of(const struct fl_view *view, int64_t i) {
    return number_of(mantissa_of(view, i), fl_exponent(view));
}

/* --- the expected write --- */

struct expected {
    int16_t *data;
    int32_t *wide;
    struct fl_stats stats;
};

static struct expected expect(const struct fl_args *args, exact_fn exact) {
    const int64_t count = args->out.count;
    const bool wide = args->out.wide != NULL;
    struct expected x = {.data = allocate((size_t)count * sizeof(int16_t))};
    if (wide)
        x.wide = allocate((size_t)count * sizeof(int32_t));
    for (int64_t i = 0; i < count; i++) {
        const struct number v = exact(args, i);
        int64_t m, limit = wide ? FL_WIDE_LIMIT : 32767;
        if (wide)
            m = number_nearest(&v, fl_exponent(&args->out) + 16);
        else if (args->rounding.mode == TENSOR_ROUND_STOCHASTIC)
            m = number_stochastic(&v, fl_exponent(&args->out),
                                  witness_draw(args->rounding.key, args->rounding.write, i));
        else
            m = number_nearest(&v, fl_exponent(&args->out));
        if (m > limit || m < -limit) {
            x.stats.saturated++;
            m = m < 0 ? -limit : limit;
        }
        if (wide) {
            x.wide[i] = (int32_t)m;
            const struct number w = number_of(m, 16);
            m = number_nearest(&w, 0);
        }
        x.data[i] = (int16_t)m;
        x.stats.flushed += m == 0 && !number_is_zero(&v);
        const double size = number_double(&v);
        x.stats.maximum = size > x.stats.maximum ? size : x.stats.maximum;
        x.stats.gamma = labs(m) > x.stats.gamma ? (int32_t)labs(m) : x.stats.gamma;
    }
    return x;
}

/* --- every row against it --- */

static void check_stats(const char *label, const struct fl_stats *got, const struct fl_stats *want) {
    CHECK(got->maximum == want->maximum && got->gamma == want->gamma && got->saturated == want->saturated &&
              got->flushed == want->flushed && got->nonfinite == 0,
          "%s: maximum %a gamma %d saturated %" PRId64 " flushed %" PRId64 ", want %a %d %" PRId64 " %" PRId64, label,
          got->maximum, got->gamma, got->saturated, got->flushed, want->maximum, want->gamma, want->saturated,
          want->flushed);
}

static void check_run(const struct fl_args *from, const struct expected *want, fl_kernel kernel, const char *label,
                      bool in_place) {
    const int mark = pool_used;
    const int64_t count = from->out.count;
    const size_t offset = in_place ? 0 : (size_t)random_below(CANARY);
    int16_t *block = allocate(((size_t)count + 2 * CANARY) * sizeof *block);
    int32_t *wide = allocate(((size_t)count + CANARY) * sizeof *wide);
    memset(block, 0x5b, ((size_t)count + 2 * CANARY) * sizeof *block);
    memset(wide, 0x5b, ((size_t)count + CANARY) * sizeof *wide);
    struct fl_stats stats = {0};
    struct fl_args args = *from;
    args.stats = &stats;
    args.out.data = block + offset;
    if (in_place) {
        memcpy(block, from->in[0].data, (size_t)count * sizeof *block);
        args.in[0].data = block;
        if (from->in[0].wide)
            memcpy(wide, from->in[0].wide, (size_t)count * sizeof *wide);
    }
    if (from->out.wide) {
        args.out.wide = wide;
        args.in[0].wide = wide;
    }
    const tensor_status status = kernel(&args);
    CHECK(status == TENSOR_OK, "%s: status %d", label, (int)status);
    int64_t bad = -1;
    for (int64_t i = count - 1; i >= 0; i--)
        if (block[(int64_t)offset + i] != want->data[i] || (from->out.wide && wide[i] != want->wide[i]))
            bad = i;
    CHECK(bad < 0, "%s: element %" PRId64 " is %d (wide %d), want %d (wide %d)", label, bad,
          block[(int64_t)offset + bad], wide[bad], want->data[bad], want->wide ? want->wide[bad] : 0);
    bool touched = false;
    for (size_t i = 0; i < (size_t)count + 2 * CANARY; i++)
        touched = touched || ((i < offset || i >= offset + (size_t)count) && block[i] != 0x5b5b);
    for (int64_t i = from->out.wide ? count : 0; i < count + CANARY; i++)
        touched = touched || wide[i] != 0x5b5b5b5b;
    CHECK(!touched, "%s: wrote outside its output", label);
    check_stats(label, &stats, &want->stats);
    release_from(mark);
}

static void check_measure(const struct fl_args *from, const struct expected *want, fl_kernel kernel,
                          const char *label) {
    struct fl_stats stats = {0};
    struct fl_args args = *from;
    args.stats = &stats;
    args.out.data = NULL;
    const tensor_status status = kernel(&args);
    CHECK(status == TENSOR_OK && stats.maximum == want->stats.maximum, "%s measured: status %d, maximum %a, want %a",
          label, (int)status, stats.maximum, want->stats.maximum);
}

#ifdef FL_AMX_EMULATED
enum { FIRST_ROW = FL_AVX512_AMX }; /* the other kernel sets have a test of their own */
#else
enum { FIRST_ROW = FL_REF };
#endif

/* args must be complete except for out.data, out.wide's memory and stats. rows: bit b selects backend b. */
static void check_rows(const struct fl_args *args, exact_fn exact, bool may_run_in_place, unsigned rows) {
    static const int thread_counts[] = {1, 2, 3, 7};
    const uint64_t replay = seed;
    const int mark = pool_used;
    struct expected want = expect(args, exact);
    for (int backend = FIRST_ROW; backend < FL_BACKENDS; backend++) {
        enum fl_backend chosen;
        fl_kernel kernel = fl_kernel_select(args->format, args->op, (enum fl_backend)backend, &chosen);
        if ((int)chosen != backend || !kernel || !(rows >> backend & 1))
            continue;
        const int runs = backend == FL_REF ? 1 : 4;
        for (int t = 0; t < runs; t++) {
            char label[160];
            tensor_set_threads(thread_counts[t]);
            for (int in_place = args->out.wide != NULL; in_place <= may_run_in_place; in_place++) {
                snprintf(label, sizeof label, "%s.%s.%s seed %" PRIx64 " threads %d%s e %d %d %d -> %d %s",
                         args->format->name, fl_op_name(args->op), fl_backend_name(chosen), replay, thread_counts[t],
                         in_place ? " in place" : "", fl_exponent(&args->in[0]), fl_exponent(&args->in[1]),
                         fl_exponent(&args->in[2]), fl_exponent(&args->out),
                         args->rounding.mode ? "stochastic" : "nearest");
                check_run(args, &want, kernel, label, in_place);
                check_measure(args, &want, kernel, label);
            }
        }
    }
    tensor_set_threads(0);
    release_from(mark);
}

enum { ALL_ROWS = (1 << FL_BACKENDS) - 1, KERNEL_ROWS = ALL_ROWS & ~(1 << FL_REF) };

static inline struct fl_rounding random_rounding(void) {
    if (random_below(3))
        return (struct fl_rounding){TENSOR_ROUND_NEAREST, 0, 0};
    return (struct fl_rounding){TENSOR_ROUND_STOCHASTIC, check_random(&seed), check_random(&seed)};
}

#endif
