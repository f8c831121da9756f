/* store_read.c - a network from its file. The text of the network is read from the front to the back: what it claims is
 * in the text itself, or in tensors of the file, each of which belongs to one entry, so that memory grows with the
 * file. */
#include "program/store/store.h"
#include "program/arrays/operators.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/base/text.h"
#include "safetensors/json.h"
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct reader {
    struct fl_network *n;
    struct fl_safetensors file;
    struct fl_json j;
    bool *used; /* of the tensors of the file */
    int depth;  /* of the graph at hand */
};

/* An entry of an object: its reader gets `to`. */
struct field {
    const char *name;
    tensor_status (*read)(struct reader *r, void *to);
    bool must;
};
enum { MOST_FIELDS = 16 };

static tensor_status read_object(struct reader *r, const char *what, const struct field *fields, int count, void *to) {
    bool seen[MOST_FIELDS] = {false};
    fl_json_space(&r->j);
    const size_t at = r->j.at;
    TRY(fl_json_need(&r->j, '{'));
    if (!fl_json_take(&r->j, '}')) {
        do {
            const char *name;
            fl_json_space(&r->j);
            const size_t where = r->j.at;
            TRY(fl_json_string(&r->j, &name));
            int i = 0;
            while (i < count && strcmp(fields[i].name, name) != 0)
                i++;
            if (i == count || seen[i])
                return fl_json_refuse(&r->j, where, "%s has the entry '%.60s' %s", what, name,
                                      i == count ? "that is unknown" : "twice");
            seen[i] = true;
            TRY(fl_json_need(&r->j, ':'));
            TRY(fields[i].read(r, to));
        } while (fl_json_take(&r->j, ','));
        TRY(fl_json_need(&r->j, '}'));
    }
    for (int i = 0; i < count; i++)
        if (fields[i].must && !seen[i])
            return fl_json_refuse(&r->j, at, "%s has no entry '%s'", what, fields[i].name);
    return TENSOR_OK;
}

/* Elements of a list, in memory of the network: read() reads one at its address. */
static tensor_status read_list(struct reader *r, size_t size, tensor_status (*read)(struct reader *r, void *to),
                               void **list, int *count) {
    size_t room = 0, used = 0;
    char *elements = NULL;
    TRY(fl_json_need(&r->j, '['));
    for (bool more = !fl_json_take(&r->j, ']'); more; more = fl_json_take(&r->j, ',')) {
        if (used == room) {
            room = room ? 2 * room : 8;
            char *const larger = fl_net_memory(r->n, room * size);
            if (!larger)
                return TENSOR_E_MEMORY;
            if (used)
                memcpy(larger, elements, used * size);
            elements = larger;
        }
        TRY(read(r, elements + used++ * size));
    }
    if (used)
        TRY(fl_json_need(&r->j, ']'));
    *list = elements ? elements : fl_net_memory(r->n, size);
    *count = (int)used;
    return *list ? TENSOR_OK : TENSOR_E_MEMORY;
}

/* --- words -------------------------------------------------------------------------------------------------------- */

static tensor_status keep_text(struct reader *r, const char **text) {
    const char *read;
    TRY(fl_json_string(&r->j, &read));
    *text = fl_net_text(r->n, read, strlen(read));
    return *text ? TENSOR_OK : TENSOR_E_MEMORY;
}

static tensor_status read_int_from(struct reader *r, int64_t low, int64_t high, int64_t *value) {
    fl_json_space(&r->j);
    const size_t at = r->j.at;
    TRY(fl_json_integer(&r->j, value));
    return *value >= low && *value <= high ? TENSOR_OK
                                           : fl_json_refuse(&r->j, at, "%lld, expected %lld to %lld", (long long)*value,
                                                            (long long)low, (long long)high);
}

static tensor_status one_int64(struct reader *r, void *to) {
    return fl_json_integer(&r->j, to);
}

static tensor_status one_int(struct reader *r, void *to) {
    int64_t value;
    TRY(read_int_from(r, INT_MIN, INT_MAX, &value));
    *(int *)to = (int)value;
    return TENSOR_OK;
}

static tensor_status one_float(struct reader *r, void *to) {
    double value;
    TRY(fl_json_real(&r->j, &value));
    *(float *)to = (float)value;
    return TENSOR_OK;
}

static tensor_status one_text(struct reader *r, void *to) {
    return keep_text(r, to);
}

