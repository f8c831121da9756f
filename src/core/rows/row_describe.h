/* row_describe.h - statistics of a block of elements: whole numbers by
 * loops that compilers turn into vectors, sums of binary32 in eight lanes of double: number i of a block goes to lane i
 * mod 8, so that every instruction set adds the same numbers in the same order.
 *
 * Gives: row_describe_floats, row_describe_mantissas, row_add_errors. */
#ifndef FL_ROW_DESCRIBE_H
#define FL_ROW_DESCRIBE_H

#include "core/rows/row_lanes.h"
#include "core/rows/row_vectors.h"

enum { DESCRIBED_INFINITY = 0x7f800000, DESCRIBED_NORMAL = 0x00800000, DESCRIBED_GROUPS = FL_DESCRIBED_LANES / LANES };

/* x and y where both are finite, else zeros. */
static inline words row_finite(lanes x) {
    return lanes_size(x) < __builtin_inf();
}

static inline void row_sum_floats(const float *x, int64_t n, double centre, bool finite, double sum[4][8]) {
    lanes of[4][DESCRIBED_GROUPS];
    memcpy(of, sum, sizeof of);
    const lanes middle = lanes_all(centre);
    for (int64_t i = 0; i + FL_DESCRIBED_LANES <= n; i += FL_DESCRIBED_LANES)
        for (int g = 0; g < DESCRIBED_GROUPS; g++) {
            lanes v = lanes_floats(x + i + g * LANES), d = v - middle;
            if (!finite) {
                const words mask = row_finite(v);
                v = (lanes)((words)v & mask);
                d = (lanes)((words)d & mask);
            }
            of[0][g] += d;
            of[1][g] += d * d;
            of[2][g] += lanes_size(v);
            of[3][g] += v * v;
        }
    memcpy(sum, of, sizeof of);
}

/* The remainder that does not fill the lanes. */
static void row_sum_last(const float *x, int64_t n, double centre, double sum[4][8]) {
    for (int64_t i = n & ~(int64_t)(FL_DESCRIBED_LANES - 1); i < n; i++) {
        const double v = x[i], d = v - centre;
        const int l = (int)(i & (FL_DESCRIBED_LANES - 1));
        if (v - v != 0)
            continue;
        sum[0][l] += d;
        sum[1][l] += d * d;
        sum[2][l] += v < 0 ? -v : v;
        sum[3][l] += v * v;
    }
}

static inline uint32_t row_word(const float *x) {
    uint32_t word;
    memcpy(&word, x, sizeof word);
    return word & 0x7fffffffu;
}

/* Numbers below the normal ones by their magnitudes, and those that are not finite by their kind. */
static void row_count_special(const float *x, int64_t n, struct fl_described_floats *d) {
    for (int64_t i = 0; i < n; i++) {
        const uint32_t word = row_word(x + i);
        if (word && word < DESCRIBED_NORMAL)
            d->subnormal[31 - __builtin_clz(word)]++;
        if (word > DESCRIBED_INFINITY)
            d->nan++;
        if (word < DESCRIBED_INFINITY && word > d->most)
            d->most = word;
    }
}

/* --- bits --------------------------------------------------------------------------------------------------------- */

typedef uint16_t halves __attribute__((vector_size(LANES * 8)));
typedef uint32_t quads __attribute__((vector_size(LANES * 8)));
enum { HALVES = LANES * 4, QUADS = LANES * 2 };

/* Adds a and b to *low bit by bit; what is carried is *high. */
static inline void row_carry(words *high, words *low, words a, words b) {
#if defined(__AVX512F__)
    const __m512i old = (__m512i)*low;
    *high = (words)_mm512_ternarylogic_epi64(old, (__m512i)a, (__m512i)b, 0xe8);
    *low = (words)_mm512_ternarylogic_epi64(old, (__m512i)a, (__m512i)b, 0x96);
#else
    const words either = *low ^ a;
    *high = (*low & a) | (either & b);
    *low = either ^ b;
#endif
}

