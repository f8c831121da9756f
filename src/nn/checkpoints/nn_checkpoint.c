/* nn_checkpoint.c - the state of a network as a safetensors file, and back; docs/checkpoints.md lists its contents and
 * their names. The state passes through the bytes of nn_state.c, so that both are the same. */
#include "nn/checkpoints/nn_checkpoint.h"
#include "nn/checkpoints/nn_state.h"
#include "nn/compile/nn_compile.h"
#include "nn/policies/nn_policy.h"
#include "group/group.h"
#include "nn/step/nn_ranks.h"
#include "nn/shards/nn_shards.h"
#include "nn/step/nn_step.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/values/tensor_state.h"
#include "core/base/text.h"
#include "flexlab/version.h"
#include <float.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The most bytes of a step of a network from a file, unless a program sets another limit. */
#define MOST_OF_STEPS (INT64_C(4) << 30)

static const char layout_key[] = FL_CHECKPOINT_KEY, layout[] = "1";

/* --- the tensors of the state, with their names ------------------------------------------------------------------- */

struct entry {
    char *name;
    tensor *t;
    bool whole;    /* its state has elements */
    bool elements; /* the file has them too */
    size_t at;     /* offset of its state in the bytes of all tensors */
    struct fl_state_sizes size;
};

/* Numbers of one slot, as the file has them. */
struct numbers {
    int64_t whole[FL_SLOT_WHOLE];
    double real[FL_SLOT_REAL];
};

struct entries {
    const nn_graph *g;
    struct entry *list;
    struct numbers *numbers;
    int count, capacity;
    char *states;
    size_t bytes;
};

/* The name of a tensor of traces, of a node's state, of an activation in evaluation or of the optimiser's numbers. */
static char *name_of(const nn_graph *g, const tensor *t, int serial, bool *is_gradient) {
    for (int i = 0; i < g->info_count; i++)
        if (g->infos[i].t == t) {
            *is_gradient = !strcmp(g->infos[i].role, "weight gradient");
            return fl_format_name("%s", g->infos[i].name);
        }
    for (int i = 0; i < g->count; i++)
        for (int k = 0; k < g->nodes[i].states; k++)
            if (g->nodes[i].state[k].t == t)
                return fl_format_name("%s.%s", g->nodes[i].owner, g->nodes[i].state[k].suffix);
    for (int i = 0; i < g->value_count; i++)
        if (g->values[i].evaluate == t)
            return fl_format_name("%s.evaluation", g->values[i].name);
    return t == g->optimiser.numbers ? fl_format_name("optimiser.step") : fl_format_name("state.%d", serial);
}

static tensor_status add_entry(tensor *t, bool elements, void *context) {
    struct entries *e = context;
    TRY(fl_grow((void **)&e->list, e->count, &e->capacity, sizeof *e->list));
    bool is_gradient = false;
    struct entry entry = {.t = t, .whole = elements, .at = e->bytes, .size = fl_state_sizes(t)};
    entry.name = name_of(e->g, t, e->count, &is_gradient);
    if (!entry.name)
        return fl_fail(TENSOR_E_MEMORY, "checkpoint: no memory for the names of tensors");
    entry.elements = elements && !is_gradient; /* those of a gradient last only until the next step */
    e->bytes += fl_state_bytes(t, elements);
    e->list[e->count++] = entry;
    return TENSOR_OK;
}

static tensor_status begin(struct entries *e, const nn_graph *g) {
    *e = (struct entries){.g = g};
    TRY(fl_visit_state(g, add_entry, e));
    e->states = fl_alloc_zero(e->bytes);
    e->numbers = fl_alloc_zero((size_t)e->count * sizeof *e->numbers);
    return e->states && e->numbers ? TENSOR_OK
                                   : fl_fail(TENSOR_E_MEMORY, "checkpoint: no memory for %zu bytes", e->bytes);
}

static void end(struct entries *e) {
    for (int i = 0; i < e->count; i++)
        fl_free(e->list[i].name);
    fl_free(e->list);
    fl_free(e->numbers);
    fl_free(e->states);
}

/* The type that the elements have in a file. */
static enum fl_stored_type type_of(tensor_format format) {
    const size_t bytes = tensor_format_bytes(format);
    switch (format) {
    case FMT_FP32:
    case FMT_F32:
        return FL_STORED_F32;
    case FMT_F64:
        return FL_STORED_F64;
    case FMT_FP16:
        return FL_STORED_F16;
    case FMT_BF16:
        return FL_STORED_BF16;
    case FMT_I32:
        return FL_STORED_I32;
    default:
        if (tensor_format_has_mantissas(format))
            return FL_STORED_I16;
        return bytes == 1 ? FL_STORED_U8 : bytes == 2 ? FL_STORED_U16 : FL_STORED_U32; /* an added format's own words */
    }
}

