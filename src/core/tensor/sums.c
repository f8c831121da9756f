/* sums.c - sums of tensors element by element, and exact sums of doubles. */
#include "core/tensor/sums.h"
#include "core/arithmetic/exact_rules.h"
#include <string.h>

/* --- exact sums of doubles ---------------------------------------------------------------------------------------- */

/* A fixed-point number in two's complement that holds any sum of 2^20 doubles exactly (Kulisch 1971), in units of
 * 2^-1138: 64 bits below the smallest double, which a division fills. */
enum { LIMBS = 36, BELOW = 1138 };
struct fixed {
    uint64_t limb[LIMBS]; /* the lowest first */
};

static void add(struct fixed *a, double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    const int exponent = (int)(bits >> 52 & 0x7ff);
    const uint64_t significand = (bits & (((uint64_t)1 << 52) - 1)) | (exponent ? (uint64_t)1 << 52 : 0);
    const int shift = (exponent ? exponent : 1) - 1075 + BELOW; /* x is significand * 2^(exponent - 1075) */
    const bool negative = bits >> 63;
    fl_uint128 part = (fl_uint128)significand << shift % 64;
    for (int i = shift / 64; i < LIMBS; i++) { /* part holds what is still to be added, and the carry or borrow */
        const uint64_t now = a->limb[i], word = (uint64_t)part;
        part >>= 64;
        a->limb[i] = negative ? now - word : now + word;
        part += negative ? now < word : a->limb[i] < now;
        if (!part)
            return;
    }
}

/* Makes the number its magnitude; returns whether it was negative. */
static bool take_sign(struct fixed *a) {
    if (!(a->limb[LIMBS - 1] >> 63))
        return false;
    uint64_t carry = 1;
    for (int i = 0; i < LIMBS; i++) {
        a->limb[i] = ~a->limb[i] + carry;
        carry = carry && !a->limb[i];
    }
    return true;
}

/* a / divisor, the remainder collected in the last bit. */
static void divide(struct fixed *a, uint32_t divisor) {
    fl_uint128 rest = 0;
    for (int i = LIMBS - 1; i >= 0; i--) {
        const fl_uint128 part = rest << 64 | a->limb[i];
        a->limb[i] = (uint64_t)(part / divisor);
        rest = part % divisor;
    }
    a->limb[0] |= rest != 0;
}

/* The leading 64 bits of a magnitude, what follows collected in the last of them; *scale: their unit is 2^*scale. */
static uint64_t leading(const struct fixed *a, int *scale) {
    int top = LIMBS - 1;
    while (top > 0 && !a->limb[top])
        top--;
    const int spare = a->limb[top] ? __builtin_clzll(a->limb[top]) : 0;
    uint64_t bits = a->limb[top] << spare, rest = 0;
    if (top > 0 && spare) {
        bits |= a->limb[top - 1] >> (64 - spare);
        rest = a->limb[top - 1] << spare;
    } else if (top > 0) {
        rest = a->limb[top - 1];
    }
    for (int i = top - 2; i >= 0 && !rest; i--)
        rest = a->limb[i];
    *scale = 64 * top - spare - BELOW;
    return bits | (rest != 0);
}

/* The magnitude as a double: to odd, or to nearest. Where doubles have fewer bits, below 2^-1022, the bits that are too
 * fine are collected in the last one first. */
static double as_double(uint64_t bits, int scale, bool odd) {
    int shift = 11; /* leaves 53 bits */
    if (scale + shift < -1074)
        shift = -1074 - scale;
    if (shift > 63) /* at most half of the smallest double, or just above */
        return odd || (shift == 64 && bits > (uint64_t)1 << 63) ? 0x1p-1074 : 0;
    const uint64_t low = bits & (((uint64_t)1 << shift) - 1), half = (uint64_t)1 << (shift - 1);
    uint64_t kept = bits >> shift;
    if (odd)
        kept |= low != 0;
    else
        kept += low > half || (low == half && (kept & 1));
    return fl_scale2((double)kept, scale + shift);
}

static bool sum(struct fixed *a, const double *x, int count) {
    memset(a, 0, sizeof *a);
    for (int i = 0; i < count; i++) {
        if (!fl_is_finite(x[i]))
            return false;
        add(a, x[i]);
    }
    return true;
}

static double plain_sum(const double *x, int count) {
    double total = 0;
    for (int i = 0; i < count; i++)
        total += x[i];
    return total;
}

static double signed_double(struct fixed *a, uint32_t divisor, bool odd) {
    const bool negative = take_sign(a);
    int scale;
    if (divisor > 1)
        divide(a, divisor);
    const uint64_t bits = leading(a, &scale);
    const double size = bits ? as_double(bits, scale, odd) : 0;
    return negative ? -size : size;
}

double fl_exact_sum_odd(const double *x, int count) {
    struct fixed a;
    return sum(&a, x, count) ? signed_double(&a, 1, true) : plain_sum(x, count);
}

double fl_exact_mean(const double *x, int count, uint32_t divisor) {
    struct fixed a;
    return sum(&a, x, count) ? signed_double(&a, divisor, false) : plain_sum(x, count);
}

