/* Sets in the memory of the network's device: batches by number have the bytes of a data loader, steps and evaluations
 * on them the bits of those on images; losses that are read late are those of an immediate wait, in order, and none is
 * lost.
 *
 *     test_nn_data [DEVICE]        cpu and the toy device; or DEVICE (cuda) */
#define _GNU_SOURCE
#include "check.h"
#include "flexlab/nn.h"
#include "toy_device.h"

enum { CLASSES = 7 };

static uint64_t draws = 5;

static data_set *random_set(int64_t count, int height, int width, int channels) {
    const size_t bytes = (size_t)(count * height * width * channels);
    uint8_t *images = malloc(bytes);
    int32_t *labels = malloc((size_t)count * sizeof *labels);
    for (size_t i = 0; i < bytes; i++)
        images[i] = (uint8_t)check_random(&draws);
    for (int64_t i = 0; i < count; i++)
        labels[i] = (int32_t)(check_random(&draws) % CLASSES);
    data_set *set = data_new(images, labels, count, height, width, channels, CLASSES);
    CHECK(set, "%s", tensor_error());
    free(images);
    free(labels);
    return set;
}

/* --- the operation ------------------------------------------------------------------------------------------------ */

/* Whether `out` is a window of the image in a black frame, as it is or mirrored: every window is tried. */
static bool is_window(const uint8_t *image, const uint8_t *out, int h, int w, int channels) {
    for (int place = 0; place < 2 * 81; place++) {
        const int down = place / 2 / 9 - 4, right = place / 2 % 9 - 4;
        bool same = true;
        for (int i = 0; i < h * w * channels && same; i++) {
            const int c = i % channels, y = i / channels / w + down, x0 = i / channels % w;
            const int x = (place % 2 ? w - 1 - x0 : x0) + right;
            const bool inside = y >= 0 && y < h && x >= 0 && x < w;
            same = out[i] == (inside ? image[(y * w + x) * channels + c] : 0);
        }
        if (same)
            return true;
    }
    return false;
}

struct batch {
    tensor *images, *labels, *set_images, *set_labels, *indices;
};

static struct batch batch_on(tensor_device *device, const data_set *set, int64_t n) {
    const int64_t m = data_count(set), h = data_height(set), w = data_width(set), c = data_channels(set);
    struct batch b = {tensor_new_in(device, FMT_U8, TENSOR_SHAPE(n, h, w, c)),
                      tensor_new_in(device, FMT_I32, TENSOR_SHAPE(n)),
                      tensor_new_in(device, FMT_U8, TENSOR_SHAPE(m, h, w, c)),
                      tensor_new_in(device, FMT_I32, TENSOR_SHAPE(m)), tensor_new_in(device, FMT_I32, TENSOR_SHAPE(n))};
    int32_t *labels = malloc((size_t)m * sizeof *labels);
    for (int64_t i = 0; i < m; i++)
        labels[i] = data_label(set, i);
    CHECK(!tensor_load_u8(b.set_images, data_image(set, 0), tensor_count(b.set_images)) &&
              !tensor_load_i32(b.set_labels, labels, m),
          "%s", tensor_error());
    free(labels);
    return b;
}

static void batch_free(struct batch b) {
    tensor_free(b.images);
    tensor_free(b.labels);
    tensor_free(b.set_images);
    tensor_free(b.set_labels);
    tensor_free(b.indices);
}

/* The elements of u8 tensors, through doubles. */
static uint8_t *bytes_of(const tensor *t) {
    const int64_t n = tensor_count(t);
    double *values = malloc((size_t)n * sizeof *values);
    uint8_t *bytes = malloc((size_t)n);
    CHECK(!tensor_store_f64(t, values, n), "%s", tensor_error());
    for (int64_t i = 0; i < n; i++)
        bytes[i] = (uint8_t)values[i];
    free(values);
    return bytes;
}

