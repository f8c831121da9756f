/* Walks the table format x op x backend: every kernel against the reference, byte for byte, results and statistics.
 *
 * It knows no format by name. Inputs per format: ordinary values, all extreme, tiny, zeros mixed in, one with NaN and
 * Inf for float formats; outputs carry canaries; each kernel runs with 1, 2, 3 and 7 threads and once in place where
 * that is allowed. A failure line names <format>.<op>.<backend>, the case and the seed. FLEXLAB_TEST_FILTER=substring
 * selects. */
#include "check.h"
#include "core/format.h"
#include "core/memory.h"
#include "flexlab/tensor.h"
#include <math.h>
#include <string.h>

enum { CANARY = 64 };

enum style { ORDINARY, EXTREME, TINY, SPARSE, SPECIAL, STYLES };
static const char *const style_names[] = {"ordinary", "extreme", "tiny", "sparse", "special"};

struct block {
    struct fl_view view;
    unsigned char *memory;
    size_t bytes;
};

static struct block block_new(const struct fl_format *f, int64_t count, int e) {
    struct block b = {.bytes = (size_t)count * (size_t)f->bytes};
    b.memory = fl_alloc(b.bytes + CANARY);
    memset(b.memory, 0xa5, b.bytes + CANARY);
    b.view = (struct fl_view){b.memory, NULL, e, count};
    return b;
}

static void block_free(struct block *b) {
    fl_free(b->memory);
    fl_free(b->view.wide);
}

static bool canary_alive(const struct block *b) {
    for (int i = 0; i < CANARY; i++)
        if (b->memory[b->bytes + (size_t)i] != 0xa5)
            return false;
    return true;
}

static double uniform(uint64_t *seed) {
    return (double)(check_random(seed) >> 11) * 0x1p-53;
}

static void fill(const struct fl_format *f, struct block *b, enum style style, uint64_t *seed) {
    const bool shared = f->arithmetic == FL_ARITHMETIC_SHARED;
    struct fl_rounding nearest = {TENSOR_ROUND_NEAREST, 0, 0};
    struct fl_stats ignored = {0};
    for (int64_t i = 0; i < b->view.count; i++) {
        double v = (uniform(seed) + uniform(seed) + uniform(seed) + uniform(seed) - 2) * 0.7; /* near Gaussian */
        uint64_t pick = check_random(seed);
        switch (style) {
        case EXTREME:
            v = pick & 1 ? 1 : -1;
            break;
        case TINY:
            v = shared ? ldexp(v, -12) : ldexp(v, f->id == FMT_FP16 ? -20 : -130); /* subnormals */
            break;
        case SPARSE:
            v = pick % 3 ? 0 : v;
            break;
        case SPECIAL:
            v = shared ? v : pick % 17 == 0 ? NAN : pick % 19 == 0 ? INFINITY : pick % 23 == 0 ? -INFINITY : v;
            break;
        default:
            break;
        }
        if (shared)
            v = ldexp(fmin(fmax(v, -1), 1) * f->top, -b->view.e);
        else if (style == EXTREME)
            v *= f->id == FMT_FP16 ? 65504 : 0x1.fep127;
        f->encode(&b->view, i, 1, &v, false, &nearest, &ignored);
    }
}

static void add_wide(const struct fl_format *f, struct block *b, uint64_t *seed) {
    if (!f->wide_bytes)
        return;
    b->view.wide = fl_alloc((size_t)b->view.count * (size_t)f->wide_bytes);
    double *values = fl_alloc((size_t)b->view.count * sizeof *values);
    f->decode(&b->view, 0, b->view.count, values);
    for (int64_t i = 0; i < b->view.count; i++) {
        if (f->arithmetic == FL_ARITHMETIC_SHARED)
            ((int32_t *)b->view.wide)[i] =
                (int32_t)(ldexp(values[i], b->view.e) * 65536) + (int32_t)(check_random(seed) % 60000) - 30000;
        else
            ((float *)b->view.wide)[i] = (float)(values[i] * (1 + (uniform(seed) - 0.5) * 0x1p-12));
    }
    fl_free(values);
}

