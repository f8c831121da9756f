/* real_lookup_avx512bw.c - results of real functions from tables, 16 at a time. */
#include "core/real/real_map.h"
#include <immintrin.h>
#include <string.h>

/* Loads one by one: AMD's processors gather more slowly. */
static inline __m512i look(const int32_t *at, const uint16_t *x) {
    return _mm512_setr_epi32(at[x[0]], at[x[1]], at[x[2]], at[x[3]], at[x[4]], at[x[5]], at[x[6]], at[x[7]], at[x[8]],
                             at[x[9]], at[x[10]], at[x[11]], at[x[12]], at[x[13]], at[x[14]], at[x[15]]);
}

void fl_real_lookup_avx512bw(const int32_t *entries, const uint16_t *x, uint16_t *y, int64_t n, const int32_t limits[2],
                             struct fl_real_found *found) {
    const __m512i first = _mm512_set1_epi32(limits[0]), second = _mm512_set1_epi32(limits[1]),
                  one = _mm512_set1_epi32(1);
    __m512i least = _mm512_set1_epi32(found->least), most = _mm512_set1_epi32(found->most);
    __m512i above_first = _mm512_setzero_si512(), above_second = _mm512_setzero_si512();
    for (int64_t i = 0; i < n; i += 16) {
        const __mmask16 live = n - i < 16 ? (__mmask16)((1u << (n - i)) - 1) : (__mmask16)0xffff;
        uint16_t last[16] = {0};
        const uint16_t *w = x + i;
        if (n - i < 16)
            w = memcpy(last, w, (size_t)(n - i) * sizeof *x);
        const __m512i entry = look(entries, w);
        least = _mm512_mask_min_epi32(least, live, least, entry);
        most = _mm512_mask_max_epi32(most, live, most, entry);
        above_first =
            _mm512_mask_add_epi32(above_first, _mm512_mask_cmpgt_epi32_mask(live, entry, first), above_first, one);
        above_second =
            _mm512_mask_add_epi32(above_second, _mm512_mask_cmpgt_epi32_mask(live, entry, second), above_second, one);
        if (y)
            _mm512_mask_cvtepi32_storeu_epi16(y + i, live, entry);
    }
    found->least = _mm512_reduce_min_epi32(least);
    found->most = _mm512_reduce_max_epi32(most);
    found->above[0] += _mm512_reduce_add_epi32(above_first);
    found->above[1] += _mm512_reduce_add_epi32(above_second);
}
