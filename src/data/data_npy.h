/* data_npy.h - the array files of NumPy (NEP 1): versions 1.0, 2.0 and 3.0. */
#ifndef FL_DATA_NPY_H
#define FL_DATA_NPY_H

#include "data/data_stream.h"

enum { FL_NPY_DIMS = 8 };

struct fl_npy {
    char kind;       /* 'u' or 'i'; 'f' or 'b' where any numbers are read */
    int bytes;       /* of an element: 1, 2, 4 or 8 */
    bool big_endian; /* only meaningful for several bytes */
    bool fortran;    /* the first index runs fastest */
    int dims;        /* 0 to FL_NPY_DIMS */
    int64_t dim[FL_NPY_DIMS];
    int64_t elements; /* their product; times `bytes`, the rest of the stream */
};

/* What a reader accepts: images and labels are integers in 1 to 4 dimensions without an empty one; or numbers of any
 * type and shape. */
enum fl_npy_what { FL_NPY_SAMPLES, FL_NPY_NUMBERS };

/* Reads the header. Anything but an array of what is accepted, with as many elements as bytes follow, is refused: no
 * element has been read, and no memory for one was asked for. */
tensor_status fl_npy_header(struct fl_npy *array, struct fl_data_stream *s, enum fl_npy_what what);

#endif
