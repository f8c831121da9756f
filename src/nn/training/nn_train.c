/* nn_train.c - the training loop: batches, schedule, evaluation after each epoch, totals. */
#include "nn/training/nn_training.h"
#include "nn/checkpoints/nn_state.h"
#include "nn/step/nn_step.h"
#include "nn/telemetry/nn_trace.h"
#include "core/base/fail.h"
#include "core/base/hash.h"
#include "core/base/memory.h"
#include "group/group.h"
#include "nn/step/nn_ranks.h"
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* --- beginning ---------------------------------------------------------------------------------------------------- */

/* Checks that the test set has no class that the training set lacks; it may lack the last classes. */
static tensor_status check_classes(const data_set *train, const data_set *test) {
    const int classes = data_classes(train);
    for (int64_t i = 0; data_classes(test) > classes && i < data_count(test); i++)
        if (data_label(test, i) >= classes)
            return fl_fail(TENSOR_E_DATA, "train: test %s %lld %s %d, training knows 0 to %d",
                           data_is_text(test) ? "token" : "image", (long long)i,
                           data_is_text(test) ? "is" : "has label", data_label(test, i), classes - 1);
    return TENSOR_OK;
}

enum { DEFAULT_CONTEXT = 128 };

/* Sets the length of a sequence if the sets are texts. */
static tensor_status take_context(struct run *run, const data_set *train, const data_set *test) {
    const int64_t context = run->config->context;
    const bool text = data_is_text(train);
    if (test && data_is_text(test) != text)
        return fl_fail(TENSOR_E_ARGUMENT, "train: one set is a text, the other has images");
    if (context < 0 || context > INT_MAX || (context && !text))
        return fl_fail(TENSOR_E_ARGUMENT, "train: context %lld, expected %s", (long long)context,
                       text ? "1 to 2147483647, or 0" : "0 of images");
    run->context = !text ? 0 : context ? (int)context : DEFAULT_CONTEXT;
    run->test_labels = !test ? 0 : text ? (data_count(test) - 1) / run->context * run->context : data_count(test);
    return TENSOR_OK;
}

static tensor_status check_sets(struct run *run, const data_set *train, const data_set *test) {
    TRY(take_context(run, train, test));
    if (data_channels(train) > 4)
        return fl_fail(TENSOR_E_SHAPE, "train: %d channels, expected at most 4", data_channels(train));
    if (!test)
        return TENSOR_OK;
    if (data_height(train) != data_height(test) || data_width(train) != data_width(test) ||
        data_channels(train) != data_channels(test))
        return fl_fail(TENSOR_E_SHAPE, "train: images %dx%dx%d, test images %dx%dx%d", data_height(train),
                       data_width(train), data_channels(train), data_height(test), data_width(test),
                       data_channels(test));
    return check_classes(train, test);
}

static tensor_status check_config(const nn_train_config *config) {
    if (config->epochs < 1)
        return fl_fail(TENSOR_E_ARGUMENT, "train: %d epochs, expected at least 1", config->epochs);
    if (!(config->rate >= 0 && config->rate <= 1e6))
        return fl_fail(TENSOR_E_ARGUMENT, "train: learning rate %g, expected 0 ... 1e6", config->rate);
    if (!(config->warmup_epochs >= 0 && config->warmup_epochs < config->epochs))
        return fl_fail(TENSOR_E_ARGUMENT, "train: %g warm-up epochs, expected 0 or more and fewer than %d",
                       config->warmup_epochs, config->epochs);
    if (config->max_steps < 0 || config->average_last < 0)
        return fl_fail(TENSOR_E_ARGUMENT, "train: max_steps %lld, average_last %d, expected 0 or more",
                       (long long)config->max_steps, config->average_last);
    if (config->report_every < 0 || config->report_every > FL_MOST_NOTED)
        return fl_fail(TENSOR_E_ARGUMENT, "train: report_every %lld, expected 0 to %d", (long long)config->report_every,
                       FL_MOST_NOTED);
    if (config->checkpoint_every < 0 || config->note_count < 0 || config->note_count > INT_MAX ||
        (config->note_count && !config->notes))
        return fl_fail(TENSOR_E_ARGUMENT, "train: checkpoint_every %lld, note_count %lld%s, expected 0 or more",
                       (long long)config->checkpoint_every, (long long)config->note_count,
                       config->notes ? "" : " at NULL");
    if (config->most_of_steps < 0)
        return fl_fail(TENSOR_E_ARGUMENT, "train: most_of_steps %lld, expected 0 or more",
                       (long long)config->most_of_steps);
    return fl_schedule_known(config->schedule) ? TENSOR_OK : TENSOR_E_ARGUMENT;
}

