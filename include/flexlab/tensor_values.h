/* tensor_values.h - loads and stores, conversion, exponents; how a tensor is written: predictor, rounding, wide part.
 * Part of tensor.h, whose conventions hold. */
#ifndef FLEXLAB_TENSOR_VALUES_H
#define FLEXLAB_TENSOR_VALUES_H

#include "flexlab/api.h"
#include "flexlab/autoflex.h"
#include "flexlab/tensor_life.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- values in and out -------------------------------------------------------------------------------------------- */

/* Load count values, each rounded once (to nearest, ties to even); count must be tensor_count(t). A tensor of a
 * shared-exponent format first takes e = 14 - floor(log2 max|x|), floats the largest e at which the maximum fits, and
 * starts its history anew; it refuses NaN and Inf (TENSOR_E_ARGUMENT with the position). If t has a wide part, each
 * value is rounded once to the width of the wide part, and the element is the rounding of that. The values must not lie
 * in t's own memory. */
FLEXLAB_API tensor_status tensor_load_f32(tensor *t, const float *values, int64_t count);
FLEXLAB_API tensor_status tensor_load_f64(tensor *t, const double *values, int64_t count);
/* Load and store the numbers of FMT_I32 and FMT_U8 unchanged; tensor_load_f64 and tensor_load_f32 load those of FMT_F64
 * and FMT_F32. A load of numbers is a copy; tensor_convert brings them into a format. */
FLEXLAB_API tensor_status tensor_load_i32(tensor *t, const int32_t *values, int64_t count);
FLEXLAB_API tensor_status tensor_load_u8(tensor *t, const uint8_t *values, int64_t count);
FLEXLAB_API tensor_status tensor_store_i32(const tensor *t, int32_t *values, int64_t count);
/* Types of the numbers in arrays of the host. */
typedef enum tensor_type {
    TENSOR_TYPE_BOOL = 1, /* bool: bytes of 0 and 1 */
    TENSOR_TYPE_I8 = 2,
    TENSOR_TYPE_U8 = 3,
    TENSOR_TYPE_I16 = 4,
    TENSOR_TYPE_U16 = 5,
    TENSOR_TYPE_I32 = 6,
    TENSOR_TYPE_U32 = 7,
    TENSOR_TYPE_I64 = 8,
    TENSOR_TYPE_U64 = 9,
    TENSOR_TYPE_F16 = 10,  /* _Float16, or words of binary16 */
    TENSOR_TYPE_BF16 = 11, /* words of bfloat16 */
    TENSOR_TYPE_F32 = 12,
    TENSOR_TYPE_F64 = 13
} tensor_type;
/* tensor_load_f64 from an array of any type, into a tensor of a format: each number is rounded once, 64-bit integers
 * too. TENSOR_E_ARGUMENT for another type. */
FLEXLAB_API tensor_status tensor_load_array(tensor *t, const void *values, tensor_type type, int64_t count);
/* Fill t with one value, or with numbers of the counter-based generator. They are loads of numbers made on t's device,
 * with the rounding and exponent of a load. Element i depends on (key, counter, i) only, so that all devices, formats
 * and thread counts round the same real numbers. Uniform: low + (high - low) u in double, where u is a multiple of
 * 2^-53 below 1. Normal: mean + deviation z, where z is normal by Marsaglia's polar method in double.
 * TENSOR_E_ARGUMENT if a bound is not finite, low is above high, or the deviation is below 0; value may be anything
 * that a load accepts. */
FLEXLAB_API tensor_status tensor_fill(tensor *t, double value);
FLEXLAB_API tensor_status tensor_fill_uniform(tensor *t, double low, double high, uint64_t key, uint64_t counter);
FLEXLAB_API tensor_status tensor_fill_normal(tensor *t, double mean, double deviation, uint64_t key, uint64_t counter);
/* Loads images stored as bytes in one pass: element i of y, whose channel is c, takes values[c][pixels[i]] as
 * tensor_load_f32 would. pixels: u8, as many as y has elements; values: f32 [C, 256], the value of each byte in each
 * channel, such as (byte / 255 - mean) / deviation. */
