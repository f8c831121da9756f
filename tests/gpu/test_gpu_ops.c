/* Every function on every format, on the device "cuda" and by the reference kernels of the host: the same calls, drawn
 * from their signatures (draw_function.h), with the same data, after each of which elements, wide part, exponent with
 * its history, statistics and numbers must be the same bits (a NaN is a NaN). Each tensor is written several times.
 *
 *     test_gpu_ops [SEED [SERIES [FUNCTION [FORMAT]]]]        SERIES: of each function and format, 24
 *
 * Without a device: skipped, or with FLEXLAB_REQUIRE_GPU=1 a failure. An operation that the device lacks is a
 * failure. */
#define _GNU_SOURCE
#include "draw_function.h"
#include "flexlab/tensor_blocks.h"
#include "on_gpu.h"
#include "same_tensor.h"

enum { MOST = 1 << 15, WRITES = 4, ATTEMPTS = 12 };
enum { HOST, DEVICE };

static tensor_device *gpu;
static uint64_t first_seed = 1;
static const char *only_function, *only_format;
static int64_t most_work = 200000; /* of a call */
static long long calls;

/* --- tensors ------------------------------------------------------------------------------------------------------ */

struct operand {
    tensor *t[2];
    tensor *whole[2]; /* the tensors of which views are a part; NULL: it is no view */
    bool shared;      /* with another operand of the call: in place */
};

struct call {
    const struct fl_format *format;
    struct operand operand[FL_OPERANDS];
    int count;
    char settings[160]; /* of the output, for messages */
    struct drawn drawn;
};

/* Element styles: all that the formats can represent, with the ends of their range, and special values of float
 * formats. */
enum { STYLES = 9 };

static void draw_values(const struct fl_format *f, double *v, int64_t n, int style) {
    const bool shared = f->arithmetic == FL_ARITHMETIC_SHARED, half = f->id == FMT_FP16;
    const struct fl_element *e = f->element;
    const double top = e ? e->largest : half ? 65504 : f->id == FMT_BF16 ? 0x1.fep127 : 0x1.fffffep127;
    int low = half ? -16 : -128, high = half ? 14 : 125; /* binary orders of the ends */
    if (e) {
        low = e->least_exponent - 2;
        high = ilogb(e->largest) - 1;
    }
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
            v[i] = ldexp(x, low);
            break;
        case 4: /* sums overflow */
            v[i] = shared ? ldexp(x, 9) : chance(30) ? copysign(top, x) : ldexp(x, high);
            break;
        case 5: /* Inf and NaN */
            v[i] = shared ? x : chance(4) ? NAN : chance(6) ? copysign(INFINITY, x) : x;
            break;
        case 6: /* mostly zeros */
            v[i] = chance(85) ? 0 : x;
            break;
        case 7: /* many binary orders side by side */
            v[i] = ldexp(x, between(low > -20 ? low : -20, high < 30 ? high : 30));
            break;
        default: /* ties when rounded */
            v[i] = ldexp(2 * between(-512, 512) + 1, -6);
        }
    }
}

/* The settings of an operand. */
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

/* Adds an operand, with the same elements on both devices: loaded on both, or copied from the host. */
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

/* Numbers beside the elements. */
static void add_numbers(struct call *c, tensor_format kind, int ndim, const int64_t *shape, const double *values) {
    struct operand *o = &c->operand[c->count++];
    const int64_t n = count_of(ndim, shape);
    for (int where = 0; where < 2; where++) {
        tensor *t = o->t[where] = where == HOST ? tensor_new(kind, ndim, shape) : tensor_new_in(gpu, kind, ndim, shape);
        CHECK(t && (!values || !load_numbers(t, values, n)), "%s", tensor_error());
    }
}

/* Adds an operand that is another one of the call, or none. */
static void add_same(struct call *c, int which) {
    c->operand[c->count] = c->operand[which];
    c->operand[c->count++].shared = true;
}
static void add_none(struct call *c) {
    c->operand[c->count++] = (struct operand){.shared = true};
}

