/* Messages about a CUDA device if there is no backend, one of another library, or no device; afterwards the processor
 * still works. The backend is searched once in a process: each case is a process. */
#define _GNU_SOURCE
#include "check.h"
#include "flexlab/tensor.h"
#include "flexlab/version.h"
#include <dlfcn.h>
#include <malloc.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *this_case;

static void works_on(tensor_device *device) {
    enum { N = 37 };
    double values[N], got[N];
    tensor *x = tensor_new_in(device, FMT_FLEX16_5, TENSOR_SHAPE(N)),
           *y = tensor_new_in(device, FMT_FLEX16_5, TENSOR_SHAPE(N));
    for (int i = 0; i < N; i++)
        values[i] = i - 18;
    CHECK(x && y && !tensor_load_f64(x, values, N) && !tensor_add(y, x, x) && !tensor_store_f64(y, got, N),
          "%s: on %s: %s", this_case, tensor_device_name(device), tensor_error());
    for (int i = 0; i < N; i++)
        CHECK(got[i] == 2 * values[i], "%s: element %d is %g", this_case, i, got[i]);
    tensor_free(x);
    tensor_free(y);
}

static void works_on_cpu(void) {
    works_on(tensor_device_find("cpu"));
}

/* The name is refused with this text in the message; repeatedly the same, and without a leak. */
static void refused(const char *name, tensor_status want, const char *part) {
    char first[600];
    CHECK(!tensor_device_find(name) && tensor_error_status() == want && strstr(tensor_error(), part),
          "%s: '%s': status %d '%s', want %d '%s'", this_case, name, (int)tensor_error_status(), tensor_error(),
          (int)want, part);
    snprintf(first, sizeof first, "%s", tensor_error());
    works_on_cpu();
    CHECK(!tensor_device_find(name) && !strcmp(tensor_error(), first), "%s: '%s': first '%s', then '%s'", this_case,
          name, first, tensor_error());
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__)
    size_t before = 0;
    for (int i = 0; i < 200; i++) { /* the first hundred fills the allocator's caches */
        before = i == 100 ? mallinfo2().uordblks : before;
        (void)tensor_device_find(name);
    }
    CHECK(mallinfo2().uordblks <= before, "%s: '%s': %zu bytes more after 100 refusals", this_case, name,
          mallinfo2().uordblks - before);
#endif
}

static void unavailable(const char *part) {
    refused("cuda", TENSOR_E_DEVICE, part);
    CHECK(strstr(tensor_error(), "cuda is unavailable: "), "%s: %s", this_case, tensor_error());
    refused("cuda:0", TENSOR_E_DEVICE, part);
    CHECK(tensor_device_at(0) == tensor_device_find("cpu") && !tensor_device_at(1), "%s: more devices than cpu",
          this_case);
}

