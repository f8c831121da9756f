/* tensor_all_finite, tensor_isnan and tensor_isinf: every element of the 16-bit formats by its bits, binary32 at random
 * places, numbers, shared exponents, sizes around the blocks, and what is refused. */
#include "check.h"
#include "flexlab/tensor.h"
#include <math.h>
#include <string.h>

static uint64_t seed = 20260721;

/* exponent all ones: fraction zero is Inf, else NaN */
static void words(tensor_format format, uint32_t exponent) {
    enum { N = 65536 };
    static double nan[N], inf[N];
    tensor *x = tensor_new(format, TENSOR_SHAPE(256, 256)), *y = tensor_new(FMT_U8, TENSOR_SHAPE(256, 256));
    uint16_t *data = tensor_data(x);
    bool yes = true;
    for (int i = 0; i < N; i++)
        data[i] = (uint16_t)i;
    CHECK(!tensor_isnan(y, x) && !tensor_store_f64(y, nan, N) && !tensor_isinf(y, x) && !tensor_store_f64(y, inf, N) &&
              !tensor_all_finite(&yes, x),
          "%s", tensor_error());
    CHECK(!yes, "all finite");
    for (uint32_t i = 0; i < N; i++) {
        const bool special = (i & exponent) == exponent, fraction = (i & ~exponent & 0x7fff) != 0;
        CHECK(nan[i] == (special && fraction) && inf[i] == (special && !fraction), "%s %04x: NaN %g, Inf %g",
              tensor_format_name(format), i, nan[i], inf[i]);
    }
    tensor_free(x);
    tensor_free(y);
}

/* One element of n is not finite. */
static void one_of(int64_t n) {
    tensor *x = tensor_new(FMT_FP32, TENSOR_SHAPE(n)), *y = tensor_new(FMT_U8, TENSOR_SHAPE(n));
    double *got = malloc((size_t)n * sizeof *got);
    float *data = tensor_data(x);
    bool yes = false;
    for (int64_t i = 0; i < n; i++)
        data[i] = ldexpf((float)(int32_t)(check_random(&seed) >> 32), (int)(check_random(&seed) % 90));
    CHECK(!tensor_all_finite(&yes, x) && yes, "%lld finite ones", (long long)n);
    for (int kind = 0; kind < 3; kind++) {
        const int64_t at = (int64_t)(check_random(&seed) % (uint64_t)n);
        const float before = data[at];
        data[at] = kind == 0 ? NAN : kind == 1 ? INFINITY : -INFINITY;
        CHECK(!tensor_all_finite(&yes, x) && !yes, "element %lld of %lld is not finite", (long long)at, (long long)n);
        CHECK(!(kind ? tensor_isinf(y, x) : tensor_isnan(y, x)) && !tensor_store_f64(y, got, n), "%s", tensor_error());
        for (int64_t i = 0; i < n; i++)
            CHECK(got[i] == (i == at), "element %lld of %lld", (long long)i, (long long)n);
        CHECK(!(kind ? tensor_isnan(y, x) : tensor_isinf(y, x)) && !tensor_store_f64(y, got, n), "%s", tensor_error());
        for (int64_t i = 0; i < n; i++)
            CHECK(got[i] == 0, "element %lld of %lld is the other kind", (long long)i, (long long)n);
        data[at] = before;
    }
    free(got);
    tensor_free(x);
    tensor_free(y);
}

static void others(void) {
    tensor *flex = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(5)), *dfp = tensor_new(FMT_DFP16, TENSOR_SHAPE(5)),
           *real = tensor_new(FMT_F64, TENSOR_SHAPE(2)), *whole = tensor_new(FMT_I32, TENSOR_SHAPE(5)),
           *y = tensor_new(FMT_U8, TENSOR_SHAPE(5)), *pair = tensor_new(FMT_U8, TENSOR_SHAPE(2)),
           *wrong = tensor_new(FMT_U8, TENSOR_SHAPE(5, 1));
    tensor *const finite[] = {flex, dfp, whole};
    double got[5];
    bool yes;
    for (int i = 0; i < 3; i++) {
        memset(tensor_data(y), 7, 5);
        CHECK(!tensor_all_finite(&yes, finite[i]) && yes, "integers are finite");
        CHECK(!tensor_isnan(y, finite[i]) && !tensor_store_f64(y, got, 5) && got[0] == 0 && got[4] == 0, "%s",
              tensor_error());
    }
    CHECK(!tensor_load_f64(real, (double[]){0x1p1000, -INFINITY}, 2) && !tensor_isinf(pair, real) &&
              !tensor_store_f64(pair, got, 2) && got[0] == 0 && got[1] == 1,
          "doubles");
    yes = true;
    CHECK(tensor_all_finite(NULL, flex) == TENSOR_E_ARGUMENT && tensor_all_finite(&yes, NULL) == TENSOR_E_ARGUMENT &&
              yes,
          "NULL");
    CHECK(tensor_isnan(NULL, flex) == TENSOR_E_ARGUMENT && tensor_isnan(y, NULL) == TENSOR_E_ARGUMENT, "NULL");
    CHECK(tensor_isnan(flex, dfp) == TENSOR_E_FORMAT && strstr(tensor_error(), "flex16+5, expected u8"), "%s",
          tensor_error());
    CHECK(tensor_isinf(wrong, flex) == TENSOR_E_SHAPE && strstr(tensor_error(), "5x1"), "%s", tensor_error());
    CHECK(tensor_isinf(y, y) == TENSOR_OK, "bytes in place: %s", tensor_error());
    for (int i = 0; i < 3; i++)
        tensor_free(finite[i]);
    tensor_free(real);
    tensor_free(y);
    tensor_free(pair);
    tensor_free(wrong);
}

int main(void) {
    printf("seed %llu\n", (unsigned long long)seed);
    words(FMT_FP16, 0x7c00);
    words(FMT_BF16, 0x7f80);
    const int64_t sizes[] = {1, 511, 512, 513, 32768, 32769, 100003};
    for (int threads = 1; threads <= 3; threads += 2) {
        CHECK(!tensor_set_threads(threads), "%s", tensor_error());
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
            one_of(sizes[i]);
    }
    others();
    return check_summary();
}
