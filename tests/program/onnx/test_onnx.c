/* test_onnx.c - networks from ONNX files that are put together here: tensors, values, graphs, and what is written of
 * them. Files of others: FLEXLAB_DATA/networks/ (those that are there). */
#define _GNU_SOURCE
#include "onnx_harness.h"
#include <dirent.h>

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

int main(void) {
    int result;
    if (!start_folder(&result))
        return result;
    test_types();
    test_four_bits();
    test_wrong_tensors();
    test_external();
    test_values();
    test_constants();
    test_nested();
    test_write();
    test_networks_of_others();
    remove_folder();
    return check_summary();
}
