/* nn_nonfinite.c - the first NaN or Inf of a step. Each tensor's slot has the counts of its last write, and the dry run
 * of the step gives the order of writes. So the slots are searched in that order after the step, at no cost while it
 * runs. */
#include "nn/step/nn_step.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/base/text.h"
#include "nn/shards/nn_shards.h"
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* --- the order of writes ------------------------------------------------------------------------------------------ */

void fl_writes_clear(struct fl_writes *w) {
    for (int i = 0; i < w->text_count; i++)
        fl_free(w->texts[i]);
    fl_free(w->texts);
    fl_free(w->list);
}

static bool is_listed(const struct fl_writes *w, int info) {
    for (int i = 0; i < w->count; i++)
        if (w->list[i].info == info)
            return true;
    return false;
}

static tensor_status insert(nn_graph *g, int at, int info, enum fl_part part) {
    struct fl_writes *w = &g->writes;
    TRY(fl_grow((void **)&w->list, w->count, &w->capacity, sizeof *w->list));
    memmove(w->list + at + 1, w->list + at, (size_t)(w->count - at) * sizeof *w->list);
    w->list[at] = (struct fl_write){fl_slot_then(NULL, g->infos[info].t), info, part};
    w->count++;
    return TENSOR_OK;
}

void fl_list_write(void *graph, const struct fl_slot *slot) {
    nn_graph *g = graph;
    struct fl_writes *w = &g->writes;
    for (int i = 0; i < g->info_count && !w->status; i++)
        if (fl_has_slot(g->infos[i].t, slot) && !is_listed(w, i))
            w->status = insert(g, w->count, i, w->part);
}

/* Images are loaded, not computed. */
tensor_status fl_list_input(nn_graph *g) {
    const struct fl_output *input = fl_output_of(g, 0);
    return input->tokens ? TENSOR_OK : insert(g, g->writes.count, g->values[input->y].info, FL_PART_INPUT);
}

static int find_value(const nn_graph *g, int info) {
    for (int s = 0; s < g->shards; s++)
        for (int i = 0; i < g->value_count; i++)
            if (fl_shard_info(g, s, i) == info && fl_is_stored(g, i))
                return i;
    return -1;
}

/* The caller gives the gradient of the output of a network without a loss. Other tensors that no operation wrote are
 * the last of their part. */
tensor_status fl_list_others(nn_graph *g) {
    struct fl_writes *w = &g->writes;
    for (int i = 0; i < g->info_count && !w->status; i++) {
        if (is_listed(w, i))
            continue;
        const int value = find_value(g, i);
        const bool given = value >= 0 && value == fl_output_of(g, g->logits)->dy;
        const enum fl_part part = value < 0                           ? FL_PART_UPDATE
                                  : g->values[value].first < g->count ? FL_PART_FORWARD
                                                                      : FL_PART_BACKWARD;
        int at = 0;
        while (at < w->count && (given ? w->list[at].part < part : w->list[at].part <= part))
            at++;
        w->status = insert(g, at, i, part);
    }
    return w->status;
}

/* --- which parts were written ------------------------------------------------------------------------------------- */

void fl_writes_begin(nn_graph *g) {
    g->writes.done = 0;
    g->writes.step = g->steps + 1;
}

void fl_writes_done(nn_graph *g, enum fl_part part) {
    g->writes.done |= 1u << part | (part == FL_PART_FORWARD ? 1u << FL_PART_INPUT : 0);
}

void fl_writes_open(nn_graph *g) {
    g->writes.open = true;
}

void fl_writes_decided(struct fl_writes *w, uint64_t steps, double in_a_row) {
    w->open = false;
    if (in_a_row == 0 && w->step == steps)
        w->done |= 1u << FL_PART_UPDATE;
    if (steps > (uint64_t)in_a_row + w->updated)
        w->updated = steps - (uint64_t)in_a_row;
}

tensor_status fl_writes_know(nn_graph *g) {
    struct fl_scale_state s;
    if (!g->writes.open)
        return TENSOR_OK;
    TRY(fl_loss_scale_state(g, &s));
    fl_writes_decided(&g->writes, g->steps, s.in_a_row);
    return TENSOR_OK;
}

