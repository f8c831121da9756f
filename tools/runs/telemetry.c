/* telemetry.c - checks the patterns of --telemetry before the runs: a pattern that matches no tensor in any format is a
 * wrong option, not the failure of each run. Some tensors exist only in some formats. */
#include "runs/telemetry.h"
#include "runs/network.h"
#include "base/text.h"
#include <stdlib.h>

/* The error of the patterns in a format, to be freed; NULL: they match, or the network fails for another reason, which
 * its run will report. */
static char *misfit(const struct experiment *x, const struct series *s) {
    nn_graph *g = network_of(x, s);
    nn_telemetry *t =
        g ? nn_telemetry_new(g, &(nn_telemetry_config){.pattern = x->settings->telemetry_pattern, .every = 1}) : NULL;
    char *why = g && !t && tensor_error_status() == TENSOR_E_ARGUMENT ? text_format("%s", tensor_error()) : NULL;
    nn_telemetry_free(t);
    nn_graph_free(g);
    return why;
}

int telemetry_check(const struct experiment *x) {
    char *first = NULL;
    for (int i = 0; i < x->series_count; i++) {
        char *why = misfit(x, &x->series[i]);
        if (!why) {
            free(first);
            return STATUS_OK;
        }
        if (first)
            free(why);
        else
            first = why;
    }
    const int status = text_usage("--telemetry '%s': %s", x->settings->telemetry, first);
    free(first);
    return status;
}
