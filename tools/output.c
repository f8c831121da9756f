/* output.c - the folder of results. */
#include "output.h"
#include "text.h"
#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What a run leaves behind, finished or not. */
static bool is_result(const char *name) {
    static const char *const patterns[] = {"metrics.jsonl",        "summary.csv",         "report.html",
                                           "trace-*-seed*.csv",    "figure-loss.svg",     "figure-loss.png",
                                           "figure-exponents.svg", "figure-exponents.png"};
    size_t length = strlen(name);
    char *whole = text_format("%s", name);
    if (length > 5 && !strcmp(name + length - 5, ".part"))
        whole[length - 5] = 0;
    bool found = false;
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
        found = found || !fnmatch(patterns[i], whole, 0);
    free(whole);
    return found;
}

static int make_with_parents(const char *directory) {
    char *path = text_format("%s", directory);
    int failed = 0;
    for (char *p = path + 1; !failed; p++) {
        if (*p && *p != '/')
            continue;
        char kept = *p;
        *p = 0;
        failed = mkdir(path, 0777) && errno != EEXIST;
        *p = kept;
        if (!kept)
            break;
    }
    free(path);
    return failed;
}

static int clear_results(const char *directory, bool force) {
    DIR *folder = opendir(directory);
    if (!folder)
        return text_failed("--out '%s': cannot be listed: %s", directory, strerror(errno));
    int status = STATUS_OK;
    for (struct dirent *entry; status == STATUS_OK && (entry = readdir(folder));) {
        if (!is_result(entry->d_name))
            continue;
        if (!force)
            status =
                text_failed("--out '%s': already holds results (%s); give another folder, or --force to replace them",
                            directory, entry->d_name);
        else if (unlinkat(dirfd(folder), entry->d_name, 0))
            status = text_failed("--out '%s': cannot remove %s: %s", directory, entry->d_name, strerror(errno));
    }
    closedir(folder);
    return status;
}

int output_prepare(const char *directory, bool force) {
    struct stat found;
    if (!directory[0])
        return text_usage("--out '': expected the name of a folder");
    if (make_with_parents(directory))
        return text_failed("--out '%s': cannot be made: %s", directory, strerror(errno));
    if (stat(directory, &found))
        return text_failed("--out '%s': cannot be made: %s", directory, strerror(errno));
    if (!S_ISDIR(found.st_mode))
        return text_failed("--out '%s': is a file, expected a folder", directory);
    if (access(directory, W_OK | X_OK))
        return text_failed("--out '%s': cannot be written: %s", directory, strerror(errno));
    return clear_results(directory, force);
}

void output_reserve(struct output *o, const char *directory, const char *name) {
    o->file = NULL;
    o->path = text_format("%s/%s", directory, name);
    o->part = text_format("%s.part", o->path);
}

int output_open(struct output *o, const char *directory, const char *name) {
    output_reserve(o, directory, name);
    o->file = fopen(o->part, "w");
    if (o->file)
        return STATUS_OK;
    int status = text_failed("cannot write %s: %s", o->part, strerror(errno));
    output_discard(o);
    return status;
}

int output_commit(struct output *o) {
    int status = STATUS_OK;
    errno = 0;
    if (o->file) {
        bool bad = ferror(o->file);
        bad |= fclose(o->file) != 0;
        o->file = NULL;
        if (bad)
            status = text_failed("cannot write %s: %s", o->part, errno ? strerror(errno) : "output error");
    }
    if (status == STATUS_OK && rename(o->part, o->path))
        status = text_failed("cannot rename %s to %s: %s", o->part, o->path, strerror(errno));
    if (status == STATUS_OK) {
        free(o->part);
        o->part = NULL;
    }
    output_discard(o);
    return status;
}

void output_discard(struct output *o) {
    if (o->file)
        fclose(o->file);
    if (o->part)
        unlink(o->part);
    free(o->part);
    free(o->path);
    *o = (struct output){0};
}
