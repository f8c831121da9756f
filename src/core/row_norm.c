/* row_norm.c - layer normalisation (Ba et al. 2016) and normalisation by the root mean square (Zhang and Sennrich 2019)
 * over the last dimension: reference kernels, kernels of rows in threads for every format, the operations.
 *
 * All that is kept from forward to backward is x: a gradient sums its rows anew. */
#include "core/check_operands.h"
#include "core/any_format.h"
#include "core/memory.h"
#include "core/row_norm_sums.h"

static bool is_mean_square(const struct fl_args *args) {
    return args->op == FL_OP_RMSNORM || args->op == FL_OP_RMSNORM_GRAD || args->op == FL_OP_RMSNORM_GAMMA_GRAD;
}

/* --- the definition: as kernels ----------------------------------------------------------------------------------- */

/* Operands as mantissas, in integer formats. */
static void to_mantissas(const struct ref_work *w) {
    for (int i = 0; i < 3 && fl_ref_shared(w->args); i++) {
        const double unit = fl_scale2(1, fl_exponent(&w->args->in[i]));
        for (int64_t j = 0; w->in[i] && j < w->args->in[i].count; j++)
            w->in[i][j] *= unit;
    }
}

static void keep(const struct ref_work *w, int64_t i, struct fl_wide_sum sum) {
    w->value[i] = fl_wide_odd(sum);
    w->near[i] = fl_wide_abs(sum);
}

/* y <- x, gamma, beta */
tensor_status fl_ref_row_norm(const struct fl_args *args) {
    struct ref_work w;
    const tensor_status status = fl_ref_begin(&w, args);
    if (status)
        return status;
    to_mantissas(&w);
    const int64_t n = args->geo.n;
    const bool mean_square = is_mean_square(args);
    const int e = fl_exponent(&args->in[0]), eg = fl_exponent(&args->in[1]), eb = fl_exponent(&args->in[2]);
    for (int64_t row = 0; row < args->geo.m; row++) {
        const double *x = w.in[0] + row * n;
        if (fl_ref_shared(args)) {
            const struct fl_row_sums s = fl_row_sums_of(n, x, NULL, NULL);
            const struct fl_row_terms t = fl_row_forward(&s, n, mean_square, e, args->numbers.real);
            for (int64_t c = 0; c < n; c++)
                keep(&w, row * n + c,
                     fl_row_value(&t, (int64_t)x[c], (int64_t)w.in[1][c], eg, w.in[2] ? (int64_t)w.in[2][c] : 0, eb));
            continue;
        }
        const struct fl_row_numbers r = fl_row_numbers_of(n, x, mean_square, args->numbers.real);
        for (int64_t c = 0; c < n; c++)
            w.value[row * n + c] = fl_row_float_value(&r, x[c], w.in[1][c], w.in[2] ? w.in[2][c] : 0);
    }
    fl_ref_end(&w);
    return TENSOR_OK;
}

/* dx <- dy, x, gamma */
tensor_status fl_ref_row_norm_grad(const struct fl_args *args) {
    struct ref_work w;
    const tensor_status status = fl_ref_begin(&w, args);
    if (status)
        return status;
    to_mantissas(&w);
    const int64_t n = args->geo.n;
    const bool mean_square = is_mean_square(args);
    const int e = fl_exponent(&args->in[1]), e_g = fl_exponent(&args->in[0]) + fl_exponent(&args->in[2]);
    for (int64_t row = 0; row < args->geo.m; row++) {
        const double *dy = w.in[0] + row * n, *x = w.in[1] + row * n, *gamma = w.in[2];
        if (fl_ref_shared(args)) {
            const struct fl_row_sums s = fl_row_sums_of(n, x, dy, gamma);
            const struct fl_row_terms t = fl_row_backward(&s, n, mean_square, e, e_g, args->numbers.real);
            for (int64_t c = 0; c < n; c++)
                keep(&w, row * n + c, fl_row_gradient(&t, (int64_t)(dy[c] * gamma[c]), (int64_t)x[c]));
            continue;
        }
        struct fl_row_numbers r = fl_row_numbers_of(n, x, mean_square, args->numbers.real);
        fl_row_add_gradient(&r, n, x, dy, gamma, mean_square);
        for (int64_t c = 0; c < n; c++)
            w.value[row * n + c] = fl_row_float_gradient(&r, dy[c] * gamma[c], x[c]);
    }
    fl_ref_end(&w);
    return TENSOR_OK;
}

