/* nn_resume.c - checkpoints of a training: settings and data that a resumed training must share, position in the data,
 * sums of the epoch, losses of the last steps, predictions, trace, notes of the caller. */
#include "nn/checkpoints/nn_checkpoint.h"
#include "nn/telemetry/nn_trace.h"
#include "nn/telemetry/nn_telemetry.h"
#include "nn/training/nn_training.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/base/text.h"
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- files -------------------------------------------------------------------------------------------------------- */

static const char resume_name[] = "resume.safetensors", best_name[] = "best.safetensors",
                  last_name[] = "last.safetensors";

/* To be freed with fl_free. */
static tensor_status path_in(const char *folder, const char *name, char **path) {
    *path = fl_format_name("%s/%s", folder, name);
    return *path ? TENSOR_OK : fl_fail(TENSOR_E_MEMORY, "train: no memory for the path of a checkpoint");
}

tensor_status fl_training_check_folder(const struct run *run) {
    struct stat about;
    const char *folder = run->config->checkpoint;
    if (!folder)
        return TENSOR_OK;
    if (stat(folder, &about))
        return fl_fail(TENSOR_E_IO, "train: the folder of checkpoints %s: %s", folder, strerror(errno));
    if (!S_ISDIR(about.st_mode))
        return fl_fail(TENSOR_E_IO, "train: %s is a file, expected a folder for checkpoints", folder);
    return access(folder, R_OK | W_OK | X_OK)
               ? fl_fail(TENSOR_E_IO, "train: the folder of checkpoints %s: %s", folder, strerror(errno))
               : TENSOR_OK;
}

/* --- data --------------------------------------------------------------------------------------------------------- */

void fl_training_know_data(struct run *run) {
    if (!run->config->checkpoint && !run->config->resume)
        return;
    run->train_hash = data_hash(run->train_set, true);
    run->test_hash = data_hash(run->test_set, true);
}

/* --- settings ----------------------------------------------------------------------------------------------------- */

static const char data_key[] = "training.data", test_data_key[] = "training.test_data";

enum { SETTINGS = 23, SETTING_ROOM = 160 };

struct settings {
    nn_note list[SETTINGS];
    char text[SETTINGS][SETTING_ROOM];
    int count;
};

static size_t format(char *text, size_t room, const char *how, ...) __attribute__((format(printf, 3, 4)));

static size_t format(char *text, size_t room, const char *how, ...) {
    va_list arguments;
    va_start(arguments, how);
    const int length = fl_format(text, room, how, arguments);
    va_end(arguments);
    return (size_t)length < room ? (size_t)length : room - 1;
}

#define ADD(s, what, ...)                                                                                              \
    do {                                                                                                               \
        format((s)->text[(s)->count], SETTING_ROOM, __VA_ARGS__);                                                      \
        (s)->list[(s)->count] = (nn_note){what, (s)->text[(s)->count]};                                                \
        (s)->count++;                                                                                                  \
    } while (0)

static void add_reals(struct settings *s, const char *key, const double *values, int count) {
    char *text = s->text[s->count];
    size_t used = 0;
    text[0] = 0;
    for (int i = 0; i < count; i++)
        used += format(text + used, SETTING_ROOM - used, "%s%.17g", i ? " " : "", values[i]);
    s->list[s->count++] = (nn_note){key, text};
}

