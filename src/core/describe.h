/* describe.h - what kernels of rows tell of a part of a tensor's elements: counts and sums, block by block. */
#ifndef FL_DESCRIBE_H
#define FL_DESCRIBE_H

#include <stdint.h>

enum {
    FL_DESCRIBED_BLOCK = 1024, /* elements of a block, at most; all but the last have so many */
    FL_DESCRIBED_LANES = 8     /* number i of a block is added to sum i mod 8 */
};

/* Of binary32. Begin with zeros and least = UINT32_MAX. */
struct fl_described_floats {
    double sum[4][FL_DESCRIBED_LANES]; /* of the finite x: x - centre, (x - centre)^2, |x|, x^2 */
    uint32_t count[8][256];            /* by the eight bits of the exponent; added, the tables are the histogram */
    int64_t subnormal[23];             /* by the leading bit */
    int64_t nan;
    uint32_t most, least; /* words of the largest finite |x|; of the smallest but zero, less one */
};

/* Of mantissas. Begin with zeros and least = UINT16_MAX. */
struct fl_described_mantissas {
    int64_t sum;
    uint64_t sizes, squares; /* sums of |m| and m^2: for less than 2^33 elements */
    int64_t at_least[16];    /* how many |m| >= 2^bit */
    uint16_t most, least;    /* |m|: the largest; the smallest but zero, less one */
};

#endif
