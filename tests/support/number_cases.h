/* number_cases.h - inputs for the operations whose results are numbers: moments, coefficients, running statistics,
 * softmax with its loss. Results come as doubles that hold them exactly. After kernel_cases.h. */
#ifndef FL_NUMBER_CASES_H
#define FL_NUMBER_CASES_H

#include "core/ops/losses/loss_rules.h"
#include "core/ops/optimisers/optimiser_rules.h"
#include "kernel_cases.h"
#include "flexlab/tensor_blocks.h"

enum { NUMBER_CHANNELS = 70, NUMBER_ROWS = 45, NUMBERS = 24 * NUMBER_CHANNELS + 2 * NUMBER_ROWS * NUMBER_CHANNELS };

static inline bool is_number_op(enum fl_op op) {
    return op == FL_OP_CHANNEL_MOMENTS || op == FL_OP_RUNNING_STATISTICS || op == FL_OP_AFFINE_COEFFICIENTS ||
           op == FL_OP_AFFINE_GRAD_COEFFICIENTS || op == FL_OP_SOFTMAX_CROSS_ENTROPY || op == FL_OP_SUM_SQUARES ||
           op == FL_OP_OPTIMISER_STEP || op == FL_OP_TRUST_RATE || op == FL_OP_CHECK_INDICES || op == FL_OP_ARGMAX ||
           (op >= FL_OP_CROSS_ENTROPY_WITH && op <= FL_OP_WASSERSTEIN);
}

static inline bool is_loss(enum fl_op op) {
    return op == FL_OP_SOFTMAX_CROSS_ENTROPY || (op >= FL_OP_CROSS_ENTROPY_WITH && op <= FL_OP_WASSERSTEIN);
}

struct number_case {
    double f[4][NUMBER_ROWS * NUMBER_CHANNELS];
    int64_t isum[2][NUMBER_CHANNELS];
    double fsum[2][NUMBER_CHANNELS];
    float targets[NUMBER_ROWS * NUMBER_CHANNELS];
    float a[NUMBER_CHANNELS], b[NUMBER_CHANNELS], d[NUMBER_CHANNELS];
    struct fl_coefficient first[NUMBER_CHANNELS], cross[NUMBER_CHANNELS], offset[NUMBER_CHANNELS];
    int32_t first_centre[NUMBER_CHANNELS], cross_centre[NUMBER_CHANNELS];
    int32_t predicted[NUMBER_ROWS], correct, labels[NUMBER_ROWS];
    struct block x, other, vector[2];
    struct fl_args args;
};

/* The numbers of an optimiser's step of every kind, some steps later, with and without sums for clipping. */
static void make_step(struct fl_args *args, double (*f)[NUMBER_ROWS * NUMBER_CHANNELS], int index, uint64_t *seed) {
    double *n = f[0];
    for (int i = 0; i < FL_FACTORS * TENSOR_STEP_ROWS; i++)
        n[i] = 0;
    n[FL_STEP_COUNT] = index;
    n[FL_STEP_KIND] = index % (TENSOR_OPTIMISER_LAMB + 1);
    for (int i = FL_STEP_POWER_1; i <= FL_STEP_POWER_2; i++)
        n[i] = index < 6 ? 1 : uniform(seed);
    n[FL_STEP_BETA_1] = (float)uniform(seed);
    n[FL_STEP_BETA_2] = (float)uniform(seed);
    n[FL_STEP_EPSILON] = 1e-8f;
    n[FL_STEP_DECAY] = index % 4 ? 0.01f : 0;
    n[FL_STEP_CLIP_NORM] = index % 3 ? uniform(seed) : 0;
    n[FL_STEP_MOMENTUM] = index % 2 ? 0.9f : 0;
    args->p.optimiser_step = (struct fl_optimiser_step){.numbers = n, /* no scale, as for the recorded hashes */
                                                        .sums = index % 7 ? f[1] : NULL,
                                                        .sums_count = index % 7 ? 4 : 0,
                                                        .rate = (float)uniform(seed)};
}

