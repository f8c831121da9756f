/* nn_optimiser.c - the optimiser's state of a parameter, and how it updates the parameter: docs/training.md has the
 * formulas. Factors that change from step to step are in tensors on the device, computed there by one operation in each
 * step, so that a recorded update can be replayed. */
#include "nn/step/nn_step.h"
#include "core/base/fail.h"
#include "core/base/text.h"
#include "flexlab/tensor_blocks.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- the table ---------------------------------------------------------------------------------------------------- */

static const struct kind {
    const char *name;
    tensor_optimiser_kind kind;
    bool moment, root, velocity; /* its state; a velocity only with momentum */
    bool decays_all;             /* norms and biases as well, by default */
    float beta1, beta2, epsilon; /* defaults */
} kinds[] = {{"sgd", TENSOR_OPTIMISER_SGD, false, false, true, true, 0, 0, 0},
             {"adam", TENSOR_OPTIMISER_ADAM, true, true, false, true, 0.9f, 0.999f, 1e-8f},
             {"adamw", TENSOR_OPTIMISER_ADAMW, true, true, false, false, 0.9f, 0.999f, 1e-8f},
             {"rmsprop", TENSOR_OPTIMISER_RMSPROP, false, true, true, true, 0, 0.99f, 1e-8f},
             {"adagrad", TENSOR_OPTIMISER_ADAGRAD, false, true, false, true, 0, 0, 1e-10f},
             {"lamb", TENSOR_OPTIMISER_LAMB, true, true, false, false, 0.9f, 0.999f, 1e-6f}};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

int nn_optimiser_count(void) {
    int count = 0;
    while (nn_optimiser_at(count))
        count++;
    return count;
}

const char *nn_optimiser_at(int i) {
    return i >= 0 && i < KINDS ? kinds[i].name : NULL;
}

static const struct kind *find(const char *name) {
    for (int i = 0; i < KINDS; i++)
        if (!strcmp(kinds[i].name, name ? name : "sgd"))
            return &kinds[i];
    fl_fail(TENSOR_E_ARGUMENT, "optimiser '%.100s': expected one of %s", name, fl_list_names(nn_optimiser_at).text);
    return NULL;
}

static const struct kind *kind_of(const nn_graph *g) {
    return &kinds[g->optimiser.how.kind]; /* in the order of the numbers */
}

/* --- settings ----------------------------------------------------------------------------------------------------- */

static tensor_status check_number(const char *what, float value, float limit) {
    if (value >= 0 && value < limit)
        return TENSOR_OK;
    return limit > 1 ? fl_fail(TENSOR_E_ARGUMENT, "%s: %g, expected 0 or more", what, (double)value)
                     : fl_fail(TENSOR_E_ARGUMENT, "%s: %g, expected 0 or more and below 1", what, (double)value);
}

static tensor_status check_taken(const struct kind *k, const char *what, float value, bool taken) {
    return !value || taken
               ? TENSOR_OK
               : fl_fail(TENSOR_E_ARGUMENT, "%s: %g, expected 0: optimiser %s has none", what, (double)value, k->name);
}

static tensor_status check_numbers(const nn_config *c, const struct kind *k) {
    TRY(check_number("beta1", c->beta1, 1));
    TRY(check_number("beta2", c->beta2, 1));
    TRY(check_number("epsilon", c->epsilon, INFINITY));
    TRY(check_number("clip_value", c->clip_value, INFINITY));
    TRY(check_number("clip_norm", c->clip_norm, INFINITY));
    TRY(check_taken(k, "momentum", c->momentum, k->velocity));
    TRY(check_taken(k, "beta1", c->beta1, k->moment));
    TRY(check_taken(k, "beta2", c->beta2, k->beta2 > 0));
    return check_taken(k, "epsilon", c->epsilon, k->root);
}

static tensor_status check_switches(const nn_config *c, const struct kind *k, const nn_variant *variant) {
    if (c->decay && strcmp(c->decay, "all") && strcmp(c->decay, "weights"))
        return fl_fail(TENSOR_E_ARGUMENT, "decay '%s': expected all or weights", c->decay);
    if (c->nesterov && (k->kind != TENSOR_OPTIMISER_SGD || !(c->momentum > 0)))
        return fl_fail(TENSOR_E_ARGUMENT, "nesterov: optimiser %s with momentum %g, expected sgd with some", k->name,
                       (double)c->momentum);
    if (c->narrow_state && !k->root)
        return fl_fail(TENSOR_E_ARGUMENT, "narrow_state: optimiser %s, expected one with a mean square", k->name);
    if (c->narrow_state && !c->policy && !c->layer_formats && !tensor_format_has_mantissas(variant->format))
        return fl_fail(TENSOR_E_ARGUMENT,
                       "narrow_state: variant %s, expected one with mantissas under a shared exponent", variant->name);
    return TENSOR_OK;
}

