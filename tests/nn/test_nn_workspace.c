/* The workspace of the calls of a training step is planned when the network is compiled: for every variant, model,
 * batch, number of threads and kernel set each call finds its own in the arena, in training and in evaluation, and
 * allocates neither memory of a thread nor a block of the queue. If the plan no longer fits (more threads, other
 * kernels), the results are the same. */
#include "check.h"
#include "layer_network.h"
#include "core/queue/call_memory.h"
#include "core/base/fail.h"
#include "core/queue/queue.h"
#include "flexlab/nn.h"
#include "nn/graph/nn_graph.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { CLASSES = 4, LARGEST = 400 * 8 * 8 * 3 };
static float images[LARGEST];
static int32_t labels[400];

static const char *const models[] = {"all layers", "mlp2", "cnn6", "resnet8", "resnet20"};
enum { MODELS = 5 };

static nn_graph *network(const char *variant, const char *model, int batch, const char *device) {
    nn_graph *g = nn_graph_new(&(nn_config){
        .variant = variant, .batch = batch, .seed = 1, .momentum = 0.9f, .weight_decay = 1e-4f, .device = device});
    CHECK(g && !nn_compile(g,
                           strcmp(model, "all layers") ? nn_model(g, model, 8, 8, 3, CLASSES) : all_layers(g, CLASSES)),
          "%s", tensor_error());
    return g;
}

/* --- a device of addresses alone: its queue is inspected, and nothing runs ---------------------------------------- */

static struct {
    size_t next;             /* address to be given */
    const nn_graph *network; /* whose step it is; NULL: none */
    const char *what;
    long calls, refuse_at, outside, largest;
} paper;

static void *paper_allocate(struct tensor_device *device, size_t bytes) {
    (void)device;
    paper.next += (bytes + 4095) / 4096 * 4096;
    return (char *)fl_nowhere((size_t)1 << 60) + paper.next - (bytes + 4095) / 4096 * 4096;
}
static void paper_release(struct tensor_device *device, void *memory) {
    (void)device, (void)memory;
}

static bool overlaps(const struct fl_args *args, const struct fl_view *view) {
    const uintptr_t a = (uintptr_t)args->workspace, b = (uintptr_t)view->data;
    const uintptr_t bytes = (uintptr_t)view->count * (uintptr_t)args->format->bytes;
    return view->data && a < b + bytes && b < a + args->workspace_bytes;
}

/* The views of operands beside in[]. */
static bool overlaps_more(const struct fl_args *args) {
    if (args->op >= FL_OP_CROSS_ENTROPY_WITH && args->op <= FL_OP_WASSERSTEIN)
        return overlaps(args, &args->p.loss.targets_f32);
    if (args->op == FL_OP_AFFINE_COEFFICIENTS)
        return overlaps(args, &args->p.batch_norm.gamma) || overlaps(args, &args->p.batch_norm.beta);
    return fl_is_product(args->op) &&
           (overlaps(args, &args->p.product.epilogue.bias) || overlaps(args, &args->p.product.epilogue.residual));
}

static tensor_status paper_submit(struct fl_queue *queue, const struct fl_call *call) {
    (void)queue;
    const struct fl_args *args = call->args;
    if (++paper.calls == paper.refuse_at)
        return fl_fail(TENSOR_E_IO, "refused");
    paper.outside += !paper.network && (call->kind == FL_CALL_RUN || call->kind == FL_CALL_WRITE);
    if (!paper.network || !args || !args->workspace_bytes)
        return TENSOR_OK;
    const uintptr_t arena = (uintptr_t)paper.network->arena, at = (uintptr_t)args->workspace;
    CHECK(at >= arena && at + args->workspace_bytes <= arena + paper.network->arena_bytes,
          "%s, %s: %zu bytes of workspace outside the arena", paper.what, fl_op_name(args->op), args->workspace_bytes);
    CHECK(!overlaps(args, &args->out) && !overlaps(args, &args->in[0]) && !overlaps(args, &args->in[1]) &&
              !overlaps(args, &args->in[2]) && !overlaps_more(args),
          "%s, %s: the workspace is an operand's memory", paper.what, fl_op_name(args->op));
    paper.largest = (long)args->workspace_bytes > paper.largest ? (long)args->workspace_bytes : paper.largest;
    return TENSOR_OK;
}
static tensor_status paper_bytes(struct fl_queue *queue, void *to, const void *from, size_t bytes) {
    (void)queue, (void)to, (void)from, (void)bytes;
    return TENSOR_OK;
}
static tensor_status paper_get(struct fl_queue *queue, void *to, const void *from, size_t bytes) {
    (void)queue, (void)from;
    memset(to, 0, bytes);
    return TENSOR_OK;
}
static tensor_status paper_wait(struct fl_queue *queue) {
    (void)queue;
    return TENSOR_OK;
}
static bool paper_find(struct tensor_device *device, const struct fl_format *format, enum fl_op op,
                       struct fl_choice *choice) {
    (void)device;
    return !fl_dispatch(format, op, TENSOR_EXACT, choice);
}

