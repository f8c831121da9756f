/* nn_network.h - a network and its settings: variant, optimiser, loss, loss scale; the graph, and the memory it takes.
 * The functions that every program needs are nn_graph_new, with an nn_config, and nn_graph_free. Part of nn.h, whose
 * conventions hold. */
#ifndef FLEXLAB_NN_NETWORK_H
#define FLEXLAB_NN_NETWORK_H

#include "flexlab/api.h"
#include "flexlab/nn_group.h"
#include "flexlab/tensor_life.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A variant is one format for a whole network. fp32; fp16, bf16 (fp32 master weights); flex16+5, dfp16 (wide weights:
 * int32 mantissas with their int16 view); fp16-sr, bf16-sr, flex16+5-sr (16-bit weights only, stochastic rounding of
 * the weight write); flex16+5-paper (int16, rounding to nearest everywhere). */
typedef struct nn_variant {
    const char *name;
    tensor_format format;
    const char *predictor;   /* of the shared exponents; NULL: the format has none */
    bool wide;               /* weights have a wide part */
    bool stochastic_weights; /* stochastic rounding of the weight write */
    const char *summary;
} nn_variant;
/* Finds a variant; NULL for an unknown name (tensor_error lists the known ones). A format added as a folder is a
 * variant of its own, with wide weights. */
FLEXLAB_API const nn_variant *nn_variant_find(const char *name);
/* The number of variants, and the i-th; NULL past the last. */
FLEXLAB_API int nn_variant_count(void);
FLEXLAB_API const nn_variant *nn_variant_at(int i);

/* --- settings ----------------------------------------------------------------------------------------------------- */

typedef struct nn_graph nn_graph;
typedef int nn_node; /* the output of a layer; -1: none, a call has failed */

typedef struct nn_config {
    const char *variant;   /* see nn_variant */
    const char *predictor; /* NULL: the variant's; else a name of autoflex_at: "paper", "repeat", ... */
    bool no_master; /* omit the wide part of the weights ("--master none"); not with a policy that asks for master
                       weights */
    int batch;      /* images, or sequences, per step */
    uint64_t seed;  /* initial weights, stochastic rounding; the same for every variant */
    float momentum; /* used by nn_train_step as given (0: none); for sgd and rmsprop only */
    float weight_decay;
    const char *device; /* where the network lives and trains: a name of nn_group_device; NULL: "cpu" */
    /* The optimiser: docs/training.md. All zero: gradient descent with the momentum above. */
    const char *optimiser; /* one of nn_optimiser_at; NULL: "sgd" */
    const char *decay;  /* which parameters decay: "all", "weights" (no biases, gammas and betas); NULL: "weights" for
                           adamw and lamb, "all" for the others */
    float beta1, beta2; /* 0: 0.9 and 0.999; 0.99 for beta2 of rmsprop */
    float epsilon;      /* 0: 1e-8; lamb 1e-6, adagrad 1e-10 */
    float clip_value;   /* each element of a gradient is clipped to this; 0: no clipping */
    float clip_norm;    /* the norm of all gradients together is clipped to this; 0: no clipping */
    bool nesterov;      /* Nesterov momentum, for sgd with momentum */
    bool narrow_state;  /* 16-bit moments and roots with stochastic rounding, for parameters that are updated in a
                           shared-exponent format, of which there must be at least one */
    /* The loss: docs/training.md. All zero: cross-entropy with one label for each row. */
    const char *loss;      /* one of nn_loss_name_at; NULL: "cross_entropy" */
    float label_smoothing; /* for cross_entropy in training, 0 to 1; evaluation does not smooth */
    float huber_delta;     /* for huber; 0: 1 */
    int32_t ignored_label; /* if ignores is set, rows with this label are left out: cross_entropy, wasserstein */
    bool ignores;
    bool input_gradient; /* backward also computes the gradient of the images: nn_input_gradient */
    /* Formats that differ by layer and role: docs/policies.md. NULL: the variant throughout. */
    const char *policy; /* a name of nn_policy_at, the path of a file, or a text that contains a ';' or line feed */
    const char *layer_formats; /* "fc*=bf16,conv1=fp32": gives layers these variants, after the policy's rules */
    /* The loss scale, by which the gradient of the loss is multiplied before it is rounded, and divided in the update:
     * docs/training.md. "none" (NULL); a power of two such as "1024" or "2^10"; "dynamic", which adapts to overflows,
     * or "dynamic:init=65536,window=2000,factor=2,min=0.03125,max=16777216" with any of these, each once; if min or max
     * excludes 65536 and init is not given, init is the nearer of them. */
    const char *loss_scale;
    /* The parts in which a step computes its batch, one after the other in the memory of one, adding their gradients:
     * docs/training.md. 1 to 1024, a divisor of batch; 0: 1. */
    int shards;
    /* The ranks that compute the shards, whose number divides that of shards; it must outlive the network. All ranks
     * make the same calls on networks of the same settings, and with the same batches; each computes its part of a step
     * and has the same weights. NULL: one rank. */
    nn_group *group;
    /* Batch normalisation takes the moments of all shards, and not of each: steps are those of nn_train_step, and the
     * activations of all shards of a rank are in memory at once. It changes nothing of one shard, or of a network
     * without batch normalisation. */
    bool batchnorm_global;
} nn_config;