/* One call of an operation: geometry and the sizes of its operands. */
struct shape {
    struct fl_geometry geo;
    int64_t out, in[3];
    bool in_place; /* allowed with in[0] */
    bool wide;
};

/* The i-th shape for an operation; false past the last. */
static bool shape_of(enum fl_op op, int i, struct shape *s) {
    *s = (struct shape){0};
    struct fl_geometry *g = &s->geo;
    static const int64_t counts[] = {1, 7, 64, 515, 4097, 70001};
    static const int64_t rows[][2] = {{1, 1}, {3, 5}, {600, 16}, {1030, 17}, {40, 64}, {513, 3}, {2048, 32}};
    static const int64_t mats[][3] = {{1, 1, 1},     {3, 5, 7},       {17, 33, 515},
                                      {65, 16, 144}, {16, 144, 1100}, {130, 70, 64}};
    /* batch h w c filters r stride padding */
    static const int images[][8] = {{1, 5, 5, 1, 1, 3, 1, 1},   {2, 8, 8, 3, 5, 3, 1, 1},   {3, 9, 7, 16, 17, 3, 2, 1},
                                    {2, 6, 6, 17, 16, 1, 1, 0}, {2, 11, 11, 4, 8, 5, 3, 2}, {5, 8, 8, 16, 32, 3, 2, 1}};
    static const int pools[][6] = {
        /* batch h w c window stride */ {1, 4, 4, 1, 2, 2}, {2, 9, 7, 16, 3, 2}, {3, 8, 8, 17, 2, 1}};
    switch (op) {
#define FL_MAP1(id, CONSTANT, name, expr) case FL_OP_##CONSTANT:
#define FL_MAP1_SCALAR(id, CONSTANT, name, expr) case FL_OP_##CONSTANT:
#include "flexlab/ops.def"
        if (i >= 6)
            return false;
        s->out = s->in[0] = counts[i];
        s->in_place = true;
        return true;
#define FL_MAP2(id, CONSTANT, name, expr) case FL_OP_##CONSTANT:
#define FL_MAP2_SCALAR(id, CONSTANT, name, expr) case FL_OP_##CONSTANT:
#include "flexlab/ops.def"
        if (i >= 6)
            return false;
        s->out = s->in[0] = s->in[1] = counts[i];
        s->in_place = true;
        return true;
#define FL_MAP3(id, CONSTANT, name, expr) case FL_OP_##CONSTANT:
#include "flexlab/ops.def"
        if (i >= 6)
            return false;
        s->out = s->in[0] = s->in[1] = s->in[2] = counts[i];
        s->in_place = true;
        return true;
    case FL_OP_BIAS:
    case FL_OP_BIAS_RELU:
    case FL_OP_SUM_ROWS:
    case FL_OP_CHANNEL_SUMS:
    case FL_OP_CHANNEL_GRAD_SUMS:
    case FL_OP_CHANNEL_AFFINE:
    case FL_OP_CHANNEL_AFFINE_GRAD:
        if (i >= 7)
            return false;
        g->m = rows[i][0];
        g->n = rows[i][1];
        s->in[0] = g->m * g->n;
        s->out = op == FL_OP_SUM_ROWS ? g->n : op == FL_OP_CHANNEL_SUMS || op == FL_OP_CHANNEL_GRAD_SUMS ? 0 : s->in[0];
        if (op == FL_OP_BIAS || op == FL_OP_BIAS_RELU) {
            s->in[1] = g->n;
            s->in_place = true;
        }
        if (op == FL_OP_CHANNEL_AFFINE)
            s->in[1] = i % 4 < 2 ? s->in[0] : 0; /* with and without something to add */
        if (op == FL_OP_CHANNEL_GRAD_SUMS || op == FL_OP_CHANNEL_AFFINE_GRAD) {
            s->in[1] = s->in[0];
            s->in[2] = i % 2 ? s->in[0] : 0; /* with and without a mask */
        }
        return true;
    case FL_OP_MAX_ABS:
        if (i >= 6)
            return false;
        s->in[0] = counts[i];
        return true;
    case FL_OP_MATMUL:
    case FL_OP_MATMUL_NT:
    case FL_OP_MATMUL_TN:
        if (i >= 6)
            return false;
        g->m = mats[i][0];
        g->n = mats[i][1];
        g->k = mats[i][2];
        s->out = g->m * g->n;
        s->in[0] = g->m * g->k;
        s->in[1] = g->k * g->n;
        return true;
    case FL_OP_CONV2D:
    case FL_OP_CONV2D_INPUT_GRAD:
    case FL_OP_CONV2D_WEIGHT_GRAD:
    case FL_OP_SHORTCUT_A:
    case FL_OP_SHORTCUT_A_GRAD: {
        if (i >= 6)
            return false;
        const int *v = images[i];
        const bool shortcut = op == FL_OP_SHORTCUT_A || op == FL_OP_SHORTCUT_A_GRAD;
        *g = (struct fl_geometry){.batch = v[0],
                                  .h = v[1],
                                  .w = v[2],
                                  .c = v[3],
                                  .filters = v[4],
                                  .r = v[5],
                                  .s = v[5],
                                  .stride = v[6],
                                  .padding = v[7]};
        if (shortcut) {
            g->filters = g->c + i;
            g->p = (g->h + g->stride - 1) / g->stride;
            g->q = (g->w + g->stride - 1) / g->stride;
            g->r = g->s = g->padding = 0;
        } else {
            g->p = (g->h + 2 * g->padding - g->r) / g->stride + 1;
            g->q = (g->w + 2 * g->padding - g->s) / g->stride + 1;
        }
        int64_t x = g->batch * g->h * g->w * g->c, y = g->batch * g->p * g->q * g->filters,
                w = g->filters * g->r * g->s * g->c;
        s->out = op == FL_OP_CONV2D || op == FL_OP_SHORTCUT_A ? y : op == FL_OP_CONV2D_WEIGHT_GRAD ? w : x;
        s->in[0] = op == FL_OP_CONV2D || op == FL_OP_SHORTCUT_A ? x : y;
        s->in[1] = shortcut ? 0 : op == FL_OP_CONV2D_WEIGHT_GRAD ? x : w;
        return true;
    }
    case FL_OP_MAXPOOL2D:
    case FL_OP_MAXPOOL2D_GRAD:
    case FL_OP_AVGPOOL_GLOBAL:
    case FL_OP_AVGPOOL_GLOBAL_GRAD: {
        if (i >= 3)
            return false;
        const int *v = pools[i];
        const bool average = op == FL_OP_AVGPOOL_GLOBAL || op == FL_OP_AVGPOOL_GLOBAL_GRAD;
        *g = (struct fl_geometry){.batch = v[0], .h = v[1], .w = v[2], .c = v[3], .filters = v[3], .p = 1, .q = 1};
        if (!average) {
            g->r = g->s = v[4];
            g->stride = v[5];
            g->padding = i == 1;
            g->p = (g->h + 2 * g->padding - g->r) / g->stride + 1;
            g->q = (g->w + 2 * g->padding - g->s) / g->stride + 1;
        }
        int64_t x = g->batch * g->h * g->w * g->c, y = g->batch * g->p * g->q * g->c;
        const bool gradient = op == FL_OP_MAXPOOL2D_GRAD || op == FL_OP_AVGPOOL_GLOBAL_GRAD;
        s->out = gradient ? x : y;
        s->in[0] = gradient ? y : x;
        s->in[1] = op == FL_OP_MAXPOOL2D_GRAD ? x : 0;
        return true;
    }
    case FL_OP_SGD_MOMENTUM:
    case FL_OP_SGD_UPDATE:
        if (i >= 6)
            return false;
        s->out = s->in[0] = s->in[1] = counts[i];
        s->in[2] = op == FL_OP_SGD_MOMENTUM ? counts[i] : 0;
        s->in_place = true;
        s->wide = i % 2;
        return true;
    default:
        return false;
    }
}

