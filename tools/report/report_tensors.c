/* report_tensors.c - the tensors that the page can show. */
#include "report/report_tensors.h"
#include "report/page_json.h"
#include "base/text.h"
#include <stdlib.h>
#include <string.h>

static bool is(const struct report_tensors *t, int i, const char *name, const char *role) {
    return i >= 0 && i < t->count && !strcmp(t->names[i], name) && !strcmp(t->roles[i], role);
}

int report_tensor_number(struct report_tensors *t, const char *name, const char *role, int guess) {
    if (is(t, guess, name, role))
        return guess;
    for (int i = 0; i < t->count; i++)
        if (is(t, i, name, role))
            return i;
    if (t->count == t->room) {
        t->room = t->room ? 2 * t->room : 64;
        t->names = text_realloc(t->names, (size_t)t->room, sizeof *t->names);
        t->roles = text_realloc(t->roles, (size_t)t->room, sizeof *t->roles);
    }
    t->names[t->count] = text_format("%s", name);
    t->roles[t->count] = text_format("%s", role);
    return t->count++;
}

void report_tensors_print(FILE *out, const struct report_tensors *t) {
    fputc('[', out);
    for (int i = 0; i < t->count; i++) {
        fputs(i ? ",\n[" : "\n[", out);
        page_text(out, t->names[i]);
        fputc(',', out);
        page_text(out, t->roles[i]);
        fputc(']', out);
    }
    fputc(']', out);
}

void report_tensors_clear(struct report_tensors *t) {
    for (int i = 0; i < t->count; i++) {
        free(t->names[i]);
        free(t->roles[i]);
    }
    free(t->names);
    free(t->roles);
    *t = (struct report_tensors){0};
}
