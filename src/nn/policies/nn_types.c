/* nn_types.c - the format of each component of a network: that of the variant, or of the last matching rule of a
 * policy; then the nodes that convert between a node and a later one that reads another format.
 *
 * A node computes in one format forward, and in one backward. A product (group "product") may have operands of one
 * format and results of another, in which it writes forward and backward. docs/decisions/0025-policies.md */
#include "core/base/fail.h"
#include "nn/policies/nn_types.h"
#include "core/base/match.h"
#include "core/base/memory.h"
#include "core/table/block_classes.h"
#include "core/values/tensor_state.h"
#include "nn/layers/nn_layer.h"
#include "nn/policies/nn_policy.h"
#include <stdio.h>
#include <string.h>

/* --- which rules match -------------------------------------------------------------------------------------------- */

enum {
    LAYER_ROLES = 1u << FL_ROLE_ACTIVATIONS | 1u << FL_ROLE_GRADIENTS,
    PRODUCT_ROLES = 1u << FL_ROLE_OPERANDS | 1u << FL_ROLE_GRADIENT_OPERANDS | 1u << FL_ROLE_RESULT,
    PARAMETER_ROLES = 1u << FL_ROLE_WEIGHTS | 1u << FL_ROLE_WEIGHT_GRADIENTS | 1u << FL_ROLE_STATE |
                      1u << FL_ROLE_MASTER | 1u << FL_ROLE_ROUNDING
};

static bool matches(const char *pattern, const char *name) {
    return fl_matches(pattern, strlen(pattern), name);
}

static bool is_group(const struct fl_node *node, const char *group) {
    return node->layer->group && !strcmp(node->layer->group, group);
}

/* "@norm", "@conv*": groups and kinds; else names of layers, and of the nodes that a layer is made of. */
static bool matches_node(const char *pattern, const struct fl_node *node) {
    if (*pattern == '@')
        return matches(pattern + 1, node->layer->kind) || is_group(node, pattern + 1);
    return matches(pattern, node->owner) || matches(pattern, node->name);
}

static bool matches_parameter(const char *pattern, const struct fl_node *node, const struct fl_parameter *p) {
    char name[3 * FL_NAME_LIMIT];
    snprintf(name, sizeof name, "%s.%s", node->owner, p->suffix);
    return *pattern != '@' && matches(pattern, name);
}

static bool matches_either(const char *pattern, const struct fl_node *node, const struct fl_parameter *p) {
    return matches_node(pattern, node) || matches_parameter(pattern, node, p);
}

static void take(struct fl_choice own[FL_ROLES], struct fl_rule *rule, unsigned roles) {
    for (int i = 0; i < FL_ROLES; i++)
        if (roles >> i & 1 && rule->choice[i].given)
            own[i] = rule->choice[i];
    rule->matched = true;
}

/* For a product with operands, these replace activations and gradients: rules for the latter are not used. */
static void note_used(nn_graph *g, const struct fl_node *node, const struct fl_choice own[FL_ROLES]) {
    const bool product = is_group(node, "product"), given = product && own[FL_ROLE_OPERANDS].type.format;
    const struct fl_rule *giver = NULL;
    for (int i = 0; g->policy && i < g->policy->count; i++)
        if (given && g->policy->rules[i].choice[FL_ROLE_OPERANDS].given &&
            matches_node(g->policy->rules[i].pattern, node))
            giver = &g->policy->rules[i];
    for (int i = 0; g->policy && i < g->policy->count; i++) {
        struct fl_rule *rule = &g->policy->rules[i];
        if (!matches_node(rule->pattern, node))
            continue;
        rule->used |= given ? PRODUCT_ROLES : product ? LAYER_ROLES | PRODUCT_ROLES : LAYER_ROLES;
        rule->operands = given ? giver : rule->operands;
    }
}

/* Applies the variant, then the rules in order. p NULL: to the node itself. */
static void choose(nn_graph *g, const struct fl_node *node, const struct fl_parameter *p,
                   struct fl_choice own[FL_ROLES]) {
    fl_variant_choices(g->variant, own);
    if (!g->wide)
        own[FL_ROLE_MASTER].word = FL_MASTER_NONE;
    for (int i = 0; g->policy && i < g->policy->count; i++) {
        struct fl_rule *rule = &g->policy->rules[i];
        if (p && matches_either(rule->pattern, node, p))
            take(own, rule, PARAMETER_ROLES);
        else if (!p && matches_node(rule->pattern, node))
            take(own, rule, is_group(node, "product") ? LAYER_ROLES | PRODUCT_ROLES : LAYER_ROLES);
    }
    if (!p)
        note_used(g, node, own);
}

