/* Real functions of 16-bit elements by their tables: every kernel set against the definition, all 65,536 elements and
 * some again, results and statistics, in place and measured; more tables than can be stored, and threads that use them
 * at once; and a child process that is made while all are in use. */
#include "check.h"
#include "core/table/format.h"
#include "core/base/memory.h"
#include "core/real/real_map.h"
#include "exponents.h"
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FEW = FL_REAL_WORDS + 4099, MANY = (1 << 18) + 4099 };
static int count = FEW; /* elements of a call */

static uint64_t seed = 20260720;

struct call {
    const struct fl_format *format;
    struct fl_args args;
    uint16_t *x, *x2, *want; /* x2: of gradients, the input of the function */
    struct fl_stats stats;   /* of the definition */
};

static bool has_one_operand(enum fl_op op) {
    switch ((int)op) {
#define FL_REAL1(id, CONSTANT, name, expr) case id:
#define FL_REAL1_SCALAR(id, CONSTANT, name, expr) case id:
#define FL_REAL1_SCALARS(id, CONSTANT, name, expr) case id:
#include "flexlab/ops.def"
        return true;
    default:
        return false;
    }
}

static tensor_status run(const struct call *c, fl_kernel kernel, uint16_t *y, bool in_place, struct fl_stats *stats) {
    struct fl_args args = c->args;
    *stats = (struct fl_stats){0};
    args.stats = stats;
    args.out.data = y;
    if (in_place) {
        memcpy(y, c->x, (size_t)count * sizeof *y);
        args.in[0].data = y;
    }
    return kernel(&args);
}

/* Compares as stored; all NaNs count as equal. */
static bool same_element(const struct call *c, uint16_t a, uint16_t b) {
    double x, y;
    const struct fl_view va = {.data = &a, .e = c->args.out.e, .count = 1},
                         vb = {.data = &b, .e = c->args.out.e, .count = 1};
    if (a == b)
        return true;
    c->format->decode(c->format, &va, 0, 1, &x);
    c->format->decode(c->format, &vb, 0, 1, &y);
    return x != x && y != y;
}

static void compare(const struct call *c, const char *row, const char *how, const uint16_t *y,
                    const struct fl_stats *s) {
    const char *op = fl_op_name(c->args.op);
    int64_t at = 0;
    while (y && at < count && same_element(c, y[at], c->want[at]))
        at++;
    CHECK(!y || at == count, "%s.%s.%s %s: x %04x: got %04x, expected %04x", c->format->name, op, row, how, c->x[at],
          y[at], c->want[at]);
    const struct fl_stats *w = &c->stats;
    CHECK(s->maximum == w->maximum, "%s.%s.%s %s: maximum %a, expected %a", c->format->name, op, row, how, s->maximum,
          w->maximum);
    CHECK(!y || (s->gamma == w->gamma && s->saturated == w->saturated && s->flushed == w->flushed &&
                 s->nonfinite == w->nonfinite),
          "%s.%s.%s %s: gamma %d, saturated %lld, flushed %lld, nonfinite %lld, expected %d, %lld, %lld, %lld",
          c->format->name, op, row, how, s->gamma, (long long)s->saturated, (long long)s->flushed,
          (long long)s->nonfinite, w->gamma, (long long)w->saturated, (long long)w->flushed, (long long)w->nonfinite);
}

/* `words`: the number of different elements, 0: all of them. A small number leaves stretches of a table empty. */
static void make_call(struct call *c, const struct fl_format *f, enum fl_op op, int e_in, int e_out,
                      tensor_rounding mode, int words) {
    *c = (struct call){.format = f};
    c->x = fl_alloc((size_t)count * sizeof *c->x);
    c->want = fl_alloc((size_t)count * sizeof *c->want);
    for (int i = 0; i < count; i++)
        c->x[i] = (uint16_t)(words ? 0x2f00 + 977 * (int)(check_random(&seed) % (uint64_t)words) : i * 40503);
    c->x2 = has_one_operand(op) ? NULL : fl_alloc((size_t)count * sizeof *c->x2);
    for (int i = 0; c->x2 && i < count; i++) {
        c->x2[i] = (uint16_t)(i * 25717 + 3);
        c->x[i] = (uint16_t)(check_random(&seed) % 5 ? check_random(&seed) >> 20 : 0); /* a gradient has many zeros */
    }
    c->args = (struct fl_args){.op = op, .format = f, .p.map = {-0.25f, 2.5f}, .rounding = {mode, 0, 0}};
    c->args.in[0] = (struct fl_view){c->x, NULL, exponent_at(e_in), count};
    if (c->x2)
        c->args.in[1] = (struct fl_view){c->x2, NULL, exponent_at(e_in), count};
    c->args.out = (struct fl_view){c->want, NULL, exponent_at(e_out), count};
    CHECK(!run(c, fl_ref_kernel(op), c->want, false, &c->stats), "%s", tensor_error());
}

