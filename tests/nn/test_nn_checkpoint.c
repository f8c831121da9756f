/* Checkpoints: a network that was saved and loaded continues with the same bits, in every variant, on another device,
 * in another process; a file that does not fit, or was changed, is refused by name and changes nothing; a process that
 * is killed while it writes leaves a complete file. With an argument, for test_checkpoint.py:
 *
 *     write FOLDER   trains a network of each variant, saves it, and writes the library's description of its values. */
#define _GNU_SOURCE
#include "check.h"
#include "core/base/memory.h"
#include "layer_network.h"
#include "safetensors/safetensors.h"
#include "toy_device.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BATCH = 4, SIDE = 6, CLASSES = 3, STEPS = 6 };

static char folder[200], path[300];
static const char *const variants[] = {"fp32",        "fp16",           "bf16",      "flex16+5",  "dfp16",
                                       "flex16+5-sr", "flex16+5-paper", "fp16:none", "dfp16:none"};
enum { VARIANTS = sizeof variants / sizeof variants[0] };

static long until_failure;   /* 0: none fails */
static size_t largest_block; /* that was requested */

static void *failing(unsigned long size, unsigned long alignment) {
    void *block = NULL;
    largest_block = size > largest_block ? size : largest_block;
    if ((until_failure > 0 && --until_failure == 0) || posix_memalign(&block, alignment, size))
        return NULL;
    return block;
}

static nn_config config_of(const char *variant) {
    static char name[40];
    snprintf(name, sizeof name, "%.*s", (int)tensor_format_extent(variant), variant);
    return (nn_config){.variant = name,
                       .no_master = variant[tensor_format_extent(variant)] == ':',
                       .batch = BATCH,
                       .seed = 7,
                       .momentum = 0.9f,
                       .weight_decay = 1e-3f};
}

static nn_graph *network(const char *variant, const char *device) {
    nn_config config = config_of(variant);
    config.device = device;
    nn_graph *g = nn_graph_new(&config);
    CHECK(g && !nn_compile(g, all_layers(g, CLASSES)), "%s: %s", variant, tensor_error());
    return g;
}

static void train(nn_graph *g, int steps) {
    float images[BATCH * SIDE * SIDE * 2];
    int32_t labels[BATCH], predicted[BATCH];
    double loss;
    for (int i = 0; i < steps; i++) {
        uint64_t seed = nn_steps(g) + 1;
        for (size_t k = 0; k < sizeof images / sizeof *images; k++)
            images[k] = (float)(check_random(&seed) >> 40) * 0x1p-23f - 1;
        for (int k = 0; k < BATCH; k++)
            labels[k] = (int32_t)(check_random(&seed) % CLASSES);
        CHECK(!nn_train_step(NULL, NULL, g, &(nn_batch){.images = images, .labels = labels}, 0.1f), "%s",
              tensor_error());
        CHECK(!nn_evaluate(&loss, predicted, g, &(nn_batch){.images = images, .labels = labels, .count = BATCH}), "%s",
              tensor_error()); /* has exponents too */
    }
}

static unsigned char *state_of(const nn_graph *g) {
    unsigned char *state = malloc(nn_state_bytes(g));
    CHECK(state && !nn_state_save(state, nn_state_bytes(g), g), "%s", tensor_error());
    return state;
}

static bool same_state(const nn_graph *g, const unsigned char *want) {
    unsigned char *got = state_of(g);
    const bool same = !memcmp(got, want, nn_state_bytes(g));
    free(got);
    return same;
}

/* --- going on ------------------------------------------------------------------------------------------------------
 */

static void goes_on(const char *variant, const char *from, const char *to) {
    nn_graph *unbroken = network(variant, from), *other;
    train(unbroken, STEPS);
    CHECK(!nn_checkpoint_save(unbroken, path, NULL, 0), "%s: %s", variant, tensor_error());
    nn_graph *g = nn_checkpoint_graph(path, to);
    CHECK(g && !nn_compile(g, all_layers(g, CLASSES)), "%s: %s", variant, tensor_error());
    CHECK(!nn_checkpoint_load(g, path) && nn_steps(g) == STEPS, "%s: %s", variant, tensor_error());
    char again[320];
    snprintf(again, sizeof again, "%s.again", path);
    CHECK(!nn_checkpoint_save(g, again, NULL, 0), "%s: %s", variant, tensor_error());
    char command[700];
    snprintf(command, sizeof command, "cmp -s '%s' '%s'", path, again);
    CHECK(!system(command), "%s: what was loaded is saved otherwise", variant);
    unlink(again);
    train(unbroken, STEPS);
    train(g, STEPS);
    unsigned char *want = state_of(unbroken);
    CHECK(same_state(g, want), "%s, %s to %s: other bits after %d more steps", variant, from, to, STEPS);
    other = network(variant, to);
    train(other, 2 * STEPS);
    CHECK(same_state(other, want), "%s: on %s an unbroken run differs", variant,
          to); /* otherwise the test proves nothing */
    free(want);
    nn_graph_free(unbroken);
    nn_graph_free(other);
    nn_graph_free(g);
}

