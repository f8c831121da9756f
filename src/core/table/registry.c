/* registry.c - the table format x operation x backend: what caps it, which kernel runs, and the lines of
 * FLEXLAB_VERBOSE that report it. */
#include "core/base/cpu.h"
#include "core/base/fail.h"
#include "core/base/verbose.h"
#include "core/table/fast_class.h"
#include "core/table/mixed.h"
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BACKEND_NAMES "ref, portable, avx2, avx2_vnni, avx512bw, avx512 or avx512_amx"
enum {
    NEEDS_AVX2 = FL_CPU_AVX2 | FL_CPU_FMA | FL_CPU_F16C,
    NEEDS_AVX2_VNNI = NEEDS_AVX2 | FL_CPU_AVX_VNNI,
    NEEDS_AVX512BW = NEEDS_AVX2 | FL_CPU_AVX512F | FL_CPU_AVX512BW | FL_CPU_AVX512VL | FL_CPU_AVX512DQ,
    NEEDS_AVX512 = NEEDS_AVX512BW | FL_CPU_AVX512_VNNI,
#if defined(FL_AMX_EMULATED) && !defined(FL_AMX_VECTORS) /* tests: all in plain C */
    NEEDS_AVX512_AMX = 0,
    NEEDS_AVX512_AMX_FAST = 0
#elif defined(FL_AMX_EMULATED) /* tests: tiles in plain C */
    NEEDS_AVX512_AMX = NEEDS_AVX512 | FL_CPU_AVX512_VBMI,
    NEEDS_AVX512_AMX_FAST = NEEDS_AVX512_AMX
#else
    NEEDS_AVX512_AMX = NEEDS_AVX512 | FL_CPU_AVX512_VBMI | FL_CPU_AMX_TILE | FL_CPU_AMX_INT8,
    NEEDS_AVX512_AMX_FAST = NEEDS_AVX512 | FL_CPU_AVX512_VBMI | FL_CPU_AMX_TILE | FL_CPU_AMX_BF16
#endif
};
/* Each needs what the one before it needs, except that those of AVX-512 need no AVX-VNNI, and emulated tiles. */
static const struct {
    const char *name;
    unsigned needs;
} backends[FL_KERNEL_SETS] = {[FL_REF] = {"ref", 0},
                              [FL_PORTABLE] = {"portable", 0},
                              [FL_AVX2] = {"avx2", NEEDS_AVX2},
                              [FL_AVX2_VNNI] = {"avx2_vnni", NEEDS_AVX2_VNNI},
                              [FL_AVX512BW] = {"avx512bw", NEEDS_AVX512BW},
                              [FL_AVX512] = {"avx512", NEEDS_AVX512},
                              [FL_AVX512_AMX] = {"avx512_amx", NEEDS_AVX512_AMX},
                              [FL_AVX512_FAST] = {"avx512_fast", NEEDS_AVX512 | FL_CPU_AVX512_BF16},
                              [FL_AVX512_AMX_FAST] = {"avx512_amx_fast", NEEDS_AVX512_AMX_FAST}};

const char *fl_backend_name(enum fl_backend backend) {
    return backend >= 0 && backend < FL_KERNEL_SETS ? backends[backend].name : NULL;
}

bool fl_backend_runs(enum fl_backend backend) {
    return fl_cpu_has(backends[backend].needs);
}

static int backend_named(const char *name) {
    for (int i = 0; i < FL_BACKENDS; i++)
        if (!strcmp(name, backends[i].name))
            return i;
    return -1;
}

static enum fl_backend machine(void) {
    int best = FL_BACKENDS - 1;
    while (!fl_cpu_has(backends[best].needs))
        best--;
    return (enum fl_backend)best;
}

/* --- the cap ------------------------------------------------------------------------------------------------------ */

static atomic_int requested = -1; /* by tensor_set_backend */

tensor_status tensor_set_backend(const char *name) {
    if (!name) {
        requested = -1;
        return TENSOR_OK;
    }
    int backend = backend_named(name);
    if (backend < 0)
        return fl_fail(TENSOR_E_ARGUMENT, "unknown backend '%s': expected " BACKEND_NAMES, name);
    requested = backend;
    return TENSOR_OK;
}

/* FLEXLAB_ISA as a backend; FL_BACKENDS: not set; -1: unknown. Read once. */
static int environment_cap(void) {
    static int known = -2;
    int limit = __atomic_load_n(&known, __ATOMIC_RELAXED);
    if (limit == -2) {
        const char *name = getenv("FLEXLAB_ISA");
        limit = name && *name ? backend_named(name) : FL_BACKENDS;
        __atomic_store_n(&known, limit, __ATOMIC_RELAXED);
    }
    return limit;
}

