/* output.h - files that have their name only when they are complete: NAME.part until every byte is on the disk. They
 * replace only regular files: if a link, a FIFO or a device has the name, nothing is written. */
#ifndef FLEXLAB_OUTPUT_H
#define FLEXLAB_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* A file that is composed in memory and written as a whole. */
struct output {
    FILE *file; /* to print into */
    char *text;
    size_t size;
    char *path;
};

/* Whether a file that --OPTION names may be written: there is none, or it may be replaced (force). NULL: none is named.
 */
int output_may_replace(const char *option, const char *path, bool force);

/* Opens DIRECTORY/NAME, or a path. All of these functions print a message on failure and return a STATUS_ code. */
int output_open(struct output *o, const char *directory, const char *name);
int output_open_path(struct output *o, const char *path);
/* Writes the file, synchronised, under its name; an older one of that name remains until then. Frees o. */
int output_commit(struct output *o);
void output_discard(struct output *o);
/* The same for existing bytes. */
int output_write(const char *directory, const char *name, const void *bytes, size_t size);

/* A file that grows by lines, each of which reaches the system at once. */
struct output_lines {
    char *path, *part;
    long long size; /* of the lines that are complete */
    int descriptor;
    bool torn;  /* ends with a piece of a line that could not be removed */
    bool held;  /* in memory, until they are released */
    char *text; /* of those that are held, `size` bytes */
    size_t room;
};

int output_lines_open(struct output_lines *o, const char *directory, const char *name);
/* Appends `line` and a line feed. After a failure the file ends with the last complete line. */
int output_lines_add(struct output_lines *o, const char *line);
/* Holds lines back in memory, and releases them to `to`; lines added to `o` after that must go there too. */
void output_lines_hold(struct output_lines *o);
int output_lines_release(struct output_lines *o, struct output_lines *to);
/* Gives the file its name, with the complete lines that it has. Frees o. */
int output_lines_commit(struct output_lines *o);
void output_lines_discard(struct output_lines *o);

/* Waits until the names of a folder are on the disk. */
int output_sync_folder(const char *directory);
/* Waits until the bytes of a written file are on the disk. */
int output_sync_file(const char *path);

#endif
