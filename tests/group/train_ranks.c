/* train_ranks.c - a small training by the ranks that mpirun starts, for the tests of this folder. Rank 0 writes
 * last.safetensors, trace.csv, losses.txt and with `telemetry` telemetry.jsonl and .csv into FOLDER.
 * Compiled with OWN_MPI by a wrapper of MPI, it initialises MPI itself and brings a communicator.
 *
 *     train_ranks FOLDER KEY=VALUE ...
 *
 * Keys: engine, model (also "infinite", below), data (images), variant, policy, optimiser, scale, shards, batch,
 * batchnorm, clip, rate, steps, until (the last of them that is made), resume, devices (of the ranks, one after the
 * other, joined by '/'; the last one is that of all others), keep (steps between checkpoints), telemetry (steps between
 * records), pattern, shadows, differ (the rank whose learning rate differs), unlike (RANK:KEY=VALUE of one rank), stop,
 * kill and fail (RANK:STEP: a rank that stops answering, dies or reports a failure after that step), trace=no (none).
 * With OWN_MPI: own=split (two groups, which train at once in FOLDER/part0 and part1), lost (one group of all), or what
 * is refused: early, null, inter, single, thread, kind. */
#include "flexlab/nn.h"
#ifdef OWN_MPI
#include "flexlab/nn_group_mpi.h"
#include <threads.h>
#endif
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int argument_count;
static char **arguments;

static nn_group *group;

static const char *value(const char *key, const char *missing) {
    const size_t length = strlen(key);
    const char *unlike = strcmp(key, "unlike") ? value("unlike", NULL) : NULL;
    if (unlike && atoi(unlike) == nn_group_rank(group) && !strncmp(strchr(unlike, ':') + 1, key, length))
        return strchr(unlike, '=') + 1;
    for (int i = 2; i < argument_count; i++)
        if (!strncmp(arguments[i], key, length) && arguments[i][length] == '=')
            return arguments[i] + length + 1;
    return missing;
}

static int number(const char *key, int missing) {
    const char *text = value(key, NULL);
    return text ? atoi(text) : missing;
}

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
    return report->step == number("until", 0);
}

/* The device of this rank; NULL: cpu. */
static const char *device(void) {
    static char names[100];
    const char *given = value("devices", NULL);
    if (!given)
        return NULL;
    snprintf(names, sizeof names, "%s", given);
    char *name = strtok(names, "/");
    for (int r = 0; r < nn_group_rank(group); r++) {
        char *next = strtok(NULL, "/");
        name = next ? next : name;
    }
    return name;
}

static int failed(const char *what) {
    fprintf(stderr, "rank %d: %s: %s\n", nn_group_rank(group), what, tensor_error());
    return 1;
}

/* The model "infinite": where all means of a batch are negative, a tensor has nothing but Inf, and the exponent of the
 * batch before. */
static nn_node build_infinite(nn_graph *g, int height, int width, int channels, int classes, void *context) {
    (void)context;
    const nn_node means = nn_relu(g, "relu", nn_avgpool_global(g, "means", nn_input(g, height, width, channels)));
    return nn_linear(g, "fc", nn_activation(g, "inverse", means, "reciprocal"), classes, false);
}

