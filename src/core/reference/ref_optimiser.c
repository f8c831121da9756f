/* ref_optimiser.c - reference kernels of optimisers: results in double by optimiser_rules.h, rounded once, to the wide
 * part if there is one. */
#include "core/ops/optimisers/optimiser_rules.h"
#include "core/tensor/element_rules.h"
#include "core/reference/ref.h"
#include <math.h>

/* Element i of an operand, or of its wide part if it has one. */
static double number_at(const struct ref_work *w, int in, int64_t i) {
    const struct fl_view *v = &w->args->in[in];
    if (!v->wide)
        return w->in[in][i];
    return fl_ref_shared(w->args) ? ldexp(((const int32_t *)v->wide)[i], -(fl_exponent(v) + 16))
                                  : ((const float *)v->wide)[i];
}

/* Stores the result of element i in the wide part, and replaces it by that value, of which the element is the rounding.
 */
static void keep_wide(struct ref_work *w, int64_t i, int64_t *saturated, int64_t *vanished) {
    const struct fl_args *args = w->args;
    if (!fl_ref_shared(args)) {
        const float m = (float)w->value[i];
        if (args->out.data)
            ((float *)args->out.wide)[i] = m;
        w->value[i] = m;
        return;
    }
    const int e = fl_exponent(&args->out) + 16;
    double m = fl_nearest_units(fl_scale2(w->value[i], e), FL_WIDE_LIMIT);
    if (m > FL_WIDE_LIMIT || m < -FL_WIDE_LIMIT) {
        ++*saturated;
        m = m < 0 ? -FL_WIDE_LIMIT : FL_WIDE_LIMIT;
    }
    if (args->out.data)
        ((int32_t *)args->out.wide)[i] = (int32_t)m;
    if (!isfinite(w->value[i]))
        return;                              /* the encoding of the element counts it */
    *vanished += m == 0 && w->value[i] != 0; /* counted here, since the encoding of the element sees a zero */
    w->value[i] = ldexp(m, -e);
}

/* Computes every element by one of the rules; near is the result itself. */
static tensor_status run(const struct fl_args *args, double (*rule)(const struct ref_work *w, int64_t i)) {
    struct ref_work w;
    tensor_status status = fl_ref_begin(&w, args);
    if (status)
        return status;
    const bool shared = fl_ref_shared(args), wide = args->out.wide;
    int64_t saturated = 0, vanished = 0;
    for (int64_t i = 0; i < w.count; i++) {
        w.value[i] = w.near[i] = rule(&w, i);
        if (wide)
            keep_wide(&w, i, &saturated, &vanished);
    }
    struct fl_args view = *args;
    if (wide && args->rounding.mode == TENSOR_ROUND_STOCHASTIC)
        view.rounding.mode = TENSOR_ROUND_NEAREST;
    w.args = &view;
    const int64_t before = args->stats->saturated;
    fl_ref_end(&w);
    if (wide && shared) {
        args->stats->saturated = before + saturated;
        args->stats->flushed += vanished;
    }
    return TENSOR_OK;
}

static double root_mean(const struct ref_work *w, int64_t i) {
    return fl_root_mean(number_at(w, 0, i), number_at(w, 1, i), w->args->p.factored.factors);
}

/* r counts as at least one unit of its representation. */
static double add_ratio(const struct ref_work *w, int64_t i) {
    const struct fl_view *root = &w->args->in[2];
    double r = number_at(w, 2, i);
    if (fl_ref_shared(w->args))
        r = fmax(r, ldexp(1, -fl_exponent(root) - (root->wide ? 16 : 0)));
    return fl_add_ratio(number_at(w, 0, i), number_at(w, 1, i), r, w->args->p.factored.factors);
}

/* NaN remains NaN. */
static double clip_weight(const struct ref_work *w, int64_t i) {
    const double x = number_at(w, 0, i), most = w->args->p.clip_weight.limit;
    return x > most ? most : x < -most ? -most : x;
}

tensor_status fl_ref_clip_weight(const struct fl_args *args) {
    return run(args, clip_weight);
}

tensor_status fl_ref_root_mean(const struct fl_args *args) {
    return run(args, root_mean);
}

tensor_status fl_ref_add_ratio(const struct fl_args *args) {
    return run(args, add_ratio);
}
