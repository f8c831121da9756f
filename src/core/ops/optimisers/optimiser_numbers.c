/* optimiser_numbers.c - operations of optimisers whose results are numbers: sums of squares, the numbers of a step.
 * They serve every format through its codec. */
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/ops/optimisers/optimiser_rules.h"
#include "core/base/parallel.h"
#include "core/reference/ref.h"
#include <math.h>

/* One number for each chunk: an exact sum, or a double. */
union chunk {
    int64_t exact;
    double real;
};

struct squares {
    const struct fl_args *args;
    union chunk *chunks;
};

static int64_t exact_squares(const double *x, int64_t n, double unit) {
    int64_t sum = 0;
    for (int64_t i = 0; i < n; i++) {
        const int64_t m = (int64_t)(x[i] * unit);
        sum += m * m;
    }
    return sum;
}

static double chained_squares(const double *x, int64_t n) {
    double chains[FL_SQUARES_CHAINS] = {0};
    for (int64_t i = 0; i < n; i += FL_SQUARES_CHAINS)
        for (int j = 0; j < FL_SQUARES_CHAINS && i + j < n; j++)
            chains[j] += x[i + j] * x[i + j];
    return fl_sum_chains(chains);
}

static void chunk(void *context, int number, int worker) {
    (void)worker;
    const struct squares *s = context;
    const struct fl_view *x = &s->args->in[0];
    const int64_t first = (int64_t)number * FL_SQUARES_CHUNK;
    const int64_t n = x->count - first < FL_SQUARES_CHUNK ? x->count - first : FL_SQUARES_CHUNK;
    double values[FL_SQUARES_CHUNK];
    s->args->format->decode(s->args->format, x, first, n, values);
    if (fl_ref_shared(s->args))
        s->chunks[number].exact = exact_squares(values, n, ldexp(1, fl_exponent(x)));
    else
        s->chunks[number].real = chained_squares(values, n);
}

size_t fl_sum_squares_need(const struct fl_args *args) {
    return (size_t)fl_squares_chunks(args->in[0].count) * sizeof(union chunk);
}

tensor_status fl_sum_squares(const struct fl_args *args) {
    const int64_t count = fl_squares_chunks(args->in[0].count);
    struct squares s = {args, fl_workspace(args, fl_sum_squares_need(args))};
    if (!s.chunks)
        return TENSOR_E_MEMORY;
    fl_parallel((int)count, chunk, &s);
    *args->p.sum_squares.sum = fl_ref_shared(args)
                                   ? fl_exact_squares(&s.chunks->exact, count, fl_exponent(&args->in[0]))
                                   : fl_float_squares(&s.chunks->real, count);
    return TENSOR_OK;
}

tensor_status fl_optimiser_numbers(const struct fl_args *args) {
    const struct fl_optimiser_step *s = &args->p.optimiser_step;
    fl_optimiser_step(s->numbers, s->rate, s->sums, s->sums_count, s->scale);
    return TENSOR_OK;
}

tensor_status fl_trust_number(const struct fl_args *args) {
    *(float *)args->out.data = fl_trust_rate(args->p.trust_rate.rate, args->p.trust_rate.sums);
    return TENSOR_OK;
}
