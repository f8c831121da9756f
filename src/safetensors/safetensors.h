/* safetensors.h - files in the safetensors format: eight bytes with the length of a header in JSON, the header, which
 * has name, type, shape and position of each tensor and a map of strings, then the elements without a gap. Files of any
 * origin are read: the whole header is checked before it is used. Numbers are little-endian.
 *
 * The format: github.com/huggingface/safetensors, README, "Format". */
#ifndef FL_SAFETENSORS_H
#define FL_SAFETENSORS_H

#include "core/base/shown.h" /* fl_utf8_length */
#include "flexlab/status.h"
#include <stddef.h>
#include <stdint.h>

enum { FL_SAFETENSORS_DIMS = 8, FL_SAFETENSORS_HEADER_LIMIT = 100000000 };

/* The element types of safetensors with at least 8 bits. */
enum fl_stored_type {
    FL_STORED_BOOL,
    FL_STORED_U8,
    FL_STORED_I8,
    FL_STORED_F8_E5M2,
    FL_STORED_F8_E4M3,
    FL_STORED_I16,
    FL_STORED_U16,
    FL_STORED_F16,
    FL_STORED_BF16,
    FL_STORED_I32,
    FL_STORED_U32,
    FL_STORED_F32,
    FL_STORED_I64,
    FL_STORED_U64,
    FL_STORED_F64,
    FL_STORED_TYPES
};
const char *fl_stored_type_name(enum fl_stored_type type);
int64_t fl_stored_type_bytes(enum fl_stored_type type);
/* The bytes of a tensor; -1 if a size is negative or there are 2^63 bytes or more. A size of 0 makes it empty. */
int64_t fl_stored_size(enum fl_stored_type type, int ndim, const int64_t *dim);

struct fl_stored_tensor {
    const char *name;
    enum fl_stored_type type;
    int ndim; /* 0: one element */
    int64_t dim[FL_SAFETENSORS_DIMS];
    int64_t begin, end; /* bytes, from the end of the header */
};

/* A string of the header's map. */
struct fl_stored_note {
    const char *key, *value;
};

/* --- reading ------------------------------------------------------------------------------------------------------ */

/* A file whose header was read and checked. Tensors and notes are in the order of their names. */
struct fl_safetensors {
    char *path;
    int file;
    int64_t data_at, data_bytes;
    struct fl_stored_tensor *tensors;
    struct fl_stored_note *notes;
    int count, note_count;
    char *header; /* names and notes point into it */
};

/* TENSOR_E_IO: the file cannot be read; TENSOR_E_DATA: it is no such file, and the message names the fault and its
 * position. Uses memory in proportion to the actual header. Close with fl_safetensors_close; after a failure there is
 * nothing to close. */
tensor_status fl_safetensors_open(struct fl_safetensors *s, const char *path);
void fl_safetensors_close(struct fl_safetensors *s);
/* NULL if there is none of that name. */
const struct fl_stored_tensor *fl_safetensors_find(const struct fl_safetensors *s, const char *name);
const char *fl_safetensors_note(const struct fl_safetensors *s, const char *key);
/* Reads all elements of a tensor of s: t->end - t->begin bytes. */
tensor_status fl_safetensors_read(const struct fl_safetensors *s, const struct fl_stored_tensor *t, void *bytes);
/* TENSOR_E_DATA if the file has a note FL_CHECKSUM that is not the checksum of its elements and notes. */
tensor_status fl_safetensors_verify(const struct fl_safetensors *s);

/* CRC-32 (as in zlib, gzip and PNG) of all bytes after the header, then of each other note in the order of the keys, as
 * key, zero, value, zero; eight hexadecimal digits. */
#define FL_CHECKSUM "flexlab.crc32"

/* Checks `bytes` of header in s->header against s->data_bytes and lists its tensors and notes; for fl_safetensors_open
 * (safetensors_header.c). Its allocations are freed with s. */
tensor_status fl_safetensors_parse(struct fl_safetensors *s, size_t bytes);
/* Makes space for one more element in an array of `count` (safetensors_header.c). On failure the array is unchanged. */
tensor_status fl_safetensors_grow(void **array, int count, int *capacity, size_t size);

/* --- writing ------------------------------------------------------------------------------------------------------ */

/* Begins as zeros. After a failed call only fl_safetensors_end may follow. */
struct fl_safetensors_out {
    struct fl_stored_part *parts;
    struct fl_stored_note *notes; /* strings of its own */
    int count, capacity, note_count, note_capacity;
};

/* The elements belong to the caller and must exist until the file is written. Names and notes are UTF-8; each name and
 * each key occurs once. */
tensor_status fl_safetensors_add(struct fl_safetensors_out *o, const char *name, enum fl_stored_type type, int ndim,
                                 const int64_t *dim, const void *bytes);
tensor_status fl_safetensors_add_note(struct fl_safetensors_out *o, const char *key, const char *value);
/* Adds the checksum and writes the file as PATH.part, which is renamed when it is on the disk: at any time PATH is the
 * previous file or the complete new one. */
tensor_status fl_safetensors_write(struct fl_safetensors_out *o, const char *path);
void fl_safetensors_end(struct fl_safetensors_out *o);

#endif
