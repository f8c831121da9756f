/* random_actions.h - the calls that random_calls.h draws: how operands are chosen (plan), and the call (run). A row of
 * ops.def for elementwise operations is covered by itself. Operands come from the pool at random, so an output is now
 * and then an input: in place where that is allowed, an error that every row must report alike where it is not. */
#ifndef FL_RANDOM_ACTIONS_H
#define FL_RANDOM_ACTIONS_H

#include "host_numbers.h"
#include "random_calls.h"
#include "flexlab/tensor_blocks.h"

/* Sizes of an episode: calls share shapes, so that results become operands. */
static struct {
    const struct fl_format *format;
    int64_t n, h, w, c, k;        /* images and filters */
    int64_t rows, columns, inner; /* matrices */
    int64_t length;
    struct square how[2];
    tensor_window around[2];
    int64_t filter_h, filter_w;
    int64_t work; /* most products of a call */
} sizes;

/* Mostly small, odd and one more often than not. */
static int64_t draw_size(int64_t most) {
    static const int liked[] = {1, 2, 3, 4, 5, 7, 8, 13, 15, 16, 17, 31, 32, 33, 64, 65, 127, 130, 257, 515};
    const int64_t x = chance(60) ? liked[below(20)] : 1 + (int64_t)(draw() % (uint64_t)most);
    return x <= most ? x : 1 + x % most;
}

/* Steps and padding of a window, each direction and side for itself. */
static tensor_window draw_around(int groups) {
    tensor_window how = {.groups = groups};
    const bool dilated = chance(50);
    for (int way = 0; way < 2; way++) {
        how.window[way] = between(1, 4);
        how.stride[way] = between(1, chance(80) ? 2 : 4);
        how.dilation[way] = dilated ? between(1, 3) : 0;
    }
    for (int side = 0; side < 4; side++)
        how.padding[side] = below(chance(90) ? 3 : 8);
    return how;
}

static void draw_episode(void) {
    int formats = 0;
    while (fl_format_at(formats))
        formats++;
    static const struct {
        int share; /* of 1000 episodes, with those above */
        int64_t images, side, channels, rows, columns, inner, length, work;
    } scales[] = {{4, 8, 30, 70, 300, 200, 3000, 300000, 20000000},
                  {40, 6, 16, 70, 200, 120, 1200, 100000, 3000000},
                  {240, 3, 8, 36, 70, 70, 600, 5000, 300000},
                  {1000, 3, 6, 9, 14, 14, 40, 130, 15000}};
    const int drawn = below(1000);
    int i = 0;
    while (drawn >= scales[i].share)
        i++;
    sizes.format = fl_format_at(below(formats));
    sizes.n = draw_size(scales[i].images);
    sizes.h = draw_size(scales[i].side);
    sizes.w = draw_size(scales[i].side);
    sizes.c = draw_size(scales[i].channels);
    sizes.k = chance(30) ? sizes.c * between(1, 2) : draw_size(scales[i].channels);
    sizes.rows = draw_size(scales[i].rows);
    sizes.columns = draw_size(scales[i].columns);
    sizes.inner = draw_size(scales[i].inner);
    sizes.length = i < 2 && chance(50) ? scales[i].length - below(9000) : draw_size(scales[i].length);
    sizes.work = scales[i].work;
    for (int j = 0; j < 2; j++)
        sizes.how[j] = (struct square){.window = between(1, 3),
                                       .stride = between(1, chance(80) ? 2 : 4),
                                       .padding = below(3),
                                       .dilation = chance(70) ? below(2) : between(2, 3),
                                       .groups = chance(60)   ? below(2)
                                                 : chance(50) ? (int)sizes.c
                                                              : between(2, 4)};
    for (int j = 0; j < 2; j++)
        sizes.around[j] = draw_around(sizes.how[j].groups);
    sizes.filter_h = between(1, 3);
    sizes.filter_w = chance(80) ? sizes.filter_h : between(1, 5);
}

static float draw_scalar(void) {
    switch (below(8)) {
    case 0:
        return (float)between(-2, 2);
    case 1:
        return ldexpf(1, between(-40, 12));
    case 2:
        return ldexpf((float)unit(), between(-126, 120));
    case 3:
        return chance(15) ? NAN : -0.0f;
    default:
        return (float)unit() * (chance(50) ? 1 : 0.01f);
    }
}

/* Rank and sizes of something elementwise. */
static int draw_shape(int64_t shape[4]) {
    const int64_t all[][4] = {{sizes.length},
                              {sizes.n, sizes.h, sizes.w, sizes.c},
                              {sizes.rows, sizes.columns},
                              {sizes.rows, sizes.inner},
                              {sizes.c},
                              {sizes.k, sizes.filter_h, sizes.filter_w, sizes.c},
                              {sizes.n, sizes.c}};
    static const int ranks[] = {1, 4, 2, 2, 1, 4, 2};
    const int i = below(7);
    memcpy(shape, all[i], sizeof all[i]);
    return ranks[i];
}

static bool plan_same(struct call *c, int operands) {
    int64_t shape[4];
    const int rank = draw_shape(shape);
    c->format = sizes.format;
    c->alpha = draw_scalar();
    c->beta = draw_scalar();
    for (int i = 0; i < operands; i++)
        want(c, rank, shape);
    return true;
}
static bool plan_1(struct call *c) {
    return plan_same(c, 1);
}
static bool plan_2(struct call *c) {
    return plan_same(c, 2);
}
static bool plan_3(struct call *c) {
    return plan_same(c, 3);
}
static bool plan_4(struct call *c) {
    return plan_same(c, 4);
}

/* The two scalars of an operation that has two: the least value and the largest. */
#define BOUNDS(c) (c)->alpha <= (c)->beta ? (c)->alpha : (c)->beta, (c)->alpha <= (c)->beta ? (c)->beta : (c)->alpha

#define RUN(name)                                                                                                      \
    static tensor_status run_##name(const struct call *c, tensor *const *t, struct outcome *o) {                       \
        (void)c, (void)t, (void)o;

#define FL_MAP1(id, CONSTANT, name, expr)                                                                              \
    RUN(name) return tensor_##name(t[0], t[1]);                                                                        \
    }
#define FL_MAP1_SCALAR(id, CONSTANT, name, expr)                                                                       \
    RUN(name) return tensor_##name(t[0], t[1], c->alpha);                                                              \
    }
#define FL_MAP1_SCALARS(id, CONSTANT, name, expr)                                                                      \
    RUN(name) return tensor_##name(t[0], t[1], BOUNDS(c));                                                             \
    }
#define FL_MAP2_SCALARS(id, CONSTANT, name, expr)                                                                      \
    RUN(name) return tensor_##name(t[0], t[1], t[2], BOUNDS(c));                                                       \
    }
#define FL_MAP2(id, CONSTANT, name, expr)                                                                              \
    RUN(name) return tensor_##name(t[0], t[1], t[2]);                                                                  \
    }
#define FL_MAP2_SCALAR(id, CONSTANT, name, expr)                                                                       \
    RUN(name) return tensor_##name(t[0], t[1], t[2], c->alpha);                                                        \
    }
#define FL_MAP3(id, CONSTANT, name, expr)                                                                              \
    RUN(name) return tensor_##name(t[0], t[1], t[2], t[3]);                                                            \
    }
#include "flexlab/ops.def"

/* clang-format off */
RUN(sgd_momentum) return tensor_sgd_momentum(t[0], t[1], t[2], c->alpha, c->beta); }
RUN(sgd_update) return tensor_sgd_update(t[0], t[1], c->alpha); }
/* clang-format on */

static void keep(struct outcome *o, const double *values, int64_t n);

/* --- optimisers: their factors are numbers of the call ------------------------------------------------------------ */

static bool plan_factors(struct call *c, int operands) {
    plan_same(c, operands);
    c->numbers_count = FL_FACTORS;
    for (int i = 0; i < FL_FACTORS; i++)
        c->numbers[i] = chance(80) ? (double)c->alpha * unit() + (i == 0) : (double)draw_scalar();
    c->number = chance(4) ? -1 : 0;
    c->relu = chance(50); /* the third operand */
    return true;
}
static bool plan_factors_2(struct call *c) {
    return plan_factors(c, 2);
}
static bool plan_factors_4(struct call *c) {
    return plan_factors(c, 4);
}

static tensor *factors_of(const struct call *c) {
    tensor *factors = tensor_new(FMT_F64, TENSOR_SHAPE(1, FL_FACTORS));
    CHECK(factors && !tensor_load_f64(factors, c->numbers, FL_FACTORS), "%s", tensor_error());
    return factors;
}

