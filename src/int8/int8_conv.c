/* int8_conv.c - convolution and matrix product of a packed layer. */
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/base/parallel.h"
#include "int8/int8_kernels.h"
#include <string.h>

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

/* --- what one call computes ------------------------------------------------------------------------------------------
 */

struct call {
    const struct fl_int8_layer *layer;
    int64_t n, h, w, height, width; /* of x; of y */
    const uint8_t *x, *residual;
    void *y;

    /* A part: some rows of the output of an image, some filters of a group. */
    int64_t rows, row_parts, panels, filter_parts, groups;
    int64_t step_h, step_w;   /* of the window on the piece: 1 where only pixels that it sees are copied */
    int64_t piece_w, piece_c; /* of the piece */
    int64_t positions_w;      /* from a row of the output to the next, in positions; 0: rows by themselves */
    int64_t piece_bytes, worker_bytes;
    const int64_t *offset; /* of each run, or tap */
    uint8_t *memory;       /* of the workers */
};

/* The definition, a row of the output. */
static void define_row(void *context, int part, int worker) {
    const struct call *call = context;
    const struct fl_int8_layer *l = call->layer;
    struct place at = {.n = part / call->height, .y = part % call->height};
    int64_t i = part * call->width * l->spec.filters;
    (void)worker;
    for (; at.x < call->width; at.x++)
        for (at.k = 0; at.k < l->spec.filters; at.k++, i++) {
            const int64_t sum = sum_at(l, call->x, call->h, call->w, at);
            const int32_t r =
                call->residual ? int8_get(call->residual, l->residual_type.is_unsigned, i) - l->residual_type.zero : 0;
            if (l->spec.sums)
                ((int32_t *)call->y)[i] = int8_wrap(sum + l->bias[at.k]);
            else
                int8_put(call->y, i, int8_round(l, at.k, sum, r));
        }
}

/* --- the piece of an image that a part reads -------------------------------------------------------------------------
 */

/* Elements of the piece from x; `repeat` copies of each channel. */
static void copy_pixels(const struct call *call, const uint8_t *from, int64_t n, int64_t repeat, uint8_t *to) {
    const struct fl_int8_layer *l = call->layer;
    const struct fl_int8_type *type = &l->spec.x;
    if (l->is_depthwise || l->kernels->element == 2) {
        int16_t *wide = (int16_t *)(void *)to;
        if (repeat == 1)
            l->kernels->widen(from, n, type, wide);
        for (int64_t i = 0; i < n && repeat > 1; i++)
            for (int64_t j = 0; j < repeat; j++)
                wide[i * repeat + j] = (int16_t)(int8_get(from, type->is_unsigned, i) - type->zero);
    } else if (type->is_unsigned) {
        memcpy(to, from, (size_t)n);
    } else {
        l->kernels->flip(from, n, to);
    }
}

/* A row of the piece: pixels first, first + step, ... of a row of the image, NULL where it has none. */
static void copy_row(const struct call *call, const uint8_t *row, int64_t first, int64_t step, uint8_t *to) {
    const struct fl_int8_layer *l = call->layer;
    const bool wide = l->is_depthwise || l->kernels->element == 2;
    const int64_t c = l->spec.channels, repeat = l->is_depthwise ? l->group_filters : 1, read = call->piece_c / repeat,
                  bytes = call->piece_c * (wide ? 2 : 1);
    const int padding = wide ? 0 : l->spec.x.zero - int8_least(l->spec.x.is_unsigned);
    int64_t before = first < 0 ? (-first + step - 1) / step : 0;
    before = !row || before > call->piece_w ? call->piece_w : before;
    int64_t end = first < call->w ? (call->w - 1 - first) / step + 1 : 0;
    end = end < before || !row ? before : end > call->piece_w ? call->piece_w : end;
    memset(to, padding, (size_t)(before * bytes));
    if (row && step == 1 && read == c && end > before)
        copy_pixels(call, row + (first + before) * c, (end - before) * c, repeat, to + before * bytes);
    else
        for (int64_t i = before; i < end; i++)
            copy_pixels(call, row + (first + i * step) * c, read, repeat, to + i * bytes);
    memset(to + end * bytes, padding, (size_t)((call->piece_w - end) * bytes));
}

