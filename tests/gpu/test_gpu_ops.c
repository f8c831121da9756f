/* Every operation on every format, on the device "cuda" and by the reference kernels of the host: the same public calls
 * with the same data, after each of which elements, wide part, exponent with its history, statistics and numbers must
 * be the same bits (a NaN is a NaN). Each tensor is written several times.
 *
 *     test_gpu_ops [SEED [SERIES [OPERATION [FORMAT]]]]        SERIES: of each operation and format, 24
 *
 * Without a device: skipped, or with FLEXLAB_REQUIRE_GPU=1 a failure. An operation that the device lacks is a
 * failure. */
#define _GNU_SOURCE
#include "flexlab/tensor_blocks.h"
#include "check.h"
#include "core/queue/queue.h"
#include "core/tensor/tensor_object.h"
#include "flexlab/tensor_blocks.h"
#include "same_state.h"
#include "square.h"
#include "flexlab/tensor_blocks.h"
#include <dlfcn.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { OPERANDS = 9, MOST = 1 << 15, WRITES = 4 };
enum { HOST, DEVICE };

static tensor_device *gpu;
static uint64_t draws;
static uint64_t first_seed = 1;
static const char *only_operation, *only_format;
static long long calls;

static uint64_t draw(void) {
    return check_random(&draws);
}
static int between(int low, int high) {
    return low + (int)(draw() % (uint64_t)(high - low + 1));
}
static bool chance(int percent) {
    return between(1, 100) <= percent;
}
static double unit(void) { /* in [-1, 1) */
    return (double)((int64_t)draw() >> 10) * 0x1p-53;
}

/* --- tensors ------------------------------------------------------------------------------------------------------ */

struct operand {
    tensor *t[2];
    bool shared; /* with another operand of the call: in place */
};

struct call {
    const struct fl_format *format;
    struct operand operand[OPERANDS];
    int count;
    char settings[160]; /* of what is written, for messages */
    /* what the call needs besides */
    float alpha;
    double epsilon;
    bool relu;
    int stride;
    struct square how;
    tensor_window around;
};

/* Element styles: what the formats hold, with the ends of their range, and special values of float formats. */
enum { STYLES = 9 };

static void draw_values(const struct fl_format *f, double *v, int64_t n, int style) {
    const bool shared = f->arithmetic == FL_ARITHMETIC_SHARED, half = f->id == FMT_FP16;
    const double top = half ? 65504 : f->id == FMT_BF16 ? 0x1.fep127 : 0x1.fffffep127;
    for (int64_t i = 0; i < n; i++) {
        const double x = unit() + unit() + unit();
        switch (style) {
        case 0:
            v[i] = x;
            break;
        case 1:
            v[i] = shared || chance(50) ? 0 : -0.0;
            break;
        case 2: /* small integers: exact sums, many equal ones */
            v[i] = between(-3, 3);
            break;
        case 3: /* subnormals */
            v[i] = ldexp(x, half ? -16 : -128);
            break;
        case 4: /* sums overflow */
            v[i] = shared ? ldexp(x, 9) : chance(30) ? copysign(top, x) : ldexp(x, half ? 14 : 125);
            break;
        case 5: /* Inf and NaN */
            v[i] = shared ? x : chance(4) ? NAN : chance(6) ? copysign(INFINITY, x) : x;
            break;
        case 6: /* mostly zeros */
            v[i] = chance(85) ? 0 : x;
            break;
        case 7: /* many binary orders side by side */
            v[i] = ldexp(x, between(-20, half ? 8 : 30));
            break;
        default: /* ties when rounded */
            v[i] = ldexp(2 * between(-512, 512) + 1, -6);
        }
    }
}

/* How an operand is made and written. */
struct settings {
    const char *predictor; /* NULL: the format's */
    tensor_rounding rounding;
    uint64_t seed;
    bool wide;
    int style;
    int exponent; /* set by hand; INT32_MIN: as loaded */
};

static tensor *tensor_on(int where, const struct call *c, int ndim, const int64_t *shape, const struct settings *s) {
    tensor *t = where == HOST ? tensor_new(c->format->id, ndim, shape) : tensor_new_in(gpu, c->format->id, ndim, shape);
    CHECK(t != NULL, "%s", tensor_error());
    if (t && s->predictor)
        CHECK(!tensor_set_predictor(t, s->predictor), "%s", tensor_error());
    if (t && s->rounding)
        CHECK(!tensor_set_rounding(t, s->rounding, s->seed), "%s", tensor_error());
    if (t && s->wide)
        CHECK(!tensor_keep_wide(t), "%s", tensor_error());
    return t;
}

/* Adds an operand, with the same elements at both places: loaded at both, or copied from the host. */
static void add(struct call *c, const struct settings *s, int ndim, const int64_t *shape) {
    static double values[MOST];
    struct operand *o = &c->operand[c->count++];
    int64_t n = 1;
    for (int i = 0; i < ndim; i++)
        n *= shape[i];
    if (n > MOST)
        abort();
    draw_values(c->format, values, n, s->style);
    tensor *source = s->exponent != INT32_MIN || chance(40) ? tensor_on(HOST, c, ndim, shape, s) : NULL;
    if (source)
        CHECK(!tensor_load_f64(source, values, n) &&
                  (s->exponent == INT32_MIN || !tensor_declare_exponent(source, s->exponent)),
              "%s", tensor_error());
    for (int where = 0; where < 2; where++) {
        tensor *t = o->t[where] = tensor_on(where, c, ndim, shape, s);
        CHECK(!(source ? tensor_copy(t, source) : tensor_load_f64(t, values, n)), "%s", tensor_error());
    }
    tensor_free(source);
}

/* Numbers beside the elements: f64, f32, i32. */
static void add_numbers(struct call *c, tensor_format kind, int64_t n, const double *values) {
    struct operand *o = &c->operand[c->count++];
    static int32_t whole[MOST];
    static float small[MOST];
    for (int where = 0; where < 2; where++) {
        tensor *t = o->t[where] =
            where == HOST ? tensor_new(kind, TENSOR_SHAPE(n)) : tensor_new_in(gpu, kind, TENSOR_SHAPE(n));
        for (int64_t i = 0; values && i < n; i++) {
            whole[i] = kind == FMT_I32 ? (int32_t)values[i] : 0;
            small[i] = (float)values[i];
        }
        if (values)
            CHECK(!(kind == FMT_I32   ? tensor_load_i32(t, whole, n)
                    : kind == FMT_F32 ? tensor_load_f32(t, small, n)
                                      : tensor_load_f64(t, values, n)),
                  "%s", tensor_error());
    }
}

