/* float_strip.h - divides a row of pixels into strips that fit a block.
 *
 * Expects: a codec (float_block.h).
 * Gives: strip, first_strip, next_strip. */
#ifndef FL_FLOAT_STRIP_H
#define FL_FLOAT_STRIP_H

#include "float/float_block.h"

/* Either all channels of pixel ... pixel+pixels-1, or, of images with more channels than a block has elements, channels
 * c0 ... c0+channels-1 of one pixel: contiguous elements in both cases. */
struct strip {
    int64_t pixel, pixels, c0, channels;
    int64_t row_pixels, row_channels;
};

/* Before the first strip of a row: for (struct strip t = first_strip(c, w); next_strip(&t);) */
static inline struct strip first_strip(int64_t row_channels, int64_t row_pixels) {
    return (struct strip){.row_pixels = row_pixels, .row_channels = row_channels};
}

/* The strips of the first channels from left to right, then those of the next. */
static inline bool next_strip(struct strip *t) {
    t->pixel += t->pixels;
    if (t->pixel == t->row_pixels) {
        t->pixel = 0;
        t->c0 += t->channels;
    }
    t->channels = float_min(FLOAT_BLOCK, t->row_channels - t->c0);
    if (t->channels == 0)
        return false;
    t->pixels = t->channels == t->row_channels ? float_min(FLOAT_BLOCK / t->channels, t->row_pixels - t->pixel) : 1;
    return true;
}

#endif
