/* What a device finds of a tensor's elements and of their update, against tensor_describe and sums of the test on the
 * processor: bytes, in every format, of tensors of one part, of several, and of more than are taken at a time, with
 * leading elements that are not finite. What it finds in shadow formats, whose exponents follow each write, against
 * tensor_measure_in. And the sampled error of a product, none once its tensor is written again.
 *
 *     test_gpu_describe [long|shadows]        long: of the largest tensors, too, the values before and after an update;
 * shadows: these alone, of small tensors
 *
 * Without a device: skipped, or with FLEXLAB_REQUIRE_GPU=1 a failure. */
#include "on_gpu.h"
#include "core/queue/queue.h"
#include "core/queue/sampled.h"
#include "core/rows/describe_there.h"
#include <math.h>

enum { PARTS = 70000, PIECES = 4 << 20 /* elements */ };

static struct {
    struct fl_described elements;
    struct fl_moved update;
} found;

static const struct fl_shadows no_shadows = {.count = 0};

static tensor *new_tensor(const char *device, const char *format, int64_t count, bool wide) {
    tensor_format id;
    CHECK(!tensor_format_find(&id, format), "%s", tensor_error());
    tensor *t = tensor_new_in(device ? tensor_device_find(device) : tensor_device_at(0), id, TENSOR_SHAPE(count));
    CHECK(t && (!wide || !tensor_keep_wide(t)), "%s", tensor_error());
    return t;
}

/* Of every kind: zeros, small and large numbers, and some that are not finite where the format has them. */
static void fill(float *x, int64_t count, bool finite, uint64_t *seed) {
    for (int64_t i = 0; i < count; i++) {
        const uint64_t draw = check_random(seed);
        x[i] = draw % 5 ? ldexpf((float)(int32_t)(draw >> 32) / 2147483648.0f, (int)(draw >> 8 & 31) - 26) : 0;
        if (!finite && (i < count - 3000 || draw >> 16 & 1) && count > PARTS)
            x[i] = draw & 64 ? INFINITY : NAN;
        else if (!finite && draw >> 16 & 1)
            x[i] = draw & 64 ? -INFINITY : NAN;
    }
}

/* Which values are described: those before an update, without one; those after it; both. */
enum { BEFORE = 1, AFTER = 2, BOTH = 3 };
static void compare(const char *format, int64_t count, bool wide, int describe) {
    tensor_device *device = tensor_device_find("cuda");
    tensor *const t[2] = {new_tensor(NULL, format, count, wide), new_tensor("cuda", format, count, wide)};
    const bool finite = tensor_format_is_shared(tensor_format_of(t[0]));
    const size_t bytes = (size_t)count * sizeof(double);
    float *x = malloc((size_t)count * sizeof *x);
    double *const before = malloc(bytes), *const after = malloc(bytes),
                  *const there = tensor_device_allocate(device, bytes),
                  *const numbers = tensor_device_allocate(device, (size_t)fl_described_room(count) * sizeof *numbers),
                  step_and_size[2] = {0};
    void *const to = tensor_device_allocate(device, sizeof found);
    uint64_t seed = (uint64_t)count;
    int64_t moved = 0;
    tensor_description want, have;
    for (int update = 0; update < (describe & AFTER ? 2 : 1); update++) {
        const bool describes = describe >> update & 1;
        fill(x, count, finite || update, &seed);
        for (int on = 0; on < 2; on++)
            CHECK(!tensor_load_f32(t[on], x, count), "%s", tensor_error());
        CHECK(!tensor_store_wide_f64(t[0], update ? after : before, count), "%s", tensor_error());
        CHECK(!describes ||
                  (!fl_describe_there(to, 7 + update, numbers, t[1], &no_shadows) && !tensor_describe(&want, t[0])),
              "%s", tensor_error());
        CHECK(update ? !fl_compare_there((void *)((char *)to + sizeof found.elements), 9, numbers, there, t[1])
                     : !fl_keep_there(there, t[1]),
              "%s", tensor_error());
        CHECK(!fl_get(fl_device_queue(device), &found, to, sizeof found), "%s", tensor_error());
        memset(&have, 0, sizeof have);
        fl_describe_arrived(&have, &found.elements, t[1]);
        CHECK(!describes || (found.elements.number == 7 + update && !memcmp(&have, &want, sizeof have)),
              "%s, %lld elements: mean %.17g and %.17g, deviation %.17g and %.17g, zeros %lld and %lld", format,
              (long long)count, have.mean, want.mean, have.deviation, want.deviation, (long long)have.zeros,
              (long long)want.zeros);
    }
    for (int64_t i = 0; i < count && describe & AFTER; i++) {
        step_and_size[0] += (after[i] - before[i]) * (after[i] - before[i]);
        step_and_size[1] += before[i] * before[i];
        moved += after[i] != before[i] || isnan(before[i]);
    }
    const double sums[2] = {found.update.step, found.update.size};
    for (int i = 0; i < 2 && describe & AFTER; i++)
        CHECK(sums[i] == step_and_size[i] || (isnan(sums[i]) && isnan(step_and_size[i])), "%s, %lld: %.17g and %.17g",
              format, (long long)count, sums[i], step_and_size[i]);
    CHECK(!(describe & AFTER) || (found.update.number == 9 && found.update.moved == moved),
          "%s, %lld: %lld moved, expected %lld", format, (long long)count, (long long)found.update.moved,
          (long long)moved);
    tensor_device_release(device, to);
    tensor_device_release(device, there);
    tensor_device_release(device, numbers);
    for (int on = 0; on < 2; on++)
        tensor_free(t[on]);
    free(x);
    free(before);
    free(after);
}

