/* stored.c - reading metrics.jsonl (docs/output.md). */
#include "results/stored.h"
#include "readers/json_lines.h"
#include "results/metrics.h"
#include "base/text.h"
#include <cJSON.h>
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The state of reading. After the first failure, which is reported, all fields read as empty. */
struct reader {
    struct stored *stored;
    struct json_lines lines;
    bool ended; /* the end line was read */
};

static void refuse(struct reader *r, char *what) {
    json_lines_refuse(&r->lines, what);
    free(what);
}

/* --- fields ------------------------------------------------------------------------------------------------------- */

static const cJSON *field(struct reader *r, const cJSON *object, const char *key) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    if (!item)
        refuse(r, text_format("the field '%s' is missing", key));
    return item;
}

/* A number that is missing reads as NAN. */
static double read_real(struct reader *r, const cJSON *object, const char *key) {
    const cJSON *item = field(r, object, key);
    if (!item || cJSON_IsNull(item))
        return NAN;
    if (!cJSON_IsNumber(item))
        refuse(r, text_format("the field '%s' is not a number", key));
    else if (!isfinite(item->valuedouble)) /* 1e999; an infinite number is stored as null */
        refuse(r, text_format("the field '%s' is larger than any number of binary64", key));
    return item->valuedouble;
}

static double read_number(struct reader *r, const cJSON *object, const char *key) {
    double value = read_real(r, object, key);
    if (isnan(value))
        refuse(r, text_format("the field '%s' is null, expected a number", key));
    return value;
}

/* Reads KEY with KEY_state. */
static double read_state(struct reader *r, const cJSON *object, const char *key) {
    char *name = text_format("%s_state", key);
    double value = read_real(r, object, key);
    const char *state = cJSON_GetStringValue(field(r, object, name));
    if (!state || (isnan(value) ? !strcmp(state, "finite") : strcmp(state, "finite") != 0))
        refuse(r, text_format("the fields '%s' and '%s' do not agree", key, name));
    else if (!strcmp(state, "inf") || !strcmp(state, "-inf"))
        value = state[0] == '-' ? -INFINITY : INFINITY;
    else if (isnan(value) && strcmp(state, "nan") != 0 && strcmp(state, "none") != 0)
        refuse(r, text_format("the field '%s' is '%s', expected finite, nan, inf, -inf or none", name, state));
    free(name);
    return value;
}

static int64_t read_whole(struct reader *r, const cJSON *object, const char *key, int64_t low, int64_t high) {
    double value = read_number(r, object, key);
    if (r->lines.status == STATUS_OK &&
        (value != floor(value) || value < (double)low || value > (double)high || fabs(value) > 0x1p53))
        refuse(r, text_format("the field '%s' is %.17g, expected a whole number from %lld to %lld", key, value,
                              (long long)low, (long long)high));
    return r->lines.status == STATUS_OK ? (int64_t)value : low;
}

static const char *read_text_or_null(struct reader *r, const cJSON *object, const char *key) {
    const cJSON *item = field(r, object, key);
    if (item && !cJSON_IsString(item) && !cJSON_IsNull(item))
        refuse(r, text_format("the field '%s' is not a text", key));
    return cJSON_GetStringValue(item);
}

static const char *read_text(struct reader *r, const cJSON *object, const char *key) {
    const char *text = read_text_or_null(r, object, key);
    if (!text)
        refuse(r, text_format("the field '%s' is null, expected a text", key));
    return text ? text : "";
}

static bool read_flag(struct reader *r, const cJSON *object, const char *key) {
    const cJSON *item = field(r, object, key);
    if (item && !cJSON_IsBool(item))
        refuse(r, text_format("the field '%s' is neither true nor false", key));
    return cJSON_IsTrue(item);
}

static const cJSON *read_list(struct reader *r, const cJSON *object, const char *key) {
    const cJSON *item = field(r, object, key);
    if (item && (!cJSON_IsArray(item) || !item->child))
        refuse(r, text_format("the field '%s' is not a list of anything", key));
    return item;
}

