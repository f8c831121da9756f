/* Parts of tensors (Slice, Split), tensors repeated (Expand) and with zeros around them (Pad), behind a transposition
 * that changes the order in which the elements lie: random ones equal what indices say, in every format. */
#include "network_parts.h"

enum { MOST = 60000 /* 9^5 at most */, DIMS = 5, CASES = 1500 };

static uint64_t seed = 21;

static int64_t below(int64_t n) {
    return (int64_t)(check_random(&seed) % (uint64_t)n);
}

struct grid {
    int ndim;
    int64_t dim[DIMS], count;
};

static int64_t count_of(struct grid *g) {
    g->count = 1;
    for (int d = 0; d < g->ndim; d++)
        g->count *= g->dim[d];
    return g->count;
}

static void index_of(const struct grid *g, int64_t i, int64_t *at) {
    for (int d = g->ndim - 1; d >= 0; d--) {
        at[d] = i % g->dim[d];
        i /= g->dim[d];
    }
}

static int64_t place_of(const struct grid *g, const int64_t *at) {
    int64_t i = 0;
    for (int d = 0; d < g->ndim; d++)
        i = i * g->dim[d] + at[d];
    return i;
}

static int integers(struct fl_network *n, int64_t count, const int64_t *values) {
    const int made = part_value(n, 1, &count);
    struct fl_array *a;
    CHECK(!fl_net_array(n, &a, TENSOR_TYPE_I64, 1, &count), "%s", tensor_error());
    memcpy(a->data, values, (size_t)count * sizeof *values);
    n->values[made].constant = a;
    n->values[made].type = TENSOR_TYPE_I64;
    return made;
}

/* One case: the network x -> Transpose -> the operator, and the element of `from` that each element of y is (-1: 0). */
struct test {
    const char *op;
    struct grid x, from, y;
    int order[DIMS];
    int64_t pick[MOST];
};

/* Start, step of each dimension of y. */
static void note_steps(struct test *t, const int64_t *start, const int64_t *step) {
    int64_t at[DIMS];
    for (int64_t i = 0; i < count_of(&t->y); i++) {
        bool inside = true;
        index_of(&t->y, i, at);
        for (int d = 0; d < t->y.ndim; d++) {
            at[d] = start[d] + at[d] * step[d];
            inside &= at[d] >= 0 && at[d] < t->from.dim[d];
        }
        t->pick[i] = inside ? place_of(&t->from, at) : -1;
    }
}

static int add_slice(struct fl_network *n, struct test *t, int from) {
    int64_t start[DIMS], step[DIMS], end[DIMS], given[DIMS], axis[DIMS];
    for (int d = 0; d < t->from.ndim; d++) {
        const int64_t size = t->from.dim[d];
        start[d] = below(size);
        step[d] = below(4) ? 1 + below(3) : -1 - below(2);
        end[d] = step[d] > 0 ? start[d] + 1 + below(size - start[d]) : start[d] - 1 - below(start[d] + 1);
        t->y.dim[d] =
            step[d] > 0 ? (end[d] - start[d] + step[d] - 1) / step[d] : (start[d] - end[d] - step[d] - 1) / -step[d];
        given[d] = below(2) ? start[d] : start[d] - size;
        end[d] = end[d] < 0 ? -size - 1 : end[d];
        axis[d] = below(2) ? d : d - t->from.ndim;
    }
    note_steps(t, start, step);
    const int ndim = t->from.ndim;
    const int in[] = {from, integers(n, ndim, given), integers(n, ndim, end), integers(n, ndim, axis),
                      integers(n, ndim, step)};
    return part_node(n, "Slice", 5, in);
}

static int add_pad(struct fl_network *n, struct test *t, int from) {
    int64_t pads[2 * DIMS], start[DIMS], step[DIMS];
    const int ndim = t->from.ndim;
    for (int d = 0; d < ndim; d++) {
        const bool less = below(12) == 0 && t->from.dim[d] > 1;
        pads[d] = less ? -1 : below(3);
        pads[ndim + d] = below(2) ? below(3) : 0;
        t->y.dim[d] = t->from.dim[d] + pads[d] + pads[ndim + d];
        start[d] = -pads[d];
        step[d] = 1;
    }
    note_steps(t, start, step);
    return part_node(n, "Pad", 2, (const int[]){from, integers(n, 2 * ndim, pads)});
}

static int add_expand(struct fl_network *n, struct test *t, int from) {
    int64_t shape[DIMS], start[DIMS] = {0}, step[DIMS];
    for (int d = 0; d < t->from.ndim; d++) {
        shape[d] = t->from.dim[d] == 1 ? 1 + below(4) : below(2) ? 1 : t->from.dim[d];
        t->y.dim[d] = t->from.dim[d] == 1 ? shape[d] : t->from.dim[d];
        step[d] = t->from.dim[d] == 1 ? 0 : 1;
    }
    note_steps(t, start, step);
    return part_node(n, "Expand", 2, (const int[]){from, integers(n, t->from.ndim, shape)});
}

