/* onnx_read.c - a network from the messages of an ONNX file. */
#include "program/onnx/onnx_read.h"
#include "core/base/fail.h"
#include "program/onnx/onnx_internal.h"
#ifdef FL_HAVE_ONNX
#include "core/base/files.h"
#include "core/base/memory.h"
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* What begins a message: "node conv1 (Conv): attribute pads". */
struct what {
    char text[300];
};

static const char *or_empty(const char *text) {
    return text ? text : "";
}

/* --- values --------------------------------------------------------------------------------------------------------
 */

void fl_onnx_set_constant(struct fl_network *n, int value, struct fl_array *constant) {
    struct fl_net_value *const v = &n->values[value];
    v->constant = constant;
    v->type = constant->type;
    v->ndim = constant->ndim;
    memcpy(v->dim, constant->dim, sizeof v->dim);
    memset(v->dim_name, 0, sizeof v->dim_name);
}

static tensor_status add_name(struct fl_onnx_reader *r, int value) {
    TRY(fl_onnx_names_add(&r->all, r->n->values[value].name, value));
    return fl_onnx_names_add(&r->names, r->n->values[value].name, value);
}

int fl_onnx_fresh_value(struct fl_onnx_reader *r, const char *like, const char *ending) {
    const size_t room = strlen(like) + strlen(ending) + 16;
    char *const name = fl_alloc(room);
    if (!name) {
        fl_fail(TENSOR_E_MEMORY, "no memory for a name");
        return -1;
    }
    snprintf(name, room, "%s.%s", like, ending);
    for (int i = 2; fl_onnx_names_find(&r->all, name) >= 0; i++)
        snprintf(name, room, "%s.%s%d", like, ending, i);
    const int value = fl_net_add_value(r->n, name);
    fl_free(name);
    return value < 0 || add_name(r, value) ? -1 : value;
}

/* A value of a graph, whose name no other that is visible has. */
static tensor_status declare(struct fl_onnx_reader *r, const char *name, const char *what, int *value) {
    if (!*name)
        return fl_fail(TENSOR_E_DATA, "%s has no name", what);
    if (fl_onnx_names_find(&r->names, name) >= 0)
        return fl_fail(TENSOR_E_DATA, "%s has the name '%s', which another value has", what, name);
    *value = fl_net_add_value(r->n, name);
    if (*value < 0)
        return TENSOR_E_MEMORY;
    return add_name(r, *value);
}

/* Names that stand for "unknown", in files of several exporters, and are no name. */
static bool is_name(const char *name) {
    return *name && strcmp(name, "?") != 0 && strcmp(name, "-1") != 0;
}

static tensor_status set_dimensions(struct fl_network *n, struct fl_net_value *v, const Onnx__TensorShapeProto *shape,
                                    const char *what) {
    if (shape->n_dim > FL_ARRAY_DIMS)
        return fl_fail(TENSOR_E_DATA, "%s has %zu dimensions, expected at most %d", what, shape->n_dim, FL_ARRAY_DIMS);
    for (size_t i = 0; i < shape->n_dim; i++) {
        const Onnx__DimensionProto *const dim = shape->dim[i];
        v->dim[i] = dim->has_dim_value && dim->dim_value >= 0 ? dim->dim_value : -1;
        v->dim_name[i] = NULL;
        if (v->dim[i] < 0 && is_name(or_empty(dim->dim_param)) &&
            !(v->dim_name[i] = fl_net_text(n, dim->dim_param, strlen(dim->dim_param))))
            return TENSOR_E_MEMORY;
    }
    v->ndim = (int)shape->n_dim;
    return TENSOR_OK;
}

/* Type and shape of a value, as the file says them. A constant has its own. must: it is an input or output of the
 * network, which is a tensor. */
