/* what_if_tell.c - what `what-if` tells on the terminal, as a table of CSV and as JSON. */
#include "what_if/what_if.h"
#include "base/number.h"
#include "base/table.h"
#include "base/text.h"
#include "report/page_json.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN = 10, WORST = 3 };

/* --- the terminal ------------------------------------------------------------------------------------------------- */

static struct table *format_table(const struct what_if *w, const char *left) {
    char *const alignment = text_alloc(strlen(left) + MOST_WHAT_IFS + 1, 1);
    strcpy(alignment, left);
    memset(alignment + strlen(left), 'r', (size_t)w->formats.count);
    struct table *const table = table_new(alignment);
    free(alignment);
    return table;
}

static void heads(struct table *table, const struct what_if *w, const char *const *own, int count) {
    for (int i = 0; i < count; i++)
        table_cell(table, "%s", own[i]);
    for (int i = 0; i < w->formats.count; i++)
        table_cell(table, "%s", w->formats.list[i].name);
}

static char *bits_text(const struct seen *t) {
    return !(t->power > 0) ? text_format("-")
           : seen_bits(t)  ? text_format("%d", seen_bits(t))
                           : text_format(">%d", MOST_BITS);
}

static void print_roles(const struct what_if *w) {
    static const char *const own[] = {"role", "tensors"};
    struct table *const table = format_table(w, "lr");
    heads(table, w, own, 2);
    for (int role = 0; role < WHAT_IF_ROLES; role++) {
        const struct role_sum sum = what_if_role_sum(w, role);
        if (!sum.tensors)
            continue;
        table_cell(table, "%s", what_if_roles(role));
        table_cell(table, "%d", sum.tensors);
        for (int f = 0; f < w->formats.count; f++) {
            const struct role_effect e = what_if_role_effect(w, role, f);
            char *const median = snr_text(e.median), *const worst = snr_text(e.worst);
            table_cell(table, "%s / %s", median, worst);
            free(median);
            free(worst);
        }
    }
    printf("\nSNR in dB, median / worst tensor\n");
    table_print(table, stdout, 0, output_columns());
    table_free(table);
}

static void print_tensors(const struct what_if *w) {
    static const char *const own[] = {"tensor", "role", "elements", "zero", "magnitudes", "octaves", "bits"};
    struct table *const table = format_table(w, "llrrrrr");
    const int shown = w->settings->all || w->count < SHOWN ? w->count : SHOWN;
    heads(table, w, own, 7);
    for (int i = 0; i < shown; i++) {
        const struct seen *const t = &w->tensors[i];
        table_take(table, text_shown(t->name));
        table_cell(table, "%s", t->role);
        table_take(table, text_count(t->elements));
        table_cell(table, "%.1f %%", 100 * (double)t->zeros / (double)t->elements);
        if (t->largest > 0) {
            table_cell(table, "2^%d … 2^%d", ilogb(t->smallest), ilogb(t->largest));
            table_cell(table, "%.1f", seen_octaves(t));
        } else {
            table_cell(table, "-");
            table_cell(table, "-");
        }
        table_take(table, bits_text(t));
        for (int f = 0; f < w->formats.count; f++)
            table_take(table, snr_text(effect_snr(t, &t->effects[f])));
    }
    printf("\nTensors by %s: SNR in dB; bits: mantissas under one exponent that give %.0f dB and lose at most %g %% to "
           "zero\n",
           w->settings->sort, ENOUGH_DB, 100 * ENOUGH_FLUSHED);
    table_print(table, stdout, 0, output_columns());
    if (shown < w->count)
        printf("%d of %d tensors; --all shows them all\n", shown, w->count);
    table_free(table);
}

static void print_advice(const struct what_if *w) {
    printf("\nWhat they lose most\n");
    for (int f = 0; f < w->formats.count; f++) {
        int worst[WORST + 1];
        const int count = what_if_worst(w, f, WORST, worst);
        const char *const format = w->formats.list[f].name;
        if (!count)
            printf("  %s: nothing: at least %.0f dB, and at most %g %% lost to zero, in every tensor\n", format,
                   ENOUGH_DB, 100 * ENOUGH_FLUSHED);
        for (int i = 0; i < count; i++) {
            const struct seen *const t = &w->tensors[worst[i]];
            char *const advice = what_if_advice(w, t, f), *const name = text_shown(t->name);
            printf("  %s: %s: %s\n", format, name, advice);
            free(name);
            free(advice);
        }
    }
}

