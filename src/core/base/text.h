/* text.h - numbers as text in one form, with a decimal point and no grouping, in any locale that the program has set.
 */
#ifndef FL_TEXT_H
#define FL_TEXT_H

#include <stdarg.h>
#include <stdio.h>

/* vsnprintf, strtod and fprintf in the locale "C", which is set for the calling thread only. */
int fl_format(char *text, size_t size, const char *format, va_list arguments) __attribute__((format(printf, 3, 0)));
double fl_to_real(const char *text, char **end); /* strtod */
/* "a, b, c": the names that `name` returns until NULL, in the space of a message; names that do not fit are "and N
 * more" at the end. */
struct fl_names {
    char text[300];
};
struct fl_names fl_list_names(const char *(*name)(int i));
/* A text from a caller, in quotes for a message, and shortened if it is too long; NULL has no quotes. */
struct fl_quoted {
    char text[600];
};
struct fl_quoted fl_quote(const char *given);
/* Reads a number of at most two digits without a leading zero, and the place behind it; 0: there is none. */
int fl_read_number(const char **at);
int fl_print(FILE *file, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
