/* facts_training.c - facts that show in trainings: pairs of the same seed, initial weights and batches. */
#include "facts/facts.h"
#include "flexlab/data.h"
#include "flexlab/nn.h"
#include "base/text.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- loss scaling ------------------------------------------------------------------------------------------------- */

/* Classes are the signs of two of the inputs. */
enum { BATCH = 64, INPUTS = 16, CLASSES = 4, UNITS = 32, STEPS = 150, SMALL = 24 };

static void make_batch(uint64_t step, float *images, int32_t *labels) {
    uint64_t state = step * 0x9e3779b97f4a7c15u + 1;
    for (int i = 0; i < BATCH; i++) {
        for (int k = 0; k < INPUTS; k++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            images[i * INPUTS + k] = (float)(int32_t)(state >> 32) * 0x1p-30f;
        }
        labels[i] = (images[i * INPUTS] > 0) + 2 * (images[i * INPUTS + 1] > 0);
    }
}

struct network {
    nn_graph *g;
    tensor *gradient, *loss, *labels;
};

static bool make_network(struct network *n, const char *variant) {
    *n = (struct network){nn_graph_new(&(nn_config){.variant = variant, .batch = BATCH, .seed = 5, .loss = "none"}),
                          NULL, tensor_new(FMT_F64, TENSOR_SHAPE(1)), tensor_new(FMT_I32, TENSOR_SHAPE(BATCH))};
    if (!n->g || !n->loss || !n->labels)
        return false;
    nn_node x = nn_linear(n->g, "first", nn_input(n->g, 1, 1, INPUTS), UNITS, false);
    x = nn_linear(n->g, "second", nn_relu(n->g, "relu", x), CLASSES, false);
    n->gradient = tensor_new(nn_variant_find(variant)->format, TENSOR_SHAPE(BATCH, CLASSES));
    return n->gradient && x >= 0 && !nn_compile(n->g, x);
}

static void free_network(struct network *n) {
    nn_graph_free(n->g);
    tensor_free(n->gradient);
    tensor_free(n->loss);
    tensor_free(n->labels);
}

/* The loss counts 2^-SMALL, and its rate 2^SMALL: in exact numbers the training is that of the plain loss. *gradient
 * rises to the largest of those by the logits. Every gradient that is not written by the loss alone is times 2^scale,
 * and the update takes it out again. */
static bool train_small_loss(const char *variant, int scale, double *first, double *last, double *gradient) {
    static float images[BATCH * INPUTS];
    static double gradients[BATCH * CLASSES];
    int32_t labels[BATCH];
    struct network n;
    const tensor_loss_options how = {.gradient_scale = ldexp(1, scale - SMALL)};
    bool good = make_network(&n, variant);
    for (int step = 0; good && step < STEPS; step++) {
        make_batch((uint64_t)step, images, labels);
        good = !nn_forward(n.g, &(nn_batch){.images = images}) && !tensor_load_i32(n.labels, labels, BATCH) &&
               !tensor_cross_entropy(n.loss, n.gradient, NULL, NULL, nn_output(n.g), n.labels, &how) &&
               !nn_backward_from(n.g, n.gradient) && !nn_update(n.g, (float)ldexp(0.3, SMALL - scale)) &&
               !tensor_store_f64(n.loss, step ? last : first, 1) &&
               !tensor_store_f64(n.gradient, gradients, BATCH * CLASSES);
        for (int i = 0; good && i < BATCH * CLASSES; i++)
            *gradient = fmax(*gradient, fabs(gradients[i]));
    }
    free_network(&n);
    return good;
}

