/* ref_image.c - reference kernels: pooling and shortcuts on images [N,H,W,C]. */
#include "core/reference/ref.h"
#include <math.h>

/* The first largest element of a window, as a position in x; a NaN counts as larger than anything. */
static int64_t largest_in_window(const double *x, const struct fl_windows *g, int64_t n, int64_t p, int64_t q,
                                 int64_t c) {
    int64_t best = -1;
    for (int64_t r = 0; r < g->r; r++)
        for (int64_t s = 0; s < g->s; s++) {
            const int64_t y = p * g->stride[0] + r * g->dilation[0] - g->padding[0],
                          z = q * g->stride[1] + s * g->dilation[1] - g->padding[1];
            if (y < 0 || y >= g->h || z < 0 || z >= g->w)
                continue;
            int64_t i = ((n * g->h + y) * g->w + z) * g->c + c;
            if (best < 0 || x[i] > x[best] || (x[i] != x[i] && x[best] == x[best]))
                best = i;
        }
    return best;
}

tensor_status fl_ref_maxpool(const struct fl_args *args) {
    struct ref_work w;
    tensor_status status = fl_ref_begin(&w, args);
    if (status)
        return status;
    const struct fl_windows *g = &args->p.pooling.windows;
    const bool gradient = args->op == FL_OP_MAXPOOL2D_GRAD;
    const double *x = w.in[gradient ? 1 : 0];
    if (gradient)
        for (int64_t i = 0; i < w.count; i++)
            w.value[i] = 0;
    int64_t out = 0;
    for (int64_t n = 0; n < g->batch; n++)
        for (int64_t p = 0; p < g->p; p++)
            for (int64_t q = 0; q < g->q; q++)
                for (int64_t c = 0; c < g->c; c++, out++) {
                    int64_t best = largest_in_window(x, g, n, p, q, c);
                    if (!gradient)
                        w.value[out] = x[best];
                    else if (fl_ref_shared(args))
                        w.value[best] += w.in[0][out]; /* exact: mantissas under one exponent */
                    else
                        w.value[best] = (float)w.value[best] + (float)w.in[0][out];
                }
    for (int64_t i = 0; i < w.count; i++)
        w.near[i] = w.value[i];
    fl_ref_end(&w);
    return TENSOR_OK;
}

tensor_status fl_ref_avgpool(const struct fl_args *args) {
    struct ref_work w;
    tensor_status status = fl_ref_begin(&w, args);
    if (status)
        return status;
    const struct fl_windows *g = &args->p.pooling.windows;
    const int64_t positions = g->h * g->w;
    for (int64_t n = 0; n < g->batch; n++)
        for (int64_t c = 0; c < g->c; c++) {
            if (args->op == FL_OP_AVGPOOL_GLOBAL_GRAD) {
                for (int64_t i = 0; i < positions; i++)
                    w.value[(n * positions + i) * g->c + c] = w.in[0][n * g->c + c] / (double)positions;
                continue;
            }
            double total = 0; /* exact in shared-exponent formats */
            float chain = 0;
            for (int64_t i = 0; i < positions; i++) {
                double x = w.in[0][(n * positions + i) * g->c + c];
                if (fl_ref_shared(args)) {
                    total += x;
                } else {
                    if (i && i % FL_ROWS_CHUNK == 0) {
                        total += chain;
                        chain = 0;
                    }
                    chain += (float)x;
                }
            }
            w.value[n * g->c + c] = (total + chain) / (double)positions;
        }
    for (int64_t i = 0; i < w.count; i++)
        w.near[i] = w.value[i];
    fl_ref_end(&w);
    return TENSOR_OK;
}

tensor_status fl_ref_shortcut(const struct fl_args *args) {
    struct ref_work w;
    tensor_status status = fl_ref_begin(&w, args);
    if (status)
        return status;
    const struct fl_windows *g = &args->p.pooling.windows;
    const bool gradient = args->op == FL_OP_SHORTCUT_A_GRAD;
    const int64_t pad = (g->filters - g->c) / 2;
    for (int64_t i = 0; i < w.count; i++)
        w.value[i] = 0;
    for (int64_t n = 0; n < g->batch; n++)
        for (int64_t p = 0; p < g->p; p++)
            for (int64_t q = 0; q < g->q; q++)
                for (int64_t c = 0; c < g->c; c++) {
                    int64_t x = ((n * g->h + p * g->stride[0]) * g->w + q * g->stride[1]) * g->c + c;
                    int64_t y = ((n * g->p + p) * g->q + q) * g->filters + pad + c;
                    if (gradient)
                        w.value[x] = w.in[0][y];
                    else
                        w.value[y] = w.in[0][x];
                }
    for (int64_t i = 0; i < w.count; i++)
        w.near[i] = w.value[i];
    fl_ref_end(&w);
    return TENSOR_OK;
}
