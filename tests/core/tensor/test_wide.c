/* Wide parts never disagree with their elements: updates, loads and conversions round once at the width of the wide
 * part, and the elements are its rounding; whatever else writes a tensor makes the wide part exactly the value of the
 * elements. For every format that has wide parts, on every kernel set and with several numbers of threads, against
 * exact integers, or doubles that hold the results exactly. */
#include "host_numbers.h"
#include "check.h"
#include "flexlab/tensor.h"
#include "flexlab/tensor_blocks.h"
#include <math.h>
#include <string.h>

static const char *const backends[] = {"ref", "portable", "avx2", "avx2_vnni", "avx512bw", "avx512", "avx512_amx"};
static const int thread_counts[] = {1, 2, 3, 7};
static const int64_t counts[] = {1, 7, 1031, 36001};
enum { BACKENDS = sizeof backends / sizeof backends[0], MOST = 36001 };

static tensor_format format;
static const char *row;
static int threads;
static uint64_t seed;
static double elements[MOST], parts[MOST], values[MOST], operand[MOST];

#define DO(call) CHECK(!(call), #call ": %s (%s, %s)", tensor_error(), tensor_format_name(format), row)
#define WHERE "%s on %s with %d threads, element %lld: "
#define WHERE_VALUES tensor_format_name(format), row, threads, (long long)i

static int below(int n) {
    return (int)(check_random(&seed) % (uint64_t)n);
}

/* x to a multiple of 2^-place: nearest, ties to even, or toward zero. Exact: x has at most 53 bits. */
static double to_place(double x, int place, bool truncate) {
    const double scaled = ldexp(x, place), down = floor(scaled), rest = scaled - down;
    if (truncate)
        return ldexp(trunc(scaled), -place);
    return ldexp(down + (rest > 0.5 || (rest == 0.5 && fmod(down, 2) != 0)), -place);
}

/* x as a 16-bit float: fraction bits, exponent of the smallest normal, largest finite value. */
static double to_short_float(double x, int fraction, int least, double largest, bool truncate) {
    if (!isfinite(x) || x == 0)
        return x;
    const int exponent = ilogb(x) < least ? least : ilogb(x);
    const double y = to_place(x, fraction - exponent, truncate);
    return fabs(y) <= largest ? y : truncate ? copysign(largest, x) : copysign(INFINITY, x);
}

/* The value of an element, from its wide part. */
static double rounded(const tensor *t, double wide, bool truncate) {
    if (tensor_format_is_shared(format))
        return to_place(wide, tensor_exponent(t), false);
    return format == FMT_FP16 ? to_short_float(wide, 10, -14, 65504, truncate)
                              : to_short_float(wide, 7, -126, 0x1.fep127, truncate);
}

static bool same(double a, double b) {
    return a == b || (a != a && b != b);
}

/* exact: the wide part is the value of the elements; else the elements are its rounding. */
static void check_agreement(const tensor *t, bool exact, bool truncate, const char *after) {
    const int64_t n = tensor_count(t);
    DO(tensor_store_f64(t, elements, n));
    DO(tensor_store_wide_f64(t, parts, n));
    int64_t i = 0;
    while (i < n && same(elements[i], exact ? parts[i] : rounded(t, parts[i], truncate)))
        i++;
    CHECK(i == n, WHERE "after %s it is %a, its wide part %a", WHERE_VALUES, after, elements[i], parts[i]);
}

/* Values with more bits than an element has: multiples of 2^-13 in (-4, 4). */
static void load_random(tensor *t) {
    const int64_t n = tensor_count(t);
    for (int64_t i = 0; i < n; i++)
        values[i] = ldexp(below(1 << 16) - (1 << 15), -13) * (i % 11 ? 1 : 0x1p-6) + (i % 7 == 3 ? 0x1p-14
                                                                                      : i % 5    ? 0x1p-20
                                                                                                 : 0); /* ties too */
    DO(tensor_load_f64(t, values, n));
}

