/* Mixed steps against an independent witness: a small network trains under a policy, all its writes are observed, and
 * each tensor is computed again from its inputs: conversions, products, biases, weight gradients and updates to the
 * last bit, normalisation and the gradient of the loss within a bound. */
#include "check.h"
#include "flexlab/nn.h"
#include <math.h>
#include <string.h>

enum { BATCH = 4, INPUTS = 6, HIDDEN = 5, CLASSES = 3, MOST = 40, SEEN = 96, STEPS = 3 };
static const float rate = 0.0625f, momentum = 0.875f, decay = 0.0009765625f;

/* --- what was written -----------------------------------------------------------------------------------------------
 */

struct seen {
    char name[64];
    tensor_format format;
    int count, e;
    double value[MOST];
};
static struct seen now[SEEN], before[SEEN]; /* of this step; weights and momenta before it */
static int now_count, before_count;

static void keep(struct seen *list, int *count, const nn_tensor_info *info) {
    int i = 0;
    while (i < *count && strcmp(list[i].name, info->name) != 0)
        i++;
    CHECK(i < SEEN && tensor_count(info->t) <= MOST, "%s", info->name);
    *count = i == *count ? i + 1 : *count;
    struct seen *s = &list[i];
    snprintf(s->name, sizeof s->name, "%s", info->name);
    s->format = tensor_format_of(info->t);
    s->count = (int)tensor_count(info->t);
    s->e = tensor_format_is_shared(s->format) ? tensor_exponent(info->t) : 0;
    CHECK(!tensor_store_f64(info->t, s->value, s->count), "%s: %s", info->name, tensor_error());
}

static void watch(const nn_tensor_info *info, void *context) {
    (void)context;
    keep(now, &now_count, info);
}

static const char *policy; /* for messages */

static const struct seen *in(const struct seen *list, int count, const char *name) {
    static const struct seen nothing = {.count = 0};
    for (int i = 0; i < count; i++)
        if (!strcmp(list[i].name, name))
            return &list[i];
    CHECK(false, "%s: nothing called %s was written", policy, name);
    return &nothing;
}
static const struct seen *of(const char *name) {
    return in(now, now_count, name);
}
static const struct seen *was(const char *name) {
    return in(before, before_count, name);
}

/* --- formats --------------------------------------------------------------------------------------------------------
 */

/* Rounds to this number of digits above the least exponent, ties to even. */
static double to_digits(long double x, int digits, int least) {
    int e;
    if (x == 0)
        return 0;
    frexpl(x, &e);
    const int last = e - digits > least ? e - digits : least;
    return (double)ldexpl(rintl(ldexpl(x, -last)), last);
}

/* x rounded to the format of that tensor, whose exponent is known. */
static double as_held(const struct seen *t, long double x) {
    switch (t->format) {
    case FMT_FP32:
        return to_digits(x, 24, -149);
    case FMT_FP16:
        return to_digits(x, 11, -24);
    case FMT_BF16:
        return to_digits(x, 8, -133);
    default: { /* shared exponents */
        const long double m = rintl(ldexpl(x, t->e));
        return (double)ldexpl(m > 32767 ? 32767 : m < -32767 ? -32767 : m, -t->e);
    }
    }
}

static void check(const struct seen *t, int i, double expected) {
    CHECK(t->value[i] == expected, "%s: %s[%d] is %.17g, expected %.17g", policy, t->name, i, t->value[i], expected);
}

/* The exponent of a shared format is the largest at which nothing saturates. */
static void check_exponent(const struct seen *t, const double *exact, int count) {
    double most = 0;
    if (!tensor_format_is_shared(t->format))
        return;
    for (int i = 0; i < count; i++)
        most = fmax(most, fabs(exact[i]));
    CHECK(most == 0 || rint(ldexp(most, t->e)) <= 32767, "%s: %s saturates at e = %d", policy, t->name, t->e);
    CHECK(most == 0 || rint(ldexp(most, t->e)) >= 16383, "%s: %s wastes bits at e = %d, maximum %g", policy, t->name,
          t->e, most);
}

/* --- what follows from what -----------------------------------------------------------------------------------------
 */

static void converted(const char *to, const char *from) {
    const struct seen *y = of(to), *x = of(from);
    CHECK(y->count == x->count, "%s: %s of %s", policy, to, from);
    check_exponent(y, x->value, x->count);
    for (int i = 0; i < y->count && i < x->count; i++)
        check(y, i, as_held(y, x->value[i]));
}

