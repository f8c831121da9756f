/* nn_layers.h - inputs and layers of a network: convolutions, linear layers, normalisation, elementwise functions,
 * pooling, blocks of residual networks, sequences. Part of nn.h, whose conventions hold. */
#ifndef FLEXLAB_NN_LAYERS_H
#define FLEXLAB_NN_LAYERS_H

#include "flexlab/api.h"
#include "flexlab/nn_network.h"
#include "flexlab/tensor_windows.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- every layer, and inputs -------------------------------------------------------------------------------------- */

/* Names must be unique. They appear in traces and statistics as NAME (output), NAME.weight, NAME.bias, NAME.gamma,
 * NAME.beta; gradients and momentum have the suffixes .grad and .momentum, roots and directions of optimisers .root and
 * .direction.
 *
 * Initial weights follow He et al. 2015: normal with variance 2 / fan-out for convolutions (fan-out mode) and 2 /
 * fan-in for linear layers followed by relu; uniform within 1/sqrt(fan-in) for the last layer. They are drawn by (seed,
 * name, element), so they do not depend on the format.
 *
 * nn_compile returns the errors of layers: TENSOR_E_SHAPE for unsuitable shapes, TENSOR_E_ARGUMENT for other
 * settings. */

/* Images [batch, height, width, channels]; a graph has one input, and it comes first. */
FLEXLAB_API nn_node nn_input(nn_graph *g, int height, int width, int channels);
/* The input of a network for text, instead of nn_input: sequences [batch, length] of tokens, int32 numbers from 0 to
 * vocabulary - 1. Only nn_embedding reads them. A step of such a network takes tokens instead of images
 * (nn_batch.tokens). */
FLEXLAB_API nn_node nn_tokens(nn_graph *g, int length, int vocabulary);

/* --- convolutions, images [N, H, W, C] and sequences [N, L, C] ---------------------------------------------------- */

/* Options of a convolution of images. NULL or all zero: every pixel, no padding, no bias. */
typedef struct nn_conv2d_options {
    int stride;         /* 0: 1 */
    int padding;        /* lines of zeros on every side */
    int dilation;       /* distance in pixels between neighbouring positions of a filter; 0: 1 */
    int groups;         /* groups of channels and filters, each of which sees only its own; 0: 1 */
    int output_padding; /* transposed convolutions: additional lines at the bottom and right, fewer than the stride */
    bool bias; /* NAME.bias, one number for each filter, is added to the sums of products, rounded once with them */
    bool bias_after; /* NAME.bias is added to the stored sums, as by nn_bias: two roundings; not together with `bias` */
    bool relu;       /* max(0, .) in the same operation as bias_after, which it requires */
    double deviation; /* of the initial weights, which are normal; 0: He et al. (see above) */
    /* The geometry by direction and side, for filters that are not square too: it replaces `kernel` and the members
     * stride, padding, dilation, groups and output_padding above, which are then 0. NULL: as above. */
    const tensor_window2d *window;
} nn_conv2d_options;
/* Convolution with filters of kernel x kernel pixels: tensor_conv2d. NAME.weight is [filters, R, S, channels / groups];
 * fan-out: filters of a group times positions of a window. Biases start at 0. */
FLEXLAB_API nn_node nn_conv2d(nn_graph *g, const char *name, nn_node x, int filters, int kernel,
                              const nn_conv2d_options *how);
/* Transposed convolution to the given number of channels: tensor_conv_transpose2d. NAME.weight is [channels of x, R, S,
 * channels / groups], normal with variance 2 / (channels / groups * R * S): the fan-out here is the count of numbers
 * that one pixel of x contributes to. No bias_after, no relu. */
FLEXLAB_API nn_node nn_conv_transpose2d(nn_graph *g, const char *name, nn_node x, int channels, int kernel,
                                        const nn_conv2d_options *how);
/* Convolutions of sequences: tensor_conv1d (causal with padding {(window - 1) dilation, 0}) and
 * tensor_conv_transpose1d; the fan-out is that of a window of one line. bias: NAME.bias, rounded once with the sums. */
FLEXLAB_API nn_node nn_conv1d(nn_graph *g, const char *name, nn_node x, int filters, const tensor_window1d *how,
                              bool bias);
FLEXLAB_API nn_node nn_conv_transpose1d(nn_graph *g, const char *name, nn_node x, int channels,
                                        const tensor_window1d *how, bool bias);
/* A depthwise separable convolution (Howard et al. 2017, Fig. 3): 3x3 with the stride on each channel separately, then
 * 1x1 to the given number of filters, each with batch normalisation and relu. Its layers are NAME.depthwise, NAME.bn1,
 * NAME.pointwise and NAME.bn2; NAME has at most 84 characters. */
FLEXLAB_API nn_node nn_depthwise_separable(nn_graph *g, const char *name, nn_node x, int filters, int stride);

/* --- linear layers ------------------------------------------------------------------------------------------------ */

