/* fuzz_npy.c - sets in arrays of NumPy: any bytes as the file of images and that of labels, or as members of an archive
 * that is made here and then damaged, or as an archive.
 *
 * Input: a byte of choices (bit 0: archive; bit 1: the bytes are the archive; bits 2 and 3: images and labels are
 * deflated; bit 4: classes=7), a byte with the number of patches of three bytes (place, and value that is added) on an
 * archive made here, two bytes with the length of the first array, then patches and the bytes of both. What is read
 * must be what the bytes say, whatever they were. */
#define _GNU_SOURCE
#include "flexlab/data.h"
#include "flexlab/tensor.h"
#include "scratch.h"
#include <zlib.h>

enum { ROOM = 1 << 16, CLASSES = 7 };

struct bytes {
    const uint8_t *at;
    size_t size;
};

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    scratch_make();
    tensor_set_threads(1);
    return 0;
}

/* --- an archive ----------------------------------------------------------------------------------------------------
 */

struct archive {
    uint8_t body[ROOM], directory[256];
    size_t size, directory_size;
};

static void put(uint8_t *out, size_t *at, uint64_t value, int count) {
    for (int i = 0; i < count; i++)
        out[(*at)++] = i < 8 ? (uint8_t)(value >> 8 * i) : 0;
}

static void add_member(struct archive *a, const char *name, struct bytes member, bool deflated) {
    const size_t local = a->size, length = strlen(name);
    const uint32_t crc = (uint32_t)crc32(0, member.at, (uInt)member.size);
    uint8_t *packed = a->body + local + 30 + length;
    size_t packed_size = member.size;
    if (deflated) {
        z_stream z = {.next_in = (Bytef *)(uintptr_t)member.at,
                      .avail_in = (uInt)member.size,
                      .next_out = packed,
                      .avail_out = (uInt)(ROOM - (local + 30 + length))};
        MUST(deflateInit2(&z, 1, Z_DEFLATED, -15, 1, Z_DEFAULT_STRATEGY) == Z_OK, "deflateInit2 fails");
        MUST(deflate(&z, Z_FINISH) == Z_STREAM_END, "%zu bytes do not fit", member.size);
        deflateEnd(&z);
        packed_size = z.total_out;
    } else if (member.size) {
        memcpy(packed, member.at, member.size);
    }
    for (int central = 0; central < 2; central++) {
        uint8_t *out = central ? a->directory : a->body;
        size_t *at = central ? &a->directory_size : &a->size;
        put(out, at, central ? 0x02014B50 : 0x04034B50, 4);
        put(out, at, 20, central ? 4 : 2);
        put(out, at, 0, 2);
        put(out, at, deflated ? 8 : 0, 2);
        put(out, at, 0, 4);
        put(out, at, crc, 4);
        put(out, at, packed_size, 4);
        put(out, at, member.size, 4);
        put(out, at, length, 2);
        put(out, at, 0, central ? 12 : 2); /* of the directory: extra, comment, disk, two kinds of attributes */
        if (central)
            put(out, at, local, 4);
        memcpy(out + *at, name, length);
        *at += length;
    }
    a->size += packed_size;
}

static void end_archive(struct archive *a) {
    const size_t directory = a->size;
    memcpy(a->body + a->size, a->directory, a->directory_size);
    a->size += a->directory_size;
    put(a->body, &a->size, 0x06054B50, 4);
    put(a->body, &a->size, 0, 4);
    put(a->body, &a->size, 0x00020002, 4);
    put(a->body, &a->size, a->directory_size, 4);
    put(a->body, &a->size, directory, 4);
    put(a->body, &a->size, 0, 2);
}

/* --- what was read -------------------------------------------------------------------------------------------------
 */

static bool holds(const uint8_t *text, size_t size, const char *word) {
    const size_t length = strlen(word);
    for (size_t i = 0; i + length <= size; i++)
        if (!memcmp(text + i, word, length))
            return true;
    return false;
}

/* The last bytes of the file are the pixels, in the order that the header declares. */
static void check_pixels(const data_set *set, struct bytes file) {
    const int64_t n = data_count(set), h = data_height(set), w = data_width(set), c = data_channels(set);
    const size_t size = (size_t)(n * h * w * c);
    MUST(file.size > size, "%zu bytes of pixels from a file of %zu", size, file.size);
    const uint8_t *stored = file.at + file.size - size;
    const bool fortran = holds(file.at, file.size - size, "True"); /* the header has no other position for it */
    int wrong[2] = {0, 0};
    for (int64_t i = 0; i < n; i++)
        for (int64_t y = 0; y < h; y++)
            for (int64_t x = 0; x < w; x++)
                for (int64_t k = 0; k < c; k++) {
                    const uint8_t pixel = data_image(set, i)[(y * w + x) * c + k];
                    wrong[0] += pixel != stored[((i * h + y) * w + x) * c + k];
                    wrong[1] += pixel != stored[i + n * (y + h * (x + w * k))];
                }
    MUST(!wrong[fortran], "%d wrong pixels", wrong[fortran]);
}

