/* Tensors quantised in blocks, against a witness of this test's own: scales by comparing exact doubles with powers of
 * two, as the rules are written, and elements by search in the table of all values of the element.
 *
 *     test_block_quantise            100,000 values under each rule and format
 *     test_block_quantise VALUES     as many values
 */
#include "blocks/block_kernels.h"
#include "blocks/block_quantise.h"
#include "check.h"
#include "core/arithmetic/philox.h"
#include "flexlab/tensor_backend.h"
#include <math.h>
#include <string.h>

static uint64_t state = 20261125;

static uint32_t draw(uint32_t below) {
    return (uint32_t)((check_random(&state) >> 32) * below >> 32);
}

static float float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* --- the witness: scales ------------------------------------------------------------------------------------------ */

/* The largest p with 2^p <= x, by comparison. */
static int floor_log2(double x) {
    int p = -1074;
    for (int step = 2048; step; step /= 2)
        if (p + step <= 1023 && ldexp(1, p + step) <= x)
            p += step;
    return p;
}

static int ceil_log2(double x) {
    const int p = floor_log2(x);
    return ldexp(1, p) < x ? p + 1 : p;
}

/* x rounded to `fraction` bits behind its leading one, to nearest even. */
static double rounded(double x, int fraction) {
    const double step = ldexp(1, floor_log2(x) - fraction), n = x / step;
    double whole = floor(n);
    if (n - whole > 0.5 || (n - whole == 0.5 && fmod(whole, 2) != 0))
        whole++;
    return whole * step;
}

/* Values 0 = value[0] < value[1] < ... of the magnitudes of an element. */
struct values {
    double value[256];
    int count, fraction;
};

/* From the text of the element alone. */
static struct values values_of(const char *element) {
    struct values v = {.count = 0};
    int exponent_bits, bits;
    if (sscanf(element, "int%d", &bits) == 1) {
        v.fraction = bits - 2;
        for (int i = 0; i < 1 << (bits - 1); i++)
            v.value[v.count++] = i / ldexp(1, bits - 2);
        return v;
    }
    if (sscanf(element, "e%dm%d", &exponent_bits, &v.fraction) != 2)
        abort();
    const int m = v.fraction, bias = (1 << (exponent_bits - 1)) - 1, width = 1 + exponent_bits + m;
    const bool only_nan = strstr(element, "fn") || m == 0;
    for (int exponent = 0; exponent < 1 << exponent_bits; exponent++)
        for (int fraction = 0; fraction < 1 << m; fraction++) {
            const bool top = exponent == (1 << exponent_bits) - 1, last = top && fraction == (1 << m) - 1;
            if (width > 6 && (only_nan ? last : top)) /* Inf and NaN */
                continue;
            v.value[v.count++] =
                exponent ? ldexp(1 + fraction / ldexp(1, m), exponent - bias) : ldexp(fraction / ldexp(1, m), 1 - bias);
        }
    return v;
}

static int scale_exponent(const struct values *v, const char *rule, double amax) {
    const double largest = v->value[v->count - 1];
    const int top = floor_log2(largest);
    int s;
    if (!strcmp(rule, "ceil"))
        s = ceil_log2(amax) - top;
    else if (!strcmp(rule, "even"))
        s = floor_log2(rounded(amax, v->fraction)) - top;
    else if (!strcmp(rule, "rceil"))
        for (s = -300; largest * ldexp(1, s) < amax; s++)
            ;
    else
        s = floor_log2(amax) - top;
    return s < -127 ? -127 : s > 127 ? 127 : s;
}

/* --- the witness: elements ---------------------------------------------------------------------------------------- */

struct element {
    double value;
    bool saturated;
};

/* x, not negative, in units of `scale`. Exact: comparisons are between products of at most 3 factors and 53 bits. */
static struct element nearest(const struct values *v, double x, double scale) {
    int code = v->count - 1;
    while (v->value[code] * scale > x)
        code--;
    const double low = v->value[code];
    const bool last = code == v->count - 1;
    /* beyond the largest there would be one more step of the same size */
    const double high = !last ? v->value[code + 1] : low + (v->fraction ? low - v->value[code - 1] : low);
    const double middle = (low + high) * scale, twice = 2 * x;
    /* a tie: to the even code, and without fraction bits to the larger of two powers of two */
    const bool odd = v->fraction ? code % 2 == 1 : code > 0, up = twice > middle || (twice == middle && odd);
    return (struct element){up && !last ? high : low, up && last};
}

