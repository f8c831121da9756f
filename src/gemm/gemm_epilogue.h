/* gemm_epilogue.h - the bookkeeping of what joins sums before they are rounded (struct fl_epilogue), for all formats.
 */
#ifndef FL_GEMM_EPILOGUE_H
#define FL_GEMM_EPILOGUE_H

#include "core/base/memory.h"
#include "gemm/gemm.h"
#include "gemm/gemm_epilogue_plan.h"

_Static_assert((int)GEMM_LOW_BITS == (int)GEMM_LIMB_BITS, "limbs are planned as they are summed");

enum { GEMM_EPILOGUE_RUN = 1024 }; /* results at most that are added to and rounded at a time */

static inline bool gemm_has_epilogue(const struct fl_epilogue *e) {
    return e->bias.data || e->residual.data || e->relu;
}

/* Room for the bias of neighbouring results, repeated for all its columns where they are of more than one row; count is
 * 0 at the start. */
struct gemm_bias {
    int64_t column, count; /* the repeated entries start at this column */
    _Alignas(FL_ALIGNMENT) char repeated[GEMM_EPILOGUE_RUN * 4];
};

/* The bias of results first ... first + n - 1, n <= GEMM_EPILOGUE_RUN; NULL: there is none. */
const void *fl_gemm_bias(const struct fl_epilogue *e, int64_t first, int64_t n, size_t element_bytes,
                         struct gemm_bias *room);

static inline const void *gemm_residual(const struct fl_epilogue *e, int64_t first, size_t element_bytes) {
    return e->residual.data ? (const char *)e->residual.data + first * (int64_t)element_bytes : NULL;
}

/* How many of n results to take at a time: whole rows where they are short, so that the repeated bias serves all. */
int64_t fl_gemm_epilogue_run(const struct fl_epilogue *e, int64_t n);

/* The alignment for a task with shared exponents. */
struct gemm_alignment fl_gemm_alignment(const struct fl_args *args);

#endif
