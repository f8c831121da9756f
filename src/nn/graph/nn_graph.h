/* nn_graph.h - the graph behind nn_graph, which all files of src/nn share.
 *
 * A graph is a list of nodes in creation order, which is a topological order. A node is a few operations of tensor.h
 * with their gradient, with any number of inputs, outputs, parameters and states; layers of the public header become
 * one or several nodes (nn_linear: flatten, matmul, bias). Each kind of node is one entry of a table; nn_layers.c lists
 * the files that have them. An nn_node of the public header is a handle: the number of one output of one node.
 *
 * One training step visits positions 0 ... 2n: forward of node i at i, the loss at n, backward of node i at 2n - i.
 * nn_plan.c names every value of the step (outputs, gradients, sums of gradients), each written exactly once a step: a
 * shared exponent is then predicted from the history of one quantity. nn_compile.c turns values into tensors, which
 * have no memory yet; a dry run of the step (nn_passes.c) measures the memory that the tasks of each position take, and
 * nn_arena.c places values and memory of tasks in one arena. The update follows at position 2n + 1. */
#ifndef FL_NN_GRAPH_H
#define FL_NN_GRAPH_H

#include "core/base/fail.h"
#include "core/queue/call_memory.h"
#include "core/queue/recording.h"
#include "core/queue/skipping.h"
#include "flexlab/nn.h"
#include "flexlab/tensor_blocks.h"
#include <stddef.h>
#include <string.h>

/* The format of a value, or of a parameter in one of its uses. */
struct fl_type {
    tensor_format format;
    const char *predictor; /* of shared exponents; NULL: the format's own */
};
static inline bool fl_same_format(struct fl_type a, struct fl_type b) {
    return a.format == b.format;
}

enum { FL_NODE_DIMS = TENSOR_MAX_DIMS, FL_NAME_LIMIT = 100 };

struct fl_shape {
    int ndim;
    int64_t dim[FL_NODE_DIMS];
};
int64_t fl_shape_count(const struct fl_shape *shape);

/* FORGET: for the bias of the gates of an LSTM: zero, but one for the forget gate, the second quarter. */
enum fl_init { FL_INIT_ZERO, FL_INIT_ONE, FL_INIT_NORMAL, FL_INIT_UNIFORM, FL_INIT_FORGET };

/* The meaning of the dimensions of a parameter, to load weights of other programs (nn_weight_names.c). */
enum fl_layout {
    FL_LAYOUT_CHANNELS,
    FL_LAYOUT_MATRIX,
    FL_LAYOUT_GATES,
    FL_LAYOUT_TOKENS,
    FL_LAYOUT_PLACES,
    FL_LAYOUT_FILTERS,
    FL_LAYOUT_LINES,
    FL_LAYOUT_TURNED_FILTERS,
    FL_LAYOUT_TURNED_LINES,
    FL_LAYOUTS
};

/* Formats of a parameter. */
struct fl_parameter_types {
    struct fl_type w, g;              /* as stored; of the gradient as backward writes it */
    struct fl_type forward, backward; /* as the passes read it */
    struct fl_type kept, update;      /* of the stored gradient; of the optimiser's computation */
    bool wide, stochastic;            /* w has a wide part; its write is rounded so */
};

