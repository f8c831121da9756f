/* test_flex_exact.c - the integer contract of the shared-exponent formats: every elementwise operation, bias, sums over
 * rows, per-channel affine maps and weight updates equal the exact result rounded once, on every kernel row, for any
 * number of threads, in place and at any alignment, with exponents as far apart as the formats allow. */
#include "flex_harness.h"

/* --- elementwise --- */

/* alpha * m * 2^-e */
static struct number scaled(float alpha, int64_t m, int e) {
    int exponent;
    const int64_t bits = (int64_t)ldexp(frexp(alpha, &exponent), 24);
    return number_of(bits * m, e + 24 - exponent);
}

static struct number positive_part(struct number x) {
    return x.negative ? (struct number){0} : x;
}

static struct number negated(struct number x) {
    x.negative = !x.negative && !number_is_zero(&x);
    return x;
}

static struct number exact_map(const struct fl_args *args, int64_t i) {
    const struct number a = value_of(&args->in[0], i);
    const bool bias = args->op == FL_OP_BIAS || args->op == FL_OP_BIAS_RELU;
    const int64_t j = bias ? i % args->p.rows.n : i;
    const struct number b = args->in[1].data ? value_of(&args->in[1], j) : (struct number){0};
    switch ((int)args->op) {
    case FL_OP_ADD:
    case FL_OP_BIAS:
        return number_add(a, b);
    case FL_OP_SUB:
        return number_add(a, negated(b));
    case FL_OP_ADD_RELU:
    case FL_OP_BIAS_RELU:
        return positive_part(number_add(a, b));
    case FL_OP_MUL:
        return number_of((int64_t)mantissa_of(&args->in[0], i) * mantissa_of(&args->in[1], i),
                         fl_exponent(&args->in[0]) + fl_exponent(&args->in[1]));
    case FL_OP_SQUARE:
        return number_of((int64_t)mantissa_of(&args->in[0], i) * mantissa_of(&args->in[0], i),
                         2 * fl_exponent(&args->in[0]));
    case FL_OP_SCALE:
        return scaled(args->p.map.alpha, mantissa_of(&args->in[0], i), fl_exponent(&args->in[0]));
    case FL_OP_ADD_SCALED:
        return number_add(a, scaled(args->p.map.alpha, mantissa_of(&args->in[1], i), fl_exponent(&args->in[1])));
    case FL_OP_RELU:
        return positive_part(a);
    case FL_OP_RELU_GRAD:
        return mantissa_of(&args->in[1], i) > 0 ? a : (struct number){0};
    case FL_OP_ADD_RELU_GRAD:
        return mantissa_of(&args->in[2], i) > 0 ? number_add(a, b) : (struct number){0};
    case FL_OP_NEG:
        return negated(a);
    default: /* abs */
        return a.negative ? negated(a) : a;
    }
}

static float random_float(void) {
    static const float special[] = {0, 1, -1, 0.5f, 2, 0.9f, 1e-4f, -0.1f, 0x1p-149f, 0x1.fffffep127f, -3};
    if (random_below(2))
        return special[random_below((int64_t)(sizeof special / sizeof special[0]))];
    return (float)ldexp((double)random_between(-16777215, 16777215), random_between(-40, 8));
}

static int64_t random_count(void) {
    static const int64_t special[] = {1, 2, 15, 16, 17, 31, 63, 1023, 1024, 1025, 2049};
    return random_below(3) ? random_below(700) + 1
                           : special[random_below((int64_t)(sizeof special / sizeof special[0]))];
}

static const enum fl_op maps[] = {FL_OP_ADD,        FL_OP_SUB,  FL_OP_MUL,       FL_OP_SCALE,
                                  FL_OP_ADD_SCALED, FL_OP_RELU, FL_OP_RELU_GRAD, FL_OP_ADD_RELU,
                                  FL_OP_NEG,        FL_OP_ABS,  FL_OP_SQUARE,    FL_OP_ADD_RELU_GRAD};

static bool has_two(enum fl_op op) {
    return op == FL_OP_ADD || op == FL_OP_SUB || op == FL_OP_MUL || op == FL_OP_ADD_SCALED || op == FL_OP_RELU_GRAD ||
           op == FL_OP_ADD_RELU || op == FL_OP_ADD_RELU_GRAD;
}

