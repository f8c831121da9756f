/* The section "Measured errors" of docs/precision.md: ranges and epsilons of the formats, round trips, and the errors
 * of every real function against MPFR, over all 65,536 inputs of each 16-bit format. The test computes all of it and
 * fails if the page differs. test_precision [--write]     writes the section */
#include "check.h"
#ifndef FL_HAVE_MPFR
int main(void) {
    return check_skip("no MPFR was found when this was configured (libmpfr-dev)");
}
#else
#include "functions_witness.h"

enum { WORDS = 65536, BITS = 100, E_IN = 12, CHANGES = 1 << 16 };
static char *page;
static size_t page_bytes;
static FILE *out;

static double values_of[WORDS], results[WORDS];

static const struct fl_format *format_of(tensor_format f) {
    return fl_format_of(f);
}

static tensor *all_words(tensor_format f) {
    tensor *t = tensor_new(f, TENSOR_SHAPE(WORDS));
    uint16_t *data = tensor_data(t);
    for (int i = 0; i < WORDS; i++)
        data[i] = (uint16_t)i;
    if (tensor_format_is_shared(f)) {
        data[32768] = 0; /* -32768, which is never written */
        CHECK(!tensor_declare_exponent(t, E_IN), "%s", tensor_error());
    }
    CHECK(!tensor_store_f64(t, values_of, WORDS), "%s", tensor_error());
    return t;
}

/* Three digits; powers of two as powers. */
static const char *number(double x) {
    static char text[8][32];
    static int next;
    char *t = text[next++ % 8];
    int e;
    if (x > 0 && frexp(x, &e) == 0.5 && (e > 12 || e < -2))
        snprintf(t, sizeof text[0], "2^%d", e - 1);
    else
        snprintf(t, sizeof text[0], "%.3g", x);
    return t;
}

/* --- ranges ------------------------------------------------------------------------------------------------------- */

static void ranges(void) {
    fprintf(out, "### Ranges\n"
                 "| format | epsilon | unit roundoff | largest | smallest normal | smallest |\n"
                 "| --- | --- | --- | --- | --- | --- |\n");
    for (int k = 0; tensor_format_at(k); k++) {
        const tensor_format f = tensor_format_at(k);
        if (tensor_format_is_shared(f))
            continue;
        double epsilon = HUGE_VAL, largest = 0, least = HUGE_VAL, normal = HUGE_VAL;
        if (f == FMT_FP32) {
            epsilon = (double)(nextafterf(1, 2) - 1);
            largest = (double)nextafterf(INFINITY, 0);
            least = (double)nextafterf(0, 1);
            normal = least / epsilon;
        } else {
            tensor_free(all_words(f));
            for (int i = 0; i < WORDS; i++) {
                const double x = values_of[i];
                epsilon = x > 1 && x - 1 < epsilon ? x - 1 : epsilon;
                largest = isfinite(x) && x > largest ? x : largest;
                least = x > 0 && x < least ? x : least;
            }
            normal = least / epsilon; /* from here on elements have all their digits */
        }
        fprintf(out, "| `%s` | %s | %s | %.9g | %s | %s |\n", tensor_format_name(f), number(epsilon),
                number(epsilon / 2), largest, number(normal), number(least));
    }
    fprintf(out, "\n| format | e | last place at e | largest at e |\n| --- | --- | --- | --- |\n");
    for (int k = 0; tensor_format_at(k); k++) {
        const struct fl_format *f = format_of(tensor_format_at(k));
        if (f->arithmetic == FL_ARITHMETIC_SHARED)
            for (int at = 0; at < 2; at++)
                fprintf(out, "| `%s` | %d | %s | %.9g |\n", f->name, at ? f->e_max : f->e_min,
                        number(ldexp(1, at ? -f->e_max : -f->e_min)), ldexp(f->top, at ? -f->e_max : -f->e_min));
    }
}

/* --- round trips -------------------------------------------------------------------------------------------------- */

struct errors {
    double most, most_relative, sum, sum_relative;
    int64_t n, relative;
};

