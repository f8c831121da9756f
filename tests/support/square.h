/* square.h - windows that are the same in both directions and on all sides, as tests draw them. */
#ifndef FL_TESTS_SQUARE_H
#define FL_TESTS_SQUARE_H

#include "flexlab/tensor.h"

struct square {
    int window, stride, padding, dilation, groups;
};

/* The address of such a window, for a call; of a convolution, whose window is that of its filters. */
#define SQUARE(how) SQUARE_OF(how, (how).window)
#define STEPS(how) SQUARE_OF(how, 0)
#define SQUARE_OF(how, side)                                                                                           \
    (&(const tensor_window){TENSOR_SQUARE(side, (how).stride, (how).padding),                                          \
                            .dilation = {(how).dilation, (how).dilation}, .groups = (how).groups})

#endif
