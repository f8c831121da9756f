/* table.c - rows of cells, printed as aligned text or as HTML. */
#include "table.h"
#include "text.h"
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct table {
    const char *alignment;
    char **cells;
    size_t columns, count, room;
};

struct table *table_new(const char *alignment) {
    struct table *t = text_alloc(1, sizeof *t);
    t->alignment = alignment;
    t->columns = strlen(alignment);
    return t;
}

void table_free(struct table *t) {
    for (size_t i = 0; i < t->count; i++)
        free(t->cells[i]);
    free(t->cells);
    free(t);
}

void table_take(struct table *t, char *text) {
    if (t->count == t->room) {
        t->room = t->room ? 2 * t->room : 32;
        t->cells = text_realloc(t->cells, t->room, sizeof *t->cells);
    }
    t->cells[t->count++] = text;
}

void table_cell(struct table *t, const char *format, ...) {
    char *text;
    va_list arguments;
    va_start(arguments, format);
    int length = vasprintf(&text, format, arguments);
    va_end(arguments);
    if (length < 0)
        exit(text_failed("out of memory"));
    table_take(t, text);
}

static int column_width(const struct table *t, size_t column) {
    int widest = 0;
    for (size_t i = column; i < t->count; i += t->columns)
        if (text_width(t->cells[i]) > widest)
            widest = text_width(t->cells[i]);
    return widest;
}

void table_print(const struct table *t, FILE *out, int indent) {
    int *widths = text_alloc(t->columns, sizeof *widths);
    for (size_t c = 0; c < t->columns; c++)
        widths[c] = column_width(t, c);
    for (size_t i = 0; i < t->count; i++) {
        size_t c = i % t->columns;
        int blanks = widths[c] - text_width(t->cells[i]);
        if (c == 0)
            fprintf(out, "%*s", indent, "");
        if (t->alignment[c] == 'r')
            fprintf(out, "%*s%s", blanks, "", t->cells[i]);
        else
            fprintf(out, "%s%*s", t->cells[i], c + 1 < t->columns ? blanks : 0, "");
        fputs(c + 1 < t->columns ? "  " : "\n", out);
    }
    free(widths);
}

void table_print_html(const struct table *t, FILE *out) {
    fputs("<div class=\"wide\"><table>\n", out);
    for (size_t i = 0; i < t->count; i++) {
        size_t c = i % t->columns;
        const char *tag = i < t->columns ? "th" : "td";
        if (c == 0)
            fputs(i == 0 ? "<thead><tr>" : "<tr>", out);
        fprintf(out, "<%s%s>", tag, t->alignment[c] == 'r' ? " class=\"r\"" : "");
        html_text(out, t->cells[i]);
        fprintf(out, "</%s>", tag);
        if (c + 1 == t->columns)
            fputs(i < t->columns ? "</tr></thead>\n<tbody>" : "</tr>\n", out);
    }
    fputs("</tbody></table></div>\n", out);
}

void html_text(FILE *out, const char *text) {
    while (*text) {
        size_t bytes = text_character(text);
        unsigned char c = (unsigned char)*text;
        bool control =
            (c < 0x20 && c != '\n' && c != '\t') || c == 0x7F || (c == 0xC2 && (unsigned char)text[1] < 0xA0);
        if (!bytes || control)
            fputs("\xEF\xBF\xBD", out); /* no character that HTML knows */
        else if (strchr("&<>\"", c))
            fputs(c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : "&quot;", out);
        else
            fwrite(text, 1, bytes, out);
        text += bytes ? bytes : 1;
    }
}
