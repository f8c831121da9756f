/* int8_pool.c - the largest and the mean of windows. */
#include "core/base/fail.h"
#include "core/base/parallel.h"
#include "int8/int8_pool.h"

/* Pooling of one image: what a part computes. */
struct pool {
    int64_t h, w, c, height, width;
    struct fl_int8_window window;
    enum fl_int8_rounding rounding;
    struct fl_int8_type x_type, y_type;
    int32_t low, high; /* before the zero point is added */
    struct int8_multiplier multiplier;
    bool mean, count_padding;
    const uint8_t *x;
    uint8_t *y;
};

/* sum m / count to the nearest integer, ties to even: sum m = (b count + g) 2^shift + f. */
static int64_t exact_mean(int64_t sum, int64_t count, const struct int8_multiplier *m) {
    const __int128 product = (__int128)sum * m->coefficient, upper = product >> m->shift;
    const unsigned __int128 f = (unsigned __int128)product & (((unsigned __int128)1 << m->shift) - 1),
                            half = m->shift ? (unsigned __int128)1 << (m->shift - 1) : 0;
    __int128 b = upper / count, g = upper % count;
    if (g < 0) {
        g += count;
        b--;
    }
    int side = 2 * g > count ? 1 : 2 * g == count ? f > 0 : -1; /* of the rest, from one half; 0: a tie */
    if (2 * g == count - 1 && m->shift && f >= half)
        side = f > half;
    if (side > 0 || (side == 0 && (b & 1)))
        b++;
    return b > INT32_MAX ? INT32_MAX : b < INT32_MIN ? INT32_MIN : (int64_t)b;
}

/* Of integers, less the output's zero point. */
static int64_t mean_of(const struct pool *p, int64_t sum, int64_t count) {
    if (p->rounding == FL_INT8_EXACT)
        return exact_mean(sum - count * p->x_type.zero, count, &p->multiplier);
    if (p->rounding == FL_INT8_ONNX) {
        const float scale = p->x_type.scale / (p->y_type.scale * (float)count);
        return int8_binary32((int32_t)(sum - count * p->x_type.zero), scale, p->low, p->high);
    }
    return (sum > 0 ? sum + count / 2 : sum - count / 2) / count - p->y_type.zero;
}

enum { CHANNELS = 64, AREA_MOST = 1 << 22 }; /* channels at once; pixels of a mean, whose sum has 32 bits */

/* Adds a pixel's channels, which are bytes xor `flip` less it, to their sums, or takes the larger of each. */
static void take_pixel(const uint8_t *x, int64_t channels, int32_t flip, bool mean, int32_t *restrict sum) {
    if (mean)
        for (int64_t c = 0; c < channels; c++)
            sum[c] += (x[c] ^ flip) - flip;
    else
        for (int64_t c = 0; c < channels; c++) {
            const int32_t q = (x[c] ^ flip) - flip;
            sum[c] = q > sum[c] ? q : sum[c];
        }
}

/* The first and the last position of a window that lie on an image. */
static int64_t first_inside(int64_t start, int64_t dilation) {
    return start < 0 ? start + (-start + dilation - 1) / dilation * dilation : start;
}

static int64_t end_inside(int64_t start, int64_t window, int64_t dilation, int64_t size) {
    return start + window * dilation < size ? start + window * dilation : size;
}

static void pool_row(void *context, int part, int worker) {
    const struct pool *p = context;
    const struct fl_int8_window *win = &p->window;
    const int64_t n = part / p->height, row = part % p->height, top = row * win->stride_h - win->top,
                  from_y = first_inside(top, win->dilation_h),
                  to_y = end_inside(top, win->height, win->dilation_h, p->h), all = win->height * win->width;
    const int32_t flip = p->x_type.is_unsigned ? 0 : 128, least = int8_least(p->x_type.is_unsigned);
    (void)worker;
    for (int64_t column = 0; column < p->width; column++) {
        const int64_t left = column * win->stride_w - win->left, from_x = first_inside(left, win->dilation_w),
                      to_x = end_inside(left, win->width, win->dilation_w, p->w);
        uint8_t *y = p->y + ((n * p->height + row) * p->width + column) * p->c;
        for (int64_t first = 0; first < p->c; first += CHANNELS) {
            const int64_t channels = p->c - first < CHANNELS ? p->c - first : CHANNELS;
            int32_t sum[CHANNELS];
            int64_t count = 0;
            for (int64_t c = 0; c < CHANNELS; c++)
                sum[c] = p->mean ? 0 : least;
            for (int64_t i = from_y; i < to_y; i += win->dilation_h)
                for (int64_t j = from_x; j < to_x; j += win->dilation_w, count++)
                    take_pixel(p->x + ((n * p->h + i) * p->w + j) * p->c + first, channels, flip, p->mean, sum);
            for (int64_t c = 0; c < channels; c++) {
                int64_t q = sum[c] - p->y_type.zero;
                if (p->mean && p->count_padding)
                    q = mean_of(p, sum[c] + (all - count) * p->x_type.zero, all);
                else if (p->mean)
                    q = count ? mean_of(p, sum[c], count) : 0;
                int8_put(y, first + c, int8_clamp(q, p->low, p->high) + p->y_type.zero);
            }
        }
    }
}

