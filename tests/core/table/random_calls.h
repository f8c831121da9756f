/* random_calls.h - random sequences of calls of the public API, each made in several worlds at once: one for each
 * kernel set, with a number of threads that changes from call to call. World 0 runs the reference kernels; everything
 * that a call may change or return must be the same in every world, but for payload and sign of a NaN.
 *
 * Calls come in episodes of EPISODE, which share a pool of tensors of a few shapes and start with an empty one. All
 * random choices depend on (seed, number of the call) and on the pool, so any subset of an episode can be run again: a
 * failing episode is reduced to the calls that it needs and printed. random_actions.h has the calls. */
#ifndef FL_RANDOM_CALLS_H
#define FL_RANDOM_CALLS_H

#include "same_tensor.h"
#include "draw_function.h"
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>

enum { MAX_WORLDS = 7, SLOTS = 14, EPISODE = 32, RESULTS = 4096, LINE = 2400 };

/* --- worlds ------------------------------------------------------------------------------------------------------- */

#ifdef FL_AMX_EMULATED
enum { EMULATED = 1 };
#else
enum { EMULATED = 0 };
#endif

static const char *world_row[MAX_WORLDS];
static int worlds;

/* Makes a world for each kernel set with kernels of its own on this machine; of emulated matrix tiles, for them and the
 * reference: the other kernel sets have a test of their own. */
static void find_worlds(void) {
    static const char *const rows[] = {"ref", "portable", "avx2", "avx2_vnni", "avx512bw", "avx512", "avx512_amx"};
    _Static_assert(sizeof rows / sizeof *rows == MAX_WORLDS, "a world for each kernel set");
    for (int r = 0; r < MAX_WORLDS; r++) {
        bool runs = r == 0;
        if (EMULATED && r > 0 && r < MAX_WORLDS - 1)
            continue;
        CHECK(!tensor_set_backend(rows[r]), "%s", tensor_error());
        for (int f = 0; tensor_format_at(f) && !runs; f++)
            for (int i = 0; tensor_op_at(i) && !runs; i++)
                runs = !strcmp(tensor_kernel_backend(tensor_format_at(f), tensor_op_at(i)), rows[r]);
        if (runs)
            world_row[worlds++] = rows[r];
    }
}

/* --- numbers drawn ------------------------------------------------------------------------------------------------ */

static void start_draws(uint64_t seed, uint64_t what) {
    draws = seed;
    draws = draw() ^ (what * 0xD1342543DE82EF95u);
}

/* Any format of the table, or one made from its parameters. */
static const struct fl_format *draw_any_format(void) {
    static const char *const made[] = {"flex12+5",      "flex8+5",     "dfp8",        "dfp13",       "flex16+3",
                                       "flex5+4",       "e4m3fn",      "e5m2",        "e2m1",        "e6m5",
                                       "tensor:e4m3fn", "tensor:e5m2", "tensor:e3m4", "tensor:e5m10"};
    enum { MADE = sizeof made / sizeof made[0] };
    int formats = 0;
    while (fl_format_at(formats))
        formats++;
    const int i = below(formats + MADE);
    tensor_format id = FMT_NONE;
    if (i >= formats)
        CHECK(!tensor_format_find(&id, made[i - formats]), "%s", tensor_error());
    return i < formats ? fl_format_at(i) : fl_format_of(id);
}

/* --- the pool ----------------------------------------------------------------------------------------------------- */

struct slot {
    tensor *t[MAX_WORLDS];    /* [0] NULL: free */
    void *memory[MAX_WORLDS]; /* for tensors in the caller's memory */
};

static struct slot pool[SLOTS];

static void slot_free(struct slot *s) {
    for (int w = 0; w < worlds; w++) {
        tensor_free(s->t[w]);
        free(s->memory[w]);
    }
    *s = (struct slot){0};
}

/* Elements as stored, by style. */
enum { STYLES = 8 };

