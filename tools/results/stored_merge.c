/* stored_merge.c - several folders of results as one comparison. */
#include "results/stored.h"
#include "base/text.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *folder_of(const struct stored *s) {
    return s->x.origins[0].folder;
}

/* Frees both values. */
static int differ(const struct stored *a, const struct stored *b, const char *what, char *in_a, char *in_b) {
    int status = text_failed("%s and %s are not runs of one experiment: %s is %s in the first and %s in the second",
                             folder_of(a), folder_of(b), what, in_a, in_b);
    free(in_a);
    free(in_b);
    return status;
}

/* Checks all that must be equal if numbers of both are to be compared. */
static int check_same_training(const struct stored *a, const struct stored *b) {
    const struct experiment *x = &a->x, *y = &b->x;
    const struct settings *s = &a->settings, *t = &b->settings;
    const struct {
        const char *what, *in_a, *in_b;
    } texts[] = {{"model", s->model, t->model},
                 {"file of initial weights", s->weights ? s->weights : "none", t->weights ? t->weights : "none"},
                 {"data", s->data, t->data},
                 {"batchnorm", s->batchnorm, t->batchnorm},
                 {"schedule", s->schedule, t->schedule},
                 {"optimizer", s->optimiser_text, t->optimiser_text}};
    const struct {
        const char *what;
        double in_a, in_b;
    } numbers[] = {{"number of training images", (double)x->data.train, (double)y->data.train},
                   {"number of test images", (double)x->data.test, (double)y->data.test},
                   {"image height", x->data.height, y->data.height},
                   {"image width", x->data.width, y->data.width},
                   {"number of channels", x->data.channels, y->data.channels},
                   {"number of classes", x->data.classes, y->data.classes},
                   {"context", x->data.context, y->data.context},
                   {"epochs", (double)s->epochs, (double)t->epochs},
                   {"batch", (double)s->batch, (double)t->batch},
                   {"shards", (double)s->shards, (double)t->shards},
                   {"steps", (double)x->steps, (double)y->steps},
                   {"steps of an epoch", (double)x->steps_per_epoch, (double)y->steps_per_epoch},
                   {"lr", x->rate, y->rate},
                   {"warmup", s->warmup, t->warmup},
                   {"momentum", s->momentum, t->momentum},
                   {"weight-decay", s->weight_decay, t->weight_decay},
                   {"augment", x->augment, y->augment},
                   {"average-last", (double)s->average_last, (double)t->average_last},
                   {"steps of a mean loss", x->window, y->window}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (strcmp(texts[i].in_a, texts[i].in_b) != 0)
            return differ(a, b, texts[i].what, text_format("'%s'", texts[i].in_a), text_format("'%s'", texts[i].in_b));
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (numbers[i].in_a != numbers[i].in_b)
            return differ(a, b, numbers[i].what, text_format("%.10g", numbers[i].in_a),
                          text_format("%.10g", numbers[i].in_b));
    return STATUS_OK;
}

static int find_series(const struct experiment *x, const char *label) {
    for (int i = 0; i < x->series_count; i++)
        if (!strcmp(x->series[i].label, label))
            return i;
    return -1;
}

static int find_seed(const struct experiment *x, uint64_t seed) {
    for (int i = 0; i < x->seed_count; i++)
        if (x->seeds[i] == seed)
            return i;
    return -1;
}

static int check_same_format(const struct stored *a, const struct stored *b) {
    for (int i = 0; i < a->x.series_count; i++) {
        const struct series *s = &a->x.series[i];
        int k = find_series(&b->x, s->label);
        const struct series *t = k < 0 ? s : &b->x.series[k];
        if (strcmp(s->device, t->device) != 0) {
            char *where = text_format("the device of %s", s->label);
            const int differs = differ(a, b, where, text_format("'%s'", s->device), text_format("'%s'", t->device));
            free(where);
            return differs;
        }
        if (s->predictor != t->predictor) {
            char *predictor = text_format("the predictor of %s", s->label);
            const int differs = differ(a, b, predictor, text_format("'%s'", s->predictor ? s->predictor : "none"),
                                       text_format("'%s'", t->predictor ? t->predictor : "none"));
            free(predictor);
            return differs;
        }
        if (strcmp(s->policy, t->policy) != 0) {
            char *policy = text_format("the policy of %s", s->label);
            const int differs = differ(a, b, policy, text_format("'%s'", s->policy), text_format("'%s'", t->policy));
            free(policy);
            return differs;
        }
        if (strcmp(s->loss_scale, t->loss_scale) != 0) {
            char *scale = text_format("the loss scale of %s", s->label);
            const int differs =
                differ(a, b, scale, text_format("'%s'", s->loss_scale), text_format("'%s'", t->loss_scale));
            free(scale);
            return differs;
        }
        if (s->no_master != t->no_master) { /* of a policy with rules: --master none */
            char *master = text_format("the wide copy of the weights of %s", s->label);
            const int differs = differ(a, b, master, text_format(s->no_master ? "left out" : "kept"),
                                       text_format(t->no_master ? "left out" : "kept"));
            free(master);
            return differs;
        }
    }
    return STATUS_OK;
}

static bool same_number(double a, double b) {
    return a == b || (isnan(a) && isnan(b));
}

/* Both runs are finished: if their numbers are the same, they are one run trained twice. */
static int check_same_run(const struct stored *a, const struct stored *b, const struct run *one,
                          const struct run *two) {
    const nn_train_result *r = &one->result, *q = &two->result;
    bool same =
        same_number(r->train_loss, q->train_loss) && same_number(r->last_loss, q->last_loss) &&
        same_number(r->test_loss, q->test_loss) && r->saturated == q->saturated && r->flushed == q->flushed &&
        r->steps == q->steps && r->predicted_count == q->predicted_count &&
        (!r->predicted_count || !memcmp(one->stored, two->stored, (size_t)r->predicted_count * sizeof *one->stored));
    if (same)
        return STATUS_OK;
    return text_failed("%s and %s both hold %s seed %llu, with other results (last loss %.9g and %.9g)", folder_of(a),
                       folder_of(b), a->x.series[one->series].label, (unsigned long long)one->seed, r->last_loss,
                       q->last_loss);
}

static int check_same_runs(const struct stored *a, const struct stored *b) {
    for (int i = 0; i < a->x.run_count; i++) {
        const struct run *run = &a->x.runs[i];
        int series = find_series(&b->x, a->x.series[run->series].label), seed = find_seed(&b->x, run->seed);
        const struct run *other = series < 0 || seed < 0 ? NULL : experiment_run(&b->x, seed, series);
        int status = other && run->finished && other->finished ? check_same_run(a, b, run, other) : STATUS_OK;
        if (status)
            return status;
    }
    return STATUS_OK;
}

/* --- joining -------------------------------------------------------------------------------------------------------
 */

static int by_size(const void *a, const void *b) {
    uint64_t one = *(const uint64_t *)a, two = *(const uint64_t *)b;
    return one < two ? -1 : one > two;
}

static void take_series(struct experiment *into, struct experiment *from) {
    into->series = text_realloc(into->series, (size_t)(into->series_count + from->series_count), sizeof *into->series);
    for (int i = 0; i < from->series_count; i++)
        if (find_series(into, from->series[i].label) < 0) {
            struct series *s = &into->series[into->series_count++];
            *s = from->series[i];
            s->label = text_format("%s", from->series[i].label);
            s->backend = text_format("%s", from->series[i].backend);
            s->device = text_format("%s", from->series[i].device);
            s->policy = text_format("%s", from->series[i].policy);
            s->loss_scale = text_format("%s", from->series[i].loss_scale);
        }
}

static void take_seeds(struct experiment *into, const struct experiment *from) {
    into->seeds = text_realloc(into->seeds, (size_t)(into->seed_count + from->seed_count), sizeof *into->seeds);
    for (int i = 0; i < from->seed_count; i++)
        if (find_seed(into, from->seeds[i]) < 0)
            into->seeds[into->seed_count++] = from->seeds[i];
    qsort(into->seeds, (size_t)into->seed_count, sizeof *into->seeds, by_size);
}

/* A finished run is better than a stopped one, a longer one than a shorter one, and any than one that failed. */
static bool is_better(const struct run *run, const struct run *other) {
    if (run->finished || other->finished)
        return !other->finished;
    if (run->failure || other->failure)
        return !other->stopped && !other->failure;
    return run->stopped && (!other->stopped || run->result.steps > other->result.steps);
}

/* Moves the results of a run of `from` to its place in `into`, unless the run there is as good. */
static void move_run(struct experiment *into, const struct experiment *from, struct run *run, int first_origin) {
    int series = find_series(into, from->series[run->series].label);
    struct run *place = experiment_run(into, find_seed(into, run->seed), series), empty = {.series = run->series};
    bool planned = place->planned || run->planned;
    place->planned = planned;
    if (!is_better(run, place))
        return;
    run_clear(place);
    *place = *run;
    place->planned = planned;
    place->series = series;
    place->origin += first_origin;
    empty.seed = run->seed;
    *run = empty;
}

int stored_merge(struct stored *into, struct stored *other) {
    int status = check_same_training(into, other);
    if (status == STATUS_OK)
        status = check_same_format(into, other);
    if (status == STATUS_OK)
        status = check_same_runs(into, other);
    if (status != STATUS_OK)
        return status;
    struct experiment *x = &into->x, *y = &other->x, before = *x;
    int first_origin = x->origin_count;
    take_series(x, y);
    take_seeds(x, y);
    x->origins = text_realloc(x->origins, (size_t)(x->origin_count + y->origin_count), sizeof *x->origins);
    for (int i = 0; i < y->origin_count; i++)
        x->origins[x->origin_count++] = y->origins[i];
    y->origin_count = 0;
    before.series = x->series; /* the same formats first, in the same order */
    experiment_make_runs(x);
    for (int i = 0; i < x->run_count; i++)
        x->runs[i].planned = false;
    for (int i = 0; i < before.run_count; i++) {
        move_run(x, &before, &before.runs[i], 0);
        run_clear(&before.runs[i]); /* one without a result was not moved */
    }
    for (int i = 0; i < y->run_count; i++)
        move_run(x, y, &y->runs[i], first_origin);
    free(before.runs);
    if (y->trace_every && (!x->trace_every || y->trace_every < x->trace_every))
        x->trace_every = y->trace_every;
    x->stopped = experiment_finished(x) < experiment_planned(x);
    return STATUS_OK;
}