static char *copy_text(struct reader *r, const cJSON *object, const char *key) {
    return text_format("%s", read_text(r, object, key));
}

/* --- the first line ----------------------------------------------------------------------------------------------- */

static void read_origin(struct reader *r, const cJSON *line, const char *folder) {
    struct experiment *x = &r->stored->x;
    const char *cap = read_text_or_null(r, line, "instruction_cap");
    x->origins = text_alloc(1, sizeof *x->origins);
    x->origin_count = 1;
    x->origins[0] = (struct origin){.folder = text_format("%s", folder),
                                    .command = copy_text(r, line, "command"),
                                    .command_line = copy_text(r, line, "command_line"),
                                    .version = copy_text(r, line, "version"),
                                    .revision = copy_text(r, line, "revision"),
                                    .compiler = copy_text(r, line, "compiler"),
                                    .processor = copy_text(r, line, "processor"),
                                    .instruction_set = copy_text(r, line, "instruction_set"),
                                    .instruction_cap = cap ? text_format("%s", cap) : NULL,
                                    .started = copy_text(r, line, "started"),
                                    .threads = (int)read_whole(r, line, "threads", 1, INT_MAX),
                                    .trace_every = (int)read_whole(r, line, "trace_every", 0, INT_MAX)};
}

/* Moves *at behind a text that it begins with. */
static bool skip(const char **at, const char *text) {
    const size_t length = strlen(text);
    const bool has = !strncmp(*at, text, length);
    *at += has ? length : 0;
    return has;
}

/* Whether a part of a label is ':' and the value with which the last rule ends: that of --operands or --accumulate. */
static bool is_class(const char *part, size_t length, const char *policy) {
    const size_t end = strlen(policy);
    if (part[0] != ':' || length >= end)
        return false;
    const char *value = policy + end - length; /* with a ';' in the place of the ':' */
    return !strncmp(value, part + 1, length - 1) && strchr(" =", value[-1]);
}

/* Checks that the label is as series.c makes it: names of traces and lines of summary.csv contain it. */
static void check_label(struct reader *r, const struct series *s) {
    if (!s->plain && !strncmp(s->label, "policy:", 7) && s->label[7])
        return; /* a policy has the name of its file, which may contain an '@' */
    char *name = text_format("%.*s", (int)strcspn(s->label, "@"), s->label);
    name[tensor_format_extent(name)] = 0;
    char *predictor = text_format(":%s", s->predictor ? s->predictor : "");
    const char *at = s->label + strlen(name);
    bool good = nn_variant_find(name) == s->variant; /* "e5m10" is fp16 */
    good = good && (!s->no_master || skip(&at, ":nomaster")) && (!s->no_scale || skip(&at, ":noscale"));
    (void)(s->predictor && skip(&at, predictor));
    (void)(!s->plain && skip(&at, SERIES_LAYERS));
    const size_t length = strcspn(at, "@");
    if (!good || (length && !is_class(at, length, s->policy)) ||
        (at[length] && strcmp(at + length + 1, s->device) != 0))
        refuse(r, text_format("the name '%s' is not that of the variant '%s'", s->label, s->variant->name));
    free(predictor);
    free(name);
}

