/* Scalars of an operation in a tensor: the bits of those given by value, on the host and on a device whose queue runs
 * later, with the value that a scalar has in the order of the queue; what is refused, and when. */
#include "toy_device.h"
#include "flexlab/nn.h"
#include "flexlab/tensor_blocks.h"
#include <math.h>

enum { ROWS = 9, COLUMNS = 7, N = ROWS * COLUMNS, STEPS = 10 };

static uint64_t seed = 1;

static double unit(void) {
    return (double)(check_random(&seed) >> 11) * 0x1p-52 - 1;
}

static void fill(tensor *t) {
    double values[N];
    for (int i = 0; i < N; i++)
        values[i] = unit();
    CHECK(!tensor_load_f64(t, values, N), "%s", tensor_error());
}

static float rate_of(int step) {
    static const float rates[STEPS] = {0.1f, 0.05f, 0, 0.3f, -0.02f, 1e-3f, 0x1p-20f, 2, 0.1f, 1e-30f};
    return rates[step];
}

static tensor *matrix(tensor_device *device, tensor_format format) {
    tensor *t = tensor_new_in(device, format, TENSOR_SHAPE(ROWS, COLUMNS));
    CHECK(t, "%s", tensor_error());
    return t;
}

static tensor *number(tensor_device *device, tensor_format format) {
    tensor *t = tensor_new_in(device, format, TENSOR_SHAPE(1));
    CHECK(t, "%s", tensor_error());
    return t;
}

static void same(const char *what, const tensor *a, const tensor *b) {
    double x[N], y[N], wide_x[N], wide_y[N];
    CHECK(!tensor_store_f64(a, x, N) && !tensor_store_f64(b, y, N) && !tensor_store_wide_f64(a, wide_x, N) &&
              !tensor_store_wide_f64(b, wide_y, N),
          "%s", tensor_error());
    CHECK(!memcmp(x, y, sizeof x) && !memcmp(wide_x, wide_y, sizeof x) && tensor_exponent(a) == tensor_exponent(b),
          "%s: by value %g ..., by tensor %g ...", what, x[0], y[0]);
}

/* --- ten updates, all queued before one runs ---------------------------------------------------------------------- */

static void updates(tensor_device *device, tensor_format format, bool wide, tensor_rounding rounding) {
    char what[80];
    snprintf(what, sizeof what, "%s on %s, %s", tensor_format_name(format), tensor_device_name(device),
             wide ? "wide" : "narrow");
    tensor *w[2], *v = matrix(device, format), *rate = number(device, FMT_F32);
    fill(v);
    for (int i = 0; i < 2; i++) {
        seed = 77;
        w[i] = matrix(device, format);
        fill(w[i]);
        CHECK((!wide || !tensor_keep_wide(w[i])) && !tensor_set_rounding(w[i], rounding, 3), "%s", tensor_error());
    }
    for (int step = 0; step < STEPS; step++) {
        const float r = rate_of(step);
        CHECK(!tensor_sgd_update(w[0], v, r) && !tensor_load_f32(rate, &r, 1) && !tensor_sgd_update_by(w[1], v, rate),
              "%s: %s", what, tensor_error());
    }
    CHECK(!tensor_load_f32(rate, &(float){1000}, 1), "%s", tensor_error());
    same(what, w[0], w[1]);
    tensor_stats a, b;
    CHECK(!tensor_statistics(NULL, &a, w[0]) && !tensor_statistics(NULL, &b, w[1]) && !memcmp(&a, &b, sizeof a),
          "%s: statistics", what);
    tensor_free(w[0]);
    tensor_free(w[1]);
    tensor_free(v);
    tensor_free(rate);
}