struct fl_parameter {
    const char *suffix; /* "weight", "recurrent"; "bias", "gamma", "beta" */
    struct fl_shape shape;
    enum fl_layout layout;
    enum fl_init init;
    double scale;  /* normal: standard deviation; uniform: half the width */
    tensor *w, *g; /* the weight as it is stored, the gradient as backward writes it */
    /* The gradient that backward of the shard in place writes: g, if there is one shard. Those of several are added to
     * g (nn_reduce.c). */
    tensor *g_pass;
    tensor *w_vector, *g_vector; /* w and g_pass in one dimension; NULL unless the layer asks for them */
    /* Set if a policy requires them, else NULL (nn_parameter.c): the weight that the optimiser updates, of which w is
     * the rounding; w as the passes read it; the gradient as stored, and as the optimiser reads it. */
    tensor *master, *w_forward, *w_backward, *g_kept, *g_taken;
    struct fl_parameter_types as;
    /* Of the optimiser, NULL: it has none. Velocity or moment; root of the mean square; the gradient as it counts, or
     * the direction that the weight takes. */
    tensor *v, *r, *d;
    bool widens; /* the velocity of descent has a wide part */
    int number;  /* of all parameters */
    int info;    /* the place of w in nn_tensor_at; g and those of the optimiser follow */
    int g_info;  /* that of g_pass */
    int infos;   /* how many there are */
};

/* Whether the parameter is neither a bias nor a factor or shift of a normalisation: such parameters decay, and are
 * clipped. */
static inline bool fl_is_weight(const struct fl_parameter *p) {
    return strcmp(p->suffix, "bias") != 0 && strcmp(p->suffix, "gamma") != 0 && strcmp(p->suffix, "beta") != 0;
}

/* The options of a layer; each kind of layer reads its own. */
struct fl_options {
    int outputs; /* filters or outputs */
    int window, stride, padding, dilation, groups;
    enum fl_init init;   /* of a matmul's weight */
    double deviation;    /* of initial weights that are normal; 0: the default of the kind */
    bool padding_counts; /* average pooling */
    double real[3]; /* epsilon and momentum of a normalisation; alpha, beta and k of LRN; the probability of dropout */
    tensor_window2d around; /* of nn_convolutions.c */
    bool bias;
    unsigned axes; /* dimensions of a mean, bit d for dimension d; keeps: they remain, with 1 element */
    bool keeps;
    float low, high; /* of a clamp; low: the slope of a leaky relu below zero */
};

/* A tensor of a node that is no parameter: data that one visit stores for another. */
struct fl_state {
    const char *suffix;
    tensor_format format; /* FMT_F64, FMT_F32, or FMT_NONE: that of the node */
    struct fl_shape shape;
    double initial; /* of every element */
    bool lasts;     /* a later step reads it: the state of the network contains it */
    bool averaged;  /* f64, of one pass: `settle` reads the exact mean over the shards of the step */
    bool variance;  /* never below 0 */
    tensor *t;
};

/* A tensor of the network's format that backward of a node writes for itself: a value of the step as gradients are,
 * with a history of its own. */
struct fl_work {
    const char *suffix;
    struct fl_shape shape;
    int value;
};

/* The tensors of one visit to a node, by number of input and output. */
struct fl_pass {
    tensor *const *x, *const *y;
    tensor *const *dy;   /* NULL if the output has no gradient because no node uses it */
    tensor *const *dx;   /* NULL if no gradient is wanted, or none is available to propagate */
    tensor *const *work; /* of backward alone */
    /* dy as an operand of products: in their format if results have another; else dy. Only in backward. */
    tensor *const *operand;
    tensor *const *w, *const *g; /* of the parameters; g only in backward */
    bool training;
    const tensor *step; /* f64 [1], updates so far, in training: of layers that draw */
};

/* The source of the gradient of an input. */
enum fl_input_gradient {
    FL_GRADIENT_OWN,    /* backward writes it */
    FL_GRADIENT_SHARED, /* that of the first input that has one, or as OWN */
    /* It is the gradient of the output of the same number, or of the last one, in the shape of the input; if that
     * output has none, the input has none. */
    FL_GRADIENT_SAME
};

enum { FL_ANY_INPUTS = -1 };

struct fl_node;

