/* figure_style.c - elements that the printed figures share. */
#include "figures/figure_style.h"
#include "figures/gnuplot.h"
#include "base/text.h"
#include <math.h>
#include <stdlib.h>

static const char *const dashes[] = {"1", "1", "(10,6)", "(7,7)", "(4,7)", "(2,6)"};
enum { DASHES = sizeof dashes / sizeof dashes[0] };

char *figure_line(const struct experiment *x, int n) {
    return text_format("linecolor rgb '%s' linewidth %s dashtype %s", figure_colour(x, figure_drawn_at(x, n)).text,
                       n ? "2" : "3.5", dashes[n < DASHES ? n : 2 + n % (DASHES - 2)]);
}

int figure_marker(int n) {
    static const int types[] = {4, 6, 8, 10, 12, 14, 1, 2, 3};
    return n < DASHES ? 0 : types[(size_t)(n - DASHES) % (sizeof types / sizeof types[0])];
}

void figure_script_begin(struct figure_script *script) {
    *script = (struct figure_script){0};
    script->out = open_memstream(&script->text, &script->size);
    if (!script->out)
        exit(text_failed("out of memory"));
}

char *figure_script_end(struct figure_script *script) {
    bool bad = ferror(script->out);
    bad |= fclose(script->out) != 0;
    if (bad || !script->text)
        exit(text_failed("out of memory"));
    return script->text;
}

void figure_common_style(FILE *out) {
    fputs("set border 3 linecolor rgb '#888888'\n"
          "set tics nomirror textcolor rgb '#333333'\n"
          "set grid linecolor rgb '#e4e4e4' linetype 1 linewidth 0.7\n"
          "set datafile missing 'NaN'\n"
          "unset key\nset multiplot\n",
          out);
}

void figure_place(FILE *out, int height, double left, double right, int top, int bottom) {
    fprintf(out,
            "set lmargin at screen %.4f\nset rmargin at screen %.4f\nset tmargin at screen %.4f\n"
            "set bmargin at screen %.4f\n",
            left, right, 1 - top / (double)height, 1 - bottom / (double)height);
}

enum { KEY_MARGIN = 50, KEY_TOP = 16, KEY_LINE = 22, KEY_SAMPLE = 38, KEY_GAP = 8, KEY_SPACE = 26, CHARACTER = 8 };

/* 1, 2 or 5 times a power of ten. */
void figure_step_marks(FILE *out, int64_t range, int width) {
    int digits = snprintf(NULL, 0, "%lld", (long long)range), most = width / ((digits + 2) * CHARACTER);
    double step = fmax(1, (double)range / (most > 10 ? 10 : most > 1 ? most : 1)), unit = pow(10, floor(log10(step)));
    step = step <= unit ? unit : step <= 2 * unit ? 2 * unit : step <= 5 * unit ? 5 * unit : 10 * unit;
    fprintf(out, "set xtics %.0f\n", step);
}

struct key key_begin(FILE *out, int height, bool enhanced) {
    return (struct key){.out = out, .height = height, .x = KEY_MARGIN, .y = KEY_TOP, .enhanced = enhanced};
}

void key_entry(struct key *k, const char *line, const char *point, const char *text) {
    int width = KEY_SAMPLE + KEY_GAP + CHARACTER * text_width(text) + KEY_SPACE;
    if (k->x > KEY_MARGIN && k->x + width - KEY_SPACE > FIGURE_WIDTH) {
        k->x = KEY_MARGIN;
        k->y += KEY_LINE;
    }
    double left = k->x / (double)FIGURE_WIDTH, right = (k->x + KEY_SAMPLE) / (double)FIGURE_WIDTH,
           y = 1 - k->y / (double)k->height;
    k->x += width;
    k->entries++;
    if (!k->out)
        return;
    if (line)
        fprintf(k->out, "set arrow %d from screen %.4f,%.4f to screen %.4f,%.4f nohead %s front\n", 1000 + k->entries,
                left, y, right, y, line);
    if (point)
        fprintf(k->out, "set label %d '' at screen %.4f,%.4f point %s front\n", 1000 + k->entries, 0.5 * (left + right),
                y, point);
    fprintf(k->out, "set label %d ", 2000 + k->entries);
    gnuplot_string(k->out, text);
    fprintf(k->out, " at screen %.4f,%.4f left %s textcolor rgb '#222222' front\n",
            right + (double)KEY_GAP / FIGURE_WIDTH, y, k->enhanced ? "enhanced" : "noenhanced");
}

void key_done(struct key *k) {
    for (int i = 1; i <= k->entries; i++)
        fprintf(k->out, "unset arrow %d\nunset label %d\nunset label %d\n", 1000 + i, 1000 + i, 2000 + i);
    k->entries = 0;
}

int key_height(const struct key *k) {
    return k->y + KEY_LINE - 8;
}
