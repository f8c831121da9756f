/* data_idx.c - the IDX files of MNIST and its successors (LeCun et al. 1998), plain or gzipped: big-endian header of a
 * magic number and the sizes, then bytes. */
#include "core/fail.h"
#include "core/memory.h"
#include "data/data_internal.h"
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

enum { MAGIC_LABELS = 0x00000801, MAGIC_IMAGES = 0x00000803, MAX_LABEL = 9, MAX_DIMS = 3 };
/* Deflate packs at most 258 bytes into two bits, 1032:1; a header that promises more than that is wrong, and is found
 * out before its memory is asked for. */
enum { DEFLATE_RATIO = 1032 };

struct idx_file {
    gzFile file;
    char *path;
    int64_t bytes; /* on disk, compressed or not */
    int ndim;
    int64_t dim[MAX_DIMS];
};

static void idx_close(struct idx_file *f) {
    if (f->file)
        gzclose_r(f->file);
    fl_free(f->path);
    *f = (struct idx_file){0};
}

/* Reads exactly `bytes`; `what` names them in the message. The text of gzerror begins with the path. */
static tensor_status idx_read(struct idx_file *f, const char *what, void *data, int64_t bytes) {
    enum { CHUNK = 1 << 24 };
    for (int64_t done = 0; done < bytes;) {
        unsigned want = (unsigned)(bytes - done < CHUNK ? bytes - done : CHUNK);
        int got = gzread(f->file, (uint8_t *)data + done, want);
        int code = Z_OK;
        const char *why = gzerror(f->file, &code);
        if (got < 0 || (code != Z_OK && code != Z_BUF_ERROR))
            return code == Z_ERRNO       ? fl_fail(TENSOR_E_IO, "idx: %s: %s", f->path, strerror(errno))
                   : code == Z_MEM_ERROR ? fl_fail(TENSOR_E_MEMORY, "idx: %s: no memory to decompress", f->path)
                                         : fl_fail(TENSOR_E_DATA, "idx: corrupt gzip stream in the %s: %s", what, why);
        done += got;
        if ((unsigned)got < want)
            return fl_fail(TENSOR_E_DATA, "idx: %s is truncated: %lld bytes of %s, expected %lld", f->path,
                           (long long)done, what, (long long)bytes);
    }
    return TENSOR_OK;
}

/* After the last element: nothing more, and a gzip stream whose checksum is right. */
static tensor_status idx_end(struct idx_file *f) {
    uint8_t extra;
    int got = gzread(f->file, &extra, 1), code = Z_OK;
    const char *why = gzerror(f->file, &code);
    if (got > 0)
        return fl_fail(TENSOR_E_DATA, "idx: %s goes on after the last element that its header promises", f->path);
    if (got < 0 || code != Z_OK)
        return fl_fail(TENSOR_E_DATA, "idx: corrupt gzip stream at its end: %s", why);
    return TENSOR_OK;
}

static tensor_status idx_header(struct idx_file *f, uint32_t magic) {
    uint8_t bytes[4 * (1 + MAX_DIMS)];
    tensor_status status = idx_read(f, "header", bytes, 4 * (1 + f->ndim));
    if (status)
        return status;
    uint32_t word[1 + MAX_DIMS] = {0};
    for (int i = 0; i <= f->ndim; i++)
        word[i] = (uint32_t)bytes[4 * i] << 24 | (uint32_t)bytes[4 * i + 1] << 16 | (uint32_t)bytes[4 * i + 2] << 8 |
                  bytes[4 * i + 3];
    if (word[0] != magic)
        return fl_fail(TENSOR_E_DATA, "idx: %s begins with 0x%08X, expected 0x%08X", f->path, word[0], magic);
    int64_t payload = 1;
    for (int i = 0; i < f->ndim; i++) {
        int64_t most = i == 0 ? INT64_C(0xFFFFFFFF) : FL_DATA_MAX_SIDE;
        f->dim[i] = word[i + 1];
        if (f->dim[i] < 1 || f->dim[i] > most)
            return fl_fail(TENSOR_E_DATA, "idx: %s: size %d of the header is %lld, expected 1 to %lld", f->path, i,
                           (long long)f->dim[i], (long long)most);
        payload *= f->dim[i]; /* at most 2^32 * 2^12 * 2^12 */
    }
    int64_t held = gzdirect(f->file) ? f->bytes - 4 * (1 + f->ndim) : f->bytes * DEFLATE_RATIO;
    if (payload > held)
        return fl_fail(TENSOR_E_DATA,
                       "idx: %s is truncated: its header promises %lld bytes of elements, a file of %lld bytes holds "
                       "at most %lld",
                       f->path, (long long)payload, (long long)f->bytes, (long long)held);
    return TENSOR_OK;
}

