/* files.h - which files are read and which may be replaced, and how a file takes its name. Only regular files are:
 * reading a FIFO would wait, a device may deliver bytes without end, and replacing a link, a FIFO or a device destroys
 * what others use. The program compiles files.c too, because it cannot use local functions of the library; files.c
 * therefore uses nothing else of the library.
 */
#ifndef FL_FILES_H
#define FL_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

/* The kind of file with that mode, as messages call it: "a folder", "a FIFO". */
const char *fl_file_kind(mode_t mode);

/* Opens a regular file for reading, without waiting; it follows links, so /dev/stdin is the file behind it. -1 on
 * failure: *kind is the kind found instead, or NULL if errno has the reason. `about` may be NULL. */
int fl_file_open(const char *path, struct stat *about, const char **kind);

/* The kind of what prevents a finished file from taking this name, without following links: "a symbolic link". NULL if
 * there is a regular file, which it replaces, or nothing, or if only the attempt itself will show the error. */
const char *fl_file_in_the_way(const char *path);

/* Creates a file and opens it for writing. It removes what has that name (the file of a process that died, a link, a
 * FIFO) instead of writing through it. -1 on failure, with errno set. */
int fl_file_create(const char *path);

/* --- files that get their name when they are complete: written as PATH.part, synchronised, renamed, and the folder
 * synchronised, so that the name belongs to the complete old file or to the complete new one at any moment ---------
 */

/* Writes all of the bytes. False on failure, with errno set. */
bool fl_file_write(int file, const void *bytes, size_t size);
/* Waits until the bytes of a file, or the names in a folder, are on the disk. False on failure, with errno set; a file
 * system that cannot synchronise is no failure. */
bool fl_file_sync(int file);
/* Synchronises the file and closes it in any case. good: whether all writes before succeeded; if not, errno is theirs
 * and remains. */
bool fl_file_end(int file, bool good);

enum { FL_FILE_WHY = 9000 }; /* bytes of a message, which names up to two paths */
/* Whether a file may take the name, and its folder can be synchronised. Call it before anything is written. */
bool fl_file_may_take(const char *path, char why[FL_FILE_WHY]);
/* Renames the complete and synchronised file `part` to `path`, and synchronises the folder. If the file cannot take the
 * name, `part` is removed. */
bool fl_file_publish(const char *part, const char *path, char why[FL_FILE_WHY]);

#endif
