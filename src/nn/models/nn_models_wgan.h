/* nn_models_wgan.h - the networks of a generator and its critic: nn_wgan.c trains them. */
#ifndef FL_NN_MODELS_WGAN_H
#define FL_NN_MODELS_WGAN_H

#include "nn/graph/nn_graph.h"

/* From [batch, 1, 1, latent] to images [batch, side, side, channels] in -1 ... 1. */
nn_node fl_wgan_generator(nn_graph *g, int side, int channels, int latent, int filters);
/* From images to scores [batch, 1, 1, 1]. */
nn_node fl_wgan_critic(nn_graph *g, int side, int channels, int filters);

#endif
