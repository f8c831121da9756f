/* train_ranks.c - a small training by the ranks that mpirun starts, for test_ranks.py. Rank 0 writes last.safetensors,
 * trace.csv and losses.txt into FOLDER.
 *
 *     train_ranks FOLDER KEY=VALUE ...
 *
 * Keys: engine, model, variant, policy, optimiser, scale, shards, batch, batchnorm, clip, steps, resume, keep (steps
 * between checkpoints), differ (the rank whose learning rate differs), stop, kill and fail (RANK:STEP: a rank that
 * stops answering, dies or reports a failure after that step), trace=no (none). */
#include "flexlab/nn.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int argument_count;
static char **arguments;

static const char *value(const char *key, const char *missing) {
    const size_t length = strlen(key);
    for (int i = 2; i < argument_count; i++)
        if (!strncmp(arguments[i], key, length) && arguments[i][length] == '=')
            return arguments[i] + length + 1;
    return missing;
}

static int number(const char *key, int missing) {
    const char *text = value(key, NULL);
    return text ? atoi(text) : missing;
}

static nn_group *group;
static FILE *losses;

/* Whether RANK:STEP of that key is this rank and step. */
static int is_now(const char *key, int64_t step) {
    const char *text = value(key, NULL);
    return text && atoi(text) == nn_group_rank(group) && atoi(strchr(text, ':') + 1) == step;
}

static int see_step(void *context, const nn_step_report *report) {
    (void)context;
    if (losses)
        fprintf(losses, "%lld %.17g %.17g %lld\n", (long long)report->step, report->loss, report->loss_scale,
                (long long)report->skipped_in_a_row);
    if (is_now("stop", report->step))
        raise(SIGSTOP);
    if (is_now("kill", report->step))
        raise(SIGKILL);
    if (is_now("fail", report->step))
        nn_group_abort(group, "the disk is full");
    return 0;
}

static int failed(const char *what) {
    fprintf(stderr, "rank %d: %s: %s\n", nn_group_rank(group), what, tensor_error());
    return 1;
}

static int train(const char *folder) {
    static char trace[4096], losses_path[4096];
    const char *model = value("model", "resnet8");
    const int text = nn_model_reads_text(model), rank = nn_group_rank(group);
    data_set *train = NULL, *test = NULL;
    if (text) {
        static int32_t tokens[3000];
        for (int i = 0; i < 3000; i++)
            tokens[i] = (i * 7 + i * i / 5) % 13;
        train = data_new_tokens(tokens, 2600, 13);
        test = data_new_tokens(tokens + 2600, 400, 13);
    } else if (data_open_splits(&train, &test, "synthetic:train=240,test=48")) {
        return failed("data");
    }
    if (!train || !test)
        return failed("data");
    snprintf(trace, sizeof trace, "%s/trace.csv", folder);
    snprintf(losses_path, sizeof losses_path, "%s/losses.txt", folder);
    if (!rank && !(losses = fopen(losses_path, "w")))
        return failed("losses");
    const nn_train_config config = {.network = {.variant = value("variant", "flex16+5"),
                                                .policy = value("policy", NULL),
                                                .optimiser = value("optimiser", NULL),
                                                .momentum = value("optimiser", NULL) ? 0 : 0.9f,
                                                .loss_scale = value("scale", NULL),
                                                .clip_norm = (float)number("clip", 0),
                                                .batch = number("batch", 24),
                                                .shards = number("shards", 12),
                                                .batchnorm_global = !strcmp(value("batchnorm", "shard"), "global"),
                                                .seed = 3,
                                                .group = group},
                                    .model = model,
                                    .epochs = 2,
                                    .rate = number("differ", -1) == rank ? 0.02 : 0.01,
                                    .schedule = "linear",
                                    .augment = true,
                                    .max_steps = number("steps", 8),
                                    .average_last = 4,
                                    .trace_every = 1,
                                    .trace_path = value("trace", NULL) ? NULL : trace,
                                    .checkpoint = folder,
                                    .checkpoint_every = number("keep", 0),
                                    .resume = value("resume", NULL),
                                    .context = text ? 8 : 0};
    nn_train_result result;
    const tensor_status status = nn_train(&result, &config, train, test, &(nn_train_events){.step = see_step});
    if (status)
        return failed("train");
    nn_group_statistics sent;
    if (nn_group_statistics_of(&sent, group))
        return failed("statistics");
    if (!rank)
        printf("loss %.17g test %.17g accuracy %.17g sent %lld parameters %lld steps %lld waited %.3f seconds %.3f\n",
               result.last_loss, result.test_loss, result.test_accuracy, (long long)sent.sent,
               (long long)result.parameters, (long long)result.steps, sent.waited, result.seconds);
    if (losses)
        fclose(losses);
    nn_train_result_clear(&result);
    data_free(train);
    data_free(test);
    return 0;
}

int main(int argc, char **argv) {
    argument_count = argc;
    arguments = argv;
    if (argc < 2 || !(group = nn_group_new(value("engine", "mpi"))))
        return failed("group");
    const int status = train(argv[1]);
    if (status) /* the others wait for this rank */
        _exit(status);
    nn_group_free(group);
    return status;
}
