/* Every operation of every kernel set on operands and results that end at the end of readable memory, and then on
 * operands that begin at its beginning: a kernel that reads or writes beyond an operand, by any instruction, faults,
 * and the fault names the call. Tensors begin at multiples of 64 bytes, so an operand of another size leaves a gap
 * before the page; under AddressSanitizer the gap is poisoned, too. Otherwise it has a pattern that must remain, and
 * many of the sizes are multiples of 64 bytes. */
#define _GNU_SOURCE
#include "kernel_cases.h"
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#endif

/* --- memory with an unreadable page before and after --- */

struct guarded {
    unsigned char *mapped, *data; /* data: 64-byte aligned, in the readable pages */
    size_t mapped_bytes, readable, bytes;
};

static size_t page;

/* at_end: data ends less than 64 bytes before the following page; otherwise it begins right after the preceding one. */
static struct guarded guarded_new(size_t bytes, bool at_end) {
    struct guarded g = {.bytes = bytes, .readable = (bytes + page - 1) / page * page};
    g.mapped_bytes = g.readable + 2 * page;
    g.mapped = mmap(NULL, g.mapped_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    unsigned char *first = g.mapped + page;
    if (g.mapped == MAP_FAILED || mprotect(first, g.readable, PROT_READ | PROT_WRITE)) {
        printf("no memory of %zu bytes with guard pages\n", bytes);
        exit(1);
    }
    g.data = at_end ? first + (g.readable - bytes) / FL_ALIGNMENT * FL_ALIGNMENT : first;
    memset(first, 0xa5, g.readable);
    ASAN_POISON_MEMORY_REGION(first, g.readable);
    ASAN_UNPOISON_MEMORY_REGION(g.data, bytes);
    return g;
}

/* True if nothing but the data was written. */
static bool guarded_free(struct guarded *g) {
    bool kept = true;
    if (!g->mapped)
        return true;
    ASAN_UNPOISON_MEMORY_REGION(g->mapped + page, g->readable);
    for (unsigned char *p = g->mapped + page; p < g->mapped + page + g->readable; p++) {
        p += p == g->data ? g->bytes : 0; /* what is not data */
        kept = kept && (p == g->mapped + page + g->readable || *p == 0xa5);
    }
    munmap(g->mapped, g->mapped_bytes);
    return kept;
}

/* --- a fault names the call; under AddressSanitizer its own report does --- */

static char now[256];

#ifndef __SANITIZE_ADDRESS__
static void fault(int signal) {
    (void)signal;
    static const char text[] = "FAILED: memory beyond an operand was touched by ";
    if (write(1, text, sizeof text - 1) < 0 || write(1, now, strlen(now)) < 0 || write(1, "\n", 1) < 0)
        _exit(2);
    _exit(1);
}
#endif

/* --- one call --- */

enum { VIEWS = 7, CHANNEL_ARRAYS = 8, SUMS = 4 }; /* out, three operands, two addends, wide copies */

static void move(struct fl_view *view, struct guarded *g, size_t bytes, bool at_end) {
    *g = guarded_new(bytes, at_end);
    if (view->data)
        memcpy(g->data, view->data, bytes);
    view->data = g->data;
}

static void move_array(const void **array, struct guarded *g, size_t bytes, bool at_end) {
    *g = guarded_new(bytes, at_end);
    memcpy(g->data, *array, bytes);
    *array = g->data;
}

/* Runs the call of `call` with everything that it reads and writes moved next to unreadable pages. */
static void run_guarded(const struct call *call, fl_kernel kernel, bool at_end, bool in_place) {
    struct fl_args args = call->args;
    struct fl_stats stats = {0};
    const struct fl_format *f = call->format;
    const size_t bytes = (size_t)f->bytes, n = (size_t)(channels_of(call));
    struct guarded memory[VIEWS + CHANNEL_ARRAYS + SUMS] = {{0}}, *g = memory;
    struct fl_view *views[] = {&args.in[0], &args.in[1], &args.in[2], view_at(&args, call->shape.addend[0].at),
                               view_at(&args, call->shape.addend[1].at)};
    for (int i = 0; i < 5; i++)
        if (i < 3 ? views[i]->data != NULL : call->shape.addend[i - 3].count > 0)
            move(views[i], g++, (size_t)views[i]->count * bytes, at_end);
    for (int i = 0; i < 3; i++)
        if (args.in[i].wide)
            move_array((const void **)&args.in[i].wide, g++, (size_t)args.in[i].count * (size_t)f->wide_bytes, at_end);
    if (call->op == FL_OP_CHANNEL_AFFINE || call->op == FL_OP_CHANNEL_AFFINE_GRAD) {
        struct fl_channels *c = &args.p.batch_norm.channels;
        const void **arrays[] = {(const void **)&c->a,
                                 (const void **)&c->b,
                                 (const void **)&c->d,
                                 (const void **)&c->first_centre,
                                 (const void **)&c->cross_centre,
                                 (const void **)&c->first,
                                 (const void **)&c->cross,
                                 (const void **)&c->offset};
        for (int i = 0; i < CHANNEL_ARRAYS; i++)
            move_array(arrays[i], g++, n * (i >= 5 ? sizeof *c->first : 4), at_end);
    }
    if (call->op == FL_OP_CHANNEL_SUMS || call->op == FL_OP_CHANNEL_GRAD_SUMS)
        for (int i = 0; i < SUMS; i++) {
            *g = guarded_new(n * 8, at_end);
            *(i < 2 ? (void **)&args.p.batch_norm.sums.i[i] : (void **)&args.p.batch_norm.sums.f[i - 2]) = g++->data;
        }
    if (call->shape.out) {
        args.out = (struct fl_view){.e = exponent_at(call->e_out), .count = call->shape.out};
        if (in_place) {
            const struct fl_view *over = call->shape.addend[1].count ? views[4] : views[0];
            args.out.data = over->data;
        } else {
            move(&args.out, g++, (size_t)call->shape.out * bytes, at_end);
        }
        args.out.wide = args.in[0].wide;
    }
    args.stats = &stats;
    CHECK(!kernel(&args), "%s: %s", now, tensor_error());
    bool kept = true;
    while (g-- > memory)
        kept = guarded_free(g) && kept;
    CHECK(kept, "%s wrote beyond an operand", now);
}

static void try_operation(const struct fl_format *f, enum fl_op op, int backend, fl_kernel kernel) {
    static struct call call;
    for (int index = 0; call_make(&call, f, op, index, ORDINARY, TENSOR_ROUND_NEAREST, 31, kernel); index++) {
        for (int way = 0; way < 4; way++) {
            const bool at_end = way % 2 == 0, in_place = way / 2;
            if ((in_place && !call.shape.in_place) || (!in_place && call.in[0].view.wide))
                continue;
            snprintf(now, sizeof now, "%s.%s.%s shape %d, memory %s%s", f->name, fl_op_name(op),
                     fl_backend_name((enum fl_backend)backend), index, at_end ? "that ends" : "that begins",
                     in_place ? ", in place" : "");
            run_guarded(&call, kernel, at_end, in_place);
        }
        call_free(&call);
    }
}

/* Conversions from and to binary32, from the middle of a tensor as well. */
static void try_conversions(const struct fl_format *f, int backend, const struct fl_kernels *row) {
    static const int64_t counts[] = {1, 2, 3, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 1000, 4095, 4096};
    for (int i = 0; row->from_floats && row->to_floats && i < (int)(sizeof counts / sizeof counts[0]); i++)
        for (int at_end = 0; at_end < 2; at_end++)
            for (int64_t first = 0; first < 3 && first < counts[i]; first++) {
                const int64_t n = counts[i] - first;
                struct guarded x = guarded_new((size_t)n * sizeof(float), at_end),
                               t = guarded_new((size_t)(counts[i] * f->bytes), at_end);
                const struct fl_view view = {t.data, NULL, exponent_at(10), counts[i]};
                const struct fl_rounding nearest = {TENSOR_ROUND_NEAREST, 0, 0};
                struct fl_stats stats = {0};
                snprintf(now, sizeof now, "%s.%s of %lld floats from %lld", f->name,
                         fl_backend_name((enum fl_backend)backend), (long long)n, (long long)first);
                for (int64_t k = 0; k < n; k++)
                    ((float *)(void *)x.data)[k] = (float)k * 0.01f;
                row->from_floats(f, &view, first, n, (float *)(void *)x.data, &nearest, &stats);
                row->from_floats(f, &(struct fl_view){.e = exponent_at(10), .count = n}, 0, n, (float *)(void *)x.data,
                                 &nearest, &stats);
                for (int stream = 0; stream < 2; stream++)
                    row->to_floats(f, &view, first, n, (float *)(void *)x.data, stream);
                const bool kept = guarded_free(&x);
                CHECK(guarded_free(&t) && kept, "%s wrote beyond its memory", now);
            }
}

/* --- all rows --- */

/* Whether this machine has the instructions of a kernel set. */
static bool runs(enum fl_backend backend) {
    enum fl_backend cap = FL_KERNEL_SETS;
    if (backend >= FL_BACKENDS)
        return false; /* it has no conversions of its own */
    CHECK(!tensor_set_backend(fl_backend_name(backend)) && !fl_backend_cap(&cap), "%s", tensor_error());
    tensor_set_backend(NULL);
    return cap == backend;
}

/* The kernel of a kernel set; NULL if it has none, or cannot run on this machine. */
static fl_kernel kernel_of(const struct fl_format *f, enum fl_op op, int backend) {
    enum fl_backend chosen;
    if (backend >= FL_BACKENDS)
        return fl_kernel_in(f, op, (enum fl_backend)backend);
    const fl_kernel kernel = fl_kernel_select(f, op, (enum fl_backend)backend, &chosen);
    return (int)chosen == backend ? kernel : NULL;
}

int main(void) {
    page = (size_t)sysconf(_SC_PAGESIZE);
#ifndef __SANITIZE_ADDRESS__
    signal(SIGSEGV, fault);
    signal(SIGBUS, fault);
#endif
    tensor_set_threads(1);
    for (int i = 0; fl_format_at(i); i++) {
        const struct fl_format *f = fl_format_at(i);
        for (int backend = FL_REF; backend < FL_KERNEL_SETS; backend++) {
            if (runs((enum fl_backend)backend) && f->sets[backend])
                try_conversions(f, backend, f->sets[backend]);
            for (int op = 1; op < FL_OP_LIMIT; op++) {
                const fl_kernel kernel = fl_op_name((enum fl_op)op) ? kernel_of(f, (enum fl_op)op, backend) : NULL;
                if (kernel)
                    try_operation(f, (enum fl_op)op, backend, kernel);
            }
        }
    }
    return check_summary();
}
