/* gpu_operands.h - test_gpu_ops: shapes and operands of each operation, drawn at random. Included once, behind the
 * tensors and draws that it uses. */
#ifndef FL_GPU_OPERANDS_H
#define FL_GPU_OPERANDS_H

#include "flexlab/tensor_blocks.h"

static struct settings plain, output;

static void in(struct call *c, int ndim, const int64_t *shape) {
    add(c, &plain, ndim, shape);
}
static void out(struct call *c, int ndim, const int64_t *shape) {
    add(c, &output, ndim, shape);
}
#define IN(c, ...) in(c, TENSOR_SHAPE(__VA_ARGS__))
#define OUT(c, ...) out(c, TENSOR_SHAPE(__VA_ARGS__))
#define PICK(...) (((const int[]){__VA_ARGS__})[draw() % (sizeof((int[]){__VA_ARGS__}) / sizeof(int))])

/* y, then n inputs of its shape; now and then y is one of them. */
static void plan_map(struct call *c, int inputs) {
    const int64_t rows = PICK(1, 2, 3, 7, 33), columns = PICK(1, 5, 31, 64, 129, 257);
    const int same = chance(30) ? between(1, inputs) : 0;
    OUT(c, rows, columns);
    for (int i = 1; i <= inputs; i++)
        if (i == same)
            add_same(c, 0);
        else
            IN(c, rows, columns);
    c->alpha = (float)(chance(20) ? 0 : chance(20) ? ldexp(unit(), between(-30, 12)) : unit());
}
static void plan_1(struct call *c) {
    plan_map(c, 1);
}
static void plan_2(struct call *c) {
    plan_map(c, 2);
}
static void plan_3(struct call *c) {
    plan_map(c, 3);
}

static void plan_bias(struct call *c) {
    const int64_t rows = PICK(1, 4, 37), columns = PICK(1, 3, 16, 65, 130);
    OUT(c, rows, columns);
    if (chance(40))
        add_same(c, 0);
    else
        IN(c, rows, columns);
    IN(c, columns);
}

static void plan_sum_rows(struct call *c) {
    const int64_t columns = PICK(1, 3, 16, 33);
    OUT(c, columns);
    IN(c, PICK(1, 2, 100, 511, 512, 513, 700) * (columns > 16 ? 0 : 1) + (columns > 16 ? 301 : 0), columns);
}

/* y, a, b, bias, residual: the epilogue of half of the calls, also y itself as residual. */
static void add_epilogue(struct call *c, int ndim, const int64_t *shape) {
    if (chance(50))
        IN(c, shape[ndim - 1]);
    else
        add_none(c);
    if (chance(30))
        in(c, ndim, shape);
    else if (chance(40))
        add_same(c, 0);
    else
        add_none(c);
    c->relu = chance(50);
}
static void plan_products(struct call *c, bool a_turned, bool b_turned, bool fused) {
    int64_t m = PICK(1, 2, 7, 16, 17, 33, 64), n = PICK(1, 3, 8, 17, 40, 65), k = PICK(1, 2, 5, 16, 31, 64, 100);
    if (chance(8))
        k = PICK(513, 1030), m = PICK(1, 5), n = PICK(2, 7);
    OUT(c, m, n);
    if (a_turned)
        IN(c, k, m);
    else
        IN(c, m, k);
    if (b_turned)
        IN(c, n, k);
    else
        IN(c, k, n);
    if (fused)
        add_epilogue(c, 2, (const int64_t[]){m, n});
}
static void plan_matmul(struct call *c) {
    plan_products(c, false, false, false);
}
static void plan_matmul_nt(struct call *c) {
    plan_products(c, false, true, false);
}
static void plan_matmul_tn(struct call *c) {
    plan_products(c, true, false, false);
}
static void plan_matmul_fused(struct call *c) {
    plan_products(c, false, false, true);
}
static void plan_matmul_nt_fused(struct call *c) {
    plan_products(c, false, true, true);
}

