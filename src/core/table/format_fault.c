/* format_fault.c - compares the constants in kernels of shared exponents with what a format declares and does. */
#include "core/table/format_fault.h"
#include "autoflex/autoflex_rules.h"
#include "core/base/text.h"
#include <stdio.h>

enum {
    E_LEAST = -128,
    E_LARGEST = 127
}; /* the exponents for which the bounds of sums and doubles in kernels are proved */

/* The largest mantissa that the codec stores. */
static int32_t stored(const struct fl_format *f) {
    const int32_t e = f->e_min;
    const double huge = 1e300;
    struct fl_stats stats = {0};
    f->encode(f, &(struct fl_view){.e = &e, .count = 1}, 0, 1, &huge, true, &(struct fl_rounding){0}, &stats);
    return stats.gamma;
}

static const char *fault_of_predictor(const struct fl_format *f, char *text, size_t size) {
    if (autoflex_find(f->predictor))
        return NULL;
    snprintf(text, size, "the predictor %s, expected a name that autoflex_find knows", fl_quote(f->predictor).text);
    return text;
}

/* Floats under an exponent are those of src/minifloat. */
static const char *fault_of_floats(const struct fl_format *f, char *text, size_t size) {
    if (!f->element)
        snprintf(text, size, "an exponent above floats without an element, expected one made from its parameters");
    else if (f->e_min > f->e_max || f->e_min < E_LEAST || f->e_max > E_LARGEST)
        snprintf(text, size, "exponents %d ... %d, expected a range in this order within %d ... %d", f->e_min, f->e_max,
                 E_LEAST, E_LARGEST);
    else
        return fault_of_predictor(f, text, size);
    return text;
}

const char *fl_format_fault(const struct fl_format *f, char *text, size_t size) {
    if (f->arithmetic != FL_ARITHMETIC_SHARED)
        return fl_has_exponent(f) ? fault_of_floats(f, text, size) : NULL;
    if (f->bytes != 2 || (f->wide_bytes != 0 && f->wide_bytes != 4))
        snprintf(text, size, "elements of %d bytes and wide ones of %d, expected 2, and 4 or 0", f->bytes,
                 f->wide_bytes);
    else if (f->bits < AUTOFLEX_LEAST_BITS || f->bits > AUTOFLEX_BITS)
        snprintf(text, size, "mantissas of %d bits, expected %d to %d", f->bits, AUTOFLEX_LEAST_BITS, AUTOFLEX_BITS);
    else if (f->top != (1 << (f->bits - 1)) - 1)
        snprintf(text, size, "a largest mantissa of %d, expected %d for %d bits", f->top, (1 << (f->bits - 1)) - 1,
                 f->bits);
    else if (f->e_min > f->e_max || f->e_min < E_LEAST || f->e_max > E_LARGEST)
        snprintf(text, size, "exponents %d ... %d, expected a range in this order within %d ... %d", f->e_min, f->e_max,
                 E_LEAST, E_LARGEST);
    else if (fault_of_predictor(f, text, size))
        return text;
    else if (stored(f) != f->top)
        snprintf(text, size, "a codec whose largest mantissa is %d, expected %d", (int)stored(f), f->top);
    else
        return NULL;
    return text;
}