/* Two parts, of which the second is looked at. */
static int add_split(struct fl_network *n, struct test *t, int from) {
    int64_t start[DIMS] = {0}, step[DIMS];
    const int axis = (int)below(t->from.ndim);
    const int64_t size = t->from.dim[axis], first = size > 1 ? 1 + below(size - 1) : 0;
    const int64_t sizes[] = {first, size - first};
    for (int d = 0; d < t->from.ndim; d++)
        step[d] = 1;
    start[axis] = first;
    t->y.dim[axis] = size - first;
    note_steps(t, start, step);
    const int part = part_value(n, -1, NULL), rest = part_value(n, -1, NULL), parts = integers(n, 2, sizes);
    struct fl_net_node *const node = fl_net_add_node(n, &n->graph, "Split", "split", 2, 2, 0);
    node->inputs[0] = from;
    node->inputs[1] = parts;
    node->outputs[0] = part;
    node->outputs[1] = rest;
    CHECK(!fl_net_set_int(n, node, "axis", axis), "%s", tensor_error());
    return rest;
}

static struct fl_network *network_of(struct test *t) {
    static const struct {
        const char *op;
        int (*add)(struct fl_network *n, struct test *t, int from);
    } kinds[] = {{"Slice", add_slice}, {"Pad", add_pad}, {"Expand", add_expand}, {"Split", add_split}};
    const int kind = (int)below(4);
    struct fl_network *const n = fl_network_new(FL_NET_ONNX);
    int64_t order[DIMS];
    t->op = kinds[kind].op;
    t->x.ndim = t->from.ndim = t->y.ndim = 1 + (int)below(DIMS);
    for (int d = 0; d < t->x.ndim; d++) {
        t->x.dim[d] = 1 + below(5);
        const int other = (int)below(d + 1);
        order[d] = order[other];
        order[other] = d;
    }
    count_of(&t->x);
    for (int d = 0; d < t->x.ndim; d++)
        t->y.dim[d] = t->from.dim[d] = t->x.dim[t->order[d] = (int)order[d]];
    const int x = part_value(n, t->x.ndim, t->x.dim);
    int y = part_node(n, "Transpose", 1, &x);
    CHECK(!fl_net_set_ints(n, &n->graph.nodes[0], "perm", t->x.ndim, order), "%s", tensor_error());
    y = kinds[kind].add(n, t, y);
    part_ports(n, 1, &x, 1, &y);
    return n;
}

static void check_case(tensor_format format) {
    static struct test t;
    static float x[MOST];
    struct fl_program *const p = program_of(network_of(&t));
    program_array in = {.type = TENSOR_TYPE_F32, .ndim = t.x.ndim, .data = x}, out;
    int64_t at[DIMS], source[DIMS];
    memcpy(in.shape, t.x.dim, sizeof t.x.dim);
    for (int64_t i = 0; i < t.x.count; i++) /* exact in every format; each tensor holds a 1, so that exponents agree */
        x[i] = (float)(below(33) - 16) / 16;
    CHECK(!fl_net_check(p->network), "%s", tensor_error());
    CHECK(!program_calibrate(p, &in) && !program_freeze(p, 1) && !program_set_format(p, format, NULL, NULL), "%s",
          tensor_error());
    const tensor_status status = program_run(p, &out, &in);
    CHECK(!status, "%s: %s", t.op, tensor_error());
    if (!status) {
        bool same = out.ndim == t.y.ndim;
        for (int d = 0; d < t.y.ndim; d++)
            same &= out.shape[d] == t.y.dim[d];
        CHECK(same, "%s: another shape", t.op);
        for (int64_t i = 0; i < t.y.count && same; i++) {
            float want = 0;
            if (t.pick[i] >= 0) {
                index_of(&t.from, t.pick[i], at);
                for (int d = 0; d < t.x.ndim; d++)
                    source[t.order[d]] = at[d];
                want = x[place_of(&t.x, source)];
            }
            CHECK(((const float *)out.data)[i] == want, "%s in %s, element %lld: %g, expected %g", t.op,
                  tensor_format_name(format), (long long)i, ((const float *)out.data)[i], want);
        }
    }
    program_free(p);
}

int main(void) {
    static const tensor_format formats[] = {FMT_FP32, FMT_FP16, FMT_BF16, FMT_FLEX16_5, FMT_DFP16};
    for (int i = 0; i < CASES; i++)
        check_case(formats[i % 5]);
    return check_summary();
}