/* Sizes of a convolution. */
struct image {
    int64_t n, h, w, c, k, r, s, p, q, cg;
};
static struct image draw_image(struct call *c) {
    struct image i;
    do {
        const int groups = chance(70) ? 1 : PICK(2, 3);
        c->how = (struct square){.stride = PICK(1, 1, 1, 2, 3), .padding = between(0, 2), .groups = groups};
        c->how.dilation = PICK(0, 1, 1, 2);
        i.n = PICK(1, 2, 3);
        i.h = PICK(3, 4, 7, 8);
        i.w = PICK(3, 5, 6, 9);
        i.r = PICK(1, 2, 3, 5);
        i.s = chance(70) ? i.r : PICK(1, 3);
        i.cg = groups == 1 ? PICK(1, 3, 8, 17, 32) : PICK(1, 4);
        i.c = i.cg * groups;
        i.k = (groups == 1 ? PICK(1, 4, 9, 16, 33) : PICK(1, 2)) * groups;
        const int64_t d = c->how.dilation ? c->how.dilation : 1, twice = 2 * c->how.padding;
        i.p = i.h + twice < d * (i.r - 1) + 1 ? 0 : (i.h + twice - d * (i.r - 1) - 1) / c->how.stride + 1;
        i.q = i.w + twice < d * (i.s - 1) + 1 ? 0 : (i.w + twice - d * (i.s - 1) - 1) / c->how.stride + 1;
    } while (i.p < 1 || i.q < 1 || i.n * i.h * i.w * i.c > MOST || i.n * i.p * i.q * i.k > MOST ||
             i.n * i.p * i.q * i.k * i.r * i.s * i.cg > 300000);
    return i;
}
static void plan_conv2d(struct call *c) {
    const struct image i = draw_image(c);
    OUT(c, i.n, i.p, i.q, i.k);
    IN(c, i.n, i.h, i.w, i.c);
    IN(c, i.k, i.r, i.s, i.cg);
}
static void plan_conv2d_fused(struct call *c) {
    const struct image i = draw_image(c);
    OUT(c, i.n, i.p, i.q, i.k);
    IN(c, i.n, i.h, i.w, i.c);
    IN(c, i.k, i.r, i.s, i.cg);
    add_epilogue(c, 4, (const int64_t[]){i.n, i.p, i.q, i.k});
}
static void plan_conv2d_input_grad(struct call *c) {
    const struct image i = draw_image(c);
    OUT(c, i.n, i.h, i.w, i.c);
    IN(c, i.n, i.p, i.q, i.k);
    IN(c, i.k, i.r, i.s, i.cg);
}
static void plan_conv2d_weight_grad(struct call *c) {
    const struct image i = draw_image(c);
    OUT(c, i.k, i.r, i.s, i.cg);
    IN(c, i.n, i.p, i.q, i.k);
    IN(c, i.n, i.h, i.w, i.c);
}

