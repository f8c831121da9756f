/* operand_floats.c - operands of any format as binary32: by the kernels of a format, or by its codec. */
#include "core/table/operand_floats.h"
#include "core/base/memory.h"
#include "core/base/parallel.h"
#include "core/table/format.h"
#include "core/table/mixed.h"

enum { PART = 32768 /* elements */ };

size_t fl_operand_floats_bytes(const struct fl_args *args, int i) {
    return fl_operand_format(args, i)->id == FMT_FP32 ? 0 : fl_line_bytes((size_t)args->in[i].count * sizeof(float));
}

struct conversion {
    struct fl_view from;
    const struct fl_format *format;
    const struct fl_kernels *set; /* NULL: by the codec */
    float *to;
};

static void convert_part(void *context, int part, int worker) {
    (void)worker;
    const struct conversion *c = context;
    const int64_t first = (int64_t)part * PART, left = c->from.count - first, n = left < PART ? left : PART;
    if (c->set) {
        c->set->to_floats(c->format, &c->from, first, n, c->to + first, false);
        return;
    }
    double exactly[256];
    for (int64_t i = first; i < first + n; i += 256) {
        const int64_t some = first + n - i < 256 ? first + n - i : 256;
        c->format->decode(c->format, &c->from, i, some, exactly);
        for (int64_t j = 0; j < some; j++)
            c->to[i + j] = (float)exactly[j];
    }
}

/* Under a smaller shared exponent the conversions of a kernel set leave the range of binary32. */
enum { LEAST_EXPONENT = -112 };

static const struct fl_kernels *conversions_of(const struct fl_format *format, const struct fl_view *from) {
    enum fl_backend cap = FL_PORTABLE;
    if (fl_backend_cap(&cap) || (format->arithmetic == FL_ARITHMETIC_SHARED && fl_exponent(from) < LEAST_EXPONENT))
        return NULL;
    for (int i = cap < FL_AVX512BW ? cap : FL_AVX512BW; i >= FL_PORTABLE; i--)
        if (format->sets[i] && format->sets[i]->to_floats && fl_backend_runs((enum fl_backend)i))
            return format->sets[i];
    return NULL;
}

const float *fl_operand_floats(const struct fl_args *args, int i, bool scaled, int workers, void *memory) {
    const struct fl_format *from = fl_operand_format(args, i);
    if (from->id == FMT_FP32)
        return args->in[i].data;
    struct conversion c = {args->in[i], from, conversions_of(from, &args->in[i]), memory};
    if (!scaled && from->arithmetic == FL_ARITHMETIC_FLOAT)
        c.from = (struct fl_view){.data = args->in[i].data, .count = args->in[i].count};
    fl_parallel_within(workers, (int)((c.from.count + PART - 1) / PART), convert_part, &c);
    return c.to;
}