/* `values` rounded once to the width of the wide part. */
static void check_loaded(const tensor *t) {
    const int64_t n = tensor_count(t);
    DO(tensor_store_wide_f64(t, parts, n));
    int64_t i = 0;
    for (; i < n; i++) {
        const double limit = ldexp(0x7fff7fff, -tensor_exponent(t) - 16);
        const double want = !tensor_format_is_shared(format)
                                ? (double)(float)values[i]
                                : fmin(fmax(to_place(values[i], tensor_exponent(t) + 16, false), -limit), limit);
        if (parts[i] != want)
            break;
    }
    CHECK(i == n, WHERE "%a was loaded, its wide part is %a", WHERE_VALUES, values[i % n], parts[i % n]);
    check_agreement(t, false, false, "a load");
}

static tensor *make(int64_t n, bool wide) {
    tensor *t = tensor_new(format, 1, &n);
    if (wide)
        DO(tensor_keep_wide(t));
    load_random(t);
    return t;
}

/* An update that changes nothing leaves elements as they are: it works on their values. */
static void check_update_by_nothing(tensor *w, const tensor *v, const char *after) {
    const int64_t n = tensor_count(w);
    static double before[MOST];
    DO(tensor_store_f64(w, before, n));
    if (tensor_format_is_shared(format))
        DO(tensor_set_predictor(w, "fixed"));
    DO(tensor_sgd_update(w, v, 0));
    DO(tensor_store_f64(w, elements, n));
    int64_t i = 0;
    while (i < n && same(before[i], elements[i]))
        i++;
    CHECK(i == n, WHERE "%a after %s is %a after an update by zero", WHERE_VALUES, before[i], after, elements[i]);
}

/* --- operations that write elements ------------------------------------------------------------------------------- */

#define FL_MAP1(id, CONSTANT, name, expr)                                                                              \
    static tensor_status do_##name(tensor *y, const tensor *x) {                                                       \
        return tensor_##name(y, x);                                                                                    \
    }
#define FL_MAP1_SCALAR(id, CONSTANT, name, expr)                                                                       \
    static tensor_status do_##name(tensor *y, const tensor *x) {                                                       \
        return tensor_##name(y, x, 0.7f);                                                                              \
    }
#define FL_MAP2(id, CONSTANT, name, expr)                                                                              \
    static tensor_status do_##name(tensor *y, const tensor *x) {                                                       \
        return tensor_##name(y, y, x);                                                                                 \
    }
#define FL_MAP2_SCALAR(id, CONSTANT, name, expr)                                                                       \
    static tensor_status do_##name(tensor *y, const tensor *x) {                                                       \
        return tensor_##name(y, y, x, 0.7f);                                                                           \
    }
#define FL_MAP1_SCALARS(id, CONSTANT, name, expr)                                                                      \
    static tensor_status do_##name(tensor *y, const tensor *x) {                                                       \
        (void)x;                                                                                                       \
        return tensor_##name(y, y, -0.5f, 0.7f);                                                                       \
    }
#define FL_MAP2_SCALARS(id, CONSTANT, name, expr)                                                                      \
    static tensor_status do_##name(tensor *y, const tensor *x) {                                                       \
        return tensor_##name(y, y, x, -0.5f, 0.7f);                                                                    \
    }
#define FL_MAP3(id, CONSTANT, name, expr)                                                                              \
    static tensor_status do_##name(tensor *y, const tensor *x) {                                                       \
        return tensor_##name(y, x, y, x);                                                                              \
    }
#include "flexlab/ops.def"

static tensor_status do_nothing_but_momentum(tensor *y, const tensor *x) {
    tensor *g = tensor_new(format, TENSOR_SHAPE(tensor_count(x)));
    const tensor_status status = tensor_sgd_momentum(y, g, x, 0.9f, 1e-3f);
    tensor_free(g);
    return status;
}

