/* what_if_page.c - what-if.html: roles and tensors by format as tables tinted by what is lost, with histograms of
 * exponents. Everything is readable without the page's script, which sorts and filters. */
#include "what_if/what_if.h"
#include "base/table.h"
#include "base/text.h"
#include "report/page_head.h"
#include "report/report_assets.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BAR = 3, HEIGHT = 26, GRID = 8, WORST = 5 };

/* A cell is tinted from CLEAR_DB on; at 0 dB, and below, it has the full tint. */
static const double clear_db = 60, full_tint = 70;

static double tint(double snr) {
    return isnan(snr) || snr >= clear_db ? 0 : snr <= 0 ? full_tint : full_tint * (1 - snr / clear_db);
}

static void text_taken(FILE *out, char *text) {
    html_text(out, text);
    free(text);
}

static void cell(FILE *out, char *text) {
    fputs("<td>", out);
    text_taken(out, text);
    fputs("</td>", out);
}

/* A cell by which its column is sorted; NAN: last. */
static void cell_number(FILE *out, double value, char *text) {
    if (isnan(value))
        fputs("<td class=\"r\" data-value=\"\">", out);
    else
        fprintf(out, "<td class=\"r\" data-value=\"%.9g\">", value);
    text_taken(out, text);
    fputs("</td>", out);
}

/* A number that any browser's Number() reads, for sorting by SNR. */
static double sortable(double snr) {
    return isinf(snr) ? copysign(1e9, snr) : snr;
}

/* --- sentences ---------------------------------------------------------------------------------------------------- */

static int lossy(const struct what_if *w, int format) {
    int count = 0;
    for (int i = 0; i < w->count; i++) {
        char *const advice = what_if_advice(w, &w->tensors[i], format);
        count += advice != NULL;
        free(advice);
    }
    return count;
}

static void verdict(FILE *out, const struct what_if *w) {
    char *good = text_format("%s", "");
    fputs("<p id=\"verdict\">", out);
    for (int f = 0; f < w->formats.count; f++) {
        const int count = lossy(w, f);
        if (!count) {
            char *const longer = text_format("%s%s%s", good, *good ? ", " : "", w->formats.list[f].name);
            free(good);
            good = longer;
            continue;
        }
        html_text(out, w->formats.list[f].name);
        fprintf(out, " loses too much of %d of %d tensors. ", count, w->count);
    }
    if (*good) {
        fprintf(out, "In every tensor at least %.0f dB, and at most %g %% lost to zero: ", ENOUGH_DB,
                100 * ENOUGH_FLUSHED);
        html_text(out, good);
        fputs(".", out);
    }
    fputs("</p>\n", out);
    free(good);
}

static void notes(FILE *out, const struct what_if *w) {
    char *note;
    for (int i = 0; (note = what_if_note(w, i)); i++) {
        fputs("<p class=\"soft\">", out);
        text_taken(out, note);
        fputs("</p>\n", out);
    }
}

/* --- roles -------------------------------------------------------------------------------------------------------- */

static void format_heads(FILE *out, const struct what_if *w, const char *attributes) {
    for (int f = 0; f < w->formats.count; f++) {
        fprintf(out, "<th class=\"r\"%s>", attributes);
        html_text(out, w->formats.list[f].name);
        fputs("</th>", out);
    }
}

static void role_cell(FILE *out, const struct what_if *w, int role, int format) {
    const struct role_effect e = what_if_role_effect(w, role, format);
    fprintf(out, "<td class=\"snr\" style=\"--lost:%.0f\" title=\"", tint(e.worst));
    if (e.worst_tensor >= 0) {
        fputs("worst: ", out);
        html_text(out, w->tensors[e.worst_tensor].name);
    }
    fprintf(out, "; saturated: %lld; flushed to zero: %lld\">", (long long)e.saturated, (long long)e.flushed);
    text_taken(out, snr_text(e.median));
    fputs("<small>", out);
    text_taken(out, snr_text(e.worst));
    fputs("</small></td>", out);
}

static void roles(FILE *out, const struct what_if *w) {
    fputs("<h2 id=\"roles\">Roles</h2>\n<div class=\"card\"><div class=\"wide\"><table class=\"heat\"><thead><tr>"
          "<th>role</th><th class=\"r\">tensors</th><th class=\"r\">elements</th>",
          out);
    format_heads(out, w, "");
    fputs("</tr></thead><tbody>\n", out);
    for (int role = 0; role < WHAT_IF_ROLES; role++) {
        const struct role_sum sum = what_if_role_sum(w, role);
        if (!sum.tensors)
            continue;
        fprintf(out, "<tr><td>%s</td><td class=\"r\">%d</td><td class=\"r\">", what_if_roles(role), sum.tensors);
        text_taken(out, text_count(sum.elements));
        fputs("</td>", out);
        for (int f = 0; f < w->formats.count; f++)
            role_cell(out, w, role, f);
        fputs("</tr>\n", out);
    }
    fputs("</tbody></table></div>\n<p class=\"soft\">Signal-to-noise ratio in dB, 10 log10(Σ x² / Σ error²): of the "
          "median tensor, and below it of the worst one, which tints the cell: ",
          out);
    static const double samples[] = {60, 40, 20, 0};
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++)
        fprintf(out, "%s<span class=\"key snr\" style=\"--lost:%.0f\"></span> %.0f dB", i ? ", " : "", tint(samples[i]),
                samples[i]);
    fputs(". 20 dB are an error of a tenth of the numbers, 40 dB of a hundredth, 60 dB of a thousandth.</p></div>\n",
          out);
}

