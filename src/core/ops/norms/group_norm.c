/* group_norm.c - group normalisation (Wu and He 2018): the channels of a group over all pixels of an image are
 * normalised together, as the elements of a row are in layer normalisation (row_norm_rules.h). Reference kernels,
 * kernels of images in threads for every format, the operations. Only x is needed from forward to backward. */
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/ops/norms/norms.h"
#include "core/ops/norms/row_norm_sums.h"
#include "flexlab/blocks_norms.h"

/* geo: batch images of m pixels of n channels in so many groups. */
static int64_t depth_of(const struct fl_norm *g) { /* channels of a group */
    return g->n / g->groups;
}
static int64_t size_of(const struct fl_norm *g) { /* elements of a group */
    return g->m * depth_of(g);
}

/* --- the definition ----------------------------------------------------------------------------------------------- */

/* The position of element i of a group, and its channel. */
static int64_t place(const struct fl_norm *g, int64_t image, int64_t group, int64_t i, int64_t *channel) {
    const int64_t depth = depth_of(g);
    *channel = group * depth + i % depth;
    return (image * g->m + i / depth) * g->n + *channel;
}

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

/* A group brought together: x, dy and gamma of its elements. */
struct gathered {
    double *x, *dy, *gamma;
};

static void forward_group(const struct ref_work *w, const struct gathered *of, int64_t image, int64_t group) {
    const struct fl_args *args = w->args;
    const int64_t size = size_of(&args->p.norm);
    const int eg = fl_exponent(&args->in[1]), eb = fl_exponent(&args->in[2]);
    int64_t c;
    for (int64_t i = 0; i < size; i++)
        of->x[i] = w->in[0][place(&args->p.norm, image, group, i, &c)];
    const struct fl_row_sums s =
        fl_ref_shared(args) ? fl_row_sums_of(size, of->x, NULL, NULL) : (struct fl_row_sums){0};
    const struct fl_row_terms t = fl_row_forward(&s, size, false, fl_exponent(&args->in[0]), args->p.norm.epsilon);
    const struct fl_row_numbers r = fl_row_numbers_of(size, of->x, false, args->p.norm.epsilon);
    for (int64_t i = 0; i < size; i++) {
        const int64_t at = place(&args->p.norm, image, group, i, &c);
        const double gamma = w->in[1][c], beta = w->in[2] ? w->in[2][c] : 0;
        if (fl_ref_shared(args))
            keep(w, at, fl_row_value(&t, (int64_t)of->x[i], (int64_t)gamma, eg, (int64_t)beta, eb));
        else
            w->value[at] = fl_row_float_value(&r, of->x[i], gamma, beta);
    }
}

static void backward_group(const struct ref_work *w, const struct gathered *of, int64_t image, int64_t group) {
    const struct fl_args *args = w->args;
    const int64_t size = size_of(&args->p.norm);
    int64_t c;
    for (int64_t i = 0; i < size; i++) {
        const int64_t at = place(&args->p.norm, image, group, i, &c);
        of->dy[i] = w->in[0][at];
        of->x[i] = w->in[1][at];
        of->gamma[i] = w->in[2][c];
    }
    const bool shared = fl_ref_shared(args);
    const struct fl_row_sums s = shared ? fl_row_sums_of(size, of->x, of->dy, of->gamma) : (struct fl_row_sums){0};
    const struct fl_row_terms t =
        fl_row_backward(&s, size, false, fl_exponent(&args->in[1]),
                        fl_exponent(&args->in[0]) + fl_exponent(&args->in[2]), args->p.norm.epsilon);
    struct fl_row_numbers r = fl_row_numbers_of(size, of->x, false, args->p.norm.epsilon);
    fl_row_add_gradient(&r, size, of->x, of->dy, of->gamma, false);
    for (int64_t i = 0; i < size; i++) {
        const int64_t at = place(&args->p.norm, image, group, i, &c);
        if (shared)
            keep(w, at, fl_row_gradient(&t, (int64_t)(of->dy[i] * of->gamma[i]), (int64_t)of->x[i]));
        else
            w->value[at] = fl_row_float_gradient(&r, of->dy[i] * of->gamma[i], of->x[i]);
    }
}

static size_t ref_need(const struct fl_args *args) {
    return fl_ref_bytes(args) + (size_t)(3 * size_of(&args->p.norm)) * sizeof(double);
}

/* y <- x, gamma, beta; dx <- dy, x, gamma */
static tensor_status ref_group_norm(const struct fl_args *args) {
    struct ref_work w;
    const int64_t size = size_of(&args->p.norm);
    const tensor_status status = fl_ref_begin_with(&w, args, (size_t)(3 * size) * sizeof(double));
    if (status)
        return status;
    double *memory = w.rest;
    const struct gathered of = {memory, memory + size, memory + 2 * size};
    to_mantissas(&w);
    for (int64_t image = 0; image < args->p.norm.batch; image++)
        for (int64_t group = 0; group < args->p.norm.groups; group++) {
            if (args->op == FL_OP_GROUPNORM)
                forward_group(&w, &of, image, group);
            else
                backward_group(&w, &of, image, group);
        }
    fl_ref_end(&w);
    return TENSOR_OK;
}

