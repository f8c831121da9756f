/* info.h - the parts of the command info. */
#ifndef FLEXLAB_INFO_H
#define FLEXLAB_INFO_H

#include <stdbool.h>

/* The names of the tables and what they hold; NULL past the last. */
const char *info_table_name(int i);
const char *info_table_summary(int i);
/* Those names, then the models'. */
const char *info_name(int i);
/* Prints the table of this name; false where there is none. */
bool info_table(const char *name);
/* The formats without a heading, each line behind `indent` blanks. */
void info_formats(int indent);

/* The tensors of a model on standard output; a STATUS_ code. */
int info_model(const char *model);
/* The number of parameters, "-" where it cannot be built; to be freed. */
char *info_parameters(const char *model);

#endif