/* --- shadows ------------------------------------------------------------------------------------------------------ */

static const char *const shadow_names[] = {"fp32",
                                           "fp16",
                                           "bf16",
                                           "e4m3fn",
                                           "e5m2sat",
                                           "e2m1",
                                           "e6m0",
                                           "e8m3",
                                           "tensor:e4m3fn",
                                           "tensor:e5m2:delayed:history=4:margin=1",
                                           "tensor:e7m6:amax-recent",
                                           "flex16+5",
                                           "flex8+5:ngraph",
                                           "flex4+7:repeat",
                                           "dfp16",
                                           "dfp6:per-class"};
enum { SHADOWS = FL_MOST_SHADOWS, SHADOWED_WRITES = 12 };

/* The states of new tensors of these formats. */
static void begin_shadows(tensor_format formats[SHADOWS], struct autoflex states[SHADOWS]) {
    for (int k = 0; k < SHADOWS; k++) {
        char format[64];
        strcpy(format, shadow_names[k]);
        char *const end = format + tensor_format_extent(format);
        const char *const predictor = *end ? end + 1 : NULL;
        *end = 0;
        CHECK(!tensor_format_find(&formats[k], format), "%s", tensor_error());
        memset(&states[k], 0, sizeof states[k]);
        if (!tensor_format_is_shared(formats[k]))
            continue;
        tensor *t = new_tensor(NULL, format, 1, false);
        CHECK(!predictor || !tensor_set_predictor(t, predictor), "%s", tensor_error());
        states[k] = *tensor_autoflex(t);
        states[k].role = AUTOFLEX_ROLE_GRADIENT;
        tensor_free(t);
    }
}

static void compare_shadow(const char *what, const tensor_measure *want, const struct fl_measured *of, const tensor *x,
                           const struct autoflex *a, const struct fl_shadowed *there) {
    tensor_measure have;
    fl_measure_arrived(&have, of, x);
    CHECK(
        !memcmp(want, &have, sizeof have) && of->e == a->e,
        "%s: error %.17g and %.17g, size %.17g and %.17g, saturated %lld and %lld, flushed %lld and %lld, e %d and %d",
        what, want->error, have.error, want->size, have.size, (long long)want->saturated, (long long)have.saturated,
        (long long)want->flushed, (long long)have.flushed, (int)a->e, (int)of->e);
    CHECK(!memcmp(a, &there->a, sizeof *a), "%s: the state differs", what);
}

