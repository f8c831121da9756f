/* group_norm.c - group normalisation (Wu and He 2018): the channels of a group over all pixels of an image are
 * normalised together, as the elements of a row are in layer normalisation (row_norm_rules.h). Reference kernels,
 * kernels of images in threads for every format, the operations. Only x is kept from forward to backward. */
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

/* The numbers of a group that a thread holds for its image. */
struct group {
    struct fl_row_sums sums;
    struct fl_row_terms terms;
    struct fl_aligned aligned;
    struct fl_row_out out;
    struct fl_row_numbers numbers;
    double chain[FL_ROW_CHAINS], products[FL_ROW_CHAINS];
};

enum { BLOCK = 2048 /* elements, about, of the pixels that are decoded at a time */ };

static int64_t block_of(const struct fl_norm *g) { /* pixels */
    return g->n < BLOCK ? BLOCK / g->n : 1;
}
static int64_t block_doubles(const struct fl_norm *g) { /* of one operand; a multiple of a cache line */
    return (block_of(g) * g->n + 7) / 8 * 8;
}

/* The memory of a thread: x, dy and results of a block, then its groups. */
struct own {
    double *x, *dy, *value;
    struct group *groups;
};
static struct own own_of(const struct fl_norm *g, double *memory) {
    const int64_t block = block_doubles(g);
    return (struct own){memory, memory + block, memory + 2 * block, (struct group *)(void *)(memory + 3 * block)};
}

/* One visit to all pixels of an image; gamma: decoded, where the visit looks at it. */
struct visit {
    const struct fl_args *args;
    const struct own *own;
    const double *gamma, *beta;
    int64_t image;
    int x, dy; /* which operands these are; -1: none */
    struct fl_stats *stats;
};

/* do_group: `depth` elements of group k at `at` of the block, element `first` of the group. */
typedef void (*visit_fn)(const struct visit *v, struct group *group, int64_t k, int64_t at, int64_t first);

static void go_through(const struct visit *v, visit_fn do_group, bool stores) {
    const struct fl_norm *g = &v->args->p.norm;
    const int64_t depth = depth_of(g);
    for (int64_t pixel = 0; pixel < g->m; pixel += block_of(g)) {
        const int64_t end = pixel + block_of(g) < g->m ? pixel + block_of(g) : g->m, n = (end - pixel) * g->n,
                      first = (v->image * g->m + pixel) * g->n;
        fl_rows_fetch(v->args, v->x, first, n, v->own->x);
        if (v->dy >= 0)
            fl_rows_fetch(v->args, v->dy, first, n, v->own->dy);
        for (int64_t p = pixel; p < end; p++)
            for (int64_t k = 0; k < g->groups; k++)
                do_group(v, &v->own->groups[k], k, (p - pixel) * g->n + k * depth, p * depth);
        if (stores)
            fl_rows_store(v->args, first, n, v->own->value, 0, v->stats);
    }
}

static void add_exactly(const struct visit *v, struct group *group, int64_t k, int64_t at, int64_t first) {
    (void)first;
    const int64_t depth = depth_of(&v->args->p.norm);
    fl_row_add_sums(&group->sums, depth, v->own->x + at, v->dy >= 0 ? v->own->dy + at : NULL,
                    v->dy >= 0 ? v->gamma + k * depth : NULL);
}

static void add_values(const struct visit *v, struct group *group, int64_t k, int64_t at, int64_t first) {
    (void)k;
    for (int64_t c = 0; c < depth_of(&v->args->p.norm); c++)
        group->chain[(first + c) % FL_ROW_CHAINS] += v->own->x[at + c];
}

static void add_squares(const struct visit *v, struct group *group, int64_t k, int64_t at, int64_t first) {
    (void)k;
    for (int64_t c = 0; c < depth_of(&v->args->p.norm); c++) {
        const double distance = v->own->x[at + c] - group->numbers.mean;
        group->chain[(first + c) % FL_ROW_CHAINS] += distance * distance;
    }
}

static void add_gradients(const struct visit *v, struct group *group, int64_t k, int64_t at, int64_t first) {
    const int64_t depth = depth_of(&v->args->p.norm);
    for (int64_t c = 0; c < depth; c++) {
        const int64_t i = (first + c) % FL_ROW_CHAINS;
        const double g = v->own->dy[at + c] * v->gamma[k * depth + c];
        group->chain[i] += g;
        group->products[i] += g * fl_row_normal(&group->numbers, v->own->x[at + c]);
    }
}

