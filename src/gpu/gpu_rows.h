/* gpu_rows.h - operations on rows, the last dimension (normalisation, softmax, embedding), normalisation of groups of
 * channels, and copies in another order, for the formats of a folder. A warp computes a row: lane l has elements l, l +
 * 32, ..., which are the chains of sums in float formats (core/ops/norms/row_norm_rules.h).
 *
 * Expects: the codec of a folder (gpu_element.h).
 * Gives: add_rows. */
#ifndef FL_GPU_ROWS_H
#define FL_GPU_ROWS_H

#include "core/ops/losses/softmax_map_rules.h"
#include "core/ops/norms/row_norm_rules.h"
#include "core/ops/copies/copy_rules.h"
#include "gpu/gpu_element.h"

namespace {

enum { ROW_LANES = 32 }; /* a warp */
static_assert((int)ROW_LANES == (int)FL_ROW_CHAINS, "a lane is a chain");

__device__ static inline int row_lane() {
    return (int)(threadIdx.x % ROW_LANES);
}

/* Adds the values of the first `count` lanes in order; all lanes of the warp call it. */
__device__ static inline double sum_of_lanes(double v, double sum, int count) {
    for (int l = 0; l < count; l++)
        sum += __shfl_sync(0xffffffffu, v, l);
    return sum;
}

__device__ static inline int64_t exact_sum_of_lanes(int64_t v) {
    for (int l = 16; l > 0; l /= 2)
        v += (int64_t)__shfl_xor_sync(0xffffffffu, (unsigned long long)v, l);
    return v;
}

__device__ static inline fl_int128 wide_sum_of_lanes(fl_int128 v) {
    for (int l = 16; l > 0; l /= 2) {
        const unsigned long long low = __shfl_xor_sync(0xffffffffu, (unsigned long long)v, l),
                                 high = __shfl_xor_sync(0xffffffffu, (unsigned long long)(v >> 64), l);
        v += (fl_int128)((fl_uint128)high << 64 | low);
    }
    return v;
}

__device__ static inline bool is_mean_square(const struct fl_args &args) {
    return args.op == FL_OP_RMSNORM || args.op == FL_OP_RMSNORM_GRAD || args.op == FL_OP_RMSNORM_GAMMA_GRAD;
}

/* --- normalisation: the numbers of a part ------------------------------------------------------------------------- */

/* What is normalised together: a row, or, if grouped, a group of channels of an image. It finds the place and the
 * channel of its element i. */
template <bool grouped> struct norm_part {
    int64_t first, channel, depth, channels, size;
    __device__ norm_part(const struct fl_norm &g, int64_t number) {
        depth = grouped ? g.n / g.groups : g.n;
        channel = grouped ? number % g.groups * depth : 0;
        channels = g.n;
        size = grouped ? g.m * depth : g.n;
        first = grouped ? number / g.groups * g.m * g.n : number * g.n;
    }
    __device__ int64_t channel_at(int64_t i) const { return grouped ? channel + i % depth : i; }
    __device__ int64_t at(int64_t i) const { return first + (grouped ? i / depth * channels : 0) + channel_at(i); }
    __host__ __device__ static int64_t count(const struct fl_norm &g) { return grouped ? g.batch * g.groups : g.m; }
    /* Rows of channels, and the part of element c of one. */
    __host__ __device__ static int64_t rows(const struct fl_norm &g) { return grouped ? g.batch * g.m : g.m; }
    __device__ static int64_t number_of(const struct fl_norm &g, int64_t row, int64_t c) {
        return grouped ? row / g.m * g.groups + c / (g.n / g.groups) : row;
    }
};

#ifdef FL_SHARED_EXPONENT
/* If dy has no data, only the sums of x. */
template <class Part>
__device__ static struct fl_row_sums part_sums(const struct fl_view &x, const struct fl_view &dy,
                                               const struct fl_view &gamma, const Part &part) {
    struct fl_row_sums s = {0, 0, 0, 0};
    for (int64_t first = 0; first < part.size; first += FL_ROW_BLOCK) {
        const int64_t end = first + FL_ROW_BLOCK < part.size ? first + FL_ROW_BLOCK : part.size;
        int64_t sum = 0, squares = 0, g_sum = 0, products = 0;
        for (int64_t i = first + row_lane(); i < end; i += ROW_LANES) {
            const int64_t at = part.at(i), m = gpu_mantissa(x, at);
            sum += m;
            squares += m * m;
            if (dy.data) {
                const int64_t g = gpu_mantissa(dy, at) * gpu_mantissa(gamma, part.channel_at(i));
                g_sum += g;
                products += g * m;
            }
        }
        s.x += sum;
        s.xx += squares;
        s.g += g_sum;
        s.gx += products;
    }
    s.x = wide_sum_of_lanes(s.x);
    s.xx = wide_sum_of_lanes(s.xx);
    s.g = wide_sum_of_lanes(s.g);
    s.gx = wide_sum_of_lanes(s.gx);
    return s;
}
#else
template <class Part>
__device__ static struct fl_row_numbers part_numbers(const struct fl_args &args, const struct fl_view &x,
                                                     const Part &part) {
    const double count = (double)part.size;
    struct fl_row_numbers r = {0, 0, 0, 0};
    double sum = 0, squares = 0;
    for (int64_t i = row_lane(); i < part.size; i += ROW_LANES)
        sum += gpu_value(x, 0, part.at(i));
    sum = sum_of_lanes(sum, 0, ROW_LANES);
    r.mean = is_mean_square(args) ? 0 : sum / count;
    for (int64_t i = row_lane(); i < part.size; i += ROW_LANES) {
        const double distance = gpu_value(x, 0, part.at(i)) - r.mean;
        squares += distance * distance;
    }
    r.inverse = 1 / sqrt(sum_of_lanes(squares, 0, ROW_LANES) / count + args.p.norm.epsilon);
    return r;
}

template <class Part>
__device__ static void add_gradient_numbers(const struct fl_args &args, const Part &part, struct fl_row_numbers *r) {
    const double count = (double)part.size;
    double sum = 0, products = 0;
    for (int64_t i = row_lane(); i < part.size; i += ROW_LANES) {
        const int64_t at = part.at(i);
        const double g = gpu_value(args.in[0], 0, at) * gpu_value(args.in[2], 0, part.channel_at(i));
        sum += g;
        products += g * fl_row_normal(r, gpu_value(args.in[1], 0, at));
    }
    sum = sum_of_lanes(sum, 0, ROW_LANES);
    r->mean_g = is_mean_square(args) ? 0 : sum / count;
    r->slope = sum_of_lanes(products, 0, ROW_LANES) / count;
}
#endif

/* --- normalisation: y <- x, gamma, beta; dx <- dy, x, gamma ------------------------------------------------------- */

template <bool grouped> __global__ void row_norm(const struct gpu_call call) {
    const struct fl_args &args = call.args;
    const struct fl_view &x = args.in[0], &gamma = args.in[1], &beta = args.in[2];
    using Part = norm_part<grouped>;
    gpu_store_each<ROW_LANES>(call, Part::count(args.p.norm), [&](const auto &now, int64_t k, auto *stats) {
        const Part part(args.p.norm, k);
#ifdef FL_SHARED_EXPONENT
        const struct fl_view none = {};
        const struct fl_row_sums s = part_sums(x, none, none, part);
        const struct fl_row_terms t =
            fl_row_forward(&s, part.size, is_mean_square(args), fl_exponent(&x), args.p.norm.epsilon);
#else
        const struct fl_row_numbers r = part_numbers(args, x, part);
#endif
        for (int64_t i = row_lane(); i < part.size; i += ROW_LANES) {
            const int64_t at = part.at(i), c = part.channel_at(i);
#ifdef FL_SHARED_EXPONENT
            const struct fl_wide_sum y =
                fl_row_value(&t, gpu_mantissa(x, at), gpu_mantissa(gamma, c), fl_exponent(&gamma),
                             beta.data ? gpu_mantissa(beta, c) : 0, fl_exponent(&beta));
#else
            const double y = fl_row_float_value(&r, gpu_value(x, 0, at), gpu_value(gamma, 0, c),
                                                beta.data ? gpu_value(beta, 0, c) : 0);
#endif
            gpu_store(now, at, y, stats);
        }
    });
}

template <bool grouped> __global__ void row_norm_grad(const struct gpu_call call) {
    const struct fl_args &args = call.args;
    const struct fl_view &dy = args.in[0], &x = args.in[1], &gamma = args.in[2];
    using Part = norm_part<grouped>;
    gpu_store_each<ROW_LANES>(call, Part::count(args.p.norm), [&](const auto &now, int64_t k, auto *stats) {
        const Part part(args.p.norm, k);
#ifdef FL_SHARED_EXPONENT
        const struct fl_row_sums s = part_sums(x, dy, gamma, part);
        const struct fl_row_terms t = fl_row_backward(&s, part.size, is_mean_square(args), fl_exponent(&x),
                                                      fl_exponent(&dy) + fl_exponent(&gamma), args.p.norm.epsilon);
#else
        struct fl_row_numbers r = part_numbers(args, x, part);
        add_gradient_numbers(args, part, &r);
#endif
        for (int64_t i = row_lane(); i < part.size; i += ROW_LANES) {
            const int64_t at = part.at(i), c = part.channel_at(i);
#ifdef FL_SHARED_EXPONENT
            const struct fl_wide_sum dx =
                fl_row_gradient(&t, gpu_mantissa(dy, at) * gpu_mantissa(gamma, c), gpu_mantissa(x, at));
#else
            const double dx =
                fl_row_float_gradient(&r, gpu_value(dy, 0, at) * gpu_value(gamma, 0, c), gpu_value(x, 0, at));
#endif
            gpu_store(now, at, dx, stats);
        }
    });
}

/* --- normalisation: dgamma <- dy, x. Numbers of parts, chunk sums, their sums -------------- */

#ifdef FL_SHARED_EXPONENT
typedef struct fl_row_weight row_number;
typedef fl_int128 row_sum;
#else
typedef struct fl_row_numbers row_number;
typedef double row_sum;
#endif

/* The workspace: sums of chunks, numbers of parts, the finest exponent of their weights. */
template <class Part> struct gamma_workspace {
    int64_t chunks;
    row_sum *sums;
    row_number *numbers;
    int *finest;
    size_t bytes;
    __host__ __device__ explicit gamma_workspace(const struct fl_args &args) {
        const struct fl_norm &g = args.p.norm;
        chunks = (Part::rows(g) + FL_ROWS_CHUNK - 1) / FL_ROWS_CHUNK;
        sums = (row_sum *)args.workspace;
        numbers = (row_number *)(sums + chunks * g.n);
        finest = (int *)(numbers + Part::count(g));
        bytes = (size_t)(chunks * g.n) * sizeof *sums + (size_t)Part::count(g) * sizeof *numbers + 16;
    }
};
template <bool grouped> static size_t gamma_need(const struct fl_args *args) {
    return gamma_workspace<norm_part<grouped>>(*args).bytes;
}

template <bool grouped> __global__ void begin_gamma(const struct gpu_call call) {
    if (!gpu_idles(call.control))
        *gamma_workspace<norm_part<grouped>>(call.args).finest = INT32_MIN;
}

template <bool grouped> __global__ void gamma_parts(const struct gpu_call call) {
    if (gpu_idles(call.control))
        return;
    using Part = norm_part<grouped>;
    const struct fl_args &args = call.args;
    const struct fl_view &x = args.in[1];
    const gamma_workspace<Part> to(args);
    for (int64_t k = gpu_first() / ROW_LANES; k < Part::count(args.p.norm); k += gpu_stride() / ROW_LANES) {
        const Part part(args.p.norm, k);
#ifdef FL_SHARED_EXPONENT
        const struct fl_view none = {};
        const struct fl_row_sums s = part_sums(x, none, none, part);
        const row_number r =
            fl_row_weight_of(&s, part.size, is_mean_square(args), fl_exponent(&x), args.p.norm.epsilon);
        if (row_lane() == 0 && r.weight.m)
            atomicMax(to.finest, (int)r.weight.e);
#else
        const row_number r = part_numbers(args, x, part);
#endif
        if (row_lane() == 0)
            to.numbers[k] = r;
    }
}

template <bool grouped> __global__ void gamma_chunks(const struct gpu_call call) {
    using Part = norm_part<grouped>;
    const struct fl_args &args = call.args;
    const struct fl_view &dy = args.in[0], &x = args.in[1];
    const gamma_workspace<Part> to(args);
    const int64_t n = args.p.norm.n, rows = Part::rows(args.p.norm);
    gpu_each(call.control, to.chunks * n, [&](int64_t i) {
        const int64_t c = i % n, first = i / n * FL_ROWS_CHUNK,
                      end = first + FL_ROWS_CHUNK < rows ? first + FL_ROWS_CHUNK : rows;
        row_sum sum = 0;
        for (int64_t row = first; row < end; row++) {
            const row_number &r = to.numbers[Part::number_of(args.p.norm, row, c)];
            const int64_t at = row * n + c;
#ifdef FL_SHARED_EXPONENT
            sum += fl_row_share(&r, Part(args.p.norm, 0).size, is_mean_square(args), *to.finest, gpu_mantissa(dy, at),
                                gpu_mantissa(x, at));
#else
            sum += gpu_value(dy, 0, at) * fl_row_normal(&r, gpu_value(x, 0, at));
#endif
        }
        to.sums[i] = sum;
    });
}

template <bool grouped> __global__ void end_gamma(const struct gpu_call call) {
    const struct fl_args &args = call.args;
    const gamma_workspace<norm_part<grouped>> from(args);
    gpu_elements(call, args.p.norm.n, [&](int64_t c) {
        row_sum sum = 0;
        for (int64_t chunk = 0; chunk < from.chunks; chunk++)
            sum += from.sums[chunk * args.p.norm.n + c];
#ifdef FL_SHARED_EXPONENT
        const int finest = *from.finest;
        return fl_wide_sum{sum, (finest == INT32_MIN ? 0 : finest) + fl_exponent(&args.in[0])};
#else
        return sum;
#endif
    });
}

/* --- softmax ------------------------------------------------------------------------------------------------------ */

/* What the elements of a row share. */
struct softmax_row_numbers {
    double top, sum; /* the largest of the logits; the sum of exponentials of their distances from it */
};

__device__ static inline double logit_at(const struct fl_args &args, double scale, int64_t i) {
    return gpu_value(args.in[0], fl_exponent(&args.in[0]), i) * scale;
}

/* visible: at least 1. */
__device__ static struct softmax_row_numbers softmax_numbers(const struct fl_args &args, double scale, int64_t first,
                                                             int64_t visible) {
    struct softmax_row_numbers r;
    /* Each element is read by the lane that will overwrite it. */
    const double mine = row_lane() < visible ? logit_at(args, scale, first + row_lane()) : 0;
    r.top = __shfl_sync(0xffffffffu, mine, 0);
    r.sum = 0;
    for (int64_t c = row_lane(); c < visible; c += ROW_LANES) {
        const double z = logit_at(args, scale, first + c);
        r.top = z > r.top ? z : r.top;
    }
    for (int l = 16; l > 0; l /= 2) {
        const double other = __shfl_xor_sync(0xffffffffu, r.top, l);
        r.top = other > r.top ? other : r.top;
    }
    for (int64_t c = 0; c < visible; c += ROW_LANES) {
        const int64_t left = visible - c;
        const double z = row_lane() < left ? logit_at(args, scale, first + c + row_lane()) : r.top;
        r.sum = sum_of_lanes(fl_exp(z - r.top), r.sum, left < ROW_LANES ? (int)left : (int)ROW_LANES);
    }
    return r;
}

__global__ void softmax_map(const struct gpu_call call) {
    const struct fl_args &args = call.args;
    const int64_t n = args.p.rows.n;
    const double scale = args.p.softmax.scale;
    gpu_store_each<ROW_LANES>(call, args.p.rows.m, [&](const auto &now, int64_t row, auto *stats) {
        const int64_t visible = fl_softmax_visible(row, n, args.p.softmax.causal);
        struct softmax_row_numbers r = {0, 0};
        if (visible)
            r = softmax_numbers(args, scale, row * n, visible);
        const double log_sum = args.op == FL_OP_LOG_SOFTMAX ? fl_log(r.sum) : 0;
        for (int64_t c = row_lane(); c < n; c += ROW_LANES) {
            double y = 0;
            if (c < visible) {
                const double z = logit_at(args, scale, row * n + c) - r.top;
                y = args.op == FL_OP_LOG_SOFTMAX ? z - log_sum : fl_exp(z) / r.sum;
            }
            gpu_store(now, row * n + c, y, stats);
        }
    });
}

/* The sum, in order, of `visible` elements of a row of a, or of a b. */
__device__ static double dot_in_order(const struct fl_view &a, const struct fl_view *b, int64_t first,
                                      int64_t visible) {
    double sum = 0;
    for (int64_t c = 0; c < visible; c += ROW_LANES) {
        const int64_t left = visible - c, i = first + c + row_lane();
        double v = row_lane() < left ? gpu_value(a, fl_exponent(&a), i) : 0;
        if (b && row_lane() < left)
            v = gpu_value(*b, fl_exponent(b), i) * v;
        sum = sum_of_lanes(v, sum, left < ROW_LANES ? (int)left : (int)ROW_LANES);
    }
    return sum;
}

__global__ void softmax_map_grad(const struct gpu_call call) {
    const struct fl_args &args = call.args;
    const struct fl_view &dy = args.in[0], &p = args.in[1];
    const int64_t n = args.p.rows.n;
    gpu_store_each<ROW_LANES>(call, args.p.rows.m, [&](const auto &now, int64_t row, auto *stats) {
        const int64_t visible = fl_softmax_visible(row, n, args.p.softmax.causal), first = row * n;
#ifdef FL_SHARED_EXPONENT
        int64_t dot = 0;
        for (int64_t c = row_lane(); c < visible; c += ROW_LANES)
            dot += gpu_mantissa(p, first + c) * gpu_mantissa(dy, first + c);
        dot = exact_sum_of_lanes(dot);
#else
        const double dot = dot_in_order(dy, &p, first, visible);
#endif
        for (int64_t c = row_lane(); c < n; c += ROW_LANES) {
            const bool counts = c < visible;
#ifdef FL_SHARED_EXPONENT
            const struct fl_wide_sum dx =
                fl_softmax_slope(fl_term_of(args.p.softmax.scale), counts ? gpu_mantissa(p, first + c) : 0,
                                 counts ? gpu_mantissa(dy, first + c) : 0, dot, fl_exponent(&p), fl_exponent(&dy));
#else
            const double dx =
                counts ? args.p.softmax.scale * (gpu_value(p, 0, first + c) * (gpu_value(dy, 0, first + c) - dot)) : 0;
#endif
            gpu_store(now, first + c, dx, stats);
        }
    });
}

__global__ void log_softmax_grad(const struct gpu_call call) {
    const struct fl_args &args = call.args;
    const struct fl_view &dy = args.in[0], &y = args.in[1];
    const int64_t n = args.p.rows.n;
    gpu_store_each<ROW_LANES>(call, args.p.rows.m, [&](const auto &now, int64_t row, auto *stats) {
        const double sum = dot_in_order(dy, NULL, row * n, n);
        for (int64_t c = row_lane(); c < n; c += ROW_LANES) {
            const double dx = args.p.softmax.scale * (gpu_value(dy, fl_exponent(&dy), row * n + c) -
                                                      fl_exp(gpu_value(y, fl_exponent(&y), row * n + c)) * sum);
            gpu_store(now, row * n + c, dx, stats);
        }
    });
}

/* --- embedding ---------------------------------------------------------------------------------------------------- */

__global__ void embedding(const struct gpu_call call) {
    const struct fl_args &args = call.args;
    const int et = fl_exponent(&args.in[0]);
    gpu_elements(call, args.out.count, [&](int64_t i) {
        const int64_t row = args.p.table.indices[i / args.p.table.columns];
        return gpu_value(args.in[0], et, row * args.p.table.columns + i % args.p.table.columns);
    });
}

#ifdef FL_SHARED_EXPONENT
/* The workspace: exact sums, which are added in any order. */
static size_t embedding_need(const struct fl_args *args) {
    return (size_t)args->out.count * sizeof(int64_t);
}

__global__ void begin_scatter(const struct gpu_call call) {
    gpu_each(call.control, call.args.out.count, [&](int64_t i) { ((unsigned long long *)call.args.workspace)[i] = 0; });
}

__global__ void scatter(const struct gpu_call call) {
    const struct fl_args &args = call.args;
    const int64_t n = args.p.table.columns;
    gpu_each(call.control, args.in[0].count, [&](int64_t i) {
        atomicAdd((unsigned long long *)args.workspace + args.p.table.indices[i / n] * n + i % n,
                  (unsigned long long)gpu_mantissa(args.in[0], i));
    });
}

__global__ void end_scatter(const struct gpu_call call) {
    const struct fl_args &args = call.args;
    gpu_elements(call, args.out.count, [&](int64_t i) {
        return fl_wide_sum{((const int64_t *)args.workspace)[i], fl_exponent(&args.in[0])};
    });
}
#else
/* The workspace, for sums in the order of positions: for each row of the table its first position, for each position
 * the next with the same index; -1: none. */
static size_t embedding_need(const struct fl_args *args) {
    return (size_t)(args->p.table.rows + args->p.table.count) * sizeof(int64_t);
}

__device__ static inline int64_t *next_positions(const struct fl_args &args) {
    return (int64_t *)args.workspace + args.p.table.rows;
}

__global__ void begin_scatter(const struct gpu_call call) {
    gpu_each(call.control, call.args.p.table.rows, [&](int64_t i) { ((int64_t *)call.args.workspace)[i] = -1; });
}

__global__ void scatter(const struct gpu_call call) {
    const struct fl_args &args = call.args;
    const int32_t *indices = args.p.table.indices;
    gpu_each(call.control, args.p.table.count, [&](int64_t i) {
        int64_t next = i + 1;
        while (next < args.p.table.count && indices[next] != indices[i])
            next++;
        next_positions(args)[i] = next < args.p.table.count ? next : -1;
        /* -1 is the largest unsigned number */
        atomicMin((unsigned long long *)args.workspace + indices[i], (unsigned long long)i);
    });
}

__global__ void end_scatter(const struct gpu_call call) {
    const struct fl_args &args = call.args;
    const int64_t n = args.p.table.columns;
    gpu_elements(call, args.out.count, [&](int64_t i) {
        struct gpu_chains sum;
        for (int64_t at = ((const int64_t *)args.workspace)[i / n]; at >= 0; at = next_positions(args)[at])
            sum.add(gpu_value(args.in[0], 0, at * n + i % n));
        return sum.value();
    });
}
#endif

/* --- copies ------------------------------------------------------------------------------------------------------- */

__global__ void copy_elements(const struct gpu_call call) {
    const struct fl_args &args = call.args;
    gpu_elements(call, args.out.count, [&](int64_t i) {
        const struct fl_origin from = fl_copied_from(&args, i);
        return from.operand < 0 ? 0 : gpu_value(args.in[from.operand], fl_exponent(&args.in[from.operand]), from.at);
    });
}

/* --- on the host -------------------------------------------------------------------------------------------------- */

template <bool grouped> static cudaError_t run_row_norm(const struct gpu_call *call, cudaStream_t stream) {
    return gpu_run(row_norm<grouped>, norm_part<grouped>::count(call->args.p.norm) * ROW_LANES, call, stream);
}
template <bool grouped> static cudaError_t run_row_norm_grad(const struct gpu_call *call, cudaStream_t stream) {
    return gpu_run(row_norm_grad<grouped>, norm_part<grouped>::count(call->args.p.norm) * ROW_LANES, call, stream);
}
template <bool grouped> static cudaError_t run_gamma(const struct gpu_call *call, cudaStream_t stream) {
    const struct fl_norm &g = call->args.p.norm;
    TRY_CUDA(gpu_once(begin_gamma<grouped>, call, stream));
    TRY_CUDA(gpu_run(gamma_parts<grouped>, norm_part<grouped>::count(g) * ROW_LANES, call, stream));
    TRY_CUDA(
        gpu_run(gamma_chunks<grouped>, gamma_workspace<norm_part<grouped>>(call->args).chunks * g.n, call, stream));
    return gpu_run(end_gamma<grouped>, g.n, call, stream);
}

template <void (*kernel)(const struct gpu_call)>
static cudaError_t run_rows(const struct gpu_call *call, cudaStream_t stream) {
    return gpu_run(kernel, call->args.p.rows.m * ROW_LANES, call, stream);
}

static cudaError_t run_check_indices(const struct gpu_call *call, cudaStream_t stream) {
    const struct fl_table &t = call->args.p.table;
    return gpu_check_indices(call->control, {t.indices, t.count, t.rows, t.name, FL_GPU_INDEX}, stream);
}

static cudaError_t run_embedding_grad(const struct gpu_call *call, cudaStream_t stream) {
    TRY_CUDA(gpu_run(begin_scatter, call->args.out.count, call, stream));
    TRY_CUDA(gpu_run(scatter, call->args.in[0].count, call, stream));
    return gpu_run(end_scatter, call->args.out.count, call, stream);
}

static void add_rows(struct gpu_kernels *to) {
    gpu_add(to, {FL_OP_LAYERNORM, FL_OP_RMSNORM}, run_row_norm<false>);
    gpu_add(to, {FL_OP_LAYERNORM_GRAD, FL_OP_RMSNORM_GRAD}, run_row_norm_grad<false>);
    gpu_add(to, {FL_OP_LAYERNORM_GAMMA_GRAD, FL_OP_RMSNORM_GAMMA_GRAD}, run_gamma<false>, gamma_need<false>);
    gpu_add(to, {FL_OP_GROUPNORM}, run_row_norm<true>);
    gpu_add(to, {FL_OP_GROUPNORM_GRAD}, run_row_norm_grad<true>);
    gpu_add(to, {FL_OP_GROUPNORM_GAMMA_GRAD}, run_gamma<true>, gamma_need<true>);
    gpu_add(to, {FL_OP_SOFTMAX, FL_OP_LOG_SOFTMAX}, run_rows<softmax_map>);
    gpu_add(to, {FL_OP_SOFTMAX_GRAD}, run_rows<softmax_map_grad>);
    gpu_add(to, {FL_OP_LOG_SOFTMAX_GRAD}, run_rows<log_softmax_grad>);
    gpu_add(to, {FL_OP_CHECK_INDICES}, run_check_indices);
    gpu_add(to, {FL_OP_EMBEDDING}, gpu_run_all<embedding>);
    gpu_add(to, {FL_OP_EMBEDDING_GRAD}, run_embedding_grad, embedding_need);
    gpu_add(to, {FL_OP_PERMUTE, FL_OP_SLICE, FL_OP_SLICE_GRAD, FL_OP_CONCAT}, gpu_run_all<copy_elements>);
}

} // namespace

#endif
