/* gemm_int16_winograd.h - packs the linear forms of Winograd's algorithm for filters three wide
 * (docs/decisions/0039-winograd.md).
 *
 * In a weight gradient a step of k is four output pixels, two pairs of neighbours: the lower elements of its k-pairs
 * are those of the first pair of pixels, the upper ones those of the second. In a convolution it is two channels. With
 * mantissas in -2^14 ... 2^14 - 1 every form of pixels is an int16.
 *
 * Gives: gemm_winograd_dy, gemm_winograd_line, gemm_winograd_takes, gemm_winograd_filter, gemm_winograd_pixels. */
#ifndef FL_GEMM_INT16_WINOGRAD_H
#define FL_GEMM_INT16_WINOGRAD_H

#include "gemm/gemm_k_pairs.h"
#include "gemm/gemm_int16_bounds.h"

/* The sign of an element is set if any of those seen lies outside of -2^14 ... 2^14 - 1: its upper two bits differ. */
#if defined(__AVX512F__)
static inline packed_vector note_large(packed_vector seen, packed_vector x) {
    return _mm512_ternarylogic_epi32(seen, x, _mm512_add_epi16(x, x), 0xf6); /* seen | (x ^ 2 x) */
}

static inline bool any_large(packed_vector seen) {
    return _mm512_movepi16_mask(seen) != 0;
}

static inline void packed_put_some(gemm_packed *to, packed_vector x, int64_t count) {
    _mm512_mask_storeu_epi32(to, count >= 16 ? 0xffff : (__mmask16)((1u << count) - 1), x);
}
#else
static inline void packed_put_some(gemm_packed *to, packed_vector x, int64_t count) {
    memcpy(to, &x, (size_t)(count < LANES ? count : LANES) * sizeof *to);
}

#if defined(__AVX2__)
static inline packed_vector note_large(packed_vector seen, packed_vector x) {
    return _mm256_or_si256(seen, _mm256_xor_si256(x, _mm256_add_epi16(x, x)));
}

static inline bool any_large(packed_vector seen) {
    return (_mm256_movemask_epi8(seen) & 0xaaaaaaaa) != 0;
}
#else
static inline packed_vector note_large(packed_vector seen, packed_vector x) {
    for (int i = 0; i < LANES; i++)
        for (int k = 0; k < 2; k++)
            if (x.of[i].k[k] < -0x4000 || x.of[i].k[k] >= 0x4000)
                seen.of[i].k[k] = -1;
    return seen;
}

static inline bool any_large(packed_vector seen) {
    bool any = false;
    for (int i = 0; i < LANES; i++)
        for (int k = 0; k < 2; k++)
            any |= seen.of[i].k[k] < 0;
    return any;
}
#endif
#endif

static bool gemm_winograd_takes(const void *data, int64_t n) {
    const element *from = data;
    packed_vector seen = packed_zero();
    int64_t i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES)
        seen = note_large(seen, packed_along(from + i, 2 * LANES));
    if (i < n)
        seen = note_large(seen, packed_along(from + i, n - i));
    return !any_large(seen);
}

/* The forms of the pixels that a pair of output pixels sees: d0 - d2, d1 + d2, d2 - d1, d1 - d3. */
static inline __attribute__((always_inline)) void forms_of_pixels(const packed_vector d[4],
                                                                  packed_vector form[GEMM_WINOGRAD_FORMS]) {
    form[0] = packed_difference(d[0], d[2]);
    form[1] = packed_sum(d[1], d[2]);
    form[2] = packed_difference(d[2], d[1]);
    form[3] = packed_difference(d[1], d[3]);
}

/* Pixel x of a line, from channel `channel` on, or zeros. */
static inline const element *pixel_at(const struct gemm_image_line *line, int64_t x, int64_t channel,
                                      const void *zero) {
    return x >= 0 && x < line->row_pixels ? (const element *)line->row + x * line->pixel + channel : zero;
}

/* --- weight gradients --- */

