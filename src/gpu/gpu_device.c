/* gpu_device.c - GPUs as devices of the library (queue.h): cuda:0, cuda:1, ..., each opened at its first use. */
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/queue/queue.h"
#include "core/tensor/narrow.h"
#include "gpu/gpu_device.h"
#include "gpu/gpu_load.h"
#include "gpu/gpu_task.h"
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 8 };

struct gpu {
    struct tensor_device device; /* first member: a pointer to it is one to the struct */
    struct fl_queue queue;
    const struct fl_gpu_plugin *plugin;
    struct fl_gpu_device *backend; /* NULL: not opened */
    struct fl_gpu_facts facts;
    char name[16];
    pthread_mutex_t lock; /* the backend is used by one thread at a time */
};

static struct gpu gpus[MOST];
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;

static struct gpu *gpu_of(struct tensor_device *device) {
    return (struct gpu *)(void *)device;
}

/* --- errors ------------------------------------------------------------------------------------------------------- */

/* A fault of CUDA, which remains: every later call on the device fails with it too. */
static tensor_status faulted(const struct gpu *g, const char *text) {
    return text ? fl_fail(TENSOR_E_DEVICE, "%s: %s", g->name, text) : TENSOR_OK;
}

/* Calls a function of the backend, which one thread at a time uses. */
#define LOCKED(status, g, call_)                                                                                       \
    pthread_mutex_lock(&(g)->lock);                                                                                    \
    const tensor_status status = faulted(g, (g)->plugin->call.call_);                                                  \
    pthread_mutex_unlock(&(g)->lock)

/* The failure that a task found. */
static tensor_status found(const struct fl_gpu_failure *f) {
    switch (f->finding) {
    case FL_GPU_NOTHING:
    case FL_GPU_SKIPS:
        return TENSOR_OK;
    case FL_GPU_SCALAR:
        return fl_fail(TENSOR_E_ARGUMENT, "%s is %g, expected %s", f->what, fl_unsigned_nan(f->value[0]),
                       isfinite(f->value[0]) ? "0 or more" : "a finite number");
    case FL_GPU_LOAD:
        return fl_fail(TENSOR_E_ARGUMENT, "%s: value %lld is %g, %s holds finite numbers only", f->what,
                       (long long)f->at, fl_unsigned_nan(f->value[0]), f->format->name);
    case FL_GPU_CHANNEL:
        return fl_fail(TENSOR_E_ARGUMENT,
                       "%s: channel %lld has the multipliers %g and %g, means %g and %g: mean, variance and epsilon "
                       "must lead to finite numbers",
                       f->what, (long long)f->at, fl_unsigned_nan(f->value[0]), fl_unsigned_nan(f->value[1]),
                       fl_unsigned_nan(f->value[2]), fl_unsigned_nan(f->value[3]));
    case FL_GPU_INDEX:
        return fl_fail(TENSOR_E_ARGUMENT, "%s: index %lld is %.0f, expected 0 to %lld",
                       f->what ? f->what : "gather_images", (long long)f->at, f->value[0], (long long)f->limit - 1);
    default:
        return fl_fail(TENSOR_E_ARGUMENT, "%s: label %lld is %.0f, expected 0 to %lld", f->what, (long long)f->at,
                       f->value[0], (long long)f->limit - 1);
    }
}

/* --- the functions of a device ------------------------------------------------------------------------------------ */

static void *gpu_allocate(struct tensor_device *device, size_t bytes) {
    struct gpu *g = gpu_of(device);
    void *memory = NULL;
    pthread_mutex_lock(&g->lock);
    if (g->plugin->call.allocate(g->backend, bytes, &memory)) /* gpu_room reports a fault */
        memory = NULL;
    pthread_mutex_unlock(&g->lock);
    return memory;
}

static tensor_status gpu_room(struct tensor_device *device, char *text, size_t bytes) {
    struct gpu *g = gpu_of(device);
    struct fl_gpu_facts now = {.available = 0};
    LOCKED(status, g, facts(g->backend, &now));
    snprintf(text, bytes, "%zu of %zu bytes are free", now.available, now.bytes);
    return status;
}

static void gpu_release(struct tensor_device *device, void *memory) {
    struct gpu *g = gpu_of(device);
    pthread_mutex_lock(&g->lock);
    (void)g->plugin->call.release(g->backend, memory); /* a fault remains for the next wait */
    pthread_mutex_unlock(&g->lock);
}

