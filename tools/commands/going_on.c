/* going_on.c - resumes a training from a checkpoint, whose notes have its options; or a comparison, or a training with
 * several seeds, from the folder of its results, which has its options beside the checkpoints of its runs. */
#include "commands/going_on.h"
#include "base/input.h"
#include "base/text.h"
#include "results/folder.h"
#include "runs/turns.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_OPTIONS = 1 << 22 }; /* bytes */

static const char *name_of(enum command command) {
    return command == COMMAND_TRAIN ? "train" : "compare";
}

/* --- command lines ------------------------------------------------------------------------------------------------ */

char *command_line(int argc, char **argv) {
    char *line = text_format("flexlab");
    for (int i = 0; i < argc; i++) {
        char *word = text_quoted(argv[i]), *longer = text_format("%s %s", line, word);
        free(word);
        free(line);
        line = longer;
    }
    return line;
}

char *going_on_line(const struct experiment *x) {
    const struct settings *s = x->settings;
    int count;
    char **kept = options_kept_words(name_of(x->command), x->kept, &count);
    char *out = text_format("--out=%s", s->out), *threads = text_format("--threads=%lld", (long long)s->threads);
    char **words = text_alloc((size_t)count + 4, sizeof *words);
    memcpy(words, kept, (size_t)count * sizeof *words);
    words[count++] = out;
    if (s->threads)
        words[count++] = threads;
    if (s->quiet)
        words[count++] = "--quiet";
    char *line = command_line(count, words);
    free(words);
    free(threads);
    free(out);
    free(kept);
    return line;
}

char *going_on_kept(enum command command, char **words, int argc, char **argv) {
    int count = 0;
    while (words && words[count])
        count++;
    if (!count)
        return options_kept(command, argc, argv);
    char **all = text_alloc((size_t)(count + argc) + 1, sizeof *all);
    memcpy(all, words, (size_t)count * sizeof *all);
    memcpy(all + count, argv + 1, (size_t)(argc - 1) * sizeof *all);
    char *kept = options_kept(command, count + argc - 1, all);
    free(all);
    return kept;
}

/* --- options ------------------------------------------------------------------------------------------------------ */

/* Whether the user of this process owns it. */
static bool is_mine(const char *path) {
    struct stat about;
    return !stat(path, &about) && about.st_uid == geteuid();
}

/* The source of stored options. */
struct place {
    const char *name; /* in messages */
    bool trusted;     /* a folder of results that the user owns */
    bool several;     /* they are of several runs, some of which may have no checkpoint to compare data with */
};

/* Options name the data to read, and those of a stranger could name any file that the user may read. The same data may
 * have moved: a training compares them with its checkpoint. */
static int take_data(const struct settings *given, struct settings *before, const struct place *place) {
    before->data_anew = given->data != NULL;
    if (given->data && place->several && strcmp(given->data, before->data) != 0)
        return text_usage("--data '%s': several runs resume with the data that they began with, '%s'", given->data,
                          before->data);
    if (!given->data && !place->trusted)
        return text_usage("--resume '%s': it is not in a results folder of yours, and would read --data '%s'; expected "
                          "--data beside it",
                          given->resume, before->data);
    if (before->weights && place->several && !place->trusted)
        return text_usage(
            "--resume '%s': it is not a folder of yours, and runs that have not begun would read --weights '%s'",
            given->resume, before->weights);
    if (given->data)
        before->data = given->data;
    else if (!given->quiet)
        text_note("resuming with --data '%s' from %s", before->data, place->name);
    return STATUS_OK;
}

/* What defines the arithmetic may be repeated beside --resume, and has to be the same. */
static int check_repeated(const struct settings *given, const struct settings *before) {
    if (given->shards && given->shards != before->shards)
        return text_usage("--shards %lld: the training that --resume '%s' names has %lld", (long long)given->shards,
                          given->resume, (long long)before->shards);
    if (given->batchnorm && strcmp(given->batchnorm, before->batchnorm) != 0)
        return text_usage("--batchnorm '%s': the training that --resume '%s' names has '%s'", given->batchnorm,
                          given->resume, before->batchnorm);
    return STATUS_OK;
}

/* Parses the stored options into *words, into which the settings then point; options that are allowed beside --resume
 * are taken as given. */
