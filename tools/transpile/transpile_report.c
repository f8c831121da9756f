/* transpile_report.c - what `transpile` tells: on the terminal, as a file of CSV, as a page. */
#include "base/number.h"
#include "base/table.h"
#include "base/text.h"
#include "options/options.h"
#include "transpile/transpile.h"
#include "report/page_head.h"
#include "flexlab/tensor.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN = 10 };

/* --- texts; to be freed ------------------------------------------------------------------------------------------- */

static char *sqnr_text(const struct measured *m) {
    const double sqnr = measured_sqnr(m);
    return m->nonfinite  ? text_format("NaN or Inf")
           : isinf(sqnr) ? text_format("exact")
           : isnan(sqnr) ? text_format("-")
                         : text_format("%.1f", sqnr);
}

static double relative_error(const struct measured *m) {
    return m->largest > 0 ? m->largest_error / m->largest : m->largest_error > 0 ? INFINITY : 0;
}

/* A name for a column: a long one without its middle. */
static char *name_text(const char *name) {
    enum { MOST = 44, HEAD = 20 };
    char *const shown = text_shown(name);
    if (text_width(shown) <= MOST)
        return shown;
    const char *head = shown, *tail = shown;
    for (int i = 0; i < HEAD; i++)
        head += text_character(head);
    for (int more = text_width(shown) - (MOST - HEAD - 1); more > 0; more--)
        tail += text_character(tail);
    char *const text = text_format("%.*s…%s", (int)(head - shown), shown, tail);
    free(shown);
    return text;
}

static char *exponent_text(const struct measured *m) {
    return m->shared ? text_format("%d", m->exponent) : text_format("-");
}

/* The difference of two checksums, relative to the size of the tensor. */
static char *difference_text(const struct checksum *s) {
    const double difference = fabs(s->here.sum - s->source.sum);
    return difference > 0 || isnan(difference) ? text_format("%.2g %%", 100 * difference / s->source.magnitude)
                                               : text_format("none");
}

/* "9 in fp16, 2 in fp32", or "1 in fp32, 9 in 8-bit integers, 2 conversions between them; in floats: Softmax". */
static char *formats_text(const struct network *n) {
    char *text = text_format("%s", "");
    tensor_format format;
    int f = 0;
    do {
        int count = 0;
        format = tensor_format_at(f++); /* 0 after the last: 8-bit integers */
        for (int i = 0; i < program_node_count(n->p); i++) {
            program_node node;
            count +=
                !program_node_at(&node, n->p, i) && !node.border && (node.quantised ? !format : node.format == format);
        }
        if (count) {
            char *const longer = text_format("%s%s%d in %s", text, *text ? ", " : "", count,
                                             format ? tensor_format_name(format) : "8-bit integers");
            free(text);
            text = longer;
        }
    } while (format);
    struct network_census c;
    network_take_census(&c, n);
    if (c.integers && c.floats + c.conversions) {
        char *const longer = text_format("%s, %d conversion%s between them%s%s", text, c.conversions,
                                         c.conversions == 1 ? "" : "s", c.floats ? "; in floats: " : "", c.operators);
        free(text);
        text = longer;
    }
    free(c.operators);
    return text;
}

struct totals {
    int64_t saturated, flushed;
    int saturated_in, flushed_in, nonfinite_in;
};

static struct totals total(const struct tensor_list *t) {
    struct totals all = {0};
    for (int i = 0; i < t->count; i++) {
        const struct measured *const m = &t->list[i];
        all.saturated += m->saturated;
        all.saturated_in += m->saturated > 0;
        all.flushed += m->flushed;
        all.flushed_in += m->flushed > 0;
        all.nonfinite_in += m->nonfinite > 0;
    }
    return all;
}

static char *totals_text(const struct tensor_list *t) {
    const struct totals all = total(t);
    char *const saturated = text_count(all.saturated), *const flushed = text_count(all.flushed);
    char *const text =
        text_format("clamped: %s numbers in %d tensors; flushed to zero: %s in %d%s", saturated, all.saturated_in,
                    flushed, all.flushed_in, all.nonfinite_in ? "; NaN or Inf is in some tensors" : "");
    free(saturated);
    free(flushed);
    return text;
}