static void losses(tensor_device *device, tensor_format format) {
    tensor *x = matrix(device, format), *dx[2] = {matrix(device, format), matrix(device, format)},
           *loss[2] = {number(device, FMT_F64), number(device, FMT_F64)}, *scale = number(device, FMT_F64),
           *labels = tensor_new_in(device, FMT_I32, TENSOR_SHAPE(ROWS));
    fill(x);
    CHECK(!tensor_load_i32(labels, (int32_t[ROWS]){0, 1, 2, 3, 4, 5, 6, 0, 1}, ROWS), "%s", tensor_error());
    for (int step = 0; step < STEPS; step++) {
        const double s = 1 + 100 * (double)rate_of(step);
        double a, b;
        CHECK(!tensor_load_f64(scale, &s, 1) &&
                  !tensor_cross_entropy(loss[0], dx[0], NULL, NULL, x, labels,
                                        &(tensor_loss_options){.gradient_scale = s}) &&
                  !tensor_cross_entropy(loss[1], dx[1], NULL, NULL, x, labels,
                                        &(tensor_loss_options){.gradient_scale_tensor = scale}),
              "%s", tensor_error());
        CHECK(!tensor_load_f64(scale, &(double){7}, 1), "%s", tensor_error());
        same("gradient of the loss", dx[0], dx[1]);
        CHECK(!tensor_store_f64(loss[0], &a, 1) && !tensor_store_f64(loss[1], &b, 1) && a == b, "loss %a and %a", a, b);
    }
    tensor *all[] = {x, dx[0], dx[1], loss[0], loss[1], scale, labels};
    for (int i = 0; i < 7; i++)
        tensor_free(all[i]);
}

/* --- the update of a network -------------------------------------------------------------------------------------- */

enum { BATCH = 4, SIDE = 8, CLASSES = 3 };

static void step_of(nn_graph *g, int step, bool by_value) {
    static float images[BATCH * SIDE * SIDE * 3];
    static const int32_t labels[BATCH] = {0, 1, 2, 1};
    seed = (uint64_t)step + 5;
    for (int i = 0; i < BATCH * SIDE * SIDE * 3; i++)
        images[i] = (float)unit();
    const float rate = fabsf(rate_of(step));
    CHECK(!nn_forward(g, &(nn_batch){.images = images, .labels = labels}) && !nn_backward(g), "%s", tensor_error());
    const long puts = toy.puts;
    if (!by_value) {
        CHECK(!nn_update(g, rate), "%s", tensor_error());
        CHECK(toy.puts - puts <= 1, "%ld puts in an update", toy.puts - puts);
        return;
    }
    for (int i = 0; i < nn_tensor_count(g); i++) { /* weight, gradient and momentum are consecutive */
        if (strcmp(nn_tensor_at(g, i).role, "weight") != 0)
            continue;
        tensor *w = nn_tensor_at(g, i).t, *v = nn_tensor_at(g, i + 2).t;
        CHECK(!tensor_sgd_momentum(v, nn_tensor_at(g, i + 1).t, w, 0.9f, 1e-3f) && !tensor_sgd_update(w, v, rate), "%s",
              tensor_error());
    }
}

/* Compares everything but the head of the state, which has the number of updates. */
static void same_networks(const char *what, const nn_graph *g, const nn_graph *h) {
    enum { HEAD = 96 };
    const size_t bytes = nn_state_bytes(g);
    unsigned char *a = malloc(bytes), *b = malloc(bytes);
    CHECK(!nn_state_save(a, bytes, g) && !nn_state_save(b, bytes, h), "%s", tensor_error());
    size_t at = HEAD;
    while (at < bytes && a[at] == b[at])
        at++;
    CHECK(at == bytes, "%s: byte %zu of %zu differs", what, at, bytes);
    free(a);
    free(b);
}

static void networks(const char *variant, const char *device) {
    nn_graph *g[2];
    for (int i = 0; i < 2; i++) {
        g[i] = nn_graph_new(&(nn_config){
            .variant = variant, .batch = BATCH, .seed = 2, .momentum = 0.9f, .weight_decay = 1e-3f, .device = device});
        CHECK(g[i] && !nn_compile(g[i], nn_model(g[i], "resnet8", SIDE, SIDE, 3, CLASSES)), "%s", tensor_error());
        for (int step = 0; step < STEPS; step++)
            step_of(g[i], step, i);
    }
    same_networks(variant, g[0], g[1]);
    nn_graph_free(g[0]);
    nn_graph_free(g[1]);
}

/* --- refusals ----------------------------------------------------------------------------------------------------- */

