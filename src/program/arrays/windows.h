/* windows.h - the geometry of convolutions and poolings. */
#ifndef FL_PROGRAM_WINDOWS_H
#define FL_PROGRAM_WINDOWS_H

#include "program/arrays/arrays.h"

enum { FL_SPATIAL = FL_ARRAY_DIMS - 2 }; /* most dimensions of an image */

/* The geometry of a node's windows on operands of given shapes. */
struct fl_windows {
    int spatial; /* 1 to FL_SPATIAL */
    int64_t batch, channels, size[FL_SPATIAL], result[FL_SPATIAL];
    int64_t window[FL_SPATIAL], stride[FL_SPATIAL], dilation[FL_SPATIAL], begin[FL_SPATIAL], end[FL_SPATIAL],
        output_padding[FL_SPATIAL];
    int64_t beyond[FL_SPATIAL]; /* the part of `end` that no attribute states: ceil_mode wants it for its last window */
    int64_t group, filters;
};

/* Batch, channels and sizes of an image [N, C, ...] or [N, ..., C]. */
tensor_status fl_windows_image(struct fl_windows *g, const struct fl_net_node *node, const struct fl_array *x);
/* b: NULL where there is no bias. */
tensor_status fl_windows_convolution(struct fl_windows *g, const struct fl_net_node *node, const struct fl_array *x,
                                     const struct fl_array *w, const struct fl_array *b);
tensor_status fl_windows_transposed(struct fl_windows *g, const struct fl_net_node *node, const struct fl_array *x,
                                    const struct fl_array *w);
tensor_status fl_windows_pool(struct fl_windows *g, const struct fl_net_node *node, const struct fl_array *x);
/* Their parts: strides, dilations and padding of images whose number of dimensions is known; those and the windows of a
 * pooling; padding by rule and the number of windows, from sizes and all of these. */
tensor_status fl_windows_steps(struct fl_windows *g, const struct fl_net_node *node);
tensor_status fl_windows_pool_steps(struct fl_windows *g, const struct fl_net_node *node, const struct fl_array *x);
tensor_status fl_windows_count(struct fl_windows *g, const struct fl_net_node *node);
/* The shape [N, K, ...] or [N, ..., K] of a result. */
tensor_status fl_windows_set(struct fl_array *y, tensor_type type, const struct fl_net_node *node,
                             const struct fl_windows *g, int64_t channels);

/* convolutions.c: y [N, K, ...] (or channels last) of x and w, sums of double that begin with the bias (NULL: none): of
 * integers of up to 16 bits they are exact. Threads share the work. */
void fl_convolve(const struct fl_windows *g, const struct fl_net_node *node, bool transposed, const double *x,
                 const double *w, const double *bias, double *y);
/* All elements of x as doubles, in memory that *memory owns, or x's own where that is NULL; fl_free(*memory). */
tensor_status fl_as_doubles(const struct fl_array *x, const double **numbers, void **memory);
/* Applies the activation that the node has (lower/lower.h) to its first result. */
tensor_status fl_activate(const struct fl_arrays *a);

#endif
