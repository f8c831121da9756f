/* nn_loss_scale.c - loss scaling (Micikevicius et al. 2018): its settings, the present scale, and which steps make no
 * update. docs/training.md. */
#include "nn/step/nn_step.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/base/text.h"
#include "nn/shards/nn_shards.h"
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
    s->initial = initial;
    return TENSOR_OK;
}

static tensor_status parse(struct fl_loss_scale *s, const char *text) {
    char *rest;
    *s = (struct fl_loss_scale){.initial = 1};
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
    s->initial = scale;
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
    const float limit = fl_scaled_limit(g->optimiser.clip_value, scale);
    TRY(tensor_load_f64(s->scale, &scale, 1));
    return s->limit ? tensor_load_f32(s->limit, &limit, 1) : TENSOR_OK;
}

tensor_status fl_loss_scale_numbers(nn_graph *g) {
    struct fl_loss_scale *s = &g->scaling;
    if (s->kind == FL_SCALE_NONE)
        return TENSOR_OK;
    const bool dynamic = s->kind == FL_SCALE_DYNAMIC;
    s->scale = tensor_new_in(g->device, FMT_F64, TENSOR_SHAPE(1));
    if (dynamic)
        s->state = tensor_new_in(g->device, FMT_F64, TENSOR_SHAPE(FL_SCALE_NUMBERS));
    if (g->optimiser.clip_value > 0)
        s->limit = tensor_new_in(g->device, FMT_F32, TENSOR_SHAPE(1));
    if (!s->scale || (g->optimiser.clip_value > 0 && !s->limit) || (dynamic && !s->state))
        return tensor_error_status();
    return dynamic ? fl_loss_scale_put(g, &(nn_loss_scale){.scale = s->initial}) : load_numbers(g, s->initial);
}

void fl_loss_scale_clear(nn_graph *g) {
    struct fl_loss_scale *s = &g->scaling;
    tensor_free(s->scale);
    tensor_free(s->limit);
    tensor_free(s->state);
    fl_look_list_clear(g->device, &s->writes);
    fl_look_list_clear(g->device, &s->through);
}

void fl_loss_scale_borrow(nn_graph *to, const nn_graph *from) {
    to->scaling.borrowed = from ? from->scaling.scale : NULL;
}

const tensor *fl_loss_scale_of(const nn_graph *g) {
    if (g->share) /* which has the scale as a factor */
        return g->share;
    return g->scaling.borrowed ? g->scaling.borrowed : g->scaling.scale;
}

/* --- what is looked at -------------------------------------------------------------------------------------------- */

struct looks {
    struct fl_look_at *at;
    int count, capacity;
};

static tensor_status look_at(struct looks *l, const tensor *t, int64_t marks) {
    int i = 0;
    while (i < l->count && l->at[i].t != t)
        i++;
    if (i == l->count) {
        TRY(fl_grow((void **)&l->at, l->count, &l->capacity, sizeof *l->at));
        l->at[l->count++] = (struct fl_look_at){t, 0};
    }
    l->at[i].marks |= marks;
    return TENSOR_OK;
}

/* The gradient of an activation: with a shared exponent an overflow ends there, as the largest number or 0, and need
 * not reach the gradient of a parameter; in float formats an Inf does. index -1: there is none. */
static tensor_status look_at_value(struct looks *l, const nn_graph *g, int shard, int index) {
    return index < 0 || !tensor_format_is_shared(g->values[index].type.format)
               ? TENSOR_OK
               : look_at(l, fl_shard_value(g, shard, g->values[index].base), FL_LOOK_OVERFLOWS | FL_LOOK_SHARED);
}

/* Every gradient that a node reads or writes in a step. */
static tensor_status look_at_values(struct looks *l, const nn_graph *g, int shard, const struct fl_node *node) {
    for (int k = 0; k < node->outputs; k++) {
        TRY(look_at_value(l, g, shard, node->output[k].dy));
        TRY(look_at_value(l, g, shard, node->output[k].operand));
    }
    for (int k = 0; k < node->inputs; k++) {
        TRY(look_at_value(l, g, shard, node->input[k].dx));
        TRY(look_at_value(l, g, shard, node->input[k].sum));
    }
    return TENSOR_OK;
}

static tensor_status look_at_activations(struct looks *l, const nn_graph *g) {
    for (int s = 0; s < g->shards; s++)
        for (int i = 0; i < g->count; i++)
            if (g->nodes[i].learns)
                TRY(look_at_values(l, g, s, &g->nodes[i]));
    return TENSOR_OK;
}

static tensor_status look_at_gradient(struct looks *l, const tensor *gradient) {
    const bool shared = gradient && tensor_format_is_shared(tensor_format_of(gradient));
    return gradient ? look_at(l, gradient, FL_LOOK_OVERFLOWS | (shared ? FL_LOOK_SHARED : 0)) : TENSOR_OK;
}

/* A gradient as written, as stored and as read by the update: each format may have a smaller range. */
static tensor_status look_at_parameters(struct looks *l, const nn_graph *g) {
    for (int i = 0; i < g->count; i++)
        for (int k = 0; k < g->nodes[i].parameters; k++) {
            const struct fl_parameter *p = &g->nodes[i].parameter[k];
            TRY(look_at_gradient(l, p->g));
            TRY(look_at_gradient(l, p->g_kept));
            TRY(look_at_gradient(l, p->g_taken));
        }
    for (int s = 0; g->of && s < g->shards; s++)
        for (int i = 0; i < fl_shard_gradients(g); i++)
            TRY(look_at_gradient(l, fl_shard_gradient(g, s, i)));
    return TENSOR_OK;
}