static bool same_double(double a, double b) {
    return a == b || (a != a && b != b);
}

static bool same_stats(const struct fl_stats *a, const struct fl_stats *b) {
    return same_double(a->maximum, b->maximum) && a->gamma == b->gamma && a->saturated == b->saturated &&
           a->flushed == b->flushed && a->nonfinite == b->nonfinite;
}

/* Any NaN equals any other: the sign and payload of a produced NaN belong to the machine, not to the contract. */
static bool same_elements(const struct fl_format *f, const struct block *a, const struct block *b, int64_t *at) {
    if (!memcmp(a->memory, b->memory, a->bytes))
        return true;
    for (int64_t i = 0; i < a->view.count; i++) {
        double x, y;
        if (!memcmp(a->memory + i * f->bytes, b->memory + i * f->bytes, (size_t)f->bytes))
            continue;
        f->decode(&a->view, i, 1, &x);
        f->decode(&b->view, i, 1, &y);
        if (x == x || y == y) {
            *at = i;
            return false;
        }
    }
    return true;
}

struct result {
    struct block out;
    struct fl_stats stats;
    int64_t *isum;
    double *fsum;
    void *wide;
};

struct call {
    const struct fl_format *format;
    enum fl_op op;
    struct shape shape;
    struct block in[3];
    int e_out;
    struct fl_args args;
};

