/* both.h - functions that a processor and a device compile alike: plain C on plain numbers, which CUDA compiles for
 * both sides (tests/shared_rules.h). */
#ifndef FL_BOTH_H
#define FL_BOTH_H

#ifdef __CUDACC__
#define FL_BOTH static __host__ __device__ inline
#else
#define FL_BOTH static inline
#endif

#endif