static void draw_mantissas(int16_t *m, int64_t n, int style) {
    const int64_t single = (int64_t)(draw() % (uint64_t)n);
    for (int64_t i = 0; i < n; i++) {
        const int16_t any = (int16_t)between(-32767, 32767);
        switch (style) {
        case 0:
            m[i] = 0;
            break;
        case 1:
            m[i] = any;
            break;
        case 2:
            m[i] = any < 0 ? -32767 : 32767;
            break;
        case 3:
            m[i] = any % 4;
            break;
        case 4:
            m[i] = any % 3 ? 0 : any;
            break;
        case 5:
            m[i] = i == single ? any : 0;
            break;
        case 6:
            m[i] = any % 50 ? any : INT16_MIN;
            break; /* only by hand */
        default:
            m[i] = (int16_t)((any + between(-32767, 32767) + between(-32767, 32767)) / 24);
        }
    }
}

static void draw_floats(const struct fl_format *f, void *words, int64_t n, int style) {
    const struct fl_view view = {.data = words, .count = n};
    const struct fl_rounding nearest = {TENSOR_ROUND_NEAREST, 0, 0};
    const bool half = f->id == FMT_FP16;
    const int64_t single = (int64_t)(draw() % (uint64_t)n);
    for (int64_t i = 0; i < n; i++) {
        const uint64_t bits = draw();
        double x = unit() + unit() + unit();
        struct fl_stats ignored = {0};
        switch (style) {
        case 0:
            x = bits & 1 ? 0.0 : -0.0;
            break;
        case 1:
            memcpy((char *)words + i * f->bytes, &bits, (size_t)f->bytes);
            continue; /* any word at all */
        case 2:
            x = ldexp(x, half ? 15 : 126);
            break;
        case 3:
            x = (double)(bits % 7) - 3;
            break;
        case 4:
            x = bits % 3 ? 0 : x;
            break;
        case 5:
            x = i == single ? x : 0;
            break;
        case 6:
            x = ldexp(x, half ? -18 : -130);
            break; /* subnormals */
        default:
            x = bits % 61 == 0 ? NAN : bits % 59 == 0 ? INFINITY : bits % 53 == 0 ? -INFINITY : x;
            x = bits % 4 ? x : ldexp(x, (int)(bits >> 32) % 20 - 10);
        }
        f->encode(f, &view, i, 1, &x, false, &nearest, &ignored);
    }
}

static int draw_exponent(const struct fl_format *f) {
    const int kind = below(20);
    const int e = kind < 12   ? between(3, 17)
                  : kind < 17 ? between(f->e_min, f->e_max)
                  : kind < 19 ? f->e_max
                              : f->e_min;
    return e < f->e_min ? f->e_min : e > f->e_max ? f->e_max : e;
}

struct recipe { /* for a new tensor */
    bool wide, load, on_memory;
    int style, e;
    const char *predictor;
    tensor_rounding rounding;
    uint64_t seed;
};

static struct recipe draw_recipe(const struct fl_format *f) {
    struct recipe r = {.wide = chance(30), .load = chance(35), .on_memory = chance(15), .style = below(STYLES)};
    int predictors = 0;
    while (autoflex_at(predictors))
        predictors++;
    r.style = chance(50) ? 7 : r.style;
    r.e = draw_exponent(f);
    r.predictor = chance(50) ? autoflex_name(autoflex_at(below(predictors))) : NULL;
    r.rounding = chance(75)                    ? TENSOR_ROUND_NEAREST
                 : f->truncates && r.style % 2 ? TENSOR_ROUND_TRUNCATE
                                               : TENSOR_ROUND_STOCHASTIC;
    r.seed = draw();
    return r;
}

