/* data_set.c - a set in memory: allocation, access, moments of the channels. */
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/base/parallel.h"
#include "data/data_internal.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

tensor_status fl_data_new(data_set **set, const char *what, int64_t count, int height, int width, int channels,
                          int classes) {
    int64_t image = (int64_t)height * width * channels, bytes;
    if (__builtin_mul_overflow(count, image, &bytes) || count > INT64_MAX / (int64_t)sizeof *(*set)->labels)
        return fl_fail(TENSOR_E_SHAPE, "%s: %lld images of %dx%dx%d overflow the address space", what, (long long)count,
                       height, width, channels);
    data_set *s = fl_alloc_zero(sizeof *s);
    if (s) {
        *s = (data_set){.count = count, .height = height, .width = width, .channels = channels, .classes = classes};
        s->pixels = fl_alloc((size_t)bytes);
        s->labels = fl_alloc((size_t)count * sizeof *s->labels);
    }
    if (!s || !s->pixels || !s->labels) {
        data_free(s);
        return fl_fail(TENSOR_E_MEMORY, "%s: no memory for %lld images of %dx%dx%d (%lld bytes)", what,
                       (long long)count, height, width, channels, (long long)bytes);
    }
    *set = s;
    return TENSOR_OK;
}

static tensor_status check_arrays(const uint8_t *images, const int32_t *labels, int64_t count, int height, int width,
                                  int channels, int classes) {
    if (!images || !labels)
        return fl_fail(TENSOR_E_ARGUMENT, "data_new: %s is NULL", images ? "labels" : "images");
    if (count < 1 || height < 1 || width < 1 || channels < 1 || height > FL_DATA_MAX_SIDE || width > FL_DATA_MAX_SIDE ||
        channels > FL_DATA_MAX_CHANNELS)
        return fl_fail(TENSOR_E_SHAPE, "data_new: %lld images of %dx%dx%d, expected at least 1 of at most %dx%dx%d",
                       (long long)count, height, width, channels, FL_DATA_MAX_SIDE, FL_DATA_MAX_SIDE,
                       FL_DATA_MAX_CHANNELS);
    if (classes < 2 || classes > FL_DATA_MAX_CLASSES)
        return fl_fail(TENSOR_E_ARGUMENT, "data_new: %d classes, expected 2 to %d", classes, FL_DATA_MAX_CLASSES);
    for (int64_t i = 0; i < count; i++)
        if (labels[i] < 0 || labels[i] >= classes)
            return fl_fail(TENSOR_E_DATA, "data_new: label %lld is %d, expected 0 to %d", (long long)i, labels[i],
                           classes - 1);
    return TENSOR_OK;
}

data_set *data_new(const uint8_t *images, const int32_t *labels, int64_t count, int height, int width, int channels,
                   int classes) {
    data_set *set = NULL;
    if (check_arrays(images, labels, count, height, width, channels, classes) ||
        fl_data_new(&set, "data_new", count, height, width, channels, classes))
        return NULL;
    memcpy(set->pixels, images, (size_t)(count * height * width * channels));
    for (int64_t i = 0; i < count; i++)
        set->labels[i] = (uint16_t)labels[i];
    return set;
}

char *fl_data_path(const char *directory, const char *name, const char *suffix) {
    size_t size = strlen(directory) + strlen(name) + strlen(suffix) + 2;
    char *path = fl_alloc(size);
    if (path)
        snprintf(path, size, "%s/%s%s", directory, name, suffix);
    return path;
}

void data_free(data_set *set) {
    if (!set)
        return;
    fl_free(set->pixels);
    fl_free(set->labels);
    fl_data_tokens_leave(set->tokens);
    fl_free(set->character);
    fl_free(set);
}

int64_t data_count(const data_set *set) {
    return set ? set->count : 0;
}
int data_height(const data_set *set) {
    return set ? set->height : 0;
}
int data_width(const data_set *set) {
    return set ? set->width : 0;
}
int data_channels(const data_set *set) {
    return set ? set->channels : 0;
}
int data_classes(const data_set *set) {
    return set ? set->classes : 0;
}

tensor_status data_limit(data_set *set, int64_t n) {
    if (!set)
        return fl_fail(TENSOR_E_ARGUMENT, "data_limit: the set is NULL");
    if (n < 1 || n > set->count)
        return fl_fail(TENSOR_E_ARGUMENT, "data_limit: %lld samples, expected 1 to %lld", (long long)n,
                       (long long)set->count);
    set->count = n;
    return TENSOR_OK;
}

const uint8_t *data_image(const data_set *set, int64_t i) {
    if (!set || set->text || i < 0 || i >= set->count)
        return NULL;
    return set->pixels + i * set->height * set->width * set->channels;
}

int data_label(const data_set *set, int64_t i) {
    if (!set || i < 0 || i >= set->count)
        return -1;
    return set->text ? fl_data_token(set, i) : set->labels[i];
}

/* Sums of pixels and of their squares; integers, so the parts may be added in any order. */
enum { MOMENT_PARTS = 64 };
struct moments {
    const data_set *set;
    struct {
        uint64_t sum[FL_DATA_MAX_CHANNELS], square[FL_DATA_MAX_CHANNELS];
    } part[MOMENT_PARTS];
};

static void moments_part(void *context, int part, int worker) {
    (void)worker;
    struct moments *m = context;
    const data_set *set = m->set;
    int64_t begin = set->count * part / MOMENT_PARTS, end = set->count * (part + 1) / MOMENT_PARTS;
    int64_t pixels = (end - begin) * set->height * set->width;
    const uint8_t *p = set->pixels + begin * set->height * set->width * set->channels;
    uint64_t sum[FL_DATA_MAX_CHANNELS] = {0}, square[FL_DATA_MAX_CHANNELS] = {0};
    for (int64_t i = 0; i < pixels; i++, p += set->channels)
        for (int c = 0; c < set->channels; c++) {
            sum[c] += p[c];
            square[c] += (uint32_t)p[c] * p[c];
        }
    memcpy(m->part[part].sum, sum, sizeof sum);
    memcpy(m->part[part].square, square, sizeof square);
}

tensor_status data_channel_moments(double *mean, double *deviation, const data_set *set) {
    if (!set || !mean || !deviation)
        return fl_fail(TENSOR_E_ARGUMENT, "data_channel_moments: the set, mean or deviation is NULL");
    if (set->text)
        return fl_fail(TENSOR_E_ARGUMENT, "data_channel_moments: the set is a text, expected one of images");
    struct moments m = {.set = set};
    fl_parallel(MOMENT_PARTS, moments_part, &m);
    uint64_t n = (uint64_t)set->count * (uint64_t)set->height * (uint64_t)set->width;
    for (int c = 0; c < set->channels; c++) {
        uint64_t sum = 0, square = 0;
        for (int part = 0; part < MOMENT_PARTS; part++) {
            sum += m.part[part].sum[c];
            square += m.part[part].square[c];
        }
        /* variance = (n * square - sum^2) / n^2, the numerator exact. */
        unsigned __int128 numerator = (unsigned __int128)n * square - (unsigned __int128)sum * sum;
        mean[c] = (double)sum / (255.0 * (double)n);
        deviation[c] = sqrt((double)numerator) / (255.0 * (double)n);
    }
    return TENSOR_OK;
}
