/* Reductions over every set of dimensions, their gradients, argmax, operations on broadcast operands, selection:
 * against loops over coordinates. Integer formats against exact integers and quotients (128 bits; roots by squaring the
 * stored result), float formats against the defined chains; gradients against differences in binary32.
 *
 *     test_reductions [SEED] */
#include "row_witness.h"
#include "flexlab/tensor_blocks.h"

__extension__ typedef __int128 int128;

static struct held x, dy, y, dx, z;

static void drop(struct held *h) {
    tensor_free(h->t);
    h->t = NULL;
}

/* --- coordinates -------------------------------------------------------------------------------------------------- */

struct box { /* all zero beyond its dimensions */
    int64_t ndim;
    int64_t size[TENSOR_MAX_DIMS];
};

static int64_t volume(const struct box *b) {
    int64_t n = 1;
    for (int d = 0; d < b->ndim; d++)
        n *= b->size[d];
    return n;
}

static void coordinates(const struct box *b, int64_t i, int64_t *at) {
    for (int d = (int)b->ndim - 1; d >= 0; i /= b->size[d--])
        at[d] = i % b->size[d];
}

/* The element of a box that is combined with an element of another: dimensions are aligned at the last, and those of
 * size 1 are repeated. */
static int64_t meets(const struct box *whole, const int64_t *at, const struct box *part) {
    int64_t i = 0;
    for (int d = 0; d < part->ndim; d++) {
        const int64_t c = at[d + (int)(whole->ndim - part->ndim)];
        i = i * part->size[d] + (part->size[d] == 1 ? 0 : c);
    }
    return i;
}

/* The box with 1 in place of the dimensions of a set, and without them. */
static struct box kept_of(const struct box *b, unsigned axes) {
    struct box k = *b;
    for (int d = 0; d < b->ndim; d++)
        k.size[d] = axes >> d & 1 ? 1 : b->size[d];
    return k;
}
static struct box squeezed(const struct box *b, unsigned axes) {
    struct box k = {0};
    for (int d = 0; d < b->ndim; d++)
        if (!(axes >> d & 1))
            k.size[k.ndim++] = b->size[d];
    if (!k.ndim)
        k.size[k.ndim++] = 1;
    return k;
}

/* Returns the elements of group g in order, and their number. The groups of a box are sorted at the first call. */
static int64_t sorted[MOST], first_of[MOST + 1], *members;
static int64_t group(const struct box *b, unsigned axes, int64_t g) {
    static struct box of;
    static unsigned along;
    static bool known;
    if (!known || memcmp(&of, b, sizeof of) || axes != along) {
        const struct box kept = kept_of(b, axes);
        int64_t at[TENSOR_MAX_DIMS], n = 0;
        memset(first_of, 0, sizeof first_of);
        for (int64_t i = 0; i < volume(b); i++) {
            coordinates(b, i, at);
            first_of[meets(b, at, &kept) + 1]++;
        }
        for (int64_t k = 0; k < volume(&kept); k++)
            first_of[k + 1] += first_of[k];
        static int64_t filled[MOST];
        memcpy(filled, first_of, sizeof filled);
        for (; n < volume(b); n++) {
            coordinates(b, n, at);
            sorted[filled[meets(b, at, &kept)]++] = n;
        }
        memcpy(&of, b, sizeof of);
        along = axes;
        known = true;
    }
    members = sorted + first_of[g];
    return first_of[g + 1] - first_of[g];
}

static void fresh(struct held *h, tensor_format f, const struct box *b) {
    h->t = tensor_new(f, (int)b->ndim, b->size);
    CHECK(h->t != NULL, "%s", tensor_error());
}

static int64_t mantissa(const struct held *h, int64_t i) {
    return ((const int16_t *)tensor_const_data(h->t))[i];
}

/* --- comparison of a stored element ------------------------------------------------------------------------------- */

static int64_t limited(int128 m) {
    return m > 32767 ? 32767 : m < -32767 ? -32767 : (int64_t)m;
}

