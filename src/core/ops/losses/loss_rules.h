/* loss_rules.h - losses in double by fixed sequences: what a class counts in cross-entropy, errors and their slopes.
 * The text that a processor and a device run alike. */
#ifndef FL_LOSS_RULES_H
#define FL_LOSS_RULES_H

#include "autoflex/both.h"
#include "core/table/kernel.h"

/* A value that no label has: all labels count. */
#define FL_NO_LABEL INT64_MIN

/* A row of cross-entropy has a share for each class: w ((1 - s) t + s / K), t the target (1 for the label and 0 for the
 * others), s the smoothing, K the number of classes, w what the class counts. */
struct fl_shares {
    const double *weights; /* NULL: 1 each */
    double keep, spread;   /* 1 - s, s / K */
};

FL_BOTH struct fl_shares fl_shares_of(const struct fl_args *args) {
    struct fl_shares s;
    s.weights = args->p.loss.class_weights;
    s.keep = 1 - (double)args->p.loss.smoothing;
    s.spread = (double)args->p.loss.smoothing / (double)args->p.loss.n;
    return s;
}

FL_BOTH double fl_share(const struct fl_shares *s, double target, int64_t c) {
    const double share = s->keep * target + s->spread;
    return s->weights ? s->weights[c] * share : share;
}

FL_BOTH bool fl_label_counts(const struct fl_args *args, int64_t row) {
    return args->p.loss.labels[row] != args->p.loss.ignored;
}

/* The sum of the weights of the rows, in their order, by which the mean is divided. */
FL_BOTH double fl_weight_of_rows(const struct fl_args *args) {
    const int32_t *labels = args->p.loss.labels;
    const double *weights = args->p.loss.class_weights;
    double sum = 0;
    if (!labels)
        return (double)args->p.loss.m;
    for (int64_t i = 0; i < args->p.loss.m; i++)
        if (labels[i] != args->p.loss.ignored)
            sum += weights ? weights[labels[i]] : 1;
    return sum;
}

/* A mean over nothing is 0, and so are its gradients. */
FL_BOTH double fl_mean_of(double sum, double weight) {
    return weight == 0 ? 0 : sum / weight;
}

/* --- errors: d = x - target --------------------------------------------------------------------------------------- */

FL_BOTH double fl_error_loss(enum fl_op op, double d, double delta) {
    const double size = d < 0 ? -d : d;
    if (op == FL_OP_SQUARED_ERROR)
        return d * d;
    return size > delta ? delta * (size - 0.5 * delta) : 0.5 * d * d; /* Huber 1964 */
}

FL_BOTH double fl_error_slope(enum fl_op op, double d, double delta) {
    if (op == FL_OP_SQUARED_ERROR)
        return 2 * d;
    return d > delta ? delta : d < -delta ? -delta : d;
}

/* --- Wasserstein: rows of label 1 are real, of 0 not -------------------------------------------------------------- */

struct fl_critic {
    double count[2]; /* elements of rows with label 0 and 1 */
    double mean[2];
};

FL_BOTH double fl_critic_loss(const struct fl_critic *c) {
    return c->mean[0] - c->mean[1];
}

/* The slope for an element in a row of that label. */
FL_BOTH double fl_critic_slope(const struct fl_critic *c, int32_t label, double scale) {
    return label ? -(scale / c->count[1]) : scale / c->count[0];
}

#endif
