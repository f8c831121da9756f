/* facts_numbers.c - facts about single numbers: the values of fp16, ranges, and conversions in both directions. */
#include "facts/facts.h"
#include "flexlab/tensor.h"
#include "base/text.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static bool there_and_back(tensor_format format, float x, float *y) {
    tensor *t = tensor_new(format, TENSOR_SHAPE(1));
    const bool good = t && !tensor_load_f32(t, &x, 1) && !tensor_store_f32(t, y, 1);
    tensor_free(t);
    return good;
}

static bool sum_of(tensor_format format, float a, float b, float *sum) {
    tensor *x = tensor_new(format, TENSOR_SHAPE(1)), *y = tensor_new(format, TENSOR_SHAPE(1));
    const bool good = x && y && !tensor_load_f32(x, &a, 1) && !tensor_load_f32(y, &b, 1) && !tensor_add(x, x, y) &&
                      !tensor_store_f32(x, sum, 1);
    tensor_free(x);
    tensor_free(y);
    return good;
}

static void fp16_numbers(struct fact_lines *lines) {
    static const struct {
        const char *what;
        float x, expected;
    } kept[] = {{"2^-25 in fp16", 0x1p-25f, 0},
                {"2^-24, its smallest number", 0x1p-24f, 0x1p-24f},
                {"65504, its largest number", 65504, 65504},
                {"the float below 65520", 0x1.ffdffep15f, 65504},
                {"65520", 65520, INFINITY}};
    float y;
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (there_and_back(FMT_FP16, kept[i].x, &y))
            fact_line(lines, y == kept[i].expected, kept[i].what, fact_number((double)kept[i].expected, 9),
                      fact_number((double)y, 9));
        else
            fact_broke(lines, kept[i].what);
    if (sum_of(FMT_FP16, 0x1p-3f, 0x1p-14f, &y))
        fact_line(lines, y == 0x1p-3f, "2^-3 + 2^-14 in fp16", fact_number(0x1p-3, 9), fact_number((double)y, 9));
    else
        fact_broke(lines, "2^-3 + 2^-14");
    if (sum_of(FMT_FP32, 0x1p-3f, 0x1p-14f, &y))
        fact_line(lines, y == 0x1.002p-3f, "... and in fp32", text_format("2^-3 + 2^-14"),
                  text_format("2^-3 + %s", y == 0x1.002p-3f ? "2^-14" : "something else"));
    else
        fact_broke(lines, "2^-3 + 2^-14");
}

const struct fact fact_fp16_numbers = {"fp16-numbers", "Liu 2018", "numbers at the limits of fp16", fp16_numbers,
                                       false};

/* --- ranges ------------------------------------------------------------------------------------------------------- */

enum { WORDS = 65536 };

/* Measures all words of a format of 16 bits; fp32 by rounding. */
static bool measure_range(tensor_format format, double *epsilon, double *least, double *largest) {
    static double values[WORDS];
    if (format == FMT_FP32) {
        float x = 1, y = 1;
        while (there_and_back(format, x / 2, &y) && y > 0)
            x = y;
        *least = (double)x;
        *largest = (double)nextafterf(INFINITY, 0);
        for (*epsilon = 1; sum_of(format, 1, (float)(*epsilon / 2), &y) && y > 1;)
            *epsilon /= 2;
        return there_and_back(format, (float)*largest, &y) && (double)y == *largest;
    }
    tensor *t = tensor_new(format, TENSOR_SHAPE(WORDS));
    uint16_t *words = t ? tensor_data(t) : NULL;
    for (int i = 0; words && i < WORDS; i++)
        words[i] = (uint16_t)i;
    const bool good = words && !tensor_store_f64(t, values, WORDS);
    *epsilon = *least = HUGE_VAL;
    *largest = 0;
    for (int i = 0; good && i < WORDS; i++) {
        const double x = values[i];
        *epsilon = x > 1 ? fmin(*epsilon, x - 1) : *epsilon;
        *least = x > 0 ? fmin(*least, x) : *least;
        *largest = isfinite(x) ? fmax(*largest, x) : *largest;
    }
    tensor_free(t);
    return good;
}

