/* nn_evaluation.c - evaluation of the test set: all batches on one rank, or on each of several a part of them. The loss
 * is a sum over batches in their order, whoever computed them.
 *
 * Tensors of evaluation take the exact maximum of what is written, and nothing is drawn, so that a batch gives the same
 * numbers whatever came before. Their exponents, histories and statistics are those of all batches, one after the
 * other: each rank notes what a batch has written, and all ranks make those writes again, without their elements. */
#include "nn/training/nn_training.h"
#include "autoflex/write_rules.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/base/verbose.h"
#include "core/queue/fetch.h"
#include "core/values/tensor_state.h"
#include "group/group.h"
#include "nn/shards/nn_shards.h"
#include "nn/step/nn_step.h"
#include <stdio.h>
#include <string.h>

/* Of a batch; followed by what it has written of each tensor. */
struct told {
    double loss;
    int64_t labels, correct;
};

/* Whether a write was recorded in the history: a load was not. OTHER: what cannot be made again. */
enum how { NOT_WRITTEN, RECORDED, LOADED, OTHER };

struct written {
    struct fl_stats stats;
    int64_t how;
};

struct evaluation {
    struct run *run;
    int64_t batches, labels; /* labels: of a whole batch */
    char *told;              /* batch by batch */
    size_t told_bytes;
    /* What a device notes of whole batches, to be fetched after the last: losses, correct predictions, and predictions.
     * NULL: the host waits for each batch. */
    char *noted;
    tensor **t; /* those of evaluation, of several ranks */
    struct fl_slot *before;
    struct fl_slot_copies *copies; /* of a device's slots, after a batch; NULL: on the host */
    int tensors;
};

static struct told *told_of(const struct evaluation *v, int64_t batch) {
    return (struct told *)(void *)(v->told + (size_t)batch * v->told_bytes);
}

static struct written *written_of(const struct evaluation *v, int64_t batch) {
    return (struct written *)(void *)(told_of(v, batch) + 1);
}

/* --- batches ------------------------------------------------------------------------------------------------------ */

/* The places of what is noted of a batch. */
static size_t right_place(const struct evaluation *v, int64_t batch) {
    return (size_t)v->batches * sizeof(double) + (size_t)batch * sizeof(int32_t);
}

static size_t predicted_place(const struct evaluation *v, int64_t batch) {
    return right_place(v, v->batches) + (size_t)(batch * v->labels) * sizeof(int32_t);
}

static tensor_status note(const struct evaluation *v, int64_t batch) {
    const nn_graph *g = v->run->g;
    TRY(fl_fetch_note(g->objective.mean, v->noted + (size_t)batch * sizeof(double)));
    TRY(fl_fetch_note(g->objective.right, v->noted + right_place(v, batch)));
    return fl_fetch_note(g->predicted, v->noted + predicted_place(v, batch));
}

static void take(const struct evaluation *v, const char *noted) {
    for (int64_t b = 0; b < v->batches; b++) {
        struct told *told = told_of(v, b);
        int32_t right;
        if (told->labels < v->labels) /* the last one, if it is not whole */
            continue;
        memcpy(&told->loss, noted + (size_t)b * sizeof(double), sizeof(double));
        memcpy(&right, noted + right_place(v, b), sizeof right);
        told->correct = right;
        memcpy(v->run->result->predicted + b * v->labels, noted + predicted_place(v, b),
               (size_t)v->labels * sizeof(int32_t));
    }
}

static tensor_status fetch_noted(const struct evaluation *v) {
    tensor_device *device = v->run->g->device;
    const size_t bytes = predicted_place(v, v->batches);
    struct fl_fetch fetch = {0};
    char *noted = fl_alloc(bytes);
    tensor_status status = noted ? fl_fetch_begin(device, &fetch, v->noted, bytes)
                                 : fl_fail(TENSOR_E_MEMORY, "train: no memory for an evaluation");
    if (!status)
        status = fl_taken(v->run->g, fl_fetch_end(device, &fetch, noted));
    if (!status)
        take(v, noted);
    fl_fetch_clear(device, &fetch);
    fl_free(noted);
    return status;
}

static tensor_status evaluate_batch(struct evaluation *v, const data_batch *batch, int64_t number) {
    struct run *run = v->run;
    struct told *told = told_of(v, number);
    int32_t *predicted = run->result->predicted + number * v->labels;
    const int32_t *expected = run->context ? batch->targets : batch->labels;
    const bool there = run->test_there != NULL, noted = v->noted && batch->count == run->g->batch;
    *told = (struct told){0, batch->count * fl_labels_each(run->g), 0};
    TRY(nn_evaluate(noted ? NULL : &told->loss, noted ? NULL : predicted, run->g,
                    &(nn_batch){.images = there ? NULL : batch->images,
                                .tokens = batch->tokens,
                                .indices = there ? batch->indices : NULL,
                                .data = run->test_there,
                                .labels = there ? NULL : expected,
                                .count = batch->count}));
    if (noted)
        return note(v, number);
    for (int64_t i = 0; i < told->labels; i++)
        told->correct += predicted[i] == expected[i];
    return TENSOR_OK;
}

