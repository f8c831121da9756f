/* Variants, models and errors in building a graph. */
#include "check.h"
#include "flexlab/nn.h"
#include "nn/graph/nn_graph.h"
#include <math.h>
#include <string.h>

static void variants(void) {
    static const char *const expected[] = {"fp32",     "fp16",        "fp16-sr",        "bf16", "bf16-sr",
                                           "flex16+5", "flex16+5-sr", "flex16+5-paper", "dfp16"};
    for (int i = 0; i < 9; i++) {
        const nn_variant *v = nn_variant_find(expected[i]);
        CHECK(v && !strcmp(v->name, expected[i]), "variant %s", expected[i]);
        CHECK(v && nn_variant_at(i) == v, "variant %d is %s", i, expected[i]);
        CHECK(v && tensor_format_bytes(v->format) > 0, "variant %s has a format of this build", expected[i]);
        CHECK(v && !v->predictor == !tensor_format_is_shared(v->format), "variant %s: predictor", expected[i]);
    }
    CHECK(!nn_variant_find("fp23"), "fp23 found");
    CHECK(strstr(tensor_error(), "fp23") && strstr(tensor_error(), "flex16+5-sr"), "message: %s", tensor_error());
    CHECK(!nn_variant_find(NULL), "NULL found");
    int count = 0;
    while (nn_variant_at(count))
        count++;
    for (int i = 0; tensor_format_at(i); i++) { /* every format of the build is reachable */
        bool has = false;
        for (int k = 0; k < count; k++)
            has = has || nn_variant_at(k)->format == tensor_format_at(i);
        CHECK(has, "format %s has no variant", tensor_format_name(tensor_format_at(i)));
    }
    CHECK(!nn_variant_at(-1) && !nn_variant_at(count), "list ends");
}

/* Counts from the shapes in the papers; resnets: He et al. 2015, table 6 (0.27M, 0.46M, ... 1.7M) and by hand. */
static const struct {
    const char *model;
    int size, channels, classes;
    int64_t parameters;
} models[] = {
    {"mlp2", 32, 3, 10, 394634},       {"mlp2", 28, 1, 10, 101770},
    {"cnn6", 32, 3, 10, 198250},       {"resnet8", 32, 3, 10, 75290},
    {"resnet14", 32, 3, 10, 172506},   {"resnet20", 32, 3, 10, 269722},
    {"resnet32", 32, 3, 10, 464154},   {"resnet56", 32, 3, 10, 853018},
    {"resnet110", 32, 3, 10, 1727962}, {"mlp3x20", 8, 3, 4, 192 * 20 + 20 + 20 * 20 + 20 + 20 * 4 + 4},
    {"mlp1x7", 8, 3, 4, 192 * 4 + 4},  {"resnet20", 28, 1, 10, 269434},
    {"resnet20", 32, 3, 100, 275572},  {"cnn6", 28, 1, 10, 140330},
};

