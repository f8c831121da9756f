/* nn_telemetry.c - examines every tensor of a training step: its elements right after they are written, in steps with
 * records; the statistics of its writes after every step, so that nothing between two records is missed; and the first
 * NaN or Inf. */
#include "nn/telemetry/nn_telemetry.h"
#include "nn/shards/nn_shards.h"
#include "nn/step/nn_step.h"
#include "core/base/fail.h"
#include "core/base/match.h"
#include "core/base/memory.h"
#include "group/group.h"
#include <math.h>
#include <string.h>

enum { DEFAULT_EVERY = 10 };

static const char weight_role[] = "weight";

/* --- names -------------------------------------------------------------------------------------------------------- */

static bool is_chosen(const char *patterns, const char *name) {
    while (patterns) {
        const char *comma = strchr(patterns, ',');
        if (fl_matches(patterns, comma ? (size_t)(comma - patterns) : strlen(patterns), name))
            return true;
        patterns = comma ? comma + 1 : NULL;
    }
    return false;
}

/* --- beginning ---------------------------------------------------------------------------------------------------- */

/* Whether tensor i is the input, which a load writes; tokens are none. */
static bool is_input(const nn_graph *g, int i) {
    const struct fl_output *first = fl_output_of(g, 0);
    for (int s = 0; s < g->shards && !first->tokens; s++)
        if (fl_shard_info(g, s, first->y) == i)
            return true;
    return false;
}

static tensor_status begin_chosen(nn_telemetry *t, struct fl_seen_tensor *seen, const nn_tensor_info *info) {
    seen->chosen = true;
    t->chosen++;
    const bool is_weight = !strcmp(info->role, weight_role) && fl_telemetry_is_own(t, seen);
    if (is_weight)
        seen->weight = fl_alloc((size_t)tensor_count(info->t) * sizeof *seen->weight);
    seen->shadows = fl_alloc_zero((size_t)(t->shadow_count + 1) * sizeof *seen->shadows);
    seen->shadow_rows = fl_alloc_zero((size_t)(t->shadow_count + 1) * sizeof *seen->shadow_rows);
    seen->elements = fl_alloc_zero(sizeof *seen->elements);
    seen->row = (nn_telemetry_row){.tensor = info->name,
                                   .role = info->role,
                                   .format = tensor_format_name(tensor_format_of(info->t)),
                                   .update_ratio = NAN,
                                   .update_moved = -1,
                                   .sampled_error = NAN,
                                   .sampled_size = NAN,
                                   .shadow_count = t->shadow_count,
                                   .shadows = seen->shadow_rows};
    if ((is_weight && !seen->weight) || !seen->shadows || !seen->shadow_rows || !seen->elements)
        return fl_fail(TENSOR_E_MEMORY, "telemetry: no memory for %s", info->name);
    return fl_shadows_begin(t, seen, info->t, info->role);
}

static tensor_status begin_tensors(nn_telemetry *t) {
    int64_t largest = 1;
    t->count = nn_tensor_count(t->g);
    t->tensors = fl_alloc_zero((size_t)t->count * sizeof *t->tensors);
    t->order = fl_alloc_zero((size_t)t->count * sizeof *t->order);
    if (!t->tensors || !t->order)
        return fl_fail(TENSOR_E_MEMORY, "telemetry: no memory for %d tensors", t->count);
    fl_telemetry_place(t);
    for (int i = 0; i < t->count; i++) {
        const nn_tensor_info info = nn_tensor_at(t->g, i);
        struct fl_seen_tensor *seen = &t->tensors[i];
        seen->loaded = is_input(t->g, i);
        if (!is_chosen(t->pattern, info.name))
            continue;
        TRY(begin_chosen(t, seen, &info));
        if (seen->weight && tensor_count(info.t) > largest)
            largest = tensor_count(info.t);
    }
    if (!t->chosen)
        return fl_fail(TENSOR_E_ARGUMENT, "telemetry: '%s' matches none of the %d tensors (%s, %s, ...)", t->pattern,
                       t->count, nn_tensor_at(t->g, 0).name, nn_tensor_at(t->g, t->count > 1).name);
    t->scratch = fl_alloc((size_t)largest * sizeof *t->scratch);
    return t->scratch ? TENSOR_OK
                      : fl_fail(TENSOR_E_MEMORY, "telemetry: no memory for %lld doubles", (long long)largest);
}

