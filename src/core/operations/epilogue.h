/* epilogue.h - what joins the sums of products, as the public operations take it. */
#ifndef FL_EPILOGUE_H
#define FL_EPILOGUE_H

#include "core/table/kernel.h"
#include "flexlab/tensor.h"

/* The caller's epilogue; NULL: none. what: the operation and the struct, in messages. */
tensor_status fl_take_epilogue(tensor_epilogue *ours, const tensor_epilogue *with, size_t size, const char *what);

/* Checks what joins the sums of y, whose shape is right, and notes it in args. */
tensor_status fl_join_epilogue(const char *name, const tensor *y, const tensor_epilogue *with, struct fl_args *args);

#endif