/* --- what helps --------------------------------------------------------------------------------------------------- */

static void advice(FILE *out, const struct what_if *w) {
    fputs("<h2 id=\"advice\">What they lose most</h2>\n<div class=\"card\"><div class=\"wide\"><table><thead><tr><th>"
          "format</th><th>tensor</th><th>role</th><th>loss, and what helps</th></tr></thead><tbody>\n",
          out);
    for (int f = 0; f < w->formats.count; f++) {
        int worst[WORST + 1];
        const int count = what_if_worst(w, f, WORST, worst);
        for (int i = 0; i < count; i++) {
            const struct seen *const t = &w->tensors[worst[i]];
            fputs("<tr>", out);
            cell(out, text_format("%s", w->formats.list[f].name));
            cell(out, text_format("%s", t->name));
            cell(out, text_format("%s", t->role));
            cell(out, what_if_advice(w, t, f));
            fputs("</tr>\n", out);
        }
        if (!count) {
            fputs("<tr>", out);
            cell(out, text_format("%s", w->formats.list[f].name));
            fputs("<td colspan=\"3\">nothing to mend</td></tr>\n", out);
        }
    }
    fprintf(out,
            "</tbody></table></div>\n<p class=\"soft\">The %d worst tensors of each format, of those with less than "
            "%.0f dB or more than %g %% of their numbers lost to zero.</p></div>\n",
            WORST, ENOUGH_DB, 100 * ENOUGH_FLUSHED);
}

/* --- tensors ------------------------------------------------------------------------------------------------------ */

/* The bins that any tensor needs, so that all histograms have one axis. */
struct axis {
    int low, high;
};

static struct axis axis_of(const struct what_if *w) {
    struct axis a = {TENSOR_BINS, 0};
    for (int i = 0; i < w->count; i++)
        for (int k = 0; k < TENSOR_BINS; k++)
            if (w->tensors[i].bins[k]) {
                a.low = k < a.low ? k : a.low;
                a.high = k + 1 > a.high ? k + 1 : a.high;
            }
    return a;
}

/* Bars on the square root of their share, so that few numbers are still seen; behind them the octaves that an exponent
 * of the largest number reaches with as many bits as are enough. */
static void histogram(FILE *out, const struct seen *t, struct axis a) {
    int64_t most = 1;
    int top = -1;
    const int bits = seen_bits(t);
    for (int i = a.low; i < a.high; i++) {
        most = t->bins[i] > most ? t->bins[i] : most;
        top = t->bins[i] ? i : top;
    }
    fprintf(out, "<svg width=\"%d\" height=\"%d\" role=\"img\"><title>", (a.high - a.low) * BAR, HEIGHT + 1);
    if (top < 0)
        fputs("zeros alone", out);
    else
        fprintf(out, "numbers from 2^%d to 2^%d", ilogb(t->smallest), ilogb(t->largest) + 1);
    fputs("</title>", out);
    if (top >= 0 && bits) { /* largest mantissa: bits - 1 octaves, of which the lowest is one unit */
        const int bottom = top - (bits - 2) > a.low ? top - (bits - 2) : a.low;
        fprintf(out, "<rect x=\"%d\" y=\"0\" width=\"%d\" height=\"%d\" style=\"fill:var(--head)\"/>",
                (bottom - a.low) * BAR, (top + 1 - bottom) * BAR, HEIGHT);
    }
    for (int i = a.low; i < a.high; i++)
        if ((TENSOR_FIRST_BIN + i) % GRID == 0)
            fprintf(out, "<rect x=\"%d\" y=\"0\" width=\"1\" height=\"%d\" style=\"fill:var(--grid)\"/>",
                    (i - a.low) * BAR, HEIGHT);
    for (int i = a.low; i < a.high; i++)
        if (t->bins[i]) {
            const double tall = 1 + (HEIGHT - 1) * sqrt((double)t->bins[i] / (double)most);
            fprintf(out, "<rect x=\"%d\" y=\"%.1f\" width=\"%d\" height=\"%.1f\" style=\"fill:var(--press)\"/>",
                    (i - a.low) * BAR, HEIGHT - tall, BAR - 1, tall);
        }
    fprintf(out, "<rect x=\"0\" y=\"%d\" width=\"%d\" height=\"1\" style=\"fill:var(--soft)\"/></svg>", HEIGHT,
            (a.high - a.low) * BAR);
}

