/* random_actions.h - the calls that random_calls.h draws: every function of the library, by its signature
 * (draw_function.h), and calls that are no operations: loads, conversions, settings of tensors. Operands come from the
 * pool at random, so an output sometimes is an input that must be another tensor: an error that every kernel set must
 * report alike. */
#ifndef FL_RANDOM_ACTIONS_H
#define FL_RANDOM_ACTIONS_H

#include "random_calls.h"
#include "flexlab/tensor_blocks.h"

/* Sizes of an episode: calls share them, so that results become operands. */
enum { LETTERS = 8, SHAPES = 9 };
static struct {
    const struct fl_format *format;
    int64_t of[LETTERS];
    struct draw_dims many[SHAPES];
    struct draw_limits limits;
} sizes;

/* Mostly small, odd sizes, and often one. */
static int64_t draw_size(int64_t most) {
    static const int liked[] = {1, 2, 3, 4, 5, 7, 8, 13, 15, 16, 17, 31, 32, 33, 64, 65, 127, 130, 257, 515};
    const int64_t x = chance(60) ? liked[below(20)] : 1 + (int64_t)(draw() % (uint64_t)most);
    return x <= most ? x : 1 + x % most;
}

static void draw_episode(void) {
    static const struct {
        int share; /* of 1000 episodes, including those above */
        int64_t images, side, channels, rows, columns, inner, length, work;
    } scales[] = {{4, 8, 30, 70, 300, 200, 3000, 300000, 20000000},
                  {40, 6, 16, 70, 200, 120, 1200, 100000, 3000000},
                  {240, 3, 8, 36, 70, 70, 600, 5000, 300000},
                  {1000, 3, 6, 9, 14, 14, 40, 130, 15000}};
    const int drawn = below(1000);
    int i = 0;
    while (drawn >= scales[i].share)
        i++;
    sizes.format = draw_any_format();
    const int64_t n = draw_size(scales[i].images), h = draw_size(scales[i].side), w = draw_size(scales[i].side),
                  c = draw_size(scales[i].channels), k = chance(30) ? c * between(1, 2) : draw_size(scales[i].channels),
                  rows = draw_size(scales[i].rows), columns = draw_size(scales[i].columns),
                  inner = draw_size(scales[i].inner),
                  length = i < 2 && chance(50) ? scales[i].length - below(9000) : draw_size(scales[i].length);
    const int64_t letters[LETTERS] = {n, h, w, c, k, rows, columns, inner};
    const struct draw_dims many[SHAPES] = {{1, {length}},      {4, {n, h, w, c}}, {2, {rows, columns}},
                                           {2, {rows, inner}}, {1, {c}},          {2, {n, c}},
                                           {3, {n, h, w}},     {1, {rows}},       {0, {0}}};
    memcpy(sizes.of, letters, sizeof letters);
    memcpy(sizes.many, many, sizeof many);
    sizes.limits = (struct draw_limits){.sizes = sizes.of,
                                        .size_count = LETTERS,
                                        .many = sizes.many,
                                        .many_count = SHAPES,
                                        .work = scales[i].work,
                                        .elements = 1 << 18,
                                        .numbers = RESULTS,
                                        .wrong = 8};
}

/* --- functions ---------------------------------------------------------------------------------------------------- */

static bool plan_function(struct call *c) {
    const struct fl_function *f = c->action->function;
    c->format = sizes.format;
    if (!draw_call(&c->drawn, f, &sizes.limits))
        return false;
    for (int i = 0; i < f->operand_count; i++) {
        const struct drawn_operand *o = &c->drawn.operand[i];
        if (!o->given) {
            want_other(c, LEFT_OUT);
        } else if (o->numbers) {
            draw_numbers(&c->drawn, i, c->numbers[i]);
            want_other(c, NUMBERS);
        } else if (o->same >= 0) {
            want_other(c, c->operand[o->same].slot);
        } else if (o->strided) {
            want(c, 1, &o->held);
        } else if (f->operands[i].class != FL_CLASS_CALL && chance(12)) {
            want_format(c, draw_any_format(), o->ndim, o->shape);
        } else {
            want(c, o->ndim, o->shape);
        }
        c->operand[i].ndim = o->ndim;
        memcpy(c->operand[i].shape, o->shape, sizeof o->shape);
    }
    return true;
}

static tensor_status run_function(const struct call *c, tensor *const *t, struct outcome *o) {
    const struct fl_function *f = c->action->function;
    union fl_value scalar[FL_SCALARS + 1];
    memcpy(scalar, c->drawn.scalar, sizeof scalar);
    const tensor *given[FL_OPERANDS];
    for (int i = 0; i < f->operand_count; i++)
        given[i] = t[i];
    double result = 0;
    bool has_result = false;
    for (int i = 0; i < f->scalar_count; i++)
        if (f->scalars[i].type == FL_RESULT) {
            scalar[i].result = &result;
            has_result = true;
        }
    const tensor_status status = fl_invoke(f, given, scalar);
    if (has_result)
        keep(o, &result, 1);
    return status;
}

