/* json_lines.h - files of a JSON object a line, such as metrics.jsonl and telemetry, read back line by line. */
#ifndef FLEXLAB_JSON_LINES_H
#define FLEXLAB_JSON_LINES_H

#include <cJSON.h>
#include <stdbool.h>
#include <stdio.h>

struct json_lines {
    const char *path;
    FILE *file;
    char *text;
    size_t room;
    long number; /* of the line that was asked for last, from 1 */
    int status;  /* STATUS_OK until something was refused */
    bool quiet;  /* set after opening: failures are reported by the status alone */
};

/* False where it cannot be opened, with *why and errno as input_open has them. `path` must outlive the reading. */
bool json_lines_open(struct json_lines *r, const char *path, const char **why);
/* The object of the next line, for cJSON_Delete; NULL at the end of the file and after a failure, which r->status tells
 * apart. */
cJSON *json_lines_next(struct json_lines *r);
/* "PATH:LINE: WHAT" as a message, of the first failure alone; returns r->status, which is STATUS_FAILED from then on.
 */
int json_lines_refuse(struct json_lines *r, const char *what);
void json_lines_close(struct json_lines *r);

#endif
