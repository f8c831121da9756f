/* weights.c - initial weights of a file: the network of the first format takes them once. Names and shapes are those of
 * every format. */
#include "runs/weights.h"
#include "base/text.h"

int weights_check(const struct experiment *x) {
    const struct settings *s = x->settings;
    const struct dimensions *d = &x->data;
    nn_config config = series_network(s, &x->series[0]);
    config.batch = 1;
    config.device = "cpu";
    nn_graph *g = nn_graph_new(&config);
    nn_node logits = -1;
    if (g && d->context)
        logits = nn_model_text(g, s->model, d->context, d->classes);
    else if (g)
        logits = nn_model(g, s->model, d->height, d->width, d->channels, d->classes);
    const bool good = g && logits >= 0 && !nn_compile(g, logits) && !nn_weights_load(g, s->weights);
    const int status = good ? STATUS_OK : text_failed("--weights '%s': %s", s->weights, tensor_error());
    nn_graph_free(g);
    return status;
}