static tensor_status set_type(struct fl_onnx_reader *r, int value, const Onnx__ValueInfoProto *info, const char *what,
                              bool must) {
    const Onnx__TypeProto *const type = info->type;
    struct fl_net_value *const v = &r->n->values[value];
    if (v->constant || !type)
        return TENSOR_OK;
    if (type->has_sequence_type || type->has_map_type || type->has_optional_type || type->has_sparse_tensor_type)
        return must ? fl_fail(TENSOR_E_DATA, "%s is %s, expected a tensor", what,
                              type->has_sequence_type   ? "a sequence"
                              : type->has_map_type      ? "a map"
                              : type->has_optional_type ? "optional"
                                                        : "a sparse tensor")
                    : TENSOR_OK;
    if (!type->tensor_type)
        return TENSOR_OK;
    const int number = type->tensor_type->elem_type;
    if (number && !fl_onnx_type(number)) {
        if (must)
            return fl_fail(TENSOR_E_DATA,
                           "%s has elements of type %s (%d), expected bool, integers of 8 to 64 bits, "
                           "float16, bfloat16, float32 or float64",
                           what, fl_onnx_type_name(number), number);
        return TENSOR_OK;
    }
    v->type = fl_onnx_type(number);
    return type->tensor_type->shape ? set_dimensions(r->n, v, type->tensor_type->shape, what) : TENSOR_OK;
}

/* --- nodes ---------------------------------------------------------------------------------------------------------
 */

static tensor_status read_graph(struct fl_onnx_reader *r, struct fl_net_graph *graph, const Onnx__GraphProto *g,
                                bool nested);

/* A node is called by its name, else by its first output, else by its operator. */
static const char *name_of(const Onnx__NodeProto *node) {
    if (*or_empty(node->name))
        return node->name;
    for (size_t i = 0; i < node->n_output; i++)
        if (*node->output[i])
            return node->output[i];
    return or_empty(node->op_type);
}

static struct what about_node(const Onnx__NodeProto *node, const char *attribute) {
    struct what w;
    snprintf(w.text, sizeof w.text, "node %.100s (%.60s)%s%.100s", name_of(node), or_empty(node->op_type),
             attribute ? ": attribute " : "", or_empty(attribute));
    return w;
}

static const char *text_of(struct fl_network *n, const ProtobufCBinaryData *bytes, const char *what) {
    if (bytes->len && memchr(bytes->data, 0, bytes->len)) {
        fl_fail(TENSOR_E_DATA, "%s has a zero byte, expected a text", what);
        return NULL;
    }
    return fl_net_text(n, (const char *)bytes->data, bytes->len);
}

static tensor_status copy_list(struct fl_network *n, const void **list, int *count, const void *from, size_t elements,
                               size_t size) {
    void *const copy = fl_net_memory(n, elements * size);
    if (!copy)
        return TENSOR_E_MEMORY;
    if (elements)
        memcpy(copy, from, elements * size);
    *list = copy;
    *count = (int)elements;
    return TENSOR_OK;
}

static tensor_status read_strings(struct fl_network *n, struct fl_net_attribute *to,
                                  const Onnx__AttributeProto *attribute, const char *what) {
    const char **const strings = fl_net_memory(n, attribute->n_strings * sizeof *strings);
    if (!strings)
        return TENSOR_E_MEMORY;
    for (size_t i = 0; i < attribute->n_strings; i++)
        if (!(strings[i] = text_of(n, &attribute->strings[i], what)))
            return TENSOR_E_DATA;
    to->count = (int)attribute->n_strings;
    to->strings = strings;
    return TENSOR_OK;
}

/* AttributeProto.AttributeType */
enum { A_FLOAT = 1, A_INT, A_STRING, A_TENSOR, A_GRAPH, A_FLOATS, A_INTS, A_STRINGS };

