/* ours.c - flexlab as a contestant of the benchmark, and the machine's peaks. FLEXLAB_ISA and OMP_NUM_THREADS in the
 * environment choose instruction set and threads.
 *
 *     matmul FORMAT DATA M N K                  tensor_matmul, the whole call; DATA: gauss, uniform, 15bit
 *     conv FORMAT N H W C K R STRIDE PADDING GROUPS PASSES   of f forward, d input gradient, w weight gradient
 *     attention FORMAT BATCH HEADS LENGTH WIDTH causal, of heads of that width, forward and backward
 *     layernorm FORMAT ROWS COLUMNS             forward and backward; so the next two
 *     softmax FORMAT ROWS COLUMNS
 *     gelu FORMAT ROWS COLUMNS                  by tanh
 *     convert FROM TO COUNT                     tensor_convert, or tensor_convert_at for a shared exponent
 *     step FORMAT MODEL BATCH                   one training step, of images by momentum, of texts by AdamW
 *     evaluate FORMAT MODEL BATCH               nn_evaluate
 *     peak ISA PRODUCTS                         chains of fused multiply-adds, this many products on each thread
 *     memcpy BYTES
 *     busy WORK...                              any of these while another process computes without pause
 *
 * A FORMAT followed by :fast (bf16:fast) is that format in class fast, by whichever kernels it chooses here, one
 * followed by :accumulate=GPU that of class accumulate=GPU.
 *
 * ours memory WHAT FORMAT BATCH prints the bytes of a step of ResNet-20, WHAT stored or planned, and ends.
 *
 * ours kernels FORMAT OPERATION prints the name of the kernel set that runs it, and ends. */
#define _GNU_SOURCE /* prctl, kill */
#include "ours.h"
#include "peak.h"
#include "worker.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

const char *ours_failure(void) {
    return worker_skip("%s", tensor_error());
}

/* The format's name without ":fast" or another class, which sets the class of this thread: the one that prepares and
 * runs all work. */
static const char *without_class(const char *name) {
    static char kept[32];
    const char *class = strchr(name, ':');
    tensor_class wanted;
    if (!class || tensor_class_find(&wanted, class + 1) || tensor_set_class(wanted))
        return name;
    snprintf(kept, sizeof kept, "%.*s", (int)(class - name), name);
    return kept;
}

static const char *report_kernels(const char *format_name, const char *operation) {
    tensor_format format;
    if (tensor_format_find(&format, without_class(format_name)))
        return ours_failure();
    const char *row = tensor_kernel_backend(format, operation);
    if (!row)
        return worker_skip("unknown operation: %s", operation);
    puts(row);
    return NULL;
}

/* --- peaks -------------------------------------------------------------------------------------------------------- */

static void *from, *to;
static size_t copied;

static void run_peak(void) {
    peak_run(tensor_threads());
}

static void run_copy(void) {
    peak_copy(to, from, copied, tensor_threads());
}

static const char *prepare_copy(size_t bytes) {
    copied = bytes;
    from = worker_memory(bytes);
    to = worker_memory(bytes);
    memset(from, 1, bytes);
    return NULL;
}

/* --- a busy core -------------------------------------------------------------------------------------------------- */

/* A process that computes while this one is measured, and is stopped in between; 0: none. */
static pid_t other;
static bool other_runs;

static const char *start_other(void) {
    const pid_t parent = getpid();
    other = fork();
    if (other < 0)
        return worker_skip("no second process");
    if (!other) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        while (getppid() == parent)
            for (volatile unsigned n = 1; n << 8; n++) {
            }
        _exit(0);
    }
    kill(other, SIGSTOP);
    return NULL;
}

static void resume_other(void) {
    if (other && !other_runs) {
        kill(other, SIGCONT);
        other_runs = true;
    }
}

static void pause_other(void) {
    if (other) {
        kill(other, SIGSTOP);
        other_runs = false;
    }
}

/* --- dispatch ----------------------------------------------------------------------------------------------------- */

static void (*chosen)(void);

static void run(void) {
    resume_other();
    chosen();
}

static const struct ours_work *work_of(const struct ours_work *list, const char *name, int words) {
    while (list->name && (strcmp(list->name, name) != 0 || list->words != words))
        list++;
    return list->name ? list : NULL;
}

static const char *prepare(int argc, char **argv) {
    const char *name = argv[0];
    if (!strcmp(name, "busy") && argc > 1 && !other) {
        const char *reason = start_other();
        return reason ? reason : prepare(argc - 1, argv + 1);
    }
    if (!strcmp(name, "peak") && argc == 3) {
        chosen = run_peak;
        return peak_prepare(argv[1], atof(argv[2])) ? NULL : worker_skip("this machine has no %s", argv[1]);
    }
    if (!strcmp(name, "memcpy") && argc == 2) {
        chosen = run_copy;
        return prepare_copy((size_t)atoll(argv[1]));
    }
    const char *variant = argc > 1 ? without_class(argv[1]) : "";
    const struct ours_work *work = work_of(ours_networks, name, argc - 2);
    if (work)
        return work->of_variant(&chosen, variant, argv + 2);
    tensor_format format;
    if (!(work = work_of(ours_operations, name, argc - 2)))
        return worker_skip("flexlab has no such work: %s with %d arguments", name, argc - 1);
    return tensor_format_find(&format, variant) ? ours_failure() : work->of_format(&chosen, format, argv + 2);
}

int main(int argc, char **argv) {
    const bool memory = argc == 5 && !strcmp(argv[1], "memory"), kernels = argc == 4 && !strcmp(argv[1], "kernels");
    if (memory || kernels) {
        const char *reason = memory ? ours_memory(argv[2], argv[3], atoi(argv[4])) : report_kernels(argv[2], argv[3]);
        if (reason)
            fprintf(stderr, "%s\n", reason);
        return reason != NULL;
    }
    return worker_serve(&(struct worker){prepare, run, pause_other});
}
