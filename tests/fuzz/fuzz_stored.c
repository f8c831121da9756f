/* fuzz_stored.c - the reader of metrics.jsonl, on which `flexlab report` depends.
 *
 * Input: a byte of choices (bit 0: results that training could have written, from the values that follow, otherwise the
 * bytes themselves are the file; bit 1: those results are then edited field by field and line by line; bit 2: the
 * scripts of the figures are composed, too). Results that were written are read back unchanged; results that are
 * accepted are within the limits of docs/output.md, can be written again and read back the same, merged with
 * themselves, and shown. */
#define _GNU_SOURCE
#include "figures/figure.h"
#include "messages.h"
#include "results/metrics.h"
#include "report/report.h"
#include "scratch.h"
#include "results/stored.h"
#include "base/text.h"
#include <cJSON.h>
#include <math.h>

enum { SEEDS = 3, WINDOWS = 5, TESTS = 6, LINES = 200, EDITS = 4 };
static const double MOST = 0x1p53;

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    setenv("PATH", "/nonexistent", 1); /* no gnuplot */
    scratch_make();
    text_set_command("fuzz");
    return 0;
}

/* --- results from the input --------------------------------------------------------------------------------------- */

static int64_t take_up_to(struct input *in, int64_t low, int64_t high) {
    const int64_t value = take_whole(in);
    return value < low ? low : value > high ? high : value;
}

static double take_any_real(struct input *in) {
    static const double edges[] = {0, -0.0, 1, 2.302585092994046, 1e300, 5e-324, NAN, INFINITY, -INFINITY};
    enum { EDGES = sizeof edges / sizeof *edges };
    const int choice = take_below(in, 2 * EDGES);
    if (choice < EDGES)
        return edges[choice];
    const uint64_t bits = take_bytes(in, 8);
    double value;
    memcpy(&value, &bits, sizeof value);
    return isnan(value) ? NAN : value;
}

static double take_real(struct input *in) {
    const double value = take_any_real(in);
    return isfinite(value) ? value : 0.5;
}

static char *take_name(struct input *in) {
    return take_text(in, '\n');
}

static void take_series(struct input *in, struct experiment *x) {
    static const char *const names[] = {"fp32",         "fp16",        "e5m10",         "tensor:int8",
                                        "dfp16:ngraph", "flex12+5-sr", "fp16:nomaster", "flex16+5:nomaster:current"};
    char list[160] = "";
    const uint8_t chosen = take_byte(in);
    for (int i = 0; i < 8; i++)
        if (chosen >> i & 1 || (!chosen && !i))
            strcat(strcat(list, list[0] ? "," : ""), names[i]);
    struct settings settings = {.batch = 1, .formats = list, .master = "default"};
    MUST(series_read(&settings, &x->series, &x->series_count) == STATUS_OK, "%s is refused", list);
}

static void take_windows(struct input *in, struct run *run) {
    const int count = take_below(in, WINDOWS);
    run->windows = text_alloc((size_t)count, sizeof *run->windows);
    run->epochs = text_alloc((size_t)count, sizeof *run->epochs);
    for (int64_t step = 0; run->window_count < count;) {
        struct window *w = &run->windows[run->window_count++];
        w->count = (int)take_up_to(in, 1, INT_MAX);
        w->step = step += w->count;
        w->loss = take_any_real(in);
        w->rate = take_real(in);
    }
    for (int n = take_below(in, count + 1); run->epoch_count < n;) {
        nn_epoch_report *e = &run->epochs[run->epoch_count++];
        *e = (nn_epoch_report){.epoch = run->epoch_count,
                               .step = take_up_to(in, 1, (int64_t)MOST),
                               .train_loss = take_any_real(in),
                               .train_accuracy = take_real(in),
                               .test_loss = take_any_real(in),
                               .test_accuracy = take_real(in),
                               .seconds = take_real(in)};
    }
}