/* For floats a chain of binary32, k ascending; for integers exact. */
static long double dot(const struct seen *a, const struct seen *b, int first_a, int step_a, int first_b, int step_b,
                       int k) {
    float chain = 0;
    long double exact = 0;
    for (int i = 0; i < k; i++) {
        const double x = a->value[first_a + i * step_a], y = b->value[first_b + i * step_b];
        chain = fmaf((float)x, (float)y, chain);
        exact += (long double)x * y;
    }
    return tensor_format_is_shared(a->format) ? exact : (long double)chain;
}

/* Checks y[i][j] = sum of a[i][.] b[.][j], each read by its strides; m x n of k. */
static void product(const struct seen *y, const struct seen *a, int a_row, int a_step, const struct seen *b, int b_step,
                    int b_column, int m, int n, int k) {
    double all[MOST];
    CHECK(y->count == m * n && a->format == b->format, "%s: shape or operands of %s", policy, y->name);
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++)
            all[i * n + j] = (double)dot(a, b, i * a_row, a_step, j * b_column, b_step, k);
    check_exponent(y, all, m * n);
    for (int i = 0; i < m && y->count == m * n; i++)
        for (int j = 0; j < n; j++)
            check(y, i * n + j, as_held(y, dot(a, b, i * a_row, a_step, j * b_column, b_step, k)));
}

static void matmul(const char *y, const char *x, const struct seen *w, int k, int n) {
    product(of(y), of(x), k, 1, w, n, 1, BATCH, n, k);
}
static void weight_gradient(const char *dw, const char *x, const char *dy, int k, int n) {
    product(of(dw), of(x), 1, k, of(dy), n, 1, k, n, BATCH);
}
static void input_gradient(const char *dx, const char *dy, const struct seen *w, int k, int n) {
    product(of(dx), of(dy), n, 1, w, 1, n, BATCH, k, n);
}

static void bias(const char *to, const char *from, const struct seen *b, bool relu) {
    const struct seen *y = of(to), *x = of(from);
    for (int i = 0; i < y->count && b->count; i++) {
        const long double sum = (long double)x->value[i] + b->value[i % b->count];
        check(y, i, as_held(y, relu && sum < 0 ? 0 : sum));
    }
}

static void bias_gradient(const char *to, const char *from) {
    const struct seen *g = of(to), *dy = of(from);
    for (int c = 0; c < g->count; c++) {
        float chain = 0;
        for (int i = c; i < dy->count; i += g->count)
            chain += (float)dy->value[i];
        const double bound = g->format == FMT_FP16 ? 0x1p-10 : 0x1p-22; /* sums of floats: within the format */
        CHECK(fabs(g->value[c] - (double)chain) <= bound * (fabs((double)chain) + 1e-3),
              "%s: %s[%d] is %g, expected %g", policy, to, c, g->value[c], (double)chain);
    }
}

static void masked(const char *to, const char *from, const char *mask) {
    const struct seen *dx = of(to), *dy = of(from), *y = of(mask);
    for (int i = 0; i < dx->count; i++)
        check(dx, i, y->value[i] > 0 ? dy->value[i] : 0);
}

/* Checks v and w of a parameter, in the format of the weight that is updated. */
static void updated(const char *weight, const char *parameter, const char *gradient) {
    char name[80];
    snprintf(name, sizeof name, "%s.momentum", parameter);
    const struct seen *w = was(weight), *v = was(name), *v_new = of(name), *w_new = of(weight), *g = of(gradient);
    CHECK(v_new->format == w->format && g->format == w->format, "%s: formats of %s", policy, parameter);
    for (int i = 0; i < w->count; i++) {
        check(v_new, i,
              as_held(v_new, (long double)momentum * v->value[i] + g->value[i] + (long double)decay * w->value[i]));
        check(w_new, i, as_held(w_new, (long double)w->value[i] - (long double)rate * v_new->value[i]));
    }
}

static const int32_t labels[BATCH] = {0, 2, 1, 2};

static void loss_gradient(const char *to, const char *from) {
    const struct seen *dx = of(to), *x = of(from);
    for (int i = 0; i < BATCH; i++) {
        double sum = 0;
        for (int c = 0; c < CLASSES; c++)
            sum += exp(x->value[i * CLASSES + c]);
        for (int c = 0; c < CLASSES; c++) {
            const double p = (exp(x->value[i * CLASSES + c]) / sum - (c == labels[i])) / BATCH,
                         got = dx->value[i * CLASSES + c];
            CHECK(fabs(got - p) <= 0x1p-22 * fabs(p), "%s: %s[%d] is %g, expected %g", policy, to, i, got, p);
        }
    }
}

