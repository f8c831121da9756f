/* A network that trains on a device whose memory the host cannot touch and whose queue runs later, on another thread:
 * the bits of the processor in every variant, and nothing read back within a step. */
#include "toy_device.h"
#include "flexlab/nn.h"
#include "flexlab/tensor_blocks.h"
#include <math.h>

enum { BATCH = 6, SIZE = 16, CLASSES = 5, STEPS = 4 };
static float images[BATCH * SIZE * SIZE * 3];
static int32_t labels[BATCH];

static nn_graph *network(const char *variant, const char *device) {
    nn_graph *g = nn_graph_new(&(nn_config){
        .variant = variant, .batch = BATCH, .seed = 7, .momentum = 0.9f, .weight_decay = 1e-3f, .device = device});
    CHECK(g && !nn_compile(g, nn_model(g, "resnet8", SIZE, SIZE, 3, CLASSES)), "%s", tensor_error());
    return g;
}

static void new_batch(int step) {
    uint64_t seed = (uint64_t)step + 1;
    for (size_t i = 0; i < sizeof images / sizeof images[0]; i++)
        images[i] = (float)(check_random(&seed) >> 40) * 0x1p-23f - 1;
    for (int i = 0; i < BATCH; i++)
        labels[i] = (int32_t)(check_random(&seed) % CLASSES);
}

static void train_on_toy(const char *variant) {
    nn_graph *cpu = network(variant, NULL), *dev = network(variant, "toy");
    CHECK(!tensor_device_wait(&toy_device), "%s", tensor_error());
    const size_t bytes = nn_state_bytes(cpu);
    unsigned char *want = malloc(bytes), *got = malloc(bytes);
    CHECK(bytes == nn_state_bytes(dev), "%zu bytes of state, on the device %zu", bytes, nn_state_bytes(dev));
    for (int step = 0; step < STEPS; step++) {
        double loss, loss_there;
        int correct, correct_there;
        new_batch(step);
        CHECK(!nn_train_step(&loss, &correct, cpu, &(nn_batch){.images = images, .labels = labels}, 0.05f), "%s",
              tensor_error());
        const long gets = toy.gets, waits = toy.waits, calls = toy.calls;
        CHECK(!nn_train_step(NULL, NULL, dev, &(nn_batch){.images = images, .labels = labels}, 0.05f), "%s",
              tensor_error());
        CHECK(toy.gets == gets && toy.waits == waits, "%s step %d: %ld values read back, waited %ld times", variant,
              step, toy.gets - gets, toy.waits - waits);
        CHECK(toy.calls - calls > 60 && toy.count > 60, "only %ld calls", toy.calls - calls);
        new_batch(100); /* the caller may change its memory after the call */
        CHECK(!nn_loss(&loss_there, &correct_there, dev), "%s", tensor_error());
        CHECK(loss == loss_there && correct == correct_there, "%s step %d: loss %a, %d right; on the device %a, %d",
              variant, step, loss, correct, loss_there, correct_there);
        CHECK(!nn_state_save(want, bytes, cpu) && !nn_state_save(got, bytes, dev), "%s", tensor_error());
        size_t at = 0;
        while (at < bytes && want[at] == got[at])
            at++;
        CHECK(at == bytes, "%s step %d: byte %zu of %zu of the state differs", variant, step, at, bytes);
    }
    double loss = 0, loss_there = 1, logits[3 * CLASSES], logits_there[3 * CLASSES];
    int32_t predicted[3], predicted_there[3];
    new_batch(50);
    CHECK(!nn_evaluate(&loss, predicted, cpu, &(nn_batch){.images = images, .labels = labels, .count = 3}) &&
              !nn_evaluate(&loss_there, predicted_there, dev,
                           &(nn_batch){.images = images, .labels = labels, .count = 3}),
          "%s", tensor_error());
    CHECK(loss == loss_there && !memcmp(predicted, predicted_there, sizeof predicted), "%s: evaluation %a and %a",
          variant, loss, loss_there);
    CHECK(!nn_predict(logits, cpu, &(nn_batch){.images = images, .count = 3}) &&
              !nn_predict(logits_there, dev, &(nn_batch){.images = images, .count = 3}) &&
              !memcmp(logits, logits_there, sizeof logits),
          "%s: logits differ", variant);
    for (int i = 0; i < nn_tensor_count(cpu); i++) {
        tensor_stats a, b;
        CHECK(!tensor_statistics(NULL, &a, nn_tensor_at(cpu, i).t) &&
                  !tensor_statistics(NULL, &b, nn_tensor_at(dev, i).t) && !memcmp(&a, &b, sizeof a),
              "%s: statistics of %s", variant, nn_tensor_at(cpu, i).name);
    }
    free(want);
    free(got);
    nn_graph_free(cpu);
    nn_graph_free(dev);
}

