/* conversion.h - an oracle for rounding to a small binary format, and the conversions of a kernel set.
 *
 * The oracle shares nothing with the codecs: it takes a number apart into an integer times a power of two, and rounds
 * the integer by its remainder. */
#ifndef FL_CONVERSION_H
#define FL_CONVERSION_H

#include "check.h"
#include "core/table/format.h"
#include "core/base/memory.h"
#include <math.h>
#include <string.h>

/* A format by its parameters: numbers are n * 2^q with n < 2^precision, q >= quantum (that of the subnormals). */
struct small_format {
    tensor_format id;
    int precision, quantum;
    uint16_t infinity; /* the word of +Inf */
};
static const struct small_format small_fp16 = {FMT_FP16, 11, -24, 0x7c00}, small_bf16 = {FMT_BF16, 8, -133, 0x7f80};

/* The word of m * 2^e, rounded to nearest even or toward zero. m < 2^60. */
static inline uint16_t oracle_round(const struct small_format *f, uint64_t m, int e, bool truncate) {
    if (m == 0)
        return 0;
    int q = e + 64 - __builtin_clzll(m) - f->precision; /* leaves precision bits */
    if (q < f->quantum)
        q = f->quantum;
    uint64_t n;
    if (q <= e) {
        n = m << (e - q);
    } else if (q - e > 62) {
        n = 0; /* less than half a quantum */
    } else {
        const uint64_t unit = (uint64_t)1 << (q - e), rest = m & (unit - 1);
        n = m >> (q - e);
        if (!truncate && (rest > unit / 2 || (rest == unit / 2 && n % 2 == 1)))
            n++;
    }
    /* n * 2^q: each step of q is one of the exponent field, whose lowest value stands for subnormals */
    const int64_t word = (int64_t)(q - f->quantum) * ((int64_t)1 << (f->precision - 1)) + (int64_t)n;
    return word < f->infinity ? (uint16_t)word : truncate ? (uint16_t)(f->infinity - 1) : f->infinity;
}

static inline uint16_t oracle_from_float(const struct small_format *f, uint32_t bits, bool truncate) {
    const uint16_t sign = bits >> 31 ? 0x8000 : 0;
    const int field = (int)(bits >> 23 & 0xff);
    const uint32_t fraction = bits & 0x7fffff;
    if (field == 255 && fraction) /* quiet, the upper bits of the payload */
        return (uint16_t)(sign | f->infinity | 1u << (f->precision - 2) | fraction >> (24 - f->precision));
    if (field == 255)
        return sign | f->infinity;
    return sign | oracle_round(f, field ? fraction | 0x800000 : fraction, (field ? field : 1) - 150, truncate);
}

/* The value of a word that is not NaN. */
static inline double oracle_value(const struct small_format *f, uint16_t word) {
    const int magnitude = word & 0x7fff, half = 1 << (f->precision - 1);
    const int field = magnitude / half, fraction = magnitude % half;
    double x = magnitude == f->infinity ? INFINITY
               : field                  ? ldexp(half + fraction, f->quantum + field - 1)
                                        : ldexp(fraction, f->quantum);
    return word & 0x8000 ? -x : x;
}

static inline bool is_nan_word(const struct small_format *f, uint16_t word) {
    return (word & 0x7fff) > f->infinity;
}

static inline uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* A kernel set's block conversion from binary32, seen through channel_affine: y[c] = fma(-0, 0, b[c]) is b[c], rounded.
 */
enum { CONVERSIONS = 1 << 16 };
struct converter {
    const struct fl_format *format;
    fl_kernel kernel;
    enum fl_backend backend;
    float *a, *b;
    uint16_t *x, *y;
};

static inline bool converter_new(struct converter *c, tensor_format id, enum fl_backend backend) {
    enum fl_backend chosen;
    *c = (struct converter){.format = fl_format_of(id), .backend = backend};
    c->kernel = fl_kernel_select(c->format, FL_OP_CHANNEL_AFFINE, backend, &chosen);
    if (chosen != backend)
        return false; /* not on this machine */
    c->a = fl_alloc(CONVERSIONS * sizeof *c->a);
    c->b = fl_alloc(CONVERSIONS * sizeof *c->b);
    c->x = fl_alloc_zero(CONVERSIONS * sizeof *c->x);
    c->y = fl_alloc(CONVERSIONS * sizeof *c->y);
    for (int i = 0; i < CONVERSIONS; i++)
        c->a[i] = -0.0f;
    return true;
}

