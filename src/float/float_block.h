/* float_block.h - blocks of elements as binary32, and back with the statistics of a write.
 *
 * Expects: a codec, which defines
 *     fl_element                          the stored type
 *     FL_DECODE(word), FL_ENCODE(x)       one element to binary32, exactly, and back to nearest even; free of branches
 *     FL_OVERFLOW, FL_FLUSH               magnitudes as binary32 words: the smallest that is stored as Inf (NaN aside),
 *                                         and the largest that is stored as zero
 *     FL_DECODE_BLOCK(src, n, dst),       optional: the same for n elements by the machine's instructions
 *     FL_ENCODE_BLOCK(dst, n, src)
 *     FL_ENCODE_TRUNCATED(x),             optional: a second rounding, toward zero
 *     FL_OVERFLOW_TRUNCATED, FL_FLUSH_TRUNCATED
 *     FL_DIGITS, FL_LEAST_NORMAL          optional, stochastic rounding: significant binary digits of normal numbers,
 *                                         and the smallest of these
 *     FL_BEYOND                           the power of two above the largest number, as a binary32 word
 *     FL_ELEMENT_IS_FLOAT                 optional: fl_element is float; blocks are then used in place
 * Gives: FLOAT_BLOCK, FL_INDEPENDENT, float_min, load_elements, load_block, floats_of, room_for,
 * element_at, count_block, count_drawn, encode_block, store_floats, relu. */
#ifndef FL_FLOAT_BLOCK_H
#define FL_FLOAT_BLOCK_H

#include "core/table/kernel.h"
#include "core/tensor/element_rules.h"
#include <string.h>

enum { FLOAT_BLOCK = 1024 }; /* elements; a few blocks of floats stay in the first-level cache */

/* A loop whose iterations do not depend on each other although pointers may be equal (operations in place). */
#ifdef __clang__
#define FL_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define FL_INDEPENDENT _Pragma("GCC ivdep")
#endif

static inline int64_t float_min(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* Loads a few elements. */
static inline void load_elements(const fl_element *src, int64_t n, float *dst) {
#ifdef FL_DECODE_BLOCK
    FL_DECODE_BLOCK(src, n, dst);
#else
    for (int64_t i = 0; i < n; i++)
        dst[i] = FL_DECODE(src[i]);
#endif
}

static __attribute__((noinline, unused)) void load_block(const fl_element *src, int64_t n, float *dst) {
    load_elements(src, n, dst);
}

/* Returns n elements as floats: in buffer, or in place. */
static inline const float *floats_of(const fl_element *src, int64_t n, float *buffer) {
#ifdef FL_ELEMENT_IS_FLOAT
    (void)n, (void)buffer;
    return src;
#else
    load_block(src, n, buffer);
    return buffer;
#endif
}

/* The buffer for results that store_block (float_store.h) then stores at dst. */
static inline float *room_for(fl_element *dst, float *buffer) {
#ifdef FL_ELEMENT_IS_FLOAT
    return dst ? dst : buffer;
#else
    (void)dst;
    return buffer;
#endif
}

/* dst + i, or NULL when nothing is stored. */
static inline fl_element *element_at(fl_element *dst, int64_t i) {
    return dst ? dst + i : NULL;
}

/* Counts the rare block with an overflow, Inf or NaN. */
static void count_unusual(const float *src, int64_t n, uint32_t overflow, struct fl_stats *stats) {
    for (int64_t i = 0; i < n; i++) {
        fl_count_float(src[i], fl_float_magnitude(src[i]) >= overflow, stats);
    }
}

/* Adds the statistics of storing src under these limits: one maximum shows whether there is anything unusual. */
static inline void count_block(const float *src, int64_t n, uint32_t overflow, uint32_t flush, struct fl_stats *stats) {
    const uint32_t largest = fl_count_flushed(src, n, flush, &stats->flushed);
    if (largest > 0x7f800000u || largest >= overflow) {
        count_unusual(src, n, overflow, stats);
        return;
    }
    float maximum;
    memcpy(&maximum, &largest, sizeof maximum);
    if (maximum > stats->maximum)
        stats->maximum = maximum;
}

/* Stores n floats as elements, rounded to nearest. */
static inline void encode_block(fl_element *dst, int64_t n, const float *src) {
#ifdef FL_ELEMENT_IS_FLOAT
    if (dst != src)
        memcpy(dst, src, (size_t)n * sizeof *dst);
#elif defined(FL_ENCODE_BLOCK)
    FL_ENCODE_BLOCK(dst, n, src);
#else
    for (int64_t i = 0; i < n; i++)
        dst[i] = FL_ENCODE(src[i]);
#endif
}

#ifdef FL_DIGITS
/* Adds the statistics of n results that were rounded stochastically: x as binary32, y as stored, FL_BEYOND and larger
 * numbers as infinite. */
static inline void count_drawn(int64_t n, const float *x, const float *y, struct fl_stats *stats) {
    uint32_t largest = 0, stored = 0, flushed = 0;
    for (int64_t i = 0; i < n; i++) {
        const uint32_t before = fl_float_magnitude(x[i]), after = fl_float_magnitude(y[i]);
        largest = before > largest ? before : largest;
        stored = after > stored ? after : stored;
        flushed += (after == 0) & (before != 0);
    }
    stats->flushed += flushed;
    for (int64_t i = 0; (largest > 0x7f800000u || stored >= FL_BEYOND) && i < n; i++) /* rare */
        fl_count_float(x[i], fl_float_magnitude(y[i]) >= FL_BEYOND, stats);
    float maximum;
    memcpy(&maximum, &largest, sizeof maximum);
    if (maximum > stats->maximum) /* not NaN */
        stats->maximum = maximum;
}
#endif

/* Stores n floats, rounded once, to nearest or toward zero; dst NULL: statistics only. */
static __attribute__((noinline)) void store_floats(fl_element *dst, int64_t n, const float *src,
                                                   const struct fl_rounding *rounding, struct fl_stats *stats) {
#ifdef FL_ENCODE_TRUNCATED
    if (rounding->mode == TENSOR_ROUND_TRUNCATE) {
        count_block(src, n, FL_OVERFLOW_TRUNCATED, FL_FLUSH_TRUNCATED, stats);
        for (int64_t i = 0; dst && i < n; i++)
            dst[i] = FL_ENCODE_TRUNCATED(src[i]);
        return;
    }
#else
    (void)rounding;
#endif
    count_block(src, n, FL_OVERFLOW, FL_FLUSH, stats);
    if (dst)
        encode_block(dst, n, src);
}

static inline float relu(float x) {
    return x > 0 ? x : x != x ? x : 0.0f;
}

#endif
