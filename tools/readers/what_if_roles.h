/* what_if_roles.h - reads what `flexlab what-if --out` has found for each role: the file what-if.json. */
#ifndef FLEXLAB_WHAT_IF_ROLES_H
#define FLEXLAB_WHAT_IF_ROLES_H

#include <cJSON.h>
#include <stdbool.h>

struct what_if_roles {
    cJSON *all; /* owns the texts */
    const char *network, *data;
    const cJSON *roles; /* objects with a text "role", and objects "formats" with a text "format" each, the same
                           formats in every role */
};

/* *found: whether there is a file DIRECTORY/what-if.json. A STATUS_ code; a message names what is wrong in it. */
int what_if_roles_read(struct what_if_roles *w, const char *directory, bool *found);
/* A member that is a number, or NAN. */
double what_if_roles_number(const cJSON *object, const char *name);
void what_if_roles_clear(struct what_if_roles *w);

#endif
