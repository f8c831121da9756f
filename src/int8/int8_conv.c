/* int8_conv.c - convolution and matrix product of a packed layer. */
#include "core/base/fail.h"
#include "int8/int8_layer.h"

int64_t fl_int8_positions(int64_t size, int64_t before, int64_t after, int64_t window, int64_t stride,
                          int64_t dilation) {
    const int64_t room = size + before + after - ((window - 1) * dilation + 1);
    return room < 0 ? 0 : room / stride + 1;
}

struct place { /* of an output */
    int64_t n, y, x, k;
};

/* The definition: the sum of one output in 64 bits. */
static int64_t sum_at(const struct fl_int8_layer *l, const void *images, int64_t h, int64_t w, struct place at) {
    const struct fl_int8_layer_spec *s = &l->spec;
    const struct fl_int8_window *win = &s->window;
    const int64_t first = at.k / l->group_filters * l->group_channels;
    const int16_t *weight = l->weight + at.k * l->length;
    int64_t sum = 0;
    for (int64_t i = 0; i < win->height; i++) {
        const int64_t row = at.y * win->stride_h - win->top + i * win->dilation_h;
        for (int64_t j = 0; j < win->width; j++, weight += l->group_channels) {
            const int64_t column = at.x * win->stride_w - win->left + j * win->dilation_w;
            if (row < 0 || row >= h || column < 0 || column >= w)
                continue;
            const int64_t pixel = ((at.n * h + row) * w + column) * s->channels + first;
            for (int64_t c = 0; c < l->group_channels; c++)
                sum += (int64_t)(int8_get(images, s->x.is_unsigned, pixel + c) - s->x.zero) * weight[c];
        }
    }
    return sum;
}

static void define(const struct fl_int8_layer *l, int64_t n, int64_t h, int64_t w, int64_t height, int64_t width,
                   const void *x, const void *residual, void *y) {
    const struct fl_int8_layer_spec *s = &l->spec;
    struct place at;
    int64_t i = 0;
    for (at.n = 0; at.n < n; at.n++)
        for (at.y = 0; at.y < height; at.y++)
            for (at.x = 0; at.x < width; at.x++)
                for (at.k = 0; at.k < s->filters; at.k++, i++) {
                    const int64_t sum = sum_at(l, x, h, w, at);
                    if (s->sums)
                        ((int32_t *)y)[i] = int8_wrap(sum + l->bias[at.k]);
                    else
                        int8_put(y, i,
                                 int8_round(l, at.k, sum,
                                            residual ? int8_get(residual, l->residual_type.is_unsigned, i) -
                                                           l->residual_type.zero
                                                     : 0));
                }
}

tensor_status fl_int8_conv(const struct fl_int8_layer *layer, int64_t n, int64_t h, int64_t w, const void *x,
                           const void *residual, void *y) {
    const struct fl_int8_layer_spec *s = &layer->spec;
    const struct fl_int8_window *win = &s->window;
    if (!!residual != !!s->residual)
        return fl_fail(TENSOR_E_ARGUMENT, s->residual ? "the layer's residual is missing" : "the layer has no residual");
    const int64_t height =
                      fl_int8_positions(h, win->top, win->bottom, win->height, win->stride_h, win->dilation_h),
                  width = fl_int8_positions(w, win->left, win->right, win->width, win->stride_w, win->dilation_w);
    if (n < 0 || h < 1 || w < 1 || !height || !width)
        return fl_fail(TENSOR_E_SHAPE, "%lld images of %lld x %lld: the window of %lld x %lld does not fit",
                       (long long)n, (long long)h, (long long)w, (long long)win->height, (long long)win->width);
    define(layer, n, h, w, height, width, x, residual, y);
    return TENSOR_OK;
}

tensor_status fl_int8_matmul(const struct fl_int8_layer *layer, int64_t rows, const void *x, const void *residual,
                             void *y) {
    const struct fl_int8_window *w = &layer->spec.window;
    if (w->height != 1 || w->width != 1 || w->top || w->left || w->bottom || w->right || w->stride_h != 1 ||
        w->stride_w != 1)
        return fl_fail(TENSOR_E_SHAPE, "a matrix product has a window of 1 x 1 without padding or strides");
    return rows ? fl_int8_conv(layer, 1, rows, 1, x, residual, y) : TENSOR_OK;
}