static void check_labels(const data_set *set, struct bytes file, bool given) {
    const int64_t n = data_count(set);
    int classes = given ? CLASSES : 2;
    bool fits = false;
    for (int64_t i = 0; i < n; i++) {
        MUST(data_label(set, i) >= 0 && data_label(set, i) < data_classes(set), "label %d", data_label(set, i));
        if (data_label(set, i) >= classes)
            classes = data_label(set, i) + 1;
    }
    MUST(classes == data_classes(set), "%d classes, expected %d", data_classes(set), classes);
    for (size_t bytes = 1; bytes <= 8; bytes *= 2) /* of some width and order, the last bytes are the labels */
        for (int big = 0; big < 2 && file.size > bytes * (size_t)n; big++) {
            const uint8_t *stored = file.at + file.size - bytes * (size_t)n;
            bool all = true;
            for (int64_t i = 0; i < n; i++) {
                uint64_t value = 0;
                for (size_t k = 0; k < bytes; k++)
                    value |= (uint64_t)stored[(size_t)i * bytes + k] << 8 * (big ? bytes - 1 - k : k);
                all = all && value == (uint64_t)data_label(set, i);
            }
            fits = fits || all;
        }
    MUST(fits, "the labels are not those of the file");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct input in = input_of(data, size);
    const uint8_t choices = take_byte(&in);
    const int patches = take_below(&in, 16);
    size_t first = (size_t)take_bytes(&in, 2);
    const struct input patch = in;
    for (int i = 0; i < 3 * patches; i++)
        take_byte(&in);
    if (first > input_left(&in))
        first = input_left(&in);
    const struct bytes images = {in.at, first}, labels = {in.at + first, input_left(&in) - first};
    const bool zipped = choices & 1, raw = choices & 2, given = choices & 16;
    if (input_left(&in) > ROOM / 4)
        return 0; /* the archive would not fit */
    if (zipped && raw) {
        scratch_write("a.npz", in.at, input_left(&in));
    } else if (zipped) {
        static struct archive a;
        a.size = a.directory_size = 0;
        add_member(&a, "x_train.npy", images, choices & 4);
        add_member(&a, "y_train.npy", labels, choices & 8);
        end_archive(&a);
        struct input from = patch;
        for (int i = 0; i < patches; i++) {
            const size_t place = (size_t)take_bytes(&from, 2) % a.size; /* from the end, where the directory lies */
            a.body[a.size - 1 - place] += take_byte(&from);
        }
        scratch_write("a.npz", a.body, a.size);
    } else {
        scratch_write("images.npy", images.at, images.size);
        scratch_write("labels.npy", labels.at, labels.size);
    }
    char specification[3 * SCRATCH_PATH];
    const char *option = given ? ",classes=7" : "";
    if (zipped)
        snprintf(specification, sizeof specification, "npz:%s/a.npz%s", scratch_folder, option);
    else
        snprintf(specification, sizeof specification, "npy:%s/images.npy,%s/labels.npy%s", scratch_folder,
                 scratch_folder, option);
    watch_failures();
    data_set *set = data_open(specification, DATA_TRAIN);
    must_tell("data_open", !set);
    MUST(set || failure_status == TENSOR_E_DATA || failure_status == TENSOR_E_MEMORY, "%s: %s",
         tensor_status_name(failure_status), failure_text);
    MUST(set || strstr(failure_text, ".np"), "no file is named: %s", failure_text);
    if (set) {
        MUST(data_count(set) >= 1 && data_height(set) >= 1 && data_width(set) >= 1 && data_channels(set) >= 1 &&
                 data_channels(set) <= 4,
             "an empty set");
        uint64_t sum = 0;
        for (int64_t i = 0; i < data_count(set) * data_height(set) * data_width(set) * data_channels(set); i++)
            sum += data_image(set, 0)[i];
        MUST(sum <= UINT64_MAX / 2, "pixels");
        if (!(zipped && (raw || patches))) {
            check_pixels(set, images);
            check_labels(set, labels, given);
        }
    }
    data_free(set);
    return 0;
}
