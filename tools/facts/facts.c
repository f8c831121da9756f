/* facts.c - the command `facts`: claims of the literature about number formats, computed again by this library. */
#include "facts/facts.h"
#include "commands/commands.h"
#include "flexlab/tensor.h"
#include "base/failure.h"
#include "base/table.h"
#include "base/text.h"
#include "options/options.h"
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct fact *const facts[] = {&fact_fp16_numbers, &fact_lost_update, &fact_ranges,
                                           &fact_round_trip,   &fact_functions,   &fact_update_stall,
                                           &fact_loss_scale,   &fact_perceptron,  &fact_unchanged};
enum { FACTS = sizeof facts / sizeof *facts };

struct fact_lines {
    const struct fact *fact;
    struct table *table; /* NULL: as Markdown */
    int lines, failed;
};

static const char *fact_name(int i) {
    return i < FACTS ? facts[i]->name : NULL;
}

char *fact_number(double x, int digits) {
    int e;
    const double m = frexp(x, &e);
    if (x > 0 && m == 0.5 && (e > 20 || e < -2))
        return text_format("2^%d", e - 1);
    return isinf(x) ? text_format("Inf") : text_format("%.*g", digits, x);
}

void fact_line(struct fact_lines *lines, bool agrees, const char *what, char *expected, char *observed) {
    const char *const verdict = agrees ? "as said" : "NOT AS SAID";
    lines->lines++;
    lines->failed += !agrees;
    if (lines->table) {
        table_cell(lines->table, "%s", lines->fact->name);
        table_cell(lines->table, "%s", what);
        table_take(lines->table, expected);
        table_take(lines->table, observed);
        table_cell(lines->table, "%s", verdict);
        return;
    }
    printf("| %s | %s | %s | %s |\n", what, expected, observed, verdict);
    free(expected);
    free(observed);
}

void fact_broke(struct fact_lines *lines, const char *what) {
    fact_line(lines, false, what, text_format("a result"), text_format("%s", tensor_error()));
}

static void list(void) {
    struct table *t = table_new("llll");
    const char *const heads[] = {"name", "takes", "source", "what it shows"};
    for (int i = 0; i < 4; i++)
        table_cell(t, "%s", heads[i]);
    for (int i = 0; i < FACTS; i++) {
        table_cell(t, "%s", facts[i]->name);
        table_cell(t, facts[i]->takes_long ? "long" : "seconds");
        table_cell(t, "%s", facts[i]->source);
        table_cell(t, "%s", facts[i]->summary);
    }
    table_print(t, stdout, 0, 0);
    table_free(t);
}

static void help(void) {
    puts("Usage: flexlab facts [NAME]... [OPTION]...\n"
         "\n"
         "Computes again statements of the literature about number formats, and shows what was expected and what came\n"
         "out. The exit status is 1 if a result differs from the statement.\n"
         "\n"
         "What is computed and shown\n"
         "  --list      names, sources, and what each shows\n"
         "  --all       those that take long, too: trainings of a minute or more\n"
         "  --markdown  in the form of docs/precision.md\n"
         "  --help      this text\n"
         "\n"
         "Examples\n"
         "  flexlab facts\n"
         "  flexlab facts lost-update loss-scale");
}

struct request {
    bool list, all, markdown, help, chosen[FACTS];
    int count; /* of the chosen */
};

static int choose(struct request *q, const char *name) {
    for (int i = 0; i < FACTS; i++)
        if (!strcmp(facts[i]->name, name)) {
            q->count += !q->chosen[i];
            q->chosen[i] = true;
            return STATUS_OK;
        }
    char *known = text_names(fact_name);
    const int status =
        text_usage("unknown fact '%s', expected some of %s%s", name, known, text_did_you_mean(name, fact_name));
    free(known);
    return status;
}

static int parse(struct request *q, int argc, char **argv) {
    enum { LIST = 1, ALL, MARKDOWN, HELP };
    static const struct option known[] = {{"list", no_argument, NULL, LIST},
                                          {"all", no_argument, NULL, ALL},
                                          {"markdown", no_argument, NULL, MARKDOWN},
                                          {"help", no_argument, NULL, HELP},
                                          {NULL, 0, NULL, 0}};
    int c, which = 0;
    opterr = 0;
    optind = 0;
    while ((c = getopt_long(argc, argv, "h", known, &which)) != -1)
        if (c >= LIST && c <= HELP && options_shortened(&known[which], argv))
            return text_usage("option '%s' is not a whole name, expected --%s", options_shortened(&known[which], argv),
                              known[which].name);
        else if (c == LIST)
            q->list = true;
        else if (c == ALL)
            q->all = true;
        else if (c == MARKDOWN)
            q->markdown = true;
        else if (c == HELP || c == 'h')
            q->help = true;
        else
            return text_usage("unknown option '%s'; see --help", argv[optind - 1]);
    int status = STATUS_OK;
    for (int i = optind; i < argc && status == STATUS_OK; i++)
        status = choose(q, argv[i]);
    if (status == STATUS_OK && q->count && q->all)
        status = text_usage("--all: not with names of facts");
    for (int i = 0; i < FACTS && !q->count; i++)
        q->chosen[i] = q->all || !facts[i]->takes_long;
    return status;
}

/* Prints text in lines of at most 120 columns, as all documents have. */
static void print_wrapped(const char *text) {
    size_t column = 0;
    for (size_t n; *text; text += n + (text[n] == ' ')) {
        n = strcspn(text, " ");
        const bool fits = column + 1 + n <= 120;
        fputs(!column ? "" : fits ? " " : "\n", stdout);
        column = column && fits ? column + 1 + n : n;
        printf("%.*s", (int)n, text);
    }
    puts("\n");
}

static void head(struct fact_lines *lines) {
    if (lines->table)
        return;
    char *text = text_format("%s. Source: %s.", lines->fact->summary, lines->fact->source);
    printf("\n### %s\n", lines->fact->name);
    print_wrapped(text);
    puts("| | expected | observed | |\n| --- | --- | --- | --- |");
    free(text);
}

int command_facts(int argc, char **argv) {
    struct request q = {0};
    failure_watch();
    const int status = parse(&q, argc, argv);
    if (status != STATUS_OK)
        return status;
    if (q.help || q.list) {
        if (q.help)
            help();
        else
            list();
        return STATUS_OK;
    }
    struct fact_lines lines = {.table = q.markdown ? NULL : table_new("lllll")};
    static const char *const heads[] = {"fact", "", "expected", "observed", ""};
    for (int i = 0; i < 5 && lines.table; i++)
        table_cell(lines.table, "%s", heads[i]);
    for (int i = 0; i < FACTS; i++)
        if (q.chosen[i]) {
            lines.fact = facts[i];
            head(&lines);
            facts[i]->measure(&lines);
        }
    if (lines.table && lines.lines) {
        table_print(lines.table, stdout, 0, 0);
        printf("\n%d of %d as said\n", lines.lines - lines.failed, lines.lines);
    }
    if (lines.table)
        table_free(lines.table);
    return lines.failed ? text_failed("%d of %d are not as said", lines.failed, lines.lines) : STATUS_OK;
}