/* One of several names. */
static tensor_status read_choice(struct reader *r, const char *what, const char *(*name)(int i), int *choice) {
    const char *text;
    fl_json_space(&r->j);
    const size_t at = r->j.at;
    TRY(fl_json_string(&r->j, &text));
    for (int i = 0; name(i); i++)
        if (!strcmp(name(i), text)) {
            *choice = i;
            return TENSOR_OK;
        }
    return fl_json_refuse(&r->j, at, "%s '%.40s', expected one of %s", what, text, fl_list_names(name).text);
}

static const char *type_name(int i) {
    return i < TENSOR_TYPE_F64 ? fl_type_name((tensor_type)(i + 1)) : NULL;
}

static const char *format_name(int i) {
    const tensor_format format = tensor_format_at(i);
    return format ? tensor_format_name(format) : NULL;
}

static tensor_status read_format(struct reader *r, tensor_format *format) {
    const char *text;
    fl_json_space(&r->j);
    const size_t at = r->j.at;
    TRY(fl_json_string(&r->j, &text));
    if (!tensor_format_find(format, text))
        return TENSOR_OK;
    return fl_json_refuse(&r->j, at, "the format '%.40s', expected one of %s, or one with parameters", text,
                          fl_list_names(format_name).text);
}

static const char *source_name(int i) {
    return i == 0 ? "onnx" : i == 1 ? "tflite" : NULL;
}

static const char *rounding_name(int i) {
    return fl_int8_rounding_name((enum fl_int8_rounding)i);
}

/* --- tensors ------------------------------------------------------------------------------------------------------ */

/* A tensor of the file that no other entry has. */
static tensor_status take_tensor(struct reader *r, const struct fl_stored_tensor **t) {
    const char *name;
    fl_json_space(&r->j);
    const size_t at = r->j.at;
    TRY(fl_json_string(&r->j, &name));
    *t = fl_safetensors_find(&r->file, name);
    if (!*t)
        return fl_json_refuse(&r->j, at, "the file has no tensor '%.80s'", name);
    if (r->used[*t - r->file.tensors])
        return fl_json_refuse(&r->j, at, "the tensor '%.80s' belongs to another entry already", name);
    r->used[*t - r->file.tensors] = true;
    return TENSOR_OK;
}

static tensor_status read_elements(struct reader *r, const struct fl_stored_tensor *t, struct fl_array **array) {
    const tensor_type type = fl_store_type_back(t->type);
    if (!type)
        return fl_json_refuse(&r->j, r->j.at, "tensor '%.80s' has the type %s, which no network has", t->name,
                              fl_stored_type_name(t->type));
    TRY(fl_net_array(r->n, array, type, t->ndim, t->dim));
    return fl_safetensors_read(&r->file, t, (*array)->data);
}

static tensor_status read_tensor(struct reader *r, void *to) {
    const struct fl_stored_tensor *t;
    TRY(take_tensor(r, &t));
    return read_elements(r, t, to);
}

/* Elements of a format as float32. */
static tensor_status widen(struct reader *r, const struct fl_stored_tensor *t, tensor_format format,
                           struct fl_array **array) {
    struct fl_array *const narrow = *array;
    int64_t exponent = 0;
    if (t->type != fl_store_format(format))
        return fl_json_refuse(&r->j, r->j.at, "tensor '%.80s' has the type %s, which does not store %s", t->name,
                              fl_stored_type_name(t->type), tensor_format_name(format));
    if (t->type == FL_STORED_I16) {
        const size_t room = strlen(t->name) + sizeof ".exponent";
        char *const key = fl_net_memory(r->n, room), *end;
        if (!key)
            return TENSOR_E_MEMORY;
        snprintf(key, room, "%s.exponent", t->name);
        const char *const text = fl_safetensors_note(&r->file, key);
        exponent = text ? strtol(text, &end, 10) : 0;
        if (!text || end == text || *end || exponent < -1000 || exponent > 1000)
            return fl_json_refuse(&r->j, r->j.at, "the note '%.80s' is %.40s, expected the exponent of its mantissas",
                                  key, text ? text : "missing");
    }
    TRY(fl_net_array(r->n, array, TENSOR_TYPE_F32, narrow->ndim, narrow->dim));
    for (int64_t i = 0; i < narrow->count; i++)
        ((float *)(*array)->data)[i] =
            (float)(t->type == FL_STORED_I16 ? ldexp(((const int16_t *)narrow->data)[i], -(int)exponent)
                                             : fl_array_number(narrow, i));
    return TENSOR_OK;
}