static tensor_status run_pool(struct pool *p, int64_t n, const struct fl_int8_window *window,
                              struct fl_int8_range range) {
    TRY(int8_window(window, &p->window));
    TRY(int8_check_type("the input", &p->x_type));
    TRY(int8_check_type("the output", &p->y_type));
    range = int8_whole_range(&p->y_type, range);
    TRY(int8_check_range(&p->y_type, range));
    window = &p->window;
    p->height =
        fl_int8_positions(p->h, window->top, window->bottom, window->height, window->stride_h, window->dilation_h);
    p->width =
        fl_int8_positions(p->w, window->left, window->right, window->width, window->stride_w, window->dilation_w);
    if (n < 0 || p->h < 1 || p->w < 1 || p->c < 1 || !p->height || !p->width || n > INT32_MAX / p->height ||
        (p->mean && window->height > AREA_MOST / window->width))
        return fl_fail(TENSOR_E_SHAPE, "%lld images of %lld x %lld x %lld: the window of %lld x %lld does not fit",
                       (long long)n, (long long)p->h, (long long)p->w, (long long)p->c, (long long)window->height,
                       (long long)window->width);
    if (p->mean && (unsigned)p->rounding >= FL_INT8_ROUNDINGS)
        return fl_fail(TENSOR_E_ARGUMENT, "rounding %d is none", (int)p->rounding);
    const double ratio = (double)p->x_type.scale / (double)p->y_type.scale;
    if (p->mean && p->rounding == FL_INT8_EXACT && !int8_exact_multiplier(ratio, &p->multiplier))
        return fl_fail(TENSOR_E_ARGUMENT, "scales %g and %g: expected a ratio of 2^-96 to 2^31",
                       (double)p->x_type.scale, (double)p->y_type.scale);
    if (p->mean && p->rounding >= FL_INT8_TFLITE &&
        (p->x_type.scale != p->y_type.scale || p->x_type.zero != p->y_type.zero))
        return fl_fail(TENSOR_E_ARGUMENT,
                       "scales %g and %g, zero points %d and %d: average pooling of the rounding %s "
                       "expects the same for input and output",
                       (double)p->x_type.scale, (double)p->y_type.scale, p->x_type.zero, p->y_type.zero,
                       fl_int8_rounding_name(p->rounding));
    p->low = range.low - p->y_type.zero;
    p->high = range.high - p->y_type.zero;
    fl_parallel((int)(n * p->height), pool_row, p);
    return TENSOR_OK;
}

tensor_status fl_int8_max_pool(int64_t n, int64_t h, int64_t w, int64_t c, const struct fl_int8_window *window,
                               const struct fl_int8_type *type, struct fl_int8_range range, const void *x, void *y) {
    struct pool p = {.h = h, .w = w, .c = c, .x_type = *type, .y_type = *type, .x = x, .y = y};
    return run_pool(&p, n, window, range);
}

tensor_status fl_int8_average_pool(enum fl_int8_rounding rounding, int64_t n, int64_t h, int64_t w, int64_t c,
                                   const struct fl_int8_window *window, bool count_padding,
                                   const struct fl_int8_type *x_type, const void *x, const struct fl_int8_type *y_type,
                                   struct fl_int8_range range, void *y) {
    struct pool p = {.h = h,
                     .w = w,
                     .c = c,
                     .rounding = rounding,
                     .x_type = *x_type,
                     .y_type = *y_type,
                     .mean = true,
                     .count_padding = count_padding,
                     .x = x,
                     .y = y};
    return run_pool(&p, n, window, range);
}

tensor_status fl_int8_global_average(enum fl_int8_rounding rounding, int64_t n, int64_t h, int64_t w, int64_t c,
                                     const struct fl_int8_type *x_type, const void *x,
                                     const struct fl_int8_type *y_type, struct fl_int8_range range, void *y) {
    const struct fl_int8_window whole = {.height = h, .width = w};
    return fl_int8_average_pool(rounding, n, h, w, c, &whole, false, x_type, x, y_type, range, y);
}