static tensor_status read_attribute(struct fl_onnx_reader *r, struct fl_net_attribute *to,
                                    const Onnx__AttributeProto *a, const char *what) {
    static const enum fl_net_kind kinds[] = {
        [A_FLOAT] = FL_NET_FLOAT, [A_INT] = FL_NET_INT,       [A_STRING] = FL_NET_STRING, [A_TENSOR] = FL_NET_ARRAY,
        [A_GRAPH] = FL_NET_GRAPH, [A_FLOATS] = FL_NET_FLOATS, [A_INTS] = FL_NET_INTS,     [A_STRINGS] = FL_NET_STRINGS};
    if (*or_empty(a->ref_attr_name))
        return fl_fail(TENSOR_E_DATA, "%s refers to the attribute %s of a function, expected a value", what,
                       a->ref_attr_name);
    if (a->type < A_FLOAT || a->type > A_STRINGS)
        return fl_fail(TENSOR_E_DATA, "%s has type %d, expected 1 (float) to 8 (strings)", what, a->type);
    if ((a->type == A_TENSOR && !a->t) || (a->type == A_GRAPH && !a->g))
        return fl_fail(TENSOR_E_DATA, "%s has no value", what);
    to->name = fl_net_text(r->n, a->name, strlen(a->name));
    to->kind = kinds[a->type];
    if (!to->name)
        return TENSOR_E_MEMORY;
    switch (a->type) {
    case A_FLOAT:
        to->f = a->f;
        return TENSOR_OK;
    case A_INT:
        to->i = a->i;
        return TENSOR_OK;
    case A_STRING:
        return (to->s = text_of(r->n, &a->s, what)) ? TENSOR_OK : TENSOR_E_DATA;
    case A_TENSOR:
        return fl_onnx_tensor(r, &to->array, a->t, what, NULL);
    case A_GRAPH:
        to->graph = fl_net_memory(r->n, sizeof *to->graph);
        return to->graph ? read_graph(r, to->graph, a->g, true) : TENSOR_E_MEMORY;
    case A_FLOATS:
        return copy_list(r->n, (const void **)&to->floats, &to->count, a->floats, a->n_floats, sizeof *a->floats);
    case A_INTS:
        return copy_list(r->n, (const void **)&to->ints, &to->count, a->ints, a->n_ints, sizeof *a->ints);
    default:
        return read_strings(r->n, to, a, what);
    }
}

enum { ATTRIBUTES = 1000 }; /* of a node; each is compared with those before it */

static tensor_status read_attributes(struct fl_onnx_reader *r, struct fl_net_attribute *to,
                                     const Onnx__NodeProto *node) {
    if (node->n_attribute > ATTRIBUTES)
        return fl_fail(TENSOR_E_DATA, "%s has %zu attributes, expected at most %d", about_node(node, NULL).text,
                       node->n_attribute, ATTRIBUTES);
    for (size_t i = 0; i < node->n_attribute; i++) {
        const char *const name = or_empty(node->attribute[i]->name);
        const struct what what = about_node(node, name);
        if (!*name)
            return fl_fail(TENSOR_E_DATA, "%s: attribute %zu has no name", about_node(node, NULL).text, i);
        for (size_t k = 0; k < i; k++)
            if (!strcmp(to[k].name, name))
                return fl_fail(TENSOR_E_DATA, "%s is there twice", what.text);
        TRY(read_attribute(r, &to[i], node->attribute[i], what.text));
    }
    return TENSOR_OK;
}

/* What a file that this library wrote says of a node beside ONNX (passes/restore.c). */
static tensor_status read_metadata(struct fl_network *n, struct fl_net_node *to, const Onnx__NodeProto *node) {
    static const char *const keys[] = {"flexlab.format",    "flexlab.part",       "flexlab.layout",
                                       "flexlab.exponents", "flexlab.attributes", "flexlab.operator"};
    for (size_t i = 0; i < node->n_metadata_props; i++)
        for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++)
            if (!strcmp(or_empty(node->metadata_props[i]->key), keys[k]))
                TRY(fl_net_set_string(n, to, keys[k], or_empty(node->metadata_props[i]->value)));
    return TENSOR_OK;
}

static bool in_own_domain(const Onnx__NodeProto *node) {
    const char *const domain = or_empty(node->domain);
    return !*domain || !strcmp(domain, "ai.onnx");
}

static bool is_constant(const Onnx__NodeProto *node) {
    return in_own_domain(node) && !strcmp(or_empty(node->op_type), "Constant");
}

