/* gemm_float.c - code of binary32 sums that is the same for all instruction sets. */
#include "gemm/gemm_float.h"
#include <math.h>
#include <string.h>

/* Adding +0 or -0 changes only the sign of a sum of -0, and the sum of such zeros is +0 if one of them is; zero times
 * Inf or NaN is NaN. */
void fl_gemm_float_hole(gemm_packed *hole, const gemm_packed *rows, int64_t width, int64_t steps) {
    for (int64_t j = 0; j < width; j++) {
        bool positive = false, finite = true;
        for (int64_t k = 0; k < steps; k++) {
            float b;
            memcpy(&b, rows + k * width + j, sizeof b);
            positive |= !signbit(b);
            finite &= isfinite(b) != 0;
        }
        const float sum = !finite ? NAN : positive ? 1.0f : -1.0f;
        memcpy(hole + j, &sum, sizeof sum);
    }
}

/* In pairs of bf16 the exponent bits of NaN and Inf are all ones. */
void fl_gemm_pairs_hole(gemm_packed *hole, const gemm_packed *rows, int64_t width, int64_t steps) {
    const gemm_packed lower = 0x7f80, upper = lower << 16;
    for (int64_t j = 0; j < width; j++) {
        hole[j] = 0;
        for (int64_t k = 0; k < steps; k++) {
            const gemm_packed pair = rows[k * width + j];
            if ((pair & lower) == lower || (pair & upper) == upper)
                hole[j] = 0x7fc0; /* NaN */
        }
    }
}
