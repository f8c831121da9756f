/* The sums of tensor cores: the model against exact integers of this test's own, and the vectors against the model.
 *
 *     test_tensorcore          20,000 groups for each GPU and pair of kinds, 50,000 sums of vectors
 *     test_tensorcore SUMS     as many sums of vectors for each GPU and pair of kinds
 */
#include "check.h"
#include "core/base/cpu.h"
#include "tensorcore/tensorcore.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t state = 20261124;

static uint32_t draw(uint32_t below) {
    return (uint32_t)((check_random(&state) >> 32) * below >> 32);
}

static float float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* --- operands ----------------------------------------------------------------------------------------------------- */

static const struct {
    int fraction, least, most; /* exponents of normal numbers */
} shape_of[FL_OPERAND_KINDS] = {[FL_OPERAND_FP16] = {10, -14, 15},
                                [FL_OPERAND_BF16] = {7, -126, 127},
                                [FL_OPERAND_TF32] = {10, -126, 127},
                                [FL_OPERAND_E4M3] = {3, -6, 8},
                                [FL_OPERAND_E5M2] = {2, -14, 15}};

/* How operands are spread: around 1, over all exponents, extremes, and with NaN and Inf. */
enum spread { NARROW, WIDE, EXTREME, SPECIAL, SPREADS };

static float draw_operand(enum fl_operand_kind kind, enum spread spread) {
    const int fraction = shape_of[kind].fraction, least = shape_of[kind].least, most = shape_of[kind].most;
    const float sign = draw(2) ? -1 : 1;
    if (!draw(16))
        return sign * 0.0f;
    if (spread == SPECIAL && !draw(64))
        return draw(2) ? NAN : sign * INFINITY;
    if (spread == EXTREME && !draw(3)) /* subnormal, or the largest */
        return draw(2) ? sign * ldexpf((float)(1 + draw((1u << fraction) - 1)), least - fraction)
                       : sign * ldexpf((float)((2u << fraction) - 1 - (kind == FL_OPERAND_E4M3)), most - fraction);
    int from = spread == NARROW ? -3 : least, to = spread == NARROW ? 0 : most - 1;
    return sign * ldexpf((float)((1u << fraction) + draw(1u << fraction)),
                         (int)draw((uint32_t)(to - from + 1)) + from - fraction);
}

/* --- exact integers ----------------------------------------------------------------------------------------------- */

/* An integer of units of 2^-400 as 26 words of 32 bits, two's complement. */
enum { WORDS = 26, UNIT = -400 };
struct wide {
    uint32_t word[WORDS];
};

static void negate(struct wide *x) {
    uint64_t carry = 1;
    for (int i = 0; i < WORDS; i++) {
        carry += (uint32_t)~x->word[i];
        x->word[i] = (uint32_t)carry;
        carry >>= 32;
    }
}

static void add_wide(struct wide *x, const struct wide *y) {
    uint64_t carry = 0;
    for (int i = 0; i < WORDS; i++) {
        carry += (uint64_t)x->word[i] + y->word[i];
        x->word[i] = (uint32_t)carry;
        carry >>= 32;
    }
}

static bool bit_of(const struct wide *x, int at) {
    return at >= 0 && x->word[at / 32] >> at % 32 & 1;
}

/* Clears all bits below `at`. */
static void truncate_below(struct wide *x, int at) {
    for (int i = 0; i < at && i < WORDS * 32; i++)
        x->word[i / 32] &= ~(1u << i % 32);
}

/* |x| * 2^UNIT as magnitude bits. */
static struct wide wide_of(uint64_t integer, int at) {
    struct wide x = {{0}};
    for (int i = 0; i < 64; i++)
        if (integer >> i & 1)
            x.word[(i + at - UNIT) / 32] |= 1u << (i + at - UNIT) % 32;
    return x;
}

static uint64_t mantissa(float x, int *at) {
    int e;
    const float m = frexpf(fabsf(x), &e);
    *at = e - 24;
    return (uint64_t)ldexpf(m, 24);
}

static int exponent(float x, int least) {
    const int e = ilogbf(x);
    return e > least ? e : least;
}

