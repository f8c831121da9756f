/* nn_models_wgan.c - a generator and a critic after DCGAN (Radford et al. 2016): four convolutions each, of which those
 * of the generator are transposed. A transposed convolution is the input gradient of a convolution, and has that
 * convolution for its own gradient: the exact kernels of both serve. */
#include "nn/nn_models_wgan.h"
#include "nn/nn_layer.h"
#include "core/fail.h"

#define DEVIATION 0.02 /* of the generator's weights at first */
#define SLOPE 0.2f     /* of the critic's leaky relu below zero */

static tensor_window window_of(const struct fl_node *node) {
    return (tensor_window){.window = node->how.window, .stride = node->how.stride, .padding = node->how.padding};
}

/* Filters [K, R, S, C] of the convolution that leads from the output, C channels, back to the input, K channels. */
static tensor_status transposed_shape(struct fl_node *node, const struct fl_shape *x) {
    const struct fl_options *how = &node->how;
    FL_TRY(fl_need_image(node, x));
    FL_TRY(fl_need_outputs(node));
    const int64_t k = x->dim[3], r = how->window;
    FL_TRY(fl_add_learned(node, "weight", FL_INIT_NORMAL, DEVIATION, (struct fl_shape){4, {k, r, r, how->outputs}}));
    return fl_add_image(node, (x->dim[1] - 1) * how->stride + r - 2 * (int64_t)how->padding,
                        (x->dim[2] - 1) * how->stride + r - 2 * (int64_t)how->padding, how->outputs);
}

static tensor_status transposed_forward(struct fl_node *node, const struct fl_pass *pass) {
    return tensor_conv2d_input_grad(pass->y[0], pass->x[0], node->parameter[0].w, window_of(node));
}

static tensor_status transposed_backward(struct fl_node *node, const struct fl_pass *pass) {
    FL_TRY(tensor_conv2d_weight_grad(node->parameter[0].g, pass->x[0], pass->dy[0], window_of(node)));
    return pass->dx[0] ? tensor_conv2d(pass->dx[0], pass->dy[0], node->parameter[0].w, window_of(node)) : TENSOR_OK;
}

static tensor_status leaky_forward(struct fl_node *node, const struct fl_pass *pass) {
    (void)node;
    return tensor_leaky_relu(pass->y[0], pass->x[0], SLOPE);
}

static tensor_status leaky_backward(struct fl_node *node, const struct fl_pass *pass) {
    (void)node;
    return tensor_leaky_relu_grad(pass->dx[0], pass->dy[0], pass->x[0], SLOPE);
}

static tensor_status tanh_forward(struct fl_node *node, const struct fl_pass *pass) {
    (void)node;
    return tensor_tanh(pass->y[0], pass->x[0]);
}

static tensor_status tanh_backward(struct fl_node *node, const struct fl_pass *pass) {
    (void)node;
    return tensor_tanh_grad(pass->dx[0], pass->dy[0], pass->x[0]);
}

enum kind { TRANSPOSED, LEAKY, TANH };

static const struct fl_layer layers[] = {
    [TRANSPOSED] = {"wgan_transposed", 1, .saves_x = 1, .shape = transposed_shape, .forward = transposed_forward,
                    .backward = transposed_backward},
    [LEAKY] = {"wgan_leaky_relu", 1, .saves_x = 1, .shape = fl_same_shape, .forward = leaky_forward,
               .backward = leaky_backward},
    [TANH] = {"wgan_tanh", 1, .saves_x = 1, .shape = fl_same_shape, .forward = tanh_forward, .backward = tanh_backward},
};

static nn_node add(nn_graph *g, enum kind kind, const char *name, nn_node x, struct fl_options how) {
    return fl_add_node(g, &layers[kind], name, name, &x, 1, &how);
}

static nn_node transposed(nn_graph *g, const char *name, nn_node x, int outputs, int window, int stride, int padding) {
    return add(g, TRANSPOSED, name, x,
               (struct fl_options){.outputs = outputs, .window = window, .stride = stride, .padding = padding});
}

nn_node fl_wgan_generator(nn_graph *g, int side, int channels, int latent, int filters) {
    nn_node x = nn_input(g, 1, 1, latent);
    x = nn_batchnorm(g, "bn1", transposed(g, "up1", x, 4 * filters, side / 8, 1, 0), true); /* a linear layer */
    x = nn_batchnorm(g, "bn2", transposed(g, "up2", x, 2 * filters, 4, 2, 1), true);
    x = nn_batchnorm(g, "bn3", transposed(g, "up3", x, filters, 4, 2, 1), true);
    return add(g, TANH, "image", transposed(g, "up4", x, channels, 4, 2, 1), (struct fl_options){0});
}

nn_node fl_wgan_critic(nn_graph *g, int side, int channels, int filters) {
    const struct fl_options none = {0};
    nn_node x = nn_input(g, side, side, channels);
    x = add(g, LEAKY, "leaky1", nn_conv2d(g, "down1", x, filters, 4, 2, 1), none);
    x = add(g, LEAKY, "leaky2", nn_conv2d(g, "down2", x, 2 * filters, 4, 2, 1), none);
    x = add(g, LEAKY, "leaky3", nn_conv2d(g, "down3", x, 4 * filters, 4, 2, 1), none);
    return nn_conv2d(g, "score", x, 1, side / 8, 1, 0);
}
