/* elementary.h - exp and log by a fixed sequence of IEEE operations, so that every machine gets the same bits.
 *
 * Errors are a few units in the last place of a double: far below the one rounding to 16 or 24 bits that follows. */
#ifndef FL_ELEMENTARY_H
#define FL_ELEMENTARY_H

/* e^x; 0 below -745, +Inf above 709.78, NaN for NaN. */
double fl_exp(double x);
/* Natural logarithm; NaN below 0, -Inf at 0. */
double fl_log(double x);

#endif
