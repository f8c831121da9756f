/* real_table.c - tables of real functions for elements of 16 bits; the most recent ones remain in memory, which is
 * allocated once, for the first, so that a training that has begun allocates nothing. */
#include "core/base/memory.h"
#include "core/base/parallel.h"
#include "core/real/real_map.h"
#include <math.h>
#include <pthread.h>
#include <string.h>

enum { TABLES = 24, SLOPES = 16, PART = 1024, DIGIT_BITS = 11, DIGITS = 4, HIDDEN_BITS = 21 };

struct key {
    const struct fl_format *format;
    enum fl_op op;
    float alpha, beta;
    int32_t e_in, e_out;
    bool truncate;
};

struct kept {
    struct key key; /* format NULL: empty */
    int users;
    uint64_t last_use;
};

/* The one block: tables of results, and temporary arrays for making one. */
struct memory {
    struct fl_real_table tables[TABLES];
    uint64_t magnitude[FL_REAL_WORDS];
    uint16_t order[2][FL_REAL_WORDS];
    uint8_t class[FL_REAL_WORDS];
};
static struct memory *memory;
static struct fl_real_slopes *slopes; /* SLOPES of them */

static struct kept kept_tables[TABLES], kept_slopes[SLOPES];
static uint64_t uses;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* A child of a fork gets a lock that nobody holds, consistent data, and tables without users: the threads that used
 * them remain in the parent, and will never release them in the child. */
static void before_fork(void) {
    pthread_mutex_lock(&lock);
}

static void after_fork(void) {
    pthread_mutex_unlock(&lock);
}

static void begin_child(void) {
    for (int i = 0; i < TABLES; i++)
        kept_tables[i].users = 0;
    for (int i = 0; i < SLOPES; i++)
        kept_slopes[i].users = 0;
    pthread_mutex_unlock(&lock);
}

static void watch_forks(void) {
    (void)pthread_atfork(before_fork, after_fork, begin_child);
}

/* --- making one --------------------------------------------------------------------------------------------------- */

enum { IS_NAN, IS_ZERO, IS_FLUSHED, IS_KEPT, IS_SATURATED, IS_INFINITE };

struct making {
    const struct fl_args *args;
    const struct fl_real_lanes *lanes;
    struct fl_real_table *table;
    struct fl_real_slopes *slopes;
};

/* Computes results, magnitudes and classes of a part of the elements: the codec encodes each by itself. */
static void evaluate_part(void *context, int part, int worker) {
    (void)worker;
    const struct making *making = context;
    const struct fl_args *args = making->args;
    const struct fl_format *f = args->format;
    uint16_t words[PART], results[PART];
    double values[PART];
    const int first = part * PART;
    for (int i = 0; i < PART; i++)
        words[i] = (uint16_t)(first + i);
    const struct fl_view in = {.data = words, .e = args->in[0].e, .count = PART},
                         out = {.data = results, .e = args->out.e, .count = PART};
    f->decode(f, &in, 0, PART, values);
    fl_real_near(args, making->lanes, PART, values, values);
    for (int i = 0; i < PART; i++) {
        struct fl_stats stats = {0};
        const double near = values[i], size = fabs(near);
        uint64_t bits;
        f->encode(f, &out, i, 1, &near, false, &args->rounding, &stats);
        memcpy(&bits, &size, sizeof bits);
        memory->magnitude[first + i] = near != near ? 0 : (bits >> HIDDEN_BITS) + 1;
        memory->class[first + i] = near != near      ? IS_NAN
                                   : near == 0       ? IS_ZERO
                                   : isinf(near)     ? IS_INFINITE
                                   : stats.flushed   ? IS_FLUSHED
                                   : stats.saturated ? IS_SATURATED
                                                     : IS_KEPT;
        making->table->entries[first + i] = results[i];
    }
}

/* order[0]: the elements by magnitude. */
static void sort(void) {
    const uint32_t digits = 1u << DIGIT_BITS;
    for (int i = 0; i < FL_REAL_WORDS; i++)
        memory->order[0][i] = (uint16_t)i;
    for (int pass = 0; pass < DIGITS; pass++) {
        uint32_t starts[1 << DIGIT_BITS] = {0}, start = 0;
        const uint16_t *from = memory->order[pass & 1];
        uint16_t *to = memory->order[~pass & 1];
        const int shift = pass * DIGIT_BITS;
        for (int i = 0; i < FL_REAL_WORDS; i++)
            starts[memory->magnitude[i] >> shift & (digits - 1)]++;
        for (uint32_t d = 0; d < digits; d++) {
            const uint32_t n = starts[d];
            starts[d] = start;
            start += n;
        }
        for (int i = 0; i < FL_REAL_WORDS; i++)
            to[starts[memory->magnitude[from[i]] >> shift & (digits - 1)]++] = from[i];
    }
}
_Static_assert(DIGITS % 2 == 0 && DIGITS * DIGIT_BITS >= 64 - HIDDEN_BITS, "all of a magnitude, back in order[0]");

