/* policy.c - policies resolved for the network to be trained, before training. */
#include "runs/policy.h"
#include "runs/network.h"
#include "base/failure.h"
#include "base/text.h"
#include <stdlib.h>
#include <string.h>

/* --- resolving ---------------------------------------------------------------------------------------------------- */

static char *copy(const char *text) {
    return text ? text_format("%s", text) : NULL;
}

void policy_take_rows(struct series *s, nn_graph *g) {
    s->role_count = nn_role_row_count(g);
    s->roles = text_alloc((size_t)s->role_count, sizeof *s->roles);
    for (int i = 0; i < s->role_count; i++) {
        struct role_row *row = &s->roles[i];
        const nn_role_row seen = nn_role_row_at(g, i);
        row->name = copy(seen.name);
        row->kind = copy(seen.kind);
        for (int r = 0; r < ROLE_LIMIT && nn_role_name_at(r); r++)
            row->role[r] = copy(nn_role(g, i, nn_role_name_at(r)));
    }
}

/* Builds the model in these formats; *rows is the number of its roles' rows, 0 on failure. */
static nn_graph *build(const struct experiment *x, nn_config config, int *rows) {
    nn_node logits;
    nn_graph *g = network_layers(x, config, &logits);
    *rows = g ? nn_role_row_count(g) : 0;
    return g;
}

static int resolve(const struct experiment *x, struct series *s) {
    int rows, again;
    failure_forget();
    nn_graph *g = build(x, series_network(x->settings, s), &rows);
    int status = STATUS_OK;
    if (rows) {
        policy_take_rows(s, g);
    } else { /* a policy is stored as one line: only the policy as given has line numbers for the message */
        char *first_message = text_format("%s", tensor_error());
        nn_graph *given = build(x, series_asked(x->settings, s), &again);
        const char *what = again ? first_message : tensor_error();
        status = failure_is_usage() ? text_usage("%s: %s", s->label, what) : text_failed("%s: %s", s->label, what);
        nn_graph_free(given);
        free(first_message);
    }
    nn_graph_free(g);
    return status;
}

int policy_resolve(struct experiment *x) {
    int status = STATUS_OK;
    for (int i = 0; i < x->series_count && status == STATUS_OK; i++)
        if (!x->series[i].plain)
            status = resolve(x, &x->series[i]);
    return status;
}

/* --- printing ----------------------------------------------------------------------------------------------------- */

static bool is_parameter(const struct role_row *row) {
    return !strcmp(row->kind, "parameter");
}

static bool same_roles(const struct role_row *a, const struct role_row *b) {
    bool same = is_parameter(a) == is_parameter(b);
    for (int r = 0; r < ROLE_LIMIT && same; r++)
        same = !a->role[r] == !b->role[r] && (!a->role[r] || !strcmp(a->role[r], b->role[r]));
    return same;
}

/* The names of the rows from `first` on that have the roles of that row. */
static char *names_like(const struct series *s, int first) {
    char *names = text_format("%s", "");
    for (int i = first; i < s->role_count; i++)
        if (same_roles(&s->roles[i], &s->roles[first])) {
            char *longer = text_format("%s%s%s", names, *names ? ", " : "", s->roles[i].name);
            free(names);
            names = longer;
        }
    return names;
}

static bool is_first(const struct series *s, int i) {
    for (int k = 0; k < i; k++)
        if (same_roles(&s->roles[k], &s->roles[i]))
            return false;
    return true;
}

/* Prints names separated by commas, in indented lines of at most `width` columns. */
static void print_names(const char *names, int width) {
    static const int indent = 6;
    for (int used = 0; *names; names += strspn(names, " ")) {
        const int length = (int)strcspn(names, " ");
        if (used && used + 1 + length > width) {
            putchar('\n');
            used = 0;
        }
        used += printf("%*s%.*s", used ? 1 : indent, "", length, names);
        names += length;
    }
    putchar('\n');
}

/* Prints layers, or parameters, with the same formats under one line. */
static void print_group(const struct series *s, bool parameters) {
    const int width = output_columns() > 20 ? output_columns() : 100;
    for (int i = 0; i < s->role_count; i++) {
        const struct role_row *row = &s->roles[i];
        if (is_parameter(row) != parameters || !is_first(s, i))
            continue;
        printf("  ");
        for (int r = 0; r < ROLE_LIMIT && nn_role_name_at(r); r++)
            if (row->role[r])
                printf(" %s=%s", nn_role_name_at(r), row->role[r]);
        putchar('\n');
        char *names = names_like(s, i), *shown = text_shown(names);
        print_names(shown, width);
        free(shown);
        free(names);
    }
}

void policy_print_rows(const struct series *s) {
    print_group(s, false);
    print_group(s, true);
}

void policy_print_text(const struct series *s) {
    char *policy = text_shown(s->policy), *label = text_shown(s->label);
    printf("%s: %s\n", label, policy);
    free(label);
    free(policy);
}

void policy_print(const struct experiment *x) {
    for (int i = 0; i < x->series_count; i++) {
        const struct series *s = &x->series[i];
        if (!s->role_count)
            continue;
        policy_print_text(s);
        policy_print_rows(s);
        putchar('\n');
    }
    fflush(stdout);
}
