/* report.c - report.html: tables, data of the figures, which tools/page/ draws, and configuration on one page. */
#include "report/report.h"
#include "base/number.h"
#include "base/output.h"
#include "report/page_head.h"
#include "report/report_assets.h"
#include "report/report_curves.h"
#include "report/report_paired.h"
#include "report/report_telemetry.h"
#include "report/report_tensors.h"
#include "report/report_traces.h"
#include "report/report_verdict.h"
#include "base/text.h"
#include "readers/what_if_roles.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A row of the configuration; `text` is freed. */
static void fact(FILE *out, const char *name, char *text) {
    fprintf(out, "<dt>%s</dt><dd>", name);
    html_text(out, text);
    fputs("</dd>\n", out);
    free(text);
}

/* The same sentences as below the table on the terminal. */
static void write_notes(FILE *out, const struct experiment *x) {
    char *note;
    for (int i = 0; (note = summary_note(x, i)); i++) {
        const bool diverged = !strncmp(note, "DIVERGED", 8);
        fputs(diverged ? "<p class=\"alarm\" role=\"alert\">" : "<p class=\"warn\">", out);
        html_text(out, note);
        fputs("</p>\n", out);
        free(note);
    }
}

/* A heading that links can name; `brief`: its text in the list of sections, NULL for the same. */
static void heading(FILE *out, const char *id, const char *brief, const char *text) {
    fprintf(out, "<h2 id=\"%s\"", id);
    if (brief)
        fprintf(out, " data-brief=\"%s\"", brief);
    fprintf(out, ">%s</h2>\n", text);
}

/* The name of the data in a title, without the path of their folder: "synthetic", "cifar10", the last part of the path
 * of other files; to be freed. */
static char *data_title(const char *specification) {
    const size_t kind = strcspn(specification, ":");
    const char *path = specification + kind + (specification[kind] != 0);
    const bool named = !strncmp(specification, "synthetic", kind) || !strncmp(specification, "cifar", 5);
    size_t end = named ? 0 : strcspn(path, ",");
    while (end > 0 && path[end - 1] == '/')
        end--;
    size_t start = end;
    while (start > 0 && path[start - 1] != '/')
        start--;
    const bool tells = end - start > 2 || (end > start && path[start] != '.'); /* neither "." nor ".." */
    return tells ? text_format("%.*s", (int)(end - start), path + start)
                 : text_format("%.*s", (int)kind, specification);
}

static void write_head(FILE *out, const struct experiment *x) {
    const struct settings *s = x->settings;
    const int diverged = experiment_diverged(x);
    char *name = data_title(s->data), *title = text_format("%s on %s", s->model, name), *verdict = report_verdict(x);
    char *const page = diverged ? text_format("%d DIVERGED: %s", diverged, title) : text_format("%s", title);
    page_begin(out, page, report_script_sha256);
    free(page);
    html_text(out, title);
    fprintf(out, "</h1>\n<p class=\"soft\">%d format%s × %d seed%s, %lld steps of %lld %s each, flexlab ",
            x->series_count, x->series_count > 1 ? "s" : "", x->seed_count, x->seed_count > 1 ? "s" : "",
            (long long)x->steps, (long long)experiment_step_samples(x), x->data.context ? "tokens" : "images");
    html_text(out, x->origins[0].version);
    fputs("</p>\n<p id=\"verdict\">", out);
    html_text(out, verdict);
    fputs("</p>\n", out);
    if (x->stopped)
        fprintf(out,
                "<p class=\"warn\">Incomplete: %d of %d planned runs were finished. A format marked as stopped shows "
                "its run up to that step.</p>\n",
                experiment_finished(x), experiment_planned(x));
    if (experiment_planned(x) < x->run_count)
        fputs("<p class=\"warn\">Not every format was trained with every seed.</p>\n", out);
    write_notes(out, x);
    free(verdict);
    free(title);
    free(name);
}

static bool has_traces(const struct experiment *x, int origin) {
    bool shared = false;
    for (int i = 0; i < x->run_count; i++)
        shared = shared || (x->runs[i].shown && x->runs[i].origin == origin && x->series[x->runs[i].series].shared);
    return shared && x->origins[origin].trace_every;
}

