/* Plans of random networks: tensors that live at the same time never share memory, and all lie in the arena. The
 * results, sums of small integers, are those of a witness that has memory for every value. Runs that fail call the
 * error hook once, with a message that names the input or the node. */
#include "network_parts.h"
#include "program/plan/plan_internal.h"
#include <math.h>

enum { NODES = 40, COUNT = 24, OUTPUTS = 3 };
static const int64_t shape[] = {2, 3, 4};

static void check_memory(const struct fl_plan *plan, int which) {
    for (int i = 0; i < plan->slot_count; i++) {
        const struct fl_slot *const s = &plan->slots[i];
        if (s->kind != FL_SLOT_OWN)
            continue;
        CHECK(s->at + s->bytes <= plan->arena_bytes, "network %d: slot %d ends at %zu of %zu", which, i,
              s->at + s->bytes, plan->arena_bytes);
        for (int j = 0; j < i; j++) {
            const struct fl_slot *const t = &plan->slots[j];
            if (t->kind != FL_SLOT_OWN || t->first > s->last || s->first > t->last)
                continue;
            CHECK(t->at + t->bytes <= s->at || s->at + s->bytes <= t->at,
                  "network %d: slot %d at %zu (steps %d to %d) and slot %d at %zu (steps %d to %d)", which, i, s->at,
                  s->first, s->last, j, t->at, t->first, t->last);
        }
    }
}

/* Each node reads the one before it and any other value, so that some live long. */
static void check_random_network(int which, uint64_t *random) {
    static const char *const ops[] = {"Add", "Sub", "Max", "Relu", "Neg"};
    static double value[NODES + 8][COUNT];
    struct fl_network *const n = fl_network_new(FL_NET_ONNX);
    float numbers[2][COUNT];
    int made[NODES + 2] = {part_value(n, 3, shape), part_value(n, 3, shape)}, count = 2;
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < COUNT; i++)
            value[k][i] = numbers[k][i] = (float)(check_random(random) % 9) - 4;
    for (; count < 2 + NODES; count++) {
        const int op = (int)(check_random(random) % 5);
        const int a = (int)(check_random(random) % (unsigned)count), b = count - 1;
        made[count] = part_node(n, ops[op], op < 3 ? 2 : 1, (const int[]){made[a], made[b]});
        for (int i = 0; i < COUNT; i++) {
            const double x = value[a][i], y = value[b][i];
            value[count][i] = op == 0   ? x + y
                              : op == 1 ? x - y
                              : op == 2 ? (x > y ? x : y)
                              : op == 3 ? (x > 0) * x
                                        : -x;
        }
    }
    const int outputs[OUTPUTS] = {count - 1, count / 2, count / 3};
    part_ports(n, 2, made, OUTPUTS, (const int[]){made[outputs[0]], made[outputs[1]], made[outputs[2]]});
    program *const p = program_of(n);
    program_array in[2], out[OUTPUTS];
    for (int k = 0; k < 2; k++)
        in[k] = (program_array){.type = TENSOR_TYPE_F32, .ndim = 3, .shape = {2, 3, 4}, .data = numbers[k]};
    const bool good = !fl_net_check(n) && !program_run(p, out, in);
    CHECK(good, "network %d: %s", which, tensor_error());
    if (good)
        check_memory(p->plan, which);
    for (int o = 0; o < OUTPUTS && good; o++)
        for (int i = 0; i < COUNT; i++)
            CHECK(((const float *)out[o].data)[i] == value[outputs[o]][i],
                  "network %d, output %d, number %d: %g, want %g", which, o, i, (double)((const float *)out[o].data)[i],
                  value[outputs[o]][i]);
    program_free(p);
}

enum { CONVOLUTIONS = 5, PIXELS = 20, CHANNELS = 3 };

/* Outputs that are brought into the order of the network after the last node, one after the other: none is written over
 * by those after it. */
