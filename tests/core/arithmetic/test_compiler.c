/* The compiler, with the flags of the library, must preserve the roundings in the code: of doubles to floats if several
 * are stored side by side, of products before sums, of narrow integers. Each function is compared with the same
 * computation one by one through volatile variables. GCC 12 fails without -fno-tree-slp-vectorize
 * (cmake/compiler.cmake). */
#include "check.h"
#include <stdint.h>
#include <string.h>

#define ALONE __attribute__((noinline))

enum { MOST = 16 };

static double float_of(double x) {
    volatile float rounded = (float)x;
    return rounded;
}

static double product_of(double a, double b) {
    volatile double rounded = a * b;
    return rounded;
}

/* From registers, which the pass gathers to vectors; a loop over memory is compiled differently. */
ALONE static void two(double *n, double a, double b) {
    n[0] = (float)a;
    n[1] = (float)b;
}
ALONE static void four(double *n, double a, double b, double c, double d) {
    n[0] = (float)a;
    n[1] = (float)b;
    n[2] = (float)c;
    n[3] = (float)d;
}
ALONE static void with_more(double *n, double a, double b, double c, double d) {
    const float x = (float)a, y = (float)b, z = (float)c, w = (float)d;
    n[0] = 3 * (double)x;
    n[1] = 3 * (double)y;
    n[2] = 3 * (double)z;
    n[3] = 3 * (double)w;
}
ALONE static void over_memory(double *n, const double *x, int count) {
    for (int i = 0; i < count; i++)
        n[i] = (float)x[i];
}
ALONE static void eight(double *n, const double *x) {
    for (int i = 0; i < 8; i++)
        n[i] = (float)x[i];
}
ALONE static void of_products(double *n, double a, double b) {
    n[0] = (float)(a * a);
    n[1] = (float)(b * b);
}
ALONE static void sums(double *n, double a, double b, double c, double d) {
    n[0] = a * b + c;
    n[1] = b * a + d;
    n[2] = c * d - a;
    n[3] = d * d - b;
}
ALONE static void shorts(int32_t *n, int32_t a, int32_t b, int32_t c, int32_t d) {
    n[0] = (int16_t)a;
    n[1] = (int16_t)b;
    n[2] = (int16_t)c;
    n[3] = (int16_t)d;
}
ALONE static void words(int64_t *n, int64_t a, int64_t b) {
    n[0] = (int32_t)a;
    n[1] = (int32_t)b;
}
ALONE static void whole(double *n, double a, double b) {
    n[0] = (double)(int32_t)a;
    n[1] = (double)(int32_t)b;
}

static void must_be(const char *what, const double *got, const double *want, int count) {
    for (int i = 0; i < count; i++)
        CHECK(got[i] == want[i], "%s, %d of %d: %a, expected %a", what, i, count, got[i], want[i]);
}

static double number(uint64_t *seed) {
    return (double)(int64_t)check_random(seed) * 0x1p-60;
}

int main(void) {
    uint64_t seed = 1;
    for (int round = 0; round < 1000; round++) {
        double x[MOST], n[MOST], rounded[MOST], thrice[4], squares[2];
        for (int i = 0; i < MOST; i++) {
            x[i] = number(&seed);
            rounded[i] = float_of(x[i]);
        }
        two(n, x[0], x[1]);
        must_be("two", n, rounded, 2);
        four(n, x[0], x[1], x[2], x[3]);
        must_be("four", n, rounded, 4);
        over_memory(n, x, MOST);
        must_be("over memory", n, rounded, MOST);
        eight(n, x);
        must_be("eight", n, rounded, 8);
        for (int i = 0; i < 4; i++)
            thrice[i] = product_of(3, rounded[i]);
        with_more(n, x[0], x[1], x[2], x[3]);
        must_be("with more behind it", n, thrice, 4);
        for (int i = 0; i < 2; i++)
            squares[i] = float_of(product_of(x[i], x[i]));
        of_products(n, x[0], x[1]);
        must_be("of products", n, squares, 2);
        const double apart[4] = {product_of(x[0], x[1]) + x[2], product_of(x[1], x[0]) + x[3],
                                 product_of(x[2], x[3]) - x[0], product_of(x[3], x[3]) - x[1]};
        sums(n, x[0], x[1], x[2], x[3]);
        must_be("a product and a sum", n, apart, 4);
        int32_t narrow[4];
        int64_t bits[4], wide[2];
        for (int i = 0; i < 4; i++)
            bits[i] = (int64_t)check_random(&seed);
        shorts(narrow, (int32_t)bits[0], (int32_t)bits[1], (int32_t)bits[2], (int32_t)bits[3]);
        for (int i = 0; i < 4; i++) {
            volatile int16_t low = (int16_t)bits[i];
            CHECK(narrow[i] == low, "int16 %d: %d, expected %d", i, narrow[i], low);
        }
        words(wide, bits[0], bits[1]);
        whole(n, x[0] * 1e6, x[1] * 1e6);
        for (int i = 0; i < 2; i++) {
            volatile int32_t low = (int32_t)bits[i], integer = (int32_t)(x[i] * 1e6);
            CHECK(wide[i] == low, "int32 %d: %lld, expected %d", i, (long long)wide[i], low);
            CHECK(n[i] == integer, "whole %d: %g, expected %d", i, n[i], integer);
        }
    }
    return check_summary();
}
