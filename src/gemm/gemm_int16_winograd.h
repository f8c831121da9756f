/* gemm_int16_winograd.h - packs the linear forms of Winograd's algorithm for weight gradients of filters three wide
 * (docs/decisions/0039-winograd.md).
 *
 * A step of k is four output pixels, two pairs of neighbours: the lower elements of its k-pairs are those of the first
 * pair of pixels, the upper ones those of the second. With mantissas in -2^14 ... 2^14 - 1 every form is an int16.
 *
 * Expects: gemm_k_pairs.h, gemm_int16_bounds.h, packed_put.
 * Gives: gemm_winograd_dy, gemm_winograd_line. */
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

/* The forms of dy for each pair of output pixels (y0, y1): y0, y0 + y1, y0 - y1, y1. */
static bool gemm_winograd_dy(const void *from, int64_t pixel, int64_t pixels, int64_t rows, gemm_packed *to,
                             int64_t plane) {
    packed_vector seen = packed_zero();
    for (int64_t x = 0; x < pixels; x += 4, to += rows)
        for (int64_t row = 0; row < rows; row += LANES) {
            const element *at = (const element *)from + x * pixel + row;
            const int64_t count = rows - row;
            const packed_vector y0 = packed_pair(at, at + 2 * pixel, count),
                                y1 = packed_pair(at + pixel, at + 3 * pixel, count);
            seen = note_large(note_large(seen, y0), y1);
            packed_put_some(to + row, y0, count);
            packed_put_some(to + row + plane, packed_sum(y0, y1), count);
            packed_put_some(to + row + 2 * plane, packed_difference(y0, y1), count);
            packed_put_some(to + row + 3 * plane, y1, count);
        }
    return !any_large(seen);
}

/* The forms of the image for each pair of output pixels, which see the pixels d0 ... d3: d0 - d2, d1 + d2, d2 - d1,
 * d1 - d3. */
static bool gemm_winograd_line(const struct gemm_image_line *line, const void *zero, gemm_packed *to, int64_t plane,
                               float bounds[GEMM_WINOGRAD_FORMS]) {
    const int64_t quads = (line->count - 2) / 4, channels = line->channels;
    packed_vector seen = packed_zero();
    squares largest[GEMM_WINOGRAD_FORMS];
    for (int form = 0; form < GEMM_WINOGRAD_FORMS; form++) {
        largest[form] = squares_zero();
        bounds[form] = 0;
        if (!line->row)
            memset(to + form * plane, 0, (size_t)(quads * channels) * sizeof *to);
    }
    for (int64_t channel = 0; line->row && channel < channels; channel += LANES) {
        const int64_t count = channels - channel;
        squares sums[GEMM_WINOGRAD_FORMS];
        for (int form = 0; form < GEMM_WINOGRAD_FORMS; form++)
            sums[form] = squares_zero();
        for (int64_t quad = 0; quad < quads; quad++) {
            const element *at[6];
            for (int i = 0; i < 6; i++) {
                const int64_t x = line->x + 4 * quad + i;
                at[i] = x >= 0 && x < line->row_pixels ? (const element *)line->row + x * line->pixel + channel : zero;
            }
            packed_vector d[4], form[GEMM_WINOGRAD_FORMS];
            for (int i = 0; i < 4; i++) {
                d[i] = packed_pair(at[i], at[i + 2], count);
                seen = note_large(seen, d[i]);
            }
            form[0] = packed_difference(d[0], d[2]);
            form[1] = packed_sum(d[1], d[2]);
            form[2] = packed_difference(d[2], d[1]);
            form[3] = packed_difference(d[1], d[3]);
            for (int i = 0; i < GEMM_WINOGRAD_FORMS; i++) {
                sums[i] = squares_of(sums[i], form[i]);
                packed_put_some(to + i * plane + quad * channels + channel, form[i], count);
            }
        }
        for (int form = 0; form < GEMM_WINOGRAD_FORMS; form++)
            largest[form] = squares_larger(largest[form], sums[form]);
    }
    for (int form = 0; line->row && form < GEMM_WINOGRAD_FORMS; form++)
        bounds[form] = squares_up(largest[form], quads);
    return !any_large(seen);
}

#endif