/* Names that no device has, on any machine. */
static void names(void) {
    static const char *const wrong[] = {"",        "cud",     "CUDA",     "cuda0",          "cuda:",   "cuda:x",
                                        "cuda:-1", "cuda:1x", "cuda: 1",  "cuda:+1",        "cuda:0 ", "cuda:0:0",
                                        "cuda::0", "cuda:0.", "cuda:0x0", "cuda:4294967296"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        refused(wrong[i], TENSOR_E_ARGUMENT, "unknown device '");
    refused("cuda:99999999999999999999", TENSOR_E_ARGUMENT, "unknown device '");
    CHECK(!tensor_device_find(NULL) && tensor_error_status() == TENSOR_E_ARGUMENT, "%s: NULL", this_case);
}

/* --- cases -------------------------------------------------------------------------------------------------------- */

static void no_file(void) {
    unavailable("FLEXLAB_CUDA_LIBRARY: /nowhere/libflexlab_cuda.so: ");
    names();
}

/* On a machine with a GPU it can be opened; on one without, the message names what is missing. */
static void real_backend(void) {
    if (tensor_device_find("cuda")) {
        CHECK(tensor_device_find("cuda") == tensor_device_find("cuda:0"), "%s: two devices for one", this_case);
        refused("cuda:9999", TENSOR_E_DEVICE, "CUDA device");
    } else {
        CHECK(tensor_error_status() == TENSOR_E_DEVICE && strstr(tensor_error(), "cuda is unavailable: ") &&
                  (strstr(tensor_error(), "no CUDA driver: ") || strstr(tensor_error(), "no CUDA device") ||
                   strstr(tensor_error(), "CUDA reports ")),
              "%s: %s", this_case, tensor_error());
        printf("%s\n", tensor_error());
    }
    works_on_cpu();
    names();
}

static void no_device(void) {
    unavailable("no CUDA device");
    names();
}

static void two_devices(void) {
    tensor_device *first = tensor_device_find("cuda");
    CHECK(first && first == tensor_device_find("cuda:0") && tensor_device_at(1) == first && !tensor_device_at(2),
          "%s: the first: %s", this_case, tensor_error());
    refused("cuda:2", TENSOR_E_DEVICE, "the CUDA devices are cuda:0 to cuda:1");
    refused("cuda:7", TENSOR_E_DEVICE, "the CUDA devices are cuda:0 to cuda:1");
    tensor_device *second = tensor_device_find("cuda:1");
    CHECK(second && second != first && tensor_device_at(2) == second && !strcmp(tensor_device_name(second), "cuda:1"),
          "%s: the second: %s", this_case, tensor_error());
    char text[300] = "";
    CHECK(!tensor_device_describe(second, text, sizeof text) && strstr(text, "compute capability "), "%s: '%s'",
          this_case, text);
    tensor *x = tensor_new_in(first, FMT_FP16, TENSOR_SHAPE(4)), *y = tensor_new_in(second, FMT_FP16, TENSOR_SHAPE(4));
    CHECK(tensor_add(y, x, x) == TENSOR_E_ARGUMENT, "%s: tensors of two devices: %s", this_case, tensor_error());
    tensor_free(x);
    tensor_free(y);
    works_on(first);
    works_on(second);
    long (*count)(const char *what);
    void *symbol = dlsym(dlopen(getenv("FLEXLAB_CUDA_LIBRARY"), RTLD_NOW | RTLD_NOLOAD), "ptx_count");
    memcpy(&count, &symbol, sizeof count);
    CHECK(!count("current"), "%s: the thread's current device is %ld", this_case, count("current"));
    works_on_cpu();
    names();
}

/* Runs a function in a fork of this process, at the same time as `here`. */
static void in_fork(void (*there)(void), void (*here)(void)) {
    int status = -1;
    const pid_t child = fork();
    if (!child) {
        there();
        exit(check_summary());
    }
    if (here)
        here();
    CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status),
          "%s: status %d", this_case, status);
}

static void works_there(void) {
    works_on(tensor_device_find("cuda"));
}
static void two_processes(void) {
    in_fork(works_there, works_there);
}

static tensor *opened;
static void refused_in_fork(void) {
    double got[4];
    CHECK(tensor_store_f64(opened, got, 4) == TENSOR_E_DEVICE && strstr(tensor_error(), "this is a fork of it"),
          "%s: %s", this_case, tensor_error());
    CHECK(!tensor_new_in(tensor_device_of(opened), FMT_FP16, TENSOR_SHAPE(4)) &&
              tensor_error_status() == TENSOR_E_DEVICE && strstr(tensor_error(), "this is a fork of it"),
          "%s: %s", this_case, tensor_error());
    tensor_free(opened);
    works_on_cpu();
}
static void unavailable_in_fork(void) {
    unavailable("has used CUDA, and this is a fork of it");
}
static void forks(void) {
    refused("cuda:3", TENSOR_E_DEVICE, "cuda:0 is the only CUDA device");
    in_fork(unavailable_in_fork, NULL); /* CUDA was used, and no device opened */
    opened = tensor_new_in(tensor_device_find("cuda"), FMT_FP16, TENSOR_SHAPE(4));
    CHECK(opened, "%s: %s", this_case, tensor_error());
    in_fork(refused_in_fork, works_there);
    tensor_free(opened);
    works_there();
}