/* The numbers of each group of each image that the gradient by gamma needs. */
struct group_number {
    struct fl_row_weight weight;   /* integer formats */
    struct fl_row_numbers numbers; /* float formats */
};

static int finest_of(const struct group_number *groups, int64_t n) {
    int finest = INT32_MIN;
    for (int64_t i = 0; i < n; i++)
        if (groups[i].weight.weight.m && groups[i].weight.weight.e > finest)
            finest = groups[i].weight.weight.e;
    return finest == INT32_MIN ? 0 : finest;
}

static size_t ref_gamma_bytes(const struct fl_args *args) {
    const struct fl_norm *g = &args->p.norm;
    return (size_t)(g->batch * g->groups) * sizeof(struct group_number) + (size_t)size_of(g) * sizeof(double);
}

static size_t ref_gamma_need(const struct fl_args *args) {
    return fl_ref_bytes(args) + ref_gamma_bytes(args);
}

/* Channel c of dgamma <- dy, x: over the pixels of all images in their order. */
static void gamma_of_channel(const struct ref_work *w, const struct group_number *groups, int finest, int64_t c) {
    const struct fl_norm *g = &w->args->p.norm;
    const bool shared = fl_ref_shared(w->args);
    struct fl_wide_sum sum = {0, finest + fl_exponent(&w->args->in[0])};
    double total = 0, chain = 0;
    for (int64_t pixel = 0; pixel < g->batch * g->m; pixel++) {
        const struct group_number *of = &groups[pixel / g->m * g->groups + c / depth_of(g)];
        const double dy = w->in[0][pixel * g->n + c], x = w->in[1][pixel * g->n + c];
        if (shared) {
            sum.m += fl_row_share(&of->weight, size_of(g), false, finest, (int64_t)dy, (int64_t)x);
            continue;
        }
        if (pixel % FL_ROWS_CHUNK == 0) {
            total += chain;
            chain = 0;
        }
        chain += dy * fl_row_normal(&of->numbers, x);
    }
    if (shared)
        keep(w, c, sum);
    else
        w->value[c] = total + chain;
}

static tensor_status ref_gamma(const struct fl_args *args) {
    struct ref_work w;
    const tensor_status status = fl_ref_begin_with(&w, args, ref_gamma_bytes(args));
    if (status)
        return status;
    const struct fl_norm *g = &args->p.norm;
    const int64_t all = g->batch * g->groups, size = size_of(g);
    struct group_number *groups = w.rest;
    double *x = (double *)(void *)(groups + all);
    to_mantissas(&w);
    for (int64_t k = 0; k < all; k++) {
        int64_t c;
        for (int64_t i = 0; i < size; i++)
            x[i] = w.in[1][place(g, k / g->groups, k % g->groups, i, &c)];
        groups[k] = (struct group_number){0};
        if (fl_ref_shared(args)) {
            const struct fl_row_sums s = fl_row_sums_of(size, x, NULL, NULL);
            groups[k].weight = fl_row_weight_of(&s, size, false, fl_exponent(&args->in[1]), args->p.norm.epsilon);
        } else {
            groups[k].numbers = fl_row_numbers_of(size, x, false, args->p.norm.epsilon);
        }
    }
    const int finest = fl_ref_shared(args) ? finest_of(groups, all) : 0;
    for (int64_t c = 0; c < g->n; c++)
        gamma_of_channel(&w, groups, finest, c);
    fl_ref_end(&w);
    return TENSOR_OK;
}

/* --- images in threads: some pixels at a time, once for each kind of sum, then for the elements ------------------- */

/* A group of the image that a thread works on. */
struct group {
    struct fl_row_terms terms; /* integer formats */
    struct fl_aligned aligned; /* and what is computed without estimates */
    struct fl_row_out out;
    struct fl_row_numbers numbers; /* float formats */
};

enum { BLOCK = 2048 /* the approximate number of elements of the pixels that are read at a time */ };

static int64_t block_of(const struct fl_norm *g) { /* pixels */
    return g->n < BLOCK ? BLOCK / g->n : 1;
}

/* The memory of a thread. */
struct own {
    double *x, *dy, *value, *size; /* of a block; size: of estimates */
    double *chain, *products;      /* FL_ROW_CHAINS for each group, of float formats */
    struct fl_column_sums *sums;   /* of each channel, of integer formats */
    struct fl_row_columns columns;
    struct group *groups;
};

static double *take(double *memory, int64_t *taken, int64_t n) {
    double *at = memory ? memory + *taken : NULL;
    *taken += fl_row_room(n);
    return at;
}

