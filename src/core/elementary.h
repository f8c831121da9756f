/* elementary.h - exp and log by a fixed sequence of IEEE operations, so that every machine gets the same bits.
 *
 * Errors are a few units in the last place of a double: far below the one rounding to 16 or 24 bits that follows. */
#ifndef FL_ELEMENTARY_H
#define FL_ELEMENTARY_H

/* Shared with what computes the same in vectors (softmax_rows.inc). */
#define FL_LOG2_E 0x1.71547652b82fep+0
#define FL_LN2_HIGH 0x1.62e42fefa38p-1 /* n * this is exact */
#define FL_LN2_LOW 0x1.ef35793c7673p-45
#define FL_EXP_LEAST (-745.2) /* e^x is 0 below */

/* e^x; 0 below -745, +Inf above 709.78, NaN for NaN. */
double fl_exp(double x);
/* Natural logarithm; NaN below 0, -Inf at 0. */
double fl_log(double x);

#endif
