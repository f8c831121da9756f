/* main.c - flexlab COMMAND [OPTION]... */
#include "commands/commands.h"
#include "flexlab/version.h"
#include "commands/plugins.h"
#include "base/text.h"
#include "runs/ranks.h"
#include <cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct command_row {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
    bool of_ranks; /* all that mpirun has started take part; otherwise the first runs it, and the others end */
} commands[] = {
    {"compare", command_compare, "train one network in several number formats, side by side", true},
    {"train", command_train, "train one network in one number format", true},
    {"eval", command_eval, "accuracy of a trained network; of one trained elsewhere, in several formats"},
    {"run", command_run, "run a network trained elsewhere (ONNX, TensorFlow Lite) on arrays"},
    {"bench", command_bench, "time such a network in several formats"},
    {"transpile", command_transpile, "write such a network in another format, and tell what that does to its tensors"},
    {"calibrate", command_calibrate, "what 8-bit integers cost such a network, by method and number of batches"},
    {"diff", command_diff, "the first tensor at which two such networks part on the same inputs"},
    {"what-if", command_what_if, "what other number formats would do to each tensor of a trained network"},
    {"wgan", command_wgan, "train a generator of images and its critic in one number format"},
    {"report", command_report, "draw table, report and figures again from stored results"},
    {"replay", command_replay, "run exponent predictors again over the recorded maxima of trace files"},
    {"facts", command_facts, "statements of the literature about number formats, computed again"},
    {"info", command_info, "this machine on one screen; formats, policies, models, kernels and more by name"},
};
enum { COMMANDS = sizeof commands / sizeof commands[0] };

static const char *command_name(int i) {
    return i < COMMANDS ? commands[i].name : NULL;
}

static void help(void) {
    puts("Usage: flexlab COMMAND [OPTION]...\n\n"
         "Neural networks trained in 16-bit number formats with real arithmetic.\n\nCommands");
    for (int i = 0; i < COMMANDS; i++)
        printf("  %-10s%s\n", commands[i].name, commands[i].summary);
    puts("\n'flexlab COMMAND --help' describes the options of a command; 'flexlab --version' prints the version.\n\n"
         "Example\n"
         "  flexlab compare --model mlp2 --data synthetic:train=2000,test=500 --epochs 3 --out quick\n"
         "  then open quick/report.html\n\n"
         "Environment\n"
         "  FLEXLAB_ISA      the fastest kernels that may run: ref, portable, avx2, avx2_vnni, avx512bw, avx512\n"
         "                   or avx512_amx\n"
         "  FLEXLAB_VERBOSE  1: name on stderr each kernel that runs, and why not a faster one\n"
         "  FLEXLAB_PREDICTORS  shared libraries that add exponent predictors (docs/autoflex.md): absolute paths,\n"
         "                   separated by ':'\n"
         "  FLEXLAB_CUDA_LIBRARY  the CUDA backend, where it lies elsewhere: an absolute path (docs/gpu.md)\n"
         "  FLEXLAB_MPI_LIBRARY  the engine of ranks that mpirun starts, likewise (docs/several-machines.md)\n"
         "  FLEXLAB_NCCL_LIBRARY  that of --group nccl, likewise\n"
         "  FLEXLAB_GROUP_TIMEOUT  seconds that a rank waits for the others (30)\n"
         "  FLEXLAB_GNUPLOT_SECONDS  how long gnuplot may take for a picture (60)\n"
         "  OMP_NUM_THREADS  threads where --threads is not given");
}

/* Output that does not reach its file or pipe is a failure. */
static int flushed(int status) {
    if ((fflush(stdout) || ferror(stdout)) && status == STATUS_OK)
        return text_failed("cannot write to standard output");
    return status;
}

/* If a standard stream is closed, the first file that is opened gets its number, and messages would go into that file.
 * /dev/null takes the number instead, opened in the wrong direction, so that using it fails as on a closed stream. */
static bool standard_streams_taken(void) {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF &&
            open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
            return false;
    return true;
}

static int run(const struct command_row *command, int argc, char **argv) {
    text_set_command(command->name);
    int status = command->of_ranks ? ranks_begin() : STATUS_OK;
    if (status != STATUS_OK)
        return status;
    if (!command->of_ranks && nn_group_started() > 1)
        text_note("one of the %d ranks runs it", nn_group_started());
    status = plugins_load();
    if (status == STATUS_OK)
        status = command->run(argc, argv);
    return flushed(command->of_ranks ? ranks_end(status) : status);
}

static const struct command_row *find_command(const char *name) {
    for (int i = 0; i < COMMANDS; i++)
        if (!strcmp(name, commands[i].name))
            return &commands[i];
    return NULL;
}

/* Memory for cJSON, which would report a failed allocation as bad JSON. */
static void *json_memory(size_t size) {
    return text_alloc(1, size);
}

int main(int argc, char **argv) {
    cJSON_InitHooks(&(cJSON_Hooks){json_memory, free});
    if (!standard_streams_taken())
        return STATUS_FAILED; /* no stream is left for a message */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a file size limit is an error of the write, which is reported */
    const struct command_row *command = argc < 2 ? NULL : find_command(argv[1]);
    if (!(command && command->of_ranks) && !ranks_is_first())
        return STATUS_OK;
    if (argc < 2)
        return text_usage("expected a command: compare, train, eval, run, bench, transpile, calibrate, diff, "
                          "what-if, wgan, report, replay, facts or info; "
                          "see flexlab --help");
    const char *name = argv[1];
    if (!strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "help")) {
        help();
        return flushed(STATUS_OK);
    }
    if (!strcmp(name, "--version")) {
        printf("flexlab %s\n", flexlab_version());
        return flushed(STATUS_OK);
    }
    if (command)
        return run(command, argc - 1, argv + 1);
    return text_usage("unknown %s '%s', expected compare, train, eval, run, bench, transpile, calibrate, diff, "
                      "what-if, wgan, report, replay, facts or info%s",
                      name[0] == '-' ? "option" : "command", name, text_did_you_mean(name, command_name));
}
