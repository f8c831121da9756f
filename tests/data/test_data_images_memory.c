/* Memory of the reader of image folders: every allocation of the library fails once, and small files that declare much
 * make it request little. test_data_images.py tests what it reads and refuses. */
#include "data_files.h"
#include "flexlab/tensor.h"

enum { SIDE = 9 };

static void put(uint8_t **at, const void *bytes, size_t count) {
    memcpy(*at, bytes, count);
    *at += count;
}

static void put_number(uint8_t **at, uint32_t value) {
    for (int shift = 24; shift >= 0; shift -= 8)
        *(*at)++ = (uint8_t)(value >> shift);
}

static void put_chunk(uint8_t **at, const char *kind, const void *bytes, size_t count) {
    put_number(at, (uint32_t)count);
    const uint8_t *from = *at;
    put(at, kind, 4);
    put(at, bytes, count);
    put_number(at, (uint32_t)crc32(0, from, (uInt)count + 4));
}

/* A grey PNG of one value, whose header declares `declared` pixels a side and whose data are those of `side`. */
static void write_png(const char *name, uint32_t declared, uint32_t side, uint8_t value) {
    uint8_t file[1 << 15], header[13], *at = file, *h = header;
    const size_t raw = (size_t)side * (side + 1);
    uint8_t *rows = calloc(raw, 1);
    for (size_t i = 0; i < raw; i++)
        rows[i] = i % (side + 1) ? value : 0;
    uint8_t data[1 << 14];
    uLongf size = sizeof data;
    CHECK(compress2(data, &size, rows, (uLong)raw, 9) == Z_OK, "compress2");
    free(rows);
    put_number(&h, declared);
    put_number(&h, declared);
    put(&h, "\10\0\0\0\0", 5);
    put(&at, "\x89PNG\r\n\x1a\n", 8);
    put_chunk(&at, "IHDR", header, sizeof header);
    put_chunk(&at, "IDAT", data, size);
    put_chunk(&at, "IEND", "", 0);
    file_write(name, file, (size_t)(at - file));
}

static bool open_set(const char *options) {
    char specification[PATH_MAX];
    snprintf(specification, sizeof specification, "images:%s%s", folder, options);
    data_set *set = data_open(specification, DATA_TRAIN);
    if (set)
        CHECK(data_count(set) == 3 && data_image(set, 0)[5] == 50 && data_image(set, 2)[5] == 70 &&
                  data_label(set, 2) == 1,
              "%lld images", (long long)data_count(set));
    data_free(set);
    return set != NULL;
}
static bool open_as_it_is(void) {
    return open_set("");
}
static bool open_resized(void) {
    return open_set(",resize=20x4,channels=3");
}

/* The largest block allocated while the set is opened; `good`: opening it must succeed. */
static void check_largest(const char *what, bool good, unsigned long most) {
    char specification[PATH_MAX];
    snprintf(specification, sizeof specification, "images:%s", folder);
    tensor_set_allocator(failing_allocate, counting_release);
    allocator_fail_at = 0;
    allocator_held = 0;
    allocator_largest = 0;
    data_set *set = data_open(specification, DATA_TRAIN);
    CHECK(good == (set != NULL), "%s: %s", what, tensor_error());
    CHECK(allocator_largest <= most, "%s: a block of %lu bytes, expected at most %lu", what,
          (unsigned long)allocator_largest, most);
    data_free(set);
    CHECK(allocator_held == 0, "%s: %ld blocks stay", what, (long)allocator_held);
    tensor_set_allocator(NULL, NULL);
}

int main(void) {
    static const char *const folders[] = {"train", "train/a", "train/b"}, *const files[] = {"train/a/1.png",
                                                                                            "train/a/2.png",
                                                                                            "train/b/1.png"};
    if (!folder_make())
        return check_skip("no temporary folder");
    for (int i = 0; i < 3; i++)
        CHECK(!mkdir(folder_path(folders[i]), 0700), "cannot make a folder");
    for (int i = 0; i < 3; i++)
        write_png(files[i], SIDE, SIDE, (uint8_t)(50 + 10 * i));
    char specification[PATH_MAX];
    snprintf(specification, sizeof specification, "images:%s", folder);
    data_set *set = data_open(specification, DATA_TRAIN);
    const bool built = set || tensor_error_status() != TENSOR_E_UNSUPPORTED;
    data_free(set);
    if (built) {
        tensor_set_threads(1); /* with more, the order of allocations would be unknown */
        fail_each_allocation("images", open_as_it_is);
        fail_each_allocation("images, resized", open_resized);
        tensor_set_threads(3);
        check_largest("good files", true, 1 << 20);
        write_png(files[0], 4096, 100, 7); /* 16 MiB declared */
        check_largest("a first image that is not there", false, 1 << 20);
        write_png(files[0], 1000, 100, 7); /* could be so compressed, and is not */
        check_largest("a first image that is cut", false, 1 << 20);
        write_png(files[0], 1000, 1000, 7);
        write_png(files[1], 1000, 100, 7);
        check_largest("a second image that is cut", false, 3 << 20);
    }
    for (int i = 0; i < 3; i++)
        file_remove(files[i]);
    for (int i = 2; i >= 0; i--)
        rmdir(folder_path(folders[i]));
    rmdir(folder);
    return built ? check_summary() : check_skip("built without libpng");
}
