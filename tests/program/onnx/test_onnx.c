/* test_onnx.c - networks from ONNX files that are put together here, right and wrong, and what is written of them.
 * Files of others: FLEXLAB_DATA/networks/ (those that are there). */
#define _GNU_SOURCE
#include "onnx_model.h"
#include "program/network/network.h"
#include "program/onnx/onnx_read.h"
#include "program/onnx/onnx_write.h"
#include <dirent.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64];
static struct message model, graph, node, part;

static const char *path_of(const char *name) {
    static char paths[4][PATH_MAX];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(paths[turn], sizeof paths[turn], "%s/%s", folder, name);
    return paths[turn];
}

static void write_bytes(const char *name, const void *bytes, size_t size) {
    FILE *const file = fopen(path_of(name), "wb");
    CHECK(file && fwrite(bytes, 1, size, file) == size && !fclose(file), "cannot write %s", name);
}

/* The network of model, or NULL. */
static struct fl_network *read_bytes(const struct message *m) {
    struct fl_network *n;
    write_bytes("model.onnx", m->bytes, m->size);
    const tensor_status status = fl_onnx_read(&n, path_of("model.onnx"));
    CHECK(!status == !!n, "status %d", (int)status);
    return n;
}

static struct fl_network *read_graph(int opset) {
    make_model(&model, 8, opset, &graph);
    struct fl_network *const n = read_bytes(&model);
    CHECK(n, "%s", tensor_error());
    return n;
}

/* A failure with the file, and these words, in its message. */
static void expect_failure(const struct message *m, const char *words) {
    struct fl_network *n;
    write_bytes("model.onnx", m->bytes, m->size);
    const tensor_status status = fl_onnx_read(&n, path_of("model.onnx"));
    CHECK((status == TENSOR_E_DATA || status == TENSOR_E_IO) && !n, "'%s': status %d", words, (int)status);
    CHECK(status && strstr(tensor_error(), "model.onnx: ") && strstr(tensor_error(), words),
          "expected '%s', found '%s'", words, status ? tensor_error() : "no failure");
    if (!status)
        fl_network_free(n);
}

static void refuse_graph(int opset, const char *words) {
    make_model(&model, 8, opset, &graph);
    expect_failure(&model, words);
}

/* x -> a node, of which the caller adds attributes -> y, with further inputs w and v. */
static void start_one(const char *op, const char *inputs) {
    graph.size = 0;
    add_value(&graph, GRAPH_INPUT, "x", FLOAT, "1,2,4,4");
    add_value(&graph, GRAPH_OUTPUT, "y", FLOAT, NULL);
    start_node(&node, op, "it", inputs, "y");
}

static struct fl_network *read_one(int opset) {
    put_message(&graph, GRAPH_NODE, &node);
    return read_graph(opset);
}

static void refuse_one(int opset, const char *words) {
    put_message(&graph, GRAPH_NODE, &node);
    refuse_graph(opset, words);
}

static const struct fl_array *input_array(const struct fl_network *n, int k, int input) {
    const struct fl_net_node *const it = &n->graph.nodes[k];
    return input < it->input_count && it->inputs[input] >= 0 ? n->values[it->inputs[input]].constant : NULL;
}

/* --- equal networks ------------------------------------------------------------------------------------------------
 */

static bool same_array(const struct fl_array *a, const struct fl_array *b) {
    return !a == !b && (!a || (a->type == b->type && a->ndim == b->ndim &&
                               !memcmp(a->dim, b->dim, (size_t)a->ndim * sizeof *a->dim) &&
                               !memcmp(a->data, b->data, (size_t)a->count * fl_type_bytes(a->type))));
}

static bool same_values(const struct fl_network *a, const struct fl_network *b, int count, const int *i, const int *j) {
    for (int k = 0; k < count; k++) {
        if (i[k] < 0 || j[k] < 0) {
            if (i[k] != j[k])
                return false;
            continue;
        }
        const struct fl_net_value *const v = &a->values[i[k]], *const w = &b->values[j[k]];
        bool same = !strcmp(v->name, w->name) && v->type == w->type && v->ndim == w->ndim &&
                    same_array(v->constant, w->constant);
        for (int d = 0; d < v->ndim && same; d++)
            same = v->dim[d] == w->dim[d] && !v->dim_name[d] == !w->dim_name[d] &&
                   (!v->dim_name[d] || !strcmp(v->dim_name[d], w->dim_name[d]));
        if (!same)
            return false;
    }
    return true;
}

static bool same_graph(const struct fl_network *a, const struct fl_network *b, const struct fl_net_graph *g,
                       const struct fl_net_graph *h);

static bool same_attribute(const struct fl_network *a, const struct fl_network *b, const struct fl_net_attribute *p,
                           const struct fl_net_attribute *q) {
    if (strcmp(p->name, q->name) != 0 || p->kind != q->kind || p->count != q->count)
        return false;
    for (int i = 0; i < p->count; i++)
        if (p->kind == FL_NET_STRINGS ? strcmp(p->strings[i], q->strings[i]) != 0
            : p->kind == FL_NET_INTS  ? p->ints[i] != q->ints[i]
                                      : memcmp(&p->floats[i], &q->floats[i], sizeof *p->floats) != 0)
            return false;
    return p->kind == FL_NET_INT      ? p->i == q->i
           : p->kind == FL_NET_FLOAT  ? !memcmp(&p->f, &q->f, sizeof p->f)
           : p->kind == FL_NET_STRING ? !strcmp(p->s, q->s)
           : p->kind == FL_NET_ARRAY  ? same_array(p->array, q->array)
           : p->kind == FL_NET_GRAPH  ? same_graph(a, b, p->graph, q->graph)
                                      : true;
}

static bool same_graph(const struct fl_network *a, const struct fl_network *b, const struct fl_net_graph *g,
                       const struct fl_net_graph *h) {
    if (g->node_count != h->node_count || g->input_count != h->input_count || g->output_count != h->output_count ||
        !same_values(a, b, g->input_count, g->inputs, h->inputs) ||
        !same_values(a, b, g->output_count, g->outputs, h->outputs))
        return false;
    for (int k = 0; k < g->node_count; k++) {
        const struct fl_net_node *const m = &g->nodes[k], *const o = &h->nodes[k];
        if (strcmp(m->op, o->op) != 0 || strcmp(m->domain, o->domain) != 0 || strcmp(m->name, o->name) != 0 ||
            m->input_count != o->input_count || m->output_count != o->output_count ||
            m->attribute_count != o->attribute_count || !same_values(a, b, m->input_count, m->inputs, o->inputs) ||
            !same_values(a, b, m->output_count, m->outputs, o->outputs))
            return false;
        for (int i = 0; i < m->attribute_count; i++)
            if (!same_attribute(a, b, &m->attributes[i], &o->attributes[i]))
                return false;
    }
    return true;
}