/* Sets the values of bytes by the training set, and refuses a constant channel, whose deviation is 0. */
static tensor_status set_pixel_values(struct run *run, const data_set *train) {
    float values[4 * 256];
    for (int c = 0; c < data_channels(train); c++)
        if (!(run->deviation[c] > 0))
            return fl_fail(TENSOR_E_ARGUMENT,
                           "train: deviation of channel %d is 0, expected more: all its pixels are the same", c);
    data_pixel_values(values, data_channels(train), run->mean, run->deviation);
    return nn_set_pixel_values(run->g, values);
}

/* Copies the sets to the device of the network once; if memory is lacking there, each batch is copied instead. */
static tensor_status bring_sets(struct run *run, const data_set *train, const data_set *test) {
    if (run->g->device == tensor_device_at(0) || run->context)
        return TENSOR_OK;
    run->train_there = nn_data_new(run->g, train);
    if (run->train_there && test)
        run->test_there = nn_data_new(run->g, test);
    const bool all = run->train_there && (run->test_there || !test);
    return all || tensor_error_status() == TENSOR_E_MEMORY ? TENSOR_OK : tensor_error_status();
}

/* Opens loaders of tokens. A batch is small, so each is copied to the device of the network. */
static tensor_status open_text_loaders(struct run *run, const data_set *train, const data_set *test) {
    data_loader_config how = {.batch = run->config->network.batch,
                              .seed = run->config->network.seed,
                              .shuffle = true,
                              .augment = run->config->augment,
                              .drop_last = true,
                              .context = run->context};
    if (!(run->train = data_loader_new(train, &how)))
        return tensor_error_status();
    how.shuffle = how.augment = how.drop_last = false;
    how.batch = run->g->batch; /* an evaluation takes as much memory as a shard */
    return !test || (run->test = data_loader_new(test, &how)) ? TENSOR_OK : tensor_error_status();
}

static tensor_status open_loaders(struct run *run, const data_set *train, const data_set *test) {
    if (run->context)
        return open_text_loaders(run, train, test);
    data_loader_config how = {.batch = run->config->network.batch,
                              .seed = run->config->network.seed,
                              .shuffle = true,
                              .augment = run->config->augment,
                              .drop_last = true};
    TRY(set_pixel_values(run, train));
    if (data_count(train) < how.batch)
        return fl_fail(TENSOR_E_SHAPE, "train: batches of %d, but only %lld images", how.batch,
                       (long long)data_count(train));
    TRY(bring_sets(run, train, test));
    how.indices_only = run->train_there != NULL;
    if (!(run->train = data_loader_new(train, &how)))
        return tensor_error_status();
    how.shuffle = how.augment = how.drop_last = false;
    how.batch = run->g->batch; /* an evaluation takes as much memory as a shard */
    how.indices_only = run->test_there != NULL;
    how.mean = how.indices_only ? NULL : run->mean;
    how.deviation = how.indices_only ? NULL : run->deviation;
    if (test && !(run->test = data_loader_new(test, &how)))
        return tensor_error_status();
    return TENSOR_OK;
}

/* Adds the layers for images, or for a text, whose length is passed as height. */
static nn_node add_layers(struct run *run, const data_set *train) {
    const nn_train_config *config = run->config;
    const int height = run->context ? run->context : data_height(train), classes = data_classes(train);
    if (!config->model && config->build)
        return config->build(run->g, height, data_width(train), data_channels(train), classes, config->build_context);
    return run->context ? nn_model_text(run->g, config->model, height, classes)
                        : nn_model(run->g, config->model, height, data_width(train), data_channels(train), classes);
}

/* Checks the text against a network of the caller. */
static tensor_status check_text_network(const struct run *run, const data_set *train) {
    const nn_graph *g = run->g;
    const struct fl_node *input = &g->nodes[0];
    if (!g->tokens || input->how.window != run->context || input->how.outputs < data_classes(train))
        return fl_fail(TENSOR_E_SHAPE,
                       "train: the network does not take sequences of %d tokens of a vocabulary of %d (nn_tokens)",
                       run->context, data_classes(train));
    return g->rows == (int64_t)g->batch * run->context
               ? TENSOR_OK
               : fl_fail(TENSOR_E_SHAPE,
                         "train: the network has %lld rows of logits a step, expected one for each of "
                         "%d x %d tokens",
                         (long long)g->rows, g->batch, run->context);
}