/* --- types -------------------------------------------------------------------------------------------------------- */

/* With the predictor that it will have. */
static struct fl_type settled(const nn_graph *g, struct fl_type type) {
    if (!tensor_format_is_shared(type.format))
        type.predictor = NULL;
    else if (g->asked)
        type.predictor = g->predictor;
    else if (!type.predictor)
        type.predictor = fl_format_predictor(type.format);
    return type;
}

static struct fl_type or_else(const nn_graph *g, const struct fl_choice *choice, struct fl_type other) {
    return choice->type.format ? settled(g, choice->type) : other;
}

/* A product reads two operands forward, and two in each half of backward: values or weights, and gradients. */
static tensor_status check_operands(const nn_graph *g, const struct fl_node *node) {
    const struct fl_node_types *as = &node->as;
    const bool alike =
        fl_same_format(as->x, as->y) && fl_same_format(as->back, as->dy) && fl_same_format(as->back, as->operand);
    if (tensor_format_has_mantissas(as->back.format) != tensor_format_has_mantissas(as->operand.format))
        return fl_fail(TENSOR_E_FORMAT,
                       "%s: gradient-operands in %s beside operands in %s, but a product has no mantissas under a "
                       "shared exponent by floats; expected two formats of one kind",
                       node->owner, tensor_format_name(as->operand.format), tensor_format_name(as->back.format));
    const struct fl_node_blocks *const blocks = &node->blocks;
    if (blocks->x && !(fl_device_takes_blocks(g->device, blocks->x, blocks->w ? blocks->w : blocks->x) &&
                       fl_device_takes_blocks(g->device, blocks->dy ? blocks->dy : blocks->x, blocks->x)))
        return fl_fail(TENSOR_E_UNSUPPORTED, "%s: operands in %s, which the device '%s' does not take", node->owner,
                       node->blocks.x->name, tensor_device_name(g->device));
    if (!alike && !node->blocks.x && !fl_device_takes_mixed(g->device))
        return fl_fail(TENSOR_E_UNSUPPORTED, "%s: operands in %s and a result in %s, which only the device 'cpu' has",
                       node->owner, tensor_format_name(as->x.format), tensor_format_name(as->y.format));
    return TENSOR_OK;
}

/* The classes of the products of a node. Where there are no weights, the second operand is a value as the first is.
 * What is hadamard in operands is so forward, in gradient-operands where the gradient of a weight is computed: the
 * other operand is transformed too. */