static int clamp_exponent(const struct fl_format *format, int e) {
    return e < format->e_min ? format->e_min : e > format->e_max ? format->e_max : e;
}

/* Checks sums around the widths of the kernels' integers (31 and 62 bits), and results around one position below the
 * last. */
static void check_wide_map(const struct fl_format *format, enum fl_op op, int64_t count) {
    static const int differences[] = {14, 15, 16, 17, 30, 31, 45, 46, 47, 48, 60};
    const int difference = differences[random_below((int64_t)(sizeof differences / sizeof differences[0]))];
    const int e = clamp_exponent(format, random_between(-20, 20)), swap = (int)random_below(2);
    struct fl_args args = {.op = op, .format = format, .p.map.alpha = 0.75f, .rounding = random_rounding()};
    args.in[swap] = random_view(count, e, random_below(2) ? FILL_EXTREME : FILL_RAW);
    args.in[1 - swap] = random_view(count, clamp_exponent(format, e + difference), random_fill());
    if (op == FL_OP_ADD_RELU_GRAD)
        args.in[2] = random_view(count, e, random_fill());
    args.out = (struct fl_view){.e = exponent_at(clamp_exponent(format, e + random_between(-18, 2))), .count = count};
    check_rows(&args, exact_map, true, ALL_ROWS);
    release_from(0);
}

static void check_map(const struct fl_format *format, enum fl_op op, int64_t count) {
    const int e = random_between(format->e_min, format->e_max);
    struct fl_args args = {.op = op, .format = format, .p.map.alpha = random_float(), .rounding = random_rounding()};
    args.in[0] = random_view(count, e, random_fill());
    if (has_two(op))
        args.in[1] = random_view(count, random_exponent(format, e), random_fill());
    if (op == FL_OP_ADD_RELU_GRAD)
        args.in[2] = random_view(count, random_exponent(format, e), random_fill());
    if (has_two(op) && random_below(4) == 0) /* cancelling pairs */
        for (int64_t i = 0; i < count; i++)
            ((int16_t *)args.in[1].data)[i] =
                (int16_t)(mantissa_of(&args.in[0], i) * (random_below(2) ? 1 : -1) + (int)random_below(2));
    const int product = op == FL_OP_MUL ? e + fl_exponent(&args.in[1]) : op == FL_OP_SQUARE ? 2 * e : e;
    args.out = (struct fl_view){.e = exponent_at(random_exponent(format, product)), .count = count};
    check_rows(&args, exact_map, true, ALL_ROWS);
    release_from(0);
}

static void check_bias(const struct fl_format *format, int64_t rows, int64_t channels) {
    const int e = random_between(format->e_min, format->e_max);
    struct fl_args args = {.op = random_below(2) ? FL_OP_BIAS : FL_OP_BIAS_RELU,
                           .format = format,
                           .p.rows = {.m = rows, .n = channels},
                           .rounding = random_rounding()};
    args.in[0] = random_view(rows * channels, e, random_fill());
    args.in[1] = random_view(channels, random_exponent(format, e), random_fill());
    args.out = (struct fl_view){.e = exponent_at(random_exponent(format, e)), .count = rows * channels};
    check_rows(&args, exact_map, true, ALL_ROWS);
    release_from(0);
}

/* --- sums --- */

static struct number exact_sum_rows(const struct fl_args *args, int64_t c) {
    int64_t sum = 0;
    for (int64_t row = 0; row < args->p.rows.m; row++)
        sum += mantissa_of(&args->in[0], row * args->p.rows.n + c);
    return number_of(sum, fl_exponent(&args->in[0]));
}

static void check_sum_rows(const struct fl_format *format, int64_t rows, int64_t channels) {
    const int e = random_between(format->e_min, format->e_max);
    struct fl_args args = {.op = FL_OP_SUM_ROWS,
                           .format = format,
                           .p.rows = {.m = rows, .n = channels},
                           .in = {random_view(rows * channels, e, random_fill())},
                           .rounding = random_rounding()};
    args.out = (struct fl_view){.e = exponent_at(random_exponent(format, e - 6)), .count = channels};
    check_rows(&args, exact_sum_rows, false, ALL_ROWS);
    release_from(0);
}

