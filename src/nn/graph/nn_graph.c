/* nn_graph.c - a graph while it is built, its first failure, and its properties. */
#include "nn/graph/nn_graph.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int64_t fl_shape_count(const struct fl_shape *shape) {
    int64_t count = 1;
    for (int i = 0; i < shape->ndim; i++)
        count *= shape->dim[i];
    return count;
}

tensor_status fl_grow(void **array, int count, int *capacity, size_t size) {
    if (count < *capacity)
        return TENSOR_OK;
    int wanted = *capacity ? 2 * *capacity : 32;
    void *bigger = fl_alloc_zero((size_t)wanted * size);
    if (!bigger)
        return fl_fail(TENSOR_E_MEMORY, "graph: no memory for %d entries", wanted);
    if (count)
        memcpy(bigger, *array, (size_t)count * size);
    fl_free(*array);
    *array = bigger;
    *capacity = wanted;
    return TENSOR_OK;
}

char *fl_format_name(const char *format, ...) {
    char text[3 * FL_NAME_LIMIT]; /* at most two names and a suffix */
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return fl_strdup(text);
}

nn_node fl_build_failed(nn_graph *g, tensor_status status) {
    if (g && !g->status) {
        g->status = status;
        snprintf(g->message, sizeof g->message, "%s", tensor_error());
    }
    return -1;
}

/* --- what it says --- */

int nn_tensor_count(const nn_graph *g) {
    return g && g->compiled ? g->info_count : 0;
}

nn_tensor_info nn_tensor_at(const nn_graph *g, int i) {
    return i >= 0 && i < nn_tensor_count(g) ? g->infos[i] : (nn_tensor_info){NULL, NULL, NULL};
}

int64_t nn_parameter_count(const nn_graph *g) {
    int64_t count = 0;
    for (int i = 0; g && i < g->count; i++)
        for (int k = 0; k < g->nodes[i].parameters; k++)
            count += fl_shape_count(&g->nodes[i].parameter[k].shape);
    return count;
}

int64_t nn_weight_bytes(const nn_graph *g) {
    int64_t bytes = 0;
    for (int i = 0; g && g->compiled && i < g->count; i++)
        for (int k = 0; k < g->nodes[i].parameters; k++)
            bytes += fl_parameter_bytes(&g->nodes[i].parameter[k]);
    return bytes;
}

int64_t nn_activation_bytes(const nn_graph *g) {
    int64_t bytes = 0;
    for (int i = 0; g && g->compiled && i < g->value_count; i++)
        if (g->values[i].evaluate && fl_is_stored(g, i))
            bytes += (int64_t)tensor_bytes(g->values[i].t);
    return bytes;
}

int64_t nn_arena_bytes(const nn_graph *g) {
    return g && g->compiled ? (int64_t)g->value_bytes : 0;
}

int64_t nn_workspace_bytes(const nn_graph *g) {
    return g && g->compiled && g->arena_bytes > g->value_bytes ? (int64_t)(g->arena_bytes - g->value_bytes) : 0;
}