static tensor_status do_matmul(tensor *y, const tensor *x) {
    tensor *one = tensor_new(format, TENSOR_SHAPE(1, 1));
    tensor *rows = tensor_new_view(y, TENSOR_SHAPE(tensor_count(y), 1));
    tensor *a = tensor_new(format, TENSOR_SHAPE(tensor_count(x), 1));
    tensor_status status = tensor_load_f64(one, (double[]){1.25}, 1);
    if (!status)
        status = tensor_store_f64(x, operand, tensor_count(x));
    if (!status)
        status = tensor_load_f64(a, operand, tensor_count(x));
    if (!status)
        status = tensor_matmul_fused(rows, a, one, &(tensor_epilogue){.residual = rows});
    tensor_free(rows);
    tensor_free(one);
    tensor_free(a);
    return status;
}

static tensor_status do_softmax(tensor *y, const tensor *x) {
    (void)x;
    tensor *all = tensor_new_view(y, TENSOR_SHAPE(1, tensor_count(y)));
    double loss;
    const tensor_status status = host_cross_entropy(&loss, all, NULL, all, (int32_t[]){0}, 8);
    tensor_free(all);
    return status;
}

static tensor_status do_set_exponent(tensor *y, const tensor *x) {
    (void)x;
    return tensor_format_is_shared(format) ? tensor_set_exponent(y, tensor_exponent(y) - 2) : TENSOR_OK;
}

static tensor_status do_declare_exponent(tensor *y, const tensor *x) {
    (void)x;
    return tensor_format_is_shared(format) ? tensor_declare_exponent(y, tensor_exponent(y) + 1) : TENSOR_OK;
}

static const struct {
    const char *name;
    tensor_status (*run)(tensor *y, const tensor *x);
} writers[] = {
#define FL_MAP1(id, CONSTANT, name, expr) {#name, do_##name},
#define FL_MAP1_SCALAR(id, CONSTANT, name, expr) {#name, do_##name},
#define FL_MAP2(id, CONSTANT, name, expr) {#name, do_##name},
#define FL_MAP2_SCALAR(id, CONSTANT, name, expr) {#name, do_##name},
#define FL_MAP3(id, CONSTANT, name, expr) {#name, do_##name},
#define FL_MAP1_SCALARS(id, CONSTANT, name, expr) {#name, do_##name},
#define FL_MAP2_SCALARS(id, CONSTANT, name, expr) {#name, do_##name},
#include "flexlab/ops.def"
    {"matmul", do_matmul},
    {"sgd_momentum", do_nothing_but_momentum},
    {"softmax_cross_entropy", do_softmax},
    {"set_exponent", do_set_exponent},
    {"declare_exponent", do_declare_exponent}};

static void writes(int64_t n) {
    for (size_t k = 0; k < sizeof writers / sizeof writers[0]; k++) {
        if (n > 2000 && (k + seed) % 5)
            continue;
        tensor *v = make(n, false), *w = make(n, true);
        check_loaded(w);
        DO(tensor_sgd_update(w, v, 0x1p-17f));
        check_agreement(w, false, false, "an update");
        DO(writers[k].run(w, v));
        if (tensor_format_is_shared(format) || !strstr(writers[k].name, "exponent")) {
            check_agreement(w, true, false, writers[k].name);
            check_update_by_nothing(w, v, writers[k].name);
        }
        tensor_free(w);
        tensor_free(v);
    }
}

/* --- elements written by hand ------------------------------------------------------------------------------------- */

