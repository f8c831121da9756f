/* nn_rows_file.h - a file that grows row by row and is read back for checkpoints. It gets its name when it is complete;
 * until then it is PATH.part, which nobody else writes: another file of rows at the same place is refused, in this
 * process or another, however its path is spelled (where the file system knows locks). */
#ifndef FL_NN_ROWS_FILE_H
#define FL_NN_ROWS_FILE_H

#include "flexlab/tensor.h"
#include <stdio.h>

/* All zero: none. */
struct fl_rows_file {
    FILE *file; /* NULL: none, or no longer */
    char *path, *part;
    const char *of; /* before messages: "trace" */
    int lock;       /* a second descriptor, which outlives `file` until the name is given; while file is not NULL */
};

/* `of` must outlive the file. On failure there is no file. */
tensor_status fl_rows_open(struct fl_rows_file *f, const char *of, const char *path);
/* TENSOR_E_IO if a write to f->file has failed. */
tensor_status fl_rows_check(const struct fl_rows_file *f);
/* Reads the text written so far, to be freed with fl_free, and writes such a text. */
tensor_status fl_rows_text(const struct fl_rows_file *f, char **text, int64_t *bytes);
tensor_status fl_rows_set_text(const struct fl_rows_file *f, const char *text, int64_t bytes);
/* Gives the file its name; removes it where that fails. */
tensor_status fl_rows_finish(struct fl_rows_file *f);
/* Removes what was not finished, and frees; f is none then. */
void fl_rows_drop(struct fl_rows_file *f);

#endif
