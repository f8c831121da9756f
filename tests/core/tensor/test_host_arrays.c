/* Loads from and stores to host arrays of every type, and tensors filled with constants and random numbers: 64-bit
 * integers against exact integers (128 bits), floats of 16 bits against all their words, random numbers against the
 * generator implemented again.
 *
 *     test_host_arrays [SEED] */
#include "philox_witness.h"
#include "row_witness.h"

__extension__ typedef __int128 int128;

/* |v| as a number of the format, computed with integers only: digits significant bits, least the exponent of the
 * smallest unit; to nearest, ties to even. */
static double rounded(int128 v, int digits, int least) {
    const bool negative = v < 0;
    unsigned __int128 m = negative ? -(unsigned __int128)v : (unsigned __int128)v;
    int e = 0;
    while (m >> (digits + e) || e < least)
        e++;
    if (e) {
        const unsigned __int128 low = m & (((unsigned __int128)1 << e) - 1), half = (unsigned __int128)1 << (e - 1);
        m = (m >> e) + (low > half || (low == half && (m >> e & 1)));
    }
    return ldexp(negative ? -(double)(uint64_t)m : (double)(uint64_t)m, e);
}

/* v 2^e to the nearest integer, ties to even, as a mantissa. */
static double mantissa_of(int128 v, int e) {
    int128 m = v;
    for (int i = 0; i < e; i++) /* saturated before it overflows */
        m = m > 32767 || m < -32767 ? m : 2 * m;
    if (e < 0) {
        const int128 unit = (int128)1 << -e, low = v >> -e, rest = v - low * unit;
        m = low + (2 * rest > unit || (2 * rest == unit && (low & 1)));
    }
    return m > 32767 ? 32767 : m < -32767 ? -32767 : (double)(int64_t)m;
}

/* --- integers of 64 bits ------------------------------------------------------------------------------------------ */

/* A number near the middle between two numbers of a format, for which rounding twice fails. */
static uint64_t awkward(void) {
    const int place = between(2, 62), digits = between(0, 3) == 0 ? 24 : between(0, 1) ? 11 : 8;
    const uint64_t one = (uint64_t)1 << place, half = place >= digits ? one >> digits : 0;
    const uint64_t random = check_random(&draws);
    switch (between(0, 4)) {
    case 0:
        return one + half + (uint64_t)between(-1, 1);
    case 1:
        return one + 3 * half + (uint64_t)between(-1, 1);
    case 2:
        return UINT64_MAX - (uint64_t)between(0, 3);
    case 3:
        return random >> between(0, 63);
    default:
        return one - 1;
    }
}

static void check_wide_integers(tensor_format f, bool is_signed) {
    enum { N = 4000 };
    static uint64_t values[N];
    static double got[N];
    int128 most = 0;
    tensor *t = tensor_new(f, TENSOR_SHAPE(N));
    for (int i = 0; i < N; i++) {
        values[i] = is_signed && between(0, 1) ? -(awkward() >> 1) : is_signed ? awkward() >> 1 : awkward();
        const int128 v = is_signed ? (int128)(int64_t)values[i] : (int128)values[i];
        most = v > most ? v : -v > most ? -v : most;
    }
    CHECK(!tensor_load_array(t, values, is_signed ? TENSOR_TYPE_I64 : TENSOR_TYPE_U64, N) &&
              !tensor_store_f64(t, got, N),
          "%s", tensor_error());
    if (f == FMT_DFP16) { /* the largest whose rounding does not saturate */
        int e = -1;
        while ((most >> -e) + (most >> (-e - 1) & 1) > 32767)
            e--;
        CHECK(tensor_exponent(t) == e, "exponent %d, expected %d", tensor_exponent(t), e);
    }
    for (int i = 0; i < N; i++) {
        const int128 v = is_signed ? (int128)(int64_t)values[i] : (int128)values[i];
        double want;
        if (tensor_format_is_shared(f)) {
            want = ldexp(mantissa_of(v, tensor_exponent(t)), -tensor_exponent(t));
        } else {
            want = rounded(v, f == FMT_FP32 ? 24 : f == FMT_FP16 ? 11 : 8, 0);
            if (f == FMT_FP16 && fabs(want) > 65504)
                want = copysign(INFINITY, want);
        }
        CHECK(got[i] == want, "%s of 0x%016llx (%s): %a, expected %a", tensor_format_name(f),
              (unsigned long long)values[i], is_signed ? "signed" : "unsigned", got[i], want);
    }
    tensor_free(t);
}