static void refused(tensor_status got, tensor_status want, const char *part) {
    CHECK(got == want && strstr(tensor_error(), part), "status %d '%s', want %d '%s'", (int)got, tensor_error(),
          (int)want, part);
}

static void tensors(tensor_format format) {
    enum { N = 96 };
    double values[N], back[N];
    for (int i = 0; i < N; i++)
        values[i] = sin(i) * 3;
    tensor *h = tensor_new(format, TENSOR_SHAPE(8, 12)), *t = tensor_new_in(&toy_device, format, TENSOR_SHAPE(8, 12)),
           *u = tensor_new_in(&toy_device, format, TENSOR_SHAPE(8, 12));
    CHECK(h && t && u && tensor_device_of(t) == &toy_device, "%s", tensor_error());
    CHECK(!tensor_load_f64(t, values, N) && !tensor_load_f64(h, values, N), "%s", tensor_error());
    CHECK(!tensor_add(u, t, t) && !tensor_mul(u, u, t) && !tensor_keep_wide(u) && !tensor_sgd_update(u, t, 0.01f), "%s",
          tensor_error());
    tensor *want = tensor_new(format, TENSOR_SHAPE(8, 12)), *copy = tensor_new(format, TENSOR_SHAPE(8, 12));
    CHECK(!tensor_add(want, h, h) && !tensor_mul(want, want, h) && !tensor_keep_wide(want) &&
              !tensor_sgd_update(want, h, 0.01f) && !tensor_keep_wide(copy),
          "%s", tensor_error());
    CHECK(!tensor_copy(copy, u) &&
              !memcmp(tensor_const_data(copy), tensor_const_data(want), tensor_format_bytes(format) * N) &&
              tensor_exponent(copy) == tensor_exponent(want) && tensor_exponent(u) == tensor_exponent(want),
          "copied from the device");
    CHECK(!tensor_store_f64(u, values, N) && !tensor_store_f64(want, back, N) && !memcmp(values, back, sizeof back),
          "stored from the device");
    CHECK(!tensor_store_wide_f64(u, values, N) && !tensor_store_wide_f64(want, back, N) &&
              !memcmp(values, back, sizeof back),
          "the wide part, stored from the device");
    CHECK(!tensor_data(t) && strstr(tensor_error(), "tensor_copy"), "data of the device: %s", tensor_error());
    refused(tensor_add(u, t, h), TENSOR_E_ARGUMENT, "b on cpu");
    refused(tensor_add(h, h, t), TENSOR_E_ARGUMENT, "b on toy");
    refused(tensor_sum(values, t), TENSOR_E_UNSUPPORTED, "lies on toy");
    refused(tensor_convert(t, h), TENSOR_E_ARGUMENT, "use tensor_copy");
    if (tensor_format_is_shared(format)) {
        values[5] = NAN;
        refused(tensor_load_f64(t, values, N), TENSOR_E_ARGUMENT, "value 5 is nan");
        CHECK(!tensor_set_predictor(t, "ngraph") && tensor_autoflex(t)->predictor == AUTOFLEX_NGRAPH, "%s",
              tensor_error());
    }
    tensor *other = tensor_new_in(&toy_device, format == FMT_FP32 ? FMT_BF16 : FMT_FP32, TENSOR_SHAPE(8, 8));
    refused(tensor_matmul_nt(other, t, t), TENSOR_E_UNSUPPORTED,
            "the device toy has no kernel for operands and result of different formats");
    tensor *all[] = {h, t, u, want, copy, other};
    for (int i = 0; i < 6; i++)
        tensor_free(all[i]);
}

