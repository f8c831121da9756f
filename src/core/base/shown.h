/* shown.h - characters that turn the order of those around them, or end a line, without being seen, and how they are
 * shown. The program compiles shown.c once more, as it does files.c: what it shows and what our messages show is one.
 */
#ifndef FL_SHOWN_H
#define FL_SHOWN_H

#include <stddef.h>

enum { FL_TURNING_TEXT = sizeof "\\u202e" };

/* Bytes of such a character (UTF-8) at the beginning of `text`, shown as "\u202e"; 0: there is none, and shown stays.
 */
size_t fl_turning(const char *text, char shown[FL_TURNING_TEXT]);

#endif
