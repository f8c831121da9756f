/* gpu_calls.h - calls on their way to a stream. */
#ifndef FL_GPU_CALLS_H
#define FL_GPU_CALLS_H

#include "gpu/gpu_call.h"

/* Queues the kernels of a call. */
cudaError_t gpu_submit(const struct fl_call *call, struct gpu_control *control, cudaStream_t stream);
/* The elements of a tensor, of a format or of the numbers beside them (f64, f32, i32, u8), as doubles. */
cudaError_t gpu_numbers_to_doubles(const struct fl_source *source, int64_t count, double *values, cudaStream_t stream);
/* A batch out of a set of images. */
cudaError_t gpu_gather(const struct fl_gather *gather, struct gpu_control *control, cudaStream_t stream);

#endif