/* Under which conditions the speeds were measured; to be freed. */
static char *speed_note(const struct experiment *x) {
    const struct origin *first = &x->origins[0];
    int low = first->threads, high = low, traced = 0;
    bool same_processor = true, same_program = true;
    for (int i = 0; i < x->origin_count; i++) {
        const struct origin *o = &x->origins[i];
        low = o->threads < low ? o->threads : low;
        high = o->threads > high ? o->threads : high;
        traced += has_traces(x, i);
        same_processor = same_processor && !strcmp(o->processor, first->processor);
        same_program = same_program && !strcmp(o->instruction_set, first->instruction_set) &&
                       !strcmp(o->revision, first->revision) && !strcmp(o->compiler, first->compiler);
    }
    bool same = low == high && same_processor && same_program && (traced == 0 || traced == x->origin_count);
    char *threads = low == high ? text_format("%d thread%s", low, low > 1 ? "s" : "")
                                : text_format("%d to %d threads", low, high),
         *note =
             text_format("Speed is that of training alone on %s%s%s%s.%s", threads,
                         same_processor ? "" : " of different processors",
                         traced == x->origin_count ? ", writing the exponent traces included"
                         : traced                  ? ", in some folders writing the exponent traces included"
                                                   : "",
                         same_program ? "" : ", by different programs or instruction sets",
                         same ? "" : " The folders were trained under different conditions: do not compare speeds.");
    free(threads);
    return note;
}

static void write_results(FILE *out, const struct experiment *x) {
    struct table *t = summary_table(x);
    char *speed = speed_note(x);
    heading(out, "results", NULL, "Results");
    fputs("<div class=\"card\" id=\"summary\">\n", out);
    table_print_html(t, out);
    fprintf(out,
            "<p class=\"soft\">Train loss: mean of the last epoch; last loss: mean of the last %lld steps; − fp32: "
            "last loss "
            "minus that of fp32, seed by seed; agree: test %s as by fp32 of the same seed; "
            "weights "
            "with their wide copies; activations of one training step; saturated and flushed to zero: elements over "
            "all writes%s; skipped: steps that made no update; ms/step: the median step (10 to 90 %% of them); "
            "wall: "
            "all of the runs. %s</p>\n</div>\n",
            (long long)(x->settings->average_last < x->steps ? x->settings->average_last : x->steps),
            x->data.context ? "tokens predicted alike" : "images given the same class",
            x->seed_count > 1 ? " and seeds; ± is the standard deviation over seeds" : "", speed);
    free(speed);
    table_free(t);
}

static void write_paired(FILE *out, const struct experiment *x) {
    struct table *t = report_paired_table(x);
    if (!t)
        return;
    heading(out, "differences", "Differences", "Differences to fp32, seed by seed");
    fputs("<div class=\"card\"><div id=\"paired\"></div>\n", out);
    table_print_html(t, out);
    fputs(
        "<p class=\"soft\">One seed gives every format the same initial weights, batches and augmentation; a pair is a "
        "run and "
        "that of fp32 with its seed. The interval and p, the probability of a mean as far from 0 if formats made no "
        "difference, are Student's for normal differences, two-sided, not corrected for the number of lines; with few "
        "seeds both say little.</p>\n</div>\n",
        out);
    table_free(t);
}

static void write_arithmetic(FILE *out, const struct experiment *x) {
    struct table *t = summary_arithmetic_table(x);
    heading(out, "arithmetic", NULL, "Arithmetic");
    fputs("<div class=\"card\">\n", out);
    table_print_html(t, out);
    fputs("<p class=\"soft\">Counts over every tensor and write of training, all seeds. Saturated: results beyond the "
          "largest "
          "value of the format or exponent; flushed: non-zero results that became zero; e at minimum or maximum: times "
          "that "
          "the predictor wanted an exponent below or above the format's range.</p>\n</div>\n",
          out);
    table_free(t);
}

/* "55.7 (52.8)": the median tensor and the worst. */
static char *what_if_text(const cJSON *effect) {
    const double median = what_if_roles_number(effect, "median_db"), worst = what_if_roles_number(effect, "worst_db");
    char *const one = isnan(median) ? text_format("–") : text_format("%.1f", median);
    char *const text = isnan(worst) ? text_format("%s", one) : text_format("%s (%.1f)", one, worst);
    free(one);
    return text;
}

