/* nn_network.h - a network and its settings: variant, optimiser, loss, loss scale; the graph, and the memory it takes.
 * A program needs nn_config, nn_graph_new and nn_graph_free. A part of nn.h, whose conventions hold. */
#ifndef FLEXLAB_NN_NETWORK_H
#define FLEXLAB_NN_NETWORK_H

#include "flexlab/api.h"
#include "flexlab/tensor_life.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

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
FLEXLAB_API const nn_variant *nn_variant_find(const char *name);
/* How many there are, and the i-th; NULL past the last. */
FLEXLAB_API int nn_variant_count(void);
FLEXLAB_API const nn_variant *nn_variant_at(int i);

/* --- settings ----------------------------------------------------------------------------------------------------- */

typedef struct nn_graph nn_graph;
typedef int nn_node; /* names the output of a layer; -1: none, a call has failed */

typedef struct nn_config {
    const char *variant;   /* see nn_variant */
    const char *predictor; /* NULL: the variant's; else a name of autoflex_at: "paper", "repeat", ... */
    bool no_master;        /* leave out the wide copy of the weights ("--master none"); not beside a policy that asks
                            * for master weights */
    int batch;             /* images, or sequences, a step */
    uint64_t seed;         /* initial weights, stochastic rounding; the same for every variant */
    float momentum;        /* used by nn_train_step as given (0: none); of sgd and rmsprop alone */
    float weight_decay;
    const char *device; /* where the network lives and trains: a name of tensor_device_at; NULL: "cpu" */
    /* How weights follow from gradients: docs/training.md. All zero: gradient descent with momentum, as above. */
    const char *optimiser; /* one of nn_optimiser_at; NULL: "sgd" */
    const char *decay;     /* what decays: "all", "weights" (no biases, gammas and betas); NULL: "weights" of adamw and
                            * lamb, "all" of the others */
    float beta1, beta2;    /* 0: 0.9 and 0.999; beta2 of rmsprop 0.99 */
    float epsilon;         /* 0: 1e-8; lamb 1e-6, adagrad 1e-10 */
    float clip_value;      /* each element of a gradient counts as at most this; 0: as it is */
    float clip_norm;       /* all gradients together count as at most this long; 0: as they are */
    bool nesterov;         /* sgd with momentum: the weight follows where the velocity leads to */
    bool narrow_state;     /* moments and roots of 16 bits, by stochastic rounding: of parameters that are updated in a
                            * format with a shared exponent, one of which there must be */
    /* What the network is trained for: docs/training.md. All zero: cross-entropy of one label a row, as above. */
    const char *loss;      /* one of nn_loss_name_at; NULL: "cross_entropy" */
    float label_smoothing; /* of cross_entropy in training, 0 to 1; evaluation measures without it */
    float huber_delta;     /* of huber; 0: 1 */
    int32_t ignored_label; /* where ignores is set, rows of this label count nothing: cross_entropy, wasserstein */
    bool ignores;
    bool input_gradient; /* backward goes on to the images: nn_input_gradient */
    /* Formats that differ by layer and role: docs/policies.md. NULL: the variant throughout. */
    const char *policy;        /* a name of nn_policy_at, the path of a file, or a text that has a ';' or line feed */
    const char *layer_formats; /* "fc*=bf16,conv1=fp32": layers as these variants have them, after the policy's rules */
    /* What the gradient of the loss is multiplied with before it is rounded, and taken out of in the update:
     * docs/training.md. "none" (NULL); a power of two such as "1024" or "2^10"; "dynamic", which moves with
     * overflows, or "dynamic:init=65536,window=2000,factor=2,min=0.03125,max=16777216" with any of these, each once;
     * where min or max leaves 65536 out and init is not said, init is the nearer of them. */
    const char *loss_scale;
} nn_config;

/* The same in its full form, what was left out filled in; NULL is "none". TENSOR_E_ARGUMENT for what nn_config would be
 * refused with, and where it takes more than size - 1 bytes (200 suffice). */
FLEXLAB_API tensor_status nn_loss_scale_text(char *text, size_t size, const char *loss_scale);

/* "cross_entropy"; "squared_error" and "huber", whose targets are numbers (nn_batch.targets); "wasserstein", a critic
 * of rows with label 1, real, and 0, generated; "none", a network whose gradient comes from elsewhere
 * (nn_backward_from). NULL past the last. */
FLEXLAB_API int nn_loss_name_count(void);
FLEXLAB_API const char *nn_loss_name_at(int i);

/* "sgd", "adam", "adamw", "rmsprop", "adagrad", "lamb"; NULL past the last. */
FLEXLAB_API int nn_optimiser_count(void);
FLEXLAB_API const char *nn_optimiser_at(int i);

/* --- the graph ---------------------------------------------------------------------------------------------------- */

/* A network without layers yet. NULL on failure: TENSOR_E_ARGUMENT names the setting, its value and what was expected.
 */
FLEXLAB_API nn_graph *nn_graph_new(const nn_config *config);
/* With every tensor of the network. NULL is allowed. */
FLEXLAB_API void nn_graph_free(nn_graph *g);
/* The most bytes that a step of the network may take beside its weights, before nn_compile, which refuses more with
 * TENSOR_E_MEMORY; 0: as many as it takes, as with nn_graph_new. */
FLEXLAB_API tensor_status nn_graph_limit(nn_graph *g, int64_t bytes);
/* Weights in elements; then bytes: weights with their wide copies, the forward tensors of a training step as stored,
 * and the arena planned for activations and gradients by lifetime: the same on every machine. What the operations take
 * beside their tensors makes the arena larger by nn_workspace_bytes, which depends on the number of threads and the
 * kernels in force when nn_compile was called. */
FLEXLAB_API int64_t nn_parameter_count(const nn_graph *g);
FLEXLAB_API int64_t nn_weight_bytes(const nn_graph *g);
FLEXLAB_API int64_t nn_activation_bytes(const nn_graph *g);
FLEXLAB_API int64_t nn_arena_bytes(const nn_graph *g);
FLEXLAB_API int64_t nn_workspace_bytes(const nn_graph *g);

/* --- building block, which may change ----------------------------------------------------------------------------- */

/* `count` numbers of the standard normal distribution, as initial weights are drawn: by (seed, name, element), and by
 * nothing else. values: not NULL; name: a text of any length. */
FLEXLAB_API tensor_status nn_normal_numbers(double *values, int64_t count, uint64_t seed, const char *name);

#ifdef __cplusplus
}
#endif
#endif