/* p / q to the nearest integer, ties to even; q > 0. */
static int128 nearest(int128 p, int128 q) {
    int128 low = p / q;
    low -= p % q < 0;
    const int128 rest = p - low * q;
    return low + (2 * rest > q || (2 * rest == q && (low & 1)));
}

/* p / q at exponent e, as a mantissa at the exponent of `out`. */
static int64_t at_exponent(int128 p, int128 q, int e, const struct held *out) {
    const int up = tensor_exponent(out->t) - e;
    CHECK(up < 60 && up > -60, "exponents %d and %d", tensor_exponent(out->t), e);
    return limited(nearest(p * ((int128)1 << (up > 0 ? up : 0)), q * ((int128)1 << (up < 0 ? -up : 0))));
}

/* Whether m is the square root of s (at exponent 2 e) at the exponent of `out`: 2m - 1 and 2m + 1 are on either side of
 * twice the root, or it saturated. */
static bool is_root(int64_t m, int128 s, int e, const struct held *out) {
    const int up = 2 * (tensor_exponent(out->t) - e);
    const int128 t = 4 * s * ((int128)1 << (up > 0 ? up : 0)), unit = (int128)1 << (up < 0 ? -up : 0);
    const int128 below = (2 * (int128)m - 1) * (2 * (int128)m - 1) * unit,
                 above = (2 * (int128)m + 1) * (2 * (int128)m + 1) * unit;
    if (m == 0)
        return t <= above;
    const bool low = m & 1 ? t > below : t >= below, high = m & 1 ? t < above : t <= above;
    return low && (high || m == 32767);
}

/* Describes where a check failed. */
static const char *place(const char *what, const struct box *b, unsigned axes) {
    static char line[200];
    snprintf(line, sizeof line,
             "%s.%s %d dimensions, first %lld, last %lld, axes 0x%x:", tensor_format_name(tensor_format_of(x.t)), what,
             (int)b->ndim, (long long)b->size[0], (long long)b->size[b->ndim - 1], axes);
    return line;
}

static void check_mantissa(const char *what, const struct box *b, unsigned axes, const struct held *h, int64_t i,
                           int64_t want) {
    const int64_t got = mantissa(h, i);
    CHECK(got == want, "%s i=%lld got %lld want %lld", place(what, b, axes), (long long)i, (long long)got,
          (long long)want);
}

/* want: in binary32, or a double that is rounded to it. */
static void check_float(const char *what, const struct box *b, unsigned axes, const struct held *h, int64_t i,
                        double want) {
    const float rounded = (float)want;
    const double got = h->v[i];
    const bool same = rounded != rounded                   ? got != got
                      : tensor_format_of(h->t) == FMT_FP32 ? got == (double)rounded
                      : isinf(rounded)                     ? got == (double)rounded
                                                           : near_to(h, i, rounded, 0);
    CHECK(same, "%s i=%lld got %a want %a", place(what, b, axes), (long long)i, got, (double)rounded);
}

/* --- reductions --------------------------------------------------------------------------------------------------- */

enum { SUM, MEAN, MAX, MIN, L1, L2, KINDS };
static const char *const names[KINDS] = {"reduce_sum", "reduce_mean", "reduce_max",
                                         "reduce_min", "reduce_l1",   "reduce_l2"};
static tensor_status (*const reductions[KINDS])(tensor *, const tensor *, unsigned) = {
    tensor_reduce_sum, tensor_reduce_mean, tensor_reduce_max, tensor_reduce_min, tensor_reduce_l1, tensor_reduce_l2};

static int64_t first_best(int kind, int64_t n) {
    int64_t best = 0;
    for (int64_t j = 1; j < n; j++) {
        const double v = x.v[members[j]], w = x.v[members[best]];
        if (isnan(w))
            continue;
        if (isnan(v) || (kind == MAX ? v > w : v < w))
            best = j;
    }
    return best;
}

