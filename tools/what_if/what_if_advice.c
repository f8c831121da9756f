/* what_if_advice.c - what a format loses of a tensor, in words, and what helps. */
#include "what_if/what_if.h"
#include "base/number.h"
#include "base/text.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double decibels_a_bit = 6.0206; /* 20 log10(2) */

char *snr_text(double snr) {
    return isnan(snr)              ? text_format("-")
           : snr > 0 && isinf(snr) ? text_format("exact")
           : isinf(snr)            ? text_format("Inf")
           : fabs(snr) < 0.05      ? text_format("0.0") /* not -0.0, where everything became 0 */
                                   : text_format("%.1f", snr);
}

/* "12 %", "0.31 %": of the numbers that are not 0. */
static char *share_text(double share) {
    const double percent = 100 * share;
    return percent >= 10 ? text_format("%.0f %%", percent) : text_format("%.2g %%", percent);
}

/* What mantissas under one exponent would have to have. */
static char *bits_text(const struct seen *t) {
    const int bits = seen_bits(t);
    return bits ? text_format("%d bits are enough", bits) : text_format("even %d bits are not enough", MOST_BITS);
}

/* Of a format without blocks: numbers became Inf or NaN, or the largest number where the format saturates. */
static char *overflow_text(const struct what_if *w, const struct seen *t, const struct effect *e) {
    const int64_t beyond = e->infinite ? e->infinite : e->saturated;
    char *const count = text_count(beyond);
    const bool scaled = t->role_number >= 2 && w->loss_scale > 1;
    char *const text = text_format(
        "%s number%s beyond its range become%s %s: %s", count, beyond == 1 ? "" : "s", beyond == 1 ? "s" : "",
        !e->infinite         ? "its largest number"
        : isnan(e->worst_to) ? "NaN"
                             : "Inf",
        scaled ? "a smaller loss scale, or more exponent bits" : "more exponent bits, or a scale of its own");
    free(count);
    return text;
}

static char *flushed_text(const struct what_if *w, const struct seen *t, const struct effect *e,
                          const struct what_if_format *f) {
    char *const share = share_text(effect_flushed(t, e)), *const bits = bits_text(t);
    char *const text =
        f->shared ? text_format("%s become 0: one exponent for %.0f octaves; %s", share, ceil(seen_octaves(t)), bits)
        : f->blocks
            ? text_format("%s become 0, far below the largest of their blocks: more bits an element, or smaller blocks",
                          share)
        : f->scaled
            ? text_format("%s become 0, below the range that one scale leaves: more exponent bits, or blocks", share)
        : t->role_number >= 2
            ? text_format("%s become 0, below its range: a %sloss scale, or more exponent bits", share,
                          w->loss_scale > 1 ? "larger " : "")
            : text_format("%s become 0, below its range: more exponent bits, or a scale of its own", share);
    free(share);
    free(bits);
    return text;
}

/* Whether the scale rule of an MX format may be what costs most: one number in fifty did not fit. HBFP and NVFP4 have
 * no choice of rules. */
static bool saturates(const struct seen *t, const struct effect *e, const struct what_if_format *f) {
    return !strncmp(f->name, "mx:", 3) && !strstr(f->name, ":rceil") &&
           (double)e->saturated > 0.02 * (double)seen_nonzero(t);
}

/* Whether mantissas of so many bits would have to be rounded to one more bit under the exponent of the largest number.
 */
static bool next_exponent(const struct seen *t, int bits) {
    return nearbyint(ldexp(t->largest, bits - 2 - ilogb(t->largest))) > ldexp(1, bits - 1) - 1;
}

