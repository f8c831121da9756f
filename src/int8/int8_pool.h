/* int8_pool.h - windows, which convolutions and pooling share. */
#ifndef FL_INT8_POOL_H
#define FL_INT8_POOL_H

#include "int8/int8_rules.h"

/* The window with its zeros made ones, if it is one. */
tensor_status int8_window(const struct fl_int8_window *given, struct fl_int8_window *window);

#endif