static void check_channel_sums(const struct fl_format *format, int64_t rows, int64_t channels) {
    const uint64_t replay = seed;
    const int64_t count = rows * channels;
    const bool gradient = random_below(2), masked = random_below(2);
    struct fl_args args = {.op = gradient ? FL_OP_CHANNEL_GRAD_SUMS : FL_OP_CHANNEL_SUMS,
                           .format = format,
                           .p.rows = {.m = rows, .n = channels}};
    for (int i = 0; i < (gradient ? masked ? 3 : 2 : 1); i++)
        args.in[i] = random_view(count, random_between(format->e_min, format->e_max), random_fill());
    int64_t *want = allocate((size_t)channels * 2 * sizeof *want);
    memset(want, 0, (size_t)channels * 2 * sizeof *want);
    for (int64_t i = 0; i < count; i++) {
        int64_t d = mantissa_of(&args.in[0], i);
        if (gradient && masked && mantissa_of(&args.in[2], i) <= 0)
            d = 0;
        want[i % channels] += d;
        want[channels + i % channels] += d * mantissa_of(&args.in[gradient ? 1 : 0], i);
    }
    for (int backend = FL_REF; backend < FL_BACKENDS; backend++)
        for (int threads = 1; threads <= 7; threads += threads < 3 ? 1 : 4) {
            enum fl_backend chosen;
            fl_kernel kernel = fl_kernel_select(format, args.op, (enum fl_backend)backend, &chosen);
            if ((int)chosen != backend)
                continue;
            const int mark = pool_used;
            int64_t *got = allocate((size_t)(2 * channels + 2) * sizeof *got);
            memset(got, 0x5b, (size_t)(2 * channels + 2) * sizeof *got);
            struct fl_stats stats = {0};
            args.stats = &stats;
            args.p.batch_norm.sums.i[0] = got;
            args.p.batch_norm.sums.i[1] = got + channels + 1;
            tensor_set_threads(threads);
            const tensor_status status = kernel(&args);
            const int64_t canary = 0x5b5b5b5b5b5b5b5b;
            CHECK(!status && !memcmp(got, want, (size_t)channels * 8) &&
                      !memcmp(got + channels + 1, want + channels, (size_t)channels * 8) && got[channels] == canary &&
                      got[2 * channels + 1] == canary,
                  "%s.%s.%s seed %" PRIx64 " threads %d %" PRId64 "x%" PRId64, format->name, fl_op_name(args.op),
                  fl_backend_name(chosen), replay, threads, rows, channels);
            release_from(mark);
        }
    tensor_set_threads(0);
    release_from(0);
}

static void check_max_abs(const struct fl_format *format, int64_t count) {
    struct fl_args args = {.op = FL_OP_MAX_ABS,
                           .format = format,
                           .in = {random_view(count, random_between(format->e_min, format->e_max), random_fill())}};
    int32_t want = 0;
    for (int64_t i = 0; i < count; i++)
        want = abs(mantissa_of(&args.in[0], i)) > want ? abs(mantissa_of(&args.in[0], i)) : want;
    for (int backend = FL_REF; backend < FL_BACKENDS; backend++) {
        enum fl_backend chosen;
        fl_kernel kernel = fl_kernel_select(format, args.op, (enum fl_backend)backend, &chosen);
        struct fl_stats stats = {0};
        args.stats = &stats;
        CHECK(!kernel(&args) && stats.maximum == ldexp(want, -fl_exponent(&args.in[0])), "%s.max_abs.%s: %a, want %d",
              format->name, fl_backend_name(chosen), stats.maximum, want);
    }
    release_from(0);
}

/* --- per-channel affine maps --- */

/* m 2^-e times an integer of 17 bits */
static struct number times(struct fl_coefficient k, int64_t x) {
    return number_of(k.m * x, k.e);
}

