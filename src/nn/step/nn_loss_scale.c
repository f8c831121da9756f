/* nn_loss_scale.c - loss scaling (Micikevicius et al. 2018): its settings, the present scale, and which steps make no
 * update. docs/training.md. */
#include "nn/step/nn_step.h"
#include "core/base/fail.h"
#include "core/values/slot_copies.h"
#include "core/base/text.h"
#include "nn/shards/nn_shards.h"
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- settings ----------------------------------------------------------------------------------------------------- */

static const double least_scale = 0x1p-60, most_scale = 0x1p60;
static const double usual_initial = 65536, usual_least = 0.03125, usual_most = 16777216;
enum { USUAL_WINDOW = 2000, USUAL_FACTOR = 2, MOST_FACTOR = 1 << 20 };

static const char expected[] = "expected none, dynamic, dynamic:NAME=NUMBER,... with init, window, factor, min, max, "
                               "or a power of two such as 1024 or 2^10";

/* what: the name of a setting and ": ". */
static tensor_status refuse(const char *text, const char *what, double value, double low, double high) {
    char nearest[80] = "";
    if (value > low && value < high) {
        const double below = exp2(floor(log2(value)));
        snprintf(nearest, sizeof nearest, "; the nearest are %.17g and %.17g", below, 2 * below);
    }
    return fl_fail(TENSOR_E_ARGUMENT, "loss scale '%.100s': %sexpected a power of two from 2^%d to 2^%d%s", text, what,
                   (int)log2(low), (int)log2(high), nearest);
}

static bool is_power_of_two(double x) {
    int exponent;
    return x > 0 && isfinite(x) && frexp(x, &exponent) == 0.5;
}

/* "65536", "0.03125", "2^16"; *rest: what follows. */
static double read_number(const char *text, char **rest) {
    const double value = fl_to_real(text, rest);
    char *end;
    if (*rest == text || **rest != '^' || value != 2)
        return value;
    const double power = fl_to_real(*rest + 1, &end);
    if (end == *rest + 1)
        return value; /* the rest is not understood */
    *rest = end;
    return power >= -1000 && power <= 1000 && power == floor(power) ? ldexp(1, (int)power) : NAN;
}

enum setting { INIT, WINDOW, FACTOR, LEAST, MOST, SETTINGS };
static const char *const settings[SETTINGS] = {
    [INIT] = "init", [WINDOW] = "window", [FACTOR] = "factor", [LEAST] = "min", [MOST] = "max"};

static enum setting find_setting(const char *name, size_t length) {
    int i = 0;
    while (i < SETTINGS && (strlen(settings[i]) != length || strncmp(settings[i], name, length) != 0))
        i++;
    return (enum setting)i;
}

/* NAME=NUMBER up to a comma or the end; *at: what follows. */
static tensor_status read_setting(const char *text, const char **at, double value[SETTINGS], bool given[SETTINGS]) {
    const int length = (int)strcspn(*at, ",");
    const char *word = *at, *equals = memchr(word, '=', (size_t)length);
    const enum setting i = equals ? find_setting(word, (size_t)(equals - word)) : SETTINGS;
    char *rest;
    if (i == SETTINGS)
        return fl_fail(TENSOR_E_ARGUMENT, "loss scale '%.100s': '%.*s' is not understood, %s", text,
                       length < 40 ? length : 40, word, expected);
    if (given[i])
        return fl_fail(TENSOR_E_ARGUMENT, "loss scale '%.100s': %s a second time, expected once", text, settings[i]);
    given[i] = true;
    value[i] = read_number(equals + 1, &rest);
    if (rest == equals + 1 || rest != word + length)
        return fl_fail(TENSOR_E_ARGUMENT, "loss scale '%.100s': '%.*s', expected a number after '%s='", text,
                       length < 40 ? length : 40, word, settings[i]);
    *at = *rest ? rest + 1 : rest;
    return *rest && !**at ? fl_fail(TENSOR_E_ARGUMENT, "loss scale '%.100s': nothing after the last comma", text)
                          : TENSOR_OK;
}

