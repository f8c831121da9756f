/* program_watch: every result is shown once, in the network's order of dimensions, with the numbers that the program
 * gives if the value is an output; casts have the numbers of the format; bits do not change. program_weights and
 * program_checksum against their definitions. */
#include "network_parts.h"
#include "flexlab/program.h"
#include <math.h>

enum { MOST = 32, ROOM = 4096 };
static const int64_t image[] = {2, 3, 6, 5};

struct network {
    struct fl_network *n;
    int made[MOST], count;
};

static int node(struct network *w, const char *op, int count, const int *inputs) {
    return w->made[w->count++] = part_node(w->n, op, count, inputs);
}

static struct fl_net_node *last_node(struct network *w) {
    return &w->n->graph.nodes[w->n->graph.node_count - 1];
}

/* A convolution whose result lies as N, H, W, C inside, a transposition that is a name, a reshape that is a view,
 * products and sums in three formats. output: which of the results is the program's; -1: the last. */
static struct network make_network(int output) {
    struct network w = {.n = fl_network_new(FL_NET_ONNX)};
    uint64_t random = 7;
    const int x = part_value(w.n, 4, image);
    const int filters = part_constant(w.n, 4, (const int64_t[]){4, 3, 3, 3}, &random);
    const int bias = part_constant(w.n, 1, (const int64_t[]){4}, &random);
    const int matrix = part_constant(w.n, 2, (const int64_t[]){48, 7}, &random);
    const int shift = part_constant(w.n, 2, (const int64_t[]){1, 7}, &random);
    const int shape = fl_net_add_value(w.n, "shape");
    fl_net_array(w.n, &w.n->values[shape].constant, TENSOR_TYPE_I64, 1, (const int64_t[]){2});
    memcpy(w.n->values[shape].constant->data, (const int64_t[]){2, 48}, 2 * sizeof(int64_t));
    w.n->values[shape].type = TENSOR_TYPE_I64;
    int y = node(&w, "Conv", 3, (const int[]){x, filters, bias});
    last_node(&w)->format = FMT_FP16;
    y = node(&w, "Relu", 1, (const int[]){y});
    last_node(&w)->format = FMT_FP16;
    y = node(&w, "Transpose", 1, (const int[]){y});
    fl_net_set_ints(w.n, last_node(&w), "perm", 4, (const int64_t[]){0, 2, 3, 1});
    y = node(&w, "Reshape", 2, (const int[]){y, shape});
    y = node(&w, "MatMul", 2, (const int[]){y, matrix});
    last_node(&w)->format = FMT_FLEX16_5;
    y = node(&w, "Add", 2, (const int[]){y, shift});
    node(&w, "Softmax", 1, (const int[]){y});
    part_ports(w.n, 1, &x, 1, &w.made[output < 0 ? w.count - 1 : output]);
    return w;
}

static float numbers[2 * 3 * 6 * 5];
static const program_array input = {.type = TENSOR_TYPE_F32, .ndim = 4, .shape = {2, 3, 6, 5}, .data = numbers};

struct seen {
    int count, casts;
    char value[MOST][24];
    program_array array[MOST];
    float data[MOST][ROOM];
    const char *until; /* the run ends when this value is shown */
};

static tensor_status see(void *context, const program_tensor *t) {
    struct seen *const s = context;
    int64_t count = 1;
    for (int d = 0; d < t->numbers.ndim; d++)
        count *= t->numbers.shape[d];
    CHECK(s->count < MOST && count <= ROOM, "%d tensors, %lld numbers", s->count, (long long)count);
    CHECK(t->numbers.type == TENSOR_TYPE_F32 && t->format && t->node.name && t->node.op && !t->original, "%s",
          t->value);
    if (t->cast) {
        s->casts++;
        return TENSOR_OK;
    }
    for (int i = 0; i < s->count; i++)
        CHECK(strcmp(s->value[i], t->value) != 0, "%s twice", t->value);
    snprintf(s->value[s->count], sizeof s->value[0], "%s", t->value);
    s->array[s->count] = t->numbers;
    memcpy(s->data[s->count++], t->numbers.data, (size_t)count * sizeof(float));
    return s->until && !strcmp(s->until, t->value) ? TENSOR_E_ARGUMENT : TENSOR_OK;
}

