/* Views with strides: operations that read them give the results of a contiguous tensor of the same elements, bit for
 * bit; all others refuse them and name the stride (functions: test_signatures.c); views beyond their base are refused.
 *
 *     test_strides [SEED] */
#include "host_numbers.h"
#include "row_witness.h"
#include "flexlab/tensor_blocks.h"

struct view {
    int ndim;
    int64_t shape[TENSOR_MAX_DIMS], stride[TENSOR_MAX_DIMS], offset;
};

/* A view of a base of `count` elements: any strides, also 0 and negative ones. */
static struct view drawn_view(int64_t count) {
    struct view v = {.ndim = between(1, TENSOR_MAX_DIMS)};
    for (;;) {
        int64_t least = 0, most = 0, n = 1;
        for (int d = 0; d < v.ndim; d++) {
            v.shape[d] = between(1, 6);
            v.stride[d] = between(-7, 7) * (between(0, 2) ? 1 : between(1, 9));
            const int64_t reach = (v.shape[d] - 1) * v.stride[d];
            least += reach < 0 ? reach : 0;
            most += reach > 0 ? reach : 0;
            n *= v.shape[d];
        }
        if (most - least >= count || n > 3000)
            continue;
        v.offset = -least + between(0, (int)(count - 1 - (most - least)));
        return v;
    }
}

static int64_t element_of(const struct view *v, int64_t i) {
    int64_t at = v->offset;
    for (int d = v->ndim - 1; d >= 0; i /= v->shape[d--])
        at += i % v->shape[d] * v->stride[d];
    return at;
}

static tensor *strided(tensor *base, const struct view *v) {
    tensor *t = tensor_new_strided(base, v->ndim, v->shape, v->stride, v->offset);
    CHECK(t && tensor_count(t) > 0 && tensor_ndim(t) == v->ndim, "%s", tensor_error());
    return t;
}

/* The same elements, contiguous, at the base's exponent. */
static tensor *gathered(const struct held *base, const struct view *v) {
    static char bytes[1 << 15];
    tensor *t = tensor_new(tensor_format_of(base->t), v->ndim, v->shape);
    const size_t size = tensor_format_bytes(tensor_format_of(base->t));
    for (int64_t i = 0; i < tensor_count(t); i++)
        memcpy(bytes + (size_t)i * size, (const char *)tensor_const_data(base->t) + (size_t)element_of(v, i) * size,
               size);
    memcpy(tensor_data(t), bytes, (size_t)tensor_count(t) * size);
    if (tensor_format_is_shared(tensor_format_of(t)))
        CHECK(!tensor_declare_exponent(t, tensor_exponent(base->t)), "%s", tensor_error());
    return t;
}

static void same(const char *what, const tensor *a, const tensor *b) {
    tensor_stats sa, sb;
    CHECK(!tensor_statistics(&sa, NULL, a) && !tensor_statistics(&sb, NULL, b), "%s", tensor_error());
    CHECK(tensor_exponent(a) == tensor_exponent(b) && sa.maximum == sb.maximum && sa.saturated == sb.saturated &&
              !memcmp(tensor_const_data(a), tensor_const_data(b), tensor_bytes(a)),
          "%s.%s of a view differs", tensor_format_name(tensor_format_of(a)), what);
}

