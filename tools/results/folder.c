/* folder.c - the folder of results.
 *
 * New results are made in flexlab.part. To publish, the earlier results move to flexlab.old, flexlab.part is renamed
 * to flexlab.new, its files move to their places, and flexlab.old is removed. The rename is the point of no return:
 * a process that dies before it leaves the earlier results to be moved back, one that dies after it leaves the new
 * ones to be moved to their places. The next process that opens the folder does so. */
#include "results/folder.h"
#include "readers/json_lines.h"
#include "base/input.h"
#include "base/output.h"
#include "base/text.h"
#include "core/base/files.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char part_name[] = "flexlab.part", old_name[] = "flexlab.old", new_name[] = "flexlab.new",
                  incomplete_name[] = "flexlab.incomplete", resume_name[] = "flexlab.resume",
                  checkpoint_name[] = "resume.safetensors", options_name[] = "options", run_pattern[] = "run-*-seed*";
static const char *const network_names[] = {"best.safetensors", "last.safetensors"};

/* The names of all results but traces and telemetry, whose names depend on the run. */
static const char *const result_names[] = {"metrics.jsonl",        "summary.csv",      "report.html",
                                           "figure-loss.svg",      "figure-loss.png",  "figure-exponents.svg",
                                           "figure-exponents.png", "best.safetensors", "last.safetensors"};
enum { RESULT_NAMES = sizeof result_names / sizeof result_names[0] };

static char *path_of(const char *directory, const char *name) {
    return text_format("%s/%s", directory, name);
}

/* --- lists of names ----------------------------------------------------------------------------------------------- */

struct names {
    char **name;
    int count;
};

static bool names_has(const struct names *list, const char *name) {
    for (int i = 0; i < list->count; i++)
        if (!strcmp(list->name[i], name))
            return true;
    return false;
}

/* Adds `name` unless the list has it; the list owns it. */
static void names_take(struct names *list, char *name) {
    if (names_has(list, name)) {
        free(name);
        return;
    }
    list->name = text_realloc(list->name, (size_t)list->count + 1, sizeof *list->name);
    list->name[list->count++] = name;
}

static void names_clear(struct names *list) {
    for (int i = 0; i < list->count; i++)
        free(list->name[i]);
    free(list->name);
    *list = (struct names){0};
}

/* Lists a folder of ours but "." and ".."; false if it cannot be read, with the reason in errno. A link to a folder is
 * refused: the files there are not ours to move or to remove. */
static bool names_in(struct names *list, const char *directory) {
    *list = (struct names){0};
    const int opened = open(directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *folder = opened < 0 ? NULL : fdopendir(opened);
    if (!folder) {
        const int why = errno;
        if (opened >= 0)
            close(opened);
        errno = why;
        return false;
    }
    struct dirent *entry;
    for (errno = 0; (entry = readdir(folder)); errno = 0)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            names_take(list, text_format("%s", entry->d_name));
    int reason = errno;
    closedir(folder);
    errno = reason;
    if (reason)
        names_clear(list);
    return !reason;
}

static char *name_of_run(const char *kind, const char *label, unsigned long long seed, const char *ending) {
    char *name = text_format("%s-%s-seed%llu%s", kind, label, seed, ending);
    for (char *p = name; *p; p++)
        if (*p == ':' || *p == '/')
            *p = '_'; /* no format name has '_', so different names give different files */
    return name;
}

char *folder_trace_name(const char *label, unsigned long long seed) {
    return name_of_run("trace", label, seed, ".csv");
}

char *folder_telemetry_name(const char *label, unsigned long long seed, const char *ending) {
    char *with_dot = text_format(".%s", ending), *name = name_of_run("telemetry", label, seed, with_dot);
    free(with_dot);
    return name;
}

/* Adds the traces and telemetry of the runs behind a metrics.jsonl, whose first line has the formats and the seeds. A
 * file without such a line adds none. */
static void add_recorded_traces(struct names *list, const char *directory) {
    char *path = path_of(directory, "metrics.jsonl");
    struct json_lines lines;
    const char *why;
    const bool opened = json_lines_open(&lines, path, &why);
    lines.quiet = true;
    cJSON *config = opened ? json_lines_next(&lines) : NULL, *format, *seed;
    cJSON_ArrayForEach(format, cJSON_GetObjectItemCaseSensitive(config, "formats")) {
        const char *label = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(format, "name"));
        cJSON_ArrayForEach(seed, cJSON_GetObjectItemCaseSensitive(config, "seeds")) {
            double number = cJSON_GetNumberValue(seed);
            if (!label || !(number >= 0 && number <= 1e16))
                continue;
            names_take(list, folder_trace_name(label, (unsigned long long)number));
            names_take(list, folder_telemetry_name(label, (unsigned long long)number, "jsonl"));
            names_take(list, folder_telemetry_name(label, (unsigned long long)number, "csv"));
        }
    }
    cJSON_Delete(config);
    if (opened)
        json_lines_close(&lines);
    free(path);
}

