/* gather.c - how a processor gathers a batch out of a set of images. */
#include "core/tensor/gather.h"
#include "core/base/fail.h"
#include "core/base/parallel.h"
#include <string.h>

static void gather_image(void *context, int part, int worker) {
    (void)worker;
    const struct fl_gather *g = context;
    const int64_t index = g->indices[part], bytes = (int64_t)g->height * g->width * g->channels;
    const uint8_t *from = g->set_images + index * bytes;
    uint8_t *to = g->images + part * bytes;
    g->labels[part] = g->set_labels[index];
    if (!g->augment) {
        memcpy(to, from, (size_t)bytes);
        return;
    }
    const struct fl_crop crop = fl_crop_of(g->seed, g->epoch, (uint64_t)index);
    for (int y = 0; y < g->height; y++)
        for (int x = 0; x < g->width; x++, to += g->channels) {
            const int64_t pixel = fl_crop_source(crop, g->height, g->width, y, x);
            for (int c = 0; c < g->channels; c++)
                to[c] = pixel < 0 ? 0 : from[pixel * g->channels + c];
        }
}

tensor_status fl_gather_run(const struct fl_gather *g) {
    for (int64_t i = 0; i < g->count; i++)
        if (g->indices[i] < 0 || g->indices[i] >= g->set_count)
            return fl_fail(TENSOR_E_ARGUMENT, "gather_images: index %lld is %d, expected 0 to %lld", (long long)i,
                           g->indices[i], (long long)g->set_count - 1);
    fl_parallel((int)g->count, gather_image, (void *)(uintptr_t)g);
    return TENSOR_OK;
}
