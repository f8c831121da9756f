/* onnx_write.c - an ONNX file from a network. Messages are composed in one piece of memory; the length of one, which
 * stands before it, is put there when the message is complete. Fields stand in the order of their numbers, which are
 * those of onnx.proto.
 *
 * The encoding: protobuf.dev/programming-guides/encoding. */
#include "program/onnx/onnx_write.h"
#include "core/base/fail.h"
#include "core/base/files.h"
#include "core/base/memory.h"
#include "flexlab/formats.h"
#include "program/network/network.h"
#include "program/network/onnx_types.h"
#include "program/onnx/onnx_names.h"
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { WRITTEN_IR = 10, WRITTEN_OPSET = 21 };

/* --- protobuf ------------------------------------------------------------------------------------------------------
 */

struct bytes {
    uint8_t *at;
    size_t used, room;
    bool failed;
};
enum wire { VARINT, FIXED64, LENGTH, FIXED32 = 5 };

static bool make_room(struct bytes *b, size_t more) {
    if (!b->failed && b->room - b->used < more) {
        const size_t room = 2 * (b->used + more) + 4096;
        uint8_t *const larger = fl_alloc(room);
        if (larger && b->used)
            memcpy(larger, b->at, b->used);
        b->failed = !larger;
        if (larger) {
            fl_free(b->at);
            b->at = larger;
            b->room = room;
        }
    }
    return !b->failed;
}

static void put_bytes(struct bytes *b, const void *bytes, size_t size) {
    if (!make_room(b, size) || !size)
        return;
    memcpy(b->at + b->used, bytes, size);
    b->used += size;
}

static size_t encode(uint8_t to[10], uint64_t value) {
    size_t size = 0;
    for (; value >= 0x80; value >>= 7)
        to[size++] = (uint8_t)(value | 0x80);
    to[size++] = (uint8_t)value;
    return size;
}

static void put_varint(struct bytes *b, uint64_t value) {
    uint8_t text[10];
    put_bytes(b, text, encode(text, value));
}

static void put_tag(struct bytes *b, int field, enum wire wire) {
    put_varint(b, (uint64_t)field << 3 | (uint64_t)wire);
}

static void put_int(struct bytes *b, int field, int64_t value) {
    put_tag(b, field, VARINT);
    put_varint(b, (uint64_t)value);
}

static void put_float(struct bytes *b, int field, float value) {
    put_tag(b, field, FIXED32);
    put_bytes(b, &value, sizeof value);
}

static void put_field(struct bytes *b, int field, const void *bytes, size_t size) {
    put_tag(b, field, LENGTH);
    put_varint(b, size);
    put_bytes(b, bytes, size);
}

static void put_text(struct bytes *b, int field, const char *text) {
    put_field(b, field, text, strlen(text));
}

/* Where the contents of a message begin; end_message takes that. */
static size_t begin_message(struct bytes *b, int field) {
    put_tag(b, field, LENGTH);
    return b->used;
}

static void end_message(struct bytes *b, size_t begin) {
    uint8_t length[10];
    const size_t size = b->used - begin, more = encode(length, size);
    if (!make_room(b, more))
        return;
    memmove(b->at + begin + more, b->at + begin, size);
    memcpy(b->at + begin, length, more);
    b->used += more;
}

/* --- where constants stand -----------------------------------------------------------------------------------------
 */

struct writer {
    const struct fl_network *n;
    struct bytes b;
    struct fl_onnx_names names;
    int *owner;          /* of each value: 1 + the graph that has it as an initializer; 0: nobody reads it */
    int *parent, *depth; /* of each graph, in the order in which they begin; the first is the network's */
    int graph_count;
};

static int count_graphs(const struct fl_net_graph *graph) {
    int count = 1;
    for (int k = 0; k < graph->node_count; k++)
        for (int a = 0; a < graph->nodes[k].attribute_count; a++)
            if (graph->nodes[k].attributes[a].graph)
                count += count_graphs(graph->nodes[k].attributes[a].graph);
    return count;
}

