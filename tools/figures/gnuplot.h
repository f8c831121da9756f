/* gnuplot.h - running gnuplot on a script. */
#ifndef FLEXLAB_GNUPLOT_H
#define FLEXLAB_GNUPLOT_H

#include <stdio.h>

/* Draws `script` as DIRECTORY/NAME.svg and .png, width x height in SVG units; the SVG's text goes to *svg (to be freed,
 * may be NULL). gnuplot sees no name of a file: script and pictures pass through its standard streams, and a picture
 * that does not end as it should is refused. It has FLEXLAB_GNUPLOT_SECONDS (60) for each picture. STATUS_OK,
 * STATUS_FAILED with a message, or GNUPLOT_MISSING without one. */
enum { GNUPLOT_MISSING = -1 };
int gnuplot_draw(const char *directory, const char *name, int width, int height, const char *script, char **svg);

/* `text` as a string of the script, quotes included: whatever it holds, gnuplot reads text and nothing else. Give
 * `noenhanced` to the command that it belongs to, or ^ _ @ & ~ { } change its looks. */
void gnuplot_string(FILE *script, const char *text);

#endif
