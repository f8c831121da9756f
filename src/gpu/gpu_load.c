/* gpu_load.c - opening the CUDA backend. */
#include "gpu/gpu_blocks.h"
#include "gpu/gpu_load.h"
#include "core/base/plugin.h"
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static const struct fl_plugin backend = {"libflexlab_cuda.so", "FLEXLAB_CUDA_LIBRARY", "CUDA backend", false};

/* The backend in the library, if it is of this version. */
static const struct fl_gpu_plugin *plugin_of(void *library, char *why, size_t bytes) {
    fl_gpu_plugin_function function;
    void *symbol = dlsym(library, FL_GPU_PLUGIN_SYMBOL);
    memcpy(&function, &symbol, sizeof function);
    const struct fl_gpu_plugin *plugin = function ? function() : NULL;
    const struct fl_gpu_sources own = fl_gpu_sources(), *of = plugin ? &plugin->of : NULL;
    if (!plugin)
        snprintf(why, bytes, "the CUDA backend has no function " FL_GPU_PLUGIN_SYMBOL);
    else if (of->version != own.version || strcmp(of->flexlab, own.flexlab) != 0)
        snprintf(why, bytes, "the CUDA backend belongs to flexlab %s, interface %d, expected %s, interface %d",
                 of->version < 1000 ? of->flexlab : "?", of->version, own.flexlab, own.version);
    else if (of->call_bytes != own.call_bytes || of->slot_bytes != own.slot_bytes ||
             of->failure_bytes != own.failure_bytes || of->facts_bytes != own.facts_bytes ||
             of->operations != own.operations)
        snprintf(why, bytes, "the CUDA backend was built from other sources: calls of %zu bytes, expected %zu",
                 of->call_bytes, own.call_bytes);
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
        void *library = fl_plugin_open(&backend, reason, sizeof reason);
        plugin = library ? plugin_of(library, reason, sizeof reason) : NULL;
    }
    if (!plugin)
        snprintf(why, bytes, "%s", reason);
    return plugin;
}
