/* fuzz_idx.c - the IDX reader: any bytes as the file of images and the file of labels, plain or gzipped.
 *
 * Input: a byte of choices (bit 0: split; bits 1-2: form of the images; bits 3-4: form of the labels), two bytes with
 * the length of the first file, then the bytes of both. Forms: plain, compressed here, the bytes themselves as a .gz
 * file, no file. Unless the bytes are a gzip stream of the input itself, the whole verdict of the reader is known. */
#define _GNU_SOURCE
#include "flexlab/data.h"
#include "flexlab/tensor.h"
#include "scratch.h"
#include <math.h>
#include <zlib.h>

enum form { PLAIN, COMPRESSED, RAW_GZIP, ABSENT };

struct file {
    const uint8_t *bytes;
    size_t size;
    enum form form;
};

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    scratch_make();
    tensor_set_threads(1);
    return 0;
}

static void write_compressed(const char *name, const struct file *f) {
    static uint8_t packed[1 << 16];
    z_stream z = {.next_in = (Bytef *)(uintptr_t)f->bytes,
                  .avail_in = (uInt)f->size,
                  .next_out = packed,
                  .avail_out = sizeof packed};
    MUST(deflateInit2(&z, 1, Z_DEFLATED, 15 + 16, 1, Z_DEFAULT_STRATEGY) == Z_OK, "deflateInit2 fails");
    MUST(deflate(&z, Z_FINISH) == Z_STREAM_END, "%zu bytes do not fit", f->size);
    deflateEnd(&z);
    scratch_write(name, packed, z.total_out);
}

static void write_file(const char *name, const struct file *f) {
    char zipped[64];
    snprintf(zipped, sizeof zipped, "%s.gz", name);
    unlink(scratch_path(name));
    unlink(scratch_path(zipped));
    if (f->form == PLAIN)
        scratch_write(name, f->bytes, f->size);
    else if (f->form == COMPRESSED)
        write_compressed(zipped, f);
    else if (f->form == RAW_GZIP)
        scratch_write(zipped, f->bytes, f->size);
}

/* --- what the reader should say, computed again from the description of the format -------------------------------- */

static bool looks_zipped(const struct file *f) {
    return f->size >= 2 && f->bytes[0] == 0x1f && f->bytes[1] == 0x8b;
}

static uint64_t word(const struct file *f, size_t i) {
    uint64_t value = 0;
    for (size_t k = 0; k < 4; k++)
        value = value << 8 | f->bytes[4 * i + k];
    return value;
}

/* Whether the file is a header and exactly as many elements as it declares. */
static bool well_formed(const struct file *f, size_t dims) {
    const size_t header = 4 * (1 + dims);
    if (f->form == ABSENT || f->size < header || word(f, 0) != 0x800 + dims)
        return false;
    unsigned __int128 elements = 1;
    for (size_t i = 1; i <= dims; i++) {
        if (word(f, i) == 0 || (i > 1 && word(f, i) > 4096))
            return false;
        elements *= word(f, i);
    }
    return f->size - header == elements;
}

static bool acceptable(const struct file *images, const struct file *labels) {
    if (!well_formed(images, 3) || !well_formed(labels, 1) || word(images, 1) != word(labels, 1))
        return false;
    for (size_t i = 8; i < labels->size; i++)
        if (labels->bytes[i] > 9)
            return false;
    return true;
}

/* --- what was read ------------------------------------------------------------------------------------------------ */

static void check_consistent(data_set *set) {
    const int64_t n = data_count(set);
    const int height = data_height(set), width = data_width(set), classes = data_classes(set);
    MUST(n >= 1 && height >= 1 && width >= 1 && data_channels(set) == 1 && classes >= 2 && classes <= 10,
         "%lld images of %dx%dx%d, %d classes", (long long)n, height, width, data_channels(set), classes);
    unsigned sum = 0;
    for (int64_t i = 0; i < n; i++) {
        MUST(data_label(set, i) >= 0 && data_label(set, i) < classes, "label %lld is %d of %d", (long long)i,
             data_label(set, i), classes);
        for (int k = 0; k < height * width; k++)
            sum += data_image(set, i)[k];
    }
    double mean, deviation;
    MUST(!data_channel_moments(&mean, &deviation, set), "%s", tensor_error());
    const double expected = sum / (255.0 * (double)n * height * width);
    MUST(fabs(mean - expected) <= 1e-12 && deviation >= 0 && deviation <= 0.5 + 1e-12, "mean %g for %g, deviation %g",
         mean, expected, deviation);
    MUST(!data_image(set, n) && !data_image(set, -1) && data_label(set, n) == -1, "there is an image past the end");
    MUST(!data_limit(set, 1) && data_count(set) == 1 && data_limit(set, 2) == TENSOR_E_ARGUMENT, "%lld after a limit",
         (long long)data_count(set));
}

static void check_contents(const data_set *set, const struct file *images, const struct file *labels) {
    const int64_t n = data_count(set), size = (int64_t)data_height(set) * data_width(set);
    MUST((uint64_t)n == word(images, 1) && (uint64_t)data_height(set) == word(images, 2) &&
             (uint64_t)data_width(set) == word(images, 3),
         "%lld images of %dx%d", (long long)n, data_height(set), data_width(set));
    int classes = 2;
    for (int64_t i = 0; i < n; i++) {
        MUST(data_label(set, i) == labels->bytes[8 + i], "label %lld is %d", (long long)i, data_label(set, i));
        MUST(!memcmp(data_image(set, i), images->bytes + 16 + i * size, (size_t)size), "image %lld differs",
             (long long)i);
        if (labels->bytes[8 + i] >= classes)
            classes = labels->bytes[8 + i] + 1;
    }
    MUST(data_classes(set) == classes, "%d classes, expected %d", data_classes(set), classes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct input in = input_of(data, size);
    const uint8_t choices = take_byte(&in);
    size_t first = (size_t)take_bytes(&in, 2);
    if (first > input_left(&in))
        first = input_left(&in);
    const struct file images = {in.at, first, (enum form)(choices >> 1 & 3)};
    const struct file labels = {in.at + first, input_left(&in) - first, (enum form)(choices >> 3 & 3)};
    const data_split split = choices & 1 ? DATA_TEST : DATA_TRAIN;
    write_file(split == DATA_TRAIN ? "train-images-idx3-ubyte" : "t10k-images-idx3-ubyte", &images);
    write_file(split == DATA_TRAIN ? "train-labels-idx1-ubyte" : "t10k-labels-idx1-ubyte", &labels);

    char specification[SCRATCH_PATH];
    snprintf(specification, sizeof specification, "idx:%s", scratch_folder);
    watch_failures();
    data_set *set = data_open(specification, split);
    must_tell("data_open", !set);
    MUST(set || strstr(tensor_error(), "-ubyte"), "no file is named: %s", tensor_error());
    const bool known = images.form != RAW_GZIP && labels.form != RAW_GZIP &&
                       (images.form == COMPRESSED || !looks_zipped(&images)) &&
                       (labels.form == COMPRESSED || !looks_zipped(&labels));
    MUST(!known || !set == !acceptable(&images, &labels), "%s", set ? "a bad file was accepted" : tensor_error());
    if (set && known)
        check_contents(set, &images, &labels);
    if (set)
        check_consistent(set);
    data_free(set);
    return 0;
}
