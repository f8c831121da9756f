/* api.h - the mark of public declarations, and their names for the linker.
 *
 * Each public header includes this one directly, after the definition of its own guard. flexlab/symbols.h, included at
 * the end, then gives each function that the header declares the linker name flexlab_<name>, so that a program's own
 * tensor_new or data_open does not collide with the library's. Bindings that look symbols up by name (dlsym, ctypes)
 * use flexlab_<name>. docs/decisions/0013-symbols.md gives the reasons. */
#ifndef FLEXLAB_API_H
#define FLEXLAB_API_H

/* Marks what the shared library exports; it hides everything else. */
#if defined(_WIN32)
#define FLEXLAB_API
#else
#define FLEXLAB_API __attribute__((visibility("default")))
#endif

#if !defined(__PRAGMA_REDEFINE_EXTNAME) && !defined(__CUDACC__)
#error "flexlab names its symbols by #pragma redefine_extname, which gcc and clang have"
#endif

#define FLEXLAB_TEXT(...) FLEXLAB_TEXT_(__VA_ARGS__)
#define FLEXLAB_TEXT_(...) #__VA_ARGS__

#endif

#include "flexlab/symbols.h"