/* Sixteen vectors become one of sixteens, the rest stays in the carries. */
static inline words row_add_sixteen(words carry[FL_DESCRIBED_CARRIES], const words v[16]) {
    words two[2], four[2], eight[2], sixteen;
    for (int i = 0; i < 2; i++) {
        const words *w = v + 8 * i;
        row_carry(&two[0], &carry[0], w[0], w[1]);
        row_carry(&two[1], &carry[0], w[2], w[3]);
        row_carry(&four[0], &carry[1], two[0], two[1]);
        row_carry(&two[0], &carry[0], w[4], w[5]);
        row_carry(&two[1], &carry[0], w[6], w[7]);
        row_carry(&four[1], &carry[1], two[0], two[1]);
        row_carry(&eight[i], &carry[2], four[0], four[1]);
    }
    row_carry(&sixteen, &carry[3], eight[0], eight[1]);
    return sixteen;
}

/* Up to four vectors of sixteens, the others zeros, become one of groups. */
static inline words row_add_group(words carry[FL_DESCRIBED_CARRIES], const words sixteen[4]) {
    words two[2], group;
    row_carry(&two[0], &carry[4], sixteen[0], sixteen[1]);
    row_carry(&two[1], &carry[4], sixteen[2], sixteen[3]);
    row_carry(&group, &carry[5], two[0], two[1]);
    return group;
}

/* --- binary32 ----------------------------------------------------------------------------------------------------- */

/* One by one. */
static void row_describe_few(const float *x, int64_t n, double centre, struct fl_described_floats *d) {
    uint32_t most = 0, least = UINT32_MAX; /* least: of one less, so that 0 is the largest */
    for (int64_t i = 0; i < n; i++) {
        const uint32_t word = row_word(x + i), less = word - 1;
        most = word > most ? word : most;
        least = less < least ? less : least;
    }
    d->least = least < d->least ? least : d->least;
    const bool finite = most < DESCRIBED_INFINITY;
    if (finite && most > d->most)
        d->most = most;
    for (int64_t i = 0; i < n; i++) /* neighbours are alike: one counter would wait for itself */
        d->count[i & 7][row_word(x + i) >> 23]++;
    if (!finite || least < DESCRIBED_NORMAL - 1)
        row_count_special(x, n, d);
    if (finite)
        row_sum_floats(x, n, centre, true, d->sum);
    else
        row_sum_floats(x, n, centre, false, d->sum);
    row_sum_last(x, n, centre, d->sum);
}

#if defined(__AVX2__)

#if defined(__AVX512F__)
static inline quads quads_larger(quads a, quads b) {
    return (quads)_mm512_max_epu32((__m512i)a, (__m512i)b);
}
static inline quads quads_smaller(quads a, quads b) {
    return (quads)_mm512_min_epu32((__m512i)a, (__m512i)b);
}
static inline quads quads_bit(quads place) { /* none from 32 on */
    return (quads)_mm512_sllv_epi32(_mm512_set1_epi32(1), (__m512i)place);
}
static inline lanes lanes_add_square(lanes sum, lanes x) {
    return (lanes)_mm512_fmadd_pd((__m512d)x, (__m512d)x, (__m512d)sum);
}
#else
static inline quads quads_larger(quads a, quads b) {
    return (quads)_mm256_max_epu32((__m256i)a, (__m256i)b);
}
static inline quads quads_smaller(quads a, quads b) {
    return (quads)_mm256_min_epu32((__m256i)a, (__m256i)b);
}
static inline quads quads_bit(quads place) {
    return (quads)_mm256_sllv_epi32(_mm256_set1_epi32(1), (__m256i)place);
}
static inline lanes lanes_add_square(lanes sum, lanes x) {
    return (lanes)_mm256_fmadd_pd((__m256d)x, (__m256d)x, (__m256d)sum);
}
#endif

struct row_floats {
    quads most, least;
    lanes sum[4][DESCRIBED_GROUPS];
};

/* One vector: its bits, of exponents base - 31 ... base, and its sums as if all were finite. The square of a binary32
 * is exact in a double, so that one rounding is all it needs; that of a difference is not. Without a centre (the first
 * number is 0, as after ReLU in every second tensor) differences are the numbers, and their squares come from those. */