/* --- what is refused -----------------------------------------------------------------------------------------------
 */

static void refused(nn_graph *g, const unsigned char *before, tensor_status want, const char *words) {
    const tensor_status status = nn_checkpoint_load(g, path);
    CHECK(status == want && strstr(tensor_error(), words) && strstr(tensor_error(), path),
          "%d: \"%s\", expected \"%s\"", (int)status, tensor_error(), words);
    CHECK(same_state(g, before), "\"%s\" changed the network", words);
}

static nn_node other_layers(nn_graph *g, int how) {
    nn_node x = nn_input(g, SIDE, SIDE, 2);
    x = nn_conv2d(g, "conv1", x, how == 1 ? 5 : 3, 3, &(nn_conv2d_options){.stride = how == 2 ? 2 : 1, .padding = 1});
    x = nn_batchnorm(g, "bn1", x, &(nn_batchnorm_options){.relu = true});
    if (how == 3)
        x = nn_relu(g, "more", x);
    x = nn_avgpool_global(g, "pool", x);
    return nn_linear(g, how == 4 ? "last" : "fc", x, CLASSES, false);
}

static void other_networks(void) {
    static const char *const words[] = {"", "tensor 'conv1.weight.slot'", "other layers or settings ('network.layout'",
                                        "tensor 'more.slot' is missing", "tensor 'last.weight.slot' is missing"};
    nn_graph *g[5];
    for (int i = 0; i < 5; i++) {
        const nn_config config = config_of("flex16+5");
        g[i] = nn_graph_new(&config);
        CHECK(g[i] && !nn_compile(g[i], other_layers(g[i], i)), "%s", tensor_error());
    }
    CHECK(!nn_checkpoint_save(g[0], path, NULL, 0), "%s", tensor_error());
    for (int i = 1; i < 5; i++) {
        unsigned char *before = state_of(g[i]);
        refused(g[i], before, TENSOR_E_DATA,
                i == 1 ? "tensor 'conv1.weight' is I16 [3, 3, 3, 2], expected I16 [5, 3, 3, 2]" : words[i]);
        free(before);
    }
    CHECK(!nn_checkpoint_save(g[3], path, NULL, 0), "%s", tensor_error());
    unsigned char *before = state_of(g[0]);
    refused(g[0], before, TENSOR_E_DATA, "does not belong to the network");
    free(before);
    for (int i = 0; i < 5; i++)
        nn_graph_free(g[i]);
}

