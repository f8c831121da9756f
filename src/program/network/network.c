/* network.c - see network.h. */
#include "program/network/network.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include <string.h>

/* Memory comes in blocks that are never moved; a large piece gets a block of its own. */
enum { BLOCK = 1 << 16 };
struct fl_net_block {
    struct fl_net_block *next;
    size_t used, bytes;
    _Alignas(FL_ALIGNMENT) char memory[];
};

struct fl_network *fl_network_new(fl_net_source source) {
    struct fl_network *const n = fl_alloc_zero(sizeof *n);
    if (!n) {
        fl_fail(TENSOR_E_MEMORY, "no memory for a network");
        return NULL;
    }
    n->source = source;
    n->producer = "";
    n->rounding = source == FL_NET_TFLITE ? FL_INT8_TFLITE_XNNPACK : FL_INT8_ONNX;
    return n;
}

void fl_network_free(struct fl_network *n) {
    if (!n)
        return;
    for (struct fl_net_block *b = n->blocks, *next; b; b = next) {
        next = b->next;
        fl_free(b);
    }
    fl_free(n);
}

void *fl_net_memory(struct fl_network *n, size_t bytes) {
    const size_t want = fl_line_bytes(bytes + !bytes);
    struct fl_net_block *b = n->blocks;
    if (!b || b->bytes - b->used < want) {
        const size_t room = want > BLOCK / 4 ? want : BLOCK;
        struct fl_net_block *const fresh = fl_alloc_zero(sizeof *fresh + room);
        if (!fresh) {
            fl_fail(TENSOR_E_MEMORY, "no memory for a network: %zu bytes more", bytes);
            return NULL;
        }
        fresh->bytes = room;
        if (b && room == want) { /* the block in use stays the one in use */
            fresh->next = b->next;
            b->next = fresh;
        } else {
            fresh->next = b;
            n->blocks = fresh;
        }
        b = fresh;
    }
    void *const memory = b->memory + b->used;
    b->used += want;
    return memory;
}

const char *fl_net_text(struct fl_network *n, const char *text, size_t length) {
    char *const copy = fl_net_memory(n, length + 1);
    if (copy && length)
        memcpy(copy, text, length);
    return copy;
}

/* A list of `used` elements that is to get one more: the list, or a copy of twice the size. */
static void *grow(struct fl_network *n, void *list, int used, int *room, size_t size) {
    if (used < *room)
        return list;
    const int more = *room ? 2 * *room : 16;
    void *const copy = fl_net_memory(n, (size_t)more * size);
    if (copy && used)
        memcpy(copy, list, (size_t)used * size);
    if (copy)
        *room = more;
    return copy;
}

int fl_net_add_value(struct fl_network *n, const char *name) {
    struct fl_net_value *const values = grow(n, n->values, n->value_count, &n->value_room, sizeof *values);
    const char *const copy = values ? fl_net_text(n, name, strlen(name)) : NULL;
    if (!copy)
        return -1;
    n->values = values;
    n->values[n->value_count] = (struct fl_net_value){.name = copy, .ndim = -1};
    return n->value_count++;
}

int fl_net_add_constant(struct fl_network *n, const char *name, struct fl_array *constant) {
    const int value = fl_net_add_value(n, name);
    if (value < 0)
        return -1;
    struct fl_net_value *const v = &n->values[value];
    v->constant = constant;
    v->type = constant->type;
    v->ndim = constant->ndim;
    memcpy(v->dim, constant->dim, sizeof v->dim);
    return value;
}