/* The names that results of flexlab have or will have here. */
static struct names known_names(const char *directory) {
    struct names list = {0};
    for (int i = 0; i < RESULT_NAMES; i++)
        names_take(&list, text_format("%s", result_names[i]));
    add_recorded_traces(&list, directory);
    return list;
}

/* The names of `list` that exist in the folder, as a file of any kind. */
static struct names existing(const struct names *list, const char *directory) {
    struct names found = {0};
    for (int i = 0; i < list->count; i++) {
        struct stat state;
        char *path = path_of(directory, list->name[i]);
        if (!lstat(path, &state))
            names_take(&found, text_format("%s", list->name[i]));
        free(path);
    }
    return found;
}

/* --- moving and removing ------------------------------------------------------------------------------------------ */

static bool move_file(const char *from, const char *to, const char *name) {
    char *source = path_of(from, name), *target = path_of(to, name);
    bool moved = !rename(source, target);
    if (!moved)
        text_failed("cannot move %s to %s: %s", source, to, strerror(errno));
    free(source);
    free(target);
    return moved;
}

/* Moves each file or, when one cannot be moved, none: those before it move back. */
static bool move_all(const struct names *list, const char *from, const char *to) {
    for (int i = 0; i < list->count; i++)
        if (!move_file(from, to, list->name[i])) {
            while (i--)
                move_file(to, from, list->name[i]);
            return false;
        }
    return true;
}

static bool remove_files(const struct names *list, const char *directory) {
    bool good = true;
    for (int i = 0; i < list->count; i++) {
        char *path = path_of(directory, list->name[i]);
        if (unlink(path) && errno != ENOENT) {
            text_failed("cannot remove %s: %s", path, strerror(errno));
            good = false;
        }
        free(path);
    }
    return good;
}

/* Whether flexlab makes files of this name: that of a result, or of a file that becomes one, NAME.part or
 * NAME.part.part. */
static bool is_ours(const char *name) {
    char *whole = text_format("%s", name);
    for (size_t length = strlen(whole); length > 5 && !strcmp(whole + length - 5, ".part"); length -= 5)
        whole[length - 5] = 0;
    bool found = !fnmatch("trace-*-seed*.csv", whole, 0) || !fnmatch("telemetry-*-seed*.csv", whole, 0) ||
                 !fnmatch("telemetry-*-seed*.jsonl", whole, 0) || !strcmp(whole, checkpoint_name) ||
                 !strcmp(whole, options_name);
    for (int i = 0; i < RESULT_NAMES; i++)
        found = found || !strcmp(whole, result_names[i]);
    free(whole);
    return found;
}

/* Lists what flexlab made in a folder inside the folder of results; a missing folder is no failure. */
static bool ours_in(struct names *ours, const char *directory) {
    struct names all;
    *ours = (struct names){0};
    if (!names_in(&all, directory)) {
        if (errno != ENOENT)
            text_failed("cannot list %s: %s", directory, strerror(errno));
        return errno == ENOENT;
    }
    for (int i = 0; i < all.count; i++)
        if (is_ours(all.name[i]))
            names_take(ours, text_format("%s", all.name[i]));
    names_clear(&all);
    return true;
}

static bool empty_folder(const char *directory) {
    struct names ours;
    const bool good = ours_in(&ours, directory) && remove_files(&ours, directory);
    names_clear(&ours);
    return good;
}