static bool same_file(const char *one, const char *other) {
    FILE *const a = fopen(one, "rb"), *const b = fopen(other, "rb");
    int c = 0, d = 0;
    while (a && b && (c = getc(a)) == (d = getc(b)) && c != EOF) {
    }
    const bool same = a && b && c == d;
    if (a)
        fclose(a);
    if (b)
        fclose(b);
    return same;
}

/* What is written is read as the same network, which is written as the same bytes. */
static void check_export(const struct fl_network *n, const char *name) {
    struct fl_network *again = NULL;
    CHECK(!fl_onnx_write(n, path_of("one.onnx")), "%s: %s", name, tensor_error());
    CHECK(!fl_onnx_read(&again, path_of("one.onnx")), "%s: %s", name, tensor_error());
    if (!again)
        return;
    CHECK(again->opset == 21 && !strcmp(again->producer, n->producer), "%s: opset %d", name, again->opset);
    CHECK(same_graph(n, again, &n->graph, &again->graph), "%s is another network after export and import", name);
    CHECK(!fl_onnx_write(again, path_of("two.onnx")), "%s: %s", name, tensor_error());
    CHECK(same_file(path_of("one.onnx"), path_of("two.onnx")), "%s: other bytes the second time", name);
    fl_network_free(again);
}

static void finish(struct fl_network *n, const char *name) {
    if (!n)
        return;
    check_export(n, name);
    fl_network_free(n);
}

/* --- tensors -------------------------------------------------------------------------------------------------------
 */

static const int64_t three = 3;
static const int typed_field[] = {[1] = 4, [2] = 5,  [3] = 5,   [4] = 5,   [5] = 5,   [6] = 5, [7] = 7,
                                  [9] = 5, [10] = 5, [11] = 10, [12] = 11, [13] = 11, [16] = 5};

/* The numbers 0, 1 and `last` of each type, once as bytes and once in the field of the type. */
static void test_types(void) {
    static const struct {
        int number;
        tensor_type type;
        int64_t last;
    } types[] = {{2, TENSOR_TYPE_U8, 255},
                 {3, TENSOR_TYPE_I8, -128},
                 {4, TENSOR_TYPE_U16, 65535},
                 {5, TENSOR_TYPE_I16, -32768},
                 {6, TENSOR_TYPE_I32, INT32_MIN},
                 {7, TENSOR_TYPE_I64, INT64_MIN},
                 {9, TENSOR_TYPE_BOOL, 1},
                 {10, TENSOR_TYPE_F16, 0xfe01},
                 {12, TENSOR_TYPE_U32, UINT32_MAX},
                 {13, TENSOR_TYPE_U64, -1},
                 {16, TENSOR_TYPE_BF16, 0xff81},
                 {1, TENSOR_TYPE_F32, 0x7fc00001},
                 {11, TENSOR_TYPE_F64, INT64_C(0x7ff8000000000001)}};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        const int64_t numbers[] = {0, 1, types[i].last};
        const size_t bytes = fl_type_bytes(types[i].type);
        const bool real = types[i].number == 1 || types[i].number == 11;
        uint8_t raw[3 * 8];
        for (size_t k = 0; k < 3; k++)
            memcpy(raw + k * bytes, &numbers[k], bytes);
        for (int form = 0; form < 3; form++) {
            static struct message packed;
            graph.size = packed.size = 0;
            start_tensor(&part, "w", types[i].number, 1, &three);
            for (size_t k = 0; k < 3 && form == 2 && !real; k++)
                put_int(&part, typed_field[types[i].number], numbers[k]);
            for (size_t k = 0; k < 3 && form == 1 && !real; k++)
                put_varint(&packed, (uint64_t)numbers[k]);
            if (form == 0 || real)
                put_bytes(&part, form ? typed_field[types[i].number] : 9, raw, 3 * bytes);
            else if (form == 1)
                put_message(&part, typed_field[types[i].number], &packed);
            put_message(&graph, GRAPH_INITIALIZER, &part);
            add_value(&graph, GRAPH_OUTPUT, "w", types[i].number, NULL);
            struct fl_network *const n = read_graph(13);
            if (!n)
                continue;
            const struct fl_array *const a = n->values[n->graph.outputs[0]].constant;
            CHECK(a && a->type == types[i].type && a->count == 3 && !memcmp(a->data, raw, 3 * bytes),
                  "type %d, form %d", types[i].number, form);
            CHECK(n->values[0].type == types[i].type && n->values[0].ndim == 1 && n->values[0].dim[0] == 3,
                  "type %d: the value has another type", types[i].number);
            finish(n, fl_type_name(types[i].type));
        }
    }
}

/* Integers of 4 bits: two to a byte, the first in its lower half. */
static void test_four_bits(void) {
    for (int type = 21; type <= 22; type++)
        for (int64_t count = 0; count < 6; count++)
            for (int form = 0; form < 2; form++) {
                static const uint8_t bytes[] = {0x8f, 0x71, 0x0d};
                static const int halves[] = {15, 8, 1, 7, 13};
                graph.size = 0;
                start_tensor(&part, "w", type, 1, &count);
                if (form)
                    put_bytes(&part, 9, bytes, (size_t)(count + 1) / 2);
                for (int64_t k = 0; k < (count + 1) / 2 && !form; k++)
                    put_int(&part, 5, bytes[k]);
                put_message(&graph, GRAPH_INITIALIZER, &part);
                add_value(&graph, GRAPH_OUTPUT, "w", type == 21 ? 2 : 3, NULL);
                struct fl_network *const n = read_graph(21);
                const struct fl_array *const a = n ? n->values[n->graph.outputs[0]].constant : NULL;
                CHECK(a && a->count == count && a->type == (type == 21 ? TENSOR_TYPE_U8 : TENSOR_TYPE_I8),
                      "type %d, %lld elements", type, (long long)count);
                for (int64_t k = 0; a && k < count; k++) {
                    const int want = type == 22 && halves[k] > 7 ? halves[k] - 16 : halves[k];
                    const int got = type == 22 ? ((int8_t *)a->data)[k] : ((uint8_t *)a->data)[k];
                    CHECK(got == want, "type %d, element %lld of %lld: %d, expected %d", type, (long long)k,
                          (long long)count, got, want);
                }
                fl_network_free(n);
            }
    start_one("QuantizeLinear", "x s z");
    for (int i = 0; i < 2; i++) {
        start_tensor(&part, i ? "z" : "s", i ? 22 : FLOAT, 1, &(int64_t){1});
        put_bytes(&part, 9, "\0\0\0\0", i ? 1 : 4);
        put_message(&graph, GRAPH_INITIALIZER, &part);
    }
    put_message(&graph, GRAPH_NODE, &node);
    refuse_graph(21, "results of 4 bits");
}

