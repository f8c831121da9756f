/* mixed_witness.h - sums of products whose operands and result are of different formats, by hand: exact numbers
 * (exact_number.h) for shared exponents, a chain of fused multiply-adds for floats, rounded once by the definition of
 * the result's format; bits, exponent and statistics are compared with those of a write, on every instruction set. */
#ifndef FL_MIXED_WITNESS_H
#define FL_MIXED_WITNESS_H

#include "check.h"
#include "exact_number.h"
#include "flexlab/autoflex.h"
#include "flexlab/tensor.h"
#include "philox_witness.h"

static uint64_t seed;

static int64_t random_between(int64_t low, int64_t high) {
    return low + (int64_t)(check_random(&seed) % (uint64_t)(high - low + 1));
}

static bool is_shared(tensor_format f) {
    return f == FMT_FLEX16_5 || f == FMT_DFP16;
}

static const tensor_format all_formats[] = {FMT_FP32, FMT_FP16, FMT_BF16, FMT_FLEX16_5, FMT_DFP16};
enum { FORMATS = 5 };

/* --- values of elements ------------------------------------------------------------------------------------------- */

static double float_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return (double)x;
}

/* Decodes the fields of the word. */
static double half_value(uint16_t h) {
    const int exponent = h >> 10 & 31, fraction = h & 1023;
    const double size = exponent == 31 ? (fraction ? (double)NAN : (double)INFINITY)
                        : exponent     ? ldexp(1024 + fraction, exponent - 25)
                                       : ldexp(fraction, -24);
    return h >> 15 ? -size : size;
}

static double value_at(const tensor *t, int64_t i) {
    const uint16_t *word = tensor_const_data(t);
    switch (tensor_format_of(t)) {
    case FMT_FP32:
        return (double)((const float *)tensor_const_data(t))[i];
    case FMT_FP16:
        return half_value(word[i]);
    case FMT_BF16:
        return float_bits((uint32_t)word[i] << 16);
    default:
        return ldexp(((const int16_t *)tensor_const_data(t))[i], -tensor_exponent(t));
    }
}

/* A finite element, exactly. */
static struct number number_at(const tensor *t, int64_t i) {
    return is_shared(tensor_format_of(t)) ? number_of(((const int16_t *)tensor_const_data(t))[i], tensor_exponent(t))
                                          : number_of_double(value_at(t, i));
}

/* --- a result before it is rounded -------------------------------------------------------------------------------- */

struct result {
    double special; /* NaN or infinite: then that is the result; else 0 */
    struct number x;
    bool minus_zero;
};

static struct result result_of(double x) {
    if (!isfinite(x))
        return (struct result){.special = x};
    return (struct result){.x = number_of_double(x), .minus_zero = x == 0 && signbit(x)};
}

/* One term: a[pair.a] * b[pair.b] in this order; below zero: a zero. */
struct pair {
    int64_t a, b;
};

struct addends {
    const tensor *bias, *residual;
    bool relu;
};

static inline struct result exact_result(const tensor *a, const tensor *b, const struct pair *pairs, int64_t terms,
                                         const struct addends *with, int64_t i) {
    const int16_t *ma = tensor_const_data(a), *mb = tensor_const_data(b);
    int64_t sum = 0;
    for (int64_t j = 0; j < terms; j++)
        sum += (pairs[j].a < 0 ? 0 : (int64_t)ma[pairs[j].a]) * (pairs[j].b < 0 ? 0 : mb[pairs[j].b]);
    struct result r = {.x = number_of(sum, tensor_exponent(a) + tensor_exponent(b))};
    const int64_t column = with->bias ? i % tensor_count(with->bias) : 0;
    const double bias = with->bias ? value_at(with->bias, column) : 0,
                 residual = with->residual ? value_at(with->residual, i) : 0;
    if (!isfinite(bias) || !isfinite(residual)) {
        r.special = bias + residual;
        return with->relu && r.special < 0 ? result_of(0) : r;
    }
    if (with->bias)
        r.x = number_add(r.x, number_at(with->bias, column));
    if (with->residual)
        r.x = number_add(r.x, number_at(with->residual, i));
    return with->relu && r.x.negative ? result_of(0) : r;
}

static inline struct result float_result(const tensor *a, const tensor *b, const struct pair *pairs, int64_t terms,
                                         const struct addends *with, int64_t i) {
    float total = 0, chain = 0;
    for (int64_t j = 0; j < terms; j++) {
        chain = fmaf(pairs[j].a < 0 ? 0.0f : (float)value_at(a, pairs[j].a),
                     pairs[j].b < 0 ? 0.0f : (float)value_at(b, pairs[j].b), chain);
        if (j % 512 == 511 || j == terms - 1) {
            total = j < 512 ? chain : total + chain;
            chain = 0;
        }
    }
    if (with->bias)
        total += (float)value_at(with->bias, i % tensor_count(with->bias));
    if (with->residual)
        total += (float)value_at(with->residual, i);
    return result_of((double)(with->relu && total <= 0 ? 0.0f : total));
}