tensor_status fl_backend_cap(enum fl_backend *cap) {
    const int limit = environment_cap();
    if (limit == -1)
        return fl_fail(TENSOR_E_ARGUMENT, "FLEXLAB_ISA=%s is unknown: expected " BACKEND_NAMES, getenv("FLEXLAB_ISA"));
    enum fl_backend best = machine();
    const int request = requested;
    if (limit < (int)best)
        best = (enum fl_backend)limit;
    if (request >= 0 && request < (int)best)
        best = (enum fl_backend)request;
    *cap = best;
    return TENSOR_OK;
}

/* --- the kernel that runs ----------------------------------------------------------------------------------------- */

/* For a backend within the cap. Tiles, which the system must permit, are requested here, when a kernel is about to run.
 */
static bool may_run(enum fl_backend backend) {
    const bool tiles = backend == FL_AVX512_AMX || backend == FL_AVX512_AMX_FAST;
    return fl_backend_runs(backend) && !(tiles && fl_cpu_tiles_refused());
}

fl_kernel fl_kernel_select(const struct fl_format *format, enum fl_op op, enum fl_backend cap,
                           enum fl_backend *chosen) {
    if (cap > machine())
        cap = machine();
    for (int backend = cap; backend > FL_REF; backend--) {
        const struct fl_kernels *set = format->sets[backend];
        const fl_kernel kernel =
            set && set->op[op] ? set->op[op] : fl_any_format_kernel(format, op, (enum fl_backend)backend);
        if (kernel && may_run((enum fl_backend)backend)) {
            if (chosen)
                *chosen = (enum fl_backend)backend;
            return kernel;
        }
    }
    if (chosen)
        *chosen = FL_REF;
    return fl_ref_kernel(op);
}

fl_need fl_need_of(const struct fl_format *format, enum fl_op op, enum fl_backend backend) {
    const struct fl_kernels *set = format->sets[backend];
    if (backend == FL_REF)
        return fl_ref_need(op);
    return set && set->op[op] ? set->need[op] : fl_any_format_need(format, op, backend);
}

fl_kernel fl_kernel_in(const struct fl_format *format, enum fl_op op, enum fl_backend backend) {
    const struct fl_kernels *set = format->sets[backend];
    return set && set->op[op] && may_run(backend) ? set->op[op] : NULL;
}

/* The lowest cap under which a kernel set of class fast may run. */
static enum fl_backend level_of(enum fl_backend backend) {
    return backend == FL_AVX512_AMX_FAST ? FL_AVX512_AMX : FL_AVX512;
}

fl_kernel fl_kernel_fast(const struct fl_format *format, enum fl_op op, enum fl_backend cap, enum fl_backend *chosen) {
    for (int backend = FL_KERNEL_SETS - 1; backend >= FL_BACKENDS; backend--) {
        const struct fl_kernels *set = format->sets[backend];
        const bool slow = backend == FL_AVX512_FAST && fl_cpu_dot_is_slow();
        if (!set || !set->op[op] || slow || cap < level_of((enum fl_backend)backend) ||
            !may_run((enum fl_backend)backend))
            continue;
        if (chosen)
            *chosen = (enum fl_backend)backend;
        return set->op[op];
    }
    return NULL;
}

static fl_kernel select_by_class(const struct fl_format *format, enum fl_op op, tensor_class class, enum fl_backend cap,
                                 enum fl_backend *chosen) {
    const fl_kernel fast = fl_is_fast(class) ? fl_kernel_fast(format, op, cap, chosen) : NULL;
    return fast ? fast : fl_kernel_select(format, op, cap, chosen);
}

/* --- FLEXLAB_VERBOSE ---------------------------------------------------------------------------------------------- */

struct line {
    char text[1024];
    size_t length;
};

__attribute__((format(printf, 2, 3))) static void append(struct line *line, const char *format, ...) {
    va_list list;
    va_start(list, format);
    const int n = vsnprintf(line->text + line->length, sizeof line->text - line->length, format, list);
    va_end(list);
    line->length += n > 0 ? (size_t)n : 0;
    if (line->length > sizeof line->text - 1)
        line->length = sizeof line->text - 1;
}

