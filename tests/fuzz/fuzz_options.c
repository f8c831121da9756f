/* fuzz_options.c - the command line of `flexlab compare` and `flexlab train`: any words, and the options that are
 * stored for a resumed training.
 *
 * Input: a byte (bit 0: the command), then the words, each ended by a line feed. Accepted options must lie within the
 * limits of the help text; refused ones must cause a message. */
#include "messages.h"
#include "options/options.h"
#include "options/series.h"
#include "base/text.h"
#include <math.h>

enum { WORDS = 64 };

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    text_set_command("fuzz");
    return 0;
}

static bool one_of(const char *text, const char *const *names, int count) {
    for (int i = 0; i < count; i++)
        if (!strcmp(text, names[i]))
            return true;
    return false;
}
#define ONE_OF(text, ...)                                                                                              \
    one_of(text, (const char *const[]){__VA_ARGS__}, (int)(sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *)))

/* Checks that an option has the value for one that is not given, or is within the limits of the help text. */
static void whole(const char *name, int64_t value, int64_t unset, int64_t low, int64_t high) {
    MUST(value == unset || (value >= low && value <= high), "--%s %lld was accepted", name, (long long)value);
}

static void real(const char *name, double value, double unset, double low, double high) {
    MUST(value == unset || (value >= low && value <= high), "--%s %g was accepted", name, value);
}

static void check_settings(const struct settings *s) {
    whole("epochs", s->epochs, 10, 1, 100000);
    whole("batch", s->batch, 128, 1, 65536);
    whole("seeds", s->seeds, 1, 1, 1000);
    whole("seed-base", s->seed_base, 1, 0, 1000000000000000);
    whole("train-limit", s->train_limit, 0, 1, INT_MAX);
    whole("test-limit", s->test_limit, 0, 1, INT_MAX);
    whole("max-steps", s->max_steps, 0, 1, INT_MAX);
    whole("average-last", s->average_last, 100, 1, INT_MAX);
    whole("threads", s->threads, 0, 1, 256);
    whole("trace-every", s->trace_every, 0, 1, INT_MAX);
    real("lr", s->rate, 0, 1e-30, 1000);
    real("warmup", s->warmup, 0, 0, 100000);
    real("momentum", s->momentum, 0.9, 0, 0.999999);
    real("weight-decay", s->weight_decay, 1e-4, 0, 1);
    MUST(s->warmup < (double)s->epochs, "--warmup %g of %lld epochs was accepted", s->warmup, (long long)s->epochs);
    MUST(ONE_OF(s->schedule, "linear", "cosine", "step", "constant"), "--schedule %s was accepted", s->schedule);
    MUST(!s->batchnorm || ONE_OF(s->batchnorm, "shard", "global"), "--batchnorm %s was accepted", s->batchnorm);
    MUST(ONE_OF(s->master, "default", "none"), "--master %s was accepted", s->master);
    MUST(!s->predictor || autoflex_find(s->predictor), "--predictor %s was accepted", s->predictor);
    MUST(s->model[0] && (s->data ? s->data[0] != 0 : s->resume != NULL) &&
             (s->formats ? s->formats[0] != 0 : s->policy && s->policy[0]),
         "an empty text was accepted");
    MUST(s->out ? s->out[0] != 0 : s->resume && s->resume[0], "there is no folder for the results");
    whole("checkpoint-every", s->checkpoint_every, 0, 1, INT_MAX);
    MUST(s->augment == SWITCH_UNSET || s->augment == 0 || s->augment == 1, "augment is %d", s->augment);
}

static void check_series(const struct settings *s) {
    struct series *series;
    int count;
    messages_begin();
    const int status = series_read(s, &series, &count);
    messages_end();
    must_say("series_read", status != STATUS_OK);
    MUST(status == STATUS_OK ? series && count > 0 : !series && !count, "%d series after status %d", count, status);
    for (int i = 0; i < count; i++) {
        const struct series *one = &series[i];
        const char *begins = !one->plain && !strncmp(one->label, "policy:", 7) ? "policy:" : one->variant->name;
        MUST(!strncmp(one->label, begins, strlen(begins)), "series %d is called %s", i, one->label);
        MUST(!one->plain || !one->predictor == !one->shared, "%s: predictor %s", one->label,
             one->predictor ? one->predictor : "none");
        for (int k = 0; k < i; k++)
            MUST(strcmp(series[k].label, series[i].label), "%s occurs twice", series[i].label);
    }
    series_free(series, count);
}

