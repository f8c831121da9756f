/* The networks of MLPerf Tiny, where FLEXLAB_DATA/networks has them: their tensors, scales and operators are what
 * LiteRT says of them, which networks.txt has (networks.py). */
#include "check.h"
#include "flexlab/status.h"
#include "program/tflite/tflite_read.h"
#include <limits.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

static struct fl_network *network;
static int next_node, nodes_seen, networks_seen;
static bool missing;

/* What an operator becomes here, and the numbers of nodes that it becomes. */
static const char *onnx_name(const char *op) {
    static const char *const names[][2] = {
        {"CONV_2D", "Conv"},    {"DEPTHWISE_CONV_2D", "Conv"},      {"FULLY_CONNECTED", "Gemm"}, {"ADD", "Add"},
        {"RESHAPE", "Reshape"}, {"AVERAGE_POOL_2D", "AveragePool"}, {"SOFTMAX", "Softmax"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (!strcmp(op, names[i][0]))
            return names[i][1];
    return "?";
}

static void end_network(void) {
    if (network)
        CHECK(next_node == network->graph.node_count, "%d nodes, expected %d", network->graph.node_count, next_node);
    fl_network_free(network);
    network = NULL;
    next_node = 0;
}

static void begin_network(const char *name) {
    char path[PATH_MAX];
    end_network();
    snprintf(path, sizeof path, "%s/networks/%s", getenv("FLEXLAB_DATA"), name);
    missing |= access(path, R_OK) != 0;
    if (missing)
        return;
    CHECK(!fl_tflite_read(&network, path), "%s", tensor_error());
    networks_seen += network != NULL;
}

static void check_tensor(char *rest) {
    char type[16], scale[32];
    int i, at;
    long scales, zero, axis;
    unsigned long crc;
    if (sscanf(rest, "%d %15s %ld %31s %ld %ld %lu%n", &i, type, &scales, scale, &zero, &axis, &crc, &at) != 7) {
        CHECK(false, "tensor %s", rest);
        return;
    }
    const struct fl_net_value *const v = &network->values[i];
    const struct fl_quantisation *const q = v->quantisation;
    CHECK(!strcmp(fl_type_name(v->type), type), "%s is %s, expected %s", v->name, fl_type_name(v->type), type);
    CHECK(scales == (q ? q->count : 0), "%s has %d scales, expected %ld", v->name, q ? q->count : 0, scales);
    if (q && q->count == scales)
        CHECK(q->scale[0] == strtof(scale, NULL) && q->zero[0] == zero && q->axis == axis &&
                  crc32(0, (const void *)q->scale, (unsigned)(scales * (long)sizeof *q->scale)) == crc,
              "%s: scale %a, zero point %d, axis %d, expected %s, %ld, %ld", v->name, (double)q->scale[0], q->zero[0],
              q->axis, scale, zero, axis);
    int ndim = 0;
    for (char *word = strtok(rest + at, " \n"); word; word = strtok(NULL, " \n"), ndim++)
        CHECK(ndim < v->ndim && v->dim[ndim] == strtol(word, NULL, 10), "%s: dimension %d, expected %s", v->name, ndim,
              word);
    CHECK(ndim == v->ndim, "%s has %d dimensions, expected %d", v->name, v->ndim, ndim);
    CHECK(!v->constant || v->constant->data, "%s has no numbers", v->name);
}

static void check_node(char *rest) {
    char *word = strtok(rest, " \n");
    if (next_node >= network->graph.node_count) {
        CHECK(false, "%d nodes, expected more", next_node);
        return;
    }
    const struct fl_net_node *const node = &network->graph.nodes[next_node++];
    CHECK(!strcmp(node->op, onnx_name(word)), "node %d is %s, expected %s", next_node - 1, node->op, word);
    const bool depthwise = !strcmp(word, "DEPTHWISE_CONV_2D"), reshape = !strcmp(word, "RESHAPE");
    word = strtok(NULL, " \n");
    CHECK(node->outputs[0] == strtol(word, NULL, 10), "node %s: result %s", node->name, word);
    int i = 0;
    for (; (word = strtok(NULL, " \n")); i++) { /* a filter, or a shape, that was made anew is another value */
        if (i == 1 && (depthwise || reshape))
            continue;
        CHECK(i < node->input_count && node->inputs[i] == strtol(word, NULL, 10), "node %s: operand %d is %s",
              node->name, i, word);
    }
    CHECK(i == node->input_count, "node %s: %d operands, expected %d", node->name, node->input_count, i);
    if (depthwise) {
        const struct fl_net_value *const w = &network->values[node->inputs[1]];
        CHECK(fl_net_int(node, "group", 0) == w->dim[0] && w->dim[3] == 1, "node %s: groups", node->name);
    }
    nodes_seen++;
}

int main(void) {
    const char *const data = getenv("FLEXLAB_DATA");
    char line[512];
    FILE *const file = fopen(NETWORKS_FILE, "r");
    CHECK(file, "cannot open %s", NETWORKS_FILE);
    if (!data || !*data || !file)
        return file ? check_skip("FLEXLAB_DATA names no folder with networks/") : check_summary();
    while (fgets(line, sizeof line, file)) {
        char word[16] = "";
        int at = 0;
        sscanf(line, "%15s %n", word, &at);
        line[strcspn(line, "\n")] = 0;
        if (!strcmp(word, "network"))
            begin_network(line + at);
        else if (!network)
            continue;
        else if (!strcmp(word, "tensor"))
            check_tensor(line + at);
        else if (!strcmp(word, "node"))
            check_node(line + at);
        else if (!strcmp(word, "input"))
            CHECK(network->graph.input_count == 1 && network->graph.inputs[0] == strtol(line + at, NULL, 10), "input");
        else if (!strcmp(word, "output"))
            CHECK(network->graph.output_count == 1 && network->graph.outputs[0] == strtol(line + at, NULL, 10),
                  "output");
    }
    fclose(file);
    end_network();
    if (!check_failures && missing)
        return check_skip("FLEXLAB_DATA/networks lacks a network of networks.txt");
    CHECK(networks_seen == 6 && nodes_seen == 78, "%d networks with %d nodes", networks_seen, nodes_seen);
    return check_summary();
}