/* --- narrow types: there and back --------------------------------------------------------------------------------- */

/* All integers of 16 bits survive a tensor of binary32, and those of 8 bits every format, exactly. */
#define BACK(type, TYPE, least, most, format)                                                                          \
    do {                                                                                                               \
        static type there[70000], back[70000];                                                                         \
        int64_t n = 0, saturated = -1;                                                                                 \
        for (int64_t v = (least); v <= (most); v += (most) > 70000 ? 65537 : 1)                                        \
            there[n++] = (type)v;                                                                                      \
        tensor *t = tensor_new(format, TENSOR_SHAPE(n));                                                               \
        CHECK(!tensor_load_array(t, there, TYPE, n) && !tensor_store_array(t, back, TYPE, n, NULL) &&                  \
                  !memcmp(there, back, (size_t)n * sizeof(type)),                                                      \
              #type " there and back in %s: %s", tensor_format_name(format), tensor_error());                          \
        memset(back, 0, sizeof back);                                                                                  \
        CHECK(!tensor_store_array(t, back, TYPE, n, &saturated) && saturated == 0 &&                                   \
                  !memcmp(there, back, (size_t)n * sizeof(type)),                                                      \
              #type " %lld saturated", (long long)saturated);                                                          \
        tensor_free(t);                                                                                                \
    } while (0)

static void check_narrow(void) {
    for (int k = 0; k < 5; k++) {
        BACK(int8_t, TENSOR_TYPE_I8, -128, 127, all_formats[k]);
        BACK(uint8_t, TENSOR_TYPE_U8, 0, 255, all_formats[k]);
        bool marks[5] = {true, false, false, true, true}, back[5];
        double got[5];
        tensor *t = tensor_new(all_formats[k], TENSOR_SHAPE(5));
        CHECK(!tensor_load_array(t, marks, TENSOR_TYPE_BOOL, 5) && !tensor_store_f64(t, got, 5) &&
                  !tensor_store_array(t, back, TENSOR_TYPE_BOOL, 5, NULL) && !memcmp(marks, back, 5),
              "%s", tensor_error());
        for (int i = 0; i < 5; i++)
            CHECK(got[i] == (double)marks[i], "%s bool %g", tensor_format_name(all_formats[k]), got[i]);
        tensor_free(t);
    }
    BACK(int16_t, TENSOR_TYPE_I16, -32768, 32767, FMT_FP32);
    BACK(uint16_t, TENSOR_TYPE_U16, 0, 65535, FMT_FP32);
    BACK(int16_t, TENSOR_TYPE_I16, -16383, 16383, FMT_DFP16); /* flex16+5 as well, whose e is at least 0 */
    BACK(int16_t, TENSOR_TYPE_I16, -16383, 16383, FMT_FLEX16_5);
    BACK(int32_t, TENSOR_TYPE_I32, -(1 << 24), 1 << 24, FMT_FP32);
    BACK(uint32_t, TENSOR_TYPE_U32, 0, 1 << 24, FMT_FP32);
}

/* --- integers from numbers that are none -------------------------------------------------------------------------- */

static void check_stores(void) {
    const float values[] = {0.5f, 1.5f, -0.5f, -1.5f, 2.5f, 127.5f, -128.5f, 1e30f, -1e30f, 0x1p31f, -0x1p31f};
    enum { N = sizeof values / sizeof values[0] };
    const int8_t want8[N] = {0, 2, 0, -2, 2, 127, -128, 127, -128, 127, -128};
    const int32_t want32[N] = {0, 2, 0, -2, 2, 128, -128, INT32_MAX, INT32_MIN, INT32_MAX, INT32_MIN};
    int8_t got8[N];
    int32_t got32[N];
    int64_t got64[N], saturated = -1;
    uint64_t gotu[N];
    tensor *t = tensor_new(FMT_FP32, TENSOR_SHAPE(N));
    CHECK(!tensor_load_f32(t, values, N), "%s", tensor_error());
    memset(got8, 99, sizeof got8);
    CHECK(tensor_store_array(t, got8, TENSOR_TYPE_I8, N, NULL) == TENSOR_E_ARGUMENT &&
              strstr(tensor_error(), "value 5 is 127.5, expected -128 to 127 for i8"),
          "%s", tensor_error());
    for (int i = 0; i < N; i++)
        CHECK(got8[i] == 99, "written after a failure");
    CHECK(!tensor_store_array(t, got8, TENSOR_TYPE_I8, N, &saturated) && !memcmp(got8, want8, N) && saturated == 5,
          "i8: %lld saturated", (long long)saturated);
    CHECK(!tensor_store_array(t, got32, TENSOR_TYPE_I32, N, &saturated) && !memcmp(got32, want32, sizeof want32) &&
              saturated == 3,
          "i32: %lld saturated", (long long)saturated);
    CHECK(!tensor_store_array(t, got64, TENSOR_TYPE_I64, N, &saturated) && saturated == 2 && got64[7] == INT64_MAX &&
              got64[8] == INT64_MIN && got64[9] == (int64_t)1 << 31,
          "i64: %lld saturated", (long long)saturated);
    CHECK(!tensor_store_array(t, gotu, TENSOR_TYPE_U64, N, &saturated) && saturated == 5 && gotu[7] == UINT64_MAX &&
              gotu[8] == 0 && gotu[2] == 0,
          "u64: %lld saturated", (long long)saturated);
    CHECK(!tensor_load_f32(t, (float[N]){NAN, INFINITY, -INFINITY}, N) &&
              !tensor_store_array(t, got32, TENSOR_TYPE_I32, N, &saturated) && saturated == 3 && got32[0] == 0 &&
              got32[1] == INT32_MAX && got32[2] == INT32_MIN,
          "NaN: %lld saturated", (long long)saturated);
    CHECK(tensor_store_array(t, got32, TENSOR_TYPE_I32, N, NULL) == TENSOR_E_ARGUMENT &&
              strstr(tensor_error(), "value 0 is nan"),
          "%s", tensor_error());
    CHECK(tensor_store_array(t, got32, (tensor_type)99, N, NULL) == TENSOR_E_ARGUMENT, "type 99");
    CHECK(tensor_load_array(t, got32, (tensor_type)0, N) == TENSOR_E_ARGUMENT, "type 0");
    CHECK(tensor_load_array(t, got32, TENSOR_TYPE_I32, N + 1) == TENSOR_E_SHAPE, "count");
    CHECK(tensor_load_array(t, NULL, TENSOR_TYPE_I32, N) == TENSOR_E_ARGUMENT, "NULL");
    CHECK(tensor_load_array(NULL, got32, TENSOR_TYPE_I32, N) == TENSOR_E_ARGUMENT, "NULL");
    tensor_free(t);
}

/* --- floats of 16 bits -------------------------------------------------------------------------------------------- */

/* The value of a word of binary16, from its fields. */
static double half_value(uint16_t w) {
    const int exponent = w >> 10 & 31, fraction = w & 1023;
    const double v = exponent == 31 ? (fraction ? NAN : INFINITY)
                     : exponent     ? ldexp(1024 + fraction, exponent - 25)
                                    : ldexp(fraction, -24);
    return w >> 15 ? -v : v;
}

static void check_halves(void) {
    enum { N = 65536 };
    static uint16_t words[N], back[N];
    static double got[N];
    for (int i = 0; i < N; i++)
        words[i] = (uint16_t)i;
    tensor *t = tensor_new(FMT_FP32, TENSOR_SHAPE(N));
    CHECK(!tensor_load_array(t, words, TENSOR_TYPE_F16, N) && !tensor_store_f64(t, got, N) &&
              !tensor_store_array(t, back, TENSOR_TYPE_F16, N, NULL),
          "%s", tensor_error());
    for (int i = 0; i < N; i++) {
        const double want = half_value((uint16_t)i);
        CHECK(want != want ? got[i] != got[i] : got[i] == want, "half 0x%04x is %a, expected %a", i, got[i], want);
        CHECK(want != want ? (back[i] & 0x7fff) > 0x7c00 : back[i] == i, "half 0x%04x comes back as 0x%04x", i,
              back[i]);
    }
    /* rounded once from the number, not by way of binary32: a dfp16 number that binary32 cannot represent stands for
     * doubles */
    static float odd[3] = {1 + 0x1p-11f, 1 + 0x1p-11f + 0x1p-23f, 65520.0f};
    tensor *s = tensor_new(FMT_FP32, TENSOR_SHAPE(3));
    CHECK(!tensor_load_f32(s, odd, 3) && !tensor_store_array(s, back, TENSOR_TYPE_F16, 3, NULL) && back[0] == 0x3c00 &&
              back[1] == 0x3c01 && back[2] == 0x7c00,
          "0x%04x 0x%04x 0x%04x", back[0], back[1], back[2]);
    CHECK(!tensor_store_array(s, back, TENSOR_TYPE_BF16, 3, NULL) && back[0] == 0x3f80 && back[2] == 0x4780,
          "bf16 0x%04x 0x%04x", back[0], back[2]);
    tensor_free(s);
    tensor_free(t);
}

/* --- fills -------------------------------------------------------------------------------------------------------- */

/* The four words of (key, counter, number). */
static void words_of(uint64_t key, uint64_t counter, uint64_t number, uint32_t word[4]) {
    const uint32_t c[4] = {(uint32_t)number, (uint32_t)(number >> 32), (uint32_t)counter, (uint32_t)(counter >> 32)},
                   k[2] = {(uint32_t)key, (uint32_t)(key >> 32)};
    witness_philox(c, k, word);
}

/* The normal number of an element, by long doubles and the C library. */
static long double witness_normal(uint64_t key, uint64_t counter, int64_t element) {
    for (uint64_t attempt = 0;; attempt++) {
        uint32_t word[4];
        words_of(key, counter, attempt << 40 | (uint64_t)element, word);
        const long double u = ldexpl((long double)(((uint64_t)word[0] << 32 | word[1]) >> 11) + 0.5L, -52) - 1,
                          v = ldexpl((long double)(((uint64_t)word[2] << 32 | word[3]) >> 11) + 0.5L, -52) - 1,
                          s = u * u + v * v;
        if (s < 1)
            return u * sqrtl(-2 * logl(s) / s);
    }
}

static void check_fills(tensor_format f) {
    enum { N = 5001 };
    static double v[N];
    static struct held h;
    h.t = tensor_new(f, TENSOR_SHAPE(N));
    const uint64_t key = check_random(&draws), counter = check_random(&draws);
    CHECK(!tensor_fill(h.t, -3.25), "%s", tensor_error());
    hold(&h);
    for (int i = 0; i < N; i++)
        CHECK(h.v[i] == -3.25, "%s constant %g", tensor_format_name(f), h.v[i]);
    CHECK(!tensor_fill_uniform(h.t, -0.5, 2, key, counter), "%s", tensor_error());
    hold(&h);
    double sum = 0, squares = 0;
    for (int i = 0; i < N; i++) {
        uint32_t word[4];
        words_of(key, counter, (uint64_t)i, word);
        const double want = -0.5 + 2.5 * ldexp((double)(((uint64_t)word[0] << 32 | word[1]) >> 11), -53);
        v[i] = want;
        CHECK(near_to(&h, i, want, 0) && h.v[i] >= -0.5 && h.v[i] <= 2, "%s uniform %d: %a, expected %a",
              tensor_format_name(f), i, h.v[i], want);
        sum += want;
    }
    CHECK(fabs(sum / N - 0.75) < 5 * 0.7217 / sqrt(N), "mean %g", sum / N); /* five deviations */
    /* the load of the same numbers has the same bits */
    tensor *same = tensor_new(f, TENSOR_SHAPE(N));
    CHECK(!tensor_load_f64(same, v, N) && tensor_exponent(same) == tensor_exponent(h.t) &&
              !memcmp(tensor_const_data(same), tensor_const_data(h.t), N * tensor_format_bytes(f)),
          "%s: a fill is not the load of its numbers", tensor_format_name(f));
    tensor_free(same);
    CHECK(!tensor_fill_normal(h.t, 1, 0.125, key, counter), "%s", tensor_error());
    hold(&h);
    sum = 0;
    for (int i = 0; i < N; i++) {
        const long double z = witness_normal(key, counter, i), want = 1 + 0.125L * z;
        CHECK(near_to(&h, i, want, 0x1p-50L), "%s normal %d: %a, expected %La", tensor_format_name(f), i, h.v[i], want);
        sum += (double)z;
        squares += (double)(z * z);
    }
    CHECK(fabs(sum / N) < 5 / sqrt(N) && fabs(squares / N - 1) < 5 * sqrt(2.0 / N), "mean %g, mean square %g", sum / N,
          squares / N);
    tensor_free(h.t);
    h.t = NULL;
}

static void check_fill_errors(void) {
    tensor *t = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(3)), *u = tensor_new(FMT_U8, TENSOR_SHAPE(3)),
           *p = tensor_new(FMT_FP32, TENSOR_SHAPE(3));
    CHECK(tensor_fill(NULL, 1) == TENSOR_E_ARGUMENT && tensor_fill(u, 1) == TENSOR_E_FORMAT, "%s", tensor_error());
    CHECK(tensor_fill(t, NAN) == TENSOR_E_ARGUMENT && strstr(tensor_error(), "value 0 is nan"), "%s", tensor_error());
    CHECK(!tensor_fill(p, INFINITY), "%s", tensor_error());
    CHECK(tensor_fill_uniform(t, 1, -1, 0, 0) == TENSOR_E_ARGUMENT && strstr(tensor_error(), "low is 1"), "%s",
          tensor_error());
    CHECK(tensor_fill_uniform(t, -1e308, 1e308, 0, 0) == TENSOR_E_ARGUMENT, "an infinite distance");
    CHECK(tensor_fill_uniform(t, 0, INFINITY, 0, 0) == TENSOR_E_ARGUMENT, "high");
    CHECK(tensor_fill_normal(t, 0, -1, 0, 0) == TENSOR_E_ARGUMENT && strstr(tensor_error(), "deviation is -1"), "%s",
          tensor_error());
    tensor_free(t);
    tensor_free(u);
    tensor_free(p);
}

/* A wide part has the number at its width, and the elements are its rounding. */
static void check_wide_part(tensor_format f) {
    double wide[1];
    tensor *t = tensor_new(f, TENSOR_SHAPE(1));
    CHECK(!tensor_keep_wide(t) && !tensor_load_array(t, (int64_t[]){((int64_t)1 << 62) + 1}, TENSOR_TYPE_I64, 1) &&
              !tensor_store_wide_f64(t, wide, 1),
          "%s", tensor_error());
    CHECK(f == FMT_FLEX16_5 || f == FMT_FP16 || wide[0] == 0x1p62, "%s wide %a", tensor_format_name(f), wide[0]);
    CHECK(!tensor_fill(t, 1.0 / 3) && !tensor_store_wide_f64(t, wide, 1) && fabs(wide[0] - 1.0 / 3) < 0x1p-25,
          "%s wide %a", tensor_format_name(f), wide[0]);
    tensor_free(t);
}

int main(int argc, char **argv) {
    draws = argc > 1 ? strtoull(argv[1], NULL, 0) : 20261123;
    printf("seed %llu\n", (unsigned long long)draws);
    for (int k = 0; k < 5; k++) {
        check_wide_integers(all_formats[k], true);
        check_wide_integers(all_formats[k], false);
        check_fills(all_formats[k]);
        check_wide_part(all_formats[k]);
    }
    check_narrow();
    check_stores();
    check_halves();
    check_fill_errors();
    return check_summary();
}