static void plan_pool(struct call *c, bool gradient) {
    const int64_t n = PICK(1, 3), h = PICK(2, 5, 8), w = PICK(2, 7, 9), channels = PICK(1, 3, 16, 33);
    const int window = between(1, 3), padding = between(0, (window - 1) / 2 + (window > 1));
    c->how = (struct square){.window = window, .stride = between(1, 3), .padding = padding < window ? padding : 0};
    if (h + 2 * c->how.padding < window || w + 2 * c->how.padding < window)
        c->how.window = 1, c->how.padding = 0;
    const int64_t p = (h + 2 * c->how.padding - c->how.window) / c->how.stride + 1,
                  q = (w + 2 * c->how.padding - c->how.window) / c->how.stride + 1;
    if (gradient) {
        OUT(c, n, h, w, channels);
        IN(c, n, p, q, channels);
        IN(c, n, h, w, channels);
    } else {
        OUT(c, n, p, q, channels);
        IN(c, n, h, w, channels);
    }
}
static void plan_maxpool2d(struct call *c) {
    plan_pool(c, false);
}
static void plan_maxpool2d_grad(struct call *c) {
    plan_pool(c, true);
}
/* Windows whose directions and sides differ. */
static int64_t places_around(const tensor_window *how, int way, int64_t size, int64_t window) {
    const int64_t room = size + how->padding[2 * way] + how->padding[2 * way + 1] -
                         (window - 1) * (how->dilation[way] ? how->dilation[way] : 1) - 1;
    return room < 0 ? 0 : room / how->stride[way] + 1;
}
static void draw_around(struct call *c, int groups) {
    tensor_window *how = &c->around;
    *how = (tensor_window){.groups = groups};
    const bool dilated = chance(50);
    for (int way = 0; way < 2; way++) {
        how->stride[way] = PICK(1, 1, 2, 3);
        how->dilation[way] = dilated ? PICK(1, 2, 3) : 0;
    }
    for (int side = 0; side < 4; side++)
        how->padding[side] = PICK(0, 0, 1, 2, 5);
}
static struct image draw_image_around(struct call *c) {
    struct image i;
    do {
        i = draw_image(c);
        draw_around(c, c->how.groups);
        i.s = PICK(1, 2, 3, 4);
        i.p = places_around(&c->around, 0, i.h, i.r);
        i.q = places_around(&c->around, 1, i.w, i.s);
    } while (i.p < 1 || i.q < 1 || i.n * i.p * i.q * i.k > MOST || i.n * i.p * i.q * i.k * i.r * i.s * i.cg > 300000);
    return i;
}
static void plan_conv2d_with(struct call *c) {
    const struct image i = draw_image_around(c);
    OUT(c, i.n, i.p, i.q, i.k);
    IN(c, i.n, i.h, i.w, i.c);
    IN(c, i.k, i.r, i.s, i.cg);
    add_epilogue(c, 4, (const int64_t[]){i.n, i.p, i.q, i.k});
}
static void plan_conv2d_input_grad_with(struct call *c) {
    const struct image i = draw_image_around(c);
    OUT(c, i.n, i.h, i.w, i.c);
    IN(c, i.n, i.p, i.q, i.k);
    IN(c, i.k, i.r, i.s, i.cg);
}
static void plan_conv2d_weight_grad_with(struct call *c) {
    const struct image i = draw_image_around(c);
    OUT(c, i.k, i.r, i.s, i.cg);
    IN(c, i.n, i.p, i.q, i.k);
    IN(c, i.n, i.h, i.w, i.c);
}
/* The pixels of the image that more than the result needs, to the right and below, are what output_padding says. */
static void plan_conv_transpose2d(struct call *c) {
    struct image i;
    int64_t rest[2];
    do {
        i = draw_image_around(c);
        const tensor_window *how = &c->around;
        for (int way = 0; way < 2; way++) {
            const int64_t needed = ((way ? i.q : i.p) - 1) * how->stride[way] +
                                   ((way ? i.s : i.r) - 1) * (how->dilation[way] ? how->dilation[way] : 1) + 1 -
                                   how->padding[2 * way] - how->padding[2 * way + 1];
            rest[way] = (way ? i.w : i.h) - needed;
        }
    } while (rest[0] < 0 || rest[1] < 0);
    c->around.output_padding[0] = (int)rest[0];
    c->around.output_padding[1] = (int)rest[1];
    OUT(c, i.n, i.h, i.w, i.c);
    IN(c, i.n, i.p, i.q, i.k);
    IN(c, i.k, i.r, i.s, i.cg);
    add_epilogue(c, 4, (const int64_t[]){i.n, i.h, i.w, i.c});
}
static void plan_pool_around(struct call *c, bool gradient) {
    const int64_t n = PICK(1, 3), channels = PICK(1, 3, 16, 33), h = PICK(4, 5, 8), w = PICK(4, 7, 9);
    int64_t p, q;
    do {
        draw_around(c, 0);
        for (int way = 0; way < 2; way++) {
            tensor_window *how = &c->around;
            how->window[way] = between(1, 3);
            const int most = (how->window[way] - 1) * (how->dilation[way] ? how->dilation[way] : 1);
            for (int side = 2 * way; side < 2 * way + 2; side++)
                how->padding[side] = how->padding[side] > most ? most : how->padding[side];
        }
        p = places_around(&c->around, 0, h, c->around.window[0]);
        q = places_around(&c->around, 1, w, c->around.window[1]);
    } while (p < 1 || q < 1);
    if (gradient) {
        OUT(c, n, h, w, channels);
        IN(c, n, p, q, channels);
        IN(c, n, h, w, channels);
    } else {
        OUT(c, n, p, q, channels);
        IN(c, n, h, w, channels);
    }
}
static void plan_maxpool2d_with(struct call *c) {
    plan_pool_around(c, false);
}
static void plan_maxpool2d_grad_with(struct call *c) {
    plan_pool_around(c, true);
}
static void plan_avgpool(struct call *c, bool gradient) {
    const int64_t n = PICK(1, 4), h = PICK(1, 3, 8), w = PICK(1, 5, 7), channels = PICK(1, 10, 33);
    if (gradient) {
        OUT(c, n, h, w, channels);
        IN(c, n, channels);
    } else {
        OUT(c, n, channels);
        IN(c, n, h, w, channels);
    }
}
static void plan_avgpool_global(struct call *c) {
    plan_avgpool(c, false);
}
static void plan_avgpool_global_grad(struct call *c) {
    plan_avgpool(c, true);
}
static void plan_shortcut(struct call *c, bool gradient) {
    const int64_t n = PICK(1, 2), h = PICK(1, 5, 8), w = PICK(3, 7), channels = PICK(1, 4, 9), more = PICK(0, 1, 4, 9);
    c->stride = between(1, 3);
    const int64_t p = (h + c->stride - 1) / c->stride, q = (w + c->stride - 1) / c->stride;
    if (gradient) {
        OUT(c, n, h, w, channels);
        IN(c, n, p, q, channels + more);
    } else {
        OUT(c, n, p, q, channels + more);
        IN(c, n, h, w, channels);
    }
}
static void plan_shortcut_a(struct call *c) {
    plan_shortcut(c, false);
}
static void plan_shortcut_a_grad(struct call *c) {
    plan_shortcut(c, true);
}

