/* gpu_affine.h - affine maps of integers under shared exponents, first (a - centre) + cross (b - centre) + offset:
 * batch normalisation, whose channels have coefficients of their own, and elementwise operations that are linear in
 * their operands, as maps of one channel.
 *
 * Integers of 64 bits hold the sums of most channels, of 128 bits those of nearly all others (flex_affine_plan.h); the
 * rest are added as terms.
 *
 * Expects: the codec of a folder (gpu_element.h). Gives: run_channel_affine, gpu_is_linear, run_linear. */
#ifndef FL_GPU_AFFINE_H
#define FL_GPU_AFFINE_H

#include "flex/flex_map_plan.h"
#include "gpu/gpu_integers.h"

#ifdef FL_SHARED_EXPONENT
namespace {

/* The sums of a channel as integers of 64 bits, if they hold them. */
struct affine_plan {
    bool holds;
    struct affine_whole whole;
};

__device__ static inline struct affine_plan affine_plan_of(const struct affine_channel &p) {
    struct affine_plan plan = {};
    plan.holds = affine_as_whole(&p, &plan.whole);
    return plan;
}

__device__ static inline void affine_keep(int64_t *to, const struct affine_plan &plan) {
    to[0] = plan.whole.first;
    to[1] = plan.whole.cross;
    to[2] = plan.whole.constant;
    to[3] = plan.holds ? plan.whole.exponent : INT64_MIN;
}

__device__ static inline struct affine_plan affine_kept(const int64_t *from) {
    return {from[3] != INT64_MIN, {from[0], from[1], from[2], (int)from[3]}};
}

enum affine_gate { AFFINE_OPEN, AFFINE_GATES_FIRST, AFFINE_GATES_ALL };

struct affine_form {
    int64_t channels; /* 0: an operation that is linear */
    bool second, relu;
    int gate;      /* the operand that must be above zero */
    int gate_kind; /* for in[0] to count, or for both: enum affine_gate */
};

/* The elements of a thread. */
struct affine_items {
    const fl_element *a, *b, *gate;
    int64_t first, end, step;
};

__device__ static inline struct affine_channel affine_of(const struct fl_args &args, const struct affine_form &form,
                                                         int64_t c) {
    if (form.channels)
        return affine_channel_of(&args.p.batch_norm.channels, c, form.second);
    const struct flex_linear l = flex_linear_terms(args.op, fl_exponent(&args.in[0]), fl_exponent(&args.in[1]),
                                                   gpu_late(args.late, args.p.map.alpha));
    return flex_linear_channel(&l);
}

/* Sums of 64 bits that are rounded in the usual way. */
template <int gate_kind, bool second>
__device__ static inline void affine_usual(const struct affine_items &items, const struct affine_whole &k, bool relu,
                                           fl_element *out, struct gpu_sums *sums) {
    const int64_t least = relu ? 0 : INT64_MIN;
    for (int64_t i = items.first; i < items.end; i += items.step) {
        int32_t x = items.a[i], y = second ? items.b[i] : 0;
        if (gate_kind != AFFINE_OPEN) {
            const bool open = items.gate[i] > 0;
            x = open ? x : 0;
            y = open || gate_kind == AFFINE_GATES_FIRST ? y : 0;
        }
        const int64_t t = k.constant + k.first * x + (second ? k.cross * y : 0);
        const fl_element m = sums->round_usual(t > least ? t : least);
        if (out)
            out[i] = m;
    }
}

/* Any sums: of 128 bits where these hold them, else of terms. */
__device__ static inline void affine_any(const struct gpu_now &now, const struct affine_items &items,
                                         const struct affine_channel &p, const struct affine_form &form,
                                         struct gpu_sums *sums) {
    struct affine_wide wide = {};
    const bool holds = affine_as_wide(&p, &wide);
    fl_uint128 most = 0; /* of the sums of 128 bits */
    for (int64_t i = items.first; i < items.end; i += items.step) {
        const bool open = form.gate_kind == AFFINE_OPEN || items.gate[i] > 0;
        const int64_t x = open ? items.a[i] : 0,
                      y = form.second && (open || form.gate_kind == AFFINE_GATES_FIRST) ? items.b[i] : 0;
        fl_element m;
        if (holds) {
            struct fl_wide_sum sum = {wide.constant + wide.first * x + wide.cross * y, wide.exponent};
            if (form.relu && sum.m < 0)
                sum.m = 0;
            const fl_uint128 size = fl_magnitude_128(sum.m);
            most = size > most ? size : most;
            m = sums->round_unseen(now, i, sum);
        } else {
            const struct fl_term terms[3] = {{p.first.m * (x - p.first_centre), p.first.e},
                                             {p.cross.m * (y - p.cross_centre), p.cross.e},
                                             {p.offset.m, p.offset.e}};
            m = sums->round_terms(now, i, terms, 3, form.relu);
        }
        if (now.out)
            ((fl_element *)now.out)[i] = m;
    }
    sums->see({(fl_int128)most, wide.exponent});
}

/* A thread has one channel; threads that do not fill a row of channels have none. Where there are more channels than
 * threads, there are several rounds. */
__global__ void affine_elements(const struct gpu_call call, const struct affine_form form) {
    struct gpu_now now;
    if (!gpu_begin(call, &now))
        return;
    const struct fl_args &args = call.args;
    const int64_t n = form.channels ? form.channels : 1, step = gpu_stride() < n ? n : gpu_stride() / n * n;
    fl_element *const out = (fl_element *)now.out;
    for (int64_t round = 0; round < n; round += gpu_stride()) {
        const int64_t first = round + gpu_first(), c = first % n;
        const struct affine_items items = {
            (const fl_element *)args.in[0].data,         (const fl_element *)args.in[1].data,
            (const fl_element *)args.in[form.gate].data, first,
            first < step ? args.out.count : first,       step};
        const struct affine_plan plan = form.channels ? affine_kept(args.p.batch_norm.channels.whole + c * FL_WHOLE)
                                                      : affine_plan_of(affine_of(args, form, 0));
        struct gpu_sums sums;
        sums.begin(now, plan.holds ? plan.whole.exponent : 0, now.e);
        if (!plan.holds || !sums.usual)
            affine_any(now, items, affine_of(args, form, c), form, &sums);
        else if (form.gate_kind == AFFINE_OPEN && !form.second)
            affine_usual<AFFINE_OPEN, false>(items, plan.whole, form.relu, out, &sums);
        else if (form.gate_kind == AFFINE_OPEN)
            affine_usual<AFFINE_OPEN, true>(items, plan.whole, form.relu, out, &sums);
        else if (form.gate_kind == AFFINE_GATES_FIRST)
            affine_usual<AFFINE_GATES_FIRST, true>(items, plan.whole, form.relu, out, &sums);
        else if (form.second)
            affine_usual<AFFINE_GATES_ALL, true>(items, plan.whole, form.relu, out, &sums);
        else
            affine_usual<AFFINE_GATES_ALL, false>(items, plan.whole, form.relu, out, &sums);
        sums.report(call.control);
    }
}

static cudaError_t run_affine(const struct gpu_call *call, cudaStream_t stream, const struct affine_form &form) {
    return gpu_run(affine_elements, (call->args.out.count + 3) / 4, call, stream, form);
}

static cudaError_t run_channel_affine(const struct gpu_call *call, cudaStream_t stream) {
    const struct fl_args &args = call->args;
    return run_affine(call, stream,
                      {args.p.batch_norm.n, args.in[1].data != NULL, args.p.batch_norm.relu, 2,
                       args.in[2].data ? AFFINE_GATES_FIRST : AFFINE_OPEN});
}

static constexpr bool gpu_is_linear(int op) {
    return op == FL_OP_ADD || op == FL_OP_SUB || op == FL_OP_ADD_SCALED || op == FL_OP_SCALE || op == FL_OP_RELU ||
           op == FL_OP_RELU_GRAD || op == FL_OP_ADD_RELU || op == FL_OP_ADD_RELU_GRAD || op == FL_OP_NEG;
}

static cudaError_t run_linear(const struct gpu_call *call, cudaStream_t stream) {
    const struct flex_linear l = flex_linear_terms(call->args.op, 0, 0, 1);
    return run_affine(call, stream, {0, l.two, l.relu, l.gate, l.gate ? AFFINE_GATES_ALL : AFFINE_OPEN});
}

} // namespace
#endif

#endif