static void take_result(struct input *in, const struct experiment *x, struct run *run) {
    nn_train_result *r = &run->result;
    const int state = take_below(in, 3);
    run->finished = state == 1;
    run->stopped = r->stopped = state == 2;
    if (!state)
        return;
    run->first_loss = take_any_real(in);
    run->nonfinite_step = take_up_to(in, 0, (int64_t)MOST);
    static const double nonfinite[] = {NAN, INFINITY, -INFINITY};
    run->nonfinite_loss = run->nonfinite_step ? nonfinite[take_below(in, 3)] : 0;
    r->train_loss = take_any_real(in);
    r->last_loss = take_any_real(in);
    r->test_loss = r->test_accuracy = NAN;
    r->seconds = take_real(in);
    int64_t *const wholes[] = {&r->images,           &r->steps,       &r->parameters,  &r->weight_bytes,
                               &r->activation_bytes, &r->arena_bytes, &r->saturated,   &r->flushed,
                               &r->nonfinite,        &r->elements,    &r->clamped_low, &r->clamped_high};
    for (size_t i = 0; i < sizeof wholes / sizeof *wholes; i++)
        *wholes[i] = take_up_to(in, 0, (int64_t)MOST);
    if (x->data.test > TESTS)
        return;
    r->test_loss = take_any_real(in);
    r->test_accuracy = take_real(in);
    r->predicted_count = x->data.test;
    r->predicted = text_alloc(TESTS, sizeof *r->predicted);
    for (int64_t i = 0; i < x->data.test; i++)
        r->predicted[i] = take_below(in, x->data.classes < 256 ? x->data.classes : 256);
}

/* forget() frees what `settings` points to. */
static void take_experiment(struct input *in, struct settings *s, struct experiment *x) {
    *s = (struct settings){.model = take_name(in),
                           .data = take_name(in),
                           .schedule = take_name(in),
                           .epochs = take_up_to(in, 1, MOST_EPOCHS),
                           .batch = take_up_to(in, 1, INT_MAX),
                           .shards = 1,
                           .batchnorm = take_byte(in) & 1 ? "global" : "shard",
                           .max_steps = take_up_to(in, 0, (int64_t)MOST),
                           .average_last = take_up_to(in, 1, (int64_t)MOST),
                           .warmup = take_real(in),
                           .momentum = take_real(in),
                           .weight_decay = take_real(in),
                           .trace_tensors = take_byte(in) & 1 ? take_name(in) : NULL};
    *x = (struct experiment){
        .settings = s, .folder = scratch_folder, .rate = take_real(in), .augment = take_byte(in) & 1};
    take_series(in, x);
    x->seed_count = 1 + take_below(in, SEEDS);
    x->seeds = text_alloc(SEEDS, sizeof *x->seeds);
    x->seeds[0] = (uint64_t)take_up_to(in, 0, (int64_t)MOST - SEEDS);
    for (int i = 1; i < x->seed_count; i++)
        x->seeds[i] = x->seeds[0] + (uint64_t)i;
    x->data.test = take_up_to(in, 1, (int64_t)MOST);
    x->data.train = take_up_to(in, 1, (int64_t)MOST);
    int *const sizes[] = {&x->data.height, &x->data.width, &x->data.channels, &x->data.classes, &x->window};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        *sizes[i] = (int)take_up_to(in, 1, INT_MAX);
    x->steps_per_epoch = take_up_to(in, 1, (int64_t)MOST);
    x->steps = take_up_to(in, 1, (int64_t)MOST);
    x->trace_every = (int)take_up_to(in, 0, INT_MAX);
    x->origin_count = 1;
    x->origins = text_alloc(1, sizeof *x->origins);
    x->origins[0] = (struct origin){.folder = text_format("%s", scratch_folder),
                                    .command = take_name(in),
                                    .command_line = take_name(in),
                                    .version = take_name(in),
                                    .revision = take_name(in),
                                    .compiler = take_name(in),
                                    .processor = take_name(in),
                                    .instruction_set = take_name(in),
                                    .instruction_cap = take_byte(in) & 1 ? take_name(in) : NULL,
                                    .started = take_name(in),
                                    .threads = (int)take_up_to(in, 1, INT_MAX),
                                    .trace_every = x->trace_every};
    experiment_make_runs(x);
    for (int i = 0; i < x->run_count; i++) {
        take_windows(in, &x->runs[i]);
        take_result(in, x, &x->runs[i]);
    }
    experiment_choose_shown(x);
    summary_agreement(x);
}

