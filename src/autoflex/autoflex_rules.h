/* autoflex_rules.h - how a shared exponent is chosen and maintained, on one struct autoflex: the same source for a
 * processor and a device. C and CUDA; no libm, no tables of functions, no globals: double with + - * /, one square root
 * and powers of two, so that every compiler gives the same bits (no contraction).
 *
 * Predictors by number:
 *   paper:  Koster et al. 2017, algorithm 2.
 *   ngraph: the behaviour of its authors' public graph compiler.
 * Both look at the last 16 maxima: mu and sigma are their mean and population standard deviation, 2^-e the old scale.
 *   current: the exact maximum of the very result.   fixed: never moves by itself.
 *   per-class: the maximum of the history times a factor of the tensor's role.
 *   amax, amax-recent: delayed scaling as it is practised with 8-bit floats: the largest of some 1,000 exact maxima, or
 *           the last one, in little memory: 16 entries hold the maxima of 16 blocks of 64 writes.
 *   delayed: the same with the parameters of NVIDIA's TransformerEngine, history, margin and algo.
 *   repeat: 1.125 times the second largest of the last 16 maxima, so that one outlier changes nothing; a result that
 *           does not fit is computed again at its exact maximum.
 * Predictors that a program adds (autoflex_add) are functions of the host: fl_autoflex_foreign finds them. */
#ifndef FL_AUTOFLEX_RULES_H
#define FL_AUTOFLEX_RULES_H

#include "autoflex/both.h"
#include "flexlab/autoflex.h"
#include <math.h>
#include <string.h>

/* The maximum to prepare for by a predictor that the program added; 0: the exponent remains. */
FL_EITHER double fl_autoflex_foreign(const struct autoflex *a);
/* autoflex_add; *why: the reason if it returns AUTOFLEX_NONE (predictors.c). */
autoflex_predictor fl_autoflex_add(const char *name, autoflex_predict_fn predict, void *context, const char **why);

/* --- numbers ------------------------------------------------------------------------------------------------------ */

