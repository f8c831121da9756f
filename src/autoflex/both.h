/* both.h - functions that a processor and a device compile alike: plain C on plain numbers, which CUDA compiles for
 * both (tests/gpu/shared_rules.h). */
#ifndef FL_BOTH_H
#define FL_BOTH_H

/* FL_BOTH: a function in a header; FL_EITHER: the declaration of one that each side defines for itself. */
#ifdef __CUDACC__
#define FL_BOTH static __host__ __device__ inline
#define FL_EITHER __host__ __device__
#else
#define FL_BOTH static inline
#define FL_EITHER
#endif

#endif
