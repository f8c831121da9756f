/* kernel_cases.h - inputs for every entry of the table, the same for each test that iterates over it: sizes from
 * tables, shapes and parameters by the signatures of operations, operands by style, from a seed. It knows no format by
 * name. An operation that no table names has sizes drawn from its signature. */
#ifndef FL_KERNEL_CASES_H
#define FL_KERNEL_CASES_H

#include "check.h"
#include "core/table/format.h"
#include "draw_function.h"
#include "exponents.h"
#include "core/base/memory.h"
#include <math.h>
#include <string.h>

enum { CANARY = 64, CHANNELS = 128, INDICES = 2048, MARKS = 5000 };

enum style { ORDINARY, EXTREME, TINY, SPARSE, SPECIAL, STYLES };

struct block {
    struct fl_view view;
    unsigned char *memory;
    size_t bytes;
};

static struct block block_new(const struct fl_format *f, int64_t count, int e) {
    struct block b = {.bytes = (size_t)count * (size_t)f->bytes};
    b.memory = fl_alloc(b.bytes + CANARY);
    memset(b.memory, 0xa5, b.bytes + CANARY);
    b.view = (struct fl_view){b.memory, NULL, exponent_at(e), count};
    return b;
}

static void block_free(struct block *b) {
    fl_free(b->memory);
    fl_free(b->view.wide);
}

static double uniform(uint64_t *seed) {
    return (double)(check_random(seed) >> 11) * 0x1p-53;
}

/* Draws a value of a style, in units of the format. */
static double value_of(const struct fl_format *f, enum style style, uint64_t *seed) {
    const bool shared = f->arithmetic == FL_ARITHMETIC_SHARED, scaled = fl_has_exponent(f) && !shared;
    double v = (uniform(seed) + uniform(seed) + uniform(seed) + uniform(seed) - 2) * 0.7; /* near Gaussian */
    uint64_t pick = check_random(seed);
    switch (style) {
    case EXTREME:
        return pick & 1 ? 1 : -1;
    case TINY:
        return scaled   ? v * ldexp(8 / f->element->largest, f->element->unit)
               : shared ? v * 0x1p-12
                        : v * (f->id == FMT_FP16 ? 0x1p-20 : 0x1p-130); /* subnormals */
    case SPARSE:
        return pick % 3 ? 0 : v;
    case SPECIAL:
        return shared ? v : pick % 17 == 0 ? NAN : pick % 19 == 0 ? INFINITY : pick % 23 == 0 ? -INFINITY : v;
    default:
        return v;
    }
}

/* Elements, or wide parts, that were drawn before, by all that they depend on. The sequence of numbers begins anew with
 * each case, so that most operations of a format have operands in common. */
struct drawn_before {
    const struct fl_format *format;
    const struct fl_element *element;
    uint64_t first, next; /* states of the sequence */
    int64_t count;
    int exponent, style;
    bool wide;
    size_t bytes;
    void *data;
};
enum { DRAWN_BEFORE = 512, DRAWN_BYTES = 64 << 20 };

/* Its place among those drawn before; *known: it is there. */
static struct drawn_before *drawn_place(const struct drawn_before *wanted, bool *known) {
    static struct drawn_before all[DRAWN_BEFORE];
    static size_t held;
    uint64_t hash = wanted->first + (uint64_t)wanted->count * 97 + (uint64_t)wanted->style * 11 + wanted->wide +
                    (uint64_t)(wanted->exponent + EXPONENT_LIMIT) * 8191;
    struct drawn_before *at = &all[check_random(&hash) % DRAWN_BEFORE];
    *known = at->data && at->format == wanted->format && at->element == wanted->element && at->first == wanted->first &&
             at->count == wanted->count && at->exponent == wanted->exponent && at->style == wanted->style &&
             at->wide == wanted->wide && at->bytes == wanted->bytes;
    if (*known)
        return at;
    for (int i = 0; held + wanted->bytes > DRAWN_BYTES && i < DRAWN_BEFORE; i++) {
        held -= all[i].bytes;
        free(all[i].data);
        all[i] = (struct drawn_before){0};
    }
    held -= at->bytes;
    free(at->data);
    *at = *wanted;
    at->data = malloc(wanted->bytes + 1);
    at->bytes = at->data ? wanted->bytes : 0;
    held += at->bytes;
    return at;
}

/* Draws `bytes` at data by make, or copies what it drew for the same arguments before. */
static void draw_once(void (*make)(const struct fl_format *, struct block *, enum style, uint64_t *),
                      const struct fl_format *f, struct block *b, enum style style, uint64_t *seed, bool wide,
                      void *data, size_t bytes) {
    const struct drawn_before wanted = {.format = f,
                                        .element = f->element,
                                        .first = *seed,
                                        .count = b->view.count,
                                        .exponent = fl_exponent(&b->view),
                                        .style = (int)style,
                                        .wide = wide,
                                        .bytes = bytes};
    bool known;
    struct drawn_before *at = drawn_place(&wanted, &known);
    if (known) {
        memcpy(data, at->data, bytes);
        *seed = at->next;
        return;
    }
    make(f, b, style, seed);
    at->next = *seed;
    if (at->data)
        memcpy(at->data, data, bytes);
}

