/* convolutions.c - convolutions in double, of any number of dimensions, and transposed ones: what the library's own do
 * not take, and constants. */
#include "program/arrays/windows.h"
#include "program/lower/lower.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/base/parallel.h"
#include <math.h>

tensor_status fl_as_doubles(const struct fl_array *x, const double **numbers, void **memory) {
    double *made;
    *memory = NULL;
    *numbers = x->data;
    if (x->type == TENSOR_TYPE_F64)
        return TENSOR_OK;
    TRY(fl_memory(memory, x->count, sizeof(double)));
    *numbers = made = *memory;
    fl_load_numbers(made, x, 0, 1, x->count);
    return TENSOR_OK;
}

tensor_status fl_activate(const struct fl_arrays *a) {
    struct fl_activation_of activation;
    struct fl_array *const y = a->out[0];
    double block[FL_BLOCK];
    TRY(fl_activation_read(a->node, &activation));
    if (activation.kind == FL_NO_ACTIVATION || !y)
        return TENSOR_OK;
    const double low = activation.kind == FL_RELU ? 0 : (double)activation.low;
    const double high = activation.kind == FL_RELU ? HUGE_VAL : (double)activation.high;
    for (int64_t i = 0; i < y->count; i += FL_BLOCK) {
        const int64_t n = y->count - i < FL_BLOCK ? y->count - i : FL_BLOCK;
        fl_load_numbers(block, y, i, 1, n);
        for (int64_t k = 0; k < n; k++)
            block[k] = block[k] < low ? low : block[k] > high ? high : block[k];
        fl_store_numbers(y, i, 1, block, n);
    }
    return TENSOR_OK;
}

/* Windows lie on the larger image, and stand for pixels of the smaller one: the result, or the operand of a transposed
 * convolution. */
struct convolution {
    const struct fl_windows *g;
    bool transposed;
    const double *x, *w, *bias;
    double *y;
    const int64_t *small, *large;
    int64_t x_pixels, y_pixels, window, in, out; /* pixels of images and filters; channels of a group */
    int64_t x_step, y_step;                      /* from pixel to pixel */
    int64_t x_plane, y_plane;                    /* from channel to channel */
    int64_t w_step, w_in, w_out;                 /* from one pixel, channel of x, of y to the next within a group */
    int64_t w_group;
};

/* Adds one plane times one number of a filter, at that place in the window. */
static void add_plane(const struct convolution *c, double *y, const double *x, double w, const int64_t *place) {
    const struct fl_windows *const g = c->g;
    const int last = g->spatial - 1;
    int64_t low[FL_SPATIAL], high[FL_SPATIAL], offset[FL_SPATIAL], index[FL_SPATIAL];
    for (int d = 0; d <= last; d++) {
        const int64_t step = g->stride[d];
        offset[d] = place[d] * g->dilation[d] - g->begin[d];
        low[d] = offset[d] < 0 ? (step - 1 - offset[d]) / step : 0;
        high[d] = offset[d] < c->large[d] ? (c->large[d] - 1 - offset[d]) / step + 1 : 0;
        high[d] = high[d] < c->small[d] ? high[d] : c->small[d];
        if (low[d] >= high[d])
            return;
        index[d] = low[d];
    }
    const int64_t step = g->stride[last];
    for (;;) {
        int64_t small = 0, large = 0;
        for (int d = 0; d <= last; d++) {
            small = small * c->small[d] + index[d];
            large = large * c->large[d] + index[d] * g->stride[d] + offset[d];
        }
        const int64_t n = high[last] - low[last];
        double *const to = y + (c->transposed ? large : small) * c->y_step;
        const double *const from = x + (c->transposed ? small : large) * c->x_step;
        const int64_t to_step = c->y_step * (c->transposed ? step : 1);
        const int64_t from_step = c->x_step * (c->transposed ? 1 : step);
        if (to_step == 1 && from_step == 1)
            for (int64_t i = 0; i < n; i++)
                to[i] += w * from[i];
        else
            for (int64_t i = 0; i < n; i++)
                to[i * to_step] += w * from[i * from_step];
        int d = last - 1;
        for (; d >= 0 && ++index[d] == high[d]; d--)
            index[d] = low[d];
        if (d < 0)
            return;
    }
}

