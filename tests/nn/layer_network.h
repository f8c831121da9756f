/* layer_network.h - a network of every kind of layer, for tests that walk models. */
#ifndef FL_LAYER_NETWORK_H
#define FL_LAYER_NETWORK_H

#include "flexlab/nn.h"

/* Every kind of layer once, small enough for the reference kernels at any batch. */
static nn_node all_layers(nn_graph *g, int classes) {
    nn_node x = nn_input(g, 6, 6, 2);
    x = nn_conv2d(g, "conv1", x, 3, 3, 1, 1);
    x = nn_batchnorm(g, "bn1", x, true);
    x = nn_maxpool2d(g, "pool1", x, 2, 2);
    nn_node y = nn_conv2d(g, "conv2", x, 4, 3, 2, 1);
    nn_node s = nn_shortcut_a(g, "shortcut", x, 4, 2);
    x = nn_batchnorm_add_relu(g, "bn2", y, s);
    y = nn_conv2d_window(g, "conv3", x, 4, (nn_window){.window = 1, .stride = 1, .groups = 2});
    y = nn_batchnorm(g, "bn3", y, false);
    x = nn_add_relu(g, "add", x, y);
    y = nn_relu(g, "relu", x);
    x = nn_avgpool2d(g, "pool2", y, (nn_window){.window = 2, .stride = 1, .padding = 1}, false);
    x = nn_groupnorm(g, "gn", x, 2, 0);
    x = nn_add(g, "sum", x, nn_lrn(g, "lrn", x, 3, 1, 0.75f, 1));
    x = nn_bias(g, "bias", nn_avgpool_adaptive(g, "pool3", x, 2, 1), true);
    x = nn_dropout(g, "dropout", x, 0.25f);
    x = nn_avgpool_global(g, "pool", x);
    x = nn_linear_relu(g, "fc1", x, 5);
    return nn_linear(g, "fc2", x, classes);
}

#endif
