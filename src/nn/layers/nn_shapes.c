/* nn_shapes.c - parts that the shape rules of nodes share. */
#include "core/base/fail.h"
#include "nn/layers/nn_layer.h"
#include <stdio.h>
#include <string.h>

tensor_status fl_add_image(struct fl_node *node, int64_t height, int64_t width, int64_t channels) {
    return fl_add_output(node, NULL, (struct fl_shape){4, {node->batch, height, width, channels}});
}

tensor_status fl_add_matrix(struct fl_node *node, int64_t columns) {
    return fl_add_output(node, NULL, (struct fl_shape){2, {node->batch, columns}});
}

tensor_status fl_add_learned(struct fl_node *node, const char *suffix, enum fl_init init, double scale,
                             struct fl_shape shape) {
    return fl_add_weight(node, suffix, FL_LAYOUT_CHANNELS, init, scale, shape);
}

tensor_status fl_add_weight(struct fl_node *node, const char *suffix, enum fl_layout layout, enum fl_init init,
                            double scale, struct fl_shape shape) {
    return fl_add_parameter(
        node, (struct fl_parameter){.suffix = suffix, .shape = shape, .layout = layout, .init = init, .scale = scale});
}

tensor_status fl_same_shape(struct fl_node *node, const struct fl_shape *x) {
    return fl_add_output(node, NULL, x[0]);
}

tensor_status fl_pair_shape(struct fl_node *node, const struct fl_shape *x) {
    TRY(fl_need_pair(node, x));
    return fl_same_shape(node, x);
}

struct fl_shape_words fl_shape_in_words(const struct fl_shape *shape) {
    struct fl_shape_words words = {{0}};
    size_t used = 0;
    for (int d = 0; d < shape->ndim; d++)
        used += (size_t)snprintf(words.text + used, sizeof words.text - used, d ? "x%lld" : "%lld",
                                 (long long)shape->dim[d]);
    return words;
}

tensor_status fl_need_image(const struct fl_node *node, const struct fl_shape *x) {
    return x->ndim == 4 ? TENSOR_OK
                        : fl_fail(TENSOR_E_SHAPE, "%s: %s takes images [N, H, W, C], its input is %s", node->owner,
                                  node->layer->kind, fl_shape_in_words(x).text);
}

tensor_status fl_need_sequence(const struct fl_node *node, const struct fl_shape *x) {
    return x->ndim == 3 ? TENSOR_OK
                        : fl_fail(TENSOR_E_SHAPE, "%s: %s takes sequences [batch, length, width], its input is %s",
                                  node->owner, node->layer->kind, fl_shape_in_words(x).text);
}

tensor_status fl_need_pair(const struct fl_node *node, const struct fl_shape *x) {
    if (x[0].ndim != x[1].ndim || memcmp(x[0].dim, x[1].dim, sizeof x[0].dim[0] * (size_t)x[0].ndim))
        return fl_fail(TENSOR_E_SHAPE, "%s: inputs of different shape: %s and %s", node->owner,
                       fl_shape_in_words(&x[0]).text, fl_shape_in_words(&x[1]).text);
    return TENSOR_OK;
}

tensor_status fl_need_outputs(const struct fl_node *node) {
    return node->how.outputs >= 1
               ? TENSOR_OK
               : fl_fail(TENSOR_E_ARGUMENT, "%s: %d outputs, expected at least 1", node->owner, node->how.outputs);
}

tensor_status fl_need_between(const struct fl_node *node, const char *what, int value, int least, int most) {
    return value >= least && value <= most
               ? TENSOR_OK
               : fl_fail(TENSOR_E_ARGUMENT, "%s: %s %d, expected %d to %d", node->owner, what, value, least, most);
}