/* A kind of node. A count of n stands for the first n. */
struct fl_layer {
    const char *kind;
    int inputs;        /* FL_ANY_INPUTS: as many as the caller gives, one or more */
    const char *group; /* its group in policies: "product", "norm", "recurrent", "softmax"; NULL: none */
    int saves_x;       /* inputs that backward reads */
    int saves_y;       /* outputs that backward reads */
    /* Outputs that end in relu: backward reads the output, to know where that was zero. If the gradient of the output
     * is a sum, the addition reads it instead (add_relu_grad), and dy is already gated in backward. */
    int relu;
    int views;         /* outputs that are the input of the same number, usually in another shape */
    bool reads_tokens; /* its first input is tokens, which no other kind takes */
    bool always_dx;    /* backward writes dx even if no parameter before it needs it */
    bool draws;        /* its passes draw random numbers, by node->seed, its name and pass->step */
    /* The shape in which its passes see a tensor of that shape, with as many elements; NULL: as it is. Of parameters
     * they see fl_parameter.w and g, and those as vectors where vectors is set. */
    void (*seen)(const struct fl_node *node, struct fl_shape *shape);
    bool vectors;
    /* For each input (FL_ANY_INPUTS: one for all), the source of its gradient if the output of SAME is not gated, and
     * if it is. NULL: OWN. */
    const enum fl_input_gradient *gradient, *when_gated;
    /* Checks the options against the input shapes; adds outputs, parameters and states. */
    tensor_status (*shape)(struct fl_node *node, const struct fl_shape *x);
    tensor_status (*forward)(struct fl_node *node, const struct fl_pass *pass); /* NULL: nothing to compute */
    /* NULL: likewise. Called if at least one output has a gradient. */
    tensor_status (*backward)(struct fl_node *node, const struct fl_pass *pass);
    /* What remains to be done for states that last, after the last pass of a step of several shards. NULL: nothing; a
     * kind that has it does the same in forward if the node has one shard. */
    tensor_status (*settle)(struct fl_node *node, const struct fl_pass *pass);
    /* Of a normalisation over the batch, if node->together: the sums of a shard (core/ops/norms/part_norm.h), before
     * forward and backward of all shards; what backward writes before its gradients is written there. */
    tensor_status (*sum_forward)(struct fl_node *node, const struct fl_pass *pass);
    tensor_status (*sum_backward)(struct fl_node *node, const struct fl_pass *pass);
    int moments; /* then: the states of its mean and, after it, its variance */
};

/* What a normalisation has of the whole batch, if shards go through it together (step/nn_together.h). */
struct fl_together {
    tensor **of_shard, *sums;       /* f64 [3 C]: of each shard of the rank; that of the one in place */
    tensor *sum_of_dy, *about_mean; /* f64 [C]: of all */
    double *all, *mean, *variance;  /* on the host: the sums of all shards; moments */
    double *sum_of_x, *dy, *about;  /* part_norm.h; sum_of_dy, about_mean */
    int64_t channels, rows;         /* of the batch */
};

/* Values of the step are indices into graph.values, -1: none. */
struct fl_input {
    nn_node x;
    int dx;
    int saved;       /* x in the format of backward, if that differs; -1: x itself */
    int sum, addend; /* after backward: sum = addend + dx, for outputs used before */
    int gate;        /* the sum counts where this value is above zero; -1: everywhere */
};

struct fl_output {
    char *name;
    struct fl_shape shape;
    int y, dy;
    int saved, operand; /* y as backward reads it, dy as products do, if in another format; else -1 */
    bool gated;         /* dy is a sum, and zero already where y is */
    bool tokens;        /* int32 numbers that a step is given (graph.tokens): no activation, and without a gradient */
};

/* Formats of a node: of its inputs, but for a second one that is added to y; of its outputs; of their gradients; of
 * those that it gives its inputs, which only a conversion has in another format. Backward computes in `back`: what it
 * reads of the forward pass is of that; the gradient that products read is of `operand`. */
struct fl_node_types {
    struct fl_type x, y, dy, dx, back, operand;
};