static tensor_status resolve_blocks(struct fl_node *node, const struct fl_choice own[FL_ROLES]) {
    const struct fl_choice *operands = &own[FL_ROLE_OPERANDS], *gradient = &own[FL_ROLE_GRADIENT_OPERANDS];
    struct fl_node_blocks *blocks = &node->blocks;
    *blocks = (struct fl_node_blocks){.x = operands->blocks[0]};
    if (!blocks->x && !gradient->blocks[0])
        return TENSOR_OK;
    if (!blocks->x)
        return fl_fail(TENSOR_E_FORMAT,
                       "%s: gradient-operands=%s, but operands are in no blocks; expected both in blocks or none "
                       "(operands=auto gradient-operands=auto)",
                       node->owner, gradient->blocks[0]->name);
    if (gradient->type.format)
        return fl_fail(TENSOR_E_FORMAT,
                       "%s: gradient-operands=%s, but operands are in %s; expected both in blocks or none", node->owner,
                       tensor_format_name(gradient->type.format), blocks->x->name);
    blocks->w = node->parameters ? operands->blocks[1] : blocks->x;
    blocks->dy = gradient->blocks[0] ? gradient->blocks[0] : blocks->x;
    const struct fl_block_format *x = blocks->x, *w = blocks->w, *dy = blocks->dy, *backward[3], *turned[2], *still[2];
    const bool learns = node->parameters > 0 && dy->hadamard;
    if (learns && (!x->block || x->block % FL_HADAMARD != 0))
        return fl_fail(
            TENSOR_E_FORMAT,
            "%s: operands=%s, but gradient-operands=%s transforms both factors of weight gradients; expected "
            "operands in blocks of a multiple of %d",
            node->owner, x->name, dy->name, FL_HADAMARD);
    TRY(fl_block_format_with(&backward[0], x, x->stochastic, false, false));
    TRY(fl_block_format_with(&backward[1], w, w->stochastic, false, w->square));
    TRY(fl_block_format_with(&backward[2], dy, dy->stochastic, false, false));
    TRY(fl_block_format_with(&turned[0], x, x->stochastic, learns, false));
    TRY(fl_block_format_with(&turned[1], dy, dy->stochastic, learns, false));
    TRY(fl_block_format_with(&still[0], x, false, x->hadamard, false));
    TRY(fl_block_format_with(&still[1], w, false, w->hadamard, w->square));
    TRY(fl_operands_class(&blocks->class[FL_PRODUCT_FORWARD], x, w));
    TRY(fl_operands_class(&blocks->class[FL_PRODUCT_EVALUATION], still[0], still[1]));
    TRY(fl_operands_class(&blocks->class[FL_PRODUCT_INPUT], backward[2], backward[1]));
    TRY(fl_operands_class(&blocks->class[FL_PRODUCT_INPUT_TURNED], backward[0], backward[2]));
    TRY(fl_operands_class(&blocks->class[FL_PRODUCT_WEIGHT], turned[0], turned[1]));
    TRY(fl_operands_class(&blocks->class[FL_PRODUCT_WEIGHT_TURNED], turned[1], turned[0]));
    blocks->draws = x->stochastic || w->stochastic || dy->stochastic || x->hadamard || dy->hadamard;
    return TENSOR_OK;
}

static tensor_status resolve_node(nn_graph *g, struct fl_node *node) {
    struct fl_choice own[FL_ROLES];
    choose(g, node, NULL, own);
    const struct fl_type activations = settled(g, own[FL_ROLE_ACTIVATIONS].type),
                         gradients = settled(g, own[FL_ROLE_GRADIENTS].type);
    struct fl_node_types *as = &node->as;
    *as = (struct fl_node_types){activations, activations, gradients, gradients, gradients, gradients};
    node->blocks = (struct fl_node_blocks){.x = NULL};
    if (is_group(node, "recurrent") && !fl_same_format(activations, gradients))
        return fl_fail(TENSOR_E_FORMAT, "%s: activations in %s and gradients in %s, expected one format of a %s",
                       node->owner, tensor_format_name(activations.format), tensor_format_name(gradients.format),
                       node->layer->kind);
    if (!is_group(node, "product"))
        return TENSOR_OK;
    if (own[FL_ROLE_OPERANDS].type.format) {
        const struct fl_type operands = settled(g, own[FL_ROLE_OPERANDS].type);
        *as = (struct fl_node_types){operands, operands, operands, operands, operands, operands};
    }
    if (own[FL_ROLE_RESULT].type.format)
        as->y = as->dy = as->dx = settled(g, own[FL_ROLE_RESULT].type);
    if (own[FL_ROLE_GRADIENT_OPERANDS].type.format)
        as->operand = settled(g, own[FL_ROLE_GRADIENT_OPERANDS].type);
    TRY(resolve_blocks(node, own));
    return check_operands(g, node);
}

/* Whether a rule sets something that only weights of 16 or 8 bits have. */
static bool asks_of_narrow(const struct fl_rule *rule, enum fl_role role) {
    const struct fl_choice *choice = &rule->choice[role];
    return choice->given &&
           choice->word == (role == FL_ROLE_MASTER ? (int)FL_MASTER_WIDE : (int)TENSOR_ROUND_STOCHASTIC);
}

static void note_used_by(nn_graph *g, const struct fl_node *node, const struct fl_parameter *p, bool narrow) {
    for (int i = 0; g->policy && i < g->policy->count; i++) {
        struct fl_rule *rule = &g->policy->rules[i];
        if (!matches_either(rule->pattern, node, p))
            continue;
        unsigned used = PARAMETER_ROLES;
        for (enum fl_role role = FL_ROLE_MASTER; role <= FL_ROLE_ROUNDING; role++)
            if (!narrow && asks_of_narrow(rule, role))
                used &= ~(1u << role);
        rule->used |= used;
    }
}

