/* real_lanes.h - real functions and slopes in vectors of doubles with bounds of their errors, and the roundings that
 * those bounds decide. What they leave open goes to real_rules.h, one by one, so that vectors change no bit.
 *
 * A block has, of each element, a double v and how far the real number may lie from it, e: 0 where v is exact. Neither
 * where an operand is NaN or infinite, at poles and outside of domains: there v is NaN or infinite. */
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
};

/* The functions of an instruction set. Operands, numbers and roundings are those of the first n elements of the block.
 */
struct fl_real_lanes {
    /* v, e of a function of x in b, or of the slope of a gradient at x in b; false where there is none of it. */
    bool (*evaluate)(enum fl_op op, double alpha, double beta, int n, struct fl_real_block *block);
    /* Multiplies slopes by dy in a. plain_zeros: a slope of zero gives zero, whatever dy is. */
    void (*multiply)(int n, bool plain_zeros, struct fl_real_block *block);
    /* dy in a times at[x], where the last bit of a slope says that it is off by at most `error` of itself. */
    void (*look_up)(const double *at, double error, const uint16_t *x, int n, struct fl_real_block *block);
    /* y, and what is open: returns how many. To nearest; to odd at 24 bits, for one more rounding to 16 bits: there
     * what lies below 2^-135 becomes +-2^-140, which is 0 in every such format that binary32 has room for. */
    int (*to_nearest)(int n, struct fl_real_block *block);
    int (*to_odd)(int n, struct fl_real_block *block);
};

extern const struct fl_real_lanes fl_real_lanes_portable, fl_real_lanes_avx2, fl_real_lanes_avx512bw;

#endif
