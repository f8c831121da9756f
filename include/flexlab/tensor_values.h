/* tensor_values.h - values in and out, conversion, exponents; how a tensor is written: predictor, rounding, wide part.
 * A part of tensor.h, whose conventions hold. */
#ifndef FLEXLAB_TENSOR_VALUES_H
#define FLEXLAB_TENSOR_VALUES_H

#include "flexlab/api.h"
#include "flexlab/autoflex.h"
#include "flexlab/tensor_life.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- values in and out -------------------------------------------------------------------------------------------- */

/* Load count values, each rounded once (nearest even). Shared-exponent formats take e = 14 - floor(log2 max|x|) first
 * and start their history anew; NaN and Inf are refused there (TENSOR_E_ARGUMENT with the position). count must be
 * tensor_count(t). With a wide part each value is rounded once to its width, and the elements are its rounding. The
 * values must not lie in t's own memory. */
FLEXLAB_API tensor_status tensor_load_f32(tensor *t, const float *values, int64_t count);
FLEXLAB_API tensor_status tensor_load_f64(tensor *t, const double *values, int64_t count);
/* Numbers of FMT_I32 and FMT_U8, as they are; FMT_F64 and FMT_F32 take theirs by tensor_load_f64 and tensor_load_f32. A
 * load of numbers is a copy; tensor_convert brings them into a format. */
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
/* tensor_load_f64 of an array of any type, into a tensor of a format: each number, integers of 64 bits too, is rounded
 * once. TENSOR_E_ARGUMENT for another type. */
FLEXLAB_API tensor_status tensor_load_array(tensor *t, const void *values, tensor_type type, int64_t count);
/* t = value, everywhere, and numbers of the counter-based generator: loads of numbers that are made where t lies, with
 * a load's rounding and exponent. Element i depends on (key, counter, i) alone, so that all devices, formats and
 * numbers of threads round the same real numbers: low + (high - low) u in double, u a multiple of 2^-53 below 1; mean +
 * deviation z, z normal by Marsaglia's polar method in double. TENSOR_E_ARGUMENT where a bound is not finite, low is
 * above high, or the deviation below 0; value may be what a load takes. */
FLEXLAB_API tensor_status tensor_fill(tensor *t, double value);
FLEXLAB_API tensor_status tensor_fill_uniform(tensor *t, double low, double high, uint64_t key, uint64_t counter);
FLEXLAB_API tensor_status tensor_fill_normal(tensor *t, double mean, double deviation, uint64_t key, uint64_t counter);
/* A load of images kept as bytes, in one pass: element i of y, whose channel is c, takes values[c][pixels[i]] as
 * tensor_load_f32 would. pixels: u8, as many as y has elements; values: f32 [C, 256], what each byte means in each
 * channel, such as (byte / 255 - mean) / deviation. */
FLEXLAB_API tensor_status tensor_load_pixels(tensor *y, const tensor *pixels, const tensor *values);
/* Augmentation as a data loader does it (data.h): pad by four black pixels, crop at random, mirror half of the time, by
 * (seed, epoch, index of the image). */
typedef struct tensor_augmentation {
    uint64_t seed, epoch;
} tensor_augmentation;
/* A batch out of a set of images that lies on the same device: image n of images, u8 [N,H,W,C], and entry n of labels,
 * i32 [N], are those of number indices[n] (i32 [N]) in set_images, u8 [M,H,W,C], and set_labels, i32 [M]. how NULL: as
 * they are. The bytes of a data loader with that seed and epoch. An index out of range is TENSOR_E_ARGUMENT, at once on
 * the host, where nothing is written, and from the next wait elsewhere. */
FLEXLAB_API tensor_status tensor_gather_images(tensor *images, tensor *labels, const tensor *set_images,
                                               const tensor *set_labels, const tensor *indices,
                                               const tensor_augmentation *how);
/* Stores count values. Every 16-bit format and fp32 is exact in double; float rounds once (dfp16 far out of range). */
FLEXLAB_API tensor_status tensor_store_f32(const tensor *t, float *values, int64_t count);
FLEXLAB_API tensor_status tensor_store_f64(const tensor *t, double *values, int64_t count);

/* Stores into an array of any type, aligned as that type is. Floats of 16 bits: each value rounded once, to nearest
 * even. bool: whether it is not 0. Integers: to the nearest, ties to even; one that the type does not hold, and NaN, is
 * TENSOR_E_ARGUMENT with its position, and nothing is written. With saturated (not NULL) the type's least or largest
 * number is stored instead, 0 for NaN, and *saturated is how many there were. */
FLEXLAB_API tensor_status tensor_store_array(const tensor *t, void *values, tensor_type type, int64_t count,
                                             int64_t *saturated);

/* y = x in y's format, rounded once. Shapes must agree. A shared-exponent y takes its exponent as a load does; fp32,
 * fp16 and bf16 sources with NaN or Inf are refused for it. From shared to shared the values are kept where they
 * fit. */
