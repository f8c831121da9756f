/* flex_rows.h - the kernel sets of the shared-exponent formats: one source, compiled for each instruction set. */
#ifndef FL_FLEX_ROWS_H
#define FL_FLEX_ROWS_H

#include "core/table/format.h"
#include "gemm/gemm.h"

extern const struct fl_kernels fl_flex_portable, fl_flex_avx2, fl_flex_avx2_vnni, fl_flex_avx512bw, fl_flex_avx512,
    fl_flex_avx512_amx;
extern const struct gemm_stores fl_flex_stores_portable, fl_flex_stores_avx2, fl_flex_stores_avx512bw;

#endif