static const char *format_of(const struct measured *m) {
    return m->format ? tensor_format_name(m->format) : network_type_name(m->integers);
}

/* --- tables ------------------------------------------------------------------------------------------------------- */

static const char *const heads[] = {"tensor",  "kind",          "format",   "elements", "clamped",
                                    "flushed", "largest error", "relative", "SQNR dB",  "exponent"};
enum { HEADS = sizeof heads / sizeof *heads };

static void add_row(struct table *table, const struct measured *m) {
    table_take(table, name_text(m->value));
    table_cell(table, "%s", measured_kind_name(m->kind));
    table_cell(table, "%s", format_of(m));
    table_cell(table, "%lld", (long long)m->elements);
    table_cell(table, "%lld", (long long)m->saturated);
    table_cell(table, "%lld", (long long)m->flushed);
    table_cell(table, "%.3g", m->largest_error);
    table_cell(table, "%.2g", relative_error(m));
    table_take(table, sqnr_text(m));
    table_take(table, exponent_text(m));
}

static void print_sums(const struct transpiled *t) {
    const struct checksum_list *const c = t->sums;
    if (c->why) {
        printf("\nno checksum of activations: %s\n", c->why);
        return;
    }
    struct table *const table = table_new("lrrr");
    table_cell(table, "checksum of output");
    table_cell(table, "source");
    table_cell(table, "this");
    table_cell(table, "difference");
    for (int i = 0; i < c->outputs; i++) {
        const struct checksum *const s = &c->list[i];
        table_take(table, name_text(s->value));
        table_cell(table, "%.6g", s->source.sum);
        table_cell(table, "%.6g", s->here.sum);
        table_take(table, difference_text(s));
    }
    putchar('\n');
    table_print(table, stdout, 0, 0);
    table_free(table);
}

/* "network.onnx: 77,706 parameters, 16 nodes: 16 in fp16; 1 cast between formats". */
static char *summary_text(const struct transpiled *t) {
    char *const parameters = text_count(program_parameter_count(t->network->p)), *const formats =
                                                                                     formats_text(t->network);
    char *const casts =
        t->sums->why ? text_format("%s", "")
                     : text_format("; %d cast%s between formats", t->sums->casts, t->sums->casts == 1 ? "" : "s");
    char *const text =
        text_format("%s parameters, %d nodes: %s%s", parameters, program_node_count(t->network->p), formats, casts);
    free(parameters);
    free(formats);
    free(casts);
    return text;
}

static char *bytes_text(const struct transpiled *t) {
    char *const before = text_count(t->bytes_before), *const after = text_count(t->bytes_after);
    char *const text = text_format("%s bytes, the source has %s (%.2f times as many)", after, before,
                                   (double)t->bytes_before / (double)t->bytes_after);
    free(before);
    free(after);
    return text;
}

void transpile_print(const struct transpiled *t) {
    char *const path = text_shown(t->source->path), *const out = text_shown(t->settings->out);
    char *const summary = summary_text(t), *const bytes = bytes_text(t), *const totals = totals_text(t->tensors);
    const int count = t->tensors->count, shown = t->settings->all || count <= SHOWN ? count : SHOWN;
    printf("%s: %s\n", path, summary);
    if (t->data)
        printf("calibrated on %s\n", t->data);
    printf("%s: %s\n", out, bytes);
    struct table *const table = table_new("lllrrrrrrr");
    for (int i = 0; i < HEADS; i++)
        table_cell(table, "%s", heads[i]);
    for (int i = 0; i < shown; i++)
        add_row(table, &t->tensors->list[i]);
    if (shown) {
        putchar('\n');
        table_print(table, stdout, 0, 0);
        if (shown < count)
            printf("the worst %d of %d tensors; --all shows them all\n", shown, count);
        printf("%s\n", totals);
    }
    table_free(table);
    print_sums(t);
    free(path);
    free(out);
    free(summary);
    free(bytes);
    free(totals);
}

/* --- CSV ---------------------------------------------------------------------------------------------------------- */

