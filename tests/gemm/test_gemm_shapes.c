/* Matmul and convolution of every format and kernel set against sums written down here from their definition: byte for
 * byte, with statistics, for sizes around every edge of the blocking and for difficult data.
 *
 * Float formats: chains of fmaf over FL_K_CHUNK products, chunks added in order, one rounding by the format's codec.
 * Shared-exponent formats: exact integers, one rounding by this file. A failure line names <format>.<op>.<backend>,
 * sizes, data and seed; FLEXLAB_TEST_FILTER=substring selects, FLEXLAB_TEST_SEED replays. */
#include "check.h"
#include "core/table/format.h"
#include "exponents.h"
#include "core/base/cpu.h"
#include "core/base/memory.h"
#include "core/base/parallel.h"
#include "flexlab/tensor.h"
#include "philox_witness.h"
#include "window_cases.h"
#include <math.h>
#include <pthread.h>
#include <string.h>

#ifdef FL_AMX_EMULATED
enum { FIRST_BACKEND = FL_AVX512_AMX }; /* the other kernel sets have a test of their own */
#else
enum { FIRST_BACKEND = FL_PORTABLE };
#endif

enum { CANARY = 64, TOP = 32767 };

__extension__ typedef __int128 wide;

/* --- data -------------------------------------------------------------------------------------------------------- */

enum data {
    GAUSSIAN,
    SPECIAL,
    VANISHING,
    FULL,
    LOWEST,
    CANCELLING,
    THRESHOLD,
    SPIKES,
    BLOCKS,
    FORMS,
    LATE_LARGE,
    DATA
};
static const char *const data_names[] = {"gaussian",  "special", "vanishing", "full",  "lowest",    "cancelling",
                                         "threshold", "spikes",  "blocks",    "forms", "late large"};

static bool data_is_for(const struct fl_format *f, enum data data) {
    const bool shared = f->arithmetic == FL_ARITHMETIC_SHARED;
    return data == GAUSSIAN || (shared ? data >= FULL : data < FULL);
}

static double uniform(uint64_t *seed) {
    return (double)(check_random(seed) >> 11) * 0x1p-53;
}

static double gaussian(uint64_t *seed) {
    double sum = 0;
    for (int i = 0; i < 12; i++)
        sum += uniform(seed);
    return sum - 6;
}

/* Mantissas of operand 0 or 1 of a case. Threshold: products that reach 2^31 after 2, 4, 8, 16 or 64 terms, remain
 * below it by less than 2^15, or come between 2^31 - 2^16 and that, all positive or all negative. Blocks: stretches of
 * large and of small mantissas. Forms: the largest mantissas whose sums of two, in filters also of three, are 16-bit
 * numbers, and some whose sums are not. Late large: mantissas too large for that beyond the first thousands. */
static int16_t mantissa(enum data data, int operand, int64_t i, int number, uint64_t *seed) {
    static const int magnitudes[][2] = {{32767, 32767}, {23170, 23170}, {16384, 16384}, {16376, 16392},
                                        {8188, 16392},  {16392, 8188},  {4095, 8194},   {8192, 4096},
                                        {32704, 8208},  {5793, 5793},   {16306, 16462}};
    const bool negative = check_random(seed) & 1;
    switch (data) {
    case FULL:
        return (int16_t)(negative ? -TOP : TOP);
    case LOWEST:
        return INT16_MIN;
    case CANCELLING:
        return (int16_t)(i % 2 ? -TOP : TOP);
    case THRESHOLD:
        return (int16_t)(magnitudes[(size_t)number / 2 % (sizeof magnitudes / sizeof magnitudes[0])][operand] *
                         (operand && number % 2 ? -1 : 1));
    case SPIKES:
        return (int16_t)(check_random(seed) % 97 == 0 ? (negative ? INT16_MIN : TOP)
                                                      : (int)(check_random(seed) % 200) - 100);
    case FORMS:
        if (operand == 0 || number % 4 < 2)
            return negative ? -0x4000 : 0x3fff;
        return (int16_t)(negative ? -10922 - (number % 8 == 3) : 10922 + (number % 8 == 7));
    case LATE_LARGE: /* only beyond the first part that is looked at, for some */
        if (i > (number % 2 ? 3000 : 70000) && check_random(seed) % 211 == 0)
            return (int16_t)(negative ? -0x4001 : 0x4000);
        return (int16_t)((int)(check_random(seed) % 0x8000) - 0x4000);
    case BLOCKS:
        return i / (4 + number % 61) % 2 ? TOP : 1;
    default:
        return (int16_t)fmin(fmax(gaussian(seed) * 5000, -TOP), TOP);
    }
}

/* Vanishing: products that underflow. In every other case nearly all are negative, so that sums are -0. */
static double number_of(const struct fl_format *f, enum data data, int operand, int number, uint64_t *seed) {
    const double x = gaussian(seed);
    const uint64_t pick = check_random(seed);
    if (data == SPECIAL)
        return pick % 301 == 0   ? NAN
               : pick % 302 == 0 ? INFINITY
               : pick % 303 == 0 ? -INFINITY
               : pick % 5 == 0   ? ldexp(x, f->id == FMT_FP16 ? -20 : -135)
                                 : x;
    if (data == VANISHING) {
        const double size = fabs(x) * (pick % 61 == 0 ? 0 : ldexp(1, f->id == FMT_FP16 ? -22 : -85));
        if (number % 2)
            return !operand || pick % 500 == 1 ? size : -size;
        return pick & 64 ? size : -size;
    }
    return x;
}

struct operand {
    struct fl_view view;
    double *values;
};

