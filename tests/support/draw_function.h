/* draw_function.h - a call of any function, drawn from its signature (core/ops/operation.h): sizes, scalars within
 * their limits, the optional operands that are given, the inputs that equal the output, views with strides, repeated
 * operands. At a rate that the caller chooses, the signature forbids a part of the call: an end that is excluded, one
 * beyond it, NaN, an index that is too large, a missing operand. */
#ifndef FL_DRAW_FUNCTION_H
#define FL_DRAW_FUNCTION_H

#include "check.h"
#include "core/ops/operation.h"
#include "core/ops/optimisers/optimiser_rules.h"
#include "flexlab/tensor_blocks.h"
#include <math.h>
#include <string.h>

/* --- numbers drawn ------------------------------------------------------------------------------------------------ */

static uint64_t draws; /* state of the generator */

static inline uint64_t draw(void) {
    return check_random(&draws);
}
static inline int below(int n) {
    return (int)(draw() % (uint64_t)n);
}
static inline int between(int low, int high) {
    return low + below(high - low + 1);
}
static inline bool chance(int percent) {
    return below(100) < percent;
}
static inline double unit(void) { /* in [-1, 1) */
    return (double)((int64_t)draw() >> 10) * 0x1p-53;
}

/* --- a call ------------------------------------------------------------------------------------------------------- */

struct draw_dims {
    int ndim;
    int64_t size[TENSOR_MAX_DIMS];
};

/* The source of random choices, and limits on sizes. */
struct draw_limits {
    const int64_t *sizes; /* for letters */
    int size_count;
    const struct draw_dims *many; /* for letters with * */
    int many_count;
    int64_t work;              /* the largest product of all sizes drawn */
    int64_t elements, numbers; /* the most of an operand, and of one with numbers beside the formats */
    int wrong;                 /* the number of 1000 choices that are forbidden */
};

struct drawn_operand {
    bool given, strided;
    bool numbers;         /* beside the formats, */
    tensor_format format; /* and which */
    int same;             /* the output that it is a view of; -1: a tensor of its own */
    int ndim;
    int64_t shape[TENSOR_MAX_DIMS], stride[TENSOR_MAX_DIMS];
    int64_t held; /* elements of its tensor, or of the tensor of which it is a view */
};

struct drawn {
    const struct fl_function *function;
    struct drawn_operand operand[FL_OPERANDS];
    union fl_value scalar[FL_SCALARS + 1];
    struct fl_sizes sizes;
    struct draw_dims many[FL_SIZES];
    int wrong;
    bool refused; /* for a scalar, before shapes are checked */
};

/* Draws the format of an operand: targets of losses may be numbers. */
static inline void draw_format(struct drawn_operand *o, enum fl_class class) {
    o->numbers = class >= FL_CLASS_F64 || (class == FL_CLASS_TARGETS && chance(60));
    o->format = class == FL_CLASS_I32                                                ? FMT_I32
                : class == FL_CLASS_U8                                               ? FMT_U8
                : class == FL_CLASS_F32 || (class == FL_CLASS_TARGETS && chance(50)) ? FMT_F32
                                                                                     : FMT_F64;
}
static inline bool goes_wrong(const struct drawn *c) {
    return below(1000) < c->wrong;
}

static inline int64_t count_of(int ndim, const int64_t *shape) {
    int64_t n = 1;
    for (int i = 0; i < ndim; i++)
        n *= shape[i];
    return n;
}

/* --- sizes -------------------------------------------------------------------------------------------------------- */

/* Draws the size of every letter of the signature that is not derived. Returns their product. */
static inline int64_t draw_sizes(struct drawn *c, const struct draw_limits *limits) {
    const struct fl_function *f = c->function;
    int64_t work = 1;
    bool seen[FL_SIZES] = {false};
    for (int i = 0; i < f->operand_count; i++)
        for (const char *at = f->operands[i].shape; *at; at++) {
            const int letter = *at - '@';
            if (*at < 'A' || seen[letter] || (f->derived && strchr(f->derived, *at)))
                continue;
            seen[letter] = true;
            if (at[1] == '*') {
                c->many[letter] = limits->many[below(limits->many_count)];
                c->sizes.of[letter] = count_of(c->many[letter].ndim, c->many[letter].size);
            } else {
                c->sizes.of[letter] = limits->sizes[below(limits->size_count)];
            }
            work *= c->sizes.of[letter];
        }
    return work;
}

