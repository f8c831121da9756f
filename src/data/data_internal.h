/* data_internal.h - shared by the readers: the set in memory, and functions to make one. */
#ifndef FL_DATA_INTERNAL_H
#define FL_DATA_INTERNAL_H

#include "flexlab/data.h"
#include <stdbool.h>
#include <stddef.h>

enum { FL_DATA_MAX_CHANNELS = 4, FL_DATA_MAX_SIDE = 4096, FL_DATA_MAX_CLASSES = 1 << 16 };

/* Pixels [count, height, width, channels] as uint8, labels below `classes`. A text has no pixels, and its tokens are in
 * `labels`. */
struct data_set {
    uint8_t *pixels;
    uint16_t *labels;
    int64_t count;
    int height, width, channels, classes;
    bool text, tokens_alone; /* tokens_alone: their characters are unknown */
    uint32_t *character;     /* of each token, ascending; NULL if tokens are bytes or have no known characters */
    int distinct;            /* number of distinct characters */
};

/* Makes a set with memory for its pixels and labels, which are not set. The sizes are positive and at most the limits
 * above. */
tensor_status fl_data_new(data_set **set, const char *what, int64_t count, int height, int width, int channels,
                          int classes);

/* "directory/name" + suffix, to be freed with fl_free; NULL if memory is lacking. */
char *fl_data_path(const char *directory, const char *name, const char *suffix);

/* Opens a regular file for reading and finds its size; anything else (FIFO, folder, device, socket) is refused without
 * waiting for it. `what` begins the message; `hint` (NULL: none) ends it if the file cannot be opened. Close with
 * close(). */
tensor_status fl_data_file_open(int *file, int64_t *bytes, const char *what, const char *path, const char *hint);

/* Openers of data_open's specifications: `rest` follows the first colon, NULL without one. */
tensor_status fl_data_open_cifar10(data_set **set, const char *rest, data_split split);
tensor_status fl_data_open_cifar100(data_set **set, const char *rest, data_split split);
tensor_status fl_data_open_idx(data_set **set, const char *rest, data_split split);
tensor_status fl_data_open_images(data_set **set, const char *rest, data_split split);
tensor_status fl_data_open_npy(data_set **set, const char *rest, data_split split);
tensor_status fl_data_open_npz(data_set **set, const char *rest, data_split split);
tensor_status fl_data_open_synthetic(data_set **set, const char *rest, data_split split);
/* Opens the wanted splits of a text, with one vocabulary. Only these are set, and only on success. */
tensor_status fl_data_open_text(data_set *sets[2], const bool wanted[2], const char *rest);

#endif
