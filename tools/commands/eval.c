/* eval.c - the command `eval`: loss and accuracy of a network that `train` has written. */
#include "commands/commands.h"
#include "base/failure.h"
#include "flexlab/data.h"
#include "flexlab/nn.h"
#include "options/options.h"
#include "programs/networks.h"
#include "runs/trained.h"
#include "base/text.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Evaluates all batches, with `each` labels for each sample, and sums as nn_train does, so that the numbers are the
 * same bits. */
static tensor_status evaluate(nn_graph *g, data_loader *loader, int64_t each, int32_t *predicted, double *loss,
                              int64_t *correct, int64_t *done) {
    tensor_status status = data_loader_start(loader, 0);
    data_batch batch;
    *loss = 0;
    *correct = *done = 0;
    while (!status && !(status = data_loader_next(&batch, loader)) && batch.count) {
        double mean;
        const int64_t labels = batch.count * each;
        const int32_t *expected = batch.tokens ? batch.targets : batch.labels;
        status = batch.tokens
                     ? nn_evaluate(&mean, predicted, g,
                                   &(nn_batch){.tokens = batch.tokens, .labels = batch.targets, .count = batch.count})
                     : nn_evaluate(&mean, predicted, g,
                                   &(nn_batch){.images = batch.images, .labels = batch.labels, .count = batch.count});
        for (int64_t i = 0; i < labels && !status; i++)
            *correct += predicted[i] == expected[i];
        *loss += status ? 0 : mean * (double)labels;
        *done += labels;
    }
    return status;
}

static void print_result(const struct settings *s, const struct trained *is, double loss, int64_t correct,
                         int64_t done) {
    char *shown = text_shown(s->checkpoint);
    printf("%s: %s in %s after %lld steps, on %lld %s\n", shown, is->model, is->format, (long long)is->steps,
           (long long)done, is->text ? "tokens" : "images");
    printf("loss      %.9g\naccuracy  %.9g\n", loss, (double)correct / (double)done);
    if (is->text)
        printf("bits      %.9g\nperplexity %.9g\n", loss / log(2), exp(loss));
    free(shown);
}

static int evaluate_all(const struct settings *s, const struct trained *is, nn_graph *g, const data_set *set) {
    const data_loader_config how = {.batch = (int)is->batch,
                                    .mean = is->text ? NULL : is->mean,
                                    .deviation = is->text ? NULL : is->deviation,
                                    .context = (int)is->context};
    data_loader *loader = data_loader_new(set, &how);
    int32_t *predicted = text_alloc((size_t)nn_label_count(g), sizeof *predicted);
    double loss = 0;
    int64_t correct = 0, done = 0;
    int status = STATUS_OK;
    if (!loader || evaluate(g, loader, nn_label_count(g) / is->batch, predicted, &loss, &correct, &done))
        status = text_failed("%s", tensor_error());
    if (status == STATUS_OK)
        print_result(s, is, loss / (double)done, correct, done);
    if (status == STATUS_OK && !isfinite(loss))
        status = text_failed("%s: the loss is %s: the network computes no numbers on these %s", s->checkpoint,
                             isnan(loss) ? "NaN" : "infinite", is->text ? "tokens" : "images");
    free(predicted);
    data_loader_free(loader);
    return status;
}

/* A network of `train`, or of another program. */
static int check_file(const struct settings *s) {
    const char *const only = s->formats         ? "formats"
                             : s->mean          ? "mean"
                             : s->deviation     ? "std"
                             : s->layout        ? "layout"
                             : s->rounding      ? "rounding"
                             : s->batch         ? "batch"
                             : s->calibration   ? "calibrate"
                             : s->network_model ? "model"
                             : s->weight_layout ? "weight-layout"
                             : s->image_size    ? "image"
                                                : NULL;
    if (s->checkpoint && s->folder_count)
        return text_usage("unexpected argument '%s' beside --checkpoint", s->folders[0]);
    if (!s->checkpoint && !s->folder_count)
        return text_usage("expected --checkpoint FILE, or the file of a network; see --help");
    if (s->checkpoint && only)
        return text_usage("--%s: not with --checkpoint, whose file says it", only);
    if (s->folder_count && s->device)
        return text_usage("--device: only with --checkpoint");
    return STATUS_OK;
}

int command_eval(int argc, char **argv) {
    struct settings settings;
    struct trained images = {0};
    nn_graph *g = NULL;
    data_set *set = NULL;
    failure_watch();
    int status = options_parse(&settings, COMMAND_EVAL, argc, argv);
    if (status == STATUS_OK && settings.help) {
        options_help(COMMAND_EVAL, stdout);
        return STATUS_OK;
    }
    if (status == STATUS_OK)
        status = check_file(&settings);
    if (status == STATUS_OK && settings.threads && tensor_set_threads((int)settings.threads))
        status = text_usage("--threads: %s", tensor_error());
    if (status == STATUS_OK && settings.folder_count)
        return network_eval(&settings);
    if (status == STATUS_OK)
        status = trained_read(&images, settings.checkpoint);
    if (status == STATUS_OK)
        status = trained_data(&set, &settings, &images);
    if (status == STATUS_OK)
        status = trained_network(&g, &settings, &images);
    if (status == STATUS_OK)
        status = evaluate_all(&settings, &images, g, set);
    nn_graph_free(g);
    data_free(set);
    return status;
}
