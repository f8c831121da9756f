/* made.c - formats made at run time from their parameters: mantissas of 4 to 16 bits under a shared exponent, and
 * floats of at most 16 bits, alone or under an exponent.
 *
 * The id of such a format says its parameters, so that it is the same in every process, and a format needs no
 * registration: the first who asks for an id makes its identity, which lives as long as the process. */
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/base/text.h"
#include "core/table/format.h"
#include <float.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { LEAST_BITS = 4, MOST_BITS = 16, LEAST_EXPONENT_BITS = 1, MOST_EXPONENT_BITS = 7 };
enum { LIMIT = 1024 }; /* more than there are */

/* An id: FMT_MADE, the family and two parameters; a byte each. flexN+E: N, E; dfpN: N, 0; eXmY: X and, above its four
 * bits, the suffixes; Y. tensor:eXmY: as eXmY, without the suffix sat. */
enum family { FLEX = 1, DFP = 2, FLOAT = 3, SCALED = 4 };
enum { SUFFIX_FN = 0x10, SUFFIX_SAT = 0x20 };

static tensor_format id_of(enum family family, int first, int second) {
    return (tensor_format)(FMT_MADE | (int)family << 16 | first << 8 | second);
}

/* --- making them -------------------------------------------------------------------------------------------------- */

struct made {
    struct fl_format format;
    struct fl_element element; /* of a float */
    char name[24], summary[96];
};

static struct made *made[LIMIT];
static int made_count;
static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;

static const struct fl_format *find_made(tensor_format id) {
    const int count = __atomic_load_n(&made_count, __ATOMIC_ACQUIRE);
    for (int i = 0; i < count; i++)
        if (made[i]->format.id == id)
            return &made[i]->format;
    return NULL;
}

/* Whether these are parameters of mantissas that no folder has. */
static bool is_possible(enum family family, int bits, int exponent_bits) {
    const bool exponent = exponent_bits >= LEAST_EXPONENT_BITS && exponent_bits <= MOST_EXPONENT_BITS;
    const bool full = bits == MOST_BITS && (family == DFP || exponent_bits == 5); /* flex16+5, dfp16 */
    return bits >= LEAST_BITS && bits <= MOST_BITS && !full &&
           (family == FLEX ? exponent : family == DFP && exponent_bits == 0);
}

static bool make_mantissas(struct made *m, enum family family, int bits, int exponent_bits) {
    if (!is_possible(family, bits, exponent_bits))
        return false;
    m->format = *fl_format_of(family == FLEX ? FMT_FLEX16_5 : FMT_DFP16);
    m->format.bits = bits;
    m->format.top = (1 << (bits - 1)) - 1;
    if (family == FLEX) {
        m->format.e_max = (1 << exponent_bits) - 1;
        snprintf(m->name, sizeof m->name, "flex%d+%d", bits, exponent_bits);
        snprintf(m->summary, sizeof m->summary, "%d-bit mantissas, a %d-bit shared exponent predicted by Autoflex",
                 bits, exponent_bits);
    } else {
        snprintf(m->name, sizeof m->name, "dfp%d", bits);
        snprintf(m->summary, sizeof m->summary, "%d-bit mantissas, an 8-bit shared exponent from the exact maximum",
                 bits);
    }
    return true;
}

/* The id of an element as a format of tensors: of a format of a folder where that is the same. */
static tensor_format id_of_element(const struct fl_element *e) {
    const bool plain = e->has_infinity && !e->saturates;
    if (plain && e->fraction_bits == 10 && e->exponent_bits == 5)
        return FMT_FP16;
    if (plain && e->fraction_bits == 7 && e->exponent_bits == 8)
        return FMT_BF16;
    const bool finite = !e->has_nan; /* suffixes mean nothing */
    const int suffixes = (e->has_nan && !e->has_infinity ? SUFFIX_FN : 0) | (e->saturates && !finite ? SUFFIX_SAT : 0);
    return id_of(FLOAT, e->exponent_bits | suffixes, e->fraction_bits);
}

static enum fl_operand_kind operand_of(const struct fl_element *e) {
    const bool e4m3fn = e->exponent_bits == 4 && e->fraction_bits == 3 && e->has_nan && !e->has_infinity,
               e5m2 = e->exponent_bits == 5 && e->fraction_bits == 2 && e->has_infinity;
    return e4m3fn ? FL_OPERAND_E4M3 : e5m2 ? FL_OPERAND_E5M2 : FL_OPERAND_NONE;
}

