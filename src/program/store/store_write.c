/* store_write.c - the file of a network. Only values that something refers to are in it, in their order, so that what
 * is read from a file is written again as the same bytes. */
#include "program/store/rounded.h"
#include "program/store/store.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "safetensors/json.h"
#include <stdio.h>
#include <string.h>

struct writer {
    const struct fl_network *n;
    struct fl_network *memory; /* of elements and names, until the file is written */
    struct fl_json_out json;
    struct fl_safetensors_out out;
    struct fl_constant_use *uses;
    int *number; /* of each value in the file; -1: not in it */
    int live, key_count, key_room;
    const char **keys; /* of tensors so far */
    bool mantissas;
};

static const struct {
    tensor_type type;
    enum fl_stored_type stored;
} types[] = {{TENSOR_TYPE_BOOL, FL_STORED_BOOL}, {TENSOR_TYPE_I8, FL_STORED_I8},     {TENSOR_TYPE_U8, FL_STORED_U8},
             {TENSOR_TYPE_I16, FL_STORED_I16},   {TENSOR_TYPE_U16, FL_STORED_U16},   {TENSOR_TYPE_I32, FL_STORED_I32},
             {TENSOR_TYPE_U32, FL_STORED_U32},   {TENSOR_TYPE_I64, FL_STORED_I64},   {TENSOR_TYPE_U64, FL_STORED_U64},
             {TENSOR_TYPE_F16, FL_STORED_F16},   {TENSOR_TYPE_BF16, FL_STORED_BF16}, {TENSOR_TYPE_F32, FL_STORED_F32},
             {TENSOR_TYPE_F64, FL_STORED_F64}};
enum { TYPES = sizeof types / sizeof types[0] };

enum fl_stored_type fl_store_type(tensor_type type) {
    for (int i = 0; i < TYPES; i++)
        if (types[i].type == type)
            return types[i].stored;
    return FL_STORED_TYPES;
}

tensor_type fl_store_type_back(enum fl_stored_type type) {
    for (int i = 0; i < TYPES; i++)
        if (types[i].stored == type)
            return types[i].type;
    return 0;
}

enum fl_stored_type fl_store_format(tensor_format format) {
    return format == FMT_FP16                                                        ? FL_STORED_F16
           : format == FMT_BF16                                                      ? FL_STORED_BF16
           : tensor_format_has_mantissas(format) && tensor_format_bytes(format) == 2 ? FL_STORED_I16
                                                                                     : FL_STORED_TYPES;
}

/* --- words -------------------------------------------------------------------------------------------------------- */

static void put(struct writer *w, const char *text) {
    fl_json_put_bytes(&w->json, text, strlen(text));
}

static tensor_status check_text(const char *text) {
    const size_t size = strlen(text);
    for (size_t i = 0, length; i < size; i += length)
        if (!(length = fl_utf8_length((const unsigned char *)text + i, size - i)))
            return fl_fail(TENSOR_E_ARGUMENT, "'%.80s' is not UTF-8 text (byte %zu), which a file of a program is",
                           text, i);
    return TENSOR_OK;
}

/* "NAME":"TEXT", after what was there. */
static tensor_status put_text(struct writer *w, const char *name, const char *text) {
    put(w, name);
    TRY(check_text(text));
    fl_json_put_string(&w->json, text);
    return TENSOR_OK;
}

static void put_ints(struct writer *w, const char *name, int count, const int64_t *ints) {
    put(w, name);
    for (int i = 0; i < count; i++)
        fl_json_put(&w->json, "%s%lld", i ? "," : "[", (long long)ints[i]);
    put(w, count ? "]" : "[]");
}

static void put_floats(struct writer *w, const char *name, int count, const float *floats) {
    put(w, name);
    for (int i = 0; i < count; i++) {
        put(w, i ? "," : "[");
        fl_json_put_real(&w->json, (double)floats[i], 9);
    }
    put(w, count ? "]" : "[]");
}

/* --- tensors ------------------------------------------------------------------------------------------------------ */

static bool is_key(const struct writer *w, const char *key) {
    for (int i = 0; i < w->key_count; i++)
        if (!strcmp(w->keys[i], key))
            return true;
    return false;
}

static tensor_status add_key(struct writer *w, const char *key) {
    if (w->key_count == w->key_room) {
        const int room = w->key_room ? 2 * w->key_room : 64;
        const char **const keys = fl_net_memory(w->memory, (size_t)room * sizeof *keys);
        if (!keys)
            return TENSOR_E_MEMORY;
        if (w->key_count)
            memcpy(keys, w->keys, (size_t)w->key_count * sizeof *keys);
        w->keys = keys;
        w->key_room = room;
    }
    w->keys[w->key_count++] = key;
    return TENSOR_OK;
}

