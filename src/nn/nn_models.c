/* nn_models.c - whole networks by name, for images of any size that they fit. */
#include "nn/nn_graph.h"
#include "core/fail.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PREFIX_BYTES = 40, NAME_BYTES = 64 };

/* Two-layer perceptron (Koster et al. 2017, Fig. 3). */
static nn_node mlp2(nn_graph *g, nn_node x, int classes, int depth) {
    (void)depth;
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
static nn_node cnn6(nn_graph *g, nn_node x, int classes, int depth) {
    (void)depth;
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
static nn_node resnet(nn_graph *g, nn_node x, int classes, int depth) {
    const int n = (depth - 2) / 6;
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

/* --- models by name ----------------------------------------------------------------------------------------------- */

/* depth: the number in the name of a residual network. */
struct model {
    const char *name;
    nn_node (*build)(nn_graph *g, nn_node x, int classes, int depth);
    int depth;
};

static const struct model models[] = {
    {"mlp2", mlp2, 0},        {"cnn6", cnn6, 0},        {"resnet8", resnet, 8},
    {"resnet14", resnet, 14}, {"resnet20", resnet, 20}, {"resnet32", resnet, 32},
    {"resnet44", resnet, 44}, {"resnet56", resnet, 56}, {"resnet110", resnet, 110},
};
enum { MODELS = sizeof models / sizeof models[0] };

const char *nn_model_list(int i) {
    return i >= 0 && i < MODELS ? models[i].name : NULL;
}

/* D of "resnetD"; -1 for any other name. */
static int resnet_depth(const char *name) {
    if (strncmp(name, "resnet", 6) || !name[6] || strspn(name + 6, "0123456789") != strlen(name + 6))
        return -1;
    return strlen(name + 6) <= 4 ? (int)strtol(name + 6, NULL, 10) : 0;
}

static tensor_status find_model(const char *name, struct model *model) {
    for (int i = 0; name && i < MODELS; i++)
        if (!strcmp(models[i].name, name)) {
            *model = models[i];
            return TENSOR_OK;
        }
    const int depth = name ? resnet_depth(name) : -1;
    if (depth < 0) {
        char known[400] = "";
        size_t used = 0;
        for (int i = 0; i < MODELS && used < sizeof known; i++)
            used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", models[i].name);
        return fl_fail(TENSOR_E_ARGUMENT, "model '%s': expected one of %s, or resnetD with D = 6n + 2",
                       name ? name : "(null)", known);
    }
    if (depth < 8 || (depth - 2) % 6)
        return fl_fail(TENSOR_E_ARGUMENT, "model '%s': the depth must be 6n + 2: 8, 14, 20, ...", name);
    *model = (struct model){name, resnet, depth};
    return TENSOR_OK;
}

nn_node nn_model(nn_graph *g, const char *name, int height, int width, int channels, int classes) {
    struct model model;
    tensor_status status = find_model(name, &model);
    if (status)
        return fl_build_failed(g, status);
    if (classes < 2)
        return fl_build_failed(
            g, fl_fail(TENSOR_E_ARGUMENT, "model '%s': %d classes, expected at least 2", name, classes));
    return model.build(g, nn_input(g, height, width, channels), classes, model.depth);
}
