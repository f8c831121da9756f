/* onnx_model.h - ONNX models for tests, put together field by field, so that they can be wrong in any place. Numbers of
 * fields are those of src/program/onnx/onnx.proto. */
#ifndef FL_ONNX_MODEL_H
#define FL_ONNX_MODEL_H

#include "check.h"
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

struct message {
    size_t size;
    uint8_t bytes[1 << 16];
};

static inline void put_raw(struct message *m, const void *bytes, size_t size) {
    if (size > sizeof m->bytes - m->size) {
        printf("a test's model is larger than %zu bytes\n", sizeof m->bytes);
        exit(1);
    }
    if (size)
        memcpy(m->bytes + m->size, bytes, size);
    m->size += size;
}

static inline void put_varint(struct message *m, uint64_t value) {
    for (; value >= 0x80; value >>= 7)
        put_raw(m, &(uint8_t){(uint8_t)(value | 0x80)}, 1);
    put_raw(m, &(uint8_t){(uint8_t)value}, 1);
}

static inline void put_int(struct message *m, int field, int64_t value) {
    put_varint(m, (uint64_t)field << 3);
    put_varint(m, (uint64_t)value);
}

static inline void put_bytes(struct message *m, int field, const void *bytes, size_t size) {
    put_varint(m, (uint64_t)field << 3 | 2);
    put_varint(m, size);
    put_raw(m, bytes, size);
}

static inline void put_text(struct message *m, int field, const char *text) {
    put_bytes(m, field, text, strlen(text));
}

static inline void put_float(struct message *m, int field, float value) {
    put_varint(m, (uint64_t)field << 3 | 5);
    put_raw(m, &value, sizeof value);
}

static inline void put_message(struct message *m, int field, const struct message *part) {
    put_bytes(m, field, part->bytes, part->size);
}

/* --- parts of a model; a message that begins is static, and empty until the next call ----------------------------- */

enum {
    FLOAT = 1,
    INT64 = 7,
    MODEL_GRAPH = 7,
    GRAPH_NODE = 1,
    GRAPH_INITIALIZER = 5,
    GRAPH_INPUT = 11,
    GRAPH_OUTPUT,
    GRAPH_VALUE_INFO
};

/* A value with dimensions as text: "N,3,?" ; NULL: no type at all. */
static inline void add_value(struct message *graph, int field, const char *name, int type, const char *dims) {
    static struct message value, outer, typed, shape, dim;
    value.size = outer.size = typed.size = shape.size = 0;
    put_text(&value, 1, name);
    for (const char *p = dims; p && *p; p += *p == ',') {
        const size_t length = strcspn(p, ",");
        char *end;
        const long long size = strtoll(p, &end, 10);
        dim.size = 0;
        if (end != p && size != -1)
            put_int(&dim, 1, size);
        else
            put_bytes(&dim, 2, p, length);
        put_message(&shape, 1, &dim);
        p += length;
    }
    if (dims) {
        put_int(&typed, 1, type);
        put_message(&typed, 2, &shape);
        put_message(&outer, 1, &typed);
        put_message(&value, 2, &outer);
    }
    put_message(graph, field, &value);
}

/* The words of a text between spaces, as fields; "-" stands for an empty one. */
static inline void put_words(struct message *m, int field, const char *words) {
    for (size_t length; *words; words += length + (words[length] == ' ')) {
        length = strcspn(words, " ");
        put_bytes(m, field, words, length == 1 && *words == '-' ? 0 : length);
    }
}

static inline void start_node(struct message *node, const char *op, const char *name, const char *inputs,
                              const char *outputs) {
    node->size = 0;
    put_words(node, 1, inputs);
    put_words(node, 2, outputs);
    put_text(node, 3, name);
    put_text(node, 4, op);
}

static inline void add_node(struct message *graph, const char *op, const char *name, const char *inputs,
                            const char *outputs) {
    static struct message node;
    start_node(&node, op, name, inputs, outputs);
    put_message(graph, GRAPH_NODE, &node);
}

static inline void attribute_int(struct message *node, const char *name, int64_t value) {
    static struct message a;
    a.size = 0;
    put_text(&a, 1, name);
    put_int(&a, 3, value);
    put_int(&a, 20, 2);
    put_message(node, 5, &a);
}

static inline void attribute_float(struct message *node, const char *name, float value) {
    static struct message a;
    a.size = 0;
    put_text(&a, 1, name);
    put_float(&a, 2, value);
    put_int(&a, 20, 1);
    put_message(node, 5, &a);
}

static inline void attribute_text(struct message *node, const char *name, const char *value) {
    static struct message a;
    a.size = 0;
    put_text(&a, 1, name);
    put_text(&a, 4, value);
    put_int(&a, 20, 3);
    put_message(node, 5, &a);
}

static inline void attribute_ints(struct message *node, const char *name, int count, const int64_t *values) {
    static struct message a;
    a.size = 0;
    put_text(&a, 1, name);
    for (int i = 0; i < count; i++)
        put_int(&a, 8, values[i]);
    put_int(&a, 20, 7);
    put_message(node, 5, &a);
}

static inline void attribute_floats(struct message *node, const char *name, int count, const float *values) {
    static struct message a;
    a.size = 0;
    put_text(&a, 1, name);
    for (int i = 0; i < count; i++)
        put_float(&a, 7, values[i]);
    put_int(&a, 20, 6);
    put_message(node, 5, &a);
}

static inline void attribute_message(struct message *node, const char *name, int field, int type,
                                     const struct message *part) {
    static struct message a;
    a.size = 0;
    put_text(&a, 1, name);
    put_message(&a, field, part);
    put_int(&a, 20, type);
    put_message(node, 5, &a);
}

/* A tensor without its numbers. */
static inline void start_tensor(struct message *t, const char *name, int type, int ndim, const int64_t *dim) {
    t->size = 0;
    for (int i = 0; i < ndim; i++)
        put_int(t, 1, dim[i]);
    put_int(t, 2, type);
    put_text(t, 8, name);
}

static inline void add_floats(struct message *graph, const char *name, int count, const float *values) {
    static struct message t;
    start_tensor(&t, name, FLOAT, 1, &(int64_t){count});
    put_bytes(&t, 9, values, (size_t)count * sizeof *values);
    put_message(graph, GRAPH_INITIALIZER, &t);
}

static inline void make_model(struct message *model, int ir, int opset, const struct message *graph) {
    static struct message import;
    model->size = import.size = 0;
    put_int(model, 1, ir);
    put_text(model, 2, "a test");
    if (graph)
        put_message(model, MODEL_GRAPH, graph);
    put_int(&import, 2, opset);
    put_message(model, 8, &import);
}

#endif
