/* report_verdict.c - what came out of a comparison, in a few sentences. Each is true of the numbers at hand or is left
 * out: a format that diverged has no place in a comparison of results, one seed tells nothing of chance. */
#include "report/report_verdict.h"
#include "base/number.h"
#include "base/text.h"
#include "report/report_paired.h"
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>

enum { MOST_NAMED = 6 }; /* formats that a sentence lists one by one */

/* The best measure that all finished runs have: the verdict compares it. */
struct compared {
    enum report_measure measure;
    const char *name, *unit, *points; /* of a value, and of a difference */
    int digits;
};

static void __attribute__((format(printf, 2, 3))) add(char **text, const char *format, ...) {
    char *more;
    va_list arguments;
    va_start(arguments, format);
    const int length = vasprintf(&more, format, arguments);
    va_end(arguments);
    if (length < 0)
        exit(text_failed("out of memory"));
    char *longer = text_format("%s%s", *text, more);
    free(more);
    free(*text);
    *text = longer;
}

/* The word before the n-th of `count` things: nothing, a comma, "and". */
static const char *between(int n, int count) {
    return !n ? "" : n + 1 < count ? ", " : " and ";
}

static struct spread value_of(const struct experiment *x, int series, const struct compared *by) {
    struct summary s = summary_of(x, series);
    struct spread v = by->measure == REPORT_ACCURACY    ? s.accuracy
                      : by->measure == REPORT_TEST_LOSS ? s.test_loss
                                                        : s.last_loss;
    if (by->measure == REPORT_ACCURACY) {
        v.mean *= 100;
        v.deviation *= 100;
    }
    return v;
}

static struct compared choose(const struct experiment *x) {
    static const struct compared accuracy = {REPORT_ACCURACY, "a test accuracy", " %", " points", 2},
                                 test = {REPORT_TEST_LOSS, "a test loss", "", "", 4},
                                 last = {REPORT_LAST_LOSS, "a training loss", "", "", 4};
    for (int i = 0; i < x->run_count; i++)
        if (x->runs[i].finished && !x->runs[i].result.predicted_count)
            return last;
    return x->data.context ? test : accuracy;
}

/* Whether a format has finished, none of its runs diverged, and there is a result to tell of. */
static bool is_sound(const struct experiment *x, int series, const struct compared *by) {
    struct summary s = summary_of(x, series);
    const struct spread v = value_of(x, series, by);
    return s.runs && !s.diverged && v.count && isfinite(v.mean);
}

static void add_value(char **text, struct spread v, const struct compared *by) {
    char *mean = number_text(v.mean, by->digits);
    add(text, "%s", mean);
    free(mean);
    if (v.count > 1) {
        char *deviation = number_text(v.deviation, by->digits);
        add(text, " ± %s", deviation);
        free(deviation);
    }
    add(text, "%s", by->unit);
}

/* "−0.30 points", "±0" */
static void add_difference(char **text, double difference, const struct compared *by) {
    char *size = number_text(fabs(difference), by->digits);
    if (difference == 0)
        add(text, "±0");
    else
        add(text, "%s%s%s", difference < 0 ? "−" : "+", size, by->points);
    free(size);
}

/* --- divergence --------------------------------------------------------------------------------------------------- */

static void tell_divergence(char **text, const struct experiment *x) {
    int diverged = 0, runs = 0, formats = 0, n = 0;
    for (int i = 0; i < x->series_count; i++) {
        struct summary s = summary_of(x, i);
        diverged += s.diverged;
        formats += s.diverged > 0;
        runs += s.runs ? s.runs : s.stopped_step > 0;
    }
    if (runs == 2 && !diverged)
        add(text, "Neither run diverged. ");
    else if (runs > 1 && !diverged)
        add(text, "None of the %d runs diverged. ", runs);
    else if (runs == 2 && diverged == runs)
        add(text, "Both runs diverged. ");
    else if (runs > 1 && diverged == runs)
        add(text, "All %d runs diverged. ", runs);
    else if (diverged) {
        for (int i = 0; i < x->series_count; i++) {
            struct summary s = summary_of(x, i);
            if (!s.diverged)
                continue;
            add(text, "%s%s", between(n, formats), x->series[i].label);
            n++;
            if (s.runs > 1)
                add(text, " (%d of %d runs)", s.diverged, s.runs);
        }
        add(text, " diverged. ");
    }
}

/* --- results ------------------------------------------------------------------------------------------------------ */

static void add_seeds(char **text, const struct spread *v) {
    if (v->count > 1)
        add(text, " (mean ± standard deviation over %d seeds)", v->count);
}