/* mean, variance, x */
static void plan_moments(struct call *c) {
    const int64_t channels = PICK(1, 3, 16, 33);
    add_numbers(c, FMT_F64, channels, NULL);
    add_numbers(c, FMT_F64, channels, NULL);
    IN(c, PICK(1, 2, 5, 64), PICK(1, 3, 4), channels);
}
static void add_moments(struct call *c, int64_t channels) {
    static double mean[MOST], variance[MOST];
    const int spread = between(-8, 4);
    for (int64_t i = 0; i < channels; i++) {
        mean[i] = chance(10) ? 0 : unit();
        variance[i] = chance(10) ? 0 : ldexp(fabs(unit()), spread);
    }
    add_numbers(c, FMT_F64, channels, mean);
    add_numbers(c, FMT_F64, channels, variance);
    c->epsilon = chance(70) ? 1e-5 : ldexp(1, between(-40, 2));
}
/* running mean and variance, mean, variance, x */
static void plan_running(struct call *c) {
    const int64_t channels = PICK(1, 7, 300);
    add_moments(c, channels);
    add_moments(c, channels);
    IN(c, PICK(1, 2, 9), channels);
}
/* y, x, residual, gamma, beta, mean, variance */
static void plan_batchnorm(struct call *c) {
    const int64_t rows = PICK(1, 6, 35), channels = PICK(1, 3, 16, 65);
    OUT(c, rows, channels);
    IN(c, rows, channels);
    if (chance(40))
        IN(c, rows, channels);
    else
        add_none(c);
    IN(c, channels);
    IN(c, channels);
    add_moments(c, channels);
    c->relu = chance(50);
}
/* dx, dgamma, dbeta, dy, x, y, gamma (mean and variance are those of x: made by the call) */
static void plan_batchnorm_grad(struct call *c) {
    const int64_t rows = PICK(2, 6, 35, 600), channels = rows > 100 ? PICK(1, 5) : PICK(1, 3, 16, 65);
    OUT(c, rows, channels);
    OUT(c, channels);
    OUT(c, channels);
    IN(c, rows, channels);
    IN(c, rows, channels);
    if (chance(50))
        IN(c, rows, channels);
    else
        add_none(c);
    IN(c, channels);
    c->epsilon = 1e-5;
}

/* loss, dx, predicted, correct, x, labels, scale */
static void plan_cross_entropy(struct call *c) {
    static double labels[MOST];
    const int64_t rows = PICK(1, 3, 17, 64), classes = PICK(2, 10, 33, 100);
    for (int64_t i = 0; i < rows; i++)
        labels[i] = between(0, (int)classes - 1);
    add_numbers(c, FMT_F64, 1, NULL);
    if (chance(80))
        OUT(c, rows, classes);
    else
        add_none(c);
    add_numbers(c, FMT_I32, rows, NULL);
    add_numbers(c, FMT_I32, 1, NULL);
    IN(c, rows, classes);
    add_numbers(c, FMT_I32, rows, labels);
    if (chance(40))
        add_numbers(c, FMT_F64, 1, (double[]){ldexp(unit(), between(-2, 12))});
    else
        add_none(c);
    c->alpha = (float)ldexp(1, between(0, 10));
}

/* loss, dx, predicted, correct, x, labels, targets, what classes count, scale; stride: how the loss is asked for */
static void plan_loss(struct call *c, bool by_label, int most) {
    static double labels[MOST], targets[MOST];
    const int64_t rows = PICK(1, 3, 17, 64, 300), classes = rows == 300 ? PICK(1, 40) : PICK(1, 2, 10, 33, 100);
    const bool smooth = chance(50);
    for (int64_t i = 0; i < rows; i++)
        labels[i] = chance(25) ? -7 : between(0, most ? most - 1 : (int)classes - 1);
    for (int64_t i = 0; i < rows * classes; i++)
        targets[i] = chance(20) ? 0 : unit();
    c->stride = between(0, 15);
    c->epsilon = smooth ? 0.1 : 0.75;
    add_numbers(c, FMT_F64, 1, NULL);
    if (chance(80))
        OUT(c, rows, classes);
    else
        add_none(c);
    add_numbers(c, FMT_I32, rows, NULL);
    add_numbers(c, FMT_I32, 1, NULL);
    IN(c, rows, classes);
    if (by_label)
        add_numbers(c, FMT_I32, rows, labels);
    else
        add_none(c);
    if (by_label)
        add_none(c);
    else if (chance(40))
        IN(c, rows, classes);
    else
        add_numbers(c, chance(50) ? FMT_F64 : FMT_F32, rows * classes, targets);
    add_numbers(c, FMT_F64, classes, targets);
    if (chance(40))
        add_numbers(c, FMT_F64, 1, (double[]){ldexp(unit(), between(-2, 12))});
    else
        add_none(c);
    c->alpha = (float)ldexp(1, between(0, 10));
}
static void plan_loss_of_labels(struct call *c) {
    plan_loss(c, true, 0);
}
static void plan_loss_of_targets(struct call *c) {
    plan_loss(c, false, 0);
}
static void plan_loss_of_critic(struct call *c) {
    plan_loss(c, true, 2);
}

