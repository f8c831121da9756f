/* test_block_formats.c - products of blocks by the public functions: operands and results of every 16-bit format and
 * binary32, with bias, residual and ReLU, to nearest and stochastically; bits, exponents and statistics against
 * arithmetic by hand, on every instruction set and with 1, 2 and 3 threads. usage: test_block_formats [SEED [ROUNDS]]
 */
#include "block_witness.h"
#include "flexlab/tensor_blocks.h"

static float *floats_of(const tensor *t) {
    float *x = malloc((size_t)tensor_count(t) * sizeof *x);
    must_have(x);
    for (int64_t i = 0; i < tensor_count(t); i++)
        x[i] = (float)value_at(t, i);
    return x;
}

static tensor_status multiply(const struct shape *v, tensor *y, const tensor *a, const tensor *b,
                              const struct addends *with) {
    const tensor_epilogue joined = {.bias = with->bias, .residual = with->residual, .relu = with->relu};
    const tensor_window steps = {.stride = {v->stride[0], v->stride[1]},
                                 .padding = {v->padding[0], v->padding[0], v->padding[1], v->padding[1]},
                                 .dilation = {v->dilation[0], v->dilation[1]},
                                 .groups = v->groups};
    switch ((int)v->op) {
    case FL_OP_CONV2D:
        return tensor_conv2d_fused(y, a, b, &steps, &joined);
    case FL_OP_CONV2D_INPUT_GRAD:
        return tensor_conv2d_input_grad(y, a, b, &steps);
    case FL_OP_CONV2D_WEIGHT_GRAD:
        return tensor_conv2d_weight_grad(y, a, b, &steps);
    case FL_OP_MATMUL_NT:
        return tensor_matmul_nt_fused(y, a, b, &joined);
    case FL_OP_MATMUL_TN:
        return tensor_matmul_tn(y, a, b);
    default:
        return tensor_matmul_fused(y, a, b, &joined);
    }
}

static struct shape shape_of(enum fl_op op) {
    struct shape v = {.op = op, .m = random_between(1, 20), .n = random_between(1, 20), .k = random_between(1, 80)};
    if (op != FL_OP_CONV2D && op != FL_OP_CONV2D_INPUT_GRAD && op != FL_OP_CONV2D_WEIGHT_GRAD)
        return v;
    v.groups = (int)random_between(1, 2);
    v.images = random_between(1, 36);
    v.h = random_between(2, 4), v.w = random_between(2, 5);
    v.c = v.groups * random_between(1, 18), v.f = v.groups * random_between(1, 18);
    v.r = random_between(1, 2), v.s = random_between(1, 2);
    for (int i = 0; i < 2; i++) {
        v.stride[i] = (int)random_between(1, 2), v.padding[i] = (int)random_between(0, 1);
        v.dilation[i] = 1;
    }
    v.p = (v.h + 2 * v.padding[0] - v.r) / v.stride[0] + 1;
    v.q = (v.w + 2 * v.padding[1] - v.s) / v.stride[1] + 1;
    return v;
}

/* Shapes of a, b and the result. */
static int dimensions(const struct shape *v, int64_t shape[3][4]) {
    const int64_t image[] = {v->images, v->h, v->w, v->c}, result[] = {v->images, v->p, v->q, v->f},
                  filters[] = {v->f, v->r, v->s, v->groups ? v->c / v->groups : 0};
    const bool tn = v->op == FL_OP_MATMUL_TN, nt = v->op == FL_OP_MATMUL_NT;
    const int64_t matrices[3][4] = {
        {tn ? v->k : v->m, tn ? v->m : v->k}, {nt ? v->n : v->k, nt ? v->k : v->n}, {v->m, v->n}};
    if (!v->groups) {
        memcpy(shape, matrices, sizeof matrices);
        return 2;
    }
    memcpy(shape[0], v->op == FL_OP_CONV2D ? image : result, sizeof image);
    memcpy(shape[1], v->op == FL_OP_CONV2D_WEIGHT_GRAD ? image : filters, sizeof image);
    memcpy(shape[2], v->op == FL_OP_CONV2D ? result : v->op == FL_OP_CONV2D_INPUT_GRAD ? image : filters, sizeof image);
    return 4;
}