/* A constant stands in the innermost graph around all that read it. */
static void note_reader(struct writer *w, int value, int graph) {
    if (value < 0 || !w->n->values[value].constant)
        return;
    int other = w->owner[value] ? w->owner[value] - 1 : graph;
    while (other != graph)
        if (w->depth[other] > w->depth[graph])
            other = w->parent[other];
        else
            graph = w->parent[graph];
    w->owner[value] = 1 + graph;
}

static void place_constants(struct writer *w, const struct fl_net_graph *graph, int parent) {
    const int self = w->graph_count++;
    w->parent[self] = parent;
    w->depth[self] = parent < 0 ? 0 : w->depth[parent] + 1;
    for (int k = 0; k < graph->node_count; k++) {
        const struct fl_net_node *const node = &graph->nodes[k];
        for (int i = 0; i < node->input_count; i++)
            note_reader(w, node->inputs[i], self);
        for (int a = 0; a < node->attribute_count; a++)
            if (node->attributes[a].graph)
                place_constants(w, node->attributes[a].graph, self);
    }
    for (int i = 0; i < graph->output_count; i++)
        note_reader(w, graph->outputs[i], self);
}

/* --- messages ------------------------------------------------------------------------------------------------------
 */

enum { TENSOR_DIMS = 1, TENSOR_DATA_TYPE = 2, TENSOR_NAME = 8, TENSOR_RAW_DATA = 9 };

static void put_tensor(struct bytes *b, int field, const char *name, const struct fl_array *a) {
    const size_t begin = begin_message(b, field);
    for (int i = 0; i < a->ndim; i++)
        put_int(b, TENSOR_DIMS, a->dim[i]);
    put_int(b, TENSOR_DATA_TYPE, fl_onnx_type_number(a->type));
    put_text(b, TENSOR_NAME, name);
    put_field(b, TENSOR_RAW_DATA, a->data, (size_t)a->count * fl_type_bytes(a->type));
    end_message(b, begin);
}

/* ValueInfoProto with TypeProto, its tensor type and the shape. */
static void put_value(struct writer *w, int field, int value) {
    enum { NAME = 1, TYPE, TENSOR = 1, ELEMENTS = 1, SHAPE, DIM = 1, SIZE = 1, SIZE_NAME };
    const struct fl_net_value *const v = &w->n->values[value];
    struct bytes *const b = &w->b;
    const size_t begin = begin_message(b, field);
    put_text(b, NAME, v->name);
    if (v->type || v->ndim >= 0) {
        const size_t type = begin_message(b, TYPE), typed = begin_message(b, TENSOR);
        put_int(b, ELEMENTS, fl_onnx_type_number(v->type));
        if (v->ndim >= 0) {
            const size_t shape = begin_message(b, SHAPE);
            for (int i = 0; i < v->ndim; i++) {
                const size_t dim = begin_message(b, DIM);
                if (v->dim[i] >= 0)
                    put_int(b, SIZE, v->dim[i]);
                else if (v->dim_name[i])
                    put_text(b, SIZE_NAME, v->dim_name[i]);
                end_message(b, dim);
            }
            end_message(b, shape);
        }
        end_message(b, typed);
        end_message(b, type);
    }
    end_message(b, begin);
}

static tensor_status put_graph(struct writer *w, int field, const char *name, const struct fl_net_graph *graph);