/* The formats that are not compared with fp32: by themselves, or from the least to the largest. */
static void tell_range(char **text, const struct experiment *x, const struct compared *by) {
    int least = -1, most = -1, count = 0;
    for (int i = 0; i < x->series_count; i++) {
        if (!is_sound(x, i, by))
            continue;
        const double mean = value_of(x, i, by).mean;
        least = least < 0 || mean < value_of(x, least, by).mean ? i : least;
        most = most < 0 || mean > value_of(x, most, by).mean ? i : most;
        count++;
    }
    if (!count)
        return;
    const struct spread low = value_of(x, least, by), high = value_of(x, most, by);
    if (count == 1) {
        add(text, "%s reached %s of ", x->series[least].label, by->name);
        add_value(text, low, by);
        add_seeds(text, &low);
        add(text, ". ");
        return;
    }
    add(text, "%d formats reached %s from ", count, by->name);
    add_value(text, low, by);
    add(text, " (%s) to ", x->series[least].label);
    add_value(text, high, by);
    add(text, " (%s)%s. ", x->series[most].label, low.count > 1 ? ", mean ± standard deviation over the seeds" : "");
    if (x->seed_count == 1)
        add(text, "With one seed, such differences may be chance. ");
}

/* How a format compares with fp32. */
enum standing { UNPAIRED, ONE_PAIR, ALWAYS_ALIKE, NOT_SIGNIFICANT, SIGNIFICANT };

static enum standing standing_of(const struct report_pair *pair) {
    return !pair->count         ? UNPAIRED
           : pair->count == 1   ? ONE_PAIR
           : !isfinite(pair->p) ? ALWAYS_ALIKE
           : pair->p < 0.05     ? SIGNIFICANT
                                : NOT_SIGNIFICANT;
}

/* The formats of that standing into `list`; how many. */
static int of_standing(const struct experiment *x, const struct compared *by, enum standing standing, int *list) {
    int count = 0;
    for (int i = 0; i < x->series_count; i++) {
        if (i == x->baseline || !is_sound(x, i, by))
            continue;
        const struct report_pair pair = report_pair_of(x, i, by->measure);
        if (standing_of(&pair) == standing)
            list[count++] = i;
    }
    return count;
}

static double difference_of(const struct experiment *x, int series, const struct compared *by) {
    return report_pair_of(x, series, by->measure).mean;
}

/* "fp16 −0.30 points and dfp16 ±0", or the range where there are many; with p where there is one. */
static void add_differences(char **text, const struct experiment *x, const struct compared *by, const int *list,
                            int count) {
    if (count > MOST_NAMED) {
        int least = list[0], most = list[0];
        for (int i = 1; i < count; i++) {
            least = difference_of(x, list[i], by) < difference_of(x, least, by) ? list[i] : least;
            most = difference_of(x, list[i], by) > difference_of(x, most, by) ? list[i] : most;
        }
        add(text, "%d formats from ", count);
        add_difference(text, difference_of(x, least, by), by);
        add(text, " (%s) to ", x->series[least].label);
        add_difference(text, difference_of(x, most, by), by);
        add(text, " (%s)", x->series[most].label);
        return;
    }
    for (int n = 0; n < count; n++) {
        const struct report_pair pair = report_pair_of(x, list[n], by->measure);
        add(text, "%s%s ", between(n, count), x->series[list[n]].label);
        add_difference(text, pair.mean, by);
        if (isfinite(pair.p)) {
            char *p = report_probability(pair.p);
            add(text, pair.p < 0.0001 ? " (p %s)" : " (p = %s)", p);
            free(p);
        }
    }
}

static void tell_significance(char **text, const struct experiment *x, const struct compared *by, int *list) {
    const int significant = of_standing(x, by, SIGNIFICANT, list);
    if (significant) {
        add(text, "Against it, significant at the 5 %% level by a paired test over the seeds: ");
        add_differences(text, x, by, list, significant);
        add(text, ". ");
    }
    const int others = of_standing(x, by, NOT_SIGNIFICANT, list);
    if (!others)
        return;
    int farthest = list[0];
    for (int i = 1; i < others; i++)
        if (fabs(difference_of(x, list[i], by)) > fabs(difference_of(x, farthest, by)))
            farthest = list[i];
    if (others == 1)
        add(text, "%s does not differ significantly from it (", x->series[farthest].label);
    else
        add(text, "The %s%d%s formats do not differ significantly from it (at most ", significant ? "other " : "",
            others, significant ? "" : " other");
    add_difference(text, difference_of(x, farthest, by), by);
    if (others > 1)
        add(text, ", %s", x->series[farthest].label);
    add(text, "%s). ", significant ? "" : "; 5 % level, paired test over the seeds");
}