static void check_product(enum fl_op op, tensor_format fa, tensor_format fb, tensor_format fy, const char *blocks) {
    static const char *const backends[] = {"ref", "portable", "avx2", "avx2_vnni", "avx512bw", "avx512", "avx512_amx"};
    const uint64_t start = seed;
    const struct shape v = shape_of(op);
    int64_t shapes[3][4];
    const int ndim = dimensions(&v, shapes);
    const enum fill fill = (enum fill)random_between(0, FILLS - 1);
    tensor *a = random_tensor(fa, ndim, shapes[0], fill), *b = random_tensor(fb, ndim, shapes[1], fill), *bias = NULL,
           *residual = NULL;
    const bool forward = op == FL_OP_CONV2D || op == FL_OP_MATMUL || op == FL_OP_MATMUL_NT;
    struct addends with = {.relu = forward && random_between(0, 1)};
    const int64_t columns = shapes[2][ndim - 1];
    if (forward && random_between(0, 1))
        with.bias = bias = random_tensor(all_formats[random_between(0, FORMATS - 1)], 1, &columns, fill);
    if (forward && random_between(0, 2) == 0)
        with.residual = residual = random_tensor(all_formats[random_between(0, FORMATS - 1)], ndim, shapes[2], fill);
    struct rounding how = {TENSOR_ROUND_NEAREST, check_random(&seed), 0};
    if (random_between(0, 3) == 0 && fy != FMT_FP32)
        how.mode = TENSOR_ROUND_STOCHASTIC;
    const struct fl_block_format *format = NULL;
    tensor_class class = TENSOR_EXACT;
    CHECK(!fl_block_format_find(&format, blocks) && !fl_operands_class(&class, format, format), "%s", tensor_error());
    struct value *in[2];
    for (int i = 0; i < 2; i++) {
        float *x = floats_of(i ? b : a);
        in[i] = values_in_blocks(format, x, cut_of(&v, i));
        free(x);
    }
    const int64_t count = results_of(&v);
    struct result *results = malloc((size_t)count * sizeof *results);
    struct pair *pairs = malloc((size_t)(count_of(&v, 0) + count_of(&v, 1)) * sizeof *pairs);
    must_have(results);
    must_have(pairs);
    for (int64_t i = 0; i < count; i++) {
        struct result *r = &results[i];
        *r = exact_sum(in[0], in[1], pairs, terms_of(&v, i, pairs));
        const double bias_of = bias ? value_at(bias, i % columns) : 0, more = residual ? value_at(residual, i) : 0;
        const double special = r->special + bias_of + more;
        if (!isfinite(special)) {
            r->special = special;
            if (with.relu && special < 0)
                *r = result_of(0);
            continue;
        }
        if (bias)
            r->x = number_add(r->x, number_at(bias, i % columns));
        if (residual)
            r->x = number_add(r->x, number_at(residual, i));
        if (with.relu && r->x.negative)
            *r = result_of(0);
    }
    tensor_class before_class = tensor_result_class();
    CHECK(!tensor_set_class(class), "%s", tensor_error());
    for (int isa = 0; isa < 6; isa++) {
        tensor_set_backend(backends[isa]);
        tensor_set_threads(1 + isa % 3);
        tensor *y = tensor_new(fy, ndim, shapes[2]);
        if (is_shared(fy))
            tensor_set_predictor(y, count % 2 ? "paper" : "current");
        tensor_set_rounding(y, how.mode, how.seed);
        char what[200];
        snprintf(what, sizeof what, "seed %llu op %d %s %s by %s to %s%s%s%s fill %d rounding %d %s",
                 (unsigned long long)start, op, blocks, tensor_format_name(fa), tensor_format_name(fb),
                 tensor_format_name(fy), bias ? " bias" : "", residual ? " residual" : "", with.relu ? " relu" : "",
                 fill, how.mode, backends[isa]);
        for (how.write = 0; how.write < 2; how.write++) {
            struct autoflex before = {.e = 0};
            if (is_shared(fy))
                before = *tensor_autoflex(y);
            const tensor_status status = multiply(&v, y, a, b, &with);
            CHECK(!status, "%s: %s", what, tensor_error());
            if (!status)
                check_write(what, y, results, &before, &how);
        }
        tensor_free(y);
    }
    tensor_set_class(before_class);
    tensor_set_backend(NULL);
    free(in[0]);
    free(in[1]);
    free(results);
    free(pairs);
    tensor_free(a);
    tensor_free(b);
    tensor_free(bias);
    tensor_free(residual);
}

int main(int argc, char **argv) {
    static const enum fl_op ops[] = {FL_OP_CONV2D, FL_OP_CONV2D_INPUT_GRAD, FL_OP_CONV2D_WEIGHT_GRAD,
                                     FL_OP_MATMUL, FL_OP_MATMUL_NT,         FL_OP_MATMUL_TN};
    static const char *const blocks[] = {"mx:int8", "mx:e2m1",      "mx:e4m3fn",   "mx:e5m2",
                                         "nvfp4",   "hbfp:int8/64", "channel:int8"};
    seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 20180206;
    for (int round = argc > 2 ? atoi(argv[2]) : 1; round > 0; round--)
        for (int i = 0; i < FORMATS; i++)
            for (int j = 0; j < FORMATS; j++)
                for (int k = 0; k < FORMATS; k++)
                    for (int o = 0; o < 6 && is_shared(all_formats[i]) == is_shared(all_formats[j]); o++)
                        check_product(ops[o], all_formats[i], all_formats[j], all_formats[k],
                                      blocks[random_between(0, 6)]);
    return check_summary();
}