/* --- values ------------------------------------------------------------------------------------------------------- */

struct value_entry {
    struct fl_net_value *v;
    int names;
    tensor_format stored;
    const struct fl_stored_tensor *tensor;
    bool quantised;
};

static tensor_status value_name(struct reader *r, void *to) {
    return keep_text(r, &((struct value_entry *)to)->v->name);
}

static tensor_status value_type(struct reader *r, void *to) {
    int type;
    TRY(read_choice(r, "the type", type_name, &type));
    ((struct value_entry *)to)->v->type = (tensor_type)(type + 1);
    return TENSOR_OK;
}

static tensor_status value_shape(struct reader *r, void *to) {
    struct fl_net_value *const v = ((struct value_entry *)to)->v;
    v->ndim = 0;
    TRY(fl_json_need(&r->j, '['));
    if (fl_json_take(&r->j, ']'))
        return TENSOR_OK;
    do {
        if (v->ndim == FL_ARRAY_DIMS)
            return fl_json_refuse(&r->j, r->j.at, "more than %d dimensions", FL_ARRAY_DIMS);
        TRY(read_int_from(r, -1, INT64_MAX, &v->dim[v->ndim++]));
    } while (fl_json_take(&r->j, ','));
    return fl_json_need(&r->j, ']');
}

static tensor_status value_names(struct reader *r, void *to) {
    struct value_entry *const e = to;
    TRY(fl_json_need(&r->j, '['));
    do {
        const char *name;
        if (e->names == FL_ARRAY_DIMS)
            return fl_json_refuse(&r->j, r->j.at, "more than %d names of dimensions", FL_ARRAY_DIMS);
        TRY(keep_text(r, &name));
        e->v->dim_name[e->names++] = *name ? name : NULL;
    } while (fl_json_take(&r->j, ','));
    return fl_json_need(&r->j, ']');
}

static tensor_status read_range(struct reader *r, void *to) {
    struct fl_range *const range = to;
    int64_t exponent;
    *range = (struct fl_range){0};
    TRY(fl_json_need(&r->j, '['));
    if (fl_json_take(&r->j, ']'))
        return TENSOR_OK;
    const size_t at = r->j.at;
    TRY(fl_json_real(&r->j, &range->maximum));
    if (!(range->maximum >= 0) || !isfinite(range->maximum))
        return fl_json_refuse(&r->j, at, "a largest magnitude of %g", range->maximum);
    if (fl_json_take(&r->j, ',')) {
        TRY(read_int_from(r, -100000, 100000, &exponent));
        range->frozen = true;
        range->exponent = (int)exponent;
    }
    return fl_json_need(&r->j, ']');
}

static tensor_status value_range(struct reader *r, void *to) {
    return read_range(r, &((struct value_entry *)to)->v->range);
}

static tensor_status value_tensor(struct reader *r, void *to) {
    struct value_entry *const e = to;
    TRY(take_tensor(r, &e->tensor));
    return read_elements(r, e->tensor, &e->v->constant);
}

static tensor_status value_stored(struct reader *r, void *to) {
    return read_format(r, &((struct value_entry *)to)->stored);
}

/* Numbers of the network, or the name of a tensor that has them. */
static tensor_status read_numbers(struct reader *r, tensor_type type, void **list, int *count) {
    struct fl_array *array;
    fl_json_space(&r->j);
    const size_t at = r->j.at;
    if (at >= r->j.size || r->j.text[at] != '"')
        return read_list(r, sizeof(float), type == TENSOR_TYPE_F32 ? one_float : one_int, list, count);
    TRY(read_tensor(r, &array));
    if (array->type != type || array->ndim != 1 || array->count > INT_MAX)
        return fl_json_refuse(&r->j, at, "a tensor of %s with %d dimensions, expected %s with one",
                              fl_type_name(array->type), array->ndim, fl_type_name(type));
    *list = array->data;
    *count = (int)array->count;
    return TENSOR_OK;
}

struct quantisation_entry {
    struct fl_quantisation *q;
    int scales, zeros;
};

static tensor_status quantisation_axis(struct reader *r, void *to) {
    return one_int(r, &((struct quantisation_entry *)to)->q->axis);
}