static int finest_of(const struct fl_row_weight *weights, int64_t rows) {
    int finest = INT32_MIN;
    for (int64_t row = 0; row < rows; row++)
        if (weights[row].weight.m && weights[row].weight.e > finest)
            finest = weights[row].weight.e;
    return finest == INT32_MIN ? 0 : finest;
}

static double float_share(const struct fl_row_numbers *r, double dy, double x) {
    return dy * fl_row_normal(r, x);
}

/* dgamma <- dy, x: of one channel, with the numbers of all rows. */
static void gamma_gradient(const struct ref_work *w, int64_t c, const struct fl_row_weight *weights, int finest,
                           const struct fl_row_numbers *numbers) {
    const int64_t n = w->args->geo.n, m = w->args->geo.m;
    struct fl_wide_sum sum = {0, finest + fl_exponent(&w->args->in[0])};
    double total = 0, chain = 0;
    for (int64_t row = 0; row < m; row++) {
        const double dy = w->in[0][row * n + c], x = w->in[1][row * n + c];
        if (fl_ref_shared(w->args)) {
            sum.m += fl_row_share(&weights[row], n, is_mean_square(w->args), finest, (int64_t)dy, (int64_t)x);
            continue;
        }
        if (row % FL_ROWS_CHUNK == 0) {
            total += chain;
            chain = 0;
        }
        chain += float_share(&numbers[row], dy, x);
    }
    if (fl_ref_shared(w->args))
        keep(w, c, sum);
    else
        w->value[c] = total + chain;
}

/* What the reference kernel of a gradient by gamma keeps of the rows lies behind the memory of every reference kernel.
 */
static size_t rows_bytes(const struct fl_args *args) {
    return (size_t)args->geo.m * (sizeof(struct fl_row_weight) + sizeof(struct fl_row_numbers));
}

size_t fl_ref_row_norm_gamma_need(const struct fl_args *args) {
    return fl_ref_bytes(args) + rows_bytes(args);
}

tensor_status fl_ref_row_norm_gamma(const struct fl_args *args) {
    struct ref_work w;
    const tensor_status status = fl_ref_begin_with(&w, args, rows_bytes(args));
    if (status)
        return status;
    to_mantissas(&w);
    const int64_t n = args->geo.n, m = args->geo.m;
    struct fl_row_numbers *numbers = w.rest;
    struct fl_row_weight *weights = (struct fl_row_weight *)(void *)(numbers + m);
    for (int64_t row = 0; row < m; row++) {
        const double *x = w.in[1] + row * n;
        if (fl_ref_shared(args)) {
            const struct fl_row_sums s = fl_row_sums_of(n, x, NULL, NULL);
            weights[row] = fl_row_weight_of(&s, n, is_mean_square(args), fl_exponent(&args->in[1]), args->numbers.real);
        } else {
            numbers[row] = fl_row_numbers_of(n, x, is_mean_square(args), args->numbers.real);
        }
    }
    const int finest = fl_ref_shared(args) ? finest_of(weights, m) : 0;
    for (int64_t c = 0; c < n; c++)
        gamma_gradient(&w, c, weights, finest, numbers);
    fl_ref_end(&w);
    return TENSOR_OK;
}

/* --- rows in threads ---------------------------------------------------------------------------------------------- */

/* gamma and beta, decoded once. */
struct vectors {
    const double *gamma, *beta;
};

static void forward_shared(const struct fl_rows *rows, int64_t row, const double *x, double *value,
                           struct fl_stats *stats) {
    const struct fl_args *args = rows->args;
    const struct vectors *v = rows->plan;
    const int64_t n = args->geo.n;
    const int eg = fl_exponent(&args->in[1]), eb = fl_exponent(&args->in[2]);
    const struct fl_row_sums s = fl_row_sums_of(n, x, NULL, NULL);
    const struct fl_row_terms t =
        fl_row_forward(&s, n, is_mean_square(args), fl_exponent(&args->in[0]), args->numbers.real);
    const struct fl_aligned a = fl_align_forward(&t, eg, v->beta != NULL, eb);
    struct fl_row_out out = {.value = value};
    fl_row_map_forward(&a, &t, eg, eb, n, x, v->gamma, v->beta, &out);
    fl_rows_store_sums(args, row * n, n, &out, a.e, stats);
}

