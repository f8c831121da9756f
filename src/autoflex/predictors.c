/* predictors.c - the exponent predictors by name and number: those of the library, whose rules are in autoflex_rules.h,
 * and those that a program adds. */
#include "autoflex/autoflex_rules.h"
#include "autoflex/delayed.h"
#include "core/base/fail.h"
#include <pthread.h>

enum { BUILT_IN = 9, ADDED_LIMIT = 64, NAME_LIMIT = 31 };

static const struct {
    const char *name, *summary;
} built_in[BUILT_IN] = {
    {"paper", "twice the maximum of the history + 3 sigma + 100 steps (Koster et al. 2017)"},
    {"ngraph", "the maximum of the history + 3 sigma + 100 steps (as in the authors' graph compiler)"},
    {"current", "the exact maximum of the result itself (DFP-16: Das et al. 2018)"},
    {"fixed", "does not change"},
    {"per-class", "the maximum of the history times 1.0625 to 2, by the tensor's role"},
    {"amax", "the maximum of the last 1,000 writes (delayed scaling)"},
    {"amax-recent", "the maximum of the last write (delayed scaling)"},
    {"repeat", "1.125 times the second largest of the history; a result that does not fit is computed again"},
    {"delayed", "the maximum of the last 1,024 writes, or :history=N :margin=N :algo=max|most_recent "
                "(TransformerEngine)"},
};

/* Entries are complete before their number is published, and are never removed. */
static struct added {
    char name[NAME_LIMIT + 1];
    autoflex_predict_fn predict;
    void *context;
} added[ADDED_LIMIT];
static int added_count;
static pthread_mutex_t adding = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Holds the lock during fork, so that it is free in the child and its data are consistent. */
static void before_fork(void) {
    pthread_mutex_lock(&adding);
}

static void after_fork(void) {
    pthread_mutex_unlock(&adding);
}

static void watch_forks(void) {
    (void)pthread_atfork(before_fork, after_fork, after_fork);
}

static void take_lock(void) {
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&adding);
}

static const struct added *added_row(autoflex_predictor predictor) {
    return predictor >= AUTOFLEX_ADDED && predictor - AUTOFLEX_ADDED < __atomic_load_n(&added_count, __ATOMIC_ACQUIRE)
               ? &added[predictor - AUTOFLEX_ADDED]
               : NULL;
}

double fl_autoflex_foreign(const struct autoflex *a) {
    const struct added *row = added_row(a->predictor);
    return row ? row->predict(a, row->context) : 0;
}

int autoflex_count(void) {
    int count = 0;
    while (autoflex_at(count))
        count++;
    return count;
}

autoflex_predictor autoflex_at(int i) {
    if (i < 0 || i >= BUILT_IN + ADDED_LIMIT)
        return AUTOFLEX_NONE;
    if (i < BUILT_IN)
        return AUTOFLEX_PAPER + i;
    return added_row(AUTOFLEX_ADDED + i - BUILT_IN) ? AUTOFLEX_ADDED + i - BUILT_IN : AUTOFLEX_NONE;
}

autoflex_predictor autoflex_find(const char *name) {
    autoflex_predictor predictor;
    for (int i = 0; name && (predictor = autoflex_at(i)); i++)
        if (!strcmp(name, autoflex_name(predictor)))
            return predictor;
    fl_fail_hold(); /* autoflex_parse reports */
    const bool found = name && fl_delayed_begins(name) && !fl_delayed_find(&predictor, name);
    (void)fl_fail_release(TENSOR_OK);
    return found ? predictor : AUTOFLEX_NONE;
}

static bool is_built_in(autoflex_predictor predictor) {
    return predictor >= AUTOFLEX_PAPER && predictor < AUTOFLEX_PAPER + BUILT_IN;
}

const char *autoflex_name(autoflex_predictor predictor) {
    const struct added *other = added_row(predictor);
    return is_built_in(predictor) ? built_in[predictor - AUTOFLEX_PAPER].name
           : other                ? other->name
                                  : fl_delayed_name(predictor);
}

const char *autoflex_summary(autoflex_predictor predictor) {
    return is_built_in(predictor)       ? built_in[predictor - AUTOFLEX_PAPER].summary
           : added_row(predictor)       ? "added by the program"
           : fl_delayed_name(predictor) ? autoflex_summary(AUTOFLEX_DELAYED)
                                        : NULL;
}

autoflex_role autoflex_find_role(const char *name) {
    static const struct {
        const char *name;
        autoflex_role role;
    } roles[] = {{"weight", AUTOFLEX_ROLE_WEIGHT},     {"activation", AUTOFLEX_ROLE_ACTIVATION},
                 {"gradient", AUTOFLEX_ROLE_GRADIENT}, {"weight gradient", AUTOFLEX_ROLE_WEIGHT_GRADIENT},
                 {"momentum", AUTOFLEX_ROLE_MOMENTUM}, {"root", AUTOFLEX_ROLE_MOMENTUM},
                 {"direction", AUTOFLEX_ROLE_MOMENTUM}};
    for (size_t i = 0; name && i < sizeof roles / sizeof *roles; i++)
        if (!strcmp(name, roles[i].name))
            return roles[i].role;
    return AUTOFLEX_ROLE_NONE;
}

bool autoflex_needs_maximum(autoflex_predictor predictor) {
    return fl_needs_maximum(predictor);
}

/* Call it under the lock. */
static autoflex_predictor add(const char *name, autoflex_predict_fn predict, void *context, const char **why) {
    *why = autoflex_find(name)          ? "the name is already in use"
           : added_count == ADDED_LIMIT ? "64 predictors were added already"
                                        : NULL;
    if (*why)
        return AUTOFLEX_NONE;
    added[added_count] = (struct added){.predict = predict, .context = context};
    strcpy(added[added_count].name, name);
    __atomic_store_n(&added_count, added_count + 1, __ATOMIC_RELEASE);
    return AUTOFLEX_ADDED + added_count - 1;
}

autoflex_predictor fl_autoflex_add(const char *name, autoflex_predict_fn predict, void *context, const char **why) {
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.+";
    *why = !name || !*name || strlen(name) > NAME_LIMIT || name[strspn(name, allowed)]
               ? "expected a name of 1 to 31 letters, digits and characters of '_-.+'"
           : !predict ? "predict is NULL"
                      : NULL;
    if (*why)
        return AUTOFLEX_NONE;
    take_lock();
    const autoflex_predictor predictor = add(name, predict, context, why);
    pthread_mutex_unlock(&adding);
    return predictor;
}