/* Writes of a tensor from tiny numbers to huge ones, each third of which is described. */
static void follow(const char *format, int64_t count, int writes) {
    static struct fl_shadowed states[SHADOWS];
    static struct fl_measured measured[SHADOWS];
    tensor_device *device = tensor_device_find("cuda");
    tensor *const t[2] = {new_tensor(NULL, format, count, false), new_tensor("cuda", format, count, false)};
    const bool finite = tensor_format_is_shared(tensor_format_of(t[0]));
    float *x = malloc((size_t)count * sizeof *x);
    double *const numbers = tensor_device_allocate(device, (size_t)fl_described_room(count) * sizeof *numbers);
    void *const described = tensor_device_allocate(device, sizeof found),
                *const there = tensor_device_allocate(device, sizeof states),
                *const results = tensor_device_allocate(device, sizeof measured);
    tensor_format formats[SHADOWS];
    struct autoflex here[SHADOWS];
    uint64_t seed = (uint64_t)count + 3;
    begin_shadows(formats, here);
    for (int k = 0; k < SHADOWS; k++)
        states[k] = fl_shadowed_of(t[1], &here[k], tensor_format_is_shared(formats[k]), k % 3 == 1, 0);
    CHECK(!fl_shadows_put(device, there, states, SHADOWS), "%s", tensor_error());
    const struct fl_shadows shadows = {there, results, formats, SHADOWS};
    for (int write = 0; write < writes; write++) {
        const int scale = (int)(check_random(&seed) % 240) - 110;
        tensor_stats last;
        fill(x, count, finite || write % 2, &seed);
        for (int64_t i = 0; i < count; i++)
            x[i] = finite && isinf(ldexpf(x[i], scale)) ? x[i] : ldexpf(x[i], write % 4 ? scale / 8 : scale);
        for (int on = 0; on < 2; on++)
            CHECK(!tensor_load_f32(t[on], x, count), "%s", tensor_error());
        CHECK(!tensor_statistics(&last, NULL, t[0]), "%s", tensor_error());
        for (int k = 0; k < SHADOWS; k++)
            if (tensor_format_is_shared(formats[k]))
                fl_shadow_write(&here[k], k % 3 == 1, last.maximum);
        for (int twice = 0; twice < 2; twice++) { /* the second time no write has followed, but perhaps a reset */
            CHECK(write % 3 ? !fl_shadows_follow(device, there, SHADOWS)
                            : !fl_describe_there(described, write, numbers, t[1], &shadows),
                  "%s", tensor_error());
            if (write % 4 < 2)
                tensor_reset_statistics(t[1]);
        }
        CHECK(!fl_get(fl_device_queue(device), measured, results, sizeof measured) &&
                  !fl_get(fl_device_queue(device), states, there, sizeof states),
              "%s", tensor_error());
        for (int k = 0; k < SHADOWS && write % 3 == 0; k++) {
            tensor_measure want;
            char what[120];
            snprintf(what, sizeof what, "%lld elements of %s, write %d, in %s", (long long)count, format, write,
                     shadow_names[k]);
            CHECK(!tensor_measure_in(&want, t[0], formats[k], here[k].e), "%s", tensor_error());
            compare_shadow(what, &want, &measured[k], t[0], &here[k], &states[k]);
        }
    }
    tensor_device_release(device, described);
    tensor_device_release(device, there);
    tensor_device_release(device, results);
    tensor_device_release(device, numbers);
    for (int on = 0; on < 2; on++)
        tensor_free(t[on]);
    free(x);
}

