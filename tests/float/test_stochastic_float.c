/* test_stochastic_float.c - stochastic rounding of fp16 and bf16, floor(f + draw / 2^32) steps above the number below
 * the result, on the reference and on every kernel row, against arithmetic in integers of 768 bits (exact_number.h) and
 * a generator of its own (philox_witness.h):
 *   - the codec, between each of the 65536 elements and the next: results anywhere, those that a draw takes to exactly
 *     the upper neighbour, and those that lack the least bit for it;
 *   - operations with exact results on operands of all bit patterns, subnormal ones, such as cancel and such as
 *     overflow, for elements that fill no vector, with all statistics;
 *   - sums and products whose last bits decide together with those of the draw;
 *   - products and means, which are rounded to binary32 or double before;
 *   - the mean of many draws is the value;
 *   - tensors: a draw for each write, fp32 refused. */
#include "check.h"
#include "core/table/format.h"
#include "exact_number.h"
#include "flexlab/tensor.h"
#include "philox_witness.h"
#include "flexlab/tensor_blocks.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

static uint64_t seed;

/* --- formats by hand ---------------------------------------------------------------------------------------------- */

struct layout {
    tensor_format id;
    int fraction, bias; /* bits of the fraction; of the exponent */
};
static const struct layout layouts[] = {{FMT_FP16, 10, 15}, {FMT_BF16, 7, 127}};

static int top_exponent(const struct layout *f) { /* of finite numbers */
    return f->bias;
}

static int least_exponent(const struct layout *f) { /* of normal numbers */
    return 1 - f->bias;
}

static double value_of(const struct layout *f, uint16_t h) {
    const int field = (h & 0x7fff) >> f->fraction, fraction = h & ((1 << f->fraction) - 1);
    const double sign = h >> 15 ? -1 : 1;
    if (field == 2 * f->bias + 1)
        return fraction ? (double)NAN : sign * INFINITY;
    return sign * ldexp(field ? fraction + (1 << f->fraction) : fraction, (field ? field : 1) - f->bias - f->fraction);
}

/* floor(log2 |x|) of x not zero. */
static int exponent_of(const struct number *x) {
    int top = 32 * NUMBER_LIMBS - 1;
    while (!number_bit(x, top))
        top--;
    return top - NUMBER_UNIT;
}

/* The numbers of the format are the multiples of one step in each binade, and in the range below the least normal. */
static double rounded(const struct layout *f, const struct number *x, uint32_t draw) {
    if (number_is_zero(x))
        return 0;
    int k = exponent_of(x);
    if (k < least_exponent(f))
        k = least_exponent(f);
    const int step = k - f->fraction;
    const double y = ldexp((double)number_stochastic(x, -step, draw), step);
    return fabs(y) >= ldexp(1, top_exponent(f) + 1) ? copysign(INFINITY, y) : y;
}

/* |x| rounded to nearest binary32. */
static double as_binary32(const struct number *x) {
    struct number size = *x;
    size.negative = false;
    if (number_is_zero(&size))
        return 0;
    const int k = exponent_of(&size), step = (k < -126 ? -126 : k) - 23;
    const double y = ldexp((double)number_nearest(&size, -step), step);
    return y >= 0x1p128 ? INFINITY : y;
}

/* The expected element: either an exact result, or the result of operands that are NaN and Inf. */
struct want {
    struct number exact;
    bool special;
    double result; /* special: NaN or Inf */
};

static struct want number_wanted(struct number x) {
    return (struct want){.exact = x};
}

/* Adds the statistics of one element of a write. */
static double expect(const struct layout *f, const struct want *w, uint32_t draw, struct fl_stats *stats) {
    const double y = w->special ? w->result : rounded(f, &w->exact, draw),
                 before = w->special ? fabs(w->result) : as_binary32(&w->exact);
    stats->nonfinite += !isfinite(y);
    stats->saturated += isinf(y) && isfinite(before);
    stats->flushed += y == 0 && before != 0;
    if (before > stats->maximum)
        stats->maximum = before;
    return y;
}