static inline words row_see_floats(struct row_floats *r, const float *x, quads base, lanes centre, bool shifted) {
    quads w;
    memcpy(&w, x, sizeof w);
    w &= 0x7fffffffu;
    r->most = quads_larger(r->most, w);
    r->least = quads_smaller(r->least, w - 1);
    for (int l = 0; l < QUADS; l += LANES) {
        const int g = l / LANES % DESCRIBED_GROUPS;
        const lanes v = lanes_floats(x + l);
        if (shifted) {
            const lanes d = v - centre;
            r->sum[0][g] += d;
            r->sum[1][g] += d * d;
        } else {
            r->sum[0][g] += v;
        }
        r->sum[2][g] += lanes_size(v);
        r->sum[3][g] = lanes_add_square(r->sum[3][g], v);
    }
    return (words)quads_bit(base - (w >> 23));
}

static inline int64_t row_see_groups(struct row_floats *r, const float *x, int64_t n, double centre, bool shifted,
                                     struct fl_described_floats *d) {
    const quads base = (quads){0} + (uint32_t)d->base;
    const lanes middle = lanes_all(centre);
    words carry[FL_DESCRIBED_CARRIES];
    int64_t i = 0;
    for (int k = 0; k < FL_DESCRIBED_CARRIES; k++)
        memcpy(&carry[k], d->carry[k], sizeof carry[k]);
    while (i + 16 * QUADS <= n) {
        words sixteen[4] = {{0}};
        for (int k = 0; k < 4 && i + 16 * QUADS <= n; k++, i += 16 * QUADS) {
            words v[16];
            for (int j = 0; j < 16; j++)
                v[j] = row_see_floats(r, x + i + j * QUADS, base, middle, shifted);
            sixteen[k] = row_add_sixteen(carry, v);
        }
        const quads group = (quads)row_add_group(carry, sixteen);
        for (int b = 0; b < 32; b++) {
            quads count;
            memcpy(&count, d->bit[b], sizeof count);
            count += (group >> b) & 1;
            memcpy(d->bit[b], &count, sizeof count);
        }
    }
    for (int k = 0; k < FL_DESCRIBED_CARRIES; k++)
        memcpy(d->carry[k], &carry[k], sizeof carry[k]);
    return i;
}

/* Elements that are not 0 and lie outside the 32 exponents that are counted. */
static void row_count_outside(const float *x, int64_t n, struct fl_described_floats *d) {
    for (int64_t i = 0; i < n; i++) {
        const uint32_t word = row_word(x + i), place = (uint32_t)d->base - (word >> 23);
        if (place < 32 || !word)
            continue;
        d->count[i & 7][word >> 23]++;
        d->by_bits--;
    }
}

/* Whole vectors in one pass, which takes them for finite; what was not is looked at again. How many that were. */
static int64_t row_describe_many(const float *x, int64_t n, double centre, struct fl_described_floats *d) {
    struct row_floats r = {.least = (quads){0} - 1};
    memcpy(r.sum, d->sum, sizeof r.sum);
    const int64_t seen =
        centre != 0 ? row_see_groups(&r, x, n, centre, true, d) : row_see_groups(&r, x, n, 0, false, d);
    uint32_t most = 0, least = UINT32_MAX;
    for (int l = 0; l < QUADS; l++) {
        most = r.most[l] > most ? r.most[l] : most;
        least = r.least[l] < least ? r.least[l] : least;
    }
    d->by_bits += seen;
    d->least = least < d->least ? least : d->least;
    const bool finite = most < DESCRIBED_INFINITY;
    const int32_t high = (int32_t)(most >> 23), low = least == UINT32_MAX ? high : (int32_t)((least + 1) >> 23);
    if (most && (high > d->base || low < d->base - 31))
        row_count_outside(x, seen, d);
    if (!finite || least < DESCRIBED_NORMAL - 1)
        row_count_special(x, seen, d);
    if (!finite) {
        row_sum_floats(x, seen, centre, false, d->sum);
        return seen;
    }
    d->most = most > d->most ? most : d->most;
    if (centre == 0)
        memcpy(r.sum[1], r.sum[3], sizeof r.sum[1]);
    memcpy(d->sum, r.sum, sizeof r.sum);
    return seen;
}

/* The exponent that the bits begin with: some room above the largest; so high that 0 and what is below the normal
 * numbers have none. */