static void forward_row(const struct fl_rows *rows, int64_t row, double *own, struct fl_stats *stats) {
    const struct fl_args *args = rows->args;
    const struct vectors *v = rows->plan;
    const int64_t n = args->geo.n;
    double *x = own, *value = own + n;
    fl_rows_fetch(args, 0, row * n, n, x);
    if (fl_ref_shared(args)) {
        forward_shared(rows, row, x, value, stats);
        return;
    }
    const struct fl_row_numbers r = fl_row_numbers_of(n, x, is_mean_square(args), args->numbers.real);
    if (v->beta)
        for (int64_t c = 0; c < n; c++)
            value[c] = fl_row_float_value(&r, x[c], v->gamma[c], v->beta[c]);
    else
        for (int64_t c = 0; c < n; c++)
            value[c] = fl_row_float_value(&r, x[c], v->gamma[c], 0);
    fl_rows_store(args, row * n, n, value, 0, stats);
}

static void backward_shared(const struct fl_rows *rows, int64_t row, const double *dy, const double *x, double *value,
                            struct fl_stats *stats) {
    const struct fl_args *args = rows->args;
    const struct vectors *v = rows->plan;
    const int64_t n = args->geo.n;
    const struct fl_row_sums s = fl_row_sums_of(n, x, dy, v->gamma);
    const struct fl_row_terms t =
        fl_row_backward(&s, n, is_mean_square(args), fl_exponent(&args->in[1]),
                        fl_exponent(&args->in[0]) + fl_exponent(&args->in[2]), args->numbers.real);
    const struct fl_aligned a = fl_align_backward(&t);
    struct fl_row_out out = {.value = value};
    fl_row_map_backward(&a, &t, n, dy, x, v->gamma, &out);
    fl_rows_store_sums(args, row * n, n, &out, a.e, stats);
}

static void backward_row(const struct fl_rows *rows, int64_t row, double *own, struct fl_stats *stats) {
    const struct fl_args *args = rows->args;
    const struct vectors *v = rows->plan;
    const int64_t n = args->geo.n;
    double *dy = own, *x = own + n, *value = own + 2 * n;
    fl_rows_fetch(args, 0, row * n, n, dy);
    fl_rows_fetch(args, 1, row * n, n, x);
    if (fl_ref_shared(args)) {
        backward_shared(rows, row, dy, x, value, stats);
        return;
    }
    struct fl_row_numbers r = fl_row_numbers_of(n, x, is_mean_square(args), args->numbers.real);
    fl_row_add_gradient(&r, n, x, dy, v->gamma, is_mean_square(args));
    for (int64_t c = 0; c < n; c++)
        value[c] = fl_row_float_gradient(&r, dy[c] * v->gamma[c], x[c]);
    fl_rows_store(args, row * n, n, value, 0, stats);
}

static struct fl_rows forward_rows(const struct fl_args *args) {
    return (struct fl_rows){.args = args,
                            .rows = args->geo.m,
                            .width = args->geo.n,
                            .common = (size_t)(2 * args->geo.n) * sizeof(double),
                            .doubles = 2 * args->geo.n,
                            .run = forward_row};
}

static size_t forward_need(const struct fl_args *args) {
    const struct fl_rows rows = forward_rows(args);
    return fl_rows_need(&rows);
}

static tensor_status forward(const struct fl_args *args) {
    struct fl_rows rows = forward_rows(args);
    char *memory = fl_rows_begin(&rows);
    if (!memory)
        return TENSOR_E_MEMORY;
    const int64_t n = args->geo.n;
    double *gamma = (double *)(void *)memory, *beta = args->in[2].data ? gamma + n : NULL;
    fl_rows_fetch(args, 1, 0, n, gamma);
    if (beta)
        fl_rows_fetch(args, 2, 0, n, beta);
    rows.plan = &(struct vectors){gamma, beta};
    fl_rows_run(&rows, memory);
    return TENSOR_OK;
}

static struct fl_rows backward_rows(const struct fl_args *args) {
    return (struct fl_rows){.args = args,
                            .rows = args->geo.m,
                            .width = 2 * args->geo.n,
                            .common = (size_t)args->geo.n * sizeof(double),
                            .doubles = 3 * args->geo.n,
                            .run = backward_row};
}

static size_t backward_need(const struct fl_args *args) {
    const struct fl_rows rows = backward_rows(args);
    return fl_rows_need(&rows);
}

