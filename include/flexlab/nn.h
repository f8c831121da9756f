/* nn.h - networks, training and evaluation on the tensors of tensor.h.
 *
 *     nn_graph *g = nn_graph_new(&(nn_config){.variant = "flex16+5", .batch = 128, .seed = 1});
 *     nn_node x = nn_input(g, 32, 32, 3);
 *     x = nn_conv2d(g, "conv1", x, 16, 3, 1, 1);
 *     x = nn_batchnorm(g, "bn1", x, true);
 *     x = nn_avgpool_global(g, "pool", x);
 *     x = nn_linear(g, "fc", x, 10);
 *     if (nn_compile(g, x)) ...
 *     nn_train_step(g, images, labels, 0.1f, &loss, &correct);
 *
 * Networks that read text begin with nn_tokens and nn_embedding: sequences [batch, length, width].
 *
 * Building never fails in place: a bad call returns node -1, further calls on it return -1, and nn_compile returns the
 * first failure. One graph belongs to one thread at a time. Images are [N, H, W, C], the weights of a linear layer
 * [in, out], and its inputs in the order H, W, C where it flattens an image. Structs grow as tensor.h says: set them to
 * zero first; nn_variant, nn_step_report, nn_epoch_report and the rows of telemetry are the
 * library's own, seen by pointer. */
#ifndef FLEXLAB_NN_H
#define FLEXLAB_NN_H

#include "flexlab/data.h"
#include "flexlab/tensor.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- variants: a format and how its weights are written ----------------------------------------------------------- */

/* fp32; fp16, bf16 (fp32 master weights); flex16+5, dfp16 (wide weights: int32 mantissa, int16 view); fp16-sr,
 * bf16-sr, flex16+5-sr (weights of 16 bits alone, stochastic rounding of the weight write); flex16+5-paper (int16,
 * nearest everywhere). */
typedef struct nn_variant {
    const char *name;
    tensor_format format;
    const char *predictor;   /* NULL for float formats */
    bool wide;               /* weights keep a wide copy */
    bool stochastic_weights; /* stochastic rounding of the weight write */
    const char *summary;
} nn_variant;
/* NULL for an unknown name (tensor_error lists the known ones). A format added as a folder is its own variant, wide. */
FLEXLAB_API const nn_variant *nn_variant_find(const char *name) FLEXLAB_SYMBOL(nn_variant_find);
/* NULL past the last. */
FLEXLAB_API const nn_variant *nn_variant_list(int i) FLEXLAB_SYMBOL(nn_variant_list);

/* --- graph -------------------------------------------------------------------------------------------------------- */

typedef struct nn_graph nn_graph;
typedef int nn_node; /* names the output of a layer; -1: none, a call has failed */

typedef struct nn_config {
    const char *variant;   /* see nn_variant */
    const char *predictor; /* NULL: the variant's; else a name of autoflex_list: "paper", "repeat", ... */
    bool no_master;        /* leave out the wide copy of the weights ("--master none"); not beside a policy that asks
                            * for master weights */
    int batch;             /* images, or sequences, a step */
    uint64_t seed;         /* initial weights, stochastic rounding; the same for every variant */
    float momentum;        /* used by nn_train_step as given (0: none); of sgd and rmsprop alone */
    float weight_decay;
    const char *device; /* where the network lives and trains: a name of tensor_device_list; NULL: "cpu" */
    /* How weights follow from gradients: docs/optimisers.md. All zero: gradient descent with momentum, as above. */
    const char *optimiser; /* one of nn_optimiser_list; NULL: "sgd" */
    const char *decay;     /* what decays: "all", "weights" (no biases, gammas and betas); NULL: "weights" of adamw and
                            * lamb, "all" of the others */
    float beta1, beta2;    /* 0: 0.9 and 0.999; beta2 of rmsprop 0.99 */
    float epsilon;         /* 0: 1e-8; lamb 1e-6, adagrad 1e-10 */
    float clip_value;      /* each element of a gradient counts as at most this; 0: as it is */
    float clip_norm;       /* all gradients together count as at most this long; 0: as they are */
    bool nesterov;         /* sgd with momentum: the weight follows where the velocity leads to */
    bool narrow_state;     /* moments and roots of 16 bits, by stochastic rounding: of parameters that are updated in a
                            * format with a shared exponent, one of which there must be */
    unsigned char unused[2]; /* no padding before what follows, which nobody would set */
    /* What the network is trained for: docs/losses.md. All zero: cross-entropy of one label a row, as above. */
    const char *loss;      /* one of nn_loss_list; NULL: "cross_entropy" */
    float label_smoothing; /* of cross_entropy in training, 0 to 1; evaluation measures without it */
    float huber_delta;     /* of huber; 0: 1 */
    int32_t ignored_label; /* where ignores is set, rows of this label count nothing: cross_entropy, wasserstein */
    bool ignores;
    bool input_gradient; /* backward goes on to the images: nn_input_gradient */
    unsigned char unused_too[2];
    /* Formats that differ by layer and role: docs/policies.md. NULL: the variant throughout. */
    const char *policy;        /* a name of nn_policy_list, the path of a file, or a text that has a ';' or line feed */
    const char *layer_formats; /* "fc*=bf16,conv1=fp32": layers as these variants have them, after the policy's rules */
    /* What the gradient of the loss is multiplied with before it is rounded, and taken out of in the update:
     * docs/loss-scaling.md. "none" (NULL); a power of two such as "1024" or "2^10"; "dynamic", which moves with
     * overflows, or "dynamic:init=65536,window=2000,factor=2,min=0.03125,max=16777216" with any of these, each once;
     * where min or max leaves 65536 out and init is not said, init is the nearer of them. */
    const char *loss_scale;
} nn_config;

/* The same in its full form, what was left out filled in; NULL is "none". TENSOR_E_ARGUMENT for what nn_config would be
 * refused with, and where it takes more than size - 1 bytes (200 suffice). */
FLEXLAB_API tensor_status nn_loss_scale_text(const char *loss_scale, char *text, size_t size)
    FLEXLAB_SYMBOL(nn_loss_scale_text);

/* Policies by name: "O0" ... "O3" (fp16), "O1:bf16" ..., "flex16+5", "dfp16", ...; what each is, and its text, which a
 * file may begin from. NULL past the last. */
FLEXLAB_API const char *nn_policy_list(int i) FLEXLAB_SYMBOL(nn_policy_list);
FLEXLAB_API const char *nn_policy_summary(int i) FLEXLAB_SYMBOL(nn_policy_summary);
FLEXLAB_API const char *nn_policy_text(int i) FLEXLAB_SYMBOL(nn_policy_text);

/* "cross_entropy"; "squared_error" and "huber", whose targets are numbers (nn_forward_targets); "wasserstein", a critic
 * of rows with label 1, real, and 0, generated; "none", a network whose gradient comes from elsewhere
 * (nn_forward_images, nn_backward_from). NULL past the last. */
FLEXLAB_API const char *nn_loss_list(int i) FLEXLAB_SYMBOL(nn_loss_list);

/* "sgd", "adam", "adamw", "rmsprop", "adagrad", "lamb"; NULL past the last. */
FLEXLAB_API const char *nn_optimiser_list(int i) FLEXLAB_SYMBOL(nn_optimiser_list);

FLEXLAB_API nn_graph *nn_graph_new_sized(const nn_config *config, size_t config_size)
    FLEXLAB_SYMBOL(nn_graph_new_sized);
/* NULL on failure. */
static inline nn_graph *nn_graph_new(const nn_config *config) {
    return nn_graph_new_sized(config, sizeof *config);
}
/* With every tensor of the network. NULL is allowed. */
FLEXLAB_API void nn_graph_free(nn_graph *g) FLEXLAB_SYMBOL(nn_graph_free);

/* Layers. Names must be unique and appear in traces and statistics as NAME (output), NAME.weight, NAME.bias,
 * NAME.gamma, NAME.beta; gradients and momentum carry the suffixes .grad and .momentum, roots and directions of
 * optimisers .root and .direction. Weights: He initialisation,
 * normal with variance 2 / fan-out for convolutions (He et al. 2015, fan-out mode) and 2 / fan-in for linear layers
 * followed by relu, uniform +-1/sqrt(fan-in) for the last; drawn by (seed, name, element), so they do not depend on the
 * format. */
/* Images [batch, height, width, channels]; a graph has one input, and it comes first. */
FLEXLAB_API nn_node nn_input(nn_graph *g, int height, int width, int channels) FLEXLAB_SYMBOL(nn_input);
/* The other input: sequences [batch, length] of tokens, int32 numbers from 0 to vocabulary - 1. nn_embedding alone
 * reads them. A step of such a network takes tokens instead of images (nn_train_step_tokens and its parts). */
FLEXLAB_API nn_node nn_tokens(nn_graph *g, int length, int vocabulary) FLEXLAB_SYMBOL(nn_tokens);
/* [batch, length] tokens to [batch, length, width]: the row of a table [vocabulary, width] for each, tensor_embedding.
 * The table starts normal with that standard deviation, which is finite and above 0. */
FLEXLAB_API nn_node nn_embedding(nn_graph *g, const char *name, nn_node tokens, int width, double deviation)
    FLEXLAB_SYMBOL(nn_embedding);
/* Sequences [batch, length, width] to [batch, length, units], the states of an LSTM or a GRU after each step:
 * tensor_lstm, tensor_gru, from a state of zeros. Layers NAME.time and NAME.sequence have time or the batch first,
 * NAME.input (nn_linear) and NAME stand between them; names of at most 84 characters. An image is a sequence of its
 * lines. Weights of the inputs start uniform within 1/sqrt(width), those of the states within 1/sqrt(units);
 * biases zero, but 1 for the forget gate. docs/recurrent.md */
