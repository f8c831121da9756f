/* gather_images.c - batches out of a set of images that lies on a device. */
#include "core/base/fail.h"
#include "core/queue/queue.h"

static tensor_status check_images(const char *name, const char *which, const tensor *t) {
    char text[TENSOR_TEXT];
    if (!t)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: %s is NULL", name, which);
    if (t->format->id != FMT_U8 || t->ndim != 4)
        return fl_fail(TENSOR_E_SHAPE, "%s: %s is %s %s, expected u8 [N, H, W, C]", name, which, t->format->name,
                       fl_shape_text(t, text));
    return fl_need_elements(name, t);
}

static tensor_status check_alike(const char *name, const tensor *images, const tensor *set_images) {
    char text[TENSOR_TEXT], other[TENSOR_TEXT];
    for (int i = 1; i < 4; i++)
        if (images->shape[i] != set_images->shape[i] || images->shape[i] > INT32_MAX)
            return fl_fail(TENSOR_E_SHAPE, "%s: images is %s, set_images is %s, expected images of one size", name,
                           fl_shape_text(images, text), fl_shape_text(set_images, other));
    return images->shape[0] <= INT32_MAX && set_images->shape[0] <= INT32_MAX
               ? TENSOR_OK
               : fl_fail(TENSOR_E_SHAPE, "%s: images is %s, set_images is %s, expected fewer than 2^31 images", name,
                         fl_shape_text(images, text), fl_shape_text(set_images, other));
}

tensor_status tensor_gather_images(tensor *images, tensor *labels, const tensor *set_images, const tensor *set_labels,
                                   const tensor *indices, const tensor_augmentation *how) {
    static const char name[] = "gather_images";
    tensor_status status = check_images(name, "images", images);
    if (!status)
        status = check_images(name, "set_images", set_images);
    if (!status)
        status = check_alike(name, images, set_images);
    if (!status)
        status = fl_check_numbers(name, "labels", labels, FMT_I32, images->shape[0], images);
    if (!status)
        status = fl_check_numbers(name, "set_labels", set_labels, FMT_I32, set_images->shape[0], images);
    if (!status)
        status = fl_check_numbers(name, "indices", indices, FMT_I32, images->shape[0], images);
    if (!status)
        status = fl_check_all_apart(name, (const char *[]){"images", "labels", "set_images", "set_labels", "indices"},
                                    (const tensor *[]){images, labels, set_images, set_labels, indices}, 2, 5);
    if (status)
        return status;
    struct fl_call call = {.kind = FL_CALL_GATHER,
                           .gather = {.set_images = set_images->storage->data,
                                      .set_labels = set_labels->storage->data,
                                      .indices = indices->storage->data,
                                      .images = images->storage->data,
                                      .labels = labels->storage->data,
                                      .count = images->shape[0],
                                      .set_count = set_images->shape[0],
                                      .height = (int)images->shape[1],
                                      .width = (int)images->shape[2],
                                      .channels = (int)images->shape[3],
                                      .augment = how != NULL,
                                      .seed = how ? how->seed : 0,
                                      .epoch = how ? how->epoch : 0}};
    return fl_submit(fl_queue_of(images->storage), &call);
}
