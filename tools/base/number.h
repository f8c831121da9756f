/* number.h - numbers in tables and messages, short for any size. The caller frees all texts. */
#ifndef FLEXLAB_NUMBER_H
#define FLEXLAB_NUMBER_H

/* With `digits` decimals; in significant digits where that would take more than 8 digits (of numbers from 1000 on), or
 * show none: 1.235e+26, 2.3e-06. "NaN", "Inf", "-Inf". With sign: "+" before a number that is not negative. */
char *number_text(double value, int digits);
char *number_signed_text(double value, int digits);

/* "finite", "nan", "inf" or "-inf". */
const char *number_state(double value);

#endif
