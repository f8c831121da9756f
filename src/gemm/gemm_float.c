/* gemm_float.c - what binary32 sums need once, whatever the instruction set. */
#include "gemm/gemm_float.h"
#include <math.h>
#include <string.h>

/* Adding +0 or -0 changes nothing but the sign of a sum of -0, and the sum of all of them is +0 if one is; anything
 * times Inf or NaN is NaN. */
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
