/* The rules of a write against an independent model: random histories under every predictor, writes of every kind, and
 * sequences of one to four tensors whose maxima depend on the exponents. The model follows docs/semantics.md, "A write
 * of a shared-exponent tensor". */
#include "check.h"
#include "core/queue/sequence_rules.h"
#include "same_state.h"
#include <math.h>

enum { LIVES = 6000, WRITES = 24, MOST_STEPS = 8 };

static uint64_t seed = 27;

static int up_to(int n) { /* 0 ... n - 1 */
    return (int)(check_random(&seed) % (uint64_t)n);
}

/* --- a run of a kernel -------------------------------------------------------------------------------------------- */

struct steps {
    int count;
    struct {
        bool stores;
        int e;
    } step[MOST_STEPS];
};

static void note(struct steps *s, bool stores, int e) {
    if (s->count < MOST_STEPS) {
        s->step[s->count].stores = stores;
        s->step[s->count].e = e;
    }
    s->count++;
}

static int gamma_of(double maximum, int e) {
    const double m = nearbyint(ldexp(maximum, e));
    return m < AUTOFLEX_TOP ? (int)m : AUTOFLEX_TOP;
}

static bool is_known(double maximum) {
    return maximum > 0 && isfinite(maximum);
}

/* The largest exponent in range at which the maximum does not saturate; the smallest if there is none. */
static int exponent_that_fits(const struct autoflex *a, double maximum) {
    int e = a->e_max;
    while (e > a->e_min && nearbyint(ldexp(maximum, e)) > AUTOFLEX_TOP)
        e--;
    return e;
}

/* --- the model ---------------------------------------------------------------------------------------------------- */

static void expect_current(struct autoflex *a, bool once, double maximum, struct steps *s) {
    const int before = a->e, fitting = is_known(maximum) ? exponent_that_fits(a, maximum) : before;
    note(s, !once, before);
    autoflex_fit(a, maximum);
    if (once || fitting != before)
        note(s, true, fitting);
}

static void expect_repeat(struct autoflex *a, bool once, double maximum, struct steps *s) {
    const int tried = autoflex_adjust(a);
    const bool fits = !is_known(maximum) || nearbyint(ldexp(maximum, tried)) <= AUTOFLEX_TOP;
    note(s, !once, tried);
    if (!fits)
        autoflex_fit(a, maximum);
    if (once || a->e != tried)
        note(s, true, a->e);
}

static void expect_write(struct autoflex *a, bool once, double maximum, struct steps *s) {
    if (a->predictor == AUTOFLEX_CURRENT) {
        expect_current(a, once, maximum, s);
    } else if (!a->initialised) {
        note(s, false, a->e);
        note(s, true, autoflex_initialise(a, maximum));
    } else if (a->predictor == AUTOFLEX_REPEAT) {
        expect_repeat(a, once, maximum, s);
    } else {
        note(s, true, autoflex_adjust(a));
    }
    autoflex_record(a, gamma_of(maximum, a->e), maximum);
}

static void expect_load(struct autoflex *a, double maximum, struct steps *s) {
    note(s, false, a->e);
    if (a->predictor == AUTOFLEX_CURRENT)
        autoflex_fit(a, maximum);
    else
        autoflex_load(a, maximum);
    note(s, true, a->e);
}

/* --- one write ---------------------------------------------------------------------------------------------------- */

static int seen[AUTOFLEX_ADDED + 1][FL_WRITE_LOAD + 1], twice, measured_first, saturated;

static double run(struct autoflex *a, int kind, double maximum, struct steps *s) {
    struct fl_write_state w;
    int stored = 0;
    fl_write_begin(&w, a, true, kind);
    while (w.next != FL_WRITE_DONE && s->count < MOST_STEPS) {
        stored += w.next == FL_WRITE_STORE;
        measured_first += s->count == 0 && w.next == FL_WRITE_MEASURE;
        note(s, w.next == FL_WRITE_STORE, a->e);
        fl_write_attempted(&w, a, maximum);
    }
    fl_write_end(&w, a, gamma_of(maximum, a->e), maximum);
    twice += stored == 2;
    CHECK(s->count <= 2 && stored >= 1, "%d attempts, %d of which stored", s->count, stored);
    CHECK(kind != FL_WRITE_ONCE || stored == 1, "what may be stored once was stored %d times", stored);
    return ldexp(maximum, a->e);
}