/* Rounds up if fraction + draw / 2^32 >= 1, where x in units of `scale` is a double. */
static struct element by_draw(const struct values *v, double x, double scale, uint32_t drawn) {
    const double u = x / scale;
    int code = v->count - 1;
    while (v->value[code] > u)
        code--;
    const double low = v->value[code];
    const bool last = code == v->count - 1;
    const double high = !last ? v->value[code + 1] : low + (v->fraction ? low - v->value[code - 1] : low);
    const bool up = u >= low + (high - low) * ((4294967296.0 - drawn) / 4294967296.0);
    return (struct element){up && !last ? high : low, up && last};
}

/* --- tensors ------------------------------------------------------------------------------------------------------ */

/* How the values of a tensor are spread. */
enum spread { SIMILAR, WIDE, ANY, TIES, EXTREME, SPREADS };

static float draw_value(enum spread spread, int near) {
    const uint32_t sign = draw(2) << 31;
    switch ((int)spread) {
    case SIMILAR:
        return (float)((int)draw(2000001) - 1000000) * 1e-6f * ldexpf(1, near);
    case WIDE:
        return ldexpf((float)(int)(draw(1u << 24) + (1u << 23)) * (sign ? -1 : 1), near - 20 - (int)draw(30));
    case TIES: /* few bits: numbers of the grid, and halves between them */
        return ldexpf((float)(int)draw(1u << (1 + draw(9))) * (sign ? -1 : 1), near - (int)draw(8));
    case EXTREME: {
        static const uint32_t some[] = {0,          1,          2,          0x007fffff, 0x00800000, 0x00800001,
                                        0x7f7fffff, 0x7f7ffffe, 0x7f000000, 0x7effffff, 0x3f800000, 0x400000};
        return float_of(sign | some[draw(sizeof some / sizeof some[0])]);
    }
    default: {
        const uint32_t bits = (uint32_t)check_random(&state);
        return (bits & 0x7f800000) == 0x7f800000 ? float_of(bits & 0xbfffffff) : float_of(bits);
    }
    }
}

/* one_scale: with TIES, all rows have similar values, and a maximum that gives nvfp4 a power of two for its tensor
 * scale, so that values may be ties of elements. */
static void fill(float *x, int64_t outer, int64_t k, int64_t inner, enum spread spread, bool one_scale) {
    const int common = (int)draw(200) - 100;
    for (int64_t i = 0; i < outer * inner; i++) {
        const int near = spread == SIMILAR ? 0 : one_scale && spread == TIES ? common : (int)draw(240) - 120;
        const bool zero = !draw(50);
        for (int64_t j = 0; j < k; j++)
            x[i / inner * k * inner + j * inner + i % inner] = zero && draw(10) ? 0 : draw_value(spread, near);
    }
    if (one_scale && spread == TIES)
        x[draw((uint32_t)(outer * k * inner))] = ldexpf(2688, common - 2);
    else if (!draw(4))
        x[draw((uint32_t)(outer * k * inner))] = float_of(draw(2) ? 0x7f800000 : 0xffc00001);
}

/* The transform, on its own: y_i = sum over j of (-1)^popcount(i & j) sign_j x_j / 4, at distances 8, 4, 2, 1. */
static void transform(float *x, uint32_t signs) {
    for (int i = 0; i < 16; i++)
        x[i] = (signs >> i & 1 ? -x[i] : x[i]) / 4;
    for (int bit = 8; bit; bit /= 2) {
        float y[16];
        for (int i = 0; i < 16; i++)
            y[i] = i & bit ? x[i ^ bit] - x[i] : x[i] + x[i ^ bit];
        memcpy(x, y, sizeof y);
    }
}

struct problem {
    const struct fl_block_format *format;
    const char *rule;
    struct values values;
    int64_t outer, k, inner, padded; /* padded: values of a row after the transform */
    struct fl_block_how how;
    float *rows; /* transposed, transformed: [outer * inner, padded] */
};

/* Which values share the scale of block b of row r: rows first, first + step, ... */
static void group_of(const struct problem *p, int64_t r, int64_t *first, int64_t *step, int64_t *count) {
    *first = r, *step = 1, *count = 1;
    if (!p->format->block) {
        *step = p->how.channel_step ? p->how.channel_step : 1;
        *count = p->how.channel_length ? p->how.channel_length : 1;
        *first = r - r / *step % *count * *step;
        return;
    }
    if (!p->format->square)
        return;
    const int64_t apart = p->how.square_step ? p->how.square_step : 1,
                  length = p->how.square_length ? p->how.square_length : p->outer * p->inner / apart,
                  i = r / apart % length, begin = i - i % p->format->block;
    *first = r - (i - begin) * apart;
    *step = apart;
    *count = length - begin < p->format->block ? length - begin : p->format->block;
}