static tensor_status read_dynamic(struct fl_loss_scale *s, const char *text, const char *at) {
    double value[SETTINGS] = {usual_initial, USUAL_WINDOW, USUAL_FACTOR, usual_least, usual_most};
    bool given[SETTINGS] = {false};
    while (*at)
        TRY(read_setting(text, &at, value, given));
    const double window = value[WINDOW];
    if (!(window >= 1 && window <= INT32_MAX && window == floor(window)))
        return fl_fail(TENSOR_E_ARGUMENT, "loss scale '%.100s': window %g, expected a whole number from 1 to %d", text,
                       window, INT32_MAX);
    s->window = (int64_t)window;
    s->factor = value[FACTOR];
    s->least = value[LEAST];
    s->most = value[MOST];
    if (!is_power_of_two(s->factor) || s->factor < 2 || s->factor > MOST_FACTOR)
        return refuse(text, "factor: ", s->factor, 2, MOST_FACTOR);
    if (!is_power_of_two(s->least) || s->least < least_scale || s->least > most_scale)
        return refuse(text, "min: ", s->least, least_scale, most_scale);
    if (!is_power_of_two(s->most) || s->most < s->least || s->most > most_scale)
        return refuse(text, "max: ", s->most, s->least, most_scale);
    const double initial = given[INIT] ? value[INIT] : fmin(fmax(value[INIT], s->least), s->most);
    if (!is_power_of_two(initial) || initial < s->least || initial > s->most)
        return refuse(text, "init: ", initial, s->least, s->most);
    s->now.scale = s->initial = initial;
    return TENSOR_OK;
}

static tensor_status parse(struct fl_loss_scale *s, const char *text) {
    char *rest;
    *s = (struct fl_loss_scale){.now = {.scale = 1}};
    if (!text || !strcmp(text, "none"))
        return TENSOR_OK;
    if (!strcmp(text, "dynamic") || !strncmp(text, "dynamic:", 8)) {
        s->kind = FL_SCALE_DYNAMIC;
        return text[7] && !text[8] ? fl_fail(TENSOR_E_ARGUMENT, "loss scale '%s': %s", text, expected)
                                   : read_dynamic(s, text, text + (text[7] ? 8 : 7));
    }
    const double scale = read_number(text, &rest);
    if (rest == text || *rest)
        return fl_fail(TENSOR_E_ARGUMENT, "loss scale '%.100s': %s", text, expected);
    if (!is_power_of_two(scale) || scale < least_scale || scale > most_scale)
        return refuse(text, "", scale, least_scale, most_scale);
    s->kind = FL_SCALE_STATIC;
    s->now.scale = s->initial = scale;
    return TENSOR_OK;
}

tensor_status fl_loss_scale_check(const nn_config *config) {
    struct fl_loss_scale unused;
    return parse(&unused, config->loss_scale);
}

void fl_loss_scale_take(nn_graph *g, const nn_config *config) {
    (void)parse(&g->scaling, config->loss_scale);
}

static void format(char *text, size_t room, const char *how, ...) __attribute__((format(printf, 3, 4)));

static void format(char *text, size_t room, const char *how, ...) {
    va_list arguments;
    va_start(arguments, how);
    fl_format(text, room, how, arguments);
    va_end(arguments);
}

static void describe(const struct fl_loss_scale *s, char *text, size_t room) {
    if (s->kind == FL_SCALE_NONE)
        format(text, room, "none");
    else if (s->kind == FL_SCALE_STATIC)
        format(text, room, "%.17g", s->initial);
    else
        format(text, room, "dynamic:init=%.17g,window=%lld,factor=%.17g,min=%.17g,max=%.17g", s->initial,
               (long long)s->window, s->factor, s->least, s->most);
}

void fl_loss_scale_text(const nn_graph *g, char text[FL_SCALE_TEXT]) {
    describe(&g->scaling, text, FL_SCALE_TEXT);
}

bool fl_loss_scale_lower(const nn_graph *g, char *text, size_t room) {
    static const double further = 1024;
    struct fl_loss_scale s = g->scaling;
    char full[FL_SCALE_TEXT];
    if (s.kind != FL_SCALE_DYNAMIC) {
        format(text, room, "loss-scale dynamic");
        return true;
    }
    s.least /= further;
    describe(&s, full, sizeof full);
    format(text, room, "loss-scale %s", full);
    return s.least >= least_scale;
}

tensor_status nn_loss_scale_text(char *text, size_t size, const char *loss_scale) {
    struct fl_loss_scale s;
    char whole[FL_SCALE_TEXT];
    TRY(parse(&s, loss_scale));
    describe(&s, whole, sizeof whole);
    if (!text || strlen(whole) >= size)
        return fl_fail(TENSOR_E_ARGUMENT, "loss scale: '%s' has %zu bytes, there is room for %zu", whole, strlen(whole),
                       text && size ? size - 1 : 0);
    strcpy(text, whole);
    return TENSOR_OK;
}

/* --- numbers on the network's device ------------------------------------------------------------------------------ */