/* The products of a node, by the order of their operands: values or weights, and the gradient. */
enum fl_product_part {
    FL_PRODUCT_FORWARD,      /* value by value or weight */
    FL_PRODUCT_EVALUATION,   /* the same outside of training, where nothing is drawn anew */
    FL_PRODUCT_INPUT,        /* gradient of a value: gradient by value or weight */
    FL_PRODUCT_INPUT_TURNED, /* value by gradient */
    FL_PRODUCT_WEIGHT,       /* gradient of a weight: value by gradient */
    FL_PRODUCT_WEIGHT_TURNED,
    FL_PRODUCT_PARTS
};
struct fl_block_format;
/* The operands of a node's products in blocks. */
struct fl_node_blocks {
    const struct fl_block_format *x, *w, *dy; /* as the policy has them; NULL: no blocks */
    tensor_class class[FL_PRODUCT_PARTS];
    bool draws; /* of its results: the seed keys the draws of operands */
};

struct fl_node {
    const struct fl_layer *layer;
    struct fl_node_types as;
    struct fl_node_blocks blocks;
    char *name;  /* of the node; its outputs have names that begin so */
    char *owner; /* the layer's name, as given by the caller: in messages, and before the names of parameters */
    struct fl_options how;
    int64_t batch; /* of a pass */
    int shards;    /* of a step */
    uint64_t seed; /* of the graph */
    struct fl_input *input;
    struct fl_output *output;
    struct fl_parameter *parameter;
    struct fl_state *state;
    struct fl_work *work;
    int inputs, outputs, parameters, states, works;
    nn_node first;                /* handle of its first output, which those of the others follow */
    bool learns;                  /* it or something before it has parameters, and a gradient reaches it */
    struct fl_together *together; /* NULL: each shard by itself */
    struct fl_pass train, back, evaluate;
    tensor **tensors; /* what these point to */
    tensor **views;   /* views of those in another shape; as many entries, NULL for the others */
};

/* The object behind an nn_node. */
struct fl_handle {
    int node, output;
};

/* One value of the training step. */
struct fl_value {
    char *name; /* NULL for views */
    const char *role;
    struct fl_shape shape;
    struct fl_type type;
    int base;    /* the value whose memory this one shows; itself unless a view */
    bool tokens; /* its memory is not in the arena: graph.tokens */
    int first, last;
    size_t bytes, offset;
    int info;          /* its place in nn_tensor_at, -1 for views */
    int next_to_begin; /* the next value with memory of its own that is written at the same position, -1: none */
    int next_to_end;   /* ... that is used for the last time there */
    tensor *t;
    tensor *evaluate; /* the same memory as a tensor of evaluation; activations only */
};

/* One position of the step. */
struct fl_position {
    int begins, ends;              /* the first value that is written, used for the last time there; -1: none */
    size_t need[FL_CALL_MEMORIES]; /* bytes that its calls take beside their tensors, evaluation included */
    struct fl_call_block calls[FL_CALL_MEMORIES]; /* those bytes in the arena */
};

/* The settings and tensors of the optimiser: nn_optimiser.c. */
struct fl_optimiser {
    tensor_optimiser how;
    float clip_value;
    bool plain; /* descent by constant numbers, which no tensor holds */
    bool nesterov, narrow, decays_all;
    bool wide_velocity; /* of descent: at twice the width, where 16 bits would lose what scaling saved */
    int parameters;
    tensor *numbers;       /* of a step: tensor_optimiser_step */
    tensor *sums;          /* squares of each gradient, to clip by their norm */
    tensor *norms, *trust; /* of a weight and its direction, and the rate that follows */
};

