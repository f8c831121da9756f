/* what_if_values.c - the formats of --formats, and the numbers that they would store. */
#include "what_if/what_if.h"
#include "base/text.h"
#include <stdlib.h>
#include <string.h>

static int add(struct what_if_formats *f, const char *list, const char *at, size_t length) {
    const int place = (int)(at - list) + 1;
    if (f->count == MOST_WHAT_IFS)
        return text_usage("--formats '%s': more than %d formats", list, MOST_WHAT_IFS);
    struct what_if_format *const one = &f->list[f->count];
    one->name = text_format("%.*s", (int)length, at);
    f->count++;
    if (!length)
        return text_usage("--formats '%s': nothing at position %d, expected the name of a format", list, place);
    for (int i = 0; i + 1 < f->count; i++)
        if (!strcmp(f->list[i].name, one->name))
            return text_usage("--formats '%s': '%s' at position %d is there twice", list, one->name, place);
    if (tensor_format_find(&one->format, one->name))
        return text_usage("--formats '%s': '%s' at position %d: %s", list, one->name, place, tensor_error());
    one->shared = tensor_format_is_shared(one->format);
    return STATUS_OK;
}

int what_if_formats_read(struct what_if_formats *f, const char *list) {
    int status = STATUS_OK;
    for (const char *at = list; at && status == STATUS_OK;) {
        const size_t length = strcspn(at, ",");
        status = add(f, list, at, length);
        at = at[length] ? at + length + 1 : NULL;
    }
    return status;
}

void what_if_formats_clear(struct what_if_formats *f) {
    for (int i = 0; i < f->count; i++)
        free(f->list[i].name);
    f->count = 0;
}

tensor_status what_if_values(float *y, const float *x, int64_t count, const struct what_if_format *format,
                             struct what_if_counts *counts) {
    tensor *const t = tensor_new(format->format, TENSOR_SHAPE(count));
    tensor_stats last;
    tensor_status status = t ? tensor_load_f32(t, x, count) : tensor_error_status();
    if (!status)
        status = tensor_store_f32(t, y, count);
    if (!status)
        status = tensor_statistics(&last, NULL, t);
    if (!status)
        counts->saturated = last.saturated;
    tensor_free(t);
    return status;
}
