/* nn_layers.h - the layers that a network is built of: inputs, convolutions, linear layers, normalisation, elementwise
 * functions, pooling, blocks of residual networks, sequences. A part of nn.h, whose conventions hold. */
#ifndef FLEXLAB_NN_LAYERS_H
#define FLEXLAB_NN_LAYERS_H

#include "flexlab/api.h"
#include "flexlab/nn_network.h"
#include "flexlab/tensor_windows.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- every layer, and inputs -------------------------------------------------------------------------------------- */

/* Names must be unique and appear in traces and statistics as NAME (output), NAME.weight, NAME.bias,
 * NAME.gamma, NAME.beta; gradients and momentum carry the suffixes .grad and .momentum, roots and directions of
 * optimisers .root and .direction. Weights: He initialisation, normal with variance 2 / fan-out for convolutions (He et
 * al. 2015, fan-out mode) and 2 / fan-in for linear layers followed by relu, uniform +-1/sqrt(fan-in) for the last;
 * drawn by (seed, name, element), so they do not depend on the format. Shapes that do not suit are TENSOR_E_SHAPE,
 * other settings TENSOR_E_ARGUMENT, told by nn_compile. */

/* Images [batch, height, width, channels]; a graph has one input, and it comes first. */
FLEXLAB_API nn_node nn_input(nn_graph *g, int height, int width, int channels);
/* The other input: sequences [batch, length] of tokens, int32 numbers from 0 to vocabulary - 1. Only nn_embedding
 * reads them. A step of such a network takes tokens instead of images (nn_batch.tokens). */
FLEXLAB_API nn_node nn_tokens(nn_graph *g, int length, int vocabulary);

/* --- convolutions, images [N, H, W, C] and sequences [N, L, C] ---------------------------------------------------- */

/* How a convolution goes over images. NULL or all zero: every pixel, no padding, no bias. */
typedef struct nn_conv2d_options {
    int stride;         /* 0: 1 */
    int padding;        /* lines of zeros on every side */
    int dilation;       /* pixels from one position of a filter to the next; 0: 1 */
    int groups;         /* of channels and filters that see each other; 0: 1, all of them */
    int output_padding; /* of transposed convolutions: lines more at the bottom and right, less than the stride */
    bool bias;          /* NAME.bias, one number a filter, is added to the sums of products, rounded once with them */
    bool bias_after;    /* NAME.bias is added to the stored sums, as by nn_bias: two roundings; not with `bias` */
    bool relu;          /* max(0, .) in the same operation as bias_after, which it needs */
    double deviation;   /* of the initial weights, which are normal; 0: as He et al. (see above) */
    /* Each direction and side for itself, and filters that are not square: all of the window in place of `kernel` and
     * of stride, padding, dilation, groups and output_padding above, which are 0 then. NULL: as above. */
    const tensor_window2d *window;
} nn_conv2d_options;
/* Filters of kernel x kernel pixels: tensor_conv2d. NAME.weight is [filters, R, S, channels / groups], fan-out: filters
 * of a group times positions of a window; biases start at 0. */
FLEXLAB_API nn_node nn_conv2d(nn_graph *g, const char *name, nn_node x, int filters, int kernel,
                              const nn_conv2d_options *how);
/* tensor_conv_transpose2d, to so many channels; NAME.weight is [channels of x, R, S, channels / groups]. Normal with
 * variance 2 / (channels / groups * R * S): the numbers that one pixel of x goes to, which is the fan-out here too. No
 * bias_after, no relu. */
FLEXLAB_API nn_node nn_conv_transpose2d(nn_graph *g, const char *name, nn_node x, int channels, int kernel,
                                        const nn_conv2d_options *how);
/* The same on sequences: tensor_conv1d (causal with padding {(window - 1) dilation, 0}), tensor_conv_transpose1d;
 * fan-out with a window of one line. bias: NAME.bias, rounded once with the sums. */
FLEXLAB_API nn_node nn_conv1d(nn_graph *g, const char *name, nn_node x, int filters, const tensor_window1d *how,
                              bool bias);