static void other_settings(void) {
    nn_graph *g = network("flex16+5", NULL);
    train(g, 1);
    CHECK(!nn_checkpoint_save(g, path, NULL, 0), "%s", tensor_error());
    nn_graph_free(g);
    const struct {
        nn_config config;
        const char *words;
    } cases[] = {
        {{"dfp16", NULL, false, BATCH, 7, 0.9f, 1e-3f, NULL},
         "'network.variant' is 'flex16+5', that of the network is 'dfp16'"},
        {{"flex16+5", "ngraph", false, BATCH, 7, 0.9f, 1e-3f, NULL},
         "'network.predictor' is 'paper', that of the network is 'ngraph'"},
        {{"flex16+5", NULL, true, BATCH, 7, 0.9f, 1e-3f, NULL},
         "'network.master' is 'default', that of the network is 'none'"},
        {{"flex16+5", NULL, false, 2, 7, 0.9f, 1e-3f, NULL}, "'network.batch' is '4', that of the network is '2'"},
        {{"flex16+5", NULL, false, BATCH, 8, 0.9f, 1e-3f, NULL}, "'network.seed' is '7', that of the network is '8'"},
        {{"flex16+5", NULL, false, BATCH, 7, 0.5f, 1e-3f, NULL},
         "'network.momentum' is '0.899999976', that of the network is '0.5'"},
        {{"flex16+5", NULL, false, BATCH, 7, 0.9f, 0, NULL},
         "'network.weight_decay' is '0.00100000005', that of the network is '0'"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        g = nn_graph_new(&cases[i].config);
        CHECK(g && !nn_compile(g, all_layers(g, CLASSES)), "%s", tensor_error());
        unsigned char *before = state_of(g);
        refused(g, before, TENSOR_E_DATA, cases[i].words);
        free(before);
        nn_graph_free(g);
    }
}

/* A copy of the file at `path` with one change: element `at` of a tensor from its bytes, or a note. */
struct change {
    const char *tensor;
    int at;
    int64_t whole;
    double real;
    const char *key, *value; /* value NULL: leaves the note out */
};

static void write_changed(const char *from, const struct change *change) {
    struct fl_safetensors s;
    struct fl_safetensors_out o = {0};
    CHECK(!fl_safetensors_open(&s, from), "%s", tensor_error());
    char *bytes = malloc((size_t)s.data_bytes + 1);
    for (int i = 0; i < s.note_count; i++) {
        const char *value = s.notes[i].value;
        if (change->key && !strcmp(change->key, s.notes[i].key))
            value = change->value;
        if (value && strcmp(s.notes[i].key, FL_CHECKSUM) != 0)
            CHECK(!fl_safetensors_add_note(&o, s.notes[i].key, value), "%s", tensor_error());
    }
    bool found = change->key != NULL;
    for (int i = 0; i < s.count; i++) {
        const struct fl_stored_tensor *t = &s.tensors[i];
        char *to = bytes + t->begin;
        CHECK(!fl_safetensors_read(&s, t, to), "%s", tensor_error());
        if (change->tensor && !strcmp(change->tensor, t->name)) {
            found = true;
            if (change->at < 0)
                continue; /* left out */
            const int size = (int)fl_stored_type_bytes(t->type);
            if (t->type == FL_STORED_F64)
                memcpy(to + 8 * change->at, &change->real, 8);
            else
                memcpy(to + size * change->at, &change->whole, (size_t)size);
        }
        CHECK(!fl_safetensors_add(&o, t->name, t->type, t->ndim, t->dim, to), "%s", tensor_error());
    }
    CHECK(found, "there is no tensor %s", change->tensor);
    CHECK(!fl_safetensors_write(&o, path), "%s", tensor_error());
    fl_safetensors_end(&o);
    fl_safetensors_close(&s);
    free(bytes);
}

static void changed_files(void) {
    nn_graph *g = network("flex16+5", NULL), *other = network("flex16+5", NULL);
    char good[320];
    snprintf(good, sizeof good, "%s.good", path);
    train(g, 3);
    CHECK(!nn_checkpoint_save(g, good, NULL, 0), "%s", tensor_error());
    static const struct {
        struct change change;
        const char *words;
    } cases[] = {
        {{"conv1.weight.slot", 0, 99, 0, NULL, NULL}, "'conv1.weight"},
        {{"conv1.weight.slot", 1, 31, 0, NULL, NULL}, "'conv1.weight"},
        {{"conv1.weight.slot", 2, -7, 0, NULL, NULL}, "'conv1.weight': exponent"},
        {{"conv1.weight.slot", 4, 2, 0, NULL, NULL}, "'conv1.weight': exponent"},
        {{"conv1.weight.slot", 5, -1, 0, NULL, NULL}, "'conv1.weight': number 5 is -1, expected 0 to 32767"},
        {{"conv1.weight.slot", 6, 17, 0, NULL, NULL}, "'conv1.weight': exponent"},
        {{"conv1.weight.slot", 7, 16, 0, NULL, NULL}, "'conv1.weight': exponent"},
        {{"conv1.weight.slot", 12, INT64_MIN, 0, NULL, NULL}, "number 12 is -9223372036854775808"},
        {{"conv1.weight.slot", 13, 32768, 0, NULL, NULL}, "number 13 is 32768, expected 0 to 32767"},
        {{"fc2.grad.slot", 23, INT64_MAX, 0, NULL, NULL}, "'fc2.grad': number 23 is 9223372036854775807"},
        {{"conv1.weight.history", 0, 0, -1, NULL, NULL}, "'conv1.weight': number 0 of its history is -1"},
        {{"conv1.weight.history", 1, 0, __builtin_nan(""), NULL, NULL}, "number 1 of its history is"},
        {{"conv1.weight.history", 2, 0, __builtin_inf(), NULL, NULL},
         "number 2 of its history is inf, expected 0 or more and finite"},
        {{"conv1.weight.history", 16, 0, -2, NULL, NULL}, "number 16 of its history is -2"},
        {{"conv1.weight", 3, -32768, 0, NULL, NULL}, "element 3 of 'conv1.weight' is -32768, expected -32767 to 32767"},
        {{"conv1.weight", 3, 32000, 0, NULL, NULL},
         "'conv1.weight': elements of a flex16+5 tensor are not the rounding"},
        {{"conv1.weight.wide", 3, INT32_MIN, 0, NULL, NULL}, "'conv1.weight': elements of a flex16+5 tensor are not"},
        {{"conv1.weight", -1, 0, 0, NULL, NULL}, "tensor 'conv1.weight' is missing, expected I16 [3, 3, 3, 2]"},
        {{"bn1.running_variance", 2, 0, -1e-300, NULL, NULL},
         "tensor 'bn1.running_variance': element 2 is below 0, expected at least 0"},
        {{"bn1.running_variance", -1, 0, 0, NULL, NULL}, "tensor 'bn1.running_variance' is missing, expected F64 [3]"},
        {{NULL, 0, 0, 0, "conv1.weight.exponent", NULL}, "its metadata have no 'conv1.weight.exponent'"},
        {{NULL, 0, 0, 0, "conv1.weight.exponent", "3"}, "'conv1.weight.exponent' is 3, the slot has"},
        {{NULL, 0, 0, 0, "conv1.weight.wide.exponent", "0x10"},
         "'conv1.weight.wide.exponent' is '0x10', expected a whole number"},
        {{NULL, 0, 0, 0, "network.steps", "-1"}, "'network.steps' is '-1', expected a whole number from 0"},
        {{NULL, 0, 0, 0, "network.steps", "99999999999999999999"}, "'network.steps' is '99999999999999999999'"},
        {{NULL, 0, 0, 0, "network.steps", ""}, "'network.steps' is ''"},
        {{NULL, 0, 0, 0, "network.layout", "0"}, "('network.layout' is '0'"},
        {{NULL, 0, 0, 0, "flexlab.version", NULL}, "its metadata have no 'flexlab.version'"},
        {{NULL, 0, 0, 0, "flexlab.checkpoint", NULL}, "not a flexlab checkpoint"},
        {{NULL, 0, 0, 0, "flexlab.checkpoint", "2"}, "'flexlab.checkpoint' is '2', expected '1'"}};
    unsigned char *before = state_of(other);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_changed(good, &cases[i].change);
        refused(other, before, TENSOR_E_DATA, cases[i].words);
    }
    free(before);
    /* Another version may compute the hash of layers otherwise. */
    char newer[320];
    snprintf(newer, sizeof newer, "%s.newer", path);
    write_changed(good, &(struct change){.key = "flexlab.version", .value = "99.0.0"});
    CHECK(!rename(path, newer), "%s", strerror(errno));
    write_changed(newer, &(struct change){.key = "network.layout", .value = "0"});
    CHECK(!nn_checkpoint_load(other, path) && nn_steps(other) == 3, "%s", tensor_error());
    unlink(newer);
    /* Written unchanged by this test, it loads. */
    write_changed(good, &(struct change){.key = "none"});
    CHECK(!nn_checkpoint_load(other, path) && nn_steps(other) == 3, "%s", tensor_error());
    unlink(good);
    nn_graph_free(g);
    nn_graph_free(other);
}

