/* shown.c - characters as a line of a message shows them. */
#include "core/base/shown.h"
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

size_t fl_utf8_length(const unsigned char *text, size_t left) {
    const unsigned char first = left ? text[0] : 0xff;
    if (first < 0x80)
        return 1;
    const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    if (first < 0xc2 || first > 0xf4 || length > left)
        return 0;
    for (size_t i = 1; i < length; i++)
        if (text[i] >> 6 != 2)
            return 0;
    /* Overlong forms, surrogates, and codes above U+10FFFF. */
    const bool bad = (first == 0xe0 && text[1] < 0xa0) || (first == 0xed && text[1] > 0x9f) ||
                     (first == 0xf0 && text[1] < 0x90) || (first == 0xf4 && text[1] > 0x8f);
    return bad ? 0 : length;
}

size_t fl_turning(const char *text, char shown[FL_SHOWN_TEXT]) {
    /* the Arabic letter mark, marks, ends of lines and paragraphs, embeddings and overrides, isolates */
    static const struct {
        unsigned first, last;
        size_t bytes;
    } turning[] = {{0x061c, 0x061c, 2}, {0x200e, 0x200f, 3}, {0x2028, 0x202e, 3}, {0x2066, 0x2069, 3}};
    const unsigned char *p = (const unsigned char *)text;
    unsigned code = 0;
    size_t bytes = 0;
    if ((p[0] & 0xe0) == 0xc0 && (p[1] & 0xc0) == 0x80) {
        code = (p[0] & 0x1fu) << 6 | (p[1] & 0x3fu);
        bytes = 2;
    } else if ((p[0] & 0xf0) == 0xe0 && (p[1] & 0xc0) == 0x80 && (p[2] & 0xc0) == 0x80) {
        code = (p[0] & 0xfu) << 12 | (p[1] & 0x3fu) << 6 | (p[2] & 0x3fu);
        bytes = 3;
    }
    for (size_t i = 0; i < sizeof turning / sizeof *turning; i++)
        if (bytes == turning[i].bytes && code >= turning[i].first && code <= turning[i].last) {
            snprintf(shown, FL_SHOWN_TEXT, "\\u%04x", code & 0xffffu);
            return bytes;
        }
    return 0;
}

size_t fl_shown(const char *text, char shown[FL_SHOWN_TEXT]) {
    const unsigned char *p = (const unsigned char *)text;
    const size_t bytes = fl_utf8_length(p, strnlen(text, 4)), turning = fl_turning(text, shown);
    if (turning)
        return turning;
    if (!bytes)
        snprintf(shown, FL_SHOWN_TEXT, "\\x%02x", p[0]);
    else if (p[0] == '\n' || p[0] == '\t' || p[0] == '\r')
        snprintf(shown, FL_SHOWN_TEXT, "\\%c", p[0] == '\n' ? 'n' : p[0] == '\t' ? 't' : 'r');
    else if (p[0] < 0x20 || p[0] == 0x7f)
        snprintf(shown, FL_SHOWN_TEXT, "\\x%02x", p[0]);
    else if (p[0] == 0xc2 && p[1] < 0xa0)
        snprintf(shown, FL_SHOWN_TEXT, "\\u%04x", p[1]);
    else
        snprintf(shown, FL_SHOWN_TEXT, "%.*s", (int)bytes, text);
    return bytes ? bytes : 1;
}
