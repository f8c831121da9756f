/* flushed_gradients.c - the effect of values that a shared exponent flushes to zero. Trains cnn6 in fp32 and examines
 * the gradients from which the weight gradients of its convolutions are computed: which share of their elements and of
 * their squared norm flex16+5 and dfp16 would flush, and how far the weight gradient changes without these. The
 * exponents are those that the formats' own predictors choose beside the training. usage: flushed_gradients [DATA [SEED
 * [STEPS [EVERY [DOSE]]]]], EVERY at least 2 (the previous step is stored as well), DOSE for gradients 2^-DOSE as
 * large; docs/experiments/flushed.md is the experiment. */
#include "arguments.h"
#include "flexlab/flexlab.h"
#include "flexlab/tensor_blocks.h"
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 32, LAYERS = 4, FORMATS = 2 };
static const char *const formats[FORMATS] = {"flex16+5", "dfp16"};

/* A convolution of 3x3: its input and gradient, copied in the step that wrote them. */
static struct layer {
    const char *input_name, *gradient_name, *weight_gradient_name;
    tensor *input, *gradient, *weight_gradient;
    tensor *before; /* the weight gradient of the previous step, from another batch */
    int e[FORMATS];
    int64_t flushed[FORMATS]; /* as telemetry counts them */
} layers[LAYERS] = {
    {.input_name = "input", .gradient_name = "conv1.grad", .weight_gradient_name = "conv1.weight.grad"},
    {.input_name = "pool1", .gradient_name = "conv2.grad", .weight_gradient_name = "conv2.weight.grad"},
    {.input_name = "bn2", .gradient_name = "conv3.grad", .weight_gradient_name = "conv3.weight.grad"},
    {.input_name = "pool2", .gradient_name = "conv4.grad", .weight_gradient_name = "conv4.weight.grad"}};
static nn_telemetry *telemetry;
static bool next_wanted, wanted, failed, reported; /* reported: the failure has been printed */
static int dose; /* gradients of a loss 2^-dose as large, whose exponent would be larger by that, but for its range */
static const int largest_e[FORMATS] = {31, 127};

static void keep(tensor **kept, const tensor *t) {
    if (!*kept)
        *kept =
            tensor_new(FMT_FP32, TENSOR_SHAPE(tensor_dim(t, 0), tensor_dim(t, 1), tensor_dim(t, 2), tensor_dim(t, 3)));
    failed = failed || !*kept || tensor_convert(*kept, t);
}

static void watch(const nn_tensor_info *info, void *context) {
    (void)context;
    nn_telemetry_watch(info, telemetry);
    for (int i = 0; (wanted || next_wanted) && i < LAYERS; i++)
        if (!strcmp(info->name, layers[i].weight_gradient_name) && next_wanted)
            keep(&layers[i].before, info->t);
        else if (!wanted)
            continue;
        else if (!strcmp(info->name, layers[i].gradient_name))
            keep(&layers[i].gradient, info->t);
        else if (!strcmp(info->name, layers[i].input_name))
            keep(&layers[i].input, info->t);
}

static void row(void *context, const nn_telemetry_row *r) {
    (void)context;
    for (int i = 0; i < LAYERS; i++)
        for (int f = 0; f < FORMATS && !strcmp(r->tensor, layers[i].gradient_name); f++)
            layers[i].e[f] = (int)fmin(largest_e[f], r->shadows[f].e + dose) - dose,
            layers[i].flushed[f] = r->shadows[f].flushed;
}

static double norm(const float *x, int64_t count) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += (double)x[i] * x[i];
    return sqrt(sum);
}

/* The norm of the weight gradient that `gradient` makes with the layer's input: it is linear in the gradient, so that
 * of a part of the gradient is the contribution of that part. */
static double weight_gradient(struct layer *l, float *gradient, float *made) {
    const int64_t count = tensor_count(l->weight_gradient);
    failed = failed || tensor_load_f32(l->gradient, gradient, tensor_count(l->gradient)) ||
             tensor_conv2d_weight_grad(l->weight_gradient, l->gradient, l->input,
                                       &(tensor_window){TENSOR_SQUARE(0, 1, 1)}) ||
             tensor_store_f32(l->weight_gradient, made, count);
    return norm(made, count);
}

/* Prints one line: the losses by flushing (elements that round to 0 become 0, the others remain) and by rounding as a
 * whole. */
