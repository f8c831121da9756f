/* The CIFAR-100 reader on files of this test's own and on broken ones. */
#include "data_files.h"

enum { RECORD = 3074, TRAIN = 50000, TEST = 10000 };
static const char *const names[2] = {"train.bin", "test.bin"};
static const int records[2] = {TRAIN, TEST};

/* A value for every place that a wrong order of planes, rows, records or files would show. */
static uint8_t expected(int file, int record, int y, int x, int c) {
    return (uint8_t)(file * 101 + record * 37 + record / 256 * 3 + y * 5 + x * 3 + c * 71);
}
static int coarse_label(int file, int record) {
    return (record / 3 + file) % 20;
}
static int fine_label(int file, int record) {
    return (record * 7 + file) % 100;
}

static void write_files(void) {
    uint8_t *bytes = malloc((size_t)TRAIN * RECORD);
    for (int f = 0; f < 2; f++) {
        uint8_t *p = bytes;
        for (int r = 0; r < records[f]; r++) {
            *p++ = (uint8_t)coarse_label(f, r);
            *p++ = (uint8_t)fine_label(f, r);
            for (int c = 0; c < 3; c++)
                for (int y = 0; y < 32; y++)
                    for (int x = 0; x < 32; x++)
                        *p++ = expected(f, r, y, x, c);
        }
        file_write(names[f], bytes, (size_t)records[f] * RECORD);
    }
    free(bytes);
}

static void check_set(const char *option, data_split split, int classes) {
    char specification[PATH_MAX];
    snprintf(specification, sizeof specification, "cifar100:%s%s", folder, option);
    data_set *set = data_open(specification, split);
    CHECK(set, "%s: %s", specification, tensor_error());
    if (!set)
        return;
    CHECK(data_count(set) == records[split] && data_height(set) == 32 && data_width(set) == 32 &&
              data_channels(set) == 3 && data_classes(set) == classes,
          "%lld images of %dx%dx%d in %d classes", (long long)data_count(set), data_height(set), data_width(set),
          data_channels(set), data_classes(set));
    for (int i = 0; i < records[split]; i += i % 10000 == 9999 ? 1 : 33) {
        const uint8_t *image = data_image(set, i);
        int wrong = 0;
        for (int k = 0; k < 3072; k++)
            wrong += image[k] != expected((int)split, i, k / 96, k / 3 % 32, k % 3);
        const int label = classes == 100 ? fine_label((int)split, i) : coarse_label((int)split, i);
        CHECK(wrong == 0 && data_label(set, i) == label, "image %d: %d wrong bytes, label %d, expected %d", i, wrong,
              data_label(set, i), label);
    }
    data_free(set);
}

static bool open_test(void) {
    char specification[PATH_MAX];
    snprintf(specification, sizeof specification, "cifar100:%s,labels=coarse", folder);
    data_set *set = data_open(specification, DATA_TEST);
    data_free(set);
    return set != NULL;
}

static void check_failures_of_files(void) {
    const uint8_t twenty = 20, hundred = 100, good = 0;
    file_patch("train.bin", 43210L * RECORD, &twenty, 1);
    EXPECT_FAILURE("cifar100", DATA_TRAIN, TENSOR_E_DATA, "train.bin", "record 43210", "coarse label 20", "0 to 19");
    file_patch("train.bin", 43210L * RECORD, &good, 1);
    file_patch("train.bin", 10000L * RECORD + 1, &hundred, 1);
    EXPECT_FAILURE("cifar100", DATA_TRAIN, TENSOR_E_DATA, "train.bin", "record 10000", "fine label 100", "0 to 99");
    file_resize("train.bin", 49999L * RECORD);
    EXPECT_FAILURE("cifar100", DATA_TRAIN, TENSOR_E_DATA, "train.bin", "49999 records", "expected 50000", "153700000");
    file_resize("test.bin", TEST * RECORD - 1);
    EXPECT_FAILURE("cifar100", DATA_TEST, TENSOR_E_DATA, "test.bin", "30739999", "3074-byte", "30740000");
    file_resize("test.bin", 30730000); /* a file of CIFAR-10 */
    EXPECT_FAILURE("cifar100", DATA_TEST, TENSOR_E_DATA, "test.bin", "30730000", "3074-byte");
    file_resize("test.bin", 0);
    EXPECT_FAILURE("cifar100", DATA_TEST, TENSOR_E_DATA, "test.bin", "0 records", "expected 10000");
    file_remove("test.bin");
    EXPECT_FAILURE("cifar100", DATA_TEST, TENSOR_E_IO, "test.bin", "No such file", "train.bin and test.bin");
    expect_regular_file("cifar100", DATA_TEST, "test.bin");
    EXPECT_FAILURE("cifar100:/nowhere", DATA_TEST, TENSOR_E_IO, "/nowhere", "test.bin", "No such file");
}

int main(void) {
    if (!folder_make())
        return check_skip("no temporary folder");
    write_files();
    check_set("", DATA_TRAIN, 100);
    check_set(",labels=fine", DATA_TEST, 100);
    check_set(",labels=coarse", DATA_TRAIN, 20);
    check_set(",labels=coarse", DATA_TEST, 20);
    fail_each_allocation("cifar100", open_test);
    check_failures_of_files();
    file_remove("train.bin");
    rmdir(folder);
    return check_summary();
}
