/* replay_command.c - the command `replay`: predictors over the recorded maxima of trace files, side by side. */
#include "commands/commands.h"
#include "flexlab/tensor.h"
#include "options/options.h"
#include "base/output.h"
#include "replay/replay.h"
#include "base/table.h"
#include "base/text.h"
#include <fnmatch.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MOST_PREDICTORS = 72, OUTLIER_EVERY = 100, OUTLIER_FIRST = 50, OUTLIER_TIMES = 8 };
enum grouping { BY_ROLE, BY_TRACE, BY_TENSOR, GROUPINGS };
static const char *const grouping_names[] = {"role", "trace", "tensor"};

static const char *grouping_name(int i) {
    return i < GROUPINGS ? grouping_names[i] : NULL;
}

struct request {
    char **traces;
    int trace_count;
    autoflex_predictor predictors[MOST_PREDICTORS];
    int predictor_count;
    const char *tensors, *format, *csv;
    int grouping;
    struct replay_options how;
    bool force, help;
};

/* One tensor of the trace that is being read. */
struct tensor_lives {
    char *name, *role;
    struct replay_life lives[MOST_PREDICTORS];
    double before[AUTOFLEX_WINDOW]; /* maxima, a ring */
    int64_t writes;
    int64_t step; /* of its last row */
};

/* Lines of the table. */
struct group {
    char *name;
    int64_t tensors;
    struct replay_counts counts[MOST_PREDICTORS];
};

struct replay {
    const struct request *request;
    const char *path;
    struct tensor_lives *tensors;
    int tensor_count, next; /* the tensor that is expected in the next row */
    int64_t apart;          /* most steps between two rows of a tensor */
    struct group all;
    struct group *groups; /* by role, trace or tensor, whatever their names: a tensor may be "all" too */
    int group_count;
    struct output csv;
};

/* --- options ------------------------------------------------------------------------------------------------------ */

static int parse_predictors(struct request *q, const char *list) {
    char *copy = text_format("%s", list), *rest = copy, *name;
    int status = STATUS_OK;
    q->predictor_count = 0;
    while (status == STATUS_OK && (name = strsep(&rest, ","))) {
        const autoflex_predictor p = autoflex_find(name);
        char *known = text_names(options_predictor_name);
        autoflex_predictor ignored;
        if (!p && strchr(name, ':') && autoflex_parse(&ignored, name))
            status = text_usage("--predictors: %s", tensor_error());
        else if (!p)
            status = text_usage("--predictors: unknown predictor '%s', expected some of %s%s", name, known,
                                text_did_you_mean(name, options_predictor_name));
        for (int i = 0; i < q->predictor_count && status == STATUS_OK; i++)
            if (q->predictors[i] == p)
                status = text_usage("--predictors: '%s' is named twice", name);
        free(known);
        if (status == STATUS_OK)
            q->predictors[q->predictor_count++] = p;
    }
    free(copy);
    return status;
}

static int parse_grouping(struct request *q, const char *name) {
    for (int i = 0; i < GROUPINGS; i++)
        if (!strcmp(name, grouping_names[i])) {
            q->grouping = i;
            return STATUS_OK;
        }
    return text_usage("--by '%s': expected role, trace or tensor%s", name, text_did_you_mean(name, grouping_name));
}

