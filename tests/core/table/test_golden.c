/* Every instruction set gives the same bits, on this machine as on any other: a hash of all results of every
 * <format>.<op> of the table, on the inputs of kernel_cases.h, against the one recorded in golden.txt. Runs what
 * dispatch picks under each backend of this machine, or under FLEXLAB_ISA alone, with 3 threads, or with 1, 2, 3 and 7
 * under FLEXLAB_TEST_EVERY. Without that, one case of seven where a kernel is that of a lower backend, and on the
 * reference. Knows no format and no operation by name.
 *     test_golden [--threads N]    FLEXLAB_TEST_FILTER=substring selects
 *     test_golden --every K        prints the hashes of the first and every K-th case of each operation, with 2
 * threads and the best backend: for another machine, or an emulated one that all cases would keep too long
 *     test_golden --write          records what the reference kernels compute */
#include "flexlab/tensor.h"
#include "number_cases.h"

static const uint64_t seed = 20170711;

static void mix(uint64_t *hash, uint64_t word) {
    *hash = (*hash ^ word) * 0x9FB21C651E98DF25u;
    *hash ^= *hash >> 32;
}

/* All NaNs count as equal, and so do both zeros in sums and statistics. */
static void mix_double(uint64_t *hash, double x) {
    uint64_t bits;
    x = x == 0 ? 0 : x;
    memcpy(&bits, &x, sizeof bits);
    mix(hash, x == x ? bits : UINT64_MAX);
}

static void mix_result(uint64_t *hash, const struct call *call, const struct result *r) {
    const struct fl_format *f = call->format;
    mix_double(hash, r->stats.maximum);
    const int64_t counts[] = {r->stats.gamma, r->stats.saturated, r->stats.flushed, r->stats.nonfinite,
                              fl_exponent(&r->out.view)};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        mix(hash, (uint64_t)counts[i]);
    const int64_t channels = channels_of(call);
    for (int64_t i = 0; i < 2 * channels; i++) {
        mix(hash, (uint64_t)r->isum[i]);
        mix_double(hash, r->fsum[i]);
    }
    for (int64_t first = 0; first < call->shape.out; first += 256) {
        double values[256];
        const int64_t n = call->shape.out - first < 256 ? call->shape.out - first : 256;
        f->decode(f, &r->out.view, first, n, values);
        for (int64_t i = 0; i < n; i++) {
            uint64_t bits = 0;
            memcpy(&bits, r->out.memory + (first + i) * f->bytes, (size_t)f->bytes);
            mix(hash, values[i] == values[i] ? bits : UINT64_MAX);
        }
    }
    for (int64_t i = 0; r->wide && i < call->shape.out; i++) {
        uint64_t bits = 0;
        memcpy(&bits, (unsigned char *)r->wide + i * f->wide_bytes, (size_t)f->wide_bytes);
        /* Sign and payload of a NaN depend on the machine; the hashes of sgd_update were recorded with them. */
        const bool nan = f->arithmetic == FL_ARITHMETIC_FLOAT && (bits & 0x7fffffffu) > 0x7f800000u;
        mix(hash, nan && call->op != FL_OP_SGD_UPDATE ? 0x7fc00000u : bits);
    }
}

/* Whether both have the same bytes and therefore the same hash. */
static bool same_result(const struct call *call, const struct result *a, const struct result *b) {
    const int64_t channels = channels_of(call);
    return !memcmp(&a->stats, &b->stats, sizeof a->stats) && !memcmp(a->isum, b->isum, (size_t)channels * 16) &&
           !memcmp(a->fsum, b->fsum, (size_t)channels * 16) && fl_exponent(&a->out.view) == fl_exponent(&b->out.view) &&
           (!a->out.bytes || !memcmp(a->out.memory, b->out.memory, a->out.bytes)) &&
           (!a->wide || !memcmp(a->wide, b->wide, (size_t)call->shape.out * (size_t)call->format->wide_bytes));
}

static const int *threads = (const int[]){1, 2, 3, 7};
static int numbers_of_threads = 4;
static int every = 1;

/* Of cases, those that a variant runs which another one stands for: each, or one of seven. */
static int turns = 1;

/* What computes the results of an operation: each of a backend and number of threads. */
enum { VARIANTS = 4 * FL_BACKENDS };
struct variant {
    enum fl_backend cap, chosen;
    fl_kernel kernel;
    int threads;
    int like;         /* which variant has its results where it does not run; itself: it runs each case */
    uint64_t hash[2]; /* [1]: of asymmetric windows, which not every operation has */
};

static void enter(const struct variant *v) {
    tensor_set_backend(fl_backend_name(v->cap));
    tensor_set_threads(v->threads);
}

/* Selects the first case of each operation, and others that differ between operations, so that --every tests all
 * kinds. */
