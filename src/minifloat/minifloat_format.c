/* minifloat_format.c - what floats made from their parameters have in common: codec and identity. */
#include "minifloat/minifloat.h"
#include <math.h>

enum { BLOCK = 1024 };

static void decode(const struct fl_format *f, const struct fl_view *in, int64_t first, int64_t n, double *values) {
    const struct fl_minifloat m = fl_minifloat_of(f, fl_exponent(in));
    float block[BLOCK];
    for (int64_t i = 0; i < n; i += BLOCK) {
        const int64_t length = n - i < BLOCK ? n - i : BLOCK;
        fl_minifloat_portable.decode(&m, f->bytes, (const char *)in->data + (first + i) * f->bytes, length, block);
        for (int64_t j = 0; j < length; j++)
            values[i + j] = (double)block[j];
    }
}

static void encode(const struct fl_format *f, const struct fl_view *out, int64_t first, int64_t n, const double *values,
                   bool op_result, const struct fl_rounding *rounding, struct fl_stats *stats) {
    const bool drawn = rounding->mode == TENSOR_ROUND_STOCHASTIC;
    float block[BLOCK];
    for (int64_t i = 0; i < n; i += BLOCK) {
        const int64_t length = n - i < BLOCK ? n - i : BLOCK;
        const double *v = values + i;
        struct fl_stats mine = {0};
        double maximum = 0;
        if (op_result || drawn) { /* it is binary32, and its earlier rounding is not counted */
            for (int64_t j = 0; j < length; j++)
                block[j] = (float)v[j];
        } else {
            for (int64_t j = 0; j < length; j++) {
                block[j] = fl_odd_float(v[j]);
                fl_count_lost(v[j], block[j], &mine);
                if (fabs(v[j]) > maximum && !(fl_has_exponent(f) && isinf(v[j])))
                    maximum = fabs(v[j]);
            }
        }
        fl_minifloat_store(&fl_minifloat_portable, f, out, first + i, length, block, drawn ? v : NULL, rounding, &mine);
        if (!op_result && !drawn)
            mine.maximum = maximum;
        fl_stats_merge(stats, &mine);
    }
}

const struct fl_format fl_format_minifloat = {
    .arithmetic = FL_ARITHMETIC_FLOAT,
    .wide_bytes = sizeof(float),
    .draws = true,
    .decode = decode,
    .encode = encode,
    .sets = {[FL_PORTABLE] = &fl_minifloat_kernels_portable,
             [FL_AVX2] = FL_SET_AVX2(fl_minifloat_kernels_avx2),
             [FL_AVX512BW] = FL_SET_AVX512(fl_minifloat_kernels_avx512bw)},
};
