/* Policies: every preset on every kind of model; a policy with the formats of a variant gives the variant's bits; the
 * resolved roles; gradients beside those of fp32; state and checkpoint; what is refused, with its words. */
#include "check.h"
#include "flexlab/autoflex.h"
#include "flexlab/nn.h"
#include <math.h>
#include <string.h>
#include <unistd.h>

/* --- networks and their data -------------------------------------------------------------------------------------- */

enum { BATCH = 4, SIDE = 8, CLASSES = 5, LENGTH = 12, VOCABULARY = 11, MOST = 1 << 18 };

static float images[BATCH * SIDE * SIDE * 3];
static int32_t labels[BATCH * LENGTH], tokens[BATCH * LENGTH];

/* Learnable: the label is the position of the bright part of an image, or the token that follows. */
static void new_batch(uint64_t step) {
    uint64_t seed = step + 77;
    for (int i = 0; i < BATCH; i++) {
        labels[i] = (int32_t)(check_random(&seed) % CLASSES);
        for (int k = 0; k < SIDE * SIDE * 3; k++)
            images[i * SIDE * SIDE * 3 + k] = (float)(check_random(&seed) >> 40) * 0x1p-24f - 0.5f +
                                              (k * CLASSES / (SIDE * SIDE * 3) == labels[i] ? 1.0f : 0.0f);
    }
}

static void new_text(uint64_t step) {
    uint64_t seed = step + 99;
    for (int i = 0; i < BATCH; i++) {
        int32_t token = (int32_t)(check_random(&seed) % VOCABULARY);
        for (int k = 0; k < LENGTH; k++) {
            tokens[i * LENGTH + k] = token;
            token = (token * 3 + 1) % VOCABULARY;
            labels[i * LENGTH + k] = token;
        }
    }
}

static nn_graph *built(const char *model, const nn_config *config, nn_node *logits) {
    nn_graph *g = nn_graph_new(config);
    if (!g)
        return NULL;
    *logits = nn_model_reads_text(model) ? nn_model_text(g, model, LENGTH, VOCABULARY)
                                         : nn_model(g, model, SIDE, SIDE, 3, CLASSES);
    return g;
}

static nn_graph *network(const char *model, const nn_config *config) {
    nn_node logits;
    nn_graph *g = built(model, config, &logits);
    if (!g || nn_compile(g, logits)) {
        CHECK(false, "%s with %s: %s", model, config->policy ? config->policy : config->variant, tensor_error());
        nn_graph_free(g);
        return NULL;
    }
    return g;
}

static double step(nn_graph *g, const char *model, float rate) {
    double loss = NAN;
    tensor_status status;
    if (nn_model_reads_text(model)) {
        new_text(nn_steps(g));
        status = nn_train_step(&loss, NULL, g, &(nn_batch){.tokens = tokens, .labels = labels}, rate);
    } else {
        new_batch(nn_steps(g));
        status = nn_train_step(&loss, NULL, g, &(nn_batch){.images = images, .labels = labels}, rate);
    }
    CHECK(!status, "%s: %s", model, tensor_error());
    return loss;
}

static nn_config config_of(const char *policy) {
    return (nn_config){.policy = policy, .batch = BATCH, .seed = 3, .momentum = 0.9f, .weight_decay = 1e-4f};
}

/* --- every preset, every kind of model ---------------------------------------------------------------------------- */

static const char *const models[] = {"mlp2", "resnet8", "gpt1x32", "lstm-char", "gru-char", "mobilenet"};
enum { MODELS = sizeof models / sizeof models[0] };

static void test_presets(void) {
    for (int p = 0; nn_policy_at(p); p++)
        for (int m = 0; m < MODELS; m++) {
            const nn_config config = config_of(nn_policy_at(p));
            nn_graph *g = network(models[m], &config);
            double first = 0, last = 0;
            const int steps = m < 4 ? 24 : 2;
            for (int i = 0; g && i < steps; i++) {
                const double loss = step(g, models[m], m == 3 ? 0.2f : 0.02f);
                if (i < 4)
                    first += loss / 4;
                if (i >= steps - 4)
                    last += loss / 4;
            }
            CHECK(!g || (isfinite(last) && (steps < 8 || last < 0.97 * first)), "%s, %s: loss %g, then %g", models[m],
                  nn_policy_at(p), first, last);
            nn_graph_free(g);
        }
}

/* --- a policy that is a variant ----------------------------------------------------------------------------------- */

/* Checks that every tensor of one network has the values of the tensor of that name in the other. */
static void check_same(const nn_graph *a, const nn_graph *b, const char *what) {
    static double va[MOST], vb[MOST];
    CHECK(nn_tensor_count(a) == nn_tensor_count(b), "%s: %d tensors, %d", what, nn_tensor_count(a), nn_tensor_count(b));
    for (int i = 0; i < nn_tensor_count(a); i++) {
        const nn_tensor_info x = nn_tensor_at(a, i), y = nn_tensor_at(b, i);
        const int64_t count = tensor_count(x.t);
        CHECK(!strcmp(x.name, y.name), "%s: tensor %d is %s, %s", what, i, x.name, y.name);
        if (strcmp(x.role, "weight") != 0 && strcmp(x.role, "momentum") != 0)
            continue;
        if (count > MOST || tensor_store_f64(x.t, va, count) || tensor_store_f64(y.t, vb, count)) {
            CHECK(false, "%s: %s", what, tensor_error());
            continue;
        }
        CHECK(!memcmp(va, vb, (size_t)count * sizeof *va), "%s: %s differs", what, x.name);
    }
}

