/* Memory that runs out at the n-th allocation, for every n (a sample of them, unless FLEXLAB_TEST_EVERY=1): of a whole
 * training run from the files of a data set to the trace, and of every kernel. Each time the failure says "memory",
 * outputs are as they were, no file is left, and every block is freed.
 *
 * The allocations are those of the process: malloc and its relatives are replaced here, so that those of zlib and of
 * the C library fail as well. Under a sanitizer, which has an allocator of its own, only those of the library are
 * counted. */
#include "data_files.h"
#include "flexlab/nn.h"
#include "kernel_cases.h"
#include <errno.h>
#include <pthread.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define FOREIGN_ALLOCATOR
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__GLIBC__)
#define FOREIGN_ALLOCATOR
#endif

/* --- requests: counted and made to fail between arm() and disarm() --- */

static atomic_bool armed;
static atomic_long requests, fail_at, alive; /* from 1; blocks held, armed or not */

static bool refuse(void) {
    return armed && atomic_fetch_add(&requests, 1) + 1 == fail_at;
}

static void arm(long n) {
    requests = 0;
    fail_at = n;
    armed = true;
}

static long disarm(void) {
    armed = false;
    return requests;
}

#ifndef FOREIGN_ALLOCATOR
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *block, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
void __libc_free(void *block);

static void *counted(void *block) {
    if (!block)
        errno = ENOMEM;
    else
        alive++;
    return block;
}

void *malloc(size_t size) {
    return counted(refuse() ? NULL : __libc_malloc(size));
}
void *calloc(size_t count, size_t size) {
    return counted(refuse() ? NULL : __libc_calloc(count, size));
}
void *realloc(void *block, size_t size) {
    void *larger = refuse() ? NULL : __libc_realloc(block, size);
    if (!block || !larger)
        return counted(larger) ? larger : NULL;
    return larger;
}
void *aligned_alloc(size_t alignment, size_t size) {
    return counted(refuse() ? NULL : __libc_memalign(alignment, size));
}
void *memalign(size_t alignment, size_t size);
void *memalign(size_t alignment, size_t size) {
    return aligned_alloc(alignment, size);
}
int posix_memalign(void **block, size_t alignment, size_t size) {
    void *made = aligned_alloc(alignment, size);
    if (made)
        *block = made;
    return made ? 0 : ENOMEM;
}
void free(void *block) {
    if (block)
        alive--;
    __libc_free(block);
}
static void use_failing_allocator(void) {}
#else
static void *library_allocate(unsigned long size, unsigned long alignment) {
    void *block = NULL;
    if (refuse() || posix_memalign(&block, alignment, size))
        return NULL;
    alive++;
    return block;
}
static void library_release(void *block) {
    alive -= block != NULL;
    free(block);
}
static void use_failing_allocator(void) {
    tensor_set_allocator(library_allocate, library_release);
}
#endif

/* --- a training run --- */

enum { SIDE = 6, TRAIN = 24, TEST = 8 };

static void put_word(uint8_t *p, uint32_t word) {
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(word >> (24 - 8 * i));
}

/* Images plain, labels compressed, or the reverse. */
static void write_split(const char *prefix, int count, bool test) {
    static uint8_t images[16 + TRAIN * SIDE * SIDE], labels[8 + TRAIN];
    const uint32_t head[6] = {0x803, (uint32_t)count, SIDE, SIDE, 0x801, (uint32_t)count};
    for (int i = 0; i < 4; i++)
        put_word(images + 4 * i, head[i]);
    for (int i = 0; i < 2; i++)
        put_word(labels + 4 * i, head[4 + i]);
    for (int i = 0; i < count; i++) {
        labels[8 + i] = (uint8_t)(i % 4);
        for (int k = 0; k < SIDE * SIDE; k++)
            images[16 + i * SIDE * SIDE + k] = (uint8_t)(i * 31 + k * 7);
    }
    char name[64];
    snprintf(name, sizeof name, "%s-images-idx3-ubyte%s", prefix, test ? ".gz" : "");
    file_write(name, images, (size_t)(16 + count * SIDE * SIDE));
    snprintf(name, sizeof name, "%s-labels-idx1-ubyte%s", prefix, test ? "" : ".gz");
    file_write(name, labels, (size_t)(8 + count));
}