/* A model with the tensor in part. */
static void refuse_tensor(const char *words) {
    graph.size = 0;
    put_message(&graph, GRAPH_INITIALIZER, &part);
    add_value(&graph, GRAPH_OUTPUT, "w", FLOAT, NULL);
    refuse_graph(13, words);
}

static void test_wrong_tensors(void) {
    static const float numbers[3] = {1, 2, 3};
    static const int foreign[] = {8, 14, 15, 17, 20, 23, 24, 99, 0};
    for (size_t i = 0; i < sizeof foreign / sizeof foreign[0]; i++) {
        start_tensor(&part, "w", foreign[i], 1, &three);
        put_bytes(&part, 9, numbers, 12);
        refuse_tensor("initializer w has elements of type");
    }
    for (int bytes = 0; bytes < 12; bytes += 5) {
        start_tensor(&part, "w", FLOAT, 1, &three);
        put_bytes(&part, 9, numbers, (size_t)bytes);
        refuse_tensor("initializer w has ");
    }
    start_tensor(&part, "w", 22, 1, &three);
    put_bytes(&part, 9, numbers, 3);
    refuse_tensor("initializer w has 3 bytes, its dimensions make 3 elements of 4 bits: 2 bytes");
    start_tensor(&part, "w", 21, 1, &three);
    put_int(&part, 5, 256);
    put_int(&part, 5, 1);
    refuse_tensor("element 0 is 256");
    start_tensor(&part, "w", FLOAT, 1, &three);
    put_bytes(&part, 4, numbers, 8);
    refuse_tensor("has 2 numbers, its dimensions make 3");
    start_tensor(&part, "w", FLOAT, 1, &three);
    put_bytes(&part, 4, numbers, 12);
    put_bytes(&part, 9, numbers, 12);
    refuse_tensor("as bytes and in a field of their type");
    start_tensor(&part, "w", 10, 1, &three);
    put_bytes(&part, 4, numbers, 12);
    refuse_tensor("another type than float16");
    start_tensor(&part, "w", 3, 1, &(int64_t){1});
    put_int(&part, 5, 128);
    refuse_tensor("element 0 is 128, which is no int8");
    start_tensor(&part, "w", 9, 1, &(int64_t){1});
    put_bytes(&part, 9, "\2", 1);
    refuse_tensor("element 0 is 2, which is no bool");
    start_tensor(&part, "w", FLOAT, 9, (const int64_t[]){1, 1, 1, 1, 1, 1, 1, 1, 1});
    put_bytes(&part, 9, numbers, 4);
    refuse_tensor("9 dimensions");
    static const int64_t sizes[][2] = {{-1, 1}, {INT64_MAX, INT64_MAX}, {INT64_C(1) << 32, INT64_C(1) << 32}};
    for (size_t i = 0; i < 3; i++) {
        start_tensor(&part, "w", FLOAT, 2, sizes[i]);
        put_bytes(&part, 9, numbers, 12);
        refuse_tensor("initializer w: dimension");
    }
    start_tensor(&part, "w", FLOAT, 1, &(int64_t){INT64_C(1) << 30});
    refuse_tensor("initializer w has 0 bytes");
    start_tensor(&part, "w", FLOAT, 1, &three);
    put_bytes(&part, 3, NULL, 0);
    refuse_tensor("segments");
    start_tensor(&part, "w", FLOAT, 1, &three);
    put_int(&part, 14, 2);
    refuse_tensor("data location is 2");
    start_tensor(&part, "", FLOAT, 0, NULL);
    refuse_tensor("an initializer has no name");
}

/* --- data in other files -------------------------------------------------------------------------------------------
 */

static void put_external(const char *location, const char *offset, const char *length) {
    static struct message pair;
    const char *const pairs[] = {"location", location, "offset", offset, "length", length};
    start_tensor(&part, "w", FLOAT, 1, &three);
    put_int(&part, 14, 1);
    for (int i = 0; i < 6; i += 2) {
        pair.size = 0;
        put_text(&pair, 1, pairs[i]);
        if (pairs[i + 1]) {
            put_text(&pair, 2, pairs[i + 1]);
            put_message(&part, 13, &pair);
        }
    }
    graph.size = 0;
    put_message(&graph, GRAPH_INITIALIZER, &part);
    add_value(&graph, GRAPH_OUTPUT, "w", FLOAT, NULL);
}

static void test_external(void) {
    static const float numbers[4] = {1, 2, 3, 4};
    write_bytes("weights", numbers, sizeof numbers);
    CHECK(!mkdir(path_of("sub"), 0700) && !mkdir(path_of("sub/deeper"), 0700), "no folder");
    write_bytes("sub/deeper/weights", numbers, sizeof numbers);
    CHECK(!symlink(path_of("weights"), path_of("link")) && !symlink(path_of("sub"), path_of("sublink")) &&
              !mkfifo(path_of("fifo"), 0600),
          "no links");
    static const char *const good[] = {"weights", "sub/deeper/weights"};
    for (int i = 0; i < 2; i++) {
        put_external(good[i], "4", i ? "12" : NULL);
        struct fl_network *const n = read_graph(13);
        CHECK(n && !memcmp(n->values[0].constant->data, numbers + 1, 12), "other numbers from %s", good[i]);
        finish(n, good[i]);
    }
    char absolute[PATH_MAX];
    snprintf(absolute, sizeof absolute, "%s", path_of("weights"));
    const char *const outside[] = {"../weights", "sub/../weights", absolute,  "./weights",
                                   "",           "sub//weights",   "weights/"};
    for (size_t i = 0; i < sizeof outside / sizeof outside[0]; i++) {
        put_external(outside[i], NULL, "12");
        refuse_graph(13, i == 6 ? "initializer w: cannot open" : "expected a path below the model's folder");
    }
    static const char *const links[] = {"link", "sublink/deeper/weights"};
    for (int i = 0; i < 2; i++) {
        put_external(links[i], NULL, "12");
        refuse_graph(13, "is a symbolic link, which is not followed");
    }
    put_external("sub", NULL, "12");
    refuse_graph(13, "which is a folder, expected a regular file");
    put_external("fifo", NULL, "12");
    refuse_graph(13, "which is a FIFO, expected a regular file");
    put_external("nothing", NULL, "12");
    refuse_graph(13, "initializer w: cannot open 'nothing'");
    put_external(NULL, NULL, "12");
    refuse_graph(13, "their location is missing");
    static const char *const places[][2] = {{"8", "12"},  {"0", "8"},  {"0", "16"},
                                            {"17", "12"}, {"0", NULL}, {"9223372036854775807", "12"}};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        put_external("weights", places[i][0], places[i][1]);
        refuse_graph(13, i == 5 ? "expected a number of bytes" : "expected 12 bytes of a file of 16");
    }
    put_external("weights", "-4", "12");
    refuse_graph(13, "the offset of its external data is '-4'");
    put_external("weights", "4", "12 ");
    refuse_graph(13, "the length of its external data");
    put_external("weights", "0", "12");
    for (int i = 0; i < 6; i++) { /* 84 bytes of 16 */
        static struct message named;
        char text[] = {'a', (char)('0' + i), 0};
        named.size = 0;
        put_raw(&named, part.bytes, part.size);
        put_text(&named, 8, text);
        put_message(&graph, GRAPH_INITIALIZER, &named);
    }
    refuse_graph(13, "more than 4 times the 16 bytes");
}