/* The forms of dy for each pair of output pixels (y0, y1): y0, y0 + y1, y0 - y1, y1. */
static void gemm_winograd_dy(const void *from, int64_t pixel, int64_t pixels, int64_t rows, gemm_packed *to,
                             int64_t plane) {
    for (int64_t x = 0; x < pixels; x += 4, to += rows)
        for (int64_t row = 0; row < rows; row += LANES) {
            const element *at = (const element *)from + x * pixel + row;
            const int64_t count = rows - row;
            const packed_vector y0 = packed_pair(at, at + 2 * pixel, count),
                                y1 = packed_pair(at + pixel, at + 3 * pixel, count);
            packed_put_some(to + row, y0, count);
            packed_put_some(to + row + plane, packed_sum(y0, y1), count);
            packed_put_some(to + row + 2 * plane, packed_difference(y0, y1), count);
            packed_put_some(to + row + 3 * plane, y1, count);
        }
}

static void gemm_winograd_line(const struct gemm_image_line *line, const void *zero, gemm_packed *to, int64_t plane,
                               float bounds[GEMM_WINOGRAD_FORMS]) {
    const int64_t quads = (line->count - 2) / 4, channels = line->channels;
    squares largest[GEMM_WINOGRAD_FORMS];
    for (int form = 0; form < GEMM_WINOGRAD_FORMS; form++) {
        largest[form] = squares_zero();
        bounds[form] = 0;
        if (!line->row)
            memset(to + form * plane, 0, (size_t)(quads * channels) * sizeof *to);
    }
    if (!line->row)
        return;
    for (int64_t channel = 0; channel < channels; channel += LANES) {
        const int64_t count = channels - channel;
        squares sums[GEMM_WINOGRAD_FORMS];
        for (int form = 0; form < GEMM_WINOGRAD_FORMS; form++)
            sums[form] = squares_zero();
        for (int64_t quad = 0; quad < quads; quad++) {
            const element *at[6];
            for (int i = 0; i < 6; i++)
                at[i] = pixel_at(line, line->x + 4 * quad + i, channel, zero);
            packed_vector d[4], form[GEMM_WINOGRAD_FORMS];
            for (int i = 0; i < 4; i++)
                d[i] = packed_pair(at[i], at[i + 2], count);
            forms_of_pixels(d, form);
            for (int i = 0; i < GEMM_WINOGRAD_FORMS; i++) {
                sums[i] = squares_of(sums[i], form[i]);
                packed_put_some(to + i * plane + quad * channels + channel, form[i], count);
            }
        }
        for (int form = 0; form < GEMM_WINOGRAD_FORMS; form++)
            largest[form] = squares_larger(largest[form], sums[form]);
    }
    for (int form = 0; form < GEMM_WINOGRAD_FORMS; form++)
        bounds[form] = squares_up(largest[form], quads);
}

/* --- convolutions and input gradients --- */

/* The forms of a filter row: g0, g0 + g1 + g2, g0 - g1 + g2, g2. */
static bool gemm_winograd_filter(const void *from, int64_t position, int64_t n, int form, void *to) {
    const element *g0 = from, *g1 = g0 + position, *g2 = g1 + position;
    element *restrict sums = to;
    if (form == 0 || form == GEMM_WINOGRAD_FORMS - 1) {
        memcpy(to, form ? g2 : g0, (size_t)n * sizeof *sums);
        return true;
    }
    const int sign = form == 1 ? 1 : -1;
    int beyond = 0;
    for (int64_t i = 0; i < n; i++) {
        const int sum = g0[i] + sign * g1[i] + g2[i];
        beyond |= (sum + 0x8000) & ~0xffff;
        sums[i] = (element)(uint16_t)sum;
    }
    return !beyond;
}

static void gemm_winograd_pixels(const struct gemm_image_line *line, const void *zero, gemm_packed *to,
                                 int64_t to_pixel, int64_t plane) {
    const int64_t pairs = (line->count - 2) / 2;
    for (int64_t pair = 0; pair < pairs; pair++, to += to_pixel) {
        const element *at[4];
        for (int i = 0; i < 4; i++)
            at[i] = pixel_at(line, line->x + 2 * pair + i, 0, zero);
        for (int64_t channel = 0; channel < 2 * to_pixel; channel += 2 * LANES) {
            const int64_t count = line->channels - channel;
            packed_vector d[4], form[GEMM_WINOGRAD_FORMS];
            for (int i = 0; i < 4; i++)
                d[i] = count > 0 ? packed_along(at[i] + channel, count) : packed_zero();
            forms_of_pixels(d, form);
            for (int i = 0; i < GEMM_WINOGRAD_FORMS; i++)
                packed_put_some(to + i * plane + channel / 2, form[i], to_pixel - channel / 2);
        }
    }
}

#endif