static tensor_status note_writes(struct evaluation *v, int64_t batch, struct fl_slot *last);

/* last: the slots of the tensors, whose writes are noted; NULL: they are not. */
static tensor_status evaluate_batches(struct evaluation *v, int64_t first, int64_t end, struct fl_slot *last) {
    TRY(data_loader_seek(v->run->test, 0, first));
    for (int64_t number = first; number < end; number++) {
        data_batch batch;
        TRY(data_loader_next(&batch, v->run->test));
        TRY(evaluate_batch(v, &batch, number));
        if (last)
            TRY(note_writes(v, number, last));
    }
    return TENSOR_OK;
}

static void take_result(const struct evaluation *v) {
    nn_train_result *result = v->run->result;
    double loss = 0;
    int64_t labels = 0, correct = 0;
    for (int64_t b = 0; b < v->batches; b++) {
        loss += told_of(v, b)->loss * (double)told_of(v, b)->labels;
        labels += told_of(v, b)->labels;
        correct += told_of(v, b)->correct;
    }
    result->predicted_count = labels;
    result->test_loss = loss / (double)labels;
    result->test_accuracy = (double)correct / (double)labels;
}

/* --- writes ------------------------------------------------------------------------------------------------------- */

static bool has_exponent(const tensor *t) {
    return tensor_format_is_shared(tensor_format_of(t));
}

/* What the last batch has written of a tensor. shared: it has an exponent, which stays as it was where nothing asks for
 * another, so that an Inf depends on it. */
static struct written write_between(const struct fl_slot *before, const struct fl_slot *now, bool shared) {
    const struct autoflex *a = &before->autoflex, *b = &now->autoflex;
    const tensor_stats *s = &now->last;
    struct written w = {.stats = {.maximum = s->maximum,
                                  .gamma = s->gamma,
                                  .saturated = s->saturated,
                                  .flushed = s->flushed,
                                  .nonfinite = s->nonfinite}};
    const bool recorded = a->next != b->next || a->overflows != b->overflows || a->zero_writes != b->zero_writes;
    const bool inherits = shared && !fl_says_something(s->maximum) && (s->nonfinite || s->maximum > 0);
    w.how = now->writes == before->writes                  ? NOT_WRITTEN
            : now->writes > before->writes + 1 || inherits ? OTHER
            : recorded                                     ? RECORDED
                                                           : LOADED;
    return w;
}

static tensor_status note_writes(struct evaluation *v, int64_t batch, struct fl_slot *last) {
    const nn_graph *g = v->run->g;
    if (g->device != tensor_device_at(0)) {
        TRY(fl_taken(g, fl_slot_copies_begin(g->device, &v->copies)));
        TRY(fl_taken(g, fl_slot_copies_end(g->device, v->copies)));
    }
    for (int i = 0; i < v->tensors; i++) {
        const struct fl_slot *now = fl_slot_then(v->copies, v->t[i]);
        written_of(v, batch)[i] = write_between(&last[i], now, has_exponent(v->t[i]));
        last[i] = *now;
    }
    return TENSOR_OK;
}

/* Makes a write again, without elements. */
static void write_again(struct fl_slot *slot, const tensor *t, const struct written *written) {
    const struct fl_stats *stats = &written->stats;
    struct fl_write_state w;
    fl_write_begin(&w, &slot->autoflex, has_exponent(t), written->how == LOADED ? FL_WRITE_LOAD : FL_WRITE_FREE);
    while (w.next != FL_WRITE_DONE)
        fl_write_attempted(&w, &slot->autoflex, stats->maximum);
    fl_write_end(&w, &slot->autoflex, stats->gamma, stats->maximum);
    fl_slot_written(slot, stats, tensor_count(t));
}

/* --- ranks -------------------------------------------------------------------------------------------------------- */

/* Tensors that are written step by step depend on the exponent that is there (core/queue/sequence_rules.h). */
static bool is_shared(const struct run *run) {
    const nn_graph *g = run->g;
    bool shared = nn_group_size(g->group) > 1;
    for (int i = 0; i < g->count && shared; i++)
        for (int k = 0; k < g->nodes[i].outputs; k++) {
            const char *group = g->nodes[i].layer->group;
            const struct fl_value *y = &g->values[g->nodes[i].output[k].y];
            shared = shared && !(group && !strcmp(group, "recurrent") && y->evaluate && has_exponent(y->evaluate));
        }
    return shared;
}

static tensor_status list_tensors(struct evaluation *v) {
    const nn_graph *g = v->run->g;
    const size_t most = (size_t)g->value_count + 1;
    v->t = fl_alloc_zero(most * sizeof *v->t);
    v->before = fl_alloc_zero(2 * most * sizeof *v->before);
    if (!v->t || !v->before)
        return fl_fail(TENSOR_E_MEMORY, "train: no memory for the tensors of an evaluation");
    for (int i = 0; i < g->value_count; i++)
        if (fl_is_stored(g, i) && g->values[i].evaluate)
            v->t[v->tensors++] = g->values[i].evaluate;
    return TENSOR_OK;
}