#ifndef MACHINE
#define MACHINE NULL
#endif
#ifndef CUDA_BACKEND
#define CUDA_BACKEND NULL
#endif
static const struct {
    const char *name;
    void (*run)(void);
    const char *message;          /* run NULL: that with which cuda is refused */
    const char *backend;          /* NULL: was not built */
    const char *variable, *value; /* in addition; NULL: none */
} cases[] = {
    {"no file", no_file, NULL, "/nowhere/libflexlab_cuda.so", NULL, NULL},
    {"a name that the system would look for", NULL, "'libflexlab_cuda.so' is not an absolute path",
     "libflexlab_cuda.so", NULL, NULL},
    {"a library that is no backend", NULL, "no function flexlab_gpu_plugin", NO_BACKEND, NULL, NULL},
    {"a backend that gives none", NULL, "no function flexlab_gpu_plugin", OTHER_BACKEND, "OTHER_BACKEND", "none"},
    {"another interface", NULL, "expected " FLEXLAB_VERSION_STRING ", interface ", OTHER_BACKEND, "OTHER_BACKEND",
     "interface"},
    {"another library", NULL, "belongs to flexlab 0.0.1, interface ", OTHER_BACKEND, "OTHER_BACKEND", "version"},
    {"other sources", NULL, "built from other sources", OTHER_BACKEND, "OTHER_BACKEND", "sources"},
    {"the CUDA backend", real_backend, NULL, CUDA_BACKEND, NULL, NULL},
    {"no device", no_device, NULL, MACHINE, "FLEXLAB_PTX_DEVICES", "0"},
    {"two devices", two_devices, NULL, MACHINE, "FLEXLAB_PTX_DEVICES", "2"},
    {"an old driver", NULL, "the driver is for CUDA 11.8, the backend for ", MACHINE, "FLEXLAB_PTX_DRIVER", "11080"},
    {"a driver older than the PTX", NULL,
     "unsupported toolchain. (cudaErrorUnsupportedPtxVersion); the driver is for CUDA ", MACHINE, "FLEXLAB_PTX_FAIL",
     "cudaFuncGetAttributes@0@222"},
    {"a device that another process has for itself", NULL, "busy or unavailable", MACHINE, "FLEXLAB_PTX_FAIL",
     "cudaMemPoolCreate@0@46"},
    {"two processes", two_processes, NULL, MACHINE, NULL, NULL},
    {"forks", forks, NULL, MACHINE, NULL, NULL},
};

static size_t number;
static void run_case(void) {
    setenv("FLEXLAB_CUDA_LIBRARY", cases[number].backend, 1);
    if (cases[number].variable)
        setenv(cases[number].variable, cases[number].value, 1);
    if (cases[number].run)
        cases[number].run();
    else
        unavailable(cases[number].message);
}

int main(void) {
    char text[100];
    CHECK(!tensor_device_describe(tensor_device_find("cpu"), text, sizeof text) && *text, "cpu: '%s'", text);
    CHECK(!tensor_device_describe(tensor_device_find("cpu"), text, 3) && strlen(text) == 2, "cut to 3 bytes: '%s'",
          text);
    CHECK(tensor_device_describe(NULL, text, sizeof text) == TENSOR_E_ARGUMENT, "no device");
    CHECK(tensor_device_describe(tensor_device_find("cpu"), NULL, 0) == TENSOR_E_ARGUMENT, "no text");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *backend = cases[i].backend;
        this_case = cases[i].name;
        if (!backend) {
            printf("%s: left out, was not built\n", this_case);
            continue;
        }
        fflush(stdout);
        number = i;
        in_fork(run_case, NULL);
    }
    return check_summary();
}