/* The operands of the call in both places. */
static void operands_of(const struct call *c, tensor *t[2][FL_OPERANDS]) {
    memset(t, 0, 2 * sizeof t[0]);
    for (int where = 0; where < 2; where++)
        for (int i = 0; i < c->count; i++)
            t[where][i] = c->operand[i].t[where];
}

static void free_operands(struct call *c) {
    for (int i = 0; i < c->count; i++) {
        for (int where = 0; where < 2 && !c->operand[i].shared; where++) {
            tensor_free(c->operand[i].t[where]);
            tensor_free(c->operand[i].whole[where]);
        }
        c->operand[i] = (struct operand){{NULL}}; /* the next call has another operand there */
    }
    c->count = 0;
}

/* --- what must agree ---------------------------------------------------------------------------------------------- */

/* Compares the numbers of both; describes the first difference in `line`. */
static bool same_numbers(const tensor *want, const tensor *got, char *line, size_t bytes) {
    static double a[MOST], b[MOST];
    const int64_t count = tensor_count(want);
    if (tensor_store_f64(want, a, count) || tensor_store_f64(got, b, count)) {
        snprintf(line, bytes, "numbers: %s", tensor_error());
        return false;
    }
    for (int64_t i = 0; i < count; i++)
        if (!same_double(a[i], b[i])) {
            snprintf(line, bytes, "number %" PRId64 " is %a, ref %a", i, b[i], a[i]);
            return false;
        }
    return true;
}

static bool same_integers(const tensor *want, const tensor *got, char *line, size_t bytes) {
    tensor *back = tensor_new(want->format->id, want->ndim, want->shape);
    const size_t size = (size_t)want->count * (size_t)want->format->bytes;
    const bool agree =
        back && !tensor_copy(back, got) && !memcmp(tensor_const_data(back), tensor_const_data(want), size);
    if (!agree)
        snprintf(line, bytes, "integers differ: %s", tensor_error());
    tensor_free(back);
    return agree;
}

static bool same(const tensor *want, const tensor *got, char *line, size_t bytes) {
    *line = 0;
    if (!want)
        return true;
    if (want->format->id == FMT_U8 || want->format->id == FMT_I32)
        return same_integers(want, got, line, bytes);
    if (want->format->id == FMT_F64 || want->format->id == FMT_F32)
        return same_numbers(want, got, line, bytes);
    tensor *back = tensor_new(want->format->id, want->ndim, want->shape);
    const bool copied = back && (!want->storage->wide || !tensor_keep_wide(back)) && !tensor_copy(back, got);
    const struct fl_slot *slot = copied ? fl_slot_of(got) : NULL;
    if (!slot)
        snprintf(line, bytes, "%s", tensor_error());
    const bool agree = slot && same_tensor(want, want->storage->slot, back, slot, line, bytes);
    tensor_free(back);
    return agree;
}

/* --- operands drawn ----------------------------------------------------------------------------------------------- */

static struct settings plain, output;

/* Some sizes exceed what a block of threads processes at once. */
static const int64_t letter_sizes[] = {1, 1, 2, 2, 3, 4, 5, 7, 8, 16, 17, 33, 64, 65, 130};
static const struct draw_dims many_sizes[] = {{0, {0}},       {1, {1}},       {1, {5}},          {1, {64}},
                                              {1, {129}},     {2, {3, 7}},    {2, {7, 33}},      {2, {1, 65}},
                                              {3, {2, 5, 7}}, {3, {3, 1, 4}}, {4, {2, 3, 4, 9}}, {2, {2, 257}},
                                              {1, {600}},     {1, {4097}},    {2, {1, 9000}}};
static struct draw_limits limits = {.sizes = letter_sizes,
                                    .size_count = sizeof letter_sizes / sizeof letter_sizes[0],
                                    .many = many_sizes,
                                    .many_count = sizeof many_sizes / sizeof many_sizes[0],
                                    .elements = MOST,
                                    .numbers = MOST,
                                    .wrong = 2};

