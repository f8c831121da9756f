/* Nodes with several inputs, outputs, parameters and a state: handles and names, the state of the network, evaluation,
 * watchers, traces, another device, memory that runs out, and what is refused. Their gradients: test_nn_gradient. */
#include "flexlab/nn.h"
#include "nn/telemetry/nn_trace.h"
#include "core/base/memory.h"
#include "core/values/tensor_state.h"
#include "nn/graph/nn_graph.h"
#include "node_rows.h"
#include "toy_device.h"
#include "trace_rows.h"
#include <math.h>
#include <unistd.h>

enum { BATCH = 6, SIDE = 6, CHANNELS = 3, CLASSES = 3 };
static float images[BATCH * SIDE * SIDE * CHANNELS];
static int32_t labels[BATCH];

static void new_batch(uint64_t step) {
    uint64_t seed = step + 1;
    for (size_t i = 0; i < sizeof images / sizeof images[0]; i++)
        images[i] = (float)(check_random(&seed) >> 40) * 0x1p-23f - 1;
    for (int i = 0; i < BATCH; i++)
        labels[i] = (int32_t)(check_random(&seed) % CLASSES);
}

static nn_graph *empty(const char *variant, const char *device) {
    nn_graph *g = nn_graph_new(&(nn_config){
        .variant = variant, .batch = BATCH, .seed = 5, .momentum = 0.9f, .weight_decay = 1e-3f, .device = device});
    CHECK(g, "%s", tensor_error());
    return g;
}

static nn_graph *network(const char *variant, const char *device) {
    nn_graph *g = empty(variant, device);
    CHECK(!nn_compile(g, mixed_network(g, nn_input(g, SIDE, SIDE, CHANNELS), CLASSES)), "%s", tensor_error());
    return g;
}

static void train(nn_graph *g, int steps) {
    for (int i = 0; i < steps; i++) {
        new_batch(nn_steps(g));
        CHECK(!nn_train_step(NULL, NULL, g, &(nn_batch){.images = images, .labels = labels}, 0.05f), "%s",
              tensor_error());
    }
}

static nn_tensor_info named(const nn_graph *g, const char *name) {
    for (int i = 0; i < nn_tensor_count(g); i++)
        if (!strcmp(nn_tensor_at(g, i).name, name))
            return nn_tensor_at(g, i);
    CHECK(false, "no tensor '%s'", name);
    return (nn_tensor_info){.name = name, .role = "none"};
}

/* --- handles and names -------------------------------------------------------------------------------------------- */

static void handles(void) {
    nn_graph *g = empty("fp32", NULL);
    nn_node x = nn_input(g, SIDE, SIDE, CHANNELS), a = nn_avgpool_global(g, "a", x),
            hot = add_mixer(g, "mixer", a, a, a), next = nn_relu(g, "next", hot + 1);
    CHECK(x == 0 && a == 1 && hot == 2 && next == 4, "handles %d, %d, %d, %d", x, a, hot, next);
    CHECK(!nn_compile(g, nn_add(g, "add", next, nn_relu(g, "more", hot), true)), "%s", tensor_error());
    static const char *const names[] = {"mixer.hot",        "activation", "mixer.sum",      "activation",
                                        "mixer.w",          "weight",     "mixer.v.grad",   "weight gradient",
                                        "mixer.u.momentum", "momentum",   "mixer.hot.grad", "gradient",
                                        "mixer.sum.grad",   "gradient"};
    for (int i = 0; i < 7; i++)
        CHECK(!strcmp(named(g, names[2 * i]).role, names[2 * i + 1]), "%s is '%s'", names[2 * i],
              named(g, names[2 * i]).role);
    nn_graph_free(g);
}

/* --- the state of the network ------------------------------------------------------------------------------------- */

static void *state_of(const nn_graph *g, size_t *bytes) {
    *bytes = nn_state_bytes(g);
    void *state = malloc(*bytes);
    CHECK(*bytes && !nn_state_save(state, *bytes, g), "%s", tensor_error());
    return state;
}