/* --- values and constants ------------------------------------------------------------------------------------------
 */

static void test_values(void) {
    static const float numbers[2] = {1, 2};
    graph.size = 0;
    add_value(&graph, GRAPH_INPUT, "x", FLOAT, "N,-1,?,-7,3,0");
    add_value(&graph, GRAPH_INPUT, "w", FLOAT, "9"); /* the default of an input */
    add_value(&graph, GRAPH_INPUT, "scalar", INT64, "");
    add_value(&graph, GRAPH_INPUT, "any", FLOAT, NULL);
    add_floats(&graph, "w", 2, numbers);
    add_node(&graph, "Add", "", "x w", "z");
    add_node(&graph, "Relu", "r", "z", "y");
    add_node(&graph, "FusedConv", "f", "z - any", "u -");
    add_value(&graph, GRAPH_VALUE_INFO, "z", FLOAT, "N,4");
    add_value(&graph, GRAPH_VALUE_INFO, "nobody", FLOAT, "4");
    add_value(&graph, GRAPH_OUTPUT, "y", FLOAT, "N,4");
    struct fl_network *const n = read_graph(15);
    if (!n)
        return;
    const struct fl_net_value *const x = &n->values[n->graph.inputs[0]];
    CHECK(n->graph.input_count == 3 && n->source == FL_NET_ONNX && n->opset == 15 && !strcmp(n->producer, "a test"),
          "%d inputs, opset %d, '%s'", n->graph.input_count, n->opset, n->producer);
    CHECK(x->type == TENSOR_TYPE_F32 && x->ndim == 6 && x->dim[0] == -1 && x->dim[1] == -1 && x->dim[2] == -1 &&
              x->dim[3] == -1 && x->dim[4] == 3 && x->dim[5] == 0,
          "other dimensions");
    CHECK(x->dim_name[0] && !strcmp(x->dim_name[0], "N") && !x->dim_name[1] && !x->dim_name[2] && !x->dim_name[3],
          "other names of dimensions");
    CHECK(n->values[n->graph.inputs[1]].ndim == 0 && n->values[n->graph.inputs[2]].ndim == -1, "scalar, unknown");
    const struct fl_net_node *const nodes = n->graph.nodes;
    CHECK(n->graph.node_count == 3 && !strcmp(nodes[0].name, "z") && !strcmp(nodes[1].name, "r"), "names of nodes");
    CHECK(input_array(n, 0, 1) && input_array(n, 0, 1)->count == 2, "no default");
    CHECK(n->values[nodes[0].outputs[0]].ndim == 2, "no shape");
    CHECK(nodes[2].inputs[1] == -1 && nodes[2].outputs[1] == -1 && nodes[2].input_count == 3, "optional operands");
    finish(n, "values");

    graph.size = 0;
    static const int kinds[] = {4, 5, 8, 9};
    static const char *const words[] = {"a sequence", "a map", "a sparse tensor", "optional"};
    for (int i = 0; i < 4; i++) {
        static struct message outer;
        part.size = outer.size = graph.size = 0;
        put_bytes(&outer, kinds[i], NULL, 0);
        put_text(&part, 1, "x");
        put_message(&part, 2, &outer);
        put_message(&graph, GRAPH_INPUT, &part);
        refuse_graph(13, words[i]);
    }
    graph.size = 0;
    add_value(&graph, GRAPH_INPUT, "x", 8, "1");
    refuse_graph(13, "input x has elements of type string (8)");
    graph.size = 0;
    add_value(&graph, GRAPH_INPUT, "x", FLOAT, "1,1,1,1,1,1,1,1,1");
    refuse_graph(13, "input x has 9 dimensions");
}

static void test_constants(void) {
    static const int64_t whole[] = {5, -6};
    static const float real[] = {0.5f, -1.5f};
    for (int form = 0; form < 5; form++) {
        graph.size = 0;
        add_value(&graph, GRAPH_INPUT, "x", FLOAT, "2");
        add_value(&graph, GRAPH_OUTPUT, "y", FLOAT, NULL);
        add_node(&graph, "Op", "it", "x c", "y"); /* before its operand */
        start_node(&node, "Constant", "", "", "c");
        start_tensor(&part, "", INT64, 1, &(int64_t){2});
        put_bytes(&part, 9, whole, sizeof whole);
        if (form == 0)
            attribute_message(&node, "value", 5, 4, &part);
        else if (form == 1)
            attribute_ints(&node, "value_ints", 2, whole);
        else if (form == 2)
            attribute_floats(&node, "value_floats", 2, real);
        else if (form == 3)
            attribute_int(&node, "value_int", whole[1]);
        else
            attribute_float(&node, "value_float", real[1]);
        struct fl_network *const n = read_one(13);
        const struct fl_array *const c = n ? input_array(n, 0, 1) : NULL;
        CHECK(c && n->graph.node_count == 1 && c->ndim == (form < 3) && c->count == (form < 3 ? 2 : 1) &&
                  !memcmp(c->data,
                          form < 2    ? (const void *)whole
                          : form == 2 ? real
                          : form == 3 ? (const void *)&whole[1]
                                      : &real[1],
                          (size_t)c->count * (form == 2 || form == 4 ? 4 : 8)),
              "form %d", form);
        finish(n, "constant");
    }
    start_one("Constant", "");
    refuse_one(13, "expected 0, 1 and 1");
    start_one("Constant", "");
    attribute_text(&node, "value_string", "text");
    refuse_one(13, "node it (Constant): attribute value_string is not read");
    start_one("Constant", "");
    attribute_int(&node, "value_float", 1);
    refuse_one(13, "attribute value_float has type 2");
}