static struct fl_queue paper_queue;
static struct tensor_device paper_device = {.name = "paper",
                                            .allocate = paper_allocate,
                                            .release = paper_release,
                                            .submit = paper_submit,
                                            .put = paper_bytes,
                                            .get = paper_get,
                                            .copy = paper_bytes,
                                            .wait = paper_wait,
                                            .find = paper_find,
                                            .queue = &paper_queue};

static bool has_own_block(void) {
    return paper_queue.own[FL_TEMPORARY].memory || paper_queue.own[FL_WORKSPACE].memory;
}

static bool has_planned_block(const struct fl_queue *queue) {
    return queue->planned[FL_TEMPORARY].memory || queue->planned[FL_WORKSPACE].memory;
}

static void on_paper(const char *variant, const char *model, int batch, int threads, const char *row) {
    char what[100];
    snprintf(what, sizeof what, "%s %s batch %d, %d threads, %s", variant, model, batch, threads,
             row ? row : "best row");
    CHECK(!tensor_set_threads(threads) && !tensor_set_backend(row), "%s", tensor_error());
    paper.outside = 0;
    nn_graph *g = network(variant, model, batch, "paper");
    CHECK(!paper.outside, "%s: compiling submitted %ld calls of kernels", what, paper.outside);
    paper.what = what;
    paper.network = g;
    double loss;
    const long before = paper.calls;
    CHECK(!nn_train_step(NULL, NULL, g, &(nn_batch){.images = images, .labels = labels}, 0.1f) &&
              !nn_evaluate(&loss, NULL, g, &(nn_batch){.images = images, .labels = labels, .count = 1}),
          "%s", tensor_error());
    CHECK(paper.calls > before + 10, "%s: %ld calls", what, paper.calls - before);
    CHECK(!has_own_block(), "%s: the queue made blocks of %zu and %zu bytes", what, paper_queue.own[FL_TEMPORARY].bytes,
          paper_queue.own[FL_WORKSPACE].bytes);
    CHECK(!has_planned_block(&paper_queue), "%s: the queue still holds addresses of the arena", what);
    paper.network = NULL;
    nn_graph_free(g);
}

/* A step that fails at any of its calls leaves no address of the arena in the queue. */
static void failing_calls(void) {
    nn_graph *g = network("flex16+5", "all layers", 2, "paper");
    paper.calls = 0;
    CHECK(!nn_train_step(NULL, NULL, g, &(nn_batch){.images = images, .labels = labels}, 0.1f), "%s", tensor_error());
    const long total = paper.calls;
    for (long n = 1; n <= total; n++) {
        paper.calls = 0;
        paper.refuse_at = n;
        CHECK(nn_train_step(NULL, NULL, g, &(nn_batch){.images = images, .labels = labels}, 0.1f) == TENSOR_E_IO &&
                  strstr(tensor_error(), "refused"),
              "call %ld of %ld: %s", n, total, tensor_error());
        CHECK(!has_planned_block(&paper_queue), "call %ld of %ld fails: the queue still holds addresses of the arena",
              n, total);
    }
    paper.refuse_at = 0;
    nn_graph_free(g);
}

/* --- the host ----------------------------------------------------------------------------------------------------- */

static long requests, alive;

static void *counting_allocate(unsigned long size, unsigned long alignment) {
    void *block = NULL;
    __atomic_add_fetch(&requests, 1, __ATOMIC_RELAXED);
    if (posix_memalign(&block, alignment, size))
        return NULL;
    __atomic_add_fetch(&alive, 1, __ATOMIC_RELAXED);
    return block;
}
static void counting_release(void *block) {
    __atomic_sub_fetch(&alive, 1, __ATOMIC_RELAXED);
    free(block);
}

