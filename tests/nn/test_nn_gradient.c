/* Gradients of every kind of layer against central differences of the loss, in fp32 on small networks.
 *
 * For a parameter w and a direction d of signs, D(h) = (L(w + h d) - L(w - h d)) / 2h. Three errors of D(h/2):
 *
 * Truncation, c h^2 and more: D(h) - D(h/2) is 3 times as large.
 *
 * A bend of relu, or a change of winner in maxpool, at distance t < h/2 on one side adds J (h/2 - t) / h, where J is
 * the jump of the slope. The difference of the two one-sided quotients is twice that. It counts twice, from the larger
 * of the differences at h and h/2, because several bends may cancel in one of them.
 *
 * Rounding: the loss carries at most ROUNDINGS units of 2^-24 relative to terms of size 1 + loss; two of them over h.
 *
 * The sum is the bound on |D(h/2) - g.d|. A direction where it is not small against the gradient (a bend too near) says
 * nothing and is drawn again. */
#include "check.h"
#include "flexlab/nn.h"
#include "node_rows.h"
#include <math.h>
#include <string.h>

enum { BATCH = 4, SIZE = 6, CHANNELS = 2, CLASSES = 3, ROUNDINGS = 4, DIRECTIONS = 4, TRIES = 60, LIMIT = 4096 };

static uint64_t state;
static bool reads_tokens;
enum { LENGTH = 5, VOCABULARY = 7 };
static float images[BATCH * SIZE * SIZE * CHANNELS];
static int32_t labels[BATCH * LENGTH], tokens[BATCH * LENGTH];

static double unit(void) {
    return (double)(check_random(&state) >> 11) * 0x1p-52 - 1;
} /* [-1, 1) */

/* --- one network for each layer ------------------------------------------------------------------------------------
 */

static nn_node conv_then_linear(nn_graph *g, nn_node x) {
    x = nn_conv2d(g, "conv1", x, 3, 3, &(nn_conv2d_options){.padding = 1});
    x = nn_conv2d(g, "conv2", x, 4, 3, &(nn_conv2d_options){.stride = 2});
    return nn_linear(g, "fc", x, CLASSES, false);
}
static nn_node dilated_and_grouped(nn_graph *g, nn_node x) {
    x = nn_conv2d(g, "dilated", x, 6, 3, &(nn_conv2d_options){.padding = 2, .dilation = 2});
    x = nn_conv2d(g, "grouped", x, 9, 3, &(nn_conv2d_options){.stride = 2, .padding = 2, .dilation = 2, .groups = 3});
    x = nn_conv2d(g, "depthwise", x, 9, 2, &(nn_conv2d_options){.groups = 9});
    return nn_linear(g, "fc", x, CLASSES, false);
}
static nn_node asymmetric(nn_graph *g, nn_node x) {
    x = nn_conv2d(
        g, "conv", x, 4, 0,
        &(nn_conv2d_options){
            .bias = true,
            .window = &(tensor_window2d){
                .window = {2, 3}, .stride = {1, 2}, .padding = {2, 0, 1, 3}, .dilation = {2, 1}, .groups = 2}});
    x = nn_maxpool2d(
        g, "pool", x, 0,
        &(nn_pool2d_options){.window = &(tensor_window2d){
                                 .window = {3, 2}, .stride = {2, 1}, .padding = {0, 1, 1, 0}, .dilation = {1, 2}}});
    x = nn_conv_transpose2d(
        g, "up", x, 6, 0,
        &(nn_conv2d_options){
            .bias = true,
            .window = &(tensor_window2d){
                .window = {2, 3}, .stride = {2, 3}, .padding = {1, 0, 0, 2}, .groups = 2, .output_padding = {1, 0}}});
    return nn_linear(g, "fc", x, CLASSES, false);
}

/* An image becomes a sequence of its pixels, and a sequence an image of one line. */
static tensor_status line_shape(struct fl_node *node, const struct fl_shape *x) {
    return fl_add_output(node, NULL, (struct fl_shape){3, {x->dim[0], x->dim[1] * x->dim[2], x->dim[3]}});
}
static tensor_status image_shape(struct fl_node *node, const struct fl_shape *x) {
    return fl_add_output(node, NULL, (struct fl_shape){4, {x->dim[0], 1, x->dim[1], x->dim[2]}});
}
static const enum fl_input_gradient same[] = {FL_GRADIENT_SAME};
static const struct fl_layer line_row = {"line", 1, .views = 1, .gradient = same, .shape = line_shape},
                             image_row = {"image", 1, .views = 1, .gradient = same, .shape = image_shape};

