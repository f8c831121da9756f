/* onnx_names.c - names by hash, in chains that the last name of each begins, so that a graph's names go as they came.
 */
#include "program/onnx/onnx_names.h"
#include "core/base/fail.h"
#include "core/base/hash.h"
#include "core/base/memory.h"
#include "program/network/network.h"
#include <string.h>

struct fl_onnx_name {
    const char *name;
    int value;
    int32_t next; /* 1 + the index of the next of its chain */
};

static size_t bucket(const struct fl_onnx_names *t, const char *name) {
    const uint64_t hash = fl_hash(FL_HASH, name, strlen(name));
    return (size_t)(hash ^ hash >> 32) & (t->head_count - 1);
}

int fl_onnx_names_find(const struct fl_onnx_names *t, const char *name) {
    for (int32_t i = t->head_count ? t->heads[bucket(t, name)] : 0; i; i = t->names[i - 1].next)
        if (!strcmp(t->names[i - 1].name, name))
            return t->names[i - 1].value;
    return -1;
}

static void link_name(struct fl_onnx_names *t, size_t i) {
    int32_t *const head = &t->heads[bucket(t, t->names[i].name)];
    t->names[i].next = *head;
    *head = (int32_t)i + 1;
}

static tensor_status grow(struct fl_onnx_names *t) {
    const size_t room = t->room ? 2 * t->room : 64;
    struct fl_onnx_name *const names = fl_alloc(room * sizeof *names);
    int32_t *const heads = fl_alloc_zero(room * sizeof *heads);
    if (!names || !heads || room > INT32_MAX) {
        fl_free(names);
        fl_free(heads);
        return fl_fail(TENSOR_E_MEMORY, "no memory for %zu names", room);
    }
    if (t->count)
        memcpy(names, t->names, t->count * sizeof *names);
    fl_free(t->names);
    fl_free(t->heads);
    t->names = names;
    t->heads = heads;
    t->room = t->head_count = room;
    for (size_t i = 0; i < t->count; i++)
        link_name(t, i);
    return TENSOR_OK;
}

tensor_status fl_onnx_names_add(struct fl_onnx_names *t, const char *name, int value) {
    if (t->count == t->room)
        TRY(grow(t));
    t->names[t->count] = (struct fl_onnx_name){.name = name, .value = value};
    link_name(t, t->count++);
    return TENSOR_OK;
}

void fl_onnx_names_leave(struct fl_onnx_names *t, size_t count) {
    while (t->count > count) {
        const size_t last = --t->count;
        t->heads[bucket(t, t->names[last].name)] = t->names[last].next;
    }
}

void fl_onnx_names_free(struct fl_onnx_names *t) {
    fl_free(t->names);
    fl_free(t->heads);
    *t = (struct fl_onnx_names){0};
}
