/* tensor_values.c - values in and out of tensors, conversion between formats, exponents set by hand.
 *
 * Everything goes through the formats' codecs in blocks of doubles, threaded by fixed parts. */
#include "core/exact.h"
#include "core/fail.h"
#include "core/memory.h"
#include "core/parallel.h"
#include "core/tensor_object.h"
#include <math.h>
#include <string.h>

enum { BLOCK = 1024, PART = 64 * BLOCK };

/* Where a block of doubles comes from. */
struct source {
    const float *f;
    const double *d;
    const struct fl_format *format; /* a tensor */
    struct fl_view view;
};

static void fetch(const struct source *s, int64_t first, int64_t n, double *block) {
    if (s->f)
        for (int64_t i = 0; i < n; i++)
            block[i] = s->f[first + i];
    else if (s->d)
        memcpy(block, s->d + first, (size_t)n * sizeof *block);
    else
        s->format->decode(&s->view, first, n, block);
}

struct part_result {
    struct fl_stats stats;
    double maximum;    /* of the source, finite values */
    int64_t nonfinite; /* position of the first NaN or Inf, -1 */
};

struct transfer {
    struct source source;
    const struct fl_format *format; /* of the destination; NULL: only look */
    struct fl_view out;
    struct fl_rounding rounding;
    bool op_result;
    int64_t count;
    struct part_result *results;
};

static void transfer_part(void *context, int part) {
    struct transfer *t = context;
    struct part_result r = {.nonfinite = -1};
    int64_t end = (int64_t)(part + 1) * PART < t->count ? (int64_t)(part + 1) * PART : t->count;
    double block[BLOCK];
    for (int64_t first = (int64_t)part * PART; first < end; first += BLOCK) {
        int64_t n = end - first < BLOCK ? end - first : BLOCK;
        fetch(&t->source, first, n, block);
        if (t->format) {
            t->format->encode(&t->out, first, n, block, t->op_result, &t->rounding, &r.stats);
            continue;
        }
        for (int64_t i = 0; i < n; i++) {
            double a = fabs(block[i]);
            if (!(a <= 1.7976931348623157e308)) {
                if (r.nonfinite < 0)
                    r.nonfinite = first + i;
            } else if (a > r.maximum) {
                r.maximum = a;
            }
        }
    }
    t->results[part] = r;
}

static tensor_status transfer(struct transfer *t, struct part_result *total) {
    int parts = (int)((t->count + PART - 1) / PART);
    struct part_result few[16];
    t->results = parts <= 16 ? few : fl_alloc((size_t)parts * sizeof *t->results);
    if (!t->results)
        return fl_fail(TENSOR_E_MEMORY, "no memory for %d parts", parts);
    fl_parallel(parts, transfer_part, t);
    *total = (struct part_result){.nonfinite = -1};
    for (int i = 0; i < parts; i++) {
        fl_stats_merge(&total->stats, &t->results[i].stats);
        if (t->results[i].maximum > total->maximum)
            total->maximum = t->results[i].maximum;
        if (total->nonfinite < 0)
            total->nonfinite = t->results[i].nonfinite;
    }
    if (t->results != few)
        fl_free(t->results);
    return TENSOR_OK;
}

static void keep_statistics(tensor *t, const struct fl_stats *s) {
    tensor_stats *total = &t->state->total;
    t->state->last = (tensor_stats){s->maximum, s->gamma, s->saturated, s->flushed, s->nonfinite, t->count, 1};
    if (s->maximum > total->maximum)
        total->maximum = s->maximum;
    if (s->gamma > total->gamma)
        total->gamma = s->gamma;
    total->saturated += s->saturated;
    total->flushed += s->flushed;
    total->nonfinite += s->nonfinite;
    total->elements += t->count;
    total->writes++;
    t->state->writes++;
}

static double source_value(const struct source *s, int64_t i) {
    double v;
    fetch(s, i, 1, &v);
    return v;
}

