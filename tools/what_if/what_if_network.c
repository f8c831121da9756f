/* what_if_network.c - see what_if_network.h. */
#include "what_if/what_if_network.h"
#include "base/input.h"
#include "base/text.h"
#include "flexlab/nn.h"
#include "results/folder.h"
#include "runs/turns.h"
#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_OPTIONS = 1 << 22 }; /* bytes */

static bool is_file(const char *path) {
    struct stat about;
    return !stat(path, &about) && S_ISREG(about.st_mode);
}

static bool is_mine(const char *path) {
    struct stat about;
    return !stat(path, &about) && about.st_uid == geteuid();
}

/* Takes the path if there is such a file; frees it otherwise. */
static bool take_file(struct network_place *p, char *path) {
    if (is_file(path))
        p->file = path;
    else
        free(path);
    return p->file != NULL;
}

/* --- options of the training -------------------------------------------------------------------------------------- */

/* Takes data and format from the options of a training. Those of a stranger could name any file that the user may
 * read. */
static int take_options(struct network_place *p, struct settings *s, const char *command, const char *options,
                        bool alone, bool trusted) {
    struct settings before;
    char **words;
    int status = options_kept_parse(&before, strcmp(command, "train") ? COMMAND_COMPARE : COMMAND_TRAIN, options,
                                    p->file, &words);
    const bool good = status == STATUS_OK;
    if (good && alone && s->of && strcmp(s->of, before.formats ? before.formats : "") != 0)
        status = text_usage("--of '%s': %s has a network in '%s' alone", s->of, s->folders[0],
                            before.formats ? before.formats : before.policy);
    else if (good && !s->data && !trusted)
        status = text_usage("%s: the folder is not yours, and its options name --data '%s'; expected --data",
                            s->folders[0], before.data);
    else if (good && !s->data)
        s->data = p->data = text_format("%s", before.data);
    free(words);
    return status;
}

static int take_notes(struct network_place *p, struct settings *s, const char *folder) {
    char *const options = text_alloc(MOST_OPTIONS, 1);
    const tensor_status failed = nn_checkpoint_note(options, MOST_OPTIONS, p->file, turns_arguments_key);
    int status = STATUS_OK;
    if (!failed)
        status = take_options(p, s, "train", options, true, is_mine(folder) && is_mine(p->file));
    else if (!s->data)
        status = text_failed("%s", tensor_error());
    free(options);
    return status;
}

/* --- runs that are not over --------------------------------------------------------------------------------------- */

static int by_text(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* "run-LABEL-seedN" of each run with a checkpoint, sorted; a list of texts and its length, to be freed. */
static char **runs_in(const char *directory, int *count) {
    char **list = NULL;
    DIR *const folder = opendir(directory);
    *count = 0;
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        char *const run = text_format("%s/%s", directory, entry->d_name), *const file = folder_checkpoint_in(run);
        if (file && !fnmatch("run-*-seed*", entry->d_name, 0)) {
            list = text_realloc(list, (size_t)*count + 1, sizeof *list);
            list[(*count)++] = text_format("%s", entry->d_name);
        }
        free(file);
        free(run);
    }
    if (folder)
        closedir(folder);
    if (list)
        qsort(list, (size_t)*count, sizeof *list, by_text);
    return list;
}

/* The first run of a format, whose name in files has '_' for ':' and '/'; -1: none. */
static int run_of(char **list, int count, const char *label) {
    char *const beginning = text_format("run-%s-seed", label);
    int found = -1;
    for (char *c = beginning; *c; c++)
        if (*c == ':' || *c == '/')
            *c = '_';
    for (int i = 0; i < count && found < 0; i++)
        if (!strncmp(list[i], beginning, strlen(beginning)))
            found = i;
    free(beginning);
    return found;
}

static int take_run(struct network_place *p, struct settings *s, const char *options_file) {
    char *const directory = text_format("%.*s", (int)(strrchr(options_file, '/') - options_file), options_file);
    int count, status = STATUS_OK;
    char **const list = runs_in(directory, &count);
    const int wanted = run_of(list, count, s->of ? s->of : "fp32");
    const char *why;
    if (!count)
        status = text_failed("%s: no run there has a checkpoint", s->folders[0]);
    else if (s->of && wanted < 0)
        status = text_usage("--of '%s': no run of this format is in %s, the first of its runs is %s", s->of, directory,
                            list[0]);
    else {
        p->file = text_format("%s/%s/resume.safetensors", directory, list[wanted < 0 ? 0 : wanted]);
        FILE *const file = input_open(options_file, &why);
        char *line = text_alloc(MOST_OPTIONS, 1);
        if (!file || !fgets(line, MOST_OPTIONS, file))
            status = text_failed("cannot read %s: %s", options_file, file ? "it is empty" : why);
        else {
            char *rest = line, *const command = strsep(&rest, " \n");
            char *const options = rest ? rest : command + strlen(command);
            options[strcspn(options, "\n")] = 0;
            status = take_options(p, s, strcmp(command, "train") ? "compare" : "train", options, false,
                                  is_mine(s->folders[0]) && is_mine(options_file));
        }
        if (file)
            fclose(file);
        free(line);
    }
    for (int i = 0; i < count; i++)
        free(list[i]);
    free(list);
    free(directory);
    return status;
}

/* --- finding ------------------------------------------------------------------------------------------------------ */

static int find_in_folder(struct network_place *p, struct settings *s) {
    const char *const folder = s->folders[0];
    char *const options = folder_options_file(folder), *const metrics = text_format("%s/metrics.jsonl", folder);
    int status;
    if (take_file(p, text_format("%s/best.safetensors", folder)) ||
        take_file(p, text_format("%s/last.safetensors", folder)) || take_file(p, folder_resume_file(folder)))
        status = take_notes(p, s, folder);
    else if (is_file(options))
        status = take_run(p, s, options);
    else if (is_file(metrics))
        status = text_failed("%s: it has no network: those of a comparison, and of several seeds, are not stored when "
                             "it is over; 'flexlab train' with one format and one seed stores them",
                             folder);
    else
        status = text_failed("%s: it has no network: expected a folder of results of 'flexlab train', or a file such "
                             "as best.safetensors",
                             folder);
    free(options);
    free(metrics);
    return status;
}

int network_place_find(struct network_place *p, struct settings *s) {
    const char *const path = s->folders[0];
    struct stat about;
    int status = STATUS_OK;
    if (stat(path, &about))
        return text_failed("%s: %s", path, strerror(errno));
    if (S_ISDIR(about.st_mode))
        status = find_in_folder(p, s);
    else if (s->of)
        status = text_usage("--of: only with a folder of results, '%s' is one network", path);
    else if (!s->data)
        status = text_usage("%s: expected --data SPEC beside a file: the data that the network reads", path);
    else
        p->file = text_format("%s", path);
    s->checkpoint = p->file;
    s->split = "train";
    return status;
}

void network_place_clear(struct network_place *p) {
    free(p->file);
    free(p->data);
}
