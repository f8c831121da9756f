/* matmul.c - two matrices multiplied in flex16+5: the exact product of the stored values, rounded once. */
#include "flexlab/tensor.h"
#include <stdio.h>

int main(void) {
    tensor *x = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(2, 3));
    tensor *w = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(3, 2));
    tensor *y = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(2, 2));
    float out[4];
    tensor_load_f32(x, (const float[]){1, 2, 3, 4, 5, 6}, 6);
    tensor_load_f32(w, (const float[]){0.5f, 0, 0, 0.25f, 1, 1}, 6);
    if (tensor_matmul(y, x, w) || tensor_store_f32(y, out, 4))
        return fprintf(stderr, "%s\n", tensor_error()), 1;
    printf("%g %g %g %g, exponent %d\n", out[0], out[1], out[2], out[3], tensor_exponent(y));
    tensor_free(x);
    tensor_free(w);
    tensor_free(y);
    return 0;
}
