/* nn_blocks.c - pieces of networks that are several layers: shortcuts of type B, bottlenecks, depthwise separable
 * convolutions. */
#include "nn/layers/nn_layer.h"
#include "core/base/fail.h"
#include <stdio.h>
#include <string.h>

enum { BLOCK_NAME_LIMIT = FL_NAME_LIMIT - 16 }; /* leaves space for the suffixes of the names of its layers */

/* Names of the layers of a block. */
struct names {
    const char *block;
    char text[FL_NAME_LIMIT + 1];
};

static const char *of(struct names *names, const char *layer) {
    snprintf(names->text, sizeof names->text, "%s.%s", names->block, layer);
    return names->text;
}

/* Whether the layers of a block can be built on x; the failure is recorded. */
static bool begin(nn_graph *g, struct names *names, const char *name, nn_node x) {
    const tensor_status status = fl_check_name("block", name, BLOCK_NAME_LIMIT);
    if (status) {
        fl_build_failed(g, status);
        return false;
    }
    names->block = name;
    if (!g || x < 0 || x >= g->handle_count)
        return true; /* the first layer tells */
    const struct fl_shape *shape = &fl_output_of(g, x)->shape;
    if (shape->ndim == 4)
        return true;
    fl_build_failed(g, fl_fail(TENSOR_E_SHAPE, "%s: it takes images [N, H, W, C], its input is %s", name,
                               fl_shape_in_words(shape).text));
    return false;
}

nn_node nn_shortcut_b(nn_graph *g, const char *name, nn_node x, int filters, int stride) {
    struct names names;
    if (!begin(g, &names, name, x))
        return -1;
    x = nn_conv2d(g, of(&names, "conv"), x, filters, 1, &(nn_conv2d_options){.stride = stride});
    return nn_batchnorm(g, of(&names, "bn"), x, NULL);
}

nn_node nn_bottleneck(nn_graph *g, const char *name, nn_node x, int width, int stride) {
    struct names names;
    if (!begin(g, &names, name, x))
        return -1;
    if (width < 1 || width > (1 << 28))
        return fl_build_failed(g, fl_fail(TENSOR_E_ARGUMENT, "%s: width %d, expected 1 to %d", name, width, 1 << 28));
    nn_node shortcut = x;
    if (g && x >= 0 && x < g->handle_count && (stride != 1 || fl_output_of(g, x)->shape.dim[3] != 4 * (int64_t)width)) {
        shortcut = nn_conv2d(g, of(&names, "short.conv"), x, 4 * width, 1, &(nn_conv2d_options){.stride = stride});
        shortcut = nn_batchnorm(g, of(&names, "short.bn"), shortcut, NULL);
    }
    x = nn_conv2d(g, of(&names, "conv1"), x, width, 1, NULL);
    x = nn_batchnorm(g, of(&names, "bn1"), x, &(nn_batchnorm_options){.relu = true});
    x = nn_conv2d(g, of(&names, "conv2"), x, width, 3, &(nn_conv2d_options){.stride = stride, .padding = 1});
    x = nn_batchnorm(g, of(&names, "bn2"), x, &(nn_batchnorm_options){.relu = true});
    x = nn_conv2d(g, of(&names, "conv3"), x, 4 * width, 1, NULL);
    return nn_batchnorm_add_relu(g, of(&names, "bn3"), x, shortcut, NULL);
}

nn_node nn_depthwise_separable(nn_graph *g, const char *name, nn_node x, int filters, int stride) {
    struct names names;
    if (!begin(g, &names, name, x))
        return -1;
    const int64_t channels = g && x >= 0 && x < g->handle_count ? fl_output_of(g, x)->shape.dim[3] : 1;
    if (channels > INT32_MAX)
        return fl_build_failed(
            g, fl_fail(TENSOR_E_SHAPE, "%s: %lld channels, expected at most %d", name, (long long)channels, INT32_MAX));
    x = nn_conv2d(g, of(&names, "depthwise"), x, (int)channels, 3,
                  &(nn_conv2d_options){.stride = stride, .padding = 1, .groups = (int)channels});
    x = nn_batchnorm(g, of(&names, "bn1"), x, &(nn_batchnorm_options){.relu = true});
    x = nn_conv2d(g, of(&names, "pointwise"), x, filters, 1, NULL);
    return nn_batchnorm(g, of(&names, "bn2"), x, &(nn_batchnorm_options){.relu = true});
}
