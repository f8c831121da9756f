/* gpu_products.h - matmul and convolutions for the formats of a folder: sums of products as ref_matmul.c defines
 * them, then bias, residual and ReLU, then one rounding.
 *
 * The kernels here have one thread for an output, for any format and geometry; where enough of a tile is used, products
 * are computed by tiles (gpu_tiles.h).
 *
 * Expects: the codec of a folder (gpu_element.h). Gives: run_product, product_end, store_pairs. */
#ifndef FL_GPU_PRODUCTS_H
#define FL_GPU_PRODUCTS_H

#include "gemm/gemm_epilogue_plan.h"
#include "gpu/gpu_integers.h"

namespace { /* otherwise the linker would merge the template instances of all folders */

#ifdef FL_SHARED_EXPONENT
/* --- shared exponents: exact sums --------------------------------------------------------------------------------- */

typedef int64_t product_total;
typedef longlong2 product_totals; /* of two neighbours */

/* |product| <= 2^30: 64 bits hold the sum of any k. */
struct product_sum {
    int64_t sum;
    __device__ void begin() { sum = 0; }
    __device__ void add(fl_element a, fl_element b) { sum += (int32_t)a * (int32_t)b; }
    __device__ int64_t value() const { return sum; }
};

/* How sums become elements, for one thread. */
struct product_end : gpu_sums {
    struct gemm_alignment by;
    int64_t largest; /* |sum| up to which 64 bits hold it together with bias and residual; -1: none */
    int e_sum, e_bias, e_residual;
    bool plain;

