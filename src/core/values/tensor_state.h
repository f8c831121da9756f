/* tensor_state.h - functions of tensors that networks need besides the public ones: their first predictor, state as
 * bytes, moving a tensor to other memory, and hiding it while others use its memory. */
#ifndef FL_TENSOR_STATE_H
#define FL_TENSOR_STATE_H

#include "flexlab/tensor.h"

/* The predictor with which the tensors of a format begin; NULL: they have no shared exponent. */
const char *fl_format_predictor(tensor_format format);

/* The state of a tensor as bytes: exponent and its history, statistics, number of writes; with `elements`, elements and
 * wide part too. The layout is that of this machine's memory and of this version. Waits for a device. */
size_t fl_state_bytes(const tensor *t, bool elements);
tensor_status fl_state_get(const tensor *t, bool elements, void *bytes);
/* TENSOR_E_DATA if the bytes cannot be a state of such a tensor; nothing changes. */
tensor_status fl_state_check(const tensor *t, bool elements, const void *bytes);
/* TENSOR_E_DATA if an element in the bytes, or of the wide part, is below 0; for variances and roots. */
tensor_status fl_state_check_sign(const tensor *t, const void *bytes);
/* Sets the state from checked bytes; predictor and role remain the tensor's own. */
tensor_status fl_state_set(tensor *t, bool elements, const void *bytes);

/* The sizes of the parts of such bytes: the slot, then the elements, then the wide part; 0: none. */
struct fl_state_sizes {
    size_t slot, elements, wide;
};
struct fl_state_sizes fl_state_sizes(const tensor *t);
/* A slot as numbers with the same meaning on every machine and in every version: docs/checkpoints.md has their order.
 */
enum { FL_SLOT_WHOLE = 25, FL_SLOT_REAL = AUTOFLEX_WINDOW + 3, FL_SLOT_ELEMENTS = 17 /* of the last write */ };
void fl_slot_to_numbers(const void *slot, int64_t whole[FL_SLOT_WHOLE], double real[FL_SLOT_REAL]);
/* TENSOR_E_DATA for a number that no slot can have; fl_state_check then compares the slot with its tensor. */
tensor_status fl_slot_from_numbers(void *slot, const int64_t whole[FL_SLOT_WHOLE], const double real[FL_SLOT_REAL]);

/* Moves a tensor in memory of its caller, with its views, to other memory of the same size and alignment, on the same
 * device. It copies nothing. */
void fl_tensor_place(tensor *t, void *memory);
/* A tensor in the memory of another one, which outlives it, with an exponent and statistics of its own. NULL on
 * failure, with tensor_error() set. */
tensor *fl_tensor_beside(const tensor *other);
/* While a tensor is hidden, functions that read its elements fail with TENSOR_E_ARGUMENT, because another tensor uses
 * their memory. */
void fl_tensor_hide(tensor *t, bool hidden);

#endif