static struct number exact_affine(const struct fl_args *args, int64_t i) {
    const struct fl_channels *k = &args->p.batch_norm.channels;
    const int64_t c = i % args->p.rows.n;
    const bool gradient = args->op == FL_OP_CHANNEL_AFFINE_GRAD;
    int64_t first = mantissa_of(&args->in[0], i);
    if (gradient && args->in[2].data && mantissa_of(&args->in[2], i) <= 0)
        first = 0;
    struct number t = number_add(times(k->first[c], first - k->first_centre[c]), times(k->offset[c], 1));
    if (args->in[1].data)
        t = number_add(t, times(k->cross[c], mantissa_of(&args->in[1], i) - k->cross_centre[c]));
    return args->p.batch_norm.relu ? positive_part(t) : t;
}

/* A coefficient with 31 bits, or few of them; about 2^size units of the output for a mantissa of 2^15. */
static struct fl_coefficient random_coefficient(int e_out, int size, int bits) {
    int32_t m = (1 << 30) | (int32_t)(random_below((int64_t)1 << bits) << (30 - bits));
    const struct fl_coefficient none = {0, 0};
    return random_below(20) == 0 ? none : (struct fl_coefficient){random_below(2) ? m : -m, e_out + 30 + 15 - size};
}

/* Kinds of channels. Near: results of the size of a mantissa. Halves: multiples of half a unit, that is ties and the
 * edge of saturation. Apart: coefficients of very different sizes. Steep: far above 2^15 units a step, as if a channel
 * hardly varies. Anything: also exponents at the ends of the range of a double. */
enum channel_kind { NEAR, HALVES, APART, STEEP, ANYTHING, CHANNEL_KINDS };

static void random_channel(enum channel_kind kind, int e_out, struct fl_channels *k, int64_t c) {
    struct fl_coefficient *first = (struct fl_coefficient *)k->first + c,
                          *cross = (struct fl_coefficient *)k->cross + c;
    struct fl_coefficient *offset = (struct fl_coefficient *)k->offset + c;
    int32_t *centre = (int32_t *)k->first_centre + c, *cross_centre = (int32_t *)k->cross_centre + c;
    const int bits = random_below(3) ? 30 : random_between(0, 30);
    int size = random_between(8, 17), cross_size = random_between(4, 17), offset_size = random_between(0, 16);
    *centre = random_below(2) ? random_between(-32767, 32767) : random_between(-9, 9);
    *cross_centre = random_below(2) ? random_between(-32767, 32767) : 0;
    if (kind == APART) {
        cross_size = size - random_between(-40, 70);
        offset_size = size - random_between(-10, 60);
    } else if (kind == STEEP) {
        size = random_between(20, 62);
        cross_size = random_between(-10, 62);
        if (random_below(2)) /* the values of the channel are about its centre */
            *centre = random_between(-9, 9);
    } else if (kind == ANYTHING) {
        size = random_between(-120, 120);
        cross_size = random_between(-120, 120);
        offset_size = random_between(-120, 120);
    }
    *first = random_coefficient(e_out, size, bits);
    *cross = random_coefficient(e_out, cross_size, bits);
    *offset = random_coefficient(e_out + 15, offset_size + 15, bits);
    if (kind == HALVES) {
        struct fl_coefficient *const all[3] = {first, cross, offset};
        for (int i = 0; i < 3; i++) /* 0, 1, 2, 3 halves */
            *all[i] = (struct fl_coefficient[]){
                {0, 0}, {1 << 30, e_out + 31}, {1 << 30, e_out + 30}, {3 << 29, e_out + 30}}[random_below(4)];
    }
}

static void check_affine(const struct fl_format *format, int64_t rows, int64_t channels) {
    const int64_t count = rows * channels;
    const bool gradient = random_below(2), one_kind = random_below(2);
    enum channel_kind kind = random_below(CHANNEL_KINDS);
    struct fl_args args = {.op = gradient ? FL_OP_CHANNEL_AFFINE_GRAD : FL_OP_CHANNEL_AFFINE,
                           .format = format,
                           .p.batch_norm = {.m = rows, .n = channels, .relu = !gradient && random_below(2)},
                           .rounding = random_rounding()};
    const int64_t masked = random_below(2);
    for (int i = 0; i < (gradient ? masked ? 3 : 2 : 1 + (int)random_below(2)); i++)
        args.in[i] = random_view(count, random_between(format->e_min, format->e_max),
                                 random_below(3) ? FILL_SMALL : random_fill());
    args.out = (struct fl_view){.e = exponent_at(random_between(format->e_min, format->e_max)), .count = count};
    const size_t n = (size_t)channels;
    struct fl_channels k = {.first = allocate(n * sizeof *k.first),
                            .cross = allocate(n * sizeof *k.cross),
                            .offset = allocate(n * sizeof *k.offset),
                            .first_centre = allocate(n * sizeof *k.first_centre),
                            .cross_centre = allocate(n * sizeof *k.cross_centre)};
    for (int64_t c = 0; c < channels; c++) {
        if (!one_kind)
            kind = random_below(8) ? NEAR : random_below(CHANNEL_KINDS);
        random_channel(kind, fl_exponent(&args.out), &k, c);
    }
    args.p.batch_norm.channels = k;
    check_rows(&args, exact_affine, false, ALL_ROWS);
    release_from(0);
}

