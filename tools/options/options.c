/* options.c - the command line as settings; each word is checked by its entry of the table. */
#include "options/options.h"
#include "options/options_resolve.h"
#include "options/options_table.h"
#include "base/text.h"
#include "flexlab/autoflex.h"
#include <stdlib.h>
#include <string.h>

enum { UNSET = -1 }; /* of a number that is 0 or more */

static int current_command; /* whose options option_name lists */

static const char *option_name(int i) {
    const struct option_row *row;
    for (int r = 0; (row = options_row(r)); r++)
        if (row->commands & current_command && i-- == 0)
            return row->name;
    return NULL;
}

static int store(struct settings *settings, const struct option_row *row, const char *text) {
    void *field = (char *)settings + row->offset;
    switch (row->kind) {
    case KIND_TEXT:
        if (!text[0])
            return text_usage("--%s '': expected %s", row->name, row->placeholder);
        *(const char **)field = text;
        return STATUS_OK;
    case KIND_NAME:
        for (int i = 0; row->names(i); i++) {
            const char *name = row->names(i);
            const size_t words = strcspn(name, ":");
            double number;
            if (name[words] && !strncmp(name, text, words + 1)) {
                if (!text_real(text + words + 1, row->low, row->high, &number))
                    return text_usage("--%s '%s': expected %s with a number from %g to %g", row->name, text, name,
                                      row->low, row->high);
            } else if (strcmp(name, text) != 0) {
                continue;
            }
            *(const char **)field = text;
            return STATUS_OK;
        }
        if (row->names == options_predictor_name && strchr(text, ':')) {
            autoflex_predictor predictor; /* with parameters */
            if (autoflex_parse(&predictor, text))
                return text_usage("--%s: %s", row->name, tensor_error());
            *(const char **)field = text;
            return STATUS_OK;
        }
        return text_refuse_name(text_format("--%s '%s'", row->name, text), text, row->names);
    case KIND_WHOLE:
        if (text_whole(text, (int64_t)row->low, (int64_t)row->high, field))
            return STATUS_OK;
        return text_usage("--%s '%s': expected a whole number from %.0f to %.0f", row->name, text, row->low, row->high);
    case KIND_REAL:
        if (text_real(text, row->low, row->high, field))
            return STATUS_OK;
        return text_usage("--%s '%s': expected a number from %.10g to %.10g", row->name, text, row->low, row->high);
    case KIND_SWITCH:
        *(int *)field = row->value;
        return STATUS_OK;
    case KIND_LIST: {
        struct word_list *const list = field;
        if (!text[0])
            return text_usage("--%s '': expected %s", row->name, row->placeholder);
        if (list->count == MOST_WORDS)
            return text_usage("--%s '%s': expected at most %d of them", row->name, text, MOST_WORDS);
        list->word[list->count++] = text;
        return STATUS_OK;
    }
    }
    return STATUS_USAGE;
}

