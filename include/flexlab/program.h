/* program.h - trained networks as programs: read from ONNX, TensorFlow Lite or this library's files, brought into other
 * formats, run. The conventions of tensor.h hold.
 *
 *     program *p;
 *     if (program_read(&p, "network.onnx")) fprintf(stderr, "%s\n", tensor_error());
 *     float image[3 * 32 * 32], *logits;
 *     program_array in = {TENSOR_TYPE_F32, 4, {1, 3, 32, 32}, image}, out;
 *     if (!program_run(p, &out, &in)) logits = out.data;
 *     program_free(p);
 *
 * A program takes and gives float32 (or the integers that the network takes and gives), whatever format its nodes
 * compute in. Its answer to an input is the same whatever other inputs are in the batch, and with every instruction set
 * and number of threads and on every device; in shared-exponent formats once program_freeze has fixed the exponents. In
 * fp32 a program agrees with the source network within what another order of fp32 sums changes.
 * docs/programs.md is the full description. */
#ifndef FLEXLAB_PROGRAM_H
#define FLEXLAB_PROGRAM_H

#include "flexlab/api.h"
#include "flexlab/nn_network.h"
#include "flexlab/status.h"
#include "flexlab/tensor_life.h"
#include "flexlab/tensor_values.h"
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct fl_program program;

enum { PROGRAM_MAX_DIMS = 8 };

/* An array of the host, in row-major order. ndim 0 is a single number. */
typedef struct program_array {
    tensor_type type;
    int ndim;
    int64_t shape[PROGRAM_MAX_DIMS];
    void *data;
} program_array;

/* An input or output: its name, type and shape as the network states them; -1 for a size that each run chooses, or that
 * follows from those; ndim -1 if the network does not state it. */
typedef struct program_port {
    const char *name;
    tensor_type type;
    int ndim;
    int64_t shape[PROGRAM_MAX_DIMS];
    float scale; /* of integers q that stand for scale * (q - zero); otherwise 0 */
    int zero;
} program_port;

/* Reads a network; what kind of file it is follows from its content. TENSOR_E_IO: it cannot be read; TENSOR_E_DATA: it
 * is damaged, or none of the known kinds; TENSOR_E_UNSUPPORTED: it has operators that the library does not have (the
 * message lists them all), or this build lacks the reader. *p is NULL after a failure. Free with program_free. */
FLEXLAB_API tensor_status program_read(program **p, const char *path);
/* A compiled network of nn.h in evaluation as a program: its layers from the input to the logits, with their names and
 * formats and the weights that updates work on (master weights, wide parts); statistics of batch normalisation become a
 * part of weights, dropout vanishes. The input is [batch, height, width, channels] of floats, or [batch, length] of
 * int32 tokens. In shared-exponent formats, tensors that the training has written have the exponents that it predicts
 * for them; program_calibrate and program_freeze fix others. In fp32 outputs are those of nn_predict within what other
 * roundings change. The program shares nothing with g. TENSOR_E_UNSUPPORTED names a layer that programs lack: adaptive
 * pooling with windows of several sizes, response normalisation over an even number of channels. TENSOR_E_ARGUMENT: g
 * is NULL, or was not compiled. Free with program_free. */
FLEXLAB_API tensor_status program_from_graph(program **p, const nn_graph *g);

/* What a file of weights does not say itself. All zero: a checkpoint of `flexlab train`, or nn_checkpoint_save. */
typedef struct program_weight_file {
    const char *model; /* a name of nn_model or nn_model_text; NULL: the checkpoint says it */
    int height, width; /* of the images; for texts width is the length. 0: 32 each (28 for images of 784 pixels); 128 */
    const char *layout; /* "oihw": filters are [out, in, height, width], matrices [out, in]: PyTorch's. "ohwi": filters
                           are [out, height, width, in], matrices [in, out]: this library's. NULL: what names and
                           metadata of the file say */
} program_weight_file;
/* The network of a safetensors file of weights: the state dict of a model in PyTorch, by the names that nn_weight_at
 * has as torch_name, or weights by this library's names; or a checkpoint, whose formats and exponents the program has,
 * too (program_from_graph). Channels, classes and vocabulary follow from the shapes. TENSOR_E_DATA lists all tensors
 * that are missing, superfluous or of another shape, or those that fit the layouts of both where nothing says which it
 * is; a note flexlab.probe in the metadata, "HxWxC SUM SIZE" ("LENGTH SUM SIZE" for a text), is what the source network
 * gives for program_probe of one input of those sizes (program_checksum of its output), and a program that gives
 * something else is refused. TENSOR_E_ARGUMENT: no such model, or sizes that are not given. how may be NULL. */
