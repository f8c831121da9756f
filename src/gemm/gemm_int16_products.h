/* gemm_int16_products.h - sums of any int16 data if bytes cannot be multiplied: low and high parts of the products of
 * k-pairs apart, or a carry split after every step if even these products do not fit (both operands hold -2^15).
 *
 * Gives: panel_products, panel_every_1, gemm_finish_products. */
#ifndef FL_GEMM_INT16_PRODUCTS_H
#define FL_GEMM_INT16_PRODUCTS_H

#include "gemm/gemm_int16_vector.h"
#include "gemm/gemm_panel_kernels.inc"
#include "gemm/gemm_unroll.h"

#define PANEL_ANY(rows, columns)                                                                                       \
    PANEL_KERNEL(every_1, rows, columns){PANEL_EVERY(rows, 1)} PANEL_KERNEL(products, rows, columns) {                 \
        PANEL_START(rows, (vector){0})                                                                                 \
        vector high[rows][PANEL_VECTORS];                                                                              \
        EACH_ACCUMULATOR(rows) high[i][v] = (vector){0};                                                               \
        for (int64_t k = p->steps; k > 0; k--) {                                                                       \
            if (k % GEMM_PREFETCH_STEPS == 0)                                                                          \
                PANEL_PREFETCH();                                                                                      \
            vector column[PANEL_VECTORS];                                                                              \
            GEMM_UNROLL for (int v = 0; v < PANEL_VECTORS; v++) column[v] = vector_load(b + v * LANES);                \
            GEMM_UNROLL for (int i = 0; i < (rows); i++) {                                                             \
                const vector row = vector_broadcast(a + i);                                                            \
                GEMM_UNROLL for (int v = 0; v < PANEL_VECTORS; v++)                                                    \
                    product_add(&sum[i][v], &high[i][v], row, column[v]);                                              \
            }                                                                                                          \
            a += height;                                                                                               \
            b += PANEL_COLUMNS;                                                                                        \
        }                                                                                                              \
        PANEL_PUT(p->sum, sum, rows)                                                                                   \
        PANEL_PUT(p->high, high, rows)                                                                                 \
    }
PANEL_HALVES(PANEL_ANY)
#define PANEL_EVERY_1_NAME(rows, columns) [rows] = gemm_every_1_##rows##x##columns,
#define PANEL_PRODUCTS_NAME(rows, columns) [rows] = gemm_products_##rows##x##columns,
static const gemm_panel_kernel panel_every_1[PANEL_ROWS / 2 + 1] = {PANEL_HALVES(PANEL_EVERY_1_NAME)};
static const gemm_panel_kernel panel_products[PANEL_ROWS / 2 + 1] = {PANEL_HALVES(PANEL_PRODUCTS_NAME)};

/* sum is the sum modulo 2^32, high the sum of floor(product / 2^16) and so within 2^32 below it for 65537 steps. */
static void gemm_finish_products(const int32_t *sum, const int32_t *high, int64_t stride, int64_t rows, int64_t columns,
                                 int64_t owed, bool add, const struct gemm_sums *out) {
    (void)owed;
    for (int64_t i = 0; i < rows; i++) {
        const int32_t *restrict of_sum = sum + i * stride, *restrict of_high = high + i * stride;
        int32_t *restrict low = out->low + i * out->stride, *restrict up = out->high + i * out->stride;
        for (int64_t j = 0; j < columns; j++) {
            const uint32_t rest = (uint32_t)of_sum[j] - ((uint32_t)of_high[j] << 16);
            limbs_put(low, up, j, (int32_t)(rest & (uint32_t)(-GEMM_REST - 1)),
                      of_high[j] * (1 << (16 - GEMM_LIMB_BITS)) + (int32_t)(rest >> GEMM_LIMB_BITS), add);
        }
    }
}

#endif