static void read_series(struct reader *r, const cJSON *item, struct series *s) {
    const char *variant = read_text(r, item, "variant"), *predictor = read_text_or_null(r, item, "predictor");
    s->label = copy_text(r, item, "name");
    s->backend = copy_text(r, item, "matmul_backend");
    const char *device = cJSON_GetObjectItemCaseSensitive(item, "device") ? read_text(r, item, "device") : "cpu";
    s->device = text_format("%s", device); /* results from before there were devices have none */
    s->variant = nn_variant_find(variant);
    if (!s->variant) {
        refuse(r, text_format("the variant '%s' is unknown to this flexlab", variant));
        return;
    }
    s->shared = tensor_format_is_shared(s->variant->format);
    s->no_master = s->variant->wide && !read_flag(r, item, "wide_weights");
    s->predictor = predictor && autoflex_find(predictor) ? autoflex_name(autoflex_find(predictor)) : NULL;
    if (predictor && !s->predictor)
        refuse(
            r,
            text_format(
                "the predictor '%s' of '%s' is unknown to this flexlab; one of your own is found by FLEXLAB_PREDICTORS",
                predictor, s->label));
    const char *policy = cJSON_GetObjectItemCaseSensitive(item, "policy") ? read_text_or_null(r, item, "policy") : NULL;
    const char *scale =
        cJSON_GetObjectItemCaseSensitive(item, "loss_scale") ? read_text(r, item, "loss_scale") : "none";
    s->no_scale = !strcmp(scale, "none") && strstr(s->label, ":noscale");
    char *own = series_plain_policy(s);
    s->plain = !policy || (!strcmp(policy, own) && strncmp(s->label, "policy:", 7) != 0); /* older results have null */
    s->policy = text_format("%s", policy ? policy : own);
    free(own);
    s->shared = s->shared || policy_names_shared(s->policy);
    if (predictor && !s->shared)
        refuse(r, text_format("the predictor '%s' of '%s', which has no shared exponent", predictor, s->label));
    if (s->plain && s->shared && !predictor) /* older results of a format made from its parameters */
        s->predictor = autoflex_name(autoflex_find(s->variant->predictor));
    char full[256] = "";
    s->loss_scale = text_format("%s", scale); /* older results have none */
    if (nn_loss_scale_text(full, sizeof full, scale) || strcmp(full, scale) != 0)
        refuse(r, text_format("the loss scale '%s' of '%s' is unknown to this flexlab", scale, s->label));
    check_label(r, s);
}

static void read_formats(struct reader *r, const cJSON *line) {
    struct experiment *x = &r->stored->x;
    const cJSON *item, *list = read_list(r, line, "formats");
    x->series = text_alloc((size_t)cJSON_GetArraySize(list), sizeof *x->series);
    cJSON_ArrayForEach(item, list) {
        if (r->lines.status != STATUS_OK)
            return;
        struct series *s = &x->series[x->series_count++];
        read_series(r, item, s);
        for (int i = 0; i < x->series_count - 1; i++)
            if (!strcmp(x->series[i].label, s->label))
                refuse(r, text_format("the format '%s' occurs twice", s->label));
    }
}

static void read_seeds(struct reader *r, const cJSON *line) {
    struct experiment *x = &r->stored->x;
    const cJSON *item, *list = read_list(r, line, "seeds");
    if (cJSON_GetArraySize(list) > MOST_SEEDS) {
        refuse(r, text_format("there are %d seeds, expected at most %d", cJSON_GetArraySize(list), MOST_SEEDS));
        return;
    }
    x->seeds = text_alloc((size_t)cJSON_GetArraySize(list), sizeof *x->seeds);
    cJSON_ArrayForEach(item, list) {
        double seed = cJSON_IsNumber(item) ? item->valuedouble : -1;
        if (!(seed >= 0 && seed <= 0x1p53 && seed == floor(seed))) {
            refuse(r, text_format("the field 'seeds' contains something that is not a seed"));
            return;
        }
        x->seeds[x->seed_count++] = (uint64_t)seed;
        for (int i = 0; i < x->seed_count - 1; i++)
            if (x->seeds[i] == (uint64_t)seed)
                refuse(r, text_format("the seed %.0f occurs twice", seed));
    }
}

static void read_data(struct reader *r, const cJSON *line) {
    const cJSON *data = field(r, line, "data");
    const int context = data && cJSON_GetObjectItemCaseSensitive(data, "context") /* older results have none */
                            ? (int)read_whole(r, data, "context", 0, INT_MAX)
                            : 0;
    const bool text = context > 0;
    r->stored->settings.data = read_text(r, data, "specification");
    r->stored->x.data = (struct dimensions){.train = read_whole(r, data, "train", 1, INT64_MAX),
                                            .test = read_whole(r, data, "test", 1, INT64_MAX),
                                            .height = (int)read_whole(r, data, "height", !text, INT_MAX),
                                            .width = (int)read_whole(r, data, "width", !text, INT_MAX),
                                            .channels = (int)read_whole(r, data, "channels", !text, INT_MAX),
                                            .classes = (int)read_whole(r, data, "classes", 1, INT_MAX),
                                            .context = context};
}