/* A file with settings of a network: each is one that a network can have. */
static void settings_of_a_file(void) {
    nn_config config = config_of("fp16");
    config.loss_scale = "dynamic:init=2^9,window=4";
    config.input_gradient = true;
    nn_graph *g = nn_graph_new(&config);
    CHECK(g && !nn_compile(g, all_layers(g, CLASSES)), "%s", tensor_error());
    char good[320];
    snprintf(good, sizeof good, "%s.good", path);
    CHECK(!nn_checkpoint_save(g, good, NULL, 0), "%s", tensor_error());
    static const char *const settings[][3] = {{"network.nesterov", "banana", "'banana', expected 0 or 1"},
                                              {"network.nesterov", "", "'', expected 0 or 1"},
                                              {"network.narrow_state", "true", "'true', expected 0 or 1"},
                                              {"network.input_gradient", "yes", "'yes', expected 0 or 1"},
                                              {"network.master", "wide", "'wide', expected default or none"},
                                              {"network.loss_scale", "dynamic:init=3", "init: expected a power of two"},
                                              {"network.momentum", "-1", "'-1', expected a number from 0"},
                                              {"network.seed", "1e3", "'1e3', expected a whole number"},
                                              {"network.batch", "0", "'0', expected a whole number from 1"},
                                              {"network.variant", "fp12", "'fp12'"},
                                              {"network.optimiser", "sdg", "'sdg'"},
                                              {"network.decay", "some", "'some'"}};
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        write_changed(good, &(struct change){.key = settings[i][0], .value = settings[i][1]});
        CHECK(!nn_checkpoint_graph(path, NULL) && strstr(tensor_error(), settings[i][2]), "%s=%s: %s", settings[i][0],
              settings[i][1], tensor_error());
    }
    write_changed(good, &(struct change){.key = "network.input_gradient", .value = "0"});
    nn_graph *without = nn_checkpoint_graph(path, NULL);
    CHECK(without, "%s", tensor_error());
    /* the state of its scaler */
    unsigned char *before = state_of(g);
    static const char key[] = "network.loss_scale.state",
                      *const states[][2] = {
                          {"512 0 0 0", "expected five numbers"},
                          {"512 0 0 0 0 0", "expected five numbers"},
                          {"512  0 0 0 0", "expected five numbers"},
                          {"512 0 0 -1 0", "expected five numbers"},
                          {"512 0 9223372036854775807 9223372036854775807 9223372036854775807", "up to 2^62"},
                          {"512 0 18446744073709551616 0 0", "up to 2^62"},
                          {"512 0 4611686018427387905 0 4611686018427387905", "up to 2^62"},
                          {"", "expected five numbers"},
                          {"nan 0 0 0 0", "a loss scale of"},
                          {"500 0 0 0 0", "a loss scale of"},
                          {"512 4 0 0 0", "a loss scale of"}};
    for (size_t i = 0; i < sizeof states / sizeof *states; i++) {
        write_changed(good, &(struct change){.key = key, .value = states[i][0]});
        refused(g, before, TENSOR_E_DATA, states[i][1]);
    }
    write_changed(good, &(struct change){.key = key, .value = "256 0 4611686018427387904 1 4611686018427387904"});
    nn_loss_scale now;
    CHECK(!nn_checkpoint_load(g, path) && !nn_loss_scale_of(&now, g), "%s", tensor_error());
    CHECK(now.scale == 256 && now.good == 0 && now.skipped == INT64_C(1) << 62 && now.in_a_row == 1, "%g, %lld",
          now.scale, (long long)now.skipped);
    free(before);
    unlink(good);
    nn_graph_free(g);
    nn_graph_free(without);
}

