/* plugins.c - exponent predictors that a user compiled: each library of FLEXLAB_PREDICTORS has a function
 * flexlab_predictors (autoflex_plugin_fn), which adds them by name. The libraries remain loaded. */
#include "commands/plugins.h"
#include "flexlab/autoflex.h"
#include "base/input.h"
#include "flexlab/status.h"
#include "base/text.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

static bool refused; /* a predictor could not be added */

static autoflex_predictor add(const char *name, autoflex_predict_fn predict, void *context) {
    const bool suffix = name && (!strcmp(name, "nomaster") || !strcmp(name, "noscale")); /* FORMAT:SUFFIX */
    const autoflex_predictor given = suffix ? AUTOFLEX_NONE : autoflex_add(name, predict, context);
    if (!given) {
        const char *why = suffix ? "'nomaster' and 'noscale' mean something else after a format" : tensor_error();
        for (const char *next = why; !suffix && (next = strstr(next, "': "));) /* after the name */
            why = next += 3;
        text_note("FLEXLAB_PREDICTORS: predictor '%s' cannot be added: %s", name ? name : "", why);
        refused = true;
    }
    return given;
}

static int load(const char *path) {
    const char *why;
    if (*path != '/')
        return text_failed("FLEXLAB_PREDICTORS: '%s' is not an absolute path, expected one, so that the library does "
                           "not depend on the current folder",
                           path);
    FILE *file = input_open(path, &why); /* dlopen would wait for the other end of a FIFO */
    if (!file)
        return text_failed("FLEXLAB_PREDICTORS: cannot load %s: %s", path, why);
    fclose(file);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return text_failed("FLEXLAB_PREDICTORS: %s", dlerror());
    autoflex_plugin_fn begin;
    *(void **)&begin = dlsym(library, "flexlab_predictors");
    if (!begin)
        return text_failed("FLEXLAB_PREDICTORS: %s has no function flexlab_predictors", path);
    begin(add);
    return refused ? STATUS_FAILED : STATUS_OK;
}

int plugins_load(void) {
    const char *paths = getenv("FLEXLAB_PREDICTORS");
    char *copy = text_format("%s", paths ? paths : ""), *rest = copy, *path;
    int status = STATUS_OK;
    while (status == STATUS_OK && (path = strsep(&rest, ":")))
        if (*path)
            status = load(path);
    free(copy);
    return status;
}