static void train_both(const char *model, const nn_config *a, const nn_config *b, const char *what) {
    nn_graph *x = network(model, a), *y = network(model, b);
    for (int i = 0; x && y && i < 3; i++) {
        const double one = step(x, model, 0.05f), other = step(y, model, 0.05f);
        CHECK(!memcmp(&one, &other, sizeof one), "%s, %s, step %d: loss %.17g, %.17g", model, what, i, one, other);
    }
    if (x && y)
        check_same(x, y, what);
    nn_graph_free(x);
    nn_graph_free(y);
}

static void test_variants(void) {
    char policy[100];
    for (int m = 1; m < 3; m++)
        for (int i = 0; nn_variant_at(i); i++) {
            const char *name = nn_variant_at(i)->name;
            nn_config variant = config_of(NULL), rules = config_of(policy);
            variant.variant = name;
            snprintf(policy, sizeof policy, "variant %s;", name);
            train_both(models[m], &variant, &rules, policy);
            /* by a rule, over another one */
            snprintf(policy, sizeof policy, "variant %s; * format=%s", i % 2 ? "fp32" : "dfp16", name);
            train_both(models[m], &variant, &rules, policy);
            rules.policy = NULL;
            rules.variant = "bf16-sr";
            snprintf(policy, sizeof policy, "*=%s", name);
            rules.layer_formats = policy;
            train_both(models[m], &variant, &rules, policy);
        }
    nn_config without = {.variant = "fp16", .no_master = true, .batch = BATCH, .seed = 3, .momentum = 0.9f},
              o3 = {.policy = "O3", .batch = BATCH, .seed = 3, .momentum = 0.9f};
    train_both("resnet8", &without, &o3, "O3");
}

/* --- roles -------------------------------------------------------------------------------------------------------- */

static const char *role_of(nn_graph *g, const char *name, const char *role) {
    for (int i = 0; i < nn_role_row_count(g); i++)
        if (!strcmp(nn_role_row_at(g, i).name, name))
            return nn_role(g, i, role);
    return NULL;
}

static const struct expected {
    const char *policy, *name, *role, *value;
} expectations[] = {
    {"O1", "conv1", "operands", "fp16"},
    {"O1", "conv1", "result", "fp16"},
    {"O1", "bn1", "activations", "fp32"},
    {"O1", "bn1", "gradients", "fp32"},
    {"O1", "conv1.weight", "weights", "fp32"},
    {"O1", "conv1.weight", "master", "none"},
    {"O1", "conv1.weight", "state", "fp32"},
    {"O2", "conv1", "activations", "fp16"},
    {"O2", "bn1", "activations", "fp32"},
    {"O2", "bn1.gamma", "weights", "fp32"},
    {"O2", "bn1.gamma", "master", "none"},
    {"O2", "conv1.weight", "weights", "fp16"},
    {"O2", "conv1.weight", "weight-gradients", "fp16"},
    {"O2", "conv1.weight", "master", "fp32"},
    {"O2", "conv1.weight", "state", "fp32"},
    {"O3", "bn1", "activations", "fp16"},
    {"O3", "conv1.weight", "master", "none"},
    {"O3", "conv1.weight", "state", "fp16"},
    {"O2:bf16", "conv1", "gradients", "bf16"},
    {"flex16+5", "conv1.weight", "master", "wide"},
    {"flex16+5", "conv1", "activations", "flex16+5:paper"},
    {"flex16+5-sr", "conv1.weight", "rounding", "stochastic"},
    {"flex16+5-paper", "conv1.weight", "rounding", "nearest"},
    {"flex16+5-paper", "conv1.weight", "master", "none"},
    {"dfp16", "conv1", "operands", "dfp16:current"},
    {"dfp16", "conv1", "result", "fp32"},
    {"dfp16", "conv1.weight", "weight-gradients", "fp32"},
    {"dfp16", "fc", "activations", "fp32"},
    {"dfp16", "conv1.weight", "weights", "fp32"},
    {"dfp16", "bn1.gamma", "weights", "fp32"},
    {"dfp16-all", "bn1", "activations", "dfp16:current"},
    /* the last rule that matches wins, role by role */
    {"variant fp32; * activations=fp16; conv1 activations=bf16; bn* gradients=bf16", "conv1", "activations", "bf16"},
    {"variant fp32; * activations=fp16; conv1 activations=bf16; bn* gradients=bf16", "bn1", "activations", "fp16"},
    {"variant fp32; * activations=fp16; conv1 activations=bf16; bn* gradients=bf16", "bn1", "gradients", "bf16"},
    {"variant fp32; conv1 activations=bf16; * activations=fp16", "conv1", "activations", "fp16"},
    {"preset O2; *.gamma weights=fp16 # a comment; with more\n@conv* master=none", "bn1.gamma", "weights", "fp16"},
    {"preset O2; *.gamma weights=fp16 # a comment; with more\n@conv* master=none", "conv1.weight", "master", "none"},
    {"preset O2; *.gamma weights=fp16 # a comment; with more\n@conv* master=none", "fc.weight", "master", "fp32"},
    {"variant flex16+5; bn1 activations=flex16+5:ngraph", "bn1", "activations", "flex16+5:ngraph"},
    {"variant fp32; @product operands=dfp16; conv1 operands=auto", "conv1", "operands", "fp32"},
    /* activations of a product count if it has no operands; a rule that other layers obey may match it, too */
    {"preset O1; conv1 operands=auto activations=bf16", "conv1", "activations", "bf16"},
    {"preset O1; conv1 activations=bf16; conv1 operands=auto", "conv1", "operands", "bf16"},
    {"preset O1; conv1 activations=bf16; conv1 format=fp32", "conv1", "activations", "fp32"},
    {"preset O1; * activations=bf16 gradients=bf16", "bn1", "activations", "bf16"},
    {"preset O1; * activations=bf16 gradients=bf16", "conv1", "operands", "fp16"},
    {"variant flex16+5; * state=flex16+5", "conv1.weight", "state", "flex16+5:paper"},
};

