/* Every kernel keeps to the workspace that its need says: given that much, it touches nothing behind it and asks no one
 * for more, whatever the number of workers, and its results are those of a kernel that helps itself. */
#include "check.h"
#include "core/table/format.h"
#include "core/base/parallel.h"
#include "kernel_cases.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

enum { GUARD = 256, FILL = 0x6b };

static atomic_int allocations;

static void *counting_allocate(unsigned long size, unsigned long alignment) {
    void *block = NULL;
    atomic_fetch_add(&allocations, 1);
    return posix_memalign(&block, alignment, size) ? NULL : block;
}

static fl_kernel tried;
static int allocated; /* by the kernel itself */

static tensor_status counted(const struct fl_args *args) {
    const int before = allocations;
    const tensor_status status = tried(args);
    allocated = allocations - before;
    return status;
}

struct attempt {
    const struct call *call;
    struct result *result;
    bool measure;
    tensor_status status;
};

static void *run_attempt(void *pointer) {
    struct attempt *a = pointer;
    a->status = run(a->call, counted, false, a->measure, a->result);
    return NULL;
}

static bool same(const struct result *a, const struct result *b, int64_t channels) {
    return !memcmp(a->out.memory ? a->out.memory : (unsigned char *)"",
                   b->out.memory ? b->out.memory : (unsigned char *)"", a->out.bytes) &&
           !memcmp(&a->stats, &b->stats, sizeof a->stats) && !memcmp(a->isum, b->isum, (size_t)channels * 16) &&
           !memcmp(a->fsum, b->fsum, (size_t)channels * 16);
}

static void try_case(struct call *call, const char *row, fl_kernel kernel, fl_need need, int index, bool measure) {
    struct result want, got;
    const int64_t n = channels_of(call);
    call->args.workspace = NULL;
    call->args.workers = 0;
    CHECK(!run(call, kernel, false, measure, &want), "%s", tensor_error());
    struct fl_args asked = call->args; /* need sees counts, not memory */
    asked.workers = call->args.workers = fl_threads();
    asked.out.count = call->shape.out;
    for (int i = 0; i < 3; i++)
        asked.in[i] = (struct fl_view){.count = call->in[i].view.count};
    const size_t bytes = need ? need(&asked) : 0;
    unsigned char *workspace = fl_alloc(bytes + GUARD);
    memset(workspace, FILL, bytes + GUARD);
    call->args.workspace = workspace;
    call->args.workspace_bytes = bytes;
    tried = kernel;
    struct attempt attempt = {call, &got, measure, TENSOR_OK};
    pthread_t fresh; /* has no scratch yet that a kernel could take unseen */
    CHECK(!pthread_create(&fresh, NULL, run_attempt, &attempt) && !pthread_join(fresh, NULL), "no thread");
    CHECK(!attempt.status, "status %d", (int)attempt.status);
    size_t touched = 0;
    for (size_t i = 0; i < GUARD; i++)
        touched += workspace[bytes + i] != FILL;
    char label[120];
    snprintf(label, sizeof label, "%s.%s.%s case %d, %d threads%s", call->format->name, fl_op_name(call->op), row,
             index, fl_threads(), measure ? ", measured" : "");
    CHECK(!touched, "%s: %zu bytes behind its workspace of %zu were written", label, touched, bytes);
    CHECK(!allocated, "%s: allocated %d times beside its workspace of %zu bytes", label, allocated, bytes);
    CHECK(same(&want, &got, n), "%s: another result in a workspace of %zu bytes", label, bytes);
    result_free(&want);
    result_free(&got);
    fl_free(workspace);
}

/* The kernels of an operation, in every kernel set that has its own, on the same calls. */
static int try_operation(const struct fl_format *f, enum fl_op op) {
    static const int threads[] = {1, 2, 7};
    static struct call call;
    const bool every = getenv("FLEXLAB_TEST_EVERY") != NULL; /* else results are stored or only measured in turn */
    fl_kernel kernels[FL_KERNEL_SETS] = {NULL};
    int entries = 0;
    for (int row = FL_REF; row < FL_KERNEL_SETS; row++) {
        enum fl_backend chosen = (enum fl_backend)row;
        kernels[row] = row < FL_BACKENDS ? fl_kernel_select(f, op, chosen, &chosen) : fl_kernel_in(f, op, chosen);
        if ((int)chosen != row)
            kernels[row] = NULL;
        entries += kernels[row] != NULL;
    }
    for (int index = 0; entries && call_make(&call, f, op, index, ORDINARY, TENSOR_ROUND_NEAREST, 5, fl_ref_kernel(op));
         index++) {
        for (int row = FL_REF; row < FL_KERNEL_SETS && !call.shape.wide[0] && !call.shape.wide[2]; row++)
            for (int t = 0; kernels[row] && t < (row == FL_REF ? 1 : 3); t++) {
                tensor_set_threads(threads[t]);
                for (int measure = 0; measure <= (call.shape.out > 0); measure++)
                    if (every || !call.shape.out || measure == (index + t) % 2)
                        try_case(&call, fl_backend_name((enum fl_backend)row), kernels[row],
                                 fl_need_of(f, op, (enum fl_backend)row), index, measure);
            }
        call_free(&call);
    }
    tensor_set_threads(0);
    return entries;
}

int main(void) {
    tensor_set_allocator(counting_allocate, free);
    int entries = 0;
    const struct fl_format *f;
    for (int i = 0; (f = fl_format_at(i)); i++)
        for (int op = 1; op < FL_OP_LIMIT; op++)
            if (fl_op_name((enum fl_op)op))
                entries += try_operation(f, (enum fl_op)op);
    printf("%d kernels\n", entries);
    return check_summary();
}