FLEXLAB_API nn_node nn_lstm(nn_graph *g, const char *name, nn_node x, int units) FLEXLAB_SYMBOL(nn_lstm);
FLEXLAB_API nn_node nn_gru(nn_graph *g, const char *name, nn_node x, int units) FLEXLAB_SYMBOL(nn_gru);
/* The last step of a sequence, [batch, width]. */
FLEXLAB_API nn_node nn_last_step(nn_graph *g, const char *name, nn_node x) FLEXLAB_SYMBOL(nn_last_step);
/* filters of kernel x kernel pixels, no bias: tensor_conv2d. */
FLEXLAB_API nn_node nn_conv2d(nn_graph *g, const char *name, nn_node x, int filters, int kernel, int stride,
                              int padding) FLEXLAB_SYMBOL(nn_conv2d);
/* The same with dilation and groups; how.window is the side of the filters. Fan-out counts the filters of a group. */
/* A window that is the same in both directions and on all sides, as tensor_window has it; 0 in dilation and groups
 * means 1. */
typedef struct nn_window {
    int window, stride, padding, dilation, groups;
} nn_window;
FLEXLAB_API nn_node nn_conv2d_window(nn_graph *g, const char *name, nn_node x, int filters, nn_window how)
    FLEXLAB_SYMBOL(nn_conv2d_window);
/* The same with a bias for each filter, which is added to the stored sums, then max(0, .) if relu. */
FLEXLAB_API nn_node nn_conv2d_bias(nn_graph *g, const char *name, nn_node x, int filters, nn_window how, bool relu)
    FLEXLAB_SYMBOL(nn_conv2d_bias);
/* x[..., c] + bias[c], then max(0, .) if relu. */
FLEXLAB_API nn_node nn_bias(nn_graph *g, const char *name, nn_node x, bool relu) FLEXLAB_SYMBOL(nn_bias);
/* Filters of how.window pixels, each direction and side for itself, with a bias in the same rounding if asked for:
 * tensor_conv2d_with. Weights as above, fan-out: filters of a group times positions of a window; biases 0. */
FLEXLAB_API nn_node nn_conv2d_with_sized(nn_graph *g, const char *name, nn_node x, int filters,
                                         const tensor_window2d *how, size_t how_size, bool bias)
    FLEXLAB_SYMBOL(nn_conv2d_with_sized);
static inline nn_node nn_conv2d_with(nn_graph *g, const char *name, nn_node x, int filters, tensor_window2d how,
                                     bool bias) {
    return nn_conv2d_with_sized(g, name, x, filters, &how, sizeof how, bias);
}
/* tensor_conv_transpose2d, to so many channels; NAME.weight is [channels of x, R, S, channels / groups]. Normal with
 * variance 2 / (channels / groups * R * S): the numbers that one pixel of x goes to, which is the fan-out here too. */
FLEXLAB_API nn_node nn_conv_transpose2d_sized(nn_graph *g, const char *name, nn_node x, int channels,
                                              const tensor_window2d *how, size_t how_size, bool bias)
    FLEXLAB_SYMBOL(nn_conv_transpose2d_sized);
static inline nn_node nn_conv_transpose2d(nn_graph *g, const char *name, nn_node x, int channels, tensor_window2d how,
                                          bool bias) {
    return nn_conv_transpose2d_sized(g, name, x, channels, &how, sizeof how, bias);
}
/* tensor_maxpool2d_with. */
FLEXLAB_API nn_node nn_maxpool2d_with_sized(nn_graph *g, const char *name, nn_node x, const tensor_window2d *how,
                                            size_t how_size) FLEXLAB_SYMBOL(nn_maxpool2d_with_sized);
static inline nn_node nn_maxpool2d_with(nn_graph *g, const char *name, nn_node x, tensor_window2d how) {
    return nn_maxpool2d_with_sized(g, name, x, &how, sizeof how);
}
/* The same on sequences [batch, length, channels]: tensor_conv1d (causal with padding {(window - 1) dilation, 0}),
 * tensor_conv_transpose1d, tensor_maxpool1d; fan-out with a window of one line. */
FLEXLAB_API nn_node nn_conv1d_sized(nn_graph *g, const char *name, nn_node x, int filters, const tensor_window1d *how,
                                    size_t how_size, bool bias) FLEXLAB_SYMBOL(nn_conv1d_sized);
static inline nn_node nn_conv1d(nn_graph *g, const char *name, nn_node x, int filters, tensor_window1d how, bool bias) {
    return nn_conv1d_sized(g, name, x, filters, &how, sizeof how, bias);
}
FLEXLAB_API nn_node nn_conv_transpose1d_sized(nn_graph *g, const char *name, nn_node x, int channels,
                                              const tensor_window1d *how, size_t how_size, bool bias)
    FLEXLAB_SYMBOL(nn_conv_transpose1d_sized);
static inline nn_node nn_conv_transpose1d(nn_graph *g, const char *name, nn_node x, int channels, tensor_window1d how,
                                          bool bias) {
    return nn_conv_transpose1d_sized(g, name, x, channels, &how, sizeof how, bias);
}
FLEXLAB_API nn_node nn_maxpool1d_sized(nn_graph *g, const char *name, nn_node x, const tensor_window1d *how,
                                       size_t how_size) FLEXLAB_SYMBOL(nn_maxpool1d_sized);
static inline nn_node nn_maxpool1d(nn_graph *g, const char *name, nn_node x, tensor_window1d how) {
    return nn_maxpool1d_sized(g, name, x, &how, sizeof how);
}
/* By the statistics of the batch in training, by running ones (momentum 0.1) in evaluation; epsilon 1e-5; relu after it
 * if asked for. */
FLEXLAB_API nn_node nn_batchnorm(nn_graph *g, const char *name, nn_node x, bool relu) FLEXLAB_SYMBOL(nn_batchnorm);
/* relu(batchnorm(x) + residual): one operation, rounded once */
FLEXLAB_API nn_node nn_batchnorm_add_relu(nn_graph *g, const char *name, nn_node x, nn_node residual)
    FLEXLAB_SYMBOL(nn_batchnorm_add_relu);
/* Settings of batch normalisation; all zero: as above. */
typedef struct nn_batchnorm_settings {
    double epsilon;          /* 0: 1e-5; else a finite number above 0 */
    double momentum;         /* of running statistics, the share of the new batch: above 0, at most 1; 0: 0.1 */
    bool relu;               /* after it; of nn_batchnorm_add_relu_with always */
    unsigned char unused[7]; /* no padding at the end, which nobody would set */
} nn_batchnorm_settings;
FLEXLAB_API nn_node nn_batchnorm_with_sized(nn_graph *g, const char *name, nn_node x, const nn_batchnorm_settings *how,
                                            size_t how_size) FLEXLAB_SYMBOL(nn_batchnorm_with_sized);
FLEXLAB_API nn_node nn_batchnorm_add_relu_with_sized(nn_graph *g, const char *name, nn_node x, nn_node residual,
                                                     const nn_batchnorm_settings *how, size_t how_size)
    FLEXLAB_SYMBOL(nn_batchnorm_add_relu_with_sized);
/* nn_batchnorm and nn_batchnorm_add_relu with settings of their own (NULL: none). */
static inline nn_node nn_batchnorm_with(nn_graph *g, const char *name, nn_node x, const nn_batchnorm_settings *how) {
    return nn_batchnorm_with_sized(g, name, x, how, sizeof *how);
}
static inline nn_node nn_batchnorm_add_relu_with(nn_graph *g, const char *name, nn_node x, nn_node residual,
                                                 const nn_batchnorm_settings *how) {
    return nn_batchnorm_add_relu_with_sized(g, name, x, residual, how, sizeof *how);
}
/* x w + b with w [in, out]. An image is flattened first: input (h W + w) C + c is channel c of pixel (h, w). Of a
 * sequence [batch, length, in] each position is a row; products and bias are one operation then, rounded once. */
FLEXLAB_API nn_node nn_linear(nn_graph *g, const char *name, nn_node x, int outputs) FLEXLAB_SYMBOL(nn_linear);
/* max(0, nn_linear). */
FLEXLAB_API nn_node nn_linear_relu(nn_graph *g, const char *name, nn_node x, int outputs)
    FLEXLAB_SYMBOL(nn_linear_relu);
/* max(0, x), element by element. */
FLEXLAB_API nn_node nn_relu(nn_graph *g, const char *name, nn_node x) FLEXLAB_SYMBOL(nn_relu);
/* max(0, a + b), rounded once; a and b have one shape. */
FLEXLAB_API nn_node nn_add_relu(nn_graph *g, const char *name, nn_node a, nn_node b) FLEXLAB_SYMBOL(nn_add_relu);
/* a + b, rounded once; a and b have one shape. */
FLEXLAB_API nn_node nn_add(nn_graph *g, const char *name, nn_node a, nn_node b) FLEXLAB_SYMBOL(nn_add);
/* The largest of each window x window pixels, channel by channel; no padding: tensor_maxpool2d. */
FLEXLAB_API nn_node nn_maxpool2d(nn_graph *g, const char *name, nn_node x, int window, int stride)
    FLEXLAB_SYMBOL(nn_maxpool2d);
