/* nn_observation.h - looking at a network while it trains: the tensors of a step, the first NaN or Inf, telemetry in
 * files.
 * A part of nn.h, whose conventions hold. */
#ifndef FLEXLAB_NN_OBSERVATION_H
#define FLEXLAB_NN_OBSERVATION_H

#include "flexlab/api.h"
#include "flexlab/nn_network.h"
#include "flexlab/tensor_statistics.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Every tensor of the training step, for traces and statistics: weights, activations, gradients, momentum. Exponents
 * and statistics are those of the last write. Elements of activations and gradients are there only from the operation
 * that writes them to the last that reads them: afterwards other tensors have their memory, and reading them is
 * TENSOR_E_ARGUMENT. nn_watch shows them in time. */
typedef struct nn_tensor_info {
    const char *name;
    /* "weight", "activation", "gradient", "weight gradient", "momentum"; of other optimisers "root", "direction" */
    const char *role;
    tensor *t;
} nn_tensor_info;
/* watch is called, on the thread that runs the step, as soon as the operation that writes a tensor of the step was
 * submitted, while its values are there: each tensor of nn_tensor_at once a step, node
 * by node in the order of the passes, what a node writes in no order. It may
 * read tensors, not write them. NULL: nobody watches. */
typedef void (*nn_watch_fn)(const nn_tensor_info *info, void *context);
FLEXLAB_API tensor_status nn_watch(nn_graph *g, nn_watch_fn watch, void *context);
/* How many there are, and the i-th of them: {NULL} out of range. */
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
/* The write that is the first of its step, in the order of computation, to hold a NaN or Inf, or under a shared
 * exponent, which has neither, to be the rounding of one. The library's own, seen by pointer; its texts stay as long as
 * the network. */
typedef struct nn_nonfinite {
    int64_t step;                /* from 1; of pass "update" that after which the weights are not finite */
    const char *tensor, *role;   /* as nn_tensor_at has them; "loss", "loss" */
    int64_t nonfinite, elements; /* NaN and Inf; all */
    const nn_seen_write *before; /* of telemetry alone: the writes before it, the last one last */
    int64_t before_count;
    /* "input": what was given holds one, or the format does not hold it; "forward": an output, all before it being
     * finite; "loss": the loss, all outputs being finite; "backward": a gradient, all outputs and the loss being finite
     * (of a scaled loss, as they are stored); "update": a weight, or what the optimiser keeps of it, all gradients
     * being finite, or the weights that the step began with. "unknown": the loss of the step is not finite, and its
     * tensors were not looked at (nn_train_config.stop_on_nonfinite); the texts beside it are "" then. */
    const char *pass;
    const char *layer;  /* that computed it, of gradients in its backward pass; "loss" */
    const char *format; /* of the tensor */
    double maximum;     /* largest |x| before rounding, but for NaN */
    /* Lines of a policy (docs/policies.md), with "; " between them, under which what overflowed would be finite:
     * formats of layers, behind all other rules, or a loss scale. NULL where no format helps: the numbers before
     * rounding are not finite, or beyond binary32. */
    const char *remedy;
} nn_nonfinite;
/* Of the step as far as it is: after nn_forward its outputs, after nn_backward its gradients too, after nn_update all
 * of it, be it that a dynamic loss scale left the update out; between two steps that of the last one, before the first
 * that of the weights. *found NULL: all is finite. Looks at the counts that every write leaves, some hundred numbers;
 * waits for a device. Gradients that are not finite in a step that was left out are how a dynamic loss scale finds its
 * value (nn_loss_scale_of: in_a_row). */
FLEXLAB_API tensor_status nn_find_nonfinite(const nn_nonfinite **found, nn_graph *g);
/* Building blocks, which may change: the same as a line of text, for the notes of a checkpoint, and back, of a network
 * of the same layers that has made `steps` steps. TENSOR_E_ARGUMENT where the text takes more than size - 1 bytes (150
 * suffice); TENSOR_E_DATA, which names `file`, for a text that no such network can have. */
