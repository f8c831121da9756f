/* nn_models.c - whole networks by name, for images of any size that they fit. */
#include "nn/nn_graph.h"
#include "core/fail.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PREFIX_BYTES = 40, NAME_BYTES = 64 };

/* Two-layer perceptron (Koster et al. 2017, Fig. 3). */
static nn_node mlp2(nn_graph *g, nn_node x, int classes) {
    x = nn_linear_relu(g, "fc1", x, 128);
    return nn_linear(g, "fc2", x, classes);
}

/* Convolution, batch normalisation, relu. The names end in `suffix`. */
static nn_node conv_bn_relu(nn_graph *g, const char *prefix, int suffix, nn_node x, int filters, int stride) {
    char name[NAME_BYTES];
    snprintf(name, sizeof name, "%sconv%d", prefix, suffix);
    x = nn_conv2d(g, name, x, filters, 3, stride, 1);
    snprintf(name, sizeof name, "%sbn%d", prefix, suffix);
    return nn_batchnorm(g, name, x, true);
}

/* Six weight layers after VGG-A (Simonyan and Zisserman 2014), with batch normalisation: 10.4 million multiply-adds for
 * an image of 32x32x3. */
static nn_node cnn6(nn_graph *g, nn_node x, int classes) {
    x = conv_bn_relu(g, "", 1, x, 32, 1);
    x = nn_maxpool2d(g, "pool1", x, 2, 2);
    x = conv_bn_relu(g, "", 2, x, 32, 1);
    x = conv_bn_relu(g, "", 3, x, 64, 1);
    x = nn_maxpool2d(g, "pool2", x, 2, 2);
    x = conv_bn_relu(g, "", 4, x, 64, 1);
    x = nn_maxpool2d(g, "pool3", x, 2, 2);
    x = nn_linear_relu(g, "fc1", x, 128);
    return nn_linear(g, "fc2", x, classes);
}

/* Two 3x3 convolutions around an identity or option-A shortcut (He et al. 2015, section 4.2). */
static nn_node residual_block(nn_graph *g, const char *prefix, nn_node x, int filters, int stride) {
    char name[NAME_BYTES];
    nn_node shortcut = x;
    x = conv_bn_relu(g, prefix, 1, x, filters, stride);
    snprintf(name, sizeof name, "%sconv2", prefix);
    x = nn_conv2d(g, name, x, filters, 3, 1, 1);
    if (stride > 1) {
        snprintf(name, sizeof name, "%sshortcut", prefix);
        shortcut = nn_shortcut_a(g, name, shortcut, filters, stride);
    }
    snprintf(name, sizeof name, "%sbn2", prefix);
    return nn_batchnorm_add_relu(g, name, x, shortcut);
}

/* 6n + 2 layers: three stages of n blocks with 16, 32, 64 filters. */
static nn_node resnet(nn_graph *g, nn_node x, int classes, int n) {
    char prefix[PREFIX_BYTES];
    x = conv_bn_relu(g, "", 1, x, 16, 1);
    for (int stage = 1; stage <= 3; stage++)
        for (int block = 1; block <= n; block++) {
            snprintf(prefix, sizeof prefix, "stage%d.block%d.", stage, block);
            x = residual_block(g, prefix, x, 8 << stage, stage > 1 && block == 1 ? 2 : 1);
        }
    x = nn_avgpool_global(g, "pool", x);
    return nn_linear(g, "fc", x, classes);
}

static const char *const names[] = {"mlp2",     "cnn6",     "resnet8",  "resnet14", "resnet20",
                                    "resnet32", "resnet44", "resnet56", "resnet110"};

const char *nn_model_list(int i) {
    return i >= 0 && i < (int)(sizeof names / sizeof names[0]) ? names[i] : NULL;
}

/* n of "resnetD" with D = 6n + 2; 0 for any other name, -1 for a depth that has no n. */
static int resnet_blocks(const char *model) {
    if (strncmp(model, "resnet", 6) || !model[6] || strspn(model + 6, "0123456789") != strlen(model + 6))
        return 0;
    long depth = strlen(model + 6) <= 4 ? strtol(model + 6, NULL, 10) : 0;
    return depth >= 8 && (depth - 2) % 6 == 0 ? (int)((depth - 2) / 6) : -1;
}

nn_node nn_model(nn_graph *g, const char *model, int height, int width, int channels, int classes) {
    int n = model ? resnet_blocks(model) : 0;
    bool is_mlp2 = model && !strcmp(model, "mlp2"), is_cnn6 = model && !strcmp(model, "cnn6");
    if (n < 0)
        return fl_build_failed(
            g, fl_fail(TENSOR_E_ARGUMENT, "model '%s': the depth must be 6n + 2: 8, 14, 20, ...", model));
    if (!n && !is_mlp2 && !is_cnn6)
        return fl_build_failed(g, fl_fail(TENSOR_E_ARGUMENT,
                                          "model '%s': expected mlp2, cnn6, resnet20 or resnetD with D = 6n + 2",
                                          model ? model : "(null)"));
    if (classes < 2)
        return fl_build_failed(
            g, fl_fail(TENSOR_E_ARGUMENT, "model '%s': %d classes, expected at least 2", model, classes));
    nn_node x = nn_input(g, height, width, channels);
    return n ? resnet(g, x, classes, n) : is_mlp2 ? mlp2(g, x, classes) : cnn6(g, x, classes);
}