/* The properties that a training must share with the one that it resumes, as text. */
static void list_settings(struct settings *s, const struct run *run) {
    const nn_train_config *c = run->config;
    const data_set *train = run->train_set, *test = run->test_set;
    s->count = 0;
    ADD(s, "training.model", "%s", c->model ? c->model : "a network of the program's own");
    ADD(s, "training.epochs", "%d", c->epochs);
    ADD(s, "training.rate", "%.17g", c->rate);
    ADD(s, "training.schedule", "%s", c->schedule);
    ADD(s, "training.warmup_epochs", "%.17g", c->warmup_epochs);
    ADD(s, "training.augment", "%d", c->augment);
    ADD(s, "training.max_steps", "%lld", (long long)c->max_steps);
    ADD(s, "training.average_last", "%d", c->average_last);
    ADD(s, "training.trace_every", "%d", c->trace_path ? c->trace_every : 0);
    ADD(s, "training.images", "%lld", (long long)data_count(train));
    ADD(s, "training.test_images", "%lld", test ? (long long)data_count(test) : 0LL);
    ADD(s, "training.height", "%d", data_height(train));
    ADD(s, "training.width", "%d", data_width(train));
    ADD(s, "training.channels", "%d", data_channels(train));
    ADD(s, "training.classes", "%d", data_classes(train));
    add_reals(s, "training.mean", run->mean, data_channels(train));
    add_reals(s, "training.deviation", run->deviation, data_channels(train));
    ADD(s, data_key, "%016llx", (unsigned long long)run->train_hash);
    ADD(s, test_data_key, "%016llx", (unsigned long long)run->test_hash);
    if (c->telemetry_every)
        ADD(s, "training.telemetry", "%lld %016llx", (long long)c->telemetry_every,
            (unsigned long long)nn_name_key(nn_name_key(0, c->telemetry_pattern ? c->telemetry_pattern : "*"),
                                            c->telemetry_shadows ? c->telemetry_shadows : ""));
    if (!run->context)
        return;
    ADD(s, "training.context", "%d", run->context);
    ADD(s, "training.vocabulary", "%016llx", (unsigned long long)data_vocabulary(train));
}

static tensor_status refuse_setting(const struct fl_safetensors *s, const struct run *run, const nn_note *own,
                                    const char *found) {
    const bool tested = !strcmp(own->key, test_data_key);
    if (tested || !strcmp(own->key, data_key))
        return fl_fail(TENSOR_E_DATA,
                       "checkpoint: %s: '%s' is '%.120s', this training has '%s': %s%s others than those that it was "
                       "begun with",
                       s->path, own->key, found, own->value, tested ? "test " : "",
                       run->context ? "tokens are" : "images or their labels, or their order, are");
    return fl_fail(TENSOR_E_DATA, "checkpoint: %s: '%s' is '%.120s', this training has '%s'", s->path, own->key, found,
                   own->value);
}

