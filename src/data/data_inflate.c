/* data_inflate.c - deflated members of zip archives (RFC 1951), by zlib on memory of the library's allocator. */
#include "data/data_inflate.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include <limits.h>
#include <zlib.h>

enum { INPUT = 1 << 16 };

struct fl_data_inflate {
    z_stream z;
    int64_t at, left; /* position in the file, and compressed bytes not yet read */
    bool ended;
    uint8_t input[INPUT];
};

static void *allocate(void *context, unsigned items, unsigned size) {
    (void)context;
    return fl_alloc((size_t)items * size);
}

static void release(void *context, void *block) {
    (void)context;
    fl_free(block);
}

tensor_status fl_data_inflate_new(struct fl_data_stream *s, int64_t compressed) {
    struct fl_data_inflate *i = fl_alloc_zero(sizeof *i);
    if (i) {
        i->z.zalloc = allocate;
        i->z.zfree = release;
        i->at = s->offset;
        i->left = compressed;
    }
    if (!i || inflateInit2(&i->z, -MAX_WBITS) != Z_OK) {
        fl_free(i);
        return fl_fail(TENSOR_E_MEMORY, "%s: %s: no memory to decompress %s", s->kind, s->path, s->member);
    }
    s->inflate = i;
    return TENSOR_OK;
}

void fl_data_inflate_free(struct fl_data_inflate *i) {
    if (!i)
        return;
    (void)inflateEnd(&i->z);
    fl_free(i);
}

static tensor_status corrupt(const struct fl_data_stream *s, const char *why) {
    return fl_fail(TENSOR_E_DATA, "%s: %s: %s is corrupt: %s", s->kind, s->path, s->member, why);
}

static tensor_status refill(struct fl_data_stream *s, struct fl_data_inflate *i) {
    const int64_t count = i->left < INPUT ? i->left : INPUT;
    const tensor_status status = fl_data_read_at(s->file, s->kind, s->path, i->at, i->input, count);
    i->at += count;
    i->left -= count;
    i->z.next_in = i->input;
    i->z.avail_in = (unsigned)count;
    return status;
}

/* Inflates until the output buffer of z is full or the deflated bytes end. */
static tensor_status run(struct fl_data_stream *s, struct fl_data_inflate *i) {
    while (i->z.avail_out && !i->ended) {
        if (!i->z.avail_in && i->left) {
            const tensor_status status = refill(s, i);
            if (status)
                return status;
        }
        const int code = inflate(&i->z, Z_NO_FLUSH);
        if (code == Z_STREAM_END)
            i->ended = true;
        else if (code == Z_MEM_ERROR)
            return fl_fail(TENSOR_E_MEMORY, "%s: %s: no memory to decompress %s", s->kind, s->path, s->member);
        else if (code == Z_BUF_ERROR && !i->z.avail_in && !i->left)
            return corrupt(s, "its deflated bytes end too early");
        else if (code != Z_OK && (code != Z_BUF_ERROR || i->z.avail_in))
            return corrupt(s, i->z.msg ? i->z.msg : "its deflated bytes are invalid");
    }
    return TENSOR_OK;
}

tensor_status fl_data_inflate_read(struct fl_data_stream *s, void *to, int64_t bytes) {
    struct fl_data_inflate *i = s->inflate;
    for (int64_t done = 0; done < bytes;) {
        const unsigned room = bytes - done < INT_MAX ? (unsigned)(bytes - done) : INT_MAX;
        i->z.next_out = (uint8_t *)to + done;
        i->z.avail_out = room;
        const tensor_status status = run(s, i);
        if (status)
            return status;
        done += room - i->z.avail_out;
        if (i->z.avail_out)
            return corrupt(s, "it has fewer bytes than the archive says");
    }
    return TENSOR_OK;
}

tensor_status fl_data_inflate_end(struct fl_data_stream *s) {
    struct fl_data_inflate *i = s->inflate;
    uint8_t extra;
    i->z.next_out = &extra;
    i->z.avail_out = 1;
    const tensor_status status = run(s, i);
    if (status)
        return status;
    if (!i->z.avail_out)
        return corrupt(s, "it has more bytes than the archive says");
    return i->z.avail_in || i->left ? corrupt(s, "bytes follow the end of its deflated bytes") : TENSOR_OK;
}