void fl_writes_forget(nn_graph *g) {
    g->writes.done = 0;
    g->writes.step = g->writes.updated = g->steps;
    g->writes.open = false;
    g->writes.forgotten++;
}

static bool is_done(const nn_graph *g, enum fl_part part) {
    return g->writes.done >> part & 1;
}

/* --- the first ---------------------------------------------------------------------------------------------------- */

static tensor_status look_at(const nn_graph *g, const struct fl_slot_copies *slots, int write, bool *found) {
    const struct fl_write *w = &g->writes.list[write];
    const struct fl_slot *slot = slots ? fl_slot_then(slots, g->infos[w->info].t) : w->slot;
    if (!slot)
        return fl_fail(TENSOR_E_DEVICE, "nonfinite: %s has no slot among those of its device", g->infos[w->info].name);
    *found = slot->last.nonfinite > 0;
    return TENSOR_OK;
}

/* Searches the writes of those parts. */
static tensor_status find_among(const nn_graph *g, const struct fl_slot_copies *slots, unsigned parts, int *write) {
    bool found = false;
    *write = -1;
    for (int i = 0; i < g->writes.count && !found; i++) {
        if (!(parts >> g->writes.list[i].part & 1))
            continue;
        TRY(look_at(g, slots, i, &found));
        if (found)
            *write = i;
    }
    return TENSOR_OK;
}

/* Checks the loss, which comes after the outputs of the step and before its gradients. */
static tensor_status look_at_loss(const nn_graph *g, struct fl_first *first) {
    double loss;
    const bool later = first->write < 0 || g->writes.list[first->write].part > FL_PART_FORWARD;
    if (!g->has_loss || !is_done(g, FL_PART_FORWARD) || !later)
        return TENSOR_OK;
    if (!g->writes.loss)
        TRY(nn_loss(&loss, NULL, g));
    first->of_loss = !isfinite(g->writes.loss ? *g->writes.loss : loss);
    return TENSOR_OK;
}

tensor_status fl_find_first(nn_graph *g, const struct fl_slot_copies *slots, struct fl_first *first) {
    TRY(fl_writes_know(g));
    *first = (struct fl_first){.write = -1};
    if (!is_done(g, FL_PART_UPDATE)) { /* weights are as the step read them */
        TRY(find_among(g, slots, 1u << FL_PART_UPDATE, &first->write));
        first->of_before = first->write >= 0;
    }
    if (!first->of_before)
        TRY(find_among(g, slots, g->writes.done, &first->write));
    if (!first->of_before)
        TRY(look_at_loss(g, first));
    first->part = first->of_loss ? FL_PART_FORWARD : first->write >= 0 ? g->writes.list[first->write].part : 0;
    return TENSOR_OK;
}

/* In this order in checkpoints. */
enum { OF_INPUT, OF_FORWARD, OF_LOSS, OF_BACKWARD, OF_UPDATE, UNKNOWN, PASSES };
static const char *const passes[PASSES] = {"input", "forward", "loss", "backward", "update", "unknown"};

int fl_pass_number(const char *pass) {
    int i = 0;
    while (i < PASSES && strcmp(passes[i], pass) != 0)
        i++;
    return i;
}

const char *fl_pass_name(const struct fl_first *first) {
    static const int of_part[] = {[FL_PART_INPUT] = OF_INPUT,
                                  [FL_PART_FORWARD] = OF_FORWARD,
                                  [FL_PART_BACKWARD] = OF_BACKWARD,
                                  [FL_PART_TAKEN] = OF_BACKWARD,
                                  [FL_PART_UPDATE] = OF_UPDATE};
    return passes[first->of_loss ? OF_LOSS : of_part[first->part]];
}

bool fl_counts(const struct fl_first *first, double skipped) {
    const bool of_gradients = first->part == FL_PART_BACKWARD || first->part == FL_PART_TAKEN;
    return !fl_is_finite_step(first) && (!of_gradients || skipped == 0 || skipped >= NN_STARVED);
}

/* --- who computed it ---------------------------------------------------------------------------------------------- */