static tensor_status quantisation_scale(struct reader *r, void *to) {
    struct quantisation_entry *const e = to;
    void *list;
    TRY(read_numbers(r, TENSOR_TYPE_F32, &list, &e->scales));
    e->q->scale = list;
    return TENSOR_OK;
}

static tensor_status quantisation_zero(struct reader *r, void *to) {
    struct quantisation_entry *const e = to;
    void *list;
    TRY(read_numbers(r, TENSOR_TYPE_I32, &list, &e->zeros));
    e->q->zero = list;
    return TENSOR_OK;
}

static tensor_status value_quantisation(struct reader *r, void *to) {
    static const struct field fields[] = {
        {"axis", quantisation_axis, true}, {"scale", quantisation_scale, true}, {"zero", quantisation_zero, true}};
    struct value_entry *const v = to;
    struct quantisation_entry e = {.q = fl_net_memory(r->n, sizeof *e.q)};
    if (!e.q)
        return TENSOR_E_MEMORY;
    fl_json_space(&r->j);
    const size_t at = r->j.at;
    TRY(read_object(r, "the quantisation", fields, 3, &e));
    if (e.scales != e.zeros || !e.scales)
        return fl_json_refuse(&r->j, at, "%d scales and %d zero points, expected as many of both", e.scales, e.zeros);
    for (int i = 0; i < e.scales; i++)
        if (!isfinite(e.q->scale[i]) || e.q->scale[i] < 0 || /* that of a sum may be too small for a float */
            (e.q->scale[i] == 0 && v->v->type != TENSOR_TYPE_I32 && v->v->type != TENSOR_TYPE_I64))
            return fl_json_refuse(&r->j, at, "the scale %g, expected a positive number", (double)e.q->scale[i]);
    e.q->count = e.scales;
    v->v->quantisation = e.q;
    return TENSOR_OK;
}

/* What its entries say of a value together. */
static tensor_status check_value(struct reader *r, size_t at, const struct value_entry *e) {
    struct fl_net_value *const v = e->v;
    const struct fl_array *const a = v->constant;
    if (e->names && e->names != v->ndim)
        return fl_json_refuse(&r->j, at, "value '%.80s' has %d names of %d dimensions", v->name, e->names, v->ndim);
    if (e->stored && !a)
        return fl_json_refuse(&r->j, at, "value '%.80s' is stored as %s, but has no tensor", v->name,
                              tensor_format_name(e->stored));
    if (a && v->type != a->type)
        return fl_json_refuse(&r->j, at, "value '%.80s' has the type %s, its tensor %s", v->name, fl_type_name(v->type),
                              fl_type_name(a->type));
    bool same = !a || a->ndim == v->ndim;
    for (int d = 0; a && same && d < a->ndim; d++)
        same = a->dim[d] == v->dim[d];
    if (!same)
        return fl_json_refuse(&r->j, at, "value '%.80s' and its tensor have different shapes", v->name);
    const struct fl_quantisation *const q = v->quantisation;
    if (q && (fl_type_is_float(v->type) || (q->count > 1 && (q->axis < 0 || q->axis >= v->ndim ||
                                                             (v->dim[q->axis] >= 0 && v->dim[q->axis] != q->count)))))
        return fl_json_refuse(&r->j, at, "value '%.80s' of %s has %d scales along axis %d, which do not fit it",
                              v->name, fl_type_name(v->type), q->count, q->axis);
    return TENSOR_OK;
}

static tensor_status read_value(struct reader *r) {
    static const struct field fields[] = {{"name", value_name, true},      {"type", value_type, false},
                                          {"shape", value_shape, false},   {"names", value_names, false},
                                          {"range", value_range, false},   {"tensor", value_tensor, false},
                                          {"stored", value_stored, false}, {"quantisation", value_quantisation, false}};
    const int index = fl_net_add_value(r->n, "");
    if (index < 0)
        return TENSOR_E_MEMORY;
    struct value_entry e = {.v = &r->n->values[index]};
    char what[40];
    snprintf(what, sizeof what, "value %d", index);
    fl_json_space(&r->j);
    const size_t at = r->j.at;
    TRY(read_object(r, what, fields, sizeof fields / sizeof *fields, &e));
    if (e.stored && e.tensor)
        TRY(widen(r, e.tensor, e.stored, &e.v->constant));
    return check_value(r, at, &e);
}

