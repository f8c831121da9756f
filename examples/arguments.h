/* arguments.h - numbers of the command line, for the programs of experiments. */
#ifndef FLEXLAB_EXAMPLE_ARGUMENTS_H
#define FLEXLAB_EXAMPLE_ARGUMENTS_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Argument i from low to high, `usual` where it is absent. Ends the program where it is something else. */
static inline double real_argument(int argc, char **argv, int i, const char *name, double low, double high,
                                   double usual) {
    if (argc <= i)
        return usual;
    char *end;
    const double value = strtod(argv[i], &end);
    if (end == argv[i] || *end || !(value >= low && value <= high)) {
        fprintf(stderr, "%s: %s '%s': expected a number from %g to %g\n", argv[0], name, argv[i], low, high);
        exit(1);
    }
    return value;
}

/* A whole one, of magnitude up to 2^53. */
static inline long long whole_argument(int argc, char **argv, int i, const char *name, double low, double high,
                                       long long usual) {
    const double value = real_argument(argc, argv, i, name, low, high, (double)usual);
    if (value != floor(value)) {
        fprintf(stderr, "%s: %s '%s': expected a whole number\n", argv[0], name, argv[i]);
        exit(1);
    }
    return (long long)value;
}

#endif
