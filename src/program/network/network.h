/* network.h - a network as a file describes it: values, and the nodes that compute them, before anything is planned or
 * computed. The readers of ONNX, TensorFlow Lite and this library's own files make one; passes rewrite it; a plan
 * (plan.h) makes operations of it for given shapes.
 *
 * The vocabulary is ONNX's: operators, attributes and their defaults are those of opset 22, whatever the opset of the
 * file was; a reader of an older opset (or of another format) translates (docs/programs.md). Dimensions are in the
 * order of the file. A node whose image operands lie in the order N, H, W, C says so in channels_last; its filters are
 * then [K, R, S, C / groups] (depthwise as well).
 *
 * Source: github.com/onnx/onnx, docs/Operators.md and docs/IR.md. */
#ifndef FL_NETWORK_H
#define FL_NETWORK_H

#include "int8/int8.h"
#include "flexlab/status.h"
#include "flexlab/tensor.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FL_ARRAY_DIMS = 8, FL_NODE_TEMPORARIES = 12 };

/* Numbers on the host. A dimension may be 0: the array is then empty, and data may be NULL. */
struct fl_array {
    tensor_type type;
    int ndim; /* 0: a scalar, one element */
    int64_t dim[FL_ARRAY_DIMS];
    int64_t count;
    void *data;
};

/* How integers stand for real numbers: scale[c] * (q - zero[c]), with c the index along axis; count is 1 if they are
 * the same for all. */
struct fl_quantisation {
    int count, axis;
    float *scale;
    int32_t *zero;
};

/* What calibration found of a tensor, and what follows from it: the exponent at which a shared-exponent format stores
 * it, and the integers of 8 bits that stand for it. */
struct fl_histogram;
struct fl_range {
    double maximum;                 /* the largest magnitude that was seen; 0: none yet */
    bool seen;                      /* by the calibration that ended last, or that has begun */
    double least, largest;          /* the numbers that it saw */
    struct fl_histogram *histogram; /* of them; NULL: none, or freed after calibration */
    bool frozen;
    int exponent;
    struct fl_int8_type integers; /* scale 0: none */
};

struct fl_net_value {
    const char *name;
    tensor_type type;                     /* 0: unknown until it is planned */
    int ndim;                             /* -1: unknown */
    int64_t dim[FL_ARRAY_DIMS];           /* -1: known when the program runs */
    const char *dim_name[FL_ARRAY_DIMS];  /* of such a dimension; NULL: none. Equal names are equal sizes */
    struct fl_array *constant;            /* NULL: computed, or an input */
    struct fl_quantisation *quantisation; /* NULL: none; only for integers */
    const struct fl_array *exact;         /* the floats that such a constant was rounded from; NULL: not known */
    bool four_bits;                       /* a constant that the file stores in 4 bits an element */
    struct fl_range range;                /* of floats */
};

enum fl_net_kind {
    FL_NET_INT = 1,
    FL_NET_FLOAT,
    FL_NET_STRING,
    FL_NET_INTS,
    FL_NET_FLOATS,
    FL_NET_STRINGS,
    FL_NET_ARRAY,
    FL_NET_GRAPH
};

/* An attribute of a node; the member of its kind is set, and count for the lists. */
struct fl_net_attribute {
    const char *name; /* names that begin with "flexlab." are what a file says of a node beside ONNX (metadata_props) */
    enum fl_net_kind kind;
    int count;
    int64_t i;
    float f;
    const char *s;
    const int64_t *ints;
    const float *floats;
    const char *const *strings;
    struct fl_array *array;
    struct fl_net_graph *graph;
};

struct fl_net_node {
    const char *op;     /* "Conv" */
    const char *domain; /* "" for ONNX's own operators, else a prefix such as "com.microsoft" */
    const char *name;   /* never NULL; a node without a name is called by its first output */
    int input_count, output_count, attribute_count;
    int *inputs;  /* indices of values; -1: an optional input that is not given */
    int *outputs; /* -1: an optional output that nobody reads */
    struct fl_net_attribute *attributes;
    bool channels_last;
    tensor_format format;   /* in which it is computed; 0: fp32 */
    bool int8;              /* to be quantised when the program is frozen; or that was done */
    struct fl_range *inner; /* of its tensors that are no values (plan.h), FL_NODE_TEMPORARIES; NULL: none yet */
};

/* Nodes in an order in which each comes after those that it reads. The graphs of If and Loop are such too; they read
 * values of the graph around them by index. */
struct fl_net_graph {
    int node_count, input_count, output_count;
    struct fl_net_node *nodes;
    int *inputs, *outputs;
};

/* The kind of file, from which the rounding of quantised nodes follows: onnx, or tflite-xnnpack. */
typedef enum fl_net_source { FL_NET_ONNX = 1, FL_NET_TFLITE } fl_net_source;

/* What a pass made of a node of the file (program_change in program.h). */
struct fl_net_change {
    int kind; /* program_change_kind */
    const char *node, *op, *into, *into_op;
};