static void by_hand(int64_t n) {
    static _Alignas(64) uint16_t memory[MOST];
    for (int kind = 0; kind < 3; kind++) { /* the library's memory, the caller's, a copy of the former */
        tensor *w = kind == 1 ? tensor_new_on(format, 1, &n, memory, sizeof memory) : tensor_new(format, 1, &n);
        tensor *v = make(n, false), *u = make(n, true);
        uint16_t *words = kind == 1 ? memory : tensor_data(w); /* obtained earlier: the pointer remains valid */
        DO(tensor_keep_wide(w));
        load_random(w);
        check_loaded(w);
        if (below(2))
            DO(tensor_sgd_update(w, v, 0x1p-17f));
        static double kept[MOST];
        DO(tensor_store_wide_f64(w, kept, n));
        const int64_t at = below((int)n);
        words[at] ^= 1;
        if (kind == 2)
            DO(tensor_copy(u, w));
        const tensor *t = kind == 2 ? u : w;
        DO(tensor_store_f64(t, elements, n));
        DO(tensor_store_wide_f64(t, parts, n));
        for (int64_t i = 0; i < n; i++)
            if (!same(parts[i], i == at ? elements[i] : kept[i])) {
                CHECK(false, WHERE "wide part %a, before %a, element %lld written by hand", WHERE_VALUES, parts[i],
                      kept[i], (long long)at);
                break;
            }
        words[at] ^= 1;
        check_update_by_nothing(w, v, "a word written by hand");
        words[at] ^= 3;
        tensor *g = make(n, false), *momentum = make(n, false);
        DO(tensor_sgd_momentum(momentum, g, w, 0, 1));
        check_agreement(w, false, false, "a momentum that reads what was written by hand");
        tensor_free(g);
        tensor_free(momentum);
        tensor_free(u);
        tensor_free(v);
        tensor_free(w);
    }
}

/* --- values of updates -------------------------------------------------------------------------------------------- */

__extension__ typedef __int128 int128;

static int64_t divide_to_even(int128 x, int shift) { /* x / 2^shift */
    const int128 floor = x >> shift, rest = x - floor * ((int128)1 << shift), half = (int128)1 << (shift - 1);
    return (int64_t)(floor + (rest > half || (rest == half && (floor & 1))));
}

/* w - rate v of shared exponents: integers throughout, at an exponent that does not move. */
static void update_shared(int64_t n) {
    tensor *w = make(n, true), *v = make(n, true);
    DO(tensor_set_predictor(w, "fixed"));
    DO(tensor_sgd_update(v, w, 0x1p-16f)); /* v gets a wide part more precise than its elements, which does not count */
    const int factor = 1 + below(250), places = 12, e = tensor_exponent(w), ev = tensor_exponent(v);
    DO(tensor_store_wide_f64(w, values, n));
    DO(tensor_store_f64(v, operand, n));
    DO(tensor_sgd_update(w, v, ldexpf((float)factor, -places)));
    CHECK(tensor_exponent(w) == e, "the exponent moved");
    DO(tensor_store_wide_f64(w, parts, n));
    for (int64_t i = 0; i < n; i++) {
        const int128 m = (int128)ldexp(values[i], e + 16), step = (int128)factor * (int64_t)ldexp(operand[i], ev);
        int64_t want = divide_to_even(m * ((int128)1 << (ev + places)) - step * ((int128)1 << (e + 16)), ev + places);
        want = want > 0x7fff7fff ? 0x7fff7fff : want < -0x7fff7fff ? -0x7fff7fff : want;
        if (ldexp(parts[i], e + 16) != (double)want) {
            CHECK(false, WHERE "wide part %a, expected %lld 2^-%d", WHERE_VALUES, parts[i], (long long)want, e + 16);
            break;
        }
    }
    check_agreement(w, false, false, "an update");
    tensor_free(w);
    tensor_free(v);
}

/* The same in floats: a sum that double holds, rounded once to binary32. */
static void update_float(int64_t n, bool truncate) {
    tensor *w = make(n, true), *v = make(n, true);
    if (truncate)
        DO(tensor_set_rounding(w, TENSOR_ROUND_TRUNCATE, 0));
    DO(tensor_sgd_update(v, w, 0x1p-16f));
    const float rate = ldexpf((float)(1 + below(250)), -12);
    DO(tensor_store_wide_f64(w, values, n));
    DO(tensor_store_f64(v, operand, n));
    DO(tensor_sgd_update(w, v, rate));
    DO(tensor_store_wide_f64(w, parts, n));
    for (int64_t i = 0; i < n; i++) {
        const double want = (float)(values[i] - rate * operand[i]);
        if (parts[i] != want) {
            CHECK(false, WHERE "wide part %a, expected %a", WHERE_VALUES, parts[i], want);
            break;
        }
    }
    check_agreement(w, false, truncate, "an update");
    /* a rounding mode that is set later does not count as a write by hand */
    DO(tensor_set_rounding(w, TENSOR_ROUND_NEAREST, 0));
    (void)tensor_data(w);
    check_agreement(w, false, truncate, "another rounding");
    tensor_free(w);
    tensor_free(v);
}

