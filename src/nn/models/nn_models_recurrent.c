/* nn_models_recurrent.c - recurrent networks on characters: an embedding, one layer of LSTM or GRU, a linear layer for
 * the next character. With a vocabulary of 65: 349,569 parameters of "lstm-char", 268,161 of "gru-char". */
#include "nn/models/nn_models_text.h"
#include <string.h>

enum { WIDTH = 64, UNITS = 256 };
static const double deviation = 0.1; /* of the embedding */

static const struct {
    const char *name;
    nn_node (*layer)(nn_graph *g, const char *name, nn_node x, int units);
} models[] = {{"lstm-char", nn_lstm}, {"gru-char", nn_gru}};
enum { MODELS = sizeof models / sizeof models[0] };

bool fl_recurrent_named(const char *name) {
    for (int i = 0; i < MODELS; i++)
        if (!strcmp(models[i].name, name))
            return true;
    return false;
}

nn_node fl_recurrent(nn_graph *g, const char *name, nn_node tokens, int vocabulary) {
    nn_node x = nn_embedding(g, "embedding", tokens, WIDTH, deviation);
    for (int i = 0; i < MODELS; i++)
        if (!strcmp(models[i].name, name))
            x = models[i].layer(g, i ? "gru" : "lstm", x, UNITS);
    return nn_linear(g, "head", x, vocabulary, false);
}