/* Places these from `memory` on; returns how many doubles they take. */
static int64_t lay_out_own(const struct fl_norm *g, double *memory, struct own *own) {
    const int64_t block = block_of(g) * g->n, chains = g->groups * FL_ROW_CHAINS;
    int64_t taken = 0;
    own->x = take(memory, &taken, block);
    own->dy = take(memory, &taken, block);
    own->value = take(memory, &taken, block);
    own->size = take(memory, &taken, block);
    own->chain = take(memory, &taken, chains);
    own->products = take(memory, &taken, chains);
    own->columns.f = take(memory, &taken, g->n);
    own->columns.g = take(memory, &taken, g->n);
    own->columns.h = take(memory, &taken, g->n);
    own->columns.centre = take(memory, &taken, g->n);
    own->columns.g_centre = take(memory, &taken, g->n);
    own->sums = (void *)take(memory, &taken, g->n * (int64_t)(sizeof *own->sums / sizeof(double)));
    own->groups = (void *)take(memory, &taken, g->groups * (int64_t)(sizeof *own->groups / sizeof(double)));
    return taken;
}
_Static_assert(sizeof(struct group) % sizeof(double) == 0 && sizeof(struct fl_column_sums) % sizeof(double) == 0,
               "they are counted in doubles");

/* Work on an image. */
struct visit {
    const struct fl_rows *rows;
    const struct fl_norm *g;
    struct own own;
    int64_t image;
    int x, dy;  /* which operands these are; dy -1: none */
    bool usual; /* estimates may be tried */
    struct fl_stats *stats;
};

/* gamma, and beta or zeros, read once. */
struct vectors {
    const double *gamma, *beta;
};

static struct visit visit_of(const struct fl_rows *rows, double *memory, struct fl_stats *stats) {
    struct visit v = {.rows = rows, .g = &rows->args->p.norm, .stats = stats};
    lay_out_own(v.g, memory, &v.own);
    return v;
}

/* The first element of a block. */
static int64_t first_of(const struct visit *v, int64_t pixel) {
    return (v->image * v->g->m + pixel) * v->g->n;
}

/* One pass over all pixels of an image. */
static void go_through(struct visit *v, void (*do_block)(struct visit *v, int64_t pixel, int64_t pixels)) {
    for (int64_t pixel = 0; pixel < v->g->m; pixel += block_of(v->g)) {
        const int64_t left = v->g->m - pixel, pixels = left < block_of(v->g) ? left : block_of(v->g);
        fl_rows_read(v->rows, v->x, first_of(v, pixel), pixels * v->g->n, v->own.x);
        if (v->dy >= 0)
            fl_rows_read(v->rows, v->dy, first_of(v, pixel), pixels * v->g->n, v->own.dy);
        do_block(v, pixel, pixels);
    }
}

static void add_exactly(struct visit *v, int64_t pixel, int64_t pixels) {
    (void)pixel;
    v->rows->vectors->column_sums(pixels, v->g->n, v->own.x, v->dy >= 0 ? v->own.dy : NULL, v->own.sums);
}

static void add_values(struct visit *v, int64_t pixel, int64_t pixels) {
    v->rows->vectors->add_chains(pixels, v->g->n, depth_of(v->g), pixel, v->own.x, v->own.chain);
}

static void add_squares(struct visit *v, int64_t pixel, int64_t pixels) {
    const struct own *own = &v->own;
    v->rows->vectors->columns_squares(pixels, v->g->n, own->x, &own->columns, own->value);
    v->rows->vectors->add_chains(pixels, v->g->n, depth_of(v->g), pixel, own->value, own->chain);
}

static void add_gradients(struct visit *v, int64_t pixel, int64_t pixels) {
    const struct own *own = &v->own;
    v->rows->vectors->columns_products(pixels, v->g->n, own->dy, own->x, &own->columns, own->dy, own->value);
    v->rows->vectors->add_chains(pixels, v->g->n, depth_of(v->g), pixel, own->dy, own->chain);
    v->rows->vectors->add_chains(pixels, v->g->n, depth_of(v->g), pixel, own->value, own->products);
}

static double take_sum(double *chain) {
    double total = 0;
    for (int j = 0; j < FL_ROW_CHAINS; j++) {
        total += chain[j];
        chain[j] = 0;
    }
    return total;
}

/* The sums of a group, with those of dy if dy was read. */
static struct fl_row_sums sums_of(const struct visit *v, int64_t group) {
    const double *gamma = v->own.columns.gamma;
    struct fl_row_sums s = {0};
    for (int64_t c = group * depth_of(v->g); c < (group + 1) * depth_of(v->g); c++) {
        const struct fl_column_sums *of = &v->own.sums[c];
        const int64_t scale = gamma ? (int64_t)gamma[c] : 0;
        s.x += of->x;
        s.xx += of->xx;
        s.g += (fl_int128)scale * of->dy;
        s.gx += (fl_int128)scale * of->dy_x;
    }
    return s;
}