static void effect_cell(FILE *out, const struct what_if *w, const struct seen *t, int format) {
    const struct effect *const e = &t->effects[format];
    const double snr = effect_snr(t, e);
    char *const text = what_if_advice(w, t, format);
    fprintf(out, "<td class=\"snr\" style=\"--lost:%.0f\" data-value=\"", tint(snr));
    if (!isnan(snr))
        fprintf(out, "%.9g", sortable(snr));
    fprintf(out, "\" title=\"relative error %.3g; saturated: %lld; flushed to zero: %.3g %%; worst: %.6g becomes %.6g",
            effect_relative(t, e), (long long)e->saturated, 100 * effect_flushed(t, e), e->worst_from, e->worst_to);
    if (text) {
        fputs(". ", out);
        html_text(out, text);
    }
    fputs("\">", out);
    text_taken(out, snr_text(snr));
    fputs("</td>", out);
    free(text);
}

static void tensor_row(FILE *out, const struct what_if *w, const struct seen *t, struct axis a) {
    const int bits = seen_bits(t);
    const bool any = t->largest > 0;
    fprintf(out, "<tr data-role=\"%s\"><td title=\"", t->role);
    html_text(out, t->shape);
    fputs(" in ", out);
    html_text(out, t->format);
    fputs("\">", out);
    html_text(out, t->name);
    fprintf(out, "<small>%s</small></td>", t->role);
    cell_number(out, (double)t->elements, text_count(t->elements));
    const double zero = 100 * (double)t->zeros / (double)t->elements;
    cell_number(out, zero, text_format("%.1f %%", zero));
    fputs("<td>", out);
    histogram(out, t, a);
    fputs("</td>", out);
    cell_number(out, any ? log2(t->largest) : NAN,
                any ? text_format("2^%d … 2^%d", ilogb(t->smallest), ilogb(t->largest)) : text_format("-"));
    cell_number(out, seen_octaves(t), any ? text_format("%.1f", seen_octaves(t)) : text_format("-"));
    cell_number(out,
                !any   ? NAN
                : bits ? bits
                       : MOST_BITS + 1,
                !any   ? text_format("-")
                : bits ? text_format("%d", bits)
                       : text_format(">%d", MOST_BITS));
    for (int f = 0; f < w->formats.count; f++)
        effect_cell(out, w, t, f);
    fputs("</tr>\n", out);
}

static void tensors(FILE *out, const struct what_if *w) {
    const struct axis a = axis_of(w);
    fputs("<h2 id=\"tensors\">Tensors</h2>\n<div class=\"card\"><div class=\"controls\" id=\"controls\"></div><div "
          "class=\"wide\"><table class=\"tensors\" id=\"tensors-table\"><thead><tr><th data-sort=\"up\">tensor</th>"
          "<th class=\"r\" data-sort=\"down\">elements</th><th class=\"r\" "
          "data-sort=\"down\">zero</th><th>exponents",
          out);
    if (a.low < a.high)
        fprintf(out, " 2^%d … 2^%d", TENSOR_FIRST_BIN + a.low, TENSOR_FIRST_BIN + a.high);
    fputs("</th><th class=\"r\" data-sort=\"down\">magnitudes</th><th class=\"r\" data-sort=\"down\">octaves</th><th "
          "class=\"r\" data-sort=\"down\">bits</th>",
          out);
    format_heads(out, w, " data-sort=\"up\"");
    fputs("</tr></thead><tbody>\n", out);
    for (int i = 0; i < w->count; i++)
        tensor_row(out, w, &w->tensors[i], a);
    fprintf(out,
            "</tbody></table></div>\n<p class=\"soft\">SNR in dB by format; the pointer on a cell shows its relative "
            "error, what saturated and what became zero, and the element with the largest error. Bits: the smallest "
            "mantissas under one exponent that give %.0f dB and lose at most %g %% of the numbers to zero. Exponents: "
            "numbers by powers of two, one axis for all, a line every %d octaves; heights by the square root of the "
            "share; the ground is what so many bits reach.</p></div>\n",
            ENOUGH_DB, 100 * ENOUGH_FLUSHED, GRID);
}

void what_if_page(FILE *out, const struct what_if *w) {
    char *const title = text_format("%s in %s: what if", w->trained.model, w->trained.format);
    page_begin(out, title, what_if_script_sha256);
    html_text(out, title);
    fputs("</h1>\n<p class=\"soft\">", out);
    text_taken(out, what_if_subject(w));
    fputs(": ", out);
    text_taken(out, text_valid(w->path));
    fputs("</p>\n", out);
    verdict(out, w);
    roles(out, w);
    advice(out, w);
    tensors(out, w);
    notes(out, w);
    fprintf(out, "</main>\n<script>%s</script>\n</body></html>\n", (const char *)what_if_script);
    free(title);
}