static void forget(struct settings *s, struct experiment *x) {
    experiment_clear(x);
    const char *const texts[] = {s->model, s->data, s->schedule, s->trace_tensors};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        free((char *)(uintptr_t)texts[i]);
}

/* --- files -------------------------------------------------------------------------------------------------------- */

static void write_metrics(const struct experiment *x) {
    struct output_lines lines;
    messages_begin();
    int failed = metrics_open(&lines, x);
    for (int i = 0; i < x->run_count && !failed; i++) {
        const struct run *run = &x->runs[i];
        for (int w = 0; w < run->window_count && !failed; w++)
            failed = metrics_window(&lines, x, run, &run->windows[w]);
        for (int e = 0; e < run->epoch_count && !failed; e++)
            failed = metrics_epoch(&lines, x, run, &run->epochs[e]);
        if (!failed && (run->finished || run->stopped))
            failed = metrics_run(&lines, x, run);
    }
    failed = failed || metrics_close(&lines, x);
    messages_end();
    MUST(!failed, "results cannot be written: %s", messages);
}

/* Edits a member of a line, or of one of its members. */
static void edit_member(struct input *in, cJSON *line) {
    static const char *const values[] = {"null",       "true",    "false",   "0",       "-1",
                                         "1",          "0.5",     "1e999",   "-1e999",  "9007199254740993",
                                         "1e-400",     "\"\"",    "\"nan\"", "\"inf\"", "\"none\"",
                                         "\"finite\"", "\"end\"", "\"run\"", "[]",      "{}",
                                         "[1,2,3]"};
    enum { VALUES = sizeof values / sizeof *values };
    cJSON *parent = line, *item;
    for (;;) {
        const int count = cJSON_GetArraySize(parent);
        item = count ? cJSON_GetArrayItem(parent, take_byte(in) % count) : NULL;
        if (!item)
            return;
        if (!item->child || take_byte(in) & 1)
            break;
        parent = item;
    }
    const int what = take_below(in, VALUES + 2);
    if (what == VALUES) {
        cJSON_Delete(cJSON_DetachItemViaPointer(parent, item));
    } else if (what > VALUES && cJSON_IsArray(parent)) {
        cJSON_AddItemToArray(parent, cJSON_Duplicate(item, true));
    } else if (what > VALUES) {
        char *name = take_name(in);
        cJSON *text = cJSON_CreateString(name);
        cJSON_ReplaceItemInObjectCaseSensitive(parent, item->string, text);
        free(name);
    } else {
        cJSON *value = cJSON_CreateRaw(values[what]);
        if (cJSON_IsArray(parent))
            cJSON_ReplaceItemViaPointer(parent, item, value);
        else
            cJSON_ReplaceItemInObjectCaseSensitive(parent, item->string, value);
    }
}

