/* Telemetry that a device fetches behind its steps, where one wait for a copy fails, as the PTX machine plans it: that
 * failure is returned once, and of no step but that one the rows are missing.
 *
 * Without the machine: skipped. */
#include "on_gpu.h"
#include "nn/telemetry/nn_telemetry.h"
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_WAITS = 200, STEPS = 6, REFUSED = 1, WRONG = 2, PASSED = 3 };

/* Rows of each step. */
static int rows[2 * STEPS + 1];

static void count_row(void *context, const nn_telemetry_row *row) {
    (void)context;
    CHECK(row->step >= 1 && row->step <= 2 * STEPS && row->elements, "step %lld", (long long)row->step);
    rows[row->step]++;
}

static tensor_status one_step(nn_graph *g, nn_telemetry *t) {
    static uint8_t pixels[2 * 4 * 4 * 3];
    static int32_t labels[2];
    CHECK(!nn_forward(g, &(nn_batch){.pixels = pixels, .labels = labels}) && !nn_backward(g) && !nn_update(g, 0.1f),
          "%s", tensor_error());
    return nn_telemetry_step(t);
}

/* Returns how a training went in which wait number `at` fails. */
static int training(int at) {
    char plan[100];
    snprintf(plan, sizeof plan, "cudaEventSynchronize@%d@2", at); /* 2: no memory, which passes */
    setenv("FLEXLAB_PTX_FAIL", plan, 1);
    nn_graph *g = nn_graph_new(&(nn_config){.variant = "flex16+5", .batch = 2, .seed = 5, .device = "cuda"});
    const nn_node x = nn_input(g, 4, 4, 3);
    const float values[3 * 256] = {0};
    CHECK(!nn_compile(g, nn_linear(g, "fc", x, 10, true)) && !nn_set_pixel_values(g, values), "%s", tensor_error());
    nn_telemetry *t = nn_telemetry_new(g, &(nn_telemetry_config){.every = 1, .row = count_row});
    if (!t)
        return REFUSED;
    fl_telemetry_tell(t, NULL, NULL, true);
    int failed = 0;
    for (int half = 0; half < 2; half++) {
        for (int i = 0; i < STEPS; i++)
            failed += one_step(g, t) != TENSOR_OK;
        failed += fl_telemetry_arrive(t, 0) != TENSOR_OK;
    }
    CHECK(failed <= 1, "wait %d: %d failures: %s", at, failed, tensor_error());
    int most = 0, missing = 0;
    for (int step = 1; step <= 2 * STEPS; step++)
        most = rows[step] > most ? rows[step] : most;
    for (int step = 1; step <= 2 * STEPS; step++) {
        missing += rows[step] == 0;
        CHECK(rows[step] == 0 || rows[step] == most, "wait %d: step %d has %d rows of %d", at, step, rows[step], most);
    }
    CHECK(most > 0 && missing <= failed, "wait %d: %d steps without rows after %d failures", at, missing, failed);
    nn_telemetry_free(t);
    nn_graph_free(g);
    return check_failures ? WRONG : failed ? 0 : PASSED;
}

int main(void) {
    const char *path = getenv("FLEXLAB_CUDA_LIBRARY");
    int found = 0;
    if (!path || !strstr(path, "_ptx"))
        return check_skip("it needs the PTX machine");
    for (int at = 1; at < MOST_WAITS; at++) {
        int status;
        fflush(NULL);
        const pid_t child = fork(); /* the machine reads the plan once in a process */
        if (!child)
            exit(training(at));
        CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) != WRONG, "wait %d", at);
        found += WEXITSTATUS(status) == 0;
        if (WEXITSTATUS(status) == PASSED)
            break;
    }
    CHECK(found > 2 * STEPS, "%d waits failed", found);
    return check_summary();
}
