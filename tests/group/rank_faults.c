/* rank_faults.c - preloaded into a rank by test_failures.py. MPI_Abort does not return, as behind a cut network.
 * Besides, by the environment:
 *
 *   FAULT_SECONDS  how long fsync takes: a slow disk
 *   FAULT_FULL     fsync fails: a full disk
 *   FAULT_MEMORY   the bytes that the rank may add to its memory, from the folder on that each rank but 0 makes itself
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

int MPI_Abort(void *communicator, int code);
int MPI_Abort(void *communicator, int code) {
    (void)communicator;
    (void)code;
    for (;;)
        pause();
}

int fsync(int descriptor) {
    const char *seconds = getenv("FAULT_SECONDS");
    sleep(seconds ? (unsigned)atoi(seconds) : 0);
    errno = ENOSPC;
    return getenv("FAULT_FULL") ? -1 : fdatasync(descriptor);
}

char *mkdtemp(char *name) {
    const char *more = getenv("FAULT_MEMORY");
    long pages = 0;
    FILE *sizes = more ? fopen("/proc/self/statm", "r") : NULL;
    if (sizes && fscanf(sizes, "%ld", &pages) == 1)
        setrlimit(RLIMIT_AS, &(struct rlimit){(rlim_t)(pages * sysconf(_SC_PAGESIZE) + atol(more)), RLIM_INFINITY});
    if (sizes)
        fclose(sizes);
    return ((__typeof__(&mkdtemp))dlsym(RTLD_NEXT, "mkdtemp"))(name);
}
