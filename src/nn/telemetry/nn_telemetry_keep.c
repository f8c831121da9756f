/* nn_telemetry_keep.c - telemetry in a checkpoint of a training: its files so far, and what is known since the last
 * rows as plain numbers: of all, the order of writes, each tensor, each tensor's shadows. */
#include "nn/telemetry/nn_telemetry.h"
#include "autoflex/autoflex_numbers.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "group/group.h"
#include <math.h>
#include <string.h>

enum { HEAD = 5, WHOLE = 22, REAL = 3, SHADOW_WHOLE = FL_AUTOFLEX_WHOLE + 2, SHADOW_REAL = FL_AUTOFLEX_REAL };

static int64_t whole_count(const nn_telemetry *t) {
    return HEAD + (int64_t)t->count + (int64_t)WHOLE * t->count + (int64_t)SHADOW_WHOLE * t->shadow_count * t->chosen;
}

static int64_t real_count(const nn_telemetry *t) {
    return (int64_t)REAL * t->count + (int64_t)SHADOW_REAL * t->shadow_count * t->chosen;
}

static void keep_shadow(const struct fl_shadow_state *s, int64_t **whole, double **real) {
    fl_autoflex_to_numbers(&s->a, *whole, *real);
    (*whole)[FL_AUTOFLEX_WHOLE] = s->saturated_writes;
    (*whole)[FL_AUTOFLEX_WHOLE + 1] = s->e_moves;
    *whole += SHADOW_WHOLE;
    *real += SHADOW_REAL;
}

static void keep_tensor(const nn_telemetry *t, const struct fl_seen_tensor *seen, int64_t **whole, double **real) {
    const nn_telemetry_row *row = &seen->row;
    const struct fl_seen_write *w = seen->last;
    /* Earlier versions counted the first two since statistics were reset: what resumes takes them from the tensor. */
    const int64_t numbers[WHOLE] = {seen->since.writes,
                                    (int64_t)seen->shadowed,
                                    (int64_t)seen->since.low,
                                    (int64_t)seen->since.high,
                                    seen->since.before.saturated,
                                    seen->since.before.flushed,
                                    seen->since.before.nonfinite,
                                    seen->since.before.writes,
                                    row->e,
                                    row->e_least,
                                    row->e_largest,
                                    row->writes,
                                    row->saturated_writes,
                                    row->e_moves,
                                    w[0].step,
                                    w[0].e,
                                    w[0].saturated,
                                    w[0].flushed,
                                    w[1].step,
                                    w[1].e,
                                    w[1].saturated,
                                    w[1].flushed};
    const double reals[REAL] = {row->maximum, w[0].maximum, w[1].maximum};
    memcpy(*whole, numbers, sizeof numbers);
    memcpy(*real, reals, sizeof reals);
    *whole += WHOLE;
    *real += REAL;
    for (int i = 0; seen->chosen && i < t->shadow_count; i++)
        keep_shadow(&seen->shadows[i], whole, real);
}

/* A caller may have reset statistics since the last step. */
static tensor_status look_for_resets(nn_telemetry *t) {
    for (int i = 0; i < t->count; i++) {
        const struct fl_slot *slot;
        if (!fl_telemetry_is_own(t, &t->tensors[i]))
            continue;
        TRY(fl_recorder_slot(&t->recorder, NULL, i, &slot));
        fl_interval_look_for_reset(&t->tensors[i].since, slot);
    }
    return TENSOR_OK;
}

tensor_status fl_telemetry_keep(nn_telemetry *t, struct fl_telemetry_kept *kept) {
    *kept = (struct fl_telemetry_kept){.whole_count = whole_count(t), .real_count = real_count(t)};
    TRY(fl_telemetry_arrive(t, 0));
    TRY(look_for_resets(t));
    TRY(fl_recorder_numbers(&t->recorder, &kept->whole, kept->whole_count, &kept->real, kept->real_count));
    int64_t *whole = kept->whole;
    double *real = kept->real;
    TRY(fl_telemetry_bring(t));
    const int64_t head[HEAD] = {t->recorder.step, t->recorder.row_step, t->steps, t->rows,
                                t->nonfinite_known || t->nonfinite.step};
    memcpy(whole, head, sizeof head);
    whole += HEAD;
    for (int i = 0; i < t->count; i++)
        *whole++ = i < t->ordered ? t->order[i] : -1;
    for (int i = 0; i < t->count; i++)
        keep_tensor(t, &t->tensors[i], &whole, &real);
    TRY(fl_rows_text(&t->json, &kept->json, &kept->json_bytes));
    return fl_rows_text(&t->csv, &kept->csv, &kept->csv_bytes);
}