/* The hint for an option that other programs have; NULL if none is known. */
static const char *elsewhere(const char *name) {
    static const struct {
        const char *name, *option, *hint;
    } others[] = {{"gpu", "device", "; expected --device cuda"},
                  {"cuda", "device", "; expected --device cuda"},
                  {"cpu", "device", "; expected --device cpu"},
                  {"batch-size", "batch", "; did you mean 'batch'?"},
                  {"learning-rate", "lr", "; did you mean 'lr'?"},
                  {"rate", "lr", "; did you mean 'lr'?"},
                  {"optimiser", "optimizer", "; did you mean 'optimizer'?"},
                  {"steps", "max-steps", "; did you mean 'max-steps'?"},
                  {"dataset", "data", "; did you mean 'data'?"},
                  {"output", "out", "; did you mean 'out'?"},
                  {"formats", "format", "; 'flexlab compare' takes --formats, train has --format with one"},
                  {"format", "formats", "; 'flexlab train' takes --format, compare has --formats with a list"}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        for (int k = 0; !strcmp(others[i].name, name) && option_name(k); k++)
            if (!strcmp(others[i].option, option_name(k)))
                return others[i].hint;
    return NULL;
}

/* The options that begin with `name`, such as "--augment, --average-last"; to be freed. */
static char *options_like(const char *name, int *count) {
    char *all = text_format("%s", "");
    *count = 0;
    for (int i = 0; name[0] && option_name(i); i++)
        if (!strncmp(name, option_name(i), strlen(name))) {
            char *longer = text_format("%s%s--%s", all, ++*count > 1 ? ", " : "", option_name(i));
            free(all);
            all = longer;
        }
    return all;
}

/* Reports the word that getopt_long refused, without its value. */
static int refuse(const char *word) {
    size_t dashes = strspn(word, "-");
    char *name = text_format("%.*s", (int)strcspn(word + dashes, "="), word + dashes);
    const char *other = elsewhere(name), *hint = other ? other : text_did_you_mean(name, option_name);
    int count, known = 0;
    char *like = options_like(dashes == 2 ? name : "", &count);
    for (int i = 0; option_name(i); i++)
        known += dashes == 2 && !strcmp(name, option_name(i));
    int status;
    if (known)
        status = text_usage("option '%s' takes no value", word);
    else if (count && !other)
        status = text_usage("option '--%s' is not a whole name, expected %s%s", name, count > 1 ? "one of " : "", like);
    else
        status =
            text_usage("unknown option '%.*s%s'%s%s", (int)dashes, word, name, hint, hint[0] ? "" : "; see --help");
    free(like);
    free(name);
    return status;
}

static bool is_whole(const char *name, const char *word) {
    const size_t length = strcspn(word + 2, "=");
    return strlen(name) == length && !strncmp(word + 2, name, length);
}

const char *options_shortened(const struct option *found, char *const *argv) {
    const char *word = argv[optind - 1];
    if (found->has_arg == required_argument && optarg == word)
        word = argv[optind - 2];
    return is_whole(found->name, word) ? NULL : word;
}

int options_parse(struct settings *settings, enum command command, int argc, char **argv) {
    const char *not_going_on = NULL;
    *settings = (struct settings){.command = command,
                                  .model = "cnn6",
                                  .schedule = "linear",
                                  .master = "default",
                                  .group = "mpi",
                                  .split = "test",
                                  .epochs = 10,
                                  .batch = command == COMMAND_WGAN ? 64 : 0,
                                  .calibration_batches = 10,
                                  .seconds = 1,
                                  .gan_steps = 1000,
                                  .latent = 64,
                                  .filters = 32,
                                  .critic_steps = 5,
                                  .samples = 64,
                                  .clip = 0.01,
                                  .memory = command & (COMMAND_EVAL | COMMAND_WHAT_IF) ? USUAL_MEMORY : 0,
                                  .batch_count = 4,
                                  .sort = "error",
                                  .rate = command == COMMAND_WGAN ? 5e-5 : 0,
                                  .seeds = 1,
                                  .seed_base = command == COMMAND_WHAT_IF ? UNSET : 1,
                                  .average_last = 100,
                                  .momentum = UNSET,
                                  .weight_decay = UNSET,
                                  .augment = SWITCH_UNSET};
    const struct option *known = options_known(command);
    current_command = command;
    opterr = 0;
    optind = 0; /* a reset: with 1, getopt_long would continue within the last word of an earlier call */
    for (int found, which = 0; (found = getopt_long(argc, argv, ":h", known, &which)) != -1;) {
        const char *word = argv[optind - 1];
        if (found == 'h')
            settings->help = 1;
        else if (found == ':')
            return optopt >= OPTION_FOUND && !is_whole(options_row(optopt - OPTION_FOUND)->name, word)
                       ? refuse(word)
                       : text_usage("option '%s' needs a value", word);
        else if (found == '?')
            return refuse(word);
        else {
            const struct option_row *row = options_row(found - OPTION_FOUND);
            const char *shortened = options_shortened(&known[which], argv);
            int status = shortened ? refuse(shortened) : store(settings, row, optarg);
            if (status)
                return status;
            if (!(row->commands & GOING_ON))
                not_going_on = row->name;
        }
        if (settings->help)
            return STATUS_OK;
    }
    if (!settings->data && !settings->resume && command != COMMAND_WHAT_IF) /* these have their own */
        settings->data = "synthetic";
    options_resolve_model(settings);
    options_resolve_optimiser(settings);
    options_resolve_formats(settings);
    settings->folders = argv + optind; /* getopt_long has moved them to the end */
    settings->folder_count = argc - optind;
    if (command == COMMAND_REPORT)
        return STATUS_OK;
    if (command == COMMAND_DIFF)
        return optind + 2 < argc ? text_usage("unexpected argument '%s', expected two files", argv[optind + 2])
                                 : STATUS_OK;
    if (command == COMMAND_WHAT_IF)
        return optind + 1 < argc ? text_usage("unexpected argument '%s', expected one network", argv[optind + 1])
                                 : STATUS_OK;
    if (command & (COMMAND_EVAL | COMMAND_RUN | COMMAND_BENCH | COMMAND_TRANSPILE |
                   COMMAND_CALIBRATE)) /* they take the file of a network */
        return optind + 1 < argc ? text_usage("unexpected argument '%s', expected one file", argv[optind + 1])
                                 : STATUS_OK;
    if (optind < argc)
        return text_usage("unexpected argument '%s'; options begin with --, see --help", argv[optind]);
    if (!settings->out && !settings->resume)
        settings->out = "flexlab-results"; /* a resumed training has its own folder */
    if (settings->resume && not_going_on)
        return text_usage("--%s: not with --resume, which uses the options that the training began with", not_going_on);
    if (command & (COMMAND_COMPARE | COMMAND_TRAIN) && settings->memory && !settings->resume)
        return text_usage("--memory: expected only with --resume, for a batch that a stranger's file names");
    if (settings->resume && settings->no_checkpoint)
        return text_usage("--no-checkpoint: not with --resume");
    if (settings->checkpoint_every && settings->no_checkpoint)
        return text_usage("--checkpoint-every: not with --no-checkpoint");
    if (settings->no_trace && (settings->trace_every || settings->trace_tensors))
        return text_usage("--trace-%s: not with --no-trace", settings->trace_every ? "every" : "tensors");
    if (settings->warmup >= (double)settings->epochs)
        return text_usage("--warmup %g: expected less than the %lld epochs of the training", settings->warmup,
                          (long long)settings->epochs);
    const int status = options_resolve_telemetry(settings);
    return status ? status : options_check_shadows(settings);
}
