/* tflite_file.h - writes small .tflite files: a model as plain structs, laid out as FlatBuffers have it, front to back.
 * The numbers of fields, types and operators are those of the format's schema, written down here once more. */
#ifndef TFLITE_FILE_H
#define TFLITE_FILE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { FLOAT32 = 0, FLOAT16 = 1, INT32 = 2, UINT8 = 3, STRING = 5, INT8 = 9, INT4 = 17 };
enum {
    ADD = 0,
    AVERAGE_POOL_2D = 1,
    CONCATENATION = 2,
    CONV_2D = 3,
    DEPTHWISE_CONV_2D = 4,
    DEPTH_TO_SPACE = 5,
    DEQUANTIZE = 6,
    FULLY_CONNECTED = 9,
    MAX_POOL_2D = 17,
    RELU6 = 21,
    RESHAPE = 22,
    RESIZE_BILINEAR = 23,
    SOFTMAX = 25,
    CUSTOM = 32,
    PAD = 34,
    TRANSPOSE = 39,
    MEAN = 40,
    SQUEEZE = 43,
    STRIDED_SLICE = 45,
    LEAKY_RELU = 98,
    QUANTIZE = 114,
    CUMSUM = 128
};
enum { DIMS = 9, LIST = 8 };

struct file_tensor {
    const char *name;
    int type, ndim;
    int32_t shape[DIMS], signature[DIMS];
    bool has_signature, variable;
    const void *data; /* NULL: no constant */
    uint32_t bytes;
    int scales, zeros; /* zeros 0: as many as scales, of which each is 0 */
    float scale[LIST];
    int64_t zero[LIST];
    int axis;
    uint32_t buffer; /* of another tensor, or one that is not there; 0: its own, if it has data */
};

struct file_field {
    int id, bytes;
    int64_t value;
};

struct file_operator {
    int code;
    int ins, outs;
    int32_t in[LIST], out[LIST];
    int options; /* the number of the table in the union; 0: none */
    int fields;
    struct file_field field[8];
    int list; /* numbers of the list that is field 0, of RESHAPE and SQUEEZE */
    int32_t numbers[LIST];
    const char *custom;
    bool no_code;
};

struct file_model {
    int tensors, operators, ins, outs;
    struct file_tensor tensor[24];
    struct file_operator op[12];
    int32_t in[LIST], out[LIST];
    int version, graphs; /* 0: 3 and 1; -1: none */
    bool same_tensors;   /* each tensor is the first one's table */
};

struct file_writer {
    uint8_t *bytes;
    size_t used, room;
};

static inline size_t file_room(struct file_writer *w, size_t align, size_t offset, size_t bytes) {
    while (w->used % align != offset)
        w->bytes[w->used++] = 0;
    const size_t at = w->used;
    memset(w->bytes + at, 0, bytes);
    w->used += bytes;
    return at;
}

static inline void file_put(struct file_writer *w, size_t at, int bytes, int64_t value) {
    memcpy(w->bytes + at, &value, (size_t)bytes);
}

/* The number at `from` points to what stands at `to`. */
static inline void file_link(struct file_writer *w, size_t from, size_t to) {
    file_put(w, from, 4, (int64_t)(to - from));
}

/* A table with these fields; slot[i] is where field i stands. */
static inline size_t file_table(struct file_writer *w, int count, const struct file_field *fields, size_t *slot) {
    uint16_t offsets[32] = {0};
    size_t size = 4;
    int ids = 0;
    for (int i = 0; i < count; i++) {
        size = (size + (size_t)fields[i].bytes - 1) / (size_t)fields[i].bytes * (size_t)fields[i].bytes;
        offsets[fields[i].id] = (uint16_t)size;
        size += (size_t)fields[i].bytes;
        ids = fields[i].id + 1 > ids ? fields[i].id + 1 : ids;
    }
    const size_t vtable = file_room(w, 8, 0, 4 + 2 * (size_t)ids), table = file_room(w, 8, 0, size);
    file_put(w, vtable, 2, 4 + 2 * ids);
    file_put(w, vtable + 2, 2, (int64_t)size);
    memcpy(w->bytes + vtable + 4, offsets, 2 * (size_t)ids);
    file_put(w, table, 4, (int64_t)(table - vtable));
    for (int i = 0; i < count; i++) {
        file_put(w, table + offsets[fields[i].id], fields[i].bytes, fields[i].value);
        if (slot)
            slot[fields[i].id] = table + offsets[fields[i].id];
    }
    return table;
}

static inline size_t file_list(struct file_writer *w, size_t from, size_t count, size_t bytes, const void *data) {
    const size_t at = file_room(w, 8, 4, 4 + count * bytes);
    file_put(w, at, 4, (int64_t)count);
    if (data && count)
        memcpy(w->bytes + at + 4, data, count * bytes);
    file_link(w, from, at);
    return at + 4;
}

static inline void file_text(struct file_writer *w, size_t from, const char *text) {
    file_list(w, from, strlen(text), 1, text);
    file_room(w, 1, 0, 1);
}