static tensor_status check_image_network(const struct run *run, const data_set *train) {
    const int height = data_height(train), width = data_width(train), channels = data_channels(train);
    TRY(fl_check_images(run->g));
    const struct fl_shape *input = &fl_output_of(run->g, 0)->shape;
    if (run->g->rows != run->g->batch)
        return fl_fail(TENSOR_E_SHAPE,
                       "train: the network has %lld rows of logits a step, expected one for each of %d "
                       "images",
                       (long long)run->g->rows, run->g->batch);
    if (input->dim[1] != height || input->dim[2] != width || input->dim[3] != channels)
        return fl_fail(TENSOR_E_SHAPE, "train: the network takes images of %lldx%lldx%lld, the data has %dx%dx%d",
                       (long long)input->dim[1], (long long)input->dim[2], (long long)input->dim[3], height, width,
                       channels);
    return TENSOR_OK;
}

static tensor_status build_network(struct run *run, const data_set *train) {
    run->g = nn_graph_new(&run->config->network);
    if (!run->g)
        return tensor_error_status();
    TRY(nn_graph_limit(run->g, run->config->most_of_steps));
    TRY(fl_training_compare(run));
    TRY(nn_compile(run->g, add_layers(run, train)));
    TRY(run->context ? check_text_network(run, train) : check_image_network(run, train));
    return run->g->classes >= data_classes(train)
               ? TENSOR_OK
               : fl_fail(TENSOR_E_SHAPE, "train: the network has %d classes, the data %d", run->g->classes,
                         data_classes(train));
}

static tensor_status begin_telemetry(struct run *run) {
    const nn_train_config *c = run->config;
    if (c->telemetry_every < 0)
        return fl_fail(TENSOR_E_ARGUMENT, "train: telemetry every %lld steps, expected 0 (none) or more",
                       (long long)c->telemetry_every);
    if (!c->telemetry_every)
        return TENSOR_OK;
    run->telemetry =
        nn_telemetry_new(run->g, &(nn_telemetry_config){.path = c->telemetry_path,
                                                        .csv = c->telemetry_csv,
                                                        .pattern = c->telemetry_pattern,
                                                        .shadows = c->telemetry_shadows,
                                                        .every = c->telemetry_every,
                                                        .row = run->events ? run->events->row : NULL,
                                                        .context = run->events ? run->events->context : NULL});
    if (!run->telemetry)
        return tensor_error_status();
    fl_training_hear_telemetry(run);
    return TENSOR_OK;
}

/* All ranks train the same network on the same data in the same way. */
static tensor_status agree(const struct run *run) {
    const nn_train_config *c = run->config;
    char text[600];
    if (nn_group_size(c->network.group) == 1)
        return TENSOR_OK;
    snprintf(
        text, sizeof text,
        "data-%016llx test-data-%016llx epochs-%d rate-%.17g schedule-%.40s warm-up-%.17g augment-%d most-steps-%lld "
        "average-%d report-every-%lld checkpoint-%d,%lld trace-%d,%lld telemetry-%lld resume-%d weights-%d stop-%d",
        (unsigned long long)data_hash(run->train_set, true),
        run->test_set ? (unsigned long long)data_hash(run->test_set, true) : 0, c->epochs, c->rate,
        c->schedule ? c->schedule : "", c->warmup_epochs, c->augment, (long long)c->max_steps, c->average_last,
        (long long)c->report_every, c->checkpoint != NULL, (long long)c->checkpoint_every, c->trace_path != NULL,
        (long long)c->trace_every, (long long)c->telemetry_every, c->resume != NULL, c->weights != NULL,
        c->stop_on_nonfinite);
    return fl_group_agree(c->network.group, "the training", text);
}

