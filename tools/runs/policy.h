/* policy.h - the policies of a comparison, resolved for its network. */
#ifndef FLEXLAB_POLICY_H
#define FLEXLAB_POLICY_H

#include "results/experiment.h"

/* Stores the resolved policy of g in s->roles. */
void policy_take_rows(struct series *s, nn_graph *g);
/* Prints "LABEL: POLICY" on standard output. */
void policy_print_text(const struct series *s);
/* Prints layers, then parameters, on standard output, those with the same formats together. */
void policy_print_rows(const struct series *s);

/* Fills in the roles of every series that has a policy; returns a STATUS_ code: a rule that matches no layer is wrong
 * usage. */
int policy_resolve(struct experiment *x);
/* Prints the policies and the formats of all layers on standard output. */
void policy_print(const struct experiment *x);

#endif