/* Appends why `backend` does not run what a slower one runs. */
static void append_reason(struct line *line, const struct fl_format *format, enum fl_op op, int backend) {
    const int level = backend < FL_BACKENDS ? backend : (int)level_of((enum fl_backend)backend); /* of a cap */
    const struct fl_kernels *set = format->sets[backend];
    const unsigned lacking = backends[backend].needs & ~fl_cpu_features();
    if (lacking) {
        append(line, "this machine lacks");
        for (int i = 0; i < FL_CPU_FEATURES; i++)
            if (lacking >> i & 1)
                append(line, " %s", fl_cpu_feature_name(i));
    } else if (environment_cap() < level) {
        append(line, "capped by FLEXLAB_ISA=%s", fl_backend_name((enum fl_backend)environment_cap()));
    } else if (requested >= 0 && requested < level) {
        append(line, "capped by tensor_set_backend");
    } else if (!set || !set->op[op]) {
        append(line, "it has no kernel of its own for this operation");
    } else if (level == FL_AVX512_AMX) { /* the answer is known since the kernel was chosen */
        append(line, "%s", fl_cpu_tiles_refused());
    } else {
        append(line, "the exact kernel is faster on this processor");
    }
}

/* Writes one line to stderr the first time that an operation of a format runs in a class, on any thread. */
static void tell(const struct fl_format *format, enum fl_op op, tensor_class class, enum fl_backend chosen) {
    static unsigned char reported[FL_FORMAT_LIMIT + 1][FL_OP_LIMIT][2];
    const int top = fl_is_fast(class) ? FL_KERNEL_SETS - 1 : FL_BACKENDS - 1;
    if (__atomic_exchange_n(&reported[fl_format_index(format)][op][fl_is_fast(class)], 1, __ATOMIC_RELAXED))
        return;
    struct line line = {.length = 0};
    append(&line, "flexlab: %s.%s.%s", format->name, fl_op_name(op), backends[chosen].name);
    for (int backend = top; backend > (int)chosen; backend--) {
        append(&line, "%s %s not used: ", backend == top ? ":" : ";", backends[backend].name);
        append_reason(&line, format, op, backend);
    }
    fprintf(stderr, "%s\n", line.text);
}

tensor_status fl_select(const struct fl_format *format, enum fl_op op, tensor_class class, struct fl_choice *choice) {
    enum fl_backend cap = FL_REF;
    tensor_status status = fl_backend_cap(&cap);
    if (status)
        return status;
    choice->kernel = select_by_class(format, op, class, cap, &choice->backend);
    choice->need = fl_need_of(format, op, choice->backend);
    return TENSOR_OK;
}

tensor_status fl_dispatch(const struct fl_format *format, enum fl_op op, tensor_class class, struct fl_choice *choice) {
    tensor_status status = fl_select(format, op, class, choice);
    if (status)
        return status;
    status = fl_check_verbose();
    if (!status && fl_verbose())
        tell(format, op, class, choice->backend);
    return status;
}

/* The same for a task of mixed formats, which has no class. */
static void tell_mixed(const struct fl_args *args, enum fl_backend chosen) {
    enum { FORMATS = FL_FORMAT_LIMIT + 1 };
    static unsigned char reported[FORMATS][FORMATS][FORMATS][FL_OP_LIMIT / 8];
    const struct fl_format *all[] = {args->p.product.formats.in[0], args->p.product.formats.in[1], args->format};
    const unsigned char bit = (unsigned char)(1u << args->op % 8);
    unsigned char *ops = reported[fl_format_index(all[0])][fl_format_index(all[1])][fl_format_index(all[2])];
    if (__atomic_fetch_or(&ops[args->op / 8], bit, __ATOMIC_RELAXED) & bit)
        return;
    fprintf(stderr, "flexlab: %s by %s to %s.%s.%s\n", all[0]->name, all[1]->name, all[2]->name, fl_op_name(args->op),
            backends[chosen].name);
}

static tensor_status select_mixed(const struct fl_args *args, struct fl_choice *choice) {
    const struct fl_format *products = fl_product_format(args);
    enum fl_backend cap = FL_REF;
    const tensor_status status = fl_backend_cap(&cap);
    if (status)
        return status;
    for (int backend = products ? (int)cap : FL_REF; backend > FL_REF; backend--) {
        const struct fl_kernels *set = products->sets[backend];
        if (!set || !set->mixed || !may_run((enum fl_backend)backend))
            continue;
        const bool matrices = args->op == FL_OP_MATMUL_BATCHED || args->op == FL_OP_MATMUL_BATCHED_NT ||
                              args->op == FL_OP_MATMUL_BATCHED_TN;
        *choice = matrices ? (struct fl_choice){fl_any_format_kernel(products, args->op, (enum fl_backend)backend),
                                                fl_any_format_need(products, args->op, (enum fl_backend)backend),
                                                (enum fl_backend)backend}
                           : (struct fl_choice){set->mixed, set->mixed_need, (enum fl_backend)backend};
        return TENSOR_OK;
    }
    *choice = (struct fl_choice){fl_ref_kernel(args->op), fl_ref_need(args->op), FL_REF};
    return TENSOR_OK;
}

