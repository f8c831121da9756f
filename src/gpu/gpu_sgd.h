/* gpu_sgd.h - stochastic gradient descent, for the formats of a folder: sums of two or three terms of any exponents,
 * rounded once. If there is a wide part, it is the result, and the element is its rounding.
 *
 * Expects: the codec of a folder (gpu_element.h).
 * Gives: real_at, store_sgd_float, add_sgd. */
#ifndef FL_GPU_SGD_H
#define FL_GPU_SGD_H

#include "flex/flex_sgd_plan.h"
#include "gpu/gpu_integers.h"

namespace {

/* Element i of an operand, or of its wide part if the view has one. */
__device__ static inline double real_at(const struct fl_view &view, int64_t i) {
    return view.wide ? ((const float *)view.wide)[i] : gpu_value(view, 0, i);
}

#ifndef FL_SHARED_EXPONENT
__device__ static inline int sgd_terms(const struct fl_args &args, float alpha, int64_t i, struct fl_term *terms) {
    const bool update = args.op == FL_OP_SGD_UPDATE;
    if (args.op == FL_OP_COMBINE) {
        const int n = args.in[2].data ? 3 : 2;
        for (int j = 0; j < n; j++)
            terms[j] = fl_term_of_double((double)(float)args.p.factored.factors[j] * real_at(args.in[j], i));
        return n;
    }
    /* products of two binary32 numbers are exact in double */
    const double a = real_at(args.in[0], i), b = real_at(args.in[1], i);
    terms[0] = fl_term_of_double(update ? a : alpha * a);
    terms[1] = fl_term_of_double(update ? -alpha * b : b);
    if (!update)
        terms[2] = fl_term_of_double(args.p.sgd.weight_decay * real_at(args.in[2], i));
    return update ? 2 : 3;
}

/* Whether all numbers are finite; otherwise *sum is the result of ordinary arithmetic. */
__device__ static inline bool is_usual_combination(const struct fl_args &args, int64_t i, double *sum) {
    double x[3] = {0, 0, 0}, f[3] = {0, 0, 0};
    bool usual = true;
    for (int j = 0; j < 3 && args.in[j].data; j++) {
        f[j] = (float)args.p.factored.factors[j];
        x[j] = real_at(args.in[j], i);
        usual = usual && fl_is_finite(f[j]) && fl_is_finite(x[j]);
    }
    *sum = f[0] * x[0] + f[1] * x[1] + (args.in[2].data ? f[2] * x[2] : 0);
    return usual;
}

__device__ static inline bool is_usual(const struct fl_args &args, float alpha, int64_t i, double *sum) {
    if (args.op == FL_OP_COMBINE)
        return is_usual_combination(args, i, sum);
    const bool update = args.op == FL_OP_SGD_UPDATE;
    const double a = real_at(args.in[0], i), b = real_at(args.in[1], i), c = update ? 0 : real_at(args.in[2], i);
    *sum = update ? a - alpha * b : alpha * a + b + args.p.sgd.weight_decay * c;
    return fl_is_finite(a) && fl_is_finite(b) && fl_is_finite(c);
}

__device__ static inline void store_sgd_float(const struct gpu_now &now, const struct fl_args &args, int64_t i,
                                              double value, bool wide, struct fl_stats *stats) {
    const float x = (float)value;
    if (!wide) {
        gpu_store(now, i, value, stats);
        return;
    }
    if (now.out)
        ((float *)args.out.wide)[i] = x;
    gpu_store_float(now, i, x, stats);
}
#endif

__global__ void sgd(const struct gpu_call call) {
    const struct fl_args &args = call.args;
    const bool wide = args.out.wide != NULL;
    const float alpha = args.op == FL_OP_SGD_UPDATE     ? gpu_late(args.late, args.p.sgd.rate)
                        : args.op == FL_OP_SGD_MOMENTUM ? args.p.sgd.momentum
                                                        : 0;
#ifdef FL_SHARED_EXPONENT
    struct gpu_now now;
    if (!gpu_begin(call, &now))
        return;
    const struct flex_sgd plan = flex_sgd_of_task(&args, alpha, now.rounding.mode == TENSOR_ROUND_STOCHASTIC);
    struct gpu_sums sums;
    sums.begin(now, 0, now.e);
    for (int64_t i = gpu_first(); i < args.out.count; i += gpu_stride()) {
        const struct fl_wide_sum sum = flex_sgd_sum(&args, &plan, i);
        int32_t kept = 0;
        const fl_element m = wide ? sums.round_both(sum, &kept) : sums.round_wide(now, i, sum);
        if (now.out && wide)
            ((int32_t *)args.out.wide)[i] = kept;
        if (now.out)
            ((fl_element *)now.out)[i] = m;
    }
    sums.report(call.control);
#else
    gpu_store_each(call, args.out.count, [&](const auto &now, int64_t i, auto *stats) {
        struct fl_term terms[3];
        double value;
        if (is_usual(args, alpha, i, &value))
            value = fl_terms_odd(fl_terms_sum(terms, sgd_terms(args, alpha, i, terms)));
        store_sgd_float(now, args, i, value, wide, stats);
    });
#endif
}

static void add_sgd(struct gpu_kernels *to) {
    gpu_add(to, {FL_OP_SGD_MOMENTUM, FL_OP_SGD_UPDATE, FL_OP_COMBINE}, gpu_run_all<sgd, 4>);
}

} // namespace

#endif
