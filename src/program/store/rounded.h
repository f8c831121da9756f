/* rounded.h - constants in the format of the nodes that read them: which are rounded whole, and what rounding makes of
 * them. */
#ifndef FL_PROGRAM_ROUNDED_H
#define FL_PROGRAM_ROUNDED_H

#include "program/network/network.h"
#include "flexlab/tensor.h"

enum { FL_USE_FORMATS = 16 };

/* How nodes read a constant of floats: rounded to formats other than fp32, each with the first node that does; plain:
 * somebody also reads the float32 numbers. */
struct fl_constant_use {
    int count;
    tensor_format format[FL_USE_FORMATS];
    const struct fl_net_node *node[FL_USE_FORMATS];
    bool plain;
};
/* One for each value of the network, to be freed with fl_free; NULL, with tensor_error(), without memory. Rounded are
 * the factors and biases of convolutions and products, which alone have many numbers: every way of computing these
 * reads them so (lower/windows.c, lower/products.c). */
struct fl_constant_use *fl_constant_uses(const struct fl_network *n);

/* The numbers of a constant as a tensor of a format, with an exponent by the largest. */
struct fl_rounded {
    tensor *t;
    tensor_stats stats;
    float *numbers;
};
tensor_status fl_round(struct fl_rounded *r, const struct fl_array *a, tensor_format format);
void fl_round_end(struct fl_rounded *r);
/* Whether the format has exactly the rounded numbers again, of float32, if they are rounded once more. */
tensor_status fl_round_is_stable(bool *stable, const struct fl_rounded *r, int64_t count);

#endif