/* A view with strides of the operand added last. */
static void take_view(struct call *c, const struct drawn_operand *d) {
    struct operand *o = &c->operand[c->count - 1];
    for (int where = 0; where < 2; where++) {
        o->whole[where] = o->t[where];
        o->t[where] = tensor_new_strided(o->whole[where], d->ndim, d->shape, d->stride, 0);
        CHECK(o->t[where], "%s", tensor_error());
    }
}

/* Series of products: all of one format; in blocks; of mantissas or floats, with a result of any format. */
enum how { PLAIN, BLOCKS, MANTISSAS, FLOATS };
static enum how how;

/* The format of an operand of a product, which need not be that of its result: factors are of one kind. */
static const struct fl_format *draw_operand_format(const struct fl_operand *rule, const struct fl_format *factor) {
    static const char *const names[] = {"fp32", "fp16", "bf16", "flex16+5", "dfp16", "flex8+5", "e4m3fn", "e6m5"};
    const struct fl_format *other;
    do {
        tensor_format id;
        CHECK(!tensor_format_find(&id, names[draw() % (sizeof names / sizeof names[0])]), "%s", tensor_error());
        other = fl_format_of(id);
    } while (rule->class == FL_CLASS_FACTOR && factor && other->arithmetic != factor->arithmetic);
    return other;
}

static bool draw_operands(struct call *c, const struct fl_function *f) {
    static double values[MOST];
    const struct fl_format *const result = c->format, *factor = how == MANTISSAS ? fl_format_of(FMT_DFP16)
                                                                : how == FLOATS  ? fl_format_of(FMT_FP32)
                                                                                 : NULL;
    const bool mixes = how >= MANTISSAS || (how == BLOCKS && chance(40));
    limits.work = chance(80) ? 3000 : chance(70) ? 20000 : most_work;
    if (!draw_call(&c->drawn, f, &limits))
        return false;
    for (int i = 0; i < f->operand_count; i++) {
        const struct drawn_operand *o = &c->drawn.operand[i];
        const struct fl_operand *rule = &f->operands[i];
        struct settings s = i < f->outputs ? output : plain;
        if (rule->flags & FL_WIDE)
            s.wide = chance(65);
        if (!o->given) {
            add_none(c);
        } else if (o->numbers) {
            draw_numbers(&c->drawn, i, values);
            add_numbers(c, o->format, o->ndim, o->shape, values);
        } else if (o->same >= 0) {
            add_same(c, o->same);
        } else if (o->strided) {
            add(c, &s, 1, &o->held);
            take_view(c, o);
        } else {
            if (mixes && i >= f->outputs && (rule->class == FL_CLASS_FACTOR || rule->class == FL_CLASS_ANY)) {
                c->format = draw_operand_format(rule, factor);
                factor = rule->class == FL_CLASS_FACTOR ? c->format : factor;
                s.exponent = c->format == result ? s.exponent : INT32_MIN;
            }
            add(c, &s, o->ndim, o->shape);
            c->format = result;
        }
    }
    return true;
}

static tensor_status invoke(const struct call *c, tensor *const *t) {
    const tensor *given[FL_OPERANDS];
    for (int i = 0; i < FL_OPERANDS; i++)
        given[i] = t[i];
    return fl_invoke(c->drawn.function, given, c->drawn.scalar);
}

/* --- running them ------------------------------------------------------------------------------------------------- */

/* Functions that run on no device: their results are numbers of the host. */
static bool is_of_host(const struct fl_function *f) {
    return f->outputs == 0;
}

struct tally {
    int runs, worked, differences;
    bool lacks;
    char first[1000];
};

/* Gives inputs new elements, the same on both devices. */
static void renew(struct call *c, int style) {
    static double values[MOST];
    for (int i = 0; i < c->count; i++) {
        struct operand *o = &c->operand[i];
        if (i == 0 || o->shared || !o->t[HOST] || o->whole[HOST] ||
            tensor_format_bytes(tensor_format_of(o->t[0])) == 0 || chance(50) ||
            tensor_format_of(o->t[0]) != c->format->id)
            continue;
        const int64_t n = tensor_count(o->t[0]);
        draw_values(c->format, values, n, style);
        CHECK(!tensor_load_f64(o->t[HOST], values, n) && !tensor_load_f64(o->t[DEVICE], values, n), "%s",
              tensor_error());
    }
}

