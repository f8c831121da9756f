/* test_delayed.c - the predictor "delayed": its texts and numbers; its window against a list of all maxima; and
 * exponents for elements that are floats against comparisons of integers. */
#include "autoflex/write_rules.h"
#include "check.h"
#include <math.h>
#include <string.h>

static uint64_t state = 20261124;

static int below(int n) {
    return (int)(check_random(&state) % (uint64_t)n);
}

/* --- texts -------------------------------------------------------------------------------------------------------- */

static void check_texts(void) {
    static const struct {
        const char *text, *name;
        autoflex_predictor number;
    } known[] = {
        {"delayed", "delayed", AUTOFLEX_DELAYED},
        {"delayed:history=1024", "delayed", AUTOFLEX_DELAYED},
        {"delayed:algo=max:margin=0", "delayed", AUTOFLEX_DELAYED},
        {"delayed:history=16", "delayed:history=16", 0x1000010},
        {"delayed:margin=32:history=16384", "delayed:history=16384:margin=32", 0x1204000},
        {"delayed:algo=most_recent", "delayed:algo=most_recent", 0x1800400},
        {"delayed:algo=most_recent:margin=1:history=1", "delayed:history=1:margin=1:algo=most_recent", 0x1810001}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        autoflex_predictor found = AUTOFLEX_NONE;
        struct autoflex a;
        CHECK(!autoflex_parse(&found, known[i].text) && found == known[i].number, "%s is 0x%x: %s", known[i].text,
              (unsigned)found, tensor_error());
        CHECK(autoflex_find(known[i].text) == found && !strcmp(autoflex_name(found), known[i].name), "%s is called %s",
              known[i].text, autoflex_name(found));
        CHECK(autoflex_summary(found) == autoflex_summary(AUTOFLEX_DELAYED), "%s", known[i].text);
        CHECK(!autoflex_reset(&a, found, -8, 8) && a.predictor == AUTOFLEX_DELAYED &&
                  autoflex_predictor_of(&a) == found,
              "%s as a state is 0x%x", known[i].text, (unsigned)autoflex_predictor_of(&a));
    }
    static const struct {
        const char *text, *part;
    } wrong[] = {{"delayed:", "character 9 is the end, expected history=N, margin=N or algo="},
                 {"delayed:16", "character 9 is '16'"},
                 {"delayed:history=17", "character 17 is '17', expected a number of writes"},
                 {"delayed:history=0", "character 17 is '0'"},
                 {"delayed:history=16400", "character 17 is '16400'"},
                 {"delayed:history=", "character 17 is the end"},
                 {"delayed:history=16,margin=1", "character 17 is '16,margin=1'"},
                 {"delayed:margin=33", "character 16 is '33', expected a power of two from 0 to 32"},
                 {"delayed:margin=-1", "character 16 is '-1'"},
                 {"delayed:algo=min", "character 14 is 'min', expected max or most_recent"},
                 {"delayed:margin=1:margin=1", "character 18 is 'margin=1', expected"},
                 {"delayed:margin=1:", "character 18 is the end"},
                 {"delays", "unknown predictor 'delays', expected one of paper, ngraph"}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        autoflex_predictor found;
        CHECK(autoflex_parse(&found, wrong[i].text) == TENSOR_E_ARGUMENT && found == AUTOFLEX_NONE &&
                  strstr(tensor_error(), wrong[i].part),
              "%s: %s", wrong[i].text, tensor_error());
        CHECK(autoflex_find(wrong[i].text) == AUTOFLEX_NONE, "%s", wrong[i].text);
    }
    static const int no_numbers[] = {0x1000000, 0x1000400, 0x1000011, 0x1210010, 0x2000010, 0x1004001};
    for (size_t i = 0; i < sizeof no_numbers / sizeof no_numbers[0]; i++)
        CHECK(!autoflex_name(no_numbers[i]) && !autoflex_summary(no_numbers[i]), "0x%x", (unsigned)no_numbers[i]);
    CHECK(!autoflex_summary(AUTOFLEX_NONE) && !autoflex_name(AUTOFLEX_NONE), "none");
}

/* --- exponents ---------------------------------------------------------------------------------------------------- */

/* Whether x 2^e <= top, both positive: as integers of 53 bits at their places. */
static bool fits(double x, int e, double top) {
    int ex, et;
    const int64_t mx = (int64_t)ldexp(frexp(x, &ex), 53), mt = (int64_t)ldexp(frexp(top, &et), 53);
    return ex + e != et ? ex + e < et : mx <= mt;
}

/* The largest e at which x fits, found by trying. */
static int exponent_of(double x, double top, int low, int high) {
    int e = high;
    while (e > low && !fits(x, e, top))
        e--;
    return e;
}

static double draw_maximum(double top) {
    const double size = ldexp(1 + ldexp((double)(check_random(&state) >> 12), -52), below(120) - 60);
    switch (below(4)) {
    case 0: /* at the border */
        return ldexp(top, below(100) - 50);
    case 1:
        return nextafter(ldexp(top, below(100) - 50), below(2) ? 0 : INFINITY);
    default:
        return below(50) ? size : size * ldexp(1, below(2) ? 900 : -900);
    }
}

static struct autoflex state_of(const char *predictor, double top, int low, int high) {
    struct autoflex a = {0};
    autoflex_predictor p = AUTOFLEX_NONE;
    CHECK(!autoflex_parse(&p, predictor) && !autoflex_reset(&a, p, low, high) && !autoflex_set_largest(&a, top), "%s",
          tensor_error());
    return a;
}

