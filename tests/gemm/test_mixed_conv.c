/* test_mixed_conv.c - convolutions and their gradients whose operands and result are of different formats, against
 * arithmetic by hand, on every instruction set: strides, padding, dilation, groups, filters that join bias, residual
 * and ReLU. */
#include "kernel_sets.h"
#include "mixed_witness.h"
#include "square.h"
#include "flexlab/tensor_blocks.h"

struct convolution {
    int64_t n, h, w, c, k, r, s, p, q; /* images, filters, results */
    struct square how;
};

static struct convolution random_convolution(bool wide) {
    struct convolution v;
    do {
        const int groups = random_between(0, 2) ? 1 : (int)random_between(2, 5);
        const int64_t depth = random_between(0, 1) ? 1 : random_between(1, wide ? 20 : 6);
        v = (struct convolution){.n = random_between(1, 3),
                                 .h = random_between(1, 7),
                                 .w = random_between(1, 9),
                                 .c = groups * depth,
                                 .k = groups * (random_between(0, 1) ? 1 : random_between(1, wide ? 24 : 7)),
                                 .r = random_between(1, 3),
                                 .s = random_between(1, 3),
                                 .how = {.stride = (int)random_between(1, 2),
                                         .padding = (int)random_between(0, 2),
                                         .dilation = (int)random_between(1, 2),
                                         .groups = groups}};
        v.p = v.h + 2 * v.how.padding - v.how.dilation * (v.r - 1) - 1;
        v.q = v.w + 2 * v.how.padding - v.how.dilation * (v.s - 1) - 1;
    } while (v.p < 0 || v.q < 0);
    v.p = v.p / v.how.stride + 1;
    v.q = v.q / v.how.stride + 1;
    return v;
}

enum way { FORWARD, INPUT, WEIGHTS };

static int64_t image_at(const struct convolution *v, int64_t n, int64_t p, int64_t q, int64_t r, int64_t s, int64_t c) {
    const int64_t y = p * v->how.stride + r * v->how.dilation - v->how.padding,
                  x = q * v->how.stride + s * v->how.dilation - v->how.padding;
    return y < 0 || y >= v->h || x < 0 || x >= v->w ? -1 : ((n * v->h + y) * v->w + x) * v->c + c;
}

/* The result position at which a filter position reads pixel (y, x); -1: none. */
static int64_t result_at(const struct convolution *v, int64_t n, int64_t y, int64_t x, int64_t r, int64_t s,
                         int64_t k) {
    const int64_t down = y + v->how.padding - r * v->how.dilation, across = x + v->how.padding - s * v->how.dilation;
    if (down < 0 || across < 0 || down % v->how.stride || across % v->how.stride)
        return -1;
    const int64_t p = down / v->how.stride, q = across / v->how.stride;
    return p >= v->p || q >= v->q ? -1 : ((n * v->p + p) * v->q + q) * v->k + k;
}

static int64_t terms_of(const struct convolution *v, enum way way, int64_t i, struct pair *pairs) {
    const int64_t depth = v->c / v->how.groups, per_group = v->k / v->how.groups;
    int64_t t = 0;
    if (way == FORWARD) {
        const int64_t k = i % v->k, q = i / v->k % v->q, p = i / v->k / v->q % v->p, n = i / v->k / v->q / v->p;
        for (int64_t r = 0; r < v->r; r++)
            for (int64_t s = 0; s < v->s; s++)
                for (int64_t c = 0; c < depth; c++)
                    pairs[t++] = (struct pair){image_at(v, n, p, q, r, s, k / per_group * depth + c),
                                               ((k * v->r + r) * v->s + s) * depth + c};
    } else if (way == INPUT) {
        const int64_t c = i % v->c, x = i / v->c % v->w, y = i / v->c / v->w % v->h, n = i / v->c / v->w / v->h;
        for (int64_t r = 0; r < v->r; r++)
            for (int64_t s = 0; s < v->s; s++)
                for (int64_t j = 0; j < per_group; j++) {
                    const int64_t k = c / depth * per_group + j;
                    pairs[t++] =
                        (struct pair){result_at(v, n, y, x, r, s, k), ((k * v->r + r) * v->s + s) * depth + c % depth};
                }
    } else {
        const int64_t c = i % depth, s = i / depth % v->s, r = i / depth / v->s % v->r, k = i / depth / v->s / v->r;
        for (int64_t n = 0; n < v->n; n++)
            for (int64_t p = 0; p < v->p; p++)
                for (int64_t q = 0; q < v->q; q++)
                    pairs[t++] = (struct pair){((n * v->p + p) * v->q + q) * v->k + k,
                                               image_at(v, n, p, q, r, s, k / per_group * depth + c)};
    }
    return t;
}

