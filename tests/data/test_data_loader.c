/* Batches: which images, in which order, with which values; restarts, ends, failures. */
#include "core/arithmetic/philox.h"
#include "data_files.h"
#include "flexlab/tensor.h"
#include <math.h>
#include <sys/resource.h>
#include <sys/wait.h>

static const double zero[4] = {0, 0, 0, 0}, one[4] = {1, 1, 1, 1};
static data_set *set; /* 103 images: a prime, so that no batch divides it */
enum { COUNT = 103 };

static data_loader *make(data_loader_config config) {
    if (!config.mean)
        config.mean = zero;
    if (!config.deviation)
        config.deviation = one;
    data_loader *l = data_loader_new(set, &config);
    CHECK(l, "%s", tensor_error());
    return l;
}

/* FNV-1a (Fowler, Noll, Vo) over everything an epoch delivers; the order goes to `order`. */
static uint64_t epoch_hash(data_loader *l, int epoch, int64_t *order, int64_t *images) {
    uint64_t hash = 0xCBF29CE484222325u;
    *images = 0;
    CHECK(data_loader_start(l, epoch) == TENSOR_OK, "%s", tensor_error());
    for (;;) {
        data_batch b;
        CHECK(data_loader_next(&b, l) == TENSOR_OK, "%s", tensor_error());
        if (!b.count)
            return hash;
        for (int i = 0; i < b.count; i++)
            order[(*images)++] = b.indices[i];
        for (int i = 0; i < b.count; i++)
            CHECK(b.labels[i] == data_label(set, b.indices[i]), "image %lld has label %d", (long long)b.indices[i],
                  b.labels[i]);
        const uint8_t *bytes = (const uint8_t *)b.images;
        for (size_t k = 0; k < (size_t)b.count * 3072 * sizeof(float); k++)
            hash = (hash ^ bytes[k]) * 0x100000001B3u;
    }
}

static void check_orders(void) {
    int64_t order[2][COUNT], plain[COUNT], n;
    data_loader *a = make((data_loader_config){.batch = 8, .seed = 7, .shuffle = true, .augment = true});
    data_loader *b = make((data_loader_config){.batch = 8, .seed = 7, .shuffle = true, .augment = true});
    data_loader *other = make((data_loader_config){.batch = 8, .seed = 8, .shuffle = true, .augment = true});
    CHECK(data_loader_batches(a) == 13, "%lld batches", (long long)data_loader_batches(a));
    uint64_t first = epoch_hash(a, 0, order[0], &n);
    CHECK(n == COUNT, "%lld images in an epoch", (long long)n);
    bool seen[COUNT] = {false};
    for (int i = 0; i < COUNT; i++) {
        CHECK(order[0][i] >= 0 && order[0][i] < COUNT && !seen[order[0][i]], "image %lld twice or out of range",
              (long long)order[0][i]);
        seen[order[0][i]] = true;
    }
    uint64_t second = epoch_hash(a, 1, order[1], &n);
    CHECK(first != second && memcmp(order[0], order[1], sizeof order[0]), "epochs 0 and 1 are the same");
    CHECK(epoch_hash(b, 1, plain, &n) == second && !memcmp(plain, order[1], sizeof plain),
          "another loader, epoch 1 first: another order");
    CHECK(epoch_hash(b, 0, plain, &n) == first, "epoch 0 after epoch 1 differs");
    CHECK(epoch_hash(other, 0, plain, &n) != first && memcmp(plain, order[0], sizeof plain), "the seed has no effect");
    data_loader_free(a);
    data_loader_free(b);
    data_loader_free(other);

    /* A uniform permutation leaves one image at its position on average, with variance 1: 400 epochs, 5 sigma. */
    int fixed = 0;
    data_loader *large = make((data_loader_config){.batch = COUNT, .seed = 7, .shuffle = true});
    for (int epoch = 0; epoch < 400; epoch++) {
        data_batch whole;
        data_loader_start(large, epoch);
        data_loader_next(&whole, large);
        for (int i = 0; i < whole.count; i++)
            fixed += whole.indices[i] == i;
    }
    CHECK(fixed > 300 && fixed < 500, "%d images kept their place in 400 epochs, expected about 400", fixed);
    data_loader_free(large);

    /* The order does not depend on the batch, nor on augmentation. */
    a = make((data_loader_config){.batch = 50, .seed = 7, .shuffle = true});
    epoch_hash(a, 0, plain, &n);
    CHECK(!memcmp(plain, order[0], sizeof plain), "the batch or augmentation changes the order");
    data_loader_free(a);
    a = make((data_loader_config){.batch = 10});
    epoch_hash(a, 3, plain, &n);
    for (int i = 0; i < COUNT; i++)
        CHECK(plain[i] == i, "unshuffled: image %lld at %d", (long long)plain[i], i);
    data_loader_free(a);
}

