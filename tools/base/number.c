/* number.c - numbers in tables and messages. */
#include "base/number.h"
#include "base/text.h"
#include <math.h>

static char *number(double value, int digits, const char *plus) {
    double size = fabs(value), least = 0.5 * pow(10, -digits), most = fmax(1000, pow(10, 8 - digits));
    const char *sign = value < 0 ? "-" : plus;
    if (isnan(value))
        return text_format("NaN");
    if (isinf(value))
        return text_format("%sInf", sign);
    if (size >= most)
        return text_format("%s%.4g", sign, size);
    if (size > 0 && size < least)
        return text_format("%s%.2g", sign, size);
    return text_format("%s%.*f", sign, digits, size);
}

char *number_text(double value, int digits) {
    return number(value, digits, "");
}

char *number_signed_text(double value, int digits) {
    return number(value, digits, "+");
}

const char *number_state(double value) {
    return isnan(value) ? "nan" : !isinf(value) ? "finite" : value > 0 ? "inf" : "-inf";
}
