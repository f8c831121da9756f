/* The memory plan: values alive at one time and the workspaces of the calls of that time never overlap, a plan is never
 * worse than the sum, and close to the lower bound (the largest number of bytes alive at one position). Training steps
 * in flex16+5 take no more memory than recorded. */
#include "check.h"
#include "core/base/memory.h"
#include "core/tensor/tensor_object.h"
#include "flexlab/nn.h"
#include "nn/compile/nn_compile.h"
#include "node_rows.h"
#include <string.h>

static bool apart(const struct fl_block *a, const struct fl_block *b) {
    return a->last < b->first || b->last < a->first || a->offset + a->bytes <= b->offset ||
           b->offset + b->bytes <= a->offset;
}

/* Checks the positions of blocks; returns the lower bound, and in *sum the bytes of all. */
static size_t check_blocks(const char *what, const struct fl_block *blocks, int n, size_t total, size_t *sum) {
    size_t most = 0;
    *sum = 0;
    for (int i = 0; i < n; i++) {
        size_t alive = 0;
        for (int k = 0; k < n; k++) {
            if (blocks[k].first <= blocks[i].first && blocks[i].first <= blocks[k].last)
                alive += blocks[k].bytes;
            if (k < i)
                CHECK(apart(&blocks[i], &blocks[k]), "%s: blocks %d and %d of %d overlap", what, i, k, n);
        }
        most = alive > most ? alive : most;
        *sum += (blocks[i].bytes + FL_ALIGNMENT - 1) / FL_ALIGNMENT * FL_ALIGNMENT;
        CHECK(blocks[i].offset % FL_ALIGNMENT == 0 && blocks[i].offset + blocks[i].bytes <= total,
              "%s: block %d at %zu of %zu", what, i, blocks[i].offset, total);
    }
    CHECK(total >= most && total <= *sum, "%s: %zu bytes, between %zu and %zu expected", what, total, most, *sum);
    return most;
}

static void random_blocks(uint64_t seed) {
    uint64_t state = seed;
    struct fl_block blocks[60];
    char what[40];
    int n = 1 + (int)(check_random(&state) % 60);
    for (int i = 0; i < n; i++) {
        int first = (int)(check_random(&state) % 40), length = (int)(check_random(&state) % 12);
        blocks[i] = (struct fl_block){1 + check_random(&state) % 5000, first, first + length, 0};
    }
    size_t total, sum;
    snprintf(what, sizeof what, "random seed=%llu", (unsigned long long)seed);
    CHECK(!fl_pack(blocks, n, &total), "%s", tensor_error());
    check_blocks(what, blocks, n, total, &sum);
}

/* Adds the workspaces of the calls of every position after n blocks of values; returns the number of blocks. *most: the
 * sum of the largest of each kind. */
static int add_calls(const nn_graph *g, struct fl_block *blocks, int n, size_t *most) {
    size_t largest[FL_CALL_MEMORIES] = {0};
    for (int p = 0; p < fl_positions(g); p++)
        for (int k = 0; k < FL_CALL_MEMORIES; k++) {
            const struct fl_call_block *calls = &g->positions[p].calls[k];
            CHECK(calls->bytes == g->positions[p].need[k] && !calls->memory == !calls->bytes, "position %d: %zu of %zu",
                  p, calls->bytes, g->positions[p].need[k]);
            if (calls->bytes)
                blocks[n++] = (struct fl_block){calls->bytes, p, p, (size_t)(calls->memory - (char *)g->arena)};
            const size_t bytes = fl_line_bytes(calls->bytes);
            largest[k] = bytes > largest[k] ? bytes : largest[k];
        }
    *most = 0;
    for (int k = 0; k < FL_CALL_MEMORIES; k++)
        *most += largest[k];
    return n;
}

static const struct fl_value *base_of(const nn_graph *g, int value) {
    return &g->values[g->values[value].base];
}

/* The claims that follow from the order of a step: an output lives from its forward at least to its last reader, the
 * gradient of an output at least until backward of its node. */
static void node_plan(const nn_graph *g, const char *model, int i) {
    const struct fl_node *node = &g->nodes[i];
    const int backward = 2 * g->count - i;
    for (int k = 0; k < node->outputs; k++) {
        const struct fl_output *output = &node->output[k];
        const struct fl_value *y = base_of(g, output->y);
        const bool relu = k < node->layer->relu;
        CHECK(y->first <= i && y->last >= i, "%s: output of %s", model, node->name);
        CHECK(!output->gated || relu, "%s: %s is gated without relu", model, node->name);
        CHECK(!relu || !node->learns || output->gated || y->last >= backward, "%s: %s does not outlive its gradient",
              model, node->name);
        CHECK(output->dy < 0 || (base_of(g, output->dy)->first < backward && base_of(g, output->dy)->last >= backward),
              "%s: gradient of %s", model, node->name);
    }
    for (int k = 0; k < node->inputs; k++) {
        const struct fl_input *input = &node->input[k];
        const struct fl_output *x = fl_output_of(g, input->x);
        CHECK(base_of(g, x->y)->last >= (k < node->layer->saves_x && node->learns ? backward : i), "%s: input of %s",
              model, node->name);
        CHECK(!fl_node_of(g, input->x)->learns || x->dy >= 0, "%s: no gradient for %s", model, x->name);
        CHECK(input->gate < 0 || (input->gate == x->y && base_of(g, input->gate)->last >= backward),
              "%s: gate of input %d of %s", model, k, node->name);
    }
}