FLEXLAB_API tensor_status tensor_convert(tensor *y, const tensor *x);
/* The same for a shared-exponent y at an exponent that is known: one pass over x, counted as an ordinary write. NaN
 * becomes zero and Inf the largest mantissa; tensor_statistics tells, and the history knows neither. TENSOR_E_ARGUMENT
 * outside the format's range; TENSOR_E_FORMAT where y has no shared exponent, or a wide part. */
FLEXLAB_API tensor_status tensor_convert_at(tensor *y, const tensor *x, int e);
/* A bit-exact copy: elements, exponent, history, wide part. Same format and shape; TENSOR_E_FORMAT where one of the two
 * has a wide part and the other has none. The two may lie on different devices, of which one is the host. */
FLEXLAB_API tensor_status tensor_copy(tensor *y, const tensor *x);

/* The elements as stored: int16_t mantissas, uint16_t words of fp16/bf16, float. Writing them is allowed; statistics
 * and history do not see it. A wide part does: an element that is no longer the rounding of its wide one was written by
 * hand, and counts with exactly its value from then on. That is looked for in tensors whose memory was handed out, here
 * or by the caller of tensor_new_on, whenever the wide part is about to count: as long as the pointer is kept. NULL
 * for a tensor on a device other than the host, with tensor_error() set: tensor_copy brings its elements. */
FLEXLAB_API void *tensor_data(tensor *t);
FLEXLAB_API const void *tensor_const_data(const tensor *t);

/* The shared exponent; 0 for formats without one. */
FLEXLAB_API int tensor_exponent(const tensor *t);
/* Changes the exponent in place: every mantissa is shifted, rounded once, saturated; statistics count what was lost.
 * A wide part becomes exactly the new value. TENSOR_E_ARGUMENT outside the format's range. */
FLEXLAB_API tensor_status tensor_set_exponent(tensor *t, int e);
/* Declares the exponent of the stored mantissas without touching them (after raw writes). A wide part becomes exactly
 * the value that they then have. */
FLEXLAB_API tensor_status tensor_declare_exponent(tensor *t, int e);

/* --- how a tensor is written -------------------------------------------------------------------------------------- */

/* Chooses the exponent predictor (autoflex_find: "paper", "ngraph", "current", "repeat", ...); resets the history,
 * keeps e. Defaults: paper for flex16+5, current for dfp16. TENSOR_E_FORMAT for formats without a shared exponent. */
FLEXLAB_API tensor_status tensor_set_predictor(tensor *t, const char *name);
/* What t is in a training, for predictors that ask ("per-class"): AUTOFLEX_ROLE_WEIGHT, ...; networks say it of their
 * tensors. Changes no exponent. TENSOR_E_ARGUMENT for a number that is no role, TENSOR_E_FORMAT for formats without a
 * shared exponent. */
FLEXLAB_API tensor_status tensor_set_role(tensor *t, autoflex_role role);
/* The exponent state, to read; NULL for formats without one. Of a tensor on a device: as it is now, until the next call
 * with the tensor; NULL too where the device failed. */
FLEXLAB_API const struct autoflex *tensor_autoflex(const tensor *t);

typedef enum tensor_rounding {
    TENSOR_ROUND_NEAREST = 0,    /* nearest, ties to even */
    TENSOR_ROUND_STOCHASTIC = 1, /* formats of 16 bits: floor(x + u) in units of the last place, u uniform; keyed by
                                    (seed, write, element) */
    TENSOR_ROUND_TRUNCATE = 2    /* bf16: toward zero */
} tensor_rounding;
/* How results written into t are rounded. TENSOR_E_FORMAT where the format does not offer it. */
FLEXLAB_API tensor_status tensor_set_rounding(tensor *t, tensor_rounding rounding, uint64_t seed);

/* Gives t a wide part that updates work on, the elements being its rounding: an int32 mantissa at exponent e + 16 for
 * shared-exponent formats, binary32 for fp16 and bf16. No effect on fp32, or a second time. Filled from t's present
 * values. The two never disagree:
 *  - tensor_sgd_update, tensor_combine, tensor_root_mean and tensor_add_ratio in place (the output is the first
 *    operand), loads and tensor_convert round once at the width of the wide part, and the elements are the rounding of
 *    the wide part (to nearest; bf16 under TENSOR_ROUND_TRUNCATE: toward zero);
 *  - whatever else writes t (every other operation, in place and through views too, an exponent set or declared,
 *    elements written by hand) writes the elements, and the wide part becomes exactly their value.
 * What reads t reads the elements, but for w of tensor_sgd_update and tensor_sgd_momentum, p and w of tensor_combine, r
 * of tensor_root_mean, w, m and r of tensor_add_ratio, tensor_copy and tensor_store_wide_f64. */
FLEXLAB_API tensor_status tensor_keep_wide(tensor *t);
/* The wide part as doubles (t's own values where there is none). */
FLEXLAB_API tensor_status tensor_store_wide_f64(const tensor *t, double *values, int64_t count);

#ifdef __cplusplus
}
#endif
#endif
