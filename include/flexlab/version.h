/* version.h - the version of these headers, and that of the library that a program runs with.
 *
 * CMakeLists.txt reads the three numbers from here, and the package, the pkg-config file and the soname follow from
 * them. Before 1.0, a change of MINOR may change anything, and after a change of PATCH programs run without
 * recompilation. From 1.0 on, MAJOR and MINOR have these meanings. The soname follows: libflexlab.so.0.1, later
 * libflexlab.so.1. */
#ifndef FLEXLAB_VERSION_H
#define FLEXLAB_VERSION_H

#include "flexlab/api.h"

#define FLEXLAB_VERSION_MAJOR 0
#define FLEXLAB_VERSION_MINOR 1
#define FLEXLAB_VERSION_PATCH 0

/* "0.1.0", and one number that grows: 100 for 0.1.0, 10203 for 1.2.3. */
#define FLEXLAB_VERSION_STRING                                                                                         \
    FLEXLAB_TEXT(FLEXLAB_VERSION_MAJOR)                                                                                \
    "." FLEXLAB_TEXT(FLEXLAB_VERSION_MINOR) "." FLEXLAB_TEXT(FLEXLAB_VERSION_PATCH)
#define FLEXLAB_VERSION_NUMBER (FLEXLAB_VERSION_MAJOR * 10000 + FLEXLAB_VERSION_MINOR * 100 + FLEXLAB_VERSION_PATCH)

#ifdef __cplusplus
extern "C" {
#endif

/* The version of the library itself, as FLEXLAB_VERSION_STRING spells it; it may be newer than the headers that the
 * program was compiled with. */
FLEXLAB_API const char *flexlab_version(void);

#ifdef __cplusplus
}
#endif
#endif
