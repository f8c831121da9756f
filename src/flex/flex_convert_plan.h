/* flex_convert_plan.h - the powers of two by which binary32 numbers become mantissas and mantissas binary32 numbers. C
 * and CUDA, no libm. */
#ifndef FL_FLEX_CONVERT_PLAN_H
#define FL_FLEX_CONVERT_PLAN_H

#include "core/arithmetic/exact.h"
#include <stdbool.h>

FL_BOTH float flex_float_power(int n) { /* 2^n, -126 ... 127 */
    const uint32_t bits = (uint32_t)(n + 127) << 23;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Numbers times *unit = 2^e are mantissas, exactly unless they are subnormal; false if binary32 cannot represent the
 * unit. */
FL_BOTH bool flex_load_unit(int e, float *unit) {
    const bool holds = e >= -126 && e <= 127;
    *unit = holds ? flex_float_power(e) : 1;
    return holds;
}

/* Mantissas times both units are exact binary32 numbers, for -112 <= e <= 127. */
FL_BOTH void flex_store_units(int e, float units[2]) {
    units[0] = flex_float_power(-e / 2);
    units[1] = flex_float_power(-e - -e / 2);
}

#endif