static void draw_elements(const struct fl_format *f, struct block *b, enum style style, uint64_t *seed) {
    const bool shared = f->arithmetic == FL_ARITHMETIC_SHARED;
    const double unit = fl_has_exponent(f) ? ldexp(1, -fl_exponent(&b->view)) : 1;
    struct fl_rounding nearest = {TENSOR_ROUND_NEAREST, 0, 0};
    struct fl_stats ignored = {0};
    double values[256];
    for (int64_t first = 0, n; first < b->view.count; first += n) {
        n = b->view.count - first < 256 ? b->view.count - first : 256;
        for (int64_t i = 0; i < n; i++) {
            double v = value_of(f, style, seed);
            if (shared)
                v = fmin(fmax(v, -1), 1) * f->top * unit;
            else if (fl_has_exponent(f))
                v *= f->element->largest * unit;
            else if (style == EXTREME)
                v *= f->id == FMT_FP16 ? 65504 : 0x1.fep127;
            values[i] = v;
        }
        f->encode(f, &b->view, first, n, values, false, &nearest, &ignored);
    }
}

static void fill(const struct fl_format *f, struct block *b, enum style style, uint64_t *seed) {
    draw_once(draw_elements, f, b, style, seed, false, b->memory, b->bytes);
}

/* Of the elements that fill gave it last. */
static void draw_wide(const struct fl_format *f, struct block *b, enum style style, uint64_t *seed) {
    (void)style;
    double *values = fl_alloc((size_t)b->view.count * sizeof *values);
    f->decode(f, &b->view, 0, b->view.count, values);
    for (int64_t i = 0; i < b->view.count; i++) {
        if (f->arithmetic == FL_ARITHMETIC_SHARED)
            ((int32_t *)b->view.wide)[i] = (int32_t)(ldexp(values[i], fl_exponent(&b->view)) * 65536) +
                                           (int32_t)(check_random(seed) % 60000) - 30000;
        else
            ((float *)b->view.wide)[i] = (float)(values[i] * (1 + (uniform(seed) - 0.5) * 0x1p-12));
    }
    fl_free(values);
}

static void add_wide(const struct fl_format *f, struct block *b, enum style style, uint64_t *seed) {
    if (!f->wide_bytes)
        return;
    const size_t bytes = (size_t)b->view.count * (size_t)f->wide_bytes;
    b->view.wide = fl_alloc(bytes);
    draw_once(draw_wide, f, b, style, seed, true, b->view.wide, bytes);
}

/* --- sizes of cases ----------------------------------------------------------------------------------------------- */

static const int64_t elements[][1] = {{1}, {7}, {64}, {515}, {4097}, {70001}};
/* m, n, rows of a table (1: chains of many terms), channels of a window (more than there are, too) */
static const int64_t row_sizes[][4] = {{1, 1, 1, 1},   {3, 5, 9, 5},      {600, 16, 200, 5}, {1030, 17, 1, 4},
                                       {40, 64, 3, 9}, {513, 3, 40, 100}, {2048, 32, 700, 3}};
static const int64_t matrix_sizes[][3] = {{1, 1, 1},     {3, 5, 7},       {17, 33, 515},
                                          {65, 16, 144}, {16, 144, 1100}, {130, 70, 64}};
/* few matrices, and so many that threads process them whole */
static const int64_t batch_sizes[][4] = {{1, 1, 1, 1},   {3, 5, 7, 9},     {2, 33, 17, 515},
                                         {37, 4, 16, 6}, {30, 17, 13, 64}, {65, 16, 32, 8}};
/* N H W C K R S, stride down and across, padding top bottom left right, dilation, groups; the last 8 asymmetric */
static const int64_t convolutions[][16] = {
    {1, 5, 5, 1, 1, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1},    {2, 8, 8, 3, 5, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1},
    {3, 9, 7, 16, 17, 3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 1},  {2, 6, 6, 17, 16, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1},
    {2, 11, 11, 4, 8, 5, 5, 3, 3, 2, 2, 2, 2, 1, 1, 1},  {5, 8, 8, 16, 32, 3, 3, 2, 2, 1, 1, 1, 1, 1, 1, 1},
    {2, 9, 10, 5, 6, 3, 3, 1, 1, 2, 2, 2, 2, 2, 2, 1},   {1, 13, 11, 4, 7, 3, 3, 2, 2, 3, 3, 3, 3, 3, 3, 1},
    {2, 8, 7, 12, 18, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 3},  {2, 9, 9, 10, 20, 3, 3, 2, 2, 2, 2, 2, 2, 2, 2, 2},
    {2, 7, 8, 70, 70, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 70}, {1, 12, 9, 6, 18, 3, 3, 3, 3, 2, 2, 2, 2, 2, 2, 6},
    {1, 8, 8, 24, 8, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 8},   {1, 5, 6, 1, 1, 3, 2, 1, 2, 1, 0, 0, 1, 1, 1, 1},
    {2, 9, 8, 3, 5, 2, 3, 2, 1, 0, 1, 2, 2, 1, 2, 1},    {1, 1, 40, 16, 17, 1, 3, 1, 1, 0, 0, 8, 0, 1, 4, 1},
    {2, 12, 1, 6, 8, 5, 1, 3, 1, 3, 4, 0, 0, 2, 1, 2},   {1, 7, 9, 12, 12, 3, 5, 1, 3, 2, 0, 1, 4, 2, 1, 12},
    {3, 6, 7, 17, 33, 1, 1, 1, 1, 0, 1, 0, 0, 1, 1, 1},  {1, 10, 11, 64, 32, 3, 3, 1, 2, 1, 1, 0, 1, 1, 1, 1},
    {2, 9, 9, 8, 24, 4, 2, 2, 3, 9, 0, 0, 7, 1, 3, 4}};
/* N H W C, window, stride, padding, dilation; the last 3 asymmetric */
static const int64_t pool_windows[][14] = {
    {1, 4, 4, 1, 2, 2, 2, 2, 0, 0, 0, 0, 1, 1},   {2, 9, 7, 16, 3, 3, 2, 2, 1, 1, 1, 1, 1, 1},
    {3, 8, 8, 17, 2, 2, 1, 1, 0, 0, 0, 0, 1, 1},  {1, 5, 6, 1, 2, 3, 1, 2, 1, 0, 0, 2, 1, 1},
    {2, 9, 12, 17, 3, 2, 2, 1, 0, 3, 4, 1, 2, 4}, {2, 1, 30, 33, 1, 4, 1, 3, 0, 0, 9, 0, 1, 3}};
