/* verbose.c - FLEXLAB_VERBOSE, read once. */
#include "core/base/verbose.h"
#include "core/base/fail.h"
#include <stdlib.h>
#include <string.h>

enum verbose { UNREAD, OFF, ON, WRONG };
static int known;

static int read_verbose(void) {
    const char *text = getenv("FLEXLAB_VERBOSE");
    const int value = !text || !*text || !strcmp(text, "0") ? OFF : !strcmp(text, "1") ? ON : WRONG;
    __atomic_store_n(&known, value, __ATOMIC_RELAXED);
    return value;
}

static int value(void) {
    const int value = __atomic_load_n(&known, __ATOMIC_RELAXED);
    return value == UNREAD ? read_verbose() : value;
}

bool fl_verbose(void) {
    return value() == ON;
}

tensor_status fl_check_verbose(void) {
    return value() != WRONG ? TENSOR_OK
                            : fl_fail(TENSOR_E_ARGUMENT, "FLEXLAB_VERBOSE=%s is unknown: expected 0 or 1",
                                      getenv("FLEXLAB_VERBOSE"));
}