static inline void converter_free(struct converter *c) {
    fl_free(c->a);
    fl_free(c->b);
    fl_free(c->x);
    fl_free(c->y);
}

/* c->y from c->b. */
static inline struct fl_stats convert(const struct converter *c, int64_t n, bool truncate) {
    struct fl_stats stats = {0};
    const struct fl_args args = {.op = FL_OP_CHANNEL_AFFINE,
                                 .format = c->format,
                                 .out = {c->y, NULL, 0, n},
                                 .in = {{c->x, NULL, 0, n}},
                                 .p.batch_norm = {.m = 1, .n = n, .channels = {.a = c->a, .b = c->b}},
                                 .rounding = {truncate ? TENSOR_ROUND_TRUNCATE : TENSOR_ROUND_NEAREST, 0, 0},
                                 .stats = &stats};
    CHECK(c->kernel(&args) == TENSOR_OK, "%s: %s", c->format->name, tensor_error());
    return stats;
}

/* Every step-th bit pattern from first on, through every kernel set of the format, against the oracle; words and
 * statistics.
 */
static inline void sweep_floats(const struct small_format *f, uint32_t first, uint32_t step, bool truncate) {
    struct converter rows[FL_BACKENDS];
    bool present[FL_BACKENDS] = {false};
    uint16_t *want = fl_alloc(CONVERSIONS * sizeof *want);
    float *x = fl_alloc(CONVERSIONS * sizeof *x);
    for (int backend = FL_PORTABLE; backend < FL_BACKENDS; backend++)
        present[backend] = converter_new(&rows[backend], f->id, (enum fl_backend)backend);
    for (uint64_t at = first; at <= UINT32_MAX;) {
        struct fl_stats expected = {0};
        int64_t n = 0;
        for (; n < CONVERSIONS && at <= UINT32_MAX; n++, at += step) {
            const uint32_t bits = (uint32_t)at, magnitude = bits & 0x7fffffff;
            want[n] = oracle_from_float(f, bits, truncate);
            x[n] = float_of(bits);
            if (fabsf(x[n]) > expected.maximum)
                expected.maximum = fabsf(x[n]);
            expected.nonfinite += (want[n] & 0x7fff) >= f->infinity;
            expected.saturated += (want[n] & 0x7fff) == f->infinity && magnitude < 0x7f800000;
            expected.flushed += (want[n] & 0x7fff) == 0 && magnitude != 0;
        }
        for (int backend = FL_PORTABLE; backend < FL_BACKENDS; backend++) {
            if (!present[backend])
                continue;
            const struct converter *c = &rows[backend];
            memcpy(c->b, x, (size_t)n * sizeof *x);
            const struct fl_stats got = convert(c, n, truncate);
            int64_t i = 0;
            if (memcmp(c->y, want, (size_t)n * sizeof *want))
                while (c->y[i] == want[i])
                    i++;
            else
                i = -1;
            CHECK(i < 0, "%s.%s%s float 0x%08x got 0x%04x want 0x%04x", c->format->name, fl_backend_name(c->backend),
                  truncate ? " truncate" : "", bits_of(x[i]), c->y[i], want[i]);
            CHECK(got.maximum == expected.maximum && got.saturated == expected.saturated &&
                      got.flushed == expected.flushed && got.nonfinite == expected.nonfinite,
                  "%s.%s%s statistics of floats 0x%08x, step %u: got max %a sat %lld flushed %lld nonfinite %lld, "
                  "want max %a sat %lld flushed %lld nonfinite %lld",
                  c->format->name, fl_backend_name(c->backend), truncate ? " truncate" : "", bits_of(x[0]), step,
                  got.maximum, (long long)got.saturated, (long long)got.flushed, (long long)got.nonfinite,
                  expected.maximum, (long long)expected.saturated, (long long)expected.flushed,
                  (long long)expected.nonfinite);
        }
    }
    for (int backend = FL_PORTABLE; backend < FL_BACKENDS; backend++)
        if (present[backend])
            converter_free(&rows[backend]);
    fl_free(want);
    fl_free(x);
}

#endif