/* Writes a loss scale in its full form, with the defaults filled in; NULL is "none". TENSOR_E_ARGUMENT for a text that
 * nn_graph_new would refuse, or if the form takes more than size - 1 bytes (200 suffice). */
FLEXLAB_API tensor_status nn_loss_scale_text(char *text, size_t size, const char *loss_scale);

/* The losses: "cross_entropy"; "squared_error" and "huber", whose targets are numbers (nn_batch.targets);
 * "wasserstein", for a critic, with rows labelled 1 (real) and 0 (generated); "none", for a network whose gradient
 * comes from elsewhere (nn_backward_from). NULL past the last. */
FLEXLAB_API int nn_loss_name_count(void);
FLEXLAB_API const char *nn_loss_name_at(int i);

/* The optimisers: "sgd", "adam", "adamw", "rmsprop", "adagrad", "lamb"; NULL past the last. */
FLEXLAB_API int nn_optimiser_count(void);
FLEXLAB_API const char *nn_optimiser_at(int i);

/* --- the graph ---------------------------------------------------------------------------------------------------- */

/* A network without layers. NULL on failure: TENSOR_E_ARGUMENT names the setting, its value and what was expected. */
FLEXLAB_API nn_graph *nn_graph_new(const nn_config *config);
/* Frees the graph with every tensor of the network. NULL is allowed. */
FLEXLAB_API void nn_graph_free(nn_graph *g);
/* Sets the most bytes that a step of the network may take beside its weights; call it before nn_compile, which refuses
 * more with TENSOR_E_MEMORY. 0, the default of nn_graph_new: no limit. */
FLEXLAB_API tensor_status nn_graph_limit(nn_graph *g, int64_t bytes);
/* Sizes of the network. nn_parameter_count: weights in elements. nn_weight_bytes: weights with their wide parts.
 * nn_activation_bytes: the forward tensors of a training step as stored. nn_arena_bytes: the arena planned for
 * activations and gradients by lifetime. These are the same on every machine. nn_workspace_bytes: the bytes that the
 * workspace of the operations adds to the arena, which depend on the number of threads and the kernels in force when
 * nn_compile was called. */
FLEXLAB_API int64_t nn_parameter_count(const nn_graph *g);
FLEXLAB_API int64_t nn_weight_bytes(const nn_graph *g);
FLEXLAB_API int64_t nn_activation_bytes(const nn_graph *g);
FLEXLAB_API int64_t nn_arena_bytes(const nn_graph *g);
FLEXLAB_API int64_t nn_workspace_bytes(const nn_graph *g);

/* --- building block, which may change ----------------------------------------------------------------------------- */

/* Draws `count` numbers of the standard normal distribution as for initial weights; they depend on (seed, name,
 * element) only. values: not NULL; name: a text of any length. */
FLEXLAB_API tensor_status nn_normal_numbers(double *values, int64_t count, uint64_t seed, const char *name);

#ifdef __cplusplus
}
#endif
#endif