static const struct fl_node *node_of_parameter(const nn_graph *g, int info) {
    for (int i = 0; i < g->count; i++)
        for (int k = 0; k < g->nodes[i].parameters; k++) {
            const struct fl_parameter *p = &g->nodes[i].parameter[k];
            if (info >= p->info && info < p->info + p->infos)
                return &g->nodes[i];
        }
    return NULL;
}

static bool writes_forward(const struct fl_node *node, int value) {
    for (int k = 0; k < node->outputs; k++)
        if (node->output[k].y == value)
            return true;
    return false;
}

static bool writes_backward(const struct fl_node *node, int value) {
    bool any = false;
    for (int k = 0; k < node->inputs; k++)
        any = any || node->input[k].dx == value || node->input[k].sum == value || node->input[k].saved == value;
    for (int k = 0; k < node->outputs; k++)
        any = any || node->output[k].saved == value || node->output[k].operand == value;
    for (int k = 0; k < node->works; k++)
        any = any || node->work[k].value == value;
    return any;
}

/* A gradient may be passed on unchanged (FL_GRADIENT_SAME): the last node that has it wrote it. NULL: the loss. */
static const struct fl_node *writer_of(const nn_graph *g, int info) {
    const int value = find_value(g, info);
    if (value < 0)
        return node_of_parameter(g, info);
    for (int i = g->count - 1; i >= 0 && value != fl_output_of(g, g->logits)->dy; i--)
        if (writes_forward(&g->nodes[i], value) || writes_backward(&g->nodes[i], value))
            return &g->nodes[i];
    return NULL;
}

/* --- remedies ----------------------------------------------------------------------------------------------------- */

enum { MOST_LAYERS = 12, RULE_ROOM = MOST_LAYERS * (FL_NAME_LIMIT + 32) };

struct layers {
    const char *name[MOST_LAYERS];
    int count;
    bool too_many;
};

static void add_layer(struct layers *l, const char *name) {
    for (int i = 0; i < l->count; i++)
        if (!strcmp(l->name[i], name))
            return;
    if (l->count == MOST_LAYERS)
        l->too_many = true;
    else
        l->name[l->count++] = name;
}

static bool is_conversion(const struct fl_node *node) {
    return !strncmp(node->layer->kind, "convert", 7);
}

/* Whether the results of a node are usually as large as its inputs, unlike those of sums of products, normalisations
 * and softmax. */
static bool hands_on(const struct fl_node *node) {
    return !node->layer->group;
}

/* Adds the node and all nodes that read its results, directly or through nodes that pass them on. */
static void add_readers(const nn_graph *g, const struct fl_node *from, struct layers *l) {
    bool *large = fl_alloc_zero((size_t)g->count * sizeof *large);
    if (!large) {
        l->too_many = true;
        return;
    }
    large[from - g->nodes] = true;
    if (!is_conversion(from))
        add_layer(l, from->owner);
    for (int i = 0; i < g->count; i++)
        for (int k = 0; k < g->nodes[i].inputs; k++) {
            const struct fl_node *reader = &g->nodes[i];
            if (!large[fl_node_of(g, reader->input[k].x) - g->nodes])
                continue;
            large[i] = large[i] || hands_on(reader);
            if (!is_conversion(reader))
                add_layer(l, reader->owner);
        }
    fl_free(large);
}

/* Whether a name has no special characters for patterns and rules. */
static bool is_plain(const char *name) {
    return !strpbrk(name, "*?[]\\@=,;# \t\n'\"") && *name;
}

/* "a format=fp32; b format=fp32" */
static bool layer_rules(const struct layers *l, char text[RULE_ROOM]) {
    size_t used = 0;
    if (l->too_many) {
        snprintf(text, RULE_ROOM, "* format=fp32");
        return true;
    }
    for (int i = 0; i < l->count; i++) {
        if (!is_plain(l->name[i]))
            return false;
        used += (size_t)snprintf(text + used, RULE_ROOM - used, "%s%s format=fp32", i ? "; " : "", l->name[i]);
    }
    return l->count > 0;
}

/* Whether the results fit binary32 but not the format: otherwise no format helps. */
static bool would_fit(const tensor_stats *write, tensor_format format) {
    return write->saturated > 0 && write->maximum <= (double)FLT_MAX && format != FMT_FP32 &&
           !tensor_format_is_shared(format);
}

