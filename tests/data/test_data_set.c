/* Opening by specification, access, limits and moments. */
#include "data_files.h"
#include <math.h>

static void expect_bad(const char *specification, const char *word) {
    seen_failures = 0;
    tensor_set_error_hook(see_failure, NULL);
    data_set *set = data_open(specification, DATA_TRAIN);
    tensor_set_error_hook(NULL, NULL);
    CHECK(!set && seen_failures == 1 && seen_status == TENSOR_E_ARGUMENT && strstr(tensor_error(), word),
          "'%s': set %d, %d failures, %s: '%s' does not name '%s'", specification ? specification : "(null)",
          set != NULL, seen_failures, tensor_status_name(seen_status), tensor_error(), word);
    data_free(set);
}

static bool open_synthetic(void) {
    data_set *set = data_open("synthetic:train=30", DATA_TRAIN);
    data_free(set);
    return set != NULL;
}

static void check_specifications(void) {
    expect_bad(NULL, "NULL");
    expect_bad("mnist", "unknown data set 'mnist': expected synthetic, cifar10:DIR, cifar100:DIR, ");
    expect_bad("", "unknown data set ''");
    expect_bad("cifar1000:/tmp", "unknown data set 'cifar1000:/tmp'");
    expect_bad("cifar100", "no name is given, expected cifar100:DIR");
    expect_bad("cifar100:", "no name is given, expected cifar100:DIR");
    expect_bad("cifar100:/tmp,labels=both", "option 'labels=both', expected labels=fine or labels=coarse");
    expect_bad("cifar100:/tmp,label=fine", "option 'label=fine'");
    expect_bad("cifar100:/tmp,labels=fine,labels=fine", "given twice");
    expect_bad("cifar100:/tmp,/tmp", "one path too many");
    expect_bad("cifar10", "cifar10:DIR");
    expect_bad("cifar10:", "cifar10:DIR");
    expect_bad("idx", "idx:DIR");
    expect_bad("idx:", "idx:DIR");
    expect_bad("synthetic:", "option ''");
    expect_bad("synthetic:train", "option 'train'");
    expect_bad("synthetic:train=", "option 'train='");
    expect_bad("synthetic:train=0", "from 1 to 10000000");
    expect_bad("synthetic:train=-1", "option 'train=-1'");
    expect_bad("synthetic:train= 1", "option 'train= 1'");
    expect_bad("synthetic:train=1e3", "option 'train=1e3'");
    expect_bad("synthetic:train=10000001", "from 1 to 10000000");
    expect_bad("synthetic:test=4,train=99999999999999999999", "option 'train=99999999999999999999'");
    expect_bad("synthetic:seed=18446744073709551616", "18446744073709551615");
    expect_bad("synthetic:train=5,", "option ''");
    expect_bad("synthetic:train=5,train=6", "train is given twice");
    expect_bad("synthetic:trains=5", "option 'trains=5'");
    expect_bad("synthetic:tra=5", "option 'tra=5'");
    expect_bad("synthetic:=5", "option '=5'");
    expect_bad("synthetic:size=5", "option 'size=5', expected train=N, test=N or seed=S");
    data_set *set = data_open("synthetic:seed=18446744073709551615,test=3,train=7", DATA_TEST);
    CHECK(data_count(set) == 3, "%s", tensor_error());
    data_free(set);
}

static void check_access(void) {
    data_set *set = data_open("synthetic:train=25", DATA_TRAIN);
    CHECK(data_count(set) == 25, "%s", tensor_error());
    CHECK(!data_image(set, -1) && !data_image(set, 25) && data_image(set, 24) == data_image(set, 0) + 24 * 3072,
          "images out of range or not in order");
    CHECK(data_label(set, -1) == -1 && data_label(set, 25) == -1 && data_label(set, 24) >= 0, "labels out of range");
    CHECK(data_limit(set, 0) == TENSOR_E_ARGUMENT && strstr(tensor_error(), "0 samples, expected 1 to 25"), "%s",
          tensor_error());
    CHECK(data_limit(set, 26) == TENSOR_E_ARGUMENT && data_count(set) == 25, "%s", tensor_error());
    CHECK(data_limit(set, 7) == TENSOR_OK && data_count(set) == 7 && !data_image(set, 7), "limit to 7");
    CHECK(data_limit(set, 8) == TENSOR_E_ARGUMENT, "a limit grew");
    data_free(set);

    CHECK(data_limit(NULL, 1) == TENSOR_E_ARGUMENT && !data_image(NULL, 0) && data_label(NULL, 0) == -1 &&
              data_count(NULL) == 0 && data_classes(NULL) == 0,
          "NULL is no set");
    data_free(NULL);
}

