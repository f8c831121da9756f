/* metrics.c - metrics.jsonl. Numbers have 17 digits, so that reading them back gives the same bits. */
#include "metrics.h"
#include "signals.h"
#include "text.h"
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

/* JSON has neither NaN nor infinity: null. */
static void add_real(cJSON *line, const char *key, double value) {
    char digits[40];
    snprintf(digits, sizeof digits, "%.17g", value);
    checked(isfinite(value) ? cJSON_AddRawToObject(line, key, digits) : cJSON_AddNullToObject(line, key));
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
    add_whole(data, "train", data_count(x->train));
    add_whole(data, "test", data_count(x->test));
    add_whole(data, "height", data_height(x->train));
    add_whole(data, "width", data_width(x->train));
    add_whole(data, "channels", data_channels(x->train));
    add_whole(data, "classes", data_classes(x->train));
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
        add_text(item, "matmul_backend", tensor_kernel_backend(s->variant->format, "matmul"));
        cJSON_AddItemToArray(list, item);
    }
}

int metrics_open(struct output_lines *o, const struct experiment *x) {
    const struct settings *s = x->settings;
    int status = output_lines_open(o, x->folder, "metrics.jsonl");
    if (status)
        return status;
    cJSON *line = object("config");
    add_text(line, "version", FLEXLAB_VERSION);
    add_text(line, "command", x->command == COMMAND_TRAIN ? "train" : "compare");
    add_text(line, "model", s->model);
    add_data(line, x);
    add_formats(line, x);
    cJSON *seeds = checked(cJSON_AddArrayToObject(line, "seeds"));
    for (int64_t i = 0; i < s->seeds; i++)
        cJSON_AddItemToArray(seeds, checked(cJSON_CreateNumber((double)(s->seed_base + i))));
    add_whole(line, "epochs", s->epochs);
    add_whole(line, "batch", s->batch);
    add_whole(line, "steps_per_epoch", x->steps_per_epoch);
    add_whole(line, "steps", x->steps);
    add_whole(line, "max_steps", s->max_steps);
    add_real(line, "rate", x->rate);
    add_text(line, "schedule", s->schedule);
    add_real(line, "warmup_epochs", s->warmup);
    add_real(line, "momentum", (float)s->momentum);
    add_real(line, "weight_decay", (float)s->weight_decay);
    add_flag(line, "augment", x->augment);
    add_whole(line, "average_last", s->average_last);
    add_whole(line, "window", x->window);
    add_whole(line, "trace_every", x->trace_every);
    add_whole(line, "threads", tensor_threads());
    return write_line(o, line);
}

static cJSON *run_object(const char *type, const struct experiment *x, const struct run *run) {
    cJSON *line = object(type);
    add_text(line, "format", x->series[run->series].label);
    add_whole(line, "seed", (int64_t)run->seed);
    return line;
}

int metrics_window(struct output_lines *o, const struct experiment *x, const struct run *run,
                   const struct window *window) {
    cJSON *line = run_object("steps", x, run);
    add_whole(line, "step", window->step);
    add_whole(line, "count", window->count);
    add_real(line, "loss", window->loss);
    add_real(line, "rate", window->rate);
    return write_line(o, line);
}

int metrics_epoch(struct output_lines *o, const struct experiment *x, const struct run *run,
                  const nn_epoch_report *epoch) {
    cJSON *line = run_object("epoch", x, run);
    add_whole(line, "epoch", epoch->epoch);
    add_whole(line, "step", epoch->step);
    add_real(line, "train_loss", epoch->train_loss);
    add_real(line, "train_accuracy", epoch->train_accuracy);
    add_real(line, "test_loss", epoch->test_loss);
    add_real(line, "test_accuracy", epoch->test_accuracy);
    add_real(line, "seconds", epoch->seconds);
    return write_line(o, line);
}

int metrics_run(struct output_lines *o, const struct experiment *x, const struct run *run) {
    const nn_train_result *r = &run->result;
    cJSON *line = run_object("run", x, run);
    add_flag(line, "complete", run->finished);
    add_real(line, "train_loss", r->train_loss);
    add_real(line, "last_loss", r->last_loss);
    add_real(line, "test_loss", r->test_loss);
    add_real(line, "test_accuracy", r->test_accuracy);
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
    add_real(line, "seconds", r->seconds);
    add_real(line, "images_per_second", (double)r->images / r->seconds);
    return write_line(o, line);
}

static void add_spread(cJSON *line, const char *key, struct spread s) {
    cJSON *spread = checked(cJSON_AddObjectToObject(line, key));
    add_real(spread, "mean", s.mean);
    add_real(spread, "sd", s.deviation);
}

int metrics_close(struct output_lines *o, const struct experiment *x) {
    int status = STATUS_OK, finished = 0;
    for (int i = 0; i < x->series_count && status == STATUS_OK; i++) {
        struct summary s = summary_of(x, i);
        cJSON *line = object("format");
        add_text(line, "format", x->series[i].label);
        add_whole(line, "runs", s.runs);
        if (s.stopped_step)
            add_whole(line, "stopped_step", s.stopped_step);
        add_spread(line, "train_loss", s.train_loss);
        add_spread(line, "last_loss", s.last_loss);
        add_spread(line, "last_loss_minus_fp32", s.loss_difference);
        add_spread(line, "test_loss", s.test_loss);
        add_spread(line, "test_accuracy", s.accuracy);
        add_spread(line, "agreement", s.agreement);
        add_real(line, "images_per_second", s.images_per_second);
        finished += s.runs;
        status = write_line(o, line);
    }
    if (status == STATUS_OK) {
        cJSON *line = object("end");
        add_flag(line, "complete", finished == x->run_count);
        add_whole(line, "finished_runs", finished);
        add_whole(line, "planned_runs", x->run_count);
        if (signals_received())
            add_text(line, "stopped_by", signals_name(signals_received()));
        status = write_line(o, line);
    }
    int committed = output_lines_commit(o);
    return status ? status : committed;
}