/* The memory has exactly the size of the operand, so that a sanitizer sees every access beyond it. */
static struct operand operand_new(const struct fl_format *f, int64_t count, int e, enum data data, int operand,
                                  int number, uint64_t *seed) {
    struct operand o = {{malloc((size_t)count * (size_t)f->bytes), NULL, exponent_at(e), count},
                        malloc((size_t)count * sizeof(double))};
    const struct fl_rounding nearest = {TENSOR_ROUND_NEAREST, 0, 0};
    struct fl_stats ignored = {0};
    for (int64_t i = 0; i < count; i++) {
        if (f->arithmetic == FL_ARITHMETIC_SHARED) {
            ((int16_t *)o.view.data)[i] = mantissa(data, operand, i, number, seed);
        } else {
            const double x = number_of(f, data, operand, number, seed);
            f->encode(f, &o.view, i, 1, &x, false, &nearest, &ignored);
        }
    }
    f->decode(f, &o.view, 0, count, o.values);
    return o;
}

static void operand_free(struct operand *o) {
    free(o->view.data);
    free(o->values);
}

/* --- the definition ---------------------------------------------------------------------------------------------- */

struct problem {
    enum fl_op op;
    struct fl_windows geo; /* of a convolution */
    int64_t m, n, k;       /* results [m][n], terms */
};

static bool is_conv(enum fl_op op) {
    return op == FL_OP_CONV2D || op == FL_OP_CONV2D_INPUT_GRAD || op == FL_OP_CONV2D_WEIGHT_GRAD;
}

static struct problem matmul_problem(enum fl_op op, const int *size) {
    return (struct problem){.op = op, .m = size[0], .n = size[1], .k = size[2]};
}

static struct problem windows_problem(enum fl_op op, struct fl_windows geo) {
    struct problem x = {.op = op, .geo = geo};
    const struct fl_windows *g = &x.geo;
    const int64_t patch = g->r * g->s, depth = g->c / g->groups;
    x.m = op == FL_OP_CONV2D              ? g->batch * g->p * g->q
          : op == FL_OP_CONV2D_INPUT_GRAD ? g->batch * g->h * g->w
                                          : g->filters;
    x.n = op == FL_OP_CONV2D ? g->filters : op == FL_OP_CONV2D_INPUT_GRAD ? g->c : patch * depth;
    x.k = op == FL_OP_CONV2D              ? patch * depth
          : op == FL_OP_CONV2D_INPUT_GRAD ? patch * (g->filters / g->groups)
                                          : g->batch * g->p * g->q;
    return x;
}

/* v: batch h w c filters r s stride padding dilation groups (0: 1) */
static struct problem conv_problem(enum fl_op op, const int *v) {
    struct fl_windows g = {.batch = v[0],
                           .h = v[1],
                           .w = v[2],
                           .c = v[3],
                           .filters = v[4],
                           .r = v[5],
                           .s = v[6],
                           .stride = {v[7], v[7]},
                           .padding = {v[8], v[8]},
                           .dilation = {v[9] ? v[9] : 1, v[9] ? v[9] : 1},
                           .groups = v[10] ? v[10] : 1};
    g.p = window_count(g.h, v[8], v[8], g.r, g.stride[0], g.dilation[0]);
    g.q = window_count(g.w, v[8], v[8], g.s, g.stride[1], g.dilation[1]);
    return windows_problem(op, g);
}

static struct fl_product product_of(const struct problem *x) {
    return is_conv(x->op) ? (struct fl_product){.windows = x->geo}
                          : (struct fl_product){.matrices = {.m = x->m, .n = x->n, .k = x->k}};
}

static int64_t image_index(int64_t h, int64_t w, int64_t c, int64_t n, int64_t y, int64_t x, int64_t channel) {
    return y < 0 || y >= h || x < 0 || x >= w ? -1 : ((n * h + y) * w + x) * c + channel;
}

/* The positions of the factors of term k of result (i, j) in in[0] and in[1]; -1 for a zero of the padding. In int,
 * whose quotients are quick. */
static void term_at(const struct problem *x, int i, int j, int k, int64_t *a, int64_t *b) {
    const struct fl_windows *g = &x->geo;
    const int groups = g->groups ? (int)g->groups : 1, depth = (int)g->c / groups, own = (int)g->filters / groups;
    const int h = (int)g->h, w = (int)g->w, p = (int)g->p, q = (int)g->q, row = (int)g->s, column = (int)g->r;
    const int stride[2] = {(int)g->stride[0], (int)g->stride[1]};
    switch (x->op) {
    case FL_OP_CONV2D: {
        const int c = j / own * depth + k % depth, s = k / depth % row, r = k / depth / row;
        *a = image_index(h, w, g->c, i / q / p, i / q % p * stride[0] + r * g->dilation[0] - g->padding[0],
                         i % q * stride[1] + s * g->dilation[1] - g->padding[1], c);
        *b = j * x->k + k;
        break;
    }
    case FL_OP_CONV2D_INPUT_GRAD: {
        const int filter = j / depth * own + k % own, s = k / own % row, r = k / own / row;
        const int y = i / w % h + (int)(g->padding[0] - r * g->dilation[0]),
                  z = i % w + (int)(g->padding[1] - s * g->dilation[1]);
        *a = y < 0 || z < 0 || y % stride[0] || z % stride[1]
                 ? -1
                 : image_index(p, q, g->filters, i / w / h, y / stride[0], z / stride[1], filter);
        *b = (((int64_t)filter * column + r) * row + s) * depth + j % depth;
        break;
    }
    case FL_OP_CONV2D_WEIGHT_GRAD: {
        const int c = i / own * depth + j % depth, s = j / depth % row, r = j / depth / row;
        *a = k * g->filters + i;
        *b = image_index(h, w, g->c, k / q / p, k / q % p * stride[0] + r * g->dilation[0] - g->padding[0],
                         k % q * stride[1] + s * g->dilation[1] - g->padding[1], c);
        break;
    }
    default:
        *a = x->op == FL_OP_MATMUL_TN ? k * x->m + i : i * x->k + k;
        *b = x->op == FL_OP_MATMUL_NT ? j * x->k + k : k * x->n + j;
    }
}

