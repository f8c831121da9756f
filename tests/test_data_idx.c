/* The IDX reader: plain and gzipped files, and each way in which they can be wrong. */
#include "data_files.h"

enum { COUNT = 60, HEIGHT = 5, WIDTH = 7, IMAGE = HEIGHT * WIDTH };

static const char *const train_images = "train-images-idx3-ubyte", *const train_labels = "train-labels-idx1-ubyte";
static uint8_t images[16 + COUNT * IMAGE + 1], labels[8 + COUNT + 1]; /* one byte more than belongs there */
static const size_t images_size = 16 + COUNT * IMAGE, labels_size = 8 + COUNT;

static void put_word(uint8_t *p, uint32_t word) {
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(word >> (24 - 8 * i));
}

static void make_files(void) {
    const uint32_t head[6] = {0x803, COUNT, HEIGHT, WIDTH, 0x801, COUNT};
    for (int i = 0; i < 4; i++)
        put_word(images + 4 * i, head[i]);
    for (int i = 0; i < 2; i++)
        put_word(labels + 4 * i, head[4 + i]);
    for (int i = 0; i < COUNT * IMAGE; i++)
        images[16 + i] = (uint8_t)(i * 7 + i / 256);
    for (int i = 0; i < COUNT; i++)
        labels[8 + i] = (uint8_t)(i % 8);
}

static void remove_files(void) {
    const char *const names[] = {"train-images-idx3-ubyte",    "train-labels-idx1-ubyte",
                                 "t10k-images-idx3-ubyte",     "t10k-labels-idx1-ubyte",
                                 "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz",
                                 "t10k-images-idx3-ubyte.gz",  "t10k-labels-idx1-ubyte.gz"};
    for (int i = 0; i < 8; i++)
        file_remove(names[i]);
}

static void write_plain(void) {
    make_files();
    file_write(train_images, images, images_size);
    file_write(train_labels, labels, labels_size);
}

static void check_good(data_split split) {
    char specification[PATH_MAX];
    snprintf(specification, sizeof specification, "idx:%s", folder);
    data_set *set = data_open(specification, split);
    CHECK(set, "%s", tensor_error());
    CHECK(data_count(set) == COUNT && data_height(set) == HEIGHT && data_width(set) == WIDTH &&
              data_channels(set) == 1 && data_classes(set) == 8,
          "%lld images of %dx%dx%d in %d classes", (long long)data_count(set), data_height(set), data_width(set),
          data_channels(set), data_classes(set));
    for (int i = 0; set && i < COUNT; i++)
        CHECK(!memcmp(data_image(set, i), images + 16 + i * IMAGE, IMAGE) && data_label(set, i) == i % 8, "image %d",
              i);
    data_free(set);
}

static bool open_train(void) {
    char specification[PATH_MAX];
    snprintf(specification, sizeof specification, "idx:%s", folder);
    data_set *set = data_open(specification, DATA_TRAIN);
    data_free(set);
    return set != NULL;
}

static void check_plain_failures(void) {
    EXPECT_FAILURE("idx", DATA_TRAIN, TENSOR_E_IO, "train-images-idx3-ubyte", ".gz", "No such file");
    write_plain();
    file_remove(train_labels);
    EXPECT_FAILURE("idx", DATA_TRAIN, TENSOR_E_IO, "train-labels-idx1-ubyte", "No such file");
    CHECK(mkdir(folder_path(train_labels), 0700) == 0, "cannot make a folder");
    EXPECT_FAILURE("idx", DATA_TRAIN, TENSOR_E_IO, "train-labels-idx1-ubyte", "not a regular file");
    rmdir(folder_path(train_labels));

    write_plain();
    put_word(images, 0x801);
    file_write(train_images, images, images_size);
    EXPECT_FAILURE("idx", DATA_TRAIN, TENSOR_E_DATA, train_images, "0x00000801", "0x00000803");

    write_plain();
    put_word(images, 0x00000D03); /* floats in three dimensions */
    file_write(train_images, images, images_size);
    EXPECT_FAILURE("idx", DATA_TRAIN, TENSOR_E_DATA, train_images, "0x00000D03", "0x00000803");

    write_plain();
    put_word(labels, 0x08010000);
    file_write(train_labels, labels, labels_size);
    EXPECT_FAILURE("idx", DATA_TRAIN, TENSOR_E_DATA, train_labels, "0x08010000", "0x00000801");

    for (size_t size = 0; size < images_size; size += size < 20 ? 1 : 501) { /* cut in the header and in the pixels */
        write_plain();
        file_write(train_images, images, size);
        EXPECT_FAILURE("idx", DATA_TRAIN, TENSOR_E_DATA, train_images, "truncated");
    }
    write_plain();
    file_write(train_images, images, images_size - 1);
    EXPECT_FAILURE("idx", DATA_TRAIN, TENSOR_E_DATA, train_images, "truncated", "2100", "2099");
    write_plain();
    file_write(train_labels, labels, labels_size - 1);
    EXPECT_FAILURE("idx", DATA_TRAIN, TENSOR_E_DATA, train_labels, "truncated", "60", "59");

    write_plain();
    file_write(train_images, images, images_size + 1);
    EXPECT_FAILURE("idx", DATA_TRAIN, TENSOR_E_DATA, train_images, "goes on");
    write_plain();
    file_write(train_labels, labels, labels_size + 1);
    EXPECT_FAILURE("idx", DATA_TRAIN, TENSOR_E_DATA, train_labels, "goes on");

    write_plain();
    put_word(labels + 4, COUNT - 1);
    file_write(train_labels, labels, labels_size - 1);
    EXPECT_FAILURE("idx", DATA_TRAIN, TENSOR_E_DATA, train_images, train_labels, "60 images", "59 labels");

    /* Sizes of zero, beyond the limit, and whose product is beyond 64 bits. */
    for (int i = 0; i < 3; i++)
        for (int big = 0; big < 2; big++) {
            write_plain();
            put_word(images + 4 + 4 * i, big ? 0xFFFFFFFF : 0);
            file_write(train_images, images, images_size);
            if (big && i == 0)
                EXPECT_FAILURE("idx", DATA_TRAIN, TENSOR_E_DATA, train_images, "truncated", "150323855325", "2100");
            else
                EXPECT_FAILURE("idx", DATA_TRAIN, TENSOR_E_DATA, train_images, big ? "4294967295" : "is 0", "expected");
        }
    write_plain();
    for (int i = 0; i < 3; i++)
        put_word(images + 4 + 4 * i, i ? 4096 : 0xFFFFFFFF);
    file_write(train_images, images, images_size);
    EXPECT_FAILURE("idx", DATA_TRAIN, TENSOR_E_DATA, train_images, "72057594021150720");

    write_plain();
    labels[8 + 41] = 10;
    file_write(train_labels, labels, labels_size);
    EXPECT_FAILURE("idx", DATA_TRAIN, TENSOR_E_DATA, train_labels, "label 41 is 10", "0 to 9");
    remove_files();
}

