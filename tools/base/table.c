/* table.c - rows of cells, printed as aligned text or as HTML. */
#include "base/table.h"
#include "base/text.h"
#include "core/base/shown.h"
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { GAP = 2 }; /* blanks between two columns */

struct table {
    char *alignment;
    char **cells;
    size_t columns, count, room;
};

struct table *table_new(const char *alignment) {
    struct table *t = text_alloc(1, sizeof *t);
    t->columns = strlen(alignment);
    t->alignment = text_format("%s", alignment);
    return t;
}

void table_free(struct table *t) {
    for (size_t i = 0; i < t->count; i++)
        free(t->cells[i]);
    free(t->cells);
    free(t->alignment);
    free(t);
}

void table_take(struct table *t, char *text) {
    if (t->count == t->room) {
        t->room = t->room ? 2 * t->room : 32;
        t->cells = text_realloc(t->cells, t->room, sizeof *t->cells);
    }
    t->cells[t->count++] = text_shown(text); /* names may hold anything */
    free(text);
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

/* The columns from `first`, and the first column before them where they are not the first themselves; how many there
 * are is what fits into width, at least one. Returns the column after the last. */
static size_t block_end(const struct table *t, const int *widths, size_t first, int indent, int width) {
    int used = indent + (first ? widths[0] + GAP : 0);
    size_t end = first;
    for (; end < t->columns; end++) {
        used += widths[end] + (end > first ? GAP : 0);
        if (width && used > width && end > first)
            break;
    }
    return end;
}

static void print_cell(const struct table *t, size_t cell, int column_wide, bool last, FILE *out) {
    int blanks = column_wide - text_width(t->cells[cell]);
    if (t->alignment[cell % t->columns] == 'r')
        fprintf(out, "%*s%s", blanks, "", t->cells[cell]);
    else
        fprintf(out, "%s%*s", t->cells[cell], last ? 0 : blanks, "");
    fprintf(out, "%*s", last ? 0 : GAP, "");
}

void table_print(const struct table *t, FILE *out, int indent, int width) {
    int *widths = text_alloc(t->columns, sizeof *widths);
    for (size_t c = 0; c < t->columns; c++)
        widths[c] = column_width(t, c);
    for (size_t first = 0, end; first < t->columns; first = end) {
        end = block_end(t, widths, first, indent, width);
        if (first == 0 && end == 1 && t->columns > 1)
            end = 2; /* the first column by itself has no information */
        if (first)
            fputc('\n', out);
        for (size_t row = 0; row < t->count / t->columns; row++) {
            fprintf(out, "%*s", indent, "");
            if (first)
                print_cell(t, row * t->columns, widths[0], false, out);
            for (size_t c = first; c < end; c++)
                print_cell(t, row * t->columns + c, widths[c], c + 1 == end, out);
            fputc('\n', out);
        }
    }
    free(widths);
}

void paragraph_print(const char *raw, FILE *out, int width) {
    int used = 0;
    char *shown = text_shown(raw);
    const char *text = shown;
    while (*text) {
        size_t length = strcspn(text, " ");
        char *word = text_format("%.*s", (int)length, text);
        int columns = text_width(word);
        if (used && width && used + 1 + columns > width) {
            fputc('\n', out);
            used = 0;
        }
        fprintf(out, "%s%s", used ? " " : "", word);
        used += columns + (used > 0);
        free(word);
        text += length;
        text += strspn(text, " ");
    }
    fputc('\n', out);
    free(shown);
}

static int wished_columns(void) {
    const char *wish = getenv("COLUMNS");
    int64_t columns;
    return wish && text_whole(wish, 1, 10000, &columns) ? (int)columns : 0;
}

int output_columns(void) {
    struct winsize size;
    int wished = wished_columns();
    if (!isatty(STDOUT_FILENO))
        return wished;
    if (!ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) && size.ws_col)
        return size.ws_col;
    return wished ? wished : 80;
}

void table_print_html(const struct table *t, FILE *out) {
    fputs("<div class=\"wide\"><table>\n", out);
    for (size_t i = 0; i < t->count; i++) {
        size_t c = i % t->columns;
        const char *tag = i < t->columns ? "th" : "td";
        if (c == 0)
            fputs(i == 0 ? "<thead><tr>" : strstr(t->cells[i], "DIVERGED") ? "<tr class=\"diverged\">" : "<tr>", out);
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
        char turning[FL_SHOWN_TEXT];
        bool control =
            (c < 0x20 && c != '\n' && c != '\t') || c == 0x7F || (c == 0xC2 && (unsigned char)text[1] < 0xA0);
        if (!bytes || control)
            fputs("\xEF\xBF\xBD", out); /* a character that HTML does not allow */
        else if (fl_turning(text, turning))
            fputs(turning, out);
        else if (strchr("&<>\"", c))
            fputs(c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : "&quot;", out);
        else
            fwrite(text, 1, bytes, out);
        text += bytes ? bytes : 1;
    }
}
