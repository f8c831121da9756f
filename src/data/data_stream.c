/* data_stream.c - reading a file or a member of an archive in order. */
#include "data/data_stream.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "data/data_inflate.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

/* Memory allocated before a compressed member has yielded any bytes. */
enum { FIRST_BYTES = 1 << 26, CHUNK = 1 << 24 };

tensor_status fl_data_read_at(int file, const char *kind, const char *path, int64_t offset, void *to, int64_t bytes) {
    for (int64_t done = 0; done < bytes;) {
        const int64_t want = bytes - done < CHUNK ? bytes - done : CHUNK;
        const ssize_t got = pread(file, (uint8_t *)to + done, (size_t)want, offset + done);
        if (!got || (got < 0 && errno != EINTR))
            return fl_fail(TENSOR_E_IO, "%s: %s: read %lld of %lld bytes at %lld: %s", kind, path, (long long)done,
                           (long long)bytes, (long long)offset, got ? strerror(errno) : "it became shorter");
        done += got > 0 ? got : 0;
    }
    return TENSOR_OK;
}

static uint32_t crc_of(uint32_t crc, const uint8_t *bytes, int64_t count) {
    for (int64_t done = 0; done < count; done += CHUNK)
        crc = (uint32_t)crc32(crc, bytes + done, (uInt)(count - done < CHUNK ? count - done : CHUNK));
    return crc;
}

tensor_status fl_data_stream_read(struct fl_data_stream *s, const char *what, void *to, int64_t bytes) {
    if (bytes > s->length - s->done)
        return fl_fail(TENSOR_E_DATA, "%s: %s%s%s is truncated: %lld bytes of %s, expected %lld", FL_STREAM_WHERE(s),
                       (long long)(s->length - s->done), what, (long long)bytes);
    const tensor_status status = s->inflate
                                     ? fl_data_inflate_read(s, to, bytes)
                                     : fl_data_read_at(s->file, s->kind, s->path, s->offset + s->done, to, bytes);
    if (status)
        return status;
    if (s->checked)
        s->crc = crc_of(s->crc, to, bytes);
    s->done += bytes;
    return TENSOR_OK;
}

tensor_status fl_data_stream_take(struct fl_data_stream *s, const char *what, int64_t bytes, uint8_t **memory) {
    int64_t room = s->inflate && bytes > FIRST_BYTES ? FIRST_BYTES : bytes, held = 0;
    uint8_t *block = fl_alloc((size_t)room);
    tensor_status status = TENSOR_OK;
    while (block && !status && held < bytes) {
        if (held == room) {
            room = room < bytes / 2 ? 2 * room : bytes;
            uint8_t *larger = fl_alloc((size_t)room);
            if (larger)
                memcpy(larger, block, (size_t)held);
            fl_free(block);
            block = larger;
            continue;
        }
        status = fl_data_stream_read(s, what, block + held, room - held);
        held = room;
    }
    if (!block)
        status = fl_fail(TENSOR_E_MEMORY, "%s: no memory for %lld bytes of %s (%s)", s->kind, (long long)room, what,
                         s->path);
    if (status)
        fl_free(block);
    else
        *memory = block;
    return status;
}

tensor_status fl_data_stream_end(struct fl_data_stream *s) {
    if (s->inflate) {
        const tensor_status status = fl_data_inflate_end(s);
        if (status)
            return status;
    }
    if (s->checked && s->crc != s->expected_crc)
        return fl_fail(TENSOR_E_DATA, "%s: %s: %s is corrupt: its CRC-32 is %08X, the archive says %08X", s->kind,
                       s->path, s->member, s->crc, s->expected_crc);
    return TENSOR_OK;
}