/* Loads the numbers that operations read: the scale, and the limit of each element of a scaled gradient. */
static tensor_status load_numbers(const nn_graph *g, double scale) {
    const struct fl_loss_scale *s = &g->scaling;
    const double most = g->optimiser.clip_value * scale;
    const float limit = most > FLT_MAX ? FLT_MAX : (float)most;
    TRY(tensor_load_f64(s->scale, &scale, 1));
    return s->limit ? tensor_load_f32(s->limit, &limit, 1) : TENSOR_OK;
}

tensor_status fl_loss_scale_numbers(nn_graph *g) {
    struct fl_loss_scale *s = &g->scaling;
    if (s->kind == FL_SCALE_NONE)
        return TENSOR_OK;
    s->scale = tensor_new_in(g->device, FMT_F64, TENSOR_SHAPE(1));
    if (g->optimiser.clip_value > 0)
        s->limit = tensor_new_in(g->device, FMT_F32, TENSOR_SHAPE(1));
    if (!s->scale || (g->optimiser.clip_value > 0 && !s->limit))
        return tensor_error_status();
    return load_numbers(g, s->now.scale);
}

void fl_loss_scale_clear(nn_graph *g) {
    struct fl_loss_scale *s = &g->scaling;
    tensor_free(s->scale);
    tensor_free(s->limit);
    if (s->slots)
        fl_slot_copies_free(g->device, s->slots);
}

void fl_loss_scale_borrow(nn_graph *to, const nn_graph *from) {
    to->scaling.borrowed = from ? from->scaling.scale : NULL;
}

const tensor *fl_loss_scale_of(const nn_graph *g) {
    if (g->share) /* which has the scale as a factor */
        return g->share;
    return g->scaling.borrowed ? g->scaling.borrowed : g->scaling.scale;
}

/* --- a step ------------------------------------------------------------------------------------------------------- */

/* Whether the write had an Inf or NaN, which shared exponents count although they cannot represent either, or saturated
 * a number that no exponent of its format can represent. */
static bool overflowed(const struct fl_slot *slot, bool shared) {
    return slot->last.nonfinite > 0 || (shared && slot->last.saturated > 0 && slot->e == slot->autoflex.e_min);
}

static tensor_status find_slot(const struct fl_slot_copies *slots, const tensor *t, const struct fl_slot **slot) {
    *slot = fl_slot_then(slots, t);
    return *slot ? TENSOR_OK : fl_fail(TENSOR_E_DEVICE, "loss scale: a gradient has no slot among those of its device");
}

/* Checks the gradient of an activation: with a shared exponent an overflow ends there, as the largest number or 0, and
 * need not reach the gradient of a parameter; in float formats an Inf does. index -1: there is none. */
static tensor_status look_at_value(const nn_graph *g, int shard, const struct fl_slot_copies *slots, int index,
                                   bool *found) {
    const struct fl_slot *slot;
    if (index < 0 || !tensor_format_is_shared(g->values[index].type.format))
        return TENSOR_OK;
    TRY(find_slot(slots, fl_shard_value(g, shard, g->values[index].base), &slot));
    *found = *found || overflowed(slot, true);
    return TENSOR_OK;
}

/* Looks at every gradient that a node read or wrote in this step. */
static tensor_status look_at_values(const nn_graph *g, int shard, const struct fl_slot_copies *slots,
                                    const struct fl_node *node, bool *found) {
    for (int k = 0; k < node->outputs; k++) {
        TRY(look_at_value(g, shard, slots, node->output[k].dy, found));
        TRY(look_at_value(g, shard, slots, node->output[k].operand, found));
    }
    for (int k = 0; k < node->inputs; k++) {
        TRY(look_at_value(g, shard, slots, node->input[k].dx, found));
        TRY(look_at_value(g, shard, slots, node->input[k].sum, found));
    }
    return TENSOR_OK;
}

static tensor_status look_at_gradient(const struct fl_slot_copies *slots, const tensor *gradient, bool *found) {
    const struct fl_slot *slot;
    if (!gradient)
        return TENSOR_OK;
    TRY(find_slot(slots, gradient, &slot));
    *found = *found || overflowed(slot, tensor_format_is_shared(tensor_format_of(gradient)));
    return TENSOR_OK;
}

/* Looks at a gradient as written, as stored and as read by the update: each format may have a smaller range. */
static tensor_status look_at_parameter(const struct fl_slot_copies *slots, const struct fl_parameter *p, bool *found) {
    TRY(look_at_gradient(slots, p->g, found));
    TRY(look_at_gradient(slots, p->g_kept, found));
    return look_at_gradient(slots, p->g_taken, found);
}

