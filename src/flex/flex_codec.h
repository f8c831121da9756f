/* flex_codec.h - the element of the shared-exponent formats: a mantissa, value = mantissa * 2^-e. */
#ifndef FL_FLEX_CODEC_H
#define FL_FLEX_CODEC_H

#include <stdint.h>

typedef int16_t fl_element;
#define FL_SHARED_EXPONENT
enum { FL_TOP = 32767 }; /* largest |mantissa|; -32768 is read, never written */

#endif
