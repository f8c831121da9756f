/* Average pooling by windows and adaptive, and the gradients. The witness adds exact fractions: every mean is a
 * fraction of integers (of mantissas, or of the multiples of 2^-6 that are the values of float formats), summed over a
 * common denominator by Euclid; it locates windows by testing every pixel of the image. A stored mantissa must be the
 * nearest integer to that fraction, ties to even: compared by cross-multiplication, without any floating-point number.
 * Float formats are held to half a unit in the last place. */
#include "row_witness.h"
#include "flexlab/tensor_blocks.h"

__extension__ typedef __int128 wide;

static wide common_divisor(wide a, wide b) {
    a = a < 0 ? -a : a;
    while (b) {
        const wide rest = a % b;
        a = b;
        b = rest;
    }
    return a ? a : 1;
}

struct fraction {
    wide top, bottom; /* bottom above 0 */
};

static struct fraction plus(struct fraction a, wide top, wide bottom) {
    const struct fraction sum = {a.top * bottom + top * a.bottom, a.bottom * bottom};
    const wide by = common_divisor(sum.top, sum.bottom);
    return (struct fraction){sum.top / by, sum.bottom / by};
}

/* One call of a pooling. */
struct pooling {
    bool adaptive, counts;
    tensor_window how;
    int64_t n, h, w, c, p, q;
};

/* Whether position `at` of a side, down or across, belongs to window i; if adaptive, in the units of `parts` windows
 * over a length. */
static bool is_in(const struct pooling *l, int way, int64_t i, int64_t at, int64_t length, int64_t parts) {
    const int64_t begin = i * l->how.stride[way] - l->how.padding[2 * way];
    if (!l->adaptive)
        return at >= begin && at < begin + l->how.window[way];
    return (at + 1) * parts > i * length && at * parts < (i + 1) * length; /* the parts overlap the position */
}

static int64_t count_in(const struct pooling *l, int way, int64_t i, int64_t length, int64_t parts) {
    int64_t count = 0;
    for (int64_t at = 0; at < length; at++)
        count += is_in(l, way, i, at, length, parts);
    return l->counts && !l->adaptive ? l->how.window[way] : count;
}

/* The stored element must be the fraction times 2^-e_in, rounded once. */
static void check_rounded(const struct held *y, int64_t i, struct fraction want, int e_in, const char *what) {
    const tensor_format f = tensor_format_of(y->t);
    if (!tensor_format_is_shared(f)) {
        const long double value = ldexpl((long double)want.top / (long double)want.bottom, -e_in);
        CHECK(near_to(y, i, value, fabsl(value) * 0x1p-40L + 0x1p-48L), /* shares of a gradient may cancel */
              "%s i=%lld got %a want %La", what, (long long)i, y->v[i], value);
        return;
    }
    const int shift = tensor_exponent(y->t) - e_in; /* units of the result in those of the fraction */
    wide top = want.top, bottom = want.bottom;
    if (shift > 0)
        top *= (wide)1 << shift;
    else
        bottom *= (wide)1 << -shift;
    const wide got = ((const int16_t *)tensor_const_data(y->t))[i];
    const wide twice = 2 * (got * bottom - top), off = twice < 0 ? -twice : twice; /* 2 bottom |got - want| */
    const bool saturated = got == 32767 || got == -32767;
    CHECK(off < bottom || (off == bottom && got % 2 == 0) || (saturated && (top < 0) == (got < 0)),
          "%s i=%lld got %lld want %lld / %lld, off by %lld / %lld of a unit", what, (long long)i, (long long)got,
          (long long)top, (long long)bottom, (long long)off, (long long)(2 * bottom));
}

/* Element i as an integer in units of 2^-e. */
static wide integer_of(const struct held *h, int64_t i, int e) {
    return (wide)ldexp(h->v[i], e);
}

static struct held x, y, dy, dx;

static void fill(struct held *h, tensor_format f, const int64_t shape[4], bool large) {
    static double values[MOST];
    h->t = tensor_new(f, 4, shape);
    CHECK(h->t != NULL, "%s", tensor_error());
    for (int64_t i = 0; i < tensor_count(h->t); i++)
        values[i] = between(large ? 200 : -255, 255) * 0x1p-6; /* every format represents them exactly */
    CHECK(!tensor_load_f64(h->t, values, tensor_count(h->t)), "%s", tensor_error());
    hold(h);
}

static int unit_of(const tensor *t) {
    return tensor_format_is_shared(tensor_format_of(t)) ? tensor_exponent(t) : 6;
}

