/* nn_checkpoint.h - a checkpoint with the data that a training stores in it besides the network. */
#ifndef FL_NN_CHECKPOINT_H
#define FL_NN_CHECKPOINT_H

#include "nn/graph/nn_graph.h"
#include "safetensors/safetensors.h"

/* The prefix of names that do not belong to the network. */
#define FL_TRAINING "training."

/* The note that every checkpoint has, the number of its layout. */
#define FL_CHECKPOINT_KEY "flexlab.checkpoint"

/* A list of numbers or bytes under a name of its own. */
struct fl_extra {
    const char *name;
    enum fl_stored_type type;
    int64_t count;
    const void *values;
};

tensor_status fl_checkpoint_write(const nn_graph *g, const char *path, const nn_note *notes, int note_count,
                                  const struct fl_extra *extras, int extra_count);
/* Opens the file and checks everything that does not depend on a network. Close with fl_safetensors_close. */
tensor_status fl_checkpoint_open(struct fl_safetensors *s, const char *path);
/* Checks that the settings of the network are those of the file. */
tensor_status fl_checkpoint_settings(const struct fl_safetensors *s, const nn_graph *g);
/* Takes the open file over: nn_compile refuses a network that is not the one in it (nn_expected.c). */
tensor_status fl_expect_network(nn_graph *g, struct fl_safetensors *s);
/* "[3, 4]" */
enum { FL_SHAPE_TEXT = 160 };
const char *fl_checkpoint_shape_text(char text[FL_SHAPE_TEXT], int ndim, const int64_t *dim);
tensor_status fl_checkpoint_load(nn_graph *g, const struct fl_safetensors *s);
/* TENSOR_E_DATA, naming the key, if there is no such note or it is no such number. */
tensor_status fl_checkpoint_whole(const struct fl_safetensors *s, const char *key, int64_t low, int64_t high,
                                  int64_t *value);
/* The elements of an extra of that type, to be freed with fl_free; *count is their number, which must be `expected`
 * unless that is -1. */
tensor_status fl_checkpoint_extra(const struct fl_safetensors *s, const char *name, enum fl_stored_type type,
                                  int64_t expected, void **values, int64_t *count);
/* Whether elements of that type are codes of a format that the note NAME.format names. */
static inline bool fl_checkpoint_has_codes(enum fl_stored_type type) {
    return type == FL_STORED_U8 || type == FL_STORED_U16 || type == FL_STORED_U32;
}
/* nn_checkpoint_values of an open file. */
tensor_status fl_checkpoint_values(const struct fl_safetensors *s, const char *name, double *values, int64_t count);

#endif