/* Makes the same tensor in one world. words: its elements; fine: values that round to about them. */
static tensor *make_tensor(const struct fl_format *f, int ndim, const int64_t *shape, const struct recipe *r,
                           const void *words, const double *fine, int64_t count, void **memory) {
    const bool exponent = fl_has_exponent(f);
    const size_t bytes = (size_t)count * (size_t)f->bytes;
    if (r->on_memory) {
        *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
        memset(*memory, 0, bytes);
    }
    tensor *t = r->on_memory ? tensor_new_on(f->id, ndim, shape, *memory, bytes) : tensor_new(f->id, ndim, shape);
    (void)tensor_set_rounding(t, r->rounding, r->seed); /* refused if it is not offered */
    if (exponent && r->predictor)
        (void)tensor_set_predictor(t, r->predictor);
    if (r->wide)
        (void)tensor_keep_wide(t);
    if (r->load && !tensor_load_f64(t, fine, count))
        return t;
    memcpy(tensor_data(t), words, bytes);
    if (exponent)
        (void)tensor_declare_exponent(t, r->e);
    return t;
}

static void make_slot(struct slot *s, const struct fl_format *f, int ndim, const int64_t *shape) {
    int64_t count = 1;
    for (int i = 0; i < ndim; i++)
        count *= shape[i];
    const struct recipe r = draw_recipe(f);
    void *words = malloc((size_t)count * (size_t)f->bytes);
    double *fine = malloc((size_t)count * sizeof *fine);
    if (f->arithmetic == FL_ARITHMETIC_SHARED)
        draw_mantissas(words, count, r.style);
    else
        draw_floats(f, words, count, r.style);
    const int32_t exponent = r.e;
    const struct fl_view view = {words, NULL, &exponent, count};
    f->decode(f, &view, 0, count, fine);
    for (int64_t i = 0; i < count; i++)
        fine[i] *= 1 + unit() * 0x1p-12;
    for (int w = 0; w < worlds; w++)
        s->t[w] = make_tensor(f, ndim, shape, &r, words, fine, count, &s->memory[w]);
    free(words);
    free(fine);
}

/* --- a call ------------------------------------------------------------------------------------------------------- */

enum { LEFT_OUT = -1, NUMBERS = -2 }; /* instead of a slot */

struct action;
struct call {
    const struct action *action;
    const struct fl_format *format;
    int operands;
    struct {
        int slot, ndim;
        uint64_t writes; /* writes to its tensor before the call */
        int64_t shape[TENSOR_MAX_DIMS];
        tensor *own; /* in the world where the call runs: a view, or numbers */
    } operand[FL_OPERANDS];
    tensor *t[FL_OPERANDS]; /* the operands in that world; NULL: left out */
    struct drawn drawn;     /* for a function */
    int number;             /* an exponent, a choice */
    int numbers_count;
    double numbers[FL_OPERANDS][RESULTS]; /* of operands that are numbers; values to load */
};

struct outcome { /* in one world */
    tensor_status status;
    char message[512];
    int threads;
    int count;
    double values[FL_OPERANDS * RESULTS];
};

struct action {
    const char *name;
    int weight;
    const struct fl_function *function; /* NULL: none, `run` names the call */
    /* Draws the call; false if it would be too large, or impossible in this episode. */
    bool (*plan)(struct call *c);
    tensor_status (*run)(const struct call *c, tensor *const *t, struct outcome *o);
    bool fine; /* writes wide parts that are more precise than the elements */
};

static bool in_use(const struct call *c, int slot) {
    for (int i = 0; i < c->operands; i++)
        if (c->operand[i].slot == slot)
            return true;
    return false;
}

/* A slot with this number of elements of the format: one of the pool, or a new one. */
static int find_slot(const struct call *c, const struct fl_format *f, int ndim, const int64_t *shape) {
    const int64_t count = count_of(ndim, shape);
    const int first = below(SLOTS);
    const bool anew = chance(12), apart = chance(75);
    for (int i = 0; i < SLOTS && !anew; i++) {
        const int s = (first + i) % SLOTS;
        if (pool[s].t[0] && pool[s].t[0]->format == f && pool[s].t[0]->count == count && !(apart && in_use(c, s)))
            return s;
    }
    int s = first;
    for (int i = 0; i < SLOTS && pool[s].t[0]; i++)
        s = (first + i) % SLOTS;
    while (in_use(c, s))
        s = (s + 1) % SLOTS;
    slot_free(&pool[s]);
    make_slot(&pool[s], f, ndim, shape);
    return s;
}

