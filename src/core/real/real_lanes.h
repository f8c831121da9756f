/* real_lanes.h - real functions and slopes in vectors of doubles with bounds of their errors, and the roundings that
 * those bounds decide. Elements that they do not decide go to real_rules.h, one by one, so that vectors change no bit.
 *
 * For each element a block has a double v and the bound e of its distance from the real number, 0 if v is exact. If an
 * operand is NaN or infinite, at poles and outside domains, v is NaN or infinite and e has no meaning. */
#ifndef FL_REAL_LANES_H
#define FL_REAL_LANES_H

#include "core/table/op.h"
#include <stdbool.h>
#include <stdint.h>

enum { FL_REAL_BLOCK = 512 };

struct fl_real_block {
    _Alignas(64) double v[FL_REAL_BLOCK], e[FL_REAL_BLOCK];
    _Alignas(64) float a[FL_REAL_BLOCK], b[FL_REAL_BLOCK]; /* the operands: x, or dy and x */
    _Alignas(64) float y[FL_REAL_BLOCK];                   /* rounded */
    int16_t open[FL_REAL_BLOCK];                           /* elements whose rounding is not known, ascending */
    double top;                                            /* the largest |v| + e of the others */
    int64_t flushed, saturated; /* of the others, when rounded to binary32: non-zero that became 0, finite Inf */
    int32_t gamma;              /* of mantissas */
};

/* The functions of an instruction set, for the first n elements of a block.
 */
struct fl_real_lanes {
    /* v and e of a function of x in b, or of the slope of a gradient at x in b; false if there is no such function. */
    bool (*evaluate)(enum fl_op op, double alpha, double beta, int n, struct fl_real_block *block);
    /* Multiplies slopes by dy in a. plain_zeros: a slope of zero gives zero for any dy. */
    void (*multiply)(int n, bool plain_zeros, struct fl_real_block *block);
    /* dy in a times at[x]; a slope whose last bit is set is off by at most `error` of itself. */
    void (*look_up)(const double *at, double error, const uint16_t *x, int n, struct fl_real_block *block);
    /* Sets y and open, and returns the number of open elements. to_nearest rounds to nearest; to_odd rounds to odd at
     * 24 bits, for one more rounding to 16 bits, and numbers below 2^-135 become +-2^-140, which every such format
     * rounds to 0 at the exponents of fl_real_floats_hold. */
    int (*to_nearest)(int n, struct fl_real_block *block);
    int (*to_odd)(int n, struct fl_real_block *block);
    /* Rounds v times unit, a power of two, to nearest as mantissas m, and sets top, flushed, saturated and gamma;
     * false, and none of that has a meaning, if a rounding is not known. */
    bool (*to_mantissas)(int n, double unit, int16_t *m, struct fl_real_block *block);
};

extern const struct fl_real_lanes fl_real_lanes_portable, fl_real_lanes_avx2, fl_real_lanes_avx512bw;

#endif
