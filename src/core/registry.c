/* registry.c - the table format x op x backend: lookup, what this machine supports, and which kernel runs. */
#include "core/fail.h"
#include "core/format.h"
#include "format_table.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

const struct fl_format *fl_format_at(int i) {
    const int n = (int)(sizeof format_table / sizeof format_table[0]) - 1;
    return i >= 0 && i < n ? format_table[i] : NULL;
}

const struct fl_format *fl_format_of(tensor_format id) {
    for (int i = 0; format_table[i]; i++)
        if (format_table[i]->id == id)
            return format_table[i];
    return NULL;
}

const struct fl_format *fl_format_named(const char *name) {
    for (int i = 0; name && format_table[i]; i++)
        if (!strcmp(format_table[i]->name, name))
            return format_table[i];
    return NULL;
}

static const char *const backend_names[FL_BACKENDS] = {"ref", "portable", "avx2", "avx512"};

const char *fl_backend_name(enum fl_backend backend) {
    return backend >= 0 && backend < FL_BACKENDS ? backend_names[backend] : NULL;
}

static int backend_named(const char *name) {
    for (int i = 0; i < FL_BACKENDS; i++)
        if (!strcmp(name, backend_names[i]))
            return i;
    return -1;
}

/* --- what this machine supports --- */

#if defined(__x86_64__)
static enum fl_backend detect(void) {
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d))
        return FL_PORTABLE;
    const int osxsave = c >> 27 & 1, avx = c >> 28 & 1, fma = c >> 12 & 1, f16c = c >> 29 & 1;
    if (!osxsave || !avx || !fma || !f16c)
        return FL_PORTABLE;
    unsigned low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if ((low & 0x6) != 0x6) /* the system saves xmm and ymm */
        return FL_PORTABLE;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b >> 5 & 1))
        return FL_PORTABLE;
    const unsigned f_dq_bw_vl = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31;
    const int vnni = c >> 11 & 1;
    if ((low & 0xe6) == 0xe6 && (b & f_dq_bw_vl) == f_dq_bw_vl && vnni) /* opmask and zmm are saved too */
        return FL_AVX512;
    return FL_AVX2;
}
#else
static enum fl_backend detect(void) {
    return FL_PORTABLE;
}
#endif

static int requested = -1; /* by tensor_set_backend */

tensor_status tensor_set_backend(const char *name) {
    if (!name) {
        requested = -1;
        return TENSOR_OK;
    }
    int backend = backend_named(name);
    if (backend < 0)
        return fl_fail(TENSOR_E_ARGUMENT, "unknown backend '%s': expected ref, portable, avx2 or avx512", name);
    requested = backend;
    return TENSOR_OK;
}

static enum fl_backend machine(void) {
    static int known = -1; /* the same value whoever writes it first */
    int value = __atomic_load_n(&known, __ATOMIC_RELAXED);
    if (value < 0) {
        value = detect();
        __atomic_store_n(&known, value, __ATOMIC_RELAXED);
    }
    return (enum fl_backend)value;
}

tensor_status fl_backend_cap(enum fl_backend *cap) {
    static int environment = -2; /* -2: not read; -1: unknown name; FL_BACKENDS: not set */
    int limit = __atomic_load_n(&environment, __ATOMIC_RELAXED);
    if (limit == -2) {
        const char *name = getenv("FLEXLAB_ISA");
        limit = name && *name ? backend_named(name) : FL_BACKENDS;
        __atomic_store_n(&environment, limit, __ATOMIC_RELAXED);
    }
    if (limit == -1)
        return fl_fail(TENSOR_E_ARGUMENT, "FLEXLAB_ISA=%s is unknown: expected ref, portable, avx2 or avx512",
                       getenv("FLEXLAB_ISA"));
    enum fl_backend best = machine();
    if (limit < (int)best)
        best = (enum fl_backend)limit;
    if (requested >= 0 && requested < (int)best)
        best = (enum fl_backend)requested;
    *cap = best;
    return TENSOR_OK;
}

fl_kernel fl_kernel_select(const struct fl_format *format, enum fl_op op, enum fl_backend cap,
                           enum fl_backend *chosen) {
    if (cap > machine())
        cap = machine();
    for (int backend = cap; backend > FL_REF; backend--) {
        const struct fl_kernels *row = format->rows[backend];
        if (row && row->op[op]) {
            if (chosen)
                *chosen = (enum fl_backend)backend;
            return row->op[op];
        }
    }
    if (chosen)
        *chosen = FL_REF;
    return fl_ref_kernel(op);
}

const char *tensor_kernel_backend(tensor_format format, const char *op) {
    const struct fl_format *f = fl_format_of(format);
    enum fl_op number = fl_op_named(op);
    enum fl_backend cap, chosen;
    if (!f || number == FL_OP_NONE || fl_backend_cap(&cap) || !fl_kernel_select(f, number, cap, &chosen))
        return NULL;
    return backend_names[chosen];
}
