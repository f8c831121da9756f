/* element.h - the elements of formats made from their parameters: floats eXmY and integers intN of at most 16 bits.
 *
 *       +--+--------------+--------------+
 *       | s|  X exponent  |  Y fraction  |   value (-1)^s * 2^(exponent - bias) * 1.fraction, bias 2^(X - 1) - 1
 *       +--+--------------+--------------+
 *     exponent 0: (-1)^s * fraction * 2^(1 - bias - Y)  (zero and subnormals)
 *
 * Which codes are no numbers:
 *     eXmY     as in IEEE 754: the largest exponent is Inf (fraction 0) and NaN
 *     eXmYfn   NaN alone, where exponent and fraction are all ones; there is no Inf. So is eXm0, which has no fraction
 *              that tells Inf from NaN
 *     elements of 6 bits or fewer have neither (OCP Microscaling Formats v1.0, section 5.3); the suffix fn means
 * nothing
 *
 * A number above the largest becomes Inf, or NaN where there is no Inf; with the suffix sat, and where there is
 * neither, the largest. e4m3fn and e5m2 are those of OCP 8-bit Floating Point Specification v1.0; e4m3, e3m4, e2m3fn
 * and the others have the codes of the types of that name in the Python package ml_dtypes.
 *
 * intN is an integer in two's complement times 2^(2 - N), symmetric: -2^(N - 1) is never written (MXINT8 of OCP). */
#ifndef FL_ELEMENT_H
#define FL_ELEMENT_H

#include "flexlab/status.h"
#include <stdbool.h>
#include <stdint.h>

enum fl_element_kind { FL_ELEMENT_FLOAT, FL_ELEMENT_INTEGER };

struct fl_element {
    char name[16]; /* its canonical text: e2m1 for e2m1fn, e6m0fn for e6m0 */
    enum fl_element_kind kind;
    int bits;                         /* of a code, the sign included */
    int exponent_bits, fraction_bits; /* of a float; 0 of an integer */
    int bias;
    bool has_infinity, has_nan;
    bool saturates;        /* what is above the largest, Inf included, becomes the largest */
    double largest;        /* finite */
    int unit;              /* every value is an integer times 2^unit */
    int least_exponent;    /* of the smallest normal float, 2^least_exponent */
    int integer_bits;      /* of the magnitude of largest * 2^-unit */
    uint32_t largest_code; /* without the sign; those of Inf and NaN, where there are any: */
    uint32_t infinity_code, nan_code;
};

enum { FL_ELEMENT_BITS = 16 }; /* at most */

/* Reads the element whose text begins at `at` within `text`, and the place behind it. The message of a failure names
 * the position within `text`. */
tensor_status fl_element_find(struct fl_element *element, const char *text, const char *at, const char **end);

/* The value of a code, exactly; bits above those of the element are not read. */
double fl_element_decode(const struct fl_element *element, uint32_t code);

/* x rounded once: to nearest, ties to even (to the larger without fraction bits, as IEEE 754-2019 has it); with *draw,
 * stochastically, as fl_round_by_draw (stochastic.h) does, where x is exact or rounded to odd. NaN becomes 0 where the
 * element has none. A result of zero has the sign of x. */
uint32_t fl_element_encode(const struct fl_element *element, double x, const uint32_t *draw);

#endif
