/* what_if_roles.c - see what_if_roles.h. */
#include "readers/what_if_roles.h"
#include "base/text.h"
#include "readers/json_lines.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

double what_if_roles_number(const cJSON *object, const char *name) {
    const cJSON *const member = cJSON_GetObjectItemCaseSensitive(object, name);
    return cJSON_IsNumber(member) ? member->valuedouble : NAN;
}

static const char *text_of(const cJSON *object, const char *name) {
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, name));
}

/* Whether every role has these formats, in their order. */
static bool is_role(const cJSON *role, const cJSON *like) {
    const cJSON *const own = cJSON_GetObjectItemCaseSensitive(role, "formats");
    const int count = cJSON_GetArraySize(own);
    bool good = text_of(role, "role") && cJSON_IsArray(own) && count == cJSON_GetArraySize(like);
    for (int i = 0; i < count && good; i++) {
        const char *const one = text_of(cJSON_GetArrayItem(own, i), "format"), *const other =
                                                                                   text_of(cJSON_GetArrayItem(like, i),
                                                                                           "format");
        good = one && other && !strcmp(one, other);
    }
    return good;
}

static bool take(struct what_if_roles *w) {
    w->network = text_of(w->all, "network");
    w->data = text_of(w->all, "data");
    w->roles = cJSON_GetObjectItemCaseSensitive(w->all, "roles");
    const cJSON *const like = cJSON_GetObjectItemCaseSensitive(cJSON_GetArrayItem(w->roles, 0), "formats"), *role;
    bool good = what_if_roles_number(w->all, "schema") == 1 && w->network && w->data && cJSON_IsArray(w->roles);
    cJSON_ArrayForEach(role, w->roles) good = good && is_role(role, like);
    return good;
}

int what_if_roles_read(struct what_if_roles *w, const char *directory, bool *found) {
    char *const path = text_format("%s/what-if.json", directory);
    struct json_lines lines;
    const char *why;
    int status = STATUS_OK;
    *w = (struct what_if_roles){0};
    *found = json_lines_open(&lines, path, &why);
    if (!*found && errno != ENOENT)
        status = text_failed("cannot read %s: %s", path, why);
    else if (*found) {
        w->all = json_lines_next(&lines);
        if (!w->all || !take(w))
            status = json_lines_refuse(&lines, "is not what 'flexlab what-if' writes, roles with the same formats");
        json_lines_close(&lines);
    }
    free(path);
    return status;
}

void what_if_roles_clear(struct what_if_roles *w) {
    cJSON_Delete(w->all);
    *w = (struct what_if_roles){0};
}