static void same_state(const char *what, const nn_graph *g, const nn_graph *h) {
    size_t n, m;
    unsigned char *a = state_of(g, &n), *b = state_of(h, &m);
    size_t at = 0;
    while (at < n && at < m && a[at] == b[at])
        at++;
    CHECK(n == m && at == n, "%s: byte %zu of %zu and %zu differs", what, at, n, m);
    free(a);
    free(b);
}

/* Three steps, the state moved to another network, and three more equal six. */
static void resumed(const char *variant) {
    nn_graph *g = network(variant, NULL), *h = network(variant, NULL);
    size_t bytes;
    train(g, 3);
    void *state = state_of(g, &bytes);
    CHECK(!nn_state_restore(h, state, bytes), "%s", tensor_error());
    train(g, 3);
    train(h, 3);
    same_state(variant, g, h);
    free(state);
    nn_graph_free(g);
    nn_graph_free(h);
}

/* A state that is not persistent is left out, and changes the identity of the network. */
static void states_that_last(void) {
    nn_graph *g[2];
    size_t bytes[2];
    void *state[2];
    for (int i = 0; i < 2; i++) {
        g[i] = empty("flex16+5", NULL);
        nn_node x = nn_avgpool_global(g[i], "pool", nn_input(g[i], SIDE, SIDE, CHANNELS));
        nn_node hot = i ? add_forgetful_mixer(g[i], "mixer", x, x, x) : add_mixer(g[i], "mixer", x, x, x);
        CHECK(!nn_compile(g[i], nn_add(g[i], "add", hot, hot + 1, true)), "%s", tensor_error());
        train(g[i], 2);
        state[i] = state_of(g[i], &bytes[i]);
    }
    const size_t part = fl_state_bytes(g[0]->nodes[2].state[0].t, true);
    CHECK(bytes[0] == bytes[1] + part && part > BATCH * CHANNELS * 2, "states of %zu and %zu bytes, the part has %zu",
          bytes[0], bytes[1], part);
    char *padded = calloc(bytes[0], 1);
    memcpy(padded, state[1], bytes[1]);
    CHECK(nn_state_restore(g[0], padded, bytes[0]) == TENSOR_E_DATA && strstr(tensor_error(), "other layers"), "%s",
          tensor_error());
    free(padded);
    for (int i = 0; i < 2; i++) {
        CHECK(!nn_state_restore(g[i], state[i], bytes[i]), "%s", tensor_error());
        free(state[i]);
        nn_graph_free(g[i]);
    }
}

/* --- watch, evaluation, trace, another device --------------------------------------------------------------------- */

struct seen {
    const nn_graph *g;
    int times[200];
    double logits[BATCH * CLASSES];
};

static void watch(const nn_tensor_info *info, void *context) {
    struct seen *seen = context;
    for (int i = 0; i < nn_tensor_count(seen->g); i++)
        seen->times[i] += nn_tensor_at(seen->g, i).t == info->t;
    if (!strcmp(info->name, "fc"))
        CHECK(!tensor_store_f64(info->t, seen->logits, BATCH * CLASSES), "%s", tensor_error());
}

static void watched(void) {
    nn_graph *g = network("fp32", NULL);
    struct seen seen = {.g = g};
    double logits[BATCH * CLASSES], loss, evaluated;
    train(g, 2);
    CHECK(!nn_watch(g, watch, &seen), "%s", tensor_error());
    new_batch(70);
    CHECK(!nn_train_step(&loss, NULL, g, &(nn_batch){.images = images, .labels = labels}, 0), "%s", tensor_error());
    for (int i = 0; i < nn_tensor_count(g); i++)
        CHECK(seen.times[i] == 1, "%s was seen %d times in a step", nn_tensor_at(g, i).name, seen.times[i]);
    CHECK(!nn_predict(logits, g, &(nn_batch){.images = images, .count = BATCH}) &&
              !memcmp(logits, seen.logits, sizeof logits),
          "evaluation has other logits than training: %g and %g", logits[0], seen.logits[0]);
    CHECK(!nn_evaluate(&evaluated, NULL, g, &(nn_batch){.images = images, .labels = labels, .count = BATCH}) &&
              evaluated == loss,
          "loss %a, evaluated %a", loss, evaluated);
    CHECK(!nn_watch(g, NULL, NULL), "%s", tensor_error());
    nn_graph_free(g);
}

