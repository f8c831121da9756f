/* The passes that join nodes (join.c) and recognise operators (recognise.c): a network gives what it gives without
 * them, up to fp32 rounding, with as few nodes as expected; a pattern that does not fit exactly stays as it is. */
#include "network_parts.h"
#include "program/passes/passes.h"
#include <math.h>

enum { BATCH = 2, FILTERS = 3, SIDE = 4, MOST = BATCH * FILTERS * SIDE * SIDE };

/* A constant of one number. */
static int number(struct fl_network *n, float value) {
    uint64_t random = 1;
    const int made = part_constant(n, 0, NULL, &random);
    *(float *)n->values[made].constant->data = value;
    return made;
}

/* --- sums behind a convolution ------------------------------------------------------------------------------------ */

/* What is added has these sizes; a convolution of `side` gives [BATCH, FILTERS, side, side]. */
struct sum {
    int ndim, side;
    int64_t dim[4];
};
static const struct sum sums[] = {{4, SIDE, {BATCH, FILTERS, SIDE, SIDE}},
                                  {4, SIDE, {BATCH, FILTERS, 1, 1}},
                                  {4, SIDE, {1, FILTERS, SIDE, 1}},
                                  {4, 1, {BATCH, FILTERS, SIDE, SIDE}},
                                  {4, SIDE, {BATCH, 1, 1, SIDE}},
                                  {3, SIDE, {FILTERS, 1, 1}},
                                  {1, SIDE, {SIDE}}};

/* relu(x) convolved by 1 x 1 filters, plus relu(z), then nothing, Relu or Clip. */
static struct fl_network *sum_network(const struct sum *s, bool first, int after) {
    struct fl_network *const n = fl_network_new(FL_NET_ONNX);
    const int64_t image[] = {BATCH, 2, s->side, s->side}, filters[] = {FILTERS, 2, 1, 1}, bias[] = {FILTERS};
    uint64_t random = 5;
    const int x = part_value(n, 4, image), z = part_value(n, s->ndim, s->dim);
    const int other = part_node(n, "Tanh", 1, &z);
    const int w = part_constant(n, 4, filters, &random), b = part_constant(n, 1, bias, &random);
    const int conv = part_node(n, "Conv", 3, (const int[]){x, w, b});
    int y = part_node(n, "Add", 2, first ? (const int[]){conv, other} : (const int[]){other, conv});
    if (after == 1)
        y = part_node(n, "Relu", 1, &y);
    if (after == 2)
        y = part_node(n, "Clip", 3, (const int[]){y, number(n, -0.5f), number(n, 0.75f)});
    part_ports(n, 2, (const int[]){x, z}, 1, &y);
    return n;
}

/* Runs a network; the number of results. The program is freed. */
static int64_t run(struct fl_network *n, const program_array *inputs, tensor_format format, float *y) {
    struct fl_program *const p = program_of(n);
    program_array out;
    CHECK(!fl_net_check(n), "%s", tensor_error());
    if (format != FMT_FP32)
        CHECK(!program_calibrate(p, inputs) && !program_freeze(p, 1) && !program_set_format(p, format, NULL, NULL),
              "%s", tensor_error());
    const tensor_status status = program_run(p, &out, inputs);
    CHECK(!status, "%s", tensor_error());
    int64_t count = status ? 0 : 1;
    for (int d = 0; d < (status ? 0 : out.ndim); d++)
        count *= out.shape[d];
    CHECK(count <= MOST, "%lld results", (long long)count);
    if (!status)
        memcpy(y, out.data, (size_t)count * sizeof *y);
    program_free(p);
    return count;
}

static void compare(struct fl_network *plain, struct fl_network *passed, const program_array *inputs,
                    tensor_format format, double tolerance, const char *what) {
    static float want[MOST], got[MOST];
    const int64_t count = run(plain, inputs, FMT_FP32, want);
    CHECK(run(passed, inputs, format, got) == count, "%s: another number of results", what);
    for (int64_t i = 0; i < count; i++)
        CHECK(fabs((double)got[i] - (double)want[i]) <= tolerance, "%s, element %lld: %g, expected %g", what,
              (long long)i, got[i], want[i]);
}

