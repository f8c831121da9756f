/* gpu_calls.h - queues tasks in a stream. */
#ifndef FL_GPU_CALLS_H
#define FL_GPU_CALLS_H

#include "gpu/gpu_call.h"

/* Queues the kernels of a task. */
cudaError_t gpu_submit(const struct fl_call *call, struct gpu_control *control, cudaStream_t stream);
/* Converts the elements of a tensor to doubles, of a format or of a type of numbers (f64, f32, i32, u8). */
cudaError_t gpu_numbers_to_doubles(const struct fl_source *source, int64_t count, double *values, cudaStream_t stream);
/* Gathers a batch from a set of images. */
cudaError_t gpu_gather(const struct fl_gather *gather, struct gpu_control *control, cudaStream_t stream);

#endif
