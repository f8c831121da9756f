/* A network whose policy names a GPU trains with the sums of its tensor cores: other bits than without, the same bits
 * for every number of threads, and the class of the calling thread is as before. FP8 policies mix E4M3 and E5M2. */
#include "check.h"
#include "flexlab/nn.h"
#include "flexlab/tensor.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 8, STEPS = 3 };

/* The losses of a few steps. */
static void train(const char *policy, int threads, double loss[STEPS]) {
    const nn_config config = {.policy = policy, .batch = BATCH, .seed = 3, .loss_scale = "none"};
    static float images[BATCH * 8 * 8 * 3];
    int32_t labels[BATCH];
    uint64_t state = 5;
    for (int i = 0; i < BATCH * 8 * 8 * 3; i++)
        images[i] = (float)(check_random(&state) >> 40) * 0x1p-24f - 0.5f;
    for (int i = 0; i < BATCH; i++)
        labels[i] = i % 5;
    tensor_set_threads(threads);
    nn_graph *g = nn_graph_new(&config);
    CHECK(g, "%s", tensor_error());
    if (!g)
        return;
    const nn_node logits = nn_model(g, "resnet8", 8, 8, 3, 5);
    CHECK(!nn_compile(g, logits), "%s", tensor_error());
    for (int i = 0; i < STEPS; i++)
        CHECK(!nn_train_step(&loss[i], NULL, g, &(nn_batch){.images = images, .labels = labels}, 0.1f), "%s",
              tensor_error());
    nn_graph_free(g);
}

int main(void) {
    double plain[STEPS], one[STEPS], more[STEPS];
    train("variant fp16;", 1, plain);
    train("variant fp16; accumulate h100;", 1, one);
    CHECK(memcmp(plain, one, sizeof plain), "the class changed nothing");
    for (int threads = 2; threads <= 3; threads++) {
        train("variant fp16; accumulate h100;", threads, more);
        CHECK(!memcmp(one, more, sizeof one), "%d threads", threads);
    }
    CHECK(tensor_result_class() == TENSOR_EXACT, "the class remained");
    train("variant flex16+5;", 1, plain);
    train("variant flex16+5; accumulate h100;", 1, one);
    CHECK(!memcmp(plain, one, sizeof plain), "the class changed shared exponents");
    /* FP8: values and weights in E4M3, gradients in E5M2, so that both halves of backward mix them */
    train("variant fp32; if-any @product operands=e4m3fn gradient-operands=e5m2 result=fp32;", 1, plain);
    train("variant fp32; if-any @product operands=e4m3fn gradient-operands=e5m2 result=fp32; accumulate h100;", 1, one);
    train("variant fp32; if-any @product operands=e4m3fn gradient-operands=e5m2 result=fp32; accumulate h100;", 3,
          more);
    CHECK(memcmp(plain, one, sizeof plain), "the class changed nothing in FP8");
    CHECK(!memcmp(one, more, sizeof one), "FP8, 3 threads");
    CHECK(one[0] > 1 && one[STEPS - 1] < one[0], "FP8: losses %g ... %g", one[0], one[STEPS - 1]);
    const nn_config bad = {.policy = "variant fp16; accumulate h1000;", .batch = 1};
    CHECK(!nn_graph_new(&bad) && strstr(tensor_error(), "GPU 'h1000' at character 12"), "%s", tensor_error());
    return check_summary();
}