static void test_roles(void) {
    for (size_t i = 0; i < sizeof expectations / sizeof expectations[0]; i++) {
        const struct expected *e = &expectations[i];
        nn_node logits;
        const nn_config config = config_of(e->policy);
        nn_graph *g = built("resnet8", &config, &logits);
        const char *value = g ? role_of(g, e->name, e->role) : tensor_error();
        CHECK(value && !strcmp(value, e->value), "%s: %s of %s is %s, expected %s", e->policy, e->role, e->name,
              value ? value : "none", e->value);
        if (g) { /* its text is the same policy */
            const nn_config again = config_of(nn_graph_policy(g));
            nn_graph *h = built("resnet8", &again, &logits);
            CHECK(h && !strcmp(nn_graph_policy(g), nn_graph_policy(h)), "%s reads back as %s", nn_graph_policy(g),
                  h ? nn_graph_policy(h) : tensor_error());
            nn_graph_free(h);
        }
        nn_graph_free(g);
    }
    const nn_config config = config_of("O1");
    nn_node logits;
    nn_graph *g = built("mlp2", &config, &logits);
    CHECK(!strcmp(nn_policy_loss_scale(g), "dynamic"), "loss scale of O1");
    nn_graph_free(g);
}

/* Checks that the tensors of every parameter have the format and the predictor of its roles. */
static void check_told(const char *policy, const char *optimiser) {
    static const struct {
        const char *suffix, *role;
    } told[] = {{"", "weights"}, {".momentum", "state"}, {".root", "state"}};
    nn_config config = config_of(policy);
    config.optimiser = optimiser;
    config.momentum = strcmp(optimiser, "sgd") != 0 ? 0 : 0.9f;
    nn_graph *g = network("resnet8", &config);
    int seen = 0;
    for (int i = 0; g && i < nn_tensor_count(g); i++)
        for (int k = 0; k < 3; k++) {
            const nn_tensor_info info = nn_tensor_at(g, i);
            const size_t end = strlen(told[k].suffix), length = strlen(info.name);
            char name[100];
            snprintf(name, sizeof name, "%.*s", (int)(length > end ? length - end : 0), info.name);
            const char *role = end < length && !strcmp(info.name + length - end, told[k].suffix)
                                   ? role_of(g, name, told[k].role)
                                   : NULL;
            if (!role)
                continue;
            const tensor_format format = tensor_format_of(info.t);
            const bool shared = tensor_format_is_shared(format);
            char is[100];
            snprintf(is, sizeof is, "%s%s%s", tensor_format_name(format), shared ? ":" : "",
                     shared ? autoflex_name(tensor_autoflex(info.t)->predictor) : "");
            CHECK(!strcmp(is, role), "%s, %s: %s is %s, told %s", policy, optimiser, info.name, is, role);
            seen++;
        }
    CHECK(seen > 20, "%s: %d tensors", policy, seen);
    nn_graph_free(g);
}