/* The shape that a text describes; false if it has more dimensions than a tensor, or none. */
static inline bool shape_by_text(const struct drawn *c, const char *text, struct drawn_operand *o) {
    for (o->ndim = 0; *text && o->ndim < TENSOR_MAX_DIMS; text++) {
        const bool factor = *text < 'A';
        const int64_t times = factor ? *text - '0' : 1;
        if (factor && text[1] < 'A') {
            o->shape[o->ndim++] = times;
            continue;
        }
        text += factor;
        const int letter = *text - '@';
        if (text[1] != '*') {
            o->shape[o->ndim++] = times * c->sizes.of[letter];
            continue;
        }
        text++;
        for (int d = 0; d < c->many[letter].ndim && o->ndim < TENSOR_MAX_DIMS; d++)
            o->shape[o->ndim++] = c->many[letter].size[d];
    }
    return !*text && o->ndim > 0;
}

/* --- scalars ------------------------------------------------------------------------------------------------------ */

static inline bool has_limits(const struct fl_scalar_rule *s) {
    return s->least != 0 || s->most != 0 || s->above || s->under;
}

/* Whether the function accepts a scalar. */
static inline bool is_allowed(const struct fl_scalar_rule *s, const union fl_value *v) {
    const double x = s->type <= FL_REAL64 ? v->real : (double)v->integer;
    return s->type > FL_INT64 || !has_limits(s) ||
           (isfinite(x) && (s->above ? x > s->least : x >= s->least) &&
            (s->most == 0 || (s->under ? x < s->most : x <= s->most)));
}

static inline double draw_free_real(void) {
    switch (below(8)) {
    case 0:
        return between(-2, 2);
    case 1:
        return ldexp(1, between(-40, 12));
    case 2:
        return ldexp(unit(), between(-126, 120));
    case 3:
        return -0.0;
    default:
        return unit() * (chance(50) ? 1 : 0.01);
    }
}

static inline double draw_real(const struct drawn *c, const struct fl_scalar_rule *s) {
    const bool limited = has_limits(s);
    const double least = s->least, most = s->most != 0 && s->most < 1e30 ? s->most : INFINITY;
    if (goes_wrong(c)) {
        const double wrong[] = {NAN, INFINITY, -INFINITY, s->above ? least : least - 1, s->under ? most : most + 1};
        return wrong[below(limited ? 5 : 3)];
    }
    if (!limited)
        return draw_free_real();
    if (!s->above && chance(10))
        return least;
    if (most < INFINITY)
        return !s->under && chance(10) ? most : least + (most - least) * (0.001 + 0.998 * fabs(unit()));
    return least + (chance(50) ? 1e-5 : chance(50) ? ldexp(1, between(-60, 4)) : 0.001 + fabs(unit()));
}

static inline int64_t draw_integer(const struct drawn *c, const struct fl_scalar_rule *s,
                                   const struct draw_limits *limits) {
    const bool limited = has_limits(s);
    const int64_t least = limited      ? (int64_t)s->least
                          : chance(80) ? 0
                                       : -1,
                  most = limited && s->most < 1e9 ? (int64_t)s->most : least + 1000000;
    if (goes_wrong(c))
        return chance(70) ? least - 1 : limited && s->most < 1e9 ? most + 1 : INT32_MAX;
    const int64_t x = chance(60) ? least + below(3) : chance(60) ? limits->sizes[below(limits->size_count)] : below(17);
    return x < least ? least : x > most ? most : x;
}

/* Draws a permutation of 0 to n - 1. */
static inline void draw_order(int n, int *order) {
    for (int i = 0; i < n; i++) {
        const int at = below(i + 1);
        order[i] = order[at];
        order[at] = i;
    }
}

