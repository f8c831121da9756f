/* other_backend.c - backends that the library must refuse (test_gpu_load.c): the environment variable OTHER_BACKEND
 * says what is wrong with them. */
#include "gpu/gpu_blocks.h"
#include <stdlib.h>
#include <string.h>

const struct fl_gpu_plugin *flexlab_gpu_plugin(void);
const struct fl_gpu_plugin *flexlab_gpu_plugin(void) {
    static struct fl_gpu_plugin plugin;
    plugin.of = fl_gpu_sources();
    const char *wrong = getenv("OTHER_BACKEND");
    if (!wrong || !strcmp(wrong, "none"))
        return NULL;
    if (!strcmp(wrong, "interface"))
        plugin.of.version++;
    if (!strcmp(wrong, "version"))
        plugin.of.flexlab = "0.0.1";
    if (!strcmp(wrong, "sources"))
        plugin.of.call_bytes += 8;
    return &plugin;
}
