/* gemm_mixed.h - matmul and convolution whose result or an operand has another format than the kernel set that
 * multiplies (core/table/mixed.h): the products are those of the kernel set, and stores of any format store the sums.
 */
#ifndef FL_GEMM_MIXED_H
#define FL_GEMM_MIXED_H

#include "core/table/mixed.h"
#include "gemm/gemm.h"

/* The stores of exact sums and of binary32 sums in any format; element_bytes is set for each task. */
extern const struct gemm_stores fl_gemm_mixed_exact_portable, fl_gemm_mixed_exact_avx2, fl_gemm_mixed_exact_avx512bw;
extern const struct gemm_stores fl_gemm_mixed_float_portable, fl_gemm_mixed_float_avx2, fl_gemm_mixed_float_avx512bw;

/* Stores results first ... first + n - 1 of a product whose sums are exactly high[i] + low[i], or low is rounded to odd
 * where it has more than 53 bits: with the epilogue, rounded once. low NULL: all are 0. */
typedef void (*gemm_store_pairs)(const struct fl_args *args, int64_t first, int64_t n, const double *high,
                                 const double *low, struct fl_stats *stats);
void fl_gemm_store_pairs_portable(const struct fl_args *args, int64_t first, int64_t n, const double *high,
                                  const double *low, struct fl_stats *stats);
void fl_gemm_store_pairs_avx2(const struct fl_args *args, int64_t first, int64_t n, const double *high,
                              const double *low, struct fl_stats *stats);
void fl_gemm_store_pairs_avx512bw(const struct fl_args *args, int64_t first, int64_t n, const double *high,
                                  const double *low, struct fl_stats *stats);

/* Stores that also take sums from matrix tiles. */
struct gemm_stores fl_gemm_mixed_exact_avx512_amx(void);

/* Like fl_gemm. Operands of different float formats are converted to binary32 before they are multiplied. */
tensor_status fl_gemm_mixed(const struct gemm_family *family, const struct gemm_stores *stores,
                            const struct fl_args *args);
size_t fl_gemm_mixed_need(const struct gemm_family *family, const struct gemm_stores *stores,
                          const struct fl_args *args);

#endif