tensor_status fl_optimiser_check(const nn_config *config, const nn_variant *variant) {
    const struct kind *k = find(config->optimiser);
    if (!k)
        return TENSOR_E_ARGUMENT;
    TRY(check_numbers(config, k));
    return check_switches(config, k, variant);
}

void fl_optimiser_take(nn_graph *g, const nn_config *c) {
    const struct kind *k = find(c->optimiser);
    struct fl_optimiser *o = &g->optimiser;
    o->how = (tensor_optimiser){.kind = k->kind,
                                .beta1 = c->beta1 > 0 ? c->beta1 : k->beta1,
                                .beta2 = c->beta2 > 0 ? c->beta2 : k->beta2,
                                .epsilon = c->epsilon > 0 ? c->epsilon : k->epsilon,
                                .weight_decay = c->weight_decay,
                                .clip_norm = c->clip_norm,
                                .momentum = c->momentum};
    o->clip_value = c->clip_value;
    o->nesterov = c->nesterov;
    o->narrow = c->narrow_state;
    o->decays_all = c->decay ? !strcmp(c->decay, "all") : k->decays_all;
    const bool scaled = g->scaling.kind != FL_SCALE_NONE;
    o->plain = k->kind == TENSOR_OPTIMISER_SGD && !c->nesterov && !(c->clip_norm > 0) && !scaled;
    o->wide_velocity = k->kind == TENSOR_OPTIMISER_SGD && scaled;
}

/* --- tensors ------------------------------------------------------------------------------------------------------ */

static bool decays(const struct fl_optimiser *o, const struct fl_parameter *p) {
    return o->how.weight_decay > 0 && (o->decays_all || fl_is_weight(p));
}

/* Whether the gradient is first combined with w and the scale in a tensor of its own. */
static bool prepares(const struct fl_optimiser *o) {
    return o->how.weight_decay > 0 &&
           (o->how.kind == TENSOR_OPTIMISER_ADAM || o->how.kind == TENSOR_OPTIMISER_RMSPROP ||
            o->how.kind == TENSOR_OPTIMISER_ADAGRAD);
}

static bool has_direction(const struct fl_optimiser *o) {
    return o->clip_value > 0 || o->nesterov || prepares(o) || o->how.kind == TENSOR_OPTIMISER_LAMB;
}

/* Whether the velocity is to be wide: gradients as large as they are without scaling do not all have a place in a
 * format of the range of fp16. */
static tensor_status find_width(const struct fl_optimiser *o, struct fl_parameter *p) {
    const float small = 0x1p-60f;
    tensor_measure m = {0};
    p->widens = false;
    if (!o->wide_velocity || tensor_format_is_shared(p->as.update.format))
        return TENSOR_OK;
    tensor *one = tensor_new(FMT_FP32, TENSOR_SHAPE(1));
    if (!one)
        return tensor_error_status();
    tensor_status status = tensor_load_f32(one, &small, 1);
    if (!status)
        status = tensor_measure_in(&m, one, p->as.update.format, 0);
    tensor_free(one);
    p->widens = m.flushed > 0;
    return status;
}

/* Whether d is Nesterov's direction at twice the width, which is written in parts and cannot hold the gradient too. */
static bool keeps_direction(const struct fl_optimiser *o, const struct fl_parameter *p) {
    return p->widens && o->nesterov;
}

struct fl_type fl_optimiser_type(const nn_graph *g, const struct fl_parameter_types *as) {
    const bool velocity = kind_of(g)->kind == TENSOR_OPTIMISER_SGD;
    return (struct fl_type){as->update.format, velocity ? as->update.predictor : "current"};
}

static tensor_status new_like(const nn_graph *g, const struct fl_parameter *p, const char *predictor, tensor **t) {
    return fl_new_tensor(g, t, (struct fl_type){p->as.update.format, predictor}, &p->shape);
}

/* A moment or a root: with a wide part if the format has one, or in 16 bits with stochastic rounding. */
static tensor_status new_state(const nn_graph *g, const struct fl_parameter *p, const char *name, tensor **t) {
    TRY(new_like(g, p, fl_optimiser_type(g, &p->as).predictor, t));
    if (g->optimiser.narrow && tensor_format_has_mantissas(p->as.update.format))
        return tensor_set_rounding(*t, TENSOR_ROUND_STOCHASTIC, nn_name_key(g->seed, name));
    return tensor_keep_wide(*t);
}

