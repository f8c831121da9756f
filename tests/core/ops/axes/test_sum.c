/* tensor_sum and tensor_max_abs: the value that docs/semantics.md defines, in all shapes, every format and kernel set,
 * and in little working memory whatever the shape. The witness decodes the elements and follows the definition one by
 * one. */
#include "check.h"
#include "core/tensor/tensor_object.h"
#include "flexlab/tensor.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static unsigned long largest;

static void *allocate(unsigned long size, unsigned long alignment) {
    void *block;
    largest = size > largest ? size : largest;
    return posix_memalign(&block, alignment, size) ? NULL : block;
}

/* Shared exponents: the exact sum of mantissas. Else binary32 chains of 512 rows a channel, added in order in double,
 * and then the channels in order. */
static double witness(const tensor *t, const double *x) {
    const int64_t n = tensor_dim(t, tensor_ndim(t) - 1), m = tensor_count(t) / n;
    double total = 0;
    __int128 exact = 0;
    for (int64_t c = 0; c < n; c++) {
        double sum = 0;
        for (int64_t chunk = 0; chunk < m; chunk += 512) {
            float chain = 0;
            for (int64_t row = chunk; row < m && row < chunk + 512; row++) {
                chain += (float)x[row * n + c];
                if (tensor_format_is_shared(tensor_format_of(t)))
                    exact += (int64_t)ldexp(x[row * n + c], tensor_exponent(t));
            }
            sum += chain;
        }
        total += sum;
    }
    return tensor_format_is_shared(tensor_format_of(t)) ? ldexp((double)exact, -tensor_exponent(t)) : total;
}

static void compare(tensor_format format, int ndim, const int64_t *shape, uint64_t seed) {
    tensor *t = tensor_new(format, ndim, shape);
    const int64_t count = tensor_count(t);
    double *x = malloc((size_t)count * sizeof *x), sum = -7;
    for (int64_t i = 0; i < count; i++)
        x[i] = ldexp((double)(int64_t)(check_random(&seed) >> 20) - 0x1p43, -40 - (int)(check_random(&seed) % 12));
    CHECK(!tensor_load_f64(t, x, count) && !tensor_store_f64(t, x, count), "%s", tensor_error());
    const double want = witness(t, x);
    largest = 0;
    tensor_status status = tensor_sum(&sum, t);
    const char *row = tensor_kernel_backend(format, "channel_sums");
    CHECK(!status && !memcmp(&sum, &want, sizeof sum), "%s.%s %d dimensions of %lld, %lld: %a, want %a (%s)",
          tensor_format_name(format), row, ndim, (long long)shape[0], (long long)shape[ndim - 1], sum, want,
          status ? tensor_error() : "ok");
    /* the reference kernels decode whole operands */
    CHECK(!strcmp(row, "ref") || largest <= 1 << 20, "%s.%s: %lu bytes of scratch for a tensor of %zu bytes",
          tensor_format_name(format), row, largest, tensor_bytes(t));
    double most = 0, maximum = -7;
    for (int64_t i = 0; i < count; i++)
        most = fmax(most, fabs(x[i]));
    status = tensor_max_abs(&maximum, t);
    CHECK(!status && maximum == most, "%s, %d dimensions of %lld: the largest magnitude is %a, want %a (%s)",
          tensor_format_name(format), ndim, (long long)shape[0], maximum, most, status ? tensor_error() : "ok");
    free(x);
    tensor_free(t);
}

int main(void) {
    tensor_set_allocator(allocate, free);
    static const char *const caps[] = {NULL, "avx512bw", "avx2", "portable", "ref"};
    static const int64_t shapes[][4] = {
        {1},    {63},      {64},      {4095},    {4096},       {4097},      {70001},      {1000003},       {1, 1},
        {3, 5}, {600, 16}, {2, 4097}, {5, 4160}, {1030, 5000}, {513, 4096}, {2, 3, 5, 7}, {1, 1, 1, 9001}, {70001, 1}};
    for (int cap = 0; cap < 5; cap++) {
        CHECK(!tensor_set_backend(caps[cap]), "%s", tensor_error());
        for (int f = 0; tensor_format_at(f); f++)
            for (int s = 0; s < (int)(sizeof shapes / sizeof shapes[0]); s++) {
                int ndim = 0;
                while (ndim < 4 && shapes[s][ndim])
                    ndim++;
                if (cap == 4 && s == 13)
                    continue; /* slow: five million elements */
                compare(tensor_format_at(f), ndim, shapes[s], 77 + (uint64_t)s);
            }
    }
    return check_summary();
}