/* Room doubles when a power of two is reached, so that a graph needs no member for it. */
struct fl_net_node *fl_net_add_node(struct fl_network *n, struct fl_net_graph *graph, const char *op, const char *name,
                                    int input_count, int output_count, int attribute_count) {
    const int used = graph->node_count;
    int room = used && (used & (used - 1)) ? used + 1 : used;
    struct fl_net_node node = {.op = fl_net_text(n, op, strlen(op)),
                               .domain = "",
                               .name = fl_net_text(n, name, strlen(name)),
                               .input_count = input_count,
                               .output_count = output_count,
                               .attribute_count = attribute_count,
                               .inputs = fl_net_memory(n, (size_t)input_count * sizeof *node.inputs),
                               .outputs = fl_net_memory(n, (size_t)output_count * sizeof *node.outputs),
                               .attributes = fl_net_memory(n, (size_t)attribute_count * sizeof *node.attributes)};
    struct fl_net_node *const nodes = grow(n, graph->nodes, used, &room, sizeof *nodes);
    if (!nodes || !node.op || !node.name || !node.inputs || !node.outputs || !node.attributes)
        return NULL;
    for (int i = 0; i < input_count; i++)
        node.inputs[i] = -1;
    for (int i = 0; i < output_count; i++)
        node.outputs[i] = -1;
    graph->nodes = nodes;
    nodes[graph->node_count++] = node;
    return &nodes[used];
}

tensor_status fl_net_add_change(struct fl_network *n, struct fl_net_change change) {
    struct fl_net_change *const changes = grow(n, n->changes, n->change_count, &n->change_room, sizeof *changes);
    if (!changes)
        return TENSOR_E_MEMORY;
    n->changes = changes;
    changes[n->change_count++] = change;
    return TENSOR_OK;
}

/* --- arrays ------------------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    size_t bytes;
} types[] = {
    [TENSOR_TYPE_BOOL] = {"bool", 1},   [TENSOR_TYPE_I8] = {"int8", 1},       [TENSOR_TYPE_U8] = {"uint8", 1},
    [TENSOR_TYPE_I16] = {"int16", 2},   [TENSOR_TYPE_U16] = {"uint16", 2},    [TENSOR_TYPE_I32] = {"int32", 4},
    [TENSOR_TYPE_U32] = {"uint32", 4},  [TENSOR_TYPE_I64] = {"int64", 8},     [TENSOR_TYPE_U64] = {"uint64", 8},
    [TENSOR_TYPE_F16] = {"float16", 2}, [TENSOR_TYPE_BF16] = {"bfloat16", 2}, [TENSOR_TYPE_F32] = {"float32", 4},
    [TENSOR_TYPE_F64] = {"float64", 8}};

static bool known(tensor_type type) {
    return type > 0 && (size_t)type < sizeof types / sizeof types[0];
}

size_t fl_type_bytes(tensor_type type) {
    return known(type) ? types[type].bytes : 0;
}

const char *fl_type_name(tensor_type type) {
    return known(type) ? types[type].name : "unknown";
}

tensor_status fl_net_array(struct fl_network *n, struct fl_array **array, tensor_type type, int ndim,
                           const int64_t *dim) {
    const int64_t limit = (int64_t)1 << 40;
    int64_t count = 1;
    struct fl_array made = {.type = type, .ndim = ndim};
    if (!known(type))
        return fl_fail(TENSOR_E_DATA, "an array of type %d, expected one that the library knows", (int)type);
    if (ndim < 0 || ndim > FL_ARRAY_DIMS)
        return fl_fail(TENSOR_E_DATA, "an array of %d dimensions, expected 0 to %d", ndim, FL_ARRAY_DIMS);
    for (int i = 0; i < ndim; i++) {
        if (dim[i] < 0 || (dim[i] && count > limit / dim[i]))
            return fl_fail(TENSOR_E_DATA, "dimension %d of an array is %lld, expected 0 or more, and 2^40 bytes in all",
                           i, (long long)dim[i]);
        made.dim[i] = dim[i];
        count *= dim[i];
    }
    if (count > limit / (int64_t)types[type].bytes)
        return fl_fail(TENSOR_E_DATA, "an array of %lld numbers, expected at most 2^40 bytes", (long long)count);
    made.count = count;
    made.data = fl_net_memory(n, (size_t)count * types[type].bytes);
    *array = made.data ? fl_net_memory(n, sizeof **array) : NULL;
    if (!*array)
        return TENSOR_E_MEMORY;
    **array = made;
    return TENSOR_OK;
}

/* --- attributes --------------------------------------------------------------------------------------------------- */