/* Draws a dimension of an operand, a set of them, an order of them, or the size of one. */
static inline int64_t draw_dimensions(struct drawn *c, const struct fl_scalar_rule *s, const struct drawn_operand *o,
                                      const union fl_value *before, const struct draw_limits *limits) {
    const int ndim = o->ndim;
    int order[TENSOR_MAX_DIMS];
    int64_t packed = 0;
    const bool wrong = s->type != FL_LENGTH && goes_wrong(c);
    c->refused = c->refused || wrong;
    switch (s->type) {
    case FL_DIM:
        return wrong ? (chance(50) ? -1 : ndim) : below(ndim);
    case FL_AXES:
        return wrong ? 1 << ndim : below(1 << ndim);
    case FL_LENGTH:
        if (!o->given)
            return 0;
        if (ndim && before->integer >= 0 && before->integer < ndim && chance(80))
            return 1 + below((int)o->shape[before->integer]);
        return limits->sizes[below(limits->size_count)];
    default:
        draw_order(ndim, order);
        if (ndim > 1 && wrong)
            order[0] = order[1];
        for (int d = 0; d < ndim; d++)
            packed |= (int64_t)order[d] << 4 * d;
        return packed;
    }
}

/* The operand whose dimensions operand i has, if its own shape is derived: the first with a shape that is not. */
static inline const struct drawn_operand *known_operand(const struct drawn *c, int i) {
    int first = c->function->outputs < c->function->operand_count ? c->function->outputs : 0;
    while (c->function->operands[first].shape[0] == '=' && first > 0)
        first--;
    return &c->operand[c->function->operands[i].shape[0] == '=' ? first : i];
}

static inline void draw_scalars(struct drawn *c, const struct draw_limits *limits) {
    const struct fl_function *f = c->function;
    for (int i = 0; i < f->scalar_count; i++) {
        const struct fl_scalar_rule *s = &f->scalars[i];
        union fl_value *v = &c->scalar[i];
        if (s->type == FL_REAL32)
            v->real = (float)draw_real(c, s);
        else if (s->type == FL_REAL64)
            v->real = draw_real(c, s);
        else if (s->type == FL_KEY64)
            v->key = draw();
        else if (s->type == FL_BOOL)
            v->integer = below(2);
        else if (s->type == FL_INT32 || s->type == FL_INT64)
            v->integer = draw_integer(c, s, limits);
        else if (s->type <= FL_LENGTH) {
            struct drawn_operand like = *known_operand(c, s->of);
            like.given = c->operand[s->of].given;
            v->integer = draw_dimensions(c, s, &like, i ? v - 1 : v, limits);
        }
    }
}

/* --- operands ----------------------------------------------------------------------------------------------------- */

/* Computes the shapes that the function derives from the others; false: there are none. */
static inline bool compute_shapes(struct drawn *c) {
    const struct fl_function *f = c->function;
    tensor shapes[FL_OPERANDS] = {{0}};
    const tensor *given[FL_OPERANDS] = {NULL};
    const struct fl_invocation call = {f, given, c->scalar, &c->sizes};
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < f->operand_count; i++) {
            struct drawn_operand *o = &c->operand[i];
            const bool computed = f->operands[i].shape[0] == '=';
            if (pass && computed && c->refused) { /* any shape is suitable */
                o->ndim = 1;
                o->shape[0] = 1;
            } else if (pass && computed) {
                o->ndim = f->shape_of(&call, i, o->shape);
            }
            if (o->ndim < 0 || (pass && o->ndim == 0))
                return false;
            shapes[i].ndim = o->ndim;
            memcpy(shapes[i].shape, o->shape, sizeof o->shape);
            shapes[i].count = count_of(o->ndim, o->shape);
            given[i] = o->given ? &shapes[i] : NULL;
            for (int d = 0; d < o->ndim; d++)
                if (o->given && o->shape[d] < 1)
                    return false;
        }
    return true;
}

/* If the signature allows it, dimensions have one element, or the first ones are missing. */
static inline void draw_repeats(struct drawn_operand *o) {
    for (int d = 0; d < o->ndim; d++)
        if (chance(35))
            o->shape[d] = 1;
    const bool shorter = o->ndim > 1 && o->shape[0] == 1 && chance(50);
    if (shorter)
        memmove(o->shape, o->shape + 1, (size_t)--o->ndim * sizeof o->shape[0]);
}