FLEXLAB_API tensor_status nn_nonfinite_save(char *text, size_t size, const nn_graph *g, const nn_nonfinite *found);
FLEXLAB_API tensor_status nn_nonfinite_restore(nn_nonfinite *found, nn_graph *g, int64_t steps, const char *text,
                                               const char *file);

/* --- telemetry ---------------------------------------------------------------------------------------------------- */

/* What every tensor of a training step looks like on the way, in any format, and what other formats would have done to
 * it: docs/output.md says what each figure means. Structs of this section that the library gives are its own, seen
 * by pointer until the next call with the same telemetry. */
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
    const tensor_description *elements; /* of this step; NULL: not looked at */
    double update_ratio;                /* NAN: no weight, or no such number */
    int64_t update_moved;               /* -1: no weight, or not known */
    /* Since the row before, this step included. */
    int64_t steps, writes;
    double maximum; /* largest |x| before rounding */
    int64_t saturated, flushed, nonfinite, saturated_writes, clamped_low, clamped_high, e_moves;
    int32_t e, e_least, e_largest; /* e: of this step */
    int32_t shadow_count;
    const nn_telemetry_shadow *shadows;
    /* Elements of this step's write that were computed again without rounding (docs/output.md), 0: none; how many of
     * them are not finite in place of a finite result; of the others, root mean square of (stored - exact) and of
     * exact, NAN without any. */
    int64_t sampled, sampled_infinite;
    double sampled_error, sampled_size;
} nn_telemetry_row;

typedef struct nn_telemetry_config {
    const char *path;    /* JSON Lines; NULL: none */
    const char *csv;     /* the same rows as a table, in another file; NULL: none */
    const char *pattern; /* of names: '*', '?', several with commas between; NULL: all tensors */
    const char *shadows; /* formats, each with :PREDICTOR or its own, commas between; NULL: none */
    int64_t every;       /* steps between rows; 0: 10 */
    void (*row)(void *context, const nn_telemetry_row *row); /* every row; may be NULL */
    void *context;
    bool watched; /* the caller watches the network: its function calls nn_telemetry_watch with each tensor */
} nn_telemetry_config;
typedef struct nn_telemetry nn_telemetry;
/* Of a compiled network, between two steps; takes its nn_watch, in steps with rows, unless `watched`. There may be
 * several of one network where all of them are `watched`. A device is waited for after every step. NULL on failure: a
 * pattern that matches no tensor, an unknown format or predictor, a file that cannot be written, another telemetry of
 * the network where not both are `watched`; the network is then as it was. Files replace regular files alone, and are
 * PATH.part until nn_telemetry_finish, and no other telemetry or trace may write there meanwhile (TENSOR_E_ARGUMENT, in
 * any process, where the file system knows locks). */
FLEXLAB_API nn_telemetry *nn_telemetry_new(nn_graph *g, const nn_telemetry_config *config);
/* An nn_watch_fn, context being the telemetry. */
FLEXLAB_API void nn_telemetry_watch(const nn_tensor_info *info, void *telemetry);
/* After every step, also one whose update was left out: writes the rows of steps 1, 1 + every, 1 + 2 every, ...,
 * counted on from nn_steps where the telemetry began. TENSOR_E_ARGUMENT after nn_telemetry_finish. */
FLEXLAB_API tensor_status nn_telemetry_step(nn_telemetry *t);
/* The next step has rows, whatever its number: between two steps, before the last one. Of a step under way the row of
 * what was written before is without figures of elements, and update_ratio is NAN where the gradient was. */
FLEXLAB_API void nn_telemetry_want(nn_telemetry *t);
/* The first NaN or Inf, whatever the pattern, and the writes before it; NULL: none so far. Gradients of steps that a
 * dynamic loss scale left out do not count, unless NN_STARVED of these came in a row; all else counts in them too. */
FLEXLAB_API const nn_nonfinite *nn_telemetry_nonfinite(const nn_telemetry *t);
/* Rows of what came after the last ones, without figures of elements, and the end: the files get their names. */
FLEXLAB_API tensor_status nn_telemetry_finish(nn_telemetry *t);
/* Before the graph. Files that were not finished are removed. NULL is allowed. */
FLEXLAB_API void nn_telemetry_free(nn_telemetry *t);

#ifdef __cplusplus
}
#endif
#endif
