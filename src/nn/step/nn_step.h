/* nn_step.h - a training step and its parts: passes, the loss and its scale, the optimiser. nn_graph.h has their state
 * between steps. */
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
/* Copies the first rows of the given gradient, in any format, to that of the output, in place of a loss. */
tensor_status fl_begin_gradient(nn_graph *g, const tensor *gradient);
tensor_status fl_update(nn_graph *g, float rate);
/* Called around the tasks of a position, which take the memory planned for it; those of a training step are sampled.
 * Every begin needs its end, on failure too. */
void fl_begin_calls(const nn_graph *g, int position, bool training);
void fl_end_calls(const nn_graph *g, int position);
/* Measures the memory of each position by a dry run. */
tensor_status fl_measure_step(nn_graph *g);

/* Adds the gradients of all shards after the last pass of a step. */
tensor_status fl_reduce_passes(nn_graph *g);

/* nn_reduce.c: within that. The gradients are added parameter by parameter: under a shared exponent the exact sum,
 * rounded once by a write as any other; in float formats the tree in binary32, rounded once (of several ranks,
 * nn_ranks.h does so). Then the moments of normalisations are averaged. */
tensor_status fl_reduce(nn_graph *g);

/* nn_step.c */
/* Forward and backward of a whole batch, shard by shard; `what` begins messages. */
tensor_status fl_run_passes(nn_graph *g, const char *what, const nn_batch *batch);
/* Backward of the pass whose gradient of the output is written. After that of the last shard, the gradients of all are
 * added. */
tensor_status fl_finish_pass(nn_graph *g);

/* nn_ready.c */
/* Checks that the graph is compiled and nothing has failed; the second also that its input is images. */
tensor_status fl_check_ready(const nn_graph *g);
tensor_status fl_check_images(const nn_graph *g);
/* Call it before the memory of the step is used for something else: a forward pass is lost. Gradients of parameters
 * have memory of their own. */
void fl_lose_values(nn_graph *g);
/* Hides all values of training, before their memory is used for something else. */
void fl_hide_values(nn_graph *g);

/* nn_batch.c */
enum fl_use { FL_USE_TRAINING, FL_USE_WHOLE_BATCH /* of all shards */, FL_USE_EVALUATION, FL_USE_PREDICTION };
/* Whether a batch suits the network and the use; `what` begins the message. *count: its images or sequences. */
tensor_status fl_batch_check(const nn_graph *g, const char *what, const nn_batch *b, enum fl_use use, int *count);
/* The input of a forward pass: images on the host, or NULL if the passes read bytes or tokens; filled: memory that
 * fl_free releases after the pass, also on failure. */
struct fl_loaded {
    const float *images;
    void *filled;
};
/* After the check: loads the inputs, filled up to a whole batch; the second loads labels or targets of a whole batch.
 */
tensor_status fl_batch_load(nn_graph *g, const char *what, const nn_batch *b, int count, struct fl_loaded *loaded);
tensor_status fl_batch_load_expected(nn_graph *g, const nn_batch *b);

/* nn_data.c: images by number. */
bool fl_data_belongs(const nn_data *data, const nn_graph *g);
tensor_status fl_data_check_indices(const nn_data *data, const char *what, const int64_t *indices, int count);
/* Loads `count` indices, filled up with the first one, because the graph has one size; then gathers their images and
 * labels. */
tensor_status fl_data_put_indices(nn_graph *g, const int64_t *indices, int count);
tensor_status fl_data_gather(nn_graph *g, const nn_data *data, const tensor_augmentation *how);
/* The labels of these indices, in memory of the graph. */
const int32_t *fl_data_labels(nn_graph *g, const nn_data *data, const int64_t *indices, int count);

