/* optimiser.c - the public operations of optimisers: every check, then the kernel. Their factors stand in tensors. */
#include "core/base/fail.h"
#include "core/optimiser/optimiser_rules.h"
#include "core/queue/queue.h"
#include "core/base/sized.h"
#include "core/tensor/wide.h"
#include <math.h>
#include <string.h>

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        tensor_status try_status = (call);                                                                             \
        if (try_status)                                                                                                \
            return try_status;                                                                                         \
    } while (0)

/* --- checks ------------------------------------------------------------------------------------------------------- */

enum { OPERANDS = 4 };

struct operand {
    const char *name;
    const tensor *t;
};

static tensor_status check_operand(const char *op, const struct operand *y, const struct operand *x) {
    char ty[TENSOR_TEXT], tx[TENSOR_TEXT];
    if (x->t->format != y->t->format)
        return fl_fail(TENSOR_E_FORMAT, "%s: %s is %s, %s is %s; use tensor_convert", op, y->name, y->t->format->name,
                       x->name, x->t->format->name);
    TRY(fl_need_arithmetic(op, x->name, x->t));
    if (x->t->ndim != y->t->ndim || memcmp(x->t->shape, y->t->shape, (size_t)y->t->ndim * sizeof y->t->shape[0]))
        return fl_fail(TENSOR_E_SHAPE, "%s: %s is %s, %s is %s", op, y->name, fl_shape_text(y->t, ty), x->name,
                       fl_shape_text(x->t, tx));
    TRY(fl_check_apart(op, y->name, y->t, x->name, x->t));
    return fl_need_elements(op, x->t);
}

/* Of one format and shape; the first is the output, and the same tensor as those of `same` alone (a bit each). */
static tensor_status check_operands(const char *op, const struct operand *o, int n, unsigned same) {
    for (int i = 0; i < n; i++)
        if (!o[i].t)
            return fl_fail(TENSOR_E_ARGUMENT, "%s: %s is NULL", op, o[i].name);
    for (int i = 0; i < n; i++) {
        TRY(check_operand(op, &o[0], &o[i]));
        if (i && o[i].t->storage == o[0].t->storage && !(same >> i & 1))
            return fl_fail(TENSOR_E_ARGUMENT, "%s: %s and %s are the same tensor, the output must be another", op,
                           o[0].name, o[i].name);
    }
    return TENSOR_OK;
}

/* t is f64 [any, 4] on x's device; *first is where the row's numbers stand. */
static tensor_status find_row(const char *op, const tensor *factors, int row, const tensor *x, double **first) {
    char text[TENSOR_TEXT];
    if (!factors)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: factors is NULL", op);
    if (factors->format->id != FMT_F64 || factors->ndim != 2 || factors->shape[1] != FL_FACTORS)
        return fl_fail(TENSOR_E_SHAPE, "%s: factors is %s %s, expected f64 with rows of %d", op, factors->format->name,
                       fl_shape_text(factors, text), FL_FACTORS);
    if (row < 0 || row >= factors->shape[0])
        return fl_fail(TENSOR_E_ARGUMENT, "%s: row %d, expected 0 to %lld", op, row, (long long)factors->shape[0] - 1);
    TRY(fl_need_elements(op, factors));
    if (x)
        TRY(fl_check_apart(op, "factors", factors, "the output", x));
    *first = (double *)factors->storage->data + (int64_t)FL_FACTORS * row;
    return TENSOR_OK;
}

/* Rounding to nearest in 16 bits, a state that decays by less than half a step never decays. */
static tensor_status check_state(const char *op, const tensor *r) {
    const struct fl_storage *s = r->storage;
    if (s->wide || r->format->bytes > 2 ||
        (r->format->arithmetic == FL_ARITHMETIC_SHARED && s->rounding == TENSOR_ROUND_STOCHASTIC))
        return TENSOR_OK;
    return fl_fail(
        TENSOR_E_ARGUMENT,
        "%s: r is %s without a wide part and rounded to nearest, where it would stop moving; expected a wide "
        "part (tensor_keep_wide)%s",
        op, r->format->name, r->format->arithmetic == FL_ARITHMETIC_SHARED ? " or stochastic rounding" : "");
}

/* --- operations on elements --------------------------------------------------------------------------------------- */

tensor_status tensor_combine(tensor *y, const tensor *p, const tensor *q, const tensor *w, const tensor *factors,
                             int row) {
    static const char name[] = "combine";
    double *first = NULL;
    TRY(check_operands(name, (const struct operand[OPERANDS]){{"y", y}, {"p", p}, {"q", q}, {"w", w}},
                       w ? OPERANDS : OPERANDS - 1, 1u << 1 | 1u << 2));
    TRY(find_row(name, factors, row, y, &first));
    struct fl_args args = {
        .op = FL_OP_COMBINE,
        .in = {fl_wide_view_of(p), fl_view_of(q)},
        .numbers = {.f = {first}},
        .scalar = {.factors = first, .factor_count = w ? 3 : 2, .what = "combine: a factor as binary32"}};
    if (w)
        args.in[2] = fl_wide_view_of(w);
    return fl_write(y, &args);
}