/* N H W C, window, stride, padding, whether padding counts */
static const int64_t mean_windows[][13] = {
    {1, 4, 4, 1, 2, 2, 2, 2, 0, 0, 0, 0, 0},    {2, 9, 7, 16, 3, 3, 2, 2, 1, 1, 1, 1, 1},
    {2, 9, 7, 17, 3, 3, 2, 2, 1, 1, 1, 1, 0},   {1, 8, 5, 5, 5, 5, 1, 1, 4, 4, 4, 4, 0},
    {3, 8, 8, 33, 2, 2, 3, 3, 1, 1, 1, 1, 0},   {1, 30, 26, 2, 25, 25, 3, 3, 12, 12, 12, 12, 1},
    {1, 19, 20, 3, 14, 14, 2, 2, 6, 6, 6, 6, 0}};
static const int64_t part_sizes[][6] = {{1, 5, 5, 1, 1, 1},   {2, 7, 9, 16, 3, 2}, {2, 3, 4, 17, 5, 7},
                                        {1, 31, 29, 4, 7, 7}, {3, 8, 8, 33, 4, 8}, {1, 25, 40, 2, 1, 3}};
static const int64_t shortcuts[][6] = {{1, 5, 5, 1, 1, 1},   {2, 8, 8, 3, 4, 1},   {3, 9, 7, 16, 18, 2},
                                       {2, 6, 6, 17, 20, 1}, {2, 11, 11, 4, 8, 3}, {5, 8, 8, 16, 21, 2}};
/* N m C and groups */
static const int64_t group_sizes[][4] = {{1, 1, 1, 1},    {2, 5, 6, 3},   {3, 49, 16, 16}, {1, 600, 10, 2},
                                         {5, 130, 24, 4}, {2, 17, 33, 1}, {40, 2, 64, 32}};
static const int64_t cell_sizes[][2] = {{1, 1}, {3, 5}, {17, 33}, {40, 64}, {300, 7}};
/* dimensions, their sizes, those summed over or where the first operand is repeated, where the second one is */
static const int64_t axis_sets[][9] = {
    {1, 1, 0, 0, 0, 0, 0, 0x1, 0x0},    {2, 7, 5, 0, 0, 0, 0, 0x2, 0x1},    {2, 5, 7, 0, 0, 0, 0, 0x1, 0x3},
    {3, 3, 40, 17, 0, 0, 0, 0x2, 0x4},  {3, 2, 5, 515, 0, 0, 0, 0x4, 0x2},  {4, 2, 9, 7, 33, 0, 0, 0x6, 0x9},
    {2, 1030, 3, 0, 0, 0, 0, 0x1, 0x2}, {1, 4097, 0, 0, 0, 0, 0, 0x1, 0x0}, {6, 2, 3, 1, 5, 4, 7, 0x15, 0x2a},
    {5, 3, 2, 5, 4, 6, 0, 0x1b, 0x4},   {2, 33, 130, 0, 0, 0, 0, 0x0, 0x0}, {2, 2, 1500, 0, 0, 0, 0, 0x3, 0x2}};
static const int64_t orders[][8] = {{1, 7, 0, 0, 0, 0, 0, 0x0},      {2, 33, 70, 0, 0, 0, 0, 0x1},
                                    {2, 130, 65, 0, 0, 0, 0, 0x10},  {3, 5, 40, 17, 0, 0, 0, 0x102},
                                    {4, 3, 20, 4, 33, 0, 0, 0x3120}, {6, 2, 3, 1, 5, 4, 7, 0x142035}};
/* rows, columns, the dimension of columns, their number and the first; or columns of each operand */
static const int64_t slice_sizes[][5] = {
    {1, 1, 1, 1, 0}, {7, 5, 1, 3, 2}, {40, 33, 1, 1, 32}, {1, 5000, 1, 2500, 1100}, {300, 16, 1, 16, 0}};
static const int64_t concat_sizes[][5] = {{1, 1, 1, 1, 0}, {9, 3, 1, 1, 5}, {70, 17, 1, 33, 0}, {2, 1500, 1, 700, 900}};

/* Cases of operations, an array of numbers each. The first are the sizes of letters of the signature: a letter with *
 * is the number of dimensions and six of them, a letter with 2 is two dimensions, a point a number that is not used.
 * The others are the scalars of the function that are not real numbers, in their order. */
struct cases {
    const char *operations, *sizes;
    const int64_t *rows;
    int width, count; /* numbers of a case; cases */
    int asymmetric;   /* cases after those: windows whose directions or sides differ */
    bool fused;       /* all cases without an epilogue, then all of them again, each with another */
    unsigned given;   /* bit i % 12: whether case i has the optional operands; 0: odd cases have them */
    char channels;    /* see struct shape; =: the last dimension of the result */
};

