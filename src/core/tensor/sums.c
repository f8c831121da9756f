/* sums.c - sums of tensors element by element, and exact sums of doubles. */
#include "core/tensor/sums.h"
#include "core/arithmetic/exact_rules.h"
#include "core/arithmetic/fixed_sum.h"
#include <string.h>

/* --- exact sums of doubles ---------------------------------------------------------------------------------------- */

double fl_exact_sum_odd(const double *x, int count) {
    return fl_fixed_sum(x, count, 1, 1, true);
}

double fl_exact_mean(const double *x, int count, uint32_t divisor) {
    return fl_fixed_sum(x, count, 1, divisor, false);
}

/* --- the tree ----------------------------------------------------------------------------------------------------- */

/* Trees are summed as a binary counter counts: after leaf i, as many nodes are complete as i + 1 ends in zeros. What
 * remains in the end, the largest node first, is added from the right. */
enum { TREE = 11 /* nodes that wait, at most, for FL_MOST_TERMS leaves */, RUN = 256 };

double fl_tree_sum(const double *x, int count) {
    double node[TREE];
    int depth = 0;
    for (int i = 0; i < count; i++) {
        node[depth++] = x[i];
        for (int k = i + 1; k % 2 == 0; k /= 2, depth--)
            node[depth - 2] += node[depth - 1];
    }
    for (; depth > 1; depth--)
        node[depth - 2] += node[depth - 1];
    return depth ? node[0] : 0;
}

static void add_nodes(float *left, const float *right, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        left[i] += right[i];
}

static void fetch_term(const struct fl_sum *s, int t, int64_t first, int64_t n, double *values) {
    if (s->fetch)
        s->fetch(s, t, first, n, values);
    else
        s->format->decode(s->format, &s->terms[t], first, n, values);
}

static void fetch_tree(const struct fl_sum *s, int64_t first, int64_t n, double *values) {
    float node[TREE][RUN];
    int depth = 0;
    for (int t = 0; t < s->count; t++) {
        fetch_term(s, t, first, n, values);
        for (int64_t i = 0; i < n; i++)
            node[depth][i] = (float)values[i];
        depth++;
        for (int k = t + 1; k % 2 == 0; k /= 2, depth--)
            add_nodes(node[depth - 2], node[depth - 1], n);
    }
    for (; depth > 1; depth--)
        add_nodes(node[depth - 2], node[depth - 1], n);
    for (int64_t i = 0; i < n; i++)
        values[i] = (double)node[0][i];
}

/* --- under a shared exponent -------------------------------------------------------------------------------------- */

/* Bits of the magnitude of a sum in units of the finest exponent, *finest. */
static int bits_of(const struct fl_sum *s, int *finest) {
    int least = fl_exponent(&s->terms[0]), bits = s->fetch ? s->bits : s->format->bits - 1;
    *finest = least;
    for (int t = 1; t < s->count; t++) {
        const int e = fl_exponent(&s->terms[t]);
        least = e < least ? e : least;
        *finest = e > *finest ? e : *finest;
    }
    for (int terms = s->count - 1; terms; terms /= 2)
        bits++;
    return bits + *finest - least;
}

bool fl_sum_is_narrow(const struct fl_sum *s) {
    int finest;
    return s->format->arithmetic == FL_ARITHMETIC_SHARED && s->format->bytes == 2 && !s->fetch &&
           bits_of(s, &finest) <= 30;
}

void fl_sum_whole(const struct fl_sum *s, int e, int64_t first, int64_t n, int32_t *sums) {
    memset(sums, 0, (size_t)n * sizeof *sums);
    for (int t = 0; t < s->count; t++) {
        const int16_t *m = (const int16_t *)s->terms[t].data + first;
        const int32_t unit = 1 << (e - fl_exponent(&s->terms[t]));
        for (int64_t i = 0; i < n; i++)
            sums[i] += m[i] * unit;
    }
}

static void fetch_narrow(const struct fl_sum *s, int finest, int64_t first, int64_t n, double *values) {
    int32_t sums[RUN];
    const double unit = fl_power_of_two(-finest);
    fl_sum_whole(s, finest, first, n, sums);
    for (int64_t i = 0; i < n; i++)
        values[i] = sums[i] * unit;
}

static void fetch_exact(const struct fl_sum *s, int64_t first, int64_t n, double *values) {
    double term[RUN];
    fetch_term(s, 0, first, n, values);
    for (int t = 1; t < s->count; t++) {
        fetch_term(s, t, first, n, term);
        for (int64_t i = 0; i < n; i++)
            values[i] += term[i];
    }
}

/* For exponents that lie far apart. */
static void fetch_fixed(const struct fl_sum *s, int64_t first, double *value) {
    double terms[FL_MOST_TERMS] = {0};
    for (int t = 0; t < s->count; t++)
        fetch_term(s, t, first, 1, &terms[t]);
    *value = fl_exact_sum_odd(terms, s->count);
}

void fl_sum_fetch(const struct fl_sum *s, int64_t first, int64_t n, double *values) {
    int finest = 0;
    const bool exact = s->format->arithmetic == FL_ARITHMETIC_SHARED, narrow = fl_sum_is_narrow(s);
    const bool fits = exact && bits_of(s, &finest) <= 53; /* all are multiples of one unit, and their sum of 53 bits */
    for (int64_t done = 0, run; done < n; done += run) {
        run = n - done < RUN ? n - done : RUN;
        if (!exact)
            fetch_tree(s, first + done, run, values + done);
        else if (narrow)
            fetch_narrow(s, finest, first + done, run, values + done);
        else if (fits)
            fetch_exact(s, first + done, run, values + done);
        else
            for (int64_t i = 0; i < run; i++)
                fetch_fixed(s, first + done + i, &values[done + i]);
    }
}