/* The predictor that a rule names is that of its tensors, also if no format changes. */
static void test_predictors(void) {
    static const struct {
        const char *policy, *tensor, *predictor;
    } cases[] = {
        {"variant flex16+5;", "fc.weight.grad", "paper"},
        {"variant flex16+5; fc.weight weight-gradients=flex16+5:current", "fc.weight.grad", "current"},
        {"variant flex16+5; fc.weight weight-gradients=flex16+5:current", "conv1.weight.grad", "paper"},
        {"variant flex16+5; * weight-gradients=flex16+5:ngraph", "stage1.block1.conv1.weight.grad", "ngraph"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const nn_config config = config_of(cases[i].policy);
        nn_graph *g = network("resnet8", &config);
        const char *found = NULL;
        for (int k = 0; g && k < nn_tensor_count(g); k++)
            if (!strcmp(nn_tensor_at(g, k).name, cases[i].tensor))
                found = autoflex_name(tensor_autoflex(nn_tensor_at(g, k).t)->predictor);
        CHECK(found && !strcmp(found, cases[i].predictor), "%s: %s has %s, expected %s", cases[i].policy,
              cases[i].tensor, found ? found : "no predictor", cases[i].predictor);
        nn_graph_free(g);
    }
    /* two layers that read one value in one format, each with its own predictor: two conversions; with the same one */
    static const char *const pairs[] = {"dfp16:current", "dfp16:ngraph"};
    for (int same = 0; same < 2; same++) {
        char policy[200];
        snprintf(policy, sizeof policy, "variant fp32; conv1 operands=%s result=fp32; conv2 operands=%s result=fp32",
                 pairs[0], pairs[same ? 0 : 1]);
        const nn_config config = config_of(policy);
        nn_graph *g = nn_graph_new(&config);
        CHECK(g, "%s", tensor_error());
        nn_node r = nn_relu(g, "relu", nn_input(g, SIDE, SIDE, 3));
        nn_node y = nn_add(g, "sum", nn_conv2d(g, "conv1", r, 2, 3, &(nn_conv2d_options){.padding = 1}),
                           nn_conv2d(g, "conv2", r, 2, 3, &(nn_conv2d_options){.padding = 1}), false);
        CHECK(!nn_compile(g, nn_linear(g, "fc", y, CLASSES, false)), "%s: %s", policy, tensor_error());
        int conversions = 0, current = 0, ngraph = 0;
        for (int k = 0; k < nn_tensor_count(g); k++) {
            const nn_tensor_info info = nn_tensor_at(g, k);
            if (strncmp(info.name, "relu.dfp16", 10) != 0 || strstr(info.name, ".grad"))
                continue;
            const char *predictor = autoflex_name(tensor_autoflex(info.t)->predictor);
            conversions++;
            current += !strcmp(predictor, "current");
            ngraph += !strcmp(predictor, "ngraph");
        }
        CHECK(conversions == 2 - same && current == 1 && ngraph == 1 - same,
              "%s: %d conversions, %d current, %d ngraph", policy, conversions, current, ngraph);
        const double loss = step(g, "mlp2", 0.01f);
        CHECK(isfinite(loss), "%s: loss %g", policy, loss);
        nn_graph_free(g);
    }
}

/* --- gradients beside those of fp32, and what becomes of NaN --------------------------------------------------------
 */

/* The distance of all weights together to those of fp32, relative to their length, after one pass. */
static double distance(const char *policy, const char *model) {
    static double own[MOST], plain[MOST];
    nn_config config = config_of(policy), fp32 = config_of("O0");
    config.loss_scale = "none"; /* otherwise the scale makes gradients larger */
    nn_graph *a = network(model, &config), *b = network(model, &fp32);
    double apart = 0, length = 0;
    if (a && b) {
        step(a, model, 0);
        step(b, model, 0);
    }
    for (int i = 0; a && b && i < nn_tensor_count(b); i++) {
        const nn_tensor_info info = nn_tensor_at(b, i);
        if (strcmp(info.role, "weight gradient") != 0)
            continue;
        int k = 0;
        while (k < nn_tensor_count(a) && strcmp(nn_tensor_at(a, k).name, info.name) != 0)
            k++;
        const int64_t count = tensor_count(info.t);
        CHECK(k < nn_tensor_count(a) && count <= MOST && !tensor_store_f64(info.t, plain, count) &&
                  !tensor_store_f64(nn_tensor_at(a, k).t, own, count),
              "%s: %s", policy, info.name);
        for (int64_t j = 0; j < count; j++) {
            apart += (own[j] - plain[j]) * (own[j] - plain[j]);
            length += plain[j] * plain[j];
        }
    }
    nn_graph_free(a);
    nn_graph_free(b);
    return sqrt(apart / length);
}

/* Distances are in units of the format with the fewest digits. With many ReLUs, a rounding may open or close one, which
 * is no small error: residual networks may differ more. */
static void test_gradients(void) {
    static const double limits[] = {6, 128, 6};
    static const struct {
        const char *policy;
        double unit;
    } cases[] = {
        {"O1", 0x1p-11},
        {"O2", 0x1p-11},
        {"O1:bf16", 0x1p-8},
        {"O2:bf16", 0x1p-8},
        {"dfp16", 0x1p-12},
        {"variant flex16+5; if-any @norm format=fp32; if-any conv1 format=dfp16; if-any fc* format=fp16", 0x1p-11},
        {"variant fp32; * gradients=flex16+5; *.weight weights=fp16 master=fp32; @product result=fp32", 0x1p-11},
        {"variant fp16; * gradients=fp32", 0x1p-11}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int m = 0; m < 3; m++) {
            const double d = distance(cases[i].policy, models[m]) / cases[i].unit;
            CHECK(d > 0 && d < limits[m], "%s, %s: gradients %g units from those of fp32, expected at most %g",
                  models[m], cases[i].policy, d, limits[m]);
        }
}

/* A training that diverges continues up to the step that reports it, also if integers follow floats. */
static void test_divergence(void) {
    static const char *const policies[] = {"dfp16", "O1", "variant fp32; fc2 operands=flex16+5 result=fp32"};
    for (size_t i = 0; i < sizeof policies / sizeof policies[0]; i++) {
        const nn_config config = config_of(policies[i]);
        nn_graph *g = network("mlp2", &config);
        double loss = 0;
        for (int k = 0; g && k < 12 && isfinite(loss); k++)
            loss = step(g, "mlp2", 1e20f);
        CHECK(!isfinite(loss), "%s: loss %g", policies[i], loss);
        nn_graph_free(g);
    }
}

/* --- what is refused ---------------------------------------------------------------------------------------------- */

static const struct refused {
    const char *policy, *words[3];
} refusals[] = {
    {"O5", {"'O5'", "no preset", "O0, O1, O2"}},
    {"no/such.policy", {"'no/such.policy'", "no file"}},
    {"variant fp33;", {"line 1", "variant 'fp33'", "flex16+5"}},
    {"preset O9;", {"preset 'O9'", "dfp16-all"}},
    {"variant fp16;\n\nconv1 wieghts=fp32", {"line 3", "role 'wieghts'", "weights"}},
    {"variant fp16;\nconv1 weights=fp12", {"line 2", "format 'fp12'", "bf16"}},
    {"variant fp16;\nconv1 format=fp12", {"line 2", "format 'fp12'", "flex16+5-sr"}},
    {"variant fp16;\nconv1 weights", {"line 2", "'weights'", "ROLE=VALUE"}},
    {"variant fp16;\nconv1", {"line 2", "'conv1'", "ROLE=VALUE"}},
    {"variant fp16;\nweights=fp32", {"line 2", "'weights=fp32'", "pattern"}},
    {"variant fp16;\nconv1 weights=auto", {"line 2", "format 'auto'"}},
    {"variant fp16;\nconv1 master=bf16", {"line 2", "master 'bf16'", "none, wide, fp32"}},
    {"variant fp16;\nconv1 rounding=up", {"line 2", "rounding 'up'", "nearest, stochastic"}},
    {"variant fp16;\nconv1 weights=bf16:paper", {"line 2", "'paper'", "no shared exponent"}},
    {"variant fp16;\nconv1 weights=dfp16:papr", {"line 2", "predictor 'papr'", "ngraph"}},
    {"conv1 weights=fp32; variant fp16", {"'variant fp16'", "and all rules"}},
    {"loss-scale none; preset O2", {"'preset O2'", "before loss-scale"}},
    {"conv1 weights=fp32 format=fp16;", {"format=fp16", "before all roles"}},
    {"conv1 format=bf16 format=fp16;", {"format=fp16", "once"}},
    {"conv1 weights=bf16 weights=fp16;", {"weights=fp16", "each role once"}},
    {"variant fp16; loss-scale -3", {"line 1: loss scale '-3'", "power of two"}},
    {"variant fp16;\nloss-scale 1000", {"line 2: loss scale '1000'", "power of two"}},
    {"variant fp16;\nloss-scale dynamic:window=0", {"line 2: loss scale", "window 0"}},
    {"variant fp16;\nloss-scale dynamic:min=8,max=4", {"line 2: loss scale", "max: expected"}},
    {"variant fp16; conf* weights=fp32", {"'conf*' matches no layer", "conv1, ", "@conv2d"}},
    {"variant fp16; @lstm format=fp32", {"'@lstm' matches no layer", "@norm"}},
    {"variant fp16; conv1.wight weights=fp32", {"'conv1.wight' matches no layer"}},
    {"variant fp16; bn1 operands=fp32", {"'bn1'", "operands", "@product"}},
    {"variant fp16; *.gamma activations=fp32", {"'*.gamma'", "activations"}},
    {"variant fp16; * master=wide rounding=stochastic", {"rounding=stochastic", "master=none"}},
    {"variant bf16; * state=fp32", {"state=fp32", "bf16"}},
    {"variant fp16; @loss gradients=fp32", {"'@loss'", "gradients"}},
    {"variant fp16;\n* state=fp16:paper", {"line 2", "predictor 'paper'", "expected only state=fp16"}},
    {"variant flex16+5;\n* state=flex16+5:ngraph", {"line 2", "predictor 'ngraph'", "that of its weight"}},
    {"preset O1\nconv1 activations=bf16", {"line 2: activations of 'conv1' would be ignored", "operands (preset O1)"}},
    {"preset O1\nif-any @conv2d gradients=bf16", {"line 2: gradients of '@conv2d' would be ignored", "preset O1"}},
    {"variant fp32\nconv1 gradients=bf16\nconv1 operands=fp16", {"line 2: gradients of 'conv1'", "line 3"}},
    {"variant fp32\nconv1 operands=fp16 activations=bf16", {"line 2: activations of 'conv1'", "line 2)"}},
    {"variant fp32\n* operands=fp16\n@product activations=bf16", {"line 3: activations of '@product'", "line 2)"}},
    {"variant fp32;\n* master=wide", {"line 2: nothing that '*' matches has master=wide", "weights of 16 or 8 bits"}},
    {"variant fp32;\n* rounding=stochastic",
     {"line 2", "'*' matches has rounding=stochastic", "weights of 16 or 8 bits"}},
    {"variant fp16; fc weights=fp32\nfc.weight master=wide", {"line 2: nothing that 'fc.weight'", "master=wide"}},
    {"variant fp32;\nif-any \xff\xfe format=fp16", {"line 2: byte 8 is 0xff", "UTF-8"}},
};

static void test_refusals(void) {
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        const struct refused *r = &refusals[i];
        const nn_config config = config_of(r->policy);
        nn_node logits = -1;
        nn_graph *g = built("resnet8", &config, &logits);
        tensor_status status = g ? nn_compile(g, logits) : tensor_error_status();
        CHECK(status == TENSOR_E_ARGUMENT || status == TENSOR_E_UNSUPPORTED, "%s: status %d", r->policy, status);
        for (int k = 0; k < 3 && r->words[k]; k++)
            CHECK(strstr(tensor_error(), r->words[k]), "%s: '%s' lacks '%s'", r->policy, tensor_error(), r->words[k]);
        nn_graph_free(g);
    }
    nn_config config = config_of("O1");
    config.variant = "bf16";
    nn_graph *g = nn_graph_new(&config);
    CHECK(!g && strstr(tensor_error(), "variant fp32") && strstr(tensor_error(), "bf16"), "%s", tensor_error());
    config = config_of("O1");
    config.predictor = "paper";
    CHECK(!nn_graph_new(&config) && strstr(tensor_error(), "no shared exponent"), "%s", tensor_error());
    config = config_of(NULL);
    config.variant = "fp32";
    config.layer_formats = "conv1=fp12";
    CHECK(!nn_graph_new(&config) && strstr(tensor_error(), "'fp12'"), "%s", tensor_error());
    config.layer_formats = "conv1";
    CHECK(!nn_graph_new(&config) && strstr(tensor_error(), "PATTERN=FORMAT"), "%s", tensor_error());
}

