/* ranges.h - what calibration notes of a tensor, and the exponent that follows from it. */
#ifndef FL_CALIBRATION_RANGES_H
#define FL_CALIBRATION_RANGES_H

#include "program/network/network.h"

/* Notes numbers of a tensor; statistics: memory of its histogram, NULL: it needs none. TENSOR_E_DATA for one that is
 * not finite. */
tensor_status fl_range_see(struct fl_range *range, struct fl_network *statistics, const float *x, int64_t count);
/* The largest exponent e at which round(margin maximum 2^e) is at most 32767; where nothing was seen that which is
 * there; 14, at which 1 fits, where zeros alone were seen. False: there is none. */
bool fl_range_exponent(const struct fl_range *range, double margin, int *exponent);

#endif