static void write_what_if_table(FILE *out, const struct what_if_roles *w) {
    const cJSON *const first = cJSON_GetObjectItemCaseSensitive(cJSON_GetArrayItem(w->roles, 0), "formats");
    const int count = cJSON_GetArraySize(first);
    char *const alignment = text_alloc((size_t)count + 2, 1);
    memset(alignment, 'r', (size_t)count + 1);
    alignment[0] = 'l';
    struct table *const t = table_new(alignment);
    const cJSON *role, *effect;
    table_cell(t, "role");
    cJSON_ArrayForEach(effect, first)
        table_cell(t, "%s", cJSON_GetObjectItemCaseSensitive(effect, "format")->valuestring);
    cJSON_ArrayForEach(role, w->roles) {
        table_cell(t, "%s", cJSON_GetObjectItemCaseSensitive(role, "role")->valuestring);
        cJSON_ArrayForEach(effect, cJSON_GetObjectItemCaseSensitive(role, "formats"))
            table_take(t, what_if_text(effect));
    }
    table_print_html(t, out);
    table_free(t);
    free(alignment);
}

/* What other formats would do, from the folders in which `flexlab what-if` has found it out. */
static int write_what_if(FILE *out, const struct experiment *x) {
    int status = STATUS_OK;
    bool any = false;
    for (int i = 0; i < x->origin_count && status == STATUS_OK; i++) {
        struct what_if_roles w;
        bool found;
        status = what_if_roles_read(&w, x->origins[i].folder ? x->origins[i].folder : x->folder, &found);
        if (found && status == STATUS_OK) {
            if (!any)
                heading(out, "what-if", NULL, "What if");
            fputs("<div class=\"card\">\n", out);
            write_what_if_table(out, &w);
            fputs("<p class=\"soft\">What these formats would do to the tensors of ", out);
            html_text(out, w.network);
            fputs(" on ", out);
            html_text(out, w.data);
            fputs(": signal-to-noise ratio in dB of the median tensor of each role, in brackets of the worst one; – "
                  "where "
                  "nothing changes or a number becomes Inf. what-if.html in the folder has every tensor.</p>\n</div>\n",
                  out);
            any = true;
        }
        what_if_roles_clear(&w);
    }
    return status;
}

static void write_runs(FILE *out, const struct experiment *x) {
    struct table *t = table_new("lrrrrrrrl");
    static const char *const heads[] = {"format",      "seed",    "train loss", "last loss", "test loss",
                                        "test acc. %", "agree %", "seconds",    "divergence"};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        table_cell(t, "%s", heads[i]);
    for (int f = 0; f < x->series_count; f++)
        for (int i = f; i < x->run_count; i += x->series_count) {
            const struct run *run = &x->runs[i];
            const nn_train_result *r = &run->result;
            bool tested = r->predicted_count > 0;
            if (!run->finished && !run->stopped)
                continue;
            table_cell(t, "%s%s%s", x->series[f].label, run->stopped ? " (stopped)" : "",
                       run_diverged(x, run) ? " DIVERGED" : "");
            table_cell(t, "%llu", (unsigned long long)run->seed);
            table_take(t, number_text(r->train_loss, 6));
            table_take(t, number_text(r->last_loss, 6));
            table_take(t, tested ? number_text(r->test_loss, 6) : text_format("-"));
            table_take(t, tested ? number_text(100 * r->test_accuracy, 2) : text_format("-"));
            table_take(t, isnan(run->agreement) || f == x->baseline ? text_format("-")
                                                                    : number_text(100 * run->agreement, 2));
            table_take(t, number_text(r->seconds, 1));
            table_take(t, run_diverged(x, run) ? run_divergence_text(x, run) : text_format("-"));
        }
    heading(out, "runs", NULL, "Runs");
    fputs("<div class=\"card\">\n", out);
    table_print_html(t, out);
    fputs("</div>\n", out);
    table_free(t);
}