FLEXLAB_API tensor_status tensor_load_pixels(tensor *y, const tensor *pixels, const tensor *values);
/* Augmentation as in a data loader (data.h): pad by four black pixels, crop at random, mirror with probability 1/2; the
 * draws depend on (seed, epoch, index of the image). */
typedef struct tensor_augmentation {
    uint64_t seed, epoch;
} tensor_augmentation;
/* Gathers a batch from a set of images on the same device: image n of images, u8 [N,H,W,C], and entry n of labels, i32
 * [N], are those of index indices[n] (i32 [N]) in set_images, u8 [M,H,W,C], and set_labels, i32 [M]. how NULL: without
 * augmentation. The bytes are those of a data loader with the same seed and epoch. An index out of range is
 * TENSOR_E_ARGUMENT: at once on the host, which then writes nothing; from the next wait on another device. */
FLEXLAB_API tensor_status tensor_gather_images(tensor *images, tensor *labels, const tensor *set_images,
                                               const tensor *set_labels, const tensor *indices,
                                               const tensor_augmentation *how);
/* Store count values. Doubles hold every 16-bit format and fp32 exactly; floats are rounded once (dfp16 values far
 * outside the range of binary32). */
FLEXLAB_API tensor_status tensor_store_f32(const tensor *t, float *values, int64_t count);
FLEXLAB_API tensor_status tensor_store_f64(const tensor *t, double *values, int64_t count);

/* Stores into an array of any type, aligned as that type requires. 16-bit floats: each value rounded once, to nearest
 * even. bool: whether the value is not 0. Integers: to nearest, ties to even; a value that the type cannot hold, or
 * NaN, is TENSOR_E_ARGUMENT with its position, and nothing is written. If saturated is not NULL, the least or largest
 * number of the type is stored instead (0 for NaN), and *saturated counts these elements. */
FLEXLAB_API tensor_status tensor_store_array(const tensor *t, void *values, tensor_type type, int64_t count,
                                             int64_t *saturated);

/* y = x in y's format, rounded once. The shapes must agree. A shared-exponent y takes its exponent as in a load, and
 * then refuses NaN and Inf in sources of fp32, fp16 and bf16. Between shared-exponent formats, values are exact if they
 * fit. */
FLEXLAB_API tensor_status tensor_convert(tensor *y, const tensor *x);
/* The same for a shared-exponent y at a given exponent: one pass over x, counted as an ordinary write. NaN becomes zero
 * (or stays, in floats that have it) and Inf the largest element; tensor_statistics counts them, and the history
 * ignores them. TENSOR_E_ARGUMENT for an exponent outside the format's range; TENSOR_E_FORMAT if y has no shared
 * exponent, or has a wide part. */
FLEXLAB_API tensor_status tensor_convert_at(tensor *y, const tensor *x, int e);
/* The same, written as by an operation: a shared exponent follows predictor and history, NaN becomes 0 and Inf the
 * largest element, and both are counted. For formats without a shared exponent it is tensor_convert. */
FLEXLAB_API tensor_status tensor_rewrite(tensor *y, const tensor *x);
/* The state of t as bytes: exponent and its history, statistics, number of writes; with `elements`, elements and wide
 * part too. Their layout is that of this machine's memory and of this version. tensor_state_bytes: how many, 0 for
 * NULL. size must be that: TENSOR_E_ARGUMENT for another. tensor_state_load keeps the predictor and the role of t, and
 * refuses with TENSOR_E_DATA bytes that cannot be a state of such a tensor; t is then as before. */
FLEXLAB_API size_t tensor_state_bytes(const tensor *t, bool elements);
FLEXLAB_API tensor_status tensor_state_store(const tensor *t, bool elements, void *bytes, size_t size);
FLEXLAB_API tensor_status tensor_state_load(tensor *t, bool elements, const void *bytes, size_t size);
/* A bit-exact copy: elements, exponent, history, wide part. Format and shape must agree; TENSOR_E_FORMAT if only one of
 * the two has a wide part. The two may lie on different devices, one of which must be the host. */
FLEXLAB_API tensor_status tensor_copy(tensor *y, const tensor *x);

