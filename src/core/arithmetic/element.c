/* element.c - elements of formats: their parameters, their text and their codec. */
#include "core/arithmetic/element.h"
#include "core/base/fail.h"
#include "core/base/text.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_EXPONENT_BITS = 8, FINITE_BITS = 6 /* elements of no more have neither Inf nor NaN */ };

/* --- parameters --------------------------------------------------------------------------------------------------- */

static double power_of_two(int exponent) {
    return ldexp(1.0, exponent);
}

static void make_float(struct fl_element *e, int exponent_bits, int fraction_bits, bool only_nan, bool saturates) {
    const int bits = 1 + exponent_bits + fraction_bits;
    const bool finite = bits <= FINITE_BITS;
    const uint32_t all = (1u << (bits - 1)) - 1, top = ((1u << exponent_bits) - 1) << fraction_bits;
    only_nan = !finite && (only_nan || fraction_bits == 0);
    *e = (struct fl_element){.kind = FL_ELEMENT_FLOAT,
                             .bits = bits,
                             .exponent_bits = exponent_bits,
                             .fraction_bits = fraction_bits,
                             .bias = (1 << (exponent_bits - 1)) - 1,
                             .has_infinity = !finite && !only_nan,
                             .has_nan = !finite,
                             .saturates = finite || saturates};
    e->least_exponent = 1 - e->bias;
    e->unit = e->least_exponent - fraction_bits;
    e->largest_code = finite ? all : only_nan ? all - 1 : top - 1;
    e->infinity_code = top;
    e->nan_code = only_nan ? all : top | (1u << fraction_bits) >> 1;
    e->largest = fl_element_decode(e, e->largest_code);
    int digits;
    (void)frexp(e->largest, &digits);
    e->integer_bits = digits - e->unit;
    snprintf(e->name, sizeof e->name, "e%dm%d%s%s", exponent_bits, fraction_bits, only_nan ? "fn" : "",
             saturates && !finite ? "sat" : "");
}

static void make_integer(struct fl_element *e, int bits) {
    *e = (struct fl_element){.kind = FL_ELEMENT_INTEGER,
                             .bits = bits,
                             .saturates = true,
                             .unit = 2 - bits,
                             .least_exponent = 2 - bits,
                             .integer_bits = bits - 1,
                             .largest_code = (1u << (bits - 1)) - 1};
    e->largest = e->largest_code * power_of_two(e->unit);
    snprintf(e->name, sizeof e->name, "int%d", bits);
}

/* --- text --------------------------------------------------------------------------------------------------------- */

static bool skip(const char **at, const char *word) {
    const bool found = !strncmp(*at, word, strlen(word));
    *at += found ? strlen(word) : 0;
    return found;
}

static tensor_status find_integer(struct fl_element *e, const char *text, const char *at, const char **end) {
    *end = at;
    const int bits = fl_read_number(end);
    if (bits < 2 || bits > FL_ELEMENT_BITS)
        return fl_unexpected("format", text, at, "a number of bits from 2 to 16");
    make_integer(e, bits);
    return TENSOR_OK;
}

static tensor_status find_float(struct fl_element *e, const char *text, const char *at, const char **end) {
    const char *number = at;
    const int exponent_bits = fl_read_number(&at);
    if (exponent_bits < 1 || exponent_bits > MOST_EXPONENT_BITS)
        return fl_unexpected("format", text, number, "a number of exponent bits from 1 to 8");
    if (!skip(&at, "m"))
        return fl_unexpected("format", text, at, "'m' and a number of fraction bits");
    const int most = FL_ELEMENT_BITS - 1 - exponent_bits;
    number = at;
    const bool none = skip(&at, "0");
    const int fraction_bits = none ? 0 : fl_read_number(&at);
    if (!none && (fraction_bits < 1 || fraction_bits > most)) {
        char expected[80];
        snprintf(expected, sizeof expected, "a number of fraction bits from 0 to %d, for 16 bits at most", most);
        return fl_unexpected("format", text, number, expected);
    }
    const bool only_nan = skip(&at, "fn"), saturates = skip(&at, "sat");
    make_float(e, exponent_bits, fraction_bits, only_nan, saturates);
    *end = at;
    return TENSOR_OK;
}