static bool remedy_of(const nn_graph *g, const char *pass, const struct fl_node *node, char text[RULE_ROOM]) {
    struct layers layers = {.count = 0};
    if (!strcmp(pass, "backward"))
        return fl_loss_scale_lower(g, text, RULE_ROOM);
    if (!node)
        return false;
    if (!strcmp(pass, "update"))
        add_layer(&layers, node->owner);
    else
        add_readers(g, node, &layers);
    return layer_rules(&layers, text);
}

/* Stores equal texts once, so that there are no more than tensors. */
static const char *keep_text(nn_graph *g, const char *text) {
    struct fl_writes *w = &g->writes;
    for (int i = 0; i < w->text_count; i++)
        if (!strcmp(w->texts[i], text))
            return w->texts[i];
    if (fl_grow((void **)&w->texts, w->text_count, &w->text_capacity, sizeof *w->texts))
        return NULL;
    char *kept = fl_strdup(text);
    if (kept)
        w->texts[w->text_count++] = kept;
    return kept;
}

/* --- telling ------------------------------------------------------------------------------------------------------ */

/* The names, by found->pass; info -1: the loss. fits: a format would hold it, and found->remedy says which. */
static tensor_status name_first(nn_graph *g, int info, bool fits, nn_nonfinite *found) {
    char rule[RULE_ROOM];
    const struct fl_node *node = info < 0 ? NULL : writer_of(g, info);
    found->layer = node ? node->owner : "loss";
    found->tensor = info < 0 ? "loss" : g->infos[info].name;
    found->role = info < 0 ? "loss" : g->infos[info].role;
    found->format = info < 0 ? "f64" : tensor_format_name(tensor_format_of(g->infos[info].t));
    if (!fits || !remedy_of(g, found->pass, node, rule))
        return TENSOR_OK;
    found->remedy = keep_text(g, rule);
    return found->remedy ? TENSOR_OK : fl_fail(TENSOR_E_MEMORY, "nonfinite: no memory for a rule");
}

tensor_status fl_tell_write(nn_graph *g, const struct fl_first *first, const tensor_stats *write, int64_t step,
                            nn_nonfinite *found) {
    *found = (nn_nonfinite){.step = step, .nonfinite = 1, .elements = 1, .pass = fl_pass_name(first)};
    if (first->of_loss)
        return name_first(g, -1, false, found);
    const int info = g->writes.list[first->write].info;
    found->nonfinite = write->nonfinite > 0 ? write->nonfinite : write->saturated;
    found->elements = write->elements;
    found->maximum = write->maximum;
    return name_first(g, info, would_fit(write, tensor_format_of(g->infos[info].t)), found);
}

tensor_status fl_tell_first(nn_graph *g, const struct fl_slot_copies *slots, const struct fl_first *first,
                            nn_nonfinite *found) {
    const struct fl_writes *w = &g->writes;
    const struct fl_slot *slot = first->of_loss ? NULL : fl_slot_then(slots, g->infos[w->list[first->write].info].t);
    return fl_tell_write(g, first, slot ? &slot->last : NULL,
                         (int64_t)(first->of_before && w->updated ? w->updated : w->step), found);
}

int fl_number_of(const nn_graph *g, const char *name) {
    int i = 0;
    while (i < g->info_count && strcmp(g->infos[i].name, name) != 0)
        i++;
    return i < g->info_count ? i : -1;
}

tensor_status fl_recall_first(nn_graph *g, const char *file, const struct fl_recalled *k, nn_nonfinite *found) {
    const bool apart = k->pass == OF_LOSS || k->pass == UNKNOWN; /* no tensor */
    if (k->step < 1 || k->step > k->steps || k->pass < 0 || k->pass >= PASSES || k->tensor < -1 ||
        k->tensor >= g->info_count || apart != (k->tensor == -1) || k->nonfinite < 0 || k->nonfinite > k->elements ||
        k->fits >> 1)
        return fl_fail(TENSOR_E_DATA,
                       "checkpoint: %s: a first NaN or Inf at step %lld in pass %lld, tensor %lld, %lld of %lld "
                       "elements: none of this network's %d tensors after %lld steps",
                       file, (long long)k->step, (long long)k->pass, (long long)k->tensor, (long long)k->nonfinite,
                       (long long)k->elements, g->info_count, (long long)k->steps);
    *found =
        (nn_nonfinite){.step = k->step, .pass = passes[k->pass], .nonfinite = k->nonfinite, .elements = k->elements};
    if (k->pass != UNKNOWN)
        return name_first(g, (int)k->tensor, k->fits, found);
    found->tensor = found->role = found->layer = found->format = "";
    return TENSOR_OK;
}

