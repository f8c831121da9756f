/* tflite_reader.h - what the parts of the reader share: tflite_read.c has file and tensors, tflite_nodes.c the
 * operators, tflite_batch.c the batch. */
#ifndef FL_TFLITE_READER_H
#define FL_TFLITE_READER_H

#include "program/network/network.h"
#include "program/tflite/tflite_tables.h"

struct fl_tflite_reader {
    struct fl_network *n;
    const unsigned char *bytes;
    size_t size;
    uint64_t taken; /* bytes of lists, texts and constants so far: fl_tflite_take */
    struct fl_tflite_model model;
    void **copies;  /* of each buffer, when a constant has it */
    bool *made;     /* of each tensor: an input, or the result of an operator */
    int *depthwise; /* of each tensor: 1 + the value of its filter in the order of Conv; 0: none yet */
};

/* Counts bytes of the file that the network gets. Each is counted once in an honest file; one whose tables all name the
 * same long list must not be given memory for each of them. */
tensor_status fl_tflite_take(struct fl_tflite_reader *r, uint64_t bytes);

/* TENSOR_E_UNSUPPORTED with all operators that fl_tflite_add_node does not know. */
tensor_status fl_tflite_survey(struct fl_tflite_reader *r);
/* Adds the nodes of an operator, whose operands and results are in range. */
tensor_status fl_tflite_add_node(struct fl_tflite_reader *r, uint32_t i);

/* A constant of the network with a name of that base and ending; values of int64, or as they are. -1 without memory. */
int fl_tflite_add_ints(struct fl_network *n, const char *base, const char *ending, int count, const int64_t *values);
int fl_tflite_add_constant(struct fl_network *n, const char *base, const char *ending, tensor_type type, int ndim,
                           const int64_t *dim, const void *data);

/* After fl_net_check: dimensions that are open become -1, and shapes that are told stay right for any batch. */
tensor_status fl_tflite_open_batch(struct fl_tflite_reader *r);

#endif
