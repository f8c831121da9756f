/* gpu_float_products.h - which kernels multiply floats: one thread for each output, or tiles in the order of class
 * exact (gpu_chains.h), or in class fast on tensor cores (gpu_halves.h).
 *
 * Expects: the codec of a float format (gpu_element.h). Gives: add_product. */
#ifndef FL_GPU_FLOAT_PRODUCTS_H
#define FL_GPU_FLOAT_PRODUCTS_H

#include "gpu/gpu_chains.h"
#include "gpu/gpu_halves.h"

#ifndef FL_SHARED_EXPONENT
namespace {

template <class Job> static struct chain_plan plan_product(const struct fl_product &product) {
#ifdef FL_MMA
    if (product.exactness == TENSOR_FAST)
        return plan_halves<Job>(product);
#endif
    return plan_chains<Job>(product);
}

template <class Job>
static cudaError_t launch_product(const struct gpu_call *call, const struct chain_plan &plan, float *sums,
                                  cudaStream_t stream) {
#ifdef FL_MMA
    if (call->args.p.product.exactness == TENSOR_FAST)
        return launch_halves<Job>(call, plan, sums, stream);
#endif
    return launch_chains<Job>(call, plan, sums, stream);
}

template <class Job> static size_t need_product(const struct fl_args *args) {
    const struct chain_plan plan = plan_product<Job>(args->p.product);
    return plan.parts > 1 ? (size_t)(plan.parts * plan.sizes.m * plan.sizes.n * plan.sizes.groups) * sizeof(float) : 0;
}

template <class Job, class Product> static cudaError_t multiply(const struct gpu_call *call, cudaStream_t stream) {
    const struct fl_args &args = call->args;
    struct chain_plan plan = plan_product<Job>(args.p.product);
    if (!plan.shape)
        return run_product<Product>(call, stream);
    float *sums = plan.parts > 1 ? (float *)args.workspace : NULL;
    if (!sums || args.workspace_bytes < need_product<Job>(&args)) {
        sums = NULL;
        plan.parts = 1;
        plan.k_part = plan.sizes.k;
    }
    const cudaError_t error = launch_product<Job>(call, plan, sums, stream);
    return error != cudaSuccess || !sums ? error
                                         : gpu_launch(product_chains, gpu_blocks(args.out.count), GPU_THREADS, 0,
                                                      stream, *call, sums, plan.parts);
}

template <class Job, class Product> static void add_product(struct gpu_kernels *to, enum fl_op op) {
    to->op[op] = multiply<Job, Product>;
    to->need[op] = need_product<Job>;
}

} // namespace
#endif

#endif
