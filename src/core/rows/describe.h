/* describe.h - the counts and sums that row kernels compute for a part of a tensor's elements, block by block.
 *
 * Histograms are counts of bits: each element is a word with a bit for its bin (mantissas: for its bin and all below),
 * and words are added bit by bit, 64 vectors at a time, by carries (Klarqvist, Mula and Lemire 2021, "Efficient
 * computation of positional population counts using SIMD instructions"). The carries are counted at the end.
 */
#ifndef FL_DESCRIBE_H
#define FL_DESCRIBE_H

#include "core/tensor/described.h"

enum {
    FL_DESCRIBED_MOST = 1 << 17,  /* mantissas of one description: counters have 16 bits */
    FL_DESCRIBED_PIECE = 1 << 15, /* ... of one call */
    FL_DESCRIBED_CARRIES = 6,     /* ones, twos, fours, ... thirty-twos */
    FL_DESCRIBED_GROUP = 64       /* vectors that are added at a time */
};

/* Statistics of binary32 elements. Begin with zeros and least = UINT32_MAX. */
struct fl_described_floats {
    _Alignas(64) uint32_t carry[FL_DESCRIBED_CARRIES][16];
    _Alignas(64) uint32_t bit[32][16]; /* groups with bit b, the exponent base - b */
    double sum[4][FL_DESCRIBED_LANES]; /* over finite x, of x - centre, (x - centre)^2, |x|, x^2 */
    int64_t by_bits;                   /* numbers in carry and bit; those of them without a bit are zeros */
    int32_t base;                      /* 0: none yet */
    uint32_t count[8][256];            /* all others, by the eight bits of the exponent; the tables are added */
    int64_t subnormal[23];             /* by the leading bit */
    int64_t nan;
    uint32_t most, least; /* words of the largest finite |x|, and of the smallest above zero minus one */
};

/* Statistics of mantissas. Begin with zeros and least = UINT16_MAX. */
struct fl_described_mantissas {
    _Alignas(64) uint16_t carry[FL_DESCRIBED_CARRIES][32];
    _Alignas(64) uint16_t bit[16][32]; /* groups of |m| at least 2^b */
    int64_t sum;
    uint64_t sizes, squares; /* sums of |m| and m^2 */
    int64_t level[17];       /* elements outside groups, by the number of bits of |m| */
    uint16_t most, least;    /* the largest |m|; the smallest above zero, minus one */
};

#endif