/* --- rounding ----------------------------------------------------------------------------------------------------- */

struct rounding {
    tensor_rounding mode;
    uint64_t seed, write;
};

/* The number of digits of a normal number, the exponent of the last place of subnormal ones, the exponent of the power
 * of two above the largest number. */
struct float_kind {
    int digits, least, top;
};

static struct float_kind kind_of(tensor_format f) {
    return f == FMT_FP32   ? (struct float_kind){24, -149, 128}
           : f == FMT_FP16 ? (struct float_kind){11, -24, 16}
                           : (struct float_kind){8, -133, 128};
}

/* floor(log2 |x|) */
static int exponent_of(const struct number *x) {
    int top = 32 * NUMBER_LIMBS - 1;
    while (top >= 0 && !number_bit(x, top))
        top--;
    return top - NUMBER_UNIT;
}

static double rounded_float(struct number x, tensor_format f, const struct rounding *how, int64_t i) {
    const struct float_kind kind = kind_of(f);
    if (number_is_zero(&x))
        return 0;
    const int floor_log2 = exponent_of(&x), normal = floor_log2 - kind.digits + 1,
              place = normal > kind.least ? normal : kind.least;
    int64_t steps;
    if (how->mode == TENSOR_ROUND_STOCHASTIC)
        steps = number_stochastic(&x, -place, witness_draw(how->seed, how->write, i));
    else if (how->mode == TENSOR_ROUND_TRUNCATE)
        steps = number_bits_from(&x, NUMBER_UNIT + place) * (x.negative ? -1 : 1);
    else
        steps = number_nearest(&x, -place);
    const double y = ldexp((double)steps, place);
    if (fabs(y) >= ldexp(1, kind.top))
        return how->mode == TENSOR_ROUND_TRUNCATE
                   ? copysign(ldexp(ldexp(1, kind.digits) - 1, kind.top - kind.digits), y)
                   : copysign((double)INFINITY, y);
    return steps ? y : x.negative ? -0.0 : 0.0;
}

/* The expected result of a write: element i, and its part in the statistics. `binary32`: the statistics are of the
 * result in binary32. */
static double expected(const struct result *r, tensor_format f, int e, const struct rounding *how, int64_t i,
                       tensor_stats *stats) {
    const bool shared = is_shared(f), zero = number_is_zero(&r->x);
    if (r->special != 0) { /* NaN too */
        stats->nonfinite++;
        stats->saturated += shared && isinf(r->special) != 0;
        if (!shared && isinf(r->special))
            stats->maximum = (double)INFINITY;
        return !shared ? r->special : isinf(r->special) ? copysign(ldexp(32767, -e), r->special) : 0;
    }
    const double size = number_double(&r->x);
    stats->maximum = size > stats->maximum ? size : stats->maximum;
    if (!shared) {
        const double y = zero && r->minus_zero ? -0.0 : rounded_float(r->x, f, how, i);
        stats->saturated += isinf(y) != 0;
        stats->nonfinite += isinf(y) != 0;
        stats->flushed += !zero && y == 0;
        return y;
    }
    int64_t m = how->mode == TENSOR_ROUND_STOCHASTIC
                    ? number_stochastic(&r->x, e, witness_draw(how->seed, how->write, i))
                    : number_nearest(&r->x, e);
    stats->flushed += !zero && m == 0;
    if (m > 32767 || m < -32767) {
        stats->saturated++;
        m = m < 0 ? -32767 : 32767;
    }
    const int32_t gamma = (int32_t)(m < 0 ? -m : m);
    stats->gamma = gamma > stats->gamma ? gamma : stats->gamma;
    return ldexp((double)m, -e);
}

/* --- operands ----------------------------------------------------------------------------------------------------- */

static uint32_t random_float_word(int low, int high, int digits) {
    const uint32_t fraction = (uint32_t)check_random(&seed) & 0x7fffff & ~0u << (24 - digits);
    return (uint32_t)(random_between(0, 1) << 31) | (uint32_t)random_between(low, high) << 23 | fraction;
}

enum fill { FILL_USUAL, FILL_FAR, FILL_SPECIAL, FILLS };

