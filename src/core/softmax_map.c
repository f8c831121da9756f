/* softmax_map.c - softmax and its logarithm over the last dimension, with their gradients: reference kernels, kernels
 * of rows in threads for every format, the operations.
 *
 * Exponentials are those of elementary.h, in double, summed in the order of the row. The gradient of softmax is an
 * exact sum in integer formats, and in double in float formats. */
#include "core/any_format.h"
#include "core/check_operands.h"
#include "core/elementary.h"
#include "core/rows.h"
#include "core/softmax.h"
#include "core/softmax_map_rules.h"

/* Exponentials of n numbers, none of which is above zero, in place. */
typedef void (*exponentials)(double *x, int64_t n);

static void plain_exponentials(double *x, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        x[i] = fl_exp(x[i]);
}

/* --- the definition: one row -------------------------------------------------------------------------------------- */

/* The first `visible` of n numbers become scale x - the largest of them; what that was is gone. */
static void from_largest(double *z, int64_t visible, double scale) {
    for (int64_t c = 0; c < visible; c++)
        z[c] *= scale;
    double top = z[0];
    for (int64_t c = 1; c < visible; c++)
        top = z[c] > top ? z[c] : top;
    for (int64_t c = 0; c < visible; c++)
        z[c] -= top;
}

static double sum_in_order(const double *x, int64_t n) {
    double sum = 0;
    for (int64_t c = 0; c < n; c++)
        sum += x[c];
    return sum;
}

/* In place; elements that take no part become 0. */
static void softmax_row(double *z, int64_t n, int64_t visible, double scale, exponentials exp_of) {
    if (visible) {
        from_largest(z, visible, scale);
        exp_of(z, visible);
        const double sum = sum_in_order(z, visible);
        for (int64_t c = 0; c < visible; c++)
            z[c] /= sum;
    }
    for (int64_t c = visible; c < n; c++)
        z[c] = 0;
}

/* scratch: n numbers. */
static void log_softmax_row(double *z, int64_t n, double scale, double *scratch, exponentials exp_of) {
    from_largest(z, n, scale);
    memcpy(scratch, z, (size_t)n * sizeof *z);
    exp_of(scratch, n);
    const double log_sum = fl_log(sum_in_order(scratch, n));
    for (int64_t c = 0; c < n; c++)
        z[c] -= log_sum;
}

/* Of float formats, over p: scale p (dp - sum of p dp). */
static void softmax_slopes(double *p, const double *dp, int64_t n, int64_t visible, double scale) {
    double dot = 0;
    for (int64_t c = 0; c < visible; c++)
        dot += p[c] * dp[c];
    for (int64_t c = 0; c < visible; c++)
        p[c] = scale * (p[c] * (dp[c] - dot));
    for (int64_t c = visible; c < n; c++)
        p[c] = 0;
}

/* Of all formats, over y: scale (dy - exp(y) sum of dy). */
static void log_softmax_slopes(double *y, const double *dy, int64_t n, double scale, exponentials exp_of) {
    const double sum = sum_in_order(dy, n);
    exp_of(y, n);
    for (int64_t c = 0; c < n; c++)
        y[c] = scale * (dy[c] - y[c] * sum);
}

static int64_t visible_of(const struct fl_args *args, int64_t row) {
    return fl_softmax_visible(row, args->geo.n, args->geo.k);
}

static int64_t exact_dot(const double *p, const double *dp, int64_t visible) {
    int64_t dot = 0;
    for (int64_t c = 0; c < visible; c++)
        dot += (int64_t)p[c] * (int64_t)dp[c];
    return dot;
}

/* --- the definition: as kernels ----------------------------------------------------------------------------------- */

/* y <- x */
tensor_status fl_ref_softmax_map(const struct fl_args *args) {
    struct ref_work w;
    const tensor_status status = fl_ref_begin(&w, args);
    if (status)
        return status;
    const int64_t n = args->geo.n;
    memcpy(w.value, w.in[0], (size_t)w.count * sizeof *w.value);
    for (int64_t row = 0; row < args->geo.m; row++) {
        if (args->op == FL_OP_SOFTMAX)
            softmax_row(w.value + row * n, n, visible_of(args, row), args->alpha, plain_exponentials);
        else
            log_softmax_row(w.value + row * n, n, args->alpha, w.near + row * n, plain_exponentials);
    }
    memcpy(w.near, w.value, (size_t)w.count * sizeof *w.value);
    fl_ref_end(&w);
    return TENSOR_OK;
}