/* Changes, removes, duplicates or exchanges lines. */
static void edit_metrics(struct input *in) {
    char *lines[LINES + EDITS], *text = NULL;
    int count = 0;
    size_t room = 0;
    FILE *file = fopen(scratch_path("metrics.jsonl"), "r");
    MUST(file, "no file was written");
    while (count < LINES && getline(&text, &room, file) > 0)
        lines[count++] = strndup(text, strcspn(text, "\n"));
    fclose(file);
    free(text);
    for (int n = 1 + take_below(in, EDITS); n > 0; n--) {
        const int what = take_below(in, 8), at = take_byte(in) % count, other = take_byte(in) % count;
        if (what == 0 && count > 1) {
            free(lines[at]);
            memmove(lines + at, lines + at + 1, (size_t)(--count - at) * sizeof *lines);
        } else if (what == 1) {
            lines[count] = lines[other];
            lines[other] = lines[at];
            lines[at] = lines[count];
        } else if (what == 2) {
            memmove(lines + at + 1, lines + at, (size_t)(count++ - at) * sizeof *lines);
            lines[at] = strdup(lines[at + 1]);
        } else {
            cJSON *line = cJSON_Parse(lines[at]);
            edit_member(in, line);
            free(lines[at]);
            lines[at] = cJSON_PrintUnformatted(line);
            MUST(lines[at], "no memory for a line");
            cJSON_Delete(line);
        }
    }
    file = fopen(scratch_path("metrics.jsonl"), "w");
    for (int i = 0; i < count; i++) {
        fprintf(file, "%s\n", lines[i]);
        free(lines[i]);
    }
    MUST(!fclose(file), "no file can be written");
}

static int read_metrics(struct stored *s) {
    messages_begin();
    const int status = stored_read(s, scratch_folder);
    messages_end();
    must_say("stored_read", status != STATUS_OK);
    MUST(status == STATUS_OK || (status == STATUS_FAILED && strstr(messages, "/metrics.jsonl")), "status %d: %s",
         status, messages);
    return status;
}

/* --- what was read ------------------------------------------------------------------------------------------------ */

static void whole(const char *name, int64_t value, int64_t low, int64_t high) {
    MUST(value >= low && value <= high, "%s %lld was accepted", name, (long long)value);
}

static void must_be_finite(const char *name, double value) {
    MUST(isfinite(value), "%s %g was accepted", name, value);
}

static void check_run(const struct experiment *x, const struct run *run) {
    int64_t step = 0;
    MUST(!(run->finished && run->stopped) && run->series >= 0 && run->series < x->series_count, "a run of no state");
    for (int w = 0; w < run->window_count; step = run->windows[w++].step) {
        whole("window", run->windows[w].step, step + run->windows[w].count, step + run->windows[w].count);
        whole("count", run->windows[w].count, 1, INT_MAX);
        must_be_finite("rate", run->windows[w].rate);
    }
    for (int e = 0; e < run->epoch_count; e++) {
        whole("epoch", run->epochs[e].epoch, e + 1, e + 1);
        must_be_finite("seconds", run->epochs[e].seconds);
        must_be_finite("train_accuracy", run->epochs[e].train_accuracy);
    }
    const nn_train_result *r = &run->result;
    MUST(r->predicted_count == 0 || (r->predicted_count == x->data.test && run->stored && isfinite(r->test_accuracy)),
         "%lld predictions, accuracy %g", (long long)r->predicted_count, r->test_accuracy);
    for (int64_t i = 0; i < r->predicted_count; i++)
        whole("prediction", run->stored[i], 0, x->data.classes - 1);
    MUST(run->nonfinite_step ? !isfinite(run->nonfinite_loss) : run->nonfinite_loss == 0, "step %lld with loss %g",
         (long long)run->nonfinite_step, run->nonfinite_loss);
    const int64_t wholes[] = {r->images,           r->steps,       r->parameters,  r->weight_bytes,
                              r->activation_bytes, r->arena_bytes, r->saturated,   r->flushed,
                              r->nonfinite,        r->elements,    r->clamped_low, r->clamped_high};
    for (size_t i = 0; i < sizeof wholes / sizeof *wholes; i++)
        whole("a count", wholes[i], 0, (int64_t)MOST);
}