static tensor_status run(const struct call *call, fl_kernel kernel, bool in_place, bool measure, struct result *r) {
    struct fl_args args = call->args;
    const int64_t n = call->shape.geo.n ? call->shape.geo.n : 1;
    memset(r, 0, sizeof *r);
    r->isum = fl_alloc_zero((size_t)n * 16);
    r->fsum = fl_alloc_zero((size_t)n * 16);
    args.sums = (struct fl_channel_sums){{r->isum, r->isum + n}, {r->fsum, r->fsum + n}};
    args.stats = &r->stats;
    if (call->shape.out) {
        r->out = block_new(call->format, call->shape.out, call->e_out);
        if (in_place) {
            memcpy(r->out.memory, call->in[0].memory, r->out.bytes);
            args.in[0].data = r->out.memory;
        }
        if (call->in[0].view.wide && call->op == FL_OP_SGD_UPDATE) {
            size_t bytes = (size_t)call->shape.out * (size_t)call->format->wide_bytes;
            r->wide = fl_alloc(bytes);
            memcpy(r->wide, call->in[0].view.wide, bytes);
            args.in[0].wide = r->wide;
        }
        args.out = r->out.view;
        args.out.wide = r->wide;
        if (measure)
            args.out.data = NULL;
    }
    return kernel(&args);
}

static void result_free(struct result *r) {
    block_free(&r->out);
    fl_free(r->isum);
    fl_free(r->fsum);
    fl_free(r->wide);
}

static void compare(const struct call *call, const char *label, const struct result *want, const struct result *got,
                    bool measured) {
    const struct fl_format *f = call->format;
    int64_t at = 0;
    const int64_t n = call->shape.geo.n ? call->shape.geo.n : 1;
    if (measured) {
        CHECK(same_double(want->stats.maximum, got->stats.maximum), "%s measured maximum %a want %a", label,
              got->stats.maximum, want->stats.maximum);
        return;
    }
    CHECK(
        same_stats(&want->stats, &got->stats),
        "%s stats got max %a gamma %d sat %lld flushed %lld nonfinite %lld want max %a gamma %d sat %lld flushed %lld "
        "nonfinite %lld",
        label, got->stats.maximum, got->stats.gamma, (long long)got->stats.saturated, (long long)got->stats.flushed,
        (long long)got->stats.nonfinite, want->stats.maximum, want->stats.gamma, (long long)want->stats.saturated,
        (long long)want->stats.flushed, (long long)want->stats.nonfinite);
    CHECK(!memcmp(want->isum, got->isum, (size_t)n * 16), "%s integer sums differ", label);
    for (int64_t i = 0; i < 2 * n; i++)
        CHECK(same_double(want->fsum[i], got->fsum[i]), "%s sum %lld got %a want %a", label, (long long)i, got->fsum[i],
              want->fsum[i]);
    if (!call->shape.out)
        return;
    CHECK(canary_alive(&got->out), "%s wrote past the end", label);
    double x = 0, y = 0;
    bool same = same_elements(f, &want->out, &got->out, &at);
    if (!same) {
        f->decode(&got->out.view, at, 1, &x);
        f->decode(&want->out.view, at, 1, &y);
    }
    CHECK(same, "%s i=%lld got %a want %a", label, (long long)at, x, y);
    if (want->wide)
        CHECK(!memcmp(want->wide, got->wide, (size_t)call->shape.out * (size_t)f->wide_bytes), "%s wide copies differ",
              label);
}