static void check_results(void) {
    static struct seen s;
    program_array out, plain;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        numbers[i] = (float)((int)(i * 37 % 29) - 14) / 9;
    struct network w = make_network(-1);
    program *const p = program_of(w.n);
    CHECK(!program_run(p, &plain, &input), "%s", tensor_error());
    float before[14];
    memcpy(before, plain.data, sizeof before);
    CHECK(!program_watch(p, see, &s) && !program_run(p, &out, &input), "%s", tensor_error());
    CHECK(!memcmp(before, out.data, sizeof before), "other bits when it is watched");
    CHECK(s.count == w.count, "%d results were shown, expected %d", s.count, w.count);
    CHECK(s.casts == 4, "%d casts, expected those before Conv, Transpose, MatMul and Add", s.casts);
    for (int k = 0; k < s.count && k < w.count; k++) {
        CHECK(!strcmp(s.value[k], w.n->values[w.made[k]].name), "%s is number %d", s.value[k], k);
        struct network other = make_network(k);
        program *const q = program_of(other.n);
        CHECK(!program_run(q, &out, &input), "%s", tensor_error());
        int64_t count = 1;
        bool same = out.ndim == s.array[k].ndim;
        for (int d = 0; d < out.ndim && same; d++) {
            same = out.shape[d] == s.array[k].shape[d];
            count *= out.shape[d];
        }
        CHECK(same && !memcmp(out.data, s.data[k], (size_t)count * sizeof(float)), "%s differs", s.value[k]);
        program_free(q);
    }
    const int all = s.count;
    s.count = 0;
    s.until = w.n->values[w.made[2]].name;
    CHECK(program_run(p, &out, &input) == TENSOR_E_ARGUMENT && s.count == 3, "the watcher ended it after %d", s.count);
    s.count = 0;
    CHECK(!program_watch(p, NULL, NULL) && !program_run(p, &out, &input) && !s.count, "%d of %d shown", s.count, all);
    CHECK(program_watch(NULL, see, &s) == TENSOR_E_ARGUMENT, "no program");
    program_free(p);
}

/* --- weights ------------------------------------------------------------------------------------------------------ */

static int weights;

static tensor_status see_weight(void *context, const program_tensor *t) {
    (void)context;
    const float *const rounded = t->numbers.data;
    weights++;
    CHECK(t->original && t->format != FMT_FP32, "%s", t->value);
    for (int i = 0; i < 4; i++) {
        const double step = t->format == FMT_FP16 ? 0x1p-10 : ldexp(1, -t->exponent);
        CHECK(fabs(rounded[i] - t->original[i]) <= step / 2, "%s[%d] = %g, was %g", t->value, i, rounded[i],
              t->original[i]);
    }
    CHECK(t->saturated == (t->format == FMT_FP16) && t->flushed == (t->format == FMT_FP16), "%s: %lld, %lld", t->value,
          (long long)t->saturated, (long long)t->flushed);
    return TENSOR_OK;
}

static void check_weights(void) {
    struct network w = make_network(-1);
    float *const filters = w.n->values[1].constant->data;
    w.n->graph.nodes[0].input_count = 2; /* no bias */
    filters[10] = 1e6f;
    filters[11] = 1e-9f;
    program *const p = program_of(w.n);
    CHECK(!program_weights(p, see_weight, NULL), "%s", tensor_error());
    CHECK(weights == 2, "%d weights, expected the filters and the matrix", weights);
    CHECK(program_weights(p, NULL, NULL) == TENSOR_E_ARGUMENT, "no watcher");
    program_free(p);
}

/* --- checksums ---------------------------------------------------------------------------------------------------- */

static void check_checksums(void) {
    float y[1000], swapped[1000];
    double sum = 0, squares = 0;
    for (int i = 0; i < 1000; i++) {
        const uint32_t hash = (uint32_t)((uint64_t)(i + 1) * 2654435761u);
        y[i] = (float)sin(i * 0.37) + 1;
        sum += (ldexp(hash, -31) - 1) * (double)y[i];
        squares += (double)y[i] * (double)y[i];
    }
    const program_sum s = program_checksum(y, 1000);
    CHECK(fabs(s.sum - sqrt(3.0 / 1000) * sum) < 1e-12 && fabs(s.magnitude - sqrt(squares / 1000)) < 1e-12, "%g, %g",
          s.sum, s.magnitude);
    for (int i = 0; i < 1000; i++)
        swapped[i] = y[i % 20 * 50 + i / 20];
    CHECK(fabs(program_checksum(swapped, 1000).sum - s.sum) > 0.05, "a transposed matrix has the sum %g of the other",
          s.sum);
    for (int i = 0; i < 1000; i++)
        swapped[i] = y[i] * (1 + 0x1p-9f * (float)(i % 3 - 1));
    CHECK(fabs(program_checksum(swapped, 1000).sum - s.sum) < 0x1p-8, "small errors changed %g", s.sum);
    CHECK(program_checksum(NULL, 0).sum == 0 && program_checksum(NULL, 0).magnitude == 0, "of nothing");

    uint8_t bytes[300];
    program_array probe = {.type = TENSOR_TYPE_U8, .ndim = 2, .shape = {3, 100}, .data = bytes};
    int low = 0, high = 0;
    CHECK(!program_probe(&probe), "%s", tensor_error());
    for (int i = 0; i < 300; i++) {
        low += bytes[i] < 128;
        high += bytes[i] >= 128;
    }
    CHECK(low > 100 && high > 100, "%d below 128, %d above", low, high);
    probe.type = 99;
    CHECK(program_probe(&probe) == TENSOR_E_ARGUMENT, "type 99");
}

int main(void) {
    check_results();
    check_weights();
    check_checksums();
    return check_summary();
}
