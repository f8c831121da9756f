/* api.h - how the public declarations are marked: which are exported, and what the linker calls them. */
#ifndef FLEXLAB_API_H
#define FLEXLAB_API_H

/* On what the shared library exports; all else is hidden in it. */
#if defined(_WIN32)
#define FLEXLAB_API
#else
#define FLEXLAB_API __attribute__((visibility("default")))
#endif

/* After a declaration: the linker's symbol is flexlab_<name>, whatever C and C++ call it, so that no program's own
 * tensor_new or data_open collides with ours. Bindings that look symbols up by name (dlsym, ctypes) use flexlab_<name>.
 * docs/decisions/0013-symbols.md says why it is done so. */
#if defined(__GNUC__)
#define FLEXLAB_SYMBOL(name) __asm__(FLEXLAB_TEXT(__USER_LABEL_PREFIX__) "flexlab_" #name)
#else
#error "flexlab names its symbols by asm labels, which gcc and clang have"
#endif
#define FLEXLAB_TEXT(...) FLEXLAB_TEXT_(__VA_ARGS__)
#define FLEXLAB_TEXT_(...) #__VA_ARGS__

#endif
