/* shown.h - characters as a line of a message shows them: those that nobody sees, and those that end a line or turn the
 * order of others round, stand there by their code. One rule for the library and for the program, which compiles
 * shown.c once more, as it does files.c. */
#ifndef FL_SHOWN_H
#define FL_SHOWN_H

#include <stddef.h>

enum { FL_SHOWN_TEXT = sizeof "\\u202e" };

/* How many bytes the UTF-8 character (RFC 3629) at `text` has, at most `left`; 0: it is none. */
size_t fl_utf8_length(const unsigned char *text, size_t left);
/* Bytes of a character at the beginning of `text` that turns the order of those around it, or ends a line, without
 * being seen, shown as "\u202e"; 0: there is none, and shown stays. */
size_t fl_turning(const char *text, char shown[FL_SHOWN_TEXT]);
/* Bytes of the character that `text` begins with, 1 for a byte of none. shown: the character itself; of a control
 * character "\n", "\t", "\r", "\x1b", "\u009b"; of one that turns "\u202e"; of a byte of no character "\xff". */
size_t fl_shown(const char *text, char shown[FL_SHOWN_TEXT]);

#endif