/* --- stochastic gradient descent --- */

static int64_t weight_mantissa(const struct fl_view *w, int64_t i, int *e) {
    *e = fl_exponent(w) + (w->wide ? 16 : 0);
    return w->wide ? ((const int32_t *)w->wide)[i] : mantissa_of(w, i);
}

static struct number exact_sgd(const struct fl_args *args, int64_t i) {
    int e;
    if (args->op == FL_OP_SGD_UPDATE) {
        const int64_t w = weight_mantissa(&args->in[0], i, &e);
        return number_add(number_of(w, e),
                          scaled(-args->p.sgd.rate, mantissa_of(&args->in[1], i), fl_exponent(&args->in[1])));
    }
    const int64_t w = weight_mantissa(&args->in[2], i, &e);
    struct number v = scaled(args->p.sgd.momentum, mantissa_of(&args->in[0], i), fl_exponent(&args->in[0]));
    v = number_add(v, value_of(&args->in[1], i));
    return number_add(v, scaled(args->p.sgd.weight_decay, w, e));
}

static void give_wide(struct fl_view *view) {
    int32_t *wide = allocate((size_t)view->count * sizeof *wide);
    for (int64_t i = 0; i < view->count; i++) {
        int64_t m = (int64_t)mantissa_of(view, i) * 65536 + random_between(-32768, 32767);
        wide[i] = (int32_t)(m > FL_WIDE_LIMIT ? FL_WIDE_LIMIT : m < -FL_WIDE_LIMIT ? -FL_WIDE_LIMIT : m);
    }
    view->wide = wide;
}

/* Momentum whose terms lie more than 60 bits apart: the first term is often half way between two results, and the last
 * ones, far below the range of 64 bits, decide the rounding. */
static void check_sgd_spread(const struct fl_format *format, int64_t count) {
    const int e = random_between(1, 9), spread = random_between(44, 61), wide = (int)random_below(2);
    struct fl_args args = {.op = FL_OP_SGD_MOMENTUM,
                           .format = format,
                           .p.sgd.momentum = random_below(2) ? 1 : -1,
                           .p.sgd.weight_decay = (float)ldexp(random_below(2) ? 1 : -1, -(spread - 16 * wide)),
                           .rounding = {TENSOR_ROUND_NEAREST, 0, 0}};
    args.in[0] = random_view(count, e, FILL_SMALL);
    args.in[1] = random_view(count, clamp_exponent(format, e + spread - (int)random_below(10)),
                             random_below(2) ? FILL_SMALL : FILL_ZERO);
    args.in[2] = random_view(count, e, random_below(2) ? FILL_SMALL : FILL_RANDOM);
    if (wide)
        give_wide(&args.in[2]);
    args.out = (struct fl_view){.e = exponent_at(e - (int)random_below(2)), .count = count};
    check_rows(&args, exact_sgd, true, ALL_ROWS);
    release_from(0);
}