/* The wide copy from doubles: shared exponent formats m * 2^-(e+16), nearest even; float masters. */
static void fill_wide(tensor *t, const struct source *source) {
    double block[BLOCK];
    for (int64_t first = 0; first < t->count; first += BLOCK) {
        int64_t n = t->count - first < BLOCK ? t->count - first : BLOCK;
        fetch(source, first, n, block);
        for (int64_t i = 0; i < n; i++) {
            if (t->format->arithmetic == FL_ARITHMETIC_SHARED) {
                double m = nearbyint(ldexp(block[i], t->state->autoflex.e + 16));
                const double limit = FL_WIDE_LIMIT;
                ((int32_t *)t->state->wide)[first + i] = (int32_t)(m > limit ? limit : m < -limit ? -limit : m);
            } else {
                ((float *)t->state->wide)[first + i] = (float)block[i];
            }
        }
    }
}

/* The 16-bit view of a wide shared-exponent copy is its own rounding, as after sgd_update; a float format's view is the
 * rounding of its master. */
static void view_from_wide(tensor *t, struct fl_stats *stats) {
    double block[BLOCK];
    struct fl_view out = fl_view_of(t);
    struct fl_rounding nearest = {TENSOR_ROUND_NEAREST, 0, 0};
    struct fl_stats view_stats = {0};
    for (int64_t first = 0; first < t->count; first += BLOCK) {
        int64_t n = t->count - first < BLOCK ? t->count - first : BLOCK;
        for (int64_t i = 0; i < n; i++)
            block[i] = t->format->arithmetic == FL_ARITHMETIC_SHARED
                           ? ldexp(((const int32_t *)t->state->wide)[first + i], -(t->state->autoflex.e + 16))
                           : ((const float *)t->state->wide)[first + i];
        t->format->encode(&out, first, n, block, false, &nearest, &view_stats);
    }
    stats->gamma = view_stats.gamma;
}

static tensor_status load(const char *what, tensor *t, const struct source *source, int64_t count) {
    if (!t)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: tensor is NULL", what);
    if (count != t->count) {
        char text[TENSOR_TEXT];
        return fl_fail(TENSOR_E_SHAPE, "%s: %lld values for a tensor %s of %lld", what, (long long)count,
                       fl_shape_text(t, text), (long long)t->count);
    }
    struct fl_tensor_state *state = t->state;
    struct transfer look = {.source = *source, .count = count};
    struct part_result seen;
    const bool shared = t->format->arithmetic == FL_ARITHMETIC_SHARED;
    if (shared) {
        tensor_status status = transfer(&look, &seen);
        if (status)
            return status;
        if (seen.nonfinite >= 0)
            return fl_fail(TENSOR_E_ARGUMENT, "%s: value %lld is %g, %s holds finite numbers only", what,
                           (long long)seen.nonfinite, source_value(source, seen.nonfinite), t->format->name);
    }
    struct autoflex before = state->autoflex;
    if (shared && autoflex_needs_maximum(state->autoflex.predictor))
        autoflex_fit(&state->autoflex, seen.maximum);
    else if (shared)
        autoflex_load(&state->autoflex, seen.maximum);
    struct transfer copy = {
        .source = *source,
        .format = t->format,
        .out = fl_view_of(t),
        .count = count,
        .rounding = {state->rounding == TENSOR_ROUND_TRUNCATE ? TENSOR_ROUND_TRUNCATE : TENSOR_ROUND_NEAREST, 0, 0}};
    tensor_status status = transfer(&copy, &seen);
    if (status) {
        state->autoflex = before;
        return status;
    }
    if (state->wide) {
        fill_wide(t, source);
        view_from_wide(t, &seen.stats);
    }
    keep_statistics(t, &seen.stats);
    return TENSOR_OK;
}

tensor_status tensor_load_f32(tensor *t, const float *values, int64_t count) {
    if (!values)
        return fl_fail(TENSOR_E_ARGUMENT, "tensor_load_f32: values is NULL");
    return load("tensor_load_f32", t, &(struct source){.f = values}, count);
}

tensor_status tensor_load_f64(tensor *t, const double *values, int64_t count) {
    if (!values)
        return fl_fail(TENSOR_E_ARGUMENT, "tensor_load_f64: values is NULL");
    return load("tensor_load_f64", t, &(struct source){.d = values}, count);
}

