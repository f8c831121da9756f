/* data_picture.h - a PNG or JPEG file in memory, decoded to bytes. Nothing in it is trusted: its declared sizes are
 * checked before anything is decoded, and must be possible for a file of its length. */
#ifndef FL_DATA_PICTURE_H
#define FL_DATA_PICTURE_H

#include "data/data_problem.h"
#include <stddef.h>
#include <stdint.h>

struct fl_picture {
    uint8_t *pixels; /* [height, width, channels]; memory reused from picture to picture */
    size_t room;
    int width, height, channels; /* 1 grey, 2 grey and alpha, 3 RGB, 4 RGBA */
};

/* Decodes a file whose type is given by its first bytes. `path` is for messages. */
tensor_status fl_picture_decode(struct fl_picture *picture, const uint8_t *file, size_t bytes, const char *path,
                                struct fl_data_problem *p);
void fl_picture_free(struct fl_picture *picture);

/* For the two decoders: check that the sizes of a picture are within the limits of a set, then allocate its pixels. */
tensor_status fl_picture_size(struct fl_picture *picture, int64_t width, int64_t height, const char *path,
                              struct fl_data_problem *p);
tensor_status fl_picture_room(struct fl_picture *picture, int channels, const char *path, struct fl_data_problem *p);
tensor_status fl_png_decode(struct fl_picture *picture, const uint8_t *file, size_t bytes, const char *path,
                            struct fl_data_problem *p);
tensor_status fl_jpeg_decode(struct fl_picture *picture, const uint8_t *file, size_t bytes, const char *path,
                             struct fl_data_problem *p);

/* Converts the picture to [height, width, channels]: first the channels, 1, 2, 3 or 4 (grey to three equal ones;
 * colours to (299 R + 587 G + 114 B + 500) / 1000; alpha is dropped, or 255), then the size: each pixel is the mean of
 * the area that it covers, in integers, rounded once, halves up. `line` has fl_picture_line_bytes. */
void fl_picture_store(const struct fl_picture *picture, uint8_t *out, int height, int width, int channels, void *line);
size_t fl_picture_line_bytes(const struct fl_picture *picture, int width, int channels);

#endif
