/* failure.h - the library's last failure on this thread: whose fault it was. */
#ifndef FLEXLAB_FAILURE_H
#define FLEXLAB_FAILURE_H

#include <stdbool.h>
#include <stdint.h>

/* From here on failures are remembered. */
void failure_watch(void);
/* Forgets the last one: call it before what may fail without saying so. */
void failure_forget(void);
/* It was an argument that the library does not know or take; not: no memory, an unreadable file. */
bool failure_is_usage(void);
/* tensor_error(), and where a step of a network took more than these GiB, which option allows them. To be freed. */
char *failure_text(int64_t gib);

#endif
