/* accumulator.c - the table of GPUs whose accumulators are known, and the names of their classes.
 *
 * Source: Khattak and Mikaitis, "Accurate models of NVIDIA tensor cores", 2025, and the products that they recorded. */
#include "core/table/accumulator.h"
#include "core/base/fail.h"
#include "core/base/text.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    int least_exponent;
} kinds[FL_OPERAND_KINDS] = {[FL_OPERAND_FP16] = {"fp16", -14},
                             [FL_OPERAND_BF16] = {"bf16", -126},
                             [FL_OPERAND_TF32] = {"tf32", -126},
                             [FL_OPERAND_E4M3] = {"e4m3", -6},
                             [FL_OPERAND_E5M2] = {"e5m2", -14}};

#define ALL_FP8(...) [FL_OPERAND_E4M3] = __VA_ARGS__, [FL_OPERAND_E5M2] = __VA_ARGS__
#define AMPERE                                                                                                         \
    [FL_OPERAND_FP16] = {8, 24, 23, false}, [FL_OPERAND_BF16] = {8, 24, 23, false},                                    \
    [FL_OPERAND_TF32] = {4, 24, 23, false}
#define HOPPER                                                                                                         \
    [FL_OPERAND_FP16] = {16, 25, 23, false}, [FL_OPERAND_BF16] = {16, 25, 23, false},                                  \
    [FL_OPERAND_TF32] = {4, 25, 23, false}
static const struct {
    const char *name;
    struct fl_accumulation of[FL_OPERAND_KINDS];
    struct fl_accumulation halves; /* fp16 with sums of fp16, where there is a record of them */
} gpus[] = {{"v100", {[FL_OPERAND_FP16] = {4, 23, 23, false}}, {4, 23, 10, false}},
            {"a100", {AMPERE}},
            {"a2", {AMPERE}},
            {"ada", {AMPERE, ALL_FP8({16, 13, 13, false})}},
            {"l40s", {AMPERE, ALL_FP8({16, 13, 13, false})}},
            {"h100", {HOPPER, ALL_FP8({32, 13, 13, false})}, {16, 25, 10, false}},
            {"h200", {HOPPER, ALL_FP8({32, 13, 13, false})}},
            {"b200", {HOPPER, ALL_FP8({32, 25, 23, true})}, {16, 25, 10, false}}};
enum { GPUS = sizeof gpus / sizeof gpus[0] };

/* A class accumulate=GPU is FIRST + the GPU's place in the table + HALVES for sums of fp16 + the promotion in the bits
 * above. */
enum { FIRST = 16, HALVES = 128, PROMOTION_SHIFT = 8, PROMOTION_MOST = 1 << 20 };

static int gpu_of(tensor_class class) {
    const int gpu = ((int)class & (HALVES - 1)) - FIRST;
    return gpu < GPUS && (gpu < 0 || gpus[gpu].halves.k || !((int)class & HALVES)) ? gpu : -1;
}

/* The products of the largest group that the GPU sums. */
static int64_t largest_group(int gpu) {
    int largest = 0;
    for (int i = 0; i < FL_OPERAND_KINDS; i++)
        largest = gpus[gpu].of[i].k > largest ? gpus[gpu].of[i].k : largest;
    return largest;
}

bool fl_accumulates(tensor_class class) {
    const int gpu = gpu_of(class);
    const int64_t n = fl_accumulation_promotes(class);
    return (int)class >= 0 && gpu >= 0 && n <= PROMOTION_MOST && n % largest_group(gpu) == 0;
}

int64_t fl_accumulation_promotes(tensor_class class) {
    return (int64_t) class >> PROMOTION_SHIFT;
}

const struct fl_accumulation *fl_accumulation_of(tensor_class class, enum fl_operand_kind kind) {
    const bool halves = (int)class & HALVES;
    if (!fl_accumulates(class) || (halves && kind != FL_OPERAND_FP16))
        return NULL;
    const struct fl_accumulation *how = halves ? &gpus[gpu_of(class)].halves : &gpus[gpu_of(class)].of[kind];
    return how->k ? how : NULL;
}

static bool is_fp8(enum fl_operand_kind kind) {
    return kind == FL_OPERAND_E4M3 || kind == FL_OPERAND_E5M2;
}

const struct fl_accumulation *fl_accumulation_of_kinds(tensor_class class, struct fl_operand_kinds pair) {
    const bool meet = pair.a == pair.b || (is_fp8(pair.a) && is_fp8(pair.b));
    return meet ? fl_accumulation_of(class, pair.a) : NULL;
}

