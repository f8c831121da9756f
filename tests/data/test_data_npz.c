/* Memory of the readers of NumPy's arrays: every allocation fails once, and no header makes them request more than the
 * file can contain. test_data_arrays.py tests what they read and refuse. */
#include "data_files.h"

enum { IMAGES = 3, SIDE = 5, PIXELS = IMAGES * SIDE * SIDE };

/* A file of version 1.0; its header ends at byte 128. */
static size_t make_npy(uint8_t *file, const char *type, const char *order, const char *shape, const void *elements,
                       size_t bytes) {
    char header[119];
    memset(header, ' ', sizeof header);
    const int length =
        snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': %s, 'shape': %s}", type, order, shape);
    header[length] = ' ';
    header[117] = '\n';
    memcpy(file, "\x93NUMPY\1\0\x76\0", 10);
    memcpy(file + 10, header, 118);
    memcpy(file + 128, elements, bytes);
    return 128 + bytes;
}

static void put(uint8_t **at, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++)
        *(*at)++ = i < 8 ? (uint8_t)(value >> 8 * i) : 0;
}

struct member {
    const char *name;
    const uint8_t *bytes;
    size_t size;
    uint64_t claimed; /* bytes that the directory says */
};

/* An archive of deflated members. */
static void write_zip(const char *name, const struct member *member, int count) {
    static uint8_t file[1 << 20], directory[1 << 10];
    uint8_t *at = file, *entry = directory;
    for (int m = 0; m < count; m++) {
        const size_t local = (size_t)(at - file), length = strlen(member[m].name);
        const uint32_t crc = (uint32_t)crc32(0, member[m].bytes, (uInt)member[m].size);
        memcpy(at, "PK\3\4\24\0\0\0\10\0\0\0\0\0", 14);
        uint8_t *sizes = at + 14;
        at += 26;
        put(&at, length, 2);
        put(&at, 0, 2);
        memcpy(at, member[m].name, length);
        at += length;
        z_stream z = {.next_in = (Bytef *)(uintptr_t)member[m].bytes,
                      .avail_in = (uInt)member[m].size,
                      .next_out = at,
                      .avail_out = 1 << 18};
        CHECK(deflateInit2(&z, 9, Z_DEFLATED, -15, 9, 0) == Z_OK && deflate(&z, Z_FINISH) == Z_STREAM_END, "deflate");
        deflateEnd(&z);
        at += z.total_out;
        put(&sizes, crc, 4);
        put(&sizes, z.total_out, 4);
        put(&sizes, member[m].claimed, 4);
        memcpy(entry, "PK\1\2\24\0\24\0\0\0\10\0\0\0\0\0", 16);
        entry += 16;
        put(&entry, crc, 4);
        put(&entry, z.total_out, 4);
        put(&entry, member[m].claimed, 4);
        put(&entry, length, 2);
        put(&entry, 0, 12);
        put(&entry, local, 4);
        memcpy(entry, member[m].name, length);
        entry += length;
    }
    const size_t begins = (size_t)(at - file), size = (size_t)(entry - directory);
    memcpy(at, directory, size);
    at += size;
    memcpy(at, "PK\5\6\0\0\0\0", 8);
    at += 8;
    put(&at, (uint64_t)count, 2);
    put(&at, (uint64_t)count, 2);
    put(&at, size, 4);
    put(&at, begins, 4);
    put(&at, 0, 2);
    file_write(name, file, (size_t)(at - file));
}

static bool open_specification(const char *specification) {
    data_set *set = data_open(specification, DATA_TRAIN);
    if (set)
        CHECK(data_count(set) == IMAGES && data_image(set, 0)[7] == 7 * 3 && data_label(set, 2) == 300, "%lld images",
              (long long)data_count(set));
    data_free(set);
    return set != NULL;
}
static bool open_npy(void) {
    char specification[2 * PATH_MAX];
    snprintf(specification, sizeof specification, "npy:%s/x.npy,%s/y.npy", folder, folder);
    return open_specification(specification);
}
static bool open_npz(void) {
    char specification[PATH_MAX];
    snprintf(specification, sizeof specification, "npz:%s/a.npz", folder);
    return open_specification(specification);
}

/* The archive is refused, or read, and no block of more than `most` bytes was requested. */
static void check_largest(bool good, unsigned long most) {
    char specification[PATH_MAX];
    snprintf(specification, sizeof specification, "npz:%s/a.npz", folder);
    tensor_set_allocator(failing_allocate, counting_release);
    allocator_fail_at = 0;
    allocator_held = 0;
    allocator_largest = 0;
    data_set *set = data_open(specification, DATA_TRAIN);
    CHECK(good == (set != NULL) && (good || tensor_error_status() == TENSOR_E_DATA), "%s", tensor_error());
    CHECK(allocator_largest <= most, "a block of %lu bytes, expected at most %lu", (unsigned long)allocator_largest,
          most);
    data_free(set);
    CHECK(allocator_held == 0, "%ld blocks stay", (long)allocator_held);
    tensor_set_allocator(NULL, NULL);
}

int main(void) {
    if (!folder_make())
        return check_skip("no temporary folder");
    static uint8_t x[1 << 18], y[256], pixels[PIXELS];
    static const uint8_t labels[] = {0, 2, 1, 0, 1, 44}; /* 2, 256, 300, big-endian */
    for (int i = 0; i < PIXELS; i++)
        pixels[i] = (uint8_t)(i * 3);
    size_t x_size = make_npy(x, "|u1", "False", "(3, 5, 5)", pixels, PIXELS),
           y_size = make_npy(y, ">u2", "False", "(3,)", labels, sizeof labels);
    file_write("x.npy", x, x_size);
    file_write("y.npy", y, y_size);
    fail_each_allocation("npy", open_npy);
    struct member pair[] = {{"x.npy", x, x_size, x_size}, {"y.npy", y, y_size, y_size}};
    write_zip("a.npz", pair, 2);
    fail_each_allocation("npz", open_npz);

    /* In the order of Fortran, which takes memory twice. */
    memset(pixels, 21, sizeof pixels);
    x_size = make_npy(x, "|u1", "True", "(3, 5, 5)", pixels, PIXELS);
    file_write("x.npy", x, x_size);
    fail_each_allocation("npy, order of Fortran", open_npy);

    /* About 300 deflated bytes, for which a header and the directory declare 60 MiB, then 180000 bytes: the first is
     * impossible, the second would be possible; then the contents are complete. */
    memset(x, 0, sizeof x);
    (void)make_npy(x, "|u1", "False", "(60, 1024, 1024)", pixels, 0);
    pair[0].size = sizeof x;
    pair[0].claimed = 128 + (60u << 20);
    write_zip("a.npz", pair, 2);
    check_largest(false, 1 << 20);
    (void)make_npy(x, "|u1", "False", "(3, 300, 200)", pixels, 0);
    pair[0].claimed = 128 + 180000;
    write_zip("a.npz", pair, 2);
    check_largest(false, 1 << 20);
    pair[0].size = 128 + 180000;
    write_zip("a.npz", pair, 2);
    check_largest(true, 1 << 20);
    static const char *const files[] = {"x.npy", "y.npy", "a.npz"};
    for (int i = 0; i < 3; i++)
        file_remove(files[i]);
    rmdir(folder);
    return check_summary();
}
