/* stochastic.h - stochastic rounding to a float format of 16 bits: the same code for a processor and a device.
 *
 * For a result v between the numbers lo <= v < hi of the format, with f = (v - lo) / (hi - lo), the one that is floor(f
 * + draw / 2^32) steps above lo is stored (docs/semantics.md). */
#ifndef FL_STOCHASTIC_H
#define FL_STOCHASTIC_H

#include "autoflex/both.h"
#include <stdint.h>
#include <string.h>

/* The largest integer that is not above x, |x| < 2^51. */
FL_BOTH double fl_floor_below_2_51(double x) {
#if defined(__SSE4_1__)
    return __builtin_floor(x); /* one instruction */
#else
    const double nearest = (x + 0x1.8p52) - 0x1.8p52; /* no bits below one remain */
    return nearest - (nearest > x ? 1.0 : 0.0);
#endif
}

/* v rounded to `digits` significant binary digits (8 for bf16, 11 for fp16), or, below `least`, the smallest normal
 * number of the format, to as many places as that has; NaN and Inf unchanged. The range has no upper end: the caller
 * stores results beyond that of the format as infinite.
 *
 * v must be exact or rounded to odd: then no digit of f that is added to one of the draw differs from that of the exact
 * result. Every operation below is exact except the first floor, which truncates f to 32 places, as many as the draw
 * has. Without branches, so that a loop over it is vectorised. A result of zero has the sign of v. */
FL_BOTH double fl_round_by_draw(double v, uint32_t draw, int digits, double least) {
    const uint64_t sign = (uint64_t)1 << 63;
    uint64_t power_bits, scale_bits, size_bits, bits, v_bits;
    memcpy(&v_bits, &v, sizeof v_bits);
    size_bits = v_bits & ~sign;
    double size;
    memcpy(&size, &size_bits, sizeof size);
    const double at_least = size > least ? size : least;
    memcpy(&power_bits, &at_least, sizeof power_bits);
    power_bits &= (uint64_t)0x7ff << 52;
    scale_bits = ((uint64_t)(2 * 1023 + 31 + digits) << 52) - power_bits;
    double power, scale; /* 2^k <= |v| or least, and 2^32 by the step between neighbours, 2^(k + 1 - digits) */
    memcpy(&power, &power_bits, sizeof power);
    memcpy(&scale, &scale_bits, sizeof scale);
    /* a draw as a double, by a signed conversion, which every instruction set has */
    const double drawn = (double)(int32_t)(draw ^ 0x80000000u) + 0x1p31;
    const double steps = fl_floor_below_2_51((fl_floor_below_2_51(v * scale) + drawn) * 0x1p-32);
    const double result = steps * (power * (2.0 / (double)((uint32_t)1 << digits)));
    memcpy(&bits, &result, sizeof bits);
    bits = (bits & ~sign) | (v_bits & sign);
    double signed_result;
    memcpy(&signed_result, &bits, sizeof signed_result);
    return signed_result;
}

#endif
