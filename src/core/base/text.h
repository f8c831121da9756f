/* text.h - numbers as text in one form, whatever locale the program has set: a decimal point, no grouping. */
#ifndef FL_TEXT_H
#define FL_TEXT_H

#include <stdarg.h>
#include <stdio.h>

/* vsnprintf, strtod and fprintf in the locale "C", for the calling thread alone. */
int fl_format(char *text, size_t size, const char *format, va_list arguments) __attribute__((format(printf, 3, 0)));
double fl_to_real(const char *text, char **end); /* strtod */
int fl_print(FILE *file, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