static bool make_float(struct made *m, tensor_format id, int exponent, int fraction_bits) {
    char text[32];
    const char *end;
    snprintf(text, sizeof text, "e%dm%d%s%s", exponent & 15, fraction_bits, exponent & SUFFIX_FN ? "fn" : "",
             exponent & SUFFIX_SAT ? "sat" : "");
    fl_fail_hold();
    const bool found = !fl_element_find(&m->element, text, text, &end);
    (void)fl_fail_release(TENSOR_OK);
    const struct fl_element *const e = &m->element;
    if (!found || *end || id_of_element(e) != id || e->largest > FLT_MAX)
        return false;
    m->format = *fl_made_float();
    m->format.element = e;
    m->format.bits = e->bits;
    m->format.bytes = e->bits <= 8 ? 1 : 2;
    m->format.operand = operand_of(e);
    snprintf(m->name, sizeof m->name, "%s", e->name);
    char numbers[40];
    snprintf(numbers, sizeof numbers, "2^%d to %g", e->unit, e->largest);
    snprintf(m->summary, sizeof m->summary, "1 sign, %d exponent, %d fraction bits; %s", e->exponent_bits,
             e->fraction_bits, numbers);
    return true;
}

/* --- floats under an exponent ------------------------------------------------------------------------------------- */

enum { MOST_SCALED_EXPONENT_BITS = 7 }; /* with 8, binary32 has no exponents left to scale by */

/* The id of tensor:ELEMENT; conversions saturate whether or not the element says so. */
static tensor_format id_of_scaled(const struct fl_element *e) {
    return id_of(SCALED, e->exponent_bits | (e->has_nan && !e->has_infinity ? SUFFIX_FN : 0), e->fraction_bits);
}

/* The exponents at which every number, and what conversions compute with, are binary32: its smallest normal number
 * stays a normal one, its largest below 2^128, and below 2^127 the power of two whose last place is its unit. */
static void set_exponents(struct fl_format *f, const struct fl_element *e) {
    int digits;
    (void)frexp(e->largest, &digits);
    f->e_max = e->least_exponent - FLT_MIN_EXP + 1;
    f->e_min = digits - FLT_MAX_EXP;
    if (f->e_min < e->unit + FLT_MANT_DIG - FLT_MAX_EXP)
        f->e_min = e->unit + FLT_MANT_DIG - FLT_MAX_EXP;
}

static bool make_scaled(struct made *m, tensor_format id, int exponent, int fraction_bits) {
    char text[32];
    const char *end;
    snprintf(text, sizeof text, "e%dm%d%ssat", exponent & 15, fraction_bits, exponent & SUFFIX_FN ? "fn" : "");
    fl_fail_hold();
    const bool found = !fl_element_find(&m->element, text, text, &end);
    (void)fl_fail_release(TENSOR_OK);
    struct fl_element *const e = &m->element;
    if (!found || *end || id_of_scaled(e) != id || e->exponent_bits > MOST_SCALED_EXPONENT_BITS)
        return false;
    m->format = *fl_made_float();
    m->format.element = e;
    m->format.bits = e->bits;
    m->format.bytes = e->bits <= 8 ? 1 : 2;
    m->format.operand = operand_of(e);
    m->format.predictor = "delayed";
    set_exponents(&m->format, e);
    char *const suffix = strstr(e->name, "sat");
    snprintf(m->name, sizeof m->name, "tensor:%.*s", (int)(suffix ? suffix - e->name : (int)strlen(e->name)), e->name);
    snprintf(m->summary, sizeof m->summary, "1 sign, %d exponent, %d fraction bits, up to %g times a power of two",
             e->exponent_bits, e->fraction_bits, e->largest);
    return true;
}

/* --- of any family ------------------------------------------------------------------------------------------------ */

static struct made *make(tensor_format id) {
    const int parameters = (int)id & 0xffffff, first = parameters >> 8 & 0xff, second = parameters & 0xff;
    const enum family family = (enum family)(parameters >> 16);
    struct made *const m = fl_alloc_zero(sizeof *m);
    if (m && (family == FLOAT    ? make_float(m, id, first, second)
              : family == SCALED ? make_scaled(m, id, first, second)
                                 : make_mantissas(m, family, first, second))) {
        m->format.id = id;
        m->format.name = m->name;
        m->format.summary = m->summary;
        return m;
    }
    fl_free(m);
    return NULL;
}