/* v and g count as stored, w as its wide part, whether or not they have wide parts. `fine` is stored as 1 in 16
 * bits. */
static void operands_of_sgd(void) {
    tensor *t[3]; /* v, g, w */
    const double fine = tensor_format_is_shared(format) ? 1 + 0x1p-17 : 1.0004;
    double x, part;
    for (int wide = 0; wide < 8; wide++)
        for (int fine_one = 0; fine_one < 3; fine_one++) {
            for (int i = 0; i < 3; i++) {
                t[i] = tensor_new(format, TENSOR_SHAPE(1));
                if (wide >> i & 1)
                    DO(tensor_keep_wide(t[i]));
                if (tensor_format_is_shared(format))
                    DO(tensor_set_predictor(t[i], "current"));
            }
            /* 1000 times the fine value - 1000 times one that is stored exactly */
            DO(tensor_load_f64(t[0], fine_one == 0 ? &fine : (double[]){-1}, 1));
            DO(tensor_load_f64(t[1], fine_one == 1 ? &fine : (double[]){fine_one == 0 ? -1024 : 0}, 1));
            DO(tensor_load_f64(t[2], fine_one == 2 ? &fine : (double[]){0}, 1));
            DO(tensor_store_wide_f64(t[2], &part, 1));
            DO(tensor_sgd_momentum(t[0], t[1], t[2], fine_one == 1 ? 1 : 1024, 1024));
            DO(tensor_store_f64(t[0], &x, 1));
            const double exact = fine_one == 2 ? 1024 * part - 1024 : 0;
            CHECK(fabs(x - exact) <= fabs(exact) * 0x1p-8, "%s on %s, wide parts %d, operand %d: %g, expected %g",
                  tensor_format_name(format), row, wide, fine_one, x, exact);
            CHECK(fine_one < 2 || !(wide & 4) || x != 0, "the wide part of w does not count");
            if (fine_one == 0) {
                DO(tensor_load_f64(t[2], (double[]){3}, 1));
                DO(tensor_load_f64(t[0], &fine, 1));
                DO(tensor_sgd_update(t[2], t[0], 1000));
                DO(tensor_store_wide_f64(t[2], &part, 1));
                const double want = format == FMT_BF16 && !(wide & 4) ? -996 : -997; /* a place of 4, ties to even */
                CHECK(part == want, "%s on %s, wide parts %d: 3 - 1000 * 1 is %g", tensor_format_name(format), row,
                      wide, part);
            }
            for (int i = 0; i < 3; i++)
                tensor_free(t[i]);
        }
}

int main(void) {
    for (int b = 0; b < BACKENDS; b++)
        for (int f = 0; tensor_format_at(f); f++) {
            format = tensor_format_at(f);
            row = backends[b];
            if (tensor_format_bytes(format) != 2)
                continue;
            CHECK(!tensor_set_backend(row), "%s", tensor_error());
            operands_of_sgd();
            for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
                threads = thread_counts[(i + (size_t)b) % 4];
                CHECK(!tensor_set_threads(threads), "%s", tensor_error());
                seed = (uint64_t)(b * 100 + f * 10) + i;
                writes(counts[i]);
                by_hand(counts[i]);
                if (tensor_format_is_shared(format))
                    update_shared(counts[i]);
                else
                    update_float(counts[i], format == FMT_BF16);
            }
        }
    return check_summary();
}
