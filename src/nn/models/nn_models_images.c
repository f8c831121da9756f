/* nn_models_images.c - models for images of about 32x32 pixels: docs/models.md says what each takes from its source and
 * what it changes. */
#include "nn/models/nn_models_images.h"
#include <stdio.h>

enum { PREFIX_BYTES = 40, NAME_BYTES = 64 };

/* Names of layers in a block: each use of name_of overwrites the one before. */
struct names {
    const char *prefix;
    char text[NAME_BYTES];
};

static const char *name_of(struct names *names, const char *layer) {
    snprintf(names->text, sizeof names->text, "%s%s", names->prefix, layer);
    return names->text;
}

/* Convolution, batch normalisation, relu. */
static nn_node conv_bn_relu(nn_graph *g, const char *prefix, const char *number, nn_node x, int filters, int stride) {
    char name[2 * NAME_BYTES];
    snprintf(name, sizeof name, "%sconv%s", prefix, number);
    x = nn_conv2d(g, name, x, filters, 3, &(nn_conv2d_options){.stride = stride, .padding = 1});
    snprintf(name, sizeof name, "%sbn%s", prefix, number);
    return nn_batchnorm(g, name, x, &(nn_batchnorm_options){.relu = true});
}

/* --- small networks ----------------------------------------------------------------------------------------------- */

/* Two-layer perceptron (Koster et al. 2017, Fig. 3). */
nn_node fl_mlp2(nn_graph *g, nn_node x, int classes, int number) {
    (void)number;
    x = nn_linear(g, "fc1", x, 128, true);
    return nn_linear(g, "fc2", x, classes, false);
}

/* Perceptron of any depth. Weights begin uniform within 1/sqrt(inputs): a sixth of the variance that He et al. 2015
 * derive for relu, so that signals and gradients shrink by sqrt(6) a layer. */
nn_node fl_mlp(nn_graph *g, nn_node x, int classes, int number) {
    const int depth = number % FL_WIDTH, width = number / FL_WIDTH;
    char name[NAME_BYTES];
    for (int i = 1; i < depth; i++) {
        snprintf(name, sizeof name, "fc%d", i);
        x = nn_linear(g, name, x, width, false);
        snprintf(name, sizeof name, "relu%d", i);
        x = nn_relu(g, name, x);
    }
    snprintf(name, sizeof name, "fc%d", depth);
    return nn_linear(g, name, x, classes, false);
}

/* Six weight layers after VGG-A (Simonyan and Zisserman 2014), with batch normalisation: 10.4 million multiply-adds for
 * an image of 32x32x3. */
nn_node fl_cnn6(nn_graph *g, nn_node x, int classes, int number) {
    (void)number;
    x = conv_bn_relu(g, "", "1", x, 32, 1);
    x = nn_maxpool2d(g, "pool1", x, 2, &(nn_pool2d_options){.stride = 2});
    x = conv_bn_relu(g, "", "2", x, 32, 1);
    x = conv_bn_relu(g, "", "3", x, 64, 1);
    x = nn_maxpool2d(g, "pool2", x, 2, &(nn_pool2d_options){.stride = 2});
    x = conv_bn_relu(g, "", "4", x, 64, 1);
    x = nn_maxpool2d(g, "pool3", x, 2, &(nn_pool2d_options){.stride = 2});
    x = nn_linear(g, "fc1", x, 128, true);
    return nn_linear(g, "fc2", x, classes, false);
}

/* --- LeNet-5 (LeCun et al. 1998, section II.B) -------------------------------------------------------------------- */

/* Images below 32x32 are padded by two pixels, as the paper's are. */
nn_node fl_lenet(nn_graph *g, nn_node x, int classes, int number) {
    (void)number;
    const struct fl_shape *image = x >= 0 ? &fl_output_of(g, x)->shape : NULL;
    const int padding = image && (image->dim[1] < 32 || image->dim[2] < 32) ? 2 : 0;
    const nn_window half = {.window = 2, .stride = 2};
    x = nn_conv2d(g, "c1", x, 6, 5, &(nn_conv2d_options){.padding = padding, .bias_after = true, .relu = true});
    x = nn_avgpool2d(g, "s2", x, half, true);
    x = nn_conv2d(g, "c3", x, 16, 5, &(nn_conv2d_options){.bias_after = true, .relu = true});
    x = nn_avgpool2d(g, "s4", x, half, true);
    x = nn_conv2d(g, "c5", x, 120, 5, &(nn_conv2d_options){.bias_after = true, .relu = true});
    x = nn_linear(g, "f6", x, 84, true);
    return nn_linear(g, "output", x, classes, false);
}