static tensor_status convolve(const struct convolution *v, enum way way, tensor *y, const tensor *a, const tensor *b,
                              const struct addends *with) {
    const tensor_epilogue joined = {.bias = with->bias, .residual = with->residual, .relu = with->relu};
    if (way == INPUT)
        return tensor_conv2d_input_grad(y, a, b, STEPS(v->how));
    if (way == WEIGHTS)
        return tensor_conv2d_weight_grad(y, a, b, STEPS(v->how));
    return tensor_conv2d_fused(y, a, b, STEPS(v->how), &joined);
}

static void check_convolution(tensor_format fa, tensor_format fb, tensor_format fy, enum way way) {
    const struct convolution v = random_convolution(random_between(0, 1));
    const int64_t image[] = {v.n, v.h, v.w, v.c}, filters[] = {v.k, v.r, v.s, v.c / v.how.groups},
                  result[] = {v.n, v.p, v.q, v.k};
    const int64_t *shapes[3][3] = {
        {image, filters, result}, {result, filters, image}, {result, image, filters}}; /* a, b, written */
    const enum fill fill = (enum fill)random_between(0, FILLS - 1);
    tensor *a = random_tensor(fa, 4, shapes[way][0], fill), *b = random_tensor(fb, 4, shapes[way][1], fill);
    tensor *bias = NULL, *residual = NULL;
    struct addends with = {.relu = way == FORWARD && random_between(0, 1)};
    if (way == FORWARD && random_between(0, 1))
        with.bias = bias = random_tensor(all_formats[random_between(0, FORMATS - 1)], 1, &v.k, fill);
    if (way == FORWARD && random_between(0, 2) == 0)
        with.residual = residual = random_tensor(all_formats[random_between(0, FORMATS - 1)], 4, result, fill);
    struct rounding how = {TENSOR_ROUND_NEAREST, check_random(&seed), 0};
    if (random_between(0, 5) == 0 && fy != FMT_FP32)
        how.mode = TENSOR_ROUND_STOCHASTIC;
    const int64_t *to = shapes[way][2], count = to[0] * to[1] * to[2] * to[3],
                  most = v.c * v.k * v.r * v.s + v.n * v.p * v.q;
    struct result *results = malloc((size_t)count * sizeof *results);
    struct pair *pairs = malloc((size_t)most * sizeof *pairs);
    for (int64_t i = 0; i < count; i++) {
        const int64_t terms = terms_of(&v, way, i, pairs);
        results[i] =
            is_shared(fa) ? exact_result(a, b, pairs, terms, &with, i) : float_result(a, b, pairs, terms, &with, i);
    }
    for (int isa = FIRST_BACKEND; isa < BACKENDS; isa++) {
        tensor_set_backend(backends[isa]);
        tensor_set_threads((int)random_between(1, 3));
        tensor *y = tensor_new(fy, 4, to);
        if (is_shared(fy))
            tensor_set_predictor(y, count % 2 ? "paper" : "current");
        tensor_set_rounding(y, how.mode, how.seed);
        char what[300];
        snprintf(
            what, sizeof what,
            "way %d %s x %s -> %s image %lldx%lldx%lldx%lld filters %lldx%lldx%lld stride %d padding %d dilation %d "
            "groups %d%s%s%s fill %d rounding %d %s",
            way, tensor_format_name(fa), tensor_format_name(fb), tensor_format_name(fy), (long long)v.n, (long long)v.h,
            (long long)v.w, (long long)v.c, (long long)v.k, (long long)v.r, (long long)v.s, v.how.stride, v.how.padding,
            v.how.dilation, v.how.groups, bias ? " bias" : "", residual ? " residual" : "", with.relu ? " relu" : "",
            fill, how.mode, backends[isa]);
        for (how.write = 0; how.write < 2; how.write++) {
            struct autoflex before = {.e = 0};
            if (is_shared(fy))
                before = *tensor_autoflex(y);
            const tensor_status status = convolve(&v, way, y, a, b, &with);
            CHECK(!status, "%s: %s", what, tensor_error());
            if (!status)
                check_write(what, y, results, &before, &how);
        }
        tensor_free(y);
    }
    free(results);
    free(pairs);
    tensor_free(a);
    tensor_free(b);
    tensor_free(bias);
    tensor_free(residual);
}

