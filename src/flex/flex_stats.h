/* flex_stats.h - the statistics of a write of mantissas, in integers. */
#ifndef FL_FLEX_STATS_H
#define FL_FLEX_STATS_H

#include "core/table/kernel.h"
#include <math.h>

enum { FLEX_TOP = 32767 };

/* Statistics of a write in integers: merging never rounds, so they do not depend on the parts. */
struct flex_stats {
    uint64_t maximum; /* largest |sum| */
    int32_t gamma;
    int64_t saturated, flushed;
};

static inline void flex_stats_finish(const struct flex_stats *stats, int sum_exponent, struct fl_stats *out) {
    struct fl_stats part = {.maximum = ldexp((double)stats->maximum, -sum_exponent),
                            .gamma = stats->gamma,
                            .saturated = stats->saturated,
                            .flushed = stats->flushed};
    fl_stats_merge(out, &part);
}

static inline void note_maximum(struct flex_stats *stats, uint64_t maximum) {
    if (maximum > stats->maximum)
        stats->maximum = maximum;
}

static inline void note_gamma(struct flex_stats *stats, uint64_t gamma) {
    if (gamma > (uint64_t)stats->gamma)
        stats->gamma = gamma > FLEX_TOP ? FLEX_TOP : (int32_t)gamma;
}

/* The state of a matrix tile that is stored in parts. */
struct flex_tile_part {
    uint16_t largest[32], least[32]; /* |result|, of each lane; saturated */
    bool whole;                      /* the tile can be rounded in parts */
    bool zeros; /* the previous tile had flushed sums, and this one may too: they are counted at once */
};

/* The statistics of a worker of matmul or convolution. */
struct gemm_stored {
    struct flex_stats sums;
    struct fl_stats wide; /* of sums too wide for 64 bits */
    struct flex_tile_part part;
};

#endif
