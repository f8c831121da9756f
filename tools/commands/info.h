/* info.h - the parts of the command info. */
#ifndef FLEXLAB_INFO_H
#define FLEXLAB_INFO_H

#include <stdbool.h>

/* The name and the summary of table i; NULL past the last. */
const char *info_table_name(int i);
const char *info_table_summary(int i);
/* The names of the tables, then those of the models. */
const char *info_name(int i);
/* Prints the table of this name; false if there is none. */
bool info_table(const char *name);
/* Prints the formats without a heading, each line indented by `indent` blanks. */
void info_formats(int indent);

/* Prints the tensors of a model; returns a STATUS_ code. */
int info_model(const char *model, bool probe);
/* The number of parameters, "-" if the model cannot be built; to be freed. */
char *info_parameters(const char *model);

#endif
