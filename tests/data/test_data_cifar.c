/* The CIFAR-10 reader on files of this test's own, on broken ones, and on the real set where FLEXLAB_DATA names it. */
#include "data_files.h"

enum { RECORD = 3073, RECORDS = 10000, BYTES = RECORD * RECORDS };
#define NAMES_COUNT 6
static const char *const names[NAMES_COUNT] = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                               "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"};

/* A value for every place that a wrong order of planes, rows or files would show. */
static uint8_t expected(int file, int record, int y, int x, int c) {
    return (uint8_t)(file * 101 + record * 37 + y * 5 + x * 3 + c * 71);
}

static void write_batches(void) {
    uint8_t *bytes = malloc(BYTES);
    for (int f = 0; f < NAMES_COUNT; f++) {
        uint8_t *p = bytes;
        for (int r = 0; r < RECORDS; r++) {
            *p++ = (uint8_t)((r + f) % 10);
            for (int c = 0; c < 3; c++)
                for (int y = 0; y < 32; y++)
                    for (int x = 0; x < 32; x++)
                        *p++ = expected(f, r, y, x, c);
        }
        file_write(names[f], bytes, BYTES);
    }
    free(bytes);
}

static void check_set(const char *specification, data_split split) {
    data_set *set = data_open(specification, split);
    CHECK(set, "%s: %s", specification, tensor_error());
    if (!set)
        return;
    int files = split == DATA_TRAIN ? 5 : 1;
    CHECK(data_count(set) == files * RECORDS && data_height(set) == 32 && data_width(set) == 32 &&
              data_channels(set) == 3 && data_classes(set) == 10,
          "%lld images of %dx%dx%d in %d classes", (long long)data_count(set), data_height(set), data_width(set),
          data_channels(set), data_classes(set));
    for (int64_t i = 0; i < data_count(set); i += i % RECORDS == RECORDS - 1 ? 1 : 33) {
        int f = split == DATA_TRAIN ? (int)(i / RECORDS) : 5, r = (int)(i % RECORDS);
        const uint8_t *image = data_image(set, i);
        int wrong = 0;
        for (int k = 0; k < 3072; k++)
            wrong += image[k] != expected(f, r, k / 96, k / 3 % 32, k % 3);
        CHECK(wrong == 0 && data_label(set, i) == (r + f) % 10, "image %lld: %d wrong bytes, label %d", (long long)i,
              wrong, data_label(set, i));
    }
    data_free(set);
}

static bool open_test(void) {
    char specification[PATH_MAX];
    snprintf(specification, sizeof specification, "cifar10:%s", folder);
    data_set *set = data_open(specification, DATA_TEST);
    data_free(set);
    return set != NULL;
}

static void check_failures_of_files(void) {
    const uint8_t ten = 10;
    file_patch("data_batch_3.bin", 1234L * RECORD, &ten, 1);
    EXPECT_FAILURE("cifar10", DATA_TRAIN, TENSOR_E_DATA, "data_batch_3.bin", "record 1234", "label 10", "0 to 9");
    file_resize("data_batch_2.bin", BYTES - 1);
    EXPECT_FAILURE("cifar10", DATA_TRAIN, TENSOR_E_DATA, "data_batch_2.bin", "30729999", "3073-byte", "30730000");
    file_resize("data_batch_2.bin", BYTES + 1);
    EXPECT_FAILURE("cifar10", DATA_TRAIN, TENSOR_E_DATA, "data_batch_2.bin", "30730001", "30730000");
    file_resize("data_batch_2.bin", BYTES - RECORD);
    EXPECT_FAILURE("cifar10", DATA_TRAIN, TENSOR_E_DATA, "data_batch_2.bin", "9999 records", "10000");
    file_resize("data_batch_2.bin", 0);
    EXPECT_FAILURE("cifar10", DATA_TRAIN, TENSOR_E_DATA, "data_batch_2.bin", "0 records", "10000");
    file_remove("data_batch_2.bin");
    EXPECT_FAILURE("cifar10", DATA_TRAIN, TENSOR_E_IO, "data_batch_2.bin", "No such file");
    CHECK(mkdir(folder_path("data_batch_2.bin"), 0700) == 0, "cannot make a folder");
    EXPECT_FAILURE("cifar10", DATA_TRAIN, TENSOR_E_IO, "data_batch_2.bin", "not a regular file");
    rmdir(folder_path("data_batch_2.bin"));
    expect_regular_file("cifar10", DATA_TRAIN, "data_batch_2.bin");
    rmdir(folder_path("data_batch_2.bin"));
    EXPECT_FAILURE("cifar10", (data_split)2, TENSOR_E_ARGUMENT, "split 2");
    EXPECT_FAILURE("cifar10:/nowhere", DATA_TEST, TENSOR_E_IO, "/nowhere", "test_batch.bin", "No such file");
}

static void check_real(const char *where) {
    char specification[PATH_MAX];
    snprintf(specification, sizeof specification, "cifar10:%s", where);
    int count[10] = {0};
    for (int split = 0; split < 2; split++) {
        data_set *set = data_open(specification, (data_split)split);
        CHECK(set, "%s: %s", specification, tensor_error());
        for (int64_t i = 0; i < data_count(set); i++)
            count[data_label(set, i)]++;
        double mean[3], deviation[3];
        if (set && !data_channel_moments(mean, deviation, set))
            printf("%s split %d: mean %.4f %.4f %.4f, deviation %.4f %.4f %.4f\n", where, split, mean[0], mean[1],
                   mean[2], deviation[0], deviation[1], deviation[2]);
        data_free(set);
    }
    for (int c = 0; c < 10; c++)
        CHECK(count[c] == 6000, "class %d has %d images, expected 6000", c, count[c]);
}

int main(void) {
    if (!folder_make())
        return check_skip("no temporary folder");
    char specification[PATH_MAX];
    snprintf(specification, sizeof specification, "cifar10:%s", folder);
    write_batches();
    check_set(specification, DATA_TRAIN);
    check_set(specification, DATA_TEST);
    fail_each_allocation("cifar10", open_test);
    check_failures_of_files();
    for (int f = 0; f < NAMES_COUNT; f++)
        file_remove(names[f]);
    rmdir(folder);

    const char *where = getenv("FLEXLAB_DATA");
    char batch[PATH_MAX];
    snprintf(batch, sizeof batch, "%s/data_batch_1.bin", where ? where : "");
    if (where && access(batch, R_OK) == 0)
        check_real(where);
    else
        printf("the real CIFAR-10 is left out: FLEXLAB_DATA names no folder with data_batch_1.bin\n");
    return check_summary();
}