static double group_maximum(const struct problem *p, int64_t r, int64_t b, bool *is_nan) {
    int64_t first, step, count;
    double most = 0;
    const int64_t block = p->format->block, begin = b * block, end = block ? begin + block : p->padded;
    group_of(p, r, &first, &step, &count);
    *is_nan = false;
    for (int64_t i = 0; i < count; i++)
        for (int64_t j = begin; j < end && j < p->padded; j++) {
            const double x = fabs((double)p->rows[(first + i * step) * p->padded + j]);
            *is_nan |= !(x <= 0x1.fffffep127);
            most = x > most ? x : most;
        }
    return most;
}

static uint32_t drawn_for(const struct problem *p, int64_t r, int64_t j) {
    int64_t index = (r / p->inner * p->k + j) * p->inner + r % p->inner;
    if (j >= p->k)
        index = p->outer * p->k * p->inner + r * (p->padded - p->k) + j - p->k;
    return fl_philox_draw(p->how.key, p->how.write, index);
}

/* The tensor scale t is nearest to amax / 2688: amax lies between the middles to its neighbours. */
static bool is_tensor_scale(double amax, float t) {
    if (t == 0x1p-126f)
        return amax <= (t + (double)nextafterf(t, 1)) / 2 * 2688;
    return t > 0x1p-126f && amax >= (t + (double)nextafterf(t, 0)) / 2 * 2688 &&
           amax <= (t + (double)nextafterf(t, INFINITY)) / 2 * 2688;
}

static void check_rows(const struct problem *p, const struct fl_block_rows *out) {
    const struct fl_block_format *f = p->format;
    const struct values e4m3 = values_of("e4m3fn");
    const int64_t rows = p->outer * p->inner;
    int64_t saturated = 0, flushed = 0;
    int least = FL_BLOCK_NAN, most = FL_BLOCK_ZERO;
    bool has_nan = false;
    double whole = 0;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t b = 0; b < out->blocks; b++) {
            bool is_nan;
            const double amax = group_maximum(p, r, b, &is_nan);
            whole = !is_nan && amax > whole ? amax : whole;
        }
    if (f->e4m3_scales)
        CHECK(whole == 0 ? out->tensor_scale == 1 : is_tensor_scale(whole, out->tensor_scale), "%s amax=%a scale=%a",
              f->name, whole, (double)out->tensor_scale);
    else
        CHECK(out->tensor_scale == 1, "%s scale=%a", f->name, (double)out->tensor_scale);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t b = 0; b < out->blocks; b++) {
            bool is_nan;
            const double amax = group_maximum(p, r, b, &is_nan);
            const int64_t at = r * out->blocks + b;
            const int exponent = out->exponents[at], significand = out->significands ? out->significands[at] : 1;
            double scale = 0;
            if (is_nan) {
                CHECK(exponent == FL_BLOCK_NAN, "%s row %ld block %ld: exponent %d of NaN", f->name, (long)r, (long)b,
                      exponent);
                has_nan = true;
            } else if (f->e4m3_scales) {
                const double unit = 6.0 * out->tensor_scale, want = nearest(&e4m3, amax, unit).value;
                scale = significand * ldexp(1, exponent) * out->tensor_scale;
                CHECK(want == 0 ? exponent == FL_BLOCK_ZERO && significand == 0
                                : significand * ldexp(1, exponent) == want && significand <= 15,
                      "%s row %ld block %ld amax=%a tensor scale %a: scale %d * 2^%d, want %a", f->name, (long)r,
                      (long)b, amax, (double)out->tensor_scale, significand, exponent, want);
            } else if (amax == 0) {
                CHECK(exponent == FL_BLOCK_ZERO, "%s row %ld block %ld: exponent %d of zeros", f->name, (long)r,
                      (long)b, exponent);
            } else {
                const int want = scale_exponent(&p->values, p->rule, amax);
                CHECK(exponent == want, "%s row %ld block %ld amax=%a: exponent %d, want %d", f->name, (long)r, (long)b,
                      amax, exponent, want);
                scale = ldexp(1, exponent);
            }
            const bool nothing = exponent == FL_BLOCK_ZERO || exponent == FL_BLOCK_NAN;
            if (!nothing) {
                least = exponent < least ? exponent : least;
                most = exponent > most ? exponent : most;
            }
            for (int64_t j = 0; j < out->width; j++) {
                const int64_t i = at * out->width + j, column = b * out->block + j;
                const double got = out->bytes ? ldexp(out->bytes[i], f->element.unit) : (double)out->floats[i];
                const float x = column < p->padded ? p->rows[r * p->padded + column] : 0;
                struct element want = {0, false};
                if (!nothing && x != 0)
                    want = f->stochastic ? by_draw(&p->values, fabs((double)x), scale, drawn_for(p, r, column))
                                         : nearest(&p->values, fabs((double)x), scale);
                if (!nothing && !f->stochastic && !f->e4m3_scales) { /* the codec of elements agrees */
                    const uint32_t code = fl_element_encode(&f->element, (double)x / scale, NULL);
                    CHECK(fabs(fl_element_decode(&f->element, code)) == want.value,
                          "%s x=%a scale=%a: the codec has %a", f->name, (double)x, scale,
                          fl_element_decode(&f->element, code));
                }
                saturated += want.saturated;
                flushed += x != 0 && want.value == 0 && !is_nan;
                CHECK(got == (x < 0 ? -want.value : want.value), "%s row %ld element %ld x=%a scale=%a: %a, want %a",
                      f->name, (long)r, (long)column, (double)x, scale, got, want.value);
                if (column < p->padded) {
                    const double value = fl_block_value(out, r, column), same = got * scale;
                    CHECK(is_nan ? isnan(value) : value == same, "%s value %a, want %a", f->name, value, same);
                }
            }
        }
    CHECK(out->saturated == saturated && out->flushed == flushed, "%s: %ld saturated, want %ld; %ld flushed, want %ld",
          f->name, (long)out->saturated, (long)saturated, (long)out->flushed, (long)flushed);
    CHECK(out->least_exponent == least && out->most_exponent == most && out->has_nan == has_nan,
          "%s: exponents %d ... %d, want %d ... %d", f->name, out->least_exponent, out->most_exponent, least, most);
}