static double take_sum(double *chain) {
    double total = 0;
    for (int j = 0; j < FL_ROW_CHAINS; j++) {
        total += chain[j];
        chain[j] = 0;
    }
    return total;
}

/* Sums of x of every group, and in float formats their numbers. */
static void sum_groups(struct visit *v) {
    const struct fl_norm *g = &v->args->p.norm;
    const double count = (double)size_of(g);
    for (int64_t k = 0; k < g->groups; k++)
        v->own->groups[k] = (struct group){0};
    if (fl_ref_shared(v->args)) {
        go_through(v, add_exactly, false);
        return;
    }
    const int dy = v->dy;
    v->dy = -1;
    go_through(v, add_values, false);
    for (int64_t k = 0; k < g->groups; k++)
        v->own->groups[k].numbers.mean = take_sum(v->own->groups[k].chain) / count;
    go_through(v, add_squares, false);
    for (int64_t k = 0; k < g->groups; k++)
        v->own->groups[k].numbers.inverse =
            1 / sqrt(take_sum(v->own->groups[k].chain) / count + v->args->p.norm.epsilon);
    v->dy = dy;
    if (dy < 0)
        return;
    go_through(v, add_gradients, false);
    for (int64_t k = 0; k < g->groups; k++) {
        struct group *group = &v->own->groups[k];
        group->numbers.mean_g = take_sum(group->chain) / count;
        group->numbers.slope = take_sum(group->products) / count;
    }
}

static void map_forward(const struct visit *v, struct group *group, int64_t k, int64_t at, int64_t first) {
    (void)first;
    const int64_t depth = depth_of(&v->args->p.norm);
    const double *x = v->own->x + at, *gamma = v->gamma + k * depth, *beta = v->beta ? v->beta + k * depth : NULL;
    double *value = v->own->value + at;
    if (fl_ref_shared(v->args)) {
        group->out.value = value;
        fl_row_map_forward(&group->aligned, &group->terms, fl_exponent(&v->args->in[1]), fl_exponent(&v->args->in[2]),
                           depth, x, gamma, beta, &group->out);
        return;
    }
    for (int64_t c = 0; c < depth; c++)
        value[c] = fl_row_float_value(&group->numbers, x[c], gamma[c], beta ? beta[c] : 0);
}

static void map_backward(const struct visit *v, struct group *group, int64_t k, int64_t at, int64_t first) {
    (void)first;
    const int64_t depth = depth_of(&v->args->p.norm);
    const double *x = v->own->x + at, *dy = v->own->dy + at, *gamma = v->gamma + k * depth;
    double *value = v->own->value + at;
    if (fl_ref_shared(v->args)) {
        group->out.value = value;
        fl_row_map_backward(&group->aligned, &group->terms, depth, dy, x, gamma, &group->out);
        return;
    }
    for (int64_t c = 0; c < depth; c++)
        value[c] = fl_row_float_gradient(&group->numbers, dy[c] * gamma[c], x[c]);
}

/* The true maximum of what the groups of an image wrote. */
static void add_maxima(const struct visit *v) {
    struct fl_stats mine = {0};
    for (int64_t k = 0; k < v->args->p.norm.groups; k++) {
        const struct group *group = &v->own->groups[k];
        const double most =
            group->out.most ? fl_scale2(fl_double_of_128((fl_int128)group->out.most), -group->aligned.e) : 0;
        mine.maximum = most > mine.maximum ? most : mine.maximum;
        mine.maximum = group->out.largest > mine.maximum ? group->out.largest : mine.maximum;
    }
    fl_stats_merge(v->stats, &mine);
}

/* gamma and beta (NULL: none), decoded once. */
struct vectors {
    const double *gamma, *beta;
};