/* w */
static void plan_clip_weight(struct call *c) {
    output.wide = chance(60);
    OUT(c, PICK(1, 5, 64, 129, 1000));
    c->alpha = (float)(chance(20) ? 0 : fabs(unit()));
}

static void plan_batched(struct call *c, bool a_turned, bool b_turned) {
    const int64_t batch = PICK(1, 2, 9), m = PICK(1, 2, 7, 16), n = PICK(1, 3, 8, 17), k = PICK(1, 2, 16, 31);
    OUT(c, batch, 2, m, n);
    if (a_turned)
        IN(c, batch, 2, k, m);
    else
        IN(c, batch, 2, m, k);
    if (b_turned)
        IN(c, batch, 2, n, k);
    else
        IN(c, batch, 2, k, n);
}
static void plan_batched_nn(struct call *c) {
    plan_batched(c, false, false);
}
static void plan_batched_nt(struct call *c) {
    plan_batched(c, false, true);
}
static void plan_batched_tn(struct call *c) {
    plan_batched(c, true, false);
}

/* y, x, gamma, beta */
static void plan_row_norm(struct call *c) {
    const int64_t rows = PICK(1, 6, 35), columns = PICK(1, 3, 16, 33, 65, 130);
    OUT(c, rows, columns);
    IN(c, rows, columns);
    IN(c, columns);
    if (chance(60))
        IN(c, columns);
    else
        add_none(c);
    c->epsilon = chance(70) ? 1e-5 : ldexp(1, between(-40, 4));
}
/* dx, dgamma, dbeta, dy, x, gamma */
static void plan_row_norm_grad(struct call *c) {
    const int64_t rows = PICK(1, 6, 35, 600), columns = rows > 100 ? PICK(1, 5) : PICK(1, 3, 16, 33, 65);
    OUT(c, rows, columns);
    OUT(c, columns);
    if (chance(60))
        OUT(c, columns);
    else
        add_none(c);
    IN(c, rows, columns);
    IN(c, rows, columns);
    IN(c, columns);
    c->epsilon = chance(70) ? 1e-5 : ldexp(1, between(-40, 4));
}
/* y, then n inputs of its shape; relu: a causal mask */
static void plan_softmax_rows(struct call *c, int inputs) {
    const int64_t rows = PICK(1, 3, 17, 40), columns = PICK(1, 3, 16, 33, 65, 130);
    const int same = chance(30) ? between(1, inputs) : 0;
    OUT(c, rows, columns);
    for (int i = 1; i <= inputs; i++)
        if (i == same)
            add_same(c, 0);
        else
            IN(c, rows, columns);
    c->alpha = (float)(chance(60) ? 1 : chance(20) ? 0 : unit());
    c->relu = chance(50);
}
static void plan_softmax_1(struct call *c) {
    plan_softmax_rows(c, 1);
}
static void plan_softmax_2(struct call *c) {
    plan_softmax_rows(c, 2);
}
/* y or dtable, table or dy, indices */
static void plan_indexed(struct call *c, bool gradient) {
    static double indices[MOST];
    const int64_t rows = PICK(1, 5, 40, 700), table = PICK(1, 3, 60),
                  columns = rows > 100 ? PICK(1, 4) : PICK(1, 7, 33);
    for (int64_t i = 0; i < rows; i++)
        indices[i] = between(0, (int)table - 1);
    OUT(c, gradient ? table : rows, columns);
    IN(c, gradient ? rows : table, columns);
    add_numbers(c, FMT_I32, rows, indices);
}
static void plan_embedding(struct call *c) {
    plan_indexed(c, false);
}
static void plan_embedding_grad(struct call *c) {
    plan_indexed(c, true);
}
/* stride: which order; or the dimension of a part, whose first index is in how.padding */
static const int gpu_orders[][4] = {{0, 1, 2, 3}, {0, 2, 1, 3}, {3, 2, 1, 0}, {1, 0, 3, 2}, {2, 0, 3, 1}};
static void plan_permute(struct call *c) {
    const int64_t shape[4] = {PICK(1, 3), PICK(1, 5), PICK(2, 7), PICK(1, 4, 33)};
    c->stride = between(0, 4);
    const int *order = gpu_orders[c->stride];
    OUT(c, shape[order[0]], shape[order[1]], shape[order[2]], shape[order[3]]);
    in(c, 4, shape);
}
static void plan_part(struct call *c, bool gradient) {
    int64_t whole[3] = {PICK(1, 4), PICK(3, 17), PICK(1, 8, 33)}, part[3];
    memcpy(part, whole, sizeof part);
    c->stride = between(0, 2);
    part[c->stride] = between(1, (int)whole[c->stride]);
    c->how.padding = between(0, (int)(whole[c->stride] - part[c->stride]));
    out(c, 3, gradient ? whole : part);
    in(c, 3, gradient ? part : whole);
}
static void plan_slice(struct call *c) {
    plan_part(c, false);
}
static void plan_slice_grad(struct call *c) {
    plan_part(c, true);
}
/* Cells of recurrent networks: operands of so many gates each, the first the result; 0: none. */
static void plan_cell(struct call *c, const char *gates) {
    const int64_t rows = PICK(1, 2, 7, 33), units = PICK(1, 3, 16, 31);
    OUT(c, rows, units * (gates[0] - '0'));
    for (gates++; *gates; gates++)
        if (*gates > '0')
            IN(c, rows, units * (*gates - '0'));
        else
            add_none(c);
}
static void plan_lstm_cell(struct call *c) {
    plan_cell(c, "141");
}
static void plan_lstm_cell_grad(struct call *c) {
    if (chance(40)) {
        plan_cell(c, "114100");
        return;
    }
    const int64_t rows = PICK(1, 2, 7, 33), units = PICK(1, 3, 16, 31);
    OUT(c, rows, units);
    IN(c, rows, units);
    IN(c, rows, 4 * units);
    IN(c, rows, units);
    if (chance(50))
        add_same(c, 0);
    else
        IN(c, rows, units);
    IN(c, rows, 4 * units);
}
static void plan_lstm_gates_grad(struct call *c) {
    plan_cell(c, "411411");
}
static void plan_gru_hidden(struct call *c) {
    plan_cell(c, "1331");
}
static void plan_gru_grad(struct call *c) {
    plan_cell(c, "31331");
}
static void plan_gru_state_grad(struct call *c) {
    plan_cell(c, chance(40) ? "11330" : "11331");
}
static void plan_concat(struct call *c) {
    int64_t part[3][3], whole[3] = {PICK(1, 4), PICK(3, 17), PICK(1, 8, 33)};
    const int parts = between(2, 3);
    c->stride = between(0, 2);
    whole[c->stride] = 0;
    for (int i = 0; i < parts; i++) {
        memcpy(part[i], whole, sizeof whole);
        part[i][c->stride] = PICK(1, 2, 9);
    }
    for (int i = 0; i < parts; i++)
        whole[c->stride] += part[i][c->stride];
    out(c, 3, whole);
    for (int i = 0; i < parts; i++)
        in(c, 3, part[i]);
    if (parts == 2)
        add_none(c);
}

