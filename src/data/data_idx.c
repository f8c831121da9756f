/* data_idx.c - the IDX files of MNIST and its successors (LeCun et al. 1998), plain or gzipped: big-endian header of a
 * magic number and the sizes, then bytes. */
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "data/data_internal.h"
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

enum { MAGIC_LABELS = 0x00000801, MAGIC_IMAGES = 0x00000803, MAX_LABEL = 9, MAX_DIMS = 3 };
/* Deflate packs at most 258 bytes into two bits, 1032:1; a header that declares more is wrong, and is refused before
 * memory is allocated. Memory for a compressed file grows with the bytes that it yields. */
enum { DEFLATE_RATIO = 1032, FIRST_BYTES = 1 << 26 };

struct idx_file {
    gzFile file;
    char *path;
    int64_t bytes; /* on disk, compressed or not */
    int ndim;
    int64_t dim[MAX_DIMS], payload; /* bytes of elements: their product */
};

static void idx_close(struct idx_file *f) {
    if (f->file)
        gzclose_r(f->file);
    fl_free(f->path);
    *f = (struct idx_file){0};
}

/* Reports why the last gzread or gzdirect failed, by the message of zlib without the descriptor at its beginning. */
static tensor_status idx_failed(struct idx_file *f, const char *what) {
    int code = Z_OK;
    const char *why = gzerror(f->file, &code), *colon = strstr(why, ": ");
    if (code == Z_ERRNO)
        return fl_fail(TENSOR_E_IO, "idx: %s: %s", f->path, strerror(errno));
    if (code == Z_MEM_ERROR)
        return fl_fail(TENSOR_E_MEMORY, "idx: %s: no memory to decompress", f->path);
    return fl_fail(TENSOR_E_DATA, "idx: %s: corrupt gzip stream in the %s: %s", f->path, what, colon ? colon + 2 : why);
}

/* Reads at most `most` of the next bytes; *got: their number, which is smaller only at the end of the file. `what`
 * names them in the message. */
static tensor_status idx_some(struct idx_file *f, const char *what, void *data, int64_t most, int64_t *got) {
    enum { CHUNK = 1 << 24 };
    for (*got = 0; *got < most;) {
        const unsigned want = (unsigned)(most - *got < CHUNK ? most - *got : CHUNK);
        const int n = gzread(f->file, (uint8_t *)data + *got, want);
        int code = Z_OK;
        (void)gzerror(f->file, &code);
        if (n < 0 || (code != Z_OK && code != Z_BUF_ERROR))
            return idx_failed(f, what);
        *got += n;
        if ((unsigned)n < want)
            break;
    }
    return TENSOR_OK;
}

static tensor_status idx_truncated(const struct idx_file *f, const char *what, int64_t held, int64_t bytes) {
    return fl_fail(TENSOR_E_DATA, "idx: %s is truncated: %lld bytes of %s, expected %lld", f->path, (long long)held,
                   what, (long long)bytes);
}

/* Reads the elements that the header declares into new memory. For a compressed file it grows with the bytes read. */
static tensor_status idx_elements(struct idx_file *f, const char *what, uint8_t **elements) {
    const int64_t bytes = f->payload;
    int64_t room = gzdirect(f->file) || bytes < FIRST_BYTES ? bytes : FIRST_BYTES, held = 0;
    uint8_t *memory = fl_alloc((size_t)room);
    tensor_status status = TENSOR_OK;
    while (memory && !status && held < bytes) {
        if (held == room) {
            room = room < bytes / 2 ? 2 * room : bytes;
            uint8_t *larger = fl_alloc((size_t)room);
            if (larger)
                memcpy(larger, memory, (size_t)held);
            fl_free(memory);
            memory = larger;
            continue;
        }
        int64_t got;
        status = idx_some(f, what, memory + held, room - held, &got);
        held += got;
        if (!status && held < room)
            status = idx_truncated(f, what, held, bytes);
    }
    if (!memory)
        status = fl_fail(TENSOR_E_MEMORY, "idx: no memory for %lld bytes of %s (%s)", (long long)room, what, f->path);
    if (status)
        fl_free(memory);
    else
        *elements = memory;
    return status;
}

/* Checks that nothing follows the last element, and that the checksum of a gzip stream is right. */
static tensor_status idx_end(struct idx_file *f) {
    uint8_t extra;
    int got = gzread(f->file, &extra, 1), code = Z_OK;
    if (got > 0)
        return fl_fail(TENSOR_E_DATA, "idx: %s continues after the last element that its header declares", f->path);
    (void)gzerror(f->file, &code);
    return got < 0 || code != Z_OK ? idx_failed(f, "end") : TENSOR_OK;
}

