/* predictors.c - the table of exponent predictors. A new one is a row here.
 *
 * paper:  Koster et al. 2017, algorithm 2. ngraph: the behaviour of its authors' public graph compiler. Both look at
 * the last 16 maxima: mu and sigma are their mean and population standard deviation, kappa = 2^-e the old scale. */
#include "autoflex/predictors.h"
#include <math.h>
#include <string.h>

static double history_maximum(const struct autoflex *a) {
    double largest = 0;
    for (int i = 0; i < a->count; i++)
        if (a->history[i] > largest)
            largest = a->history[i];
    return largest;
}

/* Sums run from the oldest entry to the newest, so that a restored state continues with the same bits. */
static double history_deviation(const struct autoflex *a) {
    int first = (a->next - a->count + AUTOFLEX_WINDOW) % AUTOFLEX_WINDOW;
    double sum = 0, squares = 0;
    for (int i = 0; i < a->count; i++)
        sum += a->history[(first + i) % AUTOFLEX_WINDOW];
    double mean = sum / a->count;
    for (int i = 0; i < a->count; i++) {
        double d = a->history[(first + i) % AUTOFLEX_WINDOW] - mean;
        squares += d * d;
    }
    return sqrt(squares / a->count);
}

static double predict_paper(const struct autoflex *a) {
    return 2.0 * (history_maximum(a) + 3.0 * history_deviation(a) + 100.0 * ldexp(1.0, -a->e));
}

static int exponent_paper(double chi) {
    return AUTOFLEX_BITS - 1 - autoflex_ceil_log2(chi);
}

static double predict_ngraph(const struct autoflex *a) {
    return history_maximum(a) + 3.0 * history_deviation(a) + 100.0 * ldexp(1.0, -a->e);
}

static int exponent_ngraph(double p) {
    return AUTOFLEX_BITS - 2 - autoflex_floor_log2(p);
}

static const struct autoflex_predictor table[] = {
    {"paper", "twice the window's maximum + 3 sigma + 100 steps (Koster et al. 2017)", predict_paper, exponent_paper,
     false},
    {"ngraph", "the window's maximum + 3 sigma + 100 steps (as in the authors' graph compiler)", predict_ngraph,
     exponent_ngraph, false},
    {"current", "the exact maximum of this very result (DFP-16: Das et al. 2018)", NULL, NULL, true},
    {"fixed", "never moves by itself", NULL, NULL, false},
};
enum { PREDICTORS = sizeof table / sizeof table[0] };

const struct autoflex_predictor *autoflex_list(int i) {
    return i >= 0 && i < PREDICTORS ? &table[i] : NULL;
}

const struct autoflex_predictor *autoflex_find(const char *name) {
    for (int i = 0; name && i < PREDICTORS; i++)
        if (!strcmp(name, table[i].name))
            return &table[i];
    return NULL;
}

const char *autoflex_name(const struct autoflex_predictor *predictor) {
    return predictor->name;
}
const char *autoflex_summary(const struct autoflex_predictor *predictor) {
    return predictor->summary;
}
bool autoflex_needs_maximum(const struct autoflex_predictor *predictor) {
    return predictor->needs_maximum;
}
