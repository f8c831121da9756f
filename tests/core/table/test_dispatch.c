/* FLEXLAB_ISA and FLEXLAB_VERBOSE, each setting in a process of its own: which kernels run, which messages are printed
 * on standard error and how often, which values are refused. */
#include "check.h"
#include "core/base/cpu.h"
#include "core/table/format.h"
#include "flexlab/tensor.h"
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TEXT = 1 << 16 };

/* Runs body in a child with these two settings (NULL: not set). Returns its output to standard error in text; true if
 * all its checks held. */
static bool child(const char *isa, const char *verbose, void (*body)(void), char *text) {
    int ends[2];
    fflush(stdout);
    if (pipe(ends))
        return false;
    const pid_t pid = fork();
    if (pid == 0) {
        unsetenv("FLEXLAB_ISA");
        unsetenv("FLEXLAB_VERBOSE");
        if (isa)
            setenv("FLEXLAB_ISA", isa, 1);
        if (verbose)
            setenv("FLEXLAB_VERBOSE", verbose, 1);
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        check_failures = 0;
        body();
        fflush(NULL);
        _exit(check_failures != 0);
    }
    close(ends[1]);
    size_t length = 0;
    for (ssize_t n; length < TEXT - 1 && (n = read(ends[0], text + length, TEXT - 1 - length)) > 0;)
        length += (size_t)n;
    text[length] = 0;
    close(ends[0]);
    int status = 1;
    return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* NULL if all went well: CHECK counts for one thread. */
static void *add_often(void *format) {
    tensor *x = tensor_new(*(tensor_format *)format, TENSOR_SHAPE(100));
    double sum;
    bool ok = x != NULL;
    for (int i = 0; ok && i < 20; i++)
        ok = tensor_add(x, x, x) == TENSOR_OK;
    ok = ok && tensor_sum(&sum, x) == TENSOR_OK;
    tensor_free(x);
    return ok ? NULL : format;
}

/* Additions of every format, on several threads at once. */
static void additions(void) {
    tensor_set_threads(1);
    for (int i = 0; tensor_format_at(i); i++) {
        tensor_format format = tensor_format_at(i);
        pthread_t thread[4];
        void *failed[4];
        for (int t = 0; t < 4; t++)
            CHECK(!pthread_create(&thread[t], NULL, add_often, &format), "no thread");
        for (int t = 0; t < 4; t++)
            CHECK(!pthread_join(thread[t], &failed[t]) && !failed[t], "additions of %s", tensor_format_name(format));
    }
}

static void additions_of_a_program_capped(void) {
    CHECK(!tensor_set_backend("portable"), "%s", tensor_error());
    additions();
}

static void refused_isa(void) {
    tensor *x = tensor_new(tensor_format_at(0), TENSOR_SHAPE(2));
    CHECK(tensor_add(x, x, x) == TENSOR_E_ARGUMENT, "an unknown FLEXLAB_ISA was taken");
    CHECK(
        strstr(tensor_error(),
               "FLEXLAB_ISA=avx3 is unknown: expected ref, portable, avx2, avx2_vnni, avx512bw, avx512 or avx512_amx"),
        "%s", tensor_error());
    CHECK(!tensor_kernel_backend(tensor_format_at(0), "add"), "an unknown FLEXLAB_ISA has kernels");
    tensor_free(x);
}

static void refused_verbose(void) {
    tensor *x = tensor_new(tensor_format_at(0), TENSOR_SHAPE(2));
    double sum;
    for (int i = 0; i < 2; i++) { /* the second time as the first */
        CHECK(tensor_add(x, x, x) == TENSOR_E_ARGUMENT, "FLEXLAB_VERBOSE=yes was taken");
        CHECK(strstr(tensor_error(), "FLEXLAB_VERBOSE=yes is unknown: expected 0 or 1"), "%s", tensor_error());
        CHECK(tensor_sum(&sum, x) == TENSOR_E_ARGUMENT, "FLEXLAB_VERBOSE=yes was taken by a reduction");
    }
    tensor_free(x);
}

/* A product in each class, twice. */
static void products(void) {
    tensor *x = tensor_new(FMT_BF16, TENSOR_SHAPE(4, 4)), *y = tensor_new(FMT_BF16, TENSOR_SHAPE(4, 4));
    for (int i = 0; i < 4; i++) {
        CHECK(!tensor_set_class(i % 2 ? TENSOR_FAST : TENSOR_EXACT), "%s", tensor_error());
        CHECK(tensor_matmul(y, x, x) == TENSOR_OK, "%s", tensor_error());
    }
    tensor_free(x);
    tensor_free(y);
}

static int count(const char *text, const char *part) {
    int n = 0;
    for (; (text = strstr(text, part)); text += strlen(part))
        n++;
    return n;
}

/* The best backend that this machine runs and that has the kernel, at most `cap`. */
static enum fl_backend expected(const struct fl_format *f, enum fl_op op, int cap) {
    enum fl_backend chosen;
    fl_kernel_select(f, op, (enum fl_backend)cap, &chosen);
    return chosen;
}

static void said(const char *text, int cap, const char *who) {
    static const unsigned needs[FL_BACKENDS] = {[FL_AVX2] = FL_CPU_AVX2 | FL_CPU_FMA | FL_CPU_F16C,
                                                [FL_AVX2_VNNI] = FL_CPU_AVX_VNNI,
                                                [FL_AVX512BW] = FL_CPU_AVX512BW,
                                                [FL_AVX512] = FL_CPU_AVX512_VNNI,
                                                [FL_AVX512_AMX] = FL_CPU_AMX_TILE | FL_CPU_AMX_INT8};
    for (int i = 0; fl_format_at(i); i++) {
        const struct fl_format *f = fl_format_at(i);
        const enum fl_backend runs = expected(f, FL_OP_ADD, cap);
        char line[256];
        snprintf(line, sizeof line, "flexlab: %s.add.", f->name);
        CHECK(count(text, line) == 1, "%d lines of %s under %s:\n%s", count(text, line), line, who, text);
        const char *at = strstr(text, line);
        const char *end = at ? strchr(at, '\n') : NULL;
        if (!end)
            continue;
        at += strlen(line);
        const size_t name = strlen(fl_backend_name(runs));
        CHECK(!strncmp(at, fl_backend_name(runs), name) && (at[name] == ':' || at[name] == '\n'),
              "%s under %s, expected %s: %.*s", f->name, who, fl_backend_name(runs), (int)(end - at), at);
        for (int b = FL_BACKENDS - 1; b > (int)runs; b--) {
            char reason[128];
            snprintf(reason, sizeof reason, "%s not used: %s%s", fl_backend_name((enum fl_backend)b),
                     !fl_cpu_has(needs[b]) ? "this machine lacks "
                     : b > cap             ? "capped by "
                                           : "it has no kernel of its own",
                     !fl_cpu_has(needs[b]) || b <= cap ? "" : who);
            const char *found = strstr(at, reason);
            CHECK(found && found < end, "%s: no \"%s\" in \"%.*s\"", f->name, reason, (int)(end - at), at);
        }
    }
    CHECK(count(text, "\n") == 2 * count(text, ".add."), "more than the additions and the sums:\n%s", text);
}

/* Checks the lines of products(): that of class exact, then that of class fast. */
static void said_of_classes(const char *text, int cap, const char *who) {
    const struct fl_format *f = fl_format_of(FMT_BF16);
    const enum fl_backend runs = expected(f, FL_OP_MATMUL, cap);
    CHECK(count(text, "\n") == 2, "%s: not two lines:\n%s", who, text);
    const char *second = strchr(text, '\n');
    second = second ? second + 1 : text;
    char line[128];
    snprintf(line, sizeof line,
             "flexlab: bf16.matmul.%s:", fl_backend_name(runs)); /* it has no kernel above avx512bw */
    CHECK(!strncmp(text, line, strlen(line)), "%s: no \"%s\" in\n%s", who, line, text);
    const char *fast = strstr(text, "_fast");
    CHECK(fast && fast > second, "%s: class fast is named in the wrong line:\n%s", who, text);
    enum fl_backend best = runs;
    fl_kernel_fast(f, FL_OP_MATMUL, (enum fl_backend)cap, &best);
    snprintf(line, sizeof line, "flexlab: bf16.matmul.%s%s", fl_backend_name(best),
             best == FL_KERNEL_SETS - 1 ? "\n" : ":");
    CHECK(!strncmp(second, line, strlen(line)), "%s: no \"%s\" in\n%s", who, line, second);
    static const struct {
        enum fl_backend row, level;
        unsigned needs;
    } rows[] = {{FL_AVX512_FAST, FL_AVX512, FL_CPU_AVX512_BF16},
                {FL_AVX512_AMX_FAST, FL_AVX512_AMX, FL_CPU_AMX_TILE | FL_CPU_AMX_BF16}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if ((int)rows[i].row <= (int)best && best >= FL_BACKENDS)
            continue;
        const bool lacking = !fl_cpu_has(rows[i].needs), capped = cap < (int)rows[i].level;
        snprintf(line, sizeof line, "%s not used: %s%s", fl_backend_name(rows[i].row),
                 lacking  ? "this machine lacks "
                 : capped ? "capped by "
                          : "the exact kernel is faster",
                 !lacking && capped ? who : "");
        CHECK(strstr(second, line), "%s: no \"%s\" in\n%s", who, line, second);
    }
}

int main(void) {
    static char text[TEXT];
    CHECK(child(NULL, NULL, additions, text) && !*text, "said without being asked: %s", text);
    CHECK(child(NULL, "0", additions, text) && !*text, "said under FLEXLAB_VERBOSE=0: %s", text);
    CHECK(child("avx3", NULL, refused_isa, text) && !*text, "%s", text);
    CHECK(child(NULL, "yes", refused_verbose, text) && !*text, "%s", text);
    CHECK(child(NULL, "1", additions, text), "%s", text);
    said(text, FL_BACKENDS - 1, "no cap");
    CHECK(child(NULL, "1", products, text), "%s", text);
    said_of_classes(text, FL_BACKENDS - 1, "no cap");
    for (int cap = 0; cap < FL_BACKENDS; cap++) {
        char who[64];
        snprintf(who, sizeof who, "FLEXLAB_ISA=%s", fl_backend_name((enum fl_backend)cap));
        CHECK(child(fl_backend_name((enum fl_backend)cap), "1", additions, text), "%s: %s", who, text);
        said(text, cap, who);
        CHECK(child(fl_backend_name((enum fl_backend)cap), "1", products, text), "%s: %s", who, text);
        said_of_classes(text, cap, who);
    }
    CHECK(child(NULL, "1", additions_of_a_program_capped, text), "%s", text);
    said(text, FL_PORTABLE, "tensor_set_backend");
    CHECK(child("ref", "1", additions_of_a_program_capped, text), "%s", text);
    said(text, FL_REF, "FLEXLAB_ISA=ref");
    return check_summary();
}
