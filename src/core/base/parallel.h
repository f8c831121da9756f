/* parallel.h - the only place where work is handed to threads.
 *
 * The caller divides the work into parts that do not depend on the number of threads; each part runs once, on any
 * thread. A result can therefore depend on the parts, but never on the threads. Exact sums, which are the same for
 * every division, may be divided by the number of threads. */
#ifndef FL_PARALLEL_H
#define FL_PARALLEL_H

/* The function that runs a part. Threads of one call have different workers, so memory that belongs to a worker needs
 * no lock. */
typedef void (*fl_part)(void *context, int part, int worker);

/* Runs work(context, part, worker) for part = 0 ... parts-1, worker in 0 ... fl_threads()-1, and returns when all are
 * done. A nested call may run serially, as worker 0.
 *
 * The caller runs the first part itself and measures its time; it wakes other threads only if the rest would take
 * longer than waking them costs. It waits for the threads that took a part, not for those that were woken too late. */
void fl_parallel(int parts, fl_part work, void *context);

/* The same with at most `workers` threads, for callers that have memory for that many: another thread of the program
 * may change fl_threads() at any time. */
void fl_parallel_within(int workers, int parts, fl_part work, void *context);

/* The same with all threads from the start, for callers whose operands show that the work is large enough: if parts are
 * few and large, the first of them by itself would cost half of the time. */
void fl_parallel_large(int workers, int parts, fl_part work, void *context);

enum { FL_MAX_THREADS = 256 };

/* Threads that fl_parallel uses, at most FL_MAX_THREADS. */
int fl_threads(void);

/* The number of forks of this process and its ancestors since the library was first used: an object made under another
 * number has lost its threads. */
int fl_fork_number(void);

#endif