static void devices(void) {
    CHECK(!strcmp(tensor_device_name(tensor_device_at(0)), "cpu") && tensor_device_at(1) == &toy_device &&
              !tensor_device_at(2) && tensor_device_find("toy") == &toy_device,
          "the list of devices");
    CHECK(!tensor_device_find("gpu") && strstr(tensor_error(), "'gpu': expected one of cpu, toy"), "%s",
          tensor_error());
    CHECK(!nn_graph_new(&(nn_config){.variant = "fp32", .batch = 1, .device = "gpu"}) &&
              strstr(tensor_error(), "expected one of cpu, toy"),
          "%s", tensor_error());
    CHECK(!tensor_new_in(NULL, FMT_FP32, TENSOR_SHAPE(1)) && tensor_error_status() == TENSOR_E_ARGUMENT, "no device");
    nn_graph *g = network("fp16", "toy");
    new_batch(0);
    toy_lacks_softmax = true;
    refused(nn_train_step(NULL, NULL, g, &(nn_batch){.images = images, .labels = labels}, 0.1f), TENSOR_E_UNSUPPORTED,
            "fp16.softmax_cross_entropy: the device toy has no kernel for it");
    toy_lacks_softmax = false;
    tensor_class class;
    CHECK(!tensor_class_find(&class, "accumulate=h100") && !tensor_set_class(class), "%s", tensor_error());
    refused(nn_train_step(NULL, NULL, g, &(nn_batch){.images = images, .labels = labels}, 0.1f), TENSOR_E_UNSUPPORTED,
            "class accumulate=h100 is computed on cpu alone, and the tensors lie on toy");
    tensor_set_class(TENSOR_EXACT);
    labels[2] = CLASSES;
    refused(nn_train_step(NULL, NULL, g, &(nn_batch){.images = images, .labels = labels}, 0.1f), TENSOR_E_ARGUMENT,
            "label 2 is 5, expected 0 to 4");
    nn_graph_free(g);
}

/* A whole training there equals one on the host. */
static void trainings(void) {
    data_set *set = data_open("synthetic:train=48,test=20", DATA_TRAIN),
             *test = data_open("synthetic:train=48,test=20", DATA_TEST);
    static const char *const variants[] = {"flex16+5", "dfp16", "fp16"};
    for (int i = 0; i < 3; i++) {
        nn_train_result result[2];
        for (int where = 0; where < 2; where++) {
            const nn_train_config config = {.network = {.variant = variants[i],
                                                        .batch = 12,
                                                        .seed = 4,
                                                        .momentum = 0.9f,
                                                        .device = where ? "toy" : NULL},
                                            .model = "cnn6",
                                            .epochs = 2,
                                            .rate = 0.02,
                                            .schedule = "linear",
                                            .augment = true};
            CHECK(!nn_train(&result[where], &config, set, test, NULL), "%s", tensor_error());
        }
        CHECK(result[0].train_loss == result[1].train_loss && result[0].test_loss == result[1].test_loss &&
                  result[0].flushed == result[1].flushed && result[0].elements == result[1].elements &&
                  !memcmp(result[0].predicted, result[1].predicted, 20 * sizeof *result[0].predicted),
              "%s: train loss %a, on the device %a; test loss %a, %a", variants[i], result[0].train_loss,
              result[1].train_loss, result[0].test_loss, result[1].test_loss);
        nn_train_result_clear(&result[0]);
        nn_train_result_clear(&result[1]);
    }
    data_free(set);
    data_free(test);
}

