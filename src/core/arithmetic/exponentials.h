/* exponentials.h - exp of many numbers: fl_exp of each (elementary.h), except results so small that they vanish beside
 * 1. */
#ifndef FL_EXPONENTIALS_H
#define FL_EXPONENTIALS_H

#include <stdint.h>

/* e^x of n numbers, none above zero, in place. */
void fl_exponentials_portable(double *x, int64_t n);
void fl_exponentials_avx2(double *x, int64_t n);
void fl_exponentials_avx512bw(double *x, int64_t n);

#endif
