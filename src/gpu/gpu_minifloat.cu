// gpu_minifloat.cu - all operations on floats made from their parameters: the kernels of a codec whose elements are
// binary32 numbers in the workspace of the task. They are counted by the rules of the format, which comes with the
// task, and encoded after it (gpu_conversions.cu), which rounds to nearest what they did not round stochastically.
#include "gpu/gpu_call.h"

typedef float fl_element;
#define FL_MADE // conversions to doubles and binary32 are those of gpu_conversions.cu

// Loads store elements at once: what they store is not read again, and a recording cannot take memory.
__device__ static inline void put_number(const struct gpu_now &now, int64_t i, float x) {
    if (!now.code_bytes)
        ((float *)now.out)[i] = x;
    else if (now.code_bytes == 1)
        ((uint8_t *)now.out)[i] = (uint8_t)fl_minifloat_encode(&now.made, x);
    else
        ((uint16_t *)now.out)[i] = (uint16_t)fl_minifloat_encode(&now.made, x);
}

#define FL_DECODE(x) (x)
#define FL_ENCODE(x) (x)
#define FL_DIGITS now.made.digits
#define FL_LEAST_NORMAL now.made.least_normal
#define FL_BEYOND (now.made.largest + 1)
#define FL_OVERFLOW now.made.overflow
#define FL_FLUSH now.made.flush
#define FL_COUNT_FLOAT(x, beyond, stats) fl_minifloat_count(&now.made, x, beyond, stats)
#define FL_STORED(x) fl_minifloat_decode(&now.made, fl_minifloat_encode(&now.made, x))
#define FL_PUT(now, i, x) put_number(now, i, x)
#define GPU_KERNELS gpu_kernels_minifloat
#include "gpu/gpu_kernels.inc"
