/* facts_int8.c - int8 after training: a residual network is calibrated with 5, 10 and 50 batches and computed in
 * integers, beside fp32 on the same images. */
#include "facts/facts.h"
#include "flexlab/data.h"
#include "flexlab/nn.h"
#include "flexlab/tensor_blocks.h"
#include "facts/int8.h"
#include "base/failure.h"
#include "base/text.h"
#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    BATCH = 64,
    MOST_BATCHES = 50,
    MOST_IMAGES = 2000,
    MOST_BLOCKS = 18,
    MOST_LAYERS = 6 * MOST_BLOCKS + 2,
    CHANNELS = 3,
    NAME = 80
};
enum { LEAST_SIDE = 4, MOST_SIDE = 32 };

/* One convolution with its normalisation, or the linear layer at the end. The input of layer i is value i, value 0 the
 * images; the linear layer reads the mean of all pixels. */
struct layer {
    int channels, filters, window, stride;
    int residual; /* the value that is added; -1: none */
    float *weights, *bias;
};
struct network {
    struct layer layer[MOST_LAYERS];
    int count, classes; /* the linear layer is the last of them */
    bool foreign;       /* names and order of PyTorch */
    double mean[CHANNELS], deviation[CHANNELS];
    char reason[400]; /* why it is refused, where tensor_error() does not say it */
};

