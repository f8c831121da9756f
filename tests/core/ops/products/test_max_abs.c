/* tensor_max_abs: the largest magnitude of every format, in tensors and views, wherever it lies; 0 of zeros. */
#include "check.h"
#include "flexlab/tensor.h"
#include <math.h>

static void check_format(tensor_format f, int64_t count, int64_t where) {
    double numbers[300] = {0}, most = -1, none = -1;
    for (int64_t i = 0; i < count; i++)
        numbers[i] = (double)(i % 7) / 8 - 0.25;
    tensor *const t = tensor_new(f, 1, &count);
    CHECK(t && !tensor_load_f64(t, numbers, count), "%s", tensor_error());
    numbers[where] = -3.5;
    CHECK(!tensor_load_f64(t, numbers, count) && !tensor_max_abs(&most, t) && most == 3.5, "%s, %lld numbers: %g",
          tensor_format_name(f), (long long)count, most);
    const int64_t tail = count - where;
    tensor *const view = tensor_new_strided(t, 1, &tail, &(int64_t){1}, where);
    if (view && !tensor_max_abs(&most, view))
        CHECK(most == 3.5, "%s, a view of %lld numbers: %g", tensor_format_name(f), (long long)tail, most);
    tensor_free(view);
    for (int64_t i = 0; i < count; i++)
        numbers[i] = 0;
    CHECK(!tensor_load_f64(t, numbers, count) && !tensor_max_abs(&none, t) && none == 0, "%s of zeros: %g",
          tensor_format_name(f), none);
    tensor_free(t);
}

int main(void) {
    static const char *const names[] = {"fp32", "fp16", "bf16", "flex16+5", "dfp16"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        tensor_format f;
        CHECK(!tensor_format_find(&f, names[i]), "%s", names[i]);
        for (int64_t count = 1; count <= 300; count = 2 * count + 1)
            for (int64_t where = 0; where < count; where += 1 + count / 5)
                check_format(f, count, where);
    }
    return check_summary();
}
