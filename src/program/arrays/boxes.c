/* boxes.c - NonMaxSuppression: the best of boxes that overlap. */
#include "program/arrays/arrays.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include <math.h>

struct boxes {
    const struct fl_array *boxes, *scores;
    bool centred; /* boxes are [x, y, width, height], else two opposite corners [y, x, y, x] */
    int64_t batch, classes, count, most;
    double overlap, least; /* of scores; a box must have more */
};

static tensor_status read_number(const struct fl_arrays *a, int operand, double otherwise, double *number) {
    const struct fl_array *const x = fl_operand(a, operand);
    *number = otherwise;
    TRY(fl_known(x, "limit"));
    TRY(fl_want_numbers(x, 1, "a limit"));
    if (x)
        *number = fl_array_number(x, 0);
    return TENSOR_OK;
}

static tensor_status read_boxes(struct boxes *b, const struct fl_arrays *a) {
    const struct fl_array *const boxes = a->in[0], *const scores = a->in[1];
    double most = 0;
    if (boxes->ndim != 3 || scores->ndim != 3 || boxes->dim[2] != 4 || boxes->dim[0] != scores->dim[0] ||
        boxes->dim[1] != scores->dim[2])
        return fl_fail(TENSOR_E_SHAPE, "%lld boxes and %lld scores, expected shapes [N, B, 4] and [N, C, B]",
                       (long long)boxes->count / 4, (long long)scores->count);
    TRY(fl_want_float(a, 0));
    TRY(fl_want_float(a, 1));
    TRY(fl_known(boxes, "boxes"));
    TRY(fl_known(scores, "scores"));
    *b = (struct boxes){.boxes = boxes, .scores = scores, .batch = boxes->dim[0], .classes = scores->dim[1]};
    b->count = boxes->dim[1];
    b->centred = fl_net_int(a->node, "center_point_box", 0) != 0;
    TRY(read_number(a, 2, 0, &most));
    TRY(read_number(a, 3, 0, &b->overlap));
    TRY(read_number(a, 4, -HUGE_VAL, &b->least));
    b->most = most > (double)b->count ? b->count : most > 0 ? (int64_t)most : 0;
    return TENSOR_OK;
}

/* Two corners, the smaller coordinates first. */
static void corners(const struct boxes *b, int64_t box, double *to) {
    double x[4];
    fl_load_numbers(x, b->boxes, box * 4, 1, 4);
    for (int i = 0; i < 2; i++) {
        const double one = b->centred ? x[i] - x[2 + i] / 2 : x[i], other = b->centred ? x[i] + x[2 + i] / 2 : x[2 + i];
        to[i] = fmin(one, other);
        to[2 + i] = fmax(one, other);
    }
}

static bool overlaps(const struct boxes *b, int64_t one, int64_t other) {
    double x[4], y[4];
    corners(b, one, x);
    corners(b, other, y);
    const double height = fmin(x[2], y[2]) - fmax(x[0], y[0]), width = fmin(x[3], y[3]) - fmax(x[1], y[1]);
    const double common = height > 0 && width > 0 ? height * width : 0;
    const double all = (x[2] - x[0]) * (x[3] - x[1]) + (y[2] - y[0]) * (y[3] - y[1]) - common;
    return all > 0 && common / all > b->overlap;
}

/* The boxes of one class that stay, best first, and how many they are; used has room for a flag for each. */
static int64_t select_boxes(const struct boxes *b, int64_t image, int64_t class, int64_t *kept, bool *used) {
    const int64_t scores = (image * b->classes + class) * b->count;
    int64_t count = 0;
    for (int64_t i = 0; i < b->count; i++)
        used[i] = !(fl_array_number(b->scores, scores + i) > b->least);
    while (count < b->most) {
        int64_t best = -1;
        for (int64_t i = 0; i < b->count; i++)
            if (!used[i] &&
                (best < 0 || fl_array_number(b->scores, scores + i) > fl_array_number(b->scores, scores + best)))
                best = i;
        if (best < 0)
            break;
        used[best] = true;
        bool stays = true;
        for (int64_t k = 0; k < count && stays; k++)
            stays = !overlaps(b, image * b->count + best, image * b->count + kept[k]);
        if (stays)
            kept[count++] = best;
    }
    return count;
}

/* Rows [image, class, box] into y, unless that is NULL. */
static tensor_status select_all(const struct fl_arrays *a, struct fl_array *y, int64_t *rows) {
    struct boxes b;
    int64_t *kept = NULL;
    bool *used = NULL;
    TRY(read_boxes(&b, a));
    *rows = 0;
    tensor_status status = fl_memory(&kept, b.count, sizeof *kept);
    if (!status)
        status = fl_memory(&used, b.count, sizeof *used);
    for (int64_t i = 0; i < b.batch * b.classes && !status; i++) {
        const int64_t count = select_boxes(&b, i / b.classes, i % b.classes, kept, used);
        for (int64_t k = 0; k < count && y; k++) {
            const int64_t row[] = {i / b.classes, i % b.classes, kept[k]};
            fl_store_integers(y, (*rows + k) * 3, 1, row, 3);
        }
        *rows += count;
    }
    fl_free(kept);
    fl_free(used);
    return status;
}

tensor_status fl_shape_suppress(const struct fl_arrays *a) {
    int64_t rows = 0;
    TRY(select_all(a, NULL, &rows));
    return fl_shape_set(a->out[0], TENSOR_TYPE_I64, 2, (const int64_t[]){rows, 3});
}

tensor_status fl_compute_suppress(const struct fl_arrays *a) {
    int64_t rows;
    return a->out[0] ? select_all(a, a->out[0], &rows) : TENSOR_OK;
}
