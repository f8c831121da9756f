/* data_picture.h - a PNG or JPEG file in memory, decoded to bytes. Nothing in it is trusted: the sizes that it declares
 * are looked at before anything is decoded, and must be possible for a file of its length. */
#ifndef FL_DATA_PICTURE_H
#define FL_DATA_PICTURE_H

#include "data/data_problem.h"
#include <stddef.h>
#include <stdint.h>

struct fl_picture {
    uint8_t *pixels; /* [height, width, channels]; memory that is kept from picture to picture */
    size_t room;
    int width, height, channels; /* 1 grey, 2 grey and alpha, 3 RGB, 4 RGBA */
};

/* Decodes a file, whose first bytes give its type. `path` is for messages. */
tensor_status fl_picture_decode(struct fl_picture *picture, const uint8_t *file, size_t bytes, const char *path,
                                struct fl_data_problem *p);
void fl_picture_free(struct fl_picture *picture);

/* For the two decoders: sizes of a picture that must fit the limits of a set, then memory for its pixels. */
tensor_status fl_picture_size(struct fl_picture *picture, int64_t width, int64_t height, const char *path,
                              struct fl_data_problem *p);
tensor_status fl_picture_room(struct fl_picture *picture, int channels, const char *path, struct fl_data_problem *p);
tensor_status fl_png_decode(struct fl_picture *picture, const uint8_t *file, size_t bytes, const char *path,
                            struct fl_data_problem *p);
tensor_status fl_jpeg_decode(struct fl_picture *picture, const uint8_t *file, size_t bytes, const char *path,
                             struct fl_data_problem *p);

/* The picture as [height, width, channels]: first to the channels, 1, 2, 3 or 4 (grey to three alike; colours to
 * (299 R + 587 G + 114 B + 500) / 1000; alpha is left out, or 255), then to the size: each pixel is the mean of the
 * area that it covers, in integers, rounded once, halves up. `line` has fl_picture_line_bytes. */
void fl_picture_store(const struct fl_picture *picture, uint8_t *out, int height, int width, int channels, void *line);
size_t fl_picture_line_bytes(const struct fl_picture *picture, int width, int channels);

#endif