static void check_sgd(const struct fl_format *format, int64_t count) {
    static const float rates[] = {0.1f, 0.9f, 1e-4f, 5e-4f, 1, 0, -0.25f};
    const bool update = random_below(2), wide = random_below(2), usual = random_below(2);
    const int e = random_between(format->e_min, format->e_max);
    const float first = usual ? rates[random_below(7)] : random_float();
    const float second = usual ? rates[random_below(7)] : random_float();
    struct fl_args args = {.op = update ? FL_OP_SGD_UPDATE : FL_OP_SGD_MOMENTUM,
                           .format = format,
                           .p.sgd = {.momentum = first, .weight_decay = second},
                           .rounding = random_rounding()};
    if (update)
        args.p.sgd = (struct fl_sgd){.rate = first};
    for (int i = 0; i < (update ? 2 : 3); i++)
        args.in[i] = random_view(count, i ? random_exponent(format, e) : e, random_fill());
    if (wide)
        give_wide(&args.in[update ? 0 : 2]);
    args.out = (struct fl_view){.e = exponent_at(random_exponent(format, e)), .count = count};
    if (update && wide)
        args.out.wide = args.in[0].wide; /* each run replaces it by memory of its own */
    check_rows(&args, exact_sgd, true, ALL_ROWS);
    release_from(0);
}

/* --- the codec --- */

static struct number exact_double(const struct fl_args *args, int64_t i) {
    return number_of_double(((const double *)args->in[0].wide)[i]);
}

static void check_codec(const struct fl_format *format, int64_t count) {
    const int e = random_between(format->e_min, format->e_max);
    const uint64_t replay = seed;
    double *values = allocate((size_t)count * sizeof *values);
    for (int64_t i = 0; i < count; i++) {
        const int kind = (int)random_below(5);
        values[i] = kind == 0 ? 0 : ldexp(random_between(-70000, 70000), -1 - e); /* ties and saturation */
        if (kind == 1)
            values[i] = ldexp((double)(int64_t)check_random(&seed), -e - random_between(40, 100));
        if (kind == 2)
            values[i] += ldexp(random_between(-3, 3), -e - random_between(1, 36));
        if (kind == 3 && random_below(9) == 0)
            values[i] = ldexp(random_between(-9, 9), 150);
    }
    struct fl_args args = {.op = FL_OP_NEG, .format = format, .rounding = random_rounding()};
    args.in[0].wide = values;
    args.out = (struct fl_view){.e = exponent_at(e), .count = count};
    const struct expected want = expect(&args, exact_double);
    int16_t *got = allocate((size_t)(count + 1) * sizeof *got);
    got[count] = 0x5b5b;
    struct fl_stats stats = {0}, measured = {0};
    struct fl_view out = {.data = got, .e = exponent_at(e), .count = count};
    const int64_t half = random_below(count + 1);
    format->encode(format, &out, 0, half, values, false, &args.rounding, &stats);
    format->encode(format, &out, half, count - half, values + half, true, &args.rounding, &stats);
    out.data = NULL;
    format->encode(format, &out, 0, count, values, true, &args.rounding, &measured);
    int64_t bad = -1;
    for (int64_t i = 0; i < count; i++)
        if (got[i] != want.data[i])
            bad = i;
    CHECK(bad < 0 && got[count] == 0x5b5b, "%s encode seed %" PRIx64 " e %d: %a is %d, want %d", format->name, replay,
          e, values[bad < 0 ? 0 : bad], got[bad < 0 ? 0 : bad], want.data[bad < 0 ? 0 : bad]);
    check_stats("encode", &stats, &want.stats);
    CHECK(measured.maximum == want.stats.maximum, "encode measured %a, want %a", measured.maximum, want.stats.maximum);
    out.data = got;
    double *back = allocate((size_t)count * sizeof *back);
    format->decode(format, &out, half, count - half, back);
    bad = -1;
    for (int64_t i = half; i < count; i++)
        if (back[i - half] != ldexp(got[i], -e))
            bad = i;
    CHECK(bad < 0, "%s decode seed %" PRIx64, format->name, replay);
    release_from(0);
}

static void check_nonfinite(const struct fl_format *format) {
    const double values[4] = {NAN, INFINITY, -INFINITY, 1};
    int16_t got[4];
    struct fl_view out = {.data = got, .e = exponent_at(3), .count = 4};
    for (int mode = 0; mode < 2; mode++) {
        const struct fl_rounding rounding = {mode ? TENSOR_ROUND_STOCHASTIC : TENSOR_ROUND_NEAREST, 1, 2};
        struct fl_stats stats = {0};
        format->encode(format, &out, 0, 4, values, false, &rounding, &stats);
        CHECK(got[0] == 0 && got[1] == 32767 && got[2] == -32767 && got[3] == 8, "%d %d %d %d", got[0], got[1], got[2],
              got[3]);
        CHECK(stats.nonfinite == 3 && stats.saturated == 2 && stats.flushed == 0 && stats.maximum == 1,
              "nonfinite %" PRId64 " saturated %" PRId64, stats.nonfinite, stats.saturated);
    }
}

