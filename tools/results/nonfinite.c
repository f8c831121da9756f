/* nonfinite.c - the first NaN or Inf of a run in words. */
#include "results/nonfinite.h"
#include "base/text.h"
#include <stdlib.h>
#include <string.h>

static char *copy(const char *text) {
    return text ? text_format("%s", text) : NULL;
}

struct nonfinite nonfinite_of(const nn_nonfinite *first) {
    if (!first)
        return (struct nonfinite){0};
    return (struct nonfinite){.step = first->step,
                              .count = first->nonfinite,
                              .elements = first->elements,
                              .pass = copy(first->pass),
                              .tensor = copy(first->tensor),
                              .role = copy(first->role),
                              .layer = copy(first->layer),
                              .format = copy(first->format),
                              .remedy = copy(first->remedy)};
}

void nonfinite_clear(struct nonfinite *first) {
    char *const texts[] = {first->pass, first->tensor, first->role, first->layer, first->format, first->remedy};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        free(texts[i]);
    *first = (struct nonfinite){0};
}

bool nonfinite_is_forward(const char *pass) {
    return pass && (!strcmp(pass, "input") || !strcmp(pass, "forward") || !strcmp(pass, "loss") ||
                    !strcmp(pass, "update") || !strcmp(pass, "unknown"));
}

char *nonfinite_text(const struct nonfinite *f) {
    if (!strcmp(f->pass, "loss"))
        return text_format("in the loss; all activations are finite");
    if (!strcmp(f->pass, "unknown"))
        return text_format("in the loss; which tensor was first is not known: on a device tensors are examined only "
                           "with a dynamic loss scale, --telemetry or --stop-on-nonfinite");
    const char *where = !strcmp(f->pass, "input")      ? "in the data"
                        : !strcmp(f->pass, "forward")  ? "in the forward pass"
                        : !strcmp(f->pass, "backward") ? "in the backward pass"
                                                       : "in the update";
    char *elements = text_format("%lld of %lld elements of %s (%s, %s)", (long long)f->count, (long long)f->elements,
                                 f->tensor, f->role, f->format),
         *text = !strcmp(f->pass, "update") && !strcmp(f->role, "weight")
                     ? text_format("%s, after which the weights of %s are not finite: %s", where, f->layer, elements)
                     : text_format("%s: %s", where, elements);
    free(elements);
    return text;
}

/* Converts "a format=fp32; b format=fp32" to "a=fp32,b=fp32" and appends it to `given`. */
static char *as_layer_formats(const char *rules, const char *given) {
    static const char middle[] = " format=", end[] = "; ";
    char *text = text_format("%s%s%s", given ? given : "", given ? "," : "", rules), *to = text, *from = text;
    while (*from) {
        const bool equals = !strncmp(from, middle, sizeof middle - 1), comma = !strncmp(from, end, sizeof end - 1);
        *to++ = equals ? '=' : comma ? ',' : *from;
        from += equals ? sizeof middle - 1 : comma ? sizeof end - 1 : 1;
    }
    *to = 0;
    return text;
}

char *nonfinite_options(const struct nonfinite *f, const struct settings *settings) {
    static const char scale[] = "loss-scale ";
    if (!f->remedy)
        return NULL;
    if (!strncmp(f->remedy, scale, sizeof scale - 1))
        return text_format("--loss-scale %s", f->remedy + sizeof scale - 1);
    char *rules = as_layer_formats(f->remedy, settings ? settings->layer_format : NULL), *shown = text_shown(rules),
         *text = text_format("--layer-format '%s'", shown);
    free(rules);
    free(shown);
    return text;
}

char *nonfinite_sentence(const struct nonfinite *f, const struct settings *settings) {
    char *text = nonfinite_text(f), *options = nonfinite_options(f, settings),
         *whole = options ? text_format("%s; with %s it would be finite", text, options) : text_format("%s", text);
    free(text);
    free(options);
    return whole;
}