/* The plan of a model. */
static void model_plan(const char *variant, const char *model, int batch, double most_share) {
    nn_graph *g = nn_graph_new(&(nn_config){.variant = variant, .batch = batch, .seed = 1});
    CHECK(!nn_compile(g, strcmp(model, "mixed") ? nn_model(g, model, 32, 32, 3, 10)
                                                : mixed_network(g, nn_input(g, 8, 8, 3), 10)),
          "%s", tensor_error());
    struct fl_block blocks[4000];
    int n = 0;
    for (int i = 0; i < g->value_count; i++) {
        const struct fl_value *v = &g->values[i];
        const char *memory = v->t->storage->data;
        CHECK(memory == (const char *)g->arena + g->values[v->base].offset, "%s value %d lies elsewhere", model, i);
        CHECK(!v->evaluate || v->evaluate->storage->data == memory, "%s value %d: evaluation lies elsewhere", model, i);
        if (v->base == i && n < 2000)
            blocks[n++] = (struct fl_block){tensor_bytes(v->t), v->first, v->last, v->offset};
    }
    for (int i = 0; i < g->count; i++)
        node_plan(g, model, i);
    size_t sum, all, calls, alone;
    const int with_calls = add_calls(g, blocks, n, &calls);
    const size_t arena = g->arena_bytes, most = check_blocks(model, blocks, with_calls, arena, &all);
    CHECK(with_calls > n && calls, "%s: no memory of calls was planned", model);
    CHECK(!fl_pack(blocks, n, &alone), "%s", tensor_error());
    CHECK(nn_arena_bytes(g) == (int64_t)alone && nn_workspace_bytes(g) == (int64_t)arena - (int64_t)alone,
          "%s: said to have %lld and %lld bytes", model, (long long)nn_arena_bytes(g),
          (long long)nn_workspace_bytes(g));
    check_blocks(model, blocks, n, alone, &sum);
    CHECK((double)alone <= most_share * (double)sum, "%s %s: values in %zu of %zu bytes", variant, model, alone, sum);
    CHECK(arena <= alone + calls, "%s %s: arena %zu bytes, values alone %zu, calls %zu", variant, model, arena, alone,
          calls);
    printf("%s %s batch %d: arena %zu bytes, lower bound %zu; values alone %zu, calls %zu\n", variant, model, batch,
           arena, most, alone, calls);
    nn_graph_free(g);
}

/* A step's memory beside the weights, in MiB, of kernels without matrix tiles, which every machine can plan for. */
static void memory_of_step(const char *model, int batch, int threads, const char *backend, double most) {
    CHECK(!tensor_set_threads(threads) && !tensor_set_backend(backend), "%s", tensor_error());
    const bool text = nn_model_reads_text(model);
    nn_graph *g = nn_graph_new(&(nn_config){.variant = "flex16+5",
                                            .optimiser = text ? "adamw" : "sgd",
                                            .batch = batch,
                                            .seed = 1,
                                            .momentum = text ? 0 : 0.9f});
    CHECK(g && !nn_compile(g, text ? nn_model_text(g, model, 128, 256) : nn_model(g, model, 32, 32, 3, 10)), "%s",
          tensor_error());
    const double bytes = (double)(nn_arena_bytes(g) + nn_workspace_bytes(g)) / (1 << 20);
    CHECK(bytes <= most, "%s batch %d, %d threads, %s: %.2f MiB beside the weights, at most %.2f expected", model,
          batch, threads, backend, bytes, most);
    nn_graph_free(g);
}

static void memory_of_steps(void) {
    static const struct {
        const char *model;
        int batch;
        double most[2]; /* MiB: with one thread, with two */
    } steps[] = {{"vgg11", 64, {67, 68}},
                 {"resnet20", 128, {97, 98}},
                 {"mobilenet", 64, {110, 112}},
                 {"gpt", 16, {102, 102}},
                 {"lstm-char", 32, {39, 39}}};
    static const char *const backends[] = {"portable", "avx512"};
    for (int i = 0; i < (int)(sizeof steps / sizeof *steps); i++)
        for (int threads = 1; threads <= 2; threads++)
            for (int b = 0; b < 2; b++)
                memory_of_step(steps[i].model, steps[i].batch, threads, backends[b], steps[i].most[threads - 1]);
    CHECK(!tensor_set_threads(0) && !tensor_set_backend(NULL), "%s", tensor_error());
}

int main(void) {
    for (uint64_t seed = 1; seed <= 300; seed++)
        random_blocks(seed);
    model_plan("fp32", "mlp2", 2, 1);
    model_plan("fp32", "cnn6", 2, 0.8);
    model_plan("fp32", "resnet20", 2, 0.7);
    model_plan("flex16+5", "resnet110", 2, 0.7);
    model_plan("flex16+5", "resnet20", 128, 0.7);
    model_plan("flex16+5", "mixed", 100, 0.95);
    memory_of_steps();
    return check_summary();
}