static nn_node sequences(nn_graph *g, nn_node x) {
    const struct fl_options none = {0};
    x = fl_add_node(g, &line_row, "line", "line", &x, 1, &none);
    x = nn_conv1d(g, "causal", x, 4, &(tensor_window1d){.window = 3, .stride = 1, .padding = {4, 0}, .dilation = 2},
                  true);
    x = nn_conv1d(g, "strided", x, 6, &(tensor_window1d){.window = 4, .stride = 3, .padding = {1, 2}, .groups = 2},
                  false);
    x = nn_conv_transpose1d(g, "up", x, 4,
                            &(tensor_window1d){.window = 3, .stride = 2, .padding = {1, 0}, .output_padding = 1}, true);
    x = nn_maxpool1d(g, "pool", x, &(tensor_window1d){.window = 3, .stride = 2, .padding = {1, 1}});
    x = fl_add_node(g, &image_row, "image", "image", &x, 1, &none);
    return nn_linear(g, "fc", x, CLASSES, false);
}
static nn_node batchnorm(nn_graph *g, nn_node x) {
    x = nn_batchnorm(g, "bn0", x, NULL); /* directly on the input */
    x = nn_conv2d(g, "conv1", x, 3, 2, &(nn_conv2d_options){.stride = 2, .padding = 1});
    x = nn_batchnorm(g, "bn1", x, NULL);
    x = nn_conv2d(g, "conv2", x, 3, 3, &(nn_conv2d_options){.padding = 1});
    x = nn_batchnorm(g, "bn2", x, &(nn_batchnorm_options){.relu = true});
    return nn_linear(g, "fc", x, CLASSES, false);
}
static nn_node linear_relu(nn_graph *g, nn_node x) {
    x = nn_linear(g, "fc1", x, 7, true);
    x = nn_batchnorm(g, "bn", x, NULL);
    x = nn_linear(g, "fc2", x, 6, false);
    x = nn_relu(g, "relu", x);
    return nn_linear(g, "fc3", x, CLASSES, false);
}
static nn_node relu(nn_graph *g, nn_node x) {
    x = nn_relu(g, "relu0", x); /* nothing to learn before it */
    x = nn_conv2d(g, "conv", x, 5, 3, NULL);
    x = nn_relu(g, "relu", x);
    return nn_linear(g, "fc", x, CLASSES, false);
}
static nn_node maxpool(nn_graph *g, nn_node x) {
    x = nn_maxpool2d(g, "pool0", x, 3, NULL);
    x = nn_conv2d(g, "conv", x, 4, 3, &(nn_conv2d_options){.padding = 1});
    x = nn_maxpool2d(g, "pool1", x, 3, &(nn_pool2d_options){.stride = 2}); /* windows overlap */
    return nn_linear(g, "fc", x, CLASSES, false);
}
/* Channels are weighted by a function of their means, scaled, shifted and clamped. */
static nn_node broadcast(nn_graph *g, nn_node x) {
    x = nn_channel_scale(g, "scale0", x); /* directly on the input */
    x = nn_conv2d(g, "conv", x, 4, 3, &(nn_conv2d_options){.padding = 1});
    const nn_node mean = nn_reduce_mean(g, "mean", x, 6, true);
    const nn_node gate = nn_conv2d(g, "gate", mean, 4, 1, NULL), shift = nn_conv2d(g, "shift", mean, 1, 1, NULL);
    x = nn_broadcast_mul(g, "weighted", x, gate);
    x = nn_channel_scale(g, "scale", x);
    x = nn_broadcast_add(g, "shifted", x, shift);
    x = nn_clamp(g, "clamp", x, -0.5f, 0.75f);
    x = nn_broadcast_mul(g, "square", x, x);
    x = nn_reduce_mean(g, "rows", x, 2, false); /* [N, W, C] */
    x = nn_reduce_mean(g, "columns", x, 2, false);
    return nn_linear(g, "fc", x, CLASSES, false);
}
static nn_node avgpool(nn_graph *g, nn_node x) {
    x = nn_conv2d(g, "conv", x, 5, 3, &(nn_conv2d_options){.stride = 2, .padding = 1});
    x = nn_avgpool_global(g, "pool", x);
    return nn_linear(g, "fc", x, CLASSES, false);
}
static nn_node shortcut(nn_graph *g, nn_node x) {
    x = nn_conv2d(g, "conv", x, 2, 3, &(nn_conv2d_options){.padding = 1});
    nn_node s = nn_shortcut_a(g, "shortcut", x, 5, 2);
    x = nn_conv2d(g, "conv2", x, 5, 3, &(nn_conv2d_options){.stride = 2, .padding = 1});
    x = nn_add(g, "add", x, s, true);
    return nn_linear(g, "fc", x, CLASSES, false);
}
static nn_node fan_out(nn_graph *g, nn_node x) {
    x = nn_conv2d(g, "conv", x, 3, 3, &(nn_conv2d_options){.padding = 1});
    nn_node a = nn_conv2d(g, "a", x, 3, 3, &(nn_conv2d_options){.padding = 1});
    nn_node b = nn_relu(g, "b", x);
    nn_node c = nn_add(g, "c", a, x, true);
    nn_node d = nn_add(g, "d", c, b, true);
    nn_node e = nn_add(g, "e", d, x, true); /* x is used four times */
    nn_node twice = nn_add(g, "twice", e, e, true);
    return nn_linear(g, "fc", twice, CLASSES, false);
}
static nn_node linear_fan_out(nn_graph *g, nn_node x) {
    x = nn_linear(g, "fc1", x, 5, false);
    nn_node a = nn_linear(g, "a", x, 5, false); /* its bias passes the gradient of the sum on as it is */
    nn_node sum = nn_add(g, "sum", a, x, true);
    return nn_linear(g, "fc2", sum, CLASSES, false);
}
static nn_node input_twice(nn_graph *g, nn_node x) {
    nn_node a = nn_conv2d(g, "a", x, 2, 3, &(nn_conv2d_options){.padding = 1});
    nn_node sum = nn_add(g, "sum", x, a, true); /* the first operand needs no gradient */
    nn_node b = nn_batchnorm(g, "b", x, &(nn_batchnorm_options){.relu = true});
    return nn_linear(g, "fc", nn_add(g, "sum2", b, sum, true), CLASSES, false);
}
static nn_node lstm(nn_graph *g, nn_node x) { /* lines of the image, and an LSTM on one */
    x = nn_lstm(g, "lstm1", x, 5);
    x = nn_lstm(g, "lstm2", x, 3);
    return nn_linear(g, "fc", nn_last_step(g, "last", x), CLASSES, false);
}
static nn_node gru(nn_graph *g, nn_node x) {
    x = nn_gru(g, "gru1", nn_conv2d(g, "conv", x, 2, 3, &(nn_conv2d_options){.padding = 1}), 5);
    x = nn_gru(g, "gru2", x, 4);
    return nn_linear(g, "fc", nn_last_step(g, "last", x), CLASSES, false);
}
static nn_node residual(nn_graph *g, nn_node x) {
    for (int block = 0; block < 3; block++) {
        char name[16];
        nn_node s = x;
        for (int i = 0; i < 2; i++) {
            snprintf(name, sizeof name, "conv%d%d", block, i);
            x = nn_conv2d(g, name, x, CHANNELS + block, 3, &(nn_conv2d_options){.padding = 1});
            snprintf(name, sizeof name, "bn%d%d", block, i);
            x = nn_batchnorm(g, name, x, &(nn_batchnorm_options){.relu = i == 0});
        }
        snprintf(name, sizeof name, "short%d", block);
        s = block ? nn_shortcut_a(g, name, s, CHANNELS + block, 1) : s;
        snprintf(name, sizeof name, "add%d", block);
        x = nn_add(g, name, x, s, true);
    }
    x = nn_avgpool_global(g, "pool", x);
    return nn_linear(g, "fc", x, CLASSES, false);
}