static tensor_status restore_slots(const struct evaluation *v) {
    for (int i = 0; i < v->tensors; i++)
        TRY(fl_state_set(v->t[i], false, &v->before[i]));
    return TENSOR_OK;
}

static tensor_status make_room(struct evaluation *v) {
    v->told_bytes = sizeof(struct told) + (size_t)v->tensors * sizeof(struct written);
    v->told = fl_alloc_zero((size_t)v->batches * v->told_bytes);
    return v->told
               ? TENSOR_OK
               : fl_fail(TENSOR_E_MEMORY, "train: no memory for an evaluation of %lld batches", (long long)v->batches);
}

/* Computes this rank's part. */
static tensor_status evaluate_part(struct evaluation *v, int64_t first, int64_t end) {
    TRY(list_tensors(v));
    TRY(make_room(v));
    struct fl_slot *last = v->before + v->tensors;
    for (int i = 0; i < v->tensors; i++) {
        TRY(fl_state_get(v->t[i], false, &v->before[i]));
        last[i] = v->before[i];
    }
    return evaluate_batches(v, first, end, last);
}

/* Whether all writes can be made again. */
static bool is_noted(const struct evaluation *v) {
    bool noted = true;
    for (int64_t b = 0; b < v->batches; b++)
        for (int i = 0; i < v->tensors; i++)
            noted = noted && written_of(v, b)[i].how != OTHER;
    return noted;
}

static tensor_status write_all_again(const struct evaluation *v) {
    for (int64_t b = 0; b < v->batches; b++)
        for (int i = 0; i < v->tensors; i++)
            if (written_of(v, b)[i].how != NOT_WRITTEN)
                write_again(&v->before[i], v->t[i], &written_of(v, b)[i]);
    return restore_slots(v);
}

static tensor_status gather(const struct evaluation *v, const char *what, int64_t size) {
    nn_group *group = v->run->g->group;
    struct fl_piece told[FL_MOST_SHARDS], predicted[FL_MOST_SHARDS];
    for (int r = 0; r < size; r++) {
        const int64_t first = v->batches * r / size, end = v->batches * (r + 1) / size,
                      labels = end == v->batches ? v->run->test_labels : end * v->labels;
        told[r] = (struct fl_piece){v->told + (size_t)first * v->told_bytes, (end - first) * (int64_t)v->told_bytes};
        predicted[r] = (struct fl_piece){v->run->result->predicted + first * v->labels,
                                         end > first ? (labels - first * v->labels) * (int64_t)sizeof(int32_t) : 0};
    }
    TRY(fl_group_gather(group, what, told));
    return fl_group_gather(group, what, predicted);
}

/* Every rank computes a part, and has the result and the slots of all. */
static tensor_status evaluate_together(struct evaluation *v) {
    nn_group *group = v->run->g->group;
    const int size = nn_group_size(group), rank = nn_group_rank(group);
    const int64_t first = v->batches * rank / size, end = v->batches * (rank + 1) / size;
    char what[FL_GROUP_WHAT];
    snprintf(what, sizeof what, "the evaluation after %llu steps", (unsigned long long)v->run->g->steps);
    fl_group_fresh(group);
    TRY(fl_group_await(group, what, evaluate_part(v, first, end)));
    TRY(gather(v, what, size));
    const bool noted = is_noted(v);
    if (fl_verbose())
        fprintf(stderr, "flexlab: evaluation: rank %d of %d has computed batches %lld to %lld of %lld%s\n", rank, size,
                (long long)first + 1, (long long)end, (long long)v->batches, noted ? "" : ", and computes all");
    if (noted)
        return write_all_again(v);
    TRY(restore_slots(v));
    return evaluate_batches(v, 0, v->batches, NULL);
}

static tensor_status evaluate_alone(struct evaluation *v) {
    const nn_graph *g = v->run->g;
    TRY(make_room(v));
    if (g->objective.right && !g->objective.ignores &&
        !(v->noted = tensor_device_allocate(g->device, predicted_place(v, v->batches))))
        return tensor_error_status();
    TRY(evaluate_batches(v, 0, v->batches, NULL));
    return v->noted ? fetch_noted(v) : TENSOR_OK;
}

static tensor_status evaluate(struct evaluation *v) {
    const struct run *run = v->run;
    v->batches = data_loader_batches(run->test);
    v->labels = run->g->batch * fl_labels_each(run->g);
    TRY(is_shared(run) ? evaluate_together(v) : evaluate_alone(v));
    take_result(v);
    return TENSOR_OK;
}

tensor_status fl_training_evaluate(struct run *run) {
    struct evaluation v = {.run = run};
    const tensor_status status = run->test ? evaluate(&v) : TENSOR_OK;
    fl_slot_copies_free(run->g->device, v.copies);
    tensor_device_release(run->g->device, v.noted);
    fl_group_free_memory(run->g->group, v.told);
    fl_free(v.t);
    fl_free(v.before);
    return status;
}
