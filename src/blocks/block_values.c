/* block_values.c - tensor_quantise_f32: arrays of floats as the formats of blocks, tensors and elements represent
 * them. */
#include "flexlab/tensor_quantise.h"
#include "blocks/block_kernels.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/base/text.h"
#include "flexlab/tensor_life.h"
#include "flexlab/tensor_statistics.h"
#include "flexlab/tensor_values.h"
#include <math.h>
#include <string.h>

/* The inverse of fl_block_transform for doubles: y = D H x / 4. Sums of 16 products of an element by one scale have at
 * most 53 bits, unless the element has exponents of more than 5 bits. */
static void transform_back(double *x, uint32_t signs) {
    for (int apart = FL_HADAMARD / 2; apart; apart /= 2)
        for (int i = 0; i < FL_HADAMARD; i++)
            if (!(i & apart)) {
                const double a = x[i], b = x[i + apart];
                x[i] = a + b;
                x[i + apart] = a - b;
            }
    for (int i = 0; i < FL_HADAMARD; i++)
        x[i] *= signs >> i & 1 ? -0.25 : 0.25;
}

static void store_values(float *y, const struct fl_block_rows *rows, int64_t inner, uint32_t signs) {
    const bool hadamard = rows->format->hadamard;
    const int64_t group = hadamard ? FL_HADAMARD : 1;
    for (int64_t r = 0; r < rows->rows; r++)
        for (int64_t j = 0; j < rows->k; j += group) {
            double value[FL_HADAMARD];
            for (int64_t i = 0; i < group; i++)
                value[i] = fl_block_value(rows, r, j + i);
            if (hadamard)
                transform_back(value, signs);
            for (int64_t i = 0; i < group && j + i < rows->k; i++)
                y[(r / inner * rows->k + j + i) * inner + r % inner] = (float)value[i];
        }
}

static tensor_status quantise_blocks(float *y, const float *x, const int64_t *sizes, const char *text, uint64_t key,
                                     tensor_quantised *counts) {
    const struct fl_block_format *format;
    TRY(fl_block_format_find(&format, text));
    struct fl_block_rows rows;
    const size_t bytes = fl_block_place(&rows, format, sizes[0], sizes[1], sizes[2], NULL);
    void *const memory = fl_alloc(bytes);
    if (!memory)
        return fl_fail(TENSOR_E_MEMORY, "quantise_f32: %zu bytes", bytes);
    fl_block_place(&rows, format, sizes[0], sizes[1], sizes[2], memory);
    const struct fl_block_how how = {.key = key, .signs = key};
    fl_block_quantise(format, x, sizes[0], sizes[1], sizes[2], &how, &rows);
    store_values(y, &rows, sizes[2], format->hadamard ? fl_block_signs(key) : 0);
    fl_free(memory);
    counts->saturated = rows.saturated;
    counts->flushed = rows.flushed;
    counts->blocks = format->block ? rows.rows * rows.blocks : rows.rows;
    if (format->square) { /* of squares */
        const int64_t side = format->block;
        counts->blocks = (rows.rows + side - 1) / side * rows.blocks;
    }
    counts->bits = fl_block_format_bits(format);
    return TENSOR_OK;
}

static tensor_status quantise_tensor(float *y, const float *x, int64_t count, tensor_format format,
                                     tensor_quantised *counts) {
    tensor *const t = tensor_new(format, 1, &count);
    tensor_stats last;
    tensor_status status = t ? TENSOR_OK : TENSOR_E_MEMORY;
    if (!status)
        status = tensor_load_f32(t, x, count);
    if (!status)
        status = tensor_statistics(&last, NULL, t);
    if (!status)
        status = tensor_store_f32(t, y, count);
    if (!status)
        *counts = (tensor_quantised){
            .saturated = last.saturated, .flushed = last.flushed, .bits = tensor_format_bits(format)};
    tensor_free(t);
    return status;
}

/* Whether the rounding of a finite x lies beyond the largest of the element: x is beyond the middle between that and
 * where the next step would be, or on it and rounds up. */
