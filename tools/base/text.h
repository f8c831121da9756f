/* text.h - messages, numbers and names as people read and write them. */
#ifndef FLEXLAB_TEXT_H
#define FLEXLAB_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { STATUS_OK = 0, STATUS_FAILED = 1, STATUS_USAGE = 2 };

/* Messages begin with "flexlab COMMAND: ". NULL: "flexlab: ". */
void text_set_command(const char *command);
/* One line on stderr; they return STATUS_FAILED and STATUS_USAGE, for `return text_failed(...)`. */
int text_failed(const char *format, ...) __attribute__((format(printf, 1, 2)));
int text_usage(const char *format, ...) __attribute__((format(printf, 1, 2)));
void text_note(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Memory of the program: without memory they print a message and exit with STATUS_FAILED. text_alloc clears. */
void *text_alloc(size_t count, size_t size);
void *text_realloc(void *block, size_t count, size_t size);
char *text_format(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Bytes of the UTF-8 character that `text` begins with; 0 if it begins with none (RFC 3629). */
size_t text_character(const char *text);
/* Valid UTF-8: each byte that belongs to no character becomes U+FFFD. To be freed. */
char *text_valid(const char *text);
/* For one line of a terminal, as the library's messages have it: core/base/shown.h. To be freed. */
char *text_shown(const char *text);

/* A word quoted for a shell. Bytes that are no text, and control characters, become \ooo in $'...'. To be freed. */
char *text_quoted(const char *word);

/* Whether `text` is more than this ending, which it has: "a.onnx" has ".onnx". */
bool text_ends(const char *text, const char *ending);

/* The whole of `text` as a number within the limits, else false. No blanks, no sign "+", no hexadecimal. */
bool text_whole(const char *text, int64_t low, int64_t high, int64_t *value);
bool text_real(const char *text, double low, double high, double *value);

/* "; did you mean 'x'?" for the known name nearest to `name`, or "" when none is near. `known(i)` is NULL past the
 * last. The text is valid until the next call. */
const char *text_did_you_mean(const char *name, const char *(*known)(int i));
/* "a, b, c"; to be freed. */
char *text_names(const char *(*known)(int i));
/* "`what`: expected one of a, b, c; did you mean 'b'?" as text_usage, of a name that is none of them. `what` is freed.
 */
int text_refuse_name(char *what, const char *name, const char *(*known)(int i));

/* Short forms: "12.3 KiB", "1,234,567", "3:07" (minutes and seconds, or hours). To be freed. */
char *text_bytes(double bytes);
char *text_count(int64_t count);
char *text_duration(double seconds);
/* "[3, 4]" of dimensions; to be freed. */
char *text_shape(int ndim, const int64_t *dim);

/* A field of a CSV file; quoted where it must be. */
void text_print_csv(FILE *out, const char *text);

/* Columns on a terminal that `text` (UTF-8) takes. */
int text_width(const char *text);

#endif