/* The sign of a zero counts if the result is not an exact zero. */
static bool agrees(const struct layout *f, const struct want *w, double want, uint16_t h) {
    const double got = value_of(f, h);
    if (want != want)
        return got != got;
    return got == want && (w->special || number_is_zero(&w->exact) || h >> 15 == w->exact.negative);
}

static void check_statistics(const char *label, const struct fl_stats *got, const struct fl_stats *want) {
    CHECK(got->maximum == want->maximum && got->saturated == want->saturated && got->flushed == want->flushed &&
              got->nonfinite == want->nonfinite,
          "%s: statistics %a %lld %lld %lld, want %a %lld %lld %lld", label, got->maximum, (long long)got->saturated,
          (long long)got->flushed, (long long)got->nonfinite, want->maximum, (long long)want->saturated,
          (long long)want->flushed, (long long)want->nonfinite);
}

static struct fl_rounding random_rounding(void) {
    return (struct fl_rounding){TENSOR_ROUND_STOCHASTIC, check_random(&seed), check_random(&seed)};
}

/* --- the codec ---------------------------------------------------------------------------------------------------- */

enum { ALL = 65536 };
enum place { ANYWHERE, JUST_UP, JUST_NOT, PLACES };

/* A double from element h to the next one above it in value, at 2^-40 of their distance: JUST_UP, the least that the
 * draw takes to the upper one; JUST_NOT, 2^-40 less. */
static double between(const struct layout *f, uint16_t h, enum place place, uint32_t draw) {
    const double low = value_of(f, h);
    if (!isfinite(low))
        return low;
    int k;
    (void)frexp(low, &k);
    k = low == 0 || k - 1 < least_exponent(f) ? least_exponent(f) : k - 1;
    double step = ldexp(1, k - f->fraction);
    if (low < 0 && low == -ldexp(1, k) && k > least_exponent(f))
        step /= 2; /* toward zero, neighbours of a power of two lie closer */
    uint64_t places = check_random(&seed) >> 24;
    if (place != ANYWHERE)
        places = ((uint64_t)1 << 40) - ((uint64_t)draw << 8) - (place == JUST_NOT);
    if (places >> 40)
        places = 0; /* a draw of zero never goes up */
    return low + step * ldexp((double)places, -40);
}

static void check_codec(const struct layout *f, enum place place) {
    static double values[ALL];
    static uint16_t got[ALL];
    const struct fl_format *format = fl_format_of(f->id);
    const struct fl_rounding how = random_rounding();
    struct fl_stats want_stats = {0}, stats = {0};
    for (int i = 0; i < ALL; i++)
        values[i] = between(f, (uint16_t)i, place, witness_draw(how.key, how.write, i));
    const struct fl_view out = {.data = got, .count = ALL};
    format->encode(format, &out, 0, ALL, values, true, &how, &stats);
    int bad = -1;
    double expected = 0;
    for (int i = 0; i < ALL; i++) {
        struct want w = {.special = !isfinite(values[i]), .result = values[i]};
        if (!w.special)
            w.exact = number_of_double(values[i]);
        const double y = expect(f, &w, witness_draw(how.key, how.write, i), &want_stats);
        if (!agrees(f, &w, y, got[i])) {
            bad = i;
            expected = y;
        }
    }
    CHECK(bad < 0, "%s place %d: %a becomes %a, want %a", format->name, (int)place, values[bad < 0 ? 0 : bad],
          value_of(f, got[bad < 0 ? 0 : bad]), expected);
    check_statistics(format->name, &stats, &want_stats);
}

/* --- operations --------------------------------------------------------------------------------------------------- */

enum { MOST = 40000 };
static uint16_t operands[3][MOST], results[MOST + 1];

enum style { ANY_BITS, CANCELLING, SUBNORMAL, OVERFLOWING, MIDDLE, HARD, INPUTS };

static uint16_t random_element(const struct layout *f, enum style style) {
    const uint64_t r = check_random(&seed);
    const uint16_t sign = (uint16_t)(r & 0x8000), fraction = (uint16_t)(r >> 16 & ((1u << f->fraction) - 1));
    int field = f->bias + (int)(r >> 32) % 4;
    if (style == ANY_BITS)
        return (uint16_t)r;
    if (style == SUBNORMAL)
        field = (int)(r >> 32 & 3);
    if (style == OVERFLOWING)
        field = 2 * f->bias - (int)(r >> 32 & 1);
    return (uint16_t)(sign | field << f->fraction | fraction);
}

