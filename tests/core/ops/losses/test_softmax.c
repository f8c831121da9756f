/* Softmax with cross-entropy: the same bits from every instruction set and number of threads, and those of the recorded
 * hashes; NaN, Inf, and logits so far apart that exponentials are subnormal or zero. */
#include "host_numbers.h"
#include "check.h"
#include "core/table/format.h"
#include "core/ops/losses/softmax.h"
#include "flexlab/tensor.h"
#include <math.h>
#include <string.h>

static const struct {
    int64_t rows, classes;
} shapes[] = {{1, 1}, {3, 2}, {128, 10}, {9, 17}, {8, 64}, {13, 1000}, {5, 5003}};
enum { SHAPES = sizeof shapes / sizeof shapes[0], LARGEST = 5 * 5003, STYLES = 4 };

static void fill(double *x, int64_t n, int style, uint64_t *seed) {
    for (int64_t i = 0; i < n; i++) {
        const uint64_t pick = check_random(seed);
        const double u = (double)(pick >> 11) * 0x1p-53;
        static const double unusual[] = {NAN, INFINITY, -INFINITY, 0, -0.0};
        x[i] = style == 0   ? u * 16 - 8
               : style == 1 ? -u * 760 /* to the limit of exponentials */
               : style == 2 ? floor(u * 4)
                            : u;
        if (style == 3 && pick % 31 == 0)
            x[i] = unusual[pick / 31 % 5];
    }
}

static void mix(uint64_t *hash, double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    *hash = (*hash ^ (x == x ? bits : UINT64_MAX)) * 0x9FB21C651E98DF25u; /* any NaN is as good as another */
    *hash ^= *hash >> 32;
}

/* The hash of all results on all inputs. */
static uint64_t hash_of(const struct fl_format *f) {
    static double x[LARGEST], dx[LARGEST];
    static int32_t labels[128], predicted[128];
    uint64_t hash = 0, seed = 20170711;
    for (int s = 0; s < SHAPES; s++)
        for (int style = 0; style < STYLES - (f->arithmetic == FL_ARITHMETIC_SHARED); style++) {
            const int64_t shape[] = {shapes[s].rows, shapes[s].classes}, count = shape[0] * shape[1];
            tensor *logits = tensor_new(f->id, 2, shape), *gradient = tensor_new(f->id, 2, shape);
            double loss = 0, without = 0;
            fill(x, count, style, &seed);
            for (int64_t i = 0; i < shape[0]; i++)
                labels[i] = (int32_t)(check_random(&seed) % (uint64_t)shape[1]);
            CHECK(logits && gradient && !tensor_load_f64(logits, x, count), "%s", tensor_error());
            CHECK(!host_cross_entropy(&loss, gradient, predicted, logits, labels, 1.5), "%s", tensor_error());
            CHECK(!host_cross_entropy(&without, NULL, NULL, logits, labels, 1), "%s", tensor_error());
            CHECK(loss == without || (loss != loss && without != without), "%s: loss %g, alone %g", f->name, loss,
                  without);
            CHECK(!tensor_store_f64(gradient, dx, count), "%s", tensor_error());
            tensor_stats stats;
            CHECK(!tensor_statistics(&stats, NULL, gradient), "%s", tensor_error());
            mix(&hash, loss);
            mix(&hash, tensor_exponent(gradient));
            mix(&hash, stats.maximum);
            mix(&hash, stats.gamma);
            mix(&hash, (double)stats.saturated);
            mix(&hash, (double)stats.flushed);
            mix(&hash, (double)stats.nonfinite);
            for (int64_t i = 0; i < count; i++)
                mix(&hash, dx[i]);
            for (int64_t i = 0; i < shape[0]; i++)
                mix(&hash, predicted[i]);
            tensor_free(logits);
            tensor_free(gradient);
        }
    return hash;
}

/* Compares all 64 bits of losses and gradients of this machine's kernels with the definition. */
static void check_doubles(int64_t classes, bool gradient, uint64_t seed) {
    enum { ROWS = 43, CLASSES = 1001 }; /* rows beyond whole groups of eight; classes at most */
    static double x[ROWS * CLASSES], expected[ROWS * CLASSES], z[ROWS * CLASSES], losses[2][ROWS];
    static int32_t labels[ROWS], largest[2][ROWS];
    enum fl_backend cap;
    CHECK(!fl_backend_cap(&cap), "%s", tensor_error());
    for (int style = 0; style < STYLES; style++) {
        fill(x, ROWS * classes, style, &seed);
        for (int i = 0; i < ROWS; i++)
            labels[i] = (int32_t)(check_random(&seed) % (uint64_t)classes);
        struct fl_softmax_work s = {expected, labels, classes, 0.37, gradient, losses[0], largest[0]};
        memcpy(expected, x, sizeof x);
        fl_softmax_rows_of(FL_REF)(&s, 0, ROWS);
        for (int backend = FL_PORTABLE; backend <= (int)cap; backend++) {
            if (!fl_softmax_rows_of((enum fl_backend)backend))
                continue;
            struct fl_softmax_work t = {z, labels, classes, 0.37, gradient, losses[1], largest[1]};
            memcpy(z, x, sizeof x);
            fl_softmax_rows_of((enum fl_backend)backend)(&t, 0, ROWS);
            int64_t wrong = 0;
            for (int64_t i = 0; gradient && i < ROWS * classes; i++)
                wrong += memcmp(z + i, expected + i, sizeof *z) != 0 && (z[i] == z[i] || expected[i] == expected[i]);
            for (int i = 0; i < ROWS; i++) {
                const double a = losses[0][i], b = losses[1][i];
                wrong += (memcmp(&a, &b, sizeof a) != 0 && (a == a || b == b)) || largest[0][i] != largest[1][i];
            }
            CHECK(!wrong, "%s, style %d, seed %llx: %lld differ", fl_backend_name((enum fl_backend)backend), style,
                  (unsigned long long)seed, (long long)wrong);
        }
    }
}

int main(void) {
    static const int64_t classes[] = {1, 3, 10, 17, 1001};
    for (uint64_t seed = 0; seed < 50; seed++)
        check_doubles(classes[seed % 5], seed % 10 < 5, seed);
    static const char *const backends[] = {"ref", "portable", "avx2", "avx512bw", "avx512", "avx512_amx"};
    static const struct {
        const char *format;
        uint64_t hash;
    } recorded[] = {{"fp32", 0x3a9bb21ff133c8ab},
                    {"fp16", 0x9e28c5daad8d34d5},
                    {"bf16", 0x00dbbda66ab3362a},
                    {"flex16+5", 0x24ab0ec910445b18},
                    {"dfp16", 0xf3afb67fd9a935eb}};
    for (size_t i = 0; i < sizeof recorded / sizeof recorded[0]; i++)
        for (size_t b = 0; b < sizeof backends / sizeof backends[0]; b++)
            for (int threads = 1; threads <= 7; threads += 3) {
                tensor_set_threads(threads);
                CHECK(!tensor_set_backend(backends[b]), "%s", tensor_error());
                const uint64_t hash = hash_of(fl_format_named(recorded[i].format));
                CHECK(hash == recorded[i].hash, "%s under %s with %d threads: hash %016llx, recorded %016llx",
                      recorded[i].format, backends[b], threads, (unsigned long long)hash,
                      (unsigned long long)recorded[i].hash);
            }
    return check_summary();
}