static void check_ends(void) {
    static const struct {
        int batch;
        bool drop;
        int batches, last;
    } cases[] = {{10, false, 11, 3}, {10, true, 10, 10}, {103, true, 1, 103}, {200, false, 1, 103}, {1, true, 103, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        data_loader *l = make((data_loader_config){.batch = cases[i].batch, .drop_last = cases[i].drop});
        CHECK(data_loader_batches(l) == cases[i].batches, "batch %d: %lld batches", cases[i].batch,
              (long long)data_loader_batches(l));
        data_batch b;
        CHECK(data_loader_next(&b, l) == TENSOR_E_ARGUMENT && strstr(tensor_error(), "data_loader_start"), "%s",
              tensor_error());
        CHECK(!data_loader_start(l, 0), "%s", tensor_error());
        for (int k = 0; k < cases[i].batches; k++) {
            data_loader_next(&b, l);
            int expected = k == cases[i].batches - 1 ? cases[i].last : cases[i].batch;
            CHECK(b.count == expected, "batch %d: batch %d has %d images", cases[i].batch, k, b.count);
        }
        for (int k = 0; k < 3; k++)
            CHECK(!data_loader_next(&b, l) && b.count == 0 && !b.images, "batch %d: goes on after the end",
                  cases[i].batch);
        data_loader_free(l);
    }
}

/* Values by the definition, for every image of an epoch, and the positions by draws of this test. */
static void check_values(void) {
    const double mean[3] = {0.49, 0.1, 0.7}, deviation[3] = {0.25, 0.3, 2.0};
    bool places[9][9] = {{false}}, mirrors[2] = {false};
    for (int epoch = 0; epoch < 6; epoch++) {
        data_loader *l = make((data_loader_config){
            .batch = 9, .seed = 5, .shuffle = true, .augment = epoch > 0, .mean = mean, .deviation = deviation});
        data_batch b;
        data_loader_start(l, epoch);
        while (!data_loader_next(&b, l) && b.count) {
            for (int i = 0; i < b.count; i++) {
                int dy = 0, dx = 0, mirror = 0;
                if (epoch > 0) {
                    struct fl_philox draw =
                        fl_philox(5 ^ UINT64_C(0x6175676D656E7473), (uint64_t)epoch, (uint64_t)b.indices[i]);
                    dy = (int)floor((double)draw.word[0] / 4294967296.0 * 9) - 4;
                    dx = (int)floor((double)draw.word[1] / 4294967296.0 * 9) - 4;
                    mirror = draw.word[2] % 2;
                }
                places[dy + 4][dx + 4] = mirrors[mirror] = true;
                /* Padded by four zeros, cropped, then mirrored. */
                uint8_t padded[40][40][3] = {{{0}}};
                for (int y = 0; y < 32; y++)
                    memcpy(padded[y + 4][4], data_image(set, b.indices[i]) + y * 96, 96);
                int wrong = 0;
                for (int k = 0; k < 3072; k++) {
                    int y = k / 96, x = k / 3 % 32, c = k % 3;
                    int v = padded[y + dy + 4][(mirror ? 31 - x : x) + dx + 4][c];
                    wrong += b.images[i * 3072 + k] != (float)((v / 255.0 - mean[c]) / deviation[c]);
                }
                CHECK(wrong == 0, "epoch %d image %lld dy %d dx %d mirror %d: %d wrong values", epoch,
                      (long long)b.indices[i], dy, dx, mirror, wrong);
            }
        }
        data_loader_free(l);
    }
    int used = 0;
    for (int k = 0; k < 81; k++)
        used += places[k / 9][k % 9];
    CHECK(used == 81 && mirrors[0] && mirrors[1], "515 crops reach %d of 81 places", used);
}

/* A start in the middle of an epoch gives the whole epoch again; frees in the middle end. */
static void check_restarts(void) {
    int64_t order[COUNT], n;
    data_loader *l = make((data_loader_config){.batch = 4, .seed = 3, .shuffle = true, .augment = true});
    uint64_t expected[3];
    for (int e = 0; e < 3; e++)
        expected[e] = epoch_hash(l, e, order, &n);
    uint64_t random = 20;
    for (int round = 0; round < 300; round++) {
        int epoch = (int)(check_random(&random) % 3), steps = (int)(check_random(&random) % 8);
        data_batch b;
        data_loader_start(l, epoch);
        for (int k = 0; k < steps; k++)
            data_loader_next(&b, l);
        if (round % 30 == 0) {
            epoch = (epoch + 1) % 3;
            CHECK(epoch_hash(l, epoch, order, &n) == expected[epoch], "round %d: epoch %d differs", round, epoch);
        }
    }
    data_loader_free(l);
    for (int round = 0; round < 100; round++) {
        data_batch b;
        l = make((data_loader_config){.batch = 4});
        if (round % 4)
            data_loader_start(l, 0);
        for (int k = 1; k < round % 4; k++)
            data_loader_next(&b, l);
        data_loader_free(l);
    }
    data_loader_free(NULL);
}

/* A batch remains unchanged until the next call, however far ahead the worker is. */
static void check_hold(void) {
    static float copy[5 * 3072];
    data_loader *l = make((data_loader_config){.batch = 5, .shuffle = true});
    data_batch b;
    data_loader_start(l, 0);
    while (!data_loader_next(&b, l) && b.count == 5) {
        int64_t indices[5];
        memcpy(copy, b.images, sizeof copy);
        memcpy(indices, b.indices, sizeof indices);
        usleep(500);
        CHECK(!memcmp(copy, b.images, sizeof copy) && !memcmp(indices, b.indices, sizeof indices),
              "a batch changed in the caller's hands");
    }
    data_loader_free(l);
}

static void expect_refused(const data_set *s, const data_loader_config *config, const char *word) {
    data_loader *l = data_loader_new(s, config);
    CHECK(!l && strstr(tensor_error(), word), "'%s' does not name '%s'", tensor_error(), word);
    data_loader_free(l);
}

static void check_refusals(void) {
    const double bad[3] = {1, 0, 1}, infinite[3] = {1, 1, (double)INFINITY};
    data_loader_config good = {.batch = 4, .mean = zero, .deviation = one}, c;
    expect_refused(NULL, &good, "NULL");
    expect_refused(set, NULL, "NULL");
    c = good, c.batch = 0, expect_refused(set, &c, "batch 0, expected at least 1");
    c = good, c.batch = 104, c.drop_last = true, expect_refused(set, &c, "batch 104 of a set of 103");
    c = good, c.mean = NULL, expect_refused(set, &c, "mean or deviation is NULL, expected 3");
    c = good, c.deviation = NULL, expect_refused(set, &c, "or both NULL");
    c = good, c.deviation = bad, expect_refused(set, &c, "deviation of channel 1 is 0");
    c = good, c.deviation = infinite, expect_refused(set, &c, "deviation of channel 2 is inf");
    c = good, c.mean = infinite, expect_refused(set, &c, "mean of channel 2 is inf");
    data_loader *l = make(good);
    CHECK(data_loader_start(l, -1) == TENSOR_E_ARGUMENT && strstr(tensor_error(), "epoch -1"), "%s", tensor_error());
    CHECK(data_loader_start(NULL, 0) == TENSOR_E_ARGUMENT, "NULL started");
    CHECK(data_loader_next(NULL, l) == TENSOR_E_ARGUMENT, "NULL batch");
    data_batch b;
    CHECK(data_loader_next(&b, NULL) == TENSOR_E_ARGUMENT && data_loader_batches(NULL) == 0, "NULL loader");
    data_loader_free(l);
}

static bool load_one(void) {
    data_loader *l =
        data_loader_new(set, &(data_loader_config){.batch = 6, .shuffle = true, .mean = zero, .deviation = one});
    data_batch b;
    bool worked = l && !data_loader_start(l, 0) && !data_loader_next(&b, l) && b.count == 6;
    data_loader_free(l);
    return worked;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif

/* If the address space cannot hold another stack, the loader must report that. In a process of its own, before this one
 * has had a thread whose stack could be used again. */
static void check_no_thread(void) {
#if !defined(SANITIZED) && defined(__linux__)
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        long pages = 0;
        FILE *file = fopen("/proc/self/statm", "r");
        if (!file || fscanf(file, "%ld", &pages) != 1)
            _exit(2);
        fclose(file);
        free(malloc(100000)); /* so that small blocks need no new pages */
        rlim_t bytes = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + (1 << 20);
        struct rlimit limit = {bytes, bytes};
        setrlimit(RLIMIT_AS, &limit);
        data_loader *l = data_loader_new(set, &(data_loader_config){.batch = 1, .mean = zero, .deviation = one});
        _exit(!l && strstr(tensor_error(), "thread cannot be created") ? 0 : 1);
    }
    int status = 0;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status), "the process without room failed");
    if (WEXITSTATUS(status) == 2)
        printf("the loader without a thread is left out: /proc/self/statm cannot be read\n");
    else
        CHECK(WEXITSTATUS(status) == 0, "no room for a thread, and no error");