#define TABLE(table) table[0], (int)(sizeof table[0] / sizeof table[0][0])
#define ROWS(table) TABLE(table), (int)(sizeof table / sizeof table[0])
static const struct cases elementwise = {"", "e", ROWS(elements)};
static const struct cases all_cases[] = {
    {"bias bias_relu sum_rows layernorm layernorm_grad layernorm_gamma_grad rmsnorm rmsnorm_grad rmsnorm_gamma_grad "
     "softmax softmax_grad log_softmax log_softmax_grad",
     "mn", ROWS(row_sizes), .channels = '='},
    {"channel_sums channel_grad_sums channel_affine_grad", "mC", ROWS(row_sizes), .channels = '='},
    {"channel_affine", "mC", ROWS(row_sizes), .given = 0x333, .channels = '='},
    {"lrn lrn_grad", "mC.", ROWS(row_sizes), .channels = '='},
    {"embedding embedding_grad", "mnk", ROWS(row_sizes), .channels = '='},
    {"matmul matmul_nt", "mnk", ROWS(matrix_sizes), .fused = true, .channels = '='},
    {"matmul_tn", "mnk", ROWS(matrix_sizes), .channels = '='},
    {"matmul_batched matmul_batched_nt matmul_batched_tn", "lmnk", ROWS(batch_sizes), .channels = '='},
    {"conv2d", "NHWCKRS", TABLE(convolutions), 13, .asymmetric = 8, .fused = true},
    {"conv2d_input_grad conv2d_weight_grad", "NHWCKRS", TABLE(convolutions), 13, .asymmetric = 8},
    {"maxpool2d maxpool2d_grad", "NHWC", TABLE(pool_windows), 3, .asymmetric = 3},
    {"avgpool_global avgpool_global_grad", "NHWC", TABLE(pool_windows), 3},
    {"avgpool2d avgpool2d_grad", "NHWC", ROWS(mean_windows), .channels = 'p'},
    {"avgpool_adaptive avgpool_adaptive_grad", "NHWCPQ", ROWS(part_sizes), .channels = 'p'},
    {"shortcut_a shortcut_a_grad", "NHWCK", ROWS(shortcuts)},
    {"groupnorm groupnorm_grad groupnorm_gamma_grad", "NmC", ROWS(group_sizes), .channels = '='},
    {"lstm_cell lstm_hidden lstm_cell_grad lstm_gates_grad gru_hidden gru_input_grad gru_gates_grad gru_state_grad",
     "Nh", ROWS(cell_sizes), .given = 0x555, .channels = 'h'}, /* the last step has no following step */
    {"reduce_sum reduce_mean reduce_max reduce_min reduce_l1 reduce_l2 reduce_sum_grad reduce_mean_grad "
     "reduce_max_grad reduce_min_grad reduce_l1_grad reduce_l2_grad broadcast_add broadcast_mul broadcast_mul_grad "
     "where where_grad",
     "e*", ROWS(axis_sets)},
    {"permute", "e*", ROWS(orders)},
    {"slice slice_grad", "e2", ROWS(slice_sizes), .channels = '='},
    {"concat", "e2", ROWS(concat_sizes), .channels = '='},
    {"clip_weight root_mean add_ratio", "e", TABLE(elements), 12},
    {"combine", "e", TABLE(elements), 12, .given = 0xdb6}};

/* --- a case: its signature with sizes ----------------------------------------------------------------------------- */

/* A case of an operation: the number of elements of its operands. */
struct shape {
    struct drawn drawn; /* the sizes and scalars of its function */
    int64_t out, in[3];
    struct {
        unsigned at; /* its position in struct fl_args */
        int64_t count;
    } addend[2]; /* operands beside those; the second one may be the output */
    int64_t marks, indices;
    int64_t channels; /* the channels of a sum over channels; for other operations the value with which golden.txt was
                         recorded */
    bool relu;
    bool in_place; /* allowed with in[0], or with the second addend if there is one */
    bool wide[3];  /* whether the operand is its wide part */
    bool asymmetric;
    bool listed;     /* its sizes are those of a table */
    bool by_tensors; /* its function derives parameters from tensors */
};

/* The function of an operation: the one of its name, or the most similar one if functions with other names use it. */
static const struct fl_function *function_of(enum fl_op op) {
    const char *name = fl_op_name(op);
    const struct fl_function *best = fl_function_named(name);
    size_t longest = strcspn(name, "_");
    for (int i = 0; !fl_function_named(name) && fl_function_at(i); i++) {
        const char *other = fl_function_at(i)->name;
        size_t n = 0;
        while (name[n] && name[n] == other[n])
            n++;
        if (n > longest) {
            longest = n;
            best = fl_function_at(i);
        }
    }
    return best;
}

/* The properties that determine shapes. */
struct signature {
    const struct fl_operand *operands; /* NULL: it has no cases here */
    int count;
    bool writes_first;         /* writes the first operand, although it is in[0] */
    const struct cases *cases; /* NULL: sizes are drawn */
};

static struct signature signature_of(enum fl_op op, const struct fl_function *f) {
    const struct fl_operation *o = fl_operation_of(op);
    const char *name = fl_op_name(op);
    struct signature s = {.cases = &elementwise};
    if (o && o->operands)
        s = (struct signature){o->operands, o->operand_count, false, &elementwise};
    else if (o && f)
        s = (struct signature){f->operands, f->operand_count, f->outputs > 0, &elementwise};
    for (int i = 0; i < s.count; i++)
        if (s.operands[i].class < FL_CLASS_F64 ? strcmp(s.operands[i].shape, "e*") != 0
                                               : !(s.operands[i].flags & FL_LATE_VALUE))
            s.cases = NULL;
    for (size_t i = 0; i < sizeof all_cases / sizeof all_cases[0]; i++)
        for (const char *at = all_cases[i].operations; (at = strstr(at, name)); at++)
            if ((at == all_cases[i].operations || at[-1] == ' ') && strchr(" ", at[strlen(name)]))
                s.cases = &all_cases[i];
    return s;
}