static void fill(program_array *a, float *numbers, int ndim, const int64_t *dim, uint64_t *random) {
    int64_t count = 1;
    *a = (program_array){.type = TENSOR_TYPE_F32, .ndim = ndim, .data = numbers};
    for (int d = 0; d < ndim; d++) {
        a->shape[d] = dim[d];
        count *= dim[d];
    }
    for (int64_t i = 0; i < count; i++)
        numbers[i] = (float)(int)(check_random(random) % 2001) / 500 - 2;
}

static void test_sums(void) {
    static float x[MOST], z[MOST];
    uint64_t random = 3;
    for (size_t which = 0; which < sizeof sums / sizeof sums[0]; which++)
        for (int form = 0; form < 12; form++) {
            const struct sum *const s = &sums[which];
            const int64_t image[] = {BATCH, 2, s->side, s->side};
            const bool first = form & 1;
            const int after = form / 2 % 3;
            program_array inputs[2];
            struct fl_network *const passed = sum_network(s, first, after);
            CHECK(!fl_net_check(passed) && !fl_pass_join(passed), "%s", tensor_error());
            CHECK(passed->graph.node_count == 2, "sum %zu: %d nodes, expected 2", which, passed->graph.node_count);
            CHECK(passed->change_count == (after ? 2 : 1), "sum %zu: %d changes", which, passed->change_count);
            for (int i = 0; i < passed->change_count; i++)
                CHECK(passed->changes[i].kind == PROGRAM_JOINED && !strcmp(passed->changes[i].into, "n1") &&
                          !strcmp(passed->changes[i].op, !i           ? "Add"
                                                         : after == 1 ? "Relu"
                                                                      : "Clip"),
                      "sum %zu: %s (%s) joined to %s", which, passed->changes[i].node, passed->changes[i].op,
                      passed->changes[i].into);
            fill(&inputs[0], x, 4, image, &random);
            fill(&inputs[1], z, s->ndim, s->dim, &random);
            compare(sum_network(s, first, after), passed, inputs, form < 6 ? FMT_FP32 : FMT_FLEX16_5,
                    form < 6 ? 1e-6 : 2e-3, "a sum");
        }
}

/* --- operators spelt out ------------------------------------------------------------------------------------------ */

/* x clip(x + three, 0, 6) / six, in the orders of operands that `form` says. */
static struct fl_network *swish_network(int form, float three, float six) {
    struct fl_network *const n = fl_network_new(FL_NET_ONNX);
    const int64_t dim[] = {BATCH, FILTERS};
    const int x = part_value(n, 2, dim), shift = number(n, three);
    const int sum = part_node(n, "Add", 2, form & 1 ? (const int[]){x, shift} : (const int[]){shift, x});
    const int clip = part_node(n, "Clip", 3, (const int[]){sum, number(n, 0), number(n, 6)});
    const int product = part_node(n, "Mul", 2, form & 2 ? (const int[]){x, clip} : (const int[]){clip, x});
    const int y =
        part_node(n, form & 4 ? "Mul" : "Div", 2, (const int[]){product, number(n, form & 4 ? 1 / six : six)});
    part_ports(n, 1, &x, 1, &y);
    return n;
}

