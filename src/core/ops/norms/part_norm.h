/* part_norm.h - batch normalisation of a batch that lies in several parts (the shards of a step): the sums of each and
 * the gradient of a part, on the device of the tensors; the moments and sums of all, on the host. Of one format and of
 * one exponent of all parts, the results are those of the whole batch (tensor_moments, tensor_batchnorm_grad). */
#ifndef FL_PART_NORM_H
#define FL_PART_NORM_H

#include "core/tensor/tensor_object.h"

#define FL_PART_NORM_ROWS 0xffffffff /* of the whole batch, at most */

/* The sums of a part, exact in real units under a shared exponent: 3 C doubles, of x; of x^2, in two doubles each. */
tensor_status fl_part_sums(tensor *sums, const tensor *x);
/* The same of dy and of dy x, where y is above zero; y may be NULL. */
tensor_status fl_part_grad_sums(tensor *sums, const tensor *dy, const tensor *x, const tensor *y);

/* The sums of all parts: `sums` are their 3 C doubles, one after the other. exact: they are exact, and are added so;
 * else a tree of doubles adds them (fl_tree_sum). */
struct fl_parts {
    const double *sums;
    int count;
    int64_t channels, rows; /* of all parts */
    bool exact;
};
enum { FL_PART_TERMS = 12 /* doubles that hold a sum exactly */ };
/* Moments, and FL_PART_TERMS doubles for each channel, whose sum is that of x. */
void fl_parts_moments(const struct fl_parts *parts, double *mean, double *variance, double *sum_of_x);
/* Of grad sums: the sum of dy, and of dy (x - mean). */
void fl_parts_gradients(const struct fl_parts *parts, const double *mean, const double *sum_of_x, double *sum_of_dy,
                        double *about_mean);

/* tensor_batchnorm_grad of a part: dx as of the whole batch of so many rows, with these sums; dgamma and dbeta of the
 * part. */
tensor_status fl_part_grad(tensor *dx, tensor *dgamma, tensor *dbeta, const tensor *dy, const tensor *x,
                           const tensor *y, const tensor *gamma, const tensor *mean, const tensor *variance,
                           const tensor *sum_of_dy, const tensor *about_mean, double epsilon, int64_t rows);

/* tensor_running_statistics of a batch of so many rows, of which x has some. */
tensor_status fl_part_running_statistics(tensor *running_mean, tensor *running_variance, const tensor *mean,
                                         const tensor *variance, const tensor *x, double momentum, int64_t rows);

#endif