/* Older results have none. */
static const char *read_batchnorm(struct reader *r, const cJSON *line) {
    const char *of = cJSON_GetObjectItemCaseSensitive(line, "batchnorm") ? read_text(r, line, "batchnorm") : "shard";
    if (r->lines.status == STATUS_OK && strcmp(of, "shard") != 0 && strcmp(of, "global") != 0)
        refuse(r, text_format("the field 'batchnorm' is '%s', expected shard or global", of));
    return of;
}

static void read_settings(struct reader *r, const cJSON *line) {
    struct settings *s = &r->stored->settings;
    struct experiment *x = &r->stored->x;
    s->model = read_text(r, line, "model");
    s->weights = cJSON_GetObjectItemCaseSensitive(line, "weights") ? read_text_or_null(r, line, "weights") : NULL;
    s->epochs = read_whole(r, line, "epochs", 1, MOST_EPOCHS);
    s->batch = read_whole(r, line, "batch", 1, INT_MAX);
    s->shards = cJSON_GetObjectItemCaseSensitive(line, "shards") ? read_whole(r, line, "shards", 1, INT_MAX) : 1;
    s->batchnorm = read_batchnorm(r, line);
    s->max_steps = read_whole(r, line, "max_steps", 0, INT64_MAX);
    s->schedule = read_text(r, line, "schedule");
    s->warmup = read_number(r, line, "warmup_epochs");
    snprintf(s->optimiser_text, sizeof s->optimiser_text, "%s",
             cJSON_GetObjectItemCaseSensitive(line, "optimizer") ? read_text(r, line, "optimizer") : "sgd");
    s->momentum = read_number(r, line, "momentum");
    s->weight_decay = read_number(r, line, "weight_decay");
    s->average_last = read_whole(r, line, "average_last", 1, INT64_MAX);
    s->trace_tensors = read_text_or_null(r, line, "trace_tensors");
    x->rate = read_number(r, line, "rate");
    x->augment = read_flag(r, line, "augment");
    x->steps_per_epoch = read_whole(r, line, "steps_per_epoch", 1, INT64_MAX);
    x->steps = read_whole(r, line, "steps", 1, INT64_MAX);
    x->window = (int)read_whole(r, line, "window", 1, INT_MAX);
    x->trace_every = (int)read_whole(r, line, "trace_every", 0, INT_MAX);
}

static void read_config(struct reader *r, const cJSON *line, const char *folder) {
    struct experiment *x = &r->stored->x;
    const char *type = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(line, "type"));
    if (!type || strcmp(type, "config") != 0 || !cJSON_GetObjectItemCaseSensitive(line, "formats")) {
        refuse(r, text_format("is not the first line of a metrics.jsonl of flexlab"));
        return;
    }
    int64_t schema = read_whole(r, line, "schema", 0, INT_MAX);
    if (schema != METRICS_SCHEMA)
        refuse(r, text_format("is in layout %lld, this flexlab reads layout %d", (long long)schema, METRICS_SCHEMA));
    read_origin(r, line, folder);
    read_formats(r, line);
    read_seeds(r, line);
    read_data(r, line);
    read_settings(r, line);
    if (r->lines.status == STATUS_OK && x->series_count > MOST_RUNS / x->seed_count)
        refuse(r, text_format("there are %d formats with %d seeds, expected at most %d runs", x->series_count,
                              x->seed_count, MOST_RUNS));
    if (r->lines.status == STATUS_OK)
        experiment_make_runs(x);
}

/* --- lines of runs ------------------------------------------------------------------------------------------------ */

