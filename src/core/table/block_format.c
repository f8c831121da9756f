/* block_format.c - block formats by text: the grammar, the checks, and one object for each format. */
#include "core/table/block_format.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { USUAL_BLOCK = 32, ELEMENT_BITS = 8 };

static const struct {
    const char *prefix;
    bool alone; /* no element follows: the text ends, or options do */
} families[] = {[FL_BLOCKS_MX] = {"mx:", false},
                [FL_BLOCKS_NVFP4] = {"nvfp4", true},
                [FL_BLOCKS_HBFP] = {"hbfp:", false},
                [FL_BLOCKS_CHANNEL] = {"channel:", false}};
enum { FAMILIES = sizeof families / sizeof families[0] };

static const char *const rule_names[] = {
    [FL_SCALE_FLOOR] = "floor", [FL_SCALE_CEIL] = "ceil", [FL_SCALE_EVEN] = "even", [FL_SCALE_RCEIL] = "rceil"};
enum { RULES = sizeof rule_names / sizeof rule_names[0] };

/* --- one object for each format ----------------------------------------------------------------------------------- */

struct made {
    struct fl_block_format format;
    char name[64];
    struct made *next;
};

static struct made *all;
static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;

static const struct fl_block_format *find_made(const char *name) {
    for (const struct made *m = __atomic_load_n(&all, __ATOMIC_ACQUIRE); m; m = m->next)
        if (!strcmp(m->name, name))
            return &m->format;
    return NULL;
}

/* What a text without a rule means. Scales of channels are few, and nothing saturates under them. */
static enum fl_scale_rule usual_rule(enum fl_block_family family) {
    return family == FL_BLOCKS_CHANNEL ? FL_SCALE_RCEIL : FL_SCALE_FLOOR;
}

static void write_name(const struct fl_block_format *f, char *name, size_t size) {
    int length = snprintf(name, size, "%s", families[f->family].prefix);
#define ADD(...) (length += snprintf(name + length, size - (size_t)length, __VA_ARGS__))
    if (!families[f->family].alone) {
        ADD("%s", f->element.name);
        if (f->block && f->block != USUAL_BLOCK)
            ADD("/%d", f->block);
    }
    if (f->rule != usual_rule(f->family))
        ADD(":%s", rule_names[f->rule]);
    if (f->stochastic)
        ADD(":stochastic");
    if (f->hadamard)
        ADD(":hadamard");
    if (f->square)
        ADD(":square");
#undef ADD
}

static const struct fl_block_format *intern(const struct fl_block_format *f) {
    char name[sizeof all->name];
    write_name(f, name, sizeof name);
    const struct fl_block_format *found = find_made(name);
    if (found)
        return found;
    pthread_mutex_lock(&making);
    found = find_made(name); /* another thread may have made it */
    struct made *const m = found ? NULL : fl_alloc_zero(sizeof *m);
    if (m) {
        m->format = *f;
        memcpy(m->name, name, sizeof name);
        m->format.name = m->name;
        m->next = all;
        __atomic_store_n(&all, m, __ATOMIC_RELEASE);
        found = &m->format;
    }
    pthread_mutex_unlock(&making);
    return found;
}

/* --- text --------------------------------------------------------------------------------------------------------- */

static tensor_status refuse(const char *text, const char *at, const char *expected) {
    return fl_unexpected("block format", text, at, expected);
}

static bool skip(const char **at, const char *word) {
    const bool found = !strncmp(*at, word, strlen(word));
    *at += found ? strlen(word) : 0;
    return found;
}

/* Whether the element ends at `at`, or the option that is `word`. */
static bool ends(const char *at) {
    return *at == 0 || *at == ':';
}

static tensor_status read_element(struct fl_block_format *f, const char *text, const char **at) {
    const char *const first = *at;
    if (f->family == FL_BLOCKS_HBFP && strncmp(first, "int", 3) != 0)
        return refuse(text, first, "intN, N from 2 to 8");
    const tensor_status status = fl_element_find(&f->element, text, first, at);
    if (status)
        return status;
    if (f->element.bits > ELEMENT_BITS)
        return refuse(text, first, "an element of at most 8 bits, the sign included");
    if (f->element.bits < 2 || !(f->element.largest > 0))
        return refuse(text, first, "an element with a value other than 0");
    /* Conversions to blocks always saturate: the suffix says nothing. */
    char *const suffix = strstr(f->element.name, "sat");
    if (suffix)
        *suffix = 0;
    f->element.saturates = true;
    return TENSOR_OK;
}

static tensor_status read_block(struct fl_block_format *f, const char *text, const char **at) {
    f->block = f->family == FL_BLOCKS_CHANNEL ? 0 : USUAL_BLOCK;
    if (ends(*at))
        return TENSOR_OK;
    if (f->family == FL_BLOCKS_CHANNEL)
        return refuse(text, *at, "':' and an option, or the end: a scale of channel is that of all summed elements");
    if (!skip(at, "/"))
        return refuse(text, *at, "'/' and a number of elements, ':' and an option, or the end");
    const char *const number = *at;
    int n = 0;
    while (**at >= '0' && **at <= '9' && *at - number < 4)
        n = 10 * n + (*(*at)++ - '0');
    if (*number == '0' || n < FL_BLOCK_LEAST || n > FL_BLOCK_MOST || (**at >= '0' && **at <= '9'))
        return refuse(text, number, "a number of elements from 2 to 1024");
    if (!ends(*at))
        return refuse(text, *at, "':' and an option, or the end");
    f->block = n;
    return TENSOR_OK;
}