static tensor_status put_attribute(struct writer *w, const struct fl_net_attribute *a) {
    enum { ATTRIBUTE = 5, NAME = 1, F, I, S, T, G, FLOATS, INTS, STRINGS, TYPE = 20 };
    static const int types[] = {[FL_NET_FLOAT] = 1, [FL_NET_INT] = 2,    [FL_NET_STRING] = 3, [FL_NET_ARRAY] = 4,
                                [FL_NET_GRAPH] = 5, [FL_NET_FLOATS] = 6, [FL_NET_INTS] = 7,   [FL_NET_STRINGS] = 8};
    struct bytes *const b = &w->b;
    const size_t begin = begin_message(b, ATTRIBUTE);
    put_text(b, NAME, a->name);
    switch (a->kind) {
    case FL_NET_FLOAT:
        put_float(b, F, a->f);
        break;
    case FL_NET_INT:
        put_int(b, I, a->i);
        break;
    case FL_NET_STRING:
        put_text(b, S, a->s);
        break;
    case FL_NET_ARRAY:
        put_tensor(b, T, "", a->array);
        break;
    case FL_NET_GRAPH:
        TRY(put_graph(w, G, a->name, a->graph));
        break;
    case FL_NET_FLOATS:
        for (int i = 0; i < a->count; i++)
            put_float(b, FLOATS, a->floats[i]);
        break;
    case FL_NET_INTS:
        for (int i = 0; i < a->count; i++)
            put_int(b, INTS, a->ints[i]);
        break;
    case FL_NET_STRINGS:
        for (int i = 0; i < a->count; i++)
            put_text(b, STRINGS, a->strings[i]);
        break;
    }
    put_int(b, TYPE, types[a->kind]);
    end_message(b, begin);
    return TENSOR_OK;
}

/* StringStringEntryProto */
static void put_entry(struct bytes *b, int field, const char *key, const char *value) {
    enum { KEY = 1, VALUE };
    const size_t begin = begin_message(b, field);
    put_text(b, KEY, key);
    put_text(b, VALUE, value);
    end_message(b, begin);
}

static bool is_metadata(const struct fl_net_attribute *a) {
    return !strncmp(a->name, "flexlab.", 8) && a->kind == FL_NET_STRING;
}

static tensor_status put_node(struct writer *w, const struct fl_net_node *node) {
    enum { NODE = 1, INPUT = 1, OUTPUT, NAME, OP, DOMAIN_OF_OP = 7, METADATA = 9 };
    struct bytes *const b = &w->b;
    const size_t begin = begin_message(b, NODE);
    if (node->channels_last)
        return fl_fail(
            TENSOR_E_ARGUMENT,
            "node %s (%s) has images in the order N, H, W, C, which ONNX does not have: transpose them first",
            node->name, node->op);
    if (node->format && node->format != FMT_FP32)
        return fl_fail(TENSOR_E_ARGUMENT,
                       "node %s (%s) is computed in another format than fp32, which ONNX says by types and Cast nodes",
                       node->name, node->op);
    for (int i = 0; i < node->input_count; i++) {
        const char *const name = node->inputs[i] < 0 ? "" : w->n->values[node->inputs[i]].name;
        if (*name && fl_onnx_names_find(&w->names, name) != node->inputs[i])
            return fl_fail(TENSOR_E_ARGUMENT, "node %s (%s) reads %s, which is no value of a graph around it",
                           node->name, node->op, name);
        put_text(b, INPUT, name);
    }
    for (int i = 0; i < node->output_count; i++)
        put_text(b, OUTPUT, node->outputs[i] < 0 ? "" : w->n->values[node->outputs[i]].name);
    put_text(b, NAME, node->name);
    put_text(b, OP, node->op);
    for (int i = 0; i < node->attribute_count; i++)
        if (!is_metadata(&node->attributes[i]))
            TRY(put_attribute(w, &node->attributes[i]));
    if (*node->domain)
        put_text(b, DOMAIN_OF_OP, node->domain);
    for (int i = 0; i < node->attribute_count; i++)
        if (is_metadata(&node->attributes[i]))
            put_entry(b, METADATA, node->attributes[i].name, node->attributes[i].s);
    end_message(b, begin);
    return TENSOR_OK;
}

