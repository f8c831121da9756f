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
    int64_t offset, length, done;    /* where its bytes begin in the file; how many there are, and were read */
    struct fl_data_inflate *inflate; /* NULL: they lie in the file as they are */
    bool checked;                    /* the archive says their CRC-32 */
    uint32_t crc, expected_crc;
};

/* The beginning of a message, for "%s: %s%s%s". */
#define FL_STREAM_WHERE(s) (s)->kind, (s)->path, (s)->member ? ": " : "", (s)->member ? (s)->member : ""

/* Exactly `bytes` of what is left; fewer are there only where a file became shorter or is corrupt. `what` names them in
 * the message. */
tensor_status fl_data_stream_read(struct fl_data_stream *s, const char *what, void *to, int64_t bytes);

/* `bytes` of what is left in memory of their own, which grows with what comes out where they are compressed: no header
 * makes the library ask for more than the file holds. */
tensor_status fl_data_stream_take(struct fl_data_stream *s, const char *what, int64_t bytes, uint8_t **memory);

/* After the last byte: the compressed ones end there too, and the checksum is right. */
tensor_status fl_data_stream_end(struct fl_data_stream *s);

/* Exactly `bytes` of a file at `offset`. */
tensor_status fl_data_read_at(int file, const char *kind, const char *path, int64_t offset, void *to, int64_t bytes);

#endif
