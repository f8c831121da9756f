/* softmax.c - softmax with cross-entropy, in double by a fixed sequence, for every format. Rows go to one of the
 * implementations of that sequence that the instruction sets have. */
#include "core/elementary.h"
#include "core/fail.h"
#include "core/memory.h"
#include "core/parallel.h"
#include "core/softmax.h"
#include "core/tensor_object.h"
#include <math.h>
#include <string.h>

enum {
    PART = 4096,   /* elements, about, of the rows of a part */
    LEAST_ROWS = 8 /* whose sums run side by side */
};

/* The definition: what every other implementation does too. */
static void plain_rows(const struct fl_softmax *s, int64_t first, int64_t end) {
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

#ifdef FL_HAVE_AVX2
#define ROWS_AVX2 fl_softmax_avx2
#else
#define ROWS_AVX2 fl_softmax_portable
#endif
#ifdef FL_HAVE_AVX512
#define ROWS_AVX512 fl_softmax_avx512bw
#else
#define ROWS_AVX512 ROWS_AVX2
#endif

fl_softmax_rows fl_softmax_select(enum fl_backend cap) {
    static const fl_softmax_rows rows[FL_BACKENDS] = {plain_rows, fl_softmax_portable, ROWS_AVX2, ROWS_AVX512,
                                                      ROWS_AVX512};
    return rows[cap];
}

struct job {
    struct fl_softmax softmax;
    const tensor *x;
    int64_t rows, rows_per_part;
    fl_softmax_rows run;
};

static void run_part(void *context, int part, int worker) {
    (void)worker;
    const struct job *job = context;
    const struct fl_view x = fl_view_of(job->x);
    const int64_t first = part * job->rows_per_part, classes = job->softmax.classes;
    const int64_t end = first + job->rows_per_part < job->rows ? first + job->rows_per_part : job->rows;
    job->x->format->decode(&x, first * classes, (end - first) * classes, job->softmax.z + first * classes);
    job->run(&job->softmax, first, end);
}

tensor_status tensor_softmax_cross_entropy(double *loss, tensor *dx, int32_t *predicted, const tensor *x,
                                           const int32_t *labels, double gradient_scale) {
    static const char name[] = "softmax_cross_entropy";
    if (!loss || !x || !labels)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: %s is NULL", name, !loss ? "loss" : !x ? "x" : "labels");
    char tx[TENSOR_TEXT], td[TENSOR_TEXT];
    if (x->ndim != 2)
        return fl_fail(TENSOR_E_SHAPE, "%s: x is %s, expected [N, classes]", name, fl_shape_text(x, tx));
    if (dx && dx->format != x->format)
        return fl_fail(TENSOR_E_FORMAT, "%s: dx is %s, x is %s", name, dx->format->name, x->format->name);
    if (dx && (dx->ndim != 2 || dx->shape[0] != x->shape[0] || dx->shape[1] != x->shape[1]))
        return fl_fail(TENSOR_E_SHAPE, "%s: dx is %s, x is %s", name, fl_shape_text(dx, td), fl_shape_text(x, tx));
    tensor_status status = fl_check_apart(name, "dx", dx, "x", x);
    if (status)
        return status;
    if (!isfinite(gradient_scale))
        return fl_fail(TENSOR_E_ARGUMENT, "%s: gradient_scale is %g, expected a finite number", name, gradient_scale);
    const int64_t rows = x->shape[0], classes = x->shape[1];
    for (int64_t i = 0; i < rows; i++)
        if (labels[i] < 0 || labels[i] >= classes)
            return fl_fail(TENSOR_E_ARGUMENT, "%s: label %lld is %d, expected 0 to %lld", name, (long long)i, labels[i],
                           (long long)classes - 1);
    enum fl_backend cap;
    status = fl_backend_cap(&cap);
    if (status)
        return status;
    double *z = fl_scratch(2, (size_t)(x->count + 2 * rows) * sizeof *z);
    if (!z)
        return fl_fail(TENSOR_E_MEMORY, "%s: no memory for %lld logits", name, (long long)x->count);
    struct job job = {.softmax = {.z = z,
                                  .labels = labels,
                                  .classes = classes,
                                  .weight = gradient_scale / (double)rows,
                                  .gradient = dx != NULL,
                                  .loss = z + x->count,
                                  .largest = (int32_t *)(z + x->count + rows)},
                      .x = x,
                      .rows = rows,
                      .rows_per_part = PART / classes > LEAST_ROWS ? PART / classes : LEAST_ROWS,
                      .run = fl_softmax_select(cap)};
    fl_parallel((int)((rows + job.rows_per_part - 1) / job.rows_per_part), run_part, &job);
    if (dx)
        fl_write_values(dx, z);
    double total = 0;
    for (int64_t i = 0; i < rows; i++)
        total += job.softmax.loss[i];
    if (predicted)
        memcpy(predicted, job.softmax.largest, (size_t)rows * sizeof *predicted);
    *loss = total / (double)rows;
    return TENSOR_OK;
}
