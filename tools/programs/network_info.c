/* network_info.c - what is in the file of a network: ports, operators, parameters. */
#include "base/table.h"
#include "base/text.h"
#include "programs/networks.h"
#include "programs/transpile.h"
#include <stdlib.h>
#include <string.h>

struct operator_row {
    const char *domain, *op;
    int count;
};

static int by_count(const void *a, const void *b) {
    const struct operator_row *const one = a, *const other = b;
    const int names = strcmp(one->op, other->op);
    return one->count != other->count ? (one->count < other->count ? 1 : -1)
           : names                    ? names
                                      : strcmp(one->domain, other->domain);
}

static void print_operators(const struct network *n) {
    const int nodes = program_node_count(n->p);
    struct operator_row *const rows = text_alloc((size_t)nodes + 1, sizeof *rows);
    int count = 0;
    for (int i = 0; i < nodes; i++) {
        program_node node;
        if (program_node_at(&node, n->p, i))
            continue;
        int k = 0;
        while (k < count && (strcmp(rows[k].op, node.op) != 0 || strcmp(rows[k].domain, node.domain) != 0))
            k++;
        rows[k] = (struct operator_row){node.domain, node.op, rows[k].count + 1};
        count += k == count;
    }
    qsort(rows, (size_t)count, sizeof *rows, by_count);
    struct table *t = table_new("lr");
    table_cell(t, "operator");
    table_cell(t, "nodes");
    for (int k = 0; k < count; k++) {
        table_take(t, text_format("%s%s%s", rows[k].domain, *rows[k].domain ? "." : "", rows[k].op));
        table_cell(t, "%d", rows[k].count);
    }
    table_print(t, stdout, 0, 0);
    table_free(t);
    free(rows);
}

static int print_probe(const struct network *n) {
    struct checksum_list c = {0};
    measure_checksums(&c, n, n, NULL);
    struct table *t = table_new("llrr");
    table_cell(t, "result");
    table_cell(t, "node");
    table_cell(t, "checksum");
    table_cell(t, "size");
    for (int i = 0; i < c.count; i++) {
        table_take(t, text_shown(c.list[i].value));
        table_take(t, i < c.outputs ? text_format("output") : text_shown(c.list[i].node));
        table_cell(t, "%.6g", c.list[i].source.sum);
        table_cell(t, "%.6g", c.list[i].source.magnitude);
    }
    const int status = c.why ? text_failed("%s: no checksums: %s", n->path, c.why) : STATUS_OK;
    if (status == STATUS_OK) {
        putchar('\n');
        table_print(t, stdout, 0, 0);
    }
    table_free(t);
    checksum_free(&c);
    return status;
}

int network_info(const char *path, const struct settings *s, bool probe) {
    struct network n;
    int status = network_open(&n, path, s);
    if (status == STATUS_OK) {
        char *const shown = text_shown(path), *const parameters = text_count(program_parameter_count(n.p));
        printf("%s: %s parameters, %d nodes\n\n", shown, parameters, program_node_count(n.p));
        network_print_ports(&n);
        putchar('\n');
        print_operators(&n);
        if (probe)
            status = print_probe(&n);
        free(shown);
        free(parameters);
    }
    network_close(&n);
    return status;
}
