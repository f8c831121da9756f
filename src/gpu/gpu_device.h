/* gpu_device.h - GPUs as devices that are opened by name. */
#ifndef FL_GPU_DEVICE_KIND_H
#define FL_GPU_DEVICE_KIND_H

#include <stddef.h>

struct tensor_device;

/* "cuda", "cuda:0", "cuda:1", ...: the GPU, opened at its first use (device_kinds.h). */
struct tensor_device *fl_gpu_find(const char *name, int place, char *why, size_t bytes);

#endif
