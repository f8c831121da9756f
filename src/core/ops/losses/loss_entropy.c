/* loss_entropy.c - rows of cross-entropy with shares for the classes: smoothed or weighted labels, targets, rows that
 * count nothing. loss_rules.h defines shares. A row computes z - max z, its exp, and the sum in the order of the
 * classes, as softmax.c does: if the shares are 1 and 0, the bits are the same, and the rows of softmax.c are used. */
#include "core/arithmetic/elementary.h"
#include "core/base/fail.h"
#include "core/table/format.h"
#include "core/ops/losses/losses.h"
#include "core/ops/losses/loss_rules.h"
#include "core/base/memory.h"
#include "core/base/parallel.h"
#include "core/arithmetic/exponentials.h"
#include "core/ops/losses/softmax.h"
#include <string.h>

enum {
    PART = 4096,   /* approximate number of elements in one part */
    LEAST_ROWS = 8 /* rows whose sums softmax computes in parallel */
};

/* The kernel of a backend. */
struct rows_of_backend {
    fl_softmax_rows softmax;
    void (*exponentials)(double *x, int64_t n);
};

static void plain_exponentials(double *x, int64_t n) {
    for (int64_t c = 0; c < n; c++)
        x[c] = fl_exp(x[c]);
}

/* The workspace, in parts. */
struct memory {
    double *logits, *targets, *loss;
    int32_t *largest, *labels;
};

struct job {
    const struct fl_args *args;
    struct memory at;
    struct rows_of_backend run;
    struct fl_shares shares;
    double weight; /* of the gradients */
    bool by_label; /* a row's label has the share 1 and the others 0 */
    int64_t rows_per_part;
};

static bool has_targets_elsewhere(const struct fl_args *args) {
    return args->in[1].count || args->p.loss.targets_f32.count;
}

/* The workspace: logits, which become gradients; targets that are not doubles; loss, largest class and label of each
 * row. */
size_t fl_entropy_need(const struct fl_args *args) {
    const size_t elements = fl_line_bytes((size_t)args->in[0].count * sizeof(double));
    return (has_targets_elsewhere(args) ? 2 : 1) * elements + 2 * (size_t)args->p.loss.m * sizeof(double);
}

static struct memory places(const struct fl_args *args, char *memory) {
    const size_t elements = fl_line_bytes((size_t)args->in[0].count * sizeof(double));
    struct memory at = {.logits = args->p.loss.gradient ? args->p.loss.gradient : (double *)(void *)memory,
                        .targets = (double *)(uintptr_t)args->p.loss.targets_f64};
    memory += elements;
    if (has_targets_elsewhere(args)) {
        at.targets = (double *)(void *)memory;
        memory += elements;
    }
    at.loss = (double *)(void *)memory;
    at.largest = (int32_t *)(at.loss + args->p.loss.m);
    at.labels = at.largest + args->p.loss.m;
    return at;
}

/* --- rows --------------------------------------------------------------------------------------------------------- */

/* The first largest number, as in softmax. */
static int64_t first_largest(const double *row, int64_t n) {
    int64_t largest = 0;
    for (int64_t c = 1; c < n; c++)
        if (row[c] > row[largest])
            largest = c;
    return largest;
}

/* Computes row i as defined. A class without a share does not enter the loss: its logit may have any value. */
static void row(const struct job *job, int64_t i) {
    const int64_t n = job->args->p.loss.n, label = job->at.targets ? -1 : job->at.labels[i];
    double *z = job->at.logits + i * n, sum = 0, together = 0, chosen = 0;
    const double *targets = job->at.targets ? job->at.targets + i * n : NULL;
    const int64_t largest = first_largest(z, n);
    const double top = z[largest];
    job->at.largest[i] = (int32_t)largest;
    for (int64_t c = 0; c < n; c++) {
        const double share = fl_share(&job->shares, targets ? targets[c] : c == label, c);
        z[c] -= top;
        together += share;
        if (share != 0)
            chosen += share * z[c];
    }
    job->run.exponentials(z, n);
    for (int64_t c = 0; c < n; c++)
        sum += z[c];
    job->at.loss[i] = together * fl_log(sum) - chosen;
    for (int64_t c = 0; c < n; c++) {
        const double share = fl_share(&job->shares, targets ? targets[c] : c == label, c);
        z[c] = (together * (z[c] / sum) - share) * job->weight;
    }
}

static void clear_row(const struct job *job, int64_t i) {
    const int64_t n = job->args->p.loss.n;
    job->at.loss[i] = 0;
    memset(job->at.logits + i * n, 0, (size_t)n * sizeof(double));
}

static void decode(const struct fl_args *args, int in, int64_t first, int64_t n, double *to) {
    const float *floats = args->p.loss.targets_f32.data;
    if (in && floats)
        for (int64_t i = 0; i < n; i++)
            to[i] = floats[first + i];
    else
        args->format->decode(args->format, &args->in[in], first, n, to);
}