/* Moments of a set of known sums: pixels k = 0 ... 255 of an IDX file, whose mean is 127.5 and variance 5461.25. */
static void check_moments(void) {
    uint8_t images[16 + 256] = {0, 0, 8, 3, 0, 0, 0, 4, 0, 0, 0, 8, 0, 0, 0, 8},
                        labels[8 + 4] = {0, 0, 8, 1, 0, 0, 0, 4};
    for (int i = 0; i < 256; i++)
        images[16 + i] = (uint8_t)(i * 77);
    file_write("train-images-idx3-ubyte", images, sizeof images);
    file_write("train-labels-idx1-ubyte", labels, sizeof labels);
    char specification[PATH_MAX];
    snprintf(specification, sizeof specification, "idx:%s", folder);
    data_set *set = data_open(specification, DATA_TRAIN);
    double mean = 0, deviation = 0;
    CHECK(data_channel_moments(&mean, &deviation, set) == TENSOR_OK, "%s", tensor_error());
    /* 256 * sum of squares - sum^2 = 256^2 * 5461.25 is an integer below 2^53, so every step is rounded once. */
    CHECK(mean == 0.5 && deviation == sqrt(5461.25 * 65536) / (255.0 * 256), "mean %a, deviation %a", mean, deviation);
    CHECK(data_channel_moments(NULL, &deviation, set) == TENSOR_E_ARGUMENT, "NULL mean");
    CHECK(data_channel_moments(&mean, &deviation, NULL) == TENSOR_E_ARGUMENT, "NULL set");
    data_free(set);
    file_remove("train-images-idx3-ubyte");
    file_remove("train-labels-idx1-ubyte");

    /* Three channels: against sums of this test, for a count that the chunks do not divide. */
    set = data_open("synthetic:train=131", DATA_TRAIN);
    double three[2][3];
    CHECK(data_channel_moments(three[0], three[1], set) == TENSOR_OK, "%s", tensor_error());
    for (int c = 0; c < 3; c++) {
        int64_t sum = 0, square = 0, n = 131 * 1024;
        for (int64_t i = 0; i < n; i++) {
            int64_t v = data_image(set, 0)[3 * i + c];
            sum += v;
            square += v * v;
        }
        CHECK(three[0][c] == (double)sum / (255.0 * (double)n) &&
                  three[1][c] == sqrt((double)(n * square - sum * sum)) / (255.0 * (double)n),
              "channel %d: %a %a", c, three[0][c], three[1][c]);
    }
    data_free(set);
}

static void refused_arrays(tensor_status want, const char *part, const data_set *got) {
    CHECK(!got && tensor_error_status() == want && strstr(tensor_error(), part), "'%s', expected '%s'", tensor_error(),
          part);
}

/* A set from arrays has a copy of their contents. */
static void check_arrays(void) {
    enum { N = 7, H = 3, W = 2, C = 2 };
    uint8_t images[N * H * W * C], kept[sizeof images];
    int32_t labels[N];
    for (size_t i = 0; i < sizeof images; i++)
        images[i] = kept[i] = (uint8_t)(i * 37 + 11);
    for (int i = 0; i < N; i++)
        labels[i] = i % 3;
    data_set *set = data_new(images, labels, N, H, W, C, 4);
    CHECK(set && data_count(set) == N && data_height(set) == H && data_width(set) == W && data_channels(set) == C &&
              data_classes(set) == 4,
          "%s", tensor_error());
    memset(images, 0, sizeof images);
    for (int i = 0; i < N; i++) {
        CHECK(data_label(set, i) == i % 3, "label %d is %d", i, data_label(set, i));
        CHECK(!memcmp(data_image(set, i), kept + i * H * W * C, H * W * C), "image %d", i);
    }
    data_free(set);
    refused_arrays(TENSOR_E_ARGUMENT, "images is NULL", data_new(NULL, labels, N, H, W, C, 4));
    refused_arrays(TENSOR_E_ARGUMENT, "labels is NULL", data_new(images, NULL, N, H, W, C, 4));
    refused_arrays(TENSOR_E_SHAPE, "7 images of 3x2x5", data_new(images, labels, N, H, W, 5, 4));
    refused_arrays(TENSOR_E_SHAPE, "0 images", data_new(images, labels, 0, H, W, C, 4));
    refused_arrays(TENSOR_E_ARGUMENT, "65537 classes", data_new(images, labels, N, H, W, C, 65537));
    refused_arrays(TENSOR_E_ARGUMENT, "1 classes", data_new(images, labels, N, H, W, C, 1));
    refused_arrays(TENSOR_E_DATA, "label 2 is 2, expected 0 to 1", data_new(images, labels, N, H, W, C, 2));
    labels[0] = 65535, labels[1] = 256;
    set = data_new(images, labels, N, H, W, C, 65536);
    CHECK(data_label(set, 0) == 65535 && data_label(set, 1) == 256 && data_label(set, 2) == 2, "labels %d, %d, %d",
          data_label(set, 0), data_label(set, 1), data_label(set, 2));
    data_free(set);
}

int main(void) {
    if (!folder_make())
        return check_skip("no temporary folder");
    check_specifications();
    check_access();
    check_moments();
    check_arrays();
    fail_each_allocation("synthetic", open_synthetic);
    rmdir(folder);
    return check_summary();
}