/* The positions of the factors of the terms of a result, by k; -1 for a zero of the padding. */
struct terms {
    const int32_t *a, *b;
};

/* Those of result (i, j). The factors of in[0] are the same for all columns of a group, those of in[1] for all rows of
 * a group; the latest problem's are kept, because each format and kind of data has the same. */
static struct terms terms_of(const struct problem *x, int64_t i, int64_t j) {
    static struct problem known;
    static int32_t *of[2];
    const int64_t groups = x->geo.groups ? x->geo.groups : 1, columns = x->op == FL_OP_CONV2D_WEIGHT_GRAD ? 1 : groups,
                  rows = x->op == FL_OP_CONV2D_WEIGHT_GRAD ? groups : 1, m = x->m, n = x->n, size = x->k;
    if (memcmp(&known, x, sizeof known)) {
        memcpy(&known, x, sizeof known); /* with what lies between members */
        free(of[0]);
        free(of[1]);
        int32_t *first = of[0] = malloc((size_t)(columns * m * size) * sizeof *first);
        int32_t *second = of[1] = malloc((size_t)(rows * n * size) * sizeof *second);
        int64_t at, other;
        for (int64_t group = 0; group < columns; group++)
            for (int64_t row = 0; row < m; row++)
                for (int64_t k = 0; k < size; k++) {
                    term_at(x, (int)row, (int)(group * (n / columns)), (int)k, &at, &other);
                    *first++ = (int32_t)at;
                }
        for (int64_t group = 0; group < rows; group++)
            for (int64_t column = 0; column < n; column++)
                for (int64_t k = 0; k < size; k++) {
                    term_at(x, (int)(group * (m / rows)), (int)column, (int)k, &other, &at);
                    *second++ = (int32_t)at;
                }
    }
    return (struct terms){of[0] + (j / (n / columns) * m + i) * size, of[1] + (i / (m / rows) * n + j) * size};
}

static float float_result(const struct problem *x, const double *a, const double *b, int64_t i, int64_t j) {
    const struct terms at = terms_of(x, i, j);
    float total = 0, chain = 0;
    for (int64_t k = 0; k < x->k; k++) {
        if (k && k % FL_K_CHUNK == 0) {
            total = k == FL_K_CHUNK ? chain : total + chain;
            chain = 0;
        }
        chain = fmaf(at.a[k] < 0 ? 0.0f : (float)a[at.a[k]], at.b[k] < 0 ? 0.0f : (float)b[at.b[k]], chain);
    }
    return x->k > FL_K_CHUNK ? total + chain : chain;
}

static int64_t shared_result(const struct problem *x, const int16_t *a, const int16_t *b, int64_t i, int64_t j) {
    const struct terms at = terms_of(x, i, j);
    int64_t sum = 0;
    for (int64_t k = 0; k < x->k; k++)
        sum += at.a[k] < 0 || at.b[k] < 0 ? 0 : (int64_t)a[at.a[k]] * b[at.b[k]];
    return sum;
}

/* sum * 2^-shift, rounded once. */
static int16_t shared_round(int64_t sum, int shift, const struct fl_rounding *rounding, int64_t element,
                            struct fl_stats *stats) {
    const wide one = (wide)1 << 32;
    wide x =
        shift > 0 ? (wide)sum * one >> shift : (wide)sum * ((wide)1 << -shift) * one; /* 32 bits behind the point */
    const bool sticky = shift > 32 && (wide)sum * one != x * ((wide)1 << shift);
    if (rounding->mode == TENSOR_ROUND_STOCHASTIC) {
        x = (x + witness_draw(rounding->key, rounding->write, element)) >> 32;
    } else {
        const wide floor = x >> 32, rest = x - floor * one;
        const bool up = rest > one / 2 || (rest == one / 2 && (sticky || floor & 1));
        x = floor + up;
    }
    stats->flushed += sum != 0 && x == 0;
    if (x > TOP || x < -TOP) {
        stats->saturated++;
        x = x < 0 ? -TOP : TOP;
    }
    const int32_t size = (int32_t)(x < 0 ? -x : x);
    stats->gamma = size > stats->gamma ? size : stats->gamma;
    return (int16_t)x;
}

/* --- a case ------------------------------------------------------------------------------------------------------ */

struct test_case {
    const struct fl_format *format;
    struct problem x;
    struct operand a, b;
    struct fl_args args;
    unsigned char *want;
    struct fl_stats want_stats;
    char label[288];
};

static void compute_want(struct test_case *t) {
    const struct fl_format *f = t->format;
    const int64_t count = t->x.m * t->x.n;
    t->want = malloc((size_t)count * (size_t)f->bytes);
    t->want_stats = (struct fl_stats){0};
    if (f->arithmetic == FL_ARITHMETIC_FLOAT) {
        const struct fl_view out = {t->want, NULL, 0, count};
        for (int64_t i = 0; i < count; i++) {
            const double x = float_result(&t->x, t->a.values, t->b.values, i / t->x.n, i % t->x.n);
            f->encode(f, &out, i, 1, &x, true, &t->args.rounding, &t->want_stats);
        }
        return;
    }
    int64_t *sums = malloc((size_t)count * sizeof *sums), largest = 0;
    for (int64_t i = 0; i < count; i++) {
        sums[i] = shared_result(&t->x, t->a.view.data, t->b.view.data, i / t->x.n, i % t->x.n);
        largest = llabs(sums[i]) > largest ? llabs(sums[i]) : largest;
    }
    /* exponents as in a prediction: mostly right, sometimes too small or too large */
    const int e = fl_exponent(&t->a.view) + fl_exponent(&t->b.view);
    t->args.out.e = exponent_at((largest ? e + 14 - ilogb((double)largest) : e) + (count % 5 == 4   ? 3
                                                                                   : count % 5 == 3 ? -6
                                                                                                    : 0));
    for (int64_t i = 0; i < count; i++)
        ((int16_t *)t->want)[i] =
            shared_round(sums[i], e - fl_exponent(&t->args.out), &t->args.rounding, i, &t->want_stats);
    t->want_stats.maximum = ldexp((double)largest, -e);
    free(sums);
}

