/* hostile_library.c - what somebody leaves in a folder under the name of a library that flexlab looks for: it makes the
 * file that HOSTILE_MARK names as soon as it is loaded (test_hardening.py). */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

__attribute__((constructor)) static void loaded(void) {
    const char *mark = getenv("HOSTILE_MARK");
    const int file = mark ? open(mark, O_WRONLY | O_CREAT | O_CLOEXEC, 0666) : -1;
    if (file >= 0)
        close(file);
}