static void describe(struct layer *l, int format, int step, uint64_t seed) {
    if (!l->weight_gradient)
        l->weight_gradient =
            tensor_new(FMT_FP32, TENSOR_SHAPE(tensor_dim(l->gradient, 3), 3, 3, tensor_dim(l->input, 3)));
    const int64_t count = tensor_count(l->gradient), weights = tensor_count(l->weight_gradient);
    float *whole = malloc((size_t)count * sizeof *whole), *part = malloc((size_t)count * sizeof *part),
          *made = malloc(2 * (size_t)weights * sizeof *made);
    failed = failed || !whole || !part || !made || tensor_store_f32(l->gradient, whole, count);
    if (!failed) {
        int64_t nonzero = 0, flushed = 0;
        for (int64_t i = 0; i < count; i++) {
            const bool lost = whole[i] != 0 && fabs(ldexp(whole[i], l->e[format])) <= 0.5;
            part[i] = lost ? whole[i] : 0;
            nonzero += whole[i] != 0;
            flushed += lost;
        }
        if (dose == 0 && flushed != l->flushed[format]) {
            fprintf(stderr, "flushed_gradients: %s in %s: %lld elements flushed, but %lld by telemetry\n",
                    l->gradient_name, formats[format], (long long)flushed, (long long)l->flushed[format]);
            failed = reported = true;
        }
        const double share = norm(part, count) / norm(whole, count), of_flushed = weight_gradient(l, part, made);
        for (int64_t i = 0; i < count; i++) {
            const double mantissa = nearbyint(ldexp(whole[i], l->e[format]));
            part[i] = (float)(whole[i] - ldexp(fmax(-32767, fmin(32767, mantissa)), -l->e[format]));
        }
        const double of_rounded = weight_gradient(l, part, made), all = weight_gradient(l, whole, made);
        const float *other = made + weights;
        double change = NAN;
        if (l->before && !(failed = failed || tensor_store_f32(l->before, made + weights, weights))) {
            for (int64_t i = 0; i < weights; i++)
                made[i] -= other[i];
            change = norm(made, weights) / all;
        }
        printf("%d,%llu,%d,%s,%s,%d,%lld,%lld,%lld,%.3g,%.3g,%.3g,%.3g\n", dose, (unsigned long long)seed, step,
               l->gradient_name, formats[format], l->e[format], (long long)count, (long long)nonzero,
               (long long)flushed, share * share, of_flushed / all, of_rounded / all, change);
    }
    free(whole), free(part), free(made);
}

int main(int argc, char **argv) {
    const char *data = argc > 1 ? argv[1] : "synthetic:train=512,test=1,seed=1";
    const uint64_t seed = (uint64_t)whole_argument(argc, argv, 2, "SEED", 0, 0x1p53, 1);
    const int steps = (int)whole_argument(argc, argv, 3, "STEPS", 1, 1e9, 11),
              every = (int)whole_argument(argc, argv, 4, "EVERY", 2, 1e9, 5);
    dose = (int)whole_argument(argc, argv, 5, "DOSE", 0, 60, 0);
    double mean[4], deviation[4];
    data_set *set = data_open(data, DATA_TRAIN);
    nn_graph *g = nn_graph_new(&(nn_config){.variant = "fp32", .batch = BATCH, .seed = seed, .momentum = 0.9f});
    if (!set || !g ||
        nn_compile(g, nn_model(g, "cnn6", data_height(set), data_width(set), data_channels(set), data_classes(set))) ||
        data_channel_moments(mean, deviation, set))
        return fprintf(stderr, "flushed_gradients: %s\n", tensor_error()), 1;
    telemetry = nn_telemetry_new(
        g, &(nn_telemetry_config){
               .pattern = "conv?.grad", .shadows = "flex16+5,dfp16", .every = every, .row = row, .watched = true});
    data_loader *loader = data_loader_new(
        set,
        &(data_loader_config){
            .batch = BATCH, .seed = seed, .shuffle = true, .drop_last = true, .mean = mean, .deviation = deviation});
    failed = !telemetry || !loader || nn_watch(g, watch, NULL);
    puts("dose,seed,step,tensor,format,e,elements,nonzero,flushed,norm2_flushed,update_of_flushed,update_of_rounding,"
         "other_"
         "batch");
    for (int step = 1, epoch = 0; step <= steps && !failed; epoch++) {
        data_batch batch = {0};
        failed = data_loader_start(loader, epoch);
        while (step <= steps && !failed && !(failed = data_loader_next(&batch, loader)) && batch.count) {
            wanted = step % every == 1 % every;
            next_wanted = (step + 1) % every == 1 % every;
            failed = failed ||
                     nn_train_step(NULL, NULL, g, &(nn_batch){.images = batch.images, .labels = batch.labels}, 0.01f) ||
                     nn_telemetry_step(telemetry);
            for (int i = 0; wanted && !failed && i < LAYERS; i++)
                for (int f = 0; f < FORMATS; f++)
                    describe(&layers[i], f, step, seed);
            step++;
        }
    }
    if (failed && !reported)
        fprintf(stderr, "flushed_gradients: %s\n", tensor_error());
    for (int i = 0; i < LAYERS; i++)
        tensor_free(layers[i].input), tensor_free(layers[i].gradient), tensor_free(layers[i].weight_gradient),
            tensor_free(layers[i].before);
    nn_telemetry_free(telemetry), data_loader_free(loader), data_free(set), nn_graph_free(g);
    return failed;
}