static tensor_status check_store(const char *what, const tensor *t, const void *values, int64_t count) {
    if (!t || !values)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: %s is NULL", what, t ? "values" : "tensor");
    if (count != t->count)
        return fl_fail(TENSOR_E_SHAPE, "%s: room for %lld values, the tensor has %lld", what, (long long)count,
                       (long long)t->count);
    return TENSOR_OK;
}

tensor_status tensor_store_f64(const tensor *t, double *values, int64_t count) {
    tensor_status status = check_store("tensor_store_f64", t, values, count);
    if (status)
        return status;
    struct fl_view view = fl_view_of(t);
    t->format->decode(&view, 0, count, values);
    return TENSOR_OK;
}

tensor_status tensor_store_f32(const tensor *t, float *values, int64_t count) {
    tensor_status status = check_store("tensor_store_f32", t, values, count);
    if (status)
        return status;
    struct fl_view view = fl_view_of(t);
    double block[BLOCK];
    for (int64_t first = 0; first < count; first += BLOCK) {
        int64_t n = count - first < BLOCK ? count - first : BLOCK;
        t->format->decode(&view, first, n, block);
        for (int64_t i = 0; i < n; i++)
            values[first + i] = (float)block[i];
    }
    return TENSOR_OK;
}

tensor_status tensor_store_wide_f64(const tensor *t, double *values, int64_t count) {
    tensor_status status = check_store("tensor_store_wide_f64", t, values, count);
    if (status)
        return status;
    if (!t->state->wide)
        return tensor_store_f64(t, values, count);
    for (int64_t i = 0; i < count; i++)
        values[i] = t->format->arithmetic == FL_ARITHMETIC_SHARED
                        ? ldexp(((const int32_t *)t->state->wide)[i], -(t->state->autoflex.e + 16))
                        : ((const float *)t->state->wide)[i];
    return TENSOR_OK;
}

static tensor_status check_same_shape(const char *what, const tensor *y, const tensor *x) {
    if (!y || !x)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: %s is NULL", what, y ? "x" : "y");
    char ty[TENSOR_TEXT], tx[TENSOR_TEXT];
    if (y->ndim != x->ndim || memcmp(y->shape, x->shape, (size_t)x->ndim * sizeof x->shape[0]))
        return fl_fail(TENSOR_E_SHAPE, "%s: y is %s, x is %s", what, fl_shape_text(y, ty), fl_shape_text(x, tx));
    return TENSOR_OK;
}

tensor_status tensor_convert(tensor *y, const tensor *x) {
    tensor_status status = check_same_shape("tensor_convert", y, x);
    if (status)
        return status;
    if (y->state == x->state)
        return TENSOR_OK;
    return load("tensor_convert", y, &(struct source){.format = x->format, .view = fl_view_of(x)}, y->count);
}

tensor_status tensor_copy(tensor *y, const tensor *x) {
    tensor_status status = check_same_shape("tensor_copy", y, x);
    if (status)
        return status;
    if (y->format != x->format)
        return fl_fail(TENSOR_E_FORMAT, "tensor_copy: y is %s, x is %s; tensor_convert changes the format",
                       y->format->name, x->format->name);
    if (y->state == x->state)
        return TENSOR_OK;
    if (!y->state->wide != !x->state->wide)
        return fl_fail(TENSOR_E_FORMAT, "tensor_copy: only %s has a wide copy", y->state->wide ? "y" : "x");
    memcpy(y->state->data, x->state->data, (size_t)x->count * (size_t)x->format->bytes);
    if (x->state->wide)
        memcpy(y->state->wide, x->state->wide, (size_t)x->count * (size_t)x->format->wide_bytes);
    y->state->autoflex = x->state->autoflex;
    return TENSOR_OK;
}

tensor_status tensor_keep_wide(tensor *t) {
    if (!t)
        return fl_fail(TENSOR_E_ARGUMENT, "tensor_keep_wide: tensor is NULL");
    if (t->state->wide || !t->format->wide_bytes)
        return TENSOR_OK;
    void *wide = fl_alloc((size_t)t->count * (size_t)t->format->wide_bytes);
    if (!wide)
        return fl_fail(TENSOR_E_MEMORY, "tensor_keep_wide: no memory for %lld elements of %d bytes",
                       (long long)t->count, t->format->wide_bytes);
    t->state->wide = wide;
    fill_wide(t, &(struct source){.format = t->format, .view = fl_view_of(t)});
    return TENSOR_OK;
}

