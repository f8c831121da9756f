/* The generated set: the same bytes everywhere, prefixes, balance, and not to be learned by a linear classifier. */
#include "data_files.h"
#include "flexlab/tensor.h"
#include <math.h>

/* FNV-1a (Fowler, Noll, Vo) of images and labels. */
static uint64_t set_hash(const data_set *set) {
    uint64_t hash = 0xCBF29CE484222325u;
    for (int64_t i = 0; i < data_count(set); i++) {
        const uint8_t *image = data_image(set, i);
        for (int k = 0; k < 3072; k++)
            hash = (hash ^ image[k]) * 0x100000001B3u;
        hash = (hash ^ (uint64_t)data_label(set, i)) * 0x100000001B3u;
    }
    return hash;
}

static data_set *open_set(const char *specification, data_split split) {
    data_set *set = data_open(specification, split);
    CHECK(set, "%s: %s", specification, tensor_error());
    return set;
}

static void check_bytes(void) {
    static const struct {
        const char *specification;
        data_split split;
        int64_t count;
        uint64_t hash;
    } golden[] = {{"synthetic", DATA_TRAIN, 20000, UINT64_C(0x83C6A0147FAA6372)},
                  {"synthetic", DATA_TEST, 4000, UINT64_C(0x0810F5B299D8B8F2)},
                  {"synthetic:train=1003,seed=12345678901234567890", DATA_TRAIN, 1003, UINT64_C(0xB40DE05FCC7D7998)}};
    for (size_t i = 0; i < sizeof golden / sizeof *golden; i++)
        for (int threads = 1; threads <= 3; threads += 2) {
            tensor_set_threads(threads);
            data_set *set = open_set(golden[i].specification, golden[i].split);
            CHECK(data_count(set) == golden[i].count && set_hash(set) == golden[i].hash,
                  "%s split %d, %d threads: %lld images, hash 0x%016llX", golden[i].specification, golden[i].split,
                  threads, (long long)data_count(set), (unsigned long long)set_hash(set));
            data_free(set);
        }
    tensor_set_threads(0);
}

/* A short set is the beginning of a long one; seeds and splits differ; every block of ten holds each class once. */
static void check_structure(void) {
    data_set *all = open_set("synthetic", DATA_TRAIN), *some = open_set("synthetic:train=77", DATA_TRAIN);
    data_set *seed = open_set("synthetic:train=77,seed=1", DATA_TRAIN), *test = open_set("synthetic", DATA_TEST);
    for (int64_t i = 0; i < 77; i++) {
        CHECK(!memcmp(data_image(all, i), data_image(some, i), 3072) && data_label(all, i) == data_label(some, i),
              "image %lld depends on the count", (long long)i);
        CHECK(memcmp(data_image(all, i), data_image(seed, i), 3072), "image %lld does not depend on the seed",
              (long long)i);
        CHECK(memcmp(data_image(all, i), data_image(test, i), 3072), "image %lld is in both splits", (long long)i);
    }
    for (int64_t i = 0; i < data_count(all); i += 10) {
        int seen = 0;
        for (int k = 0; k < 10; k++)
            seen |= 1 << data_label(all, i + k);
        CHECK(seen == 1023, "images %lld and nine more hold the classes 0x%x", (long long)i, seen);
    }
    data_free(all);
    data_free(some);
    data_free(seed);
    data_free(test);
}

/* --- softmax regression on pixels ----------------------------------------------------------------------- */

enum { INPUTS = 3072, CLASSES = 10, TRAIN = 6000, BATCH = 50, EPOCHS = 8 };
static float weight[CLASSES][INPUTS], bias[CLASSES];

/* An image as inputs: pixels normalised and divided by sqrt(INPUTS), so that its norm is about 1. */
static void load_image(const data_set *set, int64_t i, float *input) {
    const uint8_t *image = data_image(set, i);
    float scale = (float)(1 / (255 * 0.2 * sqrt(INPUTS)));
    for (int k = 0; k < INPUTS; k++)
        input[k] = ((float)image[k] - 127.5f) * scale;
}

static void scores(const float *input, float *score) {
    for (int c = 0; c < CLASSES; c++) {
        float sum[16] = {0};
        for (int k = 0; k < INPUTS; k += 16)
            for (int j = 0; j < 16; j++)
                sum[j] += weight[c][k + j] * input[k + j];
        score[c] = bias[c];
        for (int j = 0; j < 16; j++)
            score[c] += sum[j];
    }
}

static double accuracy(const data_set *set) {
    static float input[INPUTS];
    int64_t right = 0;
    for (int64_t i = 0; i < data_count(set); i++) {
        float score[CLASSES];
        int best = 0;
        load_image(set, i, input);
        scores(input, score);
        for (int c = 1; c < CLASSES; c++)
            if (score[c] > score[best])
                best = c;
        right += best == data_label(set, i);
    }
    return (double)right / (double)data_count(set);
}

/* One epoch of gradient descent on the cross-entropy; BATCH divides the count. */
static void train_epoch(const data_set *set, float rate) {
    static float input[BATCH][INPUTS], difference[BATCH][CLASSES];
    for (int64_t first = 0; first < data_count(set); first += BATCH) {
        for (int i = 0; i < BATCH; i++) {
            float *p = difference[i], total = 0;
            load_image(set, first + i, input[i]);
            scores(input[i], p);
            for (int c = 0; c < CLASSES; c++)
                total += p[c] = expf(p[c]);
            for (int c = 0; c < CLASSES; c++)
                p[c] = p[c] / total - (float)(c == data_label(set, first + i));
        }
        for (int i = 0; i < BATCH; i++)
            for (int c = 0; c < CLASSES; c++) {
                float step = rate / BATCH * difference[i][c];
                bias[c] -= step;
                for (int k = 0; k < INPUTS; k++)
                    weight[c][k] -= step * input[i][k];
            }
    }
}

/* The learner first shows that it learns: few images are separable, and it must get them right. */
static void check_linear(void) {
    data_set *train = open_set("synthetic:train=6000", DATA_TRAIN), *test = open_set("synthetic", DATA_TEST);
    data_set *few = open_set("synthetic:train=200", DATA_TRAIN);
    for (int epoch = 0; epoch < 200; epoch++)
        train_epoch(few, 4.0f);
    double learned = accuracy(few);
    memset(weight, 0, sizeof weight);
    memset(bias, 0, sizeof bias);
    for (int epoch = 0; epoch < EPOCHS; epoch++)
        train_epoch(train, 0.5f);
    double seen = accuracy(train), unseen = accuracy(test);
    printf("softmax regression on pixels: %.1f %% of 200 images after 200 epochs; of %d images %.1f %%, of the test "
           "images %.1f %%\n",
           100 * learned, TRAIN, 100 * seen, 100 * unseen);
    CHECK(learned > 0.9, "the learner does not learn: %.4f of 200 images", learned);
    CHECK(unseen < 0.6, "a linear classifier gets %.4f", unseen);
    data_free(few);
    data_free(train);
    data_free(test);
}

int main(void) {
    check_bytes();
    check_structure();
    check_linear();
    return check_summary();
}
