/* nn_models_text.c - networks that read text, by name. */
#include "nn/models/nn_models_text.h"
#include "core/base/fail.h"
#include "core/base/text.h"
#include <stdio.h>

static const struct family {
    const char *names[3]; /* those that are listed */
    const char *grammar;  /* of the others; NULL: there are none */
    bool (*named)(const char *name);
    nn_node (*build)(nn_graph *g, const char *name, nn_node tokens, int vocabulary);
} families[] = {
    {{"gpt", "gpt2x64"}, "gptLxW with L layers of width W", fl_gpt_named, fl_gpt},
    {{"lstm-char", "gru-char"}, NULL, fl_recurrent_named, fl_recurrent},
};
enum {
    FAMILIES = sizeof families / sizeof families[0],
    LISTED = sizeof families[0].names / sizeof families[0].names[0]
};

int nn_text_model_count(void) {
    int count = 0;
    while (nn_text_model_at(count))
        count++;
    return count;
}

const char *nn_text_model_at(int i) {
    for (int f = 0; f < FAMILIES && i >= 0; f++)
        for (int k = 0; k < LISTED && families[f].names[k]; k++)
            if (i-- == 0)
                return families[f].names[k];
    return NULL;
}

static const struct family *family_of(const char *name) {
    for (int f = 0; name && f < FAMILIES; f++)
        if (families[f].named(name))
            return &families[f];
    return NULL;
}

bool nn_model_reads_text(const char *name) {
    return family_of(name) != NULL;
}

static tensor_status unknown(const char *name) {
    char known[400] = "";
    size_t used = 0;
    for (int i = 0; nn_text_model_at(i) && used < sizeof known; i++)
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", nn_text_model_at(i));
    for (int f = 0; f < FAMILIES && used < sizeof known; f++)
        if (families[f].grammar)
            used += (size_t)snprintf(known + used, sizeof known - used, ", or %s", families[f].grammar);
    return fl_fail(TENSOR_E_ARGUMENT, "model %s: expected one that reads text: %s", fl_quote(name).text, known);
}

nn_node nn_model_text(nn_graph *g, const char *name, int length, int vocabulary) {
    const struct family *family = family_of(name);
    if (!family)
        return fl_build_failed(g, unknown(name));
    if (vocabulary < 2)
        return fl_build_failed(
            g, fl_fail(TENSOR_E_ARGUMENT, "model '%s': a vocabulary of %d, expected at least 2", name, vocabulary));
    if (g)
        snprintf(g->model, sizeof g->model, "%s", name);
    return family->build(g, name, nn_tokens(g, length, vocabulary), vocabulary);
}
