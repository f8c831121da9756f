/* data_cifar.c - CIFAR-10 and CIFAR-100, binary versions (Krizhevsky 2009): files of records, each a label byte, or the
 * coarse and the fine label, and then 1024 red, 1024 green and 1024 blue bytes, row-major. */
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/base/parallel.h"
#include "data/data_internal.h"
#include "data/data_words.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>

enum {
    SIDE = 32,
    PIXELS = SIDE * SIDE,
    CHANNELS = 3,
    MOST_LABELS = 2,
    PIECE_RECORDS = 10000, /* read at a time; divides the records of every file */
    PARTS = 100
};

/* One of the two sets, in one reading of its labels. */
struct cifar {
    const char *kind, *layout; /* for messages */
    int labels, which;         /* label bytes of a record, and the one that is read */
    const char *label_name[MOST_LABELS];
    int classes[MOST_LABELS];
    const char *const *names[2]; /* files of each split */
    int files[2];
    int records[2]; /* of each file */
};

static int record_bytes(const struct cifar *c) {
    return c->labels + PIXELS * CHANNELS;
}

struct unpack {
    const struct cifar *cifar;
    const uint8_t *records;
    uint8_t *pixels;
    uint16_t *labels;
};

/* Converts planes to interleaved pixels, and separates the labels. */
static void unpack_part(void *context, int part, int worker) {
    (void)worker;
    const struct unpack *u = context;
    const int bytes = record_bytes(u->cifar);
    for (int i = part * (PIECE_RECORDS / PARTS); i < (part + 1) * (PIECE_RECORDS / PARTS); i++) {
        const uint8_t *record = u->records + (size_t)i * bytes, *planes = record + u->cifar->labels;
        uint8_t *out = u->pixels + (size_t)i * PIXELS * CHANNELS;
        u->labels[i] = record[u->cifar->which];
        for (int p = 0; p < PIXELS; p++) {
            out[3 * p + 0] = planes[p];
            out[3 * p + 1] = planes[p + PIXELS];
            out[3 * p + 2] = planes[p + 2 * PIXELS];
        }
    }
}

static tensor_status check_size(const struct cifar *c, const char *path, int64_t bytes, int records) {
    const int record = record_bytes(c);
    const int64_t expected = (int64_t)records * record;
    if (bytes % record)
        return fl_fail(TENSOR_E_DATA,
                       "%s: %s has %lld bytes, not a whole number of %d-byte records; expected %d records (%lld "
                       "bytes)",
                       c->kind, path, (long long)bytes, record, records, (long long)expected);
    if (bytes != expected)
        return fl_fail(TENSOR_E_DATA, "%s: %s has %lld records (%lld bytes), expected %d (%lld bytes)", c->kind, path,
                       (long long)(bytes / record), (long long)bytes, records, (long long)expected);
    return TENSOR_OK;
}

static tensor_status check_labels(const struct cifar *c, const char *path, const uint8_t *records, int first) {
    for (int i = 0; i < PIECE_RECORDS; i++)
        for (int k = 0; k < c->labels; k++) {
            const int label = records[(size_t)i * record_bytes(c) + k];
            if (label >= c->classes[k])
                return fl_fail(TENSOR_E_DATA, "%s: %s: record %d has %slabel %d, expected 0 to %d", c->kind, path,
                               first + i, c->label_name[k], label, c->classes[k] - 1);
        }
    return TENSOR_OK;
}

/* Reads the next records of the file. */
static tensor_status read_piece(const struct cifar *c, int file, const char *path, int first, uint8_t *records) {
    const size_t bytes = (size_t)PIECE_RECORDS * record_bytes(c);
    for (size_t done = 0; done < bytes;) {
        const ssize_t got = read(file, records + done, bytes - done);
        if (!got || (got < 0 && errno != EINTR))
            return fl_fail(TENSOR_E_IO, "%s: %s: read %zu of %zu bytes from record %d: %s", c->kind, path, done, bytes,
                           first, got ? strerror(errno) : "it became shorter");
        done += got > 0 ? (size_t)got : 0;
    }
    return check_labels(c, path, records, first);
}

/* Adds the records of a file to the set, from image `at` on. The set is allocated after the first piece, so that a
 * wrong folder is refused at once. */