/* A limit from a tensor clips like the number; values loaded later do not count. */
static void clips(tensor_device *device, tensor_format format) {
    tensor *x = matrix(device, format), *y[2] = {matrix(device, format), matrix(device, format)},
           *limit = number(device, FMT_F32);
    fill(x);
    for (int step = 0; step < STEPS; step++) {
        const float most = 0.3f * (float)(step % 4);
        CHECK(!tensor_clip(y[0], x, most) && !tensor_load_f32(limit, &most, 1) && !tensor_clip_by(y[1], x, limit), "%s",
              tensor_error());
    }
    CHECK(!tensor_load_f32(limit, &(float){1000}, 1), "%s", tensor_error());
    same("clip_by", y[0], y[1]);
    tensor_free(x);
    tensor_free(y[0]);
    tensor_free(y[1]);
    tensor_free(limit);
}

static void refused(tensor_status got, tensor_status want, const char *part) {
    CHECK(got == want && strstr(tensor_error(), part), "status %d '%s', want %d '%s'", (int)got, tensor_error(),
          (int)want, part);
}

static void wrong_operands(tensor_device *device, tensor_device *other) {
    tensor *w = matrix(device, FMT_FP16), *v = matrix(device, FMT_FP16), *f64 = number(device, FMT_F64),
           *two = tensor_new_in(device, FMT_F32, TENSOR_SHAPE(2)), *fp32 = number(device, FMT_FP32),
           *f32 = number(device, FMT_F32), *there = number(other, FMT_F32), *there_f64 = number(other, FMT_F64),
           *loss = number(device, FMT_F64), *labels = tensor_new_in(device, FMT_I32, TENSOR_SHAPE(ROWS));
    refused(tensor_sgd_update_by(w, v, NULL), TENSOR_E_ARGUMENT, "sgd_update_by: rate is NULL");
    refused(tensor_sgd_update_by(NULL, v, f32), TENSOR_E_ARGUMENT, "sgd_update_by: w is NULL");
    refused(tensor_sgd_update_by(w, NULL, f32), TENSOR_E_ARGUMENT, "sgd_update_by: v is NULL");
    refused(tensor_sgd_update_by(w, w, f32), TENSOR_E_ARGUMENT, "same tensor");
    refused(tensor_sgd_update_by(w, v, f64), TENSOR_E_FORMAT, "rate is f64 1, expected f32");
    refused(tensor_sgd_update_by(w, v, fp32), TENSOR_E_FORMAT, "rate is fp32 1, expected f32");
    refused(tensor_sgd_update_by(w, v, two), TENSOR_E_SHAPE, "rate is f32 2, expected f32 with 1 elements");
    refused(tensor_sgd_update_by(w, v, there), TENSOR_E_ARGUMENT, "use tensor_copy");
    refused(
        tensor_cross_entropy(loss, v, NULL, NULL, NULL, labels, &(tensor_loss_options){.gradient_scale_tensor = f64}),
        TENSOR_E_ARGUMENT, "x is NULL");
    refused(tensor_cross_entropy(loss, v, NULL, NULL, w, labels, &(tensor_loss_options){.gradient_scale_tensor = f32}),
            TENSOR_E_FORMAT, "gradient_scale is f32 1, expected f64");
    refused(tensor_cross_entropy(loss, v, NULL, NULL, w, labels, &(tensor_loss_options){.gradient_scale_tensor = loss}),
            TENSOR_E_ARGUMENT, "loss and gradient_scale are the same tensor");
    refused(tensor_cross_entropy(loss, v, NULL, NULL, w, labels,
                                 &(tensor_loss_options){.gradient_scale_tensor = there_f64}),
            TENSOR_E_ARGUMENT, "use tensor_copy");
    refused(tensor_clip_by(w, v, NULL), TENSOR_E_ARGUMENT, "clip_by: limit is NULL");
    refused(tensor_clip_by(NULL, v, f32), TENSOR_E_ARGUMENT, "clip_by: y is NULL");
    refused(tensor_clip_by(w, fp32, f32), TENSOR_E_FORMAT, "clip_by");
    refused(tensor_clip_by(w, v, f64), TENSOR_E_FORMAT, "limit is f64 1, expected f32");
    refused(tensor_clip_by(w, v, there), TENSOR_E_ARGUMENT, "use tensor_copy");
    tensor *all[] = {w, v, f64, two, fp32, f32, there, there_f64, loss, labels};
    for (int i = 0; i < 10; i++)
        tensor_free(all[i]);
}