/* All NaNs count as equal. */
static int64_t first_difference(const struct fl_format *f, const void *want, const void *got, int64_t count) {
    for (int64_t i = 0; i < count; i++) {
        const size_t at = (size_t)i * (size_t)f->bytes;
        if (!memcmp((const char *)want + at, (const char *)got + at, (size_t)f->bytes))
            continue;
        double x, y;
        f->decode(f, &(struct fl_view){(void *)(uintptr_t)want, NULL, 0, count}, i, 1, &x);
        f->decode(f, &(struct fl_view){(void *)(uintptr_t)got, NULL, 0, count}, i, 1, &y);
        if (x == x || y == y)
            return i;
    }
    return -1;
}

static void run_kernel(const struct test_case *t, enum fl_backend backend, fl_kernel kernel, int threads) {
    const struct fl_format *f = t->format;
    const int64_t count = t->x.m * t->x.n;
    const size_t bytes = (size_t)count * (size_t)f->bytes;
    unsigned char *memory = fl_alloc(bytes + 2 * CANARY);
    memset(memory, 0xa5, bytes + 2 * CANARY);
    struct fl_args args = t->args;
    struct fl_stats got = {0}, measured = {0};
    const struct fl_stats *want = &t->want_stats;
    args.out.data = memory + CANARY;
    args.out.count = count;
    args.stats = &got;
    tensor_set_threads(threads);
    const tensor_status status = kernel(&args);
    const char *backend_name = fl_backend_name(backend);
    CHECK(!status, "%s %s %d threads: status %d", t->label, backend_name, threads, (int)status);
    const int64_t at = first_difference(f, t->want, args.out.data, count);
    double x = 0, y = 0;
    if (at >= 0) {
        f->decode(f, &(struct fl_view){t->want, NULL, 0, count}, at, 1, &x);
        f->decode(f, &(struct fl_view){args.out.data, NULL, 0, count}, at, 1, &y);
    }
    CHECK(at < 0, "%s %s %d threads: element %lld got %a want %a", t->label, backend_name, threads, (long long)at, y,
          x);
    CHECK(got.maximum == want->maximum && got.gamma == want->gamma && got.saturated == want->saturated &&
              got.flushed == want->flushed && got.nonfinite == want->nonfinite,
          "%s %s %d threads: got max %a gamma %d sat %lld flushed %lld nonfinite %lld want %a %d %lld %lld %lld",
          t->label, backend_name, threads, got.maximum, got.gamma, (long long)got.saturated, (long long)got.flushed,
          (long long)got.nonfinite, want->maximum, want->gamma, (long long)want->saturated, (long long)want->flushed,
          (long long)want->nonfinite);
    bool alive = true;
    for (size_t i = 0; i < CANARY; i++)
        alive &= memory[i] == 0xa5 && memory[CANARY + bytes + i] == 0xa5;
    CHECK(alive, "%s %s %d threads: wrote outside of its output", t->label, backend_name, threads);
    args.out.data = NULL;
    args.stats = &measured;
    CHECK(!kernel(&args) && measured.maximum == want->maximum, "%s %s %d threads: measured %a want %a", t->label,
          backend_name, threads, measured.maximum, want->maximum);
    fl_free(memory);
}

static const char *filter;
static uint64_t seed0 = 20170711;

static void run_case(const struct fl_format *f, struct problem x, enum data data, int number) {
    uint64_t seed = seed0 + (uint64_t)number;
    const struct fl_windows *g = &x.geo;
    struct test_case t = {.format = f, .x = x};
    snprintf(t.label, sizeof t.label, "%s.%s", f->name, fl_op_name(x.op));
    bool any = false; /* without a kernel to compare, nothing needs to be computed */
    for (int backend = FIRST_BACKEND; backend < FL_BACKENDS; backend++) {
        enum fl_backend chosen;
        fl_kernel_select(f, x.op, (enum fl_backend)backend, &chosen);
        any |= (int)chosen == backend;
    }
    if (!any || (filter && !strstr(t.label, filter)))
        return;
    const size_t used = strlen(t.label);
    if (is_conv(x.op))
        snprintf(t.label + used, sizeof t.label - used, " %s %s seed %llu", windows_text(g), data_names[data],
                 (unsigned long long)seed);
    else
        snprintf(t.label + used, sizeof t.label - used, " %lldx%lldx%lld %s seed %llu", (long long)x.m, (long long)x.n,
                 (long long)x.k, data_names[data], (unsigned long long)seed);
    const bool shared = f->arithmetic == FL_ARITHMETIC_SHARED;
    const int64_t image = g->batch * g->h * g->w * g->c, result = g->batch * g->p * g->q * g->filters,
                  filters = is_conv(x.op) ? g->filters * g->r * g->s * (g->c / g->groups) : 0;
    int64_t a = x.m * x.k, b = x.k * x.n;
    if (is_conv(x.op)) {
        a = x.op == FL_OP_CONV2D ? image : result;
        b = x.op == FL_OP_CONV2D_WEIGHT_GRAD ? image : filters;
    }
    t.a = operand_new(f, a, shared ? 9 : 0, data, 0, number, &seed);
    t.b = operand_new(f, b, shared ? 11 : 0, data, 1, number, &seed);
    const tensor_rounding modes[] = {TENSOR_ROUND_NEAREST, f->truncates ? TENSOR_ROUND_TRUNCATE : TENSOR_ROUND_NEAREST,
                                     f->draws ? TENSOR_ROUND_STOCHASTIC : TENSOR_ROUND_NEAREST};
    t.args = (struct fl_args){.op = x.op,
                              .format = f,
                              .in = {t.a.view, t.b.view},
                              .p.product = product_of(&x),
                              .rounding = {modes[number % 3], seed, (uint64_t)number}};
    compute_want(&t);
    static const int threads[] = {2, 3, 7};
    for (int backend = FIRST_BACKEND; backend < FL_BACKENDS; backend++) {
        enum fl_backend chosen;
        const fl_kernel kernel = fl_kernel_select(f, x.op, (enum fl_backend)backend, &chosen);
        if ((int)chosen != backend)
            continue;
        fl_cpu_pretend_two_ports(number % 2); /* whatever the processor: each case by both kinds of carry split */
        run_kernel(&t, chosen, kernel, 1);
        fl_cpu_pretend_two_ports(!(number % 2));
        run_kernel(&t, chosen, kernel, threads[number % 3]);
    }
    fl_cpu_pretend_two_ports(-1);
    operand_free(&t.a);
    operand_free(&t.b);
    free(t.want);
}

