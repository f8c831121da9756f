/* gather.h - images of a set by their numbers, moved and mirrored by the counter-based generator: the rule that a data
 * loader on the host and a set on a device follow alike. C and CUDA. */
#ifndef FL_GATHER_H
#define FL_GATHER_H

#include "core/arithmetic/philox.h"
#include "flexlab/status.h"
#include <stdbool.h>

enum { FL_CROP_PADDING = 4 };

/* Keeps the draws apart from those of other users of the same seed ("augments"). */
#define FL_AUGMENT_KEY UINT64_C(0x6175676D656E7473)

/* The image has a border of FL_CROP_PADDING black pixels (0 before normalisation), of which a window of its own size is
 * kept, at a random place, mirrored half of the time. */
struct fl_crop {
    int down, right;
    bool mirror;
};

FL_BOTH struct fl_crop fl_crop_of(uint64_t seed, uint64_t epoch, uint64_t index) {
    const struct fl_philox draw = fl_philox(seed ^ FL_AUGMENT_KEY, epoch, index);
    const struct fl_crop crop = {(int)((uint64_t)draw.word[0] * (2 * FL_CROP_PADDING + 1) >> 32) - FL_CROP_PADDING,
                                 (int)((uint64_t)draw.word[1] * (2 * FL_CROP_PADDING + 1) >> 32) - FL_CROP_PADDING,
                                 (draw.word[2] & 1) != 0};
    return crop;
}

/* The number of the pixel that stands at (y, x) after that; -1: of the border. */
FL_BOTH int64_t fl_crop_source(struct fl_crop crop, int height, int width, int y, int x) {
    const int from_y = y + crop.down, from_x = (crop.mirror ? width - 1 - x : x) + crop.right;
    const bool inside = from_y >= 0 && from_y < height && from_x >= 0 && from_x < width;
    return inside ? (int64_t)from_y * width + from_x : -1;
}

/* A batch of `count` images out of a set of `set_count`; addresses are of the device. */
struct fl_gather {
    const uint8_t *set_images;
    const int32_t *set_labels, *indices;
    uint8_t *images;
    int32_t *labels;
    int64_t count, set_count;
    int height, width, channels;
    bool augment;
    uint64_t seed, epoch;
};

#ifndef __CUDACC__
/* TENSOR_E_ARGUMENT if an index is not in the set: nothing is written. */
tensor_status fl_gather_run(const struct fl_gather *gather);
#endif

#endif
