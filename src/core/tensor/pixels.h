/* pixels.h - tensors from bytes, of which a table says what each means: the table is rounded, once, and the bytes look
 * up elements. */
#ifndef FL_PIXELS_H
#define FL_PIXELS_H

#include "core/tensor/transfer.h"

/* fl_transfer of a source of pixels, with its results; false, and nothing done, where number by number is the way: many
 * channels or few pixels, numbers that are not finite to find, stochastic rounding, the reference row. */
bool fl_transfer_pixels(const struct fl_transfer *t, struct fl_transfer_result *total);

#endif
