/* options_table.h - the table of the options, which parsing, limits, help and checkpoints read. */
#ifndef FLEXLAB_OPTIONS_TABLE_H
#define FLEXLAB_OPTIONS_TABLE_H

#include "options/options.h"
#include <getopt.h>
#include <stddef.h>

enum option_kind { KIND_TEXT, KIND_NAME, KIND_WHOLE, KIND_REAL, KIND_SWITCH, KIND_LIST };
/* An option of `train` that may stand beside --resume: it is no property of the training. */
enum { GOING_ON = 1 << 28 }; /* beyond every enum command */
/* Such an option that has its earlier value if it is not given anew. */
enum { KEPT = 1 << 29 };

/* An entry with a section begins a new heading of the help text. */
struct option_row {
    const char *name, *placeholder;
    int commands;
    enum option_kind kind;
    size_t offset;               /* in struct settings */
    double low, high;            /* KIND_WHOLE, KIND_REAL: inclusive */
    const char *(*names)(int i); /* KIND_NAME; "NAME:END" is NAME, a colon and a number from low to high */
    int value;                   /* KIND_SWITCH */
    const char *section;
    const char *help;
};

/* All entries in the order of the help text; NULL if there is no entry i. */
const struct option_row *options_row(int i);
/* The options of a command for getopt_long, which returns OPTION_FOUND + i for entry i. Valid until the next call. */
enum { OPTION_FOUND = 256 };
const struct option *options_known(enum command command);

#endif