/* The sum by the words of docs/semantics.md, for finite operands. */
static float exact_group(const struct fl_accumulation *how, struct fl_operand_kinds kinds, const float *a,
                         const float *b, int n, float c) {
    const int least_a = shape_of[kinds.a].least, least_b = shape_of[kinds.b].least;
    struct wide sum = {{0}};
    int top = -1000, at[2];
    for (int i = 0; i < n; i++)
        if (a[i] != 0 && b[i] != 0 && exponent(a[i], least_a) + exponent(b[i], least_b) > top)
            top = exponent(a[i], least_a) + exponent(b[i], least_b);
    if (c != 0 && !how->apart && exponent(c, -126) > top)
        top = exponent(c, -126);
    if (top == -1000)
        return how->apart ? c + 0.0f : 0;
    for (int i = 0; i <= n; i++) {
        struct wide term;
        if (i < n) {
            const uint64_t m = mantissa(a[i], &at[0]) * mantissa(b[i], &at[1]);
            term = wide_of(m, m ? at[0] + at[1] : 0);
        } else {
            const uint64_t m = how->apart ? 0 : mantissa(c, &at[0]);
            term = wide_of(m, m ? at[0] : 0);
        }
        truncate_below(&term, top - how->fraction - UNIT);
        if (i < n ? (a[i] < 0) != (b[i] < 0) : c < 0)
            negate(&term);
        add_wide(&sum, &term);
    }
    const bool below = sum.word[WORDS - 1] >> 31;
    if (below)
        negate(&sum);
    int first = WORDS * 32 - 1;
    while (first >= 0 && !bit_of(&sum, first))
        first--;
    double value = 0;
    if (first >= 0) {
        const int e = first + UNIT > -126 ? first + UNIT : -126;
        truncate_below(&sum, e - how->result - UNIT);
        for (int i = first; i > first - 24; i--)
            value += bit_of(&sum, i) ? ldexp(1, i + UNIT) : 0;
        value = value >= 0x1p128 ? INFINITY : value;
        value = below ? -value : value;
    }
    return how->apart ? c + (float)value : (float)value;
}

/* --- the model ---------------------------------------------------------------------------------------------------- */

static const char *name_of(struct fl_operand_kinds kinds) {
    static char name[32];
    snprintf(name, sizeof name, "%s by %s", fl_operand_kind_name(kinds.a), fl_operand_kind_name(kinds.b));
    return name;
}

static bool same(float x, float y) {
    return x == y || (x != x && y != y);
}

static void check_model(const char *gpu, const struct fl_accumulation *how, struct fl_operand_kinds kinds) {
    float a[FL_GROUP_MOST], b[FL_GROUP_MOST];
    for (int round = 0; round < 20000; round++) {
        const enum spread spread = (enum spread)(round % SPECIAL);
        const int n = 1 + (int)draw((uint32_t)how->k);
        for (int i = 0; i < n; i++) {
            a[i] = draw_operand(kinds.a, spread);
            b[i] = draw_operand(kinds.b, spread);
            if (i && !draw(4)) /* cancellation */
                a[i] = -a[i - 1], b[i] = b[i - 1];
        }
        float c = draw(4) ? a[0] * b[0] * (1 + ldexpf((float)draw(1 << 24), -24)) : 0;
        c = isfinite(c) ? draw(2) ? -c : c : 1;
        if (how->result == 13)
            c = float_of(bits_of(c) & ~0x3ffu);
        const float got = fl_tensorcore_group(how, kinds, a, b, n, c), expected = exact_group(how, kinds, a, b, n, c);
        CHECK(same(got, expected), "%s %s round %d: %a, expected %a", gpu, name_of(kinds), round, (double)got,
              (double)expected);
    }
}

static void check_special(const struct fl_accumulation *how, struct fl_operand_kinds kinds) {
    const float inf[] = {1, INFINITY}, less[] = {1, -INFINITY}, zero[] = {1, 0}, one[] = {1, 1}, nan[] = {1, NAN};
    const float both[] = {INFINITY, -INFINITY};
    CHECK(fl_tensorcore_group(how, kinds, inf, one, 2, 3) == INFINITY, "Inf times 1");
    CHECK(fl_tensorcore_group(how, kinds, less, one, 2, 3) == -INFINITY, "-Inf times 1");
    CHECK(isnan(fl_tensorcore_group(how, kinds, inf, zero, 2, 3)), "Inf times 0");
    CHECK(isnan(fl_tensorcore_group(how, kinds, nan, zero, 2, 3)), "NaN times 0");
    CHECK(isnan(fl_tensorcore_group(how, kinds, both, one, 2, 3)), "Inf - Inf");
    CHECK(isnan(fl_tensorcore_group(how, kinds, less, one, 2, INFINITY)), "c - Inf");
    CHECK(fl_tensorcore_group(how, kinds, one, one, 2, INFINITY) == INFINITY, "Inf + 2");
    CHECK(bits_of(fl_tensorcore_group(how, kinds, (float[]){1, -1}, one, 2, 0)) == 0, "1 - 1 is not +0");
}