static void check_forward(const struct pooling *l, const char *what) {
    const int e = unit_of(x.t);
    int64_t i = 0;
    for (int64_t n = 0; n < l->n; n++)
        for (int64_t p = 0; p < l->p; p++)
            for (int64_t q = 0; q < l->q; q++)
                for (int64_t c = 0; c < l->c; c++, i++) {
                    wide sum = 0;
                    for (int64_t a = 0; a < l->h; a++)
                        for (int64_t b = 0; b < l->w; b++)
                            if (is_in(l, 0, p, a, l->h, l->p) && is_in(l, 1, q, b, l->w, l->q))
                                sum += integer_of(&x, ((n * l->h + a) * l->w + b) * l->c + c, e);
                    const int64_t count = count_in(l, 0, p, l->h, l->p) * count_in(l, 1, q, l->w, l->q);
                    check_rounded(&y, i, (struct fraction){sum, count}, e, what);
                }
}

static void check_backward(const struct pooling *l, const char *what) {
    const int e = unit_of(dy.t);
    int64_t i = 0;
    for (int64_t n = 0; n < l->n; n++)
        for (int64_t a = 0; a < l->h; a++)
            for (int64_t b = 0; b < l->w; b++)
                for (int64_t c = 0; c < l->c; c++, i++) {
                    struct fraction sum = {0, 1};
                    for (int64_t p = 0; p < l->p; p++)
                        for (int64_t q = 0; q < l->q; q++)
                            if (is_in(l, 0, p, a, l->h, l->p) && is_in(l, 1, q, b, l->w, l->q))
                                sum = plus(sum, integer_of(&dy, ((n * l->p + p) * l->q + q) * l->c + c, e),
                                           count_in(l, 0, p, l->h, l->p) * count_in(l, 1, q, l->w, l->q));
                    check_rounded(&dx, i, sum, e, what);
                }
}

static void free_all(void) {
    struct held *all[] = {&x, &y, &dy, &dx};
    for (int i = 0; i < 4; i++) {
        tensor_free(all[i]->t);
        all[i]->t = NULL;
    }
}

static void check_pooling(tensor_format f, const struct pooling *l) {
    char what[200];
    snprintf(what, sizeof what,
             "%s %s %lldx%lldx%lldx%lld to %lldx%lld window %dx%d stride %dx%d padding %d %d %d %d %s",
             tensor_format_name(f), l->adaptive ? "adaptive" : "windows", (long long)l->n, (long long)l->h,
             (long long)l->w, (long long)l->c, (long long)l->p, (long long)l->q, l->how.window[0], l->how.window[1],
             l->how.stride[0], l->how.stride[1], l->how.padding[0], l->how.padding[1], l->how.padding[2],
             l->how.padding[3], l->counts ? "counts" : "");
    const int64_t image[4] = {l->n, l->h, l->w, l->c}, small[4] = {l->n, l->p, l->q, l->c};
    fill(&x, f, image, check_random(&draws) & 1);
    fill(&dy, f, small, check_random(&draws) & 1);
    y.t = tensor_new(f, 4, small);
    dx.t = tensor_new(f, 4, image);
    for (int again = 0; again < 2; again++) { /* an exponent that is found, then one that is predicted */
        CHECK(!(l->adaptive ? tensor_avgpool_adaptive(y.t, x.t) : tensor_avgpool2d(y.t, x.t, &l->how, l->counts)),
              "%s: %s", what, tensor_error());
        CHECK(!(l->adaptive ? tensor_avgpool_adaptive_grad(dx.t, dy.t)
                            : tensor_avgpool2d_grad(dx.t, dy.t, &l->how, l->counts)),
              "%s: %s", what, tensor_error());
        hold(&y);
        hold(&dx);
        check_forward(l, what);
        check_backward(l, what);
    }
    free_all();
}

static struct pooling draw_pooling(void) {
    struct pooling l = {.n = between(1, 2), .h = between(1, 9), .w = between(1, 9), .c = between(1, 5)};
    l.adaptive = between(0, 2) == 0;
    l.p = between(1, 6);
    l.q = between(1, 12);
    const bool square = between(0, 1);
    int64_t *const sizes[] = {&l.h, &l.w}, *const places[] = {&l.p, &l.q};
    l.counts = between(0, 1);
    for (int way = 0; way < 2; way++) {
        const bool same = way && square;
        int *window = l.how.window, *stride = l.how.stride, *padding = l.how.padding;
        window[way] = same ? window[0] : between(1, 6);
        stride[way] = same ? stride[0] : between(1, 4);
        for (int side = 2 * way; side < 2 * way + 2; side++)
            padding[side] = square && side ? padding[0] : between(0, window[way] - 1);
        if (l.adaptive)
            continue;
        const int64_t around = padding[2 * way] + padding[2 * way + 1];
        while (*sizes[way] + around < window[way])
            ++*sizes[way];
        *places[way] = (*sizes[way] + around - window[way]) / stride[way] + 1;
    }
    return l;
}

