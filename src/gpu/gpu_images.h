/* gpu_images.h - pooling and shortcuts on images [N, H, W, C], for the formats of a folder. A thread computes one
 * element at a time.
 *
 * Expects: the codec of a folder (gpu_element.h).
 * Gives: add_images. */
#ifndef FL_GPU_IMAGES_H
#define FL_GPU_IMAGES_H

#include "gpu/gpu_integers.h"

namespace {

/* The place of an element in images [n, h, w, c]. */
struct gpu_place {
    int64_t n, y, x, c;
};

__device__ static inline struct gpu_place place_of(int64_t i, int64_t h, int64_t w, int64_t c) {
    const int64_t pixel = i / c, row = pixel / w, image = row / h;
    return {image, row - image * h, pixel - row * w, i - pixel * c};
}

/* --- max pooling -------------------------------------------------------------------------------------------------- */

/* The first largest element of a window, as a position in x; a NaN counts as larger than anything. */
__device__ static int64_t largest_in_window(const struct fl_view &x, int e, const struct fl_windows &g, int64_t n,
                                            int64_t p, int64_t q, int64_t c, double *value) {
    int64_t best = -1;
    for (int64_t r = 0; r < g.r; r++)
        for (int64_t s = 0; s < g.s; s++) {
            const int64_t y = p * g.stride[0] + r * g.dilation[0] - g.padding[0],
                          z = q * g.stride[1] + s * g.dilation[1] - g.padding[1];
            if (y < 0 || y >= g.h || z < 0 || z >= g.w)
                continue;
            const int64_t i = ((n * g.h + y) * g.w + z) * g.c + c;
            const double element = gpu_value(x, e, i);
            if (best < 0 || element > *value || (element != element && *value == *value)) {
                best = i;
                *value = element;
            }
        }
    return best;
}

__global__ void maxpool(const struct gpu_call call) {
    const struct fl_windows &g = call.args.p.pooling.windows;
    const int ex = fl_exponent(&call.args.in[0]);
    gpu_elements(call, call.args.out.count, [&](int64_t i) {
        const struct gpu_place at = place_of(i, g.p, g.q, g.c);
        double value = 0;
        largest_in_window(call.args.in[0], ex, g, at.n, at.y, at.x, at.c, &value);
        return value;
    });
}

/* The first and the last window whose extent includes pixel y down (way 0) or across (1); there may be none. */
__device__ static inline void windows_of(const struct fl_windows &g, int way, int64_t y, int64_t *first,
                                         int64_t *last) {
    const int64_t stride = g.stride[way], count = way ? g.q : g.p,
                  reach = ((way ? g.s : g.r) - 1) * g.dilation[way] + 1;
    const int64_t at = y + g.padding[way], begin = at - reach + 1;
    *first = begin <= 0 ? 0 : (begin + stride - 1) / stride;
    *last = at / stride < count - 1 ? at / stride : count - 1;
}

/* The gradient of an element of x: the sum, in order, of dy of the windows in which it is the largest. */
__global__ void maxpool_grad(const struct gpu_call call) {
    const struct fl_windows &g = call.args.p.pooling.windows;
    const struct fl_view &dy = call.args.in[0], &x = call.args.in[1];
    const int ey = fl_exponent(&dy), ex = fl_exponent(&x);
    gpu_elements(call, call.args.out.count, [&](int64_t i) {
        const struct gpu_place at = place_of(i, g.h, g.w, g.c);
        int64_t p0, p1, q0, q1;
        windows_of(g, 0, at.y, &p0, &p1);
        windows_of(g, 1, at.x, &q0, &q1);
        double sum = 0;
        for (int64_t p = p0; p <= p1; p++)
            for (int64_t q = q0; q <= q1; q++) {
                double value = 0;
                if (largest_in_window(x, ex, g, at.n, p, q, at.c, &value) != i)
                    continue;
                const double part = gpu_value(dy, ey, ((at.n * g.p + p) * g.q + q) * g.c + at.c);
                sum = GPU_SHARED ? sum + part : (double)__fadd_rn((float)sum, (float)part); /* mantissas: exact */
            }
        return sum;
    });
}

/* --- means -------------------------------------------------------------------------------------------------------- */

__global__ void avgpool(const struct gpu_call call) {
    const struct fl_windows &g = call.args.p.pooling.windows;
    const int64_t positions = g.h * g.w;
    const int ex = fl_exponent(&call.args.in[0]);
    gpu_elements(call, call.args.out.count, [&](int64_t i) {
        double exact = 0; /* in shared-exponent formats */
        struct gpu_chains sum;
        for (int64_t k = 0; k < positions; k++) {
            const double x = gpu_value(call.args.in[0], ex, (i / g.c * positions + k) * g.c + i % g.c);
            if (GPU_SHARED)
                exact += x;
            else
                sum.add(x);
        }
        return (GPU_SHARED ? exact : sum.value()) / (double)positions;
    });
}

__global__ void avgpool_grad(const struct gpu_call call) {
    const struct fl_windows &g = call.args.p.pooling.windows;
    const int64_t positions = g.h * g.w;
    const int ey = fl_exponent(&call.args.in[0]);
    gpu_elements(call, call.args.out.count, [&](int64_t i) {
        const int64_t from = i / (positions * g.c) * g.c + i % g.c;
        return gpu_value(call.args.in[0], ey, from) / (double)positions;
    });
}

/* --- shortcuts of type A ------------------------------------------------------------------------------------------ */

/* Forward: every stride-th pixel, its channels between zero channels. Backward: the reverse, with zeros elsewhere. */
__global__ void shortcut(const struct gpu_call call) {
    struct gpu_now now;
    if (!gpu_begin(call, &now))
        return;
    const struct fl_windows &g = call.args.p.pooling.windows;
    const bool gradient = call.args.op == FL_OP_SHORTCUT_A_GRAD;
    const int64_t stride = g.stride[0], pad = (g.filters - g.c) / 2;
    const struct fl_view &from = call.args.in[0];
    struct gpu_moved moved;
    moved.begin(now, from, call.args.out);
    for (int64_t i = gpu_first(); i < call.args.out.count; i += gpu_stride()) {
        int64_t source = -1;
        if (gradient) {
            const struct gpu_place at = place_of(i, g.h, g.w, g.c);
            if (at.y % stride == 0 && at.x % stride == 0 && at.y / stride < g.p && at.x / stride < g.q)
                source = ((at.n * g.p + at.y / stride) * g.q + at.x / stride) * g.filters + pad + at.c;
        } else {
            const struct gpu_place at = place_of(i, g.p, g.q, g.filters);
            if (at.c >= pad && at.c < pad + g.c)
                source = ((at.n * g.h + at.y * stride) * g.w + at.x * stride) * g.c + at.c - pad;
        }
        moved.put(now, i, from, source);
    }
    moved.report(call.control);
}

static void add_images(struct gpu_kernels *to) {
    to->op[FL_OP_MAXPOOL2D] = gpu_run_all<maxpool>;
    to->op[FL_OP_MAXPOOL2D_GRAD] = gpu_run_all<maxpool_grad>;
    to->op[FL_OP_AVGPOOL_GLOBAL] = gpu_run_all<avgpool>;
    to->op[FL_OP_AVGPOOL_GLOBAL_GRAD] = gpu_run_all<avgpool_grad>;
    gpu_add(to, {FL_OP_SHORTCUT_A, FL_OP_SHORTCUT_A_GRAD}, gpu_run_all<shortcut, 4>);
}

} // namespace

#endif