/* What can fail on one rank alone, before all compare what they do. */
static tensor_status prepare(struct run *run, const data_set *train, const data_set *test) {
    const nn_train_config *config = run->config;
    run->train_set = train;
    run->test_set = test;
    run->at.epoch = 1;
    TRY(check_config(config));
    TRY(fl_training_check_folder(run));
    TRY(check_sets(run, train, test));
    fl_training_know_data(run);
    if (!run->context)
        TRY(data_channel_moments(run->mean, run->deviation, train));
    TRY(build_network(run, train)); /* checks the batch before the loaders use it */
    if (config->weights && !config->resume)
        TRY(nn_weights_load(run->g, config->weights));
    return open_loaders(run, train, test);
}

static tensor_status set_up(struct run *run) {
    const nn_train_config *config = run->config;
    TRY(fl_trace_open(&run->trace, nn_group_rank(config->network.group) ? NULL : config->trace_path,
                      config->trace_every)); /* rank 0 writes */
    TRY(begin_telemetry(run));
    const bool host = run->g->device == tensor_device_at(0);
    TRY(nn_note_every(run->g, config->report_every ? (int)config->report_every : host ? 1 : 16));
    run->epoch_steps = data_loader_batches(run->train);
    run->all_steps = run->epoch_steps * config->epochs;
    run->last_step = config->max_steps && config->max_steps < run->all_steps ? config->max_steps : run->all_steps;
    run->warmup_steps = (int64_t)(config->warmup_epochs * (double)run->epoch_steps + 0.5);
    run->recent_size = config->average_last > 0 ? config->average_last : 1;
    if (run->recent_size > run->last_step)
        run->recent_size = run->last_step;
    if (!config->resume) /* otherwise the file has them, and may be shorter than its settings say */
        run->recent = fl_alloc_zero((size_t)run->recent_size * sizeof *run->recent);
    run->looked_size =
        2 * (config->report_every ? config->report_every : 16) + 2; /* most losses that have not arrived */
    run->looked = fl_alloc_zero((size_t)run->looked_size * sizeof *run->looked);
    if ((!run->recent && !config->resume) || !run->looked)
        return fl_fail(TENSOR_E_MEMORY, "train: no memory for %lld losses", (long long)run->recent_size);
    run->result->test_loss = run->result->test_accuracy = NAN;
    if (run->test_set && !(run->result->predicted = fl_alloc_zero((size_t)run->test_labels * sizeof(int32_t))))
        return fl_fail(TENSOR_E_MEMORY, "train: no memory for %lld predictions", (long long)run->test_labels);
    return config->resume ? fl_training_resume(run) : TENSOR_OK;
}

/* All ranks begin with the same weights, exponents and position. */
static tensor_status agree_on_state(const struct run *run) {
    char text[160];
    if (nn_group_size(run->config->network.group) == 1)
        return TENSOR_OK;
    const size_t bytes = nn_state_bytes(run->g);
    unsigned char *state = fl_alloc(bytes);
    TRY(fl_group_all(run->config->network.group, "the beginning",
                     state ? TENSOR_OK : fl_fail(TENSOR_E_MEMORY, "train: no memory for %zu bytes", bytes)));
    tensor_status status = nn_state_save(state, bytes, run->g);
    const uint64_t hash = status ? 0 : fl_hash(FL_HASH, state, bytes);
    fl_free(state);
    snprintf(text, sizeof text, "steps-%lld best-epoch-%d weights-and-exponents-%016llx", (long long)run->result->steps,
             run->best.epoch, (unsigned long long)hash);
    return status ? status : fl_group_agree(run->config->network.group, "where they begin", text);
}

static tensor_status begin(struct run *run, const data_set *train, const data_set *test) {
    nn_group *const group = run->config->network.group;
    fl_group_fresh(group);
    TRY(fl_group_await(group, "the beginning", prepare(run, train, test)));
    TRY(agree(run));
    TRY(fl_group_await(group, "the beginning", set_up(run)));
    run->updated = (int64_t)run->g->writes.updated;
    return agree_on_state(run);
}

static void end(struct run *run) {
    fl_trace_free(run->trace);
    nn_telemetry_free(run->telemetry);
    if (run->slots)
        fl_slot_copies_free(run->g->device, run->slots);
    nn_data_free(run->train_there);
    nn_data_free(run->test_there);
    data_loader_free(run->train);
    data_loader_free(run->test);
    nn_graph_free(run->g);
    fl_free(run->recent);
    fl_free(run->looked);
}

/* --- epochs ------------------------------------------------------------------------------------------------------- */