/* An operand that is another one of the call, or none. */
static void add_same(struct call *c, int which) {
    c->operand[c->count] = c->operand[which];
    c->operand[c->count++].shared = true;
}
static void add_none(struct call *c) {
    c->operand[c->count++] = (struct operand){.shared = true};
}

static void free_operands(struct call *c) {
    for (int i = 0; i < c->count; i++) {
        for (int where = 0; where < 2 && !c->operand[i].shared; where++)
            tensor_free(c->operand[i].t[where]);
        c->operand[i].shared = false; /* the next call has another operand there */
    }
    c->count = 0;
}

/* --- what must agree ---------------------------------------------------------------------------------------------- */

/* The numbers of both; the first that differs, in `line`. */
static bool same_numbers(const tensor *want, const tensor *got, char *line, size_t bytes) {
    static double a[MOST], b[MOST];
    static int32_t m[MOST], n[MOST];
    const int64_t count = tensor_count(want);
    const bool whole = tensor_format_of(want) == FMT_I32;
    if (whole ? tensor_store_i32(want, m, count) || tensor_store_i32(got, n, count)
              : tensor_store_f64(want, a, count) || tensor_store_f64(got, b, count)) {
        snprintf(line, bytes, "numbers: %s", tensor_error());
        return false;
    }
    for (int64_t i = 0; i < count; i++) {
        const double x = whole ? m[i] : a[i], y = whole ? n[i] : b[i];
        if (!same_double(x, y)) {
            snprintf(line, bytes, "number %" PRId64 " is %a, ref %a", i, y, x);
            return false;
        }
    }
    return true;
}

static bool same_elements(const tensor *want, const tensor *got, char *line, size_t bytes) {
    const struct fl_format *f = want->format;
    const struct fl_view va = fl_view_of(want), vb = fl_view_of(got);
    for (int64_t i = 0; i < want->count; i++) {
        double x, y;
        f->decode(&va, i, 1, &x);
        f->decode(&vb, i, 1, &y);
        const size_t at = (size_t)i * (size_t)f->bytes;
        if (memcmp((char *)want->storage->data + at, (char *)got->storage->data + at, (size_t)f->bytes) &&
            !(x != x && y != y)) {
            snprintf(line, bytes, "element %" PRId64 " of %" PRId64 " is %a, ref %a", i, want->count, y, x);
            return false;
        }
    }
    const uint32_t *a = want->storage->wide, *b = got->storage->wide;
    for (int64_t i = 0; a && i < want->count; i++) {
        const bool nan = f->arithmetic == FL_ARITHMETIC_FLOAT && (a[i] & 0x7fffffffu) > 0x7f800000u &&
                         (b[i] & 0x7fffffffu) > 0x7f800000u;
        if (a[i] != b[i] && !nan) {
            snprintf(line, bytes, "wide element %" PRId64 " is 0x%08x, ref 0x%08x", i, b[i], a[i]);
            return false;
        }
    }
    return true;
}

static bool same_tensor(const tensor *want, const tensor *got, char *line, size_t bytes) {
    if (!want)
        return true;
    if (want->format->id == FMT_F64 || want->format->id == FMT_F32 || want->format->id == FMT_I32)
        return same_numbers(want, got, line, bytes);
    tensor *back = tensor_new(want->format->id, want->ndim, want->shape);
    bool same = back && (!want->storage->wide || !tensor_keep_wide(back)) && !tensor_copy(back, got);
    tensor_stats a[2], b[2];
    const struct fl_slot *p = want->storage->slot, *q = same ? fl_slot_of(got) : NULL;
    if (!q || tensor_statistics(&a[0], &a[1], want) || tensor_statistics(&b[0], &b[1], got)) {
        snprintf(line, bytes, "%s", tensor_error());
        same = false;
    } else if (p->e != q->e || !same_autoflex(&p->autoflex, &q->autoflex)) {
        snprintf(line, bytes,
                 "exponent %d, ref %d, or its state (predicted %a, ref %a; overflows %d, ref %d; clamps %d %d, ref %d "
                 "%d; zeros %d, ref %d; history %d, ref %d)",
                 q->e, p->e, q->autoflex.predicted, p->autoflex.predicted, (int)q->autoflex.overflows,
                 (int)p->autoflex.overflows, (int)q->autoflex.clamped_low, (int)q->autoflex.clamped_high,
                 (int)p->autoflex.clamped_low, (int)p->autoflex.clamped_high, (int)q->autoflex.zero_writes,
                 (int)p->autoflex.zero_writes, q->autoflex.count, p->autoflex.count);
        same = false;
    } else if (!same_elements(want, back, line, bytes)) {
        same = false;
    } else if (!same_stats(&a[0], &b[0]) || !same_stats(&a[1], &b[1])) {
        const int i = same_stats(&a[0], &b[0]);
        snprintf(line, bytes,
                 "%s statistics: maximum %a, ref %a, gamma %d, ref %d, saturated %" PRId64 ", ref %" PRId64
                 ", flushed %" PRId64 ", ref %" PRId64 ", nonfinite %" PRId64 ", ref %" PRId64 ", writes %" PRId64
                 ", ref %" PRId64,
                 i ? "total" : "last", b[i].maximum, a[i].maximum, b[i].gamma, a[i].gamma, b[i].saturated,
                 a[i].saturated, b[i].flushed, a[i].flushed, b[i].nonfinite, a[i].nonfinite, b[i].writes, a[i].writes);
        same = false;
    } else if (p->writes != q->writes) {
        snprintf(line, bytes, "write %" PRIu64 ", ref %" PRIu64, q->writes, p->writes);
        same = false;
    }
    tensor_free(back);
    return same;
}

#include "gpu_operands.h"

/* --- the calls ---------------------------------------------------------------------------------------------------- */

#define RUN(name) static tensor_status run_##name(const struct call *c, tensor *const *t)
#define FL_MAP1(id, CONSTANT, name, expr)                                                                              \
    RUN(name) {                                                                                                        \
        (void)c;                                                                                                       \
        return tensor_##name(t[0], t[1]);                                                                              \
    }
#define FL_MAP1_SCALAR(id, CONSTANT, name, expr)                                                                       \
    RUN(name) {                                                                                                        \
        return tensor_##name(t[0], t[1], c->alpha);                                                                    \
    }
#define FL_MAP1_SCALARS(id, CONSTANT, name, expr)                                                                      \
    RUN(name) {                                                                                                        \
        return tensor_##name(t[0], t[1], -c->alpha, c->alpha);                                                         \
    }
#define FL_MAP2_SCALARS(id, CONSTANT, name, expr)                                                                      \
    RUN(name) {                                                                                                        \
        return tensor_##name(t[0], t[1], t[2], -c->alpha, c->alpha);                                                   \
    }