/* The value of a node Constant, which has one attribute, by the kind of the value. */
static tensor_status read_constant(struct fl_onnx_reader *r, const Onnx__NodeProto *node) {
    static const char *const names[] = {"value", "value_float", "value_int", "value_floats", "value_ints"};
    static const enum fl_net_kind kinds[] = {FL_NET_ARRAY, FL_NET_FLOAT, FL_NET_INT, FL_NET_FLOATS, FL_NET_INTS};
    const struct what what = about_node(node, NULL);
    struct fl_net_attribute a = {0};
    if (node->n_output != 1 || node->n_input || node->n_attribute != 1)
        return fl_fail(TENSOR_E_DATA, "%s has %zu inputs, %zu outputs and %zu attributes, expected 0, 1 and 1",
                       what.text, node->n_input, node->n_output, node->n_attribute);
    size_t k = 0;
    while (k < 5 && strcmp(names[k], or_empty(node->attribute[0]->name)) != 0)
        k++;
    if (k == 5)
        return fl_fail(TENSOR_E_DATA, "%s is not read: a constant is a tensor, numbers or whole numbers",
                       about_node(node, or_empty(node->attribute[0]->name)).text);
    TRY(read_attributes(r, &a, node));
    if (a.kind != kinds[k])
        return fl_fail(TENSOR_E_DATA, "%s has type %d, which is another one than its name says",
                       about_node(node, a.name).text, node->attribute[0]->type);
    if (!a.array) {
        const bool real = a.kind == FL_NET_FLOAT || a.kind == FL_NET_FLOATS;
        const bool list = a.kind == FL_NET_FLOATS || a.kind == FL_NET_INTS;
        const int64_t count = list ? a.count : 1;
        const void *const from = a.kind == FL_NET_FLOAT ? (const void *)&a.f
                                 : a.kind == FL_NET_INT ? (const void *)&a.i
                                 : real                 ? (const void *)a.floats
                                                        : (const void *)a.ints;
        TRY(fl_net_array(r->n, &a.array, real ? TENSOR_TYPE_F32 : TENSOR_TYPE_I64, list, &count));
        if (count)
            memcpy(a.array->data, from, (size_t)count * fl_type_bytes(a.array->type));
    }
    const int value = fl_onnx_names_find(&r->names, node->output[0]);
    if (value < 0)
        return fl_fail(TENSOR_E_DATA, "%s: its output has no name", about_node(node, NULL).text);
    fl_onnx_set_constant(r->n, value, a.array);
    return TENSOR_OK;
}

static tensor_status read_node(struct fl_onnx_reader *r, struct fl_net_graph *graph, const Onnx__NodeProto *node) {
    const struct what what = about_node(node, NULL);
    const int k = graph->node_count;
    if (!*or_empty(node->op_type))
        return fl_fail(TENSOR_E_DATA, "node %.100s has no operator", name_of(node));
    if (in_own_domain(node) && !r->opset)
        return fl_fail(TENSOR_E_DATA, "%s: the model names no opset of the domain ''", what.text);
    struct fl_net_node *const made = fl_net_add_node(r->n, graph, node->op_type, name_of(node), (int)node->n_input,
                                                     (int)node->n_output, (int)node->n_attribute);
    if (!made)
        return TENSOR_E_MEMORY;
    if (!in_own_domain(node) && !(made->domain = fl_net_text(r->n, node->domain, strlen(node->domain))))
        return TENSOR_E_MEMORY;
    for (size_t i = 0; i < node->n_output; i++)
        made->outputs[i] = *node->output[i] ? fl_onnx_names_find(&r->names, node->output[i]) : -1;
    for (size_t i = 0; i < node->n_input; i++) {
        made->inputs[i] = *node->input[i] ? fl_onnx_names_find(&r->names, node->input[i]) : -1;
        if (*node->input[i] && made->inputs[i] < 0)
            return fl_fail(TENSOR_E_DATA, "%s: input %zu is '%s', which is no input, and which no node computes",
                           what.text, i, node->input[i]);
        if (made->inputs[i] >= 0 && r->n->values[made->inputs[i]].four_bits && !strcmp(node->op_type, "QuantizeLinear"))
            return fl_fail(TENSOR_E_DATA, "%s: results of 4 bits, expected 8 or 16: weights alone may have 4",
                           what.text);
    }
    TRY(read_attributes(r, graph->nodes[k].attributes, node));
    TRY(read_metadata(r->n, &graph->nodes[k], node));
    return fl_onnx_translate(r, graph);
}