static void build(const char *variant, int m) {
    nn_graph *g = nn_graph_new(&(nn_config){.variant = variant, .batch = 2, .seed = 1});
    CHECK(g, "%s: %s", variant, tensor_error());
    nn_node logits =
        nn_model(g, models[m].model, models[m].size, models[m].size, models[m].channels, models[m].classes);
    CHECK(logits >= 0, "%s %s: %s", variant, models[m].model, tensor_error());
    CHECK(!nn_compile(g, logits), "%s %s: %s", variant, models[m].model, tensor_error());
    CHECK(nn_parameter_count(g) == models[m].parameters, "%s %s: %lld parameters, want %lld", variant, models[m].model,
          (long long)nn_parameter_count(g), (long long)models[m].parameters);
    const nn_variant *v = nn_variant_find(variant);
    int64_t element = (int64_t)tensor_format_bytes(v->format);
    int64_t weight = v->wide && element < 4 ? element + 4 : element;
    CHECK(nn_weight_bytes(g) == weight * models[m].parameters, "%s %s: %lld weight bytes", variant, models[m].model,
          (long long)nn_weight_bytes(g));
    CHECK(nn_activation_bytes(g) > 0 && nn_arena_bytes(g) >= nn_activation_bytes(g) / 2, "%s %s: %lld and %lld",
          variant, models[m].model, (long long)nn_activation_bytes(g), (long long)nn_arena_bytes(g));
    int weights = 0, gradients = 0, momenta = 0;
    for (int i = 0; i < nn_tensor_count(g); i++) {
        nn_tensor_info info = nn_tensor_at(g, i);
        CHECK(info.t && info.name && tensor_format_of(info.t) == v->format, "tensor %d", i);
        weights += !strcmp(info.role, "weight");
        gradients += !strcmp(info.role, "weight gradient");
        momenta += !strcmp(info.role, "momentum");
        for (int k = 0; k < i; k++)
            CHECK(strcmp(info.name, nn_tensor_at(g, k).name), "%s %s: '%s' is listed twice", variant, models[m].model,
                  info.name);
    }
    CHECK(weights && weights == gradients && weights == momenta, "%d, %d, %d", weights, gradients, momenta);
    CHECK(!nn_tensor_at(g, -1).t && !nn_tensor_at(g, nn_tensor_count(g)).t, "out of range");
    nn_graph_free(g);
}

static void all_models(void) {
    for (int m = 0; m < (int)(sizeof models / sizeof models[0]); m++)
        build("fp32", m);
    for (int i = 0; nn_variant_at(i); i++)
        for (int m = 4; m >= 0; m--)
            build(nn_variant_at(i)->name, m);
    for (int i = 0; nn_model_at(i); i++) {
        nn_graph *g = nn_graph_new(&(nn_config){.variant = "bf16", .batch = 1});
        CHECK(nn_model(g, nn_model_at(i), 32, 32, 3, 10) >= 0, "%s: %s", nn_model_at(i), tensor_error());
        nn_graph_free(g);
    }
    CHECK(!nn_model_at(-1), "list begins at 0");
}

static nn_graph *new_graph(void) {
    return nn_graph_new(&(nn_config){.variant = "fp32", .batch = 4, .seed = 1});
}

static void shape_is(const nn_graph *g, nn_node node, int ndim, int64_t a, int64_t b, int64_t c, int64_t d) {
    if (node < 0) {
        CHECK(node >= 0, "%s", tensor_error());
        return;
    }
    const struct fl_shape *s = &fl_output_of(g, node)->shape;
    CHECK(s->ndim == ndim && s->dim[0] == a && s->dim[1] == b && (ndim < 4 || (s->dim[2] == c && s->dim[3] == d)),
          "%s: %d dims %lldx%lldx%lldx%lld", g->nodes[node].name, s->ndim, (long long)s->dim[0], (long long)s->dim[1],
          (long long)s->dim[2], (long long)s->dim[3]);
}