static void against_loader(tensor_device *device, int height, int width, int channels, int n, bool augment) {
    data_set *set = random_set(23, height, width, channels);
    const size_t image = (size_t)(height * width * channels);
    const uint64_t seed = check_random(&draws);
    data_loader *loader = data_loader_new(
        set, &(data_loader_config){.batch = n, .seed = seed, .shuffle = true, .augment = augment, .drop_last = true});
    data_loader *numbers = data_loader_new(
        set, &(data_loader_config){.batch = n, .seed = seed, .shuffle = true, .indices_only = true, .drop_last = true});
    struct batch b = batch_on(device, set, n);
    for (int epoch = 0; epoch < 2; epoch++) {
        CHECK(!data_loader_start(loader, epoch) && !data_loader_start(numbers, epoch), "%s", tensor_error());
        for (;;) {
            data_batch expected, given;
            CHECK(!data_loader_next(&expected, loader) && !data_loader_next(&given, numbers), "%s", tensor_error());
            CHECK(expected.count == given.count && !given.pixels && !given.images, "%d and %d", expected.count,
                  given.count);
            if (!given.count)
                break;
            int32_t indices[23], labels[23];
            for (int i = 0; i < n; i++)
                indices[i] = (int32_t)given.indices[i];
            const tensor_augmentation how = {seed, (uint64_t)epoch};
            CHECK(!tensor_load_i32(b.indices, indices, n) &&
                      !tensor_gather_images(b.images, b.labels, b.set_images, b.set_labels, b.indices,
                                            augment ? &how : NULL) &&
                      !tensor_store_i32(b.labels, labels, n),
                  "%s", tensor_error());
            uint8_t *bytes = bytes_of(b.images);
            CHECK(!memcmp(bytes, expected.pixels, (size_t)n * image), "%dx%dx%d: images", height, width, channels);
            CHECK(!memcmp(labels, expected.labels, (size_t)n * sizeof *labels), "labels");
            CHECK(!memcmp(given.indices, expected.indices, (size_t)n * sizeof *given.indices), "indices");
            for (int i = 0; i < n && augment; i++)
                CHECK(is_window(data_image(set, indices[i]), bytes + (size_t)i * image, height, width, channels),
                      "image %d is no window", i);
            free(bytes);
        }
    }
    batch_free(b);
    data_loader_free(loader);
    data_loader_free(numbers);
    data_free(set);
}

static void refuses(tensor_device *device) {
    data_set *set = random_set(5, 3, 4, 2);
    struct batch b = batch_on(device, set, 3), other = batch_on(device, set, 2);
    static const int32_t bad[3] = {4, 0, 5};
    CHECK(!tensor_load_i32(b.indices, bad, 3), "%s", tensor_error());
    tensor_status status = tensor_gather_images(b.images, b.labels, b.set_images, b.set_labels, b.indices, NULL);
    if (!status)
        status = tensor_device_wait(device);
    CHECK(status == TENSOR_E_ARGUMENT && strstr(tensor_error(), "index 2 is 5, expected 0 to 4"), "%s", tensor_error());
    CHECK(!tensor_device_wait(device), "%s", tensor_error());
    CHECK(tensor_gather_images(b.images, b.labels, b.set_images, b.set_labels, other.indices, NULL) == TENSOR_E_SHAPE,
          "indices of another batch");
    CHECK(tensor_gather_images(b.images, b.labels, b.images, b.set_labels, b.indices, NULL) != TENSOR_OK, "in place");
    CHECK(tensor_gather_images(b.images, b.labels, b.set_labels, b.set_labels, b.indices, NULL) == TENSOR_E_FORMAT,
          "i32 images");
    CHECK(tensor_gather_images(NULL, b.labels, b.set_images, b.set_labels, b.indices, NULL) == TENSOR_E_ARGUMENT,
          "NULL");
    CHECK(!data_loader_new(set, &(data_loader_config){.batch = 2, .indices_only = true, .mean = (double[]){0, 0}}) &&
              tensor_error_status() == TENSOR_E_ARGUMENT,
          "indices only, with a mean");
    batch_free(b);
    batch_free(other);
    data_free(set);
}