/* --- older opsets --------------------------------------------------------------------------------------------------
 */

static const struct {
    const char *op, *attribute;
    int from, until, input;
    enum { NUMBER, WHOLE, WHOLES, REALS } kind;
    const char *became;
} moved[] = {{"Clip", "min", 7, 11, 1, NUMBER, "Clip"},
             {"Clip", "max", 10, 11, 2, NUMBER, "Clip"},
             {"Pad", "pads", 7, 11, 1, WHOLES, "Pad"},
             {"ReduceSum", "axes", 12, 13, 1, WHOLES, "ReduceSum"},
             {"ReduceMean", "axes", 17, 18, 1, WHOLES, "ReduceMean"},
             {"ReduceL2", "axes", 7, 18, 1, WHOLES, "ReduceL2"},
             {"Split", "split", 12, 13, 1, WHOLES, "Split"},
             {"Squeeze", "axes", 12, 13, 1, WHOLES, "Squeeze"},
             {"Unsqueeze", "axes", 7, 13, 1, WHOLES, "Unsqueeze"},
             {"TopK", "k", 9, 10, 1, WHOLE, "TopK"},
             {"DFT", "axis", 19, 20, 2, WHOLE, "DFT"},
             {"Upsample", "scales", 7, 9, 2, REALS, "Resize"}};

static void test_moved(void) {
    static const int64_t whole[] = {2, 3, 4};
    static const float real[] = {1, 1, 2, 2};
    for (size_t i = 0; i < sizeof moved / sizeof moved[0]; i++)
        for (int late = 0; late < 2; late++) {
            start_one(moved[i].op, "x");
            if (moved[i].kind == NUMBER)
                attribute_float(&node, moved[i].attribute, real[2]);
            else if (moved[i].kind == WHOLE)
                attribute_int(&node, moved[i].attribute, 2);
            else if (moved[i].kind == WHOLES)
                attribute_ints(&node, moved[i].attribute, 2, whole);
            else
                attribute_floats(&node, moved[i].attribute, 4, real);
            if (late) {
                char words[100];
                snprintf(words, sizeof words, "has the attribute %s of opsets before %d", moved[i].attribute,
                         moved[i].until);
                refuse_one(moved[i].until, words);
                continue;
            }
            struct fl_network *const n = read_one(moved[i].from);
            const struct fl_array *const a = n ? input_array(n, 0, moved[i].input) : NULL;
            const bool scalar = moved[i].kind == NUMBER || !strcmp(moved[i].op, "DFT");
            const size_t count = moved[i].kind == REALS ? 4 : moved[i].kind == WHOLES ? 2 : 1;
            CHECK(a && a->ndim == !scalar && a->count == (int64_t)count &&
                      !memcmp(a->data,
                              moved[i].kind == NUMBER  ? (const void *)&real[2]
                              : moved[i].kind == REALS ? (const void *)real
                                                       : whole,
                              count * (moved[i].kind == NUMBER || moved[i].kind == REALS ? 4 : 8)),
                  "%s %s", moved[i].op, moved[i].attribute);
            CHECK(n && !strcmp(n->graph.nodes[0].op, moved[i].became) &&
                      !fl_net_find(&n->graph.nodes[0], moved[i].attribute),
                  "%s keeps its attribute", moved[i].op);
            finish(n, moved[i].op);
        }
    start_one("Unsqueeze", "x");
    refuse_one(11, "node it (Unsqueeze) has no attribute axes");
    start_one("Clip", "x");
    attribute_text(&node, "min", "low");
    refuse_one(7, "node it (Clip): attribute min is of another kind");
    start_one("Slice", "x");
    attribute_ints(&node, "starts", 2, whole);
    attribute_ints(&node, "ends", 2, whole + 1);
    attribute_ints(&node, "axes", 1, whole);
    struct fl_network *const n = read_one(9);
    CHECK(n && input_array(n, 0, 3) && n->graph.nodes[0].attribute_count == 0 && n->graph.nodes[0].input_count == 4,
          "Slice");
    finish(n, "Slice");
}

static void test_softmax(void) {
    static const char *const ops[] = {"Softmax", "LogSoftmax", "Hardmax"};
    for (int i = 0; i < 3; i++) {
        start_one(ops[i], "x"); /* axis 1 of 4 */
        struct fl_network *n = read_one(11);
        const struct fl_net_node *k = n ? n->graph.nodes : NULL;
        CHECK(n && n->graph.node_count == 4 && !strcmp(k[0].op, "Shape") && !strcmp(k[1].op, "Flatten") &&
                  !strcmp(k[2].op, ops[i]) && !strcmp(k[3].op, "Reshape") && fl_net_int(&k[1], "axis", 0) == 1 &&
                  fl_net_int(&k[2], "axis", 0) == -1 && k[3].inputs[0] == k[2].outputs[0] &&
                  k[3].inputs[1] == k[0].outputs[0] && k[2].inputs[0] == k[1].outputs[0] &&
                  k[3].outputs[0] == n->graph.outputs[0],
              "%s of opset 11", ops[i]);
        finish(n, ops[i]);
        start_one(ops[i], "x");
        attribute_int(&node, "axis", 3); /* the last one */
        n = read_one(12);
        CHECK(n && n->graph.node_count == 1 && fl_net_int(&n->graph.nodes[0], "axis", 0) == -1, "%s of rows", ops[i]);
        finish(n, ops[i]);
        start_one(ops[i], "x");
        attribute_int(&node, "axis", 1);
        n = read_one(13);
        CHECK(n && n->graph.node_count == 1 && fl_net_int(&n->graph.nodes[0], "axis", 0) == 1, "%s of opset 13",
              ops[i]);
        finish(n, ops[i]);
    }
}

static void test_resize(void) {
    static const float scales[][4] = {{1, 1, 2, 2}, {1, 1, 0.5f, 0.5f}, {1, 1, 2, 0.5f}};
    for (int i = 0; i < 6; i++) {
        const bool nearest = i < 3;
        start_one("Resize", "x w");
        add_floats(&graph, "w", 4, scales[i % 3]);
        attribute_text(&node, "mode", nearest ? "nearest" : "linear");
        if (i == 2) {
            refuse_one(10, "one dimension grows and another shrinks");
            continue;
        }
        struct fl_network *const n = read_one(10);
        const struct fl_net_node *const k = n ? n->graph.nodes : NULL;
        CHECK(n && k->inputs[1] == -1 && input_array(n, 0, 2) &&
                  !strcmp(fl_net_string(k, "coordinate_transformation_mode", ""), "asymmetric") &&
                  !strcmp(fl_net_string(k, "nearest_mode", "none"), !nearest ? "none"
                                                                    : i      ? "ceil"
                                                                             : "floor"),
              "Resize %d", i);
        finish(n, "Resize");
    }
    start_one("Resize", "x roi w");
    add_floats(&graph, "roi", 0, NULL);
    add_floats(&graph, "w", 4, scales[0]);
    struct fl_network *const n = read_one(11);
    CHECK(n && n->graph.nodes[0].inputs[1] == -1 && input_array(n, 0, 2), "an empty array is left out");
    finish(n, "Resize");
}

