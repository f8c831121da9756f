/* nn_passes.c - the positions of a training step one after the other, and the forward positions of evaluation. What a
 * step computes stays on the graph's device.
 *
 * Before the tasks of a position, the values that it writes and the tasks get their memory; after it, observers see the
 * values written, and values used for the last time are hidden. While a graph is compiled, the same walk over tensors
 * without memory is a dry run, which measures the memory of tasks. */
#include "nn/step/nn_step.h"
#include "core/queue/sampled.h"
#include "core/values/tensor_state.h"
#include "nn/shards/nn_shards.h"
#include "nn/step/nn_ranks.h"

/* --- around a position -------------------------------------------------------------------------------------------- */

static bool is_dry_run(const nn_graph *g) {
    return !g->compiled;
}

/* The class of the thread around the operations of a position. */
static _Thread_local tensor_class class_of_caller;

void fl_begin_calls(const nn_graph *g, int position, bool training) {
    class_of_caller = tensor_result_class();
    if (g->class != TENSOR_EXACT)
        tensor_set_class(g->class);
    if (!is_dry_run(g))
        fl_set_call_memory(g->device, g->positions[position].calls);
    fl_sample_writes(training && !is_dry_run(g) ? g->sampling : NULL, position % FL_SAMPLED_TURNS);
}

void fl_end_calls(const nn_graph *g, int position) {
    tensor_set_class(class_of_caller);
    fl_sample_writes(NULL, 0);
    if (is_dry_run(g))
        fl_measured(g->device, g->positions[position].need);
    else
        fl_set_call_memory(g->device, NULL);
}

static void show(const nn_graph *g, int info) {
    if (g->watch && info >= 0)
        g->watch(&g->infos[info], g->watch_context);
}

static void begin_position(const nn_graph *g, int position) {
    for (int i = g->positions[position].begins; i >= 0; i = g->values[i].next_to_begin)
        fl_tensor_hide(g->values[i].t, false);
}

static void end_position(const nn_graph *g, int position) {
    for (int i = g->positions[position].begins; i >= 0; i = g->values[i].next_to_begin)
        show(g, g->values[i].info);
    for (int i = g->positions[position].ends; i >= 0; i = g->values[i].next_to_end)
        fl_tensor_hide(g->values[i].t, true);
}

/* Passes over the positions of a part that a device replays: values appear and are hidden as if they were run. */
static void pass_over(const nn_graph *g, int first, int last) {
    for (int position = first; position <= last; position++) {
        begin_position(g, position);
        end_position(g, position);
    }
}

/* Runs a part of the step, positions first to last, task by task or as recorded. Observers see each value once it is
 * computed. */
static tensor_status by_recording(nn_graph *g, struct fl_recording *r, int first, int last,
                                  tensor_status (*part)(nn_graph *g, int first, int last)) {
    if (g->watch || is_dry_run(g))
        return part(g, first, last);
    enum fl_record what;
    TRY(fl_recording_begin(g->device, r, &what));
    if (what == FL_RECORD_REPLAY)
        pass_over(g, first, last);
    return fl_recording_end(g->device, r, what, what == FL_RECORD_REPLAY ? TENSOR_OK : part(g, first, last));
}

/* --- forward ------------------------------------------------------------------------------------------------------ */

/* A load takes no memory, so that a dry run can skip it. */
static tensor_status load_images(const nn_graph *g, tensor *x, const float *images) {
    if (is_dry_run(g))
        return TENSOR_OK;
    if (!images)
        return tensor_load_pixels(x, g->bytes, g->byte_values);
    if (!g->pixels)
        return tensor_load_f32(x, images, tensor_count(x));
    TRY(tensor_load_f32(g->pixels, images, tensor_count(x)));
    return tensor_convert(x, g->pixels);
}