#define BOTH(what, ndim, shape, of_view, of_copy)                                                                      \
    do {                                                                                                               \
        tensor *p = tensor_new(f, ndim, shape), *q = tensor_new(f, ndim, shape);                                       \
        CHECK(!tensor_##what of_view && !tensor_##what of_copy, "%s", tensor_error());                                 \
        same(#what, p, q);                                                                                             \
        tensor_free(p);                                                                                                \
        tensor_free(q);                                                                                                \
    } while (0)

static void check_readers(tensor_format f) {
    static struct held base;
    make(&base, f, 2, (int64_t[]){61, 37}, between(0, STYLES - 1));
    const struct view v = drawn_view(base.n);
    tensor *s = strided(base.t, &v), *t = gathered(&base, &v), *copy = tensor_new(f, v.ndim, v.shape);
    static struct held h;
    h.t = copy;
    CHECK(!tensor_contiguous(copy, s), "%s", tensor_error());
    hold(&h);
    for (int64_t i = 0; i < h.n; i++)
        CHECK(near_to(&h, i, base.v[element_of(&v, i)], 0), "contiguous %lld", (long long)i);
    const unsigned axes = (unsigned)between(0, (1 << v.ndim) - 1);
    int64_t kept[TENSOR_MAX_DIMS];
    for (int d = 0; d < v.ndim; d++)
        kept[d] = axes >> d & 1 ? 1 : v.shape[d];
    BOTH(contiguous, v.ndim, v.shape, (p, s), (q, t));
    BOTH(reduce_sum, v.ndim, kept, (p, s, axes), (q, t, axes));
    BOTH(reduce_mean, v.ndim, kept, (p, s, axes), (q, t, axes));
    BOTH(reduce_max, v.ndim, kept, (p, s, axes), (q, t, axes));
    BOTH(reduce_l1, v.ndim, kept, (p, s, axes), (q, t, axes));
    BOTH(reduce_l2, v.ndim, kept, (p, s, axes), (q, t, axes));
    BOTH(broadcast_add, v.ndim, v.shape, (p, s, s), (q, t, t));
    BOTH(broadcast_mul, v.ndim, v.shape, (p, t, s), (q, t, t));
    BOTH(broadcast_add_grad, v.ndim, kept, (p, s), (q, t));
    BOTH(broadcast_mul_grad, v.ndim, kept, (p, s, s), (q, t, t));
    tensor *dy = tensor_new(f, v.ndim, kept);
    CHECK(!tensor_fill_normal(dy, 0, 1, 7, 7), "%s", tensor_error());
    BOTH(reduce_max_grad, v.ndim, v.shape, (p, dy, s, axes), (q, dy, t, axes));
    BOTH(reduce_l1_grad, v.ndim, v.shape, (p, dy, s, axes), (q, dy, t, axes));
    BOTH(reduce_l2_grad, v.ndim, v.shape, (p, dy, s, axes), (q, dy, t, axes));
    uint8_t marks[6] = {1, 0, 1, 1, 0, 0};
    tensor *mask = tensor_new(FMT_U8, TENSOR_SHAPE(6)),
           *repeated = tensor_new_strided(mask, v.ndim, v.shape, (int64_t[TENSOR_MAX_DIMS]){1}, 0);
    CHECK(repeated && !tensor_load_u8(mask, marks, 6), "%s", tensor_error());
    BOTH(where, v.ndim, v.shape, (p, repeated, s, t), (q, repeated, t, s));
    BOTH(where_grad, v.ndim, v.shape, (p, s, repeated, true), (q, t, repeated, true));
    int64_t along[TENSOR_MAX_DIMS];
    int32_t got[2][3000];
    memcpy(along, v.shape, sizeof along);
    along[0] = 1;
    tensor *index = tensor_new(FMT_I32, v.ndim, along);
    const int64_t n = tensor_count(index);
    CHECK(!tensor_argmax(index, s, 0) && !tensor_store_i32(index, got[0], n) && !tensor_argmax(index, t, 0) &&
              !tensor_store_i32(index, got[1], n) && !memcmp(got[0], got[1], (size_t)n * sizeof got[0][0]),
          "argmax of a view: %s", tensor_error());
    tensor_free(index);
    tensor_free(repeated);
    tensor_free(mask);
    tensor_free(dy);
    tensor_free(copy);
    tensor_free(s);
    tensor_free(t);
    tensor_free(base.t);
}

/* --- refusals of all other calls ---------------------------------------------------------------------------------- */

#define REFUSES(call)                                                                                                  \
    do {                                                                                                               \
        tensor_error_clear_for_test();                                                                                 \
        CHECK((call) == TENSOR_E_ARGUMENT && strstr(tensor_error(), "strides, 4 in dimension 1"), #call ": %s",        \
              tensor_error());                                                                                         \
    } while (0)

static void tensor_error_clear_for_test(void) {
    (void)tensor_load_f32(NULL, NULL, 0); /* another message */
}

/* Images and labels have no signature. */
static void check_gather(void) {
    tensor *pixels = tensor_new(FMT_U8, TENSOR_SHAPE(4, 1, 1, 1)), *labels = tensor_new(FMT_I32, TENSOR_SHAPE(4)),
           *turned = tensor_new_strided(pixels, 4, (int64_t[]){4, 1, 1, 1}, (int64_t[]){-1, 0, 0, 0}, 3),
           *picked = tensor_new(FMT_U8, TENSOR_SHAPE(4, 1, 1, 1)), *classes = tensor_new(FMT_I32, TENSOR_SHAPE(4));
    CHECK(turned && picked && classes, "%s", tensor_error());
    CHECK(tensor_gather_images(picked, classes, turned, labels, labels, NULL) == TENSOR_E_ARGUMENT &&
              strstr(tensor_error(), "a view with strides"),
          "%s", tensor_error());
    tensor_error_clear_for_test();
    CHECK(tensor_gather_images(turned, classes, picked, labels, labels, NULL) == TENSOR_E_ARGUMENT &&
              strstr(tensor_error(), "a view with strides"),
          "%s", tensor_error());
    tensor *all[] = {pixels, turned, picked, classes, labels};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        tensor_free(all[i]);
}

static void check_refusals(void) {
    const int64_t shape[2] = {4, 4}, stride[2] = {1, 4};
    tensor *a = tensor_new(FMT_FLEX16_5, 2, shape), *b = tensor_new(FMT_FLEX16_5, 2, shape),
           *s = tensor_new_strided(b, 2, shape, stride, 0), *marks = tensor_new(FMT_U8, 2, shape),
           *other = tensor_new(FMT_FP32, 2, shape);
    CHECK(s, "%s", tensor_error());
    float floats[16] = {0};
    double doubles[16] = {0};
    bool yes;
    REFUSES(tensor_add(a, s, a));
    REFUSES(tensor_sum(doubles, s));
    REFUSES(tensor_all_finite(&yes, s));
    REFUSES(tensor_isnan(marks, s));
    REFUSES(tensor_load_f32(s, floats, 16));
    REFUSES(tensor_load_f64(s, doubles, 16));
    REFUSES(tensor_load_array(s, floats, TENSOR_TYPE_I8, 16));
    REFUSES(tensor_store_f32(s, floats, 16));
    REFUSES(tensor_store_f64(s, doubles, 16));
    REFUSES(tensor_store_wide_f64(s, doubles, 16));
    REFUSES(tensor_store_array(s, floats, TENSOR_TYPE_I8, 16, NULL));
    REFUSES(tensor_fill(s, 1));
    REFUSES(tensor_convert(other, s));
    REFUSES(tensor_convert(s, other));
    REFUSES(tensor_convert_at(a, s, 3));
    REFUSES(tensor_convert_at(s, other, 3));
    REFUSES(tensor_copy(a, s));
    REFUSES(tensor_copy(s, a));
    REFUSES(tensor_set_exponent(s, 3));
    REFUSES(tensor_declare_exponent(s, 3));
    REFUSES(tensor_set_predictor(s, "fixed"));
    REFUSES(tensor_set_rounding(s, TENSOR_ROUND_NEAREST, 0));
    REFUSES(tensor_keep_wide(s));
    CHECK(!tensor_data(s) && strstr(tensor_error(), "strides"), "tensor_data: %s", tensor_error());
    CHECK(!tensor_const_data(s) && strstr(tensor_error(), "strides"), "tensor_const_data: %s", tensor_error());
    CHECK(!tensor_new_view(s, 2, shape) && strstr(tensor_error(), "strides"), "tensor_new_view: %s", tensor_error());
    CHECK(!tensor_new_strided(s, 2, shape, stride, 0) && strstr(tensor_error(), "strides"), "%s", tensor_error());
    check_gather();
    /* a view of many elements of a small base uses no more memory than the base */
    tensor *one = tensor_new(FMT_FP32, TENSOR_SHAPE(16)), *many[40];
    const int64_t large[2] = {1 << 10, 1 << 10}, still[2] = {0, 0};
    tensor *repeated = tensor_new_strided(one, 2, large, still, 3), *sum = tensor_new(FMT_FP32, TENSOR_SHAPE(1));
    CHECK(!tensor_fill(one, 0.5) && !tensor_reduce_sum(sum, repeated, 3) && !tensor_store_f32(sum, floats, 1) &&
              floats[0] == 1 << 19,
          "a sum of one element: %g, %s", (double)floats[0], tensor_error());
    for (int i = 0; i < 40; i++) { /* among neighbours in memory */
        many[i] = tensor_new(FMT_FP32, TENSOR_SHAPE(1));
        CHECK(!tensor_reduce_max(many[i], repeated, 3), "%s", tensor_error());
    }
    for (int i = 0; i < 40; i++)
        tensor_free(many[i]);
    tensor_free(sum);
    tensor_free(repeated);
    tensor_free(one);
    /* reading b through the view while b is written */
    CHECK(tensor_contiguous(b, s) == TENSOR_E_ARGUMENT && strstr(tensor_error(), "same tensor"), "%s", tensor_error());
    tensor_free(s);
    tensor_free(a);
    tensor_free(b);
    tensor_free(marks);
    tensor_free(other);
}

static void check_bounds(void) {
    tensor *b = tensor_new(FMT_FP32, TENSOR_SHAPE(10));
    static const struct {
        int64_t shape[2], stride[2], offset;
        bool fits;
    } cases[] = {{{2, 5}, {5, 1}, 0, true},
                 {{2, 5}, {5, 1}, 1, false},
                 {{5, 2}, {-2, -1}, 9, true},
                 {{5, 2}, {-2, -1}, 8, false},
                 {{1000, 1}, {0, 77}, 3, true},
                 {{2, 1}, {9, 0}, 0, true},
                 {{2, 1}, {10, 0}, 0, false},
                 {{2, 1}, {INT64_MAX, 0}, 0, false},
                 {{2, 1}, {INT64_MIN, 0}, 9, false},
                 {{3, 3}, {INT64_MAX / 2, -INT64_MAX / 2}, 5, false},
                 {{1, 1}, {INT64_MAX, INT64_MIN}, 9, true},
                 {{1, 1}, {1, 1}, 10, false},
                 {{1, 1}, {1, 1}, -1, false},
                 {{2, 2}, {9, -9}, 0, false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tensor *s = tensor_new_strided(b, 2, cases[i].shape, cases[i].stride, cases[i].offset);
        CHECK((s != NULL) == cases[i].fits, "case %d: %s", (int)i, s ? "made" : tensor_error());
        tensor_free(s);
    }
    CHECK(!tensor_new_strided(NULL, 1, (int64_t[]){1}, (int64_t[]){1}, 0), "no base");
    CHECK(!tensor_new_strided(b, 1, (int64_t[]){1}, NULL, 0), "no stride");
    CHECK(!tensor_new_strided(b, 1, (int64_t[]){0}, (int64_t[]){1}, 0), "no elements");
    CHECK(!tensor_new_strided(b, 7, (int64_t[7]){1}, (int64_t[7]){1}, 0), "7 dimensions");
    tensor_free(b);
}

int main(int argc, char **argv) {
    draws = argc > 1 ? strtoull(argv[1], NULL, 0) : 20261124;
    printf("seed %llu\n", (unsigned long long)draws);
    for (int k = 0; k < 5; k++)
        for (int i = 0; i < 60; i++)
            check_readers(all_formats[k]);
    check_refusals();
    check_bounds();
    return check_summary();
}
