/* toy_device.h - a second device for tests: memory that the host cannot access, and a queue whose calls another thread
 * runs later, when the host waits. Its kernels are the processor's. Any access of the host to an address of the device
 * ends the test with a segmentation fault, as with an accelerator. */
#ifndef FL_TOY_DEVICE_H
#define FL_TOY_DEVICE_H

#include "check.h"
#include "core/base/fail.h"
#include "core/queue/queue.h"
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

enum toy_kind { TOY_CALL, TOY_PUT, TOY_GET, TOY_COPY };
struct toy_command {
    enum toy_kind kind;
    struct fl_call call;
    struct fl_args args; /* of the call */
    void *to;
    const void *from;
    void *bytes; /* of a put: what the host gave */
    size_t size;
};

static struct {
    char *memory; /* inaccessible unless the thread works */
    size_t used, bytes;
    uint32_t *pages; /* of the block that begins at each page */
    struct toy_command *commands;
    int count, capacity;
    bool skips;                    /* an update is left out (core/queue/skipping.h) */
    long calls, puts, gets, waits; /* so far */
    tensor_status status;          /* of the first failure since the last wait */
    char message[300];
} toy;

static struct fl_queue toy_queue;

static void *toy_allocate(struct tensor_device *device, size_t bytes) {
    (void)device;
    const size_t size = (bytes + 4095) / 4096 * 4096;
    if (size > toy.bytes - toy.used)
        return NULL;
    toy.pages[toy.used / 4096] = (uint32_t)(size / 4096);
    void *block = toy.memory + toy.used; /* never reused: freed memory remains inaccessible */
    toy.used += size;
    return block;
}

static void toy_command_add(struct toy_command command) {
    if (toy.count == toy.capacity) {
        toy.capacity = toy.capacity ? 2 * toy.capacity : 256;
        toy.commands = realloc(toy.commands, (size_t)toy.capacity * sizeof *toy.commands);
        if (!toy.commands)
            exit(1);
    }
    toy.commands[toy.count++] = command;
}

static void toy_failed(tensor_status status) {
    if (!status || toy.status)
        return;
    toy.status = status;
    snprintf(toy.message, sizeof toy.message, "%s", tensor_error());
}

static void toy_run(const struct fl_call *call) {
    toy.skips = toy.skips && call->kind != FL_CALL_FOLLOW_SCALE;
    if (toy.skips)
        return;
    toy_failed(fl_call_run(call));
    toy.skips = call->kind == FL_CALL_LOOK && call->skipping.decides && call->skipping.state->overflows > 0;
}

static void *toy_work(void *nothing) {
    mprotect(toy.memory, toy.used, PROT_READ | PROT_WRITE);
    for (int i = 0; i < toy.count; i++) {
        struct toy_command *c = &toy.commands[i];
        if (c->call.args)
            c->call.args = &c->args;
        if (toy.status) /* left out until the host waits */
            ;
        else if (c->kind == TOY_CALL)
            toy_run(&c->call);
        else
            memmove(c->to, c->kind == TOY_PUT ? c->bytes : c->from, c->size);
        free(c->bytes);
    }
    mprotect(toy.memory, toy.used, PROT_NONE);
    toy.count = 0;
    return nothing;
}

/* The first failure since the last wait. */
static tensor_status toy_run_all(void) {
    pthread_t thread;
    if (toy.count && (pthread_create(&thread, NULL, toy_work, NULL) || pthread_join(thread, NULL)))
        exit(1);
    return toy.status ? fl_fail(toy.status, "%s", toy.message) : TENSOR_OK;
}

static tensor_status toy_submit(struct fl_queue *queue, const struct fl_call *call) {
    (void)queue;
    toy.calls++;
    struct toy_command c = {.kind = TOY_CALL, .call = *call};
    if (call->args)
        c.args = *call->args;
    toy_command_add(c);
    return TENSOR_OK;
}

static tensor_status toy_put(struct fl_queue *queue, void *to, const void *from, size_t bytes) {
    (void)queue;
    toy.puts++;
    struct toy_command c = {.kind = TOY_PUT, .to = to, .bytes = malloc(bytes + 1), .size = bytes};
    memcpy(c.bytes, from, bytes);
    toy_command_add(c);
    return TENSOR_OK;
}

static tensor_status toy_get(struct fl_queue *queue, void *to, const void *from, size_t bytes) {
    (void)queue;
    toy.gets++;
    toy_command_add((struct toy_command){.kind = TOY_GET, .to = to, .from = from, .size = bytes});
    return toy_run_all();
}

static tensor_status toy_copy(struct fl_queue *queue, void *to, const void *from, size_t bytes) {
    (void)queue;
    toy_command_add((struct toy_command){.kind = TOY_COPY, .to = to, .from = from, .size = bytes});
    return TENSOR_OK;
}

static tensor_status toy_wait(struct fl_queue *queue) {
    (void)queue;
    toy.waits++;
    const tensor_status status = toy_run_all();
    toy.status = TENSOR_OK;
    return status;
}

static void toy_release(struct tensor_device *device, void *memory) {
    (void)device;
    (void)toy_run_all(); /* a failure remains for the next wait */
    const uint32_t pages = memory ? toy.pages[((char *)memory - toy.memory) / 4096] : 0;
    if (pages) /* what is not there costs nothing to protect */
        madvise(memory, (size_t)pages * 4096, MADV_DONTNEED);
}

/* softmax_cross_entropy can be removed, to test the message about a missing kernel. */
static bool toy_lacks_softmax;

static bool toy_find(struct tensor_device *device, const struct fl_format *format, enum fl_op op,
                     struct fl_choice *choice) {
    (void)device;
    return !(toy_lacks_softmax && op == FL_OP_SOFTMAX_CROSS_ENTROPY) && !fl_dispatch(format, op, TENSOR_EXACT, choice);
}

static struct tensor_device toy_device = {.name = "toy",
                                          .allocate = toy_allocate,
                                          .release = toy_release,
                                          .submit = toy_submit,
                                          .put = toy_put,
                                          .get = toy_get,
                                          .copy = toy_copy,
                                          .wait = toy_wait,
                                          .find = toy_find,
                                          .queue = &toy_queue};

/* False if the system provides no such memory. */
static bool toy_begin(size_t bytes) {
    toy.memory = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    toy.bytes = bytes;
    toy.pages = calloc(bytes / 4096, sizeof *toy.pages);
    toy_queue.device = &toy_device;
    return toy.memory != MAP_FAILED && toy.pages && fl_device_add(&toy_device);
}

#endif
