/* gpu_tile_products.h - which kernels multiply: one thread for each output, or tiles: of mantissas on tensor cores
 * (gpu_int16_mma.h), of floats in the order of class exact (gpu_chains.h), or in class fast on tensor cores
 * (gpu_float_mma.h).
 *
 * Expects: the codec of a folder (gpu_element.h). Gives: add_product. */
#ifndef FL_GPU_TILE_PRODUCTS_H
#define FL_GPU_TILE_PRODUCTS_H

#include "gpu/gpu_chains.h"
#include "gpu/gpu_float_mma.h"
#include "gpu/gpu_int16_mma.h"

namespace {

#ifdef FL_SHARED_EXPONENT
template <class Job> static struct tile_plan plan_product(const struct fl_product &product) {
    return plan_mma<Job, int16_shapes>(product, PART_MOST);
}
template <class Job>
static cudaError_t launch_product(const struct gpu_call *call, const struct tile_plan &plan, int64_t *sums,
                                  cudaStream_t stream) {
    return launch_plan<int16_shapes, Job>(call, plan, sums, stream);
}
#else
template <class Job> static struct tile_plan plan_product(const struct fl_product &product) {
#ifdef FL_MMA
    if (multiplies_fast(product.exactness))
        return plan_mma<Job, float_shapes<sums_of_32_bits>>(product, INT64_MAX / 2);
#endif
    return plan_chains<Job>(product);
}
template <class Job>
static cudaError_t launch_product(const struct gpu_call *call, const struct tile_plan &plan, float *sums,
                                  cudaStream_t stream) {
#ifdef FL_MMA
    const tensor_class exactness = call->args.p.product.exactness;
#ifdef FL_BINARY16
    if (multiplies_fast(exactness) && exactness & FL_FAST_FP16_SUMS)
        return launch_plan<float_shapes<sums_of_16_bits>, Job>(call, plan, sums, stream);
#endif
    if (multiplies_fast(exactness))
        return launch_plan<float_shapes<sums_of_32_bits>, Job>(call, plan, sums, stream);
#endif
    return launch_plan<chain_shapes, Job>(call, plan, sums, stream);
}
#endif

template <class Job> static size_t need_product(const struct fl_args *args) {
    const struct tile_plan plan = plan_product<Job>(args->p.product);
    const int64_t outputs = plan.sizes.m * plan.sizes.n * plan.sizes.groups;
#ifndef FL_SHARED_EXPONENT
    if (plan.phases)
        return (size_t)(holes_of(args->p.product.windows, plan.sizes) * args->p.product.windows.c) * sizeof(float);
#endif
    return plan.parts > 1 ? (size_t)(outputs * (GPU_SHARED ? 1 : plan.parts)) * sizeof(product_total) : 0;
}

template <class Job, class Product> static cudaError_t multiply(const struct gpu_call *call, cudaStream_t stream) {
    const struct fl_args &args = call->args;
    const struct tile_plan plan = plan_product<Job>(args.p.product);
    const size_t bytes = need_product<Job>(&args);
    if (!plan.shape || (bytes && (!args.workspace || args.workspace_bytes < bytes)))
        return run_product<Product>(call, stream);
    product_total *const memory = bytes ? (product_total *)args.workspace : NULL;
    product_total *const sums = plan.phases ? NULL : memory;
    if (!sums || !call->attempt) { /* the second attempt uses the sums of the first */
        if (sums && GPU_SHARED)
            TRY_CUDA(cudaMemsetAsync(sums, 0, bytes, stream));
#ifndef FL_SHARED_EXPONENT
#ifdef FL_ELEMENT_IS_FLOAT
        const bool in_tf32 = multiplies_fast(args.p.product.exactness);
#else
        const bool in_tf32 = false;
#endif
        if (plan.phases)
            TRY_CUDA(gpu_run(find_holes, (int64_t)(bytes / sizeof(float)), call, stream, memory, in_tf32));
#endif
        TRY_CUDA(launch_product<Job>(call, plan, memory, stream));
        if (!sums)
            return cudaSuccess;
    }
    return gpu_run(product_parts, args.out.count, call, stream, sums, plan.parts);
}

template <class Job, class Product> static void add_product(struct gpu_kernels *to, enum fl_op op) {
    to->op[op] = multiply<Job, Product>;
    to->need[op] = need_product<Job>;
}

} // namespace

#endif
