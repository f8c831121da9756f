/* telemetry_rows.c - reading telemetry. A line that is not as training writes it is an error. */
#include "readers/telemetry_rows.h"
#include "readers/json_lines.h"
#include "base/text.h"
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct reader {
    struct json_lines lines;
    struct telemetry_header header;
    struct telemetry_row row;
    struct telemetry_shadow *shadows;
    double *bins;
    int bin_room;
    bool ended;
};

/* --- fields --------------------------------------------------------------------------------------------------------
 */

static bool number(const cJSON *line, const char *name, double *value) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(line, name);
    *value = cJSON_IsNumber(item) ? item->valuedouble : 0;
    return cJSON_IsNumber(item);
}

/* NAN for null or a missing number; false for anything else. */
static bool number_or_null(const cJSON *line, const char *name, double *value) {
    const bool there = number(line, name, value);
    if (!there)
        *value = NAN;
    return there || cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(line, name));
}

static const char *text_of(const cJSON *line, const char *name) {
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(line, name));
}

/* --- the header ----------------------------------------------------------------------------------------------------
 */

static bool has_shadow(const struct telemetry_header *h, const char *name) {
    for (int i = 0; i < h->shadow_count; i++)
        if (!strcmp(h->shadows[i], name))
            return true;
    return false;
}

static int read_header(struct reader *r, const cJSON *line) {
    struct telemetry_header *h = &r->header;
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(line, "shadows"), *item;
    double schema, every, tensors;
    if (!number(line, "schema", &schema) || !number(line, "every", &every) || !number(line, "tensors", &tensors) ||
        !(every >= 1 && every < INT_MAX) || !(tensors >= 0 && tensors < 1e7) || !cJSON_IsArray(list))
        return json_lines_refuse(&r->lines, "is not the first line of telemetry");
    if (schema != 1)
        return json_lines_refuse(&r->lines, "has another layout than 1, which this program reads");
    h->every = (int)every;
    h->tensors = (int)tensors;
    h->shadows = text_alloc((size_t)cJSON_GetArraySize(list) + 1, sizeof *h->shadows);
    r->shadows = text_alloc((size_t)cJSON_GetArraySize(list) + 1, sizeof *r->shadows);
    cJSON_ArrayForEach(item, list) {
        if (!cJSON_IsString(item) || has_shadow(h, item->valuestring))
            return json_lines_refuse(&r->lines, "'shadows' contains something that is not a name, or a name twice");
        h->shadows[h->shadow_count++] = text_format("%s", item->valuestring);
    }
    return STATUS_OK;
}

/* --- rows ----------------------------------------------------------------------------------------------------------
 */

static int read_shadows(struct reader *r, const cJSON *line) {
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(line, "shadows"), *item;
    int i = 0;
    if (!cJSON_IsArray(list) || cJSON_GetArraySize(list) != r->header.shadow_count)
        return json_lines_refuse(&r->lines, "'shadows' are not those of the first line");
    cJSON_ArrayForEach(item, list) {
        const char *name = text_of(item, "name");
        struct telemetry_shadow *shadow = &r->shadows[i];
        if (!name || strcmp(name, r->header.shadows[i++]) != 0)
            return json_lines_refuse(&r->lines, "'shadows' are not those of the first line");
        if (!number_or_null(item, "error", &shadow->error) || !number(item, "saturated", &shadow->saturated) ||
            !number(item, "flushed", &shadow->flushed))
            return json_lines_refuse(&r->lines, "a field of 'shadows' is missing or of another type");
    }
    r->row.shadows = r->shadows;
    return STATUS_OK;
}

static int read_bins(struct reader *r, const cJSON *list) {
    const cJSON *bin;
    const int count = cJSON_GetArraySize(list);
    if (count > r->bin_room) {
        r->bins = text_realloc(r->bins, (size_t)count, sizeof *r->bins);
        r->bin_room = count;
    }
    cJSON_ArrayForEach(bin, list) {
        if (!cJSON_IsNumber(bin) || !(bin->valuedouble >= 0))
            return json_lines_refuse(&r->lines, "'bins' contains something that is not a count");
        r->bins[r->row.bin_count++] = bin->valuedouble;
    }
    r->row.bins = r->bins;
    return STATUS_OK;
}