RUN(combine)
tensor *factors = factors_of(c);
const tensor_status status = tensor_combine(t[0], t[1], t[2], c->relu ? t[3] : NULL, factors, c->number);
tensor_free(factors);
return status;
}
RUN(combine_in_place)
tensor *factors = factors_of(c);
const tensor_status status = tensor_combine(t[0], t[0], t[1], c->relu ? t[2] : NULL, factors, c->number);
tensor_free(factors);
return status;
}
RUN(root_mean)
tensor *factors = factors_of(c);
const tensor_status status = tensor_root_mean(t[0], t[1], factors, c->number);
tensor_free(factors);
return status;
}
RUN(add_ratio)
tensor *factors = factors_of(c);
const tensor_status status = tensor_add_ratio(t[0], t[1], t[2], t[3], factors, c->number);
tensor_free(factors);
return status;
}
RUN(clip_weight) return tensor_clip_weight(t[0], fabsf(c->alpha));
}
RUN(sum_squares)
tensor *sums = tensor_new(FMT_F64, TENSOR_SHAPE(2));
double values[2];
tensor_status status = tensor_sum_squares(sums, 1, t[0]);
status = status ? status : tensor_store_f64(sums, values, 2);
if (!status)
    keep(o, values, 2);
tensor_free(sums);
return status;
}

/* --- matrices ----------------------------------------------------------------------------------------------------- */

static bool plan_bias(struct call *c) {
    int64_t shape[4];
    const int rank = draw_shape(shape);
    c->format = sizes.format;
    want(c, rank, shape);
    want(c, rank, shape);
    WANT(c, shape[rank - 1]);
    return true;
}

static bool plan_sum_rows(struct call *c) {
    int64_t shape[4];
    const int rank = draw_shape(shape);
    c->format = sizes.format;
    WANT(c, shape[rank - 1]);
    want(c, rank, shape);
    return true;
}

/* Which of a and b is transposed. */
static bool plan_product(struct call *c, bool ta, bool tb) {
    const bool other = chance(30);
    const int64_t m = other ? sizes.columns : sizes.rows, n = other ? sizes.rows : sizes.columns, k = sizes.inner;
    c->format = sizes.format;
    if (m * n * k > sizes.work)
        return false;
    WANT(c, m, n);
    WANT(c, ta ? k : m, ta ? m : k);
    WANT(c, tb ? n : k, tb ? k : n);
    return true;
}

/* Bias and residual, each if chance wants it, after the operands; the output is operand 0. */
static bool plan_epilogue(struct call *c, int64_t columns) {
    if (chance(70))
        WANT(c, columns);
    else
        want_none(c);
    if (chance(60))
        want(c, c->operand[0].ndim, c->operand[0].shape);
    else
        want_none(c);
    c->relu = chance(50);
    return true;
}

#define EPILOGUE(c, t) (&(const tensor_epilogue){.bias = (t)[3], .residual = (t)[4], .relu = (c)->relu})

static bool plan_matmul(struct call *c) {
    return plan_product(c, false, false);
}
static bool plan_matmul_nt(struct call *c) {
    return plan_product(c, false, true);
}
static bool plan_matmul_tn(struct call *c) {
    return plan_product(c, true, false);
}
static bool plan_matmul_fused(struct call *c) {
    return plan_product(c, false, false) && plan_epilogue(c, c->operand[0].shape[1]);
}
static bool plan_matmul_nt_fused(struct call *c) {
    return plan_product(c, false, true) && plan_epilogue(c, c->operand[0].shape[1]);
}

/* clang-format off */
RUN(bias) return tensor_bias(t[0], t[1], t[2]); }
RUN(bias_relu) return tensor_bias_relu(t[0], t[1], t[2]); }
RUN(sum_rows) return tensor_sum_rows(t[0], t[1]); }
RUN(matmul) return tensor_matmul(t[0], t[1], t[2]); }
RUN(matmul_nt) return tensor_matmul_nt(t[0], t[1], t[2]); }
RUN(matmul_tn) return tensor_matmul_tn(t[0], t[1], t[2]); }
RUN(matmul_fused) return tensor_matmul_fused(t[0], t[1], t[2], EPILOGUE(c, t)); }
RUN(matmul_nt_fused) return tensor_matmul_nt_fused(t[0], t[1], t[2], EPILOGUE(c, t)); }
/* clang-format on */

/* --- images ------------------------------------------------------------------------------------------------------- */

static int64_t positions(int64_t size, int64_t window, struct square how) {
    const int64_t room = size + 2 * how.padding - window;
    return room < 0 ? 0 : room / how.stride + 1;
}

/* Shapes of x, w and y. */
struct convolution {
    int64_t x[4], w[4], y[4];
};

static bool draw_convolution(struct call *c, struct convolution *s) {
    c->format = sizes.format;
    c->how = sizes.how[below(2)];
    const int64_t dilation = c->how.dilation ? c->how.dilation : 1, groups = c->how.groups ? c->how.groups : 1;
    const int64_t channels = sizes.c, filters = (sizes.k + groups - 1) / groups * groups;
    if (channels % groups && !chance(3)) /* an error */
        return false;
    const int64_t p = positions(sizes.h, (sizes.filter_h - 1) * dilation + 1, c->how),
                  q = positions(sizes.w, (sizes.filter_w - 1) * dilation + 1, c->how);
    if ((p < 1 || q < 1) && !chance(3))
        return false;
    const int64_t depth = channels / groups ? channels / groups : 1;
    *s = (struct convolution){{sizes.n, sizes.h, sizes.w, channels},
                              {filters, sizes.filter_h, sizes.filter_w, depth},
                              {sizes.n, p < 1 ? 1 : p, q < 1 ? 1 : q, filters}};
    return count_of(4, s->y) * sizes.filter_h * sizes.filter_w * depth <= sizes.work;
}

static bool plan_convolution(struct call *c, int out) {
    struct convolution s;
    if (!draw_convolution(c, &s))
        return false;
    want(c, 4, out == 0 ? s.y : out == 1 ? s.x : s.w);
    want(c, 4, out == 0 ? s.x : s.y);
    want(c, 4, out == 2 ? s.x : s.w);
    return true;
}
static bool plan_conv2d(struct call *c) {
    return plan_convolution(c, 0);
}
static bool plan_conv2d_fused(struct call *c) {
    return plan_convolution(c, 0) && plan_epilogue(c, c->operand[0].shape[3]);
}
static bool plan_input_grad(struct call *c) {
    return plan_convolution(c, 1);
}
static bool plan_weight_grad(struct call *c) {
    return plan_convolution(c, 2);
}

static bool plan_pool(struct call *c, bool gradient) {
    c->format = sizes.format;
    c->how = sizes.how[below(2)];
    c->how.dilation = c->how.groups = 0;
    if (c->how.padding >= c->how.window && !chance(5))
        c->how.padding = c->how.window - 1;
    const int64_t p = positions(sizes.h, c->how.window, c->how), q = positions(sizes.w, c->how.window, c->how);
    if (p < 1 || q < 1)
        return false;
    const int64_t x[4] = {sizes.n, sizes.h, sizes.w, sizes.c}, y[4] = {sizes.n, p, q, sizes.c};
    want(c, 4, gradient ? x : y);
    want(c, 4, gradient ? y : x);
    if (gradient)
        want(c, 4, x);
    return true;
}
static bool plan_maxpool2d(struct call *c) {
    return plan_pool(c, false);
}
static bool plan_maxpool2d_grad(struct call *c) {
    return plan_pool(c, true);
}

/* --- windows of any shape ----------------------------------------------------------------------------------------- */

static int64_t places_around(const tensor_window *how, int way, int64_t size, int64_t window) {
    const int64_t dilation = how->dilation[way] ? how->dilation[way] : 1;
    const int64_t room = size + how->padding[2 * way] + how->padding[2 * way + 1] - (window - 1) * dilation - 1;
    return room < 0 ? 0 : room / how->stride[way] + 1;
}

/* The pixels that a transposed convolution makes of `size`. */
static int64_t spread_around(const tensor_window *how, int way, int64_t size, int64_t window) {
    const int64_t dilation = how->dilation[way] ? how->dilation[way] : 1;
    return (size - 1) * how->stride[way] + (window - 1) * dilation + 1 + how->output_padding[way] -
           how->padding[2 * way] - how->padding[2 * way + 1];
}

/* An operand; sequences have no height. */
static void want_around(struct call *c, bool sequences, const int64_t *s) {
    if (sequences)
        WANT(c, s[0], s[2], s[3]);
    else
        want(c, 4, s);
}