const struct fl_net_attribute *fl_net_find(const struct fl_net_node *node, const char *name) {
    for (int i = 0; i < node->attribute_count; i++)
        if (node->attributes[i].name && !strcmp(node->attributes[i].name, name))
            return &node->attributes[i];
    return NULL;
}

int64_t fl_net_int(const struct fl_net_node *node, const char *name, int64_t otherwise) {
    const struct fl_net_attribute *const a = fl_net_find(node, name);
    return a && a->kind == FL_NET_INT ? a->i : otherwise;
}

float fl_net_float(const struct fl_net_node *node, const char *name, float otherwise) {
    const struct fl_net_attribute *const a = fl_net_find(node, name);
    return a && a->kind == FL_NET_FLOAT ? a->f : otherwise;
}

const char *fl_net_string(const struct fl_net_node *node, const char *name, const char *otherwise) {
    const struct fl_net_attribute *const a = fl_net_find(node, name);
    return a && a->kind == FL_NET_STRING ? a->s : otherwise;
}

void fl_net_drop(struct fl_net_node *node, const char *name) {
    int left = 0;
    for (int i = 0; i < node->attribute_count; i++)
        if (!node->attributes[i].name || strcmp(node->attributes[i].name, name) != 0)
            node->attributes[left++] = node->attributes[i];
    node->attribute_count = left;
}

/* Room for an attribute of that name: the one that is there, a free one, or one more. */
static struct fl_net_attribute *place(struct fl_network *n, struct fl_net_node *node, const char *name) {
    struct fl_net_attribute *found = NULL;
    for (int i = 0; i < node->attribute_count && !found; i++)
        if (!node->attributes[i].name || !strcmp(node->attributes[i].name, name))
            found = &node->attributes[i];
    if (!found) {
        struct fl_net_attribute *const more = fl_net_memory(n, (size_t)(node->attribute_count + 1) * sizeof *more);
        if (!more)
            return NULL;
        if (node->attribute_count)
            memcpy(more, node->attributes, (size_t)node->attribute_count * sizeof *more);
        node->attributes = more;
        found = &more[node->attribute_count++];
    }
    const char *const copy = fl_net_text(n, name, strlen(name));
    if (!copy)
        return NULL;
    *found = (struct fl_net_attribute){.name = copy};
    return found;
}

tensor_status fl_net_set_int(struct fl_network *n, struct fl_net_node *node, const char *name, int64_t value) {
    struct fl_net_attribute *const a = place(n, node, name);
    if (!a)
        return TENSOR_E_MEMORY;
    a->kind = FL_NET_INT;
    a->i = value;
    return TENSOR_OK;
}

tensor_status fl_net_set_float(struct fl_network *n, struct fl_net_node *node, const char *name, float value) {
    struct fl_net_attribute *const a = place(n, node, name);
    if (!a)
        return TENSOR_E_MEMORY;
    a->kind = FL_NET_FLOAT;
    a->f = value;
    return TENSOR_OK;
}

tensor_status fl_net_set_ints(struct fl_network *n, struct fl_net_node *node, const char *name, int count,
                              const int64_t *values) {
    int64_t *const copy = fl_net_memory(n, (size_t)count * sizeof *copy);
    struct fl_net_attribute *const a = copy ? place(n, node, name) : NULL;
    if (!a)
        return TENSOR_E_MEMORY;
    if (count)
        memcpy(copy, values, (size_t)count * sizeof *copy);
    a->kind = FL_NET_INTS;
    a->count = count;
    a->ints = copy;
    return TENSOR_OK;
}

tensor_status fl_net_set_string(struct fl_network *n, struct fl_net_node *node, const char *name, const char *value) {
    const char *const copy = fl_net_text(n, value, strlen(value));
    struct fl_net_attribute *const a = copy ? place(n, node, name) : NULL;
    if (!a)
        return TENSOR_E_MEMORY;
    a->kind = FL_NET_STRING;
    a->s = copy;
    return TENSOR_OK;
}

