/* optimiser_rules.h - the arithmetic of optimisers that is no sum of products: roots, ratios, and the numbers of a
 * step. IEEE operations on doubles in a fixed order, without contraction: a processor and a device run the same code
 * and get the same bits (docs/training.md). */
#ifndef FL_OPTIMISER_RULES_H
#define FL_OPTIMISER_RULES_H

#include "core/arithmetic/exact_rules.h"
#include "core/table/kernel.h"
#include "flexlab/tensor.h"
#include "flexlab/tensor_blocks.h"
#include <float.h>

/* a r^2 + b (c g)^2 */
FL_BOTH double fl_mean_square(double r, double g, const double *f) {
    const double x = f[2] * g;
    return f[0] * (r * r) + f[1] * (x * x);
}

/* The root of that; 0 for a sum below zero. */
FL_BOTH double fl_root_mean(double r, double g, const double *f) {
    const double sum = fl_mean_square(r, g, f);
    return sum > 0 ? sqrt(sum) : sum != sum ? sum : 0.0;
}

/* a w + b m / (c r + d); the ratio is 0 if its numerator is, for any denominator. */
FL_BOTH double fl_add_ratio(double w, double m, double r, const double *f) {
    const double kept = f[0] * w, numerator = f[1] * m, ratio = numerator / (f[2] * r + f[3]);
    return numerator == 0 ? kept : kept + ratio;
}

/* Whether a shared-exponent format can compute with that factor. */
FL_BOTH bool fl_is_factor(double x) {
    return x <= FLT_MAX && x >= -FLT_MAX;
}

/* --- the numbers of a step ---------------------------------------------------------------------------------------- */

/* Entries of the rows TENSOR_STEP_STATE and TENSOR_STEP_HOW and the one after it: tensor.h describes the other rows. */
enum fl_step_number {
    FL_STEP_COUNT = 4 * TENSOR_STEP_STATE,
    FL_STEP_POWER_1, /* beta1^count, by repeated multiplication */
    FL_STEP_POWER_2,
    FL_STEP_CLIP, /* factor of every gradient */
    FL_STEP_KIND = 4 * TENSOR_STEP_HOW,
    FL_STEP_BETA_1,
    FL_STEP_BETA_2,
    FL_STEP_EPSILON,
    FL_STEP_DECAY,
    FL_STEP_CLIP_NORM,
    FL_STEP_MOMENTUM,
    FL_STEP_RATE /* of the last step */
};

/* Sums of squares added in their order, of gradients that are to be multiplied with unscale; 1 where nothing is to be
 * clipped. */
FL_BOTH double fl_clip_factor(double clip_norm, const double *sums, int64_t count, double unscale) {
    double sum = 0;
    if (!(clip_norm > 0) || !sums)
        return 1;
    for (int64_t i = 0; i < count; i++)
        sum += sums[i];
    const double norm = sqrt(sum) * unscale;
    return norm <= clip_norm ? 1 : clip_norm / norm;
}

FL_BOTH void fl_step_row(double *n, int row, double a, double b, double c, double d) {
    n[4 * row] = a;
    n[4 * row + 1] = b;
    n[4 * row + 2] = c;
    n[4 * row + 3] = d;
}

/* Sets the two rows that update a weight: with decay, and for parameters that do not decay. */
FL_BOTH void fl_step_weights(double *n, double a, double a_undecayed, double b, double c) {
    fl_step_row(n, TENSOR_STEP_WEIGHT, a, b, c, n[FL_STEP_EPSILON]);
    fl_step_row(n, TENSOR_STEP_WEIGHT_UNDECAYED, a_undecayed, b, c, n[FL_STEP_EPSILON]);
}

/* Whether the optimiser first computes clip g + decay w, as the older kinds do. */
FL_BOTH bool fl_step_prepares(int kind, double decay) {
    return decay != 0 &&
           (kind == TENSOR_OPTIMISER_ADAM || kind == TENSOR_OPTIMISER_RMSPROP || kind == TENSOR_OPTIMISER_ADAGRAD);
}

/* scale: that of the loss of the gradients and of the sums of their squares; NULL: 1. It is a power of two, so it
 * causes no additional rounding. */
