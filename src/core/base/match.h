/* match.h - shell patterns of names, in every locale the same: * any characters, ? one, [a-z] one of a set, [!a-z] one
 * of none of it, \ before a character that stands for itself. A [ without its ] stands for itself. */
#ifndef FL_MATCH_H
#define FL_MATCH_H

#include <stdbool.h>
#include <stddef.h>

/* Whether the whole name matches. length: of the pattern. */
bool fl_matches(const char *pattern, size_t length, const char *name);

#endif