tensor_status tensor_root_mean(tensor *r, const tensor *g, const tensor *factors, int row) {
    static const char name[] = "root_mean";
    double *first = NULL;
    TRY(check_operands(name, (const struct operand[]){{"r", r}, {"g", g}}, 2, 0));
    TRY(find_row(name, factors, row, r, &first));
    TRY(check_state(name, r));
    struct fl_args args = {.op = FL_OP_ROOT_MEAN,
                           .in = {fl_wide_view_of(r), fl_view_of(g)},
                           .numbers = {.f = {first}},
                           .scalar = {.factors = first, .factor_count = 3, .what = "root_mean: a factor as binary32"}};
    return fl_write(r, &args);
}

tensor_status tensor_add_ratio(tensor *y, const tensor *w, const tensor *m, const tensor *r, const tensor *factors,
                               int row) {
    static const char name[] = "add_ratio";
    double *first = NULL;
    TRY(check_operands(name, (const struct operand[OPERANDS]){{"y", y}, {"w", w}, {"m", m}, {"r", r}}, OPERANDS,
                       1u << 1));
    TRY(find_row(name, factors, row, y, &first));
    TRY(check_state(name, r));
    if (m->storage->wide && !r->storage->wide)
        return fl_fail(TENSOR_E_ARGUMENT, "add_ratio: m has a wide part and r has none, expected one beside the other");
    struct fl_args args = {.op = FL_OP_ADD_RATIO,
                           .in = {fl_wide_view_of(w), fl_wide_view_of(m), fl_wide_view_of(r)},
                           .numbers = {.f = {first}},
                           .scalar = {.factors = first, .factor_count = 4, .what = "add_ratio: a factor as binary32"}};
    return fl_write(y, &args);
}

tensor_status tensor_clip_weight(tensor *w, float limit) {
    static const char name[] = "clip_weight";
    TRY(check_operands(name, (const struct operand[]){{"w", w}}, 1, 0));
    if (!(limit >= 0 && isfinite(limit)))
        return fl_fail(TENSOR_E_ARGUMENT, "%s: limit %g, expected 0 or more", name, (double)limit);
    struct fl_args args = {.op = FL_OP_CLIP_WEIGHT, .in = {fl_wide_view_of(w)}, .alpha = limit};
    return fl_write(w, &args);
}

/* --- numbers ------------------------------------------------------------------------------------------------------ */

tensor_status tensor_sum_squares(tensor *sums, int64_t index, const tensor *x) {
    static const char name[] = "sum_squares";
    if (!sums || !x)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: %s is NULL", name, !sums ? "sums" : "x");
    TRY(fl_need_arithmetic(name, "x", x));
    TRY(fl_need_elements(name, x));
    if (sums->format->id != FMT_F64)
        return fl_fail(TENSOR_E_FORMAT, "%s: sums is %s, expected f64", name, sums->format->name);
    TRY(fl_need_elements(name, sums));
    if (index < 0 || index >= sums->count)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: number %lld, expected 0 to %lld", name, (long long)index,
                       (long long)sums->count - 1);
    TRY(fl_check_apart(name, "sums", sums, "x", x));
    struct fl_args args = {
        .op = FL_OP_SUM_SQUARES, .in = {fl_view_of(x)}, .numbers = {.f = {(double *)sums->storage->data + index}}};
    return fl_run(x, &args);
}

/* Tensors of numbers have no kernels; those of any format serve. */
static tensor_status run_numbers(const tensor *on, struct fl_args *args) {
    tensor dressed = *on;
    dressed.format = fl_format_at(0);
    return fl_run(&dressed, args);
}

static tensor_status check_fraction(const char *name, float value) {
    return value >= 0 && value < 1
               ? TENSOR_OK
               : fl_fail(TENSOR_E_ARGUMENT, "optimiser: %s %g, expected 0 or more and below 1", name, (double)value);
}

static tensor_status check_size(const char *name, float value) {
    return value >= 0 && isfinite(value)
               ? TENSOR_OK
               : fl_fail(TENSOR_E_ARGUMENT, "optimiser: %s %g, expected 0 or more", name, (double)value);
}

static tensor_status check_how(const tensor_optimiser *how) {
    if ((int)how->kind < TENSOR_OPTIMISER_SGD || how->kind > TENSOR_OPTIMISER_LAMB)
        return fl_fail(TENSOR_E_ARGUMENT, "optimiser: kind %d, expected %d to %d", (int)how->kind, TENSOR_OPTIMISER_SGD,
                       TENSOR_OPTIMISER_LAMB);
    TRY(check_fraction("beta1", how->beta1));
    TRY(check_fraction("beta2", how->beta2));
    TRY(check_fraction("momentum", how->momentum));
    TRY(check_size("epsilon", how->epsilon));
    TRY(check_size("weight decay", how->weight_decay));
    return check_size("norm", how->clip_norm);
}

