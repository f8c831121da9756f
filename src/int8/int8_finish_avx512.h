/* int8_finish_avx512.h - rounding of sums in vectors of AVX-512, for the two rules that most networks use; the others
 * as int8_kernels.inc has them, which this is included behind. Gives finish. */
#ifndef FL_INT8_FINISH_AVX512_H
#define FL_INT8_FINISH_AVX512_H

#include <immintrin.h>
#include <stdint.h>

/* What all vectors of 16 filters of a tile share. */
struct lanes {
    const struct fl_int8_layer *layer;
    int64_t slot;
    __m512i start, zero, flip, less; /* flip, less: of the residual's bytes */
    __m512 factor, low, high, residual;
    __mmask16 valid;
};

static inline __m512i residual_lanes(const struct lanes *l, const uint8_t *from) {
    const __m512i bytes = _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(l->valid, from));
    return _mm512_sub_epi32(_mm512_xor_si512(bytes, l->flip), l->less);
}

static inline void store_lanes(const struct lanes *l, __m512 x, uint8_t *to) {
    const __m512i q = _mm512_add_epi32(_mm512_cvtps_epi32(x), l->zero);
    _mm_mask_storeu_epi8(to, l->valid, _mm512_cvtepi32_epi8(q));
}

static __attribute__((noinline)) void round_again(const struct lanes *l, __m512i sum, __m512i residual, uint8_t *to) {
    int32_t sums[LANES], r[LANES];
    uint8_t q[LANES];
    _mm512_storeu_si512(sums, sum);
    _mm512_storeu_si512(r, residual);
    round_once_even(l->layer, sums, r, l->slot, q);
    _mm_mask_storeu_epi8(to, l->valid, _mm_loadu_si128((const __m128i *)(const void *)q));
}

static inline void binary32_lanes(const struct lanes *l, const struct int8_finish *f, const int32_t *sums, int64_t k) {
    uint8_t *y = (uint8_t *)f->y + f->filter + k;
    for (int64_t p = 0; p < f->positions; p++, sums += f->row) {
        if (f->place[p] < 0)
            continue;
        const __m512i sum = _mm512_add_epi32(_mm512_load_si512(sums), l->start);
        const __m512 x = _mm512_mul_ps(_mm512_cvtepi32_ps(sum), l->factor);
        store_lanes(l, _mm512_min_ps(_mm512_max_ps(x, l->low), l->high), y + f->place[p] * l->layer->spec.filters);
    }
}

/* A binary32 result that is no farther from a tie may stem from a sum on its other side. Where it does not saturate,
 * |sum M| and |r M_r| are below 2^10 and 2^9; each has three errors of 2^-24 of itself, and their sum one. */
#define DOUBT32 0x1p-11f

static inline void once_even_lanes(const struct lanes *l, const struct int8_finish *f, const int32_t *sums, int64_t k) {
    uint8_t *y = (uint8_t *)f->y + f->filter + k;
    const uint8_t *residual = f->residual ? f->residual + f->filter + k : NULL;
    const __m512 near = _mm512_set1_ps(0.5f - DOUBT32);
    __m512i r = _mm512_setzero_si512();
    for (int64_t p = 0; p < f->positions; p++, sums += f->row) {
        if (f->place[p] < 0)
            continue;
        const int64_t at = f->place[p] * l->layer->spec.filters;
        const __m512i sum = _mm512_add_epi32(_mm512_load_si512(sums), l->start);
        __m512 x = _mm512_mul_ps(_mm512_cvtepi32_ps(sum), l->factor);
        if (residual) {
            r = residual_lanes(l, residual + at);
            x = _mm512_fmadd_ps(_mm512_cvtepi32_ps(r), l->residual, x);
        }
        x = _mm512_min_ps(_mm512_max_ps(x, l->low), l->high);
        const __m512 whole = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        const __mmask16 doubts =
            _mm512_mask_cmp_ps_mask(l->valid, _mm512_abs_ps(_mm512_sub_ps(x, whole)), near, _CMP_GE_OQ);
        if (__builtin_expect(doubts != 0, 0))
            round_again(l, sum, r, y + at);
        else
            store_lanes(l, whole, y + at);
    }
}