FL_BOTH void fl_optimiser_step(double *n, double rate, const double *sums, int64_t count, const double *scale) {
    const int kind = (int)n[FL_STEP_KIND];
    const double beta1 = n[FL_STEP_BETA_1], beta2 = n[FL_STEP_BETA_2], decay = n[FL_STEP_DECAY];
    const double scaled = scale ? *scale : 1, unscale = 1 / scaled;
    const double momentum = n[FL_STEP_MOMENTUM], clip = fl_clip_factor(n[FL_STEP_CLIP_NORM], sums, count, unscale);
    const double power1 = n[FL_STEP_POWER_1] * beta1, power2 = n[FL_STEP_POWER_2] * beta2;
    n[FL_STEP_COUNT] += 1;
    n[FL_STEP_POWER_1] = power1;
    n[FL_STEP_POWER_2] = power2;
    n[FL_STEP_CLIP] = clip;
    n[FL_STEP_RATE] = rate;
    const bool prepares = fl_step_prepares(kind, decay);
    const double taken = (prepares ? 1 : clip) * unscale; /* of what the operations after it read */
    if (kind == TENSOR_OPTIMISER_SGD) {
        fl_step_row(n, TENSOR_STEP_DIRECTION, momentum, taken, decay, 0);
        fl_step_row(n, TENSOR_STEP_DIRECTION_UNDECAYED, momentum, taken, 0, 0);
        if (scale) { /* for a velocity, and Nesterov's direction, that count as their wide parts */
            fl_step_row(n, TENSOR_STEP_WEIGHT, 1, 0, -rate, 0);
            fl_step_row(n, TENSOR_STEP_MOMENT, 0, taken, momentum, 0);
            fl_step_row(n, TENSOR_STEP_ROOT, 1, 0, decay, 0);
        }
        return;
    }
    fl_step_row(n, TENSOR_STEP_DIRECTION, decay * scaled, clip, 0, 0); /* scaled as the gradient is */
    fl_step_row(n, TENSOR_STEP_DIRECTION_UNDECAYED, 0, clip, 0, 0);
    fl_step_row(n, TENSOR_STEP_MOMENT, beta1, (1 - beta1) * taken, 0, 0);
    if (kind == TENSOR_OPTIMISER_ADAGRAD)
        fl_step_row(n, TENSOR_STEP_ROOT, 1, 1, taken, 0);
    else
        fl_step_row(n, TENSOR_STEP_ROOT, beta2, 1 - beta2, taken, 0);
    const double part1 = 1 - power1, root2 = 1 / sqrt(1 - power2);
    switch (kind) {
    case TENSOR_OPTIMISER_ADAM:
        fl_step_weights(n, 1, 1, -(rate / part1), root2);
        break;
    case TENSOR_OPTIMISER_ADAMW:
        fl_step_weights(n, 1 - rate * decay, 1, -(rate / part1), root2);
        break;
    case TENSOR_OPTIMISER_LAMB:
        fl_step_weights(n, decay, 0, 1 / part1, root2);
        break;
    default: /* without a moment: the ratio is the step or, with momentum, is added to the velocity */
        if (momentum > 0)
            fl_step_weights(n, momentum, momentum, taken, 1);
        else
            fl_step_weights(n, 1, 1, -(rate * taken), 1);
    }
}

/* The rate of one parameter by the norms of its weight and of its direction (You et al. 2020); the rate itself if the
 * product with their quotient is not finite as binary32. */
FL_BOTH float fl_trust_rate(double rate, const double *sums) {
    const double weight = sqrt(sums[0]), direction = sqrt(sums[1]);
    const float trusted = (float)(weight > 0 && direction > 0 ? rate * (weight / direction) : rate);
    return fl_is_factor(trusted) ? trusted : (float)rate;
}

/* --- sums of squares ---------------------------------------------------------------------------------------------- */

/* Elements of which a sum of squares is made first: exactly in shared-exponent formats, in eight chains of double in
 * the others. The sums of the chunks are added in order. */
enum { FL_SQUARES_CHUNK = 4096, FL_SQUARES_CHAINS = 8 };

FL_BOTH int64_t fl_squares_chunks(int64_t count) {
    return (count + FL_SQUARES_CHUNK - 1) / FL_SQUARES_CHUNK;
}

/* Eight chains in pairs. */
FL_BOTH double fl_sum_chains(const double *s) {
    return ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
}

FL_BOTH double fl_exact_squares(const int64_t *chunks, int64_t count, int e) {
    fl_int128 sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += chunks[i];
    return fl_scale2(fl_double_of_128(sum), -2 * e);
}

FL_BOTH double fl_float_squares(const double *chunks, int64_t count) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += chunks[i];
    return sum;
}

#endif
