/* page_json.h - JSON inside the report's page: no text can end the script element or the string. */
#ifndef FLEXLAB_PAGE_JSON_H
#define FLEXLAB_PAGE_JSON_H

#include <stdint.h>
#include <stdio.h>

/* A string with its quotes. Bytes that are no UTF-8 become U+FFFD. */
void page_text(FILE *out, const char *text);
enum { PAGE_EXACT = 17 }; /* digits that identify every double */
/* Prints at most `digits` significant digits; null if the number is not finite. */
void page_number(FILE *out, double value, int digits);

/* A column of numbers: one number where all are the same, else a list. NAN is null, infinity "inf". `count` > 0. */
void page_column(FILE *out, const double *values, int count, int digits);

#endif