/* --- graphs --------------------------------------------------------------------------------------------------------
 */

static tensor_status read_initializers(struct fl_onnx_reader *r, const Onnx__GraphProto *g) {
    if (g->n_sparse_initializer)
        return fl_fail(TENSOR_E_DATA, "the model has %zu sparse initializers, expected dense ones",
                       g->n_sparse_initializer);
    for (size_t i = 0; i < g->n_initializer; i++) {
        struct what what;
        struct fl_array *array;
        int value;
        snprintf(what.text, sizeof what.text, "initializer %.200s", or_empty(g->initializer[i]->name));
        TRY(declare(r, or_empty(g->initializer[i]->name), "an initializer", &value));
        bool four_bits;
        TRY(fl_onnx_tensor(r, &array, g->initializer[i], what.text, &four_bits));
        fl_onnx_set_constant(r->n, value, array);
        r->n->values[value].four_bits = four_bits;
    }
    return TENSOR_OK;
}

/* Initializers are constants also where they are the default of an input. first: the first value of the graph. */
static tensor_status read_inputs(struct fl_onnx_reader *r, struct fl_net_graph *graph, const Onnx__GraphProto *g,
                                 int first, bool nested) {
    graph->inputs = fl_net_memory(r->n, g->n_input * sizeof *graph->inputs);
    if (!graph->inputs)
        return TENSOR_E_MEMORY;
    for (size_t i = 0; i < g->n_input; i++) {
        const char *const name = or_empty(g->input[i]->name);
        struct what what;
        int value = fl_onnx_names_find(&r->names, name);
        snprintf(what.text, sizeof what.text, "input %.200s", name);
        if (value >= first && r->n->values[value].constant)
            continue;
        TRY(declare(r, name, "an input", &value));
        TRY(set_type(r, value, g->input[i], what.text, !nested));
        graph->inputs[graph->input_count++] = value;
    }
    return TENSOR_OK;
}

static tensor_status declare_results(struct fl_onnx_reader *r, const Onnx__GraphProto *g) {
    for (size_t k = 0; k < g->n_node; k++)
        for (size_t i = 0; i < g->node[k]->n_output; i++) {
            int value;
            struct what what;
            if (!*g->node[k]->output[i])
                continue;
            snprintf(what.text, sizeof what.text, "output %zu of %.250s", i, about_node(g->node[k], NULL).text);
            TRY(declare(r, g->node[k]->output[i], what.text, &value));
        }
    return TENSOR_OK;
}

static tensor_status read_outputs(struct fl_onnx_reader *r, struct fl_net_graph *graph, const Onnx__GraphProto *g,
                                  int first, bool nested) {
    graph->outputs = fl_net_memory(r->n, g->n_output * sizeof *graph->outputs);
    if (!graph->outputs)
        return TENSOR_E_MEMORY;
    for (size_t i = 0; i < g->n_output; i++) {
        const char *const name = or_empty(g->output[i]->name);
        const int value = fl_onnx_names_find(&r->names, name);
        struct what what;
        snprintf(what.text, sizeof what.text, "output %.200s", name);
        if (value < 0)
            return fl_fail(TENSOR_E_DATA, "output %zu is '%s', which is no input, and which no node computes", i, name);
        if (value >= first)
            TRY(set_type(r, value, g->output[i], what.text, !nested));
        graph->outputs[graph->output_count++] = value;
    }
    return TENSOR_OK;
}