static void check_result(int kind, const struct box *b, unsigned axes, int64_t i) {
    const int64_t n = group(b, axes, i);
    if (kind == MAX || kind == MIN) {
        const double want = x.v[members[first_best(kind, n)]];
        if (tensor_format_is_shared(tensor_format_of(x.t)))
            CHECK(near_to(&y, i, want, 0), "%s got %a want %a", names[kind], y.v[i], want);
        else
            check_float(names[kind], b, axes, &y, i, want);
        return;
    }
    if (tensor_format_is_shared(tensor_format_of(x.t))) {
        int128 sum = 0;
        for (int64_t j = 0; j < n; j++) {
            const int64_t m = mantissa(&x, members[j]);
            sum += kind == L2 ? m * m : kind == L1 && m < 0 ? -m : m;
        }
        const int e = tensor_exponent(x.t);
        if (kind == L2)
            CHECK(is_root(mantissa(&y, i), sum, e, &y), "l2 of %lld terms: %lld", (long long)n,
                  (long long)mantissa(&y, i));
        else
            check_mantissa(names[kind], b, axes, &y, i, at_exponent(sum, kind == MEAN ? n : 1, e, &y));
        return;
    }
    double total = 0, squares = 0;
    float chain = 0;
    for (int64_t j = 0; j < n; j++) {
        const float v = (float)x.v[members[j]];
        if (j > 0 && j % 512 == 0) {
            total += kind == L2 ? squares : chain;
            chain = 0;
            squares = 0;
        }
        chain += kind == L1 ? fabsf(v) : v;
        squares += (double)v * v;
    }
    total += kind == L2 ? squares : chain;
    check_float(names[kind], b, axes, &y, i, kind == MEAN ? total / (double)n : kind == L2 ? sqrt(total) : total);
}

static void check_reductions(tensor_format f, const struct box *b, unsigned axes, int style) {
    make(&x, f, (int)b->ndim, b->size, style);
    const bool keep = between(0, 1);
    const struct box out = keep ? kept_of(b, axes) : squeezed(b, axes);
    for (int kind = 0; kind < KINDS; kind++) {
        fresh(&y, f, &out);
        CHECK(!reductions[kind](y.t, x.t, axes), "%s", tensor_error());
        hold(&y);
        for (int64_t i = 0; i < y.n; i++)
            check_result(kind, b, axes, i);
        drop(&y);
    }
    drop(&x);
}

/* --- gradients ---------------------------------------------------------------------------------------------------- */

static tensor_status gradient(int kind, unsigned axes) {
    switch (kind) {
    case SUM:
        return tensor_reduce_sum_grad(dx.t, dy.t, axes);
    case MEAN:
        return tensor_reduce_mean_grad(dx.t, dy.t, axes);
    case MAX:
        return tensor_reduce_max_grad(dx.t, dy.t, x.t, axes);
    case MIN:
        return tensor_reduce_min_grad(dx.t, dy.t, x.t, axes);
    case L1:
        return tensor_reduce_l1_grad(dx.t, dy.t, x.t, axes);
    default:
        return tensor_reduce_l2_grad(dx.t, dy.t, x.t, axes);
    }
}

static void check_slopes(int kind, const struct box *b, unsigned axes, int64_t g) {
    const int64_t n = group(b, axes, g), best = kind == MAX || kind == MIN ? first_best(kind, n) : 0;
    const bool shared = tensor_format_is_shared(tensor_format_of(x.t));
    long double squares = 0;
    for (int64_t j = 0; j < n; j++)
        squares += (long double)x.v[members[j]] * x.v[members[j]];
    for (int64_t j = 0; j < n; j++) {
        const int64_t i = members[j];
        const double slope = kind == MAX || kind == MIN ? j == best : kind == L1 ? (x.v[i] > 0) - (x.v[i] < 0) : 1;
        if (kind == L2) {
            const long double want = squares == 0 ? 0 : (long double)dy.v[g] * x.v[i] / sqrtl(squares);
            CHECK(near_to(&dx, i, want, fabsl(want) * 0x1p-50L), "l2_grad i=%lld got %a want %Lg", (long long)i,
                  dx.v[i], want);
        } else if (shared) {
            check_mantissa(
                names[kind], b, axes, &dx, i,
                at_exponent((int128)mantissa(&dy, g) * (int)slope, kind == MEAN ? n : 1, tensor_exponent(dy.t), &dx));
        } else {
            check_float(names[kind], b, axes, &dx, i, dy.v[g] * slope / (kind == MEAN ? (double)n : 1));
        }
    }
}