/* --- the whole ---------------------------------------------------------------------------------------------------- */

enum { NESTED_LIMIT = 8 }; /* graphs of If and Loop within each other */

/* A network while it is checked. maker: of each value, 1 + the node of the graph at hand that computes it; 0: another
 * graph's, an input, or a constant. */
struct check {
    struct fl_network *n;
    bool *made;
    int *maker;
};
typedef tensor_status visit_fn(struct check *c, const struct fl_net_node *node, int value, void *context);

static tensor_status too_deep(const char *node) {
    return fl_fail(TENSOR_E_DATA, "node %s: more than %d graphs within each other", node, NESTED_LIMIT);
}

/* Visits each value that a node reads. What its nested graphs read counts: they run when the node does. */
static tensor_status each_read(struct check *c, const struct fl_net_node *node, int depth, visit_fn *visit,
                               void *context) {
    if (depth > NESTED_LIMIT)
        return too_deep(node->name);
    for (int i = 0; i < node->input_count; i++)
        if (node->inputs[i] != -1)
            TRY(visit(c, node, node->inputs[i], context));
    for (int a = 0; a < node->attribute_count; a++) {
        const struct fl_net_graph *const graph = node->attributes[a].graph;
        for (int k = 0; graph && k < graph->node_count; k++)
            TRY(each_read(c, &graph->nodes[k], depth + 1, visit, context));
        for (int k = 0; graph && k < graph->output_count; k++)
            TRY(visit(c, node, graph->outputs[k], context));
    }
    return TENSOR_OK;
}

static tensor_status in_range(struct check *c, const struct fl_net_node *node, int value, void *context) {
    (void)context;
    if (value < 0 || value >= c->n->value_count)
        return fl_fail(TENSOR_E_DATA, "node %s (%s): value number %d, expected 0 to %d", node->name, node->op, value,
                       c->n->value_count - 1);
    return TENSOR_OK;
}

static tensor_status is_made(struct check *c, const struct fl_net_node *node, int value, void *context) {
    TRY(in_range(c, node, value, context));
    if (!c->made[value] && !c->n->values[value].constant)
        return fl_fail(TENSOR_E_DATA, "node %s (%s) reads %s, which is no input, and which no node computes",
                       node->name, node->op, c->n->values[value].name);
    return TENSOR_OK;
}

/* Marks the inputs of a graph and the results of its nodes, each of which is made once. */
static tensor_status mark_made(struct check *c, const struct fl_net_graph *graph, const char *around, int depth) {
    if (depth > NESTED_LIMIT)
        return too_deep(around);
    for (int i = 0; i < graph->input_count; i++) {
        const int value = graph->inputs[i];
        if (value < 0 || value >= c->n->value_count)
            return fl_fail(TENSOR_E_DATA, "input %d is value number %d, expected 0 to %d", i, value,
                           c->n->value_count - 1);
        if (c->made[value])
            return fl_fail(TENSOR_E_DATA, "two inputs have the name %s", c->n->values[value].name);
        c->made[value] = true;
    }
    for (int k = 0; k < graph->node_count; k++) {
        const struct fl_net_node *const node = &graph->nodes[k];
        if (!node->output_count) /* passes look at the first */
            return fl_fail(TENSOR_E_DATA, "node %s (%s) has no result", node->name, node->op);
        for (int i = 0; i < node->output_count; i++) {
            const int value = node->outputs[i];
            if (value == -1)
                continue;
            TRY(in_range(c, node, value, NULL));
            if (c->made[value] || c->n->values[value].constant)
                return fl_fail(TENSOR_E_DATA, "node %s (%s) computes %s, which exists already", node->name, node->op,
                               c->n->values[value].name);
            c->made[value] = true;
        }
        for (int a = 0; a < node->attribute_count; a++)
            if (node->attributes[a].graph)
                TRY(mark_made(c, node->attributes[a].graph, node->name, depth + 1));
    }
    return TENSOR_OK;
}

