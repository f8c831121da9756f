/* fuzz_tensor.c - sequences of calls of tensor.h on a pool of tensors.
 *
 * The input is read as one command after the other: make, view, load, free tensors, or call an operation. Operands are
 * either the tensors that the input names, whatever they are, or such as fit (FIT), which are made where they are not
 * there. Of each call:
 *  - it succeeds exactly if its arguments are right by the rules of tensor.h, written again in tensor_rules.h;
 *  - where it fails it says so, and no tensor and no result has changed;
 *  - where it succeeds, the reference kernels do the same to every tensor, its statistics and its exponent;
 *  - with one of its allocations failing it does all or nothing. */
#define _GNU_SOURCE
#include "scratch.h"
#include "tensor_calls.h"
#include "tensor_pool.h"
#include "tensor_rules.h"
#include <pthread.h>

enum { COMMANDS = 32, TENSOR_LIMIT = 1 << 20, CALL_LIMIT = 512 << 20 }; /* bytes of one block */

static struct picture before[SLOTS], after[SLOTS];

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    limit_allocation(CALL_LIMIT);
    MUST(!tensor_set_threads(1), "%s", tensor_error());
    return 0;
}

/* --- tensors ------------------------------------------------------------------------------------------------------ */

static void fill(tensor *t, struct input *in) {
    static double values[MOST_ELEMENTS];
    make_values(in, values, t->count);
    watch_failures();
    const tensor_status status = tensor_load_f64(t, values, t->count);
    must_tell_status("tensor_load_f64", status);
    MUST(!status == loadable(t, values), "tensor_load_f64 returned %s", tensor_status_name(status));
}

static tensor_format take_format(struct input *in) {
    const int i = take_below(in, 16);
    return tensor_format_at(i) ? tensor_format_at(i) : i == 15 ? (tensor_format)take_int(in) : tensor_format_at(3);
}

/* Draws any number of dimensions of any size, mostly small ones. */
static int take_shape(struct input *in, int64_t shape[TENSOR_MAX_DIMS]) {
    const int choice = take_below(in, 40), ndim = choice < 36 ? choice % 4 + 1 : (choice - 36) * 7 - 7;
    for (int i = 0; i < TENSOR_MAX_DIMS; i++)
        shape[i] = i < ndim || ndim < 1 ? take_whole(in) : 1;
    return ndim;
}

static int64_t shape_count(int ndim, const int64_t *shape, size_t bytes) {
    if (ndim < 1 || ndim > TENSOR_MAX_DIMS)
        return 0;
    __int128 count = 1;
    for (int i = 0; i < ndim; i++) {
        if (shape[i] < 1)
            return 0;
        count *= shape[i];
        if (count * (int64_t)bytes > (int64_t)1 << 40)
            return 0;
    }
    return (int64_t)count;
}

static void keep(int slot, tensor *t, int base, void *memory) {
    if (t && tensor_count(t) > MOST_ELEMENTS) { /* valid, but too large to work with */
        tensor_free(t);
        free(memory);
    } else if (t) {
        pool_free(slot);
        pool[slot] = (struct slot){t, base, memory};
    } else {
        free(memory);
    }
}