/* --- runs --------------------------------------------------------------------------------------------------------- */

static const char *const backends[] = {"portable", "avx2", "avx512bw"};

static void check_tensor(const char *text, const char *rule, int64_t outer, int64_t k, int64_t inner,
                         enum spread spread, int64_t square_length, int64_t square_step) {
    struct problem p = {.rule = rule, .outer = outer, .k = k, .inner = inner, .padded = k};
    if (fl_block_format_find(&p.format, text)) {
        CHECK(false, "%s: %s", text, tensor_error());
        return;
    }
    if (p.format->hadamard)
        p.padded = (k + 15) / 16 * 16;
    p.values = values_of(p.format->element.name);
    p.how = (struct fl_block_how){.key = check_random(&state),
                                  .write = draw(100),
                                  .signs = check_random(&state),
                                  .square_length = square_length,
                                  .square_step = square_step,
                                  .channel_length = square_length,
                                  .channel_step = square_step};
    const int64_t count = outer * k * inner, rows = outer * inner;
    float *x = malloc((size_t)count * sizeof *x);
    p.rows = calloc((size_t)(rows * p.padded), sizeof *p.rows);
    fill(x, outer, k, inner, spread, p.format->e4m3_scales && draw(2));
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t j = 0; j < k; j++)
            p.rows[r * p.padded + j] = x[(r / inner * k + j) * inner + r % inner];
        for (int64_t j = 0; j < p.padded && p.format->hadamard; j += 16)
            transform(p.rows + r * p.padded + j, fl_block_signs(p.how.signs));
    }
    struct fl_block_rows out;
    const size_t bytes = fl_block_place(&out, p.format, outer, k, inner, NULL);
    char *first = NULL;
    for (int i = 0; i < 3; i++) {
        char *memory = aligned_alloc(64, bytes + 64);
        memset(memory, 0xa5, bytes + 64);
        tensor_set_backend(backends[i]);
        tensor_set_threads(1 + (int)draw(3));
        fl_block_place(&out, p.format, outer, k, inner, memory);
        fl_block_quantise(p.format, x, outer, k, inner, &p.how, &out);
        for (int j = 0; j < 64; j++)
            CHECK(memory[bytes + (size_t)j] == (char)0xa5, "%s %s: byte %d behind the end", text, backends[i], j);
        if (!i) {
            check_rows(&p, &out);
            first = memory;
            continue;
        }
        CHECK(!memcmp(first, memory, bytes), "%s [%ld, %ld, %ld]: %s differs from portable", text, (long)outer, (long)k,
              (long)inner, backends[i]);
        check_rows(&p, &out);
        free(memory);
    }
    free(first);
    free(p.rows);
    free(x);
    tensor_set_backend(NULL);
    tensor_set_threads(0);
}