static void check_gradients(tensor_format f, const struct box *b, unsigned axes, int style) {
    const struct box out = between(0, 1) ? kept_of(b, axes) : squeezed(b, axes);
    make(&x, f, (int)b->ndim, b->size, style);
    make(&dy, f, (int)out.ndim, out.size, 0);
    for (int kind = 0; kind < KINDS; kind++) {
        fresh(&dx, f, b);
        CHECK(!gradient(kind, axes), "%s", tensor_error());
        hold(&dx);
        for (int64_t g = 0; g < dy.n; g++)
            check_slopes(kind, b, axes, g);
        drop(&dx);
    }
    drop(&x);
    drop(&dy);
}

/* Along a direction d: <dy, (y(x + h d) - y(x - h d)) / 2h> and <dx, d>, in binary32. Bound: binary32 of y, 2^-24 a
 * number, over h = 2^-7; curvature of the norms, whose third derivative is below 1 / norm^2 < 1 here. */
static void check_differences(int kind) {
    enum { N = 4 * 6 * 5 };
    const struct box b = {3, {4, 6, 5}};
    const unsigned axes = 2;
    const double h = 0x1p-7;
    double direction[N], moved[N], ends[2][20], sum = 0, slope = 0, sizes = 0;
    const struct box out = squeezed(&b, axes);
    make(&x, FMT_FP32, 3, b.size, 0);
    make(&dy, FMT_FP32, 2, out.size, 0);
    for (int i = 0; i < N;
         i++) { /* steps change neither signs nor which element is largest: distances are at least 1/4 */
        x.v[i] = (double)(i % 2 ? -1 : 1) * (0.5 + 0.25 * ((i * 29) % 31));
        direction[i] = unit();
    }
    for (int end = 0; end < 2; end++) {
        for (int i = 0; i < N; i++)
            moved[i] = x.v[i] + (end ? h : -h) * direction[i];
        fresh(&y, FMT_FP32, &out);
        CHECK(!tensor_load_f64(x.t, moved, N) && !reductions[kind](y.t, x.t, axes) &&
                  !tensor_store_f64(y.t, ends[end], 20),
              "%s", tensor_error());
        drop(&y);
    }
    fresh(&dx, FMT_FP32, &b);
    CHECK(!tensor_load_f64(x.t, x.v, N) && !gradient(kind, axes), "%s", tensor_error());
    hold(&dx);
    for (int i = 0; i < 20; i++) {
        slope += dy.v[i] * (ends[1][i] - ends[0][i]) / (2 * h);
        sizes += fabs(dy.v[i]) * (fabs(ends[0][i]) + 1);
    }
    for (int i = 0; i < N; i++)
        sum += dx.v[i] * direction[i];
    CHECK(fabs(sum - slope) <= sizes * (0x1p-23 / h + h * h), "%s: %g, differences %g, bound %g", names[kind], sum,
          slope, sizes * (0x1p-23 / h + h * h));
    drop(&x);
    drop(&dx);
    drop(&dy);
}

/* --- argmax ------------------------------------------------------------------------------------------------------- */

static void check_argmax(tensor_format f, const struct box *b, int axis, int style) {
    static int32_t got[MOST];
    make(&x, f, (int)b->ndim, b->size, style);
    const struct box out = squeezed(b, 1u << axis);
    tensor *index = tensor_new(FMT_I32, (int)out.ndim, out.size);
    CHECK(index && !tensor_argmax(index, x.t, axis) && !tensor_store_i32(index, got, volume(&out)), "%s",
          tensor_error());
    for (int64_t i = 0; i < volume(&out); i++) {
        const int64_t n = group(b, 1u << axis, i);
        const int64_t want = first_best(MAX, n);
        CHECK(got[i] == want, "%s.argmax axis %d i=%lld got %d want %lld", tensor_format_name(f), axis, (long long)i,
              got[i], (long long)want);
    }
    tensor_free(index);
    drop(&x);
}