static void check_permuted_outputs(uint64_t *random) {
    static const int64_t image[] = {1, CHANNELS, 4, 5};
    float numbers[CHANNELS * PIXELS];
    for (int i = 0; i < CHANNELS * PIXELS; i++)
        numbers[i] = (float)(check_random(random) % 9) - 4;
    struct fl_network *const n = fl_network_new(FL_NET_ONNX);
    const int x = part_value(n, 4, image);
    int outputs[CONVOLUTIONS], filters[CONVOLUTIONS];
    for (int k = 0; k < CONVOLUTIONS; k++) {
        filters[k] = part_constant(n, 4, (const int64_t[]){CHANNELS + k, CHANNELS, 1, 1}, random);
        outputs[k] = part_node(n, "Conv", 2, (const int[]){x, filters[k]});
    }
    part_ports(n, 1, &x, CONVOLUTIONS, outputs);
    program *const p = program_of(n);
    program_array in = {.type = TENSOR_TYPE_F32, .ndim = 4, .shape = {1, CHANNELS, 4, 5}, .data = numbers},
                  out[CONVOLUTIONS];
    const bool good = !fl_net_check(n) && !program_run(p, out, &in);
    CHECK(good, "%s", tensor_error());
    for (int k = 0; k < CONVOLUTIONS && good; k++)
        for (int f = 0; f < CHANNELS + k; f++)
            for (int i = 0; i < PIXELS; i++) {
                const float *const w = (const float *)n->values[filters[k]].constant->data + (size_t)f * CHANNELS;
                double sum = 0;
                for (int c = 0; c < CHANNELS; c++)
                    sum += (double)w[c] * (double)numbers[c * PIXELS + i];
                const double got = ((const float *)out[k].data)[f * PIXELS + i];
                CHECK(got == sum, "output %d, filter %d, pixel %d: %g, want %g", k, f, i, got, sum);
            }
    program_free(p);
}

/* Statistics that are inputs: they are a part of the plan, and a run on others has those. */
static void check_statistics(uint64_t *random) {
    static const int64_t image[] = {2, 3, 2, 2};
    enum { ALL = 2 * 3 * 2 * 2, RUNS = 3 };
    struct fl_network *const n = fl_network_new(FL_NET_ONNX);
    int made[5] = {part_value(n, 4, image)};
    for (int i = 1; i < 5; i++)
        made[i] = part_value(n, 1, &image[1]);
    const int y = part_node(n, "BatchNormalization", 5, made);
    part_ports(n, 5, made, 1, &y);
    program *const p = program_of(n);
    for (int run = 0; run < RUNS; run++) {
        float numbers[5][ALL];
        program_array in[5], out;
        for (int i = 0; i < 5; i++) {
            for (int k = 0; k < ALL; k++)
                numbers[i][k] = (float)(1 + check_random(random) % 9) / 4;
            in[i] = (program_array){.type = TENSOR_TYPE_F32, .ndim = 1, .shape = {3}, .data = numbers[i]};
        }
        in[0].ndim = 4;
        memcpy(in[0].shape, image, sizeof image);
        const bool good = !program_run(p, &out, in);
        CHECK(good, "run %d: %s", run, tensor_error());
        for (int k = 0; k < ALL && good; k++) {
            const int c = k / 4 % 3;
            const double want = ((double)numbers[0][k] - (double)numbers[3][c]) / sqrt((double)numbers[4][c] + 1e-5) *
                                    (double)numbers[1][c] +
                                (double)numbers[2][c];
            const double got = ((const float *)out.data)[k];
            CHECK(fabs(got - want) < 1e-5, "run %d, number %d: %g, want %g", run, k, got, want);
        }
    }
    program_free(p);
}

/* --- runs that fail ----------------------------------------------------------------------------------------------- */

static struct told {
    int count;
    tensor_status status;
    char message[500];
} told;

static void note_failure(tensor_status status, const char *message, void *context) {
    (void)context;
    told.count++;
    told.status = status;
    snprintf(told.message, sizeof told.message, "%s", message);
}