/* The elements as stored: int16_t mantissas, uint16_t words of fp16 or bf16, or floats. Writing them is allowed;
 * statistics and history do not notice it. A wide part does: an element that is no longer the rounding of its wide
 * value was written by hand, and counts with exactly its value from then on. The library checks for that whenever the
 * wide part is about to count, in tensors whose memory was handed out, by these functions or by the caller of
 * tensor_new_on: the pointer may be used as long as the tensor lives. NULL for a tensor on a device other than the
 * host, with tensor_error() set: use tensor_copy to read its elements. */
FLEXLAB_API void *tensor_data(tensor *t);
FLEXLAB_API const void *tensor_const_data(const tensor *t);

/* The shared exponent; 0 for formats without one. */
FLEXLAB_API int tensor_exponent(const tensor *t);
/* Changes the exponent in place: every mantissa is shifted, rounded once and saturated; the statistics count the
 * losses. A wide part takes exactly the new values. TENSOR_E_ARGUMENT outside the format's range. */
FLEXLAB_API tensor_status tensor_set_exponent(tensor *t, int e);
/* Declares the exponent of the stored mantissas without changing them (after raw writes). A wide part takes exactly the
 * values that the mantissas then have. */
FLEXLAB_API tensor_status tensor_declare_exponent(tensor *t, int e);

/* --- how a tensor is written -------------------------------------------------------------------------------------- */

/* Sets the exponent predictor (autoflex_find: "paper", "ngraph", "current", "repeat", ...), clears the history, and
 * preserves e. Defaults: paper for flex16+5, current for dfp16. TENSOR_E_FORMAT for formats without a shared
 * exponent. */
FLEXLAB_API tensor_status tensor_set_predictor(tensor *t, const char *name);
/* Sets the role of t in training, which some predictors use ("per-class"): AUTOFLEX_ROLE_WEIGHT, ... Networks set it
 * for their tensors. Changes no exponent. TENSOR_E_ARGUMENT for a number that is no role, TENSOR_E_FORMAT for formats
 * without a shared exponent. */
FLEXLAB_API tensor_status tensor_set_role(tensor *t, autoflex_role role);
/* The exponent state, read-only; NULL for formats without one. For a tensor on a device: the present state, valid until
 * the next call with the tensor; NULL if the device failed. */
FLEXLAB_API const struct autoflex *tensor_autoflex(const tensor *t);

typedef enum tensor_rounding {
    TENSOR_ROUND_NEAREST = 0,    /* nearest, ties to even */
    TENSOR_ROUND_STOCHASTIC = 1, /* formats of 16 bits: floor(x + u) in units of the last place, u uniform; keyed by
                                    (seed, write, element) */
    TENSOR_ROUND_TRUNCATE = 2    /* bf16: toward zero */
} tensor_rounding;
/* Sets how results written into t are rounded. TENSOR_E_FORMAT if the format does not offer that rounding. */
FLEXLAB_API tensor_status tensor_set_rounding(tensor *t, tensor_rounding rounding, uint64_t seed);

/* Gives t a wide part that updates work on, so that the elements are its rounding: int32 mantissas at exponent e + 16
 * for shared-exponent formats, binary32 for fp16 and bf16. It is filled from t's present values. No effect on fp32, or
 * on a tensor that has one. Elements and wide part never disagree:
 *  - tensor_sgd_update, tensor_combine, tensor_root_mean and tensor_add_ratio in place (the output is the first
 *    operand), loads and tensor_convert round once at the width of the wide part, and the elements are the rounding of
 *    the wide part (to nearest; bf16 under TENSOR_ROUND_TRUNCATE: toward zero);
 *  - every other write (any other operation, in place and through views too, an exponent set or declared, elements
 *    written by hand) writes the elements, and the wide part takes exactly their values.
 *
 * Functions read the elements, with these exceptions, which read the wide part: w of tensor_sgd_update and
 * tensor_sgd_momentum, p and w of tensor_combine, r of tensor_root_mean, w, m and r of tensor_add_ratio, tensor_copy
 * and tensor_store_wide_f64. */
FLEXLAB_API tensor_status tensor_keep_wide(tensor *t);
/* Stores the wide part as doubles, or t's own values if it has none. */
FLEXLAB_API tensor_status tensor_store_wide_f64(const tensor *t, double *values, int64_t count);

#ifdef __cplusplus
}
#endif
#endif