/* Linear layer: x w + b with w [in, out], then max(0, .) if relu. An image is flattened first: input (h W + w) C + c is
 * channel c of pixel (h, w). Products are stored before the bias is added; for sequences [batch, length, in], where
 * each position is a row, products and bias are one operation, rounded once. */
FLEXLAB_API nn_node nn_linear(nn_graph *g, const char *name, nn_node x, int outputs, bool relu);
/* x[..., c] + bias[c], then max(0, .) if relu. */
FLEXLAB_API nn_node nn_bias(nn_graph *g, const char *name, nn_node x, bool relu);

/* --- normalisation ------------------------------------------------------------------------------------------------ */

/* Options of batch normalisation. NULL or all zero: epsilon 1e-5, momentum 0.1, no relu. */
typedef struct nn_batchnorm_options {
    double epsilon;  /* 0: 1e-5; else a finite number above 0 */
    double momentum; /* the share of the new batch in running statistics: above 0, at most 1; 0: 0.1 */
    bool relu;       /* max(0, .) in the same operation; nn_batchnorm_add_relu always applies it */
} nn_batchnorm_options;
/* Batch normalisation, by the statistics of the batch in training and by running statistics in evaluation:
 * tensor_batchnorm. */
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
/* x where it is above zero, slope x elsewhere; slope is finite: tensor_leaky_relu. */
FLEXLAB_API nn_node nn_leaky_relu(nn_graph *g, const char *name, nn_node x, float slope);
/* A real function of each element, by the name of its operation: "gelu", "gelu_tanh", "silu", "tanh", "sigmoid", ...
 * nn_activation_at lists them. */
FLEXLAB_API nn_node nn_activation(nn_graph *g, const char *name, nn_node x, const char *function);
/* The number of such functions, and the name of the i-th; NULL past the last. */
FLEXLAB_API int nn_activation_count(void);
FLEXLAB_API const char *nn_activation_at(int i);
/* a + b, rounded once, then max(0, .) if relu; a and b have one shape. */
FLEXLAB_API nn_node nn_add(nn_graph *g, const char *name, nn_node a, nn_node b, bool relu);
/* The mean over the dimensions in axes, bit d for dimension d, not including dimension 0, the batch: [N, T, C] over
 * bit 1 is [N, C]. keep: these dimensions remain with 1 element, so that the result can be broadcast.
 * tensor_reduce_mean. */
FLEXLAB_API nn_node nn_reduce_mean(nn_graph *g, const char *name, nn_node x, unsigned axes, bool keep);
/* a + b and a b, where b is repeated along the dimensions in which it has 1 element and a has more; both have the same
 * number of dimensions: tensor_broadcast_add, tensor_broadcast_mul. */
FLEXLAB_API nn_node nn_broadcast_add(nn_graph *g, const char *name, nn_node a, nn_node b);
FLEXLAB_API nn_node nn_broadcast_mul(nn_graph *g, const char *name, nn_node a, nn_node b);
/* x times a learned factor for each channel, the last dimension: NAME.gamma, initially 1. */
FLEXLAB_API nn_node nn_channel_scale(nn_graph *g, const char *name, nn_node x);
/* x clipped to the range from low to high: tensor_clamp. */
FLEXLAB_API nn_node nn_clamp(nn_graph *g, const char *name, nn_node x, float low, float high);
/* Dropout: in training each element is 0 with probability p, 0 <= p < 1, else x / (1 - p): tensor_dropout. The draws
 * depend on (config.seed, name, updates so far, element), and therefore neither on the format nor on the device; a
 * repeated step has the same draws. In evaluation the result is x. */
FLEXLAB_API nn_node nn_dropout(nn_graph *g, const char *name, nn_node x, float p);

/* --- pooling and other layers of images --------------------------------------------------------------------------- */

/* Options of a pooling of images. NULL or all zero: a window at every pixel, no padding. */
typedef struct nn_pool2d_options {
    int stride;   /* 0: 1 */
    int padding;  /* lines on every side, which are never the largest; less than the extent of a window */
    int dilation; /* distance in pixels between neighbouring positions of a window; 0: 1 */
    /* The geometry by direction and side; it replaces `side` and the three members above, which are then 0. NULL: as
     * above. */
    const tensor_window2d *window;
} nn_pool2d_options;
/* Max pooling: the largest of each side x side pixels, channel by channel: tensor_maxpool2d. */
FLEXLAB_API nn_node nn_maxpool2d(nn_graph *g, const char *name, nn_node x, int side, const nn_pool2d_options *how);
/* Max pooling of sequences [N, L, C]: tensor_maxpool1d. */
FLEXLAB_API nn_node nn_maxpool1d(nn_graph *g, const char *name, nn_node x, const tensor_window1d *how);
/* Global average pooling, the mean of all pixels: [N, H, W, C] to [N, C]. */
FLEXLAB_API nn_node nn_avgpool_global(nn_graph *g, const char *name, nn_node x);
/* A window that is the same down and across. All zero but `window`: stride 1, no padding, dilation 1, one group. */
typedef struct nn_window {
    int window, stride, padding, dilation, groups;
} nn_window;
/* Average pooling: the mean of each window of pixels, channel by channel. padding_counts: padding counts as zeros, else
 * not at all: tensor_avgpool2d. */
