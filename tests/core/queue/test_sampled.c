/* The measured error of writes (core/queue/sampled.h) against sums of the test itself: every product of a matmul or
 * convolution is added to its element in 64 or more bits; the sampled elements are drawn by Philox from its definition.
 * All formats and mixtures of them, operands with and without saturation, Inf and NaN, all three matmuls and directions
 * of convolutions, transposed ones and those of sequences, epilogues, every kernel set and number of threads; then a
 * network. */
#include "check.h"
#include "core/queue/sampled.h"
#include "flexlab/nn.h"
#include "flexlab/tensor_blocks.h"
#include "nn/telemetry/nn_telemetry.h"
#include "philox_witness.h"
#include <math.h>
#include <string.h>

enum { MOST = 8000 };
struct values {
    int64_t count;
    double x[MOST];
};
struct sums {
    int64_t count, products; /* of one element */
    long double x[MOST];
};

static uint64_t state = 11;

static tensor *made(tensor_format format, int ndim, const int64_t *shape, double scale, struct values *to) {
    tensor *t = tensor_new(format, ndim, shape);
    CHECK(t, "%s", tensor_error());
    to->count = tensor_count(t);
    for (int64_t i = 0; i < to->count; i++)
        to->x[i] =
            ldexp((double)(int64_t)check_random(&state) / 9223372036854775808.0, (int)(check_random(&state) % 7)) *
            scale;
    CHECK(to->count <= MOST && !tensor_load_f64(t, to->x, to->count) && !tensor_store_f64(t, to->x, to->count), "%s",
          tensor_error());
    return t;
}

/* Checks the error of the sampled elements against `s`. */
static void check_values(const char *what, const char *format, const struct values *stored, const struct sums *s,
                         uint64_t number, const struct fl_sampled *have) {
    const int64_t most = 16384 / s->products > 256 ? 256
                         : 16384 / s->products < 1 ? 1
                                                   : 16384 / s->products,
                  elements = s->count < most ? s->count : most;
    long double error = 0, size = 0;
    int64_t finite = 0, infinite = 0;
    for (int64_t n = 0; n < elements; n++) {
        const int64_t first = n * s->count / elements, end = (n + 1) * s->count / elements;
        const int64_t i = first + (int64_t)(witness_draw(0, number, n) % (uint64_t)(end - first));
        if (!isfinite(s->x[i]))
            continue;
        if (!isfinite(stored->x[i])) {
            infinite++;
            continue;
        }
        error += (stored->x[i] - s->x[i]) * (stored->x[i] - s->x[i]);
        size += s->x[i] * s->x[i];
        finite++;
    }
    const double want = finite ? (double)sqrtl(error / finite) : NAN,
                 wide = finite ? (double)sqrtl(size / finite) : NAN;
    CHECK(have->elements == elements && have->infinite == infinite,
          "%s %s: %lld elements, %lld Inf, expected %lld, %lld", what, format, (long long)have->elements,
          (long long)have->infinite, (long long)elements, (long long)infinite);
    CHECK(finite ? fabs(have->error - want) <= 1e-9 * want + 1e-17 * wide && fabs(have->size - wide) <= 1e-12 * wide
                 : isnan(have->error) && isnan(have->size),
          "%s %s: error %.17g of %.17g, expected %.17g of %.17g", what, format, have->error, have->size, want, wide);
}

static void check_write(const char *what, const tensor *y, const struct sums *s, uint64_t number,
                        const struct fl_sampled *have) {
    static struct values stored;
    CHECK(tensor_count(y) == s->count && !tensor_store_f64(y, stored.x, s->count), "%s: %s", what, tensor_error());
    check_values(what, tensor_format_name(tensor_format_of(y)), &stored, s, number, have);
}

/* Adds bias and residual to the sums and applies ReLU. */
static void join(struct sums *s, const struct values *bias, const struct values *residual, bool relu) {
    for (int64_t i = 0; i < s->count; i++) {
        s->x[i] += (bias ? bias->x[i % bias->count] : 0.0L) + (residual ? residual->x[i] : 0.0L);
        s->x[i] = relu && s->x[i] < 0 ? 0 : s->x[i];
    }
}

/* The number of cases of each kind of trouble, so that the test cannot pass without it. */
static int64_t infinities, saturated, compared;

