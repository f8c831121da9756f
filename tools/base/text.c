/* text.c - messages, numbers and names as people read and write them. */
#include "base/text.h"
#include "core/base/shown.h"
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *command_name;

/* --- characters ----------------------------------------------------------------------------------------------------
 */

size_t text_character(const char *text) {
    return *text ? fl_utf8_length((const unsigned char *)text, strnlen(text, 4)) : 0;
}

char *text_valid(const char *text) {
    static const char replacement[] = "\xEF\xBF\xBD";
    char *valid = text_alloc(3 * strlen(text) + 1, 1), *out = valid;
    while (*text) {
        size_t bytes = text_character(text);
        memcpy(out, bytes ? text : replacement, bytes ? bytes : 3);
        out += bytes ? bytes : 3;
        text += bytes ? bytes : 1;
    }
    return valid;
}

static char *shown_or_null(const char *text) {
    char *shown = calloc((FL_SHOWN_TEXT - 1) * strlen(text) + 1, 1), *out = shown;
    while (shown && *text) {
        text += fl_shown(text, out);
        out += strlen(out);
    }
    return shown;
}

/* --- messages ------------------------------------------------------------------------------------------------------
 */

void text_set_command(const char *command) {
    command_name = command;
}

/* Names in a message may have any characters; the message remains one line. Without memory it is printed unchanged. */
static void message(const char *format, va_list arguments) {
    va_list again;
    char *raw = NULL, *shown = NULL;
    va_copy(again, arguments);
    if (vasprintf(&raw, format, arguments) < 0)
        raw = NULL;
    if (raw)
        shown = shown_or_null(raw);
    fflush(stdout);
    fprintf(stderr, "flexlab%s%s: ", command_name ? " " : "", command_name ? command_name : "");
    if (shown)
        fputs(shown, stderr);
    else
        vfprintf(stderr, format, again);
    fputc('\n', stderr);
    va_end(again);
    free(raw);
    free(shown);
}

int text_failed(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    message(format, arguments);
    va_end(arguments);
    return STATUS_FAILED;
}

int text_usage(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    message(format, arguments);
    va_end(arguments);
    return STATUS_USAGE;
}

void text_note(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    message(format, arguments);
    va_end(arguments);
}

static void *checked(void *block) {
    if (!block)
        exit(text_failed("out of memory"));
    return block;
}

char *text_shown(const char *text) {
    return checked(shown_or_null(text));
}

void *text_alloc(size_t count, size_t size) {
    return checked(calloc(count ? count : 1, size));
}

void *text_realloc(void *block, size_t count, size_t size) {
    return checked(reallocarray(block, count ? count : 1, size));
}

char *text_format(const char *format, ...) {
    char *text;
    va_list arguments;
    va_start(arguments, format);
    int length = vasprintf(&text, format, arguments);
    va_end(arguments);
    return checked(length < 0 ? NULL : text);
}

bool text_ends(const char *text, const char *ending) {
    const size_t length = strlen(text), tail = strlen(ending);
    return length > tail && !strcmp(text + length - tail, ending);
}

bool text_whole(const char *text, int64_t low, int64_t high, int64_t *value) {
    size_t sign = text[0] == '-';
    if (!text[sign] || strspn(text + sign, "0123456789") != strlen(text + sign))
        return false;
    errno = 0;
    long long number = strtoll(text, NULL, 10);
    if (errno || number < low || number > high)
        return false;
    *value = number;
    return true;
}

bool text_real(const char *text, double low, double high, double *value) {
    if (!text[0] || strspn(text, "0123456789.eE+-") != strlen(text) || text[0] == '+')
        return false;
    char *end;
    double number = strtod(text, &end);
    if (*end || end == text || !(number >= low && number <= high))
        return false;
    *value = number;
    return true;
}

/* Insertions, deletions, substitutions (Levenshtein) between names of at most 63 bytes. */
static int distance(const char *a, const char *b) {
    enum { LONGEST = 63 };
    int previous[LONGEST + 1], current[LONGEST + 1];
    size_t la = strlen(a), lb = strlen(b);
    if (la > LONGEST || lb > LONGEST)
        return LONGEST;
    for (size_t j = 0; j <= lb; j++)
        previous[j] = (int)j;
    for (size_t i = 1; i <= la; i++) {
        current[0] = (int)i;
        for (size_t j = 1; j <= lb; j++) {
            int best = previous[j - 1] + (a[i - 1] != b[j - 1]);
            if (previous[j] + 1 < best)
                best = previous[j] + 1;
            if (current[j - 1] + 1 < best)
                best = current[j - 1] + 1;
            current[j] = best;
        }
        memcpy(previous, current, (lb + 1) * sizeof *current);
    }
    return previous[lb];
}