static void forward_image(const struct fl_rows *rows, int64_t image, double *memory, struct fl_stats *stats) {
    const struct fl_args *args = rows->args;
    const struct vectors *vectors = rows->plan;
    const struct own own = own_of(&args->p.norm, memory);
    struct visit v = {args, &own, vectors->gamma, vectors->beta, image, 0, -1, stats};
    sum_groups(&v);
    for (int64_t k = 0; k < args->p.norm.groups && fl_ref_shared(args); k++) {
        struct group *group = &own.groups[k];
        group->terms = fl_row_forward(&group->sums, size_of(&args->p.norm), false, fl_exponent(&args->in[0]),
                                      args->p.norm.epsilon);
        group->aligned =
            fl_align_forward(&group->terms, fl_exponent(&args->in[1]), v.beta != NULL, fl_exponent(&args->in[2]));
    }
    go_through(&v, map_forward, true);
    if (fl_ref_shared(args))
        add_maxima(&v);
}

static void backward_image(const struct fl_rows *rows, int64_t image, double *memory, struct fl_stats *stats) {
    const struct fl_args *args = rows->args;
    const struct vectors *vectors = rows->plan;
    const struct own own = own_of(&args->p.norm, memory);
    struct visit v = {args, &own, vectors->gamma, NULL, image, 1, 0, stats};
    sum_groups(&v);
    for (int64_t k = 0; k < args->p.norm.groups && fl_ref_shared(args); k++) {
        struct group *group = &own.groups[k];
        group->terms = fl_row_backward(&group->sums, size_of(&args->p.norm), false, fl_exponent(&args->in[1]),
                                       fl_exponent(&args->in[0]) + fl_exponent(&args->in[2]), args->p.norm.epsilon);
        group->aligned = fl_align_backward(&group->terms);
    }
    go_through(&v, map_backward, true);
    if (fl_ref_shared(args))
        add_maxima(&v);
}

static int64_t own_doubles(const struct fl_norm *g) {
    return 3 * block_doubles(g) + g->groups * (int64_t)(sizeof(struct group) / sizeof(double));
}
_Static_assert(sizeof(struct group) % sizeof(double) == 0, "groups are counted in doubles");

static struct fl_rows images_of(const struct fl_args *args) {
    return (struct fl_rows){.args = args,
                            .rows = args->p.norm.batch,
                            .width = args->p.norm.m * args->p.norm.n,
                            .common = (size_t)(2 * args->p.norm.n) * sizeof(double),
                            .doubles = own_doubles(&args->p.norm),
                            .run = args->op == FL_OP_GROUPNORM ? forward_image : backward_image};
}

static size_t need(const struct fl_args *args) {
    const struct fl_rows rows = images_of(args);
    return fl_rows_need(&rows);
}

static tensor_status group_norm_images(const struct fl_args *args) {
    struct fl_rows rows = images_of(args);
    char *memory = fl_rows_begin(&rows);
    if (!memory)
        return TENSOR_E_MEMORY;
    const bool forward = args->op == FL_OP_GROUPNORM;
    const int64_t n = args->p.norm.n;
    double *gamma = (double *)(void *)memory, *beta = forward && args->in[2].data ? gamma + n : NULL;
    fl_rows_fetch(args, forward ? 1 : 2, 0, n, gamma);
    if (beta)
        fl_rows_fetch(args, 2, 0, n, beta);
    rows.plan = &(struct vectors){gamma, beta};
    fl_rows_run(&rows, memory);
    return TENSOR_OK;
}

/* --- the gradient by gamma: numbers of the groups, sums of chunks of pixels, sums of those ------------------------ */

/* Arrays in the memory that all share. */
struct gamma_plan {
    fl_int128 *exact; /* [chunks][n], of integer formats, */
    double *sums;     /* or of float formats */
    struct group_number *groups;
    double *value; /* [n] */
    int finest;
};

static int64_t chunks_of(const struct fl_args *args) {
    return (args->p.norm.batch * args->p.norm.m + FL_ROWS_CHUNK - 1) / FL_ROWS_CHUNK;
}