static int parse(struct request *q, int argc, char **argv) {
    enum { PREDICTORS = 1, TENSORS, FORMAT, BY, WARM_UP, OUTLIERS, CSV, FORCE, HELP };
    static const struct option known[] = {{"predictors", required_argument, NULL, PREDICTORS},
                                          {"tensors", required_argument, NULL, TENSORS},
                                          {"format", required_argument, NULL, FORMAT},
                                          {"by", required_argument, NULL, BY},
                                          {"warm-up", required_argument, NULL, WARM_UP},
                                          {"outliers", required_argument, NULL, OUTLIERS},
                                          {"csv", required_argument, NULL, CSV},
                                          {"force", no_argument, NULL, FORCE},
                                          {"help", no_argument, NULL, HELP},
                                          {NULL, 0, NULL, 0}};
    int status = parse_predictors(q, "paper,ngraph,per-class,amax,amax-recent,current,repeat"), c, which = 0;
    q->how.warm_up = 50;
    opterr = 0;
    optind = 0;
    while (status == STATUS_OK && (c = getopt_long(argc, argv, ":h", known, &which)) != -1) {
        if (c >= PREDICTORS && c <= HELP && options_shortened(&known[which], argv))
            return text_usage("option '%s' is not a whole name, expected --%s", options_shortened(&known[which], argv),
                              known[which].name);
        switch (c) {
        case PREDICTORS:
            status = parse_predictors(q, optarg);
            break;
        case TENSORS:
            q->tensors = optarg;
            break;
        case FORMAT:
            q->format = optarg;
            break;
        case BY:
            status = parse_grouping(q, optarg);
            break;
        case WARM_UP:
            if (!text_whole(optarg, 0, INT64_MAX, &q->how.warm_up))
                status = text_usage("--warm-up '%s': expected a number of steps", optarg);
            break;
        case OUTLIERS:
            if (!text_real(optarg, OUTLIER_TIMES, 1e9, &q->how.outlier))
                status = text_usage("--outliers '%s': expected a factor from %d to 1e9", optarg, OUTLIER_TIMES);
            break;
        case CSV:
            q->csv = optarg;
            break;
        case FORCE:
            q->force = true;
            break;
        case HELP:
        case 'h':
            q->help = true;
            break;
        case ':':
            status = text_usage("%s needs a value; see --help", argv[optind - 1]);
            break;
        default:
            status = text_usage("unknown option '%s'; see --help", argv[optind - 1]);
        }
    }
    q->traces = argv + optind;
    q->trace_count = argc - optind;
    if (status == STATUS_OK && !q->help && !q->trace_count)
        status = text_usage("expected trace files, trace-FORMAT-seedN.csv of a folder of results; see --help");
    return status;
}

static void help(void) {
    puts("Usage: flexlab replay TRACE... [OPTION]...\n\n"
         "Runs exponent predictors again over the maxima that a training has recorded, with the functions that\n"
         "tensors use, and shows what each would have done: writes that saturate, bits that stay unused, exponents\n"
         "that change. A trace with a row for every write comes from 'flexlab train --trace-every 1'; where a row\n"
         "stands for several writes, they count as one with their largest maximum.\n\n"
         "What is run and shown\n"
         "  --predictors LIST  comma-separated (paper,ngraph,per-class,amax,amax-recent,current,repeat);\n"
         "                     'flexlab info predictors' lists them, and FLEXLAB_PREDICTORS adds your own\n"
         "  --by WHAT          lines of the table: role, trace or tensor (role)\n"
         "  --tensors GLOBS    only these, comma-separated patterns such as 'conv1*,*.weight'\n"
         "  --warm-up N        saturated writes after N steps are counted apart (50)\n"
         "  --outliers F       every 100th maximum of a tensor, the 51st first, is F times as large\n"
         "  --format NAME      whose range of exponents (that in the file's name, else flex16+5)\n"
         "  --csv FILE         also writes a line for each tensor, trace and predictor\n"
         "  --force            where there is such a file already, replaces it when the new one is complete\n"
         "  --help             this text\n\nColumns\n"
         "  saturated   writes with a result that did not fit; 'late': after the warm-up\n"
         "  unused      bits of 15 that the largest element leaves unused: mean of 15 - log2(gamma)\n"
         "  changes     of the exponent, in 1,000 writes\n"
         "  repeated    writes computed again: 'repeat' where a result did not fit, 'current' where the exponent\n"
         "              of the last write was not the right one; in-place updates are measured first instead\n"
         "  recovery    writes from an outlier (8 times the largest of the 16 before it) to the first that\n"
         "              keeps 11 bits of its largest element without saturating: mean, longest; after how\n"
         "              many that did not come before the next outlier, or the end\n"
         "  as recorded writes at the exponent that the training had\n\nExample\n"
         "  flexlab train --model resnet8 --trace-every 1 --max-steps 500 --out run\n"
         "  flexlab replay run/trace-flex16+5-seed1.csv --predictors paper,repeat");
}

