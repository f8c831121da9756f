/* nn_models_gpt.c - small transformers that read text, after GPT-2 (Radford et al. 2019): learned positions,
 * normalisation before each part, GELU in its tanh form, one more normalisation at the end. The layer that makes logits
 * has weights of its own. */
#include "core/base/fail.h"
#include "nn/models/nn_models_text.h"
#include "nn/layers/nn_sequence.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEAD_WIDTH = 32, MOST_LAYERS = 48, MOST_WIDTH = 2048, DEFAULT_LAYERS = 6, DEFAULT_WIDTH = 192 };

static const double deviation = 0.02;

/* A whole number without sign or leading zero, of at most four digits; 0 for anything else. */
static int read_number(const char **at) {
    const size_t digits = strspn(*at, "0123456789");
    const int number = digits && digits <= 4 && **at != '0' ? (int)strtol(*at, NULL, 10) : 0;
    *at += digits;
    return number;
}

/* "gpt", "gptLxW"; 0 for a number that is none. */
static bool read_name(const char *name, int *layers, int *width) {
    *layers = DEFAULT_LAYERS;
    *width = DEFAULT_WIDTH;
    if (strncmp(name, "gpt", 3) != 0)
        return false;
    const char *at = name + 3;
    if (!*at)
        return true;
    *layers = read_number(&at);
    if (*at++ != 'x')
        return false;
    *width = read_number(&at);
    return !*at;
}

static tensor_status check(const char *name, int layers, int width) {
    return layers >= 1 && layers <= MOST_LAYERS && width >= HEAD_WIDTH && width <= MOST_WIDTH && width % HEAD_WIDTH == 0
               ? TENSOR_OK
               : fl_fail(TENSOR_E_ARGUMENT,
                         "model '%s': expected 1 to %d layers and a width of %d to %d, a multiple of %d", name,
                         MOST_LAYERS, HEAD_WIDTH, MOST_WIDTH, HEAD_WIDTH);
}

bool fl_gpt_named(const char *name) {
    int layers, width;
    return read_name(name, &layers, &width);
}

nn_node fl_gpt(nn_graph *g, const char *name, nn_node tokens, int vocabulary) {
    int layers, width;
    char block[32];
    read_name(name, &layers, &width);
    if (check(name, layers, width))
        return fl_build_failed(g, tensor_error_status());
    nn_node x = nn_embedding(g, "embedding", tokens, width, deviation);
    x = nn_positions(g, "positions", x, deviation);
    const nn_transformer how = {.heads = width / HEAD_WIDTH, .layers = layers, .causal = true};
    for (int i = 1; i <= layers; i++) {
        snprintf(block, sizeof block, "block%d", i);
        x = nn_transformer_block(g, block, x, &how);
    }
    x = nn_layernorm(g, "norm", x);
    return fl_add_normal_product(g, "head", x, vocabulary, deviation);
}
