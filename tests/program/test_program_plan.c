/* Plans of random networks: tensors that live at the same time never share memory, and all lie in the arena. The
 * results, sums of small integers, are those of a witness that has memory for every value. */
#include "network_parts.h"
#include "program/plan/plan_internal.h"

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

int main(void) {
    uint64_t random = 28;
    check_permuted_outputs(&random);
    for (int i = 0; i < 200; i++)
        check_random_network(i, &random);
    return check_summary();
}
