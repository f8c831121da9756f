/* trace_rows.h - exponent traces read back row by row (docs/metrics.md), for the tests. */
#ifndef FL_TRACE_ROWS_H
#define FL_TRACE_ROWS_H

#include "check.h"
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct trace_row {
    long long step, saturated, flushed, nonfinite, low, high;
    char name[80], role[40], maximum[40]; /* the maximum as it is printed */
    double predicted, value;              /* value: the maximum */
    int e, gamma, maximum_e;
};

/* NULL: there is no file of that name. */
static inline FILE *trace_rows_open(const char *path) {
    static const char heading[] = "step,tensor,role,e,gamma,predicted_maximum,maximum,saturated,flushed,nonfinite,"
                                  "clamped_low,clamped_high,maximum_e\n";
    char line[400] = "";
    FILE *file = fopen(path, "r");
    CHECK(!file || (fgets(line, sizeof line, file) && !strcmp(line, heading)), "%s: heading %s", path, line);
    return file;
}

/* False at the end, or where a row is none, which is a failure of the test. */
static inline bool trace_rows_next(FILE *file, struct trace_row *row) {
    char line[400], more;
    if (!fgets(line, sizeof line, file))
        return false;
    const int got = sscanf(line, "%lld,%79[^,],%39[^,],%d,%d,%lf,%39[^,],%lld,%lld,%lld,%lld,%lld,%d%c", &row->step,
                           row->name, row->role, &row->e, &row->gamma, &row->predicted, row->maximum, &row->saturated,
                           &row->flushed, &row->nonfinite, &row->low, &row->high, &row->maximum_e, &more);
    const bool good = got == 14 && more == '\n';
    CHECK(good, "%d fields in %s", got, line);
    row->value = good ? strtod(row->maximum, NULL) : 0;
    return good;
}

#endif