static inline void file_tensor(struct file_writer *w, size_t from, const struct file_tensor *t, uint32_t buffer) {
    size_t slot[16], q[16];
    const struct file_field fields[] = {{0, 4, 0}, {1, 1, t->type},     {2, 4, buffer}, {3, 4, 0},
                                        {7, 4, 0}, {5, 1, t->variable}, {4, 4, 0}};
    file_link(w, from, file_table(w, t->scales ? 7 : 6, fields, slot));
    file_list(w, slot[0], (size_t)t->ndim, 4, t->shape);
    file_text(w, slot[3], t->name);
    file_list(w, slot[7], t->has_signature ? (size_t)t->ndim : 0, 4, t->signature);
    if (!t->scales)
        return;
    file_link(w, slot[4], file_table(w, 3, (const struct file_field[]){{2, 4, 0}, {3, 4, 0}, {6, 4, t->axis}}, q));
    file_list(w, q[2], (size_t)t->scales, 4, t->scale);
    file_list(w, q[3], (size_t)(t->zeros ? t->zeros : t->scales), 8, t->zero);
}

static inline void file_operator(struct file_writer *w, size_t from, const struct file_operator *o, uint32_t code) {
    size_t slot[16], option[16];
    const struct file_field fields[] = {{0, 4, code}, {1, 4, 0}, {2, 4, 0}, {3, 1, o->options}, {4, 4, 0}};
    file_link(w, from, file_table(w, o->options ? 5 : 3, fields, slot));
    file_list(w, slot[1], (size_t)o->ins, 4, o->in);
    file_list(w, slot[2], (size_t)o->outs, 4, o->out);
    if (!o->options)
        return;
    if (o->list) {
        file_link(w, slot[4], file_table(w, 1, (const struct file_field[]){{0, 4, 0}}, option));
        file_list(w, option[0], (size_t)o->list, 4, o->numbers);
    } else {
        file_link(w, slot[4], file_table(w, o->fields, o->field, NULL));
    }
}

/* Writes the file into bytes, which has room; its size. Each operator has a code of its own, each constant a buffer. */
static inline size_t file_write_model(const struct file_model *m, uint8_t *bytes) {
    struct file_writer w = {.bytes = bytes};
    size_t slot[16], graph[16];
    const int version = m->version ? m->version : 3, graphs = m->graphs ? m->graphs : 1;
    file_room(&w, 8, 0, 8);
    memcpy(bytes + 4, "TFL3", 4);
    file_link(&w, 0,
              file_table(&w, 5,
                         (const struct file_field[]){{0, 4, version}, {1, 4, 0}, {2, 4, 0}, {3, 4, 0}, {4, 4, 0}},
                         slot));
    file_text(&w, slot[3], "a test");
    const size_t codes = file_list(&w, slot[1], (size_t)m->operators, 4, NULL);
    for (int i = 0; i < m->operators; i++) {
        const struct file_operator *const o = &m->op[i];
        size_t code[8];
        const struct file_field fields[] = {
            {0, 1, o->code < 127 ? o->code : 127}, {2, 4, 1}, {3, 4, o->code}, {1, 4, 0}};
        file_link(&w, codes + 4 * (size_t)i, file_table(&w, o->custom ? 4 : 3, fields, code));
        if (o->custom)
            file_text(&w, code[1], o->custom);
    }
    uint32_t buffers = 1, buffer_of[24] = {0};
    for (int i = 0; i < m->tensors; i++)
        buffer_of[i] = m->tensor[i].buffer ? m->tensor[i].buffer : m->tensor[i].data ? buffers++ : 0;
    const size_t list = file_list(&w, slot[4], buffers, 4, NULL);
    file_link(&w, list, file_table(&w, 0, NULL, NULL));
    for (int i = 0; i < m->tensors; i++)
        if (!m->tensor[i].buffer && m->tensor[i].data) {
            size_t data[2];
            file_link(&w, list + 4 * buffer_of[i], file_table(&w, 1, (const struct file_field[]){{0, 4, 0}}, data));
            file_list(&w, data[0], m->tensor[i].bytes, 1, m->tensor[i].data);
        }
    const size_t several = file_list(&w, slot[2], graphs > 0 ? (size_t)graphs : 0, 4, NULL);
    const size_t table =
        file_table(&w, 4, (const struct file_field[]){{0, 4, 0}, {1, 4, 0}, {2, 4, 0}, {3, 4, 0}}, graph);
    for (int i = 0; i < graphs; i++)
        file_link(&w, several + 4 * (size_t)i, table);
    file_list(&w, graph[1], (size_t)m->ins, 4, m->in);
    file_list(&w, graph[2], (size_t)m->outs, 4, m->out);
    const size_t tensors = file_list(&w, graph[0], (size_t)m->tensors, 4, NULL);
    for (int i = 0; i < m->tensors; i++)
        file_tensor(&w, tensors + 4 * (size_t)i, &m->tensor[i], buffer_of[i]);
    for (int i = 1; i < m->tensors && m->same_tensors; i++) {
        uint32_t first;
        memcpy(&first, bytes + tensors, 4);
        file_link(&w, tensors + 4 * (size_t)i, tensors + first);
    }
    const size_t operators = file_list(&w, graph[3], (size_t)m->operators, 4, NULL);
    for (int i = 0; i < m->operators; i++)
        file_operator(&w, operators + 4 * (size_t)i, &m->op[i],
                      m->op[i].no_code ? (uint32_t)m->operators : (uint32_t)i);
    return w.used;
}

#endif