/* One channel of the result of one image. */
static void convolve_part(void *context, int part, int worker) {
    const struct convolution *const c = context;
    const struct fl_windows *const g = c->g;
    const int64_t image = part / g->filters, filter = part % g->filters, group = filter / c->out;
    const double *const x = c->x + image * g->channels * c->x_pixels, *w = c->w + group * c->w_group;
    double *const y = c->y + image * g->filters * c->y_pixels + filter * c->y_plane;
    (void)worker;
    w += filter % c->out * c->w_out;
    for (int64_t i = 0; i < c->y_pixels; i++)
        y[i * c->y_step] = c->bias ? c->bias[filter] : 0;
    for (int64_t channel = 0; channel < c->in; channel++) {
        int64_t place[FL_SPATIAL] = {0};
        for (int64_t i = 0; i < c->window; i++) {
            add_plane(c, y, x + (group * c->in + channel) * c->x_plane, w[channel * c->w_in + i * c->w_step], place);
            for (int d = g->spatial - 1; d >= 0 && ++place[d] == g->window[d]; d--)
                place[d] = 0;
        }
    }
}

void fl_convolve(const struct fl_windows *g, const struct fl_net_node *node, bool transposed, const double *x,
                 const double *w, const double *bias, double *y) {
    struct convolution c = {.g = g, .transposed = transposed, .x = x, .w = w, .bias = bias, .y = y};
    const bool last = node->channels_last;
    c.small = transposed ? g->size : g->result;
    c.large = transposed ? g->result : g->size;
    c.x_pixels = c.y_pixels = c.window = 1;
    for (int d = 0; d < g->spatial; d++) {
        c.x_pixels *= g->size[d];
        c.y_pixels *= g->result[d];
        c.window *= g->window[d];
    }
    c.in = g->channels / g->group;
    c.out = g->filters / g->group;
    c.x_step = last ? g->channels : 1;
    c.y_step = last ? g->filters : 1;
    c.x_plane = last ? 1 : c.x_pixels;
    c.y_plane = last ? 1 : c.y_pixels;
    c.w_step = last && !transposed ? c.in : 1;
    c.w_in = transposed ? c.out * c.window : last ? 1 : c.window;
    c.w_out = transposed ? c.window : c.in * c.window;
    c.w_group = c.in * c.out * c.window;
    fl_parallel((int)(g->batch * g->filters), convolve_part, &c);
}

/* x, w, bias, and what is added to the result. */
static tensor_status compute(const struct fl_arrays *a, const struct fl_windows *g, bool transposed) {
    const struct fl_array *const b = fl_operand(a, 2), *const added = fl_operand(a, 3);
    struct fl_array *const out = a->out[0];
    const double *x = NULL, *w = NULL, *bias = NULL;
    void *memory[4] = {NULL};
    double *y = NULL;
    tensor_status status = fl_as_doubles(a->in[0], &x, &memory[0]);
    if (!status)
        status = fl_as_doubles(a->in[1], &w, &memory[1]);
    if (!status && b)
        status = fl_as_doubles(b, &bias, &memory[2]);
    if (!status && out->type == TENSOR_TYPE_F64)
        y = out->data;
    else if (!status && !(status = fl_memory(&memory[3], out->count, sizeof *y)))
        y = memory[3];
    if (!status) {
        fl_convolve(g, a->node, transposed, x, w, bias, y);
        for (int64_t i = 0; added && i < out->count; i++)
            y[i] += fl_array_number(added, i);
        if (memory[3])
            fl_store_numbers(out, 0, 1, y, out->count);
    }
    for (int i = 0; i < 4; i++)
        fl_free(memory[i]);
    return status ? status : fl_activate(a);
}

tensor_status fl_compute_conv(const struct fl_arrays *a) {
    struct fl_windows g;
    TRY(fl_want_float(a, 0));
    TRY(fl_windows_convolution(&g, a->node, a->in[0], a->in[1], fl_operand(a, 2)));
    return a->out[0] && a->out[0]->count ? compute(a, &g, false) : TENSOR_OK;
}

tensor_status fl_compute_conv_transpose(const struct fl_arrays *a) {
    struct fl_windows g;
    TRY(fl_want_float(a, 0));
    TRY(fl_windows_transposed(&g, a->node, a->in[0], a->in[1]));
    return a->out[0] && a->out[0]->count ? compute(a, &g, true) : TENSOR_OK;
}
