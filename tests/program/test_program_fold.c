/* Chains behind a convolution that fl_pass_fold takes into its filters: one node is left, and its result is that of a
 * witness in double that computes every node by itself. */
#include "network_parts.h"
#include "program/passes/passes.h"
#include <math.h>

enum { BATCH = 2, SIZE = 4, KERNEL = 2, CHANNELS = 4, FILTERS = 6, MOST = 2 * 6 * 5 * 5 };

struct kind {
    bool transposed, last, bias;
    int groups;
};

static int64_t image_at(const struct kind *k, int64_t channels, int64_t size, int64_t b, int64_t c, int64_t y,
                        int64_t x) {
    return k->last ? ((b * size + y) * size + x) * channels + c : ((b * channels + c) * size + y) * size + x;
}

/* Filter f reads channel c of its group at (r, s). */
static double weight(const struct kind *k, const float *w, int64_t f, int64_t c, int64_t r, int64_t s) {
    const int64_t in = CHANNELS / k->groups, out = FILTERS / k->groups;
    if (k->transposed) /* [C, K / groups, R, S] */
        return w[(((f / out * in + c) * out + f % out) * KERNEL + r) * KERNEL + s];
    return k->last ? w[((f * KERNEL + r) * KERNEL + s) * in + c] : w[((f * in + c) * KERNEL + r) * KERNEL + s];
}

static void convolve(const struct kind *k, double *y, const float *x, const float *w, const float *bias) {
    const int64_t size = k->transposed ? SIZE + KERNEL - 1 : SIZE - KERNEL + 1, in = CHANNELS / k->groups;
    for (int64_t b = 0; b < BATCH; b++)
        for (int64_t f = 0; f < FILTERS; f++)
            for (int64_t i = 0; i < size * size; i++) {
                double sum = bias ? (double)bias[f] : 0;
                for (int64_t j = 0; j < in * KERNEL * KERNEL; j++) {
                    const int64_t c = j / (KERNEL * KERNEL), r = j / KERNEL % KERNEL, s = j % KERNEL;
                    const int64_t row = k->transposed ? i / size - r : i / size + r;
                    const int64_t column = k->transposed ? i % size - s : i % size + s;
                    if (row < 0 || row >= SIZE || column < 0 || column >= SIZE)
                        continue;
                    const int64_t channel = f / (FILTERS / k->groups) * in + c;
                    sum += weight(k, w, f, c, r, s) * (double)x[image_at(k, CHANNELS, SIZE, b, channel, row, column)];
                }
                y[image_at(k, FILTERS, size, b, f, i / size, i % size)] = sum;
            }
}

static const float *numbers_of(const struct fl_network *n, int value) {
    return n->values[value].constant->data;
}

static const char *const names[] = {"BatchNormalization", "Mul", "Add", "Sub", "Div"};

/* One more node, with constants of its own, and what it does to the witness. */
static int follow(struct fl_network *n, const struct kind *k, int op, int value, double *y, int64_t count, int64_t size,
                  uint64_t *random) {
    const int64_t image[] = {FILTERS, 1, 1}, last[] = {FILTERS}, one[] = {FILTERS};
    int in[5] = {value, 0, 0, 0, 0};
    for (int i = 1; i < (op ? 2 : 5); i++)
        in[i] = op && !k->last ? part_constant(n, 3, image, random) : part_constant(n, 1, op ? last : one, random);
    float *const divisor = n->values[in[op ? 1 : 4]].constant->data;
    for (int c = 0; c < FILTERS && (!op || op == 4); c++)
        divisor[c] = fabsf(divisor[c]) + 0.5f;
    for (int64_t i = 0; i < count; i++) {
        const int64_t c = k->last ? i % FILTERS : i / (size * size) % FILTERS;
        const double a = (double)numbers_of(n, in[1])[c];
        if (op)
            y[i] = op == 1 ? y[i] * a : op == 2 ? y[i] + a : op == 3 ? y[i] - a : y[i] / a;
        else
            y[i] =
                (y[i] - (double)numbers_of(n, in[3])[c]) / sqrt((double)numbers_of(n, in[4])[c] + (double)1e-5f) * a +
                (double)numbers_of(n, in[2])[c];
    }
    const int made = part_node(n, names[op], op ? 2 : 5, in);
    n->graph.nodes[n->graph.node_count - 1].channels_last = k->last;
    return made;
}

