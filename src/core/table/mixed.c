/* mixed.c - operands and results of different formats: which kernels compute the products of a task, and how its
 * results are rounded. */
#include "core/table/mixed.h"
#include <math.h>

static bool is_shared(const struct fl_format *f) {
    return f->arithmetic == FL_ARITHMETIC_SHARED;
}

bool fl_same_kernels(const struct fl_format *f, const struct fl_format *g) {
    for (int i = 0; i < FL_KERNEL_SETS; i++)
        if (f->sets[i] != g->sets[i])
            return false;
    return f->decode == g->decode && f->encode == g->encode && f->bytes == g->bytes && f->element == g->element;
}

const struct fl_format *fl_product_format(const struct fl_args *args) {
    const struct fl_format *a = fl_operand_format(args, 0), *b = fl_operand_format(args, 1);
    if (!a->element && (a == b || fl_same_kernels(a, b)))
        return a;
    return is_shared(a) ? NULL : fl_format_of(FMT_FP32);
}

static void encode(const struct fl_args *args, bool exact, int64_t first, int64_t n, const double *value,
                   const double *near, struct fl_stats *stats) {
    struct fl_stats mine = {0};
    const bool shared = is_shared(args->format);
    args->format->encode(args->format, &args->out, first, n, value, !exact && !shared, &args->rounding, &mine);
    if (exact || shared) { /* the maximum is that of the result itself; shared exponents have no infinity */
        mine.maximum = 0;
        for (int64_t i = 0; i < n; i++) {
            const double size = fabs(near[i]);
            if (size > mine.maximum && !(fl_has_exponent(args->format) && isinf(size)))
                mine.maximum = size;
        }
    }
    if (exact && !shared && args->rounding.mode == TENSOR_ROUND_STOCHASTIC && args->out.data) {
        /* the codec counts results as binary32, which cannot hold all of them: these counts come from the elements
         */
        const bool saturates = args->format->element && args->format->element->saturates;
        mine.saturated = saturates ? mine.saturated : 0;
        mine.nonfinite = saturates ? 0 : mine.nonfinite;
        mine.flushed = 0;
        for (int64_t i = 0; i < n; i++) {
            double stored;
            args->format->decode(args->format, &args->out, first + i, 1, &stored);
            mine.saturated += isfinite(value[i]) && !isfinite(stored);
            mine.nonfinite += saturates && !isfinite(value[i]);
            mine.flushed += isfinite(value[i]) && value[i] != 0 && stored == 0;
        }
    }
    fl_stats_merge(stats, &mine);
}

void fl_encode_mixed(const struct fl_args *args, int64_t first, int64_t n, const double *value, const double *near,
                     struct fl_stats *stats) {
    encode(args, fl_sums_exactly(args), first, n, value, near, stats);
}

void fl_encode_exact(const struct fl_args *args, int64_t first, int64_t n, const double *value, const double *near,
                     struct fl_stats *stats) {
    encode(args, true, first, n, value, near, stats);
}