/* Residuals: from the input (nothing to learn), gated by a sum of gradients, and as the only one before the last
 * layer. */
static nn_node batchnorm_add(nn_graph *g, nn_node x) {
    nn_node a = nn_batchnorm_add_relu(
        g, "bn1", nn_conv2d(g, "conv1", x, CHANNELS, 3, &(nn_conv2d_options){.padding = 1}), x, NULL);
    nn_node b = nn_batchnorm_add_relu(
        g, "bn2", nn_conv2d(g, "conv2", a, CHANNELS, 3, &(nn_conv2d_options){.padding = 1}), a, NULL);
    nn_node c = nn_batchnorm_add_relu(
        g, "bn3", nn_conv2d(g, "conv3", b, CHANNELS, 3, &(nn_conv2d_options){.padding = 1}), b, NULL);
    return nn_linear(g, "fc", c, CLASSES, false);
}
static nn_node means(nn_graph *g, nn_node x) {
    x = nn_avgpool2d(g, "pool0", x, (nn_window){.window = 3, .stride = 1, .padding = 1}, false);
    x = nn_conv2d(g, "conv1", x, 3, 3, &(nn_conv2d_options){.padding = 1, .bias_after = true});
    x = nn_avgpool2d(g, "pool1", x, (nn_window){.window = 3, .stride = 2, .padding = 2}, false);
    x = nn_conv2d(g, "conv2", x, 4, 2, &(nn_conv2d_options){.padding = 1, .bias_after = true, .relu = true});
    x = nn_avgpool2d(g, "pool2", x, (nn_window){.window = 2, .stride = 2, .padding = 1}, true);
    x = nn_avgpool_adaptive(g, "pool3", x, 2, 5); /* fewer lines, more columns */
    return nn_linear(g, "fc", x, CLASSES, false);
}
static nn_node lrn(nn_graph *g, nn_node x) {
    x = nn_conv2d(g, "conv1", x, 7, 3, NULL);
    x = nn_lrn(g, "norm1", x, 5, 2, 0.75f, 1);
    x = nn_conv2d(g, "conv2", x, 4, 3, &(nn_conv2d_options){.padding = 1});
    x = nn_lrn(g, "norm2", x, 4, 1, 0.6f, 0.5f);
    return nn_linear(g, "fc", x, CLASSES, false);
}
static nn_node groupnorm(nn_graph *g, nn_node x) {
    x = nn_groupnorm(g, "norm0", x, 1, 0.1); /* directly on the input */
    x = nn_conv2d(g, "conv1", x, 6, 3, &(nn_conv2d_options){.padding = 1});
    x = nn_groupnorm(g, "norm1", x, 3, 0);
    x = nn_conv2d(g, "conv2", x, 4, 3, &(nn_conv2d_options){.stride = 2, .padding = 1});
    x = nn_groupnorm(g, "norm2", x, 4, 0.5); /* instances */
    return nn_linear(g, "fc", x, CLASSES, false);
}
static nn_node settings(nn_graph *g, nn_node x) {
    const nn_batchnorm_options slow = {.epsilon = 0.5, .momentum = 0.01}, relu = {.epsilon = 2, .relu = true};
    nn_node a =
        nn_batchnorm(g, "bn1", nn_conv2d(g, "conv1", x, CHANNELS, 3, &(nn_conv2d_options){.padding = 1}), &slow);
    a = nn_batchnorm(g, "bn2", nn_conv2d(g, "conv2", a, CHANNELS, 3, &(nn_conv2d_options){.padding = 1}), &relu);
    a = nn_batchnorm_add_relu(g, "bn3", nn_conv2d(g, "conv3", a, CHANNELS, 3, &(nn_conv2d_options){.padding = 1}), x,
                              &slow);
    return nn_linear(g, "fc", a, CLASSES, false);
}
static nn_node sums(nn_graph *g, nn_node x) {
    nn_node a = nn_conv2d(g, "conv1", x, 3, 3, &(nn_conv2d_options){.padding = 1});
    nn_node b = nn_bias(g, "bias", nn_add(g, "sum1", a, nn_relu(g, "relu", a), false), false);
    nn_node c = nn_bias(g, "bias_relu", nn_add(g, "sum2", b, a, false), true);
    return nn_linear(g, "fc", nn_add(g, "twice", c, c, false), CLASSES, false);
}
static nn_node bottleneck(nn_graph *g, nn_node x) {
    return nn_linear(g, "fc", nn_bottleneck(g, "a", x, 2, 1), CLASSES, false);
}
static nn_node same_bottleneck(nn_graph *g, nn_node x) {
    x = nn_conv2d(g, "conv", x, 8, 3, &(nn_conv2d_options){.stride = 2, .padding = 1});
    return nn_linear(g, "fc", nn_bottleneck(g, "a", x, 2, 1), CLASSES, false); /* the identity */
}
static nn_node separable(nn_graph *g, nn_node x) {
    return nn_linear(g, "fc", nn_depthwise_separable(g, "a", x, 3, 2), CLASSES, false);
}
static nn_node shortcut_b(nn_graph *g, nn_node x) {
    x = nn_conv2d(g, "conv", x, 3, 3, &(nn_conv2d_options){.padding = 1});
    x = nn_add(g, "sum", nn_shortcut_b(g, "short", x, 4, 2),
               nn_conv2d(g, "conv2", x, 4, 3, &(nn_conv2d_options){.stride = 2, .padding = 1}), false);
    return nn_linear(g, "fc", x, CLASSES, false);
}
/* Layers with ReLU whose output is used twice. */
static nn_node gated_images(nn_graph *g, nn_node x) {
    x = nn_relu(g, "relu", nn_conv2d(g, "conv", x, 3, 3, &(nn_conv2d_options){.padding = 1}));
    x = nn_add(g, "add", nn_conv2d(g, "conv2", x, 3, 3, &(nn_conv2d_options){.padding = 1}), x, true);
    return nn_linear(g, "fc", x, CLASSES, false);
}
static nn_node gated_batchnorm(nn_graph *g, nn_node x) {
    x = nn_batchnorm(g, "bn", nn_conv2d(g, "conv", x, 3, 3, &(nn_conv2d_options){.padding = 1}),
                     &(nn_batchnorm_options){.relu = true});
    x = nn_add(g, "add", nn_conv2d(g, "conv2", x, 3, 3, &(nn_conv2d_options){.padding = 1}), x, true);
    return nn_linear(g, "fc", x, CLASSES, false);
}
static nn_node gated_linear(nn_graph *g, nn_node x) {
    x = nn_linear(g, "fc1", x, 7, true);
    x = nn_add(g, "add", nn_linear(g, "fc2", x, 7, false), x, true);
    return nn_linear(g, "fc3", x, CLASSES, false);
}