/* --- AlexNet (Krizhevsky et al. 2012, section 3) ------------------------------------------------------------------ */

/* The paper's normalisation: k 2, n 5, alpha 1e-4 for the sum (tensor_lrn divides it by n), beta 0.75. */
static nn_node alexnet_lrn(nn_graph *g, const char *name, nn_node x) {
    return nn_lrn(g, name, x, 5, 5e-4f, 0.75f, 2);
}

nn_node fl_alexnet(nn_graph *g, nn_node x, int classes, int number) {
    (void)number;
    x = nn_conv2d(g, "conv1", x, 64, 5, &(nn_conv2d_options){.padding = 2, .bias_after = true, .relu = true});
    x = alexnet_lrn(g, "norm1", x);
    x = nn_maxpool2d(g, "pool1", x, 3, &(nn_pool2d_options){.stride = 2});
    x = nn_conv2d(g, "conv2", x, 192, 5, &(nn_conv2d_options){.padding = 2, .bias_after = true, .relu = true});
    x = alexnet_lrn(g, "norm2", x);
    x = nn_maxpool2d(g, "pool2", x, 3, &(nn_pool2d_options){.stride = 2});
    x = nn_conv2d(g, "conv3", x, 384, 3, &(nn_conv2d_options){.padding = 1, .bias_after = true, .relu = true});
    x = nn_conv2d(g, "conv4", x, 256, 3, &(nn_conv2d_options){.padding = 1, .bias_after = true, .relu = true});
    x = nn_conv2d(g, "conv5", x, 256, 3, &(nn_conv2d_options){.padding = 1, .bias_after = true, .relu = true});
    x = nn_maxpool2d(g, "pool5", x, 3, &(nn_pool2d_options){.stride = 2});
    x = nn_dropout(g, "drop6", nn_linear(g, "fc6", x, 1024, true), 0.5f);
    x = nn_dropout(g, "drop7", nn_linear(g, "fc7", x, 1024, true), 0.5f);
    return nn_linear(g, "fc8", x, classes, false);
}

/* --- VGG (Simonyan and Zisserman 2014, Table 1), with batch normalisation ------------------------------------------
 */

/* Five stages, each of which ends with a pooling; the mean of all pixels and one linear layer end the network. */
nn_node fl_vgg(nn_graph *g, nn_node x, int classes, int depth) {
    static const int filters[] = {64, 128, 256, 512, 512}, of_11[] = {1, 1, 2, 2, 2}, of_16[] = {2, 2, 3, 3, 3};
    char prefix[PREFIX_BYTES], number[NAME_BYTES];
    for (int stage = 0; stage < 5; stage++) {
        snprintf(prefix, sizeof prefix, "stage%d.", stage + 1);
        for (int i = 0; i < (depth == 11 ? of_11 : of_16)[stage]; i++) {
            snprintf(number, sizeof number, "%d", i + 1);
            x = conv_bn_relu(g, prefix, number, x, filters[stage], 1);
        }
        snprintf(number, sizeof number, "%spool", prefix);
        x = nn_maxpool2d(g, number, x, 2, &(nn_pool2d_options){.stride = 2});
    }
    x = nn_avgpool_global(g, "pool", x);
    return nn_linear(g, "fc", x, classes, false);
}

/* --- residual networks (He et al. 2015) --------------------------------------------------------------------------- */

/* Two 3x3 convolutions around the shortcut, which is of type A or B where the shape changes. */
static nn_node residual_block(nn_graph *g, const char *prefix, nn_node x, int filters, int stride, bool type_b) {
    struct names names = {.prefix = prefix};
    nn_node shortcut = x;
    x = conv_bn_relu(g, prefix, "1", x, filters, stride);
    x = nn_conv2d(g, name_of(&names, "conv2"), x, filters, 3, &(nn_conv2d_options){.padding = 1});
    if (stride > 1)
        shortcut = (type_b ? nn_shortcut_b : nn_shortcut_a)(g, name_of(&names, "shortcut"), shortcut, filters, stride);
    return nn_batchnorm_add_relu(g, name_of(&names, "bn2"), x, shortcut, NULL);
}

static nn_node end_of_resnet(nn_graph *g, nn_node x, int classes) {
    x = nn_avgpool_global(g, "pool", x);
    return nn_linear(g, "fc", x, classes, false);
}