static void copy_piece(const struct call *call, int64_t n, int64_t group, int64_t first_row, int64_t rows,
                       uint8_t *to) {
    const struct fl_int8_layer *l = call->layer;
    const struct fl_int8_window *win = &l->spec.window;
    const int64_t bytes = call->piece_w * call->piece_c * (l->is_depthwise || l->kernels->element == 2 ? 2 : 1),
                  step_w = win->stride_w / call->step_w, step_h = win->stride_h / call->step_h,
                  count = (rows - 1) * call->step_h + (win->height - 1) * win->dilation_h + 1;
    for (int64_t i = 0; i < count; i++, to += bytes) {
        const int64_t row = first_row * win->stride_h - win->top + i * step_h;
        const uint8_t *from = row < 0 || row >= call->h ? NULL
                                                        : call->x + (n * call->h + row) * call->w * l->spec.channels +
                                                              (l->is_depthwise ? 0 : group * l->group_channels);
        copy_row(call, from, -win->left, step_w, to);
    }
}

/* --- tiles -------------------------------------------------------------------------------------------------------- */

struct range {
    int64_t first, count;
};

/* The pixels of the output at positions p, p + 1, ... of rows that begin `pitch` positions apart. */
static void find_places(const struct call *call, int64_t pixel, int64_t pitch, int64_t p, int64_t count,
                        int64_t *place) {
    int64_t row = p / pitch, column = p % pitch;
    for (int64_t i = 0; i < count; i++) {
        place[i] = column < call->width ? pixel + row * call->width + column : -1;
        if (++column == pitch) {
            column = 0;
            row++;
        }
    }
}

/* Positions of the output that lie a constant step apart in the piece, by filters of a group. */
static void run_positions(const struct call *call, const uint8_t *piece, int64_t pixel, int64_t pitch,
                          int64_t positions, int64_t group, struct range filters, int32_t *sums) {
    const struct fl_int8_layer *l = call->layer;
    const struct int8_kernels *kernels = l->kernels;
    const int64_t step = call->step_w * call->piece_c * kernels->element;
    int64_t place[INT8_POSITIONS_MOST];
    for (int64_t k = filters.first; k < filters.first + filters.count; k += INT8_PANELS_MOST * INT8_COLUMNS) {
        const int64_t rest = filters.first + filters.count - k,
                      count = rest < INT8_PANELS_MOST * INT8_COLUMNS ? rest : INT8_PANELS_MOST * INT8_COLUMNS,
                      slot = group * l->group_slots + k;
        struct int8_tile tile = {.step = step,
                                 .offset = call->offset,
                                 .runs = l->runs,
                                 .groups = l->groups,
                                 .weights = l->packed + slot / INT8_COLUMNS * l->panel_bytes,
                                 .panel_bytes = l->panel_bytes,
                                 .panels = (int)((count + INT8_COLUMNS - 1) / INT8_COLUMNS),
                                 .sums = sums};
        struct int8_finish finish = {.layer = l,
                                     .slot = slot,
                                     .filter = group * l->group_filters + k,
                                     .count = count,
                                     .sums = sums,
                                     .row = tile.panels * INT8_COLUMNS,
                                     .place = place,
                                     .residual = call->residual,
                                     .y = call->y};
        for (int64_t p = 0; p < positions; p += kernels->positions) {
            tile.x = piece + p * step;
            tile.positions = positions - p < kernels->positions ? positions - p : kernels->positions;
            finish.positions = tile.positions;
            find_places(call, pixel, pitch, p, tile.positions, place);
            kernels->sums(&tile);
            kernels->finish(&finish);
        }
    }
}

static void run_depthwise(const struct call *call, const uint8_t *piece, int64_t pixel, struct range filters,
                          int32_t *sums) {
    enum { AT_ONCE = INT8_POSITIONS_MOST * INT8_PANELS_MOST * INT8_COLUMNS };
    const struct fl_int8_layer *l = call->layer;
    const int64_t widest = INT8_PANELS_MOST * INT8_COLUMNS;
    int64_t place[INT8_POSITIONS_MOST];
    for (int64_t k = filters.first; k < filters.first + filters.count; k += widest) {
        const int64_t rest = filters.first + filters.count - k;
        struct int8_depthwise tile = {.layer = l,
                                      .step = call->step_w * call->piece_c,
                                      .offset = call->offset,
                                      .taps = l->length,
                                      .first = k,
                                      .count = rest < widest ? rest : widest,
                                      .sums = sums};
        struct int8_finish finish = {.layer = l,
                                     .slot = k,
                                     .filter = k,
                                     .count = tile.count,
                                     .sums = sums,
                                     .row = (tile.count + INT8_COLUMNS - 1) / INT8_COLUMNS * INT8_COLUMNS,
                                     .place = place,
                                     .residual = call->residual,
                                     .y = call->y};
        for (int64_t p = 0; p < call->width; p += INT8_POSITIONS_MOST) {
            tile.x = (const int16_t *)(const void *)piece + p * tile.step + k;
            tile.positions = call->width - p < INT8_POSITIONS_MOST ? call->width - p : INT8_POSITIONS_MOST;
            finish.positions = tile.positions;
            find_places(call, pixel, call->width, p, tile.positions, place);
            l->kernels->depthwise(&tile);
            l->kernels->finish(&finish);
        }
    }
}