static tensor_status check_exponent(const char *what, const tensor *t, int e) {
    if (!t)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: tensor is NULL", what);
    if (t->format->arithmetic != FL_ARITHMETIC_SHARED)
        return fl_fail(TENSOR_E_FORMAT, "%s: %s has no shared exponent", what, t->format->name);
    if (e < t->format->e_min || e > t->format->e_max)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: exponent %d, expected %d to %d for %s", what, e, t->format->e_min,
                       t->format->e_max, t->format->name);
    return TENSOR_OK;
}

tensor_status tensor_declare_exponent(tensor *t, int e) {
    tensor_status status = check_exponent("tensor_declare_exponent", t, e);
    if (!status)
        t->state->autoflex.e = e;
    return status;
}

tensor_status tensor_set_exponent(tensor *t, int e) {
    tensor_status status = check_exponent("tensor_set_exponent", t, e);
    if (status)
        return status;
    struct fl_tensor_state *state = t->state;
    struct fl_stats stats = {0};
    int64_t wide_saturated = 0;
    if (state->wide) {
        int32_t *wide = state->wide;
        for (int64_t i = 0; i < t->count; i++) {
            struct fl_wide_sum value = {wide[i], state->autoflex.e + 16};
            wide[i] = (int32_t)fl_wide_round(value, e + 16, FL_WIDE_LIMIT, NULL, &wide_saturated);
        }
    }
    struct fl_view in = fl_view_of(t), out = in;
    out.e = e;
    struct fl_rounding nearest = {TENSOR_ROUND_NEAREST, 0, 0};
    double block[BLOCK];
    for (int64_t first = 0; first < t->count; first += BLOCK) {
        int64_t n = t->count - first < BLOCK ? t->count - first : BLOCK;
        t->format->decode(&in, first, n, block);
        t->format->encode(&out, first, n, block, true, &nearest, &stats);
    }
    state->autoflex.e = e;
    if (state->wide)
        view_from_wide(t, &stats);
    keep_statistics(t, &stats);
    return TENSOR_OK;
}

tensor_status tensor_set_predictor(tensor *t, const char *name) {
    if (!t)
        return fl_fail(TENSOR_E_ARGUMENT, "tensor_set_predictor: tensor is NULL");
    if (t->format->arithmetic != FL_ARITHMETIC_SHARED)
        return fl_fail(TENSOR_E_FORMAT, "tensor_set_predictor: %s has no shared exponent", t->format->name);
    const struct autoflex_predictor *predictor = autoflex_find(name);
    if (!predictor)
        return fl_fail(TENSOR_E_ARGUMENT, "tensor_set_predictor: unknown predictor '%s'", name ? name : "(null)");
    int e = t->state->autoflex.e;
    autoflex_reset(&t->state->autoflex, predictor, t->format->e_min, t->format->e_max);
    t->state->autoflex.e = e;
    return TENSOR_OK;
}

tensor_status tensor_set_rounding(tensor *t, tensor_rounding rounding, uint64_t seed) {
    if (!t)
        return fl_fail(TENSOR_E_ARGUMENT, "tensor_set_rounding: tensor is NULL");
    const bool offered = rounding == TENSOR_ROUND_NEAREST ||
                         (rounding == TENSOR_ROUND_STOCHASTIC && t->format->arithmetic == FL_ARITHMETIC_SHARED) ||
                         (rounding == TENSOR_ROUND_TRUNCATE && t->format->truncates);
    if (!offered)
        return fl_fail(TENSOR_E_FORMAT, "tensor_set_rounding: %s does not offer rounding %d", t->format->name,
                       (int)rounding);
    t->state->rounding = rounding;
    t->state->seed = seed;
    return TENSOR_OK;
}

/* --- writes by operations --- */

static struct fl_rounding rounding_of(const tensor *t) {
    return (struct fl_rounding){t->state->rounding, t->state->seed, t->state->writes};
}