static void ref_slopes(const struct ref_work *w, int64_t row) {
    const struct fl_args *args = w->args;
    const int64_t n = args->geo.n, visible = visible_of(args, row), first = row * n;
    const int edp = fl_exponent(&args->in[0]), ep = fl_exponent(&args->in[1]);
    const double *dp = w->in[0] + first, *p = w->in[1] + first;
    if (args->op == FL_OP_LOG_SOFTMAX_GRAD || !fl_ref_shared(args)) {
        memcpy(w->value + first, p, (size_t)n * sizeof *p);
        if (args->op == FL_OP_SOFTMAX_GRAD)
            softmax_slopes(w->value + first, dp, n, visible, args->alpha);
        else
            log_softmax_slopes(w->value + first, dp, n, args->alpha, plain_exponentials);
        memcpy(w->near + first, w->value + first, (size_t)n * sizeof *p);
        return;
    }
    int64_t dot = 0;
    for (int64_t c = 0; c < visible; c++)
        dot += (int64_t)ldexp(p[c], ep) * (int64_t)ldexp(dp[c], edp);
    for (int64_t c = 0; c < n; c++) {
        const bool counts = c < visible;
        const struct fl_wide_sum sum = fl_softmax_slope(fl_term_of(args->alpha), counts ? (int64_t)ldexp(p[c], ep) : 0,
                                                        counts ? (int64_t)ldexp(dp[c], edp) : 0, dot, ep, edp);
        w->value[first + c] = fl_wide_odd(sum);
        w->near[first + c] = fl_wide_abs(sum);
    }
}

/* dx <- dy, y */
tensor_status fl_ref_softmax_map_grad(const struct fl_args *args) {
    struct ref_work w;
    const tensor_status status = fl_ref_begin(&w, args);
    if (status)
        return status;
    for (int64_t row = 0; row < args->geo.m; row++)
        ref_slopes(&w, row);
    fl_ref_end(&w);
    return TENSOR_OK;
}

/* --- rows in threads ---------------------------------------------------------------------------------------------- */

static exponentials exponentials_of(const struct fl_rows *rows) {
    return *(const exponentials *)rows->plan;
}

static void forward_row(const struct fl_rows *rows, int64_t row, double *own, struct fl_stats *stats) {
    const struct fl_args *args = rows->args;
    const int64_t n = args->geo.n;
    args->format->decode(&args->in[0], row * n, n, own);
    if (args->op == FL_OP_SOFTMAX)
        softmax_row(own, n, visible_of(args, row), args->alpha, exponentials_of(rows));
    else
        log_softmax_row(own, n, args->alpha, own + n, exponentials_of(rows));
    fl_rows_store(args, row * n, n, own, fl_rows_largest(own, n), stats);
}

static void exact_row(const struct fl_rows *rows, int64_t row, double *own, struct fl_stats *stats) {
    const struct fl_args *args = rows->args;
    const int64_t n = args->geo.n, visible = visible_of(args, row);
    const int edp = fl_exponent(&args->in[0]), ep = fl_exponent(&args->in[1]);
    double *dp = own, *p = own + n;
    const struct fl_term scale = fl_term_of(args->alpha);
    struct fl_row_out out = {.value = p};
    fl_rows_fetch(args, 0, row * n, visible, dp);
    fl_rows_fetch(args, 1, row * n, visible, p);
    const int64_t dot = exact_dot(p, dp, visible);
    const int e = scale.e + 2 * ep + edp;
    if (ep >= 0 && ep <= 40 && fl_rows_has_unit(e)) { /* |sum| <= 2^15 2^24 2^62 */
        const double unit = fl_power_of_two(-e);
        for (int64_t c = 0; c < visible; c++)
            fl_rows_keep_aligned(
                &out, c, (fl_int128)((int64_t)p[c] * scale.m) * ((int64_t)dp[c] * ((int64_t)1 << ep) - dot), unit);
    } else {
        for (int64_t c = 0; c < visible; c++)
            fl_rows_keep_wide(&out, c, fl_softmax_slope(scale, (int64_t)p[c], (int64_t)dp[c], dot, ep, edp));
    }
    for (int64_t c = visible; c < n; c++)
        p[c] = 0;
    fl_rows_store_sums(args, row * n, n, &out, e, stats);
}

static void backward_row(const struct fl_rows *rows, int64_t row, double *own, struct fl_stats *stats) {
    const struct fl_args *args = rows->args;
    const int64_t n = args->geo.n;
    double *dy = own, *y = own + n;
    if (args->op == FL_OP_SOFTMAX_GRAD && fl_ref_shared(args)) {
        exact_row(rows, row, own, stats);
        return;
    }
    args->format->decode(&args->in[0], row * n, n, dy);
    args->format->decode(&args->in[1], row * n, n, y);
    if (args->op == FL_OP_SOFTMAX_GRAD) {
        softmax_slopes(y, dy, n, visible_of(args, row), args->alpha);
    } else {
        bool positive = false; /* never among logarithms of probabilities, unless they were written by hand */
        for (int64_t c = 0; c < n; c++)
            positive = positive || y[c] > 0;
        log_softmax_slopes(y, dy, n, args->alpha, positive ? plain_exponentials : exponentials_of(rows));
    }
    fl_rows_store(args, row * n, n, y, fl_rows_largest(y, n), stats);
}