static void ended(const char *what, tensor *y, const struct sums *s, struct fl_sampling *sampling) {
    tensor_stats last;
    fl_sample_writes(NULL, 0);
    const struct fl_sampled have = fl_sampled_of(sampling, y);
    check_write(what, y, s, sampling->number++, &have);
    CHECK(!tensor_statistics(&last, NULL, y), "%s", tensor_error());
    infinities += have.infinite;
    saturated += last.saturated > 0 && isfinite(have.error) && have.error > 0.1 * have.size;
    compared++;
}

/* --- matmul ------------------------------------------------------------------------------------------------------- */

typedef tensor_status matmul_fn(tensor *y, const tensor *a, const tensor *b);

static void matmuls(tensor_format in, tensor_format out, double scale, int64_t m, int64_t n, int64_t k) {
    static struct fl_sampling sampling;
    static struct values va, vb;
    static struct sums s;
    static matmul_fn *const one[] = {tensor_matmul, tensor_matmul_nt, tensor_matmul_tn}, *const many[] = {
                                                                                             tensor_matmul_batched,
                                                                                             tensor_matmul_batched_nt,
                                                                                             tensor_matmul_batched_tn};
    for (int kind = 0; kind < 6; kind++) {
        const int64_t batch = kind < 3 ? 1 : 3;
        const int nt = kind % 3 == 1, tn = kind % 3 == 2;
        if (in != out && (tn || kind >= 3)) /* mixtures without such a matmul */
            continue;
        const int64_t sa[] = {batch, tn ? k : m, tn ? m : k}, sb[] = {batch, nt ? n : k, nt ? k : n},
                      sy[] = {batch, m, n};
        const int less = kind < 3;
        tensor *a = made(in, 3 - less, sa + less, scale, &va), *b = made(in, 3 - less, sb + less, scale, &vb),
               *y = tensor_new(out, 3 - less, sy + less);
        s = (struct sums){.count = batch * m * n, .products = k};
        for (int64_t t = 0; t < batch; t++)
            for (int64_t l = 0; l < k; l++)
                for (int64_t i = 0; i < m; i++)
                    for (int64_t j = 0; j < n; j++)
                        s.x[(t * m + i) * n + j] += (long double)va.x[t * m * k + (tn ? l * m + i : i * k + l)] *
                                                    vb.x[t * k * n + (nt ? j * k + l : l * n + j)];
        fl_sample_writes(&sampling, 0);
        CHECK(!(kind < 3 ? one : many)[kind % 3](y, a, b), "%s", tensor_error());
        ended(less ? "matmul" : "batched", y, &s, &sampling);
        tensor_free(a);
        tensor_free(b);
        tensor_free(y);
    }
}

static void epilogues(tensor_format format, double scale) {
    static struct fl_sampling sampling;
    static struct values va, vb, vbias, vresidual;
    static struct sums s;
    enum { M = 9, N = 11, K = 21 };
    for (int with = 1; with < 8; with++) {
        tensor *a = made(format, 2, (const int64_t[]){M, K}, scale, &va),
               *b = made(format, 2, (const int64_t[]){K, N}, scale, &vb),
               *bias = made(format, 1, (const int64_t[]){N}, scale, &vbias),
               *residual = made(format, 2, (const int64_t[]){M, N}, scale, &vresidual),
               *y = tensor_new(format, 2, (const int64_t[]){M, N});
        s = (struct sums){.count = M * N, .products = K};
        for (int64_t i = 0; i < M * N * K; i++)
            s.x[i / K] += (long double)va.x[i / K / N * K + i % K] * vb.x[i % K * N + i / K % N];
        join(&s, with & 1 ? &vbias : NULL, with & 2 ? &vresidual : NULL, with & 4);
        fl_sample_writes(&sampling, 0);
        tensor_epilogue how = {with & 1 ? bias : NULL, with & 2 ? residual : NULL, with & 4};
        CHECK(!tensor_matmul_fused(y, a, b, &how), "%s", tensor_error());
        ended("fused", y, &s, &sampling);
        /* A residual that the write overwrites cannot be read again. */
        fl_sample_writes(&sampling, 0);
        how.residual = y;
        CHECK(!tensor_matmul_fused(y, a, b, &how) && !fl_sampled_of(&sampling, y).elements, "in place: %s",
              tensor_error());
        fl_sample_writes(NULL, 0);
        CHECK(!tensor_matmul(y, a, b) && !fl_sampled_of(&sampling, y).elements, "nobody asked");
        tensor_free(a);
        tensor_free(b);
        tensor_free(bias);
        tensor_free(residual);
        tensor_free(y);
    }
}