static void traced(void) {
    nn_graph *g = network("flex16+5", NULL);
    struct fl_trace *trace;
    struct trace_row row;
    char path[] = "/tmp/flexlab-nodes-XXXXXX";
    int rows[3] = {0};
    static const char *const wanted[][2] = {
        {"mixer.hot", "activation"}, {"mixer.sum.grad", "gradient"}, {"mixer.v", "weight"}};
    const int fd = mkstemp(path);
    CHECK(fd >= 0 && !close(fd) && !fl_trace_open(&trace, path, 1), "%s", tensor_error());
    for (int step = 1; step <= 3; step++) {
        train(g, 1);
        CHECK(!fl_trace_step(trace, g, step), "%s", tensor_error());
    }
    CHECK(!fl_trace_finish(trace), "%s", tensor_error());
    fl_trace_free(trace);
    FILE *file = trace_rows_open(path);
    while (file && trace_rows_next(file, &row))
        for (int i = 0; i < 3; i++)
            rows[i] += !strcmp(row.name, wanted[i][0]) && !strcmp(row.role, wanted[i][1]);
    CHECK(file && rows[0] == 3 && rows[1] == 3 && rows[2] == 3, "%d, %d and %d rows", rows[0], rows[1], rows[2]);
    if (file)
        fclose(file);
    remove(path);
    nn_graph_free(g);
}

static void on_toy(const char *variant) {
    nn_graph *cpu = network(variant, NULL), *dev = network(variant, "toy");
    train(cpu, 4);
    train(dev, 4);
    same_state(variant, cpu, dev);
    nn_graph_free(cpu);
    nn_graph_free(dev);
}

/* --- memory that runs out ----------------------------------------------------------------------------------------- */

static long requests, fail_at, alive;

static void *failing_allocate(unsigned long size, unsigned long alignment) {
    void *block = NULL;
    if (++requests == fail_at || posix_memalign(&block, alignment, size))
        return NULL;
    alive++;
    return block;
}
static void counting_release(void *block) {
    alive--;
    free(block);
}

static tensor_status build(void) {
    nn_graph *g = nn_graph_new(&(nn_config){.variant = "flex16+5", .batch = BATCH, .seed = 5, .momentum = 0.9f});
    if (!g)
        return tensor_error_status();
    tensor_status status = nn_compile(g, mixed_network(g, nn_input(g, SIDE, SIDE, CHANNELS), CLASSES));
    nn_graph_free(g);
    return status;
}

static void failing_memory(void) {
    tensor_set_allocator(failing_allocate, counting_release);
    requests = alive = 0;
    CHECK(!build(), "%s", tensor_error());
    const long total = requests, held = alive;
    for (fail_at = 1; fail_at <= total; fail_at++) {
        requests = 0;
        const tensor_status status = build();
        CHECK(status == TENSOR_E_MEMORY, "request %ld of %ld fails: status %d, %s", fail_at, total, (int)status,
              tensor_error());
        CHECK(alive == held, "request %ld of %ld fails: %ld blocks lost", fail_at, total, alive - held);
    }
    fail_at = 0;
    CHECK(total > 200, "only %ld requests", total);
    tensor_set_allocator(NULL, NULL);
}

/* --- what is refused ---------------------------------------------------------------------------------------------- */

static tensor_status same_names(struct fl_node *node, const struct fl_shape *x) {
    TRY(fl_add_output(node, "y", x[0]));
    return fl_add_output(node, "y", x[0]);
}
static tensor_status no_outputs(struct fl_node *node, const struct fl_shape *x) {
    (void)node, (void)x;
    return TENSOR_OK;
}
static tensor_status integers(struct fl_node *node, const struct fl_shape *x) {
    TRY(fl_add_output(node, NULL, x[0]));
    return fl_add_state(node, (struct fl_state){.suffix = "count", .format = FMT_I32, .shape = {1, {1}}});
}
static tensor_status huge(struct fl_node *node, const struct fl_shape *x) {
    TRY(fl_add_output(node, NULL, x[0]));
    return fl_add_state(node, (struct fl_state){.suffix = "table", .shape = {2, {1 << 20, 1 << 20}}});
}
static const struct fl_layer wrong_rows[] = {{"same names", 1, .shape = same_names},
                                             {"no outputs", 1, .shape = no_outputs},
                                             {"integers", 1, .shape = integers},
                                             {"huge", 1, .shape = huge}};