static tensor_status find(nn_graph *g, const struct fl_slot_copies *slots, const nn_nonfinite **found) {
    struct fl_first first;
    TRY(fl_find_first(g, slots, &first));
    if (fl_is_finite_step(&first))
        return TENSOR_OK;
    TRY(fl_tell_first(g, slots, &first, &g->writes.found));
    *found = &g->writes.found;
    return TENSOR_OK;
}

tensor_status nn_find_nonfinite(const nn_nonfinite **found, nn_graph *g) {
    struct fl_slot_copies *slots = NULL;
    TRY(fl_check_ready(g));
    if (!found)
        return fl_fail(TENSOR_E_ARGUMENT, "nonfinite: the result is NULL");
    *found = NULL;
    if (g->device == tensor_device_at(0))
        return find(g, NULL, found);
    tensor_status status = fl_taken(g, fl_slot_copies_begin(g->device, &slots));
    if (!status)
        status = fl_taken(g, fl_slot_copies_end(g->device, slots));
    if (!status)
        status = find(g, slots, found);
    if (slots)
        fl_slot_copies_free(g->device, slots);
    return status;
}

/* --- as a line of text -------------------------------------------------------------------------------------------- */

enum { STEP, PASS, TENSOR, NONFINITE, ELEMENTS, HAS_REMEDY, WHOLE }; /* whole numbers, then the maximum */

static tensor_status print_note(char *text, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));
static tensor_status print_note(char *text, size_t size, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const int length = fl_format(text, size, format, arguments);
    va_end(arguments);
    return length >= 0 && (size_t)length < size
               ? TENSOR_OK
               : fl_fail(TENSOR_E_ARGUMENT, "nonfinite: a text of %zu bytes, expected more than %d", size, length);
}

tensor_status nn_nonfinite_save(char *text, size_t size, const nn_graph *g, const nn_nonfinite *found) {
    TRY(fl_check_ready(g));
    if (!text || !found)
        return fl_fail(TENSOR_E_ARGUMENT, "nonfinite: %s is NULL", text ? "what was found" : "text");
    return print_note(text, size, "%lld %d %d %lld %lld %d %.17g", (long long)found->step, fl_pass_number(found->pass),
                      fl_number_of(g, found->tensor), (long long)found->nonfinite, (long long)found->elements,
                      found->remedy != NULL, found->maximum);
}

static bool read_note(const char *text, int64_t whole[WHOLE], double *maximum) {
    char *end;
    for (int i = 0; i < WHOLE; i++, text = end) {
        whole[i] = strtoll(text, &end, 10);
        if (end == text)
            return false;
    }
    *maximum = fl_to_real(text, &end);
    return end != text && !*end && *maximum >= 0;
}

tensor_status nn_nonfinite_restore(nn_nonfinite *found, nn_graph *g, int64_t steps, const char *text,
                                   const char *file) {
    int64_t n[WHOLE];
    double maximum;
    nn_nonfinite first;
    TRY(fl_check_ready(g));
    if (!found || !text || !file)
        return fl_fail(TENSOR_E_ARGUMENT, "nonfinite: found, text or file is NULL");
    if (!read_note(text, n, &maximum))
        return fl_fail(TENSOR_E_DATA, "nonfinite: %s: '%.100s', expected six whole numbers and a size of 0 or more",
                       file, text);
    const struct fl_recalled kept = {n[STEP], steps, n[PASS], n[TENSOR], n[NONFINITE], n[ELEMENTS], n[HAS_REMEDY]};
    TRY(fl_recall_first(g, file, &kept, &first));
    first.maximum = maximum;
    *found = first;
    return TENSOR_OK;
}