/* Its objective: nn_objective.c. */
enum fl_loss_kind { FL_LOSS_CROSS_ENTROPY, FL_LOSS_SQUARED_ERROR, FL_LOSS_HUBER, FL_LOSS_WASSERSTEIN, FL_LOSS_NONE };
struct fl_objective {
    enum fl_loss_kind kind;
    float smoothing, delta;
    int32_t ignored;
    bool ignores;
    bool input_gradient, has_input_gradient; /* wanted; of the last backward pass, still there */
    tensor *targets;                         /* f32, of the output's shape; NULL: none */
    tensor *mean, *right; /* on a device: f64 [1], i32 [1] of an evaluation: its loss, correct predictions */
    tensor *given; /* the rows that count of a gradient of another format (nn_backward_from); NULL: none came so far */
};

/* Its loss scale: nn_loss_scale.c. */
enum fl_scale_kind { FL_SCALE_NONE, FL_SCALE_STATIC, FL_SCALE_DYNAMIC };
enum { FL_SCALE_TEXT = 200 };
struct fl_loss_scale {
    enum fl_scale_kind kind;
    double initial, factor, least, most; /* powers of two */
    int64_t window;
    tensor *state;          /* struct fl_scale_state, on the device; NULL: the scale is not dynamic */
    tensor *scale;          /* f64 [1], on the device; NULL: none */
    const tensor *borrowed; /* that of another network, by which its loss is scaled meanwhile; NULL: its own */
    tensor *limit;          /* f32 [1]: the limit of an element of a scaled gradient; NULL: no limit */
    /* What a dynamic scale looks at, from the first step on: the writes of a step; the gradients through which those of
     * another network came. */
    struct fl_look_list writes, through;
};

/* Groups of tensors of a step in the order of their writes: inputs; outputs; gradients; gradients as stored and read by
 * the update; weights and the optimiser's state. */
enum fl_part { FL_PART_INPUT, FL_PART_FORWARD, FL_PART_BACKWARD, FL_PART_TAKEN, FL_PART_UPDATE };
struct fl_slot;
struct fl_write {
    const struct fl_slot *slot; /* on the host; NULL: on a device */
    int info;                   /* of nn_tensor_at */
    enum fl_part part;
};
/* The tensors of a step in the order in which they are written, each once: nn_nonfinite.c. */
struct fl_writes {
    struct fl_write *list;
    int count, capacity;
    enum fl_part part; /* of the dry run that lists them */
    tensor_status status;
    unsigned done;      /* parts of the last step that were written, bit by bit */
    uint64_t step;      /* its number, from 1 */
    uint64_t updated;   /* that of the last update */
    const double *loss; /* the loss of the step that is examined; NULL: it is the network\'s */
    bool open;          /* a device decides whether the last step has one: fl_writes_know */
    uint64_t forgotten; /* times that the state was set */
    nn_nonfinite found; /* the last result of nn_find_nonfinite */
    char **texts;       /* that such structs point to */
    int text_count, text_capacity;
};

/* The last phase of the step that has run: nn_forward, nn_backward, nn_update, in this order. */
enum fl_phase { FL_PHASE_IDLE, FL_PHASE_FORWARD, FL_PHASE_BACKWARD };

/* The network in a file that this one is to be loaded from. nn_compile compares the two before it allocates. */
struct fl_expected {
    tensor_status (*check)(const nn_graph *g, const struct fl_expected *expected);
    void (*release)(struct fl_expected *expected);
};