/* The bias of a product is added to its result. */
static bool is_operand(const struct fl_node *node, const struct fl_parameter *p) {
    return is_group(node, "product") && strcmp(p->suffix, "bias") != 0;
}

static tensor_status resolve_parameter(nn_graph *g, const struct fl_node *node, struct fl_parameter *p) {
    static const struct fl_type fp32 = {FMT_FP32, NULL};
    struct fl_choice own[FL_ROLES];
    choose(g, node, p, own);
    struct fl_parameter_types *as = &p->as;
    const struct fl_type w = settled(g, own[FL_ROLE_WEIGHTS].type);
    const bool narrow = tensor_format_bytes(w.format) <= 2;
    note_used_by(g, node, p, narrow);
    const int master = own[FL_ROLE_MASTER].word;
    const bool stochastic = own[FL_ROLE_ROUNDING].word == TENSOR_ROUND_STOCHASTIC;
    const bool added = is_group(node, "product") && !is_operand(node, p); /* a bias, which backward does not read */
    *as = (struct fl_parameter_types){.w = w,
                                      .g = node->as.dy,
                                      .forward = is_operand(node, p) ? node->as.x : node->as.y,
                                      .backward = added ? node->as.y : node->as.back,
                                      .update = master == FL_MASTER_FP32 ? fp32 : w,
                                      .wide = g->policy ? narrow && master == FL_MASTER_WIDE : master == FL_MASTER_WIDE,
                                      .stochastic = g->policy ? narrow && stochastic : stochastic};
    as->kept = or_else(g, &own[FL_ROLE_WEIGHT_GRADIENTS], as->g);
    if (fl_same_format(as->kept, as->g)) /* one tensor, and its predictor is the one that was asked for */
        as->g = as->kept;
    if (as->stochastic && g->policy && master != FL_MASTER_NONE)
        return fl_fail(TENSOR_E_ARGUMENT, "%s.%s: rounding=stochastic with master=%s, expected master=none",
                       node->owner, p->suffix, fl_master_name(master));
    const struct fl_type state = or_else(g, &own[FL_ROLE_STATE], as->update);
    if (!fl_same_format(state, as->update))
        return fl_fail(TENSOR_E_UNSUPPORTED,
                       "%s.%s: state=%s, but the optimiser computes in %s, the format of %s; expected the same",
                       node->owner, p->suffix, tensor_format_name(state.format), tensor_format_name(as->update.format),
                       master == FL_MASTER_FP32 ? "its master weight" : "the weight");
    return TENSOR_OK;
}

/* The loss reads what the last layer writes, unless a rule "@loss" says otherwise, or its gradient has another format:
 * the loss has one. */
static void resolve_loss(nn_graph *g) {
    g->loss_as = (struct fl_type){FMT_NONE, NULL};
    for (int i = 0; g->policy && i < g->policy->count; i++) {
        struct fl_rule *rule = &g->policy->rules[i];
        if (strcmp(rule->pattern, "@loss") != 0)
            continue;
        rule->matched = true;
        rule->used |= 1u << FL_ROLE_ACTIVATIONS;
        if (rule->choice[FL_ROLE_ACTIVATIONS].given)
            g->loss_as = settled(g, rule->choice[FL_ROLE_ACTIVATIONS].type);
    }
}

/* --- rules that had no effect ------------------------------------------------------------------------------------- */

/* "a, b, @c": each name once, as many as fit. */
struct patterns {
    char text[200];
    size_t used; /* above its size: not all fitted */
};

static bool is_listed(const struct patterns *p, const char *prefix, const char *name) {
    const size_t before = strlen(prefix), length = strlen(name);
    for (const char *at = p->text; *at; at += strcspn(at, ","), at += strspn(at, ", "))
        if (strcspn(at, ",") == before + length && !strncmp(at, prefix, before) && !strncmp(at + before, name, length))
            return true;
    return false;
}

