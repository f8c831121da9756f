/* describe.c - descriptions of the elements of a tensor, and of what another format would make of them: one pass in
 * threaded parts that depend only on the number of elements. Integers are exact; sums of doubles are those of eight
 * lanes for each part, added from the first lane to the last, then part by part. */
#include "core/rows/describe_there.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/base/parallel.h"
#include "core/rows/rows.h"
#include "core/tensor/wide.h"
#include "core/values/values.h"
#include <math.h>
#include <string.h>

enum { BLOCK = FL_DESCRIBED_BLOCK, PARTS = FL_DESCRIBED_PARTS, SUBNORMALS = FL_DESCRIBED_SUBNORMALS };
_Static_assert((int)BLOCK == (int)FL_BLOCK, "blocks of a transfer");

/* --- elements ----------------------------------------------------------------------------------------------------- */

struct elements {
    const struct fl_format *format;
    struct fl_view view;
    int64_t per_part;
    const struct fl_row_vectors *vectors;
    const struct fl_kernels *row; /* conversions; NULL: none */
};

static void take_elements(struct elements *x, const tensor *t, const struct fl_view *view) {
    enum fl_backend cap = FL_PORTABLE;
    *x = (struct elements){.format = t->format, .view = *view, .row = fl_converting_set(t->format)};
    x->per_part = fl_described_share(view->count);
    if (fl_backend_cap(&cap))
        cap = FL_PORTABLE;
    for (int backend = cap; backend > FL_REF && !x->vectors; backend--)
        x->vectors = fl_backend_runs((enum fl_backend)backend) ? fl_row_vectors_of((enum fl_backend)backend) : NULL;
    if (!x->vectors)
        x->vectors = &fl_row_vectors_portable;
}

static int parts_of(const struct elements *x) {
    return (int)((x->view.count + x->per_part - 1) / x->per_part);
}

static int64_t end_of(const struct elements *x, int part) {
    const int64_t end = (part + 1) * x->per_part;
    return end < x->view.count ? end : x->view.count;
}

/* At most BLOCK elements whose values are binary32: in place, or converted into `block`. */
static const float *floats_of(const struct elements *x, int64_t first, int64_t n, float *block) {
    double values[BLOCK];
    if (x->format->id == FMT_FP32)
        return (const float *)x->view.data + first;
    if (x->row) {
        x->row->to_floats(x->format, &x->view, first, n, block, false);
        return block;
    }
    x->format->decode(x->format, &x->view, first, n, values);
    for (int64_t i = 0; i < n; i++)
        block[i] = (float)values[i];
    return block;
}

static const int16_t *mantissas_of(const struct elements *x, int64_t first, int64_t n, int16_t *block) {
    double values[BLOCK];
    if (x->format->bytes == 2)
        return (const int16_t *)x->view.data + first;
    x->format->decode(x->format, &x->view, first, n, values);
    for (int64_t i = 0; i < n; i++)
        block[i] = (int16_t)values[i];
    return block;
}

static double sum_of_lanes(const double *lane) {
    double sum = 0;
    for (int l = 0; l < FL_DESCRIBED_LANES; l++)
        sum += lane[l];
    return sum;
}

/* --- description -------------------------------------------------------------------------------------------------- */

struct description {
    struct elements x;
    bool shared;
    struct fl_described of;
};

enum { LEAST_BINADE = -149 };