/* Compiles the network of the file at path with this number of classes, which must fail with these words and without a
 * large allocation. */
static void refused_as_told(int64_t limit, int classes, tensor_status want, const char *words) {
    nn_graph *g = nn_checkpoint_graph(path, NULL);
    CHECK(g && (limit < 0 || !nn_graph_limit(g, limit)), "%s", tensor_error());
    largest_block = 0;
    const tensor_status status = nn_compile(g, all_layers(g, classes));
    CHECK(status == want && strstr(tensor_error(), words), "%d: \"%s\", expected \"%s\"", (int)status, tensor_error(),
          words);
    CHECK(largest_block < 1 << 20, "%s: a block of %zu bytes was asked for", words, largest_block);
    nn_graph_free(g);
}

/* The text of a file is neither opened as a name nor trusted with memory. */
static void boasting_files(void) {
    nn_config config = config_of("fp16");
    char good[320], forged[340];
    nn_graph *g = nn_graph_new(&config);
    CHECK(g && !nn_compile(g, all_layers(g, CLASSES)), "%s", tensor_error());
    train(g, 1);
    snprintf(good, sizeof good, "%s.good", path);
    CHECK(!nn_checkpoint_save(g, good, NULL, 0), "%s", tensor_error());
    write_changed(good, &(struct change){.key = "none"});
    refused_as_told(-1, CLASSES + 1, TENSOR_E_DATA, "has the shape");
    refused_as_told(1000, CLASSES, TENSOR_E_MEMORY, "a step of batch 4 takes");
    write_changed(good, &(struct change){.key = "network.batch", .value = "16777216"});
    refused_as_told(-1, CLASSES, TENSOR_E_DATA, "'network.batch' 16777216");
    write_changed(good,
                  &(struct change){.tensor = "input.slot", .at = 17, .whole = INT64_C(16777216) * SIDE * SIDE * 2});
    snprintf(forged, sizeof forged, "%s.forged", path);
    CHECK(!rename(path, forged), "%s", strerror(errno));
    write_changed(forged, &(struct change){.key = "network.batch", .value = "16777216"});
    refused_as_told(-1, CLASSES, TENSOR_E_MEMORY, "a step of batch 16777216 takes");
    unlink(forged);
    unlink(good);
    CHECK(nn_graph_limit(g, 1) == TENSOR_E_ARGUMENT && strstr(tensor_error(), "compiled already"), "%s",
          tensor_error());
    CHECK(nn_graph_limit(NULL, 1) == TENSOR_E_ARGUMENT && nn_graph_limit(g, -1) == TENSOR_E_ARGUMENT, "a limit");
    nn_graph_free(g);
    /* a policy: its rules alone */
    config.policy = "variant fp16; * master=fp32";
    config.variant = NULL;
    g = nn_graph_new(&config);
    CHECK(g && !nn_compile(g, all_layers(g, CLASSES)) && !nn_checkpoint_save(g, good, NULL, 0), "%s", tensor_error());
    static const char *const names[] = {"/", "/dev/null", "/nowhere/at/all", "./policy", ""};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        write_changed(good, &(struct change){.key = "network.policy", .value = names[i]});
        CHECK(!nn_checkpoint_graph(path, NULL) && tensor_error_status() == TENSOR_E_DATA &&
                  strstr(tensor_error(), "'network.policy' is") && strstr(tensor_error(), "expected its rules"),
              "'%s': %s", names[i], tensor_error());
    }
    write_changed(good, &(struct change){.key = "network.policy", .value = "O2"});
    nn_graph *preset = nn_checkpoint_graph(path, NULL);
    CHECK(preset, "a preset: %s", tensor_error());
    nn_graph_free(preset);
    config.policy = "O2"; /* the name stands for its rules: no other policy and no other name is accepted */
    preset = nn_graph_new(&config);
    CHECK(preset && !nn_compile(preset, all_layers(preset, CLASSES)) && !nn_checkpoint_save(preset, good, NULL, 0),
          "%s", tensor_error());
    write_changed(good, &(struct change){.key = "network.policy", .value = "O2"});
    CHECK(!nn_checkpoint_load(preset, path), "a preset by its name: %s", tensor_error());
    static const char *const others[] = {"O3", "O2:bf16", "o2"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        write_changed(good, &(struct change){.key = "network.policy", .value = others[i]});
        CHECK(nn_checkpoint_load(preset, path) == TENSOR_E_DATA && strstr(tensor_error(), others[i]) &&
                  strstr(tensor_error(), "that of the network is 'variant fp16;"),
              "'%s': %s", others[i], tensor_error());
    }
    nn_graph_free(preset);
    nn_graph_free(g);
    unlink(good);
}