static void run_part(void *context, int part, int worker) {
    const struct call *call = context;
    const struct fl_int8_layer *l = call->layer;
    const struct int8_kernels *kernels = l->kernels;
    const int64_t filter_part = part % call->filter_parts, others = part / call->filter_parts,
                  group = others % call->groups, row_part = others / call->groups % call->row_parts,
                  n = others / call->groups / call->row_parts, first_row = row_part * call->rows,
                  rows = call->height - first_row < call->rows ? call->height - first_row : call->rows,
                  all = l->is_depthwise ? l->spec.filters : l->group_filters;
    uint8_t *piece = call->memory + worker * call->worker_bytes;
    int32_t *sums = (int32_t *)(void *)(piece + call->piece_bytes);
    struct range filters = {filter_part * call->panels * INT8_COLUMNS, call->panels * INT8_COLUMNS};
    if (filters.first + filters.count > all)
        filters.count = all - filters.first;
    copy_piece(call, n, group, first_row, rows, piece);
    if (kernels->begin && !l->is_depthwise)
        kernels->begin();
    const int64_t pixel = (n * call->height + first_row) * call->width,
                  bytes =
                      call->step_h * call->piece_w * call->piece_c * (l->is_depthwise || kernels->element == 2 ? 2 : 1);
    if (call->positions_w)
        run_positions(call, piece, pixel, call->positions_w, (rows - 1) * call->positions_w + call->width, group,
                      filters, sums);
    for (int64_t row = 0; row < rows && !call->positions_w; row++) {
        if (l->is_depthwise)
            run_depthwise(call, piece + row * bytes, pixel + row * call->width, filters, sums);
        else
            run_positions(call, piece + row * bytes, pixel + row * call->width, call->width, call->width, group,
                          filters, sums);
    }
    if (kernels->end && !l->is_depthwise)
        kernels->end();
}

/* --- how a call is cut -------------------------------------------------------------------------------------------- */

enum { PIECE_BYTES = 1 << 17, WHOLE_TILES = 32, SUMS = INT8_POSITIONS_MOST * INT8_PANELS_MOST * INT8_COLUMNS };