static void csv_number(FILE *out, double value) {
    if (isfinite(value))
        fprintf(out, ",%.9g", value);
    else
        fprintf(out, ",%s", number_state(value));
}

static const struct checksum *sum_of(const struct transpiled *t, const struct measured *m) {
    for (int i = t->sums->outputs; i < t->sums->count && m->kind == MEASURED_RESULT; i++)
        if (!strcmp(t->sums->list[i].value, m->value))
            return &t->sums->list[i];
    return NULL;
}

void transpile_csv(FILE *out, const struct transpiled *t) {
    fputs("tensor,kind,node,operator,format,elements,clamped,flushed,nonfinite,largest,largest_error,relative_error,"
          "sqnr_db,exponent,checksum_source,checksum\n",
          out);
    for (int i = 0; i < t->tensors->count; i++) {
        const struct measured *const m = &t->tensors->list[i];
        const struct checksum *const s = sum_of(t, m);
        text_print_csv(out, m->value);
        fprintf(out, ",%s,", measured_kind_name(m->kind));
        text_print_csv(out, m->node);
        fputc(',', out);
        text_print_csv(out, m->op);
        fprintf(out, ",%s,%lld,%lld,%lld,%lld", format_of(m), (long long)m->elements, (long long)m->saturated,
                (long long)m->flushed, (long long)m->nonfinite);
        csv_number(out, m->largest);
        csv_number(out, m->largest_error);
        csv_number(out, relative_error(m));
        csv_number(out, measured_sqnr(m));
        if (m->shared)
            fprintf(out, ",%d", m->exponent);
        else
            fputc(',', out);
        if (s) {
            csv_number(out, s->source.sum);
            csv_number(out, s->here.sum);
        } else {
            fputs(",,", out);
        }
        fputc('\n', out);
    }
}

/* --- the page ----------------------------------------------------------------------------------------------------- */

enum { BAR = 3, HEIGHT = 22 };

/* Bars on the square root of their share, so that few elements are still seen. */
static void bars(FILE *out, const int64_t *bins, int low, int high, int64_t most, const char *colour, bool down) {
    for (int i = low; i < high; i++) {
        const double tall = bins[i] ? 1 + (HEIGHT - 1) * sqrt((double)bins[i] / (double)most) : 0;
        if (bins[i])
            fprintf(out, "<rect x=\"%d\" y=\"%.1f\" width=\"%d\" height=\"%.1f\" style=\"fill:var(--%s)\"/>",
                    (i - low) * BAR, down ? HEIGHT + 1.0 : HEIGHT - tall, BAR, tall, colour);
    }
}

/* Above the line the sizes of the numbers, below it those of the errors, by powers of two. */
static void histogram(FILE *out, const struct measured *m) {
    int low = BINS, high = 0;
    int64_t most = 1;
    for (int i = 0; i < BINS; i++)
        if (m->sizes[i] || m->errors[i]) {
            low = i < low ? i : low;
            high = i + 1;
            most = m->sizes[i] > most ? m->sizes[i] : most;
            most = m->errors[i] > most ? m->errors[i] : most;
        }
    if (low >= high)
        return;
    fprintf(
        out,
        "<svg width=\"%d\" height=\"%d\" role=\"img\"><title>numbers from 2^%d to 2^%d above the line, errors below "
        "it</title>",
        (high - low) * BAR, 2 * HEIGHT + 1, FIRST_BIN + low, FIRST_BIN + high);
    bars(out, m->sizes, low, high, most, "press", false);
    bars(out, m->errors, low, high, most, "bad", true);
    fprintf(out, "<rect x=\"0\" y=\"%d\" width=\"%d\" height=\"1\" style=\"fill:var(--soft)\"/></svg>", HEIGHT,
            (high - low) * BAR);
    fprintf(out, "<br><small>2^%d … 2^%d</small>", FIRST_BIN + low, FIRST_BIN + high);
}

static void page_cell(FILE *out, char *text) {
    fputs("<td>", out);
    html_text(out, text);
    fputs("</td>", out);
    free(text);
}