/* Adds an operand of a format. */
static void want_format(struct call *c, const struct fl_format *f, int ndim, const int64_t *shape) {
    const int i = c->operands;
    const int slot = find_slot(c, f, ndim, shape);
    c->operand[i].slot = slot;
    c->operand[i].ndim = ndim;
    memcpy(c->operand[i].shape, shape, (size_t)ndim * sizeof shape[0]);
    c->operands++;
}

static void want(struct call *c, int ndim, const int64_t *shape) {
    want_format(c, chance(1) ? draw_any_format() : c->format, ndim, shape);
}
#define WANT(c, ...) want(c, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[]){__VA_ARGS__})

/* Adds an operand that is no tensor of the pool. */
static void want_other(struct call *c, int slot) {
    c->operand[c->operands++].slot = slot;
}

/* Opens a function's view of a tensor in the pool, or its numbers. */
static tensor *open_drawn(const struct call *c, int i, tensor *t) {
    const struct drawn_operand *o = &c->drawn.operand[i];
    if (t)
        return tensor_new_strided(t, o->ndim, o->shape, o->stride, 0);
    t = tensor_new(o->format, o->ndim, o->shape);
    CHECK(t && !load_numbers(t, c->numbers[i], o->held), "%s", tensor_error());
    return t;
}

static void open_operands(struct call *c, int world) {
    for (int i = 0; i < c->operands; i++) {
        const int slot = c->operand[i].slot;
        c->operand[i].own = c->t[i] = NULL;
        if (slot == LEFT_OUT)
            continue;
        tensor *t = slot == NUMBERS ? NULL : pool[slot].t[world];
        const int64_t *shape = c->operand[i].shape;
        if (!t || (c->action->function && c->drawn.operand[i].strided))
            t = c->operand[i].own = open_drawn(c, i, t);
        else if (t->ndim != c->operand[i].ndim || memcmp(t->shape, shape, (size_t)t->ndim * sizeof shape[0]))
            t = c->operand[i].own = tensor_new_view(t, c->operand[i].ndim, shape);
        c->t[i] = t;
    }
}

static void keep(struct outcome *o, const double *values, int64_t n) {
    memcpy(o->values + o->count, values, (size_t)n * sizeof *values);
    o->count += (int)n;
}

/* Stores numbers, which are results, whether the call writes them or not. */
static void keep_numbers(struct outcome *o, const tensor *t) {
    static int32_t whole[RESULTS];
    static double values[RESULTS];
    const int64_t n = tensor_count(t);
    const tensor_format format = tensor_format_of(t);
    const uint8_t *bytes = format == FMT_U8 ? tensor_const_data(t) : NULL;
    CHECK(bytes || (format == FMT_I32 ? !tensor_store_i32(t, whole, n) : !tensor_store_f64(t, values, n)), "%s",
          tensor_error());
    for (int64_t i = 0; i < n && bytes; i++)
        values[i] = bytes[i];
    for (int64_t i = 0; i < n && format == FMT_I32; i++)
        values[i] = whole[i];
    keep(o, values, n);
}

static void close_operands(struct call *c, struct outcome *o) {
    for (int i = 0; i < c->operands; i++) {
        if (c->operand[i].slot == NUMBERS)
            keep_numbers(o, c->t[i]);
        tensor_free(c->operand[i].own);
    }
}

/* --- text --------------------------------------------------------------------------------------------------------- */

