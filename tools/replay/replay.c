/* replay.c - one tensor under one predictor, write by write, in the order of docs/semantics.md. */
#include "replay/replay.h"
#include <math.h>
#include <string.h>

/* From this mantissa of its largest element on, a write has as many bits as fp16. */
enum { KEEPS_11_BITS = 1 << 10 };

void replay_add(struct replay_counts *to, const struct replay_counts *counts) {
    to->writes += counts->writes;
    to->saturated += counts->saturated;
    to->late += counts->late;
    to->changes += counts->changes;
    to->repeated += counts->repeated;
    to->same += counts->same;
    to->kept += counts->kept;
    to->unused += counts->unused;
    to->outliers += counts->outliers;
    to->recovered += counts->recovered;
    to->recovery += counts->recovery;
    to->slowest = counts->slowest > to->slowest ? counts->slowest : to->slowest;
}

void replay_begin(struct replay_life *life, autoflex_predictor predictor, const char *role,
                  const struct replay_options *how) {
    memset(life, 0, sizeof *life);
    autoflex_reset(&life->a, predictor, how->e_min, how->e_max);
    if (how->largest > 0)
        autoflex_set_largest(&life->a, how->largest);
    else
        autoflex_set_bits(&life->a, how->bits);
    life->a.role = (int16_t)autoflex_find_role(role);
}

/* Chooses the exponent before the kernel, and counts a write that would have run twice. */
static void choose_exponent(struct replay_life *life, const struct trace_row *row, double maximum) {
    struct autoflex *a = &life->a;
    const int before = a->e;
    if (autoflex_needs_maximum(a->predictor)) {
        life->counts.repeated += autoflex_fit(a, maximum) != before && life->counts.writes;
    } else if (a->initialised) {
        autoflex_adjust(a);
        life->counts.repeated += autoflex_repeat(a, maximum);
    } else if (!strcmp(row->role, "weight")) {
        autoflex_fit(a, maximum); /* initial weights are loaded, which no row shows: e of the first that is known */
    } else {
        autoflex_initialise(a, maximum);
    }
}

static void note_outlier(struct replay_life *life, bool outlier, bool keeps) {
    struct replay_counts *c = &life->counts;
    if (life->waiting && keeps) {
        c->recovered++;
        c->recovery += life->waiting;
        c->slowest = life->waiting > c->slowest ? life->waiting : c->slowest;
        life->waiting = 0;
    } else if (life->waiting) {
        life->waiting++;
    }
    if (!outlier)
        return;
    c->outliers++;
    life->waiting = 1;
}

void replay_write(struct replay_life *life, const struct trace_row *row, double factor, bool outlier,
                  const struct replay_options *how) {
    struct autoflex *a = &life->a;
    struct replay_counts *c = &life->counts;
    const double maximum = row->maximum * factor;
    if (!strcmp(row->name, "input")) /* loaded anew for each step, without a predictor */
        return;
    if (!(maximum > 0)) { /* nothing but zeros, or no write */
        if (a->initialised)
            autoflex_adjust(a);
        autoflex_record(a, 0, 0);
        return;
    }
    choose_exponent(life, row, maximum);
    const bool recorded = a->e == row->e && a->e == row->maximum_e && factor == 1;
    const bool floats = how->largest > 0;
    const double m = floats ? ldexp(maximum, a->e) : nearbyint(ldexp(maximum, a->e));
    const double top = floats ? how->largest : (1 << (how->bits - 1)) - 1;
    const bool saturated = recorded ? row->saturated > 0 : m > top;
    const double gamma = recorded && !floats ? (double)row->gamma : m > top ? top : m;
    autoflex_record(a, floats ? 0 : (int)gamma, maximum);
    /* a float has its digits wherever it lies: it has recovered within the range that 11 of 16 bits span */
    note_outlier(life, outlier, gamma >= (floats ? top / 32 : KEEPS_11_BITS) && !saturated);
    c->changes += a->e != life->e && c->writes;
    life->e = a->e;
    c->writes++;
    c->saturated += saturated;
    c->late += saturated && row->step > how->warm_up;
    c->same += a->e == row->e;
    if (gamma > 0) {
        c->kept++;
        c->unused += floats ? log2(top / gamma) : how->bits - 1 - log2(gamma);
    }
}
