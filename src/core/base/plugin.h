/* plugin.h - shared objects of this library that are opened when they are needed: backends of devices, engines of
 * groups. */
#ifndef FL_PLUGIN_H
#define FL_PLUGIN_H

#include <stdbool.h>
#include <stddef.h>

struct fl_plugin {
    const char *file;     /* "libflexlab_cuda.so" */
    const char *variable; /* of the environment, which may name another file by its absolute path */
    const char *what;     /* in messages: "CUDA backend" */
    bool global;          /* its symbols serve libraries that it opens */
};

/* Opens the file that the variable names, or the one beside the library or program, or in PREFIX/lib of PREFIX/bin. By
 * its absolute path only: a name would be searched in the folders of the environment, which may include the current
 * one. NULL: `why` says so. */
void *fl_plugin_open(const struct fl_plugin *plugin, char *why, size_t bytes);

#endif
