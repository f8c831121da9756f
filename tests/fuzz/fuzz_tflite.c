/* fuzz_tflite.c - the reader of .tflite files: the input is the file as it is. What is accepted is a network whose
 * values and nodes are in order, whose constants have the numbers that their shapes say, and takes no more memory than
 * the file justifies. Skipped without FlatBuffers. */
#define _GNU_SOURCE
#include "program/tflite/tflite_read.h"
#include "scratch.h"

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    scratch_make();
    return 0;
}

static void check_value(const struct fl_net_value *v) {
    MUST(v->ndim >= 0 && v->ndim <= FL_ARRAY_DIMS, "%s has %d dimensions", v->name, v->ndim);
    for (int i = 0; i < v->ndim; i++)
        MUST(v->dim[i] >= -1, "%s: dimension %d is %lld", v->name, i, (long long)v->dim[i]);
    if (v->constant) {
        const struct fl_array *const a = v->constant;
        int64_t count = 1;
        MUST(a->type == v->type && a->ndim == v->ndim, "%s is another constant", v->name);
        for (int i = 0; i < a->ndim; i++)
            count *= a->dim[i];
        MUST(count == a->count && (a->data || !count), "%s: %lld numbers", v->name, (long long)a->count);
        static volatile unsigned char seen; /* a sanitizer sees what is not there */
        for (size_t i = 0; i < (size_t)count * fl_type_bytes(a->type); i++)
            seen = ((const unsigned char *)a->data)[i];
        (void)seen;
    }
    if (v->quantisation) {
        const struct fl_quantisation *const q = v->quantisation;
        MUST(q->count == 1 || (q->axis >= 0 && q->axis < v->ndim), "%s: axis %d", v->name, q->axis);
        for (int i = 0; i < q->count; i++)
            MUST(q->scale[i] >= 0 && q->scale[i] <= 3.4028235e38f && q->zero[i] >= -65536 * 32768, "%s: scale %d",
                 v->name, i);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size > 4096)
        return 0;
    struct fl_network *n = NULL;
    char path[SCRATCH_PATH];
    scratch_write("file", data, size);
    snprintf(path, sizeof path, "%s", scratch_path("file"));
    limit_allocation(1 << 20);
    watch_failures();
    const tensor_status status = fl_tflite_read(&n, path);
    must_tell_status("fl_tflite_read", status);
    MUST(!n == (status != TENSOR_OK), "a network and %s", tensor_status_name(status));
    MUST(!status || status == TENSOR_E_DATA || status == TENSOR_E_UNSUPPORTED, "%s: %s", tensor_status_name(status),
         tensor_error());
    MUST(!status || strstr(tensor_error(), path), "no file is named: %s", tensor_error());
    if (!n)
        return 0;
    for (int i = 0; i < n->value_count; i++)
        check_value(&n->values[i]);
    for (int k = 0; k < n->graph.node_count; k++) {
        const struct fl_net_node *const node = &n->graph.nodes[k];
        MUST(node->output_count == 1 && node->outputs[0] >= 0 && !n->values[node->outputs[0]].constant, "%s: results",
             node->name);
        for (int i = 0; i < node->input_count; i++)
            MUST(node->inputs[i] >= -1 && node->inputs[i] < n->value_count, "%s: operand %d", node->name, i);
        for (int i = 0; i < node->attribute_count; i++)
            MUST(node->attributes[i].name && node->attributes[i].kind, "%s: attribute %d", node->name, i);
    }
    MUST(!fl_net_check(n), "read and not in order: %s", tensor_error());
    fl_network_free(n);
    return 0;
}
