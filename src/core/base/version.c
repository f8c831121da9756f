/* version.c - the version of the library that runs. */
#include "flexlab/version.h"

const char *flexlab_version(void) {
    return FLEXLAB_VERSION_STRING;
}