static void fill(const struct layout *f, enum style style, int64_t n) {
    for (int k = 0; k < 3; k++)
        for (int64_t i = 0; i < n; i++)
            operands[k][i] = random_element(f, style);
    for (int64_t i = 0; style == CANCELLING && i < n; i++)
        operands[1][i] = (uint16_t)(operands[0][i] ^ 0x8000 ^ (check_random(&seed) & 3));
}

static struct number times(float a, double b) {
    return number_of_double((double)a * b); /* 24 and 11 bits: exact */
}

/* Operands whose results, cut to the 24 digits of a binary32, and the draws add up to ones, or nearly, in all positions
 * below the format's last: the digits further down decide. One element in 256 is of this kind, at the largest draw of
 * these: if kernels find a doubt, they compute a whole stretch in another way. */
static void make_hard(const struct layout *f, const struct fl_args *args, int64_t n) {
    const int places = 23 - f->fraction;
    const uint32_t ones = (1u << places) - 1;
    for (int64_t run = 0; run + 256 <= n; run += 256) {
        int64_t i = run;
        for (int64_t k = run; k < run + 256; k++)
            if (witness_draw(args->rounding.key, args->rounding.write, k) >
                witness_draw(args->rounding.key, args->rounding.write, i))
                i = k;
        const uint32_t draw = witness_draw(args->rounding.key, args->rounding.write, i);
        if (args->op != FL_OP_SCALE) { /* a sum: the difference of the draw to one step of a, cut to an element */
            const int field = f->bias + 9;
            operands[0][i] = (uint16_t)((operands[0][i] & 0x8000) | field << f->fraction | (operands[0][i] & 0x3f) | 1);
            int exponent;
            const double rest = frexp(ldexp(0x1p32 - draw, 9 - f->fraction - 32), &exponent),
                         digits = floor(ldexp(rest, f->fraction + 1));
            operands[1][i] = (uint16_t)((exponent - 2 + f->bias) * (1 << f->fraction) + (int)digits);
            operands[1][i] ^= args->op == FL_OP_SUB ? 0x8000 : 0;
            continue;
        }
        const uint16_t start = (uint16_t)check_random(&seed);
        for (uint32_t k = 0; k < ALL; k++) {
            const uint16_t h = (uint16_t)(start + k);
            const double v = args->p.map.alpha * value_of(f, h);
            int exponent;
            const double digits = ldexp(frexp(fabs(v), &exponent), f->fraction + 1);
            if (!isfinite(v) || exponent - 1 < least_exponent(f) || exponent - 1 > top_exponent(f))
                continue;
            const uint32_t below = (uint32_t)((digits - floor(digits)) * (ones + 1)),
                           drawn = (v < 0 ? ~draw : draw) >> (32 - places);
            if (((below + drawn) & ones) != ones)
                continue;
            operands[0][i] = h;
            break;
        }
    }
}

/* Result i of an operation on finite values. */
static struct number exact(const struct fl_args *args, double a, double b, double c) {
    switch ((int)args->op) {
    case FL_OP_ADD:
    case FL_OP_BIAS:
        return number_add(number_of_double(a), number_of_double(b));
    case FL_OP_ADD_RELU:
    case FL_OP_BIAS_RELU: {
        const struct number sum = number_add(number_of_double(a), number_of_double(b));
        return sum.negative ? (struct number){0} : sum;
    }
    case FL_OP_ADD_RELU_GRAD:
        return c > 0 ? number_add(number_of_double(a), number_of_double(b)) : (struct number){0};
    case FL_OP_SUB:
        return number_add(number_of_double(a), number_of_double(-b));
    case FL_OP_MUL:
        return number_of_double(a * b);
    case FL_OP_SQUARE:
        return number_of_double(a * a);
    case FL_OP_SCALE:
        return times(args->p.map.alpha, a);
    case FL_OP_ADD_SCALED:
        return number_add(number_of_double(a), times(args->p.map.alpha, b));
    case FL_OP_SGD_UPDATE:
        return number_add(number_of_double(a), times(-args->p.sgd.rate, b));
    case FL_OP_SGD_MOMENTUM:
        return number_add(number_add(times(args->p.sgd.momentum, a), number_of_double(b)),
                          times(args->p.sgd.weight_decay, c));
    case FL_OP_RELU:
        return a > 0 ? number_of_double(a) : (struct number){0};
    default: /* avgpool_global_grad of four positions */
        return number_of_double(a / 4);
    }
}

