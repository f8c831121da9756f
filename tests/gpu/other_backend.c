/* other_backend.c - backends that the library must refuse (test_gpu_load.c): the environment variable OTHER_BACKEND
 * says what is wrong with them. */
#include "flexlab/version.h"
#include "gpu/gpu_blocks.h"
#include "gpu/gpu_plugin.h"
#include <stdlib.h>
#include <string.h>

const struct fl_gpu_plugin *flexlab_gpu_plugin(void);
const struct fl_gpu_plugin *flexlab_gpu_plugin(void) {
    static struct fl_gpu_plugin plugin = {.version = FL_GPU_VERSION,
                                          .flexlab = FLEXLAB_VERSION_STRING,
                                          .call_bytes = sizeof(struct fl_call) + sizeof(struct fl_args) +
                                                        sizeof(struct fl_gpu_floats) + sizeof(struct fl_gpu_blocks),
                                          .slot_bytes = sizeof(struct fl_slot)};
    const char *wrong = getenv("OTHER_BACKEND");
    if (!wrong || !strcmp(wrong, "none"))
        return NULL;
    if (!strcmp(wrong, "interface"))
        plugin.version++;
    if (!strcmp(wrong, "version"))
        plugin.flexlab = "0.0.1";
    if (!strcmp(wrong, "sources"))
        plugin.call_bytes += 8;
    return &plugin;
}
