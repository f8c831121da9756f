/* parallel.h - the only place where work is handed to threads.
 *
 * The caller cuts the work into parts that do not depend on the number of threads; each part runs once, on any thread.
 * So a result can depend on the parts but never on the threads. Exact sums, which are the same however they are cut,
 * may be cut by the number of threads. */
#ifndef FL_PARALLEL_H
#define FL_PARALLEL_H

/* The function that runs a part. Threads of one call have different workers, so memory that belongs to a worker needs
 * no lock. */
typedef void (*fl_part)(void *context, int part, int worker);

/* Runs work(context, part, worker) for part = 0 ... parts-1, worker in 0 ... fl_threads()-1, and returns when all are
 * done. A nested call may run serially, as worker 0.
 *
 * The caller runs the first part itself and looks at the clock; other threads are woken only where what is left would
 * take it longer than they cost. It waits for the threads that took a part, not for those that were woken too late. */
void fl_parallel(int parts, fl_part work, void *context);

/* The same with at most `workers` of them, for callers that have memory for so many: another thread of the program may
 * change fl_threads() at any time. */
void fl_parallel_within(int workers, int parts, fl_part work, void *context);

/* The same at once with all of them, for callers that know from their operands that the work is worth it: where parts
 * are few and large, the first of them alone would cost half of the time. */
void fl_parallel_large(int workers, int parts, fl_part work, void *context);

enum { FL_MAX_THREADS = 256 };

/* Threads that fl_parallel uses, at most FL_MAX_THREADS. */
int fl_threads(void);

/* How often this process and those before it have forked since the library was first used: what was made under another
 * number lacks its threads. */
int fl_fork_number(void);

#endif
