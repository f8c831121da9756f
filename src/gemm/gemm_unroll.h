/* gemm_unroll.h - loops that the compiler must unroll, or must not.
 *
 * Gives: GEMM_UNROLL, GEMM_NO_UNROLL. */
#ifndef FL_GEMM_UNROLL_H
#define FL_GEMM_UNROLL_H

#ifdef __clang__
#define GEMM_UNROLL _Pragma("clang loop unroll(full)")
#define GEMM_NO_UNROLL _Pragma("clang loop unroll(disable)")
#else
#define GEMM_UNROLL _Pragma("GCC unroll 16")
#define GEMM_NO_UNROLL _Pragma("GCC unroll 1")
#endif

#endif
