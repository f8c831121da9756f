/* data_zip.h - zip archives (PKWARE, APPNOTE 6.3.10): members by name, stored or deflated, with or without zip64. */
#ifndef FL_DATA_ZIP_H
#define FL_DATA_ZIP_H

#include "data/data_stream.h"

struct fl_data_zip {
    const char *kind, *path; /* for messages */
    int file;
    int64_t bytes;
    uint8_t *directory; /* the central one */
    int64_t directory_at, directory_bytes, members;
    uint64_t first; /* position of the first member by the directory */
};

/* Opens the archive and checks its whole directory. `kind` and `path` must outlive it. After a failure there is nothing
 * to close. */
tensor_status fl_data_zip_open(struct fl_data_zip *zip, const char *kind, const char *path);
void fl_data_zip_close(struct fl_data_zip *zip);

bool fl_data_zip_has(const struct fl_data_zip *zip, const char *member);

/* Opens the stream of an existing member; `member` must outlive it. Free s->inflate with fl_data_inflate_free, after a
 * failure too. */
tensor_status fl_data_zip_member(const struct fl_data_zip *zip, const char *member, struct fl_data_stream *s);

#endif