static void run_part(void *context, int part, int worker) {
    (void)worker;
    const struct job *job = context;
    const struct fl_args *args = job->args;
    const int64_t first = part * job->rows_per_part, n = args->p.loss.n;
    const int64_t end = first + job->rows_per_part < args->p.loss.m ? first + job->rows_per_part : args->p.loss.m;
    decode(args, 0, first * n, (end - first) * n, job->at.logits + first * n);
    if (has_targets_elsewhere(args))
        decode(args, 1, first * n, (end - first) * n, job->at.targets + first * n);
    if (job->by_label)
        job->run.softmax(&(struct fl_softmax_work){.z = job->at.logits,
                                                   .labels = job->at.labels,
                                                   .classes = n,
                                                   .weight = job->weight,
                                                   .gradient = args->p.loss.gradient != NULL,
                                                   .loss = job->at.loss,
                                                   .largest = job->at.largest},
                         first, end);
    for (int64_t i = first; i < end; i++) {
        if (!job->by_label)
            row(job, i);
        if (args->p.loss.labels && !fl_label_counts(args, i))
            clear_row(job, i);
    }
}

/* --- as kernels --------------------------------------------------------------------------------------------------- */

static tensor_status check_labels(const struct fl_args *args) {
    const int32_t *labels = args->p.loss.labels;
    for (int64_t i = 0; labels && i < args->p.loss.m; i++)
        if (fl_label_counts(args, i) && (labels[i] < 0 || labels[i] >= args->p.loss.n))
            return fl_fail(TENSOR_E_ARGUMENT, "%s: label %lld is %d, expected 0 to %lld", args->p.loss.name,
                           (long long)i, labels[i], (long long)args->p.loss.n - 1);
    return TENSOR_OK;
}

/* Sums in the order of the rows. */
static void finish(const struct job *job, double weight_of_rows) {
    const struct fl_loss *n = &job->args->p.loss;
    double total = 0;
    int32_t right = 0;
    for (int64_t i = 0; i < job->args->p.loss.m; i++) {
        total += job->at.loss[i];
        right += n->labels && fl_label_counts(job->args, i) && job->at.largest[i] == n->labels[i];
    }
    *n->loss = fl_mean_of(total, weight_of_rows);
    if (n->predicted)
        memcpy(n->predicted, job->at.largest, (size_t)job->args->p.loss.m * sizeof *n->predicted);
    if (n->correct)
        *n->correct = right;
}

static tensor_status entropy(const struct fl_args *args, struct rows_of_backend run) {
    char *memory = fl_workspace(args, fl_entropy_need(args));
    if (!memory)
        return TENSOR_E_MEMORY;
    const tensor_status status = check_labels(args);
    if (status)
        return status;
    const double weight_of_rows = fl_weight_of_rows(args);
    struct job job = {.args = args,
                      .at = places(args, memory),
                      .run = run,
                      .shares = fl_shares_of(args),
                      .weight = fl_mean_of(args->p.loss.gradient_scale, weight_of_rows),
                      .by_label = args->p.loss.labels && !args->p.loss.class_weights && args->p.loss.smoothing == 0,
                      .rows_per_part = PART / args->p.loss.n > LEAST_ROWS ? PART / args->p.loss.n : LEAST_ROWS};
    for (int64_t i = 0; i < args->p.loss.m && args->p.loss.labels; i++) /* such rows have label 0 */
        job.at.labels[i] = fl_label_counts(args, i) ? args->p.loss.labels[i] : 0;
    fl_parallel((int)((args->p.loss.m + job.rows_per_part - 1) / job.rows_per_part), run_part, &job);
    if (weight_of_rows == 0 && args->p.loss.gradient) /* the gradient is 0 in place of any value, such as Inf */
        memset(args->p.loss.gradient, 0, (size_t)args->in[0].count * sizeof(double));
    finish(&job, weight_of_rows);
    return TENSOR_OK;
}

tensor_status fl_entropy_ref(const struct fl_args *args) {
    return entropy(args, (struct rows_of_backend){fl_softmax_rows_of(FL_REF), plain_exponentials});
}
static tensor_status entropy_portable(const struct fl_args *args) {
    return entropy(args, (struct rows_of_backend){fl_softmax_portable, fl_exponentials_portable});
}
#ifdef FL_HAVE_AVX2
static tensor_status entropy_avx2(const struct fl_args *args) {
    return entropy(args, (struct rows_of_backend){fl_softmax_avx2, fl_exponentials_avx2});
}
#define ENTROPY_AVX2 entropy_avx2
#else
#define ENTROPY_AVX2 NULL
#endif
#ifdef FL_HAVE_AVX512
static tensor_status entropy_avx512bw(const struct fl_args *args) {
    return entropy(args, (struct rows_of_backend){fl_softmax_avx512bw, fl_exponentials_avx512bw});
}
#define ENTROPY_AVX512 entropy_avx512bw
#else
#define ENTROPY_AVX512 NULL
#endif

struct fl_any_kernels fl_entropy_any(enum fl_backend backend) {
    static const fl_kernel kernels[FL_BACKENDS] = {
        [FL_PORTABLE] = entropy_portable, [FL_AVX2] = ENTROPY_AVX2, [FL_AVX512BW] = ENTROPY_AVX512};
    return (struct fl_any_kernels){kernels[backend], kernels[backend] ? fl_entropy_need : NULL};
}