#endif
}

/* A loader that seeks a position gives the same batches as one that reached it by itself. */
static void positions(void) {
    data_set *fifty = data_open("synthetic:train=50", DATA_TRAIN);
    const double mean[3] = {0.5, 0.5, 0.5}, deviation[3] = {0.25, 0.25, 0.25};
    const data_loader_config how = {
        .batch = 8, .seed = 5, .shuffle = true, .augment = true, .mean = mean, .deviation = deviation};
    data_loader *a = data_loader_new(fifty, &how), *b = data_loader_new(fifty, &how);
    data_loader *bare =
        data_loader_new(fifty, &(data_loader_config){.batch = 8, .seed = 5, .shuffle = true, .augment = true});
    data_batch x, y, z;
    int epoch = -2;
    int64_t batch = -2;
    CHECK(data_loader_position(&epoch, &batch, a) == TENSOR_E_ARGUMENT && epoch == -2, "a position before the start");
    CHECK(data_loader_seek(a, 0, 8) == TENSOR_E_ARGUMENT && strstr(tensor_error(), "batch 8, expected 0 to 7"), "%s",
          tensor_error());
    CHECK(data_loader_seek(a, -1, 0) == TENSOR_E_ARGUMENT && data_loader_seek(a, 0, -1) == TENSOR_E_ARGUMENT,
          "negative");
    for (int e = 2; e >= 0; e--) {
        CHECK(!data_loader_start(a, e), "%s", tensor_error());
        for (int64_t i = 0; i <= data_loader_batches(a); i++) {
            CHECK(!data_loader_position(&epoch, &batch, a) && epoch == e && batch == i, "at %d, %d; want %d, %d", epoch,
                  (int)batch, e, (int)i);
            CHECK(!data_loader_seek(b, epoch, batch) && !data_loader_next(&x, a) && !data_loader_next(&y, b), "%s",
                  tensor_error());
            if (!x.count) {
                CHECK(!y.count && i == data_loader_batches(a), "epoch %d ends before batch %d", e, (int)i);
                break;
            }
            CHECK(x.count == y.count && !memcmp(x.indices, y.indices, (size_t)x.count * sizeof *x.indices) &&
                      !memcmp(x.images, y.images, (size_t)x.count * 3072 * sizeof *x.images),
                  "epoch %d batch %d differs", e, (int)i);
            float values[3 * 256];
            data_pixel_values(values, 3, mean, deviation);
            for (int64_t k = 0; k < (int64_t)x.count * 3072; k++)
                if (values[k % 3 * 256 + x.pixels[k]] != x.images[k]) {
                    CHECK(false, "pixel %d does not become its number", (int)k);
                    break;
                }
            CHECK(!data_loader_seek(bare, epoch, batch) && !data_loader_next(&z, bare) && z.count == x.count &&
                      !z.images &&
                      !memcmp(x.count ? z.pixels : (const void *)"", x.count ? x.pixels : (const void *)"",
                              (size_t)x.count * 3072),
                  "pixels alone, epoch %d batch %d", e, (int)i);
        }
    }
    data_loader_free(a);
    data_loader_free(b);
    data_loader_free(bare);
    data_free(fifty);
}

int main(void) {
    tensor_set_threads(1); /* the set is made without threads, see check_no_thread */
    set = data_open("synthetic:train=103,seed=1", DATA_TRAIN);
    CHECK(data_count(set) == COUNT, "%s", tensor_error());
    if (data_count(set) != COUNT)
        return check_summary();
    check_no_thread();
    check_orders();
    check_ends();
    check_values();
    check_restarts();
    check_hold();
    check_refusals();
    fail_each_allocation("data_loader", load_one);
    data_free(set);
    positions();
    return check_summary();
}
