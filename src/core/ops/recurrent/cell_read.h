/* cell_read.h - the numbers of a view as doubles: the format's codec, compiled for the instruction set of the file. */
#ifndef FL_CELL_READ_H
#define FL_CELL_READ_H

#include "core/reference/ref.h"

static void cell_read(const struct fl_args *args, const struct fl_view *view, int64_t first, int64_t n, double *to) {
    if (fl_ref_shared(args)) {
        const int16_t *m = (const int16_t *)view->data + first;
        const double unit = fl_scale2(1, -fl_exponent(view));
        for (int64_t i = 0; i < n; i++)
            to[i] = m[i] * unit;
    } else if (args->format->id == FMT_FP32) {
        const float *x = (const float *)view->data + first;
        for (int64_t i = 0; i < n; i++)
            to[i] = x[i];
    } else {
        args->format->decode(args->format, view, first, n, to);
    }
}

#endif