static void make_coefficients(struct call *call, float *a, float *b, float *d, int32_t *ia, int32_t *id, int64_t *ib,
                              int32_t *shift, uint64_t *seed) {
    for (int64_t c = 0; c < call->shape.geo.n; c++) {
        a[c] = (float)(uniform(seed) * 2 - 0.5);
        b[c] = (float)(uniform(seed) - 0.5);
        d[c] = (float)(uniform(seed) * 0.2 - 0.1);
        shift[c] = 16 + (int32_t)(check_random(seed) % 31);
        ia[c] = (int32_t)(check_random(seed) >> 33) - (1 << 30);
        id[c] = (int32_t)(check_random(seed) >> 36) - (1 << 27);
        ib[c] = (int64_t)(check_random(seed) >> 4) - ((int64_t)1 << 59);
        if (shift[c] < 40)
            ib[c] >>= 40 - shift[c];
        if (c % 3 == 0) { /* multiplier about 1 */
            shift[c] = 30;
            ib[c] >>= 12;
        }
    }
    call->args.channels = (struct fl_channels){a, b, d, ia, id, ib, shift};
}

static void run_case(const struct fl_format *f, enum fl_op op, enum fl_backend backend, fl_kernel kernel, int index,
                     enum style style, tensor_rounding mode, uint64_t seed0) {
    struct call call = {.format = f, .op = op};
    uint64_t seed = seed0;
    if (!shape_of(op, index, &call.shape))
        return;
    const bool shared = f->arithmetic == FL_ARITHMETIC_SHARED;
    int exponents[3] = {0};
    for (int i = 0; i < 3 && shared; i++)
        exponents[i] = f->e_min + (f->e_max - f->e_min) / 3 + (int)(check_random(&seed) % (style == EXTREME ? 20 : 7));
    if (shared && op == FL_OP_SGD_UPDATE)
        exponents[1] = exponents[0] + 3;
    for (int i = 0; i < 3; i++) {
        if (!call.shape.in[i])
            continue;
        call.in[i] = block_new(f, call.shape.in[i], exponents[i]);
        fill(f, &call.in[i], style, &seed);
        if (call.shape.wide && ((op == FL_OP_SGD_UPDATE && i == 0) || (op == FL_OP_SGD_MOMENTUM && i == 2)))
            add_wide(f, &call.in[i], &seed);
        call.args.in[i] = call.in[i].view;
    }
    call.args.op = op;
    call.args.format = f;
    call.args.geo = call.shape.geo;
    call.args.alpha = (float)(uniform(&seed) * 1.5 - 0.5);
    call.args.beta = 1e-4f;
    call.args.relu = op == FL_OP_CHANNEL_AFFINE && index % 2;
    call.args.rounding = (struct fl_rounding){mode, 0x1234567 + seed0, (uint64_t)index};
    float a[128], b[128], d[128];
    int32_t ia[128], id[128], shift[128];
    int64_t ib[128];
    if (op == FL_OP_CHANNEL_AFFINE || op == FL_OP_CHANNEL_AFFINE_GRAD)
        make_coefficients(&call, a, b, d, ia, id, ib, shift, &seed);
    if (shared) {
        /* an exponent that fits the results, moved by a few steps either way: saturation and flush occur too */
        struct fl_stats stats = {0};
        struct result probe;
        call.e_out = exponents[0];
        run(&call, fl_ref_kernel(op), false, true, &probe);
        stats = probe.stats;
        result_free(&probe);
        if (stats.maximum > 0 && op != FL_OP_CHANNEL_AFFINE && op != FL_OP_CHANNEL_AFFINE_GRAD)
            call.e_out = 14 - ilogb(stats.maximum) + (index % 4 == 3 ? 2 : index % 4 == 2 ? -12 : 0);
        call.e_out = call.e_out < f->e_min ? f->e_min : call.e_out > f->e_max ? f->e_max : call.e_out;
    }
    char label[256];
    struct result want;
    tensor_status status = run(&call, fl_ref_kernel(op), false, false, &want);
    CHECK(!status, "%s.%s.ref failed", f->name, fl_op_name(op));
    static const int threads[] = {1, 2, 3, 7};
    for (int t = 0; t < 6; t++) {
        const bool in_place = t == 4, measure = t == 5;
        if (in_place && !call.shape.in_place)
            continue;
        if (measure && (!call.shape.out))
            continue;
        tensor_set_threads(t < 4 ? threads[t] : 2);
        snprintf(label, sizeof label, "%s.%s.%s case %d %s rounding %d %s seed %llu:", f->name, fl_op_name(op),
                 fl_backend_name(backend), index, style_names[style], (int)mode,
                 in_place  ? "in place"
                 : measure ? "measure"
                 : t == 0  ? "1 thread"
                 : t == 1  ? "2 threads"
                           : "more threads",
                 (unsigned long long)seed0);
        struct result got;
        status = run(&call, kernel, in_place, measure, &got);
        CHECK(!status, "%s status %d", label, (int)status);
        compare(&call, label, &want, &got, measure);
        result_free(&got);
    }
    result_free(&want);
    for (int i = 0; i < 3; i++)
        block_free(&call.in[i]);
}