static void note_most(uint32_t *most, uint32_t value) {
    uint32_t known = __atomic_load_n(most, __ATOMIC_RELAXED);
    while (value > known && !__atomic_compare_exchange_n(most, &known, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}

static void note_least(uint32_t *least, uint32_t value) {
    uint32_t known = __atomic_load_n(least, __ATOMIC_RELAXED);
    while (value < known &&
           !__atomic_compare_exchange_n(least, &known, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}

static void add_count(struct description *d, int which, int64_t count) {
    if (count)
        __atomic_fetch_add(&d->of.counts[which], count, __ATOMIC_RELAXED);
}

/* How many words had bit b: those in groups of FL_DESCRIBED_GROUP and those in the carries. */
static int64_t bit_of(uint32_t groups, const uint32_t *carry, int b) {
    int64_t sum = (int64_t)groups * FL_DESCRIBED_GROUP;
    for (int k = 0; k < FL_DESCRIBED_CARRIES; k++)
        sum += (int64_t)(carry[k] >> b & 1) << k;
    return sum;
}

static void add_float_bits(struct description *d, const struct fl_described_floats *seen) {
    int64_t counted = 0;
    for (int b = 0; b < 32 && seen->by_bits; b++) {
        int64_t sum = 0;
        for (int l = 0; l < 16; l++) {
            uint32_t carry[FL_DESCRIBED_CARRIES];
            for (int k = 0; k < FL_DESCRIBED_CARRIES; k++)
                carry[k] = seen->carry[k][l];
            sum += bit_of(seen->bit[b][l], carry, b);
        }
        add_count(d, SUBNORMALS + seen->base - b - 1, sum);
        counted += sum;
    }
    add_count(d, FL_DESCRIBED_ZEROS, seen->by_bits - counted);
}

/* Adds to at_least[b] how many |m| >= 2^b, and sets the bits to zero. */
static void take_mantissa_bits(struct fl_described_mantissas *seen, int64_t at_least[17]) {
    for (int b = 0; b < 16; b++) {
        for (int l = 0; l < 32; l++) {
            uint32_t carry[FL_DESCRIBED_CARRIES];
            for (int k = 0; k < FL_DESCRIBED_CARRIES; k++)
                carry[k] = seen->carry[k][l];
            at_least[b] += bit_of(seen->bit[b][l], carry, b);
        }
        for (int level = b + 1; level <= 16; level++)
            at_least[b] += seen->level[level];
    }
    memset(seen->carry, 0, sizeof seen->carry);
    memset(seen->bit, 0, sizeof seen->bit);
    memset(seen->level, 0, sizeof seen->level);
}

static void describe_floats(struct description *d, int part) {
    struct fl_described_floats seen = {.least = UINT32_MAX};
    float block[BLOCK];
    const int64_t end = end_of(&d->x, part);
    int64_t special[2] = {0}, below = 0;
    for (int64_t i = part * d->x.per_part; i < end; i += BLOCK) {
        const int64_t n = end - i < BLOCK ? end - i : BLOCK;
        d->x.vectors->describe_floats(floats_of(&d->x, i, n, block), n, d->of.centre, &seen);
    }
    for (int i = 0; i < 4; i++)
        d->of.sums[part][i] = sum_of_lanes(seen.sum[i]);
    for (int e = 0; e < 256; e++) {
        int64_t count = 0;
        for (int table = 0; table < 8; table++)
            count += seen.count[table][e];
        if (e == 0 || e == 255)
            special[e != 0] = count;
        else
            add_count(d, SUBNORMALS + e - 1, count);
    }
    add_float_bits(d, &seen);
    for (int bit = 0; bit < SUBNORMALS; bit++) {
        add_count(d, bit, seen.subnormal[bit]);
        below += seen.subnormal[bit];
    }
    add_count(d, FL_DESCRIBED_ZEROS, special[0] - below);
    add_count(d, FL_DESCRIBED_INFINITE, special[1] - seen.nan);
    add_count(d, FL_DESCRIBED_NAN, seen.nan);
    note_most(&d->of.most, seen.most);
    note_least(&d->of.least, seen.least);
}

static void describe_mantissas(struct description *d, int part) {
    struct fl_described_mantissas seen = {.least = UINT16_MAX};
    int16_t block[BLOCK];
    int64_t at_least[17] = {0};
    const int64_t first = part * d->x.per_part, end = end_of(&d->x, part);
    const int64_t piece = d->x.format->bytes == 2 ? FL_DESCRIBED_PIECE : BLOCK;
    for (int64_t i = first, since = 0; i < end; i += piece, since += piece) {
        const int64_t n = end - i < piece ? end - i : piece;
        if (since + n > FL_DESCRIBED_MOST) {
            take_mantissa_bits(&seen, at_least);
            since = 0;
        }
        d->x.vectors->describe_mantissas(mantissas_of(&d->x, i, n, block), n, &seen);
    }
    take_mantissa_bits(&seen, at_least);
    d->of.whole[part] = seen.sum;
    d->of.sizes[part] = seen.sizes;
    d->of.squares[part] = seen.squares;
    for (int bit = 0; bit < 16; bit++)
        add_count(d, bit, at_least[bit] - at_least[bit + 1]);
    add_count(d, FL_DESCRIBED_ZEROS, end - first - at_least[0]);
    note_most(&d->of.most, seen.most);
    note_least(&d->of.least, seen.least);
}

static void describe_part(void *context, int part, int worker) {
    (void)worker;
    struct description *d = context;
    if (d->shared)
        describe_mantissas(d, part);
    else
        describe_floats(d, part);
}

static double first_finite(const struct elements *x) {
    float block[BLOCK];
    for (int64_t i = 0; i < x->view.count; i += BLOCK) {
        const int64_t n = x->view.count - i < BLOCK ? x->view.count - i : BLOCK;
        const float *v = floats_of(x, i, n, block);
        for (int64_t j = 0; j < n; j++)
            if (isfinite(v[j]))
                return v[j];
    }
    return 0;
}

/* --- units -------------------------------------------------------------------------------------------------------- */

static double stored(const struct fl_format *format, const int32_t *e, double value) {
    uint64_t element = 0;
    const struct fl_view view = {.data = &element, .e = e, .count = 1};
    const struct fl_rounding nearest = {0};
    struct fl_stats ignored = {0};
    format->encode(format, &view, 0, 1, &value, false, &nearest, &ignored);
    format->decode(format, &view, 0, 1, &value);
    return value;
}

/* The units in the last place of a float format at exponent *e, found by its codec: digits after the leading one, and
 * the unit of the smallest numbers. */
static void find_units(const struct fl_format *format, const int32_t *e, int *digits, int *least) {
    const int one = -fl_exponent(&(struct fl_view){.e = e});
    const double unit = fl_power_of_two(one);
    *digits = 0;
    while (*digits < 52 && stored(format, e, unit + unit * fl_power_of_two(-*digits - 1)) ==
                               unit + unit * fl_power_of_two(-*digits - 1))
        (*digits)++;
    *least = one;
    while (*least > LEAST_BINADE && stored(format, e, fl_power_of_two(*least - 1)) == fl_power_of_two(*least - 1))
        (*least)--;
}

/* The root mean square of u / sqrt(12). */
static double rounding_of(const struct description *d, const tensor_description *to, double finite) {
    int digits, least;
    double sum = 0;
    if (d->shared)
        return fl_scale2(sqrt(1.0 / 12), -fl_exponent(&d->x.view));
    find_units(d->x.format, d->x.view.e, &digits, &least);
    for (int i = 0; i < TENSOR_BINS; i++) {
        const int unit = i + TENSOR_FIRST_BIN - digits;
        const double u = fl_power_of_two(unit > least ? unit : least);
        sum += (double)to->bins[i] * u * u;
    }
    return sqrt(sum / 12 / finite);
}

/* --- numbers ------------------------------------------------------------------------------------------------------ */

static void finish_floats(struct description *d, tensor_description *to, double finite) {
    double sum[4] = {0};
    float size[2];
    const uint32_t words[2] = {d->of.least + 1, d->of.most};
    for (int part = 0; part < parts_of(&d->x); part++)
        for (int i = 0; i < 4; i++)
            sum[i] += d->of.sums[part][i];
    memcpy(size, words, sizeof size);
    to->smallest = d->of.least < 0x7f800000u - 1 ? (double)size[0] : 0;
    to->largest = size[1];
    const double shift = sum[0] / finite, square = sum[1] / finite - shift * shift;
    to->mean = d->of.centre + shift;
    to->deviation = square > 0 ? sqrt(square) : 0;
    to->l1 = sum[2];
    to->l2 = sqrt(sum[3]);
}

static void finish_mantissas(struct description *d, tensor_description *to, double finite) {
    fl_int128 sum = 0;
    fl_uint128 sizes = 0, squares = 0;
    const int e = fl_exponent(&d->x.view);
    for (int part = 0; part < parts_of(&d->x); part++) {
        sum += d->of.whole[part];
        sizes += d->of.sizes[part];
        squares += d->of.squares[part];
    }
    to->smallest = d->of.most ? fl_scale2(d->of.least + 1, -e) : 0;
    to->largest = fl_scale2(d->of.most, -e);
    to->mean = fl_scale2(fl_double_of_128(sum) / finite, -e);
    const fl_int128 spread = (fl_int128)(squares * (fl_uint128)to->elements) - sum * sum; /* n^2 times the variance */
    to->deviation = fl_scale2(sqrt(fl_double_of_128(spread)) / finite, -e);
    to->l1 = fl_scale2(fl_double_of_128((fl_int128)sizes), -e);
    to->l2 = fl_scale2(sqrt(fl_double_of_128((fl_int128)squares)), -e);
}

static void finish(struct description *d, tensor_description *to) {
    const int lowest = d->shared ? -fl_exponent(&d->x.view) : LEAST_BINADE;
    *to = (tensor_description){.elements = d->x.view.count,
                               .zeros = d->of.counts[FL_DESCRIBED_ZEROS],
                               .infinite = d->of.counts[FL_DESCRIBED_INFINITE],
                               .nan = d->of.counts[FL_DESCRIBED_NAN],
                               .mean = NAN};
    for (int i = 0; i < FL_DESCRIBED_ZEROS; i++) {
        const int bin = lowest + i - TENSOR_FIRST_BIN, within = bin < 0 ? 0 : bin;
        to->bins[within < TENSOR_BINS ? within : TENSOR_BINS - 1] += d->of.counts[i];
    }
    const int64_t finite = to->elements - to->infinite - to->nan;
    to->deviation = to->rounding = NAN;
    if (!finite)
        return;
    if (d->shared)
        finish_mantissas(d, to, (double)finite);
    else
        finish_floats(d, to, (double)finite);
    to->rounding = rounding_of(d, to, (double)finite);
}

static tensor_status check_readable(const char *what, const tensor *x) {
    if (!x)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: x is NULL", what);
    tensor_status status = fl_need_elements(what, x);
    if (!status)
        status = fl_need_arithmetic(what, "x", x);
    if (status)
        return status;
    return x->format->arithmetic == FL_ARITHMETIC_SHARED && x->format->top > INT16_MAX
               ? fl_fail(TENSOR_E_UNSUPPORTED, "%s: %s has mantissas above %d", what, x->format->name, INT16_MAX)
               : TENSOR_OK;
}

tensor_status tensor_describe(tensor_description *to, const tensor *x) {
    static const char what[] = "tensor_describe";
    struct fl_seen seen;
    tensor_description ours;
    if (!to)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: the description is NULL", what);
    tensor_status status = check_readable(what, x);
    if (!status)
        status = fl_see(&seen, what, x);
    if (status)
        return status;
    struct description d = {.shared = x->format->arithmetic == FL_ARITHMETIC_SHARED, .of.least = UINT32_MAX};
    take_elements(&d.x, x, &seen.view);
    d.of.centre = d.shared ? 0 : first_finite(&d.x);
    fl_parallel(parts_of(&d.x), describe_part, &d);
    finish(&d, &ours);
    *to = ours;
    fl_free(seen.copy);
    return TENSOR_OK;
}

/* --- of a device -------------------------------------------------------------------------------------------------- */

static tensor_status examine(const char *what, const tensor *x, bool wide, struct fl_examining how) {
    const tensor_status status = check_readable(what, x);
    if (status)
        return status;
    struct fl_call call = {.kind = FL_CALL_EXAMINE,
                           .source = {.format = x->format, .view = wide ? fl_wide_view_of(x) : fl_view_of(x)},
                           .examining = how};
    return fl_submit(fl_queue_of(x->storage), &call);
}

bool fl_examines_there(const tensor_device *device) {
    return device->examines;
}

tensor_status fl_describe_there(struct fl_described *to, int64_t number, double *numbers, const tensor *x,
                                const struct fl_shadows *shadows) {
    const struct fl_format *formats[FL_MOST_SHADOWS];
    for (int i = 0; i < shadows->count; i++)
        formats[i] = fl_format_of(shadows->formats[i]);
    return examine("tensor_describe", x, false,
                   (struct fl_examining){.described = to,
                                         .numbers = numbers,
                                         .number = number,
                                         .shadows = {.states = shadows->states,
                                                     .measured = shadows->measured,
                                                     .formats = formats,
                                                     .count = shadows->count}});
}

void fl_describe_arrived(tensor_description *to, const struct fl_described *of, const tensor *x) {
    const struct fl_view view = {.e = &of->e, .count = x->count};
    struct description d = {.shared = x->format->arithmetic == FL_ARITHMETIC_SHARED, .of = *of};
    take_elements(&d.x, x, &view);
    finish(&d, to);
}

struct fl_shadowed fl_shadowed_of(const tensor *x, const struct autoflex *a, bool shared, bool loaded,
                                  uint64_t writes) {
    return (struct fl_shadowed){
        .slot = x->storage->slot, .writes = writes, .loaded = loaded, .shared = shared, .a = *a};
}

tensor_status fl_shadows_put(tensor_device *device, struct fl_shadowed *to, const struct fl_shadowed *from,
                             int64_t count) {
    return fl_put(fl_device_queue(device), to, from, (size_t)count * sizeof *to);
}

tensor_status fl_shadows_follow(tensor_device *device, struct fl_shadowed *states, int64_t count) {
    struct fl_call call = {.kind = FL_CALL_EXAMINE, .examining.shadows = {.states = states, .count = count}};
    return fl_submit(fl_device_queue(device), &call);
}

tensor_status fl_keep_there(double *to, const tensor *x) {
    return examine("telemetry", x, true, (struct fl_examining){.before = to});
}

tensor_status fl_compare_there(struct fl_moved *to, int64_t number, double *numbers, double *before, const tensor *x) {
    return examine("telemetry", x, true,
                   (struct fl_examining){.numbers = numbers, .before = before, .moved = to, .number = number});
}

/* --- another format ----------------------------------------------------------------------------------------------- */

struct measurement {
    struct elements x;
    const struct fl_format *format;
    const struct fl_kernels *row;
    bool floats; /* values before and after are binary32 */
    int32_t e;
    struct fl_stats stats[PARTS];
    struct fl_measured of;
};

enum { LEAST_EXPONENT = -112 }; /* every 2^15 2^-e is then a binary32 */

static bool holds_floats(const struct fl_format *format, int e) {
    return format->arithmetic == FL_ARITHMETIC_FLOAT || e >= LEAST_EXPONENT;
}

static const struct fl_rounding to_nearest = {0};

/* Measures at most BLOCK elements, and returns the number of pairs that are not finite. */
static int64_t measure_floats(struct measurement *m, int part, int64_t first, int64_t n, double sum[2][8]) {
    float block[BLOCK], after[BLOCK];
    _Alignas(64) char buffer[BLOCK * sizeof(float)];
    const struct fl_view there = {buffer, NULL, &m->e, n};
    const float *x = floats_of(&m->x, first, n, block);
    int64_t infinite = 0;
    m->row->from_floats(m->format, &there, 0, n, x, &to_nearest, &m->stats[part]);
    m->row->to_floats(m->format, &there, 0, n, after, false);
    m->x.vectors->add_errors(x, after, n, sum);
    for (int64_t i = 0; i < n; i++)
        infinite += (x[i] - x[i] != 0) | (after[i] - after[i] != 0);
    return infinite;
}

static int64_t measure_doubles(struct measurement *m, int part, int64_t first, int64_t n, double sum[2][8]) {
    double x[BLOCK], after[BLOCK];
    _Alignas(64) char buffer[BLOCK * sizeof(double)];
    const struct fl_view there = {buffer, NULL, &m->e, n};
    int64_t infinite = 0;
    m->x.format->decode(m->x.format, &m->x.view, first, n, x);
    m->format->encode(m->format, &there, 0, n, x, false, &to_nearest, &m->stats[part]);
    m->format->decode(m->format, &there, 0, n, after);
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(x[i]) || !isfinite(after[i])) {
            infinite++;
            continue;
        }
        sum[0][i % FL_DESCRIBED_LANES] += (after[i] - x[i]) * (after[i] - x[i]);
        sum[1][i % FL_DESCRIBED_LANES] += x[i] * x[i];
    }
    return infinite;
}

static void measure_part(void *context, int part, int worker) {
    (void)worker;
    struct measurement *m = context;
    double sum[2][FL_DESCRIBED_LANES] = {{0}};
    const int64_t end = end_of(&m->x, part);
    int64_t infinite = 0;
    for (int64_t i = part * m->x.per_part; i < end; i += BLOCK) {
        const int64_t n = end - i < BLOCK ? end - i : BLOCK;
        infinite += m->floats ? measure_floats(m, part, i, n, sum) : measure_doubles(m, part, i, n, sum);
    }
    for (int i = 0; i < 2; i++)
        m->of.sums[part][i] = sum_of_lanes(sum[i]);
    if (infinite)
        __atomic_fetch_add(&m->of.infinite, infinite, __ATOMIC_RELAXED);
}

void fl_measure_arrived(tensor_measure *to, const struct fl_measured *of, const tensor *x) {
    const int64_t share = fl_described_share(x->count);
    double error = 0, size = 0;
    *to = (tensor_measure){.elements = x->count,
                           .finite = x->count - of->infinite,
                           .saturated = of->saturated,
                           .flushed = of->flushed,
                           .nonfinite = of->nonfinite};
    for (int64_t part = 0; part * share < x->count; part++) {
        error += of->sums[part][0];
        size += of->sums[part][1];
    }
    if (to->finite) {
        to->error = sqrt(error / (double)to->finite);
        to->size = sqrt(size / (double)to->finite);
    }
}

static tensor_status check_format(const char *what, tensor_format id, int e) {
    const struct fl_format *format = fl_format_of(id);
    if (!format || format->arithmetic == FL_ARITHMETIC_NUMBERS)
        return fl_fail(TENSOR_E_FORMAT, "%s: %d is not a format", what, (int)id);
    const bool exponent = fl_has_exponent(format);
    const int low = exponent ? format->e_min : 0, high = exponent ? format->e_max : 0;
    return e < low || e > high ? fl_fail(TENSOR_E_ARGUMENT, "%s: exponent %d, expected %d to %d for %s", what, e, low,
                                         high, format->name)
                               : TENSOR_OK;
}

tensor_status tensor_measure_in(tensor_measure *to, const tensor *x, tensor_format format, int e) {
    static const char what[] = "tensor_measure_in";
    struct fl_seen seen;
    if (!to)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: the measure is NULL", what);
    tensor_status status = check_readable(what, x);
    if (!status)
        status = check_format(what, format, e);
    if (!status)
        status = fl_see(&seen, what, x);
    if (status)
        return status;
    struct measurement m = {.format = fl_format_of(format), .e = e};
    take_elements(&m.x, x, &seen.view);
    m.row = fl_converting_set(m.format);
    m.floats = m.row && m.format->bytes <= (int)sizeof(float) && holds_floats(x->format, fl_exponent(&seen.view)) &&
               holds_floats(m.format, e);
    fl_parallel(parts_of(&m.x), measure_part, &m);
    for (int part = 0; part < parts_of(&m.x); part++) {
        m.of.saturated += m.stats[part].saturated;
        m.of.flushed += m.stats[part].flushed;
        m.of.nonfinite += m.stats[part].nonfinite;
    }
    fl_measure_arrived(to, &m.of, x);
    fl_free(seen.copy);
    return TENSOR_OK;
}