static tensor_status take_file(data_set **set, const struct cifar *c, int file, const char *path, data_split split,
                               int64_t at, uint8_t *records) {
    for (int first = 0; first < c->records[split]; first += PIECE_RECORDS) {
        tensor_status status = read_piece(c, file, path, first, records);
        if (!status && !*set)
            status = fl_data_new(set, c->kind, (int64_t)c->files[split] * c->records[split], SIDE, SIDE, CHANNELS,
                                 c->classes[c->which]);
        if (status)
            return status;
        struct unpack u = {c, records, (*set)->pixels + (at + first) * PIXELS * CHANNELS, (*set)->labels + at + first};
        fl_parallel(PARTS, unpack_part, &u);
    }
    return TENSOR_OK;
}

static tensor_status read_file(data_set **set, const struct cifar *c, const char *directory, data_split split,
                               int number, uint8_t *records) {
    const char *name = c->names[split][number];
    char *path = fl_data_path(directory, name, "");
    if (!path)
        return fl_fail(TENSOR_E_MEMORY, "%s: no memory for the path of %s", c->kind, name);
    int file = -1;
    int64_t bytes;
    tensor_status status = fl_data_file_open(&file, &bytes, c->kind, path, c->layout);
    if (!status)
        status = check_size(c, path, bytes, c->records[split]);
    if (!status)
        status = take_file(set, c, file, path, split, (int64_t)number * c->records[split], records);
    if (file >= 0)
        close(file);
    fl_free(path);
    return status;
}

static tensor_status read_set(data_set **set, const struct cifar *c, const char *directory, data_split split) {
    const size_t bytes = (size_t)PIECE_RECORDS * record_bytes(c);
    uint8_t *records = fl_alloc(bytes);
    if (!records)
        return fl_fail(TENSOR_E_MEMORY, "%s: no memory for %zu bytes of a file", c->kind, bytes);
    data_set *s = NULL;
    tensor_status status = TENSOR_OK;
    for (int i = 0; i < c->files[split] && !status; i++)
        status = read_file(&s, c, directory, split, i, records);
    fl_free(records);
    if (status)
        data_free(s);
    else
        *set = s;
    return status;
}

tensor_status fl_data_open_cifar10(data_set **set, const char *rest, data_split split) {
    static const char *const train[] = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
                                        "data_batch_5.bin"},
                             *const test[] = {"test_batch.bin"};
    static const struct cifar cifar10 = {
        .kind = "cifar10",
        .layout = "expected data_batch_1.bin to data_batch_5.bin and test_batch.bin of the binary version",
        .labels = 1,
        .label_name = {""},
        .classes = {10},
        .names = {train, test},
        .files = {5, 1},
        .records = {10000, 10000}};
    if (!rest || !*rest)
        return fl_fail(TENSOR_E_ARGUMENT, "cifar10: no folder given, expected cifar10:DIR");
    return read_set(set, &cifar10, rest, split);
}

static tensor_status open_cifar100(data_set **set, const struct fl_data_words *words, data_split split) {
    static const char *const train[] = {"train.bin"}, *const test[] = {"test.bin"};
    struct cifar cifar100 = {.kind = "cifar100",
                             .layout = "expected train.bin and test.bin of the binary version",
                             .labels = 2,
                             .which = 1,
                             .label_name = {"coarse ", "fine "},
                             .classes = {20, 100},
                             .names = {train, test},
                             .files = {1, 1},
                             .records = {50000, 10000}};
    const char *labels = words->value[0] ? words->value[0] : "fine";
    if (strcmp(labels, "fine") != 0 && strcmp(labels, "coarse") != 0)
        return fl_fail(TENSOR_E_ARGUMENT, "cifar100: option 'labels=%s', expected labels=fine or labels=coarse",
                       labels);
    cifar100.which = !strcmp(labels, "fine");
    return read_set(set, &cifar100, words->path[0], split);
}

tensor_status fl_data_open_cifar100(data_set **set, const char *rest, data_split split) {
    static const struct fl_data_syntax syntax = {"cifar100", "cifar100:DIR[,labels=fine|coarse]", 1, {"labels"}};
    struct fl_data_words words;
    tensor_status status = fl_data_words(&words, &syntax, rest);
    if (status)
        return status;
    status = open_cifar100(set, &words, split);
    fl_data_words_free(&words);
    return status;
}
