/* nn_batch.c - checks whether a batch suits a network and a use of it, and brings it to the tensors that the passes
 * read. It checks everything before it writes: a device would detect an error only after later tasks are queued. */
#include "nn/step/nn_step.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include <stdio.h>
#include <string.h>

enum input { IMAGES, PIXELS, TOKENS, INDICES, INPUTS };
static const char *const input_names[INPUTS] = {"images", "pixels", "tokens", "indices"};

static const void *input_of(const nn_batch *b, enum input kind) {
    const void *const given[INPUTS] = {b->images, b->pixels, b->tokens, b->indices};
    return given[kind];
}

/* The kind of a batch that was checked. */
static enum input kind_of(const nn_batch *b) {
    return b->images ? IMAGES : b->pixels ? PIXELS : b->tokens ? TOKENS : INDICES;
}

/* --- checks of inputs --------------------------------------------------------------------------------------------- */

static tensor_status check_one_kind(const nn_graph *g, const char *what, const nn_batch *b) {
    const char *expected = g->tokens ? "tokens" : "images, pixels or indices";
    char given[64] = "";
    int count = 0;
    for (int kind = 0; kind < INPUTS; kind++)
        if (input_of(b, (enum input)kind)) {
            snprintf(given + strlen(given), sizeof given - strlen(given), "%s%s", count ? " and " : "",
                     input_names[kind]);
            count++;
        }
    if (!count)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: the batch has no inputs, expected %s", what, expected);
    if (count > 1)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: the batch has %s, expected one kind of inputs", what, given);
    return (kind_of(b) == TOKENS) == (g->tokens != NULL)
               ? TENSOR_OK
               : fl_fail(TENSOR_E_ARGUMENT, "%s: the batch has %s, but the input of the network is %s", what, given,
                         g->tokens ? "tokens" : "images");
}

/* Checks indices, and that the values of bytes are known. */
static tensor_status check_data(const nn_graph *g, const char *what, const nn_batch *b, enum fl_use use) {
    if (!b->data != !b->indices)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: the batch has %s, expected both or neither", what,
                       b->data ? "data and no indices" : "indices and no data (nn_data_new)");
    if (b->augmentation && (!b->indices || use > FL_USE_WHOLE_BATCH))
        return fl_fail(TENSOR_E_ARGUMENT, "%s: the batch has an augmentation, which is for training with indices",
                       what);
    if (b->data && !fl_data_belongs(b->data, g))
        return fl_fail(TENSOR_E_ARGUMENT, "%s: the data was made for another graph (nn_data_new)", what);
    return g->byte_values || kind_of(b) == IMAGES || kind_of(b) == TOKENS
               ? TENSOR_OK
               : fl_fail(TENSOR_E_ARGUMENT, "%s: images as bytes, but nn_set_pixel_values has not said what they mean",
                         what);
}

static tensor_status check_count(const nn_graph *g, const char *what, const nn_batch *b, enum fl_use use, int *count) {
    const char *samples = g->tokens ? "sequences" : "images";
    const int whole = use == FL_USE_WHOLE_BATCH ? fl_whole_batch(g) : g->batch;
    *count = b->count ? b->count : whole;
    if (use <= FL_USE_WHOLE_BATCH && *count != whole)
        return g->shards > 1 && use == FL_USE_TRAINING
                   ? fl_fail(TENSOR_E_ARGUMENT, "%s: %d %s, expected the %d of a shard (%d shards of a batch of %d)",
                             what, *count, samples, g->batch, g->shards, fl_whole_batch(g))
                   : fl_fail(TENSOR_E_ARGUMENT, "%s: %d %s, expected a whole batch of %d", what, *count, samples,
                             whole);
    return *count >= 1 && *count <= whole
               ? TENSOR_OK
               : fl_fail(TENSOR_E_ARGUMENT, "%s: %d %s, expected 1 ... %d", what, *count, samples, g->batch);
}

static tensor_status check_tokens(const nn_graph *g, const char *what, const int32_t *tokens, int sequences) {
    const int vocabulary = g->nodes[0].how.outputs;
    const int64_t count = sequences * (tensor_count(g->tokens) / g->batch);
    for (int64_t i = 0; i < count; i++)
        if (tokens[i] < 0 || tokens[i] >= vocabulary)
            return fl_fail(TENSOR_E_ARGUMENT, "%s: token %lld is %d, expected 0 to %d", what, (long long)i, tokens[i],
                           vocabulary - 1);
    return TENSOR_OK;
}

