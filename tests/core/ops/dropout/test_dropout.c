/* Dropout: the elements that remain against an independent Philox, stored values against the exact product, the
 * gradient by the same draws, the share that is dropped, numbers of steps of every kind, errors. */
#include "philox_witness.h"
#include "row_witness.h"

static tensor *step_of(double value) {
    tensor *step = tensor_new(FMT_F64, TENSOR_SHAPE(1));
    CHECK(step && !tensor_load_f64(step, &value, 1), "%s", tensor_error());
    return step;
}

/* An element is dropped if its draw is below p 2^32, compared as integers: p is a multiple of 2^-149. */
static bool dropped(uint64_t key, double step, int64_t i, float p) {
    uint64_t counter;
    memcpy(&counter, &step, sizeof counter);
    return (double)witness_draw(key, counter, i) < floor((double)p * 0x1p32);
}

static struct held x, y, dx;

static void check_case(tensor_format f, int64_t n, float p, uint64_t key, double at) {
    tensor *step = step_of(at);
    const int64_t shape[2] = {1, n};
    char what[120];
    snprintf(what, sizeof what, "%s n=%lld p=%a key=%llu step=%a", tensor_format_name(f), (long long)n, (double)p,
             (unsigned long long)key, at);
    make(&x, f, 2, shape, 0);
    y.t = tensor_new(f, 2, shape);
    dx.t = tensor_new(f, 2, shape);
    CHECK(!tensor_dropout(y.t, x.t, p, key, step) && !tensor_dropout(dx.t, x.t, p, key, step), "%s: %s", what,
          tensor_error());
    hold(&y);
    hold(&dx);
    const float scale = (float)(1 / (1 - (double)p));
    long double largest = 0;
    for (int64_t i = 0; i < n; i++) {
        const long double want = dropped(key, at, i, p) ? 0 : (long double)scale * x.v[i];
        CHECK(near_to(&y, i, want, 0), "%s i=%lld got %a want %La", what, (long long)i, y.v[i], want);
        CHECK(y.v[i] == dx.v[i], "%s i=%lld: %a, then %a", what, (long long)i, y.v[i], dx.v[i]);
        largest = fabsl(want) > largest ? fabsl(want) : largest;
    }
    tensor_stats last;
    CHECK(!tensor_statistics(&last, NULL, y.t) && fabsl(last.maximum - largest) <= largest * 0x1p-20L,
          "%s: maximum %a want %La", what, last.maximum, largest);
    CHECK(!tensor_dropout(x.t, x.t, p, key, step), "%s in place: %s", what, tensor_error());
    struct held *all[] = {&x, &y, &dx};
    for (int i = 0; i < 3; i++)
        tensor_free(all[i]->t);
    tensor_free(step);
}

/* The share of dropped elements is within six standard deviations. */
static void check_share(float p) {
    enum { N = 1 << 15 };
    static double v[N];
    tensor *t = tensor_new(FMT_BF16, TENSOR_SHAPE(N)), *step = step_of(17);
    for (int i = 0; i < N; i++)
        v[i] = 1;
    CHECK(!tensor_load_f64(t, v, N) && !tensor_dropout(t, t, p, 99, step) && !tensor_store_f64(t, v, N), "%s",
          tensor_error());
    double zeros = 0;
    for (int i = 0; i < N; i++)
        zeros += v[i] == 0;
    const double share = (double)p, sigma = sqrt(N * share * (1 - share));
    CHECK(fabs(zeros - N * share) <= 6 * sigma, "p %g: %g of %d dropped", share, zeros, N);
    tensor_free(t);
    tensor_free(step);
}

/* Neighbouring steps, keys and elements are independent: half of the draws agree, within six deviations. */
static void check_unlike(void) {
    enum { N = 1 << 14 };
    static double a[N], b[N];
    for (int which = 0; which < 2; which++) {
        tensor *t = tensor_new(FMT_FP32, TENSOR_SHAPE(N)), *u = tensor_new(FMT_FP32, TENSOR_SHAPE(N)),
               *first = step_of(3), *other = step_of(which ? 3 : 4);
        for (int i = 0; i < N; i++)
            a[i] = 1;
        CHECK(!tensor_load_f64(t, a, N) && !tensor_load_f64(u, a, N) && !tensor_dropout(t, t, 0.5f, 5, first) &&
                  !tensor_dropout(u, u, 0.5f, which ? 6 : 5, other) && !tensor_store_f64(t, a, N) &&
                  !tensor_store_f64(u, b, N),
              "%s", tensor_error());
        double equal = 0;
        for (int i = 0; i < N; i++)
            equal += a[i] == b[i];
        CHECK(fabs(equal - N / 2) <= 6 * sqrt(N / 4.0), "%s: %g of %d agree", which ? "keys" : "steps", equal, N);
        tensor *all[] = {t, u, first, other};
        for (int i = 0; i < 4; i++)
            tensor_free(all[i]);
    }
}