static struct run *find_run(struct reader *r, const cJSON *line) {
    struct experiment *x = &r->stored->x;
    const char *label = read_text(r, line, "format");
    int64_t seed = read_whole(r, line, "seed", 0, INT64_MAX);
    for (int i = 0; i < x->run_count; i++)
        if (x->runs[i].seed == (uint64_t)seed && !strcmp(x->series[x->runs[i].series].label, label))
            return &x->runs[i];
    refuse(r, text_format("the run '%s' seed %lld is not among those of the first line", label, (long long)seed));
    return NULL;
}

static bool is_over(const struct run *run) {
    return run->finished || run->stopped || run->failure;
}

/* Older results have only the mean of all steps. */
static void read_finite(struct reader *r, const cJSON *line, struct window *w) {
    w->nonfinite = isfinite(w->loss) ? 0 : w->count;
    if (!cJSON_GetObjectItemCaseSensitive(line, "nonfinite"))
        return;
    w->nonfinite = (int)read_whole(r, line, "nonfinite", 0, w->count);
    w->finite_loss = read_real(r, line, "finite_loss");
    if (r->lines.status == STATUS_OK && w->nonfinite &&
        (isfinite(w->loss) || isnan(w->finite_loss) != (w->nonfinite == w->count)))
        refuse(r, text_format("the fields 'nonfinite' and 'finite_loss' do not agree"));
}

/* Figures pair the windows of two runs by their number, so none may be missing. */
static void read_window(struct reader *r, const cJSON *line, struct run *run) {
    struct window window = {.step = read_whole(r, line, "step", 1, INT64_MAX),
                            .count = (int)read_whole(r, line, "count", 1, INT_MAX),
                            .loss = read_state(r, line, "loss"),
                            .rate = read_number(r, line, "rate")};
    read_finite(r, line, &window);
    int64_t before = run->window_count ? run->windows[run->window_count - 1].step : 0;
    if (window.step != before + window.count)
        refuse(r, text_format("step %lld, the last of %d, does not follow step %lld: a line is missing",
                              (long long)window.step, window.count, (long long)before));
    run->windows = text_realloc(run->windows, (size_t)run->window_count + 1, sizeof *run->windows);
    run->windows[run->window_count++] = window;
}

static void read_epoch(struct reader *r, const cJSON *line, struct run *run) {
    const nn_epoch_report epoch = {.epoch = (int)read_whole(r, line, "epoch", 1, MOST_EPOCHS),
                                   .step = read_whole(r, line, "step", 1, INT64_MAX),
                                   .train_loss = read_state(r, line, "train_loss"),
                                   .train_accuracy = read_number(r, line, "train_accuracy"),
                                   .test_loss = read_state(r, line, "test_loss"),
                                   .test_accuracy = read_number(r, line, "test_accuracy"),
                                   .seconds = read_number(r, line, "seconds")};
    if (epoch.epoch != run->epoch_count + 1)
        refuse(r, text_format("epoch %d does not follow epoch %d: a line is missing", epoch.epoch, run->epoch_count));
    run->epochs = text_realloc(run->epochs, (size_t)run->epoch_count + 1, sizeof *run->epochs);
    run->epochs[run->epoch_count++] = epoch;
}

/* The loss of the first step whose loss is not finite; 0 without one. */
static double read_nonfinite(struct reader *r, const cJSON *line, int64_t step) {
    const char *state = read_text(r, line, "nonfinite_loss_state");
    double loss = !strcmp(state, "nan")    ? NAN
                  : !strcmp(state, "inf")  ? INFINITY
                  : !strcmp(state, "-inf") ? -INFINITY
                                           : 0;
    if (step ? loss == 0 : strcmp(state, "none") != 0)
        refuse(r, text_format("the fields 'nonfinite_step' and 'nonfinite_loss_state' do not agree"));
    return loss;
}