static tensor_status idx_header(struct idx_file *f, uint32_t magic) {
    uint8_t bytes[4 * (1 + MAX_DIMS)];
    const int64_t header = 4 * (1 + f->ndim);
    int64_t got;
    tensor_status status = idx_some(f, "header", bytes, header, &got);
    if (status)
        return status;
    if (got < header)
        return idx_truncated(f, "header", got, header);
    uint32_t word[1 + MAX_DIMS] = {0};
    for (int i = 0; i <= f->ndim; i++)
        word[i] = (uint32_t)bytes[4 * i] << 24 | (uint32_t)bytes[4 * i + 1] << 16 | (uint32_t)bytes[4 * i + 2] << 8 |
                  bytes[4 * i + 3];
    if (word[0] != magic)
        return fl_fail(TENSOR_E_DATA, "idx: %s begins with 0x%08X, expected 0x%08X", f->path, word[0], magic);
    f->payload = 1;
    for (int i = 0; i < f->ndim; i++) {
        int64_t most = i == 0 ? INT64_C(0xFFFFFFFF) : FL_DATA_MAX_SIDE;
        f->dim[i] = word[i + 1];
        if (f->dim[i] < 1 || f->dim[i] > most)
            return fl_fail(TENSOR_E_DATA, "idx: %s: size %d of the header is %lld, expected 1 to %lld", f->path, i,
                           (long long)f->dim[i], (long long)most);
        f->payload *= f->dim[i]; /* at most 2^32 * 2^12 * 2^12 */
    }
    int64_t held;
    if (gzdirect(f->file))
        held = f->bytes - header;
    else if (__builtin_mul_overflow(f->bytes, DEFLATE_RATIO, &held))
        held = INT64_MAX;
    if (f->payload > held)
        return fl_fail(
            TENSOR_E_DATA,
            "idx: %s is truncated: its header declares %lld bytes of elements, a file of %lld bytes holds at most %lld",
            f->path, (long long)f->payload, (long long)f->bytes, (long long)held);
    return TENSOR_OK;
}

/* Opens "name" or, if there is none, "name.gz". */
static tensor_status idx_open(struct idx_file *f, const char *directory, const char *name, uint32_t magic) {
    *f = (struct idx_file){.ndim = (int)(magic & 0xFF)};
    f->path = fl_data_path(directory, name, "");
    if (f->path && access(f->path, F_OK) && errno == ENOENT) {
        fl_free(f->path);
        f->path = fl_data_path(directory, name, ".gz");
    }
    if (!f->path)
        return fl_fail(TENSOR_E_MEMORY, "idx: no memory for the path of %s", name);
    int file;
    tensor_status status = fl_data_file_open(&file, &f->bytes, "idx", f->path, "expected it plain or with .gz");
    if (status)
        return status;
    f->file = gzdopen(file, "rb");
    if (!f->file) {
        close(file);
        return fl_fail(TENSOR_E_MEMORY, "idx: no memory to read %s", f->path);
    }
    return idx_header(f, magic);
}

static tensor_status take_labels(data_set *s, const uint8_t *labels, const char *path) {
    for (int64_t i = 0; i < s->count; i++) {
        if (labels[i] > MAX_LABEL)
            return fl_fail(TENSOR_E_DATA, "idx: %s: label %lld is %d, expected 0 to %d", path, (long long)i, labels[i],
                           MAX_LABEL);
        if (labels[i] >= s->classes)
            s->classes = labels[i] + 1;
        s->labels[i] = labels[i];
    }
    return TENSOR_OK;
}

static tensor_status read_labels(data_set *s, struct idx_file *f) {
    uint8_t *bytes = NULL;
    tensor_status status = idx_elements(f, "labels", &bytes);
    if (!status)
        status = idx_end(f);
    if (!status && !(s->labels = fl_alloc((size_t)s->count * sizeof *s->labels)))
        status = fl_fail(TENSOR_E_MEMORY, "idx: no memory for %lld labels (%s)", (long long)s->count, f->path);
    if (!status)
        status = take_labels(s, bytes, f->path);
    fl_free(bytes);
    return status;
}

static tensor_status read_set(data_set *s, struct idx_file *images, struct idx_file *labels) {
    if (images->dim[0] != labels->dim[0])
        return fl_fail(TENSOR_E_DATA, "idx: %s holds %lld images, %s %lld labels", images->path,
                       (long long)images->dim[0], labels->path, (long long)labels->dim[0]);
    *s = (data_set){.count = images->dim[0],
                    .height = (int)images->dim[1],
                    .width = (int)images->dim[2],
                    .channels = 1,
                    .classes = 2};
    tensor_status status = idx_elements(images, "pixels", &s->pixels);
    if (!status)
        status = idx_end(images);
    return status ? status : read_labels(s, labels);
}

tensor_status fl_data_open_idx(data_set **set, const char *rest, data_split split) {
    if (!rest || !*rest)
        return fl_fail(TENSOR_E_ARGUMENT, "idx: no folder given, expected idx:DIR");
    const bool train = split == DATA_TRAIN;
    struct idx_file images = {0}, labels = {0};
    data_set *s = fl_alloc_zero(sizeof *s);
    tensor_status status = s ? TENSOR_OK : fl_fail(TENSOR_E_MEMORY, "idx: no memory");
    if (!status)
        status = idx_open(&images, rest, train ? "train-images-idx3-ubyte" : "t10k-images-idx3-ubyte", MAGIC_IMAGES);
    if (!status)
        status = idx_open(&labels, rest, train ? "train-labels-idx1-ubyte" : "t10k-labels-idx1-ubyte", MAGIC_LABELS);
    if (!status)
        status = read_set(s, &images, &labels);
    idx_close(&images);
    idx_close(&labels);
    if (status)
        data_free(s);
    else
        *set = s;
    return status;
}