/* An element whose draw is p 2^32 remains, and is dropped at the next larger p. */
static void check_boundary(void) {
    enum { N = 4096 };
    static double v[N];
    tensor *t = tensor_new(FMT_FP32, TENSOR_SHAPE(N)), *step = step_of(2);
    uint64_t counter;
    int found = 0;
    memcpy(&counter, &(double){2}, sizeof counter);
    for (int i = 0; i < N && found < 6; i++) {
        const uint32_t draw = witness_draw(8, counter, i);
        if (draw % 256) /* then p has 24 bits */
            continue;
        const float p = (float)draw * 0x1p-32f;
        found++;
        for (int more = 0; more < 2; more++) {
            for (int k = 0; k < N; k++)
                v[k] = 1;
            CHECK(!tensor_load_f64(t, v, N) && !tensor_dropout(t, t, more ? nextafterf(p, 1) : p, 8, step) &&
                      !tensor_store_f64(t, v, N),
                  "%s", tensor_error());
            CHECK((v[i] == 0) == more, "i=%d draw %u p %a: got %g", i, draw, (double)p, v[i]);
        }
    }
    CHECK(found == 6, "%d draws of %d elements have 24 bits", found, N);
    tensor_free(t);
    tensor_free(step);
}

static void check_special(void) {
    tensor *t = tensor_new(FMT_FP32, TENSOR_SHAPE(64)), *step = step_of(0);
    double v[64];
    for (int i = 0; i < 64; i++)
        v[i] = i % 2 ? NAN : -INFINITY;
    CHECK(!tensor_load_f64(t, v, 64) && !tensor_dropout(t, t, 0.5f, 1, step) && !tensor_store_f64(t, v, 64), "%s",
          tensor_error());
    for (int i = 0; i < 64; i++)
        CHECK(dropped(1, 0, i, 0.5f) ? v[i] == 0 : i % 2 ? v[i] != v[i] : v[i] == -INFINITY, "i=%d got %g", i, v[i]);
    tensor_free(t);
    tensor_free(step);
}

static void check_errors(void) {
    tensor *a = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(8)), *b = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(2, 4)),
           *h = tensor_new(FMT_FP16, TENSOR_SHAPE(8)), *step = step_of(1), *two = tensor_new(FMT_F64, TENSOR_SHAPE(2)),
           *lost = step_of(NAN);
    const double ones[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    CHECK(!tensor_load_f64(a, ones, 8), "%s", tensor_error());
#define REFUSED(call, status, words)                                                                                   \
    CHECK((call) == (status) && strstr(tensor_error(), words), "%s: expected %s, got '%s'", #call, words,              \
          tensor_error())
    REFUSED(tensor_dropout(a, a, 1, 1, step), TENSOR_E_ARGUMENT, "p is 1, expected 0 or more and less than 1");
    REFUSED(tensor_dropout(a, a, -0.5f, 1, step), TENSOR_E_ARGUMENT, "p is -0.5");
    REFUSED(tensor_dropout(a, a, NAN, 1, step), TENSOR_E_ARGUMENT, "p is");
    REFUSED(tensor_dropout(a, a, 0.5f, 1, NULL), TENSOR_E_ARGUMENT, "step is NULL");
    REFUSED(tensor_dropout(a, a, 0.5f, 1, two), TENSOR_E_SHAPE, "step is f64 2, expected f64 with 1 elements");
    REFUSED(tensor_dropout(a, a, 0.5f, 1, h), TENSOR_E_FORMAT, "step is fp16");
    REFUSED(tensor_dropout(a, a, 0.5f, 1, lost), TENSOR_E_ARGUMENT, "dropout: step is nan, expected a finite number");
    REFUSED(tensor_dropout(a, b, 0.5f, 1, step), TENSOR_E_SHAPE, "y is 8, expected 2x4");
    REFUSED(tensor_dropout(a, h, 0.5f, 1, step), TENSOR_E_FORMAT, "fp16");
    double v[8];
    CHECK(!tensor_store_f64(a, v, 8) && !memcmp(v, ones, sizeof v), "a failed call wrote");
    tensor *all[] = {a, b, h, step, two, lost};
    for (int i = 0; i < 6; i++)
        tensor_free(all[i]);
}

int main(int argc, char **argv) {
    static const int64_t counts[] = {1, 3, 4, 63, 1023, 1024, 1025, 5000};
    static const float rates[] = {0.5f, 0, 0.25f, 0.9f, 0x1p-24f, 0.99999994f, 0x1p-140f};
    static const double steps[] = {0, 1, 2, 1e6, 0x1p53, -3.5, -0.0, 1e-300};
    draws = argc > 1 ? strtoull(argv[1], NULL, 0) : 20260505;
    printf("seed %llu\n", (unsigned long long)draws);
    for (int i = 0; i < 5 * 8 * 7 * 2; i++) {
        CHECK(!tensor_set_backend(i < 5 * 8 * 7 ? NULL : "ref"), "%s", tensor_error());
        CHECK(!tensor_set_threads(1 + i % 3), "%s", tensor_error());
        check_case(all_formats[i % 5], counts[i / 5 % 8], rates[i / 40 % 7], check_random(&draws), steps[i / 3 % 8]);
    }
    CHECK(!tensor_set_backend(NULL) && !tensor_set_threads(0), "%s", tensor_error());
    check_share(0.5f);
    check_share(0.1f);
    check_unlike();
    check_boundary();
    check_special();
    check_errors();
    return check_summary();
}