static void row_find_base(const float *x, int64_t n, struct fl_described_floats *d) {
    uint32_t most = 0;
    for (int64_t i = 0; i < n; i++) {
        const uint32_t word = row_word(x + i);
        most = word > most ? word : most;
    }
    const int32_t high = (int32_t)(most >> 23) + 4;
    if (most && most < DESCRIBED_INFINITY)
        d->base = high < 32 ? 32 : high < 254 ? high : 254;
}

#endif

static void row_describe_floats(const float *x, int64_t n, double centre, struct fl_described_floats *d) {
    int64_t seen = 0;
#if defined(__AVX2__)
    if (!d->base)
        row_find_base(x, n, d);
    if (d->base)
        seen = row_describe_many(x, n, centre, d);
#endif
    row_describe_few(x + seen, n - seen, centre, d);
}

/* --- mantissas ---------------------------------------------------------------------------------------------------- */

static inline halves halves_at(const int16_t *p) {
    halves x;
    memcpy(&x, p, sizeof x);
    return x;
}

#if defined(__AVX512F__)
static inline halves halves_size(halves x) { /* -2^15 becomes 2^15 */
    return (halves)_mm512_abs_epi16((__m512i)x);
}
static inline halves halves_larger(halves a, halves b) {
    return (halves)_mm512_max_epu16((__m512i)a, (__m512i)b);
}
static inline halves halves_smaller(halves a, halves b) {
    return (halves)_mm512_min_epu16((__m512i)a, (__m512i)b);
}
/* Sums of neighbours' products, of factors above -2^15. */
static inline quads halves_products(halves a, halves b) {
    return (quads)_mm512_madd_epi16((__m512i)a, (__m512i)b);
}
#elif defined(__AVX2__)
static inline halves halves_size(halves x) {
    return (halves)_mm256_abs_epi16((__m256i)x);
}
static inline halves halves_larger(halves a, halves b) {
    return (halves)_mm256_max_epu16((__m256i)a, (__m256i)b);
}
static inline halves halves_smaller(halves a, halves b) {
    return (halves)_mm256_min_epu16((__m256i)a, (__m256i)b);
}
static inline quads halves_products(halves a, halves b) {
    return (quads)_mm256_madd_epi16((__m256i)a, (__m256i)b);
}
#else
static inline halves halves_size(halves x) {
    const halves sign = (halves)(x > INT16_MAX);
    return (x ^ sign) - sign;
}
static inline halves halves_larger(halves a, halves b) {
    const halves mask = (halves)(a > b);
    return (a & mask) | (b & ~mask);
}
static inline halves halves_smaller(halves a, halves b) {
    const halves mask = (halves)(a < b);
    return (a & mask) | (b & ~mask);
}
static inline quads halves_products(halves a, halves b) {
    quads sum;
    for (int i = 0; i < QUADS; i++)
        sum[i] = (uint32_t)((int16_t)a[2 * i] * (int16_t)b[2 * i] + (int16_t)a[2 * i + 1] * (int16_t)b[2 * i + 1]);
    return sum;
}
#endif

/* What fills no group, and pieces with a mantissa of -2^15, which no operation writes. */
static void row_sum_mantissas(const int16_t *m, int64_t n, struct fl_described_mantissas *d) {
    for (int64_t i = 0; i < n; i++) {
        const uint32_t size = (uint32_t)(m[i] < 0 ? -m[i] : m[i]);
        d->sum += m[i];
        d->sizes += size;
        d->squares += (uint64_t)size * size;
    }
}

static void row_level_mantissas(const int16_t *m, int64_t n, struct fl_described_mantissas *d) {
    for (int64_t i = 0; i < n; i++) {
        const uint32_t size = (uint32_t)(m[i] < 0 ? -m[i] : m[i]);
        const uint16_t less = (uint16_t)(size - 1);
        d->level[size ? 32 - __builtin_clz(size) : 0]++;
        d->most = size > d->most ? (uint16_t)size : d->most;
        d->least = less < d->least ? less : d->least;
    }
}

struct row_mantissas {
    halves most, least;
    quads sum, sizes;
    words squares;
};