static void rank(struct fl_real_table *table) {
    int32_t *const begins[] = {&table->ranks.zero, &table->ranks.nonzero, &table->ranks.kept, &table->ranks.saturated,
                               &table->ranks.infinite};
    int next = -1, class = IS_NAN;
    uint64_t magnitude = UINT64_MAX;
    sort();
    for (int i = 0; i < FL_REAL_WORDS; i++) {
        const uint16_t word = memory->order[0][i];
        if (memory->magnitude[word] != magnitude) {
            magnitude = memory->magnitude[word];
            table->example[++next] = word;
            for (; class < memory->class[word]; class ++)
                *begins[class] = next;
        }
        table->entries[word] = (int32_t)(((uint32_t)(next - 32768) << 16) | (uint32_t)table->entries[word]);
    }
    for (; class < IS_INFINITE; class ++)
        *begins[class] = FL_REAL_WORDS;
}

static void make(struct fl_real_table *table, const struct fl_args *args, const struct fl_real_lanes *lanes) {
    struct making making = {.args = args, .lanes = lanes, .table = table};
    fl_parallel(FL_REAL_WORDS / PART, evaluate_part, &making);
    rank(table);
}

/* --- reuse of tables ---------------------------------------------------------------------------------------------- */

static bool same(const struct key *a, const struct key *b) {
    return a->format == b->format && a->op == b->op && !memcmp(&a->alpha, &b->alpha, sizeof a->alpha) &&
           !memcmp(&a->beta, &b->beta, sizeof a->beta) && a->e_in == b->e_in && a->e_out == b->e_out &&
           a->truncate == b->truncate;
}

/* The index of that key, else the index at which to make it; -1 if all are in use. */
static int place_of(const struct kept *kept, int places, const struct key *key, bool *found) {
    int place = -1;
    for (int i = 0; i < places; i++) {
        *found = same(&kept[i].key, key);
        if (*found)
            return i;
        if (!kept[i].users && (place < 0 || kept[i].last_use < kept[place].last_use))
            place = i;
    }
    return place;
}

static void take(struct kept *kept, const struct key *key) {
    kept->key = *key;
    kept->users++;
    kept->last_use = ++uses;
}

const struct fl_real_table *fl_real_table_of(const struct fl_args *args, const struct fl_real_lanes *lanes,
                                             bool may_make) {
    const struct key key = {.format = args->format,
                            .op = args->op,
                            .alpha = args->p.map.alpha,
                            .beta = args->p.map.beta,
                            .e_in = fl_exponent(&args->in[0]),
                            .e_out = fl_exponent(&args->out),
                            .truncate = args->rounding.mode == TENSOR_ROUND_TRUNCATE};
    const struct fl_real_table *table = NULL;
    bool found = false;
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&lock);
    const int place = place_of(kept_tables, TABLES, &key, &found);
    if (!memory && may_make)
        memory = fl_alloc(sizeof *memory);
    if (place >= 0 && memory && (found || may_make)) {
        if (!found)
            make(&memory->tables[place], args, lanes);
        take(&kept_tables[place], &key);
        table = &memory->tables[place];
    }
    pthread_mutex_unlock(&lock);
    return table;
}

void fl_real_table_leave(const struct fl_real_table *table) {
    pthread_mutex_lock(&lock);
    kept_tables[table - memory->tables].users--;
    pthread_mutex_unlock(&lock);
}

/* --- slopes: they depend on x alone ------------------------------------------------------------------------------- */

static void slopes_part(void *context, int part, int worker) {
    (void)worker;
    const struct making *making = context;
    const struct fl_args *args = making->args;
    uint16_t words[PART];
    double values[PART];
    const struct fl_view x = {.data = words, .e = args->in[1].e, .count = PART};
    for (int i = 0; i < PART; i++)
        words[i] = (uint16_t)(part * PART + i);
    args->format->decode(args->format, &x, 0, PART, values);
    fl_real_slope_entries(args, making->lanes, PART, values, making->slopes->at + part * PART);
}

const struct fl_real_slopes *fl_real_slopes_of(const struct fl_args *args, const struct fl_real_lanes *lanes,
                                               bool may_make) {
    const struct key key = {.format = args->format, .op = args->op, .e_in = fl_exponent(&args->in[1])};
    const struct fl_real_slopes *made = NULL;
    bool found = false;
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&lock);
    const int place = place_of(kept_slopes, SLOPES, &key, &found);
    if (!slopes && may_make)
        slopes = fl_alloc(SLOPES * sizeof *slopes);
    if (place >= 0 && slopes && (found || may_make)) {
        if (!found) {
            struct making making = {.args = args, .lanes = lanes, .slopes = &slopes[place]};
            fl_parallel(FL_REAL_WORDS / PART, slopes_part, &making);
        }
        take(&kept_slopes[place], &key);
        made = &slopes[place];
    }
    pthread_mutex_unlock(&lock);
    return made;
}

void fl_real_slopes_leave(const struct fl_real_slopes *made) {
    pthread_mutex_lock(&lock);
    kept_slopes[made - slopes].users--;
    pthread_mutex_unlock(&lock);
}
