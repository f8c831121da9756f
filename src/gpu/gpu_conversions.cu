// gpu_conversions.cu - elements of floats made from their parameters to binary32 and doubles, and back.
#include "gpu/gpu_calls.h"

static bool is_byte(const struct fl_minifloat *format) {
    return format->sign >= 24;
}

template <class Element, class Number>
__global__ void decode_elements(const struct gpu_control *control, const struct fl_minifloat format,
                                const Element *elements, int64_t n, Number *to) {
    if (control && control->failure.finding)
        return;
    for (int64_t i = gpu_first(); i < n; i += gpu_stride())
        to[i] = fl_minifloat_decode(&format, elements[i]);
}

template <class Number>
static cudaError_t decode(const struct gpu_control *control, const struct fl_minifloat *format, const void *elements,
                          int64_t n, Number *to, cudaStream_t stream) {
    const unsigned blocks = gpu_blocks(n);
    return is_byte(format) ? gpu_launch(decode_elements<uint8_t, Number>, blocks, GPU_THREADS, 0, stream, control,
                                        *format, (const uint8_t *)elements, n, to)
                           : gpu_launch(decode_elements<uint16_t, Number>, blocks, GPU_THREADS, 0, stream, control,
                                        *format, (const uint16_t *)elements, n, to);
}

cudaError_t gpu_decode_doubles(const struct fl_minifloat *format, const void *elements, int64_t n, double *to,
                               cudaStream_t stream) {
    return decode<double>(NULL, format, elements, n, to, stream);
}

cudaError_t gpu_decode_floats(const struct gpu_control *control, const struct fl_minifloat *format,
                              const void *elements, int64_t n, float *to, cudaStream_t stream) {
    return decode<float>(control, format, elements, n, to, stream);
}

template <class Element> __global__ void encode_elements(const struct gpu_call call, Element *elements) {
    struct gpu_now now;
    if (!gpu_begin(call, &now))
        return;
    const float *const from = (const float *)now.out;
    for (int64_t i = gpu_first(); i < call.args.out.count; i += gpu_stride())
        elements[i] = (Element)fl_minifloat_encode(&now.made, from[i]);
}

cudaError_t gpu_encode(const struct gpu_call *call, void *elements, cudaStream_t stream) {
    const unsigned blocks = gpu_blocks(call->args.out.count);
    return is_byte(&call->made)
               ? gpu_launch(encode_elements<uint8_t>, blocks, GPU_THREADS, 0, stream, *call, (uint8_t *)elements)
               : gpu_launch(encode_elements<uint16_t>, blocks, GPU_THREADS, 0, stream, *call, (uint16_t *)elements);
}
