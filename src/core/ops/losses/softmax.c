/* softmax.c - softmax with cross-entropy, in double by a fixed sequence, for every format. The implementation of that
 * sequence for an instruction set computes the rows. */
#include "core/arithmetic/elementary.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/base/parallel.h"
#include "core/ops/losses/softmax.h"
#include "core/table/format.h"
#include <math.h>
#include <string.h>

enum {
    PART = 4096,   /* approximate number of elements in one part */
    LEAST_ROWS = 8 /* rows whose sums are computed in parallel */
};

/* The definition, with which every other implementation agrees. */
static void plain_rows(const struct fl_softmax_work *s, int64_t first, int64_t end) {
    for (int64_t i = first; i < end; i++) {
        double *row = s->z + i * s->classes, sum = 0;
        int64_t largest = 0;
        for (int64_t c = 1; c < s->classes; c++)
            if (row[c] > row[largest])
                largest = c;
        const double top = row[largest], chosen = row[s->labels[i]] - top;
        for (int64_t c = 0; c < s->classes; c++)
            sum += row[c] = fl_exp(row[c] - top);
        s->loss[i] = fl_log(sum) - chosen;
        for (int64_t c = 0; c < s->classes; c++)
            row[c] = (row[c] / sum - (c == s->labels[i])) * s->weight;
        s->largest[i] = (int32_t)largest;
    }
}

/* --- as kernels --------------------------------------------------------------------------------------------------- */

struct job {
    struct fl_softmax_work softmax;
    const struct fl_args *args;
    int64_t rows, rows_per_part;
    fl_softmax_rows run;
};

static void run_part(void *context, int part, int worker) {
    (void)worker;
    const struct job *job = context;
    const int64_t first = part * job->rows_per_part, classes = job->softmax.classes;
    const int64_t end = first + job->rows_per_part < job->rows ? first + job->rows_per_part : job->rows;
    job->args->format->decode(job->args->format, &job->args->in[0], first * classes, (end - first) * classes,
                              job->softmax.z + first * classes);
    job->run(&job->softmax, first, end);
}

/* Logits that become gradients, losses of rows, largest classes. */
size_t fl_softmax_need(const struct fl_args *args) {
    return (size_t)(args->in[0].count + 2 * args->p.loss.m) * sizeof(double);
}

static tensor_status check_labels(const struct fl_args *args) {
    const int32_t *labels = args->p.loss.labels;
    for (int64_t i = 0; i < args->p.loss.m; i++)
        if (labels[i] < 0 || labels[i] >= args->p.loss.n)
            return fl_fail(TENSOR_E_ARGUMENT, "%s: label %lld is %d, expected 0 to %lld", args->p.loss.name,
                           (long long)i, labels[i], (long long)args->p.loss.n - 1);
    return TENSOR_OK;
}

/* Sums in the order of the rows. */
static void finish(const struct job *job) {
    const struct fl_loss *n = &job->args->p.loss;
    double total = 0;
    int32_t right = 0;
    for (int64_t i = 0; i < job->rows; i++) {
        total += job->softmax.loss[i];
        right += job->softmax.largest[i] == job->softmax.labels[i];
    }
    *n->loss = total / (double)job->rows;
    if (n->predicted)
        memcpy(n->predicted, job->softmax.largest, (size_t)job->rows * sizeof *n->predicted);
    if (n->correct)
        *n->correct = right;
}

static tensor_status softmax(const struct fl_args *args, fl_softmax_rows run) {
    const int64_t rows = args->p.loss.m, classes = args->p.loss.n;
    double *memory = fl_workspace(args, fl_softmax_need(args));
    if (!memory)
        return TENSOR_E_MEMORY;
    tensor_status status = check_labels(args);
    if (status)
        return status;
    double *const logits = args->p.loss.gradient ? args->p.loss.gradient : memory;
    struct job job = {.softmax = {.z = logits,
                                  .labels = args->p.loss.labels,
                                  .classes = classes,
                                  .weight = args->p.loss.gradient_scale / (double)rows,
                                  .gradient = args->p.loss.gradient != NULL,
                                  .loss = memory + args->in[0].count,
                                  .largest = (int32_t *)(memory + args->in[0].count + rows)},
                      .args = args,
                      .rows = rows,
                      .rows_per_part = PART / classes > LEAST_ROWS ? PART / classes : LEAST_ROWS,
                      .run = run};
    fl_parallel((int)((rows + job.rows_per_part - 1) / job.rows_per_part), run_part, &job);
    finish(&job);
    return TENSOR_OK;
}

#ifdef FL_HAVE_AVX2
#define ROWS_AVX2 fl_softmax_avx2
#else
#define ROWS_AVX2 NULL
#endif
#ifdef FL_HAVE_AVX512
#define ROWS_AVX512 fl_softmax_avx512bw
#else
#define ROWS_AVX512 NULL
#endif

fl_softmax_rows fl_softmax_rows_of(enum fl_backend backend) {
    static const fl_softmax_rows rows[FL_BACKENDS] = {plain_rows, fl_softmax_portable, ROWS_AVX2, ROWS_AVX512, NULL};
    return rows[backend];
}

tensor_status fl_softmax_ref(const struct fl_args *args) {
    return softmax(args, plain_rows);
}
static tensor_status softmax_portable(const struct fl_args *args) {
    return softmax(args, fl_softmax_portable);
}
static tensor_status softmax_avx2(const struct fl_args *args) {
    return softmax(args, ROWS_AVX2);
}
static tensor_status softmax_avx512bw(const struct fl_args *args) {
    return softmax(args, ROWS_AVX512);
}

fl_kernel fl_softmax_kernel(enum fl_backend backend) {
    static const fl_kernel kernels[FL_BACKENDS] = {
        [FL_PORTABLE] = softmax_portable, [FL_AVX2] = softmax_avx2, [FL_AVX512BW] = softmax_avx512bw};
    return fl_softmax_rows_of(backend) ? kernels[backend] : NULL;
}