static void finish(const struct int8_finish *f) {
    const struct fl_int8_layer *layer = f->layer;
    const bool once_even = layer->rule == INT8_ONCE_EVEN && layer->residual_real <= 2;
    if (layer->spec.sums || (layer->rule != INT8_BINARY32 && !once_even)) {
        finish_plain(f);
        return;
    }
    const int flip = layer->residual_type.is_unsigned ? 0 : 128;
    struct lanes l = {.layer = layer,
                      .zero = _mm512_set1_epi32(layer->spec.y.zero),
                      .flip = _mm512_set1_epi32(flip),
                      .less = _mm512_set1_epi32(layer->residual_type.zero + flip),
                      .low = _mm512_set1_ps((float)layer->low),
                      .high = _mm512_set1_ps((float)layer->high),
                      .residual = _mm512_set1_ps((float)layer->residual_real)};
    for (int64_t k = 0; k < f->count; k += LANES) {
        l.slot = f->slot + k;
        l.valid = (__mmask16)(f->count - k < LANES ? (1u << (f->count - k)) - 1 : 0xffff);
        l.start = _mm512_loadu_si512(layer->start + l.slot);
        l.factor = _mm512_loadu_ps(layer->factor + l.slot);
        if (once_even)
            once_even_lanes(&l, f, f->sums + k, k);
        else
            binary32_lanes(&l, f, f->sums + k, k);
    }
}

/* --- additions ------------------------------------------------------------------------------------------------------
 */

/* 16 elements as they are, and less their zero point. */
static inline __m512i element_lanes(const void *from, int64_t i, __mmask16 valid, bool is_unsigned) {
    const __m128i bytes = _mm_maskz_loadu_epi8(valid, (const uint8_t *)from + i);
    return is_unsigned ? _mm512_cvtepu8_epi32(bytes) : _mm512_cvtepi8_epi32(bytes);
}

/* Coefficients up to 2: each product is below 2^9 and has an error of at most 2 2^-24 of itself, the sum one more. */
static void add_vectors(const struct int8_addition *s, int64_t from, int64_t to) {
    const bool exact = s->rounding == FL_INT8_EXACT && s->real_a <= 2 && s->real_b <= 2;
    if (!exact && s->rounding != FL_INT8_ONNX) {
        add(s, from, to);
        return;
    }
    const __m512i a_zero = _mm512_set1_epi32(exact ? s->a_type.zero : 0),
                  b_zero = _mm512_set1_epi32(exact ? s->b_type.zero : 0),
                  y_zero = _mm512_set1_epi32(exact ? s->y_type.zero : 0);
    const int32_t added = exact ? 0 : s->y_type.zero; /* onnx adds it to the sum */
    const __m512 a_factor = _mm512_set1_ps(exact ? (float)s->real_a : s->of_a.factor),
                 b_factor = _mm512_set1_ps(exact ? (float)s->real_b : s->of_b.factor),
                 fixed = _mm512_set1_ps(exact ? 0 : s->fixed), low = _mm512_set1_ps((float)(s->low + added)),
                 high = _mm512_set1_ps((float)(s->high + added)), near = _mm512_set1_ps(0.5f - DOUBT32);
    for (int64_t i = from; i < to; i += LANES) {
        const __mmask16 valid = (__mmask16)(to - i < LANES ? (1u << (to - i)) - 1 : 0xffff);
        const __m512i a = _mm512_sub_epi32(element_lanes(s->a, i, valid, s->a_type.is_unsigned), a_zero),
                      b = _mm512_sub_epi32(element_lanes(s->b, i, valid, s->b_type.is_unsigned), b_zero);
        const __m512 term = _mm512_add_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(b), b_factor), fixed);
        __m512 x = _mm512_add_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(a), a_factor), term);
        x = _mm512_min_ps(_mm512_max_ps(x, low), high);
        const __m512 whole = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        if (exact && _mm512_mask_cmp_ps_mask(valid, _mm512_abs_ps(_mm512_sub_ps(x, whole)), near, _CMP_GE_OQ)) {
            add(s, i, to - i < LANES ? to : i + LANES);
            continue;
        }
        const __m512i q = _mm512_add_epi32(_mm512_cvtps_epi32(whole), y_zero);
        _mm_mask_storeu_epi8((uint8_t *)s->y + i, valid, _mm512_cvtepi32_epi8(q));
    }
}

#endif
