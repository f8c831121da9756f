/* metrics.c - metrics.jsonl, as docs/output.md describes it. Numbers have 17 digits, so that reading them back gives
 * the same bits. */
#include "results/metrics.h"
#include "base/number.h"
#include "base/signals.h"
#include "base/text.h"
#include <cJSON.h>
#include <stdio.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static cJSON *checked(cJSON *item) {
    if (!item)
        exit(text_failed("out of memory"));
    return item;
}

static cJSON *object(const char *type) {
    cJSON *line = checked(cJSON_CreateObject());
    checked(cJSON_AddStringToObject(line, "type", type));
    return line;
}

static void add_text(cJSON *line, const char *key, const char *text) {
    char *valid = text ? text_valid(text) : NULL; /* JSON is UTF-8 */
    checked(text ? cJSON_AddStringToObject(line, key, valid) : cJSON_AddNullToObject(line, key));
    free(valid);
}

static void add_flag(cJSON *line, const char *key, bool value) {
    checked(cJSON_AddBoolToObject(line, key, value));
}

static void add_whole(cJSON *line, const char *key, int64_t value) {
    char digits[24];
    snprintf(digits, sizeof digits, "%lld", (long long)value);
    checked(cJSON_AddRawToObject(line, key, digits));
}

/* JSON has neither NaN nor infinity: both become null. */
static void add_real(cJSON *line, const char *key, double value) {
    char digits[40];
    snprintf(digits, sizeof digits, "%.17g", value);
    checked(isfinite(value) ? cJSON_AddRawToObject(line, key, digits) : cJSON_AddNullToObject(line, key));
}

/* Adds a number that may be NaN or Inf, and KEY_state, which explains a null; "none" if there is no such number. */
static void add_state(cJSON *line, const char *key, double value, bool exists) {
    char *state = text_format("%s_state", key);
    add_real(line, key, exists ? value : NAN);
    add_text(line, state, exists ? number_state(value) : "none");
    free(state);
}

static int write_line(struct output_lines *o, cJSON *line) {
    char *text = cJSON_PrintUnformatted(line);
    cJSON_Delete(line);
    if (!text)
        exit(text_failed("out of memory"));
    int status = output_lines_add(o, text);
    cJSON_free(text);
    return status;
}

static void add_data(cJSON *line, const struct experiment *x) {
    cJSON *data = checked(cJSON_AddObjectToObject(line, "data"));
    add_text(data, "specification", x->settings->data);
    add_whole(data, "train", x->data.train);
    add_whole(data, "test", x->data.test);
    add_whole(data, "height", x->data.height);
    add_whole(data, "width", x->data.width);
    add_whole(data, "channels", x->data.channels);
    add_whole(data, "classes", x->data.classes);
    add_whole(data, "context", x->data.context);
}

static void add_formats(cJSON *line, const struct experiment *x) {
    cJSON *list = checked(cJSON_AddArrayToObject(line, "formats"));
    for (int i = 0; i < x->series_count; i++) {
        const struct series *s = &x->series[i];
        cJSON *item = checked(cJSON_CreateObject());
        add_text(item, "name", s->label);
        add_text(item, "variant", s->variant->name);
        add_text(item, "format", tensor_format_name(s->variant->format));
        add_whole(item, "bytes", (int64_t)tensor_format_bytes(s->variant->format));
        add_text(item, "predictor", s->predictor);
        add_flag(item, "wide_weights", s->variant->wide && !s->no_master);
        add_flag(item, "stochastic_weights", s->variant->stochastic_weights);
        add_text(item, "matmul_backend", s->backend);
        add_text(item, "device", s->device);
        add_text(item, "policy", s->policy);
        add_text(item, "loss_scale", s->loss_scale);
        cJSON_AddItemToArray(list, item);
    }
}

static void add_origin(cJSON *line, const struct origin *o) {
    add_text(line, "version", o->version);
    add_text(line, "revision", o->revision);
    add_text(line, "compiler", o->compiler);
    add_text(line, "processor", o->processor);
    add_text(line, "instruction_set", o->instruction_set);
    add_text(line, "instruction_cap", o->instruction_cap);
    add_whole(line, "threads", o->threads);
    add_text(line, "started", o->started);
    add_text(line, "command", o->command);
    add_text(line, "command_line", o->command_line);
}

int metrics_roles(struct output_lines *o, const struct series *s, const char *network, const struct role_row *row) {
    cJSON *line = object("roles");
    add_text(line, "format", s->label);
    if (network)
        add_text(line, "network", network);
    add_text(line, "name", row->name);
    add_text(line, "kind", row->kind);
    for (int r = 0; r < ROLE_LIMIT && nn_role_name_at(r); r++) {
        char *key = text_format("%s", nn_role_name_at(r));
        for (char *p = key; *p; p++)
            *p = *p == '-' ? '_' : *p;
        add_text(line, key, row->role[r]);
        free(key);
    }
    return write_line(o, line);
}

