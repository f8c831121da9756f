/* worker.h - a contestant of the benchmark: a process that prepares one piece of work and times it on request.
 *
 * Lines on standard input: "prepare WORK ARGUMENTS...", answered by "ready" or "skip REASON"; "run", answered by the
 * seconds of one execution (the mean of as many as make the timer's resolution small); "quit". Between requests a
 * worker sleeps on the pipe, so contestants with thread pools of their own do not disturb each other.
 * docs/benchmarks.md. */
#ifndef FLEXLAB_BENCH_WORKER_H
#define FLEXLAB_BENCH_WORKER_H

#include <stddef.h>
#include <stdint.h>

struct worker {
    const char *(*prepare)(int argc, char **argv); /* NULL: ready; else why not. argv[0] is the work's name */
    void (*run)(void);                             /* one execution, or its start if executions are queued */
    void (*finish)(void);                          /* waits for what run has queued; NULL: nothing to wait for */
};

/* The protocol, for a contestant's main. */
int worker_serve(const struct worker *worker);

/* A formatted reason for prepare to return; valid until the next call. */
const char *worker_skip(const char *format, ...) __attribute__((format(printf, 1, 2)));
double worker_seconds(void);
/* Page-aligned, in huge pages if the system has them, touched; ends the process if there is no memory. */
void *worker_memory(size_t bytes);
/* Standard normal numbers, the same for a seed on every machine. */
void worker_normal(float *values, int64_t count, uint64_t seed);
/* As bfloat16 words. */
void worker_normal_bf16(uint16_t *values, int64_t count, uint64_t seed);
/* int16 mantissas: "gauss" with sigma = 32767 / 6, "uniform" in +-32767, "15bit" uniform in +-16383. False: unknown. */
int worker_mantissas(int16_t *values, int64_t count, const char *distribution, uint64_t seed);

#endif