/* A convolution, of which the image (1), the filters (2) or the result (0) is written. */
static bool plan_around(struct call *c, bool sequences, bool transposed, int out, bool fused) {
    c->format = sizes.format;
    c->around = sizes.around[below(2)];
    tensor_window *how = &c->around;
    how->window[0] = how->window[1] = 0;
    if (transposed)
        for (int way = 0; way < 2; way++)
            how->output_padding[way] = chance(5) ? below(4) : below(how->stride[way]);
    const int64_t groups = how->groups ? how->groups : 1, channels = sizes.c,
                  filters = (sizes.k + groups - 1) / groups * groups, r = sequences ? 1 : sizes.filter_h,
                  s = sizes.filter_w, h = sequences ? 1 : sizes.h;
    if (sequences) {
        how->padding[0] = how->padding[1] = how->output_padding[0] = 0;
        how->stride[0] = how->dilation[0] = 1;
        how->dilation[1] = how->dilation[1] ? how->dilation[1] : 1;
    }
    if (channels % groups && !chance(3)) /* an error */
        return false;
    const int64_t depth = channels / groups ? channels / groups : 1;
    int64_t p = transposed ? h : places_around(how, 0, h, r),
            q = transposed ? sizes.w : places_around(how, 1, sizes.w, s);
    int64_t down = transposed ? spread_around(how, 0, h, r) : h,
            across = transposed ? spread_around(how, 1, sizes.w, s) : sizes.w;
    if ((p < 1 || q < 1 || down < 1 || across < 1) && !chance(3))
        return false;
    p = p < 1 ? 1 : p;
    q = q < 1 ? 1 : q;
    down = down < 1 ? 1 : down;
    across = across < 1 ? 1 : across;
    const int64_t x[4] = {sizes.n, down, across, transposed ? depth * groups : channels}, w[4] = {filters, r, s, depth},
                  y[4] = {sizes.n, p, q, filters};
    const bool image_out = transposed ? out == 0 : out == 1, result_out = transposed ? out == 1 : out == 0;
    want_around(c, sequences, image_out ? x : result_out ? y : w);
    want_around(c, sequences, out == 2 ? (transposed ? x : y) : image_out ? y : x);
    want_around(c, sequences, out == 2 ? (transposed ? y : x) : w);
    if ((count_of(4, y) > count_of(4, x) ? count_of(4, y) : count_of(4, x)) * r * s * depth > sizes.work)
        return false;
    return !fused || plan_epilogue(c, c->operand[0].shape[c->operand[0].ndim - 1]);
}
#define PLAN_AROUND(name, sequences, transposed, out, fused)                                                           \
    static bool plan_##name(struct call *c) {                                                                          \
        return plan_around(c, sequences, transposed, out, fused);                                                      \
    }
PLAN_AROUND(conv2d_with, false, false, 0, true)
PLAN_AROUND(conv2d_input_grad_with, false, false, 1, false)
PLAN_AROUND(conv2d_weight_grad_with, false, false, 2, false)
PLAN_AROUND(conv_transpose2d, false, true, 0, true)
PLAN_AROUND(conv_transpose2d_input_grad, false, true, 1, false)
PLAN_AROUND(conv_transpose2d_weight_grad, false, true, 2, false)
PLAN_AROUND(conv1d, true, false, 0, true)
PLAN_AROUND(conv1d_input_grad, true, false, 1, false)
PLAN_AROUND(conv1d_weight_grad, true, false, 2, false)
PLAN_AROUND(conv_transpose1d, true, true, 0, true)

static bool plan_pool_around(struct call *c, bool sequences, bool gradient) {
    c->format = sizes.format;
    c->around = sizes.around[below(2)];
    tensor_window *how = &c->around;
    how->groups = 0;
    if (sequences) {
        how->window[0] = how->stride[0] = how->dilation[0] = 1;
        how->padding[0] = how->padding[1] = 0;
        how->dilation[1] = how->dilation[1] ? how->dilation[1] : 1;
    }
    for (int side = 0; side < 4; side++) {
        const int dilation = how->dilation[side / 2] ? how->dilation[side / 2] : 1,
                  most = (how->window[side / 2] - 1) * dilation;
        how->padding[side] = how->padding[side] > most && !chance(5) ? most : how->padding[side];
    }
    const int64_t h = sequences ? 1 : sizes.h, p = places_around(how, 0, h, how->window[0]),
                  q = places_around(how, 1, sizes.w, how->window[1]);
    if (p < 1 || q < 1)
        return false;
    const int64_t x[4] = {sizes.n, h, sizes.w, sizes.c}, y[4] = {sizes.n, p, q, sizes.c};
    want_around(c, sequences, gradient ? x : y);
    want_around(c, sequences, gradient ? y : x);
    if (gradient)
        want_around(c, sequences, x);
    return true;
}
static bool plan_maxpool2d_with(struct call *c) {
    return plan_pool_around(c, false, false);
}
static bool plan_maxpool2d_grad_with(struct call *c) {
    return plan_pool_around(c, false, true);
}
static bool plan_maxpool1d_grad(struct call *c) {
    return plan_pool_around(c, true, true);
}

static bool plan_avgpool(struct call *c) {
    c->format = sizes.format;
    WANT(c, sizes.n, sizes.c);
    WANT(c, sizes.n, sizes.h, sizes.w, sizes.c);
    return true;
}

static bool plan_shortcut(struct call *c) {
    c->format = sizes.format;
    c->number = between(1, 3);
    const int64_t k = sizes.k < sizes.c ? sizes.c : sizes.k;
    WANT(c, sizes.n, (sizes.h + c->number - 1) / c->number, (sizes.w + c->number - 1) / c->number, k);
    WANT(c, sizes.n, sizes.h, sizes.w, sizes.c);
    return true;
}

/* clang-format off */
RUN(conv2d) return tensor_conv2d(t[0], t[1], t[2], STEPS(c->how)); }
RUN(conv2d_fused) return tensor_conv2d_fused(t[0], t[1], t[2], STEPS(c->how), EPILOGUE(c, t)); }
RUN(conv2d_input_grad) return tensor_conv2d_input_grad(t[0], t[1], t[2], STEPS(c->how)); }
RUN(conv2d_weight_grad) return tensor_conv2d_weight_grad(t[0], t[1], t[2], STEPS(c->how)); }
RUN(maxpool2d) return tensor_maxpool2d(t[0], t[1], SQUARE(c->how)); }
RUN(maxpool2d_grad) return tensor_maxpool2d_grad(t[0], t[1], t[2], SQUARE(c->how)); }
RUN(conv2d_with) return tensor_conv2d_fused(t[0], t[1], t[2], &c->around, EPILOGUE(c, t)); }
RUN(conv2d_input_grad_with) return tensor_conv2d_input_grad(t[0], t[1], t[2], &c->around); }
RUN(conv2d_weight_grad_with) return tensor_conv2d_weight_grad(t[0], t[1], t[2], &c->around); }
RUN(conv_transpose2d) return tensor_conv_transpose2d_fused(t[0], t[1], t[2], &c->around, EPILOGUE(c, t)); }
RUN(conv_transpose2d_input_grad) return tensor_conv_transpose2d_input_grad(t[0], t[1], t[2], &c->around); }
RUN(conv_transpose2d_weight_grad) return tensor_conv_transpose2d_weight_grad(t[0], t[1], t[2], &c->around); }
RUN(conv1d) return tensor_conv1d_fused(t[0], t[1], t[2], &c->around, EPILOGUE(c, t)); }
RUN(conv1d_input_grad) return tensor_conv1d_input_grad(t[0], t[1], t[2], &c->around); }
RUN(conv1d_weight_grad) return tensor_conv1d_weight_grad(t[0], t[1], t[2], &c->around); }
RUN(conv_transpose1d) return tensor_conv_transpose1d_fused(t[0], t[1], t[2], &c->around, EPILOGUE(c, t)); }
RUN(maxpool2d_with) return tensor_maxpool2d(t[0], t[1], &c->around); }
RUN(maxpool2d_grad_with) return tensor_maxpool2d_grad(t[0], t[1], t[2], &c->around); }
RUN(maxpool1d_grad) return tensor_maxpool1d_grad(t[0], t[1], t[2], &c->around); }
RUN(avgpool_global) return tensor_avgpool_global(t[0], t[1]); }
RUN(avgpool_global_grad) return tensor_avgpool_global_grad(t[1], t[0]); }
RUN(shortcut_a) return tensor_shortcut_a(t[0], t[1], c->number); }
RUN(shortcut_a_grad) return tensor_shortcut_a_grad(t[1], t[0], c->number); }
/* clang-format on */

/* --- reductions, normalisation, loss ------------------------------------------------------------------------------ */

static void keep(struct outcome *o, const double *values, int64_t n) {
    memcpy(o->values + o->count, values, (size_t)n * sizeof *values);
    o->count += (int)n;
}

static bool plan_channels(struct call *c, int images, int vectors) {
    int64_t shape[4];
    int rank = draw_shape(shape);
    if (rank == 1)
        rank = 2, shape[1] = shape[0], shape[0] = 1;
    const int64_t channels = shape[rank - 1];
    if (channels > RESULTS)
        return false;
    c->format = sizes.format;
    c->epsilon = chance(60) ? 1e-5 : ldexp(1, between(-60, 4));
    c->relu = chance(50);
    c->number = chance(60); /* mean and variance are those of x */
    c->numbers_count = (int)channels;
    const int place = between(-20, 4), spread = between(-44, 20);
    for (int64_t i = 0; i < channels; i++) {
        c->numbers[i] = chance(10) ? 0 : ldexp(unit(), place);
        c->numbers[RESULTS + i] = chance(10) ? 0 : ldexp(fabs(unit()), spread);
    }
    for (int i = 0; i < images; i++)
        want(c, rank, shape);
    for (int i = 0; i < vectors; i++)
        WANT(c, channels);
    return true;
}