static void check_model(const struct settings *s) {
    if (!strncmp(s->model, "resnet", 6) && strlen(s->model) > 9) /* thousands of layers: valid, but it takes seconds */
        return;
    messages_begin();
    const int status = options_check_model(s->model);
    messages_end();
    must_say("options_check_model", status != STATUS_OK);
    const double rate = options_default_rate(s->model);
    MUST(rate > 0 && rate <= 1, "%s: default rate %g", s->model, rate);
}

static bool same_text(const char *a, const char *b) {
    return a && b ? !strcmp(a, b) : a == b;
}

/* Checks that a resumed training has the options of the original one. */
static void check_kept(const struct settings *s, int count, char **words) {
    struct settings again;
    int kept_count;
    char *kept = options_kept(s->command, count, words),
         **kept_words = options_kept_words(s->command == COMMAND_TRAIN ? "train" : "compare", kept, &kept_count);
    for (const char *p = kept; *p; p++)
        MUST(*p >= ' ' && *p < 0x7f, "0x%02x among the kept options", (unsigned char)*p);
    messages_begin();
    const int status = kept_words ? options_parse(&again, s->command, kept_count, kept_words) : STATUS_FAILED;
    messages_end();
    MUST(status == STATUS_OK && !again.help && !again.resume && !again.force, "'%s' is refused: %s", kept, messages);
    MUST(again.epochs == s->epochs && again.batch == s->batch && again.seeds == s->seeds &&
             again.shards == (s->shards ? s->shards : 1) && again.seed_base == s->seed_base &&
             again.train_limit == s->train_limit && again.test_limit == s->test_limit &&
             again.max_steps == s->max_steps && again.average_last == s->average_last &&
             again.trace_every == s->trace_every && again.rate == s->rate && again.warmup == s->warmup &&
             again.momentum == s->momentum && again.weight_decay == s->weight_decay && again.augment == s->augment &&
             again.step_loss == s->step_loss && again.no_trace == s->no_trace,
         "'%s' says something else", kept);
    MUST(same_text(again.model, s->model) && same_text(again.data, s->data ? s->data : "synthetic") &&
             same_text(again.formats, s->formats) && same_text(again.schedule, s->schedule) &&
             same_text(again.batchnorm, s->batchnorm ? s->batchnorm : "shard") && same_text(again.master, s->master) &&
             same_text(again.predictor, s->predictor) && same_text(again.device, s->device) &&
             same_text(again.optimiser_text, s->optimiser_text) && same_text(again.trace_tensors, s->trace_tensors),
         "'%s' says something else", kept);
    free(kept_words);
    free(kept);
}

/* Reads any text instead of stored options. */
static void check_foreign(struct input in) {
    struct settings again;
    int count;
    char *text = take_text(&in, '\0'), **words = options_kept_words("train", text, &count);
    messages_begin();
    if (words)
        (void)options_parse(&again, COMMAND_TRAIN, count, words);
    messages_end();
    free(words);
    free(text);
}

/* Whatever came before, a valid command line is read correctly. */
static void check_good(enum command command) {
    char *words[] = {"flexlab", "--batch=7", "--quiet", NULL};
    struct settings settings;
    messages_begin();
    const int status = options_parse(&settings, command, 3, words);
    messages_end();
    MUST(status == STATUS_OK && settings.batch == 7 && settings.quiet == 1, "a good command line: %s", messages);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct input in = input_of(data, size);
    const enum command command = take_byte(&in) & 1 ? COMMAND_TRAIN : COMMAND_COMPARE;
    check_foreign(in);
    char *words[WORDS + 2] = {strdup("flexlab")}, *given[WORDS + 1];
    int count = 1;
    while (count <= WORDS && input_left(&in))
        words[count++] = take_text(&in, '\n');
    memcpy(given, words, (size_t)count * sizeof *words); /* getopt_long reorders the words */
    struct settings settings;
    messages_begin();
    const int status = options_parse(&settings, command, count, words);
    messages_end();
    must_say("options_parse", status != STATUS_OK);
    MUST(status == STATUS_OK || status == STATUS_USAGE, "status %d", status);
    if (status == STATUS_OK && !settings.help) {
        check_settings(&settings);
        check_kept(&settings, count, words);
        check_series(&settings);
        check_model(&settings);
    }
    for (int i = 0; i < count; i++)
        free(given[i]);
    check_good(command);
    return 0;
}