tensor_status fl_dispatch_mixed(const struct fl_args *args, bool runs, struct fl_choice *choice) {
    const tensor_status status = select_mixed(args, choice);
    if (!status && runs && fl_verbose())
        tell_mixed(args, choice->backend);
    return status;
}

/* --- class accumulate --------------------------------------------------------------------------------------------- */

bool fl_task_accumulates(const struct fl_args *args, tensor_class class) {
    return fl_accumulates(class) && fl_is_product(args->op) &&
           fl_operand_format(args, 0)->arithmetic == FL_ARITHMETIC_FLOAT;
}

static struct fl_operand_kinds kinds_of(const struct fl_args *args) {
    return (struct fl_operand_kinds){fl_operand_format(args, 0)->operand, fl_operand_format(args, 1)->operand};
}

void fl_tell_class(const struct fl_args *args, tensor_class class, enum fl_backend chosen, const char *operands) {
    static unsigned char reported[FL_FORMAT_LIMIT + 1][FL_OP_LIMIT];
    static int last = TENSOR_EXACT;
    const struct fl_format *a = fl_operand_format(args, 0);
    if (__atomic_exchange_n(&last, (int)class, __ATOMIC_RELAXED) != (int)class)
        memset(reported, 0, sizeof reported);
    if (__atomic_exchange_n(&reported[fl_format_index(a)][args->op], 1, __ATOMIC_RELAXED))
        return;
    fprintf(stderr, "flexlab: %s.%s.%s: %s, %s%s%sresult %s\n", a->name, fl_op_name(args->op), backends[chosen].name,
            tensor_class_name(class), operands ? "operands " : "", operands ? operands : "", operands ? ", " : "",
            args->format->name);
}

static tensor_status check_operands(const struct fl_args *args, tensor_class class) {
    const struct fl_format *a = fl_operand_format(args, 0), *b = fl_operand_format(args, 1);
    char kinds[64];
    if (fl_accumulation_of_kinds(class, kinds_of(args)))
        return TENSOR_OK;
    return fl_fail(TENSOR_E_UNSUPPORTED,
                   "%s: class %s has no products of %s%s%s, expected operands of one kind of %s%s%s",
                   fl_op_name(args->op), tensor_class_name(class), a->name, a == b ? "" : " by ", a == b ? "" : b->name,
                   fl_accumulation_kinds(class, kinds, sizeof kinds),
                   fl_accumulation_of(class, FL_OPERAND_TF32) ? " (tf32: fp32)" : "",
                   fl_accumulation_of(class, FL_OPERAND_E4M3) ? ", or e4m3 by e5m2" : "");
}

tensor_status fl_dispatch_accumulating(const struct fl_args *args, tensor_class class, bool runs,
                                       struct fl_choice *choice) {
    const struct fl_format *a = fl_operand_format(args, 0);
    enum fl_backend cap = FL_REF;
    tensor_status status = check_operands(args, class);
    status = status ? status : fl_backend_cap(&cap);
    if (status)
        return status;
    int backend = cap;
    while (backend > FL_PORTABLE &&
           !(a->sets[backend] && a->sets[backend]->accumulate && may_run((enum fl_backend)backend)))
        backend--;
    const struct fl_kernels *set = a->sets[FL_PORTABLE > backend ? FL_PORTABLE : backend]; /* ref: the same model */
    *choice = (struct fl_choice){set->accumulate, set->accumulate_need, (enum fl_backend)backend};
    status = fl_check_verbose();
    if (!status && runs && fl_verbose()) {
        const struct fl_operand_kinds kinds = kinds_of(args);
        const bool one = kinds.a == kinds.b;
        char text[64];
        snprintf(text, sizeof text, "%s%s%s", fl_operand_kind_name(kinds.a), one ? "" : " by ",
                 one ? "" : fl_operand_kind_name(kinds.b));
        fl_tell_class(args, class, choice->backend, text);
    }
    return status;
}