/* Sets sizes and scalars from a case. */
static bool set_sizes(struct drawn *d, const struct cases *c, const int64_t *v) {
    const struct fl_function *f = d->function;
    const int64_t *end = v + c->width;
    for (const char *letter = c->sizes; *letter; letter++) {
        struct draw_dims *many = &d->many[*letter < '@' ? 0 : *letter - '@'];
        const bool several = letter[1] == '*', matrix = letter[1] == '2';
        many->ndim = several ? (int)*v++ : matrix ? 2 : 1;
        memcpy(many->size, v, (size_t)many->ndim * sizeof *v);
        d->sizes.of[many - d->many] = count_of(many->ndim, many->size);
        v += several ? 6 : many->ndim;
        letter += several || matrix;
    }
    for (int i = 0; f && i < f->scalar_count && v < end; i++)
        if (f->scalars[i].type > FL_REAL64)
            d->scalar[i].integer = *v++;
    return !f || !f->derive || f->derive(&d->sizes, d->scalar, f->name, true);
}

/* The parameters that follow from sizes and scalars. */
static inline void place_drawn(const struct drawn *d, struct fl_args *args) {
    const struct fl_function *f = d->function;
    for (int i = 0; i < f->scalar_count; i++) {
        char *to = (char *)args + f->scalars[i].at;
        const enum fl_scalar_type type = f->scalars[i].type;
        if (!f->scalars[i].at)
            continue;
        if (type == FL_REAL32)
            *(float *)(void *)to = (float)d->scalar[i].real;
        else if (type == FL_INT32)
            *(int32_t *)(void *)to = (int32_t)d->scalar[i].integer;
        else if (type == FL_BOOL)
            *(bool *)to = d->scalar[i].integer;
        else
            memcpy(to, &d->scalar[i], 8);
    }
    if (f->prepare)
        f->prepare(args, &d->sizes, d->scalar);
}

/* Chooses the operands of case i and their shapes; `v`: its numbers, NULL: sizes were drawn. */
static bool give_operands(struct shape *s, const struct signature *of, enum fl_op op, int i, unsigned epilogue,
                          const int64_t *v) {
    struct drawn *d = &s->drawn;
    const unsigned given = of->cases && of->cases->given ? of->cases->given : 0xaaa;
    int repeated = 7; /* the column of an operand that is repeated along dimensions */
    s->by_tensors = d->function && d->function->shape_of;
    for (int k = 0; k < of->count; k++) {
        const struct fl_operand *rule = &of->operands[k];
        struct drawn_operand *o = &d->operand[k];
        const bool mask = rule->class == FL_CLASS_U8, optional = rule->flags & FL_OPTIONAL;
        *o = (struct drawn_operand){.given = !optional || given >> i % 12 & 1, .same = -1};
        if (optional && fl_is_product(op)) {
            o->given = epilogue & 1;
            epilogue >>= 1;
        }
        draw_format(o, rule->class);
        if ((!v && rule->class >= FL_CLASS_F64) || (rule->shape[0] != '=' && !shape_by_text(d, rule->shape, o)))
            return false;
        s->by_tensors = s->by_tensors || rule->flags & FL_BROADCAST;
        if (!v || !(rule->flags & FL_BROADCAST))
            continue;
        const int64_t dimensions = !mask ? v[repeated++] : op == FL_OP_WHERE && i % 2 ? v[7] & v[8] : v[7];
        for (int at = 0; at < o->ndim; at++)
            if (dimensions >> at & 1)
                o->shape[at] = 1;
    }
    return !d->function || !d->function->shape_of || compute_shapes(d);
}

/* Stores the number of elements of an operand. */
static void place_count(struct shape *s, const struct fl_operand *rule, int64_t n) {
    if (rule->class == FL_CLASS_U8)
        s->marks = n;
    else if (rule->class == FL_CLASS_I32)
        s->indices = n;
    else if (rule->class >= FL_CLASS_F64 || !rule->at)
        return;
    else if (rule->at <= FL_AT(in[2]))
        s->in[(rule->at - FL_AT(in[0])) / sizeof(struct fl_view)] = n;
    else { /* the last one is the second */
        const bool second = rule->at > s->addend[1].at;
        if (second)
            s->addend[0] = s->addend[1];
        s->addend[second].at = rule->at;
        s->addend[second].count = n;
    }
}

/* The i-th case; false past the last, and for an operation with results beside its output (number_cases.h). */
static bool shape_of(enum fl_op op, int i, struct shape *s) {
    static const int64_t letters[] = {1, 2, 3, 4, 6, 8, 16, 17, 33, 64};
    static const struct draw_dims many[] = {{1, {1}}, {1, {5}}, {2, {3, 7}}, {1, {64}}, {1, {515}}, {2, {40, 33}}};
    static const struct draw_limits limits = {letters, 10, many, 6, 60000, 40000, 40000, 0};
    static const unsigned epilogues[] = {7, 1, 6, 5, 3}; /* bits: bias, residual, ReLU */
    *s = (struct shape){.drawn = {.function = function_of(op)}};
    struct drawn *d = &s->drawn;
    const struct signature of = signature_of(op, d->function);
    const struct cases *c = of.cases;
    const int plain = c ? c->count : 8, again = c && c->fused ? plain : 0;
    /* the definition of a real function takes a microsecond; test_functions.c has the long cases */
    if (!of.operands || i >= (fl_op_is_real(op) ? 4 : plain + again + (c ? c->asymmetric : 0)))
        return false;
    const int row = i < plain ? i : i - again, other = row - plain;
    const int64_t *v = c ? c->rows + (c->rows == elements[0] ? row % 6 : row) * c->width : NULL;
    unsigned epilogue = i >= plain && row < plain ? epilogues[row % 5] : 0;
    if (other >= 0 && other % 2) /* a transposed convolution has one too */
        epilogue = 1u | (other % 4 == 1 ? 2u : 0) | (other % 3 == 0 ? 4u : 0);
    draws = (uint64_t)op * 131 + (uint64_t)i;
    if ((c ? !set_sizes(d, c, v) : !d->function || !draw_call(d, d->function, &limits)) ||
        !give_operands(s, &of, op, i, epilogue, v))
        return false;
    for (int k = 0; k < of.count; k++) {
        const struct fl_operand *rule = &of.operands[k];
        const int64_t n = d->operand[k].given ? count_of(d->operand[k].ndim, d->operand[k].shape) : 0;
        if (k == 0 && (!rule->at || of.writes_first))
            s->out = n;
        place_count(s, rule, n);
        if (rule->at && n == s->out && (rule->flags & FL_IN_PLACE || k == 0) &&
            (rule->at == FL_AT(in[0]) || rule->at == s->addend[1].at))
            s->in_place = true;
        for (int in = 0; in < 3; in++) /* in some cases; that of the mean of add_ratio in half of those */
            if (rule->flags & FL_WIDE && rule->at == FL_AT(in[0]) + (unsigned)in * sizeof(struct fl_view))
                s->wide[in] = (i + i / 6) % 2 && (op != FL_OP_ADD_RATIO || in != 1 || i % 4 < 2);
    }
    s->in_place = s->in_place || op == FL_OP_BIAS || op == FL_OP_BIAS_RELU; /* their kernels allow it */
    s->relu = epilogue & 4 && s->addend[1].at;
    s->asymmetric = other >= 0;
    s->listed = c != NULL;
    struct fl_args args = {.op = op};
    if (c && c->channels == 'p')
        place_drawn(d, &args);
    s->channels = !c || !c->channels   ? 0
                  : c->channels == '=' ? d->operand[0].shape[d->operand[0].ndim - 1]
                  : c->channels == 'p' ? args.p.pooling.common[1]
                                       : FL_SIZE(&d->sizes, c->channels);
    return s->in[0] > 0;
}