static void compare(const char *what, const struct autoflex *got, const struct autoflex *want, const struct steps *ran,
                    const struct steps *expected) {
    bool same = ran->count == expected->count;
    for (int i = 0; same && i < ran->count && i < MOST_STEPS; i++)
        same = ran->step[i].stores == expected->step[i].stores && ran->step[i].e == expected->step[i].e;
    CHECK(same, "%s, predictor %d: %d attempts, the last at %d; expected %d, the last at %d", what, got->predictor,
          ran->count, ran->step[(ran->count - 1) % MOST_STEPS].e, expected->count,
          expected->step[(expected->count - 1) % MOST_STEPS].e);
    CHECK(same_autoflex(got, want), "%s, predictor %d: e %d, count %d, next %d, predicted %g; expected %d, %d, %d, %g",
          what, got->predictor, got->e, got->count, got->next, got->predicted, want->e, want->count, want->next,
          want->predicted);
}

static void check_promises(const struct autoflex *a, bool knew, int kind, double maximum) {
    if (!is_known(maximum) || kind == FL_WRITE_LOAD)
        return;
    if (a->predictor == AUTOFLEX_CURRENT)
        CHECK(a->e == exponent_that_fits(a, maximum), "current wrote %g at %d", maximum, a->e);
    if (a->predictor == AUTOFLEX_REPEAT && knew)
        CHECK(a->e == a->e_min || nearbyint(ldexp(maximum, a->e)) <= AUTOFLEX_TOP, "repeat wrote %g at %d", maximum,
              a->e);
}

static double random_maximum(int level) {
    const int which = up_to(24);
    return which == 0   ? 0
           : which == 1 ? HUGE_VAL
           : which == 2 ? ldexp(AUTOFLEX_TOP + 0.5 * up_to(3), level)
                        : ldexp(1 + up_to(1 << 20), level + up_to(7) - 20);
}

static void begin_life(struct autoflex *a, autoflex_predictor predictor) {
    const bool flex = up_to(2);
    CHECK(!autoflex_reset(a, predictor, flex ? 0 : -128, flex ? 31 : 127), "predictor %d", predictor);
    a->role = (int16_t)up_to(AUTOFLEX_ROLE_LAST + 1);
}

static void life(autoflex_predictor predictor) {
    struct autoflex a, want;
    begin_life(&a, predictor);
    const int level = up_to(40) - 25;
    want = a;
    for (int write = 0; write < WRITES; write++) {
        static const char *const names[] = {"free", "once", "parts", "load"};
        const int kind = up_to(12) == 0 ? FL_WRITE_LOAD : up_to(2) ? FL_WRITE_FREE : FL_WRITE_ONCE;
        double maximum = random_maximum(level);
        if (kind == FL_WRITE_LOAD && !isfinite(maximum))
            maximum = 1; /* others are refused */
        struct steps ran = {0}, expected = {0};
        const bool knew = a.initialised;
        if (kind == FL_WRITE_LOAD)
            expect_load(&want, maximum, &expected);
        else
            expect_write(&want, kind == FL_WRITE_ONCE, maximum, &expected);
        saturated += run(&a, kind, maximum, &ran) > AUTOFLEX_TOP;
        seen[predictor][kind]++;
        compare(names[kind], &a, &want, &ran, &expected);
        check_promises(&a, knew, kind, maximum);
    }
}

/* Formats without a shared exponent: one attempt, and nothing is measured or recorded. */
static void no_exponent(void) {
    for (int kind = FL_WRITE_FREE; kind <= FL_WRITE_LOAD; kind++) {
        struct fl_write_state w;
        fl_write_begin(&w, NULL, false, kind);
        CHECK(w.next == FL_WRITE_STORE, "kind %d begins with %d", kind, w.next);
        fl_write_attempted(&w, NULL, 1);
        CHECK(w.next == FL_WRITE_DONE, "kind %d goes on with %d", kind, w.next);
        fl_write_end(&w, NULL, 1, 1);
    }
}

