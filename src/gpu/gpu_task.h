/* gpu_task.h - what the host adds to a task of a GPU: the conversions of floats made from their parameters, and
 * products in blocks or of different formats, with the places of both in its workspace. */
#ifndef FL_GPU_TASK_H
#define FL_GPU_TASK_H

#include "gpu/gpu_blocks.h"

struct gpu_task {
    struct fl_call call; /* its args are `args` if there are any */
    struct fl_args args;
    bool has_floats, has_blocks;
    struct fl_gpu_floats floats;
    struct fl_gpu_blocks blocks;
    struct fl_gpu_sampled sampled;
    struct fl_gpu_shadow shadows[FL_MOST_SHADOWS];
};

void gpu_task_of(const struct fl_call *call, struct gpu_task *task);
/* What its kernel is asked for, and the workspace of a task whose kernel takes so many bytes. */
struct fl_args gpu_task_args(const struct fl_args *args);
size_t gpu_task_need(const struct fl_args *args, size_t bytes);

#endif