struct result {
    struct block out;
    struct fl_stats stats;
    int64_t *isum;
    double *fsum;
    void *wide;
};

struct call {
    const struct fl_format *format;
    enum fl_op op;
    struct shape shape;
    struct block in[3], addend[2];
    int e_out;
    struct fl_args args;
    float a[CHANNELS], b[CHANNELS], d[CHANNELS]; /* of channel_affine */
    struct fl_coefficient first[CHANNELS], cross[CHANNELS], offset[CHANNELS];
    int32_t first_centre[CHANNELS], cross_centre[CHANNELS];
    double factors[FL_FACTORS];
    int32_t indices[INDICES]; /* of embeddings */
    uint8_t marks[MARKS];     /* of where */
};

/* An operand by its position. */
static struct fl_view *view_at(struct fl_args *args, unsigned at) {
    return (struct fl_view *)(void *)((char *)args + at);
}

static int64_t channels_of(const struct call *call) {
    return call->shape.channels ? call->shape.channels : 1;
}

/* Sets the destination of channel sums, for the operations that compute them. */
static void take_sums(struct fl_args *args, struct fl_channel_sums sums) {
    if (args->op == FL_OP_CHANNEL_SUMS || args->op == FL_OP_CHANNEL_GRAD_SUMS)
        args->p.batch_norm.sums = sums;
}

static tensor_status run(const struct call *call, fl_kernel kernel, bool in_place, bool measure, struct result *r) {
    struct fl_args args = call->args;
    const int64_t n = channels_of(call);
    memset(r, 0, sizeof *r);
    r->isum = fl_alloc_zero((size_t)n * 16);
    r->fsum = fl_alloc_zero((size_t)n * 16);
    take_sums(&args, (struct fl_channel_sums){{r->isum, r->isum + n}, {r->fsum, r->fsum + n}});
    args.stats = &r->stats;
    if (call->shape.out) {
        r->out = block_new(call->format, call->shape.out, call->e_out);
        if (in_place) {
            struct fl_view *over = call->shape.addend[1].count ? view_at(&args, call->shape.addend[1].at) : &args.in[0];
            memcpy(r->out.memory, over->data, r->out.bytes);
            over->data = r->out.memory;
        }
        if (call->in[0].view.wide) { /* an operation that reads the wide part of its output writes it */
            size_t bytes = (size_t)call->shape.out * (size_t)call->format->wide_bytes;
            r->wide = fl_alloc(bytes);
            memcpy(r->wide, call->in[0].view.wide, bytes);
            args.in[0].wide = r->wide;
        }
        args.out = r->out.view;
        args.out.wide = r->wide;
        if (measure)
            args.out.data = NULL;
    }
    return kernel(&args);
}

static void result_free(struct result *r) {
    block_free(&r->out);
    fl_free(r->isum);
    fl_free(r->fsum);
    fl_free(r->wide);
}

/* A coefficient whose product with mantissas is about 2^size units of the output at exponent e. */
static struct fl_coefficient coefficient(int e, int size, uint64_t *seed) {
    const int32_t m = (int32_t)(check_random(seed) >> 34) + (1 << 30);
    return (struct fl_coefficient){check_random(seed) & 1 ? -m : m, 30 + e - size};
}

static void make_coefficients(struct call *call, uint64_t *seed) {
    for (int64_t c = 0; c < call->shape.channels; c++) {
        call->a[c] = (float)(uniform(seed) * 2 - 0.5);
        call->b[c] = (float)(uniform(seed) - 0.5);
        call->d[c] = (float)(uniform(seed) * 0.2 - 0.1);
        uint64_t own = check_random(seed); /* of the integer formats */
        for (int i = 0; i < 3; i++)
            own ^= check_random(seed);
        /* every third channel has a multiplier of about 1; the others vary, and some are far beyond the range of 16
         * bits */
        const int size = c % 3 == 0 ? 0 : (int)(check_random(&own) % 24) - 12 + (c % 7 == 6 ? 20 : 0);
        call->first[c] = coefficient(call->e_out, size, &own);
        call->cross[c] = coefficient(call->e_out, size - (int)(check_random(&own) % 20) + 4, &own);
        call->offset[c] = coefficient(call->e_out, 2 + (int)(check_random(&own) % 12), &own);
        call->first_centre[c] = (int32_t)(check_random(&own) % 65535) - 32767;
        call->cross_centre[c] = (int32_t)(check_random(&own) % 4001) - 2000;
    }
    call->args.p.batch_norm.channels = (struct fl_channels){.a = call->a,
                                                            .b = call->b,
                                                            .d = call->d,
                                                            .first = call->first,
                                                            .cross = call->cross,
                                                            .offset = call->offset,
                                                            .first_centre = call->first_centre,
                                                            .cross_centre = call->cross_centre};
}