/* --- broadcast operands ------------------------------------------------------------------------------------------- */

static struct box drawn_part(const struct box *b) {
    struct box part = *b;
    for (int d = 0; d < b->ndim; d++)
        part.size[d] = between(0, 2) ? b->size[d] : 1;
    const int skipped = between(0, (int)b->ndim - 1);
    if (between(0, 1)) {
        part.ndim -= skipped;
        memmove(part.size, part.size + skipped, (size_t)part.ndim * sizeof part.size[0]);
    }
    return part;
}

/* Checks the exact sum, or product, of two numbers of the format, in exact long doubles. */
static void check_pair(const char *what, const struct box *b, int64_t i, double left, double right, bool product) {
    const long double exact = product ? (long double)left * right : (long double)left + right;
    if (tensor_format_is_shared(tensor_format_of(y.t)))
        check_mantissa(what, b, 0, &y, i, limited((int128)rintl(ldexpl(exact, tensor_exponent(y.t)))));
    else
        check_float(what, b, 0, &y, i, product ? (float)left * (float)right : (float)left + (float)right);
}

static void check_broadcast(tensor_format f, const struct box *b, int style) {
    const struct box ba = drawn_part(b), bb = drawn_part(b);
    int64_t at[TENSOR_MAX_DIMS];
    make(&x, f, (int)ba.ndim, ba.size, style);
    make(&z, f, (int)bb.ndim, bb.size, 0);
    for (int product = 0; product < 2; product++) {
        fresh(&y, f, b);
        CHECK(!(product ? tensor_broadcast_mul : tensor_broadcast_add)(y.t, x.t, z.t), "%s", tensor_error());
        hold(&y);
        for (int64_t i = 0; i < y.n; i++) {
            coordinates(b, i, at);
            check_pair(product ? "broadcast_mul" : "broadcast_add", b, i, x.v[meets(b, at, &ba)],
                       z.v[meets(b, at, &bb)], product);
        }
        drop(&y);
    }
    /* gradients of a: sums over the dimensions along which it was repeated */
    make(&dy, f, (int)b->ndim, b->size, 0);
    static long double exact[MOST];
    static double total[MOST];
    static float chain[MOST];
    static int terms[MOST];
    for (int product = 0; product < 2; product++) {
        fresh(&dx, f, &ba);
        CHECK(!(product ? tensor_broadcast_mul_grad(dx.t, dy.t, z.t) : tensor_broadcast_add_grad(dx.t, dy.t)), "%s",
              tensor_error());
        hold(&dx);
        for (int64_t i = 0; i < dx.n; i++)
            exact[i] = total[i] = chain[i] = 0, terms[i] = 0;
        for (int64_t i = 0; i < dy.n; i++) {
            coordinates(b, i, at);
            const int64_t to = meets(b, at, &ba);
            const double other = product ? z.v[meets(b, at, &bb)] : 1;
            exact[to] += (long double)dy.v[i] * other;
            if (terms[to] && terms[to] % 512 == 0)
                total[to] += chain[to], chain[to] = 0;
            chain[to] = product ? fmaf((float)dy.v[i], (float)other, chain[to]) : chain[to] + (float)dy.v[i];
            terms[to]++;
        }
        for (int64_t i = 0; i < dx.n; i++)
            if (tensor_format_is_shared(f))
                check_mantissa("broadcast gradient", b, (unsigned)product, &dx, i,
                               limited((int128)rintl(ldexpl(exact[i], tensor_exponent(dx.t)))));
            else
                check_float("broadcast gradient", b, (unsigned)product, &dx, i, total[i] + chain[i]);
        drop(&dx);
    }
    drop(&dy);
    drop(&x);
    drop(&z);
}