/* Average pooling: relu says whether padding counts. */
static void plan_average(struct call *c, bool adaptive, bool gradient) {
    const int64_t n = PICK(1, 3), h = PICK(2, 5, 8), w = PICK(2, 7, 9), channels = PICK(1, 3, 16, 33);
    int64_t p = PICK(1, 2, 3, 9), q = PICK(1, 3, 4);
    if (!adaptive) {
        const int window = between(1, 5);
        c->how = (struct square){.window = window, .stride = between(1, 3), .padding = between(0, window - 1)};
        if (h + 2 * c->how.padding < window || w + 2 * c->how.padding < window)
            c->how.window = 1, c->how.padding = 0;
        c->relu = chance(50);
        p = (h + 2 * c->how.padding - c->how.window) / c->how.stride + 1;
        q = (w + 2 * c->how.padding - c->how.window) / c->how.stride + 1;
    }
    OUT(c, n, gradient ? h : p, gradient ? w : q, channels);
    IN(c, n, gradient ? p : h, gradient ? q : w, channels);
}
static void plan_avgpool2d(struct call *c) {
    plan_average(c, false, false);
}
static void plan_avgpool2d_grad(struct call *c) {
    plan_average(c, false, true);
}
static void plan_adaptive(struct call *c) {
    plan_average(c, true, false);
}
static void plan_adaptive_grad(struct call *c) {
    plan_average(c, true, true);
}
/* Local response normalisation; stride: its size. */
static void plan_lrn_of(struct call *c, int inputs) {
    const int64_t rows = PICK(1, 6, 35), channels = PICK(1, 3, 16, 33, 65);
    OUT(c, rows, channels);
    for (int i = 0; i < inputs; i++)
        IN(c, rows, channels);
    c->stride = PICK(1, 2, 5, 9, 200);
    c->alpha = (float)(chance(20) ? 1e-4 : fabs(unit()));
    c->epsilon = PICK(1, 2, 3, 3, 4, 7) * 0.25; /* beta */
}
static void plan_lrn(struct call *c) {
    plan_lrn_of(c, 1);
}
static void plan_lrn_grad(struct call *c) {
    plan_lrn_of(c, 2);
}
/* Group normalisation; stride: of groups. */
static int64_t draw_groups(struct call *c) {
    static const int cases[][2] = {{1, 1}, {6, 3}, {16, 1}, {16, 16}, {33, 3}, {12, 4}};
    const int *drawn = cases[between(0, 5)];
    c->stride = drawn[1];
    c->epsilon = chance(70) ? 1e-5 : ldexp(1, between(-40, 4));
    return drawn[0];
}
static void plan_group_norm(struct call *c) {
    const int64_t n = PICK(1, 3), h = PICK(1, 4, 9), w = PICK(1, 5), channels = draw_groups(c);
    OUT(c, n, h, w, channels);
    IN(c, n, h, w, channels);
    IN(c, channels);
    if (chance(60))
        IN(c, channels);
    else
        add_none(c);
}
static void plan_group_norm_grad(struct call *c) {
    const int64_t n = PICK(1, 3), h = PICK(1, 4, 9), w = PICK(1, 5, 70), channels = w > 9 ? 2 : draw_groups(c);
    if (w > 9)
        c->stride = between(1, 2), c->epsilon = 1e-5;
    OUT(c, n, h, w, channels);
    OUT(c, channels);
    if (chance(60))
        OUT(c, channels);
    else
        add_none(c);
    IN(c, n, h, w, channels);
    IN(c, n, h, w, channels);
    IN(c, channels);
}
/* y, x, step; stride: the key */
static void plan_dropout(struct call *c) {
    const int64_t rows = PICK(1, 3, 33), columns = PICK(1, 5, 64, 129);
    OUT(c, rows, columns);
    if (chance(30))
        add_same(c, 0);
    else
        IN(c, rows, columns);
    add_numbers(c, FMT_F64, 1, (double[]){chance(20) ? -unit() : between(0, 100000)});
    c->stride = between(0, 1000000);
    c->alpha = (float)(chance(20) ? 0 : chance(20) ? 0.99 : fabs(unit()) * 0.9);
}