void fl_telemetry_kept_clear(struct fl_telemetry_kept *kept) {
    fl_free(kept->json);
    fl_free(kept->csv);
    fl_free(kept->whole);
    fl_free(kept->real);
    *kept = (struct fl_telemetry_kept){0};
}

/* --- back --------------------------------------------------------------------------------------------------------- */

/* Whether all numbers are in the range of such numbers, so that nothing below leaves an array or overflows. */
static bool is_possible(const nn_telemetry *t, const struct fl_telemetry_kept *kept) {
    const int64_t limit = INT64_C(1) << 62;
    bool good = kept->whole_count == whole_count(t) && kept->real_count == real_count(t);
    if (t->json.file)
        good = good && fl_recorder_is_file(kept->json, kept->json_bytes, "{\"type\":\"telemetry\"");
    if (t->csv.file)
        good = good && fl_recorder_is_file(kept->csv, kept->csv_bytes, "step,tensor,");
    for (int64_t i = 0; good && i < kept->whole_count; i++)
        good = kept->whole[i] >= FL_INTERVAL_LEAST && kept->whole[i] <= limit;
    for (int64_t i = 0; good && i < kept->real_count; i++)
        good = kept->real[i] >= 0;
    return good;
}

static bool take_order(nn_telemetry *t, const int64_t *order) {
    for (int i = 0; i < t->count; i++)
        t->tensors[i].ordered = false;
    t->ordered = 0;
    for (int i = 0; i < t->count && order[i] >= 0; i++) {
        if (order[i] >= t->count || t->tensors[order[i]].ordered)
            return false;
        t->tensors[order[i]].ordered = true;
        t->order[t->ordered++] = (int)order[i];
    }
    t->merged = t->ordered;
    return true;
}

static bool take_shadow(struct fl_shadow_state *s, const int64_t **whole, const double **real) {
    const int e_min = s->a.e_min, e_max = s->a.e_max;
    if (!fl_autoflex_from_numbers(&s->a, *whole, *real) || !fl_autoflex_is_possible(&s->a, e_min, e_max) ||
        (*whole)[FL_AUTOFLEX_WHOLE] < 0 || (*whole)[FL_AUTOFLEX_WHOLE + 1] < 0)
        return false;
    s->saturated_writes = (*whole)[FL_AUTOFLEX_WHOLE];
    s->e_moves = (*whole)[FL_AUTOFLEX_WHOLE + 1];
    *whole += SHADOW_WHOLE;
    *real += SHADOW_REAL;
    return true;
}

static bool take_tensor(const nn_telemetry *t, struct fl_seen_tensor *seen, const int64_t **whole,
                        const double **real) {
    const int64_t *n = *whole;
    const double *r = *real;
    nn_telemetry_row *row = &seen->row;
    for (int i = 0; i < WHOLE; i++) {
        const bool exponent = (i >= 8 && i <= 10) || i == 15 || i == 19, total = i >= 4 && i <= 7;
        if (n[i] < (exponent ? INT16_MIN : total ? FL_INTERVAL_LEAST : 0) || (exponent && n[i] > INT16_MAX))
            return false;
    }
    seen->since.writes = n[0];
    seen->shadowed = (uint64_t)n[1];
    seen->since.low = (uint64_t)n[2];
    seen->since.high = (uint64_t)n[3];
    seen->since.before = (tensor_stats){.saturated = n[4], .flushed = n[5], .nonfinite = n[6], .writes = n[7]};
    row->e = (int32_t)n[8];
    row->e_least = (int32_t)n[9];
    row->e_largest = (int32_t)n[10];
    row->writes = n[11];
    row->saturated_writes = n[12];
    row->e_moves = n[13];
    row->maximum = r[0];
    for (int i = 0; i < 2; i++)
        seen->last[i] = (struct fl_seen_write){.step = n[14 + 4 * i],
                                               .e = (int32_t)n[15 + 4 * i],
                                               .maximum = r[1 + i],
                                               .saturated = n[16 + 4 * i],
                                               .flushed = n[17 + 4 * i]};
    *whole += WHOLE;
    *real += REAL;
    for (int i = 0; seen->chosen && i < t->shadow_count; i++)
        if (!take_shadow(&seen->shadows[i], whole, real))
            return false;
    return true;
}

static bool take_numbers(nn_telemetry *t, const struct fl_telemetry_kept *kept) {
    const int64_t *whole = kept->whole;
    const double *real = kept->real;
    if (whole[0] < 0 || whole[1] < 0 || whole[1] > whole[0] || whole[2] < 0 || whole[3] < 0 || whole[4] >> 1)
        return false;
    t->recorder.step = whole[0];
    t->recorder.row_step = whole[1];
    t->steps = whole[2];
    t->rows = whole[3];
    t->nonfinite_known = whole[4];
    whole += HEAD;
    if (!take_order(t, whole))
        return false;
    whole += t->count;
    for (int i = 0; i < t->count; i++)
        if (!take_tensor(t, &t->tensors[i], &whole, &real))
            return false;
    return true;
}