void what_if_print(const struct what_if *w) {
    char *const path = text_shown(w->path), *const subject = what_if_subject(w), *const shown = text_shown(subject);
    char *note;
    printf("%s: %s\n", path, shown);
    print_roles(w);
    print_tensors(w);
    print_advice(w);
    for (int i = 0; (note = what_if_note(w, i)); i++) {
        putchar('\n');
        paragraph_print(note, stdout, output_columns());
        free(note);
    }
    free(path);
    free(subject);
    free(shown);
}

/* --- CSV ---------------------------------------------------------------------------------------------------------- */

/* NAN is an empty field. */
static void csv_number(FILE *out, double value) {
    if (isnan(value))
        fputc(',', out);
    else if (isinf(value))
        fprintf(out, ",%s", number_state(value));
    else
        fprintf(out, ",%.9g", value);
}

void what_if_csv(FILE *out, const struct what_if *w) {
    fputs("tensor,role,stored_in,shape,elements,zeros,infinite,nan,smallest,largest,rms,octaves,bits,format,"
          "relative_error,snr_db,saturated,flushed,overflowed,worst_from,worst_to\n",
          out);
    for (int i = 0; i < w->count; i++)
        for (int f = 0; f < w->formats.count; f++) {
            const struct seen *const t = &w->tensors[i];
            const struct effect *const e = &t->effects[f];
            const int64_t finite = t->elements - t->infinite - t->nan;
            text_print_csv(out, t->name);
            fprintf(out, ",%s,%s,", t->role, t->format);
            text_print_csv(out, t->shape);
            fprintf(out, ",%lld,%lld,%lld,%lld", (long long)t->elements, (long long)t->zeros, (long long)t->infinite,
                    (long long)t->nan);
            csv_number(out, t->smallest);
            csv_number(out, t->largest);
            csv_number(out, finite ? sqrt(t->power / (double)finite) : NAN);
            csv_number(out, seen_octaves(t));
            if (seen_bits(t))
                fprintf(out, ",%d", seen_bits(t));
            else
                fputc(',', out);
            fprintf(out, ",%s", w->formats.list[f].name);
            csv_number(out, effect_relative(t, e));
            csv_number(out, effect_snr(t, e));
            fprintf(out, ",%lld,%lld,%lld", (long long)e->saturated, (long long)e->flushed, (long long)e->infinite);
            csv_number(out, e->worst_from);
            csv_number(out, e->worst_to);
            fputc('\n', out);
        }
}

/* --- JSON --------------------------------------------------------------------------------------------------------- */

static void member_text(FILE *out, const char *name, const char *text) {
    fprintf(out, "\"%s\":", name);
    page_text(out, text);
    fputc(',', out);
}

static void member_number(FILE *out, const char *name, double value) {
    fprintf(out, "\"%s\":", name);
    page_number(out, value, PAGE_EXACT);
    fputc(',', out);
}

static void member_count(FILE *out, const char *name, int64_t value) {
    fprintf(out, "\"%s\":%lld,", name, (long long)value);
}

static void json_role(FILE *out, const struct what_if *w, int role) {
    const struct role_sum sum = what_if_role_sum(w, role);
    fputc('{', out);
    member_text(out, "role", what_if_role(role));
    member_count(out, "tensors", sum.tensors);
    member_count(out, "elements", sum.elements);
    member_count(out, "zeros", sum.zeros);
    member_count(out, "nonfinite", sum.nonfinite);
    fputs("\"formats\":[", out);
    for (int f = 0; f < w->formats.count; f++) {
        const struct role_effect e = what_if_role_effect(w, role, f);
        fputs(f ? ",{" : "{", out);
        member_text(out, "format", w->formats.list[f].name);
        member_count(out, "measured", e.tensors);
        member_number(out, "median_db", e.median);
        member_number(out, "worst_db", e.worst);
        if (e.worst_tensor >= 0)
            member_text(out, "worst", w->tensors[e.worst_tensor].name);
        else
            fputs("\"worst\":null,", out);
        member_count(out, "saturated", e.saturated);
        fprintf(out, "\"flushed\":%lld}", (long long)e.flushed);
    }
    fputs("]}", out);
}