/* Names first, then nodes, which may stand in any order; types before nodes, whose translation asks for ranks. */
static tensor_status read_graph(struct fl_onnx_reader *r, struct fl_net_graph *graph, const Onnx__GraphProto *g,
                                bool nested) {
    const size_t around = r->names.count;
    const int first = r->n->value_count;
    TRY(read_initializers(r, g));
    TRY(read_inputs(r, graph, g, first, nested));
    TRY(declare_results(r, g));
    for (size_t i = 0; i < g->n_value_info; i++) {
        const int value = fl_onnx_names_find(&r->names, or_empty(g->value_info[i]->name));
        struct what what;
        snprintf(what.text, sizeof what.text, "value %.200s", or_empty(g->value_info[i]->name));
        if (value >= first)
            TRY(set_type(r, value, g->value_info[i], what.text, false));
    }
    for (size_t k = 0; k < g->n_node; k++)
        if (is_constant(g->node[k]))
            TRY(read_constant(r, g->node[k]));
    TRY(read_outputs(r, graph, g, first, nested));
    for (size_t k = 0; k < g->n_node; k++)
        if (!is_constant(g->node[k]))
            TRY(read_node(r, graph, g->node[k]));
    fl_onnx_names_leave(&r->names, around);
    return TENSOR_OK;
}

/* --- the model -----------------------------------------------------------------------------------------------------
 */

static tensor_status read_opset(struct fl_onnx_reader *r, const Onnx__ModelProto *model) {
    for (size_t i = 0; i < model->n_opset_import; i++) {
        const char *const domain = or_empty(model->opset_import[i]->domain);
        const int64_t version = model->opset_import[i]->version;
        if (*domain && strcmp(domain, "ai.onnx") != 0)
            continue;
        if (r->opset)
            return fl_fail(TENSOR_E_DATA, "the model names two opsets of the domain '': %d and %lld", r->opset,
                           (long long)version);
        if (version < FL_ONNX_OPSET_FIRST || version > FL_ONNX_OPSET_LAST)
            return fl_fail(TENSOR_E_DATA, "the model has opset %lld, expected %d to %d", (long long)version,
                           FL_ONNX_OPSET_FIRST, FL_ONNX_OPSET_LAST);
        r->opset = (int)version;
    }
    return TENSOR_OK;
}

/* Integers are rounded as onnxruntime does it, unless the file says otherwise. */
static tensor_status read_rounding(struct fl_network *n, const Onnx__ModelProto *model) {
    n->rounding = FL_INT8_ONNX;
    for (size_t i = 0; i < model->n_metadata_props; i++) {
        const char *const value = or_empty(model->metadata_props[i]->value);
        if (strcmp(or_empty(model->metadata_props[i]->key), "flexlab.rounding") != 0)
            continue;
        n->rounding = fl_int8_rounding_named(value);
        if (n->rounding == FL_INT8_ROUNDINGS)
            return fl_fail(TENSOR_E_DATA,
                           "flexlab.rounding is '%.100s', expected exact, onnx, tflite, tflite-ruy or tflite-xnnpack",
                           value);
    }
    return TENSOR_OK;
}

static tensor_status read_model(struct fl_onnx_reader *r, const Onnx__ModelProto *model) {
    const char *const name = or_empty(model->producer_name), *const version = or_empty(model->producer_version);
    if (model->ir_version < 3)
        return fl_fail(TENSOR_E_DATA, "the model has IR version %lld, expected 3 or later: %s",
                       (long long)model->ir_version, model->graph ? "it is too old" : "is it an ONNX file?");
    if (!model->graph)
        return fl_fail(TENSOR_E_DATA, "the model has no graph");
    if (model->n_functions)
        return fl_fail(TENSOR_E_DATA,
                       "the model has %zu functions of its own, the first is %.100s, expected none: "
                       "inline them",
                       model->n_functions, or_empty(model->functions[0]->name));
    TRY(read_opset(r, model));
    TRY(read_rounding(r->n, model));
    const size_t room = strlen(name) + strlen(version) + 2;
    char *const producer = fl_net_memory(r->n, room);
    if (!producer)
        return TENSOR_E_MEMORY;
    snprintf(producer, room, "%s%s%s", name, *name && *version ? " " : "", version);
    r->n->producer = producer;
    r->n->opset = r->opset;
    TRY(read_graph(r, &r->n->graph, model->graph, false));
    return fl_net_check(r->n);
}

/* --- the file ------------------------------------------------------------------------------------------------------
 */

