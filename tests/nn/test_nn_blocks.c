/* Policies with operands in blocks: which block formats the products of each layer have, what is refused, and trainings
 * that give the same bits for every number of threads and instruction set, and after they were resumed. The witness of
 * a step is the same step made of public operations in classes that this test names itself. */
#include "check.h"
#include "flexlab/nn.h"
#include "flexlab/tensor.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 8, SIDE = 8, CLASSES = 5, LENGTH = 8, WORDS = 11, STEPS = 4 };

static float images[BATCH * SIDE * SIDE * 3];
static int32_t labels[BATCH], tokens[BATCH * LENGTH], next[BATCH * LENGTH];

static void make_data(void) {
    uint64_t state = 5;
    for (int i = 0; i < BATCH * SIDE * SIDE * 3; i++)
        images[i] = (float)(check_random(&state) >> 40) * 0x1p-24f - 0.5f;
    for (int i = 0; i < BATCH; i++)
        labels[i] = i % CLASSES;
    for (int i = 0; i < BATCH * LENGTH; i++) {
        tokens[i] = (int32_t)(i * 7 % WORDS);
        next[i] = (int32_t)((i + 1) * 7 % WORDS);
    }
}

static bool is_text(const char *model) {
    return !strncmp(model, "gpt", 3);
}

static nn_batch batch_of(const char *model) {
    return is_text(model) ? (nn_batch){.tokens = tokens, .labels = next, .count = BATCH}
                          : (nn_batch){.images = images, .labels = labels, .count = BATCH};
}

/* NULL where it is refused, with the message set. */
static nn_graph *network(const char *model, const char *policy) {
    nn_graph *g = nn_graph_new(&(nn_config){.policy = policy, .batch = BATCH, .seed = 3, .momentum = 0.9f});
    const nn_node logits = !g               ? -1
                           : is_text(model) ? nn_model_text(g, model, LENGTH, WORDS)
                                            : nn_model(g, model, SIDE, SIDE, 3, CLASSES);
    if (g && !nn_compile(g, logits))
        return g;
    nn_graph_free(g);
    return NULL;
}

static double step(nn_graph *g, const char *model) {
    const nn_batch batch = batch_of(model);
    double loss = 0;
    CHECK(!nn_train_step(&loss, NULL, g, &batch, 0.05f), "%s: %s", model, tensor_error());
    CHECK(tensor_result_class() == TENSOR_EXACT, "%s: the class remained", model);
    return loss;
}

/* All that the next step depends on. */
static void *state_of(const nn_graph *g, size_t *bytes) {
    *bytes = nn_state_bytes(g);
    void *state = malloc(*bytes);
    CHECK(state && !nn_state_save(state, *bytes, g), "%s", tensor_error());
    return state;
}

/* --- trainings ---------------------------------------------------------------------------------------------------- */

/* Trains whole; then as `threads` threads in two pieces, by a checkpoint, with evaluations between that must change
 * nothing. */
static void check_training(const char *model, const char *policy) {
    double loss[STEPS], evaluated, again;
    const nn_batch batch = batch_of(model);
    size_t bytes, other_bytes;
    tensor_set_threads(1);
    nn_graph *g = network(model, policy);
    CHECK(g, "%s: %s", policy, tensor_error());
    if (!g)
        return;
    for (int i = 0; i < STEPS; i++)
        loss[i] = step(g, model);
    CHECK(loss[STEPS - 1] < loss[0], "%s of %s: loss %g after %g", policy, model, loss[STEPS - 1], loss[0]);
    void *whole = state_of(g, &bytes);
    CHECK(!nn_evaluate(&evaluated, NULL, g, &batch), "%s", tensor_error());
    nn_graph_free(g);
    static const char *const caps[] = {NULL, "portable", "avx2"};
    for (int threads = 1; threads <= 3; threads++) {
        tensor_set_threads(threads);
        CHECK(!tensor_set_backend(caps[threads - 1]), "%s", tensor_error());
        g = network(model, policy);
        for (int i = 0; i < STEPS; i++) {
            const double mine = step(g, model);
            CHECK(mine == loss[i], "%s of %s: step %d with %d threads: %.17g, not %.17g", policy, model, i, threads,
                  mine, loss[i]);
            CHECK(!nn_evaluate(&again, NULL, g, &batch), "%s", tensor_error());
            if (i != STEPS / 2)
                continue;
            CHECK(!nn_checkpoint_save(g, "blocks.safetensors", NULL, 0), "%s", tensor_error());
            nn_graph_free(g);
            g = network(model, policy);
            CHECK(!nn_checkpoint_load(g, "blocks.safetensors"), "%s: %s", policy, tensor_error());
        }
        CHECK(again == evaluated, "%s of %s: evaluation %.17g, not %.17g", policy, model, again, evaluated);
        void *pieces = state_of(g, &other_bytes);
        CHECK(bytes == other_bytes && !memcmp(whole, pieces, bytes), "%s of %s: another state with %d threads", policy,
              model, threads);
        free(pieces);
        nn_graph_free(g);
    }
    free(whole);
    remove("blocks.safetensors");
    tensor_set_backend(NULL);
    tensor_set_threads(1);
}