static const char *options_of(const struct fl_block_format *f) {
    switch (f->family) {
    case FL_BLOCKS_NVFP4:
        return "stochastic, hadamard or square";
    case FL_BLOCKS_HBFP:
        return "floor, stochastic, hadamard or square";
    case FL_BLOCKS_CHANNEL:
        return "floor, ceil, even, rceil or stochastic";
    case FL_BLOCKS_MX:
        break;
    }
    return "floor, ceil, even, rceil, stochastic, hadamard or square";
}

static tensor_status refuse_rule(const struct fl_block_format *f, const char *text, const char *at) {
    return f->family == FL_BLOCKS_NVFP4
               ? refuse(text, at, "stochastic, hadamard or square: the block scales of nvfp4 are amax / 6 in E4M3")
               : refuse(text, at, "floor, stochastic, hadamard or square: hbfp has the rule floor");
}

/* An option that was there before. */
static tensor_status set_once(bool *option, const char *text, const char *at) {
    if (*option)
        return refuse(text, at, "an option that is not there yet");
    *option = true;
    return TENSOR_OK;
}

static tensor_status read_option(struct fl_block_format *f, bool *has_rule, const char *text, const char **at) {
    const char *const first = *at;
    const struct {
        const char *name;
        bool *option;
    } others[] = {{"stochastic", &f->stochastic}, {"hadamard", &f->hadamard}, {"square", &f->square}};
    for (int i = 0; i < RULES; i++)
        if (skip(at, rule_names[i])) {
            if (!ends(*at))
                break;
            if (f->family == FL_BLOCKS_NVFP4 || (f->family == FL_BLOCKS_HBFP && i != FL_SCALE_FLOOR))
                return refuse_rule(f, text, first);
            if (*has_rule)
                return refuse(text, first, "one scale rule at most");
            *has_rule = true;
            f->rule = (enum fl_scale_rule)i;
            return TENSOR_OK;
        }
    const size_t count = f->family == FL_BLOCKS_CHANNEL ? 1 : sizeof others / sizeof others[0];
    for (size_t i = 0; i < count; i++) {
        *at = first;
        if (skip(at, others[i].name) && ends(*at))
            return set_once(others[i].option, text, first);
    }
    *at = first;
    return refuse(text, first, options_of(f));
}

/* --- parameters that follow --------------------------------------------------------------------------------------- */

static void derive(struct fl_block_format *f) {
    const struct fl_element *e = &f->element;
    int digits;
    (void)frexp(e->largest, &digits);
    f->top_exponent = digits - 1;
    f->fraction_bits = e->kind == FL_ELEMENT_INTEGER ? e->bits - 2 : e->fraction_bits;
    f->bytes = ldexp(e->largest, -e->unit) <= 127;
    f->e4m3_scales = f->family == FL_BLOCKS_NVFP4;
}

bool fl_block_format_begins(const char *text) {
    for (int i = 0; text && i < FAMILIES; i++) {
        const char *at = text;
        if (skip(&at, families[i].prefix) && (!families[i].alone || ends(at)))
            return true;
    }
    return false;
}

tensor_status fl_block_format_find(const struct fl_block_format **format, const char *text) {
    if (!format || !text)
        return fl_fail(TENSOR_E_ARGUMENT, "block format: %s is NULL", text ? "the result" : "the text");
    *format = NULL;
    struct fl_block_format f = {.family = FL_BLOCKS_MX};
    const char *at = text;
    int family = 0;
    while (family < FAMILIES && !skip(&at, families[family].prefix))
        family++;
    if (family == FAMILIES)
        return refuse(text, text, "mx:ELEMENT, nvfp4, hbfp:intN or channel:ELEMENT");
    f.family = (enum fl_block_family)family;
    f.rule = usual_rule(f.family);
    if (families[family].alone) {
        if (!ends(at))
            return refuse(text, at, "':' and an option, or the end");
        f.block = 16;
        const char *end;
        TRY(fl_element_find(&f.element, "e2m1", "e2m1", &end));
    } else {
        TRY(read_element(&f, text, &at));
        TRY(read_block(&f, text, &at));
    }
    bool has_rule = false;
    while (skip(&at, ":")) {
        const char *const option = at;
        TRY(read_option(&f, &has_rule, text, &at));
        if (f.hadamard && f.block % FL_HADAMARD)
            return refuse(text, option, "no hadamard: it takes blocks of a multiple of 16 elements");
    }
    derive(&f);
    *format = intern(&f);
    return *format ? TENSOR_OK : fl_fail(TENSOR_E_MEMORY, "block format %s: out of memory", f.element.name);
}

double fl_block_format_bits(const struct fl_block_format *f) {
    return f->element.bits + (f->block ? 8.0 / f->block / (f->square ? f->block : 1) : 0);
}