/* The edges of a graph: reader[first[k]] ... reader[first[k + 1] - 1] read results of node k. */
struct edges {
    int64_t *first;
    int *reader, *missing; /* missing: of each node, results that are still to come */
    int node;
    bool in_order, fill;
};

static tensor_status see_edge(struct check *c, const struct fl_net_node *node, int value, void *context) {
    (void)node;
    struct edges *const e = context;
    const int maker = c->maker[value] - 1;
    if (maker < 0)
        return TENSOR_OK;
    if (e->fill) {
        e->reader[e->first[maker]++] = e->node;
    } else {
        e->first[maker + 1]++;
        e->missing[e->node]++;
        e->in_order &= maker < e->node;
    }
    return TENSOR_OK;
}

static tensor_status see_edges(struct check *c, const struct fl_net_graph *graph, int depth, struct edges *e) {
    for (e->node = 0; e->node < graph->node_count; e->node++)
        TRY(each_read(c, &graph->nodes[e->node], depth, see_edge, e));
    return TENSOR_OK;
}

/* Kahn's algorithm: nodes whose operands are there, first come, first served. */
static tensor_status order_nodes(struct check *c, struct fl_net_graph *graph, int depth, struct edges *e) {
    const int count = graph->node_count;
    for (int k = 0; k < count; k++)
        e->first[k + 1] += e->first[k];
    e->reader = fl_net_memory(c->n, (size_t)e->first[count] * sizeof *e->reader);
    int *const order = fl_net_memory(c->n, (size_t)count * sizeof *order);
    struct fl_net_node *const nodes = fl_net_memory(c->n, (size_t)count * sizeof *nodes);
    if (!e->reader || !order || !nodes)
        return TENSOR_E_MEMORY;
    e->fill = true;
    TRY(see_edges(c, graph, depth, e)); /* moves first[k] to first[k + 1] */
    int ready = 0;
    for (int k = 0; k < count; k++)
        if (!e->missing[k])
            order[ready++] = k;
    for (int i = 0; i < ready; i++)
        for (int64_t r = order[i] ? e->first[order[i] - 1] : 0; r < e->first[order[i]]; r++)
            if (!--e->missing[e->reader[r]])
                order[ready++] = e->reader[r];
    for (int k = 0; k < count && ready < count; k++)
        if (e->missing[k])
            return fl_fail(TENSOR_E_DATA, "node %s (%s) is part of a cycle, or reads a result of one",
                           graph->nodes[k].name, graph->nodes[k].op);
    for (int i = 0; i < count; i++)
        nodes[i] = graph->nodes[order[i]];
    graph->nodes = nodes;
    return TENSOR_OK;
}

static tensor_status sort_graph(struct check *c, struct fl_net_graph *graph, int depth) {
    struct edges e = {.first = fl_net_memory(c->n, ((size_t)graph->node_count + 1) * sizeof *e.first),
                      .missing = fl_net_memory(c->n, (size_t)graph->node_count * sizeof *e.missing),
                      .in_order = true};
    if (!e.first || !e.missing)
        return TENSOR_E_MEMORY;
    memset(c->maker, 0, (size_t)c->n->value_count * sizeof *c->maker);
    for (int k = 0; k < graph->node_count; k++)
        for (int i = 0; i < graph->nodes[k].output_count; i++)
            if (graph->nodes[k].outputs[i] != -1)
                c->maker[graph->nodes[k].outputs[i]] = 1 + k;
    TRY(see_edges(c, graph, depth, &e));
    if (!e.in_order)
        TRY(order_nodes(c, graph, depth, &e));
    for (int k = 0; k < graph->node_count; k++)
        for (int a = 0; a < graph->nodes[k].attribute_count; a++)
            if (graph->nodes[k].attributes[a].graph)
                TRY(sort_graph(c, graph->nodes[k].attributes[a].graph, depth + 1));
    return TENSOR_OK;
}

