/* data_cifar.c - CIFAR-10, binary version (Krizhevsky 2009): files of 10000 records, each a label byte and then 1024
 * red, 1024 green and 1024 blue bytes, row-major. */
#include "core/fail.h"
#include "core/memory.h"
#include "core/parallel.h"
#include "data/data_internal.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>

enum {
    SIDE = 32,
    PIXELS = SIDE * SIDE,
    CHANNELS = 3,
    CLASSES = 10,
    RECORD = 1 + PIXELS * CHANNELS,
    FILE_RECORDS = 10000,
    PARTS = 100
};
#define FILE_BYTES ((size_t)FILE_RECORDS * RECORD)

struct unpack {
    const uint8_t *records;
    uint8_t *pixels;
    uint16_t *labels;
};

/* Planes to interleaved pixels, labels apart. */
static void unpack_part(void *context, int part, int worker) {
    (void)worker;
    const struct unpack *u = context;
    for (int i = part * (FILE_RECORDS / PARTS); i < (part + 1) * (FILE_RECORDS / PARTS); i++) {
        const uint8_t *record = u->records + (size_t)i * RECORD, *planes = record + 1;
        uint8_t *out = u->pixels + (size_t)i * PIXELS * CHANNELS;
        u->labels[i] = record[0];
        for (int p = 0; p < PIXELS; p++) {
            out[3 * p + 0] = planes[p];
            out[3 * p + 1] = planes[p + PIXELS];
            out[3 * p + 2] = planes[p + 2 * PIXELS];
        }
    }
}

static tensor_status check_size(const char *path, int64_t bytes) {
    if (bytes % RECORD)
        return fl_fail(TENSOR_E_DATA,
                       "cifar10: %s has %lld bytes, not a whole number of %d-byte records; expected %d records (%zu "
                       "bytes)",
                       path, (long long)bytes, RECORD, FILE_RECORDS, FILE_BYTES);
    if (bytes / RECORD != FILE_RECORDS)
        return fl_fail(TENSOR_E_DATA, "cifar10: %s has %lld records (%lld bytes), expected %d (%zu bytes)", path,
                       (long long)(bytes / RECORD), (long long)bytes, FILE_RECORDS, FILE_BYTES);
    return TENSOR_OK;
}

static tensor_status read_records(int file, const char *path, uint8_t *records) {
    for (size_t done = 0; done < FILE_BYTES;) {
        const ssize_t got = read(file, records + done, FILE_BYTES - done);
        if (!got || (got < 0 && errno != EINTR))
            return fl_fail(TENSOR_E_IO, "cifar10: %s: read %zu of %zu bytes: %s", path, done, FILE_BYTES,
                           got ? strerror(errno) : "it became shorter");
        done += got > 0 ? (size_t)got : 0;
    }
    for (int i = 0; i < FILE_RECORDS; i++)
        if (records[(size_t)i * RECORD] >= CLASSES)
            return fl_fail(TENSOR_E_DATA, "cifar10: %s: record %d has label %d, expected 0 to %d", path, i,
                           records[(size_t)i * RECORD], CLASSES - 1);
    return TENSOR_OK;
}

static tensor_status read_file(const char *directory, const char *name, uint8_t *records) {
    char *path = fl_data_path(directory, name, "");
    if (!path)
        return fl_fail(TENSOR_E_MEMORY, "cifar10: no memory for the path of %s", name);
    int file = -1;
    int64_t bytes;
    tensor_status status = fl_data_file_open(&file, &bytes, "cifar10", path,
                                             "expected data_batch_1.bin to data_batch_5.bin and test_batch.bin of the "
                                             "binary version");
    if (!status)
        status = check_size(path, bytes);
    if (!status)
        status = read_records(file, path, records);
    if (file >= 0)
        close(file);
    fl_free(path);
    return status;
}

tensor_status fl_data_open_cifar10(data_set **set, const char *rest, data_split split) {
    static const char *const train[] = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
                                        "data_batch_5.bin"};
    static const char *const test[] = {"test_batch.bin"};
    const char *const *names = split == DATA_TRAIN ? train : test;
    int files = split == DATA_TRAIN ? 5 : 1;
    if (!rest || !*rest)
        return fl_fail(TENSOR_E_ARGUMENT, "cifar10: no folder given, expected cifar10:DIR");

    uint8_t *records = fl_alloc(FILE_BYTES);
    if (!records)
        return fl_fail(TENSOR_E_MEMORY, "cifar10: no memory for a file of %zu bytes", FILE_BYTES);
    data_set *s = NULL;
    tensor_status status = TENSOR_OK;
    for (int i = 0; i < files && !status; i++) {
        status = read_file(rest, names[i], records);
        if (!status && !s) /* after the first file, so that a wrong folder costs nothing */
            status = fl_data_new(&s, "cifar10", (int64_t)files * FILE_RECORDS, SIDE, SIDE, CHANNELS, CLASSES);
        if (!status) {
            int64_t first = (int64_t)i * FILE_RECORDS;
            struct unpack u = {records, s->pixels + first * PIXELS * CHANNELS, s->labels + first};
            fl_parallel(PARTS, unpack_part, &u);
        }
    }
    fl_free(records);
    if (status)
        data_free(s);
    else
        *set = s;
    return status;
}
