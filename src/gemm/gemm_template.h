/* gemm_template.h - what all templates of this folder use.
 *
 * Expects: GEMM_KIND, what the symbols begin with (int16, float, fp16 ...); FL_ISA, the instruction set that they end
 * with.
 * Gives: GEMM_NAME, GEMM_UNROLL, GEMM_NO_UNROLL. */
#include "core/base/isa.h"
#include "gemm/gemm.h"

#define GEMM_PASTE_3(kind, x, isa) kind##_gemm_##x##_##isa
#define GEMM_PASTE(kind, x, isa) GEMM_PASTE_3(kind, x, isa)
#define GEMM_NAME(x) GEMM_PASTE(GEMM_KIND, x, FL_ISA)

#ifdef __clang__
#define GEMM_UNROLL _Pragma("clang loop unroll(full)")
#define GEMM_NO_UNROLL _Pragma("clang loop unroll(disable)")
#else
#define GEMM_UNROLL _Pragma("GCC unroll 16")
#define GEMM_NO_UNROLL _Pragma("GCC unroll 1")
#endif
