/* nn_weights.h - the weights of a network by name, into which weights from other sources are loaded. */
#ifndef FL_NN_WEIGHTS_H
#define FL_NN_WEIGHTS_H

#include "nn/graph/nn_graph.h"
#include "safetensors/safetensors.h"

/* A parameter, or numbers that a layer preserves from step to step, such as running means. */
struct fl_target {
    const struct fl_parameter *parameter; /* NULL: of `kept` */
    tensor *kept;
    char *name;
    const struct fl_shape *shape;
    enum fl_layout layout;
    int64_t image[3]; /* height, width, channels of the image whose elements are the inputs of a matrix; 0: of none */
    bool variance;    /* never below 0 */
    double *values;
};

struct fl_targets {
    struct fl_target *list;
    int count;
    const char *model; /* of the graph */
};

/* In the order of the layers; cleared on failure. */
tensor_status fl_targets_list(struct fl_targets *all, const nn_graph *g);
void fl_targets_clear(struct fl_targets *all);

/* How a file names its tensors, and the order of their dimensions: this library's or PyTorch's. */
struct fl_naming {
    const struct fl_safetensors *s;
    const char *prefix; /* of all its names: "module.", or "" */
    bool torch_names, torch_layout;
    bool stated; /* names, notes or the caller say which layout it is; else the shapes of most tensors */
};
/* layout: "ohwi", "oihw", or NULL for what the file says. TENSOR_E_ARGUMENT for another text. */
tensor_status fl_naming_of(struct fl_naming *naming, const struct fl_targets *all, const struct fl_safetensors *s,
                           const char *layout);

/* Where the numbers of a weight are. */
struct fl_place {
    const struct fl_stored_tensor *t; /* NULL: missing */
    const struct fl_stored_tensor *plus, *minus;
    char name[3 * FL_NAME_LIMIT]; /* of t, or the expected one */
    struct fl_shape shape;        /* the expected one */
    const char *layout;
    int third; /* 1, 2, 3: of the rows; 0: all */
};
void fl_place_of(struct fl_place *place, const struct fl_naming *naming, const struct fl_targets *all,
                 const struct fl_target *t);

/* nn_weights_match of an open file. */
tensor_status fl_weights_match(const struct fl_targets *all, const struct fl_naming *naming, nn_weight_match_fn report,
                               void *context);
/* nn_weights_load; strict: superfluous tensors and those that fit both ways are refused, and all mismatches listed. */
tensor_status fl_weights_load(nn_graph *g, const char *path, const char *layout, bool strict);
/* Whether a strict one will fail for names or shapes; of a network that need not be compiled. */
tensor_status fl_weights_check(const nn_graph *g, const char *path, const char *layout);

#endif