/* Nodes with several inputs and outputs: all of them used, and more than once; only one output used; an output that is
 * the logits; inputs with nothing to learn before them. */
static nn_node mixed(nn_graph *g, nn_node x) {
    return mixed_network(g, x, CLASSES);
}
static nn_node mixer_inputs(nn_graph *g, nn_node x, int outputs) {
    return add_mixer(g, "mixer", nn_linear(g, "a", x, 5, false), nn_linear(g, "b", x, outputs, false),
                     nn_linear(g, "c", x, outputs, false));
}
static nn_node mixer_once(nn_graph *g, nn_node x) {
    nn_node hot = mixer_inputs(g, x, 4);
    return nn_linear(g, "fc", nn_add(g, "add", hot, hot + 1, true), CLASSES, false);
}
static nn_node hot_alone(nn_graph *g, nn_node x) {
    nn_node c = nn_avgpool_global(g, "pool", x);
    nn_node hot = add_mixer(g, "mixer", nn_linear(g, "a", x, 5, false), nn_linear(g, "b", x, CHANNELS, false), c);
    return nn_linear(g, "fc", hot, CLASSES, false);
}
static nn_node sum_is_logits(nn_graph *g, nn_node x) {
    return mixer_inputs(g, x, CLASSES) + 1;
}
static nn_node mixer_first(nn_graph *g, nn_node x) {
    x = nn_maxpool2d(g, "pool", x, 3, &(nn_pool2d_options){.stride = 3});
    x = add_matrices(g, "matrices", x, x);
    nn_node hot = add_mixer(g, "mixer", x, x + 1, nn_linear(g, "c", x, 8, false));
    return nn_linear(g, "fc", add_total(g, "total", (nn_node[]){hot, hot + 1}, 2), CLASSES, false);
}
static nn_node two_views(nn_graph *g, nn_node x) {
    nn_node first = add_matrices(g, "matrices", nn_conv2d(g, "conv1", x, 2, 3, &(nn_conv2d_options){.stride = 2}),
                                 nn_conv2d(g, "conv2", x, 2, 3, &(nn_conv2d_options){.stride = 2}));
    nn_node both = add_total(g, "total", (nn_node[]){first, first + 1, first}, 3);
    return nn_linear(g, "fc", both, CLASSES, false);
}
static nn_node one_view(nn_graph *g, nn_node x) {
    nn_node first = add_matrices(g, "matrices", nn_conv2d(g, "conv1", x, 2, 3, &(nn_conv2d_options){.stride = 2}), x);
    return nn_linear(g, "fc", first, CLASSES, false);
}