struct nn_graph {
    char model[64]; /* the name under which nn_model has built it; "": it was built otherwise */
    const nn_variant *variant;
    struct fl_policy *policy; /* NULL: the variant throughout */
    tensor_class class;       /* of its operations, accumulate=GPU; TENSOR_EXACT: that of the calling thread */
    bool draws_operands;      /* of some products, in blocks: stochastically rounded or transformed by random signs */
    bool shares_policy;       /* nn_share_policy: its rules may match in another network */
    struct fl_type loss_as;   /* the format that the loss reads, and that of its gradient */
    tensor_device *device;
    const char *predictor;  /* requested for all shared exponents, or the variant's; NULL: the format's own */
    bool asked;             /* the predictor was */
    bool wide, no_master;   /* weights of the variant have a wide part; the config allows none */
    int batch;              /* of a pass: of a shard */
    int shards;             /* of a step (nn_shards.h) */
    int shard;              /* the one in place */
    int passed;             /* shards of the step under way that have passed forward and backward */
    struct fl_shard *of;    /* what exists for each shard; NULL: there is one */
    bool together;          /* shards go through normalisations of the batch together */
    int stretch;            /* of the step under way, the one between two of those */
    tensor *share;          /* f64 [1]: what the gradient of a shard's loss is multiplied by; NULL with one shard */
    nn_group *group;        /* NULL: one rank */
    struct fl_ranks *ranks; /* nn_ranks.h; NULL: one rank */
    uint64_t seed;
    struct fl_optimiser optimiser;
    struct fl_objective objective;
    struct fl_loss_scale scaling;
    int classes;
    int64_t rows; /* of the logits, a multiple of batch: each has a label and a loss */

    struct fl_node *nodes;
    int count, node_capacity;
    struct fl_handle *handles; /* by nn_node */
    int handle_count, handle_capacity;
    nn_node logits;
    tensor_status status; /* of the first call that failed while building */
    char message[512];
    bool compiled;
    struct fl_expected *expected; /* until it is compiled; NULL: no file is loaded */
    int64_t most_of_steps;        /* limit of the bytes of temporary memory of a step; 0: none */

    struct fl_value *values;
    int value_count, value_capacity;
    struct fl_position *positions; /* 2 count + 2 */
    void *arena;
    size_t arena_bytes, value_bytes; /* of the whole arena; of the part for values */
    size_t set_bytes;                /* together: of the values of one shard */
    /* Numbers of a step, on the device: images as floats (on the host the caller's serve), labels, learning rate, loss,
     * predicted classes, how many are right. */
    tensor *pixels, *labels, *rate, *loss, *predicted, *correct;
    tensor *tokens;              /* i32 [batch, length], if the input is tokens; NULL for images */
    tensor *step;                /* f64 [1], updates so far; NULL if no layer draws */
    tensor *bytes, *byte_values; /* images as bytes, and the values of these; NULL until nn_set_pixel_values */
    tensor *indices;             /* indices of the batch in a set on this device; NULL until nn_data_new */
    int32_t *index_buffer;       /* on the host; likewise */
    struct fl_losses *losses;    /* NULL until the first is noted */
    enum fl_phase phase;
    struct fl_writes writes;
    bool has_loss;  /* of a forward pass of this network */
    uint64_t steps; /* updates so far */
    nn_watch_fn watch;
    void *watch_context;
    bool update_there;                              /* watched or not, a device decides whether a step updates */
    struct fl_sampling *sampling;                   /* the first of those that sample writes of the step; NULL: none */
    struct nn_telemetry *watching;                  /* the telemetry that uses nn_watch by itself; NULL: none */
    void (*watching_begins)(struct nn_telemetry *); /* then: before the first write of each forward pass */
    struct fl_recording forward, backward, update;  /* of a step on a device that records */