/* What follows a product before its error is asked for: its totals are reset, a load overwrites it, or both. */
enum { RESET = 1, AGAIN = 2 };
static void sample(const char *format, int then) {
    enum { M = 12 };
    static struct fl_sampling sampling[2];
    struct fl_sampled have[2];
    struct fl_sampled_sums sums = {.number = 0};
    tensor_device *device = tensor_device_find("cuda");
    struct fl_sampled_sums *const to = tensor_device_allocate(device, sizeof *to);
    CHECK(!fl_sampling_begin(&sampling[1], device), "%s", tensor_error());
    for (int on = 0; on < 2; on++) {
        tensor *t[3];
        float x[M * M];
        uint64_t seed = 4;
        tensor_format id;
        CHECK(!tensor_format_find(&id, format), "%s", tensor_error());
        for (int i = 0; i < 3; i++) {
            t[i] = tensor_new_in(on ? device : tensor_device_at(0), id, TENSOR_SHAPE(M, M));
            for (int k = 0; k < M * M; k++)
                x[k] = (float)(check_random(&seed) % 1000) / 700;
            CHECK(t[i] && !tensor_load_f32(t[i], x, M * M), "%s", tensor_error());
        }
        sampling[on].number = 5;
        fl_sample_writes(&sampling[on], 0);
        CHECK(!tensor_matmul(t[2], t[0], t[1]), "%s", tensor_error());
        fl_sample_writes(NULL, 0);
        if (then & RESET)
            tensor_reset_statistics(t[2]);
        CHECK(!(then & AGAIN) || !tensor_load_f32(t[2], x, M * M), "%s", tensor_error());
        have[on] = fl_sampled_of(&sampling[on], t[2]);
        CHECK(!on || (!fl_sampled_note(&sampling[on], t[2], to) &&
                      !fl_get(fl_device_queue(device), &sums, to, sizeof sums)),
              "%s", tensor_error());
        for (int i = 0; i < 3; i++)
            tensor_free(t[i]);
    }
    const struct fl_sampled noted = fl_sampled_from(&sums, 6);
    CHECK(have[0].elements == (then & AGAIN ? 0 : M * M) && (then & AGAIN || have[0].error > 0),
          "%s, then %d: error %g of %lld", format, then, have[0].error, (long long)have[0].elements);
    CHECK(!memcmp(&have[0], &have[1], sizeof have[0]) && !memcmp(&have[0], &noted, sizeof noted),
          "%s, then %d: errors %.17g, %.17g and %.17g of %lld, %lld and %lld", format, then, have[0].error,
          have[1].error, noted.error, (long long)have[0].elements, (long long)have[1].elements,
          (long long)noted.elements);
    tensor_device_release(device, sampling[1].there);
    tensor_device_release(device, to);
    sampling[1].there = NULL;
}

int main(int argc, char **argv) {
    const bool all = argc > 1 && !strcmp(argv[1], "long");
    static const char *const formats[] = {"fp32", "fp16", "bf16", "flex16+5", "dfp16", "e4m3fn", "flex8+5"};
    static const int64_t counts_of[] = {1, 7, 1031, PARTS};
    int status;
    if (!has_gpu(&status))
        return status;
    for (int i = 0; i < 7; i++) {
        follow(formats[i], 1031, SHADOWED_WRITES);
        follow(formats[i], 7, 3 * SHADOWED_WRITES);
    }
    if (argc > 1 && !strcmp(argv[1], "shadows"))
        return check_summary();
    for (int i = 0; i < 7; i++)
        for (int k = 0; k < 4; k++)
            compare(formats[i], counts_of[k], false, BOTH);
    compare("bf16", PARTS, true, BOTH);
    compare("flex16+5", PARTS, true, BOTH);
    compare("fp16", PIECES + 5000, false, all ? BOTH : BEFORE);
    compare("dfp16", PIECES + 5000, true, all ? BOTH : AFTER);
    follow("fp32", PARTS, 1);
    follow("flex16+5", all ? PIECES + 5000 : PARTS, 1);
    for (int i = 0; i < 5; i++)
        for (int then = 0; then <= (RESET | AGAIN); then++)
            sample(formats[i], then);
    return check_summary();
}