__attribute__((format(printf, 2, 3))) static void append(char *line, const char *text, ...) {
    const size_t used = strlen(line);
    va_list list;
    va_start(list, text);
    vsnprintf(line + used, LINE - used, text, list);
    va_end(list);
}

static void describe_scalars(const struct call *c, char *line) {
    const struct fl_function *f = c->action->function;
    for (int i = 0; i < f->scalar_count; i++)
        if (f->scalars[i].type <= FL_REAL64)
            append(line, ", %s %a", f->scalars[i].name, c->drawn.scalar[i].real);
        else
            append(line, ", %s 0x%" PRIx64, f->scalars[i].name, c->drawn.scalar[i].key);
}

/* Describes the call before it runs. */
static void describe(const struct call *c, char *line) {
    char text[TENSOR_TEXT];
    append(line, "%s number %d", c->action->name, c->number);
    if (c->action->function)
        describe_scalars(c, line);
    for (int i = 0; i < c->operands; i++) {
        const int slot = c->operand[i].slot;
        const char *name = c->action->function ? c->action->function->operands[i].name : "";
        tensor shape = {.ndim = c->operand[i].ndim};
        memcpy(shape.shape, c->operand[i].shape, sizeof shape.shape);
        append(line, "\n        %s: ", name);
        if (slot < 0) {
            append(line, slot == NUMBERS ? "numbers %s" : "-", fl_shape_text(&shape, text));
            continue;
        }
        const tensor *t = pool[slot].t[0];
        const struct autoflex *a = &t->storage->slot->autoflex;
        append(line, "t%d %s %s e %d, %s%s, rounding %d, %d in history%s%s%s", slot, t->format->name,
               fl_shape_text(&shape, text), a->e, a->predictor ? autoflex_name(a->predictor) : "",
               a->initialised ? "" : " uninitialised", (int)t->storage->rounding, a->count,
               t->storage->wide ? ", wide" : "", t->storage->by_hand ? ", by hand" : "",
               c->drawn.operand[i].strided ? ", strides" : "");
    }
}

/* --- what must agree ---------------------------------------------------------------------------------------------- */

static bool compare_tensors(const tensor *want, const tensor *got, char *line) {
    const struct fl_storage *a = want->storage, *b = got->storage;
    if (!same_tensor(want, a->slot, got, b->slot, line, LINE))
        return false;
    if (a->rounding == b->rounding && a->seed == b->seed && a->view_rounding == b->view_rounding)
        return true;
    append(line, "the rounding differs");
    return false;
}

static bool compare_outcomes(const struct outcome *want, const struct outcome *got, char *line) {
    if (want->status != got->status || strcmp(want->message, got->message))
        append(line, "status %d \"%s\", ref %d \"%s\"", (int)got->status, got->message, (int)want->status,
               want->message);
    else if (want->count != got->count)
        append(line, "%d results, ref %d", got->count, want->count);
    else {
        for (int i = 0; i < want->count; i++)
            if (!same_double(want->values[i], got->values[i])) {
                append(line, "result %d is %a, ref %a", i, got->values[i], want->values[i]);
                return false;
            }
        return true;
    }
    return false;
}

/* --- elements are the rounding of their wide part ----------------------------------------------------------------- */

static double round_to_place(double x, int place, bool truncate) {
    const double scaled = ldexp(x, place), down = floor(scaled), rest = scaled - down;
    if (truncate)
        return ldexp(trunc(scaled), -place);
    return ldexp(down + (rest > 0.5 || (rest == 0.5 && fmod(down, 2) != 0)), -place);
}

/* The properties of a float format of at most 16 bits that determine rounding: bits of the fraction, the exponent of
 * the least normal number, the largest number. */
struct precision {
    const struct fl_format *format;
    int fraction, least;
    double largest;
};