static void sum_exactly(struct visit *v) {
    memset(v->own.sums, 0, (size_t)v->g->n * sizeof *v->own.sums);
    go_through(v, add_exactly);
}

static void spread(const struct fl_norm *g, const struct fl_row_numbers *r, int64_t group,
                   const struct fl_row_columns *to) {
    for (int64_t c = group * depth_of(g); c < (group + 1) * depth_of(g); c++) {
        to->f[c] = r->inverse;
        to->g[c] = r->slope;
        to->centre[c] = r->mean;
        to->g_centre[c] = r->mean_g;
    }
}

/* The numbers of the groups of float formats, each pass with those of the one before. */
static void number_groups(struct visit *v) {
    const struct fl_norm *g = v->g;
    const struct own *own = &v->own;
    const double count = (double)size_of(g);
    const int dy = v->dy;
    memset(own->chain, 0, (size_t)(g->groups * FL_ROW_CHAINS) * sizeof *own->chain);
    memset(own->products, 0, (size_t)(g->groups * FL_ROW_CHAINS) * sizeof *own->products);
    v->dy = -1;
    go_through(v, add_values);
    for (int64_t k = 0; k < g->groups; k++) {
        own->groups[k].numbers = (struct fl_row_numbers){.mean = take_sum(own->chain + k * FL_ROW_CHAINS) / count};
        spread(g, &own->groups[k].numbers, k, &own->columns);
    }
    go_through(v, add_squares);
    for (int64_t k = 0; k < g->groups; k++) {
        own->groups[k].numbers.inverse = 1 / sqrt(take_sum(own->chain + k * FL_ROW_CHAINS) / count + g->epsilon);
        spread(g, &own->groups[k].numbers, k, &own->columns);
    }
    v->dy = dy;
    if (dy < 0)
        return;
    go_through(v, add_gradients);
    for (int64_t k = 0; k < g->groups; k++) {
        own->groups[k].numbers.mean_g = take_sum(own->chain + k * FL_ROW_CHAINS) / count;
        own->groups[k].numbers.slope = take_sum(own->products + k * FL_ROW_CHAINS) / count;
        spread(g, &own->groups[k].numbers, k, &own->columns);
    }
}

/* A coefficient in units of the last place of the output, for a factor at exponent e. */
static double in_units(struct visit *v, struct fl_coefficient k, int e) {
    const double unit = fl_row_unit(fl_exponent(&v->rows->args->out) - k.e - e);
    v->usual = v->usual && (unit > 0 || !k.m);
    return k.m * unit;
}

/* The terms of a group, of integer formats; e: the exponent of the factor of F and G. */
static void spread_terms(struct visit *v, int64_t group, int e) {
    const struct fl_row_terms *t = &v->own.groups[group].terms;
    const struct fl_row_columns *to = &v->own.columns;
    const double f = in_units(v, t->f, e), g = in_units(v, t->g, e), h = in_units(v, t->h, 0);
    for (int64_t c = group * depth_of(v->g); c < (group + 1) * depth_of(v->g); c++) {
        to->f[c] = f;
        to->g[c] = g;
        to->h[c] = h;
        to->centre[c] = (double)t->centre;
        to->g_centre[c] = (double)t->g_centre;
    }
}

/* Element i of a block: its channel, and the terms of its group. */
static const struct fl_row_terms *terms_at(const struct visit *v, int64_t i, int64_t *c) {
    *c = i % v->g->n;
    return &v->own.groups[*c / depth_of(v->g)].terms;
}

static struct fl_wide_sum forward_result(const void *of, int64_t i) {
    const struct visit *v = of;
    const struct fl_args *args = v->rows->args;
    int64_t c;
    const struct fl_row_terms *t = terms_at(v, i, &c);
    return fl_row_value(t, (int64_t)v->own.x[i], (int64_t)v->own.columns.gamma[c], fl_exponent(&args->in[1]),
                        (int64_t)v->own.columns.beta[c], fl_exponent(&args->in[2]));
}

static struct fl_wide_sum backward_result(const void *of, int64_t i) {
    const struct visit *v = of;
    int64_t c;
    const struct fl_row_terms *t = terms_at(v, i, &c);
    return fl_row_gradient(t, (int64_t)(v->own.dy[i] * v->own.columns.gamma[c]), (int64_t)v->own.x[i]);
}