/* The tensors of a parameter are consecutive: the weight, its gradient, those of the optimiser, masters and copies.
 */
static void begin_parameters(nn_telemetry *t) {
    for (int i = 0; i < t->g->count; i++)
        for (int k = 0; k < t->g->nodes[i].parameters; k++) {
            const struct fl_parameter *p = &t->g->nodes[i].parameter[k];
            t->tensors[p->info].tensors = p->infos;
        }
}

/* Totals before the start do not belong to this telemetry. */
static tensor_status begin_totals(nn_telemetry *t) {
    const struct fl_slot *slot;
    TRY(fl_recorder_take_slots(&t->recorder, &t->slots));
    for (int i = 0; i < t->count; i++) {
        const nn_tensor_info info = nn_tensor_at(t->g, i);
        struct fl_seen_tensor *seen = &t->tensors[i];
        TRY(fl_recorder_slot(&t->recorder, t->slots, i, &slot));
        fl_interval_begin(&seen->since, slot);
        seen->shadowed = slot->writes;
        const struct autoflex *a = tensor_autoflex(info.t);
        if (!a)
            continue;
        seen->settled = a->initialised;
        seen->row.e = seen->row.e_least = seen->row.e_largest = tensor_exponent(info.t);
    }
    return TENSOR_OK;
}

static bool has_rows(const nn_telemetry *t, int64_t step) {
    return !t->finished && (t->wanted || fl_recorder_has_rows(&t->recorder, step));
}

static tensor_status first_of(tensor_status status, tensor_status next) {
    return status ? status : next;
}

/* Watched steps also show the order of writes; the first one with an update shows all of it. */
tensor_status fl_telemetry_watch_next(nn_telemetry *t) {
    t->describing = has_rows(t, t->recorder.step + 1);
    const bool look = t->describing || (!t->all_ordered && !t->finished);
    tensor_status status = fl_telemetry_examine_there(t); /* a failure changes nothing of what is watched */
    if (look && !t->there)
        status = first_of(status, fl_telemetry_arrive(t, 0));
    t->sampling.number = (uint64_t)t->recorder.step;
    t->sampling.turn = t->describing ? (int)(t->recorder.step / t->recorder.every % FL_SAMPLED_TURNS) : -1;
    if (t->watched)
        return status;
    status = first_of(status, nn_watch(t->g, look ? nn_telemetry_watch : NULL, look ? t : NULL));
    t->g->update_there = t->there;
    return status;
}

/* Several telemetries of one network must all be `watched`: one that sets nn_watch would replace that of another. */
static tensor_status check_others(const nn_telemetry *t) {
    const nn_graph *g = t->g;
    return !g->watching && (t->watched || !g->sampling)
               ? TENSOR_OK
               : fl_fail(TENSOR_E_ARGUMENT,
                         "telemetry: the network has another one, and %s takes nn_watch; expected `watched` of both, "
                         "and one nn_watch_fn that calls nn_telemetry_watch for each",
                         g->watching ? "that" : "this one");
}

static void attach(nn_telemetry *t) {
    t->begun = true;
    t->sampling.beside = t->g->sampling;
    t->g->sampling = &t->sampling;
    if (t->watched)
        return;
    t->g->watching = t;
    t->g->watching_begins = fl_telemetry_pass_begins;
}

static void detach(nn_telemetry *t) {
    struct fl_sampling **at = &t->g->sampling;
    if (!t->begun)
        return;
    while (*at != &t->sampling)
        at = &(*at)->beside;
    *at = t->sampling.beside;
    if (t->watched)
        return;
    t->g->watching = NULL;
    (void)nn_watch(t->g, NULL, NULL);
}