static tensor_status passes(struct run *run, const data_batch *batch, int epoch) {
    const tensor_augmentation how = {run->config->network.seed, (uint64_t)epoch - 1};
    const nn_batch there = {.indices = batch->indices,
                            .data = run->train_there,
                            .augmentation = run->config->augment ? &how : NULL},
                   here = {.pixels = batch->pixels,
                           .tokens = batch->tokens,
                           .labels = run->context ? batch->targets : batch->labels};
    return fl_run_passes(run->g, "forward", run->train_there ? &there : &here);
}

static float rate_of(const struct run *run, int64_t step) {
    return fl_schedule_rate(run->config->schedule, run->config->rate, step, run->all_steps, run->warmup_steps);
}

/* Begins a step, which a device may compute later. */
static tensor_status begin_step(struct run *run, int epoch) {
    data_batch batch;
    if (run->begun + 1 == run->last_step)
        nn_telemetry_want(run->telemetry);
    TRY(data_loader_next(&batch, run->train));
    TRY(passes(run, &batch, epoch));
    TRY(nn_update(run->g, rate_of(run, run->begun)));
    TRY(nn_note_loss(run->g)); /* a wait for it waits for the whole step */
    run->begun++;
    run->looked[run->begun % run->looked_size] = (struct fl_looked_step){NULL, false};
    TRY(fl_training_look(run));
    if (run->config->trace_path)
        TRY(fl_ranks_bring(run->g));
    return fl_trace_step(run->trace, run->g, run->begun);
}

/* Whether stop_on_nonfinite ends the training. */
static bool is_found(const struct run *run) {
    return run->config->stop_on_nonfinite && run->first_reported;
}

/* Reports a step whose loss is known. */
static void report_step(struct run *run, nn_epoch_report *report, double loss) {
    nn_train_result *result = run->result;
    const nn_train_events *events = run->events;
    const float rate = rate_of(run, result->steps);
    run->recent[result->steps % run->recent_size] = loss;
    result->steps++;
    result->images += run->config->network.batch;
    report->train_loss += loss;
    fl_training_see_loss(run, loss);
    const struct fl_scale_state *scaled = fl_noted_scale(run->g);
    const nn_step_report step = {.step = result->steps,
                                 .steps = run->last_step,
                                 .epoch = report->epoch,
                                 .loss = loss,
                                 .rate = rate,
                                 .seconds = result->seconds,
                                 .images = result->images,
                                 .loss_scale = scaled->used,
                                 .skipped_in_a_row = (int64_t)scaled->in_a_row,
                                 .nonfinite = run->looked[result->steps % run->looked_size].nonfinite};
    if (events && events->starved && step.skipped_in_a_row == NN_STARVED)
        events->starved(events->context, &step);
    if (events && events->step && events->step(events->context, &step))
        result->stopped = true;
    if (is_found(run))
        result->stopped = true;
}

/* Reports the steps whose losses have arrived; wait: all that have begun. */
static tensor_status report_steps(struct run *run, bool wait) {
    for (;;) {
        const double start = now();
        double loss;
        int right;
        bool there;
        TRY(nn_noted_loss(&loss, &right, &there, run->g, wait));
        const double seconds = now() - start;
        run->result->seconds += seconds;
        run->report.seconds += seconds;
        if (!there)
            return TENSOR_OK;
        TRY(fl_training_await(run, run->result->steps + 1));
        run->correct += right;
        report_step(run, &run->report, loss);
    }
}

static tensor_status train_step(struct run *run) {
    const double start = now();
    TRY(begin_step(run, run->report.epoch));
    const double seconds = now() - start;
    run->result->seconds += seconds;
    run->report.seconds += seconds;
    return report_steps(run, is_found(run)); /* what was found ends the training with this step */
}

/* The progress in the epoch, counting all steps that have begun. */
static struct fl_progress progress_in(const struct run *run) {
    const nn_epoch_report *report = &run->report;
    return (struct fl_progress){.epoch = report->epoch,
                                .batch = run->result->steps - (report->epoch - 1) * run->epoch_steps,
                                .loss_sum = report->train_loss,
                                .seconds = report->seconds,
                                .correct = run->correct};
}

static tensor_status keep_on_the_way(struct run *run) {
    const int64_t every = run->config->checkpoint_every;
    if (!run->config->checkpoint || !every || run->begun % every || run->begun == run->last_step)
        return TENSOR_OK;
    TRY(report_steps(run, true));
    if (run->result->stopped)
        return TENSOR_OK; /* end_epoch writes the checkpoint */
    const struct fl_progress at = progress_in(run);
    return fl_training_keep(run, &at);
}