FLEXLAB_API nn_node nn_conv_transpose1d(nn_graph *g, const char *name, nn_node x, int channels,
                                        const tensor_window1d *how, bool bias);
/* A depthwise separable convolution (Howard et al. 2017, Fig. 3): 3x3 with the stride on each channel by itself, then
 * 1x1 to filters channels, each with batch normalisation and relu. Two layers and their norms: NAME.depthwise,
 * NAME.bn1, NAME.pointwise, NAME.bn2; names of at most 84 characters. */
FLEXLAB_API nn_node nn_depthwise_separable(nn_graph *g, const char *name, nn_node x, int filters, int stride);

/* --- linear layers ------------------------------------------------------------------------------------------------ */

/* x w + b with w [in, out], then max(0, .) if relu. An image is flattened first: input (h W + w) C + c is channel c of
 * pixel (h, w). Products are stored before the bias is added, but for sequences [batch, length, in], of which each
 * position is a row: products and bias are one operation there, rounded once. */
FLEXLAB_API nn_node nn_linear(nn_graph *g, const char *name, nn_node x, int outputs, bool relu);
/* x[..., c] + bias[c], then max(0, .) if relu. */
FLEXLAB_API nn_node nn_bias(nn_graph *g, const char *name, nn_node x, bool relu);

/* --- normalisation ------------------------------------------------------------------------------------------------ */

/* Settings of batch normalisation. NULL or all zero: epsilon 1e-5, momentum 0.1, no relu. */
typedef struct nn_batchnorm_options {
    double epsilon;  /* 0: 1e-5; else a finite number above 0 */
    double momentum; /* of running statistics, the share of the new batch: above 0, at most 1; 0: 0.1 */
    bool relu;       /* max(0, .) in the same operation; nn_batchnorm_add_relu has it always */
} nn_batchnorm_options;
/* By the statistics of the batch in training, by running ones in evaluation. */
FLEXLAB_API nn_node nn_batchnorm(nn_graph *g, const char *name, nn_node x, const nn_batchnorm_options *how);
/* relu(batchnorm(x) + residual): one operation, rounded once. */
FLEXLAB_API nn_node nn_batchnorm_add_relu(nn_graph *g, const char *name, nn_node x, nn_node residual,
                                          const nn_batchnorm_options *how);
/* Group normalisation with a gamma and a beta for each channel: tensor_groupnorm; groups = channels is instance
 * normalisation. epsilon 0: 1e-5. The same in training and evaluation. */
FLEXLAB_API nn_node nn_groupnorm(nn_graph *g, const char *name, nn_node x, int groups, double epsilon);
/* Normalisation of each row, such as each position of a sequence: tensor_layernorm (NAME.gamma, NAME.beta) and
 * tensor_rmsnorm (NAME.gamma) with epsilon 1e-5. */
FLEXLAB_API nn_node nn_layernorm(nn_graph *g, const char *name, nn_node x);
FLEXLAB_API nn_node nn_rmsnorm(nn_graph *g, const char *name, nn_node x);
/* Local response normalisation across channels: tensor_lrn, with its limits. */
FLEXLAB_API nn_node nn_lrn(nn_graph *g, const char *name, nn_node x, int size, float alpha, float beta, float k);

/* --- elementwise, and dimensions ---------------------------------------------------------------------------------- */

/* max(0, x), element by element. */
FLEXLAB_API nn_node nn_relu(nn_graph *g, const char *name, nn_node x);
/* x, below zero times slope, which is finite: tensor_leaky_relu. */
FLEXLAB_API nn_node nn_leaky_relu(nn_graph *g, const char *name, nn_node x, float slope);
/* A real function of each element, by the name of its operation: "gelu", "gelu_tanh", "silu", "tanh", "sigmoid", ...
 * nn_activation_at has them all. */