static void check_where(tensor_format f, const struct box *b) {
    static uint8_t mark[MOST];
    const struct box ba = drawn_part(b), bb = drawn_part(b), bm = drawn_part(b);
    int64_t at[TENSOR_MAX_DIMS];
    for (int64_t i = 0; i < volume(&bm); i++)
        mark[i] = between(0, 1) ? (uint8_t)between(1, 255) : 0;
    tensor *mask = tensor_new(FMT_U8, (int)bm.ndim, bm.size);
    CHECK(mask && !tensor_load_u8(mask, mark, volume(&bm)), "%s", tensor_error());
    make(&x, f, (int)ba.ndim, ba.size, 0);
    make(&z, f, (int)bb.ndim, bb.size, 0);
    fresh(&y, f, b);
    CHECK(!tensor_where(y.t, mask, x.t, z.t), "%s", tensor_error());
    hold(&y);
    for (int64_t i = 0; i < y.n; i++) {
        coordinates(b, i, at);
        check_pair("where", b, i, mark[meets(b, at, &bm)] ? x.v[meets(b, at, &ba)] : z.v[meets(b, at, &bb)], 0, false);
    }
    drop(&y);
    make(&dy, f, (int)b->ndim, b->size, 0);
    for (int marked = 0; marked < 2; marked++) {
        fresh(&y, f, b);
        CHECK(!tensor_where_grad(y.t, dy.t, mask, marked), "%s", tensor_error());
        hold(&y);
        for (int64_t i = 0; i < y.n; i++) {
            coordinates(b, i, at);
            check_pair("where_grad", b, i, (mark[meets(b, at, &bm)] != 0) == marked ? dy.v[i] : 0, 0, false);
        }
        drop(&y);
    }
    tensor_free(mask);
    drop(&x);
    drop(&z);
    drop(&dy);
}

/* --- special values, extremes ------------------------------------------------------------------------------------- */

static void check_not_a_number(void) {
    const float values[3][4] = {{1, NAN, 3, NAN}, {-2, -2, INFINITY, 5}, {-0.0f, 0, -INFINITY, 0}};
    const struct box b = {2, {3, 4}};
    double got[3];
    int32_t index[3];
    x.t = tensor_new(FMT_FP32, 2, b.size);
    y.t = tensor_new(FMT_FP32, TENSOR_SHAPE(3));
    tensor *where = tensor_new(FMT_I32, TENSOR_SHAPE(3, 1));
    CHECK(!tensor_load_f32(x.t, values[0], 12), "%s", tensor_error());
    CHECK(!tensor_reduce_max(y.t, x.t, 2) && !tensor_store_f64(y.t, got, 3), "%s", tensor_error());
    CHECK(isnan(got[0]) && got[1] == INFINITY && got[2] == 0 && signbit(got[2]), "max %g %g %g", got[0], got[1],
          got[2]);
    CHECK(!tensor_reduce_min(y.t, x.t, 2) && !tensor_store_f64(y.t, got, 3), "%s", tensor_error());
    CHECK(isnan(got[0]) && got[1] == -2 && got[2] == -INFINITY, "min %g %g %g", got[0], got[1], got[2]);
    CHECK(!tensor_reduce_sum(y.t, x.t, 2) && !tensor_store_f64(y.t, got, 3), "%s", tensor_error());
    CHECK(isnan(got[0]) && got[1] == INFINITY && got[2] == -INFINITY, "sum %g %g %g", got[0], got[1], got[2]);
    CHECK(!tensor_reduce_l2(y.t, x.t, 2) && !tensor_store_f64(y.t, got, 3), "%s", tensor_error());
    CHECK(isnan(got[0]) && got[1] == INFINITY && got[2] == INFINITY, "l2 %g %g %g", got[0], got[1], got[2]);
    CHECK(!tensor_argmax(where, x.t, 1) && !tensor_store_i32(where, index, 3), "%s", tensor_error());
    CHECK(index[0] == 1 && index[1] == 2 && index[2] == 0, "argmax %d %d %d", index[0], index[1], index[2]);
    tensor_free(where);
    drop(&x);
    drop(&y);
    /* a norm whose squares are beyond binary32, and one whose squares are below it */
    x.t = tensor_new(FMT_FP32, TENSOR_SHAPE(2, 2));
    y.t = tensor_new(FMT_FP32, TENSOR_SHAPE(2));
    CHECK(!tensor_load_f64(x.t, (double[]){3e30, 4e30, 3e-40, 4e-40}, 4) && !tensor_reduce_l2(y.t, x.t, 2) &&
              !tensor_store_f64(y.t, got, 2),
          "%s", tensor_error());
    CHECK(fabs(got[0] / 5e30 - 1) < 1e-6 && fabs(got[1] / 5e-40 - 1) < 1e-4, "norms %g %g", got[0], got[1]);
    drop(&x);
    drop(&y);
}