static struct fl_rows rows_of_call(const struct fl_args *args) {
    const bool gradient = args->op == FL_OP_SOFTMAX_GRAD || args->op == FL_OP_LOG_SOFTMAX_GRAD;
    return (struct fl_rows){.args = args,
                            .rows = args->geo.m,
                            .width = 4 * args->geo.n,
                            .doubles = 2 * args->geo.n,
                            .run = gradient ? backward_row : forward_row};
}

static size_t need(const struct fl_args *args) {
    const struct fl_rows rows = rows_of_call(args);
    return fl_rows_need(&rows);
}

static tensor_status run_with(const struct fl_args *args, exponentials exp_of) {
    struct fl_rows rows = rows_of_call(args);
    rows.plan = &exp_of;
    char *memory = fl_rows_begin(&rows);
    if (!memory)
        return TENSOR_E_MEMORY;
    fl_rows_run(&rows, memory);
    return TENSOR_OK;
}

static tensor_status portable(const struct fl_args *args) {
    return run_with(args, fl_exponentials_portable);
}
#ifdef FL_HAVE_AVX2
static tensor_status avx2(const struct fl_args *args) {
    return run_with(args, fl_exponentials_avx2);
}
#else
#define avx2 NULL
#endif
#ifdef FL_HAVE_AVX512
static tensor_status avx512bw(const struct fl_args *args) {
    return run_with(args, fl_exponentials_avx512bw);
}
#else
#define avx512bw NULL
#endif

struct fl_any_format fl_softmax_map_any(enum fl_backend backend) {
    static const fl_kernel kernels[FL_BACKENDS] = {
        [FL_PORTABLE] = portable, [FL_AVX2] = avx2, [FL_AVX512BW] = avx512bw};
    return (struct fl_any_format){kernels[backend], need};
}

/* --- the operations ----------------------------------------------------------------------------------------------- */

/* rows: of a causal matrix; 0: no mask. */
static tensor_status check(const char *name, const struct operand *operands, int n, float scale, bool causal,
                           struct fl_args *args) {
    char text[TENSOR_TEXT];
    TRY(check_operands(name, operands, n));
    TRY(check_same_shapes(name, operands, n));
    TRY(check_scalar(name, "scale", scale));
    const tensor *x = operands[0].t;
    if (causal && x->ndim < 2)
        return fl_fail(TENSOR_E_SHAPE, "%s: %s is %s, expected at least two dimensions for a causal mask", name,
                       operands[0].name, fl_shape_text(x, text));
    if (last_dim(x) > INT32_MAX)
        return fl_fail(TENSOR_E_SHAPE, "%s: %s is %s, expected rows of fewer than 2^31 elements", name,
                       operands[0].name, fl_shape_text(x, text));
    args->geo =
        (struct fl_geometry){.m = x->count / last_dim(x), .n = last_dim(x), .k = causal ? x->shape[x->ndim - 2] : 0};
    args->alpha = scale;
    for (int i = 1; i < n; i++)
        args->in[i - 1] = fl_view_of(operands[i].t);
    return TENSOR_OK;
}

tensor_status tensor_softmax(tensor *y, const tensor *x, float scale, bool causal) {
    struct fl_args args = {.op = FL_OP_SOFTMAX};
    TRY(check("softmax", OPERANDS({"y", y}, {"x", x}), scale, causal, &args));
    return fl_write(y, &args);
}

tensor_status tensor_softmax_grad(tensor *dx, const tensor *dy, const tensor *y, float scale, bool causal) {
    struct fl_args args = {.op = FL_OP_SOFTMAX_GRAD};
    TRY(check("softmax_grad", OPERANDS({"dx", dx}, {"dy", dy}, {"y", y}), scale, causal, &args));
    return fl_write(dx, &args);
}

tensor_status tensor_log_softmax(tensor *y, const tensor *x, float scale) {
    struct fl_args args = {.op = FL_OP_LOG_SOFTMAX};
    TRY(check("log_softmax", OPERANDS({"y", y}, {"x", x}), scale, false, &args));
    return fl_write(y, &args);
}

tensor_status tensor_log_softmax_grad(tensor *dx, const tensor *dy, const tensor *y, float scale) {
    struct fl_args args = {.op = FL_OP_LOG_SOFTMAX_GRAD};
    TRY(check("log_softmax_grad", OPERANDS({"dx", dx}, {"dy", dy}, {"y", y}), scale, false, &args));
    return fl_write(dx, &args);
}
