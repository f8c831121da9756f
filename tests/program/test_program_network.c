/* fl_net_check: sorted nodes stay, unsorted ones are sorted, and what no order can compute is refused with the names of
 * node and value. */
#include "network_parts.h"

/* Nodes "n0", "n1", ... of one operand and one result each, as pairs of values "v0", "v1", ...; v0 is the input. */
static struct fl_network *chain(int values, int count, const int (*pairs)[2], int output) {
    struct fl_network *const n = fl_network_new(FL_NET_ONNX);
    for (int i = 0; i < values; i++)
        part_value(n, -1, NULL);
    for (int k = 0; k < count; k++) {
        char name[20];
        snprintf(name, sizeof name, "n%d", k);
        struct fl_net_node *const node = fl_net_add_node(n, &n->graph, "Relu", name, 1, 1, 0);
        node->inputs[0] = pairs[k][0];
        node->outputs[0] = pairs[k][1];
    }
    part_ports(n, 1, (const int[]){0}, 1, &output);
    return n;
}

static void check_order(struct fl_network *n, const char *order) {
    char names[100] = "";
    CHECK(!fl_net_check(n), "%s", tensor_error());
    for (int k = 0; k < n->graph.node_count; k++)
        strcat(names, n->graph.nodes[k].name);
    CHECK(!strcmp(names, order), "%s, expected %s", names, order);
    fl_network_free(n);
}

static void check_refused(struct fl_network *n, const char *node, const char *value) {
    const tensor_status status = fl_net_check(n);
    CHECK(status == TENSOR_E_DATA && (!node || strstr(tensor_error(), node)) && strstr(tensor_error(), value),
          "%s: %s, expected %s and %s", tensor_status_name(status), tensor_error(), node ? node : "", value);
    fl_network_free(n);
}

/* An If of value 1 whose branch has one node, from one value to another. */
static struct fl_network *nested(int from, int to) {
    struct fl_network *const n = chain(4, 1, (const int[][2]){{0, 1}}, 2);
    struct fl_net_node *const branch = fl_net_add_node(n, &n->graph, "If", "choice", 1, 1, 2);
    branch->inputs[0] = 1;
    branch->outputs[0] = 2;
    static const char *const names[] = {"then_branch", "else_branch"};
    for (int i = 0; i < 2; i++) {
        struct fl_net_graph *const g = fl_net_memory(n, sizeof *g);
        g->output_count = 1;
        g->outputs = fl_net_memory(n, sizeof *g->outputs);
        g->outputs[0] = i ? 1 : to;
        if (!i) {
            struct fl_net_node *const node = fl_net_add_node(n, g, "Relu", "within", 1, 1, 0);
            node->inputs[0] = from;
            node->outputs[0] = to;
        }
        branch->attributes[i] = (struct fl_net_attribute){.name = names[i], .kind = FL_NET_GRAPH, .graph = g};
    }
    return n;
}

int main(void) {
    check_order(chain(4, 3, (const int[][2]){{0, 1}, {1, 2}, {2, 3}}, 3), "n0n1n2");
    check_order(chain(4, 3, (const int[][2]){{2, 3}, {1, 2}, {0, 1}}, 3), "n2n1n0");
    check_order(chain(4, 3, (const int[][2]){{1, 3}, {0, 1}, {0, 2}}, 3), "n1n2n0");
    check_order(chain(1, 0, NULL, 0), "");
    check_refused(chain(3, 2, (const int[][2]){{1, 2}, {2, 1}}, 2), "n", "cycle"); /* a cycle */
    check_refused(chain(2, 1, (const int[][2]){{1, 1}}, 1), "n0", "cycle");        /* of one node */
    check_refused(chain(2, 2, (const int[][2]){{0, 1}, {0, 1}}, 1), "n1", "v1");   /* computed twice */
    check_refused(chain(2, 1, (const int[][2]){{0, 0}}, 0), "n0", "v0");           /* an input, computed */
    check_refused(chain(3, 1, (const int[][2]){{2, 1}}, 1), "n0", "v2");           /* computed by nobody */
    check_refused(chain(3, 1, (const int[][2]){{0, 1}}, 2), NULL, "v2");           /* an output of nobody */
    check_refused(chain(2, 1, (const int[][2]){{7, 1}}, 1), "n0", "7");            /* no such value */
    struct fl_network *const good = nested(1, 3);
    CHECK(!fl_net_check(good), "%s", tensor_error());
    CHECK(fl_net_readers(good, 1) == 3, "%d readers, expected If, its first branch and the output of its second",
          fl_net_readers(good, 1));
    fl_network_free(good);
    check_refused(nested(3, 3), "within", "cycle");
    check_refused(nested(2, 3), "choice", "cycle"); /* what the If itself gives */
    check_refused(nested(1, 1), "within", "v1");
    return check_summary();
}
