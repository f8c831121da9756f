/* transpile_rules.c - which format each node gets: rules in the words of policies (docs/policies.md), regular
 * expressions, operators. */
#include "base/text.h"
#include "options/options.h"
#include "transpile/transpile.h"
#include "base/input.h"
#include <fnmatch.h>
#include <regex.h>
#include <stdlib.h>
#include <string.h>

struct assignment {
    program *p;
    tensor_format *format; /* of each node */
    int count;
};

static int read_format(tensor_format *format, const char *where, const char *name) {
    if (!strcmp(name, "int8")) {
        *format = PROGRAM_INT8;
        return STATUS_OK;
    }
    return tensor_format_find(format, name) ? text_usage("%s: %s", where, tensor_error()) : STATUS_OK;
}

/* A pattern of node names; with "@", of operators. */
static bool matches(const program_node *node, const char *pattern) {
    return *pattern == '@' ? !fnmatch(pattern + 1, node->op, 0) : !fnmatch(pattern, node->name, 0);
}

static int apply(struct assignment *a, const char *where, const char *pattern, tensor_format format, bool must) {
    int found = 0;
    for (int i = 0; i < a->count; i++) {
        program_node node;
        if (program_node_at(&node, a->p, i) || !matches(&node, pattern))
            continue;
        a->format[i] = format;
        found++;
    }
    return found || !must ? STATUS_OK
                          : text_usage("%s: no %s matches '%s'", where, *pattern == '@' ? "operator" : "name of a node",
                                       pattern + (*pattern == '@'));
}

/* --- policies ----------------------------------------------------------------------------------------------------- */

/* "PATTERN format=FORMAT", "variant FORMAT"; what stands behind "if-any" may match nothing. */
static int apply_line(struct assignment *a, const char *where, char *line, bool *first) {
    char *words[4] = {NULL}, *rest = line, *word;
    int count = 0, status;
    tensor_format format;
    line[strcspn(line, "#")] = 0;
    while ((word = strsep(&rest, " \t\r")))
        if (*word && count++ < 4)
            words[count - 1] = word;
    if (!count)
        return STATUS_OK;
    const bool may = !strcmp(words[0], "if-any"), variant = !strcmp(words[0], "variant");
    const bool was_first = *first;
    *first = false;
    if (variant && count == 2 && was_first) {
        status = read_format(&format, where, words[1]);
        return status == STATUS_OK ? apply(a, where, "*", format, false) : status;
    }
    if (count != 2 + may || variant || strncmp(words[1 + may], "format=", 7) != 0)
        return text_usage("%s: expected PATTERN format=FORMAT, or variant FORMAT in the first line: a program has one "
                          "format for each node",
                          where);
    status = read_format(&format, where, words[1 + may] + 7);
    return status == STATUS_OK ? apply(a, where, words[may], format, !may) : status;
}

static int apply_policy(struct assignment *a, const char *path) {
    enum { MOST = 1 << 20 };
    const char *why;
    FILE *const file = input_open(path, &why);
    if (!file)
        return text_failed("--policy: cannot read %s: %s", path, why);
    char *const text = text_alloc(MOST + 1, 1), *rest = text, *line;
    const size_t size = fread(text, 1, MOST + 1, file);
    fclose(file);
    int status = size > MOST || strlen(text) != size
                     ? text_usage("--policy '%s': expected a text of at most %d bytes", path, MOST)
                     : STATUS_OK;
    bool first = true;
    for (int number = 1; status == STATUS_OK && (line = strsep(&rest, "\n")); number++) {
        char *const where = text_format("--policy '%s', line %d", path, number), *part = line, *one;
        while (status == STATUS_OK && (one = strsep(&part, ";")))
            status = apply_line(a, where, one, &first);
        free(where);
    }
    free(text);
    return status;
}

/* --- exceptions --------------------------------------------------------------------------------------------------- */

static int exclude(struct assignment *a, const char *expression) {
    regex_t r;
    char why[200];
    const int wrong = regcomp(&r, expression, REG_EXTENDED | REG_NOSUB);
    int found = 0;
    if (wrong) {
        regerror(wrong, &r, why, sizeof why);
        return text_usage("--exclude '%s': expected an extended regular expression: %s", expression, why);
    }
    for (int i = 0; i < a->count; i++) {
        program_node node;
        if (program_node_at(&node, a->p, i) || regexec(&r, node.name, 0, NULL, 0))
            continue;
        a->format[i] = FMT_FP32;
        found++;
    }
    regfree(&r);
    return found ? STATUS_OK : text_usage("--exclude '%s': no name of a node matches", expression);
}

static int assign(struct assignment *a, const struct settings *s, bool *integers) {
    tensor_format format = FMT_FP32;
    int status = STATUS_OK;
    if (!s->to && !s->policy && !s->rules.count)
        return text_usage("expected --to FORMAT, such as fp16 or flex16+5, or formats by --policy or --format");
    if (s->to)
        status = read_format(&format, "--to", s->to);
    for (int i = 0; i < a->count; i++)
        a->format[i] = format;
    if (status == STATUS_OK && s->policy)
        status = apply_policy(a, s->policy);
    for (int i = 0; i < s->rules.count && status == STATUS_OK; i++) {
        const char *const equals = strrchr(s->rules.word[i], '=');
        char *const where = text_format("--format '%s'", s->rules.word[i]);
        char *const pattern = text_format("%.*s", equals ? (int)(equals - s->rules.word[i]) : 0, s->rules.word[i]);
        status = *pattern ? read_format(&format, where, equals + 1)
                          : text_usage("%s: expected PATTERN=FORMAT, where @OPERATOR is a pattern of operators", where);
        if (status == STATUS_OK)
            status = apply(a, where, pattern, format, true);
        free(pattern);
        free(where);
    }
    for (int i = 0; i < s->excludes.count && status == STATUS_OK; i++)
        status = exclude(a, s->excludes.word[i]);
    for (int i = 0; i < s->keep_ops.count && status == STATUS_OK; i++) {
        char *const pattern = text_format("@%s", s->keep_ops.word[i]);
        status = apply(a, "--keep-op", pattern, FMT_FP32, true);
        free(pattern);
    }
    for (int i = 0; i < a->count && status == STATUS_OK; i++) {
        program_node node;
        *integers |= a->format[i] == PROGRAM_INT8;
        if (program_node_at(&node, a->p, i) || (!node.quantised && program_set_node_format(a->p, i, a->format[i])))
            status = text_failed("%s", tensor_error());
    }
    return status;
}

int transpile_rules(program *p, const struct settings *s, bool *integers) {
    struct assignment a = {.p = p, .count = program_node_count(p)};
    a.format = text_alloc((size_t)a.count + 1, sizeof *a.format);
    const int status = assign(&a, s, integers);
    free(a.format);
    return status;
}