static int train(const char *folder) {
    static char trace[4200], losses_path[4200], rows[4200], table[4200];
    const char *model = value("model", "resnet8");
    const int infinite = !strcmp(model, "infinite"), text = !infinite && nn_model_reads_text(model),
              rank = nn_group_rank(group);
    data_set *train = NULL, *test = NULL;
    if (text) {
        static int32_t tokens[3000];
        for (int i = 0; i < 3000; i++)
            tokens[i] = (i * 7 + i * i / 5) % 13;
        train = data_new_tokens(tokens, 2600, 13);
        test = data_new_tokens(tokens + 2600, 400, 13);
    } else if (data_open_splits(&train, &test, value("data", "synthetic:train=240,test=48"))) {
        return failed("data");
    }
    if (!train || !test)
        return failed("data");
    snprintf(trace, sizeof trace, "%s/trace.csv", folder);
    snprintf(losses_path, sizeof losses_path, "%s/losses.txt", folder);
    snprintf(rows, sizeof rows, "%s/telemetry.jsonl", folder);
    snprintf(table, sizeof table, "%s/telemetry.csv", folder);
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
                                                .device = device(),
                                                .group = group},
                                    .model = infinite ? NULL : model,
                                    .build = build_infinite,
                                    .epochs = 2,
                                    .rate = number("differ", -1) == rank ? 0.02 : atof(value("rate", "0.01")),
                                    .schedule = "linear",
                                    .augment = true,
                                    .max_steps = number("steps", 8),
                                    .average_last = 4,
                                    .trace_every = 1,
                                    .trace_path = value("trace", NULL) ? NULL : trace,
                                    .telemetry_every = number("telemetry", 0),
                                    .telemetry_path = rows,
                                    .telemetry_csv = table,
                                    .telemetry_pattern = value("pattern", NULL),
                                    .telemetry_shadows = value("shadows", NULL),
                                    .checkpoint = folder,
                                    .checkpoint_every = number("keep", 0),
                                    .resume = value("resume", NULL),
                                    .context = text ? 8 : 0};
    if (value("devices", NULL)) {
        const tensor_device *taken = nn_group_device(group, device() ? device() : "cpu");
        printf("rank %d on %s\n", rank, taken ? tensor_device_name(taken) : tensor_error());
        fflush(stdout);
    }
    nn_train_result result;
    const tensor_status status = nn_train(&result, &config, train, test, &(nn_train_events){.step = see_step});
    if (status)
        return failed("train");
    nn_group_statistics sent;
    if (nn_group_statistics_of(&sent, group))
        return failed("statistics");
    if (!rank)
        printf("loss %.17g test %.17g accuracy %.17g sent %lld received %lld parameters %lld exchanges %lld steps %lld "
               "waited %.3f overlapped %.3f seconds %.3f\n",
               result.last_loss, result.test_loss, result.test_accuracy, (long long)sent.sent, (long long)sent.received,
               (long long)result.parameters, (long long)sent.calls, (long long)result.steps, sent.waited,
               sent.overlapped, result.seconds);
    if (losses)
        fclose(losses);
    nn_train_result_clear(&result);
    data_free(train);
    data_free(test);
    return 0;
}

#ifdef OWN_MPI

static int is_own(const char *what) {
    return !strcmp(value("own", "split"), what);
}

static int join_in_thread(void *joined) {
    *(nn_group **)joined = nn_group_from_mpi(MPI_COMM_WORLD);
    if (!*(nn_group **)joined)
        failed("group"); /* the message is the thread's */
    return 0;
}

/* Makes the group that `own` names, or NULL where it is refused. */
static nn_group *bring(MPI_Comm world, MPI_Comm part) {
    MPI_Comm inter;
    nn_group *joined = NULL;
    thrd_t thread;
    int rank;
    if (is_own("thread")) {
        if (thrd_create(&thread, join_in_thread, &joined) == thrd_success)
            thrd_join(thread, NULL);
        return joined;
    }
    if (is_own("inter")) {
        MPI_Comm_rank(world, &rank);
        MPI_Intercomm_create(part, 0, world, rank % 2 ? 0 : 1, 7, &inter);
        joined = nn_group_from_mpi(inter);
    } else {
        joined = is_own("kind")   ? nn_group_from_handle(&part, sizeof part, "MPI of another kind")
                 : is_own("null") ? nn_group_from_mpi(MPI_COMM_NULL)
                 : is_own("lost") ? nn_group_from_mpi(world)
                                  : nn_group_from_mpi(part);
    }
    if (!joined)
        failed("group");
    return joined;
}

int main(int argc, char **argv) {
    static char folder[4120];
    int rank, provided, over = 0;
    int32_t first, worst = 0;
    MPI_Comm part;
    nn_group *all = NULL;
    argument_count = argc;
    arguments = argv;
    if (argc < 2 || (is_own("early") && !nn_group_from_mpi(MPI_COMM_WORLD)))
        return failed("group");
    MPI_Init_thread(&argc, &argv, is_own("single") ? MPI_THREAD_SINGLE : MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &part); /* the last rank is the first of its part */
    snprintf(folder, sizeof folder, "%s/part%d", arguments[1], rank % 2);
    int status = !(group = bring(MPI_COMM_WORLD, part));
    if (!status && is_own("split")) /* a second group beside it */
        status = !(all = nn_group_from_mpi(MPI_COMM_WORLD)) || nn_group_worst(all, rank, &first, &worst) ||
                 worst != nn_group_size(all) - 1;
    status = status || train(folder);
    if (!status && all)
        status = nn_group_worst(all, -rank, &first, &worst) || worst != 0;
    nn_group_free(group);
    nn_group_free(all);
    MPI_Finalized(&over);
    if (over || (status && is_own("lost"))) {
        fprintf(stderr, "rank %d: MPI %s\n", rank, over ? "was finalised" : "is the program's");
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return status;
}

#else

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

#endif
