/* gather_images.c - batches from a set of images on the same device. */
#include "core/base/fail.h"
#include "core/ops/operation.h"
#include "core/queue/queue.h"

/* invoke.c compares only the counts of numbers. */
static tensor_status check(const struct fl_invocation *call) {
    const tensor *images = call->tensors[0], *set_images = call->tensors[2];
    char text[TENSOR_TEXT], other[TENSOR_TEXT];
    bool alike = images->ndim == 4 && set_images->ndim == 4;
    for (int i = 1; i < 4; i++)
        alike = alike && images->shape[i] == set_images->shape[i] && images->shape[i] <= INT32_MAX;
    if (!alike)
        return fl_fail(TENSOR_E_SHAPE,
                       "gather_images: images is %s, set_images is %s, expected [N,H,W,C] with images of one size",
                       fl_shape_text(images, text), fl_shape_text(set_images, other));
    return images->shape[0] <= INT32_MAX && set_images->shape[0] <= INT32_MAX
               ? TENSOR_OK
               : fl_fail(TENSOR_E_SHAPE,
                         "gather_images: images is %s, set_images is %s, expected fewer than 2^31 images",
                         fl_shape_text(images, text), fl_shape_text(set_images, other));
}

static tensor_status run(const struct fl_invocation *call, struct fl_args *args) {
    const tensor *const *t = call->tensors, *images = t[0];
    (void)args;
    struct fl_call gather = {.kind = FL_CALL_GATHER,
                             .gather = {.images = images->storage->data,
                                        .labels = t[1]->storage->data,
                                        .set_images = t[2]->storage->data,
                                        .set_labels = t[3]->storage->data,
                                        .indices = t[4]->storage->data,
                                        .count = images->shape[0],
                                        .set_count = t[2]->shape[0],
                                        .height = (int)images->shape[1],
                                        .width = (int)images->shape[2],
                                        .channels = (int)images->shape[3],
                                        .augment = call->scalars[0].integer != 0,
                                        .seed = call->scalars[1].key,
                                        .epoch = call->scalars[2].key}};
    return fl_submit(fl_queue_of(images->storage), &gather);
}

static const struct fl_operand operands[] = {{"images", "nhwc", .class = FL_CLASS_U8},
                                             {"labels", "n", .class = FL_CLASS_I32},
                                             {"set_images", "mhwc", .class = FL_CLASS_U8},
                                             {"set_labels", "m", .class = FL_CLASS_I32},
                                             {"indices", "n", .class = FL_CLASS_I32, .below = 'm'}};
/* how: whether it is given. */
static const struct fl_scalar_rule scalars[] = {{"how", FL_BOOL}, {"seed", FL_KEY64}, {"epoch", FL_KEY64}};
const struct fl_function fl_function_gather_images = {.name = "gather_images",
                                                      .outputs = 2,
                                                      FL_OPERANDS_OF(operands),
                                                      FL_SCALARS_OF(scalars),
                                                      .check = check,
                                                      .run = run};

tensor_status tensor_gather_images(tensor *images, tensor *labels, const tensor *set_images, const tensor *set_labels,
                                   const tensor *indices, const tensor_augmentation *how) {
    const tensor_augmentation given = how ? *how : (tensor_augmentation){0, 0};
    return FL_INVOKE(gather_images, FL_GIVEN(images, labels, set_images, set_labels, indices), FL_INTEGER(how != NULL),
                     FL_KEY(given.seed), FL_KEY(given.epoch));
}