/* --- one layer, by hand ------------------------------------------------------------------------------------------- */

static tensor *made(const double *values, int64_t rows, int64_t columns) {
    tensor *t = tensor_new(FMT_FP32, TENSOR_SHAPE(rows, columns));
    if (values)
        CHECK(!tensor_load_f64(t, values, rows * columns), "%s", tensor_error());
    return t;
}

static void in_class(const char *name) {
    tensor_class class = TENSOR_EXACT;
    CHECK(!tensor_class_find(&class, name) && !tensor_set_class(class), "%s: %s", name, tensor_error());
}

static const tensor *tensor_named(const nn_graph *g, const char *name) {
    for (int i = 0; i < nn_tensor_count(g); i++)
        if (!strcmp(nn_tensor_at(g, i).name, name))
            return nn_tensor_at(g, i).t;
    CHECK(false, "no tensor %s", name);
    return NULL;
}

static void check_values(const nn_graph *g, const char *name, const tensor *expected) {
    const tensor *t = tensor_named(g, name);
    const int64_t count = tensor_count(expected);
    if (!t)
        return;
    double *got = malloc((size_t)count * sizeof *got), *want = malloc((size_t)count * sizeof *want);
    CHECK(tensor_count(t) == count && !tensor_store_f64(t, got, count) && !tensor_store_f64(expected, want, count),
          "%s: %s", name, tensor_error());
    CHECK(!memcmp(got, want, (size_t)count * sizeof *got), "%s has other values", name);
    free(got);
    free(want);
}

/* mlp2's first layer: [8, 192] by [192, n]. Values, weights and gradients have three formats. */
static void check_by_hand(void) {
    static const char policy[] = "variant fp32; fc2 operands=mx:int8,mx:e3m2/16 gradient-operands=mx:e5m2:rceil;";
    nn_graph *g = network("mlp2", policy), *plain = network("mlp2", "variant fp32;");
    CHECK(g && plain, "%s", tensor_error());
    if (!g || !plain)
        return;
    const nn_batch batch = batch_of("mlp2");
    CHECK(!nn_forward(g, &batch) && !nn_forward(plain, &batch), "%s", tensor_error());
    const tensor *hidden = tensor_named(plain, "fc1"), *w = tensor_named(plain, "fc2.weight");
    check_values(g, "fc1", hidden); /* the layer before has its bits */
    const int64_t k = tensor_dim(w, 0), n = tensor_dim(w, 1);
    tensor *y = made(NULL, BATCH, n), *dw = made(NULL, k, n), *dx = made(NULL, BATCH, k);
    in_class("operands=mx:int8,mx:e3m2/16");
    CHECK(!tensor_matmul(y, hidden, w), "%s", tensor_error());
    tensor_set_class(TENSOR_EXACT);
    check_values(g, "fc2.product", y);
    double *values = malloc((size_t)(BATCH * n) * sizeof *values), *weights = malloc((size_t)(k * n) * sizeof *weights);
    CHECK(!tensor_store_f64(w, weights, k * n), "%s", tensor_error());
    CHECK(!nn_backward(g), "%s", tensor_error());
    CHECK(!tensor_store_f64(tensor_named(g, "fc2.grad"), values, BATCH * n), "%s", tensor_error());
    tensor *dy = made(values, BATCH, n);
    in_class("operands=mx:int8,mx:e5m2:rceil");
    CHECK(!tensor_matmul_tn(dw, hidden, dy), "%s", tensor_error());
    in_class("operands=mx:e5m2:rceil,mx:e3m2/16");
    CHECK(!tensor_matmul_nt(dx, dy, w), "%s", tensor_error());
    tensor_set_class(TENSOR_EXACT);
    check_values(g, "fc2.weight.grad", dw);
    free(values);
    free(weights);
    tensor *all[] = {y, dw, dx, dy};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        tensor_free(all[i]);
    nn_graph_free(g);
    nn_graph_free(plain);
}

