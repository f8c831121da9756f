/* row_norm.c - layer normalisation (Ba et al. 2016) and normalisation by the root mean square (Zhang and Sennrich 2019)
 * over the last dimension: reference kernels, kernels of rows in threads for every format, the operations.
 *
 * All that is kept from forward to backward is x: a gradient sums its rows anew. */
#include "core/base/memory.h"
#include "core/ops/norms/norms.h"
#include "core/ops/norms/row_norm_sums.h"
#include "flexlab/blocks_norms.h"

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
static tensor_status ref_row_norm(const struct fl_args *args) {
    struct ref_work w;
    const tensor_status status = fl_ref_begin(&w, args);
    if (status)
        return status;
    to_mantissas(&w);
    const int64_t n = args->p.norm.n;
    const bool mean_square = is_mean_square(args);
    const int e = fl_exponent(&args->in[0]), eg = fl_exponent(&args->in[1]), eb = fl_exponent(&args->in[2]);
    for (int64_t row = 0; row < args->p.norm.m; row++) {
        const double *x = w.in[0] + row * n;
        if (fl_ref_shared(args)) {
            const struct fl_row_sums s = fl_row_sums_of(n, x, NULL, NULL);
            const struct fl_row_terms t = fl_row_forward(&s, n, mean_square, e, args->p.norm.epsilon);
            for (int64_t c = 0; c < n; c++)
                keep(&w, row * n + c,
                     fl_row_value(&t, (int64_t)x[c], (int64_t)w.in[1][c], eg, w.in[2] ? (int64_t)w.in[2][c] : 0, eb));
            continue;
        }
        const struct fl_row_numbers r = fl_row_numbers_of(n, x, mean_square, args->p.norm.epsilon);
        for (int64_t c = 0; c < n; c++)
            w.value[row * n + c] = fl_row_float_value(&r, x[c], w.in[1][c], w.in[2] ? w.in[2][c] : 0);
    }
    fl_ref_end(&w);
    return TENSOR_OK;
}