/* Nodes for any input with rows, on images. */
static nn_node maps(nn_graph *g, nn_node x) {
    x = nn_layernorm(g, "norm0", x); /* nothing to learn before it */
    x = nn_conv2d(g, "conv", x, 4, 3, NULL);
    nn_node y = nn_rmsnorm(g, "norm1", x);
    y = nn_activation(g, "gelu", y, "gelu");
    x = nn_layernorm(g, "norm2", nn_add(g, "add", nn_add(g, "twice", y, y, false), x, false));
    return nn_linear(g, "fc", x, CLASSES, false);
}

/* Sequences: x is [batch, length] tokens. */
static nn_node embedded(nn_graph *g, nn_node x) {
    return nn_positions(g, "positions", nn_embedding(g, "embedding", x, 4, 0.7), 0.3);
}
static nn_node positions(nn_graph *g, nn_node x) {
    x = nn_linear(g, "fc1", embedded(g, x), 6, true);
    return nn_linear(g, "fc2", x, CLASSES, false);
}
/* Every function of numbers between 0 and 1, for which logarithms and roots are defined, each after a layer. */
static nn_node all_functions(nn_graph *g, nn_node x) {
    nn_node sum = embedded(g, x);
    const nn_node start = sum;
    for (int i = 0; nn_activation_at(i); i++) {
        const char *function = nn_activation_at(i);
        char name[64];
        snprintf(name, sizeof name, "%s.linear", function);
        nn_node y = nn_linear(g, name, start, 4, false);
        snprintf(name, sizeof name, "%s.between", function);
        y = nn_activation(g, name, y, "sigmoid");
        y = nn_activation(g, function, y, function);
        snprintf(name, sizeof name, "%s.sum", function);
        sum = nn_add(g, name, sum, y, false);
    }
    return nn_linear(g, "fc", sum, CLASSES, false);
}
static nn_node attention(nn_graph *g, nn_node x) {
    x = nn_attention(g, "attention", embedded(g, x), 2, false);
    return nn_linear(g, "fc", x, CLASSES, false);
}
static nn_node causal_attention(nn_graph *g, nn_node x) {
    x = embedded(g, x);
    x = nn_add(g, "add", x, nn_attention(g, "attention", x, 4, true), false);
    return nn_linear(g, "fc", x, CLASSES, false);
}
static nn_node blocks(nn_graph *g, nn_node x) {
    x = embedded(g, x);
    x = nn_transformer_block(g, "a", x, &(nn_transformer){.heads = 2, .hidden = 6, .causal = true, .layers = 2});
    x = nn_transformer_block(g, "b", x, &(nn_transformer){.heads = 1, .rmsnorm = true, .activation = "silu"});
    return nn_linear(g, "fc", nn_layernorm(g, "norm", x), CLASSES, false);
}
static nn_node gpt(nn_graph *g, nn_node x) {
    (void)x;
    return nn_model_text(g, "gpt1x32", LENGTH, VOCABULARY);
}

