/* nn_models_text.h - families of models that read text, each in a file of its own; nn_models_text.c lists them. */
#ifndef FL_NN_MODELS_TEXT_H
#define FL_NN_MODELS_TEXT_H

#include "nn/graph/nn_graph.h"

/* nn_models_gpt.c: whether a name is of that family, numbers out of range included; its network on tokens, to the
 * logits. */
bool fl_gpt_named(const char *name);
nn_node fl_gpt(nn_graph *g, const char *name, nn_node tokens, int vocabulary);
/* nn_models_recurrent.c: the same of theirs. */
bool fl_recurrent_named(const char *name);
nn_node fl_recurrent(nn_graph *g, const char *name, nn_node tokens, int vocabulary);

#endif