    __device__ void begin(const struct gpu_now &now, const struct fl_args &args) {
        const struct fl_epilogue &how = args.p.product.epilogue;
        e_sum = fl_exponent(&args.in[0]) + fl_exponent(&args.in[1]);
        e_bias = fl_exponent(&how.bias);
        e_residual = fl_exponent(&how.residual);
        by = gemm_align(e_sum, how.bias.data != NULL, e_bias, how.residual.data != NULL, e_residual);
        plain = !how.bias.data && !how.residual.data && !how.relu;
        largest = gpu_sums::begin(now, by.exponent, fl_exponent(&args.out)) ? gemm_largest_sum(&by) : -1;
    }
};

/* Rounds the sum of output i to an element and counts it. bias, residual: mantissas, 0 if there are none. */
__device__ static inline fl_element product_element(const struct gpu_now &now, struct product_end *end, bool relu,
                                                    int64_t i, int64_t sum, int bias, int residual) {
    if (sum <= end->largest && sum >= -end->largest) {
        int64_t x = sum;
        if (!end->plain) {
            x = sum * ((int64_t)1 << end->by.up_sum) + bias * ((int64_t)1 << end->by.up_bias) +
                residual * ((int64_t)1 << end->by.up_residual);
            if (relu && x < 0)
                x = 0;
        }
        return end->round(now, i, x);
    }
    const struct fl_term terms[] = {{sum, end->e_sum}, {bias, end->e_bias}, {residual, end->e_residual}};
    return end->round_terms(now, i, terms, 3, relu);
}

/* Stores output i. */
__device__ static inline void product_store(const struct gpu_now &now, const struct fl_args &args,
                                            struct product_end *end, int64_t i, int64_t sum) {
    const struct fl_epilogue &how = args.p.product.epilogue;
    const int bias = how.bias.data ? ((const fl_element *)how.bias.data)[i % how.bias.count] : 0,
              residual = how.residual.data ? ((const fl_element *)how.residual.data)[i] : 0;
    const fl_element m = product_element(now, end, how.relu, i, sum, bias, residual);
    if (now.out)
        ((fl_element *)now.out)[i] = m;
}
#else
/* --- floats: fused multiply-add chains of FL_K_CHUNK terms, added in order ---------------------------------------- */

typedef float product_total;
typedef float2 product_totals; /* of two neighbours */

struct product_sum {
    float chain, total;
    int terms; /* of the chain */
    bool more; /* there was a chain before it */
    __device__ void begin() {
        chain = total = 0;
        terms = 0;
        more = false;
    }
    __device__ void add(fl_element a, fl_element b) {
        if (terms == FL_K_CHUNK) {
            total = value();
            more = true;
            chain = 0;
            terms = 0;
        }
        chain = __fmaf_rn(FL_DECODE(a), FL_DECODE(b), chain);
        terms++;
    }
    __device__ float value() const { return more ? __fadd_rn(total, chain) : chain; }
};

struct product_end {
    struct fl_stats stats;
    __device__ void begin(const struct gpu_now &now, const struct fl_args &args) {
        (void)now;
        (void)args;
        const struct fl_stats none = {};
        stats = none;
    }
    __device__ void report(struct gpu_control *control) const { gpu_report(control, stats); }
};

/* Stores output i from its sum and the number of its bias. */
__device__ static inline void product_finish(const struct gpu_now &now, const struct fl_epilogue &how,
                                             struct product_end *end, int64_t i, float x, int64_t bias) {
    if (how.bias.data)
        x = __fadd_rn(x, FL_DECODE(((const fl_element *)how.bias.data)[bias]));
    if (how.residual.data)
        x = __fadd_rn(x, FL_DECODE(((const fl_element *)how.residual.data)[i]));
    x = !how.relu || x > 0 || x != x ? x : 0.0f;
    gpu_store(now, i, x, &end->stats);
}

__device__ static inline void product_store(const struct gpu_now &now, const struct fl_args &args,
                                            struct product_end *end, int64_t i, float x) {
    const struct fl_epilogue &how = args.p.product.epilogue;
    product_finish(now, how, end, i, x, how.bias.data ? i % how.bias.count : 0);
}
#endif

/* --- the products of an output ------------------------------------------------------------------------------------ */

/* Of one matrix, or a batch of them. */
template <bool transposed_a, bool transposed_b> struct product_matmul {
    __device__ static const struct fl_matrices &sizes(const struct fl_product &p) { return p.matrices; }
    __device__ static void sum(const struct fl_matrices &g, const fl_element *a, const fl_element *b, int64_t i,
                               struct product_sum *to) {
        const int64_t matrix = i / g.n / g.m, row = i / g.n % g.m, column = i % g.n;
        const int64_t step_a = transposed_a ? g.m : 1, step_b = transposed_b ? 1 : g.n;
        a += matrix * g.m * g.k + (transposed_a ? row : row * g.k);
        b += matrix * g.k * g.n + (transposed_b ? column * g.k : column);
        for (int64_t l = 0; l < g.k; l++, a += step_a, b += step_b)
            to->add(*a, *b);
    }
};

/* Element k of the pixel at (y, x) of image n; zero outside of it. */
__device__ static inline fl_element product_pixel(const fl_element *image, int64_t h, int64_t w, int64_t c, int64_t n,
                                                  int64_t y, int64_t x, int64_t k) {
    return y < 0 || y >= h || x < 0 || x >= w ? (fl_element)0 : image[((n * h + y) * w + x) * c + k];
}

/* The element of image n that output position (p, q) reads at filter position (r, s). */
__device__ static inline fl_element product_seen(const struct fl_windows &g, const fl_element *image, int64_t n,
                                                 int64_t p, int64_t q, int64_t r, int64_t s, int64_t c) {
    return product_pixel(image, g.h, g.w, g.c, n, p * g.stride[0] + r * g.dilation[0] - g.padding[0],
                         q * g.stride[1] + s * g.dilation[1] - g.padding[1], c);
}

struct product_forward {
    __device__ static const struct fl_windows &sizes(const struct fl_product &p) { return p.windows; }
    __device__ static void sum(const struct fl_windows &g, const fl_element *image, const fl_element *filter, int64_t i,
                               struct product_sum *to) {
        const int64_t depth = g.c / g.groups, k = i % g.filters, pixel = i / g.filters;
        const int64_t n = pixel / (g.p * g.q), p = pixel / g.q % g.p, q = pixel % g.q;
        const int64_t first = k / (g.filters / g.groups) * depth;
        filter += k * g.r * g.s * depth;
        for (int64_t r = 0; r < g.r; r++)
            for (int64_t s = 0; s < g.s; s++)
                for (int64_t c = 0; c < depth; c++)
                    to->add(product_seen(g, image, n, p, q, r, s, first + c), *filter++);
    }
};

struct product_input_gradient {
    __device__ static const struct fl_windows &sizes(const struct fl_product &p) { return p.windows; }
    __device__ static void sum(const struct fl_windows &g, const fl_element *dy, const fl_element *filter, int64_t i,
                               struct product_sum *to) {
        const int64_t depth = g.c / g.groups, per_group = g.filters / g.groups;
        const int64_t c = i % g.c, pixel = i / g.c;
        const int64_t n = pixel / (g.h * g.w), y = pixel / g.w % g.h, x = pixel % g.w;
        const int64_t first = c / depth * per_group;
        for (int64_t r = 0; r < g.r; r++)
            for (int64_t s = 0; s < g.s; s++) {
                /* positions in the padded image, some of which the stride skips */
                const int64_t down = y + g.padding[0] - r * g.dilation[0], right = x + g.padding[1] - s * g.dilation[1];
                const bool reached = down >= 0 && right >= 0 && down % g.stride[0] == 0 && right % g.stride[1] == 0;
                if (GPU_SHARED && !reached)
                    continue;
                for (int64_t k = first; k < first + per_group; k++)
                    to->add(reached
                                ? product_pixel(dy, g.p, g.q, g.filters, n, down / g.stride[0], right / g.stride[1], k)
                                : (fl_element)0,
                            filter[((k * g.r + r) * g.s + s) * depth + c % depth]);
            }
    }
};

struct product_weight_gradient {
    __device__ static const struct fl_windows &sizes(const struct fl_product &p) { return p.windows; }
    __device__ static void sum(const struct fl_windows &g, const fl_element *dy, const fl_element *image, int64_t i,
                               struct product_sum *to) {
        const int64_t depth = g.c / g.groups, per_group = g.filters / g.groups;
        const int64_t c = i % depth, s = i / depth % g.s, r = i / (depth * g.s) % g.r, k = i / (depth * g.s * g.r);
        for (int64_t n = 0; n < g.batch; n++)
            for (int64_t p = 0; p < g.p; p++)
                for (int64_t q = 0; q < g.q; q++)
                    to->add(dy[((n * g.p + p) * g.q + q) * g.filters + k],
                            product_seen(g, image, n, p, q, r, s, k / per_group * depth + c));
    }
};

/* --- kernels ------------------------------------------------------------------------------------------------------ */

template <class Product>
__global__ void __launch_bounds__(GPU_THREADS, 2) product_elements(const struct gpu_call call) {
    struct gpu_now now;
    if (!gpu_begin(call, &now))
        return;
    const struct fl_args &args = call.args;
    struct product_end end;
    end.begin(now, args);
    for (int64_t i = gpu_first(); i < args.out.count; i += gpu_stride()) {
        struct product_sum sum;
        sum.begin();
        Product::sum(Product::sizes(args.p.product), (const fl_element *)args.in[0].data,
                     (const fl_element *)args.in[1].data, i, &sum);
        product_store(now, args, &end, i, sum.value());
    }
    end.report(call.control);
}

template <class Product> static cudaError_t run_product(const struct gpu_call *call, cudaStream_t stream) {
    return gpu_run(product_elements<Product>, call->args.out.count, call, stream);
}

/* --- exact sums of any exponents, from products in blocks --------------------------------------------------------- */

/* A finite double exactly, with the smallest |m|. */
__device__ static struct fl_term least_term_of(double x) {
    struct fl_term term = fl_term_of_double(fl_is_finite(x) ? x : 0);
    const int zeros = term.m ? fl_trailing_zeros((uint64_t)term.m) : 0;
    term.m >>= zeros;
    term.e -= zeros;
    return term;
}

__global__ void pairs_to_elements(const struct gpu_call call, const struct gpu_pairs pairs) {
    const struct fl_epilogue &how = call.args.p.product.epilogue;
    gpu_store_each(call, call.args.out.count, [&](const auto &now, int64_t i, auto *stats) {
        const double high = pairs.high[i], bias = pairs.bias ? pairs.bias[i % how.bias.count] : 0,
                     residual = pairs.residual ? pairs.residual[i] : 0;
        const struct fl_term terms[] = {least_term_of(high), least_term_of(pairs.low[i]), least_term_of(bias),
                                        least_term_of(residual)};
        struct fl_wide_sum all = fl_terms_sum(terms, 4);
        if (how.relu && all.m < 0)
            all.m = 0;
        double value = fl_terms_odd(all), near = fl_terms_abs(all);
        const double special = (fl_is_finite(high) ? 0 : high) + (bias + residual);
        if (!fl_is_finite(special)) /* Inf and NaN are added as in IEEE 754 */
            value = near = !how.relu || special > 0 || special != special ? special : 0;
        gpu_store_once(now, i, {value, near}, true, stats);
    });
}

static cudaError_t store_pairs(const struct gpu_call *call, const struct gpu_pairs *pairs, cudaStream_t stream) {
    return gpu_run(pairs_to_elements, call->args.out.count, call, stream, *pairs);
}

} // namespace

#endif
