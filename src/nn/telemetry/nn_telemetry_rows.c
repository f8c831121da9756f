/* nn_telemetry_rows.c - rows of telemetry as JSON Lines and as a table: docs/output.md. */
#include "nn/telemetry/nn_telemetry.h"
#include "core/base/fail.h"
#include "core/base/memory.h"
#include "core/base/text.h"
#include <math.h>
#include <string.h>

/* --- JSON --------------------------------------------------------------------------------------------------------- */

static void json_text(FILE *f, const char *key, const char *text) {
    fl_print(f, "\"%s\":", key);
    if (!text) {
        fputs("null", f);
        return;
    }
    fputc('"', f);
    for (const unsigned char *p = (const unsigned char *)text; *p; p++)
        if (*p == '"' || *p == '\\')
            fl_print(f, "\\%c", *p);
        else if (*p < 0x20)
            fl_print(f, "\\u%04x", *p);
        else
            fputc(*p, f);
    fputc('"', f);
}

static void json_real(FILE *f, const char *key, double value) {
    if (isfinite(value))
        fl_print(f, ",\"%s\":%.17g", key, value);
    else
        fl_print(f, ",\"%s\":null", key);
}

static void json_whole(FILE *f, const char *key, int64_t value) {
    fl_print(f, ",\"%s\":%lld", key, (long long)value);
}

/* The bins from the first to the last that is not empty: *first > *last where all are. */
static void find_bins(const tensor_description *d, int *first, int *last) {
    *first = TENSOR_BINS;
    *last = -1;
    for (int i = 0; d && i < TENSOR_BINS; i++)
        if (d->bins[i]) {
            *first = i < *first ? i : *first;
            *last = i;
        }
}

static double present(double value, bool there) {
    return there ? value : NAN;
}

/* The numbers of the elements: none without a description. */
struct numbers {
    double mean, deviation, smallest, largest, l1, l2, rounding;
    int64_t elements, zeros, infinite, nan;
};

static struct numbers numbers_of(const tensor_description *d) {
    if (!d)
        return (struct numbers){NAN, NAN, NAN, NAN, NAN, NAN, NAN, 0, 0, 0, 0};
    const bool finite = d->elements > d->infinite + d->nan;
    return (struct numbers){d->mean,
                            d->deviation,
                            present(d->smallest, d->smallest > 0),
                            present(d->largest, finite),
                            present(d->l1, finite),
                            present(d->l2, finite),
                            d->rounding,
                            d->elements,
                            d->zeros,
                            d->infinite,
                            d->nan};
}

static void json_shadow(FILE *f, const nn_telemetry_shadow *s) {
    fputc('{', f);
    json_text(f, "name", s->name);
    json_whole(f, "e", s->e);
    json_real(f, "error", s->error);
    json_whole(f, "saturated", s->saturated);
    json_whole(f, "flushed", s->flushed);
    json_whole(f, "saturated_writes", s->saturated_writes);
    json_whole(f, "e_moves", s->e_moves);
    fputc('}', f);
}