/* --- sequences ---------------------------------------------------------------------------------------------------- */

static int settled_after[FL_SEQUENCE_ATTEMPTS + 1], kept_room, left_room;

/* The maximum of tensor k of a sequence at those exponents: in many of the sequences each has another maximum. */
static double maximum_at(uint64_t key, int k, int level, const int *e, int tensors) {
    uint64_t state = key * 4 + (uint64_t)k;
    const int which = (int)(check_random(&state) % 4);
    for (int j = 0; which > 1 && j < tensors; j++)
        state ^= (uint64_t)(e[j] + 200) * 0x9E3779B97F4A7C15u << j;
    if (check_random(&state) % 24 == 0)
        return 0;
    const int spread = which == 3 ? 6 : 1;
    return ldexp(1 + (double)(check_random(&state) % 1000) / 1000,
                 level + (int)(check_random(&state) % (uint64_t)spread));
}

/* Checks tensor k after an attempt. True if its exponent remains. */
static bool expect_attempt(struct autoflex *a, const struct autoflex *before, bool searches, int attempt, int tried,
                           double maximum) {
    if (!searches) {
        if (a->predictor != AUTOFLEX_REPEAT || !is_known(maximum) || nearbyint(ldexp(maximum, tried)) <= AUTOFLEX_TOP)
            return true;
        autoflex_fit(a, maximum);
        return a->e == tried;
    }
    if (!(maximum > 0))
        return true;
    *a = *before;
    const int asked = a->predictor == AUTOFLEX_CURRENT ? autoflex_fit(a, maximum) : autoflex_initialise(a, maximum);
    kept_room += attempt >= 2 && asked > tried;
    left_room += attempt >= 2 && asked < tried;
    a->e = attempt < 2 || asked == tried ? asked : asked > tried ? tried : asked > a->e_min ? asked - 1 : asked;
    return a->e == tried;
}

struct several {
    int tensors, level;
    uint64_t key;
    bool shared[FL_SEQUENCE_TENSORS];
};

static int expect_sequence(const struct several *q, struct autoflex *a) {
    struct autoflex before[FL_SEQUENCE_TENSORS];
    bool searches[FL_SEQUENCE_TENSORS];
    int e[FL_SEQUENCE_TENSORS], attempt;
    double maximum[FL_SEQUENCE_TENSORS];
    memcpy(before, a, sizeof before);
    for (int k = 0; k < q->tensors; k++) {
        searches[k] = a[k].predictor == AUTOFLEX_CURRENT || !a[k].initialised;
        if (q->shared[k] && !searches[k])
            autoflex_adjust(&a[k]);
    }
    bool settled = false;
    for (attempt = 0; attempt < FL_SEQUENCE_ATTEMPTS && !settled; attempt++) {
        settled = true;
        for (int k = 0; k < q->tensors; k++)
            e[k] = a[k].e;
        for (int k = 0; k < q->tensors; k++) {
            maximum[k] = maximum_at(q->key, k, q->level, e, q->tensors);
            if (q->shared[k] && !expect_attempt(&a[k], &before[k], searches[k], attempt, e[k], maximum[k]))
                settled = false;
        }
    }
    for (int k = 0; k < q->tensors; k++)
        if (q->shared[k]) {
            a[k].e = e[k];
            autoflex_record(&a[k], gamma_of(maximum[k], e[k]), maximum[k]);
        }
    settled_after[attempt] += settled;
    settled_after[0] += !settled;
    return attempt;
}

