/* minifloat.h - floats made from their parameters (core/arithmetic/element.h) as formats of tensors: conversions in
 * vectors and kernels for every instruction set. Elements of up to 8 bits are bytes, others words of 16 bits. */
#ifndef FL_MINIFLOAT_H
#define FL_MINIFLOAT_H

#include "core/ops/operation.h"
#include "minifloat/minifloat_rules.h"

/* Of an element under exponent e of its tensor, which formats without one ignore: an element times 2^-e is that of a
 * float with another bias, so that conversions round once whatever e is. */
struct fl_minifloat fl_minifloat_of(const struct fl_format *format, int e);

/* The conversions of n numbers for one instruction set; bytes: 1 or 2 of an element. decode returns the largest
 * magnitude as a word of binary32. count adds the statistics of encoding x. */
struct fl_minifloat_conversions {
    uint32_t (*decode)(const struct fl_minifloat *f, int bytes, const void *from, int64_t n, float *to);
    void (*encode)(const struct fl_minifloat *f, int bytes, const float *from, int64_t n, void *to);
    void (*count)(const struct fl_minifloat *f, const float *x, int64_t n, struct fl_stats *stats);
};
extern const struct fl_minifloat_conversions fl_minifloat_portable, fl_minifloat_avx2, fl_minifloat_avx512bw;

/* Stores n numbers rounded once by `rounding`, from element `first` of the view on. x: binary32; with a stochastic
 * rounding `exact`, not NULL, is rounded instead, and x is the same to nearest. */
void fl_minifloat_store(const struct fl_minifloat_conversions *c, const struct fl_format *format,
                        const struct fl_view *out, int64_t first, int64_t n, const float *x, const double *exact,
                        const struct fl_rounding *rounding, struct fl_stats *stats);

/* Gives each operand of a task its binary32 numbers: those of a wide part in place, others in `memory`, at most
 * fl_minifloat_bytes, whose end is returned. inner: the task of binary32, a copy of args; its output is the wide part,
 * or an operand that is also the output, or memory of its own. to: what has to be decoded before it runs. */
char *fl_minifloat_place(const struct fl_args *args, struct fl_args *inner, struct fl_minifloat_operands *to,
                         char *memory);
size_t fl_minifloat_bytes(const struct fl_args *args);

/* A kernel of binary32 of that backend, between conversions of its operands; its workspace. */
tensor_status fl_minifloat_run(const struct fl_args *args, enum fl_backend backend,
                               const struct fl_minifloat_conversions *c);
size_t fl_minifloat_need(const struct fl_args *args, enum fl_backend backend);

extern const struct fl_kernels fl_minifloat_kernels_portable, fl_minifloat_kernels_avx2, fl_minifloat_kernels_avx512bw;

#endif
