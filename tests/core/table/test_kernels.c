/* Iterates over the table format x op x backend: every kernel against the reference, byte for byte, results and
 * statistics.
 *
 * It knows no format by name. Inputs for each format: ordinary values, all extreme, tiny, zeros mixed in, and for float
 * formats one with NaN and Inf; outputs have canaries; each kernel runs with 1, 2, 3 or 7 threads in turn, with all of
 * them under FLEXLAB_TEST_EVERY, and in place, if that is allowed, or measured. A failure line names
 * <format>.<op>.<backend>, the case and the seed. FLEXLAB_TEST_FILTER=substring selects.
 *
 * usage: test_kernels [FORMAT...]: those formats instead of all of the table; of a name that is another for one of
 * them, as e5m10 for fp16, the kernels of floats made from their parameters against those of that format. */
#include "flexlab/tensor.h"
#include "number_cases.h"

static const char *const style_names[STYLES] = {"ordinary", "extreme", "tiny", "sparse", "special"};

static bool canary_alive(const struct block *b) {
    for (int i = 0; i < CANARY; i++)
        if (b->memory[b->bytes + (size_t)i] != 0xa5)
            return false;
    return true;
}

static bool same_double(double a, double b) {
    return a == b || (a != a && b != b);
}

static bool same_stats(const struct fl_stats *a, const struct fl_stats *b) {
    return same_double(a->maximum, b->maximum) && a->gamma == b->gamma && a->saturated == b->saturated &&
           a->flushed == b->flushed && a->nonfinite == b->nonfinite;
}

/* All NaNs count as equal: the sign and payload of a produced NaN belong to the machine, not to the contract. */
static bool same_elements(const struct fl_format *f, const struct block *a, const struct block *b, int64_t *at) {
    if (!memcmp(a->memory, b->memory, a->bytes))
        return true;
    for (int64_t i = 0; i < a->view.count; i++) {
        double x, y;
        if (!memcmp(a->memory + i * f->bytes, b->memory + i * f->bytes, (size_t)f->bytes))
            continue;
        f->decode(f, &a->view, i, 1, &x);
        f->decode(f, &b->view, i, 1, &y);
        if (x == x || y == y) {
            *at = i;
            return false;
        }
    }
    return true;
}

static bool same_wide(const struct call *call, const struct result *want, const struct result *got) {
    const bool exact = call->format->arithmetic == FL_ARITHMETIC_SHARED;
    const float *a = want->wide, *b = got->wide;
    for (int64_t i = 0; i < call->shape.out; i++)
        if (memcmp(&a[i], &b[i], sizeof a[i]) && (exact || a[i] == a[i] || b[i] == b[i]))
            return false;
    return true;
}

static void compare(const struct call *call, const char *label, const struct result *want, const struct result *got,
                    bool measured) {
    const struct fl_format *f = call->format;
    int64_t at = 0;
    const int64_t n = channels_of(call);
    if (measured) {
        CHECK(same_double(want->stats.maximum, got->stats.maximum), "%s measured maximum %a want %a", label,
              got->stats.maximum, want->stats.maximum);
        return;
    }
    CHECK(
        same_stats(&want->stats, &got->stats),
        "%s stats got max %a gamma %d sat %lld flushed %lld nonfinite %lld want max %a gamma %d sat %lld flushed %lld "
        "nonfinite %lld",
        label, got->stats.maximum, got->stats.gamma, (long long)got->stats.saturated, (long long)got->stats.flushed,
        (long long)got->stats.nonfinite, want->stats.maximum, want->stats.gamma, (long long)want->stats.saturated,
        (long long)want->stats.flushed, (long long)want->stats.nonfinite);
    CHECK(!memcmp(want->isum, got->isum, (size_t)n * 16), "%s integer sums differ", label);
    for (int64_t i = 0; i < 2 * n; i++)
        CHECK(same_double(want->fsum[i], got->fsum[i]), "%s sum %lld got %a want %a", label, (long long)i, got->fsum[i],
              want->fsum[i]);
    if (!call->shape.out)
        return;
    CHECK(canary_alive(&got->out), "%s wrote past the end", label);
    double x = 0, y = 0;
    bool same = same_elements(f, &want->out, &got->out, &at);
    if (!same) {
        f->decode(f, &got->out.view, at, 1, &x);
        f->decode(f, &want->out.view, at, 1, &y);
    }
    CHECK(same, "%s i=%lld got %a want %a", label, (long long)at, x, y);
    if (want->wide)
        CHECK(same_wide(call, want, got), "%s wide copies differ", label);
}

/* A kernel of the current operation. */
struct row {
    enum fl_backend backend;
    fl_kernel kernel;
    char name[96];
    long failures;
};