/* All mantissas at the ends of their range: sums, squares and quotients are largest. */
static void check_extremes(tensor_format f) {
    enum { N = 1 << 15 };
    static int16_t ends[N];
    x.t = tensor_new(f, TENSOR_SHAPE(N));
    y.t = tensor_new(f, TENSOR_SHAPE(1));
    for (int i = 0; i < N; i++)
        ends[i] = i % 3 ? 32767 : INT16_MIN; /* raw access may write this value */
    for (int e = 2; e < 20; e += 17) {
        memcpy(tensor_data(x.t), ends, sizeof ends);
        CHECK(!tensor_declare_exponent(x.t, e), "%s", tensor_error());
        hold(&x);
        const struct box b = {1, {N}};
        for (int kind = 0; kind < KINDS; kind++) {
            CHECK(!tensor_set_predictor(y.t, "current") && !reductions[kind](y.t, x.t, 1), "%s", tensor_error());
            hold(&y);
            check_result(kind, &b, 1, 0);
        }
    }
    drop(&x);
    drop(&y);
}

/* Over all but the last dimension, sums have the bits of tensor_sum_rows. */
static void check_sum_rows(tensor_format f) {
    make(&x, f, 3, (int64_t[]){41, 25, 17}, 0);
    y.t = tensor_new(f, TENSOR_SHAPE(17));
    z.t = tensor_new(f, TENSOR_SHAPE(17));
    CHECK(!tensor_sum_rows(y.t, x.t) && !tensor_reduce_sum(z.t, x.t, 3), "%s", tensor_error());
    CHECK(tensor_exponent(y.t) == tensor_exponent(z.t) &&
              !memcmp(tensor_const_data(y.t), tensor_const_data(z.t), 17 * tensor_format_bytes(f)),
          "%s: sum_rows and reduce_sum differ", tensor_format_name(f));
    drop(&x);
    drop(&y);
    drop(&z);
}

/* --- errors ------------------------------------------------------------------------------------------------------- */