/* Whether it may write a wide part that differs from the elements, because it reads that of its output. */
static bool writes_wide_parts(const struct fl_function *f) {
    for (int i = 0; i < f->operand_count; i++)
        if (f->operands[i].at == FL_AT(in[0]) && f->operands[i].flags & FL_WIDE)
            return true;
    return false;
}

/* --- values, exponents, settings ---------------------------------------------------------------------------------- */

/* One to three tensors of a shape. */
static bool plan_same(struct call *c, int operands) {
    const struct draw_dims *shape = &sizes.many[below(SHAPES - 1)];
    c->format = sizes.format;
    for (int i = 0; i < operands; i++)
        want(c, shape->ndim, shape->size);
    return true;
}
static bool plan_1(struct call *c) {
    return plan_same(c, 1);
}
static bool plan_2(struct call *c) {
    return plan_same(c, 2);
}

#define RUN(name)                                                                                                      \
    static tensor_status run_##name(const struct call *c, tensor *const *t, struct outcome *o) {                       \
        (void)c, (void)t, (void)o;

static bool plan_load(struct call *c) {
    if (!plan_1(c))
        return false;
    const int64_t n = count_of(c->operand[0].ndim, c->operand[0].shape);
    const int place = chance(20) ? between(-150, 150) : between(-14, 14), style = below(12);
    if (n > RESULTS)
        return false;
    for (int64_t i = 0; i < n; i++) {
        double x = ldexp(unit(), place);
        if (style == 0)
            x = 0;
        if (style == 1)
            x = ldexp(1, place);
        if (style == 2 && chance(2))
            x = chance(50) ? NAN : -INFINITY;
        if (style == 3) /* half way between two elements, or two wide ones, or nearly so */
            x = ldexp(between(-4096, 4096) * 2 + 1, place) + (chance(50) ? ldexp(unit(), place - 30) : 0);
        c->numbers[0][i] = x;
    }
    c->numbers_count = (int)n;
    return true;
}

static bool plan_convert(struct call *c) {
    if (!plan_1(c))
        return false;
    c->number = between(-2, 33);
    want_format(c, draw_any_format(), c->operand[0].ndim, c->operand[0].shape);
    if (chance(50)) { /* the other way */
        const int slot = c->operand[0].slot;
        c->operand[0].slot = c->operand[1].slot;
        c->operand[1].slot = slot;
    }
    return true;
}

static bool plan_setting(struct call *c) {
    if (!plan_1(c))
        return false;
    const struct fl_format *f = sizes.format;
    c->number = chance(50) ? draw_exponent(f) : pool[c->operand[0].slot].t[0]->storage->slot->e + between(-3, 3);
    return true;
}

static bool plan_raw(struct call *c) {
    if (!plan_1(c))
        return false;
    const struct fl_format *f = pool[c->operand[0].slot].t[0]->format;
    const int64_t n = count_of(c->operand[0].ndim, c->operand[0].shape);
    c->numbers_count = (int)(n < 8 ? n : 8);
    if (f->arithmetic == FL_ARITHMETIC_SHARED)
        draw_mantissas((int16_t *)c->numbers[0], c->numbers_count, between(1, STYLES - 1));
    else
        draw_floats(f, c->numbers[0], c->numbers_count, between(1, STYLES - 1));
    c->number = (int)(draw() % (uint64_t)(n - c->numbers_count + 1));
    return true;
}