static bool refuse(struct network *n, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool refuse(struct network *n, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(n->reason, sizeof n->reason, format, arguments);
    va_end(arguments);
    return false;
}

static void free_network(struct network *n) {
    for (int i = 0; i < n->count; i++) {
        free(n->layer[i].weights);
        free(n->layer[i].bias);
    }
    n->count = 0;
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

/* A tensor of that file in doubles, to be freed; NULL where it is not there, not of `count` elements, or where one of
 * them is not finite or below `least`. */
static double *read_doubles(struct network *n, const char *path, const char *layer, const char *what, int64_t count,
                            double least) {
    char name[2 * NAME];
    double *values = text_alloc((size_t)count, sizeof *values);
    snprintf(name, sizeof name, "%s.%s", layer, what);
    bool good = !nn_checkpoint_values(values, count, path, name);
    for (int64_t i = 0; i < count && good; i++)
        if (!isfinite(values[i]) || values[i] < least)
            good = refuse(n, "%s, element %lld: %g, expected a finite number%s", name, (long long)i, values[i],
                          least < 0 ? "" : " that is not below 0");
    if (good)
        return values;
    free(values);
    return NULL;
}

/* A number of a layer, in float. */
static bool put(struct network *n, float *to, double value, const char *layer, const char *what, int64_t i) {
    if (!(fabs(value) <= FLT_MAX))
        return refuse(n, "%s, element %lld of the %s: %g, expected a number that float holds", layer, (long long)i,
                      what, value);
    *to = (float)value;
    return true;
}

/* weights[k][r][s][c] times gamma / sqrt(variance + epsilon), and the bias that goes with it. */
static bool add_convolution(struct network *n, const char *path, const char *conv, const char *norm,
                            struct layer layer) {
    const int64_t area = (int64_t)layer.window * layer.window, one = area * layer.channels;
    const bool foreign = n->foreign;
    double *const w = read_doubles(n, path, conv, "weight", one * layer.filters, -INFINITY);
    double *const gamma =
        w ? read_doubles(n, path, norm, foreign ? "weight" : "gamma", layer.filters, -INFINITY) : NULL;
    double *const beta =
        gamma ? read_doubles(n, path, norm, foreign ? "bias" : "beta", layer.filters, -INFINITY) : NULL;
    double *const mean = beta ? read_doubles(n, path, norm, "running_mean", layer.filters, -INFINITY) : NULL;
    double *const variance =
        mean ? read_doubles(n, path, norm, foreign ? "running_var" : "running_variance", layer.filters, 0) : NULL;
    bool good = variance != NULL;
    layer.weights = text_alloc((size_t)(one * layer.filters), sizeof(float));
    layer.bias = text_alloc((size_t)layer.filters, sizeof(float));
    for (int k = 0; good && k < layer.filters; k++) {
        const double scale = gamma[k] / sqrt(variance[k] + 1e-5);
        for (int64_t i = 0; i < one && good; i++) {
            const int64_t pixel = i / layer.channels, c = i % layer.channels;
            const int64_t from = k * one + (foreign ? c * area + pixel : i);
            good = put(n, &layer.weights[k * one + i], scale * w[from], conv, "normalised weights", from);
        }
        good = good && put(n, &layer.bias[k], beta[k] - mean[k] * scale, norm, "bias", k);
    }
    n->layer[n->count++] = layer;
    free(w);
    free(gamma);
    free(beta);
    free(mean);
    free(variance);
    return good;
}

static bool add_linear(struct network *n, const char *path) {
    const char *const name = n->foreign ? "linear" : "fc";
    struct layer layer = {.channels = 64, .filters = n->classes, .window = 1, .stride = 1, .residual = -1};
    double *const w = read_doubles(n, path, name, "weight", 64L * n->classes, -INFINITY);
    double *const bias = w ? read_doubles(n, path, name, "bias", n->classes, -INFINITY) : NULL;
    bool good = bias != NULL;
    layer.weights = text_alloc(64 * (size_t)n->classes, sizeof(float));
    layer.bias = text_alloc((size_t)n->classes, sizeof(float));
    for (int k = 0; k < n->classes && good; k++) {
        for (int c = 0; c < 64 && good; c++) { /* PyTorch has [out, in], this library [in, out] */
            const int64_t from = n->foreign ? k * 64L + c : (int64_t)c * n->classes + k;
            good = put(n, &layer.weights[k * 64 + c], w[from], name, "weights", from);
        }
        good = good && put(n, &layer.bias[k], bias[k], name, "bias", k);
    }
    n->layer[n->count++] = layer;
    free(w);
    free(bias);
    return good;
}

static void block_names(char conv[NAME], char norm[NAME], bool foreign, int stage, int block, int number) {
    const char *const form = foreign ? "layer%d.%d.%s%d" : "stage%d.block%d.%s%d";
    snprintf(conv, NAME, form, stage, block - foreign, "conv", number);
    snprintf(norm, NAME, form, stage, block - foreign, "bn", number);
}

/* Whether the file has that tensor. */
static bool look_for(const char *path, const char *name, bool *found) {
    int ndim = -1;
    int64_t dim[8];
    const bool good = !nn_checkpoint_shape(&ndim, dim, path, name);
    *found = ndim >= 0;
    return good;
}

/* Blocks of a stage, the same in each of the three. */
static bool count_blocks(struct network *n, const char *path, int *blocks) {
    char conv[NAME], norm[NAME], name[NAME + 10];
    bool found = true;
    for (int stage = 1; stage <= 3; stage++, found = true)
        for (int block = 1; found; block++) {
            block_names(conv, norm, n->foreign, stage, block, 1);
            snprintf(name, sizeof name, "%s.weight", conv);
            if (!look_for(path, name, &found))
                return false;
            if (found && block > MOST_BLOCKS)
                return refuse(n, "has %s, expected at most %d blocks a stage", name, MOST_BLOCKS);
            if (!found && block == 1)
                return refuse(n, "has no %s, expected a residual network of three stages", name);
            if (!found && stage > 1 && block - 1 != *blocks)
                return refuse(n, "stage %d has %d blocks, expected %d as in stage 1", stage, block - 1, *blocks);
            *blocks = stage == 1 ? block - !found : *blocks;
        }
    return true;
}

/* Refuses networks that are not of option A: those with weights in shortcuts, or a fourth stage. */
static bool refuse_others(struct network *n, const char *path) {
    static const char *const others[] = {"shortcut.0.weight",   "shortcut.weight",   "shortcut.conv.weight",
                                         "downsample.0.weight", "short.conv.weight", "conv3.weight"};
    char name[2 * NAME];
    bool found = false;
    for (int stage = 1; stage <= 3; stage++)
        for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
            snprintf(name, sizeof name, n->foreign ? "layer%d.%d.%s" : "stage%d.block%d.%s", stage, 1 - n->foreign,
                     others[i]);
            if (!look_for(path, name, &found))
                return false;
            if (found)
                return refuse(n, "has %s, expected shortcuts without weights (option A) and blocks of two convolutions",
                              name);
        }
    const char *const fourth = n->foreign ? "layer4.0.conv1.weight" : "stage4.block1.conv1.weight";
    return look_for(path, fourth, &found) && (!found || refuse(n, "has %s, expected three stages", fourth));
}

/* Numbers of a note, one a channel. */
static bool read_moments(struct network *n, const char *path, const char *key, double values[CHANNELS]) {
    char text[200];
    int end = 0;
    if (nn_checkpoint_note(text, sizeof text, path, key))
        return false;
    bool good = sscanf(text, "%lf %lf %lf %n", &values[0], &values[1], &values[2], &end) == CHANNELS && !text[end];
    for (int c = 0; c < CHANNELS && good; c++)
        good = isfinite(values[c]) && (values != n->deviation || values[c] > 0);
    return good || refuse(n, "%s: '%s', expected %d finite numbers%s", key, text, CHANNELS,
                          values == n->deviation ? " above 0" : "");
}

/* False, with the reason in n or in tensor_error(), where the file holds no residual network of option A in fp32,
 * neither of this program nor of akamaster's with PyTorch. */
static bool read_network(struct network *n, const char *path, int classes) {
    int ndim;
    int64_t dim[8];
    if (nn_checkpoint_shape(&ndim, dim, path, "linear.weight"))
        return false;
    *n = (struct network){
        .classes = classes, .foreign = ndim >= 0, .mean = {0.485, 0.456, 0.406}, .deviation = {0.229, 0.224, 0.225}};
    if (!n->foreign && (!read_moments(n, path, "training.mean", n->mean) ||
                        !read_moments(n, path, "training.deviation", n->deviation)))
        return false;
    char conv[NAME], norm[NAME];
    int blocks = 0;
    if (!count_blocks(n, path, &blocks) || !refuse_others(n, path))
        return false;
    bool good = add_convolution(n, path, "conv1", "bn1", (struct layer){CHANNELS, 16, 3, 1, -1, NULL, NULL});
    for (int stage = 1; stage <= 3; stage++)
        for (int block = 1; block <= blocks && good; block++) {
            const int filters = 8 << stage, stride = stage > 1 && block == 1 ? 2 : 1, from = n->count;
            block_names(conv, norm, n->foreign, stage, block, 1);
            good = add_convolution(n, path, conv, norm,
                                   (struct layer){filters / stride, filters, 3, stride, -1, NULL, NULL});
            block_names(conv, norm, n->foreign, stage, block, 2);
            good =
                good && add_convolution(n, path, conv, norm, (struct layer){filters, filters, 3, 1, from, NULL, NULL});
        }
    return good && add_linear(n, path);
}

/* --- fp32 --------------------------------------------------------------------------------------------------------- */

/* Tensors of a batch: a value for the images, one after each convolution, the means, the logits. */
struct passes {
    const struct network *n;
    tensor *value[MOST_LAYERS + 2], *weights[MOST_LAYERS], *bias[MOST_LAYERS], *shortcut[MOST_LAYERS];
};

static void free_passes(struct passes *p) {
    for (int i = 0; i < p->n->count + 2; i++)
        tensor_free(p->value[i]);
    for (int i = 0; i < p->n->count; i++) {
        tensor_free(p->weights[i]);
        tensor_free(p->bias[i]);
        tensor_free(p->shortcut[i]);
    }
}

static bool make_passes(struct passes *p, const struct network *n, int side) {
    *p = (struct passes){.n = n};
    p->value[0] = tensor_new(FMT_FP32, TENSOR_SHAPE(BATCH, side, side, CHANNELS));
    bool good = p->value[0] != NULL;
    for (int i = 0; i < n->count && good; i++) {
        const struct layer *l = &n->layer[i];
        const bool last = i == n->count - 1;
        side = (side + l->stride - 1) / l->stride;
        p->weights[i] = last ? tensor_new(FMT_FP32, TENSOR_SHAPE(l->filters, l->channels))
                             : tensor_new(FMT_FP32, TENSOR_SHAPE(l->filters, 3, 3, l->channels));
        p->bias[i] = tensor_new(FMT_FP32, TENSOR_SHAPE(l->filters));
        if (last)
            p->value[i + 1] = tensor_new(FMT_FP32, TENSOR_SHAPE(BATCH, l->channels));
        else
            p->value[i + 1] = tensor_new(FMT_FP32, TENSOR_SHAPE(BATCH, side, side, l->filters));
        if (l->residual >= 0 && n->layer[l->residual].stride == 2)
            p->shortcut[i] = tensor_new(FMT_FP32, TENSOR_SHAPE(BATCH, side, side, l->filters));
        good = p->weights[i] && p->bias[i] && p->value[i + 1] &&
               !tensor_load_f32(p->weights[i], l->weights, (int64_t)l->window * l->window * l->channels * l->filters) &&
               !tensor_load_f32(p->bias[i], l->bias, l->filters);
    }
    p->value[n->count + 1] = tensor_new(FMT_FP32, TENSOR_SHAPE(BATCH, n->classes));
    return good && p->value[n->count + 1];
}

static bool forward(struct passes *p, const float *images) {
    const int convolutions = p->n->count - 1;
    bool good = !tensor_load_f32(p->value[0], images, tensor_count(p->value[0]));
    for (int i = 0; i < convolutions && good; i++) {
        const struct layer *l = &p->n->layer[i];
        const tensor *residual = l->residual < 0 ? NULL : p->value[l->residual];
        if (p->shortcut[i]) {
            good = !tensor_shortcut_a(p->shortcut[i], residual, 2);
            residual = p->shortcut[i];
        }
        good = good && !tensor_conv2d_fused(p->value[i + 1], p->value[i], p->weights[i],
                                            &(tensor_window){TENSOR_SQUARE(0, l->stride, 1)},
                                            &(tensor_epilogue){.bias = p->bias[i], .residual = residual, .relu = true});
    }
    return good && !tensor_avgpool_global(p->value[convolutions + 1], p->value[convolutions]) &&
           !tensor_matmul_nt_fused(p->value[convolutions + 2], p->value[convolutions + 1], p->weights[convolutions],
                                   &(tensor_epilogue){.bias = p->bias[convolutions]});
}

/* --- int8 --------------------------------------------------------------------------------------------------------- */

/* Values of one image, and what each byte of it is. */
struct integers {
    const struct network *n;
    struct int8_layer layer[MOST_LAYERS];
    int8_t pixel[CHANNELS][256], *value[MOST_LAYERS + 1], *patch, *residual;
    int32_t *sums;
    int side, side_at[MOST_LAYERS + 1];
    struct int8_layer mean; /* from sums of pixels to the value that the linear layer reads */
};

static void free_integers(struct integers *q) {
    for (int i = 0; i < MOST_LAYERS; i++)
        int8_free(&q->layer[i]);
    for (int i = 0; i <= MOST_LAYERS; i++)
        free(q->value[i]);
    int8_free(&q->mean);
    free(q->patch);
    free(q->residual);
    free(q->sums);
}

/* step[i] is that of value i. */
static bool make_integers(struct integers *q, struct network *n, int side, const double *step) {
    float table[CHANNELS * 256], ones[64 * 64] = {0}, zeros[64] = {0};
    *q = (struct integers){.n = n, .side = side};
    data_pixel_values(table, CHANNELS, n->mean, n->deviation);
    for (int i = 0; i < CHANNELS * 256; i++) {
        const double v = rint(table[i] / step[0]);
        q->pixel[i / 256][i % 256] = (int8_t)fmax(fmin(v, INT8_LARGEST), -INT8_LARGEST);
    }
    const size_t most = (size_t)side * (size_t)side * 64;
    q->patch = text_alloc(3 * 3 * 64, 1);
    q->residual = text_alloc(most, 1);
    /* the last layer has a sum a class, and there may be more classes than a small image has sums */
    q->sums = text_alloc(most > (size_t)n->classes ? most : (size_t)n->classes, sizeof *q->sums);
    q->value[0] = text_alloc(most, 1);
    q->side_at[0] = side;
    bool good = true;
    for (int i = 0; i < n->count && good; i++) {
        const struct layer *l = &n->layer[i];
        const bool last = i == n->count - 1;
        q->value[i + 1] = text_alloc(most, 1);
        q->side_at[i + 1] = (q->side_at[i] + l->stride - 1) / l->stride;
        q->layer[i] = (struct int8_layer){.channels = l->channels,
                                          .filters = l->filters,
                                          .window = l->window,
                                          .stride = l->stride,
                                          .padding = last ? 0 : 1,
                                          .relu = !last};
        const struct int8_steps steps = {.input = step[last ? i + 1 : i],
                                         .output = last ? 1 : step[i + 1],
                                         .residual = l->residual < 0 ? 0 : step[l->residual]};
        good = int8_make(&q->layer[i], l->weights, l->bias, steps) ||
               refuse(n, "layer %d: steps of input %g, output %g, residual %g, expected factors that 62 bits hold",
                      i + 1, steps.input, steps.output, steps.residual);
    }
    if (!good)
        return false;
    /* a mean is a matrix of ones on the diagonal, whose sums are those of all pixels */
    for (int c = 0; c < 64; c++)
        ones[c * 64 + c] = 1;
    const int last = q->side_at[n->count - 1];
    q->mean = (struct int8_layer){.channels = 64, .filters = 64, .window = 1, .stride = 1, .relu = true};
    const struct int8_steps steps = {.input = step[n->count - 1], .output = step[n->count] * last * last};
    return int8_make(&q->mean, ones, zeros, steps) ||
           refuse(n, "the mean of all pixels: steps of input %g, output %g, expected factors that 62 bits hold",
                  steps.input, steps.output);
}

/* Every second pixel, zeros in the channels that were added. */
static void shortcut(const int8_t *x, int side, int channels, int8_t *y) {
    const int half = (side + 1) / 2, filters = 2 * channels, pad = channels / 2;
    memset(y, 0, (size_t)half * (size_t)half * (size_t)filters);
    for (int p = 0; p < half; p++)
        for (int q = 0; q < half; q++)
            memcpy(y + ((size_t)p * (size_t)half + (size_t)q) * (size_t)filters + pad,
                   x + ((size_t)(2 * p) * (size_t)side + (size_t)(2 * q)) * (size_t)channels, (size_t)channels);
}

static int classify(struct integers *q, const uint8_t *image) {
    const int convolutions = q->n->count - 1, pixels = q->side * q->side;
    for (int i = 0; i < pixels * CHANNELS; i++)
        q->value[0][i] = q->pixel[i % CHANNELS][image[i]];
    for (int i = 0; i < convolutions; i++) {
        const struct layer *l = &q->n->layer[i];
        const int8_t *residual = l->residual < 0 ? NULL : q->value[l->residual];
        if (residual && q->n->layer[l->residual].stride == 2) {
            shortcut(residual, q->side_at[l->residual], l->filters / 2, q->residual);
            residual = q->residual;
        }
        int8_sums(&q->layer[i], q->value[i], q->side_at[i], q->side_at[i], q->patch, q->sums);
        int8_store(&q->layer[i], q->sums, residual, (int64_t)q->side_at[i + 1] * q->side_at[i + 1], q->value[i + 1]);
    }
    int32_t means[64] = {0};
    const int left = q->side_at[convolutions] * q->side_at[convolutions];
    for (int i = 0; i < left * 64; i++)
        means[i % 64] += q->value[convolutions][i] * INT8_LARGEST;
    int8_store(&q->mean, means, NULL, 1, q->value[convolutions + 1]);
    int8_sums(&q->layer[convolutions], q->value[convolutions + 1], 1, 1, q->patch, q->sums);
    return int8_largest(&q->layer[convolutions], q->sums);
}

/* --- the experiment ----------------------------------------------------------------------------------------------- */

struct experiment {
    struct network network;
    data_set *calibration, *test;
    struct passes passes;
    struct int8_histogram *seen; /* of each value */
    float *room;
    int32_t *expected; /* what fp32 says of each test image */
    int64_t images, right;
};

static bool fill_batch(const struct experiment *x, const data_set *set, int64_t first, int64_t count, float *images) {
    float table[CHANNELS * 256];
    data_pixel_values(table, CHANNELS, x->network.mean, x->network.deviation);
    const int64_t pixels = (int64_t)data_height(set) * data_width(set) * CHANNELS;
    for (int64_t i = 0; i < BATCH; i++) {
        const uint8_t *image = data_image(set, first + (i < count ? i : 0));
        for (int64_t j = 0; image && j < pixels; j++)
            images[i * pixels + j] = table[j % CHANNELS * 256 + image[j]];
    }
    return true;
}

/* Both rounds over the batches: the largest magnitudes, then how the values are distributed. */
static bool calibrate(struct experiment *x, int batches) {
    memset(x->seen, 0, sizeof *x->seen * (size_t)(x->network.count + 1));
    bool good = true;
    for (int round = 0; round < 2; round++)
        for (int b = 0; b < batches && good; b++) {
            fill_batch(x, x->calibration, (int64_t)b * BATCH, BATCH, x->room);
            good = forward(&x->passes, x->room);
            for (int i = 0; i <= x->network.count && good; i++) {
                const int64_t n = tensor_count(x->passes.value[i]);
                good = !tensor_store_f32(x->passes.value[i], x->room, n);
                if (good && !(round ? int8_see : int8_see_largest)(&x->seen[i], x->room, n))
                    good = i ? refuse(&x->network, "value of layer %d is not finite, expected finite numbers", i)
                             : refuse(&x->network, "a normalised pixel is not finite, expected finite numbers; see "
                                                   "training.mean and training.deviation");
            }
        }
    return good;
}

static bool predict_fp32(struct experiment *x) {
    float *logits = text_alloc(BATCH * (size_t)x->network.classes, sizeof *logits);
    bool good = true;
    for (int64_t first = 0; first < x->images && good; first += BATCH) {
        const int64_t count = x->images - first < BATCH ? x->images - first : BATCH;
        fill_batch(x, x->test, first, count, x->room);
        good = forward(&x->passes, x->room) &&
               !tensor_store_f32(x->passes.value[x->network.count + 1], logits, (int64_t)BATCH * x->network.classes);
        for (int64_t i = 0; i < count && good; i++) {
            int best = 0;
            for (int k = 1; k < x->network.classes; k++)
                if (logits[i * x->network.classes + k] > logits[i * x->network.classes + best])
                    best = k;
            x->expected[first + i] = best;
            x->right += best == data_label(x->test, first + i);
        }
    }
    free(logits);
    return good;
}

static bool measure_int8(struct fact_lines *lines, struct experiment *x, int batches, bool by_divergence) {
    double step[MOST_LAYERS + 1];
    for (int i = 0; i <= x->network.count; i++) {
        const double threshold = int8_threshold(&x->seen[i], by_divergence);
        step[i] = threshold > 0 ? threshold / INT8_LARGEST : 1;
    }
    struct integers *q = text_alloc(1, sizeof *q);
    const bool good = make_integers(q, &x->network, data_height(x->test), step);
    int64_t lost = 0, won = 0;
    for (int64_t i = 0; i < x->images && good; i++) {
        const int label = data_label(x->test, i), got = classify(q, data_image(x->test, i));
        lost += x->expected[i] == label && got != label;
        won += x->expected[i] != label && got == label;
    }
    free_integers(q);
    free(q);
    if (!good)
        return false;
    const double n = (double)x->images, difference = (double)(won - lost) / n;
    const double error = sqrt((double)(won + lost) - n * difference * difference) / n;
    char *what = text_format("int8, %d calibration batches, thresholds by %s", batches,
                             by_divergence ? "divergence" : "maximum");
    /* with few images, chance alone exceeds 0.5 %: what is refuted is said, at two standard errors */
    fact_line(lines, difference >= -(0.005 + 2 * error), what,
              text_format("below fp32 by at most 0.5 %% of the images and 2 standard errors"),
              text_format("%+.2f %% (standard error %.2f): %lld right, %lld of fp32's lost, %lld won", 100 * difference,
                          100 * error, (long long)(x->right + won - lost), (long long)lost, (long long)won));
    free(what);
    return true;
}

static bool run(struct fact_lines *lines, struct experiment *x) {
    static const int batches[] = {5, 10, 50};
    bool good = make_passes(&x->passes, &x->network, data_height(x->test));
    size_t most = 0;
    for (int i = 0; i <= x->network.count && good; i++)
        most = (size_t)tensor_count(x->passes.value[i]) > most ? (size_t)tensor_count(x->passes.value[i]) : most;
    x->room = text_alloc(most + 1, sizeof *x->room);
    x->seen = text_alloc((size_t)x->network.count + 1, sizeof *x->seen);
    x->expected = text_alloc((size_t)x->images, sizeof *x->expected);
    good = good && predict_fp32(x);
    if (good) {
        const double p = (double)x->right / (double)x->images;
        char *what = text_format("fp32, %d layers, %lld images", x->network.count, (long long)x->images);
        fact_line(lines, p > 1.5 / x->network.classes, what, text_format("a network that has learnt"),
                  text_format("%.2f %% right (standard error %.2f): %lld", 100 * p,
                              100 * sqrt(p * (1 - p) / (double)x->images), (long long)x->right));
        free(what);
    }
    for (int i = 0; i < 3 && good; i++)
        good = calibrate(x, batches[i]) && measure_int8(lines, x, batches[i], true) &&
               measure_int8(lines, x, batches[i], false);
    free_passes(&x->passes);
    free(x->room);
    free(x->seen);
    free(x->expected);
    return good;
}

/* A network of eight layers from the same data, in `path`. */
static bool train_one(const data_set *set, const char *path) {
    char mean[100], deviation[100];
    double m[CHANNELS], d[CHANNELS];
    if (data_channel_moments(m, d, set))
        return false;
    snprintf(mean, sizeof mean, "%.17g %.17g %.17g", m[0], m[1], m[2]);
    snprintf(deviation, sizeof deviation, "%.17g %.17g %.17g", d[0], d[1], d[2]);
    const nn_note notes[] = {{"training.mean", mean}, {"training.deviation", deviation}};
    nn_train_config config = {.network = {.variant = "fp32", .batch = BATCH, .seed = 1, .momentum = 0.9f},
                              .model = "resnet8",
                              .epochs = 1,
                              .rate = 0.05,
                              .schedule = "linear"};
    nn_trainer *t = nn_trainer_new(&config, set, NULL, NULL);
    const bool good =
        t && !nn_trainer_advance(NULL, t, INT64_MAX) && !nn_checkpoint_save(nn_trainer_network(t), path, notes, 2);
    nn_trainer_free(t);
    return good;
}

static bool prepare(struct experiment *x, const char *given) {
    if (given)
        return read_network(&x->network, given, data_classes(x->test));
    const char *const room = getenv("TMPDIR");
    char *folder = text_format("%s/flexlab-int8-XXXXXX", room && *room ? room : "/tmp");
    if (!mkdtemp(folder)) {
        text_failed("%s: %s, expected a folder for temporary files; see TMPDIR", folder, strerror(errno));
        free(folder);
        return false;
    }
    char *path = text_format("%s/network.safetensors", folder);
    const bool good = train_one(x->calibration, path) && read_network(&x->network, path, data_classes(x->test));
    unlink(path);
    rmdir(folder);
    free(folder);
    free(path);
    return good;
}

static bool images_fit(const struct experiment *x) {
    return !data_is_text(x->test) && data_channels(x->test) == CHANNELS &&
           data_height(x->test) == data_width(x->test) && data_height(x->test) >= LEAST_SIDE &&
           data_height(x->test) <= MOST_SIDE && data_count(x->test) > 0 &&
           data_count(x->calibration) >= (int64_t)BATCH * MOST_BATCHES;
}

static void refuse_images(struct fact_lines *lines, const struct experiment *x, const char *option, const char *spec) {
    char *found = data_is_text(x->test)
                      ? text_format("a text")
                      : text_format("%lld images to calibrate with, %lld to test, %dx%d, channels: %d",
                                    (long long)data_count(x->calibration), (long long)data_count(x->test),
                                    (int)data_height(x->test), (int)data_width(x->test), (int)data_channels(x->test));
    char *why = text_format("%s, expected square images of %d channels, sides %d to %d, %d or more to calibrate with",
                            found, CHANNELS, LEAST_SIDE, MOST_SIDE, BATCH * MOST_BATCHES);
    fact_refused(lines, true, option, spec, why);
    free(found);
    free(why);
}

static void broke(struct fact_lines *lines, const struct experiment *x, const char *what) {
    if (*x->network.reason)
        fact_line(lines, false, what, text_format("a result"), text_format("%s", x->network.reason));
    else
        fact_broke(lines, what);
}

static void int8(struct fact_lines *lines) {
    struct experiment *x = text_alloc(1, sizeof *x);
    const char *const given = fact_network(lines), *data = fact_data(lines), *const folder = getenv("FLEXLAB_DATA");
    char *spec = data                ? text_format("%s", data)
                 : folder && *folder ? text_format("cifar10:%s", folder)
                                     : text_format("synthetic");
    failure_forget();
    if (data_open_splits(&x->calibration, &x->test, spec))
        fact_refused(lines, failure_is_usage(), data ? "--data" : "FLEXLAB_DATA", spec, tensor_error());
    else if (!images_fit(x))
        refuse_images(lines, x, data ? "--data" : "FLEXLAB_DATA", spec);
    else {
        x->images = data_count(x->test) < MOST_IMAGES ? data_count(x->test) : MOST_IMAGES;
        const bool ready = prepare(x, given);
        if (!ready && given)
            fact_refused(lines, false, "--network", given, *x->network.reason ? x->network.reason : tensor_error());
        else if (!ready || !run(lines, x))
            broke(lines, x, given ? given : "a network trained here");
        free_network(&x->network);
    }
    data_free(x->calibration);
    data_free(x->test);
    free(spec);
    free(x);
}

const struct fact fact_int8 = {
    "int8", "Migacz 2017, by Micikevicius 2018",
    "a residual network in int8 after training, calibrated with 5, 10, 50 batches of 64 "
    "images, compared with fp32 on the same images; from --network and --data, or trained here",
    int8, true};