static const struct {
    const char *name;
    nn_node (*build)(nn_graph *g, nn_node x);
    const char *idle; /* names of parameters that the loss does not depend on */
    bool tokens;      /* it reads tokens */
    const char *flat; /* names of parameters on which it depends only by rounding */
} networks[] = {{"conv", conv_then_linear},
                {"dilated_and_grouped", dilated_and_grouped},
                {"asymmetric", asymmetric},
                {"sequences", sequences},
                {"batchnorm", batchnorm},
                {"linear_relu", linear_relu},
                {"relu", relu},
                {"maxpool", maxpool},
                {"avgpool", avgpool},
                {"broadcast", broadcast},
                {"shortcut", shortcut},
                {"fan_out", fan_out},
                {"linear_fan_out", linear_fan_out},
                {"input_twice", input_twice},
                {"residual", residual},
                {"lstm", lstm},
                {"gru", gru},
                {"batchnorm_add", batchnorm_add},
                {"means", means},
                {"lrn", lrn},
                {"groupnorm", groupnorm},
                {"settings", settings},
                {"sums", sums},
                {"bottleneck", bottleneck},
                {"same_bottleneck", same_bottleneck},
                {"separable", separable},
                {"shortcut_b", shortcut_b},
                {"gated_images", gated_images},
                {"gated_batchnorm", gated_batchnorm},
                {"gated_linear", gated_linear},
                {"mixed", mixed},
                {"mixer_once", mixer_once},
                {"hot_alone", hot_alone, "mixer.w"},
                {"sum_is_logits", sum_is_logits, "mixer.v mixer.u b.weight b.bias"},
                {"mixer_first", mixer_first},
                {"two_views", two_views},
                {"one_view", one_view},
                {"maps", maps},
                {"positions", positions, .tokens = true},
                {"all_functions", all_functions, .tokens = true},
                {"attention", attention, .tokens = true, .flat = "attention.key.bias"},
                {"causal_attention", causal_attention, .tokens = true, .flat = "attention.key.bias"},
                {"blocks", blocks, .tokens = true, .flat = "a.attention.key.bias b.attention.key.bias"},
                {"gpt", gpt, .tokens = true, .flat = "block1.attention.key.bias"}};

