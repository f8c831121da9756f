/* match.h - shell patterns of names, the same in every locale: * matches any characters, ? one, [a-z] one of a set,
 * [!a-z] one that is not in the set; a character after \ and a [ without its ] match themselves. */
#ifndef FL_MATCH_H
#define FL_MATCH_H

#include <stdbool.h>
#include <stddef.h>

/* Whether the whole name matches. length: of the pattern. */
bool fl_matches(const char *pattern, size_t length, const char *name);

#endif