static bool is_due(enum fl_op op, int number) {
    return !number || (number + (int)op) % every == 0;
}

/* A kernel that a lower backend has, too, runs there; the reference, with which test_kernels compares every kernel on
 * such cases, has the results of the portable kernel. */
static void find_likes(struct variant *v, int n) {
    for (int i = 0; i < n; i++) {
        v[i].like = i;
        for (int j = i - 1; j >= 0; j--)
            if (v[j].kernel == v[i].kernel && v[j].threads == v[i].threads)
                v[i].like = j;
    }
    for (int i = 1; i < n && v[0].cap == FL_REF; i++)
        v[i].like = v[i].kernel == v[0].kernel ? 0 : v[i].like;
    if (n > 1 && v[0].cap == FL_REF && v[1].kernel != v[0].kernel)
        v[0].like = 1;
}

/* Computes the hashes of all variants. Returns whether there were asymmetric windows. */
static bool hash_all(const struct fl_format *f, enum fl_op op, struct variant *v, int n) {
    static struct call call;
    const tensor_rounding roundings[] = {TENSOR_ROUND_NEAREST, other_rounding(f)};
    bool more = true, found = false;
    int number = 0;
    for (int index = 0; more; index++)
        for (int style = 0; style < STYLES && more; style++)
            for (int r = 0; r < 2 && (r == 0 || roundings[1] != roundings[0]) && more; r++) {
                more = shape_of(op, index, &call.shape);
                if (!more || !is_due(op, number++))
                    continue;
                const int turn = number + (int)op; /* prime to the number of styles and roundings: all of them come */
                enter(&v[n - 1]);
                call_make(&call, f, op, index, (enum style)style, roundings[r], seed + (uint64_t)r, v[n - 1].kernel);
                const bool kind = call.shape.asymmetric;
                found |= kind;
                uint64_t before[VARIANTS];
                struct result first;
                int with = -1; /* whose result that is */
                for (int i = 0; i < n; i++)
                    before[i] = v[i].hash[kind];
                for (int i = 0; i < n; i++) {
                    if (v[i].like != i && turn % turns)
                        continue;
                    struct result result, *to = with < 0 ? &first : &result;
                    enter(&v[i]);
                    tensor_status status = run(&call, v[i].kernel, false, false, to);
                    CHECK(!status, "%s.%s failed: %s", f->name, fl_op_name(op), tensor_error());
                    if (with >= 0 && before[i] == before[with] && same_result(&call, &first, to))
                        v[i].hash[kind] = v[with].hash[kind];
                    else
                        mix_result(&v[i].hash[kind], &call, to);
                    if (with >= 0)
                        result_free(to);
                    with = with < 0 ? i : with;
                }
                for (int i = 0; i < n && turn % turns; i++) /* a hash that differs goes on to differ */
                    if (v[i].like != i && before[i] == before[v[i].like])
                        v[i].hash[kind] = v[v[i].like].hash[kind];
                result_free(&first);
                call_free(&call);
            }
    return found;
}

/* The same for an operation whose results are numbers. */
static void hash_numbers(const struct fl_format *f, enum fl_op op, struct variant *v, int n) {
    static double values[NUMBERS];
    for (int i = 0; i < n; i++) {
        enter(&v[i]);
        for (int index = 0, count; (count = number_run(f, op, v[i].kernel, index, seed, values)) != 0; index++) {
            CHECK(count > 0, "%s.%s failed: %s", f->name, fl_op_name(op), tensor_error());
            for (int at = 0; at < count && is_due(op, index); at++)
                mix_double(&v[i].hash[0], values[at]);
        }
    }
}

/* --- the record: lines of <format>.<op> and 16 hexadecimal digits ---------------------------------------------------
 */

enum { LINES = 1024 };
static struct {
    char name[96];
    uint64_t hash;
    bool used;
} record[LINES];
static int lines;

static bool read_record(void) {
    FILE *file = fopen(GOLDEN_FILE, "r");
    unsigned long long hash;
    while (file && lines < LINES && fscanf(file, "%95s %16llx", record[lines].name, &hash) == 2)
        record[lines++].hash = hash;
    if (file)
        fclose(file);
    return lines > 0;
}

static void compare(const char *name, const char *cap, const char *row, int team, uint64_t hash) {
    int i = 0;
    while (i < lines && strcmp(record[i].name, name) != 0)
        i++;
    CHECK(i < lines, "%s is not in golden.txt: run test_golden --write", name);
    if (i == lines)
        return;
    record[i].used = true;
    CHECK(hash == record[i].hash, "%s.%s under %s with %d threads: hash %016llx, recorded %016llx", name, row, cap,
          team, (unsigned long long)hash, (unsigned long long)record[i].hash);
}