static tensor_status forward_node(const nn_graph *g, struct fl_node *node, const float *images, bool training) {
    const struct fl_pass *pass = training ? &node->train : &node->evaluate;
    if (!node->inputs) /* tokens are there already */
        return node->output[0].tokens ? TENSOR_OK : load_images(g, pass->y[0], images);
    if (training && node->together && is_dry_run(g))
        TRY(node->layer->sum_forward(node, pass));
    return node->layer->forward ? node->layer->forward(node, pass) : TENSOR_OK;
}

tensor_status fl_forward_part(nn_graph *g, const float *images, bool training, int first, int end) {
    for (int i = first; i < end; i++) {
        if (training)
            begin_position(g, i);
        fl_begin_calls(g, i, training);
        tensor_status status = forward_node(g, &g->nodes[i], images, training);
        fl_end_calls(g, i);
        if (status)
            return fl_node_failed(&g->nodes[i], status);
        if (training)
            end_position(g, i);
    }
    return TENSOR_OK;
}

tensor_status fl_forward(nn_graph *g, const float *images, bool training) {
    return fl_forward_part(g, images, training, 0, g->count);
}

/* Without a loss the position gets the caller's gradient, in fl_begin_gradient. */
tensor_status fl_pass_loss(nn_graph *g) {
    if (g->objective.kind == FL_LOSS_NONE) {
        if (is_dry_run(g))
            pass_over(g, g->count, g->count);
        return TENSOR_OK;
    }
    const struct fl_output *logits = fl_output_of(g, g->logits);
    tensor *x = g->values[logits->y].t, *dx = g->values[logits->dy].t;
    begin_position(g, g->count);
    fl_begin_calls(g, g->count, true);
    tensor_status status = fl_objective_run(g, dx, x);
    fl_end_calls(g, g->count);
    if (!status)
        end_position(g, g->count);
    return status;
}

static tensor_status forward_and_loss(nn_graph *g, int first, int last) {
    (void)first;
    (void)last;
    TRY(fl_forward(g, NULL, true));
    return fl_pass_loss(g);
}

/* Stores the number of the step where the recorded tasks that draw read it. */
tensor_status fl_load_step(const nn_graph *g) {
    const double step = (double)g->steps * g->shards + g->shard; /* a number of its own for each shard */
    return g->step ? tensor_load_f64(g->step, &step, 1) : TENSOR_OK;
}

tensor_status fl_forward_to_loss(nn_graph *g, const float *images) {
    TRY(fl_load_step(g));
    if (!images && !g->scaling.borrowed) /* a recording has the network's own scale */
        return by_recording(g, &g->forward, 0, g->count, forward_and_loss);
    TRY(fl_forward(g, images, true));
    return fl_pass_loss(g);
}

/* Stores the rows of the given gradient. They are no part of the state: their exponent depends only on them. */
static tensor_status keep_given(nn_graph *g, const struct fl_shape *shape, const tensor *gradient) {
    struct fl_objective *o = &g->objective;
    const struct fl_type type = {tensor_format_of(gradient), "current"};
    if (o->given && tensor_format_of(o->given) != type.format) {
        tensor_free(o->given);
        o->given = NULL;
    }
    if (!o->given)
        TRY(fl_new_tensor(g, &o->given, type, shape));
    return tensor_slice(o->given, gradient, 0, 0);
}

/* A write of dx as any other, whose history is dx's own. */
static tensor_status write_gradient(nn_graph *g, int value, const tensor *gradient) {
    tensor *dx = g->values[value].t;
    if (tensor_format_of(gradient) == tensor_format_of(dx))
        return tensor_slice(dx, gradient, 0, 0);
    TRY(keep_given(g, &g->values[value].shape, gradient));
    return tensor_rewrite(dx, g->objective.given);
}

tensor_status fl_begin_gradient(nn_graph *g, const tensor *gradient) {
    begin_position(g, g->count);
    TRY(write_gradient(g, fl_output_of(g, g->logits)->dy, gradient));
    end_position(g, g->count);
    return TENSOR_OK;
}

