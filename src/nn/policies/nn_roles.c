/* nn_roles.c - the public list of the formats of a network's components. */
#include "nn/policies/nn_policy.h"
#include "nn/policies/nn_types.h"
#include "nn/step/nn_step.h"
#include "core/base/fail.h"
#include "core/table/block_classes.h"
#include <stdio.h>
#include <string.h>

const char *nn_graph_policy(const nn_graph *g) {
    return g && g->policy ? g->policy->text : NULL;
}

const char *nn_policy_loss_scale(const nn_graph *g) {
    return g && g->policy ? g->policy->loss_scale : NULL;
}

int nn_role_name_count(void) {
    int count = 0;
    while (nn_role_name_at(count))
        count++;
    return count;
}

const char *nn_role_name_at(int i) {
    return fl_role_name(i);
}

/* Neither the nodes that convert, nor those that only give a value another shape. */
static bool is_listed(const struct fl_node *node) {
    return !fl_is_conversion(node) && !node->layer->views && !node->output[0].tokens;
}

int nn_role_row_count(nn_graph *g) {
    int rows = 0;
    if (!g || g->status || !g->count || (!g->compiled && fl_resolve_types(g)))
        return 0;
    for (int i = 0; i < g->count; i++)
        rows += (is_listed(&g->nodes[i]) ? 1 : 0) + g->nodes[i].parameters;
    return rows;
}

/* The node of a row, and its parameter, or NULL. */
static const struct fl_node *find(const nn_graph *g, int row, const struct fl_parameter **p) {
    *p = NULL;
    for (int i = 0; g && row >= 0 && i < g->count; i++) {
        const struct fl_node *node = &g->nodes[i];
        if (is_listed(node) && row-- == 0)
            return node;
        if (row < node->parameters) {
            *p = &node->parameter[row];
            return node;
        }
        row -= node->parameters;
    }
    return NULL;
}

nn_role_row nn_role_row_at(const nn_graph *g, int i) {
    static _Thread_local char name[3 * FL_NAME_LIMIT];
    const struct fl_parameter *p;
    const struct fl_node *node = find(g, i, &p);
    if (!node)
        return (nn_role_row){NULL, NULL};
    if (!p)
        return (nn_role_row){node->name, node->layer->kind};
    snprintf(name, sizeof name, "%s.%s", node->owner, p->suffix);
    return (nn_role_row){name, "parameter"};
}

static const char *type_text(struct fl_type type) {
    static _Thread_local char text[80];
    const bool shared = tensor_format_is_shared(type.format) && type.predictor;
    snprintf(text, sizeof text, "%s%s%s", tensor_format_name(type.format), shared ? ":" : "",
             shared ? type.predictor : "");
    return text;
}

tensor_class nn_policy_class(const nn_graph *g) {
    return g && g->policy ? g->policy->class : TENSOR_EXACT;
}

const char *nn_policy_loss_format(const nn_graph *g) {
    return g && g->loss_as.format ? type_text(g->loss_as) : NULL;
}

static const char *of_parameter(const nn_graph *g, const struct fl_parameter_types *as, enum fl_role role) {
    const bool own = fl_same_format(as->w, as->update);
    switch (role) {
    case FL_ROLE_WEIGHTS:
        return type_text(as->w);
    case FL_ROLE_WEIGHT_GRADIENTS:
        return type_text(as->kept);
    case FL_ROLE_STATE:
        return type_text(fl_optimiser_type(g, as));
    case FL_ROLE_MASTER:
        return fl_master_name(!own ? FL_MASTER_FP32 : as->wide ? FL_MASTER_WIDE : FL_MASTER_NONE);
    case FL_ROLE_ROUNDING:
        return as->stochastic ? "stochastic" : "nearest";
    default:
        return NULL;
    }
}

/* "nvfp4,nvfp4:square": as in a rule. */
static const char *blocks_text(const struct fl_node *node) {
    static _Thread_local char text[2 * 120];
    const char *x = node->blocks.x->name, *w = node->blocks.w->name;
    snprintf(text, sizeof text, "%s%s%s", x, x == w ? "" : ",", x == w ? "" : w);
    return text;
}

static const char *of_node(const struct fl_node *node, enum fl_role role) {
    const bool product = node->layer->group && !strcmp(node->layer->group, "product");
    switch (role) {
    case FL_ROLE_OPERANDS:
        return !product ? NULL : node->blocks.x ? blocks_text(node) : type_text(node->as.x);
    case FL_ROLE_GRADIENT_OPERANDS:
        return !product ? NULL : node->blocks.x ? node->blocks.dy->name : type_text(node->as.operand);
    case FL_ROLE_RESULT:
        return product ? type_text(node->as.y) : NULL;
    case FL_ROLE_ACTIVATIONS:
        return type_text(node->as.y);
    case FL_ROLE_GRADIENTS:
        return type_text(node->as.dy);
    default:
        return NULL;
    }
}

const char *nn_role(const nn_graph *g, int i, const char *role) {
    const struct fl_parameter *p;
    const struct fl_node *node = find(g, i, &p);
    if (node && !p && role && (!strcmp(role, "forward") || !strcmp(role, "backward")))
        return type_text(*role == 'f' ? node->as.x : node->as.back);
    for (int r = 0; node && role && r < FL_ROLES; r++)
        if (!strcmp(fl_role_name(r), role))
            return p ? of_parameter(g, &p->as, (enum fl_role)r) : of_node(node, (enum fl_role)r);
    return NULL;
}
