/* nn_expected.c - compares a file with the network that will be loaded from it, before that is compiled: planned shapes
 * and batch must be those of the file, so that nothing is allocated for a network that is not in it. */
#include "nn/checkpoints/nn_checkpoint.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/values/tensor_state.h"
#include <stdio.h>
#include <string.h>

struct expected_file {
    struct fl_expected head;
    struct fl_safetensors file;
};

const char *fl_checkpoint_shape_text(char text[FL_SHAPE_TEXT], int ndim, const int64_t *dim) {
    const size_t room = FL_SHAPE_TEXT;
    size_t used = (size_t)snprintf(text, room, "[");
    for (int d = 0; d < ndim && used < room - 30; d++)
        used += (size_t)snprintf(text + used, room - used, "%s%lld", d ? ", " : "", (long long)dim[d]);
    snprintf(text + used, room - used, "]");
    return text;
}

static bool same_shape(const struct fl_stored_tensor *t, const struct fl_shape *shape) {
    return t->ndim == shape->ndim && !memcmp(t->dim, shape->dim, (size_t)t->ndim * sizeof *t->dim);
}

static tensor_status check_tensor(const struct fl_safetensors *s, const char *owner, const char *suffix,
                                  const struct fl_shape *shape) {
    char found[FL_SHAPE_TEXT], expected[FL_SHAPE_TEXT];
    char *name = fl_format_name("%s.%s", owner, suffix);
    const struct fl_stored_tensor *t = name ? fl_safetensors_find(s, name) : NULL;
    tensor_status status = TENSOR_OK;
    fl_checkpoint_shape_text(expected, shape->ndim, shape->dim);
    if (!name)
        status = fl_fail(TENSOR_E_MEMORY, "checkpoint: no memory for a name");
    else if (!t)
        status = fl_fail(TENSOR_E_DATA, "checkpoint: %s: tensor '%.150s' is missing, expected one of shape %s", s->path,
                         name, expected);
    else if (!same_shape(t, shape))
        status = fl_fail(TENSOR_E_DATA, "checkpoint: %s: tensor '%.150s' has the shape %s, that of the network %s",
                         s->path, name, fl_checkpoint_shape_text(found, t->ndim, t->dim), expected);
    fl_free(name);
    return status;
}

static tensor_status check_node(const struct fl_safetensors *s, const struct fl_node *node) {
    for (int k = 0; k < node->parameters; k++)
        TRY(check_tensor(s, node->owner, node->parameter[k].suffix, &node->parameter[k].shape));
    for (int k = 0; k < node->states; k++)
        if (node->state[k].lasts)
            TRY(check_tensor(s, node->owner, node->state[k].suffix, &node->state[k].shape));
    return TENSOR_OK;
}

/* The first value of a step: its last write, of a whole batch, had so many elements; 0 before the first step. */
static tensor_status check_batch(const struct fl_safetensors *s, const nn_graph *g) {
    int first = 0;
    while (first < g->value_count && !fl_is_stored(g, first))
        first++;
    if (first == g->value_count)
        return TENSOR_OK;
    const struct fl_value *v = &g->values[first];
    char *name = g->shards > 1 ? fl_format_name("%s.shard0.slot", v->name) : fl_format_name("%s.slot", v->name);
    int64_t whole[FL_SLOT_WHOLE];
    const struct fl_stored_tensor *t = name ? fl_safetensors_find(s, name) : NULL;
    tensor_status status = TENSOR_OK;
    if (!name)
        status = fl_fail(TENSOR_E_MEMORY, "checkpoint: no memory for a name");
    else if (!t || t->type != FL_STORED_I64 || t->end - t->begin != sizeof whole)
        status = fl_fail(TENSOR_E_DATA, "checkpoint: %s: tensor '%.150s' is %s, expected I64 [%d]", s->path, name,
                         t ? "another" : "missing", FL_SLOT_WHOLE);
    else
        status = fl_safetensors_read(s, t, whole);
    if (!status && whole[FL_SLOT_ELEMENTS] && whole[FL_SLOT_ELEMENTS] != fl_shape_count(&v->shape))
        status = fl_fail(
            TENSOR_E_DATA,
            "checkpoint: %s: '%.150s' has %lld elements with 'network.batch' %d, but '%.150s' tells of %lld", s->path,
            v->name, (long long)fl_shape_count(&v->shape), fl_whole_batch(g), name, (long long)whole[FL_SLOT_ELEMENTS]);
    fl_free(name);
    return status;
}

static tensor_status check(const nn_graph *g, const struct fl_expected *head) {
    const struct fl_safetensors *s = &((const struct expected_file *)head)->file;
    TRY(fl_checkpoint_settings(s, g));
    for (int i = 0; i < g->count; i++)
        TRY(check_node(s, &g->nodes[i]));
    return check_batch(s, g);
}

static void release(struct fl_expected *head) {
    struct expected_file *expected = (struct expected_file *)head;
    fl_safetensors_close(&expected->file);
    fl_free(expected);
}

tensor_status fl_expect_network(nn_graph *g, struct fl_safetensors *s) {
    struct expected_file *expected = fl_alloc_zero(sizeof *expected);
    if (!expected)
        return fl_fail(TENSOR_E_MEMORY, "checkpoint: no memory");
    *expected = (struct expected_file){{check, release}, *s};
    *s = (struct fl_safetensors){.file = -1};
    g->expected = &expected->head;
    return TENSOR_OK;
}