#define REFUSED(call, code, words)                                                                                     \
    CHECK((call) == (code) && strstr(tensor_error(), words), #call ": %s", tensor_error())

static void check_errors(void) {
    tensor *a = tensor_new(FMT_FP32, TENSOR_SHAPE(2, 3)), *b = tensor_new(FMT_FP32, TENSOR_SHAPE(3)),
           *c = tensor_new(FMT_BF16, TENSOR_SHAPE(2)), *u = tensor_new(FMT_U8, TENSOR_SHAPE(4)),
           *i = tensor_new(FMT_I32, TENSOR_SHAPE(2));
    REFUSED(tensor_reduce_sum(NULL, a, 1), TENSOR_E_ARGUMENT, "y is NULL");
    REFUSED(tensor_reduce_sum(b, NULL, 1), TENSOR_E_ARGUMENT, "x is NULL");
    REFUSED(tensor_reduce_sum(b, a, 4), TENSOR_E_ARGUMENT, "axes are 0x4");
    REFUSED(tensor_reduce_mean(b, a, 2), TENSOR_E_SHAPE, "y is 3, expected 2");
    REFUSED(tensor_reduce_max(c, a, 2), TENSOR_E_FORMAT, "bf16");
    REFUSED(tensor_reduce_l2(b, b, 0), TENSOR_E_ARGUMENT, "same tensor");
    REFUSED(tensor_reduce_l2(u, u, 0), TENSOR_E_FORMAT, "u8");
    REFUSED(tensor_reduce_max_grad(a, b, NULL, 1), TENSOR_E_ARGUMENT, "x is NULL");
    REFUSED(tensor_reduce_max_grad(a, b, b, 1), TENSOR_E_SHAPE, "dx is 2x3, expected 3");
    REFUSED(tensor_argmax(i, a, 2), TENSOR_E_ARGUMENT, "axis is 2");
    REFUSED(tensor_argmax(i, a, 0), TENSOR_E_SHAPE, "expected i32 with 3");
    REFUSED(tensor_argmax(c, a, 1), TENSOR_E_FORMAT, "index is bf16 2, expected i32");
    tensor *g = tensor_new(FMT_FP32, TENSOR_SHAPE(3));
    REFUSED(tensor_broadcast_add(g, a, b), TENSOR_E_SHAPE, "a is 2x3, expected 3, or 1");
    REFUSED(tensor_broadcast_mul(a, a, b), TENSOR_E_ARGUMENT, "same tensor");
    REFUSED(tensor_broadcast_mul_grad(b, a, NULL), TENSOR_E_ARGUMENT, "b is NULL");
    tensor *d = tensor_new(FMT_FP32, TENSOR_SHAPE(2, 3));
    REFUSED(tensor_where(d, u, a, a), TENSOR_E_SHAPE, "mask is 4");
    REFUSED(tensor_where(d, i, a, a), TENSOR_E_FORMAT, "mask is i32 2, expected u8");
    REFUSED(tensor_where(d, NULL, a, a), TENSOR_E_ARGUMENT, "mask is NULL");
    REFUSED(tensor_where_grad(d, b, u, true), TENSOR_E_SHAPE, "da is 2x3, expected 3");
    tensor_free(a);
    tensor_free(b);
    tensor_free(c);
    tensor_free(d);
    tensor_free(u);
    tensor_free(g);
    tensor_free(i);
}

/* --- all checks --------------------------------------------------------------------------------------------------- */

static struct box drawn_box(int most) {
    static const int64_t liked[] = {1, 1, 2, 3, 4, 5, 7};
    struct box b = {between(1, TENSOR_MAX_DIMS), {0}};
    do {
        for (int d = 0; d < b.ndim; d++)
            b.size[d] = liked[between(0, 6)];
    } while (volume(&b) > most);
    return b;
}

int main(int argc, char **argv) {
    draws = argc > 1 ? strtoull(argv[1], NULL, 0) : 20261122;
    printf("seed %llu\n", (unsigned long long)draws);
    static const struct box fixed[] = {{1, {1}}, {2, {1030, 2}}, {2, {2, 1030}}, {3, {2, 514, 2}}, {2, {1, 300}}};
    for (int k = 0; k < 5; k++) {
        const tensor_format f = all_formats[k];
        for (int i = 0; i < 5 + 6; i++) {
            const struct box b = i < 5 ? fixed[i] : drawn_box(100);
            for (unsigned axes = 0; axes < 1u << b.ndim; axes++) {
                const int style = between(0, STYLES - 1);
                check_reductions(f, &b, axes, style);
                check_gradients(f, &b, axes, style);
            }
            for (int axis = 0; axis < b.ndim; axis++)
                check_argmax(f, &b, axis, between(0, STYLES - 1));
            for (int j = 0; j < 6; j++) {
                check_broadcast(f, &b, between(0, STYLES - 1));
                check_where(f, &b);
            }
        }
        check_sum_rows(f);
        if (tensor_format_is_shared(f))
            check_extremes(f);
    }
    for (int kind = 0; kind < KINDS; kind++)
        check_differences(kind);
    check_not_a_number();
    check_errors();
    return check_summary();
}
