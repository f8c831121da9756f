/* nn_observation.h - observing a network while it trains: the tensors of a step, the first NaN or Inf, telemetry in
 * files. Part of nn.h, whose conventions hold. */
#ifndef FLEXLAB_NN_OBSERVATION_H
#define FLEXLAB_NN_OBSERVATION_H

#include "flexlab/api.h"
#include "flexlab/nn_network.h"
#include "flexlab/tensor_statistics.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A tensor of the training step, for traces and statistics: weights, activations, gradients, momentum. Exponents and
 * statistics are those of the last write. The elements of activations and gradients exist only from the operation that
 * writes them to the last that reads them: later, other tensors have their memory, and reading them is
 * TENSOR_E_ARGUMENT. nn_watch shows them in time. */
typedef struct nn_tensor_info {
    const char *name;
    /* "weight", "activation", "gradient", "weight gradient", "momentum"; of other optimisers "root", "direction". Of
     * several shards each has tensors of its own, NAME.shard0, ..., among them the gradients of weights, whose sum is
     * NAME; those of shards that other ranks compute have the exponents and statistics of the last checkpoint. */
    const char *role;
    tensor *t;
} nn_tensor_info;
/* The library calls watch, on the thread that runs the step, as soon as the operation that writes a tensor of the step
 * is submitted, while its values exist: for each tensor of nn_tensor_at once per step, node by node in the order of the
 * passes, and in no defined order within a node. It may read tensors, not write them. NULL removes it.
 * What it reads of a tensor on a device waits for the operation, and with a dynamic loss scale every watched step waits
 * for its gradients: a skipped update shows no tensors. nn_telemetry examines tensors without waiting. */
typedef void (*nn_watch_fn)(const nn_tensor_info *info, void *context);
FLEXLAB_API tensor_status nn_watch(nn_graph *g, nn_watch_fn watch, void *context);
/* The number of tensors, and the i-th: {NULL} out of range. */
FLEXLAB_API int nn_tensor_count(const nn_graph *g);
FLEXLAB_API nn_tensor_info nn_tensor_at(const nn_graph *g, int i);

/* --- the first NaN or Inf ----------------------------------------------------------------------------------------- */

enum { NN_NONFINITE_BEFORE = 20 };
typedef struct nn_seen_write {
    int64_t step;
    const char *tensor, *role;
    double maximum; /* before rounding */
    int64_t saturated, flushed;
    int64_t e;
} nn_seen_write;
/* The first write of a step, in the order of computation, that stores a NaN or Inf; under a shared exponent, which has
 * neither, the first that stores the rounding of one. The library owns the struct, which programs see by pointer; its
 * texts last as long as the network. */
typedef struct nn_nonfinite {
    int64_t step;                /* from 1; for pass "update", the step after which the weights are not finite */
    const char *tensor, *role;   /* as nn_tensor_at has them; "loss", "loss" */
    int64_t nonfinite, elements; /* NaN and Inf; all */
    const nn_seen_write *before; /* with telemetry only: the writes before it, in order, the last one at the end */
    int64_t before_count;
    /* Where the NaN or Inf arose. "input": in the input, or the format cannot hold the input; "forward": in an output,
     * while everything before it is finite; "loss": in the loss, while all outputs are finite; "backward": in a
     * gradient, while all outputs and the loss are finite (gradients of a scaled loss as they are stored); "update": in
     * a weight or the optimiser's state of it, while all gradients are finite, or in the weights that the step began
     * with. "unknown": the loss of the step is not finite, and its tensors were not examined
     * (nn_train_config.stop_on_nonfinite); the texts beside it are then "". */
    const char *pass;
    const char *layer;  /* the layer that computed it, for gradients in its backward pass; "loss" */
    const char *format; /* of the tensor */
    double maximum;     /* largest |x| before rounding, NaN excepted */
    /* Lines of a policy (docs/policies.md), joined by "; ", under which what overflowed would be finite: formats of
     * layers, after all other rules, or a loss scale. NULL if no format helps: the numbers before rounding are not
     * finite, or exceed binary32. */
    const char *remedy;
} nn_nonfinite;
/* Finds the first NaN or Inf of the step so far: after nn_forward in its outputs, after nn_backward in its gradients
 * too, after nn_update in all of it, even if a dynamic loss scale skipped the update; between two steps in the last
 * one, before the first in the weights. *found NULL: all is finite. It examines the counts that every write leaves,
 * some hundred numbers, and waits for a device. Gradients that are not finite in a skipped step are how a dynamic loss
 * scale finds its value (nn_loss_scale_of: in_a_row). */
FLEXLAB_API tensor_status nn_find_nonfinite(const nn_nonfinite **found, nn_graph *g);
/* Building blocks, which may change: they save such a result as a line of text, for the notes of a checkpoint, and
 * restore it for a network of the same layers that has made `steps` steps. TENSOR_E_ARGUMENT if the text takes more
 * than size - 1 bytes (150 suffice); TENSOR_E_DATA, which names `file`, for a text that no such network can have. */
FLEXLAB_API tensor_status nn_nonfinite_save(char *text, size_t size, const nn_graph *g, const nn_nonfinite *found);
FLEXLAB_API tensor_status nn_nonfinite_restore(nn_nonfinite *found, nn_graph *g, int64_t steps, const char *text,
                                               const char *file);

/* --- telemetry ---------------------------------------------------------------------------------------------------- */

/* Telemetry describes every tensor of a training step during training, in any format, and what other formats would have
 * done to it; docs/output.md explains each figure. The library owns the structs that it passes in this section; they
 * are valid until the next call with the same telemetry. */
