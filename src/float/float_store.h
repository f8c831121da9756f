/* float_store.h - stores results of an operation with the rounding of the write. For stochastic rounding every element
 * has a draw (core/arithmetic/draws.h), and the result itself is rounded: a binary32, or a double that is exact or
 * rounded to odd (core/arithmetic/stochastic.h). For rounding to nearest, a double is rounded to binary32 first.
 *
 * Expects: a codec (float_block.h).
 * Gives: DRAWN_RUN, is_drawn, draw_pairs, store_block, store_doubles, store_elements.
 * */
#ifndef FL_FLOAT_STORE_H
#define FL_FLOAT_STORE_H

#include "core/arithmetic/stochastic.h"
#include "float/float_block.h"
#ifdef FL_DIGITS
#include "core/arithmetic/draws.h"
#endif

#ifdef FL_DIGITS
/* Whether the write is rounded stochastically. */
static inline bool is_drawn(const struct fl_args *args) {
    return args->rounding.mode == TENSOR_ROUND_STOCHASTIC;
}

/* Results of a run: draws, results before and after, in double and binary32, stay in half of the first-level cache. */
enum { DRAWN_RUN = 256 };

/* Stores a run of at most DRAWN_RUN results, y as rounded, x as binary32. */
static void store_rounded(const struct fl_args *args, int64_t first, int64_t n, const float *x, const float *y,
                          struct fl_stats *stats) {
    count_drawn(n, x, y, stats);
    if (args->out.data)
        encode_block((fl_element *)args->out.data + first, n, y);
}

/* Most results are rounded as words of binary32: a draw, shifted to the places that the format lacks, is added to the
 * magnitude, and the carry is the rounding. Floor is in value, so negative results take the complement of the draw.
 * `lost`: not zero if bits below the last place of the word were cut off (NULL: none were). It matters only if the sum
 * of draw and word has only ones in those places. False then, and if a number is subnormal in the format but not in
 * binary32: y may be wrong. */
static inline __attribute__((always_inline)) bool draw_words_of(int64_t n, const float *x, const uint32_t *lost,
                                                                const uint32_t *draws, float *y) {
    const float least = (float)FL_LEAST_NORMAL;
    const uint32_t ones = (1u << (24 - FL_DIGITS)) - 1;
    uint32_t least_word, doubts = 0;
    memcpy(&least_word, &least, sizeof least_word);
    const uint32_t small = least_word > 0x00800000u ? least_word - 1 : 0;
    for (int64_t i = 0; i < n; i++) {
        uint32_t word;
        memcpy(&word, &x[i], sizeof word);
        const uint32_t size = word & 0x7fffffffu, draw = draws[i] ^ (0u - (word >> 31));
        const uint32_t sum = word + (draw >> (8 + FL_DIGITS));
        const uint32_t result = size > 0x7f800000u ? word : sum & ~ones;
        doubts |= (uint32_t)(size - 1u < small);
        if (lost)
            doubts |= lost[i] & (uint32_t)((sum & ones) == ones);
        memcpy(&y[i], &result, sizeof result);
    }
    return !doubts;
}

static __attribute__((noinline)) void draw_floats(const struct fl_args *args, int64_t first, int64_t n, const float *x,
                                                  struct fl_stats *stats) {
    struct draws memory;
    float y[DRAWN_RUN];
    const uint32_t *draws = draws_of(&args->rounding, first, n, &memory);
    if (!draw_words_of(n, x, NULL, draws, y))
        for (int64_t i = 0; i < n; i++)
            y[i] = (float)fl_round_by_draw(x[i], draws[i], FL_DIGITS, FL_LEAST_NORMAL);
    store_rounded(args, first, n, x, y, stats);
}

/* Stores a run of results x + error, x rounded to nearest. False, without storing anything, if an error is not finite,
 * and for the reasons above. */
static __attribute__((noinline)) bool draw_pairs(const struct fl_args *args, int64_t first, int64_t n, const float *x,
                                                 const float *error, struct fl_stats *stats) {
    struct draws memory;
    float cut[DRAWN_RUN], y[DRAWN_RUN];
    uint32_t lost[DRAWN_RUN], doubts = 0;
    const uint32_t *draws = draws_of(&args->rounding, first, n, &memory);
    for (int64_t i = 0; i < n; i++) {
        uint32_t word;
        memcpy(&word, &x[i], sizeof word);
        word -= (uint32_t)((error[i] < 0) & (x[i] > 0)) | (uint32_t)((error[i] > 0) & (x[i] < 0));
        memcpy(&cut[i], &word, sizeof word);
        lost[i] = (uint32_t)(error[i] != 0);
        doubts |= (uint32_t)(error[i] - error[i] != 0);
    }
    if (doubts || !draw_words_of(n, cut, lost, draws, y))
        return false;
    store_rounded(args, first, n, x, y, stats);
    return true;
}

static __attribute__((noinline)) void draw_doubles(const struct fl_args *args, int64_t first, int64_t n,
                                                   const double *v, struct fl_stats *stats) {
    struct draws memory;
    float x[DRAWN_RUN], cut[DRAWN_RUN], y[DRAWN_RUN];
    uint32_t lost[DRAWN_RUN];
    const uint32_t *draws = draws_of(&args->rounding, first, n, &memory);
    for (int64_t i = 0; i < n; i++) {
        const double back = (double)(x[i] = (float)v[i]);
        uint32_t word;
        memcpy(&word, &x[i], sizeof word);
        word -= __builtin_fabs(back) > __builtin_fabs(v[i]) ? 1u : 0u;
        memcpy(&cut[i], &word, sizeof word);
        lost[i] = back != v[i] ? 1u : 0u;
    }
    if (!draw_words_of(n, cut, lost, draws, y))
        for (int64_t i = 0; i < n; i++)
            y[i] = (float)fl_round_by_draw(v[i], draws[i], FL_DIGITS, FL_LEAST_NORMAL);
    store_rounded(args, first, n, x, y, stats);
}
#else
static inline bool is_drawn(const struct fl_args *args) {
    (void)args;
    return false;
}
#endif

/* Stores n results that are already numbers of the format, from element `first` of the output on. */
static inline void store_elements(const struct fl_args *args, int64_t first, int64_t n, const float *x,
                                  struct fl_stats *stats) {
    store_floats(element_at(args->out.data, first), n, x, &args->rounding, stats);
}

/* Stores n results, which are binary32, from element `first` of the output on. */
static inline void store_block(const struct fl_args *args, int64_t first, int64_t n, const float *x,
                               struct fl_stats *stats) {
#ifdef FL_DIGITS
    for (int64_t i = 0; is_drawn(args) && i < n; i += DRAWN_RUN)
        draw_floats(args, first + i, float_min(DRAWN_RUN, n - i), x + i, stats);
    if (is_drawn(args))
        return;
#endif
    store_elements(args, first, n, x, stats);
}

/* Stores at most FLOAT_BLOCK results, which are doubles. */
static void store_doubles(const struct fl_args *args, int64_t first, int64_t n, const double *v,
                          struct fl_stats *stats) {
#ifdef FL_DIGITS
    for (int64_t i = 0; is_drawn(args) && i < n; i += DRAWN_RUN)
        draw_doubles(args, first + i, float_min(DRAWN_RUN, n - i), v + i, stats);
    if (is_drawn(args))
        return;
#endif
    float x[FLOAT_BLOCK];
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)v[i];
    store_elements(args, first, n, x, stats);
}

#endif