/* The results of a block without estimates; the maxima stay in the groups. */
static void map_exactly(struct visit *v, int64_t pixels) {
    const struct fl_args *args = v->rows->args;
    const int64_t depth = depth_of(v->g);
    const double *gamma = v->own.columns.gamma, *beta = args->in[2].data ? v->own.columns.beta : NULL;
    for (int64_t p = 0; p < pixels; p++)
        for (int64_t k = 0; k < v->g->groups; k++) {
            struct group *group = &v->own.groups[k];
            const int64_t at = p * v->g->n + k * depth;
            group->out.value = v->own.value + at;
            if (args->op == FL_OP_GROUPNORM)
                fl_row_map_forward(&group->aligned, &group->terms, fl_exponent(&args->in[1]), fl_exponent(&args->in[2]),
                                   depth, v->own.x + at, gamma + k * depth, beta ? beta + k * depth : NULL,
                                   &group->out);
            else
                fl_row_map_backward(&group->aligned, &group->terms, depth, v->own.dy + at, v->own.x + at,
                                    gamma + k * depth, &group->out);
        }
}

static void map_block(struct visit *v, int64_t pixel, int64_t pixels) {
    const struct fl_rows *rows = v->rows;
    const bool forward = rows->args->op == FL_OP_GROUPNORM;
    const struct own *own = &v->own;
    const struct fl_row_estimates estimates = {own->value, own->size};
    const int64_t first = first_of(v, pixel), n = pixels * v->g->n;
    const double none = 0;
    if (!fl_ref_shared(rows->args)) {
        if (forward)
            rows->vectors->columns_values(pixels, v->g->n, own->x, &own->columns, own->value);
        else
            rows->vectors->columns_gradients(pixels, v->g->n, own->dy, own->x, &own->columns, own->value);
        fl_rows_write(rows, first, n, own->value, NULL, v->stats);
        return;
    }
    if (v->usual && forward)
        rows->vectors->columns_forward(pixels, v->g->n, own->x, &own->columns, &estimates);
    else if (v->usual)
        rows->vectors->columns_backward(pixels, v->g->n, own->dy, own->x, &own->columns, &estimates);
    if (v->usual &&
        fl_rows_write_estimates(rows, first, n, &estimates, forward ? forward_result : backward_result, v, v->stats))
        return;
    map_exactly(v, pixels);
    fl_rows_write(rows, first, n, own->value, &none, v->stats);
}

/* Adds the true maxima of the groups of an image. */
static void add_maxima(const struct visit *v) {
    struct fl_stats mine = {0};
    for (int64_t k = 0; k < v->g->groups; k++) {
        const struct group *group = &v->own.groups[k];
        const double most =
            group->out.most ? fl_scale2(fl_double_of_128((fl_int128)group->out.most), -group->aligned.e) : 0;
        mine.maximum = most > mine.maximum ? most : mine.maximum;
        mine.maximum = group->out.largest > mine.maximum ? group->out.largest : mine.maximum;
    }
    fl_stats_merge(v->stats, &mine);
}

/* The terms of every group of integer formats. */
static void find_terms(struct visit *v) {
    const struct fl_args *args = v->rows->args;
    const struct fl_norm *g = v->g;
    const bool forward = args->op == FL_OP_GROUPNORM, beta = args->in[2].data != NULL;
    const int ex = fl_exponent(&args->in[v->x]), eg = fl_exponent(&args->in[1]), eb = fl_exponent(&args->in[2]);
    v->usual = fl_rows_take_estimates(v->rows);
    v->own.columns.unit = forward && beta ? fl_row_unit(fl_exponent(&args->out) - eb) : 0;
    v->usual = v->usual && (v->own.columns.unit > 0 || !forward || !beta);
    for (int64_t k = 0; k < g->groups; k++) {
        const struct fl_row_sums s = sums_of(v, k);
        struct group *group = &v->own.groups[k];
        *group = (struct group){0};
        group->terms = forward ? fl_row_forward(&s, size_of(g), false, ex, g->epsilon)
                               : fl_row_backward(&s, size_of(g), false, ex, fl_exponent(&args->in[0]) + eb, g->epsilon);
        group->aligned = forward ? fl_align_forward(&group->terms, eg, beta, eb) : fl_align_backward(&group->terms);
        spread_terms(v, k, forward ? eg : 0);
    }
}

static void normalise_image(const struct fl_rows *rows, int64_t image, double *memory, struct fl_stats *stats) {
    const struct vectors *vectors = rows->plan;
    const bool forward = rows->args->op == FL_OP_GROUPNORM;
    struct visit v = visit_of(rows, memory, stats);
    v.image = image;
    v.x = forward ? 0 : 1;
    v.dy = forward ? -1 : 0;
    v.own.columns.gamma = vectors->gamma;
    v.own.columns.beta = vectors->beta;
    if (!fl_ref_shared(rows->args)) {
        number_groups(&v);
        go_through(&v, map_block);
        return;
    }
    sum_exactly(&v);
    find_terms(&v);
    go_through(&v, map_block);
    add_maxima(&v);
}

static int64_t own_doubles(const struct fl_norm *g) {
    struct own own;
    return lay_out_own(g, NULL, &own);
}

static struct fl_rows images_of(const struct fl_args *args) {
    return (struct fl_rows){.args = args,
                            .rows = args->p.norm.batch,
                            .width = args->p.norm.m * args->p.norm.n,
                            .common = (size_t)(2 * fl_row_room(args->p.norm.n)) * sizeof(double),
                            .doubles = own_doubles(&args->p.norm),
                            .run = normalise_image};
}