/* --- settings beside rules -----------------------------------------------------------------------------------------
 */

/* nn_config takes all loss scales; the text of the whole policy has it again. */
static void test_loss_scales(void) {
    static const char *const scales[] = {"none", "2^10", "0.125",
                                         "dynamic:init=2^12,window=7,factor=4,min=2^-3,max=2^20"};
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++) {
        char policy[200], want[200], got[200];
        snprintf(policy, sizeof policy, "variant fp16; loss-scale %s; * gradients=bf16;", scales[i]);
        nn_config config = config_of(policy);
        nn_graph *g = network("mlp2", &config);
        CHECK(g && !strcmp(nn_policy_loss_scale(g), scales[i]) && !strcmp(nn_graph_policy(g), policy), "%s: %s", policy,
              g ? nn_graph_policy(g) : tensor_error());
        CHECK(!nn_loss_scale_text(want, sizeof want, scales[i]) &&
                  !nn_loss_scale_text(got, sizeof got, nn_policy_loss_scale(g)) && !strcmp(want, got),
              "%s", scales[i]);
        nn_loss_scale now;
        CHECK(!nn_loss_scale_of(&now, g), "%s", tensor_error());
        const double first[] = {1, 1024, 0.125, 4096};
        CHECK(now.scale == first[i], "%s: begins at %g", scales[i], now.scale);
        nn_graph_free(g);
    }
    const nn_config twice = config_of("preset O2; loss-scale 2^4; loss-scale 2^5");
    nn_graph *g = nn_graph_new(&twice);
    CHECK(g && !strcmp(nn_policy_loss_scale(g), "2^5"), "the last one stands: %s", tensor_error());
    nn_graph_free(g);
}

