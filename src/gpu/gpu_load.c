/* gpu_load.c - opening the CUDA backend. */
#define _GNU_SOURCE
#include "gpu/gpu_load.h"
#include "flexlab/version.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH = 4096 };

static const char file[] = "libflexlab_cuda.so";

/* The folder that this code was loaded from, with the file's name. */
static bool beside_this(char path[PATH]) {
    Dl_info here;
    if (!dladdr(file, &here) || !here.dli_fname)
        return false;
    const char *slash = strrchr(here.dli_fname, '/');
    const int length = slash ? (int)(slash - here.dli_fname) + 1 : 0;
    return snprintf(path, PATH, "%.*s%s", length, here.dli_fname, file) < PATH && slash;
}

static void *open_library(char *why, size_t bytes) {
    const char *named = getenv("FLEXLAB_CUDA_LIBRARY");
    char path[PATH];
    void *library = NULL;
    if (named && *named) {
        library = dlopen(named, RTLD_NOW | RTLD_LOCAL);
        if (!library)
            snprintf(why, bytes, "FLEXLAB_CUDA_LIBRARY: %s", dlerror());
        return library;
    }
    if (beside_this(path) && !access(path, F_OK)) {
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!library)
            snprintf(why, bytes, "the CUDA backend does not load: %s", dlerror());
        return library;
    }
    if (!library)
        library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        snprintf(why, bytes, "no CUDA backend: %s", dlerror());
    return library;
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
        snprintf(why, bytes, "the CUDA backend is of flexlab %s, interface %d, expected %s, interface %d",
                 plugin->version < 1000 ? plugin->flexlab : "?", plugin->version, FLEXLAB_VERSION_STRING,
                 FL_GPU_VERSION);
    else if (plugin->call_bytes != sizeof(struct fl_call) || plugin->slot_bytes != sizeof(struct fl_slot) ||
             plugin->failure_bytes != sizeof(struct fl_gpu_failure) ||
             plugin->facts_bytes != sizeof(struct fl_gpu_facts) || plugin->operations != fl_gpu_operations())
        snprintf(why, bytes, "the CUDA backend was built from other sources: calls of %zu bytes, expected %zu",
                 plugin->call_bytes, sizeof(struct fl_call));
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
