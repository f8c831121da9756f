/* gpu_maps.h - the elementwise operations of ops.def and bias, for the formats of a folder. They are generated from its
 * entries: a new entry needs no change here.
 *
 * Expects: the codec of a folder (gpu_element.h).
 * Gives: add_maps. */
#ifndef FL_GPU_MAPS_H
#define FL_GPU_MAPS_H

#include "core/real/real_rules.h"
#include "gpu/gpu_affine.h"

namespace {

#define MAP_NAME(name) odd_##name
#define FL_SUM(p, q) fl_sum_odd(p, q)
#define FL_FUNCTION(name) fl_odd_##name
#include "core/reference/ref_map_expr.inc"
#define MAP_NAME(name) near_##name
#define FL_SUM(p, q) ((p) + (q))
#define FL_FUNCTION(name) fl_odd_##name
#include "core/reference/ref_map_expr.inc"

#include "core/table/no_real_rows.inc"
#define FL_MAP1(id, CONSTANT, name, expr)                                                                              \
    struct map_##name {                                                                                                \
        static constexpr int op = id;                                                                                  \
        __device__ static double odd(double a, double b, double c, double alpha) {                                     \
            return odd_##name(a, b, c, alpha);                                                                         \
        }                                                                                                              \
        __device__ static double near(double a, double b, double c, double alpha) {                                    \
            return near_##name(a, b, c, alpha);                                                                        \
        }                                                                                                              \
    };
#define FL_MAP1_SCALAR FL_MAP1
#define FL_MAP2 FL_MAP1
#define FL_MAP2_SCALAR FL_MAP1
#define FL_MAP3 FL_MAP1
#include "flexlab/ops.def"

/* period: the number of elements of in[1], which repeats; 0: it has as many as the output. */
template <class Map> __global__ void map_elements(const struct gpu_call call, int64_t period) {
    const struct fl_args &args = call.args;
    const int ea = fl_exponent(&args.in[0]), eb = fl_exponent(&args.in[1]), ec = fl_exponent(&args.in[2]);
    const float alpha = period ? 0 : gpu_late(args.late, args.p.map.alpha); /* a bias has no alpha */
    gpu_elements(call, args.out.count, [&](int64_t i) {
        const double a = gpu_value(args.in[0], ea, i),
                     b = args.in[1].data ? gpu_value(args.in[1], eb, period ? i % period : i) : 0,
                     c = args.in[2].data ? gpu_value(args.in[2], ec, i) : 0;
        return gpu_result(Map::odd(a, b, c, alpha), Map::near(a, b, c, alpha));
    });
}

template <class Map> static cudaError_t run_map(const struct gpu_call *call, cudaStream_t stream) {
#ifdef FL_SHARED_EXPONENT
    if constexpr (gpu_is_linear(Map::op))
        return run_linear(call, stream);
    else
#endif
        return gpu_run(map_elements<Map>, call->args.out.count, call, stream, 0);
}

template <class Map> static cudaError_t run_bias(const struct gpu_call *call, cudaStream_t stream) {
    return gpu_run(map_elements<Map>, call->args.out.count, call, stream, call->args.p.rows.n);
}

/* --- real functions: one kernel for all of them ------------------------------------------------------------------- */

/* The function of the operation, exact or rounded to odd. */
__device__ static __attribute__((noinline)) double gpu_real(int op, double a, double b, double c, double alpha) {
    switch (op) {
#define FL_REAL1(id, CONSTANT, name, expr)                                                                             \
    case id:                                                                                                           \
        return odd_##name(a, b, c, alpha);
#define FL_REAL1_SCALAR FL_REAL1
#define FL_REAL1_SCALARS FL_REAL1
#define FL_REAL2 FL_REAL1
#define FL_REAL2_SCALAR FL_REAL1
#define FL_REAL2_SCALARS FL_REAL1
#include "flexlab/ops.def"
    default:
        return 0;
    }
}

__global__ void real_elements(const struct gpu_call call) {
    const struct fl_args &args = call.args;
    const int ea = fl_exponent(&args.in[0]), eb = fl_exponent(&args.in[1]);
    gpu_store_each(call, args.out.count, [&](const auto &now, int64_t i, auto *stats) {
        const double a = gpu_value(args.in[0], ea, i), b = args.in[1].data ? gpu_value(args.in[1], eb, i) : 0;
        const double y = gpu_real(args.op, a, b, args.p.map.beta, args.p.map.alpha);
        gpu_store_once(now, i, {y, fl_coarse(y)}, false, stats);
    });
}

static void add_maps(struct gpu_kernels *to) {
#define FL_REAL1(id, CONSTANT, name, expr) to->op[id] = gpu_run_all<real_elements>;
#define FL_REAL1_SCALAR FL_REAL1
#define FL_REAL1_SCALARS FL_REAL1
#define FL_REAL2 FL_REAL1
#define FL_REAL2_SCALAR FL_REAL1
#define FL_REAL2_SCALARS FL_REAL1
#define FL_MAP1(id, CONSTANT, name, expr) to->op[id] = run_map<map_##name>;
#define FL_MAP1_SCALAR FL_MAP1
#define FL_MAP2 FL_MAP1
#define FL_MAP2_SCALAR FL_MAP1
#define FL_MAP3 FL_MAP1
#include "flexlab/ops.def"
    to->op[FL_OP_BIAS] = run_bias<map_add>;
    to->op[FL_OP_BIAS_RELU] = run_bias<map_add_relu>;
}

} // namespace

#endif