/* Every size with ordinary data and alternately with two kinds of difficult data. dfp16 has the kernels of flex16+5, so
 * it runs a sample. */
static void run_formats(struct problem x, int number) {
    for (int i = 0; fl_format_at(i); i++) {
        const struct fl_format *f = fl_format_at(i);
        if (f->id == FMT_DFP16 && number % 7)
            continue;
        run_case(f, x, GAUSSIAN, number);
        for (int kinds = 0, hard = number; kinds < 2; hard++) {
            const enum data data = (enum data)(1 + hard % (DATA - 1));
            if (!data_is_for(f, data))
                continue;
            run_case(f, x, data, number);
            kinds++;
        }
    }
}

static const enum fl_op matmuls[] = {FL_OP_MATMUL, FL_OP_MATMUL_NT, FL_OP_MATMUL_TN};
static const enum fl_op convs[] = {FL_OP_CONV2D, FL_OP_CONV2D_INPUT_GRAD, FL_OP_CONV2D_WEIGHT_GRAD};

static int test_matmul(int number) {
    static const int sizes[][3] = {{1, 1, 1},     {7, 11, 13},   {31, 37, 41},  {3, 5, 511},    {5, 3, 512},
                                   {2, 17, 513},  {17, 2, 1023}, {4, 16, 1024}, {9, 33, 1025},  {3, 7, 2100},
                                   {97, 20, 530}, {5, 300, 70},  {101, 257, 9}, {700, 16, 12},  {1200, 3, 5},
                                   {20, 200, 37}, {13, 65, 600}, {40, 48, 200}, {250, 70, 11},  {16, 144, 800},
                                   {2, 2, 5000},  {1, 400, 3},   {400, 1, 3},   {130, 130, 33}, {24, 24, 24}};
    static const int columns[] = {1, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 48, 49, 64, 65, 96, 100};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (int op = 0; op < 3; op++)
            run_formats(matmul_problem(matmuls[op], sizes[i]), number++);
    for (int m = 1; m <= 26; m++)
        for (size_t j = 0; j < sizeof columns / sizeof columns[0]; j += 1 + (size_t)(m % 3))
            run_formats(matmul_problem(matmuls[number % 3], (int[]){m, columns[j], 1 + number % 11}), number), number++;
    return number;
}

