/* test_onnx_wrong.c - ONNX files with wrong graphs, attributes and models: each is refused with the reason. */
#define _GNU_SOURCE
#include "onnx_harness.h"

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

int main(void) {
    int result;
    if (!start_folder(&result))
        return result;
    test_wrong_graphs();
    test_wrong_attributes();
    test_wrong_models();
    remove_folder();
    return check_summary();
}
