/* nn_policies.h - formats that differ by layer and role: policies by name, and the formats that a policy gave a
 * network. Part of nn.h, whose conventions hold. */
#ifndef FLEXLAB_NN_POLICIES_H
#define FLEXLAB_NN_POLICIES_H

#include "flexlab/api.h"
#include "flexlab/nn_network.h"
#include "flexlab/tensor_backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The presets: "O0" ... "O3" (fp16), "O1:bf16" ..., "flex16+5", "dfp16", ... For the i-th: its name, a summary, and its
 * text, from which a file may start. NULL past the last. */
FLEXLAB_API int nn_policy_count(void);
FLEXLAB_API const char *nn_policy_at(int i);
FLEXLAB_API const char *nn_policy_summary(int i);
FLEXLAB_API const char *nn_policy_text(int i);

/* One entry of the resolved policy of a network: first the components of each layer in order, each followed by its
 * parameters. */
typedef struct nn_role_row {
    const char *name; /* "fc.product"; "fc.weight" */
    const char *kind; /* "matmul"; "parameter" */
} nn_role_row;
/* The number of entries; 0 before all layers are added, and if a rule of the policy does not fit them
 * (TENSOR_E_ARGUMENT). */
FLEXLAB_API int nn_role_row_count(nn_graph *g);
/* The i-th entry; its names are NULL past the last, and stay valid until the next call of this thread. */
FLEXLAB_API nn_role_row nn_role_row_at(const nn_graph *g, int i);
/* The roles: "operands", "gradient-operands", "result", "activations", "gradients"; "weights", "weight-gradients",
 * "state", "master", "rounding"; NULL past the last. */
FLEXLAB_API int nn_role_name_count(void);
FLEXLAB_API const char *nn_role_name_at(int i);
/* The format of entry i in that role, "fp16", "flex16+5:paper" or "mx:int8"; NULL if it has no such role. Valid until
 * the next call of this thread. "forward" and "backward" are answered too: the formats in which
 * a layer reads its inputs, and in which its backward pass reads values and weights. */
FLEXLAB_API const char *nn_role(const nn_graph *g, int i, const char *role);
/* The whole policy in one line, which nn_config.policy accepts; NULL if the variant applies throughout. */
FLEXLAB_API const char *nn_graph_policy(const nn_graph *g);
/* The loss scale that the policy sets, in the form of nn_config.loss_scale; NULL if it sets none. */
FLEXLAB_API const char *nn_policy_loss_scale(const nn_graph *g);
/* What a line "accumulate" of the policy sets; TENSOR_EXACT: there is none. */
FLEXLAB_API tensor_class nn_policy_class(const nn_graph *g);
/* The format of the loss by rules "@loss", as of nn_role_row_count; NULL: that of the output. As nn_role. */
FLEXLAB_API const char *nn_policy_loss_format(const nn_graph *g);

/* The key of the draws of one named tensor or layer of a network with that seed, as tensor_set_rounding and
 * tensor_dropout take it. */
FLEXLAB_API uint64_t nn_name_key(uint64_t seed, const char *name);

#ifdef __cplusplus
}
#endif
#endif
