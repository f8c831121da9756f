/* pixels.h - tensors from bytes, to which a table gives values: the table is rounded once, and each byte selects an
 * element. */
#ifndef FL_PIXELS_H
#define FL_PIXELS_H

#include "core/tensor/transfer.h"

/* fl_transfer of a source of pixels, with its results. Returns false, without doing anything, if the numbers must be
 * converted one by one: many channels, few pixels, numbers that are not finite, stochastic rounding, the reference
 * backend. */
bool fl_transfer_pixels(const struct fl_transfer *t, struct fl_transfer_result *total);

#endif