/* Sequences and transposed convolutions are convolutions under other names: tests that formats reach the kernel. */
static void check_other_names(void) {
    const int64_t length = 9;
    tensor *x = random_tensor(FMT_DFP16, 3, (int64_t[]){2, length, 3}, FILL_USUAL),
           *w = random_tensor(FMT_FLEX16_5, 3, (int64_t[]){4, 3, 3}, FILL_USUAL),
           *y = tensor_new(FMT_FP32, 3, (int64_t[]){2, length, 4}),
           *image = tensor_new_view(x, 4, (int64_t[]){2, 1, length, 3}),
           *filters = tensor_new_view(w, 4, (int64_t[]){4, 1, 3, 3}),
           *same = tensor_new(FMT_FP32, 4, (int64_t[]){2, 1, length, 4});
    const tensor_window causal = {.padding = {0, 0, 2, 0}};
    const tensor_window flat = {.stride = {1, 1}, .padding = {0, 0, 2, 0}};
    CHECK(!tensor_conv1d(y, x, w, &causal), "%s", tensor_error());
    CHECK(!tensor_conv2d(same, image, filters, &flat), "%s", tensor_error());
    CHECK(!memcmp(tensor_const_data(y), tensor_const_data(same), (size_t)tensor_count(y) * sizeof(float)),
          "conv1d of several formats");
    tensor *back = tensor_new(FMT_BF16, 4, (int64_t[]){2, 1, length, 3}),
           *gradient = tensor_new(FMT_BF16, 4, (int64_t[]){2, 1, length, 3});
    CHECK(tensor_conv_transpose2d(back, same, filters, &flat) != TENSOR_OK, "fp32 by flex16+5 has a product");
    CHECK(strstr(tensor_error(), "x is fp32, w is flex16+5"), "%s", tensor_error());
    tensor *floats = random_tensor(FMT_FP16, 4, (int64_t[]){4, 1, 3, 3}, FILL_USUAL);
    CHECK(!tensor_conv_transpose2d(back, same, floats, &flat), "%s", tensor_error());
    CHECK(!tensor_conv2d_input_grad(gradient, same, floats, &flat), "%s", tensor_error());
    CHECK(!memcmp(tensor_const_data(back), tensor_const_data(gradient), (size_t)tensor_count(back) * 2),
          "a transposed convolution of several formats");
    tensor *all[] = {image, filters, x, w, y, same, back, gradient, floats};
    for (int i = 0; i < 9; i++)
        tensor_free(all[i]);
}

int main(int argc, char **argv) {
    seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 19670807;
    check_other_names();
    for (int round = argc > 2 ? atoi(argv[2]) : 2; round > 0; round--)
        for (int i = 0; i < FORMATS; i++)
            for (int j = 0; j < FORMATS; j++)
                for (int k = 0; k < FORMATS; k++)
                    for (int way = 0; way < 3; way++)
                        if (is_shared(all_formats[i]) == is_shared(all_formats[j]))
                            check_convolution(all_formats[i], all_formats[j], all_formats[k], (enum way)way);
    return check_summary();
}