static void normalised(const char *to, const char *from) {
    const struct seen *y = of(to), *x = of(from), *gamma = was("bn.gamma"), *beta = was("bn.beta");
    for (int c = 0; c < HIDDEN; c++) {
        double mean = 0, variance = 0;
        for (int i = 0; i < BATCH; i++)
            mean += x->value[i * HIDDEN + c] / BATCH;
        for (int i = 0; i < BATCH; i++)
            variance += (x->value[i * HIDDEN + c] - mean) * (x->value[i * HIDDEN + c] - mean) / BATCH;
        for (int i = 0; i < BATCH; i++) {
            const double expected =
                gamma->value[c] * (x->value[i * HIDDEN + c] - mean) / sqrt(variance + 1e-5) + beta->value[c];
            CHECK(fabs(y->value[i * HIDDEN + c] - expected) <= 0x1p-21, "%s: %s[%d][%d] is %.9g, expected %.9g", policy,
                  to, i, c, y->value[i * HIDDEN + c], expected);
        }
    }
}

static void normalised_gradient(const char *to, const char *from, const char *input) {
    const struct seen *dx = of(to), *dy = of(from), *x = of(input), *gamma = was("bn.gamma"), *dg = of("bn.gamma.grad");
    for (int c = 0; c < HIDDEN; c++) {
        double mean = 0, variance = 0, sum = 0, projected = 0, largest = 0;
        for (int i = 0; i < BATCH; i++)
            mean += x->value[i * HIDDEN + c] / BATCH;
        for (int i = 0; i < BATCH; i++)
            variance += (x->value[i * HIDDEN + c] - mean) * (x->value[i * HIDDEN + c] - mean) / BATCH;
        const double inverse = 1 / sqrt(variance + 1e-5);
        for (int i = 0; i < BATCH; i++) {
            sum += dy->value[i * HIDDEN + c] / BATCH;
            projected += dy->value[i * HIDDEN + c] * (x->value[i * HIDDEN + c] - mean) * inverse / BATCH;
            largest = fmax(largest, fabs(dy->value[i * HIDDEN + c]) * inverse * fabs(gamma->value[c]));
        }
        CHECK(fabs(dg->value[c] - BATCH * projected) <= 0x1p-20 * (fabs(BATCH * projected) + largest), "%s: gamma",
              policy);
        for (int i = 0; i < BATCH; i++) {
            const double hat = (x->value[i * HIDDEN + c] - mean) * inverse,
                         expected = gamma->value[c] * inverse * (dy->value[i * HIDDEN + c] - sum - hat * projected);
            CHECK(fabs(dx->value[i * HIDDEN + c] - expected) <= 0x1p-20 * largest, "%s: %s[%d][%d] is %g, expected %g",
                  policy, to, i, c, dx->value[i * HIDDEN + c], expected);
        }
    }
}

/* --- the network ----------------------------------------------------------------------------------------------------
 */

static nn_graph *network(void) {
    nn_graph *g = nn_graph_new(&(nn_config){.policy = policy,
                                            .batch = BATCH,
                                            .seed = 11,
                                            .momentum = momentum,
                                            .weight_decay = decay,
                                            .loss_scale = "none"});
    CHECK(g, "%s: %s", policy, tensor_error());
    nn_node x = nn_linear(g, "fc1", nn_input(g, 1, 1, INPUTS), HIDDEN, true);
    x = nn_linear(g, "fc2", nn_batchnorm(g, "bn", x, NULL), CLASSES, false);
    CHECK(!nn_compile(g, x), "%s: %s", policy, tensor_error());
    CHECK(!nn_watch(g, watch, NULL), "%s", tensor_error());
    return g;
}

static void train(void (*follows)(void)) {
    float images[BATCH * INPUTS];
    uint64_t seed = 5;
    nn_graph *g = network();
    for (int step = 0; step < STEPS; step++) {
        now_count = before_count = 0;
        for (int i = 0; i < nn_tensor_count(g); i++) {
            const nn_tensor_info info = nn_tensor_at(g, i);
            if (!strcmp(info.role, "weight") || !strcmp(info.role, "momentum"))
                keep(before, &before_count, &info);
        }
        for (int i = 0; i < BATCH * INPUTS; i++)
            images[i] = (float)(check_random(&seed) >> 40) * 0x1p-23f - 1;
        CHECK(!nn_train_step(NULL, NULL, g, &(nn_batch){.images = images, .labels = labels}, rate), "%s: %s", policy,
              tensor_error());
        for (int i = 0; i < BATCH * INPUTS; i++)
            check(of("input"), i, as_held(of("input"), images[i]));
        follows();
    }
    nn_graph_free(g);
}