/* Derived from the elements: the largest; the least above 1; the least above 0, 2^(least - fraction). */
static const struct precision *precision_of(const struct fl_format *f) {
    static struct precision known[16];
    int k = 0;
    while (known[k].format && known[k].format != f)
        k = (k + 1) % 16;
    if (known[k].format)
        return &known[k];
    double above_1 = INFINITY, above_0 = INFINITY, x;
    for (int word = 0; word < 1 << 8 * f->bytes; word++) {
        const struct fl_view one = {
            .data = f->bytes == 1 ? (void *)&(uint8_t){(uint8_t)word} : &(uint16_t){(uint16_t)word}, .count = 1};
        f->decode(f, &one, 0, 1, &x);
        if (isfinite(x) && x > known[k].largest)
            known[k].largest = x;
        above_1 = x > 1 && x < above_1 ? x : above_1;
        above_0 = x > 0 && x < above_0 ? x : above_0;
    }
    known[k].format = f;
    known[k].fraction = -ilogb(above_1 - 1);
    known[k].least = ilogb(above_0) + known[k].fraction;
    return &known[k];
}

static double round_to_element(const tensor *t, double given) {
    const int e = fl_has_exponent(t->format) && t->format->element ? tensor_exponent(t) : 0;
    const double x = ldexp(given, e); /* in units of the elements */
    if (t->format->arithmetic == FL_ARITHMETIC_SHARED)
        return round_to_place(x, tensor_exponent(t), false);
    const struct fl_element *of = t->format->element;
    const double beyond = !of || of->has_infinity ? INFINITY : NAN;
    if (x == 0 || (!isfinite(x) && !of))
        return x;
    if (x != x)
        return of->has_nan ? x : 0;
    const bool truncate = t->storage->view_rounding == TENSOR_ROUND_TRUNCATE;
    const struct precision *p = precision_of(t->format);
    const double y =
        isinf(x) ? x : round_to_place(x, p->fraction - (ilogb(x) < p->least ? p->least : ilogb(x)), truncate);
    return ldexp(fabs(y) <= p->largest ? y : copysign(truncate || (of && of->saturates) ? p->largest : beyond, x), -e);
}

/* exact: the wide part is the value of the elements. */
static bool wide_agrees(const tensor *t, bool exact, char *line) {
    static double elements[1 << 19], parts[1 << 19];
    if (!t->storage->wide || t->count > 1 << 19)
        return true;
    if (tensor_store_f64(t, elements, t->count) || tensor_store_wide_f64(t, parts, t->count))
        return false;
    for (int64_t i = 0; i < t->count; i++) {
        const double want = exact ? parts[i] : round_to_element(t, parts[i]);
        const bool by_hand = isinf(parts[i]) && parts[i] == elements[i]; /* what saturates writes no Inf itself */
        if (!(want == elements[i]) && !by_hand && !(want != want && elements[i] != elements[i])) {
            append(line, "element %" PRId64 " is %a, its wide part %a", i, elements[i], parts[i]);
            return false;
        }
    }
    return true;
}

/* --- calls and episodes ------------------------------------------------------------------------------------------- */

static const struct action *draw_action(void);
static void draw_episode(void);
static void count_call(const struct call *c, bool error);

