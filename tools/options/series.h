/* series.h - a policy that a command trains: one of the series of its tables and figures. A policy is a text of lines
 * (docs/policies.md); a variant is one of one line. Variants with suffixes, --policy and --layer-format are spellings,
 * which series_read converts to those lines: all later code uses only the policy. */
#ifndef FLEXLAB_SERIES_H
#define FLEXLAB_SERIES_H

#include "flexlab/nn.h"
#include "options/options.h"

/* A component of a layer, or a parameter, with its format in each role of nn_role_name_at; NULL: it has no such role.
 */
enum { ROLE_LIMIT = 16 };
struct role_row {
    char *name, *kind, *role[ROLE_LIMIT];
};

/* The suffix of the name of a format if some layers have others (--layer-format). */
#define SERIES_LAYERS ":layers"

/* One policy of the comparison: "fp16", "flex16+5:ngraph", "fp16:nomaster", "fp16:noscale", "flex16+5@cuda",
 * "fp32:layers", "policy:O2". */
struct series {
    char *label;
    char *policy;              /* its whole text, each line followed by a ';': "variant fp16; * master=none;" */
    bool plain;                /* it equals series_plain_policy of the members below: no other rules */
    const nn_variant *variant; /* the one that it begins from */
    char *asked_policy, *asked_variant; /* what it was read from: a name, a path or a text, or NULL */
    const char *resumed;                /* the policy with which a resumed run began; NULL: that of the options */
    struct role_row *roles;             /* the resolved policy (policy.h); NULL before */
    int role_count;
    const char *predictor; /* NULL for float formats */
    char *backend;         /* the kernel set of its matmul, or the name of a device other than "cpu" */
    char *device;          /* where it trains */
    char *loss_scale;      /* as nn_config has it, in full */
    bool no_scale;         /* ":noscale" */
    bool no_master;
    bool shared;
};

/* Whether a policy names a format with a shared exponent, so that its run may have a trace. */
bool policy_names_shared(const char *policy);
/* Reads the formats and policies of the settings, to be freed with series_free; returns a STATUS_ code, the message is
 * printed. */
int series_read(const struct settings *settings, struct series **series, int *count);
void series_free(struct series *series, int count);
/* The lines of a variant with suffixes: its predictor, ":nomaster", ":noscale"; to be freed. */
char *series_plain_policy(const struct series *series);
/* The network of a series, without its seed. */
nn_config series_network(const struct settings *settings, const struct series *series);
/* The same with its policy as given, so that a failure names file and line. */
nn_config series_asked(const struct settings *settings, const struct series *series);

#endif
