/* nn_schedule.c - the learning rate of each step. Fractions are computed in double by IEEE operations only and rounded
 * once to binary32, so every machine and every format trains with the same numbers. */
#include "nn/training/nn_training.h"
#include "core/base/fail.h"
#include "core/base/text.h"
#include <string.h>

static double linear(double progress) {
    return 1 - progress;
}

/* (1 + cos(pi p)) / 2 with cos(pi p) = sin(pi (1/2 - p)); the series to x^19 is good to 1e-15 up to pi/2. */
static double cosine(double progress) {
    double x = 0x1.921fb54442d18p+1 * (0.5 - progress), square = x * x, series = 1;
    for (int k = 18; k >= 2; k -= 2)
        series = 1 - series * square / (k * (k + 1));
    return 0.5 + 0.5 * x * series;
}

static double constant(double progress) {
    (void)progress;
    return 1;
}

static double steps_down(double progress) {
    return progress < 0.5 ? 1 : progress < 0.75 ? 0.1 : 0.01;
}

/* A schedule is a factor over progress 0 ... 1 after the warm-up. */
static const struct schedule {
    const char *name;
    double (*factor)(double progress);
    bool has_end; /* accepts a final share of the peak: "cosine:0.1" */
} schedules[] = {
    {"linear", linear, true}, {"cosine", cosine, true}, {"step", steps_down, false}, {"constant", constant, false}};

/* Finds the schedule of that name, and the final share of the peak; NULL if there is none. */
static const struct schedule *find(const char *name, double *end) {
    const size_t length = name ? strcspn(name, ":") : 0;
    *end = 0;
    for (size_t i = 0; name && i < sizeof schedules / sizeof schedules[0]; i++) {
        const struct schedule *s = &schedules[i];
        if (strlen(s->name) != length || strncmp(s->name, name, length) != 0)
            continue;
        if (!name[length])
            return s;
        char *rest;
        *end = fl_to_real(name + length + 1, &rest);
        return s->has_end && rest > name + length + 1 && !*rest && *end >= 0 && *end <= 1 ? s : NULL;
    }
    return NULL;
}

bool fl_schedule_known(const char *name) {
    double end;
    if (find(name, &end))
        return true;
    fl_fail(TENSOR_E_ARGUMENT,
            "schedule %s: expected one of linear, cosine, step, constant, or linear:END, cosine:END with END the "
            "share of the peak rate, 0 to 1, that it ends at",
            fl_quote(name).text);
    return false;
}

float fl_schedule_rate(const char *name, double rate, int64_t step, int64_t steps, int64_t warmup) {
    if (step < warmup)
        return (float)(rate * (double)(step + 1) / (double)warmup);
    double end;
    const struct schedule *s = find(name, &end);
    const double factor = s->factor((double)(step - warmup) / (double)(steps - warmup));
    return (float)(rate * (end > 0 ? end + (1 - end) * factor : factor));
}