/* nn_nonfinite.c */
void fl_writes_clear(struct fl_writes *w);
/* A fl_written_fn whose context is the graph: in a dry run, part by part (g->writes.part). */
void fl_list_write(void *graph, const struct fl_slot *slot);
/* Called at the beginning of the dry run of each shard, and after all: list tensors that no operation of it writes. */
tensor_status fl_list_input(nn_graph *g);
tensor_status fl_list_others(nn_graph *g);
/* Note that a step begins, that parts of it were written, and that the state was set to that after some step. */
void fl_writes_begin(nn_graph *g);
void fl_writes_done(nn_graph *g, enum fl_part part);
/* The update was submitted to a device, which decides whether it is made; the second waits and asks. The third takes
 * the answer, of a network that has submitted that many updates. */
void fl_writes_open(nn_graph *g);
tensor_status fl_writes_know(nn_graph *g);
void fl_writes_decided(struct fl_writes *w, uint64_t steps, double skipped_in_a_row);
void fl_writes_forget(nn_graph *g);
/* The first write of the last step that is not finite. */
struct fl_first {
    int write;      /* its number in the order of computation; -1: none */
    bool of_loss;   /* the loss is not finite, and nothing before it */
    bool of_before; /* a weight, written before the step */
    enum fl_part part;
};
/* slots: of a device, at this moment; NULL: of the host. Reads the loss, which waits for a device. */
tensor_status fl_find_first(nn_graph *g, const struct fl_slot_copies *slots, struct fl_first *first);
static inline bool fl_is_finite_step(const struct fl_first *first) {
    return first->write < 0 && !first->of_loss;
}
/* "input", "forward", "loss", "backward", "update". */
const char *fl_pass_name(const struct fl_first *first);
/* Whether the finding counts: false for gradients of a step that a dynamic loss scale skipped, unless NN_STARVED
 * consecutive steps were skipped. */
bool fl_counts(const struct fl_first *first, double skipped_in_a_row);
/* For checkpoints: numbers of such names, including "unknown", and of tensors of nn_tensor_at; -1: no such name. */
int fl_pass_number(const char *pass);
int fl_number_of(const nn_graph *g, const char *name);
/* Restores a finding of a network after `steps` steps; TENSOR_E_DATA if the network cannot have it. fits: it had a
 * remedy. */
struct fl_recalled {
    int64_t step, steps, pass, tensor, nonfinite, elements, fits;
};
tensor_status fl_recall_first(nn_graph *g, const char *file, const struct fl_recalled *kept, nn_nonfinite *found);
/* Describes the finding in full; its texts last as long as the graph. */
tensor_status fl_tell_first(nn_graph *g, const struct fl_slot_copies *slots, const struct fl_first *first,
                            nn_nonfinite *found);
/* The same by the statistics of the write in a step, which may not be the last. */
tensor_status fl_tell_write(nn_graph *g, const struct fl_first *first, const tensor_stats *write, int64_t step,
                            nn_nonfinite *found);

/* nn_losses.c */
/* The part of a shard in the loss, and its correct predictions. Waits for a device. */
tensor_status fl_shard_loss(const nn_graph *g, int shard, double *loss, int *correct);
enum { FL_MOST_NOTED = 4096 };
void fl_losses_free(nn_graph *g);
/* Takes the status of a read. If the read failed, waits for the device, which clears the failure of a task, and drops
 * the noted losses, which may be of steps that did not run. Returns the status of the wait if that fails, otherwise
 * `status`. */
tensor_status fl_taken(const nn_graph *g, tensor_status status);
/* Drops the losses that have not arrived. */
void fl_losses_drop(const nn_graph *g);

/* nn_optimiser.c */
/* The type of the optimiser's state of a parameter: a velocity has the predictor of the weight, moments and roots
 * follow their exact maximum. */