FLEXLAB_API nn_node nn_avgpool2d(nn_graph *g, const char *name, nn_node x, nn_window how, bool padding_counts);
/* Adaptive average pooling: the means of height x width windows that cover an image of any size:
 * tensor_avgpool_adaptive. */
FLEXLAB_API nn_node nn_avgpool_adaptive(nn_graph *g, const char *name, nn_node x, int height, int width);
/* Every stride-th pixel, zeros in the added channels: tensor_shortcut_a. */
FLEXLAB_API nn_node nn_shortcut_a(nn_graph *g, const char *name, nn_node x, int filters, int stride);

/* --- blocks of residual networks ---------------------------------------------------------------------------------- */

/* A block adds several layers, called NAME.conv, NAME.bn, ...; NAME has at most 84 characters. The shortcut of type B
 * (He et al. 2015, section 4.1): filters of 1x1 at every stride-th pixel, then batch normalisation. */
FLEXLAB_API nn_node nn_shortcut_b(nn_graph *g, const char *name, nn_node x, int filters, int stride);
/* The bottleneck (He et al. 2015, Fig. 5): 1x1 to width channels, 3x3 with the stride, 1x1 to 4 width channels, each
 * with batch normalisation; relu after the first two, and after the sum with x. If the shapes of x and of the result
 * differ, the sum is with x's shortcut of type B. */
FLEXLAB_API nn_node nn_bottleneck(nn_graph *g, const char *name, nn_node x, int width, int stride);

/* --- sequences [batch, length, width] ----------------------------------------------------------------------------- */

/* Embedding: [batch, length] tokens to [batch, length, width], one row of a table [vocabulary, width] for each token:
 * tensor_embedding. The table is initially normal with the given standard deviation, which is finite and above 0. */
FLEXLAB_API nn_node nn_embedding(nn_graph *g, const char *name, nn_node tokens, int width, double deviation);
/* Adds a learned row to each position, the same in every sequence: x + NAME.weight, [length, width], initially normal
 * with the given standard deviation. */
FLEXLAB_API nn_node nn_positions(nn_graph *g, const char *name, nn_node x, double deviation);
/* Self-attention (Vaswani et al. 2017): each head, width / heads wide, mixes the values of the positions by softmax(q k
 * / sqrt(width / heads)); causal: only those up to the position itself. Layers are NAME.query, NAME.key, NAME.value
 * and, for the mixtures, NAME.projection, each [width, width] with biases; weights are initially normal with deviation
 * 0.02. heads divides the width. */
FLEXLAB_API nn_node nn_attention(nn_graph *g, const char *name, nn_node x, int heads, bool causal);
/* The settings of a transformer block. All zero except heads: that of GPT-2, without a mask. */
typedef struct nn_transformer {
    int heads;    /* a divisor of the width */
    int hidden;   /* width of the hidden layer of the perceptron; 0: four times that of x */
    int layers;   /* layers of the network: divides the initial weights that lead back to the sum by sqrt(2 layers); 0:
                     does not */
    bool causal;  /* attention of a position sees positions up to its own */
    bool rmsnorm; /* instead of layer normalisation */
    const char *activation; /* see nn_activation; NULL: "gelu_tanh" */
} nn_transformer;
/* A transformer block with normalisation before each part (Radford et al. 2019): h = x + attention(norm1(x)), then h +
 * contract(activation(expand(norm2(h)))). Each sum is one operation with the layer before it, rounded once. Layers are
 * called NAME.norm1, NAME.attention.query, ..., NAME.expand, NAME.contract. */
FLEXLAB_API nn_node nn_transformer_block(nn_graph *g, const char *name, nn_node x, const nn_transformer *how);
/* LSTM and GRU: sequences [batch, length, width] to [batch, length, units], the states after each step, from a state of
 * zeros: tensor_lstm, tensor_gru. Layers NAME.time and NAME.sequence permute to time first and back to batch first;
 * NAME.input (nn_linear) and NAME stand between them; NAME has at most 84 characters. An image is a sequence of its
 * lines. Weights of the inputs are initially uniform within 1/sqrt(width), those of the states within 1/sqrt(units);
 * biases are zero, except 1 for the forget gate (docs/models.md). */
FLEXLAB_API nn_node nn_lstm(nn_graph *g, const char *name, nn_node x, int units);
FLEXLAB_API nn_node nn_gru(nn_graph *g, const char *name, nn_node x, int units);
/* The last step of a sequence, [batch, width]. */
FLEXLAB_API nn_node nn_last_step(nn_graph *g, const char *name, nn_node x);

#ifdef __cplusplus
}
#endif
#endif