static tensor_status begin(nn_telemetry *t, const nn_telemetry_config *config) {
    TRY(check_others(t));
    t->pattern = fl_format_name("%s", config->pattern ? config->pattern : "*");
    t->shadow_list = fl_format_name("%s", config->shadows ? config->shadows : "");
    if (!t->pattern || !t->shadow_list)
        return fl_fail(TENSOR_E_MEMORY, "telemetry: no memory for the pattern");
    TRY(fl_shadows_parse(t, config->shadows));
    TRY(begin_tensors(t));
    begin_parameters(t);
    TRY(begin_totals(t));
    TRY(fl_sampling_begin(&t->sampling, t->g->device));
    return t->rank ? TENSOR_OK : fl_telemetry_open(t, config->path, config->csv);
}

/* All ranks record the same. */
static tensor_status agree(const nn_telemetry *t) {
    char text[100];
    snprintf(text, sizeof text, "every-%lld tensors-%016llx shadows-%016llx watched-%d", (long long)t->recorder.every,
             (unsigned long long)nn_name_key(0, t->pattern), (unsigned long long)nn_name_key(0, t->shadow_list),
             t->watched);
    return fl_group_agree(t->g->group, "telemetry", text);
}

static tensor_status begin_on_all(nn_telemetry *t, const nn_telemetry_config *config) {
    fl_group_fresh(t->g->group);
    TRY(fl_group_all(t->g->group, "telemetry", begin(t, config)));
    TRY(agree(t));
    attach(t); /* the network is unchanged until here */
    return fl_telemetry_watch_next(t);
}

nn_telemetry *nn_telemetry_new(nn_graph *g, const nn_telemetry_config *config) {
    if (!config) {
        (void)fl_fail(TENSOR_E_ARGUMENT, "telemetry: the config is NULL");
        return NULL;
    }
    if (fl_check_ready(g))
        return NULL;
    if (config->every < 0) {
        (void)fl_fail(TENSOR_E_ARGUMENT, "telemetry: every %lld steps, expected at least 1, or 0 for %d",
                      (long long)config->every, DEFAULT_EVERY);
        return NULL;
    }
    nn_telemetry *t = fl_alloc_zero(sizeof *t);
    if (!t) {
        (void)fl_fail(TENSOR_E_MEMORY, "telemetry: no memory");
        return NULL;
    }
    const int64_t begun = (int64_t)nn_steps(g);
    t->g = g;
    t->recorder = (struct fl_recorder){.of = "telemetry",
                                       .graph = g,
                                       .every = config->every ? config->every : DEFAULT_EVERY,
                                       .step = begun,
                                       .row_step = begun};
    t->watched = config->watched;
    t->may_be_late = true;
    t->forgotten = g->writes.forgotten;
    t->rank = nn_group_rank(g->group);
    t->row = t->rank ? NULL : config->row;
    t->context = config->context;
    if (!begin_on_all(t, config))
        return t;
    nn_telemetry_free(t);
    return NULL;
}

/* --- while a step runs -------------------------------------------------------------------------------------------- */

static int number_of(const nn_telemetry *t, const nn_tensor_info *info) {
    for (int i = 0; i < t->count; i++)
        if (t->g->infos[i].t == info->t)
            return i;
    return -1;
}

void fl_telemetry_see(const nn_telemetry *t, struct fl_seen_tensor *seen, uint64_t number, double maximum) {
    if (seen->chosen && seen->shadowed != number)
        fl_shadows_see(t, seen, maximum);
    seen->shadowed = number;
}

/* The maxima of a write, before its elements are measured at the exponents that follow. */
static tensor_status see_write(nn_telemetry *t, struct fl_seen_tensor *seen, const tensor *x) {
    if (!t->shadow_count)
        return TENSOR_OK;
    const struct fl_slot *slot = fl_slot_then(NULL, x);
    if (!slot)
        return tensor_error_status();
    fl_telemetry_see(t, seen, slot->writes, slot->last.maximum);
    return TENSOR_OK;
}

/* Backward has written the gradient of tensor i, and no update has followed: the weight, its master and its copies in
 * other formats are as they were. */
