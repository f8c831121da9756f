/* operations.c - single operations as work. */
#include "flexlab/tensor_blocks.h"
#include "ours.h"
#include "worker.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_OPERANDS = 12 };
static tensor *operands[MOST_OPERANDS];
static int operand_count;

static tensor *add_operand(tensor_format format, int ndim, const int64_t *shape) {
    tensor *t = tensor_new(format, ndim, shape);
    return t ? operands[operand_count++] = t : NULL;
}

static bool load_normal(tensor *t, uint64_t seed) {
    const int64_t count = tensor_count(t);
    float *values = malloc((size_t)count * sizeof *values);
    bool done = false;
    if (values) {
        worker_normal(values, count, seed);
        done = !tensor_load_f32(t, values, count);
    }
    free(values);
    return done;
}

static tensor *normal_operand(tensor_format format, int ndim, const int64_t *shape, uint64_t seed) {
    tensor *t = add_operand(format, ndim, shape);
    return t && load_normal(t, seed) ? t : NULL;
}

/* --- matmul ------------------------------------------------------------------------------------------------------- */

enum { MANTISSA_EXPONENT = 14 };

static bool load_matrix(tensor *t, const char *data, uint64_t seed) {
    if (!tensor_format_is_shared(tensor_format_of(t)))
        return load_normal(t, seed);
    const int narrower = 16 - tensor_format_bits(tensor_format_of(t));
    int16_t *m = tensor_data(t);
    if (!worker_mantissas(m, tensor_count(t), data, seed))
        return false;
    for (int64_t i = 0; narrower && i < tensor_count(t); i++)
        m[i] = (int16_t)(m[i] / (1 << narrower));
    return !tensor_declare_exponent(t, MANTISSA_EXPONENT - narrower);
}

static void run_matmul(void) {
    tensor_matmul(operands[2], operands[0], operands[1]);
}

static const char *prepare_matmul(void (**run)(void), tensor_format format, char **argv) {
    *run = run_matmul;
    const int64_t m = atoll(argv[1]), n = atoll(argv[2]), k = atoll(argv[3]);
    tensor *a = add_operand(format, TENSOR_SHAPE(m, k)), *b = add_operand(format, TENSOR_SHAPE(k, n)),
           *y = add_operand(format, TENSOR_SHAPE(m, n));
    if (!a || !b || !y || !load_matrix(a, argv[0], 1) || !load_matrix(b, argv[0], 2))
        return ours_failure();
    return tensor_matmul(y, a, b) ? ours_failure() : NULL;
}

/* --- convolution -------------------------------------------------------------------------------------------------- */

static tensor_window window;
static char passes[8];

static void run_conv(void) {
    tensor *x = operands[0], *w = operands[1], *y = operands[2], *dy = operands[3], *dx = operands[4],
           *dw = operands[5];
    if (strchr(passes, 'f'))
        tensor_conv2d(y, x, w, &window);
    if (strchr(passes, 'd'))
        tensor_conv2d_input_grad(dx, dy, w, &window);
    if (strchr(passes, 'w'))
        tensor_conv2d_weight_grad(dw, dy, x, &window);
}

static const char *prepare_conv(void (**run)(void), tensor_format format, char **argv) {
    *run = run_conv;
    int64_t v[9];
    for (int i = 0; i < 9; i++)
        v[i] = atoll(argv[i]);
    if (v[6] < 1 || v[8] < 1)
        return worker_skip("conv: stride %lld, %lld groups", (long long)v[6], (long long)v[8]);
    window = (tensor_window){TENSOR_SQUARE(0, (int)v[6], (int)v[7]), .groups = (int)v[8]};
    snprintf(passes, sizeof passes, "%s", argv[9]);
    const int64_t h = (v[1] + 2 * v[7] - v[5]) / v[6] + 1, w = (v[2] + 2 * v[7] - v[5]) / v[6] + 1;
    const int64_t image[4] = {v[0], v[1], v[2], v[3]}, filters[4] = {v[4], v[5], v[5], v[3] / v[8]},
                  result[4] = {v[0], h, w, v[4]};
    if (!normal_operand(format, 4, image, 1) || !normal_operand(format, 4, filters, 2) ||
        !add_operand(format, 4, result) || !normal_operand(format, 4, result, 3) || !add_operand(format, 4, image) ||
        !add_operand(format, 4, filters))
        return ours_failure();
    return tensor_conv2d(operands[2], operands[0], operands[1], &window) ? ours_failure() : NULL;
}

/* --- attention ---------------------------------------------------------------------------------------------------- */

enum { Q, K, V, DY, SCORES, WEIGHTS, Y, DWEIGHTS, DSCORES, DQ, DK, DV };
static float scale;