struct fl_type fl_optimiser_type(const nn_graph *g, const struct fl_parameter_types *as);
tensor_status fl_optimiser_check(const nn_config *config, const nn_variant *variant);
/* After that check. */
void fl_optimiser_take(nn_graph *g, const nn_config *config);
/* Makes the optimiser's tensors of a parameter, listed after its gradient; name: of the weight. Then those of the whole
 * network. */
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
/* TENSOR_E_ARGUMENT names the first label that the loss does not accept. */
tensor_status fl_objective_labels(const nn_graph *g, const char *what, const int32_t *labels, int64_t count);
/* The loss and the gradient of the output. */
tensor_status fl_objective_run(const nn_graph *g, tensor *dx, const tensor *x);
/* Checks that the objective has a loss of evaluation, and predicted classes if they are requested. */
tensor_status fl_objective_check_evaluation(const nn_graph *g, const int32_t *predicted);
/* On a device: objective.mean, objective.right and predicted classes of a whole batch. */
tensor_status fl_objective_evaluate_there(const nn_graph *g);
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
/* A line of a policy that makes overflowing gradients smaller; false if there is none. */
bool fl_loss_scale_lower(const nn_graph *g, char *text, size_t room);
tensor_status fl_loss_scale_numbers(nn_graph *g);
void fl_loss_scale_clear(nn_graph *g);
/* Forward passes of `to` scale its loss with the scale of `from`, a network on the same device, until `from` is NULL.
 * Nothing is copied, so the call cannot fail, and the scale of `to` itself does not change. */
void fl_loss_scale_borrow(nn_graph *to, const nn_graph *from);
/* The factor of the gradient of the loss in this step; NULL: 1. */
const tensor *fl_loss_scale_of(const nn_graph *g);
/* Before fl_update; next: the network after g, through whose backward pass the gradients came, or NULL. */
tensor_status fl_loss_scale_look_through(const nn_graph *g, nn_graph *next);
/* Whether the update is skipped for the gradients of the backward pass. A device knows by itself and leaves the tasks
 * out up to fl_loss_scale_step; the host is told where it must not submit them: there, and where it shows tensors. */
tensor_status fl_loss_scale_judge(nn_graph *g, bool *skip);
/* Sets the scale of the next step, after the update or its omission. */
tensor_status fl_loss_scale_step(nn_graph *g);
/* The state after the last step; wait for a device. Of a scale that is not dynamic, the second alone has members. */
tensor_status fl_loss_scale_now(const nn_graph *g, nn_loss_scale *now);
tensor_status fl_loss_scale_state(const nn_graph *g, struct fl_scale_state *state);
/* The write that state->first is; -1: none. */
int fl_loss_scale_write(const nn_graph *g, const struct fl_scale_state *state);
/* That of the step whose loss nn_noted_loss gave last. */
const struct fl_scale_state *fl_noted_scale(const nn_graph *g);
/* The loss of the last step in as many parts as it has shards, noted in memory of the device, and what each counts; the
 * loss that follows from both. */
tensor_status fl_loss_parts_note(const nn_graph *g, double *to, double *shares);
double fl_loss_of_parts(const nn_graph *g, const double *loss, const double *shares);
/* Checks the part of a network's state that a dynamic scale adds to the tensors. */
tensor_status fl_loss_scale_check_state(const nn_graph *g, const nn_loss_scale *now);
tensor_status fl_loss_scale_put(nn_graph *g, const nn_loss_scale *now);

/* Parts of passes, for shards that go through a step together (nn_together.h): forward of the nodes from `first` to
 * before `end`; backward of those from `first` down to `last`; the loss in between. The sums of a normalisation precede
 * it: `entered` says that those of `first` are there. */
tensor_status fl_forward_part(nn_graph *g, const float *images, bool training, int first, int end);
tensor_status fl_pass_loss(nn_graph *g);
tensor_status fl_backward_part(nn_graph *g, int first, int last, bool entered);
tensor_status fl_forward_sums(nn_graph *g, int node);
tensor_status fl_backward_sums(nn_graph *g, int node);
/* The number of the step, where draws of the shard in place read it. */
tensor_status fl_load_step(const nn_graph *g);
/* What follows backward of the shard in place: after the last one the gradients of all are added. */
tensor_status fl_finish_shard(nn_graph *g);

#endif