/* A network with another loss is refused by name, whatever the version: older files have no notes about the loss. */
static void other_losses(void) {
    nn_config config = config_of("flex16+5");
    config.label_smoothing = 0.25f;
    nn_graph *smooth = nn_graph_new(&config), *plain = network("flex16+5", NULL);
    CHECK(smooth && !nn_compile(smooth, all_layers(smooth, CLASSES)), "%s", tensor_error());
    char good[320];
    snprintf(good, sizeof good, "%s.good", path);
    CHECK(!nn_checkpoint_save(smooth, good, NULL, 0), "%s", tensor_error());
    write_changed(good, &(struct change){.key = "flexlab.version", .value = "99.0.0"});
    unsigned char *before = state_of(plain);
    refused(plain, before, TENSOR_E_DATA, "'network.label_smoothing' is '0.25', that of the network is the default");
    CHECK(!nn_checkpoint_load(smooth, path), "%s", tensor_error());
    free(before);
    unlink(good);
    nn_graph_free(smooth);
    nn_graph_free(plain);
}

/* Any byte of the file may be damaged, and the file may be truncated anywhere. */
static void damaged_files(void) {
    nn_graph *g = network("dfp16", NULL), *other = network("dfp16", NULL);
    train(g, 2);
    CHECK(!nn_checkpoint_save(g, path, NULL, 0), "%s", tensor_error());
    unsigned char *before = state_of(other);
    const int file = open(path, O_RDWR);
    struct stat about;
    CHECK(file >= 0 && !fstat(file, &about), "%s", strerror(errno));
    uint64_t seed = 5;
    /* Under another name the checksum is a note that a program omitted: nothing is compared (docs/checkpoints.md). */
    static const char checksum[] = "flexlab.crc32";
    static char head[1 << 14];
    const ssize_t had = pread(file, head, sizeof head, 0);
    const char *name = had > 0 ? memmem(head, (size_t)had, checksum, strlen(checksum)) : NULL;
    CHECK(name, "no checksum in the first %zd bytes", had);
    for (int i = 0; i < 150; i++) {
        const off_t at = (off_t)(check_random(&seed) % (uint64_t)about.st_size);
        unsigned char byte, changed;
        if (name && at >= name - head && at < name - head + (off_t)strlen(checksum))
            continue;
        CHECK(pread(file, &byte, 1, at) == 1, "read");
        changed = byte ^ (unsigned char)(1 << i % 8);
        CHECK(pwrite(file, &changed, 1, at) == 1, "write");
        CHECK(nn_checkpoint_load(other, path) == TENSOR_E_DATA && strstr(tensor_error(), path), "byte %lld: %s",
              (long long)at, tensor_error());
        CHECK(same_state(other, before), "byte %lld changed the network", (long long)at);
        CHECK(pwrite(file, &byte, 1, at) == 1, "write");
    }
    for (int i = 0; i < 40; i++) {
        char cut[320], command[700];
        snprintf(cut, sizeof cut, "%s.cut", path);
        const long size = (long)(check_random(&seed) % (uint64_t)about.st_size);
        snprintf(command, sizeof command, "head -c %ld '%s' > '%s'", size, path, cut);
        CHECK(!system(command) && nn_checkpoint_load(other, cut) == TENSOR_E_DATA && strstr(tensor_error(), cut),
              "%ld bytes: %s", size, tensor_error());
        unlink(cut);
    }
    CHECK(same_state(other, before), "a cut file changed the network");
    close(file);
    free(before);
    nn_graph_free(g);
    nn_graph_free(other);
}