/* [N, H, W, C] to [N, C]: the mean of all pixels. */
FLEXLAB_API nn_node nn_avgpool_global(nn_graph *g, const char *name, nn_node x) FLEXLAB_SYMBOL(nn_avgpool_global);
/* The mean of each window of pixels, channel by channel; padding counts as zeros or not at all: tensor_avgpool2d. */
FLEXLAB_API nn_node nn_avgpool2d(nn_graph *g, const char *name, nn_node x, nn_window how, bool padding_counts)
    FLEXLAB_SYMBOL(nn_avgpool2d);
/* Means of height x width windows that cover the image, whatever its size: tensor_avgpool_adaptive. */
FLEXLAB_API nn_node nn_avgpool_adaptive(nn_graph *g, const char *name, nn_node x, int height, int width)
    FLEXLAB_SYMBOL(nn_avgpool_adaptive);
/* Local response normalisation across channels: tensor_lrn, with its limits. */
FLEXLAB_API nn_node nn_lrn(nn_graph *g, const char *name, nn_node x, int size, float alpha, float beta, float k)
    FLEXLAB_SYMBOL(nn_lrn);
/* Group normalisation with a gamma and a beta for each channel: tensor_groupnorm; groups = channels is instance
 * normalisation. epsilon 0: 1e-5. The same in training and evaluation. */
FLEXLAB_API nn_node nn_groupnorm(nn_graph *g, const char *name, nn_node x, int groups, double epsilon)
    FLEXLAB_SYMBOL(nn_groupnorm);
/* Dropout: in training each element is 0 with probability p, 0 <= p < 1, else it is x / (1 - p): tensor_dropout; drawn
 * by (config.seed, name, updates so far, element), so that the draws of a step depend neither on the format nor on the
 * device, and a step that is run again has the same. In evaluation it is x. */
FLEXLAB_API nn_node nn_dropout(nn_graph *g, const char *name, nn_node x, float p) FLEXLAB_SYMBOL(nn_dropout);
/* The mean over dimensions in axes, bit d for dimension d and not 0, the batch: [N, T, C] over bit 1 is [N, C]. keep:
 * they stay, with 1 element, and the result can be repeated again. tensor_reduce_mean. */
FLEXLAB_API nn_node nn_reduce_mean(nn_graph *g, const char *name, nn_node x, unsigned axes, bool keep)
    FLEXLAB_SYMBOL(nn_reduce_mean);
/* a + b and a b, b repeated along dimensions in which it has 1 element and a more; as many dimensions in both:
 * tensor_broadcast_add, tensor_broadcast_mul. */
FLEXLAB_API nn_node nn_broadcast_add(nn_graph *g, const char *name, nn_node a, nn_node b)
    FLEXLAB_SYMBOL(nn_broadcast_add);
FLEXLAB_API nn_node nn_broadcast_mul(nn_graph *g, const char *name, nn_node a, nn_node b)
    FLEXLAB_SYMBOL(nn_broadcast_mul);
/* x times a learned factor of each channel, the last dimension: NAME.gamma, 1 at first. */
FLEXLAB_API nn_node nn_channel_scale(nn_graph *g, const char *name, nn_node x) FLEXLAB_SYMBOL(nn_channel_scale);
/* x held between low and high: tensor_clamp. */
FLEXLAB_API nn_node nn_clamp(nn_graph *g, const char *name, nn_node x, float low, float high) FLEXLAB_SYMBOL(nn_clamp);
/* Every stride-th pixel, zeros in the added channels: tensor_shortcut_a. */
FLEXLAB_API nn_node nn_shortcut_a(nn_graph *g, const char *name, nn_node x, int filters, int stride)
    FLEXLAB_SYMBOL(nn_shortcut_a);

/* Blocks: several layers, called NAME.conv, NAME.bn, ...; names of at most 84 characters.
 * The shortcut of type B (He et al. 2015, section 4.1): filters of 1x1 at every stride-th pixel, batch normalisation.
 */
FLEXLAB_API nn_node nn_shortcut_b(nn_graph *g, const char *name, nn_node x, int filters, int stride)
    FLEXLAB_SYMBOL(nn_shortcut_b);
/* The bottleneck (He et al. 2015, Fig. 5): 1x1 to width channels, 3x3 with the stride, 1x1 to 4 width, each with batch
 * normalisation, relu after the first two and after the sum with x, or, where the shapes of x and of the result differ,
 * with its shortcut of type B. */
FLEXLAB_API nn_node nn_bottleneck(nn_graph *g, const char *name, nn_node x, int width, int stride)
    FLEXLAB_SYMBOL(nn_bottleneck);
/* A depthwise separable convolution (Howard et al. 2017, Fig. 3): 3x3 with the stride on each channel by itself, then
 * 1x1 to filters channels, each with batch normalisation and relu. */
FLEXLAB_API nn_node nn_depthwise_separable(nn_graph *g, const char *name, nn_node x, int filters, int stride)
    FLEXLAB_SYMBOL(nn_depthwise_separable);

/* Of sequences [batch, length, width], and of whatever else has rows: tensor_layernorm (NAME.gamma, NAME.beta) and
 * tensor_rmsnorm (NAME.gamma) with epsilon 1e-5. */
FLEXLAB_API nn_node nn_layernorm(nn_graph *g, const char *name, nn_node x) FLEXLAB_SYMBOL(nn_layernorm);
FLEXLAB_API nn_node nn_rmsnorm(nn_graph *g, const char *name, nn_node x) FLEXLAB_SYMBOL(nn_rmsnorm);
/* A real function of each element, by the name of its operation: "gelu", "gelu_tanh", "silu", "tanh", "sigmoid", ...
 * nn_activation_list has them all. */
FLEXLAB_API nn_node nn_activation(nn_graph *g, const char *name, nn_node x, const char *function)
    FLEXLAB_SYMBOL(nn_activation);
/* The name of the i-th such function; NULL past the last. */
FLEXLAB_API const char *nn_activation_list(int i) FLEXLAB_SYMBOL(nn_activation_list);
/* Adds a learned row to each position, the same in every sequence: x + NAME.weight, [length, width], which starts
 * normal with that standard deviation. */
FLEXLAB_API nn_node nn_positions(nn_graph *g, const char *name, nn_node x, double deviation)
    FLEXLAB_SYMBOL(nn_positions);
/* Attention of a sequence to itself (Vaswani et al. 2017): each of the heads, width / heads wide, mixes the values of
 * the positions by softmax(q k / sqrt(width / heads)); causal: of those up to each one alone. Layers NAME.query,
 * NAME.key, NAME.value and, of the mixtures, NAME.projection, [width, width] with biases; weights start normal with
 * deviation 0.02. heads divides the width. */
FLEXLAB_API nn_node nn_attention(nn_graph *g, const char *name, nn_node x, int heads, bool causal)
    FLEXLAB_SYMBOL(nn_attention);
typedef struct nn_transformer {
    int heads;    /* a divisor of the width */
    int hidden;   /* width between the two layers of the perceptron; 0: four times that of x */
    int layers;   /* of the network: what leads back to the sum starts smaller by sqrt(2 layers); 0: does not */
    bool causal;  /* attention goes backwards alone */
    bool rmsnorm; /* instead of layer normalisation */
    unsigned char unused[2]; /* no padding, which nobody would set */
    const char *activation;  /* see nn_activation; NULL: "gelu_tanh" */
} nn_transformer;
FLEXLAB_API nn_node nn_transformer_block_sized(nn_graph *g, const char *name, nn_node x, const nn_transformer *how,
                                               size_t how_size) FLEXLAB_SYMBOL(nn_transformer_block_sized);
/* A block of a transformer, normalised before each part (Radford et al. 2019): x + attention(norm1(x)), then plus
 * contract(activation(expand(norm2 of it))). A sum is one operation with the layer that leads to it, rounded once.
 * Layers are called NAME.norm1, NAME.attention.query, ..., NAME.expand, NAME.contract. */
static inline nn_node nn_transformer_block(nn_graph *g, const char *name, nn_node x, nn_transformer how) {
    return nn_transformer_block_sized(g, name, x, &how, sizeof how);
}

/* Models: "mlp2" (two-layer perceptron of Koster et al., Fig. 3), "cnn6" (six-layer VGG-like), "resnet20", and
 * "resnetD" for D = 6n + 2 (8, 14, 20, 32, 44, 56, 110, ...; He et al. 2015, option A); "resnetD-b" with option B,
 * "resnetD-bottleneck" for D = 9n + 2, "wrnD-K" for D = 6n + 4 (wide residual networks, Zagoruyko and Komodakis 2016),
 * "mlpLxW" (L linear layers, hidden ones of W units with relu, weights uniform within 1/sqrt(inputs)), "lenet",
 * "alexnet", "vgg11", "vgg16", "mobilenet": docs/models.md has sources, sizes and what was changed. Builds
 * the whole network and returns its logits; -1 for an unknown name, with the known ones in tensor_error(), and for
 * images too small for the model. */
FLEXLAB_API nn_node nn_model(nn_graph *g, const char *model, int height, int width, int channels, int classes)
    FLEXLAB_SYMBOL(nn_model);
/* NULL past the last. */
FLEXLAB_API const char *nn_model_list(int i) FLEXLAB_SYMBOL(nn_model_list);
/* The same for models that read text: tokens [batch, length] of a vocabulary, to logits of the token that follows each.
 * "gptLxW": a transformer after GPT-2, L blocks (1 to 48) of width W (a multiple of 32 up to 2048), heads 32 wide;
 * "gpt" is gpt6x192, 2.8 million parameters with a vocabulary of 256 and a length of 128.
 * "lstm-char", "gru-char": an embedding of width 64, one recurrent layer of 256 units, a linear layer; 0.35 and 0.27
 * million parameters with a vocabulary of 65. */
