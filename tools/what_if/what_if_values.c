/* what_if_values.c - the formats of --formats, and the numbers that they would store. */
#include "what_if/what_if.h"
#include "base/text.h"
#include "flexlab/tensor_quantise.h"
#include <stdlib.h>
#include <string.h>

static const char other_formats[] =
    "; or a block format: mx:ELEMENT, nvfp4, hbfp:intN, channel:ELEMENT; or an element: eXmY, intN, or tensor:eXmY";

/* As the families of block formats do, which have options after a colon, or none. */
static bool begins_block(const char *name) {
    return (strchr(name, ':') && strncmp(name, "tensor:", 7) != 0) || !strncmp(name, "nvfp4", 5);
}

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
    const float zero = 0;
    const int64_t one_element = 1;
    float y;
    tensor_quantised q = {0};
    tensor_format format;
    const tensor_status status = tensor_quantise_f32(&y, &zero, 1, &one_element, 0, one->name, 0, &q);
    char *const refused = text_format("%s", status ? tensor_error() : "");
    const bool is_tensor = !tensor_format_find(&format, one->name);
    /* What is wrong in a name that may be one of tensors, tensor_format_find knows. */
    if (status)
        (void)text_usage("--formats '%s': '%s' at position %d: %s%s", list, one->name, place,
                         begins_block(one->name) ? refused : tensor_error(),
                         begins_block(one->name) ? "" : other_formats);
    free(refused);
    one->shared = is_tensor && tensor_format_has_mantissas(format);
    one->scaled = is_tensor && tensor_format_is_shared(format) && !one->shared;
    one->blocks = q.blocks > 0;
    one->bits = q.bits;
    return status ? STATUS_USAGE : STATUS_OK;
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

tensor_status what_if_values(float *y, const float *x, int ndim, const int64_t *shape, int dim,
                             const struct what_if_format *format, int64_t *saturated) {
    tensor_quantised q = {0};
    const tensor_status status = tensor_quantise_f32(y, x, ndim, shape, dim, format->name, 0, &q);
    *saturated = q.saturated;
    return status;
}
