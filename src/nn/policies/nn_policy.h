/* nn_policy.h - a policy as given: a variant, and rules that give layers and parameters other formats. nn_types.c
 * applies it to a network; docs/policies.md describes the text. */
#ifndef FL_NN_POLICY_H
#define FL_NN_POLICY_H

#include "nn/graph/nn_graph.h"

/* The roles that a rule can set. Those up to FL_ROLE_GRADIENTS belong to layers, the others to parameters. */
enum fl_role {
    FL_ROLE_OPERANDS,
    FL_ROLE_GRADIENT_OPERANDS,
    FL_ROLE_RESULT,
    FL_ROLE_ACTIVATIONS,
    FL_ROLE_GRADIENTS,
    FL_ROLE_WEIGHTS,
    FL_ROLE_WEIGHT_GRADIENTS,
    FL_ROLE_STATE,
    FL_ROLE_MASTER,
    FL_ROLE_ROUNDING,
    FL_ROLES
};
/* "operands", "result", ...; NULL past the last. */
const char *fl_role_name(int i);

enum fl_master { FL_MASTER_NONE, FL_MASTER_WIDE, FL_MASTER_FP32 };
const char *fl_master_name(int i);

/* The choice for one role: a format (FMT_NONE: "auto"), for the last two an enum fl_master, a tensor_rounding. */
struct fl_choice {
    bool given;
    struct fl_type type;
    /* Block formats, with type "auto": of operands those of values and of weights, of gradient-operands the first */
    const struct fl_block_format *blocks[2];
    int word;
};

struct fl_rule {
    char *pattern;
    char where[80]; /* in messages: "policy 'my.policy', line 3" */
    bool if_any;    /* it may match nothing */
    struct fl_choice choice[FL_ROLES];
    unsigned explicit_roles; /* a bit for each role, except those set by "format" */
    unsigned used;           /* those that something had which the pattern matched */
    bool matched;
    const struct fl_rule *operands; /* that which gave a product operands, so that it has no layer roles; NULL: none */
};

struct fl_policy {
    const nn_variant *variant; /* NULL until something named one */
    char *name;                /* a preset's, a path, or "policy" */
    char *text;                /* all of it in one line, which reads back as the same policy */
    char *loss_scale;          /* as in nn_config; NULL: not set */
    tensor_class class;        /* accumulate=GPU; TENSOR_EXACT: that of the calling thread */
    struct fl_rule *rules;
    int count, capacity;
};

/* From nn_config.policy and nn_config.layer_formats, one of which is not NULL; variant: nn_config's, or NULL. */
tensor_status fl_policy_new(struct fl_policy **policy, const char *asked, const char *layer_formats,
                            const char *variant);
void fl_policy_free(struct fl_policy *policy);
/* Whether any role may have a shared exponent. */
bool fl_policy_shares(const struct fl_policy *policy);
/* Removes the master weights that variants imply; TENSOR_E_ARGUMENT if a rule requires one. */
tensor_status fl_policy_without_masters(struct fl_policy *policy);
/* The formats of a variant for every role. */
void fl_variant_choices(const nn_variant *variant, struct fl_choice choice[FL_ROLES]);
/* Whether a rule may give operands block formats. */
bool fl_policy_has_blocks(const struct fl_policy *policy);

/* Whether a policy is given as text, not as a file: the rules themselves, with ';' or line feeds, or the name of a
 * preset. Anything else is the name of a file. */
bool fl_policy_is_text(const char *policy);

/* nn_presets.c */
/* The text of a preset; NULL: there is none of that name. */
const char *fl_preset_text(const char *name);

#endif