static tensor_status idx_open(struct idx_file *f, const char *directory, const char *name, uint32_t magic) {
    static const char *const suffix[] = {"", ".gz"};
    *f = (struct idx_file){.ndim = (int)(magic & 0xFF)};
    for (int i = 0; i < 2 && !f->file; i++) {
        fl_free(f->path);
        f->path = fl_data_path(directory, name, suffix[i]);
        if (!f->path)
            return fl_fail(TENSOR_E_MEMORY, "idx: no memory for the path of %s", name);
        struct stat about;
        if (stat(f->path, &about)) {
            if (errno == ENOENT && i == 0)
                continue;
            return fl_fail(TENSOR_E_IO, "idx: cannot open %s/%s, plain or .gz: %s", directory, name, strerror(errno));
        }
        if (!S_ISREG(about.st_mode))
            return fl_fail(TENSOR_E_IO, "idx: %s is not a regular file", f->path);
        f->bytes = about.st_size;
        errno = 0;
        f->file = gzopen(f->path, "rb");
        if (!f->file)
            return fl_fail(errno ? TENSOR_E_IO : TENSOR_E_MEMORY, "idx: cannot open %s: %s", f->path,
                           errno ? strerror(errno) : "no memory");
    }
    return idx_header(f, magic);
}

tensor_status fl_data_open_idx(data_set **set, const char *rest, data_split split) {
    if (!rest || !*rest)
        return fl_fail(TENSOR_E_ARGUMENT, "idx: no folder given, expected idx:DIR");
    struct idx_file images = {0}, labels = {0};
    data_set *s = NULL;
    tensor_status status = idx_open(
        &images, rest, split == DATA_TRAIN ? "train-images-idx3-ubyte" : "t10k-images-idx3-ubyte", MAGIC_IMAGES);
    if (!status)
        status = idx_open(&labels, rest, split == DATA_TRAIN ? "train-labels-idx1-ubyte" : "t10k-labels-idx1-ubyte",
                          MAGIC_LABELS);
    if (!status && images.dim[0] != labels.dim[0])
        status = fl_fail(TENSOR_E_DATA, "idx: %s holds %lld images, %s %lld labels", images.path,
                         (long long)images.dim[0], labels.path, (long long)labels.dim[0]);
    if (!status)
        status = fl_data_new(&s, "idx", images.dim[0], (int)images.dim[1], (int)images.dim[2], 1, 2);
    if (!status)
        status = idx_read(&images, "pixels", s->pixels, s->count * s->height * s->width);
    if (!status)
        status = idx_end(&images);
    if (!status)
        status = idx_read(&labels, "labels", s->labels, s->count);
    if (!status)
        status = idx_end(&labels);
    for (int64_t i = 0; !status && i < s->count; i++) {
        if (s->labels[i] > MAX_LABEL)
            status = fl_fail(TENSOR_E_DATA, "idx: %s: label %lld is %d, expected 0 to %d", labels.path, (long long)i,
                             s->labels[i], MAX_LABEL);
        else if (s->labels[i] >= s->classes)
            s->classes = s->labels[i] + 1;
    }
    idx_close(&images);
    idx_close(&labels);
    if (status)
        data_free(s);
    else
        *set = s;
    return status;
}
