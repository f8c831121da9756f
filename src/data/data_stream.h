/* data_stream.h - the bytes of a file, or of a member of a zip archive, from the first to the last. */
#ifndef FL_DATA_STREAM_H
#define FL_DATA_STREAM_H

#include "flexlab/status.h"
#include <stdbool.h>
#include <stdint.h>

struct fl_data_inflate;

struct fl_data_stream {
    const char *kind, *path; /* for messages: "npy", and the file */
    const char *member;      /* of an archive, or NULL */
    int file;
    int64_t offset, length, done;    /* position of its bytes in the file, their number, and how many were read */
    struct fl_data_inflate *inflate; /* NULL: the bytes are not compressed */
    bool checked;                    /* the archive has their CRC-32 */
    uint32_t crc, expected_crc;
};

/* The beginning of a message, for "%s: %s%s%s". */
#define FL_STREAM_WHERE(s) (s)->kind, (s)->path, (s)->member ? ": " : "", (s)->member ? (s)->member : ""

/* Reads exactly `bytes` of the remaining bytes; it fails if the file became shorter or is corrupt. `what` names them in
 * the message. */
tensor_status fl_data_stream_read(struct fl_data_stream *s, const char *what, void *to, int64_t bytes);

/* Reads `bytes` of the remaining bytes into new memory. For a compressed member it grows with the bytes read, so that
 * no header makes the library allocate more than the file yields. */
tensor_status fl_data_stream_take(struct fl_data_stream *s, const char *what, int64_t bytes, uint8_t **memory);

/* After the last byte, checks that the compressed bytes end too, and the checksum. */
tensor_status fl_data_stream_end(struct fl_data_stream *s);

/* Reads exactly `bytes` of a file at `offset`. */
tensor_status fl_data_read_at(int file, const char *kind, const char *path, int64_t offset, void *to, int64_t bytes);

#endif