static void new_tensor(struct input *in, int slot, bool on_memory) {
    int64_t shape[TENSOR_MAX_DIMS];
    const tensor_format format = take_format(in);
    const int ndim = take_shape(in, shape);
    const size_t bytes = tensor_format_bytes(format);
    const int64_t count = bytes ? shape_count(ndim, shape, bytes) : 0;
    const bool small = count >= 1 && count <= MOST_ELEMENTS;
    void *memory = NULL;
    size_t room = small ? (size_t)count * bytes : 64;
    bool right = count >= 1;
    if (on_memory) {
        const int lack = take_below(in, 8);
        MUST(!posix_memalign(&memory, 64, room), "no memory for %zu bytes", room);
        memset(memory, 0, room);
        right = small && lack != 1 && lack != 2;
        if (lack == 1)
            room--;
        watch_failures();
        tensor *t = tensor_new_on(format, ndim, shape, lack == 2 ? (char *)memory + 8 : memory, room);
        must_tell("tensor_new_on", !t);
        MUST(!t == !right, "tensor_new_on %s", t ? "accepted bad arguments" : tensor_error());
        keep(slot, t, NO_BASE, memory);
        return;
    }
    allocation_limit = TENSOR_LIMIT;
    watch_failures();
    tensor *t = tensor_new(format, ndim, shape);
    must_tell("tensor_new", !t);
    allocation_limit = CALL_LIMIT;
    const bool fits = right && count * (int64_t)bytes <= TENSOR_LIMIT;
    MUST(!t == !fits, "tensor_new %s", t ? "accepted bad arguments" : tensor_error());
    MUST(t || !right || failure_status == TENSOR_E_MEMORY, "tensor_new: %s", tensor_error());
    for (int64_t i = 0; t && i < (int64_t)bytes * (small ? count : 1); i++)
        MUST(((unsigned char *)tensor_data(t))[i] == 0, "a new tensor is not zero");
    keep(slot, t, NO_BASE, NULL);
}

static void new_view(struct input *in, int slot, int base) {
    int64_t shape[TENSOR_MAX_DIMS];
    const int ndim = take_shape(in, shape), root = pool[base].base == NO_BASE ? base : pool[base].base;
    if (root == slot) /* it would be freed before its view */
        return;
    const tensor *b = pool[base].t;
    watch_failures();
    tensor *t = tensor_new_view(pool[base].t, ndim, shape);
    must_tell("tensor_new_view", !t);
    const bool right = b && shape_count(ndim, shape, (size_t)b->format->bytes) == b->count;
    MUST(!t == !right, "tensor_new_view %s", t ? "accepted bad arguments" : tensor_error());
    keep(slot, t, root, NULL);
}

/* Makes sure that the slot has a tensor of that format and shape, if necessary a new one with values. */
static void fit_slot(struct input *in, int slot, tensor_format format, const struct want *want) {
    const tensor *t = pool[slot].t;
    if (t && t->format->id == format && t->ndim == want->ndim &&
        !memcmp(t->shape, want->dim, (size_t)want->ndim * sizeof t->shape[0]))
        return;
    watch_failures();
    tensor *made = tensor_new(format, want->ndim, want->dim);
    must_tell("tensor_new", !made);
    MUST(made, "%s", tensor_error());
    pool_free(slot);
    pool[slot] = (struct slot){made, NO_BASE, NULL};
    if (take_byte(in) & 1)
        fill(made, in);
}

/* Writes stored elements by hand. */
static void write_raw(struct input *in, tensor *t) {
    uint64_t seed = take_byte(in);
    const uint64_t mask = take_byte(in) & 1 ? UINT64_MAX : 0x8080808080808080u; /* zeros and extremes */
    for (int64_t i = 0; t && i < t->count; i++) {
        uint64_t word = next_random(&seed) & mask;
        if (t->format->arithmetic == FL_ARITHMETIC_SHARED && (int16_t)word == INT16_MIN)
            word = INT16_MAX;
        memcpy((char *)tensor_data(t) + i * t->format->bytes, &word, (size_t)t->format->bytes);
    }
}

/* --- calls -------------------------------------------------------------------------------------------------------- */

static void take_operands(struct input *in, struct call *c) {
    const uint8_t how = take_byte(in);
    enum { FIT = 3 }; /* three of four calls */
    int slot[OPERANDS];
    if (how & FIT) {
        struct want want[OPERANDS] = {{0}};
        const tensor_format format = tensor_format_at((how >> 2) % 5);
        const int first = how >> 5, count = fitting_shapes(in, c, want);
        for (int i = 0; i < count; i++) {
            slot[i] = (first + i) % SLOTS;
            if (want[i].ndim)
                fit_slot(in, slot[i], format, &want[i]);
        }
        /* Making a tensor frees the views of the earlier one: take them when all are made. */
        for (int i = 0; i < count; i++)
            c->t[i] = want[i].ndim ? pool[slot[i]].t : NULL;
        const uint8_t swap = take_byte(in);
        if (swap >= 240) /* nearly valid */
            c->t[swap % OPERANDS] = pool[swap / 2 % SLOTS].t;
    } else {
        for (int i = 0; i < OPERANDS; i++)
            c->t[i] = pool[take_byte(in) % (SLOTS + 1) % SLOTS].t;
        take_window(in, &c->how);
        for (int i = 0; c->kind == AROUND && i < 13; i++)
            *around_number(&c->around, i) = take_int(in);
    }
}