static size_t need(const struct fl_args *args) {
    const struct fl_rows rows = images_of(args);
    return fl_rows_need(&rows);
}

static tensor_status group_norm(const struct fl_args *args, const struct fl_row_vectors *vectors) {
    struct fl_rows rows = images_of(args);
    rows.vectors = vectors;
    char *memory = fl_rows_begin(&rows);
    if (!memory)
        return TENSOR_E_MEMORY;
    const bool forward = args->op == FL_OP_GROUPNORM;
    const int64_t n = args->p.norm.n;
    double *gamma = (double *)(void *)memory, *beta = gamma + fl_row_room(n);
    fl_rows_read(&rows, forward ? 1 : 2, 0, n, gamma);
    memset(beta, 0, (size_t)n * sizeof *beta);
    if (forward && args->in[2].data)
        fl_rows_read(&rows, 2, 0, n, beta);
    rows.plan = &(struct vectors){gamma, beta};
    fl_rows_run(&rows, memory);
    return TENSOR_OK;
}

/* --- the gradient by gamma: numbers of the groups, sums of chunks, sums of those ---------------------------------- */

/* Arrays in the memory that all threads share. */
struct gamma_plan {
    fl_int128 *exact; /* [chunks][n], of integer formats, */
    double *sums;     /* or of float formats */
    struct group_number *groups;
    double *value; /* [n] */
    int finest;
};

/* Images of a chunk of integer formats, whose sums are exact in any order. */
static int64_t images_of_chunk(const struct fl_norm *g) {
    return (FL_ROWS_CHUNK + g->m - 1) / g->m;
}

/* The pixels of a chunk of float formats are FL_ROWS_CHUNK, by the definition. */
static int64_t chunks_of(const struct fl_args *args) {
    const struct fl_norm *g = &args->p.norm;
    const int64_t images = images_of_chunk(g);
    return fl_ref_shared(args) ? (g->batch + images - 1) / images
                               : (g->batch * g->m + FL_ROWS_CHUNK - 1) / FL_ROWS_CHUNK;
}

/* Places the arrays from `memory` on; returns how many bytes they take. */
static size_t lay_out(const struct fl_args *args, char *memory, struct gamma_plan *p) {
    const struct fl_norm *g = &args->p.norm;
    const size_t cells = (size_t)(chunks_of(args) * g->n);
    const size_t sums = fl_line_bytes(cells * (fl_ref_shared(args) ? sizeof *p->exact : sizeof *p->sums)),
                 groups = fl_line_bytes((size_t)(g->batch * g->groups) * sizeof *p->groups),
                 values = (size_t)fl_row_room(g->n) * sizeof *p->value;
    if (memory) {
        p->exact = (fl_int128 *)(void *)memory;
        p->sums = (double *)(void *)memory;
        p->groups = (struct group_number *)(void *)(memory + sums);
        p->value = (double *)(void *)(memory + sums + groups);
    }
    return sums + groups + values;
}

static void numbers_image(const struct fl_rows *rows, int64_t image, double *memory, struct fl_stats *stats) {
    const struct fl_args *args = rows->args;
    const struct gamma_plan *p = rows->plan;
    struct visit v = visit_of(rows, memory, stats);
    v.image = image;
    v.x = 1;
    v.dy = -1;
    if (fl_ref_shared(args))
        sum_exactly(&v);
    else
        number_groups(&v);
    for (int64_t k = 0; k < v.g->groups; k++) {
        struct group_number *number = &p->groups[image * v.g->groups + k];
        *number = (struct group_number){0};
        if (fl_ref_shared(args)) {
            const struct fl_row_sums s = sums_of(&v, k);
            number->weight = fl_row_weight_of(&s, size_of(v.g), false, fl_exponent(&args->in[1]), v.g->epsilon);
        } else {
            number->numbers = v.own.groups[k].numbers;
        }
    }
}

/* The shares of the pixels of an image are weight (n dy x - sum dy) for each channel: its sums say all. */
static void add_image(const struct visit *v, const struct gamma_plan *p, fl_int128 *exact) {
    for (int64_t c = 0; c < v->g->n; c++) {
        const struct fl_row_weight *w = &p->groups[v->image * v->g->groups + c / depth_of(v->g)].weight;
        const struct fl_column_sums *s = &v->own.sums[c];
        const fl_int128 share = (fl_int128)size_of(v->g) * s->dy_x - (fl_int128)w->sum * s->dy;
        if (w->weight.m)
            exact[c] += share * ((fl_int128)w->weight.m * ((fl_int128)1 << (p->finest - w->weight.e)));
    }
}

