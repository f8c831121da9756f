/* Conversions through binary32 (from_floats and to_floats of a kernel set) and of many doubles at once give what the
 * codec gives number by number: elements and statistics, for every kernel set, exponent and odd number; and tensors
 * convert alike however large they are. */
#include "check.h"
#include "core/table/format.h"
#include "core/base/memory.h"
#include "flexlab/tensor.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { COUNT = 2500 };

static uint64_t seed = 0x7a15;

/* Numbers around the range of an exponent: ordinary, ties, the edge of saturation, tiny, special. */
static float random_number(int e) {
    static const float special[] = {0, -0.0f, 1, -1, 0x1p-149f, 0x1.fffffep127f, INFINITY, -INFINITY, NAN};
    const uint64_t bits = check_random(&seed);
    const int m = (int)(bits % 65601) - 32800;
    switch (bits >> 60) {
    case 0:
        return special[bits % 9];
    case 1:
    case 2:
    case 3:
        return (float)ldexp(m + 0.5, -e);
    case 4:
        return (float)ldexp(m, -e - 17);
    case 5:
        return (float)ldexp(m * 4.0, -e);
    default:
        return (float)ldexp((double)(int64_t)(bits << 8) * 0x1p-49, -e);
    }
}

static double random_quarter(void) {
    const double size = (double)(check_random(&seed) % 131071) / 4; /* at most 32767.5 */
    return check_random(&seed) % 2 ? size : -size;
}

enum kind { FINITE, ANY, EDGE, KINDS };

static bool same(const struct fl_stats *a, const struct fl_stats *b) {
    return a->maximum == b->maximum && a->gamma == b->gamma && a->saturated == b->saturated &&
           a->flushed == b->flushed && a->nonfinite == b->nonfinite;
}

/* Bytes are equal, or both are NaN. */
static int64_t first_difference(const struct fl_format *f, const void *a, const void *b, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        double x, y;
        f->decode(f, &(struct fl_view){(void *)(uintptr_t)a, NULL, 0, n}, i, 1, &x);
        f->decode(f, &(struct fl_view){(void *)(uintptr_t)b, NULL, 0, n}, i, 1, &y);
        if (x == x ? memcmp((const char *)a + i * f->bytes, (const char *)b + i * f->bytes, (size_t)f->bytes) : y == y)
            return i;
    }
    return -1;
}

static void check_row(const struct fl_format *f, enum fl_backend backend, int e, tensor_rounding mode, enum kind kind) {
    const struct fl_kernels *set = f->sets[backend];
    static _Alignas(64) float x[COUNT], back[COUNT];
    static double values[COUNT];
    static _Alignas(64) char want[4 * COUNT], got[4 * COUNT];
    for (int i = 0; i < COUNT; i++) {
        do
            x[i] = random_number(e);
        while (kind != ANY && !isfinite(x[i]));
        if (kind == EDGE) /* multiples of 1/4 up to the first that saturates */
            x[i] = (float)ldexp(i == 700 ? 32767.5 : random_quarter(), -e);
        values[i] = x[i];
    }
    const struct fl_rounding rounding = {mode, 0, 0};
    struct fl_stats codec = {0}, kernel = {0}, measured = {0};
    struct fl_view to = {want, NULL, &e, COUNT}, out = {got, NULL, &e, COUNT}, none = {NULL, NULL, &e, COUNT};
    /* blocks of the size that transfers use: a special number affects only its own block */
    for (int i = 0; i < COUNT; i++)
        f->encode(f, &to, i, 1, values + i, false, &rounding, &codec);
    for (int first = 0; first < COUNT; first += 500) {
        set->from_floats(f, &out, first, 500, x + first, &rounding, &kernel);
        set->from_floats(f, &none, first, 500, x + first, &rounding, &measured);
    }
    const char *name = fl_backend_name(backend);
    const int64_t bad = first_difference(f, want, got, COUNT);
    CHECK(bad < 0, "%s.%s e %d from %a", f->name, name, e, x[bad]);
    CHECK(same(&codec, &kernel),
          "%s.%s e %d: maximum %a %a gamma %d %d saturated %" PRId64 " %" PRId64 " flushed %" PRId64 " %" PRId64
          " nonfinite %" PRId64 " %" PRId64,
          f->name, name, e, codec.maximum, kernel.maximum, codec.gamma, kernel.gamma, codec.saturated, kernel.saturated,
          codec.flushed, kernel.flushed, codec.nonfinite, kernel.nonfinite);
    CHECK(measured.maximum == codec.maximum, "%s.%s e %d measured: %a, want %a", f->name, name, e, measured.maximum,
          codec.maximum);
    if (e < -112)
        return; /* beyond binary32 */
    f->decode(f, &to, 0, COUNT, values);
    for (int stream = 0; stream < 2; stream++) {
        set->to_floats(f, &to, 0, COUNT, back, stream);
        bool equal = true;
        for (int i = 0; i < COUNT; i++)
            equal &= back[i] == (float)values[i] || (back[i] != back[i] && values[i] != values[i]);
        CHECK(equal, "%s.%s e %d to binary32", f->name, name, e);
    }
}

