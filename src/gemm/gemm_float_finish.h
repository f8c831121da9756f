/* gemm_float_finish.h - binary32 accumulators to sums: as they are, or added to what is there.
 *
 * Expects: a vector file of binary32 accumulators; GEMM_NAME(x), the symbol of x.
 * Gives: GEMM_NAME(finish). */

static void GEMM_NAME(finish)(const int32_t *sum, const int32_t *high, int64_t stride, int64_t rows, int64_t columns,
                              int64_t splits, bool add, const struct gemm_sums *out) {
    (void)high, (void)splits;
    for (int64_t i = 0; i < rows; i++) {
        const float *from = (const float *)(const void *)(sum + i * stride);
        float *to = (float *)(void *)(out->low + i * out->stride);
        int64_t j = 0;
        for (; j + LANES <= columns; j += LANES)
            vector_put(to + j, add ? vector_load(to + j) + vector_load(from + j) : vector_load(from + j));
        for (; j < columns; j++)
            to[j] = add ? to[j] + from[j] : from[j];
    }
}
