/* drawing.c - choices that the printed figures and the page share. */
#include "figures/drawing.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

const struct drawing_measure drawing_measures[] = {
    {"loss", "Training loss", true},
    {"difference", "Training loss \u2212 fp32", true},
    {"test", "Test loss", false},
    {"accuracy", "Test accuracy, %", true},
    {"testDifference", "Test loss \u2212 fp32", false},
    {0},
};

const char *drawing_title(const char *key) {
    for (const struct drawing_measure *m = drawing_measures; m->key; m++)
        if (!strcmp(m->key, key))
            return m->title;
    return key;
}

double drawing_loss_cut(const struct experiment *x) {
    return 5 * log(x->data.classes);
}

int64_t drawing_nonfinite_step(const struct run *run) {
    return run->first.step ? run->first.step : run->nonfinite_step;
}

/* Okabe and Ito's palette, distinguishable with every kind of colour vision; the yellow is too pale for lines. */
static const struct {
    const char *label, *colour;
} known[] = {{"fp32", "#000000"},  {"fp16", "#0072b2"},        {"bf16", "#e69f00"},          {"flex16+5", "#d55e00"},
             {"dfp16", "#009e73"}, {"flex16+5-sr", "#cc79a7"}, {"flex16+5-paper", "#56b4e9"}};
enum { KNOWN = sizeof known / sizeof known[0] };

/* Then Tol's muted palette, for the same reason, without its grey: axes are grey. */
static const char *const others[] = {"#882255", "#999933", "#332288", "#44aa99",
                                     "#aa4499", "#661100", "#117733", "#6699cc"};
enum { OTHERS = sizeof others / sizeof others[0] };

static const char *known_colour(const char *label) {
    for (int c = 0; c < KNOWN; c++)
        if (!strcmp(known[c].label, label))
            return known[c].colour;
    return NULL;
}

/* Beyond the palettes: hues by the golden section, which keeps each far from those before it. */
static struct colour mixed_colour(int n) {
    static const double golden = 0.61803398874989485, bright[] = {0.55, 0.8};
    double hue = 6 * fmod(n * golden, 1), value = bright[n % 2], part = 1 - fabs(fmod(hue, 2) - 1);
    double most = value, least = 0.25 * value, middle = least + (most - least) * part;
    double r = hue < 1 || hue >= 5 ? most : hue < 2 || hue >= 4 ? middle : least;
    double g = hue < 1 || (hue >= 3 && hue < 4) ? middle : hue < 3 ? most : least;
    double b = hue < 2 ? least : hue < 3 || hue >= 5 ? middle : most;
    struct colour colour;
    snprintf(colour.text, sizeof colour.text, "#%02x%02x%02x", (unsigned)(255 * r) & 255u, (unsigned)(255 * g) & 255u,
             (unsigned)(255 * b) & 255u);
    return colour;
}

/* The known one, else the n-th of the others. */
static struct colour colour_of(const char *found, int n) {
    if (!found && n >= OTHERS)
        return mixed_colour(n - OTHERS);
    struct colour colour;
    snprintf(colour.text, sizeof colour.text, "%s", found ? found : others[n]);
    return colour;
}

struct colour figure_colour(const struct experiment *x, int series) {
    int n = 0;
    for (int i = 0; i < series; i++)
        n += !known_colour(x->series[i].label);
    return colour_of(known_colour(x->series[series].label), n);
}

static bool is_series(const struct experiment *x, const char *label) {
    for (int i = 0; i < x->series_count; i++)
        if (!strcmp(x->series[i].label, label))
            return true;
    return false;
}

/* Known colours may belong to a series or another shadow; the others continue after those of the series. */
struct colour figure_shadow_colour(const struct experiment *x, char *const *shadows, int shadow) {
    int n = 0;
    for (int i = 0; i < x->series_count; i++)
        n += !known_colour(x->series[i].label);
    for (int i = 0;; i++) {
        const char *own = is_series(x, shadows[i]) ? NULL : known_colour(shadows[i]);
        if (i == shadow)
            return colour_of(own, n);
        n += !own;
    }
}

int figure_drawn_at(const struct experiment *x, int n) {
    if (x->baseline < 0 || n > x->baseline)
        return n;
    return n ? n - 1 : x->baseline;
}
