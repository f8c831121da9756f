/* plugin.c - finding and opening the library's own shared objects. */
#include "core/base/plugin.h"
#include "core/base/files.h"
#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH = 4096 };

static const char of_this_code[] = "an address in the file that this code was loaded from";

/* The folder of the file that this code was loaded from, with a slash at its end. The kernel knows it, with symbolic
 * links resolved; the path of the loader may be relative to an earlier working folder, and the name of a program is
 * chosen by its caller. */
static bool own_folder(char folder[PATH]) {
    FILE *maps = fopen("/proc/self/maps", "re");
    char *line = NULL;
    size_t room = 0;
    bool found = false;
    while (maps && !found && getline(&line, &room, maps) > 0) {
        uintptr_t first, last;
        int at = 0;
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %*s %*s %*s %*s %n", &first, &last, &at) == 2 && at &&
            (uintptr_t)of_this_code >= first && (uintptr_t)of_this_code < last) {
            const char *slash = line[at] == '/' ? strrchr(line + at, '/') : NULL;
            found = slash && snprintf(folder, PATH, "%.*s", (int)(slash + 1 - (line + at)), line + at) < PATH;
            break;
        }
    }
    free(line);
    if (maps)
        fclose(maps);
    return found;
}

/* An installed program finds the file among the libraries: PREFIX/bin/flexlab, PREFIX/lib/FILE. */
static bool among_libraries(const char *folder, const char *file, char path[PATH]) {
    const size_t length = strlen(folder), end = strlen(FL_PROGRAMS "/");
    return length > end && folder[length - end - 1] == '/' && !strcmp(folder + length - end, FL_PROGRAMS "/") &&
           snprintf(path, PATH, "%.*s%s/%s", (int)(length - end), folder, FL_LIBRARIES, file) < PATH;
}

/* Opens a library by its absolute path only: a name would be searched in the folders of the environment, which may
 * include the current one. */
static void *open_at(const struct fl_plugin *p, const char *path, const char *prefix, char *why, size_t bytes) {
    const char *kind;
    const int opened = fl_file_open(path, NULL, &kind); /* dlopen would wait for the other end of a FIFO */
    if (opened < 0) {
        if (kind)
            snprintf(why, bytes, "%s: %s: is %s, expected a library", prefix, path, kind);
        else
            snprintf(why, bytes, "%s: %s: %s", prefix, path, strerror(errno));
        return NULL;
    }
    close(opened);
    void *library = dlopen(path, RTLD_NOW | (p->global ? RTLD_GLOBAL : RTLD_LOCAL));
    if (!library)
        snprintf(why, bytes, "%s: %s", prefix, dlerror());
    return library;
}

void *fl_plugin_open(const struct fl_plugin *p, char *why, size_t bytes) {
    const char *named = getenv(p->variable);
    char folder[PATH], path[PATH];
    if (named && *named && *named != '/') {
        snprintf(why, bytes, "%s: '%s' is not an absolute path, expected one, such as /usr/local/lib/%s", p->variable,
                 named, p->file);
        return NULL;
    }
    if (named && *named)
        return open_at(p, named, p->variable, why, bytes);
    if (!own_folder(folder)) {
        snprintf(why, bytes,
                 "no %s: the folder of this program or library cannot be found in /proc/self/maps; %s names the file",
                 p->what, p->variable);
        return NULL;
    }
    const bool beside = snprintf(path, sizeof path, "%s%s", folder, p->file) < PATH && !access(path, F_OK);
    if (beside || (among_libraries(folder, p->file, path) && !access(path, F_OK))) {
        char prefix[100];
        snprintf(prefix, sizeof prefix, "the %s does not load", p->what);
        return open_at(p, path, prefix, why, bytes);
    }
    snprintf(why, bytes, "no %s: there is no %s in %s, and %s names none", p->what, p->file, folder, p->variable);
    return NULL;
}
