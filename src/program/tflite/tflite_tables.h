/* tflite_tables.h - the tables of a .tflite file as plain structs. tflite_tables.cpp fills them in with the accessors
 * that flatc makes of tflite.fbs; all else is C. Pointers point into the file's bytes, which must be verified first,
 * begin at a multiple of 64 and stay where they are. Lists that a file leaves out are empty, texts "". */
#ifndef FL_TFLITE_TABLES_H
#define FL_TFLITE_TABLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct fl_tflite_ints {
    const int32_t *at;
    uint32_t count;
};

struct fl_tflite_text {
    const char *at; /* ends with a zero */
    uint32_t length;
};

struct fl_tflite_model {
    const void *model, *graph; /* graph: the first one; NULL: there is none */
    uint32_t version, graphs, buffers, tensors, operators;
    struct fl_tflite_ints inputs, outputs;
    struct fl_tflite_text description;
};

struct fl_tflite_tensor {
    struct fl_tflite_text name;
    int type;
    uint32_t buffer;
    struct fl_tflite_ints shape, signature;
    uint32_t scale_count, zero_count;
    const float *scale;
    const unsigned char *zero; /* int64 each, at any address: FlatBuffers does not verify where they begin */
    int axis;
    bool sparse, variable, other_quantisation;
};

/* bytes: NULL for a buffer that lies at an offset of the file, or has no data. */
struct fl_tflite_buffer {
    const unsigned char *bytes;
    uint64_t count, offset, size;
};

/* The members that an operator of that kind has; the others are 0. */
struct fl_tflite_options {
    const char *kind; /* a name of the union Options; "NONE" where there are no options, "" for others */
    int padding, activation, stride_h, stride_w, dilation_h, dilation_w, filter_h, filter_w, multiplier;
    int weights_format, axis, begin_mask, end_mask, ellipsis_mask, new_axis_mask, shrink_axis_mask;
    bool keep_dims, asymmetric, align_corners, half_pixel, offset;
    float beta, alpha;
    struct fl_tflite_ints list; /* the shape of Reshape, the axes of Squeeze */
};

struct fl_tflite_operator {
    const char *name;             /* "CONV_2D"; "" for a code that is not known */
    int64_t code;                 /* -1: the model has no such entry */
    struct fl_tflite_text custom; /* of CUSTOM */
    struct fl_tflite_ints inputs, outputs;
    struct fl_tflite_options options;
};

/* Whether every table, list and text lies within these bytes, fewer than 2^31. */
bool fl_tflite_verify(const unsigned char *bytes, size_t count);
void fl_tflite_get_model(const unsigned char *bytes, struct fl_tflite_model *model);
/* i must be below the number that the model says. */
void fl_tflite_get_tensor(const struct fl_tflite_model *model, uint32_t i, struct fl_tflite_tensor *tensor);
void fl_tflite_get_buffer(const struct fl_tflite_model *model, uint32_t i, struct fl_tflite_buffer *buffer);
void fl_tflite_get_operator(const struct fl_tflite_model *model, uint32_t i, struct fl_tflite_operator *op);

#ifdef __cplusplus
}
#endif
#endif