/* gamma (x - mean) / sqrt(mean of the square + 1e-3) + beta, with `width` factors and terms. */
static struct fl_network *norm_network(int form, int64_t width) {
    struct fl_network *const n = fl_network_new(FL_NET_ONNX);
    const int64_t dim[] = {BATCH, FILTERS, SIDE}, one[] = {1};
    uint64_t random = 9;
    const int x = part_value(n, 3, dim), axes = part_constant(n, 1, one, &random);
    struct fl_array *a;
    CHECK(!fl_net_array(n, &a, TENSOR_TYPE_I64, 1, one), "%s", tensor_error());
    *(int64_t *)a->data = -1;
    n->values[axes].constant = a;
    n->values[axes].type = TENSOR_TYPE_I64;
    const int mean = part_node(n, "ReduceMean", 2, (const int[]){x, axes});
    const int rest = part_node(n, "Sub", 2, (const int[]){x, mean});
    const int square = part_node(n, form & 1 ? "Pow" : "Mul", 2, (const int[]){rest, form & 1 ? number(n, 2) : rest});
    const int variance = part_node(n, "ReduceMean", 2, (const int[]){square, axes});
    const int sum = part_node(n, "Add", 2, (const int[]){variance, number(n, 1e-3f)});
    const int root = part_node(n, "Sqrt", 1, &sum);
    const int quotient = part_node(n, "Div", 2, (const int[]){rest, root});
    const int gamma = part_constant(n, 1, &width, &random), beta = part_constant(n, 1, &width, &random);
    const int scaled =
        part_node(n, "Mul", 2, form & 2 ? (const int[]){gamma, quotient} : (const int[]){quotient, gamma});
    const int y = part_node(n, "Add", 2, (const int[]){scaled, beta});
    part_ports(n, 1, &x, 1, &y);
    return n;
}

/* All nodes, once each, are noted as what the one that is left is. */
static void check_recognised(const struct fl_network *n, const char *op, int count) {
    CHECK(n->change_count == count, "%s: %d changes, expected %d", op, n->change_count, count);
    for (int i = 0; i < n->change_count; i++) {
        const struct fl_net_change *const c = &n->changes[i];
        bool twice = false;
        for (int j = 0; j < i; j++)
            twice |= !strcmp(c->node, n->changes[j].node);
        CHECK(c->kind == PROGRAM_RECOGNISED && !twice && strcmp(c->op, op) != 0 && !strcmp(c->into_op, op) &&
                  !strcmp(c->into, n->graph.nodes[0].name),
              "%s: change %d of kind %d: %s (%s) is %s (%s)", op, i, c->kind, c->node, c->op, c->into, c->into_op);
    }
}

static void test_recognised(void) {
    static float x[MOST];
    const int64_t pair[] = {BATCH, FILTERS}, rows[] = {BATCH, FILTERS, SIDE};
    uint64_t random = 11;
    program_array input;
    for (int form = 0; form < 8; form++) {
        for (int wrong = 0; wrong < 3; wrong++) {
            const float three = wrong == 1 ? 2.5f : 3, six = wrong == 2 ? 5 : 6;
            struct fl_network *const passed = swish_network(form, three, six);
            CHECK(!fl_net_check(passed) && !fl_pass_recognise(passed), "%s", tensor_error());
            CHECK(passed->graph.node_count == (wrong ? 4 : 1), "swish %d, %d: %d nodes", form, wrong,
                  passed->graph.node_count);
            fill(&input, x, 2, pair, &random);
            check_recognised(passed, "HardSwish", wrong ? 0 : 4);
            compare(swish_network(form, three, six), passed, &input, FMT_FP32, 1e-6, "a swish");
        }
        for (int64_t width = 1; width <= SIDE; width += SIDE - 1) {
            struct fl_network *const passed = norm_network(form, width);
            CHECK(!fl_net_check(passed) && !fl_pass_recognise(passed), "%s", tensor_error());
            CHECK(passed->graph.node_count == (width == 1 ? 9 : 1), "norm %d of %lld: %d nodes", form, (long long)width,
                  passed->graph.node_count);
            fill(&input, x, 3, rows, &random);
            check_recognised(passed, "LayerNormalization", width == 1 ? 0 : 9);
            compare(norm_network(form, width), passed, &input, FMT_FP32, 1e-5, "a norm");
        }
    }
}

int main(void) {
    test_sums();
    test_recognised();
    return check_summary();
}