/* The result of an operand that is NaN or Inf. */
static double special(const struct fl_args *args, double a, double b, double c) {
    const double sum = a + b;
    switch ((int)args->op) {
    case FL_OP_ADD:
    case FL_OP_BIAS:
        return sum;
    case FL_OP_ADD_RELU:
    case FL_OP_BIAS_RELU:
        return sum > 0 || sum != sum ? sum : 0;
    case FL_OP_ADD_RELU_GRAD:
        return c > 0 ? sum : 0;
    case FL_OP_SUB:
        return a - b;
    case FL_OP_MUL:
        return a * b;
    case FL_OP_SQUARE:
        return a * a;
    case FL_OP_SCALE:
        return args->p.map.alpha * a;
    case FL_OP_ADD_SCALED:
        return a + args->p.map.alpha * b;
    case FL_OP_SGD_UPDATE:
        return a - args->p.sgd.rate * b;
    case FL_OP_SGD_MOMENTUM:
        return args->p.sgd.momentum * a + b + args->p.sgd.weight_decay * c;
    case FL_OP_RELU:
        return a > 0 || a != a ? a : 0;
    default:
        return a / 4;
    }
}

static int operands_of(enum fl_op op) {
    switch ((int)op) {
    case FL_OP_RELU:
    case FL_OP_SQUARE:
    case FL_OP_SCALE:
    case FL_OP_AVGPOOL_GLOBAL_GRAD:
        return 1;
    case FL_OP_SGD_MOMENTUM:
    case FL_OP_ADD_RELU_GRAD:
        return 3;
    default:
        return 2;
    }
}

/* The positions in the operands of result i. */
static void places_of(const struct fl_args *args, int64_t i, int64_t at[3]) {
    at[0] = at[1] = at[2] = i;
    if (args->op == FL_OP_BIAS || args->op == FL_OP_BIAS_RELU)
        at[1] = i % args->p.rows.n;
    if (args->op == FL_OP_AVGPOOL_GLOBAL_GRAD)
        at[0] = i / (4 * args->p.pooling.windows.c) * args->p.pooling.windows.c + i % args->p.pooling.windows.c;
}

static struct want want_of(const struct layout *f, const struct fl_args *args, int64_t i) {
    const int count = operands_of(args->op);
    double x[3] = {0};
    int64_t at[3];
    places_of(args, i, at);
    struct want w = {0};
    for (int k = 0; k < count; k++) {
        x[k] = value_of(f, operands[k][at[k]]);
        w.special = w.special || !isfinite(x[k]);
    }
    if (!w.special)
        return number_wanted(exact(args, x[0], x[1], x[2]));
    w.result = special(args, x[0], x[1], x[2]);
    if (isfinite(w.result)) /* a ReLU or a mask may have dropped it */
        return number_wanted(number_of_double(w.result));
    return w;
}

