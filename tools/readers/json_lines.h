/* json_lines.h - files with a JSON object in each line, such as metrics.jsonl and telemetry, read line by line. */
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
    long number; /* of the line read last, from 1 */
    int status;  /* STATUS_OK until something was refused */
    bool quiet;  /* set after opening: failures are reported only by the status */
};

/* False if it cannot be opened, with *why and errno as set by input_open. `path` must outlive the reader. */
bool json_lines_open(struct json_lines *r, const char *path, const char **why);
/* The object of the next line, for cJSON_Delete; NULL at the end of the file and after a failure, which r->status tells
 * apart. */
cJSON *json_lines_next(struct json_lines *r);
/* Prints "PATH:LINE: WHAT" for the first failure; returns r->status, which is STATUS_FAILED from then on.
 */
int json_lines_refuse(struct json_lines *r, const char *what);
void json_lines_close(struct json_lines *r);

#endif
