/* delayed.c - the parameters of the predictor "delayed": their text, their number, their place in a state. */
#include "autoflex/delayed.h"
#include "core/base/fail.h"
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { LIMIT = 256 /* names of a process */ };
enum { RECENT_SHIFT = 23, MARGIN_SHIFT = 16, MARGIN_MASK = 0x7f, LENGTH_MASK = 0xffff };

static const char name_alone[] = "delayed";

struct parameters {
    int length, margin;
    bool most_recent;
};

static bool is_length(int n) { /* one that 16 entries hold */
    return n >= 1 && n <= AUTOFLEX_LONGEST_HISTORY && (n <= AUTOFLEX_WINDOW || n % AUTOFLEX_WINDOW == 0);
}

static autoflex_predictor number_of(const struct parameters *p) {
    return p->length == AUTOFLEX_HISTORY && !p->margin && !p->most_recent
               ? AUTOFLEX_DELAYED
               : AUTOFLEX_DELAYED_WITH | (int)p->most_recent << RECENT_SHIFT | p->margin << MARGIN_SHIFT | p->length;
}

static struct parameters parameters_of(autoflex_predictor predictor) {
    return predictor == AUTOFLEX_DELAYED
               ? (struct parameters){AUTOFLEX_HISTORY, 0, false}
               : (struct parameters){predictor & LENGTH_MASK, predictor >> MARGIN_SHIFT & MARGIN_MASK,
                                     predictor >> RECENT_SHIFT & 1};
}

static bool is_possible(autoflex_predictor predictor) {
    const struct parameters p = parameters_of(predictor);
    return predictor >= AUTOFLEX_DELAYED_WITH && is_length(p.length) && p.margin <= AUTOFLEX_LARGEST_MARGIN &&
           number_of(&p) == predictor;
}

/* --- text --------------------------------------------------------------------------------------------------------- */

bool fl_delayed_begins(const char *name) {
    const size_t length = sizeof name_alone - 1;
    return !strncmp(name, name_alone, length) && (!name[length] || name[length] == ':');
}

static bool skip(const char **at, const char *word) {
    const bool found = !strncmp(*at, word, strlen(word));
    *at += found ? strlen(word) : 0;
    return found;
}

/* A number of at most five digits; -1: there is none. */
static int read_number(const char **at) {
    int number = 0, digits = 0;
    for (; digits < 5 && **at >= '0' && **at <= '9'; digits++)
        number = 10 * number + (*(*at)++ - '0');
    return digits ? number : -1;
}

static bool ends(const char *at) {
    return !*at || *at == ':';
}

/* Reads the parameter behind a colon, of those that were not given. */
static tensor_status read_parameter(struct parameters *p, const char *name, const char **at, unsigned *given) {
    enum { HISTORY = 1, MARGIN = 2, ALGO = 4 };
    static const char what[] = "predictor";
    const char *const begin = *at;
    unsigned kind = 0;
    if (skip(at, "history="))
        kind = HISTORY;
    else if (skip(at, "margin="))
        kind = MARGIN;
    else if (skip(at, "algo="))
        kind = ALGO;
    if (!kind || *given & kind)
        return fl_unexpected(what, name, begin, "history=N, margin=N or algo=max or most_recent, each at most once");
    *given |= kind;
    const char *const value = *at;
    if (kind == ALGO) {
        p->most_recent = skip(at, "most_recent");
        return (p->most_recent || skip(at, "max")) && ends(*at)
                   ? TENSOR_OK
                   : fl_unexpected(what, name, value, "max or most_recent");
    }
    const int number = read_number(at);
    if (kind == HISTORY && (!is_length(number) || !ends(*at)))
        return fl_unexpected(what, name, value, "a number of writes, 1 to 16 or a multiple of 16 up to 16384");
    if (kind == MARGIN && (number < 0 || number > AUTOFLEX_LARGEST_MARGIN || !ends(*at)))
        return fl_unexpected(what, name, value, "a power of two from 0 to 32");
    *(kind == HISTORY ? &p->length : &p->margin) = number;
    return TENSOR_OK;
}

tensor_status fl_delayed_find(autoflex_predictor *predictor, const char *name) {
    struct parameters p = parameters_of(AUTOFLEX_DELAYED);
    unsigned given = 0;
    const char *at = name + sizeof name_alone - 1;
    *predictor = AUTOFLEX_NONE;
    while (*at) {
        at++;
        TRY(read_parameter(&p, name, &at, &given));
    }
    if (!fl_delayed_name(number_of(&p)))
        return fl_fail(TENSOR_E_MEMORY, "predictor '%.100s': the process has named %d others already", name, LIMIT);
    *predictor = number_of(&p);
    return TENSOR_OK;
}

/* --- names -------------------------------------------------------------------------------------------------------- */

/* Those that were asked for, complete before they are counted; they live as long as the process. */
static struct named {
    autoflex_predictor predictor;
    char name[64];
} named[LIMIT];
static int named_count;
static pthread_mutex_t naming = PTHREAD_MUTEX_INITIALIZER;

static const struct named *find(autoflex_predictor predictor) {
    const int count = __atomic_load_n(&named_count, __ATOMIC_ACQUIRE);
    for (int i = 0; i < count; i++)
        if (named[i].predictor == predictor)
            return &named[i];
    return NULL;
}

static const struct named *make(autoflex_predictor predictor) {
    const struct parameters p = parameters_of(predictor);
    if (named_count == LIMIT)
        return NULL;
    struct named *const n = &named[named_count];
    n->predictor = predictor;
    int used = snprintf(n->name, sizeof n->name, "%s", name_alone);
    if (p.length != AUTOFLEX_HISTORY)
        used += snprintf(n->name + used, sizeof n->name - (size_t)used, ":history=%d", p.length);
    if (p.margin)
        used += snprintf(n->name + used, sizeof n->name - (size_t)used, ":margin=%d", p.margin);
    if (p.most_recent)
        snprintf(n->name + used, sizeof n->name - (size_t)used, ":algo=most_recent");
    __atomic_store_n(&named_count, named_count + 1, __ATOMIC_RELEASE);
    return n;
}

const char *fl_delayed_name(autoflex_predictor predictor) {
    if (predictor == AUTOFLEX_DELAYED)
        return name_alone;
    if (!is_possible(predictor))
        return NULL;
    const struct named *n = find(predictor);
    if (n)
        return n->name;
    pthread_mutex_lock(&naming);
    n = find(predictor); /* another thread may have made it */
    n = n ? n : make(predictor);
    pthread_mutex_unlock(&naming);
    return n ? n->name : NULL;
}

/* --- states ------------------------------------------------------------------------------------------------------- */

void fl_autoflex_set_predictor(struct autoflex *a, autoflex_predictor predictor) {
    const bool delayed = predictor == AUTOFLEX_DELAYED || is_possible(predictor);
    const struct parameters p = delayed ? parameters_of(predictor) : (struct parameters){0};
    a->predictor = (int16_t)(delayed ? AUTOFLEX_DELAYED : predictor);
    a->length = (int16_t)p.length;
    a->margin = (int16_t)p.margin;
    a->most_recent = p.most_recent;
}

autoflex_predictor autoflex_predictor_of(const struct autoflex *a) {
    const struct parameters p = {a->length, a->margin, a->most_recent == 1};
    return a->predictor == AUTOFLEX_DELAYED ? number_of(&p) : a->predictor;
}
