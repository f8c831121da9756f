/* nn.h - networks: build one from layers, train it, evaluate it, save it. Start here: this page has the rules that hold
 * for every function; the headers at its end declare the functions, a subject each. Networks compute with the tensors
 * of tensor.h.
 *
 *     nn_graph *g = nn_graph_new(&(nn_config){.variant = "flex16+5", .batch = 128, .seed = 1});
 *     nn_node x = nn_input(g, 32, 32, 3);
 *     x = nn_conv2d(g, "conv1", x, 16, 3, &(nn_conv2d_options){.padding = 1});
 *     x = nn_batchnorm(g, "bn1", x, &(nn_batchnorm_options){.relu = true});
 *     x = nn_avgpool_global(g, "pool", x);
 *     x = nn_linear(g, "fc", x, 10, false);
 *     if (nn_compile(g, x)) fprintf(stderr, "%s\n", tensor_error());
 *     nn_train_step(&loss, &correct, g, &(nn_batch){.images = images, .labels = labels}, 0.1f);
 *     nn_graph_free(g);
 *
 * A program first adds layers to a graph (nn_layers.h), or a whole model by name (nn_models.h); nn_compile then plans
 * the memory and initialises the weights; after that each step is one call (nn_steps.h). The variant selects the number
 * format of the whole network; a policy selects formats by layer and role (nn_policies.h). Networks for text begin with
 * nn_tokens and nn_embedding and compute on sequences [batch, length, width]. nn_train runs a whole training, with
 * epochs, a learning-rate schedule, evaluation and checkpoints (nn_train.h).
 *
 * Conventions that hold for every function
 *  - Results come first: nn_train_step(&loss, &correct, g, ...), nn_predict(logits, g, ...). Where NULL is allowed for
 *    a result, it means that the result is not wanted. A function that fails leaves its results as they were, unless
 *    its comment differs.
 *  - A function that returns a property is named after it, without a verb: nn_steps(g), nn_weight_bytes(g);
 *    nn_loss_scale_of has a suffix because a type has the shorter name. A list has NAME_count and NAME_at; past the
 *    last entry NAME_at returns NULL, or a struct whose name is NULL.
 *  - Set structs that you fill in to zero first, as designated initialisers do (in C++ by {}): zero means the default
 *    for every member, and so does NULL in place of such a struct where NULL is allowed. A stride, dilation or number
 *    of groups of 0 means 1 in every layer. Before 1.0 structs may change between minor versions.
 *  - The library owns nn_variant, nn_step_report, nn_epoch_report, nn_nonfinite and the records of telemetry; programs
 *    see them by pointer.
 *  - Building reports failures once, at the end: a call that fails returns node -1, further calls on that node return
 *    -1, and nn_compile returns the first failure.
 *  - A layer with one yes-or-no setting takes it as an argument (relu of nn_linear); a layer with several takes a
 *    struct of options, which may be NULL.
 *  - One graph belongs to one thread at a time.
 *  - Images are [N, H, W, C], the weights of a linear layer [in, out]; a linear layer flattens an image in the order H,
 *    W, C.
 *  - Rounding and exactness are those of the tensor operations that each layer names; docs/semantics.md is the
 *    contract. The same settings, data and seed give the same bits on every device and with any number of threads. */
#ifndef FLEXLAB_NN_H
#define FLEXLAB_NN_H

/* The headers by subject; each can also be included by itself. */
#include "flexlab/nn_network.h"     /* variants and settings of a network, the graph */
#include "flexlab/nn_group.h"       /* ranks: processes that share a training */
#include "flexlab/nn_layers.h"      /* inputs and layers */
#include "flexlab/nn_models.h"      /* whole networks by name */
#include "flexlab/nn_steps.h"       /* compilation, a training step, evaluation, prediction */
#include "flexlab/nn_train.h"       /* the training loop */
#include "flexlab/nn_checkpoints.h" /* state and weights in memory and in files */
#include "flexlab/nn_observation.h" /* tensors of a step, the first NaN or Inf, telemetry */
#include "flexlab/nn_policies.h"    /* policies: formats by layer and role */

#include "flexlab/data.h"
#include "flexlab/tensor.h"

#endif
