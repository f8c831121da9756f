/* gnuplot.h - running gnuplot on a script. */
#ifndef FLEXLAB_GNUPLOT_H
#define FLEXLAB_GNUPLOT_H

/* Draws `script` as DIRECTORY/NAME.svg and .png, width x height in SVG units; the SVG's text goes to *svg (to be freed,
 * may be NULL). STATUS_OK, STATUS_FAILED with a message, or GNUPLOT_MISSING without one. */
enum { GNUPLOT_MISSING = -1 };
int gnuplot_draw(const char *directory, const char *name, int width, int height, const char *script, char **svg);

#endif