static int64_t divisor(int64_t n) {
    int64_t d = 1 + (int64_t)draw((uint32_t)n);
    while (n % d)
        d--;
    return d;
}

/* Random shapes, of about `values` values in all. */
static void check_format(const char *text, const char *rule, int64_t values) {
    const bool square = strstr(text, "square") || strstr(text, "channel");
    for (int64_t done = 0; done < values;) {
        int64_t outer = 1 + draw(6), k = 1 + draw(draw(4) ? 100 : 1500), inner = draw(2) ? 1 : 1 + draw(150);
        if (inner == 1)
            outer *= 1 + draw(40);
        const int64_t step = square && draw(2) ? divisor(outer * inner) : 0;
        const int64_t length = square && draw(2) ? divisor(outer * inner / (step ? step : 1)) : 0;
        check_tensor(text, rule, outer, k, inner, (enum spread)draw(SPREADS), length, step);
        done += outer * k * inner;
    }
}

static void check_transform(void) {
    for (int t = 0; t < 1000; t++) {
        float x[16], y[16];
        double size = 0;
        for (int i = 0; i < 16; i++)
            size += fabs((double)(y[i] = x[i] = draw_value(SIMILAR, 0)));
        const uint32_t signs = draw(1 << 16);
        fl_block_transform(y, signs);
        for (int i = 0; i < 16; i++) {
            double want = 0;
            for (int j = 0; j < 16; j++)
                want += (__builtin_parity((unsigned)(i & j)) ? -1 : 1) * (signs >> j & 1 ? -1 : 1) * (double)x[j] / 4;
            /* four roundings, each of at most half a unit of 2^-24 of the sum of all */
            CHECK(fabs(y[i] - want) <= 4 * size / 4 * 0x1p-24, "transform %d: %a, want %a", i, (double)y[i], want);
        }
    }
}

int main(int argc, char **argv) {
    const int64_t values = argc > 1 ? atoll(argv[1]) : 100000;
    static const char *const elements[] = {"int8", "e4m3fn", "e5m2", "e3m2", "e2m3", "e2m1"};
    static const char *const rules[] = {"floor", "ceil", "even", "rceil"};
    static const char *const others[] = {"mx:int2",
                                         "mx:int4/16",
                                         "mx:int7/5",
                                         "mx:e4m3",
                                         "mx:e3m4/64",
                                         "mx:e1m6",
                                         "mx:e7m0",
                                         "mx:e6m1",
                                         "mx:e1m2/1000",
                                         "mx:e5m0/3",
                                         "nvfp4",
                                         "nvfp4:hadamard",
                                         "nvfp4:square",
                                         "nvfp4:stochastic",
                                         "hbfp:int8/64",
                                         "hbfp:int5/24:square",
                                         "hbfp:int8/576",
                                         "mx:int8/1024:hadamard",
                                         "mx:e2m1:hadamard:stochastic",
                                         "mx:e4m3fn:square:stochastic",
                                         "mx:int8:stochastic",
                                         "mx:e5m2/16:stochastic",
                                         "mx:e2m1/16:square",
                                         "nvfp4:stochastic:hadamard:square"};
    static const struct {
        const char *text, *rule;
    } channels[] = {{"channel:int8", "rceil"},
                    {"channel:e4m3fn", "rceil"},
                    {"channel:e2m1:floor", "floor"},
                    {"channel:e5m2:even:stochastic", "even"},
                    {"channel:int8:stochastic", "rceil"},
                    {"channel:e3m2:ceil", "ceil"}};
    check_transform();
    for (int i = 0; i < 6; i++)
        for (int r = 0; r < 4; r++) {
            char text[40];
            snprintf(text, sizeof text, "mx:%s:%s", elements[i], rules[r]);
            check_format(text, rules[r], values);
        }
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        check_format(others[i], "floor", values / 2);
    for (size_t i = 0; i < sizeof channels / sizeof channels[0]; i++)
        check_format(channels[i].text, channels[i].rule, values / 2);
    return check_summary();
}