/* dx <- dy, x, gamma */
static tensor_status ref_row_norm_grad(const struct fl_args *args) {
    struct ref_work w;
    const tensor_status status = fl_ref_begin(&w, args);
    if (status)
        return status;
    to_mantissas(&w);
    const int64_t n = args->p.norm.n;
    const bool mean_square = is_mean_square(args);
    const int e = fl_exponent(&args->in[1]), e_g = fl_exponent(&args->in[0]) + fl_exponent(&args->in[2]);
    for (int64_t row = 0; row < args->p.norm.m; row++) {
        const double *dy = w.in[0] + row * n, *x = w.in[1] + row * n, *gamma = w.in[2];
        if (fl_ref_shared(args)) {
            const struct fl_row_sums s = fl_row_sums_of(n, x, dy, gamma);
            const struct fl_row_terms t = fl_row_backward(&s, n, mean_square, e, e_g, args->p.norm.epsilon);
            for (int64_t c = 0; c < n; c++)
                keep(&w, row * n + c, fl_row_gradient(&t, (int64_t)(dy[c] * gamma[c]), (int64_t)x[c]));
            continue;
        }
        struct fl_row_numbers r = fl_row_numbers_of(n, x, mean_square, args->p.norm.epsilon);
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
    const int64_t n = w->args->p.norm.n, m = w->args->p.norm.m;
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
    return (size_t)args->p.norm.m * (sizeof(struct fl_row_weight) + sizeof(struct fl_row_numbers));
}

static size_t ref_row_norm_gamma_need(const struct fl_args *args) {
    return fl_ref_bytes(args) + rows_bytes(args);
}

static tensor_status ref_row_norm_gamma(const struct fl_args *args) {
    struct ref_work w;
    const tensor_status status = fl_ref_begin_with(&w, args, rows_bytes(args));
    if (status)
        return status;
    to_mantissas(&w);
    const int64_t n = args->p.norm.n, m = args->p.norm.m;
    struct fl_row_numbers *numbers = w.rest;
    struct fl_row_weight *weights = (struct fl_row_weight *)(void *)(numbers + m);
    for (int64_t row = 0; row < m; row++) {
        const double *x = w.in[1] + row * n;
        if (fl_ref_shared(args)) {
            const struct fl_row_sums s = fl_row_sums_of(n, x, NULL, NULL);
            weights[row] =
                fl_row_weight_of(&s, n, is_mean_square(args), fl_exponent(&args->in[1]), args->p.norm.epsilon);
        } else {
            numbers[row] = fl_row_numbers_of(n, x, is_mean_square(args), args->p.norm.epsilon);
        }
    }
    const int finest = fl_ref_shared(args) ? finest_of(weights, m) : 0;
    for (int64_t c = 0; c < n; c++)
        gamma_gradient(&w, c, weights, finest, numbers);
    fl_ref_end(&w);
    return TENSOR_OK;
}

/* --- rows in threads ---------------------------------------------------------------------------------------------- */

/* gamma and beta, read once. */
struct vectors {
    const double *gamma, *beta;
};

/* A coefficient in units of the last place, with a factor at exponent e beside it; *usual: doubles hold it well. */
static double in_units(struct fl_coefficient k, int e, int e_out, bool *usual) {
    const double unit = fl_row_unit(e_out - k.e - e);
    *usual = *usual && (unit > 0 || !k.m);
    return k.m * unit;
}

/* One row of results, integer formats. */
struct forward_row {
    const struct fl_args *args;
    const struct vectors *v;
    const double *x;
    struct fl_row_terms t;
    int eg, eb;
};

static struct fl_wide_sum forward_result(const void *of, int64_t c) {
    const struct forward_row *r = of;
    return fl_row_value(&r->t, (int64_t)r->x[c], (int64_t)r->v->gamma[c], r->eg,
                        r->v->beta ? (int64_t)r->v->beta[c] : 0, r->eb);
}

static bool estimate_forward(const struct fl_rows *rows, int64_t row, const struct forward_row *r, double *value,
                             struct fl_stats *stats) {
    const int64_t n = r->args->p.norm.n;
    const int e_out = fl_exponent(&r->args->out);
    bool usual = fl_rows_take_estimates(rows);
    const struct fl_row_line line = {.f = in_units(r->t.f, r->eg, e_out, &usual),
                                     .g = in_units(r->t.g, r->eg, e_out, &usual),
                                     .h = fl_row_unit(e_out - r->eb),
                                     .centre = (double)r->t.centre};
    const struct fl_row_estimates estimates = {value, value + fl_row_room(n)};
    if (!usual)
        return false;
    rows->vectors->forward(n, r->x, r->v->gamma, r->v->beta, &line, &estimates);
    return fl_rows_write_estimates(rows, row * n, n, &estimates, forward_result, r, stats);
}

static void forward_exactly(const struct fl_rows *rows, int64_t row, const struct forward_row *r, double *value,
                            struct fl_stats *stats) {
    const int64_t n = r->args->p.norm.n;
    const struct fl_aligned a = fl_align_forward(&r->t, r->eg, r->v->beta, r->eb);
    struct fl_row_out out = {.value = value};
    fl_row_map_forward(&a, &r->t, r->eg, r->eb, n, r->x, r->v->gamma, r->v->beta, &out);
    fl_rows_store_sums(rows->args, row * n, n, &out, a.e, stats);
}

static void forward_row(const struct fl_rows *rows, int64_t row, double *own, struct fl_stats *stats) {
    const struct fl_args *args = rows->args;
    const struct vectors *v = rows->plan;
    const int64_t n = args->p.norm.n;
    double *x = own, *value = own + fl_row_room(n);
    fl_rows_read(rows, 0, row * n, n, x);
    if (fl_ref_shared(args)) {
        struct fl_row_sums s;
        rows->vectors->sums(n, x, NULL, NULL, &s);
        const struct forward_row r = {
            args,
            v,
            x,
            fl_row_forward(&s, n, is_mean_square(args), fl_exponent(&args->in[0]), args->p.norm.epsilon),
            fl_exponent(&args->in[1]),
            fl_exponent(&args->in[2])};
        if (!estimate_forward(rows, row, &r, value, stats))
            forward_exactly(rows, row, &r, value, stats);
        return;
    }
    const struct fl_row_numbers r =
        rows->vectors->numbers(n, x, NULL, NULL, is_mean_square(args), args->p.norm.epsilon);
    rows->vectors->values(n, x, v->gamma, v->beta, &r, value);
    fl_rows_write(rows, row * n, n, value, NULL, stats);
}

/* One row of gradients, integer formats. */
struct backward_row {
    const struct vectors *v;
    const double *dy, *x;
    struct fl_row_terms t;
};

static struct fl_wide_sum backward_result(const void *of, int64_t c) {
    const struct backward_row *r = of;
    return fl_row_gradient(&r->t, (int64_t)(r->dy[c] * r->v->gamma[c]), (int64_t)r->x[c]);
}

static bool estimate_backward(const struct fl_rows *rows, int64_t row, const struct backward_row *r, double *value,
                              struct fl_stats *stats) {
    const int64_t n = rows->args->p.norm.n;
    const int e_out = fl_exponent(&rows->args->out);
    bool usual = fl_rows_take_estimates(rows);
    const struct fl_row_line line = {.f = in_units(r->t.f, 0, e_out, &usual),
                                     .g = in_units(r->t.g, 0, e_out, &usual),
                                     .h = in_units(r->t.h, 0, e_out, &usual),
                                     .centre = (double)r->t.centre,
                                     .g_centre = (double)r->t.g_centre};
    const struct fl_row_estimates estimates = {value, value + fl_row_room(n)};
    if (!usual)
        return false;
    rows->vectors->backward(n, r->dy, r->x, r->v->gamma, &line, &estimates);
    return fl_rows_write_estimates(rows, row * n, n, &estimates, backward_result, r, stats);
}

static void backward_exactly(const struct fl_rows *rows, int64_t row, const struct backward_row *r, double *value,
                             struct fl_stats *stats) {
    const int64_t n = rows->args->p.norm.n;
    const struct fl_aligned a = fl_align_backward(&r->t);
    struct fl_row_out out = {.value = value};
    fl_row_map_backward(&a, &r->t, n, r->dy, r->x, r->v->gamma, &out);
    fl_rows_store_sums(rows->args, row * n, n, &out, a.e, stats);
}

static void backward_row(const struct fl_rows *rows, int64_t row, double *own, struct fl_stats *stats) {
    const struct fl_args *args = rows->args;
    const struct vectors *v = rows->plan;
    const int64_t n = args->p.norm.n, room = fl_row_room(n);
    double *dy = own, *x = own + room, *value = own + 2 * room;
    fl_rows_read(rows, 0, row * n, n, dy);
    fl_rows_read(rows, 1, row * n, n, x);
    if (fl_ref_shared(args)) {
        struct fl_row_sums s;
        rows->vectors->sums(n, x, dy, v->gamma, &s);
        const struct backward_row r = {v, dy, x,
                                       fl_row_backward(&s, n, is_mean_square(args), fl_exponent(&args->in[1]),
                                                       fl_exponent(&args->in[0]) + fl_exponent(&args->in[2]),
                                                       args->p.norm.epsilon)};
        if (!estimate_backward(rows, row, &r, value, stats))
            backward_exactly(rows, row, &r, value, stats);
        return;
    }
    const struct fl_row_numbers r =
        rows->vectors->numbers(n, x, dy, v->gamma, is_mean_square(args), args->p.norm.epsilon);
    rows->vectors->gradients(n, dy, x, v->gamma, &r, value);
    fl_rows_write(rows, row * n, n, value, NULL, stats);
}

static struct fl_rows forward_rows(const struct fl_args *args) {
    const int64_t room = fl_row_room(args->p.norm.n);
    return (struct fl_rows){.args = args,
                            .rows = args->p.norm.m,
                            .width = args->p.norm.n,
                            .common = (size_t)(2 * room) * sizeof(double),
                            .doubles = 3 * room,
                            .run = forward_row};
}

static size_t forward_need(const struct fl_args *args) {
    const struct fl_rows rows = forward_rows(args);
    return fl_rows_need(&rows);
}

static tensor_status forward(const struct fl_args *args, const struct fl_row_vectors *vectors) {
    struct fl_rows rows = forward_rows(args);
    char *memory = fl_rows_begin(&rows);
    if (!memory)
        return TENSOR_E_MEMORY;
    const int64_t n = args->p.norm.n;
    double *gamma = (double *)(void *)memory, *beta = args->in[2].data ? gamma + fl_row_room(n) : NULL;
    rows.vectors = vectors;
    fl_rows_read(&rows, 1, 0, n, gamma);
    if (beta)
        fl_rows_read(&rows, 2, 0, n, beta);
    rows.plan = &(struct vectors){gamma, beta};
    fl_rows_run(&rows, memory);
    return TENSOR_OK;
}

static struct fl_rows backward_rows(const struct fl_args *args) {
    const int64_t room = fl_row_room(args->p.norm.n);
    return (struct fl_rows){.args = args,
                            .rows = args->p.norm.m,
                            .width = 2 * args->p.norm.n,
                            .common = (size_t)room * sizeof(double),
                            .doubles = 4 * room,
                            .run = backward_row};
}

static size_t backward_need(const struct fl_args *args) {
    const struct fl_rows rows = backward_rows(args);
    return fl_rows_need(&rows);
}

static tensor_status backward(const struct fl_args *args, const struct fl_row_vectors *vectors) {
    struct fl_rows rows = backward_rows(args);
    char *memory = fl_rows_begin(&rows);
    if (!memory)
        return TENSOR_E_MEMORY;
    double *gamma = (double *)(void *)memory;
    rows.vectors = vectors;
    fl_rows_read(&rows, 2, 0, args->p.norm.n, gamma);
    rows.plan = &(struct vectors){gamma, NULL};
    fl_rows_run(&rows, memory);
    return TENSOR_OK;
}

/* --- the gradient by gamma: numbers of the rows, then sums of chunks of rows, then of the chunks -------------------
 *
 * Integer formats sum estimates, and the channels whose rounding these do not prove anew, exactly. */

/* Arrays in the memory that all share; what a format does not use has no room. */
struct gamma_plan {
    double *sums, *sizes;          /* [chunks][room]; sizes: of integer formats, the sums of sizes */
    double *value, *size;          /* [room] */
    struct fl_row_weight *weights; /* by row */
    struct fl_row_numbers *numbers;
    int finest;
};

static int64_t chunks_of(const struct fl_args *args) {
    return (args->p.norm.m + FL_ROWS_CHUNK - 1) / FL_ROWS_CHUNK;
}

/* Lays the arrays out from `memory` on; how many bytes they take. */
static size_t lay_out(const struct fl_args *args, char *memory, struct gamma_plan *p) {
    const size_t room = (size_t)fl_row_room(args->p.norm.n), cells = (size_t)chunks_of(args) * room * sizeof(double);
    const size_t m = (size_t)args->p.norm.m, values = room * sizeof(double);
    const bool shared = fl_ref_shared(args);
    const size_t of_rows = fl_line_bytes(m * (shared ? sizeof *p->weights : sizeof *p->numbers));
    const size_t sizes = shared ? cells : 0;
    if (memory) {
        p->sums = (double *)(void *)memory;
        p->sizes = (double *)(void *)(memory + cells);
        p->value = (double *)(void *)(memory + cells + sizes);
        p->size = (double *)(void *)(memory + cells + sizes + values);
        p->weights = (struct fl_row_weight *)(void *)(memory + cells + sizes + 2 * values);
        p->numbers = (struct fl_row_numbers *)(void *)(memory + cells + sizes + 2 * values);
    }
    return cells + sizes + 2 * values + of_rows;
}

static void numbers_row(const struct fl_rows *rows, int64_t row, double *own, struct fl_stats *stats) {
    (void)stats;
    const struct fl_args *args = rows->args;
    const struct gamma_plan *p = rows->plan;
    const int64_t n = args->p.norm.n;
    fl_rows_read(rows, 1, row * n, n, own);
    if (fl_ref_shared(args)) {
        struct fl_row_sums s;
        rows->vectors->sums(n, own, NULL, NULL, &s);
        p->weights[row] =
            fl_row_weight_of(&s, n, is_mean_square(args), fl_exponent(&args->in[1]), args->p.norm.epsilon);
    } else {
        p->numbers[row] = rows->vectors->numbers(n, own, NULL, NULL, is_mean_square(args), args->p.norm.epsilon);
    }
}

/* The term of a row, in units of the last place of the output. */
static struct fl_row_share share_of(const struct fl_args *args, const struct fl_row_weight *w) {
    const int e = fl_exponent(&args->out) - fl_exponent(&args->in[0]) - w->weight.e;
    return (struct fl_row_share){.times = is_mean_square(args) ? 1 : (double)args->p.norm.n,
                                 .sum = is_mean_square(args) ? 0 : (double)w->sum,
                                 .weight = w->weight.m * fl_row_unit(e)};
}

static void chunk_row(const struct fl_rows *rows, int64_t chunk, double *own, struct fl_stats *stats) {
    (void)stats;
    const struct fl_args *args = rows->args;
    const struct gamma_plan *p = rows->plan;
    const int64_t n = args->p.norm.n, room = fl_row_room(n), first = chunk * FL_ROWS_CHUNK;
    const int64_t end = first + FL_ROWS_CHUNK < args->p.norm.m ? first + FL_ROWS_CHUNK : args->p.norm.m;
    const bool shared = fl_ref_shared(args);
    double *dy = own, *x = own + room, *sums = p->sums + chunk * room;
    double *sizes = shared ? p->sizes + chunk * room : NULL;
    for (int64_t c = 0; c < room; c++)
        sums[c] = 0;
    for (int64_t c = 0; shared && c < room; c++)
        sizes[c] = 0;
    for (int64_t row = first; row < end; row++) {
        if (shared && !p->weights[row].weight.m)
            continue;
        fl_rows_read(rows, 0, row * n, n, dy);
        fl_rows_read(rows, 1, row * n, n, x);
        if (shared) {
            const struct fl_row_share share = share_of(args, &p->weights[row]);
            rows->vectors->shares(n, dy, x, &share, sums, sizes);
        } else {
            rows->vectors->float_shares(n, dy, x, &p->numbers[row], sums);
        }
    }
}

/* Exact sums of channels. */
struct channels {
    const struct fl_args *args;
    const struct gamma_plan *plan;
};

enum { CHANNELS = 16 }; /* whose elements share lines of the cache */

/* The sums of `count` channels from c on. */
static void channel_sums(const struct channels *k, int64_t c, int64_t count, struct fl_wide_sum *sum) {
    const struct fl_args *args = k->args;
    const int64_t n = args->p.norm.n;
    const struct fl_wide_sum none = {0, k->plan->finest + fl_exponent(&args->in[0])};
    for (int64_t j = 0; j < count; j++)
        sum[j] = none;
    for (int64_t row = 0; row < args->p.norm.m; row++) {
        const int16_t *dy = (const int16_t *)args->in[0].data + row * n + c;
        const int16_t *x = (const int16_t *)args->in[1].data + row * n + c;
        const struct fl_row_weight *w = &k->plan->weights[row];
        for (int64_t j = 0; w->weight.m && j < count; j++)
            sum[j].m += fl_row_share(w, n, is_mean_square(args), k->plan->finest, dy[j], x[j]);
    }
}

static struct fl_wide_sum channel_sum(const void *of, int64_t c) {
    struct fl_wide_sum sum;
    channel_sums(of, c, 1, &sum);
    return sum;
}

/* Rows whose numbers doubles hold well: the sums of sizes then bound how far estimates are off. n: so that the sums of
 * a row, and the differences from them, are exact. */
static bool all_usual(const struct fl_rows *rows, const struct gamma_plan *p) {
    const struct fl_args *args = rows->args;
    bool usual = fl_rows_take_estimates(rows) && args->p.norm.n < (int64_t)1 << 30 && args->p.norm.m < (int64_t)1 << 40;
    for (int64_t row = 0; usual && row < args->p.norm.m; row++)
        usual = !p->weights[row].weight.m || share_of(args, &p->weights[row]).weight != 0;
    return usual;
}

/* A share is a product of three factors, two of which are exact, and rounded twice: off by less than 2^-52 of it. Sums
 * of FL_ROWS_CHUNK shares, and of the chunks, are off by 2^-53 of the sum of sizes for each addition. */
static bool store_estimates(const struct fl_rows *rows, const struct gamma_plan *p) {
    const struct fl_args *args = rows->args;
    const int64_t n = args->p.norm.n, room = fl_row_room(n), chunks = chunks_of(args);
    const double slack = (double)(FL_ROWS_CHUNK + chunks + 8) * 0.25;
    if (!all_usual(rows, p))
        return false;
    for (int64_t c = 0; c < n; c++) {
        double total = 0, size = 0;
        for (int64_t chunk = 0; chunk < chunks; chunk++) {
            total += p->sums[chunk * room + c];
            size += p->sizes[chunk * room + c];
        }
        p->value[c] = total;
        p->size[c] = size * slack;
    }
    const struct fl_row_estimates estimates = {p->value, p->size};
    return fl_rows_write_estimates(rows, 0, n, &estimates, channel_sum, &(struct channels){args, p}, args->stats);
}

static void exact_channels(const struct fl_rows *rows, int64_t part, double *own, struct fl_stats *stats) {
    struct fl_row_out out = {.value = own};
    struct fl_wide_sum sum[CHANNELS];
    const int64_t first = part * CHANNELS, left = rows->args->p.norm.n - first,
                  count = left < CHANNELS ? left : CHANNELS;
    channel_sums(&(struct channels){rows->args, rows->plan}, first, count, sum);
    for (int64_t j = 0; j < count; j++)
        fl_rows_keep_wide(&out, j, sum[j]);
    fl_rows_store(rows->args, first, count, own, out.largest, stats);
}

static void add_chunks(const struct fl_rows *rows, const struct gamma_plan *p) {
    const int64_t n = rows->args->p.norm.n, chunks = chunks_of(rows->args);
    for (int64_t c = 0; c < n; c++) {
        double total = 0;
        for (int64_t chunk = 0; chunk < chunks; chunk++)
            total += p->sums[chunk * fl_row_room(n) + c];
        p->value[c] = total;
    }
    fl_rows_write(rows, 0, n, p->value, NULL, rows->args->stats);
}

static struct fl_rows gamma_rows(const struct fl_args *args, struct gamma_plan *p) {
    return (struct fl_rows){.args = args,
                            .plan = p,
                            .rows = args->p.norm.m,
                            .width = args->p.norm.n,
                            .common = lay_out(args, NULL, p),
                            .doubles = 2 * (fl_row_room(args->p.norm.n) + CHANNELS),
                            .run = numbers_row};
}

static size_t gamma_need(const struct fl_args *args) {
    struct gamma_plan p = {0};
    const struct fl_rows rows = gamma_rows(args, &p);
    return fl_rows_need(&rows);
}

static tensor_status gamma_of_rows(const struct fl_args *args, const struct fl_row_vectors *vectors) {
    struct gamma_plan p = {0};
    struct fl_rows rows = gamma_rows(args, &p);
    char *memory = fl_rows_begin(&rows);
    if (!memory)
        return TENSOR_E_MEMORY;
    const bool shared = fl_ref_shared(args);
    lay_out(args, memory, &p);
    rows.vectors = vectors;
    fl_rows_run(&rows, memory);
    p.finest = shared ? finest_of(p.weights, args->p.norm.m) : 0;
    rows.rows = chunks_of(args);
    rows.width = FL_ROWS_CHUNK * args->p.norm.n;
    rows.run = chunk_row;
    if (!shared || fl_rows_take_estimates(&rows))
        fl_rows_run(&rows, memory);
    if (!shared) {
        add_chunks(&rows, &p);
    } else if (!store_estimates(&rows, &p)) {
        rows.rows = (args->p.norm.n + CHANNELS - 1) / CHANNELS;
        rows.width = CHANNELS * args->p.norm.m;
        rows.run = exact_channels;
        fl_rows_run(&rows, memory);
    }
    return TENSOR_OK;
}

FL_ROWS_TABLE(static, forward_kernels, forward, forward_need)
FL_ROWS_TABLE(static, backward_kernels, backward, backward_need)
FL_ROWS_TABLE(static, gamma_kernels, gamma_of_rows, gamma_need)

/* --- the operations ----------------------------------------------------------------------------------------------- */

/* m rows of n, whatever dimensions the rows are. */
static void prepare(struct fl_args *args, const struct fl_sizes *sizes, const union fl_value *scalars) {
    (void)scalars;
    args->p.norm.m = FL_SIZE(sizes, 'm');
    args->p.norm.n = FL_SIZE(sizes, 'n');
}

static const struct fl_operand forward_operands[] = {
    {"y", "m*n"},
    {"x", "m*n", .at = FL_AT(in[0])},
    {"gamma", "n", .at = FL_AT(in[1])},
    {"beta", "n", FL_OPTIONAL, .at = FL_AT(in[2])},
};
static const struct fl_operand backward_operands[] = {
    {"dx", "m*n"},
    {"dgamma", "n"},
    {"dbeta", "n", FL_OPTIONAL},
    {"dy", "m*n", .at = FL_AT(in[0])},
    {"x", "m*n", .at = FL_AT(in[1])},
    {"gamma", "n", .at = FL_AT(in[2])},
};
static const struct fl_operand rms_backward_operands[] = {
    {"dx", "m*n"},
    {"dgamma", "n"},
    {"dy", "m*n", .at = FL_AT(in[0])},
    {"x", "m*n", .at = FL_AT(in[1])},
    {"gamma", "n", .at = FL_AT(in[2])},
};
/* The operands of the row functions of the gradients. */
static const struct fl_operand row_dx[] = {{"dx", "m*n"},
                                           {"dy", "m*n", .at = FL_AT(in[0])},
                                           {"x", "m*n", .at = FL_AT(in[1])},
                                           {"gamma", "n", .at = FL_AT(in[2])}};
static const struct fl_operand row_dgamma[] = {
    {"dgamma", "n"}, {"dy", "m*n", .at = FL_AT(in[0])}, {"x", "m*n", .at = FL_AT(in[1])}};
static const struct fl_scalar_rule above_zero[] = {{"epsilon", FL_REAL64, .above = true, .at = FL_AT(p.norm.epsilon)}};

tensor_status fl_run_norm_gradient(const struct fl_invocation *call, struct fl_args *args, enum fl_op gamma) {
    const struct fl_function *f = call->function;
    const tensor *const *t = call->tensors;
    tensor_status status = fl_write((tensor *)t[0], args);
    args->op = gamma;
    args->in[2] = (struct fl_view){0};
    status = status ? status : fl_write((tensor *)t[1], args);
    return status || f->outputs < 3 || !t[2] ? status : tensor_sum_rows((tensor *)t[2], t[f->outputs]);
}
static tensor_status run_layer_gradient(const struct fl_invocation *call, struct fl_args *args) {
    return fl_run_norm_gradient(call, args, FL_OP_LAYERNORM_GAMMA_GRAD);
}
static tensor_status run_rms_gradient(const struct fl_invocation *call, struct fl_args *args) {
    return fl_run_norm_gradient(call, args, FL_OP_RMSNORM_GAMMA_GRAD);
}

const struct fl_operation fl_operation_layernorm = {.op = FL_OP_LAYERNORM,
                                                    .promise = FL_PROMISE_DOUBLE,
                                                    .gradient = "layernorm_grad, layernorm_gamma_grad, sum_rows",
                                                    .reference = {ref_row_norm, fl_ref_bytes},
                                                    .any = forward_kernels,
                                                    .shared16 = true};
const struct fl_operation fl_operation_rmsnorm = {.op = FL_OP_RMSNORM,
                                                  .promise = FL_PROMISE_DOUBLE,
                                                  .gradient = "rmsnorm_grad, rmsnorm_gamma_grad",
                                                  .reference = {ref_row_norm, fl_ref_bytes},
                                                  .any = forward_kernels,
                                                  .shared16 = true};
#define GRADIENT(OP, name, table, kernel, need, kernels)                                                               \
    const struct fl_operation fl_operation_##name = {.op = FL_OP_##OP,                                                 \
                                                     .promise = FL_PROMISE_DOUBLE,                                     \
                                                     FL_OPERANDS_OF(table),                                            \
                                                     .reference = {kernel, need},                                      \
                                                     .any = kernels,                                                   \
                                                     .shared16 = true}