/* The numbers of a step, and where they stand. */
static tensor_status find_numbers(const char *op, const tensor *numbers, double **first) {
    TRY(find_row(op, numbers, 0, NULL, first));
    return numbers->shape[0] == TENSOR_STEP_ROWS ? TENSOR_OK
                                                 : fl_fail(TENSOR_E_SHAPE, "%s: numbers has %lld rows, expected %d", op,
                                                           (long long)numbers->shape[0], TENSOR_STEP_ROWS);
}

tensor_status tensor_optimiser_begin_sized(tensor *numbers, const tensor_optimiser *given, size_t how_size) {
    tensor_optimiser ours;
    double *first = NULL;
    if (!given)
        return fl_fail(TENSOR_E_ARGUMENT, "optimiser_begin: how is NULL");
    TRY(fl_take_sized(&ours, sizeof ours, given, how_size, "optimiser_begin: tensor_optimiser"));
    TRY(find_numbers("optimiser_begin", numbers, &first));
    TRY(check_how(&ours));
    double n[FL_FACTORS * TENSOR_STEP_ROWS] = {0};
    n[FL_STEP_POWER_1] = n[FL_STEP_POWER_2] = n[FL_STEP_CLIP] = 1;
    n[FL_STEP_KIND] = (double)ours.kind;
    n[FL_STEP_BETA_1] = ours.beta1;
    n[FL_STEP_BETA_2] = ours.beta2;
    n[FL_STEP_EPSILON] = ours.epsilon;
    n[FL_STEP_DECAY] = ours.weight_decay;
    n[FL_STEP_CLIP_NORM] = ours.clip_norm;
    n[FL_STEP_MOMENTUM] = ours.momentum;
    return tensor_load_f64(numbers, n, FL_FACTORS * TENSOR_STEP_ROWS);
}

static tensor_status optimiser_step(const char *name, tensor *numbers, const tensor *rate, const tensor *sums,
                                    const tensor *scale) {
    double *first = NULL;
    TRY(find_numbers(name, numbers, &first));
    TRY(fl_check_apart(name, "rate", rate, "numbers", numbers));
    TRY(fl_check_numbers(name, "rate", rate, FMT_F32, 1, numbers));
    struct fl_args args = {.op = FL_OP_OPTIMISER_STEP,
                           .in = {fl_view_of(numbers)},
                           .numbers = {.f = {first}},
                           .scalar = {.alpha = rate->storage->data, .what = "optimiser_step: rate"}};
    if (sums) {
        if (sums->format->id != FMT_F64 || sums->storage == numbers->storage)
            return fl_fail(TENSOR_E_ARGUMENT, "%s: sums is %s, expected another tensor of f64", name,
                           sums == numbers ? "the tensor of the numbers" : sums->format->name);
        TRY(fl_need_elements(name, sums));
        TRY(fl_check_apart(name, "sums", sums, "numbers", numbers));
        args.numbers.f[1] = sums->storage->data;
        args.geo.k = sums->count;
    }
    if (scale) {
        TRY(fl_check_apart(name, "scale", scale, "numbers", numbers));
        TRY(fl_check_numbers(name, "scale", scale, FMT_F64, 1, numbers));
        args.numbers.f[2] = scale->storage->data;
    }
    return run_numbers(numbers, &args);
}

tensor_status tensor_optimiser_step(tensor *numbers, const tensor *rate, const tensor *sums) {
    return optimiser_step("optimiser_step", numbers, rate, sums, NULL);
}

tensor_status tensor_optimiser_step_scaled(tensor *numbers, const tensor *rate, const tensor *sums,
                                           const tensor *scale) {
    static const char name[] = "optimiser_step_scaled";
    return scale ? optimiser_step(name, numbers, rate, sums, scale)
                 : fl_fail(TENSOR_E_ARGUMENT, "%s: scale is NULL", name);
}

tensor_status tensor_trust_rate(tensor *to, const tensor *rate, const tensor *sums) {
    static const char name[] = "trust_rate";
    if (!to || !rate || !sums)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: %s is NULL", name, !to ? "the result" : !rate ? "rate" : "sums");
    TRY(fl_check_numbers(name, "the result", to, FMT_F32, 1, sums));
    TRY(fl_check_numbers(name, "rate", rate, FMT_F32, 1, sums));
    TRY(fl_check_numbers(name, "sums", sums, FMT_F64, 2, to));
    if (to->storage == rate->storage)
        return fl_fail(TENSOR_E_ARGUMENT, "%s: the result and rate are the same tensor", name);
    struct fl_args args = {.op = FL_OP_TRUST_RATE,
                           .in = {fl_view_of(sums)},
                           .out = fl_view_of(to),
                           .numbers = {.f = {sums->storage->data}},
                           .scalar = {.alpha = rate->storage->data, .what = "trust_rate: rate"}};
    return run_numbers(to, &args);
}