/* --- networks ----------------------------------------------------------------------------------------------------- */

enum { SIDE = 8, CHANNELS = 3, BATCH = 4 };

static nn_graph *network(const char *variant, const char *device) {
    const nn_config how = {.variant = variant, .batch = BATCH, .momentum = 0.9f, .seed = 3, .device = device};
    nn_graph *g = nn_graph_new(&how);
    CHECK(g, "%s", tensor_error());
    nn_node x = nn_input(g, SIDE, SIDE, CHANNELS);
    x = nn_conv2d(g, "conv", x, 5, 3, &(nn_conv2d_options){.stride = 2, .padding = 1});
    x = nn_batchnorm(g, "bn", x, &(nn_batchnorm_options){.relu = true});
    x = nn_avgpool_global(g, "pool", x);
    x = nn_linear(g, "fc", x, CLASSES, false);
    CHECK(!nn_compile(g, x), "%s", tensor_error());
    float values[CHANNELS * 256];
    for (int i = 0; i < CHANNELS * 256; i++)
        values[i] = (float)(i % 256 - 110) / 60;
    CHECK(!nn_set_pixel_values(g, values), "%s", tensor_error());
    return g;
}

static void compare_states(const nn_graph *a, const nn_graph *b, const char *variant, int step) {
    const size_t bytes = nn_state_bytes(a);
    void *states[2] = {malloc(bytes), malloc(bytes)};
    CHECK(nn_state_bytes(b) == bytes && !nn_state_save(states[0], bytes, a) && !nn_state_save(states[1], bytes, b),
          "%s", tensor_error());
    CHECK(!memcmp(states[0], states[1], bytes), "%s: state after step %d", variant, step);
    free(states[0]);
    free(states[1]);
}

/* One network receives its images batch by batch from the host; the other has the set on the device. */
static void steps(const char *variant, const char *device, int every) {
    enum { STEPS = 11, COUNT = 30 };
    data_set *set = random_set(COUNT, SIDE, SIDE, CHANNELS);
    nn_graph *plain = network(variant, NULL), *g = network(variant, device);
    nn_data *data = nn_data_new(g, set);
    data_loader *loader = data_loader_new(
        set, &(data_loader_config){.batch = BATCH, .seed = 9, .shuffle = true, .augment = true, .drop_last = true});
    CHECK(data && loader && (!every || !nn_note_every(g, every)), "%s", tensor_error());
    double loss[STEPS];
    int right[STEPS], given = 0;
    for (int i = 0; i < STEPS; i++) {
        const int epoch = i / 7;
        data_batch batch;
        const tensor_augmentation how = {9, (uint64_t)epoch};
        CHECK((i % 7 || !data_loader_start(loader, epoch)) && !data_loader_next(&batch, loader), "%s", tensor_error());
        CHECK(!nn_forward(plain, &(nn_batch){.pixels = batch.pixels, .labels = batch.labels}) && !nn_backward(plain) &&
                  !nn_update(plain, 0.1f) && !nn_loss(&loss[i], &right[i], plain),
              "%s", tensor_error());
        CHECK(!nn_forward(g, &(nn_batch){.indices = batch.indices, .data = data, .augmentation = &how}) &&
                  !nn_note_loss(g) && !nn_backward(g) && !nn_update(g, 0.1f),
              "%s", tensor_error());
        bool there;
        do {
            double l;
            int r;
            CHECK(!nn_noted_loss(&l, &r, &there, g, i + 1 == STEPS), "%s", tensor_error());
            CHECK(!there || (given <= i && !memcmp(&l, &loss[given], sizeof l) && r == right[given]),
                  "%s: loss %d of %d", variant, given, i);
            given += there;
        } while (there);
        if (!strcmp(device, "cpu") && every < 2)
            CHECK(given == i + 1, "step %d: %d losses", i, given);
        CHECK(given > i - 2 * (every ? every : 1) - 1, "step %d, every %d: %d losses", i, every, given);
    }
    CHECK(given == STEPS, "%d losses of %d", given, STEPS);
    compare_states(plain, g, variant, STEPS);
    for (int count = 1; count <= BATCH; count += 2) {
        double l[2];
        int32_t predicted[2][BATCH], labels[BATCH];
        int64_t indices[BATCH];
        static float images[BATCH * SIDE * SIDE * CHANNELS];
        for (int i = 0; i < count; i++) {
            indices[i] = (int64_t)(check_random(&draws) % COUNT);
            labels[i] = data_label(set, indices[i]);
            for (int k = 0; k < SIDE * SIDE * CHANNELS; k++)
                images[i * SIDE * SIDE * CHANNELS + k] = (float)(data_image(set, indices[i])[k] - 110) / 60;
        }
        CHECK(
            !nn_evaluate(&l[0], predicted[0], plain, &(nn_batch){.images = images, .labels = labels, .count = count}) &&
                !nn_evaluate(&l[1], predicted[1], g, &(nn_batch){.indices = indices, .data = data, .count = count}),
            "%s", tensor_error());
        CHECK(!memcmp(&l[0], &l[1], sizeof l[0]) && !memcmp(predicted[0], predicted[1], (size_t)count * 4),
              "%s: evaluation of %d: %.17g, %.17g", variant, count, l[0], l[1]);
    }
    nn_data_free(data);
    data_loader_free(loader);
    nn_graph_free(plain);
    nn_graph_free(g);
    data_free(set);
}

