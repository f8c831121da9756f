/* Training: it learns in every variant, repeats bit for bit whatever the number of threads and the kernel set, and is
 * not disturbed by evaluation. */
#include "check.h"
#include "flexlab/nn.h"
#include <math.h>
#include <string.h>

enum { BATCH = 16, SIZE = 8, CHANNELS = 2, IMAGE = SIZE * SIZE * CHANNELS, CLASSES = 4, BATCHES = 8 };
enum { SEED = 5, STEPS = 4, WEIGHTS_LIMIT = 200000 };

static const char *predictor; /* of the networks made; NULL: the variant's own */
static bool no_master;        /* of the networks made */
static float images[BATCHES * BATCH * IMAGE];
static int32_t labels[BATCHES * BATCH];

/* Each class lights up its own quarter of the image, over noise: separable by a linear classifier. */
static void make_set(void) {
    uint64_t state = SEED;
    for (int i = 0; i < BATCHES * BATCH; i++) {
        labels[i] = (int32_t)(check_random(&state) % CLASSES);
        for (int p = 0; p < IMAGE; p++) {
            int row = p / (SIZE * CHANNELS), column = p / CHANNELS % SIZE;
            int quarter = 2 * (row / (SIZE / 2)) + column / (SIZE / 2);
            double noise = (double)(check_random(&state) >> 11) * 0x1p-52 - 1;
            images[i * IMAGE + p] = (float)((quarter == labels[i] ? 0.6 : 0) + noise);
        }
    }
}

static nn_graph *make(const char *variant, const char *model) {
    nn_graph *g = nn_graph_new(&(nn_config){.variant = variant,
                                            .predictor = predictor,
                                            .no_master = no_master,
                                            .batch = BATCH,
                                            .seed = SEED,
                                            .momentum = 0.9f,
                                            .weight_decay = 1e-4f});
    CHECK(g && !nn_compile(g, nn_model(g, model, SIZE, SIZE, CHANNELS, CLASSES)), "%s %s: %s", variant, model,
          tensor_error());
    return g;
}

static double step(nn_graph *g, int i, float rate, int *correct) {
    double loss = NAN;
    int b = i % BATCHES;
    CHECK(!nn_train_step(&loss, correct, g,
                         &(nn_batch){.images = images + b * BATCH * IMAGE, .labels = labels + b * BATCH}, rate),
          "step %d: %s", i, tensor_error());
    return loss;
}

static double evaluate_accuracy(nn_graph *g, double *mean_loss) {
    int correct = 0;
    *mean_loss = 0;
    for (int b = 0; b < BATCHES; b++) {
        int32_t predicted[BATCH];
        double loss = NAN;
        CHECK(!nn_evaluate(
                  &loss, predicted, g,
                  &(nn_batch){.images = images + b * BATCH * IMAGE, .labels = labels + b * BATCH, .count = BATCH}),
              "%s", tensor_error());
        for (int i = 0; i < BATCH; i++)
            correct += predicted[i] == labels[b * BATCH + i];
        *mean_loss += loss / BATCHES;
    }
    return (double)correct / (BATCHES * BATCH);
}

static void learns(const char *variant, const char *model, int steps, float rate) {
    nn_graph *g = make(variant, model);
    double first = step(g, 0, rate, NULL), loss = first, test_loss;
    CHECK(first > 0.5 && first < 4, "%s %s: first loss %g of about log 4", variant, model, first);
    int correct = 0;
    for (int i = 1; i < steps; i++)
        loss = step(g, i, rate, &correct);
    double accuracy = evaluate_accuracy(g, &test_loss);
    CHECK(accuracy > 0.95, "%s %s seed=%d: accuracy %g after %d steps, loss %g", variant, model, SEED, accuracy, steps,
          test_loss);
    CHECK(correct > 0.85 * BATCH, "%s %s: %d of %d right in the last step", variant, model, correct, BATCH);
    CHECK(loss < first / 2, "%s %s: loss %g after %g", variant, model, loss, first);
    nn_graph_free(g);
}

/* Weights (with wide copies), momentum and losses of a short run. */
struct outcome {
    double loss[STEPS];
    double *weights;
    int64_t count;
};

static void run(struct outcome *o, const char *variant, const char *model, bool evaluations, float rate) {
    nn_graph *g = make(variant, model);
    o->count = 0;
    for (int i = 0; i < STEPS; i++) {
        double loss;
        o->loss[i] = step(g, i, rate, NULL);
        if (evaluations)
            CHECK(!nn_evaluate(&loss, NULL, g, &(nn_batch){.images = images, .labels = labels, .count = 1 + i}), "%s",
                  tensor_error());
    }
    for (int i = 0; i < nn_tensor_count(g); i++) {
        nn_tensor_info info = nn_tensor_at(g, i);
        int64_t n = tensor_count(info.t);
        if (strcmp(info.role, "weight") && strcmp(info.role, "momentum"))
            continue;
        CHECK(o->count + n <= WEIGHTS_LIMIT, "room for %s", info.name);
        CHECK(!tensor_store_wide_f64(info.t, o->weights + o->count, n), "%s", tensor_error());
        o->count += n;
    }
    nn_graph_free(g);
}

static void same(const struct outcome *a, const struct outcome *b, const char *variant, const char *model,
                 const char *what) {
    CHECK(!memcmp(a->loss, b->loss, sizeof a->loss), "%s %s seed=%d, %s: losses differ, last %a and %a", variant, model,
          SEED, what, a->loss[STEPS - 1], b->loss[STEPS - 1]);
    CHECK(a->count == b->count && !memcmp(a->weights, b->weights, (size_t)a->count * sizeof(double)),
          "%s %s seed=%d, %s: weights or momentum differ", variant, model, SEED, what);
}