static void json_bins(FILE *out, const struct seen *t) {
    int low = 0, high = TENSOR_BINS;
    while (low < high && !t->bins[low])
        low++;
    while (high > low && !t->bins[high - 1])
        high--;
    member_count(out, "first_bin", low < high ? TENSOR_FIRST_BIN + low : 0);
    fputs("\"bins\":[", out);
    for (int i = low; i < high; i++)
        fprintf(out, "%s%lld", i > low ? "," : "", (long long)t->bins[i]);
    fputs("],", out);
}

static void json_effect(FILE *out, const struct what_if *w, const struct seen *t, int format) {
    const struct effect *const e = &t->effects[format];
    char *const advice = what_if_advice(w, t, format);
    fputc('{', out);
    member_text(out, "format", w->formats.list[format].name);
    member_number(out, "relative", effect_relative(t, e));
    member_number(out, "snr_db", effect_snr(t, e));
    member_count(out, "saturated", e->saturated);
    member_count(out, "flushed", e->flushed);
    member_count(out, "overflowed", e->infinite);
    member_number(out, "worst_from", e->worst_from);
    member_number(out, "worst_to", e->worst_to);
    fputs("\"advice\":", out);
    if (advice)
        page_text(out, advice);
    else
        fputs("null", out);
    fputc('}', out);
    free(advice);
}

static void json_tensor(FILE *out, const struct what_if *w, const struct seen *t) {
    const int64_t finite = t->elements - t->infinite - t->nan;
    fputc('{', out);
    member_text(out, "tensor", t->name);
    member_text(out, "role", t->role);
    member_text(out, "stored_in", t->format);
    member_text(out, "shape", t->shape);
    member_count(out, "arrays", t->arrays);
    member_count(out, "elements", t->elements);
    member_count(out, "zeros", t->zeros);
    member_count(out, "infinite", t->infinite);
    member_count(out, "nan", t->nan);
    member_number(out, "smallest", t->smallest);
    member_number(out, "largest", t->largest);
    member_number(out, "rms", finite ? sqrt(t->power / (double)finite) : NAN);
    member_number(out, "octaves", seen_octaves(t));
    if (seen_bits(t))
        member_count(out, "bits", seen_bits(t));
    else
        fputs("\"bits\":null,", out);
    json_bins(out, t);
    fputs("\"formats\":[", out);
    for (int f = 0; f < w->formats.count; f++) {
        fputs(f ? "," : "", out);
        json_effect(out, w, t, f);
    }
    fputs("]}", out);
}

/* One line, as readers/what_if_roles.h reads it. */
void what_if_json(FILE *out, const struct what_if *w) {
    fputs("{\"schema\":1,", out);
    member_text(out, "network", w->path);
    member_text(out, "model", w->trained.model);
    member_text(out, "computed_in", w->trained.format);
    member_count(out, "steps", w->trained.steps);
    member_text(out, "data", w->data);
    member_count(out, "batches", w->batches);
    member_count(out, "batch", w->batch);
    member_count(out, "shards", w->trained.shards);
    member_count(out, "seed", (int64_t)w->seed);
    member_number(out, "loss", w->loss);
    member_number(out, "loss_scale", w->loss_scale);
    member_number(out, "enough_db", ENOUGH_DB);
    member_number(out, "enough_flushed", ENOUGH_FLUSHED);
    fputs("\"roles\":[", out);
    for (int i = 0; i < WHAT_IF_ROLES; i++) {
        fputs(i ? "," : "", out);
        json_role(out, w, i);
    }
    fputs("],\"tensors\":[", out);
    for (int i = 0; i < w->count; i++) {
        fputs(i ? "," : "", out);
        json_tensor(out, w, &w->tensors[i]);
    }
    fputs("]}\n", out);
}
