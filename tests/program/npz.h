/* npz.h - arrays of floats and bytes in the .npz files of numpy (NEP 1), which hold the recorded inputs and outputs of
 * networks. */
#ifndef FL_TEST_NPZ_H
#define FL_TEST_NPZ_H

#include "core/base/memory.h"
#include "data/data_inflate.h"
#include "data/data_zip.h"
#include "flexlab/program.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The shape in the header of a member: "'shape': (8, 3, 48, 192), ". */
static inline bool npz_shape(program_array *a, const char *header) {
    const char *at = strstr(header, "'shape': (");
    a->type = strstr(header, "'descr': '<f4'")   ? TENSOR_TYPE_F32
              : strstr(header, "'descr': '|i1'") ? TENSOR_TYPE_I8
              : strstr(header, "'descr': '|u1'") ? TENSOR_TYPE_U8
                                                 : (tensor_type)0;
    if (!at || !a->type || !strstr(header, "'fortran_order': False"))
        return false;
    a->ndim = 0;
    for (at += strlen("'shape': ("); *at && *at != ')' && a->ndim < PROGRAM_MAX_DIMS; at += strspn(at, ", ")) {
        char *end;
        a->shape[a->ndim++] = strtoll(at, &end, 10);
        if (end == at)
            return false;
        at = end;
    }
    return *at == ')';
}

/* Reads a member, of floats or bytes; its data is to be freed with fl_free. False: it is not there, or no such array.
 */
static inline bool npz_read(program_array *a, const struct fl_data_zip *zip, const char *member) {
    struct fl_data_stream s;
    char header[1024] = {0};
    uint8_t head[10];
    *a = (program_array){.ndim = 0};
    if (!fl_data_zip_has(zip, member))
        return false;
    bool good = !fl_data_zip_member(zip, member, &s) && !fl_data_stream_read(&s, "a header", head, sizeof head);
    const int64_t length = good ? head[8] + 256 * head[9] : 0;
    good = good && head[6] == 1 && length < (int64_t)sizeof header &&
           !fl_data_stream_read(&s, "a header", header, length) && npz_shape(a, header);
    int64_t bytes = a->type == TENSOR_TYPE_F32 ? 4 : 1;
    for (int d = 0; d < a->ndim; d++)
        bytes *= a->shape[d];
    uint8_t *memory = NULL;
    good = good && !fl_data_stream_take(&s, "an array", bytes, &memory) && !fl_data_stream_end(&s);
    a->data = memory;
    fl_data_inflate_free(s.inflate);
    return good;
}

#endif