/* --- the policies ---------------------------------------------------------------------------------------------------
 */

/* O1: fp16 products of fp32 values, which are converted back and forth. */
static void o1(void) {
    converted("fc1.flatten.fp16", "input");
    CHECK(was("fc1.weight.fp16")->format == FMT_FP16 && was("fc1.weight")->format == FMT_FP32, "weights");
    matmul("fc1.product", "fc1.flatten.fp16", was("fc1.weight.fp16"), INPUTS, HIDDEN);
    CHECK(of("fc1.product")->format == FMT_FP16, "fp16 product");
    converted("fc1.product.fp32", "fc1.product");
    bias("fc1", "fc1.product.fp32", was("fc1.bias"), true);
    normalised("bn", "fc1");
    converted("bn.fp16", "bn");
    matmul("fc2.product", "bn.fp16", was("fc2.weight.fp16"), HIDDEN, CLASSES);
    converted("fc2.product.fp32", "fc2.product");
    bias("fc2", "fc2.product.fp32", was("fc2.bias"), false);
    loss_gradient("fc2.grad", "fc2");
    bias_gradient("fc2.bias.grad", "fc2.grad");
    converted("fc2.product.grad", "fc2.grad");
    weight_gradient("fc2.weight.grad", "bn.fp16", "fc2.product.grad", HIDDEN, CLASSES);
    input_gradient("bn.fp16.grad", "fc2.product.grad", was("fc2.weight.fp16"), HIDDEN, CLASSES);
    converted("bn.grad", "bn.fp16.grad");
    normalised_gradient("fc1.grad", "bn.grad", "fc1");
    masked("fc1.product.fp32.grad", "fc1.grad", "fc1");
    converted("fc1.product.grad", "fc1.product.fp32.grad");
    weight_gradient("fc1.weight.grad", "fc1.flatten.fp16", "fc1.product.grad", INPUTS, HIDDEN);
    converted("fc1.weight.grad.fp32", "fc1.weight.grad");
    updated("fc1.weight", "fc1.weight", "fc1.weight.grad.fp32");
    updated("fc1.bias", "fc1.bias", "fc1.bias.grad");
    updated("bn.gamma", "bn.gamma", "bn.gamma.grad");
    converted("fc1.weight.fp16", "fc1.weight"); /* the next step reads it */
    converted("fc2.weight.fp16", "fc2.weight");
}

/* O2: fp16 except for normalisation and loss, fp32 master weights. */
static void o2(void) {
    CHECK(of("input")->format == FMT_FP16 && was("fc1.weight")->format == FMT_FP16, "fp16");
    matmul("fc1.product", "input", was("fc1.weight"), INPUTS, HIDDEN);
    bias("fc1", "fc1.product", was("fc1.bias"), true);
    converted("fc1.fp32", "fc1");
    CHECK(of("bn")->format == FMT_FP32 && was("bn.gamma")->format == FMT_FP32, "fp32 normalisation");
    normalised("bn", "fc1.fp32");
    converted("bn.fp16", "bn");
    matmul("fc2.product", "bn.fp16", was("fc2.weight"), HIDDEN, CLASSES);
    bias("fc2", "fc2.product", was("fc2.bias"), false);
    converted("fc2.fp32", "fc2");
    loss_gradient("fc2.fp32.grad", "fc2.fp32");
    converted("fc2.grad", "fc2.fp32.grad");
    bias_gradient("fc2.bias.grad", "fc2.grad");
    weight_gradient("fc2.weight.grad", "bn.fp16", "fc2.grad", HIDDEN, CLASSES);
    input_gradient("bn.fp16.grad", "fc2.grad", was("fc2.weight"), HIDDEN, CLASSES);
    converted("bn.grad", "bn.fp16.grad");
    normalised_gradient("fc1.fp32.grad", "bn.grad", "fc1.fp32");
    converted("fc1.grad", "fc1.fp32.grad");
    masked("fc1.product.grad", "fc1.grad", "fc1");
    weight_gradient("fc1.weight.grad", "input", "fc1.product.grad", INPUTS, HIDDEN);
    converted("fc1.weight.grad.fp32", "fc1.weight.grad");
    updated("fc1.weight.master", "fc1.weight", "fc1.weight.grad.fp32");
    converted("fc1.weight", "fc1.weight.master");
    converted("fc2.bias", "fc2.bias.master");
    updated("bn.beta", "bn.beta", "bn.beta.grad");
}

