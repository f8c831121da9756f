/* fuzz.h - common functions of the fuzz targets: taking values from the input, reporting violations, watching failures.
 *
 * A target is one file fuzz_NAME.c with LLVMFuzzerTestOneInput: it reads the input as a description of work for one
 * part of the project, carries it out, and ends the process by MUST if a promise is broken; a sanitizer ends it if
 * memory or arithmetic is wrong. The same file is linked to libFuzzer (./dev fuzz) and to driver.c, which replays the
 * stored inputs and some mutations of them in the test suite. A target must behave the same whenever it receives the
 * same input, whatever came before, and must not take more than some milliseconds for one. */
#ifndef FL_FUZZ_H
#define FL_FUZZ_H

#include "flexlab/status.h"
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* libFuzzer's names. The first runs one input and returns 0; the second runs once before all others. A target's own
 * functions have other names: bar.c has those that are called, and limits the memory of an input. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);
int fuzz_input(const uint8_t *data, size_t size);
#ifndef FUZZ_BAR
#define LLVMFuzzerTestOneInput fuzz_input
#endif
/* Bytes beside those for the size of the input. Targets of calls with arbitrary requests set more. */
extern size_t fuzz_bar;

/* Ends the process with a message when a promise is broken. */
#define MUST(condition, ...)                                                                                           \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "BROKEN %s:%d: %s: ", __FILE__, __LINE__, #condition);                                     \
            fprintf(stderr, __VA_ARGS__);                                                                              \
            fprintf(stderr, "\n");                                                                                     \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

/* --- the input, from its beginning; zeros after its end ----------------------------------------------------------- */

struct input {
    const uint8_t *at, *end;
};

static inline struct input input_of(const uint8_t *data, size_t size) {
    return (struct input){data, data + size};
}

static inline size_t input_left(const struct input *in) {
    return (size_t)(in->end - in->at);
}

static inline uint8_t take_byte(struct input *in) {
    return in->at < in->end ? *in->at++ : 0;
}

/* A number below `count`, which is at least 1 and at most 256. */
static inline int take_below(struct input *in, int count) {
    return take_byte(in) % count;
}

static inline uint64_t take_bytes(struct input *in, int count) {
    uint64_t value = 0;
    for (int i = 0; i < count; i++)
        value |= (uint64_t)take_byte(in) << 8 * i;
    return value;
}

/* A small number, or one near a limit. */
static inline int64_t take_whole(struct input *in) {
    static const int64_t edges[] = {-1,
                                    254,
                                    255,
                                    256,
                                    257,
                                    4095,
                                    4096,
                                    65535,
                                    65536,
                                    1 << 20,
                                    (1 << 20) + 1,
                                    1 << 30,
                                    INT_MAX - 1,
                                    INT_MAX,
                                    (int64_t)INT_MAX + 1,
                                    INT_MIN,
                                    INT_MIN + 1,
                                    UINT32_MAX,
                                    INT64_C(1) << 33,
                                    INT64_C(1) << 40,
                                    (INT64_C(1) << 40) + 1,
                                    INT64_C(1) << 62,
                                    INT64_MAX - 1,
                                    INT64_MAX,
                                    INT64_MIN};
    enum { EDGES = sizeof edges / sizeof edges[0] };
    const uint8_t byte = take_byte(in);
    return byte < 200 ? byte % 40 : byte < 225 ? (byte - 200) % 10 - 2 : edges[(byte - 225) % EDGES];
}

static inline int take_int(struct input *in) {
    const int64_t value = take_whole(in);
    return value > INT_MAX ? INT_MAX : value < INT_MIN ? INT_MIN : (int)value;
}

/* The next bytes up to `stop` or the end of the input, as a new string; bytes of zero end it too. */
static inline char *take_text(struct input *in, char stop) {
    const uint8_t *from = in->at;
    while (in->at < in->end && *in->at != (uint8_t)stop && *in->at)
        in->at++;
    const size_t length = (size_t)(in->at - from);
    if (in->at < in->end)
        in->at++;
    char *text = malloc(length + 1);
    MUST(text, "no memory for %zu bytes", length);
    if (length)
        memcpy(text, from, length);
    text[length] = 0;
    return text;
}

/* --- random numbers from a seed in the input (SplitMix64, Steele et al. 2014) --------------------------------------
 */

static inline uint64_t next_random(uint64_t *state) {
    uint64_t z = (*state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* --- failures of the library -------------------------------------------------------------------------------------- */

static tensor_status failure_status; /* of the last failure since watch_failures */
static int failure_count;
static char failure_text[1024]; /* its message; tensor_error() may be another thread's */

static inline void note_failure(tensor_status status, const char *message, void *context) {
    (void)context;
    failure_status = status;
    failure_count++;
    snprintf(failure_text, sizeof failure_text, "%s", message ? message : "(null)");
    MUST(status > TENSOR_OK && status <= TENSOR_E_UNSUPPORTED, "a failure with status %d", (int)status);
    MUST(message && message[0] && !strchr(message, '\n'), "%s: '%s' is no one-line message", tensor_status_name(status),
         message ? message : "(null)");
}

/* From here on failures are recorded. */
static inline void watch_failures(void) {
    failure_status = TENSOR_OK;
    failure_count = 0;
    tensor_set_error_hook(note_failure, NULL);
}

/* The call since watch_failures must have reported its failure, or none if it succeeded. */
static inline void must_tell(const char *call, bool failed) {
    tensor_set_error_hook(NULL, NULL);
    MUST(failed == (failure_count > 0), "%s %s after %d failures: %s", call, failed ? "failed" : "succeeded",
         failure_count, failure_count ? failure_text : "");
}

/* Likewise for a call that returns its status. */
static inline void must_tell_status(const char *call, tensor_status status) {
    must_tell(call, status != TENSOR_OK);
    MUST(status == failure_status, "%s returned %s, its last failure was %s: %s", call, tensor_status_name(status),
         tensor_status_name(failure_status), failure_text);
}

#endif
