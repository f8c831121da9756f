/* facts_functions.c - how far fp16 functions are from those of fp32, beside the figures of another library's guide. */
#include "facts/facts.h"
#include "flexlab/tensor.h"
#include "base/text.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS = 65536 };
static const double half_place = 0x1p-11, beside = 1.0001, /* fp32's own rounding */
    overflow = 65520;                                      /* what fp16 rounds to Inf */

typedef tensor_status (*unary)(tensor *y, const tensor *x);

static const struct {
    const char *name;
    unary function;
} functions[] = {
#define F(name)                                                                                                        \
    { #name, tensor_##name }
    F(sin),   F(cos),        F(tan),        F(asin),       F(acos),    F(atan),  F(sinh),
    F(cosh),  F(tanh),       F(asinh),      F(acosh),      F(atanh),   F(log2),  F(log10),
    F(log1p), F(floor),      F(round),      F(ceil),       F(sqrt),    F(rsqrt), F(exp),
    F(expm1), F(reciprocal), F(tanhshrink), F(logsigmoid), F(sigmoid), F(silu),  F(softsign),
#undef F
};
enum { FUNCTIONS = sizeof functions / sizeof *functions };

static bool in_group(const char *names, const char *name) {
    const size_t length = strlen(name);
    for (const char *at = names; (at = strstr(at, name)); at += length)
        if ((at == names || at[-1] == ' ') && (!at[length] || at[length] == ' '))
            return true;
    return false;
}

/* All words of fp16, in fp16 and in fp32. */
struct inputs {
    tensor *half, *single, *half_result, *single_result;
};

static bool make_inputs(struct inputs *in) {
    static float values[WORDS];
    *in = (struct inputs){tensor_new(FMT_FP16, TENSOR_SHAPE(WORDS)), tensor_new(FMT_FP32, TENSOR_SHAPE(WORDS)),
                          tensor_new(FMT_FP16, TENSOR_SHAPE(WORDS)), tensor_new(FMT_FP32, TENSOR_SHAPE(WORDS))};
    uint16_t *words = in->half ? tensor_data(in->half) : NULL;
    for (int i = 0; words && i < WORDS; i++)
        words[i] = (uint16_t)i;
    return words && in->single && in->half_result && in->single_result && !tensor_store_f32(in->half, values, WORDS) &&
           !tensor_load_f32(in->single, values, WORDS);
}

/* Raises the largest errors of a group by those of one function; where fp32's result is a finite number of fp16. What
 * fp16 then has no number for is infinitely wrong. */
static bool measure(const struct inputs *in, unary function, double *absolute, double *relative) {
    static double rounded[WORDS], wanted[WORDS];
    if (function(in->half_result, in->half) || function(in->single_result, in->single) ||
        tensor_store_f64(in->half_result, rounded, WORDS) || tensor_store_f64(in->single_result, wanted, WORDS))
        return false;
    for (int i = 0; i < WORDS; i++) {
        const double size = fabs(wanted[i]);
        if (!(size < overflow))
            continue;
        const double error = isfinite(rounded[i]) ? fabs(rounded[i] - wanted[i]) : HUGE_VAL;
        *absolute = fmax(*absolute, error);
        *relative = fmax(*relative, error / fmax(size, 0x1p-14)); /* below, places are as wide as there */
    }
    return true;
}

/* The largest of the third figures: "a | b | c to d | e" gives d. */
static double given_relative(const char *figures) {
    const char *at = strchr(strchr(figures, '|') + 1, '|') + 1;
    char *end;
    double value = strtod(at, &end);
    return !strncmp(end, " to ", 4) ? strtod(end + 4, NULL) : value;
}

static void measure_group(struct fact_lines *lines, const struct inputs *in, const char *names, const char *figures) {
    double absolute = 0, relative = 0;
    for (int i = 0; i < FUNCTIONS; i++)
        if (in_group(names, functions[i].name) && !measure(in, functions[i].function, &absolute, &relative)) {
            fact_broke(lines, functions[i].name);
            return;
        }
    const char *bar = strchr(figures, '|');
    const double given = given_relative(figures), bound = given > 0 ? half_place * beside : 0;
    fact_line(lines, relative <= bound, names,
              text_format("relative %s (guide: %.3g, absolute %.*s)", given > 0 ? "2^-11" : "0", given,
                          (int)(bar - figures - 1), figures),
              text_format("relative %.3g (absolute up to %.3g)", relative, absolute));
}

static void measure_functions(struct fact_lines *lines) {
    struct inputs in;
    if (make_inputs(&in)) {
#define GUIDE_GROUP(names, figures) measure_group(lines, &in, names, figures);
#include "facts/guide_figures.inc"
#undef GUIDE_GROUP
    } else {
        fact_broke(lines, "all words of fp16");
    }
    tensor_free(in.half);
    tensor_free(in.single);
    tensor_free(in.half_result);
    tensor_free(in.single_result);
}

const struct fact fact_functions = {
    "functions", "PaddlePaddle, guide to low precision, 3.3",
    "largest errors of fp16 functions against fp32, all 65,536 inputs: at most half a unit in "
    "the last place, or none; the guide does not say over which inputs its absolute errors are, so they are "
    "not compared",
    measure_functions, false};