/* The name of a new tensor: PREFIX and ENDING, with a number behind them where another tensor has that name. */
static tensor_status new_key(struct writer *w, const char *prefix, const char *ending, const char **key) {
    const size_t room = strlen(prefix) + strlen(ending) + 24;
    char *const text = fl_net_memory(w->memory, room);
    if (!text)
        return TENSOR_E_MEMORY;
    snprintf(text, room, "%s%s", prefix, ending);
    for (int i = 2; !*text || !strcmp(text, "__metadata__") || is_key(w, text); i++)
        snprintf(text, room, "%s%s#%d", prefix, ending, i);
    *key = text;
    TRY(check_text(text));
    return add_key(w, text);
}

static tensor_status put_tensor(struct writer *w, const char *name, const char *key, enum fl_stored_type type,
                                const struct fl_array *a, const void *data) {
    TRY(put_text(w, name, key));
    return fl_safetensors_add(&w->out, key, type, a->ndim, a->dim, data);
}

static tensor_status add_exponent(struct writer *w, const char *key, int exponent) {
    const size_t room = strlen(key) + sizeof ".exponent";
    char *const name = fl_net_memory(w->memory, room);
    char text[24];
    if (!name)
        return TENSOR_E_MEMORY;
    snprintf(name, room, "%s.exponent", key);
    snprintf(text, sizeof text, "%d", exponent);
    w->mantissas = true;
    return fl_safetensors_add_note(&w->out, name, text);
}

/* A constant in the format in which all of its readers take it; *narrow is false where there is no such format, or
 * where it would not have the same numbers again when they are read. */
static tensor_status put_narrow(struct writer *w, int value, const char *key, bool *narrow) {
    const struct fl_array *const a = w->n->values[value].constant;
    const struct fl_constant_use *const use = &w->uses[value];
    const enum fl_stored_type type = use->count ? fl_store_format(use->format[0]) : FL_STORED_TYPES;
    struct fl_rounded r;
    *narrow = false;
    if (use->count != 1 || use->plain || type == FL_STORED_TYPES || fl_round(&r, a, use->format[0]))
        return TENSOR_OK;
    const size_t bytes = (size_t)a->count * tensor_format_bytes(use->format[0]);
    void *const elements = fl_net_memory(w->memory, bytes);
    tensor_status status = elements ? fl_round_is_stable(narrow, &r, a->count) : TENSOR_E_MEMORY;
    if (!status && *narrow) {
        memcpy(elements, tensor_const_data(r.t), bytes);
        status = put_tensor(w, ",\"tensor\":", key, type, a, elements);
        if (!status)
            status = put_text(w, ",\"stored\":", tensor_format_name(use->format[0]));
        if (!status && type == FL_STORED_I16)
            status = add_exponent(w, key, tensor_exponent(r.t));
    }
    fl_round_end(&r);
    return status;
}

static tensor_status put_array(struct writer *w, const char *name, const char *key, const struct fl_array *a) {
    return put_tensor(w, name, key, fl_store_type(a->type), a, a->data);
}

/* Scales and zero points: tensors beside a constant, numbers of the network elsewhere. */
static tensor_status put_quantisation(struct writer *w, const struct fl_quantisation *q, const char *key) {
    const struct fl_array line = {.ndim = 1, .dim = {q->count}, .count = q->count};
    const char *scale, *zero;
    put(w, ",\"quantisation\":{");
    fl_json_put(&w->json, "\"axis\":%d,", q->axis);
    if (key) {
        TRY(new_key(w, key, ".scale", &scale));
        TRY(new_key(w, key, ".zero", &zero));
        TRY(put_tensor(w, "\"scale\":", scale, FL_STORED_F32, &line, q->scale));
        TRY(put_tensor(w, ",\"zero\":", zero, FL_STORED_I32, &line, q->zero));
    } else {
        put_floats(w, "\"scale\":", q->count, q->scale);
        put(w, ",\"zero\":");
        for (int i = 0; i < q->count; i++)
            fl_json_put(&w->json, "%s%d", i ? "," : "[", (int)q->zero[i]);
        put(w, q->count ? "]" : "[]");
    }
    put(w, "}");
    return TENSOR_OK;
}

/* --- values ------------------------------------------------------------------------------------------------------- */

/* [] of a tensor that was never seen, [maximum], or [maximum, exponent]. */
static void put_range(struct writer *w, const struct fl_range *r) {
    put(w, "[");
    if (r->maximum > 0 || r->frozen)
        fl_json_put_real(&w->json, r->maximum, 17);
    if (r->frozen)
        fl_json_put(&w->json, ",%d", r->exponent);
    put(w, "]");
}