static void json_row(FILE *f, const nn_telemetry_row *row) {
    const struct numbers n = numbers_of(row->elements);
    int first, last;
    find_bins(row->elements, &first, &last);
    fl_print(f, "{\"type\":\"tensor\",\"step\":%lld,", (long long)row->step);
    json_text(f, "tensor", row->tensor);
    fputc(',', f);
    json_text(f, "role", row->role);
    fputc(',', f);
    json_text(f, "format", row->format);
    json_whole(f, "e", row->e);
    fl_print(f, ",\"described\":%s", row->elements ? "true" : "false");
    json_whole(f, "elements", n.elements);
    json_whole(f, "zeros", n.zeros);
    json_whole(f, "infinite", n.infinite);
    json_whole(f, "nan", n.nan);
    json_real(f, "mean", n.mean);
    json_real(f, "deviation", n.deviation);
    json_real(f, "smallest", n.smallest);
    json_real(f, "largest", n.largest);
    json_real(f, "l1", n.l1);
    json_real(f, "l2", n.l2);
    json_real(f, "rounding", n.rounding);
    json_whole(f, "sampled", row->sampled);
    json_whole(f, "sampled_infinite", row->sampled_infinite);
    json_real(f, "sampled_error", row->sampled_error);
    json_real(f, "sampled_size", row->sampled_size);
    fl_print(f, ",\"first_bin\":%d,\"bins\":[", first <= last ? first + TENSOR_FIRST_BIN : 0);
    for (int i = first; i <= last; i++)
        fl_print(f, i == first ? "%lld" : ",%lld", (long long)row->elements->bins[i]);
    fputc(']', f);
    json_whole(f, "steps", row->steps);
    json_whole(f, "writes", row->writes);
    json_real(f, "maximum", row->maximum);
    fl_print(f, ",\"maximum_state\":\"%s\"", isfinite(row->maximum) ? "finite" : "inf");
    json_whole(f, "saturated", row->saturated);
    json_whole(f, "flushed", row->flushed);
    json_whole(f, "nonfinite", row->nonfinite);
    json_whole(f, "saturated_writes", row->saturated_writes);
    json_whole(f, "clamped_low", row->clamped_low);
    json_whole(f, "clamped_high", row->clamped_high);
    json_whole(f, "e_moves", row->e_moves);
    json_whole(f, "e_least", row->e_least);
    json_whole(f, "e_largest", row->e_largest);
    json_real(f, "update_ratio", row->update_ratio);
    if (row->update_moved < 0)
        fputs(",\"update_moved\":null", f);
    else
        json_whole(f, "update_moved", row->update_moved);
    fputs(",\"shadows\":[", f);
    for (int i = 0; i < row->shadow_count; i++) {
        if (i)
            fputc(',', f);
        json_shadow(f, &row->shadows[i]);
    }
    fputs("]}\n", f);
}

static void json_heading(const nn_telemetry *t, FILE *f) {
    const char *own = t->g->variant->predictor, *predictor = own && t->g->predictor ? t->g->predictor : own;
    fputs("{\"type\":\"telemetry\",\"schema\":1,", f);
    json_text(f, "variant", t->g->variant->name);
    fputc(',', f);
    json_text(f, "predictor", predictor);
    fl_print(f, ",\"seed\":%llu,\"every\":%lld,", (unsigned long long)t->g->seed, (long long)t->recorder.every);
    json_text(f, "pattern", t->pattern);
    fl_print(f, ",\"tensors\":%d,\"shadows\":[", t->chosen);
    for (int i = 0; i < t->shadow_count; i++) /* names of formats, which need no escape */
        fl_print(f, "%s\"%s\"", i ? "," : "", t->shadows[i].name);
    fputs("]}\n", f);
}

