/* gpu_load.c - opening the CUDA backend. */
#include "gpu/gpu_blocks.h"
#include "gpu/gpu_load.h"
#include "core/base/plugin.h"
#include "flexlab/version.h"
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
        void *library = fl_plugin_open(&backend, reason, sizeof reason);
        plugin = library ? plugin_of(library, reason, sizeof reason) : NULL;
    }
    if (!plugin)
        snprintf(why, bytes, "%s", reason);
    return plugin;
}