/* --- backward ----------------------------------------------------------------------------------------------------- */

static tensor_status add_gradients(tensor *sum, const tensor *a, const tensor *b, const tensor *gate) {
    return gate ? tensor_add_relu_grad(sum, a, b, gate) : tensor_add(sum, a, b);
}

static tensor_status convert_value(const nn_graph *g, int to, int from) {
    return to < 0 ? TENSOR_OK : tensor_rewrite(g->values[to].t, g->values[from].t);
}

/* Converts the operands of backward to other formats. */
static tensor_status convert_saved(const nn_graph *g, const struct fl_node *node) {
    for (int k = 0; k < node->inputs; k++)
        TRY(convert_value(g, node->input[k].saved, fl_output_of(g, node->input[k].x)->y));
    for (int k = 0; k < node->outputs; k++) {
        TRY(convert_value(g, node->output[k].saved, node->output[k].y));
        TRY(convert_value(g, node->output[k].operand, node->output[k].dy));
    }
    return TENSOR_OK;
}

static tensor_status enter_backward(const nn_graph *g, struct fl_node *node) {
    TRY(convert_saved(g, node));
    return node->together ? node->layer->sum_backward(node, &node->back) : TENSOR_OK;
}

static tensor_status backward_node(const nn_graph *g, struct fl_node *node, bool entered) {
    if (!entered)
        TRY(enter_backward(g, node));
    if (node->layer->backward)
        TRY(node->layer->backward(node, &node->back));
    for (int k = 0; k < node->inputs; k++) {
        const struct fl_input *input = &node->input[k];
        if (input->sum >= 0)
            TRY(add_gradients(g->values[input->sum].t, g->values[input->addend].t, g->values[input->dx].t,
                              input->gate >= 0 ? g->values[input->gate].t : NULL));
    }
    return TENSOR_OK;
}

tensor_status fl_forward_sums(nn_graph *g, int i) {
    struct fl_node *node = &g->nodes[i];
    fl_begin_calls(g, i, true);
    const tensor_status status = node->layer->sum_forward(node, &node->train);
    fl_end_calls(g, i);
    return status ? fl_node_failed(node, status) : TENSOR_OK;
}

tensor_status fl_backward_sums(nn_graph *g, int i) {
    const int position = 2 * g->count - i;
    begin_position(g, position);
    fl_begin_calls(g, position, true);
    const tensor_status status = enter_backward(g, &g->nodes[i]);
    fl_end_calls(g, position);
    return status ? fl_node_failed(&g->nodes[i], status) : TENSOR_OK;
}

tensor_status fl_backward_part(nn_graph *g, int first, int last, bool entered) {
    for (int i = first; i >= last; i--) {
        const bool is_entered = entered && i == first;
        struct fl_node *node = &g->nodes[i];
        const int position = 2 * g->count - i;
        if (!is_entered)
            begin_position(g, position);
        fl_begin_calls(g, position, true);
        tensor_status status = node->learns ? backward_node(g, node, is_entered) : TENSOR_OK;
        fl_end_calls(g, position);
        if (status)
            return fl_node_failed(node, status);
        for (int k = 0; k < node->parameters; k++)
            show(g, node->parameter[k].g_info);
        end_position(g, position);
        TRY(fl_ranks_written(g, i));
    }
    return TENSOR_OK;
}

static tensor_status backward(nn_graph *g, int first, int last) {
    return fl_backward_part(g, 2 * g->count - first, 2 * g->count - last, false);
}

tensor_status fl_backward(nn_graph *g) {
    for (int from = g->count - 1, end; from >= 0; from = end - 1) {
        struct fl_recording *recording = &g->backward;
        end = fl_ranks_piece(g, from, &recording);
        TRY(by_recording(g, recording, 2 * g->count - from, 2 * g->count - end, backward));
        TRY(fl_ranks_queued(g, end));
    }
    return TENSOR_OK;
}

