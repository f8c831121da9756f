/* scales.c - what calibration has fixed, as a file that people read and edit: a line of comma-separated values for each
 * tensor (RFC 4180). */
#include "program/calibration/methods.h"
#include "program/calibration/ranges.h"
#include "program/passes/passes.h"
#include "program/plan/program_object.h"
#include "core/base/fail.h"
#include "core/base/files.h"
#include "core/base/memory.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char head[] = "name,type,scale,zero_point,exponent,least,largest";
enum { FIELDS = 7, MOST_LINE = 1 << 16 };

/* --- writing ------------------------------------------------------------------------------------------------------ */

static void put_name(FILE *f, const char *name, int inner) {
    const bool quotes = strpbrk(name, ",\"\r\n") != NULL;
    fputs(quotes ? "\"" : "", f);
    for (; *name; name++)
        fputs(*name == '"' ? "\"\"" : (const char[]){*name, 0}, f);
    if (inner >= 0)
        fprintf(f, "#%d", inner);
    fputs(quotes ? "\"" : "", f);
}

static void put_line(FILE *f, const struct fl_program *p, const struct fl_range *r, const char *name, int inner) {
    struct fl_int8_type type = r->integers;
    if (p->observing && p->statistics && r->seen && inner < 0)
        type = fl_type_of_range(fl_range_by(&p->how, r->least, r->largest, r->histogram), p->how.symmetric);
    int exponent = r->exponent;
    const bool frozen = p->observing ? fl_range_exponent(r, 1, &exponent) : r->frozen;
    if (!(type.scale > 0) && !frozen && !r->seen)
        return;
    put_name(f, name, inner);
    if (type.scale > 0)
        fprintf(f, ",%s,%.9g,%d,", type.is_unsigned ? "uint8" : "int8", (double)type.scale, type.zero);
    else
        fputs(",,,,", f);
    if (frozen)
        fprintf(f, "%d", exponent);
    if (r->seen)
        fprintf(f, ",%.9g,%.9g\n", r->least, r->largest);
    else
        fputs(",,\n", f);
}

static void put_inner(FILE *f, const struct fl_program *p, const struct fl_net_graph *graph) {
    for (int k = 0; k < graph->node_count; k++) {
        const struct fl_net_node *const node = &graph->nodes[k];
        for (int i = 0; node->inner && i < FL_NODE_TEMPORARIES; i++)
            put_line(f, p, &node->inner[i], node->name, i);
    }
}

static tensor_status publish(const char *path, const char *text, size_t size) {
    char why[FL_FILE_WHY];
    const size_t room = strlen(path) + sizeof ".part";
    char *const part = fl_alloc(room);
    if (!part)
        return fl_fail(TENSOR_E_MEMORY, "no memory for the name of a file");
    snprintf(part, room, "%s.part", path);
    tensor_status status = fl_file_may_take(path, why) ? TENSOR_OK : fl_fail(TENSOR_E_IO, "%s", why);
    const int file = status ? -1 : fl_file_create(part);
    if (!status && (file < 0 || !fl_file_end(file, fl_file_write(file, text, size)))) {
        status = fl_fail(TENSOR_E_IO, "%s: %s", part, strerror(errno));
        unlink(part);
    }
    if (!status && !fl_file_publish(part, path, why))
        status = fl_fail(TENSOR_E_IO, "%s", why);
    fl_free(part);
    return status;
}

