/* files.h - which files are read and which may be replaced, and how a file takes its name: regular ones alone. A FIFO
 * would be waited for, a device may deliver without end, and whoever finishes a file in the place of a link, a FIFO or
 * a device destroys what others use. The program compiles files.c once more, as it cannot see what is local to the
 * library; it knows nothing of ours.
 */
#ifndef FL_FILES_H
#define FL_FILES_H

#include <stdbool.h>
#include <stddef.h>
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

/* --- files that have their name when they are complete: written as PATH.part, synchronised, renamed, and the folder
 * synchronised, so that under the name there is the old file or the new one, whole, whatever happens. ----------------
 */

/* All of the bytes. False: errno says why. */
bool fl_file_write(int file, const void *bytes, size_t size);
/* The bytes of a file, or the names of a folder, reach the disk. False: errno says why. A file system that cannot
 * synchronise is none. */
bool fl_file_sync(int file);
/* The same, then the file is closed in any case. good: whether what was written before went well, else errno tells of
 * that and stays. */
bool fl_file_end(int file, bool good);

enum { FL_FILE_WHY = 9000 }; /* bytes of a message, which names up to two paths */
/* Whether the name may be taken by a file, and its folder be synchronised: to be asked before anything is written. */
bool fl_file_may_take(const char *path, char why[FL_FILE_WHY]);
/* The complete and synchronised file `part` becomes `path`, and the name reaches the disk. Where the name cannot be
 * taken, `part` is removed. */
bool fl_file_publish(const char *part, const char *path, char why[FL_FILE_WHY]);

#endif