/* Makes one call on both devices. False: it ends the series. */
static bool run_once(struct call *c, int write, struct tally *tally) {
    tensor *t[2][FL_OPERANDS];
    operands_of(c, t);
    char line[600] = "", message[300] = "";
    const tensor_status want = invoke(c, t[HOST]);
    if (want)
        snprintf(message, sizeof message, "%s", tensor_error());
    tensor_status got = invoke(c, t[DEVICE]);
    if (got == TENSOR_E_UNSUPPORTED && strstr(tensor_error(), "has no kernel")) {
        tally->lacks = true;
        return false;
    }
    if (!got)
        got = tensor_device_wait(gpu);
    calls++;
    tally->runs++;
    bool agree = got == want;
    if (!agree)
        snprintf(line, sizeof line, "status %d '%s', ref %d '%s'", (int)got, tensor_error(), (int)want, message);
    for (int i = 0; i < c->count && agree; i++) {
        tensor *const *compared = c->operand[i].whole[HOST] ? c->operand[i].whole : c->operand[i].t;
        agree = same(compared[HOST], compared[DEVICE], line, sizeof line);
    }
    tally->worked += agree && !want;
    if (!agree && !tally->differences++) {
        char shape[TENSOR_TEXT], other[TENSOR_TEXT];
        snprintf(tally->first, sizeof tally->first, "%s.%s write %d of %s, first operand %s, last %s: %s",
                 c->format->name, c->drawn.function->name, write, c->settings,
                 t[0][0] ? fl_shape_text(t[0][0], shape) : "none",
                 t[0][c->count - 1] ? fl_shape_text(t[0][c->count - 1], other) : "none", line);
    }
    return agree && !want;
}

/* Classes of products in blocks: all kinds of elements and scales, widths that words of four bytes do not fill, and two
 * formats whose blocks do not end together. */
static const char *const classes[] = {"mx:int8",
                                      "mx:e4m3fn:rceil",
                                      "mx:e5m2:ceil",
                                      "mx:e2m1:even",
                                      "nvfp4",
                                      "mx:e6m1",
                                      "hbfp:int8/64",
                                      "nvfp4,mx:e5m2/4",
                                      "mx:e3m2/6:stochastic",
                                      "nvfp4:stochastic:hadamard",
                                      "mx:int4/2,mx:int8/6:square",
                                      "mx:e4m3fn/6,mx:int8/16:square",
                                      "nvfp4:stochastic,nvfp4:square",
                                      "mx:int8/16:stochastic:hadamard",
                                      "mx:e2m3:hadamard,mx:e4m3fn:hadamard"};

static tensor_class draw_class(void) {
    char text[80];
    tensor_class class = TENSOR_EXACT;
    snprintf(text, sizeof text, "operands=%s", classes[draw() % (sizeof classes / sizeof classes[0])]);
    CHECK(!tensor_class_find(&class, text), "%s", tensor_error());
    return class;
}

/* A series of writes on fresh tensors. */
static void run_series(const struct fl_function *function, const struct fl_format *f, uint64_t seed, enum how mode,
                       struct tally *tally) {
    static const char *const predictors[] = {"paper", "ngraph", "current", "fixed", "repeat", "amax"};
    const bool shared = f->arithmetic == FL_ARITHMETIC_SHARED;
    draws = seed;
    struct call c = {.format = f};
    const tensor_class class = mode == BLOCKS ? draw_class() : TENSOR_EXACT;
    how = mode;
    CHECK(!tensor_set_class(class), "%s", tensor_error());
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
    bool continues = false;
    for (int i = 0; i < ATTEMPTS && !continues && !tally->differences && !tally->lacks; i++) {
        free_operands(&c);    /* of a call that both devices refused */
        if (i > ATTEMPTS / 2) /* writes of sequences do not round stochastically */
            output.rounding = TENSOR_ROUND_NEAREST;
        snprintf(c.settings, sizeof c.settings, "seed 0x%" PRIx64 " (style %d, %s, rounding %d%s, class %s)", seed,
                 style, output.predictor ? output.predictor : "the format's predictor", (int)output.rounding,
                 output.wide ? ", wide" : "", tensor_class_name(class));
        CHECK(draw_operands(&c, function), "%s: no operands were found", function->name);
        continues = run_once(&c, 1, tally);
    }
    for (int write = 2; write <= WRITES && continues; write++) {
        renew(&c, chance(70) ? style : between(0, STYLES - 1));
        continues = run_once(&c, write, tally);
    }
    (void)tensor_device_wait(gpu); /* an unexpected failure belongs to this series */
    free_operands(&c);
    CHECK(!tensor_set_class(TENSOR_EXACT), "%s", tensor_error());
}

