/* exponents.h - shared exponents for views that tests make without a tensor: each number has an address of its own. */
#ifndef FL_EXPONENTS_H
#define FL_EXPONENTS_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { EXPONENT_LIMIT = 2000 };

/* An address where e stands, for the life of the program. */
static inline const int32_t *exponent_at(int e) {
    static int32_t table[2 * EXPONENT_LIMIT + 1];
    if (e < -EXPONENT_LIMIT || e > EXPONENT_LIMIT) {
        printf("the test wants an exponent of %d\n", e);
        exit(1);
    }
    table[e + EXPONENT_LIMIT] = e;
    return &table[e + EXPONENT_LIMIT];
}

#endif
