/* consumer.c - a matrix product and a training run; prints what consumer.cpp prints. */
#include "flexlab/flexlab.h"
#include "flexlab/tensor_blocks.h"
#include <stdio.h>
#include <string.h>

int main(void) {
    if (strcmp(flexlab_version(), FLEXLAB_VERSION_STRING) != 0)
        return fprintf(stderr, "library %s, headers %s\n", flexlab_version(), FLEXLAB_VERSION_STRING), 1;

    tensor *x = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(2, 3));
    tensor *w = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(3, 2));
    tensor *bias = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(2));
    tensor *y = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(2, 2));
    float out[4];
    tensor_stats last;
    tensor_load_f32(x, (const float[]){1, 2, 3, 4, 5, 6}, 6);
    tensor_load_f32(w, (const float[]){0.5f, 0, 0, 0.25f, 1, 1}, 6);
    tensor_load_f32(bias, (const float[]){1, -8}, 2);
    if (tensor_matmul_fused(y, x, w, &(tensor_epilogue){.bias = bias, .relu = true}) || tensor_store_f32(y, out, 4) ||
        tensor_statistics(y, &last, NULL))
        return fprintf(stderr, "%s\n", tensor_error()), 1;
    printf("%g %g %g %g, largest %g\n", (double)out[0], (double)out[1], (double)out[2], (double)out[3], last.maximum);

    data_set *train = data_open("synthetic:train=160", DATA_TRAIN);
    const nn_train_config config = {.network = {.variant = "flex16+5", .batch = 16, .seed = 1, .momentum = 0.9f},
                                    .model = "mlp2",
                                    .epochs = 8,
                                    .rate = 0.005,
                                    .schedule = "constant"};
    nn_train_result result;
    if (!train || nn_train(&result, &config, train, NULL, NULL))
        return fprintf(stderr, "%s\n", tensor_error()), 1;
    printf("%d steps, loss %a\n", (int)result.steps, result.train_loss);

    nn_train_result_clear(&result);
    data_free(train);
    tensor_free(y);
    tensor_free(bias);
    tensor_free(w);
    tensor_free(x);
    return 0;
}
