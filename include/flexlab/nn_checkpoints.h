/* nn_checkpoints.h - the state of a network in memory and in files; weights from other sources. Part of nn.h, whose
 * conventions hold. */
#ifndef FLEXLAB_NN_CHECKPOINTS_H
#define FLEXLAB_NN_CHECKPOINTS_H

#include "flexlab/api.h"
#include "flexlab/nn_network.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- the whole state ---------------------------------------------------------------------------------------------- */

/* The state is all that the next step depends on: weights with their wide parts, momentum, running statistics, the
 * number of steps, and each tensor's exponent, history and number of writes. A network of the same layers, variant and
 * settings, in this process or another of the same version and machine, resumes from it with the same bits.
 * data_loader_seek restores the position in the data. */
FLEXLAB_API size_t nn_state_bytes(const nn_graph *g); /* 0 before nn_compile */
/* bytes must be nn_state_bytes(g). Restoring checks the whole state first: TENSOR_E_DATA names what does not match, and
 * then nothing has changed. */
FLEXLAB_API tensor_status nn_state_save(void *state, size_t bytes, const nn_graph *g);
FLEXLAB_API tensor_status nn_state_restore(nn_graph *g, const void *state, size_t bytes);

/* --- checkpoints -------------------------------------------------------------------------------------------------- */

/* A checkpoint is the same state in a file that any program can read (safetensors: docs/checkpoints.md), on any
 * machine, by this and later versions: a network of the same layers, variant and settings resumes from it with the same
 * bits, on any device. A note is a string in the file's metadata: */
typedef struct nn_note {
    const char *key, *value; /* UTF-8 */
} nn_note;
/* Writes PATH.part, and renames it when it is on the disk: at any moment path is either the file before or the new one,
 * complete. A link, a FIFO, a device or a folder of that name remains, and is TENSOR_E_IO. notes: strings of the
 * caller's under keys of their own ("author"); may be NULL for a count of 0. The file omits the elements of gradients,
 * which the next step writes anew. Waits for a device. Of several ranks all call it, and rank 0 writes; all call
 * nn_state_save too. */
FLEXLAB_API tensor_status nn_checkpoint_save(const nn_graph *g, const char *path, const nn_note *notes, int count);
/* Sets the state of a compiled network. The whole file is checked first, including a checksum: TENSOR_E_DATA names
 * file, tensor or setting, the value found and the expected one, and then nothing has changed. */
FLEXLAB_API tensor_status nn_checkpoint_load(nn_graph *g, const char *path);
/* A new graph with the settings of the network in the file, on the given device (NULL: "cpu"), to which the caller adds
 * the layers; then nn_compile and nn_checkpoint_load. NULL on failure. The file may come from an untrusted source
 * (docs/security.md): a policy in it is a text, never the name of a file; nn_compile compares layers and batch with the
 * file's tensors before it allocates anything (TENSOR_E_DATA); and a step may take 4 GiB, unless nn_graph_limit sets
 * another limit. */
FLEXLAB_API nn_graph *nn_checkpoint_graph(const char *path, const char *device);
/* Reads the string under a key of the file's metadata: those of nn_checkpoint_save, and the library's own. At most size
 * - 1 bytes and a terminating zero; TENSOR_E_DATA if there is none, TENSOR_E_ARGUMENT if it is longer. */
FLEXLAB_API tensor_status nn_checkpoint_note(char *value, size_t size, const char *path, const char *key);

/* The shape of a tensor in a safetensors file of any origin: a checkpoint, or weights that another program has written.
 * `dim` holds 8 sizes; *ndim is -1 if the file has no tensor of that name, and 0 for a single number. TENSOR_E_ARGUMENT
 * if an argument is NULL; errors of the file are those of nn_checkpoint_load. */
FLEXLAB_API tensor_status nn_checkpoint_shape(int *ndim, int64_t dim[8], const char *path, const char *name);
/* The elements of such a tensor, row-major and exact: of type F64, F32, F16 or BF16; of I16 and I32 with a note
 * NAME.exponent, e, as m 2^-e (a checkpoint's NAME.wide has one too); or of U8, U16 and U32 with a note NAME.format, as
 * the codes of that format (tensor_format_find), times 2^-e where it has an exponent. Besides the errors above
 * TENSOR_E_DATA if there is no such tensor, if it has another type, or if it does not have `count` elements. */