/* The operations of nn_attention between the linear layers, forward and backward. */
static tensor_status attend(void) {
    tensor **o = operands;
    tensor_status status = tensor_matmul_batched_nt(o[SCORES], o[Q], o[K]);
    status = status ? status : tensor_softmax(o[WEIGHTS], o[SCORES], scale, true);
    status = status ? status : tensor_matmul_batched(o[Y], o[WEIGHTS], o[V]);
    status = status ? status : tensor_matmul_batched_nt(o[DWEIGHTS], o[DY], o[V]);
    status = status ? status : tensor_matmul_batched_tn(o[DV], o[WEIGHTS], o[DY]);
    status = status ? status : tensor_softmax_grad(o[DSCORES], o[DWEIGHTS], o[WEIGHTS], scale, true);
    status = status ? status : tensor_matmul_batched(o[DQ], o[DSCORES], o[K]);
    return status ? status : tensor_matmul_batched_tn(o[DK], o[DSCORES], o[Q]);
}

static void run_attention(void) {
    attend();
}

static const char *prepare_attention(void (**run)(void), tensor_format format, char **argv) {
    *run = run_attention;
    const int64_t heads[4] = {atoll(argv[0]), atoll(argv[1]), atoll(argv[2]), atoll(argv[3])},
                  square[4] = {heads[0], heads[1], heads[2], heads[2]};
    scale = (float)(1 / sqrt((double)heads[3]));
    for (int i = Q; i <= DV; i++) {
        const bool is_square = i == SCORES || i == WEIGHTS || i == DWEIGHTS || i == DSCORES;
        const int64_t *shape = is_square ? square : heads;
        if (!(i <= DY ? normal_operand(format, 4, shape, (uint64_t)i + 1) : add_operand(format, 4, shape)))
            return ours_failure();
    }
    return attend() ? ours_failure() : NULL;
}

/* --- normalisation, softmax and GELU, forward and backward -------------------------------------------------------- */

enum { X, OF_Y, RESULT, DX, GAMMA, BETA, DGAMMA, DBETA };
static const double EPSILON = 1e-5;
static tensor_status (*both_passes)(void);

static tensor_status normalise(void) {
    tensor **o = operands;
    tensor_status status = tensor_layernorm(o[RESULT], o[X], o[GAMMA], o[BETA], EPSILON);
    return status ? status : tensor_layernorm_grad(o[DX], o[DGAMMA], o[DBETA], o[OF_Y], o[X], o[GAMMA], EPSILON);
}

static tensor_status share(void) {
    tensor **o = operands;
    tensor_status status = tensor_softmax(o[RESULT], o[X], 1, false);
    return status ? status : tensor_softmax_grad(o[DX], o[OF_Y], o[RESULT], 1, false);
}

static tensor_status activate(void) {
    tensor **o = operands;
    tensor_status status = tensor_gelu_tanh(o[RESULT], o[X]);
    return status ? status : tensor_gelu_tanh_grad(o[DX], o[OF_Y], o[X]);
}

static void run_both_passes(void) {
    both_passes();
}

static const char *prepare_rows(void (**run)(void), tensor_format format, char **argv, tensor_status (*of_both)(void)) {
    *run = run_both_passes;
    both_passes = of_both;
    const int64_t shape[2] = {atoll(argv[0]), atoll(argv[1])};
    for (int i = X; i <= DBETA; i++) {
        const int ndim = i < GAMMA ? 2 : 1;
        const int64_t *of = i < GAMMA ? shape : shape + 1;
        const bool given = i == X || i == OF_Y || i == GAMMA || i == BETA;
        if (!(given ? normal_operand(format, ndim, of, (uint64_t)i + 1) : add_operand(format, ndim, of)))
            return ours_failure();
    }
    return of_both() ? ours_failure() : NULL;
}

static const char *prepare_layernorm(void (**run)(void), tensor_format format, char **argv) {
    return prepare_rows(run, format, argv, normalise);
}
static const char *prepare_softmax(void (**run)(void), tensor_format format, char **argv) {
    return prepare_rows(run, format, argv, share);
}
static const char *prepare_gelu(void (**run)(void), tensor_format format, char **argv) {
    return prepare_rows(run, format, argv, activate);
}

/* --- conversion --------------------------------------------------------------------------------------------------- */

/* Converts at the exponent that the first conversion found, as in training, in which autoflex knows it. */
static void run_convert(void) {
    if (tensor_format_is_shared(tensor_format_of(operands[1])))
        tensor_convert_at(operands[1], operands[0], tensor_exponent(operands[1]));
    else
        tensor_convert(operands[1], operands[0]);
}

static const char *prepare_convert(void (**run)(void), tensor_format from, char **argv) {
    *run = run_convert;
    tensor_format to;
    const int64_t count = atoll(argv[1]);
    if (tensor_format_find(&to, argv[0]) || !normal_operand(from, 1, &count, 1) || !add_operand(to, 1, &count) ||
        tensor_convert(operands[1], operands[0]))
        return ours_failure();
    return NULL;
}

const struct ours_work ours_operations[] = {
    {"matmul", 4, .of_format = prepare_matmul},       {"conv", 10, .of_format = prepare_conv},
    {"attention", 4, .of_format = prepare_attention}, {"layernorm", 2, .of_format = prepare_layernorm},
    {"softmax", 2, .of_format = prepare_softmax},     {"gelu", 2, .of_format = prepare_gelu},
    {"convert", 2, .of_format = prepare_convert},     {NULL}};
