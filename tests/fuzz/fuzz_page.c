/* fuzz_page.c - a run's trace and telemetry as data of the report's page.
 *
 * Input: a byte (bit 0: telemetry, else a trace; bits 1, 2: how many rows become one), then the file. What is accepted
 * becomes JSON that ends no script, with as many saturated and flushed elements as the file has, however it was
 * thinned. */
#define _GNU_SOURCE
#include "messages.h"
#include "report/report_telemetry.h"
#include "report/report_traces.h"
#include "scratch.h"
#include "base/text.h"
#include <cJSON.h>
#include <math.h>

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    scratch_make();
    text_set_command("fuzz");
    return 0;
}

struct counts {
    double saturated, flushed;
    bool exact; /* no number so large that the order of adding shows */
};

static void add(struct counts *c, double saturated, double flushed) {
    c->saturated += saturated;
    c->flushed += flushed;
    c->exact = c->exact && fabs(saturated) < 1e12 && fabs(flushed) < 1e12 && saturated == rint(saturated) &&
               flushed == rint(flushed);
}

/* Counts the elements in each line of the file, independently of the page. */
static struct counts count_file(const char *text, bool telemetry) {
    struct counts c = {.exact = true};
    bool head = true;
    for (const char *line = text; *line; head = false) {
        const char *end = strchr(line, '\n');
        const size_t length = end ? (size_t)(end - line) : strlen(line);
        if (telemetry) {
            cJSON *parsed = cJSON_ParseWithLength(line, length);
            const char *type = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(parsed, "type"));
            if (type && !strcmp(type, "tensor"))
                add(&c, cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(parsed, "saturated")),
                    cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(parsed, "flushed")));
            cJSON_Delete(parsed);
        } else if (!head) {
            const char *field = line;
            for (int comma = 0; comma < 7; comma++)
                field = strchr(field, ',') + 1;
            add(&c, strtod(field, NULL), strtod(strchr(field, ',') + 1, NULL));
        }
        line += length + (end != NULL);
    }
    return c;
}

/* A column with `points` entries: one number for all, or a list. */
static double sum_column(const cJSON *column, int points) {
    double sum = 0;
    const cJSON *entry;
    if (cJSON_IsNumber(column))
        return points * column->valuedouble;
    MUST(cJSON_IsString(column) || cJSON_GetArraySize(column) == points, "a column of %d of %d points",
         cJSON_GetArraySize(column), points);
    cJSON_ArrayForEach(entry, column) sum += cJSON_IsNumber(entry) ? entry->valuedouble : NAN;
    return cJSON_IsString(column) ? NAN : sum;
}

/* A lane's number of points: that of its lists; a single point needs none. */
static int points_of(const cJSON *lane, int most) {
    const cJSON *column;
    cJSON_ArrayForEach(column, lane) {
        if (cJSON_IsArray(column))
            return cJSON_GetArraySize(column);
    }
    return most;
}

static struct counts count_page(const cJSON *run) {
    struct counts c = {.exact = true};
    const int steps = cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(run, "steps"));
    const cJSON *lane;
    cJSON_ArrayForEach(lane, cJSON_GetObjectItemCaseSensitive(run, "lanes")) {
        const int points = points_of(lane, 1);
        MUST(points >= 1 && points <= steps, "%d points of %d steps", points, steps);
        const double saturated = sum_column(cJSON_GetObjectItemCaseSensitive(lane, "saturated"), points),
                     flushed = sum_column(cJSON_GetObjectItemCaseSensitive(lane, "flushed"), points);
        c.saturated += saturated;
        c.flushed += flushed;
        /* If all columns are constant, they do not show the number of points. */
        c.exact = c.exact && (points > 1 || steps == 1 || (saturated == 0 && flushed == 0));
    }
    return c;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct input in = input_of(data, size);
    const uint8_t choices = take_byte(&in);
    const bool telemetry = choices & 1;
    static const int64_t lengths[] = {4, 700, 1300, INT64_MAX / 2};
    if (memchr(in.at, 0, input_left(&in))) /* lines with a zero are cut there, which count_file does not copy */
        return 0;
    struct settings settings = {.no_trace = telemetry};
    struct origin origin = {.folder = scratch_folder, .trace_every = 1};
    char label[] = "dfp16";
    struct series series = {.label = label, .shared = true};
    uint64_t seed = 1;
    struct run run = {.seed = seed, .shown = true, .finished = true};
    const struct experiment x = {.settings = &settings,
                                 .origins = &origin,
                                 .origin_count = 1,
                                 .series = &series,
                                 .series_count = 1,
                                 .seeds = &seed,
                                 .seed_count = 1,
                                 .runs = &run,
                                 .run_count = 1,
                                 .baseline = -1,
                                 .folder = scratch_folder,
                                 .steps = lengths[choices >> 1 & 3]};
    scratch_write(telemetry ? "telemetry-dfp16-seed1.jsonl" : "trace-dfp16-seed1.csv", in.at, input_left(&in));
    struct report_tensors tensors = {0};
    char *text;
    size_t length;
    FILE *out = open_memstream(&text, &length);
    MUST(out, "no stream in memory");
    fputc('{', out);
    messages_begin();
    const int status = telemetry ? report_telemetry(out, &x, &tensors) : report_traces(out, &x, &tensors);
    messages_end();
    must_say("the page", status != STATUS_OK);
    fputs(",\"tensors\":", out);
    report_tensors_print(out, &tensors);
    fputc('}', out);
    fclose(out);
    if (status == STATUS_OK) {
        cJSON *page = cJSON_Parse(text);
        MUST(page && !memchr(text, '<', length), "what the page holds is not JSON, or may end a script: %s", text);
        const cJSON *first =
            cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(
                                   cJSON_GetObjectItemCaseSensitive(page, telemetry ? "telemetry" : "traces"), "runs"),
                               0);
        MUST(first, "no run: %s", text);
        char *file = strndup((const char *)in.at, input_left(&in));
        const struct counts want = count_file(file, telemetry), have = count_page(first);
        MUST(!want.exact || !have.exact || (want.saturated == have.saturated && want.flushed == have.flushed),
             "saturated %.17g of %.17g, flushed %.17g of %.17g in %s", have.saturated, want.saturated, have.flushed,
             want.flushed, text);
        free(file);
        cJSON_Delete(page);
    }
    report_tensors_clear(&tensors);
    free(text);
    return 0;
}