/* Options and targets of a loss: targets in the format, doubles or floats, each with and without the other options. */
static void make_loss(struct number_case *n, enum fl_op op, int64_t rows, int index, uint64_t *seed) {
    const int64_t count = n->args.in[0].count;
    const bool plain = op == FL_OP_SOFTMAX_CROSS_ENTROPY, /* without options */
        labels = plain || op == FL_OP_CROSS_ENTROPY_WITH || op == FL_OP_WASSERSTEIN,
               entropy = op <= FL_OP_CROSS_ENTROPY_TARGETS, options = entropy && !plain;
    for (int64_t i = 0; i < count && !plain; i++) {
        n->targets[i] = (float)uniform(seed);
        n->f[2][i] = index % 4 == 2 && i % 3 == 0 ? 0 : uniform(seed);
    }
    for (int64_t i = 0; i < NUMBER_CHANNELS && !plain; i++)
        n->f[3][i] = i % 7 == 6 ? 0 : uniform(seed);
    for (int64_t i = 0; i < rows && labels && !plain; i++) {
        n->labels[i] = op == FL_OP_WASSERSTEIN ? n->labels[i] & 1 : n->labels[i];
        if (index % 3 == 1 && (index == 7 || i % 4 == 1)) /* some, in one case all */
            n->labels[i] = -100;
    }
    n->args.in[1] = plain || (!labels && index % 3 == 0) ? n->other.view : (struct fl_view){0};
    n->args.p.loss = (struct fl_loss){.m = rows,
                                      .n = count / rows,
                                      .gradient = index % 5 ? n->f[0] : NULL,
                                      .loss = n->f[1],
                                      .predicted = entropy ? n->predicted : NULL,
                                      .correct = labels && entropy ? &n->correct : NULL,
                                      .labels = labels ? n->labels : NULL,
                                      .targets_f64 = !labels && index % 3 == 2 ? n->f[2] : NULL,
                                      .class_weights = options && index % 4 == 3 ? n->f[3] : NULL,
                                      .ignored = labels && !plain && index % 3 == 1 ? -100 : FL_NO_LABEL,
                                      .gradient_scale = 1.5,
                                      .smoothing = options && index % 2 ? 0.1f : 0,
                                      .delta = op == FL_OP_HUBER ? 0.25f : 0,
                                      .name = "test"};
    if (!labels && index % 3 == 1)
        n->args.p.loss.targets_f32 = (struct fl_view){.data = n->targets, .count = count};
}

/* Runs case `index` on `kernel` and stores the results in values; returns their number, 0 past the last case, -1 if the
 * kernel failed. */