/* Reading tells of each node of the chain that it was folded into the convolution. */
static void check_changes(const program *p, const char *conv, const int *ops, int length) {
    program_change c;
    CHECK(program_change_count(p) == length, "%d changes of %d nodes", program_change_count(p), length);
    for (int i = 0; i < length && i < program_change_count(p); i++) {
        char name[20];
        snprintf(name, sizeof name, "n%d", 1 + i);
        const bool good = !program_change_at(&c, p, i) && c.kind == PROGRAM_FOLDED && !strcmp(c.node, name) &&
                          !strcmp(c.op, names[ops[i]]) && !strcmp(c.into, "n0") && !strcmp(c.into_op, conv);
        CHECK(good, "change %d: kind %d, %s (%s) into %s (%s)", i, c.kind, c.node, c.op, c.into, c.into_op);
    }
    CHECK(program_change_at(&c, p, length) == TENSOR_E_ARGUMENT && program_change_at(&c, p, -1) == TENSOR_E_ARGUMENT &&
              program_change_at(NULL, p, 0) == TENSOR_E_ARGUMENT && program_change_count(NULL) == 0,
          "changes that are none, after %d", length);
}

static void check_chain(const struct kind *k, const int *ops, int length, uint64_t *random) {
    struct fl_network *const n = fl_network_new(FL_NET_ONNX);
    const int64_t size = k->transposed ? SIZE + KERNEL - 1 : SIZE - KERNEL + 1, count = BATCH * FILTERS * size * size;
    const int64_t image[2][4] = {{BATCH, CHANNELS, SIZE, SIZE}, {BATCH, SIZE, SIZE, CHANNELS}};
    const int64_t filters[3][4] = {{FILTERS, CHANNELS / k->groups, KERNEL, KERNEL},
                                   {FILTERS, KERNEL, KERNEL, CHANNELS / k->groups},
                                   {CHANNELS, FILTERS / k->groups, KERNEL, KERNEL}};
    float x[BATCH * CHANNELS * SIZE * SIZE];
    double y[MOST], most = 0;
    for (size_t i = 0; i < sizeof x / sizeof x[0]; i++)
        x[i] = (float)(check_random(random) % 33) / 16 - 1;
    const int input = part_value(n, 4, image[k->last]);
    const int w = part_constant(n, 4, filters[k->transposed ? 2 : k->last], random);
    const int b = part_constant(n, 1, (const int64_t[]){FILTERS}, random);
    int value = part_node(n, k->transposed ? "ConvTranspose" : "Conv", k->bias ? 3 : 2, (const int[]){input, w, b});
    struct fl_net_node *const node = &n->graph.nodes[0];
    node->channels_last = k->last;
    CHECK(!fl_net_set_int(n, node, "group", k->groups), "%s", tensor_error());
    convolve(k, y, x, numbers_of(n, w), k->bias ? numbers_of(n, b) : NULL);
    for (int i = 0; i < length; i++)
        value = follow(n, k, ops[i], value, y, count, size, random);
    part_ports(n, 1, &input, 1, &value);
    program *const p = program_of(n);
    program_array in = {.type = TENSOR_TYPE_F32, .ndim = 4, .data = x}, out;
    memcpy(in.shape, image[k->last], sizeof image[0]);
    const bool good = !fl_net_check(n) && !fl_pass_fold(n) && !program_run(p, &out, &in);
    CHECK(good, "%s", tensor_error());
    CHECK(n->graph.node_count == 1, "%d nodes are left of %d", n->graph.node_count, 1 + length);
    check_changes(p, k->transposed ? "ConvTranspose" : "Conv", ops, length);
    for (int64_t i = 0; i < count; i++)
        most = fmax(most, fabs(y[i]));
    for (int64_t i = 0; i < count && good; i++)
        CHECK(fabs((double)((const float *)out.data)[i] - y[i]) <= 2e-6 * most,
              "%d groups%s%s, operators %d.. (%d): number %lld is %.9g, expected %.9g", k->groups,
              k->transposed ? ", transposed" : "", k->last ? ", channels last" : "", length ? ops[0] : -1, length,
              (long long)i, (double)((const float *)out.data)[i], y[i]);
    program_free(p);
}

int main(void) {
    uint64_t random = 7;
    for (int which = 0; which < 16; which++)
        for (int chain = 0; chain < 30; chain++) {
            const struct kind k = {which & 1, which & 2, which & 4, which & 8 ? 2 : 1};
            int ops[4];
            if (k.transposed && k.last)
                continue;
            for (int i = 0; i < 4; i++)
                ops[i] = chain < 5 ? chain : (int)(check_random(&random) % 5);
            check_chain(&k, ops, chain < 5 ? 1 : chain % 5, &random);
        }
    return check_summary();
}
