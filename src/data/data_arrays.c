/* data_arrays.c - images and labels in arrays of NumPy: two files for each split, or members of an archive (.npz). */
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/base/parallel.h"
#include "data/data_inflate.h"
#include "data/data_internal.h"
#include "data/data_npy.h"
#include "data/data_words.h"
#include "data/data_zip.h"
#include <string.h>
#include <unistd.h>

enum { PART_IMAGES = 64 };

static const struct fl_data_syntax npy_syntax = {
    "npy", "npy:IMAGES,LABELS[,TEST_IMAGES,TEST_LABELS][,classes=N]", 4, {"classes"}};
static const struct fl_data_syntax npz_syntax = {"npz", "npz:FILE[,TEST_FILE][,classes=N]", 2, {"classes"}};

/* --- images --------------------------------------------------------------------------------------------------------
 */

struct reorder {
    const uint8_t *from; /* the index of the image runs fastest, then rows, columns, channels */
    const data_set *to;
};

static void reorder_part(void *context, int part, int worker) {
    (void)worker;
    const struct reorder *job = context;
    const data_set *s = job->to;
    const int64_t begin = (int64_t)part * PART_IMAGES, image = (int64_t)s->height * s->width * s->channels,
                  end = begin + PART_IMAGES < s->count ? begin + PART_IMAGES : s->count;
    for (int c = 0; c < s->channels; c++)
        for (int x = 0; x < s->width; x++)
            for (int y = 0; y < s->height; y++) {
                const uint8_t *from = job->from + (((int64_t)c * s->width + x) * s->height + y) * s->count;
                uint8_t *to = s->pixels + ((int64_t)y * s->width + x) * s->channels + c;
                for (int64_t i = begin; i < end; i++)
                    to[i * image] = from[i];
            }
}

/* Reorders elements in Fortran order to one image after the other, and frees them. */
static tensor_status reorder_images(data_set *s, const struct fl_data_stream *f, uint8_t *elements) {
    const int64_t parts = (s->count + PART_IMAGES - 1) / PART_IMAGES;
    tensor_status status = TENSOR_OK;
    s->pixels = fl_alloc((size_t)(s->count * s->height * s->width * s->channels));
    if (!s->pixels)
        status = fl_fail(TENSOR_E_MEMORY, "%s: no memory to arrange the images of %s", f->kind, f->path);
    else if (parts > INT32_MAX)
        status = fl_fail(TENSOR_E_SHAPE, "%s: %s: %lld images", f->kind, f->path, (long long)s->count);
    else
        fl_parallel((int)parts, reorder_part, &(struct reorder){elements, s});
    fl_free(elements);
    return status;
}

static tensor_status check_images(const struct fl_npy *a, const struct fl_data_stream *f) {
    const int64_t channels = a->dims == 4 ? a->dim[3] : 1;
    if (a->kind != 'u' || a->bytes != 1)
        return fl_fail(TENSOR_E_DATA, "%s: %s%s%s: images of type '%c%d', expected 'u1' (uint8)", FL_STREAM_WHERE(f),
                       a->kind, a->bytes);
    if (a->dims < 3)
        return fl_fail(TENSOR_E_DATA, "%s: %s%s%s: images of %d dimensions, expected [N, H, W] or [N, H, W, C]",
                       FL_STREAM_WHERE(f), a->dims);
    if (a->dim[1] > FL_DATA_MAX_SIDE || a->dim[2] > FL_DATA_MAX_SIDE || channels > FL_DATA_MAX_CHANNELS)
        return fl_fail(TENSOR_E_DATA, "%s: %s%s%s: images of %lldx%lldx%lld, expected at most %dx%dx%d",
                       FL_STREAM_WHERE(f), (long long)a->dim[1], (long long)a->dim[2], (long long)channels,
                       FL_DATA_MAX_SIDE, FL_DATA_MAX_SIDE, FL_DATA_MAX_CHANNELS);
    return TENSOR_OK;
}

static tensor_status read_images(data_set *s, const struct fl_npy *a, struct fl_data_stream *f) {
    *s = (data_set){.count = a->dim[0],
                    .height = (int)a->dim[1],
                    .width = (int)a->dim[2],
                    .channels = a->dims == 4 ? (int)a->dim[3] : 1};
    uint8_t *elements;
    tensor_status status = fl_data_stream_take(f, "pixels", a->elements, &elements);
    if (status)
        return status;
    if (a->fortran) {
        status = reorder_images(s, f, elements);
        return status ? status : fl_data_stream_end(f);
    }
    s->pixels = elements;
    return fl_data_stream_end(f);
}

/* --- labels --------------------------------------------------------------------------------------------------------
 */

