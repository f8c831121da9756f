/* float_convert.h - binary32 to the format and back, for conversions between formats.
 *
 * Expects: a codec (float_block.h).
 * Gives: floats_to_elements, elements_to_floats. */
#ifndef FL_FLOAT_CONVERT_H
#define FL_FLOAT_CONVERT_H

#include "core/base/stream.h"
#include "float/float_block.h"

static void floats_to_elements(const struct fl_format *format, const struct fl_view *out, int64_t first, int64_t n,
                               const float *x, const struct fl_rounding *rounding, struct fl_stats *stats) {
    (void)format;
    fl_element *dst = element_at(out->data, first);
    for (int64_t i = 0; i < n; i += FLOAT_BLOCK)
        store_floats(element_at(dst, i), float_min(FLOAT_BLOCK, n - i), x + i, rounding, stats);
#ifdef FL_ELEMENT_IS_FLOAT
    for (int64_t i = 0; dst && stats->nonfinite && i < n; i++)
        if (dst[i] != dst[i])
            dst[i] += dst[i]; /* a NaN is quieted */
#endif
}

static uint32_t elements_to_floats(const struct fl_format *format, const struct fl_view *in, int64_t first, int64_t n,
                                   float *x, bool stream) {
    (void)format;
    const fl_element *src = (const fl_element *)in->data + first;
    _Alignas(64) float buffer[FLOAT_BLOCK];
    uint32_t largest = 0;
    for (int64_t i = 0; i < n; i += FLOAT_BLOCK) {
        const int64_t length = float_min(FLOAT_BLOCK, n - i);
        float *y = stream ? buffer : x + i;
        load_block(src + i, length, y);
        for (int64_t j = 0; j < length; j++) {
            const uint32_t magnitude = fl_float_magnitude(y[j]);
            largest = magnitude > largest ? magnitude : largest;
        }
        if (stream)
            fl_stream(x + i, y, (size_t)length * sizeof *x);
    }
    return largest;
}

#endif