/* A step that fails: its loss is never reported, those before it and those recorded since may be dropped, and all later
 * ones arrive in order. */
static void after_a_failure(const char *device, int every) {
    enum { BAD = 2, MOST = 40 };
    nn_graph *g = network("flex16+5", device);
    static float images[BATCH * SIDE * SIDE * CHANNELS];
    const int32_t labels[BATCH] = {0, 1, 2, 3};
    double losses[MOST], given;
    int right, failures = 0, known = 0, next = 0;
    bool there = true;
    CHECK(!nn_note_every(g, every), "%s", tensor_error());
    for (int step = 0; step < 4 + 5 * every; step++) {
        for (int i = 0; i < BATCH * SIDE * SIDE * CHANNELS; i++)
            images[i] = step == BAD && i == 77 ? NAN : (float)(check_random(&draws) % 200) / 50 - 2;
        if (nn_forward(g, &(nn_batch){.images = images, .labels = labels}) || nn_backward(g) || nn_update(g, 0.1f) ||
            nn_note_loss(g)) {
            failures++;
            CHECK(strstr(tensor_error(), "77 is nan"), "%s", tensor_error());
            continue;
        }
        if (step < BAD || failures) /* no loss is requested between them */
            CHECK(known < MOST && !nn_loss(&losses[known++], NULL, g), "%s", tensor_error());
        const bool flush = !failures && step == BAD + 1 + every; /* at the latest */
        for (there = true; there;) {
            if (nn_noted_loss(&given, &right, &there, g, flush)) {
                failures++;
                CHECK(strstr(tensor_error(), "77 is nan"), "%s", tensor_error());
                break;
            }
            while (there && next < known && next < BAD && memcmp(&given, &losses[next], sizeof given) != 0)
                next++; /* dropped */
            CHECK(!there || (next < known && !memcmp(&given, &losses[next], sizeof given)), "%s, every %d: loss %g",
                  device, every, given);
            next += there;
        }
    }
    CHECK(failures == 1, "%s, every %d: %d failures", device, every, failures);
    CHECK(next >= known - 2 * every && next > BAD + every, "%s, every %d: %d of %d losses", device, every, next, known);
    nn_graph_free(g);
}