static void run_row(struct call *call, struct row *row, const struct result *want, int turn, const char *which) {
    static const int threads[] = {1, 2, 3, 7};
    const bool every = getenv("FLEXLAB_TEST_EVERY") != NULL;
    const long before = check_failures;
    for (int t = row->backend == FL_REF ? 4 : 0; t < 6; t++) { /* reference kernels use no threads */
        const bool in_place = t == 4, measure = t == 5;
        if (in_place && !call->shape.in_place)
            continue;
        if (measure && (!call->shape.out))
            continue;
        if (!every && (t < 4 ? t != turn % 4 : call->shape.in_place && call->shape.out && t != 4 + turn / 4 % 2))
            continue;
        tensor_set_threads(t < 4 ? threads[t] : 2);
        char label[256];
        snprintf(label, sizeof label, "%s %s %s:", row->name, which,
                 in_place  ? "in place"
                 : measure ? "measure"
                 : t == 0  ? "1 thread"
                 : t == 1  ? "2 threads"
                           : "more threads");
        struct result got;
        tensor_status status = run(call, row->kernel, in_place, measure, &got);
        CHECK(!status, "%s status %d", label, (int)status);
        compare(call, label, want, &got, measure);
        result_free(&got);
    }
    row->failures += check_failures - before;
}

/* Runs one case on the reference kernel, then on each kernel set. */
static bool run_case(const struct fl_format *f, enum fl_op op, struct row *rows, int count, int index, enum style style,
                     tensor_rounding mode, uint64_t seed0) {
    static struct call call;
    if (!call_make(&call, f, op, index, style, mode, seed0, rows[count - 1].kernel)) /* the fastest */
        return false;
    char which[128];
    snprintf(which, sizeof which, "case %d %s rounding %d seed %llu", index, style_names[style], (int)mode,
             (unsigned long long)seed0);
    struct result want;
    tensor_status status = run(&call, fl_ref_kernel(op), false, false, &want);
    CHECK(!status, "%s.%s.ref failed", f->name, fl_op_name(op));
    for (int i = 0; i < count; i++)
        run_row(&call, &rows[i], &want, index + (int)style, which);
    result_free(&want);
    call_free(&call);
    return true;
}

/* Compares an operation whose results are numbers: each kernel set gives those of the reference. */
static void compare_numbers(const struct fl_format *f, enum fl_op op, enum fl_backend backend, fl_kernel kernel) {
    static double want[NUMBERS], got[NUMBERS];
    for (int threads = 1; threads <= 3; threads++)
        for (int index = 0, count; (count = number_run(f, op, fl_ref_kernel(op), index, 7, want)) != 0; index++) {
            tensor_set_threads(threads);
            const int n = number_run(f, op, kernel, index, 7, got);
            bool same = n == count;
            for (int i = 0; i < count && same; i++)
                same = want[i] == got[i] || (want[i] != want[i] && got[i] != got[i]);
            CHECK(same, "%s.%s.%s case %d differs from the reference", f->name, fl_op_name(op),
                  fl_backend_name(backend), index);
        }
}

/* Finds the kernels that kernel sets have themselves here, without those of lower sets; returns their number. If there
 * is none, only the reference: in place and measured it must give the same results. */
static int rows_of(const struct fl_format *f, enum fl_op op, const char *filter, struct row *rows) {
    int count = 0, others = 0;
    for (int backend = FL_PORTABLE; backend < FL_BACKENDS; backend++) {
        enum fl_backend chosen;
        struct row *row = &rows[count];
        *row = (struct row){.backend = (enum fl_backend)backend,
                            .kernel = fl_kernel_select(f, op, (enum fl_backend)backend, &chosen)};
        snprintf(row->name, sizeof row->name, "%s.%s.%s", f->name, fl_op_name(op),
                 fl_backend_name((enum fl_backend)backend));
        count += (int)chosen == backend && (!filter || strstr(row->name, filter));
        others += (int)chosen == backend;
    }
    if (!others) {
        rows[0] = (struct row){.backend = FL_REF, .kernel = fl_ref_kernel(op)};
        snprintf(rows[0].name, sizeof rows[0].name, "%s.%s.ref", f->name, fl_op_name(op));
        count = !filter || strstr(rows[0].name, filter);
    }
    return count;
}

/* Whether a case is run with the r-th rounding of a format that has several: with all of them under FLEXLAB_TEST_EVERY,
 * else in turn, so that each style and number of threads meets each. */
static bool is_due(int index, int style, int r) {
    static int every = -1;
    every = every < 0 ? getenv("FLEXLAB_TEST_EVERY") != NULL : every;
    return every || (index / 2 + style + r) % 2 == 0;
}