/* One window over everything is the global mean, bit for bit. */
static void check_global(tensor_format f) {
    const int64_t image[4] = {3, 7, 5, 9};
    make(&x, f, 4, image, 0);
    y.t = tensor_new(f, TENSOR_SHAPE(3, 1, 1, 9));
    dy.t = tensor_new(f, TENSOR_SHAPE(3, 9));
    CHECK(!tensor_avgpool_adaptive(y.t, x.t) && !tensor_avgpool_global(dy.t, x.t), "%s", tensor_error());
    CHECK(!memcmp(tensor_const_data(y.t), tensor_const_data(dy.t), tensor_bytes(y.t)) &&
              tensor_exponent(y.t) == tensor_exponent(dy.t),
          "%s: adaptive to 1x1 is not the global mean", tensor_format_name(f));
    free_all();
}

/* A gradient whose counts have a large common multiple is computed in wide integers, with the same fractions. */
static void check_wide(tensor_format f) {
    check_pooling(
        f, &(struct pooling){.how = {TENSOR_SQUARE(18, 1, 17)}, .n = 1, .h = 18, .w = 5, .c = 1, .p = 35, .q = 22});
}

static void check_errors(void) {
    tensor *a = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(1, 8, 8, 2)),
           *b = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(1, 4, 4, 2)), *m = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(8, 8)),
           *h = tensor_new(FMT_FP16, TENSOR_SHAPE(1, 4, 4, 2)), *k = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(2, 4, 4, 2)),
           *l = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(1, 60, 60, 1)),
           *s = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(1, 99, 99, 1));
    const tensor_window two = {TENSOR_SQUARE(2, 2, 0)};
#define REFUSED(call, status, words)                                                                                   \
    CHECK((call) == (status) && strstr(tensor_error(), words), "%s: expected %s, got '%s'", #call, words,              \
          tensor_error())
    REFUSED(tensor_avgpool2d(b, a, &(tensor_window){TENSOR_SQUARE(0, 1, 0)}, false), TENSOR_E_ARGUMENT,
            "window_height is 0");
    REFUSED(tensor_avgpool2d(b, a, &(tensor_window){TENSOR_SQUARE(2, -1, 0)}, false), TENSOR_E_ARGUMENT,
            "stride_down is -1, expected 1 to 4095");
    REFUSED(tensor_avgpool2d(b, a, &(tensor_window){TENSOR_SQUARE(2, 2, 0), .dilation = {2, 1}}, false),
            TENSOR_E_ARGUMENT, "dilation 2x1, expected 1");
    REFUSED(tensor_avgpool2d(b, a, &(tensor_window){TENSOR_SQUARE(2, 2, 2)}, false), TENSOR_E_ARGUMENT,
            "padding 2, expected less than the window 2");
    REFUSED(tensor_avgpool2d(b, a, &(tensor_window){TENSOR_SQUARE(2, 2, 0), .groups = 2}, false), TENSOR_E_ARGUMENT,
            "2 groups");
    REFUSED(tensor_avgpool2d(b, a, &(tensor_window){TENSOR_SQUARE(20, 2, 0)}, false), TENSOR_E_SHAPE,
            "a window of 20 does not fit a 8x8 image");
    REFUSED(tensor_avgpool2d(b, a, &(tensor_window){TENSOR_SQUARE(3, 2, 0)}, false), TENSOR_E_SHAPE, "expected");
    REFUSED(tensor_avgpool2d(b, m, &two, false), TENSOR_E_SHAPE, "expected [N,H,W,C]");
    REFUSED(tensor_avgpool2d(h, a, &two, false), TENSOR_E_FORMAT, "fp16");
    REFUSED(tensor_avgpool2d(b, NULL, &two, false), TENSOR_E_ARGUMENT, "x is NULL");
    REFUSED(tensor_avgpool2d(a, a, &two, false), TENSOR_E_ARGUMENT, "same tensor");
    REFUSED(tensor_avgpool_adaptive(k, a), TENSOR_E_SHAPE, "expected");
    REFUSED(tensor_avgpool2d_grad(l, s, &(tensor_window){TENSOR_SQUARE(40, 1, 39)}, false), TENSOR_E_ARGUMENT, "2^48");
    CHECK(!tensor_avgpool2d_grad(l, s, &(tensor_window){TENSOR_SQUARE(40, 1, 39)}, true), "%s", tensor_error());
    CHECK(!tensor_avgpool2d(b, a, &two, false), "%s", tensor_error());
    tensor *all[] = {a, b, m, h, k, l, s};
    for (int i = 0; i < 7; i++)
        tensor_free(all[i]);
}

int main(int argc, char **argv) {
    draws = argc > 1 ? strtoull(argv[1], NULL, 0) : 20260211;
    printf("seed %llu\n", (unsigned long long)draws);
    for (int i = 0; i < 240; i++) { /* the best kernels, then those of the reference */
        CHECK(!tensor_set_backend(i < 160 ? NULL : "ref"), "%s", tensor_error());
        const struct pooling l = draw_pooling();
        check_pooling(all_formats[i % 5], &l);
        if (i % 40 < 5)
            check_global(all_formats[i % 5]);
        if (i % 160 < 5)
            check_wide(all_formats[i % 5]);
    }
    CHECK(!tensor_set_backend(NULL), "%s", tensor_error());
    check_errors();
    return check_summary();
}