static int missing;

static void run_function(const struct fl_function *function, const struct fl_format *f, int series) {
    struct tally tally = {0};
    for (int i = 0; i < series && !tally.lacks; i++) {
        uint64_t seed = first_seed * 1000003 + (uint64_t)i;
        for (const char *p = function->name; *p; p++)
            seed = seed * 31 + (unsigned char)*p;
        run_series(function, f, seed * 8 + f->id, PLAIN, &tally);
        if (fl_is_product(function->op))
            for (int j = 0; j < (series > 1 ? 5 : 3); j++)
                run_series(function, f, seed * 8 + f->id + (uint64_t)j * 101,
                           (const enum how[]){BLOCKS, MANTISSAS, FLOATS, BLOCKS, FLOATS}[j], &tally);
    }
    CHECK(tally.lacks || tally.worked > 0, "%s.%s never worked", f->name, function->name);
    CHECK(!tally.differences, "%d of %d calls differ; the first: %s", tally.differences, tally.runs, tally.first);
    if (tally.lacks) {
        missing++;
        printf("lacks %s.%s\n", f->name, function->name);
    }
}

/* Those of the build, then some that are made from their parameters, whose mantissas are clamped; NULL past the last.
 */
static const struct fl_format *format_at(int i) {
    static const char *const made[] = {"flex8+5", "dfp12", "flex5+5", "e4m3fn", "e5m2", "e6m5", "e4m3fnsat", "e2m1"};
    int built = 0;
    while (tensor_format_at(built))
        built++;
    tensor_format id = tensor_format_at(i);
    if (i >= built && i < built + (int)(sizeof made / sizeof made[0]))
        CHECK(!tensor_format_find(&id, made[i - built]), "%s", tensor_error());
    return id ? fl_format_of(id) : NULL;
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
        CHECK(same(h, d, line, sizeof line), "%s, loaded, style %d: %s", f->name, style, line);
        draw_values(f, values, N, style);
        for (int j = 0; j < N; j++)
            floats[j] = (float)values[j];
        CHECK(!tensor_load_f32(h, floats, N) && !tensor_load_f32(d, floats, N), "%s", tensor_error());
        CHECK(same(h, d, line, sizeof line), "%s, loaded as float, style %d: %s", f->name, style, line);
        CHECK(!tensor_store_f64(h, want, N) && !tensor_store_f64(d, got, N), "%s", tensor_error());
        for (int j = 0; j < N; j++)
            CHECK(same_double(want[j], got[j]), "%s: stored %d: %a, ref %a", f->name, j, got[j], want[j]);
        for (int kind = 0; kind < 4; kind++) { /* numbers made on the device, and integers of the host */
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
            CHECK(same(h, d, line, sizeof line), "%s, filled (%d): %s", f->name, kind, line);
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
                CHECK(a == b && (a || same(to[HOST], to[DEVICE], line, sizeof line)),
                      "%s, style %d, converted to %s: status %d, ref %d: %s", f->name, style,
                      tensor_format_name(tensor_format_at(j)), (int)b, (int)a, line);
            tensor_free(to[HOST]);
            tensor_free(to[DEVICE]);
        }
        free_operands(&c);
    }
}