/* A value that a graph makes, under a name that is not visible yet. */
static tensor_status declare(struct writer *w, int value) {
    const struct fl_net_value *const v = &w->n->values[value];
    if (!*v->name)
        return fl_fail(TENSOR_E_ARGUMENT, "value %d has no name", value);
    if (v->quantisation)
        return fl_fail(TENSOR_E_ARGUMENT,
                       "value %s has a scale, which ONNX says by nodes QuantizeLinear and DequantizeLinear", v->name);
    if (fl_onnx_names_find(&w->names, v->name) >= 0)
        return fl_fail(TENSOR_E_ARGUMENT, "two values have the name %s", v->name);
    return fl_onnx_names_add(&w->names, v->name, value);
}

static tensor_status declare_all(struct writer *w, const struct fl_net_graph *graph, int self) {
    for (int v = 0; v < w->n->value_count; v++)
        if (w->owner[v] == 1 + self)
            TRY(declare(w, v));
    for (int i = 0; i < graph->input_count; i++)
        TRY(declare(w, graph->inputs[i]));
    for (int k = 0; k < graph->node_count; k++)
        for (int i = 0; i < graph->nodes[k].output_count; i++)
            if (graph->nodes[k].outputs[i] >= 0)
                TRY(declare(w, graph->nodes[k].outputs[i]));
    return TENSOR_OK;
}

static bool is_output(const struct fl_net_graph *graph, int value) {
    for (int i = 0; i < graph->output_count; i++)
        if (graph->outputs[i] == value)
            return true;
    return false;
}

static tensor_status put_graph(struct writer *w, int field, const char *name, const struct fl_net_graph *graph) {
    enum { NAME = 2, INITIALIZER = 5, INPUT = 11, OUTPUT, VALUE_INFO };
    struct bytes *const b = &w->b;
    const int self = w->graph_count++;
    const size_t around = w->names.count, begin = begin_message(b, field);
    TRY(declare_all(w, graph, self));
    for (int k = 0; k < graph->node_count; k++)
        TRY(put_node(w, &graph->nodes[k]));
    put_text(b, NAME, name);
    for (int v = 0; v < w->n->value_count; v++)
        if (w->owner[v] == 1 + self)
            put_tensor(b, INITIALIZER, w->n->values[v].name, w->n->values[v].constant);
    for (int i = 0; i < graph->input_count; i++)
        put_value(w, INPUT, graph->inputs[i]);
    for (int i = 0; i < graph->output_count; i++)
        put_value(w, OUTPUT, graph->outputs[i]);
    for (int k = 0; k < graph->node_count; k++)
        for (int i = 0; i < graph->nodes[k].output_count; i++) {
            const int value = graph->nodes[k].outputs[i];
            const struct fl_net_value *const v = value < 0 ? NULL : &w->n->values[value];
            if (v && (v->type || v->ndim >= 0) && !is_output(graph, value))
                put_value(w, VALUE_INFO, value);
        }
    end_message(b, begin);
    fl_onnx_names_leave(&w->names, around);
    return TENSOR_OK;
}

static void put_opset(struct writer *w, const char *domain, int version) {
    enum { OPSET = 8, DOMAIN_NAME = 1, VERSION };
    const size_t begin = begin_message(&w->b, OPSET);
    put_text(&w->b, DOMAIN_NAME, domain);
    put_int(&w->b, VERSION, version);
    end_message(&w->b, begin);
}

/* Most operators take bfloat16 from opset 22 on. */
static bool has_bfloat(const struct fl_network *n) {
    for (int v = 0; v < n->value_count; v++)
        if (n->values[v].type == TENSOR_TYPE_BF16)
            return true;
    return false;
}

