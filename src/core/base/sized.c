/* sized.c - copying structs between a caller and a library that may know different fields. */
#include "core/base/sized.h"
#include "core/base/fail.h"
#include "flexlab/version.h"
#include <string.h>

static size_t smaller(size_t a, size_t b) {
    return a < b ? a : b;
}

tensor_status fl_check_sized(size_t given_size, const char *what) {
    if (given_size < 1 || given_size > FL_SIZE_LIMIT)
        return fl_fail(TENSOR_E_ARGUMENT, "%s of %zu bytes, expected 1 to %d", what, given_size, FL_SIZE_LIMIT);
    return TENSOR_OK;
}

tensor_status fl_take_sized(void *ours, size_t size, const void *given, size_t given_size, const char *what) {
    const tensor_status status = fl_check_sized(given_size, what);
    if (status)
        return status;
    const unsigned char *bytes = given;
    for (size_t i = size; i < given_size; i++)
        if (bytes[i])
            return fl_fail(TENSOR_E_ARGUMENT,
                           "%s of %zu bytes sets a field at byte %zu; this library (%s) knows %zu bytes of it", what,
                           given_size, i, FLEXLAB_VERSION_STRING, size);
    memset(ours, 0, size);
    memcpy(ours, given, smaller(size, given_size));
    return TENSOR_OK;
}

void fl_give_sized(void *given, size_t given_size, const void *ours, size_t size) {
    memset(given, 0, given_size);
    memcpy(given, ours, smaller(size, given_size));
}