/* Older results do not record it. */
static void read_first(struct reader *r, const cJSON *line, struct run *run) {
    static const char *const passes[] = {"none", "input", "forward", "loss", "backward", "update", "unknown"};
    struct nonfinite *first = &run->first;
    if (!cJSON_GetObjectItemCaseSensitive(line, "first_nonfinite_step"))
        return;
    const int64_t step = read_whole(r, line, "first_nonfinite_step", 0, INT64_MAX);
    const char *pass = read_text(r, line, "first_nonfinite_pass");
    size_t known = 0;
    while (known < sizeof passes / sizeof *passes && strcmp(passes[known], pass) != 0)
        known++;
    if (known == sizeof passes / sizeof *passes || !step != !known)
        refuse(r, text_format("the fields 'first_nonfinite_step' and 'first_nonfinite_pass' do not agree"));
    if (r->lines.status != STATUS_OK || !step)
        return;
    const char *remedy = read_text_or_null(r, line, "first_nonfinite_remedy");
    *first = (struct nonfinite){.step = step,
                                .count = read_whole(r, line, "first_nonfinite_count", 0, INT64_MAX),
                                .elements = read_whole(r, line, "first_nonfinite_elements", 0, INT64_MAX),
                                .pass = text_format("%s", pass),
                                .tensor = copy_text(r, line, "first_nonfinite_tensor"),
                                .role = copy_text(r, line, "first_nonfinite_role"),
                                .layer = copy_text(r, line, "first_nonfinite_layer"),
                                .format = copy_text(r, line, "first_nonfinite_format"),
                                .remedy = remedy ? text_format("%s", remedy) : NULL};
}

static bool is_tested(const struct run *run) {
    return !isnan(run->result.test_accuracy);
}

static void read_scaling_and_timing(struct reader *r, const cJSON *line, struct run *run) {
    nn_train_result *result = &run->result;
    result->loss_scale = read_number(r, line, "loss_scale");
    result->skipped = read_whole(r, line, "skipped", 0, INT64_MAX);
    result->skipped_in_a_row = read_whole(r, line, "skipped_in_a_row", 0, result->skipped);
    result->skipped_at_end = read_whole(r, line, "skipped_at_end", 0, result->skipped_in_a_row);
    run->timing = (struct timing){.low = read_real(r, line, "step_seconds_low"),
                                  .median = read_real(r, line, "step_seconds"),
                                  .high = read_real(r, line, "step_seconds_high"),
                                  .count = read_whole(r, line, "timed", 0, INT64_MAX),
                                  .wall = read_number(r, line, "wall_seconds")};
}

/* Older results do not have it. */
static const char *read_engine(struct reader *r, const cJSON *line) {
    static const char *const names[] = {"mpi", "nccl", "none"};
    const char *text = cJSON_GetObjectItemCaseSensitive(line, "rank_engine") ? read_text(r, line, "rank_engine") : NULL;
    for (size_t i = 0; text && i < sizeof names / sizeof *names; i++)
        if (!strcmp(text, names[i]))
            return strcmp(text, "none") != 0 ? names[i] : NULL;
    if (text && r->lines.status == STATUS_OK)
        refuse(r, text_format("the field 'rank_engine' is '%s', expected mpi, nccl or none", text));
    return NULL;
}

/* Older results have none of these. */
static void read_exchange(struct reader *r, const cJSON *line, struct run *run) {
    const int ranks = (int)read_whole(r, line, "ranks", 1, INT_MAX);
    run->exchange = (struct exchange){.ranks = ranks > 1 ? ranks : 0,
                                      .engine = read_engine(r, line),
                                      .sent = read_whole(r, line, "rank_sent", 0, INT64_MAX),
                                      .waited = read_number(r, line, "rank_waited"),
                                      .overlapped = read_number(r, line, "rank_overlapped"),
                                      .steps = read_whole(r, line, "rank_steps", 0, INT64_MAX),
                                      .seconds = read_number(r, line, "rank_seconds")};
}

static void read_scale(struct reader *r, const cJSON *line, struct run *run) {
    const int64_t before = run->scale_count ? run->scales[run->scale_count - 1].step : 0;
    const int64_t step = read_whole(r, line, "step", before + 1, INT64_MAX);
    run_scaled(run, step, read_number(r, line, "scale"));
}