const struct fl_format *fl_made_format(tensor_format id) {
    const struct fl_format *found = find_made(id);
    if (found || ((int)id & ~0xffffff) != FMT_MADE)
        return found;
    pthread_mutex_lock(&making);
    found = find_made(id); /* another thread may have made it */
    struct made *const m = found ? NULL : make(id);
    if (m) {
        made[made_count] = m;
        __atomic_store_n(&made_count, made_count + 1, __ATOMIC_RELEASE);
        found = &m->format;
    }
    pthread_mutex_unlock(&making);
    return found;
}

/* --- their texts -------------------------------------------------------------------------------------------------- */

static tensor_status find_mantissas(tensor_format *id, const char *text, enum family family, const char *at) {
    const char *number = at;
    const int bits = fl_read_number(&at);
    if (bits < LEAST_BITS || bits > MOST_BITS)
        return fl_unexpected("format", text, number, "a number of mantissa bits from 4 to 16");
    int exponent_bits = 0;
    if (family == FLEX) {
        if (*at != '+')
            return fl_unexpected("format", text, at, "'+' and a number of exponent bits");
        number = ++at;
        exponent_bits = fl_read_number(&at);
        if (exponent_bits < LEAST_EXPONENT_BITS || exponent_bits > MOST_EXPONENT_BITS)
            return fl_unexpected("format", text, number, "a number of exponent bits from 1 to 7");
    }
    if (*at)
        return fl_unexpected("format", text, at, "the end");
    *id = bits == MOST_BITS && family == DFP ? FMT_DFP16 : id_of(family, bits, exponent_bits);
    return fl_format_of(*id) ? TENSOR_OK : TENSOR_E_MEMORY;
}

static tensor_status find_float(tensor_format *id, const char *text) {
    struct fl_element e;
    const char *end;
    if (!strcmp(text, "e8m23")) {
        *id = FMT_FP32;
        return TENSOR_OK;
    }
    TRY(fl_element_find(&e, text, text, &end));
    if (*end)
        return fl_unexpected("format", text, end, "the end, or the suffix fn, sat or fnsat");
    if (e.largest > FLT_MAX)
        return fl_fail(
            TENSOR_E_UNSUPPORTED,
            "format %s: numbers up to %g, expected a format whose numbers binary32 has, in which it computes",
            fl_quote(text).text, e.largest);
    const tensor_format found = id_of_element(&e);
    if (!fl_format_of(found))
        return TENSOR_E_MEMORY;
    *id = found;
    return TENSOR_OK;
}

/* tensor:ELEMENT, where tensor:intN is dfpN. */
static tensor_status find_scaled(tensor_format *id, const char *text, const char *at) {
    struct fl_element e;
    const char *end;
    TRY(fl_element_find(&e, text, at, &end));
    if (*end)
        return fl_unexpected("format", text, end,
                             e.kind == FL_ELEMENT_INTEGER ? "the end" : "the end, or the suffix fn");
    if (e.kind == FL_ELEMENT_INTEGER)
        return find_mantissas(id, text, DFP, at + strlen("int"));
    if (e.exponent_bits > MOST_SCALED_EXPONENT_BITS)
        return fl_unexpected("format", text, at + 1,
                             "at most 7 exponent bits under a scale, with which numbers remain those of binary32");
    *id = id_of_scaled(&e);
    return fl_made_format(*id) ? TENSOR_OK : TENSOR_E_MEMORY;
}

tensor_status fl_made_format_find(tensor_format *id, const char *text) {
    static const struct {
        const char *prefix;
        enum family family;
    } families[] = {{"flex", FLEX}, {"dfp", DFP}};
    static const char scaled[] = "tensor:";
    *id = FMT_NONE;
    if (text && text[0] == 'e' && text[1] >= '0' && text[1] <= '9')
        return find_float(id, text);
    if (text && !strncmp(text, scaled, strlen(scaled)))
        return find_scaled(id, text, text + strlen(scaled));
    for (size_t i = 0; text && i < sizeof families / sizeof families[0]; i++)
        if (!strncmp(text, families[i].prefix, strlen(families[i].prefix)))
            return find_mantissas(id, text, families[i].family, text + strlen(families[i].prefix));
    return TENSOR_OK;
}