static tensor_status backward(const struct fl_args *args) {
    struct fl_rows rows = backward_rows(args);
    char *memory = fl_rows_begin(&rows);
    if (!memory)
        return TENSOR_E_MEMORY;
    double *gamma = (double *)(void *)memory;
    fl_rows_fetch(args, 2, 0, args->geo.n, gamma);
    rows.plan = &(struct vectors){gamma, NULL};
    fl_rows_run(&rows, memory);
    return TENSOR_OK;
}

/* --- the gradient by gamma: numbers of the rows, then sums of chunks of rows, then of the chunks -------------------
 */

/* Arrays in the memory that all share; what a format does not use has no room. */
struct gamma_plan {
    fl_int128 *exact;              /* [chunks][n] */
    double *sums;                  /* the same of float formats */
    double *value;                 /* [n] */
    struct fl_row_weight *weights; /* by row */
    struct fl_row_numbers *numbers;
    int finest;
};

static int64_t chunks_of(const struct fl_args *args) {
    return (args->geo.m + FL_ROWS_CHUNK - 1) / FL_ROWS_CHUNK;
}

/* Lays the arrays out from `memory` on; how many bytes they take. */
static size_t lay_out(const struct fl_args *args, char *memory, struct gamma_plan *p) {
    const size_t cells = (size_t)(chunks_of(args) * args->geo.n), m = (size_t)args->geo.m;
    const bool shared = fl_ref_shared(args);
    const size_t sums = fl_line_bytes(cells * (shared ? sizeof *p->exact : sizeof *p->sums)),
                 of_rows = fl_line_bytes(m * (shared ? sizeof *p->weights : sizeof *p->numbers)),
                 values = fl_line_bytes((size_t)args->geo.n * sizeof *p->value);
    if (memory) {
        p->exact = (fl_int128 *)(void *)memory;
        p->sums = (double *)(void *)memory;
        p->weights = (struct fl_row_weight *)(void *)(memory + sums);
        p->numbers = (struct fl_row_numbers *)(void *)(memory + sums);
        p->value = (double *)(void *)(memory + sums + of_rows);
    }
    return sums + of_rows + values;
}

static void numbers_row(const struct fl_rows *rows, int64_t row, double *own, struct fl_stats *stats) {
    (void)stats;
    const struct fl_args *args = rows->args;
    const struct gamma_plan *p = rows->plan;
    const int64_t n = args->geo.n;
    fl_rows_fetch(args, 1, row * n, n, own);
    if (fl_ref_shared(args)) {
        const struct fl_row_sums s = fl_row_sums_of(n, own, NULL, NULL);
        p->weights[row] = fl_row_weight_of(&s, n, is_mean_square(args), fl_exponent(&args->in[1]), args->numbers.real);
    } else {
        p->numbers[row] = fl_row_numbers_of(n, own, is_mean_square(args), args->numbers.real);
    }
}

static void add_shares(const struct fl_args *args, const struct gamma_plan *p, int64_t row, const double *dy,
                       const double *x, fl_int128 *sums) {
    const struct fl_row_weight *w = &p->weights[row];
    const int64_t n = args->geo.n;
    if (!w->weight.m)
        return;
    if (n > FL_ROW_BLOCK) {
        for (int64_t c = 0; c < n; c++)
            sums[c] += fl_row_share(w, n, is_mean_square(args), p->finest, (int64_t)dy[c], (int64_t)x[c]);
        return;
    }
    const fl_int128 weight = (fl_int128)w->weight.m * ((fl_int128)1 << (p->finest - w->weight.e));
    const int64_t times = is_mean_square(args) ? 1 : n;
    for (int64_t c = 0; c < n; c++)
        sums[c] += (int64_t)dy[c] * (times * (int64_t)x[c] - w->sum) * weight;
}

static void chunk_row(const struct fl_rows *rows, int64_t chunk, double *own, struct fl_stats *stats) {
    (void)stats;
    const struct fl_args *args = rows->args;
    const struct gamma_plan *p = rows->plan;
    const int64_t n = args->geo.n, first = chunk * FL_ROWS_CHUNK;
    const int64_t end = first + FL_ROWS_CHUNK < args->geo.m ? first + FL_ROWS_CHUNK : args->geo.m;
    double *dy = own, *x = own + n;
    for (int64_t c = 0; c < n; c++) {
        if (fl_ref_shared(args))
            p->exact[chunk * n + c] = 0;
        else
            p->sums[chunk * n + c] = 0;
    }
    for (int64_t row = first; row < end; row++) {
        fl_rows_fetch(args, 0, row * n, n, dy);
        fl_rows_fetch(args, 1, row * n, n, x);
        if (fl_ref_shared(args)) {
            add_shares(args, p, row, dy, x, p->exact + chunk * n);
            continue;
        }
        const struct fl_row_numbers r = p->numbers[row];
        for (int64_t c = 0; c < n; c++)
            p->sums[chunk * n + c] += float_share(&r, dy[c], x[c]);
    }
}