/* Runs once at the exponent in args->out.e. */
static tensor_status attempt(tensor *out, fl_kernel kernel, struct fl_args *args, fl_remake remake, void *context,
                             bool measure, struct fl_stats *stats) {
    *stats = (struct fl_stats){0};
    args->stats = stats;
    args->rounding = rounding_of(out);
    args->out.data = measure ? NULL : out->state->data;
    args->out.wide = out->state->wide;
    if (remake)
        remake(args, args->out.e, context);
    return kernel(args);
}

static bool reads_its_output(const tensor *out, const struct fl_args *args) {
    for (int i = 0; i < 3; i++)
        if (args->in[i].data == out->state->data)
            return true;
    return false;
}

tensor_status fl_write(tensor *out, struct fl_args *args, fl_remake remake, void *context) {
    enum fl_backend cap;
    tensor_status status = fl_backend_cap(&cap);
    if (status)
        return status;
    fl_kernel kernel = fl_kernel_select(out->format, args->op, cap, NULL);
    struct fl_tensor_state *state = out->state;
    struct autoflex *a = &state->autoflex;
    struct fl_stats stats;
    args->out = fl_view_of(out);
    args->format = out->format;
    if (out->format->arithmetic != FL_ARITHMETIC_SHARED) {
        status = attempt(out, kernel, args, remake, context, false, &stats);
        if (!status)
            keep_statistics(out, &stats);
        return status;
    }
    struct autoflex before = *a;
    const bool fits = autoflex_needs_maximum(a->predictor);
    if (!fits && a->initialised)
        autoflex_adjust(a);
    if (fits || !a->initialised) {
        /* The exact maximum decides the exponent. "current" mostly finds the exponent of the last write right again:
         * then the first run is the only one. Operands that are overwritten must be measured first. */
        const bool measure = !fits || !a->initialised || reads_its_output(out, args);
        args->out.e = a->e;
        status = attempt(out, kernel, args, remake, context, measure, &stats);
        if (status) {
            *a = before;
            return status;
        }
        int e = a->e;
        if (fits)
            autoflex_fit(a, stats.maximum);
        else
            autoflex_initialise(a, stats.maximum);
        if (!measure && a->e == e) {
            autoflex_record(a, stats.gamma, stats.maximum);
            keep_statistics(out, &stats);
            return TENSOR_OK;
        }
    }
    args->out.e = a->e;
    status = attempt(out, kernel, args, remake, context, false, &stats);
    if (status) {
        *a = before;
        return status;
    }
    autoflex_record(a, stats.gamma, stats.maximum);
    keep_statistics(out, &stats);
    return TENSOR_OK;
}

tensor_status fl_write_values(tensor *out, const double *values) {
    struct fl_tensor_state *state = out->state;
    struct autoflex before = state->autoflex;
    struct part_result result;
    tensor_status status;
    if (out->format->arithmetic == FL_ARITHMETIC_SHARED) {
        const bool fits = autoflex_needs_maximum(state->autoflex.predictor);
        if (fits || !state->autoflex.initialised) {
            struct transfer look = {.source = {.d = values}, .count = out->count};
            if ((status = transfer(&look, &result)))
                return status;
            if (fits)
                autoflex_fit(&state->autoflex, result.maximum);
            else
                autoflex_initialise(&state->autoflex, result.maximum);
        } else {
            autoflex_adjust(&state->autoflex);
        }
    }
    struct transfer write = {.source = {.d = values},
                             .format = out->format,
                             .out = fl_view_of(out),
                             .rounding = rounding_of(out),
                             .op_result = true,
                             .count = out->count};
    if ((status = transfer(&write, &result))) {
        state->autoflex = before;
        return status;
    }
    if (out->format->arithmetic == FL_ARITHMETIC_SHARED)
        autoflex_record(&state->autoflex, result.stats.gamma, result.stats.maximum);
    keep_statistics(out, &result.stats);
    return TENSOR_OK;
}

tensor_status fl_read(const struct fl_format *format, struct fl_args *args, struct fl_stats *stats) {
    enum fl_backend cap;
    tensor_status status = fl_backend_cap(&cap);
    if (status)
        return status;
    args->stats = stats;
    args->format = format;
    return fl_kernel_select(format, args->op, cap, NULL)(args);
}