/* The name of a task in messages: "FORMAT.OPERATION". */
static void call_text(const struct fl_call *call, char *text, size_t bytes) {
    const bool runs = call->kind == FL_CALL_RUN, computes = runs || call->kind == FL_CALL_WRITE;
    if (call->kind == FL_CALL_GATHER || fl_is_skipping(call))
        snprintf(text, bytes, call->kind == FL_CALL_GATHER ? "gather_images" : "loss scale");
    else if (call->kind == FL_CALL_EXAMINE || call->kind == FL_CALL_SAMPLE)
        snprintf(text, bytes, "telemetry");
    else
        snprintf(text, bytes, "%s.%s", (runs ? call->args->format : call->out.format)->name,
                 computes                                                    ? fl_op_name(call->args->op)
                 : call->kind == FL_CALL_FOLLOW                              ? "follow"
                 : call->kind == FL_CALL_OPEN || call->kind == FL_CALL_CLOSE ? "sequence"
                 : call->kind == FL_CALL_MEAN                                ? "mean"
                                                                             : "load");
}

static tensor_status gpu_submit(struct fl_queue *queue, const struct fl_call *call) {
    struct gpu *g = gpu_of(queue->device);
    char what[80];
    struct gpu_task task;
    gpu_task_of(call, &task);
    call_text(call, what, sizeof what);
    LOCKED(status, g,
           submit(g->backend, &task.call, task.has_floats ? &task.floats : NULL, task.has_blocks ? &task.blocks : NULL,
                  what));
    return status;
}

/* Functions of the queue that are one of the backend; those that read tell what a task has found before. */
#define ON_QUEUE(name, parameters, ...)                                                                                \
    static tensor_status gpu_##name parameters {                                                                       \
        struct gpu *g = gpu_of(queue->device);                                                                         \
        struct fl_gpu_failure failure = {.finding = FL_GPU_NOTHING};                                                   \
        LOCKED(status, g, __VA_ARGS__);                                                                                \
        return status ? status : found(&failure);                                                                      \
    }
ON_QUEUE(put, (struct fl_queue * queue, void *to, const void *from, size_t bytes), put(g->backend, to, from, bytes))
ON_QUEUE(get, (struct fl_queue * queue, void *to, const void *from, size_t bytes),
         get(g->backend, to, from, bytes, &failure))
ON_QUEUE(copy, (struct fl_queue * queue, void *to, const void *from, size_t bytes), copy(g->backend, to, from, bytes))
ON_QUEUE(arrived, (struct fl_queue * queue, const void *fetch, bool *arrived), arrived(g->backend, fetch, arrived))
ON_QUEUE(fetched, (struct fl_queue * queue, void *fetch, void *to), fetched(g->backend, fetch, to, &failure))
ON_QUEUE(wait, (struct fl_queue * queue), wait(g->backend, &failure))
ON_QUEUE(record, (struct fl_queue * queue), record(g->backend))
ON_QUEUE(recorded, (struct fl_queue * queue, void **recording), recorded(g->backend, recording))
ON_QUEUE(replay, (struct fl_queue * queue, void *recording), replay(g->backend, recording))

static tensor_status gpu_fetch(struct fl_queue *queue, void **fetch, const void *from, size_t bytes, bool beside) {
    struct gpu *g = gpu_of(queue->device);
    struct fl_gpu_fetch *f = *fetch;
    pthread_mutex_lock(&g->lock);
    const char *text = g->plugin->call.fetch(g->backend, &f, from, bytes, beside);
    struct fl_gpu_facts now;
    const bool no_memory = text && !f && !g->plugin->call.facts(g->backend, &now); /* any other failure would remain */
    const tensor_status status =
        no_memory ? fl_fail(TENSOR_E_MEMORY, "%s: no pinned memory for %zu bytes (%s)", g->name, bytes, text)
                  : faulted(g, text);
    pthread_mutex_unlock(&g->lock);
    *fetch = f;
    return status;
}

static void gpu_give_up_fetch(struct fl_queue *queue, void *fetch) {
    struct gpu *g = gpu_of(queue->device);
    pthread_mutex_lock(&g->lock);
    g->plugin->call.give_up_fetch(g->backend, fetch);
    pthread_mutex_unlock(&g->lock);
}

