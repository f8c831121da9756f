/* match.c - shell patterns of names. */
#include "core/base/match.h"
#include <string.h>

/* A character of a set, which may be quoted; NULL: the pattern ends before it. */
static const char *take_member(const char *p, const char *end, unsigned char *member) {
    if (p < end && *p == '\\')
        p++;
    if (p >= end)
        return NULL;
    *member = (unsigned char)*p;
    return p + 1;
}

/* p: after the '['. What follows the ']', NULL where there is none; *found: whether c is one of the set. */
static const char *match_set(const char *p, const char *end, unsigned char c, bool *found) {
    const bool none = p < end && (*p == '!' || *p == '^');
    bool in = false;
    p += none;
    for (bool first = true; p < end && (first || *p != ']'); first = false) {
        unsigned char low, high;
        if (!(p = take_member(p, end, &low)))
            return NULL;
        high = low;
        if (end - p > 1 && p[0] == '-' && p[1] != ']' && !(p = take_member(p + 1, end, &high)))
            return NULL;
        in = in || (c >= low && c <= high);
    }
    *found = in != none;
    return p < end ? p + 1 : NULL;
}

/* The rest of the pattern after the element that c matches; NULL: it does not match. */
static const char *match_one(const char *p, const char *end, char c) {
    bool found;
    if (p == end)
        return NULL;
    if (*p == '?')
        return p + 1;
    if (*p == '[') {
        const char *after = match_set(p + 1, end, (unsigned char)c, &found);
        if (after)
            return found ? after : NULL;
    }
    if (*p == '\\' && ++p == end)
        return NULL;
    return *p == c ? p + 1 : NULL;
}

bool fl_matches(const char *pattern, size_t length, const char *name) {
    const char *p = pattern, *end = pattern + length, *star = NULL, *from = name;
    while (*name) {
        const char *after;
        if (p < end && *p == '*') { /* tried with nothing first, then with one character more each time */
            star = ++p;
            from = name;
        } else if ((after = match_one(p, end, *name))) {
            p = after;
            name++;
        } else if (star) {
            p = star;
            name = ++from;
        } else {
            return false;
        }
    }
    while (p < end && *p == '*')
        p++;
    return p == end;
}