/* --- several shards ----------------------------------------------------------------------------------------------- */

tensor_status fl_reduce_passes(nn_graph *g) {
    const int position = fl_positions(g) - 1;
    if (!g->of)
        return TENSOR_OK;
    if (g->ranks)
        TRY(fl_ranks_reduce(g));
    fl_begin_calls(g, position, true);
    const tensor_status status = fl_reduce(g);
    fl_end_calls(g, position);
    return status;
}

/* --- update ------------------------------------------------------------------------------------------------------- */

static tensor_status update_parameter(const nn_graph *g, const struct fl_parameter *p) {
    const int position = fl_positions(g) - 1;
    fl_begin_calls(g, position, true);
    tensor_status status = fl_optimise(g, p);
    if (!status)
        status = fl_refresh_weight(p);
    fl_end_calls(g, position);
    if (status)
        return status;
    for (int i = 2; i < p->infos; i++)
        show(g, p->info + i);
    show(g, p->info);
    return TENSOR_OK;
}

static tensor_status update_parameters(nn_graph *g) {
    const int position = fl_positions(g) - 1;
    fl_begin_calls(g, position, true);
    tensor_status begun = fl_optimiser_begin(g);
    fl_end_calls(g, position);
    if (begun)
        return begun;
    for (int i = 0; i < g->count; i++)
        for (int k = 0; k < g->nodes[i].parameters; k++) {
            tensor_status status = update_parameter(g, &g->nodes[i].parameter[k]);
            if (status)
                return fl_node_failed(&g->nodes[i], status);
        }
    return TENSOR_OK;
}

/* Converts the gradients of all parameters to the formats that are stored and that the update reads. */
static tensor_status take_gradients(const nn_graph *g) {
    const int position = fl_positions(g) - 1;
    fl_begin_calls(g, position, true);
    tensor_status status = TENSOR_OK;
    for (int i = 0; i < g->count && !status; i++)
        for (int k = 0; k < g->nodes[i].parameters && !status; k++)
            if ((status = fl_take_gradient(&g->nodes[i].parameter[k])))
                status = fl_node_failed(&g->nodes[i], status);
    fl_end_calls(g, position);
    return status;
}

/* An overflow of a gradient that is taken counts too. */
static tensor_status update(nn_graph *g, int first, int last) {
    (void)first;
    (void)last;
    bool skip;
    g->writes.part = FL_PART_TAKEN;
    TRY(take_gradients(g));
    g->writes.part = FL_PART_UPDATE;
    TRY(fl_loss_scale_judge(g, &skip));
    const tensor_status status = skip ? TENSOR_OK : update_parameters(g), ended = fl_loss_scale_step(g);
    return status ? status : ended;
}

tensor_status fl_update(nn_graph *g, float rate) {
    TRY(tensor_load_f32(g->rate, &rate, 1));
    return by_recording(g, &g->update, 0, -1, update);
}

/* --- dry run ------------------------------------------------------------------------------------------------------ */

static tensor_status dry_pass(nn_graph *g, void *context) {
    (void)context;
    TRY(fl_list_input(g));
    g->writes.part = FL_PART_FORWARD;
    TRY(fl_forward(g, NULL, true));
    g->writes.part = FL_PART_BACKWARD;
    TRY(fl_pass_loss(g));
    return backward(g, g->count + 1, 2 * g->count);
}

static tensor_status dry_run(nn_graph *g) {
    TRY(fl_each_shard(g, dry_pass, NULL));
    TRY(fl_reduce_passes(g));
    TRY(fl_update(g, 0));
    return fl_forward(g, NULL, false);
}

tensor_status fl_measure_step(nn_graph *g) {
    fl_measure_begin(g->device, fl_list_write, g);
    tensor_status status = dry_run(g);
    fl_measure_end(g->device);
    fl_hide_values(g);
    return status ? status : fl_list_others(g);
}