static int number_run(const struct fl_format *f, enum fl_op op, fl_kernel kernel, int index, uint64_t seed,
                      double *values) {
    static const int channels[] = {1, 3, 10, 16, 33, 70}, rows[] = {2, 5, 8, 45};
    static struct number_case n;
    if (index >= 24)
        return 0;
    const int64_t c = channels[index % 6], m = rows[index / 6];
    const bool shared = f->arithmetic == FL_ARITHMETIC_SHARED;
    const int e = shared ? f->e_min + (f->e_max - f->e_min) / 3 : 0;
    memset(&n, 0, sizeof n);
    n.x = block_new(f, m * c, e + index % 5);
    n.other = block_new(f, m * c, e - index % 3);
    for (int i = 0; i < 2; i++) {
        n.vector[i] = block_new(f, c, e + 2);
        fill(f, &n.vector[i], ORDINARY, &seed);
    }
    fill(f, &n.x, index % 4 == 3 ? EXTREME : ORDINARY, &seed);
    fill(f, &n.other, ORDINARY, &seed);
    for (int64_t i = 0; i < c; i++) {
        const double unit = shared ? ldexp(1, 15 - e) : 1;
        n.f[0][i] = (uniform(&seed) - 0.5) * unit;
        n.f[1][i] = uniform(&seed) * unit * unit * (i % 5 == 4 ? 1e-9 : 1);
        n.f[2][i] = (uniform(&seed) - 0.5) * unit;
        n.f[3][i] = uniform(&seed) * unit * unit;
        n.isum[0][i] = (int64_t)((uniform(&seed) - 0.5) * 65534 * (double)m);
        n.isum[1][i] = (int64_t)(uniform(&seed) * 0x1p30 * (double)m) + n.isum[0][i] * n.isum[0][i] / m;
        n.fsum[0][i] = (uniform(&seed) - 0.5) * (double)m;
        n.fsum[1][i] = uniform(&seed) * (double)m;
    }
    for (int64_t i = 0; i < m; i++)
        n.labels[i] = (int32_t)(check_random(&seed) % (uint64_t)c);
    struct fl_stats stats = {0};
    n.args = (struct fl_args){.op = op, .format = f, .in = {n.x.view, n.other.view}, .stats = &stats};
    union fl_parameters *p = &n.args.p;
    if (op == FL_OP_CHANNEL_MOMENTS || op == FL_OP_AFFINE_COEFFICIENTS || op == FL_OP_AFFINE_GRAD_COEFFICIENTS)
        p->batch_norm = (struct fl_batch_norm){
            .m = m,
            .n = c,
            .sums = {{n.isum[0], n.isum[1]}, {n.fsum[0], n.fsum[1]}},
            .channels = {n.a, n.b, n.d, n.first, n.cross, n.offset, n.first_centre, n.cross_centre},
            .gamma = n.vector[0].view,
            .beta = n.vector[1].view,
            .mean = n.f[0],
            .variance = n.f[1],
            .dgamma = n.f[2],
            .dbeta = n.f[3],
            .epsilon = 0.1,
            .name = "test"};
    if (op == FL_OP_RUNNING_STATISTICS)
        p->running = (struct fl_running){.m = m,
                                         .n = c,
                                         .mean = n.f[0],
                                         .variance = n.f[1],
                                         .batch_mean = n.f[2],
                                         .batch_variance = n.f[3],
                                         .momentum = 0.1};
    if (op == FL_OP_AFFINE_COEFFICIENTS && index % 2)
        n.args.in[1] = (struct fl_view){0};
    if (is_loss(op))
        make_loss(&n, op, m, index, &seed);
    if (op == FL_OP_SUM_SQUARES)
        p->sum_squares.sum = n.f[0];
    if (op == FL_OP_OPTIMISER_STEP) {
        make_step(&n.args, n.f, index, &seed);
    } else if (op == FL_OP_TRUST_RATE) {
        p->trust_rate = (struct fl_trust_rate){.sums = n.f[0], .rate = (float)uniform(&seed)};
        n.args.out.data = n.a;
        n.f[0][0] = index % 5 ? uniform(&seed) * 9 : 0;
        n.f[0][1] = index % 7 ? uniform(&seed) : 0;
    }
    if (op == FL_OP_ARGMAX) { /* of rows, or of columns: the results fit the predicted classes */
        const bool columns = c <= NUMBER_ROWS && index % 2;
        p->axes = (struct fl_axes){.ndim = 2, .shape = {m, c}, .stride = {{c, 1}}, .inner = columns ? 1 : 2};
        n.args.out.data = n.predicted;
    }
    int count = 0;
    if (op == FL_OP_CHECK_INDICES) { /* its status is the result */
        p->table = (struct fl_table){.rows = c, .columns = 1, .count = m, .indices = n.labels, .name = "test"};
        if (index % 2)
            n.labels[index % m] = index % 4 == 1 ? (int32_t)c : -1;
        values[count++] = kernel(&n.args);
        CHECK(values[0] == (index % 2 ? TENSOR_E_ARGUMENT : TENSOR_OK), "check_indices case %d: %g", index, values[0]);
    } else if (kernel(&n.args)) {
        return -1;
    }
    const int64_t numbers = is_loss(op)                  ? (index % 5 ? m * c : 0)
                            : op == FL_OP_OPTIMISER_STEP ? FL_FACTORS * TENSOR_STEP_ROWS
                            : op == FL_OP_SUM_SQUARES    ? 1
                                                         : c;
    for (int i = 0; i < 4; i++)
        for (int64_t k = 0; k < (i ? c : numbers); k++)
            values[count++] = n.f[i][k];
    for (int64_t k = 0; k < c; k++) {
        const double of_channel[] = {n.a[k],           n.b[k],       n.d[k],        n.first[k].m,  n.first[k].e,
                                     n.cross[k].m,     n.cross[k].e, n.offset[k].m, n.offset[k].e, n.first_centre[k],
                                     n.cross_centre[k]};
        memcpy(values + count, of_channel, sizeof of_channel);
        count += (int)(sizeof of_channel / sizeof of_channel[0]);
    }
    for (int64_t k = 0; k < m; k++)
        values[count++] = n.predicted[k];
    values[count++] = n.correct;
    block_free(&n.x);
    block_free(&n.other);
    block_free(&n.vector[0]);
    block_free(&n.vector[1]);
    return count;
}

#endif