tensor_status fl_telemetry_write_nonfinite(nn_telemetry *t) {
    const nn_nonfinite *n = &t->nonfinite;
    FILE *f = t->json.file;
    if (!f)
        return TENSOR_OK;
    fl_print(f, "{\"type\":\"nonfinite\",\"step\":%lld,", (long long)n->step);
    json_text(f, "pass", n->pass);
    fputc(',', f);
    json_text(f, "tensor", n->tensor);
    fputc(',', f);
    json_text(f, "role", n->role);
    json_whole(f, "nonfinite", n->nonfinite);
    json_whole(f, "elements", n->elements);
    fputs(",\"before\":[", f);
    for (int64_t i = 0; i < n->before_count; i++) {
        const nn_seen_write *w = &n->before[i];
        fl_print(f, "%s{\"step\":%lld,", i ? "," : "", (long long)w->step);
        json_text(f, "tensor", w->tensor);
        fputc(',', f);
        json_text(f, "role", w->role);
        json_whole(f, "e", w->e);
        json_real(f, "maximum", w->maximum);
        json_whole(f, "saturated", w->saturated);
        json_whole(f, "flushed", w->flushed);
        fputc('}', f);
    }
    fputs("]}\n", f);
    return fl_rows_check(&t->json);
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

static const char columns[] =
    "step,tensor,role,format,e,described,elements,zeros,infinite,nan,mean,deviation,smallest,largest,l1,l2,rounding,"
    "sampled,sampled_infinite,sampled_error,sampled_size,first_bin,bins,steps,writes,maximum,saturated,flushed,"
    "nonfinite,saturated_writes,clamped_low,clamped_high,e_moves,"
    "e_least,e_largest,update_ratio,update_moved";

static void csv_heading(const nn_telemetry *t, FILE *f) {
    fputs(columns, f);
    for (int i = 0; i < t->shadow_count; i++) {
        const char *name = t->shadows[i].name;
        fl_print(f, ",%s.e,%s.error,%s.saturated,%s.flushed,%s.saturated_writes,%s.e_moves", name, name, name, name,
                 name, name);
    }
    fputc('\n', f);
}

/* Writes a text, quoted if it contains a comma, a quote or the end of a line. */
static void csv_text(FILE *f, const char *text) {
    if (!strpbrk(text, ",\"\n\r")) {
        fl_print(f, ",%s", text);
        return;
    }
    fputs(",\"", f);
    for (; *text; text++)
        fl_print(f, *text == '"' ? "\"\"" : "%c", *text);
    fputc('"', f);
}

static void csv_real(FILE *f, double value) {
    if (isfinite(value))
        fl_print(f, ",%.17g", value);
    else
        fputs(isinf(value) ? ",inf" : ",", f);
}

static void csv_whole(FILE *f, int64_t value) {
    fl_print(f, ",%lld", (long long)value);
}

static void csv_row(FILE *f, const nn_telemetry_row *row) {
    const struct numbers n = numbers_of(row->elements);
    const double reals[] = {n.mean, n.deviation, n.smallest, n.largest, n.l1, n.l2, n.rounding};
    const int64_t counts[] = {row->saturated,    row->flushed, row->nonfinite, row->saturated_writes, row->clamped_low,
                              row->clamped_high, row->e_moves, row->e_least,   row->e_largest};
    int first, last;
    find_bins(row->elements, &first, &last);
    fl_print(f, "%lld", (long long)row->step);
    csv_text(f, row->tensor);
    csv_text(f, row->role);
    csv_text(f, row->format);
    fl_print(f, ",%d,%s,%lld,%lld,%lld,%lld", row->e, row->elements ? "true" : "false", (long long)n.elements,
             (long long)n.zeros, (long long)n.infinite, (long long)n.nan);
    for (size_t i = 0; i < sizeof reals / sizeof reals[0]; i++)
        csv_real(f, reals[i]);
    csv_whole(f, row->sampled);
    csv_whole(f, row->sampled_infinite);
    csv_real(f, row->sampled_error);
    csv_real(f, row->sampled_size);
    fl_print(f, ",%d,", first <= last ? first + TENSOR_FIRST_BIN : 0);
    for (int i = first; i <= last; i++)
        fl_print(f, i == first ? "%lld" : " %lld", (long long)row->elements->bins[i]);
    csv_whole(f, row->steps);
    csv_whole(f, row->writes);
    csv_real(f, row->maximum);
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        csv_whole(f, counts[i]);
    csv_real(f, row->update_ratio);
    if (row->update_moved < 0)
        fputc(',', f);
    else
        csv_whole(f, row->update_moved);
    for (int i = 0; i < row->shadow_count; i++) {
        const nn_telemetry_shadow *s = &row->shadows[i];
        csv_whole(f, s->e);
        csv_real(f, s->error);
        csv_whole(f, s->saturated);
        csv_whole(f, s->flushed);
        csv_whole(f, s->saturated_writes);
        csv_whole(f, s->e_moves);
    }
    fputc('\n', f);
}

/* --- all of it ---------------------------------------------------------------------------------------------------- */

tensor_status fl_telemetry_open(nn_telemetry *t, const char *json, const char *csv) {
    if (json) {
        TRY(fl_rows_open(&t->json, t->recorder.of, json));
        json_heading(t, t->json.file);
    }
    if (csv) {
        TRY(fl_rows_open(&t->csv, t->recorder.of, csv));
        csv_heading(t, t->csv.file);
    }
    return TENSOR_OK;
}

tensor_status fl_telemetry_write_row(nn_telemetry *t, const nn_telemetry_row *row) {
    if (t->json.file)
        json_row(t->json.file, row);
    if (t->csv.file)
        csv_row(t->csv.file, row);
    TRY(fl_rows_check(&t->json));
    return fl_rows_check(&t->csv);
}

tensor_status fl_telemetry_close(nn_telemetry *t) {
    if (t->json.file) {
        fl_print(t->json.file, "{\"type\":\"end\",\"steps\":%lld,\"rows\":%lld}\n", (long long)t->steps,
                 (long long)t->rows);
        TRY(fl_rows_finish(&t->json));
    }
    return t->csv.file ? fl_rows_finish(&t->csv) : TENSOR_OK;
}

void fl_telemetry_drop(nn_telemetry *t) {
    fl_rows_drop(&t->json);
    fl_rows_drop(&t->csv);
}
