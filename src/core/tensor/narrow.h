/* narrow.h - mantissas of fewer than 16 bits, on the kernels of 16.
 *
 * Rounding at an exponent does not depend on the number of bits; only saturation does. So the kernels of 16-bit
 * mantissas write a narrow format too, and what they wrote is clamped afterwards. Clamping to +-32767 and then to
 * +-top is clamping to +-top, so that the result is rounded and saturated once, and most writes, whose largest mantissa
 * fits, need no second look at their elements. */
#ifndef FL_NARROW_H
#define FL_NARROW_H

#include "core/table/format.h"

static inline bool fl_is_narrow(const struct fl_format *format) {
    return format->arithmetic == FL_ARITHMETIC_SHARED && format->bits < 16;
}

/* The largest |mantissa| of a wide part: that of which the format's largest mantissa is the rounding. */
static inline int32_t fl_wide_limit(const struct fl_format *format) {
    return format->top << 16 | 0x7fff;
}

/* The format that kernels are told to write: its codec saturates as they do, so that fl_clamp counts all. */
static inline const struct fl_format *fl_written_format(const struct fl_format *format) {
    return fl_is_narrow(format) ? fl_format_of(FMT_FLEX16_5) : format;
}

/* Clamps elements first ... first + n - 1 of the view, and its wide part if it has one, to the range of the format, and
 * corrects `stats`, which must be those of the write of exactly these elements. Does nothing for other formats. */
void fl_clamp(const struct fl_format *format, const struct fl_view *out, int64_t first, int64_t n,
              struct fl_stats *stats);

#endif