const char *fl_operand_kind_name(enum fl_operand_kind kind) {
    return kinds[kind].name;
}

int fl_operand_least_exponent(enum fl_operand_kind kind) {
    return kinds[kind].least_exponent;
}

const char *fl_accumulation_kinds(tensor_class class, char *text, int size) {
    int length = 0, left = 0;
    for (int i = 0; i < FL_OPERAND_KINDS; i++)
        left += fl_accumulation_of(class, (enum fl_operand_kind)i) != NULL;
    text[0] = 0;
    for (int i = 0; i < FL_OPERAND_KINDS && length < size; i++)
        if (fl_accumulation_of(class, (enum fl_operand_kind)i))
            length += snprintf(text + length, (size_t)(size - length), "%s%s", kinds[i].name,
                               --left > 1  ? ", "
                               : left == 1 ? " and "
                                           : "");
    return text;
}

/* --- names -------------------------------------------------------------------------------------------------------- */

#define HALF_SUMS ":sums=fp16"
#define PROMOTE ":promote="

/* Reads N of "promote=N", and *end behind it. */
static tensor_status find_promotion(const char *text, const char *number, int gpu, int64_t *n, const char **end) {
    const size_t length = strcspn(number, ":");
    char *behind = NULL;
    const long long value = isdigit((unsigned char)*number) ? strtoll(number, &behind, 10) : 0;
    const int64_t unit = largest_group(gpu);
    *end = number + length;
    if (behind != *end || value < unit || value > PROMOTION_MOST || value % unit)
        return fl_fail(TENSOR_E_ARGUMENT,
                       "class %s: promote=%.*s at character %d, expected a multiple of %lld (products that %s adds at "
                       "once) of at most %d",
                       fl_quote(text).text, (int)(length < 40 ? length : 40), number, (int)(number - text) + 1,
                       (long long)unit, gpus[gpu].name, PROMOTION_MOST);
    *n = value;
    return TENSOR_OK;
}

tensor_status fl_accumulation_find(tensor_class *class, const char *text, const char *name) {
    const size_t length = strcspn(name, ":");
    int gpu = 0;
    while (gpu < GPUS && !(strlen(gpus[gpu].name) == length && !strncmp(gpus[gpu].name, name, length)))
        gpu++;
    if (gpu == GPUS)
        return fl_fail(TENSOR_E_ARGUMENT, "class %s: GPU '%.*s' at character %d, expected one of %s",
                       fl_quote(text).text, (int)(length < 40 ? length : 40), name, (int)(name - text) + 1,
                       fl_list_names(tensor_accumulator_at).text);
    int64_t n = 0;
    int halves = 0;
    for (const char *rest = name + length; *rest;) {
        if (!halves && !strncmp(rest, HALF_SUMS, strlen(HALF_SUMS))) {
            if (!gpus[gpu].halves.k)
                return fl_fail(
                    TENSOR_E_ARGUMENT,
                    "class %s: sums=fp16 at character %d, of which there is no record of %s, expected one of "
                    "v100, h100 and b200",
                    fl_quote(text).text, (int)(rest - text) + 2, gpus[gpu].name);
            halves = HALVES;
            rest += strlen(HALF_SUMS);
        } else if (!n && !strncmp(rest, PROMOTE, strlen(PROMOTE))) {
            const tensor_status status = find_promotion(text, rest + strlen(PROMOTE), gpu, &n, &rest);
            if (status)
                return status;
        } else {
            return fl_fail(TENSOR_E_ARGUMENT, "class %s: '%.40s' at character %d, expected %sthe end",
                           fl_quote(text).text, rest, (int)(rest - text) + 1,
                           halves && n ? ""
                           : halves    ? ":promote=N or "
                           : n         ? ":sums=fp16 or "
                                       : ":sums=fp16, :promote=N or ");
        }
    }
    *class = (tensor_class)(FIRST + gpu + halves + (int)(n << PROMOTION_SHIFT));
    return TENSOR_OK;
}

const char *fl_accumulation_name(tensor_class class) {
    static _Thread_local char name[48];
    if (!fl_accumulates(class))
        return NULL;
    const int64_t n = fl_accumulation_promotes(class);
    const int length =
        snprintf(name, sizeof name, "accumulate=%s%s", gpus[gpu_of(class)].name, (int)class & HALVES ? HALF_SUMS : "");
    if (n)
        snprintf(name + length, sizeof name - (size_t)length, PROMOTE "%lld", (long long)n);
    return name;
}

const char *tensor_accumulator_at(int i) {
    return i >= 0 && i < GPUS ? gpus[i].name : NULL;
}
