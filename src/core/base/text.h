/* text.h - numbers as text in one form, whatever locale the program has set: a decimal point, no grouping. */
#ifndef FL_TEXT_H
#define FL_TEXT_H

#include <stdarg.h>
#include <stdio.h>

/* vsnprintf, strtod and fprintf in the locale "C", for the calling thread alone. */
int fl_format(char *text, size_t size, const char *format, va_list arguments) __attribute__((format(printf, 3, 0)));
double fl_to_real(const char *text, char **end); /* strtod */
/* "a, b, c" of names that `name` gives until NULL, in a message's room; of more than there is room for the last words
 * are "and N more". */
struct fl_names {
    char text[300];
};
struct fl_names fl_list_names(const char *(*name)(int i));
/* A text that a caller gave, in a message, which cuts what is too long: in quotes; NULL without quotes. */
struct fl_quoted {
    char text[600];
};
struct fl_quoted fl_quote(const char *given);
int fl_print(FILE *file, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