/* Two increments for each tensor, and all attempts are submitted, as on a device. */
static int run_sequence(const struct several *q, struct fl_slot *slots) {
    struct fl_sequence_state s;
    int attempts = 0;
    memset(&s, 0x5a, sizeof s);
    for (int attempt = 0; attempt < FL_SEQUENCE_ATTEMPTS; attempt++) {
        int e[FL_SEQUENCE_TENSORS];
        for (int k = 0; k < q->tensors; k++) {
            fl_sequence_open(&s, k, attempt, &slots[k], 100 + k, q->shared[k]);
            e[k] = slots[k].autoflex.e;
            CHECK(s.settled || slots[k].e == e[k], "parts are read at %d, written at %d", slots[k].e, e[k]);
        }
        attempts += !s.settled;
        for (int k = 0; k < q->tensors && !s.settled; k++)
            for (int part = 0; part < 2; part++) {
                const double maximum = maximum_at(q->key, k, q->level, e, q->tensors) / (part ? 1 : 2);
                const struct fl_stats stats = {.maximum = maximum, .gamma = gamma_of(maximum, e[k]), .flushed = 1};
                fl_stats_merge(&s.tensor[k].stats, &stats);
            }
        fl_sequence_close(&s);
    }
    CHECK(s.settled, "a sequence has not settled");
    return attempts;
}

static void sequence_life(const autoflex_predictor *predictors, int count) {
    struct several q = {.tensors = 1 + up_to(FL_SEQUENCE_TENSORS), .level = up_to(30) - 15};
    struct fl_slot slots[FL_SEQUENCE_TENSORS] = {0};
    struct autoflex want[FL_SEQUENCE_TENSORS];
    for (int k = 0; k < FL_SEQUENCE_TENSORS; k++) {
        begin_life(&slots[k].autoflex, predictors[up_to(count)]);
        q.shared[k] = up_to(8);
        want[k] = slots[k].autoflex;
    }
    for (int write = 1; write <= 6; write++) {
        q.key = check_random(&seed) >> 8;
        const int expected = expect_sequence(&q, want), ran = run_sequence(&q, slots);
        CHECK(ran == expected, "%d tensors: %d attempts, expected %d", q.tensors, ran, expected);
        for (int k = 0; k < q.tensors; k++) {
            const struct fl_slot *s = &slots[k];
            CHECK(same_autoflex(&s->autoflex, &want[k]), "tensor %d of %d, predictor %d: e %d, expected %d", k,
                  q.tensors, want[k].predictor, s->autoflex.e, want[k].e);
            CHECK(s->e == s->autoflex.e && s->last.elements == 100 + k && s->last.flushed == 2 &&
                      s->writes == (uint64_t)write,
                  "tensor %d of %d: %lld elements, %lld flushed, %llu writes", k, q.tensors,
                  (long long)s->last.elements, (long long)s->last.flushed, (unsigned long long)s->writes);
        }
    }
}

/* --- all ---------------------------------------------------------------------------------------------------------- */

static double twice_the_newest(const struct autoflex *a, void *context) {
    (void)context;
    return 2 * a->history[(a->next + AUTOFLEX_WINDOW - 1) % AUTOFLEX_WINDOW];
}

int main(void) {
    autoflex_predictor predictors[16];
    int count = 0;
    CHECK(autoflex_add("twice-the-newest", twice_the_newest, NULL), "none was added");
    for (; count < 16 && autoflex_at(count); count++)
        predictors[count] = autoflex_at(count);
    for (int i = 0; i < LIVES; i++) {
        life(predictors[i % count]);
        sequence_life(predictors, count);
    }
    no_exponent();
    for (int i = 0; i < count; i++)
        CHECK(seen[predictors[i]][FL_WRITE_FREE] && seen[predictors[i]][FL_WRITE_ONCE] &&
                  seen[predictors[i]][FL_WRITE_LOAD],
              "predictor %d was not asked for every kind of write", predictors[i]);
    CHECK(
        count == 10 && twice && measured_first && saturated && kept_room && left_room,
        "%d predictors; %d writes stored twice, %d measured first, %d saturated; of sequences %d kept room, %d left it",
        count, twice, measured_first, saturated, kept_room, left_room);
    for (int i = 0; i <= FL_SEQUENCE_ATTEMPTS; i++)
        CHECK(settled_after[i], "no sequence settled after %d attempts (0: never)", i);
    return check_summary();
}
