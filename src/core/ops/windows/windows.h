/* windows.h - windows of convolutions and poolings as scalars of a function, and as callers give them. */
#ifndef FL_WINDOWS_H
#define FL_WINDOWS_H

#include "core/ops/operation.h"
#include "flexlab/tensor_blocks.h"

/* Which numbers of a window are scalars of a function. */
struct fl_window_layout {
    int dims; /* 1: sequences, which are images of height 1: only the numbers across */
    enum { FL_CONVOLUTION, FL_TRANSPOSED, FL_POOLING, FL_MEANS } kind;
};

/* Windows of a call; numbers without a scalar have their defaults. */
struct fl_windows_given {
    const char *name; /* of the function */
    int dims;
    tensor_window how;
};

struct fl_windows_given fl_windows_given(struct fl_window_layout layout, const union fl_value *scalars,
                                         const char *name);

/* Calls the function with `how` (NULL: stride 1, no padding) in its scalars, and after them `last`. filters: those of a
 * convolution. */
tensor_status fl_invoke_windows(const struct fl_function *function, struct fl_window_layout layout,
                                const tensor *const *tensors, const tensor_window *how, const tensor *filters,
                                bool last);

/* Pixels that so many positions of a window reach over. */
static inline int64_t fl_window_reach(const struct fl_windows_given *v, int way, int64_t positions) {
    return (positions - 1) * v->how.dilation[way] + 1;
}
/* Places of a window on `length` elements and their padding; 0 if it does not fit. */
int64_t fl_window_count(const struct fl_windows_given *v, int way, int64_t length, int64_t size);

/* The scalars, with a member of struct fl_args that is a struct fl_windows; in this order: SIDES (of poolings), STEPS,
 * DILATION (not of means), GROUPS (of convolutions), OUTPUT_PADDING (of transposed ones). */
#define FL_WINDOW_NUMBER(text, from, place)                                                                            \
    { text, FL_INT32, from, TENSOR_WINDOW_STEP_LIMIT, .at = FL_AT(place) }
#define FL_WINDOW_SIZE(text)                                                                                           \
    { text, FL_INT32, 0, TENSOR_WINDOW_STEP_LIMIT }
#define FL_WINDOW_SIDE(text)                                                                                           \
    { text, FL_INT32, 1, TENSOR_WINDOW_LIMIT }
#define FL_SIDES_2D FL_WINDOW_SIDE("window_height"), FL_WINDOW_SIDE("window_width")
#define FL_SIDES_1D FL_WINDOW_SIDE("window")
#define FL_STEPS_2D(w)                                                                                                 \
    FL_WINDOW_NUMBER("stride_down", 1, w.stride[0]), FL_WINDOW_NUMBER("stride_across", 1, w.stride[1]),                \
        FL_WINDOW_NUMBER("padding_top", 0, w.padding[0]), FL_WINDOW_SIZE("padding_bottom"),                            \
        FL_WINDOW_NUMBER("padding_left", 0, w.padding[1]), FL_WINDOW_SIZE("padding_right")
#define FL_STEPS_1D(w)                                                                                                 \
    FL_WINDOW_NUMBER("stride", 1, w.stride[1]), FL_WINDOW_NUMBER("padding_left", 0, w.padding[1]),                     \
        FL_WINDOW_SIZE("padding_right")
#define FL_DILATION_2D(w)                                                                                              \
    FL_WINDOW_NUMBER("dilation_down", 1, w.dilation[0]), FL_WINDOW_NUMBER("dilation_across", 1, w.dilation[1])
#define FL_DILATION_1D(w) FL_WINDOW_NUMBER("dilation", 1, w.dilation[1])
#define FL_GROUPS(w)                                                                                                   \
    { "groups", FL_INT32, 1, INT32_MAX, .at = FL_AT(w.groups) }
#define FL_OUTPUT_PADDING_2D FL_WINDOW_SIZE("output_padding_down"), FL_WINDOW_SIZE("output_padding_across")
#define FL_OUTPUT_PADDING_1D FL_WINDOW_SIZE("output_padding")

/* Text of numbers for messages: down and across, or one number if they are equal; for sizes always both. */
enum { FL_NUMBERS_TEXT = 64 };
const char *fl_pair_text(char to[FL_NUMBERS_TEXT], int dims, int64_t down, int64_t across);
const char *fl_steps_text(char to[FL_NUMBERS_TEXT], int dims, const int v[2]);
const char *fl_size_text(char to[FL_NUMBERS_TEXT], int dims, int64_t down, int64_t across);
const char *fl_padding_text(char to[FL_NUMBERS_TEXT], int dims, const int v[4]);

#endif