/* Moments have 16 bits if updates have a shared exponent, and are unchanged otherwise. */
static void test_narrow_state(void) {
    static const char *const policies[] = {"variant flex16+5; @norm format=fp32", "variant flex16+5; @norm format=bf16",
                                           "variant fp32; @product weights=dfp16 master=wide",
                                           "variant flex16+5; @norm master=fp32"};
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        nn_config config = config_of(policies[i]);
        config.optimiser = "adamw";
        config.momentum = 0;
        nn_graph *wide = network("resnet8", &config);
        config.narrow_state = true;
        nn_graph *g = network("resnet8", &config);
        size_t saved = 0;
        for (int k = 0; k < nn_tensor_count(g); k++) {
            const nn_tensor_info info = nn_tensor_at(g, k);
            const bool state = !strcmp(info.role, "momentum") || !strcmp(info.role, "root");
            if (state && tensor_format_is_shared(tensor_format_of(info.t)))
                saved += 4 * (size_t)tensor_count(info.t); /* its wide part */
        }
        CHECK(saved > 0 && nn_state_bytes(wide) == nn_state_bytes(g) + saved, "%s: %zu bytes for %zu", policies[i],
              nn_state_bytes(g), nn_state_bytes(wide));
        double first = 0, loss = 0;
        for (int k = 0; k < 5; k++)
            loss = step(g, "resnet8", 0.001f), first = k ? first : loss;
        CHECK(isfinite(loss) && loss < first, "%s: %g after %g", policies[i], loss, first);
        nn_graph_free(wide);
        nn_graph_free(g);
    }
    nn_config config = config_of("variant flex16+5; * master=fp32");
    config.optimiser = "adamw";
    config.momentum = 0;
    config.narrow_state = true;
    nn_node logits = -1;
    nn_graph *g = built("resnet8", &config, &logits);
    CHECK(g && nn_compile(g, logits) == TENSOR_E_ARGUMENT && strstr(tensor_error(), "narrow_state: the policy updates"),
          "%s", tensor_error());
    nn_graph_free(g);
}