FLEXLAB_API nn_node nn_model_text(nn_graph *g, const char *model, int length, int vocabulary)
    FLEXLAB_SYMBOL(nn_model_text);
/* The name of the i-th of them; NULL past the last. */
FLEXLAB_API const char *nn_text_model_list(int i) FLEXLAB_SYMBOL(nn_text_model_list);
/* Whether nn_model_text, and not nn_model, takes a name; false for NULL. */
FLEXLAB_API bool nn_model_reads_text(const char *model) FLEXLAB_SYMBOL(nn_model_reads_text);

/* Ends building: the logits are [batch, classes], or [batch, length, classes], of which each position has a label and
 * a loss of its own (nn_label_count of them a step; the loss is their mean). Plans all memory once (one arena:
 * activations, gradients, workspace of the operations, by lifetime) and initialises the weights. What a device lacks
 * for a step is told here. */
FLEXLAB_API tensor_status nn_compile(nn_graph *g, nn_node logits) FLEXLAB_SYMBOL(nn_compile);
/* Labels of a step: one for each row of the logits, in the order of rows; a multiple of config.batch. 0 before
 * nn_compile. */
FLEXLAB_API int64_t nn_label_count(const nn_graph *g) FLEXLAB_SYMBOL(nn_label_count);

/* One step on config.batch images [N,H,W,C]: forward, backward, update of the weights; after the second it allocates
 * nothing. loss and correct (how many predicted classes are the labels) may be NULL: then a device is not waited for.
 */
FLEXLAB_API tensor_status nn_train_step(nn_graph *g, const float *images, const int32_t *labels, float rate,
                                        double *loss, int *correct) FLEXLAB_SYMBOL(nn_train_step);
/* The same in its parts, each once and in this order: forward to the loss and the gradient of the logits; gradients of
 * the parameters (nn_tensor_at: role "weight gradient"), which a loop of one's own may look at or change; update by the
 * optimiser. TENSOR_E_ARGUMENT out of order. Arguments are checked before anything is written; a part
 * that fails for another reason (memory, a device) may have written some of its tensors, and nn_state_set with an
 * earlier state makes the network whole again. */
FLEXLAB_API tensor_status nn_forward(nn_graph *g, const float *images, const int32_t *labels)
    FLEXLAB_SYMBOL(nn_forward);
/* The second part: needs the activations of a forward pass that nothing has had the memory of since. */
FLEXLAB_API tensor_status nn_backward(nn_graph *g) FLEXLAB_SYMBOL(nn_backward);
/* The third part: uses each pass's gradients once. rate: 0 or more. */
FLEXLAB_API tensor_status nn_update(nn_graph *g, float rate) FLEXLAB_SYMBOL(nn_update);
/* The same with images as bytes [N,H,W,C], which go into the format in one pass and to a device in a quarter of the
 * traffic: values, [C, 256] floats, is what each byte means (data_pixel_values). The same bits as with those floats. */
FLEXLAB_API tensor_status nn_set_pixel_values(nn_graph *g, const float *values) FLEXLAB_SYMBOL(nn_set_pixel_values);
FLEXLAB_API tensor_status nn_forward_pixels(nn_graph *g, const uint8_t *images, const int32_t *labels)
    FLEXLAB_SYMBOL(nn_forward_pixels);
/* nn_train_step, nn_forward, nn_evaluate and nn_predict of a network whose input is tokens [batch, length]; count are
 * sequences then, and labels, predicted classes and rows of logits as many as those of count sequences. A token or
 * label out of range is TENSOR_E_ARGUMENT, at once and on every device, and so is a network whose input is images. */
FLEXLAB_API tensor_status nn_train_step_tokens(nn_graph *g, const int32_t *tokens, const int32_t *labels, float rate,
                                               double *loss, int *correct) FLEXLAB_SYMBOL(nn_train_step_tokens);
FLEXLAB_API tensor_status nn_forward_tokens(nn_graph *g, const int32_t *tokens, const int32_t *labels)
    FLEXLAB_SYMBOL(nn_forward_tokens);
FLEXLAB_API tensor_status nn_evaluate_tokens(nn_graph *g, const int32_t *tokens, const int32_t *labels, int count,
                                             double *loss, int32_t *predicted) FLEXLAB_SYMBOL(nn_evaluate_tokens);
FLEXLAB_API tensor_status nn_predict_tokens(nn_graph *g, const int32_t *tokens, int count, double *logits)
    FLEXLAB_SYMBOL(nn_predict_tokens);
/* nn_train_step, nn_forward and nn_evaluate of a network whose loss is squared_error or huber: targets are as many
 * numbers as the output has elements, of `count` images in evaluation. correct of nn_loss is 0. */
FLEXLAB_API tensor_status nn_train_step_targets(nn_graph *g, const float *images, const float *targets, float rate,
                                                double *loss) FLEXLAB_SYMBOL(nn_train_step_targets);
FLEXLAB_API tensor_status nn_forward_targets(nn_graph *g, const float *images, const float *targets)
    FLEXLAB_SYMBOL(nn_forward_targets);
FLEXLAB_API tensor_status nn_evaluate_targets(nn_graph *g, const float *images, const float *targets, int count,
                                              double *loss) FLEXLAB_SYMBOL(nn_evaluate_targets);

/* Networks in a chain, such as a generator before its critic. A network of loss "none" has a forward pass alone, and
 * backward begins with a gradient of its output that the caller gives: in the network's format, on its device, of the
 * output's shape, or with more rows, of which the first ones count. It is moved as tensor_slice does: exactly, and in
 * shared-exponent formats at an exponent of its own. A network with a policy takes it in any number format, and rounds
 * it to its own. Then nn_update as ever. Where the network's loss is scaled, the gradient is that of the scaled loss
 * (nn_loss_scale_get). */
FLEXLAB_API tensor_status nn_forward_images(nn_graph *g, const float *images) FLEXLAB_SYMBOL(nn_forward_images);
FLEXLAB_API tensor_status nn_backward_from(nn_graph *g, const tensor *gradient) FLEXLAB_SYMBOL(nn_backward_from);
/* The output of the last forward pass of such a network, until backward; of any network the gradient of the images
 * after backward, where the network was made with input_gradient, until the next forward pass or evaluation. To be read
 * alone. NULL where it is not there, with tensor_error() set. */
FLEXLAB_API const tensor *nn_output(const nn_graph *g) FLEXLAB_SYMBOL(nn_output);
FLEXLAB_API const tensor *nn_input_gradient(const nn_graph *g) FLEXLAB_SYMBOL(nn_input_gradient);
/* Holds every weight within +-limit (tensor_clip_weight), those of states (NAME.recurrent) too; not biases, gammas,
 * betas. */
FLEXLAB_API tensor_status nn_clip_weights(nn_graph *g, float limit) FLEXLAB_SYMBOL(nn_clip_weights);
/* Mean loss and right predictions of the last forward pass; either may be NULL. Waits for a device. */
FLEXLAB_API tensor_status nn_loss(const nn_graph *g, double *loss, int *correct) FLEXLAB_SYMBOL(nn_loss);
/* The same of step after step without waiting for a device. nn_note_loss, after a forward pass, notes its loss and
 * number of right predictions on the device; `every` steps (nn_note_every: 1 to 4096, where nothing is noted; 1 without
 * it) they start on their way to the host as one copy, which has arrived when the next group starts. nn_noted_loss
 * gives the oldest that arrived: *there says whether there was one. wait: it waits for those on their way and those
 * only noted, so that *there is false when all have been given. A failure that shows here drops those that had not
 * arrived: which of them were computed nobody knows. */
FLEXLAB_API tensor_status nn_note_every(nn_graph *g, int every) FLEXLAB_SYMBOL(nn_note_every);
FLEXLAB_API tensor_status nn_note_loss(nn_graph *g) FLEXLAB_SYMBOL(nn_note_loss);
FLEXLAB_API tensor_status nn_noted_loss(nn_graph *g, bool wait, double *loss, int *correct, bool *there)
    FLEXLAB_SYMBOL(nn_noted_loss);
/* Logits of count <= batch images, [count, classes], as nn_evaluate computes them; no labels. */
FLEXLAB_API tensor_status nn_predict(nn_graph *g, const float *images, int count, double *logits)
    FLEXLAB_SYMBOL(nn_predict);
/* Forward with running statistics on count <= batch images. Does not disturb training: activations of evaluation are
 * tensors of their own, with exponents from their exact maxima. loss: the mean; predicted: count classes or NULL. */
FLEXLAB_API tensor_status nn_evaluate(nn_graph *g, const float *images, const int32_t *labels, int count, double *loss,
                                      int32_t *predicted) FLEXLAB_SYMBOL(nn_evaluate);

typedef struct nn_data nn_data;
/* A data set as bytes where the network lives: a step then takes the numbers of its images instead of the images, and
 * augmentation is computed there, with the bytes of a data loader (tensor_augmentation). For this compiled graph alone;
 * free it before the graph and the set. NULL on failure: TENSOR_E_MEMORY where the device has no room, TENSOR_E_SHAPE
 * or TENSOR_E_ARGUMENT for images or labels that are not the network's, TENSOR_E_DEVICE for a fault. nn_train does this
 * with its sets on a device other than the host; a set for which there is no room is brought batch by batch instead. */