/* What follows goes through all writes in the order in which the first that is not finite is searched: those of the
 * update before, then those of the step. */
static int next_write(const nn_graph *g, int write) {
    const struct fl_write *list = g->writes.list;
    const bool before = write < 0 || list[write].part == FL_PART_UPDATE;
    for (int i = write + 1; before && i < g->writes.count; i++)
        if (list[i].part == FL_PART_UPDATE)
            return i;
    write = before ? -1 : write;
    for (int i = write + 1; i < g->writes.count; i++)
        if (list[i].part != FL_PART_UPDATE)
            return i;
    return -1;
}

int fl_loss_scale_write(const nn_graph *g, const struct fl_scale_state *s) {
    int write = -1;
    for (double i = 0; i <= s->first; i++)
        write = next_write(g, write);
    return write;
}

/* On the host the search needs no list. */
static tensor_status look_at_writes(struct looks *l, const nn_graph *g) {
    const bool host = g->device == tensor_device_at(0);
    for (int i = next_write(g, -1); i >= 0 && !host; i = next_write(g, i))
        TRY(look_at(l, g->infos[g->writes.list[i].info].t, FL_LOOK_FINDS));
    TRY(look_at_parameters(l, g));
    return look_at_activations(l, g);
}

static tensor_status make_list(const nn_graph *g, struct fl_look_list *list,
                               tensor_status (*which)(struct looks *l, const nn_graph *g)) {
    struct looks looks = {NULL, 0, 0};
    if (list->slots)
        return TENSOR_OK;
    tensor_status status = which(&looks, g);
    if (!status)
        status = fl_look_list_make(g->device, list, looks.at, looks.count);
    fl_free(looks.at);
    return status;
}

/* --- a step ------------------------------------------------------------------------------------------------------- */

static bool is_dynamic(const nn_graph *g) {
    return g->scaling.kind == FL_SCALE_DYNAMIC && g->compiled; /* not in a dry run */
}

tensor_status fl_loss_scale_look_through(const nn_graph *g, nn_graph *next) {
    if (!is_dynamic(g) || !next)
        return TENSOR_OK;
    TRY(make_list(next, &next->scaling.through, look_at_activations));
    return fl_skip_look(g->scaling.state, &next->scaling.through, false);
}

tensor_status fl_loss_scale_judge(nn_graph *g, bool *skip) {
    struct fl_loss_scale *s = &g->scaling;
    struct fl_scale_state state;
    *skip = false;
    if (!is_dynamic(g))
        return TENSOR_OK;
    TRY(make_list(g, &s->writes, look_at_writes));
    TRY(fl_skip_look(s->state, &s->writes, true));
    if (g->device != tensor_device_at(0) && (!g->watch || g->update_there))
        return TENSOR_OK;
    TRY(fl_loss_scale_state(g, &state));
    *skip = state.overflows > 0;
    return TENSOR_OK;
}

tensor_status fl_loss_scale_step(nn_graph *g) {
    const struct fl_loss_scale *s = &g->scaling;
    return is_dynamic(g) ? fl_skip_end(s->state, s->scale, s->limit,
                                       &(struct fl_scale_settings){.factor = s->factor,
                                                                   .least = s->least,
                                                                   .most = s->most,
                                                                   .window = (double)s->window,
                                                                   .clip = g->optimiser.clip_value})
                         : TENSOR_OK;
}

tensor_status fl_loss_scale_state(const nn_graph *g, struct fl_scale_state *state) {
    const struct fl_loss_scale *s = &g->scaling;
    double numbers[FL_SCALE_NUMBERS];
    *state = (struct fl_scale_state){.scale = s->initial, .used = s->initial, .first = -1};
    if (s->kind != FL_SCALE_DYNAMIC)
        return TENSOR_OK;
    TRY(fl_taken(g, tensor_store_f64(s->state, numbers, FL_SCALE_NUMBERS)));
    memcpy(state, numbers, sizeof *state);
    return TENSOR_OK;
}

tensor_status fl_loss_scale_now(const nn_graph *g, nn_loss_scale *now) {
    struct fl_scale_state s;
    TRY(fl_loss_scale_state(g, &s));
    *now = (nn_loss_scale){.scale = s.scale,
                           .good = (int64_t)s.good,
                           .skipped = (int64_t)s.skipped,
                           .in_a_row = (int64_t)s.in_a_row,
                           .longest = (int64_t)s.longest};
    return TENSOR_OK;
}

tensor_status nn_loss_scale_of(nn_loss_scale *now, const nn_graph *g) {
    TRY(fl_check_ready(g));
    if (!now)
        return fl_fail(TENSOR_E_ARGUMENT, "loss scale: now is NULL");
    return fl_loss_scale_now(g, now);
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
    const struct fl_scale_state state = {.scale = now->scale,
                                         .good = (double)now->good,
                                         .skipped = (double)now->skipped,
                                         .in_a_row = (double)now->in_a_row,
                                         .longest = (double)now->longest,
                                         .used = now->scale,
                                         .first = -1};
    double numbers[FL_SCALE_NUMBERS];
    memcpy(numbers, &state, sizeof numbers);
    TRY(tensor_load_f64(g->scaling.state, numbers, FL_SCALE_NUMBERS));
    return load_numbers(g, now->scale);
}