static void shapes(void) {
    nn_graph *g = new_graph();
    nn_node x = nn_input(g, 9, 7, 3);
    shape_is(g, x, 4, 4, 9, 7, 3);
    shape_is(g, nn_conv2d(g, "same", x, 5, 3, &(nn_conv2d_options){.padding = 1}), 4, 4, 9, 7, 5);
    nn_node c = nn_conv2d(g, "half", x, 6, 3, &(nn_conv2d_options){.stride = 2, .padding = 1});
    shape_is(g, c, 4, 4, 5, 4, 6);
    const nn_conv2d_options wide = {.stride = 2, .padding = 1, .dilation = 3, .groups = 3};
    nn_node grouped = nn_conv2d(g, "grouped", x, 6, 3, &wide);
    shape_is(g, grouped, 4, 4, 3, 2, 6);
    const struct fl_shape *weight = &g->nodes[grouped].parameter[0].shape;
    CHECK(weight->dim[0] == 6 && weight->dim[1] == 3 && weight->dim[3] == 1, "grouped weight %lldx%lldx..x%lld",
          (long long)weight->dim[0], (long long)weight->dim[1], (long long)weight->dim[3]);
    CHECK(fabs(g->nodes[grouped].parameter[0].scale - sqrt(2.0 / 18)) < 1e-15, "grouped scale %g",
          g->nodes[grouped].parameter[0].scale);
    nn_node around =
        nn_conv2d(g, "around", x, 8, 0,
                  &(nn_conv2d_options){.bias = true,
                                       .window = &(tensor_window2d){
                                           .window = {2, 5}, .stride = {1, 2}, .padding = {0, 1, 2, 1}, .groups = 1}});
    shape_is(g, around, 4, 4, 9, 3, 8);
    CHECK(g->nodes[around].parameters == 2 && g->nodes[around].parameter[0].scale == sqrt(2.0 / (8 * 2 * 5)),
          "scale of asymmetric filters %g", g->nodes[around].parameter[0].scale);
    nn_node up = nn_conv_transpose2d(
        g, "up", around, 6, 0,
        &(nn_conv2d_options){
            .window = &(tensor_window2d){.window = {3, 2}, .stride = {2, 3}, .output_padding = {1, 0}, .groups = 2}});
    shape_is(g, up, 4, 4, 20, 8, 6);
    CHECK(g->nodes[up].parameters == 1 && g->nodes[up].parameter[0].scale == sqrt(2.0 / (3 * 3 * 2)),
          "scale of transposed filters %g", g->nodes[up].parameter[0].scale);
    shape_is(g,
             nn_maxpool2d(g, "pool2", up, 0,
                          &(nn_pool2d_options){
                              .window = &(tensor_window2d){.window = {3, 1}, .stride = {4, 5}, .dilation = {2, 1}}}),
             4, 4, 4, 2, 6);
    shape_is(g, nn_shortcut_a(g, "shortcut", x, 6, 2), 4, 4, 5, 4, 6);
    shape_is(g, nn_maxpool2d(g, "maxpool", c, 2, &(nn_pool2d_options){.stride = 2}), 4, 4, 2, 2, 6);
    nn_node p = nn_avgpool_global(g, "avgpool", c);
    shape_is(g, p, 2, 4, 6, 0, 0);
    shape_is(g, nn_linear(g, "fc", c, 10, false), 2, 4, 10, 0, 0);
    shape_is(g, nn_linear(g, "fcr", p, 11, true), 2, 4, 11, 0, 0);
    shape_is(g, nn_batchnorm(g, "bn", p, &(nn_batchnorm_options){.relu = true}), 2, 4, 6, 0, 0);
    nn_graph_free(g);
}