/* Empties and removes a folder. Other files remain there, and a message names one. */
static bool remove_folder(const char *directory) {
    if (!empty_folder(directory))
        return false;
    if (!rmdir(directory) || errno == ENOENT)
        return true;
    const int why = errno;
    struct names left = {0};
    if ((why == ENOTEMPTY || why == EEXIST) && names_in(&left, directory) && left.count)
        text_failed("cannot remove %s: it holds '%s', which flexlab did not make; move that to another place",
                    directory, left.name[0]);
    else
        text_failed("cannot remove %s: %s", directory, strerror(why));
    names_clear(&left);
    return false;
}

static bool exists(const char *path) {
    struct stat state;
    return !lstat(path, &state);
}

/* --- opening ------------------------------------------------------------------------------------------------------ */

/* Makes sure that the name of a new folder reaches the disk. A parent that may be written but not read is skipped. */
static bool sync_parent(const char *directory) {
    char *parent = text_format("%s", directory), *slash = strrchr(parent, '/');
    if (slash)
        slash[slash == parent] = 0;
    const char *name = slash ? parent : ".";
    const bool good = access(name, R_OK) || output_sync_folder(name) == STATUS_OK;
    const int reason = errno;
    free(parent);
    errno = reason;
    return good;
}

static bool make_with_parents(const char *directory) {
    char *path = text_format("%s", directory);
    bool good = true;
    for (char *p = path + 1; good; p++) {
        if (*p && *p != '/')
            continue;
        char kept = *p;
        *p = 0;
        good = !mkdir(path, 0777) ? sync_parent(path) : errno == EEXIST;
        *p = kept;
        if (!kept)
            break;
    }
    int reason = errno;
    free(path);
    errno = reason;
    return good;
}

/* Recovers from a process that died: moves the earlier or the new results to their places, and removes half-made
 * files. */
static bool recover(const char *directory) {
    char *part = path_of(directory, part_name), *old = path_of(directory, old_name),
         *new = path_of(directory, new_name);
    struct names list = {0};
    bool good = true;
    if (exists(new)) {
        good = ours_in(&list, new) && move_all(&list, new, directory) && remove_folder(old) && remove_folder(new);
        names_clear(&list);
    } else if (exists(old)) {
        good = ours_in(&list, old) && move_all(&list, old, directory) && remove_folder(old);
        names_clear(&list);
    }
    good = good && remove_folder(part);
    for (int i = 0; i < RESULT_NAMES && good; i++)
        names_take(&list, text_format("%s.part", result_names[i]));
    good = good && remove_files(&list, directory);
    names_clear(&list);
    free(part);
    free(old);
    free(new);
    return good;
}

/* A folder that cannot be read counts as one with checkpoints. */
bool folder_has_checkpoint(const struct folder *f) {
    struct names all;
    bool found = !names_in(&all, f->resume) && errno != ENOENT;
    for (int i = 0; i < all.count && !found; i++) {
        char *run = path_of(f->resume, all.name[i]), *file = folder_checkpoint_in(run);
        found = file || !strcmp(all.name[i], checkpoint_name);
        free(file);
        free(run);
    }
    names_clear(&all);
    return found;
}

/* Checkpoints, like results, are replaced only with --force. */
static int check_resume(const struct folder *f, bool force) {
    char *command = folder_under_way(f->path);
    int status = STATUS_OK;
    if (command && !force && folder_has_checkpoint(f))
        status = text_failed("--out '%s': holds checkpoints of a %s that is not over; 'flexlab %s --resume %s' resumes "
                             "it; give another folder, or --force to begin anew",
                             f->path, strcmp(command, "train") != 0 ? "comparison" : "training", command, f->path);
    else if (command)
        status = folder_remove_resume(f);
    free(command);
    return status;
}

/* Results replace only regular files. */
static int check_replaceable(const struct folder *f, const struct names *found) {
    for (int i = 0; i < found->count; i++) {
        char *path = path_of(f->path, found->name[i]);
        const char *kind = fl_file_in_the_way(path);
        free(path);
        if (kind)
            return text_failed("--out '%s': %s is %s, expected a file or nothing", f->path, found->name[i], kind);
    }
    return STATUS_OK;
}