tensor_status fl_element_find(struct fl_element *e, const char *text, const char *at, const char **end) {
    const char *number = at;
    if (skip(&number, "int"))
        return find_integer(e, text, number, end);
    if (skip(&number, "e"))
        return find_float(e, text, number, end);
    return fl_unexpected("format", text, at, "an element: eXmY, eXmYfn or intN");
}

/* --- codec -------------------------------------------------------------------------------------------------------- */

double fl_element_decode(const struct fl_element *e, uint32_t code) {
    const uint32_t sign = 1u << (e->bits - 1), magnitude = code & (sign - 1);
    if (e->kind == FL_ELEMENT_INTEGER)
        return ((int)magnitude - (code & sign ? (int)sign : 0)) * power_of_two(e->unit);
    double value;
    if (magnitude <= e->largest_code) {
        const uint32_t exponent = magnitude >> e->fraction_bits, fraction = magnitude & ((1u << e->fraction_bits) - 1);
        const uint32_t integer = exponent ? fraction | 1u << e->fraction_bits : fraction;
        value = integer * power_of_two(e->unit + (exponent ? (int)exponent - 1 : 0));
    } else {
        value = e->has_infinity && magnitude == e->infinity_code ? HUGE_VAL : NAN;
    }
    return code & sign ? -value : value;
}

/* `steps`, not an integer, rounded to one. */
static int64_t round_steps(double steps, const uint32_t *draw) {
    if (draw)
        return ((int64_t)floor(steps * 0x1p32) + *draw) >> 32;
    const double below = floor(steps), rest = steps - below;
    const int64_t integer = (int64_t)below;
    return integer + (rest > 0.5 || (rest == 0.5 && (integer & 1)));
}

static uint32_t too_large(const struct fl_element *e) {
    return e->saturates ? e->largest_code : e->has_infinity ? e->infinity_code : e->nan_code;
}

static uint32_t encode_float(const struct fl_element *e, double x, const uint32_t *draw) {
    const uint32_t sign = signbit(x) ? 1u << (e->bits - 1) : 0;
    if (isnan(x))
        return e->has_nan ? sign | e->nan_code : 0;
    if (fabs(x) > 2 * e->largest) /* whatever the rounding, and the steps below have few bits */
        return sign | too_large(e);
    int exponent;
    (void)frexp(x, &exponent); /* x is in [2^(exponent - 1), 2^exponent) */
    const int above = x != 0 && exponent - 1 > e->least_exponent ? exponent - 1 - e->least_exponent : 0;
    const int64_t steps = round_steps(x * power_of_two(-(e->unit + above)), draw);
    /* The first place of a normal number is a one and adds 1 to the field of the exponent, and so does a carry. */
    const uint32_t code = ((uint32_t)above << e->fraction_bits) + (uint32_t)(steps < 0 ? -steps : steps);
    return sign | (code > e->largest_code ? too_large(e) : code);
}

static uint32_t encode_integer(const struct fl_element *e, double x, const uint32_t *draw) {
    const int64_t top = e->largest_code;
    int64_t integer = 0;
    if (fabs(x) > 2 * e->largest)
        integer = x > 0 ? top : -top;
    else if (!isnan(x))
        integer = round_steps(x * power_of_two(-e->unit), draw);
    integer = integer > top ? top : integer < -top ? -top : integer;
    return (uint32_t)integer & ((1u << e->bits) - 1);
}

uint32_t fl_element_encode(const struct fl_element *e, double x, const uint32_t *draw) {
    return e->kind == FL_ELEMENT_INTEGER ? encode_integer(e, x, draw) : encode_float(e, x, draw);
}