static void note(struct errors *e, double error, double size, double normal) {
    e->n++;
    e->sum += error;
    e->most = error > e->most ? error : e->most;
    if (size >= normal) {
        e->relative++;
        e->sum_relative += error / size;
        e->most_relative = error / size > e->most_relative ? error / size : e->most_relative;
    }
}

static void print_errors(const struct errors *e) {
    fprintf(out, "%s | %s | %s | %s", number(e->most), number(e->sum / (double)e->n), number(e->most_relative),
            number(e->sum_relative / (double)(e->relative ? e->relative : 1)));
}

static double normal_of(const struct fl_format *f) {
    const struct grid g = grid_of(f->id);
    return f->arithmetic == FL_ARITHMETIC_SHARED ? 0 : ldexp(1, g.least + g.digits - 1);
}

/* Converts binary32 numbers at a fixed interval, if they are finite in the format, there and back. */
static void round_trips(void) {
    enum { STRIDE = 1021, N = (int)((((int64_t)1 << 32) + STRIDE - 1) / STRIDE) };
    static float x[N], y[N];
    fprintf(out,
            "\n### From binary32 and back\nEvery %d-th binary32 that stays finite; for shared exponents, %d evenly "
            "spaced numbers below 0.98765.\n"
            "Relative errors cover the numbers that are normal in the format.\n\n"
            "| format | numbers | max abs | mean abs | max rel | mean rel | became 0 |\n"
            "| --- | --- | --- | --- | --- | --- | --- |\n",
            STRIDE, CHANGES);
    for (int k = 0; tensor_format_at(k); k++) {
        const struct fl_format *f = format_of(tensor_format_at(k));
        const bool shared = f->arithmetic == FL_ARITHMETIC_SHARED;
        int n = 0;
        if (f->id == FMT_FP32)
            continue;
        if (shared)
            for (; n < CHANGES; n++)
                x[n] = ((float)n - CHANGES / 2 + 0.5f) / (CHANGES / 2) * 0.98765f;
        else
            for (int64_t word = 0; word < (int64_t)1 << 32; word += STRIDE) {
                const uint32_t bits = (uint32_t)word;
                memcpy(&x[n], &bits, sizeof bits);
                n += isfinite(x[n]);
            }
        tensor *t = tensor_new(f->id, TENSOR_SHAPE(n));
        CHECK(!tensor_load_f32(t, x, n) && !tensor_store_f32(t, y, n), "%s", tensor_error());
        struct errors e = {0};
        int64_t zeros = 0;
        for (int i = 0; i < n; i++) {
            const double size = fabs((double)x[i]);
            if (!isfinite(y[i]))
                continue;
            zeros += y[i] == 0 && x[i] != 0;
            note(&e, fabs((double)x[i] - (double)y[i]), size, shared ? 1 : normal_of(f));
        }
        fprintf(out, "| `%s` | %lld | ", f->name, (long long)e.n);
        if (shared)
            fprintf(out, "%s | %s | |", number(e.most), number(e.sum / (double)e.n));
        else
            print_errors(&e);
        fprintf(out, " | %lld |\n", (long long)zeros);
        tensor_free(t);
    }
}

/* --- functions ---------------------------------------------------------------------------------------------------- */

/* The results for fp16, for the comparison. */
static struct {
    const char *name;
    struct errors e;
} halves[sizeof witnesses / sizeof witnesses[0]];
static int half_count;

