/* gemm_mixed.c - tasks of several formats: the family of the products with the stores of any format. Operands of
 * different float formats are converted to binary32 first, which is exact. */
#include "gemm/gemm_mixed.h"
#include "core/base/memory.h"
#include "core/base/parallel.h"

enum { CONVERTED_PART = 32768 }; /* elements */

/* Whether operand i is converted to binary32. */
static bool is_converted(const struct fl_args *args, int i) {
    const struct fl_format *format = fl_operand_format(args, i);
    return format->arithmetic != FL_ARITHMETIC_SHARED && format != fl_product_format(args);
}

static size_t converted_bytes(const struct fl_args *args) {
    size_t bytes = 0;
    for (int i = 0; i < 2; i++)
        bytes += is_converted(args, i) ? fl_line_bytes((size_t)args->in[i].count * sizeof(float)) : 0;
    return bytes;
}

struct conversion {
    const struct fl_view *from;
    const struct fl_kernels *row;
    float *to;
    const struct fl_format *format;
};

static void convert_part(void *context, int part, int worker) {
    (void)worker;
    const struct conversion *c = context;
    const int64_t first = (int64_t)part * CONVERTED_PART, left = c->from->count - first;
    c->row->to_floats(c->format, c->from, first, left < CONVERTED_PART ? left : CONVERTED_PART, c->to + first, false);
}

static struct gemm_family with_stores(const struct gemm_family *family, const struct gemm_stores *stores) {
    struct gemm_family ours = *family;
    ours.stores = stores;
    return ours;
}

static struct gemm_stores stores_of(const struct gemm_stores *any, const struct fl_args *args) {
    struct gemm_stores stores = *any;
    stores.element_bytes = args->format->bytes;
    return stores;
}

tensor_status fl_gemm_mixed(const struct gemm_family *family, const struct gemm_stores *any,
                            const struct fl_args *args) {
    const struct gemm_stores stores = stores_of(any, args);
    const struct gemm_family ours = with_stores(family, &stores);
    const size_t converted = converted_bytes(args);
    if (!converted)
        return fl_gemm(&ours, args);
    const size_t need = fl_gemm_need(&ours, args);
    char *memory = fl_workspace(args, converted + need);
    if (!memory)
        return TENSOR_E_MEMORY;
    struct fl_args floats = *args;
    for (int i = 0; i < 2; i++) {
        if (!is_converted(args, i))
            continue;
        struct conversion c = {&args->in[i], fl_operand_format(args, i)->sets[FL_PORTABLE], (float *)(void *)memory,
                               fl_operand_format(args, i)};
        fl_parallel((int)((c.from->count + CONVERTED_PART - 1) / CONVERTED_PART), convert_part, &c);
        floats.in[i].data = memory;
        memory += fl_line_bytes((size_t)c.from->count * sizeof(float));
    }
    floats.workspace = memory;
    floats.workspace_bytes = need;
    return fl_gemm(&ours, &floats);
}

size_t fl_gemm_mixed_need(const struct gemm_family *family, const struct gemm_stores *any, const struct fl_args *args) {
    const struct gemm_stores stores = stores_of(any, args);
    const struct gemm_family ours = with_stores(family, &stores);
    return converted_bytes(args) + fl_gemm_need(&ours, args);
}