/* Errors that appear only when a call runs: the wait reports them once, and later calls are left out. */
static void late_failures(void) {
    tensor *x = tensor_new_in(&toy_device, FMT_FLEX16_5, TENSOR_SHAPE(2, 3)),
           *dx = tensor_new_in(&toy_device, FMT_FLEX16_5, TENSOR_SHAPE(2, 3)),
           *y = tensor_new_in(&toy_device, FMT_FLEX16_5, TENSOR_SHAPE(2, 3)),
           *here = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(2, 3));
    tensor *loss = tensor_new_in(&toy_device, FMT_F64, TENSOR_SHAPE(1)),
           *classes = tensor_new_in(&toy_device, FMT_I32, TENSOR_SHAPE(2));
    const double values[6] = {1, 2, 3, 4, 5, 6}, others[6] = {9, 9, 9, 9, 9, 9};
    double read[6];
    CHECK(!tensor_load_f64(x, values, 6) && !tensor_load_f64(y, values, 6) && !tensor_load_f64(here, others, 6), "%s",
          tensor_error());
    CHECK(!tensor_load_i32(classes, (int32_t[2]){0, 99}, 2), "%s", tensor_error());
    CHECK(!tensor_cross_entropy(loss, dx, NULL, NULL, x, classes, NULL) && !tensor_add(y, x, x), "%s", tensor_error());
    CHECK(tensor_exponent(y) == 0 && strstr(tensor_error(), "label 1 is 99"), "an exponent after a failure: %s",
          tensor_error());
    refused(tensor_store_f64(y, read, 6), TENSOR_E_ARGUMENT, "label 1 is 99");
    refused(tensor_copy(here, y), TENSOR_E_ARGUMENT, "label 1 is 99");
    CHECK(!tensor_store_f64(here, read, 6) && !memcmp(read, others, sizeof read), "a copy that failed wrote");
    CHECK(!tensor_cross_entropy(loss, dx, NULL, NULL, x, classes, NULL) && !tensor_add(y, x, x), "%s", tensor_error());
    refused(tensor_device_wait(&toy_device), TENSOR_E_ARGUMENT, "label 1 is 99");
    CHECK(!tensor_device_wait(&toy_device), "said twice: %s", tensor_error());
    CHECK(!tensor_store_f64(y, read, 6) && read[5] == 6, "what followed the failure ran: %g", read[5]);
    tensor *all[] = {x, dx, y, here, loss, classes};
    for (int i = 0; i < 6; i++)
        tensor_free(all[i]);
}

static double mine(const struct autoflex *a, void *context) {
    (void)a, (void)context;
    return 1;
}

/* A call uses the tensor as it was when the call was submitted; a tensor may be freed before its calls have run. */
static void submitted(void) {
    enum { N = 64 };
    double values[N], want[N], got[N];
    uint64_t seed = 3;
    for (int i = 0; i < N; i++)
        values[i] = (double)(check_random(&seed) % 1000) / 7;
    for (int where = 0; where < 2; where++) {
        tensor_device *device = where ? &toy_device : tensor_device_at(0);
        tensor *x = tensor_new_in(device, FMT_FLEX16_5, TENSOR_SHAPE(N)),
               *y = tensor_new_in(device, FMT_FLEX16_5, TENSOR_SHAPE(N));
        CHECK(!tensor_load_f64(x, values, N) && !tensor_scale(y, x, 0.3f) && !tensor_scale(y, x, 0.3f) &&
                  !tensor_set_rounding(y, TENSOR_ROUND_STOCHASTIC, 5) && !tensor_store_f64(y, where ? got : want, N),
              "%s", tensor_error());
        tensor_free(x);
        tensor_free(y);
    }
    CHECK(!memcmp(want, got, sizeof want), "a later setting changed an earlier call");
    void *memory = tensor_device_allocate(&toy_device, 4096);
    tensor *a = tensor_new_at(&toy_device, FMT_FP16, TENSOR_SHAPE(N), memory, 4096),
           *b = tensor_new_at(&toy_device, FMT_FP16, TENSOR_SHAPE(N), (char *)memory + 2048, 2048);
    CHECK(a && b && !tensor_relu(a, b), "%s", tensor_error());
    tensor_free(a);
    tensor_free(b);
    CHECK(!tensor_device_wait(&toy_device), "%s", tensor_error());
    tensor_device_release(&toy_device, memory);
    tensor *h = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(2)),
           *t = tensor_new_in(&toy_device, FMT_FLEX16_5, TENSOR_SHAPE(2));
    CHECK(h && t && autoflex_add("mine", mine, NULL) && !tensor_set_predictor(h, "mine"), "%s", tensor_error());
    refused(tensor_copy(t, h), TENSOR_E_UNSUPPORTED, "'mine' is a function of the host");
    refused(tensor_set_predictor(t, "mine"), TENSOR_E_UNSUPPORTED, "'mine' is a function of the host");
    tensor_free(h);
    tensor_free(t);
}

int main(void) {
    if (!toy_begin((size_t)1 << 32))
        return check_skip("no address space for the memory of a device");
    for (int i = 0; tensor_format_at(i); i++)
        tensors(tensor_format_at(i));
    for (int i = 0; nn_variant_at(i); i++)
        train_on_toy(nn_variant_at(i)->name);
    devices();
    late_failures();
    trainings();
    submitted();
    free(toy.commands);
    return check_summary();
}