/* Draws another order of elements, sometimes with one of the dimensions repeated. */
static inline void draw_strides(struct drawn_operand *o) {
    int order[TENSOR_MAX_DIMS];
    int64_t at = 1;
    draw_order(o->ndim, order);
    const int repeated = chance(20) ? below(o->ndim) : -1;
    for (int i = 0; i < o->ndim; i++) {
        const int d = order[i];
        o->stride[d] = d == repeated ? 0 : at;
        at *= d == repeated ? 1 : o->shape[d];
    }
    o->strided = true;
    o->held = at;
}

static inline bool same_shape(const struct drawn_operand *a, const struct drawn_operand *b) {
    return a->ndim == b->ndim && !memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof a->shape[0]);
}

/* Draws which inputs are an output, which are views and which are missing. */
static inline void draw_kinds(struct drawn *c) {
    const struct fl_function *f = c->function;
    for (int i = 0; i < f->operand_count; i++) {
        const struct fl_operand *rule = &f->operands[i];
        struct drawn_operand *o = &c->operand[i];
        o->held = count_of(o->ndim, o->shape);
        if (!o->given)
            continue;
        if (rule->flags & FL_BROADCAST && chance(60)) {
            draw_repeats(o);
            o->held = count_of(o->ndim, o->shape);
        }
        int written = 0;
        while (written < f->outputs && c->operand[written].numbers)
            written++;
        if (i >= f->outputs && !o->numbers && written < f->outputs && c->operand[written].given &&
            same_shape(o, &c->operand[written]) && (rule->flags & FL_IN_PLACE ? chance(35) : goes_wrong(c)))
            o->same = written;
        else if (!o->numbers && (rule->flags & FL_STRIDED ? chance(30) : goes_wrong(c)))
            draw_strides(o);
        if (goes_wrong(c) && !(rule->flags & FL_OPTIONAL))
            o->given = false;
    }
}

static inline bool fits_limits(const struct drawn *c, const struct draw_limits *limits) {
    for (int i = 0; i < c->function->operand_count; i++) {
        const struct drawn_operand *o = &c->operand[i];
        const int64_t most = o->numbers ? limits->numbers : limits->elements;
        if (o->given && count_of(o->ndim, o->shape) > most)
            return false;
    }
    return true;
}

/* Sizes from which the function cannot derive others, or that need too much work, are drawn again, at most `attempts`
 * times. */
static inline bool draw_call_once(struct drawn *c, const struct draw_limits *limits) {
    const struct fl_function *f = c->function;
    if (draw_sizes(c, limits) > limits->work)
        return false;
    for (int i = 0; i < f->operand_count; i++) {
        c->operand[i] =
            (struct drawn_operand){.same = -1, .given = !(f->operands[i].flags & FL_OPTIONAL) || chance(55)};
        draw_format(&c->operand[i], f->operands[i].class);
        if (!f->derived && f->operands[i].shape[0] != '=' && !shape_by_text(c, f->operands[i].shape, &c->operand[i]))
            return false;
    }
    draw_scalars(c, limits);
    for (int i = 0; i < f->scalar_count; i++)
        c->refused = c->refused || !is_allowed(&f->scalars[i], &c->scalar[i]);
    bool derived = !c->refused;
    if (f->derive && derived && !f->derive(&c->sizes, c->scalar, f->name, true)) {
        if (!goes_wrong(c))
            return false;
        derived = false;
    }
    for (const char *letter = f->derived; letter && *letter; letter++)
        if (!derived || FL_SIZE(&c->sizes, *letter) < 1) /* the call is an error */
            FL_SIZE(&c->sizes, *letter) = 1;
    for (int i = 0; i < f->operand_count; i++)
        if (f->operands[i].shape[0] != '=' && !shape_by_text(c, f->operands[i].shape, &c->operand[i]))
            return false;
    if (!compute_shapes(c) || !fits_limits(c, limits))
        return false;
    draw_kinds(c);
    return true;
}