static void function(const struct witness *w, tensor_format id) {
    const struct fl_format *f = format_of(id);
    const bool shared = f->arithmetic == FL_ARITHMETIC_SHARED;
    const float alpha = w->scalars == 2 ? -1
                        : w->scalars    ? (strstr(w->name, "elu") == w->name ? 1 : 0.01f)
                                        : 0,
                beta = w->scalars == 2 ? 1 : 0;
    tensor *x = all_words(id), *y = tensor_new(id, TENSOR_SHAPE(WORDS));
    if (shared)
        CHECK(!tensor_set_predictor(y, "current"), "%s", tensor_error());
    CHECK(!witness_call(w, y, x, NULL, alpha, beta) && !tensor_store_f64(y, results, WORDS), "%s", tensor_error());
    const double largest = shared ? ldexp(f->top, -tensor_exponent(y)) : HUGE_VAL;
    struct errors e = {0};
    mpfr_t r;
    mpfr_init2(r, BITS);
    for (int i = 0; i < WORDS; i++) {
        if (!isfinite(values_of[i]) || !isfinite(results[i]) || fabs(results[i]) > largest)
            continue;
        witness_value(r, w, values_of[i], 0, (double)alpha, (double)beta);
        mpfr_clear_flags();
        if (!mpfr_number_p(r))
            continue;
        const double size = fabs(mpfr_get_d(r, MPFR_RNDN));
        mpfr_sub_d(r, r, results[i], MPFR_RNDN);
        if (shared && fabs(results[i]) == largest && fabs(mpfr_get_d(r, MPFR_RNDN)) > ldexp(1, -tensor_exponent(y)))
            continue; /* saturated */
        note(&e, fabs(mpfr_get_d(r, MPFR_RNDN)), size, shared ? ldexp(1, -tensor_exponent(y)) * 1024 : normal_of(f));
    }
    if (id == FMT_FP16) {
        halves[half_count].name = w->name;
        halves[half_count++].e = e;
    }
    fprintf(out, "| `%s` | ", w->name);
    if (shared)
        fprintf(out, "%d | ", tensor_exponent(y));
    fprintf(out, "%lld | ", (long long)e.n);
    print_errors(&e);
    fprintf(out, " |\n");
    /* half a unit in the last place, wherever that is */
    const double bound = shared ? ldexp(0.5, -tensor_exponent(y)) : HUGE_VAL;
    const double relative = shared ? 0x1p-11 : ldexp(1, -grid_of(id).digits);
    CHECK(e.most <= bound, "%s.%s: an error of %a", f->name, w->name, e.most);
    CHECK(e.most_relative <= relative, "%s.%s: a relative error of %a", f->name, w->name, e.most_relative);
    mpfr_clear(r);
    tensor_free(x);
    tensor_free(y);
}

static void functions(tensor_format id, const char *which) {
    const bool shared = tensor_format_is_shared(id);
    fprintf(
        out,
        "\n#### %s\n%s\n\n| function | %sresults | max abs | mean abs | max rel | mean rel |\n| --- | %s--- | --- | "
        "--- | --- | --- |\n",
        tensor_format_name(id), which, shared ? "e of the result | " : "", shared ? "--- | " : "");
    for (size_t i = 0; i < sizeof witnesses / sizeof witnesses[0]; i++)
        if (witnesses[i].operands == 1)
            function(&witnesses[i], id);
}

/* --- comparison with published figures ---------------------------------------------------------------------------- */

static void least_and_most(double least, double most) {
    fprintf(out, " %s to %s |", number(least), number(most));
}