/* --- the check ------------------------------------------------------------------------------------------------------
 */

static double loss_of(nn_graph *g) {
    double loss = NAN;
    CHECK(!(reads_tokens ? nn_train_step(&loss, NULL, g, &(nn_batch){.tokens = tokens, .labels = labels}, 0)
                         : nn_train_step(&loss, NULL, g, &(nn_batch){.images = images, .labels = labels}, 0)),
          "%s", tensor_error());
    return loss;
}

static double loss_at(nn_graph *g, tensor *w, const double *values, const double *direction, int64_t n, double h) {
    double moved[LIMIT];
    for (int64_t i = 0; i < n; i++)
        moved[i] = values[i] + h * direction[i];
    CHECK(!tensor_load_f64(w, moved, n), "%s", tensor_error());
    double loss = loss_of(g);
    CHECK(!tensor_load_f64(w, values, n), "%s", tensor_error());
    return loss;
}

/* Checks one direction; false if it proves nothing. */
static bool check_direction(nn_graph *g, const char *network, nn_tensor_info w, const double *values,
                            const double *gradient, int64_t n, uint64_t seed, int number) {
    const double h = ldexp(1, -9 - number % 2);
    double direction[LIMIT], analytic = 0, norm = 0;
    for (int64_t i = 0; i < n; i++) {
        direction[i] = check_random(&state) & 1 ? 1 : -1;
        analytic += gradient[i] * direction[i];
        norm += gradient[i] * gradient[i];
    }
    norm = sqrt(norm);
    double middle = loss_of(g);
    double left = loss_at(g, w.t, values, direction, n, -h / 2), right = loss_at(g, w.t, values, direction, n, h / 2);
    double far_left = loss_at(g, w.t, values, direction, n, -h), far_right = loss_at(g, w.t, values, direction, n, h);
    double coarse = (far_right - far_left) / (2 * h), fine = (right - left) / h;
    double bend = fmax(fabs(right - 2 * middle + left) / (h / 2), fabs(far_right - 2 * middle + far_left) / h);
    double bound = fabs(coarse - fine) + 2 * bend + ROUNDINGS * 0x1p-24 * 2 * (1 + middle) / h;
    if (!(bound <= 0.2 * norm))
        return false;
    CHECK(fabs(fine - analytic) <= bound, "%s %s seed=%llu direction %d: gradient %.9g, differences %.9g, bound %.3g",
          network, w.name, (unsigned long long)seed, number, analytic, fine, bound);
    return true;
}

static bool is_listed(const char *list, const char *name) {
    const char *at = list ? strstr(list, name) : NULL;
    return at && (at[strlen(name)] == ' ' || !at[strlen(name)]);
}

/* Checks a gradient that is zero or, if a bias adds the same to all scores of a softmax, a sum of a few hundred
 * roundings of numbers below 1. */
static void check_idle(const char *network, const char *name, const tensor *gradient, double bound) {
    double values[LIMIT];
    CHECK(!tensor_store_f64(gradient, values, tensor_count(gradient)), "%s", tensor_error());
    for (int64_t i = 0; i < tensor_count(gradient); i++)
        CHECK(fabs(values[i]) <= bound, "%s %s: element %lld of its gradient is %g, expected 0 within %g", network,
              name, (long long)i, values[i], bound);
}