/* The format whose name is in trace-FORMAT-seedN.csv; ':' of a label is '_' there. */
static tensor_format format_of(const struct request *q, const char *path) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    tensor_format found = FMT_FLEX16_5, format;
    size_t longest = 0;
    if (q->format)
        return tensor_format_find(&found, q->format) ? 0 : found;
    for (int i = 0; !strncmp(name, "trace-", 6) && (format = tensor_format_at(i)); i++) {
        const size_t length = strlen(tensor_format_name(format));
        if (length > longest && !strncmp(name + 6, tensor_format_name(format), length)) {
            found = format;
            longest = length;
        }
    }
    char made[24]; /* "trace-flex12+5-seed1.csv", "trace-tensor_e4m3fn_current-seed1.csv" */
    if (longest || strncmp(name, "trace-", 6) != 0)
        return found;
    name += strlen("trace-");
    const char *scaled = !strncmp(name, "tensor_", 7) ? "tensor:" : "";
    name += strlen(scaled);
    snprintf(made, sizeof made, "%s%.*s", scaled, (int)strcspn(name, ".-@_"), name);
    return tensor_format_find(&format, made) == TENSOR_OK ? format : found;
}

static bool names_policy(const char *path) {
    const char *slash = strrchr(path, '/');
    return !strncmp(slash ? slash + 1 : path, "trace-policy_", strlen("trace-policy_"));
}

static int find_range(const struct request *q, const char *path, struct replay_options *how) {
    if (!q->format && names_policy(path))
        return text_usage("%s: its name has a policy, which may have several formats: expected --format flex16+5 or "
                          "dfp16, whose range of exponents all of its tensors then have",
                          path);
    const tensor_format format = format_of(q, path);
    if (!format || !tensor_format_is_shared(format))
        return q->format
                   ? text_usage("--format '%s': expected a format with a shared exponent, flex16+5 or dfp16", q->format)
                   : text_failed("%s: '%s' has no shared exponent", path, tensor_format_name(format));
    tensor *one = tensor_new(format, TENSOR_SHAPE(1));
    if (!one)
        return text_failed("%s", tensor_error());
    how->e_min = tensor_autoflex(one)->e_min;
    how->e_max = tensor_autoflex(one)->e_max;
    how->bits = tensor_format_bits(format);
    how->largest = tensor_autoflex(one)->largest;
    tensor_free(one);
    return STATUS_OK;
}

/* --- rows --------------------------------------------------------------------------------------------------------- */

static bool matches(const char *patterns, const char *name) {
    char *copy = text_format("%s", patterns), *rest = copy, *pattern;
    bool found = false;
    while ((pattern = strsep(&rest, ",")))
        found = found || !fnmatch(pattern, name, 0);
    free(copy);
    return found;
}

/* Lines of a step have one order, so it tries the tensor after the last one first. */
static struct tensor_lives *find_tensor(struct replay *r, const struct trace_row *row,
                                        const struct replay_options *how) {
    const struct request *q = r->request;
    for (int k = 0; k < r->tensor_count; k++) {
        const int i = (r->next + k) % r->tensor_count;
        if (!strcmp(r->tensors[i].name, row->name)) {
            r->next = i + 1;
            return &r->tensors[i];
        }
    }
    r->tensors = text_realloc(r->tensors, (size_t)r->tensor_count + 1, sizeof *r->tensors);
    struct tensor_lives *t = &r->tensors[r->tensor_count++];
    *t = (struct tensor_lives){.name = text_format("%s", row->name), .role = text_format("%s", row->role)};
    for (int i = 0; i < q->predictor_count; i++)
        replay_begin(&t->lives[i], q->predictors[i], row->role, how);
    r->next = r->tensor_count;
    return t;
}

static bool stands_out(const struct tensor_lives *t, double maximum) {
    if (t->writes < AUTOFLEX_WINDOW)
        return false;
    for (int i = 0; i < AUTOFLEX_WINDOW; i++)
        if (maximum <= OUTLIER_TIMES * t->before[i])
            return false;
    return true;
}

struct reading {
    struct replay *replay;
    struct replay_options how;
    int status;
};

