/* weights.c - checks the initial weights of a file: the network of the first format loads them once. Names and shapes
 * are those of every format. */
#include "runs/weights.h"
#include "runs/network.h"
#include "base/text.h"
#include <stdlib.h>

/* The mismatches, one line for each. */
struct misfits {
    int weights, missing, shapes, superfluous, both_ways;
    char *lines, *twofold;
};

static void add(char **list, const char *between, char *more) {
    char *longer = text_format("%s%s%s", *list, **list ? between : "", more);
    free(*list);
    free(more);
    *list = longer;
}

static void see(const nn_weight_match *match, void *context) {
    struct misfits *m = context;
    const nn_weight_info *w = &match->weight;
    char *own = text_shape(w->ndim, w->dim), *found = text_shape(match->found_ndim, match->found_dim);
    char *name = text_shown(match->found ? match->found : w->name), *line = NULL;
    m->weights += w->name != NULL;
    m->missing += match->fit == NN_WEIGHT_MISSING;
    m->shapes += match->fit == NN_WEIGHT_SHAPE;
    m->superfluous += match->fit == NN_WEIGHT_SUPERFLUOUS;
    m->both_ways += match->fit == NN_WEIGHT_BOTH_WAYS;
    if (match->fit == NN_WEIGHT_MISSING)
        line = text_format("  missing      %s %s (%s)", name, own, w->layout);
    else if (match->fit == NN_WEIGHT_SHAPE)
        line = text_format("  other shape  %s %s, expected %s (%s)", name, found, own, w->layout);
    else if (match->fit == NN_WEIGHT_SUPERFLUOUS)
        line = text_format("  superfluous  %s %s", name, found);
    if (line)
        add(&m->lines, "\n", line);
    if (match->fit == NN_WEIGHT_BOTH_WAYS)
        add(&m->twofold, ", ", text_format("%s %s (%s)", name, own, w->layout));
    free(name);
    free(own);
    free(found);
}

/* Reports all mismatches in one message. */
static int tell_misfits(const struct settings *s, const struct misfits *m) {
    const int status =
        text_failed("--weights '%s': of the %d tensors of %s %d %s missing in the file and %d %s another "
                    "shape; %d of the file's %s superfluous:",
                    s->weights, m->weights, s->model, m->missing, m->missing == 1 ? "is" : "are", m->shapes,
                    m->shapes == 1 ? "has" : "have", m->superfluous, m->superfluous == 1 ? "is" : "are");
    fprintf(stderr,
            "%s\n  'flexlab info %s' lists what is expected, docs/checkpoints.md how weights of other programs "
            "are brought into it.\n",
            m->lines, s->model);
    return status;
}

static void warn(const struct settings *s, const struct misfits *m) {
    if (m->superfluous) {
        text_note("--weights '%s': %d %s of the file %s to no tensor of %s and %s left out:", s->weights,
                  m->superfluous, m->superfluous == 1 ? "tensor" : "tensors",
                  m->superfluous == 1 ? "belongs" : "belong", s->model, m->superfluous == 1 ? "is" : "are");
        fprintf(stderr, "%s\n", m->lines);
    }
    if (m->both_ways)
        text_note(
            "--weights '%s': WARNING: the shape of %s fits in more than one layout, and the file does not say which "
            "it has; the layout in brackets is taken (a note in the file's metadata says it: flexlab.layouts=1 this "
            "library's, flexlab.layouts=oihw PyTorch's; docs/checkpoints.md)",
            s->weights, m->twofold);
}

static int take(nn_graph *g, const struct settings *s) {
    struct misfits m = {.lines = text_format("%s", ""), .twofold = text_format("%s", "")};
    int status = STATUS_OK;
    if (!nn_weights_match(g, s->weights, see, &m) && m.missing + m.shapes)
        status = tell_misfits(s, &m);
    else if (nn_weights_load(g, s->weights))
        status = text_failed("--weights '%s': %s", s->weights, tensor_error());
    else
        warn(s, &m);
    free(m.lines);
    free(m.twofold);
    return status;
}

int weights_check(const struct experiment *x) {
    const struct settings *s = x->settings;
    nn_graph *g = network_of(x, &x->series[0]);
    const int status = g ? take(g, s) : text_failed("--weights '%s': %s", s->weights, tensor_error());
    nn_graph_free(g);
    return status;
}