/* Within a unit of the last digit that the source gives. */
static bool agrees(double x, double given, double unit) {
    return fabs(x - given) <= unit;
}

static void ranges(struct fact_lines *lines) {
    static const struct {
        tensor_format format;
        const char *name, *expected;
        double epsilon, least, least_unit, largest, largest_unit;
    } rows[] = {
        {FMT_FP32, "fp32", "epsilon 2^-23, 1.4e-45 to 3.4e38", 0x1p-23, 1.4e-45, 0.1e-45, 3.4e38, 0.1e38},
        {FMT_FP16, "fp16", "epsilon 2^-10, 6e-8 to 65504", 0x1p-10, 6e-8, 1e-8, 65504, 0},
        {FMT_BF16, "bf16", "epsilon 2^-7, 9.2e-41 to 3.39e38", 0x1p-7, 9.2e-41, 0.1e-41, 3.39e38, 0.01e38},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double epsilon, least, largest;
        if (!measure_range(rows[i].format, &epsilon, &least, &largest)) {
            fact_broke(lines, rows[i].name);
            continue;
        }
        char *step = fact_number(epsilon, 3);
        fact_line(lines,
                  epsilon == rows[i].epsilon && agrees(least, rows[i].least, rows[i].least_unit) &&
                      agrees(largest, rows[i].largest, rows[i].largest_unit),
                  rows[i].name, text_format("%s", rows[i].expected),
                  text_format("epsilon %s, %.4g to %.6g", step, least, largest));
        free(step);
    }
}

const struct fact fact_ranges = {"ranges", "PaddlePaddle, guide to low precision", "epsilons and ranges", ranges,
                                 false};

/* --- there and back ----------------------------------------------------------------------------------------------- */

struct errors {
    double absolute, relative, subnormal; /* the last in units of 2^-24 */
};

/* A difference that is NaN counts as large. */
static double error_of(float x, float y) {
    const double error = fabs((double)x - (double)y);
    return isnan(error) ? HUGE_VAL : error;
}

static bool measure_round_trip(struct errors *e) {
    enum { STRIDE = 1021, BLOCK = 4096 };
    static float x[BLOCK], y[BLOCK];
    tensor *t = tensor_new(FMT_FP16, TENSOR_SHAPE(BLOCK));
    bool good = t != NULL;
    *e = (struct errors){0};
    for (uint64_t word = 0; good && word >> 32 == 0;) {
        for (int i = 0; i < BLOCK; i++, word += STRIDE) {
            const uint32_t bits = word >> 32 ? 0 : (uint32_t)word;
            memcpy(&x[i], &bits, sizeof bits);
            x[i] = fabsf(x[i]) < 65520 ? x[i] : 0;
        }
        good = !tensor_load_f32(t, x, BLOCK) && !tensor_store_f32(t, y, BLOCK);
        for (int i = 0; i < BLOCK; i++) {
            const double size = fabs((double)x[i]), error = error_of(x[i], y[i]);
            e->absolute = fmax(e->absolute, error);
            if (size >= 0x1p-14)
                e->relative = fmax(e->relative, error / size);
            else
                e->subnormal = fmax(e->subnormal, error * 0x1p24);
        }
    }
    tensor_free(t);
    return good;
}

static void round_trip(struct fact_lines *lines) {
    struct errors e;
    if (!measure_round_trip(&e)) {
        fact_broke(lines, "fp32 to fp16 and back");
        return;
    }
    fact_line(lines, e.absolute <= 16 && e.absolute > 15.9, "largest error, fp32 to fp16 and back", text_format("16"),
              fact_number(e.absolute, 5));
    fact_line(lines, e.relative <= 0x1p-11 && e.relative > 0.00048, "largest relative error of normal numbers",
              text_format("2^-11 = 0.000488"), text_format("%.3g", e.relative));
    fact_line(lines, e.subnormal <= 0.5 && e.subnormal > 0.49, "largest error below 2^-14",
              text_format("0.5 last places"), text_format("%.3g last places", e.subnormal));
}

const struct fact fact_round_trip = {"round-trip", "PaddlePaddle, guide to low precision",
                                     "4.2 million floats, every 1021st word, to fp16 and back", round_trip, false};
