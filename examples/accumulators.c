/* accumulators.c - the error that the accumulators of named GPUs add to products, by the number of summands. Multiplies
 * random matrices of 16- and 8-bit floats in the classes accumulate=GPU and compares each element with its sum in
 * double precision, in which these are exact to far below a binary32. Prints a line of CSV for each format, kind of
 * data, class and k: the root mean square of the error of the sums, and that which rounding the operands to the format
 * made, both relative to the root mean square of the sums. usage: accumulators [SEED [LARGEST_K]];
 * docs/experiments/accumulators.md is the experiment. */
#include "arguments.h"
#include "flexlab/tensor.h"
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 32, COLUMNS = 32, LEAST_K = 32 };

static const struct {
    const char *format;
    const char *classes[6];
    double size; /* of the numbers: the middle of the format's range */
} works[] = {{"fp16", {"exact", "accumulate=v100", "accumulate=a100", "accumulate=h100", "accumulate=b200"}, 1},
             {"bf16", {"exact", "accumulate=a100", "accumulate=h100"}, 1},
             {"e4m3fn",
              {"exact", "accumulate=ada", "accumulate=h100", "accumulate=h100:promote=128",
               "accumulate=h100:promote=512", "accumulate=b200"},
              16}};
static const char *const kinds[] = {"normal", "positive"};

static uint64_t state;

/* From 0 to 1, never 0 (splitmix64). */
static double uniform(void) {
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return ((double)((z ^ z >> 31) >> 11) + 1) * 0x1p-53;
}

static double normal(void) {
    return sqrt(-2 * log(uniform())) * cos(2 * acos(-1) * uniform());
}

static void check(tensor_status status) {
    if (status) {
        fprintf(stderr, "%s\n", tensor_error());
        exit(1);
    }
}

/* A matrix of random numbers, and what the format makes of them. */
struct matrix {
    tensor *t;
    float *given, *rounded;
};

static struct matrix random_matrix(tensor_format format, int64_t rows, int64_t columns, int positive, double size) {
    struct matrix m = {tensor_new(format, TENSOR_SHAPE(rows, columns)), NULL, NULL};
    const size_t count = (size_t)(rows * columns);
    m.given = malloc(count * sizeof *m.given);
    m.rounded = malloc(count * sizeof *m.rounded);
    if (!m.t || !m.given || !m.rounded) {
        fprintf(stderr, "no memory for a matrix of %zu numbers\n", count);
        exit(1);
    }
    for (size_t i = 0; i < count; i++) {
        const double x = size * normal();
        m.given[i] = (float)(positive ? fabs(x) : x);
    }
    check(tensor_load_f32(m.t, m.given, (int64_t)count));
    check(tensor_store_f32(m.t, m.rounded, (int64_t)count));
    return m;
}

static void free_matrix(struct matrix *m) {
    tensor_free(m->t);
    free(m->given);
    free(m->rounded);
}

/* x is ROWS by k, w is k by COLUMNS. */
static double sum_of(const float *x, const float *w, int64_t k, int row, int column) {
    double sum = 0;
    for (int64_t i = 0; i < k; i++)
        sum += (double)x[row * k + i] * w[i * COLUMNS + column];
    return sum;
}

static void measure(int work, int kind, int64_t k) {
    tensor_format format;
    check(tensor_format_find(&format, works[work].format));
    struct matrix x = random_matrix(format, ROWS, k, kind, works[work].size),
                  w = random_matrix(format, k, COLUMNS, kind, works[work].size);
    tensor *y = tensor_new(FMT_FP32, TENSOR_SHAPE(ROWS, COLUMNS));
    static double sums[ROWS * COLUMNS];
    static float made[ROWS * COLUMNS];
    double square = 0, operands = 0;
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < COLUMNS; j++) {
            const double sum = sum_of(x.rounded, w.rounded, k, i, j), given = sum_of(x.given, w.given, k, i, j);
            sums[i * COLUMNS + j] = sum;
            square += sum * sum;
            operands += (sum - given) * (sum - given);
        }
    for (int c = 0; c < 6 && works[work].classes[c]; c++) {
        tensor_class class;
        check(tensor_class_find(&class, works[work].classes[c]));
        check(tensor_set_class(class));
        check(tensor_matmul(y, x.t, w.t));
        check(tensor_set_class(TENSOR_EXACT));
        check(tensor_store_f32(y, made, ROWS * COLUMNS));
        double error = 0;
        for (int i = 0; i < ROWS * COLUMNS; i++)
            error += (made[i] - sums[i]) * (made[i] - sums[i]);
        printf("%s,%s,%s,%lld,%.6g,%.6g\n", works[work].format, kinds[kind], works[work].classes[c], (long long)k,
               sqrt(error / square), sqrt(operands / square));
    }
    free_matrix(&x);
    free_matrix(&w);
    tensor_free(y);
}

int main(int argc, char **argv) {
    state = (uint64_t)whole_argument(argc, argv, 1, "SEED", 0, 0x1p53, 1);
    const long long largest = whole_argument(argc, argv, 2, "LARGEST_K", LEAST_K, 1 << 20, 1 << 16);
    printf("format,data,class,k,error,operands\n");
    for (int work = 0; work < (int)(sizeof works / sizeof works[0]); work++)
        for (int kind = 0; kind < 2; kind++)
            for (int64_t k = LEAST_K; k <= largest; k *= 4)
                measure(work, kind, k);
    return 0;
}