    /* The list of nn_tensor_at. It owns the names; tensors belong to parameters and values. */
    nn_tensor_info *infos;
    int info_count, info_capacity;
};
/* nn_graph.c */
/* Makes space for one more element of an array that grows; TENSOR_E_MEMORY on failure, with the array unchanged. */
tensor_status fl_grow(void **array, int count, int *capacity, size_t size);
/* printf into a new string; NULL without memory. */
char *fl_format_name(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Records a failure of building, with tensor_error() set; returns -1. */
nn_node fl_build_failed(nn_graph *g, tensor_status status);
/* The node of a handle. */
static inline struct fl_node *fl_node_of(const nn_graph *g, nn_node x) {
    return &g->nodes[g->handles[x].node];
}
static inline struct fl_output *fl_output_of(const nn_graph *g, nn_node x) {
    return &fl_node_of(g, x)->output[g->handles[x].output];
}

static inline void fl_expected_forget(nn_graph *g) {
    if (g->expected)
        g->expected->release(g->expected);
    g->expected = NULL;
}

/* Whether value i has memory of its own in the arena: views and tokens have none. */
static inline bool fl_is_stored(const nn_graph *g, int i) {
    return g->values[i].base == i && !g->values[i].tokens;
}
/* The samples of a step. */
static inline int fl_whole_batch(const nn_graph *g) {
    return g->batch * g->shards;
}
/* The number of positions of a pass. */
static inline int fl_positions(const nn_graph *g) {
    return 2 * g->count + 2;
}
/* Labels and predictions of one image or sequence. */
static inline int64_t fl_labels_each(const nn_graph *g) {
    return g->rows / g->batch;
}

/* nn_node.c */
/* Adds a node of that kind; the handle of its first output. name: of the node; owner: of the layer. */
nn_node fl_add_node(nn_graph *g, const struct fl_layer *layer, const char *name, const char *owner,
                    const nn_node *inputs, int input_count, const struct fl_options *how);
/* The same for a node with one input that only a policy requires; it may have any name. -1 on failure, which is not
 * recorded. */
nn_node fl_add_converter(nn_graph *g, const struct fl_layer *layer, const char *name, const char *owner, nn_node x);
/* Whether a layer or block can have that name: 1 to `limit` characters. */
tensor_status fl_check_name(const char *what, const char *name, int limit);
/* For shape rules. An output has the name of its node, or NAME.SUFFIX. */
tensor_status fl_add_output(struct fl_node *node, const char *suffix, struct fl_shape shape);
tensor_status fl_add_parameter(struct fl_node *node, struct fl_parameter parameter);
tensor_status fl_add_state(struct fl_node *node, struct fl_state state);
tensor_status fl_add_work(struct fl_node *node, const char *suffix, struct fl_shape shape);
/* Frees all that a node holds. */
void fl_node_clear(struct fl_node *node);
/* Prefixes the message of a failure with the layer's name. */
tensor_status fl_node_failed(const struct fl_node *node, tensor_status status);

/* The number of tensors in the arrays of its passes (nn_compile.c). */
static inline int fl_node_tensors(const struct fl_node *node) {
    return 4 * node->inputs + 5 * node->outputs;
}

/* nn_parameter.c */
void fl_parameter_clear(struct fl_parameter *p);
/* A parameter that the optimiser updates, and its gradient. */
static inline tensor *fl_updated(const struct fl_parameter *p) {
    return p->master ? p->master : p->w;
}
static inline tensor *fl_taken_gradient(const struct fl_parameter *p) {
    return p->g_taken ? p->g_taken : p->g_kept ? p->g_kept : p->g;
}
/* Converts the gradient from the format that backward writes to the others; and the updated weight to the others. */
tensor_status fl_take_gradient(const struct fl_parameter *p);
tensor_status fl_refresh_weight(const struct fl_parameter *p);
/* Bytes of the weight with its wide part, master and copies. */
int64_t fl_parameter_bytes(const struct fl_parameter *p);

/* nn_tensors.c */
/* Adds a tensor to the list of nn_tensor_at, unless status is a failure of making it. Takes ownership of the name. */
tensor_status fl_list_tensor(nn_graph *g, char *name, const char *role, tensor *t, tensor_status status);
/* NULL: the format's own. */
tensor_status fl_set_predictor(tensor *t, const char *predictor);
/* A new tensor of that type on the network's device. */
tensor_status fl_new_tensor(const nn_graph *g, tensor **t, struct fl_type type, const struct fl_shape *shape);

/* nn_init.c */
/* Fills values of a parameter: the same numbers for the same seed and name, whatever the format. */
void fl_init_values(double *values, int64_t count, enum fl_init init, double scale, uint64_t key);

#endif