FLEXLAB_API tensor_status nn_checkpoint_values(double *values, int64_t count, const char *path, const char *name);

/* Sets a weight of a compiled network of any variant and policy. The name is one of nn_tensor_at ("conv1.weight",
 * "bn1.gamma"; not a master weight or a copy), or a running statistic of batch normalisation ("bn1.running_mean",
 * "bn1.running_variance"). Each of the `count` values, row-major, is rounded once, to nearest, to the number that
 * updates work on (the master weight, the wide part, or the weight); copies in other formats follow from that. Shared
 * exponents are those of the largest element, and their history begins anew, as for initial weights. (If there is a
 * master weight, the next update overwrites elements written directly into a tensor of nn_tensor_at.) The state of the
 * optimiser and the number of steps remain. TENSOR_E_ARGUMENT: no such name, or a value that is not finite;
 * TENSOR_E_SHAPE: another count. On failure nothing has changed, unless a device failed. */
FLEXLAB_API tensor_status nn_weight_set(nn_graph *g, const char *name, const double *values, int64_t count);
/* Sets all weights from a safetensors file, by name: a checkpoint of the same layers in any variant (from which it
 * takes the master weight or the wide part, if there is one), or a file of another program, in any type of
 * nn_checkpoint_values: with this library's names and layouts, or with those of PyTorch (nn_weight_at has both). Which
 * it is follows from the names and the metadata; where neither tells, from the shapes, as nn_weights_match does it.
 * Tensors of other names are ignored. TENSOR_E_DATA names file and tensor if one is missing, has
 * another shape or type, or is not finite, or if the checksum is wrong; otherwise as nn_weight_set. */
FLEXLAB_API tensor_status nn_weights_load(nn_graph *g, const char *path);

/* A weight, or a running statistic of a layer, as in files. */
typedef struct nn_weight_info {
    const char *name;   /* NULL out of range; valid until the next call of this thread */
    const char *layout; /* the meaning of the dimensions: "out, height, width, in", "in, out", "channels" */
    int ndim;
    int64_t dim[8];
    /* The same in PyTorch: the name in a public implementation of the model (docs/programs.md), or that of `name` with
     * PyTorch's suffixes; the layout, and the shape, which has as many dimensions. */
    const char *torch_name, *torch_layout;
    int64_t torch_dim[8];
} nn_weight_info;
/* Their number, and the i-th from 0, in the order of the layers, also before nn_compile. Out of range, and for a NULL
 * graph, name is NULL. */
FLEXLAB_API int nn_weight_count(const nn_graph *g);
FLEXLAB_API nn_weight_info nn_weight_at(const nn_graph *g, int i);

typedef enum nn_weight_fit {
    NN_WEIGHT_FITS = 0,
    NN_WEIGHT_MISSING = 1, /* the file has no tensor of that name */
    NN_WEIGHT_SHAPE = 2,   /* it has another shape */
    /* It fits, and would also fit in the layout of other programs (a square matrix transposed, a 3x3 filter on 3
     * channels with the channels first), and the file does not specify its layout: it is not a checkpoint of this
     * library, its names are not PyTorch's, and it has neither a note flexlab.layouts with the value 1 (this library's)
     * or oihw (PyTorch's) nor, as PyTorch writes it, format with the value pt. */
    NN_WEIGHT_BOTH_WAYS = 3,
    NN_WEIGHT_SUPERFLUOUS = 4 /* the network has none of that name */
} nn_weight_fit;
typedef struct nn_weight_match {
    nn_weight_fit fit;
    nn_weight_info weight; /* as the file should have it; its name is NULL if the tensor is superfluous */
    const char *found;     /* name and shape in the file; NULL if it is missing */
    int found_ndim;
    int64_t found_dim[8];
} nn_weight_match;
typedef void (*nn_weight_match_fn)(const nn_weight_match *match, void *context);
/* Compares the tensors of a safetensors file with the weights of a network, by name and shape. It calls `report` once
 * for each weight in their order, then for each superfluous tensor (not counting what a checkpoint stores beside
 * weights). Strings last until `report` returns. A mismatch is no failure. */
FLEXLAB_API tensor_status nn_weights_match(const nn_graph *g, const char *path, nn_weight_match_fn report,
                                           void *context);

#ifdef __cplusplus
}
#endif
#endif