/* Factors of an optimiser's operation: about those of a step; every fifth shape has any size. */
static void make_factors(struct call *call, int index, uint64_t *seed) {
    for (int i = 0; i < FL_FACTORS; i++) {
        call->factors[i] =
            uniform(seed) * (i % 2 ? 0.1 : 1.1) * (check_random(seed) & 1 && call->op == FL_OP_COMBINE ? -1 : 1);
        if (index % 5 == 4)
            call->factors[i] = ldexp(call->factors[i], (int)(check_random(seed) % 60) - 30);
    }
    if (call->op == FL_OP_ADD_RATIO) {
        call->factors[1] = -call->factors[1];
        call->factors[3] *= 1e-6;
        if (index % 6 == 2)
            call->factors[3] = 0; /* quotients by zero */
    }
    call->args.p.factored.factors = call->factors;
}

/* Operands beside in[], with exponents that matter to sums of products, or extreme ones. */
static void make_addends(struct call *call, enum style style, uint64_t *seed) {
    const struct fl_format *f = call->format;
    for (int i = 0; i < 2; i++) {
        int e = fl_exponent(&call->in[0].view) + fl_exponent(&call->in[1].view);
        e += style == EXTREME ? (int)(check_random(seed) % 120) - 60 : (int)(check_random(seed) % 32) - 30;
        e = e < f->e_min ? f->e_min : e > f->e_max ? f->e_max : e;
        if (!call->shape.addend[i].count)
            continue;
        call->addend[i] = block_new(f, call->shape.addend[i].count, fl_has_exponent(f) ? e : 0);
        fill(f, &call->addend[i], style, seed);
        *view_at(&call->args, call->shape.addend[i].at) = call->addend[i].view;
    }
    if (fl_is_product(call->op))
        call->args.p.product.epilogue.relu = call->shape.relu;
}

/* The first rounding that a format offers besides nearest, with which golden.txt is recorded; nearest if there is
 * none. */
static inline tensor_rounding other_rounding(const struct fl_format *f) {
    return f->arithmetic == FL_ARITHMETIC_SHARED ? TENSOR_ROUND_STOCHASTIC
           : f->truncates                        ? TENSOR_ROUND_TRUNCATE
                                                 : TENSOR_ROUND_NEAREST;
}

/* The roundings that a format offers, from i = 0 on; false past the last. */
static inline bool rounding_at(const struct fl_format *f, int i, tensor_rounding *mode) {
    tensor_rounding all[3] = {TENSOR_ROUND_NEAREST};
    int count = 1;
    if (f->draws)
        all[count++] = TENSOR_ROUND_STOCHASTIC;
    if (f->truncates)
        all[count++] = TENSOR_ROUND_TRUNCATE;
    *mode = all[i < count ? i : 0];
    return i < count;
}

/* Sets scalars that are in no table; `drawn`: the first of them, if it may be any number. */
static void set_scalars(struct drawn *d, int index, float drawn) {
    static const float betas[] = {0.75f, 0.5f, 1, 0.6f, 2}, shares[] = {0.5f, 0.25f, 0, 0.1f, 0.9f};
    for (int i = 0; d->function && i < d->function->scalar_count; i++) {
        const struct fl_scalar_rule *s = &d->function->scalars[i];
        double *real = &d->scalar[i].real;
        if (s->type == FL_REAL64)
            *real = index % 3 == 2 ? 0.5 : !strcmp(s->name, "k") ? 2 : 1e-5;
        else if (s->type == FL_REAL32 && has_limits(s) && s->most < 10)
            *real = (s->most > 1 ? betas : shares)[index % 5];
        else if (s->type == FL_REAL32)
            *real = has_limits(s) ? fabsf(drawn) : i ? 1e-4f : drawn;
        else if (s->type == FL_KEY64)
            d->scalar[i].key = (uint64_t)0x123456789abcdef * (uint64_t)(index + 1);
        else if (!strcmp(s->name, "marked"))
            d->scalar[i].integer = index % 2;
    }
}

/* Sets parameters that only the function derives from its tensors: it runs once on tensors of these shapes. */
static void place_by_tensors(const struct drawn *d, struct fl_args *args) {
    const struct fl_function *f = d->function;
    tensor *tensors[FL_OPERANDS] = {NULL};
    const struct fl_invocation call = {f, (const tensor *const *)tensors, d->scalar, &d->sizes};
    struct fl_args own = *args;
    for (int i = 0; i < f->operand_count; i++) {
        const struct drawn_operand *o = &d->operand[i];
        if (!o->given)
            continue;
        tensors[i] = tensor_new(o->numbers ? o->format : FMT_FP32, o->ndim, o->shape);
        CHECK(tensors[i] != NULL, "%s", tensor_error());
        const struct fl_view view = fl_view_of(tensors[i]);
        if (f->operands[i].at)
            memcpy((char *)&own + f->operands[i].at, &view, o->numbers ? sizeof view.data : sizeof view);
    }
    CHECK(!f->run(&call, &own), "%s", tensor_error());
    args->p = own.p;
    for (int i = 0; i < f->operand_count; i++)
        tensor_free(tensors[i]);
}