typedef struct nn_telemetry_shadow {
    const char *name; /* as given: "fp16", "flex16+5:ngraph" */
    int32_t e;
    double error;               /* NAN: none */
    int64_t saturated, flushed; /* of this step */
    int64_t saturated_writes, e_moves;
} nn_telemetry_shadow;
typedef struct nn_telemetry_row {
    int64_t step; /* from 1 */
    const char *tensor, *role, *format;
    const tensor_description *elements; /* of this step; NULL: not examined */
    double update_ratio;                /* NAN: no weight, or no such number */
    int64_t update_moved;               /* -1: no weight, or not known */
    /* Since the record before, including this step. */
    int64_t steps, writes;
    double maximum; /* largest |x| before rounding */
    int64_t saturated, flushed, nonfinite, saturated_writes, clamped_low, clamped_high, e_moves;
    int32_t e, e_least, e_largest; /* e: of this step */
    int32_t shadow_count;
    const nn_telemetry_shadow *shadows;
    /* Elements of this step's write that were computed again without rounding (docs/output.md), 0: none; how many of
     * them are not finite although the exact result is; for the others, the root mean square of (stored - exact) and of
     * exact, NAN without any. */
    int64_t sampled, sampled_infinite;
    double sampled_error, sampled_size;
} nn_telemetry_row;

typedef struct nn_telemetry_config {
    const char *path;    /* JSON Lines; NULL: none */
    const char *csv;     /* the same records as a table, in another file; NULL: none */
    const char *pattern; /* names of tensors: '*', '?', several separated by commas; NULL: all tensors */
    const char *shadows; /* formats separated by commas, each with :PREDICTOR or its default; NULL: none */
    int64_t every;       /* steps between records; 0: 10 */
    /* Called with every record, in the order of steps; may be NULL. When, on a device: nn_telemetry_await. */
    void (*row)(void *context, const nn_telemetry_row *row);
    void *context;
    bool watched; /* the caller watches the network: its function calls nn_telemetry_watch with each tensor */
} nn_telemetry_config;
typedef struct nn_telemetry nn_telemetry;
/* Begins telemetry of a compiled network, between two steps. It sets the network's nn_watch, in steps with records,
 * unless `watched`; a network may have several telemetries if all of them are `watched`. NULL on failure: a pattern
 * that matches no tensor, an unknown format or predictor, a file that cannot be written, or another telemetry of the
 * network if not both are `watched`; the network is then unchanged. Files replace regular files only, and are called
 * PATH.part until nn_telemetry_finish; no other telemetry or trace may write there meanwhile (TENSOR_E_ARGUMENT, in any
 * process, if the file system supports locks).
 * Of a network on several ranks all make the same calls, with the same config but for the files and `row`, which are
 * those of rank 0: it alone gets the records, of all ranks. */
FLEXLAB_API nn_telemetry *nn_telemetry_new(nn_graph *g, const nn_telemetry_config *config);
/* An nn_watch_fn whose context is the telemetry. On a device it copies the elements of the tensor to the host. */
FLEXLAB_API void nn_telemetry_watch(const nn_tensor_info *info, void *telemetry);
/* Call it after every step, also after one whose update was skipped: steps 1, 1 + every, 1 + 2 every, ..., counted from
 * nn_steps at the start of the telemetry, have records. TENSOR_E_ARGUMENT after nn_telemetry_finish. */
FLEXLAB_API tensor_status nn_telemetry_step(nn_telemetry *t);
/* Waits until the records of all steps so far are written. On a device nn_telemetry_step does not wait: the device
 * examines tensors itself, in memory that the telemetry takes there (32 MiB for tensors of up to 2^28 elements, and
 * doubles for the weights), and the records of a step are written, and `row` is called with them, up to four steps
 * later: by nn_telemetry_step, at the latest by this function, nn_telemetry_nonfinite or nn_telemetry_finish. A second
 * forward pass of a step and nn_telemetry_want may write some, too. A failure is returned once, by the function that
 * writes the records or else the next one that returns a status; of steps whose tasks it stopped there are none. On a
 * processor, on ranks, in `watched` telemetry, until a step has made an update, and in steps with records if a shadow
 * has a predictor of the program (autoflex_add), nn_telemetry_step writes all records itself, and waits for a device.
 */
FLEXLAB_API tensor_status nn_telemetry_await(nn_telemetry *t);
/* Requests records of the next step, whatever its number; call it between two steps, before the last one. If a step is
 * under way, the records of tensors already written have no figures of elements, and update_ratio is NAN if the
 * gradient was among them. */
FLEXLAB_API void nn_telemetry_want(nn_telemetry *t);
/* The first NaN or Inf, whatever the pattern, and the writes before it; NULL: none so far. Gradients of steps that a
 * dynamic loss scale skipped do not count, unless NN_STARVED consecutive steps were skipped; everything else in such
 * steps counts. Waits as nn_telemetry_await. */
FLEXLAB_API const nn_nonfinite *nn_telemetry_nonfinite(const nn_telemetry *t);
/* Writes the records of everything after the last ones, without figures of elements, and ends: the files get their
 * names. */
FLEXLAB_API tensor_status nn_telemetry_finish(nn_telemetry *t);
/* Frees the telemetry, before the graph. Files that were not finished are removed, and `row` is not called with records
 * of a device that are still to be written. NULL is allowed. */
FLEXLAB_API void nn_telemetry_free(nn_telemetry *t);

#ifdef __cplusplus
}
#endif
#endif