static tensor_status keep_weights(nn_telemetry *t, int i) {
    for (int k = 0; k < t->tensors[i].tensors; k++) {
        struct fl_seen_tensor *seen = &t->tensors[i + k];
        const tensor *w = t->g->infos[i + k].t;
        if (!seen->weight)
            continue;
        TRY(t->there ? fl_keep_there(seen->weight_there, w) : tensor_store_wide_f64(w, seen->weight, tensor_count(w)));
        seen->weight_step = t->recorder.step + 1;
    }
    return TENSOR_OK;
}

void fl_telemetry_moved(struct fl_seen_tensor *seen, double step, double size, int64_t moved) {
    const double ratio = sqrt(step) / sqrt(size);
    seen->row.update_ratio = isfinite(ratio) ? ratio : NAN;
    seen->row.update_moved = moved;
}

void fl_telemetry_not_moved(nn_telemetry_row *row) {
    row->update_ratio = NAN;
    row->update_moved = -1;
}

/* The size of the update of a weight, whose values before it are in seen->weight. */
static tensor_status compare_weight(nn_telemetry *t, struct fl_seen_tensor *seen, const tensor *w) {
    const int64_t count = tensor_count(w);
    double step = 0, size = 0;
    int64_t moved = 0;
    TRY(tensor_store_wide_f64(w, t->scratch, count));
    for (int64_t i = 0; i < count; i++) {
        const double before = seen->weight[i], d = t->scratch[i] - before;
        step += d * d;
        size += before * before;
        moved += d != 0;
    }
    fl_telemetry_moved(seen, step, size, moved);
    return TENSOR_OK;
}

void fl_telemetry_set_sampled(nn_telemetry_row *row, struct fl_sampled s) {
    row->sampled = s.elements;
    row->sampled_infinite = s.infinite;
    row->sampled_error = s.error;
    row->sampled_size = s.size;
}

/* The device examines the elements, and the host takes what it found in fl_telemetry_arrive. */
static tensor_status look_there(nn_telemetry *t, int i, const nn_tensor_info *info) {
    struct fl_seen_tensor *seen = &t->tensors[i];
    struct fl_found *to = &t->found_there[i];
    const int64_t step = t->recorder.step + 1, at = (int64_t)i * t->shadow_count;
    tensor_format formats[FL_MOST_SHADOWS];
    for (int k = 0; k < t->shadow_count; k++)
        formats[k] = t->shadows[k].format;
    TRY(fl_describe_there(&to->elements, step, t->numbers_there, info->t,
                          &(struct fl_shadows){.states = t->shadow_count ? t->shadows_there + at : NULL,
                                               .measured = t->measured_there + at,
                                               .formats = formats,
                                               .count = t->shadow_count}));
    seen->there_step = step;
    TRY(fl_sampled_note(&t->sampling, info->t, &to->sampled));
    return seen->weight_step == step
               ? fl_compare_there(&to->update, step, t->numbers_there, seen->weight_there, info->t)
               : TENSOR_OK;
}

static tensor_status look_at_elements(nn_telemetry *t, int i, const nn_tensor_info *info) {
    struct fl_seen_tensor *seen = &t->tensors[i];
    if (i && t->tensors[i - 1].tensors)
        TRY(keep_weights(t, i - 1));
    if (!seen->chosen || !fl_telemetry_is_own(t, seen))
        return TENSOR_OK;
    if (t->there)
        return look_there(t, i, info);
    TRY(tensor_describe(seen->elements, info->t));
    TRY(see_write(t, seen, info->t));
    TRY(fl_shadows_measure(t, seen, info->t));
    seen->row.step = t->recorder.step + 1;
    fl_telemetry_set_sampled(&seen->row, fl_sampled_of(&t->sampling, info->t));
    if (seen->weight_step == t->recorder.step + 1)
        return compare_weight(t, seen, info->t);
    fl_telemetry_not_moved(&seen->row);
    return TENSOR_OK;
}

