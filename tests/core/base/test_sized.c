/* Structs of callers that were compiled with other headers: older ones are filled up with zeros, newer ones are read as
 * far as they are known and refused where they ask for more, and nothing is written behind a struct of the caller. */
#include "check.h"
#include "flexlab/tensor.h"
#include "flexlab/tensor_blocks.h"
#include <math.h>
#include <stddef.h>
#include <string.h>

/* What stays for good. Frozen structs: the size. Others: each field where version 0.1 has it; new ones come after, and
 * structs that callers fill in end without padding, whose bytes nobody sets. */
#define AT(type, field, where) _Static_assert(offsetof(type, field) == (where), #type "." #field " has moved")
#define ENDS_WITH(type, last)                                                                                          \
    _Static_assert(offsetof(type, last) + sizeof((type *)0)->last == sizeof(type), #type " ends in padding")
_Static_assert(sizeof(tensor_augmentation) == 16, "tensor_augmentation is frozen");
ENDS_WITH(tensor_epilogue, unused);
ENDS_WITH(tensor_loss_options, unused);
ENDS_WITH(tensor_optimiser, momentum);
ENDS_WITH(tensor_window2d, output_padding);
ENDS_WITH(tensor_window1d, output_padding);
#if UINTPTR_MAX == UINT64_MAX
_Static_assert(sizeof(struct autoflex) == 200, "struct autoflex is frozen");
_Static_assert(offsetof(struct autoflex, role) == 2 && offsetof(struct autoflex, e) == 4 &&
                   offsetof(struct autoflex, written) == 20 && offsetof(struct autoflex, block) == 22 &&
                   offsetof(struct autoflex, count) == 24 && offsetof(struct autoflex, history) == 32,
               "and so is each of its fields");
AT(tensor_stats, writes, 48);
AT(tensor_loss_options, ignores, 24);
AT(tensor_description, rounding, 80);
AT(tensor_description, bins, 88);
AT(tensor_measure, size, 48);
AT(tensor_optimiser, momentum, 24);
AT(tensor_window1d, output_padding, 24);
#endif

/* A caller's struct of another version: the bytes of ours, then those it alone knows. */
#define NEWER(type)                                                                                                    \
    union {                                                                                                            \
        type ours;                                                                                                     \
        unsigned char bytes[sizeof(type) + 16];                                                                        \
    }

static void names_both_sizes(const char *name, size_t given, size_t known) {
    char text[100];
    CHECK(tensor_error_status() == TENSOR_E_ARGUMENT, "%s: %s", name, tensor_error());
    snprintf(text, sizeof text, "%s of %zu bytes", name, given);
    CHECK(strstr(tensor_error(), text), "\"%s\" lacks \"%s\"", tensor_error(), text);
    snprintf(text, sizeof text, "knows %zu bytes", known);
    CHECK(strstr(tensor_error(), text), "\"%s\" lacks \"%s\"", tensor_error(), text);
}

static void epilogues(void) {
    tensor *a = tensor_new(FMT_FP32, TENSOR_SHAPE(2, 2)), *b = tensor_new(FMT_FP32, TENSOR_SHAPE(2, 2)),
           *y = tensor_new(FMT_FP32, TENSOR_SHAPE(2, 2)), *bias = tensor_new(FMT_FP32, TENSOR_SHAPE(2)),
           *x = tensor_new(FMT_FP32, TENSOR_SHAPE(1, 2, 2, 2)), *w = tensor_new(FMT_FP32, TENSOR_SHAPE(2, 1, 1, 2)),
           *z = tensor_new(FMT_FP32, TENSOR_SHAPE(1, 2, 2, 2));
    tensor_load_f32(a, (const float[]){1, 0, 0, 1}, 4);
    tensor_load_f32(b, (const float[]){1, -2, 3, -4}, 4);
    tensor_load_f32(bias, (const float[]){1, 1}, 2);
    NEWER(tensor_epilogue) newer = {.ours = {.bias = bias, .relu = true}};
    float out[4];
    const struct {
        size_t size;
        float want[4];
    } cases[] = {{sizeof newer, {2, 0, 4, 0}},
                 {offsetof(tensor_epilogue, relu), {2, -1, 4, -3}},
                 {offsetof(tensor_epilogue, residual), {2, -1, 4, -3}}};
    for (int i = 0; i < 3; i++) {
        CHECK(!tensor_matmul_fused_sized(y, a, b, &newer.ours, cases[i].size) && !tensor_store_f32(y, out, 4), "%s",
              tensor_error());
        CHECK(!memcmp(out, cases[i].want, sizeof out), "%zu bytes: %g %g %g %g", cases[i].size, (double)out[0],
              (double)out[1], (double)out[2], (double)out[3]);
    }
    CHECK(!tensor_matmul_fused_sized(y, a, b, NULL, 0) && !tensor_store_f32(y, out, 4) && out[1] == -2, "no epilogue");
    newer.bytes[sizeof newer - 1] = 1;
    const tensor_window how = {.stride = 1};
    CHECK(tensor_matmul_fused_sized(y, a, b, &newer.ours, sizeof newer), "matmul");
    names_both_sizes("tensor_epilogue", sizeof newer, sizeof(tensor_epilogue));
    CHECK(tensor_matmul_nt_fused_sized(y, a, b, &newer.ours, sizeof newer), "matmul_nt");
    names_both_sizes("tensor_epilogue", sizeof newer, sizeof(tensor_epilogue));
    CHECK(tensor_conv2d_fused_sized(z, x, w, how, &newer.ours, sizeof newer), "conv2d");
    names_both_sizes("tensor_epilogue", sizeof newer, sizeof(tensor_epilogue));
    CHECK(!tensor_store_f32(y, out, 4) && out[1] == -2, "a refused call wrote %g", (double)out[1]);
    tensor *all[] = {a, b, y, bias, x, w, z};
    for (int i = 0; i < 7; i++)
        tensor_free(all[i]);
}

/* Every byte up to `size` written as ours has it, zero where ours ends, none behind it. */
static void given(const char *name, const unsigned char *bytes, size_t size, const void *ours, size_t known) {
    for (size_t i = 0; i < size; i++)
        CHECK(bytes[i] == (i < known ? ((const unsigned char *)ours)[i] : 0), "%s of %zu: byte %zu is %d", name, size,
              i, bytes[i]);
    CHECK(bytes[size] == 0xAA, "%s of %zu: the byte behind it was written", name, size);
}

static void statistics(void) {
    tensor *t = tensor_new(FMT_FP32, TENSOR_SHAPE(3));
    tensor_load_f32(t, (const float[]){1, 2, 3}, 3);
    tensor_add(t, t, t);
    tensor_stats last, total;
    CHECK(!tensor_statistics(t, &last, &total) && last.maximum == 6 && last.elements == 3, "%s", tensor_error());
    const size_t sizes[] = {offsetof(tensor_stats, writes), sizeof(tensor_stats), sizeof(tensor_stats) + 8};
    for (int i = 0; i < 3; i++) {
        unsigned char one[100], two[100];
        memset(one, 0xAA, sizeof one);
        memset(two, 0xAA, sizeof two);
        CHECK(!tensor_statistics_sized(t, (tensor_stats *)one, (tensor_stats *)two, sizes[i]), "%s", tensor_error());
        given("tensor_stats", one, sizes[i], &last, sizeof last);
        given("tensor_stats", two, sizes[i], &total, sizeof total);
    }
    CHECK(tensor_statistics_sized(t, &last, NULL, 0) == TENSOR_E_ARGUMENT && last.maximum == 6, "0 bytes");
    tensor_free(t);
}

int main(void) {
    epilogues();
    statistics();
    return check_summary();
}