static int test_conv(int number) {
    /* batch h w c filters r s stride padding dilation groups (0: 1) */
    static const int shapes[][11] = {{1, 1, 1, 1, 1, 1, 1, 1, 0},
                                     {1, 3, 3, 1, 1, 3, 3, 1, 0},
                                     {2, 8, 8, 3, 16, 3, 3, 1, 1},
                                     {2, 8, 8, 16, 16, 3, 3, 1, 1},
                                     {1, 9, 7, 17, 5, 3, 3, 1, 1},
                                     {3, 8, 8, 16, 32, 3, 3, 2, 1},
                                     {2, 9, 11, 16, 17, 3, 3, 2, 1},
                                     {2, 7, 7, 3, 4, 5, 5, 1, 2},
                                     {1, 11, 11, 16, 3, 5, 5, 2, 2},
                                     {2, 10, 10, 1, 7, 5, 5, 3, 2},
                                     {2, 8, 8, 17, 16, 1, 1, 1, 0},
                                     {3, 9, 9, 16, 8, 1, 1, 2, 0},
                                     {2, 10, 7, 3, 5, 2, 2, 3, 0},
                                     {1, 10, 10, 4, 4, 2, 2, 3, 1},
                                     {2, 6, 6, 5, 6, 1, 3, 1, 1},
                                     {2, 6, 6, 5, 6, 3, 1, 1, 1},
                                     {1, 5, 5, 60, 3, 3, 3, 1, 1},
                                     {1, 6, 6, 33, 3, 5, 5, 1, 2},
                                     {1, 6, 5, 3, 33, 5, 5, 2, 2},
                                     {1, 7, 7, 2, 70, 3, 3, 2, 1},
                                     {1, 2, 600, 1, 2, 3, 3, 1, 1},
                                     {1, 2, 1100, 2, 3, 1, 3, 2, 1},
                                     {9, 9, 9, 2, 3, 3, 3, 1, 1},
                                     {40, 4, 4, 3, 2, 3, 3, 1, 1},
                                     {90, 3, 3, 2, 3, 3, 3, 1, 0},
                                     {1, 24, 25, 3, 3, 3, 3, 1, 0},
                                     {2, 24, 25, 1, 2, 3, 3, 2, 1},
                                     {1, 4, 4, 200, 3, 3, 3, 1, 1},
                                     {1, 3, 3, 300, 2, 2, 2, 1, 1},
                                     {1, 4, 4, 3, 100, 3, 3, 1, 1},
                                     {1, 3, 3, 2, 270, 3, 3, 1, 1},
                                     {2, 5, 5, 3, 3, 3, 3, 1, 5},
                                     {1, 5, 5, 3, 3, 3, 3, 4, 3},
                                     {1, 13, 13, 2, 2, 3, 3, 5, 0},
                                     {1, 4, 4, 2, 3, 3, 3, 9, 1},
                                     {1, 33, 34, 8, 9, 3, 3, 1, 1},
                                     {2, 16, 16, 8, 16, 3, 3, 2, 1},
                                     {1, 14, 14, 9, 48, 3, 3, 1, 1},
                                     {3, 1, 9, 4, 4, 1, 3, 1, 0},
                                     {2, 9, 1, 4, 4, 3, 1, 2, 0},
                                     {2, 9, 11, 5, 6, 3, 3, 1, 2, 2},
                                     {1, 14, 13, 8, 17, 3, 3, 1, 0, 3},
                                     {2, 11, 9, 16, 3, 3, 3, 2, 2, 2},
                                     {1, 16, 15, 3, 20, 3, 3, 2, 3, 3},
                                     {1, 17, 14, 2, 5, 3, 2, 3, 4, 2},
                                     {2, 12, 12, 4, 4, 5, 5, 3, 3, 3},
                                     {1, 19, 23, 3, 4, 3, 3, 4, 5, 6},
                                     {1, 40, 9, 2, 3, 3, 3, 1, 7, 9},
                                     {1, 9, 9, 2, 3, 3, 3, 1, 40, 41},
                                     {3, 45, 3, 3, 2, 3, 1, 1, 0, 20},
                                     {30, 3, 3, 3, 2, 3, 3, 1, 9, 9},
                                     {1, 3, 600, 1, 2, 3, 3, 2, 6, 5},
                                     {1, 8, 8, 5, 3, 1, 1, 1, 0, 7},
                                     {2, 31, 5, 2, 2, 4, 2, 6, 9, 4},
                                     {2, 8, 8, 32, 48, 3, 3, 1, 1, 1, 2},
                                     {2, 9, 7, 20, 10, 3, 3, 2, 1, 1, 2},
                                     {1, 8, 9, 21, 15, 3, 3, 1, 2, 2, 3},
                                     {2, 6, 6, 36, 40, 1, 1, 1, 0, 1, 4},
                                     {1, 9, 9, 40, 24, 3, 2, 3, 2, 2, 4},
                                     {1, 5, 5, 300, 6, 3, 3, 1, 1, 1, 2},
                                     {1, 5, 5, 6, 300, 3, 3, 1, 1, 1, 2},
                                     {1, 2, 700, 12, 12, 3, 3, 2, 1, 1, 2},
                                     {2, 8, 8, 16, 16, 3, 3, 1, 1, 1, 16},
                                     {1, 9, 7, 65, 65, 3, 3, 2, 1, 1, 65},
                                     {2, 7, 8, 3, 6, 5, 3, 1, 2, 2, 3},
                                     {1, 9, 9, 70, 35, 3, 3, 1, 1, 1, 35},
                                     {1, 12, 13, 8, 16, 3, 3, 3, 3, 3, 8},
                                     {1, 26, 25, 2, 4, 3, 3, 1, 1, 1, 2},
                                     {1, 27, 27, 3, 3, 23, 23, 2, 11, 1, 3},
                                     {1, 9, 9, 12, 18, 3, 3, 2, 2, 2, 6},
                                     {1, 6, 6, 8, 8, 1, 1, 1, 0, 1, 8},
                                     {2, 5, 5, 9, 9, 1, 1, 2, 0, 1, 9},
                                     {1, 7, 6, 130, 130, 3, 3, 1, 1, 1, 130},
                                     {1, 3, 4, 512, 5, 3, 3, 1, 1},
                                     {1, 3, 4, 5, 512, 3, 3, 1, 1},
                                     {1, 3, 6, 512, 17, 3, 3, 1, 1}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int op = 0; op < 3; op++)
            run_formats(conv_problem(convs[op], shapes[i]), number++);
    return number;
}

/* Each direction and side separately. */
static void test_windows(int number) {
    uint64_t seed = seed0 ^ 0x77696e;
    int after[2];
    for (int i = 0; i < 130; i++)
        for (int op = 0; op < 3; op++)
            run_formats(windows_problem(convs[op], draw_windows(&seed, i % 10 ? 9 : 70, after)), number++);
}

/* Filters three wide on lines of whole pairs or quads of pixels, which Winograd's algorithm computes where mantissas
 * are small enough: several blocks of k, wide packed pixels, chunks, panels and groups; operands of which only a late
 * part has larger mantissas. */