static void bad_calls(const char *device) {
    nn_graph *g = network("flex16+5", device);
    data_set *set = random_set(6, SIDE, SIDE, CHANNELS), *larger = random_set(6, SIDE + 1, SIDE, CHANNELS);
    nn_data *data = nn_data_new(g, set);
    CHECK(data, "%s", tensor_error());
    CHECK(!nn_data_new(g, larger) && tensor_error_status() == TENSOR_E_SHAPE && strstr(tensor_error(), "9x8x3"), "%s",
          tensor_error());
    CHECK(!nn_data_new(g, NULL) && !nn_data_new(NULL, set), "NULL");
    int64_t indices[BATCH] = {0, 1, 6, 2};
    double loss;
    int right;
    bool there = true;
    CHECK(nn_forward(g, &(nn_batch){.indices = indices, .data = data}) == TENSOR_E_ARGUMENT &&
              strstr(tensor_error(), "index 2 is 6, expected 0 to 5"),
          "%s", tensor_error());
    indices[2] = -1;
    CHECK(nn_evaluate(&loss, NULL, g, &(nn_batch){.indices = indices, .data = data, .count = BATCH}) ==
              TENSOR_E_ARGUMENT,
          "index -1");
    CHECK(nn_evaluate(&loss, NULL, g, &(nn_batch){.indices = indices, .data = data, .count = BATCH + 1}) ==
              TENSOR_E_ARGUMENT,
          "too many");
    CHECK(nn_note_loss(g) == TENSOR_E_ARGUMENT, "no forward pass");
    CHECK(nn_note_every(g, 0) == TENSOR_E_ARGUMENT && nn_note_every(g, 4097) == TENSOR_E_ARGUMENT, "every");
    CHECK(!nn_noted_loss(&loss, &right, &there, g, true) && !there, "nothing was noted");
    indices[2] = 3;
    CHECK(!nn_forward(g, &(nn_batch){.indices = indices, .data = data}) && !nn_note_loss(g), "%s", tensor_error());
    CHECK(nn_note_every(g, 2) == TENSOR_E_ARGUMENT && strstr(tensor_error(), "1 were noted"), "%s", tensor_error());
    CHECK(!nn_noted_loss(&loss, &right, &there, g, true) && there, "%s", tensor_error());
    nn_graph *other = network("flex16+5", device);
    CHECK(nn_forward(other, &(nn_batch){.indices = indices, .data = data}) == TENSOR_E_ARGUMENT &&
              strstr(tensor_error(), "another graph"),
          "%s", tensor_error());
    nn_graph_free(other);
    nn_data_free(data);
    nn_graph_free(g);
    data_free(set);
    data_free(larger);
}

int main(int argc, char **argv) {
    const char *device = argc > 1 ? argv[1] : "toy";
    if (argc == 1 && !toy_begin((size_t)1 << 30))
        return check_skip("no memory for the toy device");
    tensor_device *there = tensor_device_find(device);
    CHECK(there, "%s", tensor_error());
    if (!there)
        return check_summary();
    const char *devices[2] = {"cpu", device};
    for (int i = argc > 1; i < 2; i++) {
        tensor_device *d = tensor_device_find(devices[i]);
        against_loader(d, 1, 1, 1, 1, true);
        against_loader(d, 5, 9, 4, 6, true);
        against_loader(d, 8, 3, 3, 23, true);
        against_loader(d, 4, 4, 1, 7, false);
        refuses(d);
        static const char *const variants[] = {"fp32", "fp16", "bf16", "flex16+5", "dfp16", "flex16+5-sr"};
        for (int k = 0; k < 6; k++)
            steps(variants[k], devices[i], (int[]){0, 1, 2, 3, 5, 16}[k]);
        bad_calls(devices[i]);
        after_a_failure(devices[i], 1);
        after_a_failure(devices[i], 3);
    }
    return check_summary();
}