/* --- convolution: each product of a pass belongs to an element of y, of dx and of dw ------------------------------ */

struct convolution {
    tensor_format a, b, y; /* images and gradients; filters and what joins the sums; results */
    double scale;
    tensor_window how;
    bool flat; /* sequences */
};

static tensor_status convolve(int kind, const struct convolution *c, tensor *y, const tensor *a, const tensor *b,
                              tensor_epilogue with) {
    tensor_window h = c->how;
    h.output_padding[0] *= kind >= 3; /* only for transposed ones */
    h.output_padding[1] *= kind >= 3;
    const tensor_window flat = {.stride = {0, h.stride[1]},
                                .padding = {0, 0, h.padding[2], h.padding[3]},
                                .dilation = {0, h.dilation[1]},
                                .groups = h.groups,
                                .output_padding = {0, h.output_padding[1]}};
    switch (kind + 6 * c->flat) {
    case 0:
        return tensor_conv2d_fused(y, a, b, &h, &with);
    case 1:
        return tensor_conv2d_input_grad(y, a, b, &h);
    case 2:
        return tensor_conv2d_weight_grad(y, a, b, &h);
    case 3:
        return tensor_conv_transpose2d_input_grad(y, a, b, &h);
    case 4:
        return tensor_conv_transpose2d_fused(y, a, b, &h, &with);
    case 5:
        return tensor_conv_transpose2d_weight_grad(y, b, a, &h);
    case 6:
        return tensor_conv1d_fused(y, a, b, &flat, &with);
    case 7:
        return tensor_conv1d_input_grad(y, a, b, &flat);
    case 8:
        return tensor_conv1d_weight_grad(y, a, b, &flat);
    case 9:
        return tensor_conv_transpose1d_input_grad(y, a, b, &flat);
    case 10:
        return tensor_conv_transpose1d_fused(y, a, b, &flat, &with);
    default:
        return tensor_conv_transpose1d_weight_grad(y, b, a, &flat);
    }
}