/* Checks the reference kernels and all other kernel sets. */
static void check_operation(const struct layout *f, enum fl_op op, enum style style, int64_t n) {
    const struct fl_format *format = fl_format_of(f->id);
    const int64_t channels = 1 + (int64_t)(check_random(&seed) % 40);
    const bool bias = op == FL_OP_BIAS || op == FL_OP_BIAS_RELU, spread = op == FL_OP_AVGPOOL_GLOBAL_GRAD;
    if (bias || spread)
        n = n < 4 * channels ? 4 * channels : n - n % (4 * channels);
    fill(f, style, n);
    float scalar = (float)ldexp((double)(check_random(&seed) >> 40) - 0x1p23, -23);
    struct fl_args args = {
        .op = op, .format = format, .out = {.data = results, .count = n}, .rounding = random_rounding()};
    if (style == SUBNORMAL && check_random(&seed) % 2)
        scalar = ldexpf(scalar, -120); /* results far below the smallest number */
    if (op == FL_OP_SGD_MOMENTUM)
        args.p.sgd = (struct fl_sgd){.momentum = scalar, .weight_decay = 1e-4f};
    else if (op == FL_OP_SGD_UPDATE)
        args.p.sgd = (struct fl_sgd){.rate = scalar};
    else
        args.p.map = (struct fl_map){scalar, 1e-4f};
    if (style == HARD && (op == FL_OP_SCALE || op == FL_OP_ADD || op == FL_OP_SUB || op == FL_OP_ADD_RELU))
        make_hard(f, &args, n);
    if (bias)
        args.p.rows = (struct fl_row_sizes){.m = n / channels, .n = channels};
    if (spread)
        args.p.pooling.windows =
            (struct fl_windows){.batch = n / 4 / channels, .h = 2, .w = 2, .c = channels, .p = 1, .q = 1};
    const int64_t counts[] = {spread ? n / 4 : n, bias ? channels : n, n};
    for (int k = 0; k < operands_of(op); k++)
        args.in[k] = (struct fl_view){.data = operands[k], .count = counts[k]};
    static double want[MOST];
    static struct want of[MOST];
    struct fl_stats want_stats = {0};
    for (int64_t i = 0; i < n; i++) {
        of[i] = want_of(f, &args, i);
        want[i] = expect(f, &of[i], witness_draw(args.rounding.key, args.rounding.write, i), &want_stats);
    }
    for (int backend = FL_REF; backend < FL_BACKENDS; backend++) {
        enum fl_backend chosen;
        struct fl_stats stats = {0};
        const fl_kernel kernel = fl_kernel_select(format, op, (enum fl_backend)backend, &chosen);
        if ((int)chosen != backend)
            continue;
        char label[96];
        snprintf(label, sizeof label, "%s.%s.%s style %d n %" PRId64 " key %" PRIx64, format->name, fl_op_name(op),
                 fl_backend_name(chosen), (int)style, n, args.rounding.key);
        args.stats = &stats;
        memset(results, 0x5b, sizeof results);
        CHECK(!kernel(&args), "%s failed", label);
        int64_t bad = -1;
        for (int64_t i = n - 1; i >= 0; i--)
            if (!agrees(f, &of[i], want[i], results[i]))
                bad = i;
        CHECK(bad < 0, "%s: element %" PRId64 " is %a, want %a", label, bad, value_of(f, results[bad < 0 ? 0 : bad]),
              want[bad < 0 ? 0 : bad]);
        CHECK(results[n] == 0x5b5b, "%s wrote past the end", label);
        check_statistics(label, &stats, &want_stats);
    }
}

/* --- sums of products: binary32 first ----------------------------------------------------------------------------- */

/* One product for each output, rounded to binary32: exact unless bf16 leaves its range. */
static void check_products(const struct layout *f, enum style style) {
    enum { M = 37, N = 41 };
    const struct fl_format *format = fl_format_of(f->id);
    fill(f, style, M > N ? M : N);
    struct fl_args args = {.op = FL_OP_MATMUL,
                           .format = format,
                           .in = {{.data = operands[0], .count = M}, {.data = operands[1], .count = N}},
                           .out = {.data = results, .count = M * N},
                           .p.product.matrices = {.m = M, .n = N, .k = 1},
                           .rounding = random_rounding()};
    for (int backend = FL_REF; backend < FL_BACKENDS; backend++) {
        enum fl_backend chosen;
        struct fl_stats stats = {0}, want_stats = {0};
        const fl_kernel kernel = fl_kernel_select(format, args.op, (enum fl_backend)backend, &chosen);
        if ((int)chosen != backend)
            continue;
        args.stats = &stats;
        CHECK(!kernel(&args), "matmul failed");
        int bad = -1;
        for (int i = 0; i < M * N; i++) {
            const double product = (double)(float)(value_of(f, operands[0][i / N]) * value_of(f, operands[1][i % N]));
            struct want w = {.special = !isfinite(product), .result = product};
            if (!w.special)
                w.exact = number_of_double(product);
            const double y = expect(f, &w, witness_draw(args.rounding.key, args.rounding.write, i), &want_stats);
            if (!agrees(f, &w, y, results[i]))
                bad = i;
        }
        CHECK(bad < 0, "%s.matmul.%s style %d: element %d is %a", format->name, fl_backend_name(chosen), (int)style,
              bad, value_of(f, results[bad < 0 ? 0 : bad]));
        check_statistics(fl_backend_name(chosen), &stats, &want_stats);
    }
}