tensor_status fl_net_check(struct fl_network *n) {
    struct check c = {.n = n,
                      .made = fl_net_memory(n, (size_t)n->value_count * sizeof *c.made),
                      .maker = fl_net_memory(n, (size_t)n->value_count * sizeof *c.maker)};
    if (!c.made || !c.maker)
        return TENSOR_E_MEMORY;
    TRY(mark_made(&c, &n->graph, "", 0));
    for (int k = 0; k < n->graph.node_count; k++)
        TRY(each_read(&c, &n->graph.nodes[k], 0, is_made, NULL));
    if (!n->graph.output_count)
        return fl_fail(TENSOR_E_DATA, "the network has no output");
    for (int i = 0; i < n->graph.output_count; i++) {
        const int value = n->graph.outputs[i];
        if (value < 0 || value >= n->value_count)
            return fl_fail(TENSOR_E_DATA, "output %d is value number %d, expected 0 to %d", i, value,
                           n->value_count - 1);
        if (!c.made[value] && !n->values[value].constant)
            return fl_fail(TENSOR_E_DATA, "no node computes the output %s", n->values[value].name);
    }
    return sort_graph(&c, &n->graph, 0);
}

static int reads(const struct fl_net_graph *graph, int value) {
    int count = 0;
    for (int k = 0; k < graph->node_count; k++) {
        const struct fl_net_node *const node = &graph->nodes[k];
        for (int i = 0; i < node->input_count; i++)
            count += node->inputs[i] == value;
        for (int a = 0; a < node->attribute_count; a++)
            if (node->attributes[a].graph)
                count += reads(node->attributes[a].graph, value);
    }
    for (int i = 0; i < graph->output_count; i++)
        count += graph->outputs[i] == value;
    return count;
}

int fl_net_readers(const struct fl_network *n, int value) {
    return reads(&n->graph, value);
}

bool fl_net_has_batch(const struct fl_network *n) {
    bool all = true;
    for (int i = 0; i < n->graph.input_count; i++) {
        const struct fl_net_value *const v = &n->values[n->graph.inputs[i]];
        all = all && v->ndim > 0 && v->dim[0] > 0;
    }
    return all;
}

/* A byte is read before an element is written over it. */
void fl_net_spread(struct fl_array *a, const uint8_t *from) {
    const int flip = a->type == TENSOR_TYPE_I8 ? 8 : 0; /* the sign */
    for (int64_t i = 0; i < a->count; i += 2) {
        const int byte = from[i / 2], halves[] = {byte & 15, byte >> 4};
        for (int k = 0; k < 2 && i + k < a->count; k++)
            ((uint8_t *)a->data)[i + k] = (uint8_t)((halves[k] ^ flip) - flip);
    }
}

/* --- quantised values and nodes ----------------------------------------------------------------------------------- */

bool fl_net_is_bytes(const struct fl_network *n, int value) {
    const struct fl_net_value *const v = value < 0 ? NULL : &n->values[value];
    return v && v->quantisation && v->quantisation->count == 1 &&
           (v->type == TENSOR_TYPE_I8 || v->type == TENSOR_TYPE_U8);
}

struct fl_int8_type fl_net_int8_type(const struct fl_network *n, int value) {
    const struct fl_net_value *const v = &n->values[value];
    return (struct fl_int8_type){v->quantisation->scale[0], v->quantisation->zero[0], v->type == TENSOR_TYPE_U8};
}

bool fl_net_is_border(const struct fl_net_node *node) {
    return !*node->domain && (!strcmp(node->op, "QuantizeLinear") || !strcmp(node->op, "DequantizeLinear"));
}

bool fl_net_is_quantised(const struct fl_network *n, const struct fl_net_node *node) {
    return !*node->domain && node->input_count && node->output_count && fl_net_is_bytes(n, node->inputs[0]) &&
           fl_net_is_bytes(n, node->outputs[0]);
}