/* The groups and figures of the guide; `square` and `relu` are not functions of this page. */
static void comparison(void) {
    static const struct {
        const char *names, *figures;
    } groups[] = {
#define GUIDE_GROUP(names, figures) {names, figures},
#include "../../../tools/facts/guide_figures.inc"
#undef GUIDE_GROUP
    };
    fprintf(
        out,
        "\n#### fp16 compared with another library\nPaddlePaddle's guide to low-precision operators "
        "(docs/dev_guides/amp_precision/amp_op_dev_guide.md, section\n"
        "3.3) gives the smallest and the largest error of groups of functions that are computed in binary32 and "
        "rounded\n"
        "to fp16. It does not say over which inputs; the figures of this library are those of the table above. The\n"
        "guide's exponential group includes `square`.\n\n"
        "| functions | | max abs | mean abs | max rel | mean rel |\n| --- | --- | --- | --- | --- | --- |\n");
    for (size_t g = 0; g < sizeof groups / sizeof groups[0]; g++) {
        double least[4] = {HUGE_VAL, HUGE_VAL, HUGE_VAL, HUGE_VAL}, most[4] = {0};
        int members = 0;
        char list[160], name[40];
        snprintf(list, sizeof list, " %s ", groups[g].names);
        for (int i = 0; i < half_count; i++) {
            const struct errors *e = &halves[i].e;
            const double four[4] = {e->most, e->sum / (double)e->n, e->most_relative,
                                    e->sum_relative / (double)e->relative};
            snprintf(name, sizeof name, " %s ", halves[i].name);
            if (!strstr(list, name))
                continue;
            members++;
            for (int k = 0; k < 4; k++) {
                least[k] = four[k] < least[k] ? four[k] : least[k];
                most[k] = four[k] > most[k] ? four[k] : most[k];
            }
        }
        CHECK(members >= 2, "group %s has %d functions", groups[g].names, members);
        fprintf(out, "| %s | guide | %s |\n| | flexlab |", groups[g].names, groups[g].figures);
        for (int k = 0; k < 4; k++)
            least_and_most(least[k], most[k]);
        fprintf(out, "\n");
    }
    fprintf(out, "\nIts round trip of normal numbers (section 3.4) has a largest error of 16, relatively 0.00048, "
                 "which agrees with\n"
                 "the line of fp16 above except for the inputs that the stride skips.\n");
}

/* ------------------------------------------------------------------------------------------------------------------ */

static void make_page(void) {
    out = open_memstream(&page, &page_bytes);
    fprintf(
        out,
        "## Measured errors\n`test_precision --write` writes the rest of this page, and the test compares it with the "
        "code.\n"
        "Errors are distances from MPFR's result; a function is rounded once (docs/semantics.md), so its error is at\n"
        "most half a unit in the last place.\n\n");
    ranges();
    round_trips();
    fprintf(
        out,
        "\n### Real functions\nAll 65,536 inputs except those whose result is not finite or saturated. *rel* covers "
        "results that are normal\n"
        "in the format; with shared exponents, results of at least 1024 units in the last place. `elu` has alpha 1,\n"
        "`leaky_relu` 0.01, `hardtanh` the bounds -1 and 1.\n");
    functions(FMT_FP16, "Unit roundoff 2^-11.");
    functions(FMT_BF16, "Unit roundoff 2^-8.");
    functions(
        FMT_FLEX16_5,
        "Inputs have e = 12 (-8 to 8), and the exponent of the result fits its exact maximum. dfp16 has the same\n"
        "numbers if its exponents are the same.");
    comparison();
    fclose(out);
}

int main(int argc, char **argv) {
    static char stored[1 << 17];
    const bool writes = argc > 1 && !strcmp(argv[1], "--write");
    make_page();
    FILE *f = fopen(PRECISION_PAGE, "rb");
    if (!f)
        return fprintf(stderr, "test_precision: %s cannot be opened\n", PRECISION_PAGE), 1;
    stored[fread(stored, 1, sizeof stored - 1, f)] = 0;
    fclose(f);
    char *const measured = strstr(stored, "## Measured errors\n");
    CHECK(measured != NULL, "%s has no section \"Measured errors\"", PRECISION_PAGE);
    if (measured && writes) {
        f = fopen(PRECISION_PAGE, "wb");
        const size_t before = (size_t)(measured - stored);
        CHECK(f && fwrite(stored, 1, before, f) == before && fwrite(page, 1, page_bytes, f) == page_bytes,
              "%s cannot be written", PRECISION_PAGE);
        CHECK(f && !fclose(f), "%s cannot be written", PRECISION_PAGE);
    } else if (measured) {
        size_t same = 0;
        while (measured[same] && same < page_bytes && measured[same] == page[same])
            same++;
        CHECK(!measured[same] && same == page_bytes,
              "%s is stale (from byte %zu on: '%.60s'): build and run test_precision --write", PRECISION_PAGE, same,
              page + same);
    }
    free(page);
    mpfr_free_cache();
    return check_summary();
}
#endif
