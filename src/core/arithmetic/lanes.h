/* lanes.h - a vector of doubles, as wide as the instruction set that the file is compiled for. */
#ifndef FL_LANES_H
#define FL_LANES_H

#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__)
#include <immintrin.h>
enum { LANES = 8 };
#elif defined(__AVX2__)
#include <immintrin.h>
enum { LANES = 4 };
#else
enum { LANES = 2 };
#endif

typedef double lanes __attribute__((vector_size(LANES * 8)));
typedef int64_t words __attribute__((vector_size(LANES * 8)));

static inline lanes lanes_at(const double *p) {
    lanes x;
    memcpy(&x, p, sizeof x);
    return x;
}

#endif
