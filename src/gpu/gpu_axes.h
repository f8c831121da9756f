/* gpu_axes.h - reductions over any dimensions, their gradients, argmax, and operations of broadcast operands, for the
 * formats of a folder. A thread folds FL_ROWS_CHUNK terms of one output into the workspace; then one thread for each
 * output adds these results in order.
 *
 * Expects: the codec of a folder (gpu_element.h).
 * Gives: add_axes. */
#ifndef FL_GPU_AXES_H
#define FL_GPU_AXES_H

#include "core/ops/axes/axes_rules.h"
#include "gpu/gpu_element.h"

namespace {

/* The result of a chunk, or of a whole group: an exact sum, a chain, or the best term. */
union axes_part {
    int64_t whole;
    double real;
};

/* The host computes the walks of a task, once for all threads. */
struct axes_walks {
    struct fl_walk groups, elements;
};

static struct axes_walks axes_walks_of(const struct fl_args &args) {
    const struct axes_walks walks = {fl_walk_of_groups(&args), fl_walk_of_elements(&args)};
    return walks;
}

__host__ __device__ static inline int64_t axes_chunks(const struct fl_walk &groups) {
    return (groups.terms + FL_ROWS_CHUNK - 1) / FL_ROWS_CHUNK;
}
__device__ static inline union axes_part *axes_parts(const struct fl_args &args) {
    return (union axes_part *)args.workspace;
}
/* After the parts: for each group, the number that its gradients need. */
__device__ static inline double *axes_groups(const struct fl_args &args, const struct fl_walk &groups) {
    return (double *)args.workspace + axes_chunks(groups) * groups.outer;
}
static size_t axes_need(const struct fl_args *args) {
    const struct fl_walk groups = fl_walk_of_groups(args);
    return (size_t)((axes_chunks(groups) + fl_axes_folded(args->op)) * groups.outer) * sizeof(union axes_part);
}

/* The operand to be folded. */
__device__ static inline const struct fl_view &axes_folded(const struct fl_args &args) {
    return args.in[fl_axes_folded(args.op)];
}

__global__ void axes_fold(const struct gpu_call call, const struct axes_walks walks) {
    const struct fl_args &args = call.args;
    const struct fl_walk &g = walks.groups;
    const struct fl_view &x = axes_folded(args), &z = args.in[1];
    const enum fl_fold_kind kind = fl_fold_kind_of(args.op);
    const int64_t chunks = axes_chunks(g);
    gpu_each(call.control, chunks * g.outer, [&](int64_t i) {
        const int64_t first = i % chunks * FL_ROWS_CHUNK, row = i / chunks * g.terms,
                      end = first + FL_ROWS_CHUNK < g.terms ? first + FL_ROWS_CHUNK : g.terms;
        union axes_part part;
        part.whole = fl_fold_picks(kind) ? first : 0;
        double best = 0;
        for (int64_t t = first; t < end; t++) {
            const int64_t at = fl_walk_at(&g, 0, row + t),
                          other = kind == FL_FOLD_PRODUCTS ? fl_walk_at(&g, 1, row + t) : 0;
            if (fl_fold_picks(kind)) {
                const double v = gpu_value(x, 0, at);
                if (t == first || fl_fold_better(kind, v, best)) {
                    best = v;
                    part.whole = t;
                }
                continue;
            }
#ifdef FL_SHARED_EXPONENT
            part.whole += fl_fold_exact_term(kind, ((const fl_element *)x.data)[at],
                                             kind == FL_FOLD_PRODUCTS ? ((const fl_element *)z.data)[other] : 0);
#else
            part.real = fl_fold_chain(kind, part.real, gpu_value(x, 0, at),
                                      kind == FL_FOLD_PRODUCTS ? gpu_value(z, 0, other) : 0);
#endif
        }
        axes_parts(args)[i] = part;
    });
}

/* The sum of the chunks of an output. */
struct axes_total {
    fl_int128 exact;
    double total;
    int64_t at; /* position of the best term */
};

__device__ static struct axes_total axes_add_up(const struct fl_args &args, const struct fl_walk &g, int64_t out) {
    const enum fl_fold_kind kind = fl_fold_kind_of(args.op);
    const union axes_part *part = axes_parts(args) + out * axes_chunks(g);
    const struct fl_view &x = axes_folded(args);
    struct axes_total sum = {0, 0, 0};
    double best = 0;
    for (int64_t i = 0; i < axes_chunks(g); i++) {
        if (fl_fold_picks(kind)) {
            const double v = gpu_value(x, 0, fl_walk_at(&g, 0, out * g.terms + part[i].whole));
            if (i == 0 || fl_fold_better(kind, v, best)) {
                best = v;
                sum.at = part[i].whole;
            }
        } else if (GPU_SHARED) {
            sum.exact += part[i].whole;
        } else {
            sum.total += part[i].real;
        }
    }
    return sum;
}

__global__ void axes_reduce(const struct gpu_call call, const struct axes_walks walks) {
    const struct fl_args &args = call.args;
    const struct fl_walk &g = walks.groups;
    const int ex = fl_exponent(&args.in[0]), ez = fl_exponent(&args.in[1]);
    gpu_elements(
        call, g.outer, [&](int64_t i) -> struct gpu_result {
            const struct axes_total sum = axes_add_up(args, g, i);
            if (fl_fold_picks(fl_fold_kind_of(args.op)))
                return gpu_value(args.in[0], ex, fl_walk_at(&g, 0, i * g.terms + sum.at));
            if (!GPU_SHARED)
                return fl_axes_float(args.op, sum.total, g.terms);
            const struct fl_axes_value value = fl_axes_exact(args.op, sum.exact, ex, ez, g.terms);
            return {value.odd, value.near};
        });
}

/* Computes for each group the number that its gradients need, or the position of the largest term. */
__global__ void axes_ask(const struct gpu_call call, const struct axes_walks walks) {
    const struct fl_args &args = call.args;
    gpu_each(call.control, walks.groups.outer, [&](int64_t i) {
        const struct axes_total sum = axes_add_up(args, walks.groups, i);
        if (args.op == FL_OP_ARGMAX)
            ((int32_t *)args.out.data)[i] = (int32_t)sum.at;
        else
            axes_groups(args, walks.groups)[i] =
                args.op == FL_OP_REDUCE_L2_GRAD ? fl_axes_norm(sum.exact, sum.total, GPU_SHARED) : (double)sum.at;
    });
}

__global__ void axes_slopes(const struct gpu_call call, const struct axes_walks walks) {
    const struct fl_args &args = call.args;
    const int edy = fl_exponent(&args.in[0]);
    gpu_elements(call, args.out.count, [&](int64_t i) {
        const int64_t group = fl_walk_at(&walks.elements, 0, i);
        const double dy = gpu_value(args.in[0], edy, group), of_group = axes_groups(args, walks.groups)[group];
        if (args.op == FL_OP_REDUCE_L2_GRAD) /* x by its mantissas */
            return fl_axes_l2_slope(dy, gpu_value(args.in[1], 0, fl_walk_at(&walks.elements, 1, i)), of_group);
        return of_group == (double)fl_walk_at(&walks.elements, 2, i) ? dy : 0;
    });
}

__global__ void axes_elements(const struct gpu_call call, const struct axes_walks walks) {
    const struct fl_args &args = call.args;
    const int ea = fl_exponent(&args.in[0]), eb = fl_exponent(&args.in[1]);
    const int64_t parameter = fl_axes_parameter(&args);
    gpu_elements(
        call, args.out.count, [&](int64_t i) -> struct gpu_result {
            const double a = gpu_value(args.in[0], ea, fl_walk_at(&walks.elements, 0, i)),
                         b = args.in[1].data ? gpu_value(args.in[1], eb, fl_walk_at(&walks.elements, 1, i)) : 0;
            const bool mark = args.p.axes.marks && args.p.axes.marks[fl_walk_at(&walks.elements, 2, i)];
            const struct fl_axes_value value = fl_axes_element(args.op, a, b, mark, parameter, ea, GPU_SHARED);
            return {value.odd, value.near};
        });
}

/* --- on the host -------------------------------------------------------------------------------------------------- */

static cudaError_t run_axes_elements(const struct gpu_call *call, cudaStream_t stream) {
    return gpu_run(axes_elements, call->args.out.count, call, stream, axes_walks_of(call->args));
}

/* Folds chunks, then runs `end` with a thread for each sum. */
template <void (*end)(const struct gpu_call call, const struct axes_walks walks)>
static cudaError_t run_axes_fold(const struct gpu_call *call, cudaStream_t stream) {
    const struct axes_walks walks = axes_walks_of(call->args);
    TRY_CUDA(gpu_run(axes_fold, axes_chunks(walks.groups) * walks.groups.outer, call, stream, walks));
    return gpu_run(end, walks.groups.outer, call, stream, walks);
}

static cudaError_t run_axes_slopes(const struct gpu_call *call, cudaStream_t stream) {
    TRY_CUDA(run_axes_fold<axes_ask>(call, stream));
    return gpu_run(axes_slopes, call->args.out.count, call, stream, axes_walks_of(call->args));
}

static void add_axes(struct gpu_kernels *to) {
    gpu_add(to,
            {FL_OP_REDUCE_SUM, FL_OP_REDUCE_MEAN, FL_OP_REDUCE_MAX, FL_OP_REDUCE_MIN, FL_OP_REDUCE_L1, FL_OP_REDUCE_L2,
             FL_OP_BROADCAST_MUL_GRAD},
            run_axes_fold<axes_reduce>, axes_need);
    gpu_add(to, {FL_OP_REDUCE_MAX_GRAD, FL_OP_REDUCE_MIN_GRAD, FL_OP_REDUCE_L2_GRAD}, run_axes_slopes, axes_need);
    gpu_add(to, {FL_OP_ARGMAX}, run_axes_fold<axes_ask>, axes_need);
    gpu_add(to,
            {FL_OP_REDUCE_SUM_GRAD, FL_OP_REDUCE_MEAN_GRAD, FL_OP_REDUCE_L1_GRAD, FL_OP_BROADCAST_ADD,
             FL_OP_BROADCAST_MUL, FL_OP_WHERE, FL_OP_WHERE_GRAD},
            run_axes_elements);
}

} // namespace

#endif
