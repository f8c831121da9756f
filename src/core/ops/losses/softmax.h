/* softmax.h - rows of softmax with cross-entropy, in double. */
#ifndef FL_SOFTMAX_H
#define FL_SOFTMAX_H

#include "core/table/kernel.h"
#include <stdbool.h>

/* Works on rows first ... end-1 of z [., classes]. Logits in; out come gradients where they are wanted, and undefined
 * values where not. */
struct fl_softmax_work {
    double *z;
    const int32_t *labels;
    int64_t classes;
    double weight; /* of the gradients */
    bool gradient;
    double *loss;     /* of each row: -log softmax(row)[label] */
    int32_t *largest; /* of each row: its first largest class; 0 where class 0 is NaN */
};
typedef void (*fl_softmax_rows)(const struct fl_softmax_work *s, int64_t first, int64_t end);

/* The row functions of a backend, for FL_REF the definition; NULL: it has none. */
fl_softmax_rows fl_softmax_rows_of(enum fl_backend backend);

/* The definition, for all formats, its need, and the kernels of other backends. */
tensor_status fl_softmax_ref(const struct fl_args *args);
size_t fl_softmax_need(const struct fl_args *args);
fl_kernel fl_softmax_kernel(enum fl_backend backend);

/* softmax_rows.inc, compiled for an instruction set; the bits of the definition in softmax.c. */
void fl_softmax_portable(const struct fl_softmax_work *s, int64_t first, int64_t end);
void fl_softmax_avx2(const struct fl_softmax_work *s, int64_t first, int64_t end);
void fl_softmax_avx512bw(const struct fl_softmax_work *s, int64_t first, int64_t end);

#endif
