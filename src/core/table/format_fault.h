/* format_fault.h - whether the kernels can compute in a format at all. */
#ifndef FL_FORMAT_FAULT_H
#define FL_FORMAT_FAULT_H

#include "core/table/format.h"
#include <stddef.h>

/* A text that names the property of a format with a shared exponent that no kernel supports; NULL: there is none. The
 * build checks every format by it (cmake/check_formats.c), and so does the first tensor of a format. */
const char *fl_format_fault(const struct fl_format *f, char *text, size_t size);

#endif