/* Runs one call in every world. False, with the difference in `line`, if they disagree. */
static bool run_call(struct call *c, char *line) {
    static const int threads[] = {1, 2, 3, 7};
    static struct outcome outcome[MAX_WORLDS];
    for (int i = 0; i < c->operands; i++)
        c->operand[i].writes = c->operand[i].slot < 0 ? 0 : pool[c->operand[i].slot].t[0]->storage->slot->writes;
    for (int w = 0; w < worlds; w++) {
        struct outcome *o = &outcome[w];
        o->count = 0;
        o->threads = threads[below(4)];
        (void)tensor_set_backend(world_row[w]);
        (void)tensor_set_threads(o->threads);
        open_operands(c, w);
        o->status = c->action->run(c, c->t, o);
        if (w == 0)
            count_call(c, o->status);
        snprintf(o->message, sizeof o->message, "%s", o->status ? tensor_error() : "");
        close_operands(c, o);
    }
    const bool settle = chance(40); /* reading a wide part settles the elements that were written by hand */
    bool good = true;
    for (int w = 0; w < worlds && good; w++) {
        append(line, "        %s with %d threads: ", world_row[w], outcome[w].threads);
        good = w == 0 || compare_outcomes(&outcome[0], &outcome[w], line);
        for (int i = 0; i < c->operands && good; i++) {
            if (c->operand[i].slot < 0)
                continue;
            const struct slot *s = &pool[c->operand[i].slot];
            append(line, "t%d: ", c->operand[i].slot);
            good = w == 0 || compare_tensors(s->t[0], s->t[w], line);
        }
        if (good)
            line[0] = 0;
    }
    for (int w = 0; w < worlds && good; w++)
        for (int i = 0; i < c->operands && good; i++)
            if (c->operand[i].slot >= 0 && (settle || !pool[c->operand[i].slot].t[w]->storage->by_hand))
                good = wide_agrees(pool[c->operand[i].slot].t[w],
                                   !c->action->fine &&
                                       pool[c->operand[i].slot].t[w]->storage->slot->writes != c->operand[i].writes,
                                   line);
    return good;
}

/* Runs the calls of an episode except those to skip, up to the first that fails; returns its index, -1 if none does.
 * tell: print. */
static int run_episode(uint64_t seed, uint64_t episode, const bool *skip, bool tell) {
    static struct call call;
    int failed = -1;
    start_draws(seed, episode);
    draw_episode();
    for (int i = 0; i < EPISODE && failed < 0; i++) {
        if (skip && skip[i])
            continue;
        start_draws(seed, (episode + 1) << 20 | (uint64_t)i);
        do {
            memset(&call, 0, offsetof(struct call, numbers));
            call.action = draw_action();
        } while (!call.action->plan(&call));
        char text[LINE] = "", line[LINE] = "";
        if (tell)
            describe(&call, text);
        const bool good = run_call(&call, line);
        if (tell)
            printf("    call %" PRIu64 ": %s\n%s%s", episode * EPISODE + (uint64_t)i, text, good ? "" : line,
                   good ? "" : "\n");
        failed = good ? -1 : i;
    }
    for (int s = 0; s < SLOTS; s++)
        slot_free(&pool[s]);
    return failed;
}

/* Leaves out every call that the failure does not need, and prints the rest. */
static void reduce(uint64_t seed, uint64_t episode, int failed) {
    bool skip[EPISODE] = {false};
    for (int i = failed + 1; i < EPISODE; i++)
        skip[i] = true;
    for (int i = failed - 1; i >= 0; i--) {
        skip[i] = true;
        skip[i] = run_episode(seed, episode, skip, false) == failed;
    }
    printf("    the same failure with these calls alone:\n");
    run_episode(seed, episode, skip, true);
}

static void report(const char *program, uint64_t seed, uint64_t episode, int failed) {
    printf("  seed %" PRIu64 ", call %" PRIu64 "; replay: %s %" PRIu64 " %d %" PRIu64 "\n", seed,
           episode * EPISODE + (uint64_t)failed, program, seed, EPISODE, episode * EPISODE);
    reduce(seed, episode, failed);
    fflush(stdout);
}

/* Runs about `calls` calls from number `first` on. */
static void run_calls(const char *program, uint64_t seed, uint64_t calls, uint64_t first) {
    int reported = 0;
    for (uint64_t episode = first / EPISODE; episode * EPISODE < first + calls; episode++) {
        const int failed = run_episode(seed, episode, NULL, false);
        CHECK(failed < 0, "a call differs between rows, or leaves a wide part behind");
        if (failed >= 0 && ++reported <= 5)
            report(program, seed, episode, failed);
    }
    tensor_set_backend(NULL);
    tensor_set_threads(0);
}

#endif