/* stride: the dimensions summed over. y, x; of a gradient dx, dy, x */
static void plan_axes(struct call *c, bool gradient) {
    int64_t shape[4] = {PICK(1, 3), PICK(1, 5, 17), PICK(2, 7, 9), PICK(1, 4, 33)};
    int64_t left[4];
    int n = 0;
    c->stride = between(0, 15);
    if (chance(30)) { /* several chunks of a chain */
        shape[0] = 1;
        shape[1] = 110;
    }
    for (int d = 0; d < 4; d++)
        if (!(c->stride >> d & 1))
            left[n++] = shape[d];
    if (!n)
        left[n++] = 1;
    if (gradient)
        out(c, 4, shape);
    else
        out(c, n, left);
    if (gradient)
        in(c, n, left);
    in(c, 4, shape);
}
static void plan_reduce(struct call *c) {
    plan_axes(c, false);
}
static void plan_reduce_grad(struct call *c) {
    plan_axes(c, true);
}
/* stride: the axis */
static void plan_argmax(struct call *c) {
    int64_t shape[3] = {PICK(1, 3), PICK(2, 40, 600), PICK(1, 7, 11)}, left = 1;
    c->stride = between(0, 2);
    for (int d = 0; d < 3; d++)
        left *= d == c->stride ? 1 : shape[d];
    add_numbers(c, FMT_I32, left, NULL);
    in(c, 3, shape);
}
static void plan_repeated(struct call *c, int which) {
    const int64_t shape[4] = {PICK(1, 3), PICK(1, 5, 17), PICK(2, 7, 9), PICK(1, 4, 33)};
    int64_t part[3][4];
    for (int i = 0; i < 3; i++)
        for (int d = 0; d < 4; d++)
            part[i][d] = i != which && chance(40) ? 1 : shape[d];
    out(c, 4, part[0]);
    in(c, 4, part[1]);
    const int skipped = part[2][0] == 1 ? between(0, 1) : 0;
    in(c, 4 - skipped, part[2] + skipped);
}
static void plan_broadcast(struct call *c) {
    plan_repeated(c, 0);
}
static void plan_broadcast_grad(struct call *c) {
    plan_repeated(c, 1);
}

static void plan_where_grad(struct call *c) {
    const int64_t rows = PICK(1, 3, 40), columns = PICK(1, 7, 33, 64);
    c->stride = between(0, 1);
    OUT(c, rows, columns);
    IN(c, rows, columns);
}

/* v, g, w: w has a wide part now and then. */
static void plan_sgd_momentum(struct call *c) {
    const int64_t n = PICK(1, 5, 64, 129, 1000);
    OUT(c, n);
    IN(c, n);
    struct settings weights = plain;
    weights.wide = chance(60);
    add(c, &weights, 1, &n);
    c->alpha = chance(80) ? 0.9f : 0;
    c->epsilon = chance(70) ? 1e-3 : 0;
}
/* w, v, rate */
static void plan_sgd_update(struct call *c) {
    const int64_t n = PICK(1, 5, 64, 129, 1000);
    OUT(c, n);
    IN(c, n);
    const double rate = chance(10) ? 0 : ldexp(unit(), between(-8, 0));
    if (chance(50))
        add_numbers(c, FMT_F32, 1, &rate);
    else
        add_none(c);
    c->alpha = (float)rate;
}