void nn_telemetry_watch(const nn_tensor_info *info, void *telemetry) {
    nn_telemetry *t = telemetry;
    const int i = info && t ? number_of(t, info) : -1;
    if (i < 0 || t->status)
        return;
    if (!t->tensors[i].ordered) {
        t->order[t->ordered++] = i;
        t->tensors[i].ordered = true;
        t->tensors[i].stretch = t->g->stretch;
    }
    if (t->describing)
        t->status = look_at_elements(t, i, info);
    if (t->status)
        strncpy(t->message, tensor_error(), sizeof t->message - 1);
}

/* --- after a step ------------------------------------------------------------------------------------------------- */

/* A training step writes a tensor once, so that its last write is all that the step adds; if there are several
 * (nn_forward more than once), the last is examined, and all are counted. */
static void look_at_write(nn_telemetry *t, struct fl_seen_tensor *seen, const struct fl_slot *slot) {
    nn_telemetry_row *row = &seen->row;
    const tensor_stats *last = &slot->last;
    const int64_t writes = fl_interval_look(&seen->since, slot);
    if (!writes)
        return;
    seen->last[1] = seen->last[0];
    seen->last[0] = (struct fl_seen_write){.step = t->recorder.step,
                                           .e = slot->e,
                                           .maximum = last->maximum,
                                           .saturated = last->saturated,
                                           .flushed = last->flushed};
    row->e_moves += seen->settled && slot->e != row->e;
    seen->settled = slot->autoflex.initialised;
    row->e = slot->e;
    row->e_least = row->writes && row->e_least < slot->e ? row->e_least : slot->e;
    row->e_largest = row->writes && row->e_largest > slot->e ? row->e_largest : slot->e;
    row->maximum = last->maximum > row->maximum ? last->maximum : row->maximum;
    row->saturated_writes += last->saturated > 0;
    row->writes += writes;
    fl_telemetry_see(t, seen, slot->writes, last->maximum);
}

/* The writes of the step before number `end` of its order, and of the step before it where it had fewer. */
static void fill_before(nn_telemetry *t, int end) {
    const struct fl_writes *writes = &t->g->writes;
    int64_t count = 0;
    for (int back = 1; back <= writes->count && count < NN_NONFINITE_BEFORE; back++) {
        const int at = end - back, i = writes->list[at < 0 ? at + writes->count : at].info;
        const struct fl_seen_tensor *seen = &t->tensors[i];
        const struct fl_seen_write *w = &seen->last[0];
        const bool later =
            at < 0 && w->step == t->recorder.step; /* what followed in this step: the write of the one before */
        w = later ? &seen->last[1] : w;
        if (!w->step)
            continue;
        t->before[count++] = (nn_seen_write){.step = w->step,
                                             .tensor = t->g->infos[i].name,
                                             .role = t->g->infos[i].role,
                                             .maximum = w->maximum,
                                             .saturated = w->saturated,
                                             .flushed = w->flushed,
                                             .e = w->e};
    }
    for (int64_t i = 0; i < count / 2; i++) {
        const nn_seen_write w = t->before[i];
        t->before[i] = t->before[count - 1 - i];
        t->before[count - 1 - i] = w;
    }
    t->nonfinite.before = t->before;
    t->nonfinite.before_count = count;
}

/* The place of the loss in the order of writes: before the gradients. */
static int place_of_loss(const nn_graph *g) {
    int at = 0;
    while (at < g->writes.count && g->writes.list[at].part <= FL_PART_FORWARD)
        at++;
    return at;
}

static tensor_status find_nonfinite(nn_telemetry *t, double in_a_row) {
    struct fl_first first;
    const bool known = t->nonfinite_known || t->nonfinite.step;
    if (known && !t->arrived)
        return TENSOR_OK;
    TRY(fl_find_first(t->g, t->slots, &first));
    if (!known && fl_counts(&first, in_a_row)) {
        TRY(fl_tell_first(t->g, t->slots, &first, &t->nonfinite));
        TRY(fl_telemetry_bring(t));
        fill_before(t, first.of_loss ? place_of_loss(t->g) : first.write);
        TRY(fl_telemetry_write_nonfinite(t));
    }
    return t->arrived ? t->arrived(t->arrived_context, t->recorder.step, t->slots, &first, in_a_row) : TENSOR_OK;
}

