// gpu_sampled.cu - elements of a product computed again without rounding (core/queue/sampled_rules.h), a thread each.
#include "gpu/gpu_calls.h"
#include "gpu/gpu_plugin.h"

FL_EITHER double fl_sampled_decoded(const struct fl_sampled_operand *x, int64_t i) {
    const struct fl_minifloat *f = (const struct fl_minifloat *)x->format;
    const uint32_t code =
        f->sign < 24 ? ((const uint16_t *)x->view.data)[i] : (uint32_t)((const uint8_t *)x->view.data)[i];
    return (double)fl_minifloat_decode(f, code);
}

// The first thread adds what all have found, in order.
__global__ void sample_product(const struct gpu_control *control, const struct fl_args args,
                               const struct fl_gpu_sampled given, const struct fl_examining how,
                               const struct fl_slot *slot) {
    __shared__ struct fl_sampled_operand in[FL_SAMPLED_OPERANDS];
    __shared__ struct fl_minifloat made[FL_SAMPLED_OPERANDS];
    __shared__ struct fl_sampled_one found[FL_SAMPLED_MOST];
    if (control->failure.finding)
        return;
    for (int k = 0; k < FL_SAMPLED_OPERANDS && threadIdx.x == 0; k++) {
        in[k] = given.in[k];
        made[k] = given.made[k];
        in[k].format = &made[k];
    }
    __syncthreads();
    const int64_t n = threadIdx.x;
    if (n < how.elements)
        found[n] = fl_sampled_one(&args, in, n, how.elements, (uint64_t)how.number);
    __syncthreads();
    if (n)
        return;
    struct fl_sampled_sums sums = {};
    sums.number = how.number + 1;
    sums.elements = how.elements;
    sums.writes = slot->writes;
    for (int64_t i = 0; i < how.elements; i++)
        fl_sampled_count(&sums, &found[i]);
    *how.sampled = sums;
}

cudaError_t gpu_sample(const struct fl_call *call, struct gpu_control *control, cudaStream_t stream) {
    const struct fl_examining *how = &call->examining;
    return gpu_launch(sample_product, 1, FL_SAMPLED_MOST, 0, stream, control, *call->args, *how->operands, *how,
                      call->out.slot);
}