static inline bool draw_call(struct drawn *c, const struct fl_function *f, const struct draw_limits *limits) {
    static const int64_t small[] = {1, 2, 3};
    static const struct draw_dims few[] = {{1, {1}}, {1, {3}}, {2, {2, 3}}};
    struct draw_limits least = *limits;
    least.sizes = small;
    least.size_count = 3;
    least.many = few;
    least.many_count = 3;
    for (int attempt = 0; attempt < 200; attempt++) {
        *c = (struct drawn){.function = f, .wrong = limits->wrong};
        if (draw_call_once(c, attempt < 60 ? limits : &least))
            return true;
    }
    return false;
}

/* --- numbers beside the formats ----------------------------------------------------------------------------------- */

/* The numbers of an optimiser are not arbitrary: this is the state with which it begins. */
static inline void draw_optimiser(double *values) {
    const tensor_optimiser how = {.kind = (tensor_optimiser_kind)between(0, TENSOR_OPTIMISER_LAMB),
                                  .beta1 = chance(80) ? 0.9f : 0,
                                  .beta2 = 0.999f,
                                  .epsilon = 1e-8f,
                                  .weight_decay = chance(50) ? 0.01f : 0,
                                  .clip_norm = chance(60) ? 0.5f : 0,
                                  .momentum = chance(50) ? 0.9f : 0};
    tensor *numbers = tensor_new(FMT_F64, TENSOR_SHAPE(TENSOR_STEP_ROWS, FL_FACTORS));
    CHECK(!tensor_optimiser_begin(numbers, &how) && !tensor_store_f64(numbers, values, tensor_count(numbers)), "%s",
          tensor_error());
    tensor_free(numbers);
}

/* The limit of the indices of an operand. */
static inline int64_t index_limit(const struct drawn *c, char below) {
    return below < 'A' ? below - '0' : FL_SIZE(&c->sizes, below);
}

/* Draws the values of operand i. */
static inline void draw_numbers(const struct drawn *c, int i, double *values) {
    const struct fl_operand *o = &c->function->operands[i];
    const tensor_format format = c->operand[i].format;
    const int64_t n = c->operand[i].held;
    const int style = below(6), place = between(-30, 8);
    if (!strncmp(c->function->name, "optimiser_step", 14) && i == 0) {
        draw_optimiser(values);
        return;
    }
    for (int64_t k = 0; k < n; k++) {
        double x = style == 0 ? ldexp(unit(), place) : style == 1 && chance(30) ? 0 : unit();
        if (format == FMT_I32)
            x = o->below ? below((int)index_limit(c, o->below)) : between(-2, 20);
        else if (format == FMT_U8)
            x = chance(50) ? 0 : below(256);
        x = o->flags & FL_NOT_NEGATIVE ? fabs(x) : x;
        values[k] = x;
    }
    if (!goes_wrong(c))
        return;
    double *one = &values[draw() % (uint64_t)n];
    if (format == FMT_I32)
        *one = o->below && chance(50) ? (double)index_limit(c, o->below) : -1;
    else if (format != FMT_U8)
        *one = chance(40) ? NAN : chance(50) ? INFINITY : -1;
}

/* Stores them in a tensor of that operand's format. */
static inline tensor_status load_numbers(tensor *t, const double *values, int64_t n) {
    static int32_t whole[1 << 16];
    static float small[1 << 16];
    static uint8_t bytes[1 << 16];
    const tensor_format format = tensor_format_of(t);
    if (format == FMT_F64)
        return tensor_load_f64(t, values, n);
    for (int64_t i = 0; i < n; i++) {
        if (format == FMT_I32)
            whole[i] = (int32_t)values[i];
        else if (format == FMT_U8)
            bytes[i] = (uint8_t)values[i];
        else
            small[i] = (float)values[i];
    }
    return format == FMT_I32  ? tensor_load_i32(t, whole, n)
           : format == FMT_U8 ? tensor_load_u8(t, bytes, n)
                              : tensor_load_f32(t, small, n);
}

/* The weight of a function in random choices: real functions are many, with one kernel; calls are often refused if one
 * scalar may not be less than another. */
static inline int draw_weight(const struct fl_function *f) {
    return !f->op || !fl_op_is_real(f->op) ? 10 : f->scalar_count == 2 ? 6 : 2;
}

#endif