/* --- no bias ------------------------------------------------------------------------------------------------------ */

/* The mean of n results of one value lies within 5 standard deviations of it, each result's being at most half a step;
 * so do the means of the elements at each position modulo 4, each of which has a word of the generator. */
static void check_unbiased(const struct layout *f, enum style style) {
    enum { N = MOST };
    const struct fl_format *format = fl_format_of(f->id);
    const uint16_t h = random_element(f, style);
    for (int i = 0; i < N; i++)
        operands[0][i] = h;
    const float alpha = (float)ldexp((double)(check_random(&seed) >> 40 | 1), -24);
    const double value = alpha * value_of(f, h);
    int k;
    (void)frexp(value, &k);
    const double step = ldexp(1, (k - 1 < least_exponent(f) ? least_exponent(f) : k - 1) - f->fraction);
    for (int backend = FL_REF; backend < FL_BACKENDS; backend++) {
        enum fl_backend chosen;
        struct fl_stats stats = {0};
        const struct fl_args args = {.op = FL_OP_SCALE,
                                     .format = format,
                                     .in = {{.data = operands[0], .count = N}},
                                     .out = {.data = results, .count = N},
                                     .p.map.alpha = alpha,
                                     .rounding = random_rounding(),
                                     .stats = &stats};
        const fl_kernel kernel = fl_kernel_select(format, args.op, (enum fl_backend)backend, &chosen);
        if ((int)chosen != backend)
            continue;
        CHECK(!kernel(&args), "scale failed");
        double sum[4] = {0};
        for (int i = 0; i < N; i++)
            sum[i % 4] += value_of(f, results[i]) / step;
        const double want = value / step, mean = (sum[0] + sum[1] + sum[2] + sum[3]) / N, bound = 5 * 0.5 / sqrt(N),
                     quarter = 5 * 0.5 / sqrt(N / 4);
        CHECK(fabs(mean - want) <= bound, "%s.%s: mean %g steps of %g, bound %g", format->name, fl_backend_name(chosen),
              mean, want, bound);
        for (int w = 0; w < 4; w++)
            CHECK(fabs(sum[w] / (N / 4) - want) <= quarter, "%s.%s: word %d, mean %g of %g, bound %g", format->name,
                  fl_backend_name(chosen), w, sum[w] / (N / 4), want, quarter);
    }
}

/* --- tensors ------------------------------------------------------------------------------------------------------ */

