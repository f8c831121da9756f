/* Networks of nn.h as programs: outputs are those of the network in evaluation, for every model by name and every kind
 * of layer, with random weights and statistics, in several batches; formats and exponents come along; what is refused.
 */
#include "check.h"
#include "layer_network.h"
#include "flexlab/program.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 5 };

/* --- random weights ----------------------------------------------------------------------------------------------- */

static bool is(const char *name, const char *end) {
    const size_t length = strlen(name), last = strlen(end);
    return length >= last && !strcmp(name + length - last, end);
}

/* Every number that evaluation reads: so that activations neither vanish nor grow, factors are near 1. */
static void randomise(nn_graph *g) {
    nn_weight_info w;
    for (int i = 0; (w = nn_weight_at(g, i)).name; i++) {
        int64_t count = 1;
        for (int d = 0; d < w.ndim; d++)
            count *= w.dim[d];
        const bool factor = is(w.name, ".gamma"), variance = is(w.name, ".running_variance");
        if (!factor && !variance && !is(w.name, ".bias") && !is(w.name, ".beta") && !is(w.name, ".running_mean"))
            continue; /* initial weights are random */
        char name[300];
        snprintf(name, sizeof name, "%s", w.name);
        double *const v = malloc((size_t)count * sizeof *v);
        nn_normal_numbers(v, count, 7, name);
        for (int64_t k = 0; k < count; k++)
            v[k] = factor ? 1 + 0.2 * v[k] : variance ? exp(0.5 * v[k]) : 0.1 * v[k];
        CHECK(!nn_weight_set(g, name, v, count), "%s", tensor_error());
        free(v);
    }
}

/* --- outputs ------------------------------------------------------------------------------------------------------ */

struct expected {
    const char *what;
    double tolerance; /* of the largest magnitude; 0: every bit */
};

static double run(const struct expected *e, program *p, const program_array *in, const double *logits, int64_t each) {
    program_array out;
    double largest = 0, error = 0;
    const int64_t batch = in->shape[0];
    if (program_run(p, &out, in)) {
        CHECK(0, "%s, batch %d: %s", e->what, (int)batch, tensor_error());
        return 0;
    }
    int64_t count = 1;
    for (int d = 0; d < out.ndim; d++)
        count *= out.shape[d];
    CHECK(count == batch * each, "%s: %lld numbers, expected %lld", e->what, (long long)count,
          (long long)(batch * each));
    for (int64_t i = 0; i < count && count == batch * each; i++) {
        const double difference = fabs((double)((const float *)out.data)[i] - logits[i]);
        largest = fmax(largest, fabs(logits[i]));
        error = difference > error || isnan(difference) ? difference : error;
    }
    CHECK(largest > 0 && error <= e->tolerance * largest, "%s, batch %d: differs by %g of %g", e->what, (int)batch,
          error, largest);
    return error / largest;
}

/* Compares a compiled network with its program, for batches of 1, 2 and all. */
static void compare(nn_graph *g, nn_node logits, const struct expected *e, const int64_t *shape, int ndim,
                    int vocabulary, int classes) {
    program *p = NULL;
    int64_t each = 1;
    for (int d = 1; d < ndim; d++)
        each *= shape[d];
    float *const x = malloc((size_t)(BATCH * each) * sizeof *x);
    int32_t *const tokens = malloc((size_t)(BATCH * each) * sizeof *tokens);
    double *const v = malloc((size_t)(BATCH * each) * sizeof *v);
    nn_normal_numbers(v, BATCH * each, 3, "images");
    for (int64_t i = 0; i < BATCH * each; i++) {
        x[i] = (float)v[i];
        tokens[i] = vocabulary ? (int32_t)(fabs(v[i]) * 1e6) % vocabulary : 0;
    }
    const bool compiled = g && logits >= 0 && !nn_compile(g, logits);
    CHECK(compiled, "%s: %s", e->what, tensor_error());
    if (compiled) {
        randomise(g);
        const int64_t numbers = classes * nn_label_count(g);
        double *const y = malloc((size_t)numbers * sizeof *y);
        CHECK(!nn_predict(
                  y, g,
                  &(nn_batch){.images = vocabulary ? NULL : x, .tokens = vocabulary ? tokens : NULL, .count = BATCH}),
              "%s: %s", e->what, tensor_error());
        CHECK(!program_from_graph(&p, g), "%s: %s", e->what, tensor_error());
        if (p)
            for (int batch = 1; batch <= BATCH; batch += batch == 1 ? 1 : 3) {
                program_array in = {vocabulary ? TENSOR_TYPE_I32 : TENSOR_TYPE_F32,
                                    ndim,
                                    {batch},
                                    vocabulary ? (void *)tokens : (void *)x};
                memcpy(in.shape + 1, shape + 1, (size_t)(ndim - 1) * sizeof *shape);
                printf("%-20s batch %d: %.3g\n", e->what, batch, run(e, p, &in, y, numbers / BATCH));
            }
        program_free(p);
        free(y);
    }
    free(v);
    free(tokens);
    free(x);
    nn_graph_free(g);
}