/* Sets the parameters of the operation beside its operands. */
static void set_parameters(struct call *call, int index, float drawn) {
    union fl_parameters *p = &call->args.p;
    struct drawn *d = &call->shape.drawn;
    const int64_t m = FL_SIZE(&d->sizes, 'm'), channels = call->shape.channels;
    if (call->shape.listed)
        set_scalars(d, index, drawn);
    if (d->function)
        place_drawn(d, &call->args);
    else
        p->batch_norm =
            (struct fl_batch_norm){.m = m, .n = channels, .relu = call->op == FL_OP_CHANNEL_AFFINE && index % 2};
    if (call->shape.by_tensors)
        place_by_tensors(d, &call->args);
    if (call->shape.marks)
        p->axes.marks = call->marks;
    if (call->shape.indices)
        p->table = (struct fl_table){
            .rows = FL_SIZE(&d->sizes, 'k'), .columns = channels, .count = m, .indices = call->indices};
    if (call->op == FL_OP_SOFTMAX || call->op == FL_OP_SOFTMAX_GRAD)
        p->softmax.causal = index % 2 ? channels + index - 3 : 0; /* more rows than columns, or fewer */
    if (call->op == FL_OP_DROPOUT) {
        p->dropout.step = index * 1000.0;
        p->dropout.scale = drawn;
    }
}

/* Makes the call of shape `index` with operands of that style; false past the last shape. `probe`, a kernel of the
 * operation, measures which exponent fits the results. End with call_free. */
static inline bool call_make(struct call *call, const struct fl_format *f, enum fl_op op, int index, enum style style,
                             tensor_rounding mode, uint64_t seed0, fl_kernel probe) {
    uint64_t seed = seed0;
    *call = (struct call){.format = f, .op = op};
    if (!shape_of(op, index, &call->shape))
        return false;
    const bool shared = f->arithmetic == FL_ARITHMETIC_SHARED, scaled = fl_has_exponent(f) && !shared;
    int exponents[3] = {0};
    for (int i = 0; i < 3 && scaled; i++) {
        exponents[i] = (int)(check_random(&seed) % (style == EXTREME ? 40 : 14)) - (style == EXTREME ? 20 : 7);
        if (style == TINY && index % 3) /* where numbers, or halves of a unit, are not normal in binary32 */
            exponents[i] = f->e_max - (i ? (int)(check_random(&seed) % 4) : 0);
    }
    for (int i = 0; i < 3 && shared; i++)
        exponents[i] = f->e_min + (f->e_max - f->e_min) / 3 + (int)(check_random(&seed) % (style == EXTREME ? 20 : 7));
    if (shared && op == FL_OP_SGD_UPDATE)
        exponents[1] = exponents[0] + 3;
    for (int i = 0; i < 3; i++) {
        if (!call->shape.in[i])
            continue;
        call->in[i] = block_new(f, call->shape.in[i], exponents[i]);
        fill(f, &call->in[i], style, &seed);
        if (call->shape.wide[i])
            add_wide(f, &call->in[i], style, &seed);
        call->args.in[i] = call->in[i].view;
    }
    call->args.op = op;
    call->args.format = f;
    const float drawn = (float)(uniform(&seed) * 1.5 - 0.5);
    uint64_t marking = seed0 + 78;
    for (int64_t i = 0; i < call->shape.marks; i++)
        call->marks[i] = check_random(&marking) & 1 ? (uint8_t)(1 + i % 255) : 0;
    uint64_t own = seed0 + 77;
    for (int64_t i = 0; i < call->shape.indices; i++)
        call->indices[i] = (int32_t)(check_random(&own) % (uint64_t)FL_SIZE(&call->shape.drawn.sizes, 'k'));
    set_parameters(call, index, drawn);
    if (op == FL_OP_CLIP_WEIGHT) /* a limit: 0, a little, about half of the values, all of them */
        call->args.p.clip_weight.limit =
            index % 7 == 6 ? 0
                           : fabsf(drawn) * (shared   ? ldexpf(32767, -exponents[0])
                                             : scaled ? ldexpf((float)f->element->largest, -exponents[0])
                                                      : 1);
    call->args.rounding = (struct fl_rounding){mode, 0x1234567 + seed0, (uint64_t)index};
    if (op == FL_OP_CHANNEL_AFFINE || op == FL_OP_CHANNEL_AFFINE_GRAD)
        make_coefficients(call, &seed);
    if (op == FL_OP_COMBINE || op == FL_OP_ROOT_MEAN || op == FL_OP_ADD_RATIO)
        make_factors(call, index, &seed);
    make_addends(call, style, &seed);
    if (shared || scaled) {
        /* an exponent that fits the results, changed by a few steps in either direction: saturation and flush occur,
         * too */
        struct result measured;
        call->e_out = exponents[0];
        run(call, probe, false, true, &measured);
        const double maximum = measured.stats.maximum;
        result_free(&measured);
        if (maximum > 0 && op != FL_OP_CHANNEL_AFFINE && op != FL_OP_CHANNEL_AFFINE_GRAD)
            call->e_out = (shared ? 14 : ilogb(f->element->largest)) - ilogb(maximum) +
                          (index % 4 == 3   ? 2
                           : index % 4 == 2 ? -12
                                            : 0);
        call->e_out = call->e_out < f->e_min ? f->e_min : call->e_out > f->e_max ? f->e_max : call->e_out;
    }
    return true;
}

static void call_free(struct call *call) {
    for (int i = 0; i < 3; i++)
        block_free(&call->in[i]);
    for (int i = 0; i < 2; i++)
        block_free(&call->addend[i]);
}

#endif