/* Formats whose difference is the same with each seed, which no test can judge. */
static void tell_alike(char **text, const struct experiment *x, const struct compared *by, int *list) {
    const int count = of_standing(x, by, ALWAYS_ALIKE, list);
    bool zero = true;
    for (int n = 0; n < count; n++)
        zero = zero && difference_of(x, list[n], by) == 0;
    if (!count)
        return;
    if (!zero || count > MOST_NAMED) {
        add(text, "Against it, the same with each seed: ");
        add_differences(text, x, by, list, count);
        add(text, ". ");
        return;
    }
    for (int n = 0; n < count; n++)
        add(text, "%s%s", between(n, count), x->series[list[n]].label);
    add(text, " reached the same with each seed. ");
}

/* Formats beside fp32, which has a result. */
static void tell_differences(char **text, const struct experiment *x, const struct compared *by) {
    int *list = text_alloc((size_t)x->series_count, sizeof *list), count;
    const struct spread base = value_of(x, x->baseline, by);
    add(text, "%s reached %s of ", x->series[x->baseline].label, by->name);
    add_value(text, base, by);
    add_seeds(text, &base);
    add(text, ". ");
    count = of_standing(x, by, ONE_PAIR, list);
    if (count) {
        add(text, "Against it: ");
        add_differences(text, x, by, list, count);
        add(text, ". With one seed%s, such differences may be chance. ", x->seed_count > 1 ? " in common" : "");
    }
    tell_significance(text, x, by, list);
    tell_alike(text, x, by, list);
    count = of_standing(x, by, UNPAIRED, list);
    for (int n = 0; n < count; n++)
        add(text, "%s%s", between(n, count), x->series[list[n]].label);
    if (count)
        add(text, " %s no seed in common with it. ", count == 1 ? "has" : "have");
    free(list);
}

static void tell_results(char **text, const struct experiment *x) {
    const struct compared by = choose(x);
    int sound = 0;
    for (int i = 0; i < x->series_count; i++)
        sound += is_sound(x, i, &by);
    const bool has_base = x->baseline >= 0 && is_sound(x, x->baseline, &by);
    if (has_base && sound > 1) {
        tell_differences(text, x, &by);
        return;
    }
    tell_range(text, x, &by);
    if (sound && x->baseline >= 0 && !has_base)
        add(text, "There is no result of %s to compare with. ", x->series[x->baseline].label);
}

/* --- arithmetic --------------------------------------------------------------------------------------------------- */

static int64_t saturated_of(const struct summary *s) {
    return s->saturated;
}
static int64_t flushed_of(const struct summary *s) {
    return s->flushed;
}

static double part_of(const struct summary *s, int64_t (*of)(const struct summary *s)) {
    return s->elements ? (double)of(s) / (double)s->elements : 0;
}

/* "none saturated", "0.0123 % saturated", "at most 6 of 17,050,000 saturated (flex16+5)" */
static void add_share(char **text, const struct experiment *x, int64_t (*of)(const struct summary *s),
                      const char *what) {
    int most = 0, formats = 0;
    for (int i = 0; i < x->series_count; i++) {
        struct summary s = summary_of(x, i), so_far = summary_of(x, most);
        most = part_of(&s, of) > part_of(&so_far, of) ? i : most;
        formats += s.elements > 0;
    }
    struct summary s = summary_of(x, most);
    if (!of(&s)) {
        add(text, "none %s", what);
        return;
    }
    add(text, "%s", formats > 1 ? "at most " : "");
    if (part_of(&s, of) >= 1e-5) {
        add(text, "%.3g %% %s", 100 * part_of(&s, of), what);
    } else {
        char *part = text_count(of(&s)), *whole = text_count(s.elements);
        add(text, "%s of %s %s", part, whole, what);
        free(part);
        free(whole);
    }
    if (formats > 1)
        add(text, " (%s)", x->series[most].label);
}

static void tell_arithmetic(char **text, const struct experiment *x) {
    int64_t elements = 0;
    int skipping = 0, n = 0;
    for (int i = 0; i < x->series_count; i++) {
        struct summary s = summary_of(x, i);
        elements += s.elements;
        skipping += s.skipped > 0;
    }
    if (!elements)
        return;
    add(text, "Of the elements written, ");
    add_share(text, x, saturated_of, "saturated");
    add(text, " and ");
    add_share(text, x, flushed_of, "became zero");
    for (int i = 0; i < x->series_count; i++) {
        struct summary s = summary_of(x, i);
        if (!s.skipped)
            continue;
        char *steps = text_count(s.skipped);
        add(text, "%s%s skipped %s step%s", n ? between(n, skipping) : "; ", x->series[i].label, steps,
            s.skipped == 1 ? "" : "s");
        free(steps);
        n++;
    }
    add(text, ".");
}

char *report_verdict(const struct experiment *x) {
    char *text = text_format("%s", "");
    tell_divergence(&text, x);
    if (experiment_finished(x))
        tell_results(&text, x);
    else
        add(&text, "No run was finished, so there is no result yet. ");
    tell_arithmetic(&text, x);
    return text;
}