static void take_row(void *context, const struct trace_row *row) {
    struct reading *reading = context;
    struct replay *r = reading->replay;
    if (reading->status != STATUS_OK || (r->request->tensors && !matches(r->request->tensors, row->name)))
        return;
    if (!autoflex_find_role(row->role)) { /* predictors that use roles could not use it */
        reading->status = text_failed("%s: step %lld: role '%s' of %s, expected weight, activation, gradient, weight "
                                      "gradient, momentum, root or direction",
                                      r->path, (long long)row->step, row->role, row->name);
        return;
    }
    struct tensor_lives *t = find_tensor(r, row, &reading->how);
    if (t->writes && row->step <= t->step) {
        reading->status = text_failed("%s: rows of %s go from step %lld to %lld, expected rising steps", r->path,
                                      row->name, (long long)t->step, (long long)row->step);
        return;
    }
    if (t->writes && row->step - t->step > r->apart)
        r->apart = row->step - t->step;
    t->step = row->step;
    const bool made = reading->how.outlier > 0 && t->writes % OUTLIER_EVERY == OUTLIER_FIRST;
    const double factor = made ? reading->how.outlier : 1, maximum = row->maximum * factor;
    const bool outlier = maximum > 0 && stands_out(t, maximum);
    for (int i = 0; i < r->request->predictor_count; i++)
        replay_write(&t->lives[i], row, factor, outlier, &reading->how);
    if (maximum > 0)
        t->before[t->writes++ % AUTOFLEX_WINDOW] = maximum;
}

/* --- results ------------------------------------------------------------------------------------------------------ */

static struct group *find_group(struct replay *r, const char *name) {
    for (int i = 0; i < r->group_count; i++)
        if (!strcmp(r->groups[i].name, name))
            return &r->groups[i];
    r->groups = text_realloc(r->groups, (size_t)r->group_count + 1, sizeof *r->groups);
    r->groups[r->group_count] = (struct group){.name = text_format("%s", name)};
    return &r->groups[r->group_count++];
}

static void add_to(const struct replay *r, struct group *g, const struct tensor_lives *t) {
    g->tensors++;
    for (int i = 0; i < r->request->predictor_count; i++)
        replay_add(&g->counts[i], &t->lives[i].counts);
}

static void write_csv(struct replay *r, const struct tensor_lives *t) {
    for (int i = 0; i < r->request->predictor_count; i++) {
        const struct replay_counts *c = &t->lives[i].counts;
        text_print_csv(r->csv.file, r->path);
        fputc(',', r->csv.file);
        text_print_csv(r->csv.file, t->name);
        fputc(',', r->csv.file);
        text_print_csv(r->csv.file, t->role);
        fputc(',', r->csv.file);
        text_print_csv(r->csv.file, autoflex_name(r->request->predictors[i]));
        fprintf(r->csv.file, ",%lld,%lld,%lld,%.9g,%lld,%lld,%lld,%lld,%.9g,%lld,%lld\n", (long long)c->writes,
                (long long)c->saturated, (long long)c->late, c->kept ? c->unused / (double)c->kept : 0,
                (long long)c->changes, (long long)c->repeated, (long long)c->outliers, (long long)c->recovered,
                c->recovered ? (double)c->recovery / (double)c->recovered : 0, (long long)c->slowest,
                (long long)c->same);
    }
}

static void add_tensors(struct replay *r) {
    for (int i = 0; i < r->tensor_count; i++) {
        const struct tensor_lives *t = &r->tensors[i];
        const char *name = r->request->grouping == BY_ROLE    ? t->role
                           : r->request->grouping == BY_TRACE ? r->path
                                                              : t->name;
        add_to(r, &r->all, t);
        add_to(r, find_group(r, name), t);
        if (r->csv.file)
            write_csv(r, t);
        free(t->name);
        free(t->role);
    }
    free(r->tensors);
    r->tensors = NULL;
    r->tensor_count = r->next = 0;
}

static int read_trace(struct replay *r, const char *path) {
    struct reading reading = {.replay = r, .how = r->request->how};
    r->path = path;
    int status = find_range(r->request, path, &reading.how);
    if (status == STATUS_OK)
        status = trace_rows(path, take_row, &reading);
    if (status == STATUS_OK)
        status = reading.status;
    if (status == STATUS_OK && !r->tensor_count)
        status = r->request->tensors ? text_failed("%s: no tensor matches '%s'", path, r->request->tensors)
                                     : text_failed("%s: has no rows", path);
    add_tensors(r);
    return status;
}

static double share(int64_t part, int64_t whole) {
    return whole ? (double)part / (double)whole : 0;
}