FLEXLAB_API nn_data *nn_data_new(nn_graph *g, const data_set *set) FLEXLAB_SYMBOL(nn_data_new);
/* NULL is allowed. */
FLEXLAB_API void nn_data_free(nn_data *data) FLEXLAB_SYMBOL(nn_data_free);
/* nn_forward_pixels of images number indices[0 ... batch - 1]; how NULL: as they are. */
FLEXLAB_API tensor_status nn_forward_data(nn_graph *g, const nn_data *data, const int64_t *indices,
                                          const tensor_augmentation *how) FLEXLAB_SYMBOL(nn_forward_data);
/* nn_evaluate of images number indices[0 ... count - 1], as nn_set_pixel_values says what their bytes mean. */
FLEXLAB_API tensor_status nn_evaluate_data(nn_graph *g, const nn_data *data, const int64_t *indices, int count,
                                           double *loss, int32_t *predicted) FLEXLAB_SYMBOL(nn_evaluate_data);

/* Every tensor of the training step, for traces and statistics: weights, activations, gradients, momentum. Exponents
 * and statistics are those of the last write. Elements of activations and gradients are there only from the operation
 * that writes them to the last that reads them: afterwards other tensors have their memory, and reading them is
 * TENSOR_E_ARGUMENT. nn_watch shows them in time. */
typedef struct nn_tensor_info {
    const char *name;
    /* "weight", "activation", "gradient", "weight gradient", "momentum"; of other optimisers "root", "direction" */
    const char *role;
    tensor *t;
} nn_tensor_info;
/* watch is called, on the thread that runs the step, as soon as the operation that writes a tensor of the step was
 * submitted, while its values are there: each tensor of nn_tensor_at once a step, node
 * by node in the order of the passes, what a node writes in no order. It may
 * read tensors, not write them. NULL: nobody watches. */
typedef void (*nn_watch_fn)(const nn_tensor_info *info, void *context);
FLEXLAB_API tensor_status nn_watch(nn_graph *g, nn_watch_fn watch, void *context) FLEXLAB_SYMBOL(nn_watch);
/* How many there are, and the i-th of them: {NULL} out of range. */
FLEXLAB_API int nn_tensor_count(const nn_graph *g) FLEXLAB_SYMBOL(nn_tensor_count);
FLEXLAB_API nn_tensor_info nn_tensor_at(const nn_graph *g, int i) FLEXLAB_SYMBOL(nn_tensor_at);
/* Weights in elements; then bytes: weights with their wide copies, the forward tensors of a training step as stored,
 * and the arena planned for activations and gradients by lifetime: the same on every machine. What the operations take
 * beside their tensors makes the arena larger by nn_workspace_bytes, which depends on the number of threads and the
 * kernels in force when nn_compile was called. */
FLEXLAB_API int64_t nn_parameter_count(const nn_graph *g) FLEXLAB_SYMBOL(nn_parameter_count);
FLEXLAB_API int64_t nn_weight_bytes(const nn_graph *g) FLEXLAB_SYMBOL(nn_weight_bytes);
FLEXLAB_API int64_t nn_activation_bytes(const nn_graph *g) FLEXLAB_SYMBOL(nn_activation_bytes);
FLEXLAB_API int64_t nn_arena_bytes(const nn_graph *g) FLEXLAB_SYMBOL(nn_arena_bytes);
FLEXLAB_API int64_t nn_workspace_bytes(const nn_graph *g) FLEXLAB_SYMBOL(nn_workspace_bytes);

/* --- formats by role ---------------------------------------------------------------------------------------------- */

/* What a policy came to. Rows: the parts of each layer in order, then each part's parameters behind it. */
typedef struct nn_role_row {
    const char *name; /* "fc.product"; "fc.weight" */
    const char *kind; /* "matmul"; "parameter" */
} nn_role_row;
/* 0 before all layers were added and where a rule of the policy does not fit them (TENSOR_E_ARGUMENT). */
FLEXLAB_API int nn_role_rows(nn_graph *g) FLEXLAB_SYMBOL(nn_role_rows);
/* Names NULL past the last; they stay until the next call of this thread. */
FLEXLAB_API nn_role_row nn_role_row_at(const nn_graph *g, int i) FLEXLAB_SYMBOL(nn_role_row_at);
/* "operands", "result", "activations", "gradients"; "weights", "weight-gradients", "state", "master", "rounding"; NULL
 * past the last. */
FLEXLAB_API const char *nn_role_list(int i) FLEXLAB_SYMBOL(nn_role_list);
/* What row i has in that role, "fp16" or "flex16+5:paper"; NULL where it has no such role. It stays until the next call
 * of this thread. */
FLEXLAB_API const char *nn_role(const nn_graph *g, int i, const char *role) FLEXLAB_SYMBOL(nn_role);
/* The whole policy in one line, which nn_config.policy takes; NULL where the variant stands throughout. */
FLEXLAB_API const char *nn_graph_policy(const nn_graph *g) FLEXLAB_SYMBOL(nn_graph_policy);
/* The loss scale that the policy asks for, as nn_config.loss_scale takes it; NULL where it says nothing. */
FLEXLAB_API const char *nn_policy_loss_scale(const nn_graph *g) FLEXLAB_SYMBOL(nn_policy_loss_scale);

/* Where the scaling of a network's loss stands. */
typedef struct nn_loss_scale {
    double scale;     /* of the next step; 1 without scaling */
    int64_t good;     /* dynamic: steps since the scale rose or a step was skipped */
    int64_t skipped;  /* steps so far that made no update */
    int64_t in_a_row; /* the last steps that made none */
    int64_t longest;  /* the most in a row so far */
} nn_loss_scale;
/* So many skipped steps in a row are told of (nn_train_events.starved): the network does not move. */
enum { NN_STARVED = 20 };
FLEXLAB_API tensor_status nn_loss_scale_sized(const nn_graph *g, nn_loss_scale *now, size_t size)
    FLEXLAB_SYMBOL(nn_loss_scale_sized);
static inline tensor_status nn_loss_scale_get(const nn_graph *g, nn_loss_scale *now) {
    return nn_loss_scale_sized(g, now, sizeof *now);
}

/* --- the first NaN or Inf ----------------------------------------------------------------------------------------- */

enum { NN_NONFINITE_BEFORE = 20 };
typedef struct nn_seen_write {
    int64_t step;
    const char *tensor, *role;
    double maximum; /* before rounding */
    int64_t saturated, flushed;
    int64_t e;
} nn_seen_write;
/* The write that is the first of its step, in the order of computation, to hold a NaN or Inf, or under a shared
 * exponent, which has neither, to be the rounding of one. The library's own, seen by pointer; its texts stay as long as
 * the network. */
typedef struct nn_nonfinite {
    int64_t step;                /* from 1; of pass "update" that after which the weights are not finite */
    const char *tensor, *role;   /* as nn_tensor_at has them; "loss", "loss" */
    int64_t nonfinite, elements; /* NaN and Inf; all */
    const nn_seen_write *before; /* of telemetry alone: the writes before it, the last one last */
    int64_t before_count;
    /* "input": what was given holds one, or the format does not hold it; "forward": an output, all before it being
     * finite; "loss": the loss, all outputs being finite; "backward": a gradient, all outputs and the loss being finite
     * (of a scaled loss, as they are stored); "update": a weight, or what the optimiser keeps of it, all gradients
     * being finite, or the weights that the step began with. "unknown": the loss of the step is not finite, and its
     * tensors were not looked at (nn_train_config.stop_on_nonfinite); the texts beside it are "" then. */
    const char *pass;
    const char *layer;  /* that computed it, of gradients in its backward pass; "loss" */
    const char *format; /* of the tensor */
    double maximum;     /* largest |x| before rounding, but for NaN */
    /* Lines of a policy (docs/policies.md), with "; " between them, under which what overflowed would be finite:
     * formats of layers, behind all other rules, or a loss scale. NULL where no format helps: the numbers before
     * rounding are not finite, or beyond binary32. */
    const char *remedy;
    const char *network; /* of nn_wgan_nonfinite alone: "critic" or "generator"; else NULL */
} nn_nonfinite;
/* Of the step as far as it is: after nn_forward its outputs, after nn_backward its gradients too, after nn_update all
 * of it, be it that a dynamic loss scale left the update out; between two steps that of the last one, before the first
 * that of the weights. *found NULL: all is finite. Looks at the counts that every write leaves, some hundred numbers;
 * waits for a device. Gradients that are not finite in a step that was left out are how a dynamic loss scale finds its
 * value (nn_loss_scale_get: in_a_row). */
FLEXLAB_API tensor_status nn_find_nonfinite(nn_graph *g, const nn_nonfinite **found) FLEXLAB_SYMBOL(nn_find_nonfinite);

/* --- the whole state ---------------------------------------------------------------------------------------------- */

/* All that the next step depends on: weights with their wide parts, momentum, running statistics, every tensor's
 * exponent, history and number of writes, the number of steps. A network of the same layers, variant and settings, in
 * this process or another of the same version and machine, goes on from it with the same bits. Position of the data:
 * data_loader_seek. */
FLEXLAB_API size_t nn_state_bytes(const nn_graph *g) FLEXLAB_SYMBOL(nn_state_bytes); /* 0 before nn_compile */
/* bytes must be nn_state_bytes(g). Setting checks all of it first: TENSOR_E_DATA names what does not fit, and then
 * nothing has changed. */
FLEXLAB_API tensor_status nn_state_get(const nn_graph *g, void *state, size_t bytes) FLEXLAB_SYMBOL(nn_state_get);
FLEXLAB_API tensor_status nn_state_set(nn_graph *g, const void *state, size_t bytes) FLEXLAB_SYMBOL(nn_state_set);
/* Steps so far: calls of nn_update, those that a dynamic loss scale made no update in included. */
FLEXLAB_API uint64_t nn_steps(const nn_graph *g) FLEXLAB_SYMBOL(nn_steps);