static void test_operators(void) {
    start_one("BatchNormalization", "x w w w w");
    add_floats(&graph, "w", 2, (const float[]){1, 2});
    attribute_int(&node, "spatial", 1);
    struct fl_network *n = read_one(7);
    CHECK(n && !fl_net_find(&n->graph.nodes[0], "spatial"), "BatchNormalization");
    finish(n, "BatchNormalization");
    start_one("BatchNormalization", "x w w w w");
    add_floats(&graph, "w", 2, (const float[]){1, 2});
    attribute_int(&node, "spatial", 0);
    refuse_one(7, "attribute spatial is 0");
    start_one("BatchNormalization", "x w w w w");
    add_floats(&graph, "w", 2, (const float[]){1, 2});
    put_text(&node, 2, "mean");
    refuse_one(9, "statistics of training");

    for (int i = 0; i < 4; i++) { /* plain; with a mask; in training; told that it is not */
        start_one("Dropout", i < 2 ? "x" : "x - t");
        if (i == 1)
            put_text(&node, 2, "mask");
        start_tensor(&part, "t", 9, 0, NULL);
        put_bytes(&part, 9, i == 2 ? "\1" : "\0", 1);
        put_message(&graph, GRAPH_INITIALIZER, &part);
        if (i < 2)
            attribute_float(&node, "ratio", 0.25f);
        n = read_one(i < 2 ? 10 : 13);
        const bool identity = i == 0 || i == 3;
        CHECK(n && !strcmp(n->graph.nodes[0].op, identity ? "Identity" : "Dropout"), "Dropout %d", i);
        CHECK(n && (i != 1 || *(const float *)input_array(n, 0, 1)->data == 0.25f), "its ratio");
        finish(n, "Dropout");
    }
    static const int opsets[] = {12, 17, 18};
    for (int i = 0; i < 3; i++) {
        start_one("Split", "x");
        put_text(&node, 2, "z");
        n = read_one(opsets[i]);
        CHECK(n && fl_net_int(&n->graph.nodes[0], "num_outputs", 0) == (i < 2 ? 2 : 0), "Split %d", i);
        finish(n, "Split");
    }
    start_one("RoiAlign", "x x x");
    n = read_one(10);
    CHECK(n && !strcmp(fl_net_string(&n->graph.nodes[0], "coordinate_transformation_mode", ""), "output_half_pixel"),
          "RoiAlign");
    finish(n, "RoiAlign");
    start_one("GridSample", "x x");
    attribute_text(&node, "mode", "bicubic");
    n = read_one(16);
    CHECK(n && !strcmp(fl_net_string(&n->graph.nodes[0], "mode", ""), "cubic"), "GridSample");
    finish(n, "GridSample");
    start_one("Scatter", "x x x");
    n = read_one(9);
    CHECK(n && !strcmp(n->graph.nodes[0].op, "ScatterElements"), "Scatter");
    finish(n, "Scatter");
    start_one("Scan", "- x");
    refuse_one(8, "node it (Scan)");
    start_one("GroupNormalization", "x x x");
    refuse_one(18, "node it (GroupNormalization)");
    start_one("Clip", "x"); /* of others: as it is */
    put_text(&node, 7, "com.microsoft");
    attribute_float(&node, "min", 1);
    n = read_one(7);
    CHECK(n && !strcmp(n->graph.nodes[0].domain, "com.microsoft") && fl_net_find(&n->graph.nodes[0], "min"), "domain");
    finish(n, "domain");
    start_one("Relu", "x");
    put_text(&node, 7, "ai.onnx");
    n = read_one(22);
    CHECK(n && !*n->graph.nodes[0].domain, "ai.onnx");
    finish(n, "ai.onnx");
}

/* --- graphs in graphs ----------------------------------------------------------------------------------------------
 */

/* An If in graphs around it, as deep as asked, each of which reads x from outside and has a constant of its own. */
static void make_nested(int depth, struct message *to) {
    static struct message inner, branch, outer;
    inner.size = 0;
    add_node(&inner, "Relu", "", "x", "b");
    add_value(&inner, GRAPH_OUTPUT, "b", FLOAT, NULL);
    for (int i = 0; i < depth; i++) {
        char name[] = {'r', (char)('0' + i), 0}, out[] = {'o', (char)('0' + i), 0};
        branch.size = 0;
        put_raw(&branch, inner.bytes, inner.size);
        start_node(&outer, "If", name, "c", out);
        attribute_message(&outer, "then_branch", 6, 5, &branch);
        attribute_message(&outer, "else_branch", 6, 5, &branch); /* the same names, which see each other nowhere */
        inner.size = 0;
        put_message(&inner, GRAPH_NODE, &outer);
        add_value(&inner, GRAPH_OUTPUT, out, FLOAT, NULL);
    }
    to->size = 0;
    put_raw(to, inner.bytes, inner.size);
    add_value(to, GRAPH_INPUT, "x", FLOAT, "2");
    add_value(to, GRAPH_INPUT, "c", 9, "");
}

static void test_nested(void) {
    for (int depth = 1; depth <= 9; depth++) {
        make_nested(depth, &graph);
        make_model(&model, 8, 13, &graph);
        if (depth == 9) {
            expect_failure(&model, "more than 8 graphs within each other");
            continue;
        }
        struct fl_network *const n = read_bytes(&model);
        CHECK(n, "%s", tensor_error());
        if (n)
            CHECK(n->graph.nodes[0].attribute_count == 2 && n->graph.nodes[0].attributes[0].graph->node_count == 1,
                  "depth %d", depth);
        finish(n, "nested");
    }
    static struct message branch;
    for (int i = 0; i < 4; i++) { /* a constant of its own; a name from outside, a name of nobody, an unseen name */
        static const char *const inputs[] = {"x own", "x", "x lost", "x later"};
        branch.size = 0;
        if (i == 0)
            add_floats(&branch, "own", 2, (const float[]){1, 2});
        add_node(&branch, "Add", "add", inputs[i], i == 1 ? "z" : "b");
        add_value(&branch, GRAPH_OUTPUT, i == 1 ? "z" : "b", FLOAT, NULL);
        start_one("If", "x");
        attribute_message(&node, "then_branch", 6, 5, &branch);
        branch.size = 0;
        add_node(&branch, "Relu", "relu", "x", "later");
        add_value(&branch, GRAPH_OUTPUT, "later", FLOAT, NULL);
        attribute_message(&node, "else_branch", 6, 5, &branch);
        add_node(&graph, "Relu", "after", "y", "z");
        if (i)
            refuse_one(13, i == 1   ? "output 0 of node add (Add) has the name 'z', which another value has"
                           : i == 2 ? "node add (Add): input 1 is 'lost'"
                                    : "node add (Add): input 1 is 'later'");
        else
            finish(read_one(13), "scopes");
    }
}

