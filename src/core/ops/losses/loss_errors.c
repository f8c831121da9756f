/* loss_errors.c - means of the distances of elements from targets, and the loss of a critic, in double, for every
 * format through its codec. Chunks of 4096 elements go to threads; eight chains make the sum of a chunk, and chunks are
 * added in order (loss_rules.h has the terms). */
#include "core/base/fail.h"
#include "core/ops/losses/losses.h"
#include "core/ops/losses/loss_rules.h"
#include "core/base/memory.h"
#include "core/ops/optimisers/optimiser_rules.h"
#include "core/base/parallel.h"
#include "core/reference/ref.h"

/* --- errors ------------------------------------------------------------------------------------------------------- */

struct job {
    const struct fl_args *args;
    double *sums; /* of the chunks */
    double weight;
};

static void decode_targets(const struct fl_args *args, int64_t first, int64_t n, double *to) {
    const double *doubles = args->p.loss.targets_f64;
    const float *floats = args->p.loss.targets_f32.data;
    if (!doubles && !floats) {
        args->format->decode(args->format, &args->in[1], first, n, to);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        to[i] = doubles ? doubles[first + i] : (double)floats[first + i];
}

enum { BLOCK = 512 /* elements at a time, of a chunk: a multiple of its chains */ };

static void run_block(const struct job *job, int64_t first, int64_t n, double *chains) {
    const struct fl_args *args = job->args;
    double d[BLOCK], targets[BLOCK], *gradient = args->p.loss.gradient;
    const double delta = args->p.loss.delta;
    args->format->decode(args->format, &args->in[0], first, n, d);
    decode_targets(args, first, n, targets);
    for (int64_t i = 0; i < n; i++)
        d[i] -= targets[i];
    for (int64_t i = 0; i < n; i += FL_SQUARES_CHAINS)
        for (int j = 0; j < FL_SQUARES_CHAINS && i + j < n; j++)
            chains[j] += fl_error_loss(args->op, d[i + j], delta);
    for (int64_t i = 0; gradient && i < n; i++)
        gradient[first + i] = fl_error_slope(args->op, d[i], delta) * job->weight;
}

static void run_chunk(void *context, int number, int worker) {
    (void)worker;
    const struct job *job = context;
    const int64_t count = job->args->in[0].count, first = (int64_t)number * FL_SQUARES_CHUNK;
    const int64_t end = count - first < FL_SQUARES_CHUNK ? count : first + FL_SQUARES_CHUNK;
    double chains[FL_SQUARES_CHAINS] = {0};
    for (int64_t i = first; i < end; i += BLOCK)
        run_block(job, i, end - i < BLOCK ? end - i : BLOCK, chains);
    job->sums[number] = fl_sum_chains(chains);
}

size_t fl_error_losses_need(const struct fl_args *args) {
    return (size_t)fl_squares_chunks(args->in[0].count) * sizeof(double);
}

tensor_status fl_error_losses(const struct fl_args *args) {
    const int64_t chunks = fl_squares_chunks(args->in[0].count);
    const double count = (double)args->in[0].count;
    struct job job = {args, fl_workspace(args, fl_error_losses_need(args)), args->p.loss.gradient_scale / count};
    if (!job.sums)
        return TENSOR_E_MEMORY;
    fl_parallel((int)chunks, run_chunk, &job);
    *args->p.loss.loss = fl_float_squares(job.sums, chunks) / count;
    return TENSOR_OK;
}

/* --- a critic ----------------------------------------------------------------------------------------------------- */

static tensor_status check_labels(const struct fl_args *args) {
    const int32_t *labels = args->p.loss.labels;
    for (int64_t i = 0; i < args->p.loss.m; i++)
        if (fl_label_counts(args, i) && labels[i] >> 1)
            return fl_fail(TENSOR_E_ARGUMENT, "%s: label %lld is %d, expected 0 to 1", args->p.loss.name, (long long)i,
                           labels[i]);
    return TENSOR_OK;
}

/* Sums of each label's rows: exact integers, or doubles added in the order of the elements. */
static void sum_rows(const struct fl_args *args, int64_t i, int64_t exact[2], double real[2]) {
    double x[BLOCK];
    const int label = args->p.loss.labels[i];
    const bool shared = fl_ref_shared(args);
    const double unit = shared ? fl_scale2(1, fl_exponent(&args->in[0])) : 1;
    for (int64_t done = 0; done < args->p.loss.n; done += BLOCK) {
        const int64_t n = args->p.loss.n - done < BLOCK ? args->p.loss.n - done : BLOCK;
        args->format->decode(args->format, &args->in[0], i * args->p.loss.n + done, n, x);
        for (int64_t k = 0; k < n; k++)
            if (shared)
                exact[label] += (int64_t)(x[k] * unit);
            else
                real[label] += x[k];
    }
}

static void slopes(const struct fl_args *args, const struct fl_critic *critic) {
    for (int64_t i = 0; i < args->p.loss.m; i++) {
        const double slope =
            fl_label_counts(args, i) ? fl_critic_slope(critic, args->p.loss.labels[i], args->p.loss.gradient_scale) : 0;
        for (int64_t k = 0; k < args->p.loss.n; k++)
            args->p.loss.gradient[i * args->p.loss.n + k] = slope;
    }
}

tensor_status fl_critic_losses(const struct fl_args *args) {
    const tensor_status status = check_labels(args);
    struct fl_critic critic = {{0, 0}, {0, 0}};
    int64_t exact[2] = {0, 0};
    double real[2] = {0, 0};
    if (status)
        return status;
    for (int64_t i = 0; i < args->p.loss.m; i++) {
        if (!fl_label_counts(args, i))
            continue;
        critic.count[args->p.loss.labels[i]] += (double)args->p.loss.n;
        sum_rows(args, i, exact, real);
    }
    for (int label = 0; label < 2; label++) {
        if (fl_ref_shared(args))
            real[label] = fl_scale2((double)exact[label], -fl_exponent(&args->in[0]));
        critic.mean[label] = fl_mean_of(real[label], critic.count[label]);
    }
    *args->p.loss.loss = fl_critic_loss(&critic);
    if (args->p.loss.gradient)
        slopes(args, &critic);
    return TENSOR_OK;
}
