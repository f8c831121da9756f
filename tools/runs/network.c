/* network.c - the network of an experiment, for checks before the runs. */
#include "runs/network.h"

nn_graph *network_layers(const struct experiment *x, nn_config config, nn_node *logits) {
    const struct dimensions *d = &x->data;
    const char *model = x->settings->model;
    config.batch = config.shards = 1;
    config.group = NULL;
    nn_graph *g = nn_graph_new(&config);
    *logits = -1;
    if (g && d->context)
        *logits = nn_model_text(g, model, d->context, d->classes);
    else if (g)
        *logits = nn_model(g, model, d->height, d->width, d->channels, d->classes);
    return g;
}

nn_graph *network_of(const struct experiment *x, const struct series *s) {
    nn_node logits;
    nn_config config = series_network(x->settings, s);
    config.device = "cpu";
    nn_graph *g = network_layers(x, config, &logits);
    if (g && logits >= 0 && !nn_compile(g, logits))
        return g;
    nn_graph_free(g);
    return NULL;
}