/* Integer products with exact maxima, summed exactly and rounded once to fp32; the rest is fp32: Das et al. 2018. */
static void dfp16(void) {
    converted("fc1.flatten.dfp16-fp32", "input");
    matmul("fc1.product", "fc1.flatten.dfp16-fp32", was("fc1.weight.dfp16"), INPUTS, HIDDEN);
    CHECK(of("fc1.product")->format == FMT_FP32, "results in fp32");
    bias("fc1", "fc1.product", was("fc1.bias"), true);
    normalised("bn", "fc1");
    converted("bn.dfp16-fp32", "bn");
    matmul("fc2.product", "bn.dfp16-fp32", was("fc2.weight.dfp16"), HIDDEN, CLASSES);
    bias("fc2", "fc2.product", was("fc2.bias"), false);
    loss_gradient("fc2.grad", "fc2");
    converted("fc2.grad.fc2.product.dfp16", "fc2.grad");
    weight_gradient("fc2.weight.grad", "bn.dfp16-fp32", "fc2.grad.fc2.product.dfp16", HIDDEN, CLASSES);
    CHECK(of("fc2.weight.grad")->format == FMT_FP32, "weight gradients in fp32");
    input_gradient("bn.dfp16-fp32.grad", "fc2.grad.fc2.product.dfp16", was("fc2.weight.dfp16"), HIDDEN, CLASSES);
    normalised_gradient("fc1.grad", "bn.dfp16-fp32.grad", "fc1");
    masked("fc1.product.grad", "fc1.grad", "fc1");
    converted("fc1.product.grad.fc1.product.dfp16", "fc1.product.grad");
    weight_gradient("fc1.weight.grad", "fc1.flatten.dfp16-fp32", "fc1.product.grad.fc1.product.dfp16", INPUTS, HIDDEN);
    updated("fc1.weight", "fc1.weight", "fc1.weight.grad");
    converted("fc1.weight.dfp16", "fc1.weight");
}

/* bf16 operands, with sums that remain binary32. */
static void wide_results(void) {
    converted("fc1.flatten.bf16-fp32", "input");
    matmul("fc1.product", "fc1.flatten.bf16-fp32", was("fc1.weight.bf16"), INPUTS, HIDDEN);
    CHECK(of("fc1.product")->format == FMT_FP32, "results in fp32");
    converted("fc2.grad.fc2.product.bf16", "fc2.grad");
    weight_gradient("fc2.weight.grad", "bn.bf16-fp32", "fc2.grad.fc2.product.bf16", HIDDEN, CLASSES);
    input_gradient("bn.bf16-fp32.grad", "fc2.grad.fc2.product.bf16", was("fc2.weight.bf16"), HIDDEN, CLASSES);
    updated("fc2.weight", "fc2.weight", "fc2.weight.grad");
}

/* Gradients have another format than activations: the backward pass reads the copies of the forward pass. */
static void apart(void) {
    CHECK(of("fc1")->format == FMT_FP16 && of("fc1.grad")->format == FMT_BF16, "formats of fc1");
    matmul("fc1.product", "input", was("fc1.weight"), INPUTS, HIDDEN);
    bias("fc1", "fc1.product", was("fc1.bias"), true);
    matmul("fc2.product", "bn", was("fc2.weight"), HIDDEN, CLASSES);
    converted("bn.fc2.product.bf16", "bn");
    weight_gradient("fc2.weight.grad", "bn.fc2.product.bf16", "fc2.bf16.grad", HIDDEN, CLASSES);
    input_gradient("bn.grad", "fc2.bf16.grad", was("fc2.weight.bf16"), HIDDEN, CLASSES);
    converted("fc1.fc1.bf16", "fc1");
    masked("fc1.product.grad", "fc1.grad", "fc1.fc1.bf16");
    converted("input.fc1.product.bf16", "input");
    weight_gradient("fc1.weight.grad", "input.fc1.product.bf16", "fc1.product.grad", INPUTS, HIDDEN);
    converted("fc1.weight.grad.fp32", "fc1.weight.grad");
    converted("fc1.weight.grad.fp32.fp16", "fc1.weight.grad.fp32");
    converted("fc1.weight.bf16", "fc1.weight");
}

int main(void) {
    policy = "O1";
    train(o1);
    policy = "O2";
    train(o2);
    policy = "dfp16";
    train(dfp16);
    policy = "variant fp32; @product operands=bf16 result=fp32";
    train(wide_results);
    policy = "variant fp16; * gradients=bf16 master=none; *.weight weight-gradients=fp32";
    train(apart);
    return check_summary();
}
