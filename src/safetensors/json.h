/* json.h - the part of JSON (RFC 8259) that files of the library have: in the header of a safetensors file, and in the
 * network of a program within it. A reader takes one word after the other, in the text that it was given; a writer
 * collects a text. Numbers have a decimal point in every locale. */
#ifndef FL_JSON_H
#define FL_JSON_H

#include "flexlab/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* --- reading ------------------------------------------------------------------------------------------------------ */

/* A text that is read from `at` on. Messages begin with "KIND PATH: byte AT of the PART: ". */
struct fl_json {
    const char *kind, *path, *part;
    unsigned char *text; /* strings are unescaped in place */
    size_t at, size;
};

/* TENSOR_E_DATA with a message at a position of the text. fl_json_expected refuses what is at the current one, because
 * something else was expected. */
tensor_status fl_json_refuse(const struct fl_json *r, size_t at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
tensor_status fl_json_expected(const struct fl_json *r, const char *what);

void fl_json_space(struct fl_json *r);
/* Whether the next character is c, which is then behind. fl_json_need refuses another. */
bool fl_json_take(struct fl_json *r, char c);
tensor_status fl_json_need(struct fl_json *r, char c);
/* A string, ended by a zero, in the memory of the text. */
tensor_status fl_json_string(struct fl_json *r, const char **string);
/* A whole number from 0, without sign, point, exponent or leading zeros; fl_json_integer takes a sign as well. */
tensor_status fl_json_whole(struct fl_json *r, int64_t *value);
tensor_status fl_json_integer(struct fl_json *r, int64_t *value);
/* A number, or one of the strings "inf", "-inf", "nan", which JSON has no numbers for. */
tensor_status fl_json_real(struct fl_json *r, double *value);
/* true or false. */
tensor_status fl_json_switch(struct fl_json *r, bool *value);

/* --- writing ------------------------------------------------------------------------------------------------------ */

/* Begins as zeros. Without memory `failed` is set, and nothing more is added. The text is freed with fl_free(at). */
struct fl_json_out {
    char *at;
    size_t used, room;
    bool failed;
};

void fl_json_put_bytes(struct fl_json_out *t, const char *bytes, size_t size);
/* Whole numbers and words of the format only, which no locale changes; at most 99 characters. */
void fl_json_put(struct fl_json_out *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
void fl_json_put_string(struct fl_json_out *t, const char *string);
/* A number as fl_json_real reads it, with so many digits: 9 give a float back, 17 a double. */
void fl_json_put_real(struct fl_json_out *t, double value, int digits);

#endif