char *what_if_advice(const struct what_if *w, const struct seen *t, int format) {
    const struct what_if_format *const f = &w->formats.list[format];
    const struct effect *const e = &t->effects[format];
    const double snr = effect_snr(t, e);
    const int bits = seen_bits(t);
    if (isnan(snr))
        return NULL;
    if (e->infinite)
        return overflow_text(w, t, e);
    const bool flushes = effect_flushed(t, e) > ENOUGH_FLUSHED;
    if (!flushes && snr >= ENOUGH_DB)
        return NULL;
    if (f->shared && bits && bits <= f->bits && next_exponent(t, (int)f->bits))
        return text_format(
            "%.1f dB: %d bits are enough under the exponent of the largest (2^%d), which would be rounded "
            "beyond them: it has the next exponent",
            snr, bits, ilogb(t->largest));
    if (f->shared && bits && bits <= f->bits)
        return text_format("%.1f dB: %d bits are enough, but its exponents end before these numbers (2^%d)", snr, bits,
                           ilogb(t->largest));
    if (!f->shared && !f->blocks && e->saturated)
        return overflow_text(w, t, e);
    if (flushes)
        return flushed_text(w, t, e, f);
    if (f->blocks && saturates(t, e, f)) {
        char *const share = share_text((double)e->saturated / (double)seen_nonzero(t));
        char *const text = text_format("%.1f dB: %s saturate: a scale that rounds up (option rceil), or more bits an "
                                       "element",
                                       snr, share);
        free(share);
        return text;
    }
    if (!f->shared) {
        const double more = ceil((ENOUGH_DB - snr) / decibels_a_bit);
        const char *const plural = more > 1 ? "s" : "";
        return f->blocks ? text_format("%.1f dB: %.0f more bit%s an element for %.0f dB", snr, more, plural, ENOUGH_DB)
                         : text_format("%.1f dB: %.0f more fraction bit%s for %.0f dB", snr, more, plural, ENOUGH_DB);
    }
    char *const enough = bits_text(t);
    char *const text = text_format("%.1f dB: %s", snr, enough);
    free(enough);
    return text;
}

int what_if_worst(const struct what_if *w, int format, int most, int *tensors) {
    int count = 0;
    for (int i = 0; i < w->count; i++) {
        const struct seen *const t = &w->tensors[i];
        char *const advice = what_if_advice(w, t, format);
        const double snr = effect_snr(t, &t->effects[format]);
        if (!advice)
            continue;
        free(advice);
        int at = count;
        while (at > 0 && snr < effect_snr(&w->tensors[tensors[at - 1]], &w->tensors[tensors[at - 1]].effects[format]))
            at--;
        if (at == most)
            continue;
        count += count < most;
        memmove(tensors + at + 1, tensors + at, (size_t)(count - 1 - at) * sizeof *tensors);
        tensors[at] = i;
    }
    return count;
}

char *what_if_subject(const struct what_if *w) {
    const struct trained *const t = &w->trained;
    char *const loss = number_text(w->loss, 4);
    char shards[40] = "";
    if (t->shards > 1)
        snprintf(shards, sizeof shards, " in %lld shards", (long long)t->shards);
    char *const text = text_format("%s in %s after %lld steps; %lld batch%s of %lld %s%s of %s, mean loss %s", t->model,
                                   t->format, (long long)t->steps, (long long)w->batches, w->batches == 1 ? "" : "es",
                                   (long long)w->batch, t->text ? "sequences" : "images", shards, w->data, loss);
    free(loss);
    return text;
}

char *what_if_note(const struct what_if *w, int i) {
    bool shared = false, blocks = false;
    int64_t nonfinite = 0;
    for (int f = 0; f < w->formats.count; f++) {
        shared = shared || w->formats.list[f].shared || w->formats.list[f].scaled;
        blocks = blocks || w->formats.list[f].blocks;
    }
    for (int k = 0; k < w->count; k++)
        nonfinite += w->tensors[k].infinite + w->tensors[k].nan;
    if (shared && i-- == 0)
        return text_format("Shared exponents are those of the exact maximum of each tensor in each batch, as a load "
                           "chooses them: there is no history here from which a predictor could choose. What "
                           "prediction costs, telemetry shows (--shadow of train and compare).");
    if (w->trained.shards > 1 && i-- == 0)
        return text_format("NAME.shards are the tensors of that name in all %lld shards, each an array with exponents "
                           "of its own; NAME.grad beside NAME.grad.shards is the sum of these.",
                           (long long)w->trained.shards);
    if (blocks && i-- == 0)
        return text_format("Blocks lie along the dimension that the forward product sums over: the inputs of weights "
                           "and of their gradients, the last dimension of activations and gradients. Backward "
                           "products sum over others, and their blocks are others.");
    if (strcmp(w->trained.format, "fp32") != 0 && i-- == 0)
        return text_format("The network computes in %s: what its own formats lose is lost before, and not in these "
                           "errors.",
                           w->trained.format);
    if (w->loss_scale != 1 && i-- == 0)
        return text_format("Gradients are those of the loss times %g, the loss scale of the network.", w->loss_scale);
    if (nonfinite && i-- == 0) {
        char *const count = text_count(nonfinite),
                    *const text = text_format(
                        "%s elements are NaN or Inf in the network's own formats: they count, but are in no error.",
                        count);
        free(count);
        return text;
    }
    return NULL;
}
