/* kernel_sets.h - the kernel sets on which products of several formats are computed. */
#ifndef FL_KERNEL_SETS_H
#define FL_KERNEL_SETS_H

static const char *const backends[] = {"ref", "portable", "avx2", "avx2_vnni", "avx512bw", "avx512", "avx512_amx"};
enum { BACKENDS = sizeof backends / sizeof *backends };
#ifdef FL_AMX_EMULATED
enum { FIRST_BACKEND = BACKENDS - 1 }; /* the other kernel sets have a test of their own */
#else
enum { FIRST_BACKEND = 0 };
#endif

#endif