/* Factors of a step, as a tensor; now and then one that shared exponents refuse. */
static void add_factors(struct call *c) {
    const double f[FL_FACTORS] = {chance(20) ? 1 : 0.9 + 0.1 * unit(), ldexp(unit(), between(-8, 0)),
                                  chance(30) ? 1 : 1.5 + unit(), chance(15) ? 0 : ldexp(1, between(-30, -8))};
    add_numbers(c, FMT_F64, FL_FACTORS, f);
}
/* y, p, q, w, factors: y is p more often than not. */
static void plan_combine(struct call *c) {
    const int64_t n = PICK(1, 5, 64, 129, 1000);
    struct settings wide = plain;
    wide.wide = chance(60);
    OUT(c, n);
    if (chance(60))
        add_same(c, 0);
    else
        add(c, &wide, 1, &n);
    if (chance(15))
        add_same(c, 0);
    else
        IN(c, n);
    if (chance(60))
        add(c, &wide, 1, &n);
    else
        add_none(c);
    add_factors(c);
}
/* r, g, factors */
static void plan_root_mean(struct call *c) {
    const int64_t n = PICK(1, 5, 64, 129, 1000);
    output.wide = chance(70);
    OUT(c, n);
    IN(c, n);
    add_factors(c);
}
/* y, w, m, r, factors: y is w more often than not. */
static void plan_add_ratio(struct call *c) {
    const int64_t n = PICK(1, 5, 64, 129, 1000);
    struct settings wide = plain, state = plain;
    wide.wide = chance(60);
    state.wide = wide.wide || chance(50);
    state.rounding = c->format->arithmetic == FL_ARITHMETIC_SHARED ? TENSOR_ROUND_STOCHASTIC : TENSOR_ROUND_NEAREST;
    OUT(c, n);
    if (chance(60))
        add_same(c, 0);
    else
        add(c, &wide, 1, &n);
    add(c, &wide, 1, &n);
    add(c, &state, 1, &n);
    add_factors(c);
}
/* sums, x */
static void plan_sum_squares(struct call *c) {
    add_numbers(c, FMT_F64, 3, (double[]){1, 2, 3});
    IN(c, PICK(1, 7, 129, 4095, 4096, 4097, 9000));
}
/* numbers, rate, sums, scale of the loss */
static void plan_optimiser_step(struct call *c) {
    double rate = 0.1 + 0.1 * unit(), sums[3] = {fabs(unit()), fabs(unit()), chance(20) ? 0 : 1};
    add_numbers(c, FMT_F64, FL_FACTORS * TENSOR_STEP_ROWS, NULL);
    add_numbers(c, FMT_F32, 1, &rate);
    if (chance(60))
        add_numbers(c, FMT_F64, 3, sums);
    else
        add_none(c);
    if (chance(50))
        add_numbers(c, FMT_F64, 1, &(double){ldexp(1, between(-10, 30))});
    else
        add_none(c);
    const tensor_optimiser how = {.kind = (tensor_optimiser_kind)between(0, TENSOR_OPTIMISER_LAMB),
                                  .beta1 = chance(80) ? 0.9f : 0,
                                  .beta2 = 0.999f,
                                  .epsilon = 1e-8f,
                                  .weight_decay = chance(50) ? 0.01f : 0,
                                  .clip_norm = chance(60) ? 0.5f : 0,
                                  .momentum = chance(50) ? 0.9f : 0};
    for (int where = 0; where < 2; where++) {
        tensor *numbers = NULL, **t = &c->operand[0].t[where];
        numbers = where == HOST ? tensor_new(FMT_F64, TENSOR_SHAPE(TENSOR_STEP_ROWS, FL_FACTORS))
                                : tensor_new_in(gpu, FMT_F64, TENSOR_SHAPE(TENSOR_STEP_ROWS, FL_FACTORS));
        CHECK(!tensor_optimiser_begin(numbers, &how), "%s", tensor_error());
        tensor_free(*t);
        *t = numbers;
    }
}
/* to, rate, sums */
static void plan_trust_rate(struct call *c) {
    const double ends[] = {0, 1e-300, 1e300, HUGE_VAL, NAN};
    double rate = 0.1 + 0.1 * unit(),
           sums[2] = {chance(40) ? ends[between(0, 4)] : fabs(unit()), chance(40) ? ends[between(0, 4)] : fabs(unit())};
    add_numbers(c, FMT_F32, 1, NULL);
    add_numbers(c, FMT_F32, 1, &rate);
    add_numbers(c, FMT_F64, 2, sums);
}

#endif