static void chunk_of_images(const struct fl_rows *rows, int64_t chunk, double *memory, struct fl_stats *stats) {
    const struct gamma_plan *p = rows->plan;
    struct visit v = visit_of(rows, memory, stats);
    const int64_t begin = chunk * images_of_chunk(v.g), left = v.g->batch - begin,
                  end = begin + (left < images_of_chunk(v.g) ? left : images_of_chunk(v.g));
    fl_int128 *exact = p->exact + chunk * v.g->n;
    memset(exact, 0, (size_t)v.g->n * sizeof *exact);
    v.x = 1;
    v.dy = 0;
    for (v.image = begin; v.image < end; v.image++) {
        sum_exactly(&v);
        add_image(&v, p, exact);
    }
}

static void chunk_of_pixels(const struct fl_rows *rows, int64_t chunk, double *memory, struct fl_stats *stats) {
    const struct gamma_plan *p = rows->plan;
    struct visit v = visit_of(rows, memory, stats);
    const struct fl_norm *g = v.g;
    const int64_t all = g->batch * g->m, begin = chunk * FL_ROWS_CHUNK,
                  end = begin + FL_ROWS_CHUNK < all ? begin + FL_ROWS_CHUNK : all;
    double *total = p->sums + chunk * g->n;
    memset(total, 0, (size_t)g->n * sizeof *total);
    for (int64_t first = begin, last; first < end; first = last) { /* pixels of one image */
        const int64_t image = first / g->m;
        last = first + block_of(g) < end ? first + block_of(g) : end;
        last = last < (image + 1) * g->m ? last : (image + 1) * g->m;
        for (int64_t k = 0; k < g->groups && (first == begin || first % g->m == 0); k++)
            spread(g, &p->groups[image * g->groups + k].numbers, k, &v.own.columns);
        fl_rows_read(rows, 0, first * g->n, (last - first) * g->n, v.own.dy);
        fl_rows_read(rows, 1, first * g->n, (last - first) * g->n, v.own.x);
        rows->vectors->columns_shares(last - first, g->n, v.own.dy, v.own.x, &v.own.columns, total);
    }
}

