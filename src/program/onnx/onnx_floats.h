/* onnx_floats.h - which values of a network are floats, without knowing the shapes of a run. */
#ifndef FL_ONNX_FLOATS_H
#define FL_ONNX_FLOATS_H

#include "flexlab/status.h"
#include <stdbool.h>

struct fl_network;

/* is_float has an element for each value. */
void fl_onnx_floats(const struct fl_network *n, bool *is_float);

#endif
