/* delayed.h - the parameters of the predictor "delayed" in text and in a number.
 *
 * The number says them, so that it means the same in every process: AUTOFLEX_DELAYED_WITH, one bit for most_recent,
 * seven for the margin, sixteen for the history. With the parameters of TransformerEngine it is AUTOFLEX_DELAYED. */
#ifndef FL_DELAYED_H
#define FL_DELAYED_H

#include "flexlab/autoflex.h"

/* Whether a name is "delayed" or begins with its parameters. */
bool fl_delayed_begins(const char *name);
tensor_status fl_delayed_find(autoflex_predictor *predictor, const char *name);
/* The canonical name of a number from parameters, for the rest of the process; NULL: it is none. */
const char *fl_delayed_name(autoflex_predictor predictor);
/* Sets predictor and parameters of a state. */
void fl_autoflex_set_predictor(struct autoflex *a, autoflex_predictor predictor);

#endif