static tensor_status check_labels(const struct fl_npy *a, const struct fl_data_stream *f, int64_t images,
                                  const struct fl_data_stream *images_in) {
    if (a->dims > 2 || (a->dims == 2 && a->dim[1] != 1))
        return fl_fail(TENSOR_E_DATA, "%s: %s%s%s: labels of %d dimensions, expected [N] or [N, 1]", FL_STREAM_WHERE(f),
                       a->dims);
    if (a->dim[0] != images)
        return fl_fail(TENSOR_E_DATA, "%s: %s%s%s has %lld labels, for %lld images in %s", FL_STREAM_WHERE(f),
                       (long long)a->dim[0], (long long)images,
                       images_in->member ? images_in->member : images_in->path);
    return TENSOR_OK;
}

/* Element i with its sign extended; unsigned numbers of 2^63 and more appear negative. */
static int64_t element_at(const struct fl_npy *a, const uint8_t *elements, int64_t i) {
    const uint8_t *at = elements + i * a->bytes;
    uint64_t value = 0;
    for (int k = 0; k < a->bytes; k++)
        value |= (uint64_t)at[a->big_endian ? a->bytes - 1 - k : k] << 8 * k;
    const int above = 64 - 8 * a->bytes;
    return a->kind == 'i' ? (int64_t)(value << above) >> above : (int64_t)value;
}

/* classes: the option, or 0 for one more than the largest label. */
static tensor_status take_labels(data_set *s, const struct fl_npy *a, const struct fl_data_stream *f,
                                 const uint8_t *elements, int64_t classes) {
    const int64_t most = (classes ? classes : FL_DATA_MAX_CLASSES) - 1;
    s->classes = classes ? (int)classes : 2;
    for (int64_t i = 0; i < s->count; i++) {
        const int64_t label = element_at(a, elements, i);
        if (label < 0 && a->kind == 'u')
            return fl_fail(TENSOR_E_DATA, "%s: %s%s%s: label %lld is %llu, expected 0 to %lld", FL_STREAM_WHERE(f),
                           (long long)i, (unsigned long long)label, (long long)most);
        if (label < 0 || label > most)
            return fl_fail(TENSOR_E_DATA, "%s: %s%s%s: label %lld is %lld, expected 0 to %lld", FL_STREAM_WHERE(f),
                           (long long)i, (long long)label, (long long)most);
        s->labels[i] = (uint16_t)label;
        if (label >= s->classes)
            s->classes = (int)label + 1;
    }
    return TENSOR_OK;
}

static tensor_status read_labels(data_set *s, const struct fl_npy *a, struct fl_data_stream *f, int64_t classes) {
    uint8_t *elements = NULL;
    tensor_status status = fl_data_stream_take(f, "labels", a->elements * a->bytes, &elements);
    if (!status)
        status = fl_data_stream_end(f);
    if (!status && !(s->labels = fl_alloc((size_t)s->count * sizeof *s->labels)))
        status = fl_fail(TENSOR_E_MEMORY, "%s: no memory for %lld labels (%s)", f->kind, (long long)s->count, f->path);
    if (!status)
        status = take_labels(s, a, f, elements, classes);
    fl_free(elements);
    return status;
}

/* --- both ----------------------------------------------------------------------------------------------------------
 */

/* Reads both headers before the first element, so that a wrong pair is refused at once. */
static tensor_status read_pair(data_set **set, struct fl_data_stream *images, struct fl_data_stream *labels,
                               int64_t classes) {
    struct fl_npy a, b;
    tensor_status status = fl_npy_header(&a, images, FL_NPY_SAMPLES);
    if (!status)
        status = check_images(&a, images);
    if (!status)
        status = fl_npy_header(&b, labels, FL_NPY_SAMPLES);
    if (!status)
        status = check_labels(&b, labels, a.dim[0], images);
    if (status)
        return status;
    data_set *s = fl_alloc_zero(sizeof *s);
    if (!s)
        return fl_fail(TENSOR_E_MEMORY, "%s: no memory", images->kind);
    status = read_images(s, &a, images);
    if (!status)
        status = read_labels(s, &b, labels, classes);
    if (status)
        data_free(s);
    else
        *set = s;
    return status;
}

/* *classes is 0 if the option is missing. */
static tensor_status read_classes(const struct fl_data_words *words, const char *kind, int64_t *classes) {
    const char *text = words->value[0];
    *classes = 0;
    if (text && (!fl_data_whole(&text, 2, FL_DATA_MAX_CLASSES, classes) || *text))
        return fl_fail(TENSOR_E_ARGUMENT, "%s: option 'classes=%s', expected a whole number from 2 to %d", kind,
                       words->value[0], FL_DATA_MAX_CLASSES);
    return TENSOR_OK;
}