FLEXLAB_API nn_node nn_activation(nn_graph *g, const char *name, nn_node x, const char *function);
/* How many such functions there are, and the name of the i-th; NULL past the last. */
FLEXLAB_API int nn_activation_count(void);
FLEXLAB_API const char *nn_activation_at(int i);
/* a + b, rounded once, then max(0, .) if relu; a and b have one shape. */
FLEXLAB_API nn_node nn_add(nn_graph *g, const char *name, nn_node a, nn_node b, bool relu);
/* The mean over dimensions in axes, bit d for dimension d and not 0, the batch: [N, T, C] over bit 1 is [N, C]. keep:
 * they stay, with 1 element, and the result can be repeated again. tensor_reduce_mean. */
FLEXLAB_API nn_node nn_reduce_mean(nn_graph *g, const char *name, nn_node x, unsigned axes, bool keep);
/* a + b and a b, b repeated along dimensions in which it has 1 element and a more; as many dimensions in both:
 * tensor_broadcast_add, tensor_broadcast_mul. */
FLEXLAB_API nn_node nn_broadcast_add(nn_graph *g, const char *name, nn_node a, nn_node b);
FLEXLAB_API nn_node nn_broadcast_mul(nn_graph *g, const char *name, nn_node a, nn_node b);
/* x times a learned factor of each channel, the last dimension: NAME.gamma, 1 at first. */
FLEXLAB_API nn_node nn_channel_scale(nn_graph *g, const char *name, nn_node x);
/* x held between low and high: tensor_clamp. */
FLEXLAB_API nn_node nn_clamp(nn_graph *g, const char *name, nn_node x, float low, float high);
/* Dropout: in training each element is 0 with probability p, 0 <= p < 1, else it is x / (1 - p): tensor_dropout; drawn
 * by (config.seed, name, updates so far, element), so that the draws of a step depend neither on the format nor on the
 * device, and a step that is run again has the same. In evaluation it is x. */
FLEXLAB_API nn_node nn_dropout(nn_graph *g, const char *name, nn_node x, float p);

/* --- pooling and other layers of images --------------------------------------------------------------------------- */

/* How windows of a pooling go over images. NULL or all zero: at every pixel, no padding. */
typedef struct nn_pool2d_options {
    int stride;   /* 0: 1 */
    int padding;  /* lines on every side, which are never the largest; less than a window reaches over */
    int dilation; /* pixels from one position of a window to the next; 0: 1 */
    /* Each direction and side for itself, in place of `side` and of these three, which are 0 then. NULL: as above. */
    const tensor_window2d *window;
} nn_pool2d_options;
/* The largest of each side x side pixels, channel by channel: tensor_maxpool2d. */
FLEXLAB_API nn_node nn_maxpool2d(nn_graph *g, const char *name, nn_node x, int side, const nn_pool2d_options *how);
/* The same on sequences [N, L, C]: tensor_maxpool1d. */
FLEXLAB_API nn_node nn_maxpool1d(nn_graph *g, const char *name, nn_node x, const tensor_window1d *how);
/* [N, H, W, C] to [N, C]: the mean of all pixels. */
FLEXLAB_API nn_node nn_avgpool_global(nn_graph *g, const char *name, nn_node x);
/* A window that is the same down and across. All zero but `window`: stride 1, no padding, dilation 1, one group. */
typedef struct nn_window {
    int window, stride, padding, dilation, groups;
} nn_window;
/* The mean of each window of pixels, channel by channel; padding counts as zeros or not at all: tensor_avgpool2d. */
FLEXLAB_API nn_node nn_avgpool2d(nn_graph *g, const char *name, nn_node x, nn_window how, bool padding_counts);
/* Means of height x width windows that cover the image, whatever its size: tensor_avgpool_adaptive. */
FLEXLAB_API nn_node nn_avgpool_adaptive(nn_graph *g, const char *name, nn_node x, int height, int width);
/* Every stride-th pixel, zeros in the added channels: tensor_shortcut_a. */
FLEXLAB_API nn_node nn_shortcut_a(nn_graph *g, const char *name, nn_node x, int filters, int stride);