FLEXLAB_API tensor_status program_read_weights(program **p, const char *path, const program_weight_file *how);
/* Writes the program with its formats, exponents and scales as a file that program_read reads: safetensors, with the
 * network as JSON in the metadata (docs/programs.md). Constants are stored in the format in which nodes read them;
 * those that nodes read in several formats, or compute with as they are, in float32. A program that was read from the
 * file gives the same bits in every run as the one that was saved; in formats that are set afterwards it starts from
 * the stored constants. The file is written beside its name and renamed when it is complete. TENSOR_E_ARGUMENT between
 * program_calibrate and program_freeze, and for names that are no UTF-8 text; TENSOR_E_IO. */
FLEXLAB_API tensor_status program_save(const program *p, const char *path);
/* program_read of these files alone: TENSOR_E_DATA for others. */
FLEXLAB_API tensor_status program_load(program **p, const char *path);
/* Frees the program. NULL is allowed. */
FLEXLAB_API void program_free(program *p);

/* The number of inputs and outputs, and the i-th; TENSOR_E_ARGUMENT past the last. */
FLEXLAB_API int program_input_count(const program *p);
FLEXLAB_API int program_output_count(const program *p);
FLEXLAB_API tensor_status program_input_at(program_port *port, const program *p, int i);
FLEXLAB_API tensor_status program_output_at(program_port *port, const program *p, int i);

/* A node: its name, and its operator by ONNX's name ("Conv"), with domain "" or the domain that it is of, and
 * the format in which it computes. */
typedef struct program_node {
    const char *name, *op, *domain;
    tensor_format format;
    bool quantised; /* it computes 8-bit integers, whatever the format */
    bool border;    /* QuantizeLinear or DequantizeLinear between integers and floats */
} program_node;

/* The number of nodes in the order in which they compute, and the i-th; TENSOR_E_ARGUMENT past the last. They are those
 * that remain when constants are computed and batch normalisations are joined to weights; the branches of If are not
 * among them. */
FLEXLAB_API int program_node_count(const program *p);
FLEXLAB_API tensor_status program_node_at(program_node *node, const program *p, int i);
/* What reading made of the nodes of the file. */
typedef enum program_change_kind {
    PROGRAM_FOLDED = 1, /* BatchNormalization, or a product, quotient, sum or difference with constants for each
                           channel, became a part of weights and bias: computed in double, rounded once */
    PROGRAM_JOINED,     /* Relu, Clip or Add is computed before the result of another node is rounded */
    PROGRAM_RECOGNISED, /* one of several nodes that spelt out an operator, which is now one node */
    PROGRAM_QUANTISED,  /* a node between DequantizeLinear and QuantizeLinear, or by a name of its own (QLinearConv),
                           became one of 8-bit integers */
    PROGRAM_IN_FLOATS   /* a node of integers for which there is no kernel computes floats between such */
} program_change_kind;
typedef struct program_change {
    program_change_kind kind;
    const char *node, *op;      /* of the file: its name and operator */
    const char *into, *into_op; /* the node that has its place at that point; itself where it only changes */
} program_change;
/* The number of changes in the order in which they were made, and the i-th; TENSOR_E_ARGUMENT past the last. A program
 * that program_save has written has none: they were made before. */
FLEXLAB_API int program_change_count(const program *p);
FLEXLAB_API tensor_status program_change_at(program_change *change, const program *p, int i);
/* The number of constant floats and quantised integers that nodes read, and their bytes: in the formats of the nodes
 * that read them, in float32 where these differ; integers with their scales. */
FLEXLAB_API int64_t program_parameter_count(const program *p);
FLEXLAB_API int64_t program_parameter_bytes(const program *p);

/* Runs the program: outputs are all its outputs, inputs all its inputs, in their order. An input of floats is float32,
 * or has the type of floats that the network states; others have the type that the port states. Outputs of floats are
 * float32. The data of outputs belongs to the program, and is valid until its next run. TENSOR_E_SHAPE or
 * TENSOR_E_ARGUMENT for inputs that do not suit the ports, or for which a node has no result; the message names the
 * node. Runs of the same shapes reuse memory and plan. If the network fixes the first dimension of all its inputs, they
 * may also have the same multiple of it: the network then runs batch by batch, and the results are joined along their
 * first dimension. */
FLEXLAB_API tensor_status program_run(program *p, program_array *outputs, const program_array *inputs);

/* Where the tensors of the program live and its operations run (tensor_device_at; NULL: the processor, as at first).
 * Inputs and outputs are arrays of the host, and so is what the library has no operation for: its operands are fetched
 * and its results sent. */
FLEXLAB_API tensor_status program_set_device(program *p, tensor_device *device);

/* --- formats ------------------------------------------------------------------------------------------------------ */

