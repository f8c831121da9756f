/* gpu_plugin.h - the interface between the library and the CUDA backend. The backend is a separate shared object,
 * opened when a device is first used (gpu_load.c); it exports one function, flexlab_gpu_plugin. C and C++, no CUDA.
 *
 * Functions that can fail return NULL on success, or a text that is valid until the next call with that device. */
#ifndef FL_GPU_PLUGIN_H
#define FL_GPU_PLUGIN_H

#include "core/queue/call.h"
#include "core/queue/sampled_rules.h"
#include "core/tensor/shadowed.h"
#include "minifloat/minifloat_rules.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { FL_GPU_VERSION = 6 };

struct fl_gpu_device; /* in the backend: a stream, memory, failures */
struct fl_gpu_fetch;  /* in the backend: a copy to the host that has begun */

struct fl_gpu_facts {
    char name[256];
    int major, minor; /* compute capability */
    int processors;
    size_t bytes, available;
    int driver, runtime; /* 13000: 13.0 */
};

/* A failure found while a task ran. Later tasks are skipped until the failure has been reported. */
enum fl_gpu_finding {
    FL_GPU_NOTHING,
    FL_GPU_SCALAR,  /* expected a finite number, or 0 or more, found `value` */
    FL_GPU_LOAD,    /* number `at` of a load is `value`, which the format does not hold */
    FL_GPU_CHANNEL, /* the coefficients of channel `at` are not finite: values[4] */
    FL_GPU_LABEL,   /* label `at` is `value`, of `limit` classes */
    FL_GPU_INDEX,   /* index `at` is `value`, of `limit` rows, or of images if `what` is NULL */
    FL_GPU_SKIPS    /* no failure: an update is left out (core/queue/skipping.h) */
};
struct fl_gpu_failure {
    int32_t finding;
    int32_t unused;
    int64_t at, limit;
    double value[4];
    const char *what;               /* name of the task: a text of the host */
    const struct fl_format *format; /* of the output; memory of the host */
};

/* What a task needs to know of floats made from their parameters. Kernels compute them as binary32 numbers: operands
 * are decoded into the workspace before the task, and what it wrote there is encoded afterwards. */
struct fl_gpu_floats {
    bool writes, reads; /* `format` is that of the output, or of operands; `source` is that of the source */
    struct fl_minifloat format, source;
    struct fl_minifloat_operands operands;
    float *out; /* where kernels write numbers of the output; NULL: nowhere */
};

/* How kernels read the operands of a product that they sample: `made` serves elements of no other kind. */
struct fl_gpu_sampled {
    struct fl_sampled_operand in[FL_SAMPLED_OPERANDS];
    struct fl_minifloat made[FL_SAMPLED_OPERANDS];
};

/* How kernels convert numbers to a shadow format. */
enum fl_gpu_shadow_kind { FL_GPU_SHADOW_MANTISSAS, FL_GPU_SHADOW_BINARY32, FL_GPU_SHADOW_FLOATS };
struct fl_gpu_shadow {
    int32_t kind;
    int32_t top;              /* of mantissas */
    struct fl_minifloat made; /* of floats other than binary32, under exponent 0 */
};

struct fl_gpu_blocks; /* a product whose operands are taken in blocks: gpu_blocks.h */

/* What a backend was built of (gpu_blocks.h). */
struct fl_gpu_sources {
    int version;                                               /* FL_GPU_VERSION */
    const char *flexlab;                                       /* version of the library */
    size_t call_bytes, slot_bytes, failure_bytes, facts_bytes; /* call_bytes: of a call and all it points to */
    uint64_t operations;                                       /* fl_gpu_operations */
};

struct fl_gpu_functions {
    /* The number of devices; 0 with the reason in `why`. */
    int (*count)(char *why, size_t bytes);
    struct fl_gpu_device *(*open)(int device, struct fl_gpu_facts *facts, char *why, size_t bytes);
    void (*close)(struct fl_gpu_device *device);
    const char *(*facts)(struct fl_gpu_device *device, struct fl_gpu_facts *facts);