/* Refuses inner folders that are links, so that no file elsewhere is changed. */
static int check_inner(const struct folder *f) {
    static const char *const inner[] = {part_name, old_name, new_name, incomplete_name, resume_name};
    int status = STATUS_OK;
    for (size_t i = 0; i < sizeof inner / sizeof *inner && status == STATUS_OK; i++) {
        struct stat state;
        char *path = path_of(f->path, inner[i]);
        if (!lstat(path, &state) && !S_ISDIR(state.st_mode))
            status = text_failed("--out '%s': %s is %s, expected a folder or nothing", f->path, inner[i],
                                 fl_file_kind(state.st_mode));
        free(path);
    }
    return status;
}

static int check_results(struct folder *f, bool force, folder_trace_fn trace, void *context) {
    struct names known = known_names(f->path);
    const char *name;
    for (int i = 0; (name = trace(context, i)); i++)
        names_take(&known, text_format("%s", name));
    struct names found = existing(&known, f->path);
    int status = STATUS_OK;
    f->replaces = found.count > 0;
    if (found.count && !force)
        status = text_failed("--out '%s': already holds results (%s); give another folder, or --force to replace them",
                             f->path, found.name[0]);
    else
        status = check_replaceable(f, &found);
    names_clear(&known);
    names_clear(&found);
    return status;
}

static int check_folder(const char *directory) {
    struct stat found;
    if (!directory[0])
        return text_usage("--out '': expected the name of a folder");
    if (!make_with_parents(directory) || stat(directory, &found))
        return text_failed("--out '%s': cannot be made: %s", directory, strerror(errno));
    if (!S_ISDIR(found.st_mode))
        return text_failed("--out '%s': is a file, expected a folder", directory);
    if (access(directory, R_OK | W_OK | X_OK))
        return text_failed("--out '%s': cannot be written: %s", directory, strerror(errno));
    return STATUS_OK;
}

static int open_folder(struct folder *f, const char *path, bool force, bool again, folder_trace_fn trace,
                       void *context) {
    *f = (struct folder){.path = text_format("%s", path), .lock = {.descriptor = -1}};
    f->set_apart = path_of(path, incomplete_name);
    f->resume = path_of(path, resume_name);
    int status = check_folder(path);
    if (status == STATUS_OK)
        status = lock_take(&f->lock, path, "--out ");
    if (status == STATUS_OK)
        status = check_inner(f);
    if (status == STATUS_OK && !recover(path))
        status = STATUS_FAILED;
    if (status == STATUS_OK)
        status = check_results(f, force || again, trace, context);
    if (status == STATUS_OK && !again)
        status = check_resume(f, force);
    if (status != STATUS_OK)
        return status;
    char *part = path_of(path, part_name);
    if (!mkdir(part, 0777)) {
        f->made = part;
        return STATUS_OK;
    }
    status = text_failed("--out '%s': cannot make %s: %s", path, part, strerror(errno));
    free(part);
    return status;
}

int folder_open(struct folder *f, const char *path, bool force, folder_trace_fn trace, void *context) {
    return open_folder(f, path, force, false, trace, context);
}

int folder_open_again(struct folder *f, const char *path, folder_trace_fn trace, void *context) {
    return open_folder(f, path, false, true, trace, context);
}

/* --- checkpoints -------------------------------------------------------------------------------------------------- */

char *folder_resume_file(const char *path) {
    return text_format("%s/%s/%s", path, resume_name, checkpoint_name);
}

char *folder_options_file(const char *path) {
    return text_format("%s/%s/%s", path, resume_name, options_name);
}

char *folder_under_way(const char *path) {
    char *file = folder_resume_file(path), *options = folder_options_file(path), word[16] = "";
    const bool alone = exists(file);
    const char *why;
    FILE *kept = alone ? NULL : input_open(options, &why);
    const bool known = alone || (kept && fscanf(kept, "%15s", word) == 1);
    if (kept)
        fclose(kept);
    free(file);
    free(options);
    return known ? text_format("%s", alone || !strcmp(word, "train") ? "train" : "compare") : NULL;
}