static bool is_known(const struct fl_range *r) {
    return r->maximum > 0 || r->frozen;
}

static tensor_status put_value(struct writer *w, int value) {
    const struct fl_net_value *const v = &w->n->values[value];
    const char *key = NULL;
    bool named = false, narrow = false;
    TRY(put_text(w, "{\"name\":", v->name));
    if (v->type)
        TRY(put_text(w, ",\"type\":", fl_type_name(v->type)));
    if (v->ndim >= 0)
        put_ints(w, ",\"shape\":", v->ndim, v->dim);
    for (int d = 0; d < v->ndim; d++)
        named |= v->dim_name[d] != NULL;
    for (int d = 0; d < v->ndim && named; d++)
        TRY(put_text(w, d ? "," : ",\"names\":[", v->dim_name[d] ? v->dim_name[d] : ""));
    put(w, named ? "]" : "");
    if (is_known(&v->range)) {
        put(w, ",\"range\":");
        put_range(w, &v->range);
    }
    if (v->constant) {
        TRY(new_key(w, v->name, "", &key));
        TRY(put_narrow(w, value, key, &narrow));
        if (!narrow)
            TRY(put_array(w, ",\"tensor\":", key, v->constant));
    }
    if (v->quantisation)
        TRY(put_quantisation(w, v->quantisation, key));
    put(w, "}");
    return TENSOR_OK;
}

/* --- nodes -------------------------------------------------------------------------------------------------------- */

static tensor_status put_graph(struct writer *w, const struct fl_net_graph *graph, int depth);

static tensor_status put_attribute(struct writer *w, const struct fl_net_node *node, const struct fl_net_attribute *a,
                                   int depth) {
    const char *key;
    char *like;
    TRY(put_text(w, "{\"name\":", a->name));
    switch (a->kind) {
    case FL_NET_INT:
        fl_json_put(&w->json, ",\"int\":%lld", (long long)a->i);
        break;
    case FL_NET_FLOAT:
        put(w, ",\"float\":");
        fl_json_put_real(&w->json, (double)a->f, 9);
        break;
    case FL_NET_STRING:
        TRY(put_text(w, ",\"string\":", a->s));
        break;
    case FL_NET_INTS:
        put_ints(w, ",\"ints\":", a->count, a->ints);
        break;
    case FL_NET_FLOATS:
        put_floats(w, ",\"floats\":", a->count, a->floats);
        break;
    case FL_NET_STRINGS:
        put(w, ",\"strings\":[");
        for (int i = 0; i < a->count; i++)
            TRY(put_text(w, i ? "," : "", a->strings[i]));
        put(w, "]");
        break;
    case FL_NET_ARRAY:
        like = fl_net_memory(w->memory, strlen(node->name) + strlen(a->name) + 2);
        if (!like)
            return TENSOR_E_MEMORY;
        sprintf(like, "%s.%s", node->name, a->name);
        TRY(new_key(w, like, "", &key));
        TRY(put_array(w, ",\"tensor\":", key, a->array));
        break;
    case FL_NET_GRAPH:
        put(w, ",\"graph\":");
        TRY(put_graph(w, a->graph, depth + 1));
        break;
    }
    put(w, "}");
    return TENSOR_OK;
}

static void put_numbers(struct writer *w, const char *name, int count, const int *values) {
    put(w, name);
    for (int i = 0; i < count; i++)
        fl_json_put(&w->json, "%s%d", i ? "," : "[", values[i] < 0 ? -1 : w->number[values[i]]);
    put(w, count ? "]" : "[]");
}

static tensor_status put_node(struct writer *w, const struct fl_net_node *node, int depth) {
    int inner = node->inner ? FL_NODE_TEMPORARIES : 0, given = 0;
    while (inner && !is_known(&node->inner[inner - 1]))
        inner--;
    TRY(put_text(w, "{\"op\":", node->op));
    if (*node->domain)
        TRY(put_text(w, ",\"domain\":", node->domain));
    TRY(put_text(w, ",\"name\":", node->name));
    put_numbers(w, ",\"inputs\":", node->input_count, node->inputs);
    put_numbers(w, ",\"outputs\":", node->output_count, node->outputs);
    for (int i = 0; i < node->attribute_count; i++)
        if (node->attributes[i].name) {
            put(w, given++ ? "," : ",\"attributes\":[");
            TRY(put_attribute(w, node, &node->attributes[i], depth));
        }
    put(w, given ? "]" : "");
    put(w, node->channels_last ? ",\"channels_last\":true" : "");
    if (node->format && node->format != FMT_FP32)
        TRY(put_text(w, ",\"format\":", tensor_format_name(node->format)));
    for (int i = 0; i < inner; i++) {
        put(w, i ? "," : ",\"inner\":[");
        put_range(w, &node->inner[i]);
    }
    put(w, inner ? "]}" : "}");
    return TENSOR_OK;
}