static void check_limits(const struct stored *stored) {
    const struct experiment *x = &stored->x;
    const struct settings *s = &stored->settings;
    MUST(x->settings == s && x->origin_count == 1 && x->run_count == x->series_count * x->seed_count, "%d runs",
         x->run_count);
    whole("formats", x->series_count, 1, 1000);
    whole("seeds", x->seed_count, 1, MOST_SEEDS);
    for (int i = 0; i < x->series_count; i++) {
        const struct series *one = &x->series[i];
        MUST(one->variant && one->backend && one->shared == (one->predictor != NULL), "format %s", one->label);
        MUST(strspn(one->label, "abcdefghijklmnopqrstuvwxyz0123456789+-:") == strlen(one->label), "the name %s",
             one->label);
        for (int k = 0; k < i; k++)
            MUST(strcmp(x->series[k].label, one->label), "%s occurs twice", one->label);
    }
    for (int i = 0; i < x->seed_count; i++) {
        whole("seed", (int64_t)x->seeds[i], 0, (int64_t)MOST);
        for (int k = 0; k < i; k++)
            MUST(x->seeds[k] != x->seeds[i], "seed %llu occurs twice", (unsigned long long)x->seeds[i]);
    }
    whole("epochs", s->epochs, 1, MOST_EPOCHS);
    whole("steps", x->steps, 1, (int64_t)MOST);
    whole("steps_per_epoch", x->steps_per_epoch, 1, (int64_t)MOST);
    whole("window", x->window, 1, INT_MAX);
    must_be_finite("rate", x->rate);
    must_be_finite("warmup", s->warmup);
    for (int i = 0; i < x->run_count; i++)
        check_run(x, &x->runs[i]);
    MUST(x->stopped == (experiment_finished(x) < x->run_count), "stopped is %d", x->stopped);
}

/* --- equality ----------------------------------------------------------------------------------------------------- */

static void same_real(const char *name, double a, double b) {
    MUST((isnan(a) && isnan(b)) || !memcmp(&a, &b, sizeof a), "%s is %.17g, expected %.17g", name, b, a);
}

static void same_whole(const char *name, int64_t a, int64_t b) {
    MUST(a == b, "%s is %lld, expected %lld", name, (long long)b, (long long)a);
}

static void same_text(const char *name, const char *a, const char *b) {
    char *valid = a ? text_valid(a) : NULL;
    MUST(a && b ? !strcmp(valid, b) : a == b, "%s is '%s', expected '%s'", name, b ? b : "(null)",
         a ? valid : "(null)");
    free(valid);
}

static const int32_t *predictions(const struct run *run) {
    return run->stored ? run->stored : run->result.predicted;
}

static void same_run(const struct run *a, const struct run *b) {
    same_whole("windows", a->window_count, b->window_count);
    for (int w = 0; w < a->window_count; w++) {
        same_whole("step", a->windows[w].step, b->windows[w].step);
        same_whole("count", a->windows[w].count, b->windows[w].count);
        same_real("loss", a->windows[w].loss, b->windows[w].loss);
        same_real("rate", a->windows[w].rate, b->windows[w].rate);
        same_whole("nonfinite", a->windows[w].nonfinite, b->windows[w].nonfinite);
    }
    same_whole("epochs", a->epoch_count, b->epoch_count);
    for (int e = 0; e < a->epoch_count; e++) {
        same_whole("step", a->epochs[e].step, b->epochs[e].step);
        same_real("train_loss", a->epochs[e].train_loss, b->epochs[e].train_loss);
        same_real("train_accuracy", a->epochs[e].train_accuracy, b->epochs[e].train_accuracy);
        same_real("test_loss", a->epochs[e].test_loss, b->epochs[e].test_loss);
        same_real("test_accuracy", a->epochs[e].test_accuracy, b->epochs[e].test_accuracy);
        same_real("seconds", a->epochs[e].seconds, b->epochs[e].seconds);
    }
    same_whole("finished", a->finished, b->finished);
    same_whole("stopped", a->stopped, b->stopped);
    if (!a->finished && !a->stopped)
        return;
    const nn_train_result *r = &a->result, *q = &b->result;
    same_real("first_loss", a->first_loss, b->first_loss);
    same_whole("nonfinite_step", a->nonfinite_step, b->nonfinite_step);
    same_real("nonfinite_loss", a->nonfinite_loss, b->nonfinite_loss);
    same_real("train_loss", r->train_loss, q->train_loss);
    same_real("last_loss", r->last_loss, q->last_loss);
    same_real("seconds", r->seconds, q->seconds);
    const int64_t ones[] = {r->images,           r->steps,       r->parameters,  r->weight_bytes,
                            r->activation_bytes, r->arena_bytes, r->saturated,   r->flushed,
                            r->nonfinite,        r->elements,    r->clamped_low, r->clamped_high},
                  others[] = {q->images,           q->steps,       q->parameters,  q->weight_bytes,
                              q->activation_bytes, q->arena_bytes, q->saturated,   q->flushed,
                              q->nonfinite,        q->elements,    q->clamped_low, q->clamped_high};
    for (size_t i = 0; i < sizeof ones / sizeof *ones; i++)
        same_whole("a count", ones[i], others[i]);
    same_whole("predictions", r->predicted_count, q->predicted_count);
    if (!r->predicted_count) /* the line of predictions may be lost; without it the run equals one that has none */
        return;
    same_real("test_loss", r->test_loss, q->test_loss);
    same_real("test_accuracy", r->test_accuracy, q->test_accuracy);
    MUST(!memcmp(predictions(a), predictions(b), (size_t)r->predicted_count * sizeof(int32_t)), "other predictions");
}