/* The bytes of a file. */
static size_t slurp(const char *name, uint8_t *bytes, size_t most) {
    FILE *file = fopen(folder_path(name), "rb");
    size_t size = file ? fread(bytes, 1, most, file) : 0;
    if (file)
        fclose(file);
    return size;
}

static void check_gzip_failures(void) {
    static uint8_t packed[8192];
    write_plain();
    remove_files();
    file_write("train-images-idx3-ubyte.gz", images, images_size);
    file_write("train-labels-idx1-ubyte.gz", labels, labels_size);
    size_t size = slurp("train-images-idx3-ubyte.gz", packed, sizeof packed);
    CHECK(size > 100 && size < sizeof packed, "%zu bytes", size);

    /* Cut anywhere after the gzip header: never accepted, also without the checksum at the end. */
    for (size_t cut = 18; cut < size; cut += cut + 61 < size - 12 ? 61 : 1) {
        file_resize("train-images-idx3-ubyte.gz", (long)cut);
        EXPECT_FAILURE("idx", DATA_TRAIN, TENSOR_E_DATA, "train-images-idx3-ubyte.gz");
        FILE *file = fopen(folder_path("train-images-idx3-ubyte.gz"), "wb");
        CHECK(file && fwrite(packed, 1, size, file) == size && !fclose(file), "cannot rewrite");
    }
    const uint8_t wrong = (uint8_t)(packed[size - 6] ^ 1); /* the checksum */
    file_patch("train-images-idx3-ubyte.gz", (long)size - 6, &wrong, 1);
    EXPECT_FAILURE("idx", DATA_TRAIN, TENSOR_E_DATA, "train-images-idx3-ubyte.gz", "corrupt gzip");
    const uint8_t junk[8] = {0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF};
    file_patch("train-images-idx3-ubyte.gz", 10, junk, 8); /* the first block */
    EXPECT_FAILURE("idx", DATA_TRAIN, TENSOR_E_DATA, "train-images-idx3-ubyte.gz", "corrupt gzip");

    /* A header that promises more than its compressed bytes can hold. */
    put_word(images + 4, 0xFFFFFFFF);
    file_write("train-images-idx3-ubyte.gz", images, images_size);
    EXPECT_FAILURE("idx", DATA_TRAIN, TENSOR_E_DATA, "train-images-idx3-ubyte.gz", "truncated", "150323855325");
    make_files();
    file_write("train-images-idx3-ubyte.gz", images, images_size + 1);
    EXPECT_FAILURE("idx", DATA_TRAIN, TENSOR_E_DATA, "train-images-idx3-ubyte.gz", "goes on");
    remove_files();
}

/* One class in the labels still gives two; labels up to 9 give ten. */
static void check_classes(void) {
    for (int top = 0; top <= 9; top += 9) {
        write_plain();
        memset(labels + 8, 0, COUNT);
        labels[8] = (uint8_t)top;
        file_write(train_labels, labels, labels_size);
        char specification[PATH_MAX];
        snprintf(specification, sizeof specification, "idx:%s", folder);
        data_set *set = data_open(specification, DATA_TRAIN);
        CHECK(set && data_classes(set) == (top ? 10 : 2), "largest label %d gives %d classes", top, data_classes(set));
        data_free(set);
    }
    remove_files();
}

int main(void) {
    if (!folder_make())
        return check_skip("no temporary folder");
    write_plain();
    check_good(DATA_TRAIN);
    fail_each_allocation("idx", open_train);
    file_remove(train_images);
    file_write("train-images-idx3-ubyte.gz", images, images_size); /* one of each */
    check_good(DATA_TRAIN);
    remove_files();
    file_write("t10k-images-idx3-ubyte.gz", images, images_size);
    file_write("t10k-labels-idx1-ubyte.gz", labels, labels_size);
    check_good(DATA_TEST);
    remove_files();
    check_plain_failures();
    check_gzip_failures();
    check_classes();
    EXPECT_FAILURE("idx:/nowhere", DATA_TEST, TENSOR_E_IO, "/nowhere", "t10k-images-idx3-ubyte", "No such file");
    rmdir(folder);
    return check_summary();
}