static void add_name(struct patterns *p, const char *prefix, const char *name) {
    const size_t size = sizeof p->text, more = strlen(prefix) + strlen(name) + 2;
    if (p->used + 12 >= size || is_listed(p, prefix, name))
        return;
    if (p->used + more + 8 >= size)
        p->used += (size_t)snprintf(p->text + p->used, size - p->used, ", ...") + size;
    else
        p->used += (size_t)snprintf(p->text + p->used, size - p->used, "%s%s%s", p->used ? ", " : "", prefix, name);
}

/* Layers in order; kinds in order, then groups. */
static void list_patterns(nn_graph *const graphs[], int count, struct patterns *layers, struct patterns *kinds) {
    static const char *const groups[] = {"product", "norm", "recurrent", "softmax"};
    *layers = *kinds = (struct patterns){.used = 0};
    for (int n = 0; n < count; n++)
        for (int i = 0; i < graphs[n]->count; i++) {
            add_name(layers, "", graphs[n]->nodes[i].owner);
            add_name(kinds, "@", graphs[n]->nodes[i].layer->kind);
        }
    for (size_t k = 0; k < sizeof groups / sizeof groups[0]; k++)
        for (int n = 0; n < count; n++)
            for (int i = 0; i < graphs[n]->count; i++)
                if (is_group(&graphs[n]->nodes[i], groups[k]))
                    add_name(kinds, "@", groups[k]);
    add_name(kinds, "@", "loss");
}

static tensor_status check_rule(nn_graph *const graphs[], int count, const struct fl_rule *rule) {
    struct patterns layers, kinds;
    const unsigned unread = rule->operands ? rule->explicit_roles & ~rule->used & LAYER_ROLES : 0;
    if (unread)
        return fl_fail(TENSOR_E_ARGUMENT,
                       "%s: %s of '%.40s' would be ignored: what it matches are products with operands (%s), which "
                       "they compute with forward and backward; expected operands or result, or operands=auto",
                       rule->where,
                       fl_role_name(unread & 1u << FL_ROLE_ACTIVATIONS ? FL_ROLE_ACTIVATIONS : FL_ROLE_GRADIENTS),
                       rule->pattern, rule->operands->where);
    if (rule->if_any)
        return TENSOR_OK;
    list_patterns(graphs, count, &layers, &kinds);
    if (!rule->matched)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: '%.40s' matches no layer and no parameter; layers: %s; kinds: %s",
                       rule->where, rule->pattern, layers.text, kinds.text);
    const unsigned without = rule->explicit_roles & ~rule->used;
    for (int i = 0; i < FL_ROLES; i++)
        if (without >> i & 1)
            return fl_fail(TENSOR_E_ARGUMENT, "%s: nothing that '%.60s' matches has %s%s", rule->where, rule->pattern,
                           fl_role_name(i),
                           1u << i & PRODUCT_ROLES ? ", which only products (@product) have"
                           : i == FL_ROLE_MASTER && asks_of_narrow(rule, i)
                               ? "=wide, which only weights of 16 or 8 bits have"
                           : i == FL_ROLE_ROUNDING && asks_of_narrow(rule, i)
                               ? "=stochastic, which only weights of 16 or 8 bits have"
                               : "");
    return TENSOR_OK;
}

/* Checks the rules of networks that share a policy. */
static tensor_status check_rules(nn_graph *const graphs[], int count) {
    const struct fl_policy *policy = graphs[0]->policy;
    for (int i = 0; policy && i < policy->count; i++) {
        struct fl_rule rule = policy->rules[i];
        for (int n = 1; n < count; n++) {
            const struct fl_rule *other = &graphs[n]->policy->rules[i];
            rule.matched = rule.matched || other->matched;
            rule.used |= other->used;
            rule.operands = rule.operands ? rule.operands : other->operands;
        }
        TRY(check_rule(graphs, count, &rule));
    }
    return TENSOR_OK;
}

/* --- a network ---------------------------------------------------------------------------------------------------- */

/* Moments and roots of 16 bits are for parameters that are updated in mantissas. */
static tensor_status check_narrow(const nn_graph *g) {
    bool narrows = !g->optimiser.narrow || !g->policy;
    for (int i = 0; i < g->count; i++)
        for (int k = 0; k < g->nodes[i].parameters; k++)
            narrows = narrows || tensor_format_has_mantissas(g->nodes[i].parameter[k].as.update.format);
    return narrows ? TENSOR_OK
                   : fl_fail(TENSOR_E_ARGUMENT,
                             "narrow_state: the policy updates no parameter in mantissas under a shared exponent");
}

