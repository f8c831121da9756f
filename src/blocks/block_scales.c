/* block_scales.c - the scale of a block from its maximum, and the signs of the Hadamard transform. */
#include "blocks/block_kernels.h"
#include "core/arithmetic/philox.h"
#include <string.h>

int fl_block_exponent(const struct fl_block_format *f, uint32_t maximum) {
    enum { FRACTION = (1 << 23) - 1 };
    int exponent = (int)(maximum >> 23) - 127;
    uint32_t fraction = maximum & FRACTION;
    if (maximum <= FRACTION) { /* subnormal */
        const int zeros = __builtin_clz(maximum);
        exponent = 31 - zeros - 149;
        fraction = maximum << (zeros - 8) & FRACTION;
    }
    const float most = (float)f->element.largest; /* 1.fraction * 2^top_exponent, with few bits */
    uint32_t largest;
    memcpy(&largest, &most, sizeof largest);
    largest &= FRACTION;
    bool up = false;
    switch (f->rule) {
    case FL_SCALE_FLOOR:
        break;
    case FL_SCALE_CEIL:
        up = fraction != 0;
        break;
    case FL_SCALE_EVEN: /* amax is nearer to the next power of two than to the number below it; a tie is odd */
        up = fraction + (1u << (22 - f->fraction_bits)) > FRACTION;
        break;
    case FL_SCALE_RCEIL:
        up = fraction > largest;
    }
    exponent += (up ? 1 : 0) - f->top_exponent;
    return exponent < FL_SCALE_LEAST ? FL_SCALE_LEAST : exponent > FL_SCALE_MOST ? FL_SCALE_MOST : exponent;
}

/* Source: arXiv 2509.25149. The quotient in binary64 is nearest to a number of E4M3, or to a tie of two,
 * only where the exact one is: a tie times 6 tensor_scale has 31 bits. Adding 2^(unit + 52) rounds to multiples of
 * 2^unit. */
int fl_block_e4m3_scale(float maximum, float tensor_scale, int *exponent) {
    enum { LEAST = -9 };
    const double quotient = maximum / (6.0 * tensor_scale);
    uint64_t bits;
    memcpy(&bits, &quotient, sizeof bits);
    const int fine = (int)(bits >> 52) - 1023 - 3, unit = fine > LEAST ? fine : LEAST;
    bits = (uint64_t)(unit + 52 + 1023) << 52;
    double magic;
    memcpy(&magic, &bits, sizeof magic);
    const double sum = quotient + magic;
    memcpy(&bits, &sum, sizeof bits);
    const int significand = (int)(bits & 31); /* 16: the next power of two */
    *exponent = significand == 16 ? unit + 1 : unit;
    return significand == 16 ? 8 : significand;
}

uint32_t fl_block_signs(uint64_t key) {
    return fl_philox(key, UINT64_MAX, UINT64_MAX).word[0] & ((1u << FL_HADAMARD) - 1); /* no write has this number */
}