static char specification[PATH_MAX], trace[PATH_MAX], trace_part[PATH_MAX];

struct outcome {
    const char *variant;
    tensor_status status;
    double loss;
    char message[200];
};

static tensor_status train(struct outcome *o) {
    data_set *set = data_open(specification, DATA_TRAIN), *test = set ? data_open(specification, DATA_TEST) : NULL;
    tensor_status status = test ? TENSOR_OK : tensor_error_status();
    nn_train_config config = {.network = {.variant = o->variant, .batch = 8, .seed = 1, .momentum = 0.9f},
                              .model = "resnet8",
                              .epochs = 1,
                              .rate = 0.01,
                              .schedule = "linear",
                              .max_steps = 2,
                              .average_last = 2,
                              .trace_path = trace,
                              .trace_every = 1};
    nn_train_result result = {0};
    if (!status)
        status = nn_train(&result, &config, set, test, NULL);
    o->loss = result.last_loss;
    if (status)
        CHECK(!result.steps && !result.predicted, "a failed run left a result");
    nn_train_result_clear(&result);
    data_free(set);
    data_free(test);
    return status;
}

static void *train_once(void *pointer) {
    struct outcome *o = pointer;
    o->status = train(o);
    snprintf(o->message, sizeof o->message, "%s", o->status ? tensor_error() : "");
    return NULL;
}

struct armed_run {
    void *(*work)(void *);
    void *context;
    long n, requests;
};

static void *run_armed(void *pointer) {
    struct armed_run *a = pointer;
    arm(a->n);
    a->work(a->context);
    a->requests = disarm();
    return NULL;
}

/* Counts the allocations of a run whose n-th fails (0: none). On a thread of its own, whose kernels have no workspace
 * from earlier runs. */
static long run_failing(void *(*work)(void *), void *context, long n) {
    struct armed_run a = {work, context, n, 0};
    pthread_t thread;
    CHECK(!pthread_create(&thread, NULL, run_armed, &a) && !pthread_join(thread, NULL), "no thread");
    return a.requests;
}

static bool every;

static void training(const char *variant) {
    struct outcome o = {.variant = variant};
    run_failing(train_once, &o, 0); /* memory that is allocated once exists from now on */
    const long total = run_failing(train_once, &o, 0), held = alive;
    CHECK(!o.status && total > 100, "%s: %ld requests, %s", variant, total, o.message);
    const double loss = o.loss;
    unlink(trace);
    const long step = every ? 1 : total / 150 + 1;
    long refused = 0;
    for (long n = 1; n <= total; n += n < 60 ? 1 : step) {
        run_failing(train_once, &o, n);
        refused += o.status != TENSOR_OK;
        if (o.status)
            CHECK(o.status == TENSOR_E_MEMORY && *o.message, "%s: request %ld of %ld fails: %s '%s'", variant, n, total,
                  tensor_status_name(o.status), o.message);
        else /* it is optional, as in sorting */
            CHECK(o.loss == loss, "%s: request %ld of %ld fails: loss %a, want %a", variant, n, total, o.loss, loss);
        CHECK(alive == held, "%s: request %ld of %ld fails: %ld blocks lost (%s)", variant, n, total, alive - held,
              o.message);
        CHECK(!o.status || (access(trace_part, F_OK) && access(trace, F_OK)), "%s: request %ld leaves a trace", variant,
              n);
        unlink(trace);
    }
    CHECK(refused > 50, "%s: only %ld of the requests made it fail", variant, refused);
    printf("%s: %ld requests, %ld failures\n", variant, total, refused);
}

/* --- every kernel --- */

struct kernel_run {
    fl_kernel kernel;
    struct fl_args args;
    tensor_status status;
};

static void *run_kernel(void *pointer) {
    struct kernel_run *k = pointer;
    k->status = k->kernel(&k->args);
    return NULL;
}

static long kernel_refusals;