static bool is_beyond(const struct fl_element *e, double x) {
    const bool is_float = e->kind == FL_ELEMENT_FLOAT;
    const double step = ldexp(1, is_float ? ilogb(e->largest) - e->fraction_bits : e->unit);
    const double twice = 2 * (fabs(x) - e->largest);
    return isfinite(x) && (twice > step || (twice == step && (e->largest_code & 1 || (is_float && !e->fraction_bits))));
}

static void quantise_elements(float *y, const float *x, int64_t count, const struct fl_element *e,
                              tensor_quantised *counts) {
    counts->bits = e->bits;
    for (int64_t i = 0; i < count; i++) {
        const double value = fl_element_decode(e, fl_element_encode(e, x[i], NULL));
        counts->flushed += x[i] != 0 && value == 0 && !isnan(x[i]);
        counts->saturated += is_beyond(e, x[i]) || (isinf(x[i]) && isfinite(value));
        y[i] = (float)value;
    }
}

tensor_status tensor_quantise_f32(float *y, const float *x, int ndim, const int64_t *shape, int dim, const char *format,
                                  uint64_t key, tensor_quantised *counts) {
    if (!y || !x || !shape || !format)
        return fl_fail(TENSOR_E_ARGUMENT, "quantise_f32: %s is NULL",
                       !y       ? "y"
                       : !x     ? "x"
                       : !shape ? "shape"
                                : "format");
    if (ndim < 1 || ndim > TENSOR_MAX_DIMS || dim < 0 || dim >= ndim)
        return fl_fail(TENSOR_E_ARGUMENT, "quantise_f32: dimension %d of %d, expected 0 ... %d of 1 ... %d", dim, ndim,
                       ndim - 1, TENSOR_MAX_DIMS);
    int64_t sizes[3] = {1, 1, 1}, count = 1;
    for (int i = 0; i < ndim; i++) {
        if (shape[i] < 1 || count > ((int64_t)1 << 38) / shape[i])
            return fl_fail(TENSOR_E_SHAPE, "quantise_f32: size %lld of dimension %d, expected 1 or more, 2^38 in all",
                           (long long)shape[i], i);
        count *= shape[i];
        sizes[i < dim ? 0 : i == dim ? 1 : 2] *= shape[i];
    }
    tensor_quantised found = {0};
    if (fl_block_format_begins(format)) {
        TRY(quantise_blocks(y, x, sizes, format, key, &found));
    } else {
        tensor_format id;
        struct fl_element element;
        const char *end;
        fl_fail_hold();
        const tensor_status tensors = tensor_format_find(&id, format);
        const bool is_element =
            tensors == TENSOR_E_ARGUMENT && !fl_element_find(&element, format, format, &end) && !*end;
        (void)fl_fail_release(TENSOR_OK);
        const bool scaled = tensor_format_extent(format) > strcspn(format, ":"); /* tensor:ELEMENT */
        if (tensors && (tensors != TENSOR_E_ARGUMENT || scaled))
            return tensor_format_find(&id, format); /* with its own message */
        if (tensors && !is_element)
            return fl_fail(TENSOR_E_ARGUMENT,
                           "quantise_f32: format %s, expected a block format (mx:ELEMENT, nvfp4, hbfp:intN, "
                           "channel:ELEMENT), a format of tensors (flexN+E, tensor:eXmY, ...) or an element (eXmY, "
                           "intN)",
                           fl_quote(format).text);
        for (int64_t i = 0; is_element && !element.has_nan && i < count; i++)
            if (isnan(x[i]))
                return fl_fail(TENSOR_E_ARGUMENT, "quantise_f32: value %lld is nan, which %s has no code for",
                               (long long)i, element.name);
        if (tensors)
            quantise_elements(y, x, count, &element, &found);
        else
            TRY(quantise_tensor(y, x, count, id, &found));
    }
    for (int64_t i = 0; i < count; i++)
        found.nonfinite += !isfinite(y[i]);
    if (counts)
        *counts = found;
    return TENSOR_OK;
}
