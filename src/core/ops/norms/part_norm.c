/* part_norm.c - sums of parts of a batch as sums of the whole: by exact sums of doubles, rounded where the rules of one
 * batch round (channel_rules.h). */
#include "core/ops/norms/part_norm.h"
#include "core/ops/norms/channel_rules.h"
#include "core/tensor/sums.h"
#include <math.h>

enum { MOST = 2 * FL_MOST_TERMS + FL_PART_TERMS };

/* An exact sum as a few doubles, each the rest of those before, rounded. */
struct total {
    double term[FL_PART_TERMS];
    int count;
};

/* Of `count` numbers, whose array has room for FL_PART_TERMS more. If one is not finite, so is the total. */
static struct total total_of(double *numbers, int count) {
    struct total t = {{0}, 0};
    for (int k = 0; k < FL_PART_TERMS; k++) {
        const double rounded = fl_exact_mean(numbers, count, 1);
        if (rounded == 0)
            break;
        t.term[t.count++] = rounded;
        if (!fl_is_finite(rounded))
            break;
        numbers[count++] = -rounded;
    }
    return t;
}

static double rounded(const struct total *t) {
    return t->count ? t->term[0] : 0;
}

static double number_of(const struct fl_parts *p, int part, int which, int64_t channel) {
    return p->sums[(part * 3 + which) * p->channels + channel];
}

/* The total of sums, or of sums of products, of a channel. */
static struct total add_parts(const struct fl_parts *p, bool products, int64_t channel) {
    double numbers[MOST];
    int count = 0;
    for (int i = 0; i < p->count; i++) {
        numbers[count++] = number_of(p, i, products ? 1 : 0, channel);
        if (products)
            numbers[count++] = number_of(p, i, 2, channel);
    }
    return total_of(numbers, count);
}

static double tree_of(const struct fl_parts *p, int which, int64_t channel) {
    double numbers[FL_MOST_TERMS];
    for (int i = 0; i < p->count; i++)
        numbers[i] = number_of(p, i, which, channel);
    return fl_tree_sum(numbers, p->count);
}

/* Adds x y to a list, exactly. */
static int add_product(double *list, int count, double x, double y) {
    const double high = x * y;
    list[count++] = high;
    list[count++] = fma(x, y, -high);
    return count;
}

/* n a - b c, rounded once. */
static double difference(double n, const struct total *a, const struct total *b, const struct total *c) {
    double list[2 * FL_PART_TERMS * (FL_PART_TERMS + 1)];
    int count = 0;
    for (int i = 0; i < a->count; i++)
        count = add_product(list, count, n, a->term[i]);
    for (int i = 0; i < b->count; i++)
        for (int k = 0; k < c->count; k++)
            count = add_product(list, count, -b->term[i], c->term[k]);
    return count ? fl_exact_mean(list, count, 1) : 0;
}

static void exact_moments(const struct fl_parts *p, int64_t channel, double *mean, double *variance, double *sum_of_x) {
    const struct total sum = add_parts(p, false, channel), squares = add_parts(p, true, channel);
    const double n = (double)p->rows;
    *mean = sum.count ? fl_exact_mean(sum.term, sum.count, (uint32_t)p->rows) : 0;
    *variance = difference(n, &squares, &sum, &sum) / (n * n);
    for (int k = 0; k < FL_PART_TERMS; k++)
        sum_of_x[k] = k < sum.count ? sum.term[k] : 0;
}

void fl_parts_moments(const struct fl_parts *p, double *mean, double *variance, double *sum_of_x) {
    for (int64_t c = 0; c < p->channels; c++)
        if (p->exact)
            exact_moments(p, c, &mean[c], &variance[c], sum_of_x + c * FL_PART_TERMS);
        else
            fl_float_moments(p->rows, tree_of(p, 0, c), tree_of(p, 1, c), &mean[c], &variance[c]);
}

/* As fl_exact_about_mean. */
static double exact_about_mean(const struct fl_parts *p, int64_t channel, double mean, const double *sum_of_x,
                               const struct total *dy) {
    const struct total products = add_parts(p, true, channel);
    const double n = (double)p->rows;
    struct total x = {{0}, 0};
    while (x.count < FL_PART_TERMS && sum_of_x[x.count] != 0) {
        x.term[x.count] = sum_of_x[x.count];
        x.count++;
    }
    const double rest = mean - rounded(&x) / n;
    return difference(n, &products, dy, &x) / n - rounded(dy) * rest;
}

void fl_parts_gradients(const struct fl_parts *p, const double *mean, const double *sum_of_x, double *sum_of_dy,
                        double *about_mean) {
    for (int64_t c = 0; c < p->channels; c++) {
        if (p->exact) {
            const struct total dy = add_parts(p, false, c);
            sum_of_dy[c] = rounded(&dy);
            about_mean[c] = exact_about_mean(p, c, mean[c], sum_of_x + c * FL_PART_TERMS, &dy);
        } else {
            sum_of_dy[c] = tree_of(p, 0, c);
            about_mean[c] = tree_of(p, 1, c) - mean[c] * sum_of_dy[c];
        }
    }
}