/* --- checkpoints -------------------------------------------------------------------------------------------------- */

/* The same state in a file that any program can read (safetensors: docs/checkpoints.md), on any machine, by this and
 * later versions: a network of the same layers, variant and settings goes on from it with the same bits, on whatever
 * device. A string of the file's metadata: */
typedef struct nn_note {
    const char *key, *value; /* UTF-8 */
} nn_note;
/* Writes PATH.part, and gives it its name when it is on the disk: whatever happens, under path stands the file before
 * or the new one, whole. A link, a FIFO, a device or a folder there stays, and is TENSOR_E_IO. notes: strings of the
 * caller's in it, under keys of their own ("author"); may be NULL for a count of 0. The gradients' elements, which the
 * next step writes anew, are not in it. Waits for a device. */
FLEXLAB_API tensor_status nn_checkpoint_save(const nn_graph *g, const char *path, const nn_note *notes, int count)
    FLEXLAB_SYMBOL(nn_checkpoint_save);
/* Sets the state of a compiled network. All of the file is checked first, down to a checksum: TENSOR_E_DATA names file,
 * tensor or setting, what was found and what was expected, and then nothing has changed. */
FLEXLAB_API tensor_status nn_checkpoint_load(nn_graph *g, const char *path) FLEXLAB_SYMBOL(nn_checkpoint_load);
/* A new graph with the settings of the network in the file, on that device (NULL: "cpu"), to build its layers on;
 * nn_compile, then nn_checkpoint_load. NULL on failure. The file may be a stranger's (docs/security.md): a policy in it
 * is its text, never the name of a file; before anything is allocated, nn_compile compares layers and batch with the
 * file's tensors (TENSOR_E_DATA); and a step may take 4 GiB, unless nn_graph_limit says otherwise. */
FLEXLAB_API nn_graph *nn_checkpoint_graph(const char *path, const char *device) FLEXLAB_SYMBOL(nn_checkpoint_graph);
/* The most bytes that a step of the network may take beside its weights, before nn_compile, which refuses more with
 * TENSOR_E_MEMORY; 0: as many as it takes, as with nn_graph_new. */
FLEXLAB_API tensor_status nn_graph_limit(nn_graph *g, int64_t bytes) FLEXLAB_SYMBOL(nn_graph_limit);
/* The string of that key in the file's metadata: those of nn_checkpoint_save, and the library's own. At most size - 1
 * bytes and a zero; TENSOR_E_DATA where there is none, TENSOR_E_ARGUMENT where it is longer. */
FLEXLAB_API tensor_status nn_checkpoint_note(const char *path, const char *key, char *value, size_t size)
    FLEXLAB_SYMBOL(nn_checkpoint_note);

/* Tensors of a safetensors file of any origin: a checkpoint, or weights that another program has written. `dim` has
 * room for 8; *ndim is -1 where the file has no tensor of that name, and 0 for a single number. TENSOR_E_ARGUMENT where
 * an argument is NULL; where the file cannot be read or is no safetensors file, what nn_checkpoint_load says of it. */
FLEXLAB_API tensor_status nn_checkpoint_shape(const char *path, const char *name, int *ndim, int64_t dim[8])
    FLEXLAB_SYMBOL(nn_checkpoint_shape);
/* Its elements, row-major, exactly: of type F64, F32, F16 or BF16, or I16 and I32 with a note NAME.exponent, e, as
 * m 2^-e (a checkpoint's NAME.wide has one too). Besides these errors TENSOR_E_DATA where there is no such tensor,
 * where its type is another, and where it has not `count` elements. */
FLEXLAB_API tensor_status nn_checkpoint_values(const char *path, const char *name, double *values, int64_t count)
    FLEXLAB_SYMBOL(nn_checkpoint_values);

/* Weights from elsewhere, into a compiled network of any variant and policy. The weight of that name, as nn_tensor_at
 * has it ("conv1.weight", "bn1.gamma"; not its master or copies), or what batch normalisation keeps
 * ("bn1.running_mean", "bn1.running_variance"), takes `count` values, row-major: each is rounded once, to nearest, to
 * what updates work on (the master weight, the wide part, or the weight), and copies in other formats follow from that;
 * shared exponents are those of the largest element, and their history begins anew, as with initial weights. Elements
 * written into a tensor of nn_tensor_at itself would be undone by the next update, where there is a master. What the
 * optimiser keeps and the number of steps stay as they are. TENSOR_E_ARGUMENT: no such name, a value that is not
 * finite; TENSOR_E_SHAPE: another count. On failure nothing has changed, but where a device fails. */
FLEXLAB_API tensor_status nn_weight_set(nn_graph *g, const char *name, const double *values, int64_t count)
    FLEXLAB_SYMBOL(nn_weight_set);
/* All of them from a safetensors file, by name: a checkpoint of the same layers in any variant (of which it takes the
 * master weight or the wide part, where there is one), or what another program has written, in any type of
 * nn_checkpoint_values. Tensors of other names are ignored. TENSOR_E_DATA names file and tensor where one is missing,
 * of another shape or type, or not finite, or the checksum is wrong; otherwise as above. */
FLEXLAB_API tensor_status nn_weights_load(nn_graph *g, const char *path) FLEXLAB_SYMBOL(nn_weights_load);

/* A weight, or a number that a layer keeps, as files have it. */
typedef struct nn_weight_info {
    const char *name;   /* NULL out of range; it stays until the next call of this thread */
    const char *layout; /* what the dimensions are: "out, height, width, in", "in, out", "channels" */
    int ndim;
    int64_t dim[8];
} nn_weight_info;
/* The i-th of them, from 0, in the order of the layers, also before nn_compile. Out of range, and of NULL: name is
 * NULL. */
FLEXLAB_API nn_weight_info nn_weight_at(const nn_graph *g, int i) FLEXLAB_SYMBOL(nn_weight_at);

typedef enum nn_weight_fit {
    NN_WEIGHT_FITS = 0,
    NN_WEIGHT_MISSING = 1, /* the file has no tensor of that name */
    NN_WEIGHT_SHAPE = 2,   /* it has another shape */
    /* It fits, and would in the layout of other programs too (a square matrix turned, a filter of 3x3 on 3 channels
     * with these in front), and the file does not say which it has: it is no checkpoint of ours and has no note
     * flexlab.layouts with the value 1. */
    NN_WEIGHT_BOTH_WAYS = 3,
    NN_WEIGHT_SUPERFLUOUS = 4 /* the network has none of that name */
} nn_weight_fit;
typedef struct nn_weight_match {
    nn_weight_fit fit;
    nn_weight_info weight; /* of the network; its name is NULL where the tensor is superfluous */
    const char *found;     /* name and shape in the file; NULL where it is missing */
    int found_ndim;
    int64_t found_dim[8];
} nn_weight_match;
typedef void (*nn_weight_match_fn)(const nn_weight_match *match, void *context);
/* How the tensors of a safetensors file go with the weights of a network, by name and shape: told once for each weight
 * in their order, then for each tensor that is superfluous (of a checkpoint: without what it has beside weights).
 * Strings last until `told` returns. Whatever comes out is no failure. */
FLEXLAB_API tensor_status nn_weights_match(const nn_graph *g, const char *path, nn_weight_match_fn told, void *context)
    FLEXLAB_SYMBOL(nn_weights_match);

/* --- telemetry ---------------------------------------------------------------------------------------------------- */

/* What every tensor of a training step looks like on the way, in any format, and what other formats would have done to
 * it: docs/telemetry.md says what each figure means. Structs of this section that the library gives are its own, seen
 * by pointer until the next call with the same telemetry. */
typedef struct nn_telemetry_shadow {
    const char *name; /* as given: "fp16", "flex16+5:ngraph" */
    int32_t e;
    int32_t unused;
    double error;               /* NAN: none */
    int64_t saturated, flushed; /* of this step */
    int64_t saturated_writes, e_moves;
} nn_telemetry_shadow;
typedef struct nn_telemetry_row {
    int64_t step; /* from 1 */
    const char *tensor, *role, *format;
    const tensor_description *elements; /* of this step; NULL: not looked at */
    double update_ratio;                /* NAN: no weight, or no such number */
    int64_t update_moved;               /* -1: no weight, or not known */
    /* Since the row before, this step included. */
    int64_t steps, writes;
    double maximum; /* largest |x| before rounding */
    int64_t saturated, flushed, nonfinite, saturated_writes, clamped_low, clamped_high, e_moves;
    int32_t e, e_least, e_largest; /* e: of this step */
    int32_t shadow_count;
    const nn_telemetry_shadow *shadows;
    /* Elements of this step's write that were computed again without rounding (docs/telemetry.md), 0: none; how many of
     * them are not finite in place of a finite result; of the others, root mean square of (stored - exact) and of
     * exact, NAN without any. */
    int64_t sampled, sampled_infinite;
    double sampled_error, sampled_size;
} nn_telemetry_row;

typedef struct nn_telemetry_config {
    const char *path;    /* JSON Lines; NULL: none */
    const char *csv;     /* the same rows as a table, in another file; NULL: none */
    const char *pattern; /* of names: '*', '?', several with commas between; NULL: all tensors */
    const char *shadows; /* formats, each with :PREDICTOR or its own, commas between; NULL: none */
    int64_t every;       /* steps between rows; 0: 10 */
    void (*row)(void *context, const nn_telemetry_row *row); /* every row; may be NULL */
    void *context;
    bool watched; /* the caller watches the network: its function calls nn_telemetry_watch with each tensor */
    unsigned char unused[7];
} nn_telemetry_config;
typedef struct nn_telemetry nn_telemetry;
FLEXLAB_API nn_telemetry *nn_telemetry_new_sized(nn_graph *g, const nn_telemetry_config *config, size_t config_size)
    FLEXLAB_SYMBOL(nn_telemetry_new_sized);