static tensor_status put_graph(struct writer *w, const struct fl_net_graph *graph, int depth) {
    if (depth > FL_STORE_DEPTH)
        return fl_fail(TENSOR_E_ARGUMENT, "more than %d graphs within each other", FL_STORE_DEPTH);
    put_numbers(w, "{\"inputs\":", graph->input_count, graph->inputs);
    put_numbers(w, ",\"outputs\":", graph->output_count, graph->outputs);
    put(w, ",\"nodes\":[");
    for (int k = 0; k < graph->node_count; k++) {
        put(w, k ? ",\n" : "\n");
        const tensor_status status = put_node(w, &graph->nodes[k], depth);
        if (status) {
            char why[400];
            snprintf(why, sizeof why, "%s", tensor_error());
            return fl_fail(status, "node %s (%s): %s", graph->nodes[k].name, graph->nodes[k].op, why);
        }
    }
    put(w, "]}");
    return TENSOR_OK;
}

/* --- the whole ---------------------------------------------------------------------------------------------------- */

static void see_values(struct writer *w, int count, const int *values) {
    for (int i = 0; i < count; i++)
        if (values[i] >= 0)
            w->number[values[i]] = 0;
}

static void see_graph(struct writer *w, const struct fl_net_graph *graph) {
    see_values(w, graph->input_count, graph->inputs);
    see_values(w, graph->output_count, graph->outputs);
    for (int k = 0; k < graph->node_count; k++) {
        const struct fl_net_node *const node = &graph->nodes[k];
        see_values(w, node->input_count, node->inputs);
        see_values(w, node->output_count, node->outputs);
        for (int a = 0; a < node->attribute_count; a++)
            if (node->attributes[a].name && node->attributes[a].graph)
                see_graph(w, node->attributes[a].graph);
    }
}

static tensor_status number_values(struct writer *w) {
    w->number = fl_net_memory(w->memory, (size_t)w->n->value_count * sizeof *w->number);
    if (!w->number)
        return TENSOR_E_MEMORY;
    for (int v = 0; v < w->n->value_count; v++)
        w->number[v] = -1;
    see_graph(w, &w->n->graph);
    for (int v = 0; v < w->n->value_count; v++)
        if (!w->number[v])
            w->number[v] = w->live++;
    return TENSOR_OK;
}

static tensor_status write(struct writer *w, const char *path) {
    TRY(number_values(w));
    w->uses = fl_constant_uses(w->n);
    if (!w->uses)
        return TENSOR_E_MEMORY;
    fl_json_put(&w->json, "{\"version\":%d,\"source\":\"%s\",\"opset\":%d", FL_STORE_VERSION,
                w->n->source == FL_NET_TFLITE ? "tflite" : "onnx", w->n->opset);
    TRY(put_text(w, ",\"producer\":", w->n->producer));
    TRY(put_text(w, ",\"rounding\":", fl_int8_rounding_name(w->n->rounding)));
    put(w, ",\n\"values\":[");
    for (int v = 0, first = 1; v < w->n->value_count; v++)
        if (w->number[v] >= 0) {
            put(w, first ? "\n" : ",\n");
            first = 0;
            TRY(put_value(w, v));
        }
    put(w, "],\n\"graph\":");
    TRY(put_graph(w, &w->n->graph, 0));
    fl_json_put_bytes(&w->json, "}", 2); /* and the zero */
    if (w->json.failed)
        return fl_fail(TENSOR_E_MEMORY, "no memory for the text of a network");
    TRY(fl_safetensors_add_note(&w->out, FL_STORE_NETWORK, w->json.at));
    if (w->mantissas)
        TRY(fl_safetensors_add_note(&w->out, FL_STORE_MANTISSAS, "NAME of I16 = m, NAME.exponent = e: m * 2^-e"));
    return fl_safetensors_write(&w->out, path);
}

tensor_status fl_store_write(const struct fl_network *n, const char *path) {
    struct writer w = {.n = n, .memory = fl_network_new(n->source)};
    const tensor_status status = w.memory ? write(&w, path) : TENSOR_E_MEMORY;
    fl_safetensors_end(&w.out);
    fl_free(w.json.at);
    fl_free(w.uses);
    fl_network_free(w.memory);
    return status;
}
