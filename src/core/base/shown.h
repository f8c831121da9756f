/* shown.h - characters as a line of a message shows them: invisible ones, and those that end a line or reverse the
 * order of others, are escaped. One rule for the library and for the program, which compiles shown.c too, as it does
 * files.c. */
#ifndef FL_SHOWN_H
#define FL_SHOWN_H

#include <stddef.h>

enum { FL_SHOWN_TEXT = sizeof "\\u202e" };

/* The number of bytes of the UTF-8 character (RFC 3629) at `text`, at most `left`; 0 if there is no such character. */
size_t fl_utf8_length(const unsigned char *text, size_t left);
/* The number of bytes of an invisible character at the beginning of `text` that reverses the order of those around it,
 * or ends a line, with shown set to its escape, "\u202e"; 0 if there is none, with shown unchanged. */
size_t fl_turning(const char *text, char shown[FL_SHOWN_TEXT]);
/* The number of bytes of the character that `text` begins with, 1 for a byte of no character. shown: the character
 * itself; "\n", "\t", "\r", "\x1b", "\u009b" for a control character; "\u202e" for one that reverses the order; "\xff"
 * for a byte of no character. */
size_t fl_shown(const char *text, char shown[FL_SHOWN_TEXT]);

#endif