/* Stochastic rounding has no bias: the mean of n draws of a value lies within 5 standard deviations of it, each draw's
 * being at most one half of a mantissa unit. */
static void check_unbiased(const struct fl_format *format) {
    enum { N = 40000 };
    for (int trial = 0; trial < 8; trial++) {
        const int16_t m = (int16_t)random_between(-4000, 4000);
        int16_t *x = allocate(N * sizeof *x), *y = allocate(N * sizeof *y);
        for (int i = 0; i < N; i++)
            x[i] = m;
        struct fl_stats stats = {0};
        const int shift = random_between(1, 14);
        struct fl_args args = {.op = FL_OP_NEG,
                               .format = format,
                               .in = {{.data = x, .e = exponent_at(20), .count = N}},
                               .out = {.data = y, .e = exponent_at(20 - shift), .count = N},
                               .rounding = {TENSOR_ROUND_STOCHASTIC, check_random(&seed), (uint64_t)trial},
                               .stats = &stats};
        CHECK(!fl_kernel_select(format, args.op, FL_AVX512, NULL)(&args), "neg failed");
        double sum = 0;
        for (int i = 0; i < N; i++)
            sum += y[i];
        const double bound = 5 * 0.5 / sqrt(N), want = -ldexp(m, -shift);
        CHECK(fabs(sum / N - want) <= bound, "%s: mean %g of %g, bound %g", format->name, sum / N, want, bound);
        release_from(0);
    }
}

int main(int argc, char **argv) {
    const struct fl_format *formats[] = {fl_format_of(FMT_FLEX16_5), fl_format_of(FMT_DFP16)};
    static const int64_t channel_counts[] = {1, 3, 7, 8, 10, 16, 32, 64, 100, 1000, 1024, 1025, 2050};
    const uint64_t start = argc > 1 ? strtoull(argv[1], NULL, 16) : 0x5eed;
    seed = start;
    printf("seed %" PRIx64 "\n", start);
    for (int f = 0; f < 2; f++) {
        for (int round = 0; round < 30; round++) {
            for (size_t i = 0; i < sizeof maps / sizeof maps[0]; i++)
                check_map(formats[f], maps[i], random_count());
            check_wide_map(formats[f], FL_OP_ADD, random_count());
            check_wide_map(formats[f], FL_OP_SUB, random_count());
            check_wide_map(formats[f], FL_OP_ADD_SCALED, random_count());
            check_wide_map(formats[f], FL_OP_ADD_RELU_GRAD, random_count());
            check_sgd(formats[f], random_count());
            check_sgd(formats[f], random_count());
            check_sgd_spread(formats[f], random_count());
            check_codec(formats[f], random_count());
            check_max_abs(formats[f], random_count());
        }
        for (size_t i = 0; i < sizeof channel_counts / sizeof channel_counts[0]; i++)
            for (int round = 0; round < 4; round++) {
                const int64_t c = channel_counts[i], rows = random_below(6000 / c + 2) + 1;
                check_bias(formats[f], rows, c);
                check_sum_rows(formats[f], rows, c);
                check_channel_sums(formats[f], rows, c);
                check_affine(formats[f], rows, c);
            }
        /* more than one chunk for the threads */
        check_map(formats[f], FL_OP_ADD, 70001);
        check_sgd(formats[f], 40003);
        check_bias(formats[f], 3500, 20);
        check_sum_rows(formats[f], 9000, 16);
        check_channel_sums(formats[f], 9000, 16);
        check_channel_sums(formats[f], 70000, 1);
        check_affine(formats[f], 4400, 16);
        check_affine(formats[f], 60, 1100);
        check_nonfinite(formats[f]);
        check_unbiased(formats[f]);
    }
    return check_summary();
}