static void test_winograd(int number) {
    static const int shapes[][11] = {{1, 3, 6, 600, 17, 3, 3, 1, 1, 1, 1}, {1, 2, 4, 1100, 5, 2, 3, 1, 1, 1, 1},
                                     {1, 3, 6, 17, 600, 3, 3, 1, 1, 1, 1}, {1, 2, 4, 5, 1100, 2, 3, 1, 1, 1, 1},
                                     {2, 5, 64, 70, 40, 3, 3, 1, 1, 1, 2}, {1, 4, 36, 33, 130, 3, 3, 1, 1, 1, 1},
                                     {5, 9, 44, 36, 32, 2, 3, 1, 1, 1, 1}, {4, 20, 24, 36, 3, 1, 3, 1, 0, 1, 1}};
    static const enum data kinds[] = {FORMS, LATE_LARGE, GAUSSIAN, SPIKES, LOWEST};
    static const tensor_format formats[] = {FMT_FLEX16_5, FMT_DFP16};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int op = 0; op < 3; op++, number++)
            for (int kind = 0; kind < 2; kind++)
                run_case(fl_format_of(FMT_FLEX16_5), conv_problem(convs[op], shapes[i]), kinds[kind], number);
    uint64_t seed = seed0 ^ 0x77696e6f;
    for (int i = 0; i < 60; i++) {
        const bool large = i % 9 == 0; /* several chunks */
        int after[2];
        struct fl_windows g = draw_windows(&seed, 1, after);
        g.groups = i % 7 == 0 ? 2 : 1;
        g.batch = window_between(&seed, 1, large ? 3 : 6);
        g.c = window_between(&seed, 1, large ? 20 : 70) * g.groups;
        g.filters = window_between(&seed, 1, large ? 20 : 110) * g.groups;
        g.s = 3;
        g.r = window_between(&seed, 1, 4);
        g.h = window_between(&seed, large ? 20 : 1, large ? 34 : 9);
        g.stride[1] = g.dilation[1] = 1;
        g.q = 2 * window_between(&seed, large ? 10 : 1, large ? 20 : 9);
        g.w = g.q + 2 - g.padding[1] - after[1];
        g.p = window_count(g.h, g.padding[0], after[0], g.r, g.stride[0], g.dilation[0]);
        if (g.w < 1 || g.p < 1)
            continue;
        for (int op = 0; op < 3; op++, number++)
            for (int kind = 0; kind < 3; kind++)
                run_case(fl_format_of(formats[number % 7 == 0]), windows_problem(convs[op], g),
                         kinds[kind < 2 ? kind : 2 + number % 3], number);
    }
}

/* --- long sums of many results ----------------------------------------------------------------------------------- */

/* Exact weight gradients of several blocks of filters, whose pixels are several chunks: threads that have a set of sums
 * each, of which some take no part in a block, and blocks that occupy them. */
static void test_sets(void) {
    static const int shapes[][11] = {{4, 20, 24, 3, 200, 2, 3, 1, 1, 1, 1}, {4, 20, 24, 2, 520, 1, 3, 1, 1, 1, 1}};
    static const enum data kinds[] = {FORMS, GAUSSIAN};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int kind = 0; kind < 2; kind++)
            for (int number = 0; number < 6; number++) /* each number of threads twice */
                run_case(fl_format_of(FMT_FLEX16_5), conv_problem(FL_OP_CONV2D_WEIGHT_GRAD, shapes[i]), kinds[kind],
                         number);
}

/* a^T b of 1024 x 1024 results over 9 chunks: sums are stored by slice in more than one wave. Columns repeat with
 * period 7 and rows with period 5, so 35 sums determine all of them. */
#ifndef FL_AMX_EMULATED
static void test_waves(void) {
    enum { SIDE = 1024, TERMS = 9 * FL_K_CHUNK + 5, ROWS = 5, COLUMNS = 7 };
    for (int i = 0; fl_format_at(i); i++) {
        const struct fl_format *f = fl_format_at(i);
        enum fl_backend chosen;
        const fl_kernel kernel = fl_kernel_select(f, FL_OP_MATMUL_TN, FL_AVX512, &chosen);
        if (chosen < FL_AVX2 || (f->id != FMT_FP32 && f->id != FMT_FLEX16_5))
            continue; /* fmaf without the instruction would take minutes */
        uint64_t seed = seed0;
        const bool shared = f->arithmetic == FL_ARITHMETIC_SHARED;
        const int small[] = {ROWS, COLUMNS, TERMS}, large[] = {SIDE, SIDE, TERMS};
        struct test_case t = {.format = f, .x = matmul_problem(FL_OP_MATMUL_TN, small)};
        t.a = operand_new(f, TERMS * ROWS, shared ? 9 : 0, GAUSSIAN, 0, 0, &seed);
        t.b = operand_new(f, TERMS * COLUMNS, shared ? 11 : 0, GAUSSIAN, 0, 0, &seed);
        t.args.rounding.mode = TENSOR_ROUND_NEAREST;
        compute_want(&t);
        const struct problem x = matmul_problem(FL_OP_MATMUL_TN, large);
        const size_t size = (size_t)f->bytes;
        char *a = malloc(TERMS * SIDE * size), *b = malloc(TERMS * SIDE * size), *out = malloc(SIDE * SIDE * size);
        for (size_t k = 0; k < TERMS; k++)
            for (size_t j = 0; j < SIDE; j++) {
                memcpy(a + (k * SIDE + j) * size, (char *)t.a.view.data + (k * ROWS + j % ROWS) * size, size);
                memcpy(b + (k * SIDE + j) * size, (char *)t.b.view.data + (k * COLUMNS + j % COLUMNS) * size, size);
            }
        struct fl_stats stats = {0};
        const struct fl_args args = {.op = x.op,
                                     .format = f,
                                     .p.product = product_of(&x),
                                     .in = {{a, NULL, t.a.view.e, TERMS * SIDE}, {b, NULL, t.b.view.e, TERMS * SIDE}},
                                     .out = {out, NULL, t.args.out.e, SIDE * SIDE},
                                     .stats = &stats};
        tensor_set_threads(2);
        CHECK(!kernel(&args), "%s waves", f->name);
        int64_t wrong = 0;
        for (size_t r = 0; r < SIDE; r++)
            for (size_t c = 0; c < SIDE; c++)
                wrong +=
                    memcmp(out + (r * SIDE + c) * size, t.want + (r % ROWS * COLUMNS + c % COLUMNS) * size, size) != 0;
        CHECK(wrong == 0, "%s waves: %lld results differ, seed %llu", f->name, (long long)wrong,
              (unsigned long long)seed0);
        CHECK(stats.maximum == t.want_stats.maximum, "%s waves: maximum %a want %a", f->name, stats.maximum,
              t.want_stats.maximum);
        free(a);
        free(b);
        free(out);
        operand_free(&t.a);
        operand_free(&t.b);
        free(t.want);
    }
}
#endif