static void add_chunks(const struct fl_args *args, const struct gamma_plan *p) {
    const int64_t n = args->geo.n, chunks = chunks_of(args);
    struct fl_row_out out = {.value = p->value};
    for (int64_t c = 0; c < n; c++) {
        struct fl_wide_sum sum = {0, p->finest + fl_exponent(&args->in[0])};
        double total = 0;
        for (int64_t chunk = 0; chunk < chunks; chunk++) {
            if (fl_ref_shared(args))
                sum.m += p->exact[chunk * n + c];
            else
                total += p->sums[chunk * n + c];
        }
        if (fl_ref_shared(args))
            fl_rows_keep_wide(&out, c, sum);
        else
            p->value[c] = total;
    }
    fl_rows_store(args, 0, n, p->value, out.largest, args->stats);
}

static struct fl_rows gamma_rows(const struct fl_args *args, struct gamma_plan *p) {
    return (struct fl_rows){.args = args,
                            .plan = p,
                            .rows = args->geo.m,
                            .width = args->geo.n,
                            .common = lay_out(args, NULL, p),
                            .doubles = 2 * args->geo.n,
                            .run = numbers_row};
}

static size_t gamma_need(const struct fl_args *args) {
    struct gamma_plan p = {0};
    const struct fl_rows rows = gamma_rows(args, &p);
    return fl_rows_need(&rows);
}

static tensor_status gamma_of_rows(const struct fl_args *args) {
    struct gamma_plan p = {0};
    struct fl_rows rows = gamma_rows(args, &p);
    char *memory = fl_rows_begin(&rows);
    if (!memory)
        return TENSOR_E_MEMORY;
    lay_out(args, memory, &p);
    fl_rows_run(&rows, memory);
    p.finest = fl_ref_shared(args) ? finest_of(p.weights, args->geo.m) : 0;
    rows.rows = chunks_of(args);
    rows.width = FL_ROWS_CHUNK * args->geo.n;
    rows.run = chunk_row;
    fl_rows_run(&rows, memory);
    add_chunks(args, &p);
    return TENSOR_OK;
}

const struct fl_any_format fl_row_norm_any = {forward, forward_need};
const struct fl_any_format fl_row_norm_grad_any = {backward, backward_need};
const struct fl_any_format fl_row_norm_gamma_any = {gamma_of_rows, gamma_need};

/* --- the operations ----------------------------------------------------------------------------------------------- */

static tensor_status check_epsilon(const char *name, double epsilon) {
    return epsilon > 0 && isfinite(epsilon)
               ? TENSOR_OK
               : fl_fail(TENSOR_E_ARGUMENT, "%s: epsilon is %g, expected a finite number above 0", name, epsilon);
}

static struct fl_geometry rows_of(const tensor *x) {
    return (struct fl_geometry){.m = x->count / last_dim(x), .n = last_dim(x)};
}

/* beta NULL: none. */
static tensor_status row_norm(enum fl_op op, const char *name, tensor *y, const tensor *x, const tensor *gamma,
                              const tensor *beta, double epsilon) {
    TRY(check_operands(name, OPERANDS({"y", y}, {"x", x}, {"gamma", gamma})));
    TRY(check_same_shapes(name, OPERANDS({"y", y}, {"x", x})));
    TRY(check_shape_is(name, (struct operand){"gamma", gamma}, 1, (int64_t[]){last_dim(x)}));
    TRY(check_distinct(name, OPERANDS({"y", y}, {"x", x}, {"gamma", gamma})));
    TRY(check_epsilon(name, epsilon));
    struct fl_args args = {
        .op = op, .in = {fl_view_of(x), fl_view_of(gamma)}, .geo = rows_of(x), .numbers.real = epsilon};
    if (beta) {
        TRY(check_operands(name, OPERANDS({"y", y}, {"beta", beta})));
        TRY(check_shape_is(name, (struct operand){"beta", beta}, 1, (int64_t[]){last_dim(x)}));
        TRY(check_distinct(name, OPERANDS({"y", y}, {"beta", beta})));
        args.in[2] = fl_view_of(beta);
    }
    return fl_write(y, &args);
}