static const double tops[] = {448, 57344, 7.5, 6, 28, 15.5, 65504, 1, 0x1.fp63};
enum { TOPS = sizeof tops / sizeof tops[0] };

/* Loads, measured writes and first writes take the largest exponent at which their maximum fits. */
static void check_floats(void) {
    for (int i = 0; i < 200000; i++) {
        const double top = tops[below(TOPS)], maximum = draw_maximum(top);
        const int low = -113, high = 120, want = exponent_of(maximum, top, low, high);
        const bool is_low = !fits(maximum, low, top), is_high = fits(maximum, high + 1, top);
        struct autoflex a = state_of(below(2) ? "delayed" : "paper", top, low, high), b = a, c = a;
        autoflex_load(&a, maximum);
        CHECK(a.e == want && a.clamped_low == is_low && a.clamped_high == is_high && a.overflows == (uint64_t)is_low,
              "load of %a under %a: %d, expected %d", maximum, top, a.e, want);
        CHECK(autoflex_initialise(&b, maximum) == want && b.initialised, "first write of %a under %a: %d", maximum, top,
              b.e);
        CHECK(autoflex_fit(&c, maximum) == want, "fit of %a under %a: %d", maximum, top, c.e);
    }
}

/* What each rule makes of one earlier write. */
static void check_rules(void) {
    static const char *const names[] = {"paper",       "ngraph",  "per-class",        "amax",
                                        "amax-recent", "delayed", "delayed:margin=3", "repeat"};
    for (int i = 0; i < 20000; i++) {
        const double top = tops[below(TOPS)], x = ldexp(1 + ldexp(below(1 << 20), -20), below(40) - 20);
        struct autoflex a = state_of(names[i % 8], top, -113, 120);
        a.role = AUTOFLEX_ROLE_ACTIVATION;
        autoflex_load(&a, x);
        const double margin = ldexp(100 * top, -15 - a.e);
        const double room[] = {2 * (x + margin), x + margin, 1.25 * x, x, x, x, 8 * x, 1.125 * x};
        const int want = exponent_of(room[i % 8], top, -113, 120);
        CHECK(autoflex_adjust(&a) == want && a.predicted == room[i % 8], "%s after %a under %a: %d, expected %d",
              names[i % 8], x, top, a.e, want);
        /* a result that does not fit: "repeat" takes its exponent, the others record that they saturated */
        const double large = ldexp(top, 3 - a.e);
        struct autoflex b = a;
        CHECK(autoflex_repeat(&b, large) == (i % 8 == 7) && (i % 8 != 7 || b.e == a.e - 3), "%s repeats", names[i % 8]);
        b = a;
        autoflex_record(&b, 0, large);
        const bool exact = i % 8 >= 3 && i % 8 <= 6;
        CHECK(b.overflows == 1 && (exact || (b.count == 1 && b.history[0] == ldexp(2 * top, -a.e))), "%s: %a",
              names[i % 8], b.history[0]);
    }
}

/* --- windows ------------------------------------------------------------------------------------------------------ */

/* The maximum that must fit before write n, from all maxima before it. Blocks of length / 16 writes are complete but
 * for the newest one. */
static double window(const double *all, int n, int length, bool recent, int margin) {
    const int block = length > 16 && !recent ? length / 16 : 1, blocks = recent ? 1 : length < 16 ? length : 16;
    const int newest = n % block ? n % block : block, seen = newest + (blocks - 1) * block;
    double largest = 0;
    CHECK(recent || (seen <= length && seen > length - block), "%d of %d", seen, length);
    for (int i = 0; i < seen && i < n; i++)
        largest = fmax(largest, all[n - 1 - i]);
    return ldexp(largest, margin);
}

static void check_window(int length, bool recent, int margin, double top) {
    enum { WRITES = 3000 };
    static double all[WRITES];
    char name[80];
    snprintf(name, sizeof name, "delayed:history=%d:margin=%d:algo=%s", length, margin, recent ? "most_recent" : "max");
    struct autoflex a = state_of(name, top ? top : 1, -113, 120);
    a.largest = top;
    double level = 1;
    for (int n = 0; n < WRITES; n++) {
        level *= exp2((below(2001) - 1000) / 2000.0);
        level = fmin(fmax(level, 0x1p-30), 0x1p30);
        all[n] = below(40) ? level : level * 64;
        if (n) {
            const double want = window(all, n, length, recent, margin);
            const int e = exponent_of(want, top ? top : 32767, -113, 120);
            CHECK(autoflex_adjust(&a) == e && a.predicted == want, "%s, write %d: %d for %a, expected %d for %a", name,
                  n, a.e, a.predicted, e, want);
        }
        autoflex_record(&a, (int)fmin(32767, nearbyint(ldexp(all[n], a.e))), all[n]);
    }
}

int main(void) {
    static const int lengths[] = {1, 2, 7, 15, 16, 32, 48, 1024, 2048};
    check_texts();
    check_floats();
    check_rules();
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
        for (int k = 0; k < 4; k++)
            check_window(lengths[i], k % 2, k == 2 ? 5 : 0, k < 3 ? 448 : 0);
    struct autoflex a;
    CHECK(autoflex_set_largest(NULL, 1) && autoflex_set_largest(&a, 0) && autoflex_set_largest(&a, NAN) &&
              autoflex_set_largest(&a, INFINITY) && strstr(tensor_error(), "expected a finite number above 0"),
          "%s", tensor_error());
    return check_summary();
}
