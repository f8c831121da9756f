/* softmax_portable.c - rows of softmax with cross-entropy, in plain C. */
#define FL_ISA portable
#include "core/ops/losses/softmax_rows.inc"
