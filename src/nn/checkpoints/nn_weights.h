/* nn_weights.h - what a network has by name: what weights from elsewhere go into. */
#ifndef FL_NN_WEIGHTS_H
#define FL_NN_WEIGHTS_H

#include "nn/graph/nn_graph.h"
#include "safetensors/safetensors.h"

/* A parameter, or numbers that a layer keeps from step to step, such as running means. */
struct fl_target {
    const struct fl_parameter *parameter; /* NULL: of `kept` */
    tensor *kept;
    char *name;
    const struct fl_shape *shape;
    enum fl_layout layout;
    bool variance; /* never below 0 */
    double *values;
};

struct fl_targets {
    struct fl_target *list;
    int count;
};

/* In the order of the layers; cleared on failure. */
tensor_status fl_targets_list(struct fl_targets *all, const nn_graph *g);
void fl_targets_clear(struct fl_targets *all);
/* The tensor of a file that has the most exact values of that name: of our own checkpoints what the updates work on.
 * *found is its name, to be freed; NULL without memory. */
const struct fl_stored_tensor *fl_weight_find(const struct fl_safetensors *s, const char *name, char **found);
/* nn_weights_match of an open file. */
tensor_status fl_weights_match(const struct fl_targets *all, const struct fl_safetensors *s, nn_weight_match_fn report,
                               void *context);

#endif