static tensor_status fill_bytes(int file, uint8_t *bytes, size_t size) {
    for (size_t used = 0; used < size;) {
        const ssize_t got = read(file, bytes + used, size - used < 1u << 30 ? size - used : 1u << 30);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return fl_fail(TENSOR_E_IO, "cannot read it: %s", got ? strerror(errno) : "it ends early");
        used += (size_t)got;
    }
    return TENSOR_OK;
}

static tensor_status read_file(const char *path, uint8_t **bytes, size_t *size) {
    struct stat about;
    const char *kind;
    const int file = fl_file_open(path, &about, &kind);
    if (kind)
        return fl_fail(TENSOR_E_IO, "it is %s, expected a regular file", kind);
    if (file < 0)
        return fl_fail(TENSOR_E_IO, "cannot open it: %s", strerror(errno));
    tensor_status status = TENSOR_OK;
    *size = (size_t)about.st_size;
    if (about.st_size == 0 || about.st_size > INT_MAX)
        status = fl_fail(TENSOR_E_DATA, "it has %lld bytes, expected 1 to %d, with larger weights in files beside it",
                         (long long)about.st_size, INT_MAX);
    else if (!(*bytes = fl_alloc(*size)))
        status = fl_fail(TENSOR_E_MEMORY, "no memory for its %zu bytes", *size);
    else
        status = fill_bytes(file, *bytes, *size);
    close(file);
    return status;
}

static tensor_status read_message(const char *path, struct fl_onnx_memory *memory, ProtobufCMessage **message,
                                  const ProtobufCMessageDescriptor *kind) {
    uint8_t *bytes = NULL;
    size_t size = 0;
    tensor_status status = read_file(path, &bytes, &size);
    if (!status)
        status = fl_onnx_unpack(memory, message, kind, bytes, size);
    fl_free(bytes);
    return status;
}

static tensor_status read_network(struct fl_onnx_reader *r, struct fl_onnx_memory *memory) {
    ProtobufCMessage *model = NULL;
    TRY(read_message(r->path, memory, &model, &onnx__model_proto__descriptor));
    r->n = fl_network_new(FL_NET_ONNX);
    return r->n ? read_model(r, (const Onnx__ModelProto *)model) : TENSOR_E_MEMORY;
}

tensor_status fl_onnx_read(struct fl_network **network, const char *path) {
    struct fl_onnx_reader r = {.path = path};
    struct fl_onnx_memory memory = {0};
    *network = NULL;
    const tensor_status status = read_network(&r, &memory);
    fl_onnx_release(&memory);
    fl_onnx_forget_files(&r);
    fl_onnx_names_free(&r.names);
    fl_onnx_names_free(&r.all);
    if (status) {
        fl_network_free(r.n);
        return fl_fail(status, "%s: %s", path, tensor_error());
    }
    *network = r.n;
    return TENSOR_OK;
}

tensor_status fl_onnx_read_tensor(struct fl_array **array, struct fl_network *network, const char *path) {
    struct fl_onnx_reader r = {.path = path, .n = network};
    struct fl_onnx_memory memory = {0};
    ProtobufCMessage *message = NULL;
    *array = NULL;
    tensor_status status = read_message(path, &memory, &message, &onnx__tensor_proto__descriptor);
    if (!status)
        status = fl_onnx_tensor(&r, array, (const Onnx__TensorProto *)message, "the tensor", NULL);
    fl_onnx_release(&memory);
    fl_onnx_forget_files(&r);
    return status ? fl_fail(status, "%s: %s", path, tensor_error()) : TENSOR_OK;
}
#else
static tensor_status unavailable(const char *path) {
    return fl_fail(TENSOR_E_UNSUPPORTED,
                   "%s: the library was built without protobuf-c, which reads ONNX files: apt-get install "
                   "libprotobuf-c-dev protobuf-c-compiler, and build it again",
                   path);
}

tensor_status fl_onnx_read(struct fl_network **network, const char *path) {
    *network = NULL;
    return unavailable(path);
}

tensor_status fl_onnx_read_tensor(struct fl_array **array, struct fl_network *network, const char *path) {
    (void)network;
    *array = NULL;
    return unavailable(path);
}
#endif