static bool plan_moments(struct call *c) {
    return plan_channels(c, 1, 0);
}
static bool plan_batchnorm(struct call *c) {
    return plan_channels(c, 2, 2);
}
static bool plan_batchnorm_add(struct call *c) {
    return plan_channels(c, 3, 2);
}
/* dx, dy, x, y (now and then left out), dgamma, dbeta, gamma */
static bool plan_batchnorm_grad(struct call *c) {
    const bool masked = chance(50);
    if (!plan_channels(c, masked ? 4 : 3, masked ? 3 : 0))
        return false;
    if (!masked) {
        want_none(c);
        for (int i = 0; i < 3; i++)
            WANT(c, c->numbers_count);
    }
    return true;
}

/* Mean and variance: drawn, or those of x. */
struct moments {
    const double *mean, *variance;
    double own[2][RESULTS];
};

static tensor_status moments_of(const struct call *c, const tensor *x, struct moments *m, struct outcome *o) {
    m->mean = c->numbers;
    m->variance = c->numbers + RESULTS;
    if (!c->number)
        return TENSOR_OK;
    const tensor_status status = host_moments(m->own[0], m->own[1], x);
    if (status)
        return status;
    keep(o, m->own[0], c->numbers_count);
    keep(o, m->own[1], c->numbers_count);
    for (int i = 0; i < c->numbers_count; i++)
        if (!isfinite(m->own[0][i]) || !isfinite(m->own[1][i]))
            return TENSOR_OK; /* of an image with NaN or Inf: with the drawn ones */
    m->mean = m->own[0];
    m->variance = m->own[1];
    return TENSOR_OK;
}

static struct moments moments;

/* clang-format off */
RUN(channel_moments) return moments_of(c, t[0], &moments, o); }
RUN(batchnorm)
    const tensor_status status = moments_of(c, t[1], &moments, o);
    return status ? status : host_batchnorm(t[0], t[1], NULL, t[2], t[3], moments.mean, moments.variance, c->epsilon,
                                              c->relu);
}
RUN(batchnorm_add)
    const tensor_status status = moments_of(c, t[1], &moments, o);
    return status ? status : host_batchnorm(t[0], t[1], t[2], t[3], t[4], moments.mean, moments.variance,
                                                  c->epsilon, c->relu);
}
RUN(batchnorm_grad)
    const tensor_status status = moments_of(c, t[2], &moments, o);
    return status ? status : host_batchnorm_grad(t[0], t[4], t[5], t[1], t[2], t[3], t[6], moments.mean,
                                                   moments.variance, c->epsilon);
}
RUN(sum)
    double sum = 0;
    const tensor_status status = tensor_sum(&sum, t[0]);
    keep(o, &sum, 1);
    return status;
}
RUN(max_abs)
    double maximum = 0;
    const tensor_status status = tensor_max_abs(&maximum, t[0]);
    keep(o, &maximum, 1);
    return status;
}
/* clang-format on */

static bool plan_softmax(struct call *c) {
    c->format = sizes.format;
    const int64_t rows = chance(50) ? sizes.rows : sizes.n, classes = chance(50) ? sizes.columns : sizes.c;
    if (rows > RESULTS)
        return false;
    for (int64_t i = 0; i < rows; i++)
        c->labels[i] = chance(99) || rows > 50 ? below((int)classes) : (int32_t)classes;
    c->alpha = draw_scalar();
    if (chance(80))
        WANT(c, rows, classes);
    else
        want_none(c);
    WANT(c, rows, classes);
    return true;
}

/* clang-format off */
RUN(softmax_cross_entropy)
    int32_t predicted[RESULTS];
    double loss = 0;
    const tensor_status status = host_cross_entropy(&loss, t[0], predicted, t[1], c->labels, c->alpha);
    keep(o, &loss, 1);
    for (int64_t i = 0; !status && i < c->operand[1].shape[0]; i++)
        keep(o, &(double){predicted[i]}, 1);
    return status;
}
/* clang-format on */

/* --- losses: dx (now and then left out), x, targets of the format; labels ------------------------------------------
 */

/* number: how the loss is asked for. */
static bool plan_loss(struct call *c) {
    if (!plan_softmax(c))
        return false;
    const int64_t rows = c->operand[1].shape[0], classes = c->operand[1].shape[1];
    if (classes > RESULTS)
        return false;
    c->number = below(16);
    c->beta = chance(4) ? draw_scalar() : (float)(0.5 + unit() / 2);
    for (int64_t i = 0; i < rows; i++)
        if (chance(15))
            c->labels[i] = -1;
    for (int64_t i = 0; i < classes; i++)
        c->numbers[i] = chance(10) ? 0 : unit();
    WANT(c, rows, classes);
    return true;
}

struct loss_numbers {
    tensor *loss, *labels, *predicted, *correct, *weights, *scale;
    tensor_loss_options how;
};
static struct loss_numbers loss_numbers_of(const struct call *c) {
    const int64_t rows = c->operand[1].shape[0], classes = c->operand[1].shape[1];
    struct loss_numbers n = {tensor_new(FMT_F64, TENSOR_SHAPE(1)),
                             tensor_new(FMT_I32, TENSOR_SHAPE(rows)),
                             tensor_new(FMT_I32, TENSOR_SHAPE(rows)),
                             tensor_new(FMT_I32, TENSOR_SHAPE(1)),
                             tensor_new(FMT_F64, TENSOR_SHAPE(classes)),
                             tensor_new(FMT_F64, TENSOR_SHAPE(1)),
                             {0}};
    CHECK(!tensor_load_i32(n.labels, c->labels, rows) && !tensor_load_f64(n.weights, c->numbers, classes) &&
              !tensor_load_f64(n.scale, (double[]){c->alpha}, 1),
          "%s", tensor_error());
    n.how.gradient_scale = c->alpha;
    n.how.gradient_scale_tensor = c->number & 1 ? n.scale : NULL;
    return n;
}
static tensor_status keep_loss(struct loss_numbers *n, tensor_status status, struct outcome *o) {
    double loss = 0;
    int32_t right = 0, predicted[RESULTS];
    const int64_t rows = tensor_count(n->predicted);
    CHECK(!tensor_store_f64(n->loss, &loss, 1) && !tensor_store_i32(n->correct, &right, 1) &&
              !tensor_store_i32(n->predicted, predicted, rows),
          "%s", tensor_error());
    keep(o, &loss, 1);
    keep(o, &(double){right}, 1);
    for (int64_t i = 0; !status && i < rows; i++)
        keep(o, &(double){predicted[i]}, 1);
    tensor *const all[] = {n->loss, n->labels, n->predicted, n->correct, n->weights, n->scale};
    for (int i = 0; i < 6; i++)
        tensor_free(all[i]);
    return status;
}

/* clang-format off */
RUN(cross_entropy_with)
    struct loss_numbers n = loss_numbers_of(c);
    n.how.ignores = c->number & 2;
    n.how.ignored_label = -1;
    n.how.label_smoothing = c->number & 4 ? c->beta : 0;
    n.how.class_weights = c->number & 8 ? n.weights : NULL;
    return keep_loss(&n, tensor_cross_entropy(n.loss, t[0], n.predicted, n.correct, t[1], n.labels, &n.how), o);
}
RUN(cross_entropy_targets)
    struct loss_numbers n = loss_numbers_of(c);
    n.how.label_smoothing = c->number & 4 ? c->beta : 0;
    n.how.class_weights = c->number & 8 ? n.weights : NULL;
    return keep_loss(&n, tensor_cross_entropy_targets(n.loss, t[0], n.predicted, t[1], t[2], &n.how), o);
}
RUN(squared_error)
    struct loss_numbers n = loss_numbers_of(c);
    return keep_loss(&n, tensor_squared_error(n.loss, t[0], t[1], t[2], &n.how), o);
}
RUN(huber)
    struct loss_numbers n = loss_numbers_of(c);
    return keep_loss(&n, tensor_huber(n.loss, t[0], t[1], t[2], c->beta, &n.how), o);
}
RUN(wasserstein)
    struct loss_numbers n = loss_numbers_of(c);
    int32_t *labels = tensor_data(n.labels);
    for (int64_t i = 0; i < tensor_count(n.labels); i++)
        labels[i] = labels[i] < 0 ? -1 : labels[i] & (c->number & 4 ? 3 : 1);
    n.how.ignores = c->number & 2;
    n.how.ignored_label = -1;
    return keep_loss(&n, tensor_wasserstein(n.loss, t[0], t[1], n.labels, &n.how), o);
}
/* clang-format on */

/* --- rows, embedding, copies -------------------------------------------------------------------------------------- */

static int draw_rows(struct call *c, int64_t shape[4]) {
    const int rank = draw_shape(shape);
    c->format = sizes.format;
    c->epsilon = chance(60) ? 1e-5 : chance(3) ? 0 : ldexp(1, between(-60, 4));
    c->alpha = draw_scalar();
    c->relu = chance(40); /* a causal mask */
    return rank;
}

