/* gemm_float_add.h - adds binary32 sums, whole ones and those of tiles.
 *
 * Gives: gemm_add, gemm_add_sums. */
#ifndef FL_GEMM_FLOAT_ADD_H
#define FL_GEMM_FLOAT_ADD_H

#include "gemm/gemm_float_finish.h"

static void gemm_add(void *total, const void *sums, int64_t n) {
    float *restrict to = total;
    const float *restrict from = sums;
    for (int64_t i = 0; i < n; i++)
        to[i] += from[i];
}

static void gemm_add_sums(const int32_t *low, const int32_t *high, int64_t stride, int64_t rows, int64_t columns,
                          bool add, const struct gemm_sums *out) {
    gemm_finish_sums(low, high, stride, rows, columns, 0, add, out);
}

#endif
