/* softmax_portable.c - rows of softmax with cross-entropy, in plain C. */
#define SOFTMAX_ROWS fl_softmax_portable
#define EXPONENTIALS fl_exponentials_portable
#include "core/losses/softmax_rows.inc"