/* --- blocks of residual networks ---------------------------------------------------------------------------------- */

/* Blocks: several layers, called NAME.conv, NAME.bn, ...; names of at most 84 characters.
 * The shortcut of type B (He et al. 2015, section 4.1): filters of 1x1 at every stride-th pixel, batch normalisation.
 */
FLEXLAB_API nn_node nn_shortcut_b(nn_graph *g, const char *name, nn_node x, int filters, int stride);
/* The bottleneck (He et al. 2015, Fig. 5): 1x1 to width channels, 3x3 with the stride, 1x1 to 4 width, each with batch
 * normalisation, relu after the first two and after the sum with x, or, where the shapes of x and of the result differ,
 * with its shortcut of type B. */
FLEXLAB_API nn_node nn_bottleneck(nn_graph *g, const char *name, nn_node x, int width, int stride);

/* --- sequences [batch, length, width] ----------------------------------------------------------------------------- */

/* [batch, length] tokens to [batch, length, width]: the row of a table [vocabulary, width] for each, tensor_embedding.
 * The table starts normal with that standard deviation, which is finite and above 0. */
FLEXLAB_API nn_node nn_embedding(nn_graph *g, const char *name, nn_node tokens, int width, double deviation);
/* Adds a learned row to each position, the same in every sequence: x + NAME.weight, [length, width], which starts
 * normal with that standard deviation. */
FLEXLAB_API nn_node nn_positions(nn_graph *g, const char *name, nn_node x, double deviation);
/* Attention of a sequence to itself (Vaswani et al. 2017): each of the heads, width / heads wide, mixes the values of
 * the positions by softmax(q k / sqrt(width / heads)); causal: of those up to each one alone. Layers NAME.query,
 * NAME.key, NAME.value and, of the mixtures, NAME.projection, [width, width] with biases; weights start normal with
 * deviation 0.02. heads divides the width. */
FLEXLAB_API nn_node nn_attention(nn_graph *g, const char *name, nn_node x, int heads, bool causal);
/* A block of a transformer. All zero but heads: as GPT-2 has it, without a mask. */
typedef struct nn_transformer {
    int heads;              /* a divisor of the width */
    int hidden;             /* width between the two layers of the perceptron; 0: four times that of x */
    int layers;             /* of the network: initial weights that lead back to the sum are smaller by sqrt(2 layers);
                             * 0: they are not */
    bool causal;            /* attention sees positions up to its own, none behind it */
    bool rmsnorm;           /* instead of layer normalisation */
    const char *activation; /* see nn_activation; NULL: "gelu_tanh" */
} nn_transformer;
/* A block of a transformer, normalised before each part (Radford et al. 2019): x + attention(norm1(x)), then plus
 * contract(activation(expand(norm2 of it))). A sum is one operation with the layer that leads to it, rounded once.
 * Layers are called NAME.norm1, NAME.attention.query, ..., NAME.expand, NAME.contract. */
FLEXLAB_API nn_node nn_transformer_block(nn_graph *g, const char *name, nn_node x, const nn_transformer *how);
/* Sequences [batch, length, width] to [batch, length, units], the states of an LSTM or a GRU after each step:
 * tensor_lstm, tensor_gru, from a state of zeros. Layers NAME.time and NAME.sequence have time or the batch first,
 * NAME.input (nn_linear) and NAME stand between them; names of at most 84 characters. An image is a sequence of its
 * lines. Weights of the inputs start uniform within 1/sqrt(width), those of the states within 1/sqrt(units);
 * biases zero, but 1 for the forget gate. docs/models.md */
FLEXLAB_API nn_node nn_lstm(nn_graph *g, const char *name, nn_node x, int units);
FLEXLAB_API nn_node nn_gru(nn_graph *g, const char *name, nn_node x, int units);
/* The last step of a sequence, [batch, width]. */
FLEXLAB_API nn_node nn_last_step(nn_graph *g, const char *name, nn_node x);

#ifdef __cplusplus
}
#endif
#endif