/* A name as on the terminal; the whole one appears under the pointer. */
static void page_name(FILE *out, const char *name) {
    fputs("<td title=\"", out);
    html_text(out, name);
    fputs("\">", out);
    char *const shown = name_text(name);
    html_text(out, shown);
    fputs("</td>", out);
    free(shown);
}

static void page_row(FILE *out, const struct measured *m) {
    fputs("<tr>", out);
    page_name(out, m->value);
    fputs("<td>", out);
    histogram(out, m);
    fputs("</td>", out);
    page_cell(out, text_format("%s, %s", measured_kind_name(m->kind), m->op));
    page_cell(out, text_format("%s", format_of(m)));
    page_cell(out, text_count(m->elements));
    page_cell(out, text_count(m->saturated));
    page_cell(out, text_count(m->flushed));
    page_cell(out, text_format("%.3g", m->largest_error));
    page_cell(out, text_format("%.2g", relative_error(m)));
    page_cell(out, sqnr_text(m));
    page_cell(out, exponent_text(m));
    fputs("</tr>\n", out);
}

static void page_sums(FILE *out, const struct checksum_list *c) {
    if (c->why)
        return;
    fputs(
        "<h2 id=\"checksums\">Checksums of activations</h2>\n<div class=\"card\"><div class=\"wide\"><table><thead><tr>"
        "<th>tensor</th><th>node</th><th>source</th><th>this</th><th>difference</th></tr></thead><tbody>\n",
        out);
    for (int i = 0; i < c->count; i++) {
        const struct checksum *const s = &c->list[i];
        fputs("<tr>", out);
        page_name(out, s->value);
        page_name(out, i < c->outputs ? "output" : s->node);
        page_cell(out, text_format("%.6g", s->source.sum));
        page_cell(out, text_format("%.6g", s->here.sum));
        page_cell(out, difference_text(s));
        fputs("</tr>\n", out);
    }
    fputs("</tbody></table></div>\n<p class=\"soft\">Of each tensor that both programs compute from one fixed input: a "
          "sum with fixed weights from −1 to 1, which a wrong layout or order changes by its whole size, and rounding "
          "by the size of the errors; the difference is relative to the root mean square.</p></div>\n",
          out);
}

void transpile_page(FILE *out, const struct transpiled *t) {
    char *const name = text_valid(t->source->path), *const title = text_format("%s transpiled", name);
    char *const summary = summary_text(t), *const bytes = bytes_text(t), *const totals = totals_text(t->tensors);
    page_begin(out, title, NULL);
    html_text(out, title);
    fputs("</h1>\n<p class=\"soft\">", out);
    html_text(out, summary);
    fputs(".</p>\n<p id=\"verdict\">The file has ", out);
    html_text(out, bytes);
    fputs("; ", out);
    html_text(out, totals);
    if (t->data) {
        fputs("; calibrated on ", out);
        html_text(out, t->data);
    }
    fputs(".</p>\n<h2 id=\"tensors\">Tensors</h2>\n<div class=\"card\"><div class=\"wide\"><table><thead><tr>"
          "<th>tensor</th><th>distribution</th><th>kind</th><th>format</th><th>elements</th><th>clamped</"
          "th><th>flushed</th>"
          "<th>largest error</th><th>relative</th><th>SQNR dB</th><th>exponent</th></tr></thead>"
          "<tbody>\n",
          out);
    for (int i = 0; i < t->tensors->count; i++)
        page_row(out, &t->tensors->list[i]);
    fputs(
        "</tbody></table></div>\n<p class=\"soft\">Worst first. Weights are compared with their float32 numbers; casts "
        "and results with the program in fp32 on the calibration data, so that a result has the errors of all before "
        "it. Clamped: numbers beyond the largest of the format; flushed: not zero, and zero in the format; relative: "
        "largest error by largest number; SQNR: 10 log10(Σ x² / Σ error²). Distribution: numbers by powers of two "
        "above the line, errors below it; heights by the square root of the share.</p></div>\n",
        out);
    page_sums(out, t->sums);
    fputs("</main></body></html>\n", out);
    free(name);
    free(title);
    free(summary);
    free(bytes);
    free(totals);
}