static void free_call(struct call *c) {
    fl_free(c->x);
    fl_free(c->x2);
    fl_free(c->want);
}

static void check_rows(const struct fl_format *f, enum fl_op op, int e_in, int e_out, tensor_rounding mode, int words) {
    struct call c;
    make_call(&c, f, op, e_in, e_out, mode, words);
    uint16_t *y = fl_alloc((size_t)count * sizeof *y);
    for (int row = FL_PORTABLE; row < FL_BACKENDS; row++) {
        const fl_kernel kernel = fl_kernel_in(f, op, (enum fl_backend)row);
        const char *name = fl_backend_name((enum fl_backend)row);
        struct fl_stats stats;
        for (int threads = 1; kernel && threads <= 3; threads += 2) {
            CHECK(!tensor_set_threads(threads), "%s", tensor_error());
            memset(y, 0x5a, (size_t)count * sizeof *y);
            CHECK(!run(&c, kernel, y, false, &stats), "%s", tensor_error());
            compare(&c, name, threads == 1 ? "alone" : "with threads", y, &stats);
        }
        if (!kernel)
            continue;
        CHECK(!run(&c, kernel, y, true, &stats), "%s", tensor_error());
        compare(&c, name, "in place", y, &stats);
        CHECK(!run(&c, kernel, NULL, false, &stats), "%s", tensor_error());
        compare(&c, name, "measured", NULL, &stats);
    }
    fl_free(y);
    free_call(&c);
}

/* --- threads ------------------------------------------------------------------------------------------------------ */

enum { THREADS = 3, CALLS = 30, TURNS = 40 };
static struct call calls[CALLS];
static atomic_int wrong;

static void *use(void *pointer) {
    uint64_t own = 77 + (uint64_t)(uintptr_t)pointer;
    uint16_t *y = malloc((size_t)count * sizeof *y);
    for (int turn = 0; y && turn < TURNS; turn++) {
        const struct call *c = &calls[check_random(&own) % CALLS];
        struct fl_stats stats;
        if (run(c, fl_kernel_select(c->format, c->args.op, FL_AVX512BW, NULL), y, false, &stats) ||
            memcmp(y, c->want, (size_t)count * sizeof *y) || stats.flushed != c->stats.flushed ||
            stats.maximum != c->stats.maximum)
            atomic_fetch_add(&wrong, 1);
    }
    free(y);
    return NULL;
}