/* --- wrong models --------------------------------------------------------------------------------------------------
 */

static void test_wrong_graphs(void) {
    graph.size = 0;
    add_value(&graph, GRAPH_INPUT, "x", FLOAT, "2");
    add_value(&graph, GRAPH_OUTPUT, "y", FLOAT, NULL);
    const size_t start = graph.size;
    add_node(&graph, "Add", "one", "x b", "a");
    add_node(&graph, "Relu", "two", "a", "b");
    add_node(&graph, "Relu", "three", "b", "y");
    refuse_graph(13, "is part of a cycle");
    graph.size = start;
    add_node(&graph, "Relu", "one", "x", "y");
    add_node(&graph, "Relu", "two", "x", "y");
    refuse_graph(13, "output 0 of node two (Relu) has the name 'y', which another value has");
    graph.size = start;
    add_node(&graph, "Relu", "one", "x", "x y");
    refuse_graph(13, "has the name 'x', which another value has");
    graph.size = start;
    add_value(&graph, GRAPH_INPUT, "x", FLOAT, "2");
    refuse_graph(13, "an input has the name 'x'");
    graph.size = start;
    add_value(&graph, GRAPH_INPUT, "", FLOAT, "2");
    refuse_graph(13, "an input has no name");
    graph.size = start;
    add_node(&graph, "Relu", "one", "nothing", "y");
    refuse_graph(13, "node one (Relu): input 0 is 'nothing'");
    graph.size = start;
    refuse_graph(13, "output 0 is 'y', which is no input");
    graph.size = start;
    add_node(&graph, "", "one", "x", "y");
    refuse_graph(13, "node one has no operator");
    graph.size = 0;
    add_value(&graph, GRAPH_INPUT, "x", FLOAT, "2");
    refuse_graph(13, "the network has no output");
    add_value(&graph, GRAPH_OUTPUT, "x", FLOAT, "2");
    put_bytes(&graph, 15, NULL, 0);
    refuse_graph(13, "1 sparse initializers");
    graph.size = 0; /* in another order: right */
    add_value(&graph, GRAPH_INPUT, "x", FLOAT, "2");
    add_value(&graph, GRAPH_OUTPUT, "y", FLOAT, NULL);
    add_node(&graph, "Relu", "two", "a", "y");
    add_node(&graph, "Relu", "one", "x", "a");
    struct fl_network *const n = read_graph(13);
    CHECK(n && !strcmp(n->graph.nodes[0].name, "one"), "nodes in the order of the file");
    finish(n, "order");
}

static void test_wrong_attributes(void) {
    static const struct message letter = {.size = 1, .bytes = "f"}, zero = {.size = 3, .bytes = "a\0b"};
    start_one("Relu", "x");
    attribute_int(&node, "a", 1);
    attribute_int(&node, "a", 2);
    refuse_one(13, "node it (Relu): attribute a is there twice");
    start_one("Relu", "x");
    attribute_int(&node, "", 1);
    refuse_one(13, "node it (Relu): attribute 0 has no name");
    part.size = 0;
    static const int types[] = {0, 9, 10, 11, 13, 99, 4, 5};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        start_one("Relu", "x");
        attribute_message(&node, "a", 4, types[i], &part);
        refuse_one(13, types[i] == 4 || types[i] == 5 ? "attribute a has no value"
                                                      : "node it (Relu): attribute a has type");
    }
    start_one("Relu", "x");
    attribute_message(&node, "a", 21, 2, &letter);
    refuse_one(13, "refers to the attribute f of a function");
    start_one("Relu", "x");
    attribute_message(&node, "a", 4, 3, &zero);
    refuse_one(13, "attribute a has a zero byte");
    start_one("Relu", "x");
    for (int i = 0; i < 1001; i++) {
        char name[8];
        snprintf(name, sizeof name, "a%d", i);
        attribute_int(&node, name, 1);
    }
    refuse_one(13, "has 1001 attributes");
}