static nn_graph *new_graph(const char *variant) {
    return nn_graph_new(&(nn_config){.variant = variant, .batch = BATCH, .seed = 1});
}

static void test_models(void) {
    for (int i = 0; nn_model_at(i); i++) {
        nn_graph *const g = new_graph("fp32");
        compare(g, nn_model(g, nn_model_at(i), 32, 32, 3, 10), &(struct expected){nn_model_at(i), 1e-5},
                (const int64_t[]){BATCH, 32, 32, 3}, 4, 0, 10);
    }
    for (int i = 0; nn_text_model_at(i); i++) {
        nn_graph *const g = new_graph("fp32");
        compare(g, nn_model_text(g, nn_text_model_at(i), 16, 65), &(struct expected){nn_text_model_at(i), 1e-5},
                (const int64_t[]){BATCH, 16}, 2, 65, 65);
    }
}

/* --- layers that no model has ------------------------------------------------------------------------------------- */

static nn_node image_layers(nn_graph *g) {
    nn_node x = nn_input(g, 9, 7, 4);
    x = nn_conv2d(
        g, "two", x, 6, 0,
        &(nn_conv2d_options){
            .bias = true,
            .window = &(tensor_window2d){
                .window = {3, 2}, .stride = {1, 2}, .padding = {1, 0, 0, 1}, .dilation = {2, 1}, .groups = 2}});
    x = nn_leaky_relu(g, "leaky", x, 0.125f);
    x = nn_conv_transpose2d(
        g, "up", x, 4, 3,
        &(nn_conv2d_options){.stride = 2, .padding = 1, .output_padding = 1, .groups = 2, .bias = true});
    x = nn_maxpool2d(g, "wide", x, 3, &(nn_pool2d_options){.stride = 2, .padding = 1});
    x = nn_clamp(g, "clamp", nn_channel_scale(g, "scale", x), -1, 2);
    nn_node mean = nn_reduce_mean(g, "mean", x, 6, true);
    x = nn_broadcast_mul(g, "mul", nn_broadcast_add(g, "plus", x, mean), mean);
    x = nn_depthwise_separable(g, "separable", x, 6, 1);
    x = nn_lstm(g, "lstm", x, 5); /* of the lines */
    x = nn_last_step(g, "last", x);
    return nn_linear(g, "fc", x, 4, false);
}

static nn_node sequence_layers(nn_graph *g) {
    nn_node x = nn_embedding(g, "embedding", nn_tokens(g, 12, 30), 8, 1);
    x = nn_conv1d(g, "causal", x, 8, &(tensor_window1d){.window = 3, .padding = {2, 0}}, true);
    x = nn_maxpool1d(g, "half", x, &(tensor_window1d){.window = 2, .stride = 2});
    x = nn_conv_transpose1d(g, "double", x, 8, &(tensor_window1d){.window = 2, .stride = 2}, false);
    x = nn_groupnorm(g, "groups", x, 2, 1e-3);
    x = nn_attention(g, "attention", x, 2, false);
    x = nn_transformer_block(g, "block", x, &(nn_transformer){.heads = 4, .rmsnorm = true, .activation = "silu"});
    x = nn_linear(g, "hidden", x, 8, true);
    x = nn_layernorm(g, "norm", nn_gru(g, "gru", x, 6));
    return nn_linear(g, "head", x, 30, false);
}

/* Each function of its own numbers, which are above 0 for the logarithm and the root. */
static nn_node functions(nn_graph *g) {
    nn_node x = nn_clamp(g, "above", nn_input(g, 4, 4, 2), 0.5f, 2), sum = x;
    char name[60];
    for (int i = 0; nn_activation_at(i); i++) {
        snprintf(name, sizeof name, "sum.%s", nn_activation_at(i));
        sum = nn_add(g, name, sum, nn_activation(g, nn_activation_at(i), x, nn_activation_at(i)), false);
    }
    return nn_linear(g, "fc", sum, 3, false);
}

/* Nothing here rounds in another place: every bit is the network's. */
static nn_node exact_layers(nn_graph *g) {
    nn_node x = nn_input(g, 8, 8, 3), y;
    x = nn_conv2d(g, "conv1", x, 6, 3, &(nn_conv2d_options){.padding = 1, .bias = true});
    x = nn_relu(g, "relu", x);
    y = nn_conv2d(g, "conv2", x, 6, 3, &(nn_conv2d_options){.padding = 1});
    x = nn_maxpool2d(g, "pool", y, 2, &(nn_pool2d_options){.stride = 2});
    x = nn_activation(g, "tanh", x, "tanh");
    return nn_avgpool_global(g, "mean", x);
}