/* Begins an epoch at run->at. */
static tensor_status begin_epoch(struct run *run) {
    const struct fl_progress from = run->at;
    run->report = (nn_epoch_report){.epoch = from.epoch, .train_loss = from.loss_sum, .seconds = from.seconds};
    run->correct = from.correct;
    run->batch = from.batch;
    TRY(data_loader_seek(run->train, from.epoch - 1, from.batch));
    run->in_epoch = true;
    return TENSOR_OK;
}

static bool is_epoch_over(const struct run *run) {
    return run->batch == run->epoch_steps || run->begun == run->last_step || run->result->stopped;
}

/* Ends an epoch, or interrupts it if the training was stopped. */
static tensor_status end_epoch(struct run *run) {
    nn_train_result *result = run->result;
    nn_epoch_report *report = &run->report;
    TRY(report_steps(run, true));
    run->in_epoch = false;
    run->at = progress_in(run);
    const int64_t steps = run->at.batch;
    report->step = result->steps;
    report->train_loss /= (double)steps;
    result->train_loss = report->train_loss;
    if (result->stopped)
        return fl_training_keep(run, &run->at);
    report->train_accuracy = (double)run->correct / (double)(steps * run->g->rows * run->g->shards);
    char what[FL_GROUP_WHAT];
    snprintf(what, sizeof what, "the evaluation after %lld steps", (long long)result->steps);
    TRY(fl_group_await(run->g->group, what, fl_training_evaluate(run)));
    TRY(fl_training_keep_best(run, report->epoch));
    report->test_loss = result->test_loss;
    report->test_accuracy = result->test_accuracy;
    bool stop = run->events && run->events->epoch && run->events->epoch(run->events->context, report);
    result->stopped = stop && result->steps < run->last_step;
    run->at = (struct fl_progress){.epoch = report->epoch + 1, .done = result->steps == run->last_step};
    return !run->config->checkpoint_every || run->at.done || result->stopped ? fl_training_keep(run, &run->at)
                                                                             : TENSOR_OK;
}

static bool is_over(const struct run *run) {
    return run->at.done || run->result->stopped;
}

static tensor_status advance(struct run *run, int64_t steps) {
    while (steps > 0 && !is_over(run)) {
        if (!run->in_epoch)
            TRY(begin_epoch(run));
        for (; steps > 0 && !is_epoch_over(run); steps--) {
            TRY(train_step(run));
            run->batch++;
            TRY(keep_on_the_way(run));
        }
        if (is_epoch_over(run))
            TRY(end_epoch(run));
    }
    if (!run->in_epoch)
        return TENSOR_OK;
    TRY(report_steps(run, true));
    return run->result->stopped ? end_epoch(run) : TENSOR_OK; /* which writes the checkpoint */
}

static tensor_status add_totals(const nn_graph *g, nn_train_result *result) {
    for (int i = 0; i < nn_tensor_count(g); i++) {
        tensor_stats total;
        tensor *t = nn_tensor_at(g, i).t;
        TRY(tensor_statistics(NULL, &total, t));
        result->saturated += total.saturated;
        result->flushed += total.flushed;
        result->nonfinite += total.nonfinite;
        result->elements += total.elements;
        const struct autoflex *a = tensor_autoflex(t);
        result->clamped_low += a ? (int64_t)a->clamped_low : 0;
        result->clamped_high += a ? (int64_t)a->clamped_high : 0;
    }
    result->parameters = nn_parameter_count(g);
    result->weight_bytes = nn_weight_bytes(g);
    result->activation_bytes = nn_activation_bytes(g);
    result->arena_bytes = nn_arena_bytes(g) * (g->together ? nn_group_size(g->group) : 1);
    return TENSOR_OK;
}

/* Stops the training before its last step and writes a checkpoint. */
static tensor_status stop(struct run *run) {
    run->result->stopped = true;
    return run->in_epoch ? end_epoch(run) : fl_training_keep(run, &run->at);
}