/* --- vectors ------------------------------------------------------------------------------------------------------ */

static void check_tile(const char *name, const struct fl_tc_kernels *kernels, const struct fl_accumulation *how,
                       struct fl_operand_kinds kinds, int rows, int columns, int64_t *doubts) {
    static struct fl_tc_rows a;
    static struct fl_tc_panel b;
    static float row[FL_TC_ROWS][FL_TC_CHUNK], column[FL_TC_CHUNK][FL_TC_COLUMNS], sums[FL_TC_ROWS][FL_TC_COLUMNS],
        before[FL_TC_ROWS][FL_TC_COLUMNS];
    static uint64_t doubt[FL_TC_ROWS];
    const enum spread spread = (enum spread)draw(SPREADS);
    const int groups = 1 + (int)draw((uint32_t)(FL_TC_CHUNK / how->k)), k = groups * how->k;
    for (int i = 0; i < rows; i++)
        for (int l = 0; l < k; l++)
            row[i][l] = draw_operand(kinds.a, spread);
    for (int l = 0; l < k; l++)
        for (int j = 0; j < FL_TC_COLUMNS; j++)
            column[l][j] = j < columns ? draw_operand(kinds.b, spread) : 0;
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < FL_TC_COLUMNS; j++) {
            const float c = draw(4) ? draw_operand(kinds.a, spread) * (1 + ldexpf((float)draw(1 << 24), -24)) : 0;
            sums[i][j] = before[i][j] =
                isfinite(c) && fabsf(c) > 0x1p-90f ? float_of(bits_of(c) & (how->result == 13 ? ~0x3ffu : ~0u)) : 1;
        }
    memset(doubt, 0, sizeof doubt);
    kernels->pack_rows(how, shape_of[kinds.a].least, row[0], rows, groups, &a);
    kernels->pack_columns(how, shape_of[kinds.b].least, column[0], groups, &b);
    kernels->add(&(struct fl_tc_tile){how, &a, &b, rows, columns, groups, sums[0], doubt});
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++) {
            if (doubt[i] >> j & 1) {
                doubts[spread]++;
                continue;
            }
            const float expected = fl_tensorcore_sum(how, kinds, row[i], &column[0][j], FL_TC_COLUMNS, k, before[i][j]);
            CHECK(sums[i][j] == expected, "%s %s spread %d: %a, expected %a", name, name_of(kinds), spread,
                  (double)sums[i][j], (double)expected);
        }
}

static void check_vectors(const char *gpu, const char *isa, const struct fl_tc_kernels *kernels,
                          const struct fl_accumulation *how, struct fl_operand_kinds kinds, int64_t sums) {
    char name[64];
    int64_t doubts[SPREADS] = {0};
    snprintf(name, sizeof name, "%s %s", gpu, isa);
    for (int64_t done = 0; done < sums;) {
        const int rows = 1 + (int)draw(24), columns = 1 + (int)draw(FL_TC_COLUMNS);
        check_tile(name, kernels, how, kinds, rows, columns, doubts);
        done += rows * columns;
    }
    CHECK(!doubts[NARROW], "%s %s: %lld usual sums were left to the model", name, name_of(kinds),
          (long long)doubts[NARROW]);
    if (kinds.a == FL_OPERAND_FP16 || kinds.a >= FL_OPERAND_E4M3)
        CHECK(doubts[WIDE] * 100 < sums, "%s %s: %lld sums were left to the model", name, name_of(kinds),
              (long long)doubts[WIDE]);
}

/* --- names -------------------------------------------------------------------------------------------------------- */

static void check_refused(const char *text, const char *expected) {
    tensor_class class = TENSOR_FAST;
    CHECK(tensor_class_find(&class, text) == TENSOR_E_ARGUMENT && class == TENSOR_FAST, "'%s' was taken", text);
    CHECK(strstr(tensor_error(), expected), "'%s': %s", text, tensor_error());
}