static void wrong_calls(void) {
    nn_graph *g = network("fp32", NULL);
    const nn_config config = config_of("fp32");
    nn_graph *raw = nn_graph_new(&config);
    char text[40];
    CHECK(nn_checkpoint_save(NULL, path, NULL, 0) == TENSOR_E_ARGUMENT &&
              nn_checkpoint_save(g, NULL, NULL, 0) == TENSOR_E_ARGUMENT &&
              nn_checkpoint_save(g, path, NULL, 1) == TENSOR_E_ARGUMENT &&
              nn_checkpoint_save(g, path, NULL, -1) == TENSOR_E_ARGUMENT &&
              nn_checkpoint_save(raw, path, NULL, 0) == TENSOR_E_ARGUMENT &&
              nn_checkpoint_load(raw, path) == TENSOR_E_ARGUMENT && nn_checkpoint_load(g, NULL) == TENSOR_E_ARGUMENT &&
              !nn_checkpoint_graph(NULL, NULL),
          "NULL and not compiled");
    const nn_note notes[] = {{"author", "somebody \"else\" \xc3\xa9"}, {"empty", ""}};
    CHECK(!nn_checkpoint_save(g, path, notes, 2), "%s", tensor_error());
    CHECK(!nn_checkpoint_note(text, sizeof text, path, "author") && !strcmp(text, notes[0].value), "%s",
          tensor_error());
    CHECK(!nn_checkpoint_note(text, 1, path, "empty") && !text[0], "%s", tensor_error());
    CHECK(!nn_checkpoint_note(text, 5, path, "network.variant") && !strcmp(text, "fp32"), "%s", tensor_error());
    CHECK(nn_checkpoint_note(text, 4, path, "network.variant") == TENSOR_E_ARGUMENT, "no room for fp32");
    CHECK(nn_checkpoint_note(text, 40, path, "nobody") == TENSOR_E_DATA && strstr(tensor_error(), "'nobody'"), "%s",
          tensor_error());
    CHECK(nn_checkpoint_save(g, path, (nn_note[]){{"network.seed", "1"}}, 1) == TENSOR_E_ARGUMENT &&
              strstr(tensor_error(), "'network.seed'"),
          "%s", tensor_error());
    CHECK(nn_checkpoint_save(g, path, (nn_note[]){{"k", NULL}}, 1) == TENSOR_E_ARGUMENT, "a note without a value");
    CHECK(nn_checkpoint_save(g, "/nowhere/file", NULL, 0) == TENSOR_E_IO && strstr(tensor_error(), "/nowhere/file"),
          "%s", tensor_error());
    CHECK(nn_checkpoint_load(g, "/nowhere/file") == TENSOR_E_IO && strstr(tensor_error(), "/nowhere/file"), "%s",
          tensor_error());
    CHECK(!nn_checkpoint_graph(path, "nothing") && tensor_error_status() == TENSOR_E_ARGUMENT, "%s", tensor_error());
    CHECK(!nn_checkpoint_load(g, path), "the refused saves changed the file: %s", tensor_error());
    nn_graph_free(g);
    nn_graph_free(raw);
}

/* --- no memory -----------------------------------------------------------------------------------------------------
 */

static void no_memory(void) {
    nn_graph *g = network("flex16+5", NULL), *other = network("flex16+5", NULL);
    train(g, 2);
    CHECK(!nn_checkpoint_save(g, path, NULL, 0), "%s", tensor_error());
    unsigned char *before = state_of(other);
    long failures = 0;
    for (long n = 1;; n += 1 + n / 20) {
        until_failure = n;
        const tensor_status status = nn_checkpoint_save(g, path, NULL, 0);
        const bool met = until_failure == 0;
        until_failure = 0;
        CHECK(status == (met ? TENSOR_E_MEMORY : TENSOR_OK), "save, request %ld: %s", n, tensor_error());
        failures += met;
        if (!met)
            break;
        CHECK(!nn_checkpoint_load(g, path), "request %ld: the file before is gone: %s", n, tensor_error());
    }
    for (long n = 1;; n++) {
        until_failure = n;
        const tensor_status status = nn_checkpoint_load(other, path);
        const bool met = until_failure == 0;
        until_failure = 0;
        CHECK(status == (met ? TENSOR_E_MEMORY : TENSOR_OK), "load, request %ld: %s", n, tensor_error());
        failures += met;
        if (!met)
            break;
        CHECK(same_state(other, before), "request %ld: the network has changed", n);
        n += n / 20;
    }
    CHECK(failures > 20, "%ld failures", failures);
    free(before);
    nn_graph_free(g);
    nn_graph_free(other);
}

/* --- killed while it writes ----------------------------------------------------------------------------------------
 */

static void killed(int times) {
    nn_graph *g = network("flex16+5-sr", NULL);
    uint64_t seed = (uint64_t)time(NULL);
    const uint64_t first_seed = seed;
    CHECK(!nn_checkpoint_save(g, path, NULL, 0), "%s", tensor_error());
    int parts = 0;
    for (int i = 0; i < times; i++) {
        const pid_t child = fork();
        if (child == 0) {
            for (;;)
                if (nn_checkpoint_save(g, path, NULL, 0))
                    _exit(1);
        }
        const long nanoseconds = (long)(check_random(&seed) % 6000000);
        nanosleep(&(struct timespec){0, nanoseconds}, NULL);
        kill(child, SIGKILL);
        int state;
        CHECK(waitpid(child, &state, 0) == child && WIFSIGNALED(state), "the writer ended by itself: %d", state);
        char part[320];
        snprintf(part, sizeof part, "%s.part", path);
        parts += !access(part, F_OK);
        CHECK(!nn_checkpoint_load(g, path), "seed %llu, time %d, after %ld ns: %s", (unsigned long long)first_seed, i,
              nanoseconds, tensor_error());
    }
    CHECK(parts > 0, "none of %d was killed while it wrote", times);
    char part[320];
    snprintf(part, sizeof part, "%s.part", path);
    unlink(part);
    nn_graph_free(g);
}