static void loss_scale(struct fact_lines *lines) {
    static const struct {
        const char *what, *variant;
        int scale;
        bool learns;
    } rows[] = {{"fp32, loss times 2^-24", "fp32", 0, true},
                {"fp16, loss times 2^-24", "fp16", 0, false},
                {"fp16, loss times 2^-24, scaled by 2^24", "fp16", 24, true},
                {"bf16, loss times 2^-24", "bf16", 0, true}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double first, last, gradient = 0;
        if (!train_small_loss(rows[i].variant, rows[i].scale, &first, &last, &gradient)) {
            fact_broke(lines, rows[i].what);
            continue;
        }
        fact_line(lines, rows[i].learns ? last < 0.5 * first && gradient > 0 : last > 0.9 * first && gradient == 0,
                  rows[i].what, text_format("%s", rows[i].learns ? "learns" : "all gradients are 0: does not learn"),
                  text_format("loss %.1f, then %.1f%s", first, last, gradient > 0 ? "" : "; all gradients 0"));
    }
}

const struct fact fact_loss_scale = {
    "loss-scale", "Micikevicius et al. 2018",
    "a perceptron whose gradients underflow in fp16 (a loss of weight 2^-24); loss scaling rescues it", loss_scale,
    false};

/* --- trainings by the library's loop -------------------------------------------------------------------------------
 */

struct sets {
    data_set *train, *test;
};

static bool train(const struct sets *data, const char *model, const char *variant, int64_t steps, double rate,
                  uint64_t seed, double *loss) {
    nn_train_result result;
    const tensor_status status =
        nn_train(&result,
                 &(nn_train_config){.network = {.variant = variant, .batch = 32, .seed = seed, .momentum = 0.9f},
                                    .model = model,
                                    .epochs = 1,
                                    .rate = rate,
                                    .schedule = "linear",
                                    .max_steps = steps,
                                    .average_last = 50},
                 data->train, data->test, NULL);
    *loss = status ? (double)NAN : result.last_loss;
    if (!status)
        nn_train_result_clear(&result);
    return !status;
}

enum { SEEDS = 3 };

/* Lines for formats beside fp32: mean of the difference over paired seeds. */
static void compare(struct fact_lines *lines, const char *model, int64_t steps, double rate,
                    const char *const *variants) {
    char *spec = text_format("synthetic:train=%lld,test=32,seed=3", (long long)steps * 32);
    struct sets data = {0};
    double base[SEEDS], sum = 0;
    bool good = !data_open_splits(&data.train, &data.test, spec);
    for (int s = 0; good && s < SEEDS; s++) {
        good = train(&data, model, "fp32", steps, rate, (uint64_t)s + 1, &base[s]);
        sum += base[s];
    }
    for (int v = 0; good && variants[v]; v++) {
        double difference = 0, loss;
        for (int s = 0; good && s < SEEDS; s++) {
            good = train(&data, model, variants[v], steps, rate, (uint64_t)s + 1, &loss);
            difference += (loss - base[s]) / SEEDS;
        }
        char *what = text_format("%s, %lld steps, %s", model, (long long)steps, variants[v]);
        if (good)
            fact_line(lines, fabs(difference) <= 0.01 * sum / SEEDS, what,
                      text_format("loss of fp32 (%.4f) within 1 %%", sum / SEEDS), text_format("%+.4f", difference));
        free(what);
    }
    if (!good)
        fact_broke(lines, model);
    data_free(data.train);
    data_free(data.test);
    free(spec);
}

static void perceptron(struct fact_lines *lines) {
    compare(lines, "mlp2", 400, 0.01, (const char *const[]){"flex16+5", "flex16+5-paper", NULL});
}

const struct fact fact_perceptron = {"perceptron", "Köster et al. 2017",
                                     "a perceptron of two layers, 400 iterations, three paired seeds", perceptron,
                                     true};

static void unchanged(struct fact_lines *lines) {
    /* a rate at which rounding has no random effect: at higher ones any two runs diverge */
    compare(lines, "cnn6", 200, 0.002, (const char *const[]){"flex16+5", "dfp16", NULL});
}

const struct fact fact_unchanged = {
    "unchanged", "Köster et al. 2017; Das et al. 2018",
    "a small convolutional network with fp32's hyper-parameters, three paired seeds, at "
    "a rate so low that runs do not diverge by chance (the papers use large networks, on "
    "ImageNet)",
    unchanged, true};
