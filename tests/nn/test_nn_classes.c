/* nn_train on IDX files whose test labels are not those of training: fewer classes are fine, others are named. */
#include "data_files.h"
#include "flexlab/nn.h"

enum { SIDE = 4, TRAIN = 40, TEST = 16 };

static void put_word(uint8_t *p, uint32_t word) {
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(word >> (24 - 8 * i));
}

/* Labels count up to classes - 1 and again; one of them, at `odd`, is classes + 1 (odd < 0: none). */
static void write_split(const char *prefix, int count, int classes, int odd) {
    static uint8_t images[16 + TRAIN * SIDE * SIDE], labels[8 + TRAIN];
    const uint32_t head[6] = {0x803, (uint32_t)count, SIDE, SIDE, 0x801, (uint32_t)count};
    for (int i = 0; i < 4; i++)
        put_word(images + 4 * i, head[i]);
    for (int i = 0; i < 2; i++)
        put_word(labels + 4 * i, head[4 + i]);
    for (int i = 0; i < count; i++) {
        labels[8 + i] = (uint8_t)(i == odd ? classes + 1 : i % classes);
        for (int k = 0; k < SIDE * SIDE; k++)
            images[16 + i * SIDE * SIDE + k] = (uint8_t)(labels[8 + i] * 20 + k * 3 + i);
    }
    char name[64];
    snprintf(name, sizeof name, "%s-images-idx3-ubyte", prefix);
    file_write(name, images, (size_t)(16 + count * SIDE * SIDE));
    snprintf(name, sizeof name, "%s-labels-idx1-ubyte", prefix);
    file_write(name, labels, (size_t)(8 + count));
}

/* The status of training with `test_classes` classes in the test split. */
static tensor_status train_with(int classes, int test_classes, int odd) {
    write_split("train", TRAIN, classes, -1);
    write_split("t10k", TEST, test_classes, odd);
    char specification[PATH_MAX];
    snprintf(specification, sizeof specification, "idx:%s", folder);
    data_set *train = data_open(specification, DATA_TRAIN), *test = data_open(specification, DATA_TEST);
    CHECK(train && test && data_classes(train) == classes, "%s", tensor_error());
    nn_train_config config = {.network = {.variant = "flex16+5", .batch = 8, .seed = 1, .momentum = 0.9f},
                              .model = "mlp2",
                              .epochs = 2,
                              .rate = 0.01,
                              .schedule = "linear",
                              .average_last = 2};
    nn_train_result result;
    tensor_status status = nn_train(&result, &config, train, test, NULL);
    CHECK(status || result.predicted_count == TEST, "%lld predictions", (long long)result.predicted_count);
    nn_train_result_clear(&result);
    data_free(train);
    data_free(test);
    return status;
}

int main(void) {
    if (!folder_make())
        return check_skip("no temporary folder");
    CHECK(!train_with(10, 10, -1), "%s", tensor_error());
    CHECK(!train_with(10, 8, -1), "fewer classes in the test set: %s", tensor_error());
    CHECK(!train_with(10, 1, -1), "one class in the test set: %s", tensor_error());
    CHECK(train_with(7, 7, 11) == TENSOR_E_DATA && strstr(tensor_error(), "test image 11 has label 8") &&
              strstr(tensor_error(), "0 to 6"),
          "%s", tensor_error());
    static const char *const names[] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte",
                                        "t10k-labels-idx1-ubyte"};
    for (int i = 0; i < 4; i++)
        file_remove(names[i]);
    rmdir(folder);
    return check_summary();
}
