/* nn.h - networks, training and evaluation on the tensors of tensor.h: all of it, in parts.
 *
 *     nn_graph *g = nn_graph_new(&(nn_config){.variant = "flex16+5", .batch = 128, .seed = 1});
 *     nn_node x = nn_input(g, 32, 32, 3);
 *     x = nn_conv2d(g, "conv1", x, 16, 3, &(nn_conv2d_options){.padding = 1});
 *     x = nn_batchnorm(g, "bn1", x, &(nn_batchnorm_options){.relu = true});
 *     x = nn_avgpool_global(g, "pool", x);
 *     x = nn_linear(g, "fc", x, 10, false);
 *     if (nn_compile(g, x)) ...
 *     nn_train_step(&loss, &correct, g, &(nn_batch){.images = images, .labels = labels}, 0.1f);
 *
 * Networks that read text begin with nn_tokens and nn_embedding: sequences [batch, length, width]. A whole training,
 * with epochs, a learning-rate schedule, evaluation and checkpoints, is nn_train.
 *
 * Conventions that hold for every function
 *  - Results come first: nn_train_step(&loss, &correct, g, ...), nn_predict(logits, g, ...). A result that may be NULL
 *    is not wanted then. Where a function fails, it leaves results as they were, unless it says otherwise.
 *  - A function that tells something is called after what it tells, without a verb: nn_steps(g), nn_weight_bytes(g);
 *    nn_loss_scale_of where a type has that name already. Lists have NAME_count and NAME_at; NAME_at past the last
 * gives NULL, or a struct whose name is NULL.
 *  - Structs that callers fill in are set to zero first, as designated initialisers do (in C++ by {}): zero means the
 *    usual in every field, as does NULL for a pointer to such a struct where "NULL" is allowed. A stride, dilation or
 *    number of groups of 0 is 1 in every layer. Before 1.0 structs may change from one minor version to the next.
 *  - nn_variant, nn_step_report, nn_epoch_report, nn_nonfinite and the rows of telemetry are the library's own, seen by
 *    pointer.
 *  - Building never fails in place: a bad call returns node -1, further calls on it return -1, and nn_compile returns
 *    the first failure.
 *  - A layer with one yes-or-no setting takes it as an argument (relu of nn_linear); one with more takes a struct of
 *    options, for which NULL is allowed.
 *  - One graph belongs to one thread at a time.
 *  - Images are [N, H, W, C], the weights of a linear layer [in, out], and its inputs in the order H, W, C where it
 *    flattens an image.
 *  - Rounding and exactness are those of the operations of tensor.h which a layer names; docs/semantics.md is the
 *    contract. The same settings, data and seed give the same bits on every device and with any number of threads. */
#ifndef FLEXLAB_NN_H
#define FLEXLAB_NN_H

/* The parts; each may be included alone. */
#include "flexlab/nn_network.h"     /* settings of a network, the graph */
#include "flexlab/nn_layers.h"      /* the layers that it is built of */
#include "flexlab/nn_models.h"      /* whole networks by name */
#include "flexlab/nn_steps.h"       /* a training step, evaluation, prediction */
#include "flexlab/nn_train.h"       /* the training loop */
#include "flexlab/nn_checkpoints.h" /* state and weights, in memory and in files */
#include "flexlab/nn_observation.h" /* the tensors of a step, the first NaN or Inf, telemetry */
#include "flexlab/nn_policies.h"    /* formats that differ by layer and role */

#include "flexlab/data.h"
#include "flexlab/tensor.h"

#endif
