/* failure.h - the library's last failure on this thread: whose fault it was. */
#ifndef FLEXLAB_FAILURE_H
#define FLEXLAB_FAILURE_H

#include <stdbool.h>

/* From here on failures are remembered. */
void failure_watch(void);
/* Forgets the last one: call it before what may fail without saying so. */
void failure_forget(void);
/* It was an argument that the library does not know or take; not: no memory, an unreadable file. */
bool failure_is_usage(void);

#endif