/* Workspace of a conversion: none where fp32 is read in place, else a double for each element; on the host none. */
static void conversions_take(const struct fl_format *f) {
    enum { N = 301 };
    for (int where = 0; where < 2; where++)
        for (int j = 0; tensor_format_at(j); j++) {
            tensor_device *const device = where == HOST ? tensor_device_at(0) : gpu;
            tensor *const x = tensor_new_in(device, f->id, TENSOR_SHAPE(N)), *const y = tensor_new_in(
                                                                                 device, tensor_format_at(j),
                                                                                 TENSOR_SHAPE(N));
            const size_t bytes = where == HOST || f->id == FMT_FP32 ? 0 : N * sizeof(double);
            for (int again = 0; again < 2; again++) {
                size_t most[FL_CALL_MEMORIES] = {0};
                fl_measure_begin(device, NULL, NULL);
                CHECK(!(again ? tensor_rewrite(y, x) : tensor_convert(y, x)), "%s", tensor_error());
                fl_measured(device, most);
                fl_measure_end(device);
                CHECK(most[FL_WORKSPACE] == bytes && !most[FL_TEMPORARY], "%s to %s: %zu and %zu bytes, expected %zu",
                      f->name, tensor_format_name(tensor_format_at(j)), most[FL_WORKSPACE], most[FL_TEMPORARY], bytes);
            }
            tensor_free(x);
            tensor_free(y);
        }
}

/* --- what shows only when a call runs ----------------------------------------------------------------------------- */

/* The host's error appears on the device at the next wait, with the same text, once; nothing is written, and later
 * calls in the queue are left out. */
static void fails_late(const char *what, struct call *c, tensor_status (*run)(const struct call *, tensor *const *)) {
    tensor *t[2][FL_OPERANDS];
    char message[400], line[600] = "";
    operands_of(c, t);
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
        CHECK(same(t[HOST][i], t[DEVICE][i], line, sizeof line), "%s %s: operand %d: %s", c->format->name, what, i,
              line);
    free_operands(c);
}

static void in(struct call *c, int ndim, const int64_t *shape) {
    add(c, &plain, ndim, shape);
}
static void out(struct call *c, int ndim, const int64_t *shape) {
    add(c, &output, ndim, shape);
}
#define IN(c, ...) in(c, TENSOR_SHAPE(__VA_ARGS__))
#define OUT(c, ...) out(c, TENSOR_SHAPE(__VA_ARGS__))
#define NUMBERS(c, format, ...)                                                                                        \
    add_numbers(c, format, TENSOR_SHAPE((int64_t)(sizeof((double[]){__VA_ARGS__}) / sizeof(double))),                  \
                (double[]){__VA_ARGS__})
#define RUN(name, ...)                                                                                                 \
    static tensor_status run_##name(const struct call *c, tensor *const *t) {                                          \
        (void)c;                                                                                                       \
        return tensor_##name(__VA_ARGS__);                                                                             \
    }
static const tensor_loss_options ignoring = {.ignores = true, .ignored_label = -7};
RUN(cross_entropy, t[0], t[1], t[2], t[3], t[4], t[5], &(tensor_loss_options){.gradient_scale_tensor = t[6]})
RUN(wasserstein, t[0], t[1], t[4], t[5], &ignoring)
static tensor_status run_cross_entropy_ignoring(const struct call *c, tensor *const *t) {
    (void)c;
    return tensor_cross_entropy(t[0], t[1], t[2], t[3], t[4], t[5], &ignoring);
}
RUN(embedding, t[0], t[1], t[2])
RUN(embedding_grad, t[0], t[1], t[2])
RUN(sgd_update_by, t[0], t[1], t[2])
RUN(combine, t[0], t[1], t[2], t[3], t[4], 0)
RUN(root_mean, t[0], t[1], t[2], 0)
RUN(add_ratio, t[0], t[1], t[2], t[3], t[4], 0)
RUN(batchnorm, t[0], t[1], t[2], t[3], t[4], t[5], t[6], 1e-5, false)
static tensor_status run_load(const struct call *c, tensor *const *t) {
    double values[9] = {1, 2, 3, 4, 5, NAN, 7, -INFINITY, 9};
    (void)c;
    return tensor_load_f64(t[0], values, 9);
}

/* Batch normalisation with a residual at exponents around those at which 64 bits still hold the sums of a channel, and
 * far beyond them, with coefficients of many sizes and elements at the ends of their range. */