/* --- the tree ----------------------------------------------------------------------------------------------------- */

/* Trees are summed as a binary counter counts: after leaf i, as many nodes are complete as i + 1 ends in zeros. What
 * remains in the end, the largest node first, is added from the right. */
enum { TREE = 11 /* nodes that wait, at most, for FL_MOST_TERMS leaves */, RUN = 256 };

double fl_tree_sum(const double *x, int count) {
    double node[TREE];
    int depth = 0;
    for (int i = 0; i < count; i++) {
        node[depth++] = x[i];
        for (int k = i + 1; k % 2 == 0; k /= 2, depth--)
            node[depth - 2] += node[depth - 1];
    }
    for (; depth > 1; depth--)
        node[depth - 2] += node[depth - 1];
    return depth ? node[0] : 0;
}

static void add_nodes(float *left, const float *right, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        left[i] += right[i];
}

static void fetch_term(const struct fl_sum *s, int t, int64_t first, int64_t n, double *values) {
    if (s->fetch)
        s->fetch(s, t, first, n, values);
    else
        s->format->decode(s->format, &s->terms[t], first, n, values);
}

static void fetch_tree(const struct fl_sum *s, int64_t first, int64_t n, double *values) {
    float node[TREE][RUN];
    int depth = 0;
    for (int t = 0; t < s->count; t++) {
        fetch_term(s, t, first, n, values);
        for (int64_t i = 0; i < n; i++)
            node[depth][i] = (float)values[i];
        depth++;
        for (int k = t + 1; k % 2 == 0; k /= 2, depth--)
            add_nodes(node[depth - 2], node[depth - 1], n);
    }
    for (; depth > 1; depth--)
        add_nodes(node[depth - 2], node[depth - 1], n);
    for (int64_t i = 0; i < n; i++)
        values[i] = (double)node[0][i];
}

/* --- under a shared exponent -------------------------------------------------------------------------------------- */

/* Bits of the magnitude of a sum in units of the finest exponent, *finest. */
static int bits_of(const struct fl_sum *s, int *finest) {
    int least = fl_exponent(&s->terms[0]), bits = s->fetch ? s->bits : s->format->bits - 1;
    *finest = least;
    for (int t = 1; t < s->count; t++) {
        const int e = fl_exponent(&s->terms[t]);
        least = e < least ? e : least;
        *finest = e > *finest ? e : *finest;
    }
    for (int terms = s->count - 1; terms; terms /= 2)
        bits++;
    return bits + *finest - least;
}

bool fl_sum_is_narrow(const struct fl_sum *s) {
    int finest;
    return s->format->arithmetic == FL_ARITHMETIC_SHARED && s->format->bytes == 2 && !s->fetch &&
           bits_of(s, &finest) <= 30;
}

void fl_sum_whole(const struct fl_sum *s, int e, int64_t first, int64_t n, int32_t *sums) {
    memset(sums, 0, (size_t)n * sizeof *sums);
    for (int t = 0; t < s->count; t++) {
        const int16_t *m = (const int16_t *)s->terms[t].data + first;
        const int32_t unit = 1 << (e - fl_exponent(&s->terms[t]));
        for (int64_t i = 0; i < n; i++)
            sums[i] += m[i] * unit;
    }
}

static void fetch_narrow(const struct fl_sum *s, int finest, int64_t first, int64_t n, double *values) {
    int32_t sums[RUN];
    const double unit = fl_power_of_two(-finest);
    fl_sum_whole(s, finest, first, n, sums);
    for (int64_t i = 0; i < n; i++)
        values[i] = sums[i] * unit;
}

static void fetch_exact(const struct fl_sum *s, int64_t first, int64_t n, double *values) {
    double term[RUN];
    fetch_term(s, 0, first, n, values);
    for (int t = 1; t < s->count; t++) {
        fetch_term(s, t, first, n, term);
        for (int64_t i = 0; i < n; i++)
            values[i] += term[i];
    }
}

/* For exponents that lie far apart. */
static void fetch_fixed(const struct fl_sum *s, int64_t first, double *value) {
    double terms[FL_MOST_TERMS] = {0};
    for (int t = 0; t < s->count; t++)
        fetch_term(s, t, first, 1, &terms[t]);
    *value = fl_exact_sum_odd(terms, s->count);
}

void fl_sum_fetch(const struct fl_sum *s, int64_t first, int64_t n, double *values) {
    int finest = 0;
    const bool exact = s->format->arithmetic == FL_ARITHMETIC_SHARED, narrow = fl_sum_is_narrow(s);
    const bool fits = exact && bits_of(s, &finest) <= 53; /* all are multiples of one unit, and their sum of 53 bits */
    for (int64_t done = 0, run; done < n; done += run) {
        run = n - done < RUN ? n - done : RUN;
        if (!exact)
            fetch_tree(s, first + done, run, values + done);
        else if (narrow)
            fetch_narrow(s, finest, first + done, run, values + done);
        else if (fits)
            fetch_exact(s, first + done, run, values + done);
        else
            for (int64_t i = 0; i < run; i++)
                fetch_fixed(s, first + done + i, &values[done + i]);
    }
}
