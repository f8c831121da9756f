/* nn_policies.h - formats that differ by layer and role: policies by name, and the formats that a policy gave a
 * network. A part of nn.h, whose conventions hold. */
#ifndef FLEXLAB_NN_POLICIES_H
#define FLEXLAB_NN_POLICIES_H

#include "flexlab/api.h"
#include "flexlab/nn_network.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Policies by name: "O0" ... "O3" (fp16), "O1:bf16" ..., "flex16+5", "dfp16", ...; what each is, and its text, which a
 * file may begin from. NULL past the last. */
FLEXLAB_API int nn_policy_count(void);
FLEXLAB_API const char *nn_policy_at(int i);
FLEXLAB_API const char *nn_policy_summary(int i);
FLEXLAB_API const char *nn_policy_text(int i);

/* What a policy came to. Rows: the parts of each layer in order, then each part's parameters behind it. */
typedef struct nn_role_row {
    const char *name; /* "fc.product"; "fc.weight" */
    const char *kind; /* "matmul"; "parameter" */
} nn_role_row;
/* 0 before all layers were added and where a rule of the policy does not fit them (TENSOR_E_ARGUMENT). */
FLEXLAB_API int nn_role_row_count(nn_graph *g);
/* Names NULL past the last; they stay until the next call of this thread. */
FLEXLAB_API nn_role_row nn_role_row_at(const nn_graph *g, int i);
/* "operands", "result", "activations", "gradients"; "weights", "weight-gradients", "state", "master", "rounding"; NULL
 * past the last. */
FLEXLAB_API int nn_role_name_count(void);
FLEXLAB_API const char *nn_role_name_at(int i);
/* What row i has in that role, "fp16" or "flex16+5:paper"; NULL where it has no such role. It stays until the next call
 * of this thread. */
FLEXLAB_API const char *nn_role(const nn_graph *g, int i, const char *role);
/* The whole policy in one line, which nn_config.policy takes; NULL where the variant stands throughout. */
FLEXLAB_API const char *nn_graph_policy(const nn_graph *g);
/* The loss scale that the policy asks for, as nn_config.loss_scale takes it; NULL where it says nothing. */
FLEXLAB_API const char *nn_policy_loss_scale(const nn_graph *g);

#ifdef __cplusplus
}
#endif
#endif