static tensor_status check_inputs(const nn_graph *g, const char *what, const nn_batch *b, enum fl_use use, int *count) {
    TRY(check_one_kind(g, what, b));
    TRY(check_data(g, what, b, use));
    TRY(check_count(g, what, b, use, count));
    if (b->tokens)
        return check_tokens(g, what, b->tokens, *count);
    return b->indices ? fl_data_check_indices(b->data, what, b->indices, *count) : TENSOR_OK;
}

/* --- checks of labels and targets --------------------------------------------------------------------------------- */

static tensor_status check_expected(const nn_graph *g, const char *what, const nn_batch *b, int count) {
    const char *loss = nn_loss_name_at((int)g->objective.kind);
    const bool takes_targets = g->objective.targets, takes_none = g->objective.kind == FL_LOSS_NONE;
    const char *takes = takes_none ? "neither labels nor targets" : takes_targets ? "targets" : "labels";
    if (b->labels && (takes_targets || takes_none))
        return fl_fail(TENSOR_E_ARGUMENT, "%s: the batch has labels, but loss %s takes %s", what, loss, takes);
    if (b->targets && !takes_targets)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: the batch has targets, but loss %s takes %s", what, loss, takes);
    if (b->labels && b->indices)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: the batch has labels and indices, whose labels come from its data",
                       what);
    if (takes_none || b->targets || (b->indices && !takes_targets))
        return TENSOR_OK;
    return b->labels ? fl_objective_labels(g, what, b->labels, count * fl_labels_each(g))
                     : fl_fail(TENSOR_E_ARGUMENT, "%s: the batch has no %s, which loss %s takes", what, takes, loss);
}

tensor_status fl_batch_check(const nn_graph *g, const char *what, const nn_batch *b, enum fl_use use, int *count) {
    TRY(fl_check_ready(g));
    if (!b)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: the batch is NULL", what);
    TRY(check_inputs(g, what, b, use, count));
    return use == FL_USE_PREDICTION ? TENSOR_OK : check_expected(g, what, b, *count);
}

/* --- loading ------------------------------------------------------------------------------------------------------ */

/* A batch filled up with repetitions of its first image or sequence: the graph has one size. NULL: no memory. */
static void *fill(const nn_graph *g, const nn_batch *b, int count) {
    const void *const samples = input_of(b, kind_of(b));
    const size_t element = kind_of(b) == IMAGES   ? sizeof(float)
                           : kind_of(b) == TOKENS ? sizeof(int32_t)
                                                  : 1,
                 sample = (size_t)fl_shape_count(&fl_output_of(g, 0)->shape) / (size_t)g->batch * element;
    char *full = fl_alloc((size_t)g->batch * sample);
    if (!full)
        return NULL;
    memcpy(full, samples, (size_t)count * sample);
    for (int i = count; i < g->batch; i++)
        memcpy(full + (size_t)i * sample, samples, sample);
    return full;
}

static tensor_status load_samples(const nn_graph *g, const nn_batch *b, const void *samples) {
    switch (kind_of(b)) {
    case PIXELS:
        return tensor_load_u8(g->bytes, samples, tensor_count(g->bytes));
    case TOKENS:
        return tensor_load_i32(g->tokens, samples, tensor_count(g->tokens));
    default: /* images are loaded in the pass */
        return TENSOR_OK;
    }
}

tensor_status fl_batch_load(nn_graph *g, const char *what, const nn_batch *b, int count, struct fl_loaded *loaded) {
    *loaded = (struct fl_loaded){NULL, NULL};
    if (b->indices) {
        TRY(fl_data_put_indices(g, b->indices, count));
        fl_lose_values(g);
        return fl_data_gather(g, b->data, b->augmentation);
    }
    if (count < g->batch && !(loaded->filled = fill(g, b, count)))
        return fl_fail(TENSOR_E_MEMORY, "%s: no memory for a batch of %d %s", what, g->batch,
                       g->tokens ? "sequences" : "images");
    fl_lose_values(g);
    const void *samples = loaded->filled ? loaded->filled : input_of(b, kind_of(b));
    loaded->images = kind_of(b) == IMAGES ? samples : NULL;
    return load_samples(g, b, samples);
}

tensor_status fl_batch_load_expected(nn_graph *g, const nn_batch *b) {
    if (b->targets)
        return tensor_load_f32(g->objective.targets, b->targets, tensor_count(g->objective.targets));
    return b->labels ? tensor_load_i32(g->labels, b->labels, g->rows) : TENSOR_OK;
}