/* clang-format off */
RUN(load_f32)
    static float values[RESULTS];
    for (int i = 0; i < c->numbers_count; i++)
        values[i] = (float)c->numbers[0][i];
    return tensor_load_f32(t[0], values, c->numbers_count);
}
RUN(load_f64) return tensor_load_f64(t[0], c->numbers[0], c->numbers_count); }
RUN(store)
    const int64_t n = tensor_count(t[0]);
    static double values[1 << 18];
    static float floats[1 << 18];
    if (n > 1 << 18)
        return TENSOR_OK;
    tensor_status status = tensor_store_f64(t[0], values, n);
    keep(o, values, n < RESULTS / 4 ? n : RESULTS / 4);
    status = status ? status : tensor_store_wide_f64(t[0], values, n);
    keep(o, values, n < RESULTS / 4 ? n : RESULTS / 4);
    status = status ? status : tensor_store_f32(t[0], floats, n);
    for (int64_t i = 0; i < n && i < RESULTS / 4; i++)
        keep(o, &(double){floats[i]}, 1);
    return status;
}
RUN(convert) return tensor_convert(t[0], t[1]); }
RUN(convert_at) return tensor_convert_at(t[0], t[1], c->number); }
RUN(copy) return tensor_copy(t[0], t[1]); }
RUN(set_exponent) return tensor_set_exponent(t[0], c->number); }
RUN(declare_exponent) return tensor_declare_exponent(t[0], c->number); }
RUN(keep_wide) return tensor_keep_wide(t[0]); }
RUN(set_predictor) return tensor_set_predictor(t[0], c->number % 5 < 4 ? autoflex_name(autoflex_at((c->number % 5 + 5) % 4)) : "none"); }
RUN(set_rounding) return tensor_set_rounding(t[0], (tensor_rounding)((unsigned)c->number % 3), (uint64_t)c->number); }
RUN(reset_statistics)
    tensor_reset_statistics(t[0]);
    return TENSOR_OK;
}
RUN(write_by_hand)
    const size_t bytes = tensor_format_bytes(tensor_format_of(t[0]));
    memcpy((char *)tensor_data(t[0]) + (size_t)c->number * bytes, c->numbers[0], (size_t)c->numbers_count * bytes);
    return TENSOR_OK;
}
/* clang-format on */

/* --- the list ----------------------------------------------------------------------------------------------------- */

#define ACTION(name, weight, plan)                                                                                     \
    { #name, weight, NULL, plan, run_##name, false }
#define FINE_ACTION(name, weight, plan)                                                                                \
    { #name, weight, NULL, plan, run_##name, true }
static const struct action others[] = {
    FINE_ACTION(load_f32, 8, plan_load),
    FINE_ACTION(load_f64, 8, plan_load),
    ACTION(store, 8, plan_1),
    FINE_ACTION(convert, 20, plan_convert),
    ACTION(convert_at, 10, plan_convert),
    ACTION(copy, 8, plan_2),
    ACTION(set_exponent, 8, plan_setting),
    ACTION(declare_exponent, 8, plan_setting),
    ACTION(keep_wide, 6, plan_1),
    ACTION(set_predictor, 4, plan_setting),
    ACTION(set_rounding, 4, plan_setting),
    ACTION(reset_statistics, 1, plan_1),
    ACTION(write_by_hand, 8, plan_raw),
};
enum { OTHERS = sizeof others / sizeof others[0], ACTIONS = OTHERS + 1024 };
static struct action actions[ACTIONS];
static int action_count, weights;
static long long made, refused, worked[ACTIONS]; /* calls; those that were an error; those that were none, by action */

/* FLEXLAB_TEST_FILTER=substring: functions with it in their names are drawn most of the time. */
static bool is_preferred(const char *name) {
    const char *filter = getenv("FLEXLAB_TEST_FILTER");
    return filter && strstr(name, filter);
}

static void list_actions(void) {
    for (; action_count < OTHERS; action_count++)
        actions[action_count] = others[action_count];
    const struct fl_function *f;
    for (int i = 0; (f = fl_function_at(i)) && action_count < ACTIONS; i++)
        actions[action_count++] =
            (struct action){f->name, draw_weight(f), f, plan_function, run_function, writes_wide_parts(f)};
    for (int a = 0; a < action_count; a++)
        weights += actions[a].weight *= is_preferred(actions[a].name) ? 100 : 1;
}

static void count_call(const struct call *c, bool error) {
    made++;
    refused += error;
    worked[c->action - actions] += !error;
}

static const struct action *draw_action(void) {
    int i = 0;
    if (!weights)
        list_actions();
    for (int at = below(weights); at >= actions[i].weight; i++)
        at -= actions[i].weight;
    return &actions[i];
}

/* Every function of the library, or each that the filter prefers, was called and worked more than once, and every
 * operation is written by a function, or is a step of functions with other names. */
static void check_coverage(void) {
    for (int a = 0; a < action_count; a++) {
        if (getenv("FLEXLAB_TEST_FILTER") && !is_preferred(actions[a].name))
            continue;
        if (EMULATED && !strstr(actions[a].name, "matmul") && !strstr(actions[a].name, "conv2d"))
            continue; /* the test random has them */
        printf("%-32s worked %lld times\n", actions[a].name, worked[a]);
        CHECK(worked[a] > 1, "%s worked %lld times, expected more than once", actions[a].name, worked[a]);
    }
    for (int i = 0; tensor_op_at(i); i++) {
        bool reached = false;
        const enum fl_op op = fl_op_named(tensor_op_at(i));
        for (int k = 0; fl_function_at(k); k++)
            reached = reached || fl_function_at(k)->op == op;
        switch ((int)op) {
#define FL_INTERNAL(id, CONSTANT, name) case id:
#include "flexlab/ops.def"
            reached = true;
        }
        CHECK(reached, "operation %s is written by no function", tensor_op_at(i));
    }
}

#endif
