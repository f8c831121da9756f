/* fuzz_cifar.c - the reader of CIFAR-10 and CIFAR-100. A file is valid or invalid by its size and its labels, and 30 MB
 * are no input for a fuzzer: the input describes how the files differ from good ones of zeros.
 *
 * Input: a byte (0xAA: the training split of five files; 0xA1 and 0xA0: the test split of CIFAR-100, fine and coarse
 * labels; otherwise the test split), a byte naming the file that differs, a byte with its size (0: correct, 1: none, 2:
 * it is a folder, otherwise a number of records and bytes more or less), then patches of four bytes: three for the
 * position, whose upper bit means "a label", one for the value. */
#define _GNU_SOURCE
#include "flexlab/data.h"
#include "flexlab/tensor.h"
#include "scratch.h"

enum { RECORDS = 10000, PLANE = 1024, PATCHES = 64 };
enum { TRAIN = 0xAA, FINE = 0xA1, COARSE = 0xA0 };

/* Label bytes of a record, bytes of a record and of a file, of the current set. */
static int label_bytes, record_bytes;
static int64_t file_bytes;

struct patch {
    int64_t place;
    uint8_t value;
};

static const char good[] = "good.bin", different[] = "different.bin";
static char good_path[SCRATCH_PATH], different_path[SCRATCH_PATH];
static int different_file;

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    scratch_make();
    snprintf(good_path, sizeof good_path, "%s", scratch_path(good));
    snprintf(different_path, sizeof different_path, "%s", scratch_path(different));
    scratch_write(good, NULL, 0);
    different_file = open(different_path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    MUST(different_file >= 0, "cannot make %s: %s", different_path, strerror(errno));
    fuzz_bar += 2 * 5 * RECORDS * (3 * PLANE + 1); /* the files are not a part of the input */
    tensor_set_threads(1);
    return 0;
}

static void name_file(int i, const char *target) {
    char name[32];
    if (i < 5)
        snprintf(name, sizeof name, "data_batch_%d.bin", i + 1);
    else
        snprintf(name, sizeof name, "%s", label_bytes == 1 ? "test_batch.bin" : "test.bin");
    unlink(scratch_path(name));
    MUST(!target || !symlink(target, scratch_path(name)), "cannot make %s: %s", scratch_path(name), strerror(errno));
}

/* Makes a file of zeros of that size and applies the patches; a position past the end is ignored. */
static void make_different(int64_t size, struct patch *patches, int *count) {
    MUST(!ftruncate(different_file, 0) && !ftruncate(different_file, size), "cannot resize: %s", strerror(errno));
    int kept = 0;
    for (int i = 0; i < *count; i++)
        if (patches[i].place < size) {
            MUST(pwrite(different_file, &patches[i].value, 1, patches[i].place) == 1, "%s", strerror(errno));
            patches[kept++] = patches[i];
        }
    *count = kept;
}

/* The number of classes of label byte k of a record. */
static int classes_of(int k) {
    return label_bytes == 1 ? 10 : k ? 100 : 20;
}

/* The value at a position; the last patch wins. */
static uint8_t value_at(const struct patch *patches, int count, int64_t place) {
    for (int i = count - 1; i >= 0; i--)
        if (patches[i].place == place)
            return patches[i].value;
    return 0;
}

static void check_set(const data_set *set, const struct patch *patches, int count, int64_t first_record, int files,
                      int label) {
    MUST(data_count(set) == (int64_t)files * RECORDS && data_height(set) == 32 && data_width(set) == 32 &&
             data_channels(set) == 3 && data_classes(set) == classes_of(label),
         "%lld images of %dx%dx%d, %d classes", (long long)data_count(set), data_height(set), data_width(set),
         data_channels(set), data_classes(set));
    for (int i = 0; i < count; i++) {
        const int64_t record = patches[i].place / record_bytes, at = patches[i].place % record_bytes - label_bytes;
        const uint8_t value = value_at(patches, count, patches[i].place);
        if (at < 0 && at + label_bytes != label)
            continue;
        if (at < 0)
            MUST(data_label(set, first_record + record) == value, "label %lld is %d, expected %d", (long long)record,
                 data_label(set, first_record + record), value);
        else
            MUST(data_image(set, first_record + record)[at % PLANE * 3 + at / PLANE] == value,
                 "image %lld, byte %lld: expected %d", (long long)record, (long long)at, value);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct input in = input_of(data, size);
    const uint8_t kind = take_byte(&in);
    const data_split split = kind == TRAIN ? DATA_TRAIN : DATA_TEST;
    label_bytes = kind == FINE || kind == COARSE ? 2 : 1;
    record_bytes = label_bytes + 3 * PLANE;
    file_bytes = (int64_t)RECORDS * record_bytes;
    const int label = kind == FINE;                                                           /* the byte that counts */
    MUST(!truncate(good_path, file_bytes), "cannot make %s: %s", good_path, strerror(errno)); /* zeros without room */
    const int which = split == DATA_TRAIN ? take_below(&in, 5) : (take_byte(&in), 5);
    const int8_t about = (int8_t)take_byte(&in);
    const int64_t wrong_size = file_bytes + (int64_t)(about / 4) * record_bytes + about % 4;
    struct patch patches[PATCHES];
    int count = 0;
    while (count < PATCHES && input_left(&in) >= 4) {
        const int64_t place = (int64_t)take_bytes(&in, 3);
        patches[count].place = place >> 23
                                   ? (place & 0x3fffff) % RECORDS * record_bytes + (place >> 22 & 1) % label_bytes
                                   : place * 4 % file_bytes;
        patches[count++].value = take_byte(&in);
    }
    const bool folder = about == 2, absent = about == 1, right_size = about == 0 || wrong_size == file_bytes;
    make_different(folder || absent || right_size ? file_bytes : wrong_size, patches, &count);
    for (int i = split == DATA_TRAIN ? 0 : 5; i < (split == DATA_TRAIN ? 5 : 6); i++)
        name_file(i, i != which ? good_path : absent ? NULL : folder ? scratch_folder : different_path);
    bool acceptable = right_size && !folder && !absent;
    for (int i = 0; i < count; i++)
        acceptable = acceptable &&
                     (patches[i].place % record_bytes >= label_bytes ||
                      value_at(patches, count, patches[i].place) < classes_of((int)(patches[i].place % record_bytes)));

    char specification[SCRATCH_PATH];
    snprintf(specification, sizeof specification, "%s:%s%s", label_bytes == 1 ? "cifar10" : "cifar100", scratch_folder,
             kind == COARSE ? ",labels=coarse" : "");
    watch_failures();
    data_set *set = data_open(specification, split);
    must_tell("data_open", !set);
    MUST(!set == !acceptable, "%s", set ? "a bad file was accepted" : tensor_error());
    MUST(set || strstr(tensor_error(), ".bin"), "no file is named: %s", tensor_error());
    if (set)
        check_set(set, patches, count, split == DATA_TRAIN ? (int64_t)which * RECORDS : 0, split == DATA_TRAIN ? 5 : 1,
                  label);
    data_free(set);
    return 0;
}
