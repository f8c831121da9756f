/* files.h - which files are read and which may be replaced: regular ones alone. A FIFO would be waited for, a device
 * may deliver without end, and whoever finishes a file in the place of a link, a FIFO or a device destroys what others
 * use. The program compiles files.c once more, as it cannot see what is local to the library; it knows nothing of ours.
 */
#ifndef FL_FILES_H
#define FL_FILES_H

#include <sys/stat.h>

/* What has such a mode, as messages call it: "a folder", "a FIFO". */
const char *fl_file_kind(mode_t mode);

/* Opens a regular file for reading, without waiting for anybody; links are followed, so /dev/stdin is what stands
 * behind it. -1: *kind is what is there instead or, where errno says why, NULL. `about` may be NULL. */
int fl_file_open(const char *path, struct stat *about, const char **kind);

/* What keeps a finished file from taking this name, where links are not followed: "a symbolic link". NULL: there is a
 * regular file, which it replaces, or nothing, or errno will say why when it is tried. */
const char *fl_file_in_the_way(const char *path);

/* A new file, open for writing. What stands there, left by a process that died or put there as a link or a FIFO, is
 * removed and not written through. -1: errno says why. */
int fl_file_create(const char *path);

#endif