static void print_line(struct table *t, const struct group *g, const char *predictor, const struct replay_counts *c) {
    table_cell(t, "%s", predictor);
    table_cell(t, "%s", g->name);
    table_cell(t, "%lld", (long long)g->tensors);
    table_take(t, text_count(c->writes));
    table_cell(t, "%lld", (long long)c->saturated);
    table_cell(t, "%.4f", 100 * share(c->saturated, c->writes));
    table_cell(t, "%lld", (long long)c->late);
    table_cell(t, "%.2f", c->kept ? c->unused / (double)c->kept : 0);
    table_cell(t, "%.1f", 1000 * share(c->changes, c->writes));
    table_cell(t, "%.2f", 100 * share(c->repeated, c->writes));
    table_cell(t, "%lld", (long long)c->outliers);
    char *never = c->recovered < c->outliers ? text_format("; %lld not", (long long)(c->outliers - c->recovered))
                                             : text_format("%s", "");
    if (c->recovered)
        table_cell(t, "%.1f, %lld%s", (double)c->recovery / (double)c->recovered, (long long)c->slowest, never);
    else
        table_cell(t, "-%s", never);
    free(never);
    table_cell(t, "%.1f", 100 * share(c->same, c->writes));
}

static void print_table(const struct replay *r) {
    const struct request *q = r->request;
    const char *const heads[] = {"predictor",
                                 grouping_names[q->grouping],
                                 "tensors",
                                 "writes",
                                 "saturated",
                                 "%",
                                 "late",
                                 "unused bits",
                                 "changes / 1,000",
                                 "repeated %",
                                 "outliers",
                                 "recovery",
                                 "as recorded %"};
    struct table *t = table_new("llrrrrrrrrrrr");
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        table_cell(t, "%s", heads[i]);
    for (int i = 0; i < q->predictor_count; i++)
        print_line(t, &r->all, autoflex_name(q->predictors[i]), &r->all.counts[i]);
    for (int g = 0; g < r->group_count && r->group_count > 1; g++) /* one group is all */
        for (int i = 0; i < q->predictor_count; i++)
            print_line(t, &r->groups[g], autoflex_name(q->predictors[i]), &r->groups[g].counts[i]);
    table_print(t, stdout, 0, 0);
    table_free(t);
    if (r->apart > 1)
        printf("\nRows lie up to %lld steps apart: several writes count as one, with their largest maximum. A trace of "
               "every\nwrite comes from --trace-every 1.\n",
               (long long)r->apart);
}

static int open_csv(struct replay *r, const char *path) {
    const int status = output_open_path(&r->csv, path);
    if (status == STATUS_OK)
        fputs("trace,tensor,role,predictor,writes,saturated,late,unused_bits,changes,repeated,outliers,recovered,"
              "recovery_mean,recovery_longest,as_recorded\n",
              r->csv.file);
    return status;
}

static bool is_same_file(const char *a, const char *b) {
    struct stat one, two;
    return !stat(a, &one) && !stat(b, &two) && one.st_dev == two.st_dev && one.st_ino == two.st_ino;
}

/* With --force the table replaces an older file of its name, but never one of its inputs. */
static int check_csv(const struct request *q) {
    for (int i = 0; q->csv && i < q->trace_count; i++)
        if (is_same_file(q->csv, q->traces[i]))
            return text_usage("--csv '%s': is the trace %s, expected another file", q->csv, q->traces[i]);
    return output_may_replace("csv", q->csv, q->force); /* output_open refuses anything but a file */
}

static int run(struct replay *r) {
    const struct request *q = r->request;
    int status = check_csv(q);
    if (status == STATUS_OK && q->csv)
        status = open_csv(r, q->csv);
    for (int i = 0; i < q->trace_count && status == STATUS_OK; i++)
        status = read_trace(r, q->traces[i]);
    if (status == STATUS_OK && q->csv)
        status = output_commit(&r->csv);
    else if (r->csv.file)
        output_discard(&r->csv);
    if (status == STATUS_OK)
        print_table(r);
    for (int i = 0; i < r->group_count; i++)
        free(r->groups[i].name);
    free(r->groups);
    return status;
}

int command_replay(int argc, char **argv) {
    struct request request = {0};
    struct replay replay = {.request = &request, .all = {.name = "all"}};
    const int status = parse(&request, argc, argv);
    if (status == STATUS_OK && request.help) {
        help();
        return STATUS_OK;
    }
    return status == STATUS_OK ? run(&replay) : status;
}