static tensor_status read_values(struct reader *r, void *to) {
    (void)to;
    TRY(fl_json_need(&r->j, '['));
    if (fl_json_take(&r->j, ']'))
        return TENSOR_OK;
    do
        TRY(read_value(r));
    while (fl_json_take(&r->j, ','));
    return fl_json_need(&r->j, ']');
}

/* --- nodes -------------------------------------------------------------------------------------------------------- */

static tensor_status read_graph(struct reader *r, void *to);

static tensor_status attribute_name(struct reader *r, void *to) {
    return keep_text(r, &((struct fl_net_attribute *)to)->name);
}

/* The entry says of which kind it is; there is one. */
static tensor_status set_kind(struct reader *r, struct fl_net_attribute *a, enum fl_net_kind kind) {
    if (a->kind)
        return fl_json_refuse(&r->j, r->j.at, "attribute '%.60s' has two values", a->name ? a->name : "");
    a->kind = kind;
    return TENSOR_OK;
}

static tensor_status attribute_int(struct reader *r, void *to) {
    struct fl_net_attribute *const a = to;
    TRY(set_kind(r, a, FL_NET_INT));
    return one_int64(r, &a->i);
}

static tensor_status attribute_float(struct reader *r, void *to) {
    struct fl_net_attribute *const a = to;
    TRY(set_kind(r, a, FL_NET_FLOAT));
    return one_float(r, &a->f);
}

static tensor_status attribute_string(struct reader *r, void *to) {
    struct fl_net_attribute *const a = to;
    TRY(set_kind(r, a, FL_NET_STRING));
    return keep_text(r, &a->s);
}

static tensor_status attribute_ints(struct reader *r, void *to) {
    struct fl_net_attribute *const a = to;
    void *list;
    TRY(set_kind(r, a, FL_NET_INTS));
    TRY(read_list(r, sizeof *a->ints, one_int64, &list, &a->count));
    a->ints = list;
    return TENSOR_OK;
}

static tensor_status attribute_floats(struct reader *r, void *to) {
    struct fl_net_attribute *const a = to;
    void *list;
    TRY(set_kind(r, a, FL_NET_FLOATS));
    TRY(read_list(r, sizeof *a->floats, one_float, &list, &a->count));
    a->floats = list;
    return TENSOR_OK;
}

static tensor_status attribute_strings(struct reader *r, void *to) {
    struct fl_net_attribute *const a = to;
    void *list;
    TRY(set_kind(r, a, FL_NET_STRINGS));
    TRY(read_list(r, sizeof *a->strings, one_text, &list, &a->count));
    a->strings = list;
    return TENSOR_OK;
}

static tensor_status attribute_tensor(struct reader *r, void *to) {
    struct fl_net_attribute *const a = to;
    TRY(set_kind(r, a, FL_NET_ARRAY));
    return read_tensor(r, &a->array);
}

static tensor_status attribute_graph(struct reader *r, void *to) {
    struct fl_net_attribute *const a = to;
    TRY(set_kind(r, a, FL_NET_GRAPH));
    a->graph = fl_net_memory(r->n, sizeof *a->graph);
    return a->graph ? read_graph(r, a->graph) : TENSOR_E_MEMORY;
}

static tensor_status one_attribute(struct reader *r, void *to) {
    static const struct field fields[] = {
        {"name", attribute_name, true},        {"int", attribute_int, false},       {"float", attribute_float, false},
        {"string", attribute_string, false},   {"ints", attribute_ints, false},     {"floats", attribute_floats, false},
        {"strings", attribute_strings, false}, {"tensor", attribute_tensor, false}, {"graph", attribute_graph, false}};
    struct fl_net_attribute *const a = to;
    fl_json_space(&r->j);
    const size_t at = r->j.at;
    TRY(read_object(r, "an attribute", fields, sizeof fields / sizeof *fields, a));
    return a->kind && *a->name
               ? TENSOR_OK
               : fl_json_refuse(&r->j, at, "attribute '%.60s' has no %s", a->name, a->kind ? "name" : "value");
}

static tensor_status node_op(struct reader *r, void *to) {
    return keep_text(r, &((struct fl_net_node *)to)->op);
}

static tensor_status node_domain(struct reader *r, void *to) {
    return keep_text(r, &((struct fl_net_node *)to)->domain);
}