tensor_status fl_optimiser_parameter(nn_graph *g, struct fl_parameter *p, const char *name) {
    const struct fl_optimiser *o = &g->optimiser;
    const struct kind *k = kind_of(g);
    const bool velocity = k->kind == TENSOR_OPTIMISER_SGD || (k->velocity && o->how.momentum > 0);
    char *moment_name = velocity || k->moment ? fl_format_name("%s.momentum", name) : NULL;
    tensor_status status = TENSOR_OK;
    if (k->kind == TENSOR_OPTIMISER_SGD) {
        status = find_width(o, p);
        if (!status)
            status = new_like(g, p, fl_optimiser_type(g, &p->as).predictor, &p->v);
        if (!status && p->widens)
            status = tensor_keep_wide(p->v);
    } else if (moment_name)
        status = new_state(g, p, moment_name, &p->v);
    if (velocity || k->moment) /* takes ownership of the name, on failure too */
        TRY(fl_list_tensor(g, moment_name, "momentum", p->v, status));
    if (k->root) {
        char *root_name = fl_format_name("%s.root", name);
        status = root_name ? new_state(g, p, root_name, &p->r) : TENSOR_OK;
        TRY(fl_list_tensor(g, root_name, "root", p->r, status));
    }
    if (has_direction(o)) {
        status = new_like(g, p, "current", &p->d);
        if (!status && keeps_direction(o, p))
            status = tensor_keep_wide(p->d);
        TRY(fl_list_tensor(g, fl_format_name("%s.direction", name), "direction", p->d, status));
    }
    p->number = g->optimiser.parameters++;
    return TENSOR_OK;
}

static tensor_status new_numbers(const nn_graph *g, tensor **t, tensor_format format, int64_t rows, int64_t columns) {
    *t = tensor_new_in(g->device, format, TENSOR_SHAPE(rows, columns));
    return *t ? TENSOR_OK : tensor_error_status();
}

tensor_status fl_optimiser_numbers_of_step(nn_graph *g) {
    struct fl_optimiser *o = &g->optimiser;
    if (o->plain)
        return TENSOR_OK;
    TRY(new_numbers(g, &o->numbers, FMT_F64, TENSOR_STEP_ROWS, 4));
    TRY(tensor_optimiser_begin(o->numbers, &o->how));
    if (o->how.clip_norm > 0)
        TRY(new_numbers(g, &o->sums, FMT_F64, 1, o->parameters));
    if (o->how.kind == TENSOR_OPTIMISER_LAMB) {
        TRY(new_numbers(g, &o->norms, FMT_F64, 1, 2));
        TRY(new_numbers(g, &o->trust, FMT_F32, 1, 1));
    }
    return TENSOR_OK;
}

void fl_optimiser_clear(struct fl_optimiser *o) {
    tensor_free(o->numbers);
    tensor_free(o->sums);
    tensor_free(o->norms);
    tensor_free(o->trust);
}

/* --- a step ------------------------------------------------------------------------------------------------------- */

/* The gradient that the optimiser uses, with its elements clipped. */
static tensor *gradient_of(const struct fl_optimiser *o, const struct fl_parameter *p) {
    return o->clip_value > 0 && !keeps_direction(o, p) ? p->d : fl_taken_gradient(p);
}

static tensor_status measure_gradient(const nn_graph *g, const struct fl_parameter *p) {
    const struct fl_optimiser *o = &g->optimiser;
    if (g->scaling.limit)
        TRY(tensor_clip_by(gradient_of(o, p), fl_taken_gradient(p), g->scaling.limit));
    else if (o->clip_value > 0)
        TRY(tensor_clip(p->d, fl_taken_gradient(p), o->clip_value));
    return o->sums ? tensor_sum_squares(o->sums, p->number, gradient_of(o, p)) : TENSOR_OK;
}

tensor_status fl_optimiser_begin(nn_graph *g) {
    const struct fl_optimiser *o = &g->optimiser;
    for (int i = 0; i < g->count; i++)
        for (int k = 0; k < g->nodes[i].parameters; k++) {
            tensor_status status = measure_gradient(g, &g->nodes[i].parameter[k]);
            if (status)
                return fl_node_failed(&g->nodes[i], status);
        }
    if (o->plain)
        return TENSOR_OK;
    return g->scaling.scale ? tensor_optimiser_step_scaled(o->numbers, g->rate, o->sums, g->scaling.scale)
                            : tensor_optimiser_step(o->numbers, g->rate, o->sums);
}

