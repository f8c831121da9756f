/* parallel.h - the only place where work is handed to threads.
 *
 * The caller cuts the work into parts that do not depend on the number of threads; each part runs once, on any thread.
 * So a result can depend on the parts but never on the threads. Exact sums, which are the same however they are cut,
 * may be cut by the number of threads. */
#ifndef FL_PARALLEL_H
#define FL_PARALLEL_H

/* Runs work(context, part) for part = 0 ... parts-1 and returns when all are done. A nested call may run serially. */
void fl_parallel(int parts, void (*work)(void *context, int part), void *context);

/* Threads that fl_parallel uses. */
int fl_threads(void);

/* How often this process and those before it have forked since the library was first used: what was made under another
 * number lacks its threads. */
int fl_fork_number(void);

#endif