/* Half of all operands of shared exponents are at an end of the range, or near it. */
static inline tensor *random_tensor(tensor_format f, int ndim, const int64_t *shape, enum fill fill) {
    tensor *t = tensor_new(f, ndim, shape);
    if (!t) {
        printf("no memory for the test\n");
        exit(1);
    }
    void *data = tensor_data(t);
    const int64_t count = tensor_count(t);
    const int kind = (int)random_between(0, 4);
    for (int64_t i = 0; i < count; i++) {
        const bool special = fill == FILL_SPECIAL && random_between(0, 40) == 0;
        uint32_t word =
            random_float_word(fill == FILL_FAR ? 1 : 117, fill == FILL_FAR ? 254 : 130, f == FMT_BF16 ? 8 : 24);
        if (special)
            word = (word & 0x80000000u) | (random_between(0, 2) ? 0x7f800000u : 0x7fc00000u);
        if (random_between(0, 20) == 0)
            word &= 0x80000000u;
        if (f == FMT_FP32)
            ((uint32_t *)data)[i] = word;
        else if (f == FMT_BF16)
            ((uint16_t *)data)[i] = (uint16_t)(word >> 16);
        else if (f == FMT_FP16)
            ((uint16_t *)data)[i] =
                (uint16_t)((word >> 16 & 0x8000) |
                           (special ? 0x7c00 | (word >> 13 & 0x200)
                                    : (uint32_t)random_between(fill == FILL_FAR ? 0 : 8 << 10,
                                                               fill == FILL_FAR ? 0x7bff : 16 << 10)));
        else
            ((int16_t *)data)[i] = (int16_t)(kind == 0   ? random_between(-9, 9)
                                             : kind == 1 ? (random_between(0, 1) ? 32767 : -32767)
                                                         : random_between(-32767, 32767));
    }
    if (is_shared(f)) {
        const int low = f == FMT_DFP16 ? -128 : 0, high = f == FMT_DFP16 ? 127 : 31;
        tensor_declare_exponent(t, (int)(fill == FILL_FAR ? (random_between(0, 1) ? low + random_between(0, 16)
                                                                                  : high - random_between(0, 16))
                                                          : random_between(8, 20)));
    }
    return t;
}

/* --- a write ------------------------------------------------------------------------------------------------------ */

static bool same_value(double x, double y) {
    return x != x ? y != y : x == y && !signbit(x) == !signbit(y);
}

/* Compares y with the expected write, `before` being the earlier state of the exponent. */
static inline void check_write(const char *what, const tensor *y, const struct result *results,
                               const struct autoflex *before, const struct rounding *how) {
    const tensor_format f = tensor_format_of(y);
    const int64_t count = tensor_count(y);
    tensor_stats told, want = {.elements = count, .writes = 1};
    tensor_statistics(&told, NULL, y);
    if (is_shared(f)) { /* the exponent by the rules, from the maximum of the results */
        struct autoflex state = *before;
        double maximum = 0;
        for (int64_t i = 0; i < count; i++)
            if (results[i].special == 0)
                maximum = fmax(maximum, number_double(&results[i].x));
        if (autoflex_needs_maximum(state.predictor))
            autoflex_fit(&state, maximum);
        else if (!state.initialised)
            autoflex_initialise(&state, maximum);
        else
            autoflex_adjust(&state);
        CHECK(state.e == tensor_exponent(y), "%s: exponent %d, expected %d (maximum %g)", what, tensor_exponent(y),
              state.e, maximum);
    }
    int64_t wrong = -1;
    double is = 0, wanted = 0;
    for (int64_t i = 0; i < count; i++) {
        const double w = expected(&results[i], f, tensor_exponent(y), how, i, &want), v = value_at(y, i);
        if (!same_value(is_shared(f) ? v + 0.0 : v, is_shared(f) ? w + 0.0 : w) && wrong < 0) {
            wrong = i;
            is = v;
            wanted = w;
        }
    }
    CHECK(wrong < 0, "%s: element %lld is %a, expected %a", what, (long long)wrong, is, wanted);
    CHECK(told.maximum == want.maximum, "%s: maximum %a, expected %a", what, told.maximum, want.maximum);
    CHECK(told.saturated == want.saturated, "%s: %lld saturated, expected %lld", what, (long long)told.saturated,
          (long long)want.saturated);
    CHECK(told.flushed == want.flushed, "%s: %lld flushed, expected %lld", what, (long long)told.flushed,
          (long long)want.flushed);
    CHECK(told.nonfinite == want.nonfinite, "%s: %lld nonfinite, expected %lld", what, (long long)told.nonfinite,
          (long long)want.nonfinite);
    CHECK(told.gamma == want.gamma, "%s: gamma %d, expected %d", what, told.gamma, want.gamma);
}

#endif
