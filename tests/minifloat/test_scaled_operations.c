/* test_scaled_operations.c - every operation on tensors of floats under an exponent is that of binary32 on the values
 * that they hold, rounded once to the element at the output's exponent: results, wide parts and statistics, with the
 * rounding by a witness. Real functions, which are rounded once from the real number, are compared by kernels_scaled.
 * usage: test_scaled_operations [SEED] */
#include "kernel_cases.h"
#include "scaled_witness.h"

static struct witness witness;

/* The same call in binary32: operands hold the same numbers, those of wide parts where these count. */
static void make_twin(const struct call *call, struct call *twin) {
    *twin = *call;
    twin->format = twin->args.format = fl_format_of(FMT_FP32);
    twin->e_out = 0;
    for (int i = 0; i < 5; i++) {
        const struct block *own = i < 3 ? &call->in[i] : &call->addend[i - 3];
        struct block *b = i < 3 ? &twin->in[i] : &twin->addend[i - 3];
        const int64_t n = own->view.count;
        if (!own->memory)
            continue;
        *b = block_new(twin->format, n, 0);
        double *values = fl_alloc((size_t)n * sizeof *values);
        call->format->decode(call->format, &own->view, 0, n, values);
        for (int64_t j = 0; j < n; j++)
            ((float *)b->view.data)[j] = own->view.wide ? ((float *)own->view.wide)[j] : (float)values[j];
        fl_free(values);
        *(i < 3 ? &twin->args.in[i] : view_at(&twin->args, call->shape.addend[i - 3].at)) = b->view;
    }
}

static bool same(double a, double b) {
    return a == b ? signbit(a) == signbit(b) : a != a && b != b;
}

static void compare(const struct call *call, const char *label, const struct result *want, const struct result *got) {
    const int64_t n = call->shape.out;
    const float *x = want->out.view.data;
    double *y = fl_alloc((size_t)n * sizeof *y), maximum = 0;
    int64_t saturated = 0, flushed = 0, nonfinite = 0, wrong = 0;
    if (n)
        call->format->decode(call->format, &got->out.view, 0, n, y);
    for (int64_t i = 0; i < n; i++) {
        const double v = (double)x[i];
        const struct rounded r = witness_round(&witness, v, call->e_out);
        const double expected = v != v ? (witness.nan ? NAN : 0) : r.value;
        saturated += v == v && r.saturated;
        flushed += isfinite(v) && r.flushed;
        nonfinite += !isfinite(v);
        maximum = isfinite(v) ? fmax(maximum, fabs(v)) : maximum;
        const bool good = v != v ? expected == y[i] || y[i] != y[i] : same(expected, y[i]);
        if (!good && !wrong++)
            printf("%s: element %lld at %d: %a is %a, expected %a\n", label, (long long)i, call->e_out, v, y[i],
                   expected);
        if (got->wide)
            CHECK(same(v, (double)((float *)got->wide)[i]), "%s: wide part %lld is %a, expected %a", label,
                  (long long)i, (double)((float *)got->wide)[i], v);
    }
    CHECK(!wrong, "%s: %lld wrong", label, (long long)wrong);
    if (n)
        CHECK(got->stats.saturated == saturated && got->stats.flushed == flushed && got->stats.nonfinite == nonfinite &&
                  got->stats.maximum == maximum && !got->stats.gamma,
              "%s: saturated %lld of %lld, flushed %lld of %lld, nonfinite %lld of %lld, maximum %a of %a", label,
              (long long)got->stats.saturated, (long long)saturated, (long long)got->stats.flushed, (long long)flushed,
              (long long)got->stats.nonfinite, (long long)nonfinite, got->stats.maximum, maximum);
    for (int64_t i = 0; i < 2 * channels_of(call); i++)
        CHECK(want->fsum[i] == got->fsum[i] || (want->fsum[i] != want->fsum[i] && got->fsum[i] != got->fsum[i]),
              "%s: sum %lld is %a, expected %a", label, (long long)i, got->fsum[i], want->fsum[i]);
    fl_free(y);
}

static int check_operation(const struct fl_format *f, enum fl_op op, uint64_t seed) {
    static struct call call, twin;
    const fl_kernel plain = fl_ref_kernel(op), best = fl_kernel_select(f, op, FL_BACKENDS - 1, NULL);
    int cases = 0;
    bool more = true;
    for (int index = 0; more; index++)
        for (int style = 0; style < STYLES && more; style++) {
            more = call_make(&call, f, op, index, (enum style)style, TENSOR_ROUND_NEAREST, seed, best);
            if (!more)
                break;
            make_twin(&call, &twin);
            struct result want, got;
            CHECK(!run(&twin, fl_kernel_select(twin.format, op, FL_BACKENDS - 1, NULL), false, false, &want), "%s",
                  fl_op_name(op));
            for (int k = 0; k < 2; k++) {
                char label[160];
                if (k == 0 && index % 3)
                    continue; /* the reference kernels take long */
                snprintf(label, sizeof label, "%s.%s%s case %d style %d seed %llu", f->name, fl_op_name(op),
                         k ? "" : ".ref", index, style, (unsigned long long)seed);
                CHECK(!run(&call, k ? best : plain, false, false, &got), "%s", label);
                compare(&call, label, &want, &got);
                result_free(&got);
            }
            result_free(&want);
            for (int i = 0; i < 3; i++)
                twin.in[i].view.wide = NULL;
            call_free(&twin);
            call_free(&call);
            cases++;
        }
    return cases;
}

int main(int count, char **arguments) {
    static const struct {
        const char *name;
        int exponent_bits, fraction_bits;
        bool fn;
    } formats[] = {{"tensor:e4m3fn", 4, 3, true}, {"tensor:e5m2", 5, 2, false}, {"tensor:e2m1", 2, 1, false}};
    const uint64_t seed = count > 1 ? strtoull(arguments[1], NULL, 0) : 448;
    int operations = 0;
    printf("seed %llu\n", (unsigned long long)seed);
    for (int i = 0; i < 3; i++) {
        tensor_format id = FMT_NONE;
        CHECK(!tensor_format_find(&id, formats[i].name), "%s", tensor_error());
        witness_make(&witness, formats[i].exponent_bits, formats[i].fraction_bits, formats[i].fn);
        for (int op = 1; op < FL_OP_LIMIT; op++) {
            const bool some = i == 0 || op % 4 == i; /* all operations in one, some in the others */
            if (!some || !fl_op_name((enum fl_op)op) || fl_op_is_real((enum fl_op)op))
                continue;
            operations += check_operation(fl_format_of(id), (enum fl_op)op, seed) > 0;
        }
    }
    printf("%d operations\n", operations);
    CHECK(operations > 100, "%d operations, expected all", operations);
    return check_summary();
}