FL_BOTH double fl_power_of_two(int n) { /* -1022 ... 1023 */
    const uint64_t bits = (uint64_t)(n + 1023) << 52;
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* x * 2^n for any n; rounded once, as by ldexp, unless the result is subnormal. */
FL_BOTH double fl_scale2(double x, int n) {
    for (; n > 1000; n -= 1000)
        x *= fl_power_of_two(1000);
    for (; n < -1000; n += 1000)
        x *= fl_power_of_two(-1000);
    return x * fl_power_of_two(n);
}

FL_BOTH bool fl_is_finite(double x) {
    return x - x == 0;
}

/* Rounds to the nearest integer, ties to even, for |x| < 2^51. */
FL_BOTH double fl_nearest_integer(double x) {
    return (x + 0x1.8p52) - 0x1.8p52;
}

/* The bits of a positive number with a leading one: exponent and fraction. */
FL_BOTH int fl_split(double x, uint64_t *fraction) {
    uint64_t bits;
    int e = 0;
    if (x < 0x1p-1022) { /* subnormal */
        x *= 0x1p64;
        e = -64;
    }
    memcpy(&bits, &x, sizeof bits);
    *fraction = bits & (((uint64_t)1 << 52) - 1);
    return e + (int)(bits >> 52 & 0x7ff) - 1023;
}

FL_BOTH int fl_floor_log2(double x) {
    uint64_t fraction;
    return fl_split(x, &fraction);
}

FL_BOTH int fl_ceil_log2(double x) {
    uint64_t fraction;
    const int e = fl_split(x, &fraction);
    return e + (fraction != 0);
}

/* --- predictors --------------------------------------------------------------------------------------------------- */

FL_BOTH bool fl_predicts(int predictor) { /* from the history */
    return predictor != AUTOFLEX_CURRENT && predictor != AUTOFLEX_FIXED;
}

FL_BOTH bool fl_needs_maximum(int predictor) { /* of the very result */
    return predictor == AUTOFLEX_CURRENT;
}

FL_BOTH bool fl_is_added(int predictor) { /* by the program: a function that devices do not have */
    return predictor >= AUTOFLEX_ADDED && predictor < AUTOFLEX_DELAYED_WITH;
}

FL_BOTH bool fl_repeats(int predictor) { /* writes whose results do not fit */
    return predictor == AUTOFLEX_REPEAT;
}

FL_BOTH bool fl_is_amax(int predictor) { /* stores exact maxima, also of writes that saturated */
    return predictor == AUTOFLEX_AMAX || predictor == AUTOFLEX_AMAX_RECENT || predictor == AUTOFLEX_DELAYED;
}

/* The writes whose maximum is one entry of its history. */
FL_BOTH int fl_block_writes(const struct autoflex *a) {
    if (a->predictor == AUTOFLEX_AMAX)
        return AUTOFLEX_BLOCK;
    return a->predictor == AUTOFLEX_DELAYED && !a->most_recent && a->length > AUTOFLEX_WINDOW
               ? a->length / AUTOFLEX_WINDOW
               : 1;
}

FL_BOTH double fl_history_maximum(const struct autoflex *a) {
    double largest = 0;
    for (int i = 0; i < a->count; i++)
        if (a->history[i] > largest)
            largest = a->history[i];
    return largest;
}

/* Sums run from the oldest entry to the newest, so that a restored state continues with the same bits. */
FL_BOTH double fl_history_deviation(const struct autoflex *a) {
    const int first = (a->next - a->count + AUTOFLEX_WINDOW) % AUTOFLEX_WINDOW;
    double sum = 0, squares = 0;
    for (int i = 0; i < a->count; i++)
        sum += a->history[(first + i) % AUTOFLEX_WINDOW];
    const double mean = sum / a->count;
    for (int i = 0; i < a->count; i++) {
        const double d = a->history[(first + i) % AUTOFLEX_WINDOW] - mean;
        squares += d * d;
    }
    return sqrt(squares / a->count);
}

/* The second largest entry; a single entry if there is only one. */
FL_BOTH double fl_history_second(const struct autoflex *a) {
    double largest = 0, second = 0;
    for (int i = 0; i < a->count; i++) {
        const double phi = a->history[i];
        if (phi > largest) {
            second = largest;
            largest = phi;
        } else if (phi > second) {
            second = phi;
        }
    }
    return a->count > 1 ? second : largest;
}

/* The largest of the newest entries that "delayed" looks at, with its margin. */
FL_BOTH double fl_delayed_maximum(const struct autoflex *a) {
    const int entries = a->most_recent ? 1 : a->length < AUTOFLEX_WINDOW ? a->length : (int)AUTOFLEX_WINDOW;
    double largest = 0;
    for (int i = 0; i < entries && i < a->count; i++) {
        const double phi = a->history[(a->next + AUTOFLEX_WINDOW - 1 - i) % AUTOFLEX_WINDOW];
        largest = phi > largest ? phi : largest;
    }
    return fl_scale2(largest, a->margin);
}

/* Gradients of weights change most suddenly, weights hardly. */
FL_BOTH double fl_role_factor(int role) {
    switch (role) {
    case AUTOFLEX_ROLE_WEIGHT:
        return 1.0625;
    case AUTOFLEX_ROLE_ACTIVATION:
        return 1.25;
    case AUTOFLEX_ROLE_GRADIENT:
    case AUTOFLEX_ROLE_MOMENTUM:
        return 1.5;
    default:
        return 2.0;
    }
}

/* Mantissa bits, and the largest mantissa. */
FL_BOTH int fl_mantissa_bits(const struct autoflex *a) {
    return a->bits ? a->bits : (int)AUTOFLEX_BITS;
}
FL_BOTH int fl_largest_mantissa(const struct autoflex *a) {
    return (1 << (fl_mantissa_bits(a) - 1)) - 1;
}

/* Whether the elements are floats: none of the mantissas below is theirs. */
FL_BOTH bool fl_scales_floats(const struct autoflex *a) {
    return a->largest > 0;
}

/* The largest e at which maximum * 2^e is at most the largest element, whatever the bits of either are. */
FL_BOTH int fl_exponent_within(const struct autoflex *a, double maximum) {
    uint64_t largest, fraction;
    const int e = fl_split(fl_scales_floats(a) ? a->largest : fl_largest_mantissa(a), &largest);
    return e - fl_split(maximum, &fraction) - (fraction > largest);
}

/* The maximum to prepare for, given a history that is not empty; 0: e remains. */
FL_BOTH double fl_predict(const struct autoflex *a) {
    switch (a->predictor) {
    case AUTOFLEX_PAPER:
    case AUTOFLEX_NGRAPH:
        break;
    case AUTOFLEX_PER_CLASS:
        return fl_role_factor(a->role) * fl_history_maximum(a);
    case AUTOFLEX_AMAX:
        return fl_history_maximum(a);
    case AUTOFLEX_AMAX_RECENT:
        return a->history[(a->next + AUTOFLEX_WINDOW - 1) % AUTOFLEX_WINDOW];
    case AUTOFLEX_DELAYED:
        return fl_delayed_maximum(a);
    case AUTOFLEX_REPEAT:
        return 1.125 * fl_history_second(a);
    default:
#ifdef __CUDA_ARCH__
        return 0; /* tensor_set_predictor and tensor_copy refuse such a tensor on a device, and telemetry keeps such a
                     shadow on the host */
#else
        return fl_autoflex_foreign(a);
#endif
    }
    /* 100 units of 16 bits; in fewer bits, and of floats, the same part of the range, of which 100 units would be more
     * than all */
    const double margin = fl_scales_floats(a) ? fl_scale2(100.0 * a->largest, 1 - AUTOFLEX_BITS - a->e)
                                              : fl_scale2(100.0, fl_mantissa_bits(a) - AUTOFLEX_BITS - a->e);
    const double room = fl_history_maximum(a) + 3.0 * fl_history_deviation(a) + margin;
    return a->predictor == AUTOFLEX_PAPER ? 2.0 * room : room;
}

/* The exponent for that maximum (above zero). */
FL_BOTH int fl_exponent_for(const struct autoflex *a, double maximum) {
    if (fl_scales_floats(a) || a->predictor == AUTOFLEX_DELAYED)
        return fl_exponent_within(a, maximum);
    return a->predictor == AUTOFLEX_PAPER ? fl_mantissa_bits(a) - 1 - fl_ceil_log2(maximum)
                                          : fl_mantissa_bits(a) - 2 - fl_floor_log2(maximum);
}

/* --- the life of an exponent: autoflex.h explains each function ------------------------------------------- */

/* Whether a maximum is useful: not that of zeros, and finite, since no exponent fits other numbers. */
FL_BOTH bool fl_says_something(double maximum) {
    return maximum > 0 && fl_is_finite(maximum);
}

FL_BOTH int fl_autoflex_clamp(struct autoflex *a, int e) {
    if (e < a->e_min) {
        a->clamped_low++;
        return a->e_min;
    }
    if (e > a->e_max) {
        a->clamped_high++;
        return a->e_max;
    }
    return e;
}

FL_BOTH void fl_autoflex_push(struct autoflex *a, double phi) {
    a->history[a->next] = phi;
    a->next = (int16_t)((a->next + 1) % AUTOFLEX_WINDOW);
    if (a->count < AUTOFLEX_WINDOW)
        a->count++;
    a->initialised = true;
    a->written = true;
}

FL_BOTH int fl_autoflex_start(const struct autoflex *a) {
    return AUTOFLEX_START < a->e_min ? a->e_min : AUTOFLEX_START > a->e_max ? a->e_max : AUTOFLEX_START;
}

FL_BOTH int fl_gamma_at(const struct autoflex *a, double maximum, int e) {
    const double g = fl_scale2(maximum, e);
    return g < fl_largest_mantissa(a) ? (int)fl_nearest_integer(g) : fl_largest_mantissa(a);
}

FL_BOTH int fl_autoflex_load_exponent(struct autoflex *a, double maximum) {
    if (maximum > 0)
        return fl_autoflex_clamp(a, fl_scales_floats(a) ? fl_exponent_within(a, maximum)
                                                        : fl_mantissa_bits(a) - 2 - fl_floor_log2(maximum));
    return fl_predicts(a->predictor) ? fl_autoflex_start(a) : a->e; /* the start of the initialisation loop */
}

FL_BOTH int fl_autoflex_adjust(struct autoflex *a) {
    if (!a->written || !a->count || !fl_predicts(a->predictor))
        return a->e;
    a->written = false;
    const double room = fl_predict(a);
    if (room > 0) {
        a->predicted = room;
        a->e = fl_autoflex_clamp(a, fl_is_finite(room) ? fl_exponent_for(a, room) : a->e_min - 1);
    }
    return a->e;
}

FL_BOTH int fl_autoflex_initialise(struct autoflex *a, double maximum) {
    if (!fl_says_something(maximum) || a->predictor == AUTOFLEX_FIXED)
        return a->e;
    if (fl_scales_floats(a)) {
        a->e = fl_autoflex_clamp(a, fl_exponent_within(a, maximum));
        a->initialised = true;
        return a->e;
    }
    for (;;) {
        const int gamma = fl_gamma_at(a, maximum, a->e);
        if (gamma >= fl_largest_mantissa(a)) {
            if (a->e == a->e_min) {
                a->clamped_low++;
                break;
            }
            const int e = a->e - (fl_mantissa_bits(a) - 1) / 2;
            a->e = e < a->e_min ? a->e_min : e;
        } else if (gamma < 1 << (fl_mantissa_bits(a) - 2)) {
            const int e = a->e + (fl_mantissa_bits(a) - 2) - fl_ceil_log2(gamma > 1 ? gamma : 1);
            if (e == a->e)
                break; /* gamma just below 2^(bits - 2): e is already the target */
            if (e > a->e_max && a->e == a->e_max) {
                a->clamped_high++;
                break;
            }
            a->e = e > a->e_max ? a->e_max : e; /* at the end of the range gamma shows whether e should leave it */
            if (e <= a->e_max && gamma > 1 << (fl_mantissa_bits(a) > 6 ? (fl_mantissa_bits(a) - 1) / 2 - 2 : 0))
                break;
        } else {
            break;
        }
    }
    a->initialised = true;
    return a->e;
}

FL_BOTH int fl_autoflex_fit(struct autoflex *a, double maximum) {
    if (!fl_says_something(maximum))
        return a->e;
    a->predicted = maximum;
    int e = fl_scales_floats(a) ? fl_exponent_within(a, maximum) : fl_mantissa_bits(a) - 2 - fl_floor_log2(maximum);
    if (!fl_scales_floats(a) && fl_nearest_integer(fl_scale2(maximum, e)) > fl_largest_mantissa(a))
        e--; /* just below a power of two: rounds up to top + 1 */
    a->e = fl_autoflex_clamp(a, e);
    a->initialised = true;
    return a->e;
}

FL_BOTH bool fl_autoflex_fits(const struct autoflex *a, double maximum) {
    const double m = fl_scale2(maximum, a->e);
    if (fl_scales_floats(a))
        return m <= a->largest;
    return m < fl_largest_mantissa(a) + 0.5; /* top is odd: the tie goes to top + 1 */
}

FL_BOTH bool fl_autoflex_repeat(struct autoflex *a, double maximum) {
    if (!fl_repeats(a->predictor) || !fl_says_something(maximum) || fl_autoflex_fits(a, maximum))
        return false;
    const int tried = a->e;
    return fl_autoflex_fit(a, maximum) != tried;
}

/* Adds to the newest block, until it has its number of writes. */
FL_BOTH void fl_autoflex_push_block(struct autoflex *a, double maximum) {
    const int newest = (a->next + AUTOFLEX_WINDOW - 1) % AUTOFLEX_WINDOW;
    if (a->count == 0 || a->block >= fl_block_writes(a)) {
        a->block = 0;
        fl_autoflex_push(a, maximum);
    } else if (maximum > a->history[newest]) {
        a->history[newest] = maximum;
    }
    a->block++;
    a->written = true;
}

FL_BOTH void fl_autoflex_record(struct autoflex *a, int gamma, double maximum) {
    if (!(maximum > 0)) {
        a->zero_writes++;
        return;
    }
    if (!fl_says_something(maximum))
        return;
    const bool full = fl_scales_floats(a) ? !fl_autoflex_fits(a, maximum) : gamma >= fl_largest_mantissa(a);
    a->overflows += full;
    if (fl_is_amax(a->predictor)) {
        if (fl_block_writes(a) > 1)
            fl_autoflex_push_block(a, maximum);
        else
            fl_autoflex_push(a, maximum);
    } else if (fl_scales_floats(a)) {
        a->count = full ? 0 : a->count;
        a->next = full ? 0 : a->next;
        fl_autoflex_push(a, full ? fl_scale2(2.0 * a->largest, -a->e) : maximum);
    } else if (full && !(fl_repeats(a->predictor) && fl_autoflex_fits(a, maximum))) {
        a->count = a->next = 0;
        fl_autoflex_push(a, fl_scale2(2.0 * gamma, -a->e));
    } else if (gamma > 0) {
        fl_autoflex_push(a, fl_scale2(gamma, -a->e));
    } else {
        fl_autoflex_push(a, maximum);
    }
}

FL_BOTH void fl_autoflex_load(struct autoflex *a, double maximum) {
    a->count = a->next = 0;
    a->block = 0;
    a->written = false;
    a->e = fl_autoflex_load_exponent(a, maximum);
    if (!(maximum > 0)) {
        a->initialised = false;
        return;
    }
    fl_autoflex_record(a, fl_scales_floats(a) ? 0 : fl_gamma_at(a, maximum, a->e), maximum);
}

#endif