/* One vector: its bits from the leading one down, its sums but for the squares. */
static inline words row_see_mantissas(struct row_mantissas *r, halves m) {
    const halves one = (halves){0} + 1, size = halves_size(m);
    r->most = halves_larger(r->most, size);
    r->least = halves_smaller(r->least, size - 1);
    r->sum += halves_products(m, one);
    r->sizes += halves_products(size, one);
    halves bits = size | size >> 1;
    bits |= bits >> 2;
    bits |= bits >> 4;
    bits |= bits >> 8;
    return (words)bits;
}

/* Two vectors: four squares of factors above -2^15 are below 2^32. */
static inline void row_add_squares(struct row_mantissas *r, halves a, halves b) {
    const quads squares = halves_products(a, a) + halves_products(b, b);
    r->squares += (words)squares & 0xffffffff;
    r->squares += (words)squares >> 32 & 0xffffffff;
}

static void row_describe_mantissas(const int16_t *m, int64_t n, struct fl_described_mantissas *d) {
    struct row_mantissas r = {.least = (halves){0} - 1};
    words carry[FL_DESCRIBED_CARRIES];
    halves bit[16];
    int64_t i = 0;
    for (int k = 0; k < FL_DESCRIBED_CARRIES; k++)
        memcpy(&carry[k], d->carry[k], sizeof carry[k]);
    for (int b = 0; b < 16; b++)
        memcpy(&bit[b], d->bit[b], sizeof bit[b]);
    while (i + 16 * HALVES <= n) {
        words sixteen[4] = {{0}};
        for (int k = 0; k < 4 && i + 16 * HALVES <= n; k++, i += 16 * HALVES) {
            words v[16];
            for (int j = 0; j < 16; j += 2) {
                const halves a = halves_at(m + i + j * HALVES), b = halves_at(m + i + (j + 1) * HALVES);
                v[j] = row_see_mantissas(&r, a);
                v[j + 1] = row_see_mantissas(&r, b);
                row_add_squares(&r, a, b);
            }
            sixteen[k] = row_add_sixteen(carry, v);
        }
        const halves group = (halves)row_add_group(carry, sixteen);
        for (int b = 0; b < 16; b++)
            bit[b] += (group >> b) & 1;
    }
    for (int k = 0; k < FL_DESCRIBED_CARRIES; k++)
        memcpy(d->carry[k], &carry[k], sizeof carry[k]);
    for (int b = 0; b < 16; b++)
        memcpy(d->bit[b], &bit[b], sizeof bit[b]);
    uint16_t most = 0, least = UINT16_MAX;
    for (int l = 0; l < HALVES; l++) {
        most = r.most[l] > most ? r.most[l] : most;
        least = r.least[l] < least ? r.least[l] : least;
    }
    d->most = most > d->most ? most : d->most;
    d->least = least < d->least ? least : d->least;
    row_level_mantissas(m + i, n - i, d);
    if (most > INT16_MAX) {
        row_sum_mantissas(m, n, d);
        return;
    }
    for (int l = 0; l < QUADS; l++) {
        d->sum += (int32_t)r.sum[l];
        d->sizes += r.sizes[l];
    }
    for (int l = 0; l < LANES; l++)
        d->squares += (uint64_t)r.squares[l];
    row_sum_mantissas(m + i, n - i, d);
}

/* Squares of y - x and of x, where both are finite. */
static void row_add_errors(const float *x, const float *y, int64_t n, double sum[2][8]) {
    lanes of[2][DESCRIBED_GROUPS];
    memcpy(of, sum, sizeof of);
    int64_t i = 0;
    for (; i + FL_DESCRIBED_LANES <= n; i += FL_DESCRIBED_LANES)
        for (int g = 0; g < DESCRIBED_GROUPS; g++) {
            const lanes a = lanes_floats(x + i + g * LANES), b = lanes_floats(y + i + g * LANES);
            const words mask = row_finite(a) & row_finite(b);
            const lanes v = (lanes)((words)a & mask), error = (lanes)((words)(b - a) & mask);
            of[0][g] += error * error;
            of[1][g] += v * v;
        }
    memcpy(sum, of, sizeof of);
    for (; i < n; i++) {
        const double a = x[i], b = y[i];
        const int l = (int)(i & (FL_DESCRIBED_LANES - 1));
        if (a - a != 0 || b - b != 0)
            continue;
        sum[0][l] += (b - a) * (b - a);
        sum[1][l] += a * a;
    }
}

#endif