struct first_step {
    nn_graph *g;
    tensor_status status;
    long allocated, kept;
    double loss;
};

/* Runs on a thread without any memory yet, whose blocks live as long as the thread. */
static void *run_first_step(void *pointer) {
    struct first_step *s = pointer;
    const long before = requests;
    s->status = nn_train_step(&s->loss, NULL, s->g, &(nn_batch){.images = images, .labels = labels}, 0.1f);
    s->allocated = requests - before;
    const long held = alive;
    if (!s->status)
        s->status = nn_evaluate(&s->loss, NULL, s->g, &(nn_batch){.images = images, .labels = labels, .count = 1});
    s->kept = alive - held;
    CHECK(!has_planned_block(fl_host_queue()), "the queue still holds addresses of the arena");
    return NULL;
}

static struct first_step first_step(nn_graph *g) {
    struct first_step s = {.g = g};
    pthread_t fresh;
    CHECK(!pthread_create(&fresh, NULL, run_first_step, &s) && !pthread_join(fresh, NULL), "no thread");
    CHECK(!s.status, "%s", tensor_error());
    return s;
}

static void on_host(const char *variant, const char *model, int batch, int threads, const char *row) {
    CHECK(!tensor_set_threads(threads) && !tensor_set_backend(row), "%s", tensor_error());
    nn_graph *g = network(variant, model, batch, NULL);
    const struct first_step s = first_step(g);
    CHECK(!s.allocated && !s.kept,
          "%s %s batch %d, %d threads, %s: the first step allocates %ld times, evaluation keeps %ld blocks", variant,
          model, batch, threads, row ? row : "best row", s.allocated, s.kept);
    nn_graph_free(g);
}

/* Compiled for one thread and the reference kernels, run on more threads and the best kernels: memory of the thread is
 * used, and the results are those of the planned memory. */
static void outgrown(const char *variant) {
    enum { BATCH = 128 };
    nn_graph *g[2];
    for (int i = 0; i < 2; i++) {
        CHECK(!tensor_set_threads(i ? 1 : 7) && !tensor_set_backend(i ? "ref" : NULL), "%s", tensor_error());
        g[i] = network(variant, "cnn6", BATCH, NULL);
    }
    CHECK(!tensor_set_threads(7) && !tensor_set_backend(NULL), "%s", tensor_error());
    const struct first_step planned = first_step(g[0]), grown = first_step(g[1]);
    CHECK(!planned.allocated && grown.allocated, "%s: %ld and %ld allocations, expected none and some", variant,
          planned.allocated, grown.allocated);
    const size_t bytes = nn_state_bytes(g[0]);
    unsigned char *a = malloc(bytes), *b = malloc(bytes);
    CHECK(planned.loss == grown.loss && !nn_state_save(a, bytes, g[0]) && !nn_state_save(b, bytes, g[1]) &&
              !memcmp(a, b, bytes),
          "%s: another result where the plan does not fit", variant);
    free(a);
    free(b);
    nn_graph_free(g[0]);
    nn_graph_free(g[1]);
}

int main(void) {
    static const int batches[] = {1, 128, 400};
    tensor_set_allocator(counting_allocate, counting_release);
    paper_queue.device = &paper_device;
    CHECK(fl_device_add(&paper_device), "no room for a device");
    uint64_t seed = 1;
    for (int i = 0; i < LARGEST; i++)
        images[i] = (float)(check_random(&seed) >> 40) * 0x1p-23f - 1;
    for (int i = 0; i < 400; i++)
        labels[i] = (int32_t)(check_random(&seed) % CLASSES);
    for (int v = 0; nn_variant_at(v); v++) {
        const char *variant = nn_variant_at(v)->name;
        for (int m = 0; m < MODELS; m++)
            for (int b = 0; b < 3; b++)
                for (int threads = 1; threads <= 2; threads++) {
                    on_paper(variant, models[m], batches[b], threads, "ref");
                    on_paper(variant, models[m], batches[b], threads, NULL);
                    if (m < 4)
                        on_host(variant, models[m], batches[b], threads, NULL);
                    if (m == 0)
                        on_host(variant, models[m], batches[b], threads, "ref");
                }
    }
    CHECK(paper.largest > 100000, "the largest workspace has %ld bytes", paper.largest);
    failing_calls();
    outgrown("fp32");
    outgrown("flex16+5-sr");
    tensor_set_threads(0);
    return check_summary();
}
