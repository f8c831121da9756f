/* gemm_float_finish.h - stores binary32 accumulators as sums, or adds them to sums.
 *
 * Gives: gemm_finish_sums. */
#ifndef FL_GEMM_FLOAT_FINISH_H
#define FL_GEMM_FLOAT_FINISH_H

#include "gemm/gemm_float_vector.h"

static void gemm_finish_sums(const int32_t *sum, const int32_t *high, int64_t stride, int64_t rows, int64_t columns,
                             int64_t owed, bool add, const struct gemm_sums *out) {
    (void)high, (void)owed;
    for (int64_t i = 0; i < rows; i++) {
        const float *from = (const float *)(const void *)(sum + i * stride);
        float *to = (float *)(void *)(out->low + i * out->stride);
        int64_t j = 0;
        for (; j + LANES <= columns; j += LANES)
            vector_put(to + j, add ? vector_load(to + j) + vector_load(from + j) : vector_load(from + j));
        for (; j < columns; j++)
            to[j] = add ? to[j] + from[j] : from[j];
    }
}

#endif