/* y, x, gamma, beta (now and then left out) */
static bool plan_row_norm(struct call *c) {
    int64_t shape[4];
    const int rank = draw_rows(c, shape);
    want(c, rank, shape);
    want(c, rank, shape);
    WANT(c, shape[rank - 1]);
    if (chance(60))
        WANT(c, shape[rank - 1]);
    else
        want_none(c);
    return true;
}
/* dx, dgamma, dbeta (now and then left out), dy, x, gamma */
static bool plan_row_norm_grad(struct call *c) {
    int64_t shape[4];
    const int rank = draw_rows(c, shape);
    want(c, rank, shape);
    WANT(c, shape[rank - 1]);
    if (chance(60))
        WANT(c, shape[rank - 1]);
    else
        want_none(c);
    want(c, rank, shape);
    want(c, rank, shape);
    WANT(c, shape[rank - 1]);
    return true;
}
static bool plan_rows(struct call *c, int operands) {
    int64_t shape[4];
    const int rank = draw_rows(c, shape);
    for (int i = 0; i < operands; i++)
        want(c, rank, shape);
    return true;
}
static bool plan_softmax_rows(struct call *c) {
    return plan_rows(c, 2);
}
static bool plan_softmax_rows_grad(struct call *c) {
    return plan_rows(c, 3);
}

/* Rows of a table, indices, rows; the indices are labels. */
static bool plan_embedding(struct call *c, bool gradient) {
    const int64_t table = chance(50) ? sizes.k : sizes.inner, rows = chance(50) ? sizes.rows : sizes.n * sizes.h;
    if (rows > RESULTS)
        return false;
    c->format = sizes.format;
    c->numbers_count = (int)rows;
    for (int64_t i = 0; i < rows; i++)
        c->labels[i] = chance(99) || rows > 50 ? below((int)table) : (int32_t)table;
    WANT(c, gradient ? table : rows, sizes.c);
    WANT(c, gradient ? rows : table, sizes.c);
    return true;
}
static bool plan_embedding_rows(struct call *c) {
    return plan_embedding(c, false);
}
static bool plan_embedding_grad(struct call *c) {
    return plan_embedding(c, true);
}
static tensor *indices_of(const struct call *c) {
    tensor *indices = tensor_new(FMT_I32, TENSOR_SHAPE(c->numbers_count));
    return indices && !tensor_load_i32(indices, c->labels, c->numbers_count) ? indices : NULL;
}

/* number: which order of the dimensions. */
static const int orders[][4] = {{0, 1, 2, 3}, {0, 2, 1, 3}, {3, 2, 1, 0}, {1, 0, 3, 2}, {2, 0, 3, 1}, {0, 0, 1, 2}};
static bool plan_permute(struct call *c) {
    const int64_t shape[4] = {sizes.n, sizes.h, sizes.w, sizes.c};
    c->format = sizes.format;
    c->number = chance(3) ? 5 : below(5);
    int64_t turned[4];
    for (int d = 0; d < 4; d++)
        turned[d] = shape[orders[c->number][d]];
    want(c, 4, turned);
    want(c, 4, shape);
    return true;
}
/* number: the dimension; numbers_count: the first index. */
static bool plan_part(struct call *c, bool gradient) {
    const int64_t shape[4] = {sizes.n, sizes.h, sizes.w, sizes.c};
    int64_t part[4];
    memcpy(part, shape, sizeof part);
    c->format = sizes.format;
    c->number = below(4);
    part[c->number] = between(1, (int)shape[c->number]);
    c->numbers_count = below((int)(shape[c->number] - part[c->number] + (chance(3) ? 2 : 1)));
    want(c, 4, gradient ? shape : part);
    want(c, 4, gradient ? part : shape);
    return true;
}
static bool plan_slice(struct call *c) {
    return plan_part(c, false);
}
static bool plan_slice_grad(struct call *c) {
    return plan_part(c, true);
}
static bool plan_concat(struct call *c) {
    int64_t shape[4] = {sizes.n, sizes.h, sizes.w, sizes.c};
    int64_t part[3][4];
    const int parts = between(2, 3);
    c->format = sizes.format;
    c->number = below(4);
    shape[c->number] = 0;
    for (int i = 0; i < parts; i++) {
        memcpy(part[i], shape, sizeof part[i]);
        part[i][c->number] = between(1, 5);
    }
    for (int i = 0; i < parts; i++)
        shape[c->number] += part[i][c->number];
    want(c, 4, shape);
    for (int i = 0; i < parts; i++)
        want(c, 4, part[i]);
    if (parts == 2)
        want_none(c);
    return true;
}

static bool plan_batched(struct call *c, bool ta, bool tb) {
    const int64_t m = sizes.h, n = sizes.w, k = sizes.c;
    c->format = sizes.format;
    if (sizes.n * sizes.k * m * n * k > sizes.work)
        return false;
    WANT(c, sizes.n, sizes.k, m, n);
    WANT(c, sizes.n, sizes.k, ta ? k : m, ta ? m : k);
    WANT(c, sizes.n, sizes.k, tb ? n : k, tb ? k : n);
    return true;
}
static bool plan_batched_nn(struct call *c) {
    return plan_batched(c, false, false);
}
static bool plan_batched_nt(struct call *c) {
    return plan_batched(c, false, true);
}
static bool plan_batched_tn(struct call *c) {
    return plan_batched(c, true, false);
}

/* Sequences and units: operands of so many gates each, the first the result. */
static bool plan_cell(struct call *c, const char *gates) {
    const int64_t rows = sizes.n * sizes.k, units = sizes.c;
    c->format = sizes.format;
    if (rows * units * 4 > RESULTS)
        return false;
    for (; *gates; gates++)
        WANT(c, rows, units * (*gates - '0'));
    return true;
}
static bool plan_lstm_cell(struct call *c) {
    return plan_cell(c, "141");
}
static bool plan_lstm_cell_grad(struct call *c) {
    if (chance(60))
        return plan_cell(c, "114114");
    if (!plan_cell(c, "1141"))
        return false;
    want_none(c);
    want_none(c);
    return true;
}
static bool plan_lstm_gates_grad(struct call *c) {
    return plan_cell(c, "411411");
}
static bool plan_gru_hidden(struct call *c) {
    return plan_cell(c, "1331");
}
static bool plan_gru_grad(struct call *c) {
    return plan_cell(c, "31331");
}
static bool plan_gru_state_grad(struct call *c) {
    if (chance(60))
        return plan_cell(c, "11331");
    if (!plan_cell(c, "1133"))
        return false;
    want_none(c);
    return true;
}

/* clang-format off */
RUN(lstm_cell) return tensor_lstm_cell(t[0], t[1], t[2]); }
RUN(lstm_hidden) return tensor_lstm_hidden(t[0], t[1], t[2]); }
RUN(lstm_cell_grad) return tensor_lstm_cell_grad(t[0], t[1], t[2], t[3], t[4], t[5]); }
RUN(lstm_gates_grad) return tensor_lstm_gates_grad(t[0], t[1], t[2], t[3], t[4], t[5]); }
RUN(gru_hidden) return tensor_gru_hidden(t[0], t[1], t[2], t[3]); }
RUN(gru_input_grad) return tensor_gru_input_grad(t[0], t[1], t[2], t[3], t[4]); }
RUN(gru_gates_grad) return tensor_gru_gates_grad(t[0], t[1], t[2], t[3], t[4]); }
RUN(gru_state_grad) return tensor_gru_state_grad(t[0], t[1], t[2], t[3], t[4]); }
RUN(matmul_batched) return tensor_matmul_batched(t[0], t[1], t[2]); }
RUN(matmul_batched_nt) return tensor_matmul_batched_nt(t[0], t[1], t[2]); }
RUN(matmul_batched_tn) return tensor_matmul_batched_tn(t[0], t[1], t[2]); }
RUN(layernorm) return tensor_layernorm(t[0], t[1], t[2], t[3], c->epsilon); }
RUN(layernorm_grad) return tensor_layernorm_grad(t[0], t[1], t[2], t[3], t[4], t[5], c->epsilon); }
RUN(rmsnorm) return tensor_rmsnorm(t[0], t[1], t[2], c->epsilon); }
RUN(rmsnorm_grad) return tensor_rmsnorm_grad(t[0], t[1], t[3], t[4], t[5], c->epsilon); }
RUN(softmax) return tensor_softmax(t[0], t[1], c->alpha, c->relu); }
RUN(softmax_grad) return tensor_softmax_grad(t[0], t[1], t[2], c->alpha, c->relu); }
RUN(log_softmax) return tensor_log_softmax(t[0], t[1], c->alpha); }
RUN(log_softmax_grad) return tensor_log_softmax_grad(t[0], t[1], t[2], c->alpha); }
RUN(embedding)
    tensor *indices = indices_of(c);
    const tensor_status status = tensor_embedding(t[0], t[1], indices);
    tensor_free(indices);
    return status;
}
RUN(embedding_grad)
    tensor *indices = indices_of(c);
    const tensor_status status = tensor_embedding_grad(t[0], t[1], indices);
    tensor_free(indices);
    return status;
}
RUN(permute) return tensor_permute(t[0], t[1], orders[c->number]); }
RUN(slice) return tensor_slice(t[0], t[1], c->number, c->numbers_count); }
RUN(slice_grad) return tensor_slice_grad(t[0], t[1], c->number, c->numbers_count); }
RUN(concat) return tensor_concat(t[0], t[1], t[2], t[3], c->number); }
/* clang-format on */