static int take_up(struct settings *settings, enum command command, const char *kept, const struct place *place,
                   char ***words) {
    struct settings before;
    char *const of = text_format("--resume '%s': %s", settings->resume, place->name);
    int status = options_kept_parse(&before, command, kept, of, words);
    free(of);
    if (status != STATUS_OK)
        return status;
    status = check_repeated(settings, &before);
    if (status == STATUS_OK)
        status = take_data(settings, &before, place);
    before.out = settings->out;
    before.device = settings->device ? settings->device : before.device;
    before.group = settings->group;
    before.threads = settings->threads;
    before.memory = settings->memory || place->trusted ? settings->memory : USUAL_MEMORY;
    before.force = settings->force;
    before.quiet = settings->quiet;
    before.checkpoint_every = settings->checkpoint_every ? settings->checkpoint_every : before.checkpoint_every;
    before.allow_divergence = settings->allow_divergence || before.allow_divergence;
    before.stop_on_nonfinite = settings->stop_on_nonfinite || before.stop_on_nonfinite;
    before.resume = settings->resume;
    *settings = before;
    return status;
}

/* --- a training alone --------------------------------------------------------------------------------------------- */

/* Whether two paths name the same file. */
static bool is_same(const char *one, const char *other) {
    struct stat a, b;
    return !stat(one, &a) && !stat(other, &b) && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* Whether a checkpoint lies in a folder of training results that the user owns. */
static bool is_in_own_results(const char *file) {
    char *whole = realpath(file, NULL), *place = text_format("%s", whole ? whole : "");
    for (int i = 0; i < 2; i++) {
        char *slash = strrchr(place, '/');
        if (slash)
            *slash = 0;
    }
    char *there = folder_resume_file(place);
    const bool own = whole && !strcmp(there, whole) && is_mine(whole) && is_mine(place);
    free(there);
    free(place);
    free(whole);
    return own;
}

/* A checkpoint in the folder of results itself is no obstacle to writing there. */
static int take_checkpoint(struct experiment *x, struct settings *settings, char *file, char ***words) {
    static char *policy; /* replaces one that may have changed; lives as long as the program, as arguments do */
    char *arguments = text_alloc(MOST_OPTIONS, 1), *own = folder_resume_file(settings->out);
    char *source = text_format("%s: '%s'", file, turns_arguments_key);
    const struct place place = {source, .trusted = is_in_own_results(file)};
    x->resume = file;
    x->again = is_same(file, own);
    int status = nn_checkpoint_note(arguments, MOST_OPTIONS, file, turns_arguments_key)
                     ? text_failed("--resume '%s': %s", settings->resume, tensor_error())
                     : take_up(settings, COMMAND_TRAIN, arguments, &place, words);
    if (status == STATUS_OK) {
        policy = text_alloc(MOST_OPTIONS, 1);
        const tensor_status failed = nn_checkpoint_note(policy, MOST_OPTIONS, file, "network.policy");
        settings->resumed_policies = &policy;
        settings->resumed_count = failed ? 0 : 1;
        if (failed && failed != TENSOR_E_DATA) /* TENSOR_E_DATA: it has none */
            status = text_failed("--resume '%s': %s", settings->resume, tensor_error());
    }
    free(source);
    free(own);
    free(arguments);
    return status;
}

/* --- several runs ------------------------------------------------------------------------------------------------- */

/* The first line is "COMMAND OPTION...", the second has the policy of each format, "-" for one without rules. */
static const char no_policy[] = "-", line_break[] = "\n";

char *going_on_options(const struct experiment *x) {
    char *policies = text_format("%s", "");
    for (int i = 0; i < x->series_count; i++)
        policies = options_kept_add(policies, x->series[i].plain ? no_policy : x->series[i].policy);
    char *text = text_format("%s%s%s\n%s\n", name_of(x->command), *x->kept ? " " : "", x->kept, policies);
    free(policies);
    return text;
}

/* Reads a whole file as a string, to be freed; NULL if it cannot be read, contains a zero or is too large. */
static char *read_text(const struct settings *settings, const char *path) {
    char *text = text_alloc(MOST_OPTIONS + 1, 1);
    const char *why;
    FILE *file = input_open(path, &why);
    const size_t size = file ? fread(text, 1, MOST_OPTIONS, file) : 0;
    const bool good = file && !ferror(file) && size < MOST_OPTIONS && strlen(text) == size;
    if (!good)
        text_failed("--resume '%s': cannot read %s: %s", settings->resume, path,
                    !file          ? why
                    : ferror(file) ? strerror(errno)
                                   : "it is not a text, or too long");
    if (file)
        fclose(file);
    if (good)
        return text;
    free(text);
    return NULL;
}

/* Reads the policies of the second line into settings. */
static int take_policies(struct experiment *x, struct settings *settings, const char *line, const char *source) {
    int count;
    char **policies = options_kept_words("policies", line, &count);
    if (!policies || count < 2) {
        free(policies);
        return text_failed("--resume '%s': %s contains no line of policies", settings->resume, source);
    }
    for (int i = 1; i < count; i++)
        if (!strcmp(policies[i], no_policy))
            policies[i] = NULL;
    x->policies = policies;
    settings->resumed_policies = policies + 1;
    settings->resumed_count = count - 1;
    return STATUS_OK;
}

static int take_lines(struct experiment *x, struct settings *settings, char *text, const char *source, char ***words) {
    char *rest = text, *options = strsep(&rest, line_break), *policies = strsep(&rest, line_break);
    if (!policies || !rest || *rest)
        return text_failed("--resume '%s': %s does not contain options and policies, a line each", settings->resume,
                           source);
    options += strcspn(options, " ");
    const struct place place = {source, .trusted = is_mine(source), .several = true};
    const int status = take_up(settings, x->command, options + (*options == ' '), &place, words);
    return status ? status : take_policies(x, settings, policies, source);
}

static int take_runs(struct experiment *x, struct settings *settings, char ***words) {
    if (!is_same(settings->out, settings->resume))
        return text_usage("--out '%s': several runs resume in the folder that --resume names, '%s'", settings->out,
                          settings->resume);
    char *file = folder_options_file(settings->resume), *text = read_text(settings, file);
    const int status = text ? take_lines(x, settings, text, file, words) : STATUS_FAILED;
    x->again = true;
    free(text);
    free(file);
    return status;
}

int going_on_check(const struct experiment *x) {
    const struct settings *s = x->settings;
    return !s->resumed_count || s->resumed_count == x->series_count
               ? STATUS_OK
               : text_failed("--resume '%s': it has policies of %d formats, its options name %d", s->resume,
                             s->resumed_count, x->series_count);
}

/* --- finding what to resume --------------------------------------------------------------------------------------- */

static int find_in_folder(struct experiment *x, struct settings *settings, char ***words) {
    char *under_way = folder_under_way(settings->resume), *file = folder_resume_file(settings->resume),
         *options = folder_options_file(settings->resume);
    const char *wanted = name_of(x->command);
    const bool alone = !access(file, F_OK);
    if (!settings->out)
        settings->out = settings->resume;
    int status;
    if (!under_way)
        status = text_failed("--resume '%s': no %s is under way there: there is no %s", settings->resume,
                             x->command == COMMAND_TRAIN ? "training" : "comparison",
                             x->command == COMMAND_TRAIN ? file : options);
    else if (strcmp(under_way, wanted) != 0)
        status = text_failed("--resume '%s': there is a %s under way: 'flexlab %s --resume' resumes it",
                             settings->resume, x->command == COMMAND_TRAIN ? "comparison" : "training", under_way);
    else if (alone)
        status = take_checkpoint(x, settings, text_format("%s", file), words);
    else
        status = take_runs(x, settings, words);
    free(under_way);
    free(options);
    free(file);
    return status;
}

int going_on_find(struct experiment *x, struct settings *settings, char ***words) {
    struct stat about;
    const bool there = !stat(settings->resume, &about);
    const int reason = errno;
    if (there && S_ISDIR(about.st_mode))
        return find_in_folder(x, settings, words);
    if (x->command == COMMAND_COMPARE)
        return text_failed("--resume '%s': %s, expected the folder of a comparison's results", settings->resume,
                           there ? "is no folder" : strerror(reason));
    if (!settings->out)
        settings->out = "flexlab-results";
    return take_checkpoint(x, settings, text_format("%s", settings->resume), words);
}