struct attempt {
    const struct call *c;
    int failing;
    tensor_status status;
    struct results r;
};

static void *run_attempt(void *context) {
    struct attempt *a = context;
    allocations_until_failure = a->failing;
    a->status = perform(a->c, &a->r);
    allocations_until_failure = 0;
    return NULL;
}

/* Calls with the failing allocation: all or nothing. The tensors are as before afterwards. A new thread has no memory
 * yet, so that kernels allocate theirs. */
static void try_without_memory(const struct call *c, int failing) {
    static struct attempt a;
    pthread_t thread;
    a.c = c;
    a.failing = failing;
    results_clear(&a.r);
    watch_failures();
    MUST(!pthread_create(&thread, NULL, run_attempt, &a) && !pthread_join(thread, NULL), "no thread");
    must_tell_status(call_name(c), a.status);
    if (a.status) {
        pool_must_equal(before, true, "a call without memory");
        MUST(results_are_clear(&a.r), "%s without memory gave a result", call_name(c));
    }
    pool_restore(before);
}

static void run_call(struct input *in) {
    struct call c = {0};
    static struct results fast, plain;
    static const char *const rows[] = {NULL,     "portable", "avx2",       "avx512bw",
                                       "avx512", "ref",      "avx512_amx", "avx2_vnni"};
    take_call(in, &c);
    take_operands(in, &c);
    take_scalars(in, &c);
    const uint8_t mode = take_byte(in);
    pool_picture(before);
    MUST(!tensor_set_backend(rows[mode & 7]), "%s", tensor_error());
    if (mode >> 3 && mode >> 3 < 8 && is_repeatable(&c))
        try_without_memory(&c, mode >> 3);
    results_clear(&fast);
    watch_failures();
    const tensor_status status = perform(&c, &fast);
    must_tell_status(call_name(&c), status);
    MUST(!status == is_right(&c), "%s: %s", call_name(&c), status ? tensor_error() : "bad arguments were accepted");
    MUST(!tensor_set_backend(NULL), "%s", tensor_error());
    if (status) {
        pool_must_equal(before, true, call_name(&c));
        MUST(results_are_clear(&fast), "%s failed and gave a result", call_name(&c));
        return;
    }
    if (!is_repeatable(&c))
        return;
    pool_picture(after);
    pool_restore(before);
    MUST(!tensor_set_backend("ref"), "%s", tensor_error());
    results_clear(&plain);
    const tensor_status again = perform(&c, &plain);
    MUST(!again, "%s on the reference kernels: %s", call_name(&c), tensor_error());
    MUST(!tensor_set_backend(NULL), "%s", tensor_error());
    pool_must_equal(after, false, call_name(&c));
    results_must_equal(&fast, &plain, call_name(&c));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct input in = input_of(data, size);
    for (int i = 0; i < SLOTS; i++)
        pool[i] = (struct slot){NULL, NO_BASE, NULL};
    for (int n = 0; n < COMMANDS && input_left(&in); n++) {
        const uint8_t command = take_byte(&in);
        const int slot = command >> 3 & 7, other = command >> 6;
        switch (command & 7) {
        case 0:
            new_tensor(&in, slot, other == 3);
            break;
        case 1:
            new_view(&in, slot, (slot + 1 + other) % SLOTS);
            break;
        case 2:
            if (pool[slot].t && other)
                fill(pool[slot].t, &in);
            else if (other)
                write_raw(&in, pool[slot].t);
            else
                pool_free(slot);
            break;
        case 3:
            write_raw(&in, pool[slot].t);
            break;
        default:
            run_call(&in);
        }
        pool_must_be_sound();
    }
    for (int i = 0; i < SLOTS; i++)
        if (pool[i].t)
            pool_free(i);
    return 0;
}