/* What ranks have exchanged, for each run of several. */
static void write_exchanges(FILE *out, const struct experiment *x) {
    struct table *t = table_new("lrrlrrrr");
    static const char *const heads[] = {
        "format", "seed", "ranks", "by", "MB sent a step", "ms waited a step", "of the step %", "ms overlapped a step"};
    bool any = false;
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        table_cell(t, "%s", heads[i]);
    for (int i = 0; i < x->run_count; i++) {
        const struct exchange *e = &x->runs[i].exchange;
        if (!e->ranks || !e->steps)
            continue;
        any = true;
        table_cell(t, "%s", x->series[x->runs[i].series].label);
        table_cell(t, "%llu", (unsigned long long)x->runs[i].seed);
        table_cell(t, "%d", e->ranks);
        table_cell(t, "%s", e->engine ? e->engine : "-");
        table_take(t, number_text((double)e->sent / (double)e->steps / 1e6, 3));
        table_take(t, number_text(1000 * e->waited / (double)e->steps, 2));
        table_take(t, number_text(100 * e->waited / e->seconds, 1));
        table_take(t, number_text(1000 * e->overlapped / (double)e->steps, 2));
    }
    if (any) {
        heading(out, "ranks", NULL, "Ranks");
        fputs("<div class=\"card\">\n", out);
        table_print_html(t, out);
        fputs(
            "<p class=\"note\">By rank 0, in training steps; waiting includes the time for which other ranks computed "
            "longer. Overlapped is the time in which bytes were under way while it computed.</p></div>\n",
            out);
    }
    table_free(t);
}

static char *format_list(const struct experiment *x) {
    char *list = text_format("%s", "");
    for (int i = 0; i < x->series_count; i++) {
        const struct series *s = &x->series[i];
        const char *wide = s->no_master                     ? "no wide copy of the weights"
                           : s->variant->wide               ? "wide copy of the weights"
                           : s->variant->stochastic_weights ? "stochastic weight write"
                                                            : "plain weights";
        char *longer =
            !s->plain ? text_format("%s%s%s (%s)", list, i ? "; " : "", s->label, s->policy)
                      : text_format("%s%s%s (%s%s%s, matmul by %s)", list, i ? "; " : "", s->label, wide,
                                    s->predictor ? ", predictor " : "", s->predictor ? s->predictor : "", s->backend);
        free(list);
        list = longer;
    }
    return list;
}

static char *seed_list(const struct experiment *x) {
    bool gaps = x->seeds[x->seed_count - 1] - x->seeds[0] != (uint64_t)x->seed_count - 1;
    char *list = text_format("%llu", (unsigned long long)x->seeds[0]);
    for (int i = gaps ? 1 : x->seed_count - 1; i > 0 && i < x->seed_count; i++) {
        char *longer = text_format("%s%s%llu", list, gaps ? ", " : " … ", (unsigned long long)x->seeds[i]);
        free(list);
        list = longer;
    }
    return list;
}

static void write_origin(FILE *out, const struct experiment *x, const struct origin *o) {
    if (x->origin_count > 1)
        fact(out, "Folder", text_format("%s", o->folder));
    fact(out, "Program", text_format("flexlab %s, revision %s, compiled by %s", o->version, o->revision, o->compiler));
    fact(out, "Processor",
         text_format("%s; kernels: %s%s%s", o->processor, o->instruction_set,
                     o->instruction_cap ? ", FLEXLAB_ISA=" : "", o->instruction_cap ? o->instruction_cap : ""));
    fact(out, "Threads", text_format("%d", o->threads));
    fact(out, "Started", text_format("%s", o->started));
}