/* Bits of `with`: bias, residual, ReLU. */
static void convolutions(struct convolution c, int with) {
    static const char *const names[] = {"convolution",     "input gradient",
                                        "weight gradient", "transposed, input gradient",
                                        "transposed",      "transposed, weight gradient"};
    static struct fl_sampling sampling;
    static struct values vx, vw, vdy, vbias, vresidual;
    static struct sums y, dx, dw, joined;
    tensor_window *how = &c.how;
    const int64_t groups = how->groups, N = 3, H = c.flat ? 1 : 7, W = 6, C = 4, F = 6, R = c.flat ? 1 : 3, S = 2,
                  depth = C / groups;
    const int64_t tall = H + how->padding[0] + how->padding[1] - how->dilation[0] * (R - 1) - 1,
                  wide = W + how->padding[2] + how->padding[3] - how->dilation[1] * (S - 1) - 1;
    const int64_t P = tall / how->stride[0] + 1, Q = wide / how->stride[1] + 1;
    how->output_padding[0] = (int)(tall % how->stride[0]);
    how->output_padding[1] = (int)(wide % how->stride[1]);
    const int64_t sx[2][4] = {{N, H, W, C}, {N, W, C}}, sw[2][4] = {{F, R, S, depth}, {F, S, depth}},
                  sy[2][4] = {{N, P, Q, F}, {N, Q, F}};
    const int n = 4 - c.flat;
    tensor *x = made(c.a, n, sx[c.flat], c.scale, &vx), *w = made(c.b, n, sw[c.flat], c.scale, &vw),
           *g = made(c.a, n, sy[c.flat], c.scale, &vdy);
    y = (struct sums){.count = N * P * Q * F, .products = R * S * depth};
    dx = (struct sums){.count = N * H * W * C, .products = R * S * (F / groups)};
    dw = (struct sums){.count = F * R * S * depth, .products = N * P * Q};
    for (int64_t i = 0; i < N; i++)
        for (int64_t p = 0; p < P; p++)
            for (int64_t q = 0; q < Q; q++)
                for (int64_t f = 0; f < F; f++)
                    for (int64_t r = 0; r < R; r++)
                        for (int64_t s = 0; s < S; s++)
                            for (int64_t d = 0; d < depth; d++) {
                                const int64_t line = p * how->stride[0] + r * how->dilation[0] - how->padding[0],
                                              column = q * how->stride[1] + s * how->dilation[1] - how->padding[2];
                                if (line < 0 || line >= H || column < 0 || column >= W)
                                    continue;
                                const int64_t iy = ((i * P + p) * Q + q) * F + f,
                                              iw = ((f * R + r) * S + s) * depth + d,
                                              ix = ((i * H + line) * W + column) * C + f / (F / groups) * depth + d;
                                y.x[iy] += (long double)vx.x[ix] * vw.x[iw];
                                dx.x[ix] += (long double)vdy.x[iy] * vw.x[iw];
                                dw.x[iw] += (long double)vdy.x[iy] * vx.x[ix];
                            }
    for (int kind = 0; kind < 6; kind++) {
        const int result = kind == 0 || kind == 3 ? 0 : kind == 1 || kind == 4 ? 1 : 2; /* y, dx, dw */
        const bool fused = kind == 0 || kind == 4;
        const int64_t(*const shapes[])[4] = {sy, sx, sw}, channels = result ? C : F;
        const int64_t *shape = shapes[result][c.flat];
        tensor *to = tensor_new(c.y, n, shape),
               *bias = made(c.b, 1, (const int64_t[]){channels}, c.scale * c.scale, &vbias),
               *residual = made(c.a, n, shape, c.scale * c.scale, &vresidual);
        const tensor_epilogue join_it = {with & 1 ? bias : NULL, with & 2 ? residual : NULL, with & 4};
        joined = result == 0 ? y : result == 1 ? dx : dw;
        if (fused)
            join(&joined, with & 1 ? &vbias : NULL, with & 2 ? &vresidual : NULL, with & 4);
        fl_sample_writes(&sampling, 0);
        CHECK(!convolve(kind, &c, to, result ? g : x, result == 2 ? x : w, fused ? join_it : (tensor_epilogue){0}),
              "%s: %s", names[kind], tensor_error());
        ended(names[kind], to, &joined, &sampling);
        tensor_free(to);
        tensor_free(bias);
        tensor_free(residual);
    }
    tensor_free(x);
    tensor_free(w);
    tensor_free(g);
}

/* --- extreme errors ----------------------------------------------------------------------------------------------- */

/* A fixed exponent that most results exceed, and one at which all become 0: both errors are as large as the values. */
static void extremes(void) {
    static struct fl_sampling sampling;
    static struct values va, vb;
    static struct sums s;
    for (int e = -20; e <= 30; e += 50) {
        tensor *a = made(FMT_DFP16, 2, (const int64_t[]){8, 5}, 1, &va),
               *b = made(FMT_DFP16, 2, (const int64_t[]){5, 8}, 1, &vb),
               *y = tensor_new(FMT_DFP16, 2, (const int64_t[]){8, 8});
        CHECK(!tensor_set_predictor(y, "fixed") && !tensor_set_exponent(y, e), "%s", tensor_error());
        s = (struct sums){.count = 64, .products = 5};
        for (int64_t i = 0; i < 320; i++)
            s.x[i / 5] += (long double)va.x[i / 40 * 5 + i % 5] * vb.x[i % 5 * 8 + i / 5 % 8];
        fl_sample_writes(&sampling, 0);
        CHECK(!tensor_matmul(y, a, b), "%s", tensor_error());
        const struct fl_sampled have = fl_sampled_of(&sampling, y);
        CHECK(have.error > 0.5 * have.size, "e %d: error %g of %g", e, have.error, have.size);
        ended("extreme", y, &s, &sampling);
        tensor_free(a);
        tensor_free(b);
        tensor_free(y);
    }
}

/* --- a network: records agree with the same sums ------------------------------------------------------------------ */

