/* fast_class.h - class fast and what may be requested with it, as bits of the class (docs/semantics.md). */
#ifndef FL_FAST_CLASS_H
#define FL_FAST_CLASS_H

#include "flexlab/tensor_backend.h"
#include <stdbool.h>

enum { FL_FAST_TF32 = 2, FL_FAST_FP16_SUMS = 4, FL_FAST_CLASSES = 8 };

static inline bool fl_is_fast(tensor_class c) {
    return (int)c >= 0 && (int)c < FL_FAST_CLASSES && ((int)c & TENSOR_FAST);
}

#endif
