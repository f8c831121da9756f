/* nn_step.h - a training step and its parts: passes, the loss and its scale, the optimiser. What these keep between
 * steps stands in nn_graph.h. */
#ifndef FL_NN_STEP_H
#define FL_NN_STEP_H

#include "core/values/slot_copies.h"
#include "nn/graph/nn_graph.h"

/* nn_passes.c: positions of a step one after the other. Before the graph is compiled they are a dry run of it. */
/* images NULL: those of g->bytes, or the tokens of g->tokens. training false: evaluation. */
tensor_status fl_forward(nn_graph *g, const float *images, bool training);
/* The same in training, then loss, predictions and the gradient of the logits. */
tensor_status fl_forward_to_loss(nn_graph *g, const float *images);
tensor_status fl_backward(nn_graph *g);
/* The first rows of the given gradient, in whatever format, become that of the output, in the place of a loss. */
tensor_status fl_begin_gradient(nn_graph *g, const tensor *gradient);
/* The gradients of all parameters in the formats that they are kept and taken in: before fl_update. */
tensor_status fl_take_gradients(const nn_graph *g);
tensor_status fl_update(nn_graph *g, float rate);
/* Around the calls of a position: they take the memory planned for it, and from the end on no longer do; those of a
 * training step are sampled. Every begin has its end, on failure too. */
void fl_begin_calls(const nn_graph *g, int position, bool training);
void fl_end_calls(const nn_graph *g, int position);
/* Asks by a dry run what memory each position takes. */
tensor_status fl_measure_step(nn_graph *g);

/* nn_ready.c */
/* The graph is compiled and nothing has failed; and its input is images. */
tensor_status fl_check_ready(const nn_graph *g);
tensor_status fl_check_images(const nn_graph *g);
/* The memory of the step is about to be used for something else: a forward pass is lost. Gradients of parameters have
 * memory of their own. */
void fl_lose_values(nn_graph *g);
/* All values of training are hidden: their memory is about to be used for something else. */
void fl_hide_values(nn_graph *g);

/* nn_batch.c */
enum fl_use { FL_USE_TRAINING, FL_USE_EVALUATION, FL_USE_PREDICTION };
/* Whether a batch suits the network and the use; `what` begins the message. *count: its images or sequences. */
tensor_status fl_batch_check(const nn_graph *g, const char *what, const nn_batch *b, enum fl_use use, int *count);
/* What a forward pass is given: images on the host, or NULL, where the passes find bytes or tokens; filled: memory that
 * fl_free releases after the pass, also on failure. */
struct fl_loaded {
    const float *images;
    void *filled;
};
/* After the check: the inputs, filled up to a whole batch; then, of a whole batch, labels or targets. */
tensor_status fl_batch_load(nn_graph *g, const char *what, const nn_batch *b, int count, struct fl_loaded *loaded);
tensor_status fl_batch_load_expected(nn_graph *g, const nn_batch *b);

/* nn_data.c: images by number. */
bool fl_data_belongs(const nn_data *data, const nn_graph *g);
tensor_status fl_data_check_indices(const nn_data *data, const char *what, const int64_t *indices, int count);
/* `count` indices, filled up with the first one: the graph has one size. Then their images and labels. */
tensor_status fl_data_put_indices(nn_graph *g, const int64_t *indices, int count);
tensor_status fl_data_gather(nn_graph *g, const nn_data *data, const tensor_augmentation *how);
/* In memory of the graph. */
const int32_t *fl_data_labels(nn_graph *g, const nn_data *data, const int64_t *indices, int count);

/* nn_nonfinite.c */
void fl_writes_clear(struct fl_writes *w);
/* A fl_written_fn whose context is the graph: in a dry run, part by part (g->writes.part). */
void fl_list_write(void *graph, const struct fl_slot *slot);
/* Before that and after it: what no operation of the dry run writes. */
tensor_status fl_list_input(nn_graph *g);
tensor_status fl_list_others(nn_graph *g);
/* A step begins, and these parts of it have been written; the state was set to that after some step. */
void fl_writes_begin(nn_graph *g);
void fl_writes_done(nn_graph *g, enum fl_part part);
void fl_writes_forget(nn_graph *g);
/* The first write of the last step that is not finite. */
struct fl_first {
    int write;      /* its number in the order of computation; -1: none */
    bool of_loss;   /* the loss is not finite, and nothing before it */
    bool of_before; /* a weight, written before the step */
    enum fl_part part;
};
/* slots: of a device, at this moment or before the update; NULL: of the host. waits: for the loss too. Who does not
 * wait for a device's is told of it only where a gradient is not finite, and sees it when it has arrived: gradients of
 * a loss that is not finite are not either, but for Huber's. */
tensor_status fl_find_first(const nn_graph *g, const struct fl_slot_copies *slots, bool waits, struct fl_first *first);
static inline bool fl_is_finite_step(const struct fl_first *first) {
    return first->write < 0 && !first->of_loss;
}
/* "input", "forward", "loss", "backward", "update". */
const char *fl_pass_name(const struct fl_first *first);
/* Whether that is more than how a dynamic loss scale finds its value: gradients of a step that it left out, of fewer
 * than NN_STARVED in a row. */