/* --- for Python ----------------------------------------------------------------------------------------------------
 */

static void tell(FILE *file, const char *name, const char *kind, const double *values, int64_t count) {
    fprintf(file, "%s %s", name, kind);
    for (int64_t i = 0; i < count; i++)
        fprintf(file, " %a", values[i]);
    fputc('\n', file);
}

static void tell_tensor(FILE *file, const nn_tensor_info *info) {
    const int64_t count = tensor_count(info->t);
    double *values = malloc((size_t)count * sizeof *values);
    tensor_stats last, total;
    CHECK(!tensor_store_f64(info->t, values, count), "%s", tensor_error());
    tell(file, info->name, "values", values, count);
    CHECK(!tensor_store_wide_f64(info->t, values, count), "%s", tensor_error());
    tell(file, info->name, "wide", values, count);
    CHECK(!tensor_statistics(&last, &total, info->t), "%s", tensor_error());
    tell(file, info->name, "statistics",
         (const double[]){last.gamma, (double)last.saturated, (double)last.flushed, (double)last.nonfinite,
                          (double)last.elements, (double)last.writes, total.gamma, (double)total.saturated,
                          (double)total.flushed, (double)total.nonfinite, (double)total.elements, (double)total.writes,
                          last.maximum, total.maximum},
         14);
    const struct autoflex *a = tensor_autoflex(info->t);
    if (a) {
        tell(file, info->name, "history", a->history, AUTOFLEX_WINDOW);
        tell(file, info->name, "autoflex",
             (const double[]){tensor_exponent(info->t), a->e, a->e_min, a->e_max, a->initialised, a->written, a->count,
                              a->next, (double)a->overflows, (double)a->clamped_low, (double)a->clamped_high,
                              (double)a->zero_writes, a->predicted},
             13);
    }
    free(values);
}

static int write_all(const char *where) {
    for (int i = 0; i < VARIANTS; i++) {
        nn_graph *g = network(variants[i], NULL);
        train(g, STEPS);
        snprintf(path, sizeof path, "%s/%s.safetensors", where, variants[i]);
        CHECK(!nn_checkpoint_save(g, path, (nn_note[]){{"author", "\xc3\xa9\"\\\n"}}, 1), "%s", tensor_error());
        snprintf(path, sizeof path, "%s/%s.txt", where, variants[i]);
        FILE *file = fopen(path, "w");
        for (int k = 0; k < nn_tensor_count(g) && file; k++) {
            const nn_tensor_info info = nn_tensor_at(g, k);
            if (!strcmp(info.role, "weight") || !strcmp(info.role, "momentum"))
                tell_tensor(file, &info);
        }
        CHECK(file && !fclose(file), "%s", strerror(errno));
        nn_graph_free(g);
    }
    return check_summary();
}

int main(int argc, char **argv) {
    tensor_set_allocator(failing, free);
    if (argc == 3 && !strcmp(argv[1], "write"))
        return write_all(argv[2]);
    snprintf(folder, sizeof folder, "/tmp/flexlab-checkpoint-%ld", (long)getpid());
    if (mkdir(folder, 0700))
        return 1;
    snprintf(path, sizeof path, "%s/checkpoint.safetensors", folder);
    if (argc == 3 && !strcmp(argv[1], "kill")) {
        killed(atoi(argv[2]));
    } else {
        const bool toy_is_there = toy_begin((size_t)1 << 30);
        goes_on("e4m3fn", "cpu", "cpu"); /* bytes, and words of 16 bits */
        goes_on("e6m5", "cpu", "cpu");
        goes_on("e5m2-sr", "cpu", "cpu");
        goes_on("tensor:e4m3fn", "cpu", "cpu"); /* with exponents and their history */
        goes_on("tensor:e3m8-sr", "cpu", "cpu");
        for (int i = 0; i < VARIANTS; i++) {
            goes_on(variants[i], "cpu", "cpu");
            if (toy_is_there)
                goes_on(variants[i], i % 2 ? "toy" : "cpu", i % 2 ? "cpu" : "toy");
        }
        other_networks();
        other_settings();
        changed_files();
        settings_of_a_file();
        boasting_files();
        other_losses();
        damaged_files();
        wrong_calls();
        no_memory();
        killed(60);
    }
    unlink(path);
    CHECK(!rmdir(folder), "%s: %s", folder, strerror(errno));
    return check_summary();
}
