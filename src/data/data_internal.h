/* data_internal.h - shared by the readers: the set in memory, and functions to make one. */
#ifndef FL_DATA_INTERNAL_H
#define FL_DATA_INTERNAL_H

#include "flexlab/data.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

enum { FL_DATA_MAX_CHANNELS = 4, FL_DATA_MAX_SIDE = 4096, FL_DATA_MAX_CLASSES = 1 << 16 };

enum { FL_DATA_NARROW = 256 }; /* the largest vocabulary whose tokens are bytes */

/* The tokens of a text: one array, of bytes if the vocabulary allows it. Both splits of one file are parts of it. */
struct fl_data_tokens {
    uint8_t *narrow;
    uint16_t *wide;  /* NULL if narrow is not */
    atomic_int sets; /* that have them; the last one frees them */
};

/* Pixels [count, height, width, channels] as uint8, labels below `classes`. A text has neither, but tokens. */
struct data_set {
    uint8_t *pixels;
    uint16_t *labels;
    struct fl_data_tokens *tokens; /* NULL for images */
    int64_t first;                 /* token 0 of the set is tokens[first] */
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

/* Token i of a text, 0 <= i < count. */
static inline int fl_data_token(const data_set *set, int64_t i) {
    const struct fl_data_tokens *t = set->tokens;
    return t->narrow ? t->narrow[set->first + i] : t->wide[set->first + i];
}

/* Ends a set's use of its tokens. NULL is allowed. */
void fl_data_tokens_leave(struct fl_data_tokens *tokens);

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