/* A rate on the host in the memory of the weights is refused. */
static void shared_memory(void) {
    _Alignas(64) static char memory[4096];
    tensor *w = tensor_new_on(FMT_FP32, TENSOR_SHAPE(ROWS, COLUMNS), memory, sizeof memory),
           *rate = tensor_new_on(FMT_F32, TENSOR_SHAPE(1), memory, 64),
           *v = tensor_new(FMT_FP32, TENSOR_SHAPE(ROWS, COLUMNS));
    CHECK(w && rate && v, "%s", tensor_error());
    refused(tensor_sgd_update_by(w, v, rate), TENSOR_E_ARGUMENT, "w and rate are different tensors in overlapping");
    tensor_free(rate);
    tensor_free(w);
    tensor_free(v);
}

/* Values that are not finite, or a limit below 0, are found when the call runs, and nothing is written. */
static void not_finite(tensor_device *device, tensor_format format) {
    static const float values[] = {NAN, INFINITY, -INFINITY};
    tensor *w = matrix(device, format), *v = matrix(device, format), *before = matrix(device, format),
           *rate = number(device, FMT_F32), *scale = number(device, FMT_F64), *loss = number(device, FMT_F64),
           *labels = tensor_new_in(device, FMT_I32, TENSOR_SHAPE(ROWS));
    fill(w);
    fill(v);
    CHECK(!tensor_copy(before, w) && !tensor_load_i32(labels, (int32_t[ROWS]){0}, ROWS), "%s", tensor_error());
    for (int i = 0; i < 3; i++) {
        const double s = values[i];
        CHECK(!tensor_load_f32(rate, &values[i], 1) && !tensor_load_f64(scale, &s, 1), "%s", tensor_error());
        tensor_status status = tensor_sgd_update_by(w, v, rate);
        if (device != tensor_device_at(0)) {
            CHECK(!status, "%s", tensor_error());
            status = tensor_device_wait(device);
        }
        refused(status, TENSOR_E_ARGUMENT, i ? "sgd_update_by: rate is" : "sgd_update_by: rate is nan, expected a");
        status = tensor_cross_entropy(loss, w, NULL, NULL, v, labels,
                                      &(tensor_loss_options){.gradient_scale_tensor = scale});
        if (device != tensor_device_at(0)) {
            CHECK(!status, "%s", tensor_error());
            status = tensor_device_wait(device);
        }
        refused(status, TENSOR_E_ARGUMENT, "cross_entropy: gradient_scale is");
        same("after a refusal", before, w);
    }
    CHECK(!tensor_load_f32(rate, &(float){-0.25f}, 1), "%s", tensor_error());
    tensor_status status = tensor_clip_by(w, v, rate);
    if (device != tensor_device_at(0)) {
        CHECK(!status, "%s", tensor_error());
        status = tensor_device_wait(device);
    }
    refused(status, TENSOR_E_ARGUMENT, "clip_by: limit is -0.25, expected 0 or more");
    same("after a limit below 0", before, w);
    tensor *all[] = {w, v, before, rate, scale, loss, labels};
    for (int i = 0; i < 7; i++)
        tensor_free(all[i]);
}

int main(void) {
    if (!toy_begin((size_t)1 << 32))
        return check_skip("no address space for the memory of a device");
    for (int d = 0; d < 2; d++) {
        tensor_device *device = tensor_device_at(d);
        for (int i = 0; tensor_format_at(i); i++) {
            const tensor_format format = tensor_format_at(i);
            clips(device, format);
            updates(device, format, false, TENSOR_ROUND_NEAREST);
            updates(device, format, true, TENSOR_ROUND_NEAREST);
            if (tensor_format_bytes(format) == 2)
                updates(device, format, false, TENSOR_ROUND_STOCHASTIC);
            losses(device, format);
            not_finite(device, format);
        }
        for (int i = 0; nn_variant_at(i); i++)
            networks(nn_variant_at(i)->name, tensor_device_name(device));
        wrong_operands(device, tensor_device_at(!d));
    }
    CHECK(!tensor_set_backend("ref"), "%s", tensor_error());
    updates(tensor_device_at(0), FMT_FLEX16_5, true, TENSOR_ROUND_NEAREST);
    updates(tensor_device_at(0), FMT_BF16, false, TENSOR_ROUND_NEAREST);
    CHECK(!tensor_set_backend(NULL), "%s", tensor_error());
    shared_memory();
    free(toy.commands);
    return check_summary();
}