static tensor_status finish(struct run *run) {
    nn_train_result *result = run->result;
    if (!is_over(run))
        TRY(stop(run));
    if (run->at.done)
        TRY(fl_training_keep_last(run));
    int64_t recent = result->steps < run->recent_size ? result->steps : run->recent_size;
    for (int64_t i = 0; i < recent; i++)
        result->last_loss += run->recent[i] / (double)recent;
    TRY(fl_ranks_bring(run->g));
    TRY(add_totals(run->g, result));
    TRY(nn_telemetry_finish(run->telemetry));
    nn_loss_scale scaling;
    TRY(fl_loss_scale_now(run->g, &scaling));
    result->loss_scale = scaling.scale;
    result->skipped = scaling.skipped;
    result->skipped_in_a_row = scaling.longest;
    result->skipped_at_end = scaling.in_a_row;
    return fl_trace_finish(run->trace);
}

/* --- a training in parts ------------------------------------------------------------------------------------------ */

struct nn_trainer {
    struct run run;
    nn_train_config config;
    nn_train_events events;
    nn_train_result result;
    tensor_status failed; /* of an earlier call; then the trainer can only be freed */
    bool finished;
};

nn_trainer *nn_trainer_new(const nn_train_config *config, const data_set *train, const data_set *test,
                           const nn_train_events *events) {
    nn_trainer *t = config && train ? fl_alloc_zero(sizeof *t) : NULL;
    if (!t) {
        if (!config || !train)
            fl_fail(TENSOR_E_ARGUMENT, "train: config or training set is NULL");
        else
            fl_fail(TENSOR_E_MEMORY, "train: no memory");
        return NULL;
    }
    t->config = *config;
    if (events)
        t->events = *events;
    t->run = (struct run){.config = &t->config, .events = events ? &t->events : NULL, .result = &t->result};
    if (!begin(&t->run, train, test))
        return t;
    nn_trainer_free(t);
    return NULL;
}

void nn_trainer_free(nn_trainer *t) {
    if (!t)
        return;
    end(&t->run);
    fl_group_free_memory(t->config.network.group, t->result.predicted); /* which ranks have shared */
    t->result.predicted = NULL;
    nn_train_result_clear(&t->result);
    fl_free(t);
}

static tensor_status check_trainer(const nn_trainer *t) {
    if (!t)
        return fl_fail(TENSOR_E_ARGUMENT, "train: the trainer is NULL");
    if (t->failed)
        return fl_fail(t->failed, "train: the trainer failed before; it can only be freed");
    return t->finished ? fl_fail(TENSOR_E_ARGUMENT, "train: the trainer has finished") : TENSOR_OK;
}

tensor_status nn_trainer_advance(bool *over, nn_trainer *t, int64_t steps) {
    TRY(check_trainer(t));
    if (steps < 0)
        return fl_fail(TENSOR_E_ARGUMENT, "train: %lld steps, expected 0 or more", (long long)steps);
    t->failed = advance(&t->run, steps);
    if (!t->failed && over)
        *over = is_over(&t->run);
    return t->failed;
}

const nn_graph *nn_trainer_network(const nn_trainer *t) {
    return t ? t->run.g : NULL;
}

const nn_nonfinite *nn_trainer_nonfinite(const nn_trainer *t) {
    return t && t->run.first.step ? &t->run.first : NULL;
}

tensor_status nn_trainer_finish(nn_train_result *result, nn_trainer *t) {
    if (!result)
        return fl_fail(TENSOR_E_ARGUMENT, "train: the result is NULL");
    *result = (nn_train_result){0};
    TRY(check_trainer(t));
    if ((t->failed = finish(&t->run)))
        return t->failed;
    *result = t->result;
    t->result = (nn_train_result){0}; /* the caller frees its predictions */
    t->finished = true;
    return TENSOR_OK;
}

tensor_status nn_train(nn_train_result *result, const nn_train_config *config, const data_set *train,
                       const data_set *test, const nn_train_events *events) {
    if (!result || !config || !train)
        return fl_fail(TENSOR_E_ARGUMENT, "train: result, config or training set is NULL");
    *result = (nn_train_result){0};
    nn_trainer *t = nn_trainer_new(config, train, test, events);
    if (!t)
        return tensor_error_status();
    tensor_status status = nn_trainer_advance(NULL, t, INT64_MAX);
    if (!status)
        status = nn_trainer_finish(result, t);
    nn_trainer_free(t);
    return status;
}

void nn_train_result_clear(nn_train_result *result) {
    if (!result)
        return;
    fl_free(result->predicted);
    *result = (nn_train_result){0};
}