/* Other domains, each once. */
static tensor_status put_domains(struct writer *w, const struct fl_net_graph *graph) {
    for (int k = 0; k < graph->node_count; k++) {
        const struct fl_net_node *const node = &graph->nodes[k];
        if (*node->domain && fl_onnx_names_find(&w->names, node->domain) < 0) {
            TRY(fl_onnx_names_add(&w->names, node->domain, 0));
            put_opset(w, node->domain, 1);
        }
        for (int a = 0; a < node->attribute_count; a++)
            if (node->attributes[a].graph)
                TRY(put_domains(w, node->attributes[a].graph));
    }
    return TENSOR_OK;
}

static tensor_status compose(struct writer *w) {
    enum { IR_VERSION = 1, PRODUCER, GRAPH = 7, METADATA = 14 };
    const size_t values = (size_t)w->n->value_count, graphs = (size_t)count_graphs(&w->n->graph);
    const uint16_t one = 1;
    if (!*(const unsigned char *)&one)
        return fl_fail(TENSOR_E_UNSUPPORTED, "the numbers of this machine are not little-endian");
    w->owner = fl_alloc_zero((values + 1) * sizeof *w->owner);
    w->parent = fl_alloc_zero(graphs * sizeof *w->parent);
    w->depth = fl_alloc_zero(graphs * sizeof *w->depth);
    if (!w->owner || !w->parent || !w->depth)
        return fl_fail(TENSOR_E_MEMORY, "no memory for the places of %zu constants", values);
    place_constants(w, &w->n->graph, -1);
    w->graph_count = 0;
    put_int(&w->b, IR_VERSION, WRITTEN_IR);
    if (*w->n->producer)
        put_text(&w->b, PRODUCER, w->n->producer);
    TRY(put_graph(w, GRAPH, "network", &w->n->graph));
    put_opset(w, "", w->n->opset > WRITTEN_OPSET && has_bfloat(w->n) ? WRITTEN_OPSET + 1 : WRITTEN_OPSET);
    TRY(put_domains(w, &w->n->graph));
    if (w->n->rounding != FL_INT8_ONNX)
        put_entry(&w->b, METADATA, "flexlab.rounding", fl_int8_rounding_name(w->n->rounding));
    if (w->b.failed)
        return fl_fail(TENSOR_E_MEMORY, "no memory for the %zu bytes of the file", w->b.used);
    if (w->b.used > INT_MAX)
        return fl_fail(TENSOR_E_ARGUMENT, "the file has %zu bytes, expected at most %d", w->b.used, INT_MAX);
    return TENSOR_OK;
}

/* --- the file ------------------------------------------------------------------------------------------------------
 */

static tensor_status write_file(const struct bytes *b, const char *part, const char *path) {
    char why[FL_FILE_WHY];
    if (!fl_file_may_take(path, why))
        return fl_fail(TENSOR_E_IO, "%s", why);
    const int file = fl_file_create(part);
    if (file < 0)
        return fl_fail(TENSOR_E_IO, "cannot make %s: %s", part, strerror(errno));
    if (!fl_file_end(file, fl_file_write(file, b->at, b->used))) {
        const int reason = errno;
        unlink(part);
        return fl_fail(TENSOR_E_IO, "cannot write %s: %s", part, strerror(reason));
    }
    return fl_file_publish(part, path, why) ? TENSOR_OK : fl_fail(TENSOR_E_IO, "%s", why);
}

tensor_status fl_onnx_write(const struct fl_network *n, const char *path) {
    struct writer w = {.n = n};
    char *const part = fl_alloc(strlen(path) + sizeof ".part");
    tensor_status status = part ? compose(&w) : fl_fail(TENSOR_E_MEMORY, "no memory for a name");
    if (!status) {
        strcpy(part, path);
        strcat(part, ".part");
        status = write_file(&w.b, part, path);
    }
    fl_onnx_names_free(&w.names);
    fl_free(w.owner);
    fl_free(w.parent);
    fl_free(w.depth);
    fl_free(w.b.at);
    fl_free(part);
    return status ? fl_fail(status, "%s: %s", path, tensor_error()) : TENSOR_OK;
}