static void read_run(struct reader *r, const cJSON *line, struct run *run) {
    run->finished = read_flag(r, line, "complete");
    run->stopped = !run->finished;
    run->first_loss = read_state(r, line, "first_loss");
    run->nonfinite_step = read_whole(r, line, "nonfinite_step", 0, INT64_MAX);
    run->nonfinite_loss = read_nonfinite(r, line, run->nonfinite_step);
    read_first(r, line, run);
    run->result = (nn_train_result){.stopped = run->stopped,
                                    .train_loss = read_state(r, line, "train_loss"),
                                    .last_loss = read_state(r, line, "last_loss"),
                                    .test_loss = read_state(r, line, "test_loss"),
                                    .test_accuracy = read_real(r, line, "test_accuracy"),
                                    .seconds = read_number(r, line, "seconds")};
    nn_train_result *result = &run->result;
    const struct {
        const char *key;
        int64_t *value;
    } wholes[] = {{"images", &result->images},
                  {"steps", &result->steps},
                  {"parameters", &result->parameters},
                  {"weight_bytes", &result->weight_bytes},
                  {"activation_bytes", &result->activation_bytes},
                  {"arena_bytes", &result->arena_bytes},
                  {"saturated", &result->saturated},
                  {"flushed", &result->flushed},
                  {"nonfinite", &result->nonfinite},
                  {"elements", &result->elements},
                  {"clamped_low", &result->clamped_low},
                  {"clamped_high", &result->clamped_high}};
    for (size_t i = 0; i < sizeof wholes / sizeof *wholes; i++)
        *wholes[i].value = read_whole(r, line, wholes[i].key, 0, INT64_MAX);
    result->loss_scale = 1;
    if (cJSON_GetObjectItemCaseSensitive(line, "step_seconds")) /* older results have none of these */
        read_scaling_and_timing(r, line, run);
    if (cJSON_GetObjectItemCaseSensitive(line, "ranks"))
        read_exchange(r, line, run);
    if (!strcmp(read_text(r, line, "test_loss_state"), "none") == is_tested(run))
        refuse(r, text_format("the fields 'test_loss' and 'test_accuracy' do not agree"));
}

static void read_predictions(struct reader *r, const cJSON *line, struct run *run) {
    const cJSON *item, *list = read_list(r, line, "classes");
    int classes = r->stored->x.data.classes;
    if (!is_over(run) || !is_tested(run)) {
        refuse(r, text_format("predictions of a run that no line before says was tested"));
        return;
    }
    if (run->stored) {
        refuse(r, text_format("this run has two lines of predictions"));
        return;
    }
    const int64_t labels = experiment_labels(&r->stored->x);
    if (cJSON_GetArraySize(list) != labels) {
        refuse(r, text_format("%d predictions, expected one for each of %lld test %s", cJSON_GetArraySize(list),
                              (long long)labels, r->stored->x.data.context ? "tokens" : "images"));
        return;
    }
    run->stored = text_alloc((size_t)cJSON_GetArraySize(list), sizeof *run->stored);
    cJSON_ArrayForEach(item, list) {
        double class = cJSON_IsNumber(item) ? item->valuedouble : -1;
        if (!(class >= 0 && class < classes && class == floor(class))) {
            refuse(r, text_format("the field 'classes' contains a number that is not one of %d classes", classes));
            return;
        }
        run->stored[run->result.predicted_count++] = (int32_t) class;
    }
}

static void read_failure(struct reader *r, const cJSON *line, struct run *run) {
    free(run->failure);
    run->failure = text_format("%s", read_text(r, line, "reason"));
}

