/* predictor_trend.c - an exponent predictor of one's own as a shared library, for `flexlab` and every program that
 * loads it: the largest of the last eight maxima, times the fastest growth from one write to the next among them.
 *
 *   cc -shared -fPIC -I include -o trend.so predictor_trend.c
 *   FLEXLAB_PREDICTORS=$PWD/trend.so flexlab replay trace-flex16+5-seed1.csv --predictors paper,trend
 *   FLEXLAB_PREDICTORS=$PWD/trend.so flexlab train --predictor trend */
#include "flexlab/autoflex.h"

enum { WRITES = 8 };

static double trend(const struct autoflex *a, void *least) {
    double largest = 0, growth = *(const double *)least, newer = 0;
    for (int i = 0; i < WRITES && i < a->count; i++) {
        const double phi = a->history[(a->next + AUTOFLEX_WINDOW - 1 - i) % AUTOFLEX_WINDOW];
        if (i > 0 && newer > growth * phi)
            growth = newer / phi;
        if (phi > largest)
            largest = phi;
        newer = phi;
    }
    return largest * (growth < 4 ? growth : 4);
}

void flexlab_predictors(autoflex_add_fn add);
void flexlab_predictors(autoflex_add_fn add) {
    static double least = 1.125; /* room there is in any case */
    add("trend", trend, &least);
}
