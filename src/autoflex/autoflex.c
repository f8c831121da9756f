/* autoflex.c - the life of one tensor's shared exponent: load, adjust, initialise, fit, record. */
#include "autoflex/predictors.h"
#include <math.h>
#include <string.h>

int autoflex_floor_log2(double x) {
    int e;
    frexp(x, &e);
    return e - 1;
}

int autoflex_ceil_log2(double x) {
    int e;
    return frexp(x, &e) == 0.5 ? e - 1 : e;
}

static int clamp(struct autoflex *a, long e) {
    if (e < a->e_min) {
        a->clamped_low++;
        return a->e_min;
    }
    if (e > a->e_max) {
        a->clamped_high++;
        return a->e_max;
    }
    return (int)e;
}

static void push(struct autoflex *a, double phi) {
    a->history[a->next] = phi;
    a->next = (a->next + 1) % AUTOFLEX_WINDOW;
    if (a->count < AUTOFLEX_WINDOW)
        a->count++;
    a->initialised = true;
    a->written = true;
}

static void clear(struct autoflex *a) {
    a->count = a->next = 0;
}

static int start_exponent(const struct autoflex *a) {
    return AUTOFLEX_START < a->e_min ? a->e_min : AUTOFLEX_START > a->e_max ? a->e_max : AUTOFLEX_START;
}

void autoflex_reset(struct autoflex *a, const struct autoflex_predictor *predictor, int e_min, int e_max) {
    memset(a, 0, sizeof *a);
    a->predictor = predictor;
    a->e_min = e_min;
    a->e_max = e_max;
    a->e = start_exponent(a);
}

int autoflex_load_exponent(struct autoflex *a, double maximum) {
    if (maximum > 0)
        return clamp(a, (long)AUTOFLEX_BITS - 2 - autoflex_floor_log2(maximum));
    return a->predictor->predict ? start_exponent(a) : a->e; /* where the initialisation loop begins, if there is one */
}

static int gamma_at(double maximum, int e) {
    double g = nearbyint(ldexp(maximum, e));
    return g < AUTOFLEX_TOP ? (int)g : AUTOFLEX_TOP;
}

void autoflex_load(struct autoflex *a, double maximum) {
    clear(a);
    a->written = false;
    a->e = autoflex_load_exponent(a, maximum);
    if (!(maximum > 0)) {
        a->initialised = false;
        return;
    }
    autoflex_record(a, gamma_at(maximum, a->e), maximum);
}

int autoflex_adjust(struct autoflex *a) {
    if (!a->written || !a->count || !a->predictor->predict)
        return a->e;
    a->written = false;
    a->predicted = a->predictor->predict(a);
    if (a->predicted > 0)
        a->e = isfinite(a->predicted) ? clamp(a, a->predictor->exponent(a->predicted)) : clamp(a, (long)a->e_min - 1);
    return a->e;
}

int autoflex_initialise(struct autoflex *a, double maximum) {
    if (!(maximum > 0) || (!a->predictor->predict && !a->predictor->needs_maximum))
        return a->e;
    for (;;) {
        int gamma = gamma_at(maximum, a->e);
        if (gamma >= AUTOFLEX_TOP) {
            if (a->e == a->e_min) {
                a->clamped_low++;
                break;
            }
            int e = a->e - (AUTOFLEX_BITS - 1) / 2;
            a->e = e < a->e_min ? a->e_min : e;
        } else if (gamma < 1 << (AUTOFLEX_BITS - 2)) {
            const int e = a->e + (AUTOFLEX_BITS - 2) - autoflex_ceil_log2(gamma > 1 ? gamma : 1);
            if (e == a->e)
                break; /* gamma just below 2^14: already where the jump leads */
            if (e > a->e_max && a->e == a->e_max) {
                a->clamped_high++;
                break;
            }
            a->e = e > a->e_max ? a->e_max : e; /* at the end of the range gamma tells whether e is to leave it */
            if (e <= a->e_max && gamma > 1 << ((AUTOFLEX_BITS - 1) / 2 - 2))
                break;
        } else {
            break;
        }
    }
    a->initialised = true;
    return a->e;
}

int autoflex_fit(struct autoflex *a, double maximum) {
    if (!(maximum > 0))
        return a->e;
    a->predicted = maximum;
    if (!isfinite(maximum)) {
        a->e = clamp(a, (long)a->e_min - 1);
        return a->e;
    }
    long e = (long)AUTOFLEX_BITS - 2 - autoflex_floor_log2(maximum);
    if (nearbyint(ldexp(maximum, (int)e)) > AUTOFLEX_TOP)
        e--; /* just below a power of two: rounds up to 32768 */
    a->e = clamp(a, e);
    a->initialised = true;
    return a->e;
}

void autoflex_record(struct autoflex *a, int gamma, double maximum) {
    if (!(maximum > 0)) {
        a->zero_writes++;
        return;
    }
    if (gamma >= AUTOFLEX_TOP) {
        a->overflows++;
        clear(a);
        push(a, ldexp(2.0 * gamma, -a->e));
    } else if (gamma > 0) {
        push(a, ldexp(gamma, -a->e));
    } else {
        push(a, maximum);
    }
}