/* 6n + 2 layers: three stages of n blocks with 16, 32, 64 filters. */
static nn_node resnet(nn_graph *g, nn_node x, int classes, int depth, bool type_b) {
    char prefix[PREFIX_BYTES];
    x = conv_bn_relu(g, "", "1", x, 16, 1);
    for (int stage = 1; stage <= 3; stage++)
        for (int block = 1; block <= (depth - 2) / 6; block++) {
            snprintf(prefix, sizeof prefix, "stage%d.block%d.", stage, block);
            x = residual_block(g, prefix, x, 8 << stage, stage > 1 && block == 1 ? 2 : 1, type_b);
        }
    return end_of_resnet(g, x, classes);
}

nn_node fl_resnet(nn_graph *g, nn_node x, int classes, int depth) {
    return resnet(g, x, classes, depth, false);
}

nn_node fl_resnet_b(nn_graph *g, nn_node x, int classes, int depth) {
    return resnet(g, x, classes, depth, true);
}

/* Three stages of n bottlenecks whose 3x3 convolutions have 16, 32, 64 filters. */
nn_node fl_resnet_bottleneck(nn_graph *g, nn_node x, int classes, int depth) {
    char name[NAME_BYTES];
    x = conv_bn_relu(g, "", "1", x, 16, 1);
    for (int stage = 1; stage <= 3; stage++)
        for (int block = 1; block <= (depth - 2) / 9; block++) {
            snprintf(name, sizeof name, "stage%d.block%d", stage, block);
            x = nn_bottleneck(g, name, x, 8 << stage, stage > 1 && block == 1 ? 2 : 1);
        }
    return end_of_resnet(g, x, classes);
}

/* --- wide residual networks (Zagoruyko and Komodakis 2016), normalised before each convolution ---------------------
 */

static nn_node wide_block(nn_graph *g, const char *prefix, nn_node x, int filters, int stride, bool changes) {
    struct names names = {.prefix = prefix};
    const nn_node before = nn_batchnorm(g, name_of(&names, "bn1"), x, &(nn_batchnorm_options){.relu = true});
    const nn_node shortcut =
        changes ? nn_conv2d(g, name_of(&names, "shortcut"), before, filters, 1, &(nn_conv2d_options){.stride = stride})
                : x;
    nn_node y = nn_conv2d(g, name_of(&names, "conv1"), before, filters, 3,
                          &(nn_conv2d_options){.stride = stride, .padding = 1});
    y = nn_batchnorm(g, name_of(&names, "bn2"), y, &(nn_batchnorm_options){.relu = true});
    y = nn_conv2d(g, name_of(&names, "conv2"), y, filters, 3, &(nn_conv2d_options){.padding = 1});
    return nn_add(g, name_of(&names, "add"), y, shortcut, false);
}

nn_node fl_wide_resnet(nn_graph *g, nn_node x, int classes, int number) {
    const int depth = number % FL_WIDTH, width = number / FL_WIDTH;
    char prefix[PREFIX_BYTES];
    int channels = 16;
    x = nn_conv2d(g, "conv1", x, channels, 3, &(nn_conv2d_options){.padding = 1});
    for (int stage = 1; stage <= 3; stage++)
        for (int block = 1; block <= (depth - 4) / 6; block++) {
            const int filters = (8 << stage) * width, stride = stage > 1 && block == 1 ? 2 : 1;
            snprintf(prefix, sizeof prefix, "stage%d.block%d.", stage, block);
            x = wide_block(g, prefix, x, filters, stride, filters != channels);
            channels = filters;
        }
    x = nn_batchnorm(g, "bn", x, &(nn_batchnorm_options){.relu = true});
    return end_of_resnet(g, x, classes);
}

/* --- MobileNet (Howard et al. 2017, Table 1) -----------------------------------------------------------------------
 */

/* The first convolution preserves the size of the image, which is small. */
nn_node fl_mobilenet(nn_graph *g, nn_node x, int classes, int number) {
    static const int filters[] = {64, 128, 128, 256, 256, 512, 512, 512, 512, 512, 512, 1024, 1024};
    (void)number;
    x = conv_bn_relu(g, "", "1", x, 32, 1);
    for (int i = 0; i < (int)(sizeof filters / sizeof filters[0]); i++) {
        char name[NAME_BYTES];
        const bool halves = i == 1 || i == 3 || i == 5 || i == 11;
        snprintf(name, sizeof name, "block%d", i + 1);
        x = nn_depthwise_separable(g, name, x, filters[i], halves ? 2 : 1);
    }
    return end_of_resnet(g, x, classes);
}