bool fl_counts(const nn_graph *g, const struct fl_first *first);
/* For checkpoints: numbers of such names, "unknown" too, and of tensors of nn_tensor_at, -1: none of that name. */
int fl_pass_number(const char *pass);
int fl_number_of(const nn_graph *g, const char *name);
/* Back from there, of a network after `steps` steps; TENSOR_E_DATA for what it cannot have. fits: had a remedy. */
struct fl_recalled {
    int64_t step, steps, pass, tensor, nonfinite, elements, fits;
};
tensor_status fl_recall_first(nn_graph *g, const char *file, const struct fl_recalled *kept, nn_nonfinite *found);
/* In full; its texts stay as long as the graph. */
tensor_status fl_tell_first(nn_graph *g, const struct fl_slot_copies *slots, const struct fl_first *first,
                            nn_nonfinite *found);

/* nn_losses.c */
enum { FL_MOST_NOTED = 4096 };
void fl_losses_free(nn_graph *g);
/* `status` of a read. What a device found in a call that fails its reads is taken with it, so that the next step begins
 * anew; losses that were noted since cannot be told from those of steps that were left out, and are dropped. */
tensor_status fl_taken(const nn_graph *g, tensor_status status);
/* Those that have not arrived. */
void fl_losses_drop(const nn_graph *g);

/* nn_optimiser.c */
/* What it keeps of a parameter: a velocity has the predictor of the weight, moments and roots follow their exact
 * maximum. */
struct fl_type fl_optimiser_type(const nn_graph *g, const struct fl_parameter_types *as);
tensor_status fl_optimiser_check(const nn_config *config, const nn_variant *variant);
/* After that check. */
void fl_optimiser_take(nn_graph *g, const nn_config *config);
/* The tensors that the optimiser keeps of a parameter, listed after its gradient; name: of the weight. Then those of
 * the whole network. */
tensor_status fl_optimiser_parameter(nn_graph *g, struct fl_parameter *p, const char *name);
tensor_status fl_optimiser_numbers_of_step(nn_graph *g);
void fl_optimiser_clear(struct fl_optimiser *o);
/* The tasks before the first parameter of an update, and those of one parameter. */
tensor_status fl_optimiser_begin(nn_graph *g);
tensor_status fl_optimise(const nn_graph *g, const struct fl_parameter *p);

/* nn_objective.c */
tensor_status fl_objective_check(const nn_config *config);
/* After that check. */
void fl_objective_take(nn_graph *g, const nn_config *config);
/* Rows and classes of the output, which must suit the loss. */
tensor_status fl_objective_output(nn_graph *g, const struct fl_output *last);
tensor_status fl_objective_numbers(nn_graph *g, const struct fl_output *last);
/* TENSOR_E_ARGUMENT names the first label that the loss does not take. */
tensor_status fl_objective_labels(const nn_graph *g, const char *what, const int32_t *labels, int64_t count);
/* The loss and the gradient of the output. */
tensor_status fl_objective_run(const nn_graph *g, tensor *dx, const tensor *x);
/* Whether there is a loss of evaluation, and predicted classes where they are asked for. */
tensor_status fl_objective_check_evaluation(const nn_graph *g, const int32_t *predicted);
/* Mean loss of an evaluation's rows on the host, and their predicted classes or NULL. */
tensor_status fl_objective_evaluate(const nn_graph *g, tensor *rows, const int32_t *labels, double *loss,
                                    int32_t *predicted);
tensor_status fl_objective_evaluate_targets(const nn_graph *g, const tensor *rows, const float *targets, double *loss);

/* nn_loss_scale.c */
tensor_status fl_loss_scale_check(const nn_config *config);
/* After that check. */
void fl_loss_scale_take(nn_graph *g, const nn_config *config);
/* The loss scale as in nn_config, with all options. */
void fl_loss_scale_text(const nn_graph *g, char text[FL_SCALE_TEXT]);
/* A line of policy by which gradients that overflowed come out smaller; false where there is none. */
bool fl_loss_scale_lower(const nn_graph *g, char *text, size_t room);
tensor_status fl_loss_scale_numbers(nn_graph *g);
void fl_loss_scale_clear(nn_graph *g);
/* Forward passes of `to` scale its loss with the scale of `from`, a network on the same device, until
 * `from` is NULL. Nothing is copied, so that neither fails and the scale of `to` itself stays what it is. */
void fl_loss_scale_borrow(nn_graph *to, const nn_graph *from);
/* The factor of the gradient of the loss in this step; NULL: 1. */
const tensor *fl_loss_scale_of(const nn_graph *g);
/* Whether the gradients of a backward pass make no update; next: the network behind g, through whose backward pass they
 * came, or NULL. Waits for a device, with a dynamic scale alone. */
tensor_status fl_loss_scale_judge(nn_graph *g, const nn_graph *next, bool *skip);
/* The slots as it saw them in the last step, before its update; NULL where it did not, or on the host. */
const struct fl_slot_copies *fl_loss_scale_slots(const nn_graph *g);
/* After the update, or where there was none: what the next step is scaled with. */
tensor_status fl_loss_scale_step(nn_graph *g, bool skipped);
/* Checks the part of a network's state that a dynamic scale adds to the tensors. */
tensor_status fl_loss_scale_check_state(const nn_graph *g, const nn_loss_scale *now);
tensor_status fl_loss_scale_put(nn_graph *g, const nn_loss_scale *now);

#endif
