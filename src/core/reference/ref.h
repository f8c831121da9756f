/* ref.h - what the reference kernels share.
 *
 * Reference kernels are the definition of every operation, for every format, through its codec in double. They favour
 * clarity over speed: operands are decoded whole, results computed as the definition says, encoded with one rounding.
 * Nothing here is threaded. */
#ifndef FL_REF_H
#define FL_REF_H

#include "core/table/mixed.h"

struct ref_work {
    const struct fl_args *args;
    double *in[3]; /* operands, exactly */
    double *value; /* results: exact, or rounded to odd where 53 bits do not hold them */
    double *near;  /* the same rounded to nearest: where the true maximum is taken from */
    int64_t count; /* results */
    void *rest;    /* what fl_ref_begin_with was asked for besides */
};

/* Decodes the operands of args that have data, into the workspace. */
tensor_status fl_ref_begin(struct ref_work *w, const struct fl_args *args);
/* The same with `more` bytes of workspace, 64-byte aligned; the workspace without those. */
tensor_status fl_ref_begin_with(struct ref_work *w, const struct fl_args *args, size_t more);
size_t fl_ref_bytes(const struct fl_args *args);
/* Encodes the results, if the operation has any, and fills the statistics. */
void fl_ref_end(const struct ref_work *w);

static inline bool fl_ref_shared(const struct fl_args *args) {
    return args->format->arithmetic == FL_ARITHMETIC_SHARED;
}

/* The definition of a map as functions of (a or x, b, c, alpha), c the second scalar where there is one: odd, exact or
 * rounded to odd; near gives the exact maximum, and in FL_REAL entries the results rounded to nearest or towards
 * zero (real_rules.h). */
struct fl_map_functions {
    double (*odd)(double a, double b, double c, double alpha);
    double (*near)(double a, double b, double c, double alpha);
};
struct fl_map_functions fl_map_functions_of(enum fl_op op);

tensor_status fl_ref_map(const struct fl_args *args);
tensor_status fl_ref_bias(const struct fl_args *args);
tensor_status fl_ref_matmul(const struct fl_args *args);
tensor_status fl_ref_conv(const struct fl_args *args);
tensor_status fl_ref_maxpool(const struct fl_args *args);
tensor_status fl_ref_avgpool(const struct fl_args *args);
tensor_status fl_ref_shortcut(const struct fl_args *args);
tensor_status fl_ref_fold(const struct fl_args *args);
tensor_status fl_ref_affine(const struct fl_args *args);
tensor_status fl_ref_sgd(const struct fl_args *args);
tensor_status fl_ref_root_mean(const struct fl_args *args);
tensor_status fl_ref_add_ratio(const struct fl_args *args);
tensor_status fl_ref_clip_weight(const struct fl_args *args);

/* softmax_map.c */
/* embedding.c; check_indices serves every backend. */
/* copies.c */
/* cells.c */
/* avgpool.c, lrn.c, dropout.c */
tensor_status fl_ref_avgpool_window(const struct fl_args *args);

/* axes.c */
/* broadcast.c */

/* channel_numbers.c: numbers of channels, a fixed sequence of double operations; they serve every backend. */
tensor_status fl_channel_moments(const struct fl_args *args);
tensor_status fl_running_statistics(const struct fl_args *args);
tensor_status fl_affine_coefficients(const struct fl_args *args);
tensor_status fl_affine_grad_coefficients(const struct fl_args *args);

/* optimiser_numbers.c: likewise. */
tensor_status fl_sum_squares(const struct fl_args *args);
size_t fl_sum_squares_need(const struct fl_args *args);
tensor_status fl_optimiser_numbers(const struct fl_args *args);
tensor_status fl_trust_number(const struct fl_args *args);

#endif