static void add_chunks(const struct fl_rows *rows, const struct gamma_plan *p) {
    const struct fl_args *args = rows->args;
    const int64_t n = args->p.norm.n;
    struct fl_row_out out = {.value = p->value};
    for (int64_t c = 0; c < n; c++) {
        struct fl_wide_sum sum = {0, p->finest + fl_exponent(&args->in[0])};
        double total = 0;
        for (int64_t chunk = 0; chunk < chunks_of(args); chunk++) {
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
    fl_rows_write(rows, 0, n, p->value, &out.largest, args->stats);
}

static struct fl_rows gamma_rows(const struct fl_args *args, struct gamma_plan *p) {
    return (struct fl_rows){.args = args,
                            .plan = p,
                            .rows = args->p.norm.batch,
                            .width = args->p.norm.m * args->p.norm.n,
                            .common = lay_out(args, NULL, p),
                            .doubles = own_doubles(&args->p.norm),
                            .run = numbers_image};
}

static size_t gamma_need(const struct fl_args *args) {
    struct gamma_plan p = {0};
    const struct fl_rows rows = gamma_rows(args, &p);
    return fl_rows_need(&rows);
}

static tensor_status gamma_of_groups(const struct fl_args *args, const struct fl_row_vectors *vectors) {
    struct gamma_plan p = {0};
    struct fl_rows rows = gamma_rows(args, &p);
    const bool shared = fl_ref_shared(args);
    rows.vectors = vectors;
    char *memory = fl_rows_begin(&rows);
    if (!memory)
        return TENSOR_E_MEMORY;
    lay_out(args, memory, &p);
    fl_rows_run(&rows, memory);
    p.finest = shared ? finest_of(p.groups, args->p.norm.batch * args->p.norm.groups) : 0;
    rows.rows = chunks_of(args);
    rows.width = (shared ? images_of_chunk(&args->p.norm) * args->p.norm.m : FL_ROWS_CHUNK) * args->p.norm.n;
    rows.run = shared ? chunk_of_images : chunk_of_pixels;
    fl_rows_run(&rows, memory);
    add_chunks(&rows, &p);
    return TENSOR_OK;
}

FL_ROWS_TABLE(static, group_kernels, group_norm, need)
FL_ROWS_TABLE(static, gamma_kernels, gamma_of_groups, gamma_need)

/* --- the operations ----------------------------------------------------------------------------------------------- */

/* Images of any dimensions between the first and the channels. */
static void prepare(struct fl_args *args, const struct fl_sizes *sizes, const union fl_value *scalars) {
    (void)scalars;
    args->p.norm.batch = FL_SIZE(sizes, 'N');
    args->p.norm.m = FL_SIZE(sizes, 'm');
    args->p.norm.n = FL_SIZE(sizes, 'C');
}

/* Groups divide the channels, and have fewer than 2^31 elements. */
static bool derive(struct fl_sizes *sizes, const union fl_value *scalars, const char *name, bool quiet) {
    const int64_t channels = FL_SIZE(sizes, 'C'), groups = scalars[0].integer;
    if (channels % groups) {
        if (!quiet)
            fl_fail(TENSOR_E_ARGUMENT, "%s: %lld groups, expected a divisor of %lld channels", name, (long long)groups,
                    (long long)channels);
        return false;
    }
    const int64_t elements = FL_SIZE(sizes, 'm') * (channels / groups);
    if (elements > INT32_MAX && !quiet)
        fl_fail(TENSOR_E_SHAPE, "%s: %lld elements of a group, expected at most 2147483647", name, (long long)elements);
    return elements <= INT32_MAX;
}

static const struct fl_operand forward_operands[] = {
    {"y", "Nm*C"},
    {"x", "Nm*C", .at = FL_AT(in[0])},
    {"gamma", "C", .at = FL_AT(in[1])},
    {"beta", "C", FL_OPTIONAL, .at = FL_AT(in[2])},
};
static const struct fl_operand backward_operands[] = {
    {"dx", "Nm*C"},
    {"dgamma", "C"},
    {"dbeta", "C", FL_OPTIONAL},
    {"dy", "Nm*C", .at = FL_AT(in[0])},
    {"x", "Nm*C", .at = FL_AT(in[1])},
    {"gamma", "C", .at = FL_AT(in[2])},
};
static const struct fl_operand row_dx[] = {{"dx", "Nm*C"},
                                           {"dy", "Nm*C", .at = FL_AT(in[0])},
                                           {"x", "Nm*C", .at = FL_AT(in[1])},
                                           {"gamma", "C", .at = FL_AT(in[2])}};
static const struct fl_operand row_dgamma[] = {
    {"dgamma", "C"}, {"dy", "Nm*C", .at = FL_AT(in[0])}, {"x", "Nm*C", .at = FL_AT(in[1])}};
static const struct fl_scalar_rule scalars[] = {
    {"groups", FL_INT32, 1, INT32_MAX, .at = FL_AT(p.norm.groups)},
    {"epsilon", FL_REAL64, .above = true, .at = FL_AT(p.norm.epsilon)},
};

static tensor_status run_gradient(const struct fl_invocation *call, struct fl_args *args) {
    return fl_run_norm_gradient(call, args, FL_OP_GROUPNORM_GAMMA_GRAD);
}

const struct fl_operation fl_operation_groupnorm = {.op = FL_OP_GROUPNORM,
                                                    .promise = FL_PROMISE_DOUBLE,
                                                    .gradient = "groupnorm_grad, groupnorm_gamma_grad, sum_rows",
                                                    .reference = {ref_group_norm, ref_need},
                                                    .any = group_kernels};
const struct fl_operation fl_operation_groupnorm_grad = {.op = FL_OP_GROUPNORM_GRAD,
                                                         .promise = FL_PROMISE_DOUBLE,
                                                         FL_OPERANDS_OF(row_dx),
                                                         .reference = {ref_group_norm, ref_need},
                                                         .any = group_kernels};
const struct fl_operation fl_operation_groupnorm_gamma_grad = {.op = FL_OP_GROUPNORM_GAMMA_GRAD,
                                                               .promise = FL_PROMISE_DOUBLE,
                                                               FL_OPERANDS_OF(row_dgamma),
                                                               .reference = {ref_gamma, ref_gamma_need},
                                                               .any = gamma_kernels};

const struct fl_function fl_function_groupnorm = {.name = "groupnorm",
                                                  .op = FL_OP_GROUPNORM,
                                                  .outputs = 1,
                                                  FL_OPERANDS_OF(forward_operands),
                                                  FL_SCALARS_OF(scalars),
                                                  .derive = derive,
                                                  .prepare = prepare};
const struct fl_function fl_function_groupnorm_grad = {.name = "groupnorm_grad",
                                                       .op = FL_OP_GROUPNORM_GRAD,
                                                       .outputs = 3,
                                                       FL_OPERANDS_OF(backward_operands),
                                                       FL_SCALARS_OF(scalars),
                                                       .derive = derive,
                                                       .prepare = prepare,
                                                       .run = run_gradient};

tensor_status tensor_groupnorm(tensor *y, const tensor *x, const tensor *gamma, const tensor *beta, int groups,
                               double epsilon) {
    return FL_INVOKE(groupnorm, FL_GIVEN(y, x, gamma, beta), FL_INTEGER(groups), FL_REAL(epsilon));
}
tensor_status tensor_groupnorm_grad(tensor *dx, tensor *dgamma, tensor *dbeta, const tensor *dy, const tensor *x,
                                    const tensor *gamma, int groups, double epsilon) {
    return FL_INVOKE(groupnorm_grad, FL_GIVEN(dx, dgamma, dbeta, dy, x, gamma), FL_INTEGER(groups), FL_REAL(epsilon));
}