/* All operations of a format. */
static void check_format(const struct fl_format *f, const char *filter, uint64_t seed) {
    for (int op = 1; op < FL_OP_LIMIT; op++) {
        if (!fl_op_name((enum fl_op)op))
            continue;
        CHECK(fl_ref_kernel((enum fl_op)op) != NULL, "%s has no reference kernel", fl_op_name((enum fl_op)op));
        struct shape first;
        CHECK(is_number_op((enum fl_op)op) || shape_of((enum fl_op)op, 0, &first), "%s has no test inputs",
              fl_op_name((enum fl_op)op));
        struct row rows[FL_BACKENDS];
        const int count = rows_of(f, (enum fl_op)op, filter, rows);
        if (is_number_op((enum fl_op)op)) {
            for (int k = 0; k < count; k++)
                compare_numbers(f, (enum fl_op)op, rows[k].backend, rows[k].kernel);
            continue;
        }
        /* NaN and Inf are not values of a shared exponent: its special inputs would repeat the ordinary ones. */
        const int styles = f->arithmetic == FL_ARITHMETIC_SHARED ? SPECIAL : STYLES;
        bool more = count > 0;
        for (int index = 0; more; index++)
            for (int style = 0; style < styles && more; style++) {
                tensor_rounding mode;
                for (int r = 0; more && rounding_at(f, r, &mode); r++)
                    more = (rounding_at(f, 1, &(tensor_rounding){0}) && !is_due(index, style, r)) ||
                           run_case(f, (enum fl_op)op, rows, count, index, (enum style)style, mode,
                                    seed + (uint64_t)(r > 0));
            }
        for (int k = 0; k < count; k++)
            printf("%-40s %s\n", rows[k].name, rows[k].failures ? "FAILED" : "ok");
    }
}

/* The kernels that serve every float made from its parameters, with the parameters of a format that has kernels of its
 * own: both give the same elements, wide parts and statistics. */
static void check_twin(const struct fl_format *native, const char *text, uint64_t seed) {
    struct fl_element element;
    const char *end;
    CHECK(!fl_element_find(&element, text, text, &end), "%s", tensor_error());
    struct fl_format twin = *fl_made_float();
    twin.id = native->id;
    twin.name = text;
    twin.bytes = native->bytes;
    twin.bits = native->bits;
    twin.element = &element;
    for (int op = 1; op < FL_OP_LIMIT; op++) {
        if (!fl_op_name((enum fl_op)op) || is_number_op((enum fl_op)op))
            continue;
        struct row rows[FL_BACKENDS];
        const int count = rows_of(&twin, (enum fl_op)op, NULL, rows);
        bool more = count > 0;
        for (int index = 0; more; index++)
            for (int style = 0; style < STYLES && more; style++)
                for (int r = 0; r < 2 && more; r++) {
                    static struct call call;
                    if (!is_due(index, style, r))
                        continue;
                    const tensor_rounding mode = r ? TENSOR_ROUND_STOCHASTIC : TENSOR_ROUND_NEAREST;
                    const fl_kernel of_native = fl_kernel_select(native, (enum fl_op)op, FL_BACKENDS - 1, NULL);
                    more = call_make(&call, native, (enum fl_op)op, index, (enum style)style, mode, seed, of_native);
                    if (!more)
                        continue;
                    struct result want;
                    CHECK(!run(&call, of_native, false, false, &want), "%s.%s", native->name, fl_op_name(op));
                    char which[128];
                    snprintf(which, sizeof which, "as %s, case %d %s rounding %d seed %llu", native->name, index,
                             style_names[style], (int)mode, (unsigned long long)seed);
                    call.format = call.args.format = &twin;
                    for (int i = 0; i < count; i++)
                        run_row(&call, &rows[i], &want, index + style, which);
                    result_free(&want);
                    call_free(&call);
                }
    }
}

int main(int count, char **names) {
    const char *filter = getenv("FLEXLAB_TEST_FILTER");
    const char *text = getenv("FLEXLAB_TEST_SEED");
    const uint64_t seed = text ? strtoull(text, NULL, 0) : 20170711;
    printf("seed %llu\n", (unsigned long long)seed);
    for (int i = 0; count < 2 && fl_format_at(i); i++)
        check_format(fl_format_at(i), filter, seed);
    for (int i = 1; i < count; i++) {
        tensor_format id = FMT_NONE;
        CHECK(!tensor_format_find(&id, names[i]), "%s: %s", names[i], tensor_error());
        const struct fl_format *f = fl_format_of(id);
        if (f && strcmp(f->name, names[i]))
            check_twin(f, names[i], seed);
        else if (f)
            check_format(f, filter, seed);
    }
    return check_summary();
}
