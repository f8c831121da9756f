/* options_resolve.c - options that follow from others if they are not given, and checks that options agree. */
#include "options/options_resolve.h"
#include "base/failure.h"
#include "flexlab/autoflex.h"
#include "flexlab/nn.h"
#include "base/text.h"
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* The optimiser and the batch, if they are not given, follow from whether the model reads text. */
void options_resolve_model(struct settings *s) {
    const bool text = nn_model_reads_text(s->model);
    s->optimiser = s->optimiser ? s->optimiser : text ? "adamw" : "sgd";
    if (!s->batch && !(s->command & (COMMAND_EVAL | COMMAND_TRANSPILE | COMMAND_DIFF | COMMAND_CALIBRATE |
                                     COMMAND_WHAT_IF))) /* they take it of the file */
        s->batch = text ? 32 : 128;
    if (s->resume)
        return;
    s->shards = s->shards ? s->shards : 1;
    s->batchnorm = s->batchnorm ? s->batchnorm : "shard";
}

/* Completes the numbers that follow from the optimiser, and describes all of it as a text. */
void options_resolve_optimiser(struct settings *s) {
    const bool descent = !strcmp(s->optimiser, "sgd"),
               apart = !strcmp(s->optimiser, "adamw") || !strcmp(s->optimiser, "lamb");
    if (s->momentum < 0)
        s->momentum = descent ? 0.9 : 0;
    if (s->weight_decay < 0)
        s->weight_decay = descent ? 1e-4 : apart ? 0.01 : 0;
    const struct {
        const char *name;
        double value;
    } numbers[] = {{"beta1", s->beta1},           {"beta2", s->beta2},         {"epsilon", s->epsilon},
                   {"clip-value", s->clip_value}, {"clip-norm", s->clip_norm}, {"label-smoothing", s->label_smoothing}};
    char *text = s->optimiser_text;
    const size_t room = sizeof s->optimiser_text;
    snprintf(text, room, "%s%s%s", s->optimiser, s->nesterov ? " nesterov" : "",
             s->narrow_state ? " narrow-state" : "");
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (numbers[i].value > 0)
            snprintf(text + strlen(text), room - strlen(text), " %s=%.9g", numbers[i].name, numbers[i].value);
    if (s->decay)
        snprintf(text + strlen(text), room - strlen(text), " decay=%s", s->decay);
}

enum { TELEMETRY_EVERY = 10 };

/* Reads EVERY[:GLOBS]; --shadow alone implies the default interval. */
int options_resolve_telemetry(struct settings *s) {
    char *end = NULL;
    if (s->shadow)
        s->telemetry_every = TELEMETRY_EVERY;
    if (!s->telemetry)
        return STATUS_OK;
    errno = 0;
    const long every = isdigit((unsigned char)*s->telemetry) ? strtol(s->telemetry, &end, 10) : 0;
    if (every < 1 || every > INT_MAX || errno || (*end && *end != ':') || (*end && !end[1]))
        return text_usage("--telemetry '%s': expected steps between rows, 1 to %d, then ':' and patterns of names or "
                          "nothing, such as '10:conv1*,*.weight'",
                          s->telemetry, INT_MAX);
    s->telemetry_every = every;
    s->telemetry_pattern = *end ? end + 1 : NULL;
    return STATUS_OK;
}

/* Refuses unknown formats and predictors of shadows here, because only the first run would find them. */
int options_check_shadows(const struct settings *s) {
    for (const char *at = s->shadow; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        char *one = text_format("%.*s", (int)strcspn(at, ","), at), *end = one + tensor_format_extent(one);
        const char *predictor = *end ? end + 1 : NULL;
        tensor_format format;
        autoflex_predictor found;
        *end = 0;
        const int status =
            tensor_format_find(&format, one) ? text_usage("--shadow '%s': %s", s->shadow, tensor_error())
            : predictor && !tensor_format_is_shared(format)
                ? text_usage("--shadow '%s': '%s' follows a format without a shared exponent", s->shadow, predictor)
            : predictor && autoflex_parse(&found, predictor)
                ? text_usage("--shadow '%s': %s", s->shadow, tensor_error())
                : STATUS_OK;
        free(one);
        if (status)
            return status;
    }
    return STATUS_OK;
}

/* A policy alone needs no format; beside it, --format names the variant from which its rules begin. */
void options_resolve_formats(struct settings *s) {
    static const char usual[] = "fp32,fp16,bf16,flex16+5,dfp16";
    if (s->command & (COMMAND_EVAL | COMMAND_RUN | COMMAND_BENCH | COMMAND_TRANSPILE | COMMAND_DIFF |
                      COMMAND_CALIBRATE | COMMAND_WHAT_IF)) /* each has its own */
        return;
    if (!s->formats && (s->command == COMMAND_COMPARE || !s->policy))
        s->formats = s->command == COMMAND_COMPARE ? usual : "flex16+5";
}

/* Networks without batch normalisation diverge at the rate that suits the others. */
double options_default_rate(const char *model) {
    if (nn_model_reads_text(model)) /* by adamw */
        return 0.001;
    return !strncmp(model, "mlp", 3) || !strcmp(model, "lenet") || !strcmp(model, "alexnet") ? 0.01 : 0.1;
}

double options_rate(const struct settings *s) {
    if (!strcmp(s->optimiser, "sgd"))
        return nn_model_reads_text(s->model) ? 0.1 : options_default_rate(s->model);
    return !strcmp(s->optimiser, "adagrad") || !strcmp(s->optimiser, "lamb") ? 0.01 : 0.001;
}

int options_check_model(const char *model) {
    failure_forget();
    nn_graph *g = nn_graph_new(&(nn_config){.variant = "fp32", .batch = 1, .seed = 1});
    if (!g)
        return text_failed("%s", tensor_error());
    int status = STATUS_OK;
    if ((nn_model_reads_text(model) ? nn_model_text(g, model, 8, 10) : nn_model(g, model, 32, 32, 3, 10)) < 0)
        status = failure_is_usage()
                     ? text_usage("--model: %s%s", tensor_error(), text_did_you_mean(model, options_model_name))
                     : text_failed("--model '%s': %s", model, tensor_error());
    nn_graph_free(g);
    return status;
}
