/* network_info.c - what is in the file of a network: ports, operators, parameters, and what reading changed. */
#include "base/table.h"
#include "base/text.h"
#include "flexlab/nn.h"
#include "programs/networks.h"
#include "transpile/transpile.h"
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

/* --- what reading changed ----------------------------------------------------------------------------------------- */

static char *change_text(const program_change *c) {
    switch (c->kind) {
    case PROGRAM_FOLDED:
        return text_format("%s folded into the weights of %s", c->op, c->into_op);
    case PROGRAM_JOINED:
        return text_format("%s joined to %s, before it rounds", c->op, c->into_op);
    case PROGRAM_RECOGNISED:
        return text_format("%s recognised in several nodes", c->into_op);
    case PROGRAM_QUANTISED:
        return text_format("%s between conversions made %s of 8-bit integers", c->op, c->into_op);
    case PROGRAM_IN_FLOATS:
        return text_format("%s of 8-bit integers computed in floats", c->op);
    }
    return text_format("%s", c->op);
}

/* An operator that was recognised in several nodes counts once. */
static bool is_counted(const program_change *c) {
    return c->kind != PROGRAM_RECOGNISED || !strcmp(c->node, c->into);
}

static void print_changes(const struct network *n) {
    const int changes = program_change_count(n->p);
    struct change_row {
        char *text;
        int count;
    } *const rows = text_alloc((size_t)changes + 1, sizeof *rows);
    int count = 0;
    for (int i = 0; i < changes; i++) {
        program_change c;
        int k = 0;
        if (program_change_at(&c, n->p, i) || !is_counted(&c))
            continue;
        char *const text = change_text(&c);
        while (k < count && strcmp(rows[k].text, text) != 0)
            k++;
        if (k < count)
            free(text);
        else
            rows[count++] = (struct change_row){.text = text};
        rows[k].count++;
    }
    struct table *t = table_new("lr");
    table_cell(t, "changed by reading");
    table_cell(t, "nodes");
    for (int k = 0; k < count; k++) {
        table_take(t, rows[k].text);
        table_cell(t, "%d", rows[k].count);
    }
    if (count) {
        putchar('\n');
        table_print(t, stdout, 0, 0);
    }
    table_free(t);
    free(rows);
}

static void list_changes(const struct network *n) {
    struct table *t = table_new("llll");
    table_cell(t, "node of the file");
    table_cell(t, "operator");
    table_cell(t, "now");
    table_cell(t, "node");
    for (int i = 0; i < program_change_count(n->p); i++) {
        static const char *const kinds[] = {[PROGRAM_FOLDED] = "folded into",
                                            [PROGRAM_JOINED] = "joined to",
                                            [PROGRAM_RECOGNISED] = "recognised as",
                                            [PROGRAM_QUANTISED] = "of 8-bit integers:",
                                            [PROGRAM_IN_FLOATS] = "in floats:"};
        program_change c;
        if (program_change_at(&c, n->p, i))
            continue;
        table_take(t, text_shown(c.node));
        table_take(t, text_shown(c.op));
        table_cell(t, "%s %s", kinds[c.kind], c.into_op);
        table_take(t, text_shown(c.into));
    }
    if (program_change_count(n->p)) {
        putchar('\n');
        table_print(t, stdout, 0, 0);
    }
    table_free(t);
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

/* How a checkpoint of `train` was trained. */
static void print_training(const char *path) {
    char model[100], variant[100], steps[32], batch[32], shards[32], batchnorm[32];
    if (nn_checkpoint_note(model, sizeof model, path, "training.model") ||
        nn_checkpoint_note(variant, sizeof variant, path, "network.variant") ||
        nn_checkpoint_note(steps, sizeof steps, path, "network.steps") ||
        nn_checkpoint_note(batch, sizeof batch, path, "network.batch"))
        return;
    printf("trained: %s in %s, %s steps, batch %s", model, variant, steps, batch);
    if (!nn_checkpoint_note(shards, sizeof shards, path, "network.shards"))
        printf(" in %s shards, batchnorm %s", shards,
               nn_checkpoint_note(batchnorm, sizeof batchnorm, path, "network.batchnorm") ? "shard" : batchnorm);
    putchar('\n');
}

int network_info(const char *path, const struct settings *s, bool verbose, bool probe) {
    struct network n;
    int status = network_open(&n, path, s);
    if (status == STATUS_OK) {
        char *const shown = text_shown(path), *const parameters = text_count(program_parameter_count(n.p));
        printf("%s: %s parameters, %d nodes\n", shown, parameters, program_node_count(n.p));
        print_training(path);
        putchar('\n');
        network_print_ports(&n);
        putchar('\n');
        print_operators(&n);
        char *const integers = network_integers(&n);
        if (integers)
            printf("\n%s, rounded as %s\n", integers, program_rounding(n.p));
        free(integers);
        print_changes(&n);
        if (verbose)
            list_changes(&n);
        if (probe)
            status = print_probe(&n);
        free(shown);
        free(parameters);
    }
    network_close(&n);
    return status;
}