static tensor_status resolve(nn_graph *g) {
    for (int i = 0; g->policy && i < g->policy->count; i++) {
        g->policy->rules[i].matched = false;
        g->policy->rules[i].used = 0;
        g->policy->rules[i].operands = NULL;
    }
    for (int i = 0; i < g->count; i++) {
        struct fl_node *node = &g->nodes[i];
        TRY(resolve_node(g, node));
        for (int k = 0; k < node->parameters; k++)
            TRY(resolve_parameter(g, node, &node->parameter[k]));
    }
    resolve_loss(g);
    return check_narrow(g);
}

tensor_status fl_resolve_types(nn_graph *g) {
    TRY(resolve(g));
    return g->shares_policy ? TENSOR_OK : check_rules(&g, 1);
}

tensor_status nn_share_policy(nn_graph *a, nn_graph *b) {
    nn_graph *const both[] = {a, b};
    if (!a || !b)
        return fl_fail(TENSOR_E_ARGUMENT, "policy: a network that shares it is NULL");
    if (a->compiled || b->compiled)
        return fl_fail(TENSOR_E_ARGUMENT, "policy: a network that shares it is compiled already");
    for (int i = 0; i < 2; i++) {
        if (both[i]->status) /* a layer was refused */
            return fl_fail(both[i]->status, "%s", both[i]->message);
        TRY(resolve(both[i]));
        both[i]->shares_policy = true;
    }
    return check_rules(both, 2);
}

/* --- conversions -------------------------------------------------------------------------------------------------- */

static tensor_status convert_forward(struct fl_node *node, const struct fl_pass *pass) {
    (void)node;
    return tensor_rewrite(pass->y[0], pass->x[0]);
}

static tensor_status convert_backward(struct fl_node *node, const struct fl_pass *pass) {
    (void)node;
    return pass->dx[0] ? tensor_rewrite(pass->dx[0], pass->dy[0]) : TENSOR_OK;
}

/* In both passes; only forward, if the gradient has one format on both sides; only backward, if the value has. */
enum kind { BOTH, FORWARD, BACKWARD };

static const struct fl_layer layers[] = {
    [BOTH] = {"convert", 1, .shape = fl_same_shape, .forward = convert_forward, .backward = convert_backward},
    [FORWARD] = {"convert", 1, .gradient = GRADIENTS(SAME), .shape = fl_same_shape, .forward = convert_forward},
    [BACKWARD] = {"convert_gradient", 1, .views = 1, .shape = fl_same_shape, .backward = convert_backward},
};

bool fl_is_conversion(const struct fl_node *node) {
    return node->layer >= layers && node->layer < layers + sizeof layers / sizeof layers[0];
}

/* What input k of a node is read as, and the format of the gradient that it is given. The residual of a product is
 * added to its result. */
static struct fl_node_types reads(const struct fl_node *node, int k) {
    const bool added = k == 1 && !strcmp(node->layer->kind, "linear_add");
    return (struct fl_node_types){.x = added ? node->as.y : node->as.x, .dy = node->as.dx};
}

/* Also compares the predictor, which belongs to the tensor that a conversion writes. */
static bool is_same(struct fl_type a, struct fl_type b) {
    const char *p = a.predictor ? a.predictor : "", *q = b.predictor ? b.predictor : "";
    return fl_same_format(a, b) && !strcmp(p, q);
}

/* Conversions of x into the formats of `to`, with whatever predictors. */
static int made_alike(const nn_graph *g, nn_node x, struct fl_node_types to) {
    int count = 0;
    for (int i = 0; i < g->count; i++) {
        const struct fl_node *node = &g->nodes[i];
        count += fl_is_conversion(node) && node->input[0].x == x && fl_same_format(node->as.y, to.x) &&
                 fl_same_format(node->as.dy, to.dy);
    }
    return count;
}

/* A conversion of x made before; -1: none. */
static nn_node made(const nn_graph *g, nn_node x, struct fl_node_types to) {
    for (int i = 0; i < g->count; i++) {
        const struct fl_node *node = &g->nodes[i];
        if (fl_is_conversion(node) && node->input[0].x == x && is_same(node->as.y, to.x) && is_same(node->as.dy, to.dy))
            return node->first;
    }
    return -1;
}

