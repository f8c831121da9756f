/* shown.c - characters that turn the order of those around them. */
#include "core/base/shown.h"
#include <stdio.h>

size_t fl_turning(const char *text, char shown[FL_TURNING_TEXT]) {
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
            snprintf(shown, FL_TURNING_TEXT, "\\u%04x", code & 0xffffu);
            return bytes;
        }
    return 0;
}
