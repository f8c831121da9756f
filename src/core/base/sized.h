/* sized.h - structs of the caller that may be older or newer than this library: docs/decisions/0014-growing-structs.md.
 *
 * The public headers pass the size that the caller was compiled with. Fields are only ever added at the end. */
#ifndef FL_SIZED_H
#define FL_SIZED_H

#include "flexlab/status.h"
#include <stddef.h>

enum { FL_SIZE_LIMIT = 4096 }; /* of a struct of the caller: larger is a mistake */

/* Copies the caller's struct `given` of `given_size` bytes into ours of `size`. What an older caller does not know is
 * zero; a newer caller's fields that we do not know must be zero, else TENSOR_E_ARGUMENT names both sizes. `what` names
 * the struct and who asks: "graph: nn_config". given is not NULL. */
tensor_status fl_take_sized(void *ours, size_t size, const void *given, size_t given_size, const char *what);

/* TENSOR_E_ARGUMENT where given_size cannot be the size of a struct; for results, before work begins. */
tensor_status fl_check_sized(size_t given_size, const char *what);

/* Copies our result into the caller's struct: what an older caller does not know is left out, a newer caller's fields
 * that we do not know become zero. */
void fl_give_sized(void *given, size_t given_size, const void *ours, size_t size);

#endif