/* Of a compiled network, between two steps; takes its nn_watch, in steps with rows, unless `watched`. There may be
 * several of one network where all of them are `watched`. A device is waited for after every step. NULL on failure: a
 * pattern that matches no tensor, an unknown format or predictor, a file that cannot be written, another telemetry of
 * the network where not both are `watched`; the network is then as it was. Files replace regular files alone, and are
 * PATH.part until nn_telemetry_finish, and no other telemetry or trace may write there meanwhile (TENSOR_E_ARGUMENT, in
 * any process, where the file system knows locks). */
static inline nn_telemetry *nn_telemetry_new(nn_graph *g, const nn_telemetry_config *config) {
    return nn_telemetry_new_sized(g, config, sizeof *config);
}
/* An nn_watch_fn, context being the telemetry. */
FLEXLAB_API void nn_telemetry_watch(const nn_tensor_info *info, void *telemetry) FLEXLAB_SYMBOL(nn_telemetry_watch);
/* After every step, also one whose update was left out: writes the rows of steps 1, 1 + every, 1 + 2 every, ...,
 * counted on from nn_steps where the telemetry began. TENSOR_E_ARGUMENT after nn_telemetry_finish. */
FLEXLAB_API tensor_status nn_telemetry_step(nn_telemetry *t) FLEXLAB_SYMBOL(nn_telemetry_step);
/* The next step has rows, whatever its number: between two steps, before the last one. Of a step under way the row of
 * what was written before is without figures of elements, and update_ratio is NAN where the gradient was. */
FLEXLAB_API void nn_telemetry_want(nn_telemetry *t) FLEXLAB_SYMBOL(nn_telemetry_want);
/* The first NaN or Inf, whatever the pattern, and the writes before it; NULL: none so far. Gradients of steps that a
 * dynamic loss scale left out do not count, unless NN_STARVED of these came in a row; all else counts in them too. */
FLEXLAB_API const nn_nonfinite *nn_telemetry_nonfinite(const nn_telemetry *t) FLEXLAB_SYMBOL(nn_telemetry_nonfinite);
/* Rows of what came after the last ones, without figures of elements, and the end: the files get their names. */
FLEXLAB_API tensor_status nn_telemetry_finish(nn_telemetry *t) FLEXLAB_SYMBOL(nn_telemetry_finish);
/* Before the graph. Files that were not finished are removed. NULL is allowed. */
FLEXLAB_API void nn_telemetry_free(nn_telemetry *t) FLEXLAB_SYMBOL(nn_telemetry_free);

/* --- training loop ------------------------------------------------------------------------------------------------ */

/* Builds a network of one's own for images of that size: nn_input and layers on g; returns the logits. For a text:
 * nn_tokens(g, height, classes) and layers, height being the length of sequences and classes the vocabulary; width and
 * channels are 0. */
typedef nn_node (*nn_build_fn)(nn_graph *g, int height, int width, int channels, int classes, void *context);

typedef struct nn_train_config {
    nn_config network;
    const char *model; /* see nn_model and, for texts, nn_model_text; NULL: build makes the network */
    int epochs;
    double rate;          /* peak learning rate */
    const char *schedule; /* "linear" (to zero), "cosine", "step" (x 0.1 at 1/2 and 3/4), "constant"; "linear:0.1",
                           * "cosine:0.1": to that share of the peak */
    double warmup_epochs; /* linear from 0 */
    bool augment;
    int64_t max_steps;      /* stop after so many steps; 0: no limit (the schedule still spans all epochs) */
    int average_last;       /* steps whose mean loss is reported as last_loss (e.g. 100) */
    int trace_every;        /* steps between trace rows of a tensor, 1: all */
    const char *trace_path; /* NULL: no trace; else a CSV of every shared-exponent tensor; as nn_checkpoint_save */
    nn_build_fn build;      /* where model is NULL */
    void *build_context;
    /* 1 to 4096: steps whose losses come from a device as one copy (nn_note_every), and whose step reports come one
     * after the other then, up to twice as many steps late, with the seconds at that time; 0: 1 on the host, 16
     * elsewhere. */
    int64_t report_every;
    /* Checkpoints go to this folder, which must be there (NULL: none): resume.safetensors holds all that a training
     * needs to go on; it is written every checkpoint_every steps (0: after each epoch), when a callback stops the
     * training, and at the end. best.safetensors is the network alone, after the evaluation with the highest accuracy
     * so far (of equal ones, and of a text, that with the lowest loss); last.safetensors the network alone after the
     * last step. */
    const char *checkpoint;
    int64_t checkpoint_every;
    /* A resume.safetensors to go on from (NULL: from the beginning), by a training of the same settings on the same
     * data, whatever the device: weights, reports that follow, result and trace are those of a training that was never
     * interrupted. */
    const char *resume;
    const nn_note *notes; /* go into each of these files */
    int64_t note_count;
    int64_t context; /* of a text: tokens of a sequence; 0: 128. Of images: 0 */
    /* Telemetry (nn_telemetry_config): every tensor of the pattern each telemetry_every steps and at the last one. */
    int64_t telemetry_every;    /* 0: none */
    const char *telemetry_path; /* JSON Lines; NULL: no file */
    const char *telemetry_csv;  /* NULL: no file */
    const char *telemetry_pattern, *telemetry_shadows;
    int64_t resume_alone; /* not 0: of the files of `checkpoint` resume.safetensors alone is written */
    const char *weights;  /* a file that initial weights come from (nn_weights_load); NULL, and with resume: none */
    /* Not 0: the training stops after the step with the first NaN or Inf (nn_train_events.nonfinite), as by a callback;
     * one that goes on from a checkpoint behind it does not stop again. The tensors of every step are looked at then,
     * for which a device is waited for. Without it they are looked at on the host, and on a device with telemetry or a
     * dynamic loss scale (there weights after the step that follows); otherwise there a loss that is not finite is all
     * that shows. */
    int64_t stop_on_nonfinite;
    /* The most bytes that a step may take beside the weights (nn_graph_limit); 0: as many as it takes. For settings
     * that are none of the caller's own, such as a `resume` of somebody else's: the batch stands nowhere else. */
    int64_t most_of_steps;
} nn_train_config;

typedef struct nn_epoch_report {
    int epoch;         /* from 1 */
    int64_t step;      /* steps so far */
    double train_loss; /* mean over the epoch's batches */
    double train_accuracy;
    double test_loss, test_accuracy; /* NAN without a test set */
    double seconds;                  /* training alone, this epoch */
} nn_epoch_report;

typedef struct nn_step_report {
    int64_t step, steps; /* done so far, of all */
    int epoch;
    double loss, rate;
    double seconds;           /* training time since the start */
    int64_t images;           /* trained on since the start; of a text: sequences */
    double loss_scale;        /* that its loss was multiplied with; 1 without scaling */
    int64_t skipped_in_a_row; /* steps without an update, up to this one; 0: it made its own */
    const char *nonfinite;    /* where it wrote its first NaN or Inf: nn_nonfinite.pass; NULL: nowhere, or not known */
} nn_step_report;

/* Callbacks may be NULL. A non-zero return stops the training after this step or epoch: nn_train returns TENSOR_OK with
 * result->stopped set, the trace is complete up to that step, and the result is that of the steps so far. Where reports
 * come late (report_every above 1), up to twice as many steps have begun by then: they are done, reported one by one,
 * whatever is returned, and are part of trace and result. */
typedef struct nn_train_events {
    int (*step)(void *context, const nn_step_report *report);
    int (*epoch)(void *context, const nn_epoch_report *report);
    void *context;
    /* What the caller keeps in a resume.safetensors: bytes that stay until the next call, NULL without any. Called when
     * all steps so far were reported. */
    const void *(*keep)(void *context, size_t *bytes);
    /* These bytes, before the first step of a training that goes on. Non-zero where they are none of the caller's: the
     * training fails with TENSOR_E_DATA. */
    int (*resume)(void *context, const void *bytes, size_t count);
    /* Once: the first NaN or Inf, after the step in which it was written and before its report, with the writes before
     * it where there is telemetry. Gradients of steps that a dynamic loss scale left out do not count, unless
     * NN_STARVED of these came in a row; all else counts in them too. Not again of a training that goes on behind it:
     * nn_trainer_nonfinite. */
    void (*nonfinite)(void *context, const nn_nonfinite *first);
    void (*row)(void *context, const nn_telemetry_row *row); /* every row of the telemetry */
    /* NN_STARVED steps in a row made no update: once for each such row, before the report of the last of them. */
    void (*starved)(void *context, const nn_step_report *report);
} nn_train_events;

typedef struct nn_train_result {
    bool stopped;                    /* by a callback before the last step, or before the evaluation that follows it */
    double train_loss;               /* mean of the last epoch, or of what was trained of it */
    double last_loss;                /* mean over the last average_last steps */
    double test_loss, test_accuracy; /* of the last evaluation, NAN without any */
    double seconds;                  /* training alone, without evaluation */
    int64_t images, steps;
    int64_t parameters, weight_bytes, activation_bytes, arena_bytes;
    int64_t saturated, flushed, nonfinite, elements; /* over all tensors and writes of training */
    int64_t clamped_low, clamped_high;               /* exponents stopped at an end of their range */
    int32_t *predicted;      /* test set, in order; the caller frees with nn_train_result_clear */
    int64_t predicted_count; /* 0 without any evaluation */
    double loss_scale;       /* at the end; 1 without scaling */
    int64_t skipped, skipped_in_a_row, skipped_at_end; /* steps without an update: all, the most in a row, the last */
} nn_train_result;