/* --- average pooling, normalisation of images, dropout ------------------------------------------------------------ */

/* Images, and those of the windows of how. */
static bool plan_average(struct call *c, bool adaptive, bool gradient) {
    c->format = sizes.format;
    c->how = sizes.how[below(2)];
    c->how.dilation = c->how.groups = 0;
    c->how.window = chance(80) ? c->how.window : between(1, 9);
    c->relu = chance(50); /* padding counts */
    const int64_t p = adaptive ? sizes.filter_h : positions(sizes.h, c->how.window, c->how),
                  q = adaptive ? sizes.filter_w : positions(sizes.w, c->how.window, c->how);
    if ((p < 1 || q < 1) && !chance(3))
        return false;
    const int64_t x[4] = {sizes.n, sizes.h, sizes.w, sizes.c}, y[4] = {sizes.n, p < 1 ? 1 : p, q < 1 ? 1 : q, sizes.c};
    want(c, 4, gradient ? x : y);
    want(c, 4, gradient ? y : x);
    return true;
}
static bool plan_avgpool2d(struct call *c) {
    return plan_average(c, false, false);
}
static bool plan_avgpool2d_grad(struct call *c) {
    return plan_average(c, false, true);
}
static bool plan_adaptive(struct call *c) {
    return plan_average(c, true, false);
}
static bool plan_adaptive_grad(struct call *c) {
    return plan_average(c, true, true);
}

static bool plan_lrn_of(struct call *c, int operands) {
    plan_rows(c, operands);
    c->number = chance(97) ? between(1, 9) : -1;
    c->alpha = chance(95) ? fabsf((float)unit()) : draw_scalar();
    c->beta = chance(50) ? 0.75f : chance(95) ? (float)between(1, 16) * 0.25f : 0;
    return true;
}
static bool plan_lrn(struct call *c) {
    return plan_lrn_of(c, 2);
}
static bool plan_lrn_grad(struct call *c) {
    return plan_lrn_of(c, 3);
}

/* As rows, of which there are images; number: of groups. */
static bool plan_group_norm(struct call *c) {
    plan_row_norm(c);
    const int64_t channels = c->operand[2].shape[0];
    c->number = chance(40) ? 1 : chance(50) ? (int)channels : channels % 2 && chance(90) ? 1 : 2;
    return true;
}
static bool plan_group_norm_grad(struct call *c) {
    plan_row_norm_grad(c);
    const int64_t channels = c->operand[1].shape[0];
    c->number = chance(40) ? 1 : chance(50) ? (int)channels : channels % 2 && chance(90) ? 1 : 2;
    return true;
}

static bool plan_dropout(struct call *c) {
    plan_2(c);
    c->beta = chance(95) ? (float)fabs(unit()) : draw_scalar();
    c->number = below(1000);
    return true;
}

/* clang-format off */
RUN(avgpool2d) return tensor_avgpool2d(t[0], t[1], SQUARE(c->how), c->relu); }
RUN(avgpool2d_grad) return tensor_avgpool2d_grad(t[0], t[1], SQUARE(c->how), c->relu); }
RUN(avgpool_adaptive) return tensor_avgpool_adaptive(t[0], t[1]); }
RUN(avgpool_adaptive_grad) return tensor_avgpool_adaptive_grad(t[0], t[1]); }
RUN(lrn) return tensor_lrn(t[0], t[1], c->number, c->alpha, c->beta, 1 + c->alpha); }
RUN(lrn_grad) return tensor_lrn_grad(t[0], t[1], t[2], c->number, c->alpha, c->beta, 1 + c->alpha); }
RUN(groupnorm) return tensor_groupnorm(t[0], t[1], t[2], t[3], c->number, c->epsilon); }
RUN(groupnorm_grad) return tensor_groupnorm_grad(t[0], t[1], t[2], t[3], t[4], t[5], c->number, c->epsilon); }
RUN(dropout)
    tensor *step = tensor_new(FMT_F64, TENSOR_SHAPE(1));
    CHECK(step && !tensor_load_f64(step, &(double){c->number}, 1), "%s", tensor_error());
    const tensor_status status = tensor_dropout(t[0], t[1], c->beta, (uint64_t)c->number * 77, step);
    tensor_free(step);
    return status;
}
/* clang-format on */

/* --- over any dimensions ------------------------------------------------------------------------------------------ */

/* The shape of something with a set of dimensions, which number has; what is left of it without them, or with 1 there.
 */
static int draw_axes(struct call *c, int64_t shape[4], int64_t left[4], int *left_rank) {
    const int rank = draw_shape(shape);
    c->format = sizes.format;
    c->number = chance(3) ? 1 << 7 : (int)(draw() % (1u << rank));
    const bool keep = chance(50);
    int n = 0;
    for (int d = 0; d < rank; d++)
        if (!(c->number >> d & 1))
            left[n++] = shape[d];
        else if (keep)
            left[n++] = 1;
    if (!n)
        left[n++] = 1;
    *left_rank = n;
    return rank;
}
static bool plan_reduce(struct call *c) {
    int64_t shape[4], left[4];
    int left_rank;
    const int rank = draw_axes(c, shape, left, &left_rank);
    want(c, left_rank, left);
    want(c, rank, shape);
    return true;
}
static bool plan_reduce_grad(struct call *c) {
    int64_t shape[4], left[4];
    int left_rank;
    const int rank = draw_axes(c, shape, left, &left_rank);
    want(c, rank, shape);
    want(c, left_rank, left);
    want(c, rank, shape);
    return true;
}
/* number: the axis */
static bool plan_argmax(struct call *c) {
    int64_t shape[4];
    const int rank = draw_shape(shape);
    c->format = sizes.format;
    c->number = chance(3) ? rank : below(rank);
    want(c, rank, shape);
    return true;
}
/* y, a, b: a and b with 1 in place of some dimensions, or fewer of them. */
static void want_repeated(struct call *c, int rank, const int64_t *shape) {
    int64_t part[4];
    memcpy(part, shape, sizeof part);
    for (int d = 0; d < rank; d++)
        part[d] = chance(30) ? 1 : chance(1) ? part[d] + 1 : part[d];
    const int skipped = chance(30) ? below(rank) : 0;
    want(c, rank - skipped, part + skipped);
}
static bool plan_broadcast(struct call *c) {
    int64_t shape[4];
    const int rank = draw_shape(shape);
    c->format = sizes.format;
    want(c, rank, shape);
    want_repeated(c, rank, shape);
    want_repeated(c, rank, shape);
    return true;
}
static bool plan_broadcast_grad(struct call *c) {
    int64_t shape[4];
    const int rank = draw_shape(shape);
    c->format = sizes.format;
    want_repeated(c, rank, shape);
    want(c, rank, shape);
    want_repeated(c, rank, shape);
    return true;
}
/* The marks are of the shape of the last dimension. */
static bool plan_where(struct call *c) {
    const bool fine = plan_broadcast(c);
    c->number = below(1 << 30);
    c->relu = chance(50);
    return fine;
}
static bool plan_where_grad(struct call *c) {
    const bool fine = plan_same(c, 2);
    c->number = below(1 << 30);
    c->relu = chance(50);
    return fine;
}
static tensor *mask_of(const struct call *c, const tensor *y) {
    static uint8_t marks[1 << 19];
    const int64_t n = tensor_dim(y, tensor_ndim(y) - 1);
    tensor *mask = tensor_new(FMT_U8, TENSOR_SHAPE(n));
    for (int64_t i = 0; i < n && i < (int64_t)sizeof marks; i++)
        marks[i] = (uint8_t)(c->number >> i % 30 & 1);
    CHECK(mask && !tensor_load_u8(mask, marks, n), "%s", tensor_error());
    return mask;
}

