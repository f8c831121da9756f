/* fuzz_onnx.c - the reader of ONNX files, and what the writer makes of what was read.
 *
 * Input: a byte of choices (bit 0: a file "weights" lies beside the model), then the bytes of the model. What is
 * accepted has all indices in range and each array its data, and is the same after it was written and read again: the
 * same bytes are written of both. Without protobuf-c every input is refused. */
#define _GNU_SOURCE
#include "flexlab/tensor.h"
#include "program/network/network.h"
#include "program/onnx/onnx_read.h"
#include "program/onnx/onnx_write.h"
#include "scratch.h"

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    scratch_make();
    return 0;
}

static void check_array(const struct fl_array *a) {
    int64_t count = 1;
    for (int i = 0; i < a->ndim; i++)
        count *= a->dim[i];
    MUST(a->ndim >= 0 && a->ndim <= FL_ARRAY_DIMS && count == a->count, "%lld elements", (long long)a->count);
    MUST(!count || a->data, "%lld elements without data", (long long)count);
    const unsigned char *const bytes = a->data;
    unsigned sum = 0;
    for (size_t i = 0; i < (size_t)count * fl_type_bytes(a->type); i++)
        sum += bytes[i];
    (void)sum;
}

static void check_graph(const struct fl_network *n, const struct fl_net_graph *graph, int depth) {
    MUST(depth <= 8, "%d graphs within each other", depth);
    for (int k = 0; k < graph->node_count; k++) {
        const struct fl_net_node *const node = &graph->nodes[k];
        MUST(*node->op && *node->name, "a node without operator or name");
        for (int i = 0; i < node->input_count; i++)
            MUST(node->inputs[i] >= -1 && node->inputs[i] < n->value_count, "input %d", node->inputs[i]);
        for (int i = 0; i < node->output_count; i++)
            MUST(node->outputs[i] >= -1 && node->outputs[i] < n->value_count, "output %d", node->outputs[i]);
        for (int i = 0; i < node->attribute_count; i++) {
            const struct fl_net_attribute *const a = &node->attributes[i];
            MUST(*a->name && fl_net_find(node, a->name) == a, "attribute '%s'", a->name);
            MUST(a->kind != FL_NET_STRING || strlen(a->s) < 65536, "a long text");
            if (a->kind == FL_NET_ARRAY)
                check_array(a->array);
            if (a->kind == FL_NET_GRAPH)
                check_graph(n, a->graph, depth + 1);
        }
    }
    for (int i = 0; i < graph->output_count; i++)
        MUST(graph->outputs[i] >= 0 && graph->outputs[i] < n->value_count, "output %d", graph->outputs[i]);
}

static size_t read_back(const char *name, uint8_t *bytes, size_t room) {
    const int file = open(scratch_path(name), O_RDONLY);
    const ssize_t size = file < 0 ? -1 : read(file, bytes, room);
    MUST(size > 0 && !close(file), "cannot read %s", name);
    return (size_t)size;
}

/* The writer refuses a value of its own name alone, which two branches may have and a constant of both may not. */
static void check_again(const struct fl_network *n) {
    static uint8_t one[1 << 20], two[1 << 20];
    char path[SCRATCH_PATH];
    struct fl_network *again;
    snprintf(path, sizeof path, "%s", scratch_path("one"));
    MUST(!fl_onnx_write(n, path), "%s", tensor_error());
    MUST(!fl_onnx_read(&again, path), "%s", tensor_error());
    MUST(again->graph.node_count == n->graph.node_count, "%d nodes of %d", again->graph.node_count,
         n->graph.node_count);
    snprintf(path, sizeof path, "%s", scratch_path("two"));
    MUST(!fl_onnx_write(again, path), "%s", tensor_error());
    fl_network_free(again);
    const size_t size = read_back("one", one, sizeof one);
    MUST(size == read_back("two", two, sizeof two) && !memcmp(one, two, size), "other bytes the second time");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size > 4096)
        return 0;
    static uint8_t weights[64];
    struct input in = input_of(data, size);
    struct fl_network *n;
    char path[SCRATCH_PATH];
    if (take_byte(&in) & 1)
        scratch_write("weights", weights, sizeof weights);
    else
        unlink(scratch_path("weights"));
    scratch_write("file", in.at, input_left(&in));
    snprintf(path, sizeof path, "%s", scratch_path("file"));
    watch_failures();
    const tensor_status status = fl_onnx_read(&n, path);
    must_tell_status("fl_onnx_read", status);
    MUST(!status == !!n, "%s", tensor_status_name(status));
    MUST(!status || status == TENSOR_E_DATA || status == TENSOR_E_IO || status == TENSOR_E_UNSUPPORTED, "%s: %s",
         tensor_status_name(status), tensor_error());
    MUST(!status || strstr(tensor_error(), path), "no file is named: %s", tensor_error());
    if (status)
        return 0;
    for (int v = 0; v < n->value_count; v++)
        if (n->values[v].constant)
            check_array(n->values[v].constant);
    check_graph(n, &n->graph, 0);
    check_again(n);
    fl_network_free(n);
    return 0;
}
