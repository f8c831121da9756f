/* lock.h - one flexlab at a time in a folder. */
#ifndef FLEXLAB_LOCK_H
#define FLEXLAB_LOCK_H

#include <stdbool.h>

struct lock {
    char *path;
    int descriptor; /* -1: not held */
};

/* Locks the folder until lock_release or any end of the process. STATUS_FAILED with a message that names the process
 * which holds the lock. If the file system cannot lock, it prints a note and locks nothing. `option`: the option that
 * names the folder, "--out ", or "" for an argument. */
int lock_take(struct lock *l, const char *directory, const char *option);
/* The same once and without a message: whether it is locked. */
bool lock_try(struct lock *l, const char *directory);
/* Whether another process holds it now, without taking it or making anything: STATUS_FAILED, with that message, or
 * STATUS_OK. Call it before long preparations. */
int lock_check(const char *directory, const char *option);
/* Also for a lock that was never taken, if zeroed with descriptor -1. */
void lock_release(struct lock *l);

#endif
