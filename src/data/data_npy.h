/* data_npy.h - the array files of NumPy (NEP 1): versions 1.0, 2.0 and 3.0. */
#ifndef FL_DATA_NPY_H
#define FL_DATA_NPY_H

#include "data/data_stream.h"

enum { FL_NPY_DIMS = 4 };

struct fl_npy {
    char kind;       /* 'u' or 'i' */
    int bytes;       /* of an element: 1, 2, 4 or 8 */
    bool big_endian; /* only meaningful for several bytes */
    bool fortran;    /* the first index runs fastest */
    int dims;        /* 1 to FL_NPY_DIMS */
    int64_t dim[FL_NPY_DIMS];
    int64_t elements; /* their product; times `bytes`, the rest of the stream */
};

/* Reads the header. Refuses anything except an array of integers that fills the rest of the file exactly, before it
 * reads or allocates elements. */
tensor_status fl_npy_header(struct fl_npy *array, struct fl_data_stream *s);

#endif