/* --- roles and messages ------------------------------------------------------------------------------------------- */

static void check_role(const char *model, const char *policy, const char *layer, const char *role, const char *want) {
    nn_graph *g = network(model, policy);
    CHECK(g, "%s: %s", policy, tensor_error());
    const char *got = NULL;
    for (int i = 0; g && i < nn_role_row_count(g); i++)
        if (!strcmp(nn_role_row_at(g, i).name, layer))
            got = nn_role(g, i, role);
    CHECK(got && !strcmp(got, want), "%s: %s of %s is %s, not %s", policy, role, layer, got ? got : "none", want);
    nn_graph_free(g);
}

static void refused(const char *model, const char *policy, const char *words) {
    nn_graph *g = network(model, policy);
    CHECK(!g && strstr(tensor_error(), words), "%s: '%s', expected '%s'", policy, g ? "taken" : tensor_error(), words);
    nn_graph_free(g);
}

static void check_refusals(void) {
    static const char *const cases[][2] = {
        {"variant fp32; @product operands=mx:int9;", "mx:int9"},
        {"variant fp32; @product operands=mx:int8:round;", "round"},
        {"variant fp32; *.weight weights=mx:int8;", "'mx:int8' is a block format, which tensors do not have"},
        {"variant fp32; * activations=nvfp4;", "'nvfp4' is a block format"},
        {"variant fp32; @product result=mx:e4m3fn;", "'mx:e4m3fn' is a block format"},
        {"variant fp32; @product operands=nvfp4:square;", "square, which only weights have"},
        {"variant fp32; @product operands=nvfp4,nvfp4:hadamard;", "hadamard, expected in both operands"},
        {"variant fp32; @product gradient-operands=mx:int8;", "but operands are in no blocks"},
        {"variant fp32; @product operands=mx:int8 gradient-operands=bf16;", "expected both in blocks or none"},
        {"variant fp32; @product operands=mx:int8 gradient-operands=mx:int8,mx:int8;", "expected one block format"},
        {"variant fp32; @product operands=mx:int8; accumulate h100;", "accumulate=h100 and operands in blocks"},
        {"variant fp32; @norm operands=mx:int8;", "which only products (@product) have"},
        {"variant fp32; @product operands=fp16 gradient-operands=dfp16;", "expected two formats of one kind"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refused("resnet8", cases[i][0], cases[i][1]);
    refused("lstm", "variant fp32; @recurrent operands=mx:int8;", "which only products (@product) have");
}

/* --- classes ------------------------------------------------------------------------------------------------------ */

static void check_classes(void) {
    static const char *const names[] = {"operands=mx:int8", "operands=mx:e4m3fn,mx:e5m2:rceil", "operands=nvfp4",
                                        "operands=nvfp4:stochastic,nvfp4:square", "operands=hbfp:int8/64"};
    tensor_class class[5], again, both;
    for (int i = 0; i < 5; i++) {
        CHECK(!tensor_class_find(&class[i], names[i]), "%s", tensor_error());
        CHECK(!strcmp(tensor_class_name(class[i]), names[i]), "%s became %s", names[i], tensor_class_name(class[i]));
        CHECK(!tensor_class_find(&again, names[i]) && again == class[i], "%s has two numbers", names[i]);
        for (int k = 0; k < i; k++)
            CHECK(class[k] != class[i], "%s and %s are one class", names[k], names[i]);
    }
    CHECK(!tensor_class_find(&both, "operands=mx:int8,mx:int8:floor/32") || strstr(tensor_error(), "character"), "%s",
          tensor_error());
    CHECK(!tensor_class_find(&both, "operands=mx:int8/32:floor,mx:int8") && both == class[0], "%s", tensor_error());
    CHECK(!tensor_class_name((tensor_class)0x40000fff) && tensor_set_class((tensor_class)0x40000fff), "no such class");
    CHECK(tensor_class_find(&both, "operands=") && tensor_class_find(&both, "operands=mx:int8,") &&
              tensor_class_find(&both, "operands=fp16") && tensor_class_find(&both, "operands=mx:int8,mx:int8,mx:int8"),
          "a class without blocks");
    double bits = 0;
    for (int i = 0; tensor_block_format_at(i); i++)
        CHECK(!tensor_block_format_bits(&bits, tensor_block_format_at(i)) && bits > 4 && bits < 9, "%s: %g bits",
              tensor_block_format_at(i), bits);
    CHECK(!tensor_block_format_bits(&bits, "mx:int8") && bits == 8.25, "%g bits", bits);
    CHECK(tensor_block_format_bits(&bits, "mx:") == TENSOR_E_ARGUMENT, "mx: was taken");
}

/* A whole LSTM is one operation, which has its own bits in any class of products. */
static void check_recurrent(void) {
    enum { STEPS_OF = 3, N = 2, H = 4 };
    double values[STEPS_OF * N * 4 * H], found[2][STEPS_OF * N * H];
    uint64_t state = 9;
    for (int i = 0; i < STEPS_OF * N * 4 * H; i++)
        values[i] = (double)(check_random(&state) >> 40) * 0x1p-24 - 0.5;
    for (int run = 0; run < 2; run++) {
        tensor *x = tensor_new(FMT_FP32, TENSOR_SHAPE(STEPS_OF, N, 4 * H)), *u = made(values, H, 4 * H),
               *y = tensor_new(FMT_FP32, TENSOR_SHAPE(STEPS_OF, N, H)),
               *c = tensor_new(FMT_FP32, TENSOR_SHAPE(STEPS_OF, N, H)),
               *gates = tensor_new(FMT_FP32, TENSOR_SHAPE(STEPS_OF, N, 4 * H)), *zero = made(NULL, N, H);
        CHECK(!tensor_load_f64(x, values, STEPS_OF * N * 4 * H), "%s", tensor_error());
        if (run)
            in_class("operands=mx:e2m1");
        CHECK(!tensor_lstm(y, c, gates, x, u, zero, zero), "%s", tensor_error());
        CHECK(!run || strcmp(tensor_class_name(tensor_result_class()), "exact"), "the class was lost");
        tensor_set_class(TENSOR_EXACT);
        CHECK(!tensor_store_f64(y, found[run], STEPS_OF * N * H), "%s", tensor_error());
        tensor *all[] = {x, u, y, c, gates, zero};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            tensor_free(all[i]);
    }
    CHECK(!memcmp(found[0], found[1], sizeof found[0]), "blocks changed an LSTM");
}

/* Gradients as operands in a tensor format of their own, by conversions. */
static void check_tensor_formats(void) {
    nn_graph *g = network("mlp2", "variant fp32; @product operands=fp16 gradient-operands=bf16 result=fp32;");
    CHECK(g, "%s", tensor_error());
    if (!g)
        return;
    CHECK(step(g, "mlp2") > 0, "no loss");
    int found = 0;
    for (int i = 0; i < nn_tensor_count(g); i++) {
        const nn_tensor_info info = nn_tensor_at(g, i);
        found += !strcmp(info.role, "gradient") && tensor_format_of(info.t) == FMT_BF16;
        CHECK(strcmp(info.role, "activation") || tensor_format_of(info.t) != FMT_BF16, "%s is bf16", info.name);
    }
    CHECK(found == 2, "%d gradients in bf16, expected one of each product", found);
    nn_graph_free(g);
}

int main(void) {
    make_data();
    check_classes();
    check_recurrent();
    check_by_hand();
    check_tensor_formats();
    check_refusals();
    check_role("resnet8", "mxint8", "fc.product", "operands", "mx:int8");
    check_role("resnet8", "mxint8", "fc.product", "gradient-operands", "mx:int8");
    check_role("resnet8", "mxfp4", "fc.product", "operands", "mx:e3m2,mx:e2m1");
    check_role("resnet8", "nvfp4", "fc.product", "operands", "bf16");
    check_role("gpt1x32", "nvfp4", "block1.expand", "operands", "nvfp4,nvfp4:square");
    check_role("gpt1x32", "nvfp4", "block1.expand", "gradient-operands", "nvfp4:stochastic:hadamard");
    check_role("gpt1x32", "nvfp4", "block1.attention.scores", "operands", "bf16");
    check_role("gpt1x32", "mxint8", "block1.attention.scores", "operands", "mx:int8");
    check_role("gpt1x32", "mxfp8", "head", "operands", "bf16");
    static const char *const presets[] = {"mxint8", "mxfp8", "mxfp8-floor", "mxfp6", "mxfp4", "nvfp4", "hbfp8"};
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
        check_training("resnet8", presets[i]);
        check_training("gpt1x32", presets[i]);
    }
    check_training("mlp2", "variant flex16+5; @product operands=mx:e2m1:stochastic:hadamard;");
    return check_summary();
}