/* The numbers of all tensors, those of one rank after those of the rank before it. */
struct numbers {
    int64_t *whole;
    double *real;
    struct fl_piece *whole_parts, *real_parts; /* of each rank */
};

static tensor_status make_numbers(const nn_telemetry *t, struct numbers *n) {
    const int size = nn_group_size(t->g->group);
    TRY(fl_recorder_numbers(&t->recorder, &n->whole, whole_count(t), &n->real, real_count(t)));
    n->whole_parts = fl_alloc_zero((size_t)size * sizeof *n->whole_parts);
    n->real_parts = fl_alloc_zero((size_t)size * sizeof *n->real_parts);
    if (!n->whole_parts || !n->real_parts)
        return fl_fail(TENSOR_E_MEMORY, "telemetry: no memory for the parts of %d ranks", size);
    int64_t *whole = n->whole;
    double *real = n->real;
    for (int r = 0; r < size; r++) {
        n->whole_parts[r].data = whole;
        n->real_parts[r].data = real;
        for (int i = 0; i < t->count; i++) {
            const int shadows = t->tensors[i].chosen ? t->shadow_count : 0;
            if (t->tensors[i].rank != r)
                continue;
            whole += WHOLE + SHADOW_WHOLE * shadows;
            real += REAL + SHADOW_REAL * shadows;
        }
        n->whole_parts[r].bytes = (char *)whole - (char *)n->whole_parts[r].data;
        n->real_parts[r].bytes = (char *)real - (char *)n->real_parts[r].data;
    }
    return TENSOR_OK;
}

static tensor_status bring(nn_telemetry *t, const struct numbers *n) {
    int64_t *own_whole = n->whole_parts[t->rank].data;
    double *own_real = n->real_parts[t->rank].data;
    for (int i = 0; i < t->count; i++)
        if (fl_telemetry_is_own(t, &t->tensors[i]))
            keep_tensor(t, &t->tensors[i], &own_whole, &own_real);
    TRY(fl_group_gather(t->g->group, "counts of telemetry", n->whole_parts));
    TRY(fl_group_gather(t->g->group, "maxima of telemetry", n->real_parts));
    for (int r = 0; r < nn_group_size(t->g->group); r++) {
        const int64_t *whole = n->whole_parts[r].data;
        const double *real = n->real_parts[r].data;
        for (int i = 0; i < t->count; i++)
            if (t->tensors[i].rank == r && r != t->rank && !take_tensor(t, &t->tensors[i], &whole, &real))
                return fl_fail(TENSOR_E_DATA, "telemetry: rank %d has told impossible numbers of %s", r,
                               t->g->infos[i].name);
    }
    return TENSOR_OK;
}

tensor_status fl_telemetry_bring(nn_telemetry *t) {
    struct numbers n = {0};
    if (nn_group_size(t->g->group) == 1)
        return TENSOR_OK;
    tensor_status status = make_numbers(t, &n);
    if (!status)
        status = bring(t, &n);
    fl_group_free_memory(t->g->group, n.whole);
    fl_group_free_memory(t->g->group, n.real);
    fl_free(n.whole_parts);
    fl_free(n.real_parts);
    return status;
}

tensor_status fl_telemetry_resume(nn_telemetry *t, const struct fl_telemetry_kept *kept) {
    if (!is_possible(t, kept) || !take_numbers(t, kept) || (uint64_t)t->recorder.step < nn_steps(t->g))
        return fl_fail(
            TENSOR_E_DATA,
            "telemetry: its stored state, %lld bytes and %lld numbers, does not fit this network's %d tensors",
            (long long)(kept->json_bytes + kept->csv_bytes), (long long)(kept->whole_count + kept->real_count),
            t->count);
    for (int i = 0; i < t->count; i++) {
        const struct autoflex *a = tensor_autoflex(t->g->infos[i].t);
        struct fl_seen_tensor *seen = &t->tensors[i];
        const struct fl_slot *slot;
        seen->settled = a && a->initialised;
        TRY(fl_recorder_slot(&t->recorder, NULL, i, &slot));
        fl_interval_resume(&seen->since, slot);
        seen->shadowed = slot->writes;
    }
    TRY(fl_rows_set_text(&t->json, kept->json, kept->json_bytes));
    TRY(fl_rows_set_text(&t->csv, kept->csv, kept->csv_bytes));
    return fl_telemetry_watch_next(t);
}