/* Without master weights, those of variants are left out, and those that rules request are refused. */
static void test_no_master(void) {
    static const char *const refused[][2] = {
        {"O2", "preset O2: '* master=fp32'"},
        {"variant fp16;\nfc* master=wide", "line 2: 'fc* master=wide'"},
        {"variant fp16;\n* master=none\n@norm format=fp32 master=fp32", "line 3: '@norm master=fp32'"}};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        nn_config config = config_of(refused[i][0]);
        config.no_master = true;
        CHECK(!nn_graph_new(&config) && tensor_error_status() == TENSOR_E_ARGUMENT &&
                  strstr(tensor_error(), refused[i][1]) && strstr(tensor_error(), "expected master=none"),
              "%s: %s", refused[i][0], tensor_error());
    }
    /* the same network, specified in two ways, and in a checkpoint */
    nn_config config = config_of("variant fp32; fc* format=flex16+5; @norm format=dfp16"), same = config_of(NULL);
    config.no_master = true;
    same.policy = "variant fp32; fc* format=flex16+5 master=none; @norm format=dfp16 master=none";
    nn_graph *g = network("resnet8", &config), *other = network("resnet8", &same);
    config.no_master = false;
    nn_graph *wide = network("resnet8", &config);
    const size_t bytes = nn_state_bytes(g);
    CHECK(bytes == nn_state_bytes(other) && bytes < nn_state_bytes(wide), "%zu, %zu and %zu bytes", bytes,
          nn_state_bytes(other), nn_state_bytes(wide));
    for (int i = 0; i < 3; i++)
        CHECK(step(g, "resnet8", 0.05f) == step(other, "resnet8", 0.05f), "other losses");
    char path[] = "/tmp/flexlab_policy_XXXXXX";
    const int file = mkstemp(path);
    CHECK(file >= 0 && !nn_checkpoint_save(g, path, NULL, 0), "%s", tensor_error());
    nn_graph *read = nn_checkpoint_graph(path, NULL);
    CHECK(read && !nn_compile(read, nn_model(read, "resnet8", SIDE, SIDE, 3, CLASSES)) &&
              !nn_checkpoint_load(read, path) && nn_state_bytes(read) == bytes,
          "%s", tensor_error());
    CHECK(nn_checkpoint_load(wide, path) == TENSOR_E_DATA && strstr(tensor_error(), "'network.master' is 'none'"), "%s",
          tensor_error());
    close(file);
    unlink(path);
    nn_graph_free(g);
    nn_graph_free(other);
    nn_graph_free(wide);
    nn_graph_free(read);
}

/* --- state and checkpoints ---------------------------------------------------------------------------------------- */

static void test_state(const char *policy, const char *model) {
    static unsigned char one[1 << 22], other[1 << 22];
    nn_config config = config_of(policy);
    nn_graph *a = network(model, &config), *b = network(model, &config);
    char path[] = "/tmp/flexlab_policy_XXXXXX";
    const int file = mkstemp(path);
    CHECK(file >= 0, "%s", path);
    const size_t bytes = nn_state_bytes(a);
    CHECK(bytes && bytes <= sizeof one && bytes == nn_state_bytes(b), "%zu bytes", bytes);
    for (int i = 0; i < 3; i++)
        step(a, model, 0.05f);
    CHECK(!nn_checkpoint_save(a, path, NULL, 0), "%s", tensor_error());
    CHECK(!nn_checkpoint_load(b, path), "%s", tensor_error());
    nn_node logits = -1;
    nn_graph *c = nn_checkpoint_graph(path, NULL); /* the file contains the policy */
    if (c) {
        logits = nn_model_reads_text(model) ? nn_model_text(c, model, LENGTH, VOCABULARY)
                                            : nn_model(c, model, SIDE, SIDE, 3, CLASSES);
        CHECK(!nn_compile(c, logits) && !nn_checkpoint_load(c, path), "%s", tensor_error());
        CHECK(!strcmp(nn_graph_policy(c), nn_graph_policy(a)), "%s", nn_graph_policy(c));
    }
    CHECK(c, "%s", tensor_error());
    for (int i = 0; i < 3; i++) {
        step(a, model, 0.05f);
        step(b, model, 0.05f);
    }
    for (int i = 0; c && i < 3; i++)
        step(c, model, 0.05f);
    CHECK(!nn_state_save(one, bytes, a) && !nn_state_save(other, bytes, b), "%s", tensor_error());
    CHECK(!memcmp(one, other, bytes), "%s, %s: another state after a checkpoint", policy, model);
    CHECK(!c || (!nn_state_save(other, bytes, c) && !memcmp(one, other, bytes)), "%s, %s: a graph of the file", policy,
          model);
    CHECK(!nn_state_restore(b, one, bytes), "%s", tensor_error());
    /* other policies refuse it */
    nn_config apart = config_of("variant fp32; * gradients=bf16");
    nn_graph *d = network(model, &apart);
    CHECK(nn_checkpoint_load(d, path) == TENSOR_E_DATA, "another policy");
    apart = config_of(NULL);
    apart.variant = "fp32";
    nn_graph *e = network(model, &apart);
    CHECK(nn_checkpoint_load(e, path) == TENSOR_E_DATA, "no policy");
    nn_graph *const all[] = {a, b, c, d, e};
    for (int i = 0; i < 5; i++)
        nn_graph_free(all[i]);
    close(file);
    unlink(path);
}