enum wrong { SAME_NAMES, NO_OUTPUTS, INTEGERS, HUGE_STATE, ONE_INPUT, NO_INPUT, NO_HANDLE, NAME_TAKEN, NO_GRADIENT };

static nn_node wrong_network(nn_graph *g, enum wrong which) {
    const struct fl_options none = {0};
    const nn_node x = nn_input(g, SIDE, SIDE, CHANNELS), a = nn_linear(g, "a", x, 4, false);
    nn_node y = a, first;
    switch (which) {
    case SAME_NAMES:
    case NO_OUTPUTS:
    case INTEGERS:
    case HUGE_STATE:
        y = fl_add_node(g, &wrong_rows[which], "wrong", "wrong", &a, 1, &none);
        break;
    case ONE_INPUT:
        y = fl_add_node(g, &mixer_row, "wrong", "wrong", &a, 1, &none);
        break;
    case NO_INPUT:
        y = add_total(g, "wrong", NULL, 0);
        break;
    case NO_HANDLE: /* there is one more handle than nodes */
        y = add_total(g, "wrong", (nn_node[]){add_mixer(g, "m", a, a, a) + 2}, 1);
        break;
    case NAME_TAKEN:
        y = nn_relu(g, "m.sum", add_mixer(g, "m", a, a, a));
        break;
    case NO_GRADIENT: /* that of c would be the gradient of `sum`, which nobody uses */
        first = add_mixer(g, "m", a, a, nn_linear(g, "c", x, 4, false));
        y = nn_relu(g, "r", first);
        break;
    }
    return y;
}

static void refusals(void) {
    static const struct {
        tensor_status status;
        const char *message;
    } want[] = {[SAME_NAMES] = {TENSOR_E_ARGUMENT, "wrong.y: the name is used twice"},
                [NO_OUTPUTS] = {TENSOR_E_ARGUMENT, "wrong: a node without outputs"},
                [INTEGERS] = {TENSOR_E_FORMAT, "wrong: state 'count' is i32, expected f64, f32"},
                [HUGE_STATE] = {TENSOR_E_SHAPE, "wrong: a tensor of 1.1e+12 elements, expected less than 2^40"},
                [ONE_INPUT] = {TENSOR_E_ARGUMENT, "wrong: 1 inputs, expected 3"},
                [NO_INPUT] = {TENSOR_E_ARGUMENT, "wrong: 0 inputs, expected at least 1"},
                [NO_HANDLE] = {TENSOR_E_ARGUMENT, "wrong: input node 6, expected 0 ... 5"},
                [NAME_TAKEN] = {TENSOR_E_ARGUMENT, "m.sum: the name is used twice"},
                [NO_GRADIENT] = {TENSOR_E_ARGUMENT, "'c' has parameters, but no gradient reaches it"}};
    for (int i = 0; i <= NO_GRADIENT; i++) {
        nn_graph *g = empty("fp32", NULL);
        const tensor_status status = nn_compile(g, wrong_network(g, (enum wrong)i));
        CHECK(status == want[i].status && strstr(tensor_error(), want[i].message), "%d: status %d '%s', want %d '%s'",
              i, (int)status, tensor_error(), (int)want[i].status, want[i].message);
        nn_graph_free(g);
    }
}

int main(void) {
    handles();
    for (int i = 0; nn_variant_at(i); i++)
        resumed(nn_variant_at(i)->name);
    states_that_last();
    watched();
    traced();
    refusals();
    failing_memory();
    if (toy_begin((size_t)1 << 32))
        for (int i = 0; nn_variant_at(i); i++)
            on_toy(nn_variant_at(i)->name);
    free(toy.commands);
    return check_summary();
}
