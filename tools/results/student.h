/* student.h - Student's t distribution, for paired differences over few seeds. */
#ifndef FLEXLAB_STUDENT_H
#define FLEXLAB_STUDENT_H

/* The probability that a variable with `freedom` >= 1 degrees of freedom has an absolute value of at least |t|. */
double student_two_sided(double t, int freedom);
/* The t whose two-sided probability is `p`, 0 < p < 1. */
double student_critical(double p, int freedom);

#endif
