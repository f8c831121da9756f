/* nn_checkpoints.h - the state of a network in memory and in files; weights from elsewhere.
 * A part of nn.h, whose conventions hold. */
#ifndef FLEXLAB_NN_CHECKPOINTS_H
#define FLEXLAB_NN_CHECKPOINTS_H

#include "flexlab/api.h"
#include "flexlab/nn_network.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- the whole state ---------------------------------------------------------------------------------------------- */

/* All that the next step depends on: weights with their wide parts, momentum, running statistics, every tensor's
 * exponent, history and number of writes, the number of steps. A network of the same layers, variant and settings, in
 * this process or another of the same version and machine, goes on from it with the same bits. Position of the data:
 * data_loader_seek. */
FLEXLAB_API size_t nn_state_bytes(const nn_graph *g); /* 0 before nn_compile */
/* bytes must be nn_state_bytes(g). Restoring checks all of it first: TENSOR_E_DATA names what does not fit, and then
 * nothing has changed. */
FLEXLAB_API tensor_status nn_state_save(void *state, size_t bytes, const nn_graph *g);
FLEXLAB_API tensor_status nn_state_restore(nn_graph *g, const void *state, size_t bytes);

/* --- checkpoints -------------------------------------------------------------------------------------------------- */

/* The same state in a file that any program can read (safetensors: docs/checkpoints.md), on any machine, by this and
 * later versions: a network of the same layers, variant and settings goes on from it with the same bits, on whatever
 * device. A string of the file's metadata: */
typedef struct nn_note {
    const char *key, *value; /* UTF-8 */
} nn_note;
/* Writes PATH.part, and gives it its name when it is on the disk: whatever happens, under path stands the file before
 * or the new one, whole. A link, a FIFO, a device or a folder there stays, and is TENSOR_E_IO. notes: strings of the
 * caller's in it, under keys of their own ("author"); may be NULL for a count of 0. The gradients' elements, which the
 * next step writes anew, are not in it. Waits for a device. */
FLEXLAB_API tensor_status nn_checkpoint_save(const nn_graph *g, const char *path, const nn_note *notes, int count);
/* Sets the state of a compiled network. All of the file is checked first, down to a checksum: TENSOR_E_DATA names file,
 * tensor or setting, what was found and what was expected, and then nothing has changed. */
FLEXLAB_API tensor_status nn_checkpoint_load(nn_graph *g, const char *path);
/* A new graph with the settings of the network in the file, on that device (NULL: "cpu"), to build its layers on;
 * nn_compile, then nn_checkpoint_load. NULL on failure. The file may be a stranger's (docs/security.md): a policy in it
 * is its text, never the name of a file; before anything is allocated, nn_compile compares layers and batch with the
 * file's tensors (TENSOR_E_DATA); and a step may take 4 GiB, unless nn_graph_limit says otherwise. */
FLEXLAB_API nn_graph *nn_checkpoint_graph(const char *path, const char *device);
/* The string of that key in the file's metadata: those of nn_checkpoint_save, and the library's own. At most size - 1
 * bytes and a zero; TENSOR_E_DATA where there is none, TENSOR_E_ARGUMENT where it is longer. */
FLEXLAB_API tensor_status nn_checkpoint_note(char *value, size_t size, const char *path, const char *key);

/* Tensors of a safetensors file of any origin: a checkpoint, or weights that another program has written. `dim` has
 * room for 8; *ndim is -1 where the file has no tensor of that name, and 0 for a single number. TENSOR_E_ARGUMENT where
 * an argument is NULL; where the file cannot be read or is no safetensors file, what nn_checkpoint_load says of it. */
FLEXLAB_API tensor_status nn_checkpoint_shape(int *ndim, int64_t dim[8], const char *path, const char *name);
/* Its elements, row-major, exactly: of type F64, F32, F16 or BF16, or I16 and I32 with a note NAME.exponent, e, as
 * m 2^-e (a checkpoint's NAME.wide has one too). Besides these errors TENSOR_E_DATA where there is no such tensor,
 * where its type is another, and where it has not `count` elements. */
FLEXLAB_API tensor_status nn_checkpoint_values(double *values, int64_t count, const char *path, const char *name);

/* Weights from elsewhere, into a compiled network of any variant and policy. The weight of that name, as nn_tensor_at
 * has it ("conv1.weight", "bn1.gamma"; not its master or copies), or what batch normalisation keeps
 * ("bn1.running_mean", "bn1.running_variance"), takes `count` values, row-major: each is rounded once, to nearest, to
 * what updates work on (the master weight, the wide part, or the weight), and copies in other formats follow from that;
 * shared exponents are those of the largest element, and their history begins anew, as with initial weights. Elements
 * written into a tensor of nn_tensor_at itself would be undone by the next update, where there is a master. What the
 * optimiser keeps and the number of steps stay as they are. TENSOR_E_ARGUMENT: no such name, a value that is not
 * finite; TENSOR_E_SHAPE: another count. On failure nothing has changed, but where a device fails. */
FLEXLAB_API tensor_status nn_weight_set(nn_graph *g, const char *name, const double *values, int64_t count);
/* All of them from a safetensors file, by name: a checkpoint of the same layers in any variant (of which it takes the
 * master weight or the wide part, where there is one), or what another program has written, in any type of
 * nn_checkpoint_values. Tensors of other names are ignored. TENSOR_E_DATA names file and tensor where one is missing,
 * of another shape or type, or not finite, or the checksum is wrong; otherwise as above. */
FLEXLAB_API tensor_status nn_weights_load(nn_graph *g, const char *path);

/* A weight, or a number that a layer keeps, as files have it. */
typedef struct nn_weight_info {
    const char *name;   /* NULL out of range; it stays until the next call of this thread */
    const char *layout; /* what the dimensions are: "out, height, width, in", "in, out", "channels" */
    int ndim;
    int64_t dim[8];
} nn_weight_info;
/* The i-th of them, from 0, in the order of the layers, also before nn_compile. Out of range, and of NULL: name is
 * NULL. */
FLEXLAB_API int nn_weight_count(const nn_graph *g);
FLEXLAB_API nn_weight_info nn_weight_at(const nn_graph *g, int i);

typedef enum nn_weight_fit {
    NN_WEIGHT_FITS = 0,
    NN_WEIGHT_MISSING = 1, /* the file has no tensor of that name */
    NN_WEIGHT_SHAPE = 2,   /* it has another shape */
    /* It fits, and would in the layout of other programs too (a square matrix turned, a filter of 3x3 on 3 channels
     * with these in front), and the file does not say which it has: it is no checkpoint of ours and has no note
     * flexlab.layouts with the value 1. */
    NN_WEIGHT_BOTH_WAYS = 3,
    NN_WEIGHT_SUPERFLUOUS = 4 /* the network has none of that name */
} nn_weight_fit;
typedef struct nn_weight_match {
    nn_weight_fit fit;
    nn_weight_info weight; /* of the network; its name is NULL where the tensor is superfluous */
    const char *found;     /* name and shape in the file; NULL where it is missing */
    int found_ndim;
    int64_t found_dim[8];
} nn_weight_match;
typedef void (*nn_weight_match_fn)(const nn_weight_match *match, void *context);
/* How the tensors of a safetensors file go with the weights of a network, by name and shape: told once for each weight
 * in their order, then for each tensor that is superfluous (of a checkpoint: without what it has beside weights).
 * Strings last until `told` returns. Whatever comes out is no failure. */
FLEXLAB_API tensor_status nn_weights_match(const nn_graph *g, const char *path, nn_weight_match_fn told, void *context);

#ifdef __cplusplus
}
#endif
#endif
