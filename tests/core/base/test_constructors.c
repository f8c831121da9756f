/* Errors of constructors, which cannot return one: after NULL, or node -1, tensor_error_status() is the status of that
 * very failure, for every constructor and every cause. */
#include "data_files.h"
#include "flexlab/flexlab.h"
#include <math.h>
#include <stdalign.h>

/* Causes a failure of another kind first, so that an old status cannot be mistaken for the new one. */
static void fail_otherwise(tensor_status status) {
    tensor_format none;
    if (status == TENSOR_E_ARGUMENT)
        tensor_free(tensor_new(FMT_FP32, TENSOR_SHAPE(0)));
    else
        (void)tensor_format_find(&none, "");
}

#define NOT_MADE(call, status)                                                                                         \
    do {                                                                                                               \
        fail_otherwise(status);                                                                                        \
        CHECK(tensor_error_status() != (status), "not prepared");                                                      \
        CHECK(!(call), #call " was made");                                                                             \
        CHECK(tensor_error_status() == (status), #call ": status %s, expected %s: %s",                                 \
              tensor_status_name(tensor_error_status()), tensor_status_name(status), tensor_error());                  \
    } while (0)

static void tensors(void) {
    alignas(64) static char memory[256];
    const int64_t two[2] = {2, 2}, four = 4;
    NOT_MADE(tensor_new(FMT_NONE, 1, two), TENSOR_E_FORMAT);
    NOT_MADE(tensor_new(FMT_FP32, 0, two), TENSOR_E_SHAPE);
    NOT_MADE(tensor_new(FMT_FP32, TENSOR_MAX_DIMS + 1, two), TENSOR_E_SHAPE);
    NOT_MADE(tensor_new(FMT_FP32, TENSOR_SHAPE(2, -1)), TENSOR_E_SHAPE);
    NOT_MADE(tensor_new(FMT_FP32, TENSOR_SHAPE(INT64_MAX, 2)), TENSOR_E_SHAPE);
    NOT_MADE(tensor_new(FMT_FP32, 2, NULL), TENSOR_E_ARGUMENT);
    NOT_MADE(tensor_new_on(FMT_FP32, 2, two, NULL, 64), TENSOR_E_ARGUMENT);
    NOT_MADE(tensor_new_on(FMT_FP32, 2, two, memory, 15), TENSOR_E_ARGUMENT);
    NOT_MADE(tensor_new_on(FMT_FP32, 2, two, memory + 4, 64), TENSOR_E_ARGUMENT);
    NOT_MADE(tensor_new_on(FMT_NONE, 2, two, memory, 64), TENSOR_E_FORMAT);
    NOT_MADE(tensor_new_on(FMT_FP32, 7, two, memory, 64), TENSOR_E_SHAPE);
    tensor *base = tensor_new(FMT_FLEX16_5, 1, &four);
    CHECK(base, "%s", tensor_error());
    NOT_MADE(tensor_new_view(NULL, 2, two), TENSOR_E_ARGUMENT);
    NOT_MADE(tensor_new_view(base, 2, NULL), TENSOR_E_ARGUMENT);
    NOT_MADE(tensor_new_view(base, 0, two), TENSOR_E_SHAPE);
    NOT_MADE(tensor_new_view(base, 1, two), TENSOR_E_SHAPE);
    tensor_free(base);
}

static void graphs(void) {
    NOT_MADE(nn_graph_new(NULL), TENSOR_E_ARGUMENT);
    NOT_MADE(nn_graph_new(&(nn_config){.batch = 1}), TENSOR_E_ARGUMENT);
    NOT_MADE(nn_graph_new(&(nn_config){.variant = "fp33", .batch = 1}), TENSOR_E_ARGUMENT);
    NOT_MADE(nn_graph_new(&(nn_config){.variant = "fp32"}), TENSOR_E_ARGUMENT);
    NOT_MADE(nn_graph_new(&(nn_config){.variant = "fp32", .batch = 1, .momentum = NAN}), TENSOR_E_ARGUMENT);
    NOT_MADE(nn_graph_new(&(nn_config){.variant = "fp32", .batch = 1, .weight_decay = INFINITY}), TENSOR_E_ARGUMENT);
    NOT_MADE(nn_graph_new(&(nn_config){.variant = "fp32", .batch = 1, .predictor = "paper"}), TENSOR_E_ARGUMENT);
    NOT_MADE(nn_graph_new(&(nn_config){.variant = "dfp16", .batch = 1, .predictor = "?"}), TENSOR_E_ARGUMENT);
    NOT_MADE(nn_variant_find(NULL), TENSOR_E_ARGUMENT);
    NOT_MADE(nn_variant_find("fp33"), TENSOR_E_ARGUMENT);
}

/* A graph records its first failure, and every further call repeats it. */
static void nodes(void) {
    nn_graph *g;
#define FIRST(call, status)                                                                                            \
    g = nn_graph_new(&(nn_config){.variant = "fp32", .batch = 2});                                                     \
    NOT_MADE((call) >= 0, status);                                                                                     \
    NOT_MADE(nn_input(g, 4, 4, 3) >= 0, status);                                                                       \
    NOT_MADE(nn_compile(g, 0) == TENSOR_OK, status);                                                                   \
    nn_graph_free(g)
    FIRST(nn_input(g, 0, 4, 3), TENSOR_E_SHAPE);
    FIRST(nn_linear(g, "fc", 7, 10, false), TENSOR_E_ARGUMENT);
    FIRST(nn_linear(g, NULL, nn_input(g, 4, 4, 3), 10, false), TENSOR_E_ARGUMENT);
    FIRST(nn_linear(g, "fc", nn_input(g, 4, 4, 3), 0, false), TENSOR_E_ARGUMENT);
    FIRST(nn_conv2d(g, "conv", nn_input(g, 4, 4, 3), 8, 9, NULL), TENSOR_E_SHAPE);
    FIRST(nn_model(g, "resnet21", 32, 32, 3, 10), TENSOR_E_ARGUMENT);
    FIRST(nn_model(g, "nosuch", 32, 32, 3, 10), TENSOR_E_ARGUMENT);
    FIRST(nn_model(g, "mlp2", 32, 32, 3, 1), TENSOR_E_ARGUMENT);
    NOT_MADE(nn_input(NULL, 4, 4, 3) >= 0, TENSOR_E_ARGUMENT);
    NOT_MADE(nn_model(NULL, "mlp2", 32, 32, 3, 10) >= 0, TENSOR_E_ARGUMENT);
}

static data_set *open_folder(const char *kind, data_split split) {
    char specification[PATH_MAX];
    snprintf(specification, sizeof specification, "%s:%s", kind, folder);
    return data_open(specification, split);
}

static void sets(void) {
    NOT_MADE(data_open(NULL, DATA_TRAIN), TENSOR_E_ARGUMENT);
    NOT_MADE(data_open("synthetic", (data_split)2), TENSOR_E_ARGUMENT);
    NOT_MADE(data_open("nosuch", DATA_TRAIN), TENSOR_E_ARGUMENT);
    NOT_MADE(data_open("synthetic:train=0", DATA_TRAIN), TENSOR_E_ARGUMENT);
    NOT_MADE(data_open("synthetic:trains=1", DATA_TRAIN), TENSOR_E_ARGUMENT);
    NOT_MADE(data_open("cifar10", DATA_TRAIN), TENSOR_E_ARGUMENT);
    NOT_MADE(data_open("idx:", DATA_TRAIN), TENSOR_E_ARGUMENT);
    NOT_MADE(open_folder("cifar10", DATA_TEST), TENSOR_E_IO);
    NOT_MADE(open_folder("idx", DATA_TEST), TENSOR_E_IO);
    file_write("test_batch.bin", "short", 5);
    NOT_MADE(open_folder("cifar10", DATA_TEST), TENSOR_E_DATA);
    file_write("t10k-images-idx3-ubyte", "short", 5);
    file_write("t10k-labels-idx1-ubyte.gz", "short", 5);
    NOT_MADE(open_folder("idx", DATA_TEST), TENSOR_E_DATA);
    file_write("t10k-images-idx3-ubyte", "\0\0\10\3\0\0\0\1\0\0\0\1\0\0\0\1x", 17);
    NOT_MADE(open_folder("idx", DATA_TEST), TENSOR_E_DATA);
    file_remove("t10k-labels-idx1-ubyte.gz");
    NOT_MADE(open_folder("idx", DATA_TEST), TENSOR_E_IO);
    file_write("t10k-labels-idx1-ubyte.gz", "\0\0\10\1\0\0\0\1\0", 9);
    data_set *set = open_folder("idx", DATA_TEST);
    CHECK(set, "%s", tensor_error());
    data_free(set);
    file_remove("t10k-images-idx3-ubyte");
    file_remove("t10k-labels-idx1-ubyte.gz");
    file_remove("test_batch.bin");
}

static const double mean[3], deviation[3] = {1, 1, 1}, wrong[3] = {1, -1, 1}, nan_mean[3] = {0, 0, NAN};
static data_set *pixels;

static void loaders(void) {
    const data_loader_config good = {.batch = 4, .mean = mean, .deviation = deviation};
    NOT_MADE(data_loader_new(NULL, &good), TENSOR_E_ARGUMENT);
    NOT_MADE(data_loader_new(pixels, NULL), TENSOR_E_ARGUMENT);
    data_loader_config c = good;
    c.batch = 0;
    NOT_MADE(data_loader_new(pixels, &c), TENSOR_E_ARGUMENT);
    c = (data_loader_config){.batch = 99, .drop_last = true, .mean = mean, .deviation = deviation};
    NOT_MADE(data_loader_new(pixels, &c), TENSOR_E_ARGUMENT);
    c = (data_loader_config){.batch = 4, .deviation = deviation};
    NOT_MADE(data_loader_new(pixels, &c), TENSOR_E_ARGUMENT);
    c = (data_loader_config){.batch = 4, .mean = nan_mean, .deviation = deviation};
    NOT_MADE(data_loader_new(pixels, &c), TENSOR_E_ARGUMENT);
    c = (data_loader_config){.batch = 4, .mean = mean, .deviation = wrong};
    NOT_MADE(data_loader_new(pixels, &c), TENSOR_E_ARGUMENT);
}

/* --- memory: each request fails once --- */

static int64_t shape[2] = {3, 5};
static tensor *viewed;

static void *new_tensor(void) {
    return tensor_new(FMT_FLEX16_5, 2, shape);
}
static void *new_tensor_on(void) {
    alignas(64) static char memory[64];
    return tensor_new_on(FMT_FP16, 2, shape, memory, sizeof memory);
}
static void *new_view(void) {
    return tensor_new_view(viewed, 2, shape);
}
static void free_tensor(void *made) {
    tensor_free(made);
}
static void *new_graph(void) {
    return nn_graph_new(&(nn_config){.variant = "flex16+5", .batch = 2});
}
static void free_graph(void *made) {
    nn_graph_free(made);
}
/* Builds a whole network: every node, then the plan and the tensors. */
static void *new_network(void) {
    nn_graph *g = new_graph();
    if (g && nn_compile(g, nn_model(g, "mlp2", 4, 4, 3, 10))) {
        const tensor_status status = tensor_error_status();
        nn_graph_free(g);
        CHECK(tensor_error_status() == status, "nn_graph_free changed the status");
        return NULL;
    }
    return g;
}
static void *new_set(void) {
    return data_open("synthetic:train=4", DATA_TRAIN);
}
static void free_set(void *made) {
    data_free(made);
}
static void *new_loader(void) {
    return data_loader_new(pixels, &(data_loader_config){.batch = 4, .mean = mean, .deviation = deviation});
}
static void free_loader(void *made) {
    data_loader_free(made);
}

static void memory(void) {
    const struct {
        const char *name;
        void *(*make)(void);
        void (*release)(void *);
    } rows[] = {{"tensor_new", new_tensor, free_tensor},
                {"tensor_new_on", new_tensor_on, free_tensor},
                {"tensor_new_view", new_view, free_tensor},
                {"nn_graph_new", new_graph, free_graph},
                {"nn_model and nn_compile", new_network, free_graph},
                {"data_open", new_set, free_set},
                {"data_loader_new", new_loader, free_loader}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        void *made = NULL;
        for (long n = 1; n < 1000 && !made; n++) {
            fail_otherwise(TENSOR_E_MEMORY);
            allocator_calls = allocator_held = 0;
            allocator_fail_at = n;
            made = rows[i].make();
            allocator_fail_at = 0;
            CHECK(made || tensor_error_status() == TENSOR_E_MEMORY, "%s, request %ld fails: status %s: %s",
                  rows[i].name, n, tensor_status_name(tensor_error_status()), tensor_error());
            CHECK(made ? n > 1 : !allocator_held, "%s, request %ld fails: made %d, %ld blocks held", rows[i].name, n,
                  made != NULL, (long)allocator_held);
        }
        CHECK(made, "%s never worked", rows[i].name);
        rows[i].release(made);
    }
}

int main(void) {
    tensor_set_allocator(failing_allocate, counting_release);
    if (!folder_make())
        return check_skip("no temporary folder");
    pixels = data_open("synthetic:train=8", DATA_TRAIN);
    viewed = tensor_new(FMT_FP32, TENSOR_SHAPE(15));
    CHECK(pixels && viewed, "%s", tensor_error());
    tensors();
    graphs();
    nodes();
    sets();
    loaders();
    memory();
    tensor_free(viewed);
    data_free(pixels);
    rmdir(folder);
    return check_summary();
}