static void write_configuration(FILE *out, const struct experiment *x) {
    const struct settings *s = x->settings;
    struct summary first = {0};
    for (int i = 0; i < x->series_count && !first.runs; i++)
        first = summary_of(x, i);
    char *parameters = text_count(first.parameters), *train = text_count(x->data.train),
         *test = text_count(x->data.test);
    heading(out, "configuration", NULL, "Configuration");
    fputs("<div class=\"card\"><dl>\n", out);
    fact(out, "Model", text_format("%s, %s parameters", s->model, parameters));
    if (s->weights)
        fact(out, "Initial weights", text_format("%s", s->weights));
    fact(out, "Data",
         x->data.context ? text_format("%s: %s training and %s test tokens of a vocabulary of %d, sequences of %d",
                                       s->data, train, test, x->data.classes, x->data.context)
                         : text_format("%s: %s training and %s test images, %d×%d×%d, %d classes", s->data, train, test,
                                       x->data.height, x->data.width, x->data.channels, x->data.classes));
    fact(out, "Formats", format_list(x));
    fact(out, "Seeds", seed_list(x));
    char shards[40] = "";
    if (s->shards > 1)
        snprintf(shards, sizeof shards, " in %lld shards", (long long)s->shards);
    fact(out, "Length",
         text_format("%lld epochs of %lld steps, batch %lld%s%s", (long long)s->epochs, (long long)x->steps_per_epoch,
                     (long long)s->batch, shards, s->max_steps ? ", cut short by --max-steps" : ""));
    if (strcmp(s->batchnorm, "shard") != 0)
        fact(out, "Batch normalisation", text_format("moments of the whole batch (--batchnorm %s)", s->batchnorm));
    fact(out, "Learning rate",
         text_format("%g, %s%s", x->rate, s->schedule, !strcmp(s->schedule, "linear") ? " to zero" : ""));
    if (s->warmup > 0)
        fact(out, "Warm-up", text_format("%g epochs", s->warmup));
    fact(out, "Optimiser", text_format("%s", s->optimiser_text));
    fact(out, "Momentum", text_format("%g", s->momentum));
    fact(out, "Weight decay", text_format("%g", s->weight_decay));
    fact(out, "Augmentation",
         text_format("%s", !x->augment       ? "none"
                           : x->data.context ? "random offset of the sequences"
                                             : "random crop and flip"));
    for (int i = 0; i < x->origin_count; i++)
        write_origin(out, x, &x->origins[i]);
    fputs("</dl></div>\n", out);
    heading(out, "command", NULL, x->origin_count > 1 ? "Commands" : "Command");
    fputs("<div class=\"card\"><pre>", out);
    for (int i = 0; i < x->origin_count; i++) {
        fputs(i ? "\n" : "", out);
        html_text(out, x->origins[i].command_line);
    }
    fputs("</pre></div>\n", out);
    free(parameters);
    free(train);
    free(test);
}

/* --- figures ------------------------------------------------------------------------------------------------------ */

/* Writes the figures for tools/page/; without scripts, a sentence says where the others are. */
static void write_figures(FILE *out, const struct figures *figures) {
    fprintf(out,
            "<noscript><p class=\"warn\">The figures of this page need JavaScript, which is switched off here. The "
            "tables hold all "
            "results%s.</p></noscript>\n<div id=\"figures\"></div>\n",
            figures->loss ? "; figure-loss.svg and figure-exponents.svg lie beside this page"
                          : "; 'flexlab report --figures' draws pictures beside this page");
}

static int write_data(FILE *out, const struct experiment *x) {
    struct report_tensors tensors = {0};
    fputs("<script type=\"application/json\" id=\"data\">{\"schema\":1,\n", out);
    report_curves(out, x);
    fputs(",\n", out);
    int status = report_traces(out, x, &tensors);
    fputs(",\n", out);
    if (status == STATUS_OK)
        status = report_telemetry(out, x, &tensors);
    fputs(",\n\"tensors\":", out);
    report_tensors_print(out, &tensors);
    fputs("}</script>\n", out);
    report_tensors_clear(&tensors);
    return status;
}

int report_write(const struct experiment *x, const struct figures *figures) {
    struct output o;
    int status = output_open(&o, x->folder, "report.html");
    if (status)
        return status;
    write_head(o.file, x);
    write_results(o.file, x);
    write_figures(o.file, figures);
    write_paired(o.file, x);
    write_arithmetic(o.file, x);
    write_runs(o.file, x);
    write_exchanges(o.file, x);
    status = write_what_if(o.file, x);
    write_configuration(o.file, x);
    fputs("</main>\n", o.file);
    if (status == STATUS_OK)
        status = write_data(o.file, x);
    fprintf(o.file, "<script>%s</script>\n</body></html>\n", (const char *)report_script);
    if (status == STATUS_OK)
        return output_commit(&o);
    output_discard(&o);
    return status;
}