int folder_make_resume(const struct folder *f, bool again) {
    if (!again && folder_remove_resume(f)) /* what another training left there */
        return STATUS_FAILED;
    if (!mkdir(f->resume, 0777))
        return output_sync_folder(f->path); /* its checkpoints would be lost with its name */
    return errno == EEXIST ? STATUS_OK
                           : text_failed("--out '%s': cannot make %s: %s", f->path, f->resume, strerror(errno));
}

int folder_keep_options(const struct folder *f, const char *text) {
    return output_write(f->resume, options_name, text, strlen(text));
}

char *folder_make_run(const struct folder *f, const char *label, unsigned long long seed) {
    char *name = name_of_run("run", label, seed, ""), *path = path_of(f->resume, name);
    free(name);
    const bool made = !mkdir(path, 0777);
    struct stat state;
    if (made ? output_sync_folder(f->resume) == STATUS_OK
             : errno == EEXIST && !lstat(path, &state) && S_ISDIR(state.st_mode))
        return path;
    text_failed("--out '%s': cannot make %s: %s", f->path, path, strerror(errno));
    free(path);
    return NULL;
}

char *folder_checkpoint_in(const char *directory) {
    char *path = path_of(directory, checkpoint_name);
    if (exists(path))
        return path;
    free(path);
    return NULL;
}

/* Copies a network into f->made. */
static int copy_network(const struct folder *f, const char *from, const char *name) {
    struct stat about;
    const char *why;
    FILE *file = input_open(from, &why);
    const bool known = file && !fstat(fileno(file), &about);
    char *bytes = known ? text_alloc((size_t)about.st_size + 1, 1) : NULL;
    int status = STATUS_OK;
    if (!known || fread(bytes, 1, (size_t)about.st_size, file) != (size_t)about.st_size)
        status = text_failed("cannot read %s: %s", from, file ? strerror(errno) : why);
    else
        status = output_write(f->made, name, bytes, (size_t)about.st_size);
    free(bytes);
    if (file)
        fclose(file);
    return status;
}

/* Links the networks, or copies them on a file system without links: the checkpoint is complete until the results are
 * in their places. */
int folder_take_networks(const struct folder *f) {
    int status = STATUS_OK;
    for (int i = 0; i < 2; i++) {
        char *from = path_of(f->resume, network_names[i]), *to = path_of(f->made, network_names[i]);
        if (exists(from) && link(from, to) && copy_network(f, from, network_names[i]))
            status = STATUS_FAILED;
        free(from);
        free(to);
    }
    return status;
}

static bool remove_first(const char *directory, const char *name) {
    char *file = path_of(directory, name);
    const bool good = !unlink(file) || errno == ENOENT || errno == ENOTDIR;
    if (!good)
        text_failed("cannot remove %s: %s", file, strerror(errno));
    free(file);
    return good;
}

/* Removes the folders of runs. */
static bool remove_runs(const char *directory) {
    struct names all;
    bool good = true;
    if (!names_in(&all, directory))
        return true; /* the caller reports it */
    for (int i = 0; i < all.count; i++)
        if (!fnmatch(run_pattern, all.name[i], 0)) {
            char *run = path_of(directory, all.name[i]);
            good = remove_folder(run) && good;
            free(run);
        }
    names_clear(&all);
    return good;
}

/* Removes the checkpoint and the options first: without them nothing can be resumed. */
int folder_remove_resume(const struct folder *f) {
    const bool good = remove_first(f->resume, checkpoint_name) && remove_first(f->resume, options_name);
    return good && remove_runs(f->resume) && remove_folder(f->resume) ? STATUS_OK : STATUS_FAILED;
}

/* --- publishing --------------------------------------------------------------------------------------------------- */

/* The folder remains if the user has put other files there. */
static bool clear_set_apart(const struct folder *f) {
    bool good = empty_folder(f->set_apart);
    if (good && rmdir(f->set_apart) && errno != ENOENT && errno != ENOTEMPTY && errno != EEXIST) {
        text_failed("cannot remove %s: %s", f->set_apart, strerror(errno));
        good = false;
    }
    return good;
}

static bool synchronise(const struct names *list, const char *directory) {
    bool good = true;
    for (int i = 0; i < list->count; i++) {
        char *path = path_of(directory, list->name[i]);
        good = output_sync_file(path) == STATUS_OK && good;
        free(path);
    }
    return output_sync_folder(directory) == STATUS_OK && good;
}

