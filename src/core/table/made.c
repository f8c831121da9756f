/* made.c - formats made at run time from their parameters: mantissas of 4 to 16 bits under a shared exponent.
 *
 * The id of such a format says its parameters, so that it is the same in every process, and a format needs no
 * registration: the first who asks for an id makes its identity, which lives as long as the process. */
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/base/text.h"
#include "core/table/format.h"
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { LEAST_BITS = 4, MOST_BITS = 16, LEAST_EXPONENT_BITS = 1, MOST_EXPONENT_BITS = 7 };
enum { LIMIT = MOST_BITS * (MOST_EXPONENT_BITS + 1) + MOST_BITS }; /* more than there are */

/* An id: FMT_MADE, the family, mantissa bits, exponent bits; a byte each. */
enum family { FLEX = 1, DFP = 2 };

static tensor_format id_of(enum family family, int bits, int exponent_bits) {
    return (tensor_format)(FMT_MADE | (int)family << 16 | bits << 8 | exponent_bits);
}

/* --- making them -------------------------------------------------------------------------------------------------- */

struct made {
    struct fl_format format;
    char name[16], summary[80];
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

/* Whether these are parameters of a format that no folder has. */
static bool is_possible(enum family family, int bits, int exponent_bits) {
    const bool exponent = exponent_bits >= LEAST_EXPONENT_BITS && exponent_bits <= MOST_EXPONENT_BITS;
    const bool full = bits == MOST_BITS && (family == DFP || exponent_bits == 5); /* flex16+5, dfp16 */
    return bits >= LEAST_BITS && bits <= MOST_BITS && !full &&
           (family == FLEX ? exponent : family == DFP && exponent_bits == 0);
}

static struct made *make(tensor_format id, enum family family, int bits, int exponent_bits) {
    const struct fl_format *const base = fl_format_of(family == FLEX ? FMT_FLEX16_5 : FMT_DFP16);
    struct made *const m = fl_alloc_zero(sizeof *m);
    if (!m)
        return NULL;
    m->format = *base;
    m->format.id = id;
    m->format.bits = bits;
    m->format.top = (1 << (bits - 1)) - 1;
    m->format.name = m->name;
    m->format.summary = m->summary;
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
    return m;
}

const struct fl_format *fl_made_format(tensor_format id) {
    const int parameters = (int)id & 0xffffff, bits = parameters >> 8 & 0xff, exponent_bits = parameters & 0xff;
    const enum family family = (enum family)(parameters >> 16);
    const struct fl_format *found = find_made(id);
    if (found || ((int)id & ~0xffffff) != FMT_MADE || !is_possible(family, bits, exponent_bits))
        return found;
    pthread_mutex_lock(&making);
    found = find_made(id); /* another thread may have made it */
    struct made *const m = found ? NULL : make(id, family, bits, exponent_bits);
    if (m) {
        made[made_count] = m;
        __atomic_store_n(&made_count, made_count + 1, __ATOMIC_RELEASE);
        found = &m->format;
    }
    pthread_mutex_unlock(&making);
    return found;
}

/* --- their texts -------------------------------------------------------------------------------------------------- */

static tensor_status find(tensor_format *id, const char *text, enum family family, const char *at) {
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
    *id = id_of(family, bits, exponent_bits);
    return fl_made_format(*id) ? TENSOR_OK : TENSOR_E_MEMORY;
}

tensor_status fl_made_format_find(tensor_format *id, const char *text) {
    static const struct {
        const char *prefix;
        enum family family;
    } families[] = {{"flex", FLEX}, {"dfp", DFP}};
    *id = FMT_NONE;
    for (size_t i = 0; text && i < sizeof families / sizeof families[0]; i++)
        if (!strncmp(text, families[i].prefix, strlen(families[i].prefix)))
            return find(id, text, families[i].family, text + strlen(families[i].prefix));
    return TENSOR_OK;
}