static void test_layers(void) {
    struct {
        nn_node (*add)(nn_graph *g);
        struct expected expected;
        int64_t shape[4];
        int ndim, vocabulary, classes;
    } of[] = {
        {image_layers, {"layers of images", 1e-5}, {BATCH, 9, 7, 4}, 4, 0, 4},
        {sequence_layers, {"layers of sequences", 1e-5}, {BATCH, 12}, 2, 30, 30},
        {functions, {"functions", 1e-5}, {BATCH, 4, 4, 2}, 4, 0, 3},
        {exact_layers, {"every bit", 0}, {BATCH, 8, 8, 3}, 4, 0, 6},
    };
    for (size_t i = 0; i < sizeof of / sizeof of[0]; i++) {
        nn_graph *const g = new_graph("fp32");
        compare(g, of[i].add(g), &of[i].expected, of[i].shape, of[i].ndim, of[i].vocabulary, of[i].classes);
    }
    nn_graph *const g = new_graph("fp32");
    compare(g, all_layers(g, 5), &(struct expected){"all layers", 1e-5}, (const int64_t[]){BATCH, 6, 6, 2}, 4, 0, 5);
}

/* --- formats ------------------------------------------------------------------------------------------------------ */

/* After some steps of training an image has one answer in any batch, since the exponents of training are frozen; the
 * formats are those of the policy. */
static void test_format(const char *variant, const char *policy, double tolerance) {
    nn_graph *g = nn_graph_new(&(nn_config){.variant = variant, .policy = policy, .batch = BATCH, .seed = 1});
    const nn_node logits = nn_model(g, "resnet8", 16, 16, 3, 10);
    CHECK(logits >= 0 && !nn_compile(g, logits), "%s", tensor_error());
    static float x[BATCH * 16 * 16 * 3];
    static double v[BATCH * 16 * 16 * 3], y[BATCH * 10];
    const int32_t labels[BATCH] = {1, 2, 3, 4, 5};
    nn_normal_numbers(v, BATCH * 16 * 16 * 3, 5, "images");
    for (int i = 0; i < BATCH * 16 * 16 * 3; i++)
        x[i] = (float)v[i];
    const nn_batch batch = {.images = x, .labels = labels};
    for (int k = 0; k < 30; k++)
        CHECK(!nn_train_step(NULL, NULL, g, &batch, 0.02f), "%s", tensor_error());
    CHECK(!nn_predict(y, g, &batch), "%s", tensor_error());
    program *p;
    CHECK(!program_from_graph(&p, g), "%s", tensor_error());
    nn_graph_free(g); /* the program shares nothing with it */
    const struct expected e = {variant ? variant : policy, tolerance};
    program_array in = {TENSOR_TYPE_F32, 4, {BATCH, 16, 16, 3}, x}, out;
    printf("%-20s %.3g\n", e.what, run(&e, p, &in, y, 10));
    float together[BATCH * 10];
    CHECK(!program_run(p, &out, &in), "%s", tensor_error());
    memcpy(together, out.data, sizeof together);
    for (int i = 0; i < BATCH; i++) {
        in.shape[0] = 1;
        in.data = x + i * 16 * 16 * 3;
        CHECK(!program_run(p, &out, &in) && !memcmp(out.data, together + 10 * i, 10 * sizeof(float)),
              "%s: image %d has another answer alone", e.what, i);
    }
    program_free(p);
}

/* --- what is refused ---------------------------------------------------------------------------------------------- */

static void refuse(nn_graph *g, nn_node logits, tensor_status status, const char *why) {
    program *p = (program *)&check_count;
    CHECK(logits < 0 || !nn_compile(g, logits), "%s", tensor_error());
    CHECK(program_from_graph(&p, g) == status && strstr(tensor_error(), why) && !p, "%s, expected %s", tensor_error(),
          why);
    nn_graph_free(g);
}

static void test_refusals(void) {
    program *p;
    CHECK(program_from_graph(&p, NULL) == TENSOR_E_ARGUMENT && program_from_graph(NULL, NULL) == TENSOR_E_ARGUMENT,
          "NULL");
    nn_graph *g = new_graph("fp32");
    nn_model(g, "mlp2", 8, 8, 1, 4);
    refuse(g, -1, TENSOR_E_ARGUMENT, "not compiled");
    g = new_graph("fp32");
    nn_node x = nn_avgpool_adaptive(g, "uneven", nn_input(g, 7, 7, 2), 5, 7);
    refuse(g, nn_linear(g, "fc", x, 3, false), TENSOR_E_UNSUPPORTED, "uneven: adaptive pooling of 7x7 pixels to 5x7");
    g = new_graph("fp32");
    x = nn_lrn(g, "even", nn_input(g, 4, 4, 8), 4, 1, 0.75f, 1);
    refuse(g, nn_linear(g, "fc", x, 3, false), TENSOR_E_UNSUPPORTED, "even: response normalisation over 4");
}

int main(void) {
    test_models();
    test_layers();
    test_format("flex16+5", NULL, 0.02);
    test_format("dfp16", NULL, 0.02);
    test_format("fp16", NULL, 0.02);
    test_format("bf16", NULL, 0.1);
    test_format(NULL, "O1", 0.02);
    test_format(NULL, "O2:bf16", 0.1);
    test_refusals();
    return check_summary();
}
