/* The IDX reader: plain and gzipped files, and each way in which they can be invalid. */
#include "data_files.h"

enum { COUNT = 60, HEIGHT = 5, WIDTH = 7, IMAGE = HEIGHT * WIDTH };

static const char *const train_images = "train-images-idx3-ubyte", *const train_labels = "train-labels-idx1-ubyte";
static uint8_t images[16 + COUNT * IMAGE + 1], labels[8 + COUNT + 1]; /* one byte more than needed */
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
    expect_regular_file("idx", DATA_TRAIN, train_labels);
    file_remove(train_images);
    expect_regular_file("idx", DATA_TRAIN, train_images);
    expect_regular_file("idx", DATA_TRAIN, "train-images-idx3-ubyte.gz");

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

    for (size_t size = 0; size < images_size;
         size += size < 20 ? 1 : 501) { /* truncated in the header and in the pixels */
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
    EXPECT_FAILURE("idx", DATA_TRAIN, TENSOR_E_DATA, train_images, "continues");
    write_plain();
    file_write(train_labels, labels, labels_size + 1);
    EXPECT_FAILURE("idx", DATA_TRAIN, TENSOR_E_DATA, train_labels, "continues");

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

/* Reads the bytes of a file. */
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

    /* A header that declares more than its compressed bytes can contain. */
    put_word(images + 4, 0xFFFFFFFF);
    file_write("train-images-idx3-ubyte.gz", images, images_size);
    EXPECT_FAILURE("idx", DATA_TRAIN, TENSOR_E_DATA, "train-images-idx3-ubyte.gz", "truncated", "150323855325");
    make_files();
    file_write("train-images-idx3-ubyte.gz", images, images_size + 1);
    EXPECT_FAILURE("idx", DATA_TRAIN, TENSOR_E_DATA, "train-images-idx3-ubyte.gz", "continues");
    remove_files();
}

static char hollow[64]; /* a file in memory to which a name of the folder links; "": none */

/* Makes a file of that size in the folder; if its file system does not support it, one in memory. */
static bool make_hollow(const char *name, off_t size) {
    hollow[0] = 0;
    if (!truncate(folder_path(name), size))
        return true;
    snprintf(hollow, sizeof hollow, "/dev/shm/flexlab-test-%ld", (long)getpid());
    static uint8_t bytes[8192];
    FILE *in = fopen(folder_path(name), "rb"), *out = fopen(hollow, "wb");
    const size_t held = in ? fread(bytes, 1, sizeof bytes, in) : 0;
    bool good = out && fwrite(bytes, 1, held, out) == held;
    if (in)
        fclose(in);
    if (out)
        good = !fclose(out) && good;
    file_remove(name);
    good = good && !truncate(hollow, size) && !symlink(hollow, folder_path(name));
    if (!good)
        unlink(hollow);
    return good;
}

/* A compressed file that is large enough for the size in its header, but has holes instead of data: the header alone
 * must not cause an allocation. The size times the best ratio of deflate exceeds 64 bits if the file system has such
 * files. */
static void check_hollow_file(void) {
    static const off_t sizes[] = {(off_t)1 << 62, (off_t)1 << 43};
    for (int i = 0; i < 2; i++) {
        make_files();
        put_word(images + 4, 0xFFFFFFFF);
        put_word(images + 8, 1024);
        put_word(images + 12, 1024); /* 2^52 bytes: 2^43 with the best ratio would hold them */
        file_write("train-images-idx3-ubyte.gz", images, images_size);
        put_word(labels + 4, 0xFFFFFFFF);
        file_write(train_labels, labels, labels_size);
        if (!make_hollow("train-images-idx3-ubyte.gz", sizes[i]) ||
            truncate(folder_path(train_labels), (off_t)8 + 0xFFFFFFFF)) {
            printf("no file of %lld bytes here: left out\n", (long long)sizes[i]);
            remove_files();
            continue;
        }
        allocator_largest = 0;
        tensor_set_allocator(failing_allocate, counting_release);
        EXPECT_FAILURE("idx", DATA_TRAIN, TENSOR_E_DATA, "train-images-idx3-ubyte.gz", "truncated", "2100 bytes");
        tensor_set_allocator(NULL, NULL);
        CHECK(allocator_largest <= 1 << 26, "%lu bytes were asked for", allocator_largest);
        remove_files();
        unlink(hollow);
    }
    make_files();
}

/* A compressed set larger than the first allocation. */
static void check_large_compressed(void) {
    enum { SIDE = 1024, MANY = 200 };
    const size_t size = 16 + (size_t)MANY * SIDE * SIDE;
    uint8_t *bytes = calloc(size, 1);
    const uint32_t head[4] = {0x803, MANY, SIDE, SIDE};
    for (int i = 0; i < 4; i++)
        put_word(bytes + 4 * i, head[i]);
    for (size_t i = 16; i < size; i += 4093)
        bytes[i] = (uint8_t)(i >> 12);
    static uint8_t ones[8 + MANY];
    put_word(ones, 0x801);
    put_word(ones + 4, MANY);
    file_write("train-images-idx3-ubyte.gz", bytes, size);
    file_write(train_labels, ones, sizeof ones);
    char specification[PATH_MAX];
    snprintf(specification, sizeof specification, "idx:%s", folder);
    data_set *set = data_open(specification, DATA_TRAIN);
    CHECK(set, "%s", tensor_error());
    CHECK(set && data_count(set) == MANY && !memcmp(data_image(set, 0), bytes + 16, size - 16), "other pixels");
    data_free(set);
    free(bytes);
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
    check_hollow_file();
    check_large_compressed();
    check_classes();
    EXPECT_FAILURE("idx:/nowhere", DATA_TEST, TENSOR_E_IO, "/nowhere", "t10k-images-idx3-ubyte", "No such file");
    rmdir(folder);
    return check_summary();
}
