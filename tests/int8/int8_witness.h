/* int8_witness.h - what a layer's results are, computed once more: sums from a padded copy of the images, roundings as
 * integer divisions with their remainder. Shares with the library only the scales' quotients in floating point. */
#ifndef FL_INT8_WITNESS_H
#define FL_INT8_WITNESS_H

#include "int8/int8.h"
#include <math.h>
#include <stdlib.h>

enum ties { TIES_EVEN, TIES_AWAY, TIES_UP };

/* a / b to the nearest integer, b > 0. */
static inline __int128 witness_divide(__int128 a, __int128 b, enum ties ties) {
    const __int128 size = a < 0 ? -a : a;
    __int128 q = size / b;
    const __int128 rest = size % b, other = b - rest;
    const int up = rest > other || (rest == other && (ties == TIES_EVEN   ? (int)(q & 1)
                                                      : ties == TIES_AWAY ? 1
                                                                          : a > 0));
    q += up;
    return a < 0 ? -q : q;
}

/* A positive number as an integer of `bits` bits times a power of two. */
struct witness_number {
    int64_t integer;
    int exponent;
};

static inline struct witness_number witness_bits(double x, int bits, enum ties ties) {
    int e;
    const int64_t whole = (int64_t)ldexp(frexp(x, &e), 53); /* exact */
    int64_t q = (int64_t)witness_divide(whole, (int64_t)1 << (53 - bits), ties);
    e -= bits;
    if (q >> bits) {
        q >>= 1;
        e++;
    }
    return (struct witness_number){q, e};
}

/* a 2^-p + b 2^-q, ties to even; 0 <= p, q, apart by less than 50. */
static inline __int128 witness_exact(int64_t a, int64_t m, int p, int64_t b, int64_t n, int q) {
    const int common = p > q ? p : q;
    const __int128 sum =
        (__int128)a * m * ((__int128)1 << (common - p)) + (__int128)b * n * ((__int128)1 << (common - q));
    return witness_divide(sum, (__int128)1 << common, TIES_EVEN);
}

/* The binary32 number nearest to an integer times 2^e, as integer and exponent. */
static inline struct witness_number witness_binary32(__int128 x, int e) {
    const __int128 size = x < 0 ? -x : x;
    int length = 0;
    while (size >> length)
        length++;
    const int drop = length > 24 ? length - 24 : 0;
    return (struct witness_number){(int64_t)witness_divide(x, (__int128)1 << drop, TIES_EVEN), e + drop};
}

static inline int64_t witness_onnx(int32_t acc, float factor) {
    int e;
    const int64_t f = (int64_t)ldexp(frexp((double)factor, &e), 24);
    const struct witness_number a = witness_binary32(acc, 0),
                                x = witness_binary32((__int128)a.integer * f, a.exponent + e - 24);
    if (x.exponent >= 0)
        return x.exponent > 36 ? (x.integer > 0 ? INT32_MAX : INT32_MIN) : x.integer * ((int64_t)1 << x.exponent);
    return x.exponent < -100 ? 0 : (int64_t)witness_divide(x.integer, (__int128)1 << -x.exponent, TIES_EVEN);
}

/* TensorFlow Lite: the coefficient is m.integer / 2^31 times 2^e. */
static inline int64_t witness_tflite(int32_t x, double real, bool once, enum ties shift_ties) {
    const struct witness_number m = witness_bits(real, 31, TIES_AWAY);
    const int e = m.exponent + 31;
    if (e < -31)
        return 0;
    if (once)
        return (int32_t)(uint32_t)(uint64_t)witness_divide((__int128)x * m.integer, (__int128)1 << (31 - e), TIES_UP);
    const int64_t left = e > 0 ? (int32_t)((uint32_t)x << e) : x;
    const __int128 high = witness_divide((__int128)left * m.integer, (__int128)1 << 31, TIES_UP);
    return (int64_t)witness_divide(high, (__int128)1 << (e > 0 ? 0 : -e), shift_ties);
}

static inline int32_t witness_element(const void *x, bool is_unsigned, int64_t i) {
    const uint8_t byte = ((const uint8_t *)x)[i];
    return is_unsigned || byte < 128 ? byte : byte - 256;
}

#endif