/* The variants of an operation under the backends from `least` to `most` that this machine has. Reference kernels use
 * no threads. */
static int variants_of(const struct fl_format *f, enum fl_op op, enum fl_backend least, enum fl_backend most,
                       struct variant *v) {
    int n = 0;
    for (int cap = least; cap <= (int)most; cap++)
        for (int t = 0; t < (cap == FL_REF ? 1 : numbers_of_threads) && fl_backend_runs((enum fl_backend)cap); t++) {
            v[n] = (struct variant){.cap = (enum fl_backend)cap, .threads = cap == FL_REF ? 1 : threads[t]};
            v[n].kernel = fl_kernel_select(f, op, v[n].cap, &v[n].chosen);
            n++;
        }
    return n;
}

int main(int argc, char **argv) {
    const char *filter = getenv("FLEXLAB_TEST_FILTER"), *isa = getenv("FLEXLAB_ISA");
    const bool write = argc == 2 && !strcmp(argv[1], "--write");
    static int given = 3;
    if (!getenv("FLEXLAB_TEST_EVERY"))
        numbers_of_threads = 1;
    if (argc == 3 && !strcmp(argv[1], "--threads")) {
        given = atoi(argv[2]);
        numbers_of_threads = 1;
    }
    const bool print = argc == 3 && !strcmp(argv[1], "--every");
    if (print) {
        every = atoi(argv[2]);
        if (every < 1)
            return fprintf(stderr, "--every %s: expected a number from 1\n", argv[2]), 2;
        given = 2;
        numbers_of_threads = 1;
    }
    if (numbers_of_threads == 1)
        threads = &given;
    turns = numbers_of_threads == 1 && !print && !write ? 7 : 1;
    enum fl_backend best;
    CHECK(!fl_backend_cap(&best), "%s", tensor_error());
    if (!write && isa && *isa && strcmp(fl_backend_name(best), isa) != 0)
        return check_skip("FLEXLAB_ISA is more than this machine has");
    enum fl_backend least = (isa && *isa) || print ? best : FL_REF;
#ifdef FL_AMX_EMULATED
    least = FL_AVX512_AMX; /* the other kernel sets have a test of their own */
#endif
    if (write)
        least = best = FL_REF;
    FILE *file = write ? fopen(GOLDEN_FILE, "w") : NULL;
    CHECK(write ? file != NULL : read_record(), "cannot open " GOLDEN_FILE);
    for (int i = 0; fl_format_at(i); i++) {
        const struct fl_format *f = fl_format_at(i);
        for (int op = 1; op < FL_OP_LIMIT; op++) {
            char name[96];
            if (!fl_op_name((enum fl_op)op))
                continue;
            snprintf(name, sizeof name, "%s.%s", f->name, fl_op_name((enum fl_op)op));
            if (filter && !strstr(name, filter))
                continue;
            static struct variant v[VARIANTS];
            const int n = variants_of(f, (enum fl_op)op, least, best, v);
            find_likes(v, n);
#ifdef FL_AMX_EMULATED
            if (!n || v[0].chosen != FL_AVX512_AMX)
                continue;
#endif
            bool asymmetric = false;
            if (is_number_op((enum fl_op)op))
                hash_numbers(f, (enum fl_op)op, v, n);
            else
                asymmetric = hash_all(f, (enum fl_op)op, v, n);
            for (int kind = 0; kind < 1 + asymmetric; kind++) {
                snprintf(name, sizeof name, "%s.%s%s", f->name, fl_op_name((enum fl_op)op), kind ? "/asymmetric" : "");
                if (file)
                    fprintf(file, "%-32s %016llx\n", name, (unsigned long long)v[0].hash[kind]);
                if (print)
                    printf("%-32s %016llx\n", name, (unsigned long long)v[0].hash[kind]);
                for (int t = 0; t < n && !file && !print; t++)
                    compare(name, fl_backend_name(v[t].cap), fl_backend_name(v[t].chosen), v[t].threads,
                            v[t].hash[kind]);
            }
        }
    }
    int used = 0;
    for (int i = 0; i < lines; i++)
        used += record[i].used;
#ifdef FL_AMX_EMULATED
    CHECK(used > 10, "%d lines of golden.txt were compared, expected those of the products", used);
#else
    for (int i = 0; i < lines && !filter && !print; i++)
        CHECK(record[i].used, "%s is in golden.txt and not in the table", record[i].name);
#endif
    printf("%d hashes compared", used);
    for (int cap = least; cap <= (int)best && !write; cap++)
        if (fl_backend_runs((enum fl_backend)cap))
            printf("%s %s", cap == (int)least ? ", each under" : ",", fl_backend_name((enum fl_backend)cap));
    puts("");
    if (file)
        CHECK(!fclose(file), "cannot write " GOLDEN_FILE);
    return check_summary();
}
