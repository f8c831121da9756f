/* gemm_epilogue_plan.h - how bias and residual meet the exact sums of matmul and convolution, from exponents alone. C
 * and CUDA, on plain numbers: no tensor, no vector, no libm. */
#ifndef FL_GEMM_EPILOGUE_PLAN_H
#define FL_GEMM_EPILOGUE_PLAN_H

#include "core/arithmetic/exact.h"
#include <stdbool.h>

/* Sums, bias and residual times 2^up are integers times 2^-exponent, the finest of their exponents. */
struct gemm_alignment {
    int exponent;
    int up_sum, up_bias, up_residual;
};

/* Operands that are not given do not affect the alignment. */
FL_BOTH struct gemm_alignment gemm_align(int of_sum, bool has_bias, int of_bias, bool has_residual, int of_residual) {
    const int bias = has_bias ? of_bias : of_sum, residual = has_residual ? of_residual : of_sum;
    const int finer = bias > residual ? bias : residual, exponent = finer > of_sum ? finer : of_sum;
    const struct gemm_alignment by = {exponent, exponent - of_sum, exponent - bias, exponent - residual};
    return by;
}

/* --- sums of 64 bits ---------------------------------------------------------------------------------------------- */

enum { GEMM_UP_MOST = 45 }; /* 2^15 times 2^45, twice, leave the sums of 62 bits a half */

/* The largest |sum| for which all three together are below 2^62; -1: none is, they are summed as terms. */
FL_BOTH int64_t gemm_largest_sum(const struct gemm_alignment *by) {
    if (by->up_sum > GEMM_UP_MOST || by->up_bias > GEMM_UP_MOST || by->up_residual > GEMM_UP_MOST)
        return -1;
    const int64_t room =
        ((int64_t)1 << 62) - ((int64_t)1 << (15 + by->up_bias)) - ((int64_t)1 << (15 + by->up_residual));
    return (room - 1) >> by->up_sum;
}

/* --- limbs -------------------------------------------------------------------------------------------------------- */

/* Sums as two limbs, high * 2^15 + low (gemm.h). */
enum {
    GEMM_LOW_BITS = 15,
    GEMM_UP_MOST_LIMBS = 27,   /* 2^44 + 2 * 2^(15 + 27), in units of the high limb: below 2^30 */
    GEMM_SHIFT_MOST_LIMBS = 44 /* where they are rounded */
};

/* Whether limbs have room for what is added to them. */
FL_BOTH bool gemm_limbs_have_room(const struct gemm_alignment *by) {
    return by->up_sum == 0 && by->up_bias <= GEMM_UP_MOST_LIMBS && by->up_residual <= GEMM_UP_MOST_LIMBS;
}

/* Whether sums are rounded from their limbs. */
FL_BOTH bool gemm_limbs_round(int shift) {
    return shift >= 1 && shift <= GEMM_SHIFT_MOST_LIMBS;
}

/* How an addend meets the limbs: not at all, in whole units of the high one, or in both. */
enum gemm_addend { GEMM_ADDEND_NONE, GEMM_ADDEND_HIGH, GEMM_ADDEND_BOTH };

FL_BOTH enum gemm_addend gemm_addend_of(bool there, int up) {
    return !there ? GEMM_ADDEND_NONE : up >= GEMM_LOW_BITS ? GEMM_ADDEND_HIGH : GEMM_ADDEND_BOTH;
}

#endif
