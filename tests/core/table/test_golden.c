/* Every instruction set gives the same bits, on this machine as on any other: a hash of all results of every
 * <format>.<op> of the table, on the inputs of kernel_cases.h, against the one recorded in golden.txt. Runs what
 * dispatch picks (FLEXLAB_ISA), with 3 threads, or with 1, 2, 3 and 7 under FLEXLAB_TEST_EVERY. Knows no format and no
 * operation by name.
 *     test_golden [--threads N]    FLEXLAB_TEST_FILTER=substring selects
 *     test_golden --every K        prints the hashes of the first and every K-th case of each operation, with 2
 * threads: for another machine, or an emulated one that all cases would keep too long test_golden --write records what
 * the reference kernels compute */
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

enum { RUNS = 4 };
static int threads[RUNS] = {1, 2, 3, 7}, runs = RUNS;
static int every = 1;

/* Selects the first case of each operation, and others that differ between operations, so that --every tests all
 * kinds. */
static bool is_due(enum fl_op op, int number) {
    return !number || (number + (int)op) % every == 0;
}

/* Computes one hash for each number of threads, and another for asymmetric windows, which not every operation has.
 * Returns whether there were any. */
static bool hash_all(const struct fl_format *f, enum fl_op op, fl_kernel kernel, int n, uint64_t *hash,
                     uint64_t *asymmetric) {
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
                call_make(&call, f, op, index, (enum style)style, roundings[r], seed + (uint64_t)r, kernel);
                found |= call.shape.asymmetric;
                uint64_t *to = call.shape.asymmetric ? asymmetric : hash, before[RUNS];
                memcpy(before, to, sizeof before);
                struct result results[RUNS];
                for (int t = 0; t < n; t++) {
                    tensor_set_threads(threads[t]);
                    tensor_status status = run(&call, kernel, false, false, &results[t]);
                    CHECK(!status, "%s.%s failed: %s", f->name, fl_op_name(op), tensor_error());
                    if (t && before[t] == before[0] && same_result(&call, &results[0], &results[t]))
                        to[t] = to[0];
                    else
                        mix_result(&to[t], &call, &results[t]);
                }
                for (int t = 0; t < n; t++)
                    result_free(&results[t]);
                call_free(&call);
            }
    return found;
}

/* The same for an operation whose results are numbers. */
static void hash_numbers(const struct fl_format *f, enum fl_op op, fl_kernel kernel, int n, uint64_t *hash) {
    static double values[NUMBERS];
    for (int t = 0; t < n; t++) {
        tensor_set_threads(threads[t]);
        for (int index = 0, count; (count = number_run(f, op, kernel, index, seed, values)) != 0; index++) {
            CHECK(count > 0, "%s.%s failed: %s", f->name, fl_op_name(op), tensor_error());
            for (int i = 0; i < count && is_due(op, index); i++)
                mix_double(&hash[t], values[i]);
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

static void compare(const char *name, const char *row, int team, uint64_t hash) {
    int i = 0;
    while (i < lines && strcmp(record[i].name, name) != 0)
        i++;
    CHECK(i < lines, "%s is not in golden.txt: run test_golden --write", name);
    if (i == lines)
        return;
    record[i].used = true;
    CHECK(hash == record[i].hash, "%s.%s with %d threads: hash %016llx, recorded %016llx", name, row, team,
          (unsigned long long)hash, (unsigned long long)record[i].hash);
}

int main(int argc, char **argv) {
    const char *filter = getenv("FLEXLAB_TEST_FILTER"), *isa = getenv("FLEXLAB_ISA");
    const bool write = argc == 2 && !strcmp(argv[1], "--write");
    if (!getenv("FLEXLAB_TEST_EVERY")) {
        threads[0] = 3;
        runs = 1;
    }
    if (argc == 3 && !strcmp(argv[1], "--threads")) {
        threads[0] = atoi(argv[2]);
        runs = 1;
    }
    const bool print = argc == 3 && !strcmp(argv[1], "--every");
    if (print) {
        every = atoi(argv[2]);
        if (every < 1)
            return fprintf(stderr, "--every %s: expected a number from 1\n", argv[2]), 2;
        threads[0] = 2;
        runs = 1;
    }
    if (write)
        tensor_set_backend("ref");
    enum fl_backend cap, chosen;
    CHECK(!fl_backend_cap(&cap), "%s", tensor_error());
    if (!write && isa && *isa && strcmp(fl_backend_name(cap), isa) != 0)
        return check_skip("FLEXLAB_ISA is more than this machine has");
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
            fl_kernel kernel = fl_kernel_select(f, (enum fl_op)op, cap, &chosen);
#ifdef FL_AMX_EMULATED
            if (chosen != FL_AVX512_AMX)
                continue; /* the other kernel sets have a test of their own */
#endif
            const int n = chosen == FL_REF ? 1 : runs; /* reference kernels use no threads */
            uint64_t hash[2][RUNS] = {{0}};
            bool asymmetric = false;
            if (is_number_op((enum fl_op)op))
                hash_numbers(f, (enum fl_op)op, kernel, n, hash[0]);
            else
                asymmetric = hash_all(f, (enum fl_op)op, kernel, n, hash[0], hash[1]);
            for (int kind = 0; kind < 1 + asymmetric; kind++) {
                snprintf(name, sizeof name, "%s.%s%s", f->name, fl_op_name((enum fl_op)op), kind ? "/asymmetric" : "");
                if (file)
                    fprintf(file, "%-32s %016llx\n", name, (unsigned long long)hash[kind][0]);
                if (print)
                    printf("%-32s %016llx\n", name, (unsigned long long)hash[kind][0]);
                for (int t = 0; t < n && !file && !print; t++)
                    compare(name, fl_backend_name(chosen), threads[t], hash[kind][t]);
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
    printf("%d hashes compared\n", used);
    if (file)
        CHECK(!fclose(file), "cannot write " GOLDEN_FILE);
    return check_summary();
}
