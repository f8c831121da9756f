/* gpu_load.c - opening the CUDA backend. */
#include "gpu/gpu_blocks.h"
#include "gpu/gpu_load.h"
#include "core/base/files.h"
#include "flexlab/version.h"
#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH = 4096 };

static const char file[] = "libflexlab_cuda.so";

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
            (uintptr_t)file >= first && (uintptr_t)file < last) {
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

/* An installed program finds the backend among the libraries: PREFIX/bin/flexlab, PREFIX/lib/libflexlab_cuda.so. */
static bool among_libraries(const char *folder, char path[PATH]) {
    const size_t length = strlen(folder), end = strlen(FL_PROGRAMS "/");
    return length > end && folder[length - end - 1] == '/' && !strcmp(folder + length - end, FL_PROGRAMS "/") &&
           snprintf(path, PATH, "%.*s%s/%s", (int)(length - end), folder, FL_LIBRARIES, file) < PATH;
}

/* Opens a library by its absolute path only: a name would be searched in the folders of the environment, which may
 * include the current one. */
static void *open_at(const char *path, const char *prefix, char *why, size_t bytes) {
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
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        snprintf(why, bytes, "%s: %s", prefix, dlerror());
    return library;
}

static void *open_library(char *why, size_t bytes) {
    const char *named = getenv("FLEXLAB_CUDA_LIBRARY");
    char folder[PATH], path[PATH];
    if (named && *named && *named != '/') {
        snprintf(why, bytes,
                 "FLEXLAB_CUDA_LIBRARY: '%s' is not an absolute path, expected one, such as /usr/local/lib/%s", named,
                 file);
        return NULL;
    }
    if (named && *named)
        return open_at(named, "FLEXLAB_CUDA_LIBRARY", why, bytes);
    if (!own_folder(folder)) {
        snprintf(why, bytes,
                 "no CUDA backend: the folder of this program or library cannot be found in /proc/self/maps; "
                 "FLEXLAB_CUDA_LIBRARY names the backend");
        return NULL;
    }
    const bool beside = snprintf(path, sizeof path, "%s%s", folder, file) < PATH && !access(path, F_OK);
    if (beside || (among_libraries(folder, path) && !access(path, F_OK)))
        return open_at(path, "the CUDA backend does not load", why, bytes);
    snprintf(why, bytes, "no CUDA backend: there is no %s in %s, and FLEXLAB_CUDA_LIBRARY names none", file, folder);
    return NULL;
}

/* The backend in the library, if it is of this version. */
static const struct fl_gpu_plugin *plugin_of(void *library, char *why, size_t bytes) {
    fl_gpu_plugin_function function;
    void *symbol = dlsym(library, FL_GPU_PLUGIN_SYMBOL);
    memcpy(&function, &symbol, sizeof function);
    const struct fl_gpu_plugin *plugin = function ? function() : NULL;
    if (!plugin)
        snprintf(why, bytes, "the CUDA backend has no function " FL_GPU_PLUGIN_SYMBOL);
    else if (plugin->version != FL_GPU_VERSION || strcmp(plugin->flexlab, FLEXLAB_VERSION_STRING) != 0)
        snprintf(why, bytes, "the CUDA backend belongs to flexlab %s, interface %d, expected %s, interface %d",
                 plugin->version < 1000 ? plugin->flexlab : "?", plugin->version, FLEXLAB_VERSION_STRING,
                 FL_GPU_VERSION);
    else if (plugin->call_bytes != sizeof(struct fl_call) + sizeof(struct fl_args) + sizeof(struct fl_gpu_floats) +
                                       sizeof(struct fl_gpu_blocks) ||
             plugin->slot_bytes != sizeof(struct fl_slot) || plugin->failure_bytes != sizeof(struct fl_gpu_failure) ||
             plugin->facts_bytes != sizeof(struct fl_gpu_facts) || plugin->operations != fl_gpu_operations())
        snprintf(why, bytes, "the CUDA backend was built from other sources: calls of %zu bytes, expected %zu",
                 plugin->call_bytes,
                 sizeof(struct fl_call) + sizeof(struct fl_args) + sizeof(struct fl_gpu_floats) +
                     sizeof(struct fl_gpu_blocks));
    else
        return plugin;
    return NULL;
}

const struct fl_gpu_plugin *fl_gpu_load(char *why, size_t bytes) {
    static const struct fl_gpu_plugin *plugin;
    static char reason[600];
    static bool looked;
    if (!looked) {
        looked = true;
        void *library = open_library(reason, sizeof reason);
        plugin = library ? plugin_of(library, reason, sizeof reason) : NULL;
    }
    if (!plugin)
        snprintf(why, bytes, "%s", reason);
    return plugin;
}