tensor_status tensor_layernorm(tensor *y, const tensor *x, const tensor *gamma, const tensor *beta, double epsilon) {
    return row_norm(FL_OP_LAYERNORM, "layernorm", y, x, gamma, beta, epsilon);
}
tensor_status tensor_rmsnorm(tensor *y, const tensor *x, const tensor *gamma, double epsilon) {
    return row_norm(FL_OP_RMSNORM, "rmsnorm", y, x, gamma, NULL, epsilon);
}

/* Everything that is there is of one format and shape, and what is written is no other operand. */
static tensor_status check_gradient(const char *name, const tensor *dx, const tensor *dgamma, const tensor *dbeta,
                                    const tensor *dy, const tensor *x, const tensor *gamma, double epsilon) {
    TRY(check_operands(name, OPERANDS({"dx", dx}, {"dy", dy}, {"x", x}, {"gamma", gamma}, {"dgamma", dgamma})));
    TRY(check_same_shapes(name, OPERANDS({"dx", dx}, {"dy", dy}, {"x", x})));
    const struct operand vectors[] = {{"gamma", gamma}, {"dgamma", dgamma}, {"dbeta", dbeta}};
    for (int i = 0; i < (dbeta ? 3 : 2); i++)
        TRY(check_shape_is(name, vectors[i], 1, (int64_t[]){last_dim(x)}));
    TRY(check_distinct(name, OPERANDS({"dx", dx}, {"dy", dy}, {"x", x}, {"gamma", gamma}, {"dgamma", dgamma})));
    TRY(check_distinct(name, OPERANDS({"dgamma", dgamma}, {"dy", dy}, {"x", x}, {"gamma", gamma})));
    if (dbeta) {
        TRY(check_operands(name, OPERANDS({"dbeta", dbeta}, {"dx", dx})));
        TRY(check_distinct(
            name, OPERANDS({"dbeta", dbeta}, {"dx", dx}, {"dgamma", dgamma}, {"dy", dy}, {"x", x}, {"gamma", gamma})));
    }
    TRY(fl_check_all_apart(name, (const char *[]){"dx", "dgamma", "dbeta", "dy", "x", "gamma"},
                           (const tensor *[]){dx, dgamma, dbeta, dy, x, gamma}, 3, 6));
    return check_epsilon(name, epsilon);
}

/* Three writes, none of which can fail but for want of memory. */
static tensor_status row_norm_grad(enum fl_op op, enum fl_op gamma_op, tensor *dx, tensor *dgamma, tensor *dbeta,
                                   const tensor *dy, const tensor *x, const tensor *gamma, double epsilon) {
    struct fl_args args = {
        .op = op, .in = {fl_view_of(dy), fl_view_of(x), fl_view_of(gamma)}, .geo = rows_of(x), .numbers.real = epsilon};
    TRY(fl_write(dx, &args));
    args.op = gamma_op;
    args.in[2] = (struct fl_view){0};
    TRY(fl_write(dgamma, &args));
    return dbeta ? tensor_sum_rows(dbeta, dy) : TENSOR_OK;
}

tensor_status tensor_layernorm_grad(tensor *dx, tensor *dgamma, tensor *dbeta, const tensor *dy, const tensor *x,
                                    const tensor *gamma, double epsilon) {
    TRY(check_gradient("layernorm_grad", dx, dgamma, dbeta, dy, x, gamma, epsilon));
    return row_norm_grad(FL_OP_LAYERNORM_GRAD, FL_OP_LAYERNORM_GAMMA_GRAD, dx, dgamma, dbeta, dy, x, gamma, epsilon);
}
tensor_status tensor_rmsnorm_grad(tensor *dx, tensor *dgamma, const tensor *dy, const tensor *x, const tensor *gamma,
                                  double epsilon) {
    TRY(check_gradient("rmsnorm_grad", dx, dgamma, NULL, dy, x, gamma, epsilon));
    return row_norm_grad(FL_OP_RMSNORM_GRAD, FL_OP_RMSNORM_GAMMA_GRAD, dx, dgamma, NULL, dy, x, gamma, epsilon);
}
