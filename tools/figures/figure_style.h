/* figure_style.h - elements that the printed figures share: lines, the key, places of panels. Pixels are those of the
 * SVG, from the top left. */
#ifndef FLEXLAB_FIGURE_STYLE_H
#define FLEXLAB_FIGURE_STYLE_H

#include "figures/drawing.h"
#include <stdio.h>

enum { FIGURE_WIDTH = 1100 };

/* Line style of the n-th series drawn: each has wider gaps than the one below it, so that curves that coincide all stay
 * visible. To be freed. */
char *figure_line(const struct experiment *x, int n);
/* Its marker, a gnuplot point type; 0: none, because the line distinguishes it. */
int figure_marker(int n);

/* A script that is printed into memory. figure_script_end closes it and returns the text, to be freed. */
struct figure_script {
    FILE *out;
    char *text;
    size_t size;
};
void figure_script_begin(struct figure_script *script);
char *figure_script_end(struct figure_script *script);
void figure_common_style(FILE *out);

/* The next panel's place: left and right as shares of the width, top and bottom in pixels. */
void figure_place(FILE *out, int height, double left, double right, int top, int bottom);
/* Marks of an axis from 0 to `range`, so few that numbers of that size do not touch in `width` pixels. */
void figure_step_marks(FILE *out, int64_t range, int width);

/* The key is laid out by hand above the panels, in as many lines as it needs: gnuplot's own would be as wide as one
 * panel. The width of a text is estimated by its number of characters. */
struct key {
    FILE *out; /* NULL: only counts lines */
    int height, x, y, entries;
    bool enhanced; /* texts of our own, with ^ for exponents */
};
struct key key_begin(FILE *out, int height, bool enhanced);
/* `line` is what follows `set arrow`, `point` what follows `point`; NULL without. */
void key_entry(struct key *k, const char *line, const char *point, const char *text);
/* After the first panel, which draws it. */
void key_done(struct key *k);
/* Pixels that the key takes. */
int key_height(const struct key *k);

#endif