static void affine_limits(const struct fl_format *f) {
    struct call c = {.format = f};
    char line[600] = "";
    double extremes[37 * 19];
    draws = first_seed + 1000 + f->id;
    for (int apart = -40; apart <= 40; apart++) {
        plain = output =
            (struct settings){.exponent = INT32_MIN, .rounding = apart % 4 ? 0 : TENSOR_ROUND_STOCHASTIC, .seed = 7};
        OUT(&c, 37, 19);
        for (int operand = 0; operand < 2; operand++) {
            const int e = f->e_max > 31 ? 20 + operand * apart : 15 + operand * apart / 3;
            plain.exponent = e < f->e_min ? f->e_min : e > f->e_max ? f->e_max : e;
            IN(&c, 37, 19);
            for (int i = 0; i < 37 * 19; i++)
                extremes[i] = ldexp(chance(30) ? between(-32767, 32767) : chance(50) ? 32767 : -32767, -plain.exponent);
            for (int where = 0; where < 2; where++)
                CHECK(!tensor_load_f64(c.operand[operand + 1].t[where], extremes, 37 * 19) &&
                          !tensor_declare_exponent(c.operand[operand + 1].t[where], plain.exponent),
                      "%s", tensor_error());
        }
        plain.exponent = INT32_MIN;
        plain.style = 7;
        IN(&c, 19);
        IN(&c, 19);
        double mean[19], variance[19];
        for (int i = 0; i < 19; i++) {
            mean[i] = ldexp(unit(), between(-12, 2));
            variance[i] = ldexp(1 + unit(), between(-20, 20)) + 1;
        }
        add_numbers(&c, FMT_F64, TENSOR_SHAPE(19), mean);
        add_numbers(&c, FMT_F64, TENSOR_SHAPE(19), variance);
        for (int write = 0; write < 2; write++) {
            tensor *t[2][FL_OPERANDS];
            operands_of(&c, t);
            for (int where = 0; where < 2; where++)
                CHECK(!tensor_batchnorm(t[where][0], t[where][1], t[where][2], t[where][3], t[where][4], t[where][5],
                                        t[where][6], 1e-5, apart % 2),
                      "%s", tensor_error());
            CHECK(same(t[HOST][0], t[DEVICE][0], line, sizeof line), "%s batchnorm, exponents %d apart, write %d: %s",
                  f->name, apart, write, line);
        }
        free_operands(&c);
    }
}