static void complete_row(const nn_telemetry *t, struct fl_seen_tensor *seen, const struct fl_slot *slot) {
    nn_telemetry_row *row = &seen->row;
    const struct fl_interval_counts counts = fl_interval_counts(&seen->since, slot);
    row->elements = row->step == t->recorder.step ? seen->elements : NULL;
    if (!row->elements) { /* this write was not examined */
        fl_telemetry_not_moved(row);
        fl_telemetry_set_sampled(row, (struct fl_sampled){0, 0, NAN, NAN});
    }
    row->step = t->recorder.step;
    row->steps = t->recorder.step - t->recorder.row_step;
    row->saturated = counts.saturated;
    row->flushed = counts.flushed;
    row->nonfinite = counts.nonfinite;
    row->clamped_low = (int64_t)counts.clamped_low;
    row->clamped_high = (int64_t)counts.clamped_high;
    for (int i = 0; i < t->shadow_count; i++) {
        if (!row->elements)
            seen->shadow_rows[i] = (nn_telemetry_shadow){
                .name = t->shadows[i].name, .e = t->shadows[i].shared ? seen->shadows[i].a.e : 0, .error = NAN};
        seen->shadow_rows[i].saturated_writes = seen->shadows[i].saturated_writes;
        seen->shadow_rows[i].e_moves = seen->shadows[i].e_moves;
        seen->shadows[i].saturated_writes = seen->shadows[i].e_moves = 0;
    }
    fl_interval_end(&seen->since, slot);
}

static tensor_status end_row(nn_telemetry *t, struct fl_seen_tensor *seen) {
    nn_telemetry_row *row = &seen->row;
    if (t->row)
        t->row(t->context, row);
    TRY(fl_telemetry_write_row(t, row));
    t->rows++;
    row->writes = row->saturated_writes = row->e_moves = 0;
    row->e_least = row->e_largest = row->e; /* until the next write */
    row->maximum = 0;
    return TENSOR_OK;
}

/* In the order of writes; what no step has written yet has none. */
static tensor_status end_rows(nn_telemetry *t) {
    const struct fl_slot *slot;
    for (int at = 0; at < t->ordered; at++) {
        struct fl_seen_tensor *seen = &t->tensors[t->order[at]];
        if (!seen->chosen || !fl_telemetry_is_own(t, seen))
            continue;
        TRY(fl_recorder_slot(&t->recorder, t->slots, t->order[at], &slot));
        complete_row(t, seen, slot);
    }
    TRY(fl_telemetry_bring_rows(t));
    for (int at = 0; at < t->ordered; at++)
        if (t->tensors[t->order[at]].chosen)
            TRY(end_row(t, &t->tensors[t->order[at]]));
    t->recorder.row_step = t->recorder.step;
    return TENSOR_OK;
}

tensor_status fl_telemetry_examine(nn_telemetry *t, bool rows, double in_a_row) {
    const struct fl_slot *slot;
    for (int i = 0; i < t->count; i++) {
        if (!fl_telemetry_is_own(t, &t->tensors[i]))
            continue;
        TRY(fl_recorder_slot(&t->recorder, t->slots, i, &slot));
        look_at_write(t, &t->tensors[i], slot);
    }
    TRY(fl_telemetry_bring_order(t));
    TRY(fl_writes_know(t->g));
    t->all_ordered = t->all_ordered || (in_a_row == 0 && t->g->writes.done >> FL_PART_UPDATE & 1);
    if (rows)
        TRY(end_rows(t));
    TRY(find_nonfinite(t, in_a_row));
    return TENSOR_OK;
}

static tensor_status examine_now(nn_telemetry *t) {
    struct fl_scale_state scale;
    TRY(fl_recorder_take_slots(&t->recorder, &t->slots));
    TRY(fl_loss_scale_state(t->g, &scale));
    return fl_telemetry_examine(t, t->describing, scale.in_a_row);
}

/* Returns once what a call without a status could not. */
static tensor_status tell_owed(nn_telemetry *t) {
    const tensor_status status = t->owed;
    t->owed = TENSOR_OK;
    return status ? fl_fail(status, "%s", t->owed_message) : TENSOR_OK;
}

