/* gpu_load.h - the CUDA backend, a shared object that is opened at its first use. */
#ifndef FL_GPU_LOAD_H
#define FL_GPU_LOAD_H

#include "gpu/gpu_plugin.h"

/* The backend; NULL with the reason. It is searched once: at the path in the environment variable FLEXLAB_CUDA_LIBRARY
 * if that is set, otherwise beside the library or program that contains this code, and for an installed program also in
 * the folder of libraries. */
const struct fl_gpu_plugin *fl_gpu_load(char *why, size_t bytes);

#endif
