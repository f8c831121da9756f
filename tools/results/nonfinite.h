/* nonfinite.h - the first NaN or Inf of a run, as the program stores and describes it. */
#ifndef FLEXLAB_NONFINITE_H
#define FLEXLAB_NONFINITE_H

#include "flexlab/nn.h"
#include "options/options.h"

/* A copy of nn_nonfinite that owns its texts. */
struct nonfinite {
    int64_t step; /* 0: all is finite, and the other members are empty */
    int64_t count, elements;
    char *pass, *tensor, *role, *layer, *format;
    char *remedy; /* NULL: no format helps */
};

struct nonfinite nonfinite_of(const nn_nonfinite *first); /* NULL: none */
void nonfinite_clear(struct nonfinite *first);
/* "in the forward pass: 3 of 64 elements of conv1 (activation, fp16)"; to be freed. */
char *nonfinite_text(const struct nonfinite *first);
/* The options beside those of `settings` (NULL: none) under which it would be finite, such as "--layer-format
 * 'conv1=fp32'"; to be freed. NULL: there are none. */
char *nonfinite_options(const struct nonfinite *first, const struct settings *settings);
/* Both: "...; with --layer-format 'conv1=fp32' it would be finite". */
char *nonfinite_sentence(const struct nonfinite *first, const struct settings *settings);
/* Whether it appeared before the gradients, so that no loss scale helps. */
bool nonfinite_is_forward(const char *pass);

#endif