/* A run calls the hook once if it fails, with what it returns and a message that has these texts, and not at all if it
 * succeeds; the same once more, since no plan is left of the failure. */
static void check_told(program *p, const program_array *in, tensor_status expected, const char *first,
                       const char *second) {
    program_array out[OUTPUTS];
    for (int again = 0; again < 2; again++) {
        told = (struct told){.count = 0};
        tensor_set_error_hook(note_failure, NULL);
        const tensor_status status = program_run(p, out, in);
        tensor_set_error_hook(NULL, NULL);
        CHECK(status == expected && told.count == (expected != TENSOR_OK) && told.status == expected,
              "%s: status %d, expected %d; the hook was called %d times, with %d (%s)", first, (int)status,
              (int)expected, told.count, (int)told.status, told.message);
        CHECK(!expected || (!strcmp(told.message, tensor_error()) && strstr(told.message, first) &&
                            strstr(told.message, second)),
              "the message is \"%s\", expected \"%s\" and \"%s\"", told.message, first, second);
    }
}

static program *checked(struct fl_network *n) {
    CHECK(!fl_net_check(n), "%s", tensor_error());
    return program_of(n);
}

/* Inputs that do not suit the ports, and one that does after them. */
static void check_inputs_told(void) {
    static const int64_t open[] = {-1, 3, 4};
    static float numbers[2][COUNT];
    struct fl_network *const n = fl_network_new(FL_NET_ONNX);
    const int x = part_value(n, 3, open), z = part_value(n, 3, open), y = part_node(n, "Add", 2, (const int[]){x, z});
    n->values[x].dim_name[0] = n->values[z].dim_name[0] = "batch";
    part_ports(n, 2, (const int[]){x, z}, 1, &y);
    program *const p = checked(n);
    const program_array good = {.type = TENSOR_TYPE_F32, .ndim = 3, .shape = {2, 3, 4}, .data = numbers[0]};
    program_array in[2] = {good, good};
    in[1].type = TENSOR_TYPE_I32;
    check_told(p, in, TENSOR_E_ARGUMENT, "input v1", "int32, expected float32");
    in[1] = good;
    in[1].ndim = 2;
    check_told(p, in, TENSOR_E_SHAPE, "input v1", "2 dimensions, expected 3");
    in[1].ndim = PROGRAM_MAX_DIMS + 1;
    check_told(p, in, TENSOR_E_SHAPE, "input v1", "9 dimensions");
    in[1] = good;
    in[1].shape[2] = 5;
    check_told(p, in, TENSOR_E_SHAPE, "dimension 2 of input v1", "5, expected 4");
    in[1] = good;
    in[1].shape[0] = -2;
    check_told(p, in, TENSOR_E_SHAPE, "dimension 0 of input v1", "-2");
    in[1] = good;
    in[1].data = NULL;
    check_told(p, in, TENSOR_E_ARGUMENT, "input v1", "no data");
    in[1] = good;
    in[1].shape[0] = 1;
    check_told(p, in, TENSOR_E_SHAPE, "\"batch\"", "1 and 2");
    in[1] = good;
    check_told(p, in, TENSOR_OK, "", "");
    program_free(p);
}

/* Where the network fixes the first dimension of all its inputs, a multiple of it is taken, and the message says so;
 * where one is open, the others are as they are stated. */