/* --- a second witness --------------------------------------------------------------------------------------------- */

/* Freivalds: c r = a (b r) for a random vector r, in exact integers. With small mantissas results are exact; with large
 * ones, each result is off by at most half a unit of 2^shift. */
static void test_freivalds(void) {
    enum { SIDE = 300 };
    const struct fl_format *f = fl_format_of(FMT_FLEX16_5);
    static int16_t a[SIDE * SIDE], b[SIDE * SIDE], c[SIDE * SIDE];
    uint64_t seed = seed0;
    for (int trial = 0; trial < 6; trial++) {
        const bool large = trial % 2;
        const int shift = large ? 24 : 0, range = large ? 65535 : 21;
        for (int i = 0; i < SIDE * SIDE; i++) {
            a[i] = (int16_t)((int)(check_random(&seed) % (unsigned)range) - range / 2);
            b[i] = (int16_t)((int)(check_random(&seed) % (unsigned)range) - range / 2);
        }
        for (int backend = FIRST_BACKEND; backend < FL_BACKENDS; backend++) {
            enum fl_backend chosen;
            const enum fl_op op = matmuls[trial % 3];
            const fl_kernel kernel = fl_kernel_select(f, op, (enum fl_backend)backend, &chosen);
            struct fl_stats stats = {0};
            const struct fl_args args = {
                .op = op,
                .format = f,
                .p.product.matrices = {.m = SIDE, .n = SIDE, .k = SIDE},
                .in = {{a, NULL, exponent_at(14), SIDE * SIDE}, {b, NULL, exponent_at(14), SIDE * SIDE}},
                .out = {c, NULL, exponent_at(28 - shift), SIDE * SIDE},
                .stats = &stats};
            CHECK(!kernel(&args) && !stats.saturated, "freivalds %s: %lld saturated", fl_backend_name(chosen),
                  (long long)stats.saturated);
            int64_t r[SIDE], br[SIDE] = {0};
            for (int j = 0; j < SIDE; j++)
                r[j] = (int64_t)(check_random(&seed) % 2001) - 1000;
            for (int k = 0; k < SIDE; k++)
                for (int j = 0; j < SIDE; j++)
                    br[k] += r[j] * (op == FL_OP_MATMUL_NT ? b[j * SIDE + k] : b[k * SIDE + j]);
            for (int i = 0; i < SIDE; i++) {
                wide left = 0, right = 0, slack = 0;
                for (int j = 0; j < SIDE; j++) {
                    left += (wide)c[i * SIDE + j] * r[j] * ((int64_t)1 << shift);
                    right += (wide)(op == FL_OP_MATMUL_TN ? a[j * SIDE + i] : a[i * SIDE + j]) * br[j];
                    slack += shift ? llabs(r[j]) * ((int64_t)1 << (shift - 1)) : 0;
                }
                const wide off = left > right ? left - right : right - left;
                CHECK(off <= slack, "freivalds %s %s trial %d row %d seed %llu: off by %g, at most %g", fl_op_name(op),
                      fl_backend_name(chosen), trial, i, (unsigned long long)seed0, (double)off, (double)slack);
            }
        }
    }
}

/* --- no memory --------------------------------------------------------------------------------------------------- */

static int allocations_left;

static void *allocate(unsigned long size, unsigned long alignment) {
    void *block = NULL;
    return allocations_left-- <= 0 || posix_memalign(&block, alignment, size) ? NULL : block;
}

/* Runs on a thread of its own, which has no workspace from earlier calls. */
static void *run_without_memory(void *context) {
    const int *number = context;
    const struct fl_format *f = fl_format_of(FMT_FP32);
    const enum fl_op op = *number % 2 ? FL_OP_MATMUL_TN : FL_OP_MATMUL;
    float a[9] = {1}, b[9] = {2}, c[9];
    memset(c, 0x5a, sizeof c);
    struct fl_stats stats = {0};
    const struct fl_args args = {.op = op,
                                 .format = f,
                                 .p.product.matrices = {.m = 3, .n = 3, .k = 3},
                                 .in = {{a, NULL, 0, 9}, {b, NULL, 0, 9}},
                                 .out = {c, NULL, 0, 9},
                                 .stats = &stats};
    allocations_left = *number / 2;
    const fl_kernel kernel = fl_kernel_select(f, op, FL_AVX512, NULL);
    tensor_set_threads(1);
    tensor_set_allocator(allocate, free);
    const tensor_status status = kernel(&args);
    tensor_set_allocator(NULL, NULL);
    if (*number / 2 >= 1) { /* a call allocates once */
        CHECK(status == TENSOR_OK && c[0] == 2, "%s with %d allocations: status %d", fl_op_name(op), *number / 2,
              (int)status);
        return NULL;
    }
    bool untouched = true;
    for (size_t i = 0; i < sizeof c; i++)
        untouched &= ((unsigned char *)c)[i] == 0x5a;
    CHECK(status == TENSOR_E_MEMORY && untouched, "%s with %d allocations: status %d, output %s", fl_op_name(op),
          *number / 2, (int)status, untouched ? "untouched" : "written");
    return NULL;
}

static void test_no_memory(void) {
    for (int number = 0; number < 6; number++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, run_without_memory, &number) == 0)
            pthread_join(thread, NULL);
    }
}

int main(void) {
    filter = getenv("FLEXLAB_TEST_FILTER");
    const char *text = getenv("FLEXLAB_TEST_SEED");
    seed0 = text ? strtoull(text, NULL, 0) : seed0;
    printf("seed %llu\n", (unsigned long long)seed0);
    const int number = test_matmul(0);
    test_windows(test_conv(number));
    test_winograd(0);
    test_sets();
    if (!filter) {
#ifndef FL_AMX_EMULATED /* by avx512 */
        test_waves();
#endif
        test_freivalds();
        test_no_memory();
    }
    return check_summary();
}
