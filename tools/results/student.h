/* student.h - Student's t distribution, for paired differences over few seeds. */
#ifndef FLEXLAB_STUDENT_H
#define FLEXLAB_STUDENT_H

/* The probability that |t| with `freedom` >= 1 degrees of freedom is at least |t|. */
double student_two_sided(double t, int freedom);
/* The t whose two-sided probability is `p`, 0 < p < 1. */
double student_critical(double p, int freedom);

#endif