static double first_weights[WEIGHTS_LIMIT], other_weights[WEIGHTS_LIMIT];

static void repeats(const char *variant, const char *model, float rate, bool reference) {
    struct outcome a = {.weights = first_weights}, b = {.weights = other_weights};
    run(&a, variant, model, false, rate);
    run(&b, variant, model, false, rate);
    same(&a, &b, variant, model, "a second run");
    run(&b, variant, model, true, rate);
    same(&a, &b, variant, model, "with evaluations in between");
    int threads = tensor_threads();
    for (int n = 1; n <= 3; n++) {
        char what[30];
        snprintf(what, sizeof what, "%d threads", n);
        CHECK(!tensor_set_threads(n), "%s", tensor_error());
        run(&b, variant, model, false, rate);
        same(&a, &b, variant, model, what);
    }
    CHECK(!tensor_set_threads(threads), "%s", tensor_error());
    if (!reference)
        return;
    CHECK(!tensor_set_backend("ref"), "%s", tensor_error());
    run(&b, variant, model, false, rate);
    same(&a, &b, variant, model, "reference kernels");
    CHECK(!tensor_set_backend(NULL), "%s", tensor_error());
}

/* The mean loss and the predictions of a partial batch are those of its images alone. Batch normalisation with running
 * statistics makes images independent of each other; an image is first in one call and later in another. The logits of
 * a shared-exponent format are rounded at an exponent that depends on the batch: half a unit of 2^-e each. */
static void short_batches(const char *variant) {
    nn_graph *g = make(variant, "cnn6");
    for (int i = 0; i < STEPS; i++)
        step(g, i, 0.05f, NULL);
    double part, sum = 0;
    int32_t together[5], alone;
    CHECK(!nn_evaluate(&part, together, g, &(nn_batch){.images = images, .labels = labels, .count = 5}), "%s",
          tensor_error());
    bool exact = !tensor_format_is_shared(nn_variant_find(variant)->format);
    for (int i = 0; i < 5; i++) {
        double loss;
        CHECK(
            !nn_evaluate(&loss, &alone, g, &(nn_batch){.images = images + i * IMAGE, .labels = labels + i, .count = 1}),
            "%s", tensor_error());
        CHECK(!exact || alone == together[i], "%s: image %d is %d in a batch, %d alone", variant, i, together[i],
              alone);
        sum += loss;
    }
    CHECK(fabs(part - sum / 5) <= (exact ? 1e-15 : 0x1p-7) * 5 * (1 + part), "%s: loss %.17g in a batch, %.17g alone",
          variant, part, sum / 5);
    nn_graph_free(g);
}

/* With plain 16-bit weights, rounding to nearest stops them at a low rate; a wide copy and stochastic rounding do not.
 * Exponents are constant here: a change of exponent rounds ties again, which changes weights, too. */
static void low_rate(void) {
    enum {
        WIDE,
        PAPER,
        STOCHASTIC,
        FP16,
        FP16_NEAREST,
        FP16_STOCHASTIC,
        BF16,
        BF16_NEAREST,
        BF16_STOCHASTIC,
        VARIANTS
    };
    static const char *const variants[VARIANTS] = {"flex16+5", "flex16+5-paper", "flex16+5-sr", "fp16",   "fp16",
                                                   "fp16-sr",  "bf16",           "bf16",        "bf16-sr"};
    double moved[VARIANTS];
    for (int v = 0; v < VARIANTS; v++) {
        predictor = v <= STOCHASTIC ? "fixed" : NULL;
        no_master = v == FP16_NEAREST || v == BF16_NEAREST;
        struct outcome a = {.weights = first_weights}, b = {.weights = other_weights};
        run(&a, variants[v], "mlp2", false, 0);
        run(&b, variants[v], "mlp2", false, v <= STOCHASTIC ? 1e-6f : 1e-5f);
        moved[v] = 0;
        for (int64_t i = 0; i < IMAGE * 128; i++) /* the weight of fc1 */
            moved[v] += a.weights[i] != b.weights[i];
    }
    predictor = NULL;
    no_master = false;
    CHECK(moved[WIDE] > 0.5 * IMAGE * 128 && moved[STOCHASTIC] > 0 && moved[PAPER] == 0,
          "weights that moved: wide %g, nearest %g, stochastic %g of %d", moved[WIDE], moved[PAPER], moved[STOCHASTIC],
          IMAGE * 128);
    /* small weights of floats are closely spaced and change at any rate: with stochastic rounding far more do */
    for (int v = FP16; v <= BF16; v += BF16 - FP16)
        CHECK(moved[v] > 0.5 * IMAGE * 128 && moved[v + 2] > 2 * moved[v + 1] && moved[v + 2] > 0.001 * IMAGE * 128,
              "%s, weights that moved: master %g, nearest %g, stochastic %g of %d", variants[v], moved[v], moved[v + 1],
              moved[v + 2], IMAGE * 128);
}

/* Variants of one format run the same kernels; one of them is enough for the slow reference kernels. */
static bool first_of_its_format(int variant) {
    for (int i = 0; i < variant; i++)
        if (nn_variant_at(i)->format == nn_variant_at(variant)->format)
            return false;
    return true;
}

int main(void) {
    make_set();
    for (int i = 0; nn_variant_at(i); i++) {
        const char *variant = nn_variant_at(i)->name;
        learns(variant, "mlp2", 60, 0.05f);
        repeats(variant, "mlp2", 0.05f, true);
        repeats(variant, "resnet8", 0.05f, first_of_its_format(i));
        short_batches(variant);
    }
    learns("fp32", "cnn6", 40, 0.05f);
    learns("flex16+5", "resnet8", 40, 0.05f);
    low_rate();
    return check_summary();
}
