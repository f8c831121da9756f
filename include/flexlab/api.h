/* api.h - how the public declarations are marked, and what the linker calls them.
 *
 * Each public header includes this one directly, after the definition of its own guard: flexlab/symbols.h, at the end,
 * then gives the functions that the header declares the linker's names flexlab_<name>, so that no program's own
 * tensor_new or data_open collides with ours. Bindings that look symbols up by name (dlsym, ctypes) use flexlab_<name>.
 * docs/decisions/0013-symbols.md says why it is done so. */
#ifndef FLEXLAB_API_H
#define FLEXLAB_API_H

/* On what the shared library exports; all else is hidden in it. */
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