/* Appends a new conversion: NAME.FORMAT, or NAME.FORMAT-FORMAT if the gradient has another format; followed by -2, -3,
 * ... if there is one whose exponents have other predictors. */
static nn_node make(nn_graph *g, nn_node x, struct fl_node_types to) {
    const struct fl_node *source = fl_node_of(g, x);
    const struct fl_node_types from = source->as;
    const bool forward = !fl_same_format(from.y, to.x), backward = !fl_same_format(from.dy, to.dy),
               apart = !fl_same_format(to.x, to.dy);
    const int alike = made_alike(g, x, to);
    char number[16] = "";
    if (alike)
        snprintf(number, sizeof number, "-%d", alike + 1);
    char *name = fl_format_name("%s.%s%s%s%s", fl_output_of(g, x)->name, tensor_format_name(to.x.format),
                                apart ? "-" : "", apart ? tensor_format_name(to.dy.format) : "", number);
    char *owner = fl_strdup(source->owner);
    nn_node y = -1;
    if (name && owner)
        y = fl_add_converter(g, &layers[forward && backward ? BOTH : forward ? FORWARD : BACKWARD], name, owner, x);
    else
        fl_fail(TENSOR_E_MEMORY, "graph: no memory for its plan");
    fl_free(name);
    fl_free(owner);
    if (y >= 0)
        fl_node_of(g, y)->as =
            (struct fl_node_types){.x = from.y, .y = to.x, .dy = to.dy, .dx = from.dy, .back = to.dy, .operand = to.dy};
    return y;
}

/* x as something reads it: x itself, or a conversion. */
static tensor_status converted(nn_graph *g, nn_node *x, struct fl_node_types to) {
    const struct fl_node *source = fl_node_of(g, *x);
    if (fl_output_of(g, *x)->tokens || (fl_same_format(source->as.y, to.x) && fl_same_format(source->as.dy, to.dy)))
        return TENSOR_OK;
    const nn_node before = made(g, *x, to);
    *x = before >= 0 ? before : make(g, *x, to);
    return *x >= 0 ? TENSOR_OK : tensor_error_status();
}

static bool need_conversions(const nn_graph *g) {
    if (!g->policy)
        return false;
    const struct fl_node_types *first = &g->nodes[0].as;
    bool differ = g->loss_as.format && g->loss_as.format != first->y.format;
    for (int i = 0; i < g->count; i++) {
        const struct fl_node_types *as = &g->nodes[i].as;
        differ = differ || !fl_same_format(as->x, first->x) || !fl_same_format(as->y, first->x) ||
                 !fl_same_format(as->dy, first->x) || !fl_same_format(as->back, first->x) ||
                 !fl_same_format(as->operand, first->x);
    }
    return differ;
}

/* Reorders the nodes: each follows the conversions that it is the first to read. */
tensor_status fl_insert_conversions(nn_graph *g, nn_node *logits) {
    if (!need_conversions(g) || *logits < 0 || *logits >= g->handle_count || g->compiled)
        return TENSOR_OK;
    const int count = g->count;
    struct fl_node *const old = g->nodes;
    g->nodes = NULL;
    g->count = g->node_capacity = 0;
    tensor_status status = TENSOR_OK;
    int done = 0;
    for (; done < count && !status; done++) {
        for (int k = 0; k < old[done].inputs && !status; k++)
            status = converted(g, &old[done].input[k].x, reads(&old[done], k));
        if (!status)
            status = fl_grow((void **)&g->nodes, g->count, &g->node_capacity, sizeof *g->nodes);
        if (status)
            break;
        for (int k = 0; k < old[done].outputs; k++)
            g->handles[old[done].first + k].node = g->count;
        g->nodes[g->count++] = old[done];
    }
    if (!status) {
        const struct fl_node *last = fl_node_of(g, *logits);
        const struct fl_type loss = g->loss_as.format ? g->loss_as : last->as.dy;
        status = converted(g, logits, (struct fl_node_types){.x = loss, .dy = loss});
    }
    if (status) { /* the remaining nodes are only in the old array */
        for (int i = done; i < count; i++)
            fl_node_clear(&old[i]);
    }
    fl_free(old);
    return status;
}