static tensor_status open_file(struct fl_data_stream *s, const char *path) {
    *s = (struct fl_data_stream){.kind = "npy", .path = path, .file = -1};
    return fl_data_file_open(&s->file, &s->length, "npy", path, NULL);
}

static tensor_status open_npy(data_set **set, const struct fl_data_words *words, data_split split) {
    int64_t classes;
    tensor_status status = read_classes(words, "npy", &classes);
    if (status)
        return status;
    if (words->paths != 2 && words->paths != 4)
        return fl_fail(TENSOR_E_ARGUMENT, "npy: %d paths, expected %s", words->paths, npy_syntax.expected);
    if (split == DATA_TEST && words->paths < 4)
        return fl_fail(TENSOR_E_ARGUMENT, "npy: no files of the test split are given, expected "
                                          "npy:IMAGES,LABELS,TEST_IMAGES,TEST_LABELS");
    const char *const *path = words->path + (split == DATA_TEST ? 2 : 0);
    struct fl_data_stream images = {.file = -1}, labels = {.file = -1};
    status = open_file(&images, path[0]);
    if (!status)
        status = open_file(&labels, path[1]);
    if (!status)
        status = read_pair(set, &images, &labels, classes);
    if (images.file >= 0)
        close(images.file);
    if (labels.file >= 0)
        close(labels.file);
    return status;
}

/* Finds the two members by their usual names: those for both splits in one file, or for a file of this split only. */
static tensor_status find_members(const struct fl_data_zip *zip, data_split split, bool alone,
                                  const char *const **found) {
    static const char *const names[][2] = {{"x_train.npy", "y_train.npy"}, {"train_images.npy", "train_labels.npy"},
                                           {"x_test.npy", "y_test.npy"},   {"test_images.npy", "test_labels.npy"},
                                           {"images.npy", "labels.npy"},   {"x.npy", "y.npy"},
                                           {"arr_0.npy", "arr_1.npy"}};
    const int first = split == DATA_TRAIN ? 0 : 2;
    for (int i = first; i < first + 2; i++)
        if (fl_data_zip_has(zip, names[i][0]) || fl_data_zip_has(zip, names[i][1])) {
            *found = names[i];
            return TENSOR_OK;
        }
    for (int i = 4; alone && i < 7; i++)
        if (fl_data_zip_has(zip, names[i][0])) {
            *found = names[i];
            return TENSOR_OK;
        }
    return fl_fail(TENSOR_E_DATA, "npz: %s has no %s split: expected members %s and %s, or %s and %s%s", zip->path,
                   split == DATA_TRAIN ? "training" : "test", split == DATA_TRAIN ? "x_train" : "x_test",
                   split == DATA_TRAIN ? "y_train" : "y_test", split == DATA_TRAIN ? "train_images" : "test_images",
                   split == DATA_TRAIN ? "train_labels" : "test_labels",
                   alone ? ", or images and labels, x and y, arr_0 and arr_1" : ", or a second file");
}

static tensor_status read_members(data_set **set, const struct fl_data_zip *zip, data_split split, bool alone,
                                  int64_t classes) {
    const char *const *name = NULL;
    tensor_status status = find_members(zip, split, alone, &name);
    if (status)
        return status;
    struct fl_data_stream images = {0}, labels = {0};
    status = fl_data_zip_member(zip, name[0], &images);
    if (!status)
        status = fl_data_zip_member(zip, name[1], &labels);
    if (!status)
        status = read_pair(set, &images, &labels, classes);
    fl_data_inflate_free(images.inflate);
    fl_data_inflate_free(labels.inflate);
    return status;
}

static tensor_status open_npz(data_set **set, const struct fl_data_words *words, data_split split) {
    int64_t classes;
    tensor_status status = read_classes(words, "npz", &classes);
    if (status)
        return status;
    struct fl_data_zip zip;
    status = fl_data_zip_open(&zip, "npz", words->path[split == DATA_TEST && words->paths == 2]);
    if (status)
        return status;
    /* Names without a split are those of the training split if one file is given, and of either split if two are. */
    status = read_members(set, &zip, split, words->paths == 2 || split == DATA_TRAIN, classes);
    fl_data_zip_close(&zip);
    return status;
}

tensor_status fl_data_open_npy(data_set **set, const char *rest, data_split split) {
    struct fl_data_words words;
    tensor_status status = fl_data_words(&words, &npy_syntax, rest);
    if (status)
        return status;
    status = open_npy(set, &words, split);
    fl_data_words_free(&words);
    return status;
}

tensor_status fl_data_open_npz(data_set **set, const char *rest, data_split split) {
    struct fl_data_words words;
    tensor_status status = fl_data_words(&words, &npz_syntax, rest);
    if (status)
        return status;
    status = open_npz(set, &words, split);
    fl_data_words_free(&words);
    return status;
}