static void same_experiment(const struct experiment *x, const struct experiment *y) {
    const struct settings *s = x->settings, *t = y->settings;
    same_text("model", s->model, t->model);
    same_text("data", s->data, t->data);
    same_text("schedule", s->schedule, t->schedule);
    same_text("batchnorm", s->batchnorm, t->batchnorm);
    same_text("trace_tensors", s->trace_tensors, t->trace_tensors);
    same_real("warmup", s->warmup, t->warmup);
    same_real("momentum", s->momentum, t->momentum);
    same_real("weight_decay", s->weight_decay, t->weight_decay);
    same_real("rate", x->rate, y->rate);
    const int64_t ones[] = {s->epochs,      s->batch,           s->shards,
                            s->max_steps,   s->average_last,    x->augment,
                            x->data.train,  x->data.test,       x->data.height,
                            x->data.width,  x->data.channels,   x->data.classes,
                            x->window,      x->steps_per_epoch, x->steps,
                            x->trace_every, x->series_count,    x->seed_count,
                            x->run_count,   x->baseline,        x->origins[0].threads},
                  others[] = {t->epochs,      t->batch,           t->shards,
                              t->max_steps,   t->average_last,    y->augment,
                              y->data.train,  y->data.test,       y->data.height,
                              y->data.width,  y->data.channels,   y->data.classes,
                              y->window,      y->steps_per_epoch, y->steps,
                              y->trace_every, y->series_count,    y->seed_count,
                              y->run_count,   y->baseline,        y->origins[0].threads};
    for (size_t i = 0; i < sizeof ones / sizeof *ones; i++)
        same_whole("a setting", ones[i], others[i]);
    const struct origin *o = &x->origins[0], *p = &y->origins[0];
    const char *const texts[][2] = {{o->command, p->command},
                                    {o->command_line, p->command_line},
                                    {o->version, p->version},
                                    {o->revision, p->revision},
                                    {o->compiler, p->compiler},
                                    {o->processor, p->processor},
                                    {o->instruction_set, p->instruction_set},
                                    {o->instruction_cap, p->instruction_cap},
                                    {o->started, p->started}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        same_text("a text of the first line", texts[i][0], texts[i][1]);
    for (int i = 0; i < x->series_count; i++) {
        const struct series *a = &x->series[i], *b = &y->series[i];
        same_text("name", a->label, b->label);
        same_text("backend", a->backend, b->backend);
        same_text("predictor", a->predictor, b->predictor);
        MUST(a->variant == b->variant && a->no_master == b->no_master && a->shared == b->shared, "%s is another format",
             a->label);
    }
    for (int i = 0; i < x->seed_count; i++)
        same_whole("seed", (int64_t)x->seeds[i], (int64_t)y->seeds[i]);
    for (int i = 0; i < x->run_count; i++)
        same_run(&x->runs[i], &y->runs[i]);
}

/* --- what is done with it ----------------------------------------------------------------------------------------- */

/* Merged with itself, the comparison has another origin but no other number. */
static void check_merge(const struct stored *before) {
    struct stored one, two;
    MUST(read_metrics(&one) == STATUS_OK && read_metrics(&two) == STATUS_OK, "a second time: %s", messages);
    messages_begin();
    const int status = stored_merge(&one, &two);
    messages_end();
    must_say("stored_merge", status != STATUS_OK);
    MUST(status == STATUS_OK && one.x.origin_count == 2, "results do not join with themselves: %s", messages);
    const struct experiment *x = &before->x;
    for (int k = 0; k < x->seed_count; k++) /* seeds are sorted now */
        for (int s = 0; s < one.x.seed_count; s++)
            for (int i = 0; i < x->series_count && one.x.seeds[s] == x->seeds[k]; i++)
                if (experiment_run(x, k, i)->finished || experiment_run(x, k, i)->stopped) /* others equal new ones */
                    same_run(experiment_run(x, k, i), experiment_run(&one.x, s, i));
    same_whole("seeds", x->seed_count, one.x.seed_count);
    stored_clear(&two);
    stored_clear(&one);
}

static void show(struct experiment *x, bool with_figures) {
    struct figures figures = {0};
    experiment_choose_shown(x);
    summary_agreement(x);
    x->folder = scratch_folder;
    char *text;
    size_t size;
    FILE *kept = stdout;
    MUST((stdout = open_memstream(&text, &size)), "no stream in memory");
    summary_print(x);
    fclose(stdout);
    stdout = kept;
    MUST(size > 0, "nothing is shown");
    free(text);
    const struct settings *settings = x->settings;
    struct settings shown = *settings;
    shown.no_trace = true; /* there are none: fuzz_trace tests their reader */
    x->settings = &shown;
    messages_begin();
    int failed = summary_write_csv(x) || report_write(x, &figures);
    messages_end();
    x->settings = settings;
    MUST(!failed, "nothing can be shown: %s", messages);
    if (!with_figures)
        return;
    messages_begin();
    failed = figures_draw(x, true, &figures);
    messages_end();
    MUST(!failed && !figures.loss && strstr(messages, "gnuplot was not found"), "figures: status %d: %s", failed,
         messages);
    figures_clear(&figures);
}

/* Writes the results as a training would. */
static void rewrite(struct experiment *x) {
    for (int i = 0; i < x->run_count; i++)
        x->runs[i].result.predicted = x->runs[i].stored;
    x->folder = scratch_folder;
    write_metrics(x);
    for (int i = 0; i < x->run_count; i++)
        x->runs[i].result.predicted = NULL; /* owned once */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct input in = input_of(data, size);
    const uint8_t choices = take_byte(&in);
    const bool written = choices & 1, edited = written && choices & 2;
    struct settings settings;
    struct experiment x;
    if (written) {
        take_experiment(&in, &settings, &x);
        write_metrics(&x);
        if (edited)
            edit_metrics(&in);
    } else {
        scratch_write("metrics.jsonl", in.at, input_left(&in));
    }
    struct stored stored, again;
    const int status = read_metrics(&stored);
    MUST(!written || edited || status == STATUS_OK, "good results were refused: %s", messages);
    if (written && !edited)
        same_experiment(&x, &stored.x);
    if (written)
        forget(&settings, &x);
    if (status == STATUS_OK) {
        check_limits(&stored);
        check_merge(&stored);
        show(&stored.x, choices & 4);
        rewrite(&stored.x);
        MUST(read_metrics(&again) == STATUS_OK, "written again it was refused: %s", messages);
        same_experiment(&stored.x, &again.x);
        stored_clear(&again);
    }
    stored_clear(&stored);
    return 0;
}