static void check_names(void) {
    static const char *const names[] = {"exact",
                                        "fast",
                                        "fast:tf32",
                                        "fast:sums=fp16",
                                        "fast:tf32:sums=fp16",
                                        "accumulate=h100:sums=fp16",
                                        "accumulate=b200:sums=fp16:promote=64",
                                        "accumulate=v100",
                                        "accumulate=h100:promote=128",
                                        "accumulate=v100:promote=4",
                                        "accumulate=b200"};
    tensor_class class;
    for (int i = 0; i < (int)(sizeof names / sizeof names[0]); i++) {
        CHECK(!tensor_class_find(&class, names[i]), "%s", tensor_error());
        CHECK(!strcmp(tensor_class_name(class), names[i]), "%s became %s", names[i], tensor_class_name(class));
        CHECK(!tensor_set_class(class) && tensor_result_class() == class, "%s", tensor_error());
    }
    CHECK(!tensor_class_find(&class, "accumulate=h100:promote=128:sums=fp16") &&
              !strcmp(tensor_class_name(class), "accumulate=h100:sums=fp16:promote=128"),
          "%s", tensor_error());
    tensor_set_class(TENSOR_EXACT);
    CHECK(!tensor_class_name((tensor_class)2) && !tensor_class_name((tensor_class)(16 + 8)), "a class without a name");
    CHECK(tensor_set_class((tensor_class)(16 | 5 << 8)) == TENSOR_E_ARGUMENT, "a promotion of 5 was set");
    check_refused("accumulate=h10", "GPU 'h10' at character 12, expected one of v100, a100, a2, ada");
    check_refused("accumulate=", "GPU '' at character 12");
    check_refused("accumulate=h100:promote=33", "promote=33 at character 25, expected a multiple of 32");
    check_refused("accumulate=h100:promote=33:sums=fp16", "promote=33 at character 25, expected a multiple of 32");
    check_refused("accumulate=h100:promote=32:promote=64",
                  "':promote=64' at character 27, expected :sums=fp16 or the end");
    check_refused("accumulate=h100:promote=32:sums=fp16:", "':' at character 37, expected the end");
    check_refused("accumulate=h100:promote=-32", "expected a multiple of 32");
    check_refused("accumulate=h100:promote=9999999999999999999999", "expected a multiple of 32");
    check_refused("accumulate=h100:128", "':128' at character 16, expected :sums=fp16, :promote=N or the end");
    check_refused("accumulate=h100:sums=fp16x", "'x' at character 26, expected :promote=N or the end");
    check_refused("accumulate=a100:sums=fp16", "sums=fp16 at character 17, of which there is no record of a100");
    check_refused("fast:fp16", "':fp16' at character 5, expected the end, :tf32, :sums=fp16 or :tf32:sums=fp16");
    CHECK(tensor_set_class((tensor_class)(16 + 1 + 128)) == TENSOR_E_ARGUMENT, "fp16 sums of a100 were set");
    check_refused("slow", "class 'slow', expected exact, fast, accumulate=GPU or operands=BLOCKS");
}

static void check_pair(const char *gpu, tensor_class class, struct fl_operand_kinds kinds, int64_t sums) {
    const bool fp8 = kinds.a >= FL_OPERAND_E4M3 && kinds.b >= FL_OPERAND_E4M3;
    const struct fl_accumulation *how = fl_accumulation_of_kinds(class, kinds);
    CHECK(!how == !(fl_accumulation_of(class, kinds.a) && (fp8 || kinds.a == kinds.b)), "%s %s", gpu, name_of(kinds));
    if (!how)
        return;
    check_model(gpu, how, kinds);
    check_special(how, kinds);
#ifdef FL_HAVE_AVX2
    if (fl_cpu_has(FL_CPU_AVX2))
        check_vectors(gpu, "avx2", &fl_tensorcore_avx2, how, kinds, sums);
#endif
#ifdef FL_HAVE_AVX512
    if (fl_cpu_has(FL_CPU_AVX512F | FL_CPU_AVX512BW | FL_CPU_AVX512VL | FL_CPU_AVX512DQ))
        check_vectors(gpu, "avx512bw", &fl_tensorcore_avx512bw, how, kinds, sums);
#endif
}

int main(int argc, char **argv) {
    const int64_t sums = argc > 1 ? atoll(argv[1]) : 50000;
    printf("seed %llu\n", (unsigned long long)state);
    check_names();
    for (int g = 0; tensor_accumulator_at(g); g++) {
        const char *gpu = tensor_accumulator_at(g);
        char text[32];
        tensor_class class = TENSOR_EXACT;
        snprintf(text, sizeof text, "accumulate=%s", gpu);
        CHECK(!tensor_class_find(&class, text), "%s", tensor_error());
        for (int a = FL_OPERAND_NONE; a < FL_OPERAND_KINDS; a++)
            for (int b = FL_OPERAND_NONE; b < FL_OPERAND_KINDS; b++)
                check_pair(gpu, class, (struct fl_operand_kinds){(enum fl_operand_kind)a, (enum fl_operand_kind)b},
                           sums);
    }
    return check_summary();
}