tensor_status program_scales_write(const program *p, const char *path) {
    char *text = NULL;
    size_t size = 0;
    if (!p || !path)
        return fl_fail(TENSOR_E_ARGUMENT, "program_scales_write: %s is NULL", p ? "path" : "p");
    FILE *const f = open_memstream(&text, &size);
    if (!f)
        return fl_fail(TENSOR_E_MEMORY, "no memory for a list of scales");
    fprintf(f, "%s\n", head);
    for (int v = 0; v < p->network->value_count; v++)
        if (!p->network->values[v].constant)
            put_line(f, p, &p->network->values[v].range, p->network->values[v].name, -1);
    put_inner(f, p, &p->network->graph);
    const bool good = !ferror(f);
    const tensor_status status =
        fclose(f) || !good ? fl_fail(TENSOR_E_MEMORY, "no memory for a list of scales") : publish(path, text, size);
    free(text);
    return status;
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

struct scales {
    struct fl_program *p;
    const char *path;
    int line, count, room;
    struct entry {
        struct fl_range *range;
        struct fl_range becomes;
    } * entries;
};

static tensor_status refuse(const struct scales *s, const char *what, const char *found, const char *expected) {
    return fl_fail(TENSOR_E_DATA, "%s, line %d: %s '%.80s', expected %s", s->path, s->line, what, found, expected);
}

/* Splits a line in place. False: not as many fields, or quotes that do not match. */
static bool split(char *line, char *fields[FIELDS]) {
    for (int i = 0; i < FIELDS; i++) {
        char *to = fields[i] = line;
        const bool quoted = *line == '"';
        line += quoted;
        while (*line && (quoted ? *line != '"' || line[1] == '"' : *line != ',')) {
            line += quoted && *line == '"';
            *to++ = *line++;
        }
        if (quoted && *line++ != '"')
            return false;
        if (*line != (i < FIELDS - 1 ? ',' : 0))
            return false;
        line++;
        *to = 0;
    }
    return true;
}

static struct fl_range *find_range(const struct fl_program *p, const char *name) {
    const struct fl_network *const n = p->network;
    for (int v = 0; v < n->value_count; v++)
        if (!n->values[v].constant && !n->values[v].quantisation && !strcmp(n->values[v].name, name))
            return &n->values[v].range;
    const char *const number = strrchr(name, '#');
    if (!number || number[1] < '0' || number[1] > '9')
        return NULL;
    const int inner = atoi(number + 1);
    for (int k = 0; k < n->graph.node_count && inner < FL_NODE_TEMPORARIES; k++) {
        struct fl_net_node *const node = &n->graph.nodes[k];
        if (strlen(node->name) != (size_t)(number - name) || strncmp(node->name, name, (size_t)(number - name)) != 0)
            continue;
        if (!node->inner)
            node->inner = fl_net_memory(p->network, FL_NODE_TEMPORARIES * sizeof *node->inner);
        return node->inner ? &node->inner[inner] : NULL;
    }
    return NULL;
}

static bool whole(const char *text, long low, long high, long *number) {
    char *end;
    errno = 0;
    *number = strtol(text, &end, 10);
    return end != text && !*end && !errno && *number >= low && *number <= high;
}

static bool real(const char *text, double *number) {
    char *end;
    *number = strtod(text, &end);
    return end != text && !*end && isfinite(*number);
}

static tensor_status read_line(struct scales *s, char *line) {
    char *field[FIELDS];
    long number;
    double scale;
    struct entry e = {.range = NULL};
    if (!split(line, field))
        return fl_fail(TENSOR_E_DATA, "%s, line %d: expected %d fields with commas between them: %s", s->path, s->line,
                       FIELDS, head);
    e.range = find_range(s->p, field[0]);
    if (!e.range)
        return refuse(s, "tensor", field[0], "the name of one of the network");
    for (int i = 0; i < s->count; i++)
        if (s->entries[i].range == e.range)
            return refuse(s, "tensor", field[0], "each once");
    e.becomes = *e.range;
    e.becomes.integers = (struct fl_int8_type){.scale = 0};
    e.becomes.frozen = false;
    if (*field[1]) {
        e.becomes.integers.is_unsigned = !strcmp(field[1], "uint8");
        if (!e.becomes.integers.is_unsigned && strcmp(field[1], "int8") != 0)
            return refuse(s, "type", field[1], "uint8, int8, or nothing");
        if (!real(field[2], &scale) || !((float)scale > 0) || !isfinite((float)scale))
            return refuse(s, "scale", field[2], "a positive float32");
        if (!whole(field[3], e.becomes.integers.is_unsigned ? 0 : -128, e.becomes.integers.is_unsigned ? 255 : 127,
                   &number))
            return refuse(s, "zero point", field[3], e.becomes.integers.is_unsigned ? "0 to 255" : "-128 to 127");
        e.becomes.integers.scale = (float)scale;
        e.becomes.integers.zero = (int32_t)number;
    } else if (*field[2] || *field[3]) {
        return refuse(s, "scale", field[2], "none where there is no type");
    }
    if (*field[4]) {
        if (!whole(field[4], -1000, 1000, &number))
            return refuse(s, "exponent", field[4], "-1000 to 1000, or nothing");
        e.becomes.exponent = (int)number;
        e.becomes.frozen = true;
    }
    e.becomes.seen = *field[5] || *field[6];
    if (e.becomes.seen && (!real(field[5], &e.becomes.least) || !real(field[6], &e.becomes.largest) ||
                           e.becomes.least > e.becomes.largest))
        return refuse(s, "least number", field[5], "one that is not above the largest");
    if (e.becomes.seen)
        e.becomes.maximum = fmax(fabs(e.becomes.least), fabs(e.becomes.largest));
    e.becomes.histogram = NULL;
    if (s->count == s->room) {
        const int room = s->room ? 2 * s->room : 64;
        struct entry *const more = fl_alloc((size_t)room * sizeof *more);
        if (!more)
            return fl_fail(TENSOR_E_MEMORY, "no memory for a list of scales");
        if (s->count)
            memcpy(more, s->entries, (size_t)s->count * sizeof *more);
        fl_free(s->entries);
        s->entries = more;
        s->room = room;
    }
    s->entries[s->count++] = e;
    return TENSOR_OK;
}

static tensor_status read_lines(struct scales *s, FILE *f, char *line) {
    while (fgets(line, MOST_LINE, f)) {
        const size_t length = strlen(line);
        s->line++;
        if (length + 1 == MOST_LINE)
            return fl_fail(TENSOR_E_DATA, "%s, line %d: expected at most %d bytes", s->path, s->line, MOST_LINE - 2);
        line[strcspn(line, "\r\n")] = 0;
        if (s->line == 1 && strcmp(line, head) != 0)
            return refuse(s, "head", line, head);
        if (s->line > 1 && *line)
            TRY(read_line(s, line));
    }
    return ferror(f) ? fl_fail(TENSOR_E_IO, "%s: %s", s->path, strerror(errno))
           : s->line ? TENSOR_OK
                     : fl_fail(TENSOR_E_DATA, "%s is empty, expected the line %s", s->path, head);
}

tensor_status program_scales_read(program *p, const char *path) {
    const char *kind = NULL;
    struct scales s = {.p = p, .path = path};
    if (!p || !path)
        return fl_fail(TENSOR_E_ARGUMENT, "program_scales_read: %s is NULL", p ? "path" : "p");
    TRY(fl_program_may_quantise(p));
    const int file = fl_file_open(path, NULL, &kind);
    FILE *const f = file < 0 ? NULL : fdopen(file, "r");
    if (!f) {
        if (file >= 0)
            close(file);
        return kind ? fl_fail(TENSOR_E_IO, "%s is %s, expected a file", path, kind)
                    : fl_fail(TENSOR_E_IO, "%s: %s", path, strerror(errno));
    }
    char *const line = fl_alloc(MOST_LINE);
    tensor_status status = line ? read_lines(&s, f, line) : fl_fail(TENSOR_E_MEMORY, "no memory for a line");
    fclose(f);
    fl_free(line);
    for (int i = 0; i < s.count && !status; i++)
        *s.entries[i].range = s.entries[i].becomes;
    fl_free(s.entries);
    return status ? status : fl_program_end_calibration(p);
}
