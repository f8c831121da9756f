/* output.h - files that have their name only when they are complete: NAME.part until every byte is on the disk. They
 * replace regular files alone: where a link, a FIFO or a device has the name, nothing is written. */
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

/* DIRECTORY/NAME. All of these print what is wrong and return a STATUS_ code. */
int output_open(struct output *o, const char *directory, const char *name);
/* Writes the file, synchronised, under its name; an older one of that name stays until then. Frees o. */
int output_commit(struct output *o);
void output_discard(struct output *o);
/* The same for bytes that there are already. */
int output_write(const char *directory, const char *name, const void *bytes, size_t size);

/* A file that grows by lines, each of which reaches the system at once. */
struct output_lines {
    char *path, *part;
    long long size; /* of the lines that are complete */
    int descriptor;
    bool torn;  /* ends in a piece of a line that could not be cut off */
    bool held;  /* in memory, until they are released */
    char *text; /* of those that are held, `size` bytes */
    size_t room;
};

int output_lines_open(struct output_lines *o, const char *directory, const char *name);
/* Appends `line` and a line feed. After a failure the file ends with the last complete line. */
int output_lines_add(struct output_lines *o, const char *line);
/* Lines that are held back, and go to `to` at once when it is their turn; what is added to `o` after that must go there
 * too. */
void output_lines_hold(struct output_lines *o);
int output_lines_release(struct output_lines *o, struct output_lines *to);
/* Gives the file its name, with the complete lines that it has. Frees o. */
int output_lines_commit(struct output_lines *o);
void output_lines_discard(struct output_lines *o);

/* Names of a folder reach the disk. */
int output_sync_folder(const char *directory);
/* For a file that is already written: its bytes reach the disk. */
int output_sync_file(const char *path);

#endif
