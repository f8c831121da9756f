/* Structs of callers that were compiled with other headers: older ones are filled up with zeros, newer ones are read as
 * far as they are known and refused where they ask for more, and nothing is written behind a struct of the caller. */
#include "check.h"
#include "flexlab/flexlab.h"
#include "flexlab/tensor_blocks.h"
#include <math.h>
#include <stddef.h>
#include <string.h>

/* What stays for good. Frozen structs: the size. Others: each field where version 0.1 has it; new ones come after, and
 * structs that callers fill in end without padding, whose bytes nobody sets. */
#define AT(type, field, where) _Static_assert(offsetof(type, field) == (where), #type "." #field " has moved")
#define ENDS_WITH(type, last)                                                                                          \
    _Static_assert(offsetof(type, last) + sizeof((type *)0)->last == sizeof(type), #type " ends in padding")
_Static_assert(sizeof(tensor_augmentation) == 16, "tensor_augmentation is frozen");
_Static_assert(sizeof(nn_tensor_info) == 3 * sizeof(void *), "nn_tensor_info is frozen");
_Static_assert(sizeof(nn_role_row) == 2 * sizeof(void *), "nn_role_row is frozen");
ENDS_WITH(nn_config, loss_scale);
ENDS_WITH(tensor_optimiser, momentum);
ENDS_WITH(tensor_loss_options, unused);
ENDS_WITH(nn_wgan_config, no_master);
ENDS_WITH(nn_loss_scale, longest);
ENDS_WITH(nn_train_config, most_of_steps);
ENDS_WITH(nn_train_events, starved);
ENDS_WITH(nn_telemetry_config, unused);
ENDS_WITH(nn_transformer, activation);
ENDS_WITH(data_loader_config, streams);
ENDS_WITH(tensor_window, output_padding);
ENDS_WITH(tensor_window1d, output_padding);
#if UINTPTR_MAX == UINT64_MAX
_Static_assert(sizeof(struct autoflex) == 200, "struct autoflex is frozen");
_Static_assert(offsetof(struct autoflex, role) == 2 && offsetof(struct autoflex, e) == 4 &&
                   offsetof(struct autoflex, written) == 20 && offsetof(struct autoflex, block) == 22 &&
                   offsetof(struct autoflex, count) == 24 && offsetof(struct autoflex, history) == 32,
               "and so is each of its fields");
AT(tensor_stats, writes, 48);
AT(nn_config, weight_decay, 36);
AT(nn_config, device, 40);
AT(nn_config, optimiser, 48);
AT(nn_config, unused, 86);
AT(nn_config, loss, 88);
AT(nn_config, ignores, 108);
AT(nn_config, policy, 112);
AT(nn_config, loss_scale, 128);
AT(tensor_loss_options, ignores, 24);
/* behind the network, whose size is given beside it */
AT(nn_train_config, model, sizeof(nn_config));
AT(nn_train_config, trace_path, sizeof(nn_config) + 64);
AT(nn_train_config, report_every, sizeof(nn_config) + 88);
AT(nn_train_config, note_count, sizeof(nn_config) + 128);
AT(nn_train_config, context, sizeof(nn_config) + 136);
AT(nn_train_config, telemetry_every, sizeof(nn_config) + 144);
AT(nn_telemetry_config, watched, 56);
AT(tensor_description, rounding, 80);
AT(tensor_description, bins, 88);
AT(tensor_measure, size, 48);
AT(nn_transformer, activation, 16);
AT(tensor_optimiser, momentum, 24);
AT(tensor_window1d, output_padding, 24);
AT(nn_train_events, context, 16);
AT(nn_train_result, predicted_count, 152);
AT(nn_variant, summary, 32);
AT(nn_step_report, images, 48);
AT(nn_epoch_report, seconds, 48);
AT(data_loader_config, deviation, 32);
AT(data_loader_config, indices_only, 40);
AT(data_loader_config, streams, 52);
AT(data_batch, count, 24);
AT(data_batch, targets, 48);
#endif

/* A caller's struct of another version: the bytes of ours, then those it alone knows. */
#define NEWER(type)                                                                                                    \
    union {                                                                                                            \
        type ours;                                                                                                     \
        unsigned char bytes[sizeof(type) + 16];                                                                        \
    }

static void names_both_sizes(const char *name, size_t given, size_t known) {
    char text[100];
    CHECK(tensor_error_status() == TENSOR_E_ARGUMENT, "%s: %s", name, tensor_error());
    snprintf(text, sizeof text, "%s of %zu bytes", name, given);
    CHECK(strstr(tensor_error(), text), "\"%s\" lacks \"%s\"", tensor_error(), text);
    snprintf(text, sizeof text, "knows %zu bytes", known);
    CHECK(strstr(tensor_error(), text), "\"%s\" lacks \"%s\"", tensor_error(), text);
}

static void graphs(void) {
    NEWER(nn_config) newer = {.ours = {.variant = "fp32", .batch = 2, .momentum = 2}};
    /* Without momentum, which is out of range here, and what follows it. */
    nn_graph *g = nn_graph_new_sized(&newer.ours, offsetof(nn_config, momentum));
    CHECK(g, "%s", tensor_error());
    nn_graph_free(g);
    CHECK(!nn_graph_new_sized(&newer.ours, sizeof(nn_config)), "momentum 2");
    newer.ours.momentum = 0;
    g = nn_graph_new_sized(&newer.ours, sizeof newer);
    CHECK(g, "%s", tensor_error());
    nn_graph_free(g);
    newer.bytes[sizeof(nn_config) + 5] = 1;
    CHECK(!nn_graph_new_sized(&newer.ours, sizeof newer), "a field that the library does not know");
    names_both_sizes("nn_config", sizeof newer, sizeof(nn_config));
    const size_t wrong[] = {0, 4097, (size_t)-1};
    for (int i = 0; i < 3; i++)
        CHECK(!nn_graph_new_sized(&newer.ours, wrong[i]) && tensor_error_status() == TENSOR_E_ARGUMENT, "%zu bytes",
              wrong[i]);
    CHECK(!nn_graph_new(NULL), "NULL");
}

/* Every byte up to `size` written as ours has it, zero where ours ends, none behind it. */
static void given(const char *name, const unsigned char *bytes, size_t size, const void *ours, size_t known) {
    for (size_t i = 0; i < size; i++)
        CHECK(bytes[i] == (i < known ? ((const unsigned char *)ours)[i] : 0), "%s of %zu: byte %zu is %d", name, size,
              i, bytes[i]);
    CHECK(bytes[size] == 0xAA, "%s of %zu: the byte behind it was written", name, size);
}

static void statistics(void) {
    tensor *t = tensor_new(FMT_FP32, TENSOR_SHAPE(3));
    tensor_load_f32(t, (const float[]){1, 2, 3}, 3);
    tensor_add(t, t, t);
    tensor_stats last, total;
    CHECK(!tensor_statistics(t, &last, &total) && last.maximum == 6 && last.elements == 3, "%s", tensor_error());
    const size_t sizes[] = {offsetof(tensor_stats, writes), sizeof(tensor_stats), sizeof(tensor_stats) + 8};
    for (int i = 0; i < 3; i++) {
        unsigned char one[100], two[100];
        memset(one, 0xAA, sizeof one);
        memset(two, 0xAA, sizeof two);
        CHECK(!tensor_statistics_sized(t, (tensor_stats *)one, (tensor_stats *)two, sizes[i]), "%s", tensor_error());
        given("tensor_stats", one, sizes[i], &last, sizeof last);
        given("tensor_stats", two, sizes[i], &total, sizeof total);
    }
    CHECK(tensor_statistics_sized(t, &last, NULL, 0) == TENSOR_E_ARGUMENT && last.maximum == 6, "0 bytes");
    tensor_free(t);
}

static void loaders(const data_set *set) {
    static const double mean[3] = {0.5, 0.5, 0.5}, deviation[3] = {1, 1, 1};
    NEWER(data_loader_config) newer = {.ours = {.batch = 4, .mean = mean, .deviation = deviation}};
    CHECK(!data_loader_new_sized(set, &newer.ours, offsetof(data_loader_config, deviation)) &&
              strstr(tensor_error(), "deviation is NULL"),
          "without deviation: %s", tensor_error());
    data_loader *l = data_loader_new_sized(set, &newer.ours, sizeof newer);
    CHECK(l && !data_loader_start(l, 0), "%s", tensor_error());
    const size_t sizes[] = {offsetof(data_batch, count), sizeof(data_batch), sizeof(data_batch) + 8};
    for (int i = 0; i < 3; i++) {
        unsigned char bytes[100];
        memset(bytes, 0xAA, sizeof bytes);
        CHECK(!data_loader_next_sized(l, (data_batch *)(void *)bytes, sizes[i]), "%s", tensor_error());
        CHECK(bytes[sizes[i]] == 0xAA && (i < 2 || bytes[sizes[i] - 1] == 0), "data_batch of %zu", sizes[i]);
        const float *images;
        memcpy(&images, bytes, sizeof images);
        CHECK(images && fabs((double)images[0]) <= 0.5, "data_batch of %zu: no images", sizes[i]);
    }
    data_batch batch = {.count = 7};
    CHECK(data_loader_next_sized(l, &batch, 0) == TENSOR_E_ARGUMENT && batch.count == 7, "0 bytes");
    data_loader_free(l);
    newer.bytes[sizeof(data_loader_config)] = 1;
    CHECK(!data_loader_new_sized(set, &newer.ours, sizeof newer), "a field that the library does not know");
    names_both_sizes("data_loader_config", sizeof newer, sizeof(data_loader_config));
}

static int epochs_seen;
static int on_epoch(void *context, const nn_epoch_report *report) {
    epochs_seen += report->epoch > 0 && !context;
    return 0;
}

static void training(const data_set *set) {
    const nn_train_config config = {.network = {.variant = "flex16+5", .batch = 8, .seed = 5, .momentum = 0.9f},
                                    .model = "mlp2",
                                    .epochs = 1,
                                    .rate = 0.01,
                                    .schedule = "constant"};
    nn_train_result want = {0}, got = {0};
    CHECK(!nn_train(&want, &config, set, set, NULL), "%s", tensor_error());
    const size_t network = sizeof(nn_config), whole = sizeof config, tail = whole - network;

    unsigned char newer[sizeof config + 16 + 16] = {0};
    memcpy(newer, &config.network, network);
    memcpy(newer + network + 16, (const char *)&config + network, tail);
    const nn_train_events events = {.epoch = on_epoch};
    CHECK(!nn_train_sized(&got, sizeof got, (const nn_train_config *)(void *)newer, sizeof newer, network + 16, set,
                          set, &events, offsetof(nn_train_events, context)),
          "%s", tensor_error());
    CHECK(got.train_loss == want.train_loss && got.steps == want.steps && got.steps && epochs_seen == 1,
          "loss %a, want %a; %d epochs", got.train_loss, want.train_loss, epochs_seen);
    nn_train_result_clear(&got);
    newer[network + 3] = 1;
    CHECK(nn_train_sized(&got, sizeof got, (const nn_train_config *)(void *)newer, sizeof newer, network + 16, set, set,
                         NULL, 0),
          "a field of the network that the library does not know");
    names_both_sizes("nn_config", network + 16, network);
    newer[network + 3] = 0;
    newer[sizeof newer - 1] = 1;
    CHECK(nn_train_sized(&got, sizeof got, (const nn_train_config *)(void *)newer, sizeof newer, network + 16, set, set,
                         NULL, 0),
          "a field that the library does not know");
    names_both_sizes("nn_train_config without its network", tail + 16, tail);

    /* An older network, without weight decay, and an older rest, without a trace. */
    unsigned char older[sizeof config] = {0};
    const size_t older_network = offsetof(nn_config, momentum);
    memcpy(older, &config.network, older_network);
    memcpy(older + older_network, (const char *)&config + network, tail);
    CHECK(!nn_train_sized(&got, sizeof got, (const nn_train_config *)(void *)older,
                          older_network + offsetof(nn_train_config, trace_path) - network, older_network, set, NULL,
                          NULL, 0),
          "%s", tensor_error());
    CHECK(got.steps == want.steps && got.train_loss != want.train_loss, "without momentum: loss %a", got.train_loss);
    nn_train_result_clear(&got);

    NEWER(nn_train_result) result;
    memset(&result, 0xAA, sizeof result);
    CHECK(!nn_train_sized(&result.ours, sizeof result - 1, &config, whole, network, set, set, NULL, 0), "%s",
          tensor_error());
    CHECK(result.ours.train_loss == want.train_loss && !result.bytes[sizeof result - 2] &&
              result.bytes[sizeof result - 1] == 0xAA,
          "a larger result");
    nn_train_result_clear_sized(&result.ours, sizeof result - 1);
    CHECK(!result.ours.predicted && result.bytes[sizeof result - 1] == 0xAA, "cleared");
    CHECK(nn_train_sized(&got, offsetof(nn_train_result, predicted), &config, whole, network, set, set, NULL, 0) ==
              TENSOR_E_ARGUMENT,
          "predictions that nobody could free");
    CHECK(nn_train_sized(&got, sizeof got, &config, network, network, set, set, NULL, 0) == TENSOR_E_ARGUMENT,
          "nothing but a network");
    nn_train_result_clear(&want);
}

int main(void) {
    data_set *set = data_open("synthetic:train=40,test=10", DATA_TRAIN);
    CHECK(set, "%s", tensor_error());
    graphs();
    statistics();
    if (set) {
        loaders(set);
        training(set);
    }
    data_free(set);
    return check_summary();
}