static tensor_status look_at_parameters(const nn_graph *g, const struct fl_slot_copies *slots, bool *found) {
    for (int i = 0; i < g->count; i++)
        for (int k = 0; k < g->nodes[i].parameters; k++)
            TRY(look_at_parameter(slots, &g->nodes[i].parameter[k], found));
    for (int s = 0; g->of && s < g->shards; s++)
        for (int i = 0; i < fl_shard_gradients(g); i++)
            TRY(look_at_gradient(slots, fl_shard_gradient(g, s, i), found));
    return TENSOR_OK;
}

static tensor_status look_at_activations(const nn_graph *g, const struct fl_slot_copies *slots, bool *found) {
    for (int s = 0; s < g->shards; s++)
        for (int i = 0; i < g->count; i++)
            if (g->nodes[i].learns)
                TRY(look_at_values(g, s, slots, &g->nodes[i], found));
    return TENSOR_OK;
}

/* In the next network only gradients that lead to this one count, not those of parameters. */
static tensor_status look(const nn_graph *g, const nn_graph *next, const struct fl_slot_copies *slots, bool *found) {
    TRY(look_at_parameters(g, slots, found));
    TRY(look_at_activations(g, slots, found));
    return next ? look_at_activations(next, slots, found) : TENSOR_OK;
}

tensor_status fl_loss_scale_judge(nn_graph *g, const nn_graph *next, bool *skip) {
    struct fl_loss_scale *s = &g->scaling;
    *skip = false;
    if (s->kind != FL_SCALE_DYNAMIC)
        return TENSOR_OK;
    if (g->device == tensor_device_at(0))
        return look(g, next, NULL, skip);
    TRY(fl_taken(g, fl_slot_copies_begin(g->device, &s->slots)));
    TRY(fl_taken(g, fl_slot_copies_end(g->device, s->slots)));
    return look(g, next, s->slots, skip);
}

const struct fl_slot_copies *fl_loss_scale_slots(const nn_graph *g) {
    return g->scaling.kind == FL_SCALE_DYNAMIC ? g->scaling.slots : NULL;
}

/* The published rule: lower the scale at once, raise it after a growth interval without overflows. */
static void advance(struct fl_loss_scale *s, bool skipped) {
    nn_loss_scale *now = &s->now;
    if (skipped) {
        now->scale = fmax(now->scale / s->factor, s->least);
        now->good = 0;
        now->skipped++;
        now->in_a_row++;
        now->longest = now->in_a_row > now->longest ? now->in_a_row : now->longest;
        return;
    }
    now->in_a_row = 0;
    if (++now->good < s->window)
        return;
    now->good = 0;
    now->scale = fmin(now->scale * s->factor, s->most);
}

tensor_status fl_loss_scale_step(nn_graph *g, bool skipped) {
    struct fl_loss_scale *s = &g->scaling;
    const double before = s->now.scale;
    s->used = before;
    if (s->kind != FL_SCALE_DYNAMIC)
        return TENSOR_OK;
    advance(s, skipped);
    return s->now.scale != before ? load_numbers(g, s->now.scale) : TENSOR_OK;
}

tensor_status nn_loss_scale_of(nn_loss_scale *now, const nn_graph *g) {
    TRY(fl_check_ready(g));
    if (!now)
        return fl_fail(TENSOR_E_ARGUMENT, "loss scale: now is NULL");
    *now = g->scaling.now;
    return TENSOR_OK;
}

/* --- in the state of the network ---------------------------------------------------------------------------------- */

tensor_status fl_loss_scale_check_state(const nn_graph *g, const nn_loss_scale *now) {
    const struct fl_loss_scale *s = &g->scaling;
    const bool good = is_power_of_two(now->scale) && now->scale >= s->least && now->scale <= s->most &&
                      now->good >= 0 && now->good < s->window && now->skipped >= now->longest &&
                      now->longest >= now->in_a_row && now->in_a_row >= 0 && !(now->good && now->in_a_row);
    return good || s->kind != FL_SCALE_DYNAMIC
               ? TENSOR_OK
               : fl_fail(TENSOR_E_DATA,
                         "state: a loss scale of %g after %" PRId64 " good steps, %" PRId64 " skipped, %" PRId64
                         " of these consecutively, at most %" PRId64
                         ": impossible for a scale from %g to %g with a window of "
                         "%" PRId64,
                         now->scale, now->good, now->skipped, now->in_a_row, now->longest, s->least, s->most,
                         s->window);
}

tensor_status fl_loss_scale_put(nn_graph *g, const nn_loss_scale *now) {
    if (g->scaling.kind != FL_SCALE_DYNAMIC)
        return TENSOR_OK;
    g->scaling.now = *now;
    return load_numbers(g, now->scale);
}
