/* onnx_names.h - which value a name stands for, graph by graph: the graphs of If, Loop and Scan see the names of those
 * around them, and ONNX lets none of them use such a name for a value of its own. Also the numbers that ONNX has for
 * types of elements. */
#ifndef FL_ONNX_NAMES_H
#define FL_ONNX_NAMES_H

#include "flexlab/tensor.h"
#include <stddef.h>
#include <stdint.h>

struct fl_onnx_name;
/* Zeroed memory is a table without names. */
struct fl_onnx_names {
    struct fl_onnx_name *names;
    int32_t *heads;
    size_t count, room, head_count;
};

/* The value of a name that is visible; -1: there is none. */
int fl_onnx_names_find(const struct fl_onnx_names *t, const char *name);
/* Adds a name, whose text the caller keeps, that is not there yet. TENSOR_E_MEMORY. */
tensor_status fl_onnx_names_add(struct fl_onnx_names *t, const char *name, int value);
/* Forgets all names after the first `count`: those of a graph that ends. */
void fl_onnx_names_leave(struct fl_onnx_names *t, size_t count);
void fl_onnx_names_free(struct fl_onnx_names *t);

#endif