/* A policy's loss scale that the caller switched off remains off in a graph made from the file. */
static void test_without_scale(void) {
    char path[] = "/tmp/flexlab_policy_XXXXXX";
    const int file = mkstemp(path);
    nn_config config = config_of("O2");
    config.loss_scale = "none";
    nn_graph *a = network("mlp2", &config);
    CHECK(file >= 0 && a && !nn_checkpoint_save(a, path, NULL, 0), "%s", tensor_error());
    nn_graph *b = nn_checkpoint_graph(path, NULL);
    CHECK(b && !nn_compile(b, nn_model(b, "mlp2", SIDE, SIDE, 3, CLASSES)) && !nn_checkpoint_load(b, path), "%s",
          tensor_error());
    nn_graph_free(a);
    nn_graph_free(b);
    close(file);
    unlink(path);
}

/* A node that reads one value twice: its tensors have different names, and a checkpoint. */
static void test_read_twice(void) {
    static const char *const policies[] = {"variant fp32;", "variant fp32; square gradients=bf16"};
    for (int i = 0; i < 2; i++) {
        char path[] = "/tmp/flexlab_policy_XXXXXX";
        const int file = mkstemp(path);
        const nn_config config = config_of(policies[i]);
        nn_graph *g = nn_graph_new(&config);
        nn_node x = nn_linear(g, "fc1", nn_input(g, SIDE, SIDE, 3), 7, true);
        x = nn_linear(g, "fc2", nn_broadcast_mul(g, "square", x, x), CLASSES, false);
        CHECK(!nn_compile(g, x), "%s", tensor_error());
        step(g, "mlp2", 0.01f);
        for (int k = 0; k < nn_tensor_count(g); k++)
            for (int j = 0; j < k; j++)
                CHECK(strcmp(nn_tensor_at(g, k).name, nn_tensor_at(g, j).name) != 0, "%s: two tensors are %s",
                      policies[i], nn_tensor_at(g, k).name);
        CHECK(file >= 0 && !nn_checkpoint_save(g, path, NULL, 0) && !nn_checkpoint_load(g, path), "%s: %s", policies[i],
              tensor_error());
        nn_graph_free(g);
        close(file);
        unlink(path);
    }
}

/* The addend of a product has no copy in the format of its operands: nothing would read it. */
static void test_bias_copies(void) {
    const nn_config config = config_of("dfp16");
    nn_graph *g = network("gpt1x32", &config);
    for (int i = 0; g && i < nn_tensor_count(g); i++)
        CHECK(!strstr(nn_tensor_at(g, i).name, ".bias.dfp16"), "%s", nn_tensor_at(g, i).name);
    nn_graph_free(g);
}

/* If there are more names than fit into a message, it counts those left out. A text that is too long ends in "...". */
static double no_prediction(const struct autoflex *a, void *context) {
    (void)a, (void)context;
    return 0;
}

static void test_long_lists(void) {
    static char long_name[20000];
    char name[40];
    for (int i = 0; i < 40; i++) {
        snprintf(name, sizeof name, "one-of-many-predictors-%d", i);
        CHECK(autoflex_add(name, no_prediction, NULL), "%s", tensor_error());
    }
    CHECK(!nn_graph_new(&(nn_config){.policy = "* weights=flex16+5:nope;", .batch = 1}) &&
              strstr(tensor_error(), "expected one of paper, ngraph, ") && strstr(tensor_error(), " and ") &&
              !strcmp(strrchr(tensor_error(), ' '), " more"),
          "%s", tensor_error());
    CHECK(!nn_graph_new(&(nn_config){.variant = "flex16+5", .predictor = "nope", .batch = 1}) &&
              !strcmp(strrchr(tensor_error(), ' '), " more"),
          "%s", tensor_error());
    memset(long_name, 'x', sizeof long_name);
    for (int i = 0; i < 8; i++) { /* of two bytes each, from an odd or an even position on */
        memset(long_name + i, 0xc3, 1);
        for (size_t k = (size_t)i; k + 2 < sizeof long_name; k += 2)
            memcpy(long_name + k, "\xc3\xa9", 2);
        long_name[sizeof long_name - 1] = 0;
        const size_t length = tensor_set_backend(long_name) ? strlen(tensor_error()) : 0;
        CHECK(length > 16000 && !strcmp(tensor_error() + length - 5, "\xc3\xa9..."), "%s", tensor_error());
    }
}

int main(void) {
    test_predictors();
    test_roles();
    check_told("variant flex16+5; bn* format=fp16; fc* weights=flex16+5:ngraph", "sgd");
    check_told("variant flex16+5; bn* format=fp16; fc* weights=dfp16", "adam");
    check_told("O2", "adamw");
    test_without_scale();
    test_read_twice();
    test_bias_copies();
    test_refusals();
    test_loss_scales();
    test_no_master();
    test_narrow_state();
    test_variants();
    test_state("O1", "resnet8");
    test_state("O2", "gpt1x32");
    test_state("dfp16", "resnet8");
    test_state("variant flex16+5; @product operands=dfp16; bn* gradients=fp32; *.bias weights=bf16 master=none",
               "resnet8");
    test_gradients();
    test_divergence();
    test_presets();
    test_long_lists();
    return check_summary();
}
