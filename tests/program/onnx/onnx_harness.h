/* onnx_harness.h - for tests of ONNX files that are put together: a folder for them, reading and refusing them, and the
 * round trip that every network that was read takes: written, read again, equal. */
#ifndef FL_ONNX_HARNESS_H
#define FL_ONNX_HARNESS_H

#include "onnx_model.h"
#include "program/network/network.h"
#include "program/onnx/onnx_read.h"
#include "program/onnx/onnx_write.h"
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64];
static struct message model, graph, node, part;

static inline const char *path_of(const char *name) {
    static char paths[4][PATH_MAX];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(paths[turn], sizeof paths[turn], "%s/%s", folder, name);
    return paths[turn];
}

static inline void write_bytes(const char *name, const void *bytes, size_t size) {
    FILE *const file = fopen(path_of(name), "wb");
    CHECK(file && fwrite(bytes, 1, size, file) == size && !fclose(file), "cannot write %s", name);
}

/* The network of model, or NULL. */
static inline struct fl_network *read_bytes(const struct message *m) {
    struct fl_network *n;
    write_bytes("model.onnx", m->bytes, m->size);
    const tensor_status status = fl_onnx_read(&n, path_of("model.onnx"));
    CHECK(!status == !!n, "status %d", (int)status);
    return n;
}

static inline struct fl_network *read_graph(int opset) {
    make_model(&model, 8, opset, &graph);
    struct fl_network *const n = read_bytes(&model);
    CHECK(n, "%s", tensor_error());
    return n;
}

/* A failure with the file, and these words, in its message. */
static inline void expect_failure(const struct message *m, const char *words) {
    struct fl_network *n;
    write_bytes("model.onnx", m->bytes, m->size);
    const tensor_status status = fl_onnx_read(&n, path_of("model.onnx"));
    CHECK((status == TENSOR_E_DATA || status == TENSOR_E_IO) && !n, "'%s': status %d", words, (int)status);
    CHECK(status && strstr(tensor_error(), "model.onnx: ") && strstr(tensor_error(), words),
          "expected '%s', found '%s'", words, status ? tensor_error() : "no failure");
    if (!status)
        fl_network_free(n);
}

static inline void refuse_graph(int opset, const char *words) {
    make_model(&model, 8, opset, &graph);
    expect_failure(&model, words);
}

/* x -> a node, of which the caller adds attributes -> y, with further inputs w and v. */
static inline void start_one(const char *op, const char *inputs) {
    graph.size = 0;
    add_value(&graph, GRAPH_INPUT, "x", FLOAT, "1,2,4,4");
    add_value(&graph, GRAPH_OUTPUT, "y", FLOAT, NULL);
    start_node(&node, op, "it", inputs, "y");
}

static inline struct fl_network *read_one(int opset) {
    put_message(&graph, GRAPH_NODE, &node);
    return read_graph(opset);
}

static inline void refuse_one(int opset, const char *words) {
    put_message(&graph, GRAPH_NODE, &node);
    refuse_graph(opset, words);
}

static inline const struct fl_array *input_array(const struct fl_network *n, int k, int input) {
    const struct fl_net_node *const it = &n->graph.nodes[k];
    return input < it->input_count && it->inputs[input] >= 0 ? n->values[it->inputs[input]].constant : NULL;
}

/* --- equal networks ------------------------------------------------------------------------------------------------
 */

static inline bool same_array(const struct fl_array *a, const struct fl_array *b) {
    return !a == !b && (!a || (a->type == b->type && a->ndim == b->ndim &&
                               !memcmp(a->dim, b->dim, (size_t)a->ndim * sizeof *a->dim) &&
                               !memcmp(a->data, b->data, (size_t)a->count * fl_type_bytes(a->type))));
}

static inline bool same_values(const struct fl_network *a, const struct fl_network *b, int count, const int *i,
                               const int *j) {
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

static inline bool same_graph(const struct fl_network *a, const struct fl_network *b, const struct fl_net_graph *g,
                              const struct fl_net_graph *h);

static inline bool same_attribute(const struct fl_network *a, const struct fl_network *b,
                                  const struct fl_net_attribute *p, const struct fl_net_attribute *q) {
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

static inline bool same_graph(const struct fl_network *a, const struct fl_network *b, const struct fl_net_graph *g,
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

static inline bool same_file(const char *one, const char *other) {
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
static inline void check_export(const struct fl_network *n, const char *name) {
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

static inline void finish(struct fl_network *n, const char *name) {
    if (!n)
        return;
    check_export(n, name);
    fl_network_free(n);
}

/* --- the folder --------------------------------------------------------------------------------------------------- */

/* False with the result of the test in *result: it cannot run here. */
static inline bool start_folder(int *result) {
    struct fl_network *n;
    snprintf(folder, sizeof folder, "/tmp/flexlab-onnx-%ld", (long)getpid());
    if (fl_onnx_read(&n, "/nothing") == TENSOR_E_UNSUPPORTED) {
        CHECK(strstr(tensor_error(), "libprotobuf-c-dev"), "%s", tensor_error());
        *result = check_failures ? check_summary() : check_skip("built without protobuf-c");
        return false;
    }
    if (mkdir(folder, 0700)) {
        printf("cannot make %s\n", folder);
        *result = 1;
        return false;
    }
    return true;
}

static inline void remove_folder(void) {
    static const char *const names[] = {"model.onnx", "one.onnx", "two.onnx", "weights",           "link",
                                        "sublink",    "fifo",     "taken",    "sub/deeper/weights"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        unlink(path_of(names[i]));
    (void)rmdir(path_of("sub/deeper")), (void)rmdir(path_of("sub"));
    CHECK(!rmdir(folder), "%s has files left", folder);
}

#endif