static const char *const measured[] = {"conv", "fc.product", "fc.weight.grad", "pool.grad", "conv.weight.grad"};
enum { MEASURED = sizeof measured / sizeof measured[0], TURNS = 16 };
struct net {
    nn_telemetry *t;
    const nn_graph *g;
    int64_t steps[MEASURED][2]; /* at which each was sampled */
    int times[MEASURED], others;
    struct values pooled, gradient, images, filters, conv;
    struct sums sums; /* of conv */
};

/* Stores a write of the network with its operands as they are. */
static void keep_values(struct values *to, const tensor *t) {
    to->count = tensor_count(t);
    CHECK(to->count <= MOST && !tensor_store_f64(t, to->x, to->count), "%s", tensor_error());
}

/* Computes sums of 5 filters of 3 x 3 x 3 on images of 8 x 8 x 3 with padding of 1. */
static void sum_conv(struct net *n) {
    n->sums = (struct sums){.count = 8 * 8 * 8 * 5, .products = 27};
    for (int64_t i = 0; i < n->sums.count * 27; i++) {
        const int64_t at = i / 27, f = at % 5, image = at / 5 / 64, p = at / 5 / 8 % 8, q = at / 5 % 8;
        const int64_t r = i % 27 / 9, s = i % 9 / 3, c = i % 3, line = p + r - 1, column = q + s - 1;
        if (line >= 0 && line < 8 && column >= 0 && column < 8)
            n->sums.x[at] += (long double)n->images.x[((image * 8 + line) * 8 + column) * 3 + c] *
                             n->filters.x[((f * 3 + r) * 3 + s) * 3 + c];
    }
}

static void keep(const nn_tensor_info *info, void *context) {
    struct net *n = context;
    struct values *to = !strcmp(info->name, "pool")      ? &n->pooled
                        : !strcmp(info->name, "fc.grad") ? &n->gradient
                        : !strcmp(info->name, "input")   ? &n->images
                        : !strcmp(info->name, "conv")    ? &n->conv
                                                         : NULL;
    if (to)
        keep_values(to, info->t);
    for (int i = 0; to == &n->conv && i < nn_tensor_count(n->g); i++)
        if (!strcmp(nn_tensor_at(n->g, i).name, "conv.weight"))
            keep_values(&n->filters, nn_tensor_at(n->g, i).t);
    nn_telemetry_watch(info, n->t);
}

static void see_row(void *context, const nn_telemetry_row *row) {
    struct net *n = context;
    int i = 0;
    while (i < MEASURED && strcmp(measured[i], row->tensor) != 0)
        i++;
    CHECK(row->sampled >= 0 && (row->sampled > 0) == isfinite(row->sampled_error) &&
              isfinite(row->sampled_error) == isfinite(row->sampled_size),
          "%s: %lld sampled", row->tensor, (long long)row->sampled);
    if (i == MEASURED || !row->sampled) {
        n->others += row->sampled > 0;
        return;
    }
    if (n->times[i] < 2)
        n->steps[i][n->times[i]] = row->step;
    n->times[i]++;
    if (!strcmp(row->tensor, "conv")) { /* drawn with the number of steps before this one */
        sum_conv(n);
        check_values("conv", row->format, &n->conv, &n->sums, (uint64_t)row->step - 1,
                     &(struct fl_sampled){row->sampled, row->sampled_infinite, row->sampled_error, row->sampled_size});
    }
    if (strcmp(row->tensor, "fc.weight.grad") != 0)
        return;
    /* [outputs, inputs] or its transpose: if all elements are sampled, the sets of errors are equal. */
    long double size = 0;
    for (int o = 0; o < 4; o++)
        for (int p = 0; p < 5; p++) {
            long double sum = 0;
            for (int b = 0; b < 8; b++)
                sum += (long double)n->gradient.x[b * 4 + o] * n->pooled.x[b * 5 + p];
            size += sum * sum;
        }
    CHECK(row->sampled == 20 && fabs(row->sampled_size - (double)sqrtl(size / 20)) <= 1e-12 * row->sampled_size,
          "size %.17g, expected %.17g", row->sampled_size, (double)sqrtl(size / 20));
}