/* Sets the format in which nodes compute, or PROGRAM_INT8 (below): of those whose name or operator match a pattern
 * ("*",
 * "?"; NULL: all). Inputs and outputs of the program remain float32. A new program computes in fp32. *count (unless
 * NULL) is the number of nodes that match. In shared-exponent formats each tensor has the exponent that program_freeze
 * gives it; a program that was not calibrated takes exponents from each result itself, so that its answers depend on
 * the batch. TENSOR_E_UNSUPPORTED, with nothing changed, if a format of floats is set for a node that program_freeze
 * has quantised; the message names it. */
FLEXLAB_API tensor_status program_set_format(program *p, tensor_format format, const char *pattern, int *count);
/* The same for the i-th node, and those of its branches. TENSOR_E_ARGUMENT past the last. */
FLEXLAB_API tensor_status program_set_node_format(program *p, int i, tensor_format format);

/* Calibration: runs the program in fp32 on representative inputs and notes the least and largest number of each of its
 * tensors, and, if nodes are marked PROGRAM_INT8, how often numbers of each size occur. May be called several times;
 * the result does not depend on the order of the inputs, nor on how they are divided into calls. */
FLEXLAB_API tensor_status program_calibrate(program *p, const program_array *inputs);
/* Fixes the exponent of each tensor at the largest one, at which margin times its largest magnitude still fits (margin
 * at least 1; 0: 1), from what program_calibrate noted (14, where it saw zeros alone); and quantises nodes that are
 * marked PROGRAM_INT8. TENSOR_E_ARGUMENT if program_calibrate was never called; TENSOR_E_UNSUPPORTED, with nothing
 * changed, if nodes are to be quantised in a network that has nodes of integers already, under another rounding than
 * exact. */
FLEXLAB_API tensor_status program_freeze(program *p, double margin);

/* --- 8-bit integers ----------------------------------------------------------------------------------------------- */

/* In place of a format of program_set_format: program_freeze makes nodes of 8-bit integers of these. Their sums are
 * exact, and each result is rounded once, to nearest even (program_rounding becomes exact). Operators with a kernel of
 * integers are quantised: Conv, Gemm and MatMul with constant weights; Add, Concat, AveragePool, GlobalAveragePool,
 * MaxPool, Relu, Clip and those that only rearrange elements where an operand has integers already. All others, Softmax
 * too, stay in fp32, between DequantizeLinear and QuantizeLinear. A quantised node cannot go back to floats. */
#define PROGRAM_INT8 ((tensor_format)300)

/* How the range that integers cover follows from calibration: from the least number to the largest; all but 100 -
 * percentile percent of the numbers; that of the least mean of squared errors; that of the least Kullback-Leibler
 * divergence, as TensorRT (2048 bins, 128 levels). */
typedef enum program_range_method {
    PROGRAM_MINMAX,
    PROGRAM_PERCENTILE,
    PROGRAM_MSE,
    PROGRAM_ENTROPY
} program_range_method;

/* Activations are uint8 with a zero point, or, if symmetric, int8 without one. Weights are int8 from -127 to 127
 * without zero point, with one scale for each filter, or for the tensor; biases int32. */
typedef struct program_quantisation {
    program_range_method method;
    double percentile; /* of PROGRAM_PERCENTILE: above 50, at most 100 */
    bool per_channel, symmetric;
} program_quantisation;

/* How program_freeze quantises; at first PROGRAM_MINMAX, per channel, not symmetric. TENSOR_E_ARGUMENT for a method or
 * a percentile that is none. */
FLEXLAB_API tensor_status program_set_quantisation(program *p, const program_quantisation *how);

/* Writes what calibration has found and fixed as a text of comma-separated values: after the line
 * "name,type,scale,zero_point,exponent,least,largest" one for each tensor; tensors within a node are NODE#NUMBER.
 * Between program_calibrate and program_freeze: what freezing with a margin of 1 would fix. TENSOR_E_IO. */
FLEXLAB_API tensor_status program_scales_write(const program *p, const char *path);
/* In place of calibration: fixes exponents and scales as such a file says, which may have been edited, and quantises
 * marked nodes as program_freeze does. Tensors that it does not name keep what they have. Scales of weights follow from
 * the weights. TENSOR_E_DATA names the first line that is wrong; TENSOR_E_UNSUPPORTED as program_freeze; nothing is
 * then changed. */
FLEXLAB_API tensor_status program_scales_read(program *p, const char *path);

/* --- what a program computes -------------------------------------------------------------------------------------- */

/* A tensor of a program, as program_watch and program_weights show it. Everything that it points to is valid during the
 * call alone. */