static tensor_status node_name(struct reader *r, void *to) {
    return keep_text(r, &((struct fl_net_node *)to)->name);
}

static tensor_status node_inputs(struct reader *r, void *to) {
    struct fl_net_node *const node = to;
    void *list;
    TRY(read_list(r, sizeof *node->inputs, one_int, &list, &node->input_count));
    node->inputs = list;
    return TENSOR_OK;
}

static tensor_status node_outputs(struct reader *r, void *to) {
    struct fl_net_node *const node = to;
    void *list;
    TRY(read_list(r, sizeof *node->outputs, one_int, &list, &node->output_count));
    node->outputs = list;
    return TENSOR_OK;
}

static tensor_status node_attributes(struct reader *r, void *to) {
    struct fl_net_node *const node = to;
    void *list;
    TRY(read_list(r, sizeof *node->attributes, one_attribute, &list, &node->attribute_count));
    node->attributes = list;
    for (int i = 0; i < node->attribute_count; i++)
        if (fl_net_find(node, node->attributes[i].name) != &node->attributes[i])
            return fl_json_refuse(&r->j, r->j.at, "two attributes have the name '%.60s'", node->attributes[i].name);
    return TENSOR_OK;
}

static tensor_status node_channels_last(struct reader *r, void *to) {
    return fl_json_switch(&r->j, &((struct fl_net_node *)to)->channels_last);
}

static tensor_status node_format(struct reader *r, void *to) {
    return read_format(r, &((struct fl_net_node *)to)->format);
}

static tensor_status node_inner(struct reader *r, void *to) {
    struct fl_net_node *const node = to;
    node->inner = fl_net_memory(r->n, FL_NODE_TEMPORARIES * sizeof *node->inner);
    if (!node->inner)
        return TENSOR_E_MEMORY;
    TRY(fl_json_need(&r->j, '['));
    int i = 0;
    do {
        if (i == FL_NODE_TEMPORARIES)
            return fl_json_refuse(&r->j, r->j.at, "more than %d inner ranges", FL_NODE_TEMPORARIES);
        TRY(read_range(r, &node->inner[i++]));
    } while (fl_json_take(&r->j, ','));
    return fl_json_need(&r->j, ']');
}

static tensor_status read_node(struct reader *r, struct fl_net_graph *graph) {
    static const struct field fields[] = {{"op", node_op, true},
                                          {"domain", node_domain, false},
                                          {"name", node_name, true},
                                          {"inputs", node_inputs, true},
                                          {"outputs", node_outputs, true},
                                          {"attributes", node_attributes, false},
                                          {"channels_last", node_channels_last, false},
                                          {"format", node_format, false},
                                          {"inner", node_inner, false}};
    struct fl_net_node *const node = fl_net_add_node(r->n, graph, "", "", 0, 0, 0);
    char what[40];
    if (!node)
        return TENSOR_E_MEMORY;
    snprintf(what, sizeof what, "node %d", graph->node_count - 1);
    fl_json_space(&r->j);
    const size_t at = r->j.at;
    TRY(read_object(r, what, fields, sizeof fields / sizeof *fields, node));
    return *node->op && *node->name ? TENSOR_OK
                                    : fl_json_refuse(&r->j, at, "%s has no %s", what, *node->op ? "name" : "operator");
}

static tensor_status graph_inputs(struct reader *r, void *to) {
    struct fl_net_graph *const graph = to;
    void *list;
    TRY(read_list(r, sizeof *graph->inputs, one_int, &list, &graph->input_count));
    graph->inputs = list;
    return TENSOR_OK;
}

static tensor_status graph_outputs(struct reader *r, void *to) {
    struct fl_net_graph *const graph = to;
    void *list;
    TRY(read_list(r, sizeof *graph->outputs, one_int, &list, &graph->output_count));
    graph->outputs = list;
    return TENSOR_OK;
}

static tensor_status graph_nodes(struct reader *r, void *to) {
    TRY(fl_json_need(&r->j, '['));
    if (fl_json_take(&r->j, ']'))
        return TENSOR_OK;
    do
        TRY(read_node(r, to));
    while (fl_json_take(&r->j, ','));
    return fl_json_need(&r->j, ']');
}