/* Each write has draws of its own; loads and conversions round to nearest, and so do updates of a wide part. */
static void check_tensors(const struct layout *f) {
    enum { N = 1000 };
    static double one[N], stored[2][N], values[N];
    for (int i = 0; i < N; i++) {
        one[i] = 1;
        values[i] = 1 + 0x1p-12;
    }
    tensor *w = tensor_new(f->id, TENSOR_SHAPE(N)), *v = tensor_new(f->id, TENSOR_SHAPE(N));
    CHECK(!tensor_set_rounding(w, TENSOR_ROUND_STOCHASTIC, 77), "%s", tensor_error());
    CHECK(!tensor_load_f64(w, values, N) && !tensor_store_f64(w, stored[0], N), "%s", tensor_error());
    for (int i = 0; i < N; i++)
        CHECK(stored[0][i] == 1, "loaded %g", stored[0][i]); /* to nearest */
    const double step = ldexp(1, -f->fraction);
    for (uint64_t write = 1; write <= 2; write++) {
        CHECK(!tensor_load_f64(w, one, N) && !tensor_load_f64(v, one, N), "%s", tensor_error());
        const uint64_t number = 2 * write; /* a load is a write too: loads are 0, 1 and 3 */
        CHECK(!tensor_sgd_update(w, v, (float)(-step / 4)) && !tensor_store_f64(w, stored[write - 1], N), "%s",
              tensor_error());
        for (int i = 0; i < N; i++) {
            const double want = witness_draw(77, number, i) >= 0xc0000000u ? 1 + step : 1;
            CHECK(stored[write - 1][i] == want, "write %" PRIu64 " element %d: %g, want %g", number, i,
                  stored[write - 1][i], want);
        }
    }
    CHECK(memcmp(stored[0], stored[1], sizeof stored[0]) != 0, "two writes have the same draws");
    CHECK(!tensor_keep_wide(w) && !tensor_load_f64(w, one, N), "%s", tensor_error());
    CHECK(!tensor_sgd_update(w, v, (float)(-step / 4)) && !tensor_store_f64(w, stored[0], N) &&
              !tensor_store_wide_f64(w, stored[1], N),
          "%s", tensor_error());
    for (int i = 0; i < N; i++)
        CHECK(stored[0][i] == 1 && stored[1][i] == 1 + step / 4, "wide: %g, %g", stored[0][i], stored[1][i]);
    tensor_free(w);
    tensor_free(v);
}

static void check_refused(void) {
    static const tensor_format formats[] = {FMT_FP32, FMT_F64, FMT_F32};
    for (int i = 0; i < 3; i++) {
        tensor *t = tensor_new(formats[i], TENSOR_SHAPE(3));
        CHECK(t && tensor_set_rounding(t, TENSOR_ROUND_STOCHASTIC, 1) == TENSOR_E_FORMAT &&
                  strstr(tensor_error(), "expected a format of 16 bits"),
              "%s", tensor_error());
        tensor_free(t);
    }
}

int main(int argc, char **argv) {
    const uint64_t start = argc > 1 ? strtoull(argv[1], NULL, 16) : 0x5f;
    static const enum fl_op ops[] = {FL_OP_ADD,        FL_OP_SUB,
                                     FL_OP_MUL,        FL_OP_SCALE,
                                     FL_OP_ADD_SCALED, FL_OP_RELU,
                                     FL_OP_ADD_RELU,   FL_OP_ADD_RELU_GRAD,
                                     FL_OP_SQUARE,     FL_OP_BIAS,
                                     FL_OP_BIAS_RELU,  FL_OP_SGD_MOMENTUM,
                                     FL_OP_SGD_UPDATE, FL_OP_AVGPOOL_GLOBAL_GRAD};
    static const int64_t counts[] = {1, 7, 33, 1023, 1057, 3000};
    seed = start;
    printf("seed %" PRIx64 "\n", start);
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        const struct layout *f = &layouts[i];
        for (int place = 0; place < PLACES; place++)
            check_codec(f, (enum place)place);
        for (size_t o = 0; o < sizeof ops / sizeof ops[0]; o++)
            for (int style = 0; style < INPUTS; style++)
                for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++)
                    check_operation(f, ops[o], (enum style)style, counts[c]);
        check_operation(f, FL_OP_ADD, MIDDLE, MOST - 1); /* several chunks for the threads */
        check_operation(f, FL_OP_SGD_UPDATE, ANY_BITS, MOST - 1);
        check_operation(f, FL_OP_SCALE, HARD, MOST - 1);
        check_operation(f, FL_OP_ADD, HARD, MOST - 1);
        check_operation(f, FL_OP_SUB, HARD, MOST - 1);
        check_operation(f, FL_OP_ADD_RELU, HARD, MOST - 1);
        for (int style = 0; style < INPUTS; style++) {
            check_products(f, (enum style)style);
            if (style == SUBNORMAL || style == MIDDLE)
                check_unbiased(f, (enum style)style);
        }
        check_tensors(f);
    }
    check_refused();
    return check_summary();
}