static void late_failures(const struct fl_format *f) {
    struct call c = {.format = f};
    plain = output = (struct settings){.exponent = INT32_MIN};
    draws = first_seed + f->id;
    if (f->arithmetic == FL_ARITHMETIC_SHARED) {
        OUT(&c, 9);
        fails_late("load of NaN", &c, run_load);
    }
    for (int which = 0; which < 2; which++) {
        add_numbers(&c, FMT_F64, TENSOR_SHAPE(1), NULL);
        OUT(&c, 3, 5);
        add_numbers(&c, FMT_I32, TENSOR_SHAPE(3), NULL);
        add_numbers(&c, FMT_I32, TENSOR_SHAPE(1), NULL);
        IN(&c, 3, 5);
        NUMBERS(&c, FMT_I32, 4, which ? 1 : -1, which ? 2 : 5);
        if (which)
            NUMBERS(&c, FMT_F64, NAN);
        else
            add_none(&c);
        fails_late(which ? "gradient scale" : "label", &c, run_cross_entropy);
    }
    for (int which = 0; which < 2; which++) { /* the first is ignored */
        add_numbers(&c, FMT_F64, TENSOR_SHAPE(1), NULL);
        OUT(&c, 3, 5);
        add_numbers(&c, FMT_I32, TENSOR_SHAPE(3), NULL);
        add_numbers(&c, FMT_I32, TENSOR_SHAPE(1), NULL);
        IN(&c, 3, 5);
        NUMBERS(&c, FMT_I32, -7, which ? 2 : 5, 9);
        for (int i = 0; i < 3; i++)
            add_none(&c);
        fails_late("label of a loss", &c, which ? run_wasserstein : run_cross_entropy_ignoring);
    }
    for (int which = 0; which < 2; which++) {
        OUT(&c, which ? 4 : 3, 5);
        IN(&c, which ? 3 : 4, 5);
        NUMBERS(&c, FMT_I32, 1, which ? 4 : -1, 7);
        fails_late("index", &c, which ? run_embedding_grad : run_embedding);
    }
    for (int wide = 0; wide < 2; wide++) {
        output.wide = wide;
        OUT(&c, 33);
        IN(&c, 33);
        NUMBERS(&c, FMT_F32, wide ? -INFINITY : NAN);
        fails_late("rate", &c, run_sgd_update_by);
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
        add_numbers(&c, FMT_F64, TENSOR_SHAPE(1, FL_FACTORS), (double[]){1, which ? -1e300 : NAN, 1, 1});
        fails_late("factor", &c, which == 0 ? run_combine : which == 1 ? run_root_mean : run_add_ratio);
    }
    output.wide = false;
    for (int which = 0; f->arithmetic == FL_ARITHMETIC_SHARED && which < 2; which++) { /* data in float formats */
        OUT(&c, 4, 3);
        IN(&c, 4, 3);
        add_none(&c);
        IN(&c, 3);
        IN(&c, 3);
        NUMBERS(&c, FMT_F64, 1, which ? 2 : INFINITY, 3);
        NUMBERS(&c, FMT_F64, 1, which ? -7 : 2, 3);
        fails_late(which ? "variance below zero" : "mean", &c, run_batchnorm);
    }
    /* The queue continues after it. */
    OUT(&c, 5);
    IN(&c, 5);
    IN(&c, 5);
    struct tally tally = {0};
    c.drawn.function = fl_function_named("add");
    CHECK(run_once(&c, 1, &tally), "after failures: %s", tally.first);
    free_operands(&c);
}

int main(int argc, char **argv) {
    first_seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
    const int series = argc > 2 ? atoi(argv[2]) : 24;
    only_function = argc > 3 && *argv[3] ? argv[3] : NULL; /* empty: all */
    only_format = argc > 4 ? argv[4] : NULL;
    if (series == 1) /* a few calls would take half of the time */
        most_work = 20000, limits.elements = 10000;
    int status;
    if (!has_gpu(&status))
        return status;
    gpu = tensor_device_find("cuda");
    char text[300] = "";
    CHECK(!tensor_device_describe(gpu, text, sizeof text), "%s", tensor_error());
    printf("%s: %s, seed %" PRIu64 "\n", tensor_device_name(gpu), text, first_seed);
    CHECK(!tensor_set_backend("ref"), "%s", tensor_error());
    const struct fl_format *format;
    for (int f = 0; (format = format_at(f)); f++) {
        if (only_format && strcmp(format->name, only_format))
            continue;
        const struct fl_function *function;
        for (int i = 0; (function = fl_function_at(i)); i++)
            if (!is_of_host(function) && (!only_function || !strcmp(function->name, only_function)))
                run_function(function, format,
                             draw_weight(function) < 10 || format->element ? (series + 3) / 4 : series);
        if (!only_function || !strcmp("transfers", only_function))
            transfers(format), conversions_take(format);
        if (format->arithmetic == FL_ARITHMETIC_SHARED && (!only_function || !strcmp("affine", only_function)))
            affine_limits(format);
        if (!only_function || !strcmp("failures", only_function))
            late_failures(format);
    }
    for (int i = 0; tensor_op_at(i); i++)
        for (int f = 0; (format = format_at(f)); f++) {
            struct fl_choice choice;
            const char *op = tensor_op_at(i);
            if (fl_op_named(op) != FL_OP_MAX_ABS && !only_function &&
                !gpu->find(gpu, format, fl_op_named(op), &choice)) {
                missing++;
                printf("no kernel: %s.%s\n", format->name, op);
            }
        }
    CHECK(!missing, "%d operations of formats have no kernel on the device", missing);
    printf("%lld calls at both places\n", calls);
    return check_summary();
}