typedef struct program_tensor {
    const char *value;     /* the name of the tensor in the network */
    program_node node;     /* the node that computes it; of a cast or a weight, the first one that reads it */
    tensor_format format;  /* of its elements; 0 for integers */
    int exponent;          /* of a shared-exponent format: elements are mantissa * 2^-exponent */
    bool cast;             /* a copy in the format of a node that reads it */
    int64_t saturated;     /* elements that the last write clamped to the format's largest number, or made infinite */
    int64_t flushed;       /* elements that were not 0, and became 0 */
    program_array numbers; /* its elements: floats as float32, integers in their type; in the network's order */
    float scale;           /* of integers q that stand for scale * (q - zero); otherwise 0 */
    int zero;
    const float *original; /* of a weight: its numbers before they were rounded to the format; otherwise NULL */
    tensor_type integers;  /* of a weight of integers, whose numbers are those that they stand for: their type */
} program_tensor;
/* A status other than TENSOR_OK ends the run, which returns it. */
typedef tensor_status program_watcher(void *context, const program_tensor *t);

/* From now on each run shows the watcher every result of every node, as soon as it is computed, and every cast between
 * formats; where program_run joins batches, once for each batch. What follows from constants and shapes alone is no
 * result, and neither is what nodes that the program joined computed in the source network. NULL: no longer. Bits do
 * not change. TENSOR_E_ARGUMENT if p is NULL. */
FLEXLAB_API tensor_status program_watch(program *p, program_watcher *watcher, void *context);

/* Shows the watcher every constant of floats that nodes read in another format than fp32: rounded to it, as a run does,
 * with what rounding changed; and those that program_freeze has made integers. A file does not say what integers were
 * before. TENSOR_E_ARGUMENT if p or watcher is NULL. */
FLEXLAB_API tensor_status program_weights(const program *p, program_watcher *watcher, void *context);

/* A sum that tells results of two programs apart, whatever small errors their formats have:
 *
 *     sum = sqrt(3 / n) sum_i c(i) y(i),  c(i) = ((i + 1) 2654435761 mod 2^32) 2^-31 - 1,  i = 0 ... n - 1
 *
 * over the n elements of y in row-major order, in double, and the root mean square of y, which is the size that sums of
 * unrelated tensors differ by; sums of tensors that differ by errors differ by the size of the errors. 0 without
 * elements. */
typedef struct program_sum {
    double sum, magnitude;
} program_sum;
FLEXLAB_API program_sum program_checksum(const float *y, int64_t n);
/* Fills an input with the numbers c(i) of program_checksum: floats as they are, rounded to float32; bytes as
 * floor(128 c(i)), plus 128 for uint8; wider integers and booleans i mod 2. data has memory for the shape.
 * TENSOR_E_ARGUMENT for another type. */
FLEXLAB_API tensor_status program_probe(program_array *input);

/* --- export ------------------------------------------------------------------------------------------------------- */

/* Writes the program as an ONNX file that other runtimes read: nodes in fp32, fp16 and bf16 in these types, those in
 * flex16+5 and dfp16 between QuantizeLinear and DequantizeLinear of int16 whose scales are powers of two, integer nodes
 * between such of 8 bits (docs/programs.md). program_read of that file gives the same nodes, formats, exponents and
 * scales, and the same bits. TENSOR_E_UNSUPPORTED names a node that ONNX cannot say, or whose exponents program_freeze
 * has not fixed; TENSOR_E_IO: the file cannot be written. A file of that name is replaced when all is written. */
FLEXLAB_API tensor_status program_export(const program *p, const char *path);

/* --- quantised networks ------------------------------------------------------------------------------------------- */

/* How results of 8-bit integers are rounded: "exact" (one rounding of the exact sum, ties to even), or the bits of a
 * runtime: "onnx" (onnxruntime), "tflite" (TensorFlow Lite's reference kernels), "tflite-ruy" (its optimised ones),
 * "tflite-xnnpack" (what it runs by default). A program has that of its file's own runtime: onnx, tflite-xnnpack.
 * Operators with a kernel of integers have the bits of the runtime: Add, AveragePool, Concat, Conv, Gemm, MatMul,
 * MaxPool, GlobalAveragePool, Relu, Clip, Softmax, those that only rearrange elements, QuantizeLinear and
 * DequantizeLinear; all others compute floats, which are rounded to the integers of the result. docs/programs.md.
 * TENSOR_E_ARGUMENT for another name; the message lists them. TENSOR_E_UNSUPPORTED, with nothing changed, where a node
 * adds to a sum before it is rounded, which only exact does; the message names it. */
FLEXLAB_API tensor_status program_set_rounding(program *p, const char *name);
/* The name of the rounding in force; NULL if p is NULL. */
FLEXLAB_API const char *program_rounding(const program *p);
/* Whether all that the program computes is computed in 8-bit integers, so that no format matters. */
FLEXLAB_API bool program_is_quantised(const program *p);

#ifdef __cplusplus
}
#endif
#endif
