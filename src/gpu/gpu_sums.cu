// gpu_sums.cu - sums and means of tensors element by element (core/tensor/sums.h). The terms become doubles in memory
// of the queue, some elements of all terms at a time, and a thread adds those of an element.
#include "core/arithmetic/fixed_sum.h"
#include "gpu/gpu_calls.h"

enum { TREE = 11 /* nodes that wait, at most, for FL_MOST_TERMS leaves */ };
static const int64_t most_numbers = 4 << 20; // of all terms at a time: 32 MiB

// The term i of an element is terms[i * n].
struct run {
    const double *terms;
    int count;
    int64_t n; // elements
};

// Exact, or rounded to odd. While no addition rounds, its result is the sum.
__device__ static double exact_sum(const double *x, int count, int64_t stride) {
    double sum = 0;
    for (int i = 0; i < count; i++) {
        const double p = sum, q = x[i * stride], s = p + q, t = s - p;
        if ((p - (s - t)) + (q - t) != 0)
            return fl_fixed_sum(x, count, stride, 1, true);
        sum = s;
    }
    return sum;
}

__global__ void add_exactly(const struct run r, double *sums) {
    for (int64_t i = gpu_first(); i < r.n; i += gpu_stride())
        sums[i] = exact_sum(r.terms + i, r.count, r.n);
}

// As a binary counter counts: after leaf i, as many nodes are complete as i + 1 ends in zeros.
__global__ void add_by_tree(const struct run r, double *sums) {
    for (int64_t i = gpu_first(); i < r.n; i += gpu_stride()) {
        float node[TREE];
        int depth = 0;
        for (int t = 0; t < r.count; t++) {
            float sum = (float)r.terms[t * r.n + i];
            for (int k = t + 1; k % 2 == 0; k /= 2)
                sum = node[--depth] + sum;
            node[depth++] = sum;
        }
        float sum = node[--depth];
        while (depth > 0)
            sum = node[--depth] + sum;
        sums[i] = (double)sum;
    }
}

__global__ void average(const struct gpu_control *control, const struct run r, double *means) {
    if (control->failure.finding)
        return;
    for (int64_t i = gpu_first(); i < r.n; i += gpu_stride())
        means[i] = fl_fixed_sum(r.terms + i, r.count, r.n, (uint32_t)r.count, false);
}

// Elements first ... first + r.n - 1 of all terms.
static cudaError_t fetch(const struct fl_sum *sum, const struct fl_minifloat *made, int64_t first, const struct run *r,
                         double *terms, cudaStream_t stream) {
    cudaError_t error = cudaSuccess;
    for (int t = 0; t < r->count && error == cudaSuccess; t++) {
        struct fl_source source = {};
        source.format = sum->format;
        source.view = sum->terms[t];
        source.view.data = (char *)source.view.data + first * sum->format->bytes;
        source.view.count = r->n;
        error = gpu_numbers_to_doubles(&source, made, r->n, terms + t * r->n, stream);
    }
    return error;
}

// control NULL: the sum, else the mean.
static cudaError_t compute(const struct fl_sum *sum, const struct fl_minifloat *made, const struct gpu_control *control,
                           int64_t count, double *to, cudaMemPool_t pool, cudaStream_t stream) {
    const bool exact = sum->format->arithmetic == FL_ARITHMETIC_SHARED;
    const int64_t most = most_numbers / sum->count, at_a_time = count < most ? count : most;
    double *terms = NULL;
    cudaError_t error =
        cudaMallocFromPoolAsync((void **)&terms, (size_t)(at_a_time * sum->count) * sizeof *terms, pool, stream);
    if (error != cudaSuccess)
        return error;
    for (int64_t first = 0; first < count && error == cudaSuccess; first += at_a_time) {
        const struct run r = {terms, sum->count, count - first < at_a_time ? count - first : at_a_time};
        error = fetch(sum, made, first, &r, terms, stream);
        if (error == cudaSuccess)
            error = control ? gpu_launch(average, gpu_blocks(r.n), GPU_THREADS, 0, stream, control, r, to + first)
                            : gpu_launch(exact ? add_exactly : add_by_tree, gpu_blocks(r.n), GPU_THREADS, 0, stream, r,
                                         to + first);
    }
    const cudaError_t freed = cudaFreeAsync(terms, stream);
    return error != cudaSuccess ? error : freed;
}

cudaError_t gpu_sum(const struct fl_sum *sum, const struct fl_minifloat *made, int64_t count, double *sums,
                    cudaMemPool_t pool, cudaStream_t stream) {
    return compute(sum, made, NULL, count, sums, pool, stream);
}

cudaError_t gpu_mean(const struct fl_sum *sum, const struct gpu_control *control, int64_t count, double *means,
                     cudaMemPool_t pool, cudaStream_t stream) {
    return compute(sum, NULL, control, count, means, pool, stream);
}