/* Doubles of every size, with bits that binary32 does not have, in runs of every length. */
static void check_doubles(const struct fl_format *f, const char *backend, int e, bool op_result) {
    enum { MOST = 130 };
    double values[MOST];
    char want[4 * MOST], got[4 * MOST + 4];
    const struct fl_rounding rounding = {TENSOR_ROUND_NEAREST, 0, 0};
    for (int n = 1; n <= MOST; n++) {
        const bool special = check_random(&seed) % 4 == 0;
        for (int i = 0; i < n; i++) {
            do
                values[i] = random_number(e) * (check_random(&seed) % 2 ? 1 : 1 + 0x1p-40);
            while (!special && !isfinite(values[i]));
            if (check_random(&seed) % 64 == 0)
                values[i] = ldexp(values[i], check_random(&seed) % 2 ? 900 : -900);
        }
        struct fl_stats one = {0}, many = {0};
        struct fl_view to = {want, NULL, &e, n}, out = {got, NULL, &e, n};
        memset(got, 0x5a, sizeof got);
        for (int i = 0; i < n; i++)
            f->encode(f, &to, i, 1, values + i, op_result, &rounding, &one);
        f->encode(f, &out, 0, n, values, op_result, &rounding, &many);
        const int64_t bad = first_difference(f, want, got, n);
        CHECK(bad < 0, "%s %s e %d, %d numbers: number %" PRId64 " from %a", f->name, backend, e, n, bad, values[bad]);
        CHECK(same(&one, &many), "%s %s e %d: statistics of %d numbers", f->name, backend, e, n);
        CHECK(got[(size_t)n * f->bytes] == 0x5a, "%s %s: beyond %d numbers", f->name, backend, n);
    }
}

/* Large enough to be written around the caches, compared with the same in small pieces. */
static void check_large(tensor_format from, tensor_format to) {
    const int64_t n = 9 << 20, piece = 1 << 20;
    tensor *x = tensor_new(from, TENSOR_SHAPE(n)), *y = tensor_new(to, TENSOR_SHAPE(n));
    tensor *px = tensor_new(from, TENSOR_SHAPE(piece)), *py = tensor_new(to, TENSOR_SHAPE(piece));
    CHECK(x && y && px && py, "no memory");
    const size_t bytes = tensor_format_bytes(from), out = tensor_format_bytes(to);
    float *values = fl_alloc((size_t)n * sizeof *values);
    for (int64_t i = 0; i < n; i++)
        values[i] = (float)((int)(check_random(&seed) % 4001) - 2000) * (i % piece ? 0x1p-9f : 0x1p-8f);
    for (int64_t i = 0; i < n; i += piece)
        values[i] = 4; /* the same maximum everywhere */
    CHECK(!tensor_load_f32(x, values, n) && !tensor_convert(y, x), "%s", tensor_error());
    int64_t saturated = 0, flushed = 0;
    for (int64_t i = 0; i < n; i += piece) {
        CHECK(!tensor_load_f32(px, values + i, piece) && !tensor_convert(py, px), "%s", tensor_error());
        CHECK(!memcmp((char *)tensor_data(px), (char *)tensor_data(x) + (size_t)i * bytes, (size_t)piece * bytes),
              "loaded as format %d", (int)from);
        CHECK(!memcmp((char *)tensor_data(py), (char *)tensor_data(y) + (size_t)i * out, (size_t)piece * out),
              "format %d to %d", (int)from, (int)to);
        tensor_stats last, total;
        tensor_statistics(&last, &total, py);
        saturated += last.saturated;
        flushed += last.flushed;
    }
    tensor_stats last, total;
    tensor_statistics(&last, &total, y);
    CHECK(last.saturated == saturated && last.flushed == flushed, "statistics of format %d to %d", (int)from, (int)to);
    fl_free(values);
    tensor_free(x);
    tensor_free(y);
    tensor_free(px);
    tensor_free(py);
}