static void check_parameter(nn_graph *g, const char *network, nn_tensor_info w, const tensor *gradient, uint64_t seed) {
    double values[LIMIT], wanted[LIMIT];
    int64_t n = tensor_count(w.t);
    loss_of(g);
    CHECK(n <= LIMIT && !tensor_store_f64(w.t, values, n) && !tensor_store_f64(gradient, wanted, n), "%s",
          tensor_error());
    int useful = 0;
    for (int k = 0; k < TRIES && useful < DIRECTIONS; k++)
        useful += check_direction(g, network, w, values, wanted, n, seed, k);
    CHECK(useful == DIRECTIONS, "%s %s seed=%llu: %d useful directions of %d", network, w.name,
          (unsigned long long)seed, useful, TRIES);
}

static nn_node build(nn_graph *g, int which) {
    reads_tokens = networks[which].tokens;
    if (networks[which].build == gpt)
        return gpt(g, -1);
    return networks[which].build(g,
                                 reads_tokens ? nn_tokens(g, LENGTH, VOCABULARY) : nn_input(g, SIZE, SIZE, CHANNELS));
}

/* For sequences: tables of about 1 and weights of about 1.7 / sqrt(fan-in), because the initial ones are too small for
 * differences. */
static double spread_of(nn_tensor_info info) {
    if (strstr(info.name, "embedding") || strstr(info.name, "positions"))
        return 1;
    return tensor_ndim(info.t) > 1 ? 1.7 / sqrt((double)tensor_dim(info.t, 0)) : 0.5;
}

static void check_network(int which, uint64_t seed) {
    state = seed;
    nn_graph *g = nn_graph_new(&(nn_config){.variant = "fp32", .batch = BATCH, .seed = seed});
    nn_node logits = build(g, which);
    CHECK(!nn_compile(g, logits), "%s: %s", networks[which].name, tensor_error());
    for (size_t i = 0; i < sizeof images / sizeof images[0]; i++)
        images[i] = (float)(2 * unit());
    for (int i = 0; i < nn_label_count(g); i++)
        labels[i] = (int32_t)(check_random(&state) % CLASSES);
    for (int i = 0; reads_tokens && i < BATCH * LENGTH; i++)
        tokens[i] = (int32_t)(check_random(&state) % VOCABULARY);
    for (int i = 0; i < nn_tensor_count(g); i++) { /* biases, gamma and beta away from 0 and 1 */
        nn_tensor_info info = nn_tensor_at(g, i);
        double values[LIMIT];
        if (strcmp(info.role, "weight") || (tensor_ndim(info.t) > 1 && !reads_tokens))
            continue;
        for (int64_t k = 0; k < tensor_count(info.t); k++)
            values[k] = spread_of(info) * unit() + (strstr(info.name, ".gamma") ? 1 : 0);
        CHECK(!tensor_load_f64(info.t, values, tensor_count(info.t)), "%s", tensor_error());
    }
    for (int i = 0; i < nn_tensor_count(g); i++) {
        nn_tensor_info info = nn_tensor_at(g, i);
        char name[80];
        if (strcmp(info.role, "weight"))
            continue;
        snprintf(name, sizeof name, "%s.grad", info.name);
        for (int k = 0; k < nn_tensor_count(g); k++)
            if (!strcmp(nn_tensor_at(g, k).name, name) && is_listed(networks[which].idle, info.name))
                check_idle(networks[which].name, info.name, nn_tensor_at(g, k).t, 0);
            else if (!strcmp(nn_tensor_at(g, k).name, name) && is_listed(networks[which].flat, info.name))
                check_idle(networks[which].name, info.name, nn_tensor_at(g, k).t, 1e-6);
            else if (!strcmp(nn_tensor_at(g, k).name, name))
                check_parameter(g, networks[which].name, info, nn_tensor_at(g, k).t, seed);
    }
    nn_graph_free(g);
}

int main(void) {
    for (int i = 0; i < (int)(sizeof networks / sizeof networks[0]); i++)
        for (uint64_t seed = 1; seed <= 2; seed++)
            check_network(i, seed);
    return check_summary();
}