int metrics_open(struct output_lines *o, const struct experiment *x) {
    const struct settings *s = x->settings;
    int status = output_lines_open(o, x->folder, "metrics.jsonl");
    if (status)
        return status;
    cJSON *line = object("config");
    add_whole(line, "schema", METRICS_SCHEMA);
    add_origin(line, &x->origins[0]);
    add_text(line, "model", s->model);
    add_text(line, "weights", s->weights);
    add_data(line, x);
    add_formats(line, x);
    cJSON *seeds = checked(cJSON_AddArrayToObject(line, "seeds"));
    for (int i = 0; i < x->seed_count; i++) {
        char *digits = text_format("%llu", (unsigned long long)x->seeds[i]);
        cJSON_AddItemToArray(seeds, checked(cJSON_CreateRaw(digits)));
        free(digits);
    }
    add_whole(line, "epochs", s->epochs);
    add_whole(line, "batch", s->batch);
    add_whole(line, "shards", s->shards);
    add_text(line, "batchnorm", s->batchnorm);
    add_whole(line, "steps_per_epoch", x->steps_per_epoch);
    add_whole(line, "steps", x->steps);
    add_whole(line, "max_steps", s->max_steps);
    add_real(line, "rate", x->rate);
    add_text(line, "schedule", s->schedule);
    add_real(line, "warmup_epochs", s->warmup);
    add_text(line, "optimizer", s->optimiser_text);
    add_real(line, "momentum", s->momentum);
    add_real(line, "weight_decay", s->weight_decay);
    add_flag(line, "augment", x->augment);
    add_whole(line, "average_last", s->average_last);
    add_whole(line, "window", x->window);
    add_whole(line, "trace_every", x->trace_every);
    add_text(line, "trace_tensors", s->trace_tensors);
    add_text(line, "telemetry", s->telemetry);
    add_text(line, "shadow", s->shadow);
    status = write_line(o, line);
    for (int i = 0; i < x->series_count && !status; i++)
        for (int k = 0; k < x->series[i].role_count && !status; k++)
            status = metrics_roles(o, &x->series[i], NULL, &x->series[i].roles[k]);
    return status;
}

static cJSON *run_object(const char *type, const struct experiment *x, const struct run *run) {
    cJSON *line = object(type);
    add_text(line, "format", x->series[run->series].label);
    add_whole(line, "seed", (int64_t)run->seed);
    return line;
}

int metrics_step(struct output_lines *o, const struct experiment *x, const struct run *run,
                 const nn_step_report *step) {
    cJSON *line = run_object("step", x, run);
    add_whole(line, "step", step->step);
    add_state(line, "loss", step->loss, true);
    add_real(line, "rate", step->rate);
    return write_line(o, line);
}

int metrics_scale(struct output_lines *o, const struct experiment *x, const struct run *run,
                  const struct scale_change *change) {
    cJSON *line = run_object("scale", x, run);
    add_whole(line, "step", change->step);
    add_real(line, "scale", change->scale);
    return write_line(o, line);
}

int metrics_window(struct output_lines *o, const struct experiment *x, const struct run *run,
                   const struct window *window) {
    cJSON *line = run_object("steps", x, run);
    add_whole(line, "step", window->step);
    add_whole(line, "count", window->count);
    add_state(line, "loss", window->loss, true);
    add_real(line, "rate", window->rate);
    add_whole(line, "nonfinite", window->nonfinite);
    add_real(line, "finite_loss", window_loss(window));
    return write_line(o, line);
}

int metrics_epoch(struct output_lines *o, const struct experiment *x, const struct run *run,
                  const nn_epoch_report *epoch) {
    cJSON *line = run_object("epoch", x, run);
    add_whole(line, "epoch", epoch->epoch);
    add_whole(line, "step", epoch->step);
    add_state(line, "train_loss", epoch->train_loss, true);
    add_real(line, "train_accuracy", epoch->train_accuracy);
    add_state(line, "test_loss", epoch->test_loss, true);
    add_real(line, "test_accuracy", epoch->test_accuracy);
    add_real(line, "seconds", epoch->seconds);
    return write_line(o, line);
}

/* Writes the class that the network predicts for each test image. */
static int write_predictions(struct output_lines *o, const struct experiment *x, const struct run *run) {
    cJSON *line = run_object("predictions", x, run);
    cJSON *classes = cJSON_CreateIntArray(run->result.predicted, (int)run->result.predicted_count);
    if (!cJSON_AddItemToObject(line, "classes", checked(classes))) /* it copies the key */
        exit(text_failed("out of memory"));
    return write_line(o, line);
}

static void add_timing(cJSON *line, const struct timing *t) {
    add_real(line, "step_seconds", t->median);
    add_real(line, "step_seconds_low", t->low);
    add_real(line, "step_seconds_high", t->high);
    add_whole(line, "timed", t->count);
    add_real(line, "wall_seconds", t->wall);
}