#define FL_MAP2(id, CONSTANT, name, expr)                                                                              \
    RUN(name) {                                                                                                        \
        (void)c;                                                                                                       \
        return tensor_##name(t[0], t[1], t[2]);                                                                        \
    }
#define FL_MAP2_SCALAR(id, CONSTANT, name, expr)                                                                       \
    RUN(name) {                                                                                                        \
        return tensor_##name(t[0], t[1], t[2], c->alpha);                                                              \
    }
#define FL_MAP3(id, CONSTANT, name, expr)                                                                              \
    RUN(name) {                                                                                                        \
        (void)c;                                                                                                       \
        return tensor_##name(t[0], t[1], t[2], t[3]);                                                                  \
    }
#include "flexlab/ops.def"

/* clang-format off */
#define PLAIN_RUN(name, ...) RUN(name) { (void)c; return tensor_##name(__VA_ARGS__); }
PLAIN_RUN(bias, t[0], t[1], t[2])
PLAIN_RUN(bias_relu, t[0], t[1], t[2])
PLAIN_RUN(sum_rows, t[0], t[1])
PLAIN_RUN(matmul, t[0], t[1], t[2])
PLAIN_RUN(matmul_nt, t[0], t[1], t[2])
PLAIN_RUN(matmul_tn, t[0], t[1], t[2])
PLAIN_RUN(conv2d, t[0], t[1], t[2], STEPS(c->how))
PLAIN_RUN(conv2d_input_grad, t[0], t[1], t[2], STEPS(c->how))
PLAIN_RUN(conv2d_weight_grad, t[0], t[1], t[2], STEPS(c->how))
PLAIN_RUN(maxpool2d, t[0], t[1], SQUARE(c->how))
PLAIN_RUN(maxpool2d_grad, t[0], t[1], t[2], SQUARE(c->how))
RUN(conv2d_input_grad_with) {
    return tensor_conv2d_input_grad(t[0], t[1], t[2], &c->around);
}
RUN(conv2d_weight_grad_with) {
    return tensor_conv2d_weight_grad(t[0], t[1], t[2], &c->around);
}
RUN(maxpool2d_with) {
    return tensor_maxpool2d(t[0], t[1], &c->around);
}
RUN(maxpool2d_grad_with) {
    return tensor_maxpool2d_grad(t[0], t[1], t[2], &c->around);
}
PLAIN_RUN(avgpool_global, t[0], t[1])
PLAIN_RUN(avgpool_global_grad, t[0], t[1])
PLAIN_RUN(shortcut_a, t[0], t[1], c->stride)
PLAIN_RUN(shortcut_a_grad, t[0], t[1], c->stride)
PLAIN_RUN(moments, t[0], t[1], t[2])
PLAIN_RUN(running_statistics, t[0], t[1], t[2], t[3], t[4], 0.1)
PLAIN_RUN(batchnorm, t[0], t[1], t[2], t[3], t[4], t[5], t[6], c->epsilon, c->relu)
PLAIN_RUN(sum_squares, t[0], 1, t[1])
PLAIN_RUN(trust_rate, t[0], t[1], t[2])
PLAIN_RUN(sgd_momentum, t[0], t[1], t[2], c->alpha, (float)c->epsilon)
/* clang-format on */
#define EPILOGUE(c, t) (&(const tensor_epilogue){.bias = (t)[3], .residual = (t)[4], .relu = (c)->relu})
RUN(matmul_fused) {
    return tensor_matmul_fused(t[0], t[1], t[2], EPILOGUE(c, t));
}
RUN(matmul_nt_fused) {
    return tensor_matmul_nt_fused(t[0], t[1], t[2], EPILOGUE(c, t));
}
RUN(conv2d_fused) {
    return tensor_conv2d_fused(t[0], t[1], t[2], STEPS(c->how), EPILOGUE(c, t));
}
RUN(conv2d_with) {
    return tensor_conv2d_fused(t[0], t[1], t[2], &c->around, EPILOGUE(c, t));
}
RUN(conv_transpose2d) {
    return tensor_conv_transpose2d_fused(t[0], t[1], t[2], &c->around, EPILOGUE(c, t));
}
RUN(batchnorm_grad) {
    const int64_t channels = tensor_count(t[6]);
    tensor_device *device = tensor_device_of(t[0]);
    tensor *mean = tensor_new_in(device, FMT_F64, TENSOR_SHAPE(channels)),
           *variance = tensor_new_in(device, FMT_F64, TENSOR_SHAPE(channels));
    tensor_status status = tensor_moments(mean, variance, t[4]);
    if (!status)
        status = tensor_batchnorm_grad(t[0], t[1], t[2], t[3], t[4], t[5], t[6], mean, variance, c->epsilon);
    tensor_free(mean);
    tensor_free(variance);
    return status;
}
RUN(cross_entropy) {
    const tensor_loss_options how = {.gradient_scale = c->alpha, .gradient_scale_tensor = t[6]};
    return tensor_cross_entropy(t[0], t[1], t[2], t[3], t[4], t[5], &how);
}