/* clang-format off */
RUN(reduce_sum) return tensor_reduce_sum(t[0], t[1], (unsigned)c->number); }
RUN(reduce_mean) return tensor_reduce_mean(t[0], t[1], (unsigned)c->number); }
RUN(reduce_max) return tensor_reduce_max(t[0], t[1], (unsigned)c->number); }
RUN(reduce_min) return tensor_reduce_min(t[0], t[1], (unsigned)c->number); }
RUN(reduce_l1) return tensor_reduce_l1(t[0], t[1], (unsigned)c->number); }
RUN(reduce_l2) return tensor_reduce_l2(t[0], t[1], (unsigned)c->number); }
RUN(reduce_sum_grad) return tensor_reduce_sum_grad(t[0], t[1], (unsigned)c->number); }
RUN(reduce_mean_grad) return tensor_reduce_mean_grad(t[0], t[1], (unsigned)c->number); }
RUN(reduce_max_grad) return tensor_reduce_max_grad(t[0], t[1], t[2], (unsigned)c->number); }
RUN(reduce_min_grad) return tensor_reduce_min_grad(t[0], t[1], t[2], (unsigned)c->number); }
RUN(reduce_l1_grad) return tensor_reduce_l1_grad(t[0], t[1], t[2], (unsigned)c->number); }
RUN(reduce_l2_grad) return tensor_reduce_l2_grad(t[0], t[1], t[2], (unsigned)c->number); }
RUN(broadcast_add) return tensor_broadcast_add(t[0], t[1], t[2]); }
RUN(broadcast_mul) return tensor_broadcast_mul(t[0], t[1], t[2]); }
RUN(broadcast_add_grad) return tensor_broadcast_add_grad(t[0], t[1]); }
RUN(broadcast_mul_grad) return tensor_broadcast_mul_grad(t[0], t[1], t[2]); }
RUN(argmax)
    static int32_t where[1 << 19];
    int64_t shape[TENSOR_MAX_DIMS] = {1};
    int rank = 0;
    for (int d = 0; d < tensor_ndim(t[0]); d++)
        if (d != c->number)
            shape[rank++] = tensor_dim(t[0], d);
    tensor *index = tensor_new(FMT_I32, rank ? rank : 1, shape);
    const int64_t n = tensor_count(index);
    tensor_status status = tensor_argmax(index, t[0], c->number);
    if (!status && n <= 1 << 19)
        status = tensor_store_i32(index, where, n);
    for (int64_t i = 0; !status && i < n && i < RESULTS / 4; i++)
        keep(o, &(double){where[i]}, 1);
    tensor_free(index);
    return status;
}
RUN(where)
    tensor *mask = mask_of(c, t[0]);
    const tensor_status status = tensor_where(t[0], mask, t[1], t[2]);
    tensor_free(mask);
    return status;
}
RUN(where_grad)
    tensor *mask = mask_of(c, t[0]);
    const tensor_status status = tensor_where_grad(t[0], t[1], mask, c->relu);
    tensor_free(mask);
    return status;
}
/* clang-format on */

/* --- values, exponents, settings ---------------------------------------------------------------------------------- */

static bool plan_load(struct call *c) {
    if (!plan_1(c))
        return false;
    const int64_t n = count_of(c->operand[0].ndim, c->operand[0].shape);
    const int place = chance(20) ? between(-150, 150) : between(-14, 14), style = below(12);
    if (n > RESULTS)
        return false;
    for (int64_t i = 0; i < n; i++) {
        double x = ldexp(unit(), place);
        if (style == 0)
            x = 0;
        if (style == 1)
            x = ldexp(1, place);
        if (style == 2 && chance(2))
            x = chance(50) ? NAN : -INFINITY;
        if (style == 3) /* half way between two elements, or two wide ones, or nearly so */
            x = ldexp(between(-4096, 4096) * 2 + 1, place) + (chance(50) ? ldexp(unit(), place - 30) : 0);
        c->numbers[i] = x;
    }
    c->numbers_count = (int)n;
    return true;
}

static bool plan_convert(struct call *c) {
    int64_t shape[4];
    const int rank = draw_shape(shape);
    c->format = sizes.format;
    c->number = between(-2, 33);
    want(c, rank, shape);
    want_format(c, fl_format_at(below(5)), rank, shape);
    if (chance(50)) { /* the other way round */
        const int slot = c->operand[0].slot;
        c->operand[0].slot = c->operand[1].slot;
        c->operand[1].slot = slot;
    }
    return true;
}

static bool plan_setting(struct call *c) {
    if (!plan_1(c))
        return false;
    const struct fl_format *f = sizes.format;
    c->number = chance(50) ? draw_exponent(f) : pool[c->operand[0].slot].t[0]->storage->slot->e + between(-3, 3);
    return true;
}

static bool plan_raw(struct call *c) {
    if (!plan_1(c))
        return false;
    const struct fl_format *f = pool[c->operand[0].slot].t[0]->format;
    const int64_t n = count_of(c->operand[0].ndim, c->operand[0].shape);
    c->numbers_count = (int)(n < 8 ? n : 8);
    if (f->arithmetic == FL_ARITHMETIC_SHARED)
        draw_mantissas((int16_t *)c->numbers, c->numbers_count, between(1, STYLES - 1));
    else
        draw_floats(f, c->numbers, c->numbers_count, between(1, STYLES - 1));
    c->number = (int)(draw() % (uint64_t)(n - c->numbers_count + 1));
    return true;
}

/* clang-format off */
RUN(load_f32)
    static float values[RESULTS];
    for (int i = 0; i < c->numbers_count; i++)
        values[i] = (float)c->numbers[i];
    return tensor_load_f32(t[0], values, c->numbers_count);
}
RUN(load_f64) return tensor_load_f64(t[0], c->numbers, c->numbers_count); }
RUN(store)
    const int64_t n = tensor_count(t[0]);
    static double values[1 << 18];
    static float floats[1 << 18];
    if (n > 1 << 18)
        return TENSOR_OK;
    tensor_status status = tensor_store_f64(t[0], values, n);
    keep(o, values, n < RESULTS / 4 ? n : RESULTS / 4);
    status = status ? status : tensor_store_wide_f64(t[0], values, n);
    keep(o, values, n < RESULTS / 4 ? n : RESULTS / 4);
    status = status ? status : tensor_store_f32(t[0], floats, n);
    for (int64_t i = 0; i < n && i < RESULTS / 4; i++)
        keep(o, &(double){floats[i]}, 1);
    return status;
}
RUN(convert) return tensor_convert(t[0], t[1]); }
RUN(convert_at) return tensor_convert_at(t[0], t[1], c->number); }
RUN(copy) return tensor_copy(t[0], t[1]); }
RUN(set_exponent) return tensor_set_exponent(t[0], c->number); }
RUN(declare_exponent) return tensor_declare_exponent(t[0], c->number); }
RUN(keep_wide) return tensor_keep_wide(t[0]); }
RUN(set_predictor) return tensor_set_predictor(t[0], c->number % 5 < 4 ? autoflex_name(autoflex_at((c->number % 5 + 5) % 4)) : "none"); }
RUN(set_rounding) return tensor_set_rounding(t[0], (tensor_rounding)((unsigned)c->number % 3), (uint64_t)c->number); }
RUN(reset_statistics)
    tensor_reset_statistics(t[0]);
    return TENSOR_OK;
}
RUN(write_by_hand)
    const size_t bytes = tensor_format_bytes(tensor_format_of(t[0]));
    memcpy((char *)tensor_data(t[0]) + (size_t)c->number * bytes, c->numbers, (size_t)c->numbers_count * bytes);
    return TENSOR_OK;
}
/* clang-format on */

/* --- the list ----------------------------------------------------------------------------------------------------- */