const char *text_did_you_mean(const char *name, const char *(*known)(int i)) {
    static char text[96];
    const char *candidate, *nearest = NULL;
    int least = 0;
    for (int i = 0; (candidate = known(i)); i++) {
        int d = distance(name, candidate);
        if (!nearest || d < least) {
            nearest = candidate;
            least = d;
        }
    }
    text[0] = 0;
    if (nearest && least > 0 && least <= ((int)strlen(nearest) + 1) / 3 && least < (int)strlen(name))
        snprintf(text, sizeof text, "; did you mean '%s'?", nearest);
    return text;
}

char *text_names(const char *(*known)(int i)) {
    char *names = text_format("%s", known(0) ? known(0) : "");
    for (int i = 1; names[0] && known(i); i++) {
        char *longer = text_format("%s, %s", names, known(i));
        free(names);
        names = longer;
    }
    return names;
}

int text_refuse_name(char *what, const char *name, const char *(*known)(int i)) {
    char *names = text_names(known);
    int status = text_usage("%s: expected one of %s%s", what, names, text_did_you_mean(name, known));
    free(names);
    free(what);
    return status;
}

char *text_bytes(double bytes) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int unit = 0;
    while (bytes >= 1024 && unit < 4) {
        bytes /= 1024;
        unit++;
    }
    return text_format(unit && bytes < 100 ? "%.1f %s" : "%.0f %s", bytes, units[unit]);
}

char *text_count(int64_t count) {
    char digits[24];
    int length = snprintf(digits, sizeof digits, "%lld", (long long)count), from = digits[0] == '-';
    char *text = text_alloc(2 * sizeof digits, 1), *p = text;
    for (int i = 0; i < length; i++) {
        if (i > from && (length - i) % 3 == 0)
            *p++ = ',';
        *p++ = digits[i];
    }
    return text;
}

char *text_duration(double seconds) {
    if (!(seconds >= 0 && seconds < 1e9))
        return text_format("-");
    long s = lround(seconds);
    return s < 3600 ? text_format("%ld:%02ld", s / 60, s % 60)
                    : text_format("%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
}

char *text_shape(int ndim, const int64_t *dim) {
    char *text = text_format("["), *longer;
    for (int d = 0; d < ndim; d++, text = longer) {
        longer = text_format("%s%s%lld", text, d ? ", " : "", (long long)dim[d]);
        free(text);
    }
    longer = text_format("%s]", text);
    free(text);
    return longer;
}

int text_width(const char *text) {
    int width = 0;
    for (; *text; text++)
        width += ((unsigned char)*text & 0xC0) != 0x80;
    return width;
}

/* A word quoted for a shell. Bytes that are no text, and control characters, become \ooo in $'...'. */
char *text_quoted(const char *word) {
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+,.:/@%";
    bool simple = word[0] && strspn(word, plain) == strlen(word), printable = true;
    char *shown = text_shown(word), *quoted = text_alloc(4 * strlen(word) + 4, 1), *out = quoted;
    printable = !strcmp(shown, word);
    free(shown);
    out = stpcpy(out, simple ? "" : printable ? "'" : "$'");
    for (const char *p = word; *p; p++) {
        unsigned char c = (unsigned char)*p;
        if (printable && c == '\'')
            out = stpcpy(out, "'\\''");
        else if (!printable && (c < 0x20 || c >= 0x7F || c == '\'' || c == '\\'))
            out += sprintf(out, "\\%03o", c);
        else
            *out++ = *p;
    }
    strcpy(out, simple ? "" : "'");
    return quoted;
}

void text_print_csv(FILE *out, const char *text) {
    if (!strpbrk(text, ",\"\n\r")) {
        fputs(text, out);
        return;
    }
    fputc('"', out);
    for (; *text; text++)
        fprintf(out, *text == '"' ? "\"\"" : "%c", *text);
    fputc('"', out);
}
