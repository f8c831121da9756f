/* output.h - the folder of results. A file is NAME.part until it is complete; only then it gets its name. */
#ifndef FLEXLAB_OUTPUT_H
#define FLEXLAB_OUTPUT_H

#include <stdbool.h>
#include <stdio.h>

/* Makes the folder with its parents where missing and checks that it can be written and holds no results; with `force`
 * earlier results are removed. Prints what is wrong; a STATUS_ code. */
int output_prepare(const char *directory, bool force);

struct output {
    FILE *file; /* NULL for a file that another program writes */
    char *path, *part;
};

/* DIRECTORY/NAME. These print what is wrong and return a STATUS_ code. output_reserve names the file and opens nothing.
 */
int output_open(struct output *o, const char *directory, const char *name);
void output_reserve(struct output *o, const char *directory, const char *name);
/* Gives the file its name. On failure the part is removed. */
int output_commit(struct output *o);
void output_discard(struct output *o);

#endif