/* By the wide part of the velocity, or of where it leads to: what is written in place has one, and the third operand
 * counts as its own. The gradient, which is finite, stands by with a factor of 0. */
static tensor_status descend_widely(const nn_graph *g, const struct fl_parameter *p) {
    const struct fl_optimiser *o = &g->optimiser;
    tensor *gradient = fl_taken_gradient(p), *w = fl_updated(p);
    if (o->nesterov)
        TRY(tensor_combine(p->d, p->d, gradient, p->v, o->numbers, TENSOR_STEP_MOMENT));
    if (o->nesterov && decays(o, p))
        TRY(tensor_combine(p->d, p->d, gradient, w, o->numbers, TENSOR_STEP_ROOT));
    return tensor_combine(w, w, gradient, o->nesterov ? p->d : p->v, o->numbers, TENSOR_STEP_WEIGHT);
}

static tensor_status descend(const nn_graph *g, const struct fl_parameter *p) {
    const struct fl_optimiser *o = &g->optimiser;
    tensor *gradient = gradient_of(o, p), *w = fl_updated(p);
    const int row = decays(o, p) ? TENSOR_STEP_DIRECTION : TENSOR_STEP_DIRECTION_UNDECAYED;
    if (o->plain)
        TRY(tensor_sgd_momentum(p->v, gradient, w, o->how.momentum, decays(o, p) ? o->how.weight_decay : 0));
    else
        TRY(tensor_combine(p->v, p->v, gradient, w, o->numbers, row));
    if (p->widens)
        return descend_widely(g, p);
    if (o->nesterov) /* the point that the velocity leads to */
        TRY(tensor_combine(p->d, p->v, gradient, w, o->numbers, row));
    return tensor_sgd_update_by(w, o->nesterov ? p->d : p->v, g->rate);
}

/* LAMB: the rate of a parameter that decays follows from the norms of its weight and its direction. */
static tensor_status descend_by_trust(const nn_graph *g, const struct fl_parameter *p, int row) {
    const struct fl_optimiser *o = &g->optimiser;
    tensor *w = fl_updated(p);
    TRY(tensor_add_ratio(p->d, w, p->v, p->r, o->numbers, row));
    if (row == TENSOR_STEP_WEIGHT_UNDECAYED)
        return tensor_sgd_update_by(w, p->d, g->rate);
    TRY(tensor_sum_squares(o->norms, 0, w));
    TRY(tensor_sum_squares(o->norms, 1, p->d));
    TRY(tensor_trust_rate(o->trust, g->rate, o->norms));
    return tensor_sgd_update_by(w, p->d, o->trust);
}

/* By the root of a mean square. */
static tensor_status descend_by_root(const nn_graph *g, const struct fl_parameter *p) {
    const struct fl_optimiser *o = &g->optimiser;
    const struct kind *k = kind_of(g);
    tensor *gradient = gradient_of(o, p), *w = fl_updated(p);
    const bool decaying = o->decays_all || fl_is_weight(p);
    if (prepares(o)) {
        TRY(tensor_combine(p->d, w, gradient, NULL, o->numbers,
                           decaying ? TENSOR_STEP_DIRECTION : TENSOR_STEP_DIRECTION_UNDECAYED));
        gradient = p->d;
    }
    TRY(tensor_root_mean(p->r, gradient, o->numbers, TENSOR_STEP_ROOT));
    if (k->moment)
        TRY(tensor_combine(p->v, p->v, gradient, NULL, o->numbers, TENSOR_STEP_MOMENT));
    const int row = decaying ? TENSOR_STEP_WEIGHT : TENSOR_STEP_WEIGHT_UNDECAYED;
    if (k->kind == TENSOR_OPTIMISER_LAMB)
        return descend_by_trust(g, p, row);
    if (k->moment || !p->v)
        return tensor_add_ratio(w, w, k->moment ? p->v : gradient, p->r, o->numbers, row);
    TRY(tensor_add_ratio(p->v, p->v, gradient, p->r, o->numbers, row));
    return tensor_sgd_update_by(w, p->v, g->rate);
}

tensor_status fl_optimise(const nn_graph *g, const struct fl_parameter *p) {
    return g->optimiser.how.kind == TENSOR_OPTIMISER_SGD ? descend(g, p) : descend_by_root(g, p);
}