static tensor_status gpu_describe(struct tensor_device *device, char *text, size_t bytes) {
    struct gpu *g = gpu_of(device);
    struct fl_gpu_facts f;
    const double gib = 1 << 30;
    LOCKED(status, g, facts(g->backend, &f));
    if (!status)
        snprintf(text, bytes,
                 "%s, compute capability %d.%d, %d multiprocessors, %.1f of %.1f GiB free, driver of CUDA %d.%d",
                 f.name, f.major, f.minor, f.processors, (double)f.available / gib, (double)f.bytes / gib,
                 f.driver / 1000, f.driver % 1000 / 10);
    return status;
}

static void gpu_forget(struct tensor_device *device, void *recording) {
    struct gpu *g = gpu_of(device);
    pthread_mutex_lock(&g->lock);
    g->plugin->call.forget(g->backend, recording);
    pthread_mutex_unlock(&g->lock);
}

/* The kernel of every task of a GPU on the host; its backend finds the real one by operation and format. */
static tensor_status runs_elsewhere(const struct fl_args *args) {
    return fl_fail(TENSOR_E_DEVICE, "%s: a kernel of a GPU was called on the host", fl_op_name(args->op));
}

static const struct fl_gpu_plugin *plugin_in_use; /* one for all devices */

static size_t gpu_need(const struct fl_args *args) {
    const struct fl_args inner = gpu_task_args(args);
    return gpu_task_need(args, plugin_in_use->call.need(&inner));
}

static bool gpu_find(struct tensor_device *device, const struct fl_format *format, enum fl_op op,
                     struct fl_choice *choice) {
    const struct gpu *g = gpu_of(device);
    *choice = (struct fl_choice){.kernel = runs_elsewhere, .need = gpu_need, .backend = FL_PORTABLE};
    return g->plugin->call.has(fl_written_format(format), op);
}

/* --- opening ------------------------------------------------------------------------------------------------------ */

static bool open_gpu(const struct fl_gpu_plugin *plugin, int number, char *why, size_t bytes) {
    struct gpu *g = &gpus[number];
    if (g->backend)
        return true;
    g->backend = plugin->call.open(number, &g->facts, why, bytes);
    if (!g->backend)
        return false;
    g->plugin = plugin_in_use = plugin;
    snprintf(g->name, sizeof g->name, "cuda:%d", number);
    pthread_mutex_init(&g->lock, NULL);
    g->device = (struct tensor_device){.name = g->name,
                                       .allocate = gpu_allocate,
                                       .release = gpu_release,
                                       .room = gpu_room,
                                       .submit = gpu_submit,
                                       .put = gpu_put,
                                       .get = gpu_get,
                                       .copy = gpu_copy,
                                       .fetch = gpu_fetch,
                                       .arrived = gpu_arrived,
                                       .fetched = gpu_fetched,
                                       .give_up_fetch = gpu_give_up_fetch,
                                       .wait = gpu_wait,
                                       .find = gpu_find,
                                       .record = gpu_record,
                                       .recorded = gpu_recorded,
                                       .replay = gpu_replay,
                                       .forget = gpu_forget,
                                       .describe = gpu_describe,
                                       .queue = &g->queue,
                                       .examines = true,
                                       .takes_blocks = true};
    g->queue.device = &g->device;
    if (fl_device_add(&g->device))
        return true;
    snprintf(why, bytes, "too many devices");
    plugin->call.close(g->backend);
    g->backend = NULL;
    return false;
}

/* The number in "cuda:N"; -1: it is none. */
static int number_of(const char *name) {
    char *end;
    const long n = strncmp(name, "cuda:", 5) || name[5] < '0' || name[5] > '9' ? -1 : strtol(name + 5, &end, 10);
    return n < 0 || n > 9999 || *end ? -1 : (int)n;
}

struct tensor_device *fl_gpu_find(const char *name, int place, char *why, size_t bytes) {
    const bool is_open = !strcmp(name, "cuda");
    int number = number_of(name);
    *why = 0;
    if (number < 0 && !is_open)
        return NULL;
    pthread_mutex_lock(&opening);
    const struct fl_gpu_plugin *plugin = fl_gpu_load(why, bytes);
    const int count = plugin ? plugin->call.count(why, bytes) : 0;
    struct tensor_device *device = NULL;
    if (count > 0 && is_open)
        number = place % (count > MOST ? MOST : count);
    if (count > 0 && (number >= count || number >= MOST))
        snprintf(why, bytes, count > 1 ? "the CUDA devices are cuda:0 to cuda:%d" : "cuda:%d is the only CUDA device",
                 count > MOST ? MOST - 1 : count - 1);
    else if (count > 0 && open_gpu(plugin, number, why, bytes))
        device = &gpus[number].device;
    pthread_mutex_unlock(&opening);
    return device;
}