static void check_batches_told(void) {
    static float numbers[2][COUNT];
    static const struct {
        int64_t first[2], given[2];
        tensor_status status;
        const char *message;
    } cases[] = {
        {{2, 2}, {2, 2}, TENSOR_OK, ""},
        {{2, 2}, {6, 6}, TENSOR_OK, ""},
        {{2, 2},
         {3, 3},
         TENSOR_E_SHAPE,
         "is 3, expected 2, or the same multiple of their first dimension for all inputs"},
        {{2, 2},
         {4, 6},
         TENSOR_E_SHAPE,
         "is 4, expected 2, or the same multiple of their first dimension for all inputs"},
        {{2, 0}, {6, 0}, TENSOR_OK, ""},
        {{2, 0}, {5, 0}, TENSOR_E_SHAPE, "is 5, expected 2 or a multiple of it"},
        {{2, -1}, {6, 6}, TENSOR_E_SHAPE, "is 6, expected 2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const int inputs = cases[i].first[1] ? 2 : 1;
        struct fl_network *const n = fl_network_new(FL_NET_ONNX);
        int x[2];
        for (int k = 0; k < inputs; k++)
            x[k] = part_value(n, 2, (const int64_t[]){cases[i].first[k], 4});
        const int y = part_node(n, inputs == 2 ? "Add" : "Relu", inputs, x);
        part_ports(n, inputs, x, 1, &y);
        program *const p = checked(n);
        program_array in[2];
        for (int k = 0; k < inputs; k++)
            in[k] = (program_array){TENSOR_TYPE_F32, 2, {cases[i].given[k], 4}, numbers[k]};
        check_told(p, in, cases[i].status, "", cases[i].message);
        CHECK(!cases[i].status || cases[i].first[1] >= 0 || !strstr(tensor_error(), "multiple"), "\"%s\"",
              tensor_error());
        program_free(p);
    }
}

/* Nodes that have no result: shapes that do not go together, an operator or a combination of types that the library
 * lacks, too few operands. */
static void check_nodes_told(void) {
    static const struct {
        const char *op;
        int count;
        tensor_status status;
        const char *message;
    } nodes[] = {{"Add", 2, TENSOR_E_SHAPE, "node n1 (Add): "},
                 {"MatMul", 2, TENSOR_E_SHAPE, "node n1 (MatMul): "},
                 {"Strange", 2, TENSOR_E_UNSUPPORTED, "node n1 (Strange): "},
                 {"Add", 1, TENSOR_E_DATA, "node n1 (Add): "},
                 {"If", 1, TENSOR_E_UNSUPPORTED, "node n1 (If): "}};
    static const int64_t open[] = {-1, -1};
    static float numbers[2][COUNT];
    for (size_t i = 0; i < sizeof nodes / sizeof nodes[0]; i++) {
        struct fl_network *const n = fl_network_new(FL_NET_ONNX);
        const int x[] = {part_value(n, 2, open), part_value(n, 2, open)}, neg = part_node(n, "Neg", 1, x);
        const int y = part_node(n, nodes[i].op, nodes[i].count, (const int[]){neg, x[1]});
        part_ports(n, 2, x, 1, &y);
        program *const p = checked(n);
        program_array in[2];
        for (int k = 0; k < 2; k++)
            in[k] = (program_array){.type = TENSOR_TYPE_F32, .ndim = 2, .shape = {2, 3 + k}, .data = numbers[k]};
        check_told(p, in, nodes[i].status, nodes[i].message, "");
        program_free(p);
    }
}

/* A shape that is an input: the plan without its numbers cannot be made, the one with them can, and is all that the
 * caller hears of. */
static void check_lists_told(void) {
    static const int64_t image[] = {2, 3, 4}, list[] = {2};
    static float numbers[COUNT];
    int64_t to[] = {4, 6};
    struct fl_network *const n = fl_network_new(FL_NET_ONNX);
    const int x[] = {part_value(n, 3, image), part_value(n, 1, list)}, y = part_node(n, "Reshape", 2, x);
    n->values[x[1]].type = TENSOR_TYPE_I64;
    part_ports(n, 2, x, 1, &y);
    program *const p = checked(n);
    program_array in[] = {{.type = TENSOR_TYPE_F32, .ndim = 3, .shape = {2, 3, 4}, .data = numbers},
                          {.type = TENSOR_TYPE_I64, .ndim = 1, .shape = {2}, .data = to}};
    check_told(p, in, TENSOR_OK, "", "");
    to[1] = 5;
    check_told(p, in, TENSOR_E_SHAPE, "node n0 (Reshape): ", "");
    to[1] = 6;
    check_told(p, in, TENSOR_OK, "", "");
    program_free(p);
}

/* A step that fails in a run: a list of indices, which is known only then. In a batch of two, too. */
static void check_steps_told(void) {
    static const int64_t image[] = {1, 3, 4}, list[] = {1, 2};
    static float numbers[2 * COUNT];
    int64_t index[] = {0, 2, 1, 0};
    struct fl_network *const n = fl_network_new(FL_NET_ONNX);
    const int x[] = {part_value(n, 3, image), part_value(n, 2, list)};
    const int gathered = part_node(n, "Gather", 2, x);
    CHECK(!fl_net_set_int(n, &n->graph.nodes[0], "axis", 1), "%s", tensor_error());
    n->values[x[1]].type = TENSOR_TYPE_I64;
    part_ports(n, 2, x, 1, &gathered);
    program *const p = checked(n);
    for (int batch = 1; batch <= 2; batch++) {
        program_array in[] = {{.type = TENSOR_TYPE_F32, .ndim = 3, .shape = {batch, 3, 4}, .data = numbers},
                              {.type = TENSOR_TYPE_I64, .ndim = 2, .shape = {batch, 2}, .data = index}};
        index[2 * batch - 1] = 2;
        check_told(p, in, TENSOR_OK, "", "");
        index[2 * batch - 1] = 3;
        check_told(p, in, TENSOR_E_DATA, "node n0 (Gather): ", "3");
        index[2 * batch - 1] = 2;
        check_told(p, in, TENSOR_OK, "", "");
    }
    program_free(p);
}

static long allocations_left;

static void *failing_allocate(unsigned long size, unsigned long alignment) {
    return --allocations_left < 0 ? NULL : aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}

/* Every allocation of a first run fails once. */
static void check_memory_told(void) {
    static const int64_t image[] = {1, 2, 4, 4}, filters[] = {3, 2, 2, 2};
    static float numbers[32];
    const program_array in = {.type = TENSOR_TYPE_F32, .ndim = 4, .shape = {1, 2, 4, 4}, .data = numbers};
    program_array out;
    tensor_status status = TENSOR_E_MEMORY;
    long which = 0;
    tensor_set_threads(1);
    allocations_left = 1L << 40;
    tensor_set_allocator(failing_allocate, free);
    for (; status && which < 1000; which++) {
        uint64_t random = 3;
        allocations_left = 1L << 40;
        struct fl_network *const n = fl_network_new(FL_NET_ONNX);
        const int x = part_value(n, 4, image), w = part_constant(n, 4, filters, &random);
        int y = part_node(n, "Conv", 2, (const int[]){x, w});
        y = part_node(n, "Erf", 1, &y);
        part_ports(n, 1, &x, 1, &y);
        program *const p = checked(n);
        told = (struct told){.count = 0};
        tensor_set_error_hook(note_failure, NULL);
        allocations_left = which;
        status = program_run(p, &out, &in);
        allocations_left = 1L << 40;
        tensor_set_error_hook(NULL, NULL);
        CHECK(status == told.status && told.count == (status != TENSOR_OK) &&
                  (!status || (status == TENSOR_E_MEMORY && !strcmp(told.message, tensor_error()))),
              "allocation %ld: status %d, the hook was called %d times, with %d (%s)", which, (int)status, told.count,
              (int)told.status, told.message);
        CHECK(!program_run(p, &out, &in), "after allocation %ld: %s", which, tensor_error());
        program_free(p);
    }
    CHECK(!status && which > 5, "%ld allocations", which);
}

int main(void) {
    uint64_t random = 28;
    check_inputs_told();
    check_batches_told();
    check_nodes_told();
    check_lists_told();
    check_steps_told();
    check_permuted_outputs(&random);
    check_statistics(&random);
    for (int i = 0; i < 200; i++)
        check_random_network(i, &random);
    check_memory_told();
    return check_summary();
}