static void read_end(struct reader *r, const cJSON *line) {
    int64_t finished = read_whole(r, line, "finished_runs", 0, INT_MAX);
    int found = experiment_finished(&r->stored->x);
    if (finished != found)
        refuse(r, text_format("the field 'finished_runs' is %lld, but the lines before hold %d finished runs",
                              (long long)finished, found));
    for (int i = 0; i < r->stored->x.run_count && r->lines.status == STATUS_OK; i++) {
        const struct run *run = &r->stored->x.runs[i];
        if (run->finished && is_tested(run) && !run->stored)
            refuse(r, text_format("the run of '%s' with seed %llu was tested, but a line of its predictions is missing",
                                  r->stored->x.series[run->series].label, (unsigned long long)run->seed));
    }
    r->ended = true;
}

/* Statistics over the seeds are computed again, and losses of single steps are not drawn: their lines are skipped. */
static void read_line(struct reader *r, const cJSON *line) {
    static const struct {
        const char *type;
        void (*read)(struct reader *r, const cJSON *line, struct run *run);
    } kinds[] = {{"steps", read_window}, {"epoch", read_epoch},
                 {"run", read_run},      {"predictions", read_predictions},
                 {"scale", read_scale},  {"failed", read_failure},
                 {"step", NULL},         {"format", NULL},
                 {"roles", NULL},        {"end", NULL}};
    const char *type = read_text(r, line, "type");
    for (size_t i = 0; r->lines.status == STATUS_OK && i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(kinds[i].type, type) != 0)
            continue;
        struct run *run = kinds[i].read ? find_run(r, line) : NULL;
        if (run && is_over(run) && kinds[i].read != read_predictions)
            refuse(r, text_format("this run has a line of its own before: it is over"));
        else if (run)
            kinds[i].read(r, line, run);
        if (!strcmp(type, "end"))
            read_end(r, line);
        return;
    }
    refuse(r, text_format("a line of type '%s' is unknown to this flexlab", type));
}

/* --- the file ----------------------------------------------------------------------------------------------------- */

static int cannot_open(const char *path, const char *folder, const char *why) {
    int reason = errno;
    char *part = text_format("%s/flexlab.part", folder), *old = text_format("%s/flexlab.old", folder),
         *new = text_format("%s/flexlab.new", folder),
         *apart = text_format("%s/flexlab.incomplete/metrics.jsonl", folder);
    const char *hint = !access(part, F_OK) ? "; a training is writing there or was killed"
                       : !access(new, F_OK) || !access(old, F_OK)
                           ? "; results took their places when flexlab was killed: the next 'flexlab compare' or "
                             "'flexlab train' with this --out repairs that"
                       : !access(apart, R_OK) ? "; there are incomplete results in its folder flexlab.incomplete"
                       : reason == ENOENT     ? "; expected a folder that 'flexlab compare' or 'flexlab train' wrote"
                                              : "";
    int status = text_failed("cannot read %s: %s%s", path, why, hint);
    free(part);
    free(old);
    free(new);
    free(apart);
    return status;
}

static void read_lines(struct reader *r, const char *folder) {
    for (cJSON *line; (line = json_lines_next(&r->lines));) {
        if (r->lines.number == 1) {
            r->stored->config = line;
            read_config(r, line, folder);
            continue;
        }
        if (r->ended)
            refuse(r, text_format("a line after the end line"));
        else
            read_line(r, line);
        cJSON_Delete(line);
    }
    if (r->lines.status == STATUS_OK && !r->ended)
        r->lines.status =
            text_failed("%s: is not complete: there is no end line after line %ld", r->lines.path, r->lines.number - 1);
}

int stored_read(struct stored *stored, const char *folder) {
    *stored = (struct stored){0};
    struct reader r = {.stored = stored};
    char *path = text_format("%s/metrics.jsonl", folder);
    const char *why;
    if (json_lines_open(&r.lines, path, &why)) {
        read_lines(&r, folder);
        json_lines_close(&r.lines);
    } else {
        r.lines.status = cannot_open(path, folder, why);
    }
    stored->x.settings = &stored->settings;
    stored->x.stopped = experiment_finished(&stored->x) < stored->x.run_count;
    free(path);
    return r.lines.status;
}

void stored_clear(struct stored *stored) {
    experiment_clear(&stored->x);
    cJSON_Delete(stored->config);
    *stored = (struct stored){0};
}