    /* Memory set to zeros, 256-byte aligned, in the order of the queue. *memory NULL: there is not enough. */
    const char *(*allocate)(struct fl_gpu_device *device, size_t bytes, void **memory);
    const char *(*release)(struct fl_gpu_device *device, void *memory);
    const char *(*put)(struct fl_gpu_device *device, void *to, const void *from, size_t bytes);
    /* Waits; *failure: the failure found so far, which remains. */
    const char *(*get)(struct fl_gpu_device *device, void *to, const void *from, size_t bytes,
                       struct fl_gpu_failure *failure);
    const char *(*copy)(struct fl_gpu_device *device, void *to, const void *from, size_t bytes);
    /* The same without waiting: fetch queues a copy to memory of the backend; fetched waits for that copy only and
     * brings its bytes to the caller; *failure: the failure found before it. *fetch NULL: makes one for so many bytes,
     * which can be used again after fetched; give_up_fetch frees it, at any time. beside: the copy follows what is
     * queued, and what is queued later does not wait for it, and writes nothing where it reads; it says nothing of
     * failures. arrived: whether fetched would not wait. */
    const char *(*fetch)(struct fl_gpu_device *device, struct fl_gpu_fetch **fetch, const void *from, size_t bytes,
                         bool beside);
    const char *(*arrived)(struct fl_gpu_device *device, const struct fl_gpu_fetch *fetch, bool *arrived);
    const char *(*fetched)(struct fl_gpu_device *device, struct fl_gpu_fetch *fetch, void *to,
                           struct fl_gpu_failure *failure);
    void (*give_up_fetch)(struct fl_gpu_device *device, struct fl_gpu_fetch *fetch);
    /* Waits, and returns the failure found since the last wait. */
    const char *(*wait)(struct fl_gpu_device *device, struct fl_gpu_failure *failure);

    /* Whether the backend has an operation for the elements of a format, and its workspace. */
    bool (*has)(const struct fl_format *format, enum fl_op op);
    size_t (*need)(const struct fl_args *args);
    /* floats, blocks: NULL where the task has nothing to do with such. what: the name of the task in messages. */
    const char *(*submit)(struct fl_gpu_device *device, const struct fl_call *call, const struct fl_gpu_floats *floats,
                          const struct fl_gpu_blocks *blocks, const char *what);

    /* Tasks and copies within the device between record and recorded do not run: they become a recording, which replay
     * runs any number of times. recorded sets *recording to NULL if it fails; recording NULL: discards it. Meanwhile
     * the device accepts nothing else. */
    const char *(*record)(struct fl_gpu_device *device);
    const char *(*recorded)(struct fl_gpu_device *device, void **recording);
    const char *(*replay)(struct fl_gpu_device *device, void *recording);
    void (*forget)(struct fl_gpu_device *device, void *recording);
};

struct fl_gpu_plugin {
    struct fl_gpu_sources of;
    struct fl_gpu_functions call;
};

/* A hash of the operations and their names, which differs between different sources. */
static inline uint64_t fl_gpu_operations(void) {
    const char *const text =
#define FL_MAP1(id, CONSTANT, name, expr) #id #name ","
#define FL_MAP1_SCALAR(id, CONSTANT, name, expr) #id #name ","
#define FL_MAP2(id, CONSTANT, name, expr) #id #name ","
#define FL_MAP2_SCALAR(id, CONSTANT, name, expr) #id #name ","
#define FL_MAP3(id, CONSTANT, name, expr) #id #name ","
#define FL_MAP1_SCALARS(id, CONSTANT, name, expr) #id #name ","
#define FL_MAP2_SCALARS(id, CONSTANT, name, expr) #id #name ","
#define FL_OP(id, CONSTANT, name) #id #name ","
#include "flexlab/ops.def"
        "";
    uint64_t sum = 14695981039346656037u; /* FNV-1a */
    for (const char *p = text; *p; p++)
        sum = (sum ^ (uint8_t)*p) * 1099511628211u;
    return sum;
}

/* The one exported function. */
typedef const struct fl_gpu_plugin *(*fl_gpu_plugin_function)(void);
#define FL_GPU_PLUGIN_SYMBOL "flexlab_gpu_plugin"

#ifdef __cplusplus
}
#endif
#endif
