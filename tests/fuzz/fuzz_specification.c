/* fuzz_specification.c - the specifications that data_open takes: any text, in a folder that holds a good IDX set. The
 * verdict on generated sets is computed again from the documentation of data_open.
 *
 * Input: the text; its length gives the split. Blocks of more than 128 KiB are refused, which bounds what is made. */
#define _GNU_SOURCE
#include "flexlab/data.h"
#include "flexlab/tensor.h"
#include "scratch.h"

enum { BLOCK_LIMIT = 128 << 10, IMAGE = 32 * 32 * 3, MOST = 10000000 };

static int home, scratch; /* folders, opened */

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    static const uint8_t images[] = {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2, 10, 20, 30, 40};
    static const uint8_t labels[] = {0, 0, 8, 1, 0, 0, 0, 2, 3, 1};
    scratch_make();
    scratch_write("train-images-idx3-ubyte", images, sizeof images);
    scratch_write("train-labels-idx1-ubyte", labels, sizeof labels);
    scratch_write("t10k-images-idx3-ubyte", images, sizeof images);
    scratch_write("t10k-labels-idx1-ubyte", labels, sizeof labels);
    home = open(".", O_RDONLY | O_DIRECTORY);
    scratch = open(scratch_folder, O_RDONLY | O_DIRECTORY);
    MUST(home >= 0 && scratch >= 0, "cannot open the working folder: %s", strerror(errno));
    limit_allocation(BLOCK_LIMIT);
    tensor_set_threads(1);
    return 0;
}

/* "NAME=DIGITS" of `length` bytes: which name, and its value; -1 for anything else. */
static int read_option(const char *text, size_t length, unsigned __int128 *value) {
    static const char *const names[] = {"train=", "test=", "seed="};
    for (int o = 0; o < 3; o++) {
        const size_t name = strlen(names[o]);
        if (length <= name || strncmp(text, names[o], name))
            continue;
        *value = 0;
        for (size_t i = name; i < length; i++) {
            if (text[i] < '0' || text[i] > '9')
                return -1;
            if (*value <= UINT64_MAX) /* more than that stays more */
                *value = *value * 10 + (unsigned)(text[i] - '0');
        }
        return o;
    }
    return -1;
}

/* The images of a generated set; 0 where the specification is wrong, -1 where it is for no generated set. */
static int64_t generated_images(const char *text, data_split split) {
    int64_t count[2] = {20000, 4000};
    if (strncmp(text, "synthetic", 9) || (text[9] && text[9] != ':'))
        return -1;
    if (!text[9])
        return count[split];
    int given = 0;
    for (const char *p = text + 10;; p++) {
        const size_t length = strcspn(p, ",");
        unsigned __int128 value;
        const int o = read_option(p, length, &value);
        if (o < 0 || given >> o & 1 || value > UINT64_MAX || (o < 2 && (value < 1 || value > MOST)))
            return 0;
        given |= 1 << o;
        if (o < 2)
            count[o] = (int64_t)value;
        p += length;
        if (!*p)
            return count[split];
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct input in = input_of(data, size);
    const data_split split = size & 1 ? DATA_TEST : DATA_TRAIN;
    char *text = take_text(&in, 0);
    MUST(!fchdir(scratch), "%s: %s", scratch_folder, strerror(errno));
    watch_failures();
    data_set *set = data_open(text, split);
    must_tell("data_open", !set);
    MUST(!fchdir(home), "cannot return: %s", strerror(errno));
    const int64_t images = generated_images(text, split);
    if (images > 0)
        MUST(set ? data_count(set) == images && images * IMAGE <= BLOCK_LIMIT
                 : failure_status == TENSOR_E_MEMORY && images * IMAGE > BLOCK_LIMIT,
             "'%s': %lld images, expected %lld: %s", text, (long long)data_count(set), (long long)images,
             tensor_error());
    else if (images == 0)
        MUST(!set && failure_status == TENSOR_E_ARGUMENT, "'%s' was accepted", text);
    else
        MUST(!set || !strncmp(text, "idx:", 4) || !strncmp(text, "text:", 5), "'%s' was accepted", text);
    for (int64_t i = 0; i < data_count(set); i++)
        MUST(data_label(set, i) >= 0 && data_label(set, i) < data_classes(set), "label %lld is %d", (long long)i,
             data_label(set, i));
    data_free(set);
    free(text);
    return 0;
}
