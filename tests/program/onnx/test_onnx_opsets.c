/* test_onnx_opsets.c - ONNX files of older opsets, whose operators become those of the newest one that is read. */
#define _GNU_SOURCE
#include "onnx_harness.h"

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

int main(void) {
    int result;
    if (!start_folder(&result))
        return result;
    test_moved();
    test_softmax();
    test_resize();
    test_operators();
    remove_folder();
    return check_summary();
}
