/* check.h - the few lines that every test needs. CHECK prints a line that is enough to replay a failure and goes on, or
 * under FLEXLAB_TEST_STOP ends the program; check_summary ends main. A test that cannot run here returns
 * check_skip(reason): exit status 77. */
#ifndef FL_CHECK_H
#define FL_CHECK_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static long check_count, check_failures;

/* For tests of tests, which ask only whether one fails. */
static inline void check_stop(void) {
    if (getenv("FLEXLAB_TEST_STOP"))
        exit(1);
}

#define CHECK(condition, ...)                                                                                          \
    do {                                                                                                               \
        check_count++;                                                                                                 \
        if (!(condition) && ++check_failures <= 20) {                                                                  \
            printf("FAILED %s:%d: %s: ", __FILE__, __LINE__, #condition);                                              \
            printf(__VA_ARGS__);                                                                                       \
            printf("\n");                                                                                              \
            check_stop();                                                                                              \
        }                                                                                                              \
    } while (0)

static inline int check_summary(void) {
    printf("%ld checks, %ld failures\n", check_count, check_failures);
    return check_failures || !check_count ? 1 : 0;
}

static inline int check_skip(const char *reason) {
    printf("skipped: %s\n", reason);
    return 77;
}

/* Test inputs: a small generator of its own (SplitMix64, Steele et al. 2014), so that tests do not test themselves. */
static inline uint64_t check_random(uint64_t *state) {
    uint64_t z = (*state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

#endif