/* A failure returns -1 here and from every later call, and nn_compile reports it again. */
#define REFUSED(status, text, call)                                                                                    \
    do {                                                                                                               \
        nn_graph *g = new_graph();                                                                                     \
        nn_node x = nn_input(g, 8, 8, 3);                                                                              \
        nn_node bad = (call);                                                                                          \
        CHECK(bad == -1, "%s gave node %d", #call, bad);                                                               \
        CHECK(strstr(tensor_error(), text), "%s: message '%s' lacks '%s'", #call, tensor_error(), text);               \
        CHECK(nn_linear(g, "later", x, 10, false) == -1, "%s: building went on", #call);                               \
        CHECK(nn_compile(g, x) == (status), "%s: compile", #call);                                                     \
        CHECK(strstr(tensor_error(), text), "%s: compile says '%s'", #call, tensor_error());                           \
        nn_graph_free(g);                                                                                              \
    } while (0)

static void building_errors(void) {
    REFUSED(TENSOR_E_SHAPE, "input", nn_input(g, 0, 8, 3));
    REFUSED(TENSOR_E_ARGUMENT, "one input", nn_input(g, 8, 8, 3));
    REFUSED(TENSOR_E_ARGUMENT, "used twice", nn_relu(g, "a", nn_relu(g, "a", x)));
    REFUSED(TENSOR_E_ARGUMENT, "name", nn_relu(g, "", x));
    REFUSED(TENSOR_E_ARGUMENT, "name", nn_relu(g, NULL, x));
    REFUSED(TENSOR_E_ARGUMENT, "name", nn_linear(g, NULL, x, 3, false));
    REFUSED(TENSOR_E_ARGUMENT, "input node 7", nn_relu(g, "a", 7));
    REFUSED(TENSOR_E_ARGUMENT, "input node -5", nn_linear(g, "a", -5, 10, false));
    REFUSED(TENSOR_E_SHAPE, "c: a window of 11", nn_conv2d(g, "c", x, 4, 11, &(nn_conv2d_options){.padding = 1}));
    REFUSED(TENSOR_E_ARGUMENT, "c: window 0", nn_conv2d(g, "c", x, 4, 0, &(nn_conv2d_options){.padding = 1}));
    REFUSED(TENSOR_E_ARGUMENT, "stride -1", nn_conv2d(g, "c", x, 4, 3, &(nn_conv2d_options){.stride = -1}));
    REFUSED(TENSOR_E_ARGUMENT, "padding -1", nn_conv2d(g, "c", x, 4, 3, &(nn_conv2d_options){.padding = -1}));
    const tensor_window2d low = {.window = {1, 3}, .stride = {1, 2}, .padding = {0, 0, 1, 0}};
    REFUSED(TENSOR_E_SHAPE, "c: a window of 3 with dilation 9 does not fit a side of 8 with padding 1 and 2",
            nn_conv2d(g, "c", x, 4, 0,
                      &(nn_conv2d_options){
                          .window = &(tensor_window2d){
                              .window = {1, 3}, .stride = {1, 1}, .padding = {0, 0, 1, 2}, .dilation = {1, 9}}}));
    REFUSED(TENSOR_E_ARGUMENT, "c: stride 0",
            nn_conv2d(
                g, "c", x, 4, 0,
                &(nn_conv2d_options){.bias = true, .window = &(tensor_window2d){.window = {3, 3}, .stride = {2, 0}}}));
    REFUSED(
        TENSOR_E_ARGUMENT, "c: window 0, expected 1",
        nn_conv2d(g, "c", x, 4, 0, &(nn_conv2d_options){.bias = true, .window = &(tensor_window2d){.stride = {1, 1}}}));
    REFUSED(TENSOR_E_ARGUMENT, "c: padding 4096, expected 0 to 4095",
            nn_conv2d(g, "c", x, 4, 0,
                      &(nn_conv2d_options){
                          .bias = true,
                          .window = &(tensor_window2d){.window = {3, 3}, .stride = {1, 1}, .padding = {0, 4096}}}));
    REFUSED(TENSOR_E_ARGUMENT, "c: output padding 1, expected 0 to 0",
            nn_conv2d(g, "c", x, 4, 0,
                      &(nn_conv2d_options){
                          .bias = true,
                          .window = &(tensor_window2d){.window = {3, 3}, .stride = {2, 2}, .output_padding = {0, 1}}}));
    REFUSED(TENSOR_E_ARGUMENT, "c: 0 outputs",
            nn_conv2d(g, "c", x, 0, 0, &(nn_conv2d_options){.bias = true, .window = &low}));
    REFUSED(TENSOR_E_ARGUMENT, "c: 2 groups, expected a divisor of 3 channels and 4 filters",
            nn_conv_transpose2d(
                g, "c", x, 4, 0,
                &(nn_conv2d_options){.bias = true,
                                     .window = &(tensor_window2d){.window = {2, 2}, .stride = {1, 1}, .groups = 2}}));
    REFUSED(
        TENSOR_E_ARGUMENT, "c: output padding 2, expected 0 to 1",
        nn_conv_transpose2d(g, "c", x, 4, 0,
                            &(nn_conv2d_options){.bias = true,
                                                 .window = &(tensor_window2d){
                                                     .window = {2, 2}, .stride = {2, 2}, .output_padding = {2, 0}}}));
    REFUSED(TENSOR_E_SHAPE, "c: padding 8 and 1 leaves nothing of 9 pixels",
            nn_conv_transpose2d(g, "c", x, 4, 0,
                                &(nn_conv2d_options){.bias = true,
                                                     .window = &(tensor_window2d){
                                                         .window = {2, 2}, .stride = {1, 1}, .padding = {8, 1}}}));
    REFUSED(TENSOR_E_SHAPE, "c: conv1d takes sequences [N, L, C], its input is 4x8x8x3",
            nn_conv1d(g, "c", x, 4, &(tensor_window1d){.window = 3, .stride = 1}, true));
    REFUSED(TENSOR_E_ARGUMENT, "p: padding 2, expected 0 to 1",
            nn_maxpool2d(g, "p", x, 0,
                         &(nn_pool2d_options){.window = &(tensor_window2d){
                                                  .window = {2, 2}, .stride = {1, 1}, .padding = {1, 1, 2, 0}}}));
    REFUSED(TENSOR_E_ARGUMENT, "p: 3 groups, expected 1",
            nn_maxpool2d(
                g, "p", x, 0,
                &(nn_pool2d_options){.window = &(tensor_window2d){.window = {2, 2}, .stride = {1, 1}, .groups = 3}}));
    REFUSED(TENSOR_E_ARGUMENT, "c: a kernel of 3 and a `window`, expected one of them",
            nn_conv2d(g, "c", x, 4, 3, &(nn_conv2d_options){.window = &low}));
    REFUSED(TENSOR_E_ARGUMENT, "c: padding 2 and a `window`, expected one of them",
            nn_conv2d(g, "c", x, 4, 0, &(nn_conv2d_options){.padding = 2, .window = &low}));
    REFUSED(TENSOR_E_ARGUMENT, "c: bias and bias_after, expected one of them",
            nn_conv2d(g, "c", x, 4, 3, &(nn_conv2d_options){.bias = true, .bias_after = true}));
    REFUSED(TENSOR_E_ARGUMENT, "c: relu without bias_after",
            nn_conv2d(g, "c", x, 4, 3, &(nn_conv2d_options){.bias = true, .relu = true}));
    REFUSED(TENSOR_E_ARGUMENT, "c: bias_after, which a transposed convolution does not have",
            nn_conv_transpose2d(g, "c", x, 4, 3, &(nn_conv2d_options){.bias_after = true}));
    REFUSED(TENSOR_E_ARGUMENT, "c: deviation inf, expected a finite number of 0 or more",
            nn_conv2d(g, "c", x, 4, 3, &(nn_conv2d_options){.deviation = INFINITY}));
    REFUSED(TENSOR_E_ARGUMENT, "p: a window of 2 and a `window`, expected one of them",
            nn_maxpool2d(g, "p", x, 2, &(nn_pool2d_options){.window = &low}));
    REFUSED(TENSOR_E_ARGUMENT, "c: window is NULL", nn_conv1d(g, "c", x, 4, NULL, true));
    REFUSED(TENSOR_E_SHAPE, "a window of 3 with dilation 5 does not fit a side of 8 with padding 1",
            nn_conv2d(g, "c", x, 4, 3, &(nn_conv2d_options){.padding = 1, .dilation = 5}));
    REFUSED(TENSOR_E_ARGUMENT, "dilation -2", nn_conv2d(g, "c", x, 4, 3, &(nn_conv2d_options){.dilation = -2}));
    REFUSED(TENSOR_E_ARGUMENT, "c: 3 groups, expected a divisor of 3 channels and 4 filters",
            nn_conv2d(g, "c", x, 4, 3, &(nn_conv2d_options){.groups = 3}));
    REFUSED(TENSOR_E_ARGUMENT, "-1 groups", nn_conv2d(g, "c", x, 4, 3, &(nn_conv2d_options){.groups = -1}));
    REFUSED(TENSOR_E_ARGUMENT, "0 outputs", nn_conv2d(g, "c", x, 0, 3, &(nn_conv2d_options){.padding = 1}));
    REFUSED(TENSOR_E_ARGUMENT, "-3 outputs", nn_linear(g, "c", x, -3, false));
    REFUSED(TENSOR_E_SHAPE, "a window of 9", nn_maxpool2d(g, "p", x, 9, NULL));
    REFUSED(TENSOR_E_SHAPE, "images",
            nn_maxpool2d(g, "p", nn_linear(g, "fc", x, 4, false), 2, &(nn_pool2d_options){.stride = 2}));
    REFUSED(TENSOR_E_SHAPE, "images", nn_avgpool_global(g, "p", nn_avgpool_global(g, "q", x)));
    REFUSED(TENSOR_E_ARGUMENT, "2 filters", nn_shortcut_a(g, "s", x, 2, 1));
    REFUSED(TENSOR_E_SHAPE, "different shape",
            nn_add(g, "add", x, nn_conv2d(g, "c", x, 3, 3, &(nn_conv2d_options){.stride = 2, .padding = 1}), true));
    REFUSED(TENSOR_E_SHAPE, "2^40", nn_linear(g, "huge", nn_linear(g, "big", x, 2000000000, false), 2000000000, false));
    REFUSED(TENSOR_E_ARGUMENT, "resnet20", nn_model(g, "densenet", 8, 8, 3, 10));
    REFUSED(TENSOR_E_ARGUMENT, "6n + 2", nn_model(g, "resnet21", 8, 8, 3, 10));
    REFUSED(TENSOR_E_ARGUMENT, "6n + 2", nn_model(g, "resnet2", 8, 8, 3, 10));
    REFUSED(TENSOR_E_ARGUMENT, "resnet20x", nn_model(g, "resnet20x", 8, 8, 3, 10));
    REFUSED(TENSOR_E_ARGUMENT, "1 classes", nn_model(g, "mlp2", 8, 8, 3, 1));
    CHECK(nn_input(NULL, 8, 8, 3) == -1 && nn_relu(NULL, "a", 0) == -1, "NULL graph");
    CHECK(nn_model(NULL, "mlp2", 8, 8, 3, 10) == -1, "NULL graph");
}

static void refused_config(const char *text, nn_config config) {
    nn_graph *g = nn_graph_new(&config);
    CHECK(!g, "a graph where '%s' is wrong", text);
    CHECK(strstr(tensor_error(), text), "message '%s' lacks '%s'", tensor_error(), text);
    nn_graph_free(g);
}

static void refused_compile(const char *text, nn_graph *g, nn_node logits) {
    CHECK(nn_compile(g, logits), "compiled where '%s' is wrong", text);
    CHECK(strstr(tensor_error(), text), "message '%s' lacks '%s'", tensor_error(), text);
    float image[4 * 64 * 3] = {0};
    int32_t label[4] = {0};
    double loss = -7;
    CHECK(nn_train_step(&loss, NULL, g, &(nn_batch){.images = image, .labels = label}, 0.1f) && loss == -7,
          "trains uncompiled");
    CHECK(nn_evaluate(&loss, NULL, g, &(nn_batch){.images = image, .labels = label, .count = 1}) && loss == -7,
          "evaluates uncompiled");
    nn_graph_free(g);
}

static void other_errors(void) {
    refused_config("batch: 0", (nn_config){.variant = "fp32"});
    refused_config("fp33", (nn_config){.variant = "fp33", .batch = 1});
    refused_config("variant NULL: expected one of", (nn_config){.batch = 1});
    refused_config("momentum: 1", (nn_config){.variant = "fp32", .batch = 1, .momentum = 1});
    refused_config("weight decay: -1", (nn_config){.variant = "fp32", .batch = 1, .weight_decay = -1});
    refused_config("'nosuch'", (nn_config){.variant = "dfp16", .batch = 1, .predictor = "nosuch"});
    refused_config("no shared exponent", (nn_config){.variant = "fp16", .batch = 1, .predictor = "paper"});
    CHECK(!nn_graph_new(NULL), "NULL config");

    nn_graph *g = new_graph();
    refused_compile("matrix", g, nn_conv2d(g, "c", nn_input(g, 8, 8, 3), 4, 3, &(nn_conv2d_options){.padding = 1}));
    g = new_graph();
    nn_node x = nn_input(g, 8, 8, 3);
    nn_relu(g, "dangling", x);
    refused_compile("'dangling' does not lead", g, nn_linear(g, "fc", x, 10, false));
    g = new_graph();
    nn_node logits = nn_linear(g, "fc", nn_input(g, 8, 8, 3), 10, false);
    nn_linear(g, "after", logits, 10, false);
    refused_compile("'after' does not lead", g, logits);
    g = new_graph();
    refused_compile("no layer has parameters", g, nn_avgpool_global(g, "p", nn_input(g, 8, 8, 3)));
    g = new_graph();
    nn_input(g, 8, 8, 3);
    refused_compile("node 5", g, 5);
    CHECK(nn_compile(NULL, 0), "NULL graph");

    g = new_graph();
    logits = nn_model(g, "mlp2", 8, 8, 3, 10);
    CHECK(!nn_compile(g, logits), "%s", tensor_error());
    CHECK(nn_compile(g, logits) == TENSOR_E_ARGUMENT, "compiled twice");
    float image[4 * 64 * 3] = {0};
    int32_t label[4] = {0, 1, 10, 2}, fine[4] = {0};
    double loss = -7;
    CHECK(nn_train_step(&loss, NULL, g, &(nn_batch){.images = image, .labels = label}, 0.1f) && loss == -7,
          "label 10 of 10");
    CHECK(nn_evaluate(&loss, NULL, g, &(nn_batch){.images = image, .labels = label, .count = 4}) && loss == -7,
          "label 10 of 10");
    CHECK(!nn_evaluate(&loss, NULL, g, &(nn_batch){.images = image, .labels = label, .count = 2}),
          "the third label is not looked at: %s", tensor_error());
    CHECK(nn_evaluate(&loss, NULL, g, &(nn_batch){.images = image, .labels = fine, .count = 5}), "5 images of 4");
    CHECK(nn_evaluate(&loss, NULL, g, &(nn_batch){.images = image, .labels = fine, .count = -1}), "-1 images");
    CHECK(nn_train_step(&loss, NULL, g, &(nn_batch){.images = image, .labels = fine}, -1), "rate -1");
    CHECK(nn_train_step(&loss, NULL, g, &(nn_batch){.labels = fine}, 1), "no images");
    CHECK(nn_relu(g, "late", logits) == -1, "added to a compiled graph");
    nn_graph_free(g);

    g = nn_graph_new(&(nn_config){.variant = "flex16+5", .batch = 4});
    CHECK(!nn_compile(g, nn_model(g, "mlp2", 8, 8, 3, 10)), "%s", tensor_error());
    image[77] = 1.0f / 0.0f;
    CHECK(nn_train_step(NULL, NULL, g, &(nn_batch){.images = image, .labels = fine}, 0.1f), "an infinite pixel");
    CHECK(!strncmp(tensor_error(), "input: ", 7), "the failing layer is named: %s", tensor_error());
    nn_graph_free(g);
}

int main(void) {
    variants();
    shapes();
    all_models();
    building_errors();
    other_errors();
    return check_summary();
}