void fl_telemetry_owe(nn_telemetry *t, tensor_status status) {
    if (!status || t->owed)
        return;
    t->owed = status;
    strncpy(t->owed_message, tensor_error(), sizeof t->owed_message - 1);
}

tensor_status nn_telemetry_step(nn_telemetry *t) {
    if (!t)
        return fl_fail(TENSOR_E_ARGUMENT, "telemetry: it is NULL");
    if (t->finished)
        return fl_fail(TENSOR_E_ARGUMENT, "telemetry: it is finished, step %lld comes after its end",
                       (long long)t->recorder.step + 1);
    if (t->status)
        return fl_fail(t->status, "%s", t->message);
    t->recorder.step++; /* also for a step whose update was skipped */
    t->steps++;
    t->wanted = t->wanted && !t->describing;
    const bool later = fl_telemetry_can_fetch(t);
    tensor_status status = later ? fl_telemetry_later(t) : fl_telemetry_arrive(t, 0);
    if (!later)
        status = first_of(status, examine_now(t));
    /* A state that was set has other numbers of writes, which the host and the device take differently. */
    t->following = t->following && later && t->forgotten == t->g->writes.forgotten;
    t->forgotten = t->g->writes.forgotten;
    status = first_of(status, fl_telemetry_watch_next(t));
    return first_of(status, tell_owed(t));
}

tensor_status nn_telemetry_await(nn_telemetry *t) {
    if (!t)
        return fl_fail(TENSOR_E_ARGUMENT, "telemetry: it is NULL");
    if (t->status)
        return fl_fail(t->status, "%s", t->message);
    return first_of(fl_telemetry_arrive(t, 0), tell_owed(t));
}

void nn_telemetry_want(nn_telemetry *t) {
    if (!t)
        return;
    t->wanted = true;
    fl_telemetry_owe(t, fl_telemetry_watch_next(t));
}

const nn_nonfinite *nn_telemetry_nonfinite(const nn_telemetry *telemetry) {
    nn_telemetry *const t = (nn_telemetry *)(uintptr_t)telemetry; /* which examines the steps under way */
    if (!t)
        return NULL;
    fl_telemetry_owe(t, fl_telemetry_arrive(t, 0));
    return t->nonfinite.step ? &t->nonfinite : NULL;
}

void fl_telemetry_tell(nn_telemetry *t, fl_step_arrived *arrived, void *context, bool late) {
    t->arrived = arrived;
    t->arrived_context = context;
    t->may_be_late = late;
}

tensor_status nn_telemetry_finish(nn_telemetry *t) {
    if (!t)
        return TENSOR_OK;
    if (t->status)
        return fl_fail(t->status, "%s", t->message);
    if (t->finished)
        return TENSOR_OK;
    TRY(fl_telemetry_arrive(t, 0));
    TRY(tell_owed(t));
    if (fl_recorder_owes_rows(&t->recorder)) {
        TRY(fl_recorder_take_slots(&t->recorder, &t->slots));
        TRY(end_rows(t));
    }
    t->finished = true;
    TRY(fl_telemetry_watch_next(t)); /* it examines no more steps */
    return fl_telemetry_close(t);
}

void nn_telemetry_free(nn_telemetry *t) {
    if (!t)
        return;
    detach(t);
    for (int i = 0; t->tensors && i < t->count; i++) {
        fl_free(t->tensors[i].elements);
        fl_free(t->tensors[i].weight);
        fl_free(t->tensors[i].shadows);
        fl_free(t->tensors[i].shadow_rows);
    }
    if (t->slots)
        fl_slot_copies_free(t->g->device, t->slots);
    tensor_device_release(t->g->device, t->sampling.there);
    fl_telemetry_late_free(t);
    fl_telemetry_drop(t);
    fl_shadows_clear(t);
    fl_free(t->tensors);
    fl_free(t->order);
    fl_free(t->scratch);
    fl_free(t->pattern);
    fl_free(t->shadow_list);
    fl_free(t);
}