/* network_size: that of config->network alone, which is a part of config_size. */
FLEXLAB_API tensor_status nn_train_sized(nn_train_result *result, size_t result_size, const nn_train_config *config,
                                         size_t config_size, size_t network_size, const data_set *train,
                                         const data_set *test, const nn_train_events *events, size_t events_size)
    FLEXLAB_SYMBOL(nn_train_sized);
/* Trains a new network. test and events may be NULL. On failure result is cleared. Of a text, which both sets are
 * then, a sample is a sequence of `context` tokens, its labels are the tokens that follow each, and losses, accuracies
 * and predictions are of those; `augment` draws where the sequences of an epoch begin (data_loader_config). Batches,
 * augmentation and initial weights depend on network.seed alone: two variants with one seed are a pair. */
static inline tensor_status nn_train(nn_train_result *result, const nn_train_config *config, const data_set *train,
                                     const data_set *test, const nn_train_events *events) {
    return nn_train_sized(result, sizeof *result, config, sizeof *config, sizeof config->network, train, test, events,
                          sizeof *events);
}
/* The same in parts, so that several trainings take turns. Until a trainer is freed, the sets and what config and
 * events point to must be there. NULL on failure. */
typedef struct nn_trainer nn_trainer;
FLEXLAB_API nn_trainer *nn_trainer_new_sized(const nn_train_config *config, size_t config_size, size_t network_size,
                                             const data_set *train, const data_set *test, const nn_train_events *events,
                                             size_t events_size) FLEXLAB_SYMBOL(nn_trainer_new_sized);
static inline nn_trainer *nn_trainer_new(const nn_train_config *config, const data_set *train, const data_set *test,
                                         const nn_train_events *events) {
    return nn_trainer_new_sized(config, sizeof *config, sizeof config->network, train, test, events, sizeof *events);
}
/* At most so many steps, all of them reported when it returns, with the evaluation and the checkpoint that are due
 * after each. *over (NULL: not wanted): the last step was made, or a callback stopped it; more steps change nothing
 * then. Whatever the parts, the bits are those of nn_train. After a failure a trainer can be freed alone. */
FLEXLAB_API tensor_status nn_trainer_advance(nn_trainer *t, int64_t steps, bool *over)
    FLEXLAB_SYMBOL(nn_trainer_advance);
/* Its network, to look at between two parts. */
FLEXLAB_API const nn_graph *nn_trainer_network(const nn_trainer *t) FLEXLAB_SYMBOL(nn_trainer_network);
/* The first NaN or Inf so far (nn_train_events.nonfinite), also of the steps before a training went on; NULL: none. It
 * stays as long as the trainer. */
FLEXLAB_API const nn_nonfinite *nn_trainer_nonfinite(const nn_trainer *t) FLEXLAB_SYMBOL(nn_trainer_nonfinite);
FLEXLAB_API tensor_status nn_trainer_finish_sized(nn_trainer *t, nn_train_result *result, size_t result_size)
    FLEXLAB_SYMBOL(nn_trainer_finish_sized);
/* What nn_train ends with: last checkpoint, totals, trace. Before the last step the training is stopped as by a
 * callback. On failure result is cleared. */
static inline tensor_status nn_trainer_finish(nn_trainer *t, nn_train_result *result) {
    return nn_trainer_finish_sized(t, result, sizeof *result);
}
/* One that has not finished is abandoned: of its trace nothing is left, its checkpoints stay. NULL is allowed. */
FLEXLAB_API void nn_trainer_free(nn_trainer *t) FLEXLAB_SYMBOL(nn_trainer_free);
FLEXLAB_API void nn_train_result_clear_sized(nn_train_result *result, size_t result_size)
    FLEXLAB_SYMBOL(nn_train_result_clear_sized);
/* Frees what nn_train put into result, and sets it to zero. NULL is allowed. */
static inline void nn_train_result_clear(nn_train_result *result) {
    nn_train_result_clear_sized(result, sizeof *result);
}

/* --- a generator and its critic ----------------------------------------------------------------------------------- */

/* Wasserstein GAN with weight clipping (Arjovsky et al. 2017, algorithm 1), on networks after DCGAN (Radford et al.
 * 2016): docs/losses.md. Images are square, their side a multiple of 8 up to 256. */
typedef struct nn_wgan_config {
    const char *variant;   /* of both networks: see nn_variant */
    const char *predictor; /* see nn_config */
    const char *device;
    uint64_t seed; /* initial weights, latent numbers, order of the images */
    int batch;     /* real images, and as many generated ones, a step */
    int side, channels;
    int latent;             /* numbers that an image is generated from; 0: 64 */
    int filters;            /* of the widest images; deeper ones have two and four times as many; 0: 32 */
    int critic_steps;       /* for each of the generator; 0: 5 */
    float rate;             /* 0: 5e-5 */
    float clip;             /* the critic's weights lie within +-clip; 0: 0.01 */
    const char *loss_scale; /* of each network's loss, with a scaler each: see nn_config */
    /* See nn_config. Of both networks: each rule is to match in one of them. Where a policy says more than a variant,
     * variant may be NULL. */
    const char *policy, *layer_formats;
    int64_t no_master; /* not 0: weights without wide copies, as nn_config has it */
} nn_wgan_config;

typedef struct nn_wgan nn_wgan;
FLEXLAB_API nn_wgan *nn_wgan_new_sized(const nn_wgan_config *config, size_t config_size)
    FLEXLAB_SYMBOL(nn_wgan_new_sized);
/* NULL on failure. */
static inline nn_wgan *nn_wgan_new(const nn_wgan_config *config) {
    return nn_wgan_new_sized(config, sizeof *config);
}
/* NULL is allowed. */
FLEXLAB_API void nn_wgan_free(nn_wgan *w) FLEXLAB_SYMBOL(nn_wgan_free);
/* The two networks, for traces and statistics; they belong to w. nn_steps tells how far they are. */
FLEXLAB_API nn_graph *nn_wgan_generator(const nn_wgan *w) FLEXLAB_SYMBOL(nn_wgan_generator);
FLEXLAB_API nn_graph *nn_wgan_critic(const nn_wgan *w) FLEXLAB_SYMBOL(nn_wgan_critic);
/* One step of the critic on `batch` real images [batch, side, side, channels] in -1 ... 1. estimate (NULL: not wanted):
 * of the distance before the step, the mean score of the real images less that of the generated ones. */
FLEXLAB_API tensor_status nn_wgan_train_critic(nn_wgan *w, const float *images, double *estimate)
    FLEXLAB_SYMBOL(nn_wgan_train_critic);
/* One step of the generator. loss (NULL: not wanted): the negative mean score of what it generated. */
FLEXLAB_API tensor_status nn_wgan_train_generator(nn_wgan *w, double *loss) FLEXLAB_SYMBOL(nn_wgan_train_generator);

typedef struct nn_wgan_report {
    int64_t step;          /* of the generator, from 1 */
    double estimate, loss; /* the mean over the critic's steps before it; the generator's */
} nn_wgan_report;
/* critic_steps and one of the generator, again and again, until the generator has made `steps` in all: from where w
 * stands. report may be NULL; a non-zero return stops. Same config and data, same bits, in one go or with saves
 * between. */
FLEXLAB_API tensor_status nn_wgan_train(nn_wgan *w, const data_set *set, int64_t steps,
                                        int (*report)(void *context, const nn_wgan_report *report), void *context)
    FLEXLAB_SYMBOL(nn_wgan_train);
/* The first NaN or Inf of either network, whose name is in it, also of the steps before nn_wgan_load; NULL: none. A
 * step of the generator goes through the critic, whose tensors count with the generator's step then; for a step of the
 * critic the generator goes forward, which counts with the step that the generator makes next. Gradients of steps
 * that a dynamic loss scale left out do not count, unless NN_STARVED of these came in a row. It stays as long as w. */
FLEXLAB_API const nn_nonfinite *nn_wgan_nonfinite(const nn_wgan *w) FLEXLAB_SYMBOL(nn_wgan_nonfinite);
/* count <= batch images [count, side, side, channels] in -1 ... 1, from the latent numbers of that seed. Leaves
 * the state of the pair as it was, so that the same weights give the same images, and training goes on as without. */
FLEXLAB_API tensor_status nn_wgan_generate(nn_wgan *w, uint64_t seed, int count, float *images)
    FLEXLAB_SYMBOL(nn_wgan_generate);
/* Both networks in PREFIX.critic.safetensors and PREFIX.generator.safetensors (nn_checkpoint_save), and from there, of
 * the same step and trained with the same critic_steps, rate and clip: training goes on with the same bits, and
 * nn_wgan_train refuses other images than those that it was given before (TENSOR_E_DATA). Each file is written whole or
 * not at all, the two of them one after the other: where a pair must never be lost, a prefix of its own for each save.
 */
FLEXLAB_API tensor_status nn_wgan_save(const nn_wgan *w, const char *prefix) FLEXLAB_SYMBOL(nn_wgan_save);
FLEXLAB_API tensor_status nn_wgan_load(nn_wgan *w, const char *prefix) FLEXLAB_SYMBOL(nn_wgan_load);

#ifdef __cplusplus
}
#endif
#endif
