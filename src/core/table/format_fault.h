/* format_fault.h - whether the kernels can compute in a format at all. */
#ifndef FL_FORMAT_FAULT_H
#define FL_FORMAT_FAULT_H

#include "core/table/format.h"
#include <stddef.h>

/* What of a format with a shared exponent no kernel supports, as text; NULL: nothing. The build asks for every format
 * (cmake/check_formats.c), and so does the first tensor of one. */
const char *fl_format_fault(const struct fl_format *f, char *text, size_t size);

#endif
