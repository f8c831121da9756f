/* gpu_load.h - the CUDA backend, a shared object that is opened when it is first asked for. */
#ifndef FL_GPU_LOAD_H
#define FL_GPU_LOAD_H

#include "gpu/gpu_plugin.h"

/* The backend; NULL with the reason. It is looked for once: where the environment variable FLEXLAB_CUDA_LIBRARY says,
 * else beside the file that this code is in, a library or a program; of a program in a folder of programs also in that
 * of libraries. */
const struct fl_gpu_plugin *fl_gpu_load(char *why, size_t bytes);

#endif