static int read_sampled(struct reader *r, const cJSON *line) {
    struct telemetry_row *row = &r->row;
    row->sampled_error = NAN;
    if (!cJSON_HasObjectItem(line, "sampled") && !cJSON_HasObjectItem(line, "sampled_error"))
        return STATUS_OK;
    return number(line, "sampled", &row->sampled) && number(line, "sampled_infinite", &row->sampled_infinite) &&
                   number_or_null(line, "sampled_error", &row->sampled_error)
               ? STATUS_OK
               : json_lines_refuse(&r->lines,
                                   "'sampled', 'sampled_infinite' or 'sampled_error' is missing or of another type");
}

static int read_row(struct reader *r, const cJSON *line) {
    const int64_t before = r->row.step; /* 0: there was none */
    const cJSON *bins = cJSON_GetObjectItemCaseSensitive(line, "bins");
    struct telemetry_row *row = &r->row;
    double step, first;
    *row = (struct telemetry_row){
        .tensor = text_of(line, "tensor"), .role = text_of(line, "role"), .format = text_of(line, "format")};
    if (!row->tensor || !row->role || !cJSON_IsArray(bins) || !number(line, "step", &step) ||
        !number(line, "elements", &row->elements) || !number(line, "zeros", &row->zeros) ||
        !number(line, "infinite", &row->infinite) || !number(line, "nan", &row->nans) ||
        !number(line, "first_bin", &first) || !number(line, "saturated", &row->saturated) ||
        !number(line, "flushed", &row->flushed) || !number(line, "nonfinite", &row->nonfinite) ||
        !number(line, "e_least", &row->e_least) || !number(line, "e_largest", &row->e_largest) ||
        !number(line, "writes", &row->writes) || !number_or_null(line, "rounding", &row->rounding) ||
        !number_or_null(line, "l2", &row->l2) || !number_or_null(line, "update_ratio", &row->update_ratio))
        return json_lines_refuse(&r->lines,
                                 "is not a line 'tensor' of telemetry: a field is missing or of another type");
    if (!(step >= 1 && step < 9e15 && fabs(first) < 1e6))
        return json_lines_refuse(&r->lines, "'step' or 'first_bin' is out of its range");
    row->step = (int64_t)step;
    row->first_bin = (int)first;
    if (row->step < before)
        return json_lines_refuse(&r->lines, "'step' is below that of the line before");
    return read_bins(r, bins) || read_sampled(r, line) || read_shadows(r, line) ? r->lines.status : STATUS_OK;
}

/* --- the file ------------------------------------------------------------------------------------------------------
 */

/* The type of the line; NULL if it is unknown or in the wrong place. */
static const char *check_type(struct reader *r, const cJSON *line) {
    const char *type = text_of(line, "type"), *wrong = !type ? "is not a JSON object with a type"
                                                       : (r->lines.number == 1) != !strcmp(type, "telemetry")
                                                           ? "a line 'telemetry' comes first, and "
                                                             "only first"
                                                       : r->ended ? "follows the line 'end'"
                                                                  : NULL;
    if (wrong)
        json_lines_refuse(&r->lines, wrong);
    return wrong ? NULL : type;
}

int telemetry_rows(const char *path, void (*begin)(void *context, const struct telemetry_header *header),
                   void (*take)(void *context, const struct telemetry_row *row), void *context, bool *found) {
    struct reader r = {0};
    const char *why;
    *found = json_lines_open(&r.lines, path, &why);
    if (!*found)
        return errno == ENOENT ? STATUS_OK : text_failed("cannot read %s: %s", path, why);
    bool reading = true;
    for (cJSON *line; reading && (line = json_lines_next(&r.lines)); cJSON_Delete(line)) {
        const char *type = check_type(&r, line);
        if (type && !strcmp(type, "telemetry")) {
            if (read_header(&r, line) == STATUS_OK && begin)
                begin(context, &r.header);
            reading = take != NULL;
        } else if (type && !strcmp(type, "tensor") && read_row(&r, line) == STATUS_OK) {
            take(context, &r.row);
        }
        r.ended = r.ended || (type && !strcmp(type, "end"));
    }
    if (reading && !r.lines.status && !r.ended)
        json_lines_refuse(&r.lines, r.lines.number == 1 ? "is empty, expected a line 'telemetry'"
                                                        : "expected a line 'end': the file is cut off");
    const int status = r.lines.status;
    json_lines_close(&r.lines);
    for (int i = 0; i < r.header.shadow_count; i++)
        free(r.header.shadows[i]);
    free(r.header.shadows);
    free(r.shadows);
    free(r.bins);
    return status;
}