static tensor_status read_graph(struct reader *r, void *to) {
    static const struct field fields[] = {
        {"inputs", graph_inputs, true}, {"outputs", graph_outputs, true}, {"nodes", graph_nodes, true}};
    if (r->depth == FL_STORE_DEPTH + 1)
        return fl_json_refuse(&r->j, r->j.at, "more than %d graphs within each other", FL_STORE_DEPTH);
    r->depth++;
    TRY(read_object(r, "a graph", fields, 3, to));
    r->depth--;
    return TENSOR_OK;
}

/* --- the whole ---------------------------------------------------------------------------------------------------- */

static tensor_status net_version(struct reader *r, void *to) {
    int64_t version;
    (void)to;
    fl_json_space(&r->j);
    const size_t at = r->j.at;
    TRY(fl_json_integer(&r->j, &version));
    return version == FL_STORE_VERSION ? TENSOR_OK
                                       : fl_json_refuse(&r->j, at, "version %lld of the file, expected %d",
                                                        (long long)version, FL_STORE_VERSION);
}

static tensor_status net_source(struct reader *r, void *to) {
    int source;
    (void)to;
    TRY(read_choice(r, "the source", source_name, &source));
    r->n->source = source ? FL_NET_TFLITE : FL_NET_ONNX;
    return TENSOR_OK;
}

static tensor_status net_opset(struct reader *r, void *to) {
    (void)to;
    return one_int(r, &r->n->opset);
}

static tensor_status net_producer(struct reader *r, void *to) {
    (void)to;
    return keep_text(r, &r->n->producer);
}

static tensor_status net_rounding(struct reader *r, void *to) {
    int rounding;
    (void)to;
    TRY(read_choice(r, "the rounding", rounding_name, &rounding));
    r->n->rounding = (enum fl_int8_rounding)rounding;
    return TENSOR_OK;
}

static tensor_status net_graph(struct reader *r, void *to) {
    (void)to;
    return read_graph(r, &r->n->graph);
}

static tensor_status read_network(struct reader *r) {
    static const struct field fields[] = {{"version", net_version, true},   {"source", net_source, true},
                                          {"opset", net_opset, true},       {"producer", net_producer, true},
                                          {"rounding", net_rounding, true}, {"values", read_values, true},
                                          {"graph", net_graph, true}};
    TRY(read_object(r, "the network", fields, sizeof fields / sizeof *fields, NULL));
    fl_json_space(&r->j);
    if (r->j.at < r->j.size)
        return fl_json_expected(&r->j, "nothing after the network");
    for (int i = 0; i < r->file.count; i++)
        if (!r->used[i])
            return fl_fail(TENSOR_E_DATA, "%s: the network has no tensor '%.80s', which the file has", r->file.path,
                           r->file.tensors[i].name);
    const tensor_status status = fl_net_check(r->n);
    if (!status || status == TENSOR_E_MEMORY)
        return status;
    char why[400];
    snprintf(why, sizeof why, "%s", tensor_error());
    return fl_fail(status, "%s: %s", r->file.path, why);
}

static tensor_status read_file(struct reader *r, const char *path) {
    char *const text = (char *)(uintptr_t)fl_safetensors_note(&r->file, FL_STORE_NETWORK);
    if (!text)
        return fl_fail(TENSOR_E_DATA,
                       "%s: no program: its metadata lack '%s'. Weights alone need a model that they belong to", path,
                       FL_STORE_NETWORK);
    TRY(fl_safetensors_verify(&r->file));
    r->n = fl_network_new(FL_NET_ONNX);
    r->used = fl_alloc_zero((size_t)r->file.count + 1);
    if (!r->n || !r->used)
        return fl_fail(TENSOR_E_MEMORY, "no memory for a network of %d tensors", r->file.count);
    r->j = (struct fl_json){.kind = "",
                            .path = path,
                            .part = "network in its metadata",
                            .text = (unsigned char *)text,
                            .size = strlen(text)};
    return read_network(r);
}

tensor_status fl_store_read(struct fl_network **n, const char *path) {
    struct reader r = {.n = NULL};
    *n = NULL;
    TRY(fl_safetensors_open(&r.file, path));
    const tensor_status status = read_file(&r, path);
    fl_safetensors_close(&r.file);
    fl_free(r.used);
    if (status)
        fl_network_free(r.n);
    else
        *n = r.n;
    return status;
}

bool fl_store_begins(const char head[9]) {
    return head[8] == '{' && !head[7] && !head[6] && !head[5] && !head[4];
}