static int64_t ceiling(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

/* Offsets of runs or taps from a position, in bytes or, depthwise, in elements. */
static void find_offsets(const struct call *call, int64_t *offset) {
    const struct fl_int8_layer *l = call->layer;
    const struct fl_int8_window *win = &l->spec.window;
    const int64_t count = l->is_depthwise ? l->length : l->runs, columns = count / win->height,
                  size = l->is_depthwise ? 1 : l->kernels->element;
    for (int64_t i = 0; i < count; i++)
        offset[i] =
            (i / columns * win->dilation_h * call->piece_w + i % columns * win->dilation_w) * call->piece_c * size;
}

static void cut(struct call *call, int threads) {
    const struct fl_int8_layer *l = call->layer;
    const struct fl_int8_window *win = &l->spec.window;
    const bool pointwise = win->height == 1 && win->width == 1;
    const int64_t element = l->is_depthwise || l->kernels->element == 2 ? 2 : 1;
    call->step_h = pointwise ? 1 : win->stride_h;
    call->step_w = pointwise ? 1 : win->stride_w;
    call->groups = l->is_depthwise ? 1 : l->spec.groups;
    call->piece_c = l->is_depthwise ? l->spec.filters : l->group_channels;
    call->piece_w = (call->width - 1) * call->step_w + (win->width - 1) * win->dilation_w + 1;
    call->positions_w = call->step_h == 1 && call->step_w == 1 && !l->is_depthwise ? call->piece_w : 0;
    const int64_t row_bytes = call->piece_w * call->piece_c * element,
                  more = (win->height - 1) * win->dilation_h + 1 - call->step_h;
    int64_t rows = (PIECE_BYTES / row_bytes - more) / call->step_h;
    rows = call->width == 1 ? rows / WHOLE_TILES * WHOLE_TILES : rows;
    rows = rows < 1 ? call->width == 1 ? WHOLE_TILES : 1 : rows;
    call->rows = rows > call->height ? call->height : rows;
    call->row_parts = ceiling(call->height, call->rows);
    const int64_t parts = call->n * call->row_parts * call->groups,
                  panels = ceiling(l->is_depthwise ? l->spec.filters : l->group_filters, INT8_COLUMNS);
    call->filter_parts = parts >= 2 * threads ? 1 : ceiling(panels, INT8_PANELS_MOST);
    call->panels = call->filter_parts == 1 ? panels : INT8_PANELS_MOST;
    const int64_t beyond = INT8_POSITIONS_MOST * call->step_w * call->piece_c * element + INT8_BEYOND;
    call->piece_bytes =
        (int64_t)fl_line_bytes((size_t)(((call->rows - 1) * call->step_h + more + call->step_h) * row_bytes + beyond));
    call->worker_bytes = call->piece_bytes + SUMS * (int64_t)sizeof(int32_t);
}

static tensor_status run(struct call *call) {
    const struct fl_int8_layer *l = call->layer;
    if (call->n * call->height > INT32_MAX)
        return fl_fail(TENSOR_E_SHAPE, "%lld rows, expected fewer than 2^31", (long long)(call->n * call->height));
    if (!l->kernels) {
        fl_parallel((int)(call->n * call->height), define_row, call);
        return TENSOR_OK;
    }
    const int workers = fl_threads();
    cut(call, workers);
    const int64_t parts = call->n * call->row_parts * call->groups * call->filter_parts;
    if (parts > INT32_MAX)
        return fl_fail(TENSOR_E_SHAPE, "%lld parts, expected fewer than 2^31", (long long)parts);
    const int64_t offset_bytes = (int64_t)fl_line_bytes((size_t)l->length * sizeof(int64_t));
    uint8_t *memory = fl_scratch(0, (size_t)(offset_bytes + workers * call->worker_bytes));
    if (!memory)
        return fl_fail(TENSOR_E_MEMORY, "no memory for %d pieces of %lld bytes", workers,
                       (long long)call->worker_bytes);
    int64_t *offset = (int64_t *)(void *)memory;
    find_offsets(call, offset);
    call->offset = offset;
    call->memory = memory + offset_bytes;
    fl_parallel_within(workers, (int)parts, run_part, call);
    return TENSOR_OK;
}

tensor_status fl_int8_conv(const struct fl_int8_layer *layer, int64_t n, int64_t h, int64_t w, const void *x,
                           const void *residual, void *y) {
    const struct fl_int8_layer_spec *s = &layer->spec;
    const struct fl_int8_window *win = &s->window;
    if (!!residual != !!s->residual)
        return fl_fail(TENSOR_E_ARGUMENT,
                       s->residual ? "the layer's residual is missing" : "the layer has no residual");
    const int64_t height = fl_int8_positions(h, win->top, win->bottom, win->height, win->stride_h, win->dilation_h),
                  width = fl_int8_positions(w, win->left, win->right, win->width, win->stride_w, win->dilation_w);
    if (n < 0 || h < 1 || w < 1 || !height || !width)
        return fl_fail(TENSOR_E_SHAPE, "%lld images of %lld x %lld: the window of %lld x %lld does not fit",
                       (long long)n, (long long)h, (long long)w, (long long)win->height, (long long)win->width);
    struct call call = {
        .layer = layer, .n = n, .h = h, .w = w, .height = height, .width = width, .x = x, .residual = residual, .y = y};
    const bool pixels = win->height == 1 && win->width == 1 && win->stride_h == 1 && win->stride_w == 1 && !win->top &&
                        !win->left && height == h && width == w;
    if (pixels) { /* one image, a pixel wide */
        call.n = 1;
        call.h = call.height = n * h * w;
        call.w = call.width = 1;
    }
    return n ? run(&call) : TENSOR_OK;
}

tensor_status fl_int8_matmul(const struct fl_int8_layer *layer, int64_t rows, const void *x, const void *residual,
                             void *y) {
    const struct fl_int8_window *w = &layer->spec.window;
    if (w->height != 1 || w->width != 1 || w->top || w->left || w->bottom || w->right || w->stride_h != 1 ||
        w->stride_w != 1)
        return fl_fail(TENSOR_E_SHAPE, "a matrix product has a window of 1 x 1 without padding or strides");
    return rows ? fl_int8_conv(layer, 1, rows, 1, x, residual, y) : TENSOR_OK;
}