static void network(const char *variant) {
    static struct net n;
    n = (struct net){0};
    nn_graph *g = nn_graph_new(&(nn_config){.variant = variant, .batch = 8, .seed = 5, .momentum = 0.9f});
    nn_node x = nn_input(g, 8, 8, 3);
    x = nn_conv2d(g, "conv", x, 5, 3, &(nn_conv2d_options){.padding = 1});
    x = nn_avgpool_global(g, "pool", x);
    x = nn_linear(g, "fc", x, 4, false);
    CHECK(!nn_compile(g, x), "%s", tensor_error());
    n.g = g;
    n.t = nn_telemetry_new(g, &(nn_telemetry_config){.every = 3, .row = see_row, .context = &n, .watched = true});
    CHECK(n.t && !nn_watch(g, keep, &n), "%s", tensor_error());
    for (int step = 0; step < 3 * 2 * TURNS; step++) {
        float images[8 * 8 * 8 * 3];
        int32_t labels[8];
        for (int i = 0; i < 8 * 8 * 8 * 3; i++)
            images[i] = (float)((double)(int64_t)check_random(&state) / 9223372036854775808.0);
        for (int i = 0; i < 8; i++)
            labels[i] = (int32_t)(check_random(&state) % 4);
        const int next = n.t->sampling.next; /* an evaluation is no step, and is not measured */
        CHECK(!nn_evaluate(NULL, NULL, g, &(nn_batch){.images = images, .labels = labels, .count = 8}) &&
                  n.t->sampling.next == next,
              "step %d: %s", step + 1, tensor_error());
        CHECK(!nn_train_step(NULL, NULL, g, &(nn_batch){.images = images, .labels = labels}, 0.01f) &&
                  !nn_telemetry_step(n.t),
              "%s", tensor_error());
    }
    for (int i = 0; i < MEASURED; i++) /* each is sampled twice in two rounds of records */
        CHECK(n.times[i] == 2 && n.steps[i][1] == n.steps[i][0] + 3 * TURNS, "%s %s: %d times, steps %lld, %lld",
              variant, measured[i], n.times[i], (long long)n.steps[i][0], (long long)n.steps[i][1]);
    CHECK(!n.others, "%s: %d of other operations", variant, n.others);
    nn_telemetry_free(n.t);
    nn_graph_free(g);
}

int main(void) {
    static const tensor_format formats[] = {FMT_FP32, FMT_FP16, FMT_BF16, FMT_FLEX16_5, FMT_DFP16};
    static const char *const rows[] = {"avx512_amx", "portable", "ref"}, *const variants[] = {"fp32", "bf16",
                                                                                              "flex16+5"};
    static const tensor_window windows[] = {
        {.stride = {1, 1}, .padding = {1, 1, 1, 0}, .dilation = {1, 1}, .groups = 1},
        {.stride = {2, 3}, .padding = {2, 0, 1, 2}, .dilation = {2, 1}, .groups = 2},
        {.stride = {1, 1}, .padding = {0, 0, 2, 0}, .dilation = {1, 2}, .groups = 1},
        {.stride = {1, 3}, .padding = {0, 0, 1, 1}, .dilation = {1, 1}, .groups = 2}};
    int turn = 0;
    for (int run = 0; run < 3; run++) {
        CHECK(!tensor_set_backend(rows[run]), "%s", tensor_error());
        tensor_set_threads(run + 1);
        for (int f = 0; f < 5; f++)
            for (double scale = 1e-4; scale <= 1e4; scale *= 1e4) {
                matmuls(formats[f], formats[f], scale, 7, 5, 3);
                matmuls(formats[f], formats[f], scale, 33, 41, 13);
                matmuls(formats[f], formats[f], scale, 2, 3, 700);
                epilogues(formats[f], scale);
                for (int to = 0; to < 5; to++)
                    for (int window = 0; window < 4;
                         window++) { /* shared exponents are combined with each other, and so are floats */
                        static const int beside[] = {1, 2, 0, 4, 3};
                        const int other = (window + to) % 2 ? beside[f] : f;
                        convolutions((struct convolution){formats[f], formats[other], formats[to], scale,
                                                          windows[window], window >= 2},
                                     turn++ % 8);
                    }
                for (int to = 0; to < 5; to++)
                    matmuls(formats[f], formats[to], scale, 6, 9, 30);
            }
    }
    extremes();
    for (int i = 0; i < 3; i++)
        network(variants[i]);
    CHECK(compared > 500 && infinities > 100 && saturated > 1, "%lld writes, %lld Inf, %lld saturated",
          (long long)compared, (long long)infinities, (long long)saturated);
    return check_summary();
}