/* Options of a loss; numbers as targets have the shape of x. */
static tensor_loss_options options_of(const struct call *c, tensor *const *t) {
    return (tensor_loss_options){.gradient_scale = c->alpha,
                                 .gradient_scale_tensor = t[8],
                                 .ignores = t[5] != NULL,
                                 .ignored_label = -7,
                                 .label_smoothing = c->stride & 1 ? (float)c->epsilon : 0,
                                 .class_weights = c->stride & 2 ? t[7] : NULL};
}
static tensor *targets_of(tensor *const *t) {
    tensor *view = tensor_new_view(t[6], TENSOR_SHAPE(tensor_dim(t[4], 0), tensor_dim(t[4], 1)));
    CHECK(view, "%s", tensor_error());
    return view;
}
RUN(cross_entropy_with) {
    const tensor_loss_options how = options_of(c, t);
    return tensor_cross_entropy(t[0], t[1], t[2], t[3], t[4], t[5], &how);
}
RUN(cross_entropy_targets) {
    tensor *targets = targets_of(t);
    const tensor_loss_options how = options_of(c, t);
    const tensor_status status = tensor_cross_entropy_targets(t[0], t[1], t[2], t[4], targets, &how);
    tensor_free(targets);
    return status;
}
RUN(squared_error) {
    tensor *targets = targets_of(t);
    const tensor_status status = tensor_squared_error(
        t[0], t[1], t[4], targets, &(tensor_loss_options){.gradient_scale = c->alpha, .gradient_scale_tensor = t[8]});
    tensor_free(targets);
    return status;
}
RUN(huber) {
    tensor *targets = targets_of(t);
    const tensor_status status =
        tensor_huber(t[0], t[1], t[4], targets, (float)c->epsilon,
                     &(tensor_loss_options){.gradient_scale = c->alpha, .gradient_scale_tensor = t[8]});
    tensor_free(targets);
    return status;
}
RUN(wasserstein) {
    return tensor_wasserstein(
        t[0], t[1], t[4], t[5],
        &(tensor_loss_options){
            .gradient_scale = c->alpha, .gradient_scale_tensor = t[8], .ignores = true, .ignored_label = -7});
}
RUN(clip_weight) {
    return tensor_clip_weight(t[0], c->alpha);
}
/* clang-format off */
PLAIN_RUN(matmul_batched, t[0], t[1], t[2])
PLAIN_RUN(matmul_batched_nt, t[0], t[1], t[2])
PLAIN_RUN(matmul_batched_tn, t[0], t[1], t[2])
PLAIN_RUN(layernorm, t[0], t[1], t[2], t[3], c->epsilon)
PLAIN_RUN(layernorm_grad, t[0], t[1], t[2], t[3], t[4], t[5], c->epsilon)
PLAIN_RUN(rmsnorm, t[0], t[1], t[2], c->epsilon)
PLAIN_RUN(rmsnorm_grad, t[0], t[1], t[3], t[4], t[5], c->epsilon)
PLAIN_RUN(softmax, t[0], t[1], c->alpha, c->relu)
PLAIN_RUN(softmax_grad, t[0], t[1], t[2], c->alpha, c->relu)
PLAIN_RUN(log_softmax, t[0], t[1], c->alpha)
PLAIN_RUN(log_softmax_grad, t[0], t[1], t[2], c->alpha)
PLAIN_RUN(embedding, t[0], t[1], t[2])
PLAIN_RUN(embedding_grad, t[0], t[1], t[2])
PLAIN_RUN(permute, t[0], t[1], gpu_orders[c->stride])
PLAIN_RUN(slice, t[0], t[1], c->stride, c->how.padding)
PLAIN_RUN(slice_grad, t[0], t[1], c->stride, c->how.padding)
PLAIN_RUN(concat, t[0], t[1], t[2], t[3], c->stride)
PLAIN_RUN(lstm_cell, t[0], t[1], t[2])
PLAIN_RUN(lstm_hidden, t[0], t[1], t[2])
PLAIN_RUN(lstm_cell_grad, t[0], t[1], t[2], t[3], t[4], t[5])
PLAIN_RUN(lstm_gates_grad, t[0], t[1], t[2], t[3], t[4], t[5])
PLAIN_RUN(gru_hidden, t[0], t[1], t[2], t[3])
PLAIN_RUN(gru_input_grad, t[0], t[1], t[2], t[3], t[4])
PLAIN_RUN(gru_gates_grad, t[0], t[1], t[2], t[3], t[4])
PLAIN_RUN(gru_state_grad, t[0], t[1], t[2], t[3], t[4])
PLAIN_RUN(avgpool2d, t[0], t[1], SQUARE(c->how), c->relu)
PLAIN_RUN(avgpool2d_grad, t[0], t[1], SQUARE(c->how), c->relu)
PLAIN_RUN(avgpool_adaptive, t[0], t[1])
PLAIN_RUN(avgpool_adaptive_grad, t[0], t[1])
PLAIN_RUN(lrn, t[0], t[1], c->stride, c->alpha, (float)c->epsilon, 2)
PLAIN_RUN(lrn_grad, t[0], t[1], t[2], c->stride, c->alpha, (float)c->epsilon, 2)
PLAIN_RUN(groupnorm, t[0], t[1], t[2], t[3], c->stride, c->epsilon)
PLAIN_RUN(groupnorm_grad, t[0], t[1], t[2], t[3], t[4], t[5], c->stride, c->epsilon)
PLAIN_RUN(dropout, t[0], t[1], c->alpha, (uint64_t)c->stride << 20, t[2])
PLAIN_RUN(reduce_sum, t[0], t[1], (unsigned)c->stride)
PLAIN_RUN(reduce_mean, t[0], t[1], (unsigned)c->stride)
PLAIN_RUN(reduce_max, t[0], t[1], (unsigned)c->stride)
PLAIN_RUN(reduce_min, t[0], t[1], (unsigned)c->stride)
PLAIN_RUN(reduce_l1, t[0], t[1], (unsigned)c->stride)
PLAIN_RUN(reduce_l2, t[0], t[1], (unsigned)c->stride)
PLAIN_RUN(reduce_sum_grad, t[0], t[1], (unsigned)c->stride)
PLAIN_RUN(reduce_mean_grad, t[0], t[1], (unsigned)c->stride)
PLAIN_RUN(reduce_max_grad, t[0], t[1], t[2], (unsigned)c->stride)
PLAIN_RUN(reduce_min_grad, t[0], t[1], t[2], (unsigned)c->stride)
PLAIN_RUN(reduce_l1_grad, t[0], t[1], t[2], (unsigned)c->stride)
PLAIN_RUN(reduce_l2_grad, t[0], t[1], t[2], (unsigned)c->stride)
PLAIN_RUN(broadcast_add, t[0], t[1], t[2])
PLAIN_RUN(broadcast_mul, t[0], t[1], t[2])
PLAIN_RUN(broadcast_mul_grad, t[0], t[1], t[2])
/* clang-format on */
RUN(argmax) {
    int64_t shape[2];
    int n = 0;
    for (int d = 0; d < 3; d++)
        if (d != c->stride)
            shape[n++] = tensor_dim(t[1], d);
    tensor *index = tensor_new_view(t[0], 2, shape);
    const tensor_status status = tensor_argmax(index, t[1], c->stride);
    tensor_free(index);
    return status;
}
/* Marks of the last dimension, on the device of y. */
static tensor *marks_for(const tensor *y) {
    uint8_t marks[64];
    const int64_t n = tensor_dim(y, tensor_ndim(y) - 1);
    for (int64_t i = 0; i < n; i++)
        marks[i] = (uint8_t)(i * i % 3);
    tensor *mask = tensor_new_in(tensor_device_of(y), FMT_U8, TENSOR_SHAPE(n));
    CHECK(mask && !tensor_load_u8(mask, marks, n), "%s", tensor_error());
    return mask;
}
RUN(where) {
    (void)c;
    tensor *mask = marks_for(t[0]);
    tensor_status status = tensor_where(t[0], mask, t[1], t[2]);
    status = status ? status : tensor_device_wait(tensor_device_of(t[0]));
    tensor_free(mask);
    return status;
}
RUN(where_grad) {
    tensor *mask = marks_for(t[0]);
    tensor_status status = tensor_where_grad(t[0], t[1], mask, c->stride & 1);
    status = status ? status : tensor_device_wait(tensor_device_of(t[0]));
    tensor_free(mask);
    return status;
}
RUN(optimiser_step) {
    (void)c;
    return t[3] ? tensor_optimiser_step_scaled(t[0], t[1], t[2], t[3]) : tensor_optimiser_step(t[0], t[1], t[2]);
}
RUN(sgd_update) {
    return t[2] ? tensor_sgd_update_by(t[0], t[1], t[2]) : tensor_sgd_update(t[0], t[1], c->alpha);
}