GRADIENT(LAYERNORM_GRAD, layernorm_grad, row_dx, ref_row_norm_grad, fl_ref_bytes, backward_kernels);
GRADIENT(RMSNORM_GRAD, rmsnorm_grad, row_dx, ref_row_norm_grad, fl_ref_bytes, backward_kernels);
GRADIENT(LAYERNORM_GAMMA_GRAD, layernorm_gamma_grad, row_dgamma, ref_row_norm_gamma, ref_row_norm_gamma_need,
         gamma_kernels);
GRADIENT(RMSNORM_GAMMA_GRAD, rmsnorm_gamma_grad, row_dgamma, ref_row_norm_gamma, ref_row_norm_gamma_need,
         gamma_kernels);

const struct fl_function fl_function_layernorm = {.name = "layernorm",
                                                  .op = FL_OP_LAYERNORM,
                                                  .outputs = 1,
                                                  FL_OPERANDS_OF(forward_operands),
                                                  FL_SCALARS_OF(above_zero),
                                                  .prepare = prepare};
const struct fl_function fl_function_rmsnorm = {.name = "rmsnorm",
                                                .op = FL_OP_RMSNORM,
                                                .outputs = 1,
                                                .operand_count = 3, /* without beta */
                                                .operands = forward_operands,
                                                FL_SCALARS_OF(above_zero),
                                                .prepare = prepare};
