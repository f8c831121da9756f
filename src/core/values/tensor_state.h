/* tensor_state.h - what else a network needs of tensors than the public functions: their state as bytes, and that
 * memory which others have reused cannot be misread, and where their memory is. */
#ifndef FL_TENSOR_STATE_H
#define FL_TENSOR_STATE_H

#include "flexlab/tensor.h"

/* The state of a tensor as bytes: exponent and its history, statistics, number of writes; with `elements`, elements and
 * wide part too. The layout is that of this machine's memory and of this version. Waits for a device. */
size_t fl_state_bytes(const tensor *t, bool elements);
tensor_status fl_state_get(const tensor *t, bool elements, void *bytes);
/* TENSOR_E_DATA where the bytes cannot be a state of such a tensor; nothing is changed. */
tensor_status fl_state_check(const tensor *t, bool elements, const void *bytes);
/* TENSOR_E_DATA where an element of those bytes, or of its wide part, is below 0: of a variance, or a root. */
tensor_status fl_state_check_sign(const tensor *t, const void *bytes);
/* Checked bytes become the state; the tensor keeps its own predictor. */
tensor_status fl_state_set(tensor *t, bool elements, const void *bytes);

/* The sizes of the parts of such bytes: the slot, then the elements, then the wide part; 0: none. */
struct fl_state_sizes {
    size_t slot, elements, wide;
};
struct fl_state_sizes fl_state_sizes(const tensor *t);
/* A slot as numbers that mean the same on every machine and in every version: docs/checkpoints.md has their order. */
enum { FL_SLOT_WHOLE = 25, FL_SLOT_REAL = AUTOFLEX_WINDOW + 3, FL_SLOT_ELEMENTS = 17 /* of the last write */ };
void fl_slot_to_numbers(const void *slot, int64_t whole[FL_SLOT_WHOLE], double real[FL_SLOT_REAL]);
/* TENSOR_E_DATA where a number is none that a slot can have; fl_state_check then looks at the slot with its tensor. */
tensor_status fl_slot_from_numbers(void *slot, const int64_t whole[FL_SLOT_WHOLE], const double real[FL_SLOT_REAL]);

/* y = x in y's format, as an operation writes it: a shared exponent follows its predictor and its history, NaN becomes
 * 0 and Inf the largest mantissa, and both count. Else as tensor_convert. */
tensor_status fl_tensor_rewrite(tensor *y, const tensor *x);

/* Gives a tensor on memory of its caller other memory: as large and as aligned as that before, and on the device. Views
 * go with it. */
void fl_tensor_place(tensor *t, void *memory);
/* While it is hidden, what would read the elements fails with TENSOR_E_ARGUMENT: another tensor has their memory. */
void fl_tensor_hide(tensor *t, bool hidden);

#endif
