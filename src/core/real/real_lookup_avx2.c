/* real_lookup_avx2.c - results of real functions from tables, 16 elements at a time by gathers
 * of 8. */
#include "core/real/real_map.h"
#include <immintrin.h>

struct state {
    __m256i least, most, above[2];
};

static inline __m256i look(const int32_t *entries, __m128i x, const __m256i limits[2], struct state *s) {
    const __m256i entry = _mm256_i32gather_epi32(entries, _mm256_cvtepu16_epi32(x), 4);
    s->least = _mm256_min_epi32(s->least, entry);
    s->most = _mm256_max_epi32(s->most, entry);
    for (int i = 0; i < 2; i++)
        s->above[i] = _mm256_sub_epi32(s->above[i], _mm256_cmpgt_epi32(entry, limits[i]));
    return entry;
}

void fl_real_lookup_avx2(const int32_t *entries, const uint16_t *x, uint16_t *y, int64_t n, const int32_t limits[2],
                         struct fl_real_found *found) {
    const __m256i bounds[2] = {_mm256_set1_epi32(limits[0]), _mm256_set1_epi32(limits[1])};
    const __m256i low = _mm256_set1_epi32(0xffff);
    struct state s = {_mm256_set1_epi32(found->least), _mm256_set1_epi32(found->most), {{0}, {0}}};
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        const __m256i words = _mm256_loadu_si256((const __m256i *)(x + i));
        const __m256i a = look(entries, _mm256_castsi256_si128(words), bounds, &s),
                      b = look(entries, _mm256_extracti128_si256(words, 1), bounds, &s);
        const __m256i packed = _mm256_packus_epi32(_mm256_and_si256(a, low), _mm256_and_si256(b, low));
        if (y)
            _mm256_storeu_si256((__m256i *)(y + i), _mm256_permute4x64_epi64(packed, 0xd8));
    }
    int32_t least[8], most[8], above[2][8];
    _mm256_storeu_si256((__m256i *)least, s.least);
    _mm256_storeu_si256((__m256i *)most, s.most);
    for (int k = 0; k < 2; k++)
        _mm256_storeu_si256((__m256i *)above[k], s.above[k]);
    for (int lane = 0; lane < 8; lane++) {
        found->least = least[lane] < found->least ? least[lane] : found->least;
        found->most = most[lane] > found->most ? most[lane] : found->most;
        for (int k = 0; k < 2; k++)
            found->above[k] += above[k][lane];
    }
    fl_real_lookup_portable(entries, x + i, y ? y + i : NULL, n - i, limits, found);
}
