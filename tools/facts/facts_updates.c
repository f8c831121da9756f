/* facts_updates.c - facts about the write of the weight: updates that are too small for it. */
#include "facts/facts.h"
#include "flexlab/tensor.h"
#include "base/text.h"
#include "flexlab/tensor_blocks.h"
#include <math.h>
#include <stdlib.h>

/* --- fp16 --------------------------------------------------------------------------------------------------------- */

/* A weight of 1 after `steps` updates by -update each. */
static bool updated(tensor_format format, bool master, double update, int steps, double *w) {
    const double one = 1;
    tensor *weight = tensor_new(format, TENSOR_SHAPE(1)), *velocity = tensor_new(format, TENSOR_SHAPE(1));
    bool good = weight && velocity && !tensor_load_f64(weight, &one, 1) && !tensor_load_f64(velocity, &one, 1) &&
                (!master || !tensor_keep_wide(weight));
    for (int i = 0; good && i < steps; i++)
        good = !tensor_sgd_update(weight, velocity, (float)-update);
    good = good && !tensor_store_f64(weight, w, 1);
    tensor_free(weight);
    tensor_free(velocity);
    return good;
}

static void lost_update(struct fact_lines *lines) {
    static const struct {
        const char *what;
        bool master;
        double update;
        int steps;
        double expected;
    } rows[] = {{"w = 1 and 1,024 updates by 2^-11, fp16", false, 0x1p-11, 1024, 1},
                {"... by 2^-10", false, 0x1p-10, 1024, 2},
                {"... by 2^-11 with an fp32 master weight", true, 0x1p-11, 1024, 1.5},
                {"... by 2^-20 with an fp32 master weight", true, 0x1p-20, 1024, 1 + 0x1p-10}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double w;
        if (updated(FMT_FP16, rows[i].master, rows[i].update, rows[i].steps, &w))
            fact_line(lines, w == rows[i].expected, rows[i].what, fact_number(rows[i].expected, 9), fact_number(w, 9));
        else
            fact_broke(lines, rows[i].what);
    }
}

const struct fact fact_lost_update = {"lost-update", "Micikevicius et al. 2018",
                                      "an update of 2^-11 of the weight is lost in fp16; a master weight preserves it",
                                      lost_update, false};

/* --- flex16+5 ----------------------------------------------------------------------------------------------------- */

enum { COUNT = 1 << 16 };
enum how { NEAREST, WIDE, STOCHASTIC };

/* The share of the intended updates that the elements make, for normal updates with a deviation of `places` last
 * places. */
static bool realised(enum how how, double places, double *share) {
    enum { STEPS = 16 };
    static double before[COUNT], after[COUNT], v[COUNT];
    const float rate = 0x1p-10f;
    tensor *w = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(COUNT)),
           *velocity = tensor_new(FMT_FLEX16_5, TENSOR_SHAPE(COUNT));
    bool good = w && velocity && !tensor_set_predictor(w, "fixed") &&
                (how != STOCHASTIC || !tensor_set_rounding(w, TENSOR_ROUND_STOCHASTIC, 1)) &&
                !tensor_fill_normal(w, 0, 0.05, 7, 0);
    if (good && how == WIDE)
        good = !tensor_keep_wide(w);
    const double place = good ? ldexp(1, -tensor_exponent(w)) : 0;
    good = good && !tensor_fill_normal(velocity, 0, places * place / (double)rate, 8, 0) &&
           !tensor_store_wide_f64(w, before, COUNT) && !tensor_store_f64(velocity, v, COUNT);
    for (int i = 0; good && i < STEPS; i++)
        good = !tensor_sgd_update(w, velocity, rate);
    good = good && !tensor_store_wide_f64(w, after, COUNT);
    double made = 0, meant = 0;
    for (int i = 0; good && i < COUNT; i++) {
        const double way = -STEPS * (double)rate * v[i];
        made += way > 0 ? after[i] - before[i] : before[i] - after[i];
        meant += fabs(way);
    }
    *share = made / meant;
    tensor_free(w);
    tensor_free(velocity);
    return good;
}

static void update_stall(struct fact_lines *lines) {
    static const struct {
        const char *what;
        enum how how;
        double places, low, high;
        const char *expected;
    } rows[] = {{"updates of 2 last places, int16 weight to nearest", NEAREST, 2, 0.97, 1.03, "1.00"},
                {"updates of 0.3 last places, to nearest", NEAREST, 0.3, 0.38, 0.42, "0.40: those above half a place"},
                {"updates of 0.1 last places, to nearest", NEAREST, 0.1, 0, 0.001, "0: training stalls"},
                {"... with a wide weight (flex16+5)", WIDE, 0.1, 0.999, 1.001, "1.00"},
                {"... by stochastic rounding (flex16+5-sr)", STOCHASTIC, 0.1, 0.97, 1.03, "1.00"},
                {"updates of 0.01 last places, wide weight", WIDE, 0.01, 0.99, 1.01, "1.00"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double share;
        if (realised(rows[i].how, rows[i].places, &share))
            fact_line(lines, share >= rows[i].low && share <= rows[i].high, rows[i].what,
                      text_format("%s", rows[i].expected), text_format("%.2f of the way", share + 0.0));
        else
            fact_broke(lines, rows[i].what);
    }
}

const struct fact fact_update_stall = {
    "update-stall", "docs/training.md; Micikevicius et al. 2018",
    "16-bit mantissas lose updates below half a last place; wide weights and stochastic rounding preserve them",
    update_stall, false};