/* A kernel fails and does not change its result, or does without the memory. */
static void kernel_failures(const struct fl_format *f, enum fl_op op, const char *row, fl_kernel kernel) {
    static struct call call;
    for (int index = 0; call_make(&call, f, op, index, ORDINARY, TENSOR_ROUND_NEAREST, 5, fl_ref_kernel(op)); index++) {
        const int64_t n = channels_of(&call);
        if (call.shape.out > 20000 || (index > 2 && !every) || call.in[0].view.wide) {
            call_free(&call);
            continue;
        }
        struct block out = call.shape.out ? block_new(f, call.shape.out, call.e_out) : (struct block){0};
        struct fl_stats stats = {0};
        int64_t *isum = fl_alloc_zero((size_t)n * 16);
        double *fsum = fl_alloc_zero((size_t)n * 16);
        struct kernel_run k = {.kernel = kernel, .args = call.args};
        k.args.stats = &stats;
        k.args.out = out.view;
        take_sums(&k.args, (struct fl_channel_sums){{isum, isum + n}, {fsum, fsum + n}});
        const long total = run_failing(run_kernel, &k, 0), held = alive;
        CHECK(!k.status, "%s.%s.%s: %s", f->name, fl_op_name(op), row, tensor_error());
        unsigned char *want = fl_alloc(out.bytes + 1);
        memcpy(want, out.memory ? out.memory : want, out.bytes);
        for (long i = 1; i <= total; i++) {
            if (out.memory)
                memset(out.memory, 0xa5, out.bytes);
            run_failing(run_kernel, &k, i);
            size_t written = 0;
            for (size_t b = 0; b < out.bytes; b++)
                written += out.memory[b] != (k.status ? 0xa5 : want[b]);
            CHECK(!k.status || k.status == TENSOR_E_MEMORY, "%s.%s.%s shape %d: request %ld of %ld fails, status %d",
                  f->name, fl_op_name(op), row, index, i, total, (int)k.status);
            CHECK(!written, "%s.%s.%s shape %d: request %ld of %ld fails, status %d, %zu bytes of the result are wrong",
                  f->name, fl_op_name(op), row, index, i, total, (int)k.status, written);
            CHECK(alive == held + 1, "%s.%s.%s shape %d: request %ld of %ld fails: %ld blocks lost", f->name,
                  fl_op_name(op), row, index, i, total, alive - held - 1);
            kernel_refusals += k.status != TENSOR_OK;
        }
        fl_free(want);
        block_free(&out);
        fl_free(isum);
        fl_free(fsum);
        call_free(&call);
    }
}

static void kernels(void) {
    for (int i = 0; fl_format_at(i); i++)
        for (int op = 1; op < FL_OP_LIMIT; op++)
            for (int backend = FL_REF; backend < FL_BACKENDS && fl_op_name((enum fl_op)op); backend++) {
                enum fl_backend chosen;
                const fl_kernel kernel =
                    fl_kernel_select(fl_format_at(i), (enum fl_op)op, (enum fl_backend)backend, &chosen);
                if ((int)chosen == backend)
                    kernel_failures(fl_format_at(i), (enum fl_op)op, fl_backend_name(chosen), kernel);
            }
}

int main(void) {
    static char line[BUFSIZ];
    setvbuf(stdout, line, _IOLBF, sizeof line); /* a message of this test must not count as a lost block */
    every = getenv("FLEXLAB_TEST_EVERY") != NULL;
    if (!folder_make())
        return check_skip("no temporary folder");
    use_failing_allocator();
    snprintf(specification, sizeof specification, "idx:%s", folder);
    snprintf(trace, sizeof trace, "%s", folder_path("trace.csv"));
    snprintf(trace_part, sizeof trace_part, "%s", folder_path("trace.csv.part"));
    write_split("train", TRAIN, false);
    write_split("t10k", TEST, true);
    CHECK(!tensor_set_threads(1), "%s", tensor_error());
    for (int i = 0; nn_variant_at(i); i++)
        training(nn_variant_at(i)->name);
    kernels();
    CHECK(kernel_refusals > 1000, "only %ld failures of kernels", kernel_refusals);
    static const char *const names[] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte.gz",
                                        "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte"};
    for (int i = 0; i < 4; i++)
        file_remove(names[i]);
    rmdir(folder);
    return check_summary();
}
