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
    return nn_model_reads_text(model);
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

/* All elements of the weights and momenta, one after the other. */
static double *weights_of(const nn_graph *g, int64_t *count) {
    double *all = NULL;
    *count = 0;
    for (int i = 0; i < nn_tensor_count(g); i++) {
        const nn_tensor_info info = nn_tensor_at(g, i);
        const bool kept = !strcmp(info.role, "weight") || !strcmp(info.role, "momentum");
        const int64_t n = kept ? tensor_count(info.t) : 0;
        if (!n)
            continue;
        all = realloc(all, (size_t)(*count + n) * sizeof *all);
        CHECK(all && !tensor_store_f64(info.t, all + *count, n), "%s: %s", info.name, tensor_error());
        *count += n;
    }
    return all;
}

/* --- trainings ---------------------------------------------------------------------------------------------------- */

/* Trains whole; then as `threads` threads in two pieces, by a checkpoint, with evaluations between that must change
 * nothing. */
static void check_training(const char *model, const char *policy) {
    double loss[STEPS], evaluated, again;
    const nn_batch batch = batch_of(model);
    int64_t count, other_count;
    tensor_set_threads(1);
    nn_graph *g = network(model, policy);
    CHECK(g, "%s: %s", policy, tensor_error());
    if (!g)
        return;
    for (int i = 0; i < STEPS; i++)
        loss[i] = step(g, model);
    CHECK(loss[STEPS - 1] < loss[0], "%s of %s: loss %g after %g", policy, model, loss[STEPS - 1], loss[0]);
    double *whole = weights_of(g, &count);
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
        double *pieces = weights_of(g, &other_count);
        CHECK(count == other_count && !memcmp(whole, pieces, (size_t)count * sizeof *whole),
              "%s of %s: other weights with %d threads", policy, model, threads);
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

/* The values of a step by name, as an observer sees them. */
struct seen {
    char name[40];
    double *values;
    int64_t count;
};
struct all_seen {
    struct seen of[64];
    int count;
};

static void see(const nn_tensor_info *info, void *context) {
    struct all_seen *all = context;
    if (all->count == 64)
        return;
    struct seen *s = &all->of[all->count++];
    snprintf(s->name, sizeof s->name, "%s", info->name);
    s->count = tensor_count(info->t);
    s->values = malloc((size_t)s->count * sizeof *s->values);
    CHECK(!tensor_store_f64(info->t, s->values, s->count), "%s: %s", info->name, tensor_error());
}

static const struct seen *seen_as(const struct all_seen *all, const char *name) {
    for (int i = 0; i < all->count; i++)
        if (!strcmp(all->of[i].name, name))
            return &all->of[i];
    CHECK(false, "no value %s", name);
    exit(check_summary());
}

static void check_values(const struct all_seen *all, const char *name, const tensor *expected) {
    const struct seen *s = seen_as(all, name);
    double *want = malloc((size_t)s->count * sizeof *want);
    CHECK(tensor_count(expected) == s->count && !tensor_store_f64(expected, want, s->count), "%s", tensor_error());
    CHECK(!memcmp(s->values, want, (size_t)s->count * sizeof *want), "%s has other values", name);
    free(want);
}

/* One step of a network from its first weights. */
static void watch_step(struct all_seen *all, const char *policy) {
    const nn_batch batch = batch_of("mlp2");
    nn_graph *g = network("mlp2", policy);
    CHECK(g, "%s: %s", policy, tensor_error());
    if (!g)
        exit(check_summary());
    nn_watch(g, see, all);
    CHECK(!nn_forward(g, &batch) && !nn_backward(g), "%s", tensor_error());
    for (int i = 0; i < nn_tensor_count(g); i++) /* weights before the update */
        if (!strcmp(nn_tensor_at(g, i).role, "weight")) {
            const nn_tensor_info info = nn_tensor_at(g, i);
            see(&info, all);
        }
    nn_graph_free(g);
}

static void forget(struct all_seen *all) {
    for (int i = 0; i < all->count; i++)
        free(all->of[i].values);
}

/* The last layer of mlp2: values, weights and gradients have three formats, and those of the first layer none. */
static void check_by_hand(void) {
    static struct all_seen blocks, plain;
    watch_step(&blocks, "variant fp32; fc2 operands=mx:int8,mx:e3m2/16 gradient-operands=mx:e5m2:rceil;");
    watch_step(&plain, "variant fp32;");
    const struct seen *hidden = seen_as(&plain, "fc1"), *w = seen_as(&plain, "fc2.weight"),
                      *gradient = seen_as(&blocks, "fc2.grad");
    const int64_t k = hidden->count / BATCH, n = w->count / k;
    tensor *x = made(hidden->values, BATCH, k), *weight = made(w->values, k, n), *dy = made(gradient->values, BATCH, n),
           *y = made(NULL, BATCH, n), *dw = made(NULL, k, n), *dx = made(NULL, BATCH, k);
    check_values(&blocks, "fc1", x); /* the layer before has its own bits */
    in_class("operands=mx:int8,mx:e3m2/16");
    CHECK(!tensor_matmul(y, x, weight), "%s", tensor_error());
    check_values(&blocks, "fc2.product", y);
    in_class("operands=mx:int8,mx:e5m2:rceil");
    CHECK(!tensor_matmul_tn(dw, x, dy), "%s", tensor_error());
    check_values(&blocks, "fc2.weight.grad", dw);
    in_class("operands=mx:e5m2:rceil,mx:e3m2/16");
    CHECK(!tensor_matmul_nt(dx, dy, weight), "%s", tensor_error());
    check_values(&blocks, "fc1.grad", dx);
    tensor_set_class(TENSOR_EXACT);
    tensor *all[] = {x, weight, dy, y, dw, dx};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        tensor_free(all[i]);
    forget(&blocks);
    forget(&plain);
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
    refused("lstm-char", "variant fp32; @recurrent operands=mx:int8;", "which only products (@product) have");
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
    check_role("gpt1x32", "fp8-delayed", "head", "operands", "bf16");
    check_role("gpt1x32", "fp8-delayed", "block1.attention.mixture", "gradient-operands", "bf16");
    check_role("gpt1x32", "fp8-delayed", "block1.expand", "operands", "tensor:e4m3fn:delayed");
    check_role("gpt1x32", "fp8-delayed", "block1.expand", "gradient-operands", "tensor:e5m2:delayed");
    check_role("gpt1x32", "fp8-delayed", "block1.expand", "result", "bf16");
    check_role("resnet8", "fp8-current", "fc.product", "operands", "tensor:e4m3fn:current");
    static const char *const presets[] = {"mxint8", "mxfp8", "mxfp8-floor", "mxfp6", "mxfp4", "nvfp4", "hbfp8"};
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
        check_training("resnet8", presets[i]);
        check_training("gpt1x32", presets[i]);
    }
    check_training("mlp2", "variant flex16+5; @product operands=mx:e2m1:stochastic:hadamard;");
    return check_summary();
}
