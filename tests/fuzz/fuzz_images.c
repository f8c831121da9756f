/* fuzz_images.c - image folders: a file that the input describes, beside a good one of 3x2 pixels.
 *
 * Input: a byte of choices (bits 0 to 1: what the file is; bit 2: resize=5x4; bits 3 and 4: no option channels, or 1,
 * 3, 4; bit 5: the good file comes first), then 0, 1  the bytes of the file 2, 3  a PNG whose checksums are right, so
 * that the decoder behind them is reached: the header's 13 bytes, then chunks of a byte that names the kind, a byte
 * with the length, and as many bytes; those of the image's data are deflated here (2) or as they are (3). What is
 * accepted has one size, and as many pixels as it says. */
#define _GNU_SOURCE
#include "flexlab/data.h"
#include "flexlab/tensor.h"
#include "scratch.h"
#include <zlib.h>

enum { ROOM = 1 << 16 };

static uint8_t file[ROOM];
static size_t file_size;

static void put(const void *bytes, size_t count) {
    MUST(file_size + count <= ROOM, "a file of more than %d bytes", ROOM);
    memcpy(file + file_size, bytes, count);
    file_size += count;
}

static void put_number(uint32_t value) {
    put((const uint8_t[]){(uint8_t)(value >> 24), (uint8_t)(value >> 16), (uint8_t)(value >> 8), (uint8_t)value}, 4);
}

static void put_chunk(const char *kind, const void *bytes, size_t count) {
    put_number((uint32_t)count);
    const size_t from = file_size;
    put(kind, 4);
    if (count)
        put(bytes, count);
    put_number((uint32_t)crc32(0, file + from, (uInt)(file_size - from)));
}

static void put_deflated(const uint8_t *bytes, size_t count) {
    uint8_t packed[512];
    uLongf size = sizeof packed;
    MUST(compress2(packed, &size, bytes, (uLong)count, 6) == Z_OK, "compress2 fails");
    put_chunk("IDAT", packed, size);
}

static void make_png(struct input *in, bool deflated) {
    static const char *const kinds[] = {"IDAT", "IDAT", "IDAT", "PLTE", "tRNS", "IEND", "iCCP", "zTXt",
                                        "tEXt", "gAMA", "sBIT", "hIST", "eXIf", "IHDR", "acTL", "CRIT"};
    uint8_t header[13];
    for (int i = 0; i < 13; i++)
        header[i] = take_byte(in);
    put("\x89PNG\r\n\x1a\n", 8);
    put_chunk("IHDR", header, sizeof header);
    while (input_left(in) && file_size < ROOM / 2) {
        const char *kind = kinds[take_byte(in) % 16];
        size_t count = take_byte(in);
        if (count > input_left(in))
            count = input_left(in);
        if (deflated && !strcmp(kind, "IDAT"))
            put_deflated(in->at, count);
        else
            put_chunk(kind, in->at, count);
        in->at += count;
    }
    put_chunk("IEND", NULL, 0);
}

static void make_folder(const char *name) {
    MUST(!mkdir(scratch_path(name), 0700), "cannot make %s: %s", scratch_path(name), strerror(errno));
}

static bool built; /* with libpng */

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    static const uint8_t good[] = {0, 0, 0, 3, 0, 0, 0, 2, 8, 0, 0, 0, 0, 0, 8, 0, 1, 2, 3, 0, 4, 5, 6};
    scratch_make();
    make_folder("train");
    make_folder("train/a");
    make_folder("train/b");
    struct input in = input_of(good, sizeof good);
    file_size = 0;
    make_png(&in, true);
    scratch_write("train/a/1.png", file, file_size);
    scratch_write("train/b/1.png", file, file_size);
    tensor_set_threads(1);
    char specification[SCRATCH_PATH];
    snprintf(specification, sizeof specification, "images:%s", scratch_folder);
    data_set *set = data_open(specification, DATA_TRAIN);
    built = set != NULL;
    MUST(set || tensor_error_status() == TENSOR_E_UNSUPPORTED, "%s", tensor_error());
    data_free(set);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const options[] = {"", ",channels=1", ",channels=3", ",channels=4"};
    struct input in = input_of(data, size);
    const uint8_t choices = take_byte(&in);
    const bool resize = choices & 4, second = choices & 32;
    const char *channels = options[choices >> 3 & 3];
    if (input_left(&in) > ROOM / 2)
        return 0;
    file_size = 0;
    if (choices & 2)
        make_png(&in, !(choices & 1));
    else
        put(in.at, input_left(&in));
    const char *name = second ? "train/a/2.jpg" : "train/a/0.png";
    scratch_write(name, file, file_size);
    char specification[SCRATCH_PATH + 64];
    snprintf(specification, sizeof specification, "images:%s%s%s", scratch_folder, resize ? ",resize=5x4" : "",
             channels);
    watch_failures();
    data_set *set = data_open(specification, DATA_TRAIN);
    must_tell("data_open", !set);
    unlink(scratch_path(name));
    MUST(set || failure_status == TENSOR_E_DATA || failure_status == TENSOR_E_MEMORY ||
             (!built && failure_status == TENSOR_E_UNSUPPORTED),
         "%s: %s", tensor_status_name(failure_status), failure_text);
    MUST(set || strstr(failure_text, ".png") || strstr(failure_text, ".jpg"), "no file is named: %s", failure_text);
    if (set) {
        MUST(data_count(set) == 3 && data_classes(set) == 2 && data_label(set, 1) == 0 && data_label(set, 2) == 1,
             "%lld", (long long)data_count(set));
        MUST(!resize || (data_height(set) == 5 && data_width(set) == 4), "%dx%d", data_height(set), data_width(set));
        MUST(resize || (data_height(set) == 2 && data_width(set) == 3), "%dx%d", data_height(set), data_width(set));
        MUST(data_channels(set) == (*channels ? channels[10] - '0' : 1), "%d channels", data_channels(set));
        unsigned sum = 0;
        for (int i = 0; i < 3 * data_height(set) * data_width(set) * data_channels(set); i++)
            sum += data_image(set, 0)[i];
        MUST(sum < 1u << 30, "pixels");
        if (!resize && !*channels)
            for (int i = 0; i < 6; i++)
                MUST(data_image(set, 2)[i] == i + 1, "the good image is damaged");
    }
    data_free(set);
    return 0;
}
