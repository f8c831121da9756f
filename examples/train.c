/* train.c - trains the six-layer network on the generated images in flex16+5, or in the variant and for the epochs
 * given: train [VARIANT [EPOCHS]]. */
#include "flexlab/nn.h"
#include <stdio.h>
#include <stdlib.h>

static int print_epoch(void *context, const nn_epoch_report *report) {
    printf("%s epoch %d: loss %.4f, training accuracy %.2f %%, test accuracy %.2f %%, %.1f s\n", (const char *)context,
           report->epoch, report->train_loss, 100 * report->train_accuracy, 100 * report->test_accuracy,
           report->seconds);
    fflush(stdout);
    return 0;
}

int main(int argc, char **argv) {
    const char *variant = argc > 1 ? argv[1] : "flex16+5";
    nn_train_config config = {
        .network = {.variant = variant, .batch = 128, .seed = 1, .momentum = 0.9f, .weight_decay = 5e-4f},
        .model = "cnn6",
        .epochs = argc > 2 ? atoi(argv[2]) : 5,
        .rate = 0.05,
        .schedule = "linear",
        .augment = true,
    };
    nn_train_events events = {.epoch = print_epoch, .context = (void *)variant};
    nn_train_result result = {0};
    data_set *test = NULL, *train = data_open("synthetic", DATA_TRAIN);
    int failed =
        !train || !(test = data_open("synthetic", DATA_TEST)) || nn_train(&result, &config, train, test, &events);
    if (failed)
        fprintf(stderr, "%s\n", tensor_error());
    else
        printf("%lld parameters, %lld images in %.1f s; of %lld elements written %lld saturated, %lld became zero\n",
               (long long)result.parameters, (long long)result.images, result.seconds, (long long)result.elements,
               (long long)result.saturated, (long long)result.flushed);
    nn_train_result_clear(&result);
    data_free(train);
    data_free(test);
    return failed;
}