int main(void) {
    const char *filter = getenv("FLEXLAB_TEST_FILTER");
    const char *text = getenv("FLEXLAB_TEST_SEED");
    const uint64_t seed = text ? strtoull(text, NULL, 0) : 20170711;
    printf("seed %llu\n", (unsigned long long)seed);
    for (int i = 0; fl_format_at(i); i++) {
        const struct fl_format *f = fl_format_at(i);
        for (int op = 1; op < FL_OP_LIMIT; op++) {
            if (!fl_op_name((enum fl_op)op))
                continue;
            CHECK(fl_ref_kernel((enum fl_op)op) != NULL, "%s has no reference kernel", fl_op_name((enum fl_op)op));
            struct shape first;
            CHECK(shape_of((enum fl_op)op, 0, &first), "%s has no test inputs", fl_op_name((enum fl_op)op));
            for (int backend = FL_PORTABLE; backend < FL_BACKENDS; backend++) {
                enum fl_backend chosen;
                fl_kernel kernel = fl_kernel_select(f, (enum fl_op)op, (enum fl_backend)backend, &chosen);
                if ((int)chosen != backend)
                    continue; /* not on this machine, or served by the row below */
                char name[96];
                snprintf(name, sizeof name, "%s.%s.%s", f->name, fl_op_name((enum fl_op)op),
                         fl_backend_name((enum fl_backend)backend));
                if (filter && !strstr(name, filter))
                    continue;
                const long failures = check_failures;
                for (int index = 0; index < 8; index++)
                    for (int style = 0; style < STYLES; style++) {
                        run_case(f, (enum fl_op)op, (enum fl_backend)backend, kernel, index, (enum style)style,
                                 TENSOR_ROUND_NEAREST, seed);
                        tensor_rounding other = f->arithmetic == FL_ARITHMETIC_SHARED ? TENSOR_ROUND_STOCHASTIC
                                                : f->truncates                        ? TENSOR_ROUND_TRUNCATE
                                                                                      : TENSOR_ROUND_NEAREST;
                        if (other != TENSOR_ROUND_NEAREST)
                            run_case(f, (enum fl_op)op, (enum fl_backend)backend, kernel, index, (enum style)style,
                                     other, seed + 1);
                    }
                printf("%-40s %s\n", name, check_failures == failures ? "ok" : "FAILED");
            }
        }
    }
    return check_summary();
}