static tensor_status check_settings(const struct fl_safetensors *s, const struct run *run) {
    struct settings own;
    list_settings(&own, run);
    for (int i = 0; i < own.count; i++) {
        const char *found = fl_safetensors_note(s, own.list[i].key);
        if (!found)
            return fl_fail(TENSOR_E_DATA,
                           "checkpoint: %s: its metadata have no '%s': no training can be resumed from it", s->path,
                           own.list[i].key);
        if (strcmp(found, own.list[i].value) != 0)
            return refuse_setting(s, run, &own.list[i], found);
    }
    return TENSOR_OK;
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

static tensor_status write_file(const struct run *run, const char *name, const struct fl_extra *extras, int count) {
    struct settings own;
    char *path;
    list_settings(&own, run);
    const int given = (int)run->config->note_count;
    nn_note *notes = fl_alloc((size_t)(own.count + given) * sizeof *notes);
    if (!notes)
        return fl_fail(TENSOR_E_MEMORY, "train: no memory for the notes of a checkpoint");
    memcpy(notes, own.list, (size_t)own.count * sizeof *notes);
    if (given)
        memcpy(notes + own.count, run->config->notes, (size_t)given * sizeof *notes);
    tensor_status status = path_in(run->config->checkpoint, name, &path);
    if (!status)
        status = fl_checkpoint_write(run->g, path, notes, own.count + given, extras, count);
    fl_free(path);
    fl_free(notes);
    return status;
}

static const char losses_key[] = FL_TRAINING "losses", whole_key[] = FL_TRAINING "position",
                  real_key[] = FL_TRAINING "sums", predicted_key[] = FL_TRAINING "predicted",
                  trace_key[] = FL_TRAINING "trace", trace_whole_key[] = FL_TRAINING "trace.counts",
                  trace_real_key[] = FL_TRAINING "trace.maxima", caller_key[] = FL_TRAINING "caller",
                  telemetry_key[] = FL_TRAINING "telemetry", telemetry_csv_key[] = FL_TRAINING "telemetry.table",
                  telemetry_whole_key[] = FL_TRAINING "telemetry.counts",
                  telemetry_real_key[] = FL_TRAINING "telemetry.maxima", first_key[] = FL_TRAINING "nonfinite",
                  first_real_key[] = FL_TRAINING "nonfinite.maximum";

enum { WHOLE = 8, REAL = 8 };

tensor_status fl_training_keep(struct run *run, const struct fl_progress *at) {
    const nn_train_result *r = run->result;
    const nn_train_events *events = run->events;
    if (!run->config->checkpoint)
        return TENSOR_OK;
    const int64_t whole[WHOLE] = {at->epoch, at->batch, at->done,        at->correct,
                                  r->steps,  r->images, run->best.epoch, r->predicted_count};
    const double real[REAL] = {at->loss_sum,     at->seconds,        r->train_loss,  r->test_loss,
                               r->test_accuracy, run->best.accuracy, run->best.loss, r->seconds};
    struct fl_trace_kept trace = {0};
    struct fl_telemetry_kept telemetry = {0};
    size_t bytes = 0;
    const void *caller = events && events->keep ? events->keep(events->context, &bytes) : NULL;
    int64_t first[FL_FIRST_WHOLE];
    double first_maximum;
    struct fl_extra extras[14] = {{whole_key, FL_STORED_I64, WHOLE, whole},
                                  {real_key, FL_STORED_F64, REAL, real},
                                  {losses_key, FL_STORED_F64, run->recent_size, run->recent},
                                  {predicted_key, FL_STORED_I32, r->predicted_count, r->predicted}};
    int count = 4;
    if (caller)
        extras[count++] = (struct fl_extra){caller_key, FL_STORED_U8, (int64_t)bytes, caller};
    if (run->first.step) {
        fl_training_first_get(run, first, &first_maximum);
        extras[count++] = (struct fl_extra){first_key, FL_STORED_I64, FL_FIRST_WHOLE, first};
        extras[count++] = (struct fl_extra){first_real_key, FL_STORED_F64, 1, &first_maximum};
    }
    tensor_status status = run->trace ? fl_trace_keep(run->trace, run->g, &trace) : TENSOR_OK;
    if (run->trace) {
        extras[count++] = (struct fl_extra){trace_key, FL_STORED_U8, trace.bytes, trace.text};
        extras[count++] = (struct fl_extra){trace_whole_key, FL_STORED_I64, trace.whole_count, trace.whole};
        extras[count++] = (struct fl_extra){trace_real_key, FL_STORED_F64, trace.real_count, trace.real};
    }
    if (!status && run->telemetry)
        status = fl_telemetry_keep(run->telemetry, &telemetry);
    if (run->telemetry) {
        extras[count++] = (struct fl_extra){telemetry_key, FL_STORED_U8, telemetry.json_bytes, telemetry.json};
        extras[count++] = (struct fl_extra){telemetry_csv_key, FL_STORED_U8, telemetry.csv_bytes, telemetry.csv};
        extras[count++] = (struct fl_extra){telemetry_whole_key, FL_STORED_I64, telemetry.whole_count, telemetry.whole};
        extras[count++] = (struct fl_extra){telemetry_real_key, FL_STORED_F64, telemetry.real_count, telemetry.real};
    }
    if (!status)
        status = write_file(run, resume_name, extras, count);
    fl_telemetry_kept_clear(&telemetry);
    fl_trace_kept_clear(&trace);
    return status;
}

/* NaN is more than any loss. */
static bool is_smaller(double loss, double than) {
    return loss < than || (isnan(than) && !isnan(loss));
}

/* Whether the first is better. */
static bool is_better(double accuracy, double loss, const struct fl_best *than) {
    if (!than->epoch || accuracy != than->accuracy)
        return !than->epoch || accuracy > than->accuracy;
    return is_smaller(loss, than->loss);
}

tensor_status fl_training_keep_best(struct run *run, int epoch) {
    const nn_train_result *r = run->result;
    const bool better = run->context && run->best.epoch ? is_smaller(r->test_loss, run->best.loss)
                                                        : is_better(r->test_accuracy, r->test_loss, &run->best);
    if (!run->config->checkpoint || run->config->resume_alone || !run->test || !better)
        return TENSOR_OK;
    run->best = (struct fl_best){epoch, r->test_accuracy, r->test_loss};
    return write_file(run, best_name, NULL, 0);
}

tensor_status fl_training_keep_last(const struct run *run) {
    const bool wanted = run->config->checkpoint && !run->config->resume_alone;
    return wanted ? write_file(run, last_name, NULL, 0) : TENSOR_OK;
}

/* --- resuming ----------------------------------------------------------------------------------------------------- */

static tensor_status set_position(struct run *run, const struct fl_safetensors *s, const int64_t *whole,
                                  const double *real) {
    nn_train_result *r = run->result;
    const int64_t epoch = whole[0], batch = whole[1], done = whole[2], steps = whole[4];
    const int64_t tested = run->test_labels;
    const bool good = epoch >= 1 && epoch <= run->config->epochs + 1 && batch >= 0 && batch <= run->epoch_steps &&
                      done >> 1 == 0 && whole[3] >= 0 && whole[3] <= batch * run->g->rows * run->g->shards &&
                      steps >= 0 && (uint64_t)steps == nn_steps(run->g) && steps <= run->last_step &&
                      (done ? steps == run->last_step : steps == (epoch - 1) * run->epoch_steps + batch) &&
                      whole[5] == steps * run->config->network.batch && whole[6] >= 0 && whole[6] <= epoch &&
                      (whole[7] == 0 || whole[7] == tested);
    if (!good)
        return fl_fail(TENSOR_E_DATA,
                       "checkpoint: %s: epoch %lld, batch %lld, step %lld (the network: %llu), %lld images, %lld "
                       "predictions: not a position in a training of %d epochs of %lld steps with %lld test labels",
                       s->path, (long long)epoch, (long long)batch, (long long)steps,
                       (unsigned long long)nn_steps(run->g), (long long)whole[5], (long long)whole[7],
                       run->config->epochs, (long long)run->epoch_steps, (long long)tested);
    run->at = (struct fl_progress){(int)epoch, batch, real[0], real[1], whole[3], done};
    run->best = (struct fl_best){(int)whole[6], real[5], real[6]};
    run->begun = r->steps = steps;
    r->images = whole[5];
    r->predicted_count = whole[7];
    r->train_loss = real[2];
    r->test_loss = real[3];
    r->test_accuracy = real[4];
    r->seconds = real[7];
    return TENSOR_OK;
}

static tensor_status read_position(struct run *run, const struct fl_safetensors *s) {
    void *whole, *real = NULL;
    int64_t count;
    tensor_status status = fl_checkpoint_extra(s, whole_key, FL_STORED_I64, WHOLE, &whole, &count);
    if (!status)
        status = fl_checkpoint_extra(s, real_key, FL_STORED_F64, REAL, &real, &count);
    if (!status)
        status = set_position(run, s, whole, real);
    fl_free(whole);
    fl_free(real);
    return status;
}

static tensor_status read_lists(struct run *run, const struct fl_safetensors *s) {
    void *values;
    int64_t count;
    TRY(fl_checkpoint_extra(s, losses_key, FL_STORED_F64, run->recent_size, &values, &count));
    run->recent = values;
    TRY(fl_checkpoint_extra(s, predicted_key, FL_STORED_I32, run->result->predicted_count, &values, &count));
    const int32_t *classes = values;
    tensor_status status = TENSOR_OK;
    for (int64_t i = 0; i < count && !status; i++)
        if (classes[i] < 0 || classes[i] >= run->g->classes)
            status = fl_fail(TENSOR_E_DATA, "checkpoint: %s: prediction %lld is %d, expected 0 to %d", s->path,
                             (long long)i, classes[i], run->g->classes - 1);
    if (!status && count)
        memcpy(run->result->predicted, classes, (size_t)count * sizeof *classes);
    fl_free(values);
    return status;
}

static tensor_status read_trace(struct run *run, const struct fl_safetensors *s) {
    struct fl_trace_kept kept = {0};
    void *text = NULL, *whole = NULL, *real = NULL;
    if (!run->trace)
        return TENSOR_OK;
    tensor_status status = fl_checkpoint_extra(s, trace_key, FL_STORED_U8, -1, &text, &kept.bytes);
    if (!status)
        status = fl_checkpoint_extra(s, trace_whole_key, FL_STORED_I64, -1, &whole, &kept.whole_count);
    if (!status)
        status = fl_checkpoint_extra(s, trace_real_key, FL_STORED_F64, -1, &real, &kept.real_count);
    kept.text = text;
    kept.whole = whole;
    kept.real = real;
    if (!status)
        status = fl_trace_resume(run->trace, run->g, &kept);
    fl_trace_kept_clear(&kept);
    return status;
}

static tensor_status read_telemetry(struct run *run, const struct fl_safetensors *s) {
    struct fl_telemetry_kept kept = {0};
    void *json = NULL, *csv = NULL, *whole = NULL, *real = NULL;
    if (!run->telemetry)
        return TENSOR_OK;
    tensor_status status = fl_checkpoint_extra(s, telemetry_key, FL_STORED_U8, -1, &json, &kept.json_bytes);
    if (!status)
        status = fl_checkpoint_extra(s, telemetry_csv_key, FL_STORED_U8, -1, &csv, &kept.csv_bytes);
    if (!status)
        status = fl_checkpoint_extra(s, telemetry_whole_key, FL_STORED_I64, -1, &whole, &kept.whole_count);
    if (!status)
        status = fl_checkpoint_extra(s, telemetry_real_key, FL_STORED_F64, -1, &real, &kept.real_count);
    kept.json = json;
    kept.csv = csv;
    kept.whole = whole;
    kept.real = real;
    if (!status)
        status = fl_telemetry_resume(run->telemetry, &kept);
    fl_telemetry_kept_clear(&kept);
    return status;
}

/* Reads the first NaN or Inf, which is missing if none was found, and in files of older versions. */
static tensor_status read_first(struct run *run, const struct fl_safetensors *s) {
    void *whole, *real = NULL;
    int64_t count;
    if (!fl_safetensors_find(s, first_key))
        return TENSOR_OK;
    tensor_status status = fl_checkpoint_extra(s, first_key, FL_STORED_I64, FL_FIRST_WHOLE, &whole, &count);
    if (!status)
        status = fl_checkpoint_extra(s, first_real_key, FL_STORED_F64, 1, &real, &count);
    if (!status)
        status = fl_training_first_set(run, s->path, whole, *(const double *)real);
    fl_free(whole);
    fl_free(real);
    return status;
}

static tensor_status give_caller(const struct run *run, const struct fl_safetensors *s) {
    const nn_train_events *events = run->events;
    void *bytes;
    int64_t count;
    if (!events || !events->resume || !fl_safetensors_find(s, caller_key))
        return TENSOR_OK;
    TRY(fl_checkpoint_extra(s, caller_key, FL_STORED_U8, -1, &bytes, &count));
    const int refused = events->resume(events->context, bytes, (size_t)count);
    fl_free(bytes);
    return refused ? fl_fail(TENSOR_E_DATA, "checkpoint: %s: '%s', %lld bytes, is not the state of the program",
                             s->path, caller_key, (long long)count)
                   : TENSOR_OK;
}

/* Copies all of an open file to another one. */
static tensor_status copy_all(const struct fl_safetensors *s, struct fl_safetensors_out *o, char *bytes) {
    for (int i = 0; i < s->note_count; i++)
        if (strcmp(s->notes[i].key, FL_CHECKSUM) != 0)
            TRY(fl_safetensors_add_note(o, s->notes[i].key, s->notes[i].value));
    for (int i = 0; i < s->count; i++) {
        const struct fl_stored_tensor *t = &s->tensors[i];
        TRY(fl_safetensors_read(s, t, bytes + t->begin));
        TRY(fl_safetensors_add(o, t->name, t->type, t->ndim, t->dim, bytes + t->begin));
    }
    return TENSOR_OK;
}

static tensor_status copy_file(const char *from, const char *to) {
    struct fl_safetensors s;
    struct fl_safetensors_out o = {0};
    TRY(fl_checkpoint_open(&s, from));
    char *bytes = fl_alloc((size_t)s.data_bytes + 1);
    tensor_status status = bytes ? copy_all(&s, &o, bytes)
                                 : fl_fail(TENSOR_E_MEMORY, "train: no memory for %lld bytes", (long long)s.data_bytes);
    if (!status)
        status = fl_safetensors_write(&o, to);
    fl_safetensors_end(&o);
    fl_safetensors_close(&s);
    fl_free(bytes);
    return status;
}

/* Copies the best checkpoint from beside the file to resume, unless there is one. If both are missing, the next
 * evaluation is the best. */
static tensor_status bring_best(struct run *run) {
    const char *from = run->config->resume, *slash = strrchr(from, '/');
    if (!run->config->checkpoint || run->config->resume_alone || !run->best.epoch)
        return TENSOR_OK;
    char *here, *there = NULL;
    TRY(path_in(run->config->checkpoint, best_name, &here));
    if (access(here, F_OK)) {
        there = fl_format_name("%.*s%s", slash ? (int)(slash - from) + 1 : 0, from, best_name);
        if (there && access(there, F_OK))
            run->best = (struct fl_best){0};
    }
    tensor_status status = TENSOR_OK;
    if (there && run->best.epoch && !nn_group_rank(run->g->group))
        status = copy_file(there, here);
    else if (!there && access(here, F_OK))
        status = fl_fail(TENSOR_E_MEMORY, "train: no memory for the path of a checkpoint");
    fl_free(here);
    fl_free(there);
    return status;
}

tensor_status fl_training_compare(struct run *run) {
    struct fl_safetensors s;
    if (!run->config->resume)
        return TENSOR_OK;
    TRY(fl_checkpoint_open(&s, run->config->resume));
    tensor_status status = check_settings(&s, run);
    if (!status)
        status = fl_expect_network(run->g, &s);
    fl_safetensors_close(&s);
    return status;
}

tensor_status fl_training_resume(struct run *run) {
    struct fl_safetensors s;
    TRY(fl_checkpoint_open(&s, run->config->resume));
    tensor_status status = check_settings(&s, run);
    if (!status && !fl_safetensors_find(&s, whole_key))
        status =
            fl_fail(TENSOR_E_DATA,
                    "checkpoint: %s: '%s' is missing: it has only a network, and no training can be resumed from it",
                    s.path, whole_key);
    if (!status)
        status = fl_checkpoint_load(run->g, &s);
    if (!status)
        status = read_position(run, &s);
    if (!status)
        status = read_lists(run, &s);
    if (!status)
        status = read_trace(run, &s);
    if (!status)
        status = read_telemetry(run, &s);
    if (!status)
        status = read_first(run, &s);
    if (!status)
        status = give_caller(run, &s);
    fl_safetensors_close(&s);
    return status ? status : bring_best(run);
}