static void check_convert_at(void) {
    const float values[6] = {1, -0.5f, 0x1p-15f, 3, NAN, -INFINITY};
    tensor *x = tensor_new(FMT_FP32, TENSOR_SHAPE(6)), *y = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(6));
    tensor_stats last, total;
    CHECK(!tensor_load_f32(x, values, 6) && !tensor_convert_at(y, x, 14), "%s", tensor_error());
    const int16_t want[6] = {16384, -8192, 0, 32767, 0, -32767}; /* 2^-15 is half a unit: to even */
    CHECK(!memcmp(tensor_const_data(y), want, sizeof want) && tensor_exponent(y) == 14, "mantissas at exponent 14");
    tensor_statistics(&last, &total, y);
    CHECK(last.saturated == 2 && last.flushed == 1 && last.nonfinite == 2 && last.gamma == 32767, "statistics");
    CHECK(tensor_convert_at(y, x, 32) == TENSOR_E_ARGUMENT, "exponent 32");
    CHECK(tensor_convert_at(x, y, 3) == TENSOR_E_FORMAT, "binary32 has no exponent");
    CHECK(tensor_convert_at(y, y, 3) == TENSOR_E_ARGUMENT, "onto itself");
    CHECK(!memcmp(tensor_const_data(y), want, sizeof want), "untouched after failures");
    tensor_free(x);
    tensor_free(y);
}

int main(void) {
    enum fl_backend cap;
    CHECK(!fl_backend_cap(&cap), "%s", tensor_error());
    for (int k = 0; fl_format_at(k); k++) {
        const struct fl_format *f = fl_format_at(k);
        const bool shared = f->arithmetic == FL_ARITHMETIC_SHARED;
        for (int backend = FL_PORTABLE; backend <= (int)cap; backend++)
            for (int e = shared ? f->e_min : 0; f->sets[backend] && f->sets[backend]->from_floats && e <= f->e_max;
                 e += e < -120 || e > 120 ? 1 : 4)
                for (int kind = 0; kind < KINDS; kind++) {
                    check_row(f, (enum fl_backend)backend, e, TENSOR_ROUND_NEAREST, (enum kind)kind);
                    if (f->truncates)
                        check_row(f, (enum fl_backend)backend, e, TENSOR_ROUND_TRUNCATE, (enum kind)kind);
                }
    }
    for (int backend = FL_REF; backend <= (int)cap; backend++) {
        const char *const name = fl_backend_name((enum fl_backend)backend);
        CHECK(!tensor_set_backend(name), "%s", tensor_error());
        for (int k = 0; fl_format_at(k); k++)
            for (int e = fl_format_at(k)->e_min; e <= fl_format_at(k)->e_max; e += e < -120 || e > 120 ? 1 : 9)
                for (int op_result = 0; op_result < 2; op_result++)
                    check_doubles(fl_format_at(k), name, e, op_result);
    }
    CHECK(!tensor_set_backend(fl_backend_name(cap)), "%s", tensor_error());
    for (int threads = 1; threads < 3; threads++) {
        tensor_set_threads(threads);
        check_large(FMT_FP32, FMT_FLEX16_5);
        check_large(FMT_FLEX16_5, FMT_FP32);
        check_large(FMT_FP32, FMT_FP16);
        check_large(FMT_BF16, FMT_FP32);
        check_large(FMT_FP16, FMT_DFP16);
    }
    check_convert_at();
    return check_summary();
}
