/* flex_format.c - flex16+5 and dfp16: 16-bit mantissas under one exponent, value = mantissa * 2^-e. The two differ in
 * the range of e and in how it is chosen (Koster et al. 2017; Das et al. 2018). */
#include "core/arithmetic/philox.h"
#include "core/tensor/element_rules.h"
#include "core/tensor/narrow.h"
#include "core/tensor/transfer.h"
#include "flex/flex_rows.h"
#include <math.h>

enum { TOP = 32767, MANY = 4 };

static void decode(const struct fl_format *f, const struct fl_view *in, int64_t first, int64_t n, double *values) {
    (void)f;
    const int16_t *m = (const int16_t *)in->data + first;
    const double unit = ldexp(1, -fl_exponent(in));
    for (int64_t i = 0; i < n; i++)
        values[i] = m[i] * unit;
}

/* The definition; kernels of this machine give the same for many numbers at once. */
static void encode(const struct fl_format *f, const struct fl_view *out, int64_t first, int64_t n, const double *values,
                   bool op_result, const struct fl_rounding *rounding, struct fl_stats *stats) {
    (void)op_result; /* exact or rounded to odd: both are first rounded here */
    const struct fl_kernels *const set = n >= MANY && out->data && rounding->mode != TENSOR_ROUND_STOCHASTIC
                                             ? fl_converting_set(fl_format_of(FMT_FLEX16_5)) /* others have the same */
                                             : NULL;
    struct fl_stats mine = {0};
    if (set && set->from_doubles && set->from_doubles(out, first, n, values, &mine)) {
        fl_clamp(f, out, first, n, &mine);
        fl_stats_merge(stats, &mine);
        return;
    }
    int16_t *dst = out->data ? (int16_t *)out->data + first : NULL;
    const int e = fl_exponent(out);
    const bool stochastic = rounding->mode == TENSOR_ROUND_STOCHASTIC;
    for (int64_t i = 0; i < n; i++) {
        const uint32_t draw =
            stochastic ? fl_philox_draw(rounding->key, rounding->write, rounding->first + first + i) : 0;
        const int32_t m = fl_put_number(values[i], values[i], e, f->top, stochastic ? &draw : NULL, stats);
        if (dst)
            dst[i] = (int16_t)m;
    }
}

#define FLEX_COMMON                                                                                                    \
    .arithmetic = FL_ARITHMETIC_SHARED, .bytes = 2, .wide_bytes = 4, .top = TOP, .bits = 16, .draws = true,            \
    .decode = decode, .encode = encode,                                                                                \
    .sets = {[FL_PORTABLE] = &fl_flex_portable,                                                                        \
             [FL_AVX2] = FL_SET_AVX2(fl_flex_avx2),                                                                    \
             [FL_AVX2_VNNI] = FL_SET_AVX2_VNNI(fl_flex_avx2_vnni),                                                     \
             [FL_AVX512BW] = FL_SET_AVX512(fl_flex_avx512bw),                                                          \
             [FL_AVX512] = FL_SET_AVX512(fl_flex_avx512),                                                              \
             [FL_AVX512_AMX] = FL_SET_AVX512_AMX(fl_flex_avx512_amx)}

const struct fl_format fl_format_flex16_5 = {.id = FMT_FLEX16_5,
                                             .name = "flex16+5",
                                             .summary =
                                                 "16-bit mantissas, a 5-bit shared exponent predicted by Autoflex",
                                             .e_min = 0,
                                             .e_max = 31,
                                             .predictor = "paper",
                                             FLEX_COMMON};

const struct fl_format fl_format_dfp16 = {.id = FMT_DFP16,
                                          .name = "dfp16",
                                          .summary =
                                              "16-bit mantissas, an 8-bit shared exponent from the exact maximum",
                                          .e_min = -128,
                                          .e_max = 127,
                                          .predictor = "current",
                                          FLEX_COMMON};