/* All of it lies in memory of its own, which fl_network_free frees at once. */
struct fl_network {
    fl_net_source source;
    int opset;                      /* of the file; 0 where there is none */
    const char *producer;           /* as the file says it; "" if it does not */
    enum fl_int8_rounding rounding; /* of quantised nodes: that of the file's runtime, until somebody chooses another */
    int value_count;
    struct fl_net_value *values; /* those of nested graphs too */
    struct fl_net_graph graph;
    int change_count, change_room;
    struct fl_net_change *changes;
    struct fl_net_block *blocks;
    int value_room;
};

/* NULL, with tensor_error(), without memory. */
struct fl_network *fl_network_new(fl_net_source source);
void fl_network_free(struct fl_network *n);

/* Zeroed memory that lives as long as the network; NULL, with tensor_error(), if there is none. bytes 0 gives a valid
 * address. fl_net_text copies a text of the given length and ends it with a zero. */
void *fl_net_memory(struct fl_network *n, size_t bytes);
const char *fl_net_text(struct fl_network *n, const char *text, size_t length);

/* A constant as a new value; -1 without memory. */
int fl_net_add_constant(struct fl_network *n, const char *name, struct fl_array *constant);
/* Adds a value of unknown type and shape; its index, or -1 without memory. */
int fl_net_add_value(struct fl_network *n, const char *name);
/* Adds a node at the end of a graph, with all its lists empty and zeroed; NULL without memory. The addresses of the
 * graph's earlier nodes may change. */
struct fl_net_node *fl_net_add_node(struct fl_network *n, struct fl_net_graph *graph, const char *op, const char *name,
                                    int input_count, int output_count, int attribute_count);

/* Notes what a pass has done; the texts are of the network's own memory. */
tensor_status fl_net_add_change(struct fl_network *n, struct fl_net_change change);

/* An array of that network with zeroed data. TENSOR_E_DATA for sizes that are negative or more than 2^40 bytes. */
tensor_status fl_net_array(struct fl_network *n, struct fl_array **array, tensor_type type, int ndim,
                           const int64_t *dim);
/* Integers of 4 bits, two to a byte, the first in its lower half, as the int8 or uint8 of an array. The bytes may lie
 * at the end of the array's own data. */
void fl_net_spread(struct fl_array *a, const uint8_t *from);
/* Bytes of one number of a type; 0 for another number. */
size_t fl_type_bytes(tensor_type type);
const char *fl_type_name(tensor_type type); /* "float32", "int64", ... */

/* The attribute of a node; NULL if it is not given. The functions after it return the default for one that is not
 * given, or that is of another kind. */
const struct fl_net_attribute *fl_net_find(const struct fl_net_node *node, const char *name);
int64_t fl_net_int(const struct fl_net_node *node, const char *name, int64_t otherwise);
float fl_net_float(const struct fl_net_node *node, const char *name, float otherwise);
const char *fl_net_string(const struct fl_net_node *node, const char *name, const char *otherwise);
/* Removes an attribute, if it is there. */
void fl_net_drop(struct fl_net_node *node, const char *name);
/* Sets an attribute of a node that a pass makes; replaces one of that name. */
tensor_status fl_net_set_int(struct fl_network *n, struct fl_net_node *node, const char *name, int64_t value);
tensor_status fl_net_set_float(struct fl_network *n, struct fl_net_node *node, const char *name, float value);
tensor_status fl_net_set_ints(struct fl_network *n, struct fl_net_node *node, const char *name, int count,
                              const int64_t *values);
tensor_status fl_net_set_string(struct fl_network *n, struct fl_net_node *node, const char *name, const char *value);

/* A whole network, right after it was read: indices in range, every value computed at most once and before it is read,
 * no cycle. TENSOR_E_DATA names node and value. Sorts nodes that are in another order. Readers call it last. */
tensor_status fl_net_check(struct fl_network *n);

/* How many operands of nodes, those of nested graphs too, and outputs of graphs a value is. */
int fl_net_readers(const struct fl_network *n, int value);
/* Whether the network fixes the first dimension of all inputs: program_run then also takes a multiple of it. */
bool fl_net_has_batch(const struct fl_network *n);

/* Quantised networks. A quantised value is an int8 or uint8 with one scale and zero point. A quantised node has an
 * operator by its plain name ("Conv") whose first operand and first result are quantised values; weights are integers
 * with a quantisation, for each filter where they have several, and biases int32 at the scale s_x s_w[k]. The borders
 * to floats are QuantizeLinear and DequantizeLinear, whose scale and zero point are constants and are those of their
 * integer side; QuantizeLinear of a quantised value is a quantised node that changes the scale. */
bool fl_net_is_bytes(const struct fl_network *n, int value);
bool fl_net_is_border(const struct fl_net_node *node);
bool fl_net_is_quantised(const struct fl_network *n, const struct fl_net_node *node);
/* Of a quantised value. */
struct fl_int8_type fl_net_int8_type(const struct fl_network *n, int value);

#endif