static enum fl_stored_type wide_type_of(const tensor *t) {
    return tensor_format_has_mantissas(tensor_format_of(t)) ? FL_STORED_I32 : FL_STORED_F32;
}

/* NAME and a suffix; false if the text is too long, which it never is for names that a graph accepts. */
enum { NAME_ROOM = 2 * FL_NAME_LIMIT + 100 };

static const char *suffixed(char text[NAME_ROOM], const char *name, const char *suffix) {
    snprintf(text, NAME_ROOM, "%s%s", name, suffix);
    return text;
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

static tensor_status note(struct fl_safetensors_out *o, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static tensor_status note(struct fl_safetensors_out *o, const char *key, const char *format, ...) {
    char value[200];
    va_list arguments;
    va_start(arguments, format);
    fl_format(value, sizeof value, format, arguments);
    va_end(arguments);
    return fl_safetensors_add_note(o, key, value);
}

/* Numbers of the optimiser, and where nn_config has them. */
static const struct {
    const char *key;
    size_t config;
} reals[] = {
    {"network.momentum", offsetof(nn_config, momentum)},  {"network.weight_decay", offsetof(nn_config, weight_decay)},
    {"network.beta1", offsetof(nn_config, beta1)},        {"network.beta2", offsetof(nn_config, beta2)},
    {"network.epsilon", offsetof(nn_config, epsilon)},    {"network.clip_value", offsetof(nn_config, clip_value)},
    {"network.clip_norm", offsetof(nn_config, clip_norm)}};
enum { REALS = sizeof reals / sizeof reals[0] };

static float real_of(const struct fl_optimiser *o, int i) {
    return ((const float[REALS]){o->how.momentum, o->how.weight_decay, o->how.beta1, o->how.beta2, o->how.epsilon,
                                 o->clip_value, o->how.clip_norm})[i];
}

/* Notes that a file has only for settings other than the default, as files of older versions. */
enum objective_key { LOSS, SMOOTHING, DELTA, IGNORED, INPUT_GRADIENT, POLICY, SCALE, OBJECTIVE_KEYS };
static const char *const objective_keys[] = {
    [LOSS] = "network.loss",         [POLICY] = "network.policy",         [SMOOTHING] = "network.label_smoothing",
    [DELTA] = "network.huber_delta", [IGNORED] = "network.ignored_label", [INPUT_GRADIENT] = "network.input_gradient",
    [SCALE] = "network.loss_scale"};

/* Writes the notes of the objective if it is not the default: files of older versions have none. */
static tensor_status put_objective(struct fl_safetensors_out *o, const struct fl_objective *how) {
    if (how->kind != FL_LOSS_CROSS_ENTROPY)
        TRY(note(o, objective_keys[LOSS], "%s", nn_loss_name_at((int)how->kind)));
    if (how->smoothing > 0)
        TRY(note(o, objective_keys[SMOOTHING], "%.9g", (double)how->smoothing));
    if (how->kind == FL_LOSS_HUBER)
        TRY(note(o, objective_keys[DELTA], "%.9g", (double)how->delta));
    if (how->ignores)
        TRY(note(o, objective_keys[IGNORED], "%d", how->ignored));
    return how->input_gradient ? note(o, objective_keys[INPUT_GRADIENT], "1") : TENSOR_OK;
}

static tensor_status put_scaling(struct fl_safetensors_out *o, const nn_graph *g) {
    char text[FL_SCALE_TEXT];
    fl_loss_scale_text(g, text);
    return g->scaling.kind == FL_SCALE_NONE ? TENSOR_OK : note(o, objective_keys[SCALE], "%s", text);
}

/* The state of a dynamic scale: the numbers of nn_loss_scale. */
static const char scaling_key[] = "network.loss_scale.state";

static tensor_status put_scaling_state(struct fl_safetensors_out *o, const nn_graph *g) {
    nn_loss_scale now;
    TRY(fl_loss_scale_now(g, &now));
    return g->scaling.kind != FL_SCALE_DYNAMIC
               ? TENSOR_OK
               : note(o, scaling_key, "%.17g %lld %lld %lld %lld", now.scale, (long long)now.good,
                      (long long)now.skipped, (long long)now.in_a_row, (long long)now.longest);
}

static const char shards_key[] = "network.shards", batchnorm_key[] = "network.batchnorm";

/* The properties that a network must share with the file that it is loaded from, as text. */
static tensor_status put_settings(struct fl_safetensors_out *o, const nn_graph *g) {
    TRY(note(o, "network.variant", "%s", g->variant->name));
    TRY(note(o, "network.format", "%s", tensor_format_name(g->variant->format)));
    const bool named = g->predictor && (g->asked || !g->policy); /* else each format of a policy has its own */
    TRY(note(o, "network.predictor", "%s", named ? g->predictor : "none"));
    if (g->policy) /* longer than a note has room for */
        TRY(fl_safetensors_add_note(o, objective_keys[POLICY], nn_graph_policy(g)));
    TRY(note(o, "network.master", "%s", g->no_master && (g->policy || g->variant->wide) ? "none" : "default"));
    TRY(note(o, "network.batch", "%d", fl_whole_batch(g)));
    if (g->shards > 1)
        TRY(note(o, shards_key, "%d", g->shards));
    if (g->together)
        TRY(note(o, batchnorm_key, "global"));
    TRY(note(o, "network.seed", "%llu", (unsigned long long)g->seed));
    const struct fl_optimiser *p = &g->optimiser;
    TRY(note(o, "network.optimiser", "%s", nn_optimiser_at((int)p->how.kind)));
    TRY(note(o, "network.decay", "%s", p->decays_all ? "all" : "weights"));
    TRY(note(o, "network.nesterov", "%d", p->nesterov));
    TRY(note(o, "network.narrow_state", "%d", p->narrow));
    for (int i = 0; i < REALS; i++)
        TRY(note(o, reals[i].key, "%.9g", (double)real_of(p, i)));
    TRY(put_objective(o, &g->objective));
    return put_scaling(o, g);
}

static tensor_status put_tensor(struct fl_safetensors_out *o, const char *name, enum fl_stored_type type,
                                const tensor *t, const char *bytes) {
    int64_t dim[TENSOR_MAX_DIMS];
    for (int d = 0; d < tensor_ndim(t); d++)
        dim[d] = tensor_dim(t, d);
    return fl_safetensors_add(o, name, type, tensor_ndim(t), dim, bytes);
}

/* What NAME.slot and NAME.history hold, and among the notes NAME.exponent of shared exponents and NAME.format of
 * codes. */
static tensor_status put_entry(struct fl_safetensors_out *o, struct entries *e, int i) {
    const struct entry *entry = &e->list[i];
    struct numbers *n = &e->numbers[i];
    const char *state = e->states + entry->at;
    const int64_t whole = FL_SLOT_WHOLE, real = FL_SLOT_REAL;
    char name[NAME_ROOM];
    fl_slot_to_numbers(state, n->whole, n->real);
    TRY(fl_safetensors_add(o, suffixed(name, entry->name, ".slot"), FL_STORED_I64, 1, &whole, n->whole));
    TRY(fl_safetensors_add(o, suffixed(name, entry->name, ".history"), FL_STORED_F64, 1, &real, n->real));
    if (!entry->elements)
        return TENSOR_OK;
    const char *elements = state + entry->size.slot, *wide = elements + entry->size.elements;
    const int exponent = (int)n->whole[0];
    const tensor_format format = tensor_format_of(entry->t);
    TRY(put_tensor(o, entry->name, type_of(format), entry->t, elements));
    if (fl_checkpoint_has_codes(type_of(format)))
        TRY(note(o, suffixed(name, entry->name, ".format"), "%s", tensor_format_name(format)));
    if (tensor_format_is_shared(format))
        TRY(note(o, suffixed(name, entry->name, ".exponent"), "%d", exponent));
    if (entry->size.wide)
        TRY(put_tensor(o, suffixed(name, entry->name, ".wide"), wide_type_of(entry->t), entry->t, wide));
    if (entry->size.wide && tensor_format_has_mantissas(format))
        TRY(note(o, suffixed(name, entry->name, ".wide.exponent"), "%d", exponent + 16));
    return TENSOR_OK;
}

static tensor_status get_state(tensor *t, bool elements, void *context) {
    char **at = context;
    TRY(fl_state_get(t, elements, *at));
    *at += fl_state_bytes(t, elements);
    return TENSOR_OK;
}

static tensor_status put_all(struct fl_safetensors_out *o, struct entries *e) {
    char *at = e->states;
    TRY(fl_visit_state(e->g, get_state, &at));
    TRY(note(o, layout_key, "%s", layout));
    TRY(note(o, "flexlab.version", "%s", FLEXLAB_VERSION_STRING));
    TRY(note(o, "network.steps", "%llu", (unsigned long long)e->g->steps));
    TRY(note(o, "network.layout", "%016llx", (unsigned long long)fl_graph_layout(e->g)));
    TRY(put_settings(o, e->g));
    TRY(put_scaling_state(o, e->g));
    for (int i = 0; i < e->count; i++)
        TRY(put_entry(o, e, i));
    return TENSOR_OK;
}

tensor_status fl_checkpoint_write(const nn_graph *g, const char *path, const nn_note *notes, int note_count,
                                  const struct fl_extra *extras, int extra_count) {
    char what[FL_GROUP_WHAT];
    snprintf(what, sizeof what, "the checkpoint after %llu steps, which rank 0 writes", (unsigned long long)g->steps);
    fl_group_fresh(g->group);
    TRY(fl_ranks_bring(g));
    if (nn_group_rank(g->group))
        return fl_group_await(g->group, what, TENSOR_OK);
    struct fl_safetensors_out o = {0};
    struct entries e;
    tensor_status status = begin(&e, g);
    if (!status)
        status = put_all(&o, &e);
    for (int i = 0; i < note_count && !status; i++)
        status = fl_safetensors_add_note(&o, notes[i].key, notes[i].value);
    for (int i = 0; i < extra_count && !status; i++)
        status = fl_safetensors_add(&o, extras[i].name, extras[i].type, 1, &extras[i].count, extras[i].values);
    if (!status)
        status = fl_safetensors_write(&o, path);
    fl_safetensors_end(&o);
    end(&e);
    return fl_group_all(g->group, what, status);
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

tensor_status fl_checkpoint_open(struct fl_safetensors *s, const char *path) {
    TRY(fl_safetensors_open(s, path));
    const char *recorded = fl_safetensors_note(s, layout_key);
    tensor_status status = TENSOR_OK;
    if (!recorded)
        status = fl_fail(TENSOR_E_DATA, "checkpoint: %s: not a flexlab checkpoint: its metadata have no '%s'", path,
                         layout_key);
    else if (strcmp(recorded, layout) != 0)
        status = fl_fail(TENSOR_E_DATA, "checkpoint: %s: '%s' is '%.40s', expected '%s'", path, layout_key, recorded,
                         layout);
    if (!status)
        status = fl_safetensors_verify(s);
    if (status)
        fl_safetensors_close(s);
    return status;
}

static tensor_status need_note(const struct fl_safetensors *s, const char *key, const char **value) {
    *value = fl_safetensors_note(s, key);
    return *value ? TENSOR_OK : fl_fail(TENSOR_E_DATA, "checkpoint: %s: its metadata have no '%.80s'", s->path, key);
}

tensor_status fl_checkpoint_whole(const struct fl_safetensors *s, const char *key, int64_t low, int64_t high,
                                  int64_t *value) {
    const char *text;
    char again[32];
    TRY(need_note(s, key, &text));
    *value = strtoll(text, NULL, 10);
    snprintf(again, sizeof again, "%lld", (long long)*value);
    if (strcmp(again, text) != 0 || *value < low || *value > high)
        return fl_fail(TENSOR_E_DATA, "checkpoint: %s: '%.80s' is '%.40s', expected a whole number from %lld to %lld",
                       s->path, key, text, (long long)low, (long long)high);
    return TENSOR_OK;
}

static bool has_note(const struct fl_safetensors_out *o, const char *key) {
    for (int i = 0; i < o->note_count; i++)
        if (!strcmp(o->notes[i].key, key))
            return true;
    return false;
}

/* A policy that the file names as a preset must have the same text as that of the network. */
static tensor_status check_preset(const struct fl_safetensors *s, const nn_graph *g, const char *name) {
    struct fl_policy *policy;
    TRY(fl_policy_new(&policy, name, NULL, NULL));
    const bool same = !strcmp(policy->text, nn_graph_policy(g));
    fl_policy_free(policy);
    return same ? TENSOR_OK
                : fl_fail(TENSOR_E_DATA, "checkpoint: %s: '%s' is '%.40s', that of the network is '%.100s'", s->path,
                          objective_keys[POLICY], name, nn_graph_policy(g));
}

/* A file of one shard does not say so. */
static tensor_status read_shards(const struct fl_safetensors *s, int64_t *shards) {
    *shards = 1;
    return fl_safetensors_note(s, shards_key) ? fl_checkpoint_whole(s, shards_key, 1, FL_MOST_SHARDS, shards)
                                              : TENSOR_OK;
}

static tensor_status check_shards(const struct fl_safetensors *s, const nn_graph *g) {
    int64_t shards;
    TRY(read_shards(s, &shards));
    return shards == g->shards
               ? TENSOR_OK
               : fl_fail(TENSOR_E_DATA,
                         "checkpoint: %s: its steps have %lld shards, those of the network %d, which computes others",
                         s->path, (long long)shards, g->shards);
}

/* A file whose shards normalise by themselves, or of one shard, does not say so. */
static tensor_status read_batchnorm(const struct fl_safetensors *s, bool *global) {
    const char *found = fl_safetensors_note(s, batchnorm_key);
    *global = found != NULL;
    return !found || !strcmp(found, "global")
               ? TENSOR_OK
               : fl_fail(TENSOR_E_DATA, "checkpoint: %s: '%s' is '%.40s', expected 'global' or none", s->path,
                         batchnorm_key, found);
}

static tensor_status check_batchnorm(const struct fl_safetensors *s, const nn_graph *g) {
    static const char *const names[] = {"shard", "global"};
    bool global;
    TRY(read_batchnorm(s, &global));
    return global == g->together
               ? TENSOR_OK
               : fl_fail(TENSOR_E_DATA, "checkpoint: %s: its batchnorm is '%s', that of the network '%s'", s->path,
                         names[global], names[g->together]);
}

/* Compares both ways: the network must have the settings of the file's loss, and no others. */
tensor_status fl_checkpoint_settings(const struct fl_safetensors *s, const nn_graph *g) {
    struct fl_safetensors_out own = {0};
    TRY(check_shards(s, g));
    TRY(check_batchnorm(s, g));
    tensor_status status = put_settings(&own, g);
    for (int i = 0; i < own.note_count && !status; i++) {
        const char *found;
        status = need_note(s, own.notes[i].key, &found);
        if (status || !strcmp(found, own.notes[i].value))
            continue;
        if (!strcmp(own.notes[i].key, objective_keys[POLICY]) && fl_preset_text(found))
            status = check_preset(s, g, found);
        else
            status = fl_fail(TENSOR_E_DATA, "checkpoint: %s: '%s' is '%.100s', that of the network is '%.100s'",
                             s->path, own.notes[i].key, found, own.notes[i].value);
    }
    for (int i = 0; i < OBJECTIVE_KEYS && !status; i++) {
        const char *found = fl_safetensors_note(s, objective_keys[i]);
        if (found && !has_note(&own, objective_keys[i]))
            status = fl_fail(TENSOR_E_DATA, "checkpoint: %s: '%s' is '%.40s', that of the network is the default",
                             s->path, objective_keys[i], found);
    }
    fl_safetensors_end(&own);
    return status;
}

/* Properties that no tensor shows, such as the stride of a convolution. They may differ between versions. */
static tensor_status check_layout(const struct fl_safetensors *s, const nn_graph *g) {
    const char *version, *found;
    char own[20];
    TRY(need_note(s, "flexlab.version", &version));
    TRY(need_note(s, "network.layout", &found));
    snprintf(own, sizeof own, "%016llx", (unsigned long long)fl_graph_layout(g));
    if (strcmp(version, FLEXLAB_VERSION_STRING) != 0 || !strcmp(found, own))
        return TENSOR_OK;
    return fl_fail(TENSOR_E_DATA,
                   "checkpoint: %s: it belongs to a network with other layers or settings ('network.layout' is "
                   "'%.40s', expected '%s')",
                   s->path, found, own);
}

/* A tensor of that name, type and shape. */
static tensor_status read_tensor(const struct fl_safetensors *s, const char *name, enum fl_stored_type type, int ndim,
                                 const int64_t *dim, void *to) {
    const struct fl_stored_tensor *t = fl_safetensors_find(s, name);
    char found[FL_SHAPE_TEXT], expected[FL_SHAPE_TEXT];
    fl_checkpoint_shape_text(expected, ndim, dim);
    if (!t)
        return fl_fail(TENSOR_E_DATA, "checkpoint: %s: tensor '%.150s' is missing, expected %s %s", s->path, name,
                       fl_stored_type_name(type), expected);
    if (t->type != type || t->ndim != ndim || (ndim && memcmp(t->dim, dim, (size_t)ndim * sizeof *dim) != 0))
        return fl_fail(TENSOR_E_DATA, "checkpoint: %s: tensor '%.150s' is %s %s, expected %s %s", s->path, name,
                       fl_stored_type_name(t->type), fl_checkpoint_shape_text(found, t->ndim, t->dim),
                       fl_stored_type_name(type), expected);
    return fl_safetensors_read(s, t, to);
}

static tensor_status read_elements(const struct fl_safetensors *s, const struct entry *entry, const char *name,
                                   enum fl_stored_type type, char *to) {
    int64_t dim[TENSOR_MAX_DIMS];
    for (int d = 0; d < tensor_ndim(entry->t); d++)
        dim[d] = tensor_dim(entry->t, d);
    return read_tensor(s, name, type, tensor_ndim(entry->t), dim, to);
}

/* The exponent that other programs read is the one that the slot has. */
static tensor_status check_exponent(const struct fl_safetensors *s, const char *key, int64_t expected) {
    int64_t found;
    TRY(fl_checkpoint_whole(s, key, INT16_MIN, INT16_MAX, &found));
    return found == expected ? TENSOR_OK
                             : fl_fail(TENSOR_E_DATA, "checkpoint: %s: '%.150s' is %lld, the slot has %lld", s->path,
                                       key, (long long)found, (long long)expected);
}

static tensor_status check_mantissas(const struct fl_safetensors *s, const struct entry *entry, const char *elements) {
    for (int64_t i = 0; i < tensor_count(entry->t); i++) {
        int16_t m;
        memcpy(&m, elements + 2 * i, sizeof m);
        if (m == INT16_MIN)
            return fl_fail(TENSOR_E_DATA,
                           "checkpoint: %s: element %lld of '%.150s' is -32768, expected -32767 to 32767", s->path,
                           (long long)i, entry->name);
    }
    return TENSOR_OK;
}

/* Fills the entry's part of the states; *used counts the tensors of the file that it read. */
static tensor_status read_entry(const struct fl_safetensors *s, struct entries *e, int i, int *used) {
    const struct entry *entry = &e->list[i];
    struct numbers *n = &e->numbers[i];
    char *state = e->states + entry->at, name[NAME_ROOM];
    const int64_t whole = FL_SLOT_WHOLE, real = FL_SLOT_REAL;
    const bool shared = tensor_format_is_shared(tensor_format_of(entry->t)),
               mantissas = tensor_format_has_mantissas(tensor_format_of(entry->t));
    TRY(read_tensor(s, suffixed(name, entry->name, ".slot"), FL_STORED_I64, 1, &whole, n->whole));
    TRY(read_tensor(s, suffixed(name, entry->name, ".history"), FL_STORED_F64, 1, &real, n->real));
    TRY(fl_slot_from_numbers(state, n->whole, n->real));
    *used += 2;
    if (entry->elements) {
        char *elements = state + entry->size.slot, *wide = elements + entry->size.elements;
        TRY(read_elements(s, entry, entry->name, type_of(tensor_format_of(entry->t)), elements));
        if (shared)
            TRY(check_exponent(s, suffixed(name, entry->name, ".exponent"), n->whole[0]));
        if (mantissas)
            TRY(check_mantissas(s, entry, elements));
        if (entry->size.wide)
            TRY(read_elements(s, entry, suffixed(name, entry->name, ".wide"), wide_type_of(entry->t), wide));
        if (entry->size.wide && mantissas)
            TRY(check_exponent(s, suffixed(name, entry->name, ".wide.exponent"), n->whole[0] + 16));
        *used += entry->size.wide ? 2 : 1;
    }
    TRY(fl_state_check(entry->t, entry->whole, state));
    return entry->elements ? fl_state_check_range(e->g, entry->t, state) : TENSOR_OK;
}

/* One after the other, with a blank between them. */
static tensor_status read_scaling(const struct fl_safetensors *s, const nn_graph *g, nn_loss_scale *now) {
    const char *text;
    char *rest, message[300];
    TRY(fl_loss_scale_now(g, now));
    if (g->scaling.kind != FL_SCALE_DYNAMIC)
        return TENSOR_OK;
    TRY(need_note(s, scaling_key, &text));
    now->scale = fl_to_real(text, &rest);
    int64_t *const whole[] = {&now->good, &now->skipped, &now->in_a_row, &now->longest};
    bool good = rest != text;
    for (size_t i = 0; i < sizeof whole / sizeof *whole && good; i++) {
        good = rest[0] == ' ' && rest[1] >= '0' && rest[1] <= '9';
        *whole[i] = good ? strtoll(rest + 1, &rest, 10) : 0; /* at its end where there is no such number */
        good = good && *whole[i] <= INT64_C(1) << 62;
    }
    if (!good || *rest)
        return fl_fail(
            TENSOR_E_DATA,
            "checkpoint: %s: '%s' is '%.80s', expected five numbers, the last four of them whole and up to 2^62",
            s->path, scaling_key, text);
    const tensor_status status = fl_loss_scale_check_state(g, now);
    snprintf(message, sizeof message, "%s", tensor_error());
    return status ? fl_fail(status, "checkpoint: %s: '%s': %s", s->path, scaling_key, message + strlen("state: "))
                  : TENSOR_OK;
}

/* Prefixes a message that names neither file nor tensor with both. */
static tensor_status entry_failed(const struct fl_safetensors *s, const struct entry *entry, tensor_status status) {
    char message[300];
    snprintf(message, sizeof message, "%s", tensor_error());
    if (!status || strncmp(message, "state: ", 7) != 0)
        return status;
    return fl_fail(status, "checkpoint: %s: tensor '%.150s': %s", s->path, entry->name, message + 7);
}

/* A file with more tensors than the network has is that of another network. */
static tensor_status check_rest(const struct fl_safetensors *s, const struct entries *e, int used) {
    char name[NAME_ROOM];
    int rest = s->count - used;
    for (int i = 0; i < s->count; i++)
        rest -= !strncmp(s->tensors[i].name, FL_TRAINING, strlen(FL_TRAINING));
    for (int i = 0; i < s->count && rest > 0; i++) {
        bool known = !strncmp(s->tensors[i].name, FL_TRAINING, strlen(FL_TRAINING));
        for (int k = 0; k < e->count && !known; k++) {
            static const char *const suffixes[] = {"", ".slot", ".history", ".wide"};
            for (int j = 0; j < 4 && !known; j++)
                known = !strcmp(s->tensors[i].name, suffixed(name, e->list[k].name, suffixes[j]));
        }
        if (!known)
            return fl_fail(TENSOR_E_DATA, "checkpoint: %s: tensor '%.150s' does not belong to the network", s->path,
                           s->tensors[i].name);
    }
    return TENSOR_OK;
}

tensor_status fl_checkpoint_load(nn_graph *g, const struct fl_safetensors *s) {
    struct entries e;
    int used = 0;
    int64_t steps;
    nn_loss_scale scaling;
    TRY(fl_checkpoint_settings(s, g));
    TRY(read_scaling(s, g, &scaling));
    TRY(fl_checkpoint_whole(s, "network.steps", 0, INT64_C(1) << 62, &steps));
    tensor_status status = begin(&e, g);
    for (int i = 0; i < e.count && !status; i++)
        status = entry_failed(s, &e.list[i], read_entry(s, &e, i, &used));
    if (!status)
        status = check_rest(s, &e, used);
    if (!status)
        status = check_layout(s, g);
    if (!status)
        status = fl_put_state(g, e.states, (uint64_t)steps, &scaling);
    end(&e);
    return status;
}

tensor_status fl_checkpoint_extra(const struct fl_safetensors *s, const char *name, enum fl_stored_type type,
                                  int64_t expected, void **values, int64_t *count) {
    const struct fl_stored_tensor *t = fl_safetensors_find(s, name);
    char found[FL_SHAPE_TEXT];
    *values = NULL;
    *count = 0;
    if (!t)
        return fl_fail(TENSOR_E_DATA, "checkpoint: %s: '%.80s' is missing", s->path, name);
    if (t->type != type || t->ndim != 1 || (expected >= 0 && t->dim[0] != expected))
        return fl_fail(TENSOR_E_DATA, "checkpoint: %s: '%.80s' is %s %s, expected %s [%s%lld]", s->path, name,
                       fl_stored_type_name(t->type), fl_checkpoint_shape_text(found, t->ndim, t->dim),
                       fl_stored_type_name(type), expected < 0 ? "any number, not " : "", (long long)expected);
    *values = fl_alloc((size_t)(t->end - t->begin) + 1);
    if (!*values)
        return fl_fail(TENSOR_E_MEMORY, "checkpoint: no memory for %lld bytes", (long long)(t->end - t->begin));
    *count = t->dim[0];
    ((char *)*values)[t->end - t->begin] = 0;
    const tensor_status status = fl_safetensors_read(s, t, *values);
    if (status) {
        fl_free(*values);
        *values = NULL;
    }
    return status;
}

/* --- public ------------------------------------------------------------------------------------------------------- */

static tensor_status check_call(const nn_graph *g, const char *path) {
    if (!g || !path)
        return fl_fail(TENSOR_E_ARGUMENT, "checkpoint: %s is NULL", g ? "the path" : "the graph");
    return g->compiled ? TENSOR_OK : fl_fail(TENSOR_E_ARGUMENT, "checkpoint: the graph is not compiled");
}

tensor_status nn_checkpoint_save(const nn_graph *g, const char *path, const nn_note *notes, int count) {
    TRY(check_call(g, path));
    if (count < 0 || (count && !notes))
        return fl_fail(TENSOR_E_ARGUMENT, "checkpoint: %d notes%s", count, notes ? "" : " at NULL");
    for (int i = 0; i < count; i++)
        if (!notes[i].key || !notes[i].value)
            return fl_fail(TENSOR_E_ARGUMENT, "checkpoint: %s of note %d is NULL", notes[i].key ? "value" : "key", i);
    return fl_checkpoint_write(g, path, notes, count, NULL, 0);
}

tensor_status nn_checkpoint_load(nn_graph *g, const char *path) {
    struct fl_safetensors s;
    TRY(check_call(g, path));
    TRY(fl_checkpoint_open(&s, path));
    const tensor_status status = fl_checkpoint_load(g, &s);
    fl_safetensors_close(&s);
    return status;
}

tensor_status nn_checkpoint_note(char *value, size_t size, const char *path, const char *key) {
    struct fl_safetensors s;
    const char *found;
    if (!path || !key || !value)
        return fl_fail(TENSOR_E_ARGUMENT, "checkpoint: %s is NULL",
                       !path  ? "the path"
                       : !key ? "the key"
                              : "the value");
    TRY(fl_safetensors_open(&s, path));
    tensor_status status = need_note(&s, key, &found);
    if (!status && strlen(found) >= size)
        status = fl_fail(TENSOR_E_ARGUMENT, "checkpoint: %s: '%.80s' has %zu bytes, there is room for %zu", path, key,
                         strlen(found), size ? size - 1 : 0);
    if (!status)
        strcpy(value, found);
    fl_safetensors_close(&s);
    return status;
}

static tensor_status read_real(const struct fl_safetensors *s, const char *key, float *value) {
    const char *text;
    char *rest;
    TRY(need_note(s, key, &text));
    const double number = fl_to_real(text, &rest);
    *value = (float)number;
    return *text && !*rest && number >= 0 && number <= FLT_MAX
               ? TENSOR_OK
               : fl_fail(TENSOR_E_DATA, "checkpoint: %s: '%s' is '%.40s', expected a number from 0", s->path, key,
                         text);
}

/* *second: of the two words, it is that one. */
static tensor_status read_choice(const struct fl_safetensors *s, const char *key, const char *one, const char *other,
                                 bool *second) {
    const char *text;
    TRY(need_note(s, key, &text));
    *second = !strcmp(text, other);
    return *second || !strcmp(text, one) ? TENSOR_OK
                                         : fl_fail(TENSOR_E_DATA, "checkpoint: %s: '%s' is '%.40s', expected %s or %s",
                                                   s->path, key, text, one, other);
}

static tensor_status read_seed(const struct fl_safetensors *s, uint64_t *seed) {
    const char *text;
    char again[32];
    TRY(need_note(s, "network.seed", &text));
    *seed = strtoull(text, NULL, 10);
    snprintf(again, sizeof again, "%llu", (unsigned long long)*seed);
    return strcmp(again, text)
               ? fl_fail(TENSOR_E_DATA, "checkpoint: %s: 'network.seed' is '%.40s', expected a whole number", s->path,
                         text)
               : TENSOR_OK;
}

static tensor_status read_objective(const struct fl_safetensors *s, nn_config *config) {
    int64_t ignored = 0;
    config->loss = fl_safetensors_note(s, objective_keys[LOSS]);
    config->policy = fl_safetensors_note(s, objective_keys[POLICY]);
    if (config->policy && !fl_policy_is_text(config->policy)) /* nn_graph_new would open a file of that name */
        return fl_fail(
            TENSOR_E_DATA,
            "checkpoint: %s: '%s' is '%.40s', expected its rules, with ';' after each, or the name of a preset",
            s->path, objective_keys[POLICY], config->policy);
    if (fl_safetensors_note(s, objective_keys[SMOOTHING]))
        TRY(read_real(s, objective_keys[SMOOTHING], &config->label_smoothing));
    if (fl_safetensors_note(s, objective_keys[DELTA]))
        TRY(read_real(s, objective_keys[DELTA], &config->huber_delta));
    config->ignores = fl_safetensors_note(s, objective_keys[IGNORED]) != NULL;
    if (config->ignores)
        TRY(fl_checkpoint_whole(s, objective_keys[IGNORED], INT32_MIN, INT32_MAX, &ignored));
    config->ignored_label = (int32_t)ignored;
    if (fl_safetensors_note(s, objective_keys[INPUT_GRADIENT]))
        TRY(read_choice(s, objective_keys[INPUT_GRADIENT], "0", "1", &config->input_gradient));
    config->loss_scale = fl_safetensors_note(s, objective_keys[SCALE]);
    if (!config->loss_scale) /* also if the policy sets one, which the caller removed */
        config->loss_scale = "none";
    return TENSOR_OK;
}

/* Strings of the config point into s. */
static tensor_status read_config(const struct fl_safetensors *s, nn_config *config) {
    int64_t batch;
    TRY(need_note(s, "network.variant", &config->variant));
    TRY(need_note(s, "network.predictor", &config->predictor));
    TRY(read_choice(s, "network.master", "default", "none", &config->no_master));
    TRY(fl_checkpoint_whole(s, "network.batch", 1, INT32_MAX, &batch));
    TRY(read_seed(s, &config->seed));
    for (int i = 0; i < REALS; i++)
        TRY(read_real(s, reals[i].key, (float *)(void *)((char *)config + reals[i].config)));
    TRY(need_note(s, "network.optimiser", &config->optimiser));
    TRY(need_note(s, "network.decay", &config->decay));
    TRY(read_choice(s, "network.nesterov", "0", "1", &config->nesterov));
    TRY(read_choice(s, "network.narrow_state", "0", "1", &config->narrow_state));
    if (!strcmp(config->predictor, "none"))
        config->predictor = NULL;
    config->batch = (int)batch;
    TRY(read_shards(s, &batch));
    config->shards = (int)batch;
    TRY(read_batchnorm(s, &config->batchnorm_global));
    return read_objective(s, config);
}

nn_graph *nn_checkpoint_graph(const char *path, const char *device) {
    struct fl_safetensors s;
    nn_config config = {.device = device};
    nn_graph *g = NULL;
    if (!path) {
        fl_fail(TENSOR_E_ARGUMENT, "checkpoint: the path is NULL");
        return NULL;
    }
    if (fl_checkpoint_open(&s, path))
        return NULL;
    if (!read_config(&s, &config))
        g = nn_graph_new(&config);
    if (g && fl_expect_network(g, &s)) {
        nn_graph_free(g);
        g = NULL;
    }
    fl_safetensors_close(&s);
    if (g)
        g->most_of_steps = MOST_OF_STEPS;
    return g;
}
