/* student.c - Student's t distribution by its finite sums (Abramowitz & Stegun 1964, 26.7.3 and 26.7.4). */
#include "results/student.h"
#include <math.h>

double student_two_sided(double t, int freedom) {
    const double pi = 3.14159265358979323846, root = sqrt(freedom), size = fabs(t);
    if (isnan(t))
        return NAN;
    if (isinf(t))
        return 0;
    const double cosine = root / hypot(root, size), sine = size / hypot(root, size), square = cosine * cosine;
    double term = freedom % 2 ? cosine : 1, sum = freedom > 1 ? term : 0;
    for (int k = freedom % 2 ? 3 : 2; k < freedom; k += 2) {
        term *= square * (k - 1) / k;
        sum += term;
    }
    return freedom % 2 ? 2 / pi * (atan2(root, size) - sine * sum) : 1 - sine * sum;
}

double student_critical(double p, int freedom) {
    double low = 0, high = 1;
    while (student_two_sided(high, freedom) > p)
        high *= 2;
    for (int i = 0; i < 100; i++) {
        const double middle = 0.5 * (low + high);
        if (student_two_sided(middle, freedom) > p)
            low = middle;
        else
            high = middle;
    }
    return 0.5 * (low + high);
}