const struct fl_function fl_function_layernorm_grad = {.name = "layernorm_grad",
                                                       .op = FL_OP_LAYERNORM_GRAD,
                                                       .outputs = 3,
                                                       FL_OPERANDS_OF(backward_operands),
                                                       FL_SCALARS_OF(above_zero),
                                                       .prepare = prepare,
                                                       .run = run_layer_gradient};
const struct fl_function fl_function_rmsnorm_grad = {.name = "rmsnorm_grad",
                                                     .op = FL_OP_RMSNORM_GRAD,
                                                     .outputs = 2,
                                                     FL_OPERANDS_OF(rms_backward_operands),
                                                     FL_SCALARS_OF(above_zero),
                                                     .prepare = prepare,
                                                     .run = run_rms_gradient};

tensor_status tensor_layernorm(tensor *y, const tensor *x, const tensor *gamma, const tensor *beta, double epsilon) {
    return FL_INVOKE(layernorm, FL_GIVEN(y, x, gamma, beta), FL_REAL(epsilon));
}
tensor_status tensor_rmsnorm(tensor *y, const tensor *x, const tensor *gamma, double epsilon) {
    return FL_INVOKE(rmsnorm, FL_GIVEN(y, x, gamma), FL_REAL(epsilon));
}
tensor_status tensor_layernorm_grad(tensor *dx, tensor *dgamma, tensor *dbeta, const tensor *dy, const tensor *x,
                                    const tensor *gamma, double epsilon) {
    return FL_INVOKE(layernorm_grad, FL_GIVEN(dx, dgamma, dbeta, dy, x, gamma), FL_REAL(epsilon));
}
tensor_status tensor_rmsnorm_grad(tensor *dx, tensor *dgamma, const tensor *dy, const tensor *x, const tensor *gamma,
                                  double epsilon) {
    return FL_INVOKE(rmsnorm_grad, FL_GIVEN(dx, dgamma, dy, x, gamma), FL_REAL(epsilon));
}