/* Lays the arrays out from `memory` on; how many bytes they take. */
static size_t lay_out(const struct fl_args *args, char *memory, struct gamma_plan *p) {
    const struct fl_norm *g = &args->p.norm;
    const size_t cells = (size_t)(chunks_of(args) * g->n);
    const size_t sums = fl_line_bytes(cells * (fl_ref_shared(args) ? sizeof *p->exact : sizeof *p->sums)),
                 groups = fl_line_bytes((size_t)(g->batch * g->groups) * sizeof *p->groups),
                 values = fl_line_bytes((size_t)g->n * sizeof *p->value);
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
    const struct own own = own_of(&args->p.norm, memory);
    struct visit v = {args, &own, NULL, NULL, image, 1, -1, stats};
    sum_groups(&v);
    for (int64_t k = 0; k < args->p.norm.groups; k++) {
        struct group_number *number = &p->groups[image * args->p.norm.groups + k];
        *number = (struct group_number){.numbers = own.groups[k].numbers};
        if (fl_ref_shared(args))
            number->weight = fl_row_weight_of(&own.groups[k].sums, size_of(&args->p.norm), false,
                                              fl_exponent(&args->in[1]), args->p.norm.epsilon);
    }
}

/* Adds the shares of a group in one pixel. */
static void add_shares(const struct gamma_plan *p, const struct fl_norm *g, const struct group_number *of,
                       const double *dy, const double *x, int64_t cell, bool shared) {
    const int64_t depth = depth_of(g), size = size_of(g), sum = of->weight.sum;
    if (!shared) {
        for (int64_t c = 0; c < depth; c++)
            p->sums[cell + c] += dy[c] * fl_row_normal(&of->numbers, x[c]);
        return;
    }
    const struct fl_coefficient w = of->weight.weight;
    if (!w.m)
        return;
    const fl_int128 weight = (fl_int128)w.m * ((fl_int128)1 << (p->finest - w.e));
    for (int64_t c = 0; c < depth; c++) /* below 2^62: groups have fewer than 2^31 elements */
        p->exact[cell + c] += (int64_t)dy[c] * (size * (int64_t)x[c] - sum) * weight;
}

static void chunk_of_pixels(const struct fl_rows *rows, int64_t chunk, double *memory, struct fl_stats *stats) {
    (void)stats;
    const struct fl_args *args = rows->args;
    const struct fl_norm *g = &args->p.norm;
    const struct gamma_plan *p = rows->plan;
    const struct own own = own_of(g, memory);
    const bool shared = fl_ref_shared(args);
    const int64_t all = g->batch * g->m, begin = chunk * FL_ROWS_CHUNK,
                  end = begin + FL_ROWS_CHUNK < all ? begin + FL_ROWS_CHUNK : all, cell = chunk * g->n;
    for (int64_t c = 0; c < g->n; c++) {
        if (shared)
            p->exact[cell + c] = 0;
        else
            p->sums[cell + c] = 0;
    }
    for (int64_t first = begin; first < end; first += block_of(g)) {
        const int64_t last = first + block_of(g) < end ? first + block_of(g) : end;
        fl_rows_fetch(args, 0, first * g->n, (last - first) * g->n, own.dy);
        fl_rows_fetch(args, 1, first * g->n, (last - first) * g->n, own.x);
        for (int64_t pixel = first; pixel < last; pixel++)
            for (int64_t k = 0; k < g->groups; k++) {
                const int64_t at = (pixel - first) * g->n + k * depth_of(g);
                add_shares(p, g, &p->groups[pixel / g->m * g->groups + k], own.dy + at, own.x + at,
                           cell + k * depth_of(g), shared);
            }
    }
}

static void add_chunks(const struct fl_args *args, const struct gamma_plan *p) {
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
    fl_rows_store(args, 0, n, p->value, out.largest, args->stats);
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

static tensor_status gamma_of_groups(const struct fl_args *args) {
    struct gamma_plan p = {0};
    struct fl_rows rows = gamma_rows(args, &p);
    char *memory = fl_rows_begin(&rows);
    if (!memory)
        return TENSOR_E_MEMORY;
    lay_out(args, memory, &p);
    fl_rows_run(&rows, memory);
    p.finest = fl_ref_shared(args) ? finest_of(p.groups, args->p.norm.batch * args->p.norm.groups) : 0;
    rows.rows = chunks_of(args);
    rows.width = FL_ROWS_CHUNK * args->p.norm.n;
    rows.run = chunk_of_pixels;
    fl_rows_run(&rows, memory);
    add_chunks(args, &p);
    return TENSOR_OK;
}

static const struct fl_any_kernels group_kernels[FL_BACKENDS] = {[FL_PORTABLE] = {group_norm_images, need}};
static const struct fl_any_kernels gamma_kernels[FL_BACKENDS] = {[FL_PORTABLE] = {gamma_of_groups, gamma_need}};

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
