/* gpu_calls.h - queues tasks in a stream. */
#ifndef FL_GPU_CALLS_H
#define FL_GPU_CALLS_H

#include "gpu/gpu_call.h"

/* Queues the kernels of a task. floats, blocks: as in struct fl_gpu_plugin. pool: for memory while it runs. */
cudaError_t gpu_submit(const struct fl_call *call, const struct fl_gpu_floats *floats,
                       const struct fl_gpu_blocks *blocks, struct gpu_control *control, cudaMemPool_t pool,
                       cudaStream_t stream);
/* Whether the driver can load kernels for the device. */
cudaError_t gpu_load_kernels(void);
/* Converts the elements of a tensor to doubles, of a format made from its parameters (made), of another one or of a
 * type of numbers (f64, f32, i32, u8). */
cudaError_t gpu_numbers_to_doubles(const struct fl_source *source, const struct fl_minifloat *made, int64_t count,
                                   double *values, cudaStream_t stream);
/* Sums of tensors element by element as doubles, and means of tensors of f64 unless the queue has stopped
 * (gpu_sums.cu). The list of terms may go afterwards. */
cudaError_t gpu_sum(const struct fl_sum *sum, const struct fl_minifloat *made, int64_t count, double *sums,
                    cudaMemPool_t pool, cudaStream_t stream);
cudaError_t gpu_mean(const struct fl_sum *sum, const struct gpu_control *control, int64_t count, double *means,
                     cudaMemPool_t pool, cudaStream_t stream);
/* Conversions of floats made from their parameters, in elements of one or two bytes: decodes n of them to doubles, or
 * to floats unless the queue has stopped; encodes what a kernel has written, unless it had nothing to do. */
cudaError_t gpu_decode_doubles(const struct fl_minifloat *format, const void *elements, int64_t n, double *to,
                               cudaStream_t stream);
cudaError_t gpu_decode_floats(const struct gpu_control *control, const struct fl_minifloat *format,
                              const void *elements, int64_t n, float *to, cudaStream_t stream);
cudaError_t gpu_encode(const struct gpu_call *call, void *elements, cudaStream_t stream);
/* Quantises the operands of a product in blocks, and sums their products exactly (gpu_blocks.h). */
cudaError_t gpu_sum_blocks(const struct gpu_call *call, const struct fl_gpu_blocks *blocks, cudaStream_t stream);
/* Describes the elements of a tensor, keeps them, or compares them with those kept. */
cudaError_t gpu_examine(const struct fl_source *from, const struct fl_minifloat *made, const struct fl_examining *how,
                        struct gpu_control *control, cudaStream_t stream);
/* Computes elements of a product again. */
cudaError_t gpu_sample(const struct fl_call *call, struct gpu_control *control, cudaStream_t stream);
/* Gathers a batch from a set of images. */
cudaError_t gpu_gather(const struct fl_gather *gather, struct gpu_control *control, cudaStream_t stream);

#endif