#define ACTION(name, weight, plan)                                                                                     \
    { #name, weight, plan, run_##name, false }
#define FINE_ACTION(name, weight, plan)                                                                                \
    { #name, weight, plan, run_##name, true }
static const struct action actions[] = {
#define FL_MAP1(id, CONSTANT, name, expr) ACTION(name, 10, plan_2),
#define FL_MAP1_SCALAR(id, CONSTANT, name, expr) ACTION(name, 10, plan_2),
#define FL_MAP2(id, CONSTANT, name, expr) ACTION(name, 10, plan_3),
#define FL_MAP2_SCALAR(id, CONSTANT, name, expr) ACTION(name, 10, plan_3),
#define FL_MAP3(id, CONSTANT, name, expr) ACTION(name, 10, plan_4),
#define FL_MAP1_SCALARS(id, CONSTANT, name, expr) ACTION(name, 10, plan_2),
#define FL_MAP2_SCALARS(id, CONSTANT, name, expr) ACTION(name, 10, plan_3),
/* there are many, and one kernel for them all */
#define FL_REAL1(id, CONSTANT, name, expr) ACTION(name, 1, plan_2),
#define FL_REAL1_SCALAR(id, CONSTANT, name, expr) ACTION(name, 1, plan_2),
#define FL_REAL1_SCALARS(id, CONSTANT, name, expr) ACTION(name, 1, plan_2),
#define FL_REAL2(id, CONSTANT, name, expr) ACTION(name, 1, plan_3),
#define FL_REAL2_SCALAR(id, CONSTANT, name, expr) ACTION(name, 1, plan_3),
#define FL_REAL2_SCALARS(id, CONSTANT, name, expr) ACTION(name, 1, plan_3),
#include "flexlab/ops.def"
    ACTION(sgd_momentum, 20, plan_3),
    FINE_ACTION(sgd_update, 30, plan_2),
    FINE_ACTION(combine, 15, plan_factors_4),
    FINE_ACTION(combine_in_place, 15, plan_factors_4),
    FINE_ACTION(root_mean, 20, plan_factors_2),
    FINE_ACTION(add_ratio, 20, plan_factors_4),
    FINE_ACTION(clip_weight, 15, plan_1),
    ACTION(sum_squares, 8, plan_1),
    ACTION(bias, 10, plan_bias),
    ACTION(bias_relu, 10, plan_bias),
    ACTION(sum_rows, 10, plan_sum_rows),
    ACTION(matmul, 10, plan_matmul),
    ACTION(matmul_nt, 10, plan_matmul_nt),
    ACTION(matmul_tn, 10, plan_matmul_tn),
    ACTION(matmul_fused, 15, plan_matmul_fused),
    ACTION(matmul_nt_fused, 10, plan_matmul_nt_fused),
    ACTION(conv2d, 15, plan_conv2d),
    ACTION(conv2d_fused, 15, plan_conv2d_fused),
    ACTION(conv2d_input_grad, 15, plan_input_grad),
    ACTION(conv2d_weight_grad, 15, plan_weight_grad),
    ACTION(maxpool2d, 10, plan_maxpool2d),
    ACTION(maxpool2d_grad, 10, plan_maxpool2d_grad),
    ACTION(conv2d_with, 12, plan_conv2d_with),
    ACTION(conv2d_input_grad_with, 10, plan_conv2d_input_grad_with),
    ACTION(conv2d_weight_grad_with, 10, plan_conv2d_weight_grad_with),
    ACTION(conv_transpose2d, 10, plan_conv_transpose2d),
    ACTION(conv_transpose2d_input_grad, 5, plan_conv_transpose2d_input_grad),
    ACTION(conv_transpose2d_weight_grad, 5, plan_conv_transpose2d_weight_grad),
    ACTION(conv1d, 5, plan_conv1d),
    ACTION(conv1d_input_grad, 5, plan_conv1d_input_grad),
    ACTION(conv1d_weight_grad, 5, plan_conv1d_weight_grad),
    ACTION(conv_transpose1d, 5, plan_conv_transpose1d),
    ACTION(maxpool2d_with, 8, plan_maxpool2d_with),
    ACTION(maxpool2d_grad_with, 8, plan_maxpool2d_grad_with),
    ACTION(maxpool1d_grad, 5, plan_maxpool1d_grad),
    ACTION(avgpool_global, 8, plan_avgpool),
    ACTION(avgpool_global_grad, 8, plan_avgpool),
    ACTION(shortcut_a, 8, plan_shortcut),
    ACTION(shortcut_a_grad, 8, plan_shortcut),
    ACTION(channel_moments, 10, plan_moments),
    ACTION(batchnorm, 15, plan_batchnorm),
    ACTION(batchnorm_add, 15, plan_batchnorm_add),
    ACTION(batchnorm_grad, 15, plan_batchnorm_grad),
    ACTION(softmax_cross_entropy, 15, plan_softmax),
    ACTION(cross_entropy_with, 15, plan_loss),
    ACTION(cross_entropy_targets, 12, plan_loss),
    ACTION(squared_error, 8, plan_loss),
    ACTION(huber, 8, plan_loss),
    ACTION(wasserstein, 8, plan_loss),
    ACTION(matmul_batched, 10, plan_batched_nn),
    ACTION(matmul_batched_nt, 10, plan_batched_nt),
    ACTION(matmul_batched_tn, 10, plan_batched_tn),
    ACTION(layernorm, 15, plan_row_norm),
    ACTION(layernorm_grad, 15, plan_row_norm_grad),
    ACTION(rmsnorm, 10, plan_row_norm),
    ACTION(rmsnorm_grad, 10, plan_row_norm_grad),
    ACTION(softmax, 12, plan_softmax_rows),
    ACTION(softmax_grad, 12, plan_softmax_rows_grad),
    ACTION(log_softmax, 8, plan_softmax_rows),
    ACTION(log_softmax_grad, 8, plan_softmax_rows_grad),
    ACTION(embedding, 10, plan_embedding_rows),
    ACTION(embedding_grad, 10, plan_embedding_grad),
    ACTION(permute, 10, plan_permute),
    ACTION(slice, 8, plan_slice),
    ACTION(slice_grad, 8, plan_slice_grad),
    ACTION(concat, 8, plan_concat),
    ACTION(lstm_cell, 8, plan_lstm_cell),
    ACTION(lstm_hidden, 8, plan_lstm_cell),
    ACTION(lstm_cell_grad, 8, plan_lstm_cell_grad),
    ACTION(lstm_gates_grad, 8, plan_lstm_gates_grad),
    ACTION(gru_hidden, 8, plan_gru_hidden),
    ACTION(gru_input_grad, 8, plan_gru_grad),
    ACTION(gru_gates_grad, 8, plan_gru_grad),
    ACTION(gru_state_grad, 8, plan_gru_state_grad),
    ACTION(avgpool2d, 10, plan_avgpool2d),
    ACTION(avgpool2d_grad, 10, plan_avgpool2d_grad),
    ACTION(avgpool_adaptive, 8, plan_adaptive),
    ACTION(avgpool_adaptive_grad, 8, plan_adaptive_grad),
    ACTION(lrn, 8, plan_lrn),
    ACTION(lrn_grad, 8, plan_lrn_grad),
    ACTION(groupnorm, 10, plan_group_norm),
    ACTION(groupnorm_grad, 10, plan_group_norm_grad),
    ACTION(dropout, 10, plan_dropout),
    ACTION(reduce_sum, 5, plan_reduce),
    ACTION(reduce_mean, 5, plan_reduce),
    ACTION(reduce_max, 5, plan_reduce),
    ACTION(reduce_min, 3, plan_reduce),
    ACTION(reduce_l1, 3, plan_reduce),
    ACTION(reduce_l2, 5, plan_reduce),
    ACTION(reduce_sum_grad, 3, plan_reduce_grad),
    ACTION(reduce_mean_grad, 3, plan_reduce_grad),
    ACTION(reduce_max_grad, 4, plan_reduce_grad),
    ACTION(reduce_min_grad, 4, plan_reduce_grad),
    ACTION(reduce_l1_grad, 3, plan_reduce_grad),
    ACTION(reduce_l2_grad, 4, plan_reduce_grad),
    ACTION(argmax, 5, plan_argmax),
    ACTION(broadcast_add, 5, plan_broadcast),
    ACTION(broadcast_mul, 5, plan_broadcast),
    ACTION(broadcast_add_grad, 3, plan_broadcast_grad),
    ACTION(broadcast_mul_grad, 5, plan_broadcast_grad),
    ACTION(where, 5, plan_where),
    ACTION(where_grad, 5, plan_where_grad),
    ACTION(sum, 5, plan_1),
    ACTION(max_abs, 5, plan_1),
    FINE_ACTION(load_f32, 8, plan_load),
    FINE_ACTION(load_f64, 8, plan_load),
    ACTION(store, 8, plan_1),
    FINE_ACTION(convert, 20, plan_convert),
    ACTION(convert_at, 10, plan_convert),
    ACTION(copy, 8, plan_2),
    ACTION(set_exponent, 8, plan_setting),
    ACTION(declare_exponent, 8, plan_setting),
    ACTION(keep_wide, 6, plan_1),
    ACTION(set_predictor, 4, plan_setting),
    ACTION(set_rounding, 4, plan_setting),
    ACTION(reset_statistics, 1, plan_1),
    ACTION(write_by_hand, 8, plan_raw),
};
enum { ACTIONS = sizeof actions / sizeof actions[0] };
static long long made, refused, worked[ACTIONS]; /* calls; those that were an error; those that were none, by action */

static void count_call(const struct call *c, bool error) {
    made++;
    refused += error;
    worked[c->action - actions] += !error;
}

static const struct action *draw_action(void) {
    int total = 0, i = 0;
    for (int a = 0; a < ACTIONS; a++)
        total += actions[a].weight;
    for (int at = below(total); at >= actions[i].weight; i++)
        at -= actions[i].weight;
    return &actions[i];
}

/* Operations that other calls are made of. */
static const char *const part_of[][2] = {{"channel_sums", "channel_moments"},
                                         {"channel_grad_sums", "batchnorm_grad"},
                                         {"channel_affine", "batchnorm"},
                                         {"channel_affine_grad", "batchnorm_grad"},
                                         {"affine_coefficients", "batchnorm"},
                                         {"affine_grad_coefficients", "batchnorm_grad"},
                                         {"layernorm_gamma_grad", "layernorm_grad"},
                                         {"rmsnorm_gamma_grad", "rmsnorm_grad"},
                                         {"groupnorm_gamma_grad", "groupnorm_grad"},
                                         {"check_indices", "embedding"}};

/* Every operation of the library was called, and worked more than once. */
static void check_coverage(void) {
    for (int i = 0; tensor_op_at(i); i++) {
        const char *name = tensor_op_at(i);
        if (!strcmp(name, "running_statistics")) /* writes no tensor of a format: test_numbers.c */
            continue;
        if (!strcmp(name, "optimiser_step") || !strcmp(name, "trust_rate")) /* test_optimiser.c */
            continue;
        for (size_t p = 0; p < sizeof part_of / sizeof part_of[0]; p++)
            name = strcmp(name, part_of[p][0]) ? name : part_of[p][1];
        int a = 0;
        while (a < ACTIONS && strcmp(actions[a].name, name))
            a++;
        CHECK(a < ACTIONS, "operation %s is called by no row of random_actions.h", tensor_op_at(i));
    }
    for (int a = 0; a < ACTIONS; a++)
        CHECK(worked[a] > 1, "%s worked %lld times", actions[a].name, worked[a]);
}

#endif
