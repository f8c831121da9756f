/* nn_models_wgan.c - a generator and a critic after DCGAN (Radford et al. 2016): four convolutions each, of which those
 * of the generator are transposed. */
#include "nn/models/nn_models_wgan.h"
#include "nn/layers/nn_layer.h"

#define DEVIATION 0.02 /* of the generator's weights at first */
#define SLOPE 0.2f     /* of the critic's leaky relu below zero */

static tensor_status leaky_forward(struct fl_node *node, const struct fl_pass *pass) {
    (void)node;
    return tensor_leaky_relu(pass->y[0], pass->x[0], SLOPE);
}

static tensor_status leaky_backward(struct fl_node *node, const struct fl_pass *pass) {
    (void)node;
    return tensor_leaky_relu_grad(pass->dx[0], pass->dy[0], pass->x[0], SLOPE);
}

static const struct fl_layer leaky_relu = {
    "wgan_leaky_relu", 1, .saves_x = 1, .shape = fl_same_shape, .forward = leaky_forward, .backward = leaky_backward};

static nn_node leaky(nn_graph *g, const char *name, nn_node x) {
    return fl_add_node(g, &leaky_relu, name, name, &x, 1, &(struct fl_options){0});
}

static nn_node transposed(nn_graph *g, const char *name, nn_node x, int channels, int window, int stride, int padding) {
    const tensor_window2d how = {
        .window = {window, window}, .stride = {stride, stride}, .padding = {padding, padding, padding, padding}};
    x = nn_conv_transpose2d(g, name, x, channels, how, false);
    if (x >= 0)
        fl_node_of(g, x)->parameter[0].scale = DEVIATION;
    return x;
}

nn_node fl_wgan_generator(nn_graph *g, int side, int channels, int latent, int filters) {
    nn_node x = nn_input(g, 1, 1, latent);
    x = nn_batchnorm(g, "bn1", transposed(g, "up1", x, 4 * filters, side / 8, 1, 0), true); /* a linear layer */
    x = nn_batchnorm(g, "bn2", transposed(g, "up2", x, 2 * filters, 4, 2, 1), true);
    x = nn_batchnorm(g, "bn3", transposed(g, "up3", x, filters, 4, 2, 1), true);
    return nn_activation(g, "image", transposed(g, "up4", x, channels, 4, 2, 1), "tanh");
}

nn_node fl_wgan_critic(nn_graph *g, int side, int channels, int filters) {
    nn_node x = nn_input(g, side, side, channels);
    x = leaky(g, "leaky1", nn_conv2d(g, "down1", x, filters, 4, 2, 1));
    x = leaky(g, "leaky2", nn_conv2d(g, "down2", x, 2 * filters, 4, 2, 1));
    x = leaky(g, "leaky3", nn_conv2d(g, "down3", x, 4 * filters, 4, 2, 1));
    return nn_conv2d(g, "score", x, 1, side / 8, 1, 0);
}
