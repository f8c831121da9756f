/* what_if_command.c - the command `what-if`: what other number formats would do to each tensor of a trained network. */
#include "what_if/what_if.h"
#include "what_if/what_if_network.h"
#include "base/failure.h"
#include "base/output.h"
#include "base/text.h"
#include "commands/commands.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char usual_formats[] = "flex16+5,flex12+5,flex8+5,dfp8,fp16,bf16,e4m3fn,mx:int8,mx:e4m3fn,nvfp4";

/* --- order -------------------------------------------------------------------------------------------------------- */

static const struct what_if *sorted;

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct seen *)a)->name, ((const struct seen *)b)->name);
}

/* What has no number other than 0 comes last. */
static int by_error(const void *a, const void *b) {
    const double x = seen_worst(sorted, a), y = seen_worst(sorted, b);
    return x < y ? -1 : x > y ? 1 : by_name(a, b);
}

static int by_role(const void *a, const void *b) {
    const int x = ((const struct seen *)a)->role_number, y = ((const struct seen *)b)->role_number;
    return x != y ? x - y : by_error(a, b);
}

static void sort(struct what_if *w) {
    const char *const by = w->settings->sort;
    sorted = w;
    qsort(w->tensors, (size_t)w->count, sizeof *w->tensors,
          !strcmp(by, "name")   ? by_name
          : !strcmp(by, "role") ? by_role
                                : by_error);
}

/* --- files -------------------------------------------------------------------------------------------------------- */

static const struct file {
    const char *name;
    void (*write)(FILE *, const struct what_if *);
} files[] = {{"what-if.csv", what_if_csv}, {"what-if.json", what_if_json}, {"what-if.html", what_if_page}};
enum { FILES = sizeof files / sizeof *files };

static int write_path(const struct what_if *w, const char *path, void (*write)(FILE *, const struct what_if *)) {
    struct output o;
    const int status = output_open_path(&o, path);
    if (status != STATUS_OK)
        return status;
    write(o.file, w);
    return output_commit(&o);
}

/* Makes the folder with its parents; one that is there stays as it is. */
static int make_folder(const char *path) {
    char *const whole = text_format("%s/", path);
    int status = STATUS_OK;
    for (char *slash = strchr(whole + 1, '/'); slash && status == STATUS_OK; slash = strchr(slash + 1, '/')) {
        struct stat about;
        *slash = 0;
        if (mkdir(whole, 0777) && (errno != EEXIST || stat(whole, &about) || !S_ISDIR(about.st_mode)))
            status = text_failed("--out '%s': cannot make %s: %s", path, whole,
                                 errno == EEXIST ? "it is no folder" : strerror(errno));
        *slash = '/';
    }
    free(whole);
    return status;
}

/* Before anything is computed. */
static int check_files(const struct settings *s) {
    int status = output_may_replace("csv", s->csv, s->force);
    for (int i = 0; i < FILES && s->out && status == STATUS_OK; i++) {
        char *const path = text_format("%s/%s", s->out, files[i].name);
        status = output_may_replace("out", path, s->force);
        if (status == STATUS_OK && s->csv && !strcmp(path, s->csv))
            status = text_usage("--csv '%s': --out has this file already, expected another name", s->csv);
        free(path);
    }
    return status;
}

static int write_files(const struct what_if *w) {
    const struct settings *const s = w->settings;
    int status = s->csv ? write_path(w, s->csv, what_if_csv) : STATUS_OK;
    if (status == STATUS_OK && s->out)
        status = make_folder(s->out);
    for (int i = 0; i < FILES && s->out && status == STATUS_OK; i++) {
        char *const path = text_format("%s/%s", s->out, files[i].name);
        status = write_path(w, path, files[i].write);
        free(path);
    }
    return status;
}

/* --- the command -------------------------------------------------------------------------------------------------- */

/* Unless one is given, the seed of the network, by which its training ordered the data. */
static int take_seed(struct what_if *w) {
    const struct settings *const s = w->settings;
    char text[TRAINED_NOTE];
    int64_t seed = s->seed_base;
    if (seed < 0 && nn_checkpoint_note(text, sizeof text, s->checkpoint, "network.seed"))
        return text_failed("%s", tensor_error());
    if (seed < 0 && !text_whole(text, 0, INT64_MAX, &seed))
        return text_failed("%s: 'network.seed' is '%s', expected a whole number", s->checkpoint, text);
    w->seed = (uint64_t)seed;
    return STATUS_OK;
}

/* The samples of a step. */
static int take_batch(struct what_if *w, struct settings *s) {
    const int64_t own = w->trained.batch * w->trained.shards;
    w->batch = s->batch ? s->batch : own;
    if (w->trained.shards == 1)
        return STATUS_OK;
    s->batch = 0;
    return w->batch == own
               ? STATUS_OK
               : text_usage("--batch %lld: the network of %s has %lld shards and is computed with its own "
                            "batch, %lld",
                            (long long)w->batch, s->checkpoint, (long long)w->trained.shards, (long long)own);
}

static int what_if(struct what_if *w, struct settings *s) {
    struct network_place place = {0};
    data_set *set = NULL;
    int status = what_if_formats_read(&w->formats, s->formats ? s->formats : usual_formats);
    if (status == STATUS_OK)
        status = check_files(s);
    if (status == STATUS_OK)
        status = network_place_find(&place, s);
    if (status == STATUS_OK)
        status = trained_read(&w->trained, s->checkpoint);
    if (status == STATUS_OK)
        status = take_batch(w, s);
    if (status == STATUS_OK)
        status = trained_data(&set, s, &w->trained);
    if (status == STATUS_OK)
        status = trained_network(&w->g, s, &w->trained);
    w->path = s->checkpoint;
    w->data = s->data;
    w->batches = s->batch_count;
    if (status == STATUS_OK)
        status = take_seed(w);
    if (status == STATUS_OK)
        status = what_if_measure(w, set);
    if (status == STATUS_OK) {
        sort(w);
        status = write_files(w);
    }
    if (status == STATUS_OK)
        what_if_print(w);
    data_free(set);
    what_if_clear(w);
    network_place_clear(&place);
    return status;
}

int command_what_if(int argc, char **argv) {
    struct settings settings;
    struct what_if w = {.settings = &settings};
    failure_watch();
    int status = options_parse(&settings, COMMAND_WHAT_IF, argc, argv);
    if (status == STATUS_OK && settings.help) {
        options_help(COMMAND_WHAT_IF, stdout);
        return STATUS_OK;
    }
    if (status == STATUS_OK && !settings.folder_count)
        status = text_usage("expected the folder of a training's results, or a network that 'flexlab train' has "
                            "written; see --help");
    if (status == STATUS_OK && settings.threads && tensor_set_threads((int)settings.threads))
        status = text_usage("--threads: %s", tensor_error());
    return status == STATUS_OK ? what_if(&w, &settings) : status;
}
