/* table.h - rows of cells, printed as aligned text or as HTML. The first row is the heading. */
#ifndef FLEXLAB_TABLE_H
#define FLEXLAB_TABLE_H

#include <stdio.h>

struct table;

/* `alignment` has a letter for each column: 'l' or 'r'. */
struct table *table_new(const char *alignment);
void table_free(struct table *t);
/* Appends one cell; rows fill from left to right. */
void table_cell(struct table *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Appends a cell that takes over `text` (from text_format and its kin) and frees it. */
void table_take(struct table *t, char *text);

/* If the columns take more than `width` characters, it prints blocks of them below each other, each beginning with the
 * first column. 0: no limit. */
void table_print(const struct table *t, FILE *out, int indent, int width);
void table_print_html(const struct table *t, FILE *out);

/* A paragraph of at most `width` columns; 0: no limit. A word that is longer gets a line of its own. */
void paragraph_print(const char *text, FILE *out, int width);
/* Columns that standard output shows: those of a terminal, else COLUMNS of the environment, else 0. */
int output_columns(void);

/* `text` with &, <, > and quotes escaped; control characters and bytes of no character become U+FFFD. */
void html_text(FILE *out, const char *text);

#endif