/* Moves the new files to their places; on failure all move back, or the next process that opens the folder moves
 * them. */
static bool move_new(struct folder *f, const struct names *new_names, const char *new, bool *can_go_back) {
    *can_go_back = true;
    if (rename(f->made, new)) {
        text_failed("cannot rename %s to %s: %s", f->made, new, strerror(errno));
        return false;
    }
    if (move_all(new_names, new, f->path))
        return true;
    *can_go_back = !rename(new, f->made);
    if (!*can_go_back)
        text_failed("the new results in %s move into place when flexlab next opens %s", new, f->path);
    return false;
}

static bool exchange(struct folder *f, const struct names *old_names, const struct names *new_names, const char *old,
                     const char *new) {
    bool can_go_back = true;
    if (old_names->count && mkdir(old, 0777)) {
        text_failed("cannot make %s: %s", old, strerror(errno));
        return false;
    }
    if (move_all(old_names, f->path, old)) {
        if (move_new(f, new_names, new, &can_go_back))
            return true;
        if (can_go_back)
            move_all(old_names, old, f->path);
    }
    if (!can_go_back) {
        free(f->made);
        f->made = NULL;
    } else if (old_names->count) {
        rmdir(old);
    }
    return false;
}

static bool put_in_place(struct folder *f, const struct names *made) {
    struct names known = known_names(f->path);
    for (int i = 0; i < made->count; i++)
        names_take(&known, text_format("%s", made->name[i]));
    struct names earlier = existing(&known, f->path);
    char *old = path_of(f->path, old_name), *new = path_of(f->path, new_name);
    bool placed = exchange(f, &earlier, made, old, new);
    int status = STATUS_OK;
    if (placed) {
        free(f->made);
        f->made = NULL;
        status = output_sync_folder(f->path);
        if (!remove_folder(old) || !remove_folder(new) || !clear_set_apart(f)) /* in this order: recover() */
            status = STATUS_FAILED;
    }
    names_clear(&known);
    names_clear(&earlier);
    free(old);
    free(new);
    return placed && status == STATUS_OK;
}

/* Moves the new results beside the earlier ones, in place of those of an earlier incomplete run. */
static bool put_apart(struct folder *f, const struct names *made) {
    if (!clear_set_apart(f))
        return false;
    if (mkdir(f->set_apart, 0777) && errno != EEXIST) {
        text_failed("cannot make %s: %s", f->set_apart, strerror(errno));
        return false;
    }
    if (!move_all(made, f->made, f->set_apart)) {
        rmdir(f->set_apart);
        return false;
    }
    text_note("the new results are in %s", f->set_apart);
    return output_sync_folder(f->set_apart) == STATUS_OK;
}

int folder_publish(struct folder *f, bool complete) {
    struct names made;
    if (!names_in(&made, f->made))
        return text_failed("cannot list %s: %s", f->made, strerror(errno));
    bool synchronised = synchronise(&made, f->made);
    bool in_place = !f->replaces || (complete && synchronised);
    bool placed = in_place && put_in_place(f, &made);
    if (!placed && f->made) {
        bool apart = put_apart(f, &made);
        f->keeps_made = !apart;
        if (!apart)
            text_note("the new results are in %s until the next run", f->made);
        placed = apart && !in_place;
    }
    names_clear(&made);
    return placed && synchronised ? STATUS_OK : STATUS_FAILED;
}

static struct folder *to_rescue;

/* Runs at exit, perhaps without memory: one rename. */
void folder_rescue_now(void) {
    struct folder *f = to_rescue;
    to_rescue = NULL;
    if (f && f->made)
        fprintf(stderr, "flexlab: the results so far are in %s\n",
                rename(f->made, f->set_apart) ? f->made : f->set_apart);
}

void folder_rescue(struct folder *f) {
    if (!to_rescue)
        atexit(folder_rescue_now);
    to_rescue = f;
}

void folder_close(struct folder *f) {
    to_rescue = NULL;
    if (f->made && !f->keeps_made)
        remove_folder(f->made);
    free(f->made);
    lock_release(&f->lock);
    free(f->path);
    free(f->set_apart);
    free(f->resume);
    *f = (struct folder){.lock = {.descriptor = -1}};
}