static void add_first(cJSON *line, const struct nonfinite *first) {
    add_whole(line, "first_nonfinite_step", first->step);
    add_text(line, "first_nonfinite_pass", first->step ? first->pass : "none");
    add_text(line, "first_nonfinite_tensor", first->tensor);
    add_text(line, "first_nonfinite_role", first->role);
    add_text(line, "first_nonfinite_layer", first->layer);
    add_text(line, "first_nonfinite_format", first->format);
    add_whole(line, "first_nonfinite_count", first->count);
    add_whole(line, "first_nonfinite_elements", first->elements);
    add_text(line, "first_nonfinite_remedy", first->remedy);
}

int metrics_run(struct output_lines *o, const struct experiment *x, const struct run *run) {
    const nn_train_result *r = &run->result;
    bool tested = r->predicted_count > 0;
    cJSON *line = run_object("run", x, run);
    add_flag(line, "complete", run->finished);
    add_flag(line, "diverged", run_diverged(x, run));
    add_state(line, "first_loss", run->first_loss, true);
    add_state(line, "train_loss", r->train_loss, true);
    add_state(line, "last_loss", r->last_loss, true);
    add_state(line, "test_loss", r->test_loss, tested);
    add_real(line, "test_accuracy", tested ? r->test_accuracy : NAN);
    add_whole(line, "nonfinite_step", run->nonfinite_step);
    add_text(line, "nonfinite_loss_state", run->nonfinite_step ? number_state(run->nonfinite_loss) : "none");
    add_first(line, &run->first);
    add_whole(line, "steps", r->steps);
    add_whole(line, "images", r->images);
    add_whole(line, "parameters", r->parameters);
    add_whole(line, "weight_bytes", r->weight_bytes);
    add_whole(line, "activation_bytes", r->activation_bytes);
    add_whole(line, "arena_bytes", r->arena_bytes);
    add_whole(line, "saturated", r->saturated);
    add_whole(line, "flushed", r->flushed);
    add_whole(line, "nonfinite", r->nonfinite);
    add_whole(line, "elements", r->elements);
    add_whole(line, "clamped_low", r->clamped_low);
    add_whole(line, "clamped_high", r->clamped_high);
    add_real(line, "loss_scale", r->loss_scale);
    add_whole(line, "skipped", r->skipped);
    add_whole(line, "skipped_in_a_row", r->skipped_in_a_row);
    add_whole(line, "skipped_at_end", r->skipped_at_end);
    add_real(line, "seconds", r->seconds);
    add_real(line, "images_per_second", (double)r->images / r->seconds);
    add_timing(line, &run->timing);
    add_whole(line, "ranks", run->exchange.ranks ? run->exchange.ranks : 1);
    add_text(line, "rank_engine", run->exchange.engine ? run->exchange.engine : "none");
    add_whole(line, "rank_steps", run->exchange.steps);
    add_whole(line, "rank_sent", run->exchange.sent);
    add_real(line, "rank_waited", run->exchange.waited);
    add_real(line, "rank_overlapped", run->exchange.overlapped);
    add_real(line, "rank_seconds", run->exchange.seconds);
    int status = write_line(o, line);
    return status || !tested ? status : write_predictions(o, x, run);
}

int metrics_failure(struct output_lines *o, const struct experiment *x, const struct run *run) {
    cJSON *line = run_object("failed", x, run);
    add_text(line, "reason", run->failure);
    return write_line(o, line);
}

static void add_spread(cJSON *line, const char *key, struct spread s) {
    cJSON *spread = checked(cJSON_AddObjectToObject(line, key));
    add_state(spread, "mean", s.mean, s.count > 0);
    add_state(spread, "sd", s.deviation, s.count > 1);
}

int metrics_close(struct output_lines *o, const struct experiment *x) {
    int status = STATUS_OK, finished = 0;
    for (int i = 0; i < x->series_count && status == STATUS_OK; i++) {
        struct summary s = summary_of(x, i);
        cJSON *line = object("format");
        add_text(line, "format", x->series[i].label);
        add_whole(line, "runs", s.runs);
        add_whole(line, "diverged", s.diverged);
        add_whole(line, "stopped_step", s.stopped_step);
        add_spread(line, "train_loss", s.train_loss);
        add_spread(line, "last_loss", s.last_loss);
        add_spread(line, "last_loss_minus_fp32", s.loss_difference);
        add_spread(line, "test_loss", s.test_loss);
        add_spread(line, "test_accuracy", s.accuracy);
        add_spread(line, "agreement", s.agreement);
        add_real(line, "images_per_second", s.images_per_second);
        add_timing(line, &s.timing);
        add_whole(line, "skipped", s.skipped);
        finished += s.runs;
        status = write_line(o, line);
    }
    if (status == STATUS_OK) {
        cJSON *line = object("end");
        add_flag(line, "complete", finished == x->run_count);
        add_whole(line, "finished_runs", finished);
        add_whole(line, "planned_runs", x->run_count);
        add_text(line, "stopped_by", signals_received() ? signals_name(signals_received()) : NULL);
        status = write_line(o, line);
    }
    int committed = output_lines_commit(o);
    return status ? status : committed;
}