static void check_threads(void) {
    pthread_t threads[THREADS];
    const struct fl_format *f = fl_format_of(FMT_FLEX16_5);
    CHECK(!tensor_set_threads(1), "%s", tensor_error());
    for (int i = 0; i < CALLS; i++)
        make_call(&calls[i], f, FL_OP_TANH, i, 14, TENSOR_ROUND_NEAREST, 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(!pthread_create(&threads[i], NULL, use, &calls[i]), "thread");
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    CHECK(wrong == 0, "%d calls of threads that share tables were wrong", (int)wrong);
    for (int i = 0; i < CALLS; i++)
        free_call(&calls[i]);
}

/* --- a child ------------------------------------------------------------------------------------------------------ */

/* Requests the next table, and the next slopes, that nothing has used; false if every slot is in use. */
static bool take_table(int *next, const struct fl_real_table **table) {
    const struct fl_args args = {.op = FL_OP_SOFTPLUS,
                                 .format = fl_format_of(FMT_DFP16),
                                 .in = {{NULL, NULL, exponent_at((*next)++), 0}},
                                 .out = {NULL, NULL, exponent_at(14), 0}};
    *table = fl_real_table_of(&args, &fl_real_lanes_portable, true);
    return *table;
}

static bool take_slopes(int *next, const struct fl_real_slopes **made) {
    const struct fl_args args = {.op = FL_OP_SIGMOID_GRAD,
                                 .format = fl_format_of(FMT_DFP16),
                                 .in = {{NULL, NULL, exponent_at(14), 0}, {NULL, NULL, exponent_at((*next)++), 0}},
                                 .out = {NULL, NULL, exponent_at(14), 0}};
    *made = fl_real_slopes_of(&args, &fl_real_lanes_portable, true);
    return *made;
}

/* The threads that used them in the parent do not exist in the child, and will not release them there. */
static void check_child(void) {
    enum { MOST = 64 };
    const struct fl_real_table *tables[MOST];
    const struct fl_real_slopes *made[MOST];
    int next_table = 0, next_slopes = 0, held_tables = 0, held_slopes = 0, status = -1;
    CHECK(!tensor_set_threads(1), "%s", tensor_error());
    while (held_tables < MOST && take_table(&next_table, &tables[held_tables]))
        held_tables++;
    while (held_slopes < MOST && take_slopes(&next_slopes, &made[held_slopes]))
        held_slopes++;
    CHECK(held_tables > 1 && held_tables < MOST && held_slopes > 1 && held_slopes < MOST, "places: %d and %d",
          held_tables, held_slopes);
    fflush(stdout);
    const pid_t child = fork();
    if (!child) {
        const struct fl_real_table *table;
        const struct fl_real_slopes *more;
        _exit((take_table(&next_table, &table) ? 0 : 1) + (take_slopes(&next_slopes, &more) ? 0 : 2));
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0,
          "the child found places of the parent in use: status %d", status);
    CHECK(!take_table(&next_table, &tables[MOST - 1]) && !take_slopes(&next_slopes, &made[MOST - 1]),
          "places of the parent became free");
    while (held_tables)
        fl_real_table_leave(tables[--held_tables]);
    while (held_slopes)
        fl_real_slopes_leave(made[--held_slopes]);
}

int main(void) {
    printf("seed %llu\n", (unsigned long long)seed);
    for (int op = 1; op < FL_OP_LIMIT; op++) {
        if (!has_one_operand((enum fl_op)op))
            continue;
        const int words = op % 3 == 0 ? 5 : 0;
        check_rows(fl_format_of(FMT_FP16), (enum fl_op)op, 0, 0, TENSOR_ROUND_NEAREST, words);
        check_rows(fl_format_of(FMT_BF16), (enum fl_op)op, 0, 0, TENSOR_ROUND_NEAREST, 0);
        if (op % 4 == 0)
            check_rows(fl_format_of(FMT_BF16), (enum fl_op)op, 0, 0, TENSOR_ROUND_TRUNCATE, 0);
        check_rows(fl_format_of(FMT_FLEX16_5), (enum fl_op)op, 11 + op % 5, 9 + op % 7, TENSOR_ROUND_NEAREST, words);
        check_rows(fl_format_of(FMT_DFP16), (enum fl_op)op, op % 2 ? 14 : -100 + op, op % 3 ? 15 : -3,
                   TENSOR_ROUND_NEAREST, 0);
    }
    /* every magnitude differs, all are flushed or differ in the last place: ranks up to the last */
    check_rows(fl_format_of(FMT_FLEX16_5), FL_OP_LOGSIGMOID, 12, 0, TENSOR_ROUND_NEAREST, 0);
    check_rows(fl_format_of(FMT_DFP16), FL_OP_LOGSIGMOID, 17, 0, TENSOR_ROUND_NEAREST, 0);
    check_rows(fl_format_of(FMT_DFP16), FL_OP_SOFTPLUS, 18, -1, TENSOR_ROUND_NEAREST, 0);
    /* gradients by their slopes */
    for (int op = FL_OP_SIGMOID_GRAD; op <= FL_OP_COS_GRAD; op++) {
        check_rows(fl_format_of(FMT_FP16), (enum fl_op)op, 0, 0, TENSOR_ROUND_NEAREST, 0);
        if (op % 3 == 0)
            check_rows(fl_format_of(FMT_BF16), (enum fl_op)op, 0, 0,
                       op % 2 ? TENSOR_ROUND_TRUNCATE : TENSOR_ROUND_NEAREST, 0);
    }
    count = MANY;
    check_rows(fl_format_of(FMT_FLEX16_5), FL_OP_GELU_GRAD, 12, 12, TENSOR_ROUND_NEAREST, 0);
    check_rows(fl_format_of(FMT_DFP16), FL_OP_TANH_GRAD, 13, 15, TENSOR_ROUND_STOCHASTIC, 0);
    check_rows(fl_format_of(FMT_DFP16), FL_OP_EXP_GRAD, 12, 2, TENSOR_ROUND_NEAREST, 0);
    count = FEW;
    check_threads();
    check_child();
    return check_summary();
}
