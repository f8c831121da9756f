/* row_copies.h - copied elements: statistics of the write, mantissas at another exponent. Compilers vectorise the
 * loops.
 *
 * Gives: row_largest_word16, row_largest_word32, row_rescale. */
#ifndef FL_ROW_COPIES_H
#define FL_ROW_COPIES_H

#include "core/rows/row_store.h"

static uint32_t row_largest_word16(const uint16_t *x, int64_t n) {
    uint16_t largest = 0;
    for (int64_t i = 0; i < n; i++) {
        const uint16_t size = x[i] & 0x7fff;
        largest = size > largest ? size : largest;
    }
    return largest;
}

static uint32_t row_largest_word32(const uint32_t *x, int64_t n) {
    uint32_t largest = 0;
    for (int64_t i = 0; i < n; i++) {
        const uint32_t size = x[i] & 0x7fffffffu;
        largest = size > largest ? size : largest;
    }
    return largest;
}

/* The largest |m|. */
static int32_t row_extreme(const int16_t *m, int64_t n) {
    int16_t high = 0, low = 0;
    for (int64_t i = 0; i < n; i++) {
        high = m[i] > high ? m[i] : high;
        low = m[i] < low ? m[i] : low;
    }
    return -low > high ? -low : high;
}

/* Times 2^up. */
static int64_t row_rescale_up(int16_t *m, int64_t n, int up) {
    int32_t saturated = 0;
    for (int64_t i = 0; i < n; i++) {
        const int32_t x = m[i] * (1 << up), low = x < -STORED_TOP ? -STORED_TOP : x;
        const int32_t kept = low > STORED_TOP ? STORED_TOP : low;
        saturated += x != kept;
        m[i] = (int16_t)kept;
    }
    return saturated;
}

/* Divides by 2^down, to nearest, ties to even; down is at most 15. Returns how many become zero. The result is rounded
 * up if the lost bits, plus one for an odd quotient, exceed a half. All in 16 bits. */
static int64_t row_rescale_down(int16_t *m, int64_t n, int down) {
    const uint16_t half = (uint16_t)(1u << (down - 1)), mask = (uint16_t)(2u * half - 1u);
    uint16_t flushed = 0;
    for (int64_t i = 0; i < n; i++) {
        const int16_t x = m[i], floor = (int16_t)(x >> down);
        const uint16_t cut = (uint16_t)((uint16_t)(x & mask) + (uint16_t)(floor & 1));
        const int16_t r = (int16_t)(floor + (cut > half));
        flushed = (uint16_t)(flushed + ((r == 0) & (x != 0)));
        m[i] = r;
    }
    return flushed;
}

/* The same if all results are zero. */
static int64_t row_flush(int16_t *m, int64_t n) {
    int64_t flushed = 0;
    for (int64_t i = 0; i < n; i++)
        flushed += m[i] != 0;
    memset(m, 0, (size_t)n * sizeof *m);
    return flushed;
}

enum { COPIES = 1 << 14 }; /* elements whose counts fit 16 bits */

static int32_t row_rescale(int16_t *m, int64_t n, int finer, struct fl_stats *stats) {
    const int32_t largest = row_extreme(m, n);
    int64_t gamma = largest;
    if (finer >= 0 && (finer || largest > STORED_TOP)) {
        const int up = finer < 16 ? finer : 16; /* only zero fits then */
        for (int64_t i = 0; i < n; i += COPIES)
            stats->saturated += row_rescale_up(m + i, n - i < COPIES ? n - i : COPIES, up);
        gamma = (int64_t)largest << up;
    } else if (finer < 0) {
        const int down = finer > -16 ? -finer : 16; /* |m| <= 2^15 is then at most a half */
        for (int64_t i = 0; i < n; i += COPIES) {
            const int64_t part = n - i < COPIES ? n - i : COPIES;
            stats->flushed += down < 16 ? row_rescale_down(m + i, part, down) : row_flush(m + i, part);
        }
        gamma = (largest + ((1 << (down - 1)) - 1) + ((largest >> down) & 1)) >> down;
    }
    gamma = gamma < STORED_TOP ? gamma : STORED_TOP;
    stats->gamma = gamma > stats->gamma ? (int32_t)gamma : stats->gamma;
    return largest;
}

#endif