static void test_wrong_models(void) {
    start_one("Relu", "x");
    put_message(&graph, GRAPH_NODE, &node);
    static const int opsets[] = {6, 23, 0, INT_MAX, -1};
    for (int i = 0; i < 5; i++) {
        char words[80];
        snprintf(words, sizeof words, "the model has opset %d, expected 7 to 22", opsets[i]);
        refuse_graph(opsets[i], words);
    }
    make_model(&model, 2, 13, &graph);
    expect_failure(&model, "IR version 2, expected 3 or later");
    make_model(&model, 8, 13, NULL);
    expect_failure(&model, "the model has no graph");
    make_model(&model, 8, 13, &graph);
    part.size = 0;
    put_text(&part, 1, "Mine");
    put_message(&model, 25, &part);
    expect_failure(&model, "1 functions of its own, the first is Mine");
    make_model(&model, 8, 13, &graph);
    put_message(&model, MODEL_GRAPH, &graph);
    expect_failure(&model, "has a second graph");
    make_model(&model, 8, 13, &graph);
    part.size = 0;
    put_text(&part, 1, "ai.onnx");
    put_int(&part, 2, 14);
    put_message(&model, 8, &part);
    expect_failure(&model, "two opsets of the domain ''");
    model.size = 0;
    put_int(&model, 1, 8);
    put_message(&model, MODEL_GRAPH, &graph);
    expect_failure(&model, "node it (Relu): the model names no opset");
    model.size = 0;
    expect_failure(&model, "it has 0 bytes");
    write_bytes("model.onnx", "", 0);
    put_raw(&model, "this is a text, and no model", 28);
    expect_failure(&model, "byte ");

    make_model(&model, 8, 13, &graph); /* cut anywhere */
    const struct message whole = model;
    for (size_t size = 1; size < whole.size; size++) {
        struct fl_network *n;
        write_bytes("model.onnx", whole.bytes, size);
        CHECK(fl_onnx_read(&n, path_of("model.onnx")) == TENSOR_E_DATA && !n, "cut at byte %zu is read", size);
    }
    static const uint64_t lengths[] = {INT32_MAX, UINT64_C(1) << 31, UINT32_MAX, UINT64_C(1) << 32, UINT64_MAX};
    for (int i = 0; i < 5; i++) {
        model.size = 0;
        put_varint(&model, MODEL_GRAPH << 3 | 2);
        put_varint(&model, lengths[i]);
        put_raw(&model, "\1\1\1\1", 4);
        expect_failure(&model, "byte 0: field graph of a ModelProto has");
    }
    model.size = 0;
    put_bytes(&model, 2, "\xff", 1);
    expect_failure(&model, "field producer_name is not UTF-8");
    model.size = 0;
    put_bytes(&model, 2, "a\0b", 3);
    expect_failure(&model, "zero byte");
    model.size = 0;
    put_int(&model, MODEL_GRAPH, 3);
    expect_failure(&model, "field graph of a ModelProto has wire type 0");

    static struct message deep; /* a thousand graphs within each other */
    deep.size = part.size = 0;
    for (int i = 0; i < 1000; i++) {
        static const int fields[] = {6, 5, 1};
        for (int k = 0; k < 3; k++) {
            part.size = 0;
            put_message(&part, fields[k], &deep);
            deep = part;
        }
    }
    make_model(&model, 8, 13, &deep);
    expect_failure(&model, "nested more than");
    graph.size = 0; /* structs of hundreds of bytes for two bytes each */
    for (int i = 0; i < 30000; i++)
        put_bytes(&graph, GRAPH_INITIALIZER, NULL, 0);
    make_model(&model, 8, 13, &graph);
    expect_failure(&model, "bytes of memory");

    struct fl_network *n;
    CHECK(fl_onnx_read(&n, path_of("missing.onnx")) == TENSOR_E_IO && strstr(tensor_error(), "missing.onnx"), "%s",
          tensor_error());
    CHECK(fl_onnx_read(&n, folder) == TENSOR_E_IO && strstr(tensor_error(), "a folder"), "%s", tensor_error());
}

/* --- writing -------------------------------------------------------------------------------------------------------
 */

static void test_write(void) {
    start_one("Relu", "x");
    struct fl_network *const n = read_one(13);
    if (!n)
        return;
    struct stat about;
    CHECK(!symlink("elsewhere", path_of("taken")), "no link");
    CHECK(fl_onnx_write(n, path_of("taken")) == TENSOR_E_IO && strstr(tensor_error(), "symbolic link"), "%s",
          tensor_error());
    CHECK(fl_onnx_write(n, path_of("no/folder")) == TENSOR_E_IO, "written into a folder that is not there");
    CHECK(stat(path_of("taken.part"), &about) && stat(path_of("elsewhere"), &about), "something is left behind");
    n->graph.nodes[0].channels_last = true;
    CHECK(fl_onnx_write(n, path_of("new")) == TENSOR_E_ARGUMENT && strstr(tensor_error(), "node it (Relu)"), "%s",
          tensor_error());
    n->graph.nodes[0].channels_last = false;
    n->graph.nodes[0].format = FMT_BF16;
    CHECK(fl_onnx_write(n, path_of("new")) == TENSOR_E_ARGUMENT && strstr(tensor_error(), "another format"), "%s",
          tensor_error());
    n->graph.nodes[0].format = 0;
    n->values[0].quantisation = &(struct fl_quantisation){0};
    CHECK(fl_onnx_write(n, path_of("new")) == TENSOR_E_ARGUMENT && strstr(tensor_error(), "has a scale"), "%s",
          tensor_error());
    n->values[0].quantisation = NULL;
    const char *const name = n->values[0].name;
    n->values[0].name = n->values[1].name;
    CHECK(fl_onnx_write(n, path_of("new")) == TENSOR_E_ARGUMENT && strstr(tensor_error(), "two values"), "%s",
          tensor_error());
    n->values[0].name = "";
    CHECK(fl_onnx_write(n, path_of("new")) == TENSOR_E_ARGUMENT && strstr(tensor_error(), "no name"), "%s",
          tensor_error());
    n->values[0].name = name;
    CHECK(stat(path_of("new"), &about) && stat(path_of("new.part"), &about), "something was written");
    finish(n, "write");
}

static void test_networks_of_others(void) {
    char place[PATH_MAX];
    const char *const data = getenv("FLEXLAB_DATA");
    snprintf(place, sizeof place, "%s/networks", data ? data : "");
    DIR *const list = data ? opendir(place) : NULL;
    for (struct dirent *entry; list && (entry = readdir(list));) {
        const size_t length = strlen(entry->d_name);
        char file[2 * PATH_MAX];
        struct fl_network *n;
        if (length < 5 || strcmp(entry->d_name + length - 5, ".onnx") != 0)
            continue;
        snprintf(file, sizeof file, "%s/%s", place, entry->d_name);
        CHECK(!fl_onnx_read(&n, file), "%s", tensor_error());
        CHECK(n && n->graph.node_count > 0, "%s has no nodes", entry->d_name);
        finish(n, entry->d_name);
    }
    if (list)
        closedir(list);
}

static void remove_folder(void) {
    static const char *const names[] = {"model.onnx", "one.onnx", "two.onnx", "weights",           "link",
                                        "sublink",    "fifo",     "taken",    "sub/deeper/weights"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        unlink(path_of(names[i]));
    CHECK(!rmdir(path_of("sub/deeper")) && !rmdir(path_of("sub")) && !rmdir(folder), "%s has files left", folder);
}

int main(void) {
    struct fl_network *n;
    snprintf(folder, sizeof folder, "/tmp/flexlab-onnx-%ld", (long)getpid());
    if (fl_onnx_read(&n, "/nothing") == TENSOR_E_UNSUPPORTED) {
        CHECK(strstr(tensor_error(), "libprotobuf-c-dev"), "%s", tensor_error());
        return check_failures ? check_summary() : check_skip("built without protobuf-c");
    }
    if (mkdir(folder, 0700)) {
        printf("cannot make %s\n", folder);
        return 1;
    }
    test_types();
    test_four_bits();
    test_wrong_tensors();
    test_external();
    test_values();
    test_constants();
    test_moved();
    test_softmax();
    test_resize();
    test_operators();
    test_nested();
    test_wrong_graphs();
    test_wrong_attributes();
    test_wrong_models();
    test_write();
    test_networks_of_others();
    remove_folder();
    return check_summary();
}