/* Factors are a row of four. */
static tensor *row_of(const tensor *numbers) {
    tensor *row = tensor_new_view((tensor *)(uintptr_t)numbers, TENSOR_SHAPE(1, FL_FACTORS));
    CHECK(row, "%s", tensor_error());
    return row;
}
RUN(combine) {
    (void)c;
    tensor *factors = row_of(t[4]);
    const tensor_status status = tensor_combine(t[0], t[1], t[2], t[3], factors, 0);
    tensor_free(factors);
    return status;
}
RUN(root_mean) {
    (void)c;
    tensor *factors = row_of(t[2]);
    const tensor_status status = tensor_root_mean(t[0], t[1], factors, 0);
    tensor_free(factors);
    return status;
}
RUN(add_ratio) {
    (void)c;
    tensor *factors = row_of(t[4]);
    const tensor_status status = tensor_add_ratio(t[0], t[1], t[2], t[3], factors, 0);
    tensor_free(factors);
    return status;
}

static const struct row {
    const char *name;
    const char *covers; /* other operations of ops.def that the call needs */
    void (*plan)(struct call *c);
    tensor_status (*run)(const struct call *c, tensor *const *t);
} rows[] = {
#define ROW(name, plan, covers)                                                                                        \
    { #name, covers, plan, run_##name }
#define FL_MAP1(id, CONSTANT, name, expr) ROW(name, plan_1, ""),
#define FL_MAP1_SCALAR(id, CONSTANT, name, expr) ROW(name, plan_1, ""),
#define FL_MAP2(id, CONSTANT, name, expr) ROW(name, plan_2, ""),
#define FL_MAP2_SCALAR(id, CONSTANT, name, expr) ROW(name, plan_2, ""),
#define FL_MAP3(id, CONSTANT, name, expr) ROW(name, plan_3, ""),
#define FL_MAP1_SCALARS(id, CONSTANT, name, expr) ROW(name, plan_1, ""),
#define FL_MAP2_SCALARS(id, CONSTANT, name, expr) ROW(name, plan_2, ""),
#include "flexlab/ops.def"
    ROW(bias, plan_bias, ""),
    ROW(bias_relu, plan_bias, ""),
    ROW(sum_rows, plan_sum_rows, ""),
    ROW(matmul, plan_matmul, ""),
    ROW(matmul_nt, plan_matmul_nt, ""),
    ROW(matmul_tn, plan_matmul_tn, ""),
    ROW(matmul_fused, plan_matmul_fused, ""),
    ROW(matmul_nt_fused, plan_matmul_nt_fused, ""),
    ROW(conv2d, plan_conv2d, ""),
    ROW(conv2d_fused, plan_conv2d_fused, ""),
    ROW(conv2d_input_grad, plan_conv2d_input_grad, ""),
    ROW(conv2d_weight_grad, plan_conv2d_weight_grad, ""),
    ROW(maxpool2d, plan_maxpool2d, ""),
    ROW(maxpool2d_grad, plan_maxpool2d_grad, ""),
    ROW(conv2d_with, plan_conv2d_with, ""),
    ROW(conv2d_input_grad_with, plan_conv2d_input_grad_with, ""),
    ROW(conv2d_weight_grad_with, plan_conv2d_weight_grad_with, ""),
    ROW(conv_transpose2d, plan_conv_transpose2d, ""),
    ROW(maxpool2d_with, plan_maxpool2d_with, ""),
    ROW(maxpool2d_grad_with, plan_maxpool2d_grad_with, ""),
    ROW(avgpool_global, plan_avgpool_global, ""),
    ROW(avgpool_global_grad, plan_avgpool_global_grad, ""),
    ROW(shortcut_a, plan_shortcut_a, ""),
    ROW(shortcut_a_grad, plan_shortcut_a_grad, ""),
    ROW(moments, plan_moments, "channel_sums channel_moments"),
    ROW(running_statistics, plan_running, ""),
    ROW(batchnorm, plan_batchnorm, "channel_affine affine_coefficients"),
    ROW(batchnorm_grad, plan_batchnorm_grad, "channel_grad_sums channel_affine_grad affine_grad_coefficients"),
    ROW(cross_entropy, plan_cross_entropy, "softmax_cross_entropy"),
    ROW(cross_entropy_with, plan_loss_of_labels, ""),
    ROW(cross_entropy_targets, plan_loss_of_targets, ""),
    ROW(squared_error, plan_loss_of_targets, ""),
    ROW(huber, plan_loss_of_targets, ""),
    ROW(wasserstein, plan_loss_of_critic, ""),
    ROW(clip_weight, plan_clip_weight, ""),
    ROW(matmul_batched, plan_batched_nn, ""),
    ROW(matmul_batched_nt, plan_batched_nt, ""),
    ROW(matmul_batched_tn, plan_batched_tn, ""),
    ROW(layernorm, plan_row_norm, ""),
    ROW(layernorm_grad, plan_row_norm_grad, "layernorm_gamma_grad"),
    ROW(rmsnorm, plan_row_norm, ""),
    ROW(rmsnorm_grad, plan_row_norm_grad, "rmsnorm_gamma_grad"),
    ROW(softmax, plan_softmax_1, ""),
    ROW(softmax_grad, plan_softmax_2, ""),
    ROW(log_softmax, plan_softmax_1, ""),
    ROW(log_softmax_grad, plan_softmax_2, ""),
    ROW(embedding, plan_embedding, "check_indices"),
    ROW(embedding_grad, plan_embedding_grad, ""),
    ROW(permute, plan_permute, ""),
    ROW(slice, plan_slice, ""),
    ROW(slice_grad, plan_slice_grad, ""),
    ROW(concat, plan_concat, ""),
    ROW(lstm_cell, plan_lstm_cell, ""),
    ROW(lstm_hidden, plan_lstm_cell, ""),
    ROW(lstm_cell_grad, plan_lstm_cell_grad, ""),
    ROW(lstm_gates_grad, plan_lstm_gates_grad, ""),
    ROW(gru_hidden, plan_gru_hidden, ""),
    ROW(gru_input_grad, plan_gru_grad, ""),
    ROW(gru_gates_grad, plan_gru_grad, ""),
    ROW(gru_state_grad, plan_gru_state_grad, ""),
    ROW(avgpool2d, plan_avgpool2d, ""),
    ROW(avgpool2d_grad, plan_avgpool2d_grad, ""),
    ROW(avgpool_adaptive, plan_adaptive, ""),
    ROW(avgpool_adaptive_grad, plan_adaptive_grad, ""),
    ROW(lrn, plan_lrn, ""),
    ROW(lrn_grad, plan_lrn_grad, ""),
    ROW(groupnorm, plan_group_norm, ""),
    ROW(groupnorm_grad, plan_group_norm_grad, "groupnorm_gamma_grad"),
    ROW(dropout, plan_dropout, ""),
    ROW(reduce_sum, plan_reduce, ""),
    ROW(reduce_mean, plan_reduce, ""),
    ROW(reduce_max, plan_reduce, ""),
    ROW(reduce_min, plan_reduce, ""),
    ROW(reduce_l1, plan_reduce, ""),
    ROW(reduce_l2, plan_reduce, ""),
    ROW(reduce_sum_grad, plan_reduce_grad, ""),
    ROW(reduce_mean_grad, plan_reduce_grad, ""),
    ROW(reduce_max_grad, plan_reduce_grad, ""),
    ROW(reduce_min_grad, plan_reduce_grad, ""),
    ROW(reduce_l1_grad, plan_reduce_grad, ""),
    ROW(reduce_l2_grad, plan_reduce_grad, ""),
    ROW(argmax, plan_argmax, ""),
    ROW(broadcast_add, plan_broadcast, ""),
    ROW(broadcast_mul, plan_broadcast, ""),
    ROW(broadcast_mul_grad, plan_broadcast_grad, ""),
    ROW(where, plan_broadcast, ""),
    ROW(where_grad, plan_where_grad, ""),
    ROW(sgd_momentum, plan_sgd_momentum, ""),
    ROW(sgd_update, plan_sgd_update, ""),
    ROW(combine, plan_combine, ""),
    ROW(root_mean, plan_root_mean, ""),
    ROW(add_ratio, plan_add_ratio, ""),
    ROW(sum_squares, plan_sum_squares, ""),
    ROW(optimiser_step, plan_optimiser_step, ""),
    ROW(trust_rate, plan_trust_rate, ""),
};
enum { ROWS = sizeof rows / sizeof rows[0] };

/* --- running them ------------------------------------------------------------------------------------------------- */

/* Operations that the library never gives a device: their results are numbers of the host. */
static bool of_the_host(const char *op) {
    return !strcmp(op, "max_abs");
}

static bool covered(const char *op) {
    bool found = of_the_host(op);
    for (int r = 0; r < ROWS && !found; r++) {
        char list[200], name[64];
        snprintf(list, sizeof list, " %s %s ", rows[r].name, rows[r].covers);
        snprintf(name, sizeof name, " %s ", op);
        found = strstr(list, name) != NULL;
    }
    return found;
}

struct tally {
    int runs, differences;
    bool lacks;
    char first[1000];
};

/* Inputs get new elements, the same at both places. */
static void renew(struct call *c, int style) {
    static double values[MOST];
    for (int i = 0; i < c->count; i++) {
        struct operand *o = &c->operand[i];
        if (i == 0 || o->shared || tensor_format_bytes(tensor_format_of(o->t[0])) == 0 || chance(50) ||
            tensor_format_of(o->t[0]) != c->format->id)
            continue;
        const int64_t n = tensor_count(o->t[0]);
        draw_values(c->format, values, n, style);
        CHECK(!tensor_load_f64(o->t[HOST], values, n) && !tensor_load_f64(o->t[DEVICE], values, n), "%s",
              tensor_error());
    }
}

/* One call at both places. False: it ends the series. */
static bool run_once(const struct row *row, struct call *c, int write, struct tally *tally) {
    tensor *t[2][OPERANDS] = {{NULL}};
    for (int where = 0; where < 2; where++)
        for (int i = 0; i < c->count; i++)
            t[where][i] = c->operand[i].t[where];
    char line[600] = "", message[300] = "";
    const tensor_status want = row->run(c, t[HOST]);
    if (want)
        snprintf(message, sizeof message, "%s", tensor_error());
    tensor_status got = row->run(c, t[DEVICE]);
    if (got == TENSOR_E_UNSUPPORTED && strstr(tensor_error(), "has no kernel")) {
        tally->lacks = true;
        return false;
    }
    if (!got)
        got = tensor_device_wait(gpu);
    calls++;
    tally->runs++;
    bool same = got == want;
    if (!same)
        snprintf(line, sizeof line, "status %d '%s', ref %d '%s'", (int)got, tensor_error(), (int)want, message);
    for (int i = 0; i < c->count && same; i++)
        same = same_tensor(t[HOST][i], t[DEVICE][i], line, sizeof line);
    if (!same && !tally->differences++) {
        char shape[TENSOR_TEXT], other[TENSOR_TEXT];
        snprintf(tally->first, sizeof tally->first, "%s.%s write %d of %s, first operand %s, last %s: %s",
                 c->format->name, row->name, write, c->settings, t[0][0] ? fl_shape_text(t[0][0], shape) : "none",
                 t[0][c->count - 1] ? fl_shape_text(t[0][c->count - 1], other) : "none", line);
    }
    return same && !want;
}

/* A series of writes on fresh tensors. */
static void run_series(const struct row *row, const struct fl_format *f, uint64_t seed, struct tally *tally) {
    static const char *const predictors[] = {"paper", "ngraph", "current", "fixed", "repeat", "amax"};
    const bool shared = f->arithmetic == FL_ARITHMETIC_SHARED;
    draws = seed;
    struct call c = {.format = f};
    const int styles[] = {0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8};
    const int style = styles[draw() % (sizeof styles / sizeof styles[0])];
    plain = (struct settings){.style = style, .exponent = INT32_MIN};
    if (shared && chance(25))
        plain.exponent = chance(20) ? (chance(50) ? f->e_max : f->e_min) : between(4, 16);
    output = plain;
    output.style = chance(60) ? style : 0;
    output.wide = chance(35);
    output.predictor = shared && chance(75) ? predictors[draw() % 6] : NULL;
    output.seed = draw();
    if (chance(40))
        output.rounding = f->truncates && output.seed % 2 ? TENSOR_ROUND_TRUNCATE
                          : f->draws                      ? TENSOR_ROUND_STOCHASTIC
                                                          : TENSOR_ROUND_NEAREST;
    snprintf(c.settings, sizeof c.settings, "seed 0x%" PRIx64 " (style %d, %s, rounding %d%s)", seed, style,
             output.predictor ? output.predictor : "the format's predictor", (int)output.rounding,
             output.wide ? ", wide" : "");
    row->plan(&c);
    bool goes_on = true;
    for (int write = 1; write <= WRITES && goes_on; write++) {
        if (write > 1)
            renew(&c, chance(70) ? style : between(0, STYLES - 1));
        goes_on = run_once(row, &c, write, tally);
    }
    (void)tensor_device_wait(gpu); /* a failure that was not asked for is of this series */
    free_operands(&c);
}

static int missing;

static void run_row(const struct row *row, const struct fl_format *f, int series) {
    struct tally tally = {0};
    for (int i = 0; i < series && !tally.lacks; i++) {
        uint64_t seed = first_seed * 1000003 + (uint64_t)i;
        for (const char *p = row->name; *p; p++)
            seed = seed * 31 + (unsigned char)*p;
        run_series(row, f, seed * 8 + f->id, &tally);
    }
    CHECK(tally.lacks || tally.runs > 0, "%s.%s never ran", f->name, row->name);
    CHECK(!tally.differences, "%d of %d calls differ; the first: %s", tally.differences, tally.runs, tally.first);
    if (tally.lacks) {
        missing++;
        printf("lacks %s.%s\n", f->name, row->name);
    }
}

/* Real functions are many, and one kernel. */
static bool is_real(const char *name) {
#define FL_REAL1(id, CONSTANT, row, expr) || !strcmp(name, #row)
#define FL_REAL1_SCALAR FL_REAL1
#define FL_REAL1_SCALARS FL_REAL1
#define FL_REAL2 FL_REAL1
#define FL_REAL2_SCALAR FL_REAL1
#define FL_REAL2_SCALARS FL_REAL1
    return false
#include "flexlab/ops.def"
        ;
}

/* Copies, loads, conversions and settings of tensors on the device. */
static void transfers(const struct fl_format *f) {
    enum { N = 301 };
    const bool shared = f->arithmetic == FL_ARITHMETIC_SHARED;
    static double values[N], got[N], want[N];
    static float floats[N];
    char line[600] = "";
    for (int i = 0; i < 60; i++) {
        draws = first_seed * 7919 + (uint64_t)i * 16 + f->id;
        struct call c = {.format = f};
        const int style = shared ? between(0, STYLES - 1) : i % STYLES;
        const struct settings s = {.style = style, .exponent = INT32_MIN, .wide = chance(50)};
        add(&c, &s, 1, &(int64_t){N});
        tensor *h = c.operand[0].t[HOST], *d = c.operand[0].t[DEVICE];
        CHECK(same_tensor(h, d, line, sizeof line), "%s, loaded, style %d: %s", f->name, style, line);
        draw_values(f, values, N, style);
        for (int j = 0; j < N; j++)
            floats[j] = (float)values[j];
        CHECK(!tensor_load_f32(h, floats, N) && !tensor_load_f32(d, floats, N), "%s", tensor_error());
        CHECK(same_tensor(h, d, line, sizeof line), "%s, loaded as float, style %d: %s", f->name, style, line);
        CHECK(!tensor_store_f64(h, want, N) && !tensor_store_f64(d, got, N), "%s", tensor_error());
        for (int j = 0; j < N; j++)
            CHECK(same_double(want[j], got[j]), "%s: stored %d: %a, ref %a", f->name, j, got[j], want[j]);
        for (int kind = 0; kind < 4; kind++) { /* numbers made there, and integers of the host */
            int64_t whole[N];
            for (int j = 0; j < N; j++)
                whole[j] = (int64_t)draw() >> (kind + i % 60);
            for (int where = 0; where < 2; where++) {
                tensor *t = where == HOST ? h : d;
                CHECK(!(kind == 0   ? tensor_fill(t, 0.1 * i)
                        : kind == 1 ? tensor_fill_uniform(t, -1, 3, first_seed, (uint64_t)i)
                        : kind == 2 ? tensor_fill_normal(t, 0.25, 2, first_seed, (uint64_t)i)
                                    : tensor_load_array(t, whole, TENSOR_TYPE_I64, N)),
                      "%s", tensor_error());
            }
            CHECK(same_tensor(h, d, line, sizeof line), "%s, filled (%d): %s", f->name, kind, line);
        }
        for (int j = 0; tensor_format_at(j); j++) {
            tensor *to[2] = {tensor_new(tensor_format_at(j), TENSOR_SHAPE(N)),
                             tensor_new_in(gpu, tensor_format_at(j), TENSOR_SHAPE(N))};
            const tensor_status a = tensor_convert(to[HOST], h);
            tensor_status b = tensor_convert(to[DEVICE], d);
            b = b ? b : tensor_device_wait(gpu);
            if (b == TENSOR_E_UNSUPPORTED) {
                printf("lacks convert from %s to %s\n", f->name, tensor_format_name(tensor_format_at(j)));
                i = 1 << 20;
            } else
                CHECK(a == b && (a || same_tensor(to[HOST], to[DEVICE], line, sizeof line)),
                      "%s, style %d, converted to %s: status %d, ref %d: %s", f->name, style,
                      tensor_format_name(tensor_format_at(j)), (int)b, (int)a, line);
            tensor_free(to[HOST]);
            tensor_free(to[DEVICE]);
        }
        free_operands(&c);
    }
}

/* --- what shows only when a call runs ----------------------------------------------------------------------------- */

/* The host's error, on the device from the next wait, with the same text; once; nothing is written, and what follows in
 * the queue is left out. */
static void fails_late(const char *what, struct call *c, tensor_status (*run)(const struct call *, tensor *const *)) {
    tensor *t[2][OPERANDS] = {{NULL}};
    char message[400], line[600] = "";
    for (int where = 0; where < 2; where++)
        for (int i = 0; i < c->count; i++)
            t[where][i] = c->operand[i].t[where];
    const tensor_status want = run(c, t[HOST]);
    snprintf(message, sizeof message, "%s", tensor_error());
    tensor_status got = run(c, t[DEVICE]);
    if (got == TENSOR_E_UNSUPPORTED && strstr(tensor_error(), "has no kernel")) {
        free_operands(c);
        return;
    }
    got = got ? got : tensor_device_wait(gpu);
    CHECK(want && got == want && !strcmp(message, tensor_error()), "%s %s: status %d '%s', ref %d '%s'",
          c->format->name, what, (int)got, tensor_error(), (int)want, message);
    CHECK(!tensor_device_wait(gpu), "%s %s: told twice: %s", c->format->name, what, tensor_error());
    for (int i = 0; i < c->count; i++)
        CHECK(same_tensor(t[HOST][i], t[DEVICE][i], line, sizeof line), "%s %s: operand %d: %s", c->format->name, what,
              i, line);
    free_operands(c);
}

RUN(load) {
    double values[9] = {1, 2, 3, 4, 5, NAN, 7, -INFINITY, 9};
    (void)c;
    return tensor_load_f64(t[0], values, 9);
}

static void late_failures(const struct fl_format *f) {
    struct call c = {.format = f, .alpha = 1, .epsilon = 1e-5};
    plain = output = (struct settings){.exponent = INT32_MIN};
    draws = first_seed + f->id;
    if (f->arithmetic == FL_ARITHMETIC_SHARED) {
        OUT(&c, 9);
        fails_late("load of NaN", &c, run_load);
    }
    for (int which = 0; which < 2; which++) {
        add_numbers(&c, FMT_F64, 1, NULL);
        OUT(&c, 3, 5);
        add_numbers(&c, FMT_I32, 3, NULL);
        add_numbers(&c, FMT_I32, 1, NULL);
        IN(&c, 3, 5);
        add_numbers(&c, FMT_I32, 3, (double[]){4, which ? 1 : -1, which ? 2 : 5});
        if (which)
            add_numbers(&c, FMT_F64, 1, (double[]){NAN});
        else
            add_none(&c);
        fails_late(which ? "gradient scale" : "label", &c, run_cross_entropy);
    }
    for (int which = 0; which < 2; which++) { /* the first is ignored */
        add_numbers(&c, FMT_F64, 1, NULL);
        OUT(&c, 3, 5);
        add_numbers(&c, FMT_I32, 3, NULL);
        add_numbers(&c, FMT_I32, 1, NULL);
        IN(&c, 3, 5);
        add_numbers(&c, FMT_I32, 3, (double[]){-7, which ? 2 : 5, 9});
        for (int i = 0; i < 3; i++)
            add_none(&c);
        fails_late("label of a loss", &c, which ? run_wasserstein : run_cross_entropy_with);
    }
    for (int which = 0; which < 2; which++) {
        OUT(&c, which ? 4 : 3, 5);
        IN(&c, which ? 3 : 4, 5);
        add_numbers(&c, FMT_I32, 3, (double[]){1, which ? 4 : -1, 7});
        fails_late("index", &c, which ? run_embedding_grad : run_embedding);
    }
    for (int wide = 0; wide < 2; wide++) {
        output.wide = wide;
        OUT(&c, 33);
        IN(&c, 33);
        add_numbers(&c, FMT_F32, 1, (double[]){wide ? -INFINITY : NAN});
        fails_late("rate", &c, run_sgd_update);
    }
    output.wide = true;
    for (int which = 0; f->arithmetic == FL_ARITHMETIC_SHARED && which < 3; which++) { /* data in float formats */
        OUT(&c, 21);
        if (which != 1)
            add_same(&c, 0);
        if (which == 2)
            IN(&c, 21);
        plain.wide = which == 2;
        IN(&c, 21);
        plain.wide = false;
        if (!which)
            add_none(&c);
        add_numbers(&c, FMT_F64, FL_FACTORS, (double[]){1, which ? -1e300 : NAN, 1, 1});
        fails_late("factor", &c, which == 0 ? run_combine : which == 1 ? run_root_mean : run_add_ratio);
    }
    output.wide = false;
    for (int which = 0; f->arithmetic == FL_ARITHMETIC_SHARED && which < 2; which++) { /* data in float formats */
        OUT(&c, 4, 3);
        IN(&c, 4, 3);
        add_none(&c);
        IN(&c, 3);
        IN(&c, 3);
        add_numbers(&c, FMT_F64, 3, (double[]){1, which ? 2 : INFINITY, 3});
        add_numbers(&c, FMT_F64, 3, (double[]){1, which ? -7 : 2, 3});
        fails_late(which ? "variance below zero" : "mean", &c, run_batchnorm);
    }
    /* The queue goes on after it. */
    OUT(&c, 5);
    IN(&c, 5);
    IN(&c, 5);
    struct tally tally = {0};
    CHECK(run_once(&rows[0], &c, 1, &tally), "after failures: %s", tally.first);
    free_operands(&c);
}

/* The stand-in counts what CUDA would not forgive: accesses out of bounds, races, barriers that not all threads meet.
 */
static void ask_stand_in(void) {
    const char *path = getenv("FLEXLAB_CUDA_LIBRARY");
    void *library = path ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : NULL;
    long (*errors)(void) = NULL;
    void *symbol = library ? dlsym(library, "stand_in_errors") : NULL;
    memcpy(&errors, &symbol, sizeof errors);
    if (errors)
        CHECK(errors() == 0, "the stand-in found %ld errors", errors());
}

int main(int argc, char **argv) {
    first_seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
    const int series = argc > 2 ? atoi(argv[2]) : 24;
    only_operation = argc > 3 ? argv[3] : NULL;
    only_format = argc > 4 ? argv[4] : NULL;
    gpu = tensor_device_find("cuda");
    if (!gpu) {
        const char *required = getenv("FLEXLAB_REQUIRE_GPU");
        if (required && *required == '1') {
            CHECK(gpu, "%s", tensor_error());
            return check_summary();
        }
        return check_skip(tensor_error());
    }
    char text[300] = "";
    CHECK(!tensor_device_describe(gpu, text, sizeof text), "%s", tensor_error());
    printf("%s: %s, seed %" PRIu64 "\n", tensor_device_name(gpu), text, first_seed);
    CHECK(!tensor_set_backend("ref"), "%s", tensor_error());
    for (int i = 0; tensor_op_at(i); i++)
        CHECK(covered(tensor_op_at(i)), "operation %s has no row in this test", tensor_op_at(i));
    for (int f = 0; tensor_format_at(f); f++) {
        const struct fl_format *format = fl_format_at(f);
        if (only_format && strcmp(format->name, only_format))
            continue;
        for (int r = 0; r < ROWS; r++)
            if (!only_operation || !strcmp(rows[r].name, only_operation))
                run_row(&rows[r], format, is_real(rows[r].name) ? (series + 3) / 4 : series);
        if (!only_operation || !strcmp("transfers", only_operation))
            transfers(format);
        if (!only_operation || !strcmp("failures", only_operation))
            late_failures(format);
    }
    for (int i = 0; tensor_op_at(i); i++)
        for (int f = 0; tensor_format_at(f); f++) {
            struct fl_choice choice;
            const struct fl_format *format = fl_format_at(f);
            const char *op = tensor_op_at(i);
            if (!of_the_host(op) && !only_operation && !gpu->find(gpu, format, fl_op_named(op), &choice)) {
                missing++;
                printf("no kernel: %s.%s\n", format->name, op);
            }
        }
    CHECK(!missing, "%d operations of formats have no kernel on the device", missing);
    ask_stand_in();
    printf("%lld calls at both places\n", calls);
    return check_summary();
}
