/* peak.h - the peak performance of the machine: chains of fused multiply-adds, and copies of memory. */
#ifndef FLEXLAB_BENCH_PEAK_H
#define FLEXLAB_BENCH_PEAK_H

#include <stdbool.h>
#include <stddef.h>

/* peak_run then does that many multiply-adds of binary32 on each thread. isa: "avx512", "avx2"; false where the machine
 * lacks it. */
bool peak_prepare(const char *isa, double products);
void peak_run(int threads);

/* The same memcpy, split over threads. */
void peak_copy(void *to, const void *from, size_t bytes, int threads);

#endif
