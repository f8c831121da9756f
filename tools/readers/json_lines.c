/* json_lines.c - files with a JSON object in each line. */
#include "readers/json_lines.h"
#include "base/input.h"
#include "base/text.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool json_lines_open(struct json_lines *r, const char *path, const char **why) {
    *r = (struct json_lines){.path = path, .file = input_open(path, why)};
    return r->file != NULL;
}

int json_lines_refuse(struct json_lines *r, const char *what) {
    if (r->status == STATUS_OK && !r->quiet)
        text_failed("%s:%ld: %s", r->path, r->number, what);
    return r->status = STATUS_FAILED;
}

cJSON *json_lines_next(struct json_lines *r) {
    if (r->status)
        return NULL;
    errno = 0;
    const ssize_t length = getline(&r->text, &r->room, r->file);
    r->number++;
    if (length < 0) {
        if (!feof(r->file))
            json_lines_refuse(r, strerror(errno));
        return NULL;
    }
    cJSON *line = NULL;
    if (r->text[length - 1] != '\n')
        json_lines_refuse(r, "is cut off");
    else if (strlen(r->text) != (size_t)length)
        json_lines_refuse(r, "holds a byte of zero");
    else if (!cJSON_IsObject(line = cJSON_ParseWithOpts(r->text, NULL, true)))
        json_lines_refuse(r, "is not a JSON object");
    if (r->status == STATUS_OK)
        return line;
    cJSON_Delete(line);
    return NULL;
}

void json_lines_close(struct json_lines *r) {
    fclose(r->file);
    free(r->text);
}
